//! Three processes that keep three copies of each shard, under load of native and of Redis clients,
//! while one after the other is killed, falls silent or is restarted, and while their etcd does so:
//! what the clients saw is judged by its history.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::etcd::EtcdServer;
use crate::history::{judge, read_strictly};
use crate::redis_clients;
use crate::replicated::{Replicated, TIMEOUT, shards};
use crate::server::{Node, binary, eventually};

/// So many transactions more show that the cluster serves again: sessions have one each, so most
/// of these began after whatever was waited for before.
const MORE: usize = 60;
const SESSIONS: &str = "8";
/// Redis clients on all servers: few connections and calls a second, so that a checker keeps up.
const REDIS: &str = "--protocol resp --clients 6 --keys 5 --rate 200 --cut 1 --whole list";
/// Longer than leases and heartbeats, and than the lease of the controller on etcd.
const SILENCE: Duration = Duration::from_secs(6);

/// `timestone bench`, which runs until it is ended.
pub(crate) struct Load {
    run: Node,
    workload: &'static str,
    history: PathBuf,
}

impl Load {
    /// Knows all servers from the start.
    fn start(cluster: &Replicated, workload: &'static str) -> Self {
        Self::start_as(cluster, workload, &format!("{workload} --clients {SESSIONS} -o json"))
    }

    /// By these words, which say of themselves that the report is in JSON.
    pub(crate) fn start_as(cluster: &Replicated, workload: &'static str, words: &str) -> Self {
        Self::run(cluster, workload, &cluster.address(), words)
    }

    /// Redis clients, each of which goes to one server, and to the next one when it is lost.
    pub(crate) fn of_redis_clients(cluster: &Replicated) -> Self {
        let hosts: Vec<String> =
            cluster.places.iter().map(|place| place.resp.to_string()).collect();
        Self::run(cluster, "redis", &format!("redis://{}", hosts.join(",")), REDIS)
    }

    fn run(cluster: &Replicated, workload: &'static str, address: &str, words: &str) -> Self {
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        let history = cluster.folder.path().join(format!("{workload}-{run}.edn"));
        let mut command = binary();
        command.arg("bench").args(words.split(' ')).args(["--warmup", "0s", "--duration", "1h"]);
        command.args(["--address", address]).arg("--history").arg(&history);
        let run = Node::writing(command, &history, 1);
        let load = Self { run, workload, history };
        load.wait_for_more("at the start");
        load
    }

    /// How many transactions or calls the history tells to have succeeded.
    fn committed(&self) -> usize {
        let text = std::fs::read(&self.history).expect("the history is there");
        String::from_utf8_lossy(&text).matches(":type :ok").count()
    }

    pub(crate) fn wait_for_more(&self, when: &str) {
        let before = self.committed();
        eventually(&format!("transactions commit {when}"), TIMEOUT, || {
            let more = self.committed() - before;
            if more >= MORE { Ok(()) } else { Err(format!("{more}, and:\n{}", self.run.text())) }
        });
    }

    /// Kills the clients. What they wrote down until then is judged.
    pub(crate) fn kill(self) {
        self.run.kill();
        let counts = read_strictly(&self.history, self.workload, true);
        println!("{}, killed: {counts:?}", self.workload);
        println!("{}", judge(&self.history).trim());
    }

    /// Ends it, and judges what it wrote down: why its attempts ended without a commit.
    pub(crate) fn end(self) -> Value {
        let (status, text) = self.run.terminate();
        let line = text.lines().find(|line| line.starts_with('{'));
        let line = line.unwrap_or_else(|| panic!("no report ({status}): {text}"));
        let report: Value = serde_json::from_str(line).expect("a report in JSON");
        let counts = read_strictly(&self.history, self.workload, false);
        println!("{}: {counts:?}, aborts {}", self.workload, report["aborts"]);
        println!("{}", judge(&self.history).trim());
        report["aborts"].clone()
    }
}

/// What Redis clients wrote down when it ended.
pub(crate) fn end_of_redis_clients(load: Load) {
    let (status, text) = load.run.terminate();
    assert!(status.success(), "{text}");
    println!("redis: {:?}", redis_clients::read_strictly(&load.history, false));
    redis_clients::judge(&load.history);
}

/// Copies serve for a server that is silent or dead, and it follows again when it is `back`.
fn is_replaced(
    cluster: &mut Replicated,
    lost: usize,
    loads: &[Load],
    back: impl FnOnce(&mut Replicated),
) {
    let asked = (lost + 1) % cluster.places.len();
    cluster.wait_until_moved(lost, asked);
    loads.iter().for_each(|load| load.wait_for_more("while a server is lost"));
    back(cluster);
    cluster.wait_until_complete(asked);
    loads.iter().for_each(|load| load.wait_for_more("when it is back"));
}

/// The server that is primary of a shard, and is not this one.
fn primary_beside(cluster: &Replicated, other: usize, status: &Value) -> usize {
    let mut primaries = shards(status).map(|shard| cluster.place_of(&shard["primary"], status));
    primaries.find(|&primary| primary != other).expect("more than one server is primary")
}

/// The server that is primary of the fewest shards: of none after a failover.
fn backup(cluster: &Replicated, status: &Value) -> usize {
    let primaries: Vec<usize> =
        shards(status).map(|shard| cluster.place_of(&shard["primary"], status)).collect();
    let served = |place: &usize| primaries.iter().filter(|&primary| primary == place).count();
    (0..cluster.places.len()).min_by_key(served).expect("a cluster has servers")
}

/// Each role is lost in turn: the controller, which is primary of a shard as well; a primary that
/// is silent for longer than its lease, and wakes up as one; a backup; etcd, which is silent and
/// then killed.
#[test]
fn histories_on_etcd_are_right_while_every_role_is_killed_and_falls_silent() {
    let mut etcd = EtcdServer::start();
    let mut cluster = Replicated::start_for_redis(&format!("etcd://{}", etcd.endpoint));
    let status = cluster.wait_until_complete(0);
    let controller = cluster.place_of(&status["controller"]["server"], &status);
    let loads = [Load::start(&cluster, "list-append"), Load::of_redis_clients(&cluster)];
    cluster.kill(controller);
    is_replaced(&mut cluster, controller, &loads, |cluster| cluster.restart(controller));

    let status = cluster.wait_until_complete(0);
    let silent = primary_beside(&cluster, controller, &status);
    cluster.signal(silent, Signal::STOP);
    is_replaced(&mut cluster, silent, &loads, |cluster| cluster.signal(silent, Signal::CONT));

    // It came back as a backup; or another one did, which was slow for longer than its lease since.
    let status = cluster.wait_until_complete(0);
    let backup = backup(&cluster, &status);
    cluster.kill(backup);
    loads.iter().for_each(|load| load.wait_for_more("without a backup"));
    cluster.restart(backup);
    cluster.wait_until_complete(0);

    etcd.freeze();
    std::thread::sleep(SILENCE);
    loads.iter().for_each(|load| load.wait_for_more("while etcd is silent"));
    etcd.wake();
    etcd.stop();
    loads.iter().for_each(|load| load.wait_for_more("while etcd is gone"));
    etcd.restart();
    cluster.wait_until_complete(0);
    let [native, redis] = loads;
    native.end();
    end_of_redis_clients(redis);
    (0..3).for_each(|index| cluster.stop(index));
}

fn restart_one_after_the_other(cluster: &mut Replicated) {
    cluster.wait_until_complete(0);
    let load = Load::start(cluster, "register");
    for index in 0..3 {
        cluster.stop(index);
        cluster.restart(index);
        cluster.wait_until_complete(index);
        load.wait_for_more("after a restart");
    }
    let aborts = load.end();
    assert!(
        aborts.get("error").is_none() && aborts.get("unknown").is_none(),
        "each transaction commits, or is aborted and can be run again: {aborts}"
    );
}

#[test]
fn servers_are_restarted_one_after_the_other_and_no_transaction_fails() {
    restart_one_after_the_other(&mut Replicated::start(None));
}

#[test]
fn servers_on_etcd_are_restarted_one_after_the_other_and_no_transaction_fails() {
    let etcd = EtcdServer::start();
    let mut cluster = Replicated::start(Some(&format!("etcd://{}", etcd.endpoint)));
    restart_one_after_the_other(&mut cluster);
}
