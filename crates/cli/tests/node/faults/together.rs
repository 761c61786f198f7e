//! One cluster that everything befalls: clocks that are apart and jump, links that are late and break
//! all the time, and one loss after the other, in an order that is drawn.

use std::time::Duration;

use rustix::process::Signal;

use crate::faults::clocks::SHIFTS;
use crate::faults::copies::{bring_back_older, lose_disk};
use crate::faults::links::Party;
use crate::faults::{NAMES, Trial, others};

/// What happens to a primary, or to etcd, while nothing else is lost.
#[derive(Clone, Copy, Debug)]
enum Loss {
    /// With clients in the middle of their transactions.
    KilledWithClients,
    /// Longer than the detection and its lease; then it goes on as if nothing had been.
    Silent,
    /// From the other servers and from etcd; clients reach it.
    CutOff,
    /// Its log and flash files.
    Disk,
    OlderCopy,
    /// Etcd answers nobody, and a primary is killed when it does again.
    SilentEtcd,
    /// Etcd goes on from a backup of the beginning.
    OlderEtcd,
}

const LOSSES: [Loss; 7] = [
    Loss::KilledWithClients,
    Loss::Silent,
    Loss::CutOff,
    Loss::Disk,
    Loss::OlderCopy,
    Loss::SilentEtcd,
    Loss::OlderEtcd,
];

/// Every chunk takes up to so long, and one of a thousand ends its connection.
fn disturb(trial: &Trial) {
    let servers = (0..NAMES.len()).map(Party::Server);
    let everybody: Vec<Party> = servers.chain([Party::Client]).collect();
    trial.links.disturb(&everybody, Duration::from_millis(8), 1);
}

fn lose(trial: &mut Trial, loss: Loss) {
    let lost = trial.a_primary(0);
    let [asked, _] = others(lost);
    match loss {
        Loss::KilledWithClients => {
            let clients = trial.bench("register", "register");
            trial.cluster.kill(lost);
            clients.kill();
            trial.cluster.wait_until_moved(lost, asked);
            trial.is_served("while a server is lost");
            trial.cluster.restart(lost);
        }
        Loss::Silent => {
            trial.cluster.signal(lost, Signal::STOP);
            trial.cluster.wait_until_moved(lost, asked);
            trial.is_served("while a server is silent");
            trial.cluster.signal(lost, Signal::CONT);
        }
        Loss::CutOff => {
            for other in others(lost) {
                trial.links.stall(Party::Server(lost), Party::Server(other));
                trial.links.stall(Party::Server(other), Party::Server(lost));
            }
            trial.links.cut(Party::Server(lost), Party::Etcd);
            trial.cluster.wait_until_moved(lost, asked);
            trial.is_served("while a server is cut off");
            trial.links.heal();
            disturb(trial);
        }
        Loss::Disk => lose_disk(trial, lost, asked),
        Loss::OlderCopy => bring_back_older(trial, lost, asked),
        Loss::SilentEtcd => {
            trial.etcd.freeze();
            trial.pause(2000, 4000);
            trial.is_served("while etcd is silent");
            trial.etcd.wake();
            trial.loses(lost, asked, "when etcd is back");
            trial.cluster.restart(lost);
        }
        Loss::OlderEtcd => {
            trial.etcd.restore();
            trial.is_served("after the restore");
            trial.loses(lost, asked, "as etcd has learned anew");
            trial.cluster.restart(lost);
        }
    }
    trial.tell(&format!("{loss:?} is over"));
}

#[test]
fn histories_are_right_in_a_cluster_that_everything_befalls() {
    let mut trial = Trial::start_as("together", |index, place| {
        place.with("--clock-shift", SHIFTS[index]).with("--replace-after", "2s")
    });
    trial.etcd.back_up();
    disturb(&trial);
    let mut losses = LOSSES.to_vec();
    while !losses.is_empty() {
        let drawn = trial.random.below(losses.len() as u64) as usize;
        let loss = losses.swap_remove(drawn);
        lose(&mut trial, loss);
    }
    trial.end();
}
