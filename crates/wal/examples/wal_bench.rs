//! Measures the log on a real directory: records a second, and the time of a commit, by group size.
//!
//! `cargo run --release -p timestone-wal --example wal_bench -- [DIRECTORY] [SECONDS]`
//!
//! Each round appends a group of batches of one 600-byte record each, as many shards would in one
//! turn, pumps until they are durable, and counts that as one commit. Released as it goes, so that
//! files are reused as in a server. The files go to a folder of their own below the directory,
//! which is removed at the end.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use timestone_types::{Epoch, ShardId, Timestamp};
use timestone_wal::device::memory::MemoryDisk;
use timestone_wal::record::FIRST_OTHER_KIND;
use timestone_wal::{
    BatchHead, BatchNumber, DeviceKind, Log, LogConfig, LogEvent, LogRecord, RecordNumber,
};

const RECORD_BYTES: usize = 600;
const GROUPS: [u64; 3] = [1, 8, 64];

/// What is measured: the disk, the log's own work (with one more copy, to the disk in memory), or
/// next to nothing.
#[derive(Clone, Copy, Debug)]
enum Device {
    Ssd,
    Memory,
    None,
}

/// How the bench waits for a completion.
#[derive(Clone, Copy)]
enum Waiting {
    Spin,
    Block,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let parent = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let directory = parent.join("timestone-wal-bench");
    let seconds: u64 = arguments.next().map_or(Ok(3), |text| text.parse())?;
    println!("{RECORD_BYTES}-byte records, {seconds} s each, files in {}", directory.display());
    println!(
        "{:>8} {:>6} {:>8} {:>12} {:>12} {:>10} {:>10} {:>8}",
        "device", "group", "waiting", "commits/s", "records/s", "p50 us", "p99 us", "open ms"
    );
    for device in [Device::Ssd, Device::Memory, Device::None] {
        for group in GROUPS {
            for waiting in [Waiting::Spin, Waiting::Block] {
                if matches!((device, waiting), (Device::Ssd, _) | (_, Waiting::Spin)) {
                    run(&directory, device, group, waiting, Duration::from_secs(seconds))?;
                }
            }
        }
    }
    std::fs::remove_dir_all(&directory)?;
    Ok(())
}

fn run(
    directory: &Path,
    device: Device,
    group: u64,
    waiting: Waiting,
    length: Duration,
) -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    let now = || Timestamp::from_nanos(1).saturating_add(start.elapsed());
    let config = |device| LogConfig { device, ..LogConfig::default() };
    let recovery = match device {
        Device::Ssd => Log::open(directory, config(DeviceKind::Ssd))?,
        Device::None => Log::open(directory, config(DeviceKind::None))?,
        Device::Memory => Log::open_on(MemoryDisk::new().device(), config(DeviceKind::Ssd))?,
    };
    let mut log = recovery.finish(now())?;
    let opened_ms = start.elapsed().as_millis();
    let shard = ShardId::new(1);
    let mut record = Vec::new();
    LogRecord::Other { kind: FIRST_OTHER_KIND, bytes: &[7; RECORD_BYTES] }.encode(&mut record);
    let mut events = Vec::new();
    let mut times = Histogram::<u64>::new(3)?;
    // Batch numbers go on from those of the runs before, whose files are released with the first
    // release here.
    let mut batch = u64::try_from(std::time::UNIX_EPOCH.elapsed()?.as_nanos())?;
    let begin = Instant::now();
    while begin.elapsed() < length {
        let sent = Instant::now();
        for _ in 0..group {
            batch += 1;
            let (number, first) = (BatchNumber::new(batch), RecordNumber::new(batch));
            log.append_batch(
                BatchHead { shard, batch: number, epoch: Epoch::new(1), first },
                &record,
            )?;
        }
        while !log.is_idle() {
            log.pump(now(), &mut events);
            if matches!(waiting, Waiting::Block) && !log.is_idle() {
                log.wait(Duration::from_millis(10));
            }
        }
        times.record(u64::try_from(sent.elapsed().as_nanos())?)?;
        for event in events.drain(..) {
            match event {
                LogEvent::Failed(error) | LogEvent::Degraded(error) => return Err(error.into()),
                LogEvent::Durable { .. } | LogEvent::CopyForwardWanted { .. } => {}
            }
        }
        log.release(shard, BatchNumber::new(batch));
    }
    let took = begin.elapsed().as_secs_f64();
    let commits = times.len() as f64 / took;
    println!(
        "{:>8} {group:>6} {:>8} {commits:>12.0} {:>12.0} {:>10.1} {:>10.1} {opened_ms:>8}",
        format!("{device:?}").to_lowercase(),
        if matches!(waiting, Waiting::Spin) { "spin" } else { "block" },
        commits * group as f64,
        times.value_at_quantile(0.5) as f64 / 1000.0,
        times.value_at_quantile(0.99) as f64 / 1000.0,
    );
    log.shutdown(now(), &mut events)?;
    Ok(())
}
