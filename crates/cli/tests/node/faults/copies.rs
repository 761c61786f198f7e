//! Copies that lose their disks, come back with an older state, or lag until they have to be made
//! anew, while clients write.

use std::fs;

use rustix::process::Signal;

use crate::faults::{Trial, others};
use crate::peer::Peer;
use crate::replicated::{TIMEOUT, copy};
use crate::server::eventually;

/// More than a primary keeps for backups: 64 MiB of batches of one shard.
const WRITTEN: usize = 80 << 20;
/// Bytes of one write of it.
const PIECE: usize = 512 << 10;

/// The log and flash files of a server are lost, but not its data directory. It is refused until that
/// is accepted, and its copies are made anew.
pub(super) fn lose_disk(trial: &mut Trial, lost: usize, asked: usize) {
    trial.cluster.kill(lost);
    let data = trial.cluster.places[lost].data.clone();
    for entry in fs::read_dir(&data).expect("it is there").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name == "wal" || name.starts_with("shard-") {
            fs::remove_dir_all(entry.path()).expect("removed");
        }
    }
    trial.cluster.wait_until_moved(lost, asked);
    let (code, text) = trial.cluster.places[lost].refused();
    assert!(code == 1 && text.contains("--accept-loss"), "{code}: {text}");
    trial.cluster.restart_with(lost, "--accept-loss", "all");
    trial.cluster.wait_until_complete(asked);
}

/// A server comes back with a copy of its directory that lacks what it has acknowledged since. It is
/// refused until that is accepted, and its copies are made anew.
pub(super) fn bring_back_older(trial: &mut Trial, old: usize, asked: usize) {
    trial.cluster.stop(old);
    let data = trial.cluster.places[old].data.clone();
    let aside = trial.cluster.folder.path().join("aside");
    copy(&data, &aside);
    trial.cluster.restart(old);
    trial.cluster.wait_until_complete(asked);
    trial.is_served("after it was copied");
    trial.cluster.kill(old);
    fs::remove_dir_all(&data).expect("removed");
    copy(&aside, &data);
    trial.cluster.wait_until_moved(old, asked);
    let (code, text) = trial.cluster.places[old].refused();
    assert!(code == 1 && text.contains("is an older copy of itself"), "{code}: {text}");
    trial.cluster.restart_with(old, "--accept-loss", "all");
    trial.cluster.wait_until_complete(asked);
}

/// Then the directory of another one is lost as well. Copies that are made anew are as good as the
/// others.
#[test]
fn a_server_loses_its_disk_and_another_its_directory_under_load() {
    let mut trial = Trial::start_as("lost disks", |_, place| place.with("--replace-after", "2s"));
    let lost = trial.a_primary(0);
    let [asked, next] = others(lost);
    lose_disk(&mut trial, lost, asked);
    trial.is_served("when its copies are made anew");

    // It is needed now.
    trial.loses(next, asked, "by the copies that were made anew");
    fs::remove_dir_all(&trial.cluster.places[next].data).expect("removed");
    // As a server that was never there.
    trial.cluster.restart(next);
    trial.cluster.wait_until_complete(asked);
    trial.loses(asked, lost, "by two whose copies were made anew");
    trial.cluster.restart(asked);
    trial.end();
}

#[test]
fn an_older_copy_of_a_directory_comes_back_under_load() {
    let mut trial = Trial::start("older copy");
    let old = trial.a_primary(0);
    let [asked, next] = others(old);
    bring_back_older(&mut trial, old, asked);
    trial.loses(next, asked, "by copies of which one was made anew");
    trial.cluster.restart(next);
    trial.end();
}

/// A backup stands still while more is written than its primary keeps for it; another server is
/// lost when it is back.
#[test]
fn a_backup_that_lags_until_the_log_goes_on_without_it_comes_back_by_a_checkpoint() {
    let mut trial = Trial::start("lag");
    let primary = trial.a_primary(0);
    let [lagging, asked] = others(primary);
    let peer = Peer::connect(trial.cluster.places[primary].native);
    let address = trial.cluster.places[primary].reached_at();
    let mut of_primary = peer.map.shards().iter().map(|entry| entry.id);
    let shard = of_primary.find(|&id| peer.address_of(id) == address).expect("it is a primary");
    let keys: Vec<Vec<u8>> =
        (0..8).map(|stem| peer.key_of(shard, &format!("large-{stem}"))).collect();
    let value = vec![b'x'; PIECE];
    trial.cluster.signal(lagging, Signal::STOP);
    trial.cluster.wait_until_moved(lagging, asked);
    for piece in 0..WRITTEN / PIECE {
        let key = &keys[piece % keys.len()];
        eventually("a large write", TIMEOUT, || trial.db.put(key, &value).map(drop));
    }
    trial.is_served("without a backup");
    trial.cluster.signal(lagging, Signal::CONT);
    trial.cluster.wait_until_complete(asked);
    let text = trial.cluster.text(lagging);
    assert!(text.contains("has taken a checkpoint, and follows"), "{text}");
    trial.loses(primary, asked, "by a copy that was made anew");
    trial.cluster.restart(primary);
    trial.end();
}
