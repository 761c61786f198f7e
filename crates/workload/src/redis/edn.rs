//! Histories of Redis clients as text: a head, and one EDN map a line, in the order in which things
//! happened. Written by `record.rs`.
//!
//! ```text
//!   ; timestone history 1: {:workload :redis, :protocol :resp, :clock-slack 5000000}
//!   {:type :invoke, :process 0, :index 0, :time 10, :f :redis, :connection 0, :value ["SET" "r1" "v5"]}
//!   {:type :ok, :process 0, :index 1, :time 25, :f :redis, :connection 0, :value ["SET" "r1" "v5"], :reply :OK}
//! ```
//! A process has one call at a time, as in Jepsen's histories; so the calls of a pipeline are of
//! several processes, and `:connection` says which belong together, in the order of their
//! invocations. A transaction's value is the list of its commands. `:fail` was refused, with the
//! error as its reply; `:info` is of unknown outcome, and its process is never heard of again.

use std::collections::BTreeMap;
use std::time::Duration;

use timestone_types::Timestamp;

use super::{Call, RedisHistory, Reply, Request};
use crate::WorkloadError;
use crate::history::edn::{Form, parse};

/// The function that lines of such histories name, and the workload of their head.
pub(super) const FUNCTION: &str = "redis";
/// A head begins with this, and the number of its form.
pub(super) const OPENING: &str = "; timestone history ";

/// Whether a text is a history of Redis clients: its head says so, or its first event.
#[must_use]
pub fn is_redis(text: &str) -> bool {
    let head = text
        .lines()
        .next()
        .and_then(|line| line.strip_prefix(OPENING))
        .and_then(|line| line.split_once(": "));
    if let Some((_, map)) = head
        && let Ok(Some(form)) = parse(map)
        && form.get("workload") == Some(&Form::Keyword(FUNCTION))
    {
        return true;
    }
    let first = text.lines().find_map(|line| parse(line).ok().flatten());
    first.is_some_and(|form| form.get("f") == Some(&Form::Keyword(FUNCTION)))
}

/// Reads a history.
///
/// # Errors
/// [`WorkloadError::History`] with the first line that is malformed, answers what was not asked, or
/// asks twice at once.
pub fn read(text: &str) -> Result<RedisHistory, WorkloadError> {
    let mut history = RedisHistory::default();
    let mut open: BTreeMap<i64, usize> = BTreeMap::new();
    for (at, line) in text.lines().enumerate() {
        let outcome = match line.strip_prefix(';') {
            Some(head) => read_head(head, &mut history),
            None => read_line(line, &mut history, &mut open),
        };
        outcome.map_err(|problem| WorkloadError::History { line: at + 1, problem })?;
    }
    Ok(history)
}

/// The head; any other comment says nothing.
fn read_head(line: &str, history: &mut RedisHistory) -> Result<(), String> {
    let head = line.find('{').map_or("", |at| &line[at..]);
    let Ok(Some(form)) = parse(head) else { return Ok(()) };
    if let Some(Form::Integer(nanos)) = form.get("clock-slack") {
        let nanos = u64::try_from(*nanos).map_err(|_| "has a negative :clock-slack")?;
        history.clock_slack = Duration::from_nanos(nanos);
    }
    Ok(())
}

fn read_line(
    line: &str,
    history: &mut RedisHistory,
    open: &mut BTreeMap<i64, usize>,
) -> Result<(), String> {
    let Some(form) = parse(line)? else { return Ok(()) };
    if form.get("f") != Some(&Form::Keyword(FUNCTION)) {
        return Ok(());
    }
    let number = |name: &str| match form.get(name) {
        Some(Form::Integer(number)) => Ok(*number),
        _ => Err(format!("has no :{name}")),
    };
    let process = number("process")?;
    let time =
        Timestamp::from_nanos(u64::try_from(number("time")?).map_err(|_| "has a negative :time")?);
    let kind = match form.get("type") {
        Some(Form::Keyword(kind)) => *kind,
        _ => return Err("has no :type".to_owned()),
    };
    if kind == "invoke" {
        if open.insert(process, history.calls.len()).is_some() {
            return Err(format!("process {process} asks again before it was answered"));
        }
        let connection =
            u64::try_from(number("connection")?).map_err(|_| "has a negative :connection")?;
        let request = request(form.get("value").ok_or("has no :value")?)?;
        history.calls.push(Call { connection, request, invoked: time, answered: None });
        return Ok(());
    }
    let at = open
        .remove(&process)
        .ok_or_else(|| format!("process {process} is answered what it did not ask"))?;
    let reply = form.get("reply").map(reply).transpose()?;
    history.calls[at].answered = match (kind, reply) {
        ("ok", Some(reply)) => Some((time, reply)),
        ("fail", Some(Reply::Text(text))) => Some((time, Reply::Error(text))),
        // An answer that says UNKNOWN came, and the connection goes on.
        ("info", Some(Reply::Text(text))) => Some((time, Reply::Error(text))),
        ("info", None) => None,
        _ => return Err(format!("has the :type :{kind} and no fitting :reply")),
    };
    Ok(())
}

fn texts(form: &Form<'_>) -> Result<Vec<String>, String> {
    let Form::Sequence(words) = form else {
        return Err("has a command that is no vector".to_owned());
    };
    let text = |word: &Form<'_>| match word {
        Form::Text(text) => Ok((*text).to_owned()),
        _ => Err("has a command with a word that is no text".to_owned()),
    };
    words.iter().map(text).collect()
}

fn request(form: &Form<'_>) -> Result<Request, String> {
    let Form::Sequence(parts) = form else {
        return Err("has a :value that is no vector".to_owned());
    };
    if matches!(parts.first(), Some(Form::Sequence(_))) {
        return parts.iter().map(texts).collect::<Result<_, _>>().map(Request::Transaction);
    }
    texts(form).map(Request::One)
}

/// An error's tag is passed over, so that it reads as a text: its line's type tells which it is.
fn reply(form: &Form<'_>) -> Result<Reply, String> {
    Ok(match form {
        Form::Nil => Reply::Nil,
        Form::Integer(number) => Reply::Integer(*number),
        Form::Keyword(text) => Reply::Status((*text).to_owned()),
        Form::Text(text) => Reply::Text((*text).to_owned()),
        Form::Sequence(replies) => {
            Reply::Array(replies.iter().map(reply).collect::<Result<_, _>>()?)
        }
        Form::Bool(_) | Form::Map(_) => return Err("has a :reply that no server gives".to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::super::write;
    use super::*;

    fn call(connection: u64, text: &str, invoked: u64, answered: Option<(u64, Reply)>) -> Call {
        let at = Timestamp::from_nanos;
        let answered = answered.map(|(when, reply)| (at(when), reply));
        Call { connection, request: Request::command(text), invoked: at(invoked), answered }
    }

    fn sample() -> RedisHistory {
        let text = |text: &str| Reply::Text(text.to_owned());
        let ok = Reply::Status("OK".to_owned());
        let transaction = Request::Transaction(vec![vec!["INCR".to_owned(), "n0".to_owned()]]);
        let exec = Call {
            request: transaction,
            ..call(1, "x", 12, Some((40, Reply::Array(vec![Reply::Integer(3)]))))
        };
        RedisHistory {
            clock_slack: Duration::from_nanos(77),
            calls: vec![
                call(0, "SET r0 v1", 10, Some((30, ok))),
                call(0, "GET r0", 11, Some((31, text("v1")))),
                exec,
                call(2, "GET r1", 13, None),
                call(
                    3,
                    "INCR n0",
                    14,
                    Some((15, Reply::Error("UNKNOWN no answer came".to_owned()))),
                ),
                call(0, "GET r9", 50, Some((60, Reply::Nil))),
                call(
                    0,
                    "INCR n1",
                    61,
                    Some((62, Reply::Error("TRYAGAIN the server is busy".to_owned()))),
                ),
                call(
                    4,
                    "SCAN 0 COUNT 5",
                    63,
                    Some((64, Reply::Array(vec![text("0"), Reply::Array(vec![])]))),
                ),
            ],
        }
    }

    #[test]
    fn a_history_reads_back_as_written() {
        let mut out = Vec::new();
        write(&sample(), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(
            is_redis(&text) && text.starts_with("; timestone history 1: {:workload :redis"),
            "{text}"
        );
        assert_eq!(read(&text).unwrap(), sample());
        assert_eq!(text.lines().filter(|line| line.contains(":type :info")).count(), 2);
        assert!(!is_redis(
            "{:type :invoke, :process 0, :index 0, :time 0, :f :txn, :value [[:r 1 nil]]}"
        ));
        assert!(is_redis(text.lines().next().unwrap()), "one without an event says so in its head");
        assert!(!is_redis("; timestone history 1: {:workload :bank}"));
    }

    #[test]
    fn what_is_malformed_is_named_with_its_line() {
        let invoke = "{:type :invoke, :process 0, :index 0, :time 1, :f :redis, :connection 0, \
            :value [\"GET\" \"r0\"]}";
        for (text, problem) in [
            (format!("{invoke}\n{invoke}"), "asks again"),
            (invoke.replace("invoke", "ok"), "did not ask"),
            (invoke.replace(":time 1", ":time -1"), "negative :time"),
            (invoke.replace("[\"GET\" \"r0\"]", "5"), "no vector"),
            (format!("{invoke}\n{}", invoke.replace("invoke", "ok")), "no fitting :reply"),
        ] {
            let found = read(&text).unwrap_err().to_string();
            assert!(found.contains(problem), "{text}: {found}");
        }
    }
}
