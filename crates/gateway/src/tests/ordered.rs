//! A gateway of a named keyspace: when it is served, and what the order of its keys is good for.

use std::collections::BTreeSet;
use std::time::Duration;

use timestone_cluster::{IndexKind, Keyspace, KeyspaceName, KeyspaceOptions};
use timestone_types::KeyspaceId;

use super::world::{Client, World};

const SPACE: KeyspaceId = KeyspaceId::numbered(4, false).ordered();

fn wanted() -> Keyspace {
    let options = KeyspaceOptions { index: IndexKind::Ordered, ..KeyspaceOptions::DEFAULT };
    Keyspace { id: SPACE, name: KeyspaceName::new("wanted").unwrap(), options }
}

/// A gateway of a keyspace whose keys are in order.
fn ordered(called: u16) -> World {
    let mut world = World::serving("wanted", called);
    world.keyspaces.push(wanted());
    world.settle();
    world
}

fn fill(world: &mut World, client: Client, keys: impl Iterator<Item = String>) {
    let mut count = 0;
    for key in keys {
        world.post(client, format!("SET {key} x\r\n").as_bytes());
        count += 1;
        if count % 500 == 0 {
            world.settle();
        }
    }
    assert_eq!(world.text(client), "+OK|".repeat(count));
}

/// The pages of a scan: of each, its keys.
fn pages(world: &mut World, client: Client, options: &str) -> Vec<Vec<String>> {
    let (mut pages, mut cursor) = (Vec::new(), "0".to_owned());
    loop {
        let answer = world.ask(client, &format!("SCAN {cursor} {options}"));
        let mut lines = answer.split('|').skip(2);
        cursor = lines.next().unwrap().to_owned();
        let is_key = |line: &&str| !line.is_empty() && !line.starts_with(['$', '*']);
        pages.push(lines.filter(is_key).map(str::to_owned).collect());
        if cursor == "0" {
            return pages;
        }
        assert!(pages.len() < 1000, "it goes on for ever");
    }
}

fn ranges(world: &World) -> u32 {
    world.wishes.lock().unwrap().seen.get("range").copied().unwrap_or(0)
}

#[test]
fn commands_on_keys_wait_for_nothing_while_the_keyspace_is_missing() {
    let mut world = World::serving("wanted", 1);
    let client = world.connect();
    assert!(world.ask(client, "GET a").starts_with("-TRYAGAIN "), "the node was not asked yet");
    world.settle();
    for command in ["GET a", "SET a 1", "MGET a b", "INCR a", "KEYS *", "DBSIZE", "WATCH a"] {
        let answer = world.ask(client, command);
        assert!(answer.starts_with("-ERR there is no keyspace 'wanted'"), "{command}: {answer}");
        assert!(answer.contains("timestone keyspace create wanted"), "{answer}");
    }
    assert!(world.ask(client, "PING; MULTI; SET a 1; EXEC").ends_with("previous errors.|"));
    world.keyspaces.push(wanted());
    world.pass(Duration::from_secs(1));
    assert_eq!(world.ask(client, "SET a 1; INCR a; GET a; DBSIZE"), "+OK|:2|$1|2|:1|");
    // What is dropped and made anew is another one, of which a running server knows nothing.
    world.keyspaces.clear();
    world.pass(Duration::from_secs(5));
    assert_eq!(world.ask(client, "GET a"), "$1|2|");
}

#[test]
fn a_named_keyspace_is_served_as_the_default_one_is() {
    for called in [0, 3] {
        let mut world = ordered(called);
        let client = world.connect();
        assert_eq!(world.ask(client, "RANDOMKEY; DBSIZE; KEYS *"), "$-1|:0|*0|");
        fill(&mut world, client, (0..40).map(|n| format!("k{n}")));
        assert_eq!(
            world.ask(client, "MULTI; INCR n; INCR n; EXEC; GET k7; DBSIZE").lines().count(),
            1
        );
        assert_eq!(world.ask(client, "GET n; DBSIZE; STRLEN k3; DEL k1 k2"), "$1|2|:41|:1|:2|");
        assert!(world.ask(client, "RANDOMKEY").starts_with("$"));
        assert_eq!(
            world.ask(client, "WATCH n; MULTI; SET n 5; EXEC; GET n").matches("OK").count(),
            3
        );
        assert_eq!(world.ask(client, "FLUSHDB; DBSIZE; KEYS *; GET n"), "+OK|:0|*0|$-1|");
    }
}

#[test]
fn keys_come_in_their_order_out_of_the_range_of_the_pattern() {
    let mut world = ordered(0);
    let client = world.connect();
    let names = ["a", "user:1", "user:10", "user:2", "user:x", "user;", "z", "user*", "user"];
    fill(&mut world, client, names.into_iter().map(str::to_owned));
    assert_eq!(world.ask(client, "KEYS user:*"), "*4|$6|user:1|$7|user:10|$6|user:2|$6|user:x|");
    assert_eq!(world.ask(client, "KEYS user:?"), "*3|$6|user:1|$6|user:2|$6|user:x|");
    assert_eq!(world.ask(client, "KEYS user\\*"), "*1|$5|user*|");
    assert_eq!(world.ask(client, "KEYS user"), "*1|$4|user|");
    assert_eq!(world.ask(client, "KEYS *r"), "*1|$4|user|");
    let mut sorted = names;
    sorted.sort_unstable();
    let all = world.ask(client, "KEYS *");
    let found: Vec<&str> = all.split('|').skip(2).step_by(2).collect();
    assert_eq!(found, sorted);
    assert!(ranges(&world) >= 6 * u32::from(super::world::SHARDS));
    // Of thousands of keys, in several pages of each shard.
    fill(&mut world, client, (0..5000).map(|n| format!("many:{n:05}")));
    let all = world.ask(client, "KEYS many:*");
    let found: Vec<String> = all.split('|').skip(2).step_by(2).map(str::to_owned).collect();
    assert_eq!(found, (0..5000).map(|n| format!("many:{n:05}")).collect::<Vec<_>>());
}

#[test]
fn a_scan_of_a_prefix_reads_its_range_and_finds_each_key_once() {
    let mut world = ordered(0);
    let client = world.connect();
    fill(&mut world, client, (0..300).map(|n| format!("a:{n:03}")));
    fill(&mut world, client, (0..300).map(|n| format!("b:{n:03}")));
    let before = ranges(&world);
    let pages = pages(&mut world, client, "MATCH a:* COUNT 7");
    assert!(pages.len() > 10 && pages.iter().all(|page| page.len() <= 3 * 7), "{pages:?}");
    let found: Vec<String> = pages.concat();
    assert_eq!(found, (0..300).map(|n| format!("a:{n:03}")).collect::<Vec<_>>());
    assert_eq!(ranges(&world) - before, 3 * pages.len() as u32);
    // Without something to go by, or of another type, as anywhere.
    let all: BTreeSet<String> =
        self::pages(&mut world, client, "COUNT 50").concat().into_iter().collect();
    assert_eq!(all.len(), 600);
    let of_type = self::pages(&mut world, client, "MATCH a:1* TYPE list");
    assert_eq!(of_type.concat().len(), 0);
    assert_eq!(ranges(&world) - before, 3 * (pages.len() + of_type.len()) as u32);
}

/// Keys that are alike for longer than a cursor can say.
#[test]
fn a_scan_of_keys_that_begin_alike_ends_and_misses_none() {
    let mut world = ordered(0);
    let client = world.connect();
    fill(&mut world, client, (0..60).map(|n| format!("a:zero-padded-{n:012}")));
    fill(&mut world, client, (0..60).map(|n| format!("b:{n}")));
    // All of a window comes in one page.
    let some = pages(&mut world, client, "MATCH a:* COUNT 5");
    assert_eq!(some.concat().len(), 60);
    // More of them than some pages hold: the scan goes through all keys.
    let many = (0..16_000).map(|n| format!("a:zero-padded-{n:012}")).collect::<Vec<_>>();
    fill(&mut world, client, many.iter().cloned());
    let before = ranges(&world);
    let found: BTreeSet<String> =
        pages(&mut world, client, "MATCH a:* COUNT 500").concat().into_iter().collect();
    assert_eq!(found, many.into_iter().collect());
    assert!(ranges(&world) - before <= 3 * 4, "it asks in vain no longer");
}

#[test]
fn any_gateway_takes_a_scan_on_and_a_cursor_of_another_pattern_misses_nothing() {
    let fill_all = |world: &mut World, client| {
        fill(
            world,
            client,
            (0..100).map(|n| format!("a:{n:03}")).chain((0..9).map(|n| n.to_string())),
        );
    };
    let (mut one, mut other) = (ordered(0), ordered(3));
    let (client, beside) = (one.connect(), other.connect());
    fill_all(&mut one, client);
    fill_all(&mut other, beside);
    let answer = one.ask(client, "SCAN 0 MATCH a:* COUNT 4");
    let cursor = answer.split('|').nth(2).unwrap().to_owned();
    assert_eq!(
        one.ask(client, &format!("SCAN {cursor} MATCH a:* COUNT 4")),
        other.ask(beside, &format!("SCAN {cursor} MATCH a:* COUNT 4")),
    );
    // It says nothing of other patterns.
    let all = one.ask(client, &format!("SCAN {cursor} COUNT 1000"));
    assert!(all.matches("a:").count() > 20, "from the beginning of all keys: {all}");
}

#[test]
fn a_cursor_that_cannot_go_on_is_refused_at_once() {
    let mut world = World::new();
    let client = world.connect();
    fill(&mut world, client, (0..40).map(|n| format!("k{n}")));
    world.wishes.lock().unwrap().lost_cursors = true;
    let answer = world.ask(client, "SCAN 7");
    assert!(answer.starts_with("-ERR invalid cursor: ") && answer.contains("cursor 0"), "{answer}");
    assert!(world.ask(client, "SCAN 0").contains("k1"), "the beginning is no place");
}

/// Two servers behind one address, of which one serves a keyspace whose keys are in order and the other one
/// does not: no scan ends before it has come to its end.
#[test]
fn a_scan_does_not_go_on_in_a_keyspace_of_another_kind() {
    let (mut one, mut other) = (ordered(0), World::new());
    let (client, beside) = (one.connect(), other.connect());
    for (world, client) in [(&mut one, client), (&mut other, beside)] {
        fill(world, client, (0..100).map(|n| format!("a:{n:03}")));
    }
    for options in ["COUNT 4", "MATCH a:* COUNT 4"] {
        let begin = format!("SCAN 0 {options}");
        let cursors = [one.ask(client, &begin), other.ask(beside, &begin)]
            .map(|answer| answer.split('|').nth(2).unwrap().to_owned());
        let go_on = |cursor: &str| format!("SCAN {cursor} {options}");
        assert!(one.ask(client, &go_on(&cursors[0])).starts_with("*2|"));
        assert!(other.ask(beside, &go_on(&cursors[1])).starts_with("*2|"));
        for answer in [one.ask(client, &go_on(&cursors[1])), other.ask(beside, &go_on(&cursors[0]))]
        {
            let says = ["-ERR invalid cursor: ", "another keyspace", "--resp-keyspace", "cursor 0"];
            assert!(says.iter().all(|part| answer.contains(part)), "{options}: {answer}");
        }
    }
}
