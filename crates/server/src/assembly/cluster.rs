//! The server's place in its cluster: joining one, or bringing up the embedded master.

use std::net::SocketAddr;
use std::sync::Arc;

use timestone_cluster::{
    ControlState, Master, MasterAnswer, MasterCommand, MasterService, ReplicationFactor, Run,
    ServerAddresses, ServerId, ShardMap,
};
use timestone_etcd::{EtcdWorker, Founding, ServedServer};
use timestone_types::{ClientId, ClusterId, HashSeed, ShardId};
use timestone_wal::DeviceKind;

use crate::cluster_name::ClusterName;
use crate::config::{MasterPlace, ServerConfig};
use crate::environment::Environment;
use crate::error::ServerError;
use crate::limits;
use crate::manifest::Manifest;
use crate::node::{Joining, MasterLink};

use super::run_number::RunNumber;

/// What this server is in its cluster.
pub(super) struct ClusterPlace {
    pub(super) server: ServerId,
    pub(super) shards: Vec<ShardId>,
    pub(super) map: ShardMap,
    /// How many replicas each shard is to have.
    pub(super) replication: ReplicationFactor,
    /// The configurations of shards when it joined; their map is [`Self::map`].
    pub(super) control: ControlState,
    pub(super) link: MasterLink,
    pub(super) name: Option<String>,
}

impl ClusterPlace {
    fn new(
        server: ServerId,
        control: ControlState,
        link: MasterLink,
        name: Option<String>,
    ) -> Self {
        let (map, replication) = (control.map.clone(), control.replication);
        let shards = map.owned_by(server).map(|shard| shard.id).collect();
        Self { server, shards, map, replication, control, link, name }
    }

    /// Whether the master's idea of this server fits its data directory. Where shards have several
    /// replicas the map says which are kept where, whatever the directory was made for.
    pub(super) fn check_shards(
        &self,
        environment: &Arc<dyn Environment>,
        config: &ServerConfig,
    ) -> Result<(), ServerError> {
        if self.replication != ReplicationFactor::ONE {
            self.tell_what_is_waited_for();
            return Ok(());
        }
        if self.shards.len() == usize::from(environment.shards()) {
            return Ok(());
        }
        Err(ServerError::Master {
            address: master_address(config),
            detail: format!(
                "it has {} shards for this server, whose data directory holds {}: the cluster was \
                 founded with too few; found one with --cluster-shards, the sum over all servers",
                self.shards.len(),
                environment.shards()
            ),
        })
    }

    fn tell_what_is_waited_for(&self) {
        let (servers, needed) = (self.map.servers().len(), self.replication.replicas());
        if servers < needed {
            let missing = needed - servers;
            tracing::warn!(
                servers,
                replication = needed,
                "the cluster keeps {needed} copies of each shard and has {servers} of the servers \
                 for them: nothing is served until {missing} more have joined"
            );
        }
    }

    /// A client id that was never used.
    pub(super) fn client(&mut self) -> Result<ClientId, ServerError> {
        match self.link.client_id() {
            Ok(Some(client)) => Ok(client),
            Ok(None) => Err(ServerError::Internal(
                "the master's first block of client ids is too small".to_owned(),
            )),
            Err(error) => Err(ServerError::part(error)),
        }
    }
}

/// Whether a server with this configuration may join a cluster as it was founded: with as many shards,
/// and as many copies of each. One that says nothing of the shards, or asks for a single copy, takes
/// what there is.
fn check_founding(config: &ServerConfig, found: &ControlState) -> Result<(), ServerError> {
    let shards = found.map.shards().len();
    match config.cluster_shards {
        Some(asked) if usize::from(asked) != shards => {
            Err(ServerError::ClusterShards { asked, found: shards })
        }
        _ => check_replication(config, found.replication),
    }
}

/// Whether it may join one that keeps so many copies of each shard.
fn check_replication(config: &ServerConfig, found: ReplicationFactor) -> Result<(), ServerError> {
    let asked = config.replication;
    if asked != ReplicationFactor::ONE && asked != found {
        return Err(ServerError::Replication { asked, found });
    }
    if found != ReplicationFactor::ONE && config.log == DeviceKind::None {
        return Err(ServerError::ReplicationWithoutLog { replication: found });
    }
    Ok(())
}

/// Where the master is.
pub(super) fn master_address(config: &ServerConfig) -> SocketAddr {
    let here = std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    let here = SocketAddr::new(here, limits::NATIVE_PORT);
    match &config.master {
        MasterPlace::Remote(address) => *address,
        MasterPlace::Embedded => here,
        MasterPlace::Etcd(members) => members.first().copied().unwrap_or(here),
    }
}

/// The name under which a cluster lies in etcd when it was given none.
pub const UNNAMED_CLUSTER: &str = "default";

/// What the keys of a cluster in etcd begin with.
#[must_use]
pub fn etcd_prefix(cluster: &str) -> String {
    format!("/timestone/{cluster}")
}

/// Joins the cluster whose master is on etcd, or founds it.
fn join_on_etcd(
    config: &ServerConfig,
    members: &[SocketAddr],
    environment: &Arc<dyn Environment>,
    manifest: &Manifest,
    addresses: ServerAddresses,
) -> Result<ClusterPlace, ServerError> {
    let failed = |detail: String| ServerError::Master { address: master_address(config), detail };
    let shards_wanted = environment.shards();
    let known = environment.load_cluster()?;
    let name = match config.cluster.as_deref().map(ClusterName::parse).transpose()? {
        Some(name) => Some(name.as_str().to_owned()),
        None => environment.load_cluster_name()?,
    };
    let founding = Founding {
        cluster: ClusterId::new(environment.draw()),
        shards: config.cluster_shards.unwrap_or(shards_wanted),
        replication: config.replication,
        hash_seed: HashSeed(environment.draw()),
    };
    let prefix = etcd_prefix(name.as_deref().unwrap_or(UNNAMED_CLUSTER));
    let mut master = environment.open_etcd(members, prefix, founding)?;
    let mut ask = |command| master.execute(command).map_err(|failure| failed(failure.to_string()));
    let MasterAnswer::Control(found) = ask(MasterCommand::FetchControl)? else {
        return Err(failed(MISUNDERSTOOD.to_owned()));
    };
    check_founding(config, &found)?;
    let run = RunNumber::of(config, environment, manifest).begin(&found)?;
    let registering = registering(known, environment, run, addresses);
    let MasterAnswer::Server { server, hash_seed, map, .. } = ask(registering)? else {
        return Err(failed(MISUNDERSTOOD.to_owned()));
    };
    environment.save_cluster(map.cluster())?;
    if let Some(name) = name.as_deref().filter(|_| known == ClusterId::ZERO) {
        environment.save_cluster_name(name)?;
    }
    manifest.keep_seed(hash_seed, master_address(config))?;
    let command = MasterCommand::RegisterClient { count: limits::CLIENT_BLOCK };
    let MasterAnswer::Clients(clients) = ask(command)? else {
        return Err(failed(MISUNDERSTOOD.to_owned()));
    };
    let MasterAnswer::Control(control) = ask(MasterCommand::FetchControl)? else {
        return Err(failed(MISUNDERSTOOD.to_owned()));
    };
    let follower = ServedServer {
        server,
        known: control.map.version(),
        is_replicated: control.replication != ReplicationFactor::ONE,
    };
    let worker = EtcdWorker::begin(master, follower).map_err(|error| failed(error.to_string()))?;
    Ok(ClusterPlace::new(server, control, MasterLink::etcd(worker, clients), name))
}

/// What is said of a master whose answer does not fit the question.
const MISUNDERSTOOD: &str = "it answered something else than asked";

/// The exchange by which this server would join the cluster of a master elsewhere.
pub(crate) fn joining(
    config: &ServerConfig,
    environment: &Arc<dyn Environment>,
    manifest: &Arc<Manifest>,
    addresses: ServerAddresses,
) -> Result<Joining, ServerError> {
    let directory = environment.directory();
    let cluster = environment.load_cluster()?;
    let wanted = config.cluster.as_deref().map(ClusterName::parse).transpose()?;
    if let Some(wanted) = wanted.as_ref().filter(|_| cluster != ClusterId::ZERO) {
        let name = environment.load_cluster_name()?;
        wanted.check(&environment.cluster_place(name.is_some()), cluster, name.as_deref())?;
    }
    let place = environment.cluster_place(false);
    let shards = environment.shards();
    let (config, environment, manifest) =
        (config.clone(), Arc::clone(environment), Arc::clone(manifest));
    let begin_run = move |found: &ControlState| {
        check_founding(&config, found)
            .and_then(|()| RunNumber::of(&config, &environment, &manifest).begin(found))
            .map_err(|error| error.to_string())
    };
    Ok(Joining::new((cluster, place), wanted, directory, addresses, shards, begin_run))
}

/// Joins the cluster of a master elsewhere, or brings up the one in this process.
pub(super) fn join_cluster(
    config: &ServerConfig,
    environment: &Arc<dyn Environment>,
    manifest: &Arc<Manifest>,
    addresses: ServerAddresses,
) -> Result<ClusterPlace, ServerError> {
    if config.replication != ReplicationFactor::ONE {
        check_replication(config, config.replication)?;
    }
    if let MasterPlace::Etcd(members) = &config.master {
        return join_on_etcd(config, members, environment, manifest, addresses);
    }
    if let MasterPlace::Remote(address) = config.master {
        let registration =
            environment.register(address, joining(config, environment, manifest, addresses)?)?;
        environment.save_cluster(registration.control.map.cluster())?;
        let name = registration.cluster_name;
        if name.is_some() && name != environment.load_cluster_name()? {
            environment.save_cluster_name(name.as_deref().unwrap_or_default())?;
        }
        let link = MasterLink::remote(address, registration.clients);
        manifest.keep_seed(registration.hash_seed, master_address(config))?;
        return Ok(ClusterPlace::new(registration.server, registration.control, link, name));
    }
    if let Some(master) = environment.open_master()? {
        let cluster = environment.load_cluster()?;
        let link = MasterLink::shared(master);
        let place = join_here(link, (cluster, addresses), environment, manifest, config)?;
        environment.save_cluster(place.map.cluster())?;
        return Ok(place);
    }
    let master = match environment.load_master()? {
        Some(bytes) => Master::decode(&bytes).map_err(|error| ServerError::BadMaster {
            path: environment.place(),
            detail: error.to_string(),
        })?,
        None => {
            let (cluster, seed) =
                (ClusterId::new(environment.draw()), HashSeed(environment.draw()));
            let shards = config.cluster_shards.unwrap_or_else(|| environment.shards());
            Master::create_replicated(cluster, shards, config.replication, seed)
                .map_err(ServerError::part)?
        }
    };
    let cluster = master.cluster();
    let mut name = environment.load_cluster_name()?;
    if let Some(wanted) = config.cluster.as_deref().map(ClusterName::parse).transpose()? {
        if name.is_none() && !wanted.is_id_of(cluster) {
            environment.save_cluster_name(wanted.as_str())?;
            name = Some(wanted.as_str().to_owned());
        }
        let place =
            if name.is_some() { environment.cluster_place(true) } else { environment.place() };
        wanted.check(&place, cluster, name.as_deref())?;
    }
    let link = MasterLink::embedded(master, Arc::clone(environment));
    let place = join_here(link, (cluster, addresses), environment, manifest, config)?;
    Ok(ClusterPlace { name, ..place })
}

fn registering(
    cluster: ClusterId,
    environment: &Arc<dyn Environment>,
    run: Run,
    addresses: ServerAddresses,
) -> MasterCommand {
    MasterCommand::RegisterServer {
        cluster,
        directory: environment.directory(),
        run,
        addresses,
        shards_wanted: environment.shards(),
    }
}

/// Registers with the master that is asked directly.
fn join_here(
    mut link: MasterLink,
    (cluster, addresses): (ClusterId, ServerAddresses),
    environment: &Arc<dyn Environment>,
    manifest: &Manifest,
    config: &ServerConfig,
) -> Result<ClusterPlace, ServerError> {
    let fetch = |link: &mut MasterLink| match link.ask(MasterCommand::FetchControl) {
        Ok(MasterAnswer::Control(control)) => Ok(control),
        Ok(_) => Err(ServerError::Internal(MISUNDERSTOOD.to_owned())),
        Err(error) => Err(ServerError::part(error)),
    };
    let found = fetch(&mut link)?;
    check_founding(config, &found)?;
    let run = RunNumber::of(config, environment, manifest).begin(&found)?;
    let command = registering(cluster, environment, run, addresses);
    let MasterAnswer::Server { server, hash_seed, .. } =
        link.ask(command).map_err(ServerError::part)?
    else {
        return Err(ServerError::Internal(MISUNDERSTOOD.to_owned()));
    };
    manifest.keep_seed(hash_seed, master_address(config))?;
    let control = fetch(&mut link)?;
    Ok(ClusterPlace::new(server, control, link, None))
}
