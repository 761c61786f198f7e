//! What one client can make the gateway keep: answers that it does not read, commands that it does
//! not finish, queues.

use core::time::Duration;
use std::sync::Arc;

use timestone_seda::limits::{MEMORY_TIMEOUT, STALL_LIMIT};
use timestone_seda::{Memory, MemoryUse};
use timestone_types::{ClientId, Expiry, Version};
use timestone_wire::{Frames, Kind, Message, Value};

use super::world::{Client, SHARDS, World, connected, encode};
use crate::gateway::limits::OUTPUT_BOUND_BYTES;

const VALUE: usize = 1024 * 1024;
const ASKED: usize = 64;

/// A client that asks for far more than it may be owed, reads nothing, and what another one notices
/// of it.
fn deaf() -> (World, Client, Client) {
    let mut world = World::new();
    let (deaf, other) = (world.connect(), world.connect());
    let value = vec![b'x'; VALUE];
    world.post(other, &encode(&[&b"SET"[..], b"k", &value]));
    assert_eq!(world.wait(other), "+OK|");
    world.stop_reading(deaf);
    // Short answers first: then much is asked for at once, since nobody knows how long the next
    // ones are.
    world.post(deaf, &encode(&["GET", "nope"]).repeat(200));
    world.pass(Duration::from_millis(10));
    world.read(deaf);
    world.post(deaf, &encode(&["GET", "k"]).repeat(ASKED));
    world.pass(Duration::from_millis(100));
    (world, deaf, other)
}

#[test]
fn who_reads_nothing_is_owed_no_more_than_the_bound_and_gets_everything_in_the_end() {
    let (mut world, deaf, other) = deaf();
    let bound = OUTPUT_BOUND_BYTES + 2 * VALUE;
    assert!(
        (VALUE..=bound).contains(&world.unread(deaf)),
        "{} of {bound} bytes",
        world.unread(deaf)
    );
    assert!(world.memory.used(MemoryUse::Output) <= bound as u64);
    assert_eq!(world.ask(other, "SET short value; GET short"), "+OK|$5|value|");
    let mut answers = Vec::new();
    for _ in 0..ASKED {
        answers.extend(world.read(deaf));
        world.pass(Duration::from_millis(5));
        assert!(world.unread(deaf) <= bound);
    }
    let one = [format!("${VALUE}\r\n").into_bytes(), vec![b'x'; VALUE], b"\r\n".to_vec()].concat();
    assert!(answers == one.repeat(ASKED), "{} bytes of {}", answers.len(), one.len() * ASKED);
    world.post(deaf, b"PING\r\n");
    world.settle();
    assert_eq!(world.read(deaf), b"+PONG\r\n");
    assert_eq!(world.admitted(), [(0, 0); 2]);
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_gateway_that_ignores_the_bound_is_found_out() {
    let unread =
        timestone_types::planted::with(timestone_types::planted::Bug::BoundlessOutput, || {
            let (mut world, deaf, _) = deaf();
            world.unread(deaf)
        });
    assert!(unread > OUTPUT_BOUND_BYTES + 2 * VALUE, "{unread} bytes are within the bound");
}

/// What is counted of long answers to eight clients while the net stage has not looked at them yet,
/// and when it has.
fn counted_on_their_way() -> (u64, u64) {
    let mut world = World::new();
    let setter = world.connect();
    world.post(setter, &encode(&[&b"SET"[..], b"k", &vec![b'x'; VALUE]]));
    assert_eq!(world.wait(setter), "+OK|");
    world.holds_output = true;
    for _ in 0..8 {
        let client = world.connect();
        world.post(client, &encode(&["GET", "k"]));
    }
    world.settle();
    assert_eq!(world.to_net.len(), 8);
    let counted = world.memory.used(MemoryUse::Output);
    world.to_net.clear();
    (counted, world.memory.used(MemoryUse::Output))
}

#[test]
fn long_answers_count_on_their_way_to_the_net_stage() {
    let (counted, after) = counted_on_their_way();
    assert!(counted >= 8 * VALUE as u64, "{counted} bytes");
    assert_eq!(after, 0);
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_gateway_that_forgets_answers_on_their_way_is_found_out() {
    let (counted, _) = timestone_types::planted::with(
        timestone_types::planted::Bug::UncountedPassing,
        counted_on_their_way,
    );
    assert!(counted < VALUE as u64, "{counted} bytes");
}

/// What is counted of a long answer right after a gateway has taken it, in the middle of its turn.
fn counted_when_taken() -> u64 {
    let (mut core, index, memory, now) = connected();
    core.received(now, index, encode(&["GET", "k"]));
    let (_, outbox) = core.engine.shards_mut().next_dirty().unwrap();
    let request = core::mem::take(outbox);
    let frame =
        Frames::new(&request).map(Result::unwrap).find(|frame| frame.kind() == Kind::Get).unwrap();
    let envelope = frame.reply_envelope(frame.envelope().epoch, frame.envelope().map_version);
    let (version, expires_at) = (Version::new(now, ClientId::new(1)), Expiry::NEVER);
    let mut answer = Vec::new();
    Value { version, expires_at, prepared_before: false, present: true, value: &vec![b'x'; VALUE] }
        .encode(&envelope, &mut answer);
    core.engine.deliver_batch(now, &answer).unwrap();
    core.work(now);
    let counted = memory.used(MemoryUse::Output);
    assert!(core.connection(index).unwrap().replies.take().unwrap().len() > VALUE);
    counted
}

#[test]
fn a_long_answer_counts_as_soon_as_the_gateway_has_taken_it() {
    let counted = counted_when_taken();
    assert!(counted >= VALUE as u64, "{counted} bytes");
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_gateway_that_counts_at_the_end_of_its_turn_is_found_out() {
    let counted = timestone_types::planted::with(
        timestone_types::planted::Bug::UncountedPassing,
        counted_when_taken,
    );
    assert!(counted < VALUE as u64, "{counted} bytes");
}

#[test]
fn long_answers_of_one_turn_leave_in_buffers_no_larger_than_they_are() {
    let mut world = World::new();
    let (client, other) = (world.connect(), world.connect());
    world.post(other, &encode(&[&b"SET"[..], b"k", &vec![b'x'; VALUE]]));
    assert_eq!(world.wait(other), "+OK|");
    world.holds_output = true;
    world.post(client, &encode(&["GET", "k"]).repeat(3));
    world.settle();
    let sizes: Vec<(usize, usize)> = world
        .to_net
        .iter()
        .map(|frame_batch| (frame_batch.bytes.len(), frame_batch.bytes.capacity()))
        .collect();
    let (bytes, memory) = sizes.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    assert_eq!(bytes, 3 * (VALUE + b"$1048576\r\n\r\n".len()), "{sizes:?}");
    assert!(memory <= bytes + bytes / 16, "{sizes:?}");
}

#[test]
fn other_reads_of_long_values_wait_for_their_reader_as_well() {
    let (mut world, deaf, _) = deaf();
    world.post(deaf, &encode(&["GETRANGE", "k", "0", "-1"]).repeat(ASKED));
    world.pass(Duration::from_secs(1));
    assert!(world.unread(deaf) <= OUTPUT_BOUND_BYTES + 2 * VALUE);
    let mut read = 0;
    for _ in 0..4 * ASKED {
        read += world.read(deaf).len();
        world.pass(Duration::from_millis(50));
    }
    assert_eq!(read, 2 * ASKED * (VALUE + b"$1048576\r\n\r\n".len()));
}

/// Memory for one long command and a half.
fn scarce() -> Arc<Memory> {
    Arc::new(Memory::new(3 * VALUE as u64 / 2, u64::MAX, u64::MAX))
}

fn begun(key: &str) -> Vec<u8> {
    let whole = encode(&[&b"SET"[..], key.as_bytes(), &vec![b'x'; VALUE]]);
    whole[..300_000].to_vec()
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
    let whole = encode(&[&b"SET"[..], b"a", &vec![b'x'; VALUE]]);
    world.post(first, &whole[300_000..]);
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

/// What one client asks for on its own connection, after a short answer that nobody has said to be
/// written.
fn after_a_short_answer(command: &[&str]) -> usize {
    let mut world = World::new();
    let (asker, other) = (world.connect(), world.connect());
    let value = vec![b'x'; OUTPUT_BOUND_BYTES + VALUE];
    world.post(other, &encode(&[&b"SET"[..], b"k", &value]));
    assert_eq!(world.wait(other), "+OK|");
    world.stop_reading(asker);
    world.post(asker, b"PING\r\n");
    world.settle();
    world.post(asker, &encode(command));
    world.pass(Duration::from_secs(1));
    world.unread(asker)
}

#[test]
fn the_oldest_answer_is_given_however_long_it_is() {
    for command in [&["GET", "k"][..], &["GETRANGE", "k", "0", "-1"], &["MGET", "k"]] {
        let unread = after_a_short_answer(command);
        assert!(unread > OUTPUT_BOUND_BYTES, "{command:?}: {unread} bytes");
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_gateway_that_lets_the_oldest_answer_wait_is_found_out() {
    let unread =
        timestone_types::planted::with(timestone_types::planted::Bug::OldestAnswerWaits, || {
            after_a_short_answer(&["GETRANGE", "k", "0", "-1"])
        });
    assert!(unread < VALUE, "{unread} bytes were given");
}

#[test]
fn a_command_that_came_whole_while_it_waited_for_memory_wants_none_any_more() {
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

/// A client whose pipeline is expected to have short answers, that then asks writes to return long
/// values, and reads nothing; what it is owed.
fn returned(command: impl Fn(&str) -> Vec<u8>) -> usize {
    let mut world = World::new();
    let (deaf, other) = (world.connect(), world.connect());
    let value = vec![b'x'; VALUE];
    for n in 0..ASKED {
        world.post(other, &encode(&[&b"SET"[..], format!("k{n}").as_bytes(), &value]));
        assert_eq!(world.wait(other), "+OK|");
    }
    world.stop_reading(deaf);
    world.post(deaf, &encode(&["SET", "short", "v"]).repeat(200));
    world.pass(Duration::from_millis(10));
    world.read(deaf);
    world.post(deaf, &(0..ASKED).flat_map(|n| command(&format!("k{n}"))).collect::<Vec<u8>>());
    world.pass(Duration::from_millis(100));
    let most = world.unread(deaf);
    // It gets everything in the end.
    let mut read = 0;
    for _ in 0..4 * ASKED {
        read += world.read(deaf).len();
        world.pass(Duration::from_millis(5));
    }
    assert_eq!(read, ASKED * (VALUE + b"$1048576\r\n\r\n".len()));
    most
}

#[test]
fn writes_that_return_long_values_wait_for_their_reader() {
    let bound = OUTPUT_BOUND_BYTES + 2 * VALUE;
    let commands: [fn(&str) -> Vec<u8>; 3] = [
        |key| encode(&["GETSET", key, "v"]),
        |key| encode(&["SET", key, "v", "GET"]),
        |key| encode(&["GETDEL", key]),
    ];
    for command in commands {
        let owed = returned(command);
        assert!(
            (VALUE..=bound).contains(&owed),
            "{owed} of {bound} bytes for {}",
            command("k").escape_ascii()
        );
    }
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

/// A client whose pipeline never runs dry, and what is counted for it in the end: batches of frames
/// and bytes.
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
fn every_word_that_multi_queues_counts() {
    let mut world = World::new();
    let client = world.connect();
    assert_eq!(world.ask(client, "MULTI"), "+OK|");
    let mut words = vec![&b"DEL"[..]];
    words.resize(100_001, b"");
    world.post(client, &encode(&words));
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

/// A transaction that answers a value that it has written itself 64 times, while there is memory
/// for eight of them. Gives the answer to EXEC, and the value that is there afterwards.
fn repeated_answers() -> (String, String) {
    let mut world =
        World::with(SHARDS, Arc::new(Memory::new(u64::MAX, u64::MAX, 8 * VALUE as u64)));
    let client = world.connect();
    let value = vec![b'x'; VALUE];
    let get = encode(&["GET", "k"]).repeat(64);
    world.post(client, &[encode(&["MULTI"]), encode(&[&b"SET"[..], b"k", &value]), get].concat());
    assert_eq!(world.wait(client), format!("+OK|{}", "+QUEUED|".repeat(65)));
    world.post(client, &encode(&["EXEC"]));
    let answer = world.wait(client);
    let after = world.ask(client, "STRLEN k");
    world.pass(Duration::from_millis(10));
    assert_eq!(world.memory.used(MemoryUse::Output), 0);
    (answer, after)
}

#[test]
fn a_transaction_answers_what_there_is_memory_for_or_does_nothing() {
    let (answer, after) = repeated_answers();
    let shown = &answer[..answer.len().min(200)];
    assert!(
        answer.contains("TRYAGAIN the memory for answers is used up; nothing was done"),
        "{shown}"
    );
    assert_eq!(after, ":0|", "nothing was written");
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_gateway_whose_transactions_answer_without_bound_is_found_out() {
    let (answer, after) = timestone_types::planted::with(
        timestone_types::planted::Bug::BoundlessAnswers,
        repeated_answers,
    );
    assert!(answer.len() > 64 * VALUE && after == format!(":{VALUE}|"));
}

#[test]
fn an_answer_has_a_longest_length_whatever_memory_there_is() {
    let mut world = World::new();
    let client = world.connect();
    let mut mget = vec!["k"; 17];
    mget.insert(0, "MGET");
    let set = encode(&[&b"SET"[..], b"k", &vec![b'x'; 8 * VALUE]]);
    world.post(client, &[encode(&["MULTI"]), set, encode(&mget), encode(&["EXEC"])].concat());
    let answer = world.wait(client);
    let shown = &answer[..answer.len().min(200)];
    assert!(
        answer.contains("('mget') failed: ERR the answer would be longer than 128 MiB"),
        "{shown}"
    );
    assert_eq!(world.ask(client, "STRLEN k"), ":0|");
}

/// A connection whose pipeline is expected to have short answers.
fn short_answers(world: &mut World) -> Client {
    let client = world.connect();
    world.post(client, &encode(&["GET", "nope"]).repeat(100));
    world.settle();
    assert_eq!(world.output(client), b"$-1\r\n".repeat(100));
    client
}

/// So many commands that make a long value each, with few bytes of their own.
fn makers(count: usize, length: usize) -> Vec<u8> {
    (0..count)
        .flat_map(|n| encode(&["SETRANGE", &format!("k{n}"), &(length - 1).to_string(), "x"]))
        .collect()
}

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

/// Memory for eight of the values that are made.
const MADE: u64 = 8 * VALUE as u64;

/// Commands that make much more than there is memory for, while shards answer no commit. What is
/// counted in the end, how many commits the shards have, and the world.
fn making(commands: &[u8]) -> (World, Client, u64, u32) {
    let mut world = World::with(SHARDS, Arc::new(Memory::new(MADE, u64::MAX, u64::MAX)));
    let client = short_answers(&mut world);
    world.wishes.lock().unwrap().hold_prepares = true;
    world.post(client, commands);
    world.pass(Duration::from_millis(200));
    let prepares = world.wishes.lock().unwrap().seen.get("prepare").copied().unwrap_or_default();
    let used = world.memory.used(MemoryUse::Input);
    (world, client, used, prepares)
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
    let other = maker_under_way(&mut world, 4 * VALUE);
    world.post(client, &[makers(3, VALUE), encode(&["INCR", "n"])].concat());
    world.pass(MEMORY_TIMEOUT - Duration::from_millis(10));
    assert_eq!(world.text(client), "");
    world.pass(Duration::from_millis(20));
    let_go(&mut world, 0);
    assert_eq!(world.text(other), ":4194304|");
    let refused = "-TRYAGAIN no memory was free for some seconds for the values that this command \
        makes; nothing was done, try it again later|";
    assert_eq!(world.text(client), format!("{}:1|", refused.repeat(3)));
    assert_eq!(world.ask(client, "EXISTS k0 k1 k2"), ":0|");
    // In time, it comes in the order of the commands.
    let other = maker_under_way(&mut world, 4 * VALUE);
    world.post(client, &makers(3, VALUE));
    world.pass(MEMORY_TIMEOUT / 2);
    assert_eq!(world.text(client), "");
    let_go(&mut world, 0);
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
    let other = maker_under_way(&mut world, VALUE);
    world.post(client, &[encode(&["MULTI"]), makers(16, VALUE), encode(&["EXEC"])].concat());
    let answer = world.wait(client);
    assert_eq!(answer, format!("+OK|{}", "+QUEUED|".repeat(16)));
    assert!(world.wait(client).starts_with("-TRYAGAIN no memory was free"));
    assert_eq!(world.ask(client, "EXISTS k0"), ":0|");
    let_go(&mut world, 0);
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
fn maker_under_way(world: &mut World, length: usize) -> Client {
    let client = world.connect();
    world.wishes.lock().unwrap().hold_prepares = true;
    world.post(client, &encode(&["SETRANGE", "under way", &(length - 1).to_string(), "x"]));
    world.settle();
    assert_eq!(world.text(client), "");
    client
}

/// Prepares are answered again; so many of them are refused, those that come at this moment.
fn let_go(world: &mut World, refused: u32) {
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
        world.wishes.lock().unwrap().let_go = 1;
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
        let other = maker_under_way(&mut world, 4 * VALUE);
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
        let_go(&mut world, u32::MAX);
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
    let (_, _, used, prepares) =
        timestone_types::planted::with(timestone_types::planted::Bug::UncountedMaking, || {
            making(&makers(64, VALUE))
        });
    assert!(prepares == 64 && used < MADE, "{prepares} commits, {used} bytes are counted");
}

/// What KEYS of 16 000 keys, a MiB in all, is answered with memory for so many bytes.
fn keys(limit: u64) -> String {
    let mut world = World::with(SHARDS, Arc::new(Memory::new(u64::MAX, u64::MAX, limit)));
    let (client, other) = (world.connect(), world.connect());
    for from in (0..16_000).step_by(1000) {
        let key = |n: usize| format!("{n:0>56}");
        world.post(
            other,
            &(from..from + 1000).flat_map(|n| encode(&["SET", &key(n), ""])).collect::<Vec<u8>>(),
        );
        world.settle();
        assert_eq!(world.output(other).len(), 5 * 1000);
    }
    world.pass(Duration::from_millis(10));
    // It is not alone: what comes alone has room.
    let others = world.memory.charge(MemoryUse::Output, 1);
    world.post(client, &encode(&["KEYS", "*"]));
    let answer = world.wait(client);
    world.disconnect(client);
    drop(others);
    assert_eq!(world.memory.used(MemoryUse::Output), 0);
    answer
}

#[test]
fn the_keys_that_keys_finds_are_counted_twice_while_they_are_collected() {
    for limit in [512 * 1024, 3 * VALUE as u64 / 2] {
        let answer = keys(limit);
        assert_eq!(
            answer,
            "-TRYAGAIN the memory for answers is used up; nothing was done, try it again later|"
        );
    }
    let answer = keys(4 * VALUE as u64);
    assert!(
        answer.starts_with("*16000|$56|") && answer.len() == "*16000|".len() + 16_000 * 61,
        "{}",
        answer.len()
    );
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_gateway_that_does_not_count_the_keys_it_finds_is_found_out() {
    let answer =
        timestone_types::planted::with(timestone_types::planted::Bug::UncountedKeys, || {
            keys(512 * 1024)
        });
    assert!(answer.starts_with("*16000|"));
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
    let mut words = vec![&b"MGET"[..]];
    words.resize(40_000, b"k");
    let command = encode(&words);
    world.post(client, &command[..command.len() - 10]);
    world.settle();
    let used = world.memory.used(MemoryUse::Input);
    assert!(used >= (command.len() + 16 * 39_000) as u64, "{used} bytes are counted");
    world.post(client, &command[command.len() - 10..]);
    assert!(world.wait(client).starts_with("*39999|$-1|"));
    world.pass(Duration::from_millis(10));
    assert_eq!(world.memory.used(MemoryUse::Input), 0);
}

/// Reads of long values whose answers find no room, while their shard moves to another server; what
/// is answered in the end.
fn moved_away() -> String {
    let mut world = World::new();
    let (deaf, other) = (world.connect(), world.connect());
    // A key of the shard that a map of one more shard takes away.
    let key = world.key_that_moves();
    let value = vec![b'x'; VALUE];
    world.post(other, &encode(&[&b"SET"[..], key.as_bytes(), &value]));
    assert_eq!(world.wait(other), "+OK|");
    world.stop_reading(deaf);
    world.post(deaf, &encode(&["GET", "nope"]).repeat(200));
    world.pass(Duration::from_millis(10));
    world.read(deaf);
    world.post(deaf, &encode(&["GET", &key]).repeat(16));
    world.pass(Duration::from_millis(100));
    assert!(world.unread(deaf) < 8 * VALUE, "some were dropped");
    world.move_slots();
    let mut answers = world.read(deaf);
    // The net stage does not tell of few bytes that are written.
    for _ in 0..20 {
        world.pass(Duration::from_millis(50));
        answers.extend(world.output(deaf));
    }
    String::from_utf8_lossy(&answers).into_owned()
}

#[test]
fn a_read_that_fails_when_it_is_asked_again_does_not_leave_others_asleep() {
    let answers = moved_away();
    let (found, refused) =
        (answers.matches("$1048576").count(), answers.matches("-CLUSTERDOWN").count());
    assert!(found > 0 && refused > 1 && found + refused == 16, "{found} found, {refused} refused");
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_gateway_that_leaves_dropped_reads_asleep_is_found_out() {
    let answers =
        timestone_types::planted::with(timestone_types::planted::Bug::SleepingReads, moved_away);
    assert!(answers.matches("$1048576").count() + answers.matches("-CLUSTERDOWN").count() < 16);
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

/// How long a gateway takes to end beside a client that reads nothing of its long answers and has
/// asked for more.
fn end_beside_a_deaf_client() -> Option<Duration> {
    let mut world = World::new();
    let (deaf, other) = (world.connect(), world.connect());
    world.post(other, &encode(&[&b"SET"[..], b"k", &vec![b'x'; OUTPUT_BOUND_BYTES]]));
    assert_eq!(world.wait(other), "+OK|");
    world.stop_reading(deaf);
    world.post(
        deaf,
        &[encode(&["GET", "k"]).repeat(3), encode(&["INCR", "n"]).repeat(300)].concat(),
    );
    world.pass(Duration::from_millis(100));
    world.begin_shutdown();
    world.end(Duration::from_secs(20))
}

#[test]
fn a_gateway_ends_beside_a_client_that_reads_nothing() {
    let took = end_beside_a_deaf_client();
    assert!(took.is_some_and(|took| took <= Duration::from_secs(4)), "{took:?}");
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_gateway_that_waits_for_whoever_does_not_read_is_found_out() {
    assert_eq!(
        timestone_types::planted::with(
            timestone_types::planted::Bug::EndlessGateway,
            end_beside_a_deaf_client
        ),
        None
    );
}
