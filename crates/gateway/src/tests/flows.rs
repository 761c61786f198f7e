//! What a client sees of the gateway as a whole: order, pipelines, transactions, conflicts, ends of
//! connections.

use core::time::Duration;

use timestone_wire::ErrorCode;

use super::world::{World, encode};
use crate::limits::{MAX_IN_FLIGHT, RETRY_FOR};

#[test]
fn a_client_reads_what_it_wrote() {
    let mut world = World::new();
    let client = world.connect();
    assert_eq!(world.ask(client, "SET a 1"), "+OK|");
    assert_eq!(world.ask(client, "GET a"), "$1|1|");
    assert_eq!(world.ask(client, "get nope"), "$-1|");
    assert_eq!(world.ask(client, "SET a 2 XX GET"), "$1|1|");
    assert_eq!(world.ask(client, "SET a 3 NX"), "$-1|");
    assert_eq!(world.ask(client, "SETNX b 1; SETNX b 2"), ":1|:0|");
    assert_eq!(world.ask(client, "DEL a; DEL a; GETDEL b; GET b"), ":1|:0|$1|1|$-1|");
    assert_eq!(
        world.ask(client, "MSET a 1 b 2 c 3; MGET a b x c; DEL a b x c"),
        "+OK|*4|$1|1|$1|2|$-1|$1|3|:3|"
    );
}

/// The world fails when anything is sent to the node: there is nothing to ask it.
#[test]
fn an_idle_gateway_reports_to_the_shards_of_its_own_process_and_asks_nobody_else() {
    let mut world = World::with_own(2);
    world.pass(Duration::from_millis(1_050));
    assert_eq!(
        world.wishes.lock().unwrap().seen.get("report"),
        Some(&22),
        "eleven each: the first is made at once"
    );
}

#[test]
fn answers_come_in_the_order_of_the_commands() {
    let mut world = World::new();
    let client = world.connect();
    let answer = world.ask(client, "SET a 1; PING; INCR n; GET a; ECHO x; INCR n; NOPE; GET n");
    let unknown = "-ERR unknown command 'NOPE', with args beginning with: |";
    assert_eq!(answer, format!("+OK|+PONG|:1|$1|1|$1|x|:2|{unknown}$1|2|"));
}

#[test]
fn what_is_let_in_is_counted_until_it_is_finished() {
    let mut world = World::new();
    let (one, other) = (world.connect(), world.connect());
    world.ask(
        one,
        "SET a 1; GET a; INCR n; MSET a 1 b 2 c 3; MGET a b c; MULTI; SET a 2; GET b; EXEC; DBSIZE",
    );
    assert_eq!(world.admitted(), [(0, 0); 2]);
    // What waits for the commands before it stays counted.
    world.wishes.lock().unwrap().hold = true;
    let bytes = encode(&["GET", "a"]).repeat(2 * MAX_IN_FLIGHT);
    world.post(one, &bytes);
    world.post(other, &bytes);
    world.settle();
    let [gateway, shards] = world.admitted();
    // Of each pipeline at least half: the rest is under way, and the shards count that.
    assert_eq!(gateway.0, 2);
    assert!(
        (bytes.len() as u64..2 * bytes.len() as u64).contains(&gateway.1),
        "{gateway:?} of {} bytes",
        bytes.len()
    );
    world.wishes.lock().unwrap().hold = false;
    assert!(shards.0 == 0, "the test's shards take everything in at once");
    // Also when nobody waits for the answers any more.
    world.post(other, &bytes);
    world.disconnect(other);
    world.post(other, &bytes);
    world.settle();
    assert_eq!(world.text(one).matches('$').count(), 2 * MAX_IN_FLIGHT);
    assert_eq!(world.admitted(), [(0, 0); 2]);
}

#[test]
fn a_pipeline_on_one_key_takes_effect_in_order() {
    let mut world = World::new();
    let client = world.connect();
    let answer = world
        .ask(client, "SET k 1; GET k; SET k 2; GET k; APPEND k 3; GET k; DEL k; GET k; EXISTS k");
    assert_eq!(answer, "+OK|$1|1|+OK|$1|2|:2|$2|23|:1|$-1|:0|");
}

/// Three reads of a key and one of another are sent. The first meets a key that is prepared, and is
/// repeated; before that another client writes the key. Gives the answers, and how many reads the
/// shards have seen.
fn overtaken_reads() -> (String, u32) {
    let mut world = World::new();
    let (reader, writer) = (world.connect(), world.connect());
    assert_eq!(world.ask(writer, "SET k old; SET other x"), "+OK|+OK|");
    world.wishes.lock().unwrap().prepared_reads = 1;
    world.post(reader, &[encode(&["GET", "k"]).repeat(3), encode(&["GET", "other"])].concat());
    world.settle();
    assert_eq!(world.text(reader), "", "the first read waits for its repetition");
    world.post(writer, &encode(&["SET", "k", "new"]));
    world.settle();
    assert_eq!(world.text(writer), "+OK|");
    let answers = world.wait(reader);
    assert_eq!(world.admitted(), [(0, 0); 2]);
    let seen = world.wishes.lock().unwrap().seen["get"];
    (answers, seen)
}

#[test]
fn a_read_that_overtakes_one_of_its_key_is_repeated_behind_it() {
    let (answers, seen) = overtaken_reads();
    assert_eq!(answers, "$3|new|$3|new|$3|new|$1|x|");
    assert_eq!(seen, 7, "three of k are sent again, and that of another key is not");
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_planted_read_that_overtakes_one_of_its_key_is_seen() {
    let (answers, _) = timestone_types::planted::with(
        timestone_types::planted::Bug::OvertakenReads,
        overtaken_reads,
    );
    assert_eq!(answers, "$3|new|$3|old|$3|old|$1|x|", "the second answer is older than the first");
}

/// Of two reads of a key, the first is refused and sent again, and finds what was written
/// meanwhile; the second has found what was there before, in a page that takes long to be read.
/// `longer`: the second one is no plain GET.
fn outdated_reads(longer: bool) -> String {
    let mut world = World::new();
    let (reader, writer) = (world.connect(), world.connect());
    assert_eq!(world.ask(writer, "SET k old"), "+OK|");
    {
        let mut wishes = world.wishes.lock().unwrap();
        (wishes.prepared_reads, wishes.slow_reads) = (1, 1);
    }
    world.post(reader, if longer { b"GET k\r\nSTRLEN k\r\n" } else { b"GET k\r\nGET k\r\n" });
    world.settle();
    world.post(writer, &encode(&["SET", "k", "newer"]));
    world.settle();
    assert_eq!(world.text(writer), "+OK|");
    let first = world.wait(reader);
    world.wishes.lock().unwrap().slow_reads = 0;
    world.pass(Duration::from_millis(500));
    let answers = first + &world.text(reader);
    assert_eq!(world.admitted(), [(0, 0); 2]);
    answers
}

#[test]
fn a_read_that_has_found_less_than_an_earlier_one_was_answered_is_repeated() {
    assert_eq!(outdated_reads(false), "$5|newer|$5|newer|");
    assert_eq!(outdated_reads(true), "$5|newer|:5|");
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_planted_read_that_has_found_less_than_an_earlier_one_is_seen() {
    let (short, longer) =
        timestone_types::planted::with(timestone_types::planted::Bug::OutdatedReads, || {
            (outdated_reads(false), outdated_reads(true))
        });
    assert_eq!((short.as_str(), longer.as_str()), ("$5|newer|$3|old|", "$5|newer|:3|"));
}

/// A client that is gone reads nothing of what was to be repeated.
#[test]
fn a_read_that_waits_to_be_repeated_does_not_keep_a_connection_that_is_gone() {
    let mut world = World::new();
    let reader = world.connect();
    world.wishes.lock().unwrap().prepared_reads = 1;
    world.post(reader, &encode(&["GET", "k"]).repeat(3));
    world.settle();
    world.disconnect(reader);
    world.pass(Duration::from_millis(100));
    let seen = world.wishes.lock().unwrap().seen["get"];
    assert_eq!(seen, 4, "only the first is sent again");
    assert_eq!(world.admitted(), [(0, 0); 2]);
}

/// Reads that are no plain GET keep the order as well.
#[test]
fn a_longer_read_that_overtakes_one_of_its_key_is_repeated_behind_it() {
    let mut world = World::new();
    let (reader, writer) = (world.connect(), world.connect());
    assert_eq!(world.ask(writer, "SET k old"), "+OK|");
    world.wishes.lock().unwrap().prepared_reads = 1;
    world.post(reader, b"GET k\r\nEXISTS k\r\nSTRLEN k\r\nGET k\r\n");
    world.settle();
    world.post(writer, b"DEL k\r\n");
    world.settle();
    assert_eq!(world.text(writer), ":1|");
    world.pass(Duration::from_millis(200));
    assert_eq!(world.text(reader), "$-1|:0|:0|$-1|");
    assert_eq!(world.admitted(), [(0, 0); 2]);
}

#[test]
fn a_pipeline_longer_than_what_may_be_in_progress_is_answered_to_the_end() {
    let mut world = World::new();
    let client = world.connect();
    let count = 5 * MAX_IN_FLIGHT;
    let mut bytes = Vec::new();
    for number in 0..count {
        bytes.extend(encode(&["SET".to_owned(), format!("k{number}"), number.to_string()]));
    }
    for number in 0..count {
        bytes.extend(encode(&["GET".to_owned(), format!("k{number}")]));
    }
    // In pieces that do not end where commands end.
    for piece in bytes.chunks(1000) {
        world.post(client, piece);
    }
    let mut expected = "+OK|".repeat(count);
    (0..count).for_each(|number| expected += &format!("${}|{number}|", number.to_string().len()));
    assert_eq!(world.text(client), expected);
}

#[test]
fn commands_on_different_keys_are_in_progress_together() {
    let mut world = World::new();
    let client = world.connect();
    world.wishes.lock().unwrap().hold = true;
    world.post(client, b"SET a 1\r\nSET b 1\r\nGET c\r\nGET a\r\nGET d\r\n");
    world.settle();
    let seen = world.wishes.lock().unwrap().seen.clone();
    assert_eq!(
        (seen["write"], seen["get"]),
        (2, 2),
        "GET a waits for SET a, and what comes behind it on other keys does not"
    );
    world.wishes.lock().unwrap().hold = false;
    assert_eq!(world.text(client), "+OK|+OK|$-1|$1|1|$-1|");
}

#[test]
fn a_hot_counter_is_incremented_by_many_in_few_transactions() {
    let mut world = World::new();
    let clients: Vec<_> = (0..50).map(|_| world.connect()).collect();
    for &client in &clients {
        world.post(client, &b"INCR n\r\n".repeat(16));
    }
    world.settle();
    let mut numbers = Vec::new();
    for &client in &clients {
        let answer = world.text(client);
        let answers: Vec<u32> =
            answer.split_terminator('|').map(|line| line[1..].parse().unwrap()).collect();
        assert!(answers.len() == 16 && answers.is_sorted(), "{answer}");
        numbers.extend(answers);
    }
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=800).collect::<Vec<_>>());
    assert_eq!(world.ask(clients[0], "GET n"), "$3|800|");
    let prepares = world.wishes.lock().unwrap().seen["prepare"];
    assert!(prepares < 50, "{prepares} transactions for 800 increments");
}

#[test]
fn simple_writes_of_a_hot_key_are_combined_too_and_the_last_one_stays() {
    let mut world = World::new();
    let clients: Vec<_> = (0..20).map(|_| world.connect()).collect();
    for (number, &client) in clients.iter().enumerate() {
        let lines: String = (0..16).map(|round| format!("SET k {number}.{round}\r\n")).collect();
        world.post(client, lines.as_bytes());
        world.post(client, b"GET k\r\n");
    }
    world.settle();
    let answers: Vec<String> = clients.iter().map(|&client| world.text(client)).collect();
    // Other clients may write in between.
    let is_one_value = |answer: &String| {
        answer.starts_with(&"+OK|".repeat(16)) && answer.matches('$').count() == 1
    };
    assert!(answers.iter().all(is_one_value), "{answers:?}");
    let seen = world.wishes.lock().unwrap().seen.clone();
    assert!(seen["write"] + seen["prepare"] < 60, "{seen:?} for 320 writes");
    assert_eq!(world.ask(clients[0], "SET k x; SET k y; GET k"), "+OK|+OK|$1|y|");
}

#[test]
fn a_failing_command_among_combined_ones_fails_alone() {
    let mut world = World::new();
    let client = world.connect();
    let answer = world.ask(client, "SET n 5; INCR n; INCRBY n x; APPEND n y; INCR n; STRLEN n");
    let refused = "-ERR value is not an integer or out of range|";
    assert_eq!(answer, format!("+OK|:6|{refused}:2|{refused}:2|"));
}

#[test]
fn multi_queues_and_exec_runs_everything_at_once() {
    let mut world = World::new();
    let client = world.connect();
    let other = world.connect();
    assert_eq!(
        world.ask(client, "MULTI; SET {a} 1; INCR {b}; GET {a}; PING; EXPIRE {a} 100"),
        "+OK|+QUEUED|+QUEUED|+QUEUED|+QUEUED|+QUEUED|"
    );
    assert_eq!(world.ask(other, "GET {a}"), "$-1|");
    assert_eq!(world.ask(client, "EXEC"), "*5|+OK|:1|$1|1|+PONG|:1|");
    assert_eq!(world.ask(other, "MGET {a} {b}; TTL {a}"), "*2|$1|1|$1|1|:100|");
    assert_eq!(world.ask(client, "MULTI; EXEC"), "+OK|*0|");
    let queued = "+OK|+QUEUED|+QUEUED|+QUEUED|+QUEUED|+QUEUED|";
    let expired = world
        .ask(client, "MULTI; SET n 5 PXAT 1; GET n; INCR n; EXPIREAT n 1; EXISTS n; EXEC; GET n");
    assert_eq!(expired, format!("{queued}*5|+OK|$-1|:1|:1|:0|$-1|"));
    assert_eq!(
        world.ask(client, "MULTI; SET {a} 2; DISCARD; GET {a}; EXEC"),
        "+OK|+QUEUED|+OK|$1|1|-ERR EXEC without MULTI|"
    );
    assert!(world.wishes.lock().unwrap().seen["decide"] > 0, "the keys are on different shards");
}

#[test]
fn what_cannot_be_queued_spoils_the_transaction() {
    let mut world = World::new();
    let client = world.connect();
    let answer = world.ask(client, "MULTI; SET a 1; NOPE; EXEC; GET a");
    let unknown = "-ERR unknown command 'NOPE', with args beginning with: |";
    let discarded = "-EXECABORT Transaction discarded because of previous errors.|";
    assert_eq!(answer, format!("+OK|+QUEUED|{unknown}{discarded}$-1|"));
    let answer = world.ask(client, "MULTI; FLUSHDB; EXEC");
    assert!(
        answer.starts_with("+OK|-ERR Command not allowed inside a transaction")
            && answer.ends_with(discarded),
        "{answer}"
    );
    let answer = world.ask(client, "MULTI; SET a 1; HELLO 3; EXEC; GET a");
    let refusal = "-ERR Command not allowed inside a transaction|";
    assert_eq!(answer, format!("+OK|+QUEUED|{refusal}{discarded}$-1|"));
    let answer = world.ask(client, "MULTI; MULTI; WATCH a; SET a 1; EXEC");
    let refusals = "-ERR MULTI calls can not be nested|-ERR WATCH inside MULTI is not allowed|";
    assert_eq!(answer, format!("+OK|{refusals}+QUEUED|*1|+OK|"));
}

#[test]
fn exec_with_arguments_ends_the_transaction_and_the_watch() {
    let mut world = World::new();
    let client = world.connect();
    let aborted = "-EXECABORT Transaction discarded because of: wrong number of arguments for \
                   'exec' command|";
    assert_eq!(
        world.ask(client, "MULTI; SET p 1; EXEC x; EXEC; GET p"),
        format!("+OK|+QUEUED|{aborted}-ERR EXEC without MULTI|$-1|")
    );
    for between in ["", "MULTI; "] {
        let answer = world
            .ask(client, &format!("SET w 0; WATCH w; SET w 1; {between}EXEC x y; CLIENT INFO"));
        assert!(answer.contains(aborted) && answer.contains(" multi=-1 watch=0 "), "{answer}");
        assert_eq!(world.ask(client, "MULTI; GET w; EXEC"), "+OK|+QUEUED|*1|$1|1|");
    }
}

#[test]
fn a_command_that_fails_in_exec_undoes_all_of_it() {
    let mut world = World::new();
    let client = world.connect();
    let answer = world.ask(client, "SET s x; MULTI; SET a 1; INCR s; EXEC; GET a");
    assert!(
        answer.starts_with(
            "+OK|+OK|+QUEUED|+QUEUED|-EXECABORT Transaction discarded because \
        command 2 ('incr') failed: ERR value is not an integer"
        ),
        "{answer}"
    );
    assert!(answer.ends_with("$-1|"), "{answer}");
}

#[test]
fn exec_is_nil_when_a_watched_key_was_touched_and_only_then() {
    let mut world = World::new();
    let client = world.connect();
    let other = world.connect();
    assert_eq!(world.ask(client, "SET a 1; WATCH a b; MULTI; SET c 1"), "+OK|+OK|+OK|+QUEUED|");
    assert_eq!(world.ask(other, "SET unrelated 1; SET c 0"), "+OK|+OK|");
    assert_eq!(world.ask(client, "EXEC"), "*1|+OK|");
    for touch in ["SET a 1", "DEL a", "SET b 1", "EXPIRE a 100"] {
        assert_eq!(
            world.ask(client, "SET a 1; DEL b"),
            world.ask(client, "SET a 1; DEL b").replace(":1", ":0")
        );
        assert_eq!(world.ask(client, "WATCH a b; MULTI; SET c 2"), "+OK|+OK|+QUEUED|");
        world.ask(other, touch);
        assert_eq!(world.ask(client, "EXEC; GET c"), "*-1|$1|1|", "{touch}");
        assert_eq!(
            world.ask(client, "MULTI; GET c; EXEC"),
            "+OK|+QUEUED|*1|$1|1|",
            "the watch is over"
        );
        world.ask(client, "DEL b");
    }
    assert_eq!(
        world.ask(client, "WATCH a; SET a 5; MULTI; GET a; EXEC"),
        "+OK|+OK|+OK|+QUEUED|*-1|",
        "its own write counts"
    );
    assert_eq!(
        world.ask(client, "WATCH a; UNWATCH; SET a 5; MULTI; GET a; EXEC"),
        "+OK|+OK|+OK|+OK|+QUEUED|*1|$1|5|"
    );
    assert_eq!(
        world.ask(client, "WATCH a; MULTI; DISCARD; SET a 6; MULTI; EXEC"),
        "+OK|+OK|+OK|+OK|+OK|*0|"
    );
}

/// What writes touches, also where it changes nothing; what finds nothing to do does not.
#[test]
fn a_write_that_changes_nothing_touches_a_watched_key() {
    for (before, command, touches) in [
        ("SET a 1", "APPEND a <>", true),
        ("DEL a", "APPEND a <>", true),
        ("SET a 1", "SETRANGE a 0 <>", false),
        ("SET a 1 PXAT 9000000000000", "GETEX a PXAT 9000000000000", true),
        ("SET a 1 PXAT 9000000000000", "GETEX a PERSIST", true),
        ("SET a 1", "GETEX a PERSIST", false),
        ("SET a 1 PXAT 9000000000000", "GETEX a", false),
        ("SET a 1 PXAT 9000000000000", "PEXPIREAT a 9000000000000", true),
        ("SET a 1", "PERSIST a", false),
    ] {
        let mut world = World::new();
        let client = world.connect();
        world.ask(client, before);
        world.ask(client, "WATCH a; MULTI; PING");
        let other = world.connect();
        let arguments: Vec<&str> =
            command.split(' ').map(|word| word.trim_matches(['<', '>'])).collect();
        world.post(other, &encode(&arguments));
        let answer = world.wait(other);
        assert!(!answer.starts_with('-'), "{command}: {answer}");
        let expected = if touches { "*-1|" } else { "*1|+PONG|" };
        assert_eq!(world.ask(client, "EXEC"), expected, "{command} after {before}");
    }
}

#[test]
fn expiry_trips_a_watch() {
    let mut world = World::new();
    let client = world.connect();
    assert_eq!(world.ask(client, "SET a 1 PX 50; WATCH a; MULTI; SET b 1"), "+OK|+OK|+OK|+QUEUED|");
    world.pass(Duration::from_millis(60));
    assert_eq!(world.ask(client, "EXEC; GET b; GET a"), "*-1|$-1|$-1|");
    // What had expired before is absent, and stays so.
    assert_eq!(world.ask(client, "WATCH a; MULTI; SET b 1; EXEC"), "+OK|+OK|+QUEUED|*1|+OK|");
}

#[test]
fn conflicts_without_a_touched_watch_are_tried_again() {
    let mut world = World::new();
    let client = world.connect();
    assert_eq!(world.ask(client, "SET n 1; WATCH w; MULTI; INCR n"), "+OK|+OK|+OK|+QUEUED|");
    world.wishes.lock().unwrap().refuse = 5;
    assert_eq!(world.ask(client, "EXEC"), "*1|:2|");
    for (command, answer) in [
        ("INCR n", ":3|"),
        ("SET n 9", "+OK|"),
        ("MSET n 1 m 2", "+OK|"),
        ("DEL n", ":1|"),
        ("SETNX n 4", ":1|"),
        ("GETSET n 5", "$1|4|"),
    ] {
        world.wishes.lock().unwrap().refuse = 3;
        assert_eq!(world.ask(client, command), answer, "{command}");
    }
}

#[test]
fn endless_conflicts_end_with_an_error_that_says_so() {
    let mut world = World::new();
    let client = world.connect();
    world.wishes.lock().unwrap().refuse = u32::MAX;
    let before = world.now;
    let answer = world.ask(client, "INCR n");
    assert!(answer.starts_with("-TRYAGAIN nothing was written"), "{answer}");
    assert!(world.now.since(before) >= RETRY_FOR && world.now.since(before) < RETRY_FOR * 2);
    world.wishes.lock().unwrap().refuse = 0;
    assert_eq!(world.ask(client, "INCR n"), ":1|");
}

#[test]
fn an_unknown_outcome_is_not_reported_as_a_failure() {
    let mut world = World::new();
    let client = world.connect();
    world.wishes.lock().unwrap().lose_answers = true;
    let answer = world.ask(client, "SET a 1");
    assert!(
        answer.starts_with(
            "-UNKNOWN no answer came in time: transaction 9-1 may have been carried out"
        ),
        "{answer}"
    );
    world.wishes.lock().unwrap().lose_answers = false;
    assert_eq!(world.ask(client, "GET a"), "$1|1|");
}

#[test]
fn what_servers_refuse_is_told_with_a_fitting_code() {
    let mut world = World::new();
    let client = world.connect();
    for (code, start) in [
        (ErrorCode::StorageFailed, "-MISCONF "),
        (ErrorCode::ClockAhead, "-ERR this machine's clock is"),
    ] {
        world.wishes.lock().unwrap().broken = Some(code);
        for command in ["GET a", "STRLEN a"] {
            let answer = world.ask(client, command);
            assert!(answer.starts_with(start), "{command}: {answer}");
        }
        world.wishes.lock().unwrap().broken = None;
        assert_eq!(world.ask(client, "GET a"), "$-1|");
    }
}

#[test]
fn limits_are_told_and_hurt_nobody() {
    let mut world = World::new();
    let client = world.connect();
    world.post(client, &encode(&[&b"SET"[..], &[b'k'; 65_537], b"v"]));
    let answer = world.wait(client);
    assert!(answer.starts_with("-ERR the key has 65537 bytes"), "{answer}");
    world.post(client, &encode(&[&b"SET"[..], b"k", &vec![b'v'; 16 * 1024 * 1024 + 1]]));
    let answer = world.wait(client);
    assert!(answer.starts_with("-ERR the value has 16777217 bytes"), "{answer}");
    world.post(client, &encode(&[&b"MSET"[..], b"fine", b"1", &[b'k'; 65_537], b"v"]));
    assert!(world.wait(client).starts_with("-ERR the key has 65537 bytes"));
    world.post(client, &encode(&[&b"GET"[..], b""]));
    assert!(world.wait(client).starts_with("-ERR the key is empty"));
    assert_eq!(
        world.ask(client, "MGET fine k; SETRANGE k 16777216 x"),
        "*2|$-1|$-1|-ERR string exceeds maximum allowed size (proto-max-bulk-len)|"
    );
}

#[test]
fn broken_protocol_is_answered_once_and_ends_the_connection() {
    let mut world = World::new();
    let client = world.connect();
    let other = world.connect();
    world.post(client, b"SET a 1\r\n*1\r\n:3\r\nSET a 2\r\n");
    assert_eq!(world.text(client), "+OK|-ERR Protocol error: expected '$', got ':'|");
    assert_eq!(world.closed, [client]);
    world.post(client, b"SET a 3\r\n");
    assert_eq!(world.text(client), "");
    assert_eq!(world.ask(other, "GET a"), "$1|1|");
    world.disconnect(client);
    assert_eq!(world.ask(other, "QUIT; GET a"), "+OK|");
    assert_eq!(world.closed, [client, other]);
}

#[test]
fn a_half_closed_connection_is_answered_and_closed() {
    let mut world = World::new();
    let client = world.connect();
    world.wishes.lock().unwrap().hold = true;
    world.post(client, b"SET a 1\r\nGET a\r\nGET");
    world.half_close(client);
    assert!(world.closed.is_empty());
    world.wishes.lock().unwrap().hold = false;
    assert_eq!(world.text(client), "+OK|$1|1|");
    assert_eq!(world.closed, [client]);
}

#[test]
fn a_client_that_is_gone_leaves_nothing_behind() {
    let mut world = World::new();
    let client = world.connect();
    let other = world.connect();
    assert_eq!(world.ask(client, "WATCH a; MULTI; SET a 1"), "+OK|+OK|+QUEUED|");
    world.wishes.lock().unwrap().hold = true;
    world.post(other, b"INCR n\r\nINCR n\r\nINCR n\r\n");
    world.disconnect(client);
    world.disconnect(other);
    world.wishes.lock().unwrap().hold = false;
    world.settle();
    let third = world.connect();
    assert_eq!(
        world.ask(third, "GET a; GET n"),
        "$-1|$1|3|",
        "what was received takes effect, what was queued does not"
    );
    assert!(world.ask(third, "CLIENT LIST").matches("id=").count() == 1);
    world.begin_shutdown();
    world.settle();
    assert!(world.is_drained());
}

#[test]
fn shutdown_finishes_what_was_received() {
    let mut world = World::new();
    let client = world.connect();
    world.wishes.lock().unwrap().hold = true;
    world.post(client, b"SET a 1\r\nINCR a\r\nGET a\r\n");
    world.settle();
    world.begin_shutdown();
    world.settle();
    assert!(!world.is_drained());
    world.wishes.lock().unwrap().hold = false;
    assert_eq!(world.text(client), "+OK|:2|$1|2|");
    assert!(world.is_drained());
}

/// What a client is answered that sends a command when the gateway has told the shards that nothing
/// comes any more, and how many writes they get.
fn command_after_the_end() -> (String, u32) {
    let mut world = World::new();
    let client = world.connect();
    assert_eq!(world.ask(client, "SET a 1"), "+OK|");
    world.begin_shutdown();
    world.settle();
    assert!(world.is_drained(), "nothing is under way");
    world.post(client, b"SET a 2\r\n");
    let answer = world.text(client);
    assert_eq!(world.admitted(), [(0, 0); 2]);
    let writes = world.wishes.lock().unwrap().seen["write"];
    (answer, writes)
}

/// Stores close when no gateway is left that may write: a write that came later was acknowledged,
/// and lost.
#[test]
fn an_ended_gateway_begins_nothing() {
    assert_eq!(command_after_the_end(), (String::new(), 1));
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_gateway_that_begins_something_after_its_end_is_found_out() {
    let bug = timestone_types::planted::Bug::TakesLateCommands;
    let came = timestone_types::planted::with(bug, command_after_the_end);
    assert_eq!(came, ("+OK|".to_owned(), 2));
}

/// A shard whose log has failed never answers what waits for the log: how long the gateway of its
/// process takes to end, and how many decisions it sends when the answers come after all.
fn end_without_answers() -> (Option<Duration>, u32) {
    let mut world = World::new();
    let (client, other) = (world.connect(), world.connect());
    world.wishes.lock().unwrap().hold = true;
    world.post(client, b"SET a 1\r\n");
    world.post(other, b"MULTI\r\nSET b 1\r\nSET c 2\r\nSET d 3\r\nEXEC\r\n");
    world.settle();
    world.begin_shutdown();
    let took = world.end(Duration::from_secs(20));
    world.wishes.lock().unwrap().hold = false;
    world.pass(Duration::from_secs(1));
    let decided = world.wishes.lock().unwrap().seen.get("decide").copied();
    (took, decided.unwrap_or_default())
}

#[test]
fn a_gateway_ends_that_gets_no_answer() {
    let (took, decided) = end_without_answers();
    assert!(took.is_some_and(|took| took <= Duration::from_secs(4)), "{took:?}");
    assert_eq!(decided, 0, "stores may be closed by now");
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_gateway_that_waits_for_answers_that_never_come_is_found_out() {
    let (took, decided) = timestone_types::planted::with(
        timestone_types::planted::Bug::EndlessGateway,
        end_without_answers,
    );
    assert_eq!(took, None);
    assert!(decided > 0, "it is a transaction over several shards");
}

#[test]
fn a_keyspace_can_be_scanned_counted_and_flushed() {
    let mut world = World::new();
    let client = world.connect();
    assert_eq!(
        world.ask(client, "RANDOMKEY; DBSIZE; KEYS *; SCAN 0"),
        "$-1|:0|*0|*2|$15|140737488355328|*0|"
    );
    for number in 0..300 {
        world.post(client, format!("SET key:{number} x\r\n").as_bytes());
    }
    assert_eq!(world.text(client), "+OK|".repeat(300));
    assert_eq!(world.ask(client, "SET gone 1 PX 1; DBSIZE"), "+OK|:301|");
    world.pass(Duration::from_millis(5));
    assert_eq!(world.ask(client, "DBSIZE"), ":300|");
    let mut keys = std::collections::BTreeSet::new();
    let mut cursor = "0".to_owned();
    loop {
        let answer = world.ask(client, &format!("SCAN {cursor} COUNT 7 MATCH key:*"));
        let mut lines = answer.split('|').skip(2);
        cursor = lines.next().unwrap().to_owned();
        keys.extend(lines.filter(|line| line.starts_with("key:")).map(str::to_owned));
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(keys.len(), 300);
    assert_eq!(world.ask(client, "KEYS key:1?").matches("key:").count(), 10);
    assert!(world.ask(client, "RANDOMKEY").contains("key:"));
    assert_eq!(
        world.ask(client, "FLUSHDB; DBSIZE; GET key:1; SET key:1 y; DBSIZE"),
        "+OK|:0|$-1|+OK|:1|"
    );
    assert_eq!(
        world.ask(client, "FLUSHALL ASYNC; DBSIZE; FLUSHDB NOPE"),
        "+OK|:0|-ERR syntax error|"
    );
}

#[test]
fn both_dialects_are_spoken() {
    let mut world = World::new();
    let client = world.connect();
    let hello = world.ask(client, "HELLO 3 AUTH default any SETNAME me");
    assert!(
        hello.starts_with("%7|$6|server|$5|redis|$7|version|") && hello.contains("$5|proto|:3|"),
        "{hello}"
    );
    assert_eq!(
        world.ask(client, "GET nope; CLIENT GETNAME; WATCH a; SET a 1; MULTI; GET a; EXEC"),
        "_|$2|me|+OK|+OK|+OK|+QUEUED|_|"
    );
    assert!(world.ask(client, "CONFIG GET save").starts_with("%1|$4|save|$0||"));
    assert!(world.ask(client, "CONFIG HELP").starts_with("*7|+CONFIG <subcommand>"));
    // What an answer to an unknown subcommand tells to try, each command with subcommands has.
    for command in ["CONFIG", "CLIENT", "COMMAND"] {
        let unknown = world.ask(client, &format!("{command} NOPE"));
        assert!(unknown.contains(&format!("Try {command} HELP")), "{unknown}");
        let help = world.ask(client, &format!("{command} HELP"));
        assert!(
            help.contains(&format!(
                "|+{command} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:|"
            )),
            "{help}"
        );
        assert!(help.ends_with("+    Print this help.|"), "{help}");
        let more = world.ask(client, &format!("{command} HELP me"));
        assert!(more.contains("wrong number of arguments"), "{more}");
    }
    assert!(world.ask(client, "INFO server").starts_with('='));
    // The old answers are given in the old dialect, whenever they come.
    world.wishes.lock().unwrap().hold = true;
    world.post(client, b"GET nope\r\nHELLO 2\r\nGET nope\r\n");
    world.settle();
    world.wishes.lock().unwrap().hold = false;
    let answer = world.text(client);
    assert!(answer.starts_with("_|*14|") && answer.ends_with("$-1|"), "{answer}");
    assert_eq!(
        world.ask(client, "HELLO 3; RESET; GET nope").split_once("+RESET|").unwrap().1,
        "$-1|"
    );
    assert_eq!(
        world.ask(client, "HELLO 4; HELLO x; HELLO 2 NOPE"),
        "-NOPROTO unsupported protocol version|-ERR Protocol version is not an integer or out of \
         range|-ERR Syntax error in HELLO option 'NOPE'|"
    );
}

#[test]
fn commands_with_very_many_keys_run_alone() {
    let mut world = World::new();
    let client = world.connect();
    let keys: Vec<String> = (0..500).map(|number| format!("k{number}")).collect();
    let mut mset = vec!["MSET".to_owned()];
    mset.extend(keys.iter().flat_map(|key| [key.clone(), "1".to_owned()]));
    let mut delete = vec!["DEL".to_owned()];
    delete.extend(keys);
    let mut bytes = b"SET k7 0\r\n".to_vec();
    bytes.extend(encode(&mset));
    bytes.extend_from_slice(b"GET k7\r\n");
    bytes.extend(encode(&delete));
    bytes.extend_from_slice(b"GET k7\r\n");
    world.post(client, &bytes);
    assert_eq!(world.wait(client), "+OK|+OK|$1|1|:500|$-1|");
}

#[test]
fn values_may_look_like_another_protocol() {
    let mut world = World::new();
    let client = world.connect();
    for command in [
        &["SET", "k", "HTTP/1.1 200 OK"][..],
        &["SETNX", "n", "HTTP/1.1"],
        &["APPEND", "k", "HTTP/1.1"],
        &["GETSET", "k", "HTTP/1.1"],
        &["MSET", "k", "HTTP/1.1"],
        &["MULTI"],
        &["SET", "k", "HTTP/1.1"],
        &["EXEC"],
        &["GET", "k"],
    ] {
        world.post(client, &encode(command));
        let answer = world.wait(client);
        assert!(!answer.starts_with("HTTP/") && !answer.starts_with('-'), "{command:?}: {answer}");
        assert!(world.closed.is_empty(), "{command:?}");
    }
}
