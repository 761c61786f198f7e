//! Measures what work costs on the machine that it runs on, and writes it as a file for
//! `timestone sim --costs`.
//!
//! `cargo run --release -p timestone-sim --example calibrate -- FILE` takes some four minutes, and
//! needs two cores and a machine that has nothing else to do. Devices are measured in a folder of
//! their own beside FILE, on the disk that a server would use, and removed at the end.
//!
//! ```text
//!   threads: turns and hops in the real runtime        ─┐
//!   waking: those who sleep on a socket                 │
//!   sockets: system calls on loopback TCP               ├─ the middle of several rounds ─► CostTable ─► FILE
//!   devices: flash's and wal's files                   ─┤
//!   stages: workloads in the simulator, a stopwatch, least squares
//! ```
//! Every figure is the middle of several measurements, so that one disturbance changes none of
//! them, and what others on the same hardware slow down is taken off. What the figures mean, and
//! what comes of them, is in docs/lab/predictions.md. `calibrate --neighbours` is for those who
//! measure something else meanwhile: it tells by how much others slow the cores down.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a benchmark reads the clock and reports"
)]

mod caches;
mod devices;
mod neighbours;
mod sockets;
mod stages;
mod threads;
mod waking;

use std::error::Error;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use timestone_sim::CostTable;
use timestone_workload::Recorder;

use crate::neighbours::{Alone, Around};

/// The one of `timestone`: index, marks and cache take less on huge pages, most of all where little
/// but them is looked at.
#[global_allocator]
static ALLOCATOR: timestone_io::HugePageAllocator = timestone_io::HugePageAllocator;

/// How often each measurement is repeated.
const ROUNDS: usize = 5;

const USAGE: &str = "usage: calibrate FILE; the figures of this machine are written there (or \
    --neighbours, which tells how others slow it down)";

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(file), None) = (arguments.next().map(PathBuf::from), arguments.next()) else {
        return Err(USAGE.into());
    };
    let (one, another) = threads::two_cores()?;
    if file.as_os_str() == "--neighbours" {
        return neighbours::tell(&[one, another]);
    }
    if file.as_os_str().as_encoded_bytes().starts_with(b"-") {
        return Err(USAGE.into());
    }
    let alone = Alone::watch(&[one, another])?;
    let (stages, neighbours) = stages::measure(&alone)?;
    let around = Around { alone, cores: [one, another], neighbours };
    println!("{around:?}");
    let thread = threads::measure(&around)?;
    println!("threads  {thread:?}");
    let socket = sockets::measure(&around)?;
    println!("sockets  {socket:?}");
    let device = devices::measure(&file, &around)?;
    println!("devices  {device:?}");
    let bookkeeping = around.time(|| Ok(bookkeeping()))?;
    let table = CostTable { bookkeeping, thread, socket, device, stages };
    let text = format!(
        "# What work costs, in nanoseconds of one core: written by\n\
         # cargo run --release -p timestone-sim --example calibrate\n\n{}",
        table.write()?
    );
    std::fs::write(&file, text)
        .map_err(|error| format!("could not write {}: {error}", file.display()))?;
    println!("written to {}", file.display());
    Ok(())
}

/// What `bench` does for each transaction besides: it looks at the clock twice, and writes down how
/// long the transaction took.
fn bookkeeping() -> f64 {
    const TRANSACTIONS: u32 = 100_000;
    let round = |_| {
        let mut recorder = Recorder::new();
        let begin = Instant::now();
        for _ in 0..TRANSACTIONS {
            let ready = Instant::now();
            recorder.committed(ready.elapsed() + Duration::from_micros(200), true);
        }
        begin.elapsed().as_nanos() as f64 / f64::from(TRANSACTIONS)
    };
    median((0..ROUNDS).map(round).collect())
}

/// The middle of several figures; none is nothing.
fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_unstable_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(0.0)
}

/// CPU time that this process has used, its threads in the kernel included.
fn cpu() -> Duration {
    since_start(rustix::time::ClockId::ProcessCPUTime)
}

/// CPU time that this thread has used: neither what others do on its core in between, nor the host.
fn thread_cpu() -> Duration {
    since_start(rustix::time::ClockId::ThreadCPUTime)
}

fn since_start(clock: rustix::time::ClockId) -> Duration {
    let time = rustix::time::clock_gettime(clock);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// A straight line through two points: what it is at nothing, and how much each unit adds; neither
/// is negative.
fn line(few: (f64, f64), many: (f64, f64)) -> (f64, f64) {
    let slope = ((many.1 - few.1) / (many.0 - few.0)).max(0.0);
    ((few.1 - slope * few.0).max(0.0), slope)
}
