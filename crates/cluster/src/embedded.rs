//! The master in this process: its core, the leases that it grants, and who is the controller.
//!
//! ```text
//!   command ─► a copy of the core steps ─► changed? ─► save (whoever hosts it: new file, sync, rename) ─► the copy takes its place ─► answer
//! ```
//! The controller and its term are durable, when its lease ends is not: after a restart it gets a
//! whole lease from the first moment that the master hears of. Source:
//! docs/protocol/membership.md, "The controller".

use core::time::Duration;

use timestone_types::Timestamp;

use crate::{
    Leases, MapVersion, Master, MasterAnswer, MasterCommand, MasterFailure, MasterService,
    ServerId, ShardMap, Term,
};

/// Makes the master's state durable, in place of the one before it; or says why not.
type Save = Box<dyn FnMut(&[u8]) -> Result<(), String> + Send>;

/// See the module.
pub struct EmbeddedMaster {
    master: Master,
    save: Save,
    servers: Leases,
    controllers: Leases,
    /// Whether the last controller's lease was looked at since this process began.
    is_past_restart: bool,
}

impl core::fmt::Debug for EmbeddedMaster {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("EmbeddedMaster").field("master", &self.master).finish_non_exhaustive()
    }
}

impl EmbeddedMaster {
    /// A master whose state is made durable by `save`, and whose leases last for `time_to_live`.
    pub fn new(
        master: Master,
        time_to_live: Duration,
        save: impl FnMut(&[u8]) -> Result<(), String> + Send + 'static,
    ) -> Self {
        Self {
            master,
            save: Box::new(save),
            servers: Leases::new(time_to_live),
            controllers: Leases::new(time_to_live),
            is_past_restart: false,
        }
    }

    /// The core.
    #[must_use]
    pub const fn master(&self) -> &Master {
        &self.master
    }
}

impl MasterService for EmbeddedMaster {
    fn execute(&mut self, command: MasterCommand) -> Result<MasterAnswer, MasterFailure> {
        // A command whose state could not be saved must not have happened.
        let mut next = self.master.clone();
        let step = next.step(command)?;
        if step.persist {
            let mut bytes = Vec::new();
            next.encode(&mut bytes);
            (self.save)(&bytes).map_err(|detail| MasterFailure::Unavailable { detail })?;
        }
        self.master = next;
        Ok(step.answer)
    }

    fn renew(&mut self, now: Timestamp, server: ServerId) -> Result<(), MasterFailure> {
        self.servers.renew(now, server);
        Ok(())
    }

    fn alive(&mut self, now: Timestamp) -> Result<Vec<ServerId>, MasterFailure> {
        Ok(self.servers.alive(now))
    }

    fn campaign(
        &mut self,
        now: Timestamp,
        server: ServerId,
    ) -> Result<Option<Term>, MasterFailure> {
        let (expected, controller) = self.master.controller();
        if !core::mem::replace(&mut self.is_past_restart, true) && !controller.is_none() {
            self.controllers.renew(now, controller);
        }
        if self.controllers.is_alive(now, controller) {
            let is_own = controller == server;
            if is_own {
                self.controllers.renew(now, server);
            }
            return Ok(is_own.then_some(expected));
        }
        match self.execute(MasterCommand::BeginTerm { controller: server, expected })? {
            MasterAnswer::Term { term, controller } if controller == server => {
                assert!(term > expected, "a term is given out once");
                self.controllers.renew(now, server);
                Ok(Some(term))
            }
            _ => Ok(None),
        }
    }

    fn resign(&mut self, server: ServerId) -> Result<(), MasterFailure> {
        if self.master.controller().1 == server {
            self.is_past_restart = true;
            self.controllers.end(server);
        }
        Ok(())
    }

    fn map_above(&mut self, seen: MapVersion) -> Result<Option<ShardMap>, MasterFailure> {
        let map = self.master.map();
        Ok((map.version() > seen).then(|| map.clone()))
    }
}
