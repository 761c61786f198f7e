//! Taking the times of stages while they run in the simulator: what they really took, beside what
//! they were given.
//!
//! ```text
//!   turn ── stage run: events, frames ── begins … code of the stage … ends ── … ── flush ── next turn: one sample a stage
//! ```
//! The stages are the very ones of production, on memory instead of devices and sockets; so what a
//! stage takes here is its own code, with its misses of the processor's caches, and system calls
//! are measured elsewhere. The clock is the caller's.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use timestone_seda::StageId;
use timestone_wire::Kind;

use super::fit::Regression;
use super::table::{StageCosts, StageKind};

/// Features of a sample besides its frames: run, event, byte, read, byte read, write, byte written,
/// byte of flash.
const PLAIN: usize = 8;
/// A kind of frame that was met less often is not told apart: what is rare takes the blame for
/// whatever happens by chance.
const ENOUGH: f64 = 2_000.0;
/// Turns of a stage that make a sample: what a device is asked for in one shows in the times of
/// others.
const WINDOW: usize = 32;
const RUN: usize = 0;
const EVENT: usize = 1;
const BYTE: usize = 2;
const READ: usize = 3;
const READ_BYTE: usize = 4;
const WRITE: usize = 5;
const WRITE_BYTE: usize = 6;
const FLASH_BYTE: usize = 7;

/// A clock for measuring, and what was measured with it; clones share both.
#[derive(Clone)]
pub struct Stopwatch {
    nanos: Arc<dyn Fn() -> u64 + Send + Sync>,
    /// What looking at the clock twice takes.
    own: u64,
    runs: Arc<AtomicBool>,
    /// Told the core of every turn before it; the number of the group that it belongs to.
    follow: Option<Arc<dyn Fn(usize) -> usize + Send + Sync>>,
    /// By group.
    samples: Arc<Mutex<Vec<Samples>>>,
}

impl fmt::Debug for Stopwatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stopwatch").field("own", &self.own).finish_non_exhaustive()
    }
}

impl Stopwatch {
    /// With a clock that counts nanoseconds.
    #[must_use]
    pub fn new(nanos: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        let nanos = Arc::new(nanos);
        let mut pairs: Vec<u64> = (0..1_001)
            .map(|_| {
                let begin = nanos();
                nanos().saturating_sub(begin)
            })
            .collect();
        pairs.sort_unstable();
        Self {
            own: pairs[pairs.len() / 2],
            nanos,
            runs: Arc::default(),
            follow: None,
            samples: Arc::default(),
        }
    }

    /// The same, and `follow` is told the virtual core of each turn before it begins: a caller that
    /// goes to a real one finds there what was left there. It says which group the turn belongs to,
    /// by a number: groups are told apart in [`Stopwatch::groups`].
    #[must_use]
    pub fn following(self, follow: impl Fn(usize) -> usize + Send + Sync + 'static) -> Self {
        Self { follow: Some(Arc::new(follow)), ..self }
    }

    /// What was measured so far, by group; without [`Stopwatch::following`], all is in one.
    #[must_use]
    pub fn groups(&self) -> Vec<Samples> {
        self.lock().clone()
    }

    /// From now on, or no longer.
    pub fn run(&self, on: bool) {
        self.runs.store(on, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Samples>> {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What was measured: for every kind of stage, how its time depends on what it is given.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    stages: BTreeMap<StageKind, Fits>,
}

/// The samples of a kind of stage: turn by turn, and many turns together.
#[derive(Clone, Debug)]
struct Fits {
    single: Regression,
    several: Regression,
}

impl Fits {
    fn new(width: usize) -> Self {
        Self { single: Regression::new(width, 1), several: Regression::new(width, WINDOW) }
    }

    fn add(&mut self, features: &[f64], nanos: f64) {
        self.single.add(features, nanos);
        self.several.add(features, nanos);
    }
}

impl Samples {
    /// The costs that explain the samples best, by kind of stage; none of a kind that was never
    /// run.
    #[must_use]
    pub fn costs(&self) -> BTreeMap<StageKind, StageCosts> {
        self.stages.iter().map(|(kind, fits)| (*kind, costs_of(fits))).collect()
    }

    /// Nanoseconds that each kind of stage took altogether.
    #[must_use]
    pub fn totals(&self) -> BTreeMap<StageKind, f64> {
        self.stages.iter().map(|(kind, fits)| (*kind, fits.single.total())).collect()
    }

    /// The same, as if all had taken so many times as long.
    #[must_use]
    pub fn scaled(mut self, times: f64) -> Self {
        for Fits { single, several } in self.stages.values_mut() {
            single.scale(times);
            several.scale(times);
        }
        self
    }

    /// Adds samples of the same run.
    pub fn append(&mut self, other: Self) {
        self.merge(other, |mine, fits| {
            mine.single.append(fits.single);
            mine.several.append(fits.several);
        });
    }

    /// Adds the samples of another run, which counts as much as each of the others.
    pub fn extend(&mut self, other: Self) {
        self.merge(other, |mine, fits| {
            mine.single.extend(fits.single);
            mine.several.extend(fits.several);
        });
    }

    /// Adds the samples of a run that tells what calls and turns cost, and nothing else: with
    /// little to do, what frames need is in the caches.
    pub fn extend_turns(&mut self, other: Self) {
        self.merge(other, |mine, fits| mine.single.extend(fits.single));
    }

    fn merge(&mut self, other: Self, add: impl Fn(&mut Fits, Fits)) {
        for (kind, fits) in other.stages {
            match self.stages.entry(kind) {
                // Nothing else tells of this kind yet.
                Entry::Vacant(entry) => _ = entry.insert(fits),
                Entry::Occupied(mut entry) => add(entry.get_mut(), fits),
            }
        }
    }

    /// Nanoseconds that each kind of stage should have taken by these costs.
    #[must_use]
    pub fn expected(&self, costs: &BTreeMap<StageKind, StageCosts>) -> BTreeMap<StageKind, f64> {
        let one = |(kind, fits): (&StageKind, &Fits)| {
            let weights = costs.get(kind).map_or_else(Vec::new, weights_from);
            (*kind, fits.single.total() - fits.single.unexplained(&weights))
        };
        self.stages.iter().map(one).collect()
    }

    /// Samples of each kind of stage, and the share of the measured time that is no event's alone,
    /// but spread over all.
    #[must_use]
    pub fn spread(&self) -> BTreeMap<StageKind, (usize, f64)> {
        let one = |(kind, fits): (&StageKind, &Fits)| {
            let left = fits.several.unexplained(&weights_of(fits));
            (*kind, (fits.single.samples(), fits.several.share(left)))
        };
        self.stages.iter().map(one).collect()
    }
}

/// What calls and runs cost is seen in single turns; everything else in several together, which
/// show all that it causes.
fn weights_of(Fits { single, several }: &Fits) -> Vec<f64> {
    let rare = |place: usize| place >= PLAIN && several.sum(place) < ENOUGH;
    let alone = single.solve(|place| rare(place).then_some(0.0));
    several.solve(|place| match place {
        RUN | READ | WRITE => Some(alone[place]),
        _ => rare(place).then_some(0.0),
    })
}

/// What single events cost; what stages do now and then besides is spread over all of them.
fn costs_of(fits: &Fits) -> StageCosts {
    let (mut weights, regression) = (weights_of(fits), &fits.several);
    let left = regression.unexplained(&weights);
    let explained = 1.0 - regression.share(left);
    weights.iter_mut().for_each(|weight| *weight /= explained.max(0.1));
    let known = Kind::ALL.iter().filter(|kind| regression.sum(frame(**kind)) >= ENOUGH);
    let (mut count, mut nanos) = (0.0, 0.0);
    for kind in known.clone() {
        count += regression.sum(frame(*kind));
        nanos += regression.sum(frame(*kind)) * weights[frame(*kind)];
    }
    StageCosts {
        run: weights[RUN],
        event: weights[EVENT],
        byte: weights[BYTE],
        read: weights[READ],
        read_byte: weights[READ_BYTE],
        write: weights[WRITE],
        write_byte: weights[WRITE_BYTE],
        flash_byte: weights[FLASH_BYTE],
        frame: if count > 0.0 { nanos / count } else { 0.0 },
        frames: known.map(|&kind| (kind.name().to_owned(), weights[frame(kind)])).collect(),
        far: 0.0,
    }
}

/// The weights of the features in costs.
fn weights_from(costs: &StageCosts) -> Vec<f64> {
    let StageCosts { run, event, byte, read, read_byte, write, write_byte, flash_byte, .. } =
        *costs;
    let of_kind = |kind: &Kind| costs.frames.get(kind.name()).copied().unwrap_or(costs.frame);
    let plain = [run, event, byte, read, read_byte, write, write_byte, flash_byte];
    plain.into_iter().chain(Kind::ALL.iter().map(of_kind)).collect()
}

/// The place of a kind of frame among the features.
fn frame(kind: Kind) -> usize {
    PLAIN + Kind::ALL.iter().position(|one| *one == kind).unwrap_or_default()
}

/// System calls on the sockets of a process, and bytes that its flash devices move.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    sockets: [AtomicU64; 4],
    flash: AtomicU64,
}

impl Counts {
    pub(super) fn read(&self, bytes: usize) {
        self.sockets[0].fetch_add(1, Ordering::Relaxed);
        self.sockets[1].fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn write(&self) {
        self.sockets[2].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn written(&self, bytes: usize) {
        self.sockets[3].fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn flash(&self, bytes: u64) {
        self.flash.fetch_add(bytes, Ordering::Relaxed);
    }

    fn now(&self) -> [u64; 4] {
        std::array::from_fn(|place| self.sockets[place].load(Ordering::Relaxed))
    }
}

/// A stage in the turn under way.
#[derive(Clone, Debug)]
struct OpenTurn {
    features: Vec<f64>,
    nanos: u64,
}

/// Takes the times of the stages of one process.
pub(super) struct Taking {
    watch: Stopwatch,
    kinds: Vec<StageKind>,
    counts: Arc<Counts>,
    /// Of the turn under way.
    group: usize,
    open: Vec<OpenTurn>,
    touched: Vec<usize>,
    begun: u64,
    counted: [u64; 4],
    /// By number of kind: its place among the features.
    places: [u8; 256],
}

impl Taking {
    pub(super) fn new(watch: Stopwatch, kinds: Vec<StageKind>, counts: Arc<Counts>) -> Self {
        let width = PLAIN + Kind::ALL.len();
        let mut places = [0; 256];
        for &kind in Kind::ALL {
            places[kind as usize] = u8::try_from(frame(kind)).unwrap_or(u8::MAX);
        }
        let open = vec![OpenTurn { features: vec![0.0; width], nanos: 0 }; kinds.len()];
        Self {
            watch,
            kinds,
            counts,
            group: 0,
            open,
            touched: Vec::new(),
            begun: 0,
            counted: [0; 4],
            places,
        }
    }

    /// A turn begins: what the stages did in the one before becomes samples.
    pub(super) fn turn(&mut self, core: usize) {
        let now = self.watch.follow.as_ref().map_or(0, |follow| follow(core));
        let group = std::mem::replace(&mut self.group, now);
        if self.touched.is_empty() {
            return;
        }
        let on = self.watch.runs.load(Ordering::Relaxed);
        // Whichever shard it was: only the sum counts.
        let flash = self.counts.flash.swap(0, Ordering::Relaxed);
        if let Some(&shard) =
            self.touched.iter().find(|&&stage| self.kinds[stage] == StageKind::Shard)
        {
            self.open[shard].features[FLASH_BYTE] = flash as f64;
        }
        let mut samples = self.watch.lock();
        if samples.len() <= group {
            samples.resize_with(group + 1, Samples::default);
        }
        for stage in self.touched.drain(..) {
            let open = &mut self.open[stage];
            if on {
                let fits = samples[group].stages.entry(self.kinds[stage]);
                fits.or_insert_with(|| Fits::new(open.features.len()))
                    .add(&open.features, open.nanos as f64);
            }
            open.features.fill(0.0);
            open.nanos = 0;
        }
    }

    fn touch(&mut self, stage: StageId) -> &mut OpenTurn {
        let stage = stage.index();
        if !self.touched.contains(&stage) {
            self.touched.push(stage);
        }
        &mut self.open[stage]
    }

    pub(super) fn ran(&mut self, stage: StageId) {
        self.touch(stage).features[RUN] += 1.0;
    }

    pub(super) fn event(&mut self, stage: StageId, bytes: usize) {
        let open = self.touch(stage);
        open.features[EVENT] += 1.0;
        open.features[BYTE] += bytes as f64;
    }

    pub(super) fn frame(&mut self, stage: StageId, kind: Kind) {
        let place = usize::from(self.places[kind as usize]);
        self.touch(stage).features[place] += 1.0;
    }

    pub(super) fn begins(&mut self) {
        self.counted = self.counts.now();
        self.begun = (self.watch.nanos)();
    }

    pub(super) fn ends(&mut self, stage: StageId) {
        let took = (self.watch.nanos)().saturating_sub(self.begun).saturating_sub(self.watch.own);
        let (before, now) = (self.counted, self.counts.now());
        let open = self.touch(stage);
        open.nanos += took;
        for (place, (now, before)) in now.into_iter().zip(before).enumerate() {
            open.features[READ + place] += (now - before) as f64;
        }
    }
}
