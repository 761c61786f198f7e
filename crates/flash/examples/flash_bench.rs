//! Measures a file device: 4 KiB random reads at several depths, sequential programs in 128 KiB
//! pieces, sequential reads in pieces of 256 KiB, as recovery reads, erases.
//!
//! `cargo run --release -p timestone-flash --example flash_bench -- FILE [MIB] [uring|threads]`
//! creates FILE (it must not exist), uses it and removes it. It prints one line per measurement,
//! and says which engine and whether O_DIRECT was in use.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use timestone_flash::{
    AlignedBuffer, BlockId, FileConfig, FileDevice, FlashCompletion, FlashDevice, FlashError,
    FlashOp, PAGE_BYTES, PageId, RejectedReason, Token,
};
use timestone_io::EngineChoice;
use timestone_types::random::Seed;

const READS: u64 = 200_000;
const PROGRAM_PAGES: u32 = 32;
/// How a store that is recovered by a scan reads.
const SCAN_PAGES: u32 = 64;
const SCAN_DEPTH: usize = 16;
const TIMEOUT: Duration = Duration::from_secs(5);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path =
        PathBuf::from(arguments.next().ok_or("usage: flash_bench FILE [MIB] [uring|threads]")?);
    let blocks: u32 = arguments.next().map_or(Ok(2048), |mebibytes| mebibytes.parse())?;
    let engine = match arguments.next().as_deref() {
        None => EngineChoice::Auto,
        Some("uring") => EngineChoice::Uring,
        Some("threads") => EngineChoice::Threads,
        Some(other) => return Err(format!("no engine is called {other}").into()),
    };
    let config = FileConfig { initial_blocks: blocks, engine, ..FileConfig::new(&path, blocks) };
    let started = Instant::now();
    let device = FileDevice::create(&config)?;
    let outcome = Bench { device, buffers: Vec::new(), done: Vec::new() }.measure(started);
    std::fs::remove_file(&path)?;
    outcome
}

/// A device and its idle buffers.
struct Bench {
    device: FileDevice,
    buffers: Vec<AlignedBuffer>,
    done: Vec<FlashCompletion>,
}

impl Bench {
    fn measure(mut self, started: Instant) -> Result<(), Box<dyn std::error::Error>> {
        let geometry = self.device.geometry();
        let mebibytes = geometry.usable_bytes() >> 20;
        println!(
            "engine {}, O_DIRECT {}, {mebibytes} MiB",
            self.device.engine().name(),
            self.device.is_direct()
        );
        report("create and fill with zeros", mebibytes, "MiB", started.elapsed());
        for (depth, rounds) in [(1, 0), (8, 1)] {
            if rounds > 0 {
                let started = Instant::now();
                self.erase_all()?;
                report("erases, 32 at once", geometry.blocks.into(), "erases", started.elapsed());
            }
            let started = Instant::now();
            self.program_all(depth)?;
            report(
                &format!("sequential programs of 128 KiB, depth {depth}"),
                mebibytes,
                "MiB",
                started.elapsed(),
            );
        }
        let started = Instant::now();
        self.read_all()?;
        report(
            &format!("sequential reads of 256 KiB, depth {SCAN_DEPTH}"),
            mebibytes,
            "MiB",
            started.elapsed(),
        );
        for depth in [1, 8, 32, 128] {
            let count = READS.min(depth * 20_000);
            let started = Instant::now();
            self.read_at_random(count, depth as usize)?;
            report(
                &format!("random reads of 4 KiB, depth {depth}"),
                count,
                "reads",
                started.elapsed(),
            );
        }
        Ok(())
    }

    fn erase_all(&mut self) -> Result<(), FlashError> {
        for block in 0..self.device.geometry().blocks {
            self.submit(FlashOp::Erase { token: Token(0), block: BlockId(block) }, 32)?;
        }
        self.settle(0)
    }

    fn program_all(&mut self, depth: usize) -> Result<(), FlashError> {
        let geometry = self.device.geometry();
        for page in (0..geometry.blocks * geometry.pages_per_block).step_by(PROGRAM_PAGES as usize)
        {
            let buffer = self.buffer(PROGRAM_PAGES as usize);
            self.submit(FlashOp::Program { token: Token(0), page: PageId(page), buffer }, depth)?;
            // Each piece is a write of its own here: neighbours submitted between two polls would
            // become one.
            self.device.poll(&mut self.done);
            self.collect()?;
        }
        self.submit(FlashOp::Sync { token: Token(0) }, 1)?;
        self.settle(0)
    }

    fn read_all(&mut self) -> Result<(), FlashError> {
        let geometry = self.device.geometry();
        for page in (0..geometry.blocks * geometry.pages_per_block).step_by(SCAN_PAGES as usize) {
            let (pages, buffer) = (SCAN_PAGES, self.buffer(SCAN_PAGES as usize));
            let read = FlashOp::Read { token: Token(0), page: PageId(page), pages, buffer };
            self.submit(read, SCAN_DEPTH)?;
        }
        self.settle(0)
    }

    fn read_at_random(&mut self, count: u64, depth: usize) -> Result<(), FlashError> {
        let geometry = self.device.geometry();
        let pages = u64::from(geometry.blocks) * u64::from(geometry.pages_per_block);
        let mut dice = Seed(1).dice();
        for _ in 0..count {
            let page = PageId(dice.below(pages) as u32);
            let buffer = self.buffer(1);
            self.submit(FlashOp::Read { token: Token(0), page, pages: 1, buffer }, depth)?;
        }
        self.settle(0)
    }

    fn buffer(&mut self, pages: usize) -> AlignedBuffer {
        match self.buffers.pop() {
            Some(buffer) if buffer.len() == pages * PAGE_BYTES => buffer,
            _ => AlignedBuffer::zeroed(pages * PAGE_BYTES),
        }
    }

    fn submit(&mut self, op: FlashOp, depth: usize) -> Result<(), FlashError> {
        self.settle(depth - 1)?;
        self.device.submit(op).map_err(|rejected| match rejected.reason {
            RejectedReason::Refused(error) => error,
            RejectedReason::QueueFull => {
                FlashError::Full { reason: "the queue is shallower than the depth".to_owned() }
            }
        })
    }

    /// Goes on until at most `most` operations are in flight.
    fn settle(&mut self, most: usize) -> Result<(), FlashError> {
        while self.device.in_flight() > most {
            if self.device.poll(&mut self.done) == 0 {
                self.device.wait(TIMEOUT);
            }
            self.collect()?;
        }
        Ok(())
    }

    fn collect(&mut self) -> Result<(), FlashError> {
        for done in self.done.drain(..) {
            done.result?;
            self.buffers.extend(done.buffer);
        }
        Ok(())
    }
}

fn report(what: &str, count: u64, unit: &str, elapsed: Duration) {
    let seconds = elapsed.as_secs_f64();
    println!(
        "{what:44} {:>10.0} {unit}/s   ({:.1} µs each)",
        count as f64 / seconds,
        seconds * 1e6 / count as f64
    );
}
