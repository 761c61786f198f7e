//! The listeners of a net stage, and when it accepts.
//!
//! What it does not do: keep what was accepted, or hand it on; that is `opening`'s.

use std::io;
use std::time::Duration;

use timestone_types::Timestamp;

use crate::limits::{ACCEPT_PAUSE, MAX_ACCEPT_PAUSE, SHORTAGE_WARNING_INTERVAL};
use crate::net::Listener;
use crate::{IoRegistry, StageId};

/// Tokens with this bit are listeners', the others connections'.
pub(super) const LISTENER_BIT: u64 = 1 << 40;

/// A listener, and whether the poller has reported somebody since it last had nobody.
#[derive(Debug)]
pub(super) struct Listening {
    pub(super) socket: Listener,
    pub(super) ready: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Acceptor {
    listeners: Vec<Listening>,
    /// The accept that failed for want of resources is tried again then.
    pub(super) again: Option<Timestamp>,
    /// How long accepting rests the next time.
    pause: Duration,
    /// When the shortage of descriptors may be told again.
    next_warning: Timestamp,
    /// Whose turn it is to get a connection, among the net stages that share them.
    next_share: usize,
}

impl Default for Acceptor {
    fn default() -> Self {
        Self {
            listeners: Vec::new(),
            again: None,
            pause: ACCEPT_PAUSE,
            next_warning: Timestamp::ZERO,
            next_share: 0,
        }
    }
}

impl Acceptor {
    pub(super) fn add(&mut self, socket: Listener) {
        self.listeners.push(Listening { socket, ready: false });
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.listeners.is_empty()
    }

    pub(super) const fn listeners(&self) -> usize {
        self.listeners.len()
    }

    /// Asks the poller to report who connects.
    pub(super) fn register(&mut self, io: &IoRegistry<'_>) {
        for (index, listener) in self.listeners.iter_mut().enumerate() {
            let registered = listener.socket.register(io, LISTENER_BIT | index as u64);
            assert!(registered.is_ok(), "a listener is refused by the poller: {registered:?}");
        }
    }

    /// The poller has reported somebody at the listener with this token.
    pub(super) fn mark_ready(&mut self, token: u64) {
        if let Some(listener) = self.listeners.get_mut((token & !LISTENER_BIT) as usize) {
            listener.ready = true;
        }
    }

    /// A listener, if somebody may wait there.
    pub(super) fn ready(&mut self, index: usize) -> Option<&mut Listening> {
        self.listeners.get_mut(index).filter(|listener| listener.ready)
    }

    /// A connection was accepted: there are resources again.
    pub(super) const fn has_accepted(&mut self) {
        self.pause = ACCEPT_PAUSE;
    }

    /// Accepting failed for want of resources: it is tried again after a pause that grows while
    /// that lasts. Said now and then, not at each try.
    pub(super) fn rest(&mut self, now: Timestamp, stage: &str, error: &io::Error) {
        if now >= self.next_warning {
            self.next_warning = now.saturating_add(SHORTAGE_WARNING_INTERVAL);
            tracing::warn!(
                %stage, %error,
                "Cannot accept connections; is the limit on open files too low? It is tried again \
                 and again."
            );
        }
        self.again = Some(now.saturating_add(self.pause));
        self.pause = (self.pause * 2).min(MAX_ACCEPT_PAUSE);
        assert!(self.pause >= ACCEPT_PAUSE, "a pause never shrinks below the first one");
    }

    /// The net stage that gets the next connection; none if they are not shared.
    pub(super) fn next_share(&mut self, among: &[StageId]) -> Option<StageId> {
        let target = among.get(self.next_share).copied();
        self.next_share = (self.next_share + 1) % among.len().max(1);
        target
    }

    /// Nobody is accepted any more.
    pub(super) fn close(&mut self, io: Option<IoRegistry<'_>>) {
        for mut listener in self.listeners.drain(..) {
            if let Some(io) = &io
                && let Err(error) = listener.socket.deregister(io)
            {
                tracing::debug!(%error, "A listener was not registered.");
            }
        }
    }
}
