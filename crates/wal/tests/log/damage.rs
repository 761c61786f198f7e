//! Damage: a tail that a crash tore is none; everything else is found, named, and changes nothing.

use timestone_wal::block::{BlockHeader, ENTRY_BYTES, HeaderAt};
use timestone_wal::device::FileName;
use timestone_wal::device::memory::MemoryDisk;
use timestone_wal::record::{FIRST_OTHER_KIND, PREFIX_BYTES};
use timestone_wal::{Log, LogConfig, LogRecord, WalError, check_device};

use super::{Batch, append, at, batch_of, open, read_all, settle, tiny, written};

#[test]
fn a_tail_torn_at_any_byte_loses_only_the_unacknowledged_group() {
    let config = tiny();
    let disk = MemoryDisk::new();
    let mut log = open(&disk, &config, 1);
    let all: Vec<Batch> = (1..=3).map(|batch| ((1, batch), batch_of(1, batch, 100))).collect();
    for (name, content) in &all {
        append(&mut log, name.0, name.1, content).unwrap();
        settle(&mut log, 1);
    }
    let file = disk.files()[0];
    disk.hold(true);
    let mut events = Vec::new();
    // A group of two blocks: 8192 and 4096 bytes on disk.
    append(&mut log, 1, 4, &batch_of(1, 4, 7000)).unwrap();
    append(&mut log, 1, 5, &batch_of(1, 5, 3000)).unwrap();
    log.pump(at(1), &mut events);
    let length = disk.writing_bytes();
    assert_eq!(length, 8192 + 4096);
    let old = disk.content(file);
    disk.hold(false);
    settle(&mut log, 1);
    let new = disk.content(file);
    let start = (0..old.len()).find(|&at| old[at] != new[at]).unwrap() / 4096 * 4096;
    for cut in 0..=length {
        let torn = disk.copy();
        let mut content = old.clone();
        content[start..start + cut].copy_from_slice(&new[start..start + cut]);
        torn.set_content(file, content);
        let (found, report) = read_all(&torn, &config).unwrap();
        assert!(
            found.len() >= 3 && found[..3] == all[..],
            "{cut} bytes: acknowledged batches come back"
        );
        // What did not arrive may have been zero anyway.
        let arrived = |end: usize| {
            cut >= end || new[start + cut..start + end] == old[start + cut..start + end]
        };
        // The second block ends with the rest of batch 5: 3005 bytes, of which some fit the first
        // one behind batch 4.
        let fits = 8192 - 48 - 2 * ENTRY_BYTES - 7005;
        let rest = 48 + ENTRY_BYTES + 3005 - fits;
        let whole = 3 + usize::from(arrived(8192)) + usize::from(arrived(8192 + rest));
        assert_eq!(found.len(), whole, "{cut} bytes");
        assert!(found[3..].iter().all(|((_, batch), bytes)| *bytes
            == batch_of(1, *batch, if *batch == 4 { 7000 } else { 3000 })));
        assert_eq!(report.incomplete_batches, u64::from(found.len() == 4));
    }
}

/// Blocks that arrive without the one before them, all of one group, are a crash and no damage.
#[test]
fn a_group_that_lost_its_first_block_is_no_damage_but_an_acknowledged_block_is() {
    let config = tiny();
    let disk = MemoryDisk::new();
    let mut log = open(&disk, &config, 1);
    append(&mut log, 1, 1, &batch_of(1, 1, 20_000)).unwrap();
    settle(&mut log, 1);
    let file = disk.files()[0];
    let mut content = disk.content(file);
    content[0..4096].fill(0);
    disk.set_content(file, content.clone());
    assert_eq!(read_all(&disk, &config).unwrap().0, []);
    // The same loss, with a later group behind it.
    append(&mut log, 1, 2, &batch_of(1, 2, 10)).unwrap();
    settle(&mut log, 1);
    let error = read_all(&disk, &config).unwrap_err();
    assert!(matches!(error, WalError::Corrupt { offset: 0, .. }), "{error}");
    assert!(error.to_string().contains(&file.to_string()), "{error}");
}

#[test]
fn any_flipped_bit_is_detected_or_harmless() {
    let config = tiny();
    let (disk, log, all) = blocks_of_all_lengths(12);
    let files = disk.files();
    assert!(log.stats().rotations >= 1);
    let (mut detected, mut lost_last, mut harmless) = (0, 0, 0);
    let (mut covered, mut padding) = (0, 0);
    for &file in &files {
        let content = disk.content(file);
        let used = content.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        let mut offset = 0;
        while let HeaderAt::Header(header) = BlockHeader::read(&content[offset..]) {
            let end = offset + 48 + header.length as usize;
            covered += end.min(used) - offset;
            offset += header.padded_bytes();
            padding += used.min(offset).saturating_sub(end);
        }
        let flipped = disk.copy();
        for byte in 0..used {
            let mut damaged = content.clone();
            damaged[byte] ^= 1 << (byte % 8);
            flipped.set_content(file, damaged);
            match read_all(&flipped, &config) {
                Ok((found, _)) if found == all => harmless += 1,
                Ok((found, _)) => {
                    assert_eq!(
                        found,
                        all[..all.len() - 1],
                        "byte {byte} of {file}: only the last group may look torn"
                    );
                    lost_last += 1;
                }
                Err(WalError::Corrupt { file: named, .. }) => {
                    assert_eq!(named, file, "the error names the damaged file");
                    detected += 1;
                }
                Err(error) => panic!("byte {byte} of {file}: {error}"),
            }
        }
        flipped.set_content(file, content);
    }
    // Everything in front of padding is covered by a CRC; the last batch takes two blocks.
    assert_eq!((detected + lost_last, harmless), (covered, padding));
    assert_eq!(lost_last, 2 * 48 + 2 * ENTRY_BYTES + PREFIX_BYTES + 1 + 15_000);
}

#[test]
fn damage_in_the_middle_is_refused_changes_nothing_and_is_explained() {
    let config = tiny();
    let (disk, _) = written(&config, 40, 5000);
    let files = disk.files();
    let file = files[1];
    let mut content = disk.content(file);
    content[8192 + 100] ^= 1;
    disk.set_content(file, content);
    let images: Vec<_> = files.iter().map(|&file| disk.content(file)).collect();
    let error = Log::open_on(disk.device(), config).unwrap().finish(at(9)).unwrap_err();
    let WalError::Corrupt { file: named, offset, .. } = &error else { panic!("{error}") };
    assert_eq!((*named, *offset), (file, 8192));
    assert_eq!(disk.files(), files);
    assert!(
        files.iter().zip(images).all(|(&file, image)| disk.content(file) == image),
        "nothing was changed"
    );
    let report = check_device(disk.device(), &[]).unwrap();
    assert_eq!(report.findings.len(), 1);
    assert_eq!((report.findings[0].file, report.findings[0].offset), (file, 8192));
    assert_eq!(
        report.files.iter().map(|file| file.batches).sum::<u64>(),
        39,
        "all other batches are readable"
    );
    let text = report.to_string();
    assert!(
        text.contains("DAMAGED")
            && text.contains("offset 8192")
            && text.contains("shard 1: batches"),
        "{text}"
    );
}

#[test]
fn a_missing_file_in_the_middle_and_a_cut_file_are_damage() {
    let config = tiny();
    let (disk, _) = written(&config, 40, 5000);
    let files = disk.files();
    assert!(files.len() >= 3);
    let missing = disk.copy();
    missing.delete(files[1]);
    let error = read_all(&missing, &config).unwrap_err();
    assert!(matches!(&error, WalError::Corrupt { file, .. } if *file == files[0]), "{error}");
    let cut = disk.copy();
    cut.set_content(files[1], disk.content(files[1])[..8192 * 2].to_vec());
    let error = read_all(&cut, &config).unwrap_err();
    assert!(
        matches!(&error, WalError::Corrupt { file, offset: 16_384, .. } if *file == files[1]),
        "{error}"
    );
    let headless = disk.copy();
    let mut content = disk.content(files[0]);
    content[..48].fill(0xff);
    headless.set_content(files[0], content);
    let error = read_all(&headless, &config).unwrap_err();
    assert!(
        matches!(&error, WalError::Corrupt { file, offset: 0, .. } if *file == files[0]),
        "{error}"
    );
}

/// A log whose last file was lost, as somebody accepted, and which went on in another one: that one,
/// the one before it, and how many batches can be read.
fn went_on_behind_a_loss() -> (MemoryDisk, LogConfig, FileName, usize) {
    let (disk, all) = written(&tiny(), 40, 5000);
    let used: Vec<FileName> = check_device(disk.device(), &[])
        .unwrap()
        .files
        .iter()
        .filter(|file| file.blocks > 0)
        .map(|file| file.file.name)
        .collect();
    let [.., before, gone] = used[..] else { panic!("too few files: {used:?}") };
    disk.delete(gone);
    let config = LogConfig { lost: vec![gone], ..tiny() };
    let mut log = open(&disk, &config, 1000);
    let batch = all.len() as u64 + 1;
    append(&mut log, 1, batch, &batch_of(1, batch, 10)).unwrap();
    settle(&mut log, 1000);
    drop(log);
    let left = read_all(&disk, &config).unwrap().0.len();
    (disk, config, before, left)
}

/// What reading a log says where the second block of the file before a lost one is damaged, and how
/// many batches can be read without that damage.
fn damaged_before_a_lost_file() -> (FileName, Result<usize, WalError>, usize) {
    let (disk, config, before, left) = went_on_behind_a_loss();
    let mut content = disk.content(before);
    content[8192 + 100] ^= 1;
    disk.set_content(before, content);
    (before, read_all(&disk, &config).map(|(found, _)| found.len()), left)
}

#[test]
fn an_accepted_loss_does_not_hide_damage_in_the_file_before_it() {
    let (before, read, _) = damaged_before_a_lost_file();
    let error = read.unwrap_err();
    assert!(
        matches!(&error, WalError::Corrupt { file, offset: 8192, .. } if *file == before),
        "{error}"
    );
    // What stood last in that file, only the one that is gone could tell.
    let (disk, config, before, left) = went_on_behind_a_loss();
    let mut content = disk.content(before);
    let last = (0..content.len())
        .step_by(4096)
        .rfind(|&at| matches!(BlockHeader::read(&content[at..]), HeaderAt::Header(header) if header.file == before))
        .unwrap();
    content[last] ^= 1;
    disk.set_content(before, content);
    assert_eq!(read_all(&disk, &config).unwrap().0.len(), left - 1);
}

#[cfg(feature = "planted-bugs")]
#[test]
fn damage_that_an_accepted_loss_hides_is_noticed() {
    use timestone_types::planted::{Bug, with};
    let (_, read, left) = with(Bug::LossHidesDamage, damaged_before_a_lost_file);
    assert!(read.is_ok_and(|found| found < left), "the planted bug is found");
}

/// A sector that would be another version's block, were it at the start of a file.
fn of_another_version(mut sector: Vec<u8>) -> Vec<u8> {
    sector[4] = 9;
    let crc = crc32c::crc32c(&sector[..44]);
    sector[44..48].copy_from_slice(&crc.to_le_bytes());
    sector
}

/// A file that is reused keeps the bytes of its earlier use, and among them those of clients.
#[test]
fn what_a_client_wrote_behind_the_last_block_is_not_another_format_version() {
    let config = tiny();
    let (disk, all) = written(&config, 3, 1000);
    let file = disk.files()[0];
    let mut content = disk.content(file);
    let forged = of_another_version(content[..4096].to_vec());
    let end = all.len() * 4096;
    assert_eq!(BlockHeader::read(&content[end..]), HeaderAt::Nothing, "the log ends here");
    content[end..end + 4096].copy_from_slice(&forged);
    disk.set_content(file, content);
    assert_eq!(read_all(&disk, &config).unwrap().0, all);
    assert!(check_device(disk.device(), &[]).unwrap().is_sound());
}

#[test]
fn files_of_another_format_version_are_refused_as_such() {
    let config = tiny();
    let (disk, _) = written(&config, 1, 10);
    let file = disk.files()[0];
    disk.set_content(file, of_another_version(disk.content(file)));
    let error = read_all(&disk, &config).unwrap_err();
    assert!(matches!(error, WalError::Version { found: 9, supported: 2, .. }), "{error}");
}

#[test]
fn log_files_kept_as_values_are_not_taken_for_blocks() {
    let config = tiny();
    let (disk, mut all) = written(&config, 2, 3000);
    let image = disk.content(disk.files()[0]);
    let mut log = open(&disk, &config, 5);
    let mut content = Vec::new();
    // Placed so that sectors of the copy fall on sectors of the file: entry and record headers come
    // before it.
    let shift = 4096 - 48 - ENTRY_BYTES - PREFIX_BYTES - 1;
    let value: Vec<u8> = vec![7; shift].into_iter().chain(image[..8192].iter().copied()).collect();
    LogRecord::Other { kind: FIRST_OTHER_KIND, bytes: &value }.encode(&mut content);
    append(&mut log, 1, 3, &content).unwrap();
    all.push(((1, 3), content));
    settle(&mut log, 5);
    // Behind it there may be a spare.
    let file = disk.files()[1];
    let inside = disk.content(file);
    assert!(
        matches!(BlockHeader::read(&inside[4096..]), HeaderAt::Header(_)),
        "the copy stands where a block could"
    );
    assert_eq!(read_all(&disk, &config).unwrap().0, all);
}

/// A log of so many batches whose blocks are of one sector and of several, and all its batches.
fn blocks_of_all_lengths(batches: u64) -> (MemoryDisk, Log, Vec<Batch>) {
    let disk = MemoryDisk::new();
    let mut log = open(&disk, &tiny(), 1);
    let mut all = Vec::new();
    for batch in 1..=batches {
        let content = batch_of(1, batch, if batch % 4 == 0 { 15_000 } else { 700 });
        append(&mut log, 1, batch, &content).unwrap();
        all.push(((1, batch), content));
        settle(&mut log, 1);
    }
    (disk, log, all)
}

/// Where in a file its blocks lie: each begins at one of these offsets, and the last one ends at the last.
fn block_bounds(content: &[u8], file: FileName) -> Vec<usize> {
    let mut bounds = vec![0];
    while let HeaderAt::Header(header) = BlockHeader::read(&content[bounds[bounds.len() - 1]..])
        && header.file == file
    {
        bounds.push(bounds[bounds.len() - 1] + header.padded_bytes());
    }
    bounds
}

/// Reads a log of which each sector in turn is not read. True when each acknowledged batch is found, or the
/// place is told where it may be.
fn nothing_is_lost_in_a_sector() -> bool {
    let (disk, _, all) = blocks_of_all_lengths(24);
    assert!(disk.files().len() >= 3);
    let (mut refused, mut unused) = (0, 0);
    for file in disk.files() {
        let content = disk.content(file);
        let bounds = block_bounds(&content, file);
        let (end, is_spare) = (bounds[bounds.len() - 1], bounds.len() == 1);
        for sector in (0..content.len()).step_by(4096) {
            disk.set_unread(file, [sector as u64]);
            let found = read_all(&disk, &tiny());
            // The report of a check has it as well.
            let report = check_device(disk.device(), &[]).unwrap();
            match found {
                Ok((found, _)) if found == all => {
                    assert!(report.findings.is_empty(), "{report}");
                    unused += 1;
                }
                Ok(_) => return false,
                Err(WalError::Corrupt { file: named, offset, .. }) => {
                    let begin = bounds.iter().rfind(|&&bound| bound <= sector).unwrap();
                    assert_eq!((named, offset), (file, *begin as u64), "{sector}");
                    assert!(sector <= end && (report.findings.len() == 1), "{sector}: {report}");
                    refused += 1;
                }
                Err(error) => panic!("{file} {sector}: {error}"),
            }
            assert!(sector >= end || refused > 0 || is_spare, "{sector} of {file} is used");
        }
        disk.set_unread(file, []);
    }
    assert!(refused > 24 && unused > 16, "{refused} {unused}");
    true
}

#[test]
fn a_sector_that_is_not_read_hides_no_acknowledged_batch_and_stops_nothing_elsewhere() {
    assert!(nothing_is_lost_in_a_sector());
}

#[test]
fn a_sector_that_is_not_read_before_a_lost_file_is_damage() {
    let (disk, config, before, left) = went_on_behind_a_loss();
    let content = disk.content(before);
    let bounds = block_bounds(&content, before);
    let last = bounds[bounds.len() - 2] as u64;
    disk.set_unread(before, [last]);
    let error = read_all(&disk, &config).unwrap_err();
    assert!(matches!(&error, WalError::Corrupt { offset, .. } if *offset == last), "{error}");
    disk.set_unread(before, []);
    assert_eq!(read_all(&disk, &config).unwrap().0.len(), left);
}

/// A file that holds one block, which was acknowledged, stands before one that was lost, as somebody accepted.
#[test]
fn a_file_that_begins_with_such_a_sector_is_not_passed_over_for_an_accepted_loss() {
    let (disk, mut all) = written(&tiny(), 10, 5000);
    // Each start makes a file of its own.
    let [one, gone, last] = [11, 12, 13].map(|batch| {
        let mut log = open(&disk, &tiny(), 1000 * batch);
        append(&mut log, 1, batch, &batch_of(1, batch, 10)).unwrap();
        settle(&mut log, 1000 * batch);
        all.push(((1, batch), batch_of(1, batch, 10)));
        let report = check_device(disk.device(), &[]).unwrap();
        report.files.iter().rfind(|file| file.blocks > 0).unwrap().file.name
    });
    assert!(one < gone && gone < last);
    disk.delete(gone);
    let config = LogConfig { lost: vec![gone], ..tiny() };
    let left = read_all(&disk, &config).unwrap().0.len();
    assert_eq!(left, all.len() - 1);
    disk.set_unread(one, [0]);
    let error = read_all(&disk, &config).unwrap_err();
    assert!(matches!(&error, WalError::Corrupt { file, offset: 0, .. } if *file == one), "{error}");
}

/// What stands behind a file without a block is no block's place.
#[test]
fn a_sector_of_a_spare_behind_another_one_stops_nothing() {
    let (disk, all) = written(&tiny(), 10, 5000);
    let &[.., used] = &disk.files()[..] else { panic!("there are files") };
    let [spare, last] = [1, 2].map(|n| FileName::new(at(used.created().as_nanos() + n)));
    [spare, last].into_iter().for_each(|name| disk.set_content(name, vec![0; 65_536]));
    disk.set_unread(last, [0]);
    assert_eq!(read_all(&disk, &tiny()).unwrap().0, all);
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_log_that_ends_where_the_disk_does_not_read_is_found() {
    use timestone_types::planted::{Bug, with};
    assert!(!with(Bug::EndsAtUnread, nothing_is_lost_in_a_sector));
}
