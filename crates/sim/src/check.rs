//! What must hold at the end of a run: the histories' verdicts, durability, totals, the ring, rest and bounds.

use std::collections::BTreeMap;
use std::time::Duration;

use timestone_workload::check::{
    AnomalyKind, Promise, Verdict, check_bank, check_durability, check_list_append, check_register,
};
use timestone_workload::history::{History, Seen};
use timestone_workload::{KeyIndex, WorkloadKind};

use crate::board::{Board, Work};
use crate::world::World;

/// For this long nothing may stir before a world counts as settled.
pub(crate) const CALM: Duration = Duration::from_millis(500);
/// Log files beyond those that may wait to be carried forward: the open one, the next one, and one being reclaimed a shard.
const SPARE_LOG_FILES: u64 = 4;

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which property does not hold.
    pub property: &'static str,
    /// How that shows: the cycle, the key, the process.
    pub detail: String,
}

impl Finding {
    pub(crate) const fn new(property: &'static str, detail: String) -> Self {
        Self { property, detail }
    }
}

/// Checks everything that the history and the end of the data tell; where data was destroyed (`damaged`), only that nothing was made
/// up. How many transactions were looked at.
pub(crate) fn all(board: &Board, history: &History, complete: bool, damaged: bool, findings: &mut Vec<Finding>) -> u64 {
    for what in board.all_wrong().into_iter().filter(|_| !damaged) {
        findings.push(Finding::new("answers", what));
    }
    let mut checked = 0;
    let mut judge = |property, verdict: Verdict| {
        checked += verdict.transactions as u64;
        let made_up = |kind| matches!(kind, AnomalyKind::Garbage | AnomalyKind::Malformed);
        for anomaly in verdict.anomalies.iter().filter(|anomaly| !damaged || made_up(anomaly.kind)) {
            findings.push(Finding::new(property, anomaly.to_string()));
        }
    };
    let found = board.all_found();
    match &board.work {
        Work::Ring { nodes, .. } => {
            if complete && let Err(what) = ring(&found, *nodes) {
                findings.push(Finding::new("ring", what));
            }
            return board.tally().committed;
        }
        Work::Plans(spec) => match spec.kind {
            WorkloadKind::ListAppend => {
                judge("serializability", check_list_append(history, Promise::Conflicts));
                if complete {
                    judge("durability and atomicity", check_durability(history, &lists(&found)));
                }
            }
            WorkloadKind::Register => judge("serializability", check_register(history, Promise::Conflicts)),
            WorkloadKind::Bank => {
                judge("totals", check_bank(history, spec.keys, spec.total_balance()));
                if complete && let Err(what) = total(&found, spec.total_balance()) {
                    findings.push(Finding::new("totals", what));
                }
            }
            _ => return board.tally().committed,
        },
    }
    checked
}

fn lists(found: &BTreeMap<KeyIndex, Seen>) -> BTreeMap<KeyIndex, Vec<i64>> {
    let list = |(key, seen): (&KeyIndex, &Seen)| match seen {
        Seen::List(list) => Some((*key, list.clone())),
        Seen::Nothing | Seen::Integer(_) => None,
    };
    found.iter().filter_map(list).collect()
}

fn total(found: &BTreeMap<KeyIndex, Seen>, expected: i64) -> Result<(), String> {
    let mut sum = 0i64;
    for (key, seen) in found {
        match seen {
            Seen::Integer(balance) => sum = sum.saturating_add(*balance),
            _ => return Err(format!("in the end, account {} holds no balance", key.0)),
        }
    }
    if sum == expected { Ok(()) } else { Err(format!("in the end, the accounts hold {sum} together, not {expected}")) }
}

fn ring(found: &BTreeMap<KeyIndex, Seen>, nodes: u64) -> Result<(), String> {
    let mut at = 0;
    for length in 1..=nodes {
        match found.get(&KeyIndex(at)) {
            Some(Seen::Integer(next)) => at = *next as u64,
            _ => return Err(format!("in the end, key {at} of the ring names no next one")),
        }
        if at == 0 {
            return if length == nodes {
                Ok(())
            } else {
                Err(format!("in the end, the ring has {length} keys, not {nodes}"))
            };
        }
    }
    Err("in the end, the ring does not come back to its first key".to_owned())
}

/// What stirs although nobody asks for anything any more.
pub(crate) fn unsettled(world: &World) -> Vec<String> {
    let mut open = Vec::new();
    for (id, figures) in world.figures() {
        let name = &world.processes[id.0 as usize].name;
        if figures.prepared > 0 {
            open.push(format!(
                "{} transactions are still prepared in shard {} of {name}",
                figures.prepared, figures.shard
            ));
        }
        if figures.requests > 0 {
            open.push(format!("{} requests still wait in shard {} of {name}", figures.requests, figures.shard));
        }
    }
    open
}

/// What is larger than its bound, although nobody writes any more.
pub(crate) fn oversized(world: &World) -> Vec<String> {
    let log = &world.config.tuning.log;
    let files = log.carry_after_files as u64 + SPARE_LOG_FILES + 2 * u64::from(world.config.shards_per_server);
    let bound = files * log.file_bytes * world.config.threads as u64;
    let servers = world.processes.iter().filter(|process| process.is_server());
    let bytes = servers.map(|process| (process.name.clone(), world.log_bytes(process.id)));
    let over = bytes.filter(|(_, bytes)| *bytes > bound);
    over.map(|(name, bytes)| format!("the log of {name} takes {bytes} bytes, more than {bound}")).collect()
}
