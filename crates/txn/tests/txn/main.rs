//! Golden scripts and random runs of participants and coordinators, with a store, a log and a
//! network made of maps.

#![allow(clippy::unwrap_used, missing_docs, unreachable_pub, reason = "a test")]

mod check;
mod hostile;
mod late;
mod locks;
mod random;
mod scripts;
mod stage;
