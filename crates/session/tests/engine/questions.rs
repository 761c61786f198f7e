//! What a transaction asks of a shard that concerns no single key.

use std::time::Duration;

use timestone_session::{SessionError, TxnHandle, TxnOptions};
use timestone_types::{AbortKind, Epoch, ShardId};
use timestone_wire::{Envelope, Message, Newest, RequestId};

use crate::Requests;
use crate::failures::refuse_as_too_old;
use crate::world::{Application, Outcome, SPACE, World, pending, world};

/// Asks a shard something at the snapshot of a transaction.
fn ask_within(world: &mut World, txn: TxnHandle) -> Outcome {
    let (op, now, first) = (world.op(), world.now, ShardId::new(0));
    let step = world.host.engine.ask_within(now, txn, first, op, |request, out| {
        let (epoch, request) = (Epoch::new(1), RequestId::new(request));
        let envelope = Envelope { shard: first, epoch, request, ..Envelope::default() };
        Newest { keyspace: SPACE }.encode(&envelope, out);
    });
    let begun = pending(step);
    world.outcome(op, begun)
}

/// *Otherwise* a transaction that begins with a scan is refused as often as it is tried again.
#[test]
fn a_question_at_a_snapshot_below_the_watermark_teaches_the_session() {
    let mut world = world(1);
    let session = world.session();
    let txn = world.begin(session);
    let watermark = refuse_as_too_old(&mut world);
    let Outcome::Aborted { reason, .. } = ask_within(&mut world, txn) else { panic!("answered") };
    assert_eq!((reason.kind, reason.at), (AbortKind::TooOld, watermark));
    world.host.engine.abort(txn);
    let next = world.begin(session);
    assert!(world.host.engine.begin_timestamp(next).unwrap() > watermark);
}

#[test]
fn a_question_of_a_transaction_is_given_up_at_its_deadline() {
    let mut world = world(1);
    let session = world.session();
    let (began, span) = (world.now, Duration::from_millis(200));
    let deadline = Some(began.saturating_add(span));
    let txn = world.begin_with(session, TxnOptions { deadline, ..TxnOptions::default() });
    assert_eq!(world.host.engine.deadline(txn), Ok(deadline));
    world.cut[0] = true;
    let Outcome::Failed(error) = ask_within(&mut world, txn) else { panic!("answered") };
    let waited = world.now.since(began);
    assert!(waited >= span && waited < 2 * span, "{waited:?}: {error}");
    world.host.engine.abort(txn);
    assert_eq!(world.host.engine.deadline(txn), Err(SessionError::NoTransaction));
    assert_eq!(ask_within(&mut world, txn), Outcome::Failed(SessionError::NoTransaction));
}
