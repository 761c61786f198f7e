//! Bugs on purpose: the simulator's tests switch one on for their thread and must fail. They exist only with the feature
//! `planted-bugs`, which no release has.

use std::cell::Cell;

/// Which bugs are switched on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PlantedBugs {
    /// The watermark that is reported ignores the transaction that has been open the longest.
    pub ignore_oldest_session: bool,
    /// A connection that is silent is never given up.
    pub never_gives_up: bool,
    /// A write that was reported as unknown goes on being tried at later timestamps, and its session does not mind it.
    pub undoes_later_writes: bool,
}

std::thread_local! {
    static PLANTED: Cell<PlantedBugs> = const {
        Cell::new(PlantedBugs { ignore_oldest_session: false, never_gives_up: false, undoes_later_writes: false })
    };
}

/// Plants bugs in every engine of this thread; the default ends that.
pub fn plant(bugs: PlantedBugs) {
    PLANTED.set(bugs);
}

pub(crate) fn bugs() -> PlantedBugs {
    PLANTED.get()
}
