//! A primary that was deposed, beside the one that has taken over.
//!
//! It has what it had when that happened. Nothing that it records counts any more, so no vote and no
//! acknowledgement leaves it; what rests on its own knowledge may leave, and may be wrong.

use timestone_types::{Epoch, Timestamp};
use timestone_wire as wire;
use wire::{ErrorCode, ErrorReply, Frame, Get, Kind, Message, ReadAt, TxnState, Verdict};

use crate::ReferenceShard;

/// What a deposed primary does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deposed {
    /// It is dead, stands still, or is cut off.
    Silent,
    /// It has noticed, and refuses everything with this code.
    Refuses(ErrorCode),
    /// It has not noticed.
    Unaware,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct OldPrimary {
    pub(crate) does: Deposed,
    shard: ReferenceShard,
    /// Snapshots below it are read.
    lease: Timestamp,
}

impl OldPrimary {
    pub(crate) fn new(shard: ReferenceShard, does: Deposed, lease: Timestamp) -> Self {
        Self { does, shard, lease }
    }

    /// The epoch in which it was primary.
    pub(crate) const fn epoch(&self) -> Epoch {
        self.shard.epoch
    }

    /// Appends what it answers.
    pub(crate) fn take(&mut self, now: Timestamp, frame: &Frame<'_>, out: &mut Vec<u8>) {
        let envelope = wire::Envelope {
            shard: self.shard.id,
            ..frame.reply_envelope(self.shard.epoch, frame.envelope().map_version)
        };
        match self.does {
            _ if frame.kind() == Kind::Report => {}
            Deposed::Silent => {}
            Deposed::Refuses(code) => {
                ErrorReply::new(code, "it is deposed").encode(&envelope, out);
            }
            Deposed::Unaware => self.answer(now, frame, &envelope, out),
        }
    }

    fn answer(
        &mut self,
        now: Timestamp,
        frame: &Frame<'_>,
        envelope: &wire::Envelope,
        out: &mut Vec<u8>,
    ) {
        match frame.kind() {
            Kind::Get => {
                let is_leased = matches!(
                    Get::decode(frame).unwrap().at, ReadAt::Snapshot(at) if at < self.lease
                );
                if is_leased {
                    self.shard.answer(now, frame.bytes(), true, out);
                }
            }
            // What it has forgotten grows with its clock, and no promise of it counts.
            Kind::Write => {
                let wire::Write { txn, commit, .. } = wire::Write::decode(frame).unwrap();
                let written = wire::Written {
                    txn,
                    commit,
                    verdict: Verdict::Later(commit.max(now).next()),
                    previous_present: false,
                    previous_version: timestone_types::Version::ZERO,
                    previous_expires_at: timestone_types::Expiry::NEVER,
                    previous_value: b"",
                };
                written.encode(envelope, out);
            }
            Kind::Prepare => {
                let wire::Prepare { txn, commit, .. } = wire::Prepare::decode(frame).unwrap();
                let verdict = Verdict::Later(commit.max(now).next());
                wire::Vote { txn, commit, verdict }.encode(envelope, out);
            }
            Kind::Status => {
                let txn = wire::Status::decode(frame).unwrap().txn;
                wire::StatusIs { txn, state: TxnState::Unknown }.encode(envelope, out);
            }
            Kind::Newest | Kind::Count | Kind::Scan => {
                self.shard.answer(now, frame.bytes(), true, out);
            }
            _ => {}
        }
    }
}
