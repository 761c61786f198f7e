//! The places of an experiment's axis, store after store.

use std::collections::BTreeMap;

use timestone_flash::{FlashClock, FlashDevice};
use timestone_store::{Mftl, Sftl, Skimpy, Vftl};

use crate::error::ReproError;
use crate::measured::{Measured, Point};
use crate::progress::ProgressPart;
use crate::store::device::{Observed, medium_of};
use crate::store::mix::{Asking, OperationTally, StoreMix, pages_of};
use crate::store::part::{StoreKind, StorePart, Sweep};
use crate::store::subject::Subject;

/// How the parts of one store's progress weigh: loading and preconditioning, and each place.
const SETUP_PARTS: usize = 4;

/// Measures every store at every place.
pub(crate) fn run(
    part: &StorePart,
    seed: u64,
    in_real_time: bool,
    progress: &mut ProgressPart<'_>,
) -> Result<Measured, ReproError> {
    let mut measured =
        Measured { x_name: part.sweep.name().to_owned(), points: Vec::new(), notes: Vec::new() };
    for (number, &kind) in part.compare.iter().enumerate() {
        let mut progress = progress.part(number, part.compare.len());
        let result = match kind {
            StoreKind::Mftl => one::<Mftl>(kind, part, seed, in_real_time, &mut progress),
            StoreKind::Vftl => one::<Vftl>(kind, part, seed, in_real_time, &mut progress),
            StoreKind::VftlUntold => {
                let part = StorePart { trims: false, ..part.clone() };
                one::<Vftl>(kind, &part, seed, in_real_time, &mut progress)
            }
            StoreKind::Sftl => one::<Sftl>(kind, part, seed, in_real_time, &mut progress),
            StoreKind::Skimpy => one::<Skimpy>(kind, part, seed, in_real_time, &mut progress),
            StoreKind::SkimpySmall => {
                let mut part = part.clone();
                if let Some(small) = part.small {
                    part.translated_thousandths = small.translated_thousandths;
                }
                one::<Skimpy>(kind, &part, seed, in_real_time, &mut progress)
            }
        };
        measured.points.extend(result?);
    }
    Ok(measured)
}

/// One store, at every place.
fn one<S: Subject>(
    kind: StoreKind,
    part: &StorePart,
    seed: u64,
    in_real_time: bool,
    progress: &mut ProgressPart<'_>,
) -> Result<Vec<Point>, ReproError> {
    let mut points = Vec::new();
    if part.sweep == Sweep::KeysPerBucket {
        // Another number of buckets is another store.
        for (number, &x) in part.over.iter().enumerate() {
            let mut progress = progress.part(number, part.over.len());
            let medium = Medium::of_experiment(in_real_time);
            let mut mix =
                prepared::<S>(kind, part, x as u32, seed, medium, &mut progress.part(0, 2))?;
            points.push(place(&mut mix, kind, part, x, &mut progress.part(1, 2))?);
        }
        return Ok(points);
    }
    let parts = SETUP_PARTS + part.over.len();
    let mut setup = progress.span(0, SETUP_PARTS, parts);
    let medium = Medium::of_experiment(in_real_time);
    let mut mix = prepared::<S>(kind, part, part.keys_per_bucket, seed, medium, &mut setup)?;
    for (number, &x) in part.over.iter().enumerate() {
        let mut progress = progress.part(SETUP_PARTS + number, parts);
        points.push(place(&mut mix, kind, part, x, &mut progress)?);
    }
    Ok(points)
}

/// The medium of a store's device.
#[derive(Clone)]
pub(super) struct Medium {
    /// That its operations take their time by.
    pub(super) clock: FlashClock,
    /// What can be generated again is not kept.
    pub(super) compact: bool,
}

impl Medium {
    fn of_experiment(in_real_time: bool) -> Self {
        let clock = if in_real_time { FlashClock::real() } else { FlashClock::stopped() };
        Self { clock, compact: true }
    }
}

/// A store with all keys, whose device was written so often that its collectors run.
pub(super) fn prepared<S: Subject>(
    kind: StoreKind,
    part: &StorePart,
    keys_per_bucket: u32,
    seed: u64,
    medium: Medium,
    progress: &mut ProgressPart<'_>,
) -> Result<StoreMix<S>, ReproError> {
    let medium = medium_of(part, medium.clock, medium.compact);
    let device = medium
        .open()
        .map_err(|error| ReproError::Run(format!("the emulated SSD cannot be opened: {error}")))?;
    let (device, monitor) = Observed::new(device);
    let device: Box<dyn FlashDevice> = Box::new(device);
    let store = S::open_on(device, part, keys_per_bucket).map_err(|error| ReproError::Store {
        store: kind.name().to_owned(),
        requests: 0,
        error,
    })?;
    let mut mix = StoreMix::new(kind.name(), store, medium, monitor, part, seed)?;
    let doing = format!("{}: putting all keys", kind.name());
    mix.drive(Asking::Load, &doing, &mut progress.part(0, 2))?;
    let pages = pages_of(part.device.capacity_bytes as f64 * part.run.precondition);
    if pages > 0 {
        let doing = format!("{}: preconditioning the SSD", kind.name());
        mix.drive(Asking::Overwrite(pages), &doing, &mut progress.part(1, 2))?;
    }
    Ok(mix)
}

/// One store at one place.
fn place<S: Subject>(
    mix: &mut StoreMix<S>,
    kind: StoreKind,
    part: &StorePart,
    x: f64,
    progress: &mut ProgressPart<'_>,
) -> Result<Point, ReproError> {
    let put_share = part.put_share_at(x);
    let doing = format!("{} at {} {x}", kind.name(), part.sweep.name());
    let asking = |span| match part.sweep {
        Sweep::Sessions => Asking::Transactions { span },
        _ => Asking::Mixed { put_share, span },
    };
    match part.sweep {
        Sweep::Sessions => mix.set_sessions(x as u32),
        _ => mix.set_in_flight(part.in_flight_at(x)),
    }
    mix.drive(asking(part.run.settle), &doing, &mut progress.part(0, 2))?;
    let before = mix.store().translations();
    let tally = mix.drive(asking(part.run.measure), &doing, &mut progress.part(1, 2))?;
    let mut figures = figures(tally, mix.store().index_bytes(), part);
    if let (Some(before), Some(after)) = (before, mix.store().translations()) {
        let (hits, misses) = (after.0 - before.0, after.1 - before.1);
        if hits + misses > 0 {
            let share = hits as f64 / (hits + misses) as f64;
            figures.insert("translation-hit-percent", share * 100.0);
        }
    }
    Ok(Point { series: kind.name().to_owned(), x, figures })
}

fn figures(
    mut tally: OperationTally,
    index_bytes: u64,
    part: &StorePart,
) -> BTreeMap<&'static str, f64> {
    let seconds = tally.span.as_secs_f64();
    let (gets, puts) = (tally.gets.count(), tally.puts.count());
    let work = tally.work;
    let mut figures = BTreeMap::from([
        ("throughput-krps", (gets + puts) as f64 / seconds / 1000.0),
        ("index-bytes-per-key", index_bytes as f64 / part.keys as f64),
        ("processor-percent", tally.busy.as_secs_f64() / seconds * 100.0),
    ]);
    let mut tell = |name: &'static str, figure: Option<f64>| {
        figure.map(|figure| figures.insert(name, figure));
    };
    tell("get-mean-us", tally.gets.mean_us());
    tell("get-p99-us", tally.gets.quantile_us(990));
    tell("put-mean-us", tally.puts.mean_us());
    tell("put-p99-us", tally.puts.quantile_us(990));
    let (committed, aborted) = (tally.transactions.count() as f64, tally.aborted as f64);
    let has_committed = committed > 0.0;
    tell("throughput-ktps", has_committed.then_some(committed / seconds / 1000.0));
    tell("commit-percent", has_committed.then(|| committed * 100.0 / (committed + aborted)));
    tell("transaction-mean-us", tally.transactions.mean_us());
    tell("transaction-p99-us", tally.transactions.quantile_us(990));
    let of_put = |count: u64| (puts > 0).then(|| count as f64 / puts as f64);
    tell("moved-records-per-put", of_put(work.moved_records));
    tell("lower-moved-pages-per-put", of_put(tally.lower_moved_pages));
    let programmed = work.programmed_pages * timestone_flash::PAGE_BYTES as u64;
    let amplification = programmed as f64 / tally.put_bytes.max(1) as f64;
    tell("write-amplification", (tally.put_bytes > 0).then_some(amplification));
    let reads_per_get = work.reads as f64 / gets.max(1) as f64;
    tell("device-reads-per-get", (gets > 0).then_some(reads_per_get));
    figures
}
