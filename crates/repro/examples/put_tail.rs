//! How long puts take while nothing is collected and while collection runs, in virtual time.
//!
//! `cargo run --release -p timestone-repro --example put_tail -- SCALE`: so many times the keys and the
//! device of the experiment `skimpy-f5`; without one 0.0039, which has as many keys in a bucket.

use std::error::Error;
use std::io::Write as _;
use std::ops::ControlFlow;

use timestone_repro::{Progress, PutTimes, put_tails};

struct Unwatched;

impl Progress for Unwatched {
    fn at(&mut self, _: f64, _: &str) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let scale = std::env::args().nth(1).map_or(Ok(0.0039), |scale| scale.parse())?;
    let mut out = std::io::stdout();
    writeln!(
        out,
        "| store | requests/s | puts us p50 / p99 / p99.9, nothing collected | the same while blocks are collected | p99.9 against idle |"
    )?;
    writeln!(out, "|---|---|---|---|---|")?;
    for one in put_tails(scale, &mut Unwatched)? {
        let told = |times: &PutTimes| {
            let PutTimes { p50, p99, p999, puts, collected_blocks } = times;
            format!("{p50:.0} / {p99:.0} / {p999:.0} ({puts} puts, {collected_blocks} blocks)")
        };
        writeln!(
            out,
            "| {} | {} | {} | {} | {:.2} times |",
            one.store,
            one.rate,
            told(&one.idle),
            told(&one.collecting),
            one.collecting.p999 / one.idle.p999
        )?;
    }
    Ok(())
}
