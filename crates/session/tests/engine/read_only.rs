//! Where what only reads commits, for comparisons: Centiman's validation in the client below the watermark, and
//! validation by shards.

use std::time::Duration;

use timestone_session::{EngineConfig, ReadOnlyCommit};
use timestone_types::{ClientId, Expiry, Timestamp, Version};
use timestone_wire::Kind;

use crate::Requests;
use crate::world::{Application, World, name, world_with};
use timestone_testkit::BEGIN;

const OTHER: ClientId = ClientId::new(99);

fn centiman(every: u32) -> World {
    let config = EngineConfig {
        read_only: ReadOnlyCommit::BelowWatermark { every },
        report_interval: Duration::from_secs(3600),
        ..EngineConfig::default()
    };
    let mut world = world_with(2, config, 7);
    world.pass(Duration::from_millis(1));
    world
}

/// So long before the world begins.
fn before(micros: u64) -> Timestamp {
    BEGIN.saturating_sub(Duration::from_micros(micros))
}

fn write(world: &mut World, shard: usize, key: &[u8], at: Timestamp) {
    world.shards[shard].written_by_other(key, Version::new(at, OTHER), b"value");
}

/// Shards tell these watermarks, and the client hears of them.
fn told(world: &mut World, watermarks: [Timestamp; 2]) {
    for (shard, at) in world.shards.iter_mut().zip(watermarks) {
        shard.watermark = at;
    }
    let session = world.session();
    let txn = world.begin(session);
    world.committed(txn);
    world.pass(Duration::from_millis(5));
}

/// Reads a key of each shard; whether that committed in the client.
fn reads_locally(world: &mut World, keys: [&[u8]; 2]) -> bool {
    let (locally, prepares) = (world.host.engine.stats().committed_locally, prepares(world));
    let session = world.session();
    let txn = world.begin(session);
    for key in keys {
        world.value(txn, key);
    }
    world.committed(txn);
    let is_local = world.host.engine.stats().committed_locally == locally + 1;
    assert_eq!(is_local, prepares == self::prepares(world), "who does not commit locally asks");
    is_local
}

fn prepares(world: &World) -> u32 {
    world.shards.iter().map(|shard| shard.seen(Kind::Prepare)).sum()
}

#[test]
fn what_was_read_below_the_watermark_of_every_shard_commits_in_the_client() {
    let mut world = centiman(1);
    let (a, b) = (world.key_on(0, 0), world.key_on(1, 0));
    write(&mut world, 0, &a, before(300));
    write(&mut world, 1, &b, before(200));
    assert!(!reads_locally(&mut world, [&a, &b]), "no watermark was told");
    told(&mut world, [before(100), before(200)]);
    assert!(!reads_locally(&mut world, [&a, &b]), "one version is at the lowest watermark");
    told(&mut world, [before(100), before(199)]);
    assert!(reads_locally(&mut world, [&a, &b]));
    write(&mut world, 0, &a, before(99));
    assert!(!reads_locally(&mut world, [&a, &b]), "one version is younger");
}

#[test]
fn the_watermark_is_the_one_that_was_known_before_the_first_read() {
    let mut world = centiman(1);
    let (a, b) = (world.key_on(0, 0), world.key_on(1, 0));
    write(&mut world, 0, &a, before(300));
    let session = world.session();
    let txn = world.begin(session);
    world.value(txn, &a);
    world.value(txn, &b);
    told(&mut world, [before(1), before(1)]);
    let asked = prepares(&world);
    world.committed(txn);
    assert!(prepares(&world) > asked, "what became known since proves nothing of what was read");
}

#[test]
fn what_expires_is_validated_by_its_shards() {
    let mut world = centiman(1);
    let (a, b) = (world.key_on(0, 0), world.key_on(1, 0));
    let now = world.now;
    told(&mut world, [now, now]);
    assert!(reads_locally(&mut world, [&a, &b]), "nothing was there, and that is old enough");
    let session = world.session();
    let txn = world.begin(session);
    let expires = Expiry::at(world.now.saturating_add(Duration::from_secs(3600)));
    world.host.engine.write(world.now, txn, name(&a), Some(b"value"), expires).unwrap();
    world.committed(txn);
    world.pass(Duration::from_millis(5));
    let now = world.now;
    told(&mut world, [now, now]);
    assert!(!reads_locally(&mut world, [&a, &b]));
}

#[test]
fn what_only_reads_can_be_validated_with_a_record_and_a_decision_or_without() {
    for (read_only, decides) in [(ReadOnlyCommit::Remotely, 0), (ReadOnlyCommit::Recorded, 2)] {
        let mut world = world_with(2, EngineConfig { read_only, ..EngineConfig::default() }, 7);
        let (a, b) = (world.key_on(0, 0), world.key_on(1, 0));
        assert!(!reads_locally(&mut world, [&a, &b]));
        world.pass(Duration::from_millis(5));
        let decided: u32 = world.shards.iter().map(|shard| shard.seen(Kind::Decide)).sum();
        assert_eq!((prepares(&world), decided), (2, decides), "{read_only:?}");
    }
}

#[test]
fn reports_come_after_so_many_transactions_and_are_answered() {
    let mut world = centiman(3);
    let before = world.shards[0].reports.len();
    for number in 1..=7 {
        told(&mut world, [BEGIN, BEGIN]);
        assert_eq!(world.shards[0].reports.len() - before, number / 3, "after {number}");
    }
}
