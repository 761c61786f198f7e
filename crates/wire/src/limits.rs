//! Bounds of frames and of what they carry; those that users meet come from
//! `timestone_types::limits`.

use timestone_cluster::limits::{MAX_ENCODED_BYTES, MAX_SHARDS};
use timestone_replication::limits::{MAX_LINEAGE, MAX_RUNS_TOLD};
use timestone_types::limits::{
    MAX_KEY_BYTES, MAX_TXN_BYTES, MAX_TXN_KEYS, MAX_TXN_RANGE_BYTES, MAX_TXN_RANGES,
    MAX_VALUE_BYTES,
};

/// Bytes that one read or write of a prepare takes besides its key and value, at most.
pub const ENTRY_OVERHEAD_BYTES: usize = 32;
/// Longest body of a prepare (reads and writes), in bytes.
pub const MAX_PREPARE_BODY_BYTES: usize = MAX_TXN_BYTES + MAX_TXN_KEYS * ENTRY_OVERHEAD_BYTES + 8;
/// Most participants of one transaction.
pub const MAX_PARTICIPANTS: usize = MAX_SHARDS as usize;
/// Longest batch of records that a replica sends another one, in bytes: as a log takes it.
pub const MAX_BATCH_BYTES: usize = timestone_wal::limits::MAX_BATCH_BYTES;
/// Longest frame, header included, in bytes: the longest batch of records and what a replica says
/// with it.
pub const MAX_FRAME_BYTES: usize = MAX_BATCH_BYTES + 256;
/// Longest cursor of a checkpoint, in bytes: a key, and where it stands.
pub const MAX_CURSOR_BYTES: usize = MAX_KEY_BYTES + 1024;
/// Longest part of a checkpoint, in bytes: a part that is full but for one byte, and then the
/// longest promise with its participants.
pub const MAX_CHECKPOINT_PART_BYTES: usize =
    1024 * 1024 + MAX_PREPARE_BODY_BYTES + MAX_PARTICIPANTS * 2 + 256;
/// Longest end of a range, in bytes: a key, or what comes just behind the longest one.
pub const MAX_EDGE_BYTES: usize = MAX_KEY_BYTES + 1;
/// Bytes that one range of a prepare takes besides its ends.
pub const RANGE_ENTRY_OVERHEAD_BYTES: usize = 21;
/// Longest text of an error, in bytes; longer ones are cut when they are encoded.
pub const MAX_ERROR_TEXT_BYTES: usize = 1024;
/// Longest name of a client in its hello, in bytes; longer ones are cut when they are encoded.
pub const MAX_CLIENT_NAME_BYTES: usize = 128;
/// Most bytes of keys, values and overhead in one page of a scan; a page with one entry may be
/// longer.
pub const SCAN_PAGE_BYTES: usize = 1024 * 1024;
/// Most entries of one page of a scan.
pub const MAX_SCAN_ENTRIES: u32 = 10_000;
/// Bytes that one entry of a page of a scan takes besides its key and value: version, expiry and
/// two lengths.
pub const SCAN_ENTRY_OVERHEAD_BYTES: usize = 28;
/// Longest list of statistics, in bytes.
pub const MAX_STATUS_BYTES: usize = 4 * 1024 * 1024;

const _: () = assert!(MAX_FRAME_BYTES < u32::MAX as usize);
// The longest prepare with all participants, ranges and its fixed fields.
const _: () = assert!(
    MAX_PREPARE_BODY_BYTES
        + MAX_TXN_RANGE_BYTES
        + MAX_TXN_RANGES * RANGE_ENTRY_OVERHEAD_BYTES
        + MAX_PARTICIPANTS * 2
        + 256
        <= MAX_FRAME_BYTES
);
const _: () = assert!(MAX_CHECKPOINT_PART_BYTES + MAX_CURSOR_BYTES + 256 <= MAX_FRAME_BYTES);
// The longest message of a replica without a batch has a lineage and two sets.
const _: () = assert!(2 * MAX_RUNS_TOLD * 16 + MAX_LINEAGE * 12 + 256 < MAX_FRAME_BYTES);
const _: () = assert!(MAX_ENCODED_BYTES + 256 < MAX_FRAME_BYTES);
const _: () = assert!(MAX_STATUS_BYTES + 256 < MAX_FRAME_BYTES);
// A page of the most keys has room for keys.
const _: () = assert!(MAX_SCAN_ENTRIES as usize * SCAN_ENTRY_OVERHEAD_BYTES < SCAN_PAGE_BYTES / 2);
// A page that is full but for one byte, and then the longest entry.
const _: () = assert!(
    SCAN_PAGE_BYTES + MAX_KEY_BYTES + MAX_VALUE_BYTES + MAX_EDGE_BYTES + 256 < MAX_FRAME_BYTES
);
// A single-key write carries a key, a value and the value it expects.
const _: () = assert!(MAX_KEY_BYTES + 2 * MAX_VALUE_BYTES + 256 < MAX_FRAME_BYTES);
