//! The deterministic simulator: whole clusters of the real stages, clients, logs and devices under
//! one virtual clock and one seed.
//!
//! ```text
//!   scenario (TOML) + seed ─► swarm: the world to build ─► run: set up, load, faults, settle, audit ─► checks ─► RunReport
//!                                                            │
//!       world ── queue of (time, number) ── process ── SimulatedRuntime: the stages that production runs
//!         ├─ network: byte streams, late, cut, reset            ├─ environment: flash and log devices in memory, power cuts
//!         ├─ clock: skewed, drifting, jumping, stopped          └─ trace: a hash of all events, and words where wanted
//!         └─ fault: what goes wrong, and how it is undone
//! ```
//! One thread, one root seed ([`Seed::derive`] says how everything's own seed comes from it), no
//! real clock. Two runs of one seed are the same, event for event: [`RunReport::trace_hash`] proves
//! it.
//!
//! What is deliberately absent: a second implementation of anything under test; real time (whoever
//! runs it measures); files. Source: docs/design/simulator.md.

mod board;
mod bounds;
mod check;
mod clients;
mod clock;
mod devices;
mod environment;
mod error;
mod fault;
mod joining;
mod judge;
mod keyspaces;
mod master;
mod names;
mod network;
mod process;
mod processes;
mod quiescence;
mod redis;
mod refusals;
mod restarts;
mod run;
mod scenario;
mod session;
mod single;
mod swarm;
mod trace;
mod unread;
mod words;
mod world;

pub use board::TxnTally;
pub use check::Finding;
pub use error::SimError;
pub use fault::{FaultKind, FaultPlan};
pub use judge::Judge;
pub use keyspaces::KeyspacesPart;
pub use network::{LinkModel, LinkQuality, ProcessId};
pub use restarts::RestartChange;
pub use run::{Histories, Pace, RunOptions, RunReport, Watch, measure, run, watch};
pub use scenario::{
    ClusterPart, DemandsPart, ExternalWait, FaultPart, LogDevice, LogPart, MixPart, NetworkPart,
    ProtocolPart, RedisPart, RegistersPart, Scenario, StoragePart, SwarmPart, TimeSpan, VaryPart,
    WorkloadChoice, WorkloadPart,
};
pub use timestone_costmodel::{
    CostTable, DeviceCosts, Samples, SocketCosts, StageCosts, StageKind, Stopwatch, ThreadCosts,
    Varying,
};
pub use timestone_types::random::{Dice, Seed};
pub use trace::TraceLine;
