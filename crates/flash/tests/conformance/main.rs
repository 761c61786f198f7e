//! One suite that every device passes ([`rules`]), and what is particular to the file
//! ([`file`]), to the medium in memory ([`memory`]), to the emulated device ([`emulated`]) and to zones ([`zoned`]).

#![expect(clippy::unwrap_used, reason = "a test says what is wrong by where it panics")]

mod driver;
mod emulated;
mod file;
mod memory;
mod rules;
mod zoned;
