//! Keys of other servers: over links that are lost, silent, refused, moved and slow.

use core::time::Duration;

use timestone_types::{ClientId, ClusterId};
use timestone_wire::{Kind, Role};

use super::host::Event;
use super::remote::{Dials, Remote};
use super::world::World;
use crate::limits::{OUTPUT_BOUND_BYTES, UNWRITTEN_BOUNDS};

fn world() -> World {
    let mut world = World::of_two();
    world.pass(Duration::from_millis(1));
    assert!(world.remote.connection.is_some(), "dialled before anybody asks");
    world
}

#[test]
fn every_key_is_served_at_one_gateway() {
    let mut world = world();
    assert_eq!(world.remote.greeted, [(Role::Client, ClusterId::new(1), ClientId::new(9))]);
    let (own, other) = (Remote::key(false, 0), Remote::key(true, 0));
    let client = world.connect();
    assert_eq!(world.ask(client, &format!("SET {other} a; GET {other}")), "+OK|$1|a|");
    assert_eq!(
        world.ask(client, &format!("MSET {own} b {other} c; MGET {own} {other}")),
        "+OK|*2|$1|b|$1|c|"
    );
    let exec = format!("MULTI; APPEND {own} x; APPEND {other} y; EXEC; GET {other}");
    assert_eq!(world.ask(client, &exec), "+OK|+QUEUED|+QUEUED|*2|:2|:2|$2|cy|");
    assert_eq!(world.ask(client, "DBSIZE"), ":2|");
    let keys = world.ask(client, "KEYS *");
    assert!(keys.starts_with("*2|") && keys.contains(&own) && keys.contains(&other), "{keys}");
    assert_eq!(world.ask(client, "FLUSHDB; DBSIZE"), "+OK|:0|");
    assert_eq!(world.admitted(), [(0, 0); 2], "what comes over links is counted out again");
}

#[test]
fn reports_go_to_the_shards_of_other_servers() {
    let mut world = world();
    let reports =
        |world: &World| world.remote.kinds.iter().filter(|kind| **kind == Kind::Report).count();
    let before = reports(&world);
    world.pass(Duration::from_secs(1));
    assert!(reports(&world) >= before + 9, "{:?}", world.remote.kinds);
    world.begin_shutdown();
    assert!(world.end(Duration::from_millis(500)).is_some());
    assert_eq!(world.remote.closed, [world.remote.connection.unwrap()]);
}

#[test]
fn a_write_that_is_repeated_on_a_new_link_is_the_same_write() {
    let mut world = world();
    let key = Remote::key(true, 0);
    let client = world.connect();
    world.remote.holds_answers = true;
    world.post(client, format!("SETNX {key} 1\r\nINCR {key}\r\n").as_bytes());
    world.settle();
    assert_eq!(world.remote.held.len(), 1, "carried out, and the answer is on its way");
    Remote::cut(&mut world);
    world.remote.holds_answers = false;
    assert_eq!(world.wait(client), ":1|:2|", "it was absent when it was set: once");
    assert_eq!(world.remote.asked[0], world.remote.asked[1]);
    assert_eq!(world.ask(client, &format!("GET {key}")), "$1|2|");
    assert_eq!(world.remote.greeted.len(), 2);
}

#[test]
fn an_answer_that_comes_over_a_link_that_was_given_up_is_not_looked_at() {
    let mut world = world();
    let key = Remote::key(true, 0);
    let client = world.connect();
    assert_eq!(world.ask(client, &format!("SET {key} old")), "+OK|");
    (world.remote.holds_answers, world.remote.loses_requests) = (true, false);
    world.post(client, format!("GET {key}\r\n").as_bytes());
    world.settle();
    assert_eq!(world.remote.held.len(), 1);
    // Nothing is heard: the link is given up, and what was on its way arrives late.
    world.remote.loses_requests = true;
    world.pass(Duration::from_millis(5_500));
    assert_eq!(world.remote.aborted.len(), 1);
    for late in core::mem::take(&mut world.remote.held) {
        world.arrive(late);
    }
    assert_eq!(world.text(client), "");
    (world.remote.holds_answers, world.remote.loses_requests) = (false, false);
    assert_eq!(world.wait(client), "$3|old|");
    assert_eq!(world.admitted(), [(0, 0); 2]);
}

#[test]
fn while_a_server_is_down_its_keys_wait_and_no_others() {
    let mut world = world();
    let (own, other) = (Remote::key(false, 0), Remote::key(true, 0));
    let waiting = [(); 3].map(|()| world.connect());
    let two = world.connect();
    world.remote.dials = Dials::Refused;
    Remote::cut(&mut world);
    let commands = [format!("SET {other} a"), format!("GET {other}"), "DBSIZE".to_owned()];
    for (&client, command) in waiting.iter().zip(&commands) {
        world.post(client, format!("{command}\r\n").as_bytes());
    }
    world.pass(Duration::from_secs(5));
    assert!(waiting.iter().all(|&client| world.text(client).is_empty()));
    assert_eq!(world.ask(two, &format!("SET {own} b; GET {own}; MGET {own}")), "+OK|$1|b|*1|$1|b|");
    world.pass(Duration::from_millis(5_100));
    for (&client, command) in waiting.iter().zip(&commands) {
        let answer = world.text(client);
        assert!(answer.starts_with("-TRYAGAIN no answer came"), "{command}: {answer}");
    }
    // Pauses between attempts grow.
    let dialled: Vec<_> = world.remote.dialled.iter().map(|(_, at)| *at).collect();
    assert!((8..16).contains(&dialled.len()), "{dialled:?}");
    world.remote.dials = Dials::Welcomed;
    assert_eq!(world.ask(two, &format!("GET {other}")), "$-1|", "nothing was done");
    assert_eq!(world.ask(two, &format!("SET {other} c")), "+OK|");
}

#[test]
fn who_is_of_another_cluster_or_says_nothing_is_asked_nothing() {
    for dials in [Dials::Strangers, Dials::Unanswered] {
        let mut world = World::of_two();
        world.remote.dials = dials;
        let client = world.connect();
        world.post(client, format!("SET {} a\r\n", Remote::key(true, 0)).as_bytes());
        world.pass(Duration::from_millis(5_500));
        assert!(!world.remote.aborted.is_empty());
        assert!(world.remote.greeted.len() > 1, "{dials:?}: dialled anew");
        assert_eq!(world.remote.kinds, [], "{dials:?}");
        world.remote.dials = Dials::Welcomed;
        world.pass(Duration::from_secs(6));
        assert_eq!(
            world.text(client).split(' ').next().map(str::to_owned),
            Some(match dials {
                Dials::Strangers => "+OK|".to_owned(),
                _ => "-TRYAGAIN".to_owned(),
            })
        );
        assert_eq!(world.ask(client, &format!("SET {} a", Remote::key(true, 0))), "+OK|");
    }
}

#[test]
fn a_server_that_has_moved_is_dialled_where_it_is() {
    let mut world = world();
    let key = Remote::key(true, 0);
    let client = world.connect();
    let first = world.remote.connection.unwrap();
    world.remote.loses_requests = true;
    world.post(client, format!("SET {key} a\r\n").as_bytes());
    world.settle();
    world.remote.loses_requests = false;
    world.event(Event::MapChanged(Remote::map(2, "10.0.0.9:7400").into()));
    assert_eq!(world.wait(client), "+OK|");
    assert_eq!(world.remote.aborted, [first]);
    assert_eq!(world.remote.dialled.last().unwrap().0, "10.0.0.9:7400".parse().unwrap());
    // An older map changes nothing.
    world.event(Event::MapChanged(Remote::map(1, Remote::ADDRESS).into()));
    world.pass(Duration::from_secs(1));
    assert_eq!(world.remote.dialled.len(), 2);
}

#[test]
fn a_shard_that_comes_to_another_server_is_asked_there() {
    let mut world = world();
    // The other server answers for it as this one did: a reference shard of the same number.
    let client = world.connect();
    let key = Remote::key(true, 1);
    assert_eq!(world.ask(client, &format!("SET {key} a")), "+OK|");
    let first = world.remote.connection.unwrap();
    // All shards are this server's; the third has no stage here, so nobody is asked for it.
    world.event(Event::MapChanged(Remote::map_from(2, Remote::ADDRESS, 3).into()));
    let refused = world.ask(client, &format!("GET {key}"));
    assert!(refused.starts_with("-CLUSTERDOWN shard 2 is served by server 1"), "{refused}");
    assert_eq!(world.remote.aborted, [first], "a link to nobody's server is ended");
    world.event(Event::MapChanged(Remote::map(3, Remote::ADDRESS).into()));
    assert_eq!(world.ask(client, &format!("GET {key}")), "$1|a|");
}

#[test]
fn a_server_that_reads_nothing_is_sent_no_more_than_the_bound() {
    let mut world = world();
    let key = Remote::key(true, 0);
    (world.remote.reads_nothing, world.remote.loses_requests) = (true, true);
    let value = "x".repeat(1024 * 1024);
    let clients: Vec<_> = (0..24).map(|_| world.connect()).collect();
    for (number, &client) in clients.iter().enumerate() {
        let key = Remote::key(true, number);
        world.post(client, format!("SET {key} {value}\r\n").as_bytes());
        world.settle();
    }
    world.pass(Duration::from_millis(4_500));
    let bound = UNWRITTEN_BOUNDS * OUTPUT_BOUND_BYTES;
    assert!(
        (bound..bound + 25 * 1024 * 1024).contains(&world.remote.bytes),
        "{}",
        world.remote.bytes
    );
    // The link is given up; over the next one all are carried out.
    (world.remote.reads_nothing, world.remote.loses_requests) = (false, false);
    for &client in &clients {
        assert_eq!(world.wait(client), "+OK|");
    }
    assert_eq!(world.ask(clients[0], &format!("STRLEN {key}")), ":1048576|");
}

#[test]
fn commands_wait_for_a_link_that_stands_again() {
    let mut world = world();
    let (own, other) = (Remote::key(false, 0), Remote::key(true, 0));
    let client = world.connect();
    world.remote.dials = Dials::Refused;
    Remote::cut(&mut world);
    world.post(client, format!("MSET {own} a {other} b\r\n").as_bytes());
    world.pass(Duration::from_millis(100));
    assert_eq!(world.text(client), "");
    world.remote.dials = Dials::Welcomed;
    assert_eq!(world.wait(client), "+OK|");
    assert_eq!(world.ask(client, "DBSIZE"), ":2|");
}
