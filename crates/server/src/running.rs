//! A running server: starting it, asking it how it is, stopping it.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use timestone_clock::Clock;
use timestone_cluster::ShardMap;
use timestone_seda::{AdmissionLimit, Handle, Injector, MemoryUse, Runtime, StageId};
use timestone_store::{Figure, FigureValues, Ratio};
use timestone_types::ShardId;

use crate::assembly::{Assembled, EmbeddedClient, EmbeddedClientSlot, Observed, assemble};
use crate::config::ServerConfig;
use crate::departure::HAND_OVER_TIMEOUT;
use crate::error::ServerError;
use crate::event::Event;
use crate::http::HttpServer;
use crate::limits::{HAND_OVER_POLL, SHUTDOWN_TIMEOUT};
use crate::stages::Caches;

/// Where a server listens, with the ports that it really got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// Native protocol.
    pub native: Option<SocketAddr>,
    /// Redis protocol.
    pub resp: Option<SocketAddr>,
    /// Metrics and health.
    pub http: Option<SocketAddr>,
}

impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for (scheme, address) in
            [("timestone", self.native), ("redis", self.resp), ("http", self.http)]
        {
            if let Some(address) = address {
                write!(f, "{}{scheme}://{address}", if first { "" } else { " " })?;
                first = false;
            }
        }
        if first { f.write_str("(no ports)") } else { Ok(()) }
    }
}

/// A running server. Dropping it stops the threads without draining; [`Server::shutdown`] is the
/// graceful way.
pub struct Server {
    handle: Handle<Event>,
    http: Option<HttpServer>,
    addresses: Addresses,
    observed: Arc<Observed>,
    embedded_clients: Vec<EmbeddedClientSlot>,
    shard_stages: Vec<(ShardId, StageId)>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

impl Server {
    /// Recovers the data directory and starts to serve.
    ///
    /// # Errors
    /// Whatever keeps it from starting, in words for the person at the terminal.
    pub fn start(config: &ServerConfig) -> Result<Self, ServerError> {
        Self::run(assemble(config, false, |_| Vec::new())?)
    }

    /// The same, with one stage of the owner's on every reactor thread; `embedded_clients` makes
    /// them once their slots are known.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start_with(
        config: &ServerConfig,
        embedded_clients: impl FnOnce(&[EmbeddedClientSlot]) -> Vec<EmbeddedClient>,
    ) -> Result<Self, ServerError> {
        Self::run(assemble(config, true, embedded_clients)?)
    }

    fn run(assembled: Assembled) -> Result<Self, ServerError> {
        let Assembled {
            stages,
            layout,
            runtime,
            clock,
            native,
            resp,
            http,
            embedded_clients,
            shard_stages,
            observed,
            ..
        } = assembled;
        let time = move || clock.now();
        let handle = Runtime::start(stages, layout, time, runtime).map_err(ServerError::part)?;
        let http = match http {
            Some(http) => Some(http.serve(Arc::clone(&observed), handle.injector())?),
            None => None,
        };
        let addresses = Addresses { native, resp, http: http.as_ref().map(HttpServer::address) };
        observed.ready.store(true, Relaxed);
        Ok(Self { handle, http, addresses, observed, embedded_clients, shard_stages })
    }

    /// Where it listens.
    #[must_use]
    pub const fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// A way to change the memory that the record caches may take, while the server runs.
    #[must_use]
    pub fn caches(&self) -> Caches {
        Caches::of(&self.observed)
    }

    /// Changes how much every shard takes on before it answers "busy".
    pub fn set_shard_admission(&self, limit: AdmissionLimit) {
        for &(_, stage) in &self.shard_stages {
            self.handle.set_admission(stage, limit);
        }
    }

    /// The slots of the owner's stages.
    #[must_use]
    pub fn embedded_clients(&self) -> &[EmbeddedClientSlot] {
        &self.embedded_clients
    }

    /// For events from other threads to stages.
    #[must_use]
    pub fn injector(&self) -> Injector<Event> {
        self.handle.injector()
    }

    /// The shard map of now.
    #[must_use]
    pub fn shard_map(&self) -> Arc<ShardMap> {
        self.observed.map()
    }

    /// Name and value of every figure of the process and of its shards together, as `timestone
    /// status` shows them: what an embedded store, which has no ports, takes of memory, say. Shards
    /// tell theirs now and then, so that they are up to a second old.
    #[must_use]
    pub fn figures(&self) -> Vec<(String, String)> {
        figures(&self.observed)
    }

    /// Hands its primaries over where shards have several replicas; then drains, syncs, writes
    /// checkpoints, and stops.
    ///
    /// # Errors
    /// Something could not be finished in time; it is recovered from the log at the next start.
    pub fn shutdown(self) -> Result<(), ServerError> {
        self.observed.stopping.store(true, Relaxed);
        self.hand_over();
        let stopped = self.handle.shutdown(SHUTDOWN_TIMEOUT);
        if let Some(http) = self.http {
            http.stop();
        }
        stopped.map_err(ServerError::part)
    }
}

impl Server {
    /// Waits until others have its primaries, or for [`HAND_OVER_TIMEOUT`].
    #[expect(
        clippy::disallowed_methods,
        reason = "whoever stops a server waits for it; its stages go on"
    )]
    fn hand_over(&self) {
        if self.observed.replicas.is_empty() {
            return;
        }
        self.observed.departure.begin();
        let begun = std::time::Instant::now();
        while !self.observed.departure.is_over() {
            if begun.elapsed() >= HAND_OVER_TIMEOUT {
                tracing::warn!(
                    "others did not take over all shards of this server in time: their \
                    clients wait until it is missed"
                );
                return;
            }
            std::thread::sleep(HAND_OVER_POLL);
        }
        tracing::info!(took = ?begun.elapsed(), "the shards of this server are handed over");
    }
}

/// The value of a figure that is not known, in what `timestone status` asks for.
const UNKNOWN_FIGURE: &str = "-";

/// Figures for people who ask how the node is.
pub(crate) fn figures(observed: &Observed) -> Vec<(String, String)> {
    let now = observed.clock.now();
    let bound = observed.clock.error_bound();
    let mut figures = vec![
        ("version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
        ("server_id".to_owned(), observed.server.to_string()),
        ("started_ns".to_owned(), observed.started.as_nanos().to_string()),
        ("uptime_seconds".to_owned(), now.since(observed.started).as_secs().to_string()),
        ("log".to_owned(), observed.log_device.to_string()),
        ("clock_source".to_owned(), observed.clock.source().to_string()),
        ("clock_error_bound".to_owned(), bound.to_string()),
    ];
    let health = observed.clock.health();
    figures.push(("clock_state".to_owned(), health.state.to_string()));
    figures.push(("clock_offset_ms".to_owned(), (health.offset_ns / 1_000_000).to_string()));
    figures.push(("clock_held_steps".to_owned(), health.held_steps.to_string()));
    if let Some(left) = observed.clock_behind(now) {
        figures.push(("writes_refused_for_ms".to_owned(), left.as_millis().to_string()));
    }
    let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    figures.push(("cpu_seconds_total".to_owned(), format!("{}.{:09}", cpu.tv_sec, cpu.tv_nsec)));
    figures.extend(
        memory(observed).into_iter().map(|(name, value)| (name.to_owned(), value.to_string())),
    );
    let mut totals = FigureValues::default();
    observed.shards.iter().for_each(|shard| totals.add_all(&shard.store_figures()));
    let told = |figure: Figure| {
        let value = totals.known(figure).map(|value| value.to_string());
        (figure.name().to_owned(), value.unwrap_or_else(|| UNKNOWN_FIGURE.to_owned()))
    };
    figures.extend(Figure::ALL.into_iter().map(told));
    let ratios = Ratio::ALL.into_iter().filter_map(|ratio| Some((ratio, ratio.of(&totals)?)));
    figures.extend(ratios.map(|(ratio, value)| (ratio.name().to_owned(), format!("{value:.4}"))));
    for (index, log) in observed.logs.iter().enumerate() {
        figures
            .push((format!("log_{index}_space_bytes"), log.space_bytes.load(Relaxed).to_string()));
        figures.push((format!("log_{index}_files"), log.files.load(Relaxed).to_string()));
    }
    for shard in &observed.shards {
        if let Some(lag) = shard.watermark_lag(now) {
            figures.push((
                format!("shard_{}_watermark_lag_ms", shard.shard),
                lag.as_millis().to_string(),
            ));
        }
    }
    figures
}

/// The process's memory: what it may use, what it uses, and the shares of the caches and of what
/// connections cause.
pub(crate) fn memory(observed: &Observed) -> Vec<(&'static str, u64)> {
    let of_stores = |figure: &str| {
        let figures = observed.shards.iter().flat_map(|shard| shard.store());
        figures.filter(|(name, _)| *name == figure).map(|(_, value)| value).sum()
    };
    let (budget, memory) = (&observed.budget, &observed.memory);
    let of_shards = observed.shards.iter().map(|shard| shard.access_bytes.load(Relaxed));
    let access_records = of_shards.sum();
    vec![
        ("memory_limit_bytes", budget.total),
        ("memory_resident_bytes", timestone_io::resident_memory().unwrap_or(0)),
        ("memory_cache_limit_bytes", budget.cache),
        ("memory_cache_left_bytes", of_stores("cache_limit_bytes")),
        ("memory_cache_bytes", of_stores("cache_bytes")),
        ("memory_beside_limit_bytes", budget.beside),
        ("memory_index_bytes", of_stores("index_bytes")),
        ("memory_page_buffer_bytes", of_stores("buffer_bytes")),
        ("memory_access_record_bytes", access_records),
        ("memory_input_limit_bytes", budget.input),
        ("memory_input_bytes", memory.used(MemoryUse::Input)),
        ("memory_input_refused_total", memory.refused(MemoryUse::Input)),
        ("memory_writes_limit_bytes", budget.writes),
        ("memory_writes_bytes", memory.used(MemoryUse::Writes)),
        ("memory_writes_refused_total", memory.refused(MemoryUse::Writes)),
        ("memory_output_limit_bytes", budget.output),
        ("memory_output_bytes", memory.used(MemoryUse::Output)),
        ("memory_output_refused_total", memory.refused(MemoryUse::Output)),
    ]
}
