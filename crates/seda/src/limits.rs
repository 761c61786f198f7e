//! The bounds of this crate, by name.

use std::time::Duration;

/// Most stages, and most threads, of one runtime.
pub const MAX_STAGES: usize = 4096;
/// Events that may wait in a stage's queue before senders are refused. Batches of frames hold many
/// requests each, so this is plenty.
pub const QUEUE_CAPACITY: usize = 8192;
/// Slots of the lane from one thread to another; as many again may wait on the sender's side.
pub const LANE_CAPACITY: usize = 4096;
/// Events that are collected for a lane before they are pushed in the middle of a turn
/// (docs/lab/building-blocks.md: chunks of 32, 0.9 ns).
pub const LANE_CHUNK: usize = 32;
/// Events that threads outside of the runtime may have waiting, per thread of the runtime.
pub const INJECTOR_CAPACITY: usize = 16 * 1024;
/// Events taken from one lane, or from the injector, in one turn, so that no producer starves the
/// others.
pub const INTAKE_PER_TURN: usize = 2048;
/// How often the stages of a thread are run in one turn while events keep passing between them.
pub const MAX_ROUNDS: usize = 8;
/// Readiness events taken from the operating system at once.
pub const POLL_EVENTS: usize = 1024;
/// How long a thread spins before it sleeps, when spinning pays.
pub const SPIN_DEFAULT: Duration = Duration::from_micros(30);
/// The longest a thread sleeps while it holds events that a full lane or queue refused.
pub const RETRY_INTERVAL: Duration = Duration::from_micros(100);
/// One turn in this many is timed.
pub const SAMPLE_EVERY: u32 = 64;

/// Free buffers that a thread keeps.
pub const POOL_BUFFERS: usize = 1024;
/// Bytes of free buffers that a thread keeps.
pub const POOL_BYTES: usize = 16 * 1024 * 1024;
/// Capacity of a fresh batch of frames.
pub const FRAME_BATCH_BYTES: usize = 4096;
/// Larger buffers are not kept.
pub const POOL_LARGEST: usize = 256 * 1024;

/// Default for the longest frame: a transaction's 64 MiB and room for its header and lists.
pub const MAX_FRAME_BYTES: usize = timestone_types::limits::MAX_TXN_BYTES + 1024 * 1024;
/// Bytes read from one connection with one call; the buffer is shared by all connections of a net
/// stage.
pub const READ_BYTES: usize = 256 * 1024;
/// Bytes read from one connection in one turn before the others get theirs.
pub const READ_PER_TURN: usize = 1024 * 1024;
/// Bytes read from all connections in one turn, after which the turn goes on with what it has: what
/// it works on should be in the processor's cache still when it is answered, and is copied a few
/// times on its way.
pub const READ_BY_ALL_PER_TURN: usize = 256 * 1024;
/// Output waiting for one connection above which it is no longer read from; reading resumes at half
/// of it.
pub const OUTPUT_BOUND: usize = 4 * 1024 * 1024;
/// The same while the process's memory for answers is scarce.
pub const SCARCE_OUTPUT_BOUND: usize = 512 * 1024;
/// Output waiting for one connection above which answers that may be asked for again are replaced
/// by `Busy`. Above the longest single answer, so that a peer that reads gets everything.
pub const OUTPUT_LIMIT: usize = 32 * 1024 * 1024;
/// An owner that wants to know is told of so much written output at a time. Well below the bounds,
/// which count what it is not told yet.
pub const WRITTEN_REPORT_BYTES: usize = 128 * 1024;
/// A peer that has taken nothing of what waits for it for so long, or has sent nothing of a long
/// frame that it began, is given up.
pub const STALL_LIMIT: Duration = Duration::from_secs(30);
/// The same at a shutdown, whichever side has dialled: nobody waits for those that do not read.
pub const SHUTDOWN_STALL_LIMIT: Duration = Duration::from_secs(2);
/// At a shutdown, peers have so long in all to take what waits for them.
pub const SHUTDOWN_FLUSH_LIMIT: Duration = Duration::from_secs(10);
/// How often a shutdown looks for peers that take nothing.
pub const SHUTDOWN_STALL_CHECK: Duration = Duration::from_millis(250);
/// A frame longer than what is read at once waits so long at most for memory; then its connection
/// is told `Busy` and closed.
pub const MEMORY_TIMEOUT: Duration = Duration::from_secs(5);
/// How often whoever waits for memory looks again.
pub const MEMORY_RETRY: Duration = Duration::from_millis(5);
/// A stage publishes how much memory it holds in steps of so many bytes.
pub const TALLY_STEP: u64 = 64 * 1024;
/// Slices handed to one vectored write.
pub const WRITE_SLICES: usize = 64;
/// Default for the connections of one net stage.
pub const MAX_CONNECTIONS: usize = 16 * 1024;
/// Connections accepted in one turn.
pub const ACCEPTS_PER_TURN: usize = 256;
/// After an accept failed for want of resources (open files), the listener rests for this long;
/// twice as long after each further failure.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Longest such rest.
pub const MAX_ACCEPT_PAUSE: Duration = Duration::from_secs(2);
/// The shortage is told no more often than this.
pub const SHORTAGE_WARNING_INTERVAL: Duration = Duration::from_secs(10);
/// A peer that closed its sending half is answered for this long after the last answer, then
/// closed.
pub const HALF_CLOSE_LINGER: Duration = Duration::from_millis(250);
/// The same while answers are waiting that the peer does not take, and for connections being closed
/// that should be flushed.
pub const FLUSH_LINGER: Duration = Duration::from_secs(10);
/// A dial that is not answered for this long has failed.
pub const DIAL_TIMEOUT: Duration = Duration::from_secs(5);
/// After so much silence the operating system asks the other end of a connection whether it is
/// still there.
pub const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
/// It asks again so often.
pub const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// After so many questions without an answer the connection is broken: two minutes after the last
/// sign of life. A peer that is gone without a word (power, a network that forgets) would otherwise
/// keep its place, and what is queued for it, for ever.
pub const KEEPALIVE_PROBES: u32 = 6;

const _: () = assert!(LANE_CHUNK <= LANE_CAPACITY && INTAKE_PER_TURN <= QUEUE_CAPACITY);
const _: () =
    assert!(4 * WRITTEN_REPORT_BYTES <= SCARCE_OUTPUT_BOUND && SCARCE_OUTPUT_BOUND < OUTPUT_BOUND);
const _: () = assert!(OUTPUT_LIMIT > timestone_types::limits::MAX_VALUE_BYTES + OUTPUT_BOUND);
const _: () = assert!(FRAME_BATCH_BYTES <= POOL_LARGEST && MAX_STAGES <= u16::MAX as usize);
