//! Transactions on a fair network: reads, local commits, one phase, two phases, conflicts, later
//! timestamps, limits.

use std::time::Duration;

use timestone_session::{
    Condition, KeyName, LimitError, RequestOptions, SessionError, Step, TxnOptions, TxnStatus,
};
use timestone_types::{
    AbortKind, ClientId, Expiry, KeyspaceId, Sequence, Timestamp, TxnId, Version, limits,
};
use timestone_wire::{ErrorCode, Kind, RangeEntry};

use crate::Requests;
use crate::world::{Application, Outcome, SPACE, World, name, pending, world};
use timestone_testkit::BEGIN;

const OTHER: ClientId = ClientId::new(99);

fn other_txn() -> TxnId {
    TxnId::new(OTHER, Sequence::new(1))
}

#[test]
fn a_read_only_transaction_commits_without_a_message_and_reads_repeatably() {
    let mut world = world(2);
    let (a, b) = (world.key_on(0, 0), world.key_on(1, 0));
    let version = Version::new(Timestamp::from_nanos(5), OTHER);
    world.shards[0].written_by_other(&a, version, b"one");
    let session = world.session();
    let txn = world.begin(session);
    assert_eq!(world.get(txn, &a), Outcome::Value(Some(b"one".to_vec()), version));
    assert_eq!(world.get(txn, &b), Outcome::Value(None, Version::ZERO));
    world.shards[0].written_by_other(&a, Version::new(world.now, OTHER), b"two");
    assert_eq!(world.value(txn, &a), Some(b"one".to_vec()));
    assert_eq!(world.shards[0].seen(Kind::Get), 1, "the second read is answered from the first");
    assert_eq!(world.committed(txn), BEGIN);
    assert_eq!(world.shards[0].seen(Kind::Prepare) + world.shards[1].seen(Kind::Prepare), 0);
    assert_eq!(world.host.engine.stats().committed_locally, 1);
    assert_eq!(world.commit(txn), Outcome::Failed(SessionError::NoTransaction));
}

#[test]
fn a_transaction_sees_its_own_writes_and_nobody_else_does_before_commit() {
    let mut world = world(1);
    let session = world.session();
    let txn = world.begin(session);
    world.put(txn, b"k", b"v");
    assert_eq!(world.value(txn, b"k"), Some(b"v".to_vec()));
    world.host.engine.write(world.now, txn, name(b"k"), None, Expiry::NEVER).unwrap();
    assert_eq!(world.value(txn, b"k"), None);
    world.put(txn, b"k", b"w");
    assert_eq!(world.shards[0].seen(Kind::Get), 0);
    assert_eq!(world.shards[0].latest(b"k"), None);
    world.committed(txn);
    assert_eq!(world.shards[0].latest(b"k"), Some(&b"w"[..]));
    let next = world.begin(session);
    assert_eq!(world.value(next, b"k"), Some(b"w".to_vec()));
}

#[test]
fn what_a_transaction_writes_as_expired_is_absent_for_itself_too() {
    let mut world = world(1);
    world.shards[0].written_by_other(b"k", Version::new(Timestamp::from_nanos(5), OTHER), b"old");
    let session = world.session();
    let txn = world.begin(session);
    let later = world.now.saturating_add(Duration::from_secs(1));
    for (expires_at, value) in
        [(Timestamp::from_nanos(1), None), (BEGIN, None), (later, Some(b"v".to_vec()))]
    {
        let expiry = Expiry::at(expires_at);
        world.host.engine.write(world.now, txn, name(b"k"), Some(b"v"), expiry).unwrap();
        assert_eq!(world.value(txn, b"k"), value, "{expires_at:?}");
    }
    world.host.engine.write(world.now, txn, name(b"k"), Some(b"v"), Expiry::at(BEGIN)).unwrap();
    world.committed(txn);
    assert_eq!(world.shards[0].latest(b"k"), None);
}

#[test]
fn one_shard_takes_one_phase_and_several_take_two() {
    let mut world = world(3);
    let keys: Vec<_> = (0..3).map(|shard| world.key_on(shard, 0)).collect();
    let session = world.session();
    let one = world.begin(session);
    world.put(one, &keys[0], b"1");
    let first = world.committed(one);
    assert_eq!((world.shards[0].seen(Kind::Prepare), world.shards[0].seen(Kind::Decide)), (1, 0));
    assert!(first > BEGIN);
    let many = world.begin(session);
    assert_eq!(world.value(many, &keys[0]), Some(b"1".to_vec()));
    world.put(many, &keys[1], b"2");
    world.put(many, &keys[2], b"3");
    let second = world.committed(many);
    assert!(second > first);
    world.pass(Duration::from_millis(10));
    for shard in 0..3 {
        assert_eq!(world.shards[shard].seen(Kind::Decide), 1, "shard {shard} was read or written");
        assert!(world.shards[shard].is_settled());
    }
    assert_eq!(world.shards[2].latest_version(&keys[2]), Version::new(second, ClientId::new(3)));
    assert_eq!(world.host.engine.unresolved(), 0);
}

#[test]
fn a_conflict_names_the_key_the_versions_and_the_other() {
    let mut world = world(2);
    let (a, b) = (world.key_on(0, 0), world.key_on(1, 0));
    let (old, new) = (
        Version::new(Timestamp::from_nanos(5), OTHER),
        Version::new(BEGIN.saturating_add(Duration::from_millis(300)), OTHER),
    );
    world.shards[1].written_by_other(&b, old, b"old");
    let session = world.session();
    let txn = world.begin(session);
    assert_eq!(world.value(txn, &b), Some(b"old".to_vec()));
    world.put(txn, &a, b"x");
    world.shards[1].written_by_other(&b, new, b"new");
    let Outcome::Aborted { reason, key, read, .. } = world.commit(txn) else {
        panic!("a stale read commits")
    };
    assert_eq!((reason.kind, reason.at), (AbortKind::ReadConflict, new.timestamp));
    assert_eq!((key, read), (Some(b.clone()), Some(old)));
    world.pass(Duration::from_millis(10));
    assert!(world.shards[0].is_settled() && world.shards[0].latest(&a).is_none());
    let again = world.begin(session);
    assert!(
        world.host.engine.begin_timestamp(again).unwrap() > new.timestamp,
        "the retry begins above what it collided with"
    );

    world.shards[0].prepared_by_other(&a, Some((other_txn(), world.now)));
    world.put(again, &b, b"y");
    world.put(again, &a, b"y");
    let Outcome::Aborted { reason, key, .. } = world.commit(again) else {
        panic!("a prepared key is overwritten")
    };
    assert_eq!(
        (reason.kind, reason.other, key),
        (AbortKind::WriteConflict, Some(other_txn()), Some(a))
    );
}

#[test]
fn a_timestamp_that_is_too_low_is_raised_without_running_again() {
    let mut world = world(2);
    let (a, b) = (world.key_on(0, 0), world.key_on(1, 0));
    let session = world.session();
    let txn = world.begin(session);
    world.put(txn, &a, b"1");
    world.put(txn, &b, b"1");
    let ahead = world.now.saturating_add(Duration::from_millis(300));
    world.shards[1].read_by_other(&b, ahead);
    let at = world.committed(txn);
    assert!(at > ahead && at < ahead.saturating_add(Duration::from_millis(1)));
    assert_eq!(world.host.engine.stats().later_rounds, 1);
    let next = world.begin(session);
    assert!(
        world.host.engine.begin_timestamp(next).unwrap() > at,
        "a session reads its own writes though its clock is behind them"
    );
    assert_eq!(world.value(next, &a), Some(b"1".to_vec()));
}

#[test]
fn a_read_waits_for_a_prepared_write_and_an_undecided_one_forbids_the_local_commit() {
    let mut world = world(1);
    world.shards[0].prepared_by_other(b"k", Some((other_txn(), BEGIN)));
    let session = world.session();
    let txn = world.begin(session);
    let op = world.op();
    assert!(matches!(world.host.engine.get(world.now, txn, SPACE, b"k", op), Ok(Step::Pending(_))));
    world.pass(Duration::from_millis(10));
    assert!(world.host.done.is_empty(), "the read waits at the primary");
    assert_eq!(world.wait(op), Outcome::Value(None, Version::ZERO));
    world.shards[0].prepared_by_other(b"k", None);
    world.committed(txn);
    assert_eq!(
        world.shards[0].seen(Kind::Prepare),
        1,
        "validated at the shard, since the read was uncertain"
    );

    world.shards[0].prepared_by_other(b"k", Some((other_txn(), BEGIN)));
    let options = TxnOptions { snapshot_at: Some(BEGIN), ..TxnOptions::default() };
    let past = world.begin_with(session, options);
    assert_eq!(world.value(past, b"k"), None);
    let Outcome::Aborted { reason, key, .. } = world.commit(past) else {
        panic!("an uncertain snapshot commits")
    };
    assert_eq!((reason.kind, key), (AbortKind::Prepared, Some(b"k".to_vec())));
}

#[test]
fn a_strict_read_only_transaction_is_validated_everywhere_and_leaves_nothing() {
    let mut world = world(2);
    let (a, b) = (world.key_on(0, 0), world.key_on(1, 0));
    let session = world.session();
    let strict = TxnOptions { strict: true, ..TxnOptions::default() };
    let txn = world.begin_with(session, strict);
    world.value(txn, &a);
    world.value(txn, &b);
    assert!(matches!(world.commit(txn), Outcome::Committed(..)));
    assert_eq!((world.shards[0].seen(Kind::Prepare), world.shards[1].seen(Kind::Prepare)), (1, 1));
    let stale = world.begin_with(session, strict);
    world.value(stale, &a);
    world.shards[0].written_by_other(&a, Version::new(world.now, OTHER), b"new");
    let Outcome::Aborted { reason, key, .. } = world.commit(stale) else {
        panic!("a stale strict read commits")
    };
    assert_eq!((reason.kind, key), (AbortKind::ReadConflict, Some(a)));
    world.pass(Duration::from_millis(10));
    assert_eq!(world.host.engine.unresolved(), 0);
}

#[test]
fn a_snapshot_reads_the_past_and_refuses_writes_and_the_future() {
    let mut world = world(1);
    let at = Timestamp::from_nanos;
    world.shards[0].written_by_other(b"k", Version::new(at(10), OTHER), b"ten");
    world.shards[0].written_by_other(b"k", Version::new(at(20), OTHER), b"twenty");
    let session = world.session();
    let past = world
        .begin_with(session, TxnOptions { snapshot_at: Some(at(15)), ..TxnOptions::default() });
    assert_eq!(world.value(past, b"k"), Some(b"ten".to_vec()));
    assert_eq!(
        world.host.engine.write(world.now, past, name(b"k"), Some(b""), Expiry::NEVER),
        Err(SessionError::ReadOnly)
    );
    assert_eq!(world.committed(past), at(15));
    let future = TxnOptions {
        snapshot_at: Some(world.now.saturating_add(Duration::from_secs(1))),
        ..TxnOptions::default()
    };
    assert!(matches!(
        world.host.engine.begin(world.now, session, future),
        Err(SessionError::SnapshotInFuture { .. })
    ));
}

/// Whether a snapshot of the past commits where clocks are waited for.
fn snapshot_commits_beside_waits() -> bool {
    let mut world = world(1);
    world.shards[0].written_by_other(b"k", Version::new(Timestamp::from_nanos(10), OTHER), b"ten");
    let session = world.session();
    let at = Timestamp::from_nanos(15);
    let past = TxnOptions { snapshot_at: Some(at), external_wait: true, ..TxnOptions::default() };
    let txn = world.begin_with(session, past);
    assert_eq!(world.value(txn, b"k"), Some(b"ten".to_vec()));
    matches!(world.commit(txn), Outcome::Committed(..))
}

#[test]
fn a_snapshot_commits_where_clocks_are_waited_for() {
    assert!(snapshot_commits_beside_waits());
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_snapshot_that_has_to_be_the_latest_state_is_found() {
    use timestone_types::planted::{Bug, with};
    assert!(!with(Bug::RefusesSnapshots, snapshot_commits_beside_waits));
}

#[test]
fn an_acknowledgement_waits_for_the_clocks_error_bound_when_asked_to() {
    let mut world = world(1);
    world.host.engine.set_clock_error(world.now, Duration::from_millis(7));
    let session = world.session();
    let txn =
        world.begin_with(session, TxnOptions { external_wait: true, ..TxnOptions::default() });
    world.put(txn, b"k", b"v");
    let begun = world.now;
    let at = world.committed(txn);
    // Not behind what others were told before, whose clocks may be ahead by as much as this one is
    // behind.
    assert!(at >= begun.saturating_add(Duration::from_millis(7)), "{at}, asked for at {begun}");
    assert!(
        world.now > at.saturating_add(Duration::from_millis(7)),
        "acknowledged at {}, committed at {at}",
        world.now
    );
    // The bound was said once, and has grown by a tenth of the time since.
    assert!(world.now < at.saturating_add(Duration::from_millis(10)));
}

#[test]
fn limits_are_told_at_put_and_leave_the_transaction_usable() {
    let mut world = world(1);
    let session = world.session();
    let txn = world.begin(session);
    let long = vec![0; limits::MAX_VALUE_BYTES + 1];
    let put = |world: &mut World, key: &[u8], value: &[u8]| {
        world.host.engine.write(world.now, txn, name(key), Some(value), Expiry::NEVER)
    };
    assert_eq!(put(&mut world, b"", b""), Err(LimitError::EmptyKey.into()));
    assert_eq!(
        put(&mut world, b"k", &long),
        Err(LimitError::ValueTooLong { bytes: long.len() }.into())
    );
    let key = &long[..limits::MAX_KEY_BYTES + 1];
    assert_eq!(put(&mut world, key, b""), Err(LimitError::KeyTooLong { bytes: key.len() }.into()));
    world.put(txn, b"k", b"fits");
    world.committed(txn);
    assert_eq!(world.shards[0].latest(b"k"), Some(&b"fits"[..]));
}

#[test]
fn a_transaction_with_a_thousand_keys_commits_whole() {
    let mut world = world(4);
    let session = world.session();
    let txn = world.begin(session);
    for n in 0..1000u32 {
        world.put(txn, format!("many-{n}").as_bytes(), &n.to_le_bytes());
    }
    world.committed(txn);
    world.pass(Duration::from_millis(5));
    let check = world.begin(session);
    for n in (0..1000u32).step_by(37) {
        assert_eq!(
            world.value(check, format!("many-{n}").as_bytes()),
            Some(n.to_le_bytes().to_vec())
        );
    }
}

#[test]
fn a_transaction_that_stays_open_too_long_is_told_so() {
    let mut world = world(1);
    let session = world.session();
    let txn = world.begin(session);
    world.put(txn, b"k", b"v");
    world.pass(limits::MAX_TXN_AGE + Duration::from_secs(1));
    assert_eq!(
        world.commit(txn),
        Outcome::Failed(SessionError::TooLong { limit: limits::MAX_TXN_AGE })
    );
    assert_eq!(world.shards[0].seen(Kind::Prepare), 0);
}

#[test]
fn several_operations_may_wait_for_one_read_and_one_of_them_may_give_up() {
    let mut world = world(1);
    world.shards[0].written_by_other(b"k", Version::new(Timestamp::from_nanos(1), OTHER), b"v");
    let session = world.session();
    let txn = world.begin(session);
    let ops = [world.op(), world.op(), world.op()];
    let mut tickets = Vec::new();
    for op in ops {
        let Ok(Step::Pending(ticket)) = world.host.engine.get(world.now, txn, SPACE, b"k", op)
        else {
            panic!("not asked")
        };
        tickets.push(ticket);
    }
    world.host.engine.cancel(tickets[1]);
    assert!(matches!(world.wait(ops[0]), Outcome::Value(Some(_), _)));
    assert!(matches!(world.wait(ops[2]), Outcome::Value(Some(_), _)));
    world.pass(Duration::from_millis(5));
    assert!(world.host.done.is_empty(), "the operation that gave up is not told");
    assert_eq!(world.shards[0].seen(Kind::Get), 1);
}

#[test]
fn aborting_fails_the_reads_under_way_and_sends_nothing() {
    let mut world = world(1);
    let session = world.session();
    let txn = world.begin(session);
    world.put(txn, b"w", b"v");
    let op = world.op();
    assert!(matches!(world.host.engine.get(world.now, txn, SPACE, b"k", op), Ok(Step::Pending(_))));
    world.host.engine.abort(txn);
    assert_eq!(world.wait(op), Outcome::Failed(SessionError::NoTransaction));
    world.pass(Duration::from_secs(3));
    assert_eq!(world.shards[0].seen(Kind::Prepare), 0);
    assert_eq!(world.host.engine.stats().ignored_replies, 1, "the answer comes for nobody");
}

#[test]
fn a_fence_empties_a_keyspace_on_every_shard_at_one_timestamp() {
    let mut world = world(3);
    let session = world.session();
    world.write(session, b"k", b"v", Condition::Always, RequestOptions::default());
    let txn = world.begin(session);
    world.host.engine.fence(world.now, txn, SPACE).unwrap();
    world.committed(txn);
    world.pass(Duration::from_millis(5));
    let fences: Vec<_> = world.shards.iter().map(|shard| shard.fence(SPACE)).collect();
    assert!(fences[0].is_some() && fences.iter().all(|at| *at == fences[0]), "{fences:?}");
    assert_eq!(world.shard_of(b"k").latest(b"k"), None);
}

/// What a transaction is told that does something with a keyspace that it clears: with a put before
/// it, and with a put, a deletion, a read and a range after it.
fn beside_a_fence() -> [Result<(), SessionError>; 5] {
    let mut world = world(3);
    let session = world.session();
    world.write(session, b"k", b"v", Condition::Always, RequestOptions::default());
    let txn = world.begin(session);
    world.put(txn, b"new", b"v");
    let fence = world.host.engine.fence(world.now, txn, SPACE);
    world.host.engine.abort(txn);
    let txn = world.begin(session);
    world.host.engine.fence(world.now, txn, SPACE).unwrap();
    let (op, now, engine) = (world.op(), world.now, &mut world.host.engine);
    engine.fence(now, txn, SPACE).unwrap();
    let put = engine.write(now, txn, name(b"new"), Some(b"v"), Expiry::NEVER);
    let deleted = engine.write(now, txn, name(b"k"), None, Expiry::NEVER);
    let read = engine.get(now, txn, SPACE, b"k", op).map(drop);
    let range = RangeEntry { keyspace: SPACE, expires_at: Expiry::NEVER, from: b"", to: None };
    let range = engine.read_range(now, txn, &range);
    [fence, put, deleted, read, range]
}

#[test]
fn a_transaction_does_nothing_else_with_a_keyspace_that_it_clears() {
    let refused = SessionError::ClearsKeyspace { keyspace: SPACE };
    assert_eq!(beside_a_fence(), [(); 5].map(|()| Err(refused.clone())));
    assert_eq!((refused.code(), refused.retryable()), (Some(ErrorCode::BadArgument), false));
}

/// What it had read before is validated, and other keyspaces are free.
#[test]
fn a_transaction_may_clear_a_keyspace_that_it_has_read_and_write_to_another() {
    let mut world = world(3);
    let session = world.session();
    world.write(session, b"k", b"v", Condition::Always, RequestOptions::default());
    let txn = world.begin(session);
    assert!(matches!(world.get(txn, b"k"), Outcome::Value(Some(_), _)));
    let (now, engine) = (world.now, &mut world.host.engine);
    engine.fence(now, txn, SPACE).unwrap();
    assert!(engine.peek(txn, SPACE, b"k").is_none(), "nothing is known of what is cleared");
    let other = KeyName { keyspace: KeyspaceId::numbered(1, false), key: b"n" };
    engine.write(now, txn, other, Some(b"1"), Expiry::NEVER).unwrap();
    world.committed(txn);
    world.pass(Duration::from_millis(5));
    assert_eq!(world.shard_of(b"k").latest(b"k"), None);
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_write_beside_a_fence_is_found() {
    use timestone_types::planted::{Bug, with};
    assert_eq!(with(Bug::WritesBesideFence, beside_a_fence), [(); 5].map(Ok));
}

#[test]
fn who_waits_for_the_clocks_is_told_at_its_deadline() {
    let mut world = world(2);
    world.host.engine.set_clock_error(world.now, Duration::from_secs(32));
    let session = world.session();
    let deadline = Some(world.now.saturating_add(Duration::from_secs(2)));
    let txn = world
        .begin_with(session, TxnOptions { external_wait: true, deadline, ..TxnOptions::default() });
    world.put(txn, b"k", b"v");
    let begun = world.now;
    let Outcome::Unknown(id) = world.commit(txn) else {
        panic!("told before the clocks have passed it")
    };
    let waited = world.now.since(begun);
    assert!(
        waited >= Duration::from_millis(1_990) && waited < Duration::from_millis(2_100),
        "{waited:?}"
    );
    let op = world.op();
    let begun = pending(world.host.engine.status(world.now, id, RequestOptions::default(), op));
    let told = match begun {
        Ok(true) => world.wait(op),
        other => panic!("{other:?}"),
    };
    assert!(matches!(told, Outcome::Status(TxnStatus::Committed(_))), "{told:?}");
    // A write of one key alike.
    let deadline = Some(world.now.saturating_add(Duration::from_secs(2)));
    let options = RequestOptions { external_wait: true, deadline, ..RequestOptions::default() };
    let begun = world.now;
    let Outcome::Unknown(id) = world.write(session, b"k", b"w", Condition::Always, options) else {
        panic!("told before the clocks have passed it")
    };
    let waited = world.now.since(begun);
    assert!(
        waited >= Duration::from_millis(1_990) && waited < Duration::from_millis(2_100),
        "{waited:?}"
    );
    let op = world.op();
    assert_eq!(
        pending(world.host.engine.status(world.now, id, RequestOptions::default(), op)),
        Ok(true)
    );
    assert!(matches!(world.wait(op), Outcome::Status(TxnStatus::Committed(_))));
}

#[test]
fn an_answer_tells_how_far_the_clock_of_its_server_is_away() {
    let mut world = world(1);
    let session = world.session();
    let shard = timestone_types::ShardId::new(0);
    let ahead = Duration::from_millis(40);
    world.shards[0].clock_ahead = Some(ahead);
    assert_eq!(world.host.engine.shards().clock_offset(shard), None);
    let txn = world.begin(session);
    world.get(txn, b"k");
    let offset = world.host.engine.shards().clock_offset(shard).expect("the answer had a reading");
    let truth = ahead.as_nanos() as i64;
    assert!(offset.least_ns <= truth && truth <= offset.most_ns, "{offset:?}");
    assert_eq!(offset.at, world.now);
    // Requests that are asked twice tell nothing wrong: whichever copy is answered, the first was
    // sent before it was read.
    world.weather().doubled = 1000;
    for n in 0..50u8 {
        world.read_latest(session, &[n], RequestOptions::default());
        let offset = world.host.engine.shards().clock_offset(shard).unwrap();
        assert!(offset.least_ns <= truth && truth <= offset.most_ns, "{offset:?}");
    }
}

#[test]
fn a_commit_to_a_full_outbox_is_refused_and_nothing_of_it_is_sent_or_kept() {
    let mut world = world(2);
    let session = world.session();
    let (a, b) = (world.key_on(0, 0), world.key_on(1, 0));
    let id = world.shards[1].id;
    let txn = world.begin(session);
    world.put(txn, &a, b"one");
    world.put(txn, &b, b"two");
    *world.host.engine.shards_mut().outbox(id).unwrap() =
        vec![0; timestone_session::limits::MAX_OUTBOX_BYTES];
    let op = world.op();
    let refused = pending(world.host.engine.commit(world.now, txn, op));
    assert!(matches!(refused, Err(SessionError::Busy { .. })), "{refused:?}");
    world.host.engine.shards_mut().outbox(id).unwrap().clear();
    world.pass(Duration::from_millis(10));
    assert_eq!(world.shards.iter().map(|shard| shard.seen(Kind::Prepare)).sum::<u32>(), 0);
    assert_eq!(
        (world.commit(txn), world.host.engine.unresolved()),
        (Outcome::Failed(SessionError::NoTransaction), 0)
    );
    let txn = world.begin(session);
    world.put(txn, &b, b"two");
    world.committed(txn);
}
