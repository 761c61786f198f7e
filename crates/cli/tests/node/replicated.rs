//! Three processes that keep three copies of each shard: what `timestone status` says of them, and
//! that the copies of a process that is killed serve at the others.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::etcd::EtcdServer;
use crate::server::{Node, NodeSetup, binary, eventually, outcome, test_folder};

pub(crate) const TIMEOUT: Duration = Duration::from_secs(40);
const KEYS: u32 = 30;

/// Servers of a cluster that keeps three copies of three shards.
pub(crate) struct Replicated {
    pub(crate) places: Vec<NodeSetup>,
    nodes: Vec<Option<Node>>,
    pub(crate) folder: tempfile::TempDir,
}

impl Replicated {
    /// The first one founds it; the others say nothing of copies where `master` is its address.
    pub(crate) fn start(master: Option<&str>) -> Self {
        Self::start_as(master, |place| place.with("--resp", "none"))
    }

    /// The same, with ports for Redis clients; primaries move only when their server is lost.
    pub(crate) fn start_for_redis(master: &str) -> Self {
        Self::start_as(Some(master), |place| place.with("--level-primaries", "false"))
    }

    /// The same as `start`, with one that hosts the master; who is not heard is lost after this long.
    pub(crate) fn start_noticing_losses_after(detection: &str) -> Self {
        Self::start_as(None, |place| place.with("--resp", "none").with("--detection", detection))
    }

    fn start_as(master: Option<&str>, adjust: impl Fn(NodeSetup) -> NodeSetup) -> Self {
        let folder = test_folder();
        let place = |name: &str| {
            let place = NodeSetup::new(folder.path(), name).with("--capacity", "256MiB");
            adjust(place.with("--threads", "1").with("--http", "none"))
        };
        let founding =
            |place: NodeSetup| place.with("--replication", "3").with("--cluster-shards", "3");
        let first = founding(place("a"));
        let places: Vec<NodeSetup> = match master {
            Some(url) => {
                ["a", "b", "c"].map(|name| founding(place(name)).with("--master", url)).into()
            }
            None => {
                let url = first.url();
                let others = ["b", "c"].map(|name| place(name).with("--master", &url));
                std::iter::once(first).chain(others).collect()
            }
        };
        Self::at(places, folder)
    }

    /// Servers at these places, which are in a folder.
    pub(crate) fn at(places: Vec<NodeSetup>, folder: tempfile::TempDir) -> Self {
        let nodes = places.iter().map(|place| Some(place.start())).collect();
        Self { places, nodes, folder }
    }

    /// Where clients reach all servers.
    pub(crate) fn address(&self) -> String {
        let hosts: Vec<String> =
            self.places.iter().map(|place| place.reached_at().to_string()).collect();
        format!("timestone://{}", hosts.join(","))
    }

    /// What `timestone status` says when it asks this server.
    fn status(&self, index: usize) -> Result<Value, String> {
        let mut command = binary();
        command.args(["status", "-o", "json", "--address", &self.places[index].url()]);
        let (code, text) = outcome(command);
        // Whether all servers answer, or some are down, the first line is the answer.
        let end = text.rfind('}').map_or(0, |end| end + 1);
        serde_json::from_str(&text[..end]).map_err(|error| format!("{code}: {error}: {text}"))
    }

    /// Until this server says something like this.
    pub(crate) fn wait_for(
        &self,
        index: usize,
        what: &str,
        is_so: impl Fn(&Value) -> bool,
    ) -> Value {
        eventually(what, TIMEOUT, || {
            let status = self.status(index)?;
            if is_so(&status) { Ok(status) } else { Err(status.to_string()) }
        })
    }

    /// Until all copies of all shards are there again, as this server sees it, and have what
    /// counted before.
    pub(crate) fn wait_until_complete(&self, asked: usize) -> Value {
        let before = self.wait_for(asked, "all shards serve", |status| {
            shards(status).all(|shard| shard["replication"]["state"] == "serving")
        });
        let before: Vec<u64> = shards(&before).map(most_counted).collect();
        self.wait_for(asked, "all shards serve, and their backups follow", |status| {
            shards(status).zip(&before).all(|(shard, before)| {
                let replication = &shard["replication"];
                let has_it = |replica: &Value| {
                    let lag = replica["lag"].as_u64();
                    lag.is_some_and(|lag| most_counted(shard).saturating_sub(lag) >= *before)
                };
                replication["state"] == "serving"
                    && replication["confirmed_epoch"] == shard["epoch"]
                    && replicas(shard).count() == 3
                    && replicas(shard)
                        .all(|replica| replica["installed"] == shard["epoch"] && has_it(replica))
            })
        })
    }

    /// Until another server serves each shard that this one served, as the server `asked` sees it.
    pub(crate) fn wait_until_moved(&self, lost: usize, asked: usize) -> Value {
        self.wait_for(asked, "its shards serve at others", |status| {
            shards(status).all(|shard| {
                shard["primary"] != self.id_of(lost, status)
                    && shard["replication"]["state"] == "serving"
                    && shard["replication"]["confirmed_epoch"] == shard["epoch"]
            })
        })
    }

    /// The id of the server at a place.
    pub(crate) fn id_of(&self, index: usize, status: &Value) -> Value {
        let address = self.places[index].reached_at().to_string();
        let servers = status["servers"].as_array().expect("servers");
        let found = servers.iter().find(|server| server["address"] == address.as_str());
        found.unwrap_or_else(|| panic!("no server at {address}: {status}"))["id"].clone()
    }

    /// The place of the server with this id.
    pub(crate) fn place_of(&self, id: &Value, status: &Value) -> usize {
        let found = (0..self.places.len()).find(|&index| self.id_of(index, status) == *id);
        found.unwrap_or_else(|| panic!("no place of server {id}: {status}"))
    }

    fn write(&self, index: usize, value: &str) {
        let db = self.places[index].connect();
        for key in 0..KEYS {
            eventually("a write", TIMEOUT, || {
                db.put(format!("k{key}").as_bytes(), value.as_bytes()).map(drop)
            });
        }
    }

    fn assert_all(&self, index: usize, value: &str) {
        let db = self.places[index].connect();
        for key in 0..KEYS {
            let found = eventually("a read", TIMEOUT, || db.get(format!("k{key}").as_bytes()));
            assert_eq!(found.as_deref(), Some(value.as_bytes()), "k{key}");
        }
    }

    pub(crate) fn kill(&mut self, index: usize) {
        self.nodes[index].take().expect("it runs").kill();
    }

    pub(crate) fn signal(&self, index: usize, signal: Signal) {
        self.nodes[index].as_ref().expect("it runs").signal(signal);
    }

    /// Starts a server in its place, and does not wait for it.
    pub(crate) fn spawn(&mut self, index: usize) {
        self.nodes[index] = Some(self.places[index].spawn());
    }

    /// Waits for one that was [spawned](Self::spawn).
    pub(crate) fn wait_until_ready(&mut self, index: usize) {
        let node = self.nodes[index].take().expect("it runs");
        self.nodes[index] = Some(node.ready());
    }

    /// Starts a server in its place, with a flag for this once.
    pub(crate) fn restart_with(&mut self, index: usize, flag: &str, value: &str) {
        self.nodes[index] = Some(self.places[index].with(flag, value).start());
    }

    /// What a server that runs has written.
    pub(crate) fn text(&self, index: usize) -> String {
        self.nodes[index].as_ref().expect("it runs").text()
    }

    /// Ends a server in order.
    pub(crate) fn stop(&mut self, index: usize) {
        self.nodes[index].take().expect("it runs").stop();
    }

    pub(crate) fn restart(&mut self, index: usize) {
        self.nodes[index] = Some(self.places[index].start());
    }
}

pub(crate) fn shards(status: &Value) -> impl Iterator<Item = &Value> {
    status["shards"].as_array().expect("shards").iter()
}

/// The last batch that counts, as far as any replica knows.
fn most_counted(shard: &Value) -> u64 {
    replicas(shard).filter_map(|replica| replica["counted"].as_u64()).max().expect("any tells it")
}

fn replicas(shard: &Value) -> impl Iterator<Item = &Value> {
    shard["replication"]["replicas"].as_array().expect("replicas").iter()
}

/// Kills a server that is primary of a shard, and brings it back.
fn lose_and_return(cluster: &mut Replicated, lost: usize, asked: usize) {
    cluster.wait_until_complete(asked);
    cluster.write(asked, "before");
    cluster.kill(lost);
    let after = cluster.wait_until_moved(lost, asked);
    assert!(after["controller"]["last"].is_string(), "{after}");
    cluster.assert_all(asked, "before");
    cluster.write(asked, "after");
    cluster.restart(lost);
    cluster.wait_until_complete(asked);
    cluster.assert_all(lost, "after");
}

#[test]
fn a_server_that_is_killed_is_followed_by_the_copies_of_its_shards() {
    let mut cluster = Replicated::start(None);
    let status = cluster.wait_until_complete(0);
    let primaries: BTreeSet<u64> =
        shards(&status).filter_map(|shard| shard["primary"].as_u64()).collect();
    assert_eq!(primaries.len(), 3, "primaries are spread evenly: {status}");
    assert_eq!(status["replication"], 3);
    assert_eq!(status["controller"]["server"], status["servers"][0]["id"], "it has the master");
    lose_and_return(&mut cluster, 2, 1);
}

/// The controller's server dies: another one becomes the controller, and moves its shards.
#[test]
fn on_etcd_the_server_of_the_controller_may_be_killed() {
    let etcd = EtcdServer::start();
    let mut cluster = Replicated::start(Some(&format!("etcd://{}", etcd.endpoint)));
    let status = cluster.wait_until_complete(0);
    let lost = cluster.place_of(&status["controller"]["server"], &status);
    lose_and_return(&mut cluster, lost, (lost + 1) % 3);
    let later = cluster.wait_until_complete(0);
    assert!(
        later["controller"]["term"].as_u64() > status["controller"]["term"].as_u64(),
        "{later}"
    );
}

pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("readable").map(|entry| entry.expect("readable")) {
        let to = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), to).expect("copied")),
        }
    }
}

/// Puts an older copy of a server's data directory back. It is refused until its loss is accepted;
/// then its copies are made anew, so that another server may be lost.
fn put_an_older_copy_back(cluster: &mut Replicated, old: usize, lost: usize, asked: usize) {
    cluster.wait_until_complete(asked);
    cluster.write(asked, "before");
    cluster.stop(old);
    let (data, aside) = (cluster.places[old].data.clone(), cluster.folder.path().join("aside"));
    copy(&data, &aside);
    cluster.restart(old);
    cluster.wait_until_complete(asked);
    cluster.write(asked, "after");
    cluster.wait_until_complete(asked);
    cluster.stop(old);
    fs::remove_dir_all(&data).expect("removed");
    copy(&aside, &data);
    for _ in 0..2 {
        let (code, text) = cluster.places[old].refused();
        assert_eq!(code, 1, "{text}");
        for words in ["is an older copy of itself", "--accept-loss all", "made anew"] {
            assert!(text.contains(words), "{words:?} is not in: {text}");
        }
    }
    let accepting = cluster.places[old].with("--accept-loss", "all").start();
    assert!(accepting.text().contains("is an older copy of itself"), "{}", accepting.text());
    cluster.nodes[old] = Some(accepting);
    cluster.wait_until_complete(asked);
    // From now on it is the latest.
    cluster.stop(old);
    cluster.restart(old);
    cluster.wait_until_complete(asked);
    cluster.kill(lost);
    cluster.wait_until_moved(lost, old);
    cluster.assert_all(old, "after");
}

#[test]
fn an_older_copy_of_a_directory_is_refused_and_made_anew_when_that_is_accepted() {
    let mut cluster = Replicated::start(None);
    put_an_older_copy_back(&mut cluster, 2, 1, 0);
}

#[test]
fn on_etcd_an_older_copy_of_a_directory_is_noticed_as_well() {
    let etcd = EtcdServer::start();
    let mut cluster = Replicated::start(Some(&format!("etcd://{}", etcd.endpoint)));
    put_an_older_copy_back(&mut cluster, 0, 1, 2);
}

#[test]
fn one_server_of_three_waits_for_the_others_and_says_so() {
    let folder = test_folder();
    let place = NodeSetup::new(folder.path(), "a").with("--replication", "3");
    let node = place.start();
    assert!(node.text().contains("nothing is served until 2 more have joined"), "{}", node.text());
    let mut command = binary();
    command.args(["status", "-o", "text", "--address", &place.url()]);
    let (code, text) = outcome(command);
    assert_eq!(code, 0, "{text}");
    for line in [
        "replication 3\n",
        "nothing is served until 2 more servers have joined\n",
        "shard 0 state waits for servers\n",
    ] {
        assert!(text.contains(line), "{line:?} is not in:\n{text}");
    }
    node.stop();
    let (code, text) = place.with("--replication", "5").refused();
    assert_ne!(code, 0);
    assert!(text.contains("--replication says 5, but the cluster keeps 3"), "{text}");
}
