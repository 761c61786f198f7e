//! Bugs on purpose: the simulator's tests switch one on for their thread and must fail. They exist
//! only with the feature `planted-bugs`, which no release has.

use std::cell::Cell;

/// Which bugs are switched on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PlantedBugs {
    /// Connections whose peers do not read are owed more and more.
    pub ignores_output_limit: bool,
    /// Peers that read nothing are waited for at a shutdown as ever.
    pub waits_for_readers: bool,
    /// What waits for peers counts with the bytes that are not written, and not with the buffers
    /// that hold them.
    pub counts_bytes_only: bool,
}

std::thread_local! {
    static PLANTED: Cell<PlantedBugs> = const { Cell::new(PlantedBugs {
        ignores_output_limit: false,
        waits_for_readers: false,
        counts_bytes_only: false,
    }) };
}

/// Plants bugs in every net stage of this thread; the default ends that.
pub fn plant(bugs: PlantedBugs) {
    PLANTED.set(bugs);
}

pub(crate) fn bugs() -> PlantedBugs {
    PLANTED.get()
}
