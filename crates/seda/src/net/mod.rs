//! TCP for stages: see [`NetStage`].

mod protocol;

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::sync::Arc;

pub use protocol::{
    Break, ConnectionView, DialId, DisconnectReason, NetCommand, NetEvent, ParcelEvent, Protocol, Split,
};

use crate::{Context, SedaError, Stage, StageId};

/// Bounds and wiring of a net stage.
#[derive(Clone, Debug)]
pub struct NetConfig {
    /// Its name in metrics and logs.
    pub name: String,
    /// Who is told of accepted connections opening and closing (dialled ones name their own).
    pub owner: Option<StageId>,
    /// The net stages that accepted connections are handed to in turn, itself included; empty: it keeps all.
    pub share_with: Vec<StageId>,
    /// Most connections.
    pub max_connections: usize,
    /// Longest frame, in bytes.
    pub max_frame_bytes: usize,
    /// Output waiting for one connection above which it is no longer read from, in bytes.
    pub output_bound_bytes: usize,
}

/// Counters of a net stage, shared.
#[derive(Debug, Default)]
pub struct NetMetrics {}

/// What a net stage has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetSnapshot {
    /// Open connections.
    pub connections: u64,
}

/// The I/O stage of TCP connections.
#[derive(Debug)]
pub struct NetStage<E, P> {
    protocol: P,
    config: NetConfig,
    event: PhantomData<fn(E)>,
}

impl<E: ParcelEvent, P: Protocol> NetStage<E, P> {
    /// A net stage without listeners; `protocol` splits what its connections receive.
    pub fn new(protocol: P, config: NetConfig) -> Self {
        Self { protocol, config, event: PhantomData }
    }

    /// Binds a listener now, to be served once the runtime runs; the address tells the port if 0 was asked for.
    ///
    /// # Errors
    /// [`SedaError::Listen`].
    pub fn listen(&mut self, address: SocketAddr) -> Result<SocketAddr, SedaError> {
        Ok(address)
    }

    /// Its counters.
    pub fn metrics(&self) -> Arc<NetMetrics> {
        Arc::default()
    }
}

impl<E: ParcelEvent, P: Protocol> Stage<E> for NetStage<E, P> {
    fn name(&self) -> &str {
        &self.config.name
    }

    fn handle(&mut self, _ctx: &mut Context<'_, E>, events: &mut VecDeque<E>) {
        events.clear();
        let _ = &self.protocol;
    }
}
