//! What the work of a store's thread takes in virtual time.
//!
//! A turn asks for gets and puts, and what the store does for them shows in what it asks of the
//! device and in what its collectors move. Each of these has a price; a turn takes their sum.
//! Prices are measured ([`calibrate`](super::calibrate())), the same for all stores: what makes one
//! store dearer than another is how much more it does, not a figure that somebody chose.

use std::time::Duration;

use serde::Deserialize;

/// Nanoseconds of one core.
#[derive(Clone, Copy, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Processor {
    /// A turn, whatever it does.
    pub turn: f64,
    /// A get, without reading: look-up and answer.
    pub get: f64,
    /// A put: look-up, record, index.
    pub put: f64,
    /// Reading: to ask the device, to take the pages back and to check one.
    pub read: f64,
    /// A page that is programmed, for whatever reason, with its share of a block's erase.
    pub program: f64,
    /// A record that collection moves.
    pub move_record: f64,
    /// A page that goes through the map of a lower translation layer: written, read, moved.
    pub translate: f64,
}

/// What was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Work {
    pub(crate) turns: u64,
    pub(crate) gets: u64,
    pub(crate) puts: u64,
    pub(crate) reads: u64,
    pub(crate) programmed_pages: u64,
    pub(crate) moved_records: u64,
    pub(crate) translated_pages: u64,
}

impl Work {
    /// How many prices there are.
    pub(crate) const KINDS: usize = 7;

    /// In the order of [`Processor::from_prices`].
    pub(crate) fn counts(&self) -> [f64; Self::KINDS] {
        [
            self.turns,
            self.gets,
            self.puts,
            self.reads,
            self.programmed_pages,
            self.moved_records,
            self.translated_pages,
        ]
        .map(|count| count as f64)
    }

    /// What was done since.
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            turns: self.turns - before.turns,
            gets: self.gets - before.gets,
            puts: self.puts - before.puts,
            reads: self.reads - before.reads,
            programmed_pages: self.programmed_pages - before.programmed_pages,
            moved_records: self.moved_records - before.moved_records,
            translated_pages: self.translated_pages - before.translated_pages,
        }
    }
}

impl Processor {
    fn prices(&self) -> [f64; Work::KINDS] {
        [self.turn, self.get, self.put, self.read, self.program, self.move_record, self.translate]
    }

    /// Prices in the order of [`Work::counts`].
    pub(crate) fn from_prices(prices: [f64; Work::KINDS]) -> Self {
        let [turn, get, put, read, program, move_record, translate] = prices;
        Self { turn, get, put, read, program, move_record, translate }
    }

    /// What work takes.
    pub(crate) fn time_of(&self, work: &Work) -> Duration {
        let nanos: f64 =
            self.prices().iter().zip(work.counts()).map(|(price, count)| price * count).sum();
        Duration::from_nanos(nanos.round() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_takes_the_sum_of_what_its_work_takes() {
        let processor = Processor::from_prices([50.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let before = Work { gets: 100, ..Work::default() };
        let after = Work {
            turns: 1,
            gets: 110,
            puts: 10,
            reads: 10,
            programmed_pages: 10,
            moved_records: 10,
            translated_pages: 10,
        };
        let nanos = 50 + 10 * (1 + 2 + 3 + 4 + 5 + 6);
        assert_eq!(processor.time_of(&after.since(&before)), Duration::from_nanos(nanos));
    }
}
