//! Serving on after the log has failed for good.
//!
//! ```text
//!   reads below the bound, of what is latest ──▶ as ever     new writes, later snapshots ──▶ refused, nothing promised
//!   what was decided durably ──▶ as ever                     whatever would need a record ──▶ no answer
//! ```
//! What was on its way to the log may be durable or not: nobody is told either until a restart has
//! read the log. So a copy of such a prepare gets no answer, and neither does a question whose
//! answer must survive (Freeze, Decide).
//!
//! **Reads above the bound.** The bound cannot be renewed, and the next run's low-water
//! timestamp is the bound that is durable: its clock may have been set back meanwhile, so it cannot stand in. A snapshot
//! at or above the bound is refused. Who reads what is *latest* is served for ever, below the
//! bound: nothing is committed here any more, so the latest version then is the latest version now;
//! with replicas up to the lease, which is that bound, and no longer.
//!
//! **Termination asked by the coordinator itself** of what was never promised here is answered with
//! "aborted" although no record keeps it: no prepare is promised any more in this run, and the
//! coordinator sends none once it has that answer. At a shard with replicas another one may become
//! primary and promise it: there that is told to nobody.

use timestone_types::TxnOutcome;

use super::horizon::Watermark;
use super::input::{Input, TxnStatus};
use super::life::Lifecycle;
use super::output::Output;
use super::transactions::Knowledge;
use crate::Refusal;
use crate::validation::Validation;

/// Deals with what would need the log; false when the input can be taken as ever.
#[cold]
pub(super) fn answer_without_log<V: Validation>(
    life: &Lifecycle<V>,
    watermark: &Watermark,
    input: &Input<'_>,
    out: &mut Vec<Output>,
) -> bool {
    let txns = &life.txns;
    match *input {
        Input::Prepare(prepare) if prepare.leaves_no_trace() => return false,
        Input::Prepare(prepare) => match txns.known(prepare.txn) {
            Knowledge::Durably => return false,
            Knowledge::Perhaps => out.push(Output::Ignored { token: prepare.token }),
            Knowledge::Not => {
                out.push(Output::Refuse { token: prepare.token, refusal: Refusal::LogLost })
            }
        },
        Input::DecidedWriteSet { prepare } => out.push(Output::Ignored { token: prepare.token }),
        Input::Terminate { begin, .. } if begin < watermark.durable() => return false,
        Input::Terminate { token, txn, .. }
            if txns.known(txn) == Knowledge::Not && !life.config.has_replicas =>
        {
            let status = TxnStatus::Decided(TxnOutcome::Aborted);
            out.push(Output::StatusIs { token, txn, status });
        }
        // No answer is owed, unless it rests on what is durable already.
        Input::Decide { token, txn, .. }
        | Input::Freeze { token, txn, .. }
        | Input::Terminate { token, txn, .. } => {
            if txns.known(txn) == Knowledge::Durably {
                return false;
            }
            out.push(Output::Ignored { token });
        }
        _ => return false,
    }
    true
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use timestone_types::{ClientId, KeyHash, KeyspaceId, Sequence, ShardId, Timestamp, TxnId};

    use super::super::{
        Config, DecidedBy, LatestInStore, LogRange, Lookup, Participant, Prepare, ReadAt,
        Recovered, Token, Vote, Wait, WriteItem, WriteKind,
    };
    use super::*;

    const SHARDS: [ShardId; 2] = [ShardId::new(0), ShardId::new(1)];
    const SPACE: KeyspaceId = KeyspaceId::DEFAULT;

    fn at(millis: u64) -> Timestamp {
        Timestamp::ZERO.saturating_add(Duration::from_millis(millis))
    }

    fn txn(number: u64) -> TxnId {
        TxnId::new(ClientId::new(3), Sequence::new(number))
    }

    /// A participant that serves, all of whose records up to now are durable.
    struct Bench {
        participant: Participant,
        now: Timestamp,
    }

    impl Bench {
        fn new() -> Self {
            Self::with(Config::default())
        }

        fn with(config: Config) -> Self {
            let mut bench =
                Self { participant: Participant::new(SHARDS[0], config), now: at(100_000) };
            bench.step(Input::ClockError { bound: Duration::from_millis(3) });
            let bound = Recovered::ReadBound { bound: at(100_000), watermark: Timestamp::ZERO };
            bench.step(Input::Recovered(bound));
            bench.step(Input::RecoveryDone);
            bench.durable();
            bench.now = at(100_010);
            bench
        }

        fn step(&mut self, input: Input<'_>) -> Vec<Output> {
            let mut out = Vec::new();
            self.participant.step(self.now, input, &mut out);
            out
        }

        fn durable(&mut self) -> Vec<Output> {
            let through = self.participant.life.log.last();
            self.step(Input::Durable { range: LogRange::through(through) })
        }

        fn read(&mut self, token: u64, at: Timestamp) -> Vec<Output> {
            self.read_at(token, ReadAt::Latest(at))
        }

        fn read_at(&mut self, token: u64, at: ReadAt) -> Vec<Output> {
            let latest = LatestInStore::NONE;
            let (token, key) = (Token(token), KeyHash(7));
            self.step(Input::Read { token, keyspace: SPACE, key, at, wait: Wait::Yes, latest })
        }

        fn prepare(&mut self, token: u64, number: u64, key: u64, single: bool) -> Vec<Output> {
            let kind = WriteKind::Put;
            let writes = [WriteItem {
                keyspace: SPACE,
                key: KeyHash(key),
                kind,
                latest: LatestInStore::NONE,
                range_read: Timestamp::ZERO,
            }];
            let participants = if single { &SHARDS[..1] } else { &SHARDS[..] };
            self.step(Input::Prepare(Prepare {
                token: Token(token),
                txn: txn(number),
                begin: at(100_001),
                commit: at(100_005 + number),
                placed_by: at(100_005 + number),
                single,
                wait: Wait::Yes,
                participants,
                reads: &[],
                ranges: &[],
                writes: &writes,
                condition: Lookup::NotNeeded,
                has_room: true,
                at_once: false,
            }))
        }
    }

    #[test]
    fn no_read_is_served_past_the_durable_bound() {
        let mut bench = Bench::new();
        let bound = bench.participant.horizon.bound.durable();
        bench.now = bound.saturating_add(Duration::from_secs(5));
        assert!(
            matches!(bench.read(1, bound)[..], [Output::Parked { .. }, ..]),
            "waits for a bound above it"
        );
        let again = bench.step(Input::LogLost);
        assert_eq!(again, [Output::Again { token: Token(1), wait: Wait::Yes }]);
        // Below what the next run knows of, snapshots are served; at and above it, none.
        let last = bound.saturating_sub(Duration::from_nanos(1));
        assert!(
            matches!(bench.read_at(1, ReadAt::Snapshot(last))[..], [Output::ReadNow { at, .. }] if at == last)
        );
        for at in [bound, bench.now] {
            let refused = |token| [Output::Refuse { token, refusal: Refusal::LogLost }];
            assert_eq!(bench.read_at(2, ReadAt::Snapshot(at)), refused(Token(2)));
            let scan = Input::Scan { token: Token(3), keyspace: SPACE, at, wait: Wait::Yes };
            assert_eq!(bench.step(scan), refused(Token(3)));
            // What is latest is told for ever, below the bound.
            let latest = bench.read(4, at);
            assert!(
                matches!(latest[..], [Output::ReadNow { at, prepared_before: false, .. }] if at == last),
                "{latest:?}"
            );
        }
    }

    #[test]
    fn with_replicas_what_is_latest_is_told_up_to_the_lease_and_no_abort_at_all() {
        let mut bench = Bench::with(Config { has_replicas: true, ..Config::default() });
        let bound = bench.participant.horizon.bound.durable();
        bench.step(Input::LogLost);
        bench.now = bound.saturating_sub(Duration::from_millis(3)).previous();
        assert!(matches!(bench.read(1, at(100_001))[..], [Output::ReadNow { .. }]));
        bench.now = bench.now.next();
        let refused = [Output::Refuse { token: Token(2), refusal: Refusal::LogLost }];
        assert_eq!(bench.read(2, at(100_001)), refused);
        // Another replica may become primary, and promise what was not seen here.
        let (token, txn, begin) = (Token(3), txn(1), at(100_001));
        let ask = Input::Terminate { token, txn, begin, participants: &SHARDS };
        assert_eq!(bench.step(ask), [Output::Ignored { token }]);
    }

    #[test]
    fn new_writes_are_refused_and_what_may_be_durable_is_not_denied() {
        let mut bench = Bench::new();
        assert!(
            matches!(bench.prepare(1, 1, 10, true)[..], [Output::Log { .. }]),
            "on its way to the log"
        );
        bench.step(Input::LogLost);
        assert_eq!(
            bench.prepare(2, 2, 20, true),
            [Output::Refuse { token: Token(2), refusal: Refusal::LogLost }]
        );
        assert_eq!(bench.prepare(3, 1, 10, true), [Output::Ignored { token: Token(3) }]);
        assert!(!Refusal::LogLost.retryable());
        // Whoever was refused ends it so; of the other nothing is known.
        let ask = |bench: &mut Bench, number| {
            let participants = &SHARDS[..1];
            bench.step(Input::Terminate {
                token: Token(9),
                txn: txn(number),
                begin: at(100_001),
                participants,
            })
        };
        let status = TxnStatus::Decided(TxnOutcome::Aborted);
        assert_eq!(ask(&mut bench, 2), [Output::StatusIs { token: Token(9), txn: txn(2), status }]);
        assert_eq!(ask(&mut bench, 1), [Output::Ignored { token: Token(9) }]);
    }

    #[test]
    fn what_is_durable_is_told_and_what_would_have_to_be_is_not() {
        let mut bench = Bench::new();
        bench.prepare(1, 1, 10, true);
        let done = bench.durable();
        assert!(done.iter().any(|output| matches!(output, Output::Vote { vote: Vote::Yes, .. })));
        bench.step(Input::Applied { txn: txn(1) });
        bench.prepare(2, 2, 20, false);
        bench.durable();
        bench.step(Input::LogLost);
        assert!(matches!(
            bench.prepare(3, 1, 10, true)[..],
            [Output::Vote { vote: Vote::Yes, .. }]
        ));
        let outcome = TxnOutcome::Committed(at(100_007));
        let decided_by = DecidedBy::Client;
        let token = Token(4);
        assert_eq!(
            bench.step(Input::Decide { token, txn: txn(2), outcome, decided_by }),
            [Output::Ignored { token }]
        );
        for number in [2, 5] {
            let freeze = Input::Freeze { token, txn: txn(number), begin: at(100_001) };
            assert_eq!(
                bench.step(freeze),
                [Output::Ignored { token }],
                "an answer would have to survive"
            );
        }
        // Long afterwards nothing is written, and nobody is woken for it.
        for _ in 0..20 {
            bench.now = bench.participant.poll_deadline().unwrap().max(bench.now.next());
            let out = bench.step(Input::Tick);
            assert!(!out.iter().any(|output| matches!(output, Output::Log { .. })), "{out:?}");
        }
        assert!(bench.now > at(110_000), "deadlines are not in the past");
    }
}
