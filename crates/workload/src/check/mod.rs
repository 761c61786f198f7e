//! Checkers: from a history to what no execution of the promised isolation could have produced.
//!
//! ```text
//!   History ─► Transactions ─┬─► list_append ─► order of versions ─┐
//!                            ├─► register    ─► order of versions ─┴─► Graph ─► cycles ─┐
//!                            ├─► linear      ─► an order of each key's operations                 ─┤
//!                            ├─► bank        ─► totals                                  ├─► CheckResult
//!                            ├─► durability, last ─► against what is there in the end  ─┤
//!                            └─► quiescence  ─► liveness, bounds                       ─┘
//!            └─► losses ─► the history without what a server without a log may lose ─► the same
//! ```
//! The dependency graph and the names of its cycles are Adya's (1999), their inference from
//! histories is Elle's (Kingsbury, Alvaro 2020). Everything takes time linear in the history, and
//! more only where something is wrong.
//!
//! # Invariants
//! - No false alarm: an order is inferred only where the history proves it. What is unknown may
//!   have happened or not.
//! - A cycle is reported once, under the weakest promise that it breaks, and as short as it is
//!   found.

mod bank;
mod conflicts;
mod cycles;
mod durability;
mod graph;
mod last;
mod linear;
mod list_append;
mod losses;
mod orders;
mod redis;
mod register;
mod story;
mod transactions;
mod verdict;

pub use bank::check_bank;
pub use durability::check_durability;
pub use last::check_last_values;
pub use linear::check_single_keys;
pub use list_append::check_list_append;
pub use losses::{KeptHistory, Loss, history_until};
pub use quiescence::{Calm, Quantity, check_bounds, check_left_over, check_liveness};
pub use redis::check_redis;
pub use register::check_register;
pub use verdict::{Anomaly, AnomalyKind, CheckResult, Promise};

#[cfg(test)]
mod anomalies;
#[cfg(test)]
mod model;
#[cfg(test)]
mod oracle;
mod quiescence;
#[cfg(test)]
mod testing;
