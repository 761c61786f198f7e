//! Writing a history of Redis clients, while it happens or from memory. Its form stands in
//! `edn.rs`, which reads it.
//!
//! One recorder serves all connections of a run; threads share it behind a lock and read the clock
//! under it, so that the lines stand in real-time order.
//!
//! # Invariants
//! - Every line is written whole, by one call of the writer.
//! - A process has one call at a time, and none after one of unknown outcome.
//! - A history that was finished has an answer or `:info` for every call.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::time::Duration;

use timestone_types::Timestamp;

use super::edn::{FUNCTION, OPENING};
use super::{RedisHistory, Reply, Request};
use crate::WorkloadError;

/// A call that was sent and is not over, as a recorder knows it: the number of its process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct CallRef(u64);

/// Writes calls and answers as EDN, one map a line.
#[derive(Debug)]
pub struct RedisRecorder<W> {
    out: W,
    index: u64,
    line: String,
    /// Processes without a call, and the first number that no process has.
    free: Vec<u64>,
    next: u64,
    /// By process: its call, as far as its lines repeat it.
    open: BTreeMap<u64, String>,
    next_connection: u64,
}

impl<W: io::Write> RedisRecorder<W> {
    /// Begins a history in `out` (buffer it); `clock_slack` is how far the server's clock may be
    /// wrong about a span of time.
    ///
    /// # Errors
    /// [`WorkloadError::Write`] from the writer.
    pub fn begin(mut out: W, clock_slack: Duration) -> Result<Self, WorkloadError> {
        let slack = clock_slack.as_nanos();
        let head = format!(
            "{OPENING}1: {{:workload :{FUNCTION}, :protocol :resp, :clock-slack {slack}}}\n"
        );
        out.write_all(head.as_bytes())?;
        let (free, open) = (Vec::new(), BTreeMap::new());
        Ok(Self { out, index: 0, line: String::new(), free, next: 0, open, next_connection: 0 })
    }

    /// The number of a new connection, which none has after it.
    pub const fn connect(&mut self) -> u64 {
        self.next_connection += 1;
        self.next_connection - 1
    }

    /// A connection sends a request; `at` counts from the run's begin.
    ///
    /// # Errors
    /// [`WorkloadError::Write`] from the writer.
    pub fn invoke(
        &mut self,
        at: Timestamp,
        connection: u64,
        request: &Request,
    ) -> Result<CallRef, WorkloadError> {
        let process = self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        let mut call = format!(":connection {connection}, :value ");
        request_text(request, &mut call);
        self.write_line("invoke", process, at, &call, None)?;
        self.open.insert(process, call);
        Ok(CallRef(process))
    }

    /// A call is answered.
    ///
    /// # Errors
    /// [`WorkloadError::Write`] from the writer.
    ///
    /// # Panics
    /// When the call is over already.
    pub fn answer(
        &mut self,
        at: Timestamp,
        call: CallRef,
        reply: &Reply,
    ) -> Result<(), WorkloadError> {
        let kind = match () {
            () if reply.is_unknown() => "info",
            () if reply.is_refusal() => "fail",
            () => "ok",
        };
        self.end(kind, at, call, Some(reply))
    }

    /// A call will never be answered: its connection broke.
    ///
    /// # Errors
    /// [`WorkloadError::Write`] from the writer.
    ///
    /// # Panics
    /// When the call is over already.
    pub fn abandon(&mut self, at: Timestamp, call: CallRef) -> Result<(), WorkloadError> {
        self.end("info", at, call, None)
    }

    fn end(
        &mut self,
        kind: &str,
        at: Timestamp,
        call: CallRef,
        reply: Option<&Reply>,
    ) -> Result<(), WorkloadError> {
        let process = call.0;
        let text = self.open.remove(&process);
        assert!(text.is_some(), "process {process} ends a call that it has not sent");
        self.write_line(kind, process, at, &text.unwrap_or_default(), reply)?;
        if kind != "info" {
            self.free.push(process);
        }
        Ok(())
    }

    /// Ends the history: what is still open is of unknown outcome, and says so.
    ///
    /// # Errors
    /// [`WorkloadError::Write`] from the writer.
    pub fn finish(mut self, at: Timestamp) -> Result<W, WorkloadError> {
        let open: Vec<u64> = self.open.keys().copied().collect();
        for process in open {
            self.abandon(at, CallRef(process))?;
        }
        self.out.flush()?;
        Ok(self.out)
    }

    fn write_line(
        &mut self,
        kind: &str,
        process: u64,
        at: Timestamp,
        call: &str,
        reply: Option<&Reply>,
    ) -> Result<(), WorkloadError> {
        let (index, nanos) = (self.index, at.as_nanos());
        self.line.clear();
        // Writing to a String cannot fail.
        let _ = write!(
            self.line,
            "{{:type :{kind}, :process {process}, :index {index}, :time {nanos}, :f :{FUNCTION}, \
             {call}"
        );
        if let Some(reply) = reply {
            self.line.push_str(", :reply ");
            reply_text(reply, &mut self.line);
        }
        self.line.push_str("}\n");
        self.index += 1;
        self.out.write_all(self.line.as_bytes())?;
        Ok(())
    }
}

/// Writes a history that is in memory.
///
/// # Errors
/// [`WorkloadError::Write`] from the writer.
pub fn write(history: &RedisHistory, out: &mut impl io::Write) -> Result<(), WorkloadError> {
    let mut recorder = RedisRecorder::begin(out, history.clock_slack)?;
    // Invocations and answers in real-time order; at one moment, answers stand behind invocations,
    // for they prove no order.
    let mut order: Vec<(Timestamp, bool, usize)> = Vec::new();
    for (at, call) in history.calls.iter().enumerate() {
        order.push((call.invoked, false, at));
        order.extend(call.answered.as_ref().map(|(when, _)| (*when, true, at)));
    }
    order.sort_unstable();
    let end = order.last().map_or(Timestamp::ZERO, |(when, _, _)| *when);
    let mut sent: BTreeMap<usize, CallRef> = BTreeMap::new();
    for (when, is_answer, at) in order {
        let call = &history.calls[at];
        match (&call.answered, sent.get(&at)) {
            (Some((_, reply)), Some(sent)) if is_answer => recorder.answer(when, *sent, reply)?,
            _ => {
                sent.insert(at, recorder.invoke(when, call.connection, &call.request)?);
            }
        }
    }
    recorder.finish(end).map(drop)
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

#[cfg(test)]
mod tests {
    use super::super::read;
    use super::*;

    #[test]
    fn a_run_that_is_written_while_it_happens_reads_back_and_lacks_no_answer() {
        let at = Timestamp::from_nanos;
        let mut recorder = RedisRecorder::begin(Vec::new(), Duration::from_nanos(5)).unwrap();
        let (one, two) = (recorder.connect(), recorder.connect());
        let set = recorder.invoke(at(1), one, &Request::command("SET r0 v1")).unwrap();
        let get = recorder.invoke(at(1), one, &Request::command("GET r0")).unwrap();
        let lost = recorder.invoke(at(2), two, &Request::command("INCR n0")).unwrap();
        recorder.answer(at(3), set, &Reply::Status("OK".to_owned())).unwrap();
        recorder.abandon(at(4), lost).unwrap();
        recorder.answer(at(5), get, &Reply::Text("v1".to_owned())).unwrap();
        // The processes of what was answered are used again, that of what was not never.
        let next =
            recorder.invoke(at(6), recorder.next_connection, &Request::command("DEL r0")).unwrap();
        assert!(next == get && next != lost);
        let text = String::from_utf8(recorder.finish(at(7)).unwrap()).unwrap();
        let history = read(&text).unwrap();
        let answers: Vec<bool> = history.calls.iter().map(|call| call.answered.is_some()).collect();
        assert_eq!(answers, [true, true, false, false]);
        assert_eq!(text.lines().filter(|line| line.contains(":type :info")).count(), 2);
        let mut again = Vec::new();
        write(&history, &mut again).unwrap();
        assert_eq!(read(&String::from_utf8(again).unwrap()).unwrap(), history);
    }
}
