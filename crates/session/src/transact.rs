//! Transactions as the application drives them: begin, reads, writes, commit, abort.
//!
//! Reads go to the shards at once and may overlap; writes stay here until commit. A commit takes
//! one of four ways:
//!
//! ```text
//!   writes? ── no ── strict, or a read met a prepared write? ── no ──► at once, without a message
//!     │                             └─ yes ─► every shard read validates that the versions are still the latest
//!     │                                       (a snapshot in the past cannot be: aborted, `Prepared`)
//!     └─ yes ── one shard ──► single: validate, make durable, apply, answer
//!                └─ several ─► two-phase commit, run by txn's Coordinator
//! ```
//! Source: MILANA §4.2–4.3; docs/protocol/transactions.md.

use core::mem;
use core::time::Duration;

use timestone_txn::coordinator::{CommitKind, CommitResult, Input, Output};
use timestone_types::{
    AbortKind, AbortReason, Expiry, KeyspaceId, ShardId, Timestamp, TxnOutcome, limits as shared,
};

use crate::{
    Engine, OpId, SessionError, SessionId, Step, Ticket, TxnHandle, TxnOptions, ValueView,
    engine::{EndedWhat, Lingering},
    frames::{self, PrepareAs},
    handle::TicketKind,
    keys::{Read, Write},
    limits,
    number::{Kind, Number},
    record::{Ending, Phase, Verdict},
    shards::Place,
    slab::Name,
};

/// Transactions.
impl Engine {
    /// Begins a transaction. Sends nothing.
    ///
    /// # Errors
    /// A closed session, a snapshot in the future, or [`limits::MAX_TRANSACTIONS`] under way.
    pub fn begin(
        &mut self,
        now: Timestamp,
        session: SessionId,
        options: TxnOptions,
    ) -> Result<TxnHandle, SessionError> {
        let now = self.advance(now);
        let session = Name { index: session.index, generation: session.generation };
        let Some(session_record) = self.sessions.get_mut(session) else {
            return Err(SessionError::NoSession);
        };
        let clock = &mut session_record.clock;
        let begin = match options.snapshot_at {
            Some(at) if at == Timestamp::ZERO || at > clock.peek(now) => {
                return Err(SessionError::SnapshotInFuture { at, now });
            }
            Some(at) => at,
            None => clock.begin(now),
        };
        let Some((name, txn)) = self.txns.take() else {
            return Err(SessionError::Busy { retry_after: limits::MIN_RETRY_PAUSE });
        };
        txn.open(session, options, begin, now);
        Ok(TxnHandle { index: name.index, generation: name.generation })
    }

    /// The snapshot that a transaction reads from.
    ///
    /// # Errors
    /// [`SessionError::NoTransaction`].
    pub fn begin_timestamp(&self, txn: TxnHandle) -> Result<Timestamp, SessionError> {
        let name = Name { index: txn.index, generation: txn.generation };
        let txn = self.txns.get(name).filter(|txn| txn.phase == Phase::Open);
        txn.map(|txn| txn.begin).ok_or(SessionError::NoTransaction)
    }

    /// The open transaction of a handle, which must not be too old.
    fn open(&mut self, now: Timestamp, txn: TxnHandle) -> Result<Name, SessionError> {
        let name = Name { index: txn.index, generation: txn.generation };
        let Some(txn) = self.txns.get(name).filter(|txn| txn.phase == Phase::Open) else {
            return Err(SessionError::NoTransaction);
        };
        let limit = self.config.max_transaction_age;
        if now.since(txn.opened) > limit && !txn.is_read_only() {
            self.close(name.index, None);
            return Err(SessionError::TooLong { limit });
        }
        Ok(name)
    }

    /// Reads a key: the transaction's own write, else its own earlier read ([`Step::Value`]), else
    /// the shard is asked ([`Step::Pending`], then a [`crate::Done`] with `op`). Many may be under
    /// way at once.
    ///
    /// # Errors
    /// A finished transaction, a limit, a key that no shard serves, or a full outbox.
    pub fn get(
        &mut self,
        now: Timestamp,
        txn: TxnHandle,
        keyspace: KeyspaceId,
        key: &[u8],
        op: OpId,
    ) -> Result<Step<'_>, SessionError> {
        let now = self.advance(now);
        let name = self.open(now, txn)?;
        let hash = self.hash(keyspace, key);
        let txn = self.txns.at_mut(name.index);
        let at = match txn.keys.find(hash, keyspace, key) {
            Some(at) => at,
            None => {
                let place = self.shards.way_to_key(key)?;
                if self.shards.is_full(place) {
                    return Err(SessionError::Busy { retry_after: limits::MIN_RETRY_PAUSE });
                }
                txn.keys.add(hash, keyspace, key, place)?
            }
        };
        if txn.keys.is_known(at) {
            return match self.txns.at(name.index).keys.view(at) {
                Some(view) => Ok(Step::Value(view)),
                None => Err(SessionError::NoTransaction),
            };
        }
        let deadline = txn.deadline(now, self.config.default_deadline);
        let entry = txn.keys.entry_mut(at);
        match entry.read {
            Read::Asked(None) => {
                entry.read = Read::Asked(Some(op));
                entry.deadline = deadline;
            }
            Read::Asked(Some(_)) => txn.waiters.push((at, op)),
            Read::None | Read::Known => {
                entry.read = Read::Asked(Some(op));
                entry.deadline = deadline;
                entry.attempts = 0;
                txn.asked += 1;
                self.send_read(now, name, at);
                self.watch_clock(now, name, at);
            }
        }
        self.note_due(deadline);
        let Name { index, generation } = name;
        Ok(Step::Pending(Ticket { kind: TicketKind::Read, index, generation, item: at, op }))
    }

    /// Appends one read's request to its shard's outbox, when the way there is open.
    pub(crate) fn send_read(&mut self, now: Timestamp, name: Name, at: u32) {
        let txn = self.txns.at_mut(name.index);
        let place = txn.keys.entry(at).place;
        let up = self.shards.at(place).up;
        let due = if up { now.saturating_add(self.config.request_timeout) } else { Timestamp::MAX };
        txn.keys.entry_mut(at).due = due;
        if up {
            let route = Self::route(&self.shards, place, Kind::Read, name, at);
            let out = self.shards.ask(now, place);
            frames::snapshot_read(
                route,
                self.client,
                txn.begin,
                self.config.wait,
                txn.keys.key(at),
                out,
            );
            self.stats.requests += 1;
            self.note_due(due);
        }
    }

    /// What the transaction knows about a key already, without asking anybody.
    #[must_use]
    pub fn peek(&self, txn: TxnHandle, keyspace: KeyspaceId, key: &[u8]) -> Option<ValueView<'_>> {
        let name = Name { index: txn.index, generation: txn.generation };
        let txn = self.txns.get(name).filter(|txn| txn.phase == Phase::Open)?;
        txn.keys.view(txn.keys.find(self.hash(keyspace, key), keyspace, key)?)
    }

    /// Writes a key at commit. Checks the limits now.
    ///
    /// # Errors
    /// A finished or read-only transaction, a limit, or a key that no shard serves.
    pub fn put(
        &mut self,
        now: Timestamp,
        txn: TxnHandle,
        keyspace: KeyspaceId,
        key: &[u8],
        value: &[u8],
        expires_at: Expiry,
    ) -> Result<(), SessionError> {
        self.write(now, txn, keyspace, key, Some(value), expires_at)
    }

    /// Deletes a key at commit.
    ///
    /// # Errors
    /// As [`Engine::put`].
    pub fn delete(
        &mut self,
        now: Timestamp,
        txn: TxnHandle,
        keyspace: KeyspaceId,
        key: &[u8],
    ) -> Result<(), SessionError> {
        self.write(now, txn, keyspace, key, None, Expiry::NEVER)
    }

    fn write(
        &mut self,
        now: Timestamp,
        txn: TxnHandle,
        keyspace: KeyspaceId,
        key: &[u8],
        value: Option<&[u8]>,
        expires_at: Expiry,
    ) -> Result<(), SessionError> {
        let now = self.advance(now);
        let name = self.open(now, txn)?;
        let hash = self.hash(keyspace, key);
        let place = self.shards.way_to_key(key)?;
        let txn = self.txns.at_mut(name.index);
        if txn.is_read_only() {
            return Err(SessionError::ReadOnly);
        }
        let at = txn.keys.find_or_insert(hash, keyspace, key, place)?;
        Ok(txn.keys.write(at, value, expires_at)?)
    }

    /// Makes everything of a keyspace absent at commit, on every shard at one timestamp.
    ///
    /// # Errors
    /// A finished or read-only transaction.
    pub fn fence(
        &mut self,
        now: Timestamp,
        txn: TxnHandle,
        keyspace: KeyspaceId,
    ) -> Result<(), SessionError> {
        let now = self.advance(now);
        let name = self.open(now, txn)?;
        let txn = self.txns.at_mut(name.index);
        if txn.is_read_only() {
            return Err(SessionError::ReadOnly);
        }
        for place in self.shards.known() {
            #[cfg(feature = "planted-bugs")]
            if crate::planted::bugs().takes_reach_for_all && self.shards.way_to(place).is_err() {
                continue;
            }
            self.shards.way_to(place)?;
            txn.keys.fence(keyspace, place)?;
        }
        Ok(())
    }

    /// Its commit is acknowledged only when the clock's error bound has passed it, whatever was
    /// said at its begin.
    pub fn wait_for_clocks(&mut self, txn: TxnHandle) {
        let name = Name { index: txn.index, generation: txn.generation };
        if let Some(txn) = self.txns.get_mut(name).filter(|txn| txn.phase == Phase::Open) {
            txn.options.external_wait = true;
        }
    }

    /// Forgets a transaction. Nothing was sent that would have to be taken back. Without effect
    /// when it has finished.
    pub fn abort(&mut self, txn: TxnHandle) {
        let name = Name { index: txn.index, generation: txn.generation };
        if self.txns.get(name).is_some_and(|txn| txn.phase == Phase::Open) {
            self.close(name.index, None);
        }
    }

    /// Commits. Without writes, and when no read met a prepared write, at once and without a
    /// message ([`Step::Committed`]); else a [`crate::Done`] with `op` follows: `Committed`,
    /// `Aborted`, `Unknown` or `Failed`. The handle is worth nothing afterwards. Reads that were
    /// asked and not answered are not part of the transaction.
    ///
    /// # Errors
    /// A finished or too old transaction, or a full outbox: the transaction is over then as well.
    pub fn commit(
        &mut self,
        now: Timestamp,
        txn: TxnHandle,
        op: OpId,
    ) -> Result<Step<'_>, SessionError> {
        let now = self.advance(now);
        let name = self.open(now, txn)?;
        let Name { index, generation } = name;
        self.fail_reads(index, &SessionError::NoTransaction);
        let txn = self.txns.at_mut(index);
        let must_be_latest = txn.options.strict || txn.options.external_wait;
        let local = txn.keys.validate_locally(must_be_latest);
        let uncertain = local.uncertain();
        let kind =
            if txn.keys.writes() > 0 { CommitKind::ReadWrite } else { CommitKind::StrictReadOnly };
        if txn.keys.writes() == 0 && local.commits() {
            let begin = txn.begin;
            self.stats.committed_locally += 1;
            self.txns.at_mut(index).keys.close();
            self.txns.release(index);
            return Ok(Step::Committed(begin));
        }
        let ticket = Ticket { kind: TicketKind::Commit, index, generation, item: 0, op };
        txn.op = Some(op);
        if txn.keys.writes() == 0 && txn.options.snapshot_at.is_some() {
            // A snapshot in the past cannot be shown to be the latest state; only an undecided
            // write can be waited out.
            let kind =
                if uncertain.is_some() { AbortKind::Prepared } else { AbortKind::ReadConflict };
            self.close(
                index,
                Some(Verdict::Aborted { reason: AbortReason::of(kind), entry: uncertain }),
            );
            return Ok(Step::Pending(ticket));
        }
        if txn.keys.places().any(|place| self.shards.is_full(place)) {
            // Nothing was sent, and nothing of it is kept: whoever wants it begins anew.
            txn.op = None;
            self.close(index, None);
            return Err(SessionError::Busy { retry_after: limits::MIN_RETRY_PAUSE });
        }
        self.start_commit(now, name, kind);
        Ok(Step::Pending(ticket))
    }

    /// The answer to a read that was just sent for the first time tells how far its server's clock
    /// is away.
    fn watch_clock(&mut self, now: Timestamp, name: Name, at: u32) {
        let place = self.txns.at(name.index).keys.entry(at).place;
        let shard = self.shards.at_mut(place);
        if shard.up {
            let request = Number::new(Kind::Read, name, at).pack();
            shard.offset.sent(request, now, limits::OFFSET_PATIENCE);
        }
    }

    fn start_commit(&mut self, now: Timestamp, name: Name, kind: CommitKind) {
        let id = self.next_id();
        let txn = self.txns.at_mut(name.index);
        txn.phase = Phase::Committing;
        txn.id = id;
        // A read-only transaction owes its participants nothing: they promised nothing.
        txn.settled = false;
        let mut participants = mem::take(&mut txn.participants);
        for place in txn.keys.places() {
            let shard = self.shards.at(place).id;
            if !participants.contains(&shard) {
                participants.push(shard);
            }
        }
        participants.sort_unstable();
        let physical = now.max(txn.begin.next()).max(txn.keys.highest_read().next());
        let session = txn.session.and_then(|session| self.sessions.get_mut(session));
        let commit = session.map_or(physical, |session| session.clock.propose_commit(physical));
        let input = Input::Commit {
            txn: id,
            begin: txn.begin,
            commit,
            participants: &participants,
            kind,
            // Without writes, too: what was read may be a commit whose own client still waits,
            // ahead of other clocks.
            external_wait: txn.options.external_wait,
            error_bound: self.clock_error,
            deadline: txn.deadline(now, self.config.default_deadline),
        };
        txn.coordinator.step(now, input, &mut self.outputs);
        txn.participants = participants;
        self.carry_out(now, name.index);
    }

    /// Gives a committing transaction's coordinator an input and does what it wants done.
    pub(crate) fn coordinate(&mut self, now: Timestamp, index: u32, input: Input<'_>) {
        self.txns.at_mut(index).coordinator.step(now, input, &mut self.outputs);
        self.carry_out(now, index);
    }

    fn carry_out(&mut self, now: Timestamp, index: u32) {
        let mut outputs = mem::take(&mut self.outputs);
        for output in outputs.drain(..) {
            match output {
                Output::Prepare { to, commit, single } => {
                    self.send_prepare(index, to, commit, single)
                }
                Output::SendWriteSet { to, commit } => self.send_write_set(index, to, commit),
                Output::Decide { to, outcome } => self.send_decision(index, to, outcome),
                Output::Terminate { to } => self.send_terminate(index, to),
                Output::Finished(result) => self.tell(now, index, result),
                Output::Done => self.settle(index),
            }
        }
        self.outputs = outputs;
        let txn = self.txns.at_mut(index);
        txn.due = txn.coordinator.next_deadline().unwrap_or(Timestamp::MAX);
        let due = txn.due;
        self.note_due(due);
        self.release_txn_if_over(index);
    }

    /// Every participant has acknowledged.
    fn settle(&mut self, index: u32) {
        let txn = self.txns.at_mut(index);
        txn.settled = true;
        if txn.verdict == Some(Verdict::Unknown) {
            let (id, outcome) = (txn.id, txn.coordinator.outcome());
            self.learn_lingering(id, outcome);
        }
    }

    /// The way to a participant, when it is open.
    fn way(&self, shard: ShardId) -> Option<Place> {
        self.shards.place_of(shard).filter(|&place| self.shards.at(place).up)
    }

    fn send_prepare(&mut self, index: u32, to: ShardId, commit: Timestamp, single: bool) {
        let txn = self.txns.at_mut(index);
        txn.highest_commit = txn.highest_commit.max(commit);
        let (Some(place), Some(name)) = (self.way(to), self.txns.name(index)) else { return };
        let route = Self::route(&self.shards, place, Kind::Commit, name, 0);
        let how = PrepareAs { place, commit, single, wait: self.config.wait };
        frames::prepare(route, self.txns.at(index), &how, self.shards.ask(self.clock, place));
        self.stats.requests += 1;
    }

    fn send_write_set(&mut self, index: u32, to: ShardId, commit: Timestamp) {
        let (Some(place), Some(name)) = (self.way(to), self.txns.name(index)) else { return };
        let route = Self::route(&self.shards, place, Kind::Commit, name, 0);
        let how = PrepareAs { place, commit, single: false, wait: false };
        frames::write_set(route, self.txns.at(index), &how, self.shards.ask(self.clock, place));
        self.stats.requests += 1;
    }

    fn send_decision(&mut self, index: u32, to: ShardId, outcome: TxnOutcome) {
        let (Some(place), Some(name)) = (self.way(to), self.txns.name(index)) else { return };
        let id = self.txns.at(index).id;
        let route = Self::route(&self.shards, place, Kind::Commit, name, 0);
        frames::decide(route, id, outcome, self.shards.ask(self.clock, place));
        self.stats.requests += 1;
    }

    fn send_terminate(&mut self, index: u32, to: ShardId) {
        self.stats.terminations += 1;
        let (Some(place), Some(name)) = (self.way(to), self.txns.name(index)) else { return };
        let txn = self.txns.at(index);
        let route = Self::route(&self.shards, place, Kind::Commit, name, 0);
        frames::terminate(route, txn, self.shards.ask(self.clock, place));
        self.stats.requests += 1;
    }

    /// Records what the application is to be told, and what the session learns from it.
    fn tell(&mut self, now: Timestamp, index: u32, result: CommitResult) {
        let txn = self.txns.at_mut(index);
        let mut learned = Timestamp::ZERO;
        let mut committed = None;
        let verdict = match result {
            CommitResult::Committed(at) => {
                self.stats.committed += 1;
                committed = Some(at);
                Verdict::Committed(at)
            }
            CommitResult::Aborted { reason, by } => {
                self.stats.aborted += 1;
                learned = reason.at.next();
                let lag = lag_behind(self.lag, &reason);
                let place = by.and_then(|shard| self.shards.place_of(shard));
                let entry =
                    place.zip(reason.item).and_then(|(place, item)| txn.keys.item(place, item));
                match lag {
                    Some(lag) => Verdict::Failed(Ending::ClockBehind { lag }),
                    None => Verdict::Aborted { reason, entry },
                }
            }
            CommitResult::Refused { refusal, .. } => {
                self.stats.aborted += 1;
                match frames::Fault::from(refusal).ending() {
                    Ok(ending) => Verdict::Failed(ending),
                    Err(reason) => {
                        learned = reason.at.next();
                        match lag_behind(self.lag, &reason) {
                            Some(lag) => Verdict::Failed(Ending::ClockBehind { lag }),
                            None => Verdict::Aborted { reason, entry: None },
                        }
                    }
                }
            }
            CommitResult::Unknown => {
                let until = now.saturating_add(limits::LINGER);
                let at = txn.participants.as_slice().into();
                self.lingering.push_back(Lingering { until, txn: txn.id, at, outcome: None });
                // It may still commit, but not after what this session does next.
                learned = txn.highest_commit.next();
                Verdict::Unknown
            }
        };
        txn.verdict = Some(verdict);
        txn.phase = Phase::Told;
        if let Some(session) = txn.session.and_then(|session| self.sessions.get_mut(session)) {
            match committed {
                Some(at) => session.clock.committed(at),
                None if learned > Timestamp::ZERO.next() => session.clock.learned(learned),
                None => {}
            }
        }
        if let (Some(op), Some(name)) = (txn.op, self.txns.name(index)) {
            self.finish(op, EndedWhat::Verdict(name));
        }
        self.trim_lingering(now);
    }

    /// Forgets the oldest of the transactions that were reported `Unknown`.
    pub(crate) fn trim_lingering(&mut self, now: Timestamp) {
        let over =
            |oldest: &Lingering, count: usize| oldest.until <= now || count > limits::MAX_LINGERING;
        while self.lingering.front().is_some_and(|oldest| over(oldest, self.lingering.len())) {
            self.lingering.pop_front();
        }
    }

    /// Ends an open transaction: reads under way fail; a verdict, when there is one, waits for its
    /// operation.
    pub(crate) fn close(&mut self, index: u32, verdict: Option<Verdict>) {
        self.fail_reads(index, &SessionError::NoTransaction);
        let Some(name) = self.txns.name(index) else { return };
        let txn = self.txns.at_mut(index);
        assert!(txn.phase == Phase::Open, "only an open transaction is closed");
        txn.phase = Phase::Closed;
        txn.verdict = verdict;
        match (verdict, txn.op) {
            (Some(verdict), Some(op)) => {
                self.stats.aborted += u64::from(matches!(verdict, Verdict::Aborted { .. }));
                self.finish(op, EndedWhat::Verdict(name));
            }
            _ => txn.op = None,
        }
        self.release_txn_if_over(index);
    }

    /// Ends a transaction whose snapshot the servers do not hold any more. The read that learned it
    /// tells, when there is one.
    pub(crate) fn close_as_too_old(
        &mut self,
        index: u32,
        entry: Option<u32>,
        watermark: Timestamp,
    ) {
        let txn = self.txns.at_mut(index);
        txn.op = entry.and_then(|at| txn.keys.take_waiter(at));
        if let Some(session) = txn.session.and_then(|session| self.sessions.get_mut(session)) {
            session.clock.learned(watermark.next());
        }
        let reason = AbortReason { at: watermark, ..AbortReason::of(AbortKind::TooOld) };
        let verdict = match lag_behind(self.lag, &reason) {
            Some(lag) => Verdict::Failed(Ending::ClockBehind { lag }),
            None => Verdict::Aborted { reason, entry },
        };
        self.close(index, Some(verdict));
    }

    /// Fails every read under way: the transaction is over for them.
    pub(crate) fn fail_reads(&mut self, index: u32, error: &SessionError) {
        let txn = self.txns.at_mut(index);
        if txn.asked == 0 {
            return;
        }
        txn.asked = 0;
        let mut waiters = mem::take(&mut txn.waiters);
        for at in 0..txn.keys.len() {
            let txn = self.txns.at_mut(index);
            if let Read::Asked(op) = txn.keys.entry(at).read {
                txn.keys.entry_mut(at).read = Read::None;
                if let Some(op) = op {
                    self.finish(op, EndedWhat::Failed(Box::new(error.clone())));
                }
            }
        }
        for (_, op) in waiters.drain(..) {
            self.finish(op, EndedWhat::Failed(Box::new(error.clone())));
        }
        self.txns.at_mut(index).waiters = waiters;
    }

    /// Ends a transaction that a read found to be impossible.
    pub(crate) fn close_with(&mut self, index: u32, entry: u32, ending: Ending) {
        let txn = self.txns.at_mut(index);
        txn.op = txn.keys.take_waiter(entry);
        self.close(index, Some(Verdict::Failed(ending)));
    }

    /// Puts the entries of open transactions where the new map says they are.
    pub(crate) fn follow_routes(&mut self) {
        for index in 0..self.txns.slots() {
            if self.txns.name(index).is_none() || self.txns.at(index).phase != Phase::Open {
                continue;
            }
            let txn = self.txns.at_mut(index);
            for at in 0..txn.keys.len() {
                if txn.keys.entry(at).write == Write::Fence {
                    continue;
                }
                if let Some(place) = self.shards.of_key(txn.keys.key(at).key) {
                    txn.keys.entry_mut(at).place = place;
                }
            }
        }
    }
}

/// How far this process's clock is behind the servers' by their latest reading, if that is why
/// something was too old for them: who is further behind than they wait for holds nothing back.
pub(crate) fn lag_behind(lag: Duration, reason: &AbortReason) -> Option<Duration> {
    (reason.kind == AbortKind::TooOld && lag > shared::MAX_CLOCK_LAG).then_some(lag)
}
