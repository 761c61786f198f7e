//! What is particular to the device in a file: its layout on disk, damage, crashes, other versions
//! and owners.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use timestone_flash::layout::{DeviceId, Layout, superblock, table};
use timestone_flash::{
    BlockId, FileConfig, FileDevice, FlashError, FlashOp, Generation, PAGE_BYTES,
};
use timestone_io::{EngineChoice, IoError};

use crate::driver::Driver;
use crate::rules::file_config;

struct Disk {
    config: FileConfig,
    _folder: tempfile::TempDir,
}

impl Disk {
    fn new() -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let mut config = file_config(folder.path().join("flash"), EngineChoice::Auto);
        config.device_id = Some(DeviceId(77));
        Self { config, _folder: folder }
    }

    fn create(&self) -> Driver {
        Driver::new(FileDevice::create(&self.config).unwrap())
    }

    fn open(&self) -> Driver {
        Driver::new(FileDevice::open(&self.config).unwrap())
    }

    fn refusal(&self) -> String {
        match FileDevice::open(&self.config) {
            Err(error @ FlashError::Unusable { .. }) => error.to_string(),
            other => panic!("the file should have been refused: {other:?}"),
        }
    }

    fn path(&self) -> &Path {
        &self.config.path
    }

    fn page(&self, offset: u64) -> Vec<u8> {
        let mut page = vec![0; PAGE_BYTES];
        std::fs::File::open(self.path()).unwrap().read_exact_at(&mut page, offset).unwrap();
        page
    }

    fn write(&self, offset: u64, bytes: &[u8]) {
        OpenOptions::new()
            .write(true)
            .open(self.path())
            .unwrap()
            .write_all_at(bytes, offset)
            .unwrap();
    }

    fn layout(&self) -> Layout {
        Layout::decode(&self.page(0)).unwrap()
    }

    /// Sequences of the first page of both copies of the table; `None`: damaged.
    fn sequences(&self) -> [Option<u64>; 2] {
        let layout = self.layout();
        [0, 1].map(|copy| layout.check_table(&self.page(layout.table_offset(copy, 0)), 0))
    }
}

#[test]
fn the_file_is_laid_out_as_specified() {
    let disk = Disk::new();
    let mut driver = disk.create();
    driver.program(2, 0, &[0xab, 0xcd]);
    driver.erase(5);
    driver.sync();
    drop(driver);
    let layout = disk.layout();
    assert_eq!((layout.pages_per_block, layout.device_id), (8, DeviceId(77)));
    assert!(layout.table_room >= 8 * 12, "room to raise the capacity");
    assert_eq!(disk.page(0), disk.page(PAGE_BYTES as u64), "twin superblocks");
    assert_eq!(disk.page(layout.block_offset(2) + PAGE_BYTES as u64)[0], 0xcd);
    let length = std::fs::metadata(disk.path()).unwrap().len();
    assert_eq!(length, layout.block_offset(6));
    assert_eq!(disk.sequences(), [Some(2), Some(2)], "both copies hold the erase in the end");
    let generations: Vec<_> =
        Layout::table_entries(&disk.page(layout.table_offset(1, 0))).take(8).collect();
    assert_eq!(
        generations.iter().map(|generation| generation.0).collect::<Vec<_>>(),
        [1, 1, 1, 1, 1, 2, 0, 0]
    );
    assert!(!disk.path().with_extension("creating").exists());
}

#[test]
fn other_versions_shapes_ids_and_files_are_refused_with_a_reason() {
    let disk = Disk::new();
    drop(disk.create());
    let good = disk.page(0);

    let mut newer = good.clone();
    newer[superblock::VERSION] = 9;
    disk.write(0, &newer);
    disk.write(PAGE_BYTES as u64, &newer);
    let text = disk.refusal();
    assert!(
        text.contains("version 9") && text.contains("version 1") && text.contains("flash"),
        "{text}"
    );

    disk.write(0, &good);
    disk.write(PAGE_BYTES as u64, &good);
    let mut other = Disk { config: disk.config.clone(), _folder: tempfile::tempdir().unwrap() };
    other.config.pages_per_block = 16;
    let text = other.refusal();
    assert!(text.contains("8 pages per block") && text.contains("16"), "{text}");

    other.config = FileConfig { device_id: Some(DeviceId(78)), ..disk.config.clone() };
    let text = other.refusal();
    assert!(
        text.contains(&DeviceId(77).to_string()) && text.contains(&DeviceId(78).to_string()),
        "{text}"
    );
    other.config.device_id = None;
    assert_eq!(FileDevice::open(&other.config).unwrap().device_id(), DeviceId(77));

    disk.write(0, &[0; 2 * PAGE_BYTES]);
    assert!(disk.refusal().contains("not a flash device"));
    std::fs::write(disk.path(), b"hello").unwrap();
    assert!(disk.refusal().contains("not a flash device"));
    std::fs::remove_file(disk.path()).unwrap();
    assert!(matches!(FileDevice::open(&disk.config), Err(FlashError::Io(IoError::File { .. }))));
}

#[test]
fn a_damaged_superblock_is_repaired_and_two_are_refused() {
    let disk = Disk::new();
    drop(disk.create());
    let good = disk.page(0);
    for copy in [0, 1] {
        disk.write(copy * PAGE_BYTES as u64 + superblock::TABLE_ROOM as u64, &[0xff]);
        assert_eq!(disk.open().device.stats().repairs, 1);
        assert_eq!((disk.page(0), disk.page(PAGE_BYTES as u64)), (good.clone(), good.clone()));
    }
    assert_eq!(disk.open().device.stats().repairs, 0);
    disk.write(superblock::CRC as u64, &[1, 2, 3, 4]);
    disk.write((PAGE_BYTES + superblock::CRC) as u64, &[1, 2, 3, 4]);
    assert!(disk.refusal().contains("superblock"));
}

#[test]
fn a_file_in_use_is_refused() {
    let disk = Disk::new();
    let driver = disk.create();
    assert!(disk.refusal().contains("using it"));
    drop(driver);
    disk.open();
}

#[test]
fn a_file_that_was_cut_short_is_refused() {
    let disk = Disk::new();
    drop(disk.create());
    let file = OpenOptions::new().write(true).open(disk.path()).unwrap();
    file.set_len(disk.layout().block_offset(6) - 1).unwrap();
    assert!(disk.refusal().contains("cut short"));
}

#[test]
fn creating_over_a_device_is_refused_and_an_unfinished_one_is_replaced() {
    let disk = Disk::new();
    let mut building = disk.path().as_os_str().to_owned();
    building.push(".creating");
    std::fs::write(PathBuf::from(&building), vec![1; 10_000]).unwrap();
    drop(disk.create());
    assert!(!PathBuf::from(building).exists());
    let again = FileDevice::create(&disk.config).unwrap_err();
    assert!(
        matches!(again, FlashError::Unusable { .. })
            && again.to_string().contains("exists already"),
        "{again}"
    );
}

#[test]
fn settings_out_of_bounds_are_refused() {
    let disk = Disk::new();
    let base = &disk.config;
    let bad = [
        FileConfig { pages_per_block: 1, ..base.clone() },
        FileConfig { pages_per_block: 5000, ..base.clone() },
        FileConfig { max_blocks: 0, initial_blocks: 0, ..base.clone() },
        FileConfig { max_blocks: u32::MAX, ..base.clone() },
        FileConfig { initial_blocks: 13, ..base.clone() },
        FileConfig { table_blocks: u32::MAX, ..base.clone() },
        FileConfig { queue_depth: 0, ..base.clone() },
        FileConfig { queue_depth: 5000, ..base.clone() },
    ];
    for config in bad {
        let error = FileDevice::create(&config).unwrap_err();
        assert!(matches!(error, FlashError::Io(IoError::OutOfBounds { .. })), "{error}");
        assert!(!config.path.exists());
    }
}

/// The heart of the table: whatever is torn of the copy being written, every completed erase is
/// still there.
#[test]
fn a_torn_write_of_the_table_loses_no_completed_erase() {
    let disk = Disk::new();
    let mut driver = disk.create();
    driver.erase(0);
    drop(driver);
    let layout = disk.layout();
    let before = [0, 1].map(|copy| disk.page(layout.table_offset(copy, 0)));
    let mut driver = disk.open();
    driver.erase(1);
    drop(driver);
    assert_eq!(disk.sequences(), [Some(3), Some(3)]);
    let after = disk.page(layout.table_offset(1, 0));
    let primary = 1; // sequence 3 is odd
    for sectors in 0..=8 {
        // The state in the middle of the second erase: the mirror as before, the primary partly
        // written.
        let mut torn = before[primary].clone();
        torn[..sectors * 512].copy_from_slice(&after[..sectors * 512]);
        disk.write(layout.table_offset(0, 0), &before[0]);
        disk.write(layout.table_offset(1, 0), &torn);
        let driver = disk.open();
        assert_eq!(driver.generation(0), 2, "{sectors} sectors arrived");
        let whole = torn == after;
        assert_eq!(driver.generation(1), if whole { 2 } else { 1 }, "{sectors} sectors arrived");
        let damaged = torn != after && torn != before[primary];
        assert_eq!(driver.device.stats().repairs, u64::from(damaged));
        drop(driver);
        let found = disk.sequences();
        assert_eq!(found[0], found[1], "both copies are set right at opening");
    }
}

#[test]
fn rot_in_either_copy_of_the_table_is_repaired_and_in_both_refused() {
    let disk = Disk::new();
    let mut driver = disk.create();
    for block in [0, 0, 3] {
        driver.erase(block);
    }
    drop(driver);
    let layout = disk.layout();
    for copy in [0, 1] {
        disk.write(layout.table_offset(copy, 0) + table::ENTRIES as u64, &[9]);
        let driver = disk.open();
        assert_eq!(
            (driver.generation(0), driver.generation(3), driver.device.stats().repairs),
            (3, 2, 1)
        );
        drop(driver);
        assert_eq!(disk.sequences(), [Some(4), Some(4)]);
    }
    for copy in [0, 1] {
        disk.write(layout.table_offset(copy, 0) + table::SEQUENCE as u64, &[0xff]);
    }
    assert!(disk.refusal().contains("page 0 of its block table"));
}

#[test]
fn neighbouring_programs_become_one_write() {
    let disk = Disk::new();
    let mut driver = disk.create();
    for index in 0..8 {
        for block in 0..3 {
            let op = driver.program_op(block, index, &[index as u8]);
            driver.submit(op);
        }
    }
    driver.drain();
    let stats = driver.device.stats();
    assert_eq!((stats.programs, stats.program_writes), (24, 3));
}

#[test]
fn the_capacity_can_be_raised_and_lowered_between_openings() {
    let mut disk = Disk::new();
    drop(disk.create());
    disk.config.max_blocks = 40;
    let mut driver = disk.open();
    driver.grow(34).unwrap();
    assert_eq!(driver.device.geometry().blocks, 40);
    drop(driver);
    disk.config.max_blocks = 10;
    assert_eq!(disk.open().device.geometry().max_blocks, 40, "what exists is not taken away");
    disk.config.max_blocks = 1_000_000;
    assert_eq!(
        disk.open().device.geometry().max_blocks,
        disk.layout().table_room,
        "as far as the table has room"
    );
}

#[test]
fn growth_over_several_table_pages_survives_a_crash_in_the_middle() {
    let mut disk = Disk::new();
    disk.config.pages_per_block = 2;
    disk.config.initial_blocks = 1000;
    disk.config.max_blocks = 1100;
    let mut driver = disk.create();
    driver.erase(4);
    let layout = disk.layout();
    let first = [0, 1].map(|copy| disk.page(layout.table_offset(copy, 0)));
    driver.grow(100).unwrap();
    drop(driver);
    let mut driver = disk.open();
    assert_eq!(driver.device.geometry().blocks, 1100);
    driver.device.observe(BlockId(1099), Generation(1), 0).unwrap();
    driver.program(1099, 0, &[3, 4]);
    drop(driver);
    // A crash in the middle: the second page of the table has grown, the first has not.
    for (copy, page) in (0..).zip(&first) {
        disk.write(layout.table_offset(copy, 0), page);
    }
    let mut driver = disk.open();
    assert_eq!((driver.device.geometry().blocks, driver.generation(4)), (1000, 2));
    driver.grow(100).unwrap();
    assert_eq!(driver.device.geometry().blocks, 1100);
    drop(driver);
    let mut driver = disk.open();
    assert_eq!(driver.device.geometry().blocks, 1100);
    assert_eq!(
        driver.read(1099, 0, 2),
        [0, 0],
        "what lay beyond an unfinished growth is zeros again"
    );
}

#[test]
fn dropping_the_device_with_operations_in_flight_is_safe() {
    let disk = Disk::new();
    let mut driver = disk.create();
    for block in 0..3 {
        let op = driver.program_op(block, 0, &[1; 8]);
        driver.submit(op);
    }
    let op = FlashOp::Grow { token: driver.token(), blocks: 6 };
    driver.submit(op);
    let op = FlashOp::Erase { token: driver.token(), block: BlockId(4) };
    driver.submit(op);
    driver.device.poll(&mut Vec::new());
    drop(driver);
    let mut driver = disk.open();
    assert_eq!(driver.read(0, 0, 8), [1; 8], "what was started was finished");
    assert!(driver.device.geometry().blocks >= 6);
    assert!((1..=2).contains(&driver.generation(4)));
}

#[test]
fn the_wake_descriptor_tells_of_completions() {
    use timestone_io::{Interest, PollEvents, PollToken, Poller};
    let disk = Disk::new();
    let mut driver = disk.create();
    let mut poller = Poller::new().unwrap();
    let mut events = PollEvents::with_capacity(4);
    poller.register_fd(driver.device.wake_fd().unwrap(), PollToken(1), Interest::READABLE).unwrap();
    let op = driver.program_op(0, 0, &[1]);
    driver.submit(op);
    let op = FlashOp::Erase { token: driver.token(), block: BlockId(1) };
    driver.submit(op);
    let mut done = Vec::new();
    let started = std::time::Instant::now();
    while driver.device.in_flight() > 0 {
        if driver.device.poll(&mut done) == 0 {
            poller.poll(&mut events, Some(std::time::Duration::from_secs(10))).unwrap();
        }
        assert!(started.elapsed().as_secs() < 9, "a wake-up was missed");
    }
    assert_eq!(done.len(), 2);
}

/// A thread waits for one descriptor, whichever of its devices completes something, and whichever of
/// them was opened later or anew.
#[test]
fn devices_may_share_a_wake_descriptor_that_outlives_each_of_them() {
    use std::os::fd::AsRawFd as _;
    use timestone_io::{Interest, PollEvents, PollToken, Poller, WakeSignal};
    let wake = WakeSignal::new().unwrap();
    let shared = || {
        let mut disk = Disk::new();
        disk.config.wake = Some(wake.clone());
        disk
    };
    let (one, other) = (shared(), shared());
    let mut first = one.create();
    let mut poller = Poller::new().unwrap();
    let mut events = PollEvents::with_capacity(4);
    poller.register_fd(first.device.wake_fd().unwrap(), PollToken(1), Interest::READABLE).unwrap();
    let mut awaited = |driver: &mut Driver, what: &str| {
        let op = driver.program_op(0, 0, &[1]);
        driver.submit(op);
        let started = std::time::Instant::now();
        while driver.device.in_flight() > 0 {
            if driver.device.poll(&mut Vec::new()) == 0 {
                poller.poll(&mut events, Some(std::time::Duration::from_secs(10))).unwrap();
            }
            assert!(started.elapsed().as_secs() < 9, "a wake-up of {what} was missed");
        }
    };
    let mut second = other.create();
    let raw = |driver: &Driver| driver.device.wake_fd().unwrap().as_raw_fd();
    assert_eq!(raw(&first), raw(&second));
    awaited(&mut second, "the second device");
    awaited(&mut first, "the first device");
    drop(first);
    drop(second);
    let mut again = other.open();
    again.erase(0);
    awaited(&mut again, "a device that was opened again");
}

#[test]
fn growth_leaves_others_their_room_and_takes_nothing_when_it_fails() {
    let mut disk = Disk::new();
    disk.config.keep_free_bytes = u64::MAX / 2;
    let mut driver = disk.create();
    let length = std::fs::metadata(disk.path()).unwrap().len();
    driver.program(2, 0, &[1]);
    match driver.grow(2) {
        Err(error @ FlashError::Full { .. }) => {
            let text = error.to_string();
            assert!(
                text.contains("bytes are free") && text.contains(disk.path().to_str().unwrap()),
                "{text}"
            );
            assert!(error.retryable());
        }
        other => panic!("there is no room: {other:?}"),
    }
    assert_eq!(std::fs::metadata(disk.path()).unwrap().len(), length);
    driver.program(2, 1, &[2]);
    driver.sync();
    assert_eq!(driver.read(2, 0, 2), [1, 2], "nothing else has failed");
    drop(driver);
    disk.config.keep_free_bytes = 0;
    disk.open().grow(2).unwrap();
}
