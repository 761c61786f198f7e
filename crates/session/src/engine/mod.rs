//! The engine's state, and what a host sees of it: sessions, transport, results.
//!
//! ```text
//!   transact.rs  begin get put commit ─┐                       ┌─ deliver.rs  replies
//!   single.rs    get_latest write_if ──┼─► sessions ▪ txns ▪ ◄─┤
//!                status ask            │   singles ▪ shards    └─ sweep.rs    repeats, deadlines, reports
//!                                      └──► outbox per shard ──► host     results ──► next_done
//! ```
//!
//! Invariants
//! - A timestamp that a session issues is above every one it issued before and above all that it
//!   has seen.
//! - A write is never reported failed while any shard may still carry it out.
//! - A slot is released only when its result was handed out and no participant is owed anything; so
//!   a value handed out by [`Engine::next_done`] stays until the next call.
//! - The watermark reported to a shard is at or below the begin of everything open, and of
//!   everything that this shard has not acknowledged.
//!
//! Deliberately absent: clocks (`now` is an argument), sockets, wakers.

mod deliver;
pub(crate) mod frames;
pub(crate) mod jitter;
pub(crate) mod number;
pub(crate) mod offset;
pub(crate) mod shards;
pub(crate) mod single;
pub(crate) mod slab;
mod sweep;

use core::time::Duration;
use std::collections::VecDeque;

use timestone_txn::coordinator::Output;
use timestone_types::{
    AbortKind, ClientId, HashSeed, KeyspaceId, Sequence, ShardId, Timestamp, TxnId, TxnOutcome,
    hash_key,
};

use crate::{
    Abort, Committed, Done, EngineConfig, OpId, OpResult, Routes, SessionError, SessionId, Ticket,
    ValueView, Written,
    frames::Route,
    handle::TicketKind,
    jitter::Jitter,
    limits,
    number::{Kind, Number},
    record::{Outcome, Phase, Session, Single, Txn, Verdict},
    shards::{Place, Shards},
    slab::{Name, Slab},
};

/// Counters of one engine since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EngineStats {
    /// Requests that were encoded, repetitions included.
    pub requests: u64,
    /// Requests that were asked again, for any reason.
    pub repeated: u64,
    /// Transactions that committed without a message.
    pub committed_locally: u64,
    /// Transactions and single-key writes that committed at participants.
    pub committed: u64,
    /// Transactions and single-key writes that were aborted, but not by the application.
    pub aborted: u64,
    /// Rounds with a later timestamp.
    pub later_rounds: u64,
    /// Transactions whose participants were asked to terminate them.
    pub terminations: u64,
    /// Replies that were late, doubled or unreadable.
    pub ignored_replies: u64,
}

/// The client's side of Timestone for one event loop. See the crate's description.
#[derive(Debug)]
pub struct Engine {
    pub(crate) config: EngineConfig,
    pub(crate) client: ClientId,
    pub(crate) last_sequence: Sequence,
    pub(crate) routes: Routes,
    pub(crate) shards: Shards,
    pub(crate) sessions: Slab<Session>,
    pub(crate) txns: Slab<Txn>,
    pub(crate) singles: Slab<Single>,
    pub(crate) done: Results,
    pub(crate) handed_out: Option<Ended>,
    pub(crate) outputs: Vec<Output>,
    /// The latest `now` that was seen: time does not run backwards here.
    pub(crate) clock: Timestamp,
    pub(crate) clock_error: Duration,
    /// How far behind the latest reading of a server's clock this one was when that came, at least.
    pub(crate) lag: Duration,
    pub(crate) next_due: Timestamp,
    pub(crate) next_report: Timestamp,
    pub(crate) jitter: Jitter,
    pub(crate) hash_seed: HashSeed,
    pub(crate) stats: EngineStats,
    pub(crate) wants_routes: bool,
    pub(crate) wants_client: bool,
    /// An answer from there is to be told when it arrived.
    pub(crate) wants_arrival: Option<Place>,
    /// Transactions reported `Unknown`, with what was learned since, oldest first: they hold the
    /// acknowledged bound back for a while, so that the participants can still tell.
    pub(crate) lingering: VecDeque<Lingering>,
}

/// A transaction that was reported `Unknown`.
#[derive(Clone, Debug)]
pub(crate) struct Lingering {
    pub(crate) until: Timestamp,
    pub(crate) txn: TxnId,
    /// Where it may be known.
    pub(crate) at: Box<[ShardId]>,
    pub(crate) outcome: Option<TxnOutcome>,
}

/// A result that waits to be handed out.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) op: OpId,
    pub(crate) what: EndedWhat,
}

/// Results in order. The host takes all of them in every turn, so there is no ring: once empty, it
/// starts from the front again.
#[derive(Debug, Default)]
pub(crate) struct Results {
    ended: Vec<Ended>,
    taken: usize,
}

impl Results {
    #[inline]
    fn push(&mut self, ended: Ended) {
        self.ended.push(ended);
    }

    #[inline]
    fn pop(&mut self) -> Option<Ended> {
        let Some(next) = self.ended.get_mut(self.taken) else {
            self.ended.clear();
            self.taken = 0;
            return None;
        };
        self.taken += 1;
        Some(core::mem::replace(next, Ended { op: OpId(0), what: EndedWhat::Taken }))
    }
}

/// Where the result is kept.
#[derive(Debug)]
pub(crate) enum EndedWhat {
    /// A transaction's entry.
    Read(Name, u32),
    /// A transaction's verdict.
    Verdict(Name),
    /// A request's outcome.
    Single(Name),
    /// Here; boxed, because almost every result is kept elsewhere and the queue is walked all the
    /// time.
    Failed(Box<SessionError>),
    /// Nowhere: it was handed out.
    Taken,
}

/// Sessions.
impl Engine {
    /// An engine of `client` (an id that the master handed out). `seed` feeds the jitter of pauses
    /// and later timestamps. Every shard counts as connected until [`Engine::disconnected`] says
    /// otherwise.
    #[must_use]
    pub fn new(config: EngineConfig, client: ClientId, routes: Routes, seed: u64) -> Self {
        let shards = Shards::new(&routes);
        Self {
            config,
            client,
            last_sequence: Sequence::ZERO,
            routes,
            shards,
            sessions: Slab::new(limits::MAX_SESSIONS),
            txns: Slab::new(limits::MAX_TRANSACTIONS),
            singles: Slab::new(limits::MAX_SINGLES),
            done: Results::default(),
            handed_out: None,
            outputs: Vec::new(),
            clock: Timestamp::ZERO,
            clock_error: Duration::ZERO,
            lag: Duration::ZERO,
            next_due: Timestamp::MAX,
            next_report: Timestamp::ZERO,
            jitter: Jitter::new(seed),
            hash_seed: HashSeed(seed),
            stats: EngineStats::default(),
            wants_routes: false,
            wants_client: false,
            wants_arrival: None,
            lingering: VecDeque::new(),
        }
    }

    /// Opens a session. Transactions of one session see each other's effects, whatever the clock
    /// does.
    ///
    /// # Errors
    /// `Busy` when the engine carries [`limits::MAX_SESSIONS`] already.
    pub fn open_session(&mut self) -> Result<SessionId, SessionError> {
        let (name, session) = self
            .sessions
            .take()
            .ok_or(SessionError::Busy { retry_after: limits::MAX_RETRY_PAUSE })?;
        *session = Session::default();
        Ok(SessionId { index: name.index, generation: name.generation })
    }

    /// Closes a session: its open transactions are forgotten, its commits under way are still
    /// brought to an end.
    pub fn close_session(&mut self, session: SessionId) {
        let name = Name { index: session.index, generation: session.generation };
        if self.sessions.get(name).is_none() {
            return;
        }
        for index in 0..self.txns.slots() {
            let Some(txn) = self.txns.name(index).and_then(|txn| self.txns.get(txn)) else {
                continue;
            };
            if txn.session == Some(name) && txn.phase == Phase::Open {
                self.close(index, None);
            }
        }
        self.sessions.release(name.index);
    }
}

/// Transport.
impl Engine {
    /// The connection to `shard` is lost: what was asked is asked again after
    /// [`Engine::connected`]; nothing is reported failed.
    pub fn disconnected(&mut self, now: Timestamp, shard: ShardId) {
        self.advance(now);
        if let Some(place) = self.shards.place_of(shard) {
            self.shards.down(place);
        }
    }

    /// The connection to `shard` stands (again).
    pub fn connected(&mut self, now: Timestamp, shard: ShardId) {
        let now = self.advance(now);
        let Some(place) = self.shards.place_of(shard) else { return };
        self.shards.at_mut(place).up = true;
        self.ask_again_at(now, Some(place));
        self.report_to(place);
    }

    /// For a host that has a way to these shards only: what concerns another one is refused at once
    /// ([`SessionError::Elsewhere`]), for a request that nobody can take would hold the watermark
    /// of all shards for as long as it is open. The others are not reported to either: a shard that
    /// is never asked anything keeps nothing for this client.
    pub fn reach_only(&mut self, shards: &[ShardId]) {
        self.shards.reach_only(shards);
    }

    /// Whether there is a way to every shard.
    ///
    /// # Errors
    /// [`SessionError::Elsewhere`] with the first that there is none to.
    pub fn reaches_every_shard(&self) -> Result<(), SessionError> {
        #[cfg(feature = "planted-bugs")]
        if crate::planted::bugs().takes_reach_for_all {
            return Ok(());
        }
        self.shards.known().try_for_each(|place| self.shards.way_to(place).map(drop))
    }

    /// Planted: there is no way to a shard, and so it is none of the whole.
    #[cfg(feature = "planted-bugs")]
    #[must_use]
    pub fn leaves_out(&self, shard: ShardId) -> bool {
        let place = self.shards.place_of(shard);
        crate::planted::bugs().takes_reach_for_all
            && place.is_some_and(|place| self.shards.way_to(place).is_err())
    }

    /// What a refusal calls the server of a shard that this host has no way to.
    pub fn name_server(&mut self, shard: ShardId, name: &str) {
        self.shards.name_server(shard, name);
    }

    /// Since when one of `shards` has owed an answer, with no frame from it meanwhile; `None` when
    /// none of them does. The host feeds it to the [`crate::Patience`] of the connection that leads
    /// to them.
    #[must_use]
    pub fn asked_since(&self, shards: &[ShardId]) -> Option<Timestamp> {
        let places = shards.iter().filter_map(|&shard| self.shards.place_of(shard));
        places.filter_map(|place| self.shards.at(place).asked).min()
    }

    /// The settings.
    #[must_use]
    pub const fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// The next shard with bytes to send, and its outbox: whole frames. The host takes them out
    /// (clearing or swapping the buffer) or leaves them, and then looks again with
    /// [`Engine::outbox`].
    pub fn next_dirty(&mut self) -> Option<(ShardId, &mut Vec<u8>)> {
        self.shards.next_dirty()
    }

    /// A shard's outbox; `None` for a shard that was in no map.
    pub fn outbox(&mut self, shard: ShardId) -> Option<&mut Vec<u8>> {
        let place = self.shards.place_of(shard)?;
        Some(&mut self.shards.at_mut(place).outbox)
    }

    /// A newer shard map: what waits for it is asked at the right place. An older one is ignored.
    pub fn set_routes(&mut self, now: Timestamp, routes: Routes) {
        let now = self.advance(now);
        if routes.version() < self.routes.version() {
            return;
        }
        self.shards.update(&routes);
        self.routes = routes;
        self.wants_routes = false;
        self.follow_routes();
        self.ask_again_at(now, None);
    }

    /// The newest shard map has this version: if the routes in use are of it, there is nothing to
    /// follow.
    pub fn routes_are_of(&mut self, version: timestone_cluster::MapVersion) -> bool {
        let current = version.get() <= self.routes.version();
        self.wants_routes &= !current;
        current
    }

    /// The routes in use.
    #[must_use]
    pub const fn routes(&self) -> &Routes {
        &self.routes
    }

    /// Tells that the routes leave a shard without a server: newer ones may name one.
    pub const fn miss_route(&mut self) {
        self.wants_routes = true;
    }

    /// Whether some server said that the routes are outdated; cleared by [`Engine::set_routes`].
    #[must_use]
    pub const fn wants_routes(&self) -> bool {
        self.wants_routes
    }

    /// Whether the server ended this client's session: the host asks for a new client id and calls
    /// [`Engine::renew_client`].
    #[must_use]
    pub const fn wants_client(&self) -> bool {
        self.wants_client
    }

    /// Goes on under a new client id. Open transactions are over, because their snapshots are not
    /// held any more; commits and writes under way keep their ids and are resolved.
    pub fn renew_client(&mut self, now: Timestamp, client: ClientId) {
        self.advance(now);
        for index in 0..self.txns.slots() {
            if self.txns.name(index).is_some() && self.txns.at(index).phase == Phase::Open {
                self.close_as_too_old(index, None, Timestamp::ZERO);
            }
        }
        self.client = client;
        self.last_sequence = Sequence::ZERO;
        self.wants_client = false;
        self.report_everywhere();
    }

    /// The id that requests carry.
    #[must_use]
    pub const fn client(&self) -> ClientId {
        self.client
    }

    /// How far ahead of another client's clock this one's may be, for `external_wait`: both error
    /// bounds together.
    pub const fn set_clock_error(&mut self, bound: Duration) {
        self.clock_error = bound;
    }

    /// How long to pause before attempt number `attempt` (from 1) of a whole transaction:
    /// exponential with jitter.
    pub fn backoff(&mut self, attempt: u32) -> Duration {
        self.jitter.pause(attempt, limits::MIN_BACKOFF, limits::MAX_BACKOFF)
    }

    /// How many transactions and writes are not finished at every participant yet; a host that
    /// shuts down waits for 0, bounded.
    #[must_use]
    pub fn unresolved(&self) -> usize {
        let txns = self.txns.iter().filter(|(_, txn)| !txn.settled).count();
        txns + self
            .singles
            .iter()
            .filter(|(_, single)| single.is_write() && !single.settled)
            .count()
    }

    /// The counters.
    #[must_use]
    pub const fn stats(&self) -> EngineStats {
        self.stats
    }
}

/// Results.
impl Engine {
    /// The next finished operation. What it borrows stays until the next call.
    pub fn next_done(&mut self) -> Option<Done<'_>> {
        self.release_handed_out();
        let ended = self.done.pop()?;
        let op = ended.op;
        let ended = self.handed_out.insert(ended);
        let result = match &ended.what {
            EndedWhat::Failed(error) => OpResult::Failed((**error).clone()),
            EndedWhat::Taken => OpResult::Failed(SessionError::NoTransaction),
            EndedWhat::Read(name, entry) => {
                match self.txns.get(*name).and_then(|txn| txn.keys.view_read(*entry)) {
                    Some(view) => OpResult::Value(view),
                    None => OpResult::Failed(SessionError::NoTransaction),
                }
            }
            EndedWhat::Verdict(name) => match self.txns.get(*name) {
                Some(txn) => verdict_of(txn),
                None => OpResult::Failed(SessionError::NoTransaction),
            },
            EndedWhat::Single(name) => match self.singles.get(*name) {
                Some(single) => outcome_of(single),
                None => OpResult::Failed(SessionError::NoSession),
            },
        };
        Some(Done { op, result })
    }

    /// What a transaction's read found, for as long as the transaction is open: a host may leave
    /// the value where it is until whoever waits looks at it.
    #[must_use]
    pub fn read_result(&self, ticket: Ticket) -> Option<ValueView<'_>> {
        let name = Name { index: ticket.index, generation: ticket.generation };
        let txn = self
            .txns
            .get(name)
            .filter(|txn| ticket.kind == TicketKind::Read && txn.phase == Phase::Open)?;
        txn.keys.view_read(ticket.item)
    }

    /// Drops interest in an operation: its [`Done`] will not come, except when it is finished
    /// already. A write under way goes on, at the timestamp that it has, and is brought to an end;
    /// what its session does next comes after it. A commit may still move to later timestamps. A
    /// read is forgotten.
    pub fn cancel(&mut self, ticket: Ticket) {
        let name = Name { index: ticket.index, generation: ticket.generation };
        match ticket.kind {
            TicketKind::Read => {
                let Some(txn) = self.txns.get_mut(name) else { return };
                txn.waiters.retain(|&(entry, op)| entry != ticket.item || op != ticket.op);
                if txn.phase == Phase::Open {
                    txn.keys.forget_waiter(ticket.item, ticket.op);
                }
            }
            TicketKind::Commit => {
                if let Some(txn) = self
                    .txns
                    .get_mut(name)
                    .filter(|txn| txn.op == Some(ticket.op) && txn.verdict.is_none())
                {
                    txn.op = None;
                    self.release_txn_if_over(ticket.index);
                }
            }
            TicketKind::Single => {
                let Some(single) =
                    self.singles.get_mut(name).filter(|single| single.op == Some(ticket.op))
                else {
                    return;
                };
                if single.outcome.is_some() {
                    return;
                }
                single.op = None;
                if single.is_write() && !single.settled {
                    return self.give_up_write(self.clock, ticket.index);
                }
                single.settled = true;
                self.release_single_if_over(ticket.index);
            }
        }
    }

    fn release_handed_out(&mut self) {
        match self.handed_out.take().map(|ended| ended.what) {
            Some(EndedWhat::Verdict(name)) => {
                if let Some(txn) = self.txns.get_mut(name) {
                    txn.op = None;
                    self.release_txn_if_over(name.index);
                }
            }
            Some(EndedWhat::Single(name)) => {
                if let Some(single) = self.singles.get_mut(name) {
                    single.op = None;
                    self.release_single_if_over(name.index);
                }
            }
            Some(EndedWhat::Read(..) | EndedWhat::Failed(_) | EndedWhat::Taken) | None => {}
        }
    }
}

fn verdict_of(txn: &Txn) -> OpResult<'_> {
    let id = (txn.id != TxnId::default()).then_some(txn.id);
    match txn.verdict {
        Some(Verdict::Committed(timestamp)) => {
            OpResult::Committed(Committed { timestamp, txn: id })
        }
        Some(Verdict::Aborted { reason, entry }) => {
            let read = entry
                .map(|at| txn.keys.entry(at))
                .filter(|entry| entry.read == crate::keys::Read::Known);
            let key = entry.map(|at| txn.keys.key(at));
            match &txn.fault {
                Some(fault) if reason.kind == AbortKind::Terminated => {
                    OpResult::Failed(fault.clone())
                }
                _ => OpResult::Aborted(Abort {
                    reason,
                    key,
                    read: read.map(|entry| entry.version),
                    found: None,
                    txn: id,
                }),
            }
        }
        Some(Verdict::Failed(error)) => OpResult::Failed(error.into()),
        Some(Verdict::Unknown) | None => OpResult::Unknown(txn.id),
    }
}

fn outcome_of(single: &Single) -> OpResult<'_> {
    match &single.outcome {
        Some(Outcome::Value { version, expires_at, present }) => {
            let value = present.then_some(single.buffer.as_slice());
            OpResult::Value(ValueView { value, version: *version, expires_at: *expires_at })
        }
        Some(Outcome::Committed(timestamp)) => {
            let previous = single.previous().filter(|_| single.return_previous);
            OpResult::Written(Written { timestamp: *timestamp, txn: single.id, previous })
        }
        Some(Outcome::Aborted(reason)) => {
            let key = Some(crate::KeyName { keyspace: single.keyspace, key: single.key() });
            let found = single.previous().filter(|_| reason.kind == AbortKind::Condition);
            OpResult::Aborted(Abort {
                reason: *reason,
                key,
                read: None,
                found,
                txn: Some(single.id),
            })
        }
        Some(Outcome::Status(status)) => OpResult::Status(*status),
        Some(Outcome::Frame) => OpResult::Frame(&single.buffer),
        Some(Outcome::Failed(error)) => OpResult::Failed(error.clone()),
        Some(Outcome::Unknown) | None => OpResult::Unknown(single.id),
    }
}

/// What the other files share.
impl Engine {
    /// Takes note of the time, which never runs backwards here.
    pub(crate) fn advance(&mut self, now: Timestamp) -> Timestamp {
        self.clock = self.clock.max(now);
        self.clock
    }

    /// Something is to be done at `due`.
    pub(crate) fn note_due(&mut self, due: Timestamp) {
        self.next_due = self.next_due.min(due);
    }

    pub(crate) fn hash(&self, keyspace: KeyspaceId, key: &[u8]) -> u64 {
        hash_key(self.hash_seed, keyspace, key).0
    }

    pub(crate) fn next_id(&mut self) -> TxnId {
        self.last_sequence = self.last_sequence.next();
        TxnId::new(self.client, self.last_sequence)
    }

    /// What a frame to a shard carries in its header.
    pub(crate) fn route(shards: &Shards, place: Place, kind: Kind, name: Name, item: u32) -> Route {
        let shard = shards.at(place);
        Route {
            shard: shard.id,
            epoch: shard.epoch,
            map_version: shards.map_version(),
            request: Number::new(kind, name, item).pack(),
        }
    }

    #[inline]
    pub(crate) fn finish(&mut self, op: OpId, what: EndedWhat) {
        self.done.push(Ended { op, what });
    }

    /// Releases a transaction that was told and owes nothing.
    pub(crate) fn release_txn_if_over(&mut self, index: u32) {
        let txn = self.txns.at(index);
        if matches!(txn.phase, Phase::Told | Phase::Closed) && txn.op.is_none() && txn.settled {
            self.txns.at_mut(index).keys.close();
            self.txns.release(index);
        }
    }

    pub(crate) fn release_single_if_over(&mut self, index: u32) {
        let single = self.singles.at(index);
        if single.op.is_none() && single.settled {
            self.singles.at_mut(index).close();
            self.singles.release(index);
        }
    }
}
