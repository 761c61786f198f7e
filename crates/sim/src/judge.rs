//! How the history of a run is judged, and what it says of itself to whoever reads it later.

use std::fmt;

use timestone_workload::WorkloadKind;
use timestone_workload::check::Promise;
use timestone_workload::history::{HistoryHead, Judged};

use crate::board::{Board, ClientWork};

/// How a history is to be judged. Its words are the flags of `timestone check`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judge {
    /// By the order of appends, held to a promise.
    ListAppend(Promise),
    /// By unique writes, held to a promise.
    Register(Promise),
    /// As Redis clients' own.
    Redis,
    /// By its total.
    Bank {
        /// How many there are.
        accounts: u64,
        /// What they hold together.
        total: i64,
    },
}

impl Judge {
    pub(crate) fn of(
        board: &Board,
        promise: Promise,
        is_whole: bool,
    ) -> Result<Self, &'static str> {
        if board.redis.as_ref().is_some_and(|calls| calls.work.mix.alone) && is_whole {
            return Ok(Self::Redis);
        }
        let ClientWork::Plans(spec) = &board.work else {
            return Err("no checker knows this workload's histories");
        };
        if board.settings.closed {
            return Err("there is nothing in it to judge, for closed sessions write nothing down");
        }
        if !is_whole {
            return Err("it proves nothing, for what had been acknowledged was lost, as it may be");
        }
        Ok(match spec.kind {
            WorkloadKind::ListAppend => Self::ListAppend(promise),
            WorkloadKind::Bank => Self::Bank { accounts: spec.keys, total: spec.total_balance() },
            // Registers, and fillings that are numbered as registers are.
            _ => Self::Register(promise),
        })
    }
}

/// What a run's history says of itself.
pub(crate) fn head_of(
    board: &Board,
    promise: Promise,
    judge: Result<Judge, &'static str>,
) -> HistoryHead {
    let judged = Judged::of(board.work.spec()).unwrap_or(Judged::Register);
    HistoryHead {
        judged,
        isolation: "serializable".to_owned(),
        external: if board.settings.external { "wait" } else { "none" }.to_owned(),
        protocol: "simulated".to_owned(),
        promise,
        void: judge.err().map(str::to_owned),
    }
}

impl fmt::Display for Judge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ListAppend(promise) => {
                write!(f, "--workload list-append --promise {}", promise.name())
            }
            Self::Register(promise) => {
                write!(f, "--workload register --promise {}", promise.name())
            }
            Self::Redis => write!(f, "--workload redis"),
            Self::Bank { accounts, total } => {
                write!(f, "--workload bank --accounts {accounts} --total {total}")
            }
        }
    }
}
