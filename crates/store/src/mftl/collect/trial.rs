//! Whether collection wins anything, or goes in circles.
//!
//! What packs badly (parts of large values, say) looks as if it could be packed better, for ever.
//! So victims are counted, and the pages that their survivors took: when a number of them together
//! have won next to nothing, collection is *futile*, until something may have died.
//!
//! ```text
//!   8 victims erased ─► pages won? ─ yes ─► go on
//!                          └─ no ─► futile: one victim now and then ─ won ─► go on
//! ```
//!
//! Invariant: `taken_before` is what survivors had taken when the trial began.

use core::time::Duration;

use timestone_types::Timestamp;

use super::HARD;
use crate::kit::blocks::Blocks;
use crate::kit::blocks::choice::worth_waiting_for;
use crate::limits::MAX_VICTIMS;

/// So many victims must have won something together, or collection counts as futile.
const TRIAL_VICTIMS: u32 = 8;
/// Thousandths of the erased victims' pages that must be won.
const LEAST_GAIN: u64 = 10;
/// How far the watermark moves before futile collection tries one more victim: something may have
/// died.
const FUTILE_PAUSE: Duration = Duration::from_secs(1);

/// Collection goes in circles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Futile {
    /// Another victim is tried when the watermark is here.
    pub(super) until: Timestamp,
    /// Until then something dies of which that victim may win.
    pub(super) hope: bool,
}

/// A number of victims, and what they won.
#[derive(Default)]
pub(super) struct Trial {
    /// Victims erased since the trial began, and the pages that survivors took until then.
    tried: u32,
    taken_before: u64,
    /// The last trial won nothing.
    futile: Option<Futile>,
}

impl Trial {
    /// What holds between calls.
    fn assert_sound(&self) {
        debug_assert!(
            self.tried < TRIAL_VICTIMS + MAX_VICTIMS as u32,
            "enough victims are judged before others are chosen"
        );
    }

    /// Whether the last trial won nothing.
    pub(super) fn futile(&self) -> Option<Futile> {
        self.futile
    }

    /// A victim has been erased.
    pub(super) fn erased(&mut self) {
        self.tried += 1;
        self.assert_sound();
    }

    /// Something may be won again.
    pub(super) fn forget(&mut self) {
        self.assert_sound();
        self.futile = None;
    }

    /// There is enough room: whatever comes next is judged from here on.
    pub(super) fn begin(&mut self, taken: u64) {
        debug_assert!(taken >= self.taken_before, "what survivors took only rises");
        *self = Self { tried: 0, taken_before: taken, futile: None };
    }

    /// Judges the victims so far, if there are enough; `taken` are the pages that survivors took in
    /// all. True when collection wins something.
    pub(super) fn judge(&mut self, taken: u64, blocks: &Blocks, watermark: Timestamp) -> bool {
        let enough = if self.futile.is_some() { 1 } else { TRIAL_VICTIMS };
        if self.tried < enough {
            return false;
        }
        assert!(taken >= self.taken_before, "what survivors took only rises");
        let erased = u64::from(self.tried) * u64::from(blocks.geometry.pages_per_block);
        let won = erased.saturating_sub(taken - self.taken_before);
        let wins = won * 1000 >= erased * LEAST_GAIN;
        self.futile = (!wins).then(|| {
            let pause = watermark.saturating_add(FUTILE_PAUSE);
            let better = worth_waiting_for(blocks, watermark, HARD);
            let until = better.map_or(pause, |at| at.min(pause));
            Futile { until, hope: better.is_some() }
        });
        (self.tried, self.taken_before) = (0, taken);
        wins
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::volume::tests::volume;

    #[test]
    fn eight_victims_that_win_nothing_are_futile_and_one_that_wins_ends_that() {
        let (volume, mut trial, now) = (volume(), Trial::default(), Timestamp::from_nanos(1));
        let blocks = &volume.blocks;
        (0..7).for_each(|_| trial.erased());
        assert!(!trial.judge(28, blocks, now) && trial.futile().is_none(), "too few to judge");
        trial.erased();
        assert!(!trial.judge(32, blocks, now));
        let futile = trial.futile().expect("eight blocks of four pages took 32");
        assert_eq!(futile, Futile { until: now.saturating_add(FUTILE_PAUSE), hope: false });
        trial.erased();
        assert!(trial.judge(35, blocks, now), "one page of four");
        assert_eq!(trial.futile(), None);
    }
}
