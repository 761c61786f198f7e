//! The server's place in its cluster: joining one, or bringing up the embedded master.

use std::net::SocketAddr;
use std::sync::Arc;

use timestone_cluster::{
    Master, MasterAnswer, MasterCommand, MasterService, ReplicationFactor, ServerAddresses,
    ServerId, ShardMap,
};
use timestone_etcd::{EtcdWorker, Founding};
use timestone_types::{ClientId, ClusterId, HashSeed, ShardId};

use crate::cluster_name::ClusterName;
use crate::config::{MasterPlace, ServerConfig};
use crate::environment::Environment;
use crate::error::ServerError;
use crate::limits;
use crate::manifest::Manifest;
use crate::node::{Joining, MasterLink};

/// What this server is in its cluster.
pub(super) struct ClusterPlace {
    pub(super) server: ServerId,
    pub(super) shards: Vec<ShardId>,
    pub(super) map: ShardMap,
    pub(super) link: MasterLink,
    pub(super) name: Option<String>,
}

impl ClusterPlace {
    /// Whether the master's idea of this server fits its data directory.
    pub(super) fn check_shards(
        &self,
        environment: &Arc<dyn Environment>,
        config: &ServerConfig,
    ) -> Result<(), ServerError> {
        if self.shards.len() == usize::from(environment.shards()) {
            return Ok(());
        }
        Err(ServerError::Master {
            address: master_address(config),
            detail: format!(
                "it has {} shards for this server, whose data directory holds {}; set \
                 --cluster-shards there to the sum over all servers",
                self.shards.len(),
                environment.shards()
            ),
        })
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

/// Where the master is.
fn master_address(config: &ServerConfig) -> SocketAddr {
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
        replication: ReplicationFactor::ONE,
        hash_seed: HashSeed(environment.draw()),
    };
    let prefix = etcd_prefix(name.as_deref().unwrap_or(UNNAMED_CLUSTER));
    let mut master = environment.open_etcd(members, prefix, founding)?;
    let command = MasterCommand::RegisterServer {
        cluster: known,
        directory: environment.directory(),
        addresses,
        shards_wanted,
    };
    let answer = master.execute(command).map_err(|failure| failed(failure.to_string()))?;
    let MasterAnswer::Server { server, hash_seed, shards, map } = answer else {
        return Err(failed("it answered something else than asked".to_owned()));
    };
    environment.save_cluster(map.cluster())?;
    if let Some(name) = name.as_deref().filter(|_| known == ClusterId::ZERO) {
        environment.save_cluster_name(name)?;
    }
    manifest.keep_seed(hash_seed, master_address(config))?;
    let command = MasterCommand::RegisterClient { count: limits::CLIENT_BLOCK };
    let answer = master.execute(command).map_err(|failure| failed(failure.to_string()))?;
    let MasterAnswer::Clients(clients) = answer else {
        return Err(failed("it answered something else than asked".to_owned()));
    };
    let worker = EtcdWorker::begin(master, server, map.version())
        .map_err(|error| failed(error.to_string()))?;
    Ok(ClusterPlace { server, shards, map, link: MasterLink::etcd(worker, clients), name })
}

/// The exchange by which this server would join the cluster of a master elsewhere.
pub(crate) fn joining(
    config: &ServerConfig,
    environment: &dyn Environment,
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
    Ok(Joining::new((cluster, place), wanted, directory, addresses, environment.shards()))
}

/// Joins the cluster of a master elsewhere, or brings up the one in this process.
pub(super) fn join_cluster(
    config: &ServerConfig,
    environment: &Arc<dyn Environment>,
    manifest: &Manifest,
    addresses: ServerAddresses,
) -> Result<ClusterPlace, ServerError> {
    let directory = environment.directory();
    let shards_wanted = environment.shards();
    if let MasterPlace::Etcd(members) = &config.master {
        return join_on_etcd(config, members, environment, manifest, addresses);
    }
    if let MasterPlace::Remote(address) = config.master {
        let registration =
            environment.register(address, joining(config, &**environment, addresses)?)?;
        environment.save_cluster(registration.map.cluster())?;
        let name = registration.cluster_name;
        if name.is_some() && name != environment.load_cluster_name()? {
            environment.save_cluster_name(name.as_deref().unwrap_or_default())?;
        }
        let link = MasterLink::remote(address, registration.clients);
        manifest.keep_seed(registration.hash_seed, master_address(config))?;
        let (server, shards, map) = (registration.server, registration.shards, registration.map);
        return Ok(ClusterPlace { server, shards, map, link, name });
    }
    let master = match environment.load_master()? {
        Some(bytes) => Master::decode(&bytes).map_err(|error| ServerError::BadMaster {
            path: environment.place(),
            detail: error.to_string(),
        })?,
        None => {
            let (cluster, seed) =
                (ClusterId::new(environment.draw()), HashSeed(environment.draw()));
            Master::create(cluster, config.cluster_shards.unwrap_or(shards_wanted), seed)
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
    let mut link = MasterLink::embedded(master, Arc::clone(environment));
    let command = MasterCommand::RegisterServer { cluster, directory, addresses, shards_wanted };
    match link.execute(command).map_err(ServerError::part)? {
        (MasterAnswer::Server { server, hash_seed, shards, map }, _) => {
            manifest.keep_seed(hash_seed, master_address(config))?;
            Ok(ClusterPlace { server, shards, map, link, name })
        }
        _ => Err(ServerError::Internal("the master answered something else than asked".to_owned())),
    }
}
