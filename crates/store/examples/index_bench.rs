//! Compares the stores on flash by their index: `mftl` keeps it in memory, `skimpy` on flash.
//!
//! `cargo run --release -p timestone-store --example index_bench -- [--keys N] [--gets N] [--puts N] [--room PERCENT] [--file PATH]`
//!
//! `--room`: the size of the device by what the keys take, in percent (300). Keys of 16 bytes, values of 512, popularity by Zipf's law (0.99), the same device for both: in
//! memory, or a file. Gets and puts as fast as they go, 128 gets under way.

#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use timestone_flash::{FileConfig, FileDevice, FlashDevice, MemoryConfig, MemoryMedia};
use timestone_store::prelude::*;
use timestone_store::{
    Figure, Lookup, Mftl, MftlConfig, ReadOutcome, ReadToken, Skimpy, SkimpyConfig, StoreError,
    StoreEvent,
};
use timestone_types::{ClientId, Expiry, KeyRef, KeyspaceId, Timestamp, Version};

const VALUE_BYTES: usize = 512;
/// Calls between two pumps: what a shard does in one turn.
const TURN: u64 = 64;
/// Gets that wait for the device at once.
const UNDER_WAY: u64 = 128;
const SKEW: f64 = 0.99;

struct Options {
    keys: u64,
    gets: u64,
    puts: u64,
    room: u64,
    file: Option<PathBuf>,
}

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let mut options =
        Options { keys: 1_000_000, gets: 1_000_000, puts: 1_000_000, room: 300, file: None };
    let mut arguments = std::env::args().skip(1);
    while let (Some(name), Some(value)) = (arguments.next(), arguments.next()) {
        match name.as_str() {
            "--keys" => options.keys = value.parse()?,
            "--gets" => options.gets = value.parse()?,
            "--puts" => options.puts = value.parse()?,
            "--room" => options.room = value.parse()?,
            _ => options.file = Some(value.into()),
        }
    }
    let mut out = std::io::stdout();
    writeln!(out, "{} keys of 16 B / {VALUE_BYTES} B, zipf {SKEW}", options.keys)?;
    let config = MftlConfig { cache_bytes: 0, checkpoint_bytes: 0, ..MftlConfig::default() };
    let store = Mftl::open(device(&options)?, config)?.0;
    measure("mftl", store, &options, |store| store.device().stats().reads)?;
    let config = SkimpyConfig {
        keys: options.keys,
        cache_bytes: 0,
        checkpoint_bytes: 0,
        ..SkimpyConfig::default()
    };
    let store = Skimpy::open(device(&options)?, config)?.0;
    let mut skimpy = measure("skimpy", store, &options, |store| store.device().stats().reads)?;
    let stats = skimpy.store.stats();
    let looked_up = stats.index.translation_hits + stats.index.translation_misses;
    writeln!(
        out,
        "skimpy: {} buckets, {:.1} % of look-ups are in the translation cache, {:.1} % of puts \
         are flagged",
        stats.index.buckets,
        stats.index.translation_hits as f64 * 100.0 / looked_up.max(1) as f64,
        stats.index.flagged_puts as f64 * 100.0 / stats.writes.puts.max(1) as f64
    )?;
    skimpy.pump();
    Ok(())
}

fn device(options: &Options) -> Outcome<Box<dyn FlashDevice>> {
    let blocks = (options.keys * options.room / 100 / 1700 + 8) as u32;
    let Some(path) = &options.file else {
        let sizes =
            MemoryConfig { initial_blocks: blocks, max_blocks: blocks, ..MemoryConfig::default() };
        return Ok(Box::new(MemoryMedia::new(sizes).open()));
    };
    let _ = std::fs::remove_file(path);
    let file = FileConfig { initial_blocks: blocks, ..FileConfig::new(path, blocks) };
    Ok(Box::new(FileDevice::open_or_create(&file)?.0))
}

struct Bench<S> {
    store: S,
    began: Instant,
    events: Vec<StoreEvent>,
    answers: u64,
    time: u64,
    popularity: Zipf,
}

fn measure<S: Store>(
    name: &str,
    store: S,
    options: &Options,
    reads: impl Fn(&S) -> u64,
) -> Outcome<Bench<S>> {
    let mut out = std::io::stdout();
    let mut bench = Bench {
        store,
        began: Instant::now(),
        events: Vec::new(),
        answers: 0,
        time: 0,
        popularity: Zipf::new(options.keys),
    };
    let began = Instant::now();
    (0..options.keys).for_each(|key| bench.put(key));
    bench.drain();
    let rate = |count: u64, began: Instant| count as f64 / began.elapsed().as_secs_f64() / 1000.0;
    writeln!(out, "{name}: {:.0} k puts of new keys a second", rate(options.keys, began))?;
    let before = bench.store.figures().get(Figure::ProgrammedBytes);
    let began = Instant::now();
    for _ in 0..options.puts {
        let key = bench.popularity.draw();
        bench.put(key);
    }
    bench.drain();
    let programmed = bench.store.figures().get(Figure::ProgrammedBytes) - before;
    writeln!(
        out,
        "{name}: {:.0} k overwrites a second, write amplification {:.2}",
        rate(options.puts, began),
        programmed as f64 / (options.puts.max(1) * (VALUE_BYTES as u64 + 56)) as f64
    )?;
    for round in ["first", "then"] {
        let (before, began) = (reads(&bench.store), Instant::now());
        bench.gets(options.gets);
        writeln!(
            out,
            "{name}: {:.0} k gets a second ({round}), {:.2} flash reads a get",
            rate(options.gets, began),
            (reads(&bench.store) - before) as f64 / options.gets as f64
        )?;
    }
    let index = bench.store.figures().get(Figure::IndexBytes);
    writeln!(out, "{name}: {:.1} B of index per key", index as f64 / options.keys as f64)?;
    Ok(bench)
}

impl<S: Store> Bench<S> {
    fn pump(&mut self) {
        let now = 1_000_000_000_000 + self.began.elapsed().as_nanos() as u64;
        self.events.clear();
        self.store.pump(Timestamp::from_nanos(now), &mut self.events);
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

    fn put(&mut self, key: u64) {
        self.time += 1;
        let bytes = u128::from(key).to_be_bytes();
        let key = KeyRef::new(self.store.seed(), KeyspaceId::DEFAULT, &bytes);
        let version = Version::new(Timestamp::from_nanos(self.time), ClientId::new(1));
        while let Err(error) = self.store.put(key, version, &[7; VALUE_BYTES], Expiry::NEVER) {
            assert!(matches!(error, StoreError::Busy), "{error}");
            self.pump();
            self.store.wait(Duration::from_micros(50));
        }
        if self.time.is_multiple_of(TURN) {
            self.store.advance_watermark(Timestamp::from_nanos(self.time - 1));
            self.store.advance_replay_floor(Timestamp::from_nanos(self.time - 1));
            self.pump();
        }
    }

    fn drain(&mut self) {
        let wanted = self.store.stable_batch() + 1;
        self.store.begin_batch(wanted + 1);
        while self.store.stable_batch() < wanted {
            self.store.sync_soon();
            self.pump();
            self.store.wait(Duration::from_micros(100));
        }
    }

    fn gets(&mut self, count: u64) {
        let at = Timestamp::from_nanos(self.time);
        let (mut pending, before) = (0, self.answers);
        for n in 0..count {
            let bytes = u128::from(self.popularity.draw()).to_be_bytes();
            let key = KeyRef::new(self.store.seed(), KeyspaceId::DEFAULT, &bytes);
            match self.store.get(key, at, ReadToken(n)) {
                Ok(Lookup::Present { value, .. }) => assert_eq!(value.len(), VALUE_BYTES),
                Ok(Lookup::Pending) => pending += 1,
                other => panic!("{other:?}"),
            }
            while pending - (self.answers - before) >= UNDER_WAY {
                self.pump();
            }
        }
        while self.answers - before < pending {
            self.pump();
        }
    }
}

/// Draws keys by Zipf's law (Gray et al., "Quickly generating billion-record synthetic databases"),
/// scattered over all keys.
struct Zipf {
    keys: u64,
    alpha: f64,
    zeta: f64,
    eta: f64,
    state: u64,
}

impl Zipf {
    fn new(keys: u64) -> Self {
        let zeta = |count: u64| (1..=count).map(|n| 1.0 / (n as f64).powf(SKEW)).sum::<f64>();
        let all = zeta(keys);
        let eta = (1.0 - (2.0 / keys as f64).powf(1.0 - SKEW)) / (1.0 - zeta(2) / all);
        Self { keys, alpha: 1.0 / (1.0 - SKEW), zeta: all, eta, state: 1 }
    }

    fn draw(&mut self) -> u64 {
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let uniform = (self.state >> 11) as f64 / (1u64 << 53) as f64;
        let scaled = uniform * self.zeta;
        let rank = if scaled < 1.0 {
            0
        } else if scaled < 1.0 + 0.5f64.powf(SKEW) {
            1
        } else {
            (self.keys as f64 * (self.eta * uniform - self.eta + 1.0).powf(self.alpha)) as u64
        };
        (rank.min(self.keys - 1) * 7919) % self.keys
    }
}
