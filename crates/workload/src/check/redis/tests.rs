//! Histories by hand, each a list of calls: right ones, and wrong ones with what is found in them.

use std::time::Duration;

use timestone_types::Timestamp;

use super::check_redis;
use crate::check::verdict::AnomalyKind;
use crate::redis::{Call, RedisHistory, Reply, Request};

/// A history, a call a line: connection, begin and end in milliseconds (`-`: never), the request
/// (commands of a transaction with `;`), and behind `=` the answer.
fn history(lines: &[&str]) -> RedisHistory {
    let mut calls: Vec<Call> = lines.iter().map(|line| call(line)).collect();
    calls.sort_by_key(|call| call.invoked);
    RedisHistory { clock_slack: Duration::from_millis(2), calls }
}

fn call(line: &str) -> Call {
    let (asked, answer) = line.split_once(" = ").unwrap_or((line, ""));
    let mut words = asked.splitn(4, ' ');
    let mut next = || words.next().unwrap();
    let at = |text: &str| Timestamp::from_nanos(text.parse::<u64>().unwrap() * 1_000_000);
    let (connection, begin, end, text) =
        (next().parse().unwrap(), at(next()), next().to_owned(), next());
    let request = match text.strip_prefix("MULTI; ") {
        Some(commands) => {
            let split = |command: &str| command.split(' ').map(str::to_owned).collect();
            Request::Transaction(commands.split("; ").map(split).collect())
        }
        None => Request::command(text),
    };
    let answered = (end != "-").then(|| (at(&end), reply(&mut answer.split(' ').peekable())));
    Call { connection, request, invoked: begin, answered }
}

fn reply<'a>(words: &mut std::iter::Peekable<impl Iterator<Item = &'a str>>) -> Reply {
    match words.next().unwrap() {
        "OK" => Reply::Status("OK".to_owned()),
        "nil" => Reply::Nil,
        "[" => {
            let mut all = Vec::new();
            while words.peek() != Some(&"]") {
                all.push(reply(words));
            }
            words.next();
            Reply::Array(all)
        }
        text if text.starts_with('-') => Reply::Error(text[1..].to_owned()),
        text => match text.strip_prefix(':') {
            Some(number) => Reply::Integer(number.parse().unwrap()),
            None => Reply::Text(text.to_owned()),
        },
    }
}

#[track_caller]
fn right(lines: &[&str]) {
    let verdict = check_redis(&history(lines));
    assert!(verdict.is_valid() && verdict.undecided == 0, "{verdict}");
}

#[track_caller]
fn wrong(kind: AnomalyKind, lines: &[&str]) {
    let verdict = check_redis(&history(lines));
    assert!(verdict.has(kind), "{kind:?} is not found: {verdict}");
}

#[test]
fn one_key_may_be_used_at_the_same_time_in_any_order_that_explains_all() {
    right(&["0 1 9 SET k v1 = OK", "1 2 8 GET k = nil", "2 3 7 GET k = v1", "1 10 11 GET k = v1"]);
    right(&[
        "0 1 9 SET k v1 = OK",
        "1 1 9 SET k v2 = OK",
        "2 10 11 GET k = v1",
        "3 10 11 STRLEN k = :2",
    ]);
    right(&[
        "0 1 9 SET k v1 NX = OK",
        "1 1 9 SET k v2 NX = nil",
        "2 2 3 GET k = v1",
        "2 10 11 GETDEL k = v1",
        "2 12 13 EXISTS k = :0",
    ]);
    right(&[
        "0 1 2 INCR n = :1",
        "1 3 9 INCR n = :3",
        "2 3 9 INCR n = :2",
        "0 10 11 GET n = 3",
        "0 12 13 INCRBY n 10 = :13",
    ]);
    right(&[
        "0 1 2 APPEND l v1 = :2",
        "1 3 9 APPEND l v2 = :6",
        "2 3 9 APPEND l v3 = :4",
        "0 10 11 GET l = v1v3v2",
    ]);
}

#[test]
fn stale_and_made_up_answers_are_found() {
    wrong(AnomalyKind::NotLinearizable, &["0 1 2 SET k v1 = OK", "1 3 4 GET k = nil"]);
    wrong(
        AnomalyKind::NotLinearizable,
        &["0 1 2 SET k v1 = OK", "1 3 4 SET k v2 = OK", "2 5 6 GET k = v1"],
    );
    wrong(
        AnomalyKind::NotLinearizable,
        &["0 1 9 SET k v1 = OK", "1 2 3 GET k = v1", "2 4 5 GET k = nil"],
    );
    wrong(AnomalyKind::NotLinearizable, &["0 1 2 GET k = v7"]);
    wrong(AnomalyKind::NotLinearizable, &["0 1 2 SET k v1 NX = OK", "1 3 4 SET k v2 NX = OK"]);
    wrong(
        AnomalyKind::NotLinearizable,
        &["0 1 2 SET k v1 = OK", "1 3 4 GETDEL k = v1", "2 5 6 GETDEL k = v1"],
    );
    wrong(AnomalyKind::NotLinearizable, &["0 1 2 SET k v1 = OK", "1 3 4 SET k v2 GET = nil"]);
    wrong(AnomalyKind::NotLinearizable, &["0 1 2 DEL k = :1"]);
}

#[test]
fn increments_and_appends_take_place_once() {
    wrong(AnomalyKind::NotLinearizable, &["0 1 2 INCR n = :1", "1 3 4 INCR n = :3"]);
    wrong(AnomalyKind::NotLinearizable, &["0 1 9 INCR n = :1", "1 2 8 INCR n = :1"]);
    wrong(AnomalyKind::NotLinearizable, &["0 1 2 APPEND l v1 = :2", "1 3 4 GET l = v1v1"]);
    wrong(AnomalyKind::NotLinearizable, &["0 1 - INCR n", "1 3 4 INCR n = :3"]);
    right(&["0 1 - INCR n", "1 3 4 INCR n = :2"]);
    right(&["0 1 - INCR n", "1 3 4 INCR n = :1", "1 5 6 GET n = 1", "1 7 8 GET n = 2"]);
}

#[test]
fn what_was_never_answered_may_have_been_done_once_and_late_or_never() {
    right(&["0 1 - SET k v1", "1 3 4 GET k = nil", "1 5 6 GET k = v1", "1 7 8 GET k = v1"]);
    right(&["0 1 - SET k v1", "1 3 4 SET k v2 = OK", "1 5 6 GET k = v2"]);
    wrong(
        AnomalyKind::NotLinearizable,
        &["0 1 - SET k v1", "1 3 4 GET k = v1", "1 5 6 SET k v2 = OK", "1 7 8 GET k = v1"],
    );
    wrong(AnomalyKind::NotLinearizable, &["1 1 2 GET k = v1", "0 3 - SET k v1"]);
    // An answer of unknown outcome, and one that says that nothing was done.
    right(&["0 1 2 SET k v1 = -UNKNOWN", "1 3 4 GET k = v1"]);
    wrong(AnomalyKind::NotLinearizable, &["0 1 2 SET k v1 = -TRYAGAIN", "1 3 4 GET k = v1"]);
    // Many of them, of which each read wants another one.
    let mut lines: Vec<String> = (0..40).map(|n| format!("{n} 1 - SET k v{n}")).collect();
    lines.extend((0..40).rev().map(|n| format!("50 {} {} GET k = v{n}", 100 - n, 100 - n)));
    right(&lines.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn commands_of_a_pipeline_on_one_key_take_effect_in_order() {
    right(&["0 1 8 SET k v1 = OK", "0 1 9 SET k v2 = OK", "1 10 11 GET k = v2"]);
    wrong(
        AnomalyKind::NotLinearizable,
        &["0 1 8 SET k v1 = OK", "0 1 9 SET k v2 = OK", "1 10 11 GET k = v1"],
    );
    wrong(AnomalyKind::NotLinearizable, &["0 1 8 SET k v1 = OK", "0 1 9 GET k = nil"]);
    // Other connections have no part in it.
    right(&["0 1 8 SET k v1 = OK", "1 1 9 SET k v2 = OK", "1 10 11 GET k = v1"]);
}

#[test]
fn keys_expire_when_their_time_has_come_and_not_before() {
    right(&["0 1 2 SET k v1 PX 100 = OK", "1 50 51 GET k = v1", "1 104 105 GET k = nil"]);
    // The clock that it is measured by is known up to two milliseconds.
    right(&["0 1 2 SET k v1 PX 100 = OK", "1 99 100 GET k = nil"]);
    right(&["0 1 2 SET k v1 PX 100 = OK", "1 104 105 GET k = v1"]);
    wrong(AnomalyKind::NotLinearizable, &["0 1 2 SET k v1 PX 100 = OK", "1 50 51 GET k = nil"]);
    wrong(AnomalyKind::NotLinearizable, &["0 1 2 SET k v1 PX 100 = OK", "1 120 121 GET k = v1"]);
    // What was seen expired does not come back.
    wrong(
        AnomalyKind::NotLinearizable,
        &["0 1 2 SET k v1 PX 100 = OK", "1 101 102 GET k = nil", "2 103 104 GET k = v1"],
    );
    right(&[
        "0 1 2 SET k v1 PX 100 = OK",
        "0 3 4 PERSIST k = :1",
        "1 200 201 GET k = v1",
        "1 202 203 PTTL k = :-1",
    ]);
    right(&[
        "0 1 2 SET k v1 = OK",
        "0 3 4 PEXPIRE k 50 = :1",
        "1 10 11 PTTL k = :44",
        "1 60 61 GET k = nil",
        "1 62 63 PTTL k = :-2",
    ]);
    wrong(AnomalyKind::NotLinearizable, &["0 1 2 SET k v1 PX 100 = OK", "1 50 51 PTTL k = :90"]);
    wrong(
        AnomalyKind::NotLinearizable,
        &["0 1 2 SET k v1 PX 100 = OK", "0 3 4 SET k v2 = OK", "1 200 201 GET k = nil"],
    );
    right(&["0 1 2 SET k v1 PX 100 = OK", "0 3 4 SET k v2 KEEPTTL = OK", "1 200 201 GET k = nil"]);
}

#[test]
fn transactions_over_several_keys_are_atomic() {
    right(&[
        "0 1 9 MSET a v1 b v2 = OK",
        "1 2 8 MGET a b = [ nil nil ]",
        "1 10 11 MGET a b = [ v1 v2 ]",
    ]);
    let torn = ["0 1 9 MSET a v1 b v2 = OK", "1 2 8 MGET a b = [ v1 nil ]"];
    assert!(!check_redis(&history(&torn)).is_valid());
    // Each key by itself is right: two readers see two writes in different orders.
    let skew = [
        "0 1 9 SET a v1 = OK",
        "1 1 9 SET b v2 = OK",
        "2 2 8 MGET a b = [ v1 nil ]",
        "3 2 8 MGET a b = [ nil v2 ]",
    ];
    assert!(!check_redis(&history(&skew)).is_valid());
    right(&[
        "0 1 9 MULTI; SET a v1; INCR n; GET b = [ OK :1 nil ]",
        "1 10 11 GET n = 1",
        "1 10 11 GET a = v1",
    ]);
    wrong(
        AnomalyKind::NotLinearizable,
        &["0 1 2 MULTI; SET a v1; INCR n = -EXECABORT", "1 10 11 GET n = 1"],
    );
    wrong(AnomalyKind::WrongAnswer, &["0 1 2 MULTI; SET a v1; INCR n = [ OK ]"]);
    wrong(AnomalyKind::WrongAnswer, &["0 1 2 GET a = :1"]);
    right(&[
        "0 1 2 MSETNX a v1 b v2 = :1",
        "0 3 4 MSETNX b v3 c v4 = :0",
        "1 5 6 EXISTS a b = :2",
        "1 7 8 DEL a b = :2",
    ]);
    wrong(AnomalyKind::NotLinearizable, &["0 1 2 SET a v1 = OK", "0 3 4 DEL a b = :0"]);
}

#[test]
fn exec_is_nil_when_a_watched_key_was_touched_and_only_then() {
    let begin = ["0 1 2 WATCH a = OK", "0 3 4 GET a = nil"];
    let with = |lines: &[&'static str]| -> Vec<&'static str> {
        begin.iter().copied().chain(lines.iter().copied()).collect()
    };
    right(&with(&["0 5 6 MULTI; SET a v1 = [ OK ]"]));
    right(&with(&["1 3 9 SET a v9 = OK", "0 5 8 MULTI; SET a v1 = nil", "2 10 11 GET a = v9"]));
    wrong(AnomalyKind::WrongExec, &with(&["0 5 6 MULTI; SET a v1 = nil"]));
    wrong(
        AnomalyKind::WrongExec,
        &with(&["1 5 6 SET a v9 = OK", "0 7 8 MULTI; SET a v1 = [ OK ]"]),
    );
    // It was read under WATCH, so what it held then it holds when EXEC is carried out.
    wrong(
        AnomalyKind::NotLinearizable,
        &[
            "1 1 9 SET a v9 = OK",
            "0 1 2 WATCH a = OK",
            "0 3 4 GET a = nil",
            "2 5 6 GET a = v9",
            "0 7 8 MULTI; SET a v1 = [ OK ]",
        ],
    );
    right(&[
        "0 1 2 WATCH a = OK",
        "0 3 4 UNWATCH = OK",
        "1 5 6 SET a v9 = OK",
        "0 7 8 MULTI; SET a v1 = [ OK ]",
    ]);
}

#[test]
fn scans_return_what_is_there_throughout_and_nothing_that_never_was() {
    let begin = ["0 1 2 SET a v1 = OK", "0 3 4 SET b v2 = OK"];
    let with = |lines: &[&'static str]| -> Vec<&'static str> {
        begin.iter().copied().chain(lines.iter().copied()).collect()
    };
    right(&with(&["1 5 6 SCAN 0 COUNT 1 = [ 17 [ a ] ]", "1 7 8 SCAN 17 COUNT 1 = [ 0 [ b a ] ]"]));
    wrong(
        AnomalyKind::WrongScan,
        &with(&["1 5 6 SCAN 0 COUNT 1 = [ 17 [ a ] ]", "1 7 8 SCAN 17 COUNT 1 = [ 0 [ ] ]"]),
    );
    wrong(AnomalyKind::WrongScan, &with(&["1 5 6 SCAN 0 = [ 0 [ a b c ] ]"]));
    // It was taken away meanwhile, or may have been.
    right(&with(&["1 5 9 SCAN 0 = [ 0 [ a ] ]", "0 6 7 DEL b = :1"]));
    right(&with(&["1 5 9 SCAN 0 = [ 0 [ a ] ]", "0 4 - DEL b"]));
    right(&with(&[
        "1 5 6 SCAN 0 MATCH b* = [ 0 [ b ] ]",
        "1 7 8 SCAN 0 = [ 5 [ ] ]",
        "1 9 10 SCAN 5 = -TRYAGAIN",
    ]));
    right(&["0 1 2 SET a v1 PX 50 = OK", "1 100 101 SCAN 0 = [ 0 [ ] ]"]);
}

#[test]
fn counts_lists_and_clearing_are_of_one_moment() {
    let begin = ["0 1 2 SET a v1 = OK", "0 3 4 SET b v2 = OK"];
    let with = |lines: &[&'static str]| -> Vec<&'static str> {
        begin.iter().copied().chain(lines.iter().copied()).collect()
    };
    right(&with(&[
        "1 5 6 DBSIZE = :2",
        "1 7 8 KEYS * = [ b a ]",
        "1 9 10 FLUSHDB = OK",
        "2 11 12 DBSIZE = :0",
        "2 13 14 GET a = nil",
    ]));
    wrong(AnomalyKind::WrongCount, &with(&["1 5 6 DBSIZE = :1"]));
    wrong(AnomalyKind::WrongCount, &with(&["1 5 6 FLUSHDB = OK", "2 7 8 DBSIZE = :2"]));
    wrong(AnomalyKind::NotLinearizable, &with(&["1 5 6 KEYS * = [ b ]"]));
    wrong(AnomalyKind::NotLinearizable, &with(&["1 5 6 FLUSHDB = OK", "2 7 8 GET a = v1"]));
    right(&with(&["1 5 9 DBSIZE = :3", "0 6 7 SET c v3 = OK", "1 5 9 DBSIZE = :2"]));
}
