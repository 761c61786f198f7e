//! Random histories against a model: an ordered map of all versions, with crashes and recoveries in
//! between.

use std::collections::BTreeMap;

use proptest::prelude::*;
use timestone_store::prelude::*;
use timestone_store::{Mftl, MftlConfig};
use timestone_types::{Expiry, Version};

use crate::driver::{Driver, Got, SPACE, at, config, media, open, version};

#[derive(Clone, Debug)]
enum Op {
    Put { key: u8, nanos: u64, size: usize, expires: Option<u64> },
    Delete { key: u8, nanos: u64 },
    Fence { nanos: u64 },
    Watermark { by: u64 },
    Read { key: u8, ahead: u64 },
    CountAndScan,
    Pump { times: usize },
    Checkpoint,
    SyncAndCrash { seed: u64 },
    ShutDownAndRestart,
}

fn ops() -> impl Strategy<Value = Op> {
    let key = 0u8..24;
    let nanos = 1u64..400;
    let size = prop_oneof![6 => 0usize..300, 2 => 1000usize..4000, 1 => 4000usize..30_000];
    let expires = prop_oneof![4 => Just(None), 1 => (1u64..600).prop_map(Some)];
    prop_oneof![
        12 => (key.clone(), nanos.clone(), size, expires).prop_map(|(key, nanos, size, expires)| Op::Put { key, nanos, size, expires }),
        4 => (key.clone(), nanos.clone()).prop_map(|(key, nanos)| Op::Delete { key, nanos }),
        1 => nanos.prop_map(|nanos| Op::Fence { nanos }),
        2 => (1u64..40).prop_map(|by| Op::Watermark { by }),
        8 => (key, 0u64..400).prop_map(|(key, ahead)| Op::Read { key, ahead }),
        1 => Just(Op::CountAndScan),
        4 => (1usize..40).prop_map(|times| Op::Pump { times }),
        1 => Just(Op::Checkpoint),
        1 => any::<u64>().prop_map(|seed| Op::SyncAndCrash { seed }),
        1 => Just(Op::ShutDownAndRestart),
    ]
}

/// A value and when it expires; none for a tombstone.
type Written = Option<(Vec<u8>, u64)>;

#[derive(Default)]
struct Model {
    versions: BTreeMap<(u8, u64), Written>,
    fences: Vec<u64>,
    watermark: u64,
    written: BTreeMap<(u8, u64), ()>,
}

impl Model {
    fn get(&self, key: u8, nanos: u64) -> Got {
        let fence = self.fences.iter().copied().filter(|&fence| fence <= nanos).max().unwrap_or(0);
        let found = self.versions.range((key, 0)..=(key, nanos)).next_back();
        match found {
            Some((&(_, written), record)) if written > fence => match record {
                Some((value, expires)) if *expires > nanos => {
                    Got::Value(version(written), value.clone())
                }
                _ => Got::Absent(version(written)),
            },
            _ if fence > 0 => Got::Absent(version(fence)),
            _ => Got::Absent(Version::ZERO),
        }
    }

    fn present(&self, nanos: u64) -> Vec<Vec<u8>> {
        (0..24)
            .filter(|&key| matches!(self.get(key, nanos), Got::Value(..)))
            .map(|key| vec![key])
            .collect()
    }
}

fn value_of(key: u8, nanos: u64, size: usize) -> Vec<u8> {
    (0..size).map(|n| (n as u64 * 31 + nanos + u64::from(key)) as u8).collect()
}

/// Versions above the watermark only: what lies at or below it is the past, which no writer
/// changes.
fn writable(model: &Model, key: u8, nanos: u64) -> bool {
    nanos > model.watermark
        && !model.fences.contains(&nanos)
        && !model.written.contains_key(&(key, nanos))
}

fn run(history: Vec<Op>, config: MftlConfig) {
    let media = media(8, 400);
    let (mut driver, _) = open(&media, config);
    let mut model = Model::default();
    for op in history {
        match op {
            Op::Put { key, nanos, size, expires } if writable(&model, key, nanos) => {
                let value = value_of(key, nanos, size);
                let expires = expires.map_or(u64::MAX, |after| nanos + after);
                let name = [key];
                let place = driver.key(SPACE, &name);
                driver
                    .store
                    .put(place, version(nanos), &value, Expiry::at(at(expires)))
                    .expect("there is room");
                model.versions.insert((key, nanos), Some((value, expires)));
                model.written.insert((key, nanos), ());
            }
            Op::Delete { key, nanos } if writable(&model, key, nanos) => {
                driver.delete(&[key], nanos);
                model.versions.insert((key, nanos), None);
                model.written.insert((key, nanos), ());
            }
            Op::Fence { nanos }
                if nanos > model.watermark && !model.written.keys().any(|&(_, at)| at == nanos) =>
            {
                driver.store.fence(SPACE, version(nanos)).expect("fence");
                model.fences.push(nanos);
            }
            Op::Put { .. } | Op::Delete { .. } | Op::Fence { .. } => {}
            Op::Watermark { by } => {
                model.watermark += by;
                driver.store.advance_watermark(at(model.watermark));
            }
            Op::Read { key, ahead } => {
                let nanos = model.watermark + ahead;
                assert_eq!(
                    driver.get(&[key], nanos),
                    model.get(key, nanos),
                    "key {key} at {nanos}"
                );
            }
            Op::CountAndScan => {
                let nanos = model.watermark + 50;
                let expected = model.present(nanos);
                assert_eq!(driver.count(SPACE, nanos), expected.len() as u64);
                assert_eq!(driver.keys(SPACE, nanos, 5), expected);
            }
            Op::Pump { times } => driver.pumps(times),
            Op::Checkpoint => driver.checkpoint(),
            Op::SyncAndCrash { seed } => {
                driver.sync();
                driver = crash(driver, &media, config, &model, |media| media.power_cut(seed));
            }
            Op::ShutDownAndRestart => {
                driver.shut_down();
                driver = crash(driver, &media, config, &model, |_| {});
            }
        }
    }
    for key in 0..24 {
        for nanos in model.watermark..model.watermark + 450 {
            assert_eq!(
                driver.get(&[key], nanos),
                model.get(key, nanos),
                "key {key} at {nanos} in the end"
            );
        }
    }
}

fn crash(
    driver: Driver<Mftl>,
    media: &timestone_flash::MemoryMedia,
    config: MftlConfig,
    model: &Model,
    cut: impl FnOnce(&timestone_flash::MemoryMedia),
) -> Driver<Mftl> {
    cut(media);
    drop(driver);
    let (mut driver, report) = open(media, config);
    assert_eq!(report.corrupt_records, 0, "{report:?}");
    driver.store.advance_watermark(at(model.watermark));
    driver
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn a_store_behaves_like_an_ordered_map(history in proptest::collection::vec(ops(), 1..150)) {
        run(history, config());
    }

    #[test]
    fn so_does_one_with_a_cache(history in proptest::collection::vec(ops(), 1..150)) {
        run(history, MftlConfig { cache_bytes: 2 << 20, ..config() });
    }
}
