//! Three processes that own the shards of one cluster, whose master is on a real etcd: which falls
//! silent, ends, and goes on from a backup.

use std::collections::BTreeSet;
use std::time::Duration;

use timestone_cluster::ShardMap;
use timestone_types::{ClientId, ShardId};

use crate::etcd::EtcdServer;
use crate::peer::Peer;
use crate::server::{Node, NodeSetup, binary, eventually, outcome, test_folder};

const TIMEOUT: Duration = Duration::from_secs(40);

struct Three {
    places: Vec<NodeSetup>,
    nodes: Vec<Option<Node>>,
    etcd: EtcdServer,
    _folder: tempfile::TempDir,
}

impl Three {
    fn start() -> Self {
        let (folder, etcd) = (test_folder(), EtcdServer::start());
        let master = format!("etcd://{}", etcd.endpoint);
        let places: Vec<NodeSetup> = ["a", "b", "c"]
            .map(|name| {
                NodeSetup::new(folder.path(), name)
                    .with("--shards", "2")
                    .with("--cluster-shards", "6")
                    .with("--cluster", "blue")
                    .with("--master", &master)
            })
            .to_vec();
        let nodes = places.iter().map(|place| Some(place.start())).collect();
        let three = Self { places, nodes, etcd, _folder: folder };
        three.wait_for(|map| map.shards().iter().all(|shard| !shard.primary.is_none()));
        three
    }

    /// Until every server knows a map like this.
    fn wait_for(&self, is_right: impl Fn(&ShardMap) -> bool) {
        for place in &self.places {
            eventually("the map", TIMEOUT, || {
                let map = Peer::connect(place.native).map;
                if is_right(&map) { Ok(()) } else { Err(format!("{:?}", map.shards())) }
            });
        }
    }

    /// Writes one key of each shard by way of one server, and reads them by way of the others.
    fn assert_one_store(&self, value: &[u8]) {
        let peer = Peer::connect(self.places[0].native);
        let shards: Vec<ShardId> = peer.map.shards().iter().map(|entry| entry.id).collect();
        let keys: Vec<Vec<u8>> = shards.iter().map(|&shard| peer.key_of(shard, "k")).collect();
        self.places[0]
            .connect()
            .transact(|tx| keys.iter().try_for_each(|key| tx.put(key, value)))
            .expect("a transaction over three processes commits");
        for place in &self.places[1..] {
            let seen = place.connect().transact(|tx| tx.get_many(&keys)).expect("read");
            assert!(seen.iter().all(|one| one.as_deref() == Some(value)), "{seen:?}");
        }
    }

    /// Has a server forgotten: the exit code, and what is said.
    fn forget(&self, server: u32) -> (i32, String) {
        let mut command = binary();
        command.args(["master", "forget", &server.to_string(), "--cluster", "blue"]);
        command.args(["--master", &format!("etcd://{}", self.etcd.endpoint)]);
        outcome(command)
    }

    fn stop(mut self) {
        for node in self.nodes.drain(..).flatten() {
            node.stop();
        }
    }
}

/// New clients of a server; none of them was there before.
fn new_clients(place: &NodeSetup, count: usize, known: &mut BTreeSet<ClientId>) {
    for _ in 0..count {
        let client = Peer::connect(place.native).client;
        assert!(known.insert(client), "client id {client} was handed out twice");
    }
}

#[test]
fn three_processes_with_a_master_on_etcd_are_one_store() {
    let mut three = Three::start();
    let map = Peer::connect(three.places[0].native).map;
    for server in map.servers() {
        assert_eq!(map.owned_by(server.id).count(), 2, "{map:?}");
    }
    three.assert_one_store(b"first");
    let mut clients = BTreeSet::new();
    for place in &three.places {
        new_clients(place, 20, &mut clients);
    }

    // Etcd is silent, then gone: servers go on with what they have.
    three.etcd.freeze();
    three.assert_one_store(b"while etcd is silent");
    new_clients(&three.places[0], 10, &mut clients);
    three.etcd.wake();
    three.assert_one_store(b"when etcd is awake");
    three.etcd.stop();
    three.assert_one_store(b"while etcd is gone");

    // A server that starts waits for etcd, and has its shards and its data again.
    three.nodes[1].take().expect("it runs").kill();
    let starting = three.places[1].spawn();
    three.etcd.restart();
    three.nodes[1] = Some(starting.ready());
    three.wait_for(|map| map.shards().iter().all(|shard| !shard.primary.is_none()));
    three.assert_one_store(b"with etcd again");
    new_clients(&three.places[1], 300, &mut clients);

    // A backup knows none of what comes now: servers tell what they have seen.
    three.etcd.back_up();
    three.wait_for(|_| true);
    new_clients(&three.places[0], 600, &mut clients);
    three.nodes[2].take().expect("it runs").stop();
    three.etcd.restore();
    three.nodes[2] = Some(three.places[2].start());
    new_clients(&three.places[2], 300, &mut clients);
    new_clients(&three.places[0], 300, &mut clients);
    three.assert_one_store(b"after a restore");
    let (code, text) = three.forget(1);
    assert_eq!((code, text.contains("nobody waits for server 1")), (3, true), "{text}");
    three.stop();
}

#[test]
fn a_lost_server_is_forgotten_after_a_restore_when_somebody_says_so() {
    let mut three = Three::start();
    three.etcd.back_up();
    let mut clients = BTreeSet::new();
    new_clients(&three.places[0], 2000, &mut clients);
    for node in three.nodes.iter_mut() {
        node.take().expect("it runs").stop();
    }
    three.etcd.restore();
    // The third one never comes again.
    let starting = [three.places[0].spawn(), three.places[1].spawn()];
    let forgotten = eventually("server 3 alone is waited for", TIMEOUT, || {
        let text = starting[0].text();
        if text.contains("until server 3 and 0 more") { Ok(three.forget(3)) } else { Err(text) }
    });
    assert_eq!(forgotten.0, 0, "{}", forgotten.1);
    let _running = starting.map(Node::ready);
    new_clients(&three.places[0], 300, &mut clients);
}
