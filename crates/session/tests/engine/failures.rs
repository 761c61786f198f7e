//! What servers and networks do to a client: refusals, losses, restarts, clocks; and what the
//! client reports.

use std::time::Duration;

use timestone_session::{
    Condition, Mutation, RequestOptions, SessionError, Step, TxnOptions, TxnStatus,
};
use timestone_types::{
    AbortKind, AbortReason, ClientId, Epoch, Expiry, Sequence, ShardId, Timestamp, TxnId, limits,
};
use timestone_wire::{ErrorCode, Frame, Kind};

use crate::Requests;
use crate::world::{Application, Outcome, SPACE, World, name, pending, routes, world};
use timestone_testkit::{BEGIN, ReferenceShard, Refuse};

fn refuse(code: ErrorCode, detail: u64, retry_after: Duration, times: u32) -> Option<Refuse> {
    Some(Refuse { code, detail, retry_after, times })
}

/// The first shard refuses the next request as below its watermark: that.
pub(crate) fn refuse_as_too_old(world: &mut World) -> Timestamp {
    let watermark = world.now.saturating_add(Duration::from_millis(100));
    world.shards[0].refuse =
        refuse(ErrorCode::SnapshotTooOld, watermark.as_nanos(), Duration::ZERO, 1);
    watermark
}

#[test]
fn a_busy_server_is_asked_again_after_the_time_it_names() {
    let mut world = world(1);
    let session = world.session();
    world.shards[0].refuse = refuse(ErrorCode::Busy, 0, Duration::from_millis(20), 2);
    let txn = world.begin(session);
    assert_eq!(world.value(txn, b"k"), None);
    let waited = world.now.since(BEGIN);
    assert!(
        waited >= Duration::from_millis(40) && waited < Duration::from_millis(60),
        "{waited:?}"
    );
    world.shards[0].refuse = refuse(ErrorCode::Unavailable, 0, Duration::ZERO, 3);
    world.put(txn, b"k", b"v");
    world.committed(txn);
    assert_eq!(world.shards[0].latest(b"k"), Some(&b"v"[..]));
}

#[test]
fn a_clock_far_ahead_is_told_and_never_retried() {
    let lead = Duration::from_secs(3);
    let refusal = refuse(ErrorCode::ClockAhead, lead.as_nanos() as u64, Duration::ZERO, 1);
    let mut world = world(1);
    let session = world.session();
    world.shards[0].refuse = refusal;
    let txn = world.begin(session);
    let ahead = Outcome::Failed(SessionError::ClockAhead { lead });
    assert_eq!(world.get(txn, b"k"), ahead);
    assert_eq!(
        world.get(txn, b"k"),
        Outcome::Failed(SessionError::NoTransaction),
        "the transaction is over"
    );
    world.shards[0].refuse = refusal;
    assert_eq!(world.read_latest(session, b"k", RequestOptions::default()), ahead);
    world.shards[0].refuse = refusal;
    assert_eq!(
        world.write(session, b"k", b"v", Condition::Always, RequestOptions::default()),
        ahead
    );
    world.shards[0].refuse = refusal;
    let txn = world.begin(session);
    world.put(txn, b"k", b"v");
    assert_eq!(world.commit(txn), ahead);
    assert_eq!((world.shards[0].seen(Kind::Get), world.shards[0].seen(Kind::Write)), (2, 1));
    assert_eq!(world.shards[0].latest(b"k"), None);
}

#[test]
fn a_snapshot_below_the_watermark_aborts_with_the_key_and_the_watermark() {
    let mut world = world(1);
    let session = world.session();
    let txn = world.begin(session);
    let watermark = refuse_as_too_old(&mut world);
    let Outcome::Aborted { reason, key, .. } = world.get(txn, b"k") else {
        panic!("a snapshot that is gone is read")
    };
    assert_eq!((reason.kind, reason.at, key), (AbortKind::TooOld, watermark, Some(b"k".to_vec())));
    assert_eq!(world.commit(txn), Outcome::Failed(SessionError::NoTransaction));
    let next = world.begin(session);
    assert!(world.host.engine.begin_timestamp(next).unwrap() > watermark);
}

#[test]
fn an_outdated_map_is_noticed_and_what_waited_goes_to_the_right_place() {
    let mut world = world(2);
    let session = world.session();
    let (a, b) = (world.key_on(0, 0), world.key_on(1, 0));
    for shard in &mut world.shards {
        shard.epoch = Epoch::new(2);
    }
    let txn = world.begin(session);
    let op = world.op();
    assert!(matches!(world.host.engine.get(world.now, txn, SPACE, &a, op), Ok(Step::Pending(_))));
    world.pass(Duration::from_millis(5));
    assert!(world.host.engine.shards().wants_routes() && world.host.done.is_empty());
    world.host.engine.set_routes(world.now, routes(2, 2, 2));
    assert!(!world.host.engine.shards().wants_routes());
    assert!(matches!(world.wait(op), Outcome::Value(None, _)));
    world.put(txn, &a, b"1");
    world.put(txn, &b, b"2");
    for shard in &mut world.shards {
        shard.epoch = Epoch::new(3);
    }
    let op = world.op();
    assert_eq!(pending(world.host.engine.commit(world.now, txn, op)), Ok(true));
    world.pass(Duration::from_millis(5));
    assert!(world.host.engine.shards().wants_routes());
    world.host.engine.set_routes(world.now, routes(3, 2, 3));
    assert!(matches!(world.wait(op), Outcome::Committed(..)));
    world.pass(Duration::from_millis(5));
    assert_eq!(world.shard_of(&b).latest(&b), Some(&b"2"[..]));
}

#[test]
fn a_lost_connection_fails_nothing_and_everything_is_asked_again_on_the_next() {
    let mut world = world(2);
    let session = world.session();
    let (a, b) = (world.key_on(0, 0), world.key_on(1, 0));
    let (txn, other) = (world.begin(session), world.begin(session));
    world.put(txn, &a, b"1");
    world.put(txn, &b, b"2");
    let (read, commit, write) = (world.op(), world.op(), world.op());
    world.cut[1] = true;
    assert_eq!(pending(world.host.engine.get(world.now, other, SPACE, &b, read)), Ok(true));
    assert_eq!(pending(world.host.engine.commit(world.now, txn, commit)), Ok(true));
    world.host.engine.disconnected(world.now, ShardId::new(1));
    let mutation = timestone_session::Mutation::Delete;
    let options = RequestOptions::default();
    let begun = world.host.engine.write_if(
        world.now,
        session,
        SPACE,
        &b,
        mutation,
        Condition::Always,
        options,
        write,
    );
    assert_eq!(pending(begun), Ok(true));
    world.pass(Duration::from_millis(600));
    assert!(world.host.done.is_empty() && world.shards[1].frames_seen.is_empty());
    world.cut[1] = false;
    world.host.engine.connected(world.now, ShardId::new(1));
    assert!(matches!(world.wait(read), Outcome::Value(..)));
    assert!(matches!(world.wait(commit), Outcome::Committed(..)));
    assert!(matches!(world.wait(write), Outcome::Written(..)));
}

#[test]
fn a_participant_that_stays_away_is_resolved_by_the_others_and_nothing_stays_promised() {
    let mut world = world(2);
    let session = world.session();
    let (a, b) = (world.key_on(0, 0), world.key_on(1, 0));
    let txn = world.begin(session);
    world.put(txn, &a, b"1");
    world.put(txn, &b, b"2");
    world.cut[1] = true;
    let Outcome::Aborted { reason, .. } = world.commit(txn) else {
        panic!("committed without a participant")
    };
    assert_eq!(reason.kind, AbortKind::Terminated);
    assert!(world.host.engine.stats().terminations > 0);
    world.cut[1] = false;
    world.pass(Duration::from_secs(5));
    assert!(world.shards.iter().all(ReferenceShard::is_settled));
    assert_eq!((world.shards[0].latest(&a), world.shards[1].latest(&b)), (None, None));
    assert_eq!(world.host.engine.unresolved(), 0);
}

#[test]
fn a_commit_that_nobody_answers_is_unknown_and_its_outcome_is_told_later() {
    let mut world = world(2);
    let session = world.session();
    let (a, b) = (world.key_on(0, 0), world.key_on(1, 0));
    let deadline = Some(world.now.saturating_add(Duration::from_secs(3)));
    let txn =
        world.begin_with(session, timestone_session::TxnOptions { deadline, ..Default::default() });
    world.put(txn, &a, b"1");
    world.put(txn, &b, b"2");
    world.cut = vec![true, true];
    let Outcome::Unknown(id) = world.commit(txn) else { panic!("told though nobody answers") };
    world.cut = vec![false, false];
    world.pass(Duration::from_secs(10));
    assert_eq!(world.host.engine.unresolved(), 0);
    let op = world.op();
    let begun = pending(world.host.engine.status(world.now, id, RequestOptions::default(), op));
    assert_eq!(world.outcome(op, begun), Outcome::Status(TxnStatus::Aborted));
    world.cut = vec![true, true];
    let op = world.op();
    let begun = pending(world.host.engine.status(world.now, id, RequestOptions::default(), op));
    let before = world.now;
    assert_eq!(world.outcome(op, begun), Outcome::Status(TxnStatus::Aborted));
    assert!(
        world.now.since(before) < Duration::from_secs(1),
        "the engine itself has learned it meanwhile"
    );
}

#[test]
fn a_refusal_that_no_retry_mends_is_told_in_the_servers_words_and_nothing_is_left() {
    let mut world = world(2);
    let session = world.session();
    let (a, b) = (world.key_on(0, 0), world.key_on(1, 0));
    let txn = world.begin(session);
    world.put(txn, &a, b"1");
    world.put(txn, &b, b"2");
    world.shards[1].refuse = refuse(ErrorCode::KeyspaceUnknown, 0, Duration::ZERO, 1);
    let Outcome::Failed(error) = world.commit(txn) else { panic!("committed into nothing") };
    assert_eq!((error.code(), error.retryable()), (Some(ErrorCode::KeyspaceUnknown), false));
    world.pass(Duration::from_secs(1));
    assert!(world.shards.iter().all(ReferenceShard::is_settled));
}

#[test]
fn a_refused_copy_had_no_effect_unless_an_earlier_one_may_have_been_carried_out() {
    let mut world = world(1);
    let session = world.session();
    let write = |world: &mut World| world.put_later(session, b"k", RequestOptions::default());
    // Every copy was answered.
    let op = write(&mut world);
    world.shards[0].refuse = refuse(ErrorCode::Busy, 0, Duration::ZERO, 1);
    while world.shards[0].seen(Kind::Write) == 0 {
        world.pass(Duration::from_micros(100));
    }
    world.shards[0].refuse = refuse(ErrorCode::DeviceFull, 0, Duration::ZERO, 1);
    let Outcome::Failed(error) = world.wait(op) else {
        panic!("it is known that nothing was written")
    };
    assert_eq!(error.code(), Some(ErrorCode::DeviceFull));
    // The first one was not.
    for met in
        [ErrorCode::DeviceFull, ErrorCode::Corrupt, ErrorCode::StorageFailed, ErrorCode::ClockAhead]
    {
        world.cut[0] = true;
        let op = write(&mut world);
        world.pass(Duration::from_millis(500));
        world.cut[0] = false;
        world.shards[0].refuse = refuse(met, 0, Duration::ZERO, 1);
        assert!(
            matches!(world.wait(op), Outcome::Unknown(_)),
            "{met}: nobody knows where the first copy is"
        );
    }
    // The shard knows, and cannot tell all of it.
    let op = write(&mut world);
    world.shards[0].refuse = refuse(ErrorCode::UnknownOutcome, 0, Duration::ZERO, 1);
    assert!(matches!(world.wait(op), Outcome::Unknown(_)));
}

/// The test above can fail: with the bug, what a copy met is told as what became of the write.
#[cfg(feature = "planted-bugs")]
#[test]
fn a_copy_that_fails_for_all_is_found() {
    use timestone_types::planted::{Bug, set};
    set(Some(Bug::FailsForCopies));
    let mut world = world(1);
    let session = world.session();
    world.cut[0] = true;
    let op = world.put_later(session, b"k", RequestOptions::default());
    world.pass(Duration::from_millis(500));
    world.cut[0] = false;
    world.shards[0].refuse = refuse(ErrorCode::Corrupt, 0, Duration::ZERO, 1);
    let told = world.wait(op);
    set(None);
    assert!(matches!(told, Outcome::Failed(_)), "{told:?}");
}

/// A write whose copies meet a restart: the first one is refused or lost, the second one is told
/// `met`; or, for `None`, the vote that it is too old. What the application is told, and the
/// watermark of then.
fn told_after_a_restart(first_is_lost: bool, met: Option<ErrorCode>) -> (Outcome, Timestamp) {
    let mut world = world(1);
    let session = world.session();
    let watermark = world.now.saturating_add(Duration::from_secs(1));
    world.cut[0] = first_is_lost;
    world.shards[0].refuse =
        refuse(ErrorCode::Unavailable, 0, Duration::from_millis(20), u32::from(!first_is_lost));
    let op = world.put_later(session, b"k", RequestOptions::default());
    world.pass(Duration::from_millis(10));
    assert!(world.host.done.is_empty(), "told at once: {:?}", world.host.done);
    match met {
        Some(code) => {
            world.shards[0].refuse = refuse(code, watermark.as_nanos(), Duration::ZERO, 1)
        }
        None => {
            let txn = TxnId::new(ClientId::new(3), Sequence::new(1));
            world.shards[0]
                .refused(txn, AbortReason { at: watermark, ..AbortReason::of(AbortKind::TooOld) });
        }
    }
    world.cut[0] = false;
    (world.wait(op), watermark)
}

/// After a restart the watermark may be ahead of the client's clock: the first copy is told to
/// wait, the second one begins anew, and below the watermark as well.
#[test]
fn a_write_that_is_too_old_was_not_carried_out_when_all_earlier_copies_were_refused() {
    for met in [None, Some(ErrorCode::SnapshotTooOld)] {
        let (told, watermark) = told_after_a_restart(false, met);
        let Outcome::Aborted { reason, .. } = told else { panic!("no server has it: {told:?}") };
        assert_eq!(
            (reason.kind, reason.at),
            (AbortKind::TooOld, watermark),
            "tried again, it begins above"
        );
    }
    let (told, _) = told_after_a_restart(false, Some(ErrorCode::ClockBehind));
    assert!(
        matches!(&told, Outcome::Failed(error) if error.code() == Some(ErrorCode::ClockBehind)),
        "{told:?}"
    );
    for met in [None, Some(ErrorCode::SnapshotTooOld), Some(ErrorCode::ClockBehind)] {
        let (told, _) = told_after_a_restart(true, met);
        assert!(
            matches!(told, Outcome::Unknown(_)),
            "{met:?}: the first copy may have been carried out, {told:?}"
        );
    }
}

/// The test above can fail: with the bug, a write that is too old counts as forgotten however its
/// earlier copies were answered.
#[cfg(feature = "planted-bugs")]
#[test]
fn a_refused_write_that_counts_as_forgotten_is_found() {
    use timestone_types::planted::{Bug, set};
    for met in [None, Some(ErrorCode::SnapshotTooOld), Some(ErrorCode::ClockBehind)] {
        set(Some(Bug::DoubtsRefusals));
        let (told, _) = told_after_a_restart(false, met);
        set(None);
        assert!(matches!(told, Outcome::Unknown(_)), "{told:?}");
    }
}

#[test]
fn an_ended_session_is_told_and_the_next_client_id_goes_on() {
    let mut world = world(1);
    let session = world.session();
    world.shards[0].refuse = refuse(ErrorCode::SessionEnded, 0, Duration::ZERO, 2);
    let txn = world.begin(session);
    let open = world.begin(session);
    assert_eq!(world.get(txn, b"k"), Outcome::Failed(SessionError::SessionEnded));
    assert!(world.host.engine.wants_client());
    let write = world.write(session, b"k", b"v", Condition::Always, RequestOptions::default());
    assert!(matches!(write, Outcome::Unknown(_)), "it may have been executed before: {write:?}");
    world.host.engine.renew_client(world.now, timestone_types::ClientId::new(8));
    assert!(!world.host.engine.wants_client());
    assert_eq!(world.commit(open), Outcome::Failed(SessionError::NoTransaction));
    let Outcome::Written(_, txn, _) =
        world.write(session, b"k", b"v", Condition::Always, RequestOptions::default())
    else {
        panic!("the new id does not write")
    };
    assert_eq!((txn.client.get(), txn.sequence), (8, Sequence::new(1)));
}

#[test]
fn every_shard_hears_often_enough_what_may_still_be_used_and_what_is_acknowledged() {
    let mut world = world(2);
    let session = world.session();
    let old = world.begin(session);
    let began = world.host.engine.begin_timestamp(old).unwrap();
    world.pass(Duration::from_secs(1));
    for n in 0..3 {
        let txn = world.begin(session);
        world.put(txn, format!("k{n}").as_bytes(), b"v");
        world.committed(txn);
    }
    world.pass(Duration::from_secs(1));
    for shard in &world.shards {
        let gaps = shard.reports.windows(2).map(|pair| pair[1].0.since(pair[0].0)).max().unwrap();
        assert!(gaps <= limits::REPORT_INTERVAL + Duration::from_millis(1), "{gaps:?}");
        assert!(
            shard.reports.iter().all(|report| report.2 <= began),
            "the open transaction holds the watermark"
        );
        assert_eq!(shard.reports.last().unwrap().3, Sequence::new(3));
    }
    world.host.engine.abort(old);
    world.pass(Duration::from_millis(200));
    let (at, _, watermark, _) = *world.shards[0].reports.last().unwrap();
    assert!(at.since(watermark) <= Duration::from_millis(1), "an idle client reports its now");
}

#[test]
fn a_write_that_no_server_was_sent_had_no_effect_and_says_so() {
    let mut world = world(1);
    let (key, session) = (world.key_on(0, 0), world.session());
    world.host.engine.disconnected(world.now, ShardId::new(0));
    assert!(!world.host.engine.shards().is_connected(ShardId::new(0)));
    let put = Mutation::Put { value: b"v", expires_at: Expiry::NEVER };
    let (op, options) = (world.op(), RequestOptions::default());
    let begun = world
        .host
        .engine
        .write_if(world.now, session, SPACE, &key, put, Condition::Always, options, op)
        .map(|_| true);
    assert_eq!(world.outcome(op, begun), Outcome::Failed(SessionError::DeadlineExceeded));
    world.host.engine.connected(world.now, ShardId::new(0));
    let found = world.read_latest(session, &key, options);
    assert!(matches!(found, Outcome::Value(None, _)), "{found:?}");
}

#[test]
fn reports_go_only_where_the_host_says() {
    let mut world = world(2);
    world.host.engine.shards_mut().reach_only(&[ShardId::new(1)]);
    world.host.engine.connected(world.now, ShardId::new(0));
    world.host.engine.set_routes(world.now, routes(2, 3, 1));
    world.shards.push(ReferenceShard::new(ShardId::new(2)));
    world.cut.push(false);
    world.pass(limits::REPORT_INTERVAL * 10);
    world.host.engine.close(world.now);
    world.pass(Duration::from_millis(1));
    let reports: Vec<usize> = world.shards.iter().map(|shard| shard.reports.len()).collect();
    assert!(reports[0] == 0 && reports[1] >= 10 && reports[2] == 0, "{reports:?}");
}

#[test]
fn what_a_host_has_no_way_to_is_refused_at_once_by_name_and_holds_nothing_back() {
    let mut world = world(2);
    let (own, other) = (world.key_on(1, 0), world.key_on(0, 0));
    let session = world.session();
    world.host.engine.shards_mut().reach_only(&[ShardId::new(1)]);
    world.host.engine.shards_mut().name_server(ShardId::new(0), "server 7 (redis://10.0.0.7:7401)");
    world.host.engine.shards_mut().name_server(ShardId::new(1), "nobody, for it can be reached");
    let options = RequestOptions::default();
    let said = |error: Result<(), SessionError>| error.unwrap_err().to_string();
    let put = Mutation::Put { value: b"v", expires_at: Expiry::NEVER };
    let op = world.op();
    let write = world
        .host
        .engine
        .write_if(world.now, session, SPACE, &other, put, Condition::Always, options, op)
        .map(drop);
    assert!(said(write).starts_with("shard 0 is served by server 7 (redis://10.0.0.7:7401)"));
    let read =
        world.host.engine.get_latest(world.now, session, SPACE, &other, options, op).map(drop);
    assert!(said(read).contains("nothing was done"));
    let txn = world.host.engine.begin(world.now, session, TxnOptions::default()).unwrap();
    said(world.host.engine.get(world.now, txn, SPACE, &other, op).map(drop));
    said(world.host.engine.write(world.now, txn, name(&other), Some(b"v"), Expiry::NEVER));
    said(world.host.engine.fence(world.now, txn, SPACE));
    said(world.host.engine.ask(world.now, ShardId::new(0), options, op, |_, _| {}).map(drop));
    world.host.engine.abort(txn);
    assert_eq!(world.host.engine.unresolved(), 0, "a host that shuts down waits for nothing of it");
    assert!(matches!(world.read_latest(session, &own, options), Outcome::Value(..)));
    world.pass(Duration::from_secs(30));
    let (at, _, watermark, _) = *world.shards[1].reports.last().unwrap();
    assert!(at.since(watermark) <= Duration::from_millis(1), "nothing refused holds the watermark");
}

#[test]
fn that_nobody_knows_a_transaction_is_said_only_when_everybody_was_asked() {
    let mut world = world(3);
    let txn = "1f-2a".parse().unwrap();
    let ask = |world: &mut World| {
        let op = world.op();
        let asked =
            world.host.engine.status(world.now, txn, RequestOptions::default(), op).map(drop);
        assert_eq!(asked, Ok(()));
        world.wait(op)
    };
    assert_eq!(ask(&mut world), Outcome::Status(TxnStatus::Unknown));
    (world.cut[0], world.cut[2]) = (true, true);
    match ask(&mut world) {
        Outcome::Failed(error @ SessionError::Silent { .. }) => {
            assert!(
                error.retryable() && error.to_string().starts_with("shards 0, 2 did not answer"),
                "{error}"
            );
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_shard_owes_an_answer_from_the_first_request_until_anything_comes_from_it() {
    let mut world = world(3);
    let (zero, one) = (ShardId::new(0), ShardId::new(1));
    let session = world.session();
    world.pass(limits::REPORT_INTERVAL * 2);
    assert_eq!(
        world.host.engine.shards().asked_since(&[zero, one]),
        None,
        "reports are not answered"
    );
    world.cut[0] = true;
    let (a, b) = (world.key_on(0, 0), world.key_on(1, 0));
    let (begun, op) = (world.now, world.op());
    let options = RequestOptions::default();
    let read = world.host.engine.get_latest(world.now, session, SPACE, &a, options, op);
    assert_eq!(pending(read), Ok(true));
    world.pass(Duration::from_secs(3));
    assert_eq!(
        world.host.engine.shards().asked_since(&[zero]),
        Some(begun),
        "repetitions do not count"
    );
    assert!(matches!(world.read_latest(session, &b, options), Outcome::Value(..)));
    assert_eq!(world.host.engine.shards().asked_since(&[one]), None, "it has answered");
    assert_eq!(
        world.host.engine.shards().asked_since(&[one, zero, ShardId::new(2), ShardId::new(77)]),
        Some(begun)
    );
    // The host gives the connection up and makes another one: what was asked is asked there.
    world.host.engine.disconnected(world.now, zero);
    assert_eq!(world.host.engine.shards().asked_since(&[zero]), None);
    world.pass(Duration::from_secs(1));
    world.cut[0] = false;
    let again = world.now;
    world.host.engine.connected(again, zero);
    assert_eq!(world.host.engine.shards().asked_since(&[zero]), Some(again));
    assert!(matches!(world.wait(op), Outcome::Value(..)));
    assert_eq!(world.host.engine.shards().asked_since(&[zero]), None);
}

#[test]
fn every_request_of_a_commit_is_owed_an_answer() {
    let mut world = world(2);
    let both = [ShardId::new(0), ShardId::new(1)];
    let session = world.session();
    let (a, b) = (world.key_on(0, 0), world.key_on(1, 0));
    let txn = world.begin(session);
    world.put(txn, &a, b"1");
    world.put(txn, &b, b"2");
    let (begun, op) = (world.now, world.op());
    assert_eq!(pending(world.host.engine.commit(world.now, txn, op)), Ok(true));
    assert_eq!(
        both.map(|shard| world.host.engine.shards().asked_since(&[shard])),
        [Some(begun); 2]
    );
    assert!(matches!(world.wait(op), Outcome::Committed(..)));
    let decided = world.host.engine.shards().asked_since(&both);
    assert!(
        decided.is_some_and(|decided| decided > begun),
        "the decisions are acknowledged: {decided:?}"
    );
    world.pass(Duration::from_millis(1));
    assert_eq!(world.host.engine.shards().asked_since(&both), None);
    assert_eq!(world.host.engine.unresolved(), 0);
}

#[test]
fn what_is_under_way_is_not_acknowledged() {
    let mut world = world(2);
    let session = world.session();
    let (a, b) = (world.key_on(0, 0), world.key_on(1, 0));
    let txn = world.begin(session);
    let began = world.host.engine.begin_timestamp(txn).unwrap();
    world.put(txn, &a, b"1");
    world.put(txn, &b, b"2");
    let op = world.op();
    assert_eq!(pending(world.host.engine.commit(world.now, txn, op)), Ok(true));
    world.pass(Duration::from_micros(120));
    world.cut[1] = true;
    assert!(matches!(world.wait(op), Outcome::Committed(..)), "both votes came before the cut");
    world.pass(Duration::from_secs(1));
    let (at, _, watermark, acked) = *world.shards[0].reports.last().unwrap();
    assert_eq!(
        acked,
        Sequence::ZERO,
        "shard 1 has not acknowledged the decision, and may ask shard 0 for it"
    );
    assert!(
        at.since(watermark) <= Duration::from_millis(1),
        "shard 0 has, and nothing more is used there"
    );
    let heard = world.shards[1].reports.len();
    world.cut[1] = false;
    world.pass(Duration::from_secs(5));
    let (_, _, first, _) = world.shards[1].reports[heard];
    assert_eq!(first, began, "what shard 1 has not acknowledged holds it");
    let (_, _, watermark, acked) = *world.shards[1].reports.last().unwrap();
    assert!(watermark > began);
    assert_eq!(acked, Sequence::new(1));
    assert_eq!(world.shards[1].latest(&b), Some(&b"2"[..]));
}

#[test]
fn a_write_without_an_end_holds_its_own_shard_and_no_other() {
    let mut world = world(2);
    let session = world.session();
    let (a, b) = (world.key_on(0, 0), world.key_on(1, 0));
    // It hears what it is told, and takes nothing on; a copy before that is lost, so that nobody
    // knows what became of it.
    world.shards[1].refuse = refuse(ErrorCode::Busy, 0, Duration::ZERO, u32::MAX);
    let begun = world.now;
    world.cut[1] = true;
    let options = RequestOptions::default();
    let (op, asked) = world.begin_write(session, &b, b"lost", Condition::Always, options);
    world.pass(Duration::from_secs(1));
    world.cut[1] = false;
    let outcome = world.outcome(op, asked.map(|_| true));
    assert!(matches!(outcome, Outcome::Unknown(_)), "{outcome:?}");
    assert!(matches!(
        world.write(session, &a, b"here", Condition::Always, RequestOptions::default()),
        Outcome::Written(..)
    ));
    world.pass(Duration::from_secs(1));
    let (at, _, watermark, acked) = *world.shards[0].reports.last().unwrap();
    assert!(at.since(watermark) <= Duration::from_millis(1), "shard 0 has nothing to wait for");
    assert_eq!(acked, Sequence::new(2));
    let (_, _, watermark, acked) = *world.shards[1].reports.last().unwrap();
    assert!(
        watermark <= begun.saturating_add(Duration::from_millis(1)),
        "the write may still be made there"
    );
    assert_eq!(acked, Sequence::ZERO);
}

/// As when the shard asked one that had forgotten the commit, in a run without a log.
#[test]
fn a_decision_that_its_shard_contradicts_is_over_and_holds_no_watermark() {
    let mut world = world(2);
    let session = world.session();
    let (a, b) = (world.key_on(0, 0), world.key_on(1, 0));
    let txn = world.begin(session);
    world.put(txn, &a, b"1");
    world.put(txn, &b, b"2");
    let op = world.op();
    assert_eq!(pending(world.host.engine.commit(world.now, txn, op)), Ok(true));
    world.pass(Duration::from_micros(60));
    world.shards[1].refuse = refuse(ErrorCode::Internal, 0, Duration::ZERO, u32::MAX);
    assert!(matches!(world.wait(op), Outcome::Committed(..)));
    world.pass(Duration::from_secs(1));
    assert_eq!(
        world.shards[1].frames_seen.get(&Kind::Decide),
        Some(&1),
        "repeating it changes nothing"
    );
    let (at, _, watermark, acked) = *world.shards[1].reports.last().unwrap();
    assert!(at.since(watermark) <= Duration::from_millis(1), "it is not used there any more");
    assert_eq!(acked, Sequence::new(1));
}

#[test]
fn a_decision_that_overtakes_a_lost_promise_brings_the_write_set() {
    let mut world = world(2);
    let session = world.session();
    let (a, b) = (world.key_on(0, 0), world.key_on(1, 0));
    let txn = world.begin(session);
    world.put(txn, &a, b"1");
    world.put(txn, &b, b"2");
    let op = world.op();
    assert_eq!(pending(world.host.engine.commit(world.now, txn, op)), Ok(true));
    world.pass(Duration::from_micros(60));
    // The shard forgets its promise, as after the loss of a log that its operator has accepted.
    let mut empty = ReferenceShard::new(ShardId::new(1));
    std::mem::swap(&mut world.shards[1], &mut empty);
    assert!(matches!(world.wait(op), Outcome::Committed(..)));
    world.pass(Duration::from_secs(1));
    assert_eq!(world.shards[1].latest(&b), Some(&b"2"[..]));
    assert_eq!(world.shards[1].seen(Kind::WriteSet), 1);
    assert_eq!(world.host.engine.unresolved(), 0);
}

#[test]
fn time_that_runs_backwards_issues_no_timestamp_twice() {
    let mut world = world(1);
    let session = world.session();
    let mut last = Timestamp::ZERO;
    for back in [0u64, 5, 100, 3, 1_000_000] {
        let now = Timestamp::from_nanos(BEGIN.as_nanos() - back);
        let txn = world
            .host
            .engine
            .begin(now, session, timestone_session::TxnOptions::default())
            .unwrap();
        let begin = world.host.engine.begin_timestamp(txn).unwrap();
        assert!(begin > last);
        last = begin;
        world.host.engine.abort(txn);
    }
}

#[test]
fn garbage_is_counted_and_changes_nothing() {
    let mut world = world(1);
    let session = world.session();
    let txn = world.begin(session);
    let op = world.op();
    assert_eq!(pending(world.host.engine.get(world.now, txn, SPACE, b"k", op)), Ok(true));
    let asked = world.host.engine.shards_mut().outbox(ShardId::new(0)).unwrap().clone();
    let mut reply = Vec::new();
    world.shards[0].take(world.now, &asked, &mut reply);
    for at in 0..reply.len() {
        let mut damaged = reply.clone();
        damaged[at] ^= 0x55;
        if at < 24 {
            // The body stays whole; only whose reply it is changes.
            match Frame::parse(&damaged) {
                Ok(frame) => world.host.engine.deliver_frame(world.now, ShardId::new(0), &frame),
                Err(_) => assert!(world.host.engine.deliver_batch(world.now, &damaged).is_err()),
            }
        }
        let cut = world.host.engine.deliver_batch(world.now, &reply[..at]);
        assert_eq!(cut.is_err(), at > 0, "{at} bytes of a frame: {cut:?}");
        let whole = Frame::parse(&reply).unwrap();
        world.host.engine.deliver_frame(world.now, ShardId::new(9), &whole);
    }
    assert!(world.host.engine.stats().ignored_replies >= reply.len() as u64);
    assert!(matches!(world.wait(op), Outcome::Value(None, _)));
}

#[test]
fn a_clock_far_behind_is_told_by_its_name_and_never_retried() {
    let lag = Duration::from_secs(12);
    let mut world = world(1);
    world.shards[0].clock_ahead = Some(lag);
    let session = world.session();
    let too_old = |world: &World| {
        let watermark = world.now.saturating_add(Duration::from_secs(2));
        refuse(ErrorCode::SnapshotTooOld, watermark.as_nanos(), Duration::ZERO, 1)
    };
    let is_behind = |outcome: &Outcome| {
        let Outcome::Failed(SessionError::ClockBehind { lag: told }) = outcome else {
            panic!("told {outcome:?}")
        };
        // The answer takes a moment, in which this clock goes on.
        *told <= lag && *told + Duration::from_millis(1) > lag
    };
    world.shards[0].refuse = too_old(&world);
    let txn = world.begin(session);
    assert!(is_behind(&world.get(txn, b"k")));
    assert_eq!(
        world.get(txn, b"k"),
        Outcome::Failed(SessionError::NoTransaction),
        "the transaction is over"
    );
    world.shards[0].refuse = too_old(&world);
    assert!(is_behind(&world.write(
        session,
        b"k",
        b"v",
        Condition::Always,
        RequestOptions::default()
    )));
    world.shards[0].refuse = too_old(&world);
    let txn = world.begin(session);
    world.put(txn, b"k", b"v");
    assert!(is_behind(&world.commit(txn)));
    // A snapshot that is too old under a clock that is nearly right is told as what it is.
    world.shards[0].clock_ahead = Some(Duration::from_secs(9));
    let watermark = world.now.saturating_sub(Duration::from_millis(1));
    world.shards[0].refuse =
        refuse(ErrorCode::SnapshotTooOld, watermark.as_nanos(), Duration::ZERO, 1);
    let session = world.session();
    let txn = world.begin(session);
    assert!(matches!(world.get(txn, b"k"), Outcome::Aborted { .. }));
    assert_eq!(SessionError::ClockBehind { lag }.code(), Some(ErrorCode::ClientClockBehind));
}

#[test]
fn all_reads_of_a_snapshot_that_is_too_old_hear_that_a_retry_is_worth_while() {
    let mut world = world(1);
    let session = world.session();
    let watermark = world.now.saturating_sub(Duration::from_millis(1));
    world.shards[0].refuse =
        refuse(ErrorCode::SnapshotTooOld, watermark.as_nanos(), Duration::ZERO, 2);
    let txn = world.begin(session);
    let ops = [b"k", b"l"].map(|key| {
        let op = world.op();
        let step = world.host.engine.get(world.now, txn, SPACE, key, op);
        assert_eq!(pending(step), Ok(true));
        op
    });
    let outcomes = ops.map(|op| world.wait(op));
    let is_too_old = |outcome: &Outcome| match outcome {
        Outcome::Aborted { .. } => true,
        Outcome::Failed(error) => error.code() == Some(ErrorCode::SnapshotTooOld),
        _ => false,
    };
    assert!(outcomes.iter().all(is_too_old), "{outcomes:?}");
}
