//! After a restart: what the log says, in any order, becomes marks, promises and outcomes again.
//!
//! Records are grouped by transaction; of several promises the latest counts. A promise of a
//! single-shard transaction *is* its commit. A decision says whom to tell of it: its promise may
//! have left the log before every participant had acknowledged. Whatever is committed is applied
//! again at the decided timestamp (a put that is there already changes nothing). Promises are
//! frozen: nobody knows whom their timestamp was told. The read bound becomes the floor, or the
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
//! - whoever committed there before it left a mark, or the floor, at that timestamp, and the
//!   promise would have been made above that;
//! - behind its abort in the run that promised, the abort is in the log before the other one's
//!   promise;
//! - in later runs the floor lies above every timestamp that was promised before.
//!
//! Where the version is gone (written over, deleted and collected), the promise waits for its
//! decision as if nothing were known.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use timestone_types::{
    AbortKind, AbortReason, ClientId, PreviousFound, Timestamp, TxnId, TxnOutcome, Version,
    limits as shared,
};

use super::Participant;
use super::expiry::ExpiryTime;
use super::input::{DecisionOrigin, Recovered, WriteItem};
use super::output::Output;
use super::table::{Fate, Kept, Phase};
use crate::ShardList;
use crate::planted::bugs;
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
pub(super) struct Recovery {
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
}

impl Recovery {
    pub(super) fn add(&mut self, record: Recovered<'_>) {
        match record {
            Recovered::Prepare { txn, begin, commit, single, found, participants, writes } => {
                self.bound = self.bound.max(commit);
                if self.promises.get(&txn).is_some_and(|known| known.commit >= commit) {
                    return;
                }
                let participants = ShardList::new(participants);
                let writes = writes.to_vec();
                self.promises
                    .insert(txn, Promise { begin, commit, single, found, participants, writes });
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
            Recovered::ClientLeft(client) => {
                self.left.insert(client);
            }
        }
    }
}

impl<V: Validation> Participant<V> {
    pub(super) fn recovery_done(
        &mut self,
        now: Timestamp,
        recovery: Recovery,
        out: &mut Vec<Output>,
    ) {
        let Recovery {
            promises,
            mut decisions,
            bound: durable,
            began,
            watermark,
            outage,
            left,
            certain,
        } = recovery;
        let bound = durable.max(began);
        #[cfg(feature = "planted-bugs")]
        if bugs().forget_found {
            for decided in decisions.values_mut() {
                decided.found = PreviousFound::Unasked;
                if let Fate::Aborted(reason) = &mut decided.fate {
                    *reason = AbortReason::of(AbortKind::Terminated);
                }
            }
        }
        if !bugs().forget_read_bound {
            self.bound.durable = if bugs().read_before_first_bound { bound } else { durable };
            self.bound.asked = bound;
        }
        self.watermark = watermark;
        self.pledged_watermark = watermark;
        // A session that lived held the watermark below its begin, and one that fell silent for
        // this long after its last word. So nothing that lies above can have been collected by the
        // last run, nor a delete that came after it.
        let older = if bugs().trust_old_decisions {
            Timestamp::ZERO
        } else {
            watermark.saturating_sub(shared::SESSION_TTL)
        };
        self.uncertain =
            certain.map_or(Timestamp::ZERO..Timestamp::ZERO, |certain| certain.max(older)..bound);
        self.uncertain_until = now.saturating_add(shared::SESSION_TTL);
        if !bugs().forget_expiry {
            self.expiry = ExpiryTime::after(durable, bound, now);
            if bugs().forget_told_expiry {
                self.expiry.told = Timestamp::ZERO;
            }
        }
        let served = if bugs().forget_read_bound { Timestamp::ZERO } else { bound };
        self.validation.begin(now, served);
        for (txn, promise) in promises {
            let decision = decisions.remove(&txn);
            self.recover_promise(now, txn, &promise, decision, out);
        }
        for (txn, Decided { begin, fate, found }) in decisions {
            #[cfg(feature = "planted-bugs")]
            let fate = match fate {
                Fate::Committed { at, .. } if bugs().recover_without_participants => {
                    Fate::Committed { at, participants: ShardList::default() }
                }
                fate => fate,
            };
            self.know_client_of_log(now, txn.client, begin);
            self.keep(Kept {
                txn,
                begin,
                fate,
                found,
                durable: true,
                asked: false,
                next: u32::MAX,
            });
        }
        if let Some(outage) = outage {
            self.wait_for_sessions(now, outage, &left);
        }
        self.ask_bound(now, now, out);
    }

    fn know_client_of_log(&mut self, now: Timestamp, client: ClientId, begin: Timestamp) {
        if !bugs().forget_past_clients {
            self.clients.entry_of_log(client, now);
        }
        self.know_client(now, client, begin);
    }

    fn recover_promise(
        &mut self,
        now: Timestamp,
        txn: TxnId,
        promise: &Promise,
        decision: Option<Decided>,
        out: &mut Vec<Output>,
    ) {
        let &Promise { begin, commit, single, found, .. } = promise;
        self.know_client_of_log(now, txn.client, begin);
        let decided = match decision.map(|decided| decided.fate) {
            Some(fate @ Fate::Aborted(_)) => {
                self.keep(Kept {
                    txn,
                    begin,
                    fate,
                    found,
                    durable: true,
                    asked: false,
                    next: u32::MAX,
                });
                return out.push(Output::ForgetPayload { txn });
            }
            Some(Fate::Committed { at, .. }) => Some(at),
            None if single => Some(commit),
            None if bugs().recover_without_prepared => return,
            None => None,
        };
        let slot = self.table.insert(txn, begin, commit, Phase::Prepared { durable: true });
        self.adopt(slot, single, promise.participants.as_slice(), &promise.writes);
        let record = self.table.record_mut(slot);
        (record.found, record.recovered) = (found, true);
        match decided {
            Some(at) => self.commit(slot, at, true, out),
            None if promise.is_applied(txn) && !bugs().overlook_applied => {
                // Of several keys some may not have come to the device before the crash: all are
                // put again.
                let outcome = TxnOutcome::Committed(commit);
                self.decide_in_flight(None, slot, outcome, DecisionOrigin::Participant, out);
            }
            None => {
                self.table.record_mut(slot).frozen = true;
                self.table.join_timeouts(slot, now.saturating_add(self.config.decision_timeout));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use timestone_types::{Sequence, ShardId};

    use super::super::{Config, Input};
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
        assert_eq!(participant.stats().kept, count as usize);
        let reporter = ClientId::new(1);
        for seconds in [12, 30] {
            let (now, watermark, acked) = (second(seconds), second(seconds), Sequence::ZERO);
            let report =
                Input::Report { client: reporter, watermark, acked, clock: now, closing: false };
            participant.step(now, report, &mut out);
            participant.step(now, Input::Tick, &mut out);
            let tickets = out.iter().filter_map(|one| match one {
                Output::Log { ticket, .. } => Some(*ticket),
                _ => None,
            });
            let through = tickets.max().unwrap();
            participant.step(now, Input::Durable { through }, &mut out);
        }
        assert!(participant.stats().clients < 10, "clients that keep nothing are forgotten");
        participant.stats().kept
    }

    #[test]
    fn outcomes_of_more_clients_than_are_let_in_are_forgotten() {
        assert_eq!(left_of_many_clients(Config::default()), 0);
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn outcomes_that_hang_at_no_client_are_noticed() {
        let bugs = crate::planted::PlantedBugs { forget_past_clients: true, ..Default::default() };
        crate::plant(Some(bugs));
        let left = left_of_many_clients(Config::default());
        crate::plant(None);
        assert!(left > 0, "the planted bug is found");
    }
}
