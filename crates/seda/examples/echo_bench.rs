//! Requests per second and CPU time per request over loopback: the server's runtime on one thread,
//! an event-loop client on another.
//!
//! 128 B requests are answered with 600 B, at 1 connection with 1 outstanding request, 8×1, 8×16
//! and 8×64, as in docs/lab/building-blocks.md's table. Run with `cargo run --release -p
//! timestone-seda --example echo_bench [seconds per case]`.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use timestone_seda::{
    Break, ConnectionView, Context, DialId, FrameBatch, FrameBatchEvent, Layout, NetCommand,
    NetConfig, NetEvent, NetStage, Protocol, ReplyAddress, Runtime, RuntimeConfig, Split, Stage,
    StageId,
};
use timestone_types::Timestamp;

const REQUEST: usize = 128;
const ANSWER: usize = 600;
const NET: StageId = StageId::new(0);
const WORK: StageId = StageId::new(1);

enum Event {
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

/// Frames that begin with their length.
struct Lengths;

impl Protocol for Lengths {
    #[inline]
    fn split(&mut self, _: &ConnectionView, bytes: &[u8]) -> Split {
        let Some(&header) = bytes.first_chunk::<4>() else {
            return Split::Incomplete { needed: 4 };
        };
        let length = u32::from_le_bytes(header) as usize;
        if bytes.len() < length {
            Split::Incomplete { needed: length }
        } else {
            Split::Frame { length, to: WORK }
        }
    }

    fn busy(&mut self, _: &ConnectionView, _: &[u8], _: &mut Vec<u8>) -> bool {
        false
    }

    fn refuse(&mut self, _: &ConnectionView, _: Break, _: &[u8], _: &mut Vec<u8>) {}
}

fn frame(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    bytes[..4].copy_from_slice(&(length as u32).to_le_bytes());
    bytes
}

/// Sends a frame for each frame that it gets; the client's starts with `depth` frames on each of
/// its connections.
struct EchoStage {
    name: &'static str,
    frame: Vec<u8>,
    dial: Option<(SocketAddr, usize)>,
    depth: usize,
    done: Arc<AtomicU64>,
    cpu: Arc<AtomicU64>,
}

impl EchoStage {
    fn send(&self, ctx: &mut Context<'_, Event>, reply_to: ReplyAddress, frames: usize) {
        let mut answer = ctx.take_frame_batch(reply_to);
        for _ in 0..frames {
            answer.bytes.extend_from_slice(&self.frame);
        }
        let sent = ctx.send(reply_to.stage, Event::Command(NetCommand::Send(answer)));
        assert!(sent.is_ok(), "the queue of a net stage holds more than a few connections fill");
    }
}

impl Stage<Event> for EchoStage {
    fn name(&self) -> &str {
        self.name
    }

    fn start(&mut self, ctx: &mut Context<'_, Event>) {
        let Some((address, connections)) = self.dial else { return };
        for number in 0..connections {
            let command =
                NetCommand::Dial { dial: DialId::new(number as u64), address, owner: WORK };
            assert!(ctx.send(NET, Event::Command(command)).is_ok());
        }
    }

    fn handle(&mut self, ctx: &mut Context<'_, Event>, events: &mut VecDeque<Event>) {
        for event in events.drain(..) {
            match event {
                Event::Net(NetEvent::FrameBatch(frame_batch)) => {
                    let FrameBatch { reply_to, frames, .. } = frame_batch;
                    ctx.finish_frame_batch(frame_batch);
                    self.done.fetch_add(u64::from(frames), Ordering::Relaxed);
                    self.send(ctx, reply_to, frames as usize);
                }
                Event::Net(NetEvent::Connected(view)) if view.dial.is_some() => {
                    self.send(ctx, view.reply_to, self.depth)
                }
                _ => {}
            }
        }
    }

    fn turn(&mut self, _: &mut Context<'_, Event>) {
        let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        self.cpu.store(cpu.tv_sec as u64 * 1_000_000_000 + cpu.tv_nsec as u64, Ordering::Relaxed);
    }
}

fn clock() -> impl Fn() -> Timestamp + Send + Sync + 'static {
    let begin = Instant::now();
    move || Timestamp::from_nanos(begin.elapsed().as_nanos() as u64)
}

fn measure(connections: usize, depth: usize, span: Duration) {
    let work = |name, length, dial| {
        let (done, cpu) = (Arc::default(), Arc::default());
        EchoStage { name, frame: frame(length), dial, depth, done, cpu }
    };
    let mut net = NetStage::<Event, _>::new(Lengths, NetConfig::default());
    let address = match net.listen(([127, 0, 0, 1], 0).into()) {
        Ok(address) => address,
        Err(error) => return eprintln!("{error}"),
    };
    let (answerer, asker) =
        (work("server", ANSWER, None), work("client", REQUEST, Some((address, connections))));
    let counts = [&answerer.cpu, &asker.cpu, &asker.done].map(Arc::clone);
    let client_net = NetStage::<Event, _>::new(Lengths, NetConfig::default());
    let config = || RuntimeConfig { other_threads: 1, ..RuntimeConfig::default() };
    let server = Runtime::start(
        vec![Box::new(net), Box::new(answerer)],
        Layout::single(2),
        clock(),
        config(),
    );
    let client = Runtime::start(
        vec![Box::new(client_net), Box::new(asker)],
        Layout::single(2),
        clock(),
        config(),
    );
    let (Ok(server), Ok(client)) = (server, client) else {
        return eprintln!("the runtimes could not be started");
    };
    std::thread::sleep(span / 4);
    let read = || counts.each_ref().map(|count| count.load(Ordering::Relaxed));
    let (before, begin) = (read(), Instant::now());
    std::thread::sleep(span);
    let (after, elapsed) = (read(), begin.elapsed());
    let requests = (after[2] - before[2]).max(1);
    let micros = |index: usize| (after[index] - before[index]) as f64 / 1000.0 / requests as f64;
    let metrics = server.metrics();
    let threads = metrics.threads[0];
    println!(
        "{connections:>2} × {depth:<3} {:>8.0} k req/s   server {:>6.2}   client {:>6.2} \
         CPU-µs/req   {:>6.1} requests/turn, {} sleeps, {} of {} spins paid, {} buffers",
        requests as f64 / elapsed.as_secs_f64() / 1000.0,
        micros(0),
        micros(1),
        requests as f64 / threads.turns_total.max(1) as f64,
        threads.sleeps_total,
        threads.spins_paid_total,
        threads.spins_total,
        threads.buffers_allocated_total,
    );
    drop((client, server));
}

fn main() {
    let seconds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(3.0);
    for (connections, depth) in [(1, 1), (8, 1), (8, 16), (8, 64)] {
        measure(connections, depth, Duration::from_secs_f64(seconds));
    }
}
