//! What the log promises, as a model, against random actions and a crash at every operation.

use std::collections::BTreeMap;

use proptest::prelude::*;
use timestone_types::ShardId;
use timestone_wal::device::FileName;
use timestone_wal::device::memory::MemoryDisk;
use timestone_wal::{BatchNumber, Log, LogConfig, LogEvent, LogRecord, check_device};

use super::{Batch, append, at, batch_of, durable, open, read_all, tiny};

/// What the log promises: recovered = everything acknowledged, plus a prefix of what was accepted
/// after it, and no more.
#[derive(Clone, Default)]
pub(super) struct Model {
    /// In the order of acceptance.
    pub(super) accepted: Vec<Batch>,
    /// How many of them were acknowledged.
    pub(super) acknowledged: usize,
    pub(super) released: BTreeMap<u16, u64>,
    pub(super) next: BTreeMap<u16, u64>,
}

impl Model {
    pub(super) fn append(&mut self, log: &mut Log, shard: u16, bytes: usize) {
        let next = self.next.entry(shard).or_insert(1);
        let content = batch_of(shard, *next, bytes);
        match append(log, shard, *next, &content) {
            Ok(()) => {
                self.accepted.push(((shard, *next), content));
                *next += 1;
            }
            Err(error) => assert!(error.retryable(), "{error}"),
        }
    }

    pub(super) fn hear(&mut self, events: &[LogEvent]) {
        for (shard, batch) in durable(events) {
            let place = self
                .accepted
                .iter()
                .position(|known| known.0 == (shard, batch))
                .expect("only accepted batches are durable");
            self.acknowledged = self.acknowledged.max(place + 1);
        }
    }

    pub(super) fn release(&mut self, log: &mut Log, shard: u16) {
        let last = self.accepted[..self.acknowledged]
            .iter()
            .rev()
            .find(|known| known.0.0 == shard)
            .map(|known| known.0.1);
        if let Some(last) = last {
            self.released.insert(shard, last);
            log.release(ShardId::new(shard), BatchNumber::new(last));
        }
    }

    /// After a crash: compares, and goes on from what was found.
    pub(super) fn compare(&mut self, found: Vec<Batch>) {
        let held = |batch: &Batch| batch.0.1 >= *self.released.get(&batch.0.0).unwrap_or(&0);
        let kept: Vec<Batch> = found.iter().filter(|batch| held(batch)).cloned().collect();
        let must: Vec<Batch> = self.accepted[..self.acknowledged]
            .iter()
            .filter(|batch| held(batch))
            .cloned()
            .collect();
        let may: Vec<Batch> = self.accepted.iter().filter(|batch| held(batch)).cloned().collect();
        assert!(
            kept.len() >= must.len(),
            "acknowledged batches were lost: {} of {}",
            kept.len(),
            must.len()
        );
        assert!(
            kept.len() <= may.len() && kept[..] == may[..kept.len()],
            "what came back was accepted, in this order"
        );
        for batch in &found {
            assert!(self.accepted.contains(batch), "batch {:?} came back from nowhere", batch.0);
        }
        self.accepted = found;
        self.acknowledged = self.accepted.len();
    }
}

#[derive(Clone, Debug)]
enum Action {
    Append { shard: u16, bytes: usize },
    Pump,
    Release { shard: u16 },
    Hold(bool),
    Crash { seed: u64 },
}

fn action() -> impl Strategy<Value = Action> {
    let bytes = prop_oneof![6 => 0_usize..600, 3 => 3000_usize..9000, 1 => 20_000_usize..150_000];
    prop_oneof![
        10 => (1_u16..4, bytes).prop_map(|(shard, bytes)| Action::Append { shard, bytes }),
        8 => Just(Action::Pump),
        2 => (1_u16..4).prop_map(|shard| Action::Release { shard }),
        2 => any::<bool>().prop_map(Action::Hold),
        1 => any::<u64>().prop_map(|seed| Action::Crash { seed }),
    ]
}

fn play(actions: &[Action]) {
    let config = LogConfig { queue_bytes: 300_000, ..tiny() };
    let disk = MemoryDisk::new();
    let mut log = open(&disk, &config, 1);
    let mut model = Model::default();
    let mut now = 1;
    for action in actions.iter().chain([&Action::Crash { seed: 1 }, &Action::Crash { seed: 2 }]) {
        now += 1;
        match *action {
            Action::Append { shard, bytes } => model.append(&mut log, shard, bytes),
            Action::Pump => {
                let mut events = Vec::new();
                log.pump(at(now), &mut events);
                model.hear(&events);
            }
            Action::Release { shard } => model.release(&mut log, shard),
            Action::Hold(held) => disk.hold(held),
            Action::Crash { seed } => {
                disk.crash(seed);
                model.compare(read_all(&disk, &config).unwrap().0);
                log = open(&disk, &config, now);
                for (&shard, &released) in &model.released {
                    log.release(ShardId::new(shard), BatchNumber::new(released));
                }
                for shard in 1..4 {
                    let last = model
                        .accepted
                        .iter()
                        .filter(|batch| batch.0.0 == shard)
                        .map(|batch| batch.0.1)
                        .max();
                    let next = last.unwrap_or(0).max(*model.released.get(&shard).unwrap_or(&0)) + 1;
                    model.next.insert(shard, next);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_the_log_keeps_its_promise(actions in proptest::collection::vec(action(), 1..120)) {
        play(&actions);
    }

    #[test]
    fn no_bytes_make_recovery_or_records_panic(content in proptest::collection::vec(any::<u8>(), 0..9000)) {
        let _ = LogRecord::decode(&content);
        let disk = MemoryDisk::new();
        disk.set_content(FileName::new(at(5)), content);
        prop_assert!(read_all(&disk, &tiny()).is_ok(), "bytes without a header are an empty log");
    }
}

/// Runs a fixed workload until the disk stops; gives the model of it.
fn workload(disk: &MemoryDisk, config: &LogConfig) -> Model {
    let mut log = open(disk, config, 1);
    let mut model = Model::default();
    for step in 0..120_u64 {
        let shard = 1 + (step % 3) as u16;
        model.append(&mut log, shard, [50, 5000, 900, 30_000][(step % 4) as usize]);
        if step % 2 == 0 {
            let mut events = Vec::new();
            log.pump(at(step), &mut events);
            model.hear(&events);
        }
        if step % 5 == 0 {
            model.release(&mut log, shard);
        }
    }
    for _ in 0..20 {
        let mut events = Vec::new();
        log.pump(at(100), &mut events);
        model.hear(&events);
    }
    model
}

#[test]
fn a_crash_at_every_operation_loses_nothing_acknowledged_even_when_it_crashes_again() {
    let config = tiny();
    let disk = MemoryDisk::new();
    workload(&disk, &config);
    let operations = disk.operations();
    assert!(operations > 60, "{operations}");
    for stop in 2..=operations {
        for seed in 0..12 {
            let disk = MemoryDisk::new();
            disk.stop_at(stop);
            let mut model = workload(&disk, &config);
            disk.crash(seed * 1000 + stop);
            model.compare(read_all(&disk, &config).unwrap().0);
            // Recovery starts a fresh file, and the power fails again: with nothing written, and
            // with a torn first group.
            let mut log = open(&disk, &config, 200);
            if seed % 2 == 0 {
                model.next.insert(9, 1);
                model.append(&mut log, 9, 20_000);
                disk.hold(true);
                log.pump(at(200), &mut Vec::new());
            }
            disk.crash(seed);
            model.compare(read_all(&disk, &config).unwrap().0);
            assert!(check_device(disk.device(), &[]).unwrap().is_sound());
        }
    }
}
