//! A log file that is gone from among others: missed, and passed over once its loss is accepted.

use std::fs;
use std::path::{Path, PathBuf};

use timestone_server::{AcceptedLoss, ServerConfig, ServerError};

use crate::bits::small;
use crate::running::{Running, staged};

fn key(number: u32) -> Vec<u8> {
    format!("key {number:05}").into_bytes()
}

fn log_files(data: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(data.join("wal/thread-0")).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn a_log_file_that_is_gone_from_the_middle_is_missed_and_passed_over_once_accepted() {
    if staged() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let config = ServerConfig { shards: Some(1), ..small(&data) };
    let running = Running::start(&config);
    let mut written = 0;
    // Faster than the shard lets go of files: at least four hold batches at once.
    while log_files(&data).len() < 5 {
        assert!(written < 20_000, "the log makes no further files");
        running.inside.put(&key(written), &[b'v'; 3000]).unwrap();
        written += 1;
    }
    drop(running);
    let files = log_files(&data);
    let lost = &files[files.len() - 3];
    let name = lost.file_name().unwrap().to_string_lossy().into_owned();
    fs::remove_file(lost).unwrap();

    let Err(error) = Running::try_start(&config) else { panic!("it started without {name}") };
    assert!(matches!(&error, ServerError::Missing { names, .. } if names.contains(&name)), "{error}");

    let accepting = ServerConfig { accept_loss: AcceptedLoss::Everything, ..config.clone() };
    let running = Running::start(&accepting);
    let count = |running: &Running| (0..written).filter(|&n| running.inside.get(&key(n)).unwrap().is_some()).count();
    let left = count(&running);
    assert!(running.inside.get(&key(written - 1)).unwrap().is_some(), "what follows the gap is there");
    drop(running);
    // The files on both sides of the gap are still there: it is remembered.
    let running = Running::start(&config);
    assert_eq!(count(&running), left);
    running.server.shutdown().unwrap();
}
