//! What can keep a server from starting or from going on, in sentences for the person at the
//! terminal.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use thiserror::Error;
use timestone_cluster::{ReplicationFactor, Run};
use timestone_seda::SedaError;
use timestone_shard::ShardError;
use timestone_types::ShardId;

/// Why a server could not start, or had to stop.
#[derive(Debug, Error)]
pub enum ServerError {
    /// An operation on a file or folder failed.
    #[error(
        "could not {action} {path}: {source}; check that the path exists, its permissions and the \
         free space"
    )]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// Another process owns the data directory.
    #[error(
        "data directory {path} is in use by process {pid}; stop that server, or give this one \
         another --data directory"
    )]
    InUse {
        /// The directory.
        path: PathBuf,
        /// The owner as the lock file names it.
        pid: String,
    },
    /// The data directory was written by another version.
    #[error(
        "data directory {path} has format {found}, this server reads format {ours}; {}", way_out(*found, *ours)
    )]
    OtherFormat {
        /// The directory.
        path: PathBuf,
        /// The format found.
        found: u32,
        /// The format of this build.
        ours: u32,
    },
    /// The `FORMAT` file cannot be understood.
    #[error(
        "{path} is damaged ({detail}); restore it from a backup of this directory: without it \
         nothing in the directory is touched"
    )]
    BadFormatFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        detail: String,
    },
    /// The directory holds something else.
    #[error(
        "{path} is not a Timestone data directory (it holds '{found}'); give --data an empty or a \
         new directory"
    )]
    NotOurs {
        /// The directory.
        path: PathBuf,
        /// One of the foreign names.
        found: String,
    },
    /// Files that the directory must hold are gone.
    #[error(
        "data directory {path} lacks {names}: it was there when the directory was last used, and \
         it holds data. Put it back from where it went or from a backup of the whole directory. To \
         go on without it, and without the data that only it held, start once with --accept-loss \
         {accept}"
    )]
    Missing {
        /// The directory.
        path: PathBuf,
        /// What is missing, as paths in it.
        names: String,
        /// What `--accept-loss` would have to say.
        accept: String,
    },
    /// The data directory is an older copy of itself.
    #[error(
        "data directory {path} is an older copy of itself: its last run was number {has}, and the \
         cluster's master knows of run {known}, which is not in it. Put the latest one back, or \
         stop the server that runs with it. If it is lost, start once with --accept-loss all: {then}"
    )]
    OlderCopy {
        /// The directory.
        path: PathBuf,
        /// Its last run.
        has: Run,
        /// The last run that the master knows.
        known: Run,
        /// What happens when that is accepted.
        then: &'static str,
    },
    /// The master's state is older than the data directory.
    #[error(
        "the master at {address} knows of run {known} of data directory {path}, whose last run was \
         number {has}: the master's state is an older copy of itself, and would hand out again \
         what it has handed out since. Put its latest data directory back. If that is lost, start \
         once with --accept-loss all: two servers may then have acknowledged different writes in \
         one epoch, and clients may be taken for earlier ones"
    )]
    OlderMaster {
        /// Where the master is.
        address: SocketAddr,
        /// The directory.
        path: PathBuf,
        /// Its last run.
        has: Run,
        /// The last run that the master knows.
        known: Run,
    },
    /// A capacity that the shards cannot do with.
    #[error(
        "--capacity is {wanted} bytes, and {shards} shards need {least} at least ({} MiB each); \
         give more, or fewer --shards when the directory is created",
        least / u64::from(*shards) / (1 << 20)
    )]
    CapacityTooSmall {
        /// What was asked for, in bytes.
        wanted: u64,
        /// The fewest bytes that are possible.
        least: u64,
        /// How many shards share it.
        shards: u16,
    },
    /// The directory has another number of shards than was asked for.
    #[error(
        "data directory {path} has {existing} shards, but {wanted} were asked for; leave --shards \
         out: the number is fixed when the directory is created"
    )]
    ShardCount {
        /// The directory.
        path: PathBuf,
        /// What it has.
        existing: u16,
        /// What was asked for.
        wanted: u16,
    },
    /// The directory was created with another kind of flash device.
    #[error(
        "data directory {path} was created with --device {existing}, and --device says {wanted}; \
         start it with --device {existing}, where its data is, or give --data a new directory"
    )]
    OtherDevice {
        /// The directory.
        path: PathBuf,
        /// What it was created with.
        existing: String,
        /// What was asked for.
        wanted: &'static str,
    },
    /// The directory's flash was in memory.
    #[error(
        "data directory {path} was used with --device emulated: its flash was in the memory of a \
         process that has ended, and what was written is gone with it; remove the directory, or \
         give --data a new one"
    )]
    FlashGone {
        /// The directory.
        path: PathBuf,
    },
    /// Keyspaces with their index on flash are asked for where there is no place for them.
    #[error(
        "keyspaces with index frugal have a device of their own in each shard, which is a file: they \
         are not served with --device zoned or emulated. Create the keyspace with --index full, or \
         serve a data directory with --device file"
    )]
    NoFrugalDevice,
    /// Others would count on flash in memory.
    #[error(
        "--device emulated keeps what is written in this process's memory, for trials of one \
         server; leave out {what}"
    )]
    EmulatedAlone {
        /// What was asked for beside it.
        what: &'static str,
    },
    /// There are too few zoned devices.
    #[error(
        "{shards} shards need a zoned device each, and --device names {devices}; name more, or \
         create the data directory with fewer --shards"
    )]
    TooFewDevices {
        /// How many shards there are to be.
        shards: u16,
        /// How many devices were named.
        devices: usize,
    },
    /// A zoned device cannot be used.
    #[error("--device names {path}: {detail}")]
    ZonedDevice {
        /// The device.
        path: PathBuf,
        /// Why not, and what to do.
        detail: String,
    },
    /// A log holds something else than a replica's batches.
    #[error(
        "batch {batch} in the log of shard {shard} is none of a replica; the directory was used in \
         a cluster with one copy of each shard: give --data a new directory"
    )]
    NotOfReplica {
        /// The shard.
        shard: ShardId,
        /// The batch.
        batch: timestone_wal::BatchNumber,
    },
    /// A port cannot be had.
    #[error(
        "could not listen on {address} for {purpose}: {source}; another process may use the port: \
         choose another one, or 0 for any free one"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What it was wanted for.
        purpose: &'static str,
        /// What the operating system said.
        source: io::Error,
    },
    /// An address that others can reach was asked for without protection.
    #[error(
        "refusing to listen on {address}: it is reachable from other machines, and this server has \
         neither TLS nor authentication switched on; use a loopback address, or say --insecure"
    )]
    Insecure {
        /// The address.
        address: SocketAddr,
    },
    /// The log holds records of a shard that this server does not have.
    #[error(
        "the log in {path} holds records of shard {shard}, which this server does not own; it \
         belongs to another data directory or cluster"
    )]
    ForeignRecord {
        /// The log's folder.
        path: PathBuf,
        /// The shard.
        shard: ShardId,
    },
    /// The directory holds a log that it does not list.
    #[error(
        "data directory {path} holds a log in wal/{log} that it does not list, with records: a \
         copy, or one from another time, and what was \
         deleted since would come back with it. Move that folder out of the directory, or restore \
         the whole directory from one backup"
    )]
    UnlistedLog {
        /// The directory.
        path: PathBuf,
        /// The log's folder below `wal/`.
        log: String,
    },
    /// A shard cannot be brought up from what its logs hold.
    #[error("{0}")]
    Shard(#[from] ShardError),
    /// The store of a shard cannot be opened.
    #[error("the flash device in folder shard-{:04} of the data directory cannot be used: {source}", shard.get())]
    Store {
        /// The shard.
        shard: ShardId,
        /// What the store met.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The embedded master's state is damaged.
    #[error(
        "the master's state in {path} cannot be used: {detail}; restore the file from a backup of \
         this directory"
    )]
    BadMaster {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        detail: String,
    },
    /// The server was told to belong to another cluster.
    #[error(
        "--cluster says '{wanted}', but {place} belongs to cluster {found}; give the right name, \
         or another --data directory"
    )]
    OtherCluster {
        /// The name that was asked for.
        wanted: String,
        /// What belongs to the other cluster.
        place: PathBuf,
        /// The other cluster.
        found: String,
    },
    /// A cluster cannot be called so.
    #[error("'{name}' is no name of a cluster: give 1 to 64 letters, digits, '.', '-' or '_'")]
    BadClusterName {
        /// The name.
        name: String,
    },
    /// The cluster keeps another number of copies than was asked for.
    #[error(
        "--replication says {asked}, but the cluster keeps {found} of each shard: the number is \
         fixed when a cluster is founded; leave --replication out"
    )]
    Replication {
        /// What was asked for.
        asked: ReplicationFactor,
        /// What the cluster has.
        found: ReplicationFactor,
    },
    /// Another number of shards than the cluster was founded with.
    #[error(
        "--cluster-shards says {asked}, but the cluster has {found}: the number is fixed when a \
         cluster is founded; leave --cluster-shards out"
    )]
    ClusterShards {
        /// What was asked for.
        asked: u16,
        /// What the cluster has.
        found: usize,
    },
    /// A server without a log in a cluster that keeps several copies.
    #[error(
        "a cluster that keeps {replication} copies of each shard needs servers that have a log: \
         what the others count on must outlive a restart; leave out --log none, or found a \
         cluster with --replication 1"
    )]
    ReplicationWithoutLog {
        /// How many copies the cluster keeps.
        replication: ReplicationFactor,
    },
    /// The cluster's master cannot be reached, or refuses this server.
    #[error("the cluster's master at {address} does not take this server: {detail}")]
    Master {
        /// Where the master should be.
        address: SocketAddr,
        /// What happened.
        detail: String,
    },
    /// A data directory does not know a keyspace that was named.
    #[error(
        "data directory {path} names no keyspace '{keyspace}'; where the cluster's master is \
         elsewhere, give its number, as `timestone keyspace list` shows it"
    )]
    NoKeyspace {
        /// The directory.
        path: PathBuf,
        /// What was asked for.
        keyspace: String,
    },
    /// A keyspace's index cannot be changed.
    #[error("the index of keyspace {keyspace} cannot be changed: {detail}")]
    Conversion {
        /// The keyspace, as it was named.
        keyspace: String,
        /// Why not, and what to do.
        detail: String,
    },
    /// A part of the server refused to start, in its own words.
    #[error("{0}")]
    Part(Box<dyn std::error::Error + Send + Sync>),
    /// Our own mistake.
    #[error("internal error: {0}; please report it")]
    Internal(String),
}

/// What to do with a directory of another format.
fn way_out(found: u32, ours: u32) -> &'static str {
    if found < ours {
        "run the Timestone version that wrote it beside this one, which gets another --data \
         directory and other ports, and copy the keys \
         from one to the other, for example over the Redis protocol (SCAN, GET, PTTL, SET)"
    } else {
        "use the Timestone version that wrote it, or another --data directory"
    }
}

impl ServerError {
    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { action, path: path.to_owned(), source }
    }

    /// A net stage could not listen.
    pub(crate) fn listen(address: SocketAddr, purpose: &'static str, error: SedaError) -> Self {
        match error {
            SedaError::Listen { source, .. } => Self::Listen { address, purpose, source },
            other => Self::part(other),
        }
    }

    pub(crate) fn part(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Part(Box::new(error))
    }
}
