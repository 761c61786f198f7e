//! By how much others on the same hardware slow a core down.
//!
//! On a rented machine, other tenants have the other half of each core now and then: arithmetic
//! takes a quarter longer meanwhile, and stages, which share their caches as well, three times as
//! much more. A piece of arithmetic that is done in a few microseconds, in registers alone, tells:
//! its time is the same to a hundredth as long as nobody else is there, and what stages take
//! follows it (over seconds; from one turn to the next, neighbours come and go).

use std::error::Error;
use std::hint::black_box;
use std::io::BufRead;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crate::threads::pin;

/// Pieces of a probe, and rounds of arithmetic of each: some 20 µs altogether.
const PIECES: usize = 9;
const STEPS: u64 = 2_500;
/// What slows a probe down by more is no neighbour, but something that interrupted it.
const MOST: f64 = 1.4;
/// A core is as good as alone when arithmetic takes no more than so many times as long.
const NEARLY_ALONE: f64 = 1.03;
/// How long cores are watched before anything else, for the fastest probe: kept busy, since hosts
/// move tenants that are busy to cores that are free.
const FIRST_LOOK: Duration = Duration::from_secs(5);
/// From one probe of a core to the next, where others are measured meanwhile, and where this thread
/// is.
const PAUSE: Duration = Duration::from_millis(10);
const PAUSE_HERE: Duration = Duration::from_millis(1);
/// How often something is measured to find a moment when cores were nearly alone.
const TRIES: usize = 4;
/// What is looked at together: so much must have been seen of a core to say how it was.
const SLICE: Duration = Duration::from_millis(250);

/// What arithmetic takes now, in nanoseconds: the middle of several pieces. The first has to fetch
/// its code, and an interruption strikes one or two.
fn probe() -> f64 {
    let one = |_| {
        let begin = Instant::now();
        let (mut first, mut second, mut third, mut fourth) =
            black_box((1_u64, 2_u64, 3_u64, 4_u64));
        for step in 0..STEPS {
            first = first.wrapping_mul(3).wrapping_add(1);
            second = second.wrapping_mul(5).wrapping_add(step);
            third ^= third << 3;
            fourth = fourth.wrapping_add(fourth >> 2);
        }
        black_box((first, second, third, fourth));
        begin.elapsed().as_nanos() as f64
    };
    let mut pieces: [f64; PIECES] = std::array::from_fn(one);
    pieces.sort_unstable_by(f64::total_cmp);
    pieces[PIECES / 2]
}

/// Knows what a probe takes on a core that is shared with nobody: as long as the fastest ever.
#[derive(Clone, Debug)]
pub(crate) struct Alone(Arc<AtomicU64>);

impl Alone {
    /// Watches these cores for a while.
    pub(crate) fn watch(cores: &[usize]) -> Result<Self, Box<dyn Error>> {
        let alone = Self(Arc::new(AtomicU64::new(u64::MAX)));
        thread::scope(|scope| {
            let watch = |core| {
                let begin = Instant::now();
                pin(core)?;
                while begin.elapsed() < FIRST_LOOK {
                    alone.probe();
                }
                Ok::<_, std::io::Error>(())
            };
            let watching: Vec<_> =
                cores.iter().map(|&core| scope.spawn(move || watch(core))).collect();
            watching.into_iter().try_for_each(|one| {
                one.join()
                    .map_err(|_| "a thread that looks at a core panicked")?
                    .map_err(Into::into)
            })
        })
        .map(|()| alone.clone())
    }

    /// What a probe takes now, in nanoseconds.
    fn probe(&self) -> f64 {
        let took = probe();
        self.0.fetch_min(took as u64, Ordering::Relaxed);
        took
    }

    /// How many times as long as alone probes took: their mean; as long as alone, when there are
    /// none.
    fn slowness(&self, probes: impl Iterator<Item = f64>) -> f64 {
        let alone = self.0.load(Ordering::Relaxed) as f64;
        let add = |(count, sum), took: f64| (count + 1.0, sum + (took / alone).clamp(1.0, MOST));
        let (count, sum) = probes.fold((0.0, 0.0), add);
        if count > 0.0 { sum / count } else { 1.0 }
    }

    /// What is measured, and how many times as long as alone arithmetic took meanwhile.
    fn beside<T>(
        &self,
        cores: &[usize],
        measure: &mut impl FnMut() -> Result<T, Box<dyn Error>>,
    ) -> Result<(T, f64), Box<dyn Error>> {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let over = &over;
            let watching: Vec<_> =
                cores.iter().map(|&core| scope.spawn(move || self.until(over, core))).collect();
            let measured = measure();
            over.store(true, Ordering::Relaxed);
            let mut seen = Vec::new();
            for one in watching {
                seen.extend(one.join().map_err(|_| "a thread that looks at a core panicked")??);
            }
            Ok((measured?, self.slowness(seen.into_iter())))
        })
    }

    /// Looks at a core now and then.
    fn until(&self, over: &AtomicBool, core: usize) -> Result<Vec<f64>, std::io::Error> {
        pin(core)?;
        let mut seen = vec![self.probe()];
        while !over.load(Ordering::Relaxed) {
            thread::sleep(PAUSE);
            seen.push(self.probe());
        }
        Ok(seen)
    }
}

/// What work takes more beside others.
#[derive(Debug)]
pub(crate) struct Around {
    pub(crate) alone: Alone,
    pub(crate) cores: [usize; 2],
    /// See [`ThreadCosts::neighbours`](timestone_sim::ThreadCosts::neighbours).
    pub(crate) neighbours: f64,
}

impl Around {
    /// How many times as long as alone work takes where arithmetic takes so many times as long.
    pub(crate) fn times(&self, slowness: f64) -> f64 {
        timestone_sim::ThreadCosts::beside(self.neighbours, slowness)
    }

    /// What was measured when the cores were alone most, and how many times as long as alone it
    /// took.
    pub(crate) fn measure<T>(
        &self,
        mut measure: impl FnMut() -> Result<T, Box<dyn Error>>,
    ) -> Result<(T, f64), Box<dyn Error>> {
        let (mut measured, mut least) = self.alone.beside(&self.cores, &mut measure)?;
        for _ in 1..TRIES {
            if least <= NEARLY_ALONE {
                break;
            }
            let (again, slowness) = self.alone.beside(&self.cores, &mut measure)?;
            if slowness < least {
                (measured, least) = (again, slowness);
            }
        }
        Ok((measured, self.times(least)))
    }

    /// What a time was that is measured so, had there been nobody.
    pub(crate) fn time(
        &self,
        measure: impl FnMut() -> Result<f64, Box<dyn Error>>,
    ) -> Result<f64, Box<dyn Error>> {
        let (took, times) = self.measure(measure)?;
        Ok(took / times)
    }
}

/// Time in slices, and how this thread's cores were in each.
#[derive(Clone)]
pub(crate) struct Slices {
    alone: Alone,
    seen: Arc<Mutex<Seen>>,
}

struct Seen {
    /// What probes took.
    slices: Vec<Vec<f64>>,
    begun: Instant,
    looked: Option<Instant>,
}

impl Slices {
    pub(crate) fn new(alone: &Alone) -> Self {
        let seen = Seen { slices: vec![Vec::new()], begun: Instant::now(), looked: None };
        Self { alone: alone.clone(), seen: Arc::new(Mutex::new(seen)) }
    }

    /// Looks at this thread's core, if that is due; the number of the slice that it is.
    pub(crate) fn now(&self) -> usize {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.looked.is_none_or(|looked| looked.elapsed() >= PAUSE_HERE) {
            if seen.begun.elapsed() >= SLICE {
                seen.begun = Instant::now();
                seen.slices.push(Vec::new());
            }
            let took = self.alone.probe();
            seen.slices.last_mut().into_iter().for_each(|slice| slice.push(took));
            seen.looked = Some(Instant::now());
        }
        seen.slices.len() - 1
    }

    /// How many times as long as alone arithmetic took, by slice.
    pub(crate) fn slowness(&self) -> Vec<f64> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.slices.iter().map(|slice| self.alone.slowness(slice.iter().copied())).collect()
    }
}

/// Watches these cores while others measure. For each line that comes in, a number of seconds, a
/// line goes out: how many times as long as alone arithmetic took in the seconds before, for each
/// core.
pub(crate) fn tell(cores: &[usize]) -> Result<(), Box<dyn Error>> {
    let alone = Alone::watch(cores)?;
    let over = AtomicBool::new(false);
    let mut seen: Vec<Vec<(Instant, f64)>> = vec![Vec::new(); cores.len()];
    thread::scope(|scope| {
        let (sender, probes) = mpsc::channel();
        for (place, &core) in cores.iter().enumerate() {
            let (sender, over, alone) = (sender.clone(), &over, &alone);
            scope.spawn(move || {
                let pinned = pin(core);
                let taken = || sender.send((place, Instant::now(), alone.probe())).is_ok();
                while pinned.is_ok() && !over.load(Ordering::Relaxed) && taken() {
                    thread::sleep(PAUSE);
                }
            });
        }
        let mut answer = |line: String| -> Result<(), Box<dyn Error>> {
            let since = Duration::try_from_secs_f64(line.trim().parse()?)?;
            for (place, at, took) in probes.try_iter() {
                seen[place].push((at, took));
            }
            let means = seen.iter().map(|probes| {
                let recent = probes.iter().rev().take_while(|(at, _)| at.elapsed() <= since);
                format!("{:.4}", alone.slowness(recent.map(|probe| probe.1)))
            });
            println!("{}", means.collect::<Vec<_>>().join(" "));
            Ok(())
        };
        let told = std::io::stdin().lock().lines().try_for_each(|line| answer(line?));
        over.store(true, Ordering::Relaxed);
        told
    })
}
