//! Whether puts may be promised: there has to be room in the process's memory, in the store, and in
//! the log.
//!
//! Invariant: what was promised is counted as promised in the process's memory at the end of each
//! turn.

use std::sync::Arc;

use timestone_seda::{Memory, MemoryUse, Tally};
use timestone_store::{PromisedPuts, PutSize, StoreError};

use crate::shard::ShardStore;
use crate::turn::LogShortage;
use crate::write_sets::WriteSets;

/// Why a put is not let in.
#[derive(Debug)]
pub(crate) enum AdmissionError {
    /// The log has no room.
    Log(Arc<str>),
    /// The store has none, or there is too little memory.
    Store(StoreError),
}

/// Who is let in.
pub(crate) struct Admission {
    memory: Arc<Memory>,
    /// Bytes of the write sets, as far as others know.
    promised: Tally,
    /// What the log lacks, and the bytes that were sent to it since it said so.
    log_shortage: Option<LogShortage>,
    sent_since: u64,
}

impl Admission {
    /// By what the process has left of its memory.
    pub(crate) fn new(memory: Arc<Memory>) -> Self {
        let promised = Tally::new(&memory, MemoryUse::Writes);
        Self { memory, promised, log_shortage: None, sent_since: 0 }
    }

    /// What the log lacks from now on.
    pub(crate) fn set_log_shortage(&mut self, shortage: Option<LogShortage>) {
        (self.log_shortage, self.sent_since) = (shortage, 0);
        self.assert_sound();
    }

    /// So many bytes were sent to the log.
    #[inline]
    pub(crate) fn note_sent(&mut self, bytes: usize) {
        if self.log_shortage.is_some() {
            self.sent_since += bytes as u64;
        }
        self.assert_sound();
    }

    fn assert_sound(&self) {
        debug_assert!(
            self.sent_since == 0 || self.log_shortage.is_some(),
            "what is sent is counted while the log lacks something"
        );
    }

    /// Tells the process how many bytes are promised.
    #[inline]
    pub(crate) fn count(&mut self, bytes: u64) {
        self.promised.change(self.promised.bytes(), bytes);
        debug_assert_eq!(self.promised.bytes(), bytes);
    }

    /// Why there is no room for these puts, if so. `open_bytes` are on their way to the log. Nothing
    /// comes of asking: what is refused may be a repeat of what was let in before.
    #[inline]
    pub(crate) fn error<I: Iterator<Item = PutSize>>(
        &mut self,
        puts: &impl Fn() -> I,
        store: &mut ShardStore,
        write_sets: &WriteSets,
        open_bytes: usize,
    ) -> Option<AdmissionError> {
        debug_assert!(puts().next().is_some(), "what puts nothing needs no room");
        if let Some(words) = self.log_error(|| puts().map(|put| put.bytes).sum(), open_bytes) {
            return Some(AdmissionError::Log(words));
        }
        self.admit(puts, store, write_sets).err().map(AdmissionError::Store)
    }

    /// Whether these puts may be promised now.
    ///
    /// # Errors
    /// The admission error: the store has no room, or what is promised already waits for room.
    #[inline]
    fn admit<I: Iterator<Item = PutSize>>(
        &mut self,
        puts: &impl Fn() -> I,
        store: &mut ShardStore,
        write_sets: &WriteSets,
    ) -> Result<(), StoreError> {
        let promised = write_sets.payloads().puts();
        self.count(promised.bytes);
        debug_assert_eq!(self.promised.bytes(), promised.bytes, "others know what is promised");
        if !self.has_memory(promised) {
            return Err(StoreError::Busy);
        }
        store.admit(&mut puts(), promised)?;
        write_sets.check_room(|| puts().any(|put| put.keyspace.is_in_memory()))
    }

    /// Whether the process has memory for what is promised besides. What is alone here is let in, so
    /// that shards take turns.
    #[inline]
    fn has_memory(&self, promised: PromisedPuts) -> bool {
        promised.bytes == 0 || self.memory.has_room(MemoryUse::Writes, 1)
    }

    /// These puts are new, and were refused: that is counted, and room is made for them.
    #[cold]
    pub(crate) fn refuse<I: Iterator<Item = PutSize>>(
        &self,
        error: &AdmissionError,
        puts: &impl Fn() -> I,
        store: &mut ShardStore,
        write_sets: &WriteSets,
    ) {
        let promised = write_sets.payloads().puts();
        match error {
            // Its stage makes room by itself.
            AdmissionError::Log(_) => {}
            AdmissionError::Store(_) if !self.has_memory(promised) => {
                self.memory.note_refused(MemoryUse::Writes);
            }
            AdmissionError::Store(_) => store.ask_room(&mut puts(), promised),
        }
    }

    /// Why puts of so many bytes may not be promised now, if it is because the log has no room for
    /// another file: what is left of the one that it has is for what was promised before, and for
    /// what makes room.
    fn log_error(&self, bytes: impl FnOnce() -> usize, open_bytes: usize) -> Option<Arc<str>> {
        let shortage = self.log_shortage.as_ref()?;
        if timestone_types::is_planted!(IgnoredLogShortage) {
            return None;
        }
        let wanted = (bytes() + open_bytes) as u64 + self.sent_since;
        (wanted > shortage.room_bytes).then(|| Arc::clone(&shortage.words))
    }
}
