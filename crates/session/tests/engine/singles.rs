//! Requests outside transactions: conditions, exactly once, later timestamps, questions.

use std::time::Duration;

use timestone_session::{
    Condition, EngineConfig, LimitError, OpId, OpResult, RequestOptions, SessionError, SessionId,
    TxnStatus,
};
use timestone_types::limits::PLACED_WITHIN;
use timestone_types::{AbortKind, ClientId, Sequence, ShardId, Timestamp, TxnId, Version};
use timestone_wire::{
    Count, Counted, Envelope, ErrorCode, Frame, Kind, Message, PROTOCOL, ProtocolVersion, RequestId,
};

use crate::Requests;
use crate::world::{Application, Outcome, SPACE, World, pending, world, world_with};
use timestone_testkit::{Refuse, Weather};

const OTHER: ClientId = ClientId::new(99);

fn plain() -> RequestOptions {
    RequestOptions::default()
}

#[test]
fn a_write_can_be_read_at_once_and_conditions_decide() {
    let mut world = world(2);
    let session = world.session();
    let Outcome::Written(first, ..) = world.write(session, b"k", b"1", Condition::Absent, plain())
    else {
        panic!("NX on nothing")
    };
    assert!(
        matches!(world.read_latest(session, b"k", plain()), Outcome::Value(Some(value), _) if value == b"1")
    );
    let asks = RequestOptions { return_previous: true, ..plain() };
    let Outcome::Aborted { reason, key, found, .. } =
        world.write(session, b"k", b"2", Condition::Absent, asks)
    else {
        panic!("NX on something")
    };
    assert_eq!(
        (reason.kind, key, found),
        (AbortKind::Condition, Some(b"k".to_vec()), Some(b"1".to_vec()))
    );
    let version = Version::new(first, ClientId::new(3));
    let steps = [
        (Condition::Present, &b"2"[..], Some(&b"1"[..])),
        (Condition::ValueIs(b"2"), b"3", Some(b"2")),
    ];
    for (condition, value, previous) in steps {
        let Outcome::Written(_, _, before) = world.write(session, b"k", value, condition, asks)
        else {
            panic!("{condition:?}")
        };
        assert_eq!(before.as_deref(), previous);
    }
    let refused = world.write(session, b"k", b"4", Condition::VersionIs(version), plain());
    assert!(matches!(refused, Outcome::Aborted { .. }), "the version is an old one: {refused:?}");
    assert!(matches!(
        world.write(session, b"new", b"4", Condition::VersionIs(Version::ZERO), plain()),
        Outcome::Written(..)
    ));
}

#[test]
fn a_write_below_the_marks_is_repeated_above_them_under_the_same_id() {
    let mut world = world(1);
    let session = world.session();
    let ahead = world.now.saturating_add(Duration::from_millis(200));
    world.shards[0].read_by_other(b"k", ahead);
    let Outcome::Written(at, txn, _) = world.write(session, b"k", b"v", Condition::Always, plain())
    else {
        panic!("not written")
    };
    assert!(at > ahead);
    assert_eq!(
        txn,
        TxnId::new(ClientId::new(3), Sequence::new(1)),
        "the second round keeps the first one's id"
    );
    assert_eq!(world.shards[0].executed.get(&txn), Some(&1));
    assert_eq!(world.shards[0].seen(Kind::Write), 2);
    let txn = world.begin(session);
    assert_eq!(
        world.value(txn, b"k"),
        Some(b"v".to_vec()),
        "the session's next snapshot is above its own write"
    );
}

#[test]
fn a_put_just_below_the_marks_is_placed_above_them_by_its_shard() {
    for (lead, rounds) in [(PLACED_WITHIN / 2, 1), (PLACED_WITHIN * 2, 2)] {
        let mut world = world(1);
        let session = world.session();
        let mark = world.now.saturating_add(lead);
        world.shards[0].read_by_other(b"k", mark);
        let written = world.write(session, b"k", b"v", Condition::Always, plain());
        let Outcome::Written(at, _, _) = written else { panic!("{written:?}") };
        assert!(at > mark && (rounds > 1 || at == mark.next()), "{at} {mark}");
        assert_eq!(world.shards[0].seen(Kind::Write), rounds);
        let txn = world.begin(session);
        assert_eq!(world.value(txn, b"k"), Some(b"v".to_vec()), "its next snapshot is above it");
    }
}

/// It may take place at any of the timestamps that its shard had the choice of.
#[test]
fn what_a_session_does_after_a_cancelled_put_comes_after_what_it_left_to_its_shard() {
    let mut world = world(1);
    let session = world.session();
    world.cut[0] = true;
    let asked = world.now;
    let (_, begun) = world.begin_write(session, b"k", b"v", Condition::Always, plain());
    world.host.engine.cancel(begun.unwrap());
    let txn = world.begin(session);
    let begin = world.host.engine.begin_timestamp(txn).unwrap();
    assert!(begin > asked.saturating_add(PLACED_WITHIN), "{begin} {asked}");
}

/// Its server is updated meanwhile, and would choose another timestamp for it.
#[test]
fn a_put_that_was_given_up_before_it_was_left_to_its_shard_is_not_left_to_it_later() {
    let mut world = world(1);
    let session = world.session();
    world.host.engine.shards_mut().speaks(ShardId::new(0), ProtocolVersion(5));
    world.cut[0] = true;
    let (_, begun) = world.begin_write(session, b"k", b"old", Condition::Always, plain());
    world.host.engine.cancel(begun.unwrap());
    world.pass(PLACED_WITHIN / 5);
    world.shards[0].written_by_other(b"k", Version::new(world.now, OTHER), b"new");
    world.host.engine.shards_mut().speaks(ShardId::new(0), PROTOCOL.1);
    world.cut[0] = false;
    world.pass(Duration::from_secs(3));
    assert_eq!(world.host.engine.unresolved(), 0, "nothing is asked any more");
    assert_eq!(world.shards[0].latest(b"k"), Some(&b"new"[..]));
}

#[test]
fn a_lost_answer_is_asked_for_again_and_the_write_takes_place_once() {
    for seed in 0..20 {
        let mut world = world_with(1, timestone_session::EngineConfig::default(), seed);
        let session = world.session();
        world.weather().loss = 500;
        let Outcome::Written(_, txn, _) =
            world.write(session, b"k", b"v", Condition::Always, plain())
        else {
            panic!("seed {seed}")
        };
        assert_eq!(world.shards[0].executed.get(&txn), Some(&1), "seed {seed}");
    }
}

/// A put of `k` that nobody answers in time; the network to the shard stays cut.
fn write_into_silence(world: &mut World, session: SessionId, value: &[u8]) -> TxnId {
    world.cut[0] = true;
    let options = RequestOptions {
        deadline: Some(world.now.saturating_add(Duration::from_secs(3))),
        ..plain()
    };
    match world.write(session, b"k", value, Condition::Always, options) {
        Outcome::Unknown(txn) => txn,
        told => panic!("told though nobody answers: {told:?}"),
    }
}

#[test]
fn a_write_that_nobody_answers_is_unknown_and_its_outcome_is_told_later() {
    let mut world = world(1);
    let session = world.session();
    let txn = write_into_silence(&mut world, session, b"v");
    assert_eq!(world.host.engine.unresolved(), 1);
    world.cut[0] = false;
    world.pass(Duration::from_secs(3));
    assert_eq!(world.host.engine.unresolved(), 0, "it was still asked in the background");
    let op = world.op();
    let begun = pending(world.host.engine.status(world.now, txn, plain(), op));
    let Outcome::Status(TxnStatus::Committed(at)) = world.outcome(op, begun) else {
        panic!("its outcome is not known")
    };
    assert_eq!(world.shards[0].latest_version(b"k").timestamp, at);
}

/// Else it would undo what its session, or anybody else, wrote after it had been given up.
#[test]
fn a_write_that_was_given_up_takes_place_at_its_time_or_never() {
    for (read_meanwhile, written_meanwhile) in [(false, true), (true, false)] {
        let mut world = world(1);
        let session = world.session();
        let txn = write_into_silence(&mut world, session, b"old");
        if read_meanwhile {
            world.shards[0].read_by_other(b"k", world.now);
        }
        if written_meanwhile {
            world.shards[0].written_by_other(b"k", Version::new(world.now, OTHER), b"new");
        }
        world.cut[0] = false;
        world.pass(Duration::from_secs(3));
        assert_eq!(world.host.engine.unresolved(), 0, "nothing is asked any more");
        assert_eq!(world.shards[0].latest(b"k"), written_meanwhile.then_some(&b"new"[..]));
        let op = world.op();
        let begun = pending(world.host.engine.status(world.now, txn, plain(), op));
        assert_eq!(world.outcome(op, begun), Outcome::Status(TxnStatus::Aborted));
    }
}

/// Its timestamp may have been raised above the clock, by marks of others.
#[test]
fn what_a_session_does_after_a_write_of_unknown_outcome_comes_after_it() {
    let mut world = world(1);
    let session = world.session();
    let ahead = world.now.saturating_add(Duration::from_secs(60));
    world.shards[0].read_by_other(b"k", ahead);
    let options = RequestOptions {
        deadline: Some(world.now.saturating_add(Duration::from_secs(3))),
        ..plain()
    };
    let op = world.put_later(session, b"k", options);
    while world.host.engine.stats().later_rounds == 0 {
        world.pass(Duration::from_micros(10));
    }
    world.cut[0] = true;
    assert!(matches!(world.wait(op), Outcome::Unknown(_)));
    let txn = world.begin(session);
    assert!(
        world.host.engine.begin_timestamp(txn).unwrap() > ahead,
        "the copy on its way may commit above it"
    );
}

#[test]
fn a_read_that_nobody_answers_fails_at_its_deadline() {
    let mut world = world(1);
    let session = world.session();
    world.cut[0] = true;
    let options = RequestOptions {
        deadline: Some(world.now.saturating_add(Duration::from_millis(1500))),
        ..plain()
    };
    assert_eq!(
        world.read_latest(session, b"k", options),
        Outcome::Failed(SessionError::DeadlineExceeded)
    );
    assert!(
        world.now >= options.deadline.unwrap()
            && world.now < options.deadline.unwrap().saturating_add(Duration::from_millis(10))
    );
}

#[test]
fn a_linearizable_read_waits_for_a_prepared_write() {
    let mut world = world(1);
    let session = world.session();
    let other = TxnId::new(OTHER, Sequence::new(1));
    world.shards[0].prepared_by_other(b"k", Some((other, world.now)));
    let op = world.op();
    assert_eq!(
        pending(world.host.engine.get_latest(world.now, session, SPACE, b"k", plain(), op)),
        Ok(true)
    );
    world.pass(Duration::from_millis(120));
    assert!(
        world.host.done.is_empty(),
        "refused as prepared and asked again, never answered around"
    );
    world.shards[0].prepared_by_other(b"k", None);
    let at = world.now;
    world.shards[0].written_by_other(b"k", Version::new(at, OTHER), b"v");
    assert!(matches!(world.wait(op), Outcome::Value(Some(value), _) if value == b"v"));
    let txn = world.begin(session);
    assert!(
        world.host.engine.begin_timestamp(txn).unwrap() > at,
        "a session never goes back behind what it has seen"
    );
}

/// How often anything was put at a key that somebody else has prepared for long, whatever the
/// network does.
fn puts_behind_a_long_write(seed: u64) -> u32 {
    let mut world = world_with(1, EngineConfig::default(), seed);
    let session = world.session();
    let other = TxnId::new(OTHER, Sequence::new(1));
    world.shards[0].prepared_by_other(b"k", Some((other, world.now)));
    *world.weather() = Weather { doubled: 1_000, delay: SLOW, ..Weather::FAIR };
    let (op, begun) = world.begin_write(session, b"k", b"v", Condition::Absent, plain());
    begun.unwrap();
    world.pass(Duration::from_millis(200));
    assert!(world.host.done.is_empty(), "refused for good, and tried again: nobody is told");
    world.shards[0].prepared_by_other(b"k", None);
    let outcome = world.wait(op);
    let Outcome::Written(_, txn, _) = outcome else { panic!("seed {seed}: {outcome:?}") };
    world.pass(Duration::from_secs(1));
    assert_eq!(world.shards[0].executed.get(&txn), Some(&1), "seed {seed}");
    world.shards[0].executed.values().sum()
}

/// Answers overtake each other.
const SLOW: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(30));

#[test]
fn a_write_that_was_refused_for_another_one_is_tried_again_and_takes_place_once() {
    for seed in 0..20 {
        assert_eq!(puts_behind_a_long_write(seed), 1, "seed {seed}");
    }
}

/// What a write is told of what was there, or kept it from taking place, where another one was decided after it
/// was refused for that one.
fn told_after_a_refusal(condition: Condition<'static>) -> Option<Vec<u8>> {
    let mut world = world(1);
    let session = world.session();
    let other = TxnId::new(OTHER, Sequence::new(1));
    world.shards[0].prepared_by_other(b"k", Some((other, world.now)));
    let options = RequestOptions { return_previous: true, ..plain() };
    let (op, begun) = world.begin_write(session, b"k", b"v", condition, options);
    begun.unwrap();
    world.pass(Duration::from_millis(200));
    world.shards[0].written_by_other(b"k", Version::new(world.now, OTHER), b"theirs");
    world.shards[0].prepared_by_other(b"k", None);
    match world.wait(op) {
        Outcome::Written(_, _, previous) => previous,
        Outcome::Aborted { reason, found, .. } if reason.kind == AbortKind::Condition => found,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_write_that_is_tried_again_is_told_what_was_there_when_it_took_place() {
    for condition in [Condition::Always, Condition::Absent] {
        assert_eq!(told_after_a_refusal(condition).as_deref(), Some(&b"theirs"[..]));
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn what_a_refused_write_found_is_noticed_when_it_is_told() {
    use timestone_types::planted::{Bug, with};
    for condition in [Condition::Always, Condition::Absent] {
        let told = with(Bug::KeepsRefusedPrevious, || told_after_a_refusal(condition));
        assert_ne!(told.as_deref(), Some(&b"theirs"[..]));
    }
}

/// It is given up as it was refused last, and nothing of it takes place afterwards.
#[test]
fn a_write_that_is_refused_until_its_deadline_is_told_what_it_met() {
    let mut world = world(1);
    let session = world.session();
    let other = TxnId::new(OTHER, Sequence::new(1));
    world.shards[0].prepared_by_other(b"k", Some((other, world.now)));
    let deadline = world.now.saturating_add(Duration::from_millis(500));
    let options = RequestOptions { deadline: Some(deadline), ..plain() };
    let told = world.write(session, b"k", b"v", Condition::Always, options);
    match told {
        Outcome::Aborted { reason, .. } => assert_eq!(reason.kind, AbortKind::WriteConflict),
        Outcome::Unknown(_) => assert!(world.host.engine.unresolved() <= 1),
        other => panic!("{other:?}"),
    }
    assert!(world.now >= deadline);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.host.engine.unresolved(), 0);
    assert!(world.shards[0].executed.is_empty());
}

#[cfg(feature = "planted-bugs")]
#[test]
fn answers_to_an_earlier_identity_that_count_are_found() {
    use timestone_types::planted::{Bug, with};
    let found = (0..20).any(|seed| {
        let puts = || with(Bug::MixesIdentities, || puts_behind_a_long_write(seed));
        std::panic::catch_unwind(puts).map_or(true, |puts| puts > 1)
    });
    assert!(found, "the planted bug is found");
}

#[test]
fn a_latest_read_that_was_answered_around_a_pending_write_is_asked_again() {
    let mut world = world(1);
    let session = world.session();
    let other = TxnId::new(OTHER, Sequence::new(1));
    world.shards[0].written_by_other(b"k", Version::new(Timestamp::from_nanos(1), OTHER), b"old");
    world.shards[0].prepared_by_other(b"k", Some((other, world.now)));
    world.shards[0].reads_around = true;
    let op = world.op();
    assert_eq!(
        pending(world.host.engine.get_latest(world.now, session, SPACE, b"k", plain(), op)),
        Ok(true)
    );
    world.pass(Duration::from_millis(200));
    assert!(
        world.host.done.is_empty(),
        "what was written may be the latest: {:?}",
        world.host.done
    );
    assert!(world.shards[0].seen(Kind::Get) > 1, "asked again");
    let at = world.now;
    world.shards[0].prepared_by_other(b"k", None);
    world.shards[0].written_by_other(b"k", Version::new(at, OTHER), b"new");
    assert!(matches!(world.wait(op), Outcome::Value(Some(value), _) if value == b"new"));
}

#[test]
fn a_question_about_a_transaction_asks_every_shard_and_a_decision_outweighs_ignorance() {
    let mut world = world(3);
    let session = world.session();
    let key = world.key_on(2, 0);
    let Outcome::Written(at, txn, _) = world.write(session, &key, b"v", Condition::Always, plain())
    else {
        panic!("not written")
    };
    let ask = |world: &mut World, txn| {
        let op = world.op();
        let begun = pending(world.host.engine.status(world.now, txn, plain(), op));
        world.outcome(op, begun)
    };
    assert_eq!(ask(&mut world, txn), Outcome::Status(TxnStatus::Committed(at)));
    let nobody = TxnId::new(OTHER, Sequence::new(77));
    assert_eq!(ask(&mut world, nobody), Outcome::Status(TxnStatus::Unknown));
}

#[test]
fn any_other_request_is_carried_and_its_reply_handed_out() {
    let mut world = world(2);
    let op = world.op();
    let (at, client) = (world.now, world.host.engine.client());
    world.weather().loss = 400;
    let begun =
        pending(world.host.engine.ask(world.now, ShardId::new(1), plain(), op, |request, out| {
            let envelope = Envelope {
                shard: ShardId::new(1),
                request: RequestId::new(request),
                ..Envelope::default()
            };
            let envelope = Envelope { epoch: timestone_types::Epoch::new(1), ..envelope };
            Count { keyspace: SPACE, at, client }.encode(&envelope, out);
        }));
    let Outcome::Frame(bytes) = world.outcome(op, begun) else { panic!("no reply") };
    assert_eq!(Counted::decode(&Frame::parse(&bytes).unwrap()).unwrap().keys, 0);
}

fn no_room(times: u32) -> Refuse {
    Refuse { code: ErrorCode::Busy, detail: 0, retry_after: Duration::from_millis(5), times }
}

/// A write that its shard refuses for want of room, again and again, is under way for two seconds.
/// How far above its begin the watermark was reported meanwhile; with the write.
fn refused_again_and_again(world: &mut World, session: SessionId) -> (Duration, OpId) {
    world.shards[0].refuse = Some(no_room(u32::MAX));
    let began = world.now;
    let deadline = Some(world.now.saturating_add(Duration::from_secs(3)));
    let options = RequestOptions { deadline, ..plain() };
    let op = world.put_later(session, b"k", options);
    world.shards[0].reports.clear();
    world.pass(Duration::from_secs(2));
    let reported =
        world.shards[0].reports.iter().map(|&(_, _, watermark, _)| watermark).max().unwrap();
    (reported.since(began), op)
}

/// What a full store frees waits for the watermark, which waits for whoever has something under
/// way.
#[test]
fn a_write_that_finds_no_room_holds_nothing_back_and_was_certainly_not_carried_out() {
    let mut world = world(1);
    let session = world.session();
    let (risen, op) = refused_again_and_again(&mut world, session);
    assert!(risen > Duration::from_secs(1), "the watermark rises by {risen:?} only");
    let outcome = world.wait(op);
    assert!(matches!(outcome, Outcome::Failed(SessionError::Busy { .. })), "{outcome:?}");
    assert_eq!(world.host.engine.unresolved(), 0);

    // When there is room, it takes place above what its session has seen meanwhile.
    world.shards[0].refuse = Some(no_room(4));
    let seen = world.now.saturating_add(Duration::from_millis(300));
    let op = world.put_later(session, b"k", plain());
    world.host.engine.saw(session, seen).unwrap();
    let Outcome::Written(at, ..) = world.wait(op) else { panic!("not written") };
    assert!(at > seen);
    assert_eq!(world.shards[0].latest(b"k"), Some(&b"v"[..]));
}

/// The test above can fail: with the bug, the write that waits for room keeps the watermark, and
/// with it the room, where it is.
#[cfg(feature = "planted-bugs")]
#[test]
fn a_refused_write_that_holds_the_watermark_is_found() {
    use timestone_types::planted::{Bug, set};
    set(Some(Bug::KeepsRefusedWrites));
    let mut world = world(1);
    let session = world.session();
    let (risen, ..) = refused_again_and_again(&mut world, session);
    set(None);
    assert!(risen <= Duration::from_secs(1), "the planted bug is found: {risen:?}");
}

/// Answers that take longer than a repeat: both copies are refused, or one is refused and the other
/// is answered with a later timestamp. The write takes place all the same.
#[test]
fn two_copies_that_are_both_refused_are_asked_again() {
    for later in [false, true] {
        let mut world = world(1);
        let session = world.session();
        // The first copy arrives just after the second.
        let slow = EngineConfig::default().request_timeout + Duration::from_millis(50);
        world.weather().delay = (slow, slow);
        let retry_after = Duration::from_millis(500);
        let times = if later { 1 } else { 2 };
        world.shards[0].refuse = Some(Refuse { retry_after, ..no_room(times) });
        if later {
            let ahead = world.now.saturating_add(Duration::from_secs(10));
            world.shards[0].read_by_other(b"k", ahead);
        }
        let deadline = Some(world.now.saturating_add(Duration::from_secs(60)));
        let op = world.put_later(session, b"k", RequestOptions { deadline, ..plain() });
        world.pass(Duration::from_millis(1));
        world.weather().delay = Weather::FAIR.delay;
        let outcome = world.wait(op);
        assert!(matches!(outcome, Outcome::Written(..)), "{outcome:?}");
        assert!(world.host.engine.stats().repeated > 0, "no copy was sent before an answer");
        assert_eq!(world.shards[0].executed.values().copied().max(), Some(1));
    }
}

/// An earlier copy of it may still come: that is all that nobody knows, and asking on keeps the
/// room from becoming free.
#[test]
fn a_write_of_unknown_outcome_is_not_asked_for_where_there_is_no_room() {
    let mut world = world(1);
    let session = world.session();
    world.cut[0] = true;
    let options = RequestOptions {
        deadline: Some(world.now.saturating_add(Duration::from_millis(300))),
        ..plain()
    };
    let op = world.put_later(session, b"k", options);
    assert!(matches!(world.wait(op), Outcome::Unknown(_)));
    let retry_after = Duration::from_millis(5);
    world.shards[0].refuse =
        Some(Refuse { code: ErrorCode::Busy, detail: 0, retry_after, times: u32::MAX });
    world.cut[0] = false;
    world.pass(Duration::from_secs(3));
    assert_eq!(world.host.engine.unresolved(), 0);
}

/// A session that has given up a write reads its key at a shard that refuses the read first: when the
/// write was asked for, and at or above which timestamps the read was.
fn asked_below_its_begin() -> (Timestamp, Vec<Timestamp>) {
    let mut world = world(1);
    let session = world.session();
    world.cut[0] = true;
    let options = RequestOptions {
        deadline: Some(world.now.saturating_add(Duration::from_millis(300))),
        ..plain()
    };
    let written = world.now;
    let op = world.put_later(session, b"k", options);
    assert!(matches!(world.wait(op), Outcome::Unknown(_)));
    world.cut[0] = false;
    world.shards[0].refuse = Some(no_room(4));
    assert!(matches!(world.read_latest(session, b"k", plain()), Outcome::Value(..)));
    let other = world.session();
    world.shards[0].refuse = Some(no_room(1));
    assert!(matches!(world.read_latest(other, b"k", plain()), Outcome::Value(..)));
    assert_eq!(
        world.shards[0].latest_asked.pop(),
        Some(Timestamp::ZERO),
        "it has given up nothing"
    );
    world.shards[0].latest_asked.pop();
    (written, std::mem::take(&mut world.shards[0].latest_asked))
}

/// Its begin may lead because the server's clock is held, and it needs no more than to keep out the write.
#[test]
fn a_read_that_is_refused_asks_again_just_above_what_its_session_has_given_up() {
    let (written, asked) = asked_below_its_begin();
    assert!(asked.len() > 1 && asked[1..].iter().all(|&at| at < asked[0]), "{asked:?}");
    assert!(asked.iter().all(|&at| at > written), "{written}, and then {asked:?}");
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_read_below_what_its_session_has_given_up_is_found() {
    use timestone_types::planted::{Bug, with};
    let (written, asked) = with(Bug::ReadsBelowGivenUp, asked_below_its_begin);
    assert!(asked.iter().any(|&at| at <= written), "the planted bug is found: {asked:?}");
}

#[test]
fn a_cancelled_write_still_takes_place_and_is_not_told() {
    let mut world = world(1);
    let session = world.session();
    let (_, begun) = world.begin_write(session, b"k", b"v", Condition::Always, plain());
    world.host.engine.cancel(begun.unwrap());
    world.pass(Duration::from_millis(5));
    assert_eq!(world.shards[0].latest(b"k"), Some(&b"v"[..]));
    assert!(world.host.done.is_empty() && world.host.engine.unresolved() == 0);
}

/// A write that takes place above what another client, whose clock leads, has written, and waits for
/// the clocks, is given up: the other's timestamp, and when its session begins its next transaction.
fn begins_after_what_was_not_told() -> (Timestamp, Timestamp) {
    let mut world = world(1);
    world.host.engine.set_clock_error(world.now, Duration::from_millis(7));
    let session = world.session();
    let ahead = world.now.saturating_add(Duration::from_millis(300));
    world.shards[0].written_by_other(b"k", Version::new(ahead, OTHER), b"other");
    let options = RequestOptions { external_wait: true, ..plain() };
    let (_, begun) = world.begin_write(session, b"k", b"v", Condition::Always, options);
    world.pass(Duration::from_millis(20));
    assert_eq!(world.shards[0].latest(b"k"), Some(&b"v"[..]), "it has taken place");
    assert!(world.host.done.is_empty(), "it waits for the clocks");
    world.host.engine.cancel(begun.unwrap());
    let txn = world.begin(session);
    (ahead, world.host.engine.begin_timestamp(txn).unwrap())
}

#[test]
fn what_a_session_does_after_a_cancelled_write_that_has_taken_place_comes_after_it() {
    let (ahead, begin) = begins_after_what_was_not_told();
    assert!(begin > ahead, "{begin} is before {ahead}");
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_session_that_forgets_a_write_that_has_taken_place_is_found() {
    use timestone_types::planted::{Bug, with};
    let (ahead, begin) = with(Bug::ForgetsUntold, begins_after_what_was_not_told);
    assert!(begin < ahead, "the planted bug is found: {begin}, {ahead}");
}

/// Nobody waits for it any more, and its session goes on.
#[test]
fn a_cancelled_write_takes_place_at_its_time_or_never() {
    let mut world = world(1);
    let session = world.session();
    world.cut[0] = true;
    let (_, begun) = world.begin_write(session, b"k", b"old", Condition::Always, plain());
    world.host.engine.cancel(begun.unwrap());
    world.pass(Duration::from_millis(50));
    world.shards[0].written_by_other(b"k", Version::new(world.now, OTHER), b"new");
    world.cut[0] = false;
    world.pass(Duration::from_secs(3));
    assert_eq!(world.host.engine.unresolved(), 0, "nothing is asked any more");
    assert_eq!(world.shards[0].latest(b"k"), Some(&b"new"[..]));
    assert!(world.host.done.is_empty());
}

#[test]
fn limits_hold_for_single_keys_too() {
    let mut world = world(1);
    let session = world.session();
    assert_eq!(
        world.read_latest(session, b"", plain()),
        Outcome::Failed(LimitError::EmptyKey.into())
    );
    let long = vec![0; timestone_types::limits::MAX_VALUE_BYTES + 1];
    let refused = world.write(session, b"k", &long, Condition::Always, plain());
    assert_eq!(refused, Outcome::Failed(LimitError::ValueTooLong { bytes: long.len() }.into()));
    world.host.engine.close_session(session);
    assert_eq!(world.read_latest(session, b"k", plain()), Outcome::Failed(SessionError::NoSession));
}

#[test]
fn an_acknowledgement_waits_for_the_clocks_error_bound_even_when_the_answer_comes_twice() {
    let mut world = world(1);
    world.weather().doubled = 1000;
    world.weather().delay.1 = Duration::from_millis(1);
    world.host.engine.set_clock_error(world.now, Duration::from_millis(7));
    let session = world.session();
    let options = RequestOptions { external_wait: true, ..plain() };
    let Outcome::Written(at, ..) = world.write(session, b"k", b"v", Condition::Always, options)
    else {
        panic!("not written")
    };
    assert!(
        world.now > at.saturating_add(Duration::from_millis(7)),
        "acknowledged at {}, written at {at}",
        world.now
    );
    // The bound was said once, and has grown by a tenth of the time since.
    assert!(world.now < at.saturating_add(Duration::from_millis(10)));
}

#[test]
fn an_acknowledgement_waits_no_longer_than_the_present_error_bound_demands() {
    let mut world = world(1);
    world.host.engine.set_clock_error(world.now, Duration::from_secs(16));
    let session = world.session();
    let options = RequestOptions { external_wait: true, ..plain() };
    let begun = world.now;
    let op = world.put_later(session, b"k", options);
    world.pass(Duration::from_millis(20));
    assert!(world.shards[0].latest(b"k").is_some() && world.host.done.is_empty());
    // The servers were heard of meanwhile.
    world.host.engine.set_clock_error(world.now, Duration::from_micros(100));
    let Outcome::Written(at, ..) = world.wait(op) else { panic!("not written") };
    let until = at.saturating_add(Duration::from_micros(100));
    assert!(world.now > until, "{} is before {until}", world.now);
    assert!(world.now < begun.saturating_add(Duration::from_millis(500)), "{}", world.now);
    // And no shorter.
    let op = world.put_later(session, b"k", options);
    world.pass(Duration::from_micros(10));
    world.host.engine.set_clock_error(world.now, Duration::from_millis(50));
    let Outcome::Written(at, ..) = world.wait(op) else { panic!("not written") };
    assert!(world.now > at.saturating_add(Duration::from_millis(50)));
}

#[test]
fn writes_of_a_session_that_wait_for_the_clocks_have_rising_timestamps() {
    let mut world = world(1);
    world.host.engine.set_clock_error(world.now, Duration::from_millis(7));
    let session = world.session();
    let options = RequestOptions { external_wait: true, ..plain() };
    let ops = [b"a", b"b", b"c"].map(|key| world.put_later(session, key, options));
    let mut last = Timestamp::ZERO;
    for op in ops {
        let Outcome::Written(at, ..) = world.wait(op) else { panic!("not written") };
        assert!(at > last, "{at} after {last}");
        last = at;
    }
}

#[test]
fn a_value_stays_until_the_next_result_is_taken() {
    let mut world = world(1);
    world.shards[0].written_by_other(b"k", Version::new(Timestamp::from_nanos(1), OTHER), b"v");
    let session = world.session();
    let ops = [world.op(), world.op()];
    for op in ops {
        assert_eq!(
            pending(world.host.engine.get_latest(world.now, session, SPACE, b"k", plain(), op)),
            Ok(true)
        );
    }
    let bytes = std::mem::take(world.host.engine.shards_mut().outbox(ShardId::new(0)).unwrap());
    let mut replies = Vec::new();
    for frame in timestone_wire::Frames::new(&bytes) {
        world.shards[0].take(world.now, frame.unwrap().bytes(), &mut replies);
    }
    world.host.engine.deliver_batch(world.now, &replies).unwrap();
    world.host.engine.deliver_batch(world.now, &replies).unwrap();
    for op in ops {
        let done = world.host.engine.next_done().unwrap();
        let OpResult::Value(view) = done.result else { panic!("{:?}", done.result) };
        assert_eq!((done.op, view.value), (op, Some(&b"v"[..])));
    }
    assert!(world.host.engine.next_done().is_none());
    assert!(world.host.engine.deliver_batch(world.now, &replies[..replies.len() - 1]).is_err());
    assert_eq!(
        world.host.engine.stats().ignored_replies,
        3,
        "doubled replies change nothing, before and after"
    );
}
