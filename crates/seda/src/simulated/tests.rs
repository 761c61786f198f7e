//! Tests of the simulated driver: costs, threads, deadlines under a wrong clock.

use super::*;

const HERE: StageId = StageId::new(0);
const THERE: StageId = StageId::new(1);

fn at(nanos: u64) -> VirtualTime {
    VirtualTime::from_nanos(nanos)
}

/// A clock that shows true time, from 1 s on.
fn honest(moment: VirtualTime) -> Timestamp {
    Timestamp::from_nanos(1_000_000_000 + moment.as_nanos())
}

/// Passes numbers on, one smaller, until they are zero.
struct Countdown {
    other: StageId,
    seen: Vec<(Timestamp, u32)>,
    done: std::sync::Arc<std::sync::Mutex<Vec<(Timestamp, u32)>>>,
}

impl Stage<u32> for Countdown {
    fn name(&self) -> &str {
        "countdown"
    }

    fn handle(&mut self, ctx: &mut Context<'_, u32>, events: &mut VecDeque<u32>) {
        for number in events.drain(..) {
            self.seen.push((ctx.now(), number));
            self.done.lock().unwrap().push((ctx.now(), number));
            if number > 0 {
                ctx.send(self.other, number - 1).unwrap();
            }
        }
    }
}

struct PerEvent(Duration);

impl CostModel<u32> for PerEvent {
    fn event(&mut self, _stage: StageId, _event: &u32) -> Duration {
        self.0
    }
}

/// A microsecond for each kind of cost around events.
struct Waking;

impl CostModel<u32> for Waking {
    fn event(&mut self, _stage: StageId, _event: &u32) -> Duration {
        Duration::from_micros(10)
    }

    fn switch(&self) -> Duration {
        Duration::from_micros(2)
    }

    fn wake_latency(&mut self, _idle: Duration) -> Duration {
        Duration::from_micros(20)
    }

    fn wake_call(&self, idle: Option<Duration>) -> Duration {
        Duration::from_micros(if idle.is_some() { 100 } else { 1 })
    }
}

type Log = std::sync::Arc<std::sync::Mutex<Vec<(Timestamp, u32)>>>;

fn countdowns(layout: &Layout, cost: Duration) -> (SimulatedRuntime<u32>, Log) {
    let log = Log::default();
    let stage = |other| {
        Box::new(Countdown { other, seen: Vec::new(), done: log.clone() }) as Box<dyn Stage<u32>>
    };
    let config = SimulatedConfig { costs: Box::new(PerEvent(cost)), ..SimulatedConfig::default() };
    let runtime =
        SimulatedRuntime::start(vec![stage(THERE), stage(HERE)], layout, config, at(0), &honest)
            .unwrap();
    (runtime, log)
}

fn run_all(
    runtime: &mut SimulatedRuntime<u32>,
    cores: &mut Cores,
    clock: &dyn LocalTime,
) -> VirtualTime {
    let mut now = at(0);
    while let Some(Claim { due, .. }) = runtime.due() {
        now = now.max(due);
        runtime.run(now, cores, clock, &mut Silent);
    }
    now
}

#[test]
fn two_threads_pass_events_at_the_ends_of_their_turns() {
    let two = Layout::new(vec![vec![HERE], vec![THERE]]);
    let (mut runtime, log) = countdowns(&two, Duration::from_micros(10));
    runtime.inject(at(5_000), HERE, 2);
    run_all(&mut runtime, &mut Cores::new(2), &honest);
    let seen: Vec<(u64, u32)> = log
        .lock()
        .unwrap()
        .iter()
        .map(|&(now, number)| (now.as_nanos() - 1_000_000_000, number))
        .collect();
    assert_eq!(seen, [(5_000, 2), (15_000, 1), (25_000, 0)]);
    assert!(runtime.is_drained());
    assert_eq!(runtime.metrics().stages[0].events_total, 2);
}

#[test]
fn sleepers_are_woken_late_by_idle_cores_and_cost_whoever_wakes_them() {
    let two = Layout::new(vec![vec![HERE], vec![THERE]]);
    let log = Log::default();
    let stage = |other| {
        Box::new(Countdown { other, seen: Vec::new(), done: log.clone() }) as Box<dyn Stage<u32>>
    };
    let config = SimulatedConfig { costs: Box::new(Waking), ..SimulatedConfig::default() };
    let mut runtime =
        SimulatedRuntime::start(vec![stage(THERE), stage(HERE)], &two, config, at(0), &honest)
            .unwrap();
    let mut cores = Cores::new(1);
    run_all(&mut runtime, &mut cores, &honest);
    let before = runtime.busy();
    let micros = |micros: u64| at(1_000_000 + micros * 1_000);
    runtime.inject(micros(0), HERE, 1);
    // Told twice: the core that is on its way comes no sooner for that.
    runtime.run(micros(0), &mut cores, &honest, &mut Silent);
    runtime.call(micros(1), HERE);
    let mut begins = Vec::new();
    while let Some(Claim { due, .. }) = runtime.due() {
        begins.extend(runtime.run(due, &mut cores, &honest, &mut Silent).map(|turn| turn.begin));
    }
    // 20 to come, then 2 + 10 + 1 to run and to wake the other, which finds the core awake.
    assert_eq!(begins, [micros(20), micros(33)]);
    assert_eq!(runtime.busy() - before, Duration::from_micros(13 + 12));
}

#[test]
fn one_core_serves_two_threads_in_turn() {
    let two = Layout::new(vec![vec![HERE], vec![THERE]]);
    for (cores, end) in [(1, 20_000), (2, 10_000)] {
        let (mut runtime, _) = countdowns(&two, Duration::from_micros(10));
        let mut cores = Cores::new(cores);
        run_all(&mut runtime, &mut cores, &honest);
        let start = at(1_000_000);
        runtime.inject(start, HERE, 0);
        runtime.inject(start, THERE, 0);
        let mut last = start;
        while let Some(Claim { due, .. }) = runtime.due() {
            last = last.max(due);
            if let Some(turn) = runtime.run(last, &mut cores, &honest, &mut Silent) {
                last = last.max(turn.begin);
            }
        }
        let over = last.after(Duration::from_micros(10)).since(start).as_nanos() as u64;
        assert_eq!(over, end, "the second turn ends then");
    }
}

#[test]
fn nobody_starves_on_a_core_that_others_always_want() {
    // Two that never rest, and one that wants the core every millisecond.
    struct Restless;
    impl Stage<u32> for Restless {
        fn name(&self) -> &str {
            "restless"
        }

        fn handle(&mut self, _ctx: &mut Context<'_, u32>, _events: &mut VecDeque<u32>) {}

        fn turn(&mut self, ctx: &mut Context<'_, u32>) {
            ctx.want_turn();
        }
    }
    struct Dear;
    impl CostModel<u32> for Dear {
        fn turn(&mut self, _core: usize) -> Duration {
            Duration::from_micros(300)
        }
    }
    let rang = Log::default();
    let alarm = Alarm { next: Timestamp::ZERO, rang: rang.clone() };
    let stages: Vec<Box<dyn Stage<u32>>> =
        vec![Box::new(Restless), Box::new(Restless), Box::new(alarm)];
    let layout = Layout::new((0..3).map(|stage| vec![StageId::new(stage)]).collect());
    let config = SimulatedConfig { costs: Box::new(Dear), ..SimulatedConfig::default() };
    let mut runtime = SimulatedRuntime::start(stages, &layout, config, at(0), &honest).unwrap();
    let mut cores = Cores::new(1);
    let mut turns = [0_u32; 3];
    while let Some(Claim { due, .. }) = runtime.due().filter(|claim| claim.due < at(100_000_000)) {
        if let Some(turn) = runtime.run(due, &mut cores, &honest, &mut Silent) {
            turns[turn.thread] += 1;
        }
    }
    // It waits for a slice of either at most, and they for nobody longer than for a slice of the
    // other and a turn.
    let count = rang.lock().unwrap().len();
    assert!((20..=50).contains(&count), "it rang {count} times within 100 ms");
    assert!(turns[0].abs_diff(turns[1]) <= 10 && turns[0] > 100, "{turns:?}");
}

/// Wants a turn one millisecond after each, and writes down when it got it.
struct Alarm {
    next: Timestamp,
    rang: Log,
}

impl Stage<u32> for Alarm {
    fn name(&self) -> &str {
        "alarm"
    }

    fn handle(&mut self, _ctx: &mut Context<'_, u32>, _events: &mut VecDeque<u32>) {}

    fn turn(&mut self, ctx: &mut Context<'_, u32>) {
        if ctx.now() >= self.next {
            self.rang.lock().unwrap().push((ctx.now(), 0));
            self.next = ctx.now().saturating_add(Duration::from_millis(1));
        }
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        Some(self.next)
    }
}

#[test]
fn deadlines_are_those_of_the_local_clock_even_when_it_stops() {
    let rang = Log::default();
    let stage = Alarm { next: Timestamp::ZERO, rang: rang.clone() };
    // Runs at half the speed, and stands still between 10 and 20 ms of true time.
    let wrong = |moment: VirtualTime| {
        let nanos = moment.as_nanos();
        let shown = if nanos < 10_000_000 { nanos } else { nanos.max(20_000_000) - 10_000_000 };
        Timestamp::from_nanos(1_000_000_000 + shown / 2)
    };
    let config = SimulatedConfig::default();
    let mut runtime =
        SimulatedRuntime::start(vec![Box::new(stage)], &Layout::single(1), config, at(0), &wrong)
            .unwrap();
    let mut cores = Cores::new(1);
    let mut turns = 0;
    while let Some(Claim { due, .. }) = runtime.due().filter(|claim| claim.due < at(40_000_000)) {
        runtime.run(due.max(cores.free_at()), &mut cores, &wrong, &mut Silent);
        turns += 1;
    }
    let count = rang.lock().unwrap().len();
    assert!((14..=16).contains(&count), "30 ms at half the speed ring 15 times, not {count}");
    assert!(turns < 2_000, "a stopped clock does not spin the driver: {turns} turns");
}
