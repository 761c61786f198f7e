//! Which stage has which number, and which thread runs it.
//!
//! ```text
//!   stage ids:  log 1 a thread │ native net 1 a thread │ RESP net and gateway 1 a thread │ embedded clients 1 a thread │ node │ shards
//!   thread i:   native net i, RESP net i, gateway i, embedded client i, shards s with s mod T = i, log i          (fused)
//!   one more:   node
//! ```

use std::collections::VecDeque;

use timestone_seda::{Context, Stage, StageId};
use timestone_types::ShardId;

use crate::config::StageLayout;
use crate::event::Event;

/// Which stage has which id, and which thread runs it.
pub(crate) struct StagePlan {
    pub(super) shards: usize,
    pub(crate) threads: usize,
}

impl StagePlan {
    /// How many shards there are is known when the cluster was joined.
    pub(super) const fn new(threads: usize) -> Self {
        Self { shards: 0, threads }
    }

    /// The plan with so many shards.
    pub(super) const fn has_shards(&mut self, shards: usize) {
        self.shards = shards;
    }

    fn id(index: usize) -> StageId {
        StageId::new(u16::try_from(index).unwrap_or(u16::MAX))
    }

    pub(super) fn shard(&self, index: usize) -> StageId {
        Self::id(5 * self.threads + 1 + index)
    }

    pub(super) fn log(&self, thread: usize) -> StageId {
        Self::id(thread)
    }

    pub(super) fn native(&self, thread: usize) -> StageId {
        Self::id(self.threads + thread)
    }

    pub(super) fn resp(&self, thread: usize) -> StageId {
        Self::id(2 * self.threads + thread)
    }

    pub(super) fn gateway(&self, thread: usize) -> StageId {
        Self::id(3 * self.threads + thread)
    }

    pub(super) fn embedded_client(&self, thread: usize) -> StageId {
        Self::id(4 * self.threads + thread)
    }

    pub(super) fn node(&self) -> StageId {
        Self::id(5 * self.threads)
    }

    const fn total(&self) -> usize {
        self.shards + 5 * self.threads + 1
    }

    pub(super) const fn thread_of(&self, shard: usize) -> usize {
        shard % self.threads
    }

    /// The shards that run on a thread. Where every stage has a thread of its own no shard is nearer
    /// than another: all of them are near.
    pub(super) fn near(
        &self,
        layout: StageLayout,
        stage_of: &[(ShardId, StageId)],
        thread: usize,
    ) -> Vec<ShardId> {
        let near = stage_of
            .iter()
            .zip(0..)
            .filter(|&(_, index)| layout == StageLayout::Staged || self.thread_of(index) == thread);
        near.map(|((shard, _), _)| *shard).collect()
    }

    /// The stages of every thread, net stages first; the node has a thread of its own, because it
    /// may block. Ids of stages that this configuration does not have go there too.
    pub(super) fn threads_of(&self, layout: StageLayout, used: &[bool]) -> Vec<Vec<StageId>> {
        let mut threads = match layout {
            StageLayout::Fused => self.fused(used),
            StageLayout::Staged => {
                let stages = (0..self.total())
                    .filter(|&index| used[index] && Self::id(index) != self.node());
                stages.map(|index| vec![Self::id(index)]).collect()
            }
        };
        let mut last = vec![self.node()];
        last.extend((0..self.total()).filter(|&index| !used[index]).map(Self::id));
        threads.push(last);
        threads
    }

    fn fused(&self, used: &[bool]) -> Vec<Vec<StageId>> {
        let of_thread = |thread| {
            let mut stages = vec![
                self.native(thread),
                self.resp(thread),
                self.gateway(thread),
                self.embedded_client(thread),
            ];
            stages.extend(
                (0..self.shards)
                    .filter(|&shard| self.thread_of(shard) == thread)
                    .map(|shard| self.shard(shard)),
            );
            stages.push(self.log(thread));
            stages.retain(|stage| used[stage.index()]);
            stages
        };
        (0..self.threads).map(of_thread).collect()
    }
}

/// In the place of a stage that this configuration does not have.
struct Empty;

impl Stage<Event> for Empty {
    fn name(&self) -> &str {
        "unused"
    }

    fn handle(&mut self, _ctx: &mut Context<'_, Event>, events: &mut VecDeque<Event>) {
        events.clear();
    }
}

/// The stages of a process while it is put together, by number.
pub(super) struct StageSlots(Vec<Option<Box<dyn Stage<Event>>>>);

impl StageSlots {
    /// Without any stage yet.
    pub(super) fn new(plan: &StagePlan) -> Self {
        let mut slots = Vec::new();
        slots.resize_with(plan.total(), || None);
        Self(slots)
    }

    /// Puts a stage where others expect it.
    pub(super) fn put(&mut self, at: StageId, stage: impl Stage<Event> + 'static) {
        let slot = &mut self.0[at.index()];
        assert!(slot.is_none(), "two stages have number {at}");
        *slot = Some(Box::new(stage));
    }

    /// All stages; and for each number whether this configuration has one there.
    pub(super) fn finish(self) -> (Vec<Box<dyn Stage<Event>>>, Vec<bool>) {
        let used = self.0.iter().map(Option::is_some).collect();
        let stages = self.0.into_iter().map(|stage| stage.unwrap_or_else(|| Box::new(Empty)));
        (stages.collect(), used)
    }
}
