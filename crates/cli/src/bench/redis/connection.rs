//! One connection: it draws what to do, sends it, awaits the answers, writes all of it down. When
//! it breaks, it dials again, under another number; what had not been answered by then is of
//! unknown outcome, and is not sent again.
//!
//! ```text
//!   (wait for the intended start) ─► draw ─► send ─► reply … reply ─► tally, history ─┐
//!        ▲            ▲                       └─ broken, or silent for too long ─► dial ┤
//!        └────────────┴──────────────────────────────────────────────────────────────┘
//! ```

use std::collections::VecDeque;
use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use timestone_types::{AbortKind, Timestamp};
use timestone_workload::redis::{Activity, CallRef, Generator, Reply, Request, encode, parse};
use timestone_workload::{Arrivals, Random, WorkloadError};

use super::RespRun;
use crate::bench::limits::{ANSWER_TIMEOUT, CONNECT_TIMEOUT, ERROR_PAUSE, REDIAL_PAUSE, TICK};
use crate::failure::Failure;

/// Why a connection is of no use any more.
#[derive(Debug)]
pub(super) enum Lost {
    /// It broke, or could not be made, or nothing came for too long.
    Broken(String),
    /// What came is no answer.
    Nonsense(String),
    /// The history could not be written.
    History(WorkloadError),
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken(why) | Self::Nonsense(why) => f.write_str(why),
            Self::History(error) => error.fmt(f),
        }
    }
}

impl From<std::io::Error> for Lost {
    fn from(error: std::io::Error) -> Self {
        Self::Broken(error.to_string())
    }
}

impl From<WorkloadError> for Lost {
    fn from(error: WorkloadError) -> Self {
        Self::History(error)
    }
}

/// A socket, and what came on it and is not read.
pub(super) struct RespLink {
    stream: TcpStream,
    inbox: Vec<u8>,
    /// So much of it is read.
    read: usize,
    out: Vec<u8>,
}

/// Bytes that are read at once.
const READ_BYTES: usize = 64 * 1024;

impl RespLink {
    /// Connects to the first address that answers.
    pub(super) fn dial(addresses: &[SocketAddr]) -> Result<Self, Lost> {
        let mut lost = Lost::Broken("there is no address".to_owned());
        for address in addresses {
            match TcpStream::connect_timeout(address, CONNECT_TIMEOUT) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    stream.set_read_timeout(Some(TICK))?;
                    stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
                    return Ok(Self { stream, inbox: Vec::new(), read: 0, out: Vec::new() });
                }
                Err(error) => lost = error.into(),
            }
        }
        Err(lost)
    }

    /// Sends requests at once.
    pub(super) fn send(&mut self, requests: &[Request]) -> Result<(), Lost> {
        self.out.clear();
        requests.iter().for_each(|request| encode(request, &mut self.out));
        Ok(self.stream.write_all(&self.out)?)
    }

    /// The next answer.
    pub(super) fn reply(&mut self) -> Result<Reply, Lost> {
        let begin = Instant::now();
        loop {
            match parse(&self.inbox[self.read..]) {
                Ok(Some((reply, length))) => {
                    self.read += length;
                    if self.read == self.inbox.len() {
                        self.inbox.clear();
                        self.read = 0;
                    }
                    return Ok(reply);
                }
                Ok(None) => {}
                Err(what) => return Err(Lost::Nonsense(what)),
            }
            self.inbox.drain(..self.read);
            let held = self.inbox.len();
            self.read = 0;
            self.inbox.resize(held + READ_BYTES, 0);
            let came = self.stream.read(&mut self.inbox[held..]);
            self.inbox.truncate(held + *came.as_ref().unwrap_or(&0));
            match came {
                Ok(0) => {
                    return Err(Lost::Broken("the server has closed the connection".to_owned()));
                }
                Ok(_) => {}
                Err(error) if is_only_late(&error) => {
                    if begin.elapsed() > ANSWER_TIMEOUT {
                        return Err(Lost::Broken("no answer came in time".to_owned()));
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn is_only_late(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// A request that was sent.
struct OpenCall {
    request: Request,
    /// In the history, if there is one.
    call: Option<CallRef>,
}

/// See the module.
pub(super) struct RespConnection {
    pub(super) run: Arc<RespRun>,
    /// Where it connects; where it was lost last comes last.
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) generator: Generator,
    pub(super) random: Random,
    pub(super) cut_percent: u64,
    pub(super) arrivals: Option<Arrivals>,
}

impl RespConnection {
    /// Works until the run is over.
    pub(super) fn run(mut self) -> Result<(), Failure> {
        let mut is_first = true;
        while !self.run.course.is_over() {
            let mut link = match RespLink::dial(&self.addresses) {
                Ok(link) => link,
                Err(lost) => {
                    self.note(&lost);
                    std::thread::sleep(REDIAL_PAUSE);
                    continue;
                }
            };
            if !std::mem::take(&mut is_first) {
                self.run.tally(|tally| tally.reconnects += 1);
            }
            let number = self.run.chronicle.as_ref().map_or(0, |chronicle| chronicle.connect());
            match self.work(&mut link, number) {
                Ok(()) => {}
                Err(Lost::History(error)) => return Err(Failure::failed(error.to_string())),
                Err(lost) => {
                    self.note(&lost);
                    self.addresses.rotate_left(1);
                    std::thread::sleep(REDIAL_PAUSE);
                }
            }
        }
        Ok(())
    }

    fn note(&self, lost: &Lost) {
        self.run.tally(|tally| match lost {
            Lost::Nonsense(what) => drop(tally.nonsense.get_or_insert_with(|| what.clone())),
            lost => drop(tally.first_error.get_or_insert_with(|| lost.to_string())),
        });
    }

    /// One activity after another, until the run is over or the connection was cut on purpose.
    fn work(&mut self, link: &mut RespLink, number: u64) -> Result<(), Lost> {
        while let Some(start) = self.next_start() {
            let is_cut = self.random.percent(self.cut_percent);
            match self.generator.draw() {
                Activity::Pipeline(requests) => {
                    drop(self.ask(link, number, requests, start, is_cut)?)
                }
                Activity::Watch { first, then } => {
                    self.ask(link, number, first, start, is_cut)?;
                    if !is_cut {
                        self.ask(link, number, vec![then], Instant::now(), false)?;
                    }
                }
                Activity::Scan(words) => self.scan(link, number, &words, start)?,
            }
            if is_cut {
                return Ok(());
            }
        }
        Ok(())
    }

    /// When the next activity is meant to start, once that has come; `None` when the run is over.
    fn next_start(&mut self) -> Option<Instant> {
        let start = match &mut self.arrivals {
            None => Instant::now(),
            Some(arrivals) => self.run.course.begin + arrivals.next_start().since(Timestamp::ZERO),
        };
        while !self.run.course.is_over() {
            let left = start.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Some(start);
            }
            std::thread::sleep(left.min(TICK));
        }
        None
    }

    /// All pages of a scan.
    fn scan(
        &mut self,
        link: &mut RespLink,
        number: u64,
        words: &[String],
        mut start: Instant,
    ) -> Result<(), Lost> {
        let mut cursor = "0".to_owned();
        while !self.run.course.is_over() {
            let page = self.ask(link, number, vec![Request::scan(&cursor, words)], start, false)?;
            let Some(next) = page.as_ref().and_then(Reply::next_cursor) else { break };
            cursor = next.to_owned();
            start = Instant::now();
        }
        Ok(())
    }

    /// Sends requests at once and awaits their answers; the last one. With `is_cut` only some are
    /// awaited, and what is open then is of unknown outcome, as it is when the connection breaks.
    fn ask(
        &mut self,
        link: &mut RespLink,
        number: u64,
        requests: Vec<Request>,
        start: Instant,
        is_cut: bool,
    ) -> Result<Option<Reply>, Lost> {
        let awaited =
            if is_cut { self.random.below(requests.len() as u64) as usize } else { requests.len() };
        // In the history before they are sent: a call begins no later than the server hears of it.
        let calls = match &self.run.chronicle {
            Some(chronicle) => chronicle.invoke(number, &requests)?,
            None => Vec::new(),
        };
        let mut calls = calls.into_iter();
        let sent = link.send(&requests);
        let mut open: VecDeque<OpenCall> =
            requests.into_iter().map(|request| OpenCall { request, call: calls.next() }).collect();
        let answered = sent.and_then(|()| self.await_answers(link, &mut open, awaited, start));
        // Whatever happened: what is open now stays so.
        let abandoned: Vec<CallRef> = open.iter().filter_map(|open| open.call).collect();
        if let Some(chronicle) = &self.run.chronicle {
            chronicle.abandon(&abandoned)?;
        }
        if self.run.course.is_measured() && !open.is_empty() {
            self.run.tally(|tally| open.iter().for_each(|_| tally.recorder.unknown()));
        }
        answered
    }

    fn await_answers(
        &mut self,
        link: &mut RespLink,
        open: &mut VecDeque<OpenCall>,
        awaited: usize,
        start: Instant,
    ) -> Result<Option<Reply>, Lost> {
        let (mut last, mut failed, mut done) = (None, false, 0);
        for _ in 0..awaited {
            let Some(first) = open.front() else { break };
            let answers = first.request.answers();
            for place in 1..answers {
                let reply = link.reply()?;
                let wanted = if place == 1 { "OK" } else { "QUEUED" };
                if !matches!(&reply, Reply::Error(_)) && reply != Reply::Status(wanted.to_owned()) {
                    return Err(Lost::Nonsense(format!(
                        "{} was answered {reply} instead of {wanted}",
                        first.request
                    )));
                }
            }
            let reply = link.reply()?;
            let latency = start.elapsed();
            if let (Some(chronicle), Some(call)) = (&self.run.chronicle, first.call) {
                chronicle.answer(call, &reply)?;
            }
            let is_carried_out = self.count(&first.request, &reply, latency);
            done += u64::from(is_carried_out);
            failed |= matches!(reply, Reply::Error(_));
            open.pop_front();
            last = Some(reply);
        }
        self.run.publish(done);
        if failed {
            // A server that is down or full is not flooded.
            std::thread::sleep(ERROR_PAUSE);
        }
        Ok(last)
    }

    /// Counts what came of a request; whether it was carried out.
    fn count(&self, request: &Request, reply: &Reply, latency: Duration) -> bool {
        let is_measured = self.run.course.is_measured();
        let is_conflict = matches!(request, Request::Transaction(_)) && *reply == Reply::Nil;
        self.run.tally(|tally| {
            if let Reply::Error(text) = reply {
                tally.first_error.get_or_insert_with(|| text.clone());
            }
            let recorder = &mut tally.recorder;
            match reply {
                _ if !is_measured => {}
                reply if reply.is_unknown() => recorder.unknown(),
                Reply::Error(_) => recorder.error(),
                // A watched key was touched.
                _ if is_conflict => recorder.aborted(AbortKind::ReadConflict, false),
                _ => recorder.committed(latency, request.is_read_only()),
            }
        });
        is_measured && !is_conflict && !matches!(reply, Reply::Error(_))
    }
}
