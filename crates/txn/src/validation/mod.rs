//! Validation: whether a transaction may be promised, and at which timestamp a key may be read.
//!
//! ```text
//!   participant (the life of a transaction)            validation (one strategy)
//!     Prepare ──▶ validate ─────────────────────────▶ Promise │ Later(t) │ Wait(until) │ Again │ No(reason)
//!        promised ──▶ promise: reads are noted, writes held
//!        decided, or taken back ──▶ decided: keys are free
//!     Read    ──▶ read ─────────────────────────────▶ At(t) │ Blocked(holder)
//!     Tick    ──▶ retire: what is forgotten, and the timestamp that stands for it
//! ```
//!
//! The participant knows a strategy by [`Validation`] alone, statically: it owns promises, waiting,
//! the log, decisions and recovery, and no rule about keys. A strategy owns what is remembered of
//! keys, and knows transactions only as [`Holder`]s, about which [`InFlight`] tells it two things.
//!
//! Invariants that every strategy keeps: what `promise` or `restore` gave a holder it keeps until
//! `decided`; `low_water` only rises; nothing is promised at or below a timestamp at which somebody
//! was told another state of a key.
//!
//! Deliberately absent: waiting itself. A strategy says whom or what to wait for, and is asked
//! again.

pub mod local;
pub mod timestamps;
pub mod watermark;

pub use local::LocalValidation;
pub use timestamps::Timestamps;
use timestone_types::{AbortReason, KeyHash, KeyRange, KeyspaceId, Timestamp, Version};
pub use watermark::BelowWatermark;

use crate::participant::{Holder, InFlight, LatestInStore, Prepare, WriteItem, Written};

/// What is to be waited for before a validation can say more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Until {
    /// The end of a transaction in flight.
    Decided(Holder),
    /// A point in this server's time, such as the end of a lease.
    Passed(Timestamp),
}

/// What validation finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Nothing is in the way. The participant calls [`Validation::promise`] next, in the same step.
    Promise,
    /// Only the timestamp is too low; this one would do. Strategies that lock never say so.
    Later(Timestamp),
    /// Something undecided is in the way; the reason to give when there is no more waiting.
    Wait(Until, AbortReason),
    /// The condition was evaluated against a version that is not the latest any more: it is
    /// evaluated again, once.
    Again(AbortReason),
    /// Refused for good.
    No(AbortReason),
}

/// What a validation may know of the moment and of others.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    /// This server's time.
    pub now: Timestamp,
    /// As of when the expiry of what was read is judged.
    pub expires_by: Timestamp,
    /// The transaction itself when it was promised before, or [`Holder::NONE`].
    pub own: Holder,
    /// Every transaction in flight.
    pub others: InFlight<'a>,
}

/// A read of one key.
#[derive(Clone, Copy, Debug)]
pub struct KeyRead {
    /// The keyspace of the key.
    pub keyspace: KeyspaceId,
    /// The key.
    pub key: KeyHash,
    /// Whether the youngest version is wanted, whatever its timestamp; else the one of a snapshot.
    pub latest: bool,
    /// Whether nothing may commit at or below it afterwards. If not, what was read is validated by who
    /// read it.
    pub is_noted: bool,
    /// What the store knows now.
    pub store: LatestInStore,
}

/// What comes of a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadVerdict {
    /// It may be answered, and nothing commits below it any more.
    At(Timestamp),
    /// Somebody may still commit a write at or below it. Nothing is noted yet.
    Blocked(Timestamp, Holder),
    /// The participant did not admit the timestamp. Nothing is noted.
    NotAdmitted,
}

/// A strategy. See the module.
pub trait Validation: core::fmt::Debug {
    /// Whether a prepare may be promised. Nothing is held or noted by it, but for what a refusal
    /// tells its receiver about a key.
    fn validate(&mut self, prepare: &Prepare<'_>, case: Case<'_>) -> Verdict;

    /// Carries out [`Verdict::Promise`]: what was read is protected, what is written is held by
    /// `holder`, again if it held it before. [`Holder::NONE`] leaves no trace to be freed: a strict
    /// read-only transaction, which ends with its vote.
    fn promise(&mut self, holder: Holder, prepare: &Prepare<'_>);

    /// Carries out [`Verdict::Promise`] of a prepare whose writes can be read already, at this
    /// version: what was read is protected, what is written is committed, and nobody holds it.
    /// There is no fence among the writes.
    fn commit_at_once(&mut self, prepare: &Prepare<'_>, version: Version);

    /// Gives a holder its writes without validation, whoever else holds them: a promise that the
    /// log has kept, whose reads are not known any more, or the write set of a transaction that is
    /// committed elsewhere.
    fn restore(&mut self, holder: Holder, writes: &[WriteItem]);

    /// Writes are committed whose promise is not known here any more: what was read by now at higher timestamps
    /// may lack them.
    fn came_late(&mut self, writes: &[WriteItem]);

    /// A holder is committed and its writes can be read, at this version; or it was taken back.
    /// Everything that it held is free afterwards. `writes` are those that it was given.
    fn decided(&mut self, holder: Holder, writes: &[Written], committed: Option<Version>);

    /// A read. `admit` is told the timestamp of the youngest version, and says at which timestamp
    /// to read; `None` if that is not to be served yet.
    fn read(
        &mut self,
        read: &KeyRead,
        others: InFlight<'_>,
        admit: impl FnOnce(Timestamp) -> Option<Timestamp>,
    ) -> ReadVerdict;

    /// A read that was blocked is answered around the writer all the same, as uncertain.
    fn read_around(&mut self, read: &KeyRead, at: Timestamp);

    /// A whole keyspace is read at a timestamp.
    fn scanned(&mut self, keyspace: KeyspaceId, at: Timestamp);

    /// A range is read at a timestamp.
    fn range_read(&mut self, range: KeyRange<'_>, at: Timestamp);

    /// When a range was read that a key lies in, if that was at or above a timestamp; else zero. Where
    /// ranges count for whole keyspaces it need not say so.
    fn range_read_at(&self, keyspace: KeyspaceId, key: &[u8], above: Timestamp) -> Timestamp;

    /// The highest timestamp at which something happened to a whole keyspace or to a range of it: a scan,
    /// or that it was emptied.
    fn newest(&self, keyspace: KeyspaceId) -> Timestamp;

    /// Forgets what is old, if it is time, but for the keys that are written in flight.
    fn retire(&mut self, now: Timestamp, written: impl Iterator<Item = KeyHash>);

    /// When [`Self::retire`] is due next.
    fn retire_at(&self) -> Timestamp;

    /// A run begins: everything that earlier ones have served lies below `bound`.
    fn begin(&mut self, now: Timestamp, bound: Timestamp);

    /// Stands for everything that was forgotten: nothing commits at or below it.
    fn low_water(&self) -> Timestamp;

    /// Every key counts as read at this timestamp: nothing commits at or below it any more but what
    /// is held already.
    fn close(&mut self, at: Timestamp);

    /// How many keys are remembered.
    fn len(&self) -> usize;

    /// Memory of what is remembered, in bytes.
    fn memory_bytes(&self) -> usize;

    /// Whether no key is remembered.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where a look-up of what is remembered of a key begins, so that the host can have it fetched
    /// into the processor's cache; none if that would gain nothing.
    fn home_of(&self, key: KeyHash) -> Option<&impl Sized>;
}
