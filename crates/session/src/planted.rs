//! Bugs on purpose: the simulator's tests switch one on for their thread and must fail. They exist
//! only with the feature `planted-bugs`, which no release has.

use std::cell::Cell;

/// Which bugs are switched on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PlantedBugs {
    /// The watermark that is reported ignores the transaction that has been open the longest.
    pub ignore_oldest_session: bool,
    /// What is unfinished at one shard holds the watermark of all.
    pub hold_everywhere: bool,
    /// A connection that is silent is never given up.
    pub never_gives_up: bool,
    /// A write that was reported as unknown goes on being tried at later timestamps, and its
    /// session does not mind it.
    pub undoes_later_writes: bool,
    /// A write that was refused for want of room holds the watermark back for as long as it is
    /// tried.
    pub keeps_refused_writes: bool,
    /// What a copy of a write met is told as what became of the write.
    pub fails_for_copies: bool,
    /// A write that is too old counts as forgotten, perhaps after it was carried out, although
    /// every earlier copy of it was refused.
    pub doubts_refusals: bool,
    /// The shards that there is a way to count as all there are where a whole keyspace is
    /// concerned.
    pub takes_reach_for_all: bool,
}

std::thread_local! {
    static PLANTED: Cell<PlantedBugs> = const {
        Cell::new(PlantedBugs { ignore_oldest_session: false, hold_everywhere: false, never_gives_up: false, undoes_later_writes: false, keeps_refused_writes: false, fails_for_copies: false, doubts_refusals: false, takes_reach_for_all: false })
    };
}

/// Plants bugs in every engine of this thread; the default ends that.
pub fn plant(bugs: PlantedBugs) {
    PLANTED.set(bugs);
}

pub(crate) fn bugs() -> PlantedBugs {
    PLANTED.get()
}
