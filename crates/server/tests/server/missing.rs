//! A log file that is gone from among others: missed, and passed over once its loss is accepted.
//! And what is there that should not be.

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
    assert!(
        matches!(&error, ServerError::Missing { names, .. } if names.contains(&name)),
        "{error}"
    );

    let accepting = ServerConfig { accept_loss: AcceptedLoss::Everything, ..config.clone() };
    let running = Running::start(&accepting);
    let count = |running: &Running| {
        (0..written).filter(|&n| running.inside.get(&key(n)).unwrap().is_some()).count()
    };
    let left = count(&running);
    assert!(
        running.inside.get(&key(written - 1)).unwrap().is_some(),
        "what follows the gap is there"
    );
    drop(running);
    // The files on both sides of the gap are still there: it is remembered.
    let running = Running::start(&config);
    assert_eq!(count(&running), left);
    running.server.shutdown().unwrap();
}

#[test]
fn a_copy_of_a_log_is_refused_by_name_until_it_is_moved_away() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let config = ServerConfig { shards: Some(1), ..small(&data) };
    let running = Running::start(&config);
    running.inside.put(&key(1), b"value").unwrap();
    drop(running);
    // Another name, also one that a server with more threads would use.
    for name in ["thread-0.bak", "thread-1"] {
        let copy = data.join("wal").join(name);
        fs::create_dir(&copy).unwrap();
        for file in log_files(&data) {
            fs::copy(&file, copy.join(file.file_name().unwrap())).unwrap();
        }
        let Err(error) = Running::try_start(&config) else { panic!("it started with {name}") };
        assert!(matches!(&error, ServerError::UnlistedLog { log, .. } if log == name), "{error}");
        fs::rename(&copy, folder.path().join(name)).unwrap();
        let running = Running::start(&config);
        assert!(running.inside.get(&key(1)).unwrap().is_some());
        drop(running);
    }
}

#[test]
fn a_stray_file_in_the_folder_of_an_empty_log_keeps_nobody_from_starting() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let config = ServerConfig { shards: Some(1), ..small(&data) };
    Running::start(&config).server.shutdown().unwrap();
    let stray = data.join("wal/thread-7/notes.txt");
    fs::create_dir(stray.parent().unwrap()).unwrap();
    fs::write(&stray, "remember").unwrap();
    for _ in 0..2 {
        Running::start(&config).server.shutdown().unwrap();
        assert!(stray.exists());
    }
}
