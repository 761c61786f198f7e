//! The primary of a shard fails over while things are under way there: what is asked where, what is
//! done once, and which answers of the old primary count.

use std::time::Duration;

use timestone_clock::server_time::ServerNumber;
use timestone_session::{
    Condition, OpId, RequestOptions, Routes, SessionError, SessionId, Step, TxnHandle, TxnOptions,
    TxnStatus, limits,
};
use timestone_testkit::{Deposed, ReferenceShard};
use timestone_types::{ClientId, Epoch, Expiry, KeyspaceId, ShardId, Timestamp, TxnId, Version};
use timestone_wire::{
    Count, Counted, Envelope, ErrorCode, ErrorReply, Frame, Frames, Kind, Message, Newest,
    NewestIs, RequestId, StatusIs, TxnState, Value, Verdict, Vote, Written,
};

use crate::Requests as _;
use crate::world::{Application as _, Outcome, SPACE, World, pending, world};

const FIRST: ShardId = ShardId::new(0);

/// The map as its master has it: each shard in its epoch, at another server in each.
pub(crate) fn newest_map(world: &World) -> Routes {
    let shards: Vec<_> = world.shards.iter().map(|shard| (shard.id, shard.epoch)).collect();
    let (count, epochs) = (shards.len() as u16, shards.clone());
    let version = 1 + shards.iter().map(|(_, epoch)| epoch.get() - 1).sum::<u32>();
    let server = move |id: ShardId| {
        let (_, epoch) = epochs[usize::from(id.get())];
        (epoch > Epoch::new(1)).then(|| ServerNumber(epoch.get()))
    };
    Routes::new(version, shards, move |slot| Some(ShardId::new(slot.get() % count)))
        .with_servers(server)
}

/// From now on whoever asks for the map is told the newest one.
pub(crate) fn announce(world: &mut World) {
    world.host.newest = Some(newest_map(world));
}

/// The frames that wait for a shard, which do not get there.
fn intercepted(world: &mut World, shard: ShardId) -> Vec<u8> {
    std::mem::take(world.host.engine.shards_mut().outbox(shard).unwrap())
}

/// What waits for the first shard arrives there, and the answers are lost.
fn carried_out(world: &mut World) {
    let bytes = intercepted(world, FIRST);
    for frame in Frames::new(&bytes) {
        world.shards[0].take(world.now, frame.unwrap().bytes(), &mut Vec::new());
    }
}

/// One request of each kind under way at the first of two shards.
struct UnderWay {
    session: SessionId,
    txn: TxnHandle,
    lost: OpId,
    written: OpId,
    read: OpId,
    latest: OpId,
    counted: OpId,
    committed: OpId,
}

impl UnderWay {
    /// A write that is carried out, whose answer is lost, and others that do not arrive. Before
    /// them `old` was written.
    fn begin(world: &mut World) -> Self {
        let session = world.session();
        let options = RequestOptions::default();
        let keys: Vec<_> = (0..4).map(|n| world.key_on(0, n)).collect();
        let far = world.key_on(1, 0);
        for key in &keys[2..] {
            let old = world.write(session, key, b"old", Condition::Always, options);
            assert!(matches!(old, Outcome::Written(..)));
        }
        let both = world.begin(session);
        world.put(both, &keys[3], b"both");
        world.put(both, &far, b"both");
        let lost = world.put_later(session, &keys[0], options);
        carried_out(world);
        let written = world.put_later(session, &keys[1], options);
        let (txn, read) = (world.begin(session), world.op());
        let begun = pending(world.host.engine.get(world.now, txn, SPACE, &keys[2], read));
        assert_eq!(begun, Ok(true));
        let latest = world.op();
        let engine = &mut world.host.engine;
        let step = engine.get_latest(world.now, session, SPACE, &keys[2], options, latest);
        assert_eq!(pending(step), Ok(true));
        let (counted, at) = (world.op(), world.now);
        let step = world.host.engine.ask(world.now, FIRST, options, counted, |request, out| {
            let (client, epoch) = (ClientId::new(3), Epoch::new(1));
            let request = RequestId::new(request);
            let envelope = Envelope { shard: FIRST, epoch, request, ..Envelope::default() };
            Count { client, keyspace: KeyspaceId::DEFAULT, at }.encode(&envelope, out);
        });
        assert_eq!(pending(step), Ok(true));
        let committed = world.op();
        assert_eq!(pending(world.host.engine.commit(world.now, both, committed)), Ok(true));
        intercepted(world, FIRST);
        Self { session, txn, lost, written, read, latest, counted, committed }
    }

    fn all(&self) -> [OpId; 6] {
        [self.lost, self.written, self.read, self.latest, self.counted, self.committed]
    }

    /// None of them has ended.
    fn expect_nothing(&self, world: &World) {
        assert_eq!(world.host.done, [], "nothing has ended");
    }

    /// All of them end well, everything was done once, and nobody was asked to end anything.
    fn expect_done(&self, world: &mut World) {
        let [lost, written, read, latest, counted, committed] = self.all().map(|op| world.wait(op));
        let mut writes = Vec::new();
        for outcome in [lost, written] {
            let Outcome::Written(_, txn, _) = outcome else { panic!("{outcome:?}") };
            writes.push(txn);
        }
        let old = Some(b"old".to_vec());
        assert!(matches!(&read, Outcome::Value(value, _) if *value == old), "{read:?}");
        assert!(matches!(&latest, Outcome::Value(value, _) if *value == old), "{latest:?}");
        let Outcome::Frame(frame) = counted else { panic!("{counted:?}") };
        let keys = Counted::decode(&Frame::parse(&frame).unwrap()).unwrap().keys;
        assert!((2..=4).contains(&keys), "{keys} keys");
        let Outcome::Committed(_, Some(txn)) = committed else { panic!("{committed:?}") };
        writes.push(txn);
        world.pass(Duration::from_secs(1));
        for txn in writes {
            assert_eq!(world.shards[0].executed.get(&txn), Some(&1), "{txn}");
        }
        let (near, far) = (world.key_on(0, 3), world.key_on(1, 0));
        for key in [near, far] {
            assert_eq!(world.shard_of(&key).latest(&key), Some(&b"both"[..]));
        }
        assert!(world.shards.iter().all(ReferenceShard::is_settled));
        let engine = &world.host.engine;
        assert_eq!((engine.stats().terminations, engine.unresolved()), (0, 0));
        assert!(!engine.shards().wants_routes(), "all shards answer");
        let step = world.host.engine.commit(world.now, self.txn, OpId(0));
        assert!(matches!(step, Ok(Step::Committed(_))));
        world.host.engine.close_session(self.session);
    }
}

#[test]
fn primary_dies_and_another_takes_over() {
    let mut world = world(2);
    let under_way = UnderWay::begin(&mut world);
    world.host.engine.disconnected(world.now, FIRST);
    world.fail_over(0, Deposed::Silent);
    world.pass(Duration::from_millis(1_900));
    under_way.expect_nothing(&world);
    let pulls = world.host.pulls;
    assert!((4..=20).contains(&pulls), "the map is asked for again and again: {pulls}");
    announce(&mut world);
    let announced = world.now;
    under_way.expect_done(&mut world);
    let took = world.now.since(announced);
    assert!(took < Duration::from_millis(1_600), "found at the next pull: {took:?}");
}

#[test]
fn deposed_primary_refuses() {
    for code in [ErrorCode::StaleEpoch, ErrorCode::WrongShard, ErrorCode::Unavailable] {
        let mut world = world(2);
        let under_way = UnderWay::begin(&mut world);
        world.fail_over(0, Deposed::Refuses(code));
        world.host.engine.connected(world.now, FIRST);
        world.pass(Duration::from_millis(1_900));
        under_way.expect_nothing(&world);
        assert!(world.host.pulls >= 4, "{code:?}: {}", world.host.pulls);
        announce(&mut world);
        under_way.expect_done(&mut world);
    }
}

#[test]
fn silent_primary_is_suspected_before_its_requests_are_repeated() {
    let mut world = world(2);
    let under_way = UnderWay::begin(&mut world);
    world.fail_over(0, Deposed::Silent);
    announce(&mut world);
    let begun = world.now;
    under_way.expect_done(&mut world);
    // It was waited for one second after that.
    let took = world.now.since(begun) - Duration::from_secs(1);
    assert!((limits::SUSPECT_AFTER..limits::REQUEST_TIMEOUT).contains(&took), "{took:?}");
}

#[test]
fn map_names_one_who_does_not_serve_yet() {
    let mut world = world(2);
    let under_way = UnderWay::begin(&mut world);
    world.host.engine.disconnected(world.now, FIRST);
    world.fail_over(0, Deposed::Silent);
    let serves_from = world.now.saturating_add(Duration::from_millis(1_800));
    world.shards[0].serves_from = serves_from;
    announce(&mut world);
    world.pass(Duration::from_millis(1_700));
    under_way.expect_nothing(&world);
    assert!(world.host.engine.shards().wants_routes(), "it may be another one's by now");
    under_way.expect_done(&mut world);
    let took = world.now.since(serves_from) - Duration::from_secs(1);
    assert!(took <= limits::MAX_UNSERVED_PAUSE + Duration::from_millis(50), "{took:?}");
}

#[test]
fn several_servers_die_and_come_back() {
    let mut world = world(3);
    let session = world.session();
    let keys: Vec<_> = (0..3).map(|shard| world.key_on(shard, 0)).collect();
    for round in 0u8..6 {
        let txn = world.begin(session);
        for key in &keys {
            world.put(txn, key, &[round]);
        }
        let op = world.op();
        assert_eq!(pending(world.host.engine.commit(world.now, txn, op)), Ok(true));
        // One, two, or all three, one after another.
        for shard in 0..=usize::from(round) % 3 {
            world.host.engine.disconnected(world.now, ShardId::new(shard as u16));
            world.fail_over(shard, Deposed::Silent);
            announce(&mut world);
            world.pass(Duration::from_millis(300));
        }
        let outcome = world.wait(op);
        assert!(matches!(outcome, Outcome::Committed(..)), "round {round}: {outcome:?}");
        world.pass(Duration::from_secs(1));
        for key in &keys {
            assert_eq!(world.shard_of(key).latest(key), Some(&[round][..]), "round {round}");
        }
    }
    assert_eq!(world.host.engine.stats().terminations, 0);
    assert!(world.shards.iter().all(ReferenceShard::is_settled));
    assert!(world.shards.iter().all(|shard| shard.executed.values().all(|&times| times == 1)));
}

#[test]
fn outage_longer_than_the_deadline_is_told_as_what_is_known() {
    let mut world = world(1);
    let session = world.session();
    let key = world.key_on(0, 0);
    let deadline = Some(world.now.saturating_add(Duration::from_secs(1)));
    let options = RequestOptions { deadline, ..RequestOptions::default() };
    let write = world.put_later(session, &key, options);
    carried_out(&mut world);
    let read = world.op();
    let engine = &mut world.host.engine;
    let step = engine.get_latest(world.now, session, SPACE, &key, options, read);
    assert_eq!(pending(step), Ok(true));
    intercepted(&mut world, FIRST);
    world.host.engine.disconnected(world.now, FIRST);
    world.fail_over(0, Deposed::Silent);
    let Outcome::Unknown(txn) = world.wait(write) else { panic!("nobody knows") };
    assert_eq!(world.wait(read), Outcome::Failed(SessionError::DeadlineExceeded));
    announce(&mut world);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.shards[0].executed.get(&txn), Some(&1));
    assert!(matches!(status(&mut world, txn), TxnStatus::Committed(_)));
    assert_eq!(world.host.engine.unresolved(), 0);
}

#[test]
fn map_that_moves_one_shard_repeats_nothing_at_the_others() {
    let mut world = world(2);
    let session = world.session();
    let far = world.key_on(1, 0);
    let write = world.put_later(session, &far, RequestOptions::default());
    assert!(!intercepted(&mut world, ShardId::new(1)).is_empty());
    world.fail_over(0, Deposed::Silent);
    let map = newest_map(&world);
    world.host.engine.set_routes(world.now, map);
    let repeated = intercepted(&mut world, ShardId::new(1));
    assert_eq!(repeated, [], "shard 1 has not moved");
    world.fail_over(1, Deposed::Silent);
    let map = newest_map(&world);
    world.host.engine.set_routes(world.now, map);
    assert!(matches!(world.wait(write), Outcome::Written(..)));
}

/// What became of a transaction, by this client.
pub(crate) fn status(world: &mut World, txn: TxnId) -> TxnStatus {
    let op = world.op();
    let begun = pending(world.host.engine.status(world.now, txn, RequestOptions::default(), op));
    match world.outcome(op, begun) {
        Outcome::Status(status) => status,
        other => panic!("{other:?}"),
    }
}

/// The first frame of a kind among these, as the old primary would answer it: shard, number, the
/// first epoch.
fn to_the_old_primary(frames: &[u8], kind: Kind) -> Envelope {
    let mut frames = Frames::new(frames).map(Result::unwrap);
    let frame = frames.find(|frame| frame.kind() == kind).expect("it is asked");
    assert_eq!(frame.envelope().epoch, Epoch::new(1));
    *frame.envelope()
}

/// Delivers an answer that was written by hand.
fn deliver<'a>(world: &mut World, envelope: &Envelope, answer: &impl Message<'a>) {
    let mut batch = Vec::new();
    answer.encode(envelope, &mut batch);
    world.host.engine.deliver_batch(world.now, &batch).unwrap();
}

/// A write is told as unknown, carried out by the new primary, whose answer is lost, and refused by
/// the old one, which has forgotten the time at which it was asked. What its client says became of
/// it.
fn told_of_a_write_that_the_old_primary_refuses_late() -> TxnStatus {
    let mut world = world(1);
    let session = world.session();
    let key = world.key_on(0, 0);
    world.fail_over(0, Deposed::Silent);
    let deadline = Some(world.now.saturating_add(Duration::from_millis(200)));
    let options = RequestOptions { deadline, ..RequestOptions::default() };
    world.now = world.now.saturating_add(Duration::from_millis(1));
    let write = world.put_later(session, &key, options);
    let first = intercepted(&mut world, FIRST);
    let Outcome::Unknown(txn) = world.wait(write) else { panic!("nobody knows") };
    let map = newest_map(&world);
    world.host.engine.set_routes(world.now, map);
    carried_out(&mut world);
    assert_eq!(world.shards[0].executed.get(&txn), Some(&1));
    let envelope = to_the_old_primary(&first, Kind::Write);
    let asked = Frames::new(&first).map(Result::unwrap).find(|one| one.kind() == Kind::Write);
    let commit = timestone_wire::Write::decode(&asked.unwrap()).unwrap().commit;
    let written = Written {
        txn,
        commit,
        verdict: Verdict::Later(world.now),
        previous_present: false,
        previous_version: Version::ZERO,
        previous_expires_at: Expiry::NEVER,
        previous_value: b"",
    };
    deliver(&mut world, &envelope, &written);
    status(&mut world, txn)
}

#[test]
fn late_refusal_of_the_deposed_primary_is_not_what_became_of_a_write() {
    let told = told_of_a_write_that_the_old_primary_refuses_late();
    assert!(matches!(told, TxnStatus::Committed(_)), "{told:?}");
}

#[cfg(feature = "planted-bugs")]
#[test]
fn late_refusal_that_counts_is_found() {
    use timestone_types::planted::{Bug, with};
    let told = with(Bug::LateAnswerOfDeposed, told_of_a_write_that_the_old_primary_refuses_late);
    assert_eq!(told, TxnStatus::Aborted, "it was carried out");
}

/// A world whose first shard has failed over; the client knows, and has asked the old primary
/// before that.
fn world_that_has_asked(begin: impl FnOnce(&mut World, SessionId)) -> (World, Vec<u8>) {
    let mut world = world(1);
    let session = world.session();
    begin(&mut world, session);
    let asked = intercepted(&mut world, FIRST);
    world.fail_over(0, Deposed::Silent);
    let map = newest_map(&world);
    world.host.engine.set_routes(world.now, map);
    (world, asked)
}

#[test]
fn late_answers_of_the_deposed_primary_count_where_they_rest_on_records() {
    let op = OpId(77);
    let key = b"key".to_vec();
    // A read of the present: somebody may have written at the new primary.
    let value = Value {
        version: Version::ZERO,
        expires_at: Expiry::NEVER,
        prepared_before: false,
        present: true,
        value: b"late",
    };
    let (mut world, asked) = world_that_has_asked(|world, session| {
        let (engine, options) = (&mut world.host.engine, RequestOptions::default());
        let step = engine.get_latest(world.now, session, SPACE, &key, options, op);
        assert_eq!(pending(step), Ok(true));
    });
    deliver(&mut world, &to_the_old_primary(&asked, Kind::Get), &value);
    assert!(matches!(world.wait(op), Outcome::Value(None, _)), "as the new primary has it");
    // A snapshot, which the new primary lets nothing into.
    let (mut world, asked) = world_that_has_asked(|world, session| {
        let txn = world.begin(session);
        let step = world.host.engine.get(world.now, txn, SPACE, &key, op);
        assert_eq!(pending(step), Ok(true));
    });
    deliver(&mut world, &to_the_old_primary(&asked, Kind::Get), &value);
    assert!(matches!(world.wait(op), Outcome::Value(Some(_), _)));
    // What was acknowledged is nothing that the old primary could tell of.
    let (mut world, asked) = world_that_has_asked(|world, _| {
        let options = RequestOptions::default();
        let step = world.host.engine.ask(world.now, FIRST, options, op, |request, out| {
            let (epoch, request) = (Epoch::new(1), RequestId::new(request));
            let envelope = Envelope { shard: FIRST, epoch, request, ..Envelope::default() };
            Newest { keyspace: KeyspaceId::DEFAULT }.encode(&envelope, out);
        });
        assert_eq!(pending(step), Ok(true));
    });
    let taken_over = world.now;
    let newest = NewestIs { at: Timestamp::from_nanos(5) };
    deliver(&mut world, &to_the_old_primary(&asked, Kind::Newest), &newest);
    let Outcome::Frame(frame) = world.wait(op) else { panic!("it was asked again") };
    let newest = NewestIs::decode(&Frame::parse(&frame).unwrap()).unwrap();
    assert!(newest.at >= taken_over, "{newest:?}");
}

#[test]
fn late_votes_of_the_deposed_primary_are_true_and_its_ignorance_is_not() {
    let op = OpId(77);
    let commit_both = |world: &mut World, session, is_write: bool| {
        let txn = world.begin_with(session, TxnOptions { strict: true, ..TxnOptions::default() });
        if is_write {
            world.put(txn, b"key", b"value");
        } else {
            world.value(txn, b"key");
        }
        assert_eq!(pending(world.host.engine.commit(world.now, txn, op)), Ok(true));
    };
    for (is_write, vote, counts) in [
        (true, Verdict::Yes, true),
        (true, Verdict::Later(Timestamp::from_nanos(u64::MAX / 4)), false),
        (false, Verdict::Yes, false),
    ] {
        let (mut world, asked) =
            world_that_has_asked(|world, session| commit_both(world, session, is_write));
        let envelope = to_the_old_primary(&asked, Kind::Prepare);
        let frames = Frames::new(&asked).map(Result::unwrap);
        let prepare = frames.last().map(|one| timestone_wire::Prepare::decode(&one).unwrap());
        let (txn, commit) = prepare.map(|one| (one.txn, one.commit)).unwrap();
        deliver(&mut world, &envelope, &Vote { txn, commit, verdict: vote });
        let is_told = world.host.engine.next_done().is_some();
        assert_eq!(is_told, counts, "{vote:?}, with writes: {is_write}");
        let rounds = world.host.engine.stats().later_rounds;
        assert_eq!(rounds, 0, "{vote:?}");
    }
    // That the old primary has not heard of a transaction says nothing of the new one.
    let asked_of = TxnId::new(ClientId::new(9), timestone_types::Sequence::new(4));
    let (mut world, asked) = world_that_has_asked(|world, _| {
        let options = RequestOptions::default();
        let step = world.host.engine.status(world.now, asked_of, options, op);
        assert_eq!(pending(step), Ok(true));
    });
    let envelope = to_the_old_primary(&asked, Kind::Status);
    let at = world.now;
    world.shards[0].committed_by_other(asked_of, at);
    deliver(&mut world, &envelope, &StatusIs { txn: asked_of, state: TxnState::Unknown });
    assert_eq!(world.wait(op), Outcome::Status(TxnStatus::Committed(at)));
}

#[test]
fn late_refusals_of_the_deposed_primary_end_nothing() {
    let key = b"key".to_vec();
    for code in [ErrorCode::SessionEnded, ErrorCode::SnapshotTooOld, ErrorCode::StorageFailed] {
        let op = OpId(77);
        let (mut world, asked) = world_that_has_asked(|world, session| {
            let txn = world.begin(session);
            let step = world.host.engine.get(world.now, txn, SPACE, &key, op);
            assert_eq!(pending(step), Ok(true));
        });
        let envelope = to_the_old_primary(&asked, Kind::Get);
        deliver(&mut world, &envelope, &ErrorReply::new(code, "it is deposed"));
        assert!(!world.host.engine.wants_client(), "{code:?}");
        assert!(matches!(world.wait(op), Outcome::Value(None, _)), "{code:?}");
    }
}

#[test]
fn clock_of_a_server_that_is_gone_is_not_waited_for() {
    use timestone_session::EngineConfig;
    let config = EngineConfig { asks_clocks: true, ..EngineConfig::default() };
    let mut world = crate::world::world_with(2, config, 7);
    for shard in &mut world.shards {
        shard.clock_ahead = Some(Duration::from_millis(3));
    }
    world.pass(Duration::from_secs(2));
    let known = |world: &World| world.host.engine.shards().clock_offsets().count();
    assert_eq!(known(&world), 2);
    // A ping is under way when the server dies.
    world.cut[0] = true;
    world.pass(Duration::from_millis(1_100));
    world.host.engine.disconnected(world.now, FIRST);
    world.fail_over(0, Deposed::Silent);
    world.cut[0] = false;
    // The new server's clock is another one.
    world.shards[0].clock_ahead = Some(Duration::from_millis(9));
    let map = newest_map(&world);
    world.host.engine.set_routes(world.now, map);
    assert_eq!(known(&world), 1, "what was known is of the old one's clock");
    world.host.engine.connected(world.now, FIRST);
    world.pass(Duration::from_millis(10));
    assert_eq!(known(&world), 2, "the new one is asked at once");
    let offset = world.host.engine.shards().clock_offset(FIRST).unwrap();
    assert!((8_000_000..10_000_000).contains(&offset.middle_ns()), "{offset:?}");
}
