//! For a host that calls a shard of its own thread itself: where a key goes, and what the session's
//! clock has to do with it. No slot is taken and no frame is written; whatever does not come off is
//! asked as any other request.

use timestone_types::{Epoch, ShardId, Timestamp, limits as shared};

use super::Engine;
use crate::managers::Manager;
use crate::{SessionError, SessionId};

impl<M: Manager> Engine<M> {
    /// Which shard may be called for a key, and the epoch that it has by the routes in use. `None`
    /// where a request would be refused, or not be sent now.
    #[inline]
    #[must_use]
    pub fn direct_route(&self, key: &[u8]) -> Option<(ShardId, Epoch)> {
        if key.is_empty() || key.len() > shared::MAX_KEY_BYTES || self.context.identity.is_over() {
            return None;
        }
        self.context.shards.direct_route(key)
    }

    /// Where the clock of a session stands for a direct read or write that begins now.
    ///
    /// # Errors
    /// A closed session.
    #[inline]
    pub fn begin_direct(
        &mut self,
        now: Timestamp,
        session: SessionId,
    ) -> Result<Timestamp, SessionError> {
        self.context.timing.advance(now);
        let clock = self.context.session_clock(session.into()).ok_or(SessionError::NoSession)?;
        let begin = clock.begin(now);
        debug_assert!(begin >= now, "{begin} lies in the past");
        Ok(begin)
    }

    /// A direct read has found, or a direct write has put, something at `at`.
    #[inline]
    pub fn end_direct(&mut self, session: SessionId, at: Timestamp) {
        self.context.session_learned(Some(session.into()), at.next());
    }
}
