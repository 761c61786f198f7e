//! One connection to a server, from the first dial to its loss.

use timestone_cluster::ServerId;
use timestone_seda::{DialId, ReplyAddress};
use timestone_session::{IdleTimeout, OpId};
use timestone_types::{ShardId, Timestamp};
use timestone_wire::ProtocolVersion;

/// How far a connection has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Idle {
        retry_at: Timestamp,
    },
    Resolving,
    Dialing(DialId),
    Greeting {
        reply_to: ReplyAddress,
        until: Timestamp,
    },
    Up(ReplyAddress),
    /// It is not dialled again.
    Gone,
}

/// Further connections of a server: when the next may be tried, and how many of them brought
/// nothing.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Spread {
    pub(super) next_at: Timestamp,
    pub(super) in_vain: u32,
}

/// See the module. Each server has one entry that is dialled again and again; further ones reach
/// other threads of it, and go when they are lost.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) id: Option<ServerId>,
    pub(super) address: String,
    /// The address is what the map says, and not what the application was given.
    pub(super) is_of_map: bool,
    pub(super) state: State,
    pub(super) is_further: bool,
    pub(super) attempts: u32,
    /// What is asked over it.
    pub(super) shards: Vec<ShardId>,
    /// What runs on the thread that reads it at the server.
    pub(super) near: Vec<ShardId>,
    /// The version that both ends speak.
    pub(super) protocol: ProtocolVersion,
    /// What was asked over it before a better connection stood.
    pub(super) moved: Vec<ShardId>,
    pub(super) up_since: Option<Timestamp>,
    pub(super) spread: Spread,
    /// Operations asked here that no engine repeats.
    pub(super) asked: Vec<OpId>,
    pub(super) idle: IdleTimeout,
    /// The last attempt was answered, with a no: nobody listens there, or somebody else does.
    pub(super) refused: bool,
}

impl Server {
    pub(super) fn new(id: Option<ServerId>, address: String) -> Self {
        Self {
            id,
            address,
            is_of_map: false,
            state: State::Idle { retry_at: Timestamp::ZERO },
            is_further: false,
            attempts: 0,
            shards: Vec::new(),
            near: Vec::new(),
            protocol: ProtocolVersion(0),
            moved: Vec::new(),
            up_since: None,
            spread: Spread::default(),
            asked: Vec::new(),
            idle: IdleTimeout::default(),
            refused: false,
        }
    }

    /// A server that a map names.
    pub(super) fn of_map(address: String) -> Self {
        Self { is_of_map: true, ..Self::new(None, address) }
    }

    /// It is dialled at another address from now on.
    pub(super) fn moves_to(&mut self, address: &str) {
        if self.address != address {
            address.clone_into(&mut self.address);
        }
        debug_assert!(self.is_of_map, "the application's own addresses stay");
    }

    /// One more connection to the server of another.
    pub(super) fn further(of: &Self) -> Self {
        Self { is_further: true, ..Self::new(of.id, of.address.clone()) }
    }

    pub(super) const fn reply_to(&self) -> Option<ReplyAddress> {
        match self.state {
            State::Up(reply_to) | State::Greeting { reply_to, .. } => Some(reply_to),
            _ => None,
        }
    }

    pub(super) const fn is_up(&self) -> bool {
        matches!(self.state, State::Up(_))
    }
}
