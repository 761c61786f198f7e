//! Requests, to a shard (the header names it) or to a server.

use timestone_cluster::{ClusterError, MasterCommand, ServerId, ShardMap};
use timestone_types::limits::PLACED_WITHIN;
use timestone_types::{ClientId, Expiry, KeyspaceId, Sequence, Timestamp, TxnId};

use crate::layout::{ClusterBytes, CursorBytes, KeyBytes, ValueBytes, message};
use crate::list::{Shards, ShardsCodec};
use crate::prepare::{BodyCodec, PrepareBody};
use crate::value::{Condition, ConditionCodec, ReadAt, WriteAction};

message! {
    /// Reads one key. Answered by [`crate::Value`]. Several keys are several frames of one batch of
    /// frames.
    Get<'a> {
        fixed {
            /// The key's keyspace.
            keyspace: KeyspaceId,
            /// Which version.
            at: ReadAt,
            /// Who asks, so that its own session is known to be alive.
            client: ClientId,
            /// Whether to wait (bounded) for the decision of a prepared write, instead of answering
            /// `prepared_before`.
            wait: bool,
        }
        variable {
            /// The key.
            key: &'a [u8] => KeyBytes,
        }
    }
}

message! {
    /// Reads one key of a snapshot at a backup of its shard. Answered by [`crate::Value`], or refused
    /// where the backup has not come so far: then the primary is to be asked. Of version
    /// [`crate::READS_AT_BACKUPS`] of the protocol.
    GetAtBackup<'a> {
        fixed {
            /// The key's keyspace.
            keyspace: KeyspaceId,
            /// The snapshot.
            at: Timestamp,
        }
        variable {
            /// The key.
            key: &'a [u8] => KeyBytes,
        }
    }
}

message! {
    /// Asks a participant to validate and prepare its part of a transaction. Answered by
    /// [`crate::Vote`].
    ///
    /// [`crate::PrepareWriter`] writes one straight from read and write sets; this struct is for
    /// decoding, and for sending a body again with a later commit timestamp.
    Prepare<'a> {
        fixed {
            /// The transaction.
            txn: TxnId,
            /// Its begin.
            begin: Timestamp,
            /// Its commit timestamp in this round; votes are for (transaction, commit).
            commit: Timestamp,
            /// The shard is the only participant: validate, make durable, apply, answer.
            single: bool,
            /// Whether to wait (bounded) for the decision of a prepared write, instead of refusing.
            wait: bool,
        }
        variable {
            /// All participants; the same list in every round.
            participants: Shards<'a> => ShardsCodec,
            /// Reads and writes of this participant.
            body: PrepareBody<'a> => BodyCodec,
        }
    }
}

message! {
    /// Writes one key, under a condition: a transaction of its own. Answered by [`crate::Written`].
    Write<'a> {
        fixed {
            /// Identifies the write for ever: a repeat with the same id gets the first answer.
            txn: TxnId,
            /// When it was first asked.
            begin: Timestamp,
            /// The version's timestamp, unless the answer is `Later`; the lowest one with
            /// [`WriteAction::PutFrom`].
            commit: Timestamp,
            /// The key's keyspace.
            keyspace: KeyspaceId,
            /// What to do.
            action: WriteAction,
            /// Whether to wait (bounded) for the decision of a prepared write, instead of refusing.
            wait: bool,
            /// Whether the answer carries the previous value.
            return_previous: bool,
            /// When the value expires; ignored by the actions that do not set it.
            expires_at: Expiry,
        }
        variable {
            /// What must hold of the latest version.
            condition: Condition<'a> => ConditionCodec,
            /// The key.
            key: &'a [u8] => KeyBytes,
            /// The value; empty for a delete.
            value: &'a [u8] => ValueBytes,
        }
    }
}

impl Write<'_> {
    /// The highest timestamp at which it may take place: its own, or a little above it where it
    /// leaves the choice to the shard ([`WriteAction::PutFrom`]).
    #[must_use]
    #[inline]
    pub fn placed_by(&self) -> Timestamp {
        let depends = self.condition != Condition::Always || self.return_previous;
        match self.action {
            WriteAction::PutFrom if !depends => self.commit.saturating_add(PLACED_WITHIN),
            _ => self.commit,
        }
    }
}

message! {
    /// Tells a participant the decision. Answered by [`crate::DecideAck`] when it is durable.
    Decide {
        fixed {
            /// The transaction.
            txn: TxnId,
            /// The commit timestamp, or [`Timestamp::ZERO`] for abort; see [`Decide::decision`].
            commit: Timestamp,
        }
    }
}

impl Decide {
    /// A decision: commit at a timestamp, or abort.
    #[must_use]
    pub fn new(txn: TxnId, decision: Option<Timestamp>) -> Self {
        Self { txn, commit: decision.unwrap_or(Timestamp::ZERO) }
    }

    /// The decision: commit at a timestamp, or `None` for abort.
    #[must_use]
    pub fn decision(&self) -> Option<Timestamp> {
        (self.commit != Timestamp::ZERO).then_some(self.commit)
    }
}

message! {
    /// Asks what became of a transaction, changing nothing. Answered by [`crate::StatusIs`].
    Status {
        fixed {
            /// The transaction.
            txn: TxnId,
        }
    }
}

message! {
    /// Asks a participant to end a transaction as its backup coordinator. Answered by
    /// [`crate::StatusIs`] once it is decided.
    Terminate<'a> {
        fixed {
            /// The transaction.
            txn: TxnId,
            /// Its begin.
            begin: Timestamp,
            /// The highest commit timestamp that was tried.
            commit: Timestamp,
        }
        variable {
            /// All its participants.
            participants: Shards<'a> => ShardsCodec,
        }
    }
}

message! {
    /// From a backup coordinator to a participant: say where you stand, and stay there. Answered by
    /// [`crate::FreezeAnswer`].
    Freeze {
        fixed {
            /// The transaction.
            txn: TxnId,
            /// Its begin, so that a participant that never saw it knows how long to remember the
            /// abort.
            begin: Timestamp,
        }
    }
}

message! {
    /// From a participant that was told to commit and has no prepare: the write set, please.
    /// Answered by [`crate::WriteSet`].
    FetchWriteSet {
        fixed {
            /// The transaction.
            txn: TxnId,
            /// Its commit timestamp.
            commit: Timestamp,
        }
    }
}

message! {
    /// From whoever resolved a transaction: all participants have acknowledged, its record may go.
    /// Not answered.
    Forget {
        fixed {
            /// The transaction.
            txn: TxnId,
        }
    }
}

message! {
    /// A client's report to every shard, at least every 100 ms, aggregated over its sessions. With a
    /// request number it is answered by [`crate::WatermarkIs`], without one it is not.
    Report {
        fixed {
            /// The client.
            client: ClientId,
            /// The lowest timestamp that it may still use.
            watermark: Timestamp,
            /// Every request of it up to this one has been answered and need not be remembered.
            acked: Sequence,
            /// What the client's clock shows: one that is far behind holds nothing back.
            now: Timestamp,
            /// The client ends: it holds the watermark back no longer, and will not ask again.
            closing: bool,
        }
    }
}

message! {
    /// Reads some keys of the shard's part of a keyspace, in the order of their hashes. Answered by
    /// [`crate::ScanPage`].
    Scan {
        fixed {
            /// The keyspace.
            keyspace: KeyspaceId,
            /// Where to go on; 0 to begin.
            cursor: u64,
            /// How many entries at most (1 to [`crate::limits::MAX_SCAN_ENTRIES`]).
            limit: u32,
            /// The snapshot.
            at: Timestamp,
            /// Who asks.
            client: ClientId,
            /// Whether the entries carry values, or keys and versions only.
            with_values: bool,
        }
    }
}

message! {
    /// Counts the keys of the shard's part of a keyspace that are visible in a snapshot. Answered
    /// by [`crate::Counted`].
    Count {
        fixed {
            /// The keyspace.
            keyspace: KeyspaceId,
            /// The snapshot.
            at: Timestamp,
            /// Who asks.
            client: ClientId,
        }
    }
}

message! {
    /// Asks a shard to read all that its store has on its device, and to verify every checksum. A
    /// walk that is under way is joined. Answered by [`crate::Scrubbed`] when it has ended.
    Scrub {
        fixed {}
    }
}

message! {
    /// Asks how new the shard's part of a keyspace is. A snapshot at or above every shard's answer
    /// shows whatever was acknowledged before the question, whoever acknowledged it by whatever
    /// clock. Answered by [`crate::NewestIs`].
    Newest {
        fixed {
            /// The keyspace.
            keyspace: KeyspaceId,
        }
    }
}

message! {
    /// Asks a shard for its statistics. Answered by [`crate::StatusList`].
    ShardStats {
        fixed {}
    }
}

message! {
    /// Asks a server for its state and statistics. Answered by [`crate::StatusList`].
    NodeStatus {
        fixed {}
    }
}

message! {
    /// Asks a server for the map it has. Answered by [`crate::MapIs`].
    MapPull {
        fixed {}
    }
}

message! {
    /// Brings a server a map; it keeps the newer one. Answered by [`crate::Done`].
    MapPush<'a> {
        fixed {}
        variable {
            /// The map, as `ShardMap::encode` writes it.
            map: &'a [u8] => ClusterBytes,
        }
    }
}

impl MapPush<'_> {
    /// Reads the map.
    ///
    /// # Errors
    /// What `ShardMap::decode` refuses.
    pub fn shard_map(&self) -> Result<ShardMap, ClusterError> {
        ShardMap::decode(self.map)
    }
}

message! {
    /// Asks the master: registrations, the map, keyspaces. Any server passes it on. Answered by
    /// [`crate::MasterReply`].
    MasterAsk<'a> {
        fixed {}
        variable {
            /// The command, as `MasterCommand::encode` writes it.
            command: &'a [u8] => ClusterBytes,
        }
    }
}

impl MasterAsk<'_> {
    /// Reads the command.
    ///
    /// # Errors
    /// What `MasterCommand::decode` refuses.
    pub fn master_command(&self) -> Result<MasterCommand, ClusterError> {
        MasterCommand::decode(self.command)
    }
}

message! {
    /// Asks for a sign of life. Answered by [`crate::Done`]; by a backup with [`crate::ClosedIs`] and a
    /// refusal.
    Ping {
        fixed {}
    }
}

message! {
    /// Tells another server which replicas this one has and how they stand. Answered by
    /// [`crate::HeartbeatAck`].
    Heartbeat<'a> {
        fixed {}
        variable {
            /// The heartbeat, as `timestone_cluster::Heartbeat::encode` writes it.
            beat: &'a [u8] => ClusterBytes,
        }
    }
}

message! {
    /// Asks the primary of a shard for the next part of a checkpoint of it. Answered by
    /// [`crate::CheckpointPart`].
    CheckpointAsk<'a> {
        fixed {
            /// Who asks.
            from: ServerId,
        }
        variable {
            /// The cursor of the part before it; empty at the beginning.
            after: &'a [u8] => CursorBytes,
        }
    }
}

message! {
    /// Asks the primary of a shard for a timestamp at which backups may answer snapshots. Answered by
    /// [`crate::ClosedIs`], if at all.
    ClosedAsk {
        fixed {
            /// Who asks.
            from: ServerId,
        }
    }
}
