//! The first exchange of every connection: who speaks, which versions, which cluster.
//!
//! `Hello` keeps its layout for ever, so that any two versions can at least tell each other that
//! they do not fit.
//! ```text
//!   client ─ Hello { magic, least..most, cluster?, client? } ─► server: Hello::negotiate
//!          ◄─ Welcome { protocol, cluster, client, now, limits, near, map }   or   ErrorReply (VERSION_MISMATCH, WRONG_CLUSTER, …)
//! ```

use core::fmt;

use timestone_cluster::{ClusterError, ShardMap};
use timestone_types::{ClientId, ClusterId, Timestamp, limits as types_limits};

use crate::layout::{ClientName, ClusterBytes, Fixed, fixed_newtype, message};
use crate::limits::MAX_CLIENT_NAME_BYTES;
use crate::list::{Shards, ShardsCodec};
use crate::value::numbered;
use crate::{Frame, Kind, Message, WireError, frame_length};

/// A version of the native protocol.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ProtocolVersion(pub u16);

impl fmt::Display for ProtocolVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

const fn raw_version(version: ProtocolVersion) -> u16 {
    version.0
}

fixed_newtype! {
    ProtocolVersion: u16, ProtocolVersion, raw_version;
}

/// The versions that this program speaks, lowest and highest.
pub const PROTOCOL: (ProtocolVersion, ProtocolVersion) = (ProtocolVersion(3), READS_DOWNWARDS);

/// The first version whose servers answer [`crate::GetAtBackup`].
pub const READS_AT_BACKUPS: ProtocolVersion = ProtocolVersion(4);

/// The first version whose servers answer [`crate::Range`] and [`crate::PrepareRanges`].
pub const READS_RANGES: ProtocolVersion = ProtocolVersion(5);

/// The first version whose servers know [`crate::WriteAction::PutFrom`].
pub const PLACES_PUTS: ProtocolVersion = ProtocolVersion(6);

/// The first version whose servers answer [`crate::RangeDown`].
pub const READS_DOWNWARDS: ProtocolVersion = ProtocolVersion(7);

/// The first field of every hello: `TSTN`.
const MAGIC: u32 = u32::from_le_bytes(*b"TSTN");

numbered! {
    /// Who opens a connection.
    pub Role("the role of a peer") {
        /// An application's client, or a gateway acting for one.
        Client = 1,
        /// A server of the cluster.
        Server = 2,
        /// A tool that asks for status or keyspaces and runs no transactions; it needs no client
        /// id.
        Tool = 3,
    }
}

message! {
    /// Opens a connection. Answered by [`Welcome`], or by an error after which the connection is
    /// closed.
    Hello<'a> {
        fixed {
            /// Always `TSTN`; [`Hello::new`] fills it.
            magic: u32,
            /// The lowest version that the sender speaks.
            least: ProtocolVersion,
            /// The highest version that the sender speaks.
            most: ProtocolVersion,
            /// Who opens the connection.
            role: Role,
            /// The cluster that the sender belongs to; 0 when it takes any.
            cluster: ClusterId,
            /// The sender's client id when it has one already (a reconnect); 0 to be given one.
            client: ClientId,
        }
        variable {
            /// What the sender calls itself, for lists of clients and logs; may be empty.
            name: &'a str => ClientName,
        }
    }
}

impl<'a> Hello<'a> {
    /// A hello that offers every version this program speaks.
    #[must_use]
    pub const fn new(role: Role, cluster: ClusterId, client: ClientId, name: &'a str) -> Self {
        Self { magic: MAGIC, least: PROTOCOL.0, most: PROTOCOL.1, role, cluster, client, name }
    }

    /// The longest hello, in bytes: what a server buffers at most before it knows who is there.
    pub const MAX_BYTES: usize = Self::FIXED_BYTES + MAX_CLIENT_NAME_BYTES;

    /// How long the first frame of a connection is, as [`frame_length`] but without waiting for
    /// what no hello can be.
    ///
    /// # Errors
    /// [`WireError::NotHello`] when no hello has that length: the peer speaks TLS, HTTP, RESP or
    /// something else.
    pub fn first_length(bytes: &[u8]) -> Result<Option<usize>, WireError> {
        match frame_length(bytes) {
            Ok(Some(length)) if length > Self::MAX_BYTES => Err(WireError::NotHello),
            Ok(length) => Ok(length),
            Err(_) => Err(WireError::NotHello),
        }
    }

    /// Reads the first frame of a connection.
    ///
    /// # Errors
    /// [`WireError::NotHello`] when it is something else, and what decoding refuses.
    pub fn first(frame: &Frame<'a>) -> Result<Self, WireError> {
        if frame.kind() != Kind::Hello {
            return Err(WireError::NotHello);
        }
        let hello = Self::decode(frame)?;
        if hello.magic == MAGIC { Ok(hello) } else { Err(WireError::NotHello) }
    }

    /// The highest version that both sides speak.
    ///
    /// # Errors
    /// [`WireError::Version`] when there is none.
    pub fn negotiate(&self) -> Result<ProtocolVersion, WireError> {
        let (ours_least, ours_most) = PROTOCOL;
        let version = self.most.min(ours_most);
        if version < self.least || version < ours_least {
            return Err(WireError::Version {
                theirs_least: self.least,
                theirs_most: self.most,
                ours_least,
                ours_most,
            });
        }
        Ok(version)
    }
}

/// The server's limits, so that clients can refuse before they send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Longest key, in bytes.
    pub key_bytes: u32,
    /// Longest value, in bytes.
    pub value_bytes: u32,
    /// Most bytes of one transaction.
    pub txn_bytes: u32,
    /// Most keys of one transaction.
    pub txn_keys: u32,
}

impl Limits {
    /// The limits of this program.
    pub const OURS: Self = Self {
        key_bytes: types_limits::MAX_KEY_BYTES as u32,
        value_bytes: types_limits::MAX_VALUE_BYTES as u32,
        txn_bytes: types_limits::MAX_TXN_BYTES as u32,
        txn_keys: types_limits::MAX_TXN_KEYS as u32,
    };
}

impl Fixed for Limits {
    const BYTES: usize = 4 * 4;

    fn store(&self, to: &mut [u8]) {
        self.key_bytes.store(&mut to[0..4]);
        self.value_bytes.store(&mut to[4..8]);
        self.txn_bytes.store(&mut to[8..12]);
        self.txn_keys.store(&mut to[12..16]);
    }

    fn load(from: &[u8]) -> Result<Self, WireError> {
        Ok(Self {
            key_bytes: Fixed::load(&from[0..4])?,
            value_bytes: Fixed::load(&from[4..8])?,
            txn_bytes: Fixed::load(&from[8..12])?,
            txn_keys: Fixed::load(&from[12..16])?,
        })
    }
}

message! {
    /// Answers [`Hello`]: everything that a client needs to begin.
    Welcome<'a> {
        fixed {
            /// The version that both sides use from here on.
            protocol: ProtocolVersion,
            /// The cluster.
            cluster: ClusterId,
            /// The client id: the one that was brought, or a new one; 0 for tools and servers.
            client: ClientId,
            /// The server's clock.
            now: Timestamp,
            /// The server's limits.
            limits: Limits,
        }
        variable {
            /// The shards that run on the thread which reads this connection: what is asked of
            /// them here crosses no thread.
            near: Shards<'a> => ShardsCodec,
            /// The shard map, as `ShardMap::encode` writes it.
            map: &'a [u8] => ClusterBytes,
        }
    }
}

impl Welcome<'_> {
    /// Reads the shard map.
    ///
    /// # Errors
    /// What `ShardMap::decode` refuses.
    pub fn shard_map(&self) -> Result<ShardMap, ClusterError> {
        ShardMap::decode(self.map)
    }
}
