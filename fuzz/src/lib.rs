//! What each fuzz target checks. A target panics when an invariant breaks; input that is refused
//! with an error is fine.
//!
//! The same functions serve libFuzzer (`fuzz_targets/`) and the deterministic mutator
//! (`src/bin/mutate.rs`).

mod store;
mod text;

pub use store::{store_page, store_seeds};
pub use text::{costs, history, scenario, script, settings};
use timestone_cluster::{Heartbeat, Master, MasterAnswer, MasterCommand, ShardMap};
use timestone_types::Timestamp;
use timestone_wal::block::{BlockHeader, BlockSequence, Entry, HEADER_BYTES, HeaderAt, padded};
use timestone_wal::device::FileName;
use timestone_wal::device::memory::MemoryDisk;
use timestone_wal::{BatchRecords, LogRecord, check_device};
use timestone_wire::resp::{CommandParser, Parsed, RespLimits};
use timestone_wire::{Frames, Hello, PrepareBody, recode};

/// A target: its name and what it does with an input.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 11] = [
    ("frame", frame),
    ("resp", resp),
    ("cluster", cluster),
    ("log_block", log_block),
    ("record", record),
    ("store_page", store_page),
    ("settings", settings),
    ("script", script),
    ("scenario", scenario),
    ("costs", costs),
    ("history", history),
];

/// A run of frames: what decodes encodes to the same bytes.
pub fn frame(data: &[u8]) {
    let _ = Hello::first_length(data);
    let mut again = Vec::new();
    for frame in Frames::new(data) {
        let Ok(frame) = frame else { return };
        let _ = Hello::first(&frame).and_then(|hello| hello.negotiate());
        again.clear();
        if recode(&frame, &mut again).is_ok() {
            assert_eq!(
                again,
                frame.bytes(),
                "{} encodes to other bytes than it was read from",
                frame.kind().name()
            );
        }
    }
}

/// A stream of RESP commands: the same meaning in pieces (of the length that the first byte says)
/// as in one.
pub fn resp(data: &[u8]) {
    let Some((&piece, stream)) = data.split_first() else { return };
    let piece = usize::from(piece) + 1;
    assert_eq!(
        commands(stream, piece),
        commands(stream, stream.len().max(1)),
        "pieces of {piece} mean something else"
    );
}

type Commands = (Vec<Vec<Vec<u8>>>, Option<String>);

fn commands(stream: &[u8], piece: usize) -> Commands {
    let limits = RespLimits { max_args: 64, max_bulk_bytes: 1024, max_command_bytes: 4096 };
    let mut parser = CommandParser::new(limits);
    let (mut buffer, mut found) = (Vec::new(), Vec::new());
    for bytes in stream.chunks(piece) {
        buffer.extend_from_slice(bytes);
        loop {
            let (consumed, whole) = match parser.parse(&buffer) {
                Ok(Parsed::Command(command)) => {
                    found.push(command.args().map(<[u8]>::to_vec).collect());
                    (command.consumed(), true)
                }
                Ok(Parsed::Incomplete { consumed, .. }) => (consumed, false),
                Err(error) => return (found, Some(error.to_string())),
            };
            buffer.drain(..consumed);
            if !whole {
                break;
            }
        }
    }
    (found, None)
}

/// Maps, commands, answers, the master's state and heartbeats, chosen by the first byte: what decodes encodes
/// to something equal.
pub fn cluster(data: &[u8]) {
    let Some((&kind, bytes)) = data.split_first() else { return };
    let mut again = Vec::new();
    match kind % 5 {
        0 => {
            if let Ok(map) = ShardMap::decode(bytes) {
                map.encode(&mut again);
                assert_eq!(ShardMap::decode(&again).as_ref(), Ok(&map));
            }
        }
        1 => {
            if let Ok(command) = MasterCommand::decode(bytes) {
                command.encode(&mut again);
                assert_eq!(MasterCommand::decode(&again).as_ref(), Ok(&command));
            }
        }
        2 => {
            if let Ok(answer) = MasterAnswer::decode(bytes) {
                answer.encode(&mut again);
                assert_eq!(MasterAnswer::decode(&again).as_ref(), Ok(&answer));
            }
        }
        3 => state(bytes),
        _ => {
            if let Ok(heartbeat) = Heartbeat::decode(bytes) {
                heartbeat.encode(&mut again);
                assert_eq!(again, bytes);
            }
        }
    }
}

/// The checksum is filled in, so that the fuzzer reaches what it protects.
fn state(bytes: &[u8]) {
    let mut state = bytes.to_vec();
    let Some(body) = bytes.len().checked_sub(4) else { return };
    let checksum = crc32c::crc32c(&state[..body]);
    state[body..].copy_from_slice(&checksum.to_le_bytes());
    if let Ok(mut master) = Master::decode(&state) {
        let mut again = Vec::new();
        master.encode(&mut again);
        assert_eq!(Master::decode(&again).as_ref(), Ok(&master));
        let _ = master.step(MasterCommand::RegisterClient { count: 1 });
    }
}

/// A log file: raw, or a block whose header and checksums are filled in around the payload.
pub fn log_block(data: &[u8]) {
    let Some((&mode, payload)) = data.split_first() else { return };
    let file = FileName::new(Timestamp::from_nanos(1));
    let image = if mode & 1 == 0 { payload.to_vec() } else { block_around(file, payload) };
    let mut content = image;
    content.resize(padded(content.len()).max(2 * padded(1)), 0);
    let _ = BlockHeader::read(&content);
    let disk = MemoryDisk::new();
    disk.set_content(file, content);
    // A damaged log is reported; only a panic is wrong.
    let _ = check_device(disk.device(), &[]);
}

fn block_around(file: FileName, payload: &[u8]) -> Vec<u8> {
    let header = BlockHeader {
        file,
        sequence: BlockSequence::FIRST,
        durable_below: BlockSequence::FIRST,
        length: u32::try_from(payload.len()).unwrap_or(u32::MAX),
        payload_crc: crc32c::crc32c(payload),
        opened: true,
    };
    let mut block = vec![0; HEADER_BYTES];
    header.write(&mut block);
    assert_eq!(
        BlockHeader::read(&block),
        HeaderAt::Header(header),
        "a header that was written \
        reads back"
    );
    block.extend_from_slice(payload);
    let mut rest = payload;
    while let Some((entry, bytes, after)) = Entry::split(rest) {
        assert_eq!(entry.length as usize, bytes.len());
        rest = after;
    }
    block
}

/// A batch of log records: what decodes encodes to something equal, and a prepare's body is safe to
/// read.
pub fn record(data: &[u8]) {
    for bytes in BatchRecords::new(data) {
        let Ok(record) = bytes.and_then(LogRecord::decode) else { continue };
        let mut again = Vec::new();
        record.encode(&mut again);
        for copy in BatchRecords::new(&again) {
            assert_eq!(
                copy.and_then(LogRecord::decode).ok(),
                Some(record),
                "a record encodes to another one"
            );
        }
        let LogRecord::Prepare { body, .. } = record else { continue };
        if let Ok(body) = PrepareBody::parse(body) {
            assert_eq!(body.reads().len(), body.reads().count());
            assert_eq!(body.writes().len(), body.writes().count());
        }
    }
}
