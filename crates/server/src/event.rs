//! Everything that passes between the stages of a process.

use std::sync::Arc;

use timestone_client::{ClientEvent, ClientInput};
use timestone_cluster::{ControlState, ShardMap};
use timestone_seda::{FrameBatch, FrameBatchEvent, NetCommand, NetEvent, StageId};
use timestone_types::ShardId;
use timestone_wal::BatchNumber;
use timestone_wire::Calls;

use timestone_shard::{LogAppend, LogShortage};

/// One event in a stage's queue.
#[derive(Debug)]
pub enum Event {
    /// Frames (or, for the gateway, raw bytes) from or to one connection.
    FrameBatch(FrameBatch),
    /// A connection opened, closed, or could not be made.
    Net(NetEvent),
    /// For a net stage.
    NetCommand(NetCommand),
    /// A shard's records of one turn, for the log.
    LogAppend(LogAppend),
    /// All of the receiving shard's batches up to and including this one survive a crash.
    LogDurable {
        /// The last durable batch.
        batch: BatchNumber,
    },
    /// A shard needs none of its batches below `keep_from` any more.
    LogRelease {
        /// The shard.
        shard: ShardId,
        /// The first batch that it still needs.
        keep_from: BatchNumber,
    },
    /// The logs of one stage can hand out none of the receiving shard's batches before this one at
    /// a recovery any more.
    LogRetained {
        /// The log stage.
        log: StageId,
        /// The oldest batch that it may hand out.
        from: BatchNumber,
    },
    /// The receiving shard shall append again what it still needs of its batches below this one.
    LogCopyForward {
        /// The first batch that is not meant.
        below: BatchNumber,
    },
    /// How much the receiving shards may still let in while a log cannot make its next file;
    /// `None`: it can again.
    LogRoom {
        /// The log stage.
        log: StageId,
        /// What it lacks.
        shortage: Option<LogShortage>,
    },
    /// A log failed for good: a shard whose log it is acknowledges no write any more.
    LogFailed {
        /// The log stage.
        log: StageId,
    },
    /// The shard map has changed.
    MapChanged(Arc<ShardMap>),
    /// For replicas: the configurations of shards have changed, or which of them have served.
    ConfigurationsChanged(Arc<ControlState>),
    /// For replicas: whether another one is to become primary of the receiving stage's shard, if it
    /// is the primary.
    HandOver {
        /// Whether that is wanted now.
        is_wanted: bool,
    },
    /// An embedded client's calls of a shard; then the same, with answers, for that client.
    Calls {
        /// The client's stage.
        reply_to: StageId,
        /// The calls.
        calls: Box<Calls>,
    },
    /// An embedded client shall look into the queues that other threads fill.
    Wake,
}

impl FrameBatchEvent for Event {
    fn from_net(event: NetEvent) -> Self {
        match event {
            NetEvent::FrameBatch(frame_batch) => Self::FrameBatch(frame_batch),
            other => Self::Net(other),
        }
    }

    fn from_command(command: NetCommand) -> Self {
        match command {
            NetCommand::Send(frame_batch) => Self::FrameBatch(frame_batch),
            other => Self::NetCommand(other),
        }
    }

    fn into_command(self) -> Result<NetCommand, Self> {
        match self {
            Self::FrameBatch(frame_batch) => Ok(NetCommand::Send(frame_batch)),
            Self::NetCommand(command) => Ok(command),
            other => Err(other),
        }
    }
}

impl ClientEvent for Event {
    fn wake() -> Self {
        Self::Wake
    }

    fn calls(calls: Box<Calls>, reply_to: StageId) -> Self {
        Self::Calls { reply_to, calls }
    }

    fn into_client(self) -> Result<ClientInput, Self> {
        match self {
            Self::Wake => Ok(ClientInput::Wake),
            Self::Calls { calls, .. } => Ok(ClientInput::Called(calls)),
            Self::Net(event) => Ok(ClientInput::Net(event)),
            Self::FrameBatch(frame_batch) => Ok(ClientInput::Replies(frame_batch)),
            other => Err(other),
        }
    }
}
