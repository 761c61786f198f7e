//! A flash device in memory that takes its time: pages in DRAM, channels with queues, the latencies
//! of the papers' emulated SSD (SEMEL §5, SkimpyFTL §4).
//!
//! ```text
//!   submit ─► accepted ──poll──► started: the medium has changed, its channels say when it is over
//!                                   │ due by the clock
//!                                   ▼
//!                              released by the next poll ─► completion      (wake_fd: at the next due)
//! ```
//!
//! **Time.** In real time the owner's polls release what is due by the machine's clock; a descriptor
//! wakes an owner that sleeps, and how much later than due each completion was released is
//! published ([`ReleaseError`](crate::ReleaseError)). In virtual time somebody moves the clock, and
//! the same calls give the same completions. docs/design/emulated-flash.md has the model and its
//! reasons.
//!
//! What is deliberately absent: power cuts (the memory device has them), suspension of erases, and
//! the time that a bus takes.

mod channels;
mod compact;
mod device;
mod medium;
mod pages;
mod release;
mod wear;

pub use channels::Latencies;
pub use device::EmulatedDevice;
pub use medium::{EmulatedConfig, EmulatedMedium};
pub use wear::FaultRates;
