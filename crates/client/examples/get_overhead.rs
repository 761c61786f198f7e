//! What one read costs on the event loop's own path (future, engine, encoding, decoding), against a
//! shard in the same process that answers every read with 512 bytes without looking.
//!
//! `cargo run --release -p timestone-client --example get_overhead [tasks] [reads per transaction] [seconds] [1: copy values, 0: look at them in place]`

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use timestone_client::{
    ByCalls, ClientEvent, ClientInput, EngineConfig, InProcess, LocalDb, Result, in_process,
};
use timestone_clock::{Clock, SystemClock};
use timestone_cluster::{DirectoryId, ServerAddresses, ServerId, ServerInfo, ShardMap};
use timestone_seda::{
    Context, FrameBatch, FrameBatchEvent, Layout, NetCommand, NetEvent, Runtime, RuntimeConfig,
    Stage, StageId,
};
use timestone_types::{ClientId, ClusterId, Epoch, Expiry, ShardId, Timestamp, Version};
use timestone_wire::{Calls, Frame, Frames, Get, Kind, Message, Prepare, Value, Verdict, Vote};

enum Event {
    Wake,
    Net(NetEvent),
    Command(NetCommand),
    /// For shards that take calls; the one here does not.
    Calls,
}

impl FrameBatchEvent for Event {
    fn from_net(event: NetEvent) -> Self {
        Self::Net(event)
    }

    fn from_command(command: NetCommand) -> Self {
        Self::Command(command)
    }

    fn into_command(self) -> core::result::Result<NetCommand, Self> {
        if let Self::Command(command) = self { Ok(command) } else { Err(self) }
    }
}

impl ClientEvent for Event {
    fn wake() -> Self {
        Self::Wake
    }

    fn calls(_: Box<Calls>, _: StageId) -> Self {
        Self::Calls
    }

    fn into_client(self) -> core::result::Result<ClientInput, Self> {
        match self {
            Self::Wake => Ok(ClientInput::Wake),
            Self::Command(NetCommand::Send(frame_batch)) => Ok(ClientInput::Replies(frame_batch)),
            other => Err(other),
        }
    }
}

/// Answers without looking.
struct Echo {
    name: String,
    value: Vec<u8>,
}

impl Echo {
    fn answer(&self, frame: &Frame<'_>, out: &mut Vec<u8>) {
        let envelope = frame.reply_envelope(Epoch::new(1), frame.envelope().map_version);
        match frame.kind() {
            Kind::Get => {
                if let Ok(get) = Get::decode(frame) {
                    let version =
                        Version::new(Timestamp::from_nanos(get.key.len() as u64), ClientId::new(1));
                    let expires_at = Expiry::NEVER;
                    let reply = Value {
                        version,
                        expires_at,
                        prepared_before: false,
                        present: true,
                        value: &self.value,
                    };
                    reply.encode(&envelope, out);
                }
            }
            Kind::Prepare => {
                if let Ok(prepare) = Prepare::decode(frame) {
                    Vote { txn: prepare.txn, commit: prepare.commit, verdict: Verdict::Yes }
                        .encode(&envelope, out);
                }
            }
            _ => {}
        }
    }
}

impl Stage<Event> for Echo {
    fn name(&self) -> &str {
        &self.name
    }

    fn handle(&mut self, context: &mut Context<'_, Event>, events: &mut VecDeque<Event>) {
        for event in events.drain(..) {
            let Event::Net(NetEvent::FrameBatch(frame_batch)) = event else { continue };
            let mut reply: FrameBatch = context.take_frame_batch(frame_batch.reply_to);
            for frame in Frames::new(&frame_batch.bytes).flatten() {
                self.answer(&frame, &mut reply.bytes);
            }
            let to = frame_batch.reply_to.stage;
            context.finish_frame_batch(frame_batch);
            if context.send(to, Event::Command(NetCommand::Send(reply))).is_err() {
                eprintln!("the client's queue is full");
            }
        }
    }
}

async fn read_for(db: LocalDb, reads: u64, until: Instant, copies: bool) -> Result<u64> {
    let mut done = 0u64;
    let mut key = *b"key-000000000000";
    while Instant::now() < until {
        let txn = db.begin(&timestone_client::TransactionOptions::default())?;
        for n in 0..reads {
            key[4..12].copy_from_slice(&(done + n).to_be_bytes());
            let length = if copies {
                txn.get(&key).await?.map(|value| value.len())
            } else {
                txn.get_with(&key, |value| value.map(<[u8]>::len)).await?
            };
            assert_eq!(length, Some(512), "the shard answers every read");
        }
        txn.commit().await?;
        done += reads;
    }
    Ok(done)
}

/// What the shard itself costs per read, to be subtracted.
fn echo_alone(echo: &Echo) -> f64 {
    let mut request = Vec::new();
    let at = timestone_wire::ReadAt::Snapshot(Timestamp::from_nanos(1));
    let get = Get {
        keyspace: timestone_types::KeyspaceId::DEFAULT,
        at,
        client: ClientId::new(1),
        wait: true,
        key: b"key-000000000000",
    };
    for _ in 0..256 {
        get.encode(&timestone_wire::Envelope::default(), &mut request);
    }
    let (mut reply, rounds) = (Vec::new(), 4000u32);
    let begin = Instant::now();
    for _ in 0..rounds {
        reply.clear();
        for frame in Frames::new(&request).flatten() {
            echo.answer(&frame, &mut reply);
        }
        std::hint::black_box(&reply);
    }
    begin.elapsed().as_nanos() as f64 / f64::from(rounds) / 256.0
}

/// CPU time of this process so far, in ns (the kernel counts ticks of 10 ms): other programs on the
/// machine do not disturb it.
fn cpu_ns() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() * 1e7
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let mut next =
        |default: u64| arguments.next().transpose().map(|given| given.unwrap_or(default));
    let (tasks, reads, seconds, copies) = (next(256)?, next(4)?, next(3)?, next(1)? == 1);
    let echo = |n: u16| Echo { name: format!("echo-{n}"), value: vec![7; 512] };
    let info = ServerInfo {
        id: ServerId::new(1),
        directory: DirectoryId(1),
        addresses: ServerAddresses::IN_PROCESS,
    };
    let map = ShardMap::single(ClusterId::new(1), info, 4)?;
    let shards = (0..4).map(|n| (ShardId::new(n), StageId::new(1 + n))).collect();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let wiring = InProcess { shards, server: StageId::new(1), seed: 1, by_calls: ByCalls::Nothing };
    let client = in_process::<Event>(
        ClientId::new(1),
        &map,
        wiring,
        EngineConfig::default(),
        Arc::clone(&clock),
    );
    let (stage, attachment) = client.split();
    let mut stages = vec![stage];
    stages.extend((0..4).map(|n| Box::new(echo(n)) as Box<dyn Stage<Event>>));
    let time = move || clock.now();
    let handle = Runtime::start(stages, Layout::single(5), time, RuntimeConfig::default())?;
    let db = attachment.attach(handle.injector(), StageId::new(0), None);
    let (begin, cpu) = (Instant::now(), cpu_ns());
    let until = begin + Duration::from_secs(seconds);
    let running: Vec<_> =
        (0..tasks).map(|_| db.spawn(move |db| read_for(db, reads, until, copies))).collect();
    let mut total = 0;
    for one in running {
        total += one.wait()?;
    }
    let wall = begin.elapsed().as_nanos() as f64 / total as f64;
    let per_read = (cpu_ns() - cpu) / total as f64;
    let alone = echo_alone(&echo(0));
    println!(
        "{tasks} tasks, {reads} reads a transaction: {total} reads, {wall:.0} ns each, \
         {per_read:.0} ns of CPU, of which the shard {alone:.0} ns"
    );
    println!("client path: {:.0} ns a read; {:?}", per_read - alone, db.stats().wait()?);
    drop(db);
    handle.shutdown(Duration::from_secs(5))?;
    Ok(())
}
