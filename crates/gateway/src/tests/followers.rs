//! Pipelines on a key: what follows other commands of its connection, and is carried out together.

use super::world::{Client, World, encode};
use crate::limits::{MAX_COMBINED, MAX_COMBINED_ANSWERS, MAX_FOLLOWING_BYTES};

/// Posts commands, one in each line.
fn post(world: &mut World, client: Client, lines: &str) {
    let lines: String = lines.split(';').map(|line| format!("{}\r\n", line.trim())).collect();
    world.post(client, lines.as_bytes());
    world.settle();
}

/// What shards have seen of requests that are made durable.
fn records(world: &World) -> u32 {
    let wishes = world.wishes.lock().unwrap();
    let seen = |kind| wishes.seen.get(kind).copied().unwrap_or_default();
    seen("write") + seen("prepare")
}

/// A connection lets many commands under way at once when its answers have been short.
fn answers_shortly(world: &mut World, client: Client) {
    for _ in 0..8 {
        assert_eq!(world.ask(client, &["GET x"; 100].join(";")), "$-1|".repeat(100));
    }
}

/// All answers of a client, which are so long.
fn all_of(world: &mut World, client: Client, length: usize) -> String {
    let mut answers = String::new();
    while answers.len() < length {
        answers += &world.wait(client);
    }
    answers
}

#[test]
fn a_pipeline_of_dependent_commands_takes_a_few_records() {
    let mut world = World::new();
    let client = world.connect();
    let triples = 60;
    answers_shortly(&mut world, client);
    world.wishes.lock().unwrap().hold = true;
    let lines: Vec<_> = (0..triples).map(|n| format!("SET k {n}; INCR n; GET k")).collect();
    post(&mut world, client, &lines.join("; "));
    world.wishes.lock().unwrap().hold = false;
    let answers: String = (0..triples)
        .map(|n: u32| format!("+OK|:{}|${}|{n}|", n + 1, n.to_string().len()))
        .collect();
    assert_eq!(world.wait(client), answers);
    // One write and a transaction for k, one transaction for n.
    assert_eq!(records(&world), 3);
    assert_eq!(world.admitted(), [(0, 0); 2]);
}

#[test]
fn what_follows_finds_what_others_wrote_in_between_and_keeps_its_own_order() {
    let mut world = World::new();
    let (client, other) = (world.connect(), world.connect());
    world.wishes.lock().unwrap().hold = true;
    post(&mut world, client, "SET k a; APPEND k b; GET k; SET k c NX; STRLEN k; DEL k; GET k");
    post(&mut world, other, "APPEND k x; APPEND k y; GET k");
    world.wishes.lock().unwrap().hold = false;
    world.settle();
    let (mine, theirs) = (world.text(client), world.text(other));
    // The other one's come before all, between the first and those that follow it, or after all.
    let all = [
        ("+OK|:2|$2|ab|$-1|:2|:1|$-1|", ":1|:2|$2|xy|"),
        ("+OK|:4|$4|axyb|$-1|:4|:1|$-1|", ":2|:3|$3|axy|"),
    ];
    assert!(all.contains(&(mine.as_str(), theirs.as_str())), "{mine} and {theirs}");
    assert_eq!(world.admitted(), [(0, 0); 2]);
}

/// A write is refused and goes on as a job, with a pause before it; a read follows it.
fn follows_a_refused_write() -> String {
    let mut world = World::new();
    let client = world.connect();
    assert_eq!(world.ask(client, "SET k old"), "+OK|");
    world.wishes.lock().unwrap().refuse = 1;
    post(&mut world, client, "SET k new; GET k; STRLEN k; GET k");
    let answers = all_of(&mut world, client, 21);
    assert_eq!(world.admitted(), [(0, 0); 2]);
    answers
}

#[test]
fn a_command_follows_a_write_that_is_refused_and_repeated() {
    assert_eq!(follows_a_refused_write(), "+OK|$3|new|:3|$3|new|");
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_planted_command_that_does_not_wait_for_the_write_before_it_is_seen() {
    let bug = timestone_types::planted::Bug::HastyFollowers;
    let answers = timestone_types::planted::with(bug, follows_a_refused_write);
    assert_eq!(answers, "+OK|$3|old|:3|$3|old|");
}

/// A read that follows alone is one request, and what comes behind it follows it.
#[test]
fn a_single_read_that_follows_needs_no_transaction() {
    let mut world = World::new();
    let client = world.connect();
    assert_eq!(world.ask(client, "SET k old; GET k"), "+OK|$3|old|");
    assert_eq!(records(&world), 1);
    world.wishes.lock().unwrap().slow_reads = 1;
    post(&mut world, client, "SET k new; GET k");
    post(&mut world, client, "SET k newer; GET k");
    assert_eq!(world.text(client), "+OK|", "the read waits, and the second write for it");
    world.wishes.lock().unwrap().slow_reads = 0;
    assert_eq!(world.wait(client), "$3|new|+OK|$5|newer|");
}

#[test]
fn nobody_waits_for_a_read_of_somebody_else() {
    let mut world = World::new();
    let (slow, other) = (world.connect(), world.connect());
    assert_eq!(world.ask(slow, "SET n 1"), "+OK|");
    world.wishes.lock().unwrap().slow_reads = 1;
    post(&mut world, slow, "GET n; INCR n; INCR n; GET n");
    assert_eq!(world.text(slow), "");
    world.wishes.lock().unwrap().slow_reads = 0;
    world.wishes.lock().unwrap().slow_reads = 1;
    assert_eq!(
        world.ask(other, "INCR n"),
        ":2|",
        "the first INCR of the slow one waits for its GET"
    );
    world.wishes.lock().unwrap().slow_reads = 0;
    assert_eq!(world.wait(slow), "$1|1|:3|:4|$1|4|");
}

#[test]
fn long_answers_are_made_in_several_transactions() {
    let mut world = World::new();
    let client = world.connect();
    let value = "v".repeat(MAX_COMBINED_ANSWERS / 4);
    world.post(client, &encode(&["SET", "k", &value]));
    assert_eq!(world.wait(client), "+OK|");
    answers_shortly(&mut world, client);
    world.wishes.lock().unwrap().refuse = 1;
    let gets = 40;
    let pipeline = [encode(&["APPEND", "k", "!"]), encode(&["GET", "k"]).repeat(gets)].concat();
    world.post(client, &pipeline);
    let answer = format!("${}|{value}!|", value.len() + 1);
    let answers = format!(":{}|{}", value.len() + 1, answer.repeat(gets));
    assert_eq!(all_of(&mut world, client, answers.len()), answers);
    assert_eq!(world.admitted(), [(0, 0); 2]);
}

/// A client that reads nothing is not owed more than others, and its other commands keep their order.
#[test]
fn long_values_wait_for_their_reader_and_what_follows_them_too() {
    let mut world = World::new();
    let client = world.connect();
    answers_shortly(&mut world, client);
    let value = "v".repeat(MAX_FOLLOWING_BYTES - 100);
    let gets = MAX_COMBINED - 8;
    world.stop_reading(client);
    let mut pipeline = [encode(&["SET", "n", "1"]), encode(&["SET", "k", &value])].concat();
    for _ in 0..2 {
        pipeline.extend(encode(&["GET", "k"]).repeat(gets));
        pipeline.extend(encode(&["GETRANGE", "k", "0", "9999"]));
        pipeline.extend(encode(&["APPEND", "k", "!"]));
    }
    world.post(client, &[pipeline, encode(&["STRLEN", "k"])].concat());
    world.pass(core::time::Duration::from_millis(200));
    let other = world.connect();
    assert_eq!(world.ask(other, "APPEND n 2"), ":2|");
    let length = value.len();
    assert_eq!(world.ask(other, "STRLEN k"), format!(":{}|", length + 2), "there is room for all");
    let answers = super::world::shown(&world.read(client));
    let of = |more: &str| format!("${}|{value}{more}|", length + more.len()).repeat(gets);
    let range = format!("$10000|{}|", &value[..10_000]);
    let expected = format!(
        "+OK|+OK|{}{range}:{}|{}{range}:{}|:{}|",
        of(""),
        length + 1,
        of("!"),
        length + 2,
        length + 2
    );
    assert!(answers == expected, "{} bytes of {}", answers.len(), expected.len());
}

/// What is behind a long read that is answered by itself follows it as before, and is no more than
/// its client may be owed.
#[test]
fn behind_a_long_read_others_wait_for_their_reader_too() {
    let mut world = World::new();
    let client = world.connect();
    answers_shortly(&mut world, client);
    let value = "v".repeat(48 * 1024);
    world.post(client, &encode(&["SET", "k", &value]));
    assert_eq!(world.wait(client), "+OK|");
    world.stop_reading(client);
    let gets = MAX_COMBINED - 8;
    let lines = format!("APPEND k !; GETRANGE k 0 0{}", "; GET k".repeat(gets));
    post(&mut world, client, &lines);
    world.pass(core::time::Duration::from_millis(200));
    let owed = world.unread(client);
    assert!(owed < 5 * 1024 * 1024, "{owed} bytes are owed to who reads nothing");
    let length = value.len() + 1;
    let expected = format!(":{length}|$1|v|{}", format!("${length}|{value}!|").repeat(gets));
    let mut answers = String::new();
    for _ in 0..10 {
        answers += &super::world::shown(&world.read(client));
        world.pass(core::time::Duration::from_millis(200));
    }
    assert!(answers == expected, "{} bytes of {}", answers.len(), expected.len());
}

/// The log has failed: whatever writes is refused, and the reads of a single key are not, as if each
/// had come alone.
#[test]
fn what_fails_for_one_of_several_commands_fails_for_that_one_alone() {
    let mut world = World::new();
    let client = world.connect();
    answers_shortly(&mut world, client);
    assert_eq!(world.ask(client, "SET k 7"), "+OK|");
    (world.wishes.lock().unwrap().log_lost, world.wishes.lock().unwrap().hold) = (true, true);
    post(&mut world, client, "SET k 1; GET k; STRLEN k; INCR k; GET k; APPEND k x; STRLEN k");
    world.wishes.lock().unwrap().hold = false;
    let text = all_of(&mut world, client, 100);
    let codes: Vec<_> = text.split('|').map(|answer| &answer[..answer.len().min(8)]).collect();
    let expected = ["-MISCONF", "$1", "7", ":1", "-MISCONF", "$1", "7", "-MISCONF", ":1", ""];
    assert_eq!(codes, expected, "{text}");
    world.wishes.lock().unwrap().log_lost = false;
    assert_eq!(world.ask(client, "APPEND k x; GET k"), ":2|$2|7x|");
    assert_eq!(world.admitted(), [(0, 0); 2]);
}

/// In one transaction nobody sees that the time of its own write has come.
#[test]
fn what_expires_at_once_is_gone_for_what_follows() {
    let mut world = World::new();
    let client = world.connect();
    world.wishes.lock().unwrap().hold = true;
    post(
        &mut world,
        client,
        "SET n 1; SET n 5 PXAT 1; INCR n; GET n; EXPIREAT n 1; SETNX n w; GET n",
    );
    world.wishes.lock().unwrap().hold = false;
    assert_eq!(all_of(&mut world, client, 27), "+OK|+OK|:1|$1|1|:1|:1|$1|w|");
}

#[test]
fn long_commands_and_those_beyond_the_bound_wait_where_they_were_received() {
    let mut world = World::new();
    let client = world.connect();
    let value = "v".repeat(MAX_FOLLOWING_BYTES + 1);
    world.wishes.lock().unwrap().hold = true;
    world.post(client, &encode(&["SET", "k", "1"]));
    world.post(client, &encode(&["GET", "k"]));
    world.post(client, &encode(&["SET", "k", &value]));
    world.post(client, &encode(&["STRLEN", "k"]));
    world.settle();
    assert!(world.admitted()[0].1 > MAX_FOLLOWING_BYTES as u64, "it is still counted");
    world.wishes.lock().unwrap().hold = false;
    assert_eq!(world.wait(client), format!("+OK|$1|1|+OK|:{}|", value.len()));

    world.wishes.lock().unwrap().hold = true;
    world.post(client, &encode(&["SET", "n", "0"]));
    world.post(client, &encode(&["INCR", "n"]).repeat(2 * MAX_COMBINED));
    world.settle();
    assert_ne!(world.admitted()[0].1, 0, "more than one transaction holds");
    world.wishes.lock().unwrap().hold = false;
    let counts: String = (1..=2 * MAX_COMBINED).map(|n| format!(":{n}|")).collect();
    assert_eq!(all_of(&mut world, client, 4 + counts.len()), format!("+OK|{counts}"));
    assert_eq!(world.admitted(), [(0, 0); 2]);
}

#[test]
fn what_follows_ends_with_a_client_that_is_gone() {
    let mut world = World::new();
    let (client, other) = (world.connect(), world.connect());
    assert_eq!(world.ask(client, "SET k 1"), "+OK|");
    world.wishes.lock().unwrap().prepared_reads = 1;
    post(&mut world, client, "GET k; SET k 2; GET k; INCR n; GET n; INCR n");
    world.disconnect(client);
    world.pass(core::time::Duration::from_millis(500));
    assert_eq!(world.admitted(), [(0, 0); 2]);
    world.begin_shutdown();
    let ended = world.end(core::time::Duration::from_secs(1));
    assert!(ended.is_some(), "nothing of it is left under way");
    let _ = other;
}

#[test]
fn what_follows_is_answered_at_a_stop() {
    let mut world = World::new();
    let client = world.connect();
    world.wishes.lock().unwrap().hold = true;
    post(&mut world, client, "SET k 1; INCR k; GET k; MGET k n");
    world.begin_shutdown();
    world.settle();
    world.wishes.lock().unwrap().hold = false;
    assert!(world.end(core::time::Duration::from_secs(2)).is_some());
    assert_eq!(world.text(client), "+OK|:2|$1|2|*2|$1|2|$-1|");
}

/// Calls are answered before anything follows them.
#[test]
fn a_pipeline_on_a_key_that_is_called_for_follows_nothing() {
    for hesitation in [1, 3] {
        let mut world = World::calling(super::world::SHARDS, hesitation);
        let client = world.connect();
        answers_shortly(&mut world, client);
        for n in 0..40 {
            world.post(client, &encode(&["SET", "k", &n.to_string()]));
            world.post(client, &encode(&["GET", "k"]));
        }
        let answers: String =
            (0..40).map(|n: u32| format!("+OK|${}|{n}|", n.to_string().len())).collect();
        assert_eq!(all_of(&mut world, client, answers.len()), answers, "{hesitation}");
        let called = world.wishes.lock().unwrap().called;
        if hesitation == 1 {
            assert_eq!((called, records(&world)), (80, 0));
        } else {
            assert!(0 < called && called < 80, "{called} were called, some others followed");
        }
    }
}
