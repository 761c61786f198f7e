//! What every master does, wherever it keeps its state: commands, leases of servers, the election
//! of a controller, and word of a new map.
//!
//! ```text
//!   server ──── renew ─────────►┐                       ┌─ EmbeddedMaster: in this process, the state in a file
//!   server ──── map_above ─────►├─ MasterService ───────┤
//!   controller  campaign ──────►┤                       └─ on etcd: the state under one key, leases, watches
//!   anybody ─── execute ───────►┘
//! ```
//! Both kinds step the same [`crate::Master`]; they differ in where its state is durable and whose
//! clock ends a lease. Source: docs/protocol/membership.md, "The master".

use thiserror::Error;
use timestone_types::Timestamp;

use crate::{ClusterError, MapVersion, MasterAnswer, MasterCommand, ServerId, ShardMap, Term};

/// Why a master did not do what it was asked.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum MasterFailure {
    /// It refused, and nothing has changed.
    #[error(transparent)]
    Refused(#[from] ClusterError),
    /// It cannot be reached, or its state cannot be saved. A command may or may not have been
    /// carried out: ask for the map, or for the keyspaces, before it is repeated.
    #[error("the master cannot be asked: {detail}")]
    Unavailable {
        /// What was in the way.
        detail: String,
    },
}

/// A master. Calls may block; `now` is the caller's time, which ends leases where the master has no
/// time of its own.
pub trait MasterService: Send {
    /// Carries out a command. What it changed is durable when it is answered.
    ///
    /// # Errors
    /// The master refuses, or cannot be asked.
    fn execute(&mut self, command: MasterCommand) -> Result<MasterAnswer, MasterFailure>;

    /// A server is alive: its lease begins anew.
    ///
    /// # Errors
    /// The master cannot be asked.
    fn renew(&mut self, now: Timestamp, server: ServerId) -> Result<(), MasterFailure>;

    /// The servers whose leases last, ascending.
    ///
    /// # Errors
    /// The master cannot be asked.
    fn alive(&mut self, now: Timestamp) -> Result<Vec<ServerId>, MasterFailure>;

    /// A server wants to be the controller, or to stay it: the term for which it is, until its
    /// lease ends; `None` while another one's lease lasts.
    ///
    /// # Errors
    /// The server is not known, or the master cannot be asked.
    fn campaign(&mut self, now: Timestamp, server: ServerId)
    -> Result<Option<Term>, MasterFailure>;

    /// A server is the controller no longer, if it was.
    ///
    /// # Errors
    /// The master cannot be asked; its lease ends by itself.
    fn resign(&mut self, server: ServerId) -> Result<(), MasterFailure>;

    /// The map, if there is one above the version that the caller has.
    ///
    /// # Errors
    /// The master cannot be asked.
    fn map_above(&mut self, seen: MapVersion) -> Result<Option<ShardMap>, MasterFailure>;
}
