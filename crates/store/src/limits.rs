//! Bounds of the stores, in one place.

use core::time::Duration;

/// Pages that are programmed by one operation, at most: 512 KiB. The device's bandwidth is reached
/// with less, but an operation costs a virtual machine a good deal more processor time than its
/// bytes do.
pub const GROUP_PAGES: u32 = 128;
/// Bytes of pages that may wait for the device, with the copies that it has of them, unless
/// configured otherwise.
pub const MAX_PAGE_BUFFER_BYTES: u64 = 64 * 1024 * 1024;
/// How long a full page waits for others of its turn, unless configured otherwise.
pub const DEFAULT_PACKING_DELAY: Duration = Duration::from_millis(1);
/// How long a partly filled page waits for company while a log makes puts durable, unless
/// configured otherwise.
pub const DEFAULT_PARTIAL_PAGE_DELAY: Duration = Duration::from_millis(50);
/// Shortest time between two background syncs of the device, unless configured otherwise.
pub const DEFAULT_SYNC_INTERVAL: Duration = Duration::from_millis(25);
/// Bytes of the record cache, unless configured otherwise.
pub const DEFAULT_CACHE_BYTES: u64 = 64 * 1024 * 1024;
/// Bytes of records put between two checkpoints, unless configured otherwise.
pub const DEFAULT_CHECKPOINT_BYTES: u64 = 512 * 1024 * 1024;
/// Bytes of large values that wait to be written, unless configured otherwise; beyond, puts of
/// large values are answered with `Busy`.
pub const MAX_STAGED_BYTES: u64 = 96 * 1024 * 1024;
/// Bytes of large values that are read for gets at once, unless configured otherwise; further ones
/// wait in the store.
pub const MAX_ASSEMBLED_BYTES: u64 = 64 * 1024 * 1024;
/// Bytes of large values that gets wait for in the store; beyond, they are answered with `Busy`.
/// About what a device reads in a second.
pub const MAX_QUEUED_READ_BYTES: u64 = 1024 * 1024 * 1024;
/// Page reads in flight for gets, scans and counts; further ones wait in the store.
pub const MAX_READS_IN_FLIGHT: usize = 96;
/// Victim blocks that may be between "chosen" and "erased" at once.
pub const MAX_VICTIMS: usize = 32;
/// Blocks that a store programs at once: one for each of its streams (docs/design/zoned.md).
pub const OPEN_BLOCKS: u32 = 6;
/// One block in this many is kept back from puts, so that collection and deletes always have room
/// (docs/protocol/storage.md, "Collection").
pub const RESERVE_DIVISOR: u32 = 10;
/// How long the device is not asked to grow after it could not; doubled by every further failure.
pub const GROWTH_RETRY: Duration = Duration::from_secs(1);
/// The longest such pause: whoever makes room on a full disk does not wait for longer.
pub const MAX_GROWTH_RETRY: Duration = Duration::from_secs(8);
/// Free blocks beyond those that a put needs, without which no put is promised: collection may take
/// as many between promise and put.
pub const PROMISE_MARGIN: u32 = 2;
/// Idle bytes kept for reuse by [`crate::Reads::recycle`].
pub const RECYCLE_BYTES: usize = 8 * 1024 * 1024;
/// Keys that reads of ranges look at in one pump, dead ones included: some 400 µs of work.
pub const RANGE_KEYS_PER_PUMP: u32 = 2048;
/// Keys that one read of a range looks at before it is another one's turn.
pub const RANGE_KEYS_AT_ONCE: u32 = 256;
/// Keys whose records a page of a range may look up in vain: it ends behind them. One that wants a single
/// key looks at one record after the other: half a second, if each takes a millisecond. Whoever asks
/// waits a second before it asks again.
pub const RANGE_ABSENT_KEYS: u32 = 512;
/// The same in bytes of keys, which a page keeps until it ends.
pub const RANGE_ABSENT_BYTES: usize = 256 * 1024;
/// Keys that a page of a range may pass over because memory says that they are not visible: it ends
/// behind them, after eight pumps that do nothing else.
pub const RANGE_HIDDEN_KEYS: u32 = 8 * RANGE_KEYS_PER_PUMP;
/// How often it is looked whether a device is open that is being opened.
pub const OPENING_INTERVAL: Duration = Duration::from_millis(10);
/// How long a device is not opened again that could not be.
pub const OPEN_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// How long one of two devices is waited for while the other one may complete something, in
/// recovery and at the end.
pub const WAIT_SLICE: Duration = Duration::from_millis(1);
