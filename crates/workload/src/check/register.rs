//! Registers whose writes are unique: who read what tells who wrote it, and a write after a reading of the same key tells which
//! version it replaced.
//!
//! ```text
//!   T1: r x 1, w x 4        T2: r x 4        T3: r x 1, w x 5
//!   version 1 ─► 4, and 1 ─► 5: two successors of one version = a lost update
//!   T1 ─wr─► T2;  T2 read 4, so ─rw─► whoever replaced 4
//! ```
//! Unlike lists, registers forget; versions that were written blindly have no known place, and no order is inferred for them.

use std::collections::BTreeMap;

use super::cycles;
use super::graph::{Edge, Graph, Why};
use super::transactions::{End, Transaction, Transactions, TxnRef};
use super::verdict::{AnomalyKind, Promise, Verdict};
use crate::KeyIndex;
use crate::history::{History, MicroOp, Seen};

/// Checks a register history against a promise.
#[must_use]
pub fn check_register(history: &History, promise: Promise) -> Verdict {
    let mut verdict = Verdict::default();
    let transactions = Transactions::of(history, &mut verdict);
    let writes = collect_writes(&transactions, &mut verdict);
    let mut took_effect: Vec<bool> = transactions.iter().map(|(_, txn)| txn.end == End::Committed).collect();
    let mut keys: BTreeMap<KeyIndex, Facts> = BTreeMap::new();
    for (reader, txn) in transactions.iter().filter(|(_, txn)| txn.end == End::Committed) {
        collect_reads(reader, txn, &mut keys, &mut verdict);
    }
    let mut graph = Graph::new(transactions.all.len());
    for (key, facts) in &keys {
        for (reader, seen) in &facts.reads {
            if let Some(seen) = seen {
                judge_read(*key, *reader, *seen, &writes, &transactions, &mut took_effect, &mut verdict);
            }
        }
        draw_key(*key, facts, &writes, &transactions, &mut graph, &mut verdict);
    }
    verdict.transactions = took_effect.iter().filter(|took_effect| **took_effect).count();
    cycles::report(&transactions, graph, promise, &mut verdict);
    verdict
}

/// Who wrote a value, and whether it was that transaction's last to the key.
#[derive(Clone, Copy)]
struct Write {
    by: TxnRef,
    is_last: bool,
}

type Writes = BTreeMap<(KeyIndex, i64), Write>;

/// `None` is the version before all: absence.
type Seeing = Option<i64>;

#[derive(Default)]
struct Facts {
    /// Who read which version from outside.
    reads: Vec<(TxnRef, Seeing)>,
    /// Which version was replaced by whose last write to the key.
    successors: BTreeMap<Seeing, Vec<(TxnRef, i64)>>,
}

fn collect_writes(transactions: &Transactions<'_>, verdict: &mut Verdict) -> Writes {
    let mut writes = Writes::new();
    for (by, txn) in transactions.iter() {
        let mut last: BTreeMap<KeyIndex, i64> = BTreeMap::new();
        for op in txn.ops {
            let MicroOp::Write { key, value: Some(value) } = *op else { continue };
            if let Some(before) = last.insert(key, value)
                && let Some(write) = writes.get_mut(&(key, before))
            {
                write.is_last = false;
            }
            if let Some(other) = writes.insert((key, value), Write { by, is_last: true }) {
                verdict.report(AnomalyKind::Duplicate, Promise::Serializable, || {
                    let (one, two) = (transactions.name(other.by), transactions.name(by));
                    format!("{one} and {two} both wrote {value} to key {}; values must be unique", key.0)
                });
            }
        }
    }
    writes
}

fn collect_reads(reader: TxnRef, txn: &Transaction<'_>, keys: &mut BTreeMap<KeyIndex, Facts>, verdict: &mut Verdict) {
    /// What the transaction knows of a key: what it read from outside, and what the key holds for it now.
    struct Known {
        outside: Option<Seeing>,
        now: Seeing,
        wrote: bool,
    }
    let mut known: BTreeMap<KeyIndex, Known> = BTreeMap::new();
    for op in txn.ops {
        match *op {
            MicroOp::Read { key, ref seen } => {
                let seen = match seen {
                    Seen::Nothing => None,
                    Seen::Integer(value) => Some(*value),
                    Seen::List(_) => continue,
                };
                match known.get(&key) {
                    None => {
                        known.insert(key, Known { outside: Some(seen), now: seen, wrote: false });
                        keys.entry(key).or_default().reads.push((reader, seen));
                    }
                    Some(known) if known.now == seen => {}
                    Some(known) => verdict.report(AnomalyKind::Internal, Promise::Serializable, || {
                        let (index, process, now) = (txn.index, txn.process.0, known.now);
                        format!(
                            "T{index} (process {process}) read {seen:?} from key {}, which held {now:?} for it",
                            key.0
                        )
                    }),
                }
            }
            MicroOp::Write { key, value } => {
                let known = known.entry(key).or_insert(Known { outside: None, now: None, wrote: false });
                (known.now, known.wrote) = (value, true);
            }
            MicroOp::Append { .. } => {}
        }
    }
    for (key, known) in known {
        if let Known { outside: Some(before), now: Some(after), wrote: true } = known {
            keys.entry(key).or_default().successors.entry(before).or_default().push((reader, after));
        }
    }
}

fn judge_read(
    key: KeyIndex,
    reader: TxnRef,
    seen: i64,
    writes: &Writes,
    transactions: &Transactions<'_>,
    took_effect: &mut [bool],
    verdict: &mut Verdict,
) {
    let name = |txn| transactions.name(txn);
    let Some(write) = writes.get(&(key, seen)) else {
        verdict.report(AnomalyKind::Garbage, Promise::Serializable, || {
            format!("{} read {seen} from key {}, which nobody wrote", name(reader), key.0)
        });
        return;
    };
    if transactions.get(write.by).end == End::Aborted {
        verdict.report(AnomalyKind::G1a, Promise::Serializable, || {
            format!("{} read {seen} from key {}, which {} wrote before it aborted", name(reader), key.0, name(write.by))
        });
        return;
    }
    took_effect[write.by.0 as usize] = true;
    if !write.is_last && write.by != reader {
        verdict.report(AnomalyKind::G1b, Promise::Serializable, || {
            format!("{} read {seen} from key {}, which {} overwrote itself", name(reader), key.0, name(write.by))
        });
    }
}

fn draw_key(
    key: KeyIndex,
    facts: &Facts,
    writes: &Writes,
    transactions: &Transactions<'_>,
    graph: &mut Graph,
    verdict: &mut Verdict,
) {
    let writer = |version: Seeing| version.and_then(|value| writes.get(&(key, value))).map(|write| write.by);
    for (version, successors) in &facts.successors {
        if let [(one, _), (two, _), ..] = successors[..] {
            verdict.report(AnomalyKind::LostUpdate, Promise::Serializable, || {
                let (one, two) = (transactions.name(one), transactions.name(two));
                let version = version.map_or_else(|| "nothing".to_owned(), |value| value.to_string());
                format!("{one} and {two} both read {version} from key {} and replaced it", key.0)
            });
        }
        for (to, value) in successors {
            if let Some(from) = writer(*version) {
                graph.add(Edge { from: from.0, to: to.0, why: Why::Ww, key, value: Some(*value) });
            }
        }
    }
    for (reader, seen) in &facts.reads {
        if let Some(from) = writer(*seen) {
            graph.add(Edge { from: from.0, to: reader.0, why: Why::Wr, key, value: *seen });
        }
        for (to, value) in facts.successors.get(seen).into_iter().flatten() {
            graph.add(Edge { from: reader.0, to: to.0, why: Why::Rw, key, value: Some(*value) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::read;

    fn concurrent(values: &[&str]) -> History {
        let line = |kind: &str, process: usize, value: &str| {
            format!("{{:type :{kind}, :process {process}, :index {process}, :f :txn, :value [{value}]}}\n")
        };
        let begin: String = values.iter().enumerate().map(|(process, value)| line("invoke", process, value)).collect();
        let end: String = values.iter().enumerate().map(|(process, value)| line("ok", process, value)).collect();
        read(&(begin + &end)).unwrap()
    }

    fn kinds(values: &[&str]) -> Vec<AnomalyKind> {
        let verdict = check_register(&concurrent(values), Promise::RealTime);
        verdict.anomalies.iter().map(|anomaly| anomaly.kind).collect()
    }

    #[test]
    fn a_serial_history_is_valid() {
        assert_eq!(kinds(&["[:r 1 nil] [:w 1 1]", "[:r 1 1] [:w 1 2] [:r 1 2]", "[:r 1 2]", "[:r 1 nil]"]), []);
    }

    #[test]
    fn a_lost_update_is_found() {
        assert!(kinds(&["[:r 1 nil] [:w 1 1]", "[:r 1 nil] [:w 1 2]"]).contains(&AnomalyKind::LostUpdate));
    }

    #[test]
    fn write_skew_and_read_skew_are_found() {
        assert_eq!(kinds(&["[:r 1 nil] [:r 2 nil] [:w 1 1]", "[:r 1 nil] [:r 2 nil] [:w 2 1]"]), [AnomalyKind::G2Item]);
        let skew = kinds(&["[:r 1 nil] [:w 1 1] [:r 2 nil] [:w 2 1]", "[:r 1 nil] [:r 2 1]"]);
        assert_eq!(skew, [AnomalyKind::GSingle]);
    }

    #[test]
    fn circular_information_flow_is_found() {
        assert_eq!(kinds(&["[:w 1 1] [:r 2 1]", "[:w 2 1] [:r 1 1]"]), [AnomalyKind::G1c]);
    }

    #[test]
    fn a_cycle_of_versions_is_found() {
        let found = kinds(&["[:r 1 2] [:w 1 1]", "[:r 1 1] [:w 1 2]"]);
        assert!(found.contains(&AnomalyKind::G0), "{found:?}");
    }

    #[test]
    fn what_needs_no_graph_is_found() {
        assert_eq!(kinds(&["[:r 1 5]"]), [AnomalyKind::Garbage]);
        assert_eq!(kinds(&["[:w 1 5]", "[:w 1 5]"]), [AnomalyKind::Duplicate]);
        assert_eq!(kinds(&["[:w 1 5] [:w 1 6]", "[:r 1 5]"]), [AnomalyKind::G1b]);
        assert_eq!(kinds(&["[:w 1 5] [:r 1 nil]"]), [AnomalyKind::Internal]);
        let failed = "{:type :invoke, :process 0, :f :txn, :value [[:w 1 5]]}\n{:type :fail, :process 0, :f :txn, :value [[:w 1 5]]}\n\
                      {:type :invoke, :process 1, :f :txn, :value [[:r 1 nil]]}\n{:type :ok, :process 1, :f :txn, :value [[:r 1 5]]}\n";
        let verdict = check_register(&read(failed).unwrap(), Promise::RealTime);
        assert!(verdict.has(AnomalyKind::G1a), "{verdict}");
    }
}
