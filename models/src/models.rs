//! The models: few threads, few events, every interleaving.

use loom::sync::Arc;
use loom::sync::atomic::AtomicUsize;
use loom::thread;

use crate::drain::{Counts, is_drained};
use crate::gauge::{AdmissionLimit, Gauge};
use crate::lanes::{LaneSender, ThreadLanes, mesh};
use crate::metrics::{StageMetrics, bump};
use crate::planted::{Bug, planted};
use crate::shutdown_flags::ShutdownFlags;
use crate::sleep::SleepFlag;
use crate::sync::{ArrayQueue, AtomicU64, Ordering};
use crate::{StageId, handoff};

const TO: StageId = StageId(0);

/// Interleavings gone through so far. Counted outside of loom: it is no part of a model.
static EXPLORED: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

/// Interleavings that this process went through.
pub(crate) fn explored() -> u64 {
    EXPLORED.load(Ordering::Relaxed)
}

/// Explores; `preemptions` bounds how often a thread may be interrupted where it need not, which
/// keeps larger models within seconds.
fn explore(preemptions: Option<usize>, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.max_branches = 20_000;
    builder.check(move || {
        EXPLORED.fetch_add(1, Ordering::Relaxed);
        model();
    });
}

/// The waker of a thread: a poller that remembers one wake-up.
struct Poller(loom::sync::Mutex<bool>, loom::sync::Condvar);

impl Poller {
    fn new() -> Self {
        Self(loom::sync::Mutex::new(false), loom::sync::Condvar::new())
    }

    fn wake(&self) {
        *self.0.lock().expect("no thread panics with it") = true;
        self.1.notify_one();
    }

    /// Blocks until woken. A model in which nobody comes is a deadlock, which loom reports.
    fn block(&self) {
        let mut woken = self.0.lock().expect("no thread panics with it");
        while !*woken {
            woken = self.1.wait(woken).expect("no thread panics with it");
        }
        *woken = false;
    }
}

/// Two producers set a bit each; the consumer sleeps in between until it has seen both.
pub(crate) fn sleep() {
    explore(Some(3), || {
        let world =
            Arc::new((SleepFlag::default(), AtomicU64::new(0), Poller::new(), AtomicUsize::new(0)));
        let producers: Vec<_> = [1, 2]
            .map(|bit| {
                let world = Arc::clone(&world);
                thread::spawn(move || {
                    let (flag, events, poller, wakes) = &*world;
                    let early = planted(Bug::WakeBeforePush).then(|| flag.must_wake());
                    events.fetch_add(bit, Ordering::Release);
                    if early.unwrap_or_else(|| flag.must_wake()) {
                        wakes.fetch_add(1, Ordering::Relaxed);
                        poller.wake();
                    }
                })
            })
            .into();
        let (flag, events, poller, wakes) = &*world;
        let mut announced = 0;
        let mut seen = events.load(Ordering::Acquire);
        while seen != 3 {
            announced += 1;
            if flag.may_sleep(|| events.load(Ordering::Relaxed) == seen) {
                poller.block();
                flag.awake();
            }
            seen = events.load(Ordering::Acquire);
        }
        for producer in producers {
            producer.join().expect("a producer ends");
        }
        assert!(
            wakes.load(Ordering::Relaxed) <= announced,
            "one producer pays for each \
            announcement"
        );
    });
}

fn push(lane: &mut LaneSender<u64>, counts: &Counts, flag: &SleepFlag, poller: &Poller) {
    if planted(Bug::BlindChunk) {
        lane.push(1);
    }
    let wake = if planted(Bug::WakeBeforePush) {
        let wake = flag.must_wake();
        lane.push(lane.pushable());
        wake
    } else {
        handoff::push_lane(lane, counts, flag)
    };
    if wake {
        poller.wake();
    }
}

/// A producer queues three events and pushes them through a ring of two; the consumer sleeps when
/// the lane is empty.
pub(crate) fn lanes() {
    explore(None, || {
        let mut lanes = mesh::<u64>(2);
        let mut consumer = lanes.pop().expect("two threads");
        let mut producer = lanes.pop().expect("two threads");
        let world = Arc::new((SleepFlag::default(), Poller::new(), Counts::default()));
        let shared = Arc::clone(&world);
        let pushing = thread::spawn(move || {
            let (flag, poller, counts) = &*shared;
            let lane = producer.0[1].as_mut().expect("a lane to the other thread");
            for event in 0..3 {
                while lane.queue(TO, event).is_err() {
                    thread::yield_now();
                    push(lane, counts, flag, poller);
                }
            }
            while !lane.is_empty() {
                push(lane, counts, flag, poller);
                thread::yield_now();
            }
        });
        let (flag, poller, _) = &*world;
        let receiver = &mut consumer.1[0];
        let mut taken = Vec::new();
        while taken.len() < 3 {
            if receiver.take(2, |to, event| taken.push((to, event))) == 0
                && flag.may_sleep(|| receiver.is_empty())
            {
                poller.block();
                flag.awake();
            }
        }
        pushing.join().expect("the producer ends");
        assert_eq!(taken, [(TO, 0), (TO, 1), (TO, 2)], "in order, each once");
    });
}

/// Two threads outside push an event each; the consumer sleeps when the queue is empty.
pub(crate) fn inject() {
    explore(Some(3), || {
        let world = Arc::new((
            ArrayQueue::<(StageId, u64)>::new(2),
            Counts::default(),
            SleepFlag::default(),
            Poller::new(),
        ));
        let producers: Vec<_> = [1, 2]
            .map(|event| {
                let world = Arc::clone(&world);
                thread::spawn(move || {
                    let (queue, counts, flag, poller) = &*world;
                    let early = planted(Bug::WakeBeforePush).then(|| flag.must_wake());
                    let wake =
                        handoff::inject(queue, TO, event, (counts, flag)).expect("there is room");
                    if early.unwrap_or(wake) {
                        poller.wake();
                    }
                })
            })
            .into();
        let (queue, _, flag, poller) = &*world;
        let mut sum = 0;
        while sum < 3 {
            match queue.pop() {
                Some((_, event)) => sum += event,
                None if flag.may_sleep(|| queue.is_empty()) => {
                    poller.block();
                    flag.awake();
                }
                None => {}
            }
        }
        for producer in producers {
            producer.join().expect("a producer ends");
        }
        assert!(sum == 3 && queue.is_empty(), "each event once");
    });
}

/// Two net stages admit a batch of frames each if there is room, and the stage behind them releases
/// it.
pub(crate) fn gauge() {
    explore(None, || {
        let gauge = Arc::new(Gauge::new(AdmissionLimit { requests: 1, bytes: 100 }));
        let admit = |gauge: &Gauge| {
            if gauge.has_room() {
                gauge.admit(1, 10);
                assert!(
                    gauge.requests() <= 2,
                    "one frame_batch for each net stage, the first within \
                    the limit"
                );
                gauge.release(1, 10);
            }
        };
        let other = {
            let gauge = Arc::clone(&gauge);
            thread::spawn(move || admit(&gauge))
        };
        admit(&gauge);
        other.join().expect("a net stage ends");
        assert_eq!((gauge.requests(), gauge.bytes()), (0, 0), "everything came back");
        assert!(gauge.has_room());
    });
}

/// One event comes from outside, one thread answers with three to the other, which looks after each
/// of its turns whether all is done.
pub(crate) fn drain() {
    explore(Some(3), || {
        let mut lanes = mesh::<u64>(2);
        let mut second = lanes.pop().expect("two threads");
        let mut first = lanes.pop().expect("two threads");
        let world = Arc::new((
            ArrayQueue::<(StageId, u64)>::new(1),
            [Counts::default(), Counts::default()],
            [SleepFlag::default(), SleepFlag::default()],
            AtomicUsize::new(0),
        ));
        let shared = Arc::clone(&world);
        let one = thread::spawn(move || {
            let (queue, counts, flags, handled) = &*shared;
            let lane = first.0[1].as_mut().expect("a lane to the second thread");
            let mut received = 0;
            loop {
                let got = queue.pop().is_some();
                received += u64::from(got);
                if planted(Bug::EarlyReceipt) {
                    counts[0].end_turn(received);
                }
                counts[0].begin_turn();
                if got {
                    handled.fetch_add(1, Ordering::Relaxed);
                    for event in 0..3 {
                        if event == 2 {
                            handoff::push_lane(lane, &counts[0], &flags[1]);
                        }
                        lane.queue(TO, event).expect("two may wait");
                    }
                }
                handoff::push_lane(lane, &counts[0], &flags[1]);
                counts[0].end_turn(received);
                counts[0].say_quiet(lane.is_empty() || planted(Bug::QuietForEver));
                if received == 1 && lane.is_empty() {
                    return;
                }
                thread::yield_now();
            }
        });
        let (queue, counts, flags, handled) = &*world;
        handoff::inject(queue, TO, 0, (&counts[0], &flags[0])).expect("there is room");
        let mut received = 0;
        while received < 3 {
            let taken = second.1[0].take(2, |_, _| ());
            counts[1].begin_turn();
            handled.fetch_add(taken, Ordering::Relaxed);
            received += taken as u64;
            counts[1].end_turn(received);
            counts[1].say_quiet(true);
            if is_drained(counts.iter()) {
                assert_eq!(handled.load(Ordering::Relaxed), 4, "drained, they say");
            }
            thread::yield_now();
        }
        one.join().expect("the first thread ends");
        assert!(is_drained(counts.iter()), "nothing is left");
    });
}

/// Of [`drain_three`].
const DRAIN_PREEMPTIONS: Option<usize> = Some(4);

/// One thread of a chain: takes what comes, hands on what it is told to, and says at the end of
/// each turn where it stands.
struct Link {
    received: u64,
    expected: u64,
}

impl Link {
    /// A turn that took `got` events and queues one for each of the lanes.
    fn turn(
        &mut self,
        got: u64,
        lanes: &mut [&mut LaneSender<u64>],
        shared: (&Counts, [&SleepFlag; 2]),
        handled: &AtomicUsize,
    ) {
        let (counts, flags) = shared;
        self.received += got;
        if planted(Bug::EarlyReceipt) {
            counts.end_turn(self.received);
        }
        counts.begin_turn();
        for _ in 0..got {
            handled.fetch_add(1, Ordering::Relaxed);
            for lane in lanes.iter_mut() {
                lane.queue(TO, 0).expect("two may wait");
            }
        }
        for (lane, flag) in lanes.iter_mut().zip(flags) {
            handoff::push_lane(lane, counts, flag);
        }
        counts.end_turn(self.received);
        counts.say_quiet(lanes.iter().all(|lane| lane.is_empty()));
    }

    fn is_done(&self) -> bool {
        self.received == self.expected
    }
}

/// An event from outside goes to the first of three threads, which hands one on to each of the
/// others; the second hands one on to the third, which looks after each of its turns whether all is
/// done. An event can so pass from a thread that was looked at last to one that was looked at
/// first. Each thread has a fixed number of turns here: waiting for events makes the model too
/// large.
pub(crate) fn drain_three() {
    explore(DRAIN_PREEMPTIONS, || {
        let mut lanes = mesh::<u64>(3);
        let mut third = lanes.pop().expect("three threads");
        let mut second = lanes.pop().expect("three threads");
        let mut first = lanes.pop().expect("three threads");
        let world: Arc<Chain> = Arc::new((
            ArrayQueue::new(1),
            [Counts::default(), Counts::default(), Counts::default()],
            [SleepFlag::default(), SleepFlag::default(), SleepFlag::default()],
            AtomicUsize::new(0),
        ));
        handoff::inject(&world.0, TO, 0, (&world.1[0], &world.2[0])).expect("there is room");
        let shared = Arc::clone(&world);
        let one = thread::spawn(move || {
            let (queue, counts, flags, handled) = &*shared;
            let [_, to_second, to_third] = &mut first.0[..] else {
                unreachable!("a lane for each thread")
            };
            let (second, third) =
                (to_second.as_mut().expect("a lane"), to_third.as_mut().expect("a lane"));
            let got = u64::from(queue.pop().is_some());
            let mut link = Link { received: 0, expected: 1 };
            link.turn(got, &mut [second, third], (&counts[0], [&flags[1], &flags[2]]), handled);
            assert!(
                link.is_done() && second.is_empty() && third.is_empty(),
                "the event was there, and the lanes had room"
            );
        });
        let shared = Arc::clone(&world);
        let two = thread::spawn(move || {
            let mut link = Link { received: 0, expected: 1 };
            for _ in 0..2 {
                second_turn(&mut second, &mut link, &shared);
            }
            (second, link)
        });
        let mut link = Link { received: 0, expected: 2 };
        for _ in 0..2 {
            third_turn(&mut third, &mut link, &world);
        }
        one.join().expect("the first thread ends");
        let (mut second, mut middle) = two.join().expect("the second thread ends");
        // Whatever was not there yet when they looked.
        second_turn(&mut second, &mut middle, &world);
        third_turn(&mut third, &mut link, &world);
        assert!(
            middle.is_done() && link.is_done() && is_drained(world.1.iter()),
            "nothing is left"
        );
    });
}

/// What the threads of [`drain_three`] share.
type Chain = (ArrayQueue<(StageId, u64)>, [Counts; 3], [SleepFlag; 3], AtomicUsize);

fn second_turn(lanes: &mut ThreadLanes<u64>, link: &mut Link, (_, counts, flags, handled): &Chain) {
    let third = lanes.0[2].as_mut().expect("a lane");
    let got = lanes.1[0].take(1, |_, _| ()) as u64;
    link.turn(got, &mut [third], (&counts[1], [&flags[2], &flags[2]]), handled);
}

fn third_turn(lanes: &mut ThreadLanes<u64>, link: &mut Link, (_, counts, flags, handled): &Chain) {
    let got: usize = lanes.1.iter_mut().map(|lane| lane.take(1, |_, _| ())).sum();
    link.turn(got as u64, &mut [], (&counts[2], [&flags[2], &flags[2]]), handled);
    if is_drained(counts.iter()) {
        assert_eq!(handled.load(Ordering::Relaxed), 4, "drained, they say");
    }
}

/// A thread that sleeps whenever it may is ordered to finish and then to stop.
pub(crate) fn stop() {
    explore(None, || {
        let world = Arc::new((ShutdownFlags::default(), SleepFlag::default(), Poller::new()));
        let shared = Arc::clone(&world);
        let reactor = thread::spawn(move || {
            let (flags, flag, poller) = &*shared;
            let mut finishing = false;
            while !flags.is_stopped() {
                if flag.may_sleep(|| flags.nothing_new(finishing)) {
                    poller.block();
                    flag.awake();
                }
                finishing |= flags.is_shutting_down();
            }
            assert!(flags.is_shutting_down(), "what was ordered first is seen first");
        });
        let (flags, _, poller) = &*world;
        for set in [ShutdownFlags::begin_shutdown, ShutdownFlags::stop] {
            if planted(Bug::WakeBeforeOrder) {
                poller.wake();
                set(flags);
            } else {
                set(flags);
                poller.wake();
            }
        }
        reactor.join().expect("the thread ends");
    });
}

/// A stage counts what it does, two threads count what it refused, a third reads.
pub(crate) fn metrics() {
    explore(Some(3), || {
        let world = Arc::new((StageMetrics::default(), Gauge::default()));
        let shared = Arc::clone(&world);
        let stage = thread::spawn(move || {
            let (metrics, _) = &*shared;
            for _ in 0..2 {
                bump(&metrics.events, 1);
            }
            metrics.refused.fetch_add(1, Ordering::Relaxed);
        });
        let shared = Arc::clone(&world);
        let other = thread::spawn(move || {
            let (metrics, _) = &*shared;
            metrics.refused.fetch_add(1, Ordering::Relaxed);
            if planted(Bug::TwoWriters) {
                bump(&metrics.events, 1);
            }
        });
        let (metrics, gauge) = &*world;
        let [earlier, later] = [(); 2].map(|()| metrics.snapshot("stage", 0, gauge));
        assert!(
            earlier.events_total <= later.events_total
                && earlier.refused_total <= later.refused_total
        );
        stage.join().expect("the stage ends");
        other.join().expect("the other thread ends");
        let last = metrics.snapshot("stage", 0, gauge);
        let events = if planted(Bug::TwoWriters) { 3 } else { 2 };
        assert_eq!((last.events_total, last.refused_total), (events, 2), "each is counted");
    });
}
