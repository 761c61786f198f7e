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
//! job, which retries (see [`super::run`]).

use timestone_session::{
    Condition, Engine, Mutation, OpId, RequestOptions, SessionError, SessionId,
};
use timestone_types::{Expiry, HashSeed, Timestamp, hash_key};
use timestone_wire::resp::{Command, Protocol, ReplyWriter};

use super::command::Cmd;
use super::connection::ConnectionIndex;
use super::dispatch::Flow;
use super::failure::Failure;
use super::hot::Busy;
use super::inbox::Position;
use super::job::Operation;
use super::marks::{Mark, Marks, Touch};
use super::replies::{Asked, Replies, SlotId, Want};
use super::strings::{Life, Only, SetOptions};
use super::view::KEYSPACE;
use super::words::Args;

/// A command in its plainest form, in the receive buffer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Plain<'a> {
    /// `GET key`.
    Get(&'a [u8]),
    /// `SET key value`.
    Set(&'a [u8], &'a [u8]),
}

impl<'a> Plain<'a> {
    /// The plain form of a command, if it has one.
    #[inline]
    pub(super) fn of(command: &Command<'a>) -> Option<Self> {
        let &[a, b, c] = command.name() else { return None };
        match [a | 0x20, b | 0x20, c | 0x20] {
            [b'g', b'e', b't'] if command.len() == 2 => Some(Self::Get(command.arg(1)?)),
            [b's', b'e', b't'] if command.len() == 3 => {
                Some(Self::Set(command.arg(1)?, command.arg(2)?))
            }
            _ => None,
        }
    }

    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Get(_) => "get",
            Self::Set(..) => "set",
        }
    }
}

/// A write of one key.
#[derive(Clone, Copy, Debug)]
pub(super) struct OneWrite<'a> {
    pub(super) key: &'a [u8],
    pub(super) mutation: Mutation<'a>,
    pub(super) condition: Condition<'a>,
    pub(super) want: Want,
    /// Whether the answer needs the value that was there before.
    pub(super) previous: bool,
}

impl<'a> OneWrite<'a> {
    /// The write that a command is, if one request can do it.
    ///
    /// # Errors
    /// What the command answers instead.
    pub(super) fn of(cmd: Cmd, args: Args<'a>, now: Timestamp) -> Result<Option<Self>, Failure> {
        let delete = |want, previous| Self {
            key: args.get(1),
            mutation: Mutation::Delete,
            condition: Condition::Present,
            want,
            previous,
        };
        Ok(match cmd {
            Cmd::Set | Cmd::Setex | Cmd::Psetex | Cmd::Setnx | Cmd::Getset => {
                let (options, value_at) = SetOptions::of_relatives(cmd, args, now)?;
                Some(Self::set(cmd, args.get(1), args.get(value_at), options))
            }
            Cmd::Del | Cmd::Unlink if args.len() == 2 => Some(delete(Want::Count, false)),
            Cmd::Getdel => Some(delete(Want::Previous, true)),
            _ => None,
        })
    }

    fn set(cmd: Cmd, key: &'a [u8], value: &'a [u8], options: SetOptions) -> Self {
        let mutation = match options.life {
            Life::Kept => Mutation::PutKeepExpiry { value },
            life => Mutation::Put { value, expires_at: life.expiry(Expiry::NEVER) },
        };
        let condition = match options.only {
            Only::Always => Condition::Always,
            Only::Absent => Condition::Absent,
            Only::Present => Condition::Present,
        };
        let want = match () {
            () if cmd == Cmd::Setnx => Want::Count,
            () if options.get => Want::Previous,
            () => Want::Ok,
        };
        Self { key, mutation, condition, want, previous: options.get }
    }
}

/// What a fast command needs of its connection and of the gateway.
pub(super) struct Way<'a> {
    pub(super) engine: &'a mut Engine,
    pub(super) session: SessionId,
    pub(super) seed: HashSeed,
    pub(super) now: Timestamp,
    pub(super) index: ConnectionIndex,
    pub(super) protocol: Protocol,
    pub(super) position: Position,
    pub(super) replies: &'a mut Replies,
    pub(super) marks: &'a mut Marks,
    pub(super) busy: &'a mut Busy,
}

impl Way<'_> {
    /// Sends a plain command on its way.
    #[inline]
    pub(super) fn start(&mut self, plain: Plain<'_>) -> Flow {
        match plain {
            Plain::Get(key) => self.read(key),
            Plain::Set(key, value) => {
                let mutation = Mutation::Put { value, expires_at: Expiry::NEVER };
                let (condition, want) = (Condition::Always, Want::Ok);
                self.write(Cmd::Set, &OneWrite { key, mutation, condition, want, previous: false })
            }
        }
    }

    #[inline]
    fn hash(&self, key: &[u8]) -> u64 {
        hash_key(self.seed, KEYSPACE, key).0
    }

    #[inline]
    fn read(&mut self, key: &[u8]) -> Flow {
        let mark = Mark::new(self.hash(key), Touch::Read);
        if self.marks.blocks(mark) {
            return Flow::Wait;
        }
        let slot = self.replies.expect(Want::Value, self.protocol, self.position);
        self.replies.note_asked(slot, Asked { cmd: Cmd::Get, at: self.now });
        let op = OpId(Operation::Fast(self.index, slot).pack());
        let options = RequestOptions::default();
        let asked =
            self.engine.get_latest(self.now, self.session, KEYSPACE, key, options, op).map(drop);
        self.asked(slot, mark, asked);
        Flow::Taken
    }

    /// Sends a write of one key on its way, unless others of that key are under way: then it
    /// belongs into the key's queue.
    #[inline]
    pub(super) fn write(&mut self, cmd: Cmd, write: &OneWrite<'_>) -> Flow {
        let hash = self.hash(write.key);
        if self.busy.is_busy(hash) {
            return Flow::Elsewhere;
        }
        let mark = Mark::new(hash, Touch::Write);
        if self.marks.blocks(mark) {
            return Flow::Wait;
        }
        let slot = self.replies.expect(write.want, self.protocol, self.position);
        self.replies.note_asked(slot, Asked { cmd, at: self.now });
        let op = OpId(Operation::Fast(self.index, slot).pack());
        let options =
            RequestOptions { return_previous: write.previous, ..RequestOptions::default() };
        let OneWrite { key, mutation, condition, .. } = *write;
        let asked = self
            .engine
            .write_if(self.now, self.session, KEYSPACE, key, mutation, condition, options, op)
            .map(drop);
        if self.asked(slot, mark, asked) {
            self.busy.enter(hash);
            self.replies.note_entered(slot, Some(hash));
        }
        Flow::Taken
    }

    #[inline]
    fn asked(&mut self, slot: SlotId, mark: Mark, asked: Result<(), SessionError>) -> bool {
        match asked {
            Ok(()) => {
                self.marks.add(mark, slot);
                true
            }
            Err(error) => {
                let failure = Failure::from(error);
                let protocol = self.protocol;
                self.replies.answer(slot, |out| {
                    ReplyWriter::new(out, protocol).error_bytes(failure.bytes())
                });
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::command::find;
    use crate::gateway::words::Words;

    fn write_of(text: &str) -> Result<Option<String>, Failure> {
        let mut words = Words::default();
        text.split(' ').for_each(|word| words.push(word.as_bytes()));
        let spec = find(words.word(0)).unwrap();
        let write = OneWrite::of(spec.cmd, words.all(), Timestamp::from_nanos(1_000_000))?;
        Ok(write.map(|write| {
            let OneWrite { mutation, condition, want, previous, .. } = write;
            let what = match mutation {
                Mutation::Put { expires_at, .. } if expires_at.is_never() => "put".to_owned(),
                Mutation::Put { expires_at, .. } => format!("put until {}", expires_at.timestamp()),
                Mutation::PutKeepExpiry { .. } => "put and keep".to_owned(),
                Mutation::Delete => "delete".to_owned(),
            };
            format!("{what}, {condition:?}, {want:?}, {previous}")
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
