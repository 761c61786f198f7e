//! Answers that clients do not read, or that are long.

use core::time::Duration;
use std::sync::Arc;

use timestone_seda::{Memory, MemoryUse};
use timestone_types::{ClientId, Expiry, Version};
use timestone_wire::{Frames, Kind, Message, Value};

use super::VALUE;
use crate::limits::OUTPUT_BOUND_BYTES;
use crate::tests::world::{Client, SHARDS, World, connected, encode, shown};

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
fn counted_in_transit() -> (u64, u64) {
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
fn long_answers_count_until_the_net_stage_has_them() {
    let (counted, after) = counted_in_transit();
    assert!(counted >= 8 * VALUE as u64, "{counted} bytes");
    assert_eq!(after, 0);
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_gateway_that_forgets_answers_in_transit_is_found_out() {
    let (counted, _) = timestone_types::planted::with(
        timestone_types::planted::Bug::UncountedPassing,
        counted_in_transit,
    );
    assert!(counted < VALUE as u64, "{counted} bytes");
}

/// What is counted of a long answer right after a gateway has taken it, in the middle of its turn.
fn counted_when_taken() -> u64 {
    let (mut parts, index, memory, now) = connected();
    parts.received(now, index, encode(&["GET", "k"]));
    let (_, outbox) = parts.backend.engine().shards_mut().next_dirty().unwrap();
    let request = core::mem::take(outbox);
    let frame =
        Frames::new(&request).map(Result::unwrap).find(|frame| frame.kind() == Kind::Get).unwrap();
    let envelope = frame.reply_envelope(frame.envelope().epoch, frame.envelope().map_version);
    let (version, expires_at) = (Version::new(now, ClientId::new(1)), Expiry::NEVER);
    let mut answer = Vec::new();
    Value { version, expires_at, prepared_before: false, present: true, value: &vec![b'x'; VALUE] }
        .encode(&envelope, &mut answer);
    parts.backend.engine().deliver_batch(now, &answer).unwrap();
    parts.run(now);
    let counted = memory.used(MemoryUse::Output);
    assert!(parts.connections.get_mut(index).unwrap().replies.take().unwrap().len() > VALUE);
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

/// What is counted of the answer to a command with so many names in all, with memory for eight
/// values, and the answer.
fn named(head: &[&str], name: &str, count: usize) -> (u64, String) {
    let mut world =
        World::with(SHARDS, Arc::new(Memory::new(u64::MAX, u64::MAX, 8 * VALUE as u64)));
    let deaf = world.connect();
    world.stop_reading(deaf);
    world.holds_output = true;
    world.post(deaf, &encode(&[head, &vec![name; count]].concat()));
    world.settle();
    let answer: Vec<u8> = world.to_net.iter().flat_map(|batch| batch.bytes.clone()).collect();
    (world.memory.used(MemoryUse::Output), shown(&answer))
}

#[test]
fn commands_that_touch_no_key_take_a_bounded_number_of_names() {
    let heads: [(&[&str], &str, &str); 4] = [
        (&["COMMAND", "DOCS"], "incrbyfloat", "*2048|$11|incrbyfloat|*6|$7|summary|"),
        (&["COMMAND", "INFO"], "client", "*1024|*10|$6|client|"),
        (&["INFO"], "server", "$"),
        (&["CLIENT", "LIST", "ID"], "1", "$"),
    ];
    for (head, name, begin) in heads {
        let (used, answer) = named(head, name, 100_000);
        assert_eq!(
            answer, "-ERR more than 1024 names in one command: ask for fewer at a time|",
            "{head:?}"
        );
        assert!(used <= 8 * VALUE as u64, "{used} bytes");
        let (used, answer) = named(head, name, 1024);
        assert!(answer.starts_with(begin), "{}", &answer[..answer.len().min(200)]);
        assert!(used <= VALUE as u64, "{used} bytes");
    }
    let (_, all) = named(&["COMMAND", "DOCS"], "", 0);
    assert!(all.contains("|incrbyfloat|"), "{all}");
}

/// What a command is answered while others use a little of the memory for answers, which is for
/// eight values; and what it is answered inside of MULTI.
fn beside_others(command: &[u8]) -> [String; 2] {
    let mut world =
        World::with(SHARDS, Arc::new(Memory::new(u64::MAX, u64::MAX, 8 * VALUE as u64)));
    let client = world.connect();
    let others = world.memory.charge(MemoryUse::Output, 1);
    world.post(client, command);
    let alone = world.wait(client);
    world.post(client, &[b"MULTI\r\n", command].concat());
    assert_eq!(world.wait(client), "+OK|+QUEUED|");
    let in_multi = world.ask(client, "EXEC");
    drop(others);
    world.pass(Duration::from_millis(10));
    assert_eq!(world.memory.used(MemoryUse::Output), 0);
    [alone, in_multi]
}

#[test]
fn long_answers_of_commands_that_touch_no_key_need_memory() {
    let long = vec![b'x'; 9 * VALUE];
    let keys = [&[&b"COMMAND"[..], b"GETKEYS", b"MGET"], &vec![&long[..VALUE]; 9][..]].concat();
    for command in [encode(&[&b"ECHO"[..], &long]), encode(&[&b"PING"[..], &long]), encode(&keys)] {
        let refused = "TRYAGAIN the memory for answers is used up; nothing was done";
        for answer in beside_others(&command) {
            assert!(answer.len() < 1000 && answer.contains(refused), "{}", &answer[..200]);
        }
    }
    let [alone, in_multi] = beside_others(&encode(&[&b"ECHO"[..], &long[..3 * VALUE]]));
    assert!(alone.len() > 3 * VALUE && in_multi.len() > 3 * VALUE);
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_gateway_whose_commands_answer_without_keys_and_bounds_is_found_out() {
    use timestone_types::planted::{Bug, with};
    let (used, answer) =
        with(Bug::BoundlessLocalAnswers, || named(&["COMMAND", "DOCS"], "incrbyfloat", 100_000));
    assert!(used > 8 * VALUE as u64 && answer.starts_with("*200000|"), "{used} bytes");
    let echo = encode(&[&b"ECHO"[..], &vec![b'x'; 9 * VALUE]]);
    let [alone, _] = with(Bug::BoundlessLocalAnswers, || beside_others(&echo));
    assert!(alone.len() > 9 * VALUE);
}

/// What CLIENT LIST is answered beside others, with 300 clients of long names and memory for so many
/// bytes.
fn list_of_long_names(limit: u64) -> String {
    let mut world = World::with(SHARDS, Arc::new(Memory::new(u64::MAX, u64::MAX, limit)));
    let clients: Vec<Client> = (0..300).map(|_| world.connect()).collect();
    for &client in &clients {
        world.post(client, &encode(&["CLIENT", "SETNAME", &"n".repeat(1024)]));
    }
    world.settle();
    assert_eq!(world.output(clients[0]), b"+OK\r\n");
    let others = world.memory.charge(MemoryUse::Output, 1);
    world.post(clients[0], &encode(&["CLIENT", "LIST"]));
    let answer = world.wait(clients[0]);
    drop(others);
    answer
}

#[test]
fn the_lines_of_client_list_need_memory() {
    assert!(list_of_long_names(512 * 1024).starts_with("-TRYAGAIN the memory for answers"));
    assert_eq!(list_of_long_names(VALUE as u64).matches("id=").count(), 300);
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
