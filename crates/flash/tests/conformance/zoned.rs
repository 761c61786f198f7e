//! What is particular to zones: whose device it is, limits, zones that go bad, power cuts, and
//! what lies on the device.

use timestone_flash::zoned_layout::{self, ENTRIES_PER_PAGE, page};
use timestone_flash::{
    BlockId, Fault, FlashError, FlashOp, Generation, Misuse, OpKind, Overwrite, PAGE_BYTES,
    Unsettled, ZonedConfig, ZonedDevice,
};
use timestone_flash::{FakeConfig, FakeZones};
use timestone_io::{EngineChoice, ZoneCondition, ZoneLimits};
use timestone_types::random::Seed;

use crate::driver::Driver;
use crate::rules::{ZONE_BYTES, fake, zoned_config, zones};

const PAGES: u32 = 8;
const BLOCKS: u32 = 6;
const OWNER: u64 = 77;

struct Disk {
    zones: FakeZones,
    config: ZonedConfig,
    conventional: u32,
    _folder: tempfile::TempDir,
}

impl Disk {
    fn new(conventional: u32, limits: ZoneLimits) -> Self {
        let (zones, folder) = zones(conventional, limits);
        let config = ZonedConfig { owner: OWNER, ..zoned_config() };
        Self { zones, config, conventional, _folder: folder }
    }

    fn plain() -> Self {
        Self::new(0, ZoneLimits::default())
    }

    fn format(&self) -> Driver {
        let medium = Box::new(self.zones.open());
        Driver::new(ZonedDevice::format(medium, &self.config, Overwrite::Refuse).unwrap())
    }

    fn try_open(&self) -> Result<ZonedDevice, FlashError> {
        ZonedDevice::open(Box::new(self.zones.open()), &self.config)
    }

    fn open(&self) -> Driver {
        Driver::new(self.try_open().unwrap())
    }

    fn refusal(&self) -> String {
        match self.try_open() {
            Err(error @ FlashError::Unusable { .. }) => error.to_string(),
            other => panic!("the device should have been refused: {other:?}"),
        }
    }

    /// The zone of a block.
    fn zone(&self, block: u32) -> u32 {
        block + if self.conventional < 2 { self.conventional + 2 } else { self.conventional }
    }

    /// A metadata zone's bytes.
    fn log(&self, which: u32) -> Vec<u8> {
        let first = if self.conventional < 2 { self.conventional } else { 0 };
        self.zones.bytes(u64::from(first + which) * ZONE_BYTES, 8 * PAGE_BYTES).unwrap()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.zones.violations(), 0, "the rules of zones were broken");
        }
    }
}

fn observe(driver: &mut Driver, block: u32, generation: u32, pages: u32) {
    driver.device.observe(BlockId(block), Generation(generation), pages).unwrap();
}

#[test]
fn the_device_is_laid_out_as_specified() {
    for conventional in [0, 2] {
        let disk = Disk::new(conventional, ZoneLimits::default());
        let mut driver = disk.format();
        driver.program(2, 0, &[0xab, 0xcd]);
        driver.erase(5);
        driver.sync();
        drop(driver);
        let log = disk.log(0);
        let (identity, place) = zoned_layout::decode(&log[..PAGE_BYTES]).unwrap();
        assert_eq!((identity.owner, identity.pages_per_block, identity.data_zones), (OWNER, 8, 12));
        assert_eq!((place.index, place.sequence, place.batch), (0, 1, (1, 1)));
        assert_eq!(identity.first_data_zone, disk.zone(0));
        assert_eq!(log[..PAGE_BYTES], log[PAGE_BYTES..2 * PAGE_BYTES], "each page twice");
        let (_, place) = zoned_layout::decode(&log[2 * PAGE_BYTES..3 * PAGE_BYTES]).unwrap();
        assert_eq!((place.sequence, place.batch), (2, (2, 2)));
        let found: Vec<_> =
            zoned_layout::entries(&log[2 * PAGE_BYTES..3 * PAGE_BYTES]).take(8).collect();
        let numbers: Vec<_> = found.iter().map(|generation| generation.0).collect();
        assert_eq!(numbers, [1, 1, 1, 1, 1, 2, 0, 0]);
        let at = u64::from(disk.zone(2)) * ZONE_BYTES + PAGE_BYTES as u64;
        assert_eq!(disk.zones.bytes(at, 1).unwrap(), [0xcd]);
    }
    assert_eq!(ENTRIES_PER_PAGE, 1000);
}

#[test]
fn what_is_not_ours_is_never_overwritten_unasked() {
    let something = |disk: &Disk| {
        // Somebody else's data in a data zone.
        let mut other = disk.format();
        other.program(3, 0, &[9]);
        drop(other);
        for log in 0..2_u64 {
            disk.zones.overwrite(log * ZONE_BYTES, &[0x55; 8 * PAGE_BYTES]).unwrap();
        }
    };
    for conventional in [0, 2] {
        let disk = Disk::new(conventional, ZoneLimits::default());
        assert!(disk.refusal().contains("format it first"));
        something(&disk);
        assert!(disk.refusal().contains("something else"), "{}", disk.refusal());
        for medium in [disk.zones.open(), disk.zones.open()].map(Box::new) {
            let refused = ZonedDevice::open_or_format(medium, &disk.config).unwrap_err();
            assert!(refused.to_string().contains("nothing of it was changed"), "{refused}");
        }
        let medium = Box::new(disk.zones.open());
        let refused = ZonedDevice::format(medium, &disk.config, Overwrite::Refuse).unwrap_err();
        assert!(refused.to_string().contains("would destroy"), "{refused}");
        let at = u64::from(disk.zone(3)) * ZONE_BYTES;
        assert_eq!(disk.zones.bytes(at, 1).unwrap(), [9], "it is still there");
        let medium = Box::new(disk.zones.open());
        let device = ZonedDevice::format(medium, &disk.config, Overwrite::Everything).unwrap();
        let mut driver = Driver::new(device);
        driver.program(3, 0, &[1]);
        assert_eq!(driver.read(3, 0, 1), [1]);
    }
}

#[test]
fn another_owner_id_or_version_is_refused() {
    let mut disk = Disk::plain();
    drop(disk.format());
    let medium = Box::new(disk.zones.open());
    let again = ZonedDevice::format(medium, &disk.config, Overwrite::Refuse).unwrap_err();
    assert!(again.to_string().contains("a device already"), "{again}");
    disk.config.owner = 78;
    assert!(disk.refusal().contains("belongs to 000000000000004d"), "{}", disk.refusal());
    disk.config.owner = OWNER;
    disk.config.device_id = Some(timestone_flash::layout::DeviceId(5));
    assert!(disk.refusal().contains("belongs here"), "{}", disk.refusal());
    disk.config.device_id = None;
    for copy in 0..2 {
        disk.zones.overwrite(copy * PAGE_BYTES as u64 + page::VERSION as u64, &[9]).unwrap();
    }
    let text = disk.refusal();
    assert!(text.contains("version 9") && text.contains("version 1"), "{text}");
}

#[test]
fn a_device_with_too_few_zones_is_refused_with_the_numbers() {
    let refusal = |limits| {
        let disk = Disk::new(0, limits);
        let medium = Box::new(disk.zones.open());
        ZonedDevice::format(medium, &disk.config, Overwrite::Refuse).unwrap_err().to_string()
    };
    // Six blocks at once, and two zones for the table.
    let text = refusal(ZoneLimits { max_open: 0, max_active: 7 });
    assert!(text.contains("7 active zones") && text.contains("8 are needed"), "{text}");
    let text = refusal(ZoneLimits { max_open: 1, max_active: 0 });
    assert!(text.contains("1 open zones") && text.contains("2 are needed"), "{text}");
}

/// Blocks that are sealed give their zone's resource to others; where nothing is sealed, programs
/// fail and say why.
#[test]
fn sealed_blocks_are_finished_when_others_need_their_resource() {
    let mut disk = Disk::new(0, ZoneLimits { max_open: 0, max_active: 4 });
    disk.config.open_blocks = 2;
    let mut driver = disk.format();
    for block in 0..6 {
        driver.program(block, 0, &[block as u8, 1]);
        driver.device.seal(BlockId(block));
        assert!(disk.zones.active() <= 4);
    }
    let op = driver.program_op(5, 2, &[3]);
    assert_eq!(driver.misuse(op), Misuse::Sealed { block: BlockId(5) });
    assert_eq!(driver.read(0, 0, 2), [0, 1]);
    for block in 0..3 {
        driver.erase(block);
    }
    driver.program(0, 0, &[7]);
    driver.program(1, 0, &[8]);
    let op = driver.program_op(2, 0, &[9]);
    let error = driver.run(op).unwrap_err();
    assert!(error.to_string().contains("as the device allows"), "{error}");
    let op = driver.program_op(2, 0, &[9]);
    assert!(matches!(
        driver.misuse(op),
        Misuse::BlockFailed { .. } | Misuse::OutOfOrder { .. } | Misuse::ProgrammedTwice { .. }
    ));
    driver.program(0, 1, &[6]);
    assert_eq!((driver.read(0, 0, 2), driver.read(1, 0, 1)), (vec![7, 6], vec![8]));
    // After a restart the owner says which blocks it is done with.
    driver.sync();
    drop(driver);
    let mut driver = disk.open();
    for (block, generation, pages) in [(0, 2, 2), (1, 2, 1), (2, 2, 0), (3, 1, 2)] {
        observe(&mut driver, block, generation, pages);
    }
    driver.device.seal(BlockId(0));
    driver.device.seal(BlockId(1));
    driver.erase(4);
    driver.program(4, 0, &[4, 4]);
    driver.program(2, 0, &[2]);
    assert_eq!((driver.read(0, 0, 2), driver.read(4, 0, 2)), (vec![7, 6], vec![4, 4]));
}

#[test]
fn a_zone_that_goes_bad_is_bad_and_its_neighbours_go_on() {
    for condition in [ZoneCondition::ReadOnly, ZoneCondition::Offline] {
        for by_program in [true, false] {
            let disk = Disk::plain();
            let mut driver = disk.format();
            for block in 0..BLOCKS {
                driver.program(block, 0, &[block as u8 + 1]);
            }
            driver.sync();
            disk.zones.set_condition(disk.zone(2), condition);
            assert!(!driver.device.is_bad(BlockId(2)), "nobody has met it");
            let op = match by_program {
                true => driver.program_op(2, 1, &[9]),
                false => FlashOp::Erase { token: driver.token(), block: BlockId(2) },
            };
            assert!(matches!(driver.run(op), Err(FlashError::Medium { .. })));
            assert!(driver.device.is_bad(BlockId(2)));
            assert_eq!(driver.device.stats().bad_blocks, 1);
            let generation = driver.generation(2);
            let token = driver.token();
            let erase = FlashOp::Erase { token, block: BlockId(2) };
            assert!(matches!(driver.run(erase), Err(FlashError::Medium { .. })));
            assert_eq!(driver.generation(2), generation);
            let op = driver.read_op(2, 0, 1);
            let read = driver.run(op);
            assert_eq!(read.is_ok(), condition == ZoneCondition::ReadOnly);
            driver.program(3, 1, &[4]);
            driver.sync();
            drop(driver);
            let driver = disk.open();
            assert!(driver.device.is_bad(BlockId(2)), "also after a restart");
            assert!(!driver.device.is_bad(BlockId(3)));
        }
    }
}

#[test]
fn a_failed_program_or_reset_is_undone_by_an_erase() {
    let disk = Disk::plain();
    let mut driver = disk.format();
    driver.program(1, 0, &[1, 2]);
    disk.zones.inject(Fault::Fail { kind: OpKind::Program, nth: 1 });
    let op = driver.program_op(1, 2, &[3]);
    assert!(matches!(driver.run(op), Err(FlashError::Medium { operation: "program", .. })));
    assert!(!driver.device.is_bad(BlockId(1)), "the zone is as good as before");
    let op = driver.program_op(1, 3, &[3]);
    assert_eq!(driver.misuse(op), Misuse::BlockFailed { block: BlockId(1) });
    assert_eq!(driver.read(1, 0, 2), [1, 2]);
    disk.zones.inject(Fault::Fail { kind: OpKind::Erase, nth: 1 });
    let erase = FlashOp::Erase { token: driver.token(), block: BlockId(1) };
    assert!(matches!(driver.run(erase), Err(FlashError::Medium { operation: "erase", .. })));
    assert_eq!((driver.generation(1), driver.read(1, 0, 2)), (1, vec![1, 2]));
    driver.erase(1);
    driver.program(1, 0, &[5]);
    driver.sync();
    drop(driver);
    let mut driver = disk.open();
    assert_eq!((driver.generation(1), driver.read(1, 0, 2)), (2, vec![5, 0]));
}

#[test]
fn programs_behind_a_failed_one_fail_as_well() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let zones = FakeZones::new(FakeConfig { ops_per_poll: 1, ..fake(folder.path()) }).unwrap();
    let medium = Box::new(zones.open());
    let config = zoned_config();
    let mut driver = Driver::new(ZonedDevice::format(medium, &config, Overwrite::Refuse).unwrap());
    driver.program(2, 0, &[2]);
    zones.inject(Fault::Fail { kind: OpKind::Program, nth: 1 });
    // One operation a poll: the read, while the first program is under way and the others gather.
    let op = driver.read_op(2, 0, 1);
    driver.submit(op);
    let op = driver.program_op(1, 0, &[3]);
    driver.submit(op);
    let mut done = Vec::new();
    assert_eq!(driver.device.poll(&mut done), 1);
    for index in 1..4 {
        let op = driver.program_op(1, index, &[3]);
        driver.submit(op);
    }
    assert_eq!(driver.drain().iter().filter(|done| done.result.is_err()).count(), 4);
    driver.erase(1);
    driver.program(1, 0, &[4]);
    assert_eq!((driver.read(1, 0, 1), zones.violations()), (vec![4], 0));
}

#[test]
fn a_failed_sync_ends_all_writing() {
    let disk = Disk::plain();
    let mut driver = disk.format();
    driver.program(1, 0, &[1]);
    disk.zones.inject(Fault::Fail { kind: OpKind::Sync, nth: 1 });
    let sync = FlashOp::Sync { token: driver.token() };
    assert!(matches!(driver.run(sync), Err(FlashError::Medium { operation: "sync", .. })));
    let op = driver.program_op(1, 1, &[2]);
    let refused = driver.try_submit(op);
    assert!(
        matches!(refused, Err(timestone_flash::RejectedReason::Refused(FlashError::Failed { .. }))),
        "{refused:?}"
    );
    assert_eq!(driver.read(1, 0, 1), [1], "reads go on");
}

#[test]
fn a_metadata_zone_that_goes_bad_is_left_and_two_end_writing() {
    let disk = Disk::plain();
    let mut driver = disk.format();
    driver.erase(0);
    disk.zones.set_condition(0, ZoneCondition::ReadOnly);
    driver.erase(0);
    driver.erase(1);
    drop(driver);
    let mut driver = disk.open();
    assert_eq!((driver.generation(0), driver.generation(1)), (3, 2), "the table is in zone 1");
    disk.zones.set_condition(1, ZoneCondition::ReadOnly);
    let erase = FlashOp::Erase { token: driver.token(), block: BlockId(0) };
    assert!(matches!(driver.run(erase), Err(FlashError::Medium { operation: "erase", .. })));
    let erase = FlashOp::Erase { token: driver.token(), block: BlockId(1) };
    assert!(matches!(
        driver.try_submit(erase),
        Err(timestone_flash::RejectedReason::Refused(FlashError::Failed { .. }))
    ));
    drop(driver);
    let mut driver = disk.open();
    assert_eq!((driver.generation(0), driver.generation(1)), (3, 2));
    assert_eq!(driver.read(4, 0, 1), [0]);
    drop(driver);
    disk.zones.set_condition(1, ZoneCondition::Offline);
    assert!(disk.refusal().contains("offline"), "{}", disk.refusal());
}

#[test]
fn damage_of_the_table_is_repaired_or_refused() {
    for conventional in [0, 2] {
        let disk = Disk::new(conventional, ZoneLimits::default());
        let mut driver = disk.format();
        driver.erase(0);
        driver.erase(0);
        drop(driver);
        let good = disk.log(0);
        disk.zones.overwrite(2 * PAGE_BYTES as u64 + 200, &[0xff]).unwrap();
        let mut driver = disk.open();
        assert_eq!((driver.device.stats().repairs, driver.generation(0)), (1, 3));
        // What is damaged is not written behind.
        driver.erase(0);
        drop(driver);
        let driver = disk.open();
        assert_eq!((driver.device.stats().repairs, driver.generation(0)), (0, 4));
        drop(driver);
        let disk = Disk::new(conventional, ZoneLimits::default());
        let mut driver = disk.format();
        driver.erase(0);
        driver.erase(0);
        drop(driver);
        assert_ne!(good, vec![0; good.len()]);
        for copy in 2..4 {
            disk.zones.overwrite(copy * PAGE_BYTES as u64 + 200, &[0xff]).unwrap();
        }
        assert!(disk.refusal().contains("damaged"), "{}", disk.refusal());
    }
}

/// A page that a power cut has torn in the middle stands in the way until an erase.
#[test]
fn a_torn_page_stands_in_the_way_until_an_erase() {
    let disk = Disk::plain();
    let mut driver = disk.format();
    driver.program(1, 0, &[1]);
    driver.sync();
    disk.zones.cut_at(1, PAGE_BYTES + 512, Unsettled::Kept);
    let op = driver.program_op(1, 1, &[2, 3]);
    assert!(driver.run(op).is_err());
    drop(driver);
    let mut driver = disk.open();
    assert_eq!(driver.read(1, 0, 4), [1, 2, 0, 0]);
    observe(&mut driver, 1, 1, 2);
    let op = driver.program_op(1, 2, &[3]);
    assert_eq!(driver.misuse(op), Misuse::BlockFailed { block: BlockId(1) });
    driver.erase(1);
    driver.program(1, 0, &[4]);
    assert_eq!(driver.read(1, 0, 1), [4]);
}

/// Pages that count for nothing are reset before the first program of their block.
#[test]
fn what_an_interrupted_erase_has_left_is_reset_before_the_first_program() {
    let disk = Disk::plain();
    let mut driver = disk.format();
    driver.program(1, 0, &[1, 2]);
    driver.sync();
    // The log's write and its sync arrive, the reset does not.
    disk.zones.cut_at(3, 0, Unsettled::Kept);
    let erase = FlashOp::Erase { token: driver.token(), block: BlockId(1) };
    assert!(driver.run(erase).is_err());
    drop(driver);
    let mut driver = disk.open();
    assert_eq!((driver.generation(1), driver.read(1, 0, 3)), (2, vec![1, 2, 0]));
    observe(&mut driver, 1, 1, 2);
    assert_eq!(driver.programmed(1), Some(0));
    driver.program(1, 0, &[7]);
    driver.program(1, 1, &[8]);
    assert_eq!(driver.read(1, 0, 2), [7, 8]);
}

/// The power goes at every operation of a workload, with every fate of what no sync covers: what
/// was synced is there, erases that completed hold, and no page of an older life passes as one of
/// the present.
#[test]
fn whatever_a_power_cut_takes_what_was_durable_is_there() {
    for conventional in [0, 2] {
        let mut ended = 0;
        for seed in 0..6 {
            for operation in 1..70 {
                let others = match seed {
                    0 => Unsettled::Kept,
                    1 => Unsettled::Lost,
                    _ => Unsettled::Drawn(seed * 1000 + operation),
                };
                let keep = [0, 512, PAGE_BYTES, 3 * PAGE_BYTES][operation as usize % 4];
                ended += u32::from(live_until(conventional, operation as u32, keep, others));
            }
        }
        assert!(ended > 100, "{ended} lives were cut short");
    }
}

/// A page's stamp: its block's generation, and a number that tells its program from others.
type Stamp = (u32, u8);

/// Lives until the power goes at an operation; whether it went.
fn live_until(conventional: u32, operation: u32, keep: usize, others: Unsettled) -> bool {
    let disk = Disk::new(conventional, ZoneLimits::default());
    let mut driver = disk.format();
    let mut dice = Seed(u64::from(operation)).dice();
    disk.zones.cut_at(operation, keep, others);
    // What each block certainly holds, and what it may hold behind that.
    let mut durable: Vec<(u32, Vec<Stamp>)> = vec![(1, Vec::new()); BLOCKS as usize];
    let mut written = durable.clone();
    for step in 0..60_u8 {
        let block = dice.below(BLOCKS.into()) as usize;
        let result = match dice.below(6) {
            0 => {
                let token = driver.token();
                let result = driver.run(FlashOp::Erase { token, block: BlockId(block as u32) });
                // Begun is as good as done where nothing is asked of the old pages.
                durable[block].1.clear();
                written[block].1.clear();
                if result.is_ok() {
                    (durable[block].0, written[block].0) =
                        (written[block].0 + 1, written[block].0 + 1);
                }
                result.map(|_| ())
            }
            1 => {
                let token = driver.token();
                let result = driver.run(FlashOp::Sync { token });
                if result.is_ok() {
                    durable = written.clone();
                }
                result.map(|_| ())
            }
            _ if written[block].1.len() < PAGES as usize => {
                let (generation, pages) = &mut written[block];
                let op = driver.program_op(block as u32, pages.len() as u32, &[step + 1]);
                let result = driver.run(op);
                if result.is_ok() {
                    pages.push((*generation, step + 1));
                }
                result.map(|_| ())
            }
            _ => Ok(()),
        };
        if result.is_err() {
            assert!(disk.zones.is_off());
            break;
        }
    }
    let ended = disk.zones.is_off();
    drop(driver);
    if !ended {
        return false;
    }
    let mut driver = disk.open();
    for (block, ((least, sure), (_, may))) in (0..).zip(durable.iter().zip(&written)) {
        let generation = driver.generation(block);
        assert!(generation == *least || generation == least + 1, "block {block}: {generation}");
        let found: Vec<u8> = (0..PAGES)
            .map(|index| {
                let op = driver.read_op(block, index, 1);
                let page = driver.run(op).unwrap().unwrap();
                // A torn page counts for nothing.
                crate::driver::uniform(&page).unwrap_or(0)
            })
            .collect();
        if generation == *least {
            for (index, (_, byte)) in sure.iter().enumerate() {
                assert_eq!(found[index], *byte, "block {block}, page {index}");
            }
            let behind = &found[sure.len()..];
            let may = may.get(sure.len()..).unwrap_or_default();
            // The last write may have arrived without its completion.
            let expected = |at: usize| may.get(at).map(|(_, byte)| *byte);
            for (at, byte) in behind.iter().enumerate() {
                assert!(*byte == 0 || expected(at).is_none_or(|expected| expected == *byte));
            }
        }
        // Whatever is there, the block can be used.
        let pages = found.iter().take_while(|&&byte| byte != 0).count() as u32;
        let same = generation == *least;
        let seen = if same { generation } else { generation - 1 };
        driver.device.observe(BlockId(block), Generation(seen), pages).unwrap();
        driver.erase(block);
        driver.program(block, 0, &[block as u8 + 1]);
    }
    for block in 0..BLOCKS {
        assert_eq!(driver.read(block, 0, 1), [block as u8 + 1]);
    }
    true
}

/// Everything in any order, one operation at a time, within tight limits.
#[test]
fn a_slow_and_unruly_device_is_served_by_the_rules() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for seed in 0..20 {
        let zones = FakeZones::new(FakeConfig {
            sequential: 12,
            // One sector more than eight pages: a zone never fills by itself.
            capacity_bytes: u64::from(PAGES) * PAGE_BYTES as u64 + 512,
            limits: ZoneLimits { max_open: 2, max_active: 6 },
            ops_per_poll: 1,
            shuffle: Some(seed),
            ..fake(folder.path())
        })
        .unwrap();
        let config = ZonedConfig { open_blocks: 4, ..ZonedConfig::default() };
        let medium = Box::new(zones.open());
        let mut driver =
            Driver::new(ZonedDevice::format(medium, &config, Overwrite::Refuse).unwrap());
        let mut dice = Seed(seed).dice();
        let mut model: Vec<Vec<u8>> = vec![Vec::new(); 10];
        for round in 0..60_u8 {
            // Four blocks at once, each programmed in pieces, and erases of others beside them.
            let open = (round / 8 % 2) as u32 * 4;
            for block in open..open + 4 {
                while model[block as usize].len() < PAGES as usize && dice.below(3) > 0 {
                    let index = model[block as usize].len() as u32;
                    let op = driver.program_op(block, index, &[round + 1]);
                    driver.submit(op);
                    model[block as usize].push(round + 1);
                }
            }
            if round % 8 == 7 {
                for block in open..open + 4 {
                    driver.device.seal(BlockId(block));
                }
                for block in 4 - open..8 - open {
                    let token = driver.token();
                    driver.submit(FlashOp::Erase { token, block: BlockId(block) });
                    model[block as usize].clear();
                }
            }
            assert!(driver.drain().iter().all(|done| done.result.is_ok()), "seed {seed}");
            for (block, pages) in (0..).zip(&model) {
                if !pages.is_empty() {
                    assert_eq!(driver.read(block, 0, pages.len() as u32), *pages);
                }
            }
        }
        assert_eq!(zones.violations(), 0);
        assert!(zones.active() <= 6);
    }
}

#[test]
fn an_ordinary_file_is_no_zoned_device() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, [7; 8192]).unwrap();
    let refused = timestone_flash::KernelZones::open(&path, 8, EngineChoice::Auto).unwrap_err();
    assert!(refused.to_string().contains("not a block device"), "{refused}");
    assert_eq!(std::fs::read(&path).unwrap(), [7; 8192]);
}
