//! Transactions over a store that is in the same process, as SkimpyFTL §4.2 has them: so many
//! sessions, each with one transaction at a time, and multi-version concurrency control above.
//!
//! ```text
//!   begin: snapshot ─► gets, one after the other, as of it ─┬─ reads only ─► committed
//!                                                           └─► a key has a younger version? ─┬─ yes ─► aborted, begun anew
//!                                                                                             └─ no ──► all puts at once ─► durable ─► committed
//! ```
//! Puts are visible to whoever begins after them. The watermark is the oldest snapshot that a
//! session reads as of.

use std::collections::HashMap;

use timestone_store::{Lookup, PromisedPuts, PutSize, ReadToken, StoreError};
use timestone_types::{KeyspaceId, Timestamp};
use timestone_workload::{Generator, KeyIndex, Op, TxnPlan, WorkloadKind, WorkloadSpec};

use super::{Goal, StoreMix, spelled};
use crate::error::ReproError;
use crate::store::part::StorePart;
use crate::store::subject::Subject;

/// How far a session's transaction is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SessionState {
    /// There is none.
    Idle,
    /// Its gets, of which this one is next.
    Reads(usize),
    /// The store will answer this one.
    Waits(usize),
    /// It is to be validated.
    Commits,
    /// Its puts are to become durable with this batch.
    Durable(u64),
}

#[derive(Debug)]
struct StoreSession {
    state: SessionState,
    reads: Vec<KeyIndex>,
    writes: Vec<KeyIndex>,
    /// When it was begun first.
    began: Timestamp,
    /// When its get was asked for.
    asked: Timestamp,
    snapshot: u64,
}

/// See the module.
pub(super) struct StoreSessions {
    generator: Generator,
    plan: TxnPlan,
    list: Vec<StoreSession>,
    /// Those beyond it begin no further transaction.
    limit: usize,
    /// By key: its youngest version, of those that transactions have put.
    newest: HashMap<KeyIndex, u64>,
    /// Bytes of a key and a value.
    put_bytes: usize,
}

impl StoreSessions {
    pub(super) fn new(part: &StorePart, seed: u64) -> Result<Self, ReproError> {
        let spec = WorkloadSpec {
            keys: part.keys,
            zipf: part.zipf,
            seed,
            ..WorkloadSpec::of(WorkloadKind::YcsbSocial)
        };
        let generator =
            Generator::new(&spec, 0, 1).map_err(|error| ReproError::Run(error.to_string()))?;
        Ok(Self {
            generator,
            plan: TxnPlan::default(),
            list: Vec::new(),
            limit: 0,
            newest: HashMap::new(),
            put_bytes: part.key_bytes + part.value_bytes,
        })
    }

    /// From now on so many have transactions.
    pub(super) fn set_limit(&mut self, sessions: u32) {
        self.limit = sessions as usize;
        let count = self.limit.max(self.list.len());
        self.list.resize_with(count, StoreSession::idle);
    }

    /// The oldest snapshot that is read as of, if any is.
    pub(super) fn oldest_snapshot(&self) -> Option<u64> {
        let reads = |session: &&StoreSession| {
            matches!(session.state, SessionState::Reads(_) | SessionState::Waits(_))
        };
        self.list.iter().filter(reads).map(|session| session.snapshot).min()
    }

    /// The next transaction of a session.
    fn begin(&mut self, at: usize, now: Timestamp, snapshot: u64) {
        self.generator.next(&mut self.plan);
        let session = &mut self.list[at];
        session.reads.clear();
        session.writes.clear();
        for op in &self.plan.ops {
            match *op {
                Op::Get(key) => session.reads.push(key),
                op => session.writes.push(op.key()),
            }
        }
        (session.began, session.snapshot) = (now, snapshot);
        session.state = SessionState::Reads(0);
    }

    /// Whether nothing that a transaction has read was written since.
    fn is_valid(&self, at: usize) -> bool {
        let session = &self.list[at];
        let newest = |key: &KeyIndex| self.newest.get(key).copied().unwrap_or(0);
        session.writes.is_empty() || session.reads.iter().all(|key| newest(key) <= session.snapshot)
    }
}

impl<S: Subject> StoreMix<S> {
    /// Every session goes on as far as it can.
    pub(super) fn ask_sessions(&mut self, goal: &mut Goal) -> Result<(), ReproError> {
        for at in 0..self.sessions.list.len() {
            self.go_on(at, goal).map_err(|error| self.refused(error))?;
        }
        Ok(())
    }

    fn go_on(&mut self, at: usize, goal: &mut Goal) -> Result<(), StoreError> {
        loop {
            match self.sessions.list[at].state {
                SessionState::Idle if at >= self.sessions.limit || goal.is_reached(self) => {
                    return Ok(());
                }
                SessionState::Idle => {
                    let (now, snapshot) = (self.now(), self.version - 1);
                    self.sessions.begin(at, now, snapshot);
                }
                SessionState::Reads(next) => {
                    if !self.read_next(at, next)? {
                        return Ok(());
                    }
                    goal.asked += 1;
                }
                SessionState::Commits if !self.sessions.is_valid(at) => {
                    self.tally.aborted += 1;
                    let session = &mut self.sessions.list[at];
                    session.snapshot = self.version - 1;
                    session.state = SessionState::Reads(0);
                }
                SessionState::Commits if self.sessions.list[at].writes.is_empty() => {
                    self.committed(at);
                    return Ok(());
                }
                SessionState::Commits => {
                    goal.asked += u64::from(self.put_all(at)?);
                    return Ok(());
                }
                SessionState::Waits(_) | SessionState::Durable(_) => return Ok(()),
            }
        }
    }

    /// Asks for a session's next key; false when it was refused for now.
    fn read_next(&mut self, at: usize, next: usize) -> Result<bool, StoreError> {
        let now = self.now();
        let session = &mut self.sessions.list[at];
        let number = session.reads[next];
        session.asked = now;
        let key = spelled(&self.store, self.shape, number, &mut self.key);
        let token = ReadToken((self.gets.len() + at) as u64);
        match self.store.get(key, Timestamp::from_nanos(session.snapshot), token) {
            Ok(Lookup::Present { .. }) => {
                session.state = StoreSession::after_read(next, session.reads.len());
                self.tally.gets.0.push(0);
                self.done += 1;
            }
            Ok(Lookup::Pending) => session.state = SessionState::Waits(next),
            Ok(Lookup::Absent { .. }) => panic!("key {} was put, and is absent", number.0),
            Err(StoreError::Busy) => return Ok(false),
            Err(error) => return Err(error),
        }
        self.work.gets += 1;
        Ok(true)
    }

    /// The store has answered a session's get; false when the token is none of theirs.
    pub(super) fn session_read(&mut self, token: ReadToken) -> bool {
        let Some(at) = token.0.checked_sub(self.gets.len() as u64) else { return false };
        let now = self.now();
        let session = &mut self.sessions.list[at as usize];
        let SessionState::Waits(next) = session.state else {
            panic!("a session is answered that has asked nothing")
        };
        session.state = StoreSession::after_read(next, session.reads.len());
        self.tally.gets.push(now, session.asked);
        self.done += 1;
        true
    }

    /// Puts all that a transaction writes, as one version; false when there is no room now.
    fn put_all(&mut self, at: usize) -> Result<bool, StoreError> {
        let (count, bytes) = (self.sessions.list[at].writes.len(), self.sessions.put_bytes);
        let size = PutSize { keyspace: KeyspaceId::DEFAULT, bytes };
        match self.store.admit(&mut core::iter::repeat_n(size, count), PromisedPuts::default()) {
            Ok(()) => {}
            Err(StoreError::Busy) => {
                let puts = &mut core::iter::repeat_n(size, count);
                self.store.ask_room(puts, PromisedPuts::default());
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
        debug_assert!(self.sessions.is_valid(at), "it was validated in this turn");
        let writes = core::mem::take(&mut self.sessions.list[at].writes);
        let version = self.version;
        for &number in &writes {
            self.put_one(number, version)?;
            self.sessions.newest.insert(number, version);
        }
        self.version += 1;
        let session = &mut self.sessions.list[at];
        (session.writes, session.state) = (writes, SessionState::Durable(self.batch));
        Ok(true)
    }

    /// Everything up to this batch is durable.
    pub(super) fn sessions_durable(&mut self, stable: u64) {
        for at in 0..self.sessions.list.len() {
            if matches!(self.sessions.list[at].state, SessionState::Durable(batch) if batch <= stable)
            {
                self.committed(at);
            }
        }
    }

    fn committed(&mut self, at: usize) {
        let now = self.now();
        let session = &mut self.sessions.list[at];
        session.state = SessionState::Idle;
        self.tally.transactions.push(now, session.began);
        self.done += 1;
    }
}

impl StoreSession {
    fn idle() -> Self {
        Self {
            state: SessionState::Idle,
            reads: Vec::new(),
            writes: Vec::new(),
            began: Timestamp::ZERO,
            asked: Timestamp::ZERO,
            snapshot: 0,
        }
    }

    fn after_read(next: usize, reads: usize) -> SessionState {
        if next + 1 < reads { SessionState::Reads(next + 1) } else { SessionState::Commits }
    }
}
