//! Redis clients: what they send, what they are answered, and the history of it.
//!
//! ```text
//!   Generator ─► Activity ─► Request ── resp::encode ─► a connection ─► resp::parse ─► Reply
//!                               └────────────► Call (request, when, answer) ◄────────────┘
//!                                                └─► RedisHistory ─► check::check_redis, EDN
//! ```
//! A request is a command, or a MULTI with its commands up to EXEC, which is one call: its answer
//! is EXEC's. Everything is text without spaces, quotes and control characters, so that a history
//! is read by people as well.
//!
//! What is deliberately absent: sockets and time, which belong to whoever runs the clients.

mod edn;
mod generate;
mod record;
mod resp;

use std::fmt;
use std::time::Duration;

use timestone_types::Timestamp;

pub use edn::{is_redis, read};
pub use generate::{Activity, Generator, Mix};
pub use record::{CallRef, RedisRecorder, write};
pub use resp::{encode, parse};

/// A command: its name and its arguments.
pub type Arguments = Vec<String>;

/// Longest text that is told in words as it is.
const TOLD: usize = 64;

/// A text for people: of a large one the beginning, and how much more there is.
fn told(text: &str) -> std::borrow::Cow<'_, str> {
    match text.get(..TOLD / 4).filter(|_| text.len() > TOLD) {
        Some(begin) => format!("{begin}…+{}", text.len() - begin.len()).into(),
        None => text.into(),
    }
}

fn told_words(words: &[String], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (at, word) in words.iter().enumerate() {
        write!(f, "{}{}", if at > 0 { " " } else { "" }, told(word))?;
    }
    Ok(())
}

/// What a connection asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// One command.
    One(Arguments),
    /// The commands between MULTI and EXEC.
    Transaction(Vec<Arguments>),
}

impl Request {
    /// A command from its text.
    #[must_use]
    pub fn command(text: &str) -> Self {
        Self::One(text.split(' ').map(str::to_owned).collect())
    }

    /// The page of a scan that begins at a cursor, with these words behind it.
    #[must_use]
    pub fn scan(cursor: &str, words: &[String]) -> Self {
        let head = ["SCAN".to_owned(), cursor.to_owned()].into_iter();
        Self::One(head.chain(words.iter().cloned()).collect())
    }

    /// Whether it changes nothing.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        let reads = |name: &str| {
            matches!(
                name,
                "GET"
                    | "MGET"
                    | "EXISTS"
                    | "STRLEN"
                    | "PTTL"
                    | "KEYS"
                    | "SCAN"
                    | "DBSIZE"
                    | "WATCH"
            )
        };
        match self {
            Self::One(_) => reads(self.name()),
            Self::Transaction(commands) => {
                commands.iter().all(|words| words.first().is_some_and(|name| reads(name)))
            }
        }
    }

    /// How many answers it has: MULTI, what it queues and EXEC have one each.
    #[must_use]
    pub const fn answers(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Transaction(commands) => commands.len() + 2,
        }
    }

    /// The name of the command, in capitals as it is sent.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::One(words) => words.first().map_or("", String::as_str),
            Self::Transaction(_) => "EXEC",
        }
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(words) => told_words(words, f),
            Self::Transaction(commands) => {
                f.write_str("MULTI")?;
                for words in commands {
                    f.write_str("; ")?;
                    told_words(words, f)?;
                }
                f.write_str("; EXEC")
            }
        }
    }
}

/// What a command is answered, in RESP2.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// `+OK` and its kin.
    Status(String),
    /// `-ERR …`.
    Error(String),
    /// `:5`.
    Integer(i64),
    /// A bulk string.
    Text(String),
    /// Nothing: an absent value, or an EXEC that was not carried out.
    Nil,
    /// An array.
    Array(Vec<Reply>),
}

impl Reply {
    /// Whether it says that nobody knows what became of the command.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Error(text) if text.starts_with("UNKNOWN"))
    }

    /// Of a page of a scan: the cursor of the next one, if there is one.
    #[must_use]
    pub fn next_cursor(&self) -> Option<&str> {
        let Self::Array(parts) = self else { return None };
        match parts.first() {
            Some(Self::Text(cursor)) if cursor != "0" => Some(cursor),
            _ => None,
        }
    }

    /// Whether it says that the command was not carried out.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Error(_)) && !self.is_unknown()
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(text) | Self::Error(text) => f.write_str(text),
            Self::Integer(number) => write!(f, "{number}"),
            Self::Text(text) => write!(f, "\"{}\"", told(text)),
            Self::Nil => f.write_str("nil"),
            Self::Array(replies) => {
                f.write_str("[")?;
                for (at, reply) in replies.iter().enumerate() {
                    write!(f, "{}{reply}", if at > 0 { " " } else { "" })?;
                }
                f.write_str("]")
            }
        }
    }
}

/// A request, when it was sent, and what came of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Call {
    /// Whose it is: every connection has a number of its own, which none has after it.
    pub connection: u64,
    /// What was asked.
    pub request: Request,
    /// When it was sent, counted from the run's begin.
    pub invoked: Timestamp,
    /// When what was answered. None: the connection broke, and nobody knows what became of it.
    pub answered: Option<(Timestamp, Reply)>,
}

/// All calls of a run, in the order in which they were sent; those of one connection stand in the
/// order of its pipeline.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RedisHistory {
    /// How far the server's clock may have been wrong about a span of time: keys expire so much
    /// sooner or later.
    pub clock_slack: Duration,
    /// The calls.
    pub calls: Vec<Call>,
}

impl RedisHistory {
    /// What was asked and answered up to a moment; what came later was never asked, or never
    /// answered.
    #[must_use]
    pub fn until(&self, at: Timestamp) -> Self {
        let cut = |call: &Call| Call {
            answered: call.answered.clone().filter(|(answered, _)| *answered <= at),
            ..call.clone()
        };
        let calls = self.calls.iter().filter(|call| call.invoked <= at).map(cut).collect();
        Self { clock_slack: self.clock_slack, calls }
    }
}
