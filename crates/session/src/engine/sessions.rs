//! The sessions of an engine: each has a clock of its own, which issues timestamps above all that
//! the session has seen.

use timestone_clock::SessionClock;
use timestone_types::{Timestamp, is_planted};

use super::slab::{Slab, SlabKey};
use crate::{SessionError, SessionId, limits};

/// What an engine knows of one session.
#[derive(Clone, Copy, Debug, Default)]
struct Session {
    clock: SessionClock,
    /// Above every timestamp at which something of unknown outcome may still take place that the
    /// session has given up.
    given_up_below: Timestamp,
}

/// See the module's description.
#[derive(Debug)]
pub(crate) struct Sessions(Slab<Session>);

impl From<SessionId> for SlabKey {
    #[inline]
    fn from(SessionId { index, generation }: SessionId) -> Self {
        Self { index, generation }
    }
}

impl Sessions {
    pub(super) const fn new() -> Self {
        Self(Slab::new(limits::MAX_SESSIONS))
    }

    pub(super) fn open(&mut self) -> Result<SessionId, SessionError> {
        let Some((SlabKey { index, generation }, session)) = self.0.take() else {
            return Err(SessionError::Busy { retry_after: limits::MAX_RETRY_PAUSE });
        };
        *session = Session::default();
        debug_assert!(self.is_open(SlabKey { index, generation }));
        Ok(SessionId { index, generation })
    }

    pub(super) fn is_open(&self, session: SlabKey) -> bool {
        self.0.get(session).is_some()
    }

    pub(super) fn close(&mut self, session: SlabKey) {
        assert!(self.is_open(session), "a session is closed twice");
        self.0.release(session.index);
    }

    /// The clock of an open session.
    #[inline]
    pub(super) fn clock(&mut self, session: SlabKey) -> Option<&mut SessionClock> {
        self.0.get_mut(session).map(|session| &mut session.clock)
    }

    /// The session has given up something that may still take place below `bound`: whatever it does
    /// from now on comes after that, or prevents it.
    pub(super) fn gave_up(&mut self, session: Option<SlabKey>, bound: Timestamp) {
        self.learned(session, bound);
        if let Some(session) = session.and_then(|session| self.0.get_mut(session))
            && !is_planted!(ReadsBelowGivenUp)
        {
            session.given_up_below = session.given_up_below.max(bound);
        }
    }

    /// The lowest timestamp at which the session may read what is latest: everything that it has
    /// given up lies below. `None` when it is closed.
    pub(super) fn lowest_read(&self, session: SlabKey) -> Option<Timestamp> {
        self.0.get(session).map(|session| session.given_up_below)
    }

    /// Whatever the session begins from now on lies at `bound` or above. A closed one begins
    /// nothing.
    #[inline]
    pub(super) fn learned(&mut self, session: Option<SlabKey>, bound: Timestamp) {
        if let Some(clock) = session.and_then(|session| self.clock(session)) {
            clock.learned(bound);
            debug_assert!(clock.peek(Timestamp::ZERO) >= bound, "the session goes back");
        }
    }
}
