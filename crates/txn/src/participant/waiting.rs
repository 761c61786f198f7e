//! Everything that waits: for another transaction's decision, for the durable read bound, for the
//! leases of earlier primaries, for durability, for a deadline.
//!
//! ```text
//!   reads and scans ─▶ record.waiters.reads  ┐
//!   prepares        ─▶ record.waiters.others ┴─ woken when the record frees its keys: reads first, then prepares
//!   anything        ─▶ behind_bound             woken when a higher read bound is durable
//!   about now       ─▶ for_present              woken when no earlier primary may answer any more
//!   questions       ─▶ asking                   woken when the transaction that they are about is durable or decided
//! ```
//!
//! To wake means `Output::Again`: the stage submits the input again with fresh lookups, so nothing
//! stale is remembered here but a token and a deadline. Invariant: each parked token is woken
//! exactly once. Bounded by [`MAX_WAITING`].

use core::cmp::Reverse;
use std::collections::BinaryHeap;

use timestone_types::{Timestamp, TxnId};

use super::input::{Token, Wait};
use super::output::Output;
use super::table::{Ends, Holder, Record, Table, Waiters};
use crate::limits::MAX_WAITING;

const END: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Waiter {
    token: Token,
    deadline: Timestamp,
    owner: Holder,
    reads: bool,
    before: u32,
    after: u32,
    generation: u32,
    active: bool,
}

/// What a deadline is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Timer {
    /// A waiter has waited long enough: its index and generation.
    Waiter(u32, u32),
    /// A point in time is reached that an input has waited for, or it has waited long
    /// enough: its token, and when that is.
    Passed(Token, Timestamp),
    /// Another attempt at bringing a transaction to its end.
    Effort(TxnId),
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    waiters: Vec<Waiter>,
    free: Vec<u32>,
    timers: BinaryHeap<Reverse<(Timestamp, Timer)>>,
    behind_bound: Vec<(Token, Wait)>,
    for_present: Vec<(Token, Wait)>,
    /// How many wait for a point in time.
    for_time: usize,
    asking: Vec<(TxnId, Token)>,
}

fn ends(record: &mut Record, reads: bool) -> &mut Ends {
    if reads { &mut record.waiters.reads } else { &mut record.waiters.others }
}

impl Waiting {
    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.waiters.len() - self.free.len()
            + self.behind_bound.len()
            + self.for_present.len()
            + self.asking.len()
            + self.for_time
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() >= MAX_WAITING
    }

    /// What holds between changes.
    fn assert_sound(&self) {
        assert!(self.free.len() <= self.waiters.len(), "what is free was in use");
        debug_assert!(
            self.timers.len() >= self.waiters.len() - self.free.len(),
            "whoever waits has a deadline"
        );
    }

    /// Lets an input wait for the record in `slot` until `deadline`.
    pub(super) fn park(
        &mut self,
        table: &mut Table,
        slot: Holder,
        reads: bool,
        token: Token,
        deadline: Timestamp,
    ) {
        let ends = ends(table.record_mut(slot), reads);
        let waiter = Waiter {
            token,
            deadline,
            owner: slot,
            reads,
            before: ends.tail,
            after: END,
            generation: 0,
            active: true,
        };
        let index = match self.free.pop() {
            Some(index) => {
                let generation = self.waiters[index as usize].generation;
                self.waiters[index as usize] = Waiter { generation, ..waiter };
                index
            }
            None => {
                self.waiters.push(waiter);
                self.waiters.len() as u32 - 1
            }
        };
        if ends.tail == END {
            ends.head = index;
        } else {
            self.waiters[ends.tail as usize].after = index;
        }
        ends.tail = index;
        let generation = self.waiters[index as usize].generation;
        self.timers.push(Reverse((deadline, Timer::Waiter(index, generation))));
        self.assert_sound();
    }

    /// Lets an input wait for a point in time, no longer than until `deadline`.
    pub(super) fn park_until(&mut self, token: Token, at: Timestamp, deadline: Timestamp) {
        self.for_time += 1;
        self.set_timer(at.min(deadline), Timer::Passed(token, deadline));
        debug_assert!(self.timers.len() >= self.for_time, "whoever waits has a timer");
    }

    /// The point in time is reached.
    pub(super) fn passed(
        &mut self,
        now: Timestamp,
        token: Token,
        deadline: Timestamp,
        out: &mut Vec<Output>,
    ) {
        assert!(self.for_time > 0, "who is woken has waited");
        self.for_time -= 1;
        let wait = if now < deadline { Wait::Until(deadline) } else { Wait::No };
        out.push(Output::Again { token, wait });
    }

    fn release(&mut self, index: u32) {
        let waiter = &mut self.waiters[index as usize];
        assert!(waiter.active, "a waiter is woken once");
        waiter.active = false;
        waiter.generation = waiter.generation.wrapping_add(1);
        self.free.push(index);
    }

    /// Wakes everybody who waits for this record: reads before prepares, each in the order in which
    /// they came.
    pub(super) fn wake(&mut self, record: &mut Record, out: &mut Vec<Output>) {
        for reads in [true, false] {
            let mut index = core::mem::replace(ends(record, reads), Ends::EMPTY).head;
            while index != END {
                let Waiter { token, deadline, after, .. } = self.waiters[index as usize];
                out.push(Output::Again { token, wait: Wait::Until(deadline) });
                self.release(index);
                index = after;
            }
        }
        assert!(record.waiters == Waiters::NONE, "nobody waits for it any more");
        self.assert_sound();
    }

    /// A waiter has waited long enough: it is answered around what stands in its way.
    pub(super) fn expire(
        &mut self,
        table: &mut Table,
        index: u32,
        generation: u32,
        out: &mut Vec<Output>,
    ) {
        let waiter = self.waiters[index as usize];
        if !waiter.active || waiter.generation != generation {
            return;
        }
        let ends = ends(table.record_mut(waiter.owner), waiter.reads);
        if waiter.before == END {
            ends.head = waiter.after;
        } else {
            self.waiters[waiter.before as usize].after = waiter.after;
        }
        if waiter.after == END {
            ends.tail = waiter.before;
        } else {
            self.waiters[waiter.after as usize].before = waiter.before;
        }
        self.release(index);
        out.push(Output::Again { token: waiter.token, wait: Wait::No });
        self.assert_sound();
    }

    pub(super) fn set_timer(&mut self, at: Timestamp, timer: Timer) {
        self.timers.push(Reverse((at, timer)));
        debug_assert!(self.next_timer() <= Some(at), "the earliest is the next");
    }

    pub(super) fn next_timer(&self) -> Option<Timestamp> {
        self.timers.peek().map(|first| first.0.0)
    }

    /// The next timer that is due.
    pub(super) fn pop_due(&mut self, now: Timestamp) -> Option<Timer> {
        if self.next_timer()? > now {
            return None;
        }
        let Reverse((at, timer)) = self.timers.pop()?;
        debug_assert!(self.next_timer().is_none_or(|next| next >= at), "the earliest is the next");
        Some(timer)
    }

    pub(super) fn park_behind_bound(&mut self, token: Token, wait: Wait) {
        debug_assert!(!self.is_full(), "there is room for whoever may wait");
        self.behind_bound.push((token, wait));
    }

    pub(super) fn wake_behind_bound(&mut self, out: &mut Vec<Output>) {
        debug_assert!(self.behind_bound.len() <= MAX_WAITING, "so many may wait, and no more");
        for (token, wait) in self.behind_bound.drain(..) {
            out.push(Output::Again { token, wait });
        }
    }

    /// Lets an input wait until no earlier primary may answer any more.
    pub(super) fn park_for_present(&mut self, token: Token, wait: Wait) {
        debug_assert!(!self.is_full(), "there is room for whoever may wait");
        self.for_present.push((token, wait));
    }

    pub(super) fn wake_for_present(&mut self, out: &mut Vec<Output>) {
        debug_assert!(self.for_present.len() <= MAX_WAITING, "so many may wait, and no more");
        for (token, wait) in self.for_present.drain(..) {
            out.push(Output::Again { token, wait });
        }
    }

    /// Lets a question wait until the state of `txn` is durable or decided. The caller marks the
    /// transaction as asked about.
    pub(super) fn park_asking(&mut self, txn: TxnId, token: Token) {
        debug_assert!(!self.is_full(), "there is room for whoever may wait");
        self.asking.push((txn, token));
    }

    pub(super) fn wake_asking(&mut self, txn: TxnId, out: &mut Vec<Output>) {
        self.asking.retain(|&(about, token)| {
            if about == txn {
                out.push(Output::Again { token, wait: Wait::No });
            }
            about != txn
        });
        debug_assert!(self.asking.iter().all(|&(about, _)| about != txn), "nobody asks any more");
    }
}
