//! Connections to servers that are asked for snapshots of shards which they do not serve.
//!
//! As soon as a transaction allows it, every server of the map that keeps a replica is dialled. Reads
//! at backups of one server leave together, whatever shards they are of, over the connection that is
//! dialled again and again. A server that does not know such reads is never asked.

use timestone_clock::server_time::ServerNumber;
use timestone_seda::{Context, NetCommand};
use timestone_wire::READS_AT_BACKUPS;

use super::Tcp;
use super::server::Server;
use crate::event::ClientStageEvent;
use crate::event_loop::Core;

impl Server {
    /// The server, if this is the connection that its backups are asked over.
    fn answers_at_backups(&self) -> Option<ServerNumber> {
        let answers = self.is_up() && !self.is_further && self.protocol >= READS_AT_BACKUPS;
        self.id.filter(|_| answers).map(|id| ServerNumber(id.get()))
    }
}

impl Tcp {
    /// Whether an entry is dialled for reads at backups.
    pub(super) fn is_backup(&self, server: &Server) -> bool {
        let (Some(map), Some(id)) = (&self.map, server.id) else { return false };
        self.reads_at_backups
            && !server.is_further
            && map.shards().iter().any(|shard| shard.replicas.contains(&id))
    }

    /// A connection stands: its server's backups may be asked.
    pub(super) fn tell_of_backups(&self, core: &Core, index: usize) {
        if let Some(number) = self.servers[index].answers_at_backups() {
            core.engine.borrow_mut().shards_mut().backup_up(number);
        }
    }

    /// A connection is gone.
    pub(super) fn lose_backups(&self, core: &Core, index: usize) {
        let server = &self.servers[index];
        if let Some(id) = server.id.filter(|_| !server.is_further) {
            core.engine.borrow_mut().shards_mut().backup_down(ServerNumber(id.get()));
        }
    }

    /// Sends what backups are asked for.
    pub(super) fn ship_to_backups(
        &mut self,
        context: &mut Context<'_, ClientStageEvent>,
        core: &Core,
    ) {
        let mut engine = core.engine.borrow_mut();
        if !engine.shards().wants_backups() {
            return;
        }
        if !self.reads_at_backups {
            self.reads_at_backups = true;
            context.want_turn();
            // Those that stand already.
            let numbers = self.servers.iter().filter_map(Server::answers_at_backups);
            numbers.for_each(|number| engine.shards_mut().backup_up(number));
        }
        while let Some((number, outbox)) = engine.shards_mut().next_dirty_backup() {
            let stands = |server: &&Server| server.answers_at_backups() == Some(number);
            let over = self.servers.iter().find(stands).and_then(Server::reply_to);
            match over {
                Some(reply_to) if !outbox.is_empty() => {
                    let mut frame_batch = context.take_frame_batch(reply_to);
                    core::mem::swap(&mut frame_batch.bytes, outbox);
                    self.command(context, NetCommand::Send(frame_batch));
                }
                // Primaries are asked in time.
                _ => outbox.clear(),
            }
        }
    }
}
