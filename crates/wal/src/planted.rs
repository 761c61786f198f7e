//! Bugs on purpose: the simulator's tests switch one on for their thread and must fail. They exist
//! only with the feature `planted-bugs`, which no release has.

use std::cell::Cell;

/// Which bugs are switched on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PlantedBugs {
    /// Batches are reported durable when they are sent.
    pub acknowledge_before_sync: bool,
    /// Recovery takes the last block of the log for torn.
    pub skip_last_block: bool,
    /// Checksums of blocks' payloads count for nothing.
    pub believe_everything: bool,
    /// A log that nothing is appended to asks shards to carry forward at its opening or never.
    pub ask_once: bool,
}

std::thread_local! {
    static PLANTED: Cell<PlantedBugs> = const {
        Cell::new(PlantedBugs {
            acknowledge_before_sync: false,
            skip_last_block: false,
            believe_everything: false,
            ask_once: false,
        })
    };
}

/// Plants bugs in every log of this thread; the default ends that.
pub fn plant(bugs: PlantedBugs) {
    PLANTED.set(bugs);
}

pub(crate) fn bugs() -> PlantedBugs {
    PLANTED.get()
}
