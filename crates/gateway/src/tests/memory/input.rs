//! Commands that clients do not finish, queues of MULTI, and what is watched.

use core::time::Duration;
use std::sync::Arc;

use timestone_seda::limits::{MEMORY_TIMEOUT, STALL_LIMIT};
use timestone_seda::{Memory, MemoryUse};

use super::{VALUE, begun};
use crate::limits::OUTPUT_BOUND_BYTES;
use crate::tests::world::{Client, SHARDS, World, encode};

/// Memory for one long command and a half.
fn scarce() -> Arc<Memory> {
    Arc::new(Memory::new(3 * VALUE as u64 / 2, u64::MAX, u64::MAX))
}

#[test]
fn a_long_command_waits_for_memory_and_is_told_when_there_is_none() {
    let mut world = World::with(SHARDS, scarce());
    let (first, second, third) = (world.connect(), world.connect(), world.connect());
    world.post(first, &begun("a"));
    world.post(second, &begun("b"));
    world.settle();
    assert_eq!(world.paused, [second], "its bytes wait in its socket");
    assert_eq!(world.ask(third, "SET c 1"), "+OK|", "short commands go on");
    // The first one's end makes room.
    let command = encode(&[&b"SET"[..], b"a", &vec![b'x'; VALUE]]);
    world.post(first, &command[300_000..]);
    assert_eq!(world.wait(first), "+OK|");
    world.pass(Duration::from_millis(20));
    assert!(world.paused.is_empty());
    world.post(third, &begun("d"));
    world.pass(MEMORY_TIMEOUT + Duration::from_millis(50));
    assert!(
        world.text(third).starts_with("-TRYAGAIN no memory was free for this command"),
        "it was told"
    );
    assert_eq!(world.closed, [third]);
    // Nothing more comes of the second one's.
    world.pass(2 * STALL_LIMIT);
    assert!(world.closed.contains(&second), "{:?}", world.closed);
}

#[test]
fn a_command_that_came_to_its_end_while_it_waited_for_memory_wants_none_any_more() {
    let mut world = World::with(SHARDS, scarce());
    let (first, second) = (world.connect(), world.connect());
    world.post(first, &begun("a"));
    world.post(second, &begun("b"));
    // The rest had been read before the gateway could say that it should wait.
    world.post(second, &encode(&[&b"SET"[..], b"b", &vec![b'x'; VALUE]])[300_000..]);
    assert_eq!(world.wait(second), "+OK|");
    world.pass(MEMORY_TIMEOUT + Duration::from_millis(50));
    assert_eq!((world.text(second), world.closed.as_slice()), (String::new(), &[][..]));
    assert!(world.paused.is_empty(), "it may send its next command");
    assert_eq!(world.ask(second, "PING"), "+PONG|");
}

#[test]
fn what_multi_queues_is_bounded_over_all_clients_and_nothing_of_it_is_carried_out() {
    let mut world = World::with(SHARDS, scarce());
    let (first, second) = (world.connect(), world.connect());
    let set = encode(&[&b"SET"[..], b"k", &vec![b'x'; 200_000]]);
    assert_eq!(world.ask(first, "MULTI"), "+OK|");
    assert_eq!(world.ask(second, "MULTI"), "+OK|");
    for _ in 0..6 {
        world.post(first, &set);
        assert_eq!(world.wait(first), "+QUEUED|");
    }
    world.post(second, &set);
    world.settle();
    world.post(second, &set);
    world.post(second, b"EXEC\r\n");
    let answer = world.wait(second);
    assert!(
        answer.contains("-TRYAGAIN the memory for commands queued by MULTI")
            && answer.contains("-EXECABORT"),
        "{answer}"
    );
    assert_eq!(world.ask(first, "DISCARD"), "+OK|");
    assert_eq!(world.ask(second, "MULTI; SET k 1; EXEC"), "+OK|+QUEUED|*1|+OK|");
    world.disconnect(first);
    world.disconnect(second);
    assert_eq!(world.memory.used(MemoryUse::Input), 0);
}

#[test]
fn no_redis_client_is_sent_away_and_nothing_that_follows_is_carried_out() {
    let mut world = World::new();
    let (one, other) = (world.connect(), world.connect());
    assert_eq!(world.ask(one, "SET k v"), "+OK|");
    let answer = world.ask(other, "POST / HTTP/1.1; Host: x; FLUSHALL");
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    assert_eq!(world.closed, [other]);
    world.pass(Duration::from_millis(100));
    assert_eq!(world.ask(one, "GET k"), "$1|v|");
}

#[test]
fn watched_keys_count_in_the_memory_for_input() {
    let mut world = World::with(SHARDS, scarce());
    let (first, second) = (world.connect(), world.connect());
    let watch =
        |n: usize| encode(&[&b"WATCH"[..], &[&vec![b'k'; 60_000][..], &n.to_be_bytes()].concat()]);
    let mut watched = 0;
    let refusal = loop {
        world.post(first, &watch(watched));
        let answer = world.wait(first);
        if answer != "+OK|" {
            break answer;
        }
        watched += 1;
        assert!(watched < 100, "WATCH takes memory without bound");
    };
    assert!(refusal.starts_with("-TRYAGAIN the memory for what clients have sent"), "{refusal}");
    assert!((VALUE..=2 * VALUE).contains(&(watched * 60_000)), "{watched} keys");
    // What was watched already stays so; what is watched again costs nothing.
    world.post(first, &watch(0));
    assert_eq!(world.wait(first), "+OK|");
    world.post(
        second,
        &encode(&[&b"SET"[..], &[&vec![b'k'; 60_000][..], &0usize.to_be_bytes()].concat(), b"v"]),
    );
    assert_eq!(world.wait(second), "+OK|");
    assert_eq!(world.ask(first, "MULTI; SET a 1; EXEC"), "+OK|+QUEUED|*-1|");
    world.pass(Duration::from_millis(10));
    world.post(second, &watch(1));
    assert_eq!(world.wait(second), "+OK|", "EXEC has given it back");
    world.disconnect(first);
    world.disconnect(second);
    world.pass(Duration::from_millis(10));
    assert_eq!(world.memory.used(MemoryUse::Input), 0);
}

#[test]
fn info_tells_what_connections_take_as_well() {
    let mut world = World::with(SHARDS, scarce());
    let (first, second) = (world.connect(), world.connect());
    let used = |world: &mut World| {
        let info = world.ask(second, "INFO memory");
        let (_, rest) = info.split_once("used_memory:").expect("it has the figure");
        rest.split(['\r', '|', '\n'])
            .next()
            .and_then(|digits| digits.parse::<u64>().ok())
            .expect("a number")
    };
    let before = used(&mut world);
    assert_eq!(world.ask(first, "MULTI"), "+OK|");
    world.post(first, &encode(&[&b"SET"[..], b"k", &vec![b'x'; 200_000]]));
    assert_eq!(world.wait(first), "+QUEUED|");
    assert!(used(&mut world) >= before + 200_000);
}

/// A client whose pipeline never runs dry, and what is counted for it in the end: batches of frames and
/// bytes.
fn streaming() -> (World, Client, (u64, u64)) {
    let mut world = World::new();
    let client = world.connect();
    // More than a turn carries out, and then again and again as much as one does.
    world.post(client, &b"PING\r\n".repeat(4096));
    for _ in 0..200 {
        world.post(client, &b"PING\r\n".repeat(2048));
        world.step();
    }
    let counted = world.admitted()[0];
    (world, client, counted)
}

#[test]
fn a_client_whose_pipeline_never_runs_dry_is_counted_for_what_waits_only() {
    let (mut world, client, (frames, bytes)) = streaming();
    assert!(
        frames <= 1 && bytes <= 6 * 4096,
        "{frames} batches of frames, {bytes} bytes are counted"
    );
    world.settle();
    assert_eq!(world.output(client).len(), 7 * (4096 + 200 * 2048));
    assert_eq!(world.admitted(), [(0, 0); 2]);
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_gateway_that_goes_on_counting_what_it_has_carried_out_is_found_out() {
    let (_, _, (frames, bytes)) =
        timestone_types::planted::with(timestone_types::planted::Bug::CountedForEver, streaming);
    assert!(
        frames > 100 && bytes > 100 * 4096,
        "{frames} batches of frames, {bytes} bytes are counted"
    );
}

#[test]
fn every_argument_that_multi_queues_counts() {
    let mut world = World::new();
    let client = world.connect();
    assert_eq!(world.ask(client, "MULTI"), "+OK|");
    let mut arguments = vec![&b"DEL"[..]];
    arguments.resize(100_001, b"");
    world.post(client, &encode(&arguments));
    assert_eq!(world.wait(client), "+QUEUED|");
    world.settle();
    let used = world.memory.used(MemoryUse::Input);
    assert!(used >= 800_000, "{used} bytes are counted");
}

#[test]
fn what_clients_are_called_is_bounded_and_counts() {
    let mut world = World::new();
    let client = world.connect();
    let long = "n".repeat(1025);
    for command in [
        format!("CLIENT SETNAME {long}"),
        format!("HELLO 3 SETNAME {long}"),
        format!("CLIENT SETINFO lib-name {long}"),
        format!("CLIENT SETINFO lib-ver {long}"),
    ] {
        let answer = world.ask(client, &command);
        assert_eq!(
            answer, "-ERR names of clients and libraries are at most 1024 bytes long|",
            "{command}"
        );
    }
    assert!(world.ask(client, "CLIENT GETNAME").starts_with("$-1|"));
    for _ in 0..100 {
        let client = world.connect();
        assert_eq!(world.ask(client, &format!("CLIENT SETNAME {}", &long[..1024])), "+OK|");
    }
    assert!(world.memory.used(MemoryUse::Input) >= 64 * 1024);
}

/// A client has begun a command behind a long answer, and is not read from until it takes that,
/// long after. Whether it is served then.
fn not_read_from() -> bool {
    let mut world =
        World::with(SHARDS, Arc::new(Memory::new(4 * VALUE as u64, u64::MAX, u64::MAX)));
    let client = world.connect();
    for _ in 0..30 {
        world.connect();
    }
    world.post(client, &encode(&[&b"SET"[..], b"long", &vec![b'x'; OUTPUT_BOUND_BYTES]]));
    assert_eq!(world.wait(client), "+OK|");
    let _others = world.memory.charge(MemoryUse::Input, 3 * VALUE as u64);
    world.stop_reading(client);
    let set = encode(&[&b"SET"[..], b"k", &vec![b'x'; 250_000]]);
    world.post(client, &encode(&["GET", "long"]));
    world.settle();
    world.post(client, &set[..200_000]);
    world.pass(STALL_LIMIT + Duration::from_secs(5));
    assert_eq!(world.paused, [client]);
    assert!(world.read(client).len() > OUTPUT_BOUND_BYTES);
    world.settle();
    assert_eq!(world.paused, []);
    world.pass(STALL_LIMIT / 3);
    if !world.closed.is_empty() {
        return false;
    }
    world.post(client, &set[200_000..]);
    assert_eq!(world.wait(client), "+OK|");
    true
}

#[test]
fn a_client_is_not_silent_while_it_is_not_read_from() {
    assert!(not_read_from());
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_gateway_that_blames_clients_for_its_own_pauses_is_found_out() {
    assert!(!timestone_types::planted::with(
        timestone_types::planted::Bug::BlamedForPauses,
        not_read_from
    ));
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_gateway_that_does_not_count_what_commands_make_is_found_out() {
    use super::{MADE, makers, making};

    let (_, _, used, prepares) =
        timestone_types::planted::with(timestone_types::planted::Bug::UncountedMaking, || {
            making(&makers(64, VALUE))
        });
    assert!(prepares == 64 && used < MADE, "{prepares} commits, {used} bytes are counted");
}

/// Many clients that begin a command which needs no reservation, and never finish it. What is
/// counted in the end, of a limit of 4 MiB.
fn many_begun() -> (World, u64) {
    let mut world =
        World::with(SHARDS, Arc::new(Memory::new(4 * VALUE as u64, u64::MAX, u64::MAX)));
    let begun = encode(&[&b"SET"[..], b"k", &vec![b'x'; 250_000]]);
    for _ in 0..100 {
        let client = world.connect();
        world.post(client, &begun[..200_000]);
    }
    world.settle();
    world.pass(2 * STALL_LIMIT);
    let used = world.memory.used(MemoryUse::Input);
    (world, used)
}

#[test]
fn commands_that_many_clients_begin_and_do_not_finish_are_bounded_together() {
    let (mut world, used) = many_begun();
    assert!(used <= 4 * VALUE as u64 / 2, "{used} bytes are counted");
    let client = world.connect();
    let value = vec![b'x'; VALUE];
    world.post(client, &encode(&[&b"SET"[..], b"k", &value])[..VALUE / 2]);
    world.settle();
    world.post(client, &encode(&[&b"SET"[..], b"k", &value])[VALUE / 2..]);
    assert_eq!(world.wait(client), "+OK|");
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_gateway_that_bounds_begun_commands_one_by_one_is_found_out() {
    let (_, used) = timestone_types::planted::with(
        timestone_types::planted::Bug::BoundlessBeginnings,
        many_begun,
    );
    assert!(used >= 100 * 200_000, "{used} bytes are counted");
}

#[test]
fn where_the_arguments_of_a_command_are_is_counted_and_given_back() {
    let mut world = World::new();
    let client = world.connect();
    let mut arguments = vec![&b"MGET"[..]];
    arguments.resize(40_000, b"k");
    let command = encode(&arguments);
    world.post(client, &command[..command.len() - 10]);
    world.settle();
    let used = world.memory.used(MemoryUse::Input);
    assert!(used >= (command.len() + 16 * 39_000) as u64, "{used} bytes are counted");
    world.post(client, &command[command.len() - 10..]);
    assert!(world.wait(client).starts_with("*39999|$-1|"));
    world.pass(Duration::from_millis(10));
    assert_eq!(world.memory.used(MemoryUse::Input), 0);
}

/// A client watches so much that nothing is left for others, and is silent; what EXEC of another
/// one is answered then, and its own.
fn silent_watcher() -> (String, String) {
    let mut world = World::with(SHARDS, scarce());
    let (silent, other) = (world.connect(), world.connect());
    for n in 0..25u64 {
        world.post(
            silent,
            &encode(&[&b"WATCH"[..], &[&vec![b'k'; 60_000][..], &n.to_be_bytes()].concat()]),
        );
        assert_eq!(world.wait(silent), "+OK|");
    }
    let queue =
        [encode(&["MULTI"]), encode(&[&b"SET"[..], b"a", &vec![b'x'; 200_000]]), encode(&["EXEC"])]
            .concat();
    world.post(other, &queue);
    assert!(world.wait(other).contains("-TRYAGAIN the memory for commands queued by MULTI"));
    world.output(other);
    world.pass(2 * STALL_LIMIT);
    world.post(other, &queue);
    world.pass(Duration::from_millis(10));
    let answer = world.text(other);
    assert_eq!(world.closed, []);
    (answer, world.ask(silent, "MULTI; GET a; EXEC"))
}

#[test]
fn a_silent_client_does_not_keep_what_it_watches_while_others_find_no_memory() {
    let (answer, own) = silent_watcher();
    assert_eq!(answer, "+OK|+QUEUED|*1|+OK|");
    assert_eq!(own, "+OK|+QUEUED|*-1|", "it may have changed");
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_gateway_that_lets_silent_clients_keep_what_they_watch_is_found_out() {
    let (answer, _) = timestone_types::planted::with(
        timestone_types::planted::Bug::SilentWatchers,
        silent_watcher,
    );
    assert!(answer.contains("-TRYAGAIN"), "{answer}");
}

#[test]
fn a_watch_that_was_forgotten_ends_as_every_other() {
    let mut world = World::with(SHARDS, scarce());
    let client = world.connect();
    let watch = encode(&[&b"WATCH"[..], &vec![b'k'; 60_000]]);
    for end in ["UNWATCH", "MULTI; DISCARD", "RESET", "MULTI; EXEC"] {
        world.post(client, &watch);
        assert_eq!(world.wait(client), "+OK|");
        let others = world.memory.charge(MemoryUse::Input, 3 * VALUE as u64 / 2);
        world.pass(2 * STALL_LIMIT);
        drop(others);
        world.ask(client, end);
        assert_eq!(world.ask(client, "MULTI; SET a 1; EXEC"), "+OK|+QUEUED|*1|+OK|", "after {end}");
    }
}

#[test]
fn silent_clients_hold_no_more_than_their_share_of_queues() {
    let mut world =
        World::with(SHARDS, Arc::new(Memory::new(6 * VALUE as u64, u64::MAX, u64::MAX)));
    let silent: Vec<Client> = (0..24).map(|_| world.connect()).collect();
    let queue = [encode(&["MULTI"]), encode(&[&b"SET"[..], b"a", &vec![b'x'; 240_000]])].concat();
    for &client in &silent {
        world.post(client, &queue);
        assert_eq!(world.wait(client), "+OK|+QUEUED|");
    }
    let other = world.connect();
    world.pass(2 * STALL_LIMIT);
    assert!(
        world.closed.len() > 12 && world.memory.used(MemoryUse::Input) <= 3 * VALUE as u64,
        "{:?}",
        world.closed
    );
    world.post(other, &[queue, encode(&["EXEC"])].concat());
    assert_eq!(world.wait(other), "+OK|+QUEUED|*1|+OK|");
}
