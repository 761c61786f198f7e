//! Which keyspace a gateway serves.
//!
//! ```text
//!   "default" ───────────────────────────────────────────────► its id, known at once
//!   another name ─► asked of the master, again and again ─┬──► its id, from then on
//!                                                         └─ there is none ─► commands on keys are refused
//! ```
//! A keyspace is created through a server, so that a server may have to run before the keyspace that it
//! is to serve is there. Until then nobody waits: each command on keys is told what is missing.
//!
//! Invariant: an id that is known stays. Ids are never used again, so a keyspace that is dropped and
//! created anew under its name is another one: it takes a restart.

use timestone_cluster::{ExternalMode, Keyspace, KeyspaceName};
use timestone_types::{KeyspaceId, Timestamp};

use crate::failure::Failure;
use crate::limits::KEYSPACE_INTERVAL;

/// See the module.
#[derive(Debug)]
pub(crate) struct ServedKeyspace {
    name: KeyspaceName,
    id: KeyspaceId,
    /// Why commands on keys are refused.
    refusal: Option<Failure>,
    /// When the master may be asked for it.
    next_ask: Timestamp,
    /// The log says what is missing.
    was_told: bool,
}

impl ServedKeyspace {
    /// The keyspace of a name.
    pub(crate) fn new(name: KeyspaceName) -> Self {
        let is_default = name.as_str() == KeyspaceName::DEFAULT;
        let unheard = || {
            Failure::text(format!(
                "TRYAGAIN this server has not heard yet which keyspace '{name}' is; nothing was done"
            ))
        };
        let refusal = (!is_default).then(unheard);
        let (id, next_ask, was_told) = (KeyspaceId::DEFAULT, Timestamp::ZERO, false);
        Self { name, id, refusal, next_ask, was_told }
    }

    /// Its id; a command that is carried out has a keyspace whose id is known.
    #[inline]
    pub(crate) const fn id(&self) -> KeyspaceId {
        self.id
    }

    /// Why commands on keys are refused, if they are.
    #[inline]
    pub(crate) const fn refusal(&self) -> Option<&Failure> {
        self.refusal.as_ref()
    }

    /// The keyspaces that exist.
    pub(crate) fn told(&mut self, keyspaces: &[Keyspace]) {
        if self.refusal.is_none() {
            return;
        }
        let name = &self.name;
        let found = keyspaces.iter().find(|keyspace| keyspace.name == *name);
        self.refusal = match found {
            Some(keyspace) if keyspace.options.external == ExternalMode::Wait => {
                Some(Failure::text(format!(
                    "ERR keyspace '{name}' waits for clocks (external = wait), and is not served to \
                     Redis clients; start the server with another --resp-keyspace"
                )))
            }
            Some(keyspace) => {
                self.id = keyspace.id;
                tracing::info!(keyspace = %name, "redis clients are served");
                None
            }
            None => Some(Failure::text(format!(
                "ERR there is no keyspace '{name}', which this server is to serve; create it: \
                 timestone keyspace create {name}"
            ))),
        };
        debug_assert!(self.refusal.is_some() || found.is_some(), "what is served was found");
        if self.refusal.is_some() && !core::mem::replace(&mut self.was_told, true) {
            tracing::warn!(keyspace = %self.name, "redis clients are refused: the keyspace that they \
                are to be served is not there, or waits for clocks");
        }
    }

    /// Whether the master is to be asked now.
    pub(crate) fn asks(&mut self, now: Timestamp) -> bool {
        if self.next_deadline().is_none_or(|at| at > now) {
            return false;
        }
        self.next_ask = now.saturating_add(KEYSPACE_INTERVAL);
        true
    }

    /// When the master is to be asked.
    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        self.refusal.as_ref().map(|_| self.next_ask)
    }
}

#[cfg(test)]
mod tests {
    use timestone_cluster::KeyspaceOptions;

    use super::*;

    fn keyspace(name: &str, number: u32, options: KeyspaceOptions) -> Keyspace {
        let name = KeyspaceName::new(name).unwrap();
        Keyspace { id: KeyspaceId::numbered(number, false), name, options }
    }

    #[test]
    fn a_keyspace_is_served_from_when_it_is_there() {
        let now = Timestamp::from_nanos(5);
        let default = keyspace("default", 0, KeyspaceOptions::DEFAULT);
        let mut served = ServedKeyspace::new(default.name.clone());
        assert!(served.refusal().is_none() && !served.asks(now));
        let wanted = keyspace("wanted", 7, KeyspaceOptions::DEFAULT);
        let mut served = ServedKeyspace::new(wanted.name.clone());
        assert!(served.refusal().unwrap().bytes().starts_with(b"TRYAGAIN "));
        assert!(served.asks(now) && !served.asks(now));
        served.told(std::slice::from_ref(&default));
        assert!(
            String::from_utf8_lossy(served.refusal().unwrap().bytes()).contains("create wanted")
        );
        let waits = KeyspaceOptions { external: ExternalMode::Wait, ..KeyspaceOptions::DEFAULT };
        served.told(&[keyspace("wanted", 6, waits)]);
        assert!(served.refusal().is_some());
        served.told(&[default, wanted]);
        assert!(served.refusal().is_none() && served.next_deadline().is_none());
        // Another one of the same name is another keyspace.
        served.told(&[keyspace("wanted", 9, KeyspaceOptions::DEFAULT)]);
        assert_eq!(served.id(), KeyspaceId::numbered(7, false));
    }
}
