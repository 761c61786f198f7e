//! Ranges: pages of keys in order, and what validation is told of the ranges that a transaction has read.
//!
//! ```text
//!   Range ─► ScanNow: nothing commits in it at or below the snapshot any more ─► store walks ─► still above the watermark? ─► RangePage
//!   PrepareRanges ─► writers: whose kept write sets have a key in it │ newer: what the store knows above begin ─► core
//! ```
//! What the core is told is of the very moment in which it is asked: both are in memory. What cannot be
//! found out within a bound counts as written to, so that the transaction runs again.

use timestone_store::{AsOf, KeyRange, RangeCheck, RangeList};
use timestone_txn::participant::{RangeItem, Token};
use timestone_types::Timestamp;
use timestone_wire::{
    self as wire, ErrorCode, ErrorReply, Frame, Message, RangeEntries, RangePageWriter, ScanEntry,
};

use super::scan::page_limit;
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
        let Ok(range) = wire::Range::decode(frame) else { return self.requests.close(token) };
        let keys = KeyRange { keyspace: range.keyspace, from: range.from, to: range.end() };
        let limit = page_limit(range.limit);
        if let Err(error) = self.store.range_as_of(keys, limit, as_of, read_token(token)) {
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
