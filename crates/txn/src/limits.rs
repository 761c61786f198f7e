//! The bounds of this crate, in one place. Those that users meet live in
//! [`timestone_types::limits`].

use core::time::Duration;

use timestone_types::limits as shared;

/// Most records in one generation of the recent-access table: a line of 64 B each. Those of two
/// generations fill at least a quarter of their table, which has at most 128 MiB a shard. More
/// distinct keys than this within one generation rotate them early, which costs `Later` votes, never
/// correctness.
pub const MAX_GENERATION_ENTRIES: usize = 1 << 19;
/// Most requests that wait at one participant for decisions or for the read bound.
pub const MAX_WAITING: usize = 1 << 16;
/// Most transactions that one participant holds prepared or unapplied.
pub const MAX_PREPARED: usize = 1 << 17;
/// Most ranges of keys of which one participant remembers when they were read: as many as are read in
/// some milliseconds. The oldest of more counts for its whole keyspace, which costs `Later` votes,
/// never correctness.
pub const MAX_RANGE_RECORDS: usize = 128;
/// Most bytes of keys at the ends of those ranges.
pub const MAX_RANGE_RECORD_BYTES: usize = 1 << 20;
/// Most client incarnations that one participant knows at a time.
pub const MAX_CLIENTS: usize = 1 << 16;
/// Most finished transactions whose outcomes one client may leave unacknowledged at one
/// participant.
pub const MAX_KEPT_OUTCOMES: usize = 1 << 21;
/// Participants and written keys of one transaction that are stored without an allocation of their
/// own.
pub const INLINE_SHARDS: usize = 8;
/// What a session that dials again after a restart is given, beyond its pause, to be let in and to
/// report.
pub const RETURN_MARGIN: Duration = Duration::from_secs(1);
/// Sessions are waited for after an outage no longer than this, and for no longer than this
/// altogether when a server dies again and again before they can all be back: so it does not hold
/// collection back for ever.
pub const MAX_RESTART_HOLD: Duration = Duration::from_secs(60);
/// A run that lasts this long has waited for every session that it waits for.
pub const SESSIONS_SETTLED: Duration =
    shared::SESSION_TTL.saturating_add(shared::MAX_RECONNECT_PAUSE).saturating_add(RETURN_MARGIN);
/// How often the read bound (and the watermark with it) is written to the log: four times within
/// [`BOUND_AHEAD`], or within a lease that is shorter.
pub const BOUND_RENEWAL: Duration = Duration::from_millis(250);
/// How far ahead of the clock the read bound is written. Writes wait for the clock to pass it after
/// a restart, so it is no larger than the clock guard and a slow sync need.
pub const BOUND_AHEAD: Duration = Duration::from_millis(1_000);
/// How often a lease is renewed while it lasts.
pub const RENEWALS_OF_LEASE: u32 = 4;
/// The shortest lease: its renewal takes a sync of the log and a round trip.
pub const MIN_LEASE: Duration = Duration::from_millis(50);
/// The lease of a primary that is about to hand its shard over, if that is shorter: its successor waits
/// for no more. Two slow syncs, or reads wait for the bound.
pub const SHORT_LEASE: Duration = Duration::from_millis(100);
/// Nobody is told that a key has expired before a read bound is durable that lies this far above
/// its expiry. A bound is asked for [`BOUND_AHEAD`] ahead of time, so that nobody waits for that
/// unless the log is as late as would make the fastest clocks wait as well.
pub const EXPIRY_BELOW_BOUND: Duration = shared::MAX_CLOCK_LEAD;
/// How far a timestamp that is closed for reads at backups lies below the clock, at least. A write
/// whose commit timestamp is older when it comes is sent to a later one: clients propose theirs when
/// they commit, so only those of slow clocks or far away are met.
pub const CLOSED_LAG: Duration = Duration::from_millis(100);
/// At a shard with replicas nobody is told what is there now while the clock may be wrong by more than
/// this: with less, the bound that is asked for anyway reaches far enough.
pub const MAX_PRESENT_ERROR: Duration = shared::MAX_CLOCK_LEAD;
/// How wrong a clock is taken to be that nothing vouches for, where true time matters: what two
/// servers may lead each other by at most without their clients being refused, halved.
pub const UNVOUCHED_CLOCK_ERROR: Duration =
    Duration::from_nanos(shared::MAX_CLOCK_LEAD.as_nanos() as u64 / 2);
/// A low-water timestamp further ahead of the clock than this is not waited for: writes are told how long it
/// takes. After a restart it is ahead by [`BOUND_AHEAD`] at most, unless the clock was set back
/// further than a server goes on by itself.
pub const MAX_LOW_WATER_LEAD: Duration = shared::READ_BOUND_AHEAD;
/// How far above every access record a fence is told to commit, so that reads made while its vote travels do
/// not overtake it.
pub const FENCE_MARGIN: Duration = Duration::from_millis(10);
/// Longest pause between two attempts of one participant to terminate a transaction.
pub const MAX_TERMINATION_BACKOFF: Duration = Duration::from_secs(30);
/// How long a coordinator waits for votes before it sends its prepares again.
pub const PREPARE_RESEND: Duration = Duration::from_millis(250);
/// How long a coordinator waits before it asks a participant again that was busy or recovering;
/// doubles up to [`PREPARE_RESEND`].
pub const REFUSED_RESEND: Duration = Duration::from_millis(5);
/// How often a coordinator sends its prepares again before it asks for termination.
pub const MAX_PREPARE_RESENDS: u32 = 3;
/// How long a coordinator waits for an answer to a decision or to a request for termination, at
/// first.
pub const RESOLVE_RESEND: Duration = Duration::from_millis(200);
/// Longest pause between two such attempts.
pub const MAX_RESOLVE_BACKOFF: Duration = Duration::from_secs(2);

// A client whose clock leads as far as the guard allows must not wait for the bound in a steady
// state, with 250 ms for a sync.
const _: () = assert!(
    BOUND_RENEWAL.as_nanos()
        + shared::MAX_CLOCK_LEAD.as_nanos()
        + Duration::from_millis(250).as_nanos()
        <= BOUND_AHEAD.as_nanos()
);
// Neither must whoever asks what is there now, whose lease lies above the clock and its error.
const _: () = assert!(
    BOUND_RENEWAL.as_nanos() + MAX_PRESENT_ERROR.as_nanos() + Duration::from_millis(250).as_nanos()
        <= BOUND_AHEAD.as_nanos()
);
// A renewal and as much again for a slow sync, beside the error: so no lease is written further ahead.
const _: () =
    assert!(BOUND_RENEWAL.as_nanos() * RENEWALS_OF_LEASE as u128 == BOUND_AHEAD.as_nanos());
const _: () = assert!(MIN_LEASE.as_nanos() <= BOUND_AHEAD.as_nanos());
const _: () = assert!(UNVOUCHED_CLOCK_ERROR.as_nanos() <= MAX_PRESENT_ERROR.as_nanos());
// Neither must whoever asks for a key that has just expired. And no write is let in after a restart
// that is not above whatever the last run has told expired.
const _: () = assert!(
    BOUND_RENEWAL.as_nanos()
        + EXPIRY_BELOW_BOUND.as_nanos()
        + Duration::from_millis(250).as_nanos()
        <= BOUND_AHEAD.as_nanos()
);
const _: () = assert!(shared::MAX_CLOCK_LEAD.as_nanos() <= EXPIRY_BELOW_BOUND.as_nanos());
// Several runs may begin to wait.
const _: () = assert!(2 * SESSIONS_SETTLED.as_nanos() < MAX_RESTART_HOLD.as_nanos());
const _: () = assert!(RETURN_MARGIN.as_nanos() >= 10 * shared::REPORT_INTERVAL.as_nanos());
const _: () = assert!(MIN_LEASE.as_nanos() <= SHORT_LEASE.as_nanos());
const _: () = assert!(BOUND_AHEAD.as_nanos() <= shared::READ_BOUND_AHEAD.as_nanos());
const _: () = assert!(BOUND_AHEAD.as_nanos() < MAX_LOW_WATER_LEAD.as_nanos());
// A fence's margin must pass the clock guard with room to spare.
const _: () = assert!(FENCE_MARGIN.as_nanos() * 10 <= shared::MAX_CLOCK_LEAD.as_nanos());
// The coordinator turns to termination before participants do so by themselves.
const _: () = assert!(
    PREPARE_RESEND.as_nanos() * (MAX_PREPARE_RESENDS as u128 + 1)
        <= shared::DECISION_TIMEOUT.as_nanos()
);

/// How long a prepare waits that may have promises at other shards: a few round trips, because
/// whoever waits for those promises waits, too.
pub const PROMISED_WAIT: Duration = Duration::from_millis(5);
