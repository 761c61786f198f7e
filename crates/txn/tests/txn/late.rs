//! What comes late for a coordinator, or when its time is up: it tells the application once.

use std::time::Duration;

use timestone_txn::Refusal;
use timestone_txn::coordinator::{self, CommitKind, CommitResult, Coordinator};
use timestone_types::{ClientId, Sequence, ShardId, Timestamp, TxnId};

const SHARDS: [ShardId; 2] = [ShardId::new(0), ShardId::new(1)];

fn at(millis: u64) -> Timestamp {
    Timestamp::ZERO.saturating_add(Duration::from_millis(millis))
}

/// A coordinator of a transaction over two shards, which has begun.
fn coordinator(kind: CommitKind, deadline: Timestamp) -> Coordinator {
    let (mut coordinator, mut out) = (Coordinator::new(), Vec::new());
    let commit = coordinator::Input::Commit {
        txn: TxnId::new(ClientId::new(3), Sequence::new(1)),
        begin: at(1000),
        commit: at(1010),
        participants: &SHARDS,
        kind,
        external_wait: false,
        error_bound: Duration::ZERO,
        deadline,
    };
    coordinator.step(at(1010), commit, &mut out);
    coordinator
}

#[test]
fn a_strict_read_whose_deadline_passes_before_all_votes_is_told_once() {
    let mut coordinator = coordinator(CommitKind::StrictReadOnly, at(1020));
    let mut out = Vec::new();
    let error_bound = Duration::ZERO;
    coordinator.step(at(1020), coordinator::Input::Tick { error_bound }, &mut out);
    assert!(
        matches!(
            out[..],
            [
                coordinator::Output::Finished(CommitResult::Aborted { .. }),
                coordinator::Output::Done
            ]
        ),
        "{out:?}"
    );
    assert!(coordinator.is_idle() && coordinator.next_deadline().is_none());
}

#[test]
fn what_comes_late_for_a_coordinator_that_was_reset_changes_nothing() {
    let mut coordinator = coordinator(CommitKind::ReadWrite, at(2000));
    coordinator.reset();
    assert!(coordinator.acknowledgements().next().is_none());
    assert!(coordinator.participants().is_empty());
    let from = SHARDS[1];
    let mut out = Vec::new();
    for late in [
        coordinator::Input::Refused { from, refusal: Refusal::Busy },
        coordinator::Input::Acked { from },
        coordinator::Input::WriteSetWanted { from },
        coordinator::Input::Disconnected { from },
    ] {
        coordinator.step(at(1020), late, &mut out);
    }
    assert!(out.is_empty(), "{out:?}");
}
