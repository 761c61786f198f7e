//! The link to one server, from the first dial to its loss.
//!
//! ```text
//!   Idle ── due ──► Dialing ── connected, hello ──► Greeting ── welcome ──► Up ── lost ──► Idle (the pause doubles)
//!     ▲                │                               │                     (or owes answers and is silent)
//!     └────────────────┴─────────── failed ────────────┘
//! ```

use core::time::Duration;
use std::net::SocketAddr;

use timestone_cluster::ServerId;
use timestone_seda::{DialId, ReplyAddress};
use timestone_session::{IdleTimeout, limits as session, reconnect_pause};
use timestone_types::{ShardId, Timestamp};
use timestone_wire::{PROTOCOL, ProtocolVersion};

/// How far a link has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LinkState {
    Idle { retry_at: Timestamp },
    Dialing(DialId),
    Greeting { reply_to: ReplyAddress, until: Timestamp },
    Up(ReplyAddress),
}

/// See the module.
#[derive(Debug)]
pub(super) struct ServerLink {
    pub(super) server: ServerId,
    pub(super) address: SocketAddr,
    /// What is asked over it.
    pub(super) shards: Vec<ShardId>,
    pub(super) state: LinkState,
    /// The version of the protocol that is spoken over it, or was over the last one.
    pub(super) protocol: ProtocolVersion,
    /// Attempts in a row that failed.
    pub(super) attempts: u32,
    pub(super) idle: IdleTimeout,
    /// Bytes that were sent, and of which the net stage has not told yet that they are written.
    pub(super) unwritten: usize,
    /// Its server was asked for its map, and has not answered that.
    pub(super) asks_map: bool,
}

impl ServerLink {
    /// To be dialled at once.
    pub(super) fn new(server: ServerId, address: SocketAddr) -> Self {
        debug_assert!(!server.is_none(), "somebody is to be dialled");
        Self {
            server,
            address,
            shards: Vec::new(),
            state: LinkState::Idle { retry_at: Timestamp::ZERO },
            protocol: PROTOCOL.1,
            attempts: 0,
            idle: IdleTimeout::default(),
            unwritten: 0,
            asks_map: false,
        }
    }

    pub(super) const fn reply_to(&self) -> Option<ReplyAddress> {
        match self.state {
            LinkState::Up(reply_to) | LinkState::Greeting { reply_to, .. } => Some(reply_to),
            LinkState::Idle { .. } | LinkState::Dialing(_) => None,
        }
    }

    pub(super) const fn is_up(&self) -> bool {
        matches!(self.state, LinkState::Up(_))
    }

    /// There is no connection any more. How long until the next attempt.
    pub(super) fn end(&mut self, now: Timestamp) -> Duration {
        let pause = reconnect_pause(self.attempts);
        self.attempts = self.attempts.saturating_add(1);
        self.state = LinkState::Idle { retry_at: now.saturating_add(pause) };
        (self.unwritten, self.asks_map) = (0, false);
        debug_assert!(self.next_deadline(now).is_some(), "it is dialled again");
        pause
    }

    /// When something is to be done about it, if nothing happens; links were `looked` at for
    /// silence last.
    pub(super) fn next_deadline(&self, looked: Timestamp) -> Option<Timestamp> {
        match self.state {
            LinkState::Idle { retry_at } => Some(retry_at),
            LinkState::Greeting { until, .. } => Some(until),
            LinkState::Up(_) if self.idle.is_owed() => {
                Some(looked.saturating_add(session::SILENCE_LOOK))
            }
            LinkState::Up(_) | LinkState::Dialing(_) => None,
        }
    }
}
