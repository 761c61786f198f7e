//! Measures what an order of keys costs beside an index, and what ranges gain by it: the same puts
//! and gets with and without one, bytes a key, keys of a range a second, checks of a range.
//!
//! `cargo run --release -p timestone-store --example order_bench -- [--keys N]`

#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::time::{Duration, Instant};

use timestone_flash::{MemoryConfig, MemoryDevice};
use timestone_store::prelude::*;
use timestone_store::{
    AsOf, Direction, Dram, DramConfig, KeyRange, Mftl, MftlConfig, RangeCheck, ReadToken,
    ScanLimit, StoreError, StoreEvent,
};
use timestone_types::{ClientId, Expiry, HashSeed, KeyRef, KeyspaceId, Timestamp, Version};

/// Calls between two pumps: what a shard does in one turn.
const TURN: u64 = 64;
const VALUE: [u8; 100] = [7; 100];

/// How the keys of a run look.
#[derive(Clone, Copy)]
struct Shape {
    name: &'static str,
    key: fn(u64) -> Vec<u8>,
    /// They are put in their order.
    ascending: bool,
}

const SHAPES: [Shape; 3] = [
    Shape { name: "numbered, 17 B, ascending", key: numbered, ascending: true },
    Shape { name: "numbered, 17 B, in any order", key: numbered, ascending: false },
    Shape { name: "random, 16 B", key: random, ascending: false },
];

fn numbered(n: u64) -> Vec<u8> {
    format!("user:{n:012}").into_bytes()
}

fn random(n: u64) -> Vec<u8> {
    let mixed = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let other = (mixed ^ mixed >> 29).wrapping_mul(0xd6e8_feb8_6659_fd93);
    [other.to_be_bytes(), mixed.to_be_bytes()].concat()
}

/// What a run came to: nanoseconds a call, and bytes a key.
struct Figures {
    put_ns: f64,
    overwrite_ns: f64,
    get_ns: f64,
    index_bytes: f64,
    order_bytes: f64,
}

struct Bench<S> {
    store: S,
    keys: Vec<Vec<u8>>,
    space: KeyspaceId,
    now: u64,
    events: Vec<StoreEvent>,
}

fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

impl<S: Store> Bench<S> {
    fn pump(&mut self) {
        self.now += 1_000_000;
        self.store.pump(at(self.now), &mut self.events);
    }

    /// Puts every key; nanoseconds for one.
    fn puts(&mut self, round: u64) -> f64 {
        let keys = std::mem::take(&mut self.keys);
        let began = Instant::now();
        for (n, bytes) in (0u64..).zip(&keys) {
            let key = KeyRef::new(self.store.seed(), self.space, bytes);
            let version = Version::new(at((round << 40) + n + 1), ClientId::new(1));
            while let Err(error) = self.store.put(key, version, &VALUE, Expiry::NEVER) {
                assert!(matches!(error, StoreError::Busy), "{error}");
                self.pump();
            }
            if n % TURN == 0 {
                self.pump();
            }
        }
        let ns = began.elapsed().as_nanos() as f64 / keys.len() as f64;
        self.keys = keys;
        ns
    }

    /// Looks up the youngest version of every key, which asks the index alone; nanoseconds for one.
    fn look_ups(&mut self) -> f64 {
        let began = Instant::now();
        let mut absent = 0u64;
        for bytes in &self.keys {
            let key = KeyRef::new(self.store.seed(), self.space, bytes);
            absent += u64::from(self.store.latest_in_memory(key).is_none_or(|found| found.absent));
        }
        assert_eq!(absent, 0, "all of them are there");
        began.elapsed().as_nanos() as f64 / self.keys.len() as f64
    }

    fn run(&mut self) -> Figures {
        let (put_ns, overwrite_ns) = (self.puts(1), self.puts(2));
        let get_ns = self.look_ups();
        let figures = self.store.figures();
        let a_key = |figure| figures.get(figure) as f64 / self.keys.len() as f64;
        let index_bytes = a_key(timestone_store::Figure::IndexBytes);
        let order_bytes = a_key(timestone_store::Figure::OrderBytes);
        Figures { put_ns, overwrite_ns, get_ns, index_bytes, order_bytes }
    }

    /// Reads the whole keyspace in pages; nanoseconds a key.
    fn read_all(&mut self, page: u32) -> f64 {
        let (mut from, mut found) = (Vec::new(), 0);
        let began = Instant::now();
        loop {
            let range = KeyRange { keyspace: self.space, from: &from, to: None };
            let limit = ScanLimit { keys: page, bytes: usize::MAX };
            let as_of = AsOf { at: at(u64::MAX >> 1), judged: at(u64::MAX >> 1) };
            self.events.clear();
            self.store
                .range_as_of(range, Direction::Ascending, limit, as_of, ReadToken(1))
                .expect("begins");
            let next = loop {
                self.pump();
                let answer = self.events.drain(..).find_map(|event| match event {
                    StoreEvent::RangeDone { entries, next, .. } => Some((entries.len(), next)),
                    _ => None,
                });
                if let Some((count, next)) = answer {
                    found += count;
                    break next;
                }
            };
            let Some(next) = next else { break };
            from = next;
        }
        assert_eq!(found, self.keys.len(), "each key once");
        began.elapsed().as_nanos() as f64 / found as f64
    }

    /// Checks the whole keyspace for writes above a time; microseconds for one check, and looks of
    /// the budget that it took.
    fn check_all(&self, above: u64) -> (f64, u32) {
        let (range, began) = (KeyRange::all(self.space), Instant::now());
        let looks = (0..24).map(|power| 1u32 << power).find(|&looks| {
            let checked = self.store.first_above(range, at(above), looks).expect("checked");
            !matches!(checked, RangeCheck::More(_))
        });
        (began.elapsed().as_nanos() as f64 / 1000.0, looks.unwrap_or(u32::MAX))
    }
}

fn mftl(keys: u64) -> Mftl {
    let blocks = (keys / 1500 + 64) as u32;
    let device = MemoryDevice::new(MemoryConfig {
        initial_blocks: blocks,
        max_blocks: blocks,
        ..MemoryConfig::default()
    });
    let config = MftlConfig {
        cache_bytes: 0,
        checkpoint_bytes: 0,
        packing_delay: Duration::ZERO,
        ..MftlConfig::default()
    };
    Mftl::open(Box::new(device), config).expect("opens").0
}

fn keys(shape: Shape, count: u64) -> Vec<Vec<u8>> {
    // Every number once, in an order of no meaning: an odd factor permutes them.
    let step = if shape.ascending { 1 } else { 0x9e37_79b1 };
    let count = count.next_power_of_two();
    (0..count).map(|n| (shape.key)(n.wrapping_mul(step) % count)).collect()
}

fn compare<S: Store>(
    out: &mut impl std::io::Write,
    name: &str,
    shape: Shape,
    count: u64,
    make: impl Fn() -> S,
    in_memory: bool,
) -> std::io::Result<()> {
    let plain = KeyspaceId::numbered(1, in_memory);
    let bench = |space| {
        let (store, keys) = (make(), keys(shape, count));
        Bench { store, keys, space, now: 1, events: Vec::new() }
    };
    let without = bench(plain).run();
    let mut ordered = bench(plain.ordered());
    let with = ordered.run();
    writeln!(out, "{name}, {} ({} keys)", shape.name, ordered.keys.len())?;
    let ratio = |what: &str, with: f64, without: f64| {
        format!(
            "  {what}: {with:.0} ns in order, {without:.0} ns without, {:.2} times",
            with / without
        )
    };
    writeln!(out, "{}", ratio("puts of new keys", with.put_ns, without.put_ns))?;
    writeln!(out, "{}", ratio("overwrites", with.overwrite_ns, without.overwrite_ns))?;
    writeln!(out, "{}", ratio("look-ups", with.get_ns, without.get_ns))?;
    let (index, order) = (with.index_bytes, with.order_bytes);
    writeln!(out, "  memory: {order:.1} B a key for the order, {index:.1} B with the index")?;
    let (small, large) = (ordered.read_all(100), ordered.read_all(2000));
    writeln!(out, "  ranges: {small:.0} ns a key in pages of 100, {large:.0} ns in pages of 2000")?;
    let (us, looks) = ordered.check_all(1 << 42);
    writeln!(out, "  check of all keys, none written since: {us:.1} us, {looks} looks")?;
    let last = ordered.keys.iter().max().cloned().unwrap_or_default();
    let key = KeyRef::new(ordered.store.seed(), ordered.space, &last);
    let version = Version::new(at((1 << 42) + 1), ClientId::new(1));
    ordered.store.put(key, version, &VALUE, Expiry::NEVER).expect("put");
    let (us, looks) = ordered.check_all(1 << 42);
    writeln!(out, "  check of all keys, the last one written since: {us:.1} us, {looks} looks")
}

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip_while(|argument| argument != "--keys").skip(1);
    let count = arguments.next().and_then(|count| count.parse().ok()).unwrap_or(1_000_000);
    let mut out = std::io::stdout().lock();
    for shape in SHAPES {
        compare(&mut out, "mftl", shape, count, || mftl(2 * count), false)?;
        let dram = || Dram::new(DramConfig { seed: HashSeed(7), memory_bytes: 16 << 30 });
        compare(&mut out, "dram", shape, count, dram, true)?;
    }
    Ok(())
}
