//! Commands that one request to one shard answers: they go from the receive buffer into the
//! engine's frame, with no copy between.
//!
//! ```text
//!   GET                               → get_latest
//!   SET [NX|XX] [GET] [EX…|KEEPTTL]   → write_if(put, absent | present)      SETEX PSETEX SETNX GETSET likewise
//!   DEL, UNLINK of one key, GETDEL    → write_if(delete, present)
//! ```
//! They are linearizable, and a write happens exactly once. When the shard refuses one because of a
//! transaction under way, the command is read again from the connection's inbox and goes on as a
//! job, which retries (see [`crate::jobs::run`]).

use timestone_session::{Condition, Mutation, SessionError};
use timestone_types::{Expiry, Timestamp};
use timestone_wire::resp::{Command, Protocol, ReplyWriter};

use crate::backend::Backend;
use crate::commands::arguments::Args;
use crate::commands::strings::{SetCondition, SetOptions, TtlChange};
use crate::commands::table::Cmd;
use crate::connection::ConnectionIndex;
use crate::connection::inbox::{CommandPart, StreamPosition};
use crate::connection::key_access::{AccessKind, KeyAccess, KeyAccesses};
use crate::connection::replies::{CommandStart, ReplyId, ReplyKind, ReplyQueue};
use crate::direct::{Direct, DirectCommand, DirectRoute};
use crate::dispatch::Disposition;
use crate::failure::Failure;
use crate::jobs::job::Operation;
use crate::jobs::key_queues::BusyKeys;
use crate::limits::MAX_IN_FLIGHT;

/// A command in its plainest form, in the receive buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SimpleCommand<'a> {
    /// `GET key`.
    Get(Argument<'a>),
    /// `SET key value`.
    Set(Argument<'a>, Argument<'a>),
}

/// An argument of a command, and where that is in what its connection has sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Argument<'a> {
    bytes: &'a [u8],
    /// Not known of what came as a line of text.
    part: Option<CommandPart>,
}

impl<'a> Argument<'a> {
    #[inline]
    fn of(command: &Command<'a>, index: usize) -> Option<Self> {
        let part = command.place(index).and_then(CommandPart::new);
        Some(Self { bytes: command.arg(index)?, part })
    }
}

impl<'a> SimpleCommand<'a> {
    /// The simple form of a command, if it has one.
    #[inline]
    pub(crate) fn of(command: &Command<'a>) -> Option<Self> {
        let &[a, b, c] = command.name() else { return None };
        match [a | 0x20, b | 0x20, c | 0x20] {
            [b'g', b'e', b't'] if command.len() == 2 => Some(Self::Get(Argument::of(command, 1)?)),
            [b's', b'e', b't'] if command.len() == 3 => {
                Some(Self::Set(Argument::of(command, 1)?, Argument::of(command, 2)?))
            }
            _ => None,
        }
    }

    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Get(_) => "get",
            Self::Set(..) => "set",
        }
    }
}

/// A write of one key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OneWrite<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) mutation: Mutation<'a>,
    pub(crate) condition: Condition<'a>,
    pub(crate) reply_kind: ReplyKind,
    /// Whether the answer needs the value that was there before.
    pub(crate) previous: bool,
}

impl<'a> OneWrite<'a> {
    /// The write that a command is, if one request can do it.
    ///
    /// # Errors
    /// What the command answers instead.
    pub(crate) fn of(cmd: Cmd, args: Args<'a>, now: Timestamp) -> Result<Option<Self>, Failure> {
        let delete = |reply_kind, previous| Self {
            key: args.get(1),
            mutation: Mutation::Delete,
            condition: Condition::Present,
            reply_kind,
            previous,
        };
        Ok(match cmd {
            Cmd::Set | Cmd::Setex | Cmd::Psetex | Cmd::Setnx | Cmd::Getset => {
                let (options, value_at) = SetOptions::of_relatives(cmd, args, now)?;
                Some(Self::set(cmd, args.get(1), args.get(value_at), options))
            }
            Cmd::Del | Cmd::Unlink if args.len() == 2 => Some(delete(ReplyKind::Count, false)),
            Cmd::Getdel => Some(delete(ReplyKind::Previous, true)),
            _ => None,
        })
    }

    fn set(cmd: Cmd, key: &'a [u8], value: &'a [u8], options: SetOptions) -> Self {
        let mutation = match options.ttl {
            TtlChange::Keep => Mutation::PutKeepExpiry { value },
            ttl => Mutation::Put { value, expires_at: ttl.expiry(Expiry::NEVER) },
        };
        let condition = match options.only {
            SetCondition::Always => Condition::Always,
            SetCondition::Absent => Condition::Absent,
            SetCondition::Present => Condition::Present,
        };
        let reply_kind = match () {
            () if cmd == Cmd::Setnx => ReplyKind::Count,
            () if options.get => ReplyKind::Previous,
            () => ReplyKind::Ok,
        };
        Self { key, mutation, condition, reply_kind, previous: options.get }
    }
}

/// What a fast command needs of its connection and of the gateway.
pub(crate) struct FastPath<'a> {
    pub(crate) backend: &'a mut Backend,
    pub(crate) now: Timestamp,
    pub(crate) index: ConnectionIndex,
    pub(crate) protocol: Protocol,
    pub(crate) position: StreamPosition,
    pub(crate) replies: &'a mut ReplyQueue,
    pub(crate) accesses: &'a mut KeyAccesses,
    pub(crate) busy: &'a mut BusyKeys,
    pub(crate) direct: &'a mut Direct,
}

impl FastPath<'_> {
    /// So many commands of one connection may be under way, and this one.
    #[inline]
    fn assert_room(&self) {
        debug_assert!(self.replies.len() < MAX_IN_FLIGHT, "its connection has to wait");
    }

    /// Sends a simple command to the backend.
    #[inline]
    pub(crate) fn start(&mut self, command: SimpleCommand<'_>) -> Disposition {
        self.assert_room();
        match command {
            SimpleCommand::Get(key) => {
                if let Some(part) = key.part
                    && let Some(route) = self.direct.route(self.backend, key.bytes, None)
                {
                    return self.call(Cmd::Get, route, (key.bytes, part), None);
                }
                self.read(key.bytes)
            }
            SimpleCommand::Set(
                Argument { bytes: key, part },
                Argument { bytes: value, part: at },
            ) => {
                if let (Some(part), Some(at)) = (part, at)
                    && let Some(route) = self.direct.route(self.backend, key, Some(value.len()))
                {
                    return self.call(Cmd::Set, route, (key, part), Some(at));
                }
                let mutation = Mutation::Put { value, expires_at: Expiry::NEVER };
                let (condition, reply_kind) = (Condition::Always, ReplyKind::Ok);
                let write = OneWrite { key, mutation, condition, reply_kind, previous: false };
                self.write(Cmd::Set, &write)
            }
        }
    }

    /// Expects the answer of a command; `None` where it comes behind others of its key.
    #[inline]
    fn expect(&mut self, cmd: Cmd, access: KeyAccess, kind: ReplyKind) -> Option<ReplyId> {
        if self.accesses.blocks(access) {
            return None;
        }
        let id = self.replies.expect(kind, self.protocol, self.position);
        self.replies.note_start(id, CommandStart { cmd, at: self.now });
        Some(id)
    }

    /// Collects a command whose shard is called: with `value`, a write.
    #[inline]
    fn call(
        &mut self,
        cmd: Cmd,
        route: DirectRoute,
        (key, part): (&[u8], CommandPart),
        value: Option<CommandPart>,
    ) -> Disposition {
        self.assert_room();
        let hash = self.backend.hash(key);
        let (kind, reply_kind) = match value {
            Some(_) => (AccessKind::Write, ReplyKind::Ok),
            None => (AccessKind::Read, ReplyKind::Value),
        };
        if value.is_some() && self.busy.is_busy(hash) {
            return Disposition::Dispatch;
        }
        let access = KeyAccess::new(hash, kind);
        let Some(reply_id) = self.expect(cmd, access, reply_kind) else {
            return Disposition::Dispatch;
        };
        let (connection, position) = (self.index, self.position);
        self.accesses.add(access, reply_id);
        let key = part;
        let command = DirectCommand { route, connection, reply_id, position, key, value, hash };
        self.direct.collect(command);
        Disposition::Taken
    }

    #[inline]
    fn read(&mut self, key: &[u8]) -> Disposition {
        self.assert_room();
        let access = KeyAccess::new(self.backend.hash(key), AccessKind::Read);
        let Some(id) = self.expect(Cmd::Get, access, ReplyKind::Value) else {
            return Disposition::Dispatch;
        };
        let asked = self.backend.get_latest(self.now, key, Operation::Fast(self.index, id));
        self.asked(id, access, asked);
        Disposition::Taken
    }

    /// Sends a write of one key to the backend, unless others of that key are under way: then it
    /// belongs behind them.
    #[inline]
    pub(crate) fn write(&mut self, cmd: Cmd, write: &OneWrite<'_>) -> Disposition {
        self.assert_room();
        let hash = self.backend.hash(write.key);
        if self.busy.is_busy(hash) {
            return Disposition::Dispatch;
        }
        let access = KeyAccess::new(hash, AccessKind::Write);
        let Some(id) = self.expect(cmd, access, write.reply_kind) else {
            return Disposition::Dispatch;
        };
        let operation = Operation::Fast(self.index, id);
        let OneWrite { key, mutation, condition, previous, .. } = *write;
        let asked = self.backend.write_if(self.now, key, mutation, condition, previous, operation);
        if self.asked(id, access, asked) {
            self.busy.enter(hash);
            self.replies.note_entered(id, Some(hash));
        }
        Disposition::Taken
    }

    #[inline]
    fn asked(&mut self, id: ReplyId, access: KeyAccess, asked: Result<(), SessionError>) -> bool {
        match asked {
            Ok(()) => {
                debug_assert!(self.replies.pending(id).is_some(), "its answer is expected");
                self.accesses.add(access, id);
                true
            }
            Err(error) => {
                let failure = Failure::from(error);
                let protocol = self.protocol;
                self.replies
                    .answer(id, |out| ReplyWriter::new(out, protocol).error_bytes(failure.bytes()));
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::arguments::ArgumentBuffer;
    use crate::commands::table::find;

    fn write_of(text: &str) -> Result<Option<String>, Failure> {
        let mut arguments = ArgumentBuffer::default();
        text.split(' ').for_each(|word| arguments.push(word.as_bytes()));
        let spec = find(arguments.argument(0)).unwrap();
        let write = OneWrite::of(spec.cmd, arguments.all(), Timestamp::from_nanos(1_000_000))?;
        Ok(write.map(|write| {
            let OneWrite { mutation, condition, reply_kind, previous, .. } = write;
            let what = match mutation {
                Mutation::Put { expires_at, .. } if expires_at.is_never() => "put".to_owned(),
                Mutation::Put { expires_at, .. } => format!("put until {}", expires_at.timestamp()),
                Mutation::PutKeepExpiry { .. } => "put and keep".to_owned(),
                Mutation::Delete => "delete".to_owned(),
            };
            format!("{what}, {condition:?}, {reply_kind:?}, {previous}")
        }))
    }

    #[test]
    fn commands_become_single_writes() {
        let cases = [
            ("SET k v", "put, Always, Ok, false"),
            ("SET k v NX", "put, Absent, Ok, false"),
            ("SET k v XX GET", "put, Present, Previous, true"),
            ("SET k v KEEPTTL", "put and keep, Always, Ok, false"),
            ("SET k v PX 5", "put until 6000000, Always, Ok, false"),
            ("SETEX k 2 v", "put until 2001000000, Always, Ok, false"),
            ("SETNX k v", "put, Absent, Count, false"),
            ("GETSET k v", "put, Always, Previous, true"),
            ("DEL k", "delete, Present, Count, false"),
            ("GETDEL k", "delete, Present, Previous, true"),
        ];
        for (command, expected) in cases {
            assert_eq!(write_of(command).unwrap().as_deref(), Some(expected), "{command}");
        }
        assert_eq!(write_of("DEL a b"), Ok(None));
        assert_eq!(write_of("INCR a"), Ok(None));
        assert_eq!(write_of("SET k v EX 0"), Err(Failure::expire_time("set")));
    }
}
