//! The run itself: sessions on all loops, warm-up, measurement, end.
//!
//! ```text
//!   this thread   warm-up ──┬─ cpu reading ─ measure ── progress ──┬─ cpu reading ─ stop ── collect
//!   every loop    sessions ─┴──────────────────────────────────────┴─────────────── live = 0 ─► LoopResult
//! ```

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use timestone::{Db, Error, KeyspaceId, LocalDb, Pending};
use timestone_types::Timestamp;
use timestone_workload::history::SessionSlot;
use timestone_workload::{
    Arrivals, Generator, KeyIndex, Pace, Recorder, SnapshotAges, Snapshots, WorkloadSpec,
    integer_of,
};

use super::Setup;
use super::board::{BenchRun, Board, Course, CoursePhase, Totals};
use super::cpu::{CpuReading, Used};
use super::history::Chronicle;
use super::host::Host;
use super::limits::{END_TIMEOUT, OPERATION_DEADLINE, TICK};
use super::progress::{RUNNING, bar};
use super::session::BenchSession;
use crate::failure::Failure;
use crate::signals::Interrupt;

/// What was measured.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) recorder: Recorder,
    pub(super) duration: Duration,
    pub(super) used: Used,
    pub(super) totals: Totals,
    /// How old what was read was, where clocks are wrong on purpose.
    pub(super) ages: Option<SnapshotAges>,
    /// Sessions that did not end in time.
    pub(super) abandoned: u32,
    pub(super) first_error: Option<Error>,
}

impl Measured {
    fn new(duration: Duration, used: Used) -> Self {
        let (recorder, totals) = (Recorder::new(), Totals::default());
        Self { recorder, duration, used, totals, ages: None, abandoned: 0, first_error: None }
    }
}

/// What one event loop has to say at the end.
struct LoopResult {
    recorder: Recorder,
    totals: Totals,
    abandoned: u32,
    first_error: Option<Error>,
    broken: Option<Failure>,
}

/// Runs the sessions, and measures.
pub(super) fn measure(
    host: &Host,
    keyspace: KeyspaceId,
    setup: &Setup,
    chronicle: Option<Chronicle>,
    interrupt: &Interrupt,
) -> Result<Measured, Failure> {
    let snapshots = setup.looks_at_ages.then(Snapshots::default);
    let run = Arc::new(BenchRun::new(setup, chronicle, snapshots));
    let loops = host.loops().len() as u32;
    let mut pending = Vec::new();
    for (index, db) in (0..loops).zip(host.loops()) {
        let board = LoopPlan {
            run: Arc::clone(&run),
            index,
            loops,
            clients: setup.clients,
            pace: setup.pace,
        };
        pending.push(
            db.in_keyspace(keyspace)
                .with_deadline(OPERATION_DEADLINE)
                .spawn(move |db| drive(db, board)),
        );
    }
    pass(&run.course, "warming up", setup.warmup, interrupt);
    let (before, begin) = (CpuReading::take(host.servers()), Instant::now());
    run.course.enter(CoursePhase::Measure);
    pass(&run.course, "measuring ", setup.duration, interrupt);
    run.course.enter(CoursePhase::Stop);
    let duration = begin.elapsed();
    let used = CpuReading::take(host.servers()).since(&before);

    let ended = collect(pending, Measured::new(duration, used));
    // Also when a loop failed: what was written down so far is a history.
    let closed = run.chronicle.as_ref().map_or(Ok(()), Chronicle::close);
    let measured = ended?;
    let ages = run.snapshots.as_ref().map(Snapshots::ages);
    closed.map(|()| Measured { ages, ..measured })
}

/// Waits for all loops, and adds up what they say.
fn collect(pending: Vec<Pending<LoopResult>>, mut measured: Measured) -> Result<Measured, Failure> {
    for task in pending {
        let result = task.wait()?;
        if let Some(failure) = result.broken {
            return Err(failure);
        }
        measured.recorder.merge(&result.recorder);
        measured.totals.merge(&result.totals);
        measured.abandoned += result.abandoned;
        measured.first_error = measured.first_error.or(result.first_error);
    }
    // Nobody knows what becomes of them.
    (0..measured.abandoned).for_each(|_| measured.recorder.unknown());
    Ok(measured)
}

/// Lets the sessions run for `span`, or until they or a signal end the run; a progress bar tells.
pub(super) fn pass(course: &Course, what: &'static str, span: Duration, interrupt: &Interrupt) {
    let begin = Instant::now();
    let bar = bar(u64::try_from(span.as_millis()).unwrap_or(u64::MAX), RUNNING).with_prefix(what);
    let mut last = (begin, course.committed.load(Relaxed));
    while !course.is_over() && !interrupt.has_come() {
        let elapsed = begin.elapsed();
        if elapsed >= span {
            break;
        }
        std::thread::sleep(TICK.min(span - elapsed));
        let (now, committed) = (Instant::now(), course.committed.load(Relaxed));
        let since = now.duration_since(last.0);
        if since >= 5 * TICK {
            let rate = committed.saturating_sub(last.1) as f64 / since.as_secs_f64();
            let left = span.saturating_sub(begin.elapsed());
            bar.set_message(format!("{rate:.0} committed/s, {} s left", left.as_secs()));
            last = (now, committed);
        }
        bar.set_position(u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX));
    }
    bar.finish_and_clear();
}

/// What one event loop is to run.
struct LoopPlan {
    run: Arc<BenchRun>,
    index: u32,
    loops: u32,
    clients: u32,
    pace: Pace,
}

impl LoopPlan {
    /// This loop's sessions: every `loops`-th client.
    fn clients(&self) -> impl Iterator<Item = u32> + use<> {
        (self.index..self.clients).step_by(self.loops as usize)
    }

    fn arrivals(&self) -> Result<Option<Arrivals>, timestone_workload::WorkloadError> {
        let Pace::Open { per_second } = self.pace else { return Ok(None) };
        let seed = self.run.spec.seed.wrapping_add(u64::from(self.index));
        Arrivals::new(per_second / f64::from(self.loops), seed, Timestamp::ZERO).map(Some)
    }
}

/// On an event loop: starts its sessions, publishes what they committed, waits until all have
/// ended.
async fn drive(db: LocalDb, plan: LoopPlan) -> timestone::Result<LoopResult> {
    let sessions = plan.clients().count() as u32;
    let arrivals = plan.arrivals().map_err(Error::application)?;
    let board = Rc::new(Board::new(Arc::clone(&plan.run), sessions, arrivals));
    for client in plan.clients() {
        let generator =
            Generator::new(&plan.run.spec, client, plan.clients).map_err(Error::application)?;
        db.spawn(
            BenchSession::new(db.new_session()?, &board, SessionSlot(client), generator).run(),
        );
    }
    let (mut published, mut over_since) = (0, None);
    while board.live.get() > 0 {
        db.sleep(TICK).await?;
        let committed = board.recorder.borrow().committed_count();
        plan.run.course.committed.fetch_add(committed - published, Relaxed);
        published = committed;
        if plan.run.course.is_over()
            && over_since.get_or_insert_with(Instant::now).elapsed() > END_TIMEOUT
        {
            break;
        }
    }
    let recorder = board.recorder.replace(Recorder::new());
    let (first_error, broken) = (board.first_error.take(), board.broken.take());
    Ok(LoopResult {
        recorder,
        totals: board.totals.get(),
        abandoned: board.live.get(),
        first_error,
        broken,
    })
}

/// Bank: what all accounts hold when everything is over, in one snapshot.
pub(super) fn final_total(
    db: &Db,
    keyspace: KeyspaceId,
    spec: &WorkloadSpec,
) -> Result<i64, Failure> {
    let (shape, accounts) = (spec.key_shape(), spec.keys);
    let balances = db.in_keyspace(keyspace).spawn(move |db| async move {
        db.transact(|tx| async move {
            let mut key = Vec::new();
            let mut balances = Vec::new();
            for account in (0..accounts).map(KeyIndex) {
                key.clear();
                shape.write(account, &mut key);
                balances.push(tx.get(&key).await?.map(Vec::from).unwrap_or_default());
            }
            Ok(balances)
        })
        .await
    });
    let mut sum = 0;
    for balance in balances.wait()? {
        // A closed account holds nothing.
        if balance.is_empty() && spec.delete_percent > 0 {
            continue;
        }
        sum += integer_of(&balance).map_err(|error| Failure::failed(error.to_string()))?;
    }
    Ok(sum)
}
