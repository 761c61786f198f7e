//! Bounds of the client. Those of keys, values and transactions are `timestone_types::limits`,
//! those of the engine and of connections to servers `timestone_session::limits`.

use core::time::Duration;

/// Calls from other threads that may wait for the event loop; beyond it a call is refused as busy.
pub const COMMAND_QUEUE: usize = 64 * 1024;
/// Calls from other threads that are taken up in one turn of the loop, so that replies are not kept
/// waiting.
pub const COMMANDS_PER_TURN: usize = 4096;
/// Times that tasks are polled in one turn of the loop before bytes are sent and received again.
pub const POLLS_PER_TURN: usize = 16 * 1024;
/// Bytes of a value that is put by a call, at most: it is copied into the batch.
pub const BYTES_OF_CALL: usize = 64 * 1024;
/// What a call takes beside its key and its value, about, in bytes.
pub const COST_OF_CALL: usize = 200;
/// Batches of calls that are kept to be used again, for each shard.
pub const SPARE_BATCHES: usize = 2;
/// For so many callers a batch that is kept has room.
pub const KEPT_CALLERS: usize = 1024;
/// Bytes that calls of one loop take, collected and under way, some 20 000 without values; beyond it
/// is asked in frames, which are refused when there is no room.
pub const BYTES_OF_CALLS: usize = 4 * 1024 * 1024;
/// How often `transact` runs its closure by default, at most.
pub const MAX_ATTEMPTS: u32 = 64;
/// How long a connection stands before further ones are opened to other threads of its server:
/// whoever asks once and leaves needs none.
pub const SPREAD_AFTER: Duration = Duration::from_millis(50);
/// Connections to one server, at most.
pub const MAX_CONNECTIONS_TO_SERVER: usize = 16;
/// Whatever has stood for this long is not lost because nobody wants it.
pub const SETTLED: Duration = Duration::from_secs(10);
/// Further connections that were lost or brought nothing, one after the other, before a client is
/// content with those that it has.
pub const MAX_VAIN_CONNECTIONS: u32 = 64;
/// How long `connect` tries before it gives up.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long `connect` tries servers that refuse the connection, or speak another protocol.
pub const REFUSED_TIMEOUT: Duration = Duration::from_secs(1);
/// A new client id is asked for at most this often.
pub const RENEW_INTERVAL: Duration = Duration::from_millis(50);
/// While a shard has had no server that serves it for this long, servers are dialled that are
/// primary of none: one of them may know more, or become its primary.
pub const LOOK_AROUND_AFTER: Duration = Duration::from_millis(100);
/// While some shard has no server, a newer map is asked for this often.
pub const UNOWNED_INTERVAL: Duration = Duration::from_millis(250);
/// How long a client that is dropped waits for its last transactions to be acknowledged.
pub const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long dropping the last handle waits for the event loop's thread.
pub const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(3);
/// How often the clock's error bound is read at least.
pub const CLOCK_BOUND_INTERVAL: Duration = Duration::from_secs(1);
/// How often it is read at most, while there is something to do: it may grow by a tenth of this
/// meanwhile where time is slewed, and commits that wait for the clocks go by it.
pub const MIN_CLOCK_BOUND_INTERVAL: Duration = Duration::from_millis(10);

const _: () = assert!(CLOSE_TIMEOUT.as_nanos() < SHUTDOWN_TIMEOUT.as_nanos());
/// Keys that a scan asks a shard for at a time.
pub const SCAN_PAGE_KEYS: u32 = 512;
/// Keys that a scan in the order of keys asks each shard for at first; twice as many with each further page.
pub const FIRST_RANGE_KEYS: u32 = 32;
/// Bytes of keys and values that a scan reads together, as far as those before tell.
pub const SCAN_READ_BYTES: usize = 4 * 1024 * 1024;
/// Values that a scan reads together at first, when nothing tells how long they are.
pub const FIRST_SCAN_READS: usize = 3;
// The first fit a transaction, however long they are.
const _: () = assert!(
    FIRST_SCAN_READS * timestone_types::limits::MAX_VALUE_BYTES
        < timestone_types::limits::MAX_TXN_BYTES
);
