//! What a connection does next: pipelines of commands, WATCH with what follows it, scans.
//!
//! ```text
//!   keys   r0 …  texts that are unique, and never expire         e0 …  the same, with times to live
//!          n0 …  counters                                        l0 …  lists: texts that are appended to
//! ```
//! A flood has a key of its connection alone, b0 …: a text, read again and again.
//!
//! Values are unique: `v17` is written by one command only, and so is what is appended. What is
//! read therefore tells who wrote it. One in twelve is larger than a page: `v17___…`.

use super::{Arguments, Request};
use crate::Random;

/// What is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mix {
    /// Keys of each of the four kinds.
    pub keys: u64,
    /// Most requests of a pipeline.
    pub depth: u64,
    /// In front of every key.
    pub prefix: String,
    /// Whether these clients have the keyspace for themselves, so that they may clear it and count
    /// all of it.
    pub alone: bool,
    /// Whether they list keys: SCAN and KEYS, and what they may when they are alone.
    pub lists: bool,
}

/// What a connection does, until all of it is answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Activity {
    /// These requests at once.
    Pipeline(Vec<Request>),
    /// WATCH and what is read under it; when that is answered, the transaction.
    Watch {
        /// WATCH and reads.
        first: Vec<Request>,
        /// The transaction.
        then: Request,
    },
    /// SCAN from the beginning to the end, with these words behind the cursor.
    Scan(Arguments),
}

/// The stream of one connection's activities, a function of its seed.
#[derive(Clone, Debug)]
pub struct Generator {
    mix: Mix,
    random: Random,
    /// The next number of a value, and how far apart those of one generator are.
    next_value: u64,
    step: u64,
}

/// One of so many texts is large, with so many bytes: from a page of the store on.
const LARGE_ONE_IN: u64 = 12;
const LARGE_BYTES: (u64, u64) = (4096, 20_000);
/// What a flood reads: so many bytes, so often. Twice as much as a gateway lets one connection owe
/// to be read.
const FLOOD_BYTES: usize = 48 * 1024;
const FLOOD_READS: usize = 200;
/// Shortest and longest time to live that is asked for, in milliseconds.
const TIME_TO_LIVE_MS: (u64, u64) = (30, 600);

impl Generator {
    /// The generator of one of `of` connections.
    #[must_use]
    pub fn new(mix: Mix, seed: u64, number: u64, of: u64) -> Self {
        Self { mix, random: Random::derived(seed, number), next_value: number, step: of.max(1) }
    }

    /// All keys.
    #[must_use]
    pub fn keys(mix: &Mix) -> Vec<String> {
        let kinds = ["r", "e", "n", "l"].into_iter();
        kinds
            .flat_map(|kind| (0..mix.keys).map(move |n| format!("{}{kind}{n}", mix.prefix)))
            .collect()
    }

    fn key(&mut self, kind: &str) -> String {
        let number = self.random.below(self.mix.keys.max(1));
        format!("{}{kind}{number}", self.mix.prefix)
    }

    fn value(&mut self) -> String {
        let value = format!("v{}", self.next_value);
        self.next_value += self.step;
        value
    }

    /// A value that stands for itself, which now and then is larger than a page.
    fn text(&mut self) -> String {
        let mut value = self.value();
        if self.random.below(LARGE_ONE_IN) == 0 {
            let bytes = self.random.between(LARGE_BYTES.0, LARGE_BYTES.1) as usize;
            value.extend(std::iter::repeat_n('_', bytes));
        }
        value
    }

    /// The key of a connection's floods.
    #[must_use]
    pub fn own_key(mix: &Mix, owner: u64) -> String {
        format!("{}b{owner}", mix.prefix)
    }

    /// A long text of a key that nobody else uses, and then it again and again: megabytes of
    /// answers out of a few short commands.
    #[must_use]
    pub fn flood(&mut self, owner: u64) -> Vec<Request> {
        let key = Self::own_key(&self.mix, owner);
        let mut value = self.value();
        value.extend(std::iter::repeat_n('_', FLOOD_BYTES));
        let reads = std::iter::repeat_n(Request::command(&format!("GET {key}")), FLOOD_READS);
        std::iter::once(Request::command(&format!("SET {key} {value}"))).chain(reads).collect()
    }

    fn time_to_live(&mut self) -> u64 {
        self.random.between(TIME_TO_LIVE_MS.0, TIME_TO_LIVE_MS.1)
    }

    /// Different keys of one kind.
    fn some_keys(&mut self, kind: &str) -> Vec<String> {
        let wanted = self.random.between(2, 4);
        let mut keys: Vec<String> = (0..wanted).map(|_| self.key(kind)).collect();
        keys.sort();
        keys.dedup();
        keys
    }

    /// What comes next.
    #[must_use]
    pub fn draw(&mut self) -> Activity {
        match self.random.below(100) {
            0..=7 => self.watch(),
            8..=11 if self.mix.lists => Activity::Scan(self.scan()),
            _ => {
                let length = self.random.between(1, self.mix.depth.max(1));
                Activity::Pipeline((0..length).map(|_| self.request()).collect())
            }
        }
    }

    fn scan(&mut self) -> Arguments {
        let count = self.random.between(1, 12);
        let mut words = vec!["COUNT".to_owned(), count.to_string()];
        if !self.mix.alone {
            words.extend(["MATCH".to_owned(), format!("{}*", self.mix.prefix)]);
        }
        words
    }

    fn watch(&mut self) -> Activity {
        let kind = if self.random.percent(80) { "r" } else { "e" };
        let key = self.key(kind);
        let mut first = vec![Request::command(&format!("WATCH {key}"))];
        if self.random.percent(80) {
            first.push(Request::command(&format!("GET {key}")));
        }
        let mut commands = vec![Self::words(&format!("SET {key} {}", self.value()))];
        if self.random.percent(40) {
            let other = self.key("n");
            commands.push(Self::words(&format!("INCR {other}")));
        }
        Activity::Watch { first, then: Request::Transaction(commands) }
    }

    fn words(text: &str) -> Arguments {
        text.split(' ').map(str::to_owned).collect()
    }

    fn request(&mut self) -> Request {
        match self.random.below(100) {
            0..=7 => Request::Transaction(self.transaction()),
            8..=15 => self.many_keys(),
            16..=18 if self.mix.lists => self.whole(),
            _ => Request::One(self.single()),
        }
    }

    /// Each key at most once, so that a transaction's effect on a key is one command's.
    fn transaction(&mut self) -> Vec<Arguments> {
        let mut commands: Vec<Arguments> = Vec::new();
        for _ in 0..self.random.between(1, 4) {
            let words = self.single();
            if commands.iter().all(|other| other.get(1) != words.get(1)) {
                commands.push(words);
            }
        }
        commands
    }

    fn many_keys(&mut self) -> Request {
        let keys = self.some_keys("r");
        let name = match self.random.below(10) {
            0..=4 => "MGET",
            5..=7 => "MSET",
            8 => "MSETNX",
            _ => "DEL",
        };
        let mut words = vec![name.to_owned()];
        for key in keys {
            words.push(key);
            if name.starts_with("MSET") {
                words.push(self.text());
            }
        }
        Request::One(words)
    }

    fn whole(&mut self) -> Request {
        if !self.mix.alone {
            return Request::One(vec!["KEYS".to_owned(), format!("{}*", self.mix.prefix)]);
        }
        Request::command(match self.random.below(10) {
            0..=3 => "KEYS *",
            4..=8 => "DBSIZE",
            _ => "FLUSHDB",
        })
    }

    fn single(&mut self) -> Arguments {
        let text = match self.random.below(100) {
            0..=49 => self.of_text("r"),
            50..=64 => self.of_expiring(),
            65..=82 => self.of_counter(),
            _ => self.of_list(),
        };
        Self::words(&text)
    }

    fn of_text(&mut self, kind: &str) -> String {
        let key = self.key(kind);
        match self.random.below(20) {
            0..=7 => format!("GET {key}"),
            8..=12 => format!("SET {key} {}", self.text()),
            13 => format!("SET {key} {} NX", self.text()),
            14 => format!("SET {key} {} XX", self.text()),
            15 => format!("SET {key} {} GET", self.text()),
            16 => format!("GETDEL {key}"),
            17 => format!("DEL {key}"),
            18 => format!("EXISTS {key}"),
            _ => format!("STRLEN {key}"),
        }
    }

    fn of_expiring(&mut self) -> String {
        let key = self.key("e");
        match self.random.below(20) {
            0..=6 => format!("GET {key}"),
            7..=11 => format!("SET {key} {} PX {}", self.text(), self.time_to_live()),
            12 => format!("PEXPIRE {key} {}", self.time_to_live()),
            13 => format!("PERSIST {key}"),
            14 => format!("PTTL {key}"),
            15 => format!("GETEX {key} PX {}", self.time_to_live()),
            16 => format!("SET {key} {} KEEPTTL", self.text()),
            _ => self.of_text("e"),
        }
    }

    fn of_counter(&mut self) -> String {
        let key = self.key("n");
        match self.random.below(20) {
            0..=12 => format!("INCR {key}"),
            13..=14 => format!("INCRBY {key} 10"),
            15 => format!("DEL {key}"),
            _ => format!("GET {key}"),
        }
    }

    fn of_list(&mut self) -> String {
        let key = self.key("l");
        match self.random.below(20) {
            0..=11 => format!("APPEND {key} {}", self.value()),
            12 => format!("STRLEN {key}"),
            13 => format!("DEL {key}"),
            _ => format!("GET {key}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn requests(generator: &mut Generator, count: usize) -> Vec<Request> {
        let mut all = Vec::new();
        for _ in 0..count {
            match generator.draw() {
                Activity::Pipeline(requests) => all.extend(requests),
                Activity::Watch { first, then } => {
                    all.extend(first);
                    all.push(then);
                }
                Activity::Scan(_) => {}
            }
        }
        all
    }

    fn mix(alone: bool) -> Mix {
        Mix { keys: 3, depth: 5, prefix: "redis:".to_owned(), alone, lists: true }
    }

    #[test]
    fn two_connections_never_write_the_same_value() {
        let mut written = BTreeSet::new();
        for number in 0..2 {
            for request in requests(&mut Generator::new(mix(true), 5, number, 2), 2_000) {
                let commands = match request {
                    Request::One(words) => vec![words],
                    Request::Transaction(commands) => commands,
                };
                for word in commands.iter().flatten().filter(|word| word.starts_with('v')) {
                    assert!(written.insert(word.clone()), "{word} twice");
                }
            }
        }
        assert!(written.len() > 2_000);
    }

    #[test]
    fn some_values_are_larger_than_a_page() {
        let large = |request: &Request| matches!(request, Request::One(words) if words.iter().any(|word| word.len() > 4096));
        let drawn = requests(&mut Generator::new(mix(true), 1, 0, 1), 2_000);
        let share = drawn.iter().filter(|request| large(request)).count();
        assert!((20..200).contains(&share), "{share} of {}", drawn.len());
    }

    #[test]
    fn every_command_of_the_mix_is_drawn_and_a_shared_keyspace_is_left_alone() {
        let names = |alone| -> BTreeSet<String> {
            let drawn = requests(&mut Generator::new(mix(alone), 1, 0, 1), 3_000);
            drawn.iter().map(|request| request.name().to_owned()).collect()
        };
        let all = names(true);
        for name in [
            "FLUSHDB", "DBSIZE", "KEYS", "WATCH", "EXEC", "MSETNX", "GETEX", "PTTL", "APPEND",
            "INCR",
        ] {
            assert!(all.contains(name), "{name}");
        }
        let shared = names(false);
        assert!(
            shared.contains("KEYS") && !shared.contains("FLUSHDB") && !shared.contains("DBSIZE")
        );
        let mut plain = Generator::new(Mix { lists: false, ..mix(true) }, 1, 0, 1);
        let listing =
            |request: &Request| matches!(request.name(), "KEYS" | "SCAN" | "DBSIZE" | "FLUSHDB");
        assert!(!requests(&mut plain, 3_000).iter().any(listing));
        assert!(!(0..3_000).any(|_| matches!(plain.draw(), Activity::Scan(_))));
    }
}
