//! Between two lives of a server its operator changes the index of a keyspace in its data directory
//! (`timestone data convert`), or the power goes while that is done.
//!
//! It takes no virtual time: nobody else uses the directory. The very code of the command does it, on
//! the devices of the server, with whatever its last life has left in its stores and logs. A half of
//! all conversions is cut off at one of their first turns, and what was not synced is lost.

use std::sync::Arc;
use std::time::Duration;

use timestone_cluster::IndexKind;
use timestone_server::{Environment, ServerError, convert_on};
use timestone_types::random::Seed;

use super::World;
use crate::SimError;
use crate::network::ProcessId;
use crate::process::Role;
use crate::restarts::RestartChange;

/// Turns after which one may be cut off: few more than one of a small keyspace takes.
const MOST_TURNS: u64 = 120;
/// Time of the stores from turn to turn.
const TURN: Duration = Duration::from_millis(1);
/// What one that is cut off ends with.
const CUT_OFF: &str = "the power goes";

impl World {
    /// One keyspace of a server gets the other index, with one chance in two, or nearly does.
    pub(super) fn convert(&mut self, id: ProcessId, seed: Seed) -> Result<(), SimError> {
        let keyspaces = self.board.keyspaces.convertible();
        let mut dice = seed.dice();
        let Some(&keyspace) = keyspaces.get(dice.below(keyspaces.len() as u64) as usize) else {
            return Ok(());
        };
        let index = if dice.chance(0.5) { IndexKind::Full } else { IndexKind::Frugal };
        let cut_at = dice.chance(0.5).then(|| dice.below(MOST_TURNS));
        let now = self.truth.now();
        let Role::Server(server) = &mut self.processes[id].role else { return Ok(()) };
        let environment: Arc<dyn Environment> = Arc::new(server.environment.clone());
        let begun = environment.clock().now();
        let mut turn = 0u32;
        let mut turns = |_: &_| {
            turn += 1;
            match cut_at {
                Some(last) if u64::from(turn) > last => Err(ServerError::Internal(CUT_OFF.into())),
                _ => Ok(begun.saturating_add(TURN * turn)),
            }
        };
        let outcome = convert_on(&server.config, &environment, keyspace, index, &mut turns);
        let change = match outcome {
            Ok(done) => {
                server.environment.end(false, seed.derive("done", 0));
                done.is_changed.then_some(RestartChange::Index)
            }
            Err(ServerError::Internal(words)) if words == CUT_OFF => {
                server.environment.end(true, seed.derive("cut-off", 0));
                Some(RestartChange::IndexCutOff)
            }
            // It says that there is no room, or what a device in its way has said, and has done
            // nothing that counts.
            Err(ServerError::Conversion { detail, .. }) => {
                self.trace.note(now, id, &format!("is not converted: {detail}"));
                server.environment.end(true, seed.derive("refused", 0));
                None
            }
            // What keeps a start from going on is told by the start.
            Err(error) => {
                server.environment.end(false, seed.derive("failed", 0));
                self.trace.note(now, id, &format!("is not converted: {error}"));
                None
            }
        };
        if let Some(change) = change {
            self.trace.note(now, id, &format!("{change} of keyspace {keyspace} to {index}"));
            *self.incidents.changes.entry(change).or_default() += 1;
        }
        Ok(())
    }
}
