//! What it takes to wake a thread that sleeps until its socket has something, and how long that
//! takes to run.
//!
//! Both are measured where a turn's work lies between any two calls, on both sides: right after
//! themselves, they take half the time. What a write takes that wakes nobody is measured in
//! between, and taken off.

use std::error::Error;
use std::io::{self, ErrorKind, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use timestone_sim::Varying;

use crate::caches::CacheWork;
use crate::median;
use crate::sockets::pair;
use crate::threads::pin;

/// Wake-ups that are timed in a round, and as many writes that wake nobody.
const WAKES: usize = 500;
const ROUNDS: usize = 24;
/// How much longer than in the best round waking takes in those that count, in the middle: for
/// seconds, hosts take a quarter longer.
const NEARLY_BEST: f64 = 1.1;
/// What is written: a few dozens of requests.
const BYTES: usize = 4096;
/// From when a thread says that it is about to sleep until it does.
const FALLING_ASLEEP: Duration = Duration::from_micros(2);

/// What waking takes.
pub(crate) struct Woken {
    /// Whoever wakes spends so much.
    pub(crate) call: f64,
    /// From when a write that wakes nobody would have ended until the sleeper runs.
    pub(crate) latency: Varying,
}

/// What both threads know of each other.
#[derive(Default)]
struct Shared {
    /// The last number that the reader waits for.
    waits: AtomicUsize,
    /// The last number that was written.
    sent: AtomicUsize,
    /// When the reader ran, in nanoseconds.
    ran: AtomicU64,
    /// The last number that was read.
    done: AtomicUsize,
    /// One of the two has ended, or failed.
    over: AtomicBool,
}

impl Shared {
    /// Waits for the other one to come so far, or to be gone.
    fn until(&self, mut holds: impl FnMut() -> bool) {
        while !holds() && !self.over.load(Ordering::Acquire) {
            std::hint::spin_loop();
        }
    }
}

/// Every second write finds its reader asleep.
const fn asleep(number: usize) -> bool {
    number.is_multiple_of(2)
}

/// What waking a thread on `sleeper` from `waker` takes whose core has been idle for `gap`, when
/// hosts are at their best: of the rounds that were good in the middle, the half with the shorter
/// tails.
pub(crate) fn wake(waker: usize, sleeper: usize, gap: Duration) -> Result<Woken, Box<dyn Error>> {
    let mut rounds =
        (0..ROUNDS).map(|_| round(waker, sleeper, gap)).collect::<Result<Vec<_>, _>>()?;
    let best = rounds.iter().map(|round| round.at(0.5)).fold(f64::INFINITY, f64::min);
    rounds.retain(|round| round.at(0.5) <= best * NEARLY_BEST);
    rounds.sort_unstable_by(|one, other| one.at(0.99).total_cmp(&other.at(0.99)));
    rounds.truncate(rounds.len().div_ceil(2));
    Ok(Woken {
        call: median(rounds.iter().map(|round| round.call).collect()),
        latency: Varying::of(rounds.into_iter().flat_map(|round| round.latencies).collect()),
    })
}

/// What was measured in one round.
struct Round {
    call: f64,
    /// In ascending order.
    latencies: Vec<f64>,
}

impl Round {
    /// As much as this part of all took at most.
    fn at(&self, part: f64) -> f64 {
        self.latencies[(self.latencies.len() as f64 * part) as usize]
    }
}

fn round(waker: usize, sleeper: usize, gap: Duration) -> Result<Round, Box<dyn Error>> {
    let listener = TcpListener::bind(([127, 0, 0, 1], 0).into())?;
    let (mut near, mut far) = pair(&listener)?;
    let shared = &Shared::default();
    let begin = Instant::now();
    let now = move || begin.elapsed().as_nanos() as u64;
    thread::scope(|scope| {
        let reading = scope.spawn(move || {
            let read = read(&mut far, sleeper, shared, now);
            shared.over.store(true, Ordering::Release);
            read
        });
        let waking = scope.spawn(move || {
            let woken = write(&mut near, waker, gap, shared, now);
            shared.over.store(true, Ordering::Release);
            woken
        });
        let woken = waking.join().map_err(|_| "the waking thread panicked")?;
        reading.join().map_err(|_| "the sleeping thread panicked")??;
        Ok(woken?)
    })
}

/// The reader's side of it.
fn read(
    far: &mut TcpStream,
    core: usize,
    shared: &Shared,
    now: impl Fn() -> u64,
) -> io::Result<()> {
    pin(core)?;
    let mut poll = Poll::new()?;
    poll.registry().register(far, Token(0), Interest::READABLE)?;
    let (mut events, mut into, mut work) =
        (Events::with_capacity(8), vec![0; BYTES], CacheWork::new());
    for number in 1..=2 * WAKES {
        work.turn();
        shared.waits.store(number, Ordering::Release);
        if asleep(number) {
            poll.poll(&mut events, None)?;
            shared.ran.store(now(), Ordering::Relaxed);
        } else {
            shared.until(|| shared.sent.load(Ordering::Acquire) >= number);
            poll.poll(&mut events, Some(Duration::ZERO))?;
        }
        let mut read = 0;
        while read < BYTES {
            match far.read(&mut into[read..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(more) => read += more,
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
                Err(error) => return Err(error),
            }
        }
        shared.done.store(number, Ordering::Release);
    }
    Ok(())
}

/// The writer's.
fn write(
    near: &mut TcpStream,
    core: usize,
    gap: Duration,
    shared: &Shared,
    now: impl Fn() -> u64,
) -> io::Result<Round> {
    pin(core)?;
    let (out, mut work) = (vec![7; BYTES], CacheWork::new());
    let (mut woken, mut others, mut ran) = (vec![], vec![], vec![]);
    for number in 1..=2 * WAKES {
        work.turn();
        shared.until(|| shared.waits.load(Ordering::Acquire) >= number);
        let waits = Instant::now();
        shared.until(|| waits.elapsed() >= FALLING_ASLEEP + gap);
        let called = now();
        near.write_all(&out)?;
        let took = (now() - called) as f64;
        shared.sent.store(number, Ordering::Release);
        shared.until(|| shared.done.load(Ordering::Acquire) >= number);
        if asleep(number) {
            woken.push(took);
            ran.push(shared.ran.load(Ordering::Relaxed).saturating_sub(called) as f64);
        } else {
            others.push(took);
        }
    }
    let other = median(others);
    ran.iter_mut().for_each(|ran| *ran = (*ran - other).max(0.0));
    ran.sort_unstable_by(f64::total_cmp);
    Ok(Round { call: (median(woken) - other).max(0.0), latencies: ran })
}
