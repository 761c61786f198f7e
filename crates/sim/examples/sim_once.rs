//! Runs one scenario file under some seeds and prints what came of it: for profiling, and for trying things.

use std::process::ExitCode;
use std::time::Instant;

use timestone_sim::{RunOptions, Scenario, Seed, run};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(file), Some(first)) = (arguments.next(), arguments.next()) else {
        return ExitCode::FAILURE;
    };
    let count: u64 = arguments.next().and_then(|count| count.parse().ok()).unwrap_or(1);
    let keep: usize = arguments.next().and_then(|keep| keep.parse().ok()).unwrap_or(0);
    let text = std::fs::read_to_string(&file).unwrap_or_default();
    let scenario = match Scenario::read(&file, &text) {
        Ok(scenario) => scenario,
        Err(error) => {
            println!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let first: u64 = first.parse().unwrap_or(1);
    for seed in first..first + count {
        #[expect(clippy::disallowed_methods, reason = "whoever runs the simulator measures how fast it is")]
        let begin = Instant::now();
        match run(&scenario, Seed(seed), RunOptions { keep_lines: keep, keep_history: false }) {
            Ok(report) => {
                #[expect(clippy::disallowed_methods, reason = "whoever runs the simulator measures how fast it is")]
                let real = begin.elapsed();
                println!(
                    "seed {seed}: hash {:016x}, {:.1} virtual s in {:.2} s ({:.1} x), {} turns, {} events, {:?}, checked {}, faults {:?}",
                    report.trace_hash,
                    report.virtual_time.as_secs_f64(),
                    real.as_secs_f64(),
                    report.virtual_time.as_secs_f64() / real.as_secs_f64(),
                    report.turns,
                    report.events,
                    report.tally,
                    report.checked,
                    report.faults
                );
                for line in &report.lines {
                    println!("{line}");
                }
                for finding in &report.findings {
                    println!("  {}: {}", finding.property, finding.detail);
                }
            }
            Err(error) => println!("{error}"),
        }
    }
    ExitCode::SUCCESS
}
