//! From received bytes to batches of frames: splits, groups by destination, copies each run of
//! frames once.
//!
//! ```text
//!   bytes:  [f→2][f→2][f→5][f→2][part…]
//!            └── run ─┘└run┘└run┘  └── rest
//!   batches of frames: 2: f f f     5: f
//! ```
//!
//! Order within a destination is kept; between destinations there is none. Frames of a stage
//! without room, unless they came over a connection that was dialled here, are answered `Busy` by the protocol one by one, or, if it cannot say that,
//! splitting stops there.

use crate::gauge::Gauge;
use crate::limits::MAX_STAGES;
use crate::net::{Break, ConnectionView, Protocol, Split};
use crate::{FrameBatch, FrameBatchPool, StageId};

/// No open batch of frames for that stage.
const NONE: u16 = u16::MAX;

/// The batches of frames being filled from one connection's bytes. Reused from read to read.
#[derive(Debug)]
pub(super) struct Intake {
    /// Longest frame, in bytes.
    max_frame: usize,
    /// By stage: its place in `open`.
    place: Vec<u16>,
    open: Vec<(StageId, FrameBatch)>,
}

/// How splitting ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// What is left, if anything, is the beginning of a frame of this many bytes.
    Wants(usize),
    /// The next frame's stage has no room, and the protocol cannot say so.
    Stalled,
    /// The connection broke the protocol.
    Broken(Break),
}

/// What came of splitting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SplitOutcome {
    /// Bytes that are dealt with; the rest is the connection's to keep.
    pub(super) consumed: usize,
    /// Frames answered with `Busy`.
    pub(super) busy: u64,
    /// How it ended.
    pub(super) ended: Ended,
}

/// A run of frames, one after another, for one stage.
#[derive(Clone, Copy)]
struct FrameRun {
    to: StageId,
    begin: usize,
    frames: u32,
    admitted: bool,
}

impl Intake {
    /// An intake that takes frames of up to `max_frame` bytes.
    pub(super) const fn new(max_frame: usize) -> Self {
        Self { max_frame, place: Vec::new(), open: Vec::new() }
    }

    /// Splits `bytes` into the open batches of frames; answers of refused frames go to `answers`.
    pub(super) fn split<'a, P: Protocol>(
        &mut self,
        protocol: &mut P,
        view: &ConnectionView,
        bytes: &[u8],
        pool: &mut FrameBatchPool,
        gauge_of: impl Fn(StageId) -> &'a Gauge,
        answers: &mut Vec<u8>,
    ) -> SplitOutcome {
        let max_frame = self.max_frame;
        let mut at = 0;
        let mut busy = 0;
        let mut run: Option<FrameRun> = None;
        let ended = loop {
            let rest = &bytes[at..];
            if rest.is_empty() {
                break Ended::Wants(0);
            }
            let (length, to) = match protocol.split(view, rest) {
                Split::Frame { length, .. } if length > max_frame => {
                    break Ended::Broken(Break::TooLong { needed: length, bound: max_frame });
                }
                Split::Frame { length, to } if length > 0 && length <= rest.len() => (length, to),
                Split::Frame { .. } | Split::Broken => break Ended::Broken(Break::Malformed),
                Split::Incomplete { needed } if needed > max_frame => {
                    break Ended::Broken(Break::TooLong { needed, bound: max_frame });
                }
                Split::Incomplete { needed } => break Ended::Wants(needed.max(rest.len() + 1)),
            };
            match &mut run {
                Some(open) if open.to == to => open.frames += 1,
                _ => {
                    // Over a dialled connection come answers: they are bounded by what was asked,
                    // and let their stage go on.
                    let admitted = view.dial.is_some() || gauge_of(to).has_room();
                    if let Some(ended) =
                        run.replace(FrameRun { to, begin: at, frames: 1, admitted })
                    {
                        self.copy(ended, &bytes[..at], view, pool);
                    }
                }
            }
            if run.is_some_and(|run| !run.admitted) {
                if !protocol.busy(view, &rest[..length], answers) {
                    run = None;
                    break Ended::Stalled;
                }
                busy += 1;
            }
            at += length;
        };
        if let Some(ended) = run {
            self.copy(ended, &bytes[..at], view, pool);
        }
        SplitOutcome { consumed: at, busy, ended }
    }

    /// Copies a run, which ends where `bytes` does, into its batch of frames.
    fn copy(
        &mut self,
        run: FrameRun,
        bytes: &[u8],
        view: &ConnectionView,
        pool: &mut FrameBatchPool,
    ) {
        if !run.admitted {
            return;
        }
        let index = run.to.index();
        assert!(index < MAX_STAGES, "the protocol names a stage that cannot exist: {}", run.to);
        if index >= self.place.len() {
            self.place.resize(index + 1, NONE);
        }
        if self.place[index] == NONE {
            self.place[index] = self.open.len() as u16;
            self.open.push((run.to, FrameBatch::new(view.reply_to, pool.take())));
        }
        let frame_batch = &mut self.open[self.place[index] as usize].1;
        frame_batch.frames += run.frames;
        frame_batch.bytes.extend_from_slice(&bytes[run.begin..]);
    }

    /// Takes the filled batches of frames out.
    pub(super) fn take(&mut self, mut each: impl FnMut(StageId, FrameBatch)) {
        for (to, frame_batch) in self.open.drain(..) {
            self.place[to.index()] = NONE;
            each(to, frame_batch);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::DialId;
    use crate::{AdmissionLimit, ConnectionId, Generation, ReplyAddress};

    /// Frames are `[length][stage][payload…]`; a length of 255 is malformed, and stage 9's frames
    /// are announced as huge.
    struct Toy {
        says_busy: bool,
    }

    impl Protocol for Toy {
        fn split(&mut self, _: &ConnectionView, bytes: &[u8]) -> Split {
            match bytes {
                [255, ..] => Split::Broken,
                [_, 9, ..] => Split::Incomplete { needed: 1 << 20 },
                [length, to, ..] if bytes.len() >= *length as usize => {
                    Split::Frame { length: *length as usize, to: StageId::new(u16::from(*to)) }
                }
                [length, ..] => Split::Incomplete { needed: *length as usize },
                [] => Split::Broken,
            }
        }

        fn busy(&mut self, _: &ConnectionView, frame: &[u8], out: &mut Vec<u8>) -> bool {
            out.extend_from_slice(frame);
            self.says_busy
        }

        fn refuse(&mut self, _: &ConnectionView, _: Break, _: &[u8], _: &mut Vec<u8>) {}
    }

    type Sorted = Vec<(StageId, u32, Vec<u8>)>;

    fn split(bytes: &[u8], says_busy: bool) -> (SplitOutcome, Sorted, Vec<u8>) {
        split_on(None, bytes, says_busy)
    }

    fn split_on(
        dial: Option<DialId>,
        bytes: &[u8],
        says_busy: bool,
    ) -> (SplitOutcome, Sorted, Vec<u8>) {
        let reply_to = ReplyAddress {
            stage: StageId::new(0),
            connection: ConnectionId::new(1),
            generation: Generation::new(2),
        };
        let view = ConnectionView { reply_to, peer: ([127, 0, 0, 1], 1).into(), dial, owner: None };
        let (open, full) = (Gauge::default(), Gauge::new(AdmissionLimit { requests: 0, bytes: 0 }));
        let gauge_of = |stage: StageId| if stage.index() == 8 { &full } else { &open };
        let (mut intake, mut pool, mut answers) =
            (Intake::new(1000), FrameBatchPool::new(), Vec::new());
        let mut toy = Toy { says_busy };
        let outcome = intake.split(&mut toy, &view, bytes, &mut pool, gauge_of, &mut answers);
        let mut frame_batches = Vec::new();
        intake.take(|to, frame_batch| {
            assert_eq!(frame_batch.reply_to, reply_to);
            frame_batches.push((to, frame_batch.frames, frame_batch.bytes));
        });
        assert!(intake.place.iter().all(|&place| place == NONE));
        (outcome, frame_batches, answers)
    }

    #[test]
    fn frames_are_grouped_by_destination_in_order_and_the_rest_is_kept() {
        let (outcome, frame_batches, _) =
            split(&[3, 2, 10, 3, 2, 11, 2, 5, 3, 2, 12, 9, 2, 1], true);
        assert_eq!(outcome, SplitOutcome { consumed: 11, busy: 0, ended: Ended::Wants(9) });
        assert_eq!(
            frame_batches,
            [
                (StageId::new(2), 3, vec![3, 2, 10, 3, 2, 11, 3, 2, 12]),
                (StageId::new(5), 1, vec![2, 5]),
            ]
        );
    }

    #[test]
    fn what_came_before_a_broken_frame_is_delivered() {
        let (outcome, frame_batches, _) = split(&[2, 1, 255, 1], true);
        assert_eq!(
            outcome,
            SplitOutcome { consumed: 2, busy: 0, ended: Ended::Broken(Break::Malformed) }
        );
        assert_eq!(frame_batches, [(StageId::new(1), 1, vec![2, 1])]);
        let (outcome, ..) = split(&[0, 1], true);
        assert_eq!(outcome.ended, Ended::Broken(Break::Malformed));
        let (outcome, ..) = split(&[7, 9], true);
        assert_eq!(outcome.ended, Ended::Broken(Break::TooLong { needed: 1 << 20, bound: 1000 }));
    }

    #[test]
    fn frames_of_a_full_stage_are_answered_and_others_pass() {
        let (outcome, frame_batches, answers) = split(&[2, 8, 3, 8, 1, 2, 1, 2, 8], true);
        assert_eq!(outcome, SplitOutcome { consumed: 9, busy: 3, ended: Ended::Wants(0) });
        assert_eq!(frame_batches, [(StageId::new(1), 1, vec![2, 1])]);
        assert_eq!(answers, [2, 8, 3, 8, 1, 2, 8]);
    }

    #[test]
    fn a_full_stage_takes_what_it_is_answered() {
        let (outcome, frame_batches, answers) =
            split_on(Some(DialId::new(1)), &[2, 8, 3, 8, 1], true);
        assert_eq!(outcome, SplitOutcome { consumed: 5, busy: 0, ended: Ended::Wants(0) });
        assert_eq!(frame_batches, [(StageId::new(8), 2, vec![2, 8, 3, 8, 1])]);
        assert_eq!(answers, []);
    }

    #[test]
    fn a_protocol_that_cannot_say_busy_stalls_at_the_first_such_frame() {
        let (outcome, frame_batches, _) = split(&[2, 1, 2, 8, 2, 1], false);
        assert_eq!(outcome, SplitOutcome { consumed: 2, busy: 0, ended: Ended::Stalled });
        assert_eq!(frame_batches, [(StageId::new(1), 1, vec![2, 1])]);
    }
}
