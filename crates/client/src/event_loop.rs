//! What the event loop owns: the engine, the tasks, the operations they wait for, their timers.
//!
//! ```text
//!   task ── get ──► Engine ──► outbox ──► transport (end of the turn: one batch of frames per shard)
//!    ▲                                        │
//!    └─ run queue ◄─ OpTable ◄─ next_done ◄── replies
//! ```
//! Lives on one thread; tasks and local handles share it by `Rc`. Borrows are short: nothing is
//! borrowed while a task is polled.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::rc::Rc;
use std::sync::Arc;

use timestone_clock::Clock;
use timestone_cluster::ShardMap;
use timestone_session::{Done, Engine, OpId, OpResult, SessionId, Ticket};
use timestone_types::Timestamp;
use timestone_wire::Frame;

use crate::calls::CallTable;
use crate::executor::Executor;
use crate::local::LocalTransaction;
use crate::master::KnownKeyspaces;
use crate::ops::{OpTable, Output, Wake};
use crate::shared::LoopShared;
use crate::transport::asker;
use crate::{Error, Result};

/// The state of one event loop.
pub(crate) struct Core {
    pub(crate) engine: RefCell<Engine>,
    pub(crate) ops: RefCell<OpTable>,
    /// What is asked of shards of this process by calls.
    pub(crate) calls: RefCell<CallTable>,
    pub(crate) tasks: Executor,
    pub(crate) shared: Arc<LoopShared>,
    /// Read when an answer's arrival is to be told; time comes with every turn.
    pub(crate) clock: Arc<dyn Clock>,
    now: Cell<Timestamp>,
    timers: RefCell<BinaryHeap<Reverse<(Timestamp, OpId)>>>,
    /// Frames for any server: the master's business. Each carries its operation's name as request
    /// number.
    pub(crate) to_server: RefCell<Vec<u8>>,
    /// The session of handles that live on other threads.
    pub(crate) shared_session: Cell<Option<SessionId>>,
    /// Transactions of such handles.
    pub(crate) remote: RefCell<BTreeMap<u64, Rc<LocalTransaction>>>,
    pub(crate) next_remote: Cell<u64>,
    pub(crate) keyspaces: KnownKeyspaces,
    /// A shard map that was fetched and that the transport has not looked at.
    pub(crate) newer_map: RefCell<Option<ShardMap>>,
}

impl Core {
    pub(crate) fn new(engine: Engine, shared: Arc<LoopShared>, clock: Arc<dyn Clock>) -> Self {
        Self {
            engine: RefCell::new(engine),
            ops: RefCell::default(),
            calls: RefCell::default(),
            tasks: Executor::new(Arc::clone(&shared)),
            shared,
            clock,
            now: Cell::new(Timestamp::ZERO),
            timers: RefCell::default(),
            to_server: RefCell::default(),
            shared_session: Cell::new(None),
            remote: RefCell::default(),
            next_remote: Cell::new(1),
            keyspaces: KnownKeyspaces::new(),
            newer_map: RefCell::new(None),
        }
    }

    /// The time of this turn.
    pub(crate) fn now(&self) -> Timestamp {
        self.now.get()
    }

    /// A turn begins.
    pub(crate) fn set_now(&self, now: Timestamp) {
        self.now.set(self.now.get().max(now));
    }

    /// Reads the clock, and how wrong it may be, in mid-turn. A commit that waits for the clocks must
    /// not be proposed behind one that was acknowledged before it was asked for, and the turn may
    /// have begun before that.
    pub(crate) fn read_clock(&self) {
        self.set_now(self.clock.now());
        self.engine.borrow_mut().set_clock_error(self.now(), self.clock.error_bound().bound);
    }

    /// The session that handles on other threads share: they see each other's effects.
    pub(crate) fn session_of_handles(&self) -> Result<SessionId> {
        if let Some(session) = self.shared_session.get() {
            return Ok(session);
        }
        let session = self.engine.borrow_mut().open_session()?;
        self.shared_session.set(Some(session));
        Ok(session)
    }

    /// Finishes an operation and wakes whoever waits for it.
    pub(crate) fn finish(&self, op: OpId, output: impl FnOnce(bool) -> Output) {
        let wake = self.ops.borrow_mut().finish(op, output);
        match wake {
            Wake::Nobody => {}
            Wake::Task(task) => self.tasks.wake(task),
            Wake::Waker(waker) => waker.wake(),
        }
    }

    /// Takes the engine's results over.
    pub(crate) fn collect(&self) {
        let mut engine = self.engine.borrow_mut();
        while let Some(Done { op, result }) = engine.next_done() {
            // By reference: a result is a large thing to move about, and most are a value that
            // stays where it is.
            self.finish(op, |in_place| match &result {
                OpResult::Value(_) if in_place => Output::InPlace,
                result => result.into(),
            });
        }
    }

    /// Removes frames for any server that were not sent while somebody waited for them: whoever asked was told that
    /// no answer came, and may have done something else since.
    pub(crate) fn drop_given_up(&self) {
        let (mut to_server, mut ops) = (self.to_server.borrow_mut(), self.ops.borrow_mut());
        if to_server.is_empty() {
            return;
        }
        let (mut wanted, mut rest) = (Vec::new(), &to_server[..]);
        while let Ok(Some((frame, behind))) = Frame::split(rest) {
            if asker(&frame).is_none_or(|op| ops.is_waiting(op)) {
                wanted.extend_from_slice(&rest[..rest.len() - behind.len()]);
            }
            rest = behind;
        }
        debug_assert!(rest.is_empty(), "what is here was encoded here");
        if wanted.len() < to_server.len() {
            *to_server = wanted;
        }
    }

    /// Drops interest in an operation.
    pub(crate) fn give_up(&self, op: OpId, ticket: Option<Ticket>) {
        self.ops.borrow_mut().forget(op);
        if let Some(ticket) = ticket {
            self.engine.borrow_mut().cancel(ticket);
        }
    }

    /// Lets go of calls that have not come back: their sessions hold the loop.
    pub(crate) fn end_calls(&self) {
        // Sessions close when they go, which must find the table free.
        let ended = self.calls.borrow_mut().end();
        drop(ended);
    }

    /// Drops interest in an operation that was asked by a call; `put`: of whose session, and when that
    /// began it.
    pub(crate) fn give_up_call(&self, op: OpId, put: Option<(SessionId, Timestamp)>) {
        let mut ops = self.ops.borrow_mut();
        let (is_under_way, ticket) = (ops.is_waiting(op), ops.ticket_of_call(op));
        ops.forget(op);
        drop(ops);
        match (ticket, put) {
            (Some(ticket), _) => self.engine.borrow_mut().cancel(ticket),
            (None, Some((session, begin))) if is_under_way => {
                self.engine.borrow_mut().give_up_direct(session, begin);
            }
            _ => {}
        }
    }

    /// An operation that is finished when time has come to `until`.
    pub(crate) fn timer(&self, until: Timestamp) -> OpId {
        let op = self.ops.borrow_mut().open();
        self.timers.borrow_mut().push(Reverse((until, op)));
        op
    }

    /// Finishes the timers that are due.
    pub(crate) fn fire(&self) {
        let now = self.now();
        loop {
            let due = {
                let mut timers = self.timers.borrow_mut();
                match timers.peek() {
                    Some(&Reverse((until, op))) if until <= now => {
                        timers.pop();
                        op
                    }
                    _ => return,
                }
            };
            self.finish(due, |_| Output::Committed(now));
        }
    }

    /// When the loop has something to do next.
    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        let timer = self.timers.borrow().peek().map(|&Reverse((until, _))| until);
        let engine = self.engine.borrow().next_deadline();
        timer.into_iter().chain(engine).min()
    }

    /// Nobody has a handle of a transaction any more.
    pub(crate) fn forget_remote(&self, id: u64) {
        let gone = self.remote.borrow_mut().remove(&id);
        drop(gone);
    }

    /// The transaction of a handle on another thread.
    pub(crate) fn remote_txn(&self, id: u64) -> Result<Rc<LocalTransaction>> {
        let found = self.remote.borrow().get(&id).map(Rc::clone);
        found.ok_or_else(|| Error::from(timestone_session::SessionError::NoTransaction))
    }
}
