//! Memory that is bounded: what connections have sent and what they are owed, counted in bytes over
//! the whole process.
//!
//! ```text
//!   one Memory a process ─┬─ input:  commands and frames that are not carried out yet
//!                         ├─ writes: what is promised and not readable from the store yet
//!                         └─ output: answers that are not written to their socket yet
//!   Charge   bytes of one buffer, given back when it is dropped          Tally   the sum of a stage's many small ones
//! ```
//! Each has a limit of its own: answers that nobody reads never keep requests out, and what was
//! received always finds room to be carried out. Whatever its size, what comes alone has room. The
//! counters are shared by all threads, so they are touched rarely: a charge is for large buffers, a
//! tally publishes its sum in steps of [`TALLY_STEP`].
//!
//! What it does not do: refuse. Whoever is about to take memory asks first ([`Memory::has_room`])
//! and says `Busy` in its own words.

use std::fmt;
use std::sync::Arc;

use crate::limits::TALLY_STEP;
use crate::sync::{AtomicU64, Ordering};

/// What memory is used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemoryUse {
    /// What clients have sent and is not carried out yet.
    Input,
    /// Write sets that are promised and not readable from the store yet.
    Writes,
    /// Answers that are not written yet.
    Output,
}

#[derive(Debug)]
struct Pool {
    limit: AtomicU64,
    used: AtomicU64,
    refused: AtomicU64,
}

impl Pool {
    fn new(limit: u64) -> Self {
        Self { limit: AtomicU64::new(limit), used: AtomicU64::new(0), refused: AtomicU64::new(0) }
    }
}

/// The memory of one process for its connections. See the module.
#[derive(Debug)]
pub struct Memory {
    input: Pool,
    writes: Pool,
    output: Pool,
}

impl Default for Memory {
    fn default() -> Self {
        Self::new(u64::MAX, u64::MAX, u64::MAX)
    }
}

impl Memory {
    /// Memory with these limits, in bytes. They are exceeded by at most what was under way when
    /// they were reached.
    #[must_use]
    pub fn new(input: u64, writes: u64, output: u64) -> Self {
        Self { input: Pool::new(input), writes: Pool::new(writes), output: Pool::new(output) }
    }

    const fn pool(&self, of: MemoryUse) -> &Pool {
        match of {
            MemoryUse::Input => &self.input,
            MemoryUse::Writes => &self.writes,
            MemoryUse::Output => &self.output,
        }
    }

    /// Bytes in use.
    #[must_use]
    pub fn used(&self, of: MemoryUse) -> u64 {
        self.pool(of).used.load(Ordering::Relaxed)
    }

    /// Bytes that may be in use.
    #[must_use]
    pub fn limit(&self, of: MemoryUse) -> u64 {
        self.pool(of).limit.load(Ordering::Relaxed)
    }

    /// How often something was refused, or had to wait, for want of memory.
    #[must_use]
    pub fn refused(&self, of: MemoryUse) -> u64 {
        self.pool(of).refused.load(Ordering::Relaxed)
    }

    /// Whether `bytes` more fit now.
    #[must_use]
    #[inline]
    pub fn has_room(&self, of: MemoryUse, bytes: u64) -> bool {
        let used = self.used(of);
        used == 0 || used.saturating_add(bytes) <= self.limit(of)
    }

    /// Whether more than half is in use: each connection then gets less.
    #[must_use]
    pub fn is_scarce(&self, of: MemoryUse) -> bool {
        self.used(of) > self.limit(of) / 2
    }

    /// Counts a refusal.
    pub fn note_refused(&self, of: MemoryUse) {
        self.pool(of).refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Charges `bytes`, whether they fit or not.
    #[must_use]
    pub fn charge(self: &Arc<Self>, of: MemoryUse, bytes: u64) -> Charge {
        let mut charge = Charge { memory: Arc::clone(self), of, bytes: 0 };
        charge.set(bytes);
        charge
    }

    /// Charges `bytes` if they fit; counts a refusal if not.
    #[must_use]
    pub fn try_charge(self: &Arc<Self>, of: MemoryUse, bytes: u64) -> Option<Charge> {
        if self.has_room(of, bytes) {
            return Some(self.charge(of, bytes));
        }
        self.note_refused(of);
        None
    }
}

/// Bytes that are counted until this is dropped.
pub struct Charge {
    memory: Arc<Memory>,
    of: MemoryUse,
    bytes: u64,
}

impl Charge {
    /// Bytes that it counts.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Counts so many from now on.
    pub fn set(&mut self, bytes: u64) {
        let used = &self.memory.pool(self.of).used;
        if bytes > self.bytes {
            used.fetch_add(bytes - self.bytes, Ordering::Relaxed);
        } else if bytes < self.bytes {
            let before = used.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
            debug_assert!(
                before >= self.bytes - bytes,
                "gave back {} bytes of {before}",
                self.bytes - bytes
            );
        }
        self.bytes = bytes;
    }

    /// Counts `bytes` more if they fit; counts a refusal if not.
    pub fn try_grow(&mut self, bytes: u64) -> bool {
        let fits = self.memory.has_room(self.of, bytes);
        if fits {
            self.set(self.bytes + bytes);
        } else {
            self.memory.note_refused(self.of);
        }
        fits
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.set(0);
    }
}

impl fmt::Debug for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Charge({:?}, {} bytes)", self.of, self.bytes)
    }
}

/// The sum of many small buffers of one stage, published in steps.
#[derive(Debug)]
pub struct Tally {
    published: Charge,
    exact: u64,
}

impl Tally {
    /// Nothing so far.
    #[must_use]
    pub fn new(memory: &Arc<Memory>, of: MemoryUse) -> Self {
        Self { published: memory.charge(of, 0), exact: 0 }
    }

    /// The sum, published or not.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.exact
    }

    /// One of the buffers had `before` bytes and has `after` now.
    #[inline]
    pub fn change(&mut self, before: u64, after: u64) {
        debug_assert!(self.exact + after >= before, "{before} bytes left a sum of {}", self.exact);
        self.exact = (self.exact + after).saturating_sub(before);
        // Nothing is told as nothing: what comes alone has room whatever its size. So is the little
        // that idle connections keep.
        let is_over = self.exact == 0 && self.published.bytes() > 0;
        if is_over || self.exact.abs_diff(self.published.bytes()) >= TALLY_STEP {
            self.published.set(if self.exact < TALLY_STEP { 0 } else { self.exact });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_count_until_they_are_dropped_and_refusals_are_counted() {
        let memory = Arc::new(Memory::new(100, 100, 50));
        let mut first = memory.try_charge(MemoryUse::Input, 60).expect("there is room");
        assert!(!memory.is_scarce(MemoryUse::Output) && memory.is_scarce(MemoryUse::Input));
        assert!(
            memory.try_charge(MemoryUse::Input, 41).is_none()
                && memory.try_charge(MemoryUse::Output, 41).is_some()
        );
        assert!(first.try_grow(40) && !first.try_grow(1));
        assert_eq!((memory.used(MemoryUse::Input), memory.refused(MemoryUse::Input)), (100, 2));
        first.set(10);
        assert_eq!(memory.used(MemoryUse::Input), 10);
        drop(first);
        assert_eq!((memory.used(MemoryUse::Input), memory.used(MemoryUse::Output)), (0, 0));
    }

    #[test]
    fn a_tally_publishes_in_steps() {
        let memory = Arc::new(Memory::default());
        let mut tally = Tally::new(&memory, MemoryUse::Output);
        tally.change(0, TALLY_STEP - 1);
        assert_eq!((tally.bytes(), memory.used(MemoryUse::Output)), (TALLY_STEP - 1, 0));
        tally.change(0, 1);
        assert_eq!(memory.used(MemoryUse::Output), TALLY_STEP);
        tally.change(TALLY_STEP, 0);
        assert_eq!((tally.bytes(), memory.used(MemoryUse::Output)), (0, 0));
        tally.change(0, 2 * TALLY_STEP);
        tally.change(2 * TALLY_STEP, TALLY_STEP - 1);
        assert_eq!((tally.bytes(), memory.used(MemoryUse::Output)), (TALLY_STEP - 1, 0));
        tally.change(TALLY_STEP - 1, 0);
        assert_eq!(memory.used(MemoryUse::Output), 0);
    }
}
