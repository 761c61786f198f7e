//! Three processes that keep three copies of each shard, under load, while one after the other is
//! killed, falls silent or is restarted: what the clients saw is judged by its history.

use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::Value;

use crate::etcd::EtcdServer;
use crate::history::{judge, read_strictly};
use crate::replicated::{Replicated, TIMEOUT, shards};
use crate::server::{Node, binary, eventually};

/// So many transactions more show that the cluster serves again: sessions have one each, so most
/// of these began after whatever was waited for before.
const MORE: usize = 60;
const SESSIONS: &str = "8";

/// `timestone bench`, which runs until it is ended.
struct Load {
    run: Node,
    workload: &'static str,
    history: PathBuf,
}

impl Load {
    /// Knows all servers from the start.
    fn start(cluster: &Replicated, workload: &'static str) -> Self {
        let history = cluster.folder.path().join(format!("{workload}.edn"));
        let hosts: Vec<String> =
            cluster.places.iter().map(|place| place.native.to_string()).collect();
        let mut command = binary();
        command.args(["bench", workload, "-o", "json", "--warmup", "0s"]);
        command.args(["--duration", "1h", "--clients", SESSIONS]);
        command.args(["--address", &format!("timestone://{}", hosts.join(","))]);
        command.arg("--history").arg(&history);
        let run = Node::writing(command, &history, 1);
        let load = Self { run, workload, history };
        load.wait_for_more("at the start");
        load
    }

    /// How many transactions the history tells to have committed.
    fn committed(&self) -> usize {
        let text = std::fs::read(&self.history).expect("the history is there");
        String::from_utf8_lossy(&text).matches(":type :ok").count()
    }

    fn wait_for_more(&self, when: &str) {
        let before = self.committed();
        eventually(&format!("transactions commit {when}"), TIMEOUT, || {
            let more = self.committed() - before;
            if more >= MORE { Ok(()) } else { Err(format!("{more}, and:\n{}", self.run.text())) }
        });
    }

    /// Ends it, and judges what it wrote down: why its attempts ended without a commit.
    fn end(self) -> Value {
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

/// Copies serve for a server that is silent or dead, and it follows again when it is `back`.
fn is_replaced(
    cluster: &mut Replicated,
    lost: usize,
    load: &Load,
    back: impl FnOnce(&mut Replicated),
) {
    let asked = (lost + 1) % cluster.places.len();
    cluster.wait_until_moved(lost, asked);
    load.wait_for_more("while a server is lost");
    back(cluster);
    cluster.wait_until_complete(asked);
    load.wait_for_more("when it is back");
}

/// The server of the controller is the first one that is killed.
#[test]
fn a_history_on_etcd_is_right_while_servers_are_killed_and_fall_silent() {
    let etcd = EtcdServer::start();
    let mut cluster = Replicated::start(Some(&format!("etcd://{}", etcd.endpoint)));
    let status = cluster.wait_until_complete(0);
    let controller = cluster.place_of(&status["controller"]["server"], &status);
    let load = Load::start(&cluster, "list-append");
    for lost in (controller..controller + 3).map(|index| index % 3) {
        cluster.kill(lost);
        is_replaced(&mut cluster, lost, &load, |cluster| cluster.restart(lost));
    }

    // One that does not know that others serve its shards wakes up as their primary.
    let status = cluster.wait_until_complete(0);
    let primary = shards(&status).next().expect("a shard")["primary"].clone();
    let silent = cluster.place_of(&primary, &status);
    cluster.signal(silent, Signal::STOP);
    is_replaced(&mut cluster, silent, &load, |cluster| cluster.signal(silent, Signal::CONT));
    load.end();
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
