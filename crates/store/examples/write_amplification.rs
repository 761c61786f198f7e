//! How much `mftl` writes for what is put: overwrites by Zipf's law, in time that each put takes its share of.
//!
//! `cargo run --release -p timestone-store --example write_amplification -- [--keys N] [--zipf X] [--rate PUTS] [--room TIMES] [--puts TIMES] [--file PATH]`
//!
//! A device in memory has `--room` times the bytes of the values (2). Keys are put once, in any order; then `--puts` times
//! as many (6), `--rate` a second (100 000), with a watermark that trails by a second. A row for each half of the keys.
//! With `--file` the device is a file, and time is the machine's: puts come as fast as they are taken.

#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use timestone_flash::{
    FileConfig, FileDevice, FlashDevice, MemoryConfig, MemoryDevice, PAGE_BYTES,
};
use timestone_store::prelude::*;
use timestone_store::{Mftl, MftlConfig, StoreError, StoreEvent};
use timestone_types::{ClientId, Expiry, KeyRef, KeyspaceId, Timestamp, Version};

const VALUE_BYTES: usize = 512;
/// Puts between two pumps: what a shard does in one turn.
const TURN: u64 = 64;
const BEGIN: Timestamp = Timestamp::from_nanos(1_000_000_000_000);
/// How far the watermark trails.
const LAG: Duration = Duration::from_secs(1);

struct Options {
    keys: u64,
    zipf: f64,
    rate: f64,
    room: f64,
    puts: u64,
    file: Option<PathBuf>,
}

struct Bench {
    store: Mftl,
    now: Timestamp,
    /// What a put takes; `None`: as long as it does.
    step: Option<Duration>,
    began: Instant,
    events: Vec<StoreEvent>,
    since_pump: u64,
    refused: u64,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = options()?;
    let pages_per_block = MemoryConfig::default().pages_per_block;
    let block_bytes = f64::from(pages_per_block) * PAGE_BYTES as f64;
    let blocks = (options.keys as f64 * VALUE_BYTES as f64 * options.room / block_bytes) as u32;
    let device: Box<dyn FlashDevice> = match &options.file {
        None => Box::new(MemoryDevice::new(MemoryConfig {
            initial_blocks: blocks,
            max_blocks: blocks,
            ..MemoryConfig::default()
        })),
        Some(path) => {
            let config = FileConfig { initial_blocks: blocks, ..FileConfig::new(path, blocks) };
            Box::new(FileDevice::open_or_create(&config)?.0)
        }
    };
    let config = MftlConfig { cache_bytes: 0, ..MftlConfig::default() };
    let (store, _) = Mftl::open(device, config)?;
    let mut bench = Bench {
        store,
        now: BEGIN,
        step: options.file.is_none().then(|| Duration::from_secs_f64(1.0 / options.rate)),
        began: Instant::now(),
        events: Vec::new(),
        since_pump: 0,
        refused: 0,
    };
    let order = shuffled(options.keys);
    for &key in &order {
        bench.put(key)?;
    }
    let shares = shares(options.keys, options.zipf);
    let mut out = std::io::stdout();
    writeln!(
        out,
        "{} keys, Zipf {}, {} puts a second, {blocks} blocks of {pages_per_block} pages",
        options.keys, options.zipf, options.rate
    )?;
    writeln!(
        out,
        "| puts, times the keys | records moved for each put | bytes programmed for each of values | free blocks | puts asked again |"
    )?;
    writeln!(out, "|---:|---:|---:|---:|---:|")?;
    let mut dice = 0x2545_f491_4f6c_dd1d;
    for half in 1..=options.puts * 2 {
        let before = bench.store.stats();
        let refused = bench.refused;
        for _ in 0..options.keys / 2 {
            bench.put(order[drawn(&shares, &mut dice)])?;
        }
        let stats = bench.store.stats();
        let puts = (stats.writes.puts - before.writes.puts) as f64;
        let moved = stats.collection.moved_records - before.collection.moved_records;
        let bytes = stats.writes.programmed_bytes - before.writes.programmed_bytes;
        writeln!(
            out,
            "| {} | {:.3} | {:.3} | {} | {} |",
            half as f64 / 2.0,
            moved as f64 / puts,
            bytes as f64 / (puts * VALUE_BYTES as f64),
            stats.space.free_blocks,
            bench.refused - refused,
        )?;
    }
    Ok(())
}

fn options() -> Result<Options, Box<dyn std::error::Error>> {
    let (keys, zipf, rate, room, puts) = (1_000_000, 0.99, 100_000.0, 2.0, 6);
    let mut options = Options { keys, zipf, rate, room, puts, file: None };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
        match name.as_str() {
            "--keys" => options.keys = value.parse()?,
            "--zipf" => options.zipf = value.parse()?,
            "--rate" => options.rate = value.parse()?,
            "--room" => options.room = value.parse()?,
            "--file" => options.file = Some(value.into()),
            "--puts" => options.puts = value.parse()?,
            _ => return Err(format!("{name} is not known: see the head of this file").into()),
        }
    }
    Ok(options)
}

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn shuffled(keys: u64) -> Vec<u64> {
    let (mut order, mut dice): (Vec<u64>, u64) = ((0..keys).collect(), 88_172_645_463_325_252);
    for at in (1..order.len()).rev() {
        order.swap(at, (random(&mut dice) % (at as u64 + 1)) as usize);
    }
    order
}

/// For each rank how often it or a lower one is drawn.
fn shares(keys: u64, zipf: f64) -> Vec<f64> {
    let mut sum = 0.0;
    let weights = (1..=keys).map(|rank| (rank as f64).powf(-zipf));
    let mut shares: Vec<f64> = weights
        .map(|weight| {
            sum += weight;
            sum
        })
        .collect();
    shares.iter_mut().for_each(|share| *share /= sum);
    shares
}

fn drawn(shares: &[f64], dice: &mut u64) -> usize {
    let at = (random(dice) >> 11) as f64 / (1u64 << 53) as f64;
    shares.partition_point(|&share| share <= at).min(shares.len() - 1)
}

impl Bench {
    fn pump(&mut self) {
        self.events.clear();
        self.store.advance_watermark(self.now.saturating_sub(LAG));
        self.store.pump(self.now, &mut self.events);
    }

    fn put(&mut self, key: u64) -> Result<(), StoreError> {
        let bytes = u128::from(key).to_be_bytes();
        let key = KeyRef::new(self.store.seed(), KeyspaceId::DEFAULT, &bytes);
        self.now = match self.step {
            Some(step) => self.now.saturating_add(step),
            None => BEGIN.saturating_add(self.began.elapsed()).max(self.now.next()),
        };
        let version = Version::new(self.now, ClientId::new(1));
        loop {
            match self.store.put(key, version, &[1; VALUE_BYTES], Expiry::NEVER) {
                Ok(()) => break,
                Err(StoreError::Busy) => {
                    self.refused += 1;
                    self.pump();
                    if self.step.is_none() {
                        self.store.wait(Duration::from_micros(200));
                    }
                }
                Err(error) => return Err(error),
            }
        }
        self.since_pump += 1;
        if self.since_pump == TURN {
            self.since_pump = 0;
            self.pump();
        }
        Ok(())
    }
}
