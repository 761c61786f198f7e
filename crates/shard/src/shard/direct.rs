//! Reads and writes of one key by somebody on the shard's own thread, carried out within the call.
//!
//! ```text
//!   gateway ─► get ─► store.latest ─► participant ─► store.get ─► value, borrowed from the store
//!           ─► put ─► store.latest ─► room? ─► participant ─► store.put ─► participant: it is put
//! ```
//! No frame, no request that is kept, no copy of the value but the store's own. Whatever would have
//! to wait (for a device, a promise, the log, room) or is refused is left: [`DirectAnswer::Indirect`]
//! and `None` say that nothing was done, and whoever asked sends a frame.
//!
//! Invariant: between two events nothing waits to be carried out, so a call may come then.

use timestone_store::{KeysAhead, Lookup, PutSize};
use timestone_txn::participant::{self, DirectWrite, Input, WriteItem, WriteKind};
use timestone_types::{
    ClientId, Epoch, Expiry, HashSeed, HashedKey, KeyRef, Timestamp, Version, is_planted,
};
use timestone_wire::{self as wire, Kind, WriteEntry};

use super::Shard;
use crate::reads::ahead::fetch;
use crate::reads::expiry;
use crate::reads::lookups::in_store;
use crate::write_sets::put_at_once;

/// What a direct read has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found<'a> {
    /// The version, of an absence as well.
    pub version: Version,
    /// When it expires.
    pub expires_at: Expiry,
    /// The value, if there is one.
    pub value: Option<&'a [u8]>,
}

/// When a direct call takes place, and by which map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirectAt {
    /// The time of the host's turn.
    pub now: Timestamp,
    /// The epoch that the caller knows the shard by.
    pub epoch: Epoch,
    /// Where the clock of the caller's session stands.
    pub begin: Timestamp,
}

/// What a direct write puts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirectPut<'a> {
    /// Under which key.
    pub key: KeyRef<'a>,
    /// The value.
    pub value: &'a [u8],
    /// When it expires.
    pub expires_at: Expiry,
    /// Who writes.
    pub client: ClientId,
    /// The timestamp at which it wants to commit; above the session's begin.
    pub commit: Timestamp,
}

/// What came of a direct write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DirectAnswer {
    /// It took place, at its commit timestamp.
    Done,
    /// Nothing was done: only its timestamp is too low, and this one would do now.
    Later(Timestamp),
    /// Nothing was done: it is to be asked in a frame.
    Indirect,
}

/// What a caller on the shard's own thread may ask between two events.
impl Shard {
    /// The secret of key hashes.
    #[must_use]
    pub fn seed(&self) -> HashSeed {
        self.seed
    }

    /// Has everything fetched into the processor's cache that direct calls about these keys will
    /// look at.
    pub fn fetch_ahead(&self, reads: &[HashedKey], puts: &[HashedKey]) {
        fetch(KeysAhead { reads, validated: &[], puts }, self.driver.participant(), &*self.store);
    }

    /// Reads the latest version of a key, linearizably. `None`: nothing was done, and it is to be
    /// asked in a frame.
    #[inline]
    pub fn direct_get(&mut self, key: KeyRef<'_>, asked: DirectAt) -> Option<Found<'_>> {
        self.driver.assert_carried_out();
        let DirectAt { now, epoch, begin } = asked;
        if epoch != self.requests.epoch() || self.refuses_to_read(now, key.keyspace).is_some() {
            return None;
        }
        let latest = in_store(self.store.latest_in_memory(key)?);
        let (keyspace, hash) = (key.keyspace, key.hash);
        let input = Input::DirectRead { keyspace, key: hash, at: begin, latest };
        let participant::DirectAnswer::Read { at, expiry } = self.driver.call(now, input) else {
            return None;
        };
        if !is_planted!(CallsAboveLease) {
            self.driver.check_present().ok()?;
        }
        self.figures.gauges().count(Kind::Get);
        let found = self.store.get_in_memory(key, at, expiry.as_of);
        expiry::check(&expiry, Timestamp::MAX, &found).ok()?;
        match found {
            Ok(Lookup::Present { version, expires_at, value }) => {
                Some(Found { version, expires_at, value: Some(value) })
            }
            Ok(Lookup::Absent { version, expires_at }) => {
                Some(Found { version, expires_at, value: None })
            }
            Ok(Lookup::Pending) | Err(_) => None,
        }
    }

    /// Puts a value, whatever the key holds.
    #[inline]
    pub fn direct_put(&mut self, put: DirectPut<'_>, asked: DirectAt) -> DirectAnswer {
        self.driver.assert_carried_out();
        let DirectPut { key, value, expires_at, client, commit } = put;
        let DirectAt { now, epoch, begin } = asked;
        if epoch != self.requests.epoch() || !self.puts_at_once() {
            return DirectAnswer::Indirect;
        }
        let Some(latest) = self.store.latest_in_memory(key) else {
            return DirectAnswer::Indirect;
        };
        let size = PutSize { keyspace: key.keyspace, bytes: key.bytes.len() + value.len() };
        if self.admission_error(&|| std::iter::once(size)).is_some() {
            return DirectAnswer::Indirect;
        }
        let (keyspace, hash, latest) = (key.keyspace, key.hash, in_store(latest));
        let range_read = self.driver.range_read_at(key, commit);
        let item = WriteItem { keyspace, key: hash, kind: WriteKind::Put, latest, range_read };
        let write = DirectWrite { item, client, begin, commit };
        match self.driver.call(now, Input::DirectWrite(write)) {
            participant::DirectAnswer::Put => {}
            participant::DirectAnswer::Later(at) => return DirectAnswer::Later(at),
            _ => return DirectAnswer::Indirect,
        }
        let kind = wire::WriteKind::Put;
        let entry = WriteEntry { keyspace, kind, expires_at, key: key.bytes, value };
        let version = Version::new(commit, client);
        let Self { store, lookups, .. } = self;
        let is_put = put_at_once([(key, entry)].into_iter(), version, &mut **store, lookups);
        if is_put.is_err() && !is_planted!(PutWithoutRoom) {
            return DirectAnswer::Indirect;
        }
        self.driver.step(now, Input::DirectPutDone(write));
        self.figures.gauges().count(Kind::Write);
        self.note_put_at_once();
        self.driver.assert_carried_out();
        DirectAnswer::Done
    }
}
