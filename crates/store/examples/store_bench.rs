//! Measures the `mftl` store alone: puts, cached and uncached gets, index bytes per key, recovery.
//!
//! `cargo run --release -p timestone-store --example store_bench -- [--memory] [--keys N] [--dir PATH] [--keep] [--recover]`
//!
//! `--keep` ends after the gets and leaves the device's file behind. `--recover` measures recovery alone
//! on such a file; with `--keep` only that by a full scan, and the file stays as it is.

#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use timestone_flash::{FileConfig, FileDevice, FlashDevice, MemoryConfig, MemoryMedia};
use timestone_store::prelude::*;
use timestone_store::{
    LatestLookup, Lookup, Mftl, MftlConfig, ReadOutcome, ReadToken, StoreError, StoreEvent,
};
use timestone_types::{ClientId, Expiry, KeyRef, KeyspaceId, Timestamp, Version};

const VALUE_BYTES: usize = 512;
/// Calls between two pumps: what a shard does in one turn.
const TURN: u64 = 64;

struct Options {
    memory: bool,
    keys: u64,
    dir: PathBuf,
    keep: bool,
    recover: bool,
}

struct Bench {
    store: Mftl,
    began: Instant,
    events: Vec<StoreEvent>,
    answers: u64,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = options();
    std::fs::create_dir_all(&options.dir)?;
    let path = options.dir.join("store_bench.flash");
    if !options.recover {
        let _ = std::fs::remove_file(&path);
    }
    let blocks = (options.keys * 3 / 1600 + 64) as u32;
    let media = MemoryMedia::new(MemoryConfig {
        initial_blocks: blocks,
        max_blocks: blocks,
        ..MemoryConfig::default()
    });
    let file = FileConfig { initial_blocks: blocks, ..FileConfig::new(&path, blocks) };
    let device = || -> Result<Box<dyn FlashDevice>, Box<dyn std::error::Error>> {
        if options.memory {
            return Ok(Box::new(media.open()));
        }
        Ok(Box::new(FileDevice::open_or_create(&file)?.0))
    };
    let mut out = std::io::stdout();
    let config = MftlConfig {
        cache_bytes: 64 << 20,
        beside_bytes: 1 << 30,
        partial_page_delay: Duration::from_millis(50),
        checkpoint_bytes: 0,
        ..MftlConfig::default()
    };
    writeln!(
        out,
        "{} keys of 16 B / {VALUE_BYTES} B, {}",
        options.keys,
        if options.memory { "memory device" } else { "file device" }
    )?;

    if !options.recover {
        measure_load(device()?, config, &options, &mut out)?;
        if options.keep {
            return Ok(());
        }
    }
    let began = Instant::now();
    let (store, report) = Mftl::open(device()?, config)?;
    let seconds = began.elapsed().as_secs_f64();
    let megabytes = report.read_bytes as f64 / 1e6;
    writeln!(out, "recovery by scan: {seconds:.2} s, {:.0} MB/s, {report:?}", megabytes / seconds)?;
    if options.keep {
        return Ok(());
    }
    let mut bench = Bench { store, began: Instant::now(), events: Vec::new(), answers: 0 };
    let began = Instant::now();
    bench.store.shutdown();
    while !bench.events.iter().any(|event| matches!(event, StoreEvent::ShutDown)) {
        bench.pump();
        bench.store.wait(Duration::from_millis(1));
    }
    writeln!(out, "shutdown with checkpoint: {:.2} s", began.elapsed().as_secs_f64())?;
    drop(bench);
    let began = Instant::now();
    let (_, report) = Mftl::open(device()?, config)?;
    writeln!(out, "recovery by checkpoint: {:.2} s, {report:?}", began.elapsed().as_secs_f64())?;
    let _ = std::fs::remove_file(&path);
    Ok(())
}

/// Puts, overwrites and gets; the store is dropped without a checkpoint.
fn measure_load(
    device: Box<dyn FlashDevice>,
    config: MftlConfig,
    options: &Options,
    out: &mut impl std::io::Write,
) -> Result<(), Box<dyn std::error::Error>> {
    let (store, _) = Mftl::open(device, config)?;
    let mut bench = Bench { store, began: Instant::now(), events: Vec::new(), answers: 0 };
    rate(out, "puts of new keys", options.keys, || bench.puts(options.keys, 1))?;
    let stats = bench.store.stats();
    writeln!(out, "index: {:.1} B per key", stats.index.bytes as f64 / stats.index.keys as f64)?;
    rate(out, "overwrites", options.keys, || bench.puts(options.keys, 2))?;
    let stats = bench.store.stats();
    let further = stats.index.versions + stats.index.dead_records - stats.index.keys;
    writeln!(
        out,
        "index: {} B for {} keys and {further} further records ({:.1} B each at 32 B per key)",
        stats.index.bytes,
        stats.index.keys,
        stats.index.bytes.saturating_sub(32 * stats.index.keys) as f64 / further.max(1) as f64
    )?;
    bench.drain();
    bench.gets(50_000, 50_000);
    rate(out, "cached gets", 4_000_000, || bench.gets(4_000_000, 50_000))?;
    let hits = bench.store.stats().reads.cache_hits;
    rate(out, "latest", 4_000_000, || bench.latest(4_000_000, options.keys))?;
    rate(out, "uncached gets", 300_000, || bench.gets(300_000, options.keys))?;
    writeln!(out, "{} cache hits, {:?}", hits, bench.store.device().stats())?;
    Ok(())
}

fn options() -> Options {
    let mut options = Options {
        memory: false,
        keys: 1_000_000,
        dir: PathBuf::from("target/store_bench"),
        keep: false,
        recover: false,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--memory" => options.memory = true,
            "--keep" => options.keep = true,
            "--recover" => options.recover = true,
            "--keys" => {
                options.keys =
                    arguments.next().and_then(|keys| keys.parse().ok()).unwrap_or(options.keys)
            }
            "--dir" => options.dir = arguments.next().map_or(options.dir, PathBuf::from),
            _ => {}
        }
    }
    options
}

fn rate(
    out: &mut impl std::io::Write,
    what: &str,
    count: u64,
    work: impl FnOnce(),
) -> std::io::Result<()> {
    let began = Instant::now();
    work();
    let seconds = began.elapsed().as_secs_f64();
    writeln!(
        out,
        "{what}: {:.0} k/s, {:.0} ns each",
        count as f64 / seconds / 1000.0,
        seconds * 1e9 / count as f64
    )
}

fn scatter(n: u64) -> u64 {
    let mixed = (n ^ n >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 29
}

impl Bench {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(1_000_000_000_000 + self.began.elapsed().as_nanos() as u64)
    }

    fn pump(&mut self) {
        let now = self.now();
        self.events.clear();
        self.store.pump(now, &mut self.events);
        for event in &mut self.events {
            if let StoreEvent::ReadDone { outcome, .. } = event {
                self.answers += 1;
                let ReadOutcome::Present { value, .. } = outcome else {
                    panic!("a key is missing: {outcome:?}")
                };
                self.store.recycle(core::mem::take(value));
            }
        }
    }

    fn puts(&mut self, keys: u64, round: u64) {
        let value = [round as u8; VALUE_BYTES];
        let seed = self.store.seed();
        for n in 0..keys {
            let key = u128::from(n * 7919 % keys).to_be_bytes();
            let key = KeyRef::new(seed, KeyspaceId::DEFAULT, &key);
            let version =
                Version::new(Timestamp::from_nanos(round * 1_000_000_000 + n), ClientId::new(1));
            loop {
                match self.store.put(key, version, &value, Expiry::NEVER) {
                    Ok(()) => break,
                    Err(StoreError::Busy) => {
                        self.pump();
                        self.store.wait(Duration::from_micros(200));
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            if n % TURN == 0 {
                self.store.advance_watermark(version.timestamp);
                self.pump();
            }
        }
    }

    fn drain(&mut self) {
        self.store.begin_batch(self.store.stable_batch() + 2);
        let wanted = self.store.stable_batch() + 1;
        self.store.sync_soon();
        for _ in 0..2000 {
            self.pump();
            if self.store.stable_batch() >= wanted {
                break;
            }
            self.store.wait(Duration::from_millis(1));
        }
    }

    fn gets(&mut self, count: u64, range: u64) {
        let seed = self.store.seed();
        let at = Timestamp::from_nanos(500_000_000_000);
        let mut pending = 0;
        let before = self.answers;
        for n in 0..count {
            let key = u128::from(scatter(n) % range).to_be_bytes();
            let key = KeyRef::new(seed, KeyspaceId::DEFAULT, &key);
            match self.store.get(key, at, ReadToken(n)) {
                Ok(Lookup::Present { value, .. }) => assert_eq!(value.len(), VALUE_BYTES),
                Ok(Lookup::Pending) => pending += 1,
                other => panic!("{other:?}"),
            }
            if pending > self.answers - before && n % TURN == 0 {
                self.pump();
            }
            while pending - (self.answers - before) >= 256 {
                self.pump();
                self.store.wait(Duration::from_micros(100));
            }
        }
        while self.answers - before < pending {
            self.pump();
            self.store.wait(Duration::from_micros(100));
        }
    }

    fn latest(&mut self, count: u64, range: u64) {
        let seed = self.store.seed();
        for n in 0..count {
            let key = u128::from(scatter(n) % range).to_be_bytes();
            let key = KeyRef::new(seed, KeyspaceId::DEFAULT, &key);
            let found = self.store.latest(key, ReadToken(n));
            assert!(matches!(found, LatestLookup::Known(latest) if !latest.absent));
        }
    }
}
