//! Queues between threads, the injector, timers, back-pressure, shutdown, panics.

use std::collections::VecDeque;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use timestone_seda::{Context, Layout, Runtime, RuntimeConfig, SedaError, Spin, Stage, StageId};
use timestone_types::Timestamp;

use crate::support::now;

const TIMEOUT: Duration = Duration::from_secs(30);

/// Decrements what it gets and passes it to its partner; reports zero.
struct Player {
    partner: StageId,
    done: mpsc::Sender<u64>,
}

impl Stage<u64> for Player {
    fn name(&self) -> &str {
        "player"
    }

    fn handle(&mut self, ctx: &mut Context<'_, u64>, events: &mut VecDeque<u64>) {
        for number in events.drain(..) {
            if number == 0 {
                self.done.send(0).expect("the test waits");
            } else {
                ctx.send(self.partner, number - 1).expect("few balls in a large queue");
            }
        }
    }
}

fn ping_pong(spin: Spin, balls: u64, hits: u64) {
    let (done, finished) = mpsc::channel();
    let stages: Vec<Box<dyn Stage<u64>>> = vec![
        Box::new(Player { partner: StageId::new(1), done: done.clone() }),
        Box::new(Player { partner: StageId::new(0), done }),
    ];
    let layout = Layout::new(vec![vec![StageId::new(0)], vec![StageId::new(1)]]);
    let config = RuntimeConfig { spin, ..RuntimeConfig::default() };
    let handle = Runtime::start(stages, layout, now, config).expect("starts");
    for _ in 0..balls {
        handle.injector().send(StageId::new(0), hits).expect("room");
    }
    for ball in 0..balls {
        finished
            .recv_timeout(TIMEOUT)
            .unwrap_or_else(|_| panic!("ball {ball} was lost: a wake-up is missing"));
    }
    let metrics = handle.metrics();
    let events: u64 = metrics.stages.iter().map(|stage| stage.events_total).sum();
    assert!(events <= balls * (hits + 1), "{events}");
    handle.shutdown(TIMEOUT).expect("drained");
}

#[test]
fn no_wake_up_is_lost_between_sleeping_threads() {
    ping_pong(Spin::Off, 1, 10_000);
    ping_pong(Spin::Off, 3, 5_000);
}

#[test]
fn no_wake_up_is_lost_between_spinning_threads() {
    ping_pong(Spin::Adaptive(Duration::from_micros(20)), 1, 10_000);
}

/// A thread that sleeps wants no core: with one more thread than cores, which has nothing to do, two
/// that work spin all the same.
#[test]
fn threads_that_sleep_keep_nobody_from_spinning() {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if cores < 2 {
        return;
    }
    let (done, finished) = mpsc::channel();
    let player = |partner: u16| -> Box<dyn Stage<u64>> {
        Box::new(Player { partner: StageId::new(partner), done: done.clone() })
    };
    let threads = u16::try_from(cores + 1).expect("a machine of this age");
    let stages = (0..threads).map(|stage| player(1 - stage.min(1))).collect();
    let layout = Layout::new((0..threads).map(|stage| vec![StageId::new(stage)]).collect());
    let config = RuntimeConfig {
        spin: Spin::Adaptive(Duration::from_micros(30)),
        ..RuntimeConfig::default()
    };
    let handle = Runtime::start(stages, layout, now, config).expect("starts");
    handle.injector().send(StageId::new(0), 20_000).expect("room");
    finished.recv_timeout(TIMEOUT).expect("the ball comes to rest");
    let spins = |thread: usize| handle.metrics().threads[thread].spins_total;
    assert!(spins(0) > 0 && spins(1) > 0, "{} and {} times", spins(0), spins(1));
    handle.shutdown(TIMEOUT).expect("drained");
}

#[test]
fn outside_threads_lose_nothing_and_wake_sleepers() {
    let (done, finished) = mpsc::channel();
    let stages: Vec<Box<dyn Stage<u64>>> =
        vec![Box::new(Player { partner: StageId::new(0), done })];
    let handle =
        Runtime::start(stages, Layout::single(1), now, RuntimeConfig::default()).expect("starts");
    let producers: Vec<_> = (0..3)
        .map(|_| {
            let injector = handle.injector();
            std::thread::spawn(move || {
                for number in 0..20_000u64 {
                    while injector.send(StageId::new(0), 0).is_err() {
                        std::thread::yield_now();
                    }
                    if number % 1000 == 0 {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
            })
        })
        .collect();
    for count in 0..60_000 {
        finished.recv_timeout(TIMEOUT).unwrap_or_else(|_| panic!("only {count} events arrived"));
    }
    producers.into_iter().for_each(|producer| producer.join().expect("no panic"));
    let injector = handle.injector();
    assert_eq!(injector.send(StageId::new(1), 0), Err(0), "there is no such stage");
    handle.shutdown(TIMEOUT).expect("drained");
    assert_eq!(injector.send(StageId::new(0), 0), Err(0), "the runtime has stopped");
}

/// Takes at most `appetite` events a turn, and counts them.
struct Slow {
    appetite: usize,
    sum: Arc<AtomicU64>,
    last: u64,
}

impl Stage<u64> for Slow {
    fn name(&self) -> &str {
        "slow"
    }

    fn handle(&mut self, _: &mut Context<'_, u64>, events: &mut VecDeque<u64>) {
        for number in events.drain(..self.appetite.min(events.len())) {
            assert_eq!(number, self.last + 1, "events stay in order");
            self.last = number;
            self.sum.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Produces 1..=total for another stage as fast as that takes them.
struct Source {
    to: StageId,
    next: u64,
    total: u64,
    refused: Arc<AtomicU64>,
}

impl Stage<u64> for Source {
    fn name(&self) -> &str {
        "source"
    }

    fn handle(&mut self, _: &mut Context<'_, u64>, events: &mut VecDeque<u64>) {
        events.clear();
    }

    fn turn(&mut self, ctx: &mut Context<'_, u64>) {
        while self.next <= self.total {
            ctx.want_turn();
            if ctx.send(self.to, self.next).is_err() {
                self.refused.fetch_add(1, Ordering::Relaxed);
                return;
            }
            self.next += 1;
        }
    }

    fn drained(&self) -> bool {
        self.next > self.total
    }
}

fn overload(layout: Layout, total: u64) {
    let (sum, refused) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let stages: Vec<Box<dyn Stage<u64>>> = vec![
        Box::new(Source { to: StageId::new(1), next: 1, total, refused: Arc::clone(&refused) }),
        Box::new(Slow { appetite: 7, sum: Arc::clone(&sum), last: 0 }),
    ];
    let config = RuntimeConfig { queue_capacity: 64, ..RuntimeConfig::default() };
    let handle = Runtime::start(stages, layout, now, config).expect("starts");
    // Shutdown begins at once: it must wait until the last event is through.
    handle.shutdown(TIMEOUT).expect("drained");
    assert_eq!(sum.load(Ordering::Relaxed), total);
    assert!(refused.load(Ordering::Relaxed) > 0, "the queue must have been full");
}

#[test]
fn full_queues_refuse_and_shutdown_drains_on_one_thread() {
    overload(Layout::single(2), 2_000);
}

#[test]
fn full_queues_refuse_and_shutdown_drains_across_threads() {
    overload(Layout::new(vec![vec![StageId::new(0)], vec![StageId::new(1)]]), 20_000);
}

/// Rings at each of its deadlines.
struct Alarm {
    due: VecDeque<Timestamp>,
    rung: mpsc::Sender<(Timestamp, Timestamp)>,
}

impl Stage<u64> for Alarm {
    fn name(&self) -> &str {
        "alarm"
    }

    fn handle(&mut self, _: &mut Context<'_, u64>, events: &mut VecDeque<u64>) {
        events.clear();
    }

    fn turn(&mut self, ctx: &mut Context<'_, u64>) {
        while let Some(due) = self.due.pop_front_if(|due| *due <= ctx.now()) {
            self.rung.send((due, ctx.now())).expect("the test waits");
        }
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        self.due.front().copied()
    }
}

#[test]
fn deadlines_are_kept_and_never_early() {
    let (rung, heard) = mpsc::channel();
    let begin = now();
    let spans = [100u64, 150, 900, 2_000, 30_000, 30_000, 45_500];
    let due =
        spans.iter().map(|&micros| begin.saturating_add(Duration::from_micros(micros))).collect();
    let stages: Vec<Box<dyn Stage<u64>>> = vec![Box::new(Alarm { due, rung })];
    let handle =
        Runtime::start(stages, Layout::single(1), now, RuntimeConfig::default()).expect("starts");
    for &micros in &spans {
        let (due, at) = heard.recv_timeout(TIMEOUT).expect("rings");
        assert_eq!(due, begin.saturating_add(Duration::from_micros(micros)));
        assert!(at >= due);
    }
    let turns = handle.metrics().threads[0].turns_total;
    assert!(turns < 1_000, "the thread slept between its deadlines, it took {turns} turns");
    handle.shutdown(TIMEOUT).expect("drained");
}

/// Never finishes.
struct Stuck;

impl Stage<u64> for Stuck {
    fn name(&self) -> &str {
        "stuck"
    }

    fn handle(&mut self, _: &mut Context<'_, u64>, _: &mut VecDeque<u64>) {
        panic!("planned by the test");
    }

    fn drained(&self) -> bool {
        false
    }
}

#[test]
fn a_stage_that_does_not_drain_is_named() {
    let handle =
        Runtime::start(vec![Box::new(Stuck)], Layout::single(1), now, RuntimeConfig::default())
            .expect("starts");
    match handle.shutdown(Duration::from_millis(50)) {
        Err(SedaError::NotDrained { stages, .. }) => assert_eq!(stages, ["stuck"]),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_panic_of_a_stage_aborts_the_process_and_names_it() {
    const MARK: &str = "SEDA_TEST_PANIC";
    if std::env::var_os(MARK).is_some() {
        let handle =
            Runtime::start(vec![Box::new(Stuck)], Layout::single(1), now, RuntimeConfig::default())
                .expect("starts");
        handle.injector().send(StageId::new(0), 1).expect("room");
        std::thread::sleep(TIMEOUT);
        return;
    }
    let output = Command::new(std::env::current_exe().expect("a path"))
        .args([
            "--exact",
            "threads::a_panic_of_a_stage_aborts_the_process_and_names_it",
            "--nocapture",
        ])
        .env(MARK, "1")
        .output()
        .expect("runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && output.status.code().is_none(),
        "aborted by a signal: {:?}",
        output.status
    );
    assert!(
        text.contains("Stage stuck panicked") && text.contains("planned by the test"),
        "{text}"
    );
}

#[test]
fn impossible_layouts_are_refused() {
    let start = |layout| {
        Runtime::start(
            vec![Box::new(Stuck) as Box<dyn Stage<u64>>],
            layout,
            now,
            RuntimeConfig::default(),
        )
    };
    assert!(matches!(start(Layout::single(2)), Err(SedaError::Layout(..))));
    assert!(matches!(start(Layout::new(vec![])), Err(SedaError::Size { .. })));
}
