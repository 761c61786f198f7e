//! What peers, hosts and applications may do without bringing the engine down: answers that nobody
//! asked, that come late or twice, that name times which no clock shows, and calls in any order.

use timestone_session::{Condition, OpResult, RequestOptions, SessionError, Step, TxnOptions};
use timestone_types::{Expiry, ShardId, Timestamp, Version};
use timestone_wire::{Envelope, Frames, Message, Value};

use crate::Requests;
use crate::world::{Application, Outcome, SPACE, World, pending, world};

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
    let end = world.commit(txn);
    assert!(matches!(end, Outcome::Unknown(_)), "{end:?}");
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
