//! `compare`: Timestone beside the embedded stores that one would take instead, under the same load.
//!
//! ```text
//!   all ── for each engine, column and number of threads ──► run, a process of its own ─► rows ─► CSV
//!                                                             │
//!     load ─► settle ─► for each mix: warm-up ─► measure until the write amplification is steady
//!                                                             │
//!   table ◄── CSV: Markdown for docs/benchmarks.md            └─► engine: rocksdb, fjall, lmdb, redb, timestone, …
//! ```
//!
//! What is the same for all is here: keys, values, order of loading, distribution, clocks, and how
//! bytes and processor time are counted. What differs is in `engine/`, one file each, with its
//! settings. It asserts nothing about speed.

mod all;
mod engine;
mod keys;
mod limit;
mod measure;
mod options;
mod plan;
mod progress;
mod row;
mod run;
mod steady;
mod table;

use std::process::ExitCode;

/// As Timestone's own program has it: tables that are looked at everywhere lie on huge pages. Engines in C and
/// C++ have the system's.
#[global_allocator]
static ALLOCATOR: timestone_io::HugePageAllocator = timestone_io::HugePageAllocator;

/// Any failure, for people.
pub(crate) type Fault = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = options::Options::parse(&arguments).and_then(|options| match options.command {
        options::Command::Run => run::print(&options),
        options::Command::All => all::all(&options),
        options::Command::Table => table::print(&options),
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
