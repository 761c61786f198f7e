//! A cluster's master whose state lies in etcd: several servers reach it, and none of them hosts it.
//!
//! ```text
//!   EtcdMaster (one a server) ── HTTP, JSON ──► etcd
//!     state        one key: the bytes of the master's state; every change compares and swaps it
//!     live/<id>    a key of each server, under its lease
//!     controller   a key of the controller, under its lease
//!   watch thread ◄── the stream of changes of `state`
//! ```
//! Every server steps the same core ([`timestone_cluster::Master`]) on the state that it reads, and
//! writes the next one if nobody else has meanwhile. Calls block, for as long as the time-out at
//! most: they belong on a thread that may. Source: docs/protocol/membership.md, "The master on
//! etcd".
//!
//! What is deliberately absent: TLS and passwords, and everything about etcd that a master does not
//! need.

mod client;
mod json;
pub mod limits;
mod master;
mod watch;
mod worker;

pub use client::{EtcdClient, EtcdError, Guard, KeyValue, LeaseId, Revision, Snapshot};
pub use master::{EtcdMaster, EtcdOptions, Forgotten, Founding, SeenState, forget_server};
pub use worker::{EtcdWorker, MasterNews, ServedServer};
