//! Tries a zoned block device of the kernel: whether it is refused, formatted, used and found again
//! as docs/design/zoned.md says. `tests/zoned/run` runs it on emulated devices.
//!
//! ```text
//! zoned_check DEVICE info                 its zones, limits and blocks; changes nothing
//! zoned_check DEVICE expect-refusal       succeeds when something else is on it
//! zoned_check DEVICE use SEED uring|threads   DESTROYS what it holds; a workload against a model, and restarts
//! zoned_check DEVICE find SEED            succeeds when it is as the last `use` has left it
//! ```
//!
//! What fails says why, and ends with status 1.

use std::path::Path;
use std::time::{Duration, Instant};

use timestone_flash::{
    AlignedBuffer, BlockId, FlashCompletion, FlashDevice, FlashError, FlashOp, Generation,
    KernelZones, Overwrite, PAGE_BYTES, RejectedReason, Token, ZonedConfig, ZonedDevice,
    ZonedMedium,
};
use timestone_io::EngineChoice;
use timestone_types::random::Seed;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const DEPTH: u32 = 64;
/// Blocks that the workload uses, and how many of them it programs at once.
const BLOCKS: u32 = 12;
const OPEN: u32 = 4;
const STEPS: u32 = 400;
const OWNER: u64 = 0x7e57;
const WAIT: Duration = Duration::from_secs(10);

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let usage = "usage: zoned_check DEVICE info|expect-refusal|use SEED uring|threads|find SEED";
    let (device, command) = match &arguments[..] {
        [device, command, ..] => (Path::new(device), command.as_str()),
        _ => return Err(usage.into()),
    };
    let seed = || -> Outcome<u64> { Ok(arguments.get(2).ok_or(usage)?.parse()?) };
    match command {
        "info" => info(device),
        "expect-refusal" => expect_refusal(device),
        "use" => {
            let engine = match arguments.get(3).map(String::as_str) {
                Some("uring") => EngineChoice::Uring,
                Some("threads") => EngineChoice::Threads,
                _ => return Err(usage.into()),
            };
            World::format(device, engine)?.live(device, seed()?)
        }
        "find" => find(device, seed()?),
        _ => Err(usage.into()),
    }
}

fn config() -> ZonedConfig {
    ZonedConfig { open_blocks: OPEN, owner: OWNER, queue_depth: DEPTH, ..ZonedConfig::default() }
}

fn info(path: &Path) -> Outcome<()> {
    let mut medium = KernelZones::open(path, DEPTH, EngineChoice::Auto)?;
    let (limits, zones) = (medium.limits(), medium.report(0, usize::MAX)?);
    let of = |kind| zones.iter().filter(|zone| zone.kind == kind).count();
    let last = zones.last().ok_or("no zones")?;
    println!(
        "{}: {} zones of {} KiB ({} conventional), capacity {} KiB, at most {} open and {} active \
         (0: any number), engine {}",
        path.display(),
        zones.len(),
        last.length >> 10,
        of(timestone_io::ZoneKind::Conventional),
        last.capacity >> 10,
        limits.max_open,
        limits.max_active,
        medium.engine().name(),
    );
    Ok(())
}

fn expect_refusal(path: &Path) -> Outcome<()> {
    let medium = Box::new(KernelZones::open(path, DEPTH, EngineChoice::Auto)?);
    match ZonedDevice::open_or_format(medium, &config()) {
        Err(error @ FlashError::Unusable { .. }) => {
            println!("refused: {error}");
            Ok(())
        }
        Err(error) => Err(error.into()),
        Ok((_, formatted)) => Err(format!("it was opened (formatted: {formatted})").into()),
    }
}

/// A device and what it should hold.
struct World {
    device: ZonedDevice,
    engine: EngineChoice,
    /// Of each block its generation and the bytes of its pages.
    model: Vec<(u32, Vec<u8>)>,
    done: Vec<FlashCompletion>,
}

impl World {
    fn format(path: &Path, engine: EngineChoice) -> Outcome<Self> {
        let started = Instant::now();
        let medium = Box::new(KernelZones::open(path, DEPTH, engine)?);
        let device = ZonedDevice::format(medium, &config(), Overwrite::Everything)?;
        let geometry = device.geometry();
        println!(
            "formatted in {:.1?}: {} blocks of {} pages, {:?}",
            started.elapsed(),
            geometry.blocks,
            geometry.pages_per_block,
            device.identity()
        );
        let model = vec![(1, Vec::new()); BLOCKS.min(geometry.blocks) as usize];
        Ok(Self { device, engine, model, done: Vec::new() })
    }

    fn submit(&mut self, op: FlashOp) -> Outcome<()> {
        let mut op = op;
        loop {
            match self.device.submit(op) {
                Ok(()) => return Ok(()),
                Err(rejected) => match rejected.reason {
                    RejectedReason::Refused(error) => return Err(error.into()),
                    RejectedReason::QueueFull => {
                        op = rejected.op;
                        self.settle_one()?;
                    }
                },
            }
        }
    }

    fn settle_one(&mut self) -> Outcome<()> {
        if self.device.poll(&mut self.done) == 0 {
            self.device.wait(WAIT);
        }
        for done in self.done.drain(..) {
            done.result?;
        }
        Ok(())
    }

    fn settle(&mut self) -> Outcome<()> {
        while self.device.in_flight() > 0 {
            self.settle_one()?;
        }
        Ok(())
    }

    /// Programs pages filled with a byte, in single pages that travel together.
    fn program(&mut self, block: u32, count: u32, byte: u8) -> Outcome<()> {
        for _ in 0..count {
            let pages = &mut self.model[block as usize].1;
            let page = self.device.geometry().page(BlockId(block), pages.len() as u32);
            pages.push(byte);
            let mut buffer = AlignedBuffer::zeroed(PAGE_BYTES);
            buffer.fill(byte);
            self.submit(FlashOp::Program { token: Token(0), page, buffer })?;
        }
        Ok(())
    }

    fn erase(&mut self, block: u32) -> Outcome<()> {
        let (generation, pages) = &mut self.model[block as usize];
        *generation += 1;
        pages.clear();
        self.submit(FlashOp::Erase { token: Token(0), block: BlockId(block) })
    }

    fn sync(&mut self) -> Outcome<()> {
        self.settle()?;
        self.submit(FlashOp::Sync { token: Token(0) })?;
        self.settle()
    }

    /// Programs blocks, a few at a time, seals and erases them, and opens the device again and
    /// again.
    fn live(mut self, path: &Path, seed: u64) -> Outcome<()> {
        let started = Instant::now();
        let (mut dice, mut restarts) = (Seed(seed).dice(), 0);
        let pages_per_block = self.device.geometry().pages_per_block;
        let mut open: Vec<u32> = Vec::new();
        for step in 0..STEPS {
            let block = dice.below(self.model.len() as u64) as u32;
            let (filled, byte) =
                (self.model[block as usize].1.len() as u32, (1 + step % 250) as u8);
            if open.contains(&block) && filled < pages_per_block {
                let count = 1 + dice.below(u64::from(pages_per_block - filled).min(200)) as u32;
                self.program(block, count, byte)?;
            } else if open.contains(&block) || filled > 0 {
                self.settle()?;
                self.erase(block)?;
                open.retain(|&other| other != block);
            } else if open.len() < OPEN as usize {
                // It may be being erased.
                self.settle()?;
                open.push(block);
                self.program(block, 1, byte)?;
            } else {
                let done = open.remove(dice.below(OPEN.into()) as usize);
                self.settle()?;
                self.device.seal(BlockId(done));
            }
            if step % 90 == 89 {
                self.sync()?;
                self.check()?;
                self = self.restart(path)?;
                // Who opens a device again goes on in new blocks.
                open.clear();
                restarts += 1;
            }
        }
        self.sync()?;
        self.check()?;
        let (active, stats) = (self.device.activity(), self.device.stats());
        println!(
            "{STEPS} steps, {restarts} restarts in {:.1?}: as the model; active zones now and at \
             most {active:?}; {stats:?}",
            started.elapsed()
        );
        // What `find` finds: block 0 as the seed has it.
        self.erase(0)?;
        self.settle()?;
        self.program(0, 5, seed as u8)?;
        self.sync()
    }

    /// Every page of the model, and zeros behind.
    fn check(&mut self) -> Outcome<()> {
        let geometry = self.device.geometry();
        for block in 0..self.model.len() as u32 {
            let (generation, pages) = self.model[block as usize].clone();
            let found = self.device.generation(BlockId(block)).0;
            if found != generation {
                return Err(format!("block {block}: generation {found}, not {generation}").into());
            }
            let known = self.device.programmed(BlockId(block)).is_some();
            let end = if known { pages.len() as u32 } else { geometry.pages_per_block };
            for (first, count) in (0..end).step_by(64).map(|first| (first, 64.min(end - first))) {
                let bytes = read(&mut self.device, block, first, count)?;
                for (index, page) in (first..).zip(bytes.chunks_exact(PAGE_BYTES)) {
                    let expected = pages.get(index as usize).copied().unwrap_or(0);
                    if page.iter().any(|&byte| byte != expected) {
                        return Err(format!("block {block}, page {index}: not {expected}").into());
                    }
                }
            }
        }
        Ok(())
    }

    fn restart(self, path: &Path) -> Outcome<Self> {
        let Self { device, engine, model, done } = self;
        drop(device);
        let medium = Box::new(KernelZones::open(path, DEPTH, engine)?);
        let device = ZonedDevice::open(medium, &config())?;
        let mut world = Self { device, engine, model, done };
        world.check()?;
        for (block, (generation, pages)) in (0..).zip(&world.model) {
            let (block, pages) = (BlockId(block), pages.len() as u32);
            world.device.observe(block, Generation(*generation), pages)?;
            if pages > 0 {
                world.device.seal(block);
            }
        }
        Ok(world)
    }
}

fn read(device: &mut ZonedDevice, block: u32, index: u32, pages: u32) -> Outcome<AlignedBuffer> {
    let page = device.geometry().page(BlockId(block), index);
    let mut buffer = AlignedBuffer::zeroed(pages as usize * PAGE_BYTES);
    buffer.fill(0xee);
    let op = FlashOp::Read { token: Token(0), page, pages, buffer };
    device.submit(op).map_err(|rejected| format!("{:?}", rejected.reason))?;
    let mut done = Vec::new();
    while device.poll(&mut done) == 0 {
        device.wait(WAIT);
    }
    let done = done.swap_remove(0);
    done.result?;
    Ok(done.buffer.ok_or("a read gives its buffer back")?)
}

fn find(path: &Path, seed: u64) -> Outcome<()> {
    let started = Instant::now();
    let medium = Box::new(KernelZones::open(path, DEPTH, EngineChoice::Auto)?);
    let mut device = ZonedDevice::open(medium, &config())?;
    let opened = started.elapsed();
    let bytes = read(&mut device, 0, 0, 8)?;
    let pages = bytes.chunks_exact(PAGE_BYTES).enumerate();
    for (index, page) in pages {
        let expected = if index < 5 { seed as u8 } else { 0 };
        if page.iter().any(|&byte| byte != expected) {
            return Err(format!("page {index} of block 0 is not {expected}").into());
        }
    }
    println!(
        "found again, opened in {opened:.1?}; block 0 is of {}",
        device.generation(BlockId(0))
    );
    Ok(())
}
