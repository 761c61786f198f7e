//! What two stores on flash report as one: checkpoints, scrubs and the end.
//!
//! ```text
//!   checkpoint_now ─► both ─► CheckpointDone of one … of the other ─► CheckpointDone
//! ```
//! A checkpoint that somebody has asked for is done when *both* stores have completed one since: the
//! logs of earlier runs go by that, and they hold what belongs to either. The end is reached when
//! both are down. Two walks of a scrub are told as one, with the sums of both.
//!
//! Invariant: what was asked for is reported once, after both have done their part.

use timestone_types::is_planted;

use crate::api::{ScrubReport, StoreEvent};

/// Which of the two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OneOfTwo {
    Full,
    Frugal,
}

/// What was asked of both, and who has done his part. Nothing while there is one store only.
#[derive(Default, Debug)]
pub(super) struct Joint {
    checkpoint: Option<[bool; 2]>,
    scrub: Option<[Option<ScrubReport>; 2]>,
    end: Option<[bool; 2]>,
}

impl Joint {
    /// A checkpoint of both is asked for; one that is waited for already stays so.
    pub(super) fn ask_checkpoint(&mut self) {
        if !is_planted!(StableInOneStore) {
            self.checkpoint.get_or_insert_default();
        }
    }

    /// A walk over both is asked for. Whether it is to begin: one that is under way goes on.
    pub(super) fn ask_scrub(&mut self) -> bool {
        let begins = self.scrub.is_none();
        self.scrub.get_or_insert_default();
        begins
    }

    /// The end of both is asked for.
    pub(super) fn ask_end(&mut self) {
        self.end.get_or_insert_default();
    }

    /// Keeps of the events behind the first `from`, which are of one store, what is for the owner
    /// now.
    pub(super) fn take(&mut self, part: OneOfTwo, events: &mut Vec<StoreEvent>, from: usize) {
        let mut place = 0;
        events.retain_mut(|event| {
            place += 1;
            place <= from || self.is_told(part, event)
        });
        debug_assert!(events.len() >= from, "what was there before stays");
    }

    /// Whether an event of one store is told, changed into what both have done where it is.
    fn is_told(&mut self, part: OneOfTwo, event: &mut StoreEvent) -> bool {
        match event {
            StoreEvent::CheckpointDone => both_did(&mut self.checkpoint, part),
            StoreEvent::ShutDown => both_did(&mut self.end, part),
            StoreEvent::ScrubDone(report) => {
                let Some(reports) = &mut self.scrub else { return true };
                reports[part as usize] = Some(*report);
                let [Some(full), Some(frugal)] = *reports else { return false };
                self.scrub = None;
                *report = ScrubReport {
                    pages: full.pages + frugal.pages,
                    records: full.records + frugal.records,
                    corrupt_pages: full.corrupt_pages + frugal.corrupt_pages,
                    corrupt_records: full.corrupt_records + frugal.corrupt_records,
                };
                true
            }
            _ => true,
        }
    }
}

/// Notes that one has done its part. Whether both have, or nobody has asked.
fn both_did(asked: &mut Option<[bool; 2]>, part: OneOfTwo) -> bool {
    let Some(done) = asked else { return true };
    done[part as usize] = true;
    let both = done.iter().all(|done| *done);
    if both {
        *asked = None;
    }
    both
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(joint: &mut Joint, part: OneOfTwo, event: StoreEvent) -> Vec<StoreEvent> {
        let mut events = vec![event];
        joint.take(part, &mut events, 0);
        events
    }

    #[test]
    fn a_checkpoint_counts_when_both_have_completed_one_since_it_was_asked_for() {
        let mut joint = Joint::default();
        let done = |joint: &mut Joint, part| told(joint, part, StoreEvent::CheckpointDone).len();
        assert_eq!(done(&mut joint, OneOfTwo::Full), 1, "nobody has asked");
        joint.ask_checkpoint();
        for _ in 0..3 {
            assert_eq!(done(&mut joint, OneOfTwo::Full), 0);
            joint.ask_checkpoint();
        }
        assert_eq!(done(&mut joint, OneOfTwo::Frugal), 1);
        joint.ask_checkpoint();
        assert_eq!(done(&mut joint, OneOfTwo::Frugal), 0);
        assert_eq!(done(&mut joint, OneOfTwo::Full), 1);
    }

    #[test]
    fn a_scrub_tells_the_sums_and_begins_once() {
        let mut joint = Joint::default();
        assert!(joint.ask_scrub() && !joint.ask_scrub());
        let report = |pages| ScrubReport { pages, records: 2 * pages, ..ScrubReport::default() };
        assert!(told(&mut joint, OneOfTwo::Frugal, StoreEvent::ScrubDone(report(3))).is_empty());
        assert!(!joint.ask_scrub(), "it is under way");
        let both = told(&mut joint, OneOfTwo::Full, StoreEvent::ScrubDone(report(4)));
        assert!(matches!(both[..], [StoreEvent::ScrubDone(sum)] if sum == report(7)), "{both:?}");
        assert!(joint.ask_scrub());
    }

    #[test]
    fn what_others_have_reported_before_is_left_alone() {
        let mut joint = Joint::default();
        joint.ask_end();
        let mut events = vec![StoreEvent::ShutDown, StoreEvent::ShutDown];
        joint.take(OneOfTwo::Full, &mut events, 1);
        assert_eq!(events.len(), 1);
        assert_eq!(told(&mut joint, OneOfTwo::Frugal, StoreEvent::ShutDown).len(), 1);
        joint.ask_end();
        assert!(
            told(&mut joint, OneOfTwo::Full, StoreEvent::ShutDown).is_empty(),
            "it says so again"
        );
    }
}
