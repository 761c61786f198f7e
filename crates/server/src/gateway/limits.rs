//! Bounds of the gateway.

use core::time::Duration;

use timestone_types::limits::MAX_TXN_BYTES;

/// Commands of one connection that may be under way at once; the rest of its pipeline waits.
pub(super) const MAX_IN_FLIGHT: usize = 256;
/// Commands with more keys than this wait until everything before them is answered, and everything after them waits.
pub(super) const MAX_MARKED_KEYS: usize = 64;
/// Answers of one connection that may wait for the net stage before its commands wait.
pub(super) const OUTPUT_BOUND_BYTES: usize = 1024 * 1024;
/// Commands of one connection that wait here at most; a connection that sends more without giving them time is closed, as by Redis's
/// `client-query-buffer-limit`. Above the longest single command.
pub(super) const MAX_BACKLOG_BYTES: usize = 4 * MAX_TXN_BYTES;
/// Memory of an empty buffer that a connection keeps.
pub(super) const KEPT_BUFFER_BYTES: usize = 64 * 1024;
/// Bytes of the commands that one MULTI may queue.
pub(super) const MAX_QUEUED_BYTES: usize = 2 * MAX_TXN_BYTES;
/// Commands that one MULTI may queue.
pub(super) const MAX_QUEUED_COMMANDS: usize = 1024 * 1024;
/// Commands on one key that are carried out as one transaction.
pub(super) const MAX_COMBINED: usize = 128;
/// Bytes of commands after which no more are combined.
pub(super) const MAX_COMBINED_BYTES: usize = 1024 * 1024;
/// For how long a command that meets conflicts is tried again.
pub(super) const RETRY_FOR: Duration = Duration::from_secs(5);
/// Longest answer to KEYS.
pub(super) const MAX_KEYS_REPLY_BYTES: usize = 512 * 1024 * 1024;
/// Keys that one page of KEYS asks a shard for.
pub(super) const KEYS_PAGE: u32 = 1024;
/// Keys that SCAN asks a shard for when it is not told.
pub(super) const SCAN_DEFAULT_COUNT: u32 = 10;
/// How often the map or a client id is asked for while it is missing.
pub(super) const ASK_INTERVAL: Duration = Duration::from_millis(200);

const _: () = assert!((MAX_BACKLOG_BYTES as u64) < crate::limits::GATEWAY_ADMISSION.bytes);
const _: () = assert!(MAX_MARKED_KEYS <= MAX_IN_FLIGHT);
const _: () = assert!(MAX_BACKLOG_BYTES > 2 * MAX_TXN_BYTES);
