//! What is given to a cluster once, and checked wherever it is said again: its name, and how many
//! copies it keeps of each shard.

use timestone_cluster::ReplicationFactor;
use timestone_server::{DeviceKind, MasterPlace, Server, ServerConfig};

use crate::running::config;

fn named(data: &std::path::Path, cluster: Option<&str>) -> ServerConfig {
    ServerConfig { cluster: cluster.map(str::to_owned), cluster_shards: Some(4), ..config(data) }
}

fn refusal(config: &ServerConfig) -> String {
    Server::start(config).expect_err("another cluster").to_string()
}

#[test]
fn a_server_of_another_cluster_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    let server = Server::start(&named(&first, Some("blue"))).unwrap();
    let id = format!("{:016x}", server.shard_map().cluster().get());

    let join = |cluster| {
        let master = MasterPlace::Remote(server.addresses().native.unwrap());
        ServerConfig { master, cluster_shards: None, ..named(&second, cluster) }
    };
    let error = refusal(&join(Some("green")));
    assert!(
        error.contains("master at 127.0.0.1") && error.contains("does not take this server"),
        "{error}"
    );
    assert!(error.contains("--cluster says 'green', and it belongs to cluster 'blue'"), "{error}");
    for fine in [Some("blue"), Some(id.as_str()), None] {
        Server::start(&join(fine)).unwrap().shutdown().unwrap();
    }
    // Its directory knows the cluster by now.
    let error = refusal(&join(Some("green")));
    assert!(error.contains("but /") && error.contains("another --data directory"), "{error}");
    server.shutdown().unwrap();

    let error = refusal(&named(&first, Some("green")));
    assert!(
        error.contains("another --data directory") && error.contains("belongs to cluster 'blue'"),
        "{error}"
    );
    assert!(refusal(&named(&first, Some("no spaces"))).contains("is no name of a cluster"));
    for fine in [Some("blue"), Some(id.as_str()), None] {
        Server::start(&named(&first, fine)).unwrap().shutdown().unwrap();
    }
}

#[test]
fn another_number_of_shards_than_the_cluster_has_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    let with = |data: &std::path::Path, shards| ServerConfig {
        cluster_shards: shards,
        ..named(data, None)
    };
    let server = Server::start(&with(&first, Some(4))).unwrap();
    let join = |shards| {
        let master = MasterPlace::Remote(server.addresses().native.unwrap());
        ServerConfig { master, ..with(&second, shards) }
    };
    let words = "--cluster-shards says 6, but the cluster has 4";
    let error = refusal(&join(Some(6)));
    assert!(error.contains(words), "{error}");
    assert_eq!(server.shard_map().servers().len(), 1, "nobody was registered");
    Server::start(&join(Some(4))).unwrap().shutdown().unwrap();
    Server::start(&join(None)).unwrap().shutdown().unwrap();
    server.shutdown().unwrap();
    let error = refusal(&with(&first, Some(6)));
    assert!(error.contains(words), "{error}");
    for fine in [Some(4), None] {
        Server::start(&with(&first, fine)).unwrap().shutdown().unwrap();
    }
}

#[test]
fn a_server_that_does_not_fit_the_replication_is_refused_and_not_registered() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    let factor = |copies| ReplicationFactor::new(copies).unwrap();
    let with = |data: &std::path::Path, copies| ServerConfig {
        replication: factor(copies),
        log: DeviceKind::Ssd,
        ..config(data)
    };
    let error = refusal(&ServerConfig { log: DeviceKind::None, ..with(&first, 3) });
    assert!(error.contains("keeps 3 copies") && error.contains("--log none"), "{error}");
    let server = Server::start(&with(&first, 3)).unwrap();
    let join = |config| {
        let master = MasterPlace::Remote(server.addresses().native.unwrap());
        ServerConfig { master, ..config }
    };
    let error = refusal(&join(with(&second, 5)));
    assert!(error.contains("--replication says 5, but the cluster keeps 3"), "{error}");
    let error = refusal(&join(ServerConfig { log: DeviceKind::None, ..with(&second, 1) }));
    assert!(error.contains("keeps 3 copies") && error.contains("--log none"), "{error}");
    assert_eq!(server.shard_map().servers().len(), 1, "nobody was registered");
    let is_free = |shard: &timestone_cluster::ShardEntry| shard.primary.is_none();
    assert!(server.shard_map().shards().iter().all(is_free), "nobody serves alone");
    // Who says nothing takes what there is.
    let other = Server::start(&join(with(&second, 1))).unwrap();
    assert_eq!(server.shard_map().servers().len(), 2);
    other.shutdown().unwrap();
    server.shutdown().unwrap();
    let error = refusal(&with(&first, 5));
    assert!(error.contains("--replication says 5, but the cluster keeps 3"), "{error}");
    Server::start(&with(&first, 3)).unwrap().shutdown().unwrap();
}
