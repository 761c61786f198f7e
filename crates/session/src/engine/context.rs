//! What the engine lends its managers for the time of a call, and where they put their outputs.
//!
//! ```text
//!                 ┌── request ──► a frame in the outbox of a shard ──► host's transport
//!   manager ──────┼── wake_at ──► the time of the next sweep        ──► Manager::sweep
//!                 └── finish  ──► the queue of results              ──► Engine::next_done
//! ```
//! A manager sees methods only: which parts there are is the engine's business.

use core::time::Duration;

use timestone_clock::SessionClock;
use timestone_types::{AbortReason, ClientId, ShardId, Timestamp, TxnId, TxnOutcome, is_planted};

use super::backups::BackupIndex;
use super::frames::{self, Route};
use super::identity::Identity;
use super::jitter::Jitter;
use super::map_pulls::MapPulls;
use super::number::{self, Asker, Number};
use super::replies::Fault;
use super::reports::Report;
use super::results::{ResultAt, Results};
use super::sessions::Sessions;
use super::shards::{ShardIndex, Shards};
use super::slab::SlabKey;
use super::timing::Timing;
use super::unknown::UnknownOutcomes;
use super::watermarks::ShardWatermarks;
use crate::{EngineConfig, EngineStats, ReadOnlyCommit, Routes, SessionError, limits};

/// What is asked again.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Again {
    /// What this shard was asked: its connection is new.
    Of(ShardIndex),
    /// What the shards were asked that the newest map has in another epoch or at another server.
    Moved,
}

/// See the module's description.
#[derive(Debug)]
pub(crate) struct Context {
    pub(super) config: EngineConfig,
    pub(super) identity: Identity,
    pub(super) shards: Shards,
    pub(super) sessions: Sessions,
    pub(super) results: Results,
    pub(super) unknown: UnknownOutcomes,
    pub(super) timing: Timing,
    pub(super) jitter: Jitter,
    pub(super) pulls: MapPulls,
    pub(super) stats: EngineStats,
    pub(super) watermarks: ShardWatermarks,
    /// Pings sent, for their numbers.
    pings: u32,
}

/// What a manager may ask.
impl Context {
    /// The time of this call.
    #[inline]
    pub(crate) const fn now(&self) -> Timestamp {
        self.timing.now()
    }

    /// How long after its timestamp a commit is acknowledged that waits for the clocks.
    pub(crate) fn external_wait(&self) -> Duration {
        self.timing.external_wait()
    }

    /// Whether every clock has passed a commit at `at`, by what is known of this one now.
    pub(crate) fn has_passed(&self, at: Timestamp) -> bool {
        self.passed_at(at) <= self.now()
    }

    /// When that will be so, as far as it can be said now.
    pub(crate) fn passed_at(&self, at: Timestamp) -> Timestamp {
        at.saturating_add(self.external_wait()).next()
    }

    /// What a commit that waits for the clocks is proposed at, at the earliest.
    pub(crate) fn external_now(&self) -> Timestamp {
        self.now().saturating_add(self.timing.external_lead()).min(limits::LAST_TIMESTAMP)
    }

    #[inline]
    pub(crate) const fn config(&self) -> &EngineConfig {
        &self.config
    }

    #[inline]
    pub(crate) const fn client(&self) -> ClientId {
        self.identity.id()
    }

    /// The id of another transaction or write.
    pub(crate) fn next_id(&mut self) -> TxnId {
        let id = self.identity.next_id();
        self.identity.assert_begun(id);
        id
    }

    /// When an operation that begins now gives up, if it does not say so itself.
    #[inline]
    pub(crate) fn deadline(&self, own: Option<Timestamp>) -> Timestamp {
        own.unwrap_or_else(|| self.now().saturating_add(self.config.default_deadline))
    }

    /// When a request that is sent now is asked again.
    #[inline]
    pub(crate) fn repeat_at(&self) -> Timestamp {
        self.now().saturating_add(self.config.request_timeout)
    }

    /// The clock of a session, unless that was closed.
    #[inline]
    pub(crate) fn session_clock(&mut self, session: SlabKey) -> Option<&mut SessionClock> {
        self.sessions.clock(session)
    }

    /// Whatever the session begins from now on lies at `bound` or above.
    #[inline]
    pub(crate) fn session_learned(&mut self, session: Option<SlabKey>, bound: Timestamp) {
        debug_assert!(bound > Timestamp::ZERO, "a session learns nothing");
        self.sessions.learned(session, bound);
    }

    /// The session has given up something that may still take place below `bound`.
    pub(crate) fn session_gave_up(&mut self, session: Option<SlabKey>, bound: Timestamp) {
        debug_assert!(bound > Timestamp::ZERO, "what was given up has a timestamp");
        self.sessions.gave_up(session, bound);
    }

    /// The lowest timestamp at which the session may read what is latest, unless it was closed.
    pub(crate) fn lowest_read(&self, session: SlabKey) -> Option<Timestamp> {
        self.sessions.lowest_read(session)
    }

    /// The shard that serves a key.
    ///
    /// # Errors
    /// There is none, or its server cannot be reached.
    #[inline]
    pub(crate) fn shard_of(&self, key: &[u8]) -> Result<ShardIndex, SessionError> {
        self.shards.reachable_of_key(key)
    }

    /// The shard that serves a key by the newest map, reachable or not.
    pub(crate) fn owner_of(&self, key: &[u8]) -> Option<ShardIndex> {
        self.shards.of_key(key)
    }

    /// The shards of the newest map.
    pub(crate) fn shards(&self) -> impl Iterator<Item = ShardIndex> + '_ {
        self.shards.known()
    }

    /// Whether the connection to a shard's server stands.
    pub(crate) fn is_connected(&self, shard: ShardIndex) -> bool {
        self.shards.at(shard).is_up
    }

    /// Whether a shard is in the newest map.
    pub(crate) fn has(&self, shard: ShardIndex) -> bool {
        self.shards.at(shard).is_known
    }

    /// Whether what was asked of a shard is to be asked again.
    pub(crate) fn is_asked_again(&self, again: Again, shard: ShardIndex) -> bool {
        match again {
            Again::Of(one) => one == shard,
            Again::Moved => self.shards.at(shard).has_moved,
        }
    }

    /// Whether a shard's server can be reached at all.
    ///
    /// # Errors
    /// [`SessionError::Elsewhere`].
    pub(crate) fn reach(&self, shard: ShardIndex) -> Result<ShardIndex, SessionError> {
        self.shards.reachable(shard)
    }

    /// Whether a shard's server understands ranges of keys, as far as is known.
    ///
    /// # Errors
    /// [`SessionError::Outdated`].
    pub(crate) fn reads_ranges(&self, shard: ShardIndex) -> Result<(), SessionError> {
        self.shards.reads_ranges(shard)
    }

    /// The same of ranges that are read downwards.
    ///
    /// # Errors
    /// [`SessionError::Outdated`].
    pub(crate) fn reads_downwards(&self, shard: ShardIndex) -> Result<(), SessionError> {
        self.shards.reads_downwards(shard)
    }

    /// Whether a shard's server chooses timestamps of puts, as far as is known.
    #[inline]
    pub(crate) fn places_puts(&self, shard: ShardIndex) -> bool {
        self.shards.places_puts(shard)
    }

    #[inline]
    pub(crate) fn index_of(&self, shard: ShardId) -> Option<ShardIndex> {
        self.shards.index_of(shard)
    }

    #[inline]
    pub(crate) fn id_of(&self, shard: ShardIndex) -> ShardId {
        self.shards.at(shard).id
    }

    /// Whether the outbox of a shard has no room for another request.
    #[inline]
    pub(crate) fn is_full(&self, shard: ShardIndex) -> bool {
        self.shards.is_full(shard)
    }

    /// The same as [`Context::is_full`], as an error.
    ///
    /// # Errors
    /// [`SessionError::Busy`].
    #[inline]
    pub(crate) fn check_room(&self, shard: ShardIndex) -> Result<(), SessionError> {
        if self.is_full(shard) {
            return Err(SessionError::Busy { retry_after: limits::MIN_RETRY_PAUSE });
        }
        Ok(())
    }

    /// How far this clock is behind the servers', if that is why something was too old.
    pub(crate) fn lag_behind(&self, reason: &AbortReason) -> Option<Duration> {
        self.timing.lag_behind(reason)
    }

    /// A random step above the timestamp that stood in the way, so that two that were both pushed
    /// do not meet again.
    pub(crate) fn later_step(&mut self) -> Duration {
        let step = self.jitter.step(limits::LATER_SPREAD);
        assert!(step <= limits::LATER_SPREAD && !step.is_zero(), "a step of {step:?}");
        step
    }

    /// How long to wait before asking again, when the fault passes by itself.
    pub(crate) fn pause_for(&mut self, fault: &Fault<'_>, attempts: u32) -> Option<Duration> {
        let pause =
            self.jitter.pause(attempts + 1, limits::MIN_RETRY_PAUSE, limits::MAX_RETRY_PAUSE);
        assert!(pause <= limits::MAX_RETRY_PAUSE, "a pause of {pause:?}");
        match *fault {
            Fault::Busy { retry_after } => {
                Some(retry_after.min(limits::MAX_RETRY_PAUSE).max(pause))
            }
            Fault::NotServing { retry_after } => {
                let own = pause.min(limits::MAX_UNSERVED_PAUSE);
                Some(retry_after.min(limits::MAX_RETRY_PAUSE).max(own))
            }
            Fault::Prepared { .. } => Some(pause),
            Fault::WrongRoute => {
                self.shards.miss_route();
                Some(pause.min(limits::MAX_UNSERVED_PAUSE))
            }
            _ => None,
        }
    }

    /// The engine is woken for what is due at `due`.
    pub(crate) fn assert_wakes_by(&self, due: Timestamp) {
        self.timing.assert_wakes_by(due);
    }

    /// Whether a session is open.
    pub(crate) fn has_session(&self, session: SlabKey) -> bool {
        self.sessions.is_open(session)
    }

    /// What became of a transaction that was reported `Unknown`, as far as that was learned since.
    pub(crate) fn outcome_of_unknown(&self, txn: TxnId) -> Option<TxnOutcome> {
        self.unknown.outcome_of(txn)
    }
}

/// What a manager puts out.
impl Context {
    /// One request to a shard: its route, and the outbox that exactly one frame is appended to.
    /// `None`, and nothing to append to, while there is no connection.
    #[inline]
    pub(crate) fn request(
        &mut self,
        to: ShardIndex,
        asker: Asker,
        slot: SlabKey,
        item: u32,
    ) -> Option<(Route, &mut Vec<u8>)> {
        if !self.shards.at(to).is_up {
            return None;
        }
        self.stats.requests += 1;
        let number = Number::new(asker, slot, item).pack();
        if is_planted!(MeasuresLaterCopies) {
            self.shards.at_mut(to).offset.sent_again(number, self.timing.now());
        }
        let route = self.shards.route(to, number);
        Some((route, self.shards.ask(self.timing.now(), to)))
    }

    /// A transaction asks for its commit.
    #[inline]
    pub(crate) fn count_commit(&mut self) {
        self.watermarks.count();
        if self.watermarks.is_due() {
            self.wake_at(self.now());
        }
    }

    /// The lowest watermark of all shards, as far as they have told it; zero where nobody wants to know.
    #[inline]
    pub(crate) fn watermark(&self) -> Timestamp {
        if self.watermarks.is_wanted() {
            self.watermarks.lowest(self.shards.known())
        } else {
            Timestamp::ZERO
        }
    }

    /// Who is asked for a snapshot of a shard at `at` that a backup may answer; `None`: the primary.
    pub(crate) fn choose_backup(&mut self, of: ShardIndex, at: Timestamp) -> Option<BackupIndex> {
        self.shards.choose_backup(self.timing.now(), of, at)
    }

    /// Where a snapshot begins that may be so old, and that backups may answer.
    pub(crate) fn old_snapshot(&mut self, most: Duration) -> Timestamp {
        let now = self.timing.now();
        let usual = now.saturating_sub(most.min(limits::READ_BEHIND));
        self.shards.snapshot_bound(now, most).map_or(usual, |bound| bound.min(usual))
    }

    /// Whether the primary of a shard answers, as far as is known.
    pub(crate) fn serves(&self, shard: ShardIndex) -> bool {
        self.shards.serves(shard)
    }

    /// Up to where one of a shard's backups answers that can be asked.
    pub(crate) fn closed_at(&self, shard: ShardIndex) -> Option<Timestamp> {
        self.shards.closed_at(self.timing.now(), shard)
    }

    /// The lowest timestamp at which a snapshot may begin from now on.
    pub(crate) fn held_snapshot(&self) -> Option<Timestamp> {
        self.shards.held_snapshot(self.timing.now())
    }

    /// One read of a snapshot, at a backup of a shard: as [`Context::request`].
    pub(crate) fn request_at_backup(
        &mut self,
        (of, backup): (ShardIndex, BackupIndex),
        slot: SlabKey,
        item: u32,
    ) -> (Route, &mut Vec<u8>) {
        self.stats.requests += 1;
        let number = Number::new(Asker::Read, slot, item).pack();
        let route = self.shards.route(of, number);
        (route, self.shards.ask_backup(self.timing.now(), backup, number))
    }

    /// A read that backups may answer is asked at the primary: how long it takes is looked at.
    pub(crate) fn watch_primary(&mut self, of: ShardIndex, slot: SlabKey, item: u32) {
        if let Some(server) = self.shards.server_of(of) {
            let number = Number::new(Asker::Read, slot, item).pack();
            self.shards.backups.sent_to_primary(self.timing.now(), server, number);
        }
    }

    /// Whether the reply that is taken came from this backup.
    pub(crate) fn is_from(&self, backup: BackupIndex) -> bool {
        self.shards.is_from(backup)
    }

    /// Whether it came from another server than the one that serves the shard.
    pub(crate) fn is_of_another(&self, shard: ShardIndex) -> bool {
        self.shards.is_of_another(shard)
    }

    /// A backup of a shard has refused a snapshot at `at`.
    pub(crate) fn refused_by_backup(&mut self, of: ShardIndex, backup: BackupIndex, at: Timestamp) {
        self.stats.left_backups += 1;
        self.shards.refused_by_backup(self.timing.now(), of, (backup, at));
    }

    /// A backup of a shard is silent: it is not asked for `pause`.
    pub(crate) fn leave_backup(&mut self, of: ShardIndex, backup: BackupIndex, pause: Duration) {
        self.stats.left_backups += 1;
        self.shards.leave_backup(self.timing.now(), of, backup, pause);
    }

    /// The answer to this request, which is being sent for the first time, tells how far its
    /// server's clock is away.
    #[inline]
    pub(crate) fn watch_clock(&mut self, to: ShardIndex, asker: Asker, slot: SlabKey, item: u32) {
        debug_assert!(asker != Asker::Nobody, "nobody waits for the answer");
        let now = self.timing.now();
        let shard = self.shards.at_mut(to);
        if shard.is_up {
            let request = Number::new(asker, slot, item).pack();
            shard.offset.sent(request, now, limits::OFFSET_TIMEOUT);
        }
    }

    /// Asks a shard for a reading of its server's clock, where that is wanted and nothing was learned
    /// of it lately.
    pub(super) fn ask_clock(&mut self, of: ShardIndex) {
        let (now, timeout) = (self.timing.now(), limits::OFFSET_TIMEOUT);
        let shard = self.shards.at_mut(of);
        let is_asked = shard.is_up && shard.is_known && shard.elsewhere.is_none();
        let is_overdue = shard.offset.is_overdue(now, limits::CLOCK_ASKED_AFTER, timeout);
        if !self.config.asks_clocks || !is_asked || !is_overdue {
            return;
        }
        self.pings = self.pings.wrapping_add(1);
        let number = number::ping(self.pings);
        shard.offset.sent(number, now, timeout);
        debug_assert!(number::is_ping(number), "a ping is taken for something else");
        let route = self.shards.route(of, number);
        frames::ping(route, self.shards.append_to(of));
    }

    /// Asks the backups of a shard how far they have come, where that is wanted and not known.
    pub(super) fn ask_closed(&mut self, of: ShardIndex) {
        self.shards.ask_closed(self.timing.now(), of, &mut self.pings);
    }

    /// The manager has something to do at `due`, which may lie in the past: a deadline is whatever
    /// the application says.
    #[inline]
    pub(crate) fn wake_at(&mut self, due: Timestamp) {
        self.timing.wake_at(due);
        debug_assert!(self.timing.next_due() <= due, "the engine would look too late");
    }

    /// An operation is finished; its result waits where `at` says.
    #[inline]
    pub(crate) fn finish(&mut self, op: crate::OpId, at: ResultAt) {
        debug_assert!(!matches!(at, ResultAt::Failed(_)), "what failed is told as that");
        self.results.push(op, at);
    }

    /// An operation has failed.
    #[cold]
    pub(crate) fn fail(&mut self, op: crate::OpId, error: SessionError) {
        self.assert_sound();
        self.results.push(op, ResultAt::Failed(Box::new(error)));
    }

    /// A refusal that concerns the whole engine, whoever met it.
    pub(crate) fn note(&mut self, fault: &Fault<'_>) {
        match fault {
            Fault::WrongRoute => self.shards.miss_route(),
            Fault::SessionEnded => self.identity.end(),
            _ => {}
        }
        self.assert_sound();
    }

    /// A transaction is reported `Unknown`; `at` may know of it.
    pub(crate) fn remember_unknown(
        &mut self,
        txn: TxnId,
        at: Box<[ShardId]>,
        outcome: Option<TxnOutcome>,
    ) {
        self.identity.assert_begun(txn);
        self.unknown.remember(self.timing.now(), txn, at, outcome);
    }

    /// What became of a transaction that was reported `Unknown`.
    pub(crate) fn learn_unknown(&mut self, txn: TxnId, outcome: Option<TxnOutcome>) {
        self.identity.assert_begun(txn);
        self.unknown.learn(txn, outcome);
    }

    /// Forgets what was reported `Unknown` long ago.
    #[inline]
    pub(crate) fn trim_unknown(&mut self) {
        self.unknown.trim(self.timing.now());
        debug_assert!(self.unknown.iter().count() <= limits::MAX_UNKNOWN_OUTCOMES);
    }

    /// The counters, to be raised.
    #[inline]
    pub(crate) const fn stats(&mut self) -> &mut EngineStats {
        &mut self.stats
    }
}

/// For the engine alone.
impl Context {
    pub(super) fn new(config: EngineConfig, client: ClientId, routes: Routes, seed: u64) -> Self {
        Self {
            config,
            identity: Identity::new(client),
            shards: Shards::new(routes),
            sessions: Sessions::new(),
            results: Results::default(),
            unknown: UnknownOutcomes::default(),
            timing: Timing::new(),
            jitter: Jitter::new(seed),
            pulls: MapPulls::default(),
            stats: EngineStats::default(),
            watermarks: ShardWatermarks::new(match config.read_only {
                ReadOnlyCommit::BelowWatermark { every } => Some(every),
                ReadOnlyCommit::Locally | ReadOnlyCommit::Remotely | ReadOnlyCommit::Recorded => {
                    None
                }
            }),
            pings: 0,
        }
    }

    /// The parts agree. Called where the engine is entered; in debug builds only.
    #[inline]
    pub(super) fn assert_sound(&self) {
        self.shards.assert_sound();
    }

    /// Appends a report to the outbox of a shard that is asked things.
    pub(super) fn append_report(&mut self, to: ShardIndex, report: &Report, is_closing: bool) {
        let shard = self.shards.at(to);
        if !shard.is_up || !shard.is_known || shard.elsewhere.is_some() {
            return;
        }
        let (client, now) = (self.identity.id(), self.timing.now());
        assert!(report.watermark <= now, "a report of the future");
        let acked = report.acked(self.identity.last());
        let mut number = number::NOBODY;
        if self.watermarks.is_wanted() && !is_closing {
            self.pings = self.pings.wrapping_add(1);
            number = number::ping(self.pings);
        }
        let route = self.shards.route(to, number);
        let out = self.shards.append_to(to);
        frames::report(route, client, (report.watermark, now), acked, is_closing, out);
    }
}
