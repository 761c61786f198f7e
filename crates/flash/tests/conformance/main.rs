//! One suite that every device passes ([`rules`]), and what is particular to the file ([`file`])
//! and to the medium in memory ([`memory`]).

#![expect(clippy::unwrap_used, reason = "a test says what is wrong by where it panics")]

mod driver;
mod file;
mod memory;
mod rules;
