//! Zoned devices of a data directory, on fakes of them.

use std::sync::Arc;

use timestone_flash::{BlockId, FakeConfig, FakeZones, PAGE_BYTES};
use timestone_io::ZoneLimits;

use super::*;

const OWNER: u64 = 0xabcd;

/// Fake zoned devices by their paths.
struct Rack {
    folder: tempfile::TempDir,
    zones: Arc<BTreeMap<PathBuf, FakeZones>>,
}

impl Rack {
    fn new(devices: usize, sequential: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let fake = |number: usize| {
            let path = folder.path().join(format!("zns{number}"));
            let config = FakeConfig {
                path: path.clone(),
                conventional: 0,
                sequential,
                zone_bytes: 1 << 20,
                capacity_bytes: 192 * PAGE_BYTES as u64,
                unit_bytes: 4096,
                limits: ZoneLimits { max_open: 4, max_active: 8 },
                ops_per_poll: usize::MAX,
                shuffle: None,
            };
            (path, FakeZones::new(config).unwrap())
        };
        let zones = Arc::new((0..devices).map(fake).collect());
        Self { folder, zones }
    }

    fn paths(&self) -> Vec<PathBuf> {
        self.zones.keys().cloned().collect()
    }

    fn opener(&self) -> OpenZones {
        let zones = Arc::clone(&self.zones);
        Box::new(move |path| Ok(Box::new(zones[path].open())))
    }

    fn open(&self, paths: &[PathBuf], owner: u64) -> Result<ZonedDevices, ServerError> {
        ZonedDevices::open(paths, self.opener(), owner)
    }
}

#[test]
fn each_shard_has_a_device_and_finds_it_again_under_any_name() {
    let rack = Rack::new(2, 34);
    let mut paths = rack.paths();
    let devices = rack.open(&paths, OWNER).unwrap();
    let [five, nine] = [5, 9].map(ShardId::new);
    assert!(devices.find(id_of(five)).is_none());
    for shard in [five, nine] {
        let device = devices.open_shard(shard, u32::MAX).unwrap();
        assert_eq!((device.geometry().blocks, device.geometry().pages_per_block), (32, 192));
        assert!(device.programmed(BlockId(31)).is_some(), "it is new");
    }
    let nines = devices.find(id_of(nine)).unwrap();
    let refused = devices.open_shard(ShardId::new(1), u32::MAX).err().unwrap().to_string();
    assert!(refused.contains("3 shards need a zoned device each"), "{refused}");
    drop(devices);
    paths.reverse();
    let devices = rack.open(&paths, OWNER).unwrap();
    assert_eq!(devices.find(id_of(nine)), Some(nines.clone()));
    let device = devices.open_shard(nine, u32::MAX).unwrap();
    assert!(device.programmed(BlockId(31)).is_none(), "it was there");
    drop(device);

    // What is removed is free for another shard.
    devices.remove(nine).unwrap();
    assert!(devices.find(id_of(nine)).is_none());
    drop(devices);
    let devices = rack.open(&paths, OWNER).unwrap();
    assert!(devices.find(id_of(nine)).is_none() && devices.find(id_of(five)).is_some());
    drop(devices.open_shard(ShardId::new(1), u32::MAX).unwrap());
    assert_eq!(devices.find(id_of(ShardId::new(1))), Some(nines));
    assert!(rack.zones.values().all(|zones| zones.violations() == 0));
}

#[test]
fn a_capacity_is_counted_in_whole_zones() {
    let rack = Rack::new(1, 34);
    let devices = rack.open(&rack.paths(), OWNER).unwrap();
    // 20 MiB are 26 zones of 768 KiB.
    let device = devices.open_shard(ShardId::new(0), 20).unwrap();
    assert_eq!((device.geometry().blocks, device.geometry().max_blocks), (26, 26));
    drop(device);
    let device = devices.open_shard(ShardId::new(0), 22).unwrap();
    assert_eq!((device.geometry().blocks, device.geometry().max_blocks), (26, 29));
}

#[test]
fn devices_of_others_and_those_that_hold_something_else_are_refused_before_anything() {
    let rack = Rack::new(2, 34);
    let paths = rack.paths();
    drop(rack.open(&paths, OWNER).unwrap().open_shard(ShardId::new(0), u32::MAX).unwrap());
    let refused = rack.open(&paths, OWNER + 1).err().unwrap().to_string();
    assert!(refused.contains("another data directory (000000000000abcd)"), "{refused}");
    let new = ZonedDevices::identify(&paths, &rack.opener(), None).err().unwrap().to_string();
    assert!(new.contains("another data directory"), "{new}");

    let mut medium = rack.zones[&paths[1]].open();
    let offset = 5 << 20;
    let buffers = vec![timestone_flash::AlignedBuffer::zeroed(PAGE_BYTES)];
    medium.submit(timestone_io::IoToken(0), timestone_flash::ZoneOp::Write { offset, buffers });
    assert_eq!(medium.poll(&mut Vec::new()), 1);
    let refused = rack.open(&paths, OWNER).err().unwrap().to_string();
    assert!(refused.contains("something else on it"), "{refused}");
    assert!(rack.folder.path().exists());
}

#[test]
fn a_device_with_too_few_zones_is_refused() {
    let rack = Rack::new(1, 10);
    let devices = rack.open(&rack.paths(), OWNER).unwrap();
    let refused = devices.open_shard(ShardId::new(0), u32::MAX).err().unwrap().to_string();
    assert!(refused.contains("8 zones for data, and 16 are needed"), "{refused}");
}
