//! The Redis serialization protocol: commands in, replies out.
//!
//! [`CommandParser`] finds commands in a receive buffer, incrementally; arguments are ranges into
//! that buffer. [`ReplyWriter`] appends replies in RESP2 or RESP3. Error texts are Redis's own,
//! because clients match on them. Source: docs/redis.md; the protocol as Redis 7 speaks it.
//! Deliberately absent: what commands mean.

mod parse;
mod reply;

pub use parse::{Args, Command, CommandParser, Parsed, ProtocolError, RespLimits};
pub use reply::{Protocol, ReplyWriter};
