//! The store of the keyspaces whose index is on flash, which is there from the first write on.
//!
//! ```text
//!   read of such a keyspace ─┬─ there ───────► Skimpy
//!   write, or its admission ─┘  not yet: reads find nothing; the first write ─► opener ─► Skimpy
//! ```
//! A shard that never meets such a keyspace has no second device. Whoever makes the stores says how
//! one is opened; that may take a while, during which writes are told that the store is busy. What
//! cannot be opened is tried again after [`OPEN_AGAIN_AFTER`], and writes are refused until then.
//!
//! Invariant: a store that is opened late knows batch, watermark and replay floor as if it had been
//! there from the beginning.

use std::sync::Arc;
use std::time::Duration;

use timestone_types::Timestamp;

use crate::api::{AsOf, KeyList, ReadToken, StoreEvent, Upkeep};
use crate::error::StoreError;
use crate::limits::{OPEN_AGAIN_AFTER, OPENING_INTERVAL};
use crate::skimpy::Skimpy;

/// How far the opening of a store has come.
pub enum Opening {
    /// It is there.
    Open(Box<Skimpy>),
    /// It goes on elsewhere: ask again.
    UnderWay,
    /// It is impossible: a sentence that names the file, and says why and what to do.
    Failed(String),
}

/// Opens the store with its index on flash, making its device where it is missing. Asked again as
/// long as that is under way, and blocks for no longer than it is told: not at all by a shard that
/// serves.
pub type OpenFrugal = Box<dyn FnMut(Duration) -> Opening + Send>;

/// See the module.
#[derive(Default)]
pub(super) struct FrugalPart {
    store: Option<Box<Skimpy>>,
    opener: Option<OpenFrugal>,
    /// It is being opened.
    is_opening: bool,
    /// Answers to walks over keyspaces that nobody has written to yet.
    answers: Vec<StoreEvent>,
    /// Why it could not be opened last, and when that is tried again.
    refused: Option<(Arc<str>, Timestamp)>,
    now: Timestamp,
    batch: u64,
    watermark: Timestamp,
    replay_floor: Timestamp,
    is_closing: bool,
}

impl FrugalPart {
    /// A store that is there.
    pub(super) fn open(store: Skimpy) -> Self {
        Self { store: Some(Box::new(store)), ..Self::default() }
    }

    /// One that is opened with the first write.
    pub(super) fn later(opener: OpenFrugal) -> Self {
        Self { opener: Some(opener), ..Self::default() }
    }

    /// The store, if it is there.
    #[inline]
    pub(super) fn get(&self) -> Option<&Skimpy> {
        self.store.as_deref()
    }

    /// The store, if it is there.
    #[inline]
    pub(super) fn get_mut(&mut self) -> Option<&mut Skimpy> {
        self.store.as_deref_mut()
    }

    /// The store for a read at a time that is not too old, if it is there: whoever is there says so
    /// himself.
    ///
    /// # Errors
    /// [`StoreError::TooOld`].
    #[inline]
    pub(super) fn get_at(&mut self, as_of: AsOf) -> Result<Option<&mut Skimpy>, StoreError> {
        if self.store.is_none() {
            self.check_age(Some(as_of))?;
        }
        Ok(self.get_mut())
    }

    /// The store for a write, and whether it was opened for that. Its opening is waited for for so
    /// long.
    ///
    /// # Errors
    /// [`StoreError::NoDevice`]; [`StoreError::Busy`] while it is being opened;
    /// [`StoreError::ShuttingDown`].
    #[inline]
    pub(super) fn for_writing(
        &mut self,
        at_most: Duration,
    ) -> Result<(&mut Skimpy, bool), StoreError> {
        let opened = self.store.is_none();
        if opened {
            self.store = Some(self.open_now(at_most)?);
        }
        // It was just put there.
        self.store.as_deref_mut().map(|store| (store, opened)).ok_or(StoreError::Busy)
    }

    /// Whether somebody has to ask again.
    #[inline]
    pub(super) fn is_opening(&self) -> bool {
        self.is_opening && !self.is_closing
    }

    #[cold]
    fn open_now(&mut self, at_most: Duration) -> Result<Box<Skimpy>, StoreError> {
        if self.is_closing {
            return Err(StoreError::ShuttingDown);
        }
        if let Some((words, again_at)) = &self.refused
            && self.now < *again_at
        {
            return Err(StoreError::NoDevice(Arc::clone(words)));
        }
        let missing = || "there is no device for keyspaces with index frugal".to_owned();
        let opening = match &mut self.opener {
            Some(open) => open(at_most),
            None => Opening::Failed(missing()),
        };
        self.is_opening = matches!(opening, Opening::UnderWay);
        match opening {
            Opening::UnderWay => Err(StoreError::Busy),
            Opening::Open(mut store) => {
                store.begin_batch(self.batch);
                store.advance_watermark(self.watermark);
                store.advance_replay_floor(self.replay_floor);
                self.refused = None;
                Ok(store)
            }
            Opening::Failed(words) => {
                tracing::error!("{words}");
                let words: Arc<str> = words.into();
                let again_at = self.now.saturating_add(OPEN_AGAIN_AFTER);
                self.refused = Some((Arc::clone(&words), again_at));
                Err(StoreError::NoDevice(words))
            }
        }
    }

    /// The end of a walk over a keyspace that has nothing, at a time that is not too old.
    ///
    /// # Errors
    /// [`StoreError::TooOld`].
    pub(super) fn scan_nothing(
        &mut self,
        as_of: Option<AsOf>,
        token: ReadToken,
    ) -> Result<(), StoreError> {
        debug_assert!(self.store.is_none(), "whoever is there answers himself");
        self.check_age(as_of)?;
        self.answers.push(StoreEvent::ScanDone { token, keys: KeyList::default(), next: None });
        Ok(())
    }

    /// Whether a time may be asked for where there is no store.
    ///
    /// # Errors
    /// [`StoreError::TooOld`].
    fn check_age(&self, as_of: Option<AsOf>) -> Result<(), StoreError> {
        match as_of {
            Some(AsOf { at, .. }) if at < self.watermark => {
                Err(StoreError::TooOld { at, watermark: self.watermark })
            }
            _ => Ok(()),
        }
    }
}

/// What keeps it going, there or not.
impl FrugalPart {
    pub(super) fn begin_life(&mut self) {
        self.answers.clear();
        (self.batch, self.refused) = (0, None);
        if let Some(store) = self.get_mut() {
            store.begin_life();
        }
    }

    pub(super) fn advance_watermark(&mut self, t: Timestamp) {
        self.watermark = self.watermark.max(t);
        if let Some(store) = self.get_mut() {
            store.advance_watermark(t);
        }
    }

    pub(super) fn advance_replay_floor(&mut self, t: Timestamp) {
        self.replay_floor = self.replay_floor.max(t);
        if let Some(store) = self.get_mut() {
            store.advance_replay_floor(t);
        }
    }

    pub(super) fn begin_batch(&mut self, batch: u64) {
        self.batch = batch;
        if let Some(store) = self.get_mut() {
            store.begin_batch(batch);
        }
    }

    pub(super) fn pump(&mut self, now: Timestamp, events: &mut Vec<StoreEvent>) {
        self.now = now;
        events.append(&mut self.answers);
        if let Some(store) = self.get_mut() {
            store.pump(now, events);
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Timestamp> {
        let answers = (!self.answers.is_empty()).then_some(self.now);
        let opening = self.is_opening().then(|| self.now.saturating_add(OPENING_INTERVAL));
        answers.into_iter().chain(opening).chain(self.get().and_then(Upkeep::next_deadline)).min()
    }

    pub(super) fn shutdown(&mut self) {
        self.is_closing = true;
        if let Some(store) = self.get_mut() {
            store.shutdown();
        }
    }
}
