//! What the operating system spends on the files of `flash` and `wal`, and how long they take.
//!
//! CPU time is the process's, the kernel's threads for it included. A flash device is programmed in
//! small and in large pieces over blocks that are erased before, with a sync after each round, as a
//! store that collects does; every operation counts, as the simulator counts them.

use std::error::Error;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use timestone_flash::{
    AlignedBuffer, BlockId, FileConfig, FileDevice, FlashCompletion, FlashDevice, FlashOp,
    Geometry, PAGE_BYTES, PageId, Rejected, Token,
};
use timestone_sim::DeviceCosts;
use timestone_types::{Epoch, ShardId, Timestamp};
use timestone_wal::record::FIRST_OTHER_KIND;
use timestone_wal::{
    BatchHead, BatchNumber, DeviceKind, Log, LogConfig, LogEvent, LogRecord, RecordNumber,
};

use crate::neighbours::Around;
use crate::threads::{missing, pin};
use crate::{ROUNDS, cpu, line, median};

/// Blocks of the device, 1 MiB each.
const BLOCKS: u32 = 96;
/// Pages of a small and of a large program: a page group that could not wait, and a full one.
const SMALL: u32 = 16;
const LARGE: u32 = 128;
/// Operations under way at once: a store hands in a group when it is full, and the device is
/// through with it long before the next.
const DEPTH: usize = 1;
/// Single operations whose time is taken.
const SINGLE: u32 = 200;
/// Bytes of a small and of a large write of a log, and how many of each.
const LOG_BYTES: [usize; 2] = [4 * 1024, 128 * 1024];
const LOG_WRITES: u32 = 400;
const RECORD_BYTES: usize = 512;
const TIMEOUT: Duration = Duration::from_secs(5);

/// All figures of devices; they are made in a folder beside `file`.
pub(crate) fn measure(file: &Path, around: &Around) -> Result<DeviceCosts, Box<dyn Error>> {
    let beside =
        file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = tempfile::tempdir_in(beside)?;
    let config = FileConfig {
        initial_blocks: BLOCKS,
        ..FileConfig::new(folder.path().join("flash"), BLOCKS)
    };
    let mut flash =
        Flash { device: FileDevice::create(&config)?, buffers: Vec::new(), done: Vec::new() };
    flash.program_all(LARGE)?;
    let mut costs = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (place, pages) in [SMALL, LARGE].into_iter().enumerate() {
            costs[place].push(around.time(|| flash.program_all(pages))?);
        }
    }
    // Both wrote the same bytes, in more and in fewer operations.
    let [small, large] = costs.map(median);
    let geometry = flash.device.geometry();
    let operations = |pages| f64::from(operations(geometry, pages));
    let operation = ((small - large) / (operations(SMALL) - operations(LARGE))).max(0.0);
    let byte = ((large - operation * operations(LARGE)) / geometry.usable_bytes() as f64).max(0.0);
    let (read, program) = (flash.read_latency()?, flash.program_latency()?);
    let interruption = flash.interruption(around.cores)?;
    drop(flash);
    let mut writes = [Vec::new(), Vec::new()];
    let (mut latencies, mut opened) = (Vec::new(), 0);
    let mut fresh_log = |device, bytes| {
        let ((spent, latency), times) = around.measure(|| {
            opened += 1;
            log(&folder.path().join(format!("log-{opened}")), device, bytes)
        })?;
        Ok::<_, Box<dyn Error>>((spent / times, latency))
    };
    for _ in 0..ROUNDS {
        for (place, bytes) in LOG_BYTES.into_iter().enumerate() {
            let ((spent, latency), (own, _)) =
                (fresh_log(DeviceKind::Ssd, bytes)?, fresh_log(DeviceKind::None, bytes)?);
            writes[place].push((spent - own).max(0.0));
            if place == 0 {
                latencies.push(latency);
            }
        }
    }
    let [few, many] = writes.map(median);
    let (log, log_byte) = line((LOG_BYTES[0] as f64, few), (LOG_BYTES[1] as f64, many));
    Ok(DeviceCosts {
        flash: operation,
        flash_byte: byte,
        flash_read_latency: read,
        flash_program_latency: program,
        log,
        log_byte,
        log_latency: median(latencies),
        interruption,
    })
}

/// Operations that write a device over in pieces of so many pages: erases, programs, and a sync.
const fn operations(geometry: Geometry, pages: u32) -> u32 {
    geometry.blocks * (1 + geometry.pages_per_block.div_ceil(pages)) + 1
}

/// A device and its idle buffers.
struct Flash {
    device: FileDevice,
    buffers: Vec<AlignedBuffer>,
    done: Vec<FlashCompletion>,
}

impl Flash {
    /// Writes over the whole device in pieces of so many pages; what that took of the cores.
    fn program_all(&mut self, pages: u32) -> Result<f64, Box<dyn Error>> {
        let geometry = self.device.geometry();
        let begin = cpu();
        for block in 0..geometry.blocks {
            self.submit(FlashOp::Erase { token: Token(0), block: BlockId(block) }, DEPTH)?;
        }
        self.settle(0)?;
        for block in 0..geometry.blocks {
            for first in (0..geometry.pages_per_block).step_by(pages as usize) {
                let buffer = self.buffer(pages as usize);
                let page = geometry.page(BlockId(block), first);
                self.submit(FlashOp::Program { token: Token(0), page, buffer }, DEPTH)?;
                // Neighbours that are submitted between two polls would become one write.
                self.device.poll(&mut self.done);
                self.collect()?;
            }
        }
        self.submit(FlashOp::Sync { token: Token(0) }, 1)?;
        self.settle(0)?;
        Ok((cpu() - begin).as_nanos() as f64)
    }

    /// For how long cores are interrupted by what [`DeviceCosts::INTERRUPTS`] bytes need, besides
    /// the one that asks for it: what a thread on one core misses while another core writes the
    /// device over, and the other way round, without what it would have missed in any case.
    fn interruption(&mut self, [one, another]: [usize; 2]) -> Result<f64, Box<dyn Error>> {
        let everywhere = rustix::thread::sched_getaffinity(None)?;
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            let mut missed = 0.0;
            for (works, watches) in [(one, another), (another, one)] {
                pin(works)?;
                let (begin, over) = (Instant::now(), AtomicBool::new(false));
                let (programs, idles) = thread::scope(|scope| -> Result<_, Box<dyn Error>> {
                    let watching =
                        scope.spawn(|| missing(watches, || over.load(Ordering::Relaxed)));
                    let done = self.program_all(SMALL);
                    let took = begin.elapsed();
                    over.store(true, Ordering::Relaxed);
                    let programs = watching.join().map_err(|_| "a watching thread panicked")??;
                    done?;
                    let idles = missing(watches, || begin.elapsed() > took * 2)?;
                    Ok((programs, idles))
                })?;
                missed += programs - idles;
            }
            rounds.push(missed);
        }
        rustix::thread::sched_setaffinity(None, &everywhere)?;
        let parts = self.device.geometry().usable_bytes() / DeviceCosts::INTERRUPTS;
        Ok((median(rounds) / parts as f64).max(0.0))
    }

    /// How long a read of one page takes, alone.
    fn read_latency(&mut self) -> Result<f64, Box<dyn Error>> {
        let geometry = self.device.geometry();
        let all = geometry.blocks * geometry.pages_per_block;
        let mut took = Vec::new();
        for number in 0..SINGLE {
            // Far from each other, so that nothing of the disk's reads them ahead.
            let page = PageId(number.wrapping_mul(2_654_435_761) % all);
            let (buffer, begin) = (self.buffer(1), Instant::now());
            self.submit(FlashOp::Read { token: Token(0), page, pages: 1, buffer }, 1)?;
            self.settle(0)?;
            took.push(begin.elapsed().as_nanos() as f64);
        }
        Ok(median(took))
    }

    /// How long a program of a whole block takes, alone.
    fn program_latency(&mut self) -> Result<f64, Box<dyn Error>> {
        let geometry = self.device.geometry();
        let mut took = Vec::new();
        for block in 0..geometry.blocks {
            self.submit(FlashOp::Erase { token: Token(0), block: BlockId(block) }, 1)?;
            self.settle(0)?;
            let begin = Instant::now();
            for first in (0..geometry.pages_per_block).step_by(LARGE as usize) {
                let buffer = self.buffer(LARGE as usize);
                self.submit(
                    FlashOp::Program {
                        token: Token(0),
                        page: geometry.page(BlockId(block), first),
                        buffer,
                    },
                    DEPTH,
                )?;
            }
            self.settle(0)?;
            took.push(begin.elapsed().as_nanos() as f64);
        }
        Ok(median(took))
    }

    fn buffer(&mut self, pages: usize) -> AlignedBuffer {
        match self.buffers.pop() {
            Some(buffer) if buffer.len() == pages * PAGE_BYTES => buffer,
            _ => AlignedBuffer::zeroed(pages * PAGE_BYTES),
        }
    }

    fn submit(&mut self, op: FlashOp, depth: usize) -> Result<(), Box<dyn Error>> {
        self.settle(depth - 1)?;
        self.device.submit(op).map_err(|Rejected { reason, .. }| {
            format!("the flash device refused: {reason:?}").into()
        })
    }

    /// Goes on until at most `most` operations are in flight.
    fn settle(&mut self, most: usize) -> Result<(), Box<dyn Error>> {
        while self.device.in_flight() > most {
            if self.device.poll(&mut self.done) == 0 {
                self.device.wait(TIMEOUT);
            }
            self.collect()?;
        }
        Ok(())
    }

    fn collect(&mut self) -> Result<(), Box<dyn Error>> {
        for done in self.done.drain(..) {
            done.result?;
            self.buffers.extend(done.buffer);
        }
        Ok(())
    }
}

/// CPU time and length of a write of so many bytes to a log, alone: the mean and the middle of
/// many.
fn log(path: &Path, device: DeviceKind, bytes: usize) -> Result<(f64, f64), Box<dyn Error>> {
    let recovery = Log::open(path, LogConfig { device, ..LogConfig::default() })?;
    let begin = Instant::now();
    let now = || Timestamp::from_nanos(1).saturating_add(begin.elapsed());
    let mut log = recovery.finish(now())?;
    let (shard, mut records, mut events) = (ShardId::new(1), Vec::new(), Vec::new());
    for _ in 0..bytes / RECORD_BYTES {
        LogRecord::Other { kind: FIRST_OTHER_KIND, bytes: &[7; RECORD_BYTES] }.encode(&mut records);
    }
    let (mut took, mut spent) = (Vec::new(), Duration::ZERO);
    for number in 1..=LOG_WRITES {
        let batch = BatchNumber::new(u64::from(number));
        let (sent, before) = (Instant::now(), cpu());
        let first = RecordNumber::new(u64::from(number) << 32);
        log.append_batch(BatchHead { shard, batch, epoch: Epoch::new(1), first }, &records)?;
        while !log.is_idle() {
            log.pump(now(), &mut events);
            if !log.is_idle() {
                log.wait(TIMEOUT);
            }
        }
        spent += cpu() - before;
        took.push(sent.elapsed().as_nanos() as f64);
        for event in events.drain(..) {
            if let LogEvent::Failed(error) | LogEvent::Degraded(error) = event {
                return Err(error.into());
            }
        }
        log.release(shard, batch);
    }
    log.shutdown(now(), &mut events)?;
    Ok((spent.as_nanos() as f64 / f64::from(LOG_WRITES), median(took)))
}
