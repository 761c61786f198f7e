//! What is on its way to the log, and what follows when it is durable.
//!
//! ```text
//!   log(intent, pending) ──▶ Output::Log { ticket } ─ ─ ─ the log ─ ─ ─▶ Durable { through } ──▶ pending, in order
//! ```
//!
//! Invariants: tickets rise by one; what follows a ticket happens once, behind what follows every
//! lower one.
//!
//! It does not know what a record says.

use std::collections::VecDeque;

use timestone_types::{AbortReason, Timestamp, TxnId};

use super::input::{Ticket, Token};
use super::output::{LogIntent, Output};
use super::table::{Asker, Handle};

/// What is waited for in the log, and what follows.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pending {
    Nothing,
    Promise { record: Handle, txn: TxnId, asker: Asker },
    AbortedPromise { record: Handle, txn: TxnId, asker: Asker, reason: AbortReason },
    Committed { record: Handle, txn: TxnId, token: Option<Token> },
    Aborted { txn: TxnId, then: AfterAbort },
    Bound { bound: Timestamp, watermark: Timestamp },
}

/// What follows when an abort is durable.
#[derive(Clone, Copy, Debug)]
pub(super) enum AfterAbort {
    Vote { asker: Asker, reason: AbortReason },
    Acknowledge(Token),
    Nothing,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Tickets {
    pending: VecDeque<(Ticket, Pending)>,
    last: Ticket,
}

impl Tickets {
    /// Asks for a record; `pending` follows when it is durable.
    pub(super) fn log(&mut self, intent: LogIntent, pending: Pending, out: &mut Vec<Output>) {
        self.last = Ticket(self.last.0 + 1);
        debug_assert!(self.pending.back().is_none_or(|last| last.0 < self.last), "tickets rise");
        let ticket = self.last;
        self.pending.push_back((ticket, pending));
        out.push(Output::Log { ticket, intent });
    }

    /// What follows next, now that everything up to `through` is durable.
    #[inline]
    pub(super) fn next_durable(&mut self, through: Ticket) -> Option<Pending> {
        let &(ticket, pending) = self.pending.front()?;
        if ticket > through {
            return None;
        }
        self.pending.pop_front();
        Some(pending)
    }

    /// The last ticket that was given out.
    #[cfg(test)]
    pub(super) const fn last(&self) -> Ticket {
        self.last
    }
}
