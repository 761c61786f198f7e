//! Logs on real files, and what is recorded of them.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use timestone_types::ShardId;
use timestone_wal::device::{FileName, FileRegistry};
use timestone_wal::record::PREFIX_BYTES;
use timestone_wal::{BatchNumber, DeviceKind, Log, LogConfig, LogEvent, WalError, check};

use super::{append, at, batch_of, durable, tiny};

/// Pumps a log on real files until everything is durable.
fn settle_waiting(log: &mut Log, events: &mut Vec<LogEvent>) {
    while !log.is_idle() {
        log.pump(at(1), events);
        log.wait(std::time::Duration::from_millis(5));
    }
}

fn read_to_the_end(directory: &Path, config: &LogConfig) -> Result<(), WalError> {
    let mut recovery = Log::open(directory, config.clone())?;
    while recovery.next_record()?.is_some() {}
    Ok(())
}

#[test]
fn real_files_rotate_are_reused_and_come_back_after_a_drop_without_shutdown() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("made/by/open");
    let config = LogConfig { device: DeviceKind::Ssd, ..tiny() };
    let mut next = 1;
    let mut first = 1;
    for round in 0..3_u64 {
        let mut recovery = Log::open(&directory, config.clone()).unwrap();
        let mut found = Vec::new();
        while let Some(record) = recovery.next_record().unwrap() {
            assert_eq!(record.bytes, &batch_of(1, record.batch.get(), 3000)[PREFIX_BYTES..]);
            found.push(record.batch.get());
        }
        assert!(
            found.iter().copied().eq(found.first().copied().unwrap_or(1)..next),
            "round {round}: {found:?}"
        );
        assert!(
            found.first().is_none_or(|&oldest| oldest <= first),
            "nothing that is needed is gone"
        );
        let mut log = recovery.finish(at(round)).unwrap();
        let mut events = Vec::new();
        for _ in 0..100 {
            append(&mut log, 1, next, &batch_of(1, next, 3000)).unwrap();
            settle_waiting(&mut log, &mut events);
            next += 1;
            first = next.saturating_sub(3);
            log.release(ShardId::new(1), BatchNumber::new(first));
        }
        assert_eq!(durable(&events).last(), Some(&(1, next - 1)));
        assert!(log.stats().rotations > 3 && log.stats().reclaimed > 1, "{:?}", log.stats());
    }
    std::fs::write(directory.join("00000000000000000099.log.new"), b"half").unwrap();
    std::fs::write(directory.join("README"), b"not ours").unwrap();
    let report = check(&directory, &[]).unwrap();
    assert!(report.is_sound(), "{report}");
    let mut log = Log::open(&directory, config).unwrap().finish(at(9)).unwrap();
    assert!(
        directory.join("README").exists()
            && !directory.join("00000000000000000099.log.new").exists()
    );
    append(&mut log, 1, next, &batch_of(1, next, 1)).unwrap();
    let mut events = Vec::new();
    log.shutdown(at(9), &mut events).unwrap();
    assert_eq!(durable(&events), [(1, next)]);
}

#[test]
fn a_directory_that_cannot_be_used_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, b"").unwrap();
    let config = LogConfig::default();
    let error = Log::open(&path, config).unwrap_err();
    assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    let error = check(&folder.path().join("missing"), &[]).unwrap_err();
    assert!(error.to_string().contains("missing"), "{error}");
}

/// Records files, and cannot tell whether that is durable.
#[derive(Debug, Default)]
struct Unsure {
    files: std::sync::Mutex<std::collections::BTreeSet<FileName>>,
    // Not even what is taken off again.
    always: bool,
}

impl FileRegistry for Unsure {
    fn created(&self, file: FileName) -> std::io::Result<()> {
        self.files.lock().unwrap().insert(file);
        Err(std::io::Error::other("perhaps"))
    }

    fn removing(&self, file: FileName) -> std::io::Result<()> {
        if self.always {
            return Err(std::io::Error::other("perhaps"));
        }
        self.files.lock().unwrap().remove(&file);
        Ok(())
    }
}

#[test]
fn a_new_file_that_may_have_been_recorded_does_not_go_before_it_is_not_any_more() {
    for always in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let registry = Arc::new(Unsure { always, ..Unsure::default() });
        let config = LogConfig {
            registry: Some(Arc::clone(&registry) as Arc<dyn FileRegistry>),
            device: DeviceKind::Ssd,
            ..tiny()
        };
        Log::open(folder.path(), config).unwrap().finish(at(1)).unwrap_err();
        let recorded = registry.files.lock().unwrap();
        assert!(
            recorded.iter().all(|file| folder.path().join(file.to_string()).exists()),
            "{recorded:?} must be there"
        );
        assert_eq!(recorded.len(), usize::from(always));
    }
}

/// Records nothing while that fails.
#[derive(Debug, Default)]
struct Failing(AtomicBool);

impl FileRegistry for Failing {
    fn created(&self, _: FileName) -> std::io::Result<()> {
        match self.0.load(Ordering::SeqCst) {
            true => Err(std::io::Error::other("no room")),
            false => Ok(()),
        }
    }

    fn removing(&self, file: FileName) -> std::io::Result<()> {
        self.created(file)
    }
}

/// What a start says of a log where a fresh file was there and could neither be recorded nor taken
/// off the record again, and all older files have gone since.
fn start_after_a_file_that_was_not_recorded() -> Result<(), WalError> {
    let folder = tempfile::tempdir().unwrap();
    let registry = Arc::new(Failing::default());
    let config = LogConfig {
        registry: Some(Arc::clone(&registry) as Arc<dyn FileRegistry>),
        device: DeviceKind::Ssd,
        ..tiny()
    };
    let mut log = Log::open(folder.path(), config.clone()).unwrap().finish(at(1)).unwrap();
    registry.0.store(true, Ordering::SeqCst);
    let mut events = Vec::new();
    let mut batch = 0;
    let mut append_next = |log: &mut Log| {
        batch += 1;
        append(log, 1, batch, &batch_of(1, batch, 3000)).unwrap();
        batch
    };
    let pump = |log: &mut Log, now: u64, events: &mut Vec<LogEvent>| {
        log.pump(at(now), events);
        log.wait(std::time::Duration::from_millis(5));
    };
    for _ in 0..10 {
        append_next(&mut log);
        settle_waiting(&mut log, &mut events);
    }
    while !events.iter().any(|event| matches!(event, LogEvent::Degraded(_))) {
        pump(&mut log, 1, &mut events);
    }
    while log.is_changing() {
        pump(&mut log, 1, &mut events);
    }
    registry.0.store(false, Ordering::SeqCst);
    // Later than what failed is tried again.
    let later = 3_000_000_000;
    while log.stats().rotations == 0 || !log.is_idle() {
        if log.is_idle() && log.shortage().is_none() {
            append_next(&mut log);
        }
        pump(&mut log, later, &mut events);
    }
    let last = append_next(&mut log);
    log.release(ShardId::new(1), BatchNumber::new(last));
    while !log.is_idle() || log.stats().reclaimed == 0 {
        pump(&mut log, later, &mut events);
    }
    drop(log);
    read_to_the_end(folder.path(), &config)
}

#[test]
fn a_fresh_file_that_could_not_be_recorded_goes_before_older_ones_do() {
    start_after_a_file_that_was_not_recorded().unwrap();
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_blank_file_that_stays_is_noticed() {
    use timestone_types::planted::{Bug, with};
    let start = with(Bug::KeepsBlankFile, start_after_a_file_that_was_not_recorded);
    assert!(
        matches!(start, Err(WalError::Corrupt { offset: 0, .. })),
        "the planted bug is found: {start:?}"
    );
}

#[test]
fn a_file_that_is_gone_is_damage_unless_its_loss_was_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path();
    let config = LogConfig { device: DeviceKind::Ssd, ..tiny() };
    let mut log = Log::open(directory, config.clone()).unwrap().finish(at(0)).unwrap();
    let mut events = Vec::new();
    for batch in 1..=100 {
        append(&mut log, 1, batch, &batch_of(1, batch, 3000)).unwrap();
        settle_waiting(&mut log, &mut events);
    }
    log.shutdown(at(1), &mut events).unwrap();
    let files: Vec<_> =
        check(directory, &[]).unwrap().files.iter().map(|file| file.file.name).collect();
    assert!(files.len() > 3, "{files:?}");
    let gone = files[1];
    std::fs::remove_file(directory.join(gone.to_string())).unwrap();
    let report = check(directory, &[]).unwrap();
    assert!(!report.is_sound() && report.to_string().contains("DAMAGED"), "{report}");
    // As recovery does, it goes on behind a loss that was accepted, and says what is missing.
    let report = check(directory, &[gone]).unwrap();
    assert!(report.is_sound(), "{report}");
    assert_eq!(report.accepted, [gone]);
    let text = report.to_string();
    assert!(
        text.contains(&format!("LOST, and that was accepted: {gone}"))
            && text.contains("sound, but for"),
        "{text}"
    );
    let config = LogConfig { lost: vec![gone], ..config };
    read_to_the_end(directory, &config).unwrap();
    // The loss of another one was not.
    assert!(!check(directory, &[files[2]]).unwrap().is_sound());
    // Nor does it stand for damage in what is there: before it, and at the beginning of the file
    // behind it, which is known by the blocks that follow there.
    for (file, byte, offset) in [(files[0], 4096 + 100, 4096), (files[2], 20, 0)] {
        let path = directory.join(file.to_string());
        let whole = std::fs::read(&path).unwrap();
        let mut damaged = whole.clone();
        damaged[byte] ^= 1;
        std::fs::write(&path, damaged).unwrap();
        let report = check(directory, &[gone]).unwrap();
        let found: Vec<_> =
            report.findings.iter().map(|finding| (finding.file, finding.offset)).collect();
        assert_eq!(found, [(file, offset)], "{report}");
        let error = read_to_the_end(directory, &config).unwrap_err();
        assert!(
            matches!(&error, WalError::Corrupt { file: named, .. } if *named == file),
            "{error}"
        );
        std::fs::write(&path, whole).unwrap();
    }
    read_to_the_end(directory, &config).unwrap();
}
