//! The event loop: one stage that hosts the engine, runs the tasks, and moves bytes in and out once
//! per turn.
//!
//! ```text
//!   turn   calls of other threads ─► tasks ⇄ engine ─► transport.ship
//!   handle replies ─► engine ─► (results) ─► tasks, in the turn that follows
//! ```
//! Everything but the transport is `!Send` and lives in thread-local storage of the thread that the
//! stage is started on; the stage itself, which travels there, carries only what it needs to begin.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use timestone_clock::Clock;
use timestone_cluster::{MasterAnswer, MasterCommand};
use timestone_seda::{Context, Stage};
use timestone_session::Engine;
use timestone_types::Timestamp;

use crate::event::ClientEvent;
use crate::event_loop::Core;
use crate::limits;
use crate::local::LocalDb;
use crate::shared::LoopShared;
use crate::transport::Transport;

thread_local! {
    /// The loops of this thread, by the number of their stage.
    static LOOPS: RefCell<Vec<(u64, Rc<Core>)>> = const { RefCell::new(Vec::new()) };
}

static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);

/// The stage of a client. Made by [`crate::in_process`] or inside `connect`.
pub(crate) struct ClientStage<T> {
    number: u64,
    name: String,
    /// Until it is started.
    engine: Option<Engine>,
    shared: Arc<LoopShared>,
    transport: T,
    clock: Arc<dyn Clock>,
    /// When the clock's error bound was read last.
    bound_of: Option<Timestamp>,
    /// When another client id may be asked for.
    next_id: Timestamp,
    closes_at: Option<Timestamp>,
    gone: bool,
    deadline: Option<Timestamp>,
}

impl<T> ClientStage<T> {
    pub(crate) fn new(
        name: String,
        engine: Engine,
        shared: Arc<LoopShared>,
        transport: T,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
            name,
            engine: Some(engine),
            shared,
            transport,
            clock,
            bound_of: None,
            next_id: Timestamp::ZERO,
            closes_at: None,
            gone: false,
            deadline: None,
        }
    }

    /// The loop, which lives on this thread once the stage was started here.
    fn core(&self) -> Option<Rc<Core>> {
        LOOPS.with_borrow(|loops| {
            loops.iter().find(|entry| entry.0 == self.number).map(|entry| Rc::clone(&entry.1))
        })
    }

    /// Asks the master for a new id, when a server said that ours is outdated.
    fn renew(&mut self, core: &Rc<Core>) {
        if !core.engine.borrow().wants_client() || core.now() < self.next_id {
            return;
        }
        self.next_id = core.now().saturating_add(limits::RENEW_INTERVAL);
        let Ok(db) = LocalDb::shared(core) else { return };
        core.tasks.spawn(Box::pin(async move {
            let core = Rc::clone(db.core());
            if let Ok(MasterAnswer::Clients(block)) =
                db.master().ask(&MasterCommand::RegisterClient { count: 1 }).await
            {
                // Another answer may have come first.
                let mut engine = core.engine.borrow_mut();
                if engine.wants_client() {
                    engine.renew_client(core.now(), block.first);
                }
            }
        }));
    }

    /// Follows a newer map that has come, and asks for one while it is wanted.
    fn look_for_map<E: ClientEvent>(&mut self, context: &mut Context<'_, E>, core: &Core)
    where
        T: Transport<E>,
    {
        let newer = core.newer_map.borrow_mut().take();
        if let Some(map) = newer {
            self.transport.follow(core, map);
        }
        let pull = core.engine.borrow_mut().begin_pull(core.now());
        if let Some(turn) = pull {
            self.transport.pull_map(context, core, turn);
        }
    }

    /// Calls of other threads and tasks, until there is nothing to do or the turn's budget is used
    /// up. Tells whether work is left.
    fn run(&self, core: &Rc<Core>) -> bool {
        self.shared.looked();
        self.shared.drain_wakes(|task| core.tasks.wake(task));
        for _ in 0..limits::COMMANDS_PER_TURN {
            let Some(command) = self.shared.next() else { break };
            command(core);
        }
        self.shared.take_forgotten().into_iter().for_each(|id| core.forget_remote(id));
        core.fire();
        let mut budget = limits::POLLS_PER_TURN;
        loop {
            core.collect();
            if budget == 0 || !core.tasks.has_work() {
                break;
            }
            budget = core.tasks.run(budget);
        }
        core.tasks.has_work() || self.shared.has_commands()
    }

    /// The last turn: what is open is aborted, what was committed is brought to its participants,
    /// bounded in time.
    fn close<E: ClientEvent>(&mut self, context: &mut Context<'_, E>, core: &Rc<Core>)
    where
        T: Transport<E>,
    {
        let now = core.now();
        if self.closes_at.is_none() {
            self.closes_at = Some(now.saturating_add(limits::CLOSE_TIMEOUT));
            self.shared.close();
            core.tasks.clear();
            core.remote.borrow_mut().clear();
            core.end_calls();
        }
        let over = self.closes_at.is_some_and(|until| until <= now);
        if !over && core.engine.borrow().unresolved() > 0 {
            return;
        }
        core.engine.borrow_mut().close(now);
        self.transport.ship(context, core);
        self.transport.leave(context);
        core.end_calls();
        self.gone = true;
        LOOPS.with_borrow_mut(|loops| loops.retain(|entry| entry.0 != self.number));
    }
}

impl<E: ClientEvent, T: Transport<E>> Stage<E> for ClientStage<T> {
    fn name(&self) -> &str {
        &self.name
    }

    fn start(&mut self, context: &mut Context<'_, E>) {
        let Some(engine) = self.engine.take() else { return };
        let core = Rc::new(Core::new(engine, Arc::clone(&self.shared), Arc::clone(&self.clock)));
        core.set_now(context.now());
        self.transport.start(context, &core);
        LOOPS.with_borrow_mut(|loops| loops.push((self.number, core)));
    }

    fn handle(&mut self, context: &mut Context<'_, E>, events: &mut VecDeque<E>) {
        let Some(core) = self.core() else { return events.clear() };
        core.set_now(context.now());
        for event in events.drain(..) {
            match event.into_client() {
                Ok(input) => self.transport.input(context, &core, input),
                Err(_) => tracing::error!(
                    stage = self.name,
                    "A client stage was sent an event that is not for it; it is dropped."
                ),
            }
        }
    }

    fn turn(&mut self, context: &mut Context<'_, E>) {
        let Some(core) = self.core() else { return };
        core.set_now(context.now());
        let now = core.now();
        let is_due = |read: Timestamp| now.since(read) >= limits::MIN_CLOCK_BOUND_INTERVAL;
        // What waits for the clocks is looked at with the bound of this moment.
        let is_sweep = core.engine.borrow().next_deadline().is_some_and(|due| due <= now);
        if is_sweep || self.bound_of.is_none_or(is_due) {
            self.bound_of = Some(now);
            core.engine.borrow_mut().set_clock_error(now, self.clock.error_bound().bound);
        }
        core.engine.borrow_mut().tick(now);
        let more = self.run(&core);
        self.renew(&core);
        self.look_for_map(context, &core);
        self.transport.ship(context, &core);
        if context.is_shutting_down() {
            self.close(context, &core);
        }
        if more {
            context.want_turn();
        }
        let deadlines = [
            core.next_deadline(),
            core.engine.borrow().next_pull(),
            self.transport.next_deadline(),
            self.closes_at,
            self.bound_of.map(|read| read.saturating_add(limits::CLOCK_BOUND_INTERVAL)),
        ];
        self.deadline = deadlines.into_iter().flatten().min();
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        if self.gone { None } else { self.deadline }
    }

    fn drained(&self) -> bool {
        self.gone
    }
}

impl<T> Drop for ClientStage<T> {
    fn drop(&mut self) {
        self.shared.close();
        // On the loop's own thread this is the end of the tasks; elsewhere (never started) there is
        // nothing to end.
        let core = LOOPS
            .try_with(|loops| {
                let mut loops = loops.try_borrow_mut().ok()?;
                let at = loops.iter().position(|entry| entry.0 == self.number)?;
                Some(loops.swap_remove(at).1)
            })
            .ok()
            .flatten();
        if let Some(core) = core {
            core.tasks.clear();
            core.remote.borrow_mut().clear();
            core.end_calls();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::pin::pin;
    use std::task::{self, Poll, Waker};
    use std::time::Duration;

    use timestone_clock::ErrorBound;
    use timestone_cluster::{ExternalMode, Keyspace, KeyspaceName, KeyspaceOptions};
    use timestone_seda::manual::ManualDriver;
    use timestone_seda::{FrameBatch, NetEvent, StageId};
    use timestone_session::{EngineConfig, Routes};
    use timestone_types::{ClientId, Epoch, Expiry, KeyspaceId, ShardId, Version};
    use timestone_wire as wire;
    use wire::{Frame, Frames, Kind, Message};

    use super::*;
    use crate::db::Lifeline;
    use crate::event::ClientStageEvent;
    use crate::inproc::{ByCalls, InProcess, Lanes};
    use crate::{ClockOffset, Db, Pending};

    const CLIENT: StageId = StageId::new(0);
    const SHARD: StageId = StageId::new(1);
    const SERVER: StageId = StageId::new(2);
    const BOUND: Duration = Duration::from_millis(7);
    /// How far the server's clock is ahead, and how long its answers take.
    const AHEAD: Duration = Duration::from_millis(3);
    const DELAY: Duration = Duration::from_millis(2);
    const ORDERS: KeyspaceId = KeyspaceId::new(5);
    const PLAIN: KeyspaceId = KeyspaceId::new(6);

    /// A clock that is off by [`BOUND`] at most.
    #[derive(Debug)]
    struct Bounded(timestone_clock::ManualClock);

    impl Clock for Bounded {
        fn now(&self) -> Timestamp {
            self.0.now()
        }

        fn error_bound(&self) -> ErrorBound {
            ErrorBound { bound: BOUND, synchronised: true }
        }

        fn source(&self) -> &'static str {
            "test"
        }
    }

    /// A client stage stepped by hand; the test is the shard and the master.
    struct Bench {
        driver: ManualDriver<ClientStageEvent>,
        clock: Arc<Bounded>,
        now: Timestamp,
    }

    impl Bench {
        fn new() -> (Self, Db) {
            let shards = vec![(ShardId::new(0), Epoch::new(1))];
            Self::with(Routes::new(1, shards, |_| Some(ShardId::new(0))))
        }

        fn with(routes: Routes) -> (Self, Db) {
            let now = Timestamp::from_nanos(1_000_000_000);
            let clock = Arc::new(Bounded(timestone_clock::ManualClock::new(now)));
            let engine = Engine::new(EngineConfig::default(), ClientId::new(3), routes, 1);
            let shared = Arc::new(LoopShared::new());
            let wiring = InProcess {
                shards: vec![(ShardId::new(0), SHARD)],
                server: SERVER,
                seed: 1,
                by_calls: ByCalls::Nothing,
            };
            let lanes = Lanes::<ClientStageEvent>::new(wiring);
            let stage = ClientStage::new(
                "client".to_owned(),
                engine,
                Arc::clone(&shared),
                lanes,
                Arc::clone(&clock) as _,
            );
            let driver = ManualDriver::new(
                vec![Box::new(stage) as Box<dyn Stage<ClientStageEvent>>],
                now,
                100,
            );
            (Self { driver, clock, now }, Db::new(Lifeline { shared, end: None }))
        }

        fn pass(&mut self, span: Duration) {
            self.now = self.now.saturating_add(span);
            self.driver.set_now(self.now);
            self.clock.0.set(self.now);
            self.driver.send(CLIENT, ClientStageEvent::Wake).unwrap();
            self.driver.turn();
        }

        /// Answers everything that was asked, until nothing is.
        fn serve(&mut self) {
            self.pass(Duration::ZERO);
            while let Some((_, event)) = self.driver.take_sent() {
                let ClientStageEvent::Net(NetEvent::FrameBatch(frame_batch)) = event else {
                    panic!("unexpected: {event:?}")
                };
                let mut out = Vec::new();
                let reading = wire::ClockIs::new(self.now.saturating_add(AHEAD), Some(BOUND));
                reading.encode(&wire::Envelope::default(), &mut out);
                // The network takes as long.
                self.clock.0.set(self.now.saturating_add(DELAY));
                Frames::new(&frame_batch.bytes).for_each(|frame| answer(&frame.unwrap(), &mut out));
                self.driver
                    .send(
                        CLIENT,
                        ClientStageEvent::Net(NetEvent::FrameBatch(FrameBatch::new(
                            frame_batch.reply_to,
                            out,
                        ))),
                    )
                    .unwrap();
                self.driver.turn();
            }
        }

        /// The result of a call after one round of answers, if it is there.
        fn outcome<T>(&mut self, call: &mut Pending<T>) -> Option<T> {
            self.serve();
            match pin!(call).as_mut().poll(&mut task::Context::from_waker(Waker::noop())) {
                Poll::Ready(result) => Some(result.unwrap()),
                Poll::Pending => None,
            }
        }

        fn wait<T>(&mut self, mut call: Pending<T>) -> T {
            self.outcome(&mut call).expect("answered at once")
        }

        /// When the acknowledgement of a commit comes: not before the error bound of this clock has
        /// passed a timestamp that is ahead of it by as much.
        fn expect_wait(&mut self, mut call: Pending<Timestamp>) {
            let begun = self.now;
            assert!(
                self.outcome(&mut call).is_none(),
                "the shard has answered, the clocks have not caught up"
            );
            self.pass(2 * BOUND - Duration::from_micros(1));
            assert!(self.outcome(&mut call).is_none());
            // The clock is read when it is committed, which an answer may have been waited for.
            self.pass(DELAY + Duration::from_micros(2));
            let at = self.outcome(&mut call).expect("the error bounds have passed");
            assert!(at >= begun.saturating_add(BOUND) && self.now > at.saturating_add(BOUND));
        }
    }

    fn keyspaces() -> Vec<Keyspace> {
        let name = |name| KeyspaceName::new(name).unwrap();
        let options = KeyspaceOptions { external: ExternalMode::Wait, ..KeyspaceOptions::DEFAULT };
        let plain = Keyspace { id: PLAIN, name: name("plain"), options: KeyspaceOptions::DEFAULT };
        vec![
            Keyspace::default_keyspace(),
            Keyspace { id: ORDERS, name: name("orders"), options },
            plain,
        ]
    }

    fn answer(frame: &Frame<'_>, out: &mut Vec<u8>) {
        let envelope = frame.reply_envelope(Epoch::new(1), frame.envelope().map_version);
        match frame.kind() {
            Kind::MasterAsk => {
                let answer = match wire::MasterAsk::decode(frame).unwrap().master_command().unwrap()
                {
                    MasterCommand::ListKeyspaces => MasterAnswer::Keyspaces(keyspaces()),
                    MasterCommand::CreateKeyspace { .. } => {
                        MasterAnswer::Created(keyspaces().swap_remove(1))
                    }
                    other => panic!("not asked in this test: {other:?}"),
                };
                let mut bytes = Vec::new();
                answer.encode(&mut bytes);
                wire::MasterReply { answer: &bytes }.encode(&envelope, out);
            }
            Kind::Write => {
                let write = wire::Write::decode(frame).unwrap();
                let written = wire::Written {
                    txn: write.txn,
                    commit: write.commit,
                    verdict: wire::Verdict::Yes,
                    previous_present: false,
                    previous_version: Version::ZERO,
                    previous_expires_at: Expiry::NEVER,
                    previous_value: b"",
                };
                written.encode(&envelope, out);
            }
            Kind::Prepare => {
                let prepare = wire::Prepare::decode(frame).unwrap();
                let verdict = wire::Verdict::Yes;
                wire::Vote { txn: prepare.txn, commit: prepare.commit, verdict }
                    .encode(&envelope, out);
            }
            Kind::Report => {}
            other => panic!("not asked in this test: {}", other.name()),
        }
    }

    #[test]
    fn handles_on_a_keyspace_with_external_wait_are_told_of_commits_when_every_clock_has_passed_them()
     {
        let (mut bench, db) = Bench::new();
        let id = bench.wait(db.keyspace_id("orders"));
        assert_eq!(id, ORDERS);
        let orders = db.in_keyspace(id);
        bench.expect_wait(orders.put(b"k", b"v"));
        let owner = bench.wait(orders.begin_on_loop(&crate::TransactionOptions::default()));
        let transaction = crate::Transaction::new(&orders, owner);
        bench.wait(transaction.put(b"k", b"w"));
        bench.expect_wait(transaction.commit());
        // Others do not wait.
        bench.wait(db.put(b"k", b"v"));
        let plain = db.in_keyspace(bench.wait(db.keyspace_id("plain")));
        bench.wait(plain.put(b"k", b"v"));
    }

    /// The turn began before the command came, and others may have been told of a commit since.
    #[test]
    fn a_commit_that_waits_for_the_clocks_is_proposed_by_a_reading_that_is_younger_than_its_command()
     {
        let (mut bench, db) = Bench::new();
        let orders = db.in_keyspace(bench.wait(db.keyspace_id("orders")));
        let owner = bench.wait(orders.begin_on_loop(&crate::TransactionOptions::default()));
        let transaction = crate::Transaction::new(&orders, owner);
        bench.wait(transaction.put(b"k", b"w"));
        let asked = bench.now.saturating_add(Duration::from_millis(40));
        bench.clock.0.set(asked);
        let _calls = (transaction.commit(), orders.put(b"l", b"v"));
        bench.driver.send(CLIENT, ClientStageEvent::Wake).unwrap();
        bench.driver.turn();
        let mut commits = Vec::new();
        while let Some((_, event)) = bench.driver.take_sent() {
            let ClientStageEvent::Net(NetEvent::FrameBatch(frame_batch)) = event else { continue };
            for frame in Frames::new(&frame_batch.bytes).map(Result::unwrap) {
                match frame.kind() {
                    Kind::Write => commits.push(wire::Write::decode(&frame).unwrap().commit),
                    Kind::Prepare => commits.push(wire::Prepare::decode(&frame).unwrap().commit),
                    _ => {}
                }
            }
        }
        assert_eq!(commits.len(), 2);
        let lowest = asked.saturating_add(BOUND);
        assert!(commits.iter().all(|&commit| commit >= lowest), "{commits:?}, {lowest}");
    }

    #[test]
    fn whoever_knows_the_id_of_a_keyspace_with_external_wait_alone_waits_too() {
        let (mut bench, db) = Bench::new();
        bench.expect_wait(db.in_keyspace(ORDERS).put(b"k", b"v"));
        // A transaction that begins before it is known, and one that writes there beside its own
        // keyspace.
        let (mut bench, db) = Bench::new();
        let orders = db.in_keyspace(ORDERS);
        let owner = bench.wait(orders.begin_on_loop(&crate::TransactionOptions::default()));
        let transaction = crate::Transaction::new(&orders, owner);
        bench.wait(transaction.put(b"k", b"w"));
        bench.expect_wait(transaction.commit());
        let (mut bench, db) = Bench::new();
        bench.expect_wait(db.spawn(|db| async move {
            let transaction = db.begin(&crate::TransactionOptions::default())?;
            transaction.put_in(ORDERS, b"k", b"x", Expiry::NEVER)?;
            transaction.commit().await
        }));
        // Others do not wait, nor does one that does not exist.
        let (mut bench, db) = Bench::new();
        for id in [6, 7, 0] {
            bench.wait(db.in_keyspace(KeyspaceId::new(id)).put(b"k", b"v"));
        }
    }

    /// The watermark of the last report that is sent in the next seconds.
    fn reported(bench: &mut Bench) -> Timestamp {
        (0..40).map(|_| reported_now(bench)).max().expect("some turns")
    }

    /// The same of a turn 100 ms later.
    fn reported_now(bench: &mut Bench) -> Timestamp {
        let mut last = Timestamp::ZERO;
        bench.pass(Duration::from_millis(100));
        while let Some((_, event)) = bench.driver.take_sent() {
            let ClientStageEvent::Net(NetEvent::FrameBatch(batch)) = event else { continue };
            for frame in Frames::new(&batch.bytes).map(Result::unwrap) {
                if frame.kind() == Kind::Report {
                    last = last.max(wire::Report::decode(&frame).unwrap().watermark);
                }
            }
        }
        last
    }

    /// How far behind the clock the watermark stays that a client reports when a transaction was given up while
    /// it began.
    fn behind_after_a_begin_that_is_given_up() -> Duration {
        let (mut bench, db) = Bench::new();
        let options = crate::TransactionOptions::default();
        let mut begun = Box::pin(db.begin(&options));
        let mut context = task::Context::from_waker(Waker::noop());
        assert!(begun.as_mut().poll(&mut context).is_pending());
        bench.pass(Duration::ZERO);
        drop(begun);
        let watermark = reported(&mut bench);
        bench.now.since(watermark)
    }

    #[test]
    fn a_transaction_that_is_given_up_while_it_begins_holds_no_watermark() {
        let behind = behind_after_a_begin_that_is_given_up();
        assert!(behind < Duration::from_secs(1), "{behind:?}");
    }

    /// The same of one that is dropped while the queue of calls is full.
    fn behind_after_a_drop_with_a_full_queue() -> Duration {
        let (mut bench, db) = Bench::new();
        let owner = bench.wait(db.begin_on_loop(&crate::TransactionOptions::default()));
        let transaction = crate::Transaction::new(&db, owner);
        let mut calls = Vec::new();
        while calls.len() < limits::COMMAND_QUEUE {
            calls.push(db.stats());
        }
        drop(transaction);
        calls.clear();
        let watermark = reported(&mut bench);
        bench.now.since(watermark)
    }

    #[test]
    fn a_transaction_that_is_dropped_while_many_calls_wait_holds_no_watermark() {
        let behind = behind_after_a_drop_with_a_full_queue();
        assert!(behind < Duration::from_secs(1), "{behind:?}");
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn a_transaction_that_nobody_owns_is_found() {
        use timestone_types::planted::{Bug, with};
        let behind = with(Bug::KeepsUnowned, behind_after_a_drop_with_a_full_queue);
        assert!(behind > Duration::from_secs(1), "{behind:?}");
    }

    /// The same while the queue is full again before each turn: how far behind the watermark is after 3 s.
    fn behind_under_calls_without_end() -> Duration {
        let (mut bench, db) = Bench::new();
        let owner = bench.wait(db.begin_on_loop(&crate::TransactionOptions::default()));
        let transaction = crate::Transaction::new(&db, owner);
        let fill = || while db.stats().refusal().is_none() {};
        fill();
        drop(transaction);
        let mut watermark = Timestamp::ZERO;
        for _ in 0..30 {
            fill();
            watermark = watermark.max(reported_now(&mut bench));
        }
        bench.now.since(watermark)
    }

    #[test]
    fn a_transaction_that_is_dropped_is_forgotten_however_many_calls_come() {
        let behind = behind_under_calls_without_end();
        assert!(behind < Duration::from_secs(1), "{behind:?}");
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn a_transaction_that_is_forgotten_only_when_no_call_waits_is_found() {
        use timestone_types::planted::{Bug, with};
        let behind = with(Bug::ForgetsWhenIdle, behind_under_calls_without_end);
        assert!(behind > Duration::from_secs(1), "{behind:?}");
    }

    /// What becomes of a transaction one of whose writes finds the queue of calls full.
    fn committed_without_a_write() -> crate::Result<Timestamp> {
        let (mut bench, db) = Bench::new();
        let owner = bench.wait(db.begin_on_loop(&crate::TransactionOptions::default()));
        let transaction = crate::Transaction::new(&db, owner);
        while db.stats().refusal().is_none() {}
        drop(transaction.put(b"k", b"v"));
        (0..=limits::COMMAND_QUEUE / limits::COMMANDS_PER_TURN)
            .for_each(|_| bench.pass(Duration::ZERO));
        let mut commit = pin!(transaction.commit());
        bench.serve();
        match commit.as_mut().poll(&mut task::Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => result,
            Poll::Pending => panic!("nothing was written that others could hold up"),
        }
    }

    #[test]
    fn a_transaction_that_lacks_a_write_does_not_commit() {
        let error = committed_without_a_write().unwrap_err();
        assert_eq!((error.code(), error.retryable()), (crate::ErrorCode::Busy, true));
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn a_transaction_that_commits_without_a_write_is_found() {
        use timestone_types::planted::{Bug, with};
        with(Bug::CommitsUnwritten, committed_without_a_write).unwrap();
    }

    /// What becomes of a commit by one of two clones when the other one was to abort the transaction, or
    /// to commit it, and found the queue of calls full.
    fn committed_when_it_was_over(commits: bool) -> crate::Result<Timestamp> {
        let (mut bench, db) = Bench::new();
        let owner = bench.wait(db.begin_on_loop(&crate::TransactionOptions::default()));
        let transaction = crate::Transaction::new(&db, owner);
        while db.stats().refusal().is_none() {}
        if commits {
            assert!(transaction.clone().commit().refusal().is_some());
        } else {
            transaction.clone().abort();
        }
        (0..=limits::COMMAND_QUEUE / limits::COMMANDS_PER_TURN)
            .for_each(|_| bench.pass(Duration::ZERO));
        let mut commit = pin!(transaction.commit());
        bench.serve();
        match commit.as_mut().poll(&mut task::Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => result,
            Poll::Pending => panic!("nothing was written that others could hold up"),
        }
    }

    #[test]
    fn a_transaction_is_over_also_when_its_end_has_not_reached_the_loop() {
        for commits in [false, true] {
            let error = committed_when_it_was_over(commits).unwrap_err();
            assert_eq!(error.code(), crate::ErrorCode::Busy, "{commits}");
        }
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn a_transaction_that_commits_after_its_end_is_found() {
        use timestone_types::planted::{Bug, with};
        for commits in [false, true] {
            with(Bug::CommitsUnwritten, || committed_when_it_was_over(commits)).unwrap();
        }
    }

    #[test]
    fn a_read_that_is_asked_before_a_write_of_its_transaction_does_not_see_it() {
        let (mut bench, db) = Bench::new();
        let owner = bench.wait(db.begin_on_loop(&crate::TransactionOptions::default()));
        let transaction = crate::Transaction::new(&db, owner);
        let (first, second) = (transaction.get(b"k"), transaction.get_many(&[b"l"]));
        let _puts = (transaction.put(b"k", b"new"), transaction.put(b"l", b"new"));
        bench.pass(Duration::ZERO);
        let mut asked = 0;
        while let Some((_, event)) = bench.driver.take_sent() {
            let ClientStageEvent::Net(NetEvent::FrameBatch(batch)) = event else { continue };
            let frames = Frames::new(&batch.bytes).map(Result::unwrap);
            asked += frames.filter(|frame| frame.kind() == Kind::Get).count();
        }
        assert_eq!(asked, 2, "both are asked of their shard");
        let mut context = task::Context::from_waker(Waker::noop());
        assert!(pin!(first).as_mut().poll(&mut context).is_pending());
        assert!(pin!(second).as_mut().poll(&mut context).is_pending());
    }

    #[test]
    fn a_scan_does_not_begin_before_it_is_known_which_shards_there_are() {
        // Nobody could say how new the keyspace is: the snapshot might lie below what was
        // acknowledged.
        let (mut bench, db) = Bench::with(Routes::new(0, Vec::new(), |_| None));
        let mut caught_up = db.catch_up();
        bench.pass(Duration::ZERO);
        let answer = pin!(&mut caught_up).poll(&mut task::Context::from_waker(Waker::noop()));
        let Poll::Ready(Err(error)) = answer else { panic!("{answer:?}") };
        assert_eq!(error.code(), crate::ErrorCode::WrongShard);
        assert!(error.retryable());
    }

    #[test]
    fn an_answer_tells_how_far_the_clock_of_its_server_is_away() {
        let (mut bench, db) = Bench::new();
        assert_eq!(bench.wait(db.clock_offsets()), []);
        bench.wait(db.put(b"k", b"v"));
        let offsets = bench.wait(db.clock_offsets());
        let &[(shard, offset)] = &offsets[..] else { panic!("{offsets:?}") };
        let (ahead, delay) = (AHEAD.as_nanos() as i64, DELAY.as_nanos() as i64);
        // The clock was read when the answer had arrived, although the turn began before.
        let expected = ClockOffset {
            least_ns: ahead - delay,
            most_ns: ahead,
            error: Some(BOUND),
            at: bench.now.saturating_add(DELAY),
        };
        assert_eq!((shard, offset), (ShardId::new(0), expected));
    }

    /// Nobody knows yet whether its commit has to wait for the clocks.
    #[test]
    fn a_task_may_end_with_a_commit_in_a_keyspace_that_is_known_by_its_number_alone() {
        let (mut bench, db) = Bench::new();
        let committed = db.in_keyspace(PLAIN).spawn(|db| {
            let tx = db.begin(&crate::TransactionOptions::default()).unwrap();
            tx.put(b"k", b"v").unwrap();
            tx.commit()
        });
        bench.wait(committed);
    }

    #[test]
    fn whoever_creates_a_keyspace_with_external_wait_waits_too() {
        let (mut bench, db) = Bench::new();
        let options = KeyspaceOptions { external: ExternalMode::Wait, ..KeyspaceOptions::DEFAULT };
        let created = bench.wait(db.create_keyspace("orders", options));
        bench.expect_wait(db.in_keyspace(created.id).put(b"k", b"v"));
    }
}
