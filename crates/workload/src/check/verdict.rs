//! What a checker says.

use std::collections::BTreeMap;
use std::fmt;

use crate::limits::MAX_REPORTED;

/// What the store promises about the order of transactions, from weaker to stronger; each includes
/// those before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Promise {
    /// Some serial order explains everything.
    Serializable,
    /// And in it each process's transactions stand as it ran them.
    Session,
    /// And whatever of two read-write transactions that conflict directly (on one key, one of them
    /// writing) had completed stands before the one that was invoked later.
    Conflicts,
    /// And whatever had completed stands before whatever was invoked later: strict serializability.
    RealTime,
}

impl Promise {
    /// All, from weaker to stronger.
    pub const ALL: [Self; 4] = [Self::Serializable, Self::Session, Self::Conflicts, Self::RealTime];

    /// The promise of this name, as [`Self::name`] spells it.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|promise| promise.name() == name)
    }

    /// The name on the command line and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Serializable => "serializable",
            Self::Session => "session",
            Self::Conflicts => "conflicts",
            Self::RealTime => "real-time",
        }
    }
}

/// What can be wrong.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum AnomalyKind {
    /// The history is not one: a completion without an invocation, a process with two transactions
    /// at once.
    Malformed,
    /// An element that was appended once stands twice, or two transactions wrote the same.
    Duplicate,
    /// A value that nobody wrote was read.
    Garbage,
    /// A transaction did not see what it had itself read or written before.
    Internal,
    /// Aborted read: what a failed transaction wrote was read.
    G1a,
    /// Intermediate read: a transaction's write that it overwrote itself was read.
    G1b,
    /// Two reads of one key show lists of which neither continues the other.
    IncompatibleOrder,
    /// Write cycle: writes alone contradict each other.
    G0,
    /// Circular information flow: writes and the readings of them form a cycle.
    G1c,
    /// A transaction read a key and wrote it, and another's write came in between: two replaced one
    /// version.
    LostUpdate,
    /// Read skew: a cycle with exactly one anti-dependency.
    GSingle,
    /// Write skew: a cycle with several anti-dependencies.
    G2Item,
    /// Accounts do not sum up to what the bank holds, or one is below zero.
    WrongTotal,
    /// An acknowledged write is gone.
    LostWrite,
    /// No order of the operations on one key explains what each of them was told.
    NotLinear,
    /// Something never ended although the faults had.
    Stuck,
    /// More is held than the bound allows.
    OutOfBounds,
    /// No order of the calls on a key explains their answers.
    NotLinearizable,
    /// An answer that its command never has.
    WrongAnswer,
    /// EXEC was carried out although a watched key was touched, or was not although none was.
    WrongExec,
    /// A scan without a key that was there throughout, or with one that never was.
    WrongScan,
    /// A count that was right at no moment.
    WrongCount,
}

impl AnomalyKind {
    /// The name for programs: it never changes.
    #[must_use]
    pub const fn id(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Duplicate => "duplicate",
            Self::Garbage => "garbage",
            Self::Internal => "internal",
            Self::G1a => "g1a",
            Self::G1b => "g1b",
            Self::IncompatibleOrder => "incompatible-order",
            Self::G0 => "g0",
            Self::G1c => "g1c",
            Self::LostUpdate => "lost-update",
            Self::GSingle => "g-single",
            Self::G2Item => "g2-item",
            Self::WrongTotal => "wrong-total",
            Self::LostWrite => "lost-write",
            Self::NotLinear => "not-linear",
            Self::Stuck => "stuck",
            Self::OutOfBounds => "out-of-bounds",
            Self::NotLinearizable => "not-linearizable",
            Self::WrongAnswer => "wrong-answer",
            Self::WrongExec => "wrong-exec",
            Self::WrongScan => "wrong-scan",
            Self::WrongCount => "wrong-count",
        }
    }

    /// The name in the literature, or ours.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed history",
            Self::Duplicate => "duplicate",
            Self::Garbage => "garbage read",
            Self::Internal => "internal inconsistency",
            Self::G1a => "G1a (aborted read)",
            Self::G1b => "G1b (intermediate read)",
            Self::IncompatibleOrder => "incompatible order",
            Self::G0 => "G0 (write cycle)",
            Self::G1c => "G1c (circular information flow)",
            Self::LostUpdate => "lost update",
            Self::GSingle => "G-single (read skew)",
            Self::G2Item => "G2-item (write skew)",
            Self::WrongTotal => "wrong total",
            Self::LostWrite => "lost write",
            Self::NotLinear => "not linearizable",
            Self::Stuck => "stuck",
            Self::OutOfBounds => "out of bounds",
            Self::NotLinearizable => "not linearizable",
            Self::WrongAnswer => "wrong answer",
            Self::WrongExec => "wrong EXEC",
            Self::WrongScan => "wrong scan",
            Self::WrongCount => "wrong count",
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Anomaly {
    /// What.
    pub kind: AnomalyKind,
    /// The weakest promise that it breaks.
    pub breaks: Promise,
    /// In words; for a cycle, one line for each of its steps, and one for each transaction.
    pub story: String,
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order = match self.breaks {
            Promise::Serializable => "",
            Promise::Session => ", by the order of a session",
            Promise::Conflicts => ", between direct conflicts in real time",
            Promise::RealTime => ", in real time",
        };
        write!(f, "{}{order}: {}", self.kind.name(), self.story)
    }
}

/// What a checker found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CheckResult {
    /// Transactions that were looked at: committed ones, and those of unknown outcome that took
    /// effect.
    pub transactions: usize,
    /// What is wrong, at most [`MAX_REPORTED`] of each kind.
    pub anomalies: Vec<Anomaly>,
    /// How many more there were.
    pub unreported: usize,
    /// How many transactions are concerned, by kind: a cycle is told once, and may stand for
    /// hundreds that are like it.
    pub concerned: BTreeMap<AnomalyKind, usize>,
    /// Keys of which nothing is said, for they would take too many steps to judge.
    pub undecided: usize,
}

impl CheckResult {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.anomalies.is_empty()
    }

    /// Adds what another checker found; its transactions are the same ones.
    pub fn absorb(&mut self, other: Self) {
        self.transactions = self.transactions.max(other.transactions);
        self.unreported += other.unreported;
        self.undecided += other.undecided;
        for (kind, concerned) in other.concerned {
            *self.concerned.entry(kind).or_default() += concerned;
        }
        for Anomaly { kind, breaks, story } in other.anomalies {
            self.report_of(0, kind, breaks, || story);
        }
    }

    /// How many anomalies were proved: those that are told, and those beyond what is told.
    #[must_use]
    pub fn proved(&self) -> usize {
        self.anomalies.len() + self.unreported
    }

    /// How many transactions are concerned. One that is concerned by two kinds counts twice.
    #[must_use]
    pub fn concerned(&self) -> usize {
        self.concerned.values().sum()
    }

    /// Whether something of this kind is wrong.
    #[must_use]
    pub fn has(&self, kind: AnomalyKind) -> bool {
        self.anomalies.iter().any(|anomaly| anomaly.kind == kind)
    }

    /// Something that concerns one transaction.
    pub(in crate::check) fn report(
        &mut self,
        kind: AnomalyKind,
        breaks: Promise,
        story: impl FnOnce() -> String,
    ) {
        self.report_of(1, kind, breaks, story);
    }

    /// Something that concerns so many transactions.
    pub(super) fn report_of(
        &mut self,
        concerned: usize,
        kind: AnomalyKind,
        breaks: Promise,
        story: impl FnOnce() -> String,
    ) {
        *self.concerned.entry(kind).or_default() += concerned;
        if self.anomalies.iter().filter(|anomaly| anomaly.kind == kind).count() < MAX_REPORTED {
            self.anomalies.push(Anomaly { kind, breaks, story: story() });
        } else {
            self.unreported += 1;
        }
    }
}

impl fmt::Display for CheckResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_valid() {
            write!(f, "{} transactions, nothing wrong", self.transactions)?;
        } else {
            let (proved, concerned) = (self.proved(), self.concerned());
            write!(
                f,
                "{} transactions, {proved} anomalies, {concerned} transactions concerned",
                self.transactions
            )?;
        }
        if self.undecided > 0 {
            write!(
                f,
                "; of {} keys nothing is said, for they would take too long to judge",
                self.undecided
            )?;
        }
        for anomaly in &self.anomalies {
            write!(f, "\n{anomaly}")?;
        }
        if self.unreported > 0 {
            write!(f, "\n… and {} more", self.unreported)?;
        }
        Ok(())
    }
}
