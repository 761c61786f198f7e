//! What was handed to the log and is not durable yet.

use std::collections::VecDeque;

use timestone_types::Epoch;
use timestone_wal::BatchNumber;

use super::input::Ticket;

/// What becomes durable.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Persisted {
    /// A batch, of this epoch's primary.
    Batch { number: BatchNumber, epoch: Epoch },
    /// A promise.
    Promise(Epoch),
    /// The table of this epoch.
    Table(Epoch),
    /// That everything before is void.
    Emptied,
}

/// See the module.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Persisting {
    last: Ticket,
    waiting: VecDeque<(Ticket, Persisted)>,
}

impl Persisting {
    /// The ticket of what is handed over now.
    pub(super) fn push(&mut self, what: Persisted) -> Ticket {
        self.last = Ticket(self.last.0 + 1);
        self.waiting.push_back((self.last, what));
        self.last
    }

    /// The next of what is durable up to a ticket.
    pub(super) fn pop(&mut self, through: Ticket) -> Option<Persisted> {
        assert!(through <= self.last, "only what was handed over becomes durable");
        self.waiting.pop_front_if(|(ticket, _)| *ticket <= through).map(|(_, what)| what)
    }

    /// Whether this is not durable yet.
    pub(super) fn holds(&self, what: Persisted) -> bool {
        self.waiting.iter().any(|&(_, one)| one == what)
    }
}
