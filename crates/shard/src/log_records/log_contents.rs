//! What the logs of a server may still hand out of one shard at a recovery.

use timestone_seda::StageId;
use timestone_wal::BatchNumber;

/// Every log stage, and the oldest batch of the shard that it may hand out, once it has said so.
///
/// A log speaks when files of its own have gone, and not when it is given something. So its word
/// holds for what it had then: what it was given since is added here.
#[derive(Debug)]
pub struct LogContents(Vec<(StageId, Option<BatchNumber>)>);

impl LogContents {
    /// Of these logs, none of which has spoken: each may hold anything.
    #[must_use]
    pub fn of(logs: &[StageId]) -> Self {
        Self(logs.iter().map(|&log| (log, None)).collect())
    }

    /// The logs.
    pub fn stages(&self) -> impl Iterator<Item = StageId> + '_ {
        self.0.iter().map(|&(log, _)| log)
    }

    fn find(&mut self, log: StageId) -> Option<&mut Option<BatchNumber>> {
        self.0.iter_mut().find(|(stage, _)| *stage == log).map(|(_, from)| from)
    }

    /// A log was given a batch.
    pub fn given(&mut self, log: StageId, batch: BatchNumber) {
        if let Some(Some(from)) = self.find(log)
            && !timestone_types::is_planted!(BelievesOldWord)
        {
            *from = batch.min(*from);
        }
    }

    /// A log says that it can hand out nothing before `from` any more. It may have said so before it
    /// was given what is `on_its_way` to it, from that batch on.
    pub fn told(&mut self, log: StageId, from: BatchNumber, on_its_way: Option<BatchNumber>) {
        let from = on_its_way.map_or(from, |first| from.min(first));
        if let Some(known) = self.find(log) {
            *known = Some(from);
        }
    }

    /// The oldest batch that any log may hand out; `None` before all have spoken.
    #[must_use]
    pub fn oldest(&self) -> Option<BatchNumber> {
        self.0.iter().map(|(_, from)| *from).min().flatten()
    }

    /// Whether all have said that they hold nothing.
    #[must_use]
    pub fn are_empty(&self) -> bool {
        self.0.iter().all(|(_, from)| *from == Some(BatchNumber::MAX))
    }
}
