//! Workloads: what transactions to run, when to start them, what came of them, and whether the
//! outcome was right.
//!
//! ```text
//!   WorkloadSpec ─► Generator::next ─► TxnPlan ─► (whoever runs it: bench, simulator, test) ─► fate, latency, values read
//!                   Arrivals::next_start ─► when                                                 │          │
//!                                                                              Recorder ◄────────┘          │
//!                                                                                 │            HistoryRecorder ◄┘
//!                                                                              Report (table, JSON)   │ EDN
//!                                                                                                  History ─► check::…
//! ```
//!
//! Everything here is data and arithmetic: a plan names keys by number and says what to do with
//! each; the runner turns it into requests and tells what happened. So `bench` on a real server,
//! `bench --in-process`, the simulator and the tests run one and the same workload. Sources: MILANA
//! Table 2 (Retwis), TAPIR's prototype (`retwis-tapir`), the YCSB core workloads, Jepsen's
//! list-append and bank, Elle (Kingsbury, Alvaro 2020) for the checkers.
//!
//! # Invariants
//! - Equal specifications and client numbers give equal plans: randomness comes from the seed
//!   alone.
//! - `Generator::next` and `Recorder` allocate nothing once their buffers have grown.
//! - A checker reports only what no execution of the promised isolation could have produced.
//!
//! What is deliberately absent: sockets, threads, clocks, files (writers are handed in), and
//! retries, which the runner owns.
//!
//! ```
//! use timestone_workload::{Generator, TxnPlan, WorkloadSpec};
//!
//! let spec = WorkloadSpec { keys: 1_000, ..WorkloadSpec::named("retwis")? };
//! let mut generator = Generator::new(&spec, 0, 1)?;
//! let mut plan = TxnPlan::default();
//! generator.next(&mut plan);
//! assert!(!plan.ops.is_empty());
//! # Ok::<(), timestone_workload::WorkloadError>(())
//! ```

mod error;
mod generate;
mod keys;
pub mod limits;
mod plan;
mod random;
mod report;
mod schedule;
mod snapshots;
mod spec;
mod values;
mod zipf;

pub mod check;
pub mod history;
pub mod redis;

pub use error::WorkloadError;
pub use generate::Generator;
pub use keys::{KeyIndex, KeyShape, Strewing};
pub use plan::{Op, TxnPlan};
pub use random::Random;
pub use report::{CpuUsPerTxn, CpuUse, LatencyUs, ReadOnlyReport, Recorder, Report};
pub use schedule::{Arrivals, Pace};
pub use snapshots::{SnapshotAges, Snapshots};
pub use spec::{WorkloadKind, WorkloadSpec};
pub use values::{ValueKind, integer_of, list_of, write_integer, write_list_element};
pub use zipf::Zipf;
