//! Bounds of the gateway.

use core::time::Duration;
use timestone_seda::AdmissionLimit;

use timestone_types::limits::MAX_TXN_BYTES;

const _: () = assert!(LAST_COMMANDS.as_millis() < LAST_ANSWERS.as_millis());

/// Commands of one connection that may be under way at once; the rest of its pipeline waits.
pub(crate) const MAX_IN_FLIGHT: usize = 256;
/// Commands with more keys than this wait until everything before them is answered, and everything
/// after them waits.
pub(crate) const MAX_RESERVED_KEYS: usize = 64;
/// Keys that commands of one connection under way may touch in all; what comes behind them waits.
pub(crate) const MAX_KEY_ACCESSES: usize = 1024;
/// Commands of one connection that are carried out in a turn of the stage; the rest of what it has
/// sent waits for the next one.
pub(crate) const COMMANDS_AT_ONCE: u32 = 2048;
/// So many bytes of the answer of a command that touches no key count as one more command of
/// [`COMMANDS_AT_ONCE`].
pub(crate) const ANSWER_BYTES_A_COMMAND: usize = 256;
/// Commands that are collected before the shards of this thread are called for them.
pub(crate) const DIRECT_CALLS: usize = 32;
/// Timestamps that a write by a call tries before it is asked in a frame.
pub(crate) const DIRECT_ROUNDS: u32 = 4;
/// Keys that one command asks shards for in a turn; the others are asked for when these are
/// answered.
pub(crate) const KEYS_AT_ONCE: usize = 2048;
/// Work of all jobs together in a turn, in bytes of commands, values and answers; beyond, they go
/// on in the next one.
pub(crate) const EXEC_BYTES_AT_ONCE: usize = 4 * 1024 * 1024;
/// Bytes of values that a job makes out of what is there (SETRANGE, APPEND, EXPIRE …) from which on
/// they are charged, and wait for memory.
pub(crate) const CHARGED_MADE_BYTES: u64 = 4 * 1024;
/// Longest answer of MGET or EXEC: twice what a transaction may read, since its commands may read
/// the same value again and again.
pub(crate) const MAX_ANSWER_BYTES: usize = 2 * MAX_TXN_BYTES;
/// What a command of a job counts for besides its bytes.
pub(crate) const COMMAND_BYTES: usize = 1024;
/// Keys that a connection may watch: no transaction could compare more.
pub(crate) const MAX_WATCHED_KEYS: usize = timestone_types::limits::MAX_TXN_KEYS;
/// What each watched key costs beside its bytes.
pub(crate) const WATCHED_KEY_BYTES: usize = 96;
/// Longest pattern of KEYS, SCAN, CONFIG GET and COMMAND LIST: to match takes a step for every byte
/// of a key and every 64 of the pattern.
pub(crate) const MAX_PATTERN_BYTES: usize = 1024;
/// The patterns of one CONFIG GET in all, in bytes and one more for each of them.
pub(crate) const MAX_PATTERNS_BYTES: usize = 4 * 1024;
/// Each of those bytes costs as much as so many bytes of an answer: to compile it may take as many
/// steps, one for each value of a byte.
pub(crate) const PATTERN_BYTE_COST: usize = 256;
/// Names that one COMMAND INFO or COMMAND DOCS may have, sections of INFO, and ids of CLIENT LIST:
/// some times as many as there are commands.
pub(crate) const MAX_NAMED: usize = 1024;
/// Longest entry of COMMAND INFO and COMMAND DOCS.
pub(crate) const COMMAND_ENTRY_BYTES: usize = 256;
/// Longest line of CLIENT LIST, beside the names in it.
pub(crate) const CLIENT_LINE_BYTES: usize = 384;
/// What an argument costs that is part of an answer, beside its bytes: its length and line ends.
pub(crate) const ELEMENT_BYTES: usize = 16;
/// Answers that one connection may be owed, written to its socket or not yet, before its commands
/// wait. While the process's memory for answers is scarce it is less:
/// [`SCARCE_OUTPUT_BOUND`](timestone_seda::limits::SCARCE_OUTPUT_BOUND).
pub(crate) const OUTPUT_BOUND_BYTES: usize = 4 * 1024 * 1024;
/// How long a connection's first answers are expected to be: its pipeline starts with a few, until
/// they turn out shorter.
pub(crate) const FIRST_ANSWER_BYTES: usize = 1024 * 1024;
/// Answers shorter than this are never read again for want of room.
pub(crate) const SHED_FROM_BYTES: usize = 4 * 1024;
/// Bytes of commands that wait on one connection before it is not read from any more; reading goes
/// on at half of it.
pub(crate) const PAUSE_BACKLOG_BYTES: usize = 1024 * 1024;
/// The same while the process's memory for input is scarce.
pub(crate) const SCARCE_BACKLOG_BYTES: usize = 64 * 1024;
/// A command of more bytes than this is collected only once there is memory for it.
pub(crate) const UNRESERVED_BYTES: usize = 256 * 1024;
/// The same while the process's memory for input is scarce.
pub(crate) const SCARCE_UNRESERVED_BYTES: usize = 16 * 1024;
/// Values that a job has read, in bytes, from which on they are charged.
pub(crate) const CHARGED_READ_BYTES: usize = 64 * 1024;
/// What each queued command costs beside its bytes.
pub(crate) const QUEUED_COMMAND_BYTES: usize = 64;
/// How long a job waits that found its connection's answers unread.
pub(crate) const UNREAD_PAUSE: Duration = Duration::from_millis(20);
/// Commands of one connection that wait here at most; a connection that sends more without giving
/// them time is closed, as by Redis's `client-query-buffer-limit`. Above the longest single
/// command.
pub(crate) const MAX_BACKLOG_BYTES: usize = 4 * MAX_TXN_BYTES;
/// Longest name of a client, of its library, and of that library's version: each connection keeps
/// them, and CLIENT LIST tells them.
pub(crate) const MAX_NAME_BYTES: usize = 1024;
/// How long a gateway goes on, at a shutdown, with commands that were received and not begun.
/// Whoever reads its answers has them all by then, as a rule; the others may not read for as long
/// as they like.
pub(crate) const LAST_COMMANDS: Duration = Duration::from_secs(1);
/// How long a gateway that ends waits for what it has under way. Some answers never come: a log
/// that has failed keeps what waits for it, and what waits for a promise waits for a server that
/// may be down.
pub(crate) const LAST_ANSWERS: Duration = Duration::from_secs(3);
/// Bytes of an argument that error texts show, as in Redis.
pub(crate) const SHOWN_BYTES: usize = 128;
/// Bytes that are reserved for the answers of a connection when its next turn begins, at most; as
/// many as left at once in its last one.
pub(crate) const RESERVED_ANSWER_BYTES: usize = 16 * 1024;
/// Memory of an empty buffer that a connection keeps, and of those that all commands of a thread
/// share.
pub(crate) const KEPT_BUFFER_BYTES: usize = 64 * 1024;
/// Bytes of the commands that one MULTI may queue, with where each of their arguments is.
pub(crate) const MAX_QUEUED_BYTES: usize = 2 * MAX_TXN_BYTES;
/// Commands that one MULTI may queue.
pub(crate) const MAX_QUEUED_COMMANDS: usize = 1024 * 1024;
/// A buffer of answers that has grown to this leaves by itself; what follows begins another one.
pub(crate) const FULL_BUFFER_BYTES: usize = 256 * 1024;
/// Buffers of answers of this size and more count by themselves on their way to the net stage, and
/// what a connection is owed is counted at once, not at the end of the turn, when it has grown by
/// as much. Whatever is shorter is bounded by the commands that asked for it.
pub(crate) const CHARGED_ANSWER_BYTES: usize = timestone_shard::limits::CHARGED_VALUE_BYTES;
/// Commands on one key that are carried out as one transaction.
pub(crate) const MAX_COMBINED: usize = 128;
/// Bytes of commands after which no more are combined.
pub(crate) const MAX_COMBINED_BYTES: usize = 1024 * 1024;
/// Bytes of answers after which the rest of the combined commands becomes a transaction of its own.
pub(crate) const MAX_COMBINED_ANSWERS: usize = 256 * 1024;
/// A longer command, in bytes, waits for commands before it on its key where it was received; a shorter
/// one is copied, and follows them.
pub(crate) const MAX_FOLLOWING_BYTES: usize = 16 * 1024;
/// For how long a command that meets conflicts is tried again.
pub(crate) const RETRY_FOR: Duration = Duration::from_secs(5);
/// Longest answer to KEYS.
pub(crate) const MAX_KEYS_REPLY_BYTES: usize = 64 * 1024 * 1024;
/// Keys that one page of KEYS asks a shard for.
pub(crate) const KEYS_PAGE: u32 = 1024;
/// Keys that SCAN asks a shard for when it is not told.
pub(crate) const SCAN_DEFAULT_COUNT: u32 = 10;
/// How often SCAN asks shards for further keys in their order that begin alike, before it goes through
/// the whole keyspace instead: an answer has some thousand keys at most.
pub(crate) const SCAN_ROUNDS: u32 = 4;
/// As many times the bound of a connection's answers may be sent to another server without being
/// written: then its link takes nothing more, and what is for it is dropped, and asked again. One
/// turn's frames always fit, however long they are.
pub(crate) const UNWRITTEN_BOUNDS: usize = 4;
/// How often a gateway asks whether the keyspace that it is to serve is there.
pub(crate) const KEYSPACE_INTERVAL: Duration = Duration::from_secs(1);
/// How often a client id is asked for while it is missing.
pub(crate) const ASK_INTERVAL: Duration = Duration::from_millis(200);

/// What a gateway keeps of commands that wait before the Redis port reads no more. More than one
/// connection may keep, so that the connection which sends without end is closed before it holds up
/// the others.
pub const GATEWAY_ADMISSION: AdmissionLimit =
    AdmissionLimit { requests: 262_144, bytes: 512 * 1024 * 1024 };
const _: () = assert!((MAX_BACKLOG_BYTES as u64) < GATEWAY_ADMISSION.bytes);
const _: () = assert!(MAX_RESERVED_KEYS <= MAX_IN_FLIGHT);
const _: () = assert!(MAX_RESERVED_KEYS < MAX_KEY_ACCESSES);
const _: () = assert!(MAX_BACKLOG_BYTES > 2 * MAX_TXN_BYTES);
