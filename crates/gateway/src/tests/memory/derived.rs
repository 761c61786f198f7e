//! Values that commands make out of what is there.

use core::time::Duration;
use std::sync::Arc;

use timestone_seda::limits::MEMORY_TIMEOUT;
use timestone_seda::{Memory, MemoryUse};

use super::{MADE, VALUE, makers, making, short_answers};
use crate::tests::world::{Client, SHARDS, World, encode};

/// The longest batch of frames for a shard that commands make which all start at once.
fn longest_batch() -> usize {
    let mut world = World::new();
    let (client, other) = (short_answers(&mut world), world.connect());
    world.post(client, &makers(64, VALUE));
    world.post(other, b"PING\r\n");
    world.step();
    world.step();
    assert_eq!(world.output(other), b"+PONG\r\n");
    world.pass(Duration::from_millis(10));
    assert_eq!(world.output(client), b":1048576\r\n".repeat(64));
    world.wishes.lock().unwrap().longest_frame_batch
}

#[test]
fn all_jobs_together_have_one_share_of_a_turn() {
    let longest = longest_batch();
    assert!((VALUE..=6 * VALUE).contains(&longest), "{longest} bytes at once");
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_gateway_that_carries_out_all_its_jobs_in_one_turn_is_found_out() {
    let longest = timestone_types::planted::with(
        timestone_types::planted::Bug::BoundlessTurns,
        longest_batch,
    );
    assert!(longest > 10 * VALUE, "{longest} bytes at once");
}

#[test]
fn what_commands_make_is_counted_and_waits_for_memory_in_order() {
    let (mut world, client, used, prepares) = making(&makers(64, VALUE));
    assert!(
        used <= MADE / 2 + MADE / 16 && (3..=4).contains(&prepares),
        "{used} bytes, {prepares} commits"
    );
    let other = world.connect();
    assert_eq!(world.ask(other, "SET a 1; GET a; PING"), "+OK|$1|1|+PONG|", "others are served");
    world.wishes.lock().unwrap().hold_prepares = false;
    world.pass(Duration::from_secs(2));
    assert_eq!(world.output(client), b":1048576\r\n".repeat(64));
    world.disconnect(client);
    world.disconnect(other);
    assert_eq!(world.memory.used(MemoryUse::Input), 0);
}

#[test]
fn a_command_that_finds_no_memory_for_what_it_makes_is_told_and_does_nothing() {
    let mut world = World::with(SHARDS, Arc::new(Memory::new(MADE, u64::MAX, u64::MAX)));
    let client = short_answers(&mut world);
    let other = maker_in_progress(&mut world, 4 * VALUE);
    world.post(client, &[makers(3, VALUE), encode(&["INCR", "n"])].concat());
    world.pass(MEMORY_TIMEOUT - Duration::from_millis(10));
    assert_eq!(world.text(client), "");
    world.pass(Duration::from_millis(20));
    release_prepares(&mut world, 0);
    assert_eq!(world.text(other), ":4194304|");
    let refused = "-TRYAGAIN no memory was free for some seconds for the values that this command \
        makes; nothing was done, try it again later|";
    assert_eq!(world.text(client), format!("{}:1|", refused.repeat(3)));
    assert_eq!(world.ask(client, "EXISTS k0 k1 k2"), ":0|");
    // In time, it comes in the order of the commands.
    let other = maker_in_progress(&mut world, 4 * VALUE);
    world.post(client, &makers(3, VALUE));
    world.pass(MEMORY_TIMEOUT / 2);
    assert_eq!(world.text(client), "");
    release_prepares(&mut world, 0);
    assert_eq!(world.text(client), ":1048576|".repeat(3));
    assert_eq!(world.text(other), ":4194304|");
    assert_eq!(world.memory.used(MemoryUse::Input), 0);
}

#[test]
fn values_that_change_their_time_to_live_or_grow_are_made_anew() {
    for commands in [
        ["EXPIRE", "k", "100"],
        ["PEXPIRE", "k", "100000"],
        ["APPEND", "k", "x"],
        ["GETEX", "k", "PERSIST"],
    ] {
        let mut world = World::with(SHARDS, Arc::new(Memory::new(MADE, u64::MAX, u64::MAX)));
        let client = short_answers(&mut world);
        for n in 0..24 {
            world.post(
                client,
                &encode(&[
                    &b"SET"[..],
                    format!("k{n}").as_bytes(),
                    &vec![b'x'; VALUE],
                    b"EX",
                    b"1000",
                ]),
            );
            assert_eq!(world.wait(client), "+OK|");
        }
        world.wishes.lock().unwrap().hold_prepares = true;
        let [name, _, last] = commands;
        world.stop_reading(client);
        world.post(
            client,
            &(0..24).flat_map(|n| encode(&[name, &format!("k{n}"), last])).collect::<Vec<u8>>(),
        );
        world.pass(Duration::from_millis(200));
        let prepares =
            world.wishes.lock().unwrap().seen.get("prepare").copied().unwrap_or_default();
        assert!(
            (1..=8).contains(&prepares) && world.memory.used(MemoryUse::Input) <= MADE,
            "{name}: {prepares}"
        );
    }
}

#[test]
fn a_transaction_that_makes_more_than_there_is_memory_for_does_nothing() {
    let mut world = World::with(SHARDS, Arc::new(Memory::new(MADE, u64::MAX, u64::MAX)));
    let client = world.connect();
    // It is not alone.
    let other = maker_in_progress(&mut world, VALUE);
    world.post(client, &[encode(&["MULTI"]), makers(16, VALUE), encode(&["EXEC"])].concat());
    let answer = world.wait(client);
    assert_eq!(answer, format!("+OK|{}", "+QUEUED|".repeat(16)));
    assert!(world.wait(client).starts_with("-TRYAGAIN no memory was free"));
    assert_eq!(world.ask(client, "EXISTS k0"), ":0|");
    release_prepares(&mut world, 0);
    // As much as there is memory for, and the same value again and again.
    let again = makers(1, VALUE).repeat(100);
    world.post(client, &[encode(&["MULTI"]), makers(7, VALUE), again, encode(&["EXEC"])].concat());
    let answer = world.wait(client);
    assert!(
        answer.ends_with(&format!("*107|{}", ":1048576|".repeat(107))),
        "{}",
        &answer[..answer.len().min(2000)]
    );
    world.disconnect(client);
    world.disconnect(other);
    assert_eq!(world.memory.used(MemoryUse::Input), 0);
}

#[test]
fn whatever_one_command_alone_makes_has_room() {
    let mut world = World::with(SHARDS, Arc::new(Memory::new(MADE, u64::MAX, u64::MAX)));
    let client = world.connect();
    world.post(client, &makers(1, 16 * VALUE));
    assert_eq!(world.wait(client), ":16777216|");
    world.post(client, &[encode(&["MULTI"]), makers(1, 15 * VALUE), encode(&["EXEC"])].concat());
    assert_eq!(world.wait(client), "+OK|+QUEUED|*1|:16777216|");
}

/// A client whose value is made, and whose commit is not answered before prepares are.
fn maker_in_progress(world: &mut World, length: usize) -> Client {
    let client = world.connect();
    world.wishes.lock().unwrap().hold_prepares = true;
    world.post(client, &encode(&["SETRANGE", "under way", &(length - 1).to_string(), "x"]));
    world.settle();
    assert_eq!(world.text(client), "");
    client
}

/// Prepares are answered again; so many of them are refused, those that come at this moment.
fn release_prepares(world: &mut World, refused: u32) {
    let wishes = Arc::clone(&world.wishes);
    wishes.lock().unwrap().hold_prepares = false;
    wishes.lock().unwrap().refuse = refused;
    // Shards look at what they hold when something comes.
    let other = world.connect();
    world.post(other, &encode(&["DBSIZE"]));
    world.settle();
    world.disconnect(other);
    wishes.lock().unwrap().refuse = 0;
}

/// What makers are answered that are alone beside their own command, beside what another one
/// watches, and beside commands like them.
fn beside_what_waits() -> [String; 3] {
    let small = || World::with(SHARDS, Arc::new(Memory::new(4 * VALUE as u64, u64::MAX, u64::MAX)));
    let long = vec![b'x'; 3 * VALUE];
    let mut world = small();
    let client = world.connect();
    world.post(client, &encode(&[&b"SET"[..], b"k", &long]));
    assert_eq!(world.wait(client), "+OK|");
    world.post(client, &encode(&[&b"APPEND"[..], b"k", &long]));
    let own = world.wait(client);

    let mut world = World::with(SHARDS, Arc::new(Memory::new(MADE, u64::MAX, u64::MAX)));
    let (client, watcher) = (world.connect(), world.connect());
    assert_eq!(world.ask(watcher, "WATCH k"), "+OK|");
    world.post(client, &makers(1, 16 * VALUE));
    let watched = world.wait(client);

    let mut world = small();
    let client = short_answers(&mut world);
    for n in 0..16 {
        world.post(client, &encode(&[&b"SET"[..], format!("k{n}").as_bytes(), &long[..VALUE]]));
        assert_eq!(world.wait(client), "+OK|");
    }
    let append =
        |n: u32| encode(&[&b"APPEND"[..], format!("k{n}").as_bytes(), &long[..240 * 1024]]);
    world.post(client, &(0..16).flat_map(append).collect::<Vec<u8>>());
    world.pass(MEMORY_TIMEOUT + Duration::from_secs(1));
    [own, watched, world.text(client)]
}

#[test]
fn what_commands_make_does_not_wait_for_what_was_received() {
    let [own, watched, many] = beside_what_waits();
    assert_eq!((&*own, &*watched), (":6291456|", ":16777216|"));
    assert_eq!(many, format!(":{}|", VALUE + 240 * 1024).repeat(16));
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_gateway_whose_makers_wait_for_what_was_received_is_found_out() {
    let answers = timestone_types::planted::with(
        timestone_types::planted::Bug::GreedyMakers,
        beside_what_waits,
    );
    assert!(
        answers.iter().all(|answer| answer.contains("-TRYAGAIN no memory was free")),
        "{answers:?}"
    );
}

/// A client keeps commands under way that make values of this length, of which the shards commit
/// one a millisecond. Whether a long command of another one, in two pieces, and a transaction of a
/// third are carried out within a second.
fn beside_makers(length: usize) -> (bool, bool) {
    let mut world = World::with(SHARDS, Arc::new(Memory::new(MADE, u64::MAX, u64::MAX)));
    let client = short_answers(&mut world);
    let (long, multi) = (world.connect(), world.connect());
    world.wishes.lock().unwrap().hold_prepares = true;
    world.post(client, &makers(1500, length));
    world.pass(Duration::from_millis(20));
    let set = encode(&[&b"SET"[..], b"long", &vec![b'x'; 300 * 1024]]);
    let mut rest = Some(&set[150_000..]);
    world.post(long, &set[..150_000]);
    world.post(multi, &[encode(&["MULTI"]), set.clone(), encode(&["EXEC"])].concat());
    let (mut one, mut other) = (String::new(), String::new());
    for _ in 0..1000 {
        world.wishes.lock().unwrap().release_prepares = 1;
        world.pass(Duration::from_millis(1));
        if let Some(rest) = rest.take_if(|_| !world.paused.contains(&long)) {
            world.post(long, rest);
        }
        one += &world.text(long);
        other += &world.text(multi);
    }
    world.settle();
    (one == "+OK|" && world.closed.is_empty(), other == "+OK|+QUEUED|*1|+OK|")
}

#[test]
fn what_commands_make_does_not_keep_out_what_is_received() {
    for length in [VALUE / 4, 16 * VALUE] {
        assert_eq!(beside_makers(length), (true, true), "{length} bytes each");
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_gateway_whose_makers_keep_out_what_is_received_is_found_out() {
    assert_ne!(
        timestone_types::planted::with(timestone_types::planted::Bug::GreedyMakers, || {
            beside_makers(VALUE / 4)
        }),
        (true, true)
    );
}

/// How many keys a transaction of so many commands reads that makes more than there is memory for,
/// a little with each command.
fn reads_of_a_long_transaction(commands: usize) -> u32 {
    let mut world = World::with(SHARDS, Arc::new(Memory::new(MADE, u64::MAX, u64::MAX)));
    let client = world.connect();
    world.post(
        client,
        &[encode(&["MULTI"]), makers(commands, VALUE / 16), encode(&["EXEC"])].concat(),
    );
    let answer = world.wait(client);
    assert!(answer.ends_with(&format!("*{commands}|{}", ":65536|".repeat(commands))), "{answer}");
    world.wishes.lock().unwrap().seen["get"]
}

#[test]
fn a_transaction_that_makes_more_than_there_is_memory_for_does_not_begin_again_at_each_command() {
    let reads = reads_of_a_long_transaction(240);
    assert!(reads < 10 * 240, "{reads} reads");
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_gateway_whose_long_transactions_begin_again_at_each_command_is_found_out() {
    let reads =
        timestone_types::planted::with(timestone_types::planted::Bug::RestartedMakers, || {
            reads_of_a_long_transaction(100)
        });
    assert!(reads > 10 * 100, "{reads} reads");
}

/// When a command is answered, and how, that finds no memory again and again, and is let go on to
/// meet a conflict in between.
fn on_and_off() -> (Duration, String) {
    let mut world = World::with(SHARDS, Arc::new(Memory::new(MADE, u64::MAX, u64::MAX)));
    let client = world.connect();
    let begun = world.now;
    for round in 0..5 {
        let other = maker_in_progress(&mut world, 4 * VALUE);
        if round == 0 {
            world.post(client, &makers(1, VALUE));
        }
        for _ in 0..8 {
            world.pass(Duration::from_millis(500));
            let answer = world.text(client);
            if !answer.is_empty() {
                return (world.now.since(begun), answer);
            }
        }
        world.disconnect(other);
        release_prepares(&mut world, u32::MAX);
    }
    (world.now.since(begun), String::new())
}

#[test]
fn a_command_waits_for_memory_for_so_long_in_all() {
    let (took, answer) = on_and_off();
    assert!(
        answer.starts_with("-TRYAGAIN no memory was free") && took <= Duration::from_secs(11),
        "{took:?}: {answer}"
    );
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_gateway_whose_commands_wait_for_memory_as_long_again_is_found_out() {
    let (took, answer) =
        timestone_types::planted::with(timestone_types::planted::Bug::EndlessWaits, on_and_off);
    assert!(took > Duration::from_secs(11), "{took:?}: {answer}");
}
