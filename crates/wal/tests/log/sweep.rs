//! Every moment of a workload in turn: the power goes at each operation, with every prefix of the
//! write under way, and again during the recovery from that; and every bit of a small log flips.
//!
//! `TIMESTONE_TEST_SWEEP=full cargo test -p timestone-wal --release sweep` tries finer prefixes and
//! larger logs.

use timestone_types::ShardId;
use timestone_wal::block::ENTRY_BYTES;
use timestone_wal::device::memory::{MemoryDisk, PowerCut};
use timestone_wal::limits::SECTOR_BYTES;
use timestone_wal::{BatchNumber, Log, LogConfig, WalError, check_device};

use super::model::Model;
use super::{Batch, append, at, batch_of, open, read_all, settle, tiny};
use crate::scores::{Score, keep, sweep_is_full as full};

/// What disks write at once.
const DISK_SECTOR: usize = 512;

/// One life of a log: opens, appends, releases, until it is through or the power goes.
fn live(disk: &MemoryDisk, config: &LogConfig, model: &mut Model, life: u64, steps: u64) {
    let mut log = match Log::open_on(disk.device(), config.clone()).unwrap().finish(at(life * 1000))
    {
        Ok(log) => log,
        Err(error) => return assert!(disk.interrupted_bytes().is_some(), "{error}"),
    };
    for (&shard, &released) in &model.released {
        log.release(ShardId::new(shard), BatchNumber::new(released));
    }
    for shard in 1..4 {
        let last =
            model.accepted.iter().filter(|batch| batch.0.0 == shard).map(|batch| batch.0.1).max();
        let next = last.unwrap_or(0).max(*model.released.get(&shard).unwrap_or(&0)) + 1;
        model.next.insert(shard, next);
    }
    let mut events = Vec::new();
    for step in 0..steps + 6 {
        if step < steps {
            let shard = 1 + (step % 3) as u16;
            model.append(&mut log, shard, [50, 9000, 900, 24_000][(step % 4) as usize]);
            if step % 5 == 4 {
                model.release(&mut log, shard);
            }
        }
        if step % 3 != 1 || step >= steps {
            log.pump(at(life * 1000 + step), &mut events);
            model.hear(&events);
            events.clear();
        }
        if disk.interrupted_bytes().is_some() {
            return;
        }
    }
}

/// Cuts the power of the life that follows `before` at every operation, in every way. `then` gets
/// each disk and its model as the cut left them. Gives the number of cuts.
fn every_cut(
    before: (&MemoryDisk, &Model),
    sector: usize,
    live: impl Fn(&MemoryDisk, &mut Model),
    mut then: impl FnMut(&MemoryDisk, &Model),
) -> u64 {
    let mut cuts = 0;
    for operation in 1.. {
        for changed in [false, true] {
            for keep_bytes in (0..).step_by(sector) {
                let (disk, mut model) = (before.0.copy(), before.1.clone());
                // The workload's own device is the first of the copy: the order is for its life.
                disk.cut_power_at(PowerCut { operation, keep_bytes, changed });
                live(&disk, &mut model);
                let Some(interrupted) = disk.interrupted_bytes() else { return cuts };
                cuts += 1;
                then(&disk, &model);
                if keep_bytes >= interrupted {
                    break;
                }
            }
        }
    }
    unreachable!("a workload has an end")
}

/// Everything acknowledged is there, nothing came from nowhere, and the log is sound. The model
/// goes on from what was found.
fn recovered(disk: &MemoryDisk, config: &LogConfig, model: &Model) -> Model {
    let mut model = model.clone();
    model.compare(read_all(disk, config).expect("a crash is no damage").0);
    assert!(check_device(disk.device(), &[]).unwrap().is_sound());
    model
}

fn keep_cuts(name: &str, cuts: u64) {
    keep(
        "crash points",
        &[
            ("of", Score::Name("`wal`: the log")),
            (name, Score::Count(cuts)),
            ("full", Score::Count(full().into())),
        ],
    );
}

#[test]
fn sweep_a_power_cut_at_every_operation_with_every_prefix() {
    let config = tiny();
    let (disk, model) = (MemoryDisk::new(), Model::default());
    let steps = if full() { 120 } else { 45 };
    let cuts = every_cut(
        (&disk, &model),
        if full() { DISK_SECTOR } else { SECTOR_BYTES / 2 },
        |disk, model| live(disk, &config, model, 1, steps),
        |disk, model| {
            let mut model = recovered(disk, &config, model);
            // The log goes on from there, and what it adds is there as well.
            live(disk, &config, &mut model, 2, 6);
            let acknowledged = model.acknowledged;
            assert_eq!(
                recovered(disk, &config, &model).accepted.len().max(acknowledged),
                model.accepted.len()
            );
        },
    );
    assert!(cuts > 400, "{cuts} cuts");
    keep_cuts("cuts", cuts);
}

#[test]
fn sweep_a_second_power_cut_at_every_operation_of_the_recovery() {
    let config = tiny();
    let (disk, model) = (MemoryDisk::new(), Model::default());
    let (steps, sector) = if full() { (60, DISK_SECTOR) } else { (24, SECTOR_BYTES) };
    let mut second_cuts = 0;
    every_cut(
        (&disk, &model),
        sector,
        |disk, model| live(disk, &config, model, 1, steps),
        |disk, model| {
            let model = recovered(disk, &config, model);
            second_cuts += every_cut(
                (disk, &model),
                SECTOR_BYTES,
                |disk, model| live(disk, &config, model, 2, 3),
                |disk, model| {
                    let mut model = recovered(disk, &config, model);
                    live(disk, &config, &mut model, 3, 2);
                    recovered(disk, &config, &model);
                },
            );
        },
    );
    assert!(second_cuts > 1000, "{second_cuts} cuts");
    keep_cuts("recovery_cuts", second_cuts);
}

#[test]
fn sweep_every_bit_of_a_small_log() {
    let config = LogConfig { block_bytes: SECTOR_BYTES, ..tiny() };
    let disk = MemoryDisk::new();
    let mut all: Vec<Batch> = Vec::new();
    // Three lives, so that files end in different ways; the middle batch spans blocks.
    for (life, sizes) in [&[30, 5000][..], &[700], &[10, 60]].into_iter().enumerate() {
        let mut log = open(&disk, &config, life as u64 * 10 + 1);
        for &bytes in sizes {
            let name = (1, all.len() as u64 + 1);
            let content = batch_of(name.0, name.1, bytes);
            append(&mut log, name.0, name.1, &content).unwrap();
            all.push((name, content));
            settle(&mut log, life as u64 * 10 + 2);
        }
    }
    assert_eq!(read_all(&disk, &config).unwrap().0, all);
    let step = if full() { 1 } else { 3 };
    let (mut detected, mut last_group, mut harmless) = (0_u32, 0_u32, 0_u32);
    for file in disk.files() {
        let content = disk.content(file);
        let used = content
            .iter()
            .rposition(|&byte| byte != 0)
            .map_or(0, |last| last + 1)
            .next_multiple_of(SECTOR_BYTES);
        // All bits of what was written, and one of each sector that was not.
        let written =
            (0..used * 8).filter(|bit| bit % (SECTOR_BYTES * 8) < 160 * 8 || bit % step == 0);
        let blank = (used * 8..content.len() * 8).step_by(SECTOR_BYTES * 8 + 5);
        for bit in written.chain(blank) {
            disk.flip_bit(file, bit);
            match read_all(&disk, &config) {
                Ok((found, _)) if found == all => harmless += 1,
                Ok((found, _)) => {
                    assert_eq!(
                        found,
                        all[..all.len() - 1],
                        "bit {bit} of {file}: only the last group may look torn"
                    );
                    last_group += 1;
                }
                Err(WalError::Corrupt { file: named, .. }) => {
                    assert_eq!(named, file, "bit {bit}: the error names the damaged file");
                    detected += 1;
                }
                Err(error) => panic!("bit {bit} of {file}: {error}"),
            }
            disk.flip_bit(file, bit);
        }
    }
    assert!(detected > 10_000 && harmless > 10_000, "{detected} detected, {harmless} harmless");
    // Header, entry header, record prefix, kind and content of the last batch, and no more.
    assert_eq!(last_group, (48 + ENTRY_BYTES as u32 + 4 + 1 + 60) * 8);
    let scores = [
        ("of", Score::Name("`wal`: a log of three lives")),
        ("detected", Score::Count(detected.into())),
        ("torn", Score::Count(last_group.into())),
        ("harmless", Score::Count(harmless.into())),
        ("full", Score::Count(full().into())),
    ];
    keep("flipped bits", &scores);
}
