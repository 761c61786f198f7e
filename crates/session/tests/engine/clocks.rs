//! What an engine learns of the servers' clocks, and how it asks where nobody asks anything else.

use std::time::Duration;

use timestone_clock::server_time::{Exchange, ServerNumber};
use timestone_session::{EngineConfig, limits};
use timestone_types::ShardId;
use timestone_wire::{ClockIs, Done, Envelope, Frames, Kind, Message as _, RequestId};

use crate::world::{World, routes, world_with};

/// What the frames of an outbox ask, by their kinds and numbers.
fn asked(world: &mut World, shard: ShardId) -> Vec<(Kind, RequestId)> {
    let bytes = std::mem::take(world.host.engine.shards_mut().outbox(shard).unwrap());
    let frames = Frames::new(&bytes).map(Result::unwrap);
    frames.map(|frame| (frame.kind(), frame.envelope().request)).collect()
}

/// What an exchange tells whose answer, with a reading in front of it or without one, is delivered.
fn told(world: &mut World, reading: Option<ClockIs>, answer: RequestId) -> Option<Exchange> {
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
    let exchange = Exchange { server, servers: 1, sent, reading: reading.now, error: None };
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
