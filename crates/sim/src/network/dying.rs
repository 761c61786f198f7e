//! A process that dies in the middle of a turn's system calls: of what it wrote, a part got out.
//!
//! ```text
//!   the turn's writes   ████████████│░░░░░░     each stream is cut at a point of its own; a request to connect left or did not
//!                       gets out ◄──┘ never was
//! ```
//! Bytes that got out travel on, and may be read before the peer learns of the death. What is
//! deliberately absent: an order between streams. Nothing in the system relies on one socket being
//! written before another within a turn.

use super::{NetworkState, ProcessId, SimNetwork};
use timestone_types::random::Dice;

impl SimNetwork {
    /// Cuts what a process has written and not sent off yet, as the dice have it. The process must
    /// be ended afterwards.
    pub(crate) fn cut_output(&self, process: ProcessId, dice: &mut Dice) {
        let mut state = self.lock();
        let NetworkState { ends, dirty, .. } = &mut *state;
        for id in dirty.iter() {
            let Some(end) = ends.get_mut(id.0 as usize).and_then(Option::as_deref_mut) else {
                continue;
            };
            if end.process != process {
                continue;
            }
            let kept = dice.below(end.outbound.bytes.len() as u64 + 1) as usize;
            let is_whole = kept == end.outbound.bytes.len() && dice.chance(0.5);
            end.outbound.bytes.truncate(kept);
            if !is_whole {
                // The calls that come after the last write were not made.
                end.shut = end.outbound.last;
                end.closed = false;
                end.dialling = None;
            }
        }
    }
}
