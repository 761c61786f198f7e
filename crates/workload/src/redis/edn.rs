//! Histories of Redis clients as text: a head, and one EDN map a line, in the order in which things happened.
//!
//! ```text
//!   ; timestone history 1: {:workload :redis, :protocol :resp, :clock-slack 5000000}
//!   {:type :invoke, :process 0, :index 0, :time 10, :f :redis, :connection 0, :value ["SET" "r1" "v5"]}
//!   {:type :ok, :process 0, :index 1, :time 25, :f :redis, :connection 0, :value ["SET" "r1" "v5"], :reply :OK}
//! ```
//! A process has one call at a time, as in Jepsen's histories; so the calls of a pipeline are of several processes, and `:connection` says
//! which belong together, in the order of their invocations. A transaction's value is the list of its commands. `:fail` was refused, with the
//! error as its reply; `:info` is of unknown outcome, and its process is never heard of again.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::time::Duration;

use timestone_types::Timestamp;

use super::{Call, RedisHistory, Reply, Request};
use crate::WorkloadError;
use crate::history::edn::{Form, parse};

/// The function that lines of such histories name.
const FUNCTION: &str = "redis";

/// Whether a text is a history of Redis clients: its first event says so.
#[must_use]
pub fn is_redis(text: &str) -> bool {
    let first = text.lines().find_map(|line| parse(line).ok().flatten());
    first.is_some_and(|form| form.get("f") == Some(&Form::Keyword(FUNCTION)))
}

/// Writes a history.
///
/// # Errors
/// [`WorkloadError::Write`] from the writer.
pub fn write(history: &RedisHistory, out: &mut impl io::Write) -> Result<(), WorkloadError> {
    let slack = history.clock_slack.as_nanos();
    writeln!(out, "; timestone history 1: {{:workload :redis, :protocol :resp, :clock-slack {slack}}}")?;
    // Invocations and answers in real-time order; at one moment, answers stand behind invocations, for they prove no order.
    let mut order: Vec<(Timestamp, bool, usize)> = Vec::new();
    for (at, call) in history.calls.iter().enumerate() {
        order.push((call.invoked, false, at));
        order.push((call.answered.as_ref().map_or(Timestamp::MAX, |(when, _)| *when), true, at));
    }
    order.sort_unstable();
    let end = order.iter().filter(|(when, _, _)| *when < Timestamp::MAX).map(|(when, _, _)| *when).max();
    let mut line = String::new();
    let (mut free, mut processes, mut next) = (Vec::new(), BTreeMap::new(), 0u64);
    for (index, &(when, is_answer, at)) in order.iter().enumerate() {
        let call = &history.calls[at];
        let process = *processes.entry(at).or_insert_with(|| {
            free.pop().unwrap_or_else(|| {
                next += 1;
                next - 1
            })
        });
        let answer = if is_answer { call.answered.as_ref().map(|(_, reply)| reply) } else { None };
        let kind = match answer {
            _ if !is_answer => "invoke",
            None => "info",
            Some(reply) if reply.is_unknown() => "info",
            Some(reply) if reply.is_refusal() => "fail",
            Some(_) => "ok",
        };
        if is_answer && kind != "info" {
            free.push(process);
        }
        let nanos = when.min(end.unwrap_or_default()).as_nanos();
        line.clear();
        // Writing to a String cannot fail.
        let _ = write!(
            line,
            "{{:type :{kind}, :process {process}, :index {index}, :time {nanos}, :f :{FUNCTION}, :connection {}, :value ",
            call.connection
        );
        request_text(&call.request, &mut line);
        if let Some(reply) = answer {
            line.push_str(", :reply ");
            reply_text(reply, &mut line);
        }
        line.push_str("}\n");
        out.write_all(line.as_bytes())?;
    }
    Ok(())
}

fn words_text(words: &[String], out: &mut String) {
    out.push('[');
    for (at, word) in words.iter().enumerate() {
        out.push_str(if at > 0 { " \"" } else { "\"" });
        quoted(word, out);
        out.push('"');
    }
    out.push(']');
}

fn quoted(text: &str, out: &mut String) {
    for c in text.chars() {
        // What would end the text, or the line, is left out: only words of errors have it.
        out.push(if matches!(c, '"' | '\\') || c.is_control() { '\'' } else { c });
    }
}

fn request_text(request: &Request, out: &mut String) {
    match request {
        Request::One(words) => words_text(words, out),
        Request::Transaction(commands) => {
            out.push('[');
            for (at, words) in commands.iter().enumerate() {
                if at > 0 {
                    out.push(' ');
                }
                words_text(words, out);
            }
            out.push(']');
        }
    }
}

fn reply_text(reply: &Reply, out: &mut String) {
    match reply {
        Reply::Status(text) => {
            out.push(':');
            out.push_str(text);
        }
        Reply::Error(text) => {
            out.push_str("#error \"");
            quoted(text, out);
            out.push('"');
        }
        Reply::Integer(number) => out.push_str(&number.to_string()),
        Reply::Text(text) => {
            out.push('"');
            quoted(text, out);
            out.push('"');
        }
        Reply::Nil => out.push_str("nil"),
        Reply::Array(replies) => {
            out.push('[');
            for (at, one) in replies.iter().enumerate() {
                if at > 0 {
                    out.push(' ');
                }
                reply_text(one, out);
            }
            out.push(']');
        }
    }
}

/// Reads a history.
///
/// # Errors
/// [`WorkloadError::History`] with the first line that is malformed, answers what was not asked, or asks twice at once.
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

fn read_line(line: &str, history: &mut RedisHistory, open: &mut BTreeMap<i64, usize>) -> Result<(), String> {
    let Some(form) = parse(line)? else { return Ok(()) };
    if form.get("f") != Some(&Form::Keyword(FUNCTION)) {
        return Ok(());
    }
    let number = |name: &str| match form.get(name) {
        Some(Form::Integer(number)) => Ok(*number),
        _ => Err(format!("has no :{name}")),
    };
    let process = number("process")?;
    let time = Timestamp::from_nanos(u64::try_from(number("time")?).map_err(|_| "has a negative :time")?);
    let kind = match form.get("type") {
        Some(Form::Keyword(kind)) => *kind,
        _ => return Err("has no :type".to_owned()),
    };
    if kind == "invoke" {
        if open.insert(process, history.calls.len()).is_some() {
            return Err(format!("process {process} asks again before it was answered"));
        }
        let connection = u64::try_from(number("connection")?).map_err(|_| "has a negative :connection")?;
        let request = request(form.get("value").ok_or("has no :value")?)?;
        history.calls.push(Call { connection, request, invoked: time, answered: None });
        return Ok(());
    }
    let at = open.remove(&process).ok_or_else(|| format!("process {process} is answered what it did not ask"))?;
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
    let Form::Sequence(words) = form else { return Err("has a command that is no vector".to_owned()) };
    let text = |word: &Form<'_>| match word {
        Form::Text(text) => Ok((*text).to_owned()),
        _ => Err("has a command with a word that is no text".to_owned()),
    };
    words.iter().map(text).collect()
}

fn request(form: &Form<'_>) -> Result<Request, String> {
    let Form::Sequence(parts) = form else { return Err("has a :value that is no vector".to_owned()) };
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
        Form::Sequence(replies) => Reply::Array(replies.iter().map(reply).collect::<Result<_, _>>()?),
        Form::Bool(_) | Form::Map(_) => return Err("has a :reply that no server gives".to_owned()),
    })
}

#[cfg(test)]
mod tests {
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
        let exec = Call { request: transaction, ..call(1, "x", 12, Some((40, Reply::Array(vec![Reply::Integer(3)])))) };
        RedisHistory {
            clock_slack: Duration::from_nanos(77),
            calls: vec![
                call(0, "SET r0 v1", 10, Some((30, ok))),
                call(0, "GET r0", 11, Some((31, text("v1")))),
                exec,
                call(2, "GET r1", 13, None),
                call(3, "INCR n0", 14, Some((15, Reply::Error("UNKNOWN no answer came".to_owned())))),
                call(0, "GET r9", 50, Some((60, Reply::Nil))),
                call(0, "INCR n1", 61, Some((62, Reply::Error("TRYAGAIN the server is busy".to_owned())))),
                call(4, "SCAN 0 COUNT 5", 63, Some((64, Reply::Array(vec![text("0"), Reply::Array(vec![])])))),
            ],
        }
    }

    #[test]
    fn a_history_reads_back_as_written() {
        let mut out = Vec::new();
        write(&sample(), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(is_redis(&text) && text.starts_with("; timestone history 1: {:workload :redis"), "{text}");
        assert_eq!(read(&text).unwrap(), sample());
        assert_eq!(text.lines().filter(|line| line.contains(":type :info")).count(), 2);
        assert!(!is_redis("{:type :invoke, :process 0, :index 0, :time 0, :f :txn, :value [[:r 1 nil]]}"));
    }

    #[test]
    fn what_is_malformed_is_named_with_its_line() {
        let invoke =
            "{:type :invoke, :process 0, :index 0, :time 1, :f :redis, :connection 0, :value [\"GET\" \"r0\"]}";
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
