//! What `seda` has in its own `sync.rs`, from loom: its atomics and fences, and queues built from
//! them.
//!
//! The ring and the queue stand in for `rtrb` and `crossbeam-queue`, with the same ways of
//! publishing: a slot is filled before the position that names it is stored with `Release`, and
//! looked at after that was loaded with `Acquire`. Their slots are mutexes: what is modelled is our
//! protocol around them, not the libraries.
//!
//! Planted bugs are switched on for one run of the program; see `planted`.

use loom::sync::atomic::AtomicUsize;
use loom::sync::{Arc, Mutex};

pub(crate) use loom::sync::atomic::{AtomicBool, Ordering};

use crate::planted::{Bug, planted};

/// A fence, unless its absence is planted.
pub(crate) fn fence(order: Ordering) {
    if !planted(Bug::NoFence) {
        loom::sync::atomic::fence(order);
    }
}

/// A counter, whose additions are torn when that is planted.
#[derive(Debug, Default)]
pub(crate) struct AtomicU64(loom::sync::atomic::AtomicU64);

impl AtomicU64 {
    pub(crate) fn new(value: u64) -> Self {
        Self(loom::sync::atomic::AtomicU64::new(value))
    }

    pub(crate) fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }

    pub(crate) fn store(&self, value: u64, order: Ordering) {
        self.0.store(value, order);
    }

    pub(crate) fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        if planted(Bug::LostUpdate) {
            let before = self.0.load(Ordering::Relaxed);
            self.0.store(before.wrapping_add(value), Ordering::Relaxed);
            return before;
        }
        self.0.fetch_add(value, order)
    }

    pub(crate) fn fetch_max(&self, value: u64, order: Ordering) -> u64 {
        self.0.fetch_max(value, order)
    }

    pub(crate) fn fetch_sub(&self, value: u64, order: Ordering) -> u64 {
        self.fetch_add(value.wrapping_neg(), order)
    }
}

struct Ring<T> {
    slots: Vec<Mutex<Option<T>>>,
    /// Items ever pushed, and ever taken.
    pushed: AtomicUsize,
    taken: AtomicUsize,
}

impl<T> std::fmt::Debug for Ring<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ring")
    }
}

pub(crate) struct RingBuffer;

impl RingBuffer {
    #[expect(clippy::new_ret_no_self, reason = "as rtrb has it")]
    pub(crate) fn new<T>(capacity: usize) -> (Producer<T>, Consumer<T>) {
        let slots = (0..capacity).map(|_| Mutex::new(None)).collect();
        let ring =
            Arc::new(Ring { slots, pushed: AtomicUsize::new(0), taken: AtomicUsize::new(0) });
        (Producer { ring: Arc::clone(&ring) }, Consumer { ring })
    }
}

#[derive(Debug)]
pub(crate) struct Producer<T> {
    ring: Arc<Ring<T>>,
}

impl<T> Producer<T> {
    pub(crate) fn slots(&self) -> usize {
        let taken = self.ring.taken.load(Ordering::Acquire);
        self.ring.slots.len() - (self.ring.pushed.load(Ordering::Relaxed) - taken)
    }

    pub(crate) fn write_chunk_uninit(&mut self, count: usize) -> Result<WriteChunk<'_, T>, ()> {
        if count <= self.slots() { Ok(WriteChunk { ring: &self.ring, count }) } else { Err(()) }
    }
}

pub(crate) struct WriteChunk<'a, T> {
    ring: &'a Ring<T>,
    count: usize,
}

impl<T> WriteChunk<'_, T> {
    pub(crate) fn fill_from_iter(self, items: impl Iterator<Item = T>) -> usize {
        let at = self.ring.pushed.load(Ordering::Relaxed);
        let mut filled = 0;
        for item in items.take(self.count) {
            let slot = &self.ring.slots[(at + filled) % self.ring.slots.len()];
            let before = slot.lock().expect("no thread of a model panics with it").replace(item);
            assert!(before.is_none(), "a slot is filled again before it was emptied");
            filled += 1;
        }
        self.ring.pushed.store(at + filled, Ordering::Release);
        filled
    }
}

#[derive(Debug)]
pub(crate) struct Consumer<T> {
    ring: Arc<Ring<T>>,
}

impl<T> Consumer<T> {
    pub(crate) fn slots(&self) -> usize {
        self.ring.pushed.load(Ordering::Acquire) - self.ring.taken.load(Ordering::Relaxed)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots() == 0
    }

    pub(crate) fn read_chunk(&mut self, count: usize) -> Result<std::vec::IntoIter<T>, ()> {
        if count > self.slots() {
            return Err(());
        }
        let at = self.ring.taken.load(Ordering::Relaxed);
        let take = |index: usize| {
            let mut slot = self.ring.slots[index % self.ring.slots.len()]
                .lock()
                .expect("no thread panics with it");
            slot.take().expect("what was pushed is in its slot")
        };
        let items: Vec<T> = (at..at + count).map(take).collect();
        self.ring.taken.store(at + count, Ordering::Release);
        Ok(items.into_iter())
    }
}

/// A bounded queue of many producers.
pub(crate) struct ArrayQueue<T> {
    items: Mutex<std::collections::VecDeque<T>>,
    length: AtomicUsize,
    capacity: usize,
}

impl<T> ArrayQueue<T> {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            items: Mutex::new(std::collections::VecDeque::new()),
            length: AtomicUsize::new(0),
            capacity,
        }
    }

    pub(crate) fn push(&self, item: T) -> Result<(), T> {
        let mut items = self.items.lock().expect("no thread panics with it");
        if items.len() == self.capacity {
            return Err(item);
        }
        items.push_back(item);
        self.length.store(items.len(), Ordering::Release);
        Ok(())
    }

    pub(crate) fn pop(&self) -> Option<T> {
        let mut items = self.items.lock().expect("no thread panics with it");
        let item = items.pop_front()?;
        self.length.store(items.len(), Ordering::Release);
        Some(item)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.length.load(Ordering::Acquire) == 0
    }
}
