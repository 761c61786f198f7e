//! How a runtime's events carry what a client stage is told; and the events of a client that has
//! its runtime to itself.

use timestone_seda::{FrameBatch, FrameBatchEvent, NetCommand, NetEvent, StageId};
use timestone_wire::Calls;

/// What a client stage is told.
#[derive(Debug)]
pub enum ClientInput {
    /// Look into the queues that other threads fill.
    Wake,
    /// From a net stage: connections, and frames of servers.
    Net(NetEvent),
    /// Frames of a stage of the same process.
    Replies(FrameBatch),
    /// Calls, with their answers.
    Called(Box<Calls>),
}

/// Events that can be told to a client stage. In a process with a server, the server's events
/// implement it: shards answer a client stage as they answer a net stage, with a
/// [`NetCommand::Send`], which becomes [`ClientInput::Replies`].
pub trait ClientEvent: FrameBatchEvent {
    /// The event that makes a client stage look into its queues.
    fn wake() -> Self;

    /// The event that brings calls to the stage of a shard. It sends the same event back to
    /// `reply_to`, with answers.
    fn calls(calls: Box<Calls>, reply_to: StageId) -> Self;

    /// Unwraps what concerns a client stage; anything else sent to one is given back, and is a
    /// mistake of the sender.
    ///
    /// # Errors
    /// The event itself.
    fn into_client(self) -> Result<ClientInput, Self>;
}

/// The events of a client over TCP.
#[derive(Debug)]
pub enum ClientStageEvent {
    /// Look into the queues that other threads fill.
    Wake,
    /// From the net stage.
    Net(NetEvent),
    /// For the net stage.
    Command(NetCommand),
    /// For a shard of the same process, or from it.
    Calls {
        /// Where they come from.
        reply_to: StageId,
        /// The calls.
        calls: Box<Calls>,
    },
}

impl FrameBatchEvent for ClientStageEvent {
    fn from_net(event: NetEvent) -> Self {
        Self::Net(event)
    }

    fn from_command(command: NetCommand) -> Self {
        Self::Command(command)
    }

    fn into_command(self) -> Result<NetCommand, Self> {
        if let Self::Command(command) = self { Ok(command) } else { Err(self) }
    }
}

impl ClientEvent for ClientStageEvent {
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
            Self::Command(NetCommand::Send(frame_batch)) => Ok(ClientInput::Replies(frame_batch)),
            Self::Command(_) => Err(self),
        }
    }
}
