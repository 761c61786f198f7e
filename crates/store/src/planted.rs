//! Bugs on purpose: the simulator's tests switch one on for their thread and must fail. They exist
//! only with the feature `planted-bugs`, which no release has.

use std::cell::Cell;

/// Which bugs are switched on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PlantedBugs {
    /// Collection drops a tombstone whoever may still read below it, and whatever older records are
    /// still on flash.
    pub drop_tombstones_early: bool,
    /// What is found on the device at an opening counts as durable, although no sync covers it.
    pub trust_unsynced_pages: bool,
    /// Versions that nobody may read any more stay in the index.
    pub keep_dead_versions: bool,
    /// Without a log, what a put supersedes goes although that put is not durable.
    pub prune_by_what_is_not_durable: bool,
    /// A scan found more keys than its limit allows: its cursor lies behind those that were left
    /// out.
    pub drop_what_a_page_cannot_hold: bool,
    /// Checksums of pages and records count for nothing.
    pub believe_everything: bool,
    /// A fence leaves no trace at any key, those included that it has hidden.
    pub forget_what_fences_hide: bool,
    /// The store in memory does not apply every other delete, by the keys' hashes.
    pub forget_deletes: bool,
    /// The store in memory collects the youngest version at or below the watermark, too, as soon as
    /// there is a younger one.
    pub collect_one_too_many: bool,
    /// The store in memory goes on to serve what a fence has hidden.
    pub serve_behind_fences: bool,
    /// The store in memory does not know after a restart that anything was lost: promises of the
    /// earlier run put what they would, although all that was written beside them is gone.
    pub forget_what_was_lost: bool,
}

std::thread_local! {
    static PLANTED: Cell<PlantedBugs> = const {
        Cell::new(PlantedBugs {
            drop_tombstones_early: false,
            trust_unsynced_pages: false,
            keep_dead_versions: false,
            prune_by_what_is_not_durable: false,
            drop_what_a_page_cannot_hold: false,
            believe_everything: false,
            forget_what_fences_hide: false,
            forget_deletes: false,
            collect_one_too_many: false,
            serve_behind_fences: false,
            forget_what_was_lost: false,
        })
    };
}

/// Plants bugs in every store of this thread; the default ends that.
pub fn plant(bugs: PlantedBugs) {
    PLANTED.set(bugs);
}

pub(crate) fn bugs() -> PlantedBugs {
    PLANTED.get()
}
