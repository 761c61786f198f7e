//! Bounds and wiring of a net stage.

use std::sync::Arc;

#[cfg(doc)]
use super::NetEvent;
use super::{Network, Tcp};
#[cfg(doc)]
use crate::limits::HALF_CLOSE_LINGER;
use crate::limits::{MAX_CONNECTIONS, MAX_FRAME_BYTES, OUTPUT_BOUND};
use crate::{Memory, StageId};

/// Bounds and wiring of a net stage.
#[derive(Clone, Debug)]
pub struct NetConfig {
    /// Its name in metrics and logs.
    pub name: String,
    /// Who is told of accepted connections opening and closing (dialled ones name their own).
    pub owner: Option<StageId>,
    /// The net stages that accepted connections are handed to in turn, itself included; empty: it
    /// keeps all.
    pub share_with: Vec<StageId>,
    /// Most connections.
    pub max_connections: usize,
    /// Longest frame, in bytes.
    pub max_frame_bytes: usize,
    /// Output waiting for one connection above which it is no longer read from, in bytes.
    pub output_bound_bytes: usize,
    /// Whether peers that have sent their last word still wait for answers: they are answered for
    /// [`HALF_CLOSE_LINGER`] then. If not, the connection is closed when what is queued for it is
    /// written.
    pub answers_after_end: bool,
    /// Whether owners close connections whose peers have sent their last word, once everything is
    /// answered: an answer then takes as long as it needs. If not, nobody here knows what is still
    /// to come, and [`HALF_CLOSE_LINGER`] decides.
    pub closed_by_owner: bool,
    /// Whether owners are told how much of what they sent is written
    /// ([`NetEvent::Written`]).
    pub reports_written: bool,
    /// The process's memory for its connections.
    pub memory: Arc<Memory>,
    /// Where its listeners and dialled streams come from.
    pub network: Arc<dyn Network>,
}

impl Default for NetConfig {
    fn default() -> Self {
        Self {
            name: "net".to_owned(),
            owner: None,
            share_with: Vec::new(),
            max_connections: MAX_CONNECTIONS,
            max_frame_bytes: MAX_FRAME_BYTES,
            output_bound_bytes: OUTPUT_BOUND,
            answers_after_end: true,
            closed_by_owner: false,
            reports_written: false,
            memory: Arc::default(),
            network: Arc::new(Tcp),
        }
    }
}
