//! Requests outside transactions: linearizable reads and exactly-once writes of one key, questions
//! about a transaction, and the host's own frames.
//!
//! ```text
//!   write ──► Prepare-like request under one TxnId ──► took place | condition failed | aborted ──► Done
//!                 ▲   │ Later(t): another round at t + a small step, same TxnId
//!                 └───┴ lost, Busy, restarted: the same (TxnId, timestamp) again, until the deadline; then Unknown,
//!                       and it is still asked in the background until its fate is known
//! ```
//! Source: SEMEL §3.3; DTranx (exactly once); docs/protocol/transactions.md, "Single keys".

use timestone_types::{
    Expiry, KeyspaceId, ShardId, Timestamp, TxnId, TxnOutcome, limits as shared,
};

use crate::{
    Condition, Engine, LimitError, Mutation, OpId, RequestOptions, SessionError, SessionId, Step,
    Ticket, TxnStatus,
    engine::{EndedWhat, Lingering},
    frames,
    handle::TicketKind,
    limits,
    number::{Kind, Number},
    record::{Outcome, Want},
    shards::Place,
    slab::Name,
    transact::lag_behind,
};

/// Whether a write that was reported as unknown goes on as if it had not been.
pub(crate) fn undoes_later_writes() -> bool {
    #[cfg(feature = "planted-bugs")]
    return crate::planted::bugs().undoes_later_writes;
    #[cfg(not(feature = "planted-bugs"))]
    false
}

/// Whether a write fails when a copy of it does, although an earlier copy may have been carried
/// out.
pub(crate) fn fails_for_copies() -> bool {
    #[cfg(feature = "planted-bugs")]
    return crate::planted::bugs().fails_for_copies;
    #[cfg(not(feature = "planted-bugs"))]
    false
}

/// Whether a write that was refused for want of room holds the watermark back.
pub(crate) fn keeps_refused() -> bool {
    #[cfg(feature = "planted-bugs")]
    return crate::planted::bugs().keeps_refused_writes;
    #[cfg(not(feature = "planted-bugs"))]
    false
}

/// Whether a write counts as one that may have been carried out and forgotten although every
/// earlier copy of it was refused.
pub(crate) fn doubts_refusals() -> bool {
    #[cfg(feature = "planted-bugs")]
    return crate::planted::bugs().doubts_refusals;
    #[cfg(not(feature = "planted-bugs"))]
    false
}

/// Requests outside transactions.
impl Engine {
    /// Reads the latest version of one key, linearizably: waits for prepared writes.
    ///
    /// # Errors
    /// A closed session, a limit, a key that no shard serves, or too much under way.
    pub fn get_latest(
        &mut self,
        now: Timestamp,
        session: SessionId,
        keyspace: KeyspaceId,
        key: &[u8],
        options: RequestOptions,
        op: OpId,
    ) -> Result<Step<'_>, SessionError> {
        let now = self.advance(now);
        let begin = self.issue(now, session)?;
        let place = self.check_key(key)?;
        let name = self.open_single(now, Want::Get, place, options, op)?;
        let single = self.singles.at_mut(name.index);
        single.session = Some(Name { index: session.index, generation: session.generation });
        single.keyspace = keyspace;
        single.begin = begin;
        single.buffer.extend_from_slice(key);
        single.key_bytes = key.len();
        self.send_single(now, name.index);
        Ok(ticket(name, op))
    }

    /// Writes one key, linearizably and exactly once, provided that `condition` holds (else
    /// `Aborted` with kind `Condition`).
    ///
    /// # Errors
    /// A closed session, a limit, a key that no shard serves, or too much under way.
    #[expect(
        clippy::too_many_arguments,
        reason = "a request outside a transaction says everything at once"
    )]
    pub fn write_if(
        &mut self,
        now: Timestamp,
        session: SessionId,
        keyspace: KeyspaceId,
        key: &[u8],
        mutation: Mutation<'_>,
        condition: Condition<'_>,
        options: RequestOptions,
        op: OpId,
    ) -> Result<Step<'_>, SessionError> {
        let now = self.advance(now);
        let place = self.check_key(key)?;
        let (want, value, expires_at) = match mutation {
            Mutation::Put { value, expires_at } => (Want::Put, value, expires_at),
            Mutation::PutKeepExpiry { value } => (Want::Put, value, Expiry::NEVER),
            Mutation::Delete => (Want::Delete, &[][..], Expiry::NEVER),
        };
        let expected =
            if let Condition::ValueIs(expected) = condition { expected } else { &[][..] };
        if let Some(bytes) =
            [value.len(), expected.len()].into_iter().find(|&bytes| bytes > shared::MAX_VALUE_BYTES)
        {
            return Err(LimitError::ValueTooLong { bytes }.into());
        }
        let begin = self.issue(now, session)?;
        let name = self.open_single(now, want, place, options, op)?;
        let id = self.next_id();
        let single = self.singles.at_mut(name.index);
        single.session = Some(Name { index: session.index, generation: session.generation });
        single.keyspace = keyspace;
        single.id = id;
        single.begin = begin;
        // Above begin, as every commit: the begin of this write was issued to nobody else.
        single.commit = begin.next();
        single.condition = condition.into();
        single.keep_expiry = matches!(mutation, Mutation::PutKeepExpiry { .. });
        single.return_previous = options.return_previous;
        single.expires_at = expires_at;
        single.external_wait = options.external_wait;
        single.buffer.extend_from_slice(key);
        single.key_bytes = key.len();
        single.buffer.extend_from_slice(value);
        single.value_bytes = value.len();
        single.buffer.extend_from_slice(expected);
        single.expected_bytes = expected.len();
        self.send_single(now, name.index);
        Ok(ticket(name, op))
    }

    /// Asks every shard what became of a transaction.
    ///
    /// # Errors
    /// Too much under way, or no shard at all.
    pub fn status(
        &mut self,
        now: Timestamp,
        txn: TxnId,
        options: RequestOptions,
        op: OpId,
    ) -> Result<Step<'_>, SessionError> {
        let now = self.advance(now);
        let first = self.shards.known().next().ok_or(SessionError::NoShard)?;
        let name = self.open_single(now, Want::Status, first, options, op)?;
        let known =
            self.lingering.iter().find(|known| known.txn == txn).and_then(|known| known.outcome);
        let single = self.singles.at_mut(name.index);
        single.id = txn;
        single.silent.extend(self.shards.known());
        if let Some(outcome) = known {
            let status = TxnStatus::from(outcome);
            self.end_single(now, name.index, Outcome::Status(status));
        } else {
            self.send_single(now, name.index);
        }
        Ok(ticket(name, op))
    }

    /// Sends any other idempotent request (scan, count, statistics) to a shard: `encode` appends
    /// one frame that carries the given request number. The answer is [`crate::OpResult::Frame`].
    /// Asked again after a loss, until the deadline.
    ///
    /// # Errors
    /// A shard that is in no map, or too much under way.
    pub fn ask(
        &mut self,
        now: Timestamp,
        shard: ShardId,
        options: RequestOptions,
        op: OpId,
        encode: impl FnOnce(u64, &mut Vec<u8>),
    ) -> Result<Step<'_>, SessionError> {
        let now = self.advance(now);
        let place =
            self.shards.way_to(self.shards.place_of(shard).ok_or(SessionError::NoShard)?)?;
        let name = self.open_single(now, Want::Ask, place, options, op)?;
        let single = self.singles.at_mut(name.index);
        encode(Number::new(Kind::Single, name, 0).pack(), &mut single.buffer);
        self.send_single(now, name.index);
        Ok(ticket(name, op))
    }

    /// The session has heard of something at `at`, from whomever: whatever it begins from now on
    /// lies above that.
    ///
    /// # Errors
    /// [`SessionError::NoSession`].
    pub fn saw(&mut self, session: SessionId, at: Timestamp) -> Result<(), SessionError> {
        let name = Name { index: session.index, generation: session.generation };
        let session = self.sessions.get_mut(name).ok_or(SessionError::NoSession)?;
        session.clock.learned(at.next());
        Ok(())
    }

    /// A timestamp of a session, above all that it has seen.
    fn issue(&mut self, now: Timestamp, session: SessionId) -> Result<Timestamp, SessionError> {
        let name = Name { index: session.index, generation: session.generation };
        match self.sessions.get_mut(name) {
            Some(session) => Ok(session.clock.begin(now)),
            None => Err(SessionError::NoSession),
        }
    }

    fn check_key(&self, key: &[u8]) -> Result<Place, SessionError> {
        if key.is_empty() {
            return Err(LimitError::EmptyKey.into());
        }
        if key.len() > shared::MAX_KEY_BYTES {
            return Err(LimitError::KeyTooLong { bytes: key.len() }.into());
        }
        self.shards.way_to_key(key)
    }

    fn open_single(
        &mut self,
        now: Timestamp,
        want: Want,
        place: Place,
        options: RequestOptions,
        op: OpId,
    ) -> Result<Name, SessionError> {
        const BUSY: SessionError = SessionError::Busy { retry_after: limits::MIN_RETRY_PAUSE };
        if self.shards.is_full(place) {
            return Err(BUSY);
        }
        let deadline =
            options.deadline.unwrap_or_else(|| now.saturating_add(self.config.default_deadline));
        let Some((name, single)) = self.singles.take() else { return Err(BUSY) };
        single.open(want, op, place, deadline);
        self.note_due(deadline);
        Ok(name)
    }

    /// Appends a request to its shard's outbox (or to every silent shard's), when the way there is
    /// open.
    pub(crate) fn send_single(&mut self, now: Timestamp, index: u32) {
        let Some(name) = self.singles.name(index) else { return };
        let single = self.singles.at_mut(index);
        if single.begins_anew() && single.attempts > 0 {
            // No server has seen it: it takes place after whatever its session has seen meanwhile,
            // and the watermark has gone on without it.
            let clock = single
                .session
                .and_then(|name| self.sessions.get_mut(name))
                .map(|session| &mut session.clock);
            single.begin = clock.map_or(now, |clock| clock.begin(now)).max(single.begin);
            single.commit = single.commit.max(single.begin.next());
        }
        single.due = now.saturating_add(self.config.request_timeout);
        let (shards, stats) = (&mut self.shards, &mut self.stats);
        let mut send = |place: Place, item: u32, single: &crate::record::Single| {
            if !shards.at(place).up {
                return false;
            }
            let route = Self::route(shards, place, Kind::Single, name, item);
            if single.attempts == 0 {
                shards.at_mut(place).offset.sent(route.request, now, limits::OFFSET_PATIENCE);
            }
            let out = shards.ask(now, place);
            match single.want {
                Want::Get => frames::latest_read(route, self.client, single, self.config.wait, out),
                Want::Put | Want::Delete => frames::write(route, single, self.config.wait, out),
                Want::Status => frames::status(route, single.id, out),
                Want::Ask => out.extend_from_slice(&single.buffer),
            }
            stats.requests += 1;
            true
        };
        let sent = if single.want == Want::Status {
            single
                .silent
                .iter()
                .map(|&place| send(place, u32::from(place.0), single))
                .fold(false, |any, one| any | one)
        } else {
            send(single.place, single.round, single)
        };
        if sent {
            single.doubtful |= single.unanswered;
            single.unanswered = true;
        } else {
            single.due = Timestamp::MAX;
        }
        let due = single.due;
        self.note_due(due);
    }

    /// Tries a write again at a later timestamp.
    pub(crate) fn later(&mut self, now: Timestamp, index: u32, bound: Timestamp) {
        self.stats.later_rounds += 1;
        let step = self.jitter.step(limits::LATER_SPREAD);
        let single = self.singles.at_mut(index);
        single.commit = bound.max(single.commit.next()).saturating_add(step);
        single.round = single.round.wrapping_add(1);
        single.unanswered = false;
        self.send_single(now, index);
    }

    /// Ends a request with an outcome; its operation is told, when anybody still waits.
    pub(crate) fn end_single(&mut self, now: Timestamp, index: u32, outcome: Outcome) {
        let Some(name) = self.singles.name(index) else { return };
        let lag = if let Outcome::Aborted(reason) = &outcome {
            lag_behind(self.lag, reason)
        } else {
            None
        };
        let single = self.singles.at_mut(index);
        let learned = match &outcome {
            Outcome::Committed(at) => {
                self.stats.committed += 1;
                Some((*at).next())
            }
            Outcome::Aborted(reason) => {
                self.stats.aborted += 1;
                Some(reason.at.next()).filter(|_| reason.at > Timestamp::ZERO)
            }
            Outcome::Value { version, .. } => Some(version.timestamp.next()),
            // A copy of it may be waiting at the server.
            Outcome::Unknown => Some(single.commit.next()),
            _ => None,
        };
        if let (Some(bound), Some(session)) =
            (learned, single.session.and_then(|name| self.sessions.get_mut(name)))
        {
            session.clock.learned(bound);
        }
        if single.is_write() && single.outcome.is_some() {
            let outcome = match outcome {
                Outcome::Committed(at) => Some(TxnOutcome::Committed(at)),
                Outcome::Aborted(_) => Some(TxnOutcome::Aborted),
                _ => None,
            };
            self.learn_lingering(self.singles.at(index).id, outcome);
        } else {
            single.outcome = Some(match lag {
                Some(lag) => Outcome::Failed(SessionError::ClockBehind { lag }),
                None => outcome,
            });
            if let Some(op) = single.op {
                self.finish(op, EndedWhat::Single(name));
            }
        }
        let single = self.singles.at_mut(index);
        single.settled = true;
        single.due = Timestamp::MAX;
        self.release_single_if_over(index);
        self.trim_lingering(now);
    }

    /// The deadline of a write passed, or nobody waits for it any more: the application is told
    /// `Unknown`, if it is told; the request goes on until its fate is known, at the timestamp that
    /// it has. What this session does next comes after that timestamp.
    pub(crate) fn give_up_write(&mut self, now: Timestamp, index: u32) {
        let Some(name) = self.singles.name(index) else { return };
        let single = self.singles.at_mut(index);
        single.outcome = Some(Outcome::Unknown);
        single.deadline = Timestamp::MAX;
        let (op, txn, commit, place) = (single.op, single.id, single.commit, single.place);
        if let Some(session) = single.session.and_then(|name| self.sessions.get_mut(name))
            && !undoes_later_writes()
        {
            session.clock.learned(commit.next());
        }
        let (until, at) = (now.saturating_add(limits::LINGER), [self.shards.at(place).id].into());
        self.lingering.push_back(Lingering { until, txn, at, outcome: None });
        if let Some(op) = op {
            self.finish(op, EndedWhat::Single(name));
        }
        self.trim_lingering(now);
    }

    /// The deadline of a write passed that took place and waits for the clocks: that none is behind
    /// it any more is not known in time. Whoever asks is told that it took place.
    pub(crate) fn end_before_the_clocks(&mut self, now: Timestamp, index: u32) {
        let single = self.singles.at(index);
        let (txn, outcome, place) = (single.id, TxnOutcome::Committed(single.commit), single.place);
        let (until, at) = (now.saturating_add(limits::LINGER), [self.shards.at(place).id].into());
        self.lingering.push_back(Lingering { until, txn, at, outcome: Some(outcome) });
        self.end_single(now, index, Outcome::Unknown);
    }

    /// The fate of a transaction that was reported `Unknown` is known now.
    pub(crate) fn learn_lingering(&mut self, txn: TxnId, outcome: Option<TxnOutcome>) {
        if let Some(known) = self.lingering.iter_mut().find(|known| known.txn == txn) {
            known.outcome = known.outcome.or(outcome);
        }
    }

    /// Counts one shard's answer to a question about a transaction; the strongest answer wins.
    pub(crate) fn merge_status(
        &mut self,
        now: Timestamp,
        index: u32,
        from: Place,
        status: TxnStatus,
    ) {
        let single = self.singles.at_mut(index);
        let Some(at) = single.silent.iter().position(|&place| place == from) else { return };
        single.silent.swap_remove(at);
        let best = single.status.map_or(status, |known| {
            if status.strength() > known.strength() { status } else { known }
        });
        single.status = Some(best);
        if single.silent.is_empty() || matches!(best, TxnStatus::Committed(_) | TxnStatus::Aborted)
        {
            self.end_single(now, index, Outcome::Status(best));
        }
    }
}

fn ticket(name: Name, op: OpId) -> Step<'static> {
    let Name { index, generation } = name;
    Step::Pending(Ticket { kind: TicketKind::Single, index, generation, item: 0, op })
}

impl TxnStatus {
    /// The decision, when there is one.
    pub(crate) const fn outcome(self) -> Option<TxnOutcome> {
        match self {
            Self::Committed(at) => Some(TxnOutcome::Committed(at)),
            Self::Aborted => Some(TxnOutcome::Aborted),
            Self::Prepared(_) | Self::Unknown => None,
        }
    }

    /// A decision outweighs a promise, and a promise outweighs ignorance.
    const fn strength(self) -> u8 {
        match self {
            Self::Committed(_) | Self::Aborted => 2,
            Self::Prepared(_) => 1,
            Self::Unknown => 0,
        }
    }
}

impl From<TxnOutcome> for TxnStatus {
    fn from(outcome: TxnOutcome) -> Self {
        match outcome {
            TxnOutcome::Committed(at) => Self::Committed(at),
            TxnOutcome::Aborted => Self::Aborted,
        }
    }
}
