//! How long puts take that come at a rate, while nothing is collected and while collection keeps up with
//! them: on the device of the experiment `skimpy-f5`, in virtual time.
//!
//! ```text
//!   all keys put ─► as many puts at the rate: nothing is collected ─► preconditioned ─► puts at the rate, all the time with collection
//! ```
//! A put is over when it is durable, and has begun when it came: what it waits for room counts.

use timestone_flash::FlashClock;
use timestone_store::{Figure, Mftl, Skimpy};

use crate::error::ReproError;
use crate::progress::{Progress, ProgressPart};
use crate::spec::Spec;
use crate::store::mix::{Arrivals, Asking, OperationTally, StoreMix, pages_of};
use crate::store::part::{StoreKind, StorePart};
use crate::store::subject::Subject;
use crate::store::sweep::{Medium, prepared};

/// Requests of a second.
const RATES: [f64; 3] = [100_000.0, 200_000.0, 300_000.0];
/// Per cent of them.
const PUT_SHARE: f64 = 50.0;
/// Puts while collection runs before any is measured, and that are measured, by the number of keys.
const SETTLING: u64 = 4;
const MEASURED: u64 = 5;

/// What puts took, in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct PutTimes {
    /// Of half of them, at most.
    pub p50: f64,
    /// Of 99 of a hundred, at most.
    pub p99: f64,
    /// Of 999 of a thousand, at most.
    pub p999: f64,
    /// How many there were.
    pub puts: u64,
    /// Blocks that were collected meanwhile.
    pub collected_blocks: u64,
}

/// Puts of one store at one rate.
#[derive(Clone, Copy, Debug)]
pub struct PutTail {
    /// The store's name.
    pub store: &'static str,
    /// Requests of a second; half of them are puts.
    pub rate: f64,
    /// While nothing was collected.
    pub idle: PutTimes,
    /// While collection kept up.
    pub collecting: PutTimes,
}

/// Measures the puts of `mftl` and `skimpy` at three rates, with so many times the keys and the device of the
/// experiment.
///
/// # Errors
/// A store that refuses what is asked of it; a progress that wants no more.
pub fn put_tails(scale: f64, progress: &mut dyn Progress) -> Result<Vec<PutTail>, ReproError> {
    let text = include_str!("../../../../scenarios/repro/skimpy-f5.toml");
    let spec = Spec::read("scenarios/repro/skimpy-f5.toml", text)?;
    let Some(part) = spec.store else {
        return Err(ReproError::Spec("skimpy-f5 compares no stores".to_owned()));
    };
    let (part, _) = part.scaled(scale);
    let (mut found, all) = (Vec::new(), 2 * RATES.len());
    for (number, &rate) in RATES.iter().enumerate() {
        let mut one = ProgressPart::of(progress, 2 * number, all);
        found.push(measure::<Mftl>(StoreKind::Mftl, &part, rate, &mut one)?);
        let mut one = ProgressPart::of(progress, 2 * number + 1, all);
        found.push(measure::<Skimpy>(StoreKind::Skimpy, &part, rate, &mut one)?);
    }
    Ok(found)
}

fn measure<S: Subject>(
    kind: StoreKind,
    part: &StorePart,
    rate: f64,
    progress: &mut ProgressPart<'_>,
) -> Result<PutTail, ReproError> {
    let medium = Medium { clock: FlashClock::stopped(), compact: true };
    let mut fresh = part.clone();
    fresh.run.precondition = 0.0;
    let buckets = part.keys_per_bucket;
    let mut mix = prepared::<S>(kind, &fresh, buckets, 1, medium, &mut progress.part(0, 2))?;
    let arrivals = |puts| Arrivals { put_share: PUT_SHARE, rate, puts };
    let idle = times(&mut mix, arrivals(part.keys))?;
    let pages = pages_of(part.device.capacity_bytes as f64 * part.run.precondition);
    let doing = format!("{}: preconditioning the SSD", kind.name());
    mix.drive(Asking::Overwrite(pages), &doing, &mut progress.part(1, 2))?;
    mix.serve(arrivals(SETTLING * part.keys))?;
    let collecting = times(&mut mix, arrivals(MEASURED * part.keys))?;
    Ok(PutTail { store: kind.name(), rate, idle, collecting })
}

fn times<S: Subject>(mix: &mut StoreMix<S>, arrivals: Arrivals) -> Result<PutTimes, ReproError> {
    let collected = |mix: &StoreMix<S>| mix.store().figures().get(Figure::CollectedBlocks);
    let before = collected(mix);
    let OperationTally { mut puts, .. } = mix.serve(arrivals)?;
    let mut quantile = |thousandths| puts.quantile_us(thousandths).unwrap_or(0.0);
    let (p50, p99, p999) = (quantile(500), quantile(990), quantile(999));
    let collected_blocks = collected(mix) - before;
    Ok(PutTimes { p50, p99, p999, puts: puts.count(), collected_blocks })
}
