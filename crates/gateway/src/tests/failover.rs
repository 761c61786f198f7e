//! Shards that other servers take over, while commands on their keys are under way.

use core::time::Duration;

use timestone_wire::{ErrorCode, Kind};

use super::host::Event;
use super::remote::Remote;
use super::world::World;

/// Where the third server is, which takes over from the second.
const THIRD: &str = "10.0.0.3:7400";

fn world() -> World {
    let mut world = World::of_two();
    world.pass(Duration::from_millis(1));
    assert!(world.remote.connection.is_some());
    // While the link was dialled, a shard had no server.
    assert!(world.pulls <= 1);
    world.pulls = 0;
    world.pass(Duration::from_secs(2));
    assert_eq!(world.pulls, 0, "all shards answer, and no map is asked for");
    world
}

/// A write that the other server has carried out, whose answer is on its way; another one behind
/// it, and a transaction with this server.
fn begun_commands(world: &mut World) -> [super::world::Client; 2] {
    let (own, other) = (Remote::key(false, 0), Remote::key(true, 0));
    let clients = [(); 2].map(|()| world.connect());
    world.remote.holds_answers = true;
    world.post(clients[0], format!("SETNX {other} 1\r\nINCR {other}\r\n").as_bytes());
    world.post(clients[1], format!("MSET {own} a {} b\r\n", Remote::key(true, 1)).as_bytes());
    world.settle();
    assert!(!world.remote.held.is_empty());
    clients
}

/// All of them were done, and once.
fn expect_done(world: &mut World, clients: [super::world::Client; 2]) {
    world.remote.holds_answers = false;
    assert_eq!(world.wait(clients[0]), ":1|:2|", "it was absent when it was set");
    assert_eq!(world.wait(clients[1]), "+OK|");
    let (own, other) = (Remote::key(false, 0), Remote::key(true, 1));
    assert_eq!(world.ask(clients[0], &format!("MGET {own} {other}")), "*2|$1|a|$1|b|");
    assert_eq!(world.ask(clients[0], "DBSIZE"), ":3|");
}

#[test]
fn commands_go_on_at_the_server_that_takes_over_from_one_that_died() {
    let mut world = world();
    let clients = begun_commands(&mut world);
    world.remote.dead = Some(Remote::ADDRESS.parse().unwrap());
    Remote::cut(&mut world);
    world.remote.held.clear();
    world.pass(Duration::from_millis(1_900));
    assert!((4..=20).contains(&world.pulls), "again and again: {}", world.pulls);
    assert!(clients.iter().all(|&client| world.text(client).is_empty()));
    world.newest = Some(Remote::map_after_failover(2, THIRD));
    let announced = world.now;
    expect_done(&mut world, clients);
    assert!(world.now.since(announced) < Duration::from_millis(700));
    assert_eq!(world.remote.dialled.last().unwrap().0, THIRD.parse().unwrap());
    let pulls = world.pulls;
    world.pass(Duration::from_secs(2));
    assert_eq!(world.pulls, pulls, "all shards answer again");
}

#[test]
fn map_comes_from_another_server_when_the_own_node_knows_nothing_new() {
    let mut world = world();
    let clients = begun_commands(&mut world);
    world.remote.held.clear();
    // It lives, and does not serve the shard any more.
    world.remote.loses_requests = true;
    world.pass(Duration::from_millis(450));
    assert!(world.remote.pulls >= 1, "its silence is noticed");
    let old = world.remote.connection.unwrap();
    world.remote.newest = Some(Remote::map_after_failover(2, THIRD));
    world.pass(Duration::from_millis(250));
    assert_eq!(world.remote.aborted, [old], "a link to nobody's server is ended");
    world.remote.loses_requests = false;
    expect_done(&mut world, clients);
    assert_eq!(world.newest, None);
}

#[test]
fn shard_that_does_not_serve_yet_is_waited_for() {
    for code in [ErrorCode::Unavailable, ErrorCode::StaleEpoch, ErrorCode::WrongShard] {
        let mut world = world();
        let (own, other) = (Remote::key(false, 0), Remote::key(true, 0));
        world.wishes.lock().unwrap().broken = Some(code);
        let client = world.connect();
        world.post(client, format!("SET {other} 1\r\nMSET {own} a {other} 2\r\n").as_bytes());
        world.pass(Duration::from_millis(1_900));
        assert_eq!(world.text(client), "", "{code:?}");
        assert!(world.pulls >= 4, "{code:?}: {}", world.pulls);
        world.wishes.lock().unwrap().broken = None;
        let begun = world.now;
        assert_eq!(world.wait(client), "+OK|+OK|", "{code:?}");
        assert!(world.now.since(begun) < Duration::from_millis(600), "{code:?}");
        assert_eq!(world.ask(client, &format!("GET {other}")), "$1|2|");
    }
}

#[test]
fn answer_of_the_old_primary_that_comes_after_the_map_is_not_looked_at() {
    let mut world = world();
    let key = Remote::key(true, 0);
    let client = world.connect();
    assert_eq!(world.ask(client, &format!("SET {key} old")), "+OK|");
    world.remote.holds_answers = true;
    world.post(client, format!("GET {key}\r\n").as_bytes());
    world.settle();
    world.remote.holds_answers = false;
    let late = core::mem::take(&mut world.remote.held);
    world.event(Event::MapChanged(Remote::map_after_failover(2, THIRD).into()));
    world.settle();
    for answer in late {
        world.arrive(answer);
    }
    assert_eq!(world.wait(client), "$3|old|");
    let reads = world.remote.kinds.iter().filter(|kind| **kind == Kind::Get).count();
    assert_eq!(reads, 2, "it was asked again at the new primary");
    assert_eq!(world.admitted(), [(0, 0); 2]);
}
