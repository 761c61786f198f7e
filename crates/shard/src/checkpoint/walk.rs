//! A walk over everything that a store holds.
//!
//! ```text
//!   keyspaces ─► fences
//!       └─► list of keys, page by page ─► each key: its youngest version, the next older one, … ─► items
//! ```
//! Versions are asked for one after the other, down to the youngest one at or below the watermark:
//! nobody may read what is below that. Some keys are under way at once; items come in any order.

use core::time::Duration;
use std::collections::VecDeque;

use timestone_store::{KeyList, Lookup, ReadOutcome, ReadToken, ScanCursor, ScanLimit, StoreError};
use timestone_types::{KeyRef, KeyspaceId, Timestamp, Version};

use super::PART_BYTES;
use super::part::PartItem;
use crate::shard::ShardStore;

#[cfg(test)]
mod tests;

/// Keys that are read at once.
const MAX_AT_ONCE: usize = 16;
/// A value of this length lets one key be read at a time for a while.
const LARGE_BYTES: usize = 64 * 1024;
/// Look-ups of one turn.
const LOOKUPS_PER_TURN: usize = 512;
/// Keys of one page of a list.
const PAGE: ScanLimit = ScanLimit { keys: 256, bytes: 64 * 1024 };
/// How soon a store is asked again that had no time.
const STORE_PAUSE: Duration = Duration::from_millis(1);
/// How long a read is tried again that the device fails: whatever fails for longer counts as damaged.
const MAX_FAILING: Duration = Duration::from_secs(5);
/// Tokens of reads: requests have no place of this number, and count uses above it.
const TOKENS: u64 = 0xffff_ffff;

/// A key whose versions are being read.
#[derive(Debug)]
struct KeyRead {
    key: Vec<u8>,
    /// The next version lies at or before it.
    at: Timestamp,
    /// The store is asked, under this token.
    asked: Option<ReadToken>,
    failing: Failing,
}

/// Since when a read is tried that fails.
#[derive(Clone, Copy, Default, Debug)]
struct Failing(Option<Timestamp>);

impl Failing {
    /// It has failed; it may be tried again.
    ///
    /// # Errors
    /// The same: it is of no use to try again.
    fn again(&mut self, now: Timestamp, error: StoreError) -> Result<(), StoreError> {
        let since = *self.0.get_or_insert(now);
        let lasts = since.saturating_add(MAX_FAILING) <= now;
        let is_over = !error.retryable() || lasts && !timestone_types::is_planted!(TriesForEver);
        if is_over { Err(error) } else { Ok(()) }
    }
}

/// A page of the list that the store is asked for.
#[derive(Debug)]
struct Listing {
    token: ReadToken,
    cursor: ScanCursor,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct StoreWalk {
    /// Those that are still to come, the next one last.
    keyspaces: Vec<KeyspaceId>,
    keyspace: KeyspaceId,
    fences: Vec<Version>,
    /// Where the list goes on; none at its end.
    cursor: Option<ScanCursor>,
    listing: Option<Listing>,
    list_failing: Failing,
    listed: VecDeque<Vec<u8>>,
    reads: Vec<KeyRead>,
    at_once: usize,
    tokens: u64,
    /// The store had no time: when it is asked again.
    again_at: Timestamp,
    /// What was found, encoded one by one.
    items: VecDeque<Vec<u8>>,
    item_bytes: usize,
}

/// What became of a key's next version.
enum Next {
    /// An older one follows.
    Older(Timestamp),
    /// That was the last one.
    Done,
    /// The store will say.
    Pending,
    /// To be asked again.
    Later,
}

impl StoreWalk {
    /// From the beginning. What an earlier walk has asked the store for may still be answered: each
    /// counts its tokens from a number of its own.
    pub(super) fn new(now: Timestamp, store: &ShardStore) -> Self {
        let mut keyspaces = store.kept_keyspaces();
        keyspaces.reverse();
        Self { keyspaces, at_once: 1, tokens: now.as_nanos() >> 10, ..Self::default() }
    }

    /// Over one keyspace.
    pub(super) fn of(keyspace: KeyspaceId) -> Self {
        Self { keyspaces: vec![keyspace], at_once: 1, ..Self::default() }
    }

    /// Whether everything was found.
    pub(super) fn is_over(&self) -> bool {
        self.keyspaces.is_empty()
            && self.cursor.is_none()
            && self.listing.is_none()
            && self.listed.is_empty()
            && self.reads.is_empty()
    }

    /// Bytes that were found and not taken.
    pub(super) const fn item_bytes(&self) -> usize {
        self.item_bytes
    }

    /// The next item, of those that were found.
    pub(super) fn take_item(&mut self) -> Option<Vec<u8>> {
        let item = self.items.pop_front()?;
        self.item_bytes -= item.len();
        Some(item)
    }

    /// The length of the next item.
    pub(super) fn next_bytes(&self) -> Option<usize> {
        self.items.front().map(Vec::len)
    }

    /// Whether it could go on in another turn, without being told anything.
    fn has_work(&self) -> bool {
        let is_full = self.item_bytes >= PART_BYTES;
        let asks = self.reads.iter().any(|read| read.asked.is_none());
        let begins = self.reads.len() < self.at_once && !self.listed.is_empty();
        let lists = self.listed.is_empty() && self.listing.is_none() && self.reads.is_empty();
        !is_full && !self.is_over() && (asks || begins || lists)
    }

    /// When it is to go on without being told anything; at once where that is zero.
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        self.has_work().then_some(self.again_at)
    }

    fn push(&mut self, item: &PartItem<'_>) {
        let mut bytes = Vec::new();
        item.encode(&mut bytes);
        self.item_bytes += bytes.len();
        self.items.push_back(bytes);
    }

    fn token(&mut self) -> ReadToken {
        self.tokens += 1;
        ReadToken(self.tokens << 32 | TOKENS)
    }

    /// Whether an answer is for a walk.
    pub(super) const fn is_token(token: ReadToken) -> bool {
        token.0 & TOKENS == TOKENS
    }

    /// Asks the store for more, as long as a part has room for it.
    ///
    /// # Errors
    /// Something cannot be read, or could not be read when the store was opened.
    pub(super) fn go_on(
        &mut self,
        now: Timestamp,
        store: &mut ShardStore,
    ) -> Result<(), StoreError> {
        let pages = store.unread_pages();
        if pages > 0 && !timestone_types::is_planted!(CopiesBesideUnread) {
            return Err(StoreError::Unread { pages });
        }
        self.again_at = Timestamp::ZERO;
        let mut left = LOOKUPS_PER_TURN;
        while self.item_bytes < PART_BYTES && left > 0 {
            while self.reads.len() < self.at_once
                && let Some(key) = self.listed.pop_front()
            {
                self.reads.push(KeyRead {
                    key,
                    at: Timestamp::MAX,
                    asked: None,
                    failing: Failing::default(),
                });
            }
            let Some(at) = self.reads.iter().position(|read| read.asked.is_none()) else { break };
            left -= 1;
            let next = self.ask(at, store)?;
            if !self.went(at, next) {
                self.again_at = now.saturating_add(STORE_PAUSE);
                break;
            }
        }
        if self.listed.is_empty() && self.listing.is_none() {
            self.list(store);
        }
        Ok(())
    }

    /// Lists further keys, of the next keyspace if this one has no more. Its keys are all read by
    /// then.
    fn list(&mut self, store: &mut ShardStore) {
        if self.cursor.is_none() {
            if !self.reads.is_empty() {
                return;
            }
            let Some(next) = self.keyspaces.pop() else { return };
            (self.keyspace, self.cursor) = (next, Some(ScanCursor::START));
            self.fences = store.fences(next);
            for version in self.fences.clone() {
                self.push(&PartItem::Fence { keyspace: next, version });
            }
        }
        if let Some(cursor) = self.cursor.take() {
            let token = self.token();
            self.listing = Some(Listing { token, cursor });
            store.list_keys(self.keyspace, cursor, PAGE, token);
        }
    }

    /// A page of the list.
    pub(super) fn listed(&mut self, token: ReadToken, keys: &KeyList, next: Option<ScanCursor>) {
        if self.listing.take_if(|listing| listing.token == token).is_some() {
            self.list_failing = Failing::default();
            self.listed.extend(keys.iter().map(<[u8]>::to_vec));
            self.cursor = next;
        }
    }

    /// A page of the list could not be read.
    ///
    /// # Errors
    /// Nor can it be by trying again.
    pub(super) fn list_failed(
        &mut self,
        token: ReadToken,
        now: Timestamp,
        error: StoreError,
    ) -> Result<(), StoreError> {
        let Some(listing) = self.listing.take_if(|listing| listing.token == token) else {
            return Ok(());
        };
        self.cursor = Some(listing.cursor);
        self.again_at = now.saturating_add(STORE_PAUSE);
        self.list_failing.again(now, error)
    }

    fn ask(&mut self, at: usize, store: &mut ShardStore) -> Result<Next, StoreError> {
        let (keyspace, token, watermark) = (self.keyspace, self.token(), store.watermark());
        let read = &mut self.reads[at];
        let name = KeyRef::new(store.seed(), keyspace, &read.key);
        // As if nothing had expired yet.
        match store.get_as_of(name, read.at, Timestamp::ZERO, token) {
            Ok(Lookup::Present { version, expires_at, value }) => {
                let mut bytes = Vec::new();
                PartItem::Put { keyspace, version, expires_at, key: &read.key, value }
                    .encode(&mut bytes);
                let length = value.len();
                self.item_bytes += bytes.len();
                self.items.push_back(bytes);
                self.pace(length);
                Ok(below(version, watermark))
            }
            Ok(Lookup::Absent { version, .. }) => {
                let key = std::mem::take(&mut read.key);
                self.absent(version, &key);
                self.reads[at].key = key;
                Ok(below(version, watermark))
            }
            Ok(Lookup::Pending) => {
                read.asked = Some(token);
                Ok(Next::Pending)
            }
            // The watermark has passed what was found last.
            Err(StoreError::TooOld { .. }) => Ok(Next::Done),
            Err(error) if error.retryable() => Ok(Next::Later),
            Err(error) => Err(error),
        }
    }

    /// A fence that hides the key is an item of its own.
    fn absent(&mut self, version: Version, key: &[u8]) {
        let is_tombstone = !version.is_zero() && !self.fences.contains(&version);
        if is_tombstone && !timestone_types::is_planted!(CheckpointWithoutTombstones) {
            self.push(&PartItem::Tombstone { keyspace: self.keyspace, version, key });
        }
    }

    /// Few keys at once where values are large.
    fn pace(&mut self, value_bytes: usize) {
        let is_large = value_bytes >= LARGE_BYTES;
        self.at_once = if is_large { 1 } else { (self.at_once * 2).min(MAX_AT_ONCE) };
    }

    /// Takes note of a key's next version; false when the store has no time now.
    fn went(&mut self, at: usize, next: Next) -> bool {
        match next {
            Next::Older(timestamp) => {
                let read = &mut self.reads[at];
                (read.at, read.failing) = (timestamp, Failing::default());
            }
            Next::Done => {
                self.reads.swap_remove(at);
            }
            Next::Pending => {}
            Next::Later => return false,
        }
        true
    }

    /// The store has answered.
    ///
    /// # Errors
    /// Something cannot be read, nor by trying again.
    pub(super) fn found(
        &mut self,
        token: ReadToken,
        outcome: ReadOutcome,
        now: Timestamp,
        store: &mut ShardStore,
    ) -> Result<(), StoreError> {
        let asked = self.reads.iter().position(|read| read.asked == Some(token));
        let Some(at) = asked else { return Ok(()) };
        self.reads[at].asked = None;
        let watermark = store.watermark();
        let next = match outcome {
            ReadOutcome::Present { version, expires_at, value } => {
                let (keyspace, key) = (self.keyspace, std::mem::take(&mut self.reads[at].key));
                self.push(&PartItem::Put {
                    keyspace,
                    version,
                    expires_at,
                    key: &key,
                    value: &value,
                });
                self.reads[at].key = key;
                self.pace(value.len());
                store.recycle(value);
                below(version, watermark)
            }
            ReadOutcome::Absent { version, .. } => {
                let key = std::mem::take(&mut self.reads[at].key);
                self.absent(version, &key);
                self.reads[at].key = key;
                below(version, watermark)
            }
            // The watermark has passed what was found last while the page was read: nobody may read
            // what is older, as in `ask`.
            ReadOutcome::Failed(StoreError::TooOld { .. })
                if !timestone_types::is_planted!(FailsPassedWalk) =>
            {
                Next::Done
            }
            ReadOutcome::Failed(error) => {
                self.reads[at].failing.again(now, error)?;
                self.again_at = now.saturating_add(STORE_PAUSE);
                Next::Later
            }
        };
        self.went(at, next);
        Ok(())
    }
}

/// What is asked for after a version was found.
fn below(version: Version, watermark: Timestamp) -> Next {
    if version.timestamp <= watermark {
        return Next::Done;
    }
    Next::Older(version.timestamp.previous())
}
