//! One run of one scenario under one seed, from the first start to the last check.
//!
//! ```text
//!   setting up ──► loading ──► running, faults strike ──► faults end, sessions finish ─┐
//!      ┌─────────────────────────────────────────────────────────────────────────────────┘
//!      └─► working in calm ──► finishing ──► settling ──► touching every key ──► shrinking ──► auditing ──► checks
//! ```
//! Each phase after the faults must end within a bound of virtual time: that is liveness.

mod copies;
mod failovers;
mod old_reads;
mod phases;
mod report;
mod watchdog;

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use timestone_client::ReadOnlyCommit;
use timestone_clock::SkewModel;
use timestone_seda::simulated::VirtualTime;
use timestone_types::Timestamp;
use timestone_workload::check::{AnomalyKind, Calm, CheckResult, Promise, check_liveness};

use self::copies::Copies;
use self::failovers::Failovers;
use self::old_reads::OldReads;
pub use self::report::{Histories, Pace, RunOptions, RunReport, Watch};
use self::watchdog::Watchdog;
use crate::board::{Board, SessionSettings};
use crate::check::{self, Finding, Trust};
use crate::clock::{TrueTime, apart, are_close};
use crate::error::SimError;
use crate::fault::{FAULT_TOKENS, FaultKind, Injector, most_ahead_at_start};
use crate::judge::{Judge, head_of};
use crate::keyspaces::Keyspaces;
use crate::network::ProcessId;
use crate::process::{Process, ProcessLife, Role};
use crate::quiescence;
use crate::redis::{Calls, Mode};
use crate::scenario::Scenario;
use crate::swarm::{Drawn, draw};
use crate::trace::TraceLine;
use crate::unread::Unread;
use crate::world::{Paused, World};
use timestone_costmodel::Stopwatch;
use timestone_types::random::Seed;

/// How often the run looks how far it is.
const LOOK: Duration = Duration::from_millis(10);
/// Then sessions work again for this long, and nothing is in their way.
const CALM_WORK: Duration = Duration::from_millis(500);
/// A transaction of those must be over, with a known outcome, after this long: the deadline of a
/// commit, and half of it again.
const CALM_TIMEOUT: Duration = Duration::from_secs(15);
/// After that, nothing may be left over, and everything must keep its bounds.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(60);
/// A copy that is gone is replaced in this time: a replica that is lost leaves its shard after a
/// minute, and another one is filled.
const REPLACE_TIMEOUT: Duration = Duration::from_secs(120);
/// The same where nothing went wrong, and nobody did more than leave, beyond [`quiescence::ahead`]:
/// a closed session is not waited for, as those are that fall silent.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(1500);
/// Redis's times to live are whole milliseconds, and a turn judges by the time at which it began.
const CLOCK_SLACK: Duration = Duration::from_millis(5);
/// Clients lead servers by no more than they are allowed to, when the servers lag by this much and
/// the clients are ahead by nature.
const LAG_OF_CLOCKS: Duration = Duration::from_millis(250);
const LOOK_TOKEN: u64 = 0;

/// Watches nothing.
struct Nobody;

impl Watch for Nobody {
    fn look(&mut self, _: Duration, _: &[TraceLine]) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunPhase {
    SettingUp,
    Loading,
    Running,
    Finishing,
    Working,
    Resting,
    Settling,
    Touching,
    Shrinking,
    Auditing,
    /// Primaries move to other replicas, where everything is read once more.
    Moving,
}

/// Runs a scenario under a seed.
///
/// # Errors
/// The world cannot be built. What goes wrong in it is a finding, a panic of the code under test
/// included.
pub fn run(scenario: &Scenario, seed: Seed, options: RunOptions) -> Result<RunReport, SimError> {
    let ran = watch(scenario, seed, options, &mut Nobody)?;
    ran.ok_or_else(|| SimError::world("a run that nobody watches was given up"))
}

/// The same while somebody looks on. Nothing comes of a run that was given up.
///
/// # Errors
/// As [`run`].
pub fn watch(
    scenario: &Scenario,
    seed: Seed,
    options: RunOptions,
    watch: &mut dyn Watch,
) -> Result<Option<RunReport>, SimError> {
    run_with(scenario, seed, options, watch, None)
}

/// Runs a scenario, and takes the times that stages really need while transactions are begun.
///
/// # Errors
/// As [`run`].
pub fn measure(
    scenario: &Scenario,
    seed: Seed,
    stopwatch: &Stopwatch,
) -> Result<RunReport, SimError> {
    let ran = run_with(scenario, seed, RunOptions::default(), &mut Nobody, Some(stopwatch))?;
    ran.ok_or_else(|| SimError::world("a run that nobody watches was given up"))
}

fn run_with(
    scenario: &Scenario,
    seed: Seed,
    options: RunOptions,
    watch: &mut dyn Watch,
    stopwatch: Option<&Stopwatch>,
) -> Result<Option<RunReport>, SimError> {
    let Drawn { mut world, work, redis, faults, length, interval, jump, external } =
        draw(scenario, seed, &scenario.costs()?);
    world.machine.stopwatch = stopwatch.cloned();
    let truth = TrueTime::default();
    let slots = world.members.all_sessions();
    let of_clients = world.clients_time.skew.unwrap_or(world.skew);
    let is_honest = world.clients_time.lie.is_zero();
    let are_perfect =
        of_clients == SkewModel::Perfect && world.skew == SkewModel::Perfect && is_honest;
    // Who follows the servers' time has an oscillator of its own, and is judged by its error bound.
    let clocks_agree = are_perfect && faults.is_empty() && !world.clients_time.is_followed;
    // A run behind one without a log begins with a watermark ahead of its clock, and sends sessions
    // there (docs/design/known-defects.md, "A watermark ahead of the clock").
    let clocks_hold = are_close(world.skew)
        && are_close(of_clients)
        && is_honest
        && !world.vary.log
        && !faults.keys().any(|kind| kind.is_of_clocks());
    let settings = SessionSettings {
        interval,
        external,
        clocks_agree,
        clocks_hold,
        ..SessionSettings::of(&scenario.workload)
    };
    let mut board = Board::new(truth.clone(), work, slots, settings, seed.derive("board", 0))
        .map_err(SimError::world)?;
    board.redis = redis.map(|work| Arc::new(Calls::new(truth.clone(), work)));
    board.keyspaces = Keyspaces::new(&scenario.keyspaces);
    // What is handed out at every look needs no bound of its own.
    let keep_lines = if options.words { usize::MAX } else { options.keep_lines };
    board.recorder.notes = keep_lines > 0;
    let board = Arc::new(board);
    let world = World::new(world, truth, Arc::clone(&board), seed, keep_lines)?;
    let demands = &scenario.workload.demands;
    let injector = Injector::new(&faults, jump, seed.derive("faults", 0))
        .keeping_enough(demands.failover_within.is_some());
    let mut run = ScenarioRun {
        clients_lives: vec![0; world.processes.len()],
        watchdog: Watchdog::new(&world, demands.watermark_lag.map(|span| span.0)),
        failovers: Failovers::new(demands),
        old_reads: OldReads::new(&scenario.workload),
        copies: Copies::default(),
        world,
        board,
        injector,
        phase: RunPhase::SettingUp,
        since: VirtualTime::ZERO,
        length,
        jump,
        words: options.words,
        calm: CalmWork::default(),
        findings: Vec::new(),
        pace: PaceMeter { warmup: scenario.workload.warmup.0, taken: None },
        unread: Unread::default(),
        redis_in_order: scenario.redis.keyspace.is_some() && scenario.keyspaces.ordered,
    };
    let ended = catch_unwind(AssertUnwindSafe(|| run.go(watch)));
    match ended {
        Ok(Ok(ControlFlow::Continue(()))) => {}
        Ok(Ok(ControlFlow::Break(()))) => return Ok(None),
        Ok(Err(error)) => return Err(error),
        Err(panic) => {
            let words = panic.downcast_ref::<String>().cloned();
            let words =
                words.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            run.findings.push(Finding::new(
                "assertions",
                words.unwrap_or_else(|| "a panic without words".to_owned()),
            ));
        }
    }
    if run.tell(watch).is_break() {
        return Ok(None);
    }
    Ok(Some(run.report(seed, options)))
}

struct ScenarioRun {
    world: World,
    board: Arc<Board>,
    injector: Injector,
    phase: RunPhase,
    since: VirtualTime,
    length: Duration,
    findings: Vec<Finding>,
    /// Whether the keys of Redis clients are in order.
    redis_in_order: bool,
    /// The life of each client in which its sessions were begun last.
    clients_lives: Vec<u64>,
    /// The furthest that a clock is set forward or back.
    jump: Duration,
    calm: CalmWork,
    pace: PaceMeter,
    watchdog: Watchdog,
    failovers: Failovers,
    old_reads: OldReads,
    copies: Copies,
    unread: Unread,
    words: bool,
}

/// What the pace is measured by.
struct PaceMeter {
    /// Until the pace is taken.
    warmup: Duration,
    /// What had been done when the pace was taken first; at the end, what was done since.
    taken: Option<Pace>,
}

/// What sessions do after the faults, and the rest that follows.
#[derive(Default)]
struct CalmWork {
    /// Transactions that had committed when sessions began to work in calm.
    committed_before: u64,
    /// Since when sessions worked in calm.
    since: Option<Timestamp>,
    /// When the last session ended.
    ended: Timestamp,
    /// Since when everything has been as it should.
    at_rest_since: Option<VirtualTime>,
}

impl ScenarioRun {
    /// Runs until it is over, or whoever watches breaks it off.
    fn go(&mut self, watch: &mut dyn Watch) -> Result<ControlFlow<()>, SimError> {
        self.world.look_at(VirtualTime::ZERO.after(LOOK), LOOK_TOKEN);
        loop {
            match self.world.run()? {
                Paused::Look(LOOK_TOKEN) => {
                    if self.tell(watch).is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                    if self.look() {
                        return Ok(ControlFlow::Continue(()));
                    }
                    self.world.look_at(self.world.now().after(LOOK), LOOK_TOKEN);
                }
                Paused::Look(token) => {
                    debug_assert!(token >= FAULT_TOKENS, "tokens are the injector's or the run's");
                    let on = self.phase == RunPhase::Running;
                    self.injector.look(&mut self.world, token, on);
                }
                Paused::Empty => return Ok(ControlFlow::Continue(())),
            }
        }
    }

    /// Tells whoever watches what is new.
    fn tell(&mut self, watch: &mut dyn Watch) -> ControlFlow<()> {
        let lines = if self.words { self.world.take_trace_lines() } else { Vec::new() };
        watch.look(Duration::from_nanos(self.world.now().as_nanos()), &lines)
    }

    fn enter(&mut self, phase: RunPhase) {
        assert_ne!(self.phase, phase, "each phase is entered from another one");
        self.phase = phase;
        self.since = self.world.now();
    }

    /// Whether acknowledged data was destroyed: then nothing is demanded but that no answer is made
    /// up.
    fn is_damaged(&self) -> bool {
        self.injector.fired().keys().any(|kind| kind.is_damage())
    }

    /// Whether the power went while devices held what they had acknowledged as synced: nothing is
    /// promised to be there then.
    fn was_lied_to(&self) -> bool {
        let mut servers = self.world.processes.iter();
        servers.any(|process| matches!(&process.role, Role::Server(server) if server.environment.was_lied_to()))
    }

    /// How long it may take until nothing is left over.
    fn settle_timeout(&self) -> Duration {
        let quiet = self.injector.fired().keys().all(|kind| *kind == FaultKind::ClientLeave);
        if quiet {
            return quiescence::ahead(self.most_ahead()) + CLOSE_TIMEOUT;
        }
        // Whose copy is gone is given up after a while, and somebody else gets one.
        let is_replaced = self.injector.fired().keys().any(|kind| kind.takes_a_copy());
        if is_replaced { SETTLE_TIMEOUT + REPLACE_TIMEOUT } else { SETTLE_TIMEOUT }
    }

    /// How far ahead a clock may have been that something was measured by.
    fn most_ahead(&self) -> Duration {
        let glitched = self.injector.fired().contains_key(&FaultKind::ClockGlitch);
        let set = if glitched { most_ahead_at_start(&self.world.config) } else { Duration::ZERO };
        self.jump.max(set) + self.world.config.clients_time.lie
    }

    /// Whether some server's time still lags so far behind true time that clients with the right
    /// time have to wait for it. A server that had to restart while its clock was wrong goes on
    /// from what it had promised, and follows its clock slowly once that is right again.
    fn clocks_lag(&self) -> bool {
        let servers = self.world.processes.iter().filter(|process| process.is_server());
        servers.map(|server| server.clock.behind()).max().is_some_and(|lag| lag > LAG_OF_CLOCKS)
    }

    /// Looks after what clients are owed that do not read.
    fn watch_unread(&mut self) -> Option<Finding> {
        let forgotten = self.injector.fired().contains_key(&FaultKind::BlackHole);
        self.unread
            .look(&self.world, forgotten)
            .map(|(property, words)| Finding::new(property, words))
    }

    /// What is promised about real time. Waiting helps as far as clocks are within what they claim
    /// (docs/protocol/transactions.md, "Real time"); after a fault one of them was not, at least
    /// until its client looked at its bound again, and direct conflicts alone are left.
    fn promise(&self) -> Promise {
        if matches!(self.world.config.engine.read_only, ReadOnlyCommit::BelowWatermark { .. }) {
            // It reads as of a watermark, which may lie before what its session has done.
            return Promise::Serializable;
        }
        let within = !self.injector.fired().keys().any(|kind| kind.is_of_clocks());
        if self.board.settings.external && within { Promise::RealTime } else { Promise::Conflicts }
    }

    /// How far the server's clock may have been wrong about a span of time, for keys that expire by
    /// it.
    fn clock_slack(&self) -> Duration {
        let touched = self.injector.fired().keys().any(|kind| kind.is_of_clocks());
        // 400 ms more hold what a clock that was stopped or drifted has missed; two jumps may follow
        // each other.
        let model = apart(self.world.config.skew);
        let faults =
            if touched { self.most_ahead() * 4 + Duration::from_secs(2) } else { Duration::ZERO };
        model + faults + self.world.config.clients_time.lie + CLOCK_SLACK
    }

    fn waited(&self) -> Duration {
        self.world.now().since(self.since)
    }

    /// Looks how far the run is. Whether it is over.
    fn look(&mut self) -> bool {
        self.look_for_findings();
        if self.a_server_refuses() || !self.findings.is_empty() {
            return true;
        }
        match self.phase {
            RunPhase::SettingUp => self.set_up(),
            RunPhase::Loading => self.loading(),
            RunPhase::Running => self.running(),
            RunPhase::Finishing => self.finishing(),
            RunPhase::Working => self.working(),
            RunPhase::Resting => self.resting(),
            RunPhase::Settling => self.settling(),
            RunPhase::Touching => self.touching(),
            RunPhase::Shrinking => self.shrinking(),
            RunPhase::Auditing => self.auditing(),
            RunPhase::Moving => self.moving(),
        }
    }

    /// Whether everything has been as it should for a while; when it never will be, that is found.
    fn is_calm(&mut self, verdict: &CheckResult) -> bool {
        if verdict.is_valid() {
            let since = *self.calm.at_rest_since.get_or_insert(self.world.now());
            let is_calm = self.world.now().since(since) >= quiescence::CALM;
            self.calm.at_rest_since = self.calm.at_rest_since.filter(|_| !is_calm);
            return is_calm;
        }
        self.calm.at_rest_since = None;
        if self.waited() > self.settle_timeout() {
            for anomaly in &verdict.anomalies {
                let property =
                    if anomaly.kind == AnomalyKind::OutOfBounds { "bounds" } else { "liveness" };
                let words =
                    format!("{:?} after everything had come to rest, {anomaly}", self.waited());
                self.findings.push(Finding::new(property, words));
            }
        }
        false
    }

    /// Now, as the history has it.
    fn moment(&self) -> Timestamp {
        Timestamp::from_nanos(self.world.now().as_nanos())
    }

    fn take_times(&self, on: bool) {
        if let Some(stopwatch) = &self.world.config.machine.stopwatch {
            stopwatch.run(on);
        }
    }

    fn done_so_far(&self) -> Pace {
        let (tally, (servers, clients)) = (self.board.tally(), self.world.processes.busy_by_role());
        Pace {
            span: self.waited(),
            committed: tally.committed,
            aborted: tally.aborted,
            read_only: self.board.read_only.committed.load(Relaxed),
            locally: self.board.read_only.locally.load(Relaxed),
            snapshots: self.board.snapshots.ages(),
            servers,
            clients,
        }
    }

    fn end_pace(&mut self) {
        self.take_times(false);
        let (before, now) = (self.pace.taken.unwrap_or_default(), self.done_so_far());
        self.pace.taken = Some(Pace {
            span: now.span.saturating_sub(before.span),
            committed: now.committed - before.committed,
            aborted: now.aborted - before.aborted,
            read_only: now.read_only - before.read_only,
            locally: now.locally - before.locally,
            snapshots: now.snapshots.since(before.snapshots),
            // A process that was killed meanwhile has forgotten what it spent.
            servers: now.servers.saturating_sub(before.servers),
            clients: now.clients.saturating_sub(before.clients),
        });
    }

    fn stuck(&mut self, what: &str, which: Vec<String>) -> bool {
        if self.was_lied_to() {
            return true;
        }
        let mut words = format!("{what} within {:?}", self.waited());
        for one in which.iter().take(8) {
            words.push_str("\n  ");
            words.push_str(one);
        }
        if let Some(last) = self.world.incidents.failed_starts.last() {
            words.push_str("\n  the last server that did not start: ");
            words.push_str(last);
        }
        if let Some(last) = self.board.last_words() {
            words.push_str("\n  the last error that a client was told: ");
            words.push_str(&last);
        }
        self.findings.push(Finding::new("liveness", words));
        true
    }

    fn down(&self) -> Vec<String> {
        let is_down = |process: &&Process| !process.is_up() && !process.is_gone;
        let down = self.world.processes.iter().filter(is_down);
        down.map(|process| {
            let state = if matches!(process.life, ProcessLife::Joining { .. }) {
                "has not joined"
            } else {
                "is down"
            };
            format!("{} {state}", process.name)
        })
        .collect()
    }

    fn first_client(&self) -> Option<ProcessId> {
        self.world.processes.iter().find(|process| process.is_native()).map(|process| process.id)
    }

    fn begin_task<F, Fut>(&mut self, task: F)
    where
        F: FnOnce(timestone_client::LocalDb, Arc<Board>) -> Fut + Send + 'static,
        Fut: Future<Output = timestone_client::Result<()>> + 'static,
    {
        let Some(id) = self.first_client() else { return };
        let board = Arc::clone(&self.board);
        board.task_begins();
        // The task tells the board what comes of it.
        let mut task = Some((task, board));
        self.world.on_client(id, |db, _| {
            if let Some((task, board)) = task.take() {
                drop(db.spawn(move |local| task(local, board)));
            }
        });
    }

    fn begin_audit(&mut self) {
        self.board.set_redis_mode(Mode::Audit);
        let keys = self.board.recorder.written_keys();
        self.begin_task(move |db, board| crate::session::audit(db, board, keys));
    }

    fn begin_touching(&mut self) {
        self.board.set_redis_mode(Mode::Touch);
        let keys = self.board.recorder.written_keys();
        self.begin_task(move |db, board| crate::session::touch(db, board, keys));
    }

    /// Begins the sessions of every process that is up and has none.
    fn begin_sessions(&mut self) {
        for id in self.world.processes.ids() {
            let process = &self.world.processes[id];
            if !process.is_up()
                || process.paused
                || self.clients_lives[id.0 as usize] == process.lives
            {
                continue;
            }
            self.clients_lives[id.0 as usize] = process.lives;
            self.world.begin_sessions(id);
        }
    }

    fn report(mut self, seed: Seed, options: RunOptions) -> RunReport {
        let mut history = self.board.recorder.take_history();
        let redis = self.board.redis.as_ref().map(|calls| calls.take_history(self.clock_slack()));
        let over = self.phase == RunPhase::Auditing && self.board.live() == 0;
        let complete = over && self.findings.is_empty();
        self.findings.extend(self.failovers.too_few().filter(|_| complete));
        let backup_reads = self.board.backup_reads.load(Relaxed);
        if complete && self.board.settings.max_staleness.is_some() && backup_reads == 0 {
            self.findings.push(Finding::new("demands", "no backup has answered a read".to_owned()));
        }
        let damaged = self.is_damaged();
        if let Some(since) = self.calm.since.filter(|_| !self.was_lied_to()) {
            let calm = Calm { since, timeout: CALM_TIMEOUT, until: self.moment() };
            let stuck = check_liveness(&history, calm).anomalies.into_iter();
            let stuck = stuck.filter(|anomaly| anomaly.kind == AnomalyKind::Stuck);
            self.findings
                .extend(stuck.map(|anomaly| Finding::new("liveness", anomaly.to_string())));
        }
        let promise = self.promise();
        let trust = if damaged {
            Trust::Damaged
        } else if self.was_lied_to() {
            Trust::LiedTo
        } else {
            Trust::Except(std::mem::take(&mut self.world.incidents.losses))
        };
        let checks = check::Checks { promise, complete, clock_slack: self.clock_slack(), trust };
        let mut checked = check::all(&self.board, &history, &checks, &mut self.findings);
        if let Some(redis) = &redis {
            checked += check::redis(redis, &checks.trust, &mut self.findings);
            if self.redis_in_order {
                check::redis_order(redis, &mut self.findings);
            }
        }
        let judge = Judge::of(&self.board, promise, checks.trust.is_whole());
        history.head = Some(head_of(&self.board, promise, judge));
        RunReport {
            seed,
            trace_hash: self.world.trace.hash(),
            events: self.world.trace.events(),
            turns: self.world.turns,
            virtual_time: Duration::from_nanos(self.world.now().as_nanos()),
            busy: self.world.busy(),
            tally: self.board.tally(),
            faults: self.injector.fired().clone(),
            changes: self.world.incidents.changes.clone(),
            stalled: self.unread.closed,
            failovers: self.failovers.count,
            backup_reads,
            pace: self.pace.taken.unwrap_or_default(),
            checked,
            findings: self.findings,
            lines: self.world.take_trace_lines(),
            histories: Histories {
                sessions: options.keep_history.then_some(history),
                redis: redis.filter(|_| options.keep_history),
                judge,
            },
        }
    }
}
