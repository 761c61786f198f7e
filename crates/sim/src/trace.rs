//! The trace of a run: a hash over everything that every stage was given, and, where wanted, the
//! last of it in words.
//!
//! Two runs of one seed give the same hash; that is the test of determinism. Words cost more than
//! the run itself, so they are only written where a seed is stepped through or has failed.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::sync::Arc;

use timestone_client::ClientStageEvent;
use timestone_seda::simulated::{Observer, VirtualTime};
use timestone_seda::{FrameBatch, NetCommand, NetEvent, StageId};
use timestone_server::Event;
use timestone_wire::{CallAnswer, Calls, Frames};
use xxhash_rust::xxh3::Xxh3Default;

use crate::board::Board;
use crate::names::Names;
use crate::network::ProcessId;

/// The stage that lines about a session's transactions bear: tasks on a client's event loop are
/// none of their own.
const SESSION: &str = "session";

/// Of what is no frame, so much is shown.
const SHOWN_BYTES: usize = 400;

/// One line of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceLine {
    /// When.
    pub at: VirtualTime,
    /// In which process.
    pub process: String,
    /// In which stage.
    pub stage: String,
    /// What.
    pub what: String,
}

impl std::fmt::Display for TraceLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:<10} {:<10} {}", self.at, self.process, self.stage, self.what)
    }
}

/// See the module.
pub(crate) struct Trace {
    hash: Xxh3Default,
    events: u64,
    /// How many lines to keep; none without words.
    keep: usize,
    lines: VecDeque<(ProcessId, String, VirtualTime, String)>,
    process: ProcessId,
    /// The stages of each process's present life.
    stages: BTreeMap<ProcessId, Vec<String>>,
    names: Names,
}

impl std::fmt::Debug for Trace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trace").field("events", &self.events).finish_non_exhaustive()
    }
}

impl Trace {
    pub(crate) const fn new(keep: usize, board: Arc<Board>) -> Self {
        Self {
            hash: Xxh3Default::new(),
            events: 0,
            keep,
            lines: VecDeque::new(),
            process: ProcessId(0),
            stages: BTreeMap::new(),
            names: Names::new(board),
        }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash.digest()
    }

    pub(crate) const fn events(&self) -> u64 {
        self.events
    }

    /// Who runs from now on.
    pub(crate) fn of(&mut self, process: ProcessId) -> &mut Self {
        self.tell_sessions();
        self.process = process;
        self
    }

    /// A process has a new life with these stages.
    pub(crate) fn name_stages(&mut self, process: ProcessId, names: &[String]) {
        if self.keep > 0 {
            self.stages.insert(process, names.to_vec());
        }
    }

    /// The sessions of a client work in these slots of the board.
    pub(crate) fn name_client(&mut self, process: ProcessId, slots: std::ops::Range<usize>) {
        self.names.client(process, slots);
    }

    /// Something that happens outside all stages: a fault.
    pub(crate) fn note(&mut self, at: VirtualTime, process: ProcessId, what: &str) {
        self.of(process);
        self.take(at, StageId::new(u16::MAX), 0, what.as_bytes());
        if self.keep > 0 {
            self.say(at, StageId::new(u16::MAX), what.to_owned());
        }
    }

    pub(crate) fn take_lines(
        &mut self,
    ) -> impl Iterator<Item = (ProcessId, String, VirtualTime, String)> {
        self.tell_sessions();
        self.lines.drain(..)
    }

    /// Says what sessions have begun and ended since the last event: they do it in the turns of
    /// whoever ran last. It is not hashed: it follows from what is.
    fn tell_sessions(&mut self) {
        if self.keep > 0 {
            for (at, what) in self.names.board().recorder.take_notes() {
                self.push(SESSION.to_owned(), at, what);
            }
        }
    }

    fn take(&mut self, at: VirtualTime, stage: StageId, kind: u8, bytes: &[u8]) {
        self.tell_sessions();
        self.events += 1;
        let mut head = [0u8; 24];
        head[..8].copy_from_slice(&at.as_nanos().to_le_bytes());
        head[8..12].copy_from_slice(&self.process.0.to_le_bytes());
        head[12..16].copy_from_slice(&(stage.index() as u32).to_le_bytes());
        head[16] = kind;
        head[20..24].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
        self.hash.update(&head);
        self.hash.update(bytes);
    }

    fn say(&mut self, at: VirtualTime, stage: StageId, what: String) {
        let names = self.stages.get(&self.process).map_or(&[][..], Vec::as_slice);
        let name = names.get(stage.index()).map_or("*", String::as_str);
        self.push(name.to_owned(), at, what);
    }

    fn push(&mut self, stage: String, at: VirtualTime, what: String) {
        if self.lines.len() >= self.keep {
            self.lines.pop_front();
        }
        self.lines.push_back((self.process, stage, at, what));
    }

    fn net_event(&mut self, at: VirtualTime, stage: StageId, event: &NetEvent) {
        match event {
            NetEvent::FrameBatch(frame_batch) => {
                self.frame_batch(at, stage, 1, "receives", frame_batch)
            }
            NetEvent::Connected(view) => {
                self.small(at, stage, 2, |out| write!(out, "connected to {}", view.peer));
            }
            NetEvent::HalfClosed(reply_to) => {
                self.small(at, stage, 3, |out| write!(out, "half closed {reply_to:?}"))
            }
            NetEvent::Disconnected { reply_to, reason, .. } => {
                self.small(at, stage, 4, |out| write!(out, "lost {reply_to:?} ({reason:?})"));
            }
            NetEvent::Written { reply_to, bytes } => {
                self.small(at, stage, 11, |out| {
                    write!(out, "has {bytes} bytes of {reply_to:?} written")
                });
            }
            NetEvent::DialFailed { address, error, .. } => {
                self.small(at, stage, 5, |out| write!(out, "cannot reach {address} ({error})"));
            }
        }
    }

    fn command(&mut self, at: VirtualTime, stage: StageId, command: &NetCommand) {
        match command {
            NetCommand::Send(frame_batch) => self.frame_batch(at, stage, 6, "sends", frame_batch),
            NetCommand::Dial { address, .. } => {
                self.small(at, stage, 7, |out| write!(out, "dials {address}"))
            }
            NetCommand::Close(reply_to) => {
                self.small(at, stage, 8, |out| write!(out, "closes {reply_to:?}"))
            }
            NetCommand::Pause(reply_to) => {
                self.small(at, stage, 12, |out| write!(out, "pauses {reply_to:?}"))
            }
            NetCommand::Resume(reply_to) => {
                self.small(at, stage, 13, |out| write!(out, "resumes {reply_to:?}"))
            }
            NetCommand::Abort(reply_to) => {
                self.small(at, stage, 9, |out| write!(out, "aborts {reply_to:?}"))
            }
            NetCommand::Adopt { peer, .. } => {
                self.small(at, stage, 10, |out| write!(out, "takes over {peer}"))
            }
        }
    }

    fn frame_batch(
        &mut self,
        at: VirtualTime,
        stage: StageId,
        kind: u8,
        verb: &str,
        frame_batch: &FrameBatch,
    ) {
        self.take(at, stage, kind, &frame_batch.bytes);
        if self.keep > 0 {
            for frame in Frames::new(&frame_batch.bytes).flatten() {
                let about = self.names.learn(self.process, frame_batch.reply_to, &frame);
                let words = crate::words::frame(&frame, about.as_deref(), &self.names);
                let what = format!("{verb} {:?} {words}", frame_batch.reply_to);
                self.say(at, stage, what);
            }
            if Frames::new(&frame_batch.bytes).next().is_none_or(|frame| frame.is_err()) {
                // Redis clients speak text.
                let text =
                    frame_batch.bytes[..frame_batch.bytes.len().min(SHOWN_BYTES)].escape_ascii();
                let what = format!("{verb} {:?} {text}", frame_batch.reply_to);
                self.say(at, stage, what);
            }
        }
    }

    /// Calls of an embedded client, on their way to a shard or back with answers.
    fn calls(&mut self, at: VirtualTime, stage: StageId, calls: &Calls) {
        let mut answers = calls.answers.iter();
        for place in 0..calls.asked.len() {
            let (call, answer) = (calls.asked.call(place), answers.next());
            let (value, told) = match answer {
                None => {
                    (call.put.map_or(&[][..], |(value, _)| value), [0, call.at.begin.as_nanos()])
                }
                Some(CallAnswer::Found { version, value, .. }) => {
                    let kind = if value.is_some() { 1 } else { 2 };
                    (value.unwrap_or_default(), [kind, version.timestamp.as_nanos()])
                }
                Some(CallAnswer::Put(commit)) => (&[][..], [3, commit.as_nanos()]),
                Some(CallAnswer::NotNow) => (&[][..], [4, 0]),
            };
            self.take(at, stage, 20, call.key);
            self.hash.update(value);
            told.iter().for_each(|number| self.hash.update(&number.to_le_bytes()));
            if self.keep > 0 {
                let words = crate::words::call(&call, answer, self.names.values());
                self.say(at, stage, words);
            }
        }
    }

    /// An event that needs few words: they are what is hashed as well.
    fn small(
        &mut self,
        at: VirtualTime,
        stage: StageId,
        kind: u8,
        write: impl FnOnce(&mut String) -> std::fmt::Result,
    ) {
        let mut what = String::new();
        // Writing to a String cannot fail.
        let _ = write(&mut what);
        self.take(at, stage, kind, what.as_bytes());
        if self.keep > 0 {
            self.say(at, stage, what);
        }
    }

    /// An event that is hashed as a number, and put in words only where they are wanted.
    fn number(
        &mut self,
        at: VirtualTime,
        stage: StageId,
        kind: u8,
        number: u64,
        words: impl FnOnce() -> String,
    ) {
        self.take(at, stage, kind, &number.to_le_bytes());
        if self.keep > 0 {
            self.say(at, stage, words());
        }
    }
}

impl Observer<Event> for Trace {
    fn event(&mut self, at: VirtualTime, stage: StageId, event: &Event) {
        match event {
            Event::FrameBatch(frame_batch) => {
                self.frame_batch(at, stage, 11, "handles", frame_batch)
            }
            Event::Net(event) => self.net_event(at, stage, event),
            Event::NetCommand(command) => self.command(at, stage, command),
            Event::LogAppend(append) => {
                self.take(at, stage, 12, &append.bytes);
                if self.keep > 0 {
                    let words = crate::words::records(&append.bytes, &self.names);
                    self.say(
                        at,
                        stage,
                        format!(
                            "logs batch {} of shard {}: {words}",
                            append.head.batch, append.head.shard
                        ),
                    );
                }
            }
            Event::LogDurable { batch } => {
                self.number(at, stage, 13, batch.get(), || format!("batch {batch} is durable"));
            }
            Event::LogRelease { shard, keep_from } => {
                self.number(at, stage, 14, keep_from.get(), || {
                    format!("shard {shard} keeps batches from {keep_from}")
                });
            }
            Event::LogRetained { from, .. } => {
                self.number(at, stage, 15, from.get(), || {
                    format!("the log retains batches from {from}")
                });
            }
            Event::LogCopyForward { below } => {
                self.number(at, stage, 16, below.get(), || {
                    format!("shall carry batches below {below}")
                });
            }
            Event::LogFailed { log } => self
                .number(at, stage, 17, log.index() as u64, || format!("the log of {log} failed")),
            Event::MapChanged(map) => {
                self.number(at, stage, 18, 0, || {
                    format!("the shard map is {:?} now", map.version())
                });
            }
            Event::Calls { calls, .. } => self.calls(at, stage, calls),
            // A call to look, or what carries nothing that a trace could tell apart.
            _ => self.number(at, stage, 19, 0, || "is woken".to_owned()),
        }
    }
}

impl Observer<ClientStageEvent> for Trace {
    fn event(&mut self, at: VirtualTime, stage: StageId, event: &ClientStageEvent) {
        match event {
            ClientStageEvent::Wake => self.number(at, stage, 19, 0, || "wakes".to_owned()),
            ClientStageEvent::Net(event) => self.net_event(at, stage, event),
            ClientStageEvent::Command(command) => self.command(at, stage, command),
            ClientStageEvent::Calls { calls, .. } => self.calls(at, stage, calls),
        }
    }
}
