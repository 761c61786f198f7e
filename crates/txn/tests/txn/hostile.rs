//! What no client and no peer of ours sends: a participant stays sound all the same.

use std::time::Duration;

use timestone_txn::Refusal;
use timestone_txn::participant::{
    Config, DecidedBy, FrozenState, Input, LatestInStore, LogRange, LogSequence, Lookup, Output,
    Participant, Prepare, ReadAt, Recovered, Token, Vote, Wait, WriteItem, WriteKind,
};
use timestone_types::limits::MAX_CLOCK_LEAD;
use timestone_types::{
    ClientId, KeyHash, KeyspaceId, Sequence, ShardId, Timestamp, TxnId, TxnOutcome, Version,
};

const SHARDS: [ShardId; 2] = [ShardId::new(0), ShardId::new(1)];
const SPACE: KeyspaceId = KeyspaceId::DEFAULT;
const TOKEN: Token = Token(1);

fn at(millis: u64) -> Timestamp {
    Timestamp::ZERO.saturating_add(Duration::from_millis(millis))
}

fn txn(number: u64) -> TxnId {
    TxnId::new(ClientId::new(3), Sequence::new(number))
}

/// A participant that serves, and whose log is durable at once.
struct Bench {
    participant: Participant,
    now: Timestamp,
    /// The youngest version of the only key.
    latest: LatestInStore,
}

impl Bench {
    fn new() -> Self {
        let participant = Participant::new(SHARDS[0], Config::default());
        let mut bench = Self { participant, now: at(100_000), latest: LatestInStore::NONE };
        let (bound, watermark) = (at(100_000), Timestamp::ZERO);
        bench.step(Input::Recovered(Recovered::ReadBound { bound, watermark }));
        bench.step(Input::RecoveryDone);
        bench.now = at(100_010);
        bench
    }

    /// Everything that came of an input, of its records' durability, and of what was put.
    fn step(&mut self, input: Input<'_>) -> Vec<Output> {
        let mut out = Vec::new();
        self.participant.step(self.now, input, &mut out);
        let mut done = 0;
        while done < out.len() {
            let range = LogRange::through(LogSequence(u64::MAX));
            match out[done] {
                Output::Log { .. } => {
                    self.participant.step(self.now, Input::Durable { range }, &mut out)
                }
                Output::Apply { txn, commit } => {
                    let version = Version::new(commit, txn.client);
                    self.latest = LatestInStore { version, absent: false };
                    self.participant.step(self.now, Input::Applied { txn }, &mut out);
                }
                _ => {}
            }
            done += 1;
        }
        out
    }

    fn prepare(&mut self, commit: Timestamp, single: bool, writes: usize) -> Vec<Output> {
        let kind = WriteKind::Put;
        let write = WriteItem {
            keyspace: SPACE,
            key: KeyHash(7),
            kind,
            latest: self.latest,
            range_read: Timestamp::ZERO,
        };
        let writes = &[write][..writes];
        self.step(Input::Prepare(prepare(commit, single, writes)))
    }

    fn read_latest(&mut self) -> Vec<Output> {
        let (at, latest) = (ReadAt::Latest(self.now), self.latest);
        let (token, key) = (Token(9), KeyHash(7));
        self.step(Input::Read { token, keyspace: SPACE, key, at, wait: Wait::Yes, latest })
    }
}

fn prepare(commit: Timestamp, single: bool, writes: &[WriteItem]) -> Prepare<'_> {
    Prepare {
        token: TOKEN,
        txn: txn(1),
        begin: at(100_001),
        commit,
        placed_by: commit,
        single,
        wait: Wait::Yes,
        participants: &SHARDS,
        reads: &[],
        ranges: &[],
        writes,
        condition: Lookup::NotNeeded,
        has_room: true,
        at_once: false,
    }
}

/// Timestamps at which nothing can have committed.
fn impossible() -> [Timestamp; 3] {
    [Timestamp::ZERO, at(100_011).saturating_add(MAX_CLOCK_LEAD), Timestamp::MAX]
}

fn is_refused(out: &[Output]) -> bool {
    matches!(
        out,
        [Output::Refuse {
            token: TOKEN,
            refusal: Refusal::ClockAhead { .. } | Refusal::Contradiction
        }]
    )
}

fn is_read_now(out: &[Output]) -> bool {
    matches!(out, [Output::ReadNow { .. }])
}

#[test]
fn a_decision_at_an_impossible_timestamp_is_refused_and_the_promise_stays() {
    for commit in impossible() {
        let mut bench = Bench::new();
        bench.prepare(at(100_020), false, 1);
        let (outcome, decided_by) = (TxnOutcome::Committed(commit), DecidedBy::Client);
        let decide = Input::Decide { token: TOKEN, txn: txn(1), outcome, decided_by };
        let out = bench.step(decide);
        assert!(is_refused(&out), "{commit}: {out:?}");
        let decide = |bench: &mut Bench| {
            let outcome = TxnOutcome::Committed(at(100_020));
            bench.step(Input::Decide { token: TOKEN, txn: txn(1), outcome, decided_by })
        };
        let out = decide(&mut bench);
        assert!(out.iter().any(|one| matches!(one, Output::AckDecision { .. })), "{out:?}");
        assert!(is_read_now(&bench.read_latest()));
    }
}

#[test]
fn a_write_set_at_an_impossible_timestamp_is_refused() {
    for commit in impossible() {
        for writes in [0, 1] {
            let mut bench = Bench::new();
            let kind = WriteKind::Put;
            let write = WriteItem {
                keyspace: SPACE,
                key: KeyHash(7),
                kind,
                latest: bench.latest,
                range_read: Timestamp::ZERO,
            };
            let writes = &[write][..writes];
            let prepare = prepare(commit, false, writes);
            // The watermark is at zero, so that nothing counts as carried out.
            let out = bench.step(Input::DecidedWriteSet { prepare });
            assert!(is_refused(&out), "{commit}: {out:?}");
            assert!(is_read_now(&bench.read_latest()));
        }
    }
}

#[test]
fn a_peer_that_tells_an_impossible_timestamp_is_not_heard() {
    for commit in impossible() {
        let told =
            [FrozenState::Decided(TxnOutcome::Committed(commit)), FrozenState::Prepared(commit)];
        for state in told {
            let mut bench = Bench::new();
            bench.prepare(at(100_020), false, 1);
            let (from, txn) = (SHARDS[1], txn(1));
            let (begin, participants) = (at(100_001), &SHARDS[..]);
            bench.step(Input::Terminate { token: TOKEN, txn, begin, participants });
            assert_eq!(bench.step(Input::FreezeAnswer { from, txn, state }), [], "{commit}");
            let state = FrozenState::Prepared(at(100_020));
            let out = bench.step(Input::FreezeAnswer { from, txn, state });
            let applied = Output::Apply { txn, commit: at(100_020) };
            assert!(out.contains(&applied), "the right answer counts: {out:?}");
            assert!(is_read_now(&bench.read_latest()));
        }
    }
}

#[test]
fn a_later_round_that_says_it_is_alone_contradicts_the_first() {
    for writes in [0, 1] {
        let mut bench = Bench::new();
        let yes = |out: &[Output]| {
            out.iter().any(|one| matches!(one, Output::Vote { vote: Vote::Yes, .. }))
        };
        assert!(yes(&bench.prepare(at(100_020), false, writes)));
        let refused = Output::Refuse { token: TOKEN, refusal: Refusal::Contradiction };
        assert_eq!(bench.prepare(at(100_030), true, writes), [refused]);
        assert!(yes(&bench.prepare(at(100_040), false, writes)), "the promise may move still");
    }
}
