//! For a host that calls a shard of its own thread itself: where a key goes, and what the session's
//! clock has to do with it. No slot is taken and no frame is written; whatever does not come off is
//! asked as any other request.

use timestone_types::limits::PLACED_WITHIN;
use timestone_types::{Epoch, Expiry, ShardId, Timestamp, Version, is_planted};

use super::Engine;
use super::singles::{issue, seen_by_read, shard_to_ask};
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
        if !is_planted!(ForgetsCalls) {
            self.context.session_learned(Some(session.into()), at.next());
        }
    }

    /// A direct read has found this version, whose value is there or not.
    #[inline]
    pub fn end_direct_read(
        &mut self,
        now: Timestamp,
        session: SessionId,
        (version, expires_at): (Version, Expiry),
        is_present: bool,
    ) {
        self.context.timing.advance(now);
        self.end_direct(session, seen_by_read(self.context.now(), version, expires_at, is_present));
    }

    /// Nobody waits any more for a direct write that was begun at `begin` and may still take place,
    /// at the timestamp that its shard gives it. What the session does next comes after that (X2).
    pub fn give_up_direct(&mut self, session: SessionId, begin: Timestamp) {
        if is_planted!(ForgetsGivenUpCalls) {
            return;
        }
        let last_chance = begin.next().saturating_add(PLACED_WITHIN);
        self.context.session_gave_up(Some(session.into()), last_chance.next());
    }
}
