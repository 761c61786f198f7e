//! Requests that are being worked on: who asked, and what is needed to go on.
//!
//! The participant and the store name a request by a token; here a token is a place in a slab and
//! the number of its use, so a late answer to a place that was given to somebody else is noticed.

use std::sync::Arc;

use timestone_seda::{Charge, Memory, MemoryUse, ReplyAddress};
use timestone_store::ReadToken;
use timestone_store::StoreError;
use timestone_txn::participant::{ExpiryRule, Token, Wait};
use timestone_types::{Expiry, Timestamp, TxnId, Version};
use timestone_wire::{Envelope, Verdict};

use crate::gauges::{RequestLatencies, Timed};
use crate::limits::CHARGED_VALUE_BYTES;

/// What a request is, as far as its answer goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum RequestPurpose {
    /// Nobody waits for an answer.
    #[default]
    Silent,
    /// A read of one key.
    Get,
    /// A prepare of a transaction.
    Prepare,
    /// A single-key write.
    Write,
    /// Anything that is answered from the participant's output alone.
    Other,
    /// A page of a scan.
    Scan,
    /// A count.
    Count,
    /// A page of a range.
    Range,
}

/// What a single-key write found before it was validated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Previous {
    /// Whether it was looked up.
    pub(crate) known: bool,
    /// Whether the key was visible.
    pub(crate) present: bool,
    /// The version found.
    pub(crate) version: Version,
    /// Its expiry.
    pub(crate) expires_at: Expiry,
}

/// The decided outcome of a write that was asked again, while the previous value is looked up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Repeat {
    pub(crate) txn: TxnId,
    pub(crate) commit: Timestamp,
    pub(crate) verdict: Verdict,
    /// Where the previous version is found.
    pub(crate) at: Timestamp,
    /// Whether it was visible to the first copy.
    pub(crate) present: bool,
}

/// One request.
#[derive(Debug)]
pub(crate) struct Request {
    /// When it arrived.
    asked: Timestamp,
    /// What it is counted as.
    timed: Timed,
    pub(crate) reply_to: ReplyAddress,
    /// The envelope of its answer.
    pub(crate) envelope: Envelope,
    pub(crate) purpose: RequestPurpose,
    /// It is the prepare of a transaction that only read: its vote tells what is there now.
    pub(crate) is_strict_read: bool,
    /// Its frame, when it had to wait.
    pub(crate) frame: Vec<u8>,
    pub(crate) read: PendingRead,
    pub(crate) write: PendingWrite,
    /// It waits for others: for a decision, or for something to be durable.
    parked: bool,
    uses: u32,
    live: bool,
}

/// What the store was asked for a read, a scan or a count.
#[derive(Debug)]
pub(crate) struct PendingRead {
    /// The point in time at which the store was asked.
    pub(crate) at: Timestamp,
    /// The same of a snapshot; [`Timestamp::MAX`] where what is latest is asked for.
    pub(crate) snapshot: Timestamp,
    pub(crate) prepared_before: bool,
    /// As of when expiry is judged, and what of it may be told.
    pub(crate) expiry: ExpiryRule,
}

impl Default for PendingRead {
    fn default() -> Self {
        let (at, snapshot) = (Timestamp::ZERO, Timestamp::MAX);
        Self { at, snapshot, prepared_before: false, expiry: ExpiryRule::default() }
    }
}

/// What a single-key write has found so far, and what of it is answered.
#[derive(Debug, Default)]
pub(crate) struct PendingWrite {
    pub(crate) previous: Previous,
    /// What is there could not be read.
    pub(crate) failed: Option<StoreError>,
    /// How long it may wait, once the core has given it back with that: also when it waits for a page in
    /// between.
    pub(crate) wait: Option<Wait>,
    /// It is a write that was decided before.
    pub(crate) repeat: Option<Repeat>,
    /// The previous value, for writes that return it or compare with it.
    pub(crate) value: Vec<u8>,
    /// Its memory, if it is large.
    pub(crate) charge: Option<Charge>,
    /// The write has no condition of its own.
    pub(crate) unconditional: bool,
    /// The write's answer carries the previous value.
    pub(crate) returns_previous: bool,
}

impl PendingWrite {
    fn assert_sound(&self) {
        debug_assert!(
            self.charge.as_ref().is_none_or(|charge| charge.bytes() >= self.value.len() as u64),
            "a value that is counted is counted with all its bytes"
        );
    }

    /// Keeps what a write that has not taken place yet found, if there is memory for it: it is kept
    /// until the write is durable, and then is part of an answer.
    pub(crate) fn keep_found(&mut self, memory: &Arc<Memory>, value: &[u8]) -> bool {
        self.charge = None;
        if value.len() >= CHARGED_VALUE_BYTES && !ignores_bound() {
            self.charge = memory.try_charge(MemoryUse::Output, value.len() as u64);
            if self.charge.is_none() {
                return false;
            }
        }
        self.value.clear();
        self.value.extend_from_slice(value);
        self.assert_sound();
        true
    }

    /// Keeps what a write had found that took place before: whoever repeats it must be told.
    pub(crate) fn keep_told(&mut self, memory: &Arc<Memory>, value: &[u8]) {
        debug_assert!(self.value.is_empty(), "a write has found one value");
        if value.len() >= CHARGED_VALUE_BYTES {
            self.charge = Some(memory.charge(MemoryUse::Output, value.len() as u64));
        }
        self.value.extend_from_slice(value);
    }

    /// What a write found is of no use any more.
    fn forget_found(&mut self) {
        self.assert_sound();
        self.charge = None;
        self.previous = Previous::default();
        self.repeat = None;
        self.failed = None;
        if !timestone_types::is_planted!(KeepsLeave) {
            self.wait = None;
        }
        self.value.clear();
        if self.value.capacity() > KEEP_BYTES {
            self.value = Vec::new();
        }
    }
}

/// Whether answers are owed without bound.
fn ignores_bound() -> bool {
    timestone_types::is_planted!(BoundlessOutput)
}

/// All requests of one shard that are under way.
#[derive(Default)]
pub(crate) struct OpenRequests {
    slots: Vec<Request>,
    free: Vec<u32>,
    /// How many are parked.
    parked: usize,
    /// The time of this turn.
    now: Timestamp,
    latencies: Arc<RequestLatencies>,
}

/// Frame buffers larger than this are not kept in free places.
const KEEP_BYTES: usize = 4096;

impl OpenRequests {
    /// No requests; how long they take is told to `latencies`.
    pub(crate) fn new(latencies: Arc<RequestLatencies>) -> Self {
        Self { latencies, ..Self::default() }
    }

    pub(crate) fn assert_sound(&self) {
        debug_assert!(self.free.len() <= self.slots.len(), "a place is free once");
        debug_assert!(self.parked <= self.len(), "only what is under way waits for others");
    }

    /// Whether a token names a request that is under way.
    #[inline]
    pub(crate) fn is_open(&self, token: Token) -> bool {
        let slot = self.slots.get((token.0 & 0xffff_ffff) as usize);
        slot.is_some_and(|slot| slot.live && slot.uses == (token.0 >> 32) as u32)
    }

    /// Gives a request its token.
    #[inline]
    pub(crate) fn open(
        &mut self,
        reply_to: ReplyAddress,
        envelope: Envelope,
        purpose: RequestPurpose,
        timed: Timed,
    ) -> Token {
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                self.slots.push(Request {
                    asked: self.now,
                    timed,
                    reply_to,
                    envelope,
                    purpose,
                    is_strict_read: false,
                    frame: Vec::new(),
                    read: PendingRead::default(),
                    write: PendingWrite::default(),
                    parked: false,
                    uses: 0,
                    live: false,
                });
                (self.slots.len() - 1) as u32
            }
        };
        let slot = &mut self.slots[index as usize];
        assert!(!slot.live, "a free place is not in use");
        slot.reply_to = reply_to;
        slot.envelope = envelope;
        (slot.purpose, slot.is_strict_read) = (purpose, false);
        (slot.asked, slot.timed) = (self.now, timed);
        slot.live = true;
        slot.uses = slot.uses.wrapping_add(1);
        Token(u64::from(slot.uses) << 32 | u64::from(index))
    }

    /// The request of a token, if it is still under way.
    #[inline]
    pub(crate) fn get_mut(&mut self, token: Token) -> Option<&mut Request> {
        let slot = self.slots.get_mut((token.0 & 0xffff_ffff) as usize)?;
        (slot.live && slot.uses == (token.0 >> 32) as u32).then_some(slot)
    }

    /// Ends a request: its place is free again.
    #[inline]
    pub(crate) fn close(&mut self, token: Token) {
        let now = self.now;
        if let Some((asked, timed)) = self.release(token) {
            self.latencies.of(timed).since(asked, now);
        }
    }

    /// Ends a request that another one answers for: how long that takes is counted there.
    pub(crate) fn close_repeat(&mut self, token: Token) {
        self.release(token);
    }

    /// When it was asked, and as what its time counts.
    #[inline]
    fn release(&mut self, token: Token) -> Option<(Timestamp, Timed)> {
        let index = (token.0 & 0xffff_ffff) as u32;
        let slot = self.get_mut(token)?;
        slot.live = false;
        let (asked, timed, parked) = (slot.asked, slot.timed, std::mem::take(&mut slot.parked));
        slot.frame.clear();
        if slot.frame.capacity() > KEEP_BYTES {
            slot.frame = Vec::new();
        }
        // Reads find nothing that is kept.
        if slot.purpose != RequestPurpose::Get {
            slot.write.forget_found();
        }
        self.parked -= usize::from(parked);
        self.free.push(index);
        self.assert_sound();
        Some((asked, timed))
    }

    /// A turn begins.
    pub(crate) fn set_now(&mut self, now: Timestamp) {
        debug_assert!(self.now <= now, "time goes on");
        self.now = now;
    }

    /// How many are under way.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// A request waits for others from now on, or goes on.
    pub(crate) fn set_parked(&mut self, token: Token, parked: bool) {
        let Some(slot) = self.get_mut(token) else { return };
        let before = std::mem::replace(&mut slot.parked, parked);
        self.parked = self.parked + usize::from(parked) - usize::from(before);
        self.assert_sound();
    }

    /// Whether whatever is under way waits for others.
    pub(crate) fn are_parked(&self) -> bool {
        if timestone_types::is_planted!(WaitsForOthers) {
            return self.len() == 0;
        }
        self.len() == self.parked
    }
}

/// The store names a request as the participant does.
pub(crate) const fn read_token(token: Token) -> ReadToken {
    ReadToken(token.0)
}

/// And back.
pub(crate) const fn token_of(token: ReadToken) -> Token {
    Token(token.0)
}

#[cfg(test)]
mod tests {
    use timestone_seda::{ConnectionId, Generation, StageId};

    use super::*;

    #[test]
    fn a_token_of_an_earlier_use_finds_nothing() {
        let reply_to = ReplyAddress {
            stage: StageId::new(0),
            connection: ConnectionId::new(0),
            generation: Generation::new(0),
        };
        let mut requests = OpenRequests::default();
        let first = requests.open(reply_to, Envelope::default(), RequestPurpose::Get, Timed::Get);
        requests.get_mut(first).unwrap().frame.extend_from_slice(b"frame");
        requests.close(first);
        let second =
            requests.open(reply_to, Envelope::default(), RequestPurpose::Write, Timed::Write);
        assert_ne!(first, second);
        assert!(requests.get_mut(first).is_none());
        assert!(requests.get_mut(second).unwrap().frame.is_empty());
        requests.close(first);
        assert_eq!(requests.len(), 1);
    }
}
