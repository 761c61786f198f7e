//! Steps the participant, and keeps what it wants done until that is carried out.
//!
//! ```text
//!   input ─► step ─► outputs ─► carried out by the shard ─► further inputs
//! ```
//! Also here: the requests that the participant wants handed in again, the watermark as it told it,
//! and what it has to know of the physical clock: steps, and with replicas how wrong it is.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use timestone_clock::Clock;
use timestone_txn::Refusal;
use timestone_txn::limits::UNVOUCHED_CLOCK_ERROR;
use timestone_txn::participant::{
    Collected, DirectAnswer, ExpiryRule, Input, Output, Participant, Token, View, Vote, Wait,
};
use timestone_types::{AbortKind, KeyRef, Timestamp, TxnId};

/// How the participant lets a key be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadNow {
    pub(crate) at: Timestamp,
    pub(crate) prepared_before: bool,
    pub(crate) expiry: ExpiryRule,
}

/// A participant, and its outputs that are not carried out yet.
pub(crate) struct Driver {
    participant: Participant,
    /// What has been let be collected.
    collected: Collected,
    // Both reused by every step.
    outputs: Vec<Output>,
    spare: Vec<Output>,
    again: VecDeque<(Token, Wait)>,
    handing_in: bool,
    // Asked only how far it is held back, since the time comes with every turn; and with replicas how
    // wrong it is, and what it shows as an answer leaves.
    clock: Arc<dyn Clock>,
    held_back: Duration,
    has_replicas: bool,
    error: Option<Duration>,
}

impl Driver {
    /// Of a participant that has been told what was recovered; `outputs` is what it said to that.
    pub(crate) fn new(
        participant: Participant,
        outputs: Vec<Output>,
        clock: Arc<dyn Clock>,
        has_replicas: bool,
    ) -> Self {
        Self {
            participant,
            collected: Collected::default(),
            outputs,
            spare: Vec::new(),
            again: VecDeque::new(),
            handing_in: false,
            clock,
            held_back: Duration::ZERO,
            has_replicas,
            error: None,
        }
    }

    /// The participant, to look at.
    #[inline]
    pub(crate) const fn participant(&self) -> &Participant {
        &self.participant
    }

    /// When a range was read that a key lies in, at or above a commit timestamp; zero where there is no
    /// order.
    #[inline]
    pub(crate) fn range_read_at(&self, key: KeyRef<'_>, commit: Timestamp) -> Timestamp {
        if key.keyspace.is_ordered() {
            self.participant.range_read_at(key.keyspace, key.bytes, commit)
        } else {
            Timestamp::ZERO
        }
    }

    /// What it says of itself.
    pub(crate) fn view(&self, now: Timestamp) -> View {
        self.participant.view(now)
    }

    /// When it wants to be told the time at the latest.
    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        self.participant.poll_deadline()
    }

    /// What may have been collected.
    #[inline]
    pub(crate) const fn collected(&self) -> Collected {
        self.collected
    }

    /// The watermark rose.
    pub(crate) fn advance(&mut self, watermark: Timestamp) {
        self.collected.advance(watermark);
        assert!(self.collected.below() == watermark, "what is asked later sees it");
    }

    /// Hands it an input.
    #[inline]
    pub(crate) fn step(&mut self, now: Timestamp, input: Input<'_>) {
        let before = self.outputs.len();
        self.participant.step(now, input, &mut self.outputs);
        debug_assert!(before <= self.outputs.len(), "what is not carried out yet stays");
    }

    /// Asks it something that it answers at once, with its last output. The others are to be carried
    /// out.
    pub(crate) fn ask(&mut self, now: Timestamp, input: Input<'_>) -> Option<Output> {
        let mut outputs = Vec::new();
        self.participant.step(now, input, &mut outputs);
        let answer = outputs.pop();
        self.outputs.append(&mut outputs);
        debug_assert!(
            matches!(
                answer,
                Some(
                    Output::Recognised { .. }
                        | Output::Owed { .. }
                        | Output::CopyForward(_)
                        | Output::Closed { .. }
                )
            ),
            "a question is answered last"
        );
        answer
    }

    /// Hands it a direct read or write, which has one answer and nothing else.
    #[inline]
    pub(crate) fn call(&mut self, now: Timestamp, input: Input<'_>) -> DirectAnswer {
        debug_assert!(self.outputs.is_empty(), "what came before is carried out");
        self.participant.step(now, input, &mut self.outputs);
        debug_assert!(
            matches!(self.outputs[..], [Output::Direct(_)]),
            "a call has one answer: {:?}",
            self.outputs
        );
        match self.outputs.pop() {
            Some(Output::Direct(answer)) => answer,
            _ => DirectAnswer::Indirect,
        }
    }

    /// Whether it would look at a prepare of the transaction as at a new one.
    pub(crate) fn is_new(
        &mut self,
        now: Timestamp,
        token: Token,
        txn: TxnId,
        begin: Timestamp,
    ) -> bool {
        let answer = self.ask(now, Input::Recognise { token, txn, begin });
        debug_assert!(
            matches!(answer, Some(Output::Recognised { token: of, .. }) if of == token),
            "the answer is about the request"
        );
        matches!(answer, Some(Output::Recognised { is_new: true, .. }))
    }

    /// Whether a single write is refused only because a restart has put the watermark ahead of the
    /// clock, which was set back. It has no snapshot: asked again in a moment, it begins above.
    /// That it was refused is recorded nowhere.
    pub(crate) fn is_waited_out(&self, now: Timestamp, vote: &Vote) -> bool {
        if timestone_types::is_planted!(RefusesBelowAheadWatermark) {
            return false;
        }
        matches!(vote, Vote::No(reason) if reason.kind == AbortKind::TooOld && reason.at > now)
            && self.collected.below() > now
    }

    /// Something has to be carried out that the participant has not said itself.
    pub(crate) fn push(&mut self, output: Output) {
        debug_assert!(self.outputs.is_empty(), "the participant was not asked");
        self.outputs.push(output);
    }

    /// What is to be carried out.
    #[inline]
    pub(crate) fn outputs(&self) -> &[Output] {
        &self.outputs
    }

    /// Whether anything is to be carried out.
    #[inline]
    pub(crate) fn has_outputs(&self) -> bool {
        !self.outputs.is_empty()
    }

    /// Nothing waits to be carried out: between what comes from outside, and after it.
    #[inline]
    pub(crate) fn assert_carried_out(&self) {
        debug_assert!(!self.has_outputs(), "all that the participant wants is carried out");
    }

    /// The timestamp at which the participant wants writes put at once, if that is what it wants.
    #[inline]
    pub(crate) fn puts_at(&self) -> Option<Timestamp> {
        match self.outputs[..] {
            [Output::PutNow { commit, .. }] => Some(commit),
            ref others => {
                debug_assert!(
                    !others.iter().any(|one| matches!(one, Output::PutNow { .. })),
                    "it wants nothing else then"
                );
                None
            }
        }
    }

    /// Drops what was seen in [`Driver::outputs`] and is dealt with.
    #[inline]
    pub(crate) fn clear(&mut self) {
        debug_assert_eq!(self.outputs.len(), 1, "an output that is dealt with here comes alone");
        self.outputs.clear();
    }

    /// The read that the participant lets through, if that is all it wants: nearly every read is
    /// answered at once and alone.
    #[inline]
    pub(crate) fn take_read(&mut self, token: Token) -> Option<ReadNow> {
        debug_assert!(!self.outputs.is_empty(), "a read is let through, refused or parked");
        match self.outputs[..] {
            [Output::ReadNow { token: read, at, prepared_before, expiry }] if read == token => {
                self.outputs.clear();
                Some(ReadNow { at, prepared_before, expiry })
            }
            _ => None,
        }
    }

    /// Takes all outputs; the buffer comes back by [`Driver::give_back`].
    #[inline]
    pub(crate) fn take_outputs(&mut self) -> Vec<Output> {
        let spare = std::mem::take(&mut self.spare);
        debug_assert!(spare.is_empty(), "a buffer comes back empty");
        std::mem::replace(&mut self.outputs, spare)
    }

    /// The buffer of outputs that were carried out.
    #[inline]
    pub(crate) fn give_back(&mut self, buffer: Vec<Output>) {
        debug_assert!(buffer.is_empty(), "all outputs are carried out");
        self.spare = buffer;
    }

    /// A request is to be handed in again.
    pub(crate) fn note_again(&mut self, token: Token, wait: Wait) {
        debug_assert!(
            self.again.back().is_none_or(|&(last, _)| last != token),
            "a request is handed in again once"
        );
        self.again.push_back((token, wait));
    }

    /// Begins to hand requests in again; false if somebody has begun already. Whoever is handed in
    /// carries out its own outputs meanwhile, and must not begin to hand in others below that.
    #[inline]
    pub(crate) fn begin_handing_in(&mut self) -> bool {
        debug_assert!(self.outputs.is_empty(), "what came before is carried out");
        !self.again.is_empty() && !std::mem::replace(&mut self.handing_in, true)
    }

    /// The next one to hand in again. None: all are handed in.
    pub(crate) fn next_again(&mut self) -> Option<(Token, Wait)> {
        assert!(self.handing_in, "somebody has begun to hand in");
        let next = self.again.pop_front();
        self.handing_in = next.is_some();
        next
    }

    /// How far the physical clock is held back, if that is news.
    pub(crate) fn follow_clock(&mut self) -> Option<Duration> {
        debug_assert!(self.outputs.is_empty(), "what came before is carried out");
        let back = self.clock.held_back();
        let before = std::mem::replace(&mut self.held_back, back);
        (before != back).then_some(back)
    }

    /// How wrong the clock may be, if that matters and is news.
    pub(crate) fn follow_error(&mut self) -> Option<Duration> {
        debug_assert!(self.outputs.is_empty(), "what came before is carried out");
        if !self.has_replicas {
            return None;
        }
        let error = Some(error_of(&*self.clock));
        let before = std::mem::replace(&mut self.error, error);
        error.filter(|_| before != error)
    }

    /// Whether other replicas have what it records.
    pub(crate) const fn has_replicas(&self) -> bool {
        self.has_replicas
    }

    /// Whether the leases of the shard reach no further than needed.
    pub(crate) fn has_short_lease(&self, now: Timestamp) -> bool {
        self.participant.has_short_lease(now)
    }

    /// Whether what is there now may be told just now. With replicas another one may be primary
    /// already, so the clock is read once more: see [`Participant::check_present`].
    #[inline]
    pub(crate) fn check_present(&self) -> Result<(), Refusal> {
        if !self.has_replicas || timestone_types::is_planted!(UncheckedPresent) {
            return Ok(());
        }
        self.participant.check_present(self.clock.now(), error_of(&*self.clock))
    }
}

/// How wrong a clock may be. What one says for which nothing vouches guarantees nothing; a bound is
/// assumed then, or no replica could ever tell what is there now.
fn error_of(clock: &dyn Clock) -> Duration {
    let error = clock.error_bound();
    if error.synchronised { error.bound } else { error.bound.min(UNVOUCHED_CLOCK_ERROR) }
}
