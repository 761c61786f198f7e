//! How a client comes to life: over TCP with a runtime of its own, or as a stage of a runtime that
//! has a server in it.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use timestone_clock::{Clock, FollowedClock, SystemClock};
use timestone_cluster::ShardMap;
use timestone_seda::{
    Handle, Injector, Layout, NetConfig, NetStage, Network, Runtime, RuntimeConfig, Spin, Stage,
    StageId, Tcp as SystemTcp, TimeSource,
};
use timestone_session::{Engine, EngineConfig, Routes};
use timestone_types::{ClientId, Timestamp};
use timestone_wire::ErrorCode;
use timestone_wire::limits::MAX_FRAME_BYTES;

use crate::db::{Lifeline, Pending};
use crate::event::{ClientEvent, ClientStageEvent};
use crate::inproc::{InProcess, Lanes};
use crate::shared::LoopShared;
use crate::stage::ClientStage;
use crate::tcp::{Native, Tcp, Timeouts};
use crate::{Db, Error, Result, address, limits, oneshot};

/// How a client connects and behaves.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// What the client calls itself in lists of clients and logs.
    pub name: String,
    /// How long to try before `connect` gives up.
    pub connect_timeout: Duration,
    /// For how long servers that refuse the connection, or speak another protocol, are tried again
    /// before `connect` gives up: long enough for one that is being started at the same time.
    pub refused_timeout: Duration,
    /// How the event loop's thread waits. Off where it shares its core.
    pub spin: Spin,
    /// Whether the client goes by the servers' time, as their answers tell it, instead of by its own
    /// clock (docs/protocol/time.md, "Sessions that follow the servers' time").
    pub server_time: bool,
    /// The client's own clock; the system's, if nothing is said. For tests, and for whoever has a
    /// better one.
    pub clock: Option<Arc<dyn Clock>>,
    /// Settings of the engine.
    pub engine: EngineConfig,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            name: std::env::args().next().unwrap_or_default(),
            connect_timeout: limits::CONNECT_TIMEOUT,
            refused_timeout: limits::REFUSED_TIMEOUT,
            spin: Spin::default(),
            server_time: true,
            clock: None,
            engine: EngineConfig::default(),
        }
    }
}

/// Connects to the cluster that one of the servers of `timestone://host[:port][,host[:port]]…`
/// belongs to. The event loop gets a thread of its own, which ends with the last handle.
///
/// # Errors
/// A bad address, or no server that answers.
pub fn connect(url: &str) -> impl Future<Output = Result<Db>> + Send + use<> {
    connect_with(url, &ConnectOptions::default())
}

/// As [`connect`], with options.
///
/// # Errors
/// As [`connect`].
pub fn connect_with(
    url: &str,
    options: &ConnectOptions,
) -> impl Future<Output = Result<Db>> + Send + use<> {
    let started = start(url, options);
    async move {
        let (db, ready) = started?;
        ready.await?;
        Ok(db)
    }
}

/// The clock as a runtime takes it.
struct Ticks(Arc<dyn Clock>);

impl TimeSource for Ticks {
    fn now(&self) -> Timestamp {
        self.0.now()
    }
}

const NET: StageId = StageId::new(0);
const CLIENT: StageId = StageId::new(1);

/// Starts the event loop; what is returned beside the handle tells when the first server has
/// answered.
pub(crate) fn start(url: &str, options: &ConnectOptions) -> Result<(Db, Pending<()>)> {
    let own = options.clock.clone().unwrap_or_else(|| Arc::new(SystemClock::new()));
    let seed = seed_of(&own);
    let (clock, _) = clock_of(options, &own);
    let Parts { stages, shared, ready } = parts(url, options, &clock, Arc::new(SystemTcp), seed)?;
    let runtime = RuntimeConfig {
        name: "timestone-client".to_owned(),
        spin: options.spin,
        ..RuntimeConfig::default()
    };
    let handle =
        Runtime::start(stages, Layout::single(2), Ticks(clock), runtime).map_err(|error| {
            Error::new(
                ErrorCode::Internal,
                format!("the client's thread could not be started: {error}"),
                "",
            )
        })?;
    shared.set_notifier(notifier(handle.injector(), CLIENT));
    let end = move || {
        // The last handle may be a task's, or in a future that a task wakes.
        if handle.runs_here() {
            end_elsewhere(handle);
        } else {
            end(handle);
        }
    };
    let db = Db::new(Lifeline { shared, end: Some(Box::new(end)) });
    Ok((db, ready))
}

fn end(handle: Handle<ClientStageEvent>) {
    if let Err(error) = handle.shutdown(limits::SHUTDOWN_TIMEOUT) {
        tracing::warn!(%error, "The client ended before its last messages were sent.");
    }
}

/// Ends the loop on whose thread this is called: another one waits for that.
fn end_elsewhere(handle: Handle<ClientStageEvent>) {
    let thread = std::thread::Builder::new().name("timestone-end".to_owned());
    if let Err(error) = thread.spawn(move || end(handle)) {
        tracing::warn!(%error, "The client ended before its last messages were sent.");
    }
}

/// The clock that a client goes by; by itself as well, where it follows the servers.
fn clock_of(
    options: &ConnectOptions,
    own: &Arc<dyn Clock>,
) -> (Arc<dyn Clock>, Option<Arc<FollowedClock>>) {
    if !options.server_time {
        return (Arc::clone(own), None);
    }
    let followed = Arc::new(FollowedClock::new(Arc::clone(own)));
    (Arc::clone(&followed) as _, Some(followed))
}

/// What an event loop over TCP is made of.
struct Parts {
    stages: Vec<Box<dyn Stage<ClientStageEvent>>>,
    shared: Arc<LoopShared>,
    ready: Pending<()>,
}

fn parts(
    url: &str,
    options: &ConnectOptions,
    clock: &Arc<dyn Clock>,
    network: Arc<dyn Network>,
    seed: u64,
) -> Result<Parts> {
    let seeds = address::parse(url)?;
    let shared = Arc::new(LoopShared::new());
    let (sender, receiver) = oneshot::channel();
    let transport = Tcp::new(
        NET,
        options.name.clone(),
        seeds,
        Timeouts {
            connect: options.connect_timeout,
            refused: options.refused_timeout,
            silence: options.engine.silence_limit,
        },
        sender,
    );
    // Nothing is known yet: routes and id come with the first welcome.
    let nowhere = Routes::new(0, Vec::new(), |_| None);
    let engine = EngineConfig { asks_clocks: options.server_time, ..options.engine };
    let engine = Engine::new(engine, ClientId::ZERO, nowhere, seed);
    let config = NetConfig {
        name: "net".to_owned(),
        max_frame_bytes: MAX_FRAME_BYTES,
        network,
        ..NetConfig::default()
    };
    let net: NetStage<ClientStageEvent, Native> = NetStage::new(Native::of(CLIENT), config);
    let client = ClientStage::new(
        "client".to_owned(),
        engine,
        Arc::clone(&shared),
        transport,
        Arc::clone(clock),
    );
    let stages: Vec<Box<dyn Stage<ClientStageEvent>>> = vec![Box::new(net), Box::new(client)];
    Ok(Parts { stages, shared, ready: Pending::of(receiver) })
}

/// A client's stages without a thread, for other drivers than the real one: the very stages that
/// [`connect`] starts.
pub struct ClientStages {
    /// By id: the net stage, and the event loop.
    pub stages: Vec<Box<dyn Stage<ClientStageEvent>>>,
    /// The stage to be called when another thread, or the driver's owner, has called the handle.
    pub event_loop: StageId,
    /// A handle.
    pub db: Db,
    /// Resolves when the first server has answered.
    pub ready: Pending<()>,
    /// The clock that the stages go by, where it follows the servers: their driver must tell them
    /// its time, and not that of the client's own clock.
    pub followed: Option<Arc<FollowedClock>>,
}

impl ClientStages {
    /// The stages of a client that connects to `url` through `network`, with `clock` for its own;
    /// `seed` decides its pauses.
    ///
    /// # Errors
    /// A bad address.
    pub fn build(
        url: &str,
        options: &ConnectOptions,
        clock: &Arc<dyn Clock>,
        network: Arc<dyn Network>,
        seed: u64,
    ) -> Result<Self> {
        let (clock, followed) = clock_of(options, clock);
        let Parts { stages, shared, ready } = parts(url, options, &clock, network, seed)?;
        let db = Db::new(Lifeline { shared, end: None });
        Ok(Self { stages, event_loop: CLIENT, db, ready, followed })
    }
}

impl std::fmt::Debug for ClientStages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientStages").field("event_loop", &self.event_loop).finish_non_exhaustive()
    }
}

fn notifier<E: ClientEvent>(injector: Injector<E>, stage: StageId) -> Box<dyn Fn() + Send + Sync> {
    Box::new(move || {
        if injector.send(stage, E::wake()).is_err() {
            // The queue is full, so the loop is awake, and looks into its own queues at its next
            // deadline at the latest.
            tracing::debug!(
                "The event loop could not be woken: its queue is full, or it has ended."
            );
        }
    })
}

/// Jitter needs no secret: any number that differs between clients.
fn seed_of(clock: &Arc<dyn Clock>) -> u64 {
    clock.now().as_nanos() ^ (u64::from(std::process::id()) << 32)
}

/// A client as a stage of a runtime that has the shards in it, made by [`in_process`].
pub struct InProcessClient<E> {
    /// The stage, to be placed in the runtime under an id of the host's choice.
    pub stage: Box<dyn Stage<E>>,
    shared: Arc<LoopShared>,
}

impl<E> std::fmt::Debug for InProcessClient<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InProcessClient").field("stage", &self.stage.name()).finish_non_exhaustive()
    }
}

/// A client without sockets, for `open` and for servers that call themselves: frames go to the
/// stages of the shards directly. The host has registered `client` with its master.
#[must_use]
pub fn in_process<E: ClientEvent>(
    client: ClientId,
    map: &ShardMap,
    wiring: InProcess,
    engine: EngineConfig,
    clock: Arc<dyn Clock>,
) -> InProcessClient<E> {
    let shared = Arc::new(LoopShared::new());
    let seed = wiring.seed ^ u64::from(client.get());
    let engine = Engine::new(engine, client, Routes::from(map), seed);
    let name = format!("client-{client}");
    let stage = ClientStage::new(name, engine, Arc::clone(&shared), Lanes::<E>::new(wiring), clock);
    InProcessClient { stage: Box::new(stage), shared }
}

/// The parts of an [`InProcessClient`]: the stage goes into the runtime, the other part makes
/// handles once it runs.
#[derive(Debug)]
pub struct Attachment(Arc<LoopShared>);

impl<E: ClientEvent> InProcessClient<E> {
    /// Takes it apart.
    #[must_use]
    pub fn split(self) -> (Box<dyn Stage<E>>, Attachment) {
        (self.stage, Attachment(self.shared))
    }
}

impl Attachment {
    /// A handle, when the runtime runs with the stage under the id `stage`. `end` is run when the
    /// last handle is dropped.
    #[must_use]
    pub fn attach<E: ClientEvent>(
        self,
        injector: Injector<E>,
        stage: StageId,
        end: Option<Box<dyn FnOnce() + Send + Sync>>,
    ) -> Db {
        self.0.set_notifier(notifier(injector, stage));
        Db::new(Lifeline { shared: self.0, end })
    }

    /// A handle for a driver without threads, which calls the stage itself after it has called the handle.
    #[must_use]
    pub fn attach_by_hand(self) -> Db {
        Db::new(Lifeline { shared: self.0, end: None })
    }
}
