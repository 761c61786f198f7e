//! Snapshots that backups may answer: whom a transaction asks, and what its session goes on to see.

use std::time::Duration;

use timestone_clock::server_time::ServerNumber;
use timestone_session::{
    Condition, OpId, RequestOptions, SessionError, SessionId, TxnHandle, TxnOptions, limits,
};
use timestone_types::{Epoch, Expiry, ShardId, Timestamp, Version};
use timestone_wire::{
    ClosedIs, Envelope, ErrorCode, ErrorReply, Frame, Frames, GetAtBackup, Kind, Message as _,
    RequestId, Value,
};

use crate::Requests as _;
use crate::world::{Application as _, Outcome, SPACE, World, name, pending, routes, world};

const SHARD: ShardId = ShardId::new(0);
const PRIMARY: ServerNumber = ServerNumber(1);
const BACKUP: ServerNumber = ServerNumber(2);
const OLD: TxnOptions = TxnOptions {
    read_only: false,
    strict: false,
    snapshot_at: None,
    max_staleness: Some(Duration::from_secs(3)),
    external_wait: false,
    deadline: None,
};

/// A shard with a backup that can be asked.
fn world_with_a_backup() -> World {
    let mut world = world(1);
    let replicated =
        routes(2, 1, 1).with_servers(|_| Some(PRIMARY)).with_replicas(|_| vec![PRIMARY, BACKUP]);
    world.host.engine.set_routes(world.now, replicated);
    world.host.engine.connected(world.now, SHARD);
    world.host.engine.shards_mut().backup_up(BACKUP);
    // The first read is the primary's, to see how near it is.
    let session = world.session();
    let txn = world.begin_with(session, OLD);
    let (op, asked) = read(&mut world, txn);
    assert_eq!(asked, None);
    world.wait(op);
    assert_eq!(gets(&world), 1);
    world
}

/// Reads a key; what the backup is asked, if it is.
fn read(world: &mut World, txn: TxnHandle) -> (OpId, Option<(Timestamp, Envelope)>) {
    let (op, key) = (world.op(), world.key_on(0, 1));
    let step = world.host.engine.get(world.now, txn, SPACE, &key, op);
    assert_eq!(pending(step), Ok(true));
    (op, asked_of_backup(world, &key))
}

/// What the backup is asked, besides how far it has come.
fn asked_of_backup(world: &mut World, key: &[u8]) -> Option<(Timestamp, Envelope)> {
    let (server, outbox) = world.host.engine.shards_mut().next_dirty_backup()?;
    assert_eq!(server, BACKUP);
    let bytes = std::mem::take(outbox);
    let mut frames = Frames::new(&bytes).map(Result::unwrap);
    let frame = frames.find(|frame| frame.kind() != Kind::Ping)?;
    let get = GetAtBackup::decode(&frame).unwrap();
    assert_eq!(get.key, key);
    Some((get.at, *frame.envelope()))
}

/// An answer of the backup.
fn told(world: &mut World, envelope: &Envelope, encode: impl FnOnce(&Envelope, &mut Vec<u8>)) {
    let mut bytes = Vec::new();
    encode(&Envelope { epoch: Epoch::new(1), ..*envelope }, &mut bytes);
    let frame = Frame::parse(&bytes).unwrap();
    world.host.engine.shards_mut().begin_batch(Some(BACKUP));
    world.host.engine.deliver_frame(world.now, SHARD, &frame);
}

/// The backup tells up to where it answers.
fn closed(world: &mut World, at: Timestamp) {
    let envelope = Envelope { shard: SHARD, ..Envelope::default() };
    let closed = ClosedIs { through: 0, at };
    told(world, &envelope, |envelope, out| closed.encode(envelope, out));
}

fn refuse(world: &mut World, envelope: &Envelope) {
    told(world, envelope, |envelope, out| {
        ErrorReply::new(ErrorCode::Unavailable, "not so far").encode(envelope, out);
    });
}

fn found(world: &mut World, envelope: &Envelope) {
    let value = Value {
        version: Version::ZERO,
        expires_at: Expiry::NEVER,
        prepared_before: false,
        present: true,
        value: b"at the backup",
    };
    told(world, envelope, |envelope, out| value.encode(envelope, out));
}

/// What the primary was asked to read.
fn gets(world: &World) -> u32 {
    world.shards[0].seen(Kind::Get)
}

#[test]
fn a_backup_answers_a_snapshot_that_may_be_old_and_nobody_else_is_asked() {
    let mut world = world_with_a_backup();
    let session = world.session();
    let txn = world.begin_with(session, OLD);
    let (op, asked) = read(&mut world, txn);
    let (at, envelope) = asked.expect("the backup is asked");
    assert_eq!(at, world.now.saturating_sub(limits::READ_BEHIND), "half a second is enough");
    found(&mut world, &envelope);
    let outcome = world.wait(op);
    assert!(matches!(&outcome, Outcome::Value(Some(value), _) if value == b"at the backup"));
    let committed = world.op();
    let step = world.host.engine.commit(world.now, txn, committed);
    assert_eq!(step, Ok(timestone_session::Step::Committed(at)), "without a message");
    assert_eq!(gets(&world), 1, "the first one");
    assert_eq!(world.host.engine.stats().answered_by_backups, 1);
}

#[test]
fn the_primary_is_asked_when_a_backup_refuses_and_a_late_refusal_changes_nothing() {
    let mut world = world_with_a_backup();
    let session = world.session();
    let txn = world.begin_with(session, OLD);
    let (op, asked) = read(&mut world, txn);
    let (_, envelope) = asked.unwrap();
    refuse(&mut world, &envelope);
    refuse(&mut world, &envelope);
    assert!(matches!(world.wait(op), Outcome::Value(None, _)), "the primary has nothing there");
    assert_eq!((gets(&world), world.host.engine.stats().left_backups), (2, 1));
    assert!(!world.host.engine.shards().wants_routes(), "the primary serves as before");
    // The backup is left alone for a moment.
    let next = world.begin_with(session, OLD);
    assert_eq!(read(&mut world, next).1, None);
}

#[test]
fn the_primary_is_asked_when_a_backup_is_silent() {
    let mut world = world_with_a_backup();
    let session = world.session();
    let txn = world.begin_with(session, OLD);
    let (op, asked) = read(&mut world, txn);
    assert!(asked.is_some());
    let before = world.now;
    assert!(matches!(world.wait(op), Outcome::Value(None, _)));
    assert!(world.now.since(before) < limits::REQUEST_TIMEOUT, "it is not waited for as long");
    // What it says when it comes changes nothing.
    found(&mut world, &asked.unwrap().1);
    assert_eq!(gets(&world), 2);
}

/// Where a snapshot that may be old lies, of a session that has just written, and of one that has just
/// read the present.
fn snapshots_behind_what_was_seen() -> [(Timestamp, Timestamp); 2] {
    let mut world = world_with_a_backup();
    let (writes, reads) = (world.session(), world.session());
    let key = world.key_on(0, 1);
    let options = RequestOptions::default();
    let written = world.write(writes, &key, b"new", Condition::Always, options);
    let Outcome::Written(written, ..) = written else { panic!("{written:?}") };
    let fresh = world.begin(reads);
    let seen = world.host.engine.begin_timestamp(fresh).unwrap();
    [(writes, written), (reads, seen)].map(|(session, seen)| {
        let txn = world.begin_with(session, OLD);
        (seen, world.host.engine.begin_timestamp(txn).unwrap())
    })
}

#[test]
fn a_session_never_goes_back_below_what_it_has_written_or_seen() {
    for (seen, snapshot) in snapshots_behind_what_was_seen() {
        assert!(snapshot > seen, "{snapshot} after {seen}");
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_session_that_goes_back_is_noticed() {
    use timestone_types::planted::{Bug, with};
    let snapshots = with(Bug::SnapshotsGoBack, snapshots_behind_what_was_seen);
    assert!(snapshots.iter().all(|(seen, snapshot)| snapshot < seen), "{snapshots:?}");
}

#[test]
fn what_writes_or_is_about_the_present_asks_the_primary_alone() {
    let mut world = world_with_a_backup();
    let session = world.session();
    let strict = TxnOptions { strict: true, ..OLD };
    for options in [TxnOptions::default(), strict, TxnOptions { external_wait: true, ..OLD }] {
        let txn = world.begin_with(session, options);
        let begin = world.host.engine.begin_timestamp(txn).unwrap();
        assert!(begin >= world.now, "it reads the present");
        let (op, asked) = read(&mut world, txn);
        assert_eq!(asked, None);
        world.wait(op);
    }
    let txn = world.begin_with(session, OLD);
    let key = world.key_on(0, 1);
    let (now, never) = (world.now, Expiry::NEVER);
    let refused = world.host.engine.write(now, txn, name(&key), Some(b"x"), never);
    assert_eq!(refused, Err(SessionError::ReadOnly));
}

/// The time, so many milliseconds ago.
fn ago(world: &World, millis: u64) -> Timestamp {
    world.now.saturating_sub(Duration::from_millis(millis))
}

/// The primary is gone; the backup has told up to where it answers.
fn world_without_a_primary() -> (World, Timestamp) {
    let mut world = world_with_a_backup();
    let at = ago(&world, 150);
    closed(&mut world, at);
    world.host.engine.disconnected(world.now, SHARD);
    (world, at)
}

fn snapshot(world: &mut World, session: SessionId) -> (TxnHandle, Timestamp) {
    let txn = world.begin_with(session, OLD);
    (txn, world.host.engine.begin_timestamp(txn).unwrap())
}

/// Where snapshots of two sessions begin while the primary is gone: at first, and as time passes.
fn snapshots_without_a_primary() -> (Timestamp, Vec<Timestamp>) {
    let (mut world, at) = world_without_a_primary();
    let session = world.session();
    let mut begins = Vec::new();
    for pause in [0, 400, 2_000] {
        world.pass(Duration::from_millis(pause));
        let (txn, begin) = snapshot(&mut world, session);
        let (op, asked) = read(&mut world, txn);
        let Some((_, envelope)) = asked else { panic!("the backup is not asked at {begin}") };
        closed(&mut world, at);
        found(&mut world, &envelope);
        world.wait(op);
        world.committed(txn);
        begins.push(begin);
    }
    (at, begins)
}

#[test]
fn snapshots_begin_at_what_is_closed_while_a_primary_is_silent() {
    let (at, begins) = snapshots_without_a_primary();
    assert!(begins[0] < at, "half a second in the past is closed: {begins:?}");
    assert_eq!(begins[1..], [at, at], "and no further than that");
}

#[cfg(feature = "planted-bugs")]
#[test]
fn snapshots_above_what_is_closed_are_noticed() {
    use timestone_types::planted::{Bug, with};
    let (at, begins) = with(Bug::BeginsAboveClosed, snapshots_without_a_primary);
    assert!(begins[2] > at, "{begins:?}");
}

#[test]
fn what_a_server_has_told_that_is_no_backup_any_more_counts_no_longer() {
    const OTHER: ServerNumber = ServerNumber(3);
    // It has left the shard, or has become its primary.
    for (version, primary, replicas) in
        [(3, PRIMARY, vec![PRIMARY, OTHER]), (3, BACKUP, vec![BACKUP, OTHER])]
    {
        let (mut world, at) = world_without_a_primary();
        let session = world.session();
        world.pass(Duration::from_millis(400));
        assert_eq!(snapshot(&mut world, session).1, at);
        let map = routes(version, 1, 1)
            .with_servers(|_| Some(primary))
            .with_replicas(|_| replicas.clone());
        world.host.engine.set_routes(world.now, map);
        assert_eq!(snapshot(&mut world, session).1, ago(&world, 500), "nobody has told anything");
    }
}

#[test]
fn no_snapshot_is_older_than_it_may_be() {
    let (mut world, at) = world_without_a_primary();
    let session = world.session();
    world.pass(Duration::from_millis(2_500));
    assert_eq!(snapshot(&mut world, session).1, at);
    world.pass(Duration::from_millis(500));
    let begin = snapshot(&mut world, session).1;
    assert_eq!(begin, ago(&world, 500), "nobody can answer what may be asked");
}

/// A backup that has just started tells zero, and a snapshot may be as old as it likes.
#[test]
fn no_snapshot_begins_where_a_backup_has_closed_nothing() {
    let mut world = world_with_a_backup();
    closed(&mut world, Timestamp::ZERO);
    world.host.engine.disconnected(world.now, SHARD);
    let session = world.session();
    let options = TxnOptions { max_staleness: Some(Duration::MAX), ..OLD };
    for pause in [0, 1_000] {
        world.pass(Duration::from_millis(pause));
        closed(&mut world, Timestamp::ZERO);
        let txn = world.begin_with(session, options);
        let begin = world.host.engine.begin_timestamp(txn).unwrap();
        assert_eq!(begin, ago(&world, 500), "as if nobody could be asked");
    }
    world.host.engine.connected(world.now, SHARD);
    world.shards[0].reports.clear();
    closed(&mut world, Timestamp::ZERO);
    world.pass(Duration::from_millis(200));
    let reports = &world.shards[0].reports;
    assert!(!reports.is_empty() && reports.iter().all(|report| report.2 > Timestamp::ZERO));
}

#[test]
fn a_snapshot_that_is_not_closed_is_given_up_and_the_next_one_is_answered() {
    let mut world = world_with_a_backup();
    let session = world.session();
    let txn = world.begin_with(session, OLD);
    let (op, asked) = read(&mut world, txn);
    let (begin, envelope) = asked.unwrap();
    world.host.engine.disconnected(world.now, SHARD);
    let at = begin.saturating_sub(Duration::from_millis(100));
    closed(&mut world, at);
    refuse(&mut world, &envelope);
    assert!(matches!(world.wait(op), Outcome::Failed(SessionError::Busy { .. })));
    assert_eq!(world.host.engine.stats().above_closed, 1);
    let (next, begin) = snapshot(&mut world, session);
    assert_eq!(begin, at, "what was given up has shown nothing");
    world.pass(limits::BACKUP_PAUSE);
    assert_eq!(read(&mut world, next).1.map(|(asked, _)| asked), Some(at));
}

#[test]
fn all_reads_of_a_snapshot_that_is_given_up_hear_that_a_retry_is_worth_while() {
    let mut world = world_with_a_backup();
    let session = world.session();
    let txn = world.begin_with(session, OLD);
    let (first, asked) = read(&mut world, txn);
    let (begin, envelope) = asked.unwrap();
    let (other, key) = (world.op(), world.key_on(0, 2));
    let step = world.host.engine.get(world.now, txn, SPACE, &key, other);
    assert_eq!(pending(step), Ok(true));
    world.host.engine.disconnected(world.now, SHARD);
    closed(&mut world, begin.saturating_sub(Duration::from_millis(100)));
    refuse(&mut world, &envelope);
    for op in [other, first] {
        let outcome = world.wait(op);
        assert!(matches!(outcome, Outcome::Failed(SessionError::Busy { .. })), "{outcome:?}");
    }
}

#[test]
fn a_session_that_has_seen_more_than_is_closed_waits_for_a_primary() {
    let (mut world, at) = world_without_a_primary();
    let session = world.session();
    world.pass(Duration::from_secs(1));
    world.host.engine.saw(session, at).unwrap();
    let (txn, begin) = snapshot(&mut world, session);
    assert_eq!(begin, at.next());
    let (op, asked) = read(&mut world, txn);
    closed(&mut world, at);
    refuse(&mut world, &asked.unwrap().1);
    world.pass(Duration::from_secs(1));
    assert!(world.host.done.is_empty(), "it is answered by nobody");
    world.host.engine.connected(world.now, SHARD);
    assert!(matches!(world.wait(op), Outcome::Value(None, _)));
}

#[test]
fn a_primary_that_is_silent_over_its_connection_is_noticed() {
    let mut world = world_with_a_backup();
    let session = world.session();
    world.cut[0] = true;
    let at = ago(&world, 600);
    let txn = world.begin_with(session, OLD);
    let (op, asked) = read(&mut world, txn);
    let asked_at = world.now;
    closed(&mut world, at);
    refuse(&mut world, &asked.unwrap().1);
    let mut refusals = 0;
    while world.host.done.is_empty() && refusals < 100 {
        refusals += 1;
        world.pass(Duration::from_millis(10));
        let key = world.key_on(0, 1);
        if let Some((_, envelope)) = asked_of_backup(&mut world, &key) {
            closed(&mut world, at);
            refuse(&mut world, &envelope);
        }
    }
    assert!(matches!(world.wait(op), Outcome::Failed(SessionError::Busy { .. })));
    assert!(world.now.since(asked_at) < Duration::from_millis(600));
    assert_eq!(snapshot(&mut world, session).1, at);
}

/// How often the backup is asked how far it has come.
fn asked_how_far(world: &mut World) -> usize {
    let Some((_, outbox)) = world.host.engine.shards_mut().next_dirty_backup() else { return 0 };
    let bytes = std::mem::take(outbox);
    let frames = Frames::new(&bytes).map(Result::unwrap);
    frames.filter(|frame| frame.kind() == Kind::Ping).count()
}

#[test]
fn backups_that_tell_nothing_are_asked_how_far_they_have_come_while_that_is_wanted() {
    let mut world = world_with_a_backup();
    asked_how_far(&mut world);
    let session = world.session();
    for _ in 0..10 {
        snapshot(&mut world, session);
        world.pass(Duration::from_millis(100));
    }
    let asked = asked_how_far(&mut world);
    assert!((8..=11).contains(&asked), "with each report: {asked}");
    for _ in 0..10 {
        snapshot(&mut world, session);
        let at = ago(&world, 150);
        world.pass(Duration::from_millis(20));
        closed(&mut world, at);
    }
    assert!(asked_how_far(&mut world) <= 1, "it tells with its answers");
    world.pass(Duration::from_secs(4));
    let asked = asked_how_far(&mut world);
    assert!(asked <= 21, "nobody wants to know: {asked}");
}

/// A server that is asked nothing else owes an answer to that, too: who hangs is noticed.
#[test]
fn a_backup_that_is_only_asked_how_far_it_has_come_owes_an_answer() {
    let mut world = world_with_a_backup();
    asked_how_far(&mut world);
    let session = world.session();
    let owed = |world: &World| world.host.engine.shards().backup_asked_since(BACKUP);
    let at = ago(&world, 150);
    closed(&mut world, at);
    assert_eq!(owed(&world), None);
    snapshot(&mut world, session);
    world.pass(Duration::from_secs(1));
    let since = owed(&world).expect("it was asked");
    assert!(world.now.since(since) >= Duration::from_millis(500), "since the first question");
    let (_, outbox) = world.host.engine.shards_mut().next_dirty_backup().expect("questions");
    let bytes = std::mem::take(outbox);
    let asked = Frames::new(&bytes).map(Result::unwrap).next().expect("a question");
    // One that is no backup yet refuses what has a number, and tells nothing.
    assert_ne!(asked.envelope().request, RequestId::NONE);
    let envelope = *asked.envelope();
    refuse(&mut world, &envelope);
    assert_eq!(owed(&world), None);
}
