//! What peers, hosts and applications may do without bringing the engine down: answers that nobody
//! asked, that come late or twice, that name times which no clock shows, and calls in any order.

use std::time::Duration;

use timestone_session::{
    Condition, Mutation, OpId, OpResult, RequestOptions, Routes, SessionError, SessionId, Step,
    TxnOptions,
};
use timestone_types::{
    AbortKind, AbortReason, ClientId, Epoch, Expiry, Sequence, ShardId, Slot, Timestamp, TxnId,
    Version,
};
use timestone_wire::{
    Envelope, ErrorCode, ErrorReply, FetchWriteSet, Frames, Kind, Message, StatusIs, TxnState,
    Value, Verdict, Vote, Written,
};

use crate::Requests;
use crate::world::{Application, Outcome, SPACE, World, name, pending, world};

/// The header of an answer to what waits in the outbox of a shard, which is taken out.
fn asked(world: &mut World, shard: u16) -> Envelope {
    let shard = ShardId::new(shard);
    let bytes = std::mem::take(world.host.engine.shards_mut().outbox(shard).unwrap());
    let frame = Frames::new(&bytes).last().unwrap().unwrap();
    Envelope { shard, request: frame.envelope().request, ..Envelope::default() }
}

fn answer<'a>(world: &mut World, envelope: &Envelope, reply: &impl Message<'a>) {
    let mut bytes = Vec::new();
    reply.encode(envelope, &mut bytes);
    world.host.engine.deliver_batch(world.now, &bytes).unwrap();
}

/// A shard that moves is at another server, to which there is no connection yet, while its old
/// server goes on answering. A broken server answers in the name of any shard.
#[test]
fn an_answer_of_a_shard_without_a_connection_is_taken() {
    let mut world = world(1);
    let session = world.session();
    let txn = world.begin(session);
    let op = world.op();
    assert_eq!(pending(world.host.engine.get(world.now, txn, SPACE, b"k", op)), Ok(true));
    let envelope = asked(&mut world, 0);
    world.host.engine.disconnected(world.now, ShardId::new(0));
    let none = Value {
        version: Version::ZERO,
        expires_at: Expiry::NEVER,
        prepared_before: false,
        present: false,
        value: b"",
    };
    answer(&mut world, &envelope, &none);
    assert!(matches!(world.host.engine.next_done().unwrap().result, OpResult::Value(_)));
}

#[test]
fn a_deadline_before_all_time_is_over_at_once() {
    let mut world = world(1);
    let session = world.session();
    let deadline = Some(Timestamp::ZERO);
    let options = RequestOptions { deadline, ..RequestOptions::default() };
    let late = Outcome::Failed(SessionError::DeadlineExceeded);
    assert_eq!(world.read_latest(session, b"k", options), late);
    let write = world.write(session, b"k", b"v", Condition::Always, options);
    assert!(matches!(write, Outcome::Unknown(_)), "{write:?}");
    let txn = world.begin_with(session, TxnOptions { deadline, ..TxnOptions::default() });
    assert_eq!(world.get(txn, b"k"), late);
    world.put(txn, b"k", b"v");
    let too_late = Outcome::Failed(SessionError::CommitTooLate);
    assert_eq!(world.commit(txn), too_late, "nothing of it was sent");
    assert_eq!(world.shards[0].seen(Kind::Prepare), 0);
}

#[test]
fn operations_may_have_the_same_name() {
    let mut world = world(1);
    let session = world.session();
    let txn = world.begin(session);
    let op = world.op();
    let mut tickets =
        [b"a", b"b"].map(|key| match world.host.engine.get(world.now, txn, SPACE, key, op) {
            Ok(Step::Pending(ticket)) => Some(ticket),
            _ => None,
        });
    world.host.engine.cancel(tickets[0].take().unwrap());
    assert!(matches!(world.wait(op), Outcome::Value(None, _)), "the other one goes on");
}

const NEVER: Timestamp = Timestamp::MAX;
const HOUR: Duration = Duration::from_secs(3_600);

/// Two transactions, a read and a write go on as usual: the session has not run out of timestamps.
fn goes_on(world: &mut World, session: SessionId) {
    for _ in 0..2 {
        let txn = world.begin(session);
        assert!(world.host.engine.begin_timestamp(txn).unwrap() < world.now.saturating_add(HOUR));
        world.put(txn, b"k", b"v");
        world.committed(txn);
    }
    let options = RequestOptions::default();
    assert!(matches!(world.read_latest(session, b"k", options), Outcome::Value(..)));
    let write = world.write(session, b"k", b"v", Condition::Always, options);
    assert!(matches!(write, Outcome::Written(..)), "{write:?}");
}

/// A server's clock is ahead: what has expired there would be there again for a snapshot by the
/// session's own clock. No server is an hour ahead.
#[test]
fn what_a_session_has_seen_expired_has_expired_for_what_it_does_next() {
    let mut world = world(1);
    let session = world.session();
    let options = RequestOptions::default();
    let began = world.now;
    let soon = began.saturating_add(Duration::from_millis(200));
    let late = began.saturating_add(Duration::from_secs(3600));
    for (expires_at, is_learned) in [(late, false), (soon, true)] {
        let op = world.op();
        let step = world.host.engine.get_latest(world.now, session, SPACE, b"k", options, op);
        assert_eq!(pending(step), Ok(true));
        let envelope = asked(&mut world, 0);
        let expired = Value {
            version: Version::new(began.previous(), ClientId::new(9)),
            expires_at: Expiry::at(expires_at),
            prepared_before: false,
            present: false,
            value: b"",
        };
        answer(&mut world, &envelope, &expired);
        assert!(matches!(world.host.engine.next_done().unwrap().result, OpResult::Value(_)));
        let txn = world.begin(session);
        let begin = world.host.engine.begin_timestamp(txn).unwrap();
        assert_eq!(begin > expires_at, is_learned, "{begin} {expires_at}");
    }
}

/// The last timestamp there is, in an answer of a broken server, would be the last that a session
/// issues.
#[test]
fn an_answer_that_names_a_time_that_no_clock_shows_is_nobodys() {
    let mut world = world(1);
    let session = world.session();
    let options = RequestOptions::default();
    let version = Version::new(NEVER, ClientId::new(9));
    let value = Value {
        version,
        expires_at: Expiry::NEVER,
        prepared_before: false,
        present: true,
        value: b"v",
    };
    let too_old = ErrorReply::new(ErrorCode::SnapshotTooOld, "").with_detail(u64::MAX);
    let reason = AbortReason { at: NEVER, ..AbortReason::of(AbortKind::TooOld) };
    let verdicts = [Verdict::Yes, Verdict::Later(NEVER), Verdict::No(reason)];

    let txn = world.begin(session);
    let read = world.op();
    assert_eq!(pending(world.host.engine.get(world.now, txn, SPACE, b"k", read)), Ok(true));
    let envelope = asked(&mut world, 0);
    answer(&mut world, &envelope, &value);
    answer(&mut world, &envelope, &too_old);

    let latest = world.op();
    let step = world.host.engine.get_latest(world.now, session, SPACE, b"k", options, latest);
    assert_eq!(pending(step), Ok(true));
    let envelope = asked(&mut world, 0);
    answer(&mut world, &envelope, &value);

    let write = world.put_later(session, b"k", options);
    let envelope = asked(&mut world, 0);
    for verdict in verdicts {
        let written = Written {
            txn: TxnId::new(ClientId::new(3), Sequence::new(1)),
            commit: NEVER,
            verdict,
            previous_present: false,
            previous_version: Version::ZERO,
            previous_expires_at: Expiry::NEVER,
            previous_value: b"",
        };
        answer(&mut world, &envelope, &written);
    }
    answer(&mut world, &envelope, &too_old);

    let other = world.begin(session);
    world.put(other, b"k", b"v");
    let commit = world.op();
    assert_eq!(pending(world.host.engine.commit(world.now, other, commit)), Ok(true));
    let envelope = asked(&mut world, 0);
    let id = TxnId::new(ClientId::new(3), Sequence::new(2));
    for verdict in verdicts {
        answer(&mut world, &envelope, &Vote { txn: id, commit: NEVER, verdict });
    }
    let state = TxnState::Committed(NEVER);
    answer(&mut world, &envelope, &StatusIs { txn: id, state });

    assert!(world.host.engine.next_done().is_none(), "nothing was answered");
    assert!(world.host.engine.stats().ignored_replies >= 10);
    assert!(matches!(world.wait(read), Outcome::Value(..)), "it is asked again");
    assert!(matches!(world.wait(latest), Outcome::Value(..)));
    let outcome = world.wait(write);
    assert!(matches!(outcome, Outcome::Written(..)), "{outcome:?}");
    assert!(matches!(world.wait(commit), Outcome::Committed(..)));
    goes_on(&mut world, session);
}

/// As when somebody uses the last timestamp for "the latest".
#[test]
fn a_session_that_was_told_of_a_time_that_no_clock_shows_begins_transactions() {
    let mut world = world(1);
    let session = world.session();
    world.host.engine.saw(session, NEVER).unwrap();
    let begins = [(); 3].map(|()| {
        let txn = world.begin(session);
        world.host.engine.begin_timestamp(txn).unwrap()
    });
    assert!(begins[0] < begins[1] && begins[1] < begins[2], "{begins:?}");
}

#[test]
fn a_clock_that_jumps_to_the_end_of_time_stops_nothing() {
    let mut world = world(1);
    let session = world.session();
    let engine = &mut world.host.engine;
    for op in 1..4 {
        let txn = engine.begin(NEVER, session, TxnOptions::default()).unwrap();
        engine.write(NEVER, txn, name(b"k"), Some(b"v"), Expiry::NEVER).unwrap();
        assert!(matches!(engine.commit(NEVER, txn, OpId(op)), Ok(Step::Pending(_))));
        let put = Mutation::Put { value: b"v", expires_at: Expiry::NEVER };
        let (always, options) = (Condition::Always, RequestOptions::default());
        let step = engine.write_if(NEVER, session, SPACE, b"k", put, always, options, OpId(9));
        assert!(matches!(step, Ok(Step::Pending(_))));
        engine.tick(NEVER);
    }
}

/// Whoever hands out ids may hand out one again, the present one or an earlier one, while something
/// that has it is under way.
#[test]
fn a_client_id_that_comes_again_names_no_write_twice() {
    let mut world = world(1);
    let session = world.session();
    let written = |outcome: Outcome| match outcome {
        Outcome::Written(_, id, _) => id,
        other => panic!("{other:?}"),
    };
    let options = RequestOptions { deadline: Some(world.now), ..RequestOptions::default() };
    let put = |world: &mut World| {
        world.write(session, b"k", b"v", Condition::Always, RequestOptions::default())
    };
    let mut ids = vec![written(put(&mut world)), written(put(&mut world))];
    // Its outcome is not known before the client has had two other ids.
    world.cut[0] = true;
    let lost = world.write(session, b"l", b"v", Condition::Always, options);
    let Outcome::Unknown(lost) = lost else { panic!("{lost:?}") };
    ids.push(lost);
    for id in [3, 4, 3, 2] {
        world.host.engine.renew_client(world.now, ClientId::new(id));
        world.pass(Duration::from_secs(1));
    }
    world.host.engine.renew_client(world.now, ClientId::new(3));
    world.cut[0] = false;
    for _ in 0..3 {
        ids.push(written(put(&mut world)));
    }
    world.pass(Duration::from_secs(3));
    assert_eq!(world.host.engine.unresolved(), 0);
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 6, "{ids:?}");
    // An id that nobody has had begins at the first.
    world.host.engine.renew_client(world.now, ClientId::new(5));
    let first = TxnId::new(ClientId::new(5), Sequence::new(1));
    assert_eq!(written(put(&mut world)), first);
}

/// Servers cannot commit at a timestamp that no coordinator has tried.
#[test]
fn a_commit_at_a_timestamp_that_was_never_tried_is_nobodys() {
    let mut world = world(2);
    let session = world.session();
    let (a, b) = (world.key_on(0, 0), world.key_on(1, 0));
    let txn = world.begin(session);
    world.put(txn, &a, b"1");
    world.put(txn, &b, b"2");
    let op = world.op();
    assert_eq!(pending(world.host.engine.commit(world.now, txn, op)), Ok(true));
    let ahead = world.now.saturating_add(HOUR);
    let id = TxnId::new(ClientId::new(3), Sequence::new(1));
    let envelopes = [0, 1].map(|shard| asked(&mut world, shard));
    let state = TxnState::Committed(ahead);
    answer(&mut world, &envelopes[0], &StatusIs { txn: id, state });
    answer(&mut world, &envelopes[0], &FetchWriteSet { txn: id, commit: ahead });
    assert!(world.host.engine.next_done().is_none(), "nobody has decided");
    let Outcome::Committed(at, _) = world.wait(op) else { panic!("not committed") };
    assert!(at < ahead);

    let op = world.put_later(session, &a, RequestOptions::default());
    let id = TxnId::new(ClientId::new(3), Sequence::new(2));
    let envelope = asked(&mut world, 0);
    let written = Written {
        txn: id,
        commit: ahead,
        verdict: Verdict::Yes,
        previous_present: false,
        previous_version: Version::ZERO,
        previous_expires_at: Expiry::NEVER,
        previous_value: b"",
    };
    answer(&mut world, &envelope, &written);
    answer(&mut world, &envelope, &StatusIs { txn: id, state });
    assert!(world.host.engine.next_done().is_none(), "it was not asked for then");
    let Outcome::Written(at, ..) = world.wait(op) else { panic!("not written") };
    assert!(at < ahead);
}

/// A map has fewer shards, and many maps in a row may have as many. The last number is that of no
/// shard.
#[test]
fn a_map_of_every_number_that_a_shard_could_have_is_followed() {
    let mut world = world(2);
    let session = world.session();
    let shards = (0..=u16::MAX).map(|raw| (ShardId::new(raw), Epoch::new(1))).collect();
    let owner = |slot: Slot| match slot.get() % 2 {
        0 => Some(ShardId::new(0)),
        _ => Some(ShardId::new(u16::MAX)),
    };
    world.host.engine.set_routes(world.now, Routes::new(2, shards, owner));
    world.host.engine.shards_mut().reach_only(&[ShardId::new(0)]);
    let (served, unserved) = (world.key_on(0, 0), world.key_on(1, 0));
    let options = RequestOptions::default();
    assert!(matches!(world.read_latest(session, &served, options), Outcome::Value(..)));
    let nowhere = Outcome::Failed(SessionError::NoShard);
    assert_eq!(world.read_latest(session, &unserved, options), nowhere);
}
