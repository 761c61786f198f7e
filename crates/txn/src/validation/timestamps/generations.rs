//! The table behind the recent-access table: one entry for a key, one line of the processor's cache
//! for an entry, two generations in one place.
//!
//! ```text
//!   key ──▶ home line ──▶ next line ──▶ … until an empty one      (linear probing)
//!   an entry is young (used in this generation), old (in the last one), or stale: as good as not there
//! ```
//!
//! A look-up that finds its key at home touches one line, whose address depends on the key alone:
//! it can be fetched before anything is known. Going to the next generation touches nothing: entries
//! become stale by their number. Stale ones are taken by new keys that pass by, and swept by a few
//! for each line that is newly taken, so that neither their number nor a pause grows.
//!
//! Invariants: between a key's home and its entry no line is empty; a key has one entry; `used` are
//! the lines that are not empty, and at most [`FULL`] of the capacity.
//!
//! It does not know what entries mean, nor what becomes of those that go stale.

use timestone_types::KeyHash;

/// Lines of the smallest table.
const LEAST: usize = 64;
/// Eighths of the lines that may be in use.
const FULL: usize = 5;
/// Lines that are looked at for stale entries whenever an empty line is taken.
const SWEPT_AT_ONCE: usize = 2;

/// The number of a generation that is past in any.
const STALE: u32 = 1;

/// One line: an entry, and the generation in which it was used last; none has the number 0.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub(super) struct Line<T> {
    key: KeyHash,
    entry: T,
    generation: u32,
}

/// What [`Generations::find`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// An entry that was used in this generation.
    Young(usize),
    /// An entry that was used in the last generation.
    Old(usize),
    /// None; a new one may go there.
    New(usize),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Generations<T> {
    /// A power of two of them.
    lines: Box<[Line<T>]>,
    generation: u32,
    used: usize,
    young: usize,
    old: usize,
    /// Where sweeping goes on.
    swept: usize,
}

impl<T> Default for Generations<T> {
    fn default() -> Self {
        // The first generation has two before it, and none has the number of an empty line.
        Self { lines: Box::default(), generation: 3, used: 0, young: 0, old: 0, swept: 0 }
    }
}

impl<T: Copy + Default> Generations<T> {
    /// Entries of this generation and of the last.
    pub(super) fn len(&self) -> usize {
        self.young + self.old
    }

    /// Memory of the table, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.lines)
    }

    /// Entries that were used in this generation.
    pub(super) fn young(&self) -> usize {
        self.young
    }

    #[inline]
    fn home(&self, key: KeyHash) -> usize {
        // The lowest bits lead through an index' segments, the highest to the segment.
        (key.0 >> 20) as usize & (self.lines.len() - 1)
    }

    #[inline]
    fn is_stale(&self, line: &Line<T>) -> bool {
        line.generation + 1 < self.generation
    }

    /// The line where the search for a key begins; none in an empty table.
    #[inline]
    pub(super) fn home_line(&self, key: KeyHash) -> Option<&Line<T>> {
        if self.lines.is_empty() { None } else { Some(&self.lines[self.home(key)]) }
    }

    /// Where the entry of a key is, or would be.
    #[inline]
    pub(super) fn find(&mut self, key: KeyHash) -> Place {
        if self.lines.is_empty() {
            self.grow();
        }
        let mask = self.lines.len() - 1;
        let mut at = self.home(key);
        let mut free = None;
        loop {
            let line = &self.lines[at];
            if line.key == key && line.generation != 0 {
                return match self.generation - line.generation {
                    0 => Place::Young(at),
                    1 => Place::Old(at),
                    // Its own line comes before one that is free behind it.
                    _ => Place::New(free.unwrap_or(at)),
                };
            }
            if line.generation == 0 {
                return Place::New(free.unwrap_or(at));
            }
            if free.is_none() && self.is_stale(line) {
                free = Some(at);
            }
            at = (at + 1) & mask;
        }
    }

    /// The entry in a line where [`Generations::find`] found it; it is young from now on.
    #[inline]
    pub(super) fn renew(&mut self, at: usize) -> &mut T {
        let line = &mut self.lines[at];
        debug_assert!(line.generation + 1 == self.generation, "an old entry is renewed");
        line.generation = self.generation;
        self.old -= 1;
        self.young += 1;
        &mut line.entry
    }

    /// The entry in a line where [`Generations::find`] found it.
    #[inline]
    pub(super) fn entry(&mut self, at: usize) -> &mut T {
        let line = &mut self.lines[at];
        debug_assert!(line.generation == self.generation, "a young entry is used");
        &mut line.entry
    }

    /// Makes the entry of a key, where [`Generations::find`] said.
    pub(super) fn insert(&mut self, key: KeyHash, at: usize, entry: T) -> &mut T {
        let mut at = at;
        if self.lines[at].generation == 0 {
            if (self.used + 1) * 8 > self.lines.len() * FULL {
                self.grow();
            } else {
                self.sweep();
            }
            let Place::New(now_at) = self.find(key) else { unreachable!("the key is new") };
            at = now_at;
            self.used += usize::from(self.lines[at].generation == 0);
        } else {
            self.forget_twin(key, at);
        }
        self.young += 1;
        self.lines[at] = Line { key, entry, generation: self.generation };
        debug_assert!(self.used < self.lines.len(), "a search ends");
        &mut self.lines[at].entry
    }

    /// Takes out the entry in a line where [`Generations::find`] found it young. Its key is a new
    /// one afterwards.
    #[inline]
    pub(super) fn take_out(&mut self, at: usize) {
        debug_assert!(self.lines[at].generation == self.generation, "a young entry is taken out");
        self.young -= 1;
        self.lines[at].generation = STALE;
        self.remove(at);
        debug_assert!(self.len() <= self.used, "entries are in lines");
    }

    /// A key has one entry: a stale one of its own, behind the line that it takes, goes.
    fn forget_twin(&mut self, key: KeyHash, taken: usize) {
        debug_assert!(self.is_stale(&self.lines[taken]), "what is taken is stale");
        let mask = self.lines.len() - 1;
        let mut at = taken;
        while self.lines[at].generation != 0 {
            if self.lines[at].key == key {
                if at != taken {
                    self.remove(at);
                }
                return;
            }
            at = (at + 1) & mask;
        }
    }

    /// Begins the next generation: what was not used in this one goes stale.
    pub(super) fn next_generation(&mut self) {
        if self.generation == u32::MAX {
            // After centuries: begin anew with what is alive.
            self.renumber();
        }
        self.generation += 1;
        self.old = self.young;
        self.young = 0;
        debug_assert!(self.old <= self.used, "entries are in lines");
    }

    #[cold]
    fn renumber(&mut self) {
        let generation = self.generation;
        for line in &mut self.lines {
            // Stale ones stay stale: they keep searches together.
            line.generation = match line.generation {
                0 => 0,
                one => 4u32.saturating_sub(generation - one).max(1),
            };
        }
        self.generation = 4;
        debug_assert!(self.len() <= self.used, "entries are in lines");
    }

    /// Takes stale entries out of the next few lines.
    #[inline]
    fn sweep(&mut self) {
        for _ in 0..SWEPT_AT_ONCE {
            let line = &self.lines[self.swept];
            if line.generation != 0 && self.is_stale(line) {
                self.remove(self.swept);
            } else {
                self.swept = (self.swept + 1) & (self.lines.len() - 1);
            }
        }
        debug_assert!(self.len() <= self.used, "entries are in lines");
    }

    /// Empties a line, and moves what follows to where searches still find it.
    fn remove(&mut self, at: usize) {
        debug_assert!(self.is_stale(&self.lines[at]), "only what is stale goes");
        let mask = self.lines.len() - 1;
        let mut hole = at;
        let mut next = (at + 1) & mask;
        while self.lines[next].generation != 0 {
            let home = self.home(self.lines[next].key);
            // It may move to the hole if that is not before its home.
            if (next.wrapping_sub(home) & mask) >= (next.wrapping_sub(hole) & mask) {
                self.lines[hole] = self.lines[next];
                hole = next;
            }
            next = (next + 1) & mask;
        }
        self.lines[hole] = Line::default();
        self.used -= 1;
    }

    /// A table of which at most half is in use, by what is alive; stale entries go.
    #[cold]
    fn grow(&mut self) {
        let mut capacity = self.lines.len().max(LEAST);
        while self.len() * 2 > capacity {
            capacity *= 2;
        }
        let empty = vec![Line::default(); capacity].into_boxed_slice();
        let lines = core::mem::replace(&mut self.lines, empty);
        (self.used, self.swept) = (0, 0);
        for line in lines {
            if line.generation != 0 && !self.is_stale(&line) {
                let mut at = self.home(line.key);
                while self.lines[at].generation != 0 {
                    at = (at + 1) & (capacity - 1);
                }
                self.lines[at] = line;
                self.used += 1;
            }
        }
        assert_eq!(self.used, self.len(), "what is alive has moved");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// What a table says of a key: its entry, if it has one.
    fn look(table: &mut Generations<u64>, key: KeyHash) -> Option<u64> {
        match table.find(key) {
            Place::Young(at) => Some(*table.entry(at)),
            Place::Old(at) => Some(*table.renew(at)),
            Place::New(_) => None,
        }
    }

    #[test]
    fn an_entry_is_a_line() {
        assert_eq!((size_of::<Line<[u64; 5]>>(), align_of::<Line<[u64; 5]>>()), (64, 64));
    }

    #[test]
    fn it_behaves_as_two_maps_do() {
        let mut table = Generations::default();
        let (mut young, mut old) = (BTreeMap::new(), BTreeMap::new());
        let mut dice = 7u64;
        let mut draw = |below: u64| {
            dice = dice.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (dice >> 33) % below
        };
        for turn in 0..200_000u64 {
            // Few homes, so that keys are in each other's way, and now and then many.
            let spread = if turn / 20_000 % 2 == 0 { 40 } else { 3000 };
            let key = KeyHash(draw(spread) << 20 | draw(3));
            let model = young.get(&key).copied().or_else(|| old.remove(&key));
            assert_eq!(look(&mut table, key), model, "turn {turn}");
            let entry = model.unwrap_or(turn);
            if model.is_none() {
                let Place::New(at) = table.find(key) else { panic!("it is new") };
                *table.insert(key, at, 0) = entry;
            }
            young.insert(key, entry);
            if draw(3) == 0 {
                let Place::Young(at) = table.find(key) else { panic!("it was used just now") };
                table.take_out(at);
                young.remove(&key);
                assert!(matches!(table.find(key), Place::New(_)), "it was taken out");
            }
            assert_eq!((table.young(), table.len()), (young.len(), young.len() + old.len()));
            if draw(500) == 0 {
                table.next_generation();
                old = core::mem::take(&mut young);
            }
        }
        assert!(table.lines.len() <= 16_384, "stale entries make way: {} lines", table.lines.len());
    }

    #[test]
    fn the_numbers_of_generations_may_run_out() {
        let mut table = Generations::<u64> { generation: u32::MAX - 1, ..Generations::default() };
        for n in 0..6 {
            let Place::New(at) = table.find(KeyHash(n)) else { panic!("it is new") };
            *table.insert(KeyHash(n), at, 0) = n;
            if n > 0 {
                assert_eq!(look(&mut table, KeyHash(n - 1)), Some(n - 1), "used in turn {n}");
            }
            table.next_generation();
            if n > 1 {
                assert!(matches!(table.find(KeyHash(n - 2)), Place::New(_)), "dropped: {n}");
            }
        }
    }
}
