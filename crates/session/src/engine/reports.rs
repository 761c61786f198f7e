//! What each shard is told: the lowest timestamp that may still be used there, and up to which
//! sequence everything of this client is over.
//!
//! An open transaction may touch any shard, so its begin holds all of them. What is being committed
//! or written concerns the shards that take part in it and no others: one that is gone for long
//! must not stop the collection on those that live (docs/protocol/time.md, "Watermark").

use timestone_types::{ClientId, Sequence, Timestamp, TxnId, is_planted};

use super::shards::ShardIndex;

/// What one shard is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Report {
    /// The lowest timestamp that may still be used there.
    pub(crate) watermark: Timestamp,
    /// The first transaction or write that is not over yet.
    lowest: Option<Sequence>,
}

impl Report {
    /// Every transaction and write of this client up to it is finished and acknowledged by all who
    /// took part.
    pub(crate) fn acked(&self, last: Sequence) -> Sequence {
        let acked = self.lowest.map_or(last, |lowest| Sequence::new(lowest.get() - 1));
        assert!(acked <= last, "acknowledged {acked}, and only {last} were begun");
        acked
    }
}

/// The reports to all shards while they are collected: from the manager, the requests outside
/// transactions, and what was reported `Unknown`.
#[derive(Debug)]
pub(crate) struct Reports {
    client: ClientId,
    now: Timestamp,
    /// The lowest begin of an open transaction.
    open: Timestamp,
    /// The two lowest begins of all, for a bug on purpose.
    lowest: [Timestamp; 2],
    shards: Vec<Report>,
}

impl Reports {
    /// Nothing is held back yet: `now` may be told to all of `shards`.
    pub(super) fn new(client: ClientId, now: Timestamp, shards: u16) -> Self {
        let report = Report { watermark: now, lowest: None };
        Self { client, now, open: now, lowest: [now; 2], shards: vec![report; usize::from(shards)] }
    }

    /// What began at `begin` may use that timestamp anywhere.
    pub(crate) fn hold_everywhere(&mut self, begin: Timestamp) {
        self.note(begin);
        self.open = self.open.min(begin);
        debug_assert!(self.open <= self.now, "a watermark in the future");
    }

    /// What began at `begin` may use that timestamp on this shard.
    pub(crate) fn hold(&mut self, shard: ShardIndex, begin: Timestamp) {
        self.note(begin);
        let report = &mut self.shards[shard.index()];
        report.watermark = report.watermark.min(begin);
        debug_assert!(report.watermark <= self.now, "a watermark in the future");
    }

    /// This shard still has to know of a transaction or write. Something of an earlier id of this
    /// client is not asked about under the present one.
    pub(crate) fn owe(&mut self, shard: ShardIndex, txn: TxnId) {
        debug_assert!(txn.sequence > Sequence::ZERO, "something without an id is owed");
        if txn.client == self.client {
            let lowest = &mut self.shards[shard.index()].lowest;
            *lowest = Some(lowest.map_or(txn.sequence, |lowest| lowest.min(txn.sequence)));
        }
    }

    /// The reports, in the order of the shards.
    pub(super) fn finish(mut self) -> Vec<Report> {
        if is_planted!(HeldEverywhere) {
            let lowest = self.shards.iter().map(|report| report.watermark).min();
            self.open = self.open.min(lowest.unwrap_or(self.now));
        }
        for report in &mut self.shards {
            report.watermark = report.watermark.min(self.open);
            if is_planted!(IgnoredSession) {
                report.watermark = self.lowest[1];
            }
            assert!(report.watermark <= self.now, "a watermark in the future");
        }
        self.shards
    }

    fn note(&mut self, begin: Timestamp) {
        if is_planted!(IgnoredSession) && begin != self.lowest[0] {
            let [first, second] = self.lowest;
            let middle = first.max(begin).min(second);
            self.lowest = [first.min(begin), middle];
        }
        debug_assert!(self.lowest.is_sorted(), "the lowest begin is not first");
    }
}
