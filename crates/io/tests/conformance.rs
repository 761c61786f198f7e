//! One suite that every engine passes, and the poller together with both of them.
//!
//! io_uring is required where the kernel has it: the suite asks the kernel's own switch, so a
//! broken ring engine cannot hide behind the fallback.

#![expect(clippy::unwrap_used, reason = "a test says what is wrong by where it panics")]

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use timestone_io::{
    ALIGNMENT, Access, AlignedBuffer, EngineChoice, EngineKind, Interest, IoCompletion, IoConfig,
    IoEngine, IoError, IoFile, IoOp, IoToken, PollEvents, PollToken, Poller, RefusedReason,
    ZoneAction, open_direct, open_direct_synced, preallocate_zeroed, sync_parent,
};

const LONG: Duration = Duration::from_secs(20);

struct World {
    folder: tempfile::TempDir,
    engine: IoEngine,
}

impl World {
    fn new(kind: EngineKind, depth: u32) -> Option<Self> {
        let engine = match kind {
            EngineKind::Uring => EngineChoice::Uring,
            EngineKind::Threads => EngineChoice::Threads,
        };
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        match IoEngine::new(IoConfig { depth, engine }) {
            Ok(engine) => Some(Self { folder, engine }),
            Err(IoError::UringUnavailable { reason }) => {
                let switch = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
                assert!(
                    switch.is_ok_and(|text| text.trim() != "0"),
                    "the kernel allows io_uring, but: {reason}"
                );
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn file(&self, pages: u64) -> IoFile {
        let file = open_direct(&self.path("data"), Access::CreateNew).unwrap();
        preallocate_zeroed(&file, 0, pages * ALIGNMENT as u64).unwrap();
        file
    }

    fn submit(&mut self, token: u64, op: IoOp) {
        self.engine
            .submit(IoToken(token), op)
            .unwrap_or_else(|refused| panic!("{:?}", refused.reason));
    }

    fn drain(&mut self) -> BTreeMap<u64, IoCompletion> {
        let mut completions = Vec::new();
        let deadline = Instant::now() + LONG;
        while self.engine.in_flight() > 0 {
            assert!(Instant::now() < deadline, "operations never complete");
            self.engine.wait(LONG);
            self.engine.poll(&mut completions);
        }
        let count = completions.len();
        let by_token: BTreeMap<_, _> =
            completions.into_iter().map(|done| (done.token.0, done)).collect();
        assert_eq!(by_token.len(), count, "an operation completed twice");
        by_token
    }
}

fn filled(pages: usize, byte: u8) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::zeroed(pages * ALIGNMENT);
    buffer.fill(byte);
    buffer
}

fn write(file: &IoFile, page: u64, buffer: AlignedBuffer) -> IoOp {
    let length = buffer.len();
    IoOp::Write { file: file.clone(), offset: page * ALIGNMENT as u64, buffer, length }
}

fn read(file: &IoFile, page: u64, pages: usize) -> IoOp {
    let buffer = filled(pages, 0xee);
    let length = buffer.len();
    IoOp::Read { file: file.clone(), offset: page * ALIGNMENT as u64, buffer, length }
}

fn what_is_written_is_read_back(world: &mut World) {
    let file = world.file(64);
    for page in 0..64 {
        world.submit(page, write(&file, page, filled(1, page as u8)));
    }
    for (token, done) in world.drain() {
        assert_eq!(done.result.unwrap(), ALIGNMENT, "write {token}");
        assert!(
            done.buffer.unwrap().iter().all(|&byte| byte == token as u8),
            "the buffer comes back unchanged"
        );
    }
    world.submit(0, IoOp::Sync { file: file.clone() });
    assert_eq!(world.drain().remove(&0).unwrap().result.unwrap(), 0);
    for page in 0..64 {
        world.submit(page, read(&file, page, 1));
    }
    for (token, done) in world.drain() {
        assert_eq!(done.result.unwrap(), ALIGNMENT);
        assert!(done.buffer.unwrap().iter().all(|&byte| byte == token as u8), "page {token}");
    }
}

fn many_buffers_are_written_as_one_transfer(world: &mut World) {
    let file = world.file(32);
    let buffers = vec![filled(1, 1), filled(3, 2), filled(2, 3)];
    world.submit(9, IoOp::WriteMany { file: file.clone(), offset: 2 * ALIGNMENT as u64, buffers });
    let done = world.drain().remove(&9).unwrap();
    assert_eq!(done.result.unwrap(), 6 * ALIGNMENT);
    assert_eq!(
        done.buffers.iter().map(|buffer| buffer.len() / ALIGNMENT).collect::<Vec<_>>(),
        [1, 3, 2]
    );
    world.submit(0, read(&file, 0, 10));
    let buffer = world.drain().remove(&0).unwrap().buffer.unwrap();
    let firsts: Vec<_> = buffer.chunks(ALIGNMENT).map(|page| page[0]).collect();
    assert_eq!(firsts, [0, 0, 1, 2, 2, 2, 3, 3, 0, 0]);
}

fn only_the_asked_length_is_moved(world: &mut World) {
    let file = world.file(4);
    let op = IoOp::Write { file: file.clone(), offset: 0, buffer: filled(2, 7), length: ALIGNMENT };
    world.submit(0, op);
    assert_eq!(world.drain().remove(&0).unwrap().result.unwrap(), ALIGNMENT);
    let op = IoOp::Read { file, offset: 0, buffer: filled(3, 0xee), length: 2 * ALIGNMENT };
    world.submit(1, op);
    let buffer = world.drain().remove(&1).unwrap().buffer.unwrap();
    let firsts: Vec<_> = buffer.chunks(ALIGNMENT).map(|page| page[0]).collect();
    assert_eq!(firsts, [7, 0, 0xee]);
}

fn a_read_across_the_end_says_how_much_there_was(world: &mut World) {
    let file = world.file(3);
    world.submit(0, read(&file, 2, 4));
    world.submit(1, read(&file, 3, 1));
    let done = world.drain();
    assert_eq!(*done[&0].result.as_ref().unwrap(), ALIGNMENT);
    assert_eq!(*done[&1].result.as_ref().unwrap(), 0);

    let path = world.path("odd");
    let mut plain = std::fs::File::create(&path).unwrap();
    plain.write_all(&vec![5; ALIGNMENT + 100]).unwrap();
    drop(plain);
    let odd = open_direct(&path, Access::ReadOnly).unwrap();
    world.submit(2, read(&odd, 0, 4));
    assert_eq!(*world.drain()[&2].result.as_ref().unwrap(), ALIGNMENT + 100);
}

fn a_failure_is_a_completion_with_its_buffer(world: &mut World) {
    let path = world.file(1).path().to_owned();
    let file = open_direct(&path, Access::ReadOnly).unwrap();
    world.submit(0, write(&file, 0, filled(1, 1)));
    world.submit(1, IoOp::WriteMany { file, offset: 0, buffers: vec![filled(1, 1), filled(1, 2)] });
    let mut done = world.drain();
    let single = done.remove(&0).unwrap();
    assert!(single.result.is_err() && single.buffer.is_some());
    let many = done.remove(&1).unwrap();
    assert!(many.result.is_err() && many.buffers.len() == 2);
}

fn space_is_allocated(world: &mut World) {
    let file = world.file(1);
    world.submit(0, IoOp::Allocate { file: file.clone(), offset: 4096, length: 1 << 20 });
    assert_eq!(world.drain().remove(&0).unwrap().result.unwrap(), 0);
    assert_eq!(file.length_bytes().unwrap(), 4096 + (1 << 20));
}

fn the_depth_is_a_bound_and_the_operation_comes_back(world: &mut World) {
    let file = world.file(8);
    let depth = world.engine.depth() as u64;
    for token in 0..depth {
        world.submit(token, read(&file, token % 8, 1));
    }
    let refused = world.engine.submit(IoToken(99), read(&file, 0, 1)).unwrap_err();
    assert_eq!((refused.reason, refused.token), (RefusedReason::QueueFull, IoToken(99)));
    assert!(matches!(refused.op, IoOp::Read { ref buffer, .. } if buffer.len() == ALIGNMENT));
    assert_eq!(world.drain().len() as u64, depth);
    world.submit(99, refused.op);
    assert!(world.drain()[&99].result.is_ok());
}

fn malformed_operations_are_refused(world: &mut World) {
    let file = world.file(1);
    let long =
        IoOp::Write { file: file.clone(), offset: 0, buffer: filled(1, 0), length: ALIGNMENT + 1 };
    let far = IoOp::Read {
        file: file.clone(),
        offset: u64::MAX - 100,
        buffer: filled(1, 0),
        length: ALIGNMENT,
    };
    let empty = IoOp::WriteMany { file: file.clone(), offset: 0, buffers: Vec::new() };
    let crowd = (0..=timestone_io::limits::MAX_VECTORS).map(|_| filled(1, 0)).collect();
    let many = IoOp::WriteMany { file: file.clone(), offset: 0, buffers: crowd };
    let vast = IoOp::Allocate { file, offset: u64::MAX, length: 2 };
    for op in [long, far, empty, many, vast] {
        let refused = world.engine.submit(IoToken(0), op).unwrap_err();
        assert_eq!(refused.reason, RefusedReason::Malformed);
    }
    assert_eq!(world.engine.in_flight(), 0);
}

fn waiting_ends_by_itself(world: &mut World) {
    let started = Instant::now();
    world.engine.wait(LONG);
    assert!(started.elapsed() < LONG / 2, "nothing is in flight, so there is nothing to wait for");
    let file = world.file(1);
    world.submit(0, read(&file, 0, 1));
    world.engine.wait(LONG);
    world.engine.wait(LONG);
    assert!(started.elapsed() < LONG / 2, "an unpolled completion ends every wait");
    assert_eq!(world.drain().len(), 1);
}

fn dropping_the_engine_finishes_what_is_in_flight(world: &mut World) {
    let file = world.file(256);
    for page in 0..world.engine.depth() as u64 {
        world.submit(page, write(&file, page, filled(1, 9)));
    }
    let engine = IoEngine::new(IoConfig { depth: 1, engine: EngineChoice::Threads }).unwrap();
    let depth = world.engine.depth();
    drop(std::mem::replace(&mut world.engine, engine));
    let mut buffer = AlignedBuffer::zeroed(depth * ALIGNMENT);
    file.read_blocking(0, &mut buffer).unwrap();
    assert!(buffer.iter().all(|&byte| byte == 9), "an accepted write was lost");
}

fn an_engine_moves_between_threads(world: &mut World) {
    let file = world.file(16);
    for page in 0..16 {
        world.submit(page, write(&file, page, filled(1, 3)));
    }
    world.engine.flush();
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(world.drain().len(), 16));
    });
}

/// An ordinary file refuses zone commands; they complete all the same, also when nothing else is in
/// flight, and among transfers.
fn zone_commands_complete_beside_everything_else(world: &mut World) {
    let file = world.file(8);
    let reset = || IoOp::Zone {
        file: file.clone(),
        action: ZoneAction::Reset,
        offset: 0,
        length: ALIGNMENT as u64,
    };
    for round in 0..20 {
        world.submit(0, reset());
        assert!(world.drain().remove(&0).unwrap().result.is_err(), "round {round}");
        for token in 0..6 {
            let op = if token % 2 == 0 { reset() } else { read(&file, token, 1) };
            world.submit(token, op);
        }
        assert_eq!(world.engine.in_flight(), 6);
        for (token, done) in world.drain() {
            assert_eq!(done.result.is_err(), token % 2 == 0, "round {round}, operation {token}");
            assert_eq!(done.buffer.is_some(), token % 2 == 1);
        }
    }
}

fn the_wake_descriptor_ends_a_poll(world: &mut World) {
    let file = world.file(16);
    let mut poller = Poller::new().unwrap();
    let mut events = PollEvents::with_capacity(8);
    poller.register_fd(world.engine.wake_fd(), PollToken(5), Interest::READABLE).unwrap();
    // The descriptor is never read: each round needs an edge of its own.
    for round in 0..50 {
        world.submit(round, read(&file, round % 16, 1));
        world.engine.flush();
        let mut completions = Vec::new();
        let deadline = Instant::now() + LONG;
        while world.engine.poll(&mut completions) == 0 {
            poller.poll(&mut events, Some(LONG)).unwrap();
            assert!(Instant::now() < deadline, "round {round}: no edge");
            assert!(events.iter().all(|event| event.token == PollToken(5) && event.readable));
        }
    }
    // The last signal may come a moment after its completion could be polled.
    poller.poll(&mut events, Some(Duration::from_millis(100))).unwrap();
    assert!(events.iter().count() <= 1);
    world.engine.clear_wake();
    poller.poll(&mut events, Some(Duration::from_millis(5))).unwrap();
    assert!(events.is_empty(), "an idle engine stays silent");
}

macro_rules! suite {
    ($($name:ident),* $(,)?) => {
        mod uring {
            $(#[test] fn $name() {
                if let Some(mut world) = super::World::new(super::EngineKind::Uring, 64) {
                    assert_eq!(world.engine.kind(), super::EngineKind::Uring);
                    super::$name(&mut world);
                }
            })*
        }
        mod threads {
            $(#[test] fn $name() {
                let mut world = super::World::new(super::EngineKind::Threads, 64).unwrap();
                assert_eq!(world.engine.kind(), super::EngineKind::Threads);
                super::$name(&mut world);
            })*
        }
    };
}

suite!(
    what_is_written_is_read_back,
    many_buffers_are_written_as_one_transfer,
    only_the_asked_length_is_moved,
    a_read_across_the_end_says_how_much_there_was,
    a_failure_is_a_completion_with_its_buffer,
    space_is_allocated,
    the_depth_is_a_bound_and_the_operation_comes_back,
    malformed_operations_are_refused,
    waiting_ends_by_itself,
    dropping_the_engine_finishes_what_is_in_flight,
    an_engine_moves_between_threads,
    zone_commands_complete_beside_everything_else,
    the_wake_descriptor_ends_a_poll,
);

#[test]
fn a_depth_out_of_bounds_is_refused() {
    for depth in [0, timestone_io::limits::MAX_DEPTH + 1] {
        let error = IoEngine::new(IoConfig { depth, engine: EngineChoice::Auto }).unwrap_err();
        assert!(matches!(error, IoError::OutOfBounds { .. }), "{error}");
    }
}

#[test]
fn the_deepest_engine_works() {
    let engine = EngineChoice::Auto;
    let mut engine =
        IoEngine::new(IoConfig { depth: timestone_io::limits::MAX_DEPTH, engine }).unwrap();
    assert_eq!(engine.poll(&mut Vec::new()), 0);
}

#[test]
fn opening_says_which_file_and_why() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("missing");
    let error = open_direct(&path, Access::ReadWrite).unwrap_err().to_string();
    assert!(error.contains("missing") && error.contains("open"), "{error}");
    open_direct(&path, Access::CreateNew).unwrap();
    assert!(open_direct(&path, Access::CreateNew).is_err(), "it exists now");
    sync_parent(&path).unwrap();
}

#[test]
fn a_synced_file_syncs_its_data_and_not_its_times_at_each_write() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("file");
    assert!(open_direct_synced(&path).is_err(), "it has to be there");
    open_direct(&path, Access::CreateNew).unwrap();
    let file = open_direct_synced(&path).unwrap();
    let flags = rustix::fs::fcntl_getfl(file.file()).unwrap().bits().cast_signed();
    assert_eq!(flags & libc::O_SYNC, libc::O_DSYNC, "O_SYNC is O_DSYNC and one bit more");
}

#[test]
fn a_lock_is_waited_for_as_long_as_a_killed_process_may_take() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let owner = open_direct(&path, Access::CreateNew).unwrap();
    let other = open_direct(&path, Access::ReadWrite).unwrap();
    assert!(owner.lock().unwrap());
    assert!(owner.lock().unwrap(), "whoever has it has it");
    let begin = std::time::Instant::now();
    assert!(!other.lock().unwrap());
    assert!(begin.elapsed() >= timestone_io::limits::LOCK_TIMEOUT);
    let waiting = std::thread::spawn(move || other.lock().unwrap());
    std::thread::sleep(Duration::from_millis(50));
    drop(owner);
    assert!(waiting.join().unwrap());
}

#[test]
fn a_file_system_without_direct_access_is_served_through_the_page_cache() {
    // procfs refuses O_DIRECT with EINVAL on every kernel; the fallback must open it all the same.
    let file = open_direct(std::path::Path::new("/proc/self/status"), Access::ReadOnly).unwrap();
    assert!(!file.is_direct());
    let mut buffer = AlignedBuffer::zeroed(ALIGNMENT);
    file.read_blocking(0, &mut buffer).unwrap();
    assert!(buffer.starts_with(b"Name:"));
}

#[test]
fn a_waker_wakes_from_another_thread_and_wakes_are_kept() {
    let mut poller = Poller::new().unwrap();
    let mut events = PollEvents::with_capacity(8);
    let waker = poller.waker(PollToken(1)).unwrap();
    waker.wake().unwrap();
    poller.poll(&mut events, Some(LONG)).unwrap();
    assert_eq!(events.iter().map(|event| event.token).collect::<Vec<_>>(), [PollToken(1)]);
    let other = waker.clone();
    let thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        other.wake().unwrap();
    });
    let started = Instant::now();
    while events.is_empty() || started.elapsed() < Duration::from_millis(1) {
        poller.poll(&mut events, Some(LONG)).unwrap();
    }
    assert!(started.elapsed() < LONG / 2);
    thread.join().unwrap();
}

#[test]
fn sockets_report_readiness() {
    let mut poller = Poller::new().unwrap();
    let mut events = PollEvents::with_capacity(8);
    let mut listener =
        timestone_io::mio::net::TcpListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    poller.register(&mut listener, PollToken(7), Interest::READABLE).unwrap();
    let mut peer = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut seen = await_event(&mut poller, &mut events);
    assert_eq!((seen.token, seen.readable), (PollToken(7), true));
    let (mut stream, _) = listener.accept().unwrap();
    poller.deregister(&mut listener).unwrap();
    poller.register(&mut stream, PollToken(8), Interest::READABLE).unwrap();
    peer.write_all(b"hello").unwrap();
    seen = await_event(&mut poller, &mut events);
    assert_eq!((seen.token, seen.readable, seen.closed), (PollToken(8), true, false));
    drop(peer);
    seen = await_event(&mut poller, &mut events);
    assert!(seen.closed);
}

fn await_event(poller: &mut Poller, events: &mut PollEvents) -> timestone_io::Readiness {
    let deadline = Instant::now() + LONG;
    loop {
        poller.poll(events, Some(LONG)).unwrap();
        if let Some(event) = events.iter().next() {
            return event;
        }
        assert!(Instant::now() < deadline, "no event came");
    }
}
