//! Gets and puts in a closed loop over `mftl`, `vftl` or `sftl`: throughput, latency, write
//! amplification. For the comparison of SEMEL's Table 1.
//!
//! `cargo run --release -p timestone-store --example store_mix -- --store vftl --gets 50`
//!
//! | option | meaning | default |
//! |---|---|---|
//! | `--store` | `mftl`, `vftl`, `sftl` | `mftl` |
//! | `--device` | `memory` (operations take no time), `emulated`, `emulated-virtual` (SEMEL's SSD, in real and in virtual time), `paced` (50 µs, 100 µs, 1 ms by a clock that the loop moves, no queues), `file` | `memory` |
//! | `--gets` | share of gets, per cent | 50 |
//! | `--keys` | keys, all put before | 200000 |
//! | `--value` | bytes of a value; with 439 eight records of 16-byte keys fill a page | 439 |
//! | `--clients` | requests under way | 256 |
//! | `--fill` | bytes of the keys' records, per cent of the device | 60 |
//! | `--pages` | pages of an erase block | 32 |
//! | `--warm` | puts before the measurement, in per cent of the keys | 200 |
//! | `--operations` | of the measurement | 1000000 |
//! | `--channels-per-block` | of an emulated device | 1 |
//! | `--journal` | `yes`: the layer below `vftl` and `sftl` keeps its map durable; `no`: as the papers' did not | `yes` |
//! | `--dir` | where the file is | `target/store_mix` |
//!
//! A put is over when it is durable without a log. The watermark follows close behind. There is no
//! record cache.

#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::collections::VecDeque;
use std::error::Error;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use timestone_flash::{
    EmulatedConfig, EmulatedMedium, FileConfig, FileDevice, FlashClock, FlashDevice, FlashPace,
    MemoryConfig, MemoryMedia, PAGE_BYTES,
};
use timestone_store::prelude::*;
use timestone_store::{
    FtlConfig, Lookup, Mftl, MftlConfig, MftlStats, ReadOutcome, ReadToken, Sftl, StoreError,
    StoreEvent, Vftl, VftlConfig, VftlStats,
};
use timestone_types::random::{Dice, Seed};
use timestone_types::{ClientId, Expiry, KeyRef, KeyspaceId, Timestamp, Version};

/// Where the clock begins: versions lie behind it.
const EPOCH: u64 = 1_000_000_000_000;

#[derive(Clone)]
struct Options {
    store: String,
    device: String,
    gets: u64,
    keys: u64,
    value: usize,
    clients: u32,
    fill: u64,
    pages: u32,
    warm: u64,
    operations: u64,
    journal: bool,
    channels_per_block: u32,
    dir: PathBuf,
}

/// The time of the loop.
enum Clock {
    Real(Instant),
    /// Moved by the loop, and the medium's with it.
    Moved(u64, MemoryMedia),
    Virtual(EmulatedMedium),
}

impl Clock {
    fn now(&self) -> Timestamp {
        let nanos = match self {
            Self::Real(began) => began.elapsed().as_nanos() as u64,
            Self::Moved(nanos, _) => *nanos,
            Self::Virtual(medium) => medium.clock().now(),
        };
        Timestamp::from_nanos(EPOCH + nanos)
    }

    /// Nothing can be done before the device or the store has something.
    fn rest<S: Store>(&mut self, store: &mut S) {
        match self {
            Self::Real(_) => store.wait(Duration::from_micros(50)),
            Self::Moved(now, media) => {
                let store = store.next_deadline().map(|at| at.as_nanos() - EPOCH);
                let next = store.into_iter().chain(media.next_due()).min();
                *now = next.unwrap_or(0).max(*now + 1000);
                media.set_now(*now);
            }
            Self::Virtual(medium) => {
                let now = medium.clock().now();
                let store = store.next_deadline().map(|at| at.as_nanos() - EPOCH);
                let next = store.into_iter().chain(medium.next_due()).min();
                medium.clock().set(next.unwrap_or(0).max(now + 1000));
            }
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = options();
    let records = options.keys * (PAGE_BYTES as u64 / (PAGE_BYTES / (options.value + 73)) as u64);
    let block_bytes = u64::from(options.pages) * PAGE_BYTES as u64;
    let blocks = (records * 100 / options.fill).div_ceil(block_bytes) as u32;
    let media = MemoryMedia::new(MemoryConfig {
        pages_per_block: options.pages,
        initial_blocks: blocks,
        max_blocks: blocks,
        ..MemoryConfig::default()
    });
    let mut clock = Clock::Real(Instant::now());
    let device: Box<dyn FlashDevice> = match options.device.as_str() {
        "memory" => Box::new(media.open()),
        "paced" => {
            media.set_pace(Some(FlashPace {
                read: Duration::ZERO,
                program: Duration::from_micros(50),
                per_page: Duration::from_micros(50),
                erase: Duration::from_millis(1),
                sync: Duration::ZERO,
                spread: Duration::ZERO,
                seed: 1,
            }));
            clock = Clock::Moved(0, media.clone());
            Box::new(media.open())
        }
        "emulated" | "emulated-virtual" => {
            let flash_clock = if options.device == "emulated" {
                FlashClock::real()
            } else {
                FlashClock::stopped()
            };
            let medium = EmulatedMedium::new(
                EmulatedConfig {
                    pages_per_block: options.pages,
                    channels_per_block: options.channels_per_block,
                    wakes: false,
                    ..EmulatedConfig::papers(blocks)
                },
                flash_clock,
            );
            let device = Box::new(medium.open()?);
            if options.device == "emulated-virtual" {
                clock = Clock::Virtual(medium);
            }
            device
        }
        "file" => {
            std::fs::create_dir_all(&options.dir)?;
            let path = options.dir.join("store_mix.flash");
            let _ = std::fs::remove_file(&path);
            let config = FileConfig {
                pages_per_block: options.pages,
                initial_blocks: blocks,
                ..FileConfig::new(&path, blocks)
            };
            Box::new(FileDevice::open_or_create(&config)?.0)
        }
        other => return Err(format!("no device is called {other}").into()),
    };
    let config = MftlConfig {
        cache_bytes: 0,
        packing_delay: Duration::from_millis(1),
        partial_page_delay: Duration::from_millis(1),
        sync_interval: Duration::ZERO,
        checkpoint_bytes: 0,
        without_log: true,
        ..MftlConfig::default()
    };
    let ftl = FtlConfig { journaled: options.journal, ..FtlConfig::default() };
    let layered = VftlConfig { store: config, ftl };
    let mut out = std::io::stdout();
    writeln!(
        out,
        "{} over {} ({blocks} blocks of {} pages), {} keys, {} % gets, {} clients",
        options.store, options.device, options.pages, options.keys, options.gets, options.clients
    )?;
    match options.store.as_str() {
        "mftl" => Mix::new(Mftl::open(device, config)?.0, clock, options).run(
            |store| VftlStats {
                store: store.stats(),
                device: store.device().stats(),
                ..VftlStats::default()
            },
            &mut out,
        ),
        "vftl" => {
            Mix::new(Vftl::open(device, layered)?.0, clock, options).run(Vftl::stats, &mut out)
        }
        "sftl" => {
            Mix::new(Sftl::open(device, layered)?.0, clock, options).run(Sftl::stats, &mut out)
        }
        other => Err(format!("no store is called {other}").into()),
    }
}

fn options() -> Options {
    let mut options = Options {
        store: "mftl".to_owned(),
        device: "memory".to_owned(),
        gets: 50,
        keys: 200_000,
        value: 439,
        clients: 256,
        fill: 60,
        pages: 32,
        warm: 200,
        operations: 1_000_000,
        journal: true,
        channels_per_block: 1,
        dir: PathBuf::from("target/store_mix"),
    };
    let mut arguments = std::env::args().skip(1);
    while let (Some(name), Some(value)) = (arguments.next(), arguments.next()) {
        let number = || value.parse::<u64>().unwrap_or_else(|_| panic!("{name} takes a number"));
        match name.as_str() {
            "--store" => options.store = value,
            "--device" => options.device = value,
            "--gets" => options.gets = number(),
            "--keys" => options.keys = number(),
            "--value" => options.value = number() as usize,
            "--clients" => options.clients = number() as u32,
            "--fill" => options.fill = number(),
            "--pages" => options.pages = number() as u32,
            "--warm" => options.warm = number(),
            "--operations" => options.operations = number(),
            "--channels-per-block" => options.channels_per_block = number() as u32,
            "--journal" => options.journal = value == "yes",
            "--dir" => options.dir = PathBuf::from(value),
            _ => panic!("no option is called {name}"),
        }
    }
    options
}

/// What one kind of request took, in nanoseconds.
#[derive(Default)]
struct Latencies(Vec<u32>);

impl Latencies {
    fn tell(&mut self, name: &str, out: &mut impl std::io::Write) -> std::io::Result<()> {
        self.0.sort_unstable();
        let Some(last) = self.0.len().checked_sub(1) else { return Ok(()) };
        let at = |share: usize| f64::from(self.0[last * share / 1000]) / 1000.0;
        let sum: u64 = self.0.iter().map(|&nanos| u64::from(nanos)).sum();
        let mean = sum as f64 / self.0.len() as f64 / 1000.0;
        writeln!(
            out,
            "{name}: mean {mean:.1} µs, median {:.1}, 99 % {:.1}, 99.9 % {:.1}",
            at(500),
            at(990),
            at(999)
        )
    }
}

/// A put under way: its batch, and when it began.
struct Putting {
    batch: u64,
    began: Timestamp,
}

struct Mix<S> {
    store: S,
    clock: Clock,
    options: Options,
    dice: Dice,
    events: Vec<StoreEvent>,
    /// Clients without a request.
    idle: u32,
    /// When the get with this token began.
    gets: Vec<Timestamp>,
    free_tokens: Vec<u32>,
    puts: VecDeque<Putting>,
    batch: u64,
    version: u64,
    get_latencies: Latencies,
    put_latencies: Latencies,
    done: u64,
}

impl<S: Store> Mix<S> {
    fn new(store: S, clock: Clock, options: Options) -> Self {
        let clients = options.clients;
        Self {
            store,
            clock,
            options,
            dice: Seed(1).dice(),
            events: Vec::new(),
            idle: clients,
            gets: vec![Timestamp::ZERO; clients as usize],
            free_tokens: (0..clients).collect(),
            puts: VecDeque::new(),
            batch: 1,
            version: 1,
            get_latencies: Latencies::default(),
            put_latencies: Latencies::default(),
            done: 0,
        }
    }

    fn run(
        mut self,
        stats: impl Fn(&S) -> VftlStats,
        out: &mut impl std::io::Write,
    ) -> Result<(), Box<dyn Error>> {
        let keys = self.options.keys;
        self.drive(keys, |_, n| Some(n));
        self.drive(keys * self.options.warm / 100, |mix, _| Some(mix.dice.below(keys)));
        self.get_latencies.0.clear();
        self.put_latencies.0.clear();
        let (before, began) = (stats(&self.store), self.clock.now());
        let (gets, operations) = (self.options.gets, self.options.operations);
        self.drive(operations, |mix, _| {
            (mix.dice.below(100) >= gets).then(|| mix.dice.below(keys))
        });
        let after = stats(&self.store);
        let seconds = (self.clock.now().as_nanos() - began.as_nanos()) as f64 / 1e9;
        writeln!(out, "{:.1} k requests a second", operations as f64 / seconds / 1000.0)?;
        self.get_latencies.tell("gets", out)?;
        self.put_latencies.tell("puts", out)?;
        tell(&before, &after, self.get_latencies.0.len() as u64, out)?;
        Ok(())
    }

    /// So many requests; `put` says which key is put, or that something is read.
    fn drive(&mut self, count: u64, put: impl Fn(&mut Self, u64) -> Option<u64>) {
        let (mut asked, target) = (0, self.done + count);
        let mut refused = None;
        while self.done < target {
            let before = (self.done, asked);
            self.batch += 1;
            self.store.begin_batch(self.batch);
            while self.idle > 0 && asked < count {
                let key = refused.take().unwrap_or_else(|| put(self, asked));
                if !self.ask(key) {
                    refused = Some(key);
                    break;
                }
                asked += 1;
            }
            let now = self.clock.now();
            // A little behind, so that what is superseded can go.
            self.store.advance_watermark(Timestamp::from_nanos(self.version.saturating_sub(1)));
            self.store.advance_replay_floor(Timestamp::from_nanos(self.version.saturating_sub(1)));
            self.store.pump(now, &mut self.events);
            self.answers();
            if before == (self.done, asked) {
                self.clock.rest(&mut self.store);
            }
        }
    }

    /// Asks for one thing; `false` when it was refused for now.
    fn ask(&mut self, put: Option<u64>) -> bool {
        let began = self.clock.now();
        let number = put.unwrap_or_else(|| self.dice.below(self.options.keys));
        let bytes = u128::from(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_be_bytes();
        let key = KeyRef::new(self.store.seed(), KeyspaceId::DEFAULT, &bytes);
        if put.is_some() {
            let version = Version::new(Timestamp::from_nanos(self.version), ClientId::new(1));
            let value = [self.version as u8; 4096];
            let value = &value[..self.options.value.min(4096)];
            match self.store.put(key, version, value, Expiry::NEVER) {
                Ok(()) => {}
                Err(StoreError::Busy) => return false,
                Err(error) => panic!("{error}"),
            }
            self.version += 1;
            self.idle -= 1;
            self.puts.push_back(Putting { batch: self.batch, began });
            return true;
        }
        let Some(token) = self.free_tokens.pop() else { return false };
        let at = Timestamp::from_nanos(EPOCH);
        match self.store.get(key, at, ReadToken(token.into())) {
            Ok(Lookup::Present { .. }) => {
                self.free_tokens.push(token);
                self.get_latencies.0.push(0);
                self.done += 1;
            }
            Ok(Lookup::Pending) => {
                self.gets[token as usize] = began;
                self.idle -= 1;
            }
            other => panic!("{other:?}"),
        }
        true
    }

    fn answers(&mut self) {
        let now = self.clock.now();
        let since =
            |began: Timestamp| u32::try_from(now.as_nanos() - began.as_nanos()).unwrap_or(u32::MAX);
        for event in self.events.drain(..) {
            let StoreEvent::ReadDone { token, outcome } = event else { continue };
            let ReadOutcome::Present { value, .. } = outcome else { panic!("{outcome:?}") };
            self.store.recycle(value);
            self.get_latencies.0.push(since(self.gets[token.0 as usize]));
            self.free_tokens.push(token.0 as u32);
            self.idle += 1;
            self.done += 1;
        }
        let stable = self.store.stable_batch();
        while self.puts.front().is_some_and(|put| put.batch <= stable) {
            let Some(put) = self.puts.pop_front() else { break };
            self.put_latencies.0.push(since(put.began));
            self.idle += 1;
            self.done += 1;
        }
    }
}

/// What the measured part has cost.
fn tell(
    before: &VftlStats,
    after: &VftlStats,
    gets: u64,
    out: &mut impl std::io::Write,
) -> std::io::Result<()> {
    let of = |what: fn(&VftlStats) -> u64| (what(after) - what(before)) as f64;
    let put = of(|stats| stats.store.writes.put_bytes).max(1.0);
    let upper = of(|stats| stats.store.writes.programmed_bytes);
    let device = of(|stats| stats.device.programmed_bytes);
    let moved = of(|stats| stats.store.collection.moved_records);
    let puts = of(|stats| stats.store.writes.puts).max(1.0);
    // Without puts only collection that was begun before goes on.
    if of(|stats| stats.store.writes.puts) > 0.0 {
        writeln!(
            out,
            "write amplification: store {:.2}, below {:.2}, together {:.2}; {:.2} records moved for a put",
            upper / put,
            device / upper.max(1.0),
            device / put,
            moved / puts
        )?;
        let pages = |what: fn(&VftlStats) -> u64| of(what) * PAGE_BYTES as f64 / put;
        writeln!(
            out,
            "pages of the layer below, in bytes for a byte put: {:.2} of the store, {:.2} moved, {:.3} of its journal",
            pages(|stats| stats.ftl.host_pages),
            pages(|stats| stats.ftl.moved_pages),
            pages(|stats| stats.ftl.journal_pages)
        )?;
    }
    writeln!(
        out,
        "{:.2} pages read from flash for a get; {:.1} B of index for a key; {} MiB live, {} MiB dead",
        of(|stats| stats.store.reads.page_reads) / gets.max(1) as f64,
        after.index_bytes_per_key() as f64 / 1000.0,
        after.store.space.live_bytes >> 20,
        after.store.space.dead_bytes >> 20
    )?;
    let MftlStats { space, .. } = after.store;
    writeln!(out, "{} of {} blocks free; {:?}", space.free_blocks, space.blocks, after.device)
}
