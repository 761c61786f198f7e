//! A transaction of one shard, where nothing has to become durable first: it is validated, put and
//! committed in one go, and holds no key in between.
//!
//! ```text
//!   Prepare { at_once } ──▶ PutNow ─┬─ put ────────────▶ PutDone ──▶ Vote Yes, kept (committed)
//!                                   └─ no room for it ─▶ Prepare, not at once ──▶ an ordinary promise
//! ```
//! What is known afterwards is what an ordinary promise leaves that was durable and applied at
//! once. Invariants: nothing is noted before the put is done; nothing but its answer comes between
//! `PutNow` and the put.

use timestone_types::{Timestamp, TxnId, Version, is_planted};

use super::input::{Prepare, Token, Vote, WriteKind};
use super::life::Lifecycle;
use super::output::Output;
use super::promises::vote;
use super::table::{Fate, Kept};
use crate::ShardList;
use crate::validation::Validation;

/// The one that was told to put its writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PutsNow {
    token: Token,
    txn: TxnId,
    commit: Timestamp,
}

impl PutsNow {
    fn of(prepare: &Prepare<'_>) -> Self {
        Self { token: prepare.token, txn: prepare.txn, commit: prepare.commit }
    }
}

impl<V: Validation> Lifecycle<V> {
    /// Whether a prepare that may be promised can be committed in one go. A fence holds more than
    /// keys.
    pub(super) fn may_put_now(prepare: &Prepare<'_>) -> bool {
        let holds_keys = |write: &super::WriteItem| write.kind != WriteKind::Fence;
        prepare.at_once && prepare.single && prepare.writes.iter().all(holds_keys)
    }

    /// A prepare that may be promised: its writes are put first.
    pub(super) fn put_now(&mut self, prepare: &Prepare<'_>, out: &mut Vec<Output>) {
        debug_assert!(!prepare.leaves_no_trace(), "there is something to put");
        self.puts_now = Some(PutsNow::of(prepare));
        let Prepare { token, txn, commit, .. } = *prepare;
        out.push(Output::PutNow { token, txn, commit });
    }

    /// Its writes are put.
    pub(super) fn put_done(&mut self, prepare: &Prepare<'_>, out: &mut Vec<Output>) {
        let asked = self.puts_now.take();
        assert!(asked == Some(PutsNow::of(prepare)), "it was told to put its writes just now");
        let Prepare { txn, begin, commit, .. } = *prepare;
        if !is_planted!(UnnotedPut) {
            self.validation.commit_at_once(prepare, Version::new(commit, txn.client));
        }
        let fate = Fate::Committed { at: commit, participants: ShardList::default() };
        self.txns.keep(Kept::durable(txn, begin, fate, prepare.found()));
        vote(prepare, Vote::Yes, out);
    }
}

#[cfg(test)]
mod tests {
    use timestone_types::{ClientId, KeyHash, KeyspaceId, Sequence, ShardId};

    use super::super::input::{Input, LatestInStore, Lookup, ReadAt, ReadItem, Wait, WriteItem};
    use super::super::{Config, Participant};
    use super::*;

    const SHARD: ShardId = ShardId::ZERO;
    const KEYSPACE: KeyspaceId = KeyspaceId::DEFAULT;

    fn at(nanos: u64) -> Timestamp {
        Timestamp::from_nanos(1_000_000_000_000 + nanos)
    }

    /// A participant whose clock shows 100, and its outputs.
    struct Bench {
        participant: Participant,
        out: Vec<Output>,
    }

    impl Bench {
        fn new() -> Self {
            let mut participant = Participant::new(SHARD, Config::default());
            let mut out = Vec::new();
            participant.step(at(0), Input::RecoveryDone, &mut out);
            participant.step(at(0), Input::Tick, &mut out);
            let last = out.iter().filter_map(|one| match one {
                Output::Log { sequence, .. } => Some(*sequence),
                _ => None,
            });
            let through = last.max().expect("a bound is logged");
            let range = super::super::LogRange::through(through);
            participant.step(at(0), Input::Durable { range }, &mut out);
            Self { participant, out: Vec::new() }
        }

        fn step(&mut self, input: Input<'_>) -> Vec<Output> {
            self.participant.step(at(100), input, &mut self.out);
            core::mem::take(&mut self.out)
        }
    }

    fn txn(sequence: u64) -> TxnId {
        TxnId::new(ClientId::new(1), Sequence::new(sequence))
    }

    fn write(key: u64) -> WriteItem {
        let (key, kind) = (KeyHash(key), WriteKind::Put);
        WriteItem {
            keyspace: KEYSPACE,
            key,
            kind,
            latest: LatestInStore::NONE,
            range_read: Timestamp::ZERO,
        }
    }

    fn prepare<'a>(
        (sequence, commit): (u64, u64),
        reads: &'a [ReadItem],
        writes: &'a [WriteItem],
        at_once: bool,
    ) -> Prepare<'a> {
        Prepare {
            token: Token(sequence),
            txn: txn(sequence),
            begin: at(1),
            commit: at(commit),
            placed_by: at(commit),
            single: true,
            wait: Wait::Yes,
            participants: &[SHARD],
            reads,
            ranges: &[],
            writes,
            condition: Lookup::NotNeeded,
            has_room: true,
            at_once,
        }
    }

    fn put_now(sequence: u64, commit: u64) -> [Output; 1] {
        [Output::PutNow { token: Token(sequence), txn: txn(sequence), commit: at(commit) }]
    }

    fn voted(sequence: u64, commit: u64, vote: Vote) -> [Output; 1] {
        [Output::Vote { token: Token(sequence), txn: txn(sequence), commit: at(commit), vote }]
    }

    #[test]
    fn what_is_put_at_once_stands_as_if_it_had_been_promised() {
        let mut bench = Bench::new();
        let writes = [write(7)];
        let first = prepare((1, 10), &[], &writes, true);
        assert_eq!(bench.step(Input::Prepare(first)), put_now(1, 10));
        assert_eq!(bench.step(Input::PutDone { prepare: first }), voted(1, 10, Vote::Yes));
        // A repeat gets the same answer, whatever the store says of the key.
        assert_eq!(bench.step(Input::Prepare(first)), voted(1, 10, Vote::Yes));
        // Nothing is written at or below it: the store knows of it.
        let latest =
            LatestInStore { version: Version::new(at(10), ClientId::new(1)), absent: false };
        let writes = [WriteItem { latest, ..write(7) }];
        let second = prepare((2, 10), &[], &writes, true);
        let later = Vote::Later(at(10).next());
        assert_eq!(bench.step(Input::Prepare(second)), voted(2, 10, later));
        assert_eq!(
            bench.step(Input::Prepare(prepare((2, 11), &[], &writes, true))),
            put_now(2, 11)
        );
    }

    #[test]
    fn what_found_no_room_is_promised_and_holds_its_keys() {
        let mut bench = Bench::new();
        let writes = [write(7)];
        assert_eq!(
            bench.step(Input::Prepare(prepare((1, 10), &[], &writes, true))),
            put_now(1, 10)
        );
        let promised = bench.step(Input::Prepare(prepare((1, 10), &[], &writes, false)));
        assert!(matches!(promised[..], [Output::Log { .. }]), "{promised:?}");
        let read = Input::Read {
            token: Token(3),
            keyspace: KEYSPACE,
            key: KeyHash(7),
            at: ReadAt::Latest(at(100)),
            wait: Wait::Yes,
            latest: LatestInStore::NONE,
        };
        assert_eq!(bench.step(read), [Output::Parked { token: Token(3) }]);
    }

    #[test]
    fn what_it_read_is_protected() {
        let mut bench = Bench::new();
        let read = ReadItem {
            keyspace: KEYSPACE,
            key: KeyHash(8),
            version: Version::ZERO,
            absent: true,
            expires_at: timestone_types::Expiry::NEVER,
            latest: LatestInStore::NONE,
        };
        let (reads, writes) = ([read], [write(7)]);
        let first = prepare((1, 20), &reads, &writes, true);
        assert_eq!(bench.step(Input::Prepare(first)), put_now(1, 20));
        bench.step(Input::PutDone { prepare: first });
        let below = [write(8)];
        let second = bench.step(Input::Prepare(prepare((2, 20), &[], &below, true)));
        assert_eq!(second, voted(2, 20, Vote::Later(at(20).next())));
    }
}
