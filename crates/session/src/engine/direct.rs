//! For a host that calls a shard of its own thread itself: where a key goes, and what the session's
//! clock has to do with it. No slot is taken and no frame is written; whatever does not come off is
//! asked as any other request.

use timestone_types::{Epoch, ShardId, Timestamp};

use super::Engine;
use super::singles::{issue, shard_to_ask};
use crate::managers::Manager;
use crate::{SessionError, SessionId};

impl<M: Manager> Engine<M> {
    /// Which shard may be called for a key, and the epoch that it has by the routes in use. `None`
    /// where a request would be refused, or not be sent now.
    #[inline]
    #[must_use]
    pub fn direct_route(&self, key: &[u8]) -> Option<(ShardId, Epoch)> {
        if self.context.identity.is_over() {
            return None;
        }
        let shard = shard_to_ask(&self.context, key).ok()?;
        self.context.shards.direct_route(shard)
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
        issue(&mut self.context, session)
    }

    /// A direct read has found, or a direct write has put, something at `at`.
    #[inline]
    pub fn end_direct(&mut self, session: SessionId, at: Timestamp) {
        self.context.session_learned(Some(session.into()), at.next());
    }
}
