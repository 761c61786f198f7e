//! A server's stages without threads: for other drivers than the real one.
//!
//! ```text
//!   ServerConfig + Environment ─► ServerStages::build ─► stages, layout, admission ─► the simulator's runtime
//! ```
//! They are the very stages that [`crate::Server`] starts; only HTTP is missing, which is none.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use timestone_cluster::{Address, ServerAddresses, ServerId};
use timestone_replication::Step;
use timestone_seda::{AdmissionLimit, Layout, MemoryUse, Stage, StageId};
use timestone_types::{Epoch, ShardId, Timestamp};

use crate::assembly::{Assembled, EmbeddedClient, EmbeddedClientSlot, Observed, assemble_on};
use crate::config::ServerConfig;
use crate::environment::Environment;
use crate::error::ServerError;
use crate::event::Event;
use crate::manifest::Manifest;
use crate::node::Joining;
use timestone_shard::gauges::AS_CONFIGURED;

/// The exchange by which a server with this configuration joins the cluster of a master elsewhere,
/// for whoever does it before [`ServerStages::build`] and hands the outcome to it through
/// [`Environment::register`].
///
/// # Errors
/// The environment cannot be read, or the address is none.
pub fn joining(
    config: &ServerConfig,
    environment: Arc<dyn Environment>,
) -> Result<Joining, ServerError> {
    let listen = &config.listen;
    let native = listen
        .advertise
        .or(listen.native)
        .map(|address| Address::new(&address.to_string()))
        .transpose();
    let native = native.map_err(ServerError::part)?;
    let resp = listen
        .resp
        .map(|address| Address::new(&address.to_string()))
        .transpose()
        .map_err(ServerError::part)?;
    // What is missing is looked for when the stages are built.
    let manifest = Manifest::read(&environment)?;
    let addresses = ServerAddresses { native, resp, http: None };
    crate::assembly::joining(config, &environment, &manifest, addresses)
}

/// What a shard says of itself, as of its last publication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardFigures {
    /// The shard.
    pub shard: ShardId,
    /// Requests that wait for their answers.
    pub requests: u64,
    /// Transactions whose writes are kept because they are not all readable from the store yet:
    /// prepared, or being applied.
    pub prepared: u64,
    /// Below it nothing is asked for any more.
    pub watermark: Timestamp,
    /// Entries of the participant's tables, by name.
    pub tables: Vec<(&'static str, u64)>,
    /// The store's figures, by name.
    pub store: Vec<(&'static str, u64)>,
}

/// What a replica of a shard says of itself, as of its last turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaFigures {
    /// The shard.
    pub shard: ShardId,
    /// How far it is on its way to serve; `None` where the server keeps no replica of the shard.
    pub step: Option<Step>,
    /// The last epoch whose table it has installed durably; as primary, in which it serves.
    pub installed: Epoch,
    /// How many batches it lacks, as far as it knows.
    pub lag: u64,
}

/// What a server's connections cause, as of the last publications.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionFigures {
    /// Bytes of answers that are not written to their sockets.
    pub output_bytes: u64,
    /// Connections that were closed because their peers neither read nor finished what they had
    /// begun.
    pub stalled_total: u64,
}

/// The stages of a server.
pub struct ServerStages {
    /// By id.
    pub stages: Vec<Box<dyn Stage<Event>>>,
    /// Which run on which thread.
    pub layout: Layout,
    /// What may be admitted to which stage.
    pub admission: Vec<(StageId, AdmissionLimit)>,
    /// Who the server is.
    pub server: ServerId,
    /// Where the native protocol is served.
    pub native: Option<SocketAddr>,
    /// The stage of every shard.
    pub shards: Vec<(ShardId, StageId)>,
    /// The log stages, by thread.
    pub logs: Vec<StageId>,
    observed: Arc<Observed>,
}

impl ServerStages {
    /// Recovers what is on the environment and builds the stages. Blocks while it recovers.
    ///
    /// # Errors
    /// Whatever keeps a server from starting.
    pub fn build(
        config: &ServerConfig,
        environment: Arc<dyn Environment>,
    ) -> Result<Self, ServerError> {
        Ok(Self::of(assemble_on(config, environment, false, |_| Vec::new())?))
    }

    /// The same with embedded clients, which `embedded_clients` makes once their slots are known.
    ///
    /// # Errors
    /// As [`ServerStages::build`].
    pub fn build_with(
        config: &ServerConfig,
        environment: Arc<dyn Environment>,
        embedded_clients: impl FnOnce(&[EmbeddedClientSlot]) -> Vec<EmbeddedClient>,
    ) -> Result<Self, ServerError> {
        Ok(Self::of(assemble_on(config, environment, true, embedded_clients)?))
    }

    fn of(assembled: Assembled) -> Self {
        let Assembled {
            stages, layout, runtime, native, shard_stages, log_stages, observed, ..
        } = assembled;
        observed.ready.store(true, Relaxed);
        Self {
            stages,
            layout,
            admission: runtime.admission,
            server: observed.server,
            native,
            shards: shard_stages,
            logs: log_stages,
            observed,
        }
    }

    /// A way to change the memory that the record caches may take, while the stages run.
    #[must_use]
    pub fn caches(&self) -> Caches {
        Caches::of(&self.observed)
    }

    /// A way to look at what connections cause while the stages run.
    pub fn connections(&self) -> impl Fn() -> ConnectionFigures + use<> {
        let observed = Arc::clone(&self.observed);
        move || ConnectionFigures {
            output_bytes: observed.memory.used(MemoryUse::Output),
            stalled_total: observed.nets.iter().map(|(_, net)| net.snapshot().stalled_total).sum(),
        }
    }

    /// Where a server that is to be stopped is told so first, and asked when its stages may end.
    #[must_use]
    pub fn departure(&self) -> ServerDeparture {
        ServerDeparture(Arc::clone(&self.observed))
    }

    /// A way to look at the replicas while the stages run; there are none where each shard has one.
    pub fn replicas(&self) -> impl Fn() -> Vec<ReplicaFigures> + use<> {
        let observed = Arc::clone(&self.observed);
        move || {
            let figures = observed.replicas.iter().map(|gauges| ReplicaFigures {
                shard: gauges.shard,
                step: gauges.step(),
                installed: gauges.installed(),
                lag: gauges.lag(),
            });
            figures.collect()
        }
    }

    /// A way to look at the shards' figures while the stages run.
    pub fn figures(&self) -> impl Fn() -> Vec<ShardFigures> + use<> {
        let observed = Arc::clone(&self.observed);
        move || {
            let figures = observed.shards.iter().map(|gauges| ShardFigures {
                shard: gauges.shard,
                requests: gauges.requests.load(Relaxed),
                prepared: gauges.prepared.load(Relaxed),
                watermark: Timestamp::from_nanos(gauges.watermark.load(Relaxed)),
                tables: gauges.tables().collect(),
                store: gauges.store().collect(),
            });
            figures.collect()
        }
    }
}

/// How a server leaves that is to be stopped: its primaries are handed over before its stages end.
#[derive(Clone)]
pub struct ServerDeparture(Arc<Observed>);

impl ServerDeparture {
    /// The server is to be stopped.
    pub fn begin(&self) {
        self.0.departure.begin();
    }

    /// Whether its stages may end. Nobody waits longer than [`crate::HAND_OVER_TIMEOUT`].
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.0.replicas.is_empty() || self.0.departure.is_over()
    }
}

impl fmt::Debug for ServerDeparture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ServerDeparture").field(&self.0.departure).finish()
    }
}

/// The record caches of a server's shards.
#[derive(Clone)]
pub struct Caches {
    observed: Arc<Observed>,
}

impl Caches {
    pub(crate) fn of(observed: &Arc<Observed>) -> Self {
        Self { observed: Arc::clone(observed) }
    }

    /// Gives all caches together so many bytes, as [`crate::SizeConfig::cache_bytes`] does at the
    /// start. Each shard follows when it publishes its figures next, within
    /// [`timestone_shard::limits::PUBLISH_INTERVAL`] when it is busy; its cache starts empty.
    pub fn resize(&self, bytes: u64) {
        let count = (self.observed.shards.len() as u64).max(1);
        for shard in &self.observed.shards {
            // The largest number is no size but the absence of a wish.
            shard.cache_wish.store((bytes / count).min(AS_CONFIGURED - 1), Relaxed);
        }
    }
}

impl fmt::Debug for Caches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caches")
            .field("shards", &self.observed.shards.len())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ServerStages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerStages")
            .field("server", &self.server)
            .field("native", &self.native)
            .finish_non_exhaustive()
    }
}
