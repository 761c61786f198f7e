//! What can go wrong with the cluster's metadata.

use thiserror::Error;
use timestone_types::{ShardId, Slot};

use crate::{Run, ServerId, Term};

/// Why a command was refused, or bytes were not understood.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ClusterError {
    /// Bytes from disk or a peer are not what their layout promises.
    #[error("{what} cannot be read: {reason}; it is damaged, or was written by something else")]
    Malformed {
        /// Which structure was being read.
        what: &'static str,
        /// What about it is wrong.
        reason: &'static str,
    },
    /// The stored state was written by another version of the format.
    #[error(
        "the master's state has format {found}, this program reads format {supported}: run the \
         program that wrote it, or migrate"
    )]
    Format {
        /// The format found.
        found: u32,
        /// The format that this program reads and writes.
        supported: u32,
    },
    /// The checksum of the stored state does not match its bytes.
    #[error(
        "the master's state is damaged: its checksum is {found:#010x}, its bytes give \
         {computed:#010x}; restore it from a backup"
    )]
    Checksum {
        /// The checksum that is stored.
        found: u32,
        /// The checksum of the bytes that are there.
        computed: u32,
    },
    /// A slot that no shard owns, or more than one.
    #[error("slot {slot} is owned by {owners} shards; a map must give every slot to exactly one")]
    SlotOwners {
        /// The slot.
        slot: Slot,
        /// How many shards claim it: zero, or two or more.
        owners: u32,
    },
    /// Two entries of a map carry the same shard id.
    #[error("shard {0} occurs twice in the map")]
    DuplicateShard(ShardId),
    /// An option's value is part of the design but not served by this version.
    #[error("keyspace option {option} = {value} is not served by this version; it serves {served}")]
    Unsupported {
        /// The option.
        option: &'static str,
        /// The value asked for.
        value: &'static str,
        /// The values that are served.
        served: &'static str,
    },
    /// A keyspace in memory beside a log.
    #[error(
        "a keyspace with store = dram asks for log = none: after a restart it is empty, and a log \
         that every commit waits for cannot bring its keys back; start the server with --log none, \
         or create the keyspace with --store mftl"
    )]
    DramWithLog,
    /// A text is not a value of the option.
    #[error("{value:?} is not a value of {option}; choose one of {choices}")]
    UnknownValue {
        /// The option.
        option: &'static str,
        /// What was given.
        value: String,
        /// All values, those that this version does not serve included.
        choices: &'static str,
    },
    /// A name that keyspaces cannot have.
    #[error(
        "{name:?} cannot name a keyspace: use 1 to 64 of a-z, 0-9, '-', '_' and '.', starting with \
         a letter or a digit"
    )]
    BadName {
        /// The name, cut to a printable length.
        name: String,
    },
    /// An address that cannot be dialled.
    #[error(
        "{address:?} is not an address: give HOST:PORT, for example 127.0.0.1:7400 or [::1]:7400"
    )]
    BadAddress {
        /// The address, cut to a printable length.
        address: String,
    },
    /// A keyspace of that name exists.
    #[error(
        "keyspace {name} exists already; drop it first, or choose another name. Its options are \
         fixed: to change them, copy it into another keyspace with `timestone dump` and `timestone \
         load`"
    )]
    KeyspaceExists {
        /// The name.
        name: String,
    },
    /// There is no keyspace of that name.
    #[error("there is no keyspace {name}; `timestone keyspace list` shows those that exist")]
    KeyspaceUnknown {
        /// The name.
        name: String,
    },
    /// The keyspace `default` was to be dropped.
    #[error("the keyspace default always exists and cannot be dropped; FLUSHDB empties it")]
    KeyspacePermanent,
    /// A bound of [`crate::limits`] was met.
    #[error("{what}: {asked} asked for, at most {limit} possible")]
    Limit {
        /// What is bounded.
        what: &'static str,
        /// How many were asked for.
        asked: u64,
        /// The bound.
        limit: u64,
    },
    /// There is no shard of that number.
    #[error("there is no shard {0}; fetch the map again")]
    ShardUnknown(ShardId),
    /// There is no server of that number.
    #[error("there is no server {0} in this cluster; fetch the map again")]
    ServerUnknown(ServerId),
    /// A configuration that a shard cannot have, or not now.
    #[error("shard {shard} cannot be changed like this: {reason}")]
    BadChange {
        /// The shard.
        shard: ShardId,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A change by a controller whose term is over.
    #[error(
        "the change comes from the controller of term {asked}, and the cluster is in term \
         {current}: another server is the controller now"
    )]
    StaleTerm {
        /// The term of whoever asks.
        asked: Term,
        /// The current one.
        current: Term,
    },
    /// The state comes from a backup, and not every server has told yet what it has seen.
    #[error(
        "the master's state was restored from a backup: nothing is served until server {server} \
         and {more} more have told what they have seen; start them, or forget those that are lost"
    )]
    Restored {
        /// The first of those that are waited for.
        server: ServerId,
        /// How many more there are.
        more: usize,
    },
    /// A run that would begin does not lie above the last one of its data directory.
    #[error(
        "run {asked} of this data directory cannot begin, because run {known} has begun: another \
         process has been started with a copy of the directory"
    )]
    StaleRun {
        /// The run that was to begin.
        asked: Run,
        /// The last one that has begun.
        known: Run,
    },
    /// The command belongs to another cluster.
    #[error(
        "this server belongs to cluster {ours:016x}, the request to cluster {theirs:016x}: check \
         the address, or the data directory"
    )]
    WrongCluster {
        /// This cluster.
        ours: u64,
        /// The other one.
        theirs: u64,
    },
}

impl ClusterError {
    /// Whether the very same command may succeed later. All other refusals need somebody to act.
    #[must_use]
    pub const fn retryable(&self) -> bool {
        matches!(self, Self::Restored { .. })
    }

    /// The error for bytes of `what` that do not follow their layout.
    pub(crate) const fn malformed(what: &'static str, reason: &'static str) -> Self {
        Self::Malformed { what, reason }
    }
}
