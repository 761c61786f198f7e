//! Runs a target without libFuzzer: replays its corpus, then mutates it with a seeded generator
//! until the time is over.
//!
//! `mutate TARGET SECONDS [SEED]` — the same seed tries the same inputs in the same order. An input
//! that panics is written to `artifacts/TARGET/` and ends the run with exit code 1;
//! `mutate TARGET FILE` replays one input.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a tool that runs for a while and says what it did"
)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use timestone_fuzz::{TARGETS, Target};

/// Longest input: libFuzzer's default, too.
const MAX_INPUT_BYTES: usize = 4096;
/// How many mutated inputs are kept beside the corpus to mutate further.
const POOL: usize = 1024;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let names: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
    let target = arguments.first().and_then(|name| TARGETS.iter().find(|(known, _)| known == name));
    let (Some(target), Some(what)) = (target, arguments.get(1)) else {
        eprintln!(
            "usage: mutate TARGET SECONDS [SEED] | mutate TARGET FILE; targets: {}",
            names.join(", ")
        );
        return ExitCode::from(2);
    };
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    match what.parse::<u64>() {
        Ok(seconds) => {
            let seed = arguments.get(2).and_then(|seed| seed.parse().ok()).unwrap_or(1);
            fuzz(target, home, Duration::from_secs(seconds), seed)
        }
        Err(_) => match std::fs::read(what) {
            Ok(input) => {
                target.1(&input);
                println!("{}: {what} is handled", target.0);
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!(
                    "{what} is neither a number of seconds nor a file that can be read: \
                    {error}"
                );
                ExitCode::from(2)
            }
        },
    }
}

fn fuzz((name, run): &Target, home: &Path, span: Duration, seed: u64) -> ExitCode {
    let mut pool = corpus(&home.join("corpus").join(name));
    let seeds = pool.len();
    if seeds == 0 {
        eprintln!(
            "{name}: corpus/{name} is missing or empty; write it with `cargo run -p timestone-fuzz --bin seeds`"
        );
        return ExitCode::from(2);
    }
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let start = Instant::now();
    let mut tried = 0u64;
    while tried < seeds as u64 || start.elapsed() < span {
        let input = match pool.get(tried as usize).filter(|_| tried < seeds as u64) {
            Some(seed_input) => seed_input.clone(),
            None => mutated(&pool, &mut random),
        };
        if catch_unwind(AssertUnwindSafe(|| run(&input))).is_err() {
            return report(name, home, &input, seed, tried);
        }
        tried += 1;
        // Some inputs are mutated further, so that changes add up; the corpus itself always stays.
        if tried.is_multiple_of(16) {
            if pool.len() < seeds + POOL {
                pool.push(input);
            } else {
                pool[seeds + random.below(POOL)] = input;
            }
        }
    }
    println!("{name}: {tried} inputs from {seeds} seeds with generator seed {seed}, no failure");
    ExitCode::SUCCESS
}

/// The inputs of a corpus, in the order of their names.
fn corpus(folder: &Path) -> Vec<Vec<u8>> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .map(|entries| entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect())
        .unwrap_or_default();
    files.sort();
    files.iter().filter_map(|file| std::fs::read(file).ok()).collect()
}

fn report(name: &str, home: &Path, input: &[u8], seed: u64, tried: u64) -> ExitCode {
    let folder = home.join("artifacts").join(name);
    let file = folder.join(format!("panic-{seed}-{tried}"));
    let written = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&file, input));
    match written {
        Ok(()) => {
            eprintln!(
                "{name}: input {tried} of generator seed {seed} panics; replay: mutate \
                {name} {}",
                file.display()
            )
        }
        Err(error) => {
            eprintln!(
                "{name}: input {tried} of generator seed {seed} panics, and cannot be \
                written: {error}"
            )
        }
    }
    ExitCode::FAILURE
}

fn mutated(pool: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut input = pool[random.below(pool.len())].clone();
    for _ in 0..1 + random.below(6) {
        let at = random.below(input.len());
        match random.below(8) {
            0 if !input.is_empty() => input[at] ^= 1 << random.below(8),
            1 if !input.is_empty() => input[at] = random.next() as u8,
            2 => input.insert(at, random.next() as u8),
            3 if !input.is_empty() => drop(input.remove(at)),
            4 => input.truncate(at),
            5 => number(&mut input, at, random),
            6 => {
                let end = at + random.below(input.len() - at + 1);
                let copy = input[at..end].to_vec();
                input.splice(at..at, copy);
            }
            _ => {
                let other = &pool[random.below(pool.len())];
                input.truncate(at);
                input.extend_from_slice(&other[random.below(other.len() + 1)..]);
            }
        }
    }
    input.truncate(MAX_INPUT_BYTES);
    input
}

/// Puts a number that is often a bound over the bytes at `at`, or the input's own length, as
/// lengths are checked most.
fn number(input: &mut [u8], at: usize, random: &mut Random) {
    let length = input.len() as u64;
    let numbers = [
        0,
        1,
        2,
        0x7f,
        0xff,
        0x7fff,
        0xffff,
        0x7fff_ffff,
        0xffff_ffff,
        u64::MAX,
        length,
        length - 4 * u64::from(length > 4),
    ];
    let bytes = numbers[random.below(numbers.len())].to_le_bytes();
    let width = [1, 2, 4, 8][random.below(4)].min(input.len() - at);
    input[at..at + width].copy_from_slice(&bytes[..width]);
}
