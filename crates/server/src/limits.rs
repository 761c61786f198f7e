//! Bounds of the server, named in one place.

use core::time::Duration;

use timestone_seda::AdmissionLimit;

/// The longest lease of a primary, and the one of a shard with one copy.
pub use timestone_txn::limits::BOUND_AHEAD as MAX_LEASE;
/// The shortest lease of a primary.
pub use timestone_txn::limits::MIN_LEASE;

/// Most detection times that a lease may take: a failover waits for both, and a short detection is
/// worth nothing beside a long lease.
pub const MAX_LEASE_OF_DETECTIONS: u32 = 8;
/// How often a backup that is read asks its primary for a closed timestamp.
pub(crate) const CLOSED_PAUSE: Duration = Duration::from_millis(50);
/// For how long after the last read it goes on asking.
pub(crate) const CLOSED_WANTED_FOR: Duration = Duration::from_secs(2);
/// Port of the native protocol.
pub const NATIVE_PORT: u16 = 7400;
/// Port of the RESP gateway.
pub const RESP_PORT: u16 = 7401;
/// Port of metrics, health and, later, the console.
pub const HTTP_PORT: u16 = 7402;
/// Shards of a fresh data directory when nothing else is said.
pub const DEFAULT_SHARDS: u16 = 4;
/// Most reactor threads.
pub const MAX_THREADS: usize = 256;
/// Bytes of the record cache when nothing else is said; allocated as it fills.
pub const DEFAULT_CACHE_BYTES: u64 = 1 << 30;
/// Memory of the keyspaces in dram, unless configured otherwise.
pub const DEFAULT_DRAM_BYTES: u64 = 256 * 1024 * 1024;
/// Keys that are expected in keyspaces with their index on flash, over all shards, unless configured
/// otherwise: heads of their buckets take 8.5 MB, and translations 50 MB at most.
pub const DEFAULT_FRUGAL_KEYS: u64 = 10_000_000;
/// For so many keys each shard has buckets at least, whatever is expected: with a few buckets, each
/// would be a chain of thousands of records, and every read a walk of it. Their heads take 1 KB.
pub const MIN_FRUGAL_KEYS: u64 = 1000;
/// Of so many of a hundred of them memory knows the places, unless configured otherwise.
pub const DEFAULT_FRUGAL_PLACES: u32 = 10;
/// Bytes that a key takes on a device at least, for the number of buckets of a small one: with more
/// of them its checkpoints would take a good part of it.
pub const FRUGAL_BYTES_PER_KEY: u64 = 256;
/// Memory of a process when nothing else is said and the machine's is not known.
pub const DEFAULT_MEMORY_BYTES: u64 = 4 << 30;
/// Least memory that a process may be given.
pub const MIN_MEMORY_BYTES: u64 = 256 << 20;
/// What a process needs beside caches, indexes and buffers of connections.
pub const BASE_MEMORY_BYTES: u64 = 64 << 20;
/// The same of a store that is embedded in its application, which has no connections.
pub const EMBEDDED_BASE_MEMORY_BYTES: u64 = 56 << 20;
/// Descriptors that are kept from connections: for shards, logs, threads, HTTP and what is opened
/// now and then.
pub const RESERVED_DESCRIPTORS: usize = 256;
/// Connections of each net stage that are allowed however few descriptors there are.
pub const MIN_CONNECTIONS: usize = 8;
/// How long an HTTP peer may take to send a request, and to take its answer.
pub const HTTP_IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// Most HTTP connections at once; others wait until one ends.
pub const MAX_HTTP_CONNECTIONS: usize = 128;
/// After an HTTP connection could not be accepted, the next attempt waits for this long.
pub const HTTP_ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long a graceful shutdown waits for stages to drain.
pub const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(20);
/// A log that cannot make its next file tells its shards what may still be let in, in steps of so
/// many bytes.
pub const LOG_ROOM_STEP_BYTES: u64 = 64 * 1024;
/// How long a shutdown waits for a log that has no room for what waits: shards that sync their
/// stores may let go of a file meanwhile.
pub const BLOCKED_LOG_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes that the flash files leave free on the file system beside a file for each log: for the
/// small files of the directory.
pub const FREE_BYTES: u64 = 4 * 1024 * 1024;
/// Bytes of each file of a log that is made at the end of a run without one, and of the files that
/// are made for logs which are only emptied. Promises and outcomes are small: this is some 70 000
/// of them.
pub const LAST_LOG_FILE_BYTES: u64 = 4 * 1024 * 1024;
/// Client ids that a process fetches at a time from a master elsewhere.
pub const CLIENT_BLOCK: u32 = 256;
/// How long a server counts as alive at a master after it was heard: longer than a restart of etcd
/// takes. Nothing hangs on it while shards have one replica.
pub const SERVER_LEASE: Duration = Duration::from_secs(10);
/// Most commands under way to a master elsewhere.
pub const MAX_RELAYED: usize = 4096;
/// Most bytes that wait for a connection to another process.
pub const LINK_BACKLOG_BYTES: usize = 4 * 1024 * 1024;
/// How often a run without a log saves how far it has lived. What it serves within this long before
/// a kill is not known to the next run if the clock is set back over it.
pub const LIFE_INTERVAL: Duration = Duration::from_secs(10);
/// The same during a shutdown, in which gateways and shards may go on to answer for a few seconds.
pub const LAST_LIFE_INTERVAL: Duration = Duration::from_millis(250);
/// How long a server runs under one number of its data directory. A copy of the directory that was
/// made while the server ran is noticed when it is older than this, if the master could be asked.
pub const RUN_INTERVAL: Duration = Duration::from_secs(60);
/// When a master that has not answered is told the number again.
pub const RUN_AGAIN: Duration = Duration::from_secs(5);
/// How long a process waits for a master elsewhere at start.
pub const MASTER_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of an erase block of the file device.
pub const BLOCK_BYTES: u64 = 256 * 4096;
/// Bytes of the emulated flash devices together, in memory as they fill, when nothing is said.
pub const EMULATED_CAPACITY_BYTES: u64 = 1 << 30;
/// Most pages of a device that a store can number.
pub const MAX_DEVICE_PAGES: u32 = (1 << 30) - 0x1_0000;
/// Fewest blocks that a shard's device may have.
pub const MIN_BLOCKS: u32 = 16;
/// Blocks that a shard's device has room for in its table at least, whatever its capacity is at
/// creation: 256 GiB. The table takes 2 MiB.
pub const TABLE_BLOCKS: u32 = 262_144;
/// Blocks that a shard's device has at first; it grows as it fills.
pub const INITIAL_BLOCKS: u32 = 16;
/// What a shard takes on before it answers "busy".
pub const SHARD_ADMISSION: AdmissionLimit =
    AdmissionLimit { requests: 262_144, bytes: 256 * 1024 * 1024 };
/// Missing files that an error names; of more it says how many.
pub const MAX_MISSING_NAMED: usize = 5;
/// Clients of a server's own that its manifest remembers. What they left in the logs matters for a
/// minute, so that the last few runs do.
pub const MAX_OWN_CLIENTS: usize = 4 * MAX_THREADS;
/// Bytes of log records that a thread of a replay is given at a time.
pub const REPLAY_CHUNK_BYTES: usize = 256 * 1024;
/// How many such chunks may wait for it.
pub const REPLAY_CHUNKS_AHEAD: usize = 16;
/// How long a full page waits for others while the log makes puts durable: long enough for groups
/// of 512 KiB.
pub const PACKING_DELAY: Duration = Duration::from_millis(25);
/// How often a shard's device is synced, so that the log can let go of what is in pages.
pub const SYNC_INTERVAL: Duration = Duration::from_millis(200);
/// As [`PACKING_DELAY`], where nothing but the pages survives a crash.
pub const PACKING_DELAY_WITHOUT_LOG: Duration = Duration::from_millis(10);
/// As [`SYNC_INTERVAL`], where nothing but the pages survives a crash.
pub const SYNC_INTERVAL_WITHOUT_LOG: Duration = Duration::from_millis(100);

/// How often whoever stops a server looks whether its primaries are handed over.
pub(crate) const HAND_OVER_POLL: Duration = Duration::from_millis(5);
/// How often a stage looks at a log that was made at the end of a run: nobody is called for that
/// one.
pub(crate) const LAST_LOG_POLL: Duration = Duration::from_millis(1);
/// How often a stage looks whether a file of a log that is being emptied has gone.
pub(crate) const EMPTYING_POLL: Duration = Duration::from_millis(10);
/// Bytes of asks to another replica that wait to be written; what comes beyond is not sent, and asked
/// for again. Half of what a primary keeps for those that are behind.
pub(crate) const MAX_UNWRITTEN_TO_REPLICA: u64 = 32 << 20;
/// Bytes of batches that wait for a backup's store; while there are more, none is taken.
pub(crate) const MAX_WAITING_APPLIES: usize = 32 << 20;
/// Bytes of batches that a replica keeps in memory because they are needed in its log; above it the
/// shard is asked to append again what holds them up.
pub(crate) const COPY_FORWARD_BYTES: usize = 64 << 20;
/// Bytes that a replica appends to its log before it appends its mark again: an old one would keep whole
/// files that are needed for nothing else, where their room could be used again.
pub(crate) const MARK_AGAIN_BYTES: usize = 32 << 20;
/// How often the shard is asked to append again what holds up memory.
pub(crate) const COPY_FORWARD_PAUSE: Duration = Duration::from_secs(1);
/// How often a backup looks what its log is still needed for: through all promises and outcomes that
/// it keeps. Read bounds come every 250 ms, so that there is a turn for it.
pub(crate) const KEEP_FROM_PAUSE: Duration = Duration::from_millis(50);
/// How soon a backup looks again whether its store has room.
pub(crate) const STORE_PAUSE: Duration = Duration::from_millis(1);
/// When to ask a server again that is becoming primary.
pub(crate) const NOT_SERVING_RETRY_AFTER: Duration = Duration::from_millis(50);
/// How far the epoch of another replica's message may lie above the one that the map names: changes
/// of a map on its way, and what a restore of the master skips (1024 at a time).
pub(crate) const MAX_EPOCHS_AHEAD: u32 = 1 << 16;
/// A replica whose log makes nothing durable for so long counts as lost, until it goes on.
pub(crate) const LOG_STUCK_AFTER: Duration = Duration::from_secs(2);
/// A primary for which nothing has counted for so long, although something waits for that, gives
/// checkpoints of what counts already: what it writes now may never count without them.
pub(crate) const NOTHING_COUNTS_AFTER: Duration = Duration::from_secs(1);
/// When a part of a checkpoint is asked for again.
pub(crate) const PART_AGAIN: Duration = Duration::from_secs(1);
/// A checkpoint of which nothing has come for so long does not get on.
pub(crate) const REBUILD_STALLS_AFTER: Duration = Duration::from_secs(10);
/// How long a primary waits at the end of its process for the other replicas to have what it has
/// recorded: a failover of one of them takes less.
pub(crate) const LAST_COUNTS: Duration = Duration::from_secs(3);
