//! Reads and puts of single keys that are asked of shards of this process by calls.
//!
//! ```text
//!   get, put ─► the shard's open batch ─ end of the turn ─► the shard's stage, on whichever thread ─► take_answers
//!                                                                                                     ├─► the operation is finished
//!                                                                                                     └─► not now: asked in a frame
//! ```
//! A call takes no slot of the engine and no frame, and a put by a call has no name: a batch is neither
//! lost nor doubled on its way (K6 of docs/protocol/transactions.md). What was given up while it was
//! under way may still take place, so the session goes on above it; when it was refused it is not
//! asked again.
//!
//! Where a loop ends, what it has called is given up, and what still comes back has no callers:
//! shards may be slower than the loop, which waits for what it has asked in frames.
//!
//! Invariants: each call of a batch belongs to one operation; a batch comes back with as many answers
//! as it has calls; a session is open as long as a call of it is under way.

use std::rc::Rc;

use timestone_session::{Condition, Engine, Mutation, OpId, RequestOptions, Step, ValueView};
use timestone_types::{ClientId, Epoch, Expiry, ShardId, is_planted};
use timestone_wire::{CallAnswer, CallAt, Calls};

use crate::event_loop::Core;
use crate::inproc::ByCalls;
use crate::limits::{BYTES_OF_CALL, BYTES_OF_CALLS, COST_OF_CALL, KEPT_CALLERS, SPARE_BATCHES};
use crate::local::SessionHandle;
use crate::ops::{Output, owned};

/// Whom the answer to a call is for.
pub(crate) struct Caller {
    pub(crate) op: OpId,
    pub(crate) session: Rc<SessionHandle>,
}

/// A shard that may be called.
struct Callee {
    shard: ShardId,
    open: Option<Box<Calls>>,
}

/// A place that takes calls now, and by which epoch it is known.
#[derive(Clone, Copy)]
pub(crate) struct CallRoute {
    place: usize,
    pub(crate) epoch: Epoch,
}

/// The calls of one loop that are collected or under way.
#[derive(Default)]
pub(crate) struct CallTable {
    callees: Vec<Callee>,
    takes_puts: bool,
    /// What all that is collected or under way takes.
    bytes: usize,
    /// By the number of their batch, in the order of its calls.
    waiting: Vec<Vec<Caller>>,
    free: Vec<u32>,
    /// Batches that have come back, to be used again.
    #[expect(clippy::vec_box, reason = "batches travel in the boxes that they are kept in")]
    spare: Vec<Box<Calls>>,
}

impl CallTable {
    /// From now on these shards may be called.
    pub(crate) fn begin(&mut self, shards: impl Iterator<Item = ShardId>, by_calls: ByCalls) {
        if by_calls != ByCalls::Nothing {
            self.callees = shards.map(|shard| Callee { shard, open: None }).collect();
        }
        self.takes_puts = by_calls == ByCalls::ReadsAndPuts;
    }

    /// Where a key may be asked for by a call, or a value of so many bytes be put. `None`: it is to be
    /// asked in a frame.
    #[inline]
    pub(crate) fn route(
        &self,
        engine: &Engine,
        key: &[u8],
        value: Option<usize>,
    ) -> Option<CallRoute> {
        if self.callees.is_empty()
            || self.bytes > BYTES_OF_CALLS
            || value.is_some_and(|bytes| !self.takes_puts || bytes > BYTES_OF_CALL)
        {
            return None;
        }
        let (shard, epoch) = engine.direct_route(key)?;
        // Shards are few and numbered from 0: the place is almost always the number.
        let number = usize::from(shard.get());
        let place = match self.callees.get(number) {
            Some(callee) if callee.shard == shard => number,
            _ => self.callees.iter().position(|callee| callee.shard == shard)?,
        };
        Some(CallRoute { place, epoch })
    }

    /// Collects a call.
    #[inline]
    pub(crate) fn ask(
        &mut self,
        client: ClientId,
        route: CallRoute,
        waiting: Caller,
        at: CallAt,
        (key, put): (&[u8], Option<(&[u8], Expiry)>),
    ) {
        let Self { callees, waiting: all, free, spare, bytes, .. } = self;
        *bytes += COST_OF_CALL + key.len() + put.map_or(0, |(value, _)| value.len());
        let calls = callees[route.place].open.get_or_insert_with(|| {
            let number = free.pop().unwrap_or_else(|| {
                all.push(Vec::new());
                all.len() as u32 - 1
            });
            let mut calls = spare.pop().unwrap_or_default();
            calls.begin(client, number);
            calls
        });
        match put {
            Some((value, expires_at)) => calls.put(at, key, value, expires_at),
            None => calls.get(at, key),
        }
        let of_batch = &mut all[calls.number as usize];
        of_batch.push(waiting);
        debug_assert_eq!(of_batch.len(), calls.asked.len(), "each call is somebody's");
    }

    /// The next batch that is to be sent.
    pub(crate) fn next_batch(&mut self) -> Option<(ShardId, Box<Calls>)> {
        self.callees.iter_mut().find_map(|callee| Some((callee.shard, callee.open.take()?)))
    }

    /// Whose the calls of a batch are that has come back; `None` when all of them were given up.
    fn take_waiting(&mut self, number: u32) -> Option<Vec<Caller>> {
        let has_ended = self.callees.is_empty() && !is_planted!(AnswersAfterItsEnd);
        (!has_ended).then(|| std::mem::take(&mut self.waiting[number as usize]))
    }

    /// A batch is dealt with.
    fn is_over(&mut self, mut calls: Box<Calls>, mut waiting: Vec<Caller>) {
        waiting.clear();
        waiting.shrink_to(KEPT_CALLERS);
        let counted = calls.asked.byte_count() + COST_OF_CALL * calls.asked.len();
        assert!(self.bytes >= counted, "what comes back was counted");
        self.bytes -= counted;
        self.waiting[calls.number as usize] = waiting;
        self.free.push(calls.number);
        calls.clear();
        if self.spare.len() < SPARE_BATCHES * self.callees.len() {
            self.spare.push(calls);
        }
    }

    /// Whose calls are collected or under way, at the end.
    pub(crate) fn end(&mut self) -> impl Sized + use<> {
        self.callees.clear();
        std::mem::take(&mut self.waiting)
    }
}

/// Hands the answers of a batch to the operations that wait for them.
pub(crate) fn take_answers(core: &Core, calls: Box<Calls>) {
    let Some(waiting) = core.calls.borrow_mut().take_waiting(calls.number) else { return };
    assert_eq!(calls.answers.len(), waiting.len(), "a batch comes back with its answers");
    let (mut engine, now) = (core.engine.borrow_mut(), core.now());
    for (place, (answer, one)) in calls.answers.iter().zip(&waiting).enumerate() {
        let session = one.session.id();
        match answer {
            CallAnswer::Found { version, expires_at, value } => {
                engine.end_direct_read(now, session, (version, expires_at), value.is_some());
                let view = ValueView { value, version, expires_at };
                core.finish(one.op, |_| Output::Value(owned(view)));
            }
            CallAnswer::Put(at) => {
                engine.end_direct(session, at);
                core.finish(one.op, |_| Output::Written(at, None));
            }
            CallAnswer::NotNow => ask_instead(core, &mut engine, &calls, place, one),
        }
    }
    drop(engine);
    core.calls.borrow_mut().is_over(calls, waiting);
}

/// What could not be done by a call is asked in a frame, if somebody still waits for it.
#[cold]
fn ask_instead(core: &Core, engine: &mut Engine, calls: &Calls, place: usize, one: &Caller) {
    if !core.ops.borrow_mut().is_waiting(one.op) {
        return;
    }
    let (call, session, now) = (calls.asked.call(place), one.session.id(), core.now());
    let (keyspace, options) = (call.at.keyspace, RequestOptions::default());
    let asked = match call.put {
        None => engine.get_latest(now, session, keyspace, call.key, options, one.op),
        Some((value, expires_at)) => {
            let mutation = Mutation::Put { value, expires_at };
            let condition = Condition::Always;
            engine.write_if(now, session, keyspace, call.key, mutation, condition, options, one.op)
        }
    };
    match asked {
        Ok(Step::Pending(ticket)) => core.ops.borrow_mut().is_asked_in_frame(one.op, ticket),
        Ok(_) => debug_assert!(false, "a request for one key is answered by its shard"),
        Err(error) => core.finish(one.op, |_| Output::Failed(error.into())),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use timestone_clock::ManualClock;
    use timestone_seda::manual::ManualDriver;
    use timestone_seda::{NetEvent, Stage, StageId};
    use timestone_session::{EngineConfig, Routes};
    use timestone_types::limits::PLACED_WITHIN;
    use timestone_types::{Timestamp, Version};
    use timestone_wire::{self as wire, Frames, Kind, Message as _};

    use super::*;
    use crate::db::Lifeline;
    use crate::event::ClientStageEvent;
    use crate::inproc::{InProcess, Lanes};
    use crate::shared::LoopShared;
    use crate::stage::ClientStage;
    use crate::{Db, LocalDb, Pending};

    const CLIENT: StageId = StageId::new(0);
    const SHARD: StageId = StageId::new(1);
    const NOW: Timestamp = Timestamp::from_nanos(1_000_000_000);
    const AT: Timestamp = Timestamp::from_nanos(1_000_500_000);

    /// A client stage stepped by hand; the test is the shard.
    struct Bench {
        driver: ManualDriver<ClientStageEvent>,
        db: Db,
    }

    impl Bench {
        fn new(by_calls: ByCalls) -> Self {
            let shards = vec![(ShardId::new(0), Epoch::new(1))];
            let routes = Routes::new(1, shards, |_| Some(ShardId::new(0)));
            let engine = Engine::new(EngineConfig::default(), ClientId::new(3), routes, 1);
            let shared = Arc::new(LoopShared::new());
            let shards = vec![(ShardId::new(0), SHARD)];
            let wiring = InProcess { shards, server: StageId::new(2), seed: 1, by_calls };
            let lanes = Lanes::<ClientStageEvent>::new(wiring);
            let (name, clock) = ("client".to_owned(), Arc::new(ManualClock::new(NOW)));
            let stage = ClientStage::new(name, engine, Arc::clone(&shared), lanes, clock as _);
            let stages = vec![Box::new(stage) as Box<dyn Stage<ClientStageEvent>>];
            let driver = ManualDriver::new(stages, NOW, 100);
            Self { driver, db: Db::new(Lifeline { shared, end: None }) }
        }

        fn turn(&mut self) {
            self.driver.send(CLIENT, ClientStageEvent::Wake).unwrap();
            self.driver.turn();
        }

        /// The calls that were sent, and the kinds of frames.
        #[expect(clippy::vec_box, reason = "batches travel in boxes")]
        fn sent(&mut self) -> (Vec<Box<Calls>>, Vec<Kind>) {
            self.turn();
            let (mut all, mut kinds) = (Vec::new(), Vec::new());
            while let Some((to, event)) = self.driver.take_sent() {
                match event {
                    ClientStageEvent::Calls { reply_to, calls } => {
                        assert_eq!((to, reply_to), (SHARD, CLIENT));
                        all.push(calls);
                    }
                    ClientStageEvent::Net(NetEvent::FrameBatch(batch)) if to == SHARD => {
                        let frames = Frames::new(&batch.bytes).map(Result::unwrap);
                        kinds.extend(
                            frames.map(|frame| frame.kind()).filter(|&kind| kind != Kind::Report),
                        );
                    }
                    _ => {}
                }
            }
            (all, kinds)
        }

        fn calls(&mut self) -> Box<Calls> {
            let (mut all, kinds) = self.sent();
            assert_eq!((all.len(), kinds.len()), (1, 0), "{kinds:?}");
            all.remove(0)
        }

        fn answer(&mut self, calls: Box<Calls>) {
            let event = ClientStageEvent::Calls { reply_to: CLIENT, calls };
            self.driver.send(CLIENT, event).unwrap();
            self.turn();
        }
    }

    fn outcome<T>(pending: Pending<T>) -> crate::Result<T> {
        pending.wait()
    }

    #[test]
    fn gets_and_puts_are_called_and_answered_in_one_batch() {
        let mut bench = Bench::new(ByCalls::ReadsAndPuts);
        let (one, none) = (bench.db.get(b"one"), bench.db.get(b"none"));
        let put = bench.db.put(b"two", b"2");
        let mut calls = bench.calls();
        assert_eq!((calls.asked.len(), calls.asked.client()), (3, ClientId::new(3)));
        let call = calls.asked.call(2);
        assert_eq!((call.key, call.put), (&b"two"[..], Some((&b"2"[..], Expiry::NEVER))));
        assert!(call.at.begin >= NOW && call.at.epoch == Epoch::new(1));
        let (version, expires_at) = (Version::new(AT, ClientId::new(7)), Expiry::NEVER);
        calls.answers.add(CallAnswer::Found { version, expires_at, value: Some(b"1") });
        calls.answers.add(CallAnswer::Found { version, expires_at, value: None });
        calls.answers.add(CallAnswer::Put(AT.next()));
        bench.answer(calls);
        let found = outcome(one).unwrap().unwrap();
        assert_eq!((&found[..], found.version()), (&b"1"[..], version));
        assert!(outcome(none).unwrap().is_none());
        assert_eq!(outcome(put).unwrap(), AT.next());
        // What the session does next comes after what it has seen.
        let _next = bench.db.get(b"one");
        assert!(bench.calls().asked.call(0).at.begin > AT.next());
    }

    #[test]
    fn what_is_refused_is_asked_in_frames_and_what_is_not_for_calls_at_once() {
        let mut bench = Bench::new(ByCalls::ReadsAndPuts);
        let _asked = (bench.db.get(b"one"), bench.db.put(b"two", b"2"));
        let mut calls = bench.calls();
        calls.refuse();
        bench.answer(calls);
        assert_eq!(bench.sent().1, [Kind::Get, Kind::Write]);
        let in_time = bench.db.with_deadline(Duration::from_secs(1)).get(b"one");
        let _asked =
            (in_time, bench.db.delete(b"one"), bench.db.put(b"l", &vec![0; BYTES_OF_CALL + 1]));
        let (calls, kinds) = bench.sent();
        assert_eq!((calls.len(), kinds), (0, vec![Kind::Get, Kind::Write, Kind::Write]));
        // Puts wait for a log, and are not called where there is one.
        let mut bench = Bench::new(ByCalls::Reads);
        let _asked = (bench.db.get(b"one"), bench.db.put(b"two", b"2"));
        let (calls, kinds) = bench.sent();
        assert_eq!((calls.len(), calls[0].asked.len(), kinds), (1, 1, vec![Kind::Write]));
        let mut bench = Bench::new(ByCalls::Nothing);
        let _asked = bench.db.get(b"one");
        assert_eq!(bench.sent().1, [Kind::Get]);
    }

    #[test]
    fn a_session_goes_on_above_a_put_that_it_gave_up_and_that_is_not_asked_again() {
        for is_answered in [false, true] {
            let mut bench = Bench::new(ByCalls::ReadsAndPuts);
            let mut running = bench.db.spawn(move |db: LocalDb| async move {
                let put = |value: &'static [u8]| {
                    let mutation = Mutation::Put { value, expires_at: Expiry::NEVER };
                    db.write(b"k", mutation, Condition::Always, false)
                };
                drop(put(b"given up"));
                put(b"wanted").await?.or_condition(b"k")
            });
            let mut calls = bench.calls();
            assert_eq!(calls.asked.len(), 2);
            let begins = [0, 1].map(|place| calls.asked.call(place).at.begin);
            let last_chance = begins[0].next().saturating_add(PLACED_WITHIN);
            assert!(begins[1] > last_chance, "{begins:?}");
            if is_answered {
                calls.answers.add(CallAnswer::Put(last_chance));
                calls.answers.add(CallAnswer::Put(begins[1].next()));
                bench.answer(calls);
                bench.turn();
                assert_eq!(outcome(running).unwrap(), begins[1].next());
                continue;
            }
            calls.refuse();
            bench.answer(calls);
            bench.driver.turn();
            let mut values = Vec::new();
            while let Some((_, event)) = bench.driver.take_sent() {
                if let ClientStageEvent::Net(NetEvent::FrameBatch(batch)) = event {
                    for frame in Frames::new(&batch.bytes).map(Result::unwrap) {
                        let write = wire::Write::decode(&frame).ok();
                        values.extend(write.map(|write| write.value.to_vec()));
                    }
                }
            }
            assert_eq!(values, [b"wanted"]);
            let waker = core::task::Waker::noop();
            let polled = core::future::Future::poll(
                core::pin::pin!(&mut running),
                &mut core::task::Context::from_waker(waker),
            );
            assert!(polled.is_pending(), "it waits for the answer to its frame");
        }
    }

    #[test]
    fn a_batch_that_comes_back_while_its_loop_ends_is_let_go() {
        let mut bench = Bench::new(ByCalls::ReadsAndPuts);
        // A delete is asked in a frame, and is waited for; a get is called.
        let (deleted, got) = (bench.db.delete(b"one"), bench.db.get(b"two"));
        let (mut all, kinds) = bench.sent();
        assert_eq!((all.len(), kinds), (1, vec![Kind::Write]));
        bench.driver.begin_shutdown();
        bench.turn();
        assert!(!bench.driver.is_drained(), "it waits for the delete");
        assert!(outcome(got).is_err(), "it is given up");
        let mut calls = all.remove(0);
        calls.answers.add(CallAnswer::Put(AT));
        bench.answer(calls);
        drop(deleted);
    }
}
