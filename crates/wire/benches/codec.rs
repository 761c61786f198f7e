//! How long one message takes: `cargo bench -p timestone-wire`. Prints nanoseconds a message;
//! figures go to docs/benchmarks.md.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![expect(clippy::disallowed_macros, reason = "a benchmark prints")]

use std::hint::black_box;
use std::time::Instant;

use timestone_types::{ClientId, Expiry, KeyspaceId, Sequence, ShardId, Timestamp, TxnId, Version};
use timestone_wire::resp::{CommandParser, Parsed, Protocol, ReplyWriter, RespLimits};
use timestone_wire::{
    Decide, Envelope, Frame, Frames, Get, Message, Prepare, PrepareHead, PrepareWriter, ReadAt,
    ReadEntry, Value, WriteEntry, WriteKind,
};

/// Messages between two readings of the clock.
const BATCH: u32 = 1000;
/// Batches of which the fastest tenth is averaged.
const BATCHES: usize = 2000;

fn measure(name: &str, mut batch: impl FnMut(u32)) {
    let mut times: Vec<u128> = (0..BATCHES)
        .map(|_| {
            let start = Instant::now();
            batch(BATCH);
            start.elapsed().as_nanos()
        })
        .collect();
    times.sort_unstable();
    let per_message = |index: usize| times[index] as f64 / f64::from(BATCH);
    println!(
        "{name:32} p10 {:7.2} ns   p50 {:7.2} ns",
        per_message(BATCHES / 10),
        per_message(BATCHES / 2)
    );
}

fn main() {
    let envelope = Envelope { shard: ShardId::new(3), ..Envelope::default() };
    let (keyspace, client, at) = (KeyspaceId::DEFAULT, ClientId::new(9), Timestamp::from_nanos(77));
    let key = *b"0123456789abcdef";
    let value = [5u8; 512];
    let mut out = Vec::with_capacity(2 << 20);

    let get = Get { keyspace, at: ReadAt::Snapshot(at), client, wait: true, key: &key };
    measure("Get encode", |count| {
        out.clear();
        for _ in 0..count {
            black_box(&get).encode(black_box(&envelope), &mut out);
        }
    });
    let gets = out.clone();
    measure("Get split and decode", |count| {
        let mut seen = 0;
        for frame in Frames::new(black_box(&gets)).flatten() {
            black_box(Get::decode(&frame).is_ok());
            seen += 1;
        }
        assert_eq!(seen, count);
    });

    let reply = Value {
        version: Version::new(at, client),
        expires_at: Expiry::NEVER,
        prepared_before: false,
        present: true,
        value: &value,
    };
    measure("Value of 512 B encode", |count| {
        out.clear();
        for _ in 0..count {
            black_box(&reply).encode(black_box(&envelope), &mut out);
        }
    });
    let values = out.clone();
    measure("Value of 512 B split and decode", |_| {
        for frame in Frames::new(black_box(&values)).flatten() {
            black_box(Value::decode(&frame).is_ok());
        }
    });

    let decide = Decide::new(TxnId::new(client, Sequence::new(1)), Some(at));
    measure("Decide encode", |count| {
        out.clear();
        for _ in 0..count {
            black_box(&decide).encode(black_box(&envelope), &mut out);
        }
    });

    let participants = [ShardId::new(1), ShardId::new(3)];
    let head = PrepareHead {
        txn: decide.txn,
        begin: at,
        commit: at,
        single: false,
        wait: true,
        participants: &participants,
    };
    measure("Prepare 2 reads 2 writes encode", |count| {
        out.clear();
        for _ in 0..count {
            let mut writer = PrepareWriter::begin(black_box(&envelope), &head, &mut out);
            for _ in 0..2 {
                let version = Version::new(at, client);
                writer.read(&ReadEntry {
                    keyspace,
                    version,
                    absent: false,
                    expires_at: Expiry::NEVER,
                    key: &key,
                });
            }
            for _ in 0..2 {
                let (kind, expires_at) = (WriteKind::Put, Expiry::NEVER);
                writer.write(&WriteEntry { keyspace, kind, expires_at, key: &key, value: &value });
            }
            writer.finish();
        }
    });
    let prepares = out.clone();
    measure("Prepare 2 reads 2 writes decode", |_| {
        for frame in Frames::new(black_box(&prepares)).flatten() {
            let prepare = Prepare::decode(black_box::<&Frame<'_>>(&frame));
            let bytes: usize = prepare.map_or(0, |prepare| {
                prepare.body.reads().map(|read| read.key.len()).sum::<usize>()
                    + prepare.body.writes().map(|write| write.value.len()).sum::<usize>()
            });
            black_box(bytes);
        }
    });

    let command = b"*2\r\n$3\r\nGET\r\n$16\r\n0123456789abcdef\r\n".repeat(BATCH as usize);
    let mut parser = CommandParser::new(RespLimits::default());
    measure("RESP GET parse", |_| {
        let mut at = 0;
        while let Ok(Parsed::Command(command)) = parser.parse(black_box(&command[at..])) {
            black_box(command.arg(1));
            at += command.consumed();
        }
    });
    measure("RESP bulk of 512 B write", |count| {
        out.clear();
        for _ in 0..count {
            ReplyWriter::new(&mut out, Protocol::Resp2).bulk(black_box(&value));
        }
    });
}
