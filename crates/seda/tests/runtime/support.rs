//! What the tests share: an event enum, a protocol with two-byte lengths, an echo stage, and a
//! clock.

use std::collections::VecDeque;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use timestone_clock::{Clock, SystemClock};
use timestone_seda::{
    Break, ConnectionView, Context, FrameBatch, FrameBatchEvent, NetCommand, NetEvent, Protocol,
    Split, Stage, StageId,
};
use timestone_types::Timestamp;

#[derive(Debug)]
pub(crate) enum Event {
    Net(NetEvent),
    Command(NetCommand),
}

impl FrameBatchEvent for Event {
    fn from_net(event: NetEvent) -> Self {
        Self::Net(event)
    }

    fn from_command(command: NetCommand) -> Self {
        Self::Command(command)
    }

    fn into_command(self) -> Result<NetCommand, Self> {
        match self {
            Self::Command(command) => Ok(command),
            other => Err(other),
        }
    }
}

/// The present.
pub(crate) fn now() -> Timestamp {
    SystemClock::new().now()
}

/// Frames `[length u32 LE, itself included][stage u8][payload]`.
pub(crate) struct Lengths;

pub(crate) const HEADER: usize = 5;

impl Protocol for Lengths {
    fn split(&mut self, _: &ConnectionView, bytes: &[u8]) -> Split {
        let Some(header) = bytes.first_chunk::<HEADER>() else {
            return Split::Incomplete { needed: HEADER };
        };
        let length = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
        if length < HEADER {
            Split::Broken
        } else if bytes.len() < length {
            Split::Incomplete { needed: length }
        } else {
            Split::Frame { length, to: StageId::new(u16::from(header[4])) }
        }
    }

    fn busy(&mut self, _: &ConnectionView, frame: &[u8], out: &mut Vec<u8>) -> bool {
        out.extend_from_slice(&encode(frame[4], b"busy"));
        true
    }

    fn refuse(&mut self, _: &ConnectionView, reason: Break, _: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(&encode(0, format!("{reason:?}").as_bytes()));
    }
}

pub(crate) fn encode(stage: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = ((HEADER + payload.len()) as u32).to_le_bytes().to_vec();
    frame.push(stage);
    frame.extend_from_slice(payload);
    frame
}

/// Sends batches of frames back as they are, and reports what else it hears.
pub(crate) struct Echo {
    pub(crate) heard: mpsc::Sender<NetEvent>,
    /// Answers that the net stage had no room for.
    pub(crate) unsent: VecDeque<(StageId, Event)>,
    /// Each frame is answered this many times.
    pub(crate) times: usize,
}

impl Echo {
    pub(crate) fn new(times: usize) -> (Self, mpsc::Receiver<NetEvent>) {
        let (heard, events) = mpsc::channel();
        (Self { heard, unsent: VecDeque::new(), times }, events)
    }
}

impl Stage<Event> for Echo {
    fn name(&self) -> &str {
        "echo"
    }

    fn handle(&mut self, ctx: &mut Context<'_, Event>, events: &mut VecDeque<Event>) {
        for event in events.drain(..) {
            match event {
                Event::Net(NetEvent::FrameBatch(frame_batch)) => {
                    let mut answer = ctx.take_frame_batch(frame_batch.reply_to);
                    for _ in 0..self.times {
                        answer.bytes.extend_from_slice(&frame_batch.bytes);
                    }
                    ctx.finish_frame_batch(frame_batch);
                    let FrameBatch { reply_to, .. } = answer;
                    if let Err(event) =
                        ctx.send(reply_to.stage, Event::Command(NetCommand::Send(answer)))
                    {
                        self.unsent.push_back((reply_to.stage, event));
                    }
                }
                Event::Net(event) => self.heard.send(event).expect("the test listens"),
                Event::Command(command) => panic!("no command for this stage: {command:?}"),
            }
        }
    }

    fn turn(&mut self, ctx: &mut Context<'_, Event>) {
        while let Some((to, event)) = self.unsent.pop_front() {
            if let Err(event) = ctx.send(to, event) {
                self.unsent.push_front((to, event));
                ctx.want_turn();
                return;
            }
        }
    }

    fn drained(&self) -> bool {
        self.unsent.is_empty()
    }
}

/// Waits for a condition with a generous bound.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < Duration::from_secs(30), "never happened: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
