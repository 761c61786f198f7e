//! Bounds of the benchmark, named in one place.

use std::time::Duration;

/// Most sessions: each is a task with buffers of its own.
pub(super) const MAX_CLIENTS: u32 = 100_000;
/// How long an operation may take before its transaction counts as unknown.
pub(super) const OPERATION_DEADLINE: Duration = Duration::from_secs(10);
/// How often counters are published and the end is looked for.
pub(super) const TICK: Duration = Duration::from_millis(100);
/// Pause of a session after a refusal that is no abort, so that a server that is down is not flooded.
pub(super) const ERROR_PAUSE: Duration = Duration::from_millis(10);
/// Loading transactions under way at a time, on every event loop.
pub(super) const LOADERS: u32 = 16;
/// Bytes of one loading transaction, about.
pub(super) const LOAD_BYTES: usize = 128 * 1024;
/// Most keys of one loading transaction.
pub(super) const LOAD_KEYS: u64 = 1_000;
/// How long one loading transaction is tried again.
pub(super) const LOAD_PATIENCE: Duration = Duration::from_secs(20);
/// Longest pause between two attempts of one loading transaction.
pub(super) const LOAD_PAUSE: Duration = Duration::from_millis(100);
/// How long sessions may take to end after the run: their operations end by their deadline.
pub(super) const END_PATIENCE: Duration = Duration::from_secs(15);

const _: () = assert!(OPERATION_DEADLINE.as_nanos() < END_PATIENCE.as_nanos());
