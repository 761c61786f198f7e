//! Ranges: pages of keys in order, and what validation is told of the ranges that a transaction has read.
//!
//! ```text
//!   Range, RangeDown ─► ScanNow: nothing commits in it at or below the snapshot any more ─► store walks ─► still above the watermark? ─► RangePage
//!   PrepareRanges ─► writers: whose kept write sets have a key in it │ newer: what the store knows above begin ─► core
//! ```
//! What the core is told is of the very moment in which it is asked: both are in memory. What cannot be
//! found out within a bound counts as written to, so that the transaction runs again. Ranges of a prepare
//! that overlap are looked at as one, so that no key and no write set is looked at twice for it.

use timestone_store::{AsOf, KeyRange, RangeCheck, RangeList};
use timestone_txn::participant::{RangeItem, Token};
use timestone_types::{Expiry, Timestamp};
use timestone_wire::{
    self as wire, ErrorCode, ErrorReply, Frame, Message, RangeEntries, RangeEntry, RangePageWriter,
    ScanEntry,
};

use super::scan::{page_bytes, page_limit};
use crate::limits::{MAX_RANGE_CHECK_KEYS, MIN_RANGE_CHECK_KEYS};
use crate::requests::pending::{RequestPurpose, read_token};
use crate::shard::{Parts, ShardStore};
use crate::turn::Turn;
use crate::write_sets::payload::Payloads;

impl Parts<'_> {
    /// A range may be read at its snapshot now.
    pub(super) fn range_now(
        &mut self,
        ctx: &mut Turn<'_>,
        token: Token,
        as_of: AsOf,
        frame: &Frame<'_>,
    ) {
        let Ok((range, direction)) = wire::Range::decode_any(frame) else {
            return self.requests.close(token);
        };
        let keys = KeyRange { keyspace: range.keyspace, from: range.from, to: range.end() };
        let limit = page_limit(range.limit);
        if let Err(error) = self.store.range_as_of(keys, direction, limit, as_of, read_token(token))
        {
            self.requests.fail(ctx, token, &error);
        }
    }

    /// Answers a range with a page, unless what it should have found may have been collected
    /// meanwhile.
    pub(crate) fn range_done(
        &mut self,
        ctx: &mut Turn<'_>,
        token: Token,
        found: &RangeList,
        next: Option<&[u8]>,
    ) {
        let Some(request) = self.requests.get_mut(token) else { return };
        debug_assert_eq!(request.purpose, RequestPurpose::Range, "a page answers a range");
        if let Err(refusal) = self.driver.collected().check(request.read.at) {
            return self.requests.refuse(ctx, token, &refusal);
        }
        let (reply_to, envelope) = (request.reply_to, request.envelope);
        let bytes = page_bytes(found.len(), found.key_bytes()) + next.map_or(0, <[u8]>::len);
        if !self.may_tell_page(ctx, token, bytes) {
            return;
        }
        let mut page = RangePageWriter::begin(&envelope, next, self.requests.reply(ctx, reply_to));
        let is_whole = found.iter().all(|one| {
            let (version, expires_at, key) = (one.version, one.expires_at, one.key);
            page.push(&ScanEntry { version, expires_at, key, value: &[] })
        });
        if is_whole {
            page.finish();
            return self.requests.close(token);
        }
        drop(page);
        tracing::error!(shard = %self.requests.shard(), keys = found.len(), "a page of a range has more \
            keys than were asked for");
        self.requests.answer(ctx, token, |envelope, out| {
            ErrorReply::new(ErrorCode::Internal, "a page of a range does not fit its frame")
                .encode(envelope, out)
        });
    }
}

/// What validation is told of the ranges of a prepare, as of now.
pub(crate) fn look_at_ranges(
    ranges: RangeEntries<'_>,
    begin: Timestamp,
    (store, payloads): (&ShardStore, &Payloads),
    items: &mut Vec<RangeItem>,
) {
    items.clear();
    let ranges = disjoint(ranges);
    let max_keys = MAX_RANGE_CHECK_KEYS / u32::try_from(ranges.len().max(1)).unwrap_or(u32::MAX);
    for entry in ranges {
        let range = KeyRange { keyspace: entry.keyspace, from: entry.from, to: entry.to };
        items.push(RangeItem {
            keyspace: entry.keyspace,
            from: entry.from.to_vec(),
            to: entry.to.map(<[u8]>::to_vec),
            expires_at: entry.expires_at,
            newer: newer(store, range, begin, max_keys.max(MIN_RANGE_CHECK_KEYS)),
            writers: payloads.writers_in(range),
        });
    }
}

/// The same keys in ranges of which no two touch each other, ascending. Clients join theirs; others may send
/// the same range as often as fits a prepare.
fn disjoint(ranges: RangeEntries<'_>) -> Vec<RangeEntry<'_>> {
    let mut entries: Vec<RangeEntry<'_>> = ranges.into_iter().collect();
    entries.sort_unstable_by_key(|one| (one.keyspace, one.from));
    entries.dedup_by(|next, one| {
        let touches = one.keyspace == next.keyspace && one.to.is_none_or(|to| next.from <= to);
        if touches {
            one.to = one.to.zip(next.to).map(|(to, other)| to.max(other));
            let first = one.expires_at.timestamp().min(next.expires_at.timestamp());
            one.expires_at = Expiry::at(first);
        }
        touches
    });
    entries
}

/// A version of a range above `begin`, if there is one or it cannot be found out.
fn newer(
    store: &ShardStore,
    range: KeyRange<'_>,
    begin: Timestamp,
    max_keys: u32,
) -> Option<Timestamp> {
    let lost = store.lost(range.keyspace);
    if lost > begin {
        return Some(lost);
    }
    match store.first_above(range, begin, max_keys) {
        Ok(RangeCheck::None) => None,
        Ok(RangeCheck::Above { version, .. }) => Some(version.timestamp),
        Ok(RangeCheck::More(_)) | Err(_) => Some(begin.next()),
    }
}

#[cfg(test)]
mod tests {
    use timestone_types::KeyspaceId;
    use timestone_types::limits::MAX_TXN_RANGES;
    use timestone_wire::RangeListWriter;

    use super::*;

    const KEYSPACE: KeyspaceId = KeyspaceId::numbered(1, false).ordered();

    const fn entry<'a>(from: &'a [u8], to: Option<&'a [u8]>, expires_at: u64) -> RangeEntry<'a> {
        let expires_at = Expiry::at(Timestamp::from_nanos(expires_at));
        RangeEntry { keyspace: KEYSPACE, expires_at, from, to }
    }

    #[test]
    fn no_key_is_looked_at_twice_for_a_prepare() {
        let other = KeyspaceId::numbered(2, false).ordered();
        let mut list = RangeListWriter::default();
        let ends: Vec<[u8; 2]> = (0..MAX_TXN_RANGES as u16).map(u16::to_be_bytes).collect();
        for (n, from) in ends.iter().enumerate().take(MAX_TXN_RANGES - 4) {
            // They overlap, and every third one takes in those before it; in no order.
            let to = if n % 3 == 0 { None } else { Some(&ends[ends.len() - 1][..]) };
            list.push(&entry(&from[..], to, 100 + n as u64));
        }
        list.push(&entry(b"", Some(b"\0\0"), 7));
        list.push(&RangeEntry { keyspace: other, ..entry(b"d", Some(b"f"), 9) });
        list.push(&RangeEntry { keyspace: other, ..entry(b"b", Some(b"c"), 8) });
        list.push(&RangeEntry { keyspace: other, ..entry(b"a", Some(b"b"), 5) });
        let found = disjoint(list.entries());
        let wanted = [
            // What expires first counts for all.
            entry(b"", None, 7),
            RangeEntry { keyspace: other, ..entry(b"a", Some(b"c"), 5) },
            RangeEntry { keyspace: other, ..entry(b"d", Some(b"f"), 9) },
        ];
        assert_eq!(found, wanted);
        let covers = |key: &[u8]| {
            let holds = |one: &&RangeEntry<'_>| {
                KeyRange { keyspace: KEYSPACE, from: one.from, to: one.to }.contains(key)
            };
            found.iter().filter(|one| one.keyspace == KEYSPACE).filter(holds).count()
        };
        assert!(ends.iter().all(|key| covers(key) == 1));
    }

    #[test]
    fn a_range_that_ends_before_it_begins_takes_in_no_other() {
        let mut list = RangeListWriter::default();
        for (from, to) in [(&b"x"[..], &b"a"[..]), (b"b", b"c"), (b"y", b"z")] {
            list.push(&entry(from, Some(to), 1));
        }
        let found = disjoint(list.entries());
        assert_eq!(found.len(), 3);
        assert_eq!(found[0], entry(b"b", Some(b"c"), 1));
    }
}
