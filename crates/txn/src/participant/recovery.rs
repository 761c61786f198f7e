//! After a restart: what the log says, in any order, becomes promises and outcomes again.
//!
//! Records are grouped by transaction; of several promises the latest counts. A promise of a
//! single-shard transaction *is* its commit. A decision says whom to tell of it: its promise may
//! have left the log before every participant had acknowledged. Whatever is committed is applied
//! again at the decided timestamp (a put that is there already changes nothing). Promises are
//! frozen: nobody knows whom their timestamp was told. The read bound becomes the low-water timestamp,
//! or the
//! time at which the run begins if that is later; reads between the two wait until the first bound
//! of the run is durable, or the next run would not know of them. Nothing is served, and above all
//! no vote is cast, before the log was read to its end.
//!
//! A promise may be a leftover: a run without a log found it in an older one, carried its commit
//! out, and recorded nothing. Everybody may have forgotten the transaction on its word. If the
//! store has a version of a promised key at the promised timestamp and of the promise's client, the
//! promise is committed. For only commits reach the store, at a timestamp that nobody moves any
//! more; and another transaction of this client with that key and timestamp can not have committed,
//! unless the abort of this one is found here, too:
//! - while the promise stood, it held the key;
//! - whoever committed there before it left an access record, or the low-water timestamp, there, and the
//!   promise would have been made above that;
//! - behind its abort in the run that promised, the abort is in the log before the other one's
//!   promise;
//! - in later runs the low-water timestamp lies above everything that was promised before.
//!
//! Where the version is gone (written over, deleted and collected), the promise waits for its
//! decision as if nothing were known. If its peers have forgotten it, it is dropped, and what became
//! of it is told to nobody ([`super::transactions::Past`]).

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use timestone_types::{
    AbortKind, AbortReason, ClientId, PreviousFound, Timestamp, TxnId, TxnOutcome, Version,
    is_planted,
};

use super::decisions::Decision;
use super::expiry::ExpiryTime;
use super::horizon::Horizon;
use super::input::{DecidedBy, Recovered, WriteItem};
use super::life::Lifecycle;
use super::output::Output;
use super::table::{Fate, Kept, Phase, TxnPlace};
use super::transactions::Past;
use crate::ShardList;
use crate::validation::Validation;

#[derive(Debug)]
struct Promise {
    begin: Timestamp,
    commit: Timestamp,
    single: bool,
    found: PreviousFound,
    participants: ShardList,
    writes: Vec<WriteItem>,
}

impl Promise {
    /// Whether the store has something of it: it was committed.
    fn is_applied(&self, txn: TxnId) -> bool {
        let version = Version::new(self.commit, txn.client);
        self.writes.iter().any(|item| item.latest.version == version)
    }
}

#[derive(Debug)]
struct Decided {
    begin: Timestamp,
    fate: Fate,
    found: PreviousFound,
}

/// What the log has said so far.
#[derive(Debug, Default)]
pub(super) struct LogReplay {
    promises: BTreeMap<TxnId, Promise>,
    decisions: BTreeMap<TxnId, Decided>,
    /// What the next run will know of: it is durable.
    bound: Timestamp,
    /// Where this run begins.
    began: Timestamp,
    watermark: Timestamp,
    outage: Option<Duration>,
    left: BTreeSet<ClientId>,
    certain: Option<Timestamp>,
    unlogged: Timestamp,
}

impl LogReplay {
    pub(super) fn add(&mut self, record: Recovered<'_>) {
        let before = (self.bound, self.began, self.watermark);
        match record {
            Recovered::Prepare { txn, begin, commit, single, found, participants, writes } => {
                self.bound = self.bound.max(commit);
                if self.promises.get(&txn).is_none_or(|known| known.commit < commit) {
                    let participants = ShardList::new(participants);
                    let writes = writes.to_vec();
                    let promise = Promise { begin, commit, single, found, participants, writes };
                    self.promises.insert(txn, promise);
                }
            }
            Recovered::Decision { txn, begin, outcome, abort, found, met, participants } => {
                let fate = match outcome {
                    TxnOutcome::Committed(at) => {
                        self.bound = self.bound.max(at);
                        Fate::Committed { at, participants: ShardList::new(participants) }
                    }
                    // A condition is that of the only key of its write.
                    TxnOutcome::Aborted if abort == Some(AbortKind::Condition) => {
                        let reason = AbortReason::of(AbortKind::Condition);
                        Fate::Aborted(AbortReason { item: Some(0), at: met, ..reason })
                    }
                    TxnOutcome::Aborted => {
                        Fate::Aborted(AbortReason::of(abort.unwrap_or(AbortKind::Terminated)))
                    }
                };
                self.decisions.insert(txn, Decided { begin, fate, found });
            }
            Recovered::ReadBound { bound, watermark } => {
                self.bound = self.bound.max(bound);
                self.watermark = self.watermark.max(watermark);
            }
            Recovered::Began(at) => self.began = self.began.max(at),
            Recovered::Outage(lasted) => self.outage = Some(lasted),
            Recovered::CertainWatermark(at) => self.certain = Some(at),
            Recovered::UnloggedUntil(at) => self.unlogged = self.unlogged.max(at),
            Recovered::ClientLeft(client) => {
                self.left.insert(client);
            }
        }
        let has_risen = self.bound >= before.0 && self.began >= before.1;
        assert!(has_risen && self.watermark >= before.2, "what was served stays served");
    }
}

/// The sessions that are to be waited for: how long the outage was, and who is gone.
pub(super) type Sessions = (Duration, BTreeSet<ClientId>);

impl LogReplay {
    /// The watermark that was in force.
    pub(super) const fn watermark(&self) -> Timestamp {
        self.watermark
    }

    /// Begins a run with what the log has said; tells whether sessions are to be waited for.
    pub(super) fn restore<V: Validation>(
        mut self,
        now: Timestamp,
        horizon: &mut Horizon,
        life: &mut Lifecycle<V>,
        out: &mut Vec<Output>,
    ) -> Option<Sessions> {
        assert!(
            life.txns.table.in_flight() == 0 || is_planted!(ServesInRecovery),
            "a run begins with what the log has said, and nothing else"
        );
        self.restore_horizon(now, horizon);
        let bound = self.bound.max(self.began);
        let served = if is_planted!(ForgottenReadBound) { Timestamp::ZERO } else { bound };
        life.validation.begin(now, served);
        life.txns.past = Past {
            remembers_from: if life.config.has_replicas { bound } else { Timestamp::ZERO },
            leftovers_below: self.unlogged,
        };
        if is_planted!(ForgottenFound) {
            self.forget_found();
        }
        for (txn, promise) in core::mem::take(&mut self.promises) {
            let decision = self.decisions.remove(&txn);
            restore_promise(now, life, txn, &promise, decision, out);
        }
        for (txn, Decided { begin, mut fate, found }) in self.decisions {
            if let Fate::Committed { participants, .. } = &mut fate
                && is_planted!(LostParticipants)
            {
                *participants = ShardList::default();
            }
            life.txns.know_client_of_log(now, txn.client, begin);
            life.txns.keep(Kept::recovered(txn, begin, fate, found));
        }
        let left = self.left;
        self.outage.map(|outage| (outage, left))
    }

    fn restore_horizon(&self, now: Timestamp, horizon: &mut Horizon) {
        let (durable, bound) = (self.bound, self.bound.max(self.began));
        if !is_planted!(ForgottenReadBound) {
            let known = if is_planted!(ReadBeforeFirstBound) { bound } else { durable };
            horizon.bound.begin(known, bound);
        }
        horizon.watermark.begin(now, self.watermark, self.certain, bound);
        horizon.present.begin(durable);
        if !is_planted!(ForgottenExpiry) {
            horizon.expiry = ExpiryTime::after(durable, bound, now);
        }
        horizon.assert_sound();
    }

    /// Planted: nobody knows what single-key writes found, nor why one was refused.
    fn forget_found(&mut self) {
        assert!(is_planted!(ForgottenFound), "a repeat is told what the first copy found");
        for decided in self.decisions.values_mut() {
            decided.found = PreviousFound::Unasked;
            if let Fate::Aborted(reason) = &mut decided.fate {
                *reason = AbortReason::of(AbortKind::Terminated);
            }
        }
    }
}

fn restore_promise<V: Validation>(
    now: Timestamp,
    life: &mut Lifecycle<V>,
    txn: TxnId,
    promise: &Promise,
    decision: Option<Decided>,
    out: &mut Vec<Output>,
) {
    let &Promise { begin, commit, single, found, .. } = promise;
    life.txns.know_client_of_log(now, txn.client, begin);
    let decided = match decision.map(|decided| decided.fate) {
        Some(fate @ Fate::Aborted(_)) => {
            life.txns.keep(Kept::recovered(txn, begin, fate, found));
            return out.push(Output::ForgetPayload { txn });
        }
        Some(Fate::Committed { at, .. }) => Some(at),
        None if single => Some(commit),
        None if is_planted!(LostPromise) => return,
        None => None,
    };
    assert!(life.txns.table.find(txn).is_none(), "a promise is restored once");
    let slot = life.txns.table.insert(txn, begin, commit, Phase::Prepared { durable: true });
    life.adopt(slot, single, promise.participants.as_slice(), &promise.writes);
    let record = life.txns.table.record_mut(slot);
    (record.found, record.recovered) = (found, true);
    match decided {
        Some(at) => life.commit(slot, at, true, out),
        None if promise.is_applied(txn) && !is_planted!(RevivedPromise | OverlookedPut) => {
            // Of several keys some may not have come to the device before the crash: all are put
            // again.
            let (outcome, decided_by) = (TxnOutcome::Committed(commit), DecidedBy::Participant);
            let decision = Decision { token: None, txn, outcome, decided_by };
            life.decide(TxnPlace::Flight(slot), decision, out);
        }
        None => {
            life.txns.table.record_mut(slot).frozen = true;
            let by = now.saturating_add(life.config.decision_timeout);
            life.txns.table.join_timeouts(slot, by);
        }
    }
}

#[cfg(test)]
mod tests {
    use timestone_types::{Sequence, ShardId};

    use super::super::{Config, Input, LogRange, Participant};
    use super::*;
    use crate::limits::MAX_CLIENTS;

    /// How many outcomes are left when the watermark has passed those of a log with more clients
    /// than are let in at a time.
    fn left_of_many_clients(config: Config) -> usize {
        let second = |n: u64| Timestamp::from_nanos(n * 1_000_000_000);
        let (mut participant, mut out) = (Participant::new(ShardId::new(1), config), Vec::new());
        let count = MAX_CLIENTS as u32 + 10;
        for client in 1..=count {
            let txn = TxnId::new(ClientId::new(client), Sequence::new(1));
            let (outcome, abort) = (TxnOutcome::Aborted, Some(AbortKind::Terminated));
            let (found, met, participants) = (PreviousFound::Unasked, Timestamp::ZERO, &[][..]);
            let record = Recovered::Decision {
                txn,
                begin: second(1),
                outcome,
                abort,
                found,
                met,
                participants,
            };
            participant.step(second(10), Input::Recovered(record), &mut out);
        }
        participant.step(second(10), Input::RecoveryDone, &mut out);
        assert_eq!(participant.view(second(10)).kept, count as usize);
        let reporter = ClientId::new(1);
        for seconds in [12, 30] {
            let (now, watermark, acked) = (second(seconds), second(seconds), Sequence::ZERO);
            let report =
                Input::Report { client: reporter, watermark, acked, clock: now, closing: false };
            participant.step(now, report, &mut out);
            participant.step(now, Input::Tick, &mut out);
            let sequences = out.iter().filter_map(|one| match one {
                Output::Log { sequence, .. } => Some(*sequence),
                _ => None,
            });
            let through = sequences.max().unwrap();
            participant.step(now, Input::Durable { range: LogRange::through(through) }, &mut out);
        }
        assert!(
            participant.view(second(30)).clients < 10,
            "clients that keep nothing are forgotten"
        );
        participant.view(second(30)).kept
    }

    #[test]
    fn outcomes_of_more_clients_than_are_let_in_are_forgotten() {
        assert_eq!(left_of_many_clients(Config::default()), 0);
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn outcomes_that_hang_at_no_client_are_noticed() {
        let bug = timestone_types::planted::Bug::ForgottenPastClients;
        let left = timestone_types::planted::with(bug, || left_of_many_clients(Config::default()));
        assert!(left > 0, "the planted bug is found");
    }
}
