//! Which batches the logs may still hand out at a recovery, and above which timestamp all writes in
//! them lie: below it no write comes back.

use std::collections::VecDeque;

use timestone_types::Timestamp;
use timestone_wal::BatchNumber;

/// Most batch epochs that are remembered for the sake of what the log may still hand out.
pub(crate) const MAX_RETAINED: usize = 4096;
/// How far apart the remembered batch epochs are, in nanoseconds.
const BATCH_EPOCH_NANOS: u64 = 50_000_000;

/// The first batch of a grain of time, when it was closed, and a timestamp that every write of it
/// and of later batches lies above: the watermark of that moment, unless older writes were appended
/// again.
///
/// No transaction in an earlier batch began later than [`timestone_types::limits::MAX_CLOCK_LEAD`] after `at`. That
/// holds although the clock may have been set back between two lives: `at` never falls, and begins
/// at or above the read bound of the life that wrote the recovered batches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchEpoch {
    pub(crate) batch: BatchNumber,
    pub(crate) at: Timestamp,
    pub(crate) replayed_above: Timestamp,
}

impl BatchEpoch {
    /// The epoch that a batch begins which is closed now, if it begins one: in a new grain of time,
    /// or with a write older than the watermark. `oldest` is the lowest timestamp of its writes.
    /// `before` is the last epoch.
    pub(crate) fn begun_by(
        batch: BatchNumber,
        (now, watermark, oldest): (Timestamp, Timestamp, Timestamp),
        before: Option<Self>,
    ) -> Option<Self> {
        let grain = |at: Timestamp| at.as_nanos() / BATCH_EPOCH_NANOS;
        let replayed_above = watermark.min(oldest.previous());
        // A clock that stands behind the watermark was set back: what began before lies above the
        // watermark, and is not that old.
        let shown = now.max(watermark);
        #[cfg(feature = "planted-bugs")]
        let shown = if timestone_types::is_planted!(AgeByTheClock) { now } else { shown };
        let last = before.map(|before| before.at);
        let begins =
            replayed_above < watermark || last.is_none_or(|last| grain(last) < grain(shown));
        let at = last.map_or(shown, |last| last.max(shown));
        begins.then_some(Self { batch, at, replayed_above })
    }
}

/// See the module. Oldest first, one epoch per grain of time.
#[derive(Debug, Default)]
pub(crate) struct RetainedBatches(VecDeque<BatchEpoch>);

impl RetainedBatches {
    /// Another epoch begins. An old write in it lowers all replay floors before it.
    pub(crate) fn push(&mut self, epoch: BatchEpoch) {
        let floor = epoch.replayed_above;
        let above = self.0.iter_mut().rev().take_while(|before| before.replayed_above > floor);
        above.for_each(|before| before.replayed_above = floor);
        self.0.push_back(epoch);
        if self.0.len() > MAX_RETAINED {
            // A quiet shard fills a log file in days. Fewer epochs only make the replay floor a
            // little older.
            let mut place = 0;
            self.0.retain(|_| {
                place += 1;
                place % 2 == 1
            });
        }
    }

    /// The log can hand out nothing before `from` any more: up to which timestamp no write can come
    /// back, if that is known.
    pub(crate) fn replayed_above(&mut self, from: BatchNumber) -> Option<Timestamp> {
        debug_assert!(
            self.0.iter().is_sorted_by_key(|epoch| (epoch.batch, epoch.replayed_above)),
            "the replay floor rises when batches go"
        );
        while self.0.get(1).is_some_and(|next| next.batch <= from) {
            self.0.pop_front();
        }
        self.0.front().filter(|first| first.batch <= from).map(|first| first.replayed_above)
    }

    /// How many are remembered.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The last epoch.
    pub(crate) fn last(&self) -> Option<BatchEpoch> {
        self.0.back().copied()
    }
}
