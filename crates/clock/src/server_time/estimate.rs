//! What is known of the servers' clocks: an interval for each server, and what they agree on.
//!
//! ```text
//!   an answer ─► interval of one exchange ─┐
//!                                          ├─ intersection ─► interval of its server ─┐
//!   what was known, and the drift since ───┘      (none: the newer one alone)         ├─► what enough of them agree on
//!   other servers ────────────────────────────────────────────────────────────────────┘
//! ```
//! An offset is how far true time is ahead of the oscillator of this machine. An exchange bounds it by
//! Cristian's rule: the reading was made between sending and arrival. The reading is wrong by as
//! much as the server says of its clock; where nothing vouches for that, the server's own time
//! stands for the true one. Two answers of one server contradict each other when its clock, or the
//! oscillator, has moved by more than it should: then the older one says nothing any more. Nor does
//! it when the server takes back what it said of its clock.
//!
//! # Invariants
//! - While every reading is within what its server says, and the oscillator keeps its rate, the true
//!   offset lies in every server's interval, and in what they agree on.
//! - A minority of servers moves neither end of what is agreed on beyond what the others claim, once
//!   all were heard of; it never moves what is followed beyond that.
//! - Nothing is allocated after [`Estimate::new`].

use std::time::Duration;

use timestone_types::{Timestamp, is_planted};

use super::interval::{OffsetInterval, agreed};
use crate::BootTime;
use crate::discipline::{nanos_of, signed};
use crate::limits::{DRIFT_PPM, MAX_SERVERS, MIN_VOTERS, RECENT};

/// A server's number in its cluster.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ServerNumber(pub u32);

/// What one exchange told of a server's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exchange<'a, Moment = Timestamp> {
    /// Whose clock was read.
    pub server: ServerNumber,
    /// All servers of the cluster that there are to be heard of, in ascending order.
    pub servers: &'a [ServerNumber],
    /// When the first copy of the request was sent.
    pub sent: Moment,
    /// What the server's clock showed after it had read some copy of the request.
    pub reading: Timestamp,
    /// How far that may be from true time; `None` when nothing vouches for it.
    pub error: Option<Duration>,
}

impl Exchange<'_, BootTime> {
    /// The true offset when the answer had arrived at `received`; `None` for times that no exchange
    /// has.
    fn interval(&self, received: BootTime) -> Option<OffsetInterval> {
        let reading = i64::try_from(self.reading.as_nanos()).ok()?;
        let least = reading.checked_sub(signed(received.as_nanos()))?;
        let most = reading.checked_sub(signed(self.sent.as_nanos()))?;
        let took = received.since(self.sent);
        let error = self.error.map_or(0, |error| nanos_of(error).unsigned_abs());
        Some(OffsetInterval::new(least, most)?.widened(error.saturating_add(drift_ns(took))))
    }
}

/// The error bound of a clock that nobody sets grows by one part in this many: the kernel's by 500
/// ppm.
const WORSE_DIVISOR: u32 = 2_000;

/// How far an oscillator may be off after a span.
fn drift_ns(span: Duration) -> u64 {
    let drift = (span.as_nanos() * u128::from(DRIFT_PPM)).div_ceil(1_000_000);
    u64::try_from(drift).unwrap_or(u64::MAX)
}

/// Answers of one server: what they have in common at the time of the last one, and when the first
/// of them came.
#[derive(Clone, Copy, Debug)]
struct AnswersSince {
    interval: OffsetInterval,
    begun: BootTime,
}

/// What is known of one server's clock: from its last answer and two generations, so that none counts
/// for longer than [`RECENT`].
#[derive(Clone, Copy, Debug)]
struct HeardServer {
    number: ServerNumber,
    /// The true offset at `at`, by the last answer alone.
    last: OffsetInterval,
    /// By that one and those before it.
    young: AnswersSince,
    /// By those of the generation before.
    old: Option<AnswersSince>,
    at: BootTime,
    /// How wrong its clock is by what it said last; `None` when nothing vouches for it.
    error: Option<Duration>,
}

impl HeardServer {
    fn interval(&self, now: BootTime) -> OffsetInterval {
        let known = [Some(self.young), self.old].into_iter().flatten();
        let counts = known.filter(|generation| now.since(generation.begun) <= RECENT);
        let all = counts.fold(self.last, |all, generation| {
            all.intersection(generation.interval).unwrap_or(all)
        });
        all.widened(drift_ns(now.since(self.at)))
    }

    /// Takes another answer of this server, which is what is known if it contradicts the others.
    fn hear(&mut self, new: Self) {
        let both = self.interval(new.at).intersection(new.last);
        if both.is_none() || !self.is_confirmed(&new) || !self.is_recent(new.at) {
            *self = new;
            return;
        }
        let by_ns = drift_ns(new.at.since(self.at));
        let widened = |AnswersSince { interval, begun }: AnswersSince| {
            Some(AnswersSince { interval: interval.widened(by_ns), begun })
                .filter(|generation| new.at.since(generation.begun) <= RECENT)
        };
        let (young, old) = (widened(self.young), self.old.and_then(widened));
        *self = match young {
            Some(young) if new.at.since(young.begun) < RECENT / 2 => {
                let interval = young.interval.intersection(new.last).unwrap_or(new.last);
                Self { young: AnswersSince { interval, ..young }, old, ..new }
            }
            young => Self { old: young, ..new },
        };
        debug_assert!(self.young.begun <= self.at, "a generation that has yet to begin");
    }

    /// Whether it stands by what it said. Who says to be wrong by more than before, and by more than
    /// clocks get worse by themselves, has found out that it was.
    fn is_confirmed(&self, new: &Self) -> bool {
        match (self.error, new.error) {
            (Some(old), Some(new_error)) => {
                let passed = new.at.since(self.at);
                new_error <= old.saturating_add(old / 4).saturating_add(passed / WORSE_DIVISOR)
            }
            (old, new) => old == new,
        }
    }

    fn is_recent(&self, now: BootTime) -> bool {
        now.since(self.at) <= RECENT
    }
}

/// What servers agree on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Agreement {
    /// The true offset lies within.
    pub interval: OffsetInterval,
    /// What is followed: from the first to the last point that as many claim as must agree, one of
    /// whom is honest. The true offset may lie outside where not all were heard of.
    pub followed: OffsetInterval,
    /// How many servers say so.
    pub servers: usize,
    /// Whether something vouches for the clocks of all of them.
    pub is_vouched: bool,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Estimate {
    heard: Vec<HeardServer>,
    /// How many servers there are to be heard of.
    servers: usize,
}

impl Default for Estimate {
    fn default() -> Self {
        Self::new()
    }
}

impl Estimate {
    /// Nothing is known yet.
    #[must_use]
    pub fn new() -> Self {
        Self { heard: Vec::with_capacity(MAX_SERVERS), servers: 0 }
    }

    /// An answer has arrived.
    pub fn hear(&mut self, exchange: &Exchange<'_, BootTime>, received: BootTime) {
        debug_assert!(exchange.servers.is_sorted(), "they are looked up");
        self.servers = exchange.servers.len().clamp(1, MAX_SERVERS);
        self.forget_those_who_left(exchange);
        let Some(interval) = exchange.interval(received) else { return };
        let new = HeardServer {
            number: exchange.server,
            last: interval,
            young: AnswersSince { interval, begun: received },
            old: None,
            at: received,
            error: exchange.error,
        };
        if let Some(known) = self.entry(new) {
            known.hear(new);
        }
        debug_assert!(self.heard.len() <= MAX_SERVERS, "the table has grown");
    }

    /// A server that has left the map is asked no more, and has no vote.
    fn forget_those_who_left(&mut self, exchange: &Exchange<'_, BootTime>) {
        self.heard.retain(|known| {
            known.number == exchange.server || exchange.servers.binary_search(&known.number).is_ok()
        });
        debug_assert!(self.heard.len() <= MAX_SERVERS, "the table has grown");
    }

    /// Where a server is noted: its own entry, a new one, or that of one that is silent. `None`
    /// while there are enough others.
    fn entry(&mut self, new: HeardServer) -> Option<&mut HeardServer> {
        let own = self.heard.iter().position(|known| known.number == new.number);
        let place = own.or_else(|| {
            if self.heard.len() < MAX_SERVERS {
                self.heard.push(new);
                return Some(self.heard.len() - 1);
            }
            let silent = self.heard.iter().position(|known| !known.is_recent(new.at))?;
            self.heard[silent] = new;
            Some(silent)
        })?;
        self.heard.get_mut(place)
    }

    /// What the servers that were heard of lately agree on: all of them where there are fewer than
    /// [`MIN_VOTERS`], else most of those that there are. `None` when they do not, or when too few
    /// were heard of.
    #[must_use]
    pub fn agreed(&self, now: BootTime) -> Option<Agreement> {
        let recent = self.heard.iter().filter(|server| server.is_recent(now));
        let count = recent.clone().count();
        let votes = if self.servers < MIN_VOTERS { count } else { self.servers / 2 + 1 };
        if count == 0 || count < votes {
            return None;
        }
        // Those that were not heard of may all be honest.
        let honest = count.saturating_sub(self.servers.saturating_sub(votes)).clamp(1, votes);
        let intervals = recent.clone().map(|server| server.interval(now));
        let (interval, followed) = if is_planted!(BelievedLiar) {
            let last = recent.clone().max_by_key(|server| server.at)?.interval(now);
            (last, last)
        } else {
            let followed = agreed(intervals.clone(), votes)?;
            (agreed(intervals, honest)?, followed)
        };
        let agreeing =
            recent.filter(|server| server.interval(now).intersection(interval).is_some());
        let is_vouched = agreeing.clone().all(|server| server.error.is_some());
        Some(Agreement { interval, followed, servers: agreeing.count(), is_vouched })
    }
}
