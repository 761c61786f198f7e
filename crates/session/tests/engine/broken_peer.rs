//! Answers of a peer that says anything, and calls of hosts and applications in any order: none of
//! that is an invariant of the engine.

use std::time::Duration;

use timestone_session::{
    Condition, EngineConfig, Mutation, OpId, RequestOptions, SessionId, Step, Ticket, TxnHandle,
    TxnOptions,
};
use timestone_testkit::BEGIN;
use timestone_types::random::{Dice, Seed};
use timestone_types::{
    AbortKind, AbortReason, ClientId, Expiry, Sequence, ShardId, Timestamp, TxnId, Version,
};
use timestone_wire::{
    ClockIs, DecideAck, Envelope, ErrorCode, ErrorReply, FetchWriteSet, Frames, Message as _,
    RequestId, StatusIs, TxnState, Value, Verdict, Vote, Written,
};

use crate::world::{SPACE, World, name, routes, world_with};

const SHARDS: u16 = 3;
const STEPS: usize = 500;

fn seeds() -> std::ops::Range<u64> {
    let first = std::env::var("TIMESTONE_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    first.map_or(0..150, |seed| seed..seed + 1)
}

/// A peer that has seen what the engine sends, and answers whatever it likes.
struct Peer {
    dice: Dice,
    /// The requests that it saw: number and shard.
    seen: Vec<(u64, ShardId)>,
    /// Transactions and writes that it has heard of.
    txns: Vec<TxnId>,
    now: Timestamp,
}

impl Peer {
    fn timestamp(&mut self) -> Timestamp {
        let near = self.now.as_nanos() - 5_000_000 + self.dice.below(10_000_000);
        let nanos = match self.dice.below(12) {
            0 => 0,
            1 => 1,
            2 => u64::MAX - self.dice.below(2),
            3 => u64::MAX / 2 + self.dice.below(2),
            4 => self.dice.roll(),
            _ => near,
        };
        Timestamp::from_nanos(nanos)
    }

    fn txn(&mut self) -> TxnId {
        let made_up = TxnId::new(
            ClientId::new(self.dice.below(6) as u32),
            Sequence::new(self.dice.below(40)),
        );
        if self.dice.below(8) == 0 {
            made_up
        } else {
            self.dice.pick(&self.txns).copied().unwrap_or(made_up)
        }
    }

    fn verdict(&mut self) -> Verdict {
        match self.dice.below(3) {
            0 => Verdict::Yes,
            1 => Verdict::Later(self.timestamp()),
            _ => {
                let kinds = [
                    AbortKind::TooOld,
                    AbortKind::ReadConflict,
                    AbortKind::Condition,
                    AbortKind::Timestamp,
                    AbortKind::Terminated,
                ];
                let kind = *self.dice.pick(&kinds).unwrap();
                let item = (self.dice.below(2) == 0).then(|| self.dice.below(4) as u32);
                Verdict::No(AbortReason { at: self.timestamp(), item, ..AbortReason::of(kind) })
            }
        }
    }

    fn state(&mut self) -> TxnState {
        match self.dice.below(4) {
            0 => TxnState::Unknown,
            1 => TxnState::Prepared(self.timestamp()),
            2 => TxnState::Committed(self.timestamp()),
            _ => TxnState::Aborted,
        }
    }

    /// One frame that it might send.
    fn frame(&mut self) -> Vec<u8> {
        let (mut request, mut shard) =
            self.dice.pick(&self.seen).copied().unwrap_or((0, ShardId::new(0)));
        match self.dice.below(20) {
            0 => request ^= 1 << self.dice.below(64),
            1 => shard = ShardId::new(self.dice.below(u64::from(SHARDS) + 2) as u16),
            2 => request = 0,
            _ => {}
        }
        let envelope = Envelope { shard, request: RequestId::new(request), ..Envelope::default() };
        let (txn, commit) = (self.txn(), self.timestamp());
        let mut out = Vec::new();
        match self.dice.below(9) {
            0 => {
                let present = self.dice.below(2) == 0;
                let value = Value {
                    version: Version::new(commit, ClientId::new(9)),
                    expires_at: Expiry::NEVER,
                    prepared_before: self.dice.below(4) == 0,
                    present,
                    value: if present { b"v" } else { b"" },
                };
                value.encode(&envelope, &mut out);
            }
            1 => Vote { txn, commit, verdict: self.verdict() }.encode(&envelope, &mut out),
            2 => {
                let written = Written {
                    txn,
                    commit,
                    verdict: self.verdict(),
                    previous_present: true,
                    previous_version: Version::new(commit, ClientId::new(9)),
                    previous_expires_at: Expiry::NEVER,
                    previous_value: b"before",
                };
                written.encode(&envelope, &mut out);
            }
            3 => DecideAck { txn }.encode(&envelope, &mut out),
            4 => FetchWriteSet { txn, commit }.encode(&envelope, &mut out),
            5 | 6 => StatusIs { txn, state: self.state() }.encode(&envelope, &mut out),
            7 => ClockIs::new(commit, None).encode(&envelope, &mut out),
            _ => {
                let codes = [
                    ErrorCode::Busy,
                    ErrorCode::WrongShard,
                    ErrorCode::SnapshotTooOld,
                    ErrorCode::ClockAhead,
                    ErrorCode::ClockBehind,
                    ErrorCode::Prepared,
                    ErrorCode::SessionEnded,
                    ErrorCode::Terminated,
                    ErrorCode::Internal,
                    ErrorCode::UnknownOutcome,
                ];
                let error = ErrorReply {
                    retry_after_ns: self.dice.below(2) * self.dice.roll(),
                    ..ErrorReply::new(*self.dice.pick(&codes).unwrap(), "no")
                };
                error.with_detail(self.timestamp().as_nanos()).encode(&envelope, &mut out);
            }
        }
        out
    }
}

/// What an application holds.
#[derive(Default)]
struct Held {
    sessions: Vec<SessionId>,
    txns: Vec<TxnHandle>,
    tickets: Vec<Ticket>,
    maps: u32,
}

impl Held {
    fn keep(&mut self, step: Result<Step<'_>, timestone_session::SessionError>) {
        if let Ok(Step::Pending(ticket)) = step {
            self.tickets.push(ticket);
        }
    }
}

/// Any call, by an application or a host.
fn call(world: &mut World, peer: &mut Peer, held: &mut Held) {
    let (now, op) = (peer.now, OpId(peer.dice.below(5)));
    let deadline = match peer.dice.below(6) {
        0 => Some(Timestamp::ZERO),
        1 => Some(peer.timestamp()),
        _ => None,
    };
    let key = [b'a' + peer.dice.below(6) as u8];
    let session = peer.dice.pick(&held.sessions).copied();
    let txn = peer.dice.pick(&held.txns).copied();
    let external_wait = peer.dice.below(3) == 0;
    let options = RequestOptions { deadline, external_wait, return_previous: external_wait };
    let engine = &mut world.host.engine;
    match (peer.dice.below(20), session, txn) {
        (0, None, _) | (0, Some(_), None) => held.sessions.extend(engine.open_session()),
        (1, Some(session), _) if peer.dice.below(8) == 0 => engine.close_session(session),
        (2..=4, Some(session), _) => {
            let options = TxnOptions {
                deadline,
                max_staleness: (peer.dice.below(6) == 0).then_some(Duration::from_secs(1)),
                external_wait,
                strict: peer.dice.below(3) == 0,
                read_only: peer.dice.below(8) == 0,
                snapshot_at: (peer.dice.below(12) == 0).then(|| peer.timestamp()),
            };
            held.txns.extend(engine.begin(now, session, options));
        }
        (5..=7, _, Some(txn)) => held.keep(engine.get(now, txn, SPACE, &key, op)),
        (8, _, Some(txn)) => {
            let _ = engine.write(now, txn, name(&key), Some(b"value"), Expiry::NEVER);
        }
        (9, _, Some(txn)) if peer.dice.below(4) == 0 => {
            let _ = engine.fence(now, txn, SPACE);
        }
        (10..=11, _, Some(txn)) => held.keep(engine.commit(now, txn, op)),
        (12, _, Some(txn)) if peer.dice.below(4) == 0 => engine.abort(txn),
        (13, Some(session), _) => {
            held.keep(engine.get_latest(now, session, SPACE, &key, options, op));
        }
        (14..=15, Some(session), _) => {
            let mutation = Mutation::Put { value: b"v", expires_at: Expiry::NEVER };
            let condition = Condition::Always;
            held.keep(engine.write_if(now, session, SPACE, &key, mutation, condition, options, op));
        }
        (16, _, _) => {
            let txn = peer.txn();
            held.keep(engine.status(now, txn, options, op));
        }
        (17, _, _) => {
            if let Some(&ticket) = peer.dice.pick(&held.tickets) {
                engine.cancel(ticket);
            }
        }
        (18, Some(session), _) if peer.dice.below(4) == 0 => {
            let _ = engine.saw(session, peer.timestamp());
        }
        (19, _, _) => {
            let shard = ShardId::new(peer.dice.below(u64::from(SHARDS)) as u16);
            match peer.dice.below(10) {
                0..=2 => engine.disconnected(now, shard),
                3..=6 => engine.connected(now, shard),
                7 => {
                    held.maps += 1;
                    let shards = 1 + peer.dice.below(u64::from(SHARDS)) as u16;
                    engine.set_routes(now, routes(held.maps, shards, held.maps));
                }
                8 => engine.renew_client(now, ClientId::new(3 + peer.dice.below(3) as u32)),
                _ => engine.close(now),
            }
        }
        _ => {}
    }
}

#[test]
fn no_answer_and_no_call_brings_the_engine_down() {
    for seed in seeds() {
        let mut world = world_with(SHARDS, EngineConfig::default(), seed);
        world.host.engine.set_clock_error(world.now, Duration::from_millis(3));
        let mut peer =
            Peer { dice: Seed(seed).dice(), seen: Vec::new(), txns: Vec::new(), now: BEGIN };
        let mut held = Held { maps: 1, ..Held::default() };
        for _ in 0..STEPS {
            call(&mut world, &mut peer, &mut held);
            while let Some((shard, bytes)) = world.host.engine.shards_mut().next_dirty() {
                let bytes = std::mem::take(bytes);
                for frame in Frames::new(&bytes) {
                    peer.seen.push((frame.unwrap().envelope().request.get(), shard));
                }
            }
            let client = world.host.engine.client();
            peer.txns.push(TxnId::new(client, Sequence::new(1 + peer.dice.below(30))));
            for _ in 0..peer.dice.below(4) {
                let frame = peer.frame();
                let _ = world.host.engine.deliver_batch(peer.now, &frame);
            }
            peer.now = match peer.dice.below(40) {
                0 => peer.now.saturating_add(Duration::from_secs(2)),
                1 => peer.now.saturating_sub(Duration::from_millis(3)),
                _ => peer.now.saturating_add(Duration::from_micros(500)),
            };
            world.host.engine.tick(peer.now);
            if peer.dice.below(3) == 0 {
                while world.host.engine.next_done().is_some() {}
            }
            if world.host.engine.shards().wants_arrival() {
                world.host.engine.shards_mut().arrived(peer.now);
            }
        }
    }
}
