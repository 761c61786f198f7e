//! The name of a cluster: given once, checked wherever it is said again.

use timestone_server::{MasterPlace, Server, ServerConfig};

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
