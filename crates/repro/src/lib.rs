//! The papers' tables and figures, reproduced: `timestone repro`.
//!
//! ```text
//!   scenarios/repro/<id>.toml ─► Experiment ─┬─ store/:  stores on an emulated SSD, gets and puts in a closed loop ─┐
//!        (every parameter,                   └─ txn/:    clusters in the simulator, transactions in a closed loop ──┤
//!         what the paper reports)                                                                                   ▼
//!                                              output/: CSV, SVG, PNG, a page of Markdown ◄─── Measured (points)
//! ```
//! An experiment is data: a file with every parameter of the paper's section, with what the paper
//! reports, and with what is to be said about the difference. It runs the real code in virtual
//! time, in which the processor is not free, so the same seed gives the same figures on every
//! machine. Those of one machine run in real time as well.
//!
//! What is deliberately absent: a model of anything that the repository has code for; a figure that
//! no run has given; the paper's figures where it prints curves without numbers.
//! Sources: SEMEL §5, SkimpyFTL §4.

mod error;
mod experiment;
mod measured;
mod output;
mod progress;
mod spec;
mod store;
mod txn;

pub use error::ReproError;
pub use experiment::{Experiment, RunOptions};
pub use measured::{Measured, Point};
pub use output::{Provenance, WrittenFiles, index_page, write};
pub use progress::Progress;
pub use spec::{Reported, ReportedBand};
pub use store::{Processor, PutTail, PutTimes, calibrate, put_tails};
