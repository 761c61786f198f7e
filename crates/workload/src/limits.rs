//! Bounds of this crate, each with its reason.

use std::time::Duration;

/// Shortest key: one letter and seven digits, enough for ten million keys.
pub const MIN_KEY_BYTES: usize = 8;
/// Most keys: their numbers still fit the digits of a 16-byte key with room to spare.
pub const MAX_KEYS: u64 = 100_000_000_000;
/// Most accounts of the bank: a reading transaction reads all of them at once.
pub const MAX_ACCOUNTS: u64 = 10_000;
/// Steepest contention parameter: beyond it, practically every draw is the first key.
pub const MAX_ZIPF: f64 = 5.0;
/// Most keys of one scan of YCSB E: its `maxscanlength`.
pub const MAX_SCAN_KEYS: u32 = 100;
/// Longest latency told apart from longer ones, which are counted as this.
pub const MAX_LATENCY: Duration = Duration::from_secs(3_600);
/// Digits of a latency that a histogram keeps: 0.1 % error.
pub const LATENCY_DIGITS: u8 = 3;
/// How often a drawn key is drawn again because the transaction has it already, before its
/// neighbour is taken.
pub const MAX_REDRAWS: u32 = 16;
/// Most anomalies of one kind that a checker words: the first few tell the story.
pub const MAX_REPORTED: usize = 8;
/// Most edges that a checker walks in one strongly connected component to find a shorter cycle than
/// it has; the first search is always finished. A component of a thousand edges is searched from
/// every one.
pub const MAX_CYCLE_STEPS: usize = 1_000_000;
/// Most states that are tried to find an order of one key's operations. A history of thousands of
/// operations takes about as many as it has operations; what would take more is not judged, and not
/// counted as looked at.
pub const MAX_ORDER_STATES: usize = 400_000;
/// Most steps of the search for an order of the calls on one key, beside a few for each of them;
/// each step looks at a handful of calls: some seconds. Histories of the simulator need a few
/// thousand.
pub const MAX_LINEAR_STEPS: usize = 5_000;
/// Longest text of one transaction in a story, in bytes; the rest is left out.
pub const MAX_STORY_OPS_BYTES: usize = 240;
/// Deepest nesting of vectors and maps that the EDN reader follows; a history needs three.
pub const MAX_EDN_DEPTH: usize = 16;
