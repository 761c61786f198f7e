//! Snapshots at a backup: reads at or below its closed timestamp.
//!
//! ```text
//!   GetAtBackup ─┬─ at or below the closed timestamp ─► store ─┬─ at once ──────► Value
//!                │                                             └─ a page read ──► Value, in a later turn
//!                └─ not yet, or no backup here ─► refused: whoever asks goes to the primary
//! ```
//! Each batch of answers begins with the closed timestamp, so that clients know where a snapshot is to
//! lie; a `Ping` is answered with it, and refused as it is where nobody serves. No participant is asked: nothing is prepared at or below a closed timestamp, and nothing more
//! commits there. Expiry is judged as of the snapshot, as the primary does, whose time was later
//! when it closed the timestamp. Keyspaces in memory are not read: only the primary has them.
//!
//! Invariants: a request is answered once; what is collected while a page is read is not told.
//! Source: MILANA §4.6; docs/protocol/replication.md, rule P21.

use std::collections::BTreeMap;
use std::sync::Arc;

use timestone_clock::Clock;
use timestone_cluster::MapVersion;
use timestone_seda::{FrameBatch, Memory, ReplyAddress};
use timestone_store::{Lookup, ReadOutcome, ReadToken};
use timestone_types::{Epoch, Expiry, KeyRef, ShardId, Timestamp, Version};
use timestone_wire::{self as wire, Envelope, ErrorCode, ErrorReply, Frame, Frames, Kind, Message};

use super::Backup;
use crate::limits::MAX_BACKUP_READS;
use crate::requests::replies::Replies;
use crate::turn::Turn;

/// Tokens of these reads: requests have no place of this number, and count uses above it.
const TOKENS: u64 = 0xffff_fffe;

/// A read whose page is being read.
#[derive(Debug)]
struct WaitingRead {
    reply_to: ReplyAddress,
    envelope: Envelope,
    at: Timestamp,
}

/// What reads at backups have come to.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct BackupReadFigures {
    /// Reads that were answered.
    pub answered: u64,
    /// Reads that were refused: their clients asked the primary.
    pub refused: u64,
}

/// The reads of one replica's clients. It outlives what the replica is. See the module.
pub struct BackupReads {
    shard: ShardId,
    epoch: Epoch,
    map_version: MapVersion,
    replies: Replies,
    waiting: BTreeMap<ReadToken, WaitingRead>,
    tokens: u64,
    figures: BackupReadFigures,
}

/// What the store has found.
struct FoundRead<'a> {
    version: Version,
    expires_at: Expiry,
    value: Option<&'a [u8]>,
}

impl BackupReads {
    /// Nobody has read yet.
    #[must_use]
    pub const fn new(shard: ShardId, memory: Arc<Memory>, clock: Arc<dyn Clock>) -> Self {
        let (epoch, map_version) = (Epoch::ZERO, MapVersion::ZERO);
        let envelope = Envelope { shard, epoch, map_version, request: wire::RequestId::NONE };
        Self {
            shard,
            epoch,
            map_version,
            replies: Replies::new(memory, clock, envelope),
            waiting: BTreeMap::new(),
            tokens: 0,
            figures: BackupReadFigures { answered: 0, refused: 0 },
        }
    }

    /// Whether an event of the store is about such a read.
    pub(super) const fn is_token(token: ReadToken) -> bool {
        token.0 & 0xffff_ffff == TOKENS
    }

    /// What they have come to.
    #[must_use]
    pub const fn figures(&self) -> BackupReadFigures {
        self.figures
    }

    /// Answers name this epoch and version of the map from now on.
    pub fn set_map(&mut self, epoch: Epoch, map_version: MapVersion) {
        (self.epoch, self.map_version) = (epoch, map_version);
        let shard = self.shard;
        self.replies.set_envelope(Envelope { shard, epoch, map_version, ..Envelope::default() });
    }

    /// Whether nobody waits, and everything has left.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.replies.is_empty()
    }

    /// Frames of one connection. `backup`: what the replica is, if that is one. `refuse` answers
    /// what is no read at a backup.
    pub fn frames(
        &mut self,
        ctx: &mut Turn<'_>,
        mut backup: Option<&mut Backup>,
        frame_batch: FrameBatch,
        refuse: impl Fn(&Frame<'_>, &mut Vec<u8>),
    ) {
        let reply_to = frame_batch.reply_to;
        let mut has_told = false;
        for frame in Frames::new(&frame_batch.bytes) {
            let Ok(frame) = frame else { break };
            let wants_to_know = matches!(frame.kind(), Kind::GetAtBackup | Kind::Ping);
            if let Some(backup) = backup.as_deref().filter(|_| wants_to_know && !has_told) {
                has_told = true;
                self.tell_closed(ctx, reply_to, backup.closed());
            }
            if frame.kind() == Kind::GetAtBackup {
                self.get(ctx, backup.as_deref_mut(), reply_to, &frame);
            } else {
                refuse(&frame, self.replies.buffer(ctx, reply_to));
            }
        }
        ctx.finish_frame_batch(frame_batch);
    }

    /// Up to where this backup answers, before the answers of a batch.
    fn tell_closed(&mut self, ctx: &mut Turn<'_>, reply_to: ReplyAddress, at: Timestamp) {
        let (shard, epoch, map_version) = (self.shard, self.epoch, self.map_version);
        let envelope = Envelope { shard, epoch, map_version, ..Envelope::default() };
        wire::ClosedIs { through: 0, at }.encode(&envelope, self.replies.buffer(ctx, reply_to));
    }

    fn get(
        &mut self,
        ctx: &mut Turn<'_>,
        backup: Option<&mut Backup>,
        reply_to: ReplyAddress,
        frame: &Frame<'_>,
    ) {
        let envelope = frame.reply_envelope(self.epoch, self.map_version);
        let Ok(get) = wire::GetAtBackup::decode(frame) else {
            return self.refuse(ctx, reply_to, &envelope, "this read cannot be understood");
        };
        let Some(backup) = backup else {
            return self.refuse(ctx, reply_to, &envelope, "this server has no backup of the shard");
        };
        if get.keyspace.is_in_memory() {
            let words = "only the primary has keyspaces in memory";
            return self.refuse(ctx, reply_to, &envelope, words);
        }
        if get.at > backup.closed() {
            let words = "this backup has not come as far as this snapshot";
            return self.refuse(ctx, reply_to, &envelope, words);
        }
        if self.waiting.len() >= MAX_BACKUP_READS {
            let words = "this backup has too many reads waiting for its device";
            return self.refuse(ctx, reply_to, &envelope, words);
        }
        let token = ReadToken((self.tokens + 1) << 32 | TOKENS);
        let store = backup.replay.store_mut();
        let key = KeyRef::new(store.seed(), get.keyspace, get.key);
        match store.get_as_of(key, get.at, get.at, token) {
            Ok(Lookup::Present { version, expires_at, value }) => {
                let found = FoundRead { version, expires_at, value: Some(value) };
                self.answer(ctx, reply_to, &envelope, &found);
            }
            Ok(Lookup::Absent { version, expires_at }) => {
                let is_beside = !version.is_zero() && store.is_beside_fence(key, version);
                let version = if is_beside { Version::ZERO } else { version };
                self.answer(
                    ctx,
                    reply_to,
                    &envelope,
                    &FoundRead { version, expires_at, value: None },
                );
            }
            Ok(Lookup::Pending) => {
                self.tokens += 1;
                self.waiting.insert(token, WaitingRead { reply_to, envelope, at: get.at });
            }
            Err(error) => {
                let words = error.to_string();
                self.refuse(ctx, reply_to, &envelope, &words);
            }
        }
    }

    fn answer(
        &mut self,
        ctx: &mut Turn<'_>,
        reply_to: ReplyAddress,
        envelope: &Envelope,
        found: &FoundRead<'_>,
    ) {
        let &FoundRead { version, expires_at, value } = found;
        if value.is_some_and(|value| !self.replies.has_room(ctx, reply_to, value.len())) {
            let words = "too many answers are on their way to their clients";
            return self.refuse(ctx, reply_to, envelope, words);
        }
        self.figures.answered += 1;
        let (present, value) = (value.is_some(), value.unwrap_or_default());
        wire::Value { version, expires_at, prepared_before: false, present, value }
            .encode(envelope, self.replies.buffer(ctx, reply_to));
    }

    fn refuse(
        &mut self,
        ctx: &mut Turn<'_>,
        reply_to: ReplyAddress,
        envelope: &Envelope,
        words: &str,
    ) {
        self.figures.refused += 1;
        ErrorReply::new(ErrorCode::Unavailable, words)
            .encode(envelope, self.replies.buffer(ctx, reply_to));
    }

    /// Answers what the store has found meanwhile, and sends all answers. Called every turn.
    pub fn turn(&mut self, ctx: &mut Turn<'_>, backup: Option<&mut Backup>) {
        match backup {
            Some(backup) => {
                let mut found = std::mem::take(&mut backup.found);
                for (token, outcome) in found.drain(..) {
                    if let Some(waiting) = self.waiting.remove(&token) {
                        self.found(ctx, backup, &waiting, &outcome);
                    }
                    if let ReadOutcome::Present { value, .. } = outcome {
                        backup.replay.store_mut().recycle(value);
                    }
                }
                backup.found = found;
            }
            None => {
                let waiting = std::mem::take(&mut self.waiting);
                for WaitingRead { reply_to, envelope, .. } in waiting.into_values() {
                    let words = "this server has no backup of the shard any more";
                    self.refuse(ctx, reply_to, &envelope, words);
                }
            }
        }
        self.replies.flush(ctx);
    }

    fn found(
        &mut self,
        ctx: &mut Turn<'_>,
        backup: &Backup,
        waiting: &WaitingRead,
        outcome: &ReadOutcome,
    ) {
        let &WaitingRead { reply_to, ref envelope, at } = waiting;
        if at < backup.replay.store().watermark() {
            return self.refuse(ctx, reply_to, envelope, "the snapshot is too old");
        }
        match outcome {
            ReadOutcome::Present { version, expires_at, value } => {
                let (version, expires_at) = (*version, *expires_at);
                let found = FoundRead { version, expires_at, value: Some(value) };
                self.answer(ctx, reply_to, envelope, &found);
            }
            ReadOutcome::Absent { version, expires_at } => {
                let (version, expires_at) = (*version, *expires_at);
                self.answer(
                    ctx,
                    reply_to,
                    envelope,
                    &FoundRead { version, expires_at, value: None },
                );
            }
            ReadOutcome::Failed(error) => {
                let words = error.to_string();
                self.refuse(ctx, reply_to, envelope, &words);
            }
        }
    }
}
