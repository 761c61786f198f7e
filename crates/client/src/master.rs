//! What a client asks the master, through any server, and what it has learned of keyspaces.
//!
//! ```text
//!   create, list, drop, look up ─► MasterAsk ─► any server ─► MasterReply ─► KnownKeyspaces
//!                                                                                │
//!   may a commit be acknowledged at once? ◄── external_wait of its keyspaces ◄───┘
//! ```
//! What it does not do: make handles, or clear what a dropped keyspace holds; those are
//! [`LocalDb`](crate::LocalDb)'s.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use timestone_cluster::{
    ClusterError, ExternalMode, Keyspace, KeyspaceName, KeyspaceOptions, MasterAnswer,
    MasterCommand,
};
use timestone_session::SessionError;
use timestone_types::KeyspaceId;
use timestone_types::limits::DEFAULT_DEADLINE;
use timestone_wire::{
    Envelope, ErrorCode, ErrorReply, Frame, Kind, MasterAsk, MasterReply, Message, RequestId,
};

use crate::event_loop::Core;
use crate::local::{to_frame, to_unit};
use crate::operation::Operation;
use crate::{Error, Result};

/// What this client has heard of keyspaces.
pub(crate) struct KnownKeyspaces {
    /// Whether commits are acknowledged only when the clock's error bound has passed (`external =
    /// wait`). The default keyspace never waits.
    external_waits: RefCell<BTreeMap<KeyspaceId, bool>>,
}

impl KnownKeyspaces {
    /// It knows the default keyspace.
    pub(crate) fn new() -> Self {
        let external_waits = RefCell::new(BTreeMap::from([(KeyspaceId::DEFAULT, false)]));
        Self { external_waits }
    }

    /// Whether a keyspace was created with `external = wait`; `None` while this client has neither
    /// created nor listed nor looked it up.
    pub(crate) fn external_wait(&self, keyspace: KeyspaceId) -> Option<bool> {
        self.external_waits.borrow().get(&keyspace).copied()
    }

    /// Remembers what the options of a keyspace mean for handles on it.
    fn note(&self, keyspace: &Keyspace) {
        let waits = keyspace.options.external == ExternalMode::Wait;
        self.external_waits.borrow_mut().insert(keyspace.id, waits);
    }
}

/// The master, asked on behalf of a handle.
pub(crate) struct Master<'a> {
    core: &'a Rc<Core>,
    deadline: Duration,
}

impl<'a> Master<'a> {
    /// Answers are waited for as long as the deadline of a handle says.
    pub(crate) fn new(core: &'a Rc<Core>, deadline: Option<Duration>) -> Self {
        Self { core, deadline: deadline.unwrap_or(DEFAULT_DEADLINE) }
    }

    /// Asks the master, through any server.
    pub(crate) async fn ask(&self, command: &MasterCommand) -> Result<MasterAnswer> {
        let op = self.core.ops.borrow_mut().open();
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        let envelope = Envelope { request: RequestId::new(op.0), ..Envelope::default() };
        MasterAsk { command: &bytes }.encode(&envelope, &mut self.core.to_server.borrow_mut());
        let answer = Operation::waiting(self.core, op, to_frame);
        let is_change = matches!(
            command,
            MasterCommand::CreateKeyspace { .. } | MasterCommand::DropKeyspace { .. }
        );
        match self.within(answer).await {
            // What the master refuses, it says; but it may not know, either.
            Ok(answer) => read_answer(&answer).map_err(|error| match error.code() {
                ErrorCode::UnknownOutcome if is_change => error.of_unknown_change(),
                // Whatever became of a question, it may be asked again.
                ErrorCode::UnknownOutcome => error.of_question(),
                _ => error,
            }),
            Err(error) if is_change => Err(error.of_lost_change()),
            Err(error) => Err(error),
        }
    }

    /// What an operation yields, unless the deadline comes first.
    async fn within<T>(&self, mut operation: Operation<T>) -> Result<T> {
        let timer = self.core.timer(self.core.now().saturating_add(self.deadline));
        let mut over = Operation::waiting(self.core, timer, to_unit);
        std::future::poll_fn(|context| match Pin::new(&mut operation).poll(context) {
            Poll::Pending => Pin::new(&mut over)
                .poll(context)
                .map(|_| Err(SessionError::DeadlineExceeded.into())),
            ready => ready,
        })
        .await
    }

    /// Creates a keyspace.
    pub(crate) async fn create_keyspace(
        &self,
        name: &str,
        options: KeyspaceOptions,
    ) -> Result<Keyspace> {
        let name = KeyspaceName::new(name).map_err(|error| bad_keyspace(&error))?;
        match self.ask(&MasterCommand::CreateKeyspace { name, options }).await? {
            MasterAnswer::Created(keyspace) => {
                self.core.keyspaces.note(&keyspace);
                Ok(keyspace)
            }
            _ => Err(misunderstood()),
        }
    }

    /// All keyspaces, by ascending id.
    pub(crate) async fn keyspaces(&self) -> Result<Vec<Keyspace>> {
        match self.ask(&MasterCommand::ListKeyspaces).await? {
            MasterAnswer::Keyspaces(list) => {
                list.iter().for_each(|keyspace| self.core.keyspaces.note(keyspace));
                Ok(list)
            }
            _ => Err(misunderstood()),
        }
    }

    /// Drops a keyspace, whatever it holds; tells which one had the name.
    pub(crate) async fn drop_keyspace(&self, name: &str) -> Result<KeyspaceId> {
        let wanted = KeyspaceName::new(name).map_err(|error| bad_keyspace(&error))?;
        match self.ask(&MasterCommand::DropKeyspace { name: wanted }).await? {
            MasterAnswer::Dropped { id } => Ok(id),
            _ => Err(misunderstood()),
        }
    }

    /// The id of a keyspace, as the master knows it now: a name may be another keyspace's than before.
    pub(crate) async fn keyspace_id(&self, name: &str) -> Result<KeyspaceId> {
        let list = self.keyspaces().await?;
        let found =
            list.iter().find(|keyspace| keyspace.name.as_str() == name).map(|keyspace| keyspace.id);
        let unknown = || {
            let message = format!("there is no keyspace {name:?}");
            Error::new(
                ErrorCode::KeyspaceUnknown,
                message,
                "create it with `timestone keyspace create`",
            )
        };
        found.ok_or_else(unknown)
    }

    /// Finds out whether commits in a keyspace wait for the clocks, for a handle that was made with
    /// an id alone.
    pub(crate) async fn learn_external_wait(&self, keyspace: KeyspaceId) -> Result<bool> {
        if let Some(known) = self.core.keyspaces.external_wait(keyspace) {
            return Ok(known);
        }
        self.keyspaces().await?;
        // One that does not exist makes no promise.
        Ok(*self.core.keyspaces.external_waits.borrow_mut().entry(keyspace).or_insert(false))
    }
}

fn read_answer(bytes: &[u8]) -> Result<MasterAnswer> {
    let frame = Frame::parse(bytes).map_err(|_| misunderstood())?;
    match frame.kind() {
        Kind::MasterReply => {
            let reply = MasterReply::decode(&frame).map_err(|_| misunderstood())?;
            reply.master_answer().map_err(|_| misunderstood())
        }
        Kind::ErrorReply => Err(ErrorReply::decode(&frame)
            .map_or_else(|_| misunderstood(), |reply| Error::of_reply(&reply))),
        _ => Err(misunderstood()),
    }
}

fn misunderstood() -> Error {
    Error::new(
        ErrorCode::Malformed,
        "the server's answer could not be read",
        "update the older side",
    )
}

pub(crate) fn bad_keyspace(error: &ClusterError) -> Error {
    Error::new(ErrorCode::BadArgument, error.to_string(), "")
}
