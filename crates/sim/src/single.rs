//! Operations on one key, without a transaction: what a session does with a plan that one of them
//! can carry out.
//!
//! ```text
//!   plan: get, write ─► dice ─┬─► put · put that returns what was there · put if absent, if present
//!                             ├─► get, then put if value or version are still there
//!                             └─► a transaction after all
//!   plan: get, delete ─► delete · take
//! ```
//! What an operation looks at and what it writes are one step of the history: see
//! [`timestone_workload::check::check_single_keys`].

use timestone_client::{Condition, Mutation, Value};
use timestone_types::{Expiry, Timestamp};
use timestone_workload::history::{MicroOp, Seen};
use timestone_workload::{KeyIndex, Op, TxnPlan};

use crate::clock::EPOCH;

/// What an operation does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SingleChange {
    /// It reads.
    Nothing,
    /// It writes a value, which expires then, counted from the run's begin.
    Put { value: i64, until: Option<Timestamp> },
    /// It deletes.
    Delete,
}

/// What an operation looks at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Precondition {
    /// At nothing.
    Blind,
    /// At what is there, and tells.
    Tell,
    /// Whether something is there.
    IfAbsent,
    /// Whether nothing is.
    IfPresent,
    /// Whether the value that it read before is still there.
    IfValue,
    /// Whether the version is.
    IfVersion,
}

/// An operation on one key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Single {
    pub(crate) key: KeyIndex,
    pub(crate) change: SingleChange,
    pub(crate) look: Precondition,
}

/// The expiry of a value that is there until a moment of the run.
pub(crate) fn expiry_at(until: Timestamp) -> Expiry {
    Expiry::at(Timestamp::from_nanos(EPOCH.as_nanos() + until.as_nanos()))
}

/// Ways to carry a writing plan out, and one of them expires if anything does.
pub(crate) const WAYS: u64 = 12;

impl Single {
    /// What one operation can do of a plan. `way` is one of [`WAYS`]; `until` is when a value would
    /// expire.
    pub(crate) fn of(plan: &TxnPlan, way: u64, until: Option<Timestamp>) -> Option<Self> {
        let (key, change) = match plan.ops[..] {
            [Op::Get(key)] => {
                return Some(Self { key, change: SingleChange::Nothing, look: Precondition::Tell });
            }
            [Op::Get(_), Op::Delete(key)] => (key, SingleChange::Delete),
            [Op::Get(_), Op::Write { key, value }] => {
                (key, SingleChange::Put { value, until: until.filter(|_| way.is_multiple_of(3)) })
            }
            _ => return None,
        };
        let look = match (way, change) {
            (_, SingleChange::Delete) if way.is_multiple_of(2) => Precondition::Tell,
            (_, SingleChange::Delete) => Precondition::Blind,
            (0..=2, _) => Precondition::Blind,
            (3 | 4, _) => Precondition::Tell,
            (5, _) => Precondition::IfPresent,
            (6 | 7, _) => Precondition::IfAbsent,
            (8, _) => Precondition::IfVersion,
            (9 | 10, _) => Precondition::IfValue,
            _ => return None,
        };
        Some(Self { key, change, look })
    }

    /// Whether it reads the key first, to write only what replaces that.
    pub(crate) const fn reads_first(&self) -> bool {
        matches!(self.look, Precondition::IfValue | Precondition::IfVersion)
    }

    /// What must hold, `found` having been read first.
    pub(crate) fn condition<'a>(&self, found: Option<&'a Value>) -> Condition<'a> {
        match (self.look, found) {
            (Precondition::Blind | Precondition::Tell, _) => Condition::Always,
            (Precondition::IfAbsent, _)
            | (Precondition::IfValue | Precondition::IfVersion, None) => Condition::Absent,
            (Precondition::IfPresent, _) => Condition::Present,
            (Precondition::IfValue, Some(found)) => Condition::ValueIs(found),
            (Precondition::IfVersion, Some(found)) => Condition::VersionIs(found.version()),
        }
    }

    /// What it does to the key, `value` being the bytes that it puts.
    pub(crate) fn mutation<'a>(&self, value: &'a [u8]) -> Mutation<'a> {
        match self.change {
            SingleChange::Delete | SingleChange::Nothing => Mutation::Delete,
            SingleChange::Put { until, .. } => {
                Mutation::Put { value, expires_at: until.map_or(Expiry::NEVER, expiry_at) }
            }
        }
    }

    /// How a history tells it: what it saw, where it looked, and what it wrote, unless its
    /// condition did not hold.
    pub(crate) fn steps(&self, seen: Seen, took_place: bool) -> Vec<MicroOp> {
        let key = self.key;
        let mut steps = Vec::new();
        if self.look != Precondition::Blind {
            steps.push(MicroOp::Read { key, seen });
        }
        match self.change {
            _ if !took_place => {}
            SingleChange::Nothing => {}
            SingleChange::Delete => steps.push(MicroOp::Write { key, value: None }),
            SingleChange::Put { value, until: None } => {
                steps.push(MicroOp::Write { key, value: Some(value) })
            }
            SingleChange::Put { value, until: Some(until) } => {
                steps.push(MicroOp::WriteUntil { key, value, until })
            }
        }
        steps
    }
}
