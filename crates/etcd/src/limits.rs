//! Bounds of what is asked of etcd.

use core::time::Duration;

/// How long one call may take, connecting included.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(2);
/// The shortest lease that etcd grants with its usual election time-out of a second, in seconds.
pub const MIN_LEASE_S: u64 = 2;
/// The longest lease of a controller, in seconds: while it lasts, nobody moves the shards of a
/// controller that is lost.
pub const CONTROLLER_LEASE_S: u64 = 3;
/// How often a worker asks to be the controller, or to stay it.
pub const CAMPAIGN_PAUSE: Duration = Duration::from_millis(500);
/// How often a change is tried again when others have changed the state meanwhile: more servers
/// than these do not start in the same moment.
pub const MAX_SWAPS: u32 = 64;
/// Longest answer that is read, in bytes: etcd's limit of a request is 1.5 MiB, base64 adds a third.
pub const MAX_ANSWER_BYTES: u64 = 8 * 1024 * 1024;
/// Longest state that is written, in bytes: below etcd's limit of a request with base64 around it.
pub const MAX_STATE_BYTES: usize = 1024 * 1024;
/// How long one stream of changes is listened to before another one is asked for, and the state is
/// read whole: what an ended handle's thread takes at most to end.
pub const WATCH_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a watch that failed waits until it tries again.
pub const WATCH_PAUSE: Duration = Duration::from_millis(200);
/// How often a worker looks for a newer map when it is not asked anything.
pub const MAP_PAUSE: Duration = Duration::from_millis(50);
/// Most commands that wait for a worker.
pub const MAX_ASKED: usize = 4096;
/// Most commands of the controller that wait for it.
pub const MAX_URGENT: usize = 1024;
/// Most endpoints of one etcd.
pub const MAX_ENDPOINTS: usize = 16;

const _: () = assert!(MAX_URGENT <= MAX_ASKED);
const _: () = assert!(CONTROLLER_LEASE_S >= MIN_LEASE_S);
const _: () = assert!(MAX_STATE_BYTES * 4 / 3 < 1536 * 1024);
