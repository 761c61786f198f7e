//! What a store's work takes on this machine: the prices of [`Processor`].
//!
//! The stores run as in an experiment, in virtual time in which work takes none, and whoever asks
//! hands in a clock of the thread's processor time. Each sample is a part of a run: how often each
//! thing was done, and what the thread needed. Runs are the same each time, so each is repeated,
//! and of each sample the least time counts: what others cost this thread is not the store's. The
//! device keeps pages whole here, so that what it costs is a copy of a page each way: about what a
//! driver needs that is polled.

use std::time::Duration;

use timestone_costmodel::prices;
use timestone_flash::FlashClock;
use timestone_store::{Mftl, Skimpy, Vftl};

use crate::error::ReproError;
use crate::progress::{Progress, ProgressPart};
use crate::spec::Spec;
use crate::store::mix::Asking;
use crate::store::part::{StoreKind, StorePart};
use crate::store::processor::{Processor, Work};
use crate::store::subject::Subject;
use crate::store::sweep::{Medium, prepared};

/// Keys of the stores that are measured: an index that no cache of a processor holds.
const KEYS: u64 = 400_000;
/// Room on their devices, by what the keys take: with much of it collection moves little.
const ROOMS: [f64; 2] = [1.6, 3.0];
/// Shares of puts.
const SHARES: [f64; 5] = [0.0, 10.0, 50.0, 75.0, 100.0];
/// Those of `skimpy`, which shows what longer chains cost: that needs no collection.
const FEW_PUTS: [f64; 2] = [0.0, 5.0];
/// Samples of each, and how long each is in virtual time.
const SAMPLES: usize = 20;
const SAMPLE: Duration = Duration::from_millis(10);
/// How often a run is repeated.
const REPEATS: usize = 3;
/// Turns of a store that has nothing to do, to learn what a turn takes.
const IDLE_TURNS: u64 = 200_000;

/// How often each thing was done, and what the thread needed, in nanoseconds.
type Sample = (Work, f64);

/// Measures the prices; `processor_time` is what this thread has used so far.
///
/// # Errors
/// A store that refuses what is asked of it.
pub fn calibrate(
    processor_time: &dyn Fn() -> Duration,
    progress: &mut dyn Progress,
) -> Result<Processor, ReproError> {
    let text = include_str!("../../../../scenarios/repro/semel-t1.toml");
    let spec = Spec::read("scenarios/repro/semel-t1.toml", text)?;
    let Some(mut part) = spec.store else {
        return Err(ReproError::Spec("semel-t1 compares no stores".to_owned()));
    };
    part.keys = KEYS;
    part.processor = Processor::default();
    let mut least: Vec<Sample> = Vec::new();
    let mut turn = f64::INFINITY;
    for repeat in 0..REPEATS {
        let mut progress = ProgressPart::of(progress, repeat, REPEATS);
        let mut samples = Vec::new();
        turn = turn.min(run_all(&mut part, processor_time, &mut progress, &mut samples)?);
        if least.is_empty() {
            least = samples;
            continue;
        }
        for (least, sample) in least.iter_mut().zip(samples) {
            assert_eq!(least.0, sample.0, "a run in virtual time is the same each time");
            least.1 = least.1.min(sample.1);
        }
    }
    // Turns come and go with requests, so that their price cannot be told from that of requests.
    let beside: Vec<(Vec<f64>, f64)> = least
        .into_iter()
        .map(|(work, took)| {
            let mut counts = work.counts();
            let turns = std::mem::take(&mut counts[0]);
            (counts.to_vec(), (took - turns * turn).max(0.0))
        })
        .collect();
    let mut found = <[f64; Work::KINDS]>::try_from(prices(&beside))
        .map_err(|_| ReproError::Run("nothing was measured".to_owned()))?;
    found[0] = turn;
    Ok(Processor::from_prices(found.map(f64::round)))
}

/// All stores in all rooms, once; what a turn takes, in nanoseconds.
fn run_all(
    part: &mut StorePart,
    processor_time: &dyn Fn() -> Duration,
    progress: &mut ProgressPart<'_>,
    samples: &mut Vec<Sample>,
) -> Result<f64, ReproError> {
    let mut turn = f64::INFINITY;
    for (number, room) in ROOMS.into_iter().enumerate() {
        part.device.capacity_bytes = (KEYS as f64 * 512.0 * room) as u64;
        let mut half = progress.part(number, ROOMS.len());
        part.run.precondition = 2.0;
        let run = Run { kind: StoreKind::Mftl, part, shares: &SHARES };
        turn = turn.min(run.measure::<Mftl>(processor_time, &mut half.part(0, 3), samples)?);
        let run = Run { kind: StoreKind::Vftl, part, shares: &SHARES };
        run.measure::<Vftl>(processor_time, &mut half.part(1, 3), samples)?;
        if number > 0 {
            part.run.precondition = 0.0;
            let run = Run { kind: StoreKind::Skimpy, part, shares: &FEW_PUTS };
            run.measure::<Skimpy>(processor_time, &mut half.part(2, 3), samples)?;
        }
    }
    Ok(turn)
}

/// One store, with the shares of puts that it is measured at.
struct Run<'a> {
    kind: StoreKind,
    part: &'a StorePart,
    shares: &'a [f64],
}

impl Run<'_> {
    fn measure<S: Subject>(
        &self,
        processor_time: &dyn Fn() -> Duration,
        progress: &mut ProgressPart<'_>,
        samples: &mut Vec<Sample>,
    ) -> Result<f64, ReproError> {
        let medium = Medium { clock: FlashClock::stopped(), compact: false };
        let (kind, buckets, parts) = (self.kind, self.part.keys_per_bucket, self.shares.len() + 1);
        let mut mix =
            prepared::<S>(kind, self.part, buckets, 1, medium, &mut progress.part(0, parts))?;
        for (number, &put_share) in self.shares.iter().enumerate() {
            let mut progress = progress.part(number + 1, parts);
            for _ in 0..SAMPLES {
                let before = processor_time();
                let asking = Asking::Mixed { put_share, span: SAMPLE };
                let tally = mix.drive(asking, kind.name(), &mut progress)?;
                let took = processor_time().saturating_sub(before);
                samples.push((tally.work, took.as_nanos() as f64));
            }
        }
        let before = processor_time();
        mix.idle_turns(IDLE_TURNS);
        let took = processor_time().saturating_sub(before);
        Ok(took.as_nanos() as f64 / IDLE_TURNS as f64)
    }
}
