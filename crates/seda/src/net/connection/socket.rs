//! A connection's stream, and what is known of its two directions.
//!
//! Edge-triggered: a direction stays usable until a call came back short or would block.

use crate::Readiness;
use crate::net::Stream;

/// See the module.
#[derive(Debug)]
pub(in crate::net) struct SocketState {
    pub(in crate::net) stream: Stream,
    /// It may have something to read.
    pub(in crate::net) readable: bool,
    /// It may take something.
    pub(in crate::net) writable: bool,
    /// The peer sends nothing more.
    pub(in crate::net) ended: bool,
    /// The poller has seen the end of what the peer sends; it may not be read yet.
    pub(in crate::net) end_seen: bool,
    /// Nothing can be written any more.
    pub(in crate::net) dead: bool,
}

impl SocketState {
    pub(super) const fn new(stream: Stream) -> Self {
        Self { stream, readable: false, writable: true, ended: false, end_seen: false, dead: false }
    }

    /// What the poller reported of what the peer sends.
    #[inline]
    pub(in crate::net) const fn note_input(&mut self, event: &Readiness) {
        self.readable |= event.readable;
        self.end_seen |= event.read_closed;
    }

    /// What the poller reported of what the peer takes.
    #[inline]
    pub(in crate::net) const fn note_output(&mut self, event: &Readiness) {
        self.dead |= event.write_closed;
        self.writable |= event.writable;
    }
}
