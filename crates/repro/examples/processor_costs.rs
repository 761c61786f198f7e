//! Measures what a store's work takes on this machine, for `[store.processor]` of the experiments.
//!
//! `cargo run --release -p timestone-repro --example processor_costs`, on a machine that does nothing
//! else.

use std::error::Error;
use std::io::Write as _;
use std::ops::ControlFlow;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use timestone_repro::{Progress, calibrate};

struct Unwatched;

impl Progress for Unwatched {
    fn at(&mut self, _: f64, _: &str) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

fn processor_time() -> Duration {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(used.tv_sec.unsigned_abs(), used.tv_nsec as u32)
}

fn main() -> Result<(), Box<dyn Error>> {
    let found = calibrate(&processor_time, &mut Unwatched)?;
    let mut out = std::io::stdout();
    for (name, price) in [
        ("turn", found.turn),
        ("get", found.get),
        ("put", found.put),
        ("read", found.read),
        ("program", found.program),
        ("move-record", found.move_record),
        ("translate", found.translate),
    ] {
        writeln!(out, "{name} = {price:.1}")?;
    }
    Ok(())
}
