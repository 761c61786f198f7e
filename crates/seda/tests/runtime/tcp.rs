//! The net stage over loopback: pipelining, big frames, back-pressure, bad peers, many connections,
//! dials, sharing, admission.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use timestone_seda::{
    AdmissionLimit, Break, Context, DialId, DisconnectReason, FrameBatch, Handle, Layout,
    NetCommand, NetConfig, NetEvent, NetMetrics, NetStage, Runtime, RuntimeConfig, Stage, StageId,
};

use crate::support::{Echo, Event, HEADER, Lengths, encode, eventually, now};

const NET: StageId = StageId::new(0);
const ECHO: StageId = StageId::new(1);
const TIMEOUT: Duration = Duration::from_secs(30);

struct Server {
    handle: Handle<Event>,
    address: SocketAddr,
    heard: Receiver<NetEvent>,
    net: Arc<NetMetrics>,
}

fn serve(config: NetConfig, runtime: RuntimeConfig, times: usize) -> Server {
    let mut net = NetStage::<Event, _>::new(Lengths, NetConfig { owner: Some(ECHO), ..config });
    let address = net.listen(([127, 0, 0, 1], 0).into()).expect("listens");
    let metrics = net.metrics();
    let (echo, heard) = Echo::new(times);
    let stages: Vec<Box<dyn Stage<Event>>> = vec![Box::new(net), Box::new(echo)];
    let handle = Runtime::start(stages, Layout::single(2), now, runtime).expect("starts");
    Server { handle, address, heard, net: metrics }
}

fn serve_simply() -> Server {
    serve(NetConfig::default(), RuntimeConfig::default(), 1)
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("connects");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    stream
}

fn read_frame(stream: &mut TcpStream) -> Vec<u8> {
    let mut header = [0; HEADER];
    stream.read_exact(&mut header).expect("a header");
    let length = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
    let mut payload = vec![0; length - HEADER];
    stream.read_exact(&mut payload).expect("a payload");
    payload
}

fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("an orderly end");
    bytes
}

#[test]
fn pipelined_frames_come_back_in_order_however_they_are_cut() {
    let server = serve_simply();
    let mut stream = connect(server.address);
    let mut sent = Vec::new();
    for number in 0..5_000u32 {
        sent.extend(encode(1, &vec![number as u8; number as usize % 300]));
    }
    let mut writer = stream.try_clone().expect("a second handle");
    let bytes = sent.clone();
    let writing = std::thread::spawn(move || {
        let mut rest = &bytes[..];
        for size in [1usize, 2, 3, 7, 100, 1000, 40_000, 3, 77].into_iter().cycle() {
            let (now, later) = rest.split_at(size.min(rest.len()));
            writer.write_all(now).expect("writes");
            rest = later;
            if rest.is_empty() {
                return;
            }
        }
    });
    let mut received = vec![0; sent.len()];
    stream.read_exact(&mut received).expect("everything comes back");
    writing.join().expect("no panic");
    assert!(received == sent);
    // Counted after the write, which the client may see first.
    eventually("the last write is counted", || {
        server.net.snapshot().bytes_sent_total >= sent.len() as u64
    });
    let counts = server.net.snapshot();
    assert_eq!((counts.frames_received_total, counts.connections), (5_000, 1));
    assert_eq!(
        (counts.bytes_received_total, counts.bytes_sent_total),
        (sent.len() as u64, sent.len() as u64)
    );
    server.handle.shutdown(TIMEOUT).expect("drained");
}

#[test]
fn one_run_of_frames_is_one_frame_batch_and_one_write() {
    let server = serve_simply();
    let mut stream = connect(server.address);
    let frame = encode(1, &[7; 20]);
    stream.write_all(&frame.repeat(100)).expect("writes");
    for _ in 0..100 {
        assert_eq!(read_frame(&mut stream), [7; 20]);
    }
    // Counted after the write, which the client may see first.
    eventually("the write is counted", || server.net.snapshot().writes_total > 0);
    let counts = server.net.snapshot();
    assert_eq!((counts.writes_total, counts.reads_total), (1, 1));
    eventually("the frames are counted", || server.handle.metrics().stages[1].events_total > 1);
    let echo = &server.handle.metrics().stages[1];
    // The other event is the opening of the connection.
    assert_eq!(echo.events_total, 2);
}

#[test]
fn what_is_too_much_for_one_turn_is_read_in_the_next() {
    let server = serve_simply();
    let mut streams: Vec<TcpStream> = (0..24).map(|_| connect(server.address)).collect();
    let frame = encode(1, &[3; 60_000]);
    // All of it lies in the sockets at once, and nobody sends anything more.
    for stream in &mut streams {
        stream.write_all(&frame).expect("writes");
    }
    for stream in &mut streams {
        assert!(read_frame(stream) == [3; 60_000]);
    }
}

#[test]
fn frames_larger_than_every_buffer_pass() {
    let server = serve_simply();
    let mut stream = connect(server.address);
    for size in [100_000usize, 300_000, 5_000_000, 20_000_000, 10] {
        let payload: Vec<u8> = (0..size).map(|at| (at * 31 % 251) as u8).collect();
        let mut writer = stream.try_clone().expect("a second handle");
        let frame = encode(1, &payload);
        let writing = std::thread::spawn(move || writer.write_all(&frame).expect("writes"));
        assert!(read_frame(&mut stream) == payload, "{size} bytes");
        writing.join().expect("no panic");
    }
}

#[test]
fn a_slow_reader_is_not_read_from_and_others_are_served() {
    let config = NetConfig { output_bound_bytes: 256 * 1024, ..NetConfig::default() };
    // Each request of 1 KiB is answered with 64 KiB.
    let server = serve(config, RuntimeConfig::default(), 64);
    let mut slow = connect(server.address);
    let mut writer = slow.try_clone().expect("a second handle");
    let total = 4_000;
    let writing = std::thread::spawn(move || {
        for number in 0..total {
            writer.write_all(&encode(1, &[number as u8; 1024 - HEADER])).expect("writes");
        }
    });
    eventually("the server stops reading", || {
        let before = server.net.snapshot().bytes_received_total;
        std::thread::sleep(Duration::from_millis(50));
        before > 0 && server.net.snapshot().bytes_received_total == before
    });
    let taken = server.net.snapshot().frames_received_total;
    assert!(taken < total / 2, "{taken} requests were taken from a peer that reads no answer");
    let mut other = connect(server.address);
    other.write_all(&encode(1, b"hello")).expect("writes");
    assert_eq!(read_frame(&mut other), b"hello");
    // Runs of requests are repeated as they came, so the answers are counted, not ordered.
    let mut seen = [0u64; 256];
    for _ in 0..total * 64 {
        let answer = read_frame(&mut slow);
        assert!(answer.len() == 1024 - HEADER && answer.iter().all(|&byte| byte == answer[0]));
        seen[answer[0] as usize] += 1;
    }
    let expected =
        (0..256).map(|value| (0..total).filter(|number| number % 256 == value).count() as u64 * 64);
    assert!(seen.iter().copied().eq(expected));
    writing.join().expect("no panic");
}

#[test]
fn whoever_breaks_the_protocol_is_told_and_closed_and_others_are_not_disturbed() {
    let config = NetConfig { max_frame_bytes: 1000, ..NetConfig::default() };
    let server = serve(config, RuntimeConfig::default(), 1);
    let mut good = connect(server.address);
    let cases: [(&[u8], &str, Break); 2] = [
        (&[1, 0, 0, 0, 1, 9, 9, 9], "Malformed", Break::Malformed),
        (
            &[0, 0, 1, 0, 1, 9, 9, 9],
            "TooLong { needed: 65536, bound: 1000 }",
            Break::TooLong { needed: 65536, bound: 1000 },
        ),
    ];
    assert!(matches!(server.heard.recv_timeout(TIMEOUT), Ok(NetEvent::Connected(_))));
    for (bytes, words, expected) in cases {
        let mut bad = connect(server.address);
        let mut sent = encode(1, b"first");
        sent.extend_from_slice(bytes);
        bad.write_all(&sent).expect("writes");
        let answer = read_to_end(&mut bad);
        let text = String::from_utf8_lossy(&answer);
        assert!(text.contains(words), "{text}");
        drop(bad);
        let reply_to = match server.heard.recv_timeout(TIMEOUT) {
            Ok(NetEvent::Connected(view)) => view.reply_to,
            other => panic!("{other:?}"),
        };
        match server.heard.recv_timeout(TIMEOUT) {
            Ok(NetEvent::Disconnected {
                reply_to: gone,
                reason: DisconnectReason::Broken(reason),
                dial: None,
            }) => {
                assert_eq!((gone, reason), (reply_to, expected));
            }
            other => panic!("{other:?}"),
        }
        good.write_all(&encode(1, b"still here")).expect("writes");
        assert_eq!(read_frame(&mut good), b"still here");
    }
    assert_eq!(server.net.snapshot().broken_total, 2);
}

#[test]
fn a_peer_that_has_said_all_still_gets_its_answers() {
    let server = serve_simply();
    let mut stream = connect(server.address);
    stream.write_all(&encode(1, b"last words").repeat(3)).expect("writes");
    stream.shutdown(Shutdown::Write).expect("half closes");
    assert_eq!(read_to_end(&mut stream), encode(1, b"last words").repeat(3));
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.push(server.heard.recv_timeout(TIMEOUT).expect("an event"));
    }
    assert!(matches!(
        seen[..],
        [
            NetEvent::Connected(_),
            NetEvent::HalfClosed(_),
            NetEvent::Disconnected { reason: DisconnectReason::Closed, .. }
        ]
    ));
}

#[test]
fn a_peer_that_waits_for_nothing_more_is_let_go() {
    let server = serve(
        NetConfig { answers_after_end: false, ..NetConfig::default() },
        RuntimeConfig::default(),
        1,
    );
    let mut stream = connect(server.address);
    stream.write_all(&encode(1, b"a question")).expect("writes");
    assert_eq!(read_frame(&mut stream), b"a question");
    stream.write_all(&encode(1, b"the last")).expect("writes");
    stream.shutdown(Shutdown::Write).expect("half closes");
    // What comes of that frame may or may not arrive; the end does.
    let rest = read_to_end(&mut stream);
    assert!(rest.is_empty() || rest == encode(1, b"the last"), "{rest:?}");
    let seen: Vec<NetEvent> =
        (0..3).map(|_| server.heard.recv_timeout(TIMEOUT).expect("an event")).collect();
    let closed = |event: &NetEvent| {
        matches!(event, NetEvent::Disconnected { reason: DisconnectReason::Closed, .. })
    };
    assert!(closed(&seen[2]), "{seen:?}");
}

#[test]
fn thousands_of_connections_open_and_close_without_leaving_anything() {
    let server = serve_simply();
    for _ in 0..4 {
        let mut streams: Vec<TcpStream> = (0..400).map(|_| connect(server.address)).collect();
        for (number, stream) in streams.iter_mut().enumerate() {
            stream.write_all(&encode(1, &[number as u8])).expect("writes");
        }
        for (number, stream) in streams.iter_mut().enumerate() {
            assert_eq!(read_frame(stream), [number as u8]);
        }
        // Half of them leave in an orderly way, the others reset: their input is not read.
        for stream in streams.iter_mut().step_by(2) {
            stream.write_all(&encode(1, b"unread")).expect("writes");
        }
    }
    for _ in 0..2_000 {
        drop(connect(server.address));
    }
    eventually("all are gone", || {
        let counts = server.net.snapshot();
        counts.connections == 0 && counts.accepted_total == 3_600
    });
    let (mut opened, mut closed) = (0, 0);
    while opened < 3_600 || closed < 3_600 {
        match server.heard.recv_timeout(TIMEOUT).expect("every opening and closing is told") {
            NetEvent::Connected(_) => opened += 1,
            NetEvent::Disconnected { .. } => closed += 1,
            _ => {}
        }
        assert!(closed <= opened);
    }
    server.handle.shutdown(TIMEOUT).expect("drained");
}

#[test]
fn too_many_connections_are_refused_with_words() {
    let server = serve(
        NetConfig { max_connections: 2, ..NetConfig::default() },
        RuntimeConfig::default(),
        1,
    );
    let mut first = connect(server.address);
    let second = connect(server.address);
    let mut third = connect(server.address);
    let answer = read_to_end(&mut third);
    assert!(String::from_utf8_lossy(&answer).contains("TooManyConnections { bound: 2 }"));
    drop(second);
    eventually("there is room again", || server.net.snapshot().connections == 1);
    let mut fourth = connect(server.address);
    for stream in [&mut first, &mut fourth] {
        stream.write_all(&encode(1, b"x")).expect("writes");
        assert_eq!(read_frame(stream), b"x");
    }
}

#[test]
fn connections_are_closed_on_demand_after_their_output() {
    let server = serve_simply();
    let mut stream = connect(server.address);
    let reply_to = match server.heard.recv_timeout(TIMEOUT) {
        Ok(NetEvent::Connected(view)) => view.reply_to,
        other => panic!("{other:?}"),
    };
    let injector = server.handle.injector();
    let frame_batch = timestone_seda::FrameBatch::new(reply_to, b"the last".to_vec());
    injector.send(NET, Event::Command(NetCommand::Send(frame_batch))).expect("room");
    injector.send(NET, Event::Command(NetCommand::Close(reply_to))).expect("room");
    assert_eq!(read_to_end(&mut stream), b"the last");
    drop(stream);
    match server.heard.recv_timeout(TIMEOUT) {
        Ok(NetEvent::Disconnected { reply_to: gone, reason: DisconnectReason::Asked, .. }) => {
            assert_eq!(gone, reply_to)
        }
        other => panic!("{other:?}"),
    }
    let frame_batch = timestone_seda::FrameBatch::new(reply_to, b"too late".to_vec());
    injector.send(NET, Event::Command(NetCommand::Send(frame_batch))).expect("room");
    eventually("the late batch is dropped", || {
        server.net.snapshot().frame_batches_dropped_total == 1
    });
}

#[test]
fn a_dialled_connection_carries_frames_both_ways_and_a_refused_one_is_reported() {
    let server = serve_simply();
    // The dialling side: its echo stage only listens, answers of the server arrive there as batches
    // of frames and are sent back for ever.
    let net = NetStage::<Event, _>::new(Lengths, NetConfig::default());
    let (echo, heard) = Echo::new(1);
    let stages: Vec<Box<dyn Stage<Event>>> = vec![Box::new(net), Box::new(echo)];
    let client =
        Runtime::start(stages, Layout::single(2), now, RuntimeConfig::default()).expect("starts");
    let dial = |number, address| {
        let command = NetCommand::Dial { dial: DialId::new(number), address, owner: ECHO };
        client.injector().send(NET, Event::Command(command)).expect("room");
    };
    dial(7, server.address);
    let reply_to = match heard.recv_timeout(TIMEOUT) {
        Ok(NetEvent::Connected(view)) => {
            assert_eq!((view.dial, view.peer), (Some(DialId::new(7)), server.address));
            view.reply_to
        }
        other => panic!("{other:?}"),
    };
    let ball = timestone_seda::FrameBatch::new(reply_to, encode(1, b"ball"));
    client.injector().send(NET, Event::Command(NetCommand::Send(ball))).expect("room");
    eventually("the ball has passed a hundred times", || {
        server.net.snapshot().frames_received_total > 100
    });
    let closed = std::net::TcpListener::bind(("127.0.0.1", 0))
        .and_then(|l| l.local_addr())
        .expect("an address");
    dial(8, closed);
    match heard.recv_timeout(TIMEOUT) {
        Ok(NetEvent::DialFailed { dial, address, .. }) => {
            assert_eq!((dial, address), (DialId::new(8), closed))
        }
        other => panic!("{other:?}"),
    }
    drop(server.handle);
    match heard.recv_timeout(TIMEOUT) {
        Ok(NetEvent::HalfClosed(gone) | NetEvent::Disconnected { reply_to: gone, .. }) => {
            assert_eq!(gone, reply_to)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn accepted_connections_are_shared_between_the_net_stages_of_two_threads() {
    let share_with = vec![StageId::new(0), StageId::new(2)];
    let mut first =
        NetStage::<Event, _>::new(Lengths, NetConfig { share_with, ..NetConfig::default() });
    let address = first.listen(([127, 0, 0, 1], 0).into()).expect("listens");
    let second = NetStage::<Event, _>::new(Lengths, NetConfig::default());
    let metrics = [first.metrics(), second.metrics()];
    let stages: Vec<Box<dyn Stage<Event>>> =
        vec![Box::new(first), Box::new(Echo::new(1).0), Box::new(second), Box::new(Echo::new(1).0)];
    let id = StageId::new;
    let layout = Layout::new(vec![vec![id(0), id(1)], vec![id(2), id(3)]]);
    let handle = Runtime::start(stages, layout, now, RuntimeConfig::default()).expect("starts");
    let mut streams: Vec<TcpStream> = (0..10).map(|_| connect(address)).collect();
    for round in 0..100u8 {
        for stream in &mut streams {
            // One frame for the echo stage of each thread: batches of frames cross threads in both
            // directions.
            stream.write_all(&[encode(1, &[round]), encode(3, &[round])].concat()).expect("writes");
        }
        for stream in &mut streams {
            assert_eq!((read_frame(stream), read_frame(stream)), (vec![round], vec![round]));
        }
    }
    assert_eq!(metrics.each_ref().map(|metrics| metrics.snapshot().connections), [5, 5]);
    handle.shutdown(TIMEOUT).expect("drained");
}

/// Answers a while after it was asked, and closes the connection behind the answer when nothing
/// more comes.
struct Slow {
    asked: Vec<(std::time::Instant, FrameBatch)>,
    /// It has ended, or will, without a word more.
    over: std::sync::mpsc::Sender<NetEvent>,
}

/// Longer than a net stage by itself keeps a connection that has sent its last word.
const SLOW: Duration = Duration::from_millis(600);

impl Stage<Event> for Slow {
    fn name(&self) -> &str {
        "slow"
    }

    fn handle(&mut self, _: &mut Context<'_, Event>, events: &mut VecDeque<Event>) {
        for event in events.drain(..) {
            match event {
                Event::Net(NetEvent::FrameBatch(frame_batch)) => {
                    self.asked.push((std::time::Instant::now(), frame_batch))
                }
                Event::Net(event) => self.over.send(event).expect("the test listens"),
                Event::Command(command) => panic!("no command for this stage: {command:?}"),
            }
        }
    }

    fn turn(&mut self, ctx: &mut Context<'_, Event>) {
        for (_, frame_batch) in self.asked.extract_if(.., |(at, _)| at.elapsed() >= SLOW) {
            let reply_to = frame_batch.reply_to;
            assert!(
                ctx.send(reply_to.stage, Event::Command(NetCommand::Send(frame_batch))).is_ok()
            );
            assert!(ctx.send(reply_to.stage, Event::Command(NetCommand::Close(reply_to))).is_ok());
        }
    }

    fn next_deadline(&self) -> Option<timestone_types::Timestamp> {
        (!self.asked.is_empty()).then(|| now().saturating_add(Duration::from_millis(10)))
    }
}

/// What a peer that has sent its last word reads of an answer that is long in coming, and what its
/// owner is told.
fn late_answer(closed_by_owner: bool) -> (Vec<u8>, Vec<NetEvent>) {
    let config = NetConfig { owner: Some(ECHO), closed_by_owner, ..NetConfig::default() };
    let mut net = NetStage::<Event, _>::new(Lengths, config);
    let address = net.listen(([127, 0, 0, 1], 0).into()).expect("listens");
    let (over, heard) = std::sync::mpsc::channel();
    let stages: Vec<Box<dyn Stage<Event>>> =
        vec![Box::new(net), Box::new(Slow { asked: Vec::new(), over })];
    let _handle =
        Runtime::start(stages, Layout::single(2), now, RuntimeConfig::default()).expect("starts");
    let mut stream = connect(address);
    stream.write_all(&encode(1, b"a long question")).expect("writes");
    stream.shutdown(Shutdown::Write).expect("half closes");
    let answer = read_to_end(&mut stream);
    (answer, (0..3).map(|_| heard.recv_timeout(TIMEOUT).expect("an event")).collect())
}

#[test]
fn who_has_said_all_gets_an_answer_that_is_long_in_coming_when_its_owner_closes() {
    let (answer, events) = late_answer(true);
    assert_eq!(answer, encode(1, b"a long question"));
    let asked = |event: &NetEvent| {
        matches!(event, NetEvent::Disconnected { reason: DisconnectReason::Asked, .. })
    };
    assert!(
        matches!(events[..], [NetEvent::Connected(_), NetEvent::HalfClosed(_), _])
            && asked(&events[2]),
        "{events:?}"
    );
    // An owner that does not know when it has answered everything leaves that to the net stage.
    let (answer, events) = late_answer(false);
    assert!(answer.is_empty());
    assert!(
        matches!(events[2], NetEvent::Disconnected { reason: DisconnectReason::Closed, .. }),
        "{events:?}"
    );
}

/// How long a shutdown takes while a peer is owed more than its socket holds, of which it reads a
/// little at a time, or nothing.
fn shutdown_beside(reads: bool) -> Duration {
    let server = serve(NetConfig::default(), RuntimeConfig::default(), 100);
    let mut stream = connect(server.address);
    stream.write_all(&encode(1, &[1; 2_000_000])).expect("writes");
    eventually("its socket is full", || server.net.snapshot().queued_bytes > 100_000_000);
    let mut reader = stream.try_clone().expect("a second handle");
    let reading = std::thread::spawn(move || {
        let mut bytes = vec![0; 1_000_000];
        while reads && reader.read(&mut bytes).is_ok_and(|bytes| bytes > 0) {
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    let begun = std::time::Instant::now();
    server.handle.shutdown(TIMEOUT).expect("drained");
    let took = begun.elapsed();
    stream.shutdown(Shutdown::Both).ok();
    reading.join().expect("no panic");
    took
}

#[test]
fn shutdown_does_not_wait_for_who_reads_nothing_nor_long_for_who_reads_slowly() {
    let took = shutdown_beside(false);
    assert!(took < Duration::from_secs(10), "{took:?}");
    let took = shutdown_beside(true);
    assert!((Duration::from_secs(8)..Duration::from_secs(20)).contains(&took), "{took:?}");
}

/// Takes batches of frames and never finishes them, so that what is admitted stays admitted.
struct Hoarder(Vec<Event>);

impl Stage<Event> for Hoarder {
    fn name(&self) -> &str {
        "hoarder"
    }

    fn handle(
        &mut self,
        _: &mut timestone_seda::Context<'_, Event>,
        events: &mut std::collections::VecDeque<Event>,
    ) {
        self.0.extend(events.drain(..));
    }
}

#[test]
fn what_a_stage_has_no_room_for_is_answered_busy() {
    let mut net = NetStage::<Event, _>::new(Lengths, NetConfig::default());
    let address = net.listen(([127, 0, 0, 1], 0).into()).expect("listens");
    let metrics = net.metrics();
    let stages: Vec<Box<dyn Stage<Event>>> = vec![Box::new(net), Box::new(Hoarder(Vec::new()))];
    let limit = AdmissionLimit { requests: 10, bytes: u64::MAX };
    let config = RuntimeConfig { admission: vec![(ECHO, limit)], ..RuntimeConfig::default() };
    let handle = Runtime::start(stages, Layout::single(2), now, config).expect("starts");
    let mut stream = connect(address);
    for _ in 0..10 {
        stream.write_all(&encode(1, b"kept")).expect("writes");
        std::thread::sleep(Duration::from_millis(2));
    }
    eventually("ten are admitted", || handle.metrics().stages[1].admitted_requests == 10);
    stream.write_all(&encode(1, b"refused").repeat(3)).expect("writes");
    for _ in 0..3 {
        assert_eq!(read_frame(&mut stream), b"busy");
    }
    let counts = metrics.snapshot();
    assert_eq!((counts.frames_received_total, counts.frames_busy_total), (10, 3));
}

/// Sends what it gets to the other stage, as stages of one process do: past the door.
struct PassOn(StageId);

impl Stage<Event> for PassOn {
    fn name(&self) -> &str {
        "pass-on"
    }

    fn handle(&mut self, ctx: &mut Context<'_, Event>, events: &mut VecDeque<Event>) {
        for event in events.drain(..) {
            if let Event::Net(NetEvent::FrameBatch(frame_batch)) = event {
                let inner = FrameBatch::new(frame_batch.reply_to, frame_batch.bytes.clone());
                ctx.finish_frame_batch(frame_batch);
                assert!(ctx.send(self.0, Event::Net(NetEvent::FrameBatch(inner))).is_ok());
            }
        }
    }
}

#[test]
fn what_stages_send_each_other_releases_nothing_at_the_door() {
    let mut net = NetStage::<Event, _>::new(Lengths, NetConfig::default());
    let address = net.listen(([127, 0, 0, 1], 0).into()).expect("listens");
    let (echo, _heard) = Echo::new(1);
    let stages: Vec<Box<dyn Stage<Event>>> =
        vec![Box::new(net), Box::new(echo), Box::new(PassOn(ECHO))];
    let limit = AdmissionLimit { requests: 10, bytes: 1000 };
    let config = RuntimeConfig {
        admission: vec![(ECHO, limit), (StageId::new(2), limit)],
        ..RuntimeConfig::default()
    };
    let handle = Runtime::start(stages, Layout::single(3), now, config).expect("starts");
    let mut stream = connect(address);
    for stage in [2, 1, 2, 1] {
        stream.write_all(&encode(stage, b"passed")).expect("writes");
        assert_eq!(read_frame(&mut stream), b"passed");
    }
    for stage in &handle.metrics().stages[1..] {
        assert_eq!((stage.admitted_requests, stage.admitted_bytes), (0, 0), "{}", stage.name);
    }
}

#[test]
fn a_port_in_use_is_an_error_that_says_so() {
    let mut net = NetStage::<Event, _>::new(Lengths, NetConfig::default());
    let address = net.listen(([127, 0, 0, 1], 0).into()).expect("listens");
    let mut other = NetStage::<Event, _>::new(Lengths, NetConfig::default());
    let text = other.listen(address).expect_err("in use").to_string();
    assert!(text.contains(&address.to_string()) && text.contains("another process"), "{text}");
}

#[test]
fn shutdown_answers_what_was_taken_and_accepts_nothing_new() {
    let server = serve_simply();
    let mut stream = connect(server.address);
    stream.write_all(&encode(1, &[1; 1000]).repeat(2_000)).expect("writes");
    eventually("the first are taken", || server.net.snapshot().frames_received_total > 0);
    let reading = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // The rest of the requests is not read, so the connection may end with a reset.
        let _ = stream.read_to_end(&mut bytes);
        bytes.len()
    });
    let address = server.address;
    server.handle.shutdown(TIMEOUT).expect("drained");
    let counts = server.net.snapshot();
    assert_eq!(counts.bytes_sent_total, counts.frames_received_total * (1000 + HEADER as u64));
    assert!(reading.join().expect("no panic") as u64 <= counts.bytes_sent_total);
    assert!(TcpStream::connect(address).is_err(), "nobody listens any more");
}
