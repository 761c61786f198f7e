//! Bounds of the demo, named in one place.

use std::time::Duration;

/// Most servers: each is a process with threads and files of its own on this machine.
pub(super) const MAX_SERVERS: u16 = 16;
/// Most shards: every server of a small cluster keeps a replica of each.
pub(super) const MAX_SHARDS: u16 = 64;
/// Most sessions of the workload.
pub(super) const MAX_CLIENTS: u32 = 10_000;
/// How long a process may take from its start until it answers.
pub(super) const READY_TIMEOUT: Duration = Duration::from_secs(40);
/// How long the cluster may take until it has stored the accounts.
pub(super) const OPEN_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a process may take to end after SIGTERM, before SIGKILL.
pub(super) const END_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the accounts are looked for at the end: servers that were killed last start meanwhile.
pub(super) const CHECK_TIMEOUT: Duration = Duration::from_secs(60);
/// How long an operation of the workload may take: a failover fits.
pub(super) const OPERATION_DEADLINE: Duration = Duration::from_secs(10);
/// How long sessions may take to end after the workload: their operations end by their deadline.
pub(super) const SESSIONS_TIMEOUT: Duration = Duration::from_secs(15);
/// How often processes are looked at, and signals.
pub(super) const TICK: Duration = Duration::from_millis(50);
/// How often each server is asked how it is.
pub(super) const PROBE_PAUSE: Duration = Duration::from_millis(250);
/// A server whose process lives and that has not answered for this long is silent.
pub(super) const SILENT_AFTER: Duration = Duration::from_secs(2);
/// One line of figures comes so often.
pub(super) const LINE_PAUSE: Duration = Duration::from_secs(1);
/// Pause of a session after a refusal, so that a cluster that is down is not flooded.
pub(super) const REFUSED_PAUSE: Duration = Duration::from_millis(20);
/// How often in a row a process may fail by itself before it is not started any more.
pub(super) const MAX_FAILURES: u32 = 3;
/// Lines of a log that are shown when its process failed.
pub(super) const SHOWN_LOG_LINES: usize = 12;
/// Bytes of a log that are read for them.
pub(super) const SHOWN_LOG_BYTES: u64 = 16 * 1024;
/// Cache of one server.
pub(super) const CACHE: &str = "64MiB";
/// Memory of one server.
pub(super) const MEMORY: &str = "512MiB";
/// What each account holds at first.
pub(super) const INITIAL_BALANCE: i64 = 1_000;
/// Least number of accounts.
pub(super) const LEAST_ACCOUNTS: usize = 20;
/// Further accounts for each shard, so that every shard has some.
pub(super) const ACCOUNTS_PER_SHARD: usize = 10;
/// Of a hundred transactions so many read all accounts, and their sum is checked.
pub(super) const READING_PERCENT: u64 = 10;
/// Most that one transfer moves.
pub(super) const MAX_AMOUNT: u64 = 5;
/// Ports of servers: below the range from which the system takes those of outgoing connections, so
/// that they stay free while a server is down.
pub(super) const FIRST_PORT: u16 = 20_000;
/// How many ports there are to choose from.
pub(super) const PORTS: u16 = 12_000;

const _: () = assert!(OPERATION_DEADLINE.as_nanos() < SESSIONS_TIMEOUT.as_nanos());
const _: () = assert!(READY_TIMEOUT.as_nanos() < CHECK_TIMEOUT.as_nanos());
