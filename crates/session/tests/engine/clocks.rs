//! What an engine learns of the servers' clocks, and how it asks where nobody asks anything else.

use std::time::Duration;

use timestone_clock::server_time::{Exchange, ServerNumber};
use timestone_session::{EngineConfig, limits};
use timestone_types::ShardId;
use timestone_wire::{
    ClockIs, Done, Envelope, ErrorCode, ErrorReply, Frames, Kind, Message as _, RequestId,
};

use crate::Requests as _;
use crate::world::{Application as _, SPACE, World, pending, routes, world_with};

/// What the frames of an outbox ask, by their kinds and numbers.
fn asked(world: &mut World, shard: ShardId) -> Vec<(Kind, RequestId)> {
    let bytes = std::mem::take(world.host.engine.shards_mut().outbox(shard).unwrap());
    let frames = Frames::new(&bytes).map(Result::unwrap);
    frames.map(|frame| (frame.kind(), frame.envelope().request)).collect()
}

/// What an exchange tells whose answer, with a reading in front of it or without one, is delivered.
fn told(world: &mut World, reading: Option<ClockIs>, answer: RequestId) -> Option<Exchange<'_>> {
    let envelope = Envelope { shard: ShardId::new(0), request: answer, ..Envelope::default() };
    let mut batch = Vec::new();
    let unasked = Envelope { shard: ShardId::new(0), ..Envelope::default() };
    reading.iter().for_each(|reading| reading.encode(&unasked, &mut batch));
    Done {}.encode(&envelope, &mut batch);
    world.host.engine.deliver_batch(world.now, &batch).unwrap();
    world.host.engine.shards_mut().arrived(world.now)
}

/// A world of one shard whose server is known, and that is asked for its clock; and the number of
/// the request that asks.
fn world_that_asks_for_clocks() -> (World, RequestId) {
    let config = EngineConfig { asks_clocks: true, ..EngineConfig::default() };
    let mut world = world_with(1, config, 7);
    let shard = ShardId::new(0);
    let served = routes(2, 1, 1).with_servers(|_| Some(ServerNumber(5)));
    world.host.engine.set_routes(world.now, served);
    let _ = asked(&mut world, shard);
    world.host.engine.connected(world.now, shard);
    let frames = asked(&mut world, shard);
    let [(Kind::Report, _), (Kind::Ping, ping)] = frames[..] else { panic!("{frames:?}") };
    (world, ping)
}

#[test]
fn a_server_whose_clock_was_not_read_lately_is_asked_for_that_alone() {
    let (mut world, ping) = world_that_asks_for_clocks();
    let (shard, sent) = (ShardId::new(0), world.now);
    world.host.engine.connected(world.now, shard);
    assert!(asked(&mut world, shard).iter().all(|(kind, _)| *kind != Kind::Ping), "asked twice");
    world.now = world.now.saturating_add(Duration::from_millis(3));
    let reading = ClockIs::new(sent.saturating_add(Duration::from_secs(9)), None);
    let server = ServerNumber(5);
    let servers = &[server];
    let exchange = Exchange { server, servers, sent, reading: reading.now, error: None };
    assert_eq!(told(&mut world, Some(reading), ping), Some(exchange));
    assert_eq!(world.host.engine.stats().ignored_replies, 0);
    // As long as something is known, nobody is asked.
    let pings = |world: &mut World| {
        world.host.engine.connected(world.now, shard);
        asked(world, shard).iter().filter(|(kind, _)| *kind == Kind::Ping).count()
    };
    world.now = world.now.saturating_add(limits::CLOCK_ASKED_AFTER - Duration::from_millis(1));
    assert_eq!(pings(&mut world), 0);
    world.now = world.now.saturating_add(Duration::from_millis(1));
    assert_eq!(pings(&mut world), 1);
}

#[test]
fn a_reading_of_a_clock_belongs_to_the_answers_of_its_own_batch() {
    let (mut world, ping) = world_that_asks_for_clocks();
    let reading = ClockIs::new(world.now, None);
    // The reading of another connection, with an answer that nobody waits for.
    assert_eq!(told(&mut world, Some(reading), RequestId::new(0)), None);
    // It may be older than the request that is answered over this one.
    assert_eq!(told(&mut world, None, ping), None);
    assert!(told(&mut world, Some(reading), ping).is_some());
}

/// Delivers frames that were written by hand, as one batch.
fn deliver<'a>(
    world: &'a mut World,
    peer: Option<ServerNumber>,
    batch: &[u8],
) -> Option<Exchange<'a>> {
    world.host.engine.shards_mut().begin_batch(peer);
    for frame in Frames::new(batch) {
        let frame = frame.unwrap();
        world.host.engine.deliver_frame(world.now, frame.envelope().shard, &frame);
    }
    world.host.engine.shards_mut().arrived(world.now)
}

/// A reading in the name of a shard, and the answer to a request of shard 0.
fn reading_of(shard: ShardId, world: &World, out: &mut Vec<u8>) {
    ClockIs::new(world.now, None).encode(&Envelope { shard, ..Envelope::default() }, out);
}

fn answer_to(request: RequestId) -> Envelope {
    Envelope { shard: ShardId::new(0), request, ..Envelope::default() }
}

#[test]
fn a_refusal_of_who_is_busy_is_no_exchange_and_readings_of_others_end_those_before() {
    let (mut world, ping) = world_that_asks_for_clocks();
    let shard = ShardId::new(0);
    // What a server says of itself begins another batch in the same bytes.
    let mut batch = Vec::new();
    reading_of(shard, &world, &mut batch);
    reading_of(timestone_wire::SERVER_ITSELF, &world, &mut batch);
    Done {}.encode(&answer_to(ping), &mut batch);
    assert_eq!(deliver(&mut world, None, &batch), None);
    // Who is busy has no reading, and the one before belongs to others.
    let mut batch = Vec::new();
    reading_of(shard, &world, &mut batch);
    let busy = ErrorReply::new(ErrorCode::Busy, "").with_retry_after(Duration::from_millis(1));
    busy.encode(&answer_to(ping), &mut batch);
    assert_eq!(deliver(&mut world, None, &batch), None);
    // It may be asked again: what comes then is measured from nowhere.
    let mut batch = Vec::new();
    reading_of(shard, &world, &mut batch);
    Done {}.encode(&answer_to(ping), &mut batch);
    assert_eq!(deliver(&mut world, None, &batch), None);
}

#[test]
fn a_server_tells_of_no_other_clock_than_its_own() {
    let (mut world, ping) = world_that_asks_for_clocks();
    let mut batch = Vec::new();
    reading_of(ShardId::new(0), &world, &mut batch);
    Done {}.encode(&answer_to(RequestId::new(0)), &mut batch);
    assert_eq!(deliver(&mut world, Some(ServerNumber(9)), &batch), None);
    let mut batch = Vec::new();
    reading_of(ShardId::new(0), &world, &mut batch);
    Done {}.encode(&answer_to(ping), &mut batch);
    let (mut other, _) = world_that_asks_for_clocks();
    assert_eq!(deliver(&mut other, Some(ServerNumber(9)), &batch), None);
    let exchange = deliver(&mut world, Some(ServerNumber(5)), &batch).expect("its own clock");
    assert_eq!(exchange.server, ServerNumber(5));
}

#[test]
fn a_read_that_is_asked_again_after_it_was_given_up_is_measured_from_its_first_copy() {
    let config =
        EngineConfig { default_deadline: Duration::from_secs(2), ..EngineConfig::default() };
    let mut world = world_with(1, config, 7);
    let (shard, sent) = (ShardId::new(0), world.now);
    let served = routes(2, 1, 1).with_servers(|_| Some(ServerNumber(5)));
    world.host.engine.set_routes(world.now, served);
    let session = world.session();
    let txn = world.begin(session);
    let _ = asked(&mut world, shard);
    let read = |world: &mut World| {
        let op = world.op();
        let begun = pending(world.host.engine.get(world.now, txn, SPACE, b"k", op));
        assert_eq!(begun, Ok(true));
        let frames = asked(world, shard);
        frames.iter().find(|(kind, _)| *kind == Kind::Get).expect("it is asked").1
    };
    let first = read(&mut world);
    world.now = sent.saturating_add(Duration::from_secs(3));
    world.host.engine.tick(world.now);
    let second = read(&mut world);
    assert_eq!(first, second);
    // The answer to the first copy.
    let mut batch = Vec::new();
    reading_of(shard, &world, &mut batch);
    Done {}.encode(&answer_to(first), &mut batch);
    let exchange = deliver(&mut world, None, &batch);
    assert!(exchange.is_none_or(|exchange| exchange.sent == sent), "{exchange:?}");
}
