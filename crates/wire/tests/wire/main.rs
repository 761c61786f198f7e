//! The wire seen from outside: layouts byte by byte, round trips, damaged input, and RESP against a
//! naive reader.
#![allow(clippy::unwrap_used, reason = "tests")]

mod damage;
mod golden;
mod replica;
mod resp;
mod round_trip;
mod sample;
