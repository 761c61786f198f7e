//! Registers whose writes are unique: who read what tells who wrote it, and a write after a reading
//! of the same key tells which version it replaced.
//!
//! ```text
//!   T1: r x 1, w x 4        T2: r x 4        T3: r x 1, w x 5
//!   version 1 ─► 4, and 1 ─► 5: two successors of one version = a lost update
//!   T1 ─wr─► T2;  T2 read 4, so ─rw─► whoever replaced 4
//! ```
//! Unlike lists, registers forget; versions that were written blindly have no certain place. What
//! is certain of them: absence comes before every write; and, where the order of sessions or real
//! time is promised, a version that a session or anybody knew before a transaction began is older
//! than what that transaction wrote.
//!
//! What makes a value ambiguous takes inferences away: after a deletion, absence may be old or new;
//! and a write of unknown outcome whose value is not known either may have written what nobody else
//! did.

use std::collections::{BTreeMap, BTreeSet};

use super::conflicts::{ConflictWalk, Contradiction};
use super::cycles;
use super::graph::{Edge, Graph, Node, Why};
use super::transactions::{HistoryTransaction, Transactions, TxnEnd, TxnRef};
use super::verdict::{AnomalyKind, CheckResult, Promise};
use crate::KeyIndex;
use crate::history::{History, MicroOp, Process, Seen};

/// Checks a register history against a promise.
#[must_use]
pub fn check_register(history: &History, promise: Promise) -> CheckResult {
    let mut verdict = CheckResult::default();
    let transactions = Transactions::of(history, &mut verdict);
    let mut keys: BTreeMap<KeyIndex, Facts> = BTreeMap::new();
    let writes = collect_writes(&transactions, &mut keys, &mut verdict);
    for (reader, txn) in transactions.iter().filter(|(_, txn)| txn.end == TxnEnd::Committed) {
        collect_reads(reader, txn, &mut keys, &mut verdict);
    }
    let mut took_effect: Vec<bool> =
        transactions.iter().map(|(_, txn)| txn.end == TxnEnd::Committed).collect();
    for (key, facts) in &keys {
        for (reader, seen) in &facts.reads {
            if let Some(seen) = seen {
                let write = writes.get(&(*key, *seen)).copied();
                judge_read(
                    *key,
                    facts,
                    *reader,
                    *seen,
                    write,
                    &transactions,
                    &mut took_effect,
                    &mut verdict,
                );
            }
        }
    }
    verdict.transactions = took_effect.iter().filter(|took_effect| **took_effect).count();
    let graph = Graph::new(transactions.all.len());
    let mut drawing =
        Drawing { transactions: &transactions, writes: &writes, graph, contradictions: Vec::new() };
    for (key, facts) in &mut keys {
        facts.writers.retain(|(by, _)| took_effect[by.0 as usize]);
        drawing.draw(*key, facts, promise, &mut verdict);
    }
    let Drawing { graph, contradictions, .. } = drawing;
    cycles::report(&transactions, graph, &contradictions, promise, &mut verdict);
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

/// Who did it, and which version that was.
type ByTxn<V> = (TxnRef, V);

#[derive(Default)]
struct Facts {
    /// Who read which version from outside.
    reads: Vec<ByTxn<Seeing>>,
    /// Which version was replaced by whose last write to the key, or by whose deletion of it.
    successors: BTreeMap<Seeing, Vec<ByTxn<Seeing>>>,
    /// Whose last write to the key which version is.
    writers: Vec<ByTxn<i64>>,
    /// Whether somebody deleted it, or may have: absence is not only the version before all.
    is_deleted: bool,
    /// Whether a write of unknown outcome does not tell its value.
    is_vague: bool,
}

/// Most transactions that replaced one version whose edges are drawn: more than one is a lost
/// update already.
const MAX_DRAWN_SUCCESSORS: usize = 2;

fn collect_writes(
    transactions: &Transactions<'_>,
    keys: &mut BTreeMap<KeyIndex, Facts>,
    verdict: &mut CheckResult,
) -> Writes {
    let mut writes = Writes::new();
    for (by, txn) in transactions.iter() {
        let mut last: BTreeMap<KeyIndex, i64> = BTreeMap::new();
        for op in txn.ops {
            let (key, value) = match *op {
                MicroOp::Write { key, value: Some(value) } => (key, value),
                MicroOp::WriteUntil { key, value, .. } => {
                    // When it has expired, the key is as if it were deleted.
                    keys.entry(key).or_default().is_deleted |= txn.end != TxnEnd::Aborted;
                    (key, value)
                }
                MicroOp::Write { key, value: None } => {
                    let facts = keys.entry(key).or_default();
                    facts.is_deleted |= txn.end != TxnEnd::Aborted;
                    facts.is_vague |= txn.end == TxnEnd::Unknown;
                    last.remove(&key);
                    continue;
                }
                MicroOp::Read { .. } => continue,
                MicroOp::Append { key, .. } => {
                    verdict.report(AnomalyKind::Malformed, Promise::Serializable, || {
                        let (by, key) = (transactions.name(by), key.0);
                        format!("{by} appended to key {key}, where this workload has registers")
                    });
                    continue;
                }
            };
            if let Some(before) = last.insert(key, value)
                && let Some(write) = writes.get_mut(&(key, before))
            {
                write.is_last = false;
            }
            if let Some(other) = writes.insert((key, value), Write { by, is_last: true }) {
                verdict.report(AnomalyKind::Duplicate, Promise::Serializable, || {
                    let (one, two) = (transactions.name(other.by), transactions.name(by));
                    format!(
                        "{one} and {two} both wrote {value} to key {}; values must be unique",
                        key.0
                    )
                });
            }
        }
        for (key, value) in last {
            keys.entry(key).or_default().writers.push((by, value));
        }
    }
    writes
}

fn collect_reads(
    reader: TxnRef,
    txn: &HistoryTransaction<'_>,
    keys: &mut BTreeMap<KeyIndex, Facts>,
    verdict: &mut CheckResult,
) {
    /// What the transaction knows of a key: what it read from outside, and what the key holds for
    /// it now.
    struct KnownVersion {
        outside: Option<Seeing>,
        now: Seeing,
        wrote: bool,
    }
    let mut known: BTreeMap<KeyIndex, KnownVersion> = BTreeMap::new();
    for op in txn.ops {
        match *op {
            MicroOp::Read { key, ref seen } => {
                let seen = match seen {
                    Seen::Nothing => None,
                    Seen::Integer(value) => Some(*value),
                    Seen::List(_) => {
                        verdict.report(AnomalyKind::Malformed, Promise::Serializable, || {
                            let (index, process, key) = (txn.index, txn.process.0, key.0);
                            format!(
                                "T{index} (process {process}) read a list from key {key}, \
                                where this workload has registers"
                            )
                        });
                        continue;
                    }
                };
                match known.get(&key) {
                    None => {
                        known.insert(key, KnownVersion { outside: Some(seen), now: seen, wrote: false });
                        keys.entry(key).or_default().reads.push((reader, seen));
                    }
                    Some(known) if known.now == seen => {}
                    Some(known) => verdict.report(AnomalyKind::Internal, Promise::Serializable, || {
                        let (index, process, now) = (txn.index, txn.process.0, known.now);
                        format!(
                            "T{index} (process {process}) read {seen:?} from key {}, which held \
                             {now:?} for it",
                            key.0
                        )
                    }),
                }
            }
            MicroOp::Write { .. } | MicroOp::WriteUntil { .. } => {
                let known = known.entry(op.key()).or_insert(KnownVersion {
                    outside: None,
                    now: None,
                    wrote: false,
                });
                (known.now, known.wrote) = (op.written(), true);
            }
            MicroOp::Append { .. } => {}
        }
    }
    for (key, known) in known {
        if let KnownVersion { outside: Some(before), now: after, wrote: true } = known
            && (before.is_some() || after.is_some())
        {
            keys.entry(key)
                .or_default()
                .successors
                .entry(before)
                .or_default()
                .push((reader, after));
        }
    }
}

#[expect(clippy::too_many_arguments, reason = "a read, and where what is found goes")]
fn judge_read(
    key: KeyIndex,
    facts: &Facts,
    reader: TxnRef,
    seen: i64,
    write: Option<Write>,
    transactions: &Transactions<'_>,
    took_effect: &mut [bool],
    verdict: &mut CheckResult,
) {
    let name = |txn| transactions.name(txn);
    let Some(write) = write else {
        if !facts.is_vague {
            verdict.report(AnomalyKind::Garbage, Promise::Serializable, || {
                format!("{} read {seen} from key {}, which nobody wrote", name(reader), key.0)
            });
        }
        return;
    };
    if transactions.get(write.by).end == TxnEnd::Aborted {
        verdict.report(AnomalyKind::G1a, Promise::Serializable, || {
            format!(
                "{} read {seen} from key {}, which {} wrote before it aborted",
                name(reader),
                key.0,
                name(write.by)
            )
        });
        return;
    }
    took_effect[write.by.0 as usize] = true;
    if write.by == reader {
        verdict.report(AnomalyKind::Internal, Promise::Serializable, || {
            format!(
                "{} read {seen} from key {}, which it wrote itself only later",
                name(reader),
                key.0
            )
        });
    } else if !write.is_last {
        verdict.report(AnomalyKind::G1b, Promise::Serializable, || {
            format!(
                "{} read {seen} from key {}, which {} overwrote itself",
                name(reader),
                key.0,
                name(write.by)
            )
        });
    }
}

/// What the keys' versions come to.
struct Drawing<'t, 'a> {
    transactions: &'t Transactions<'a>,
    writes: &'t Writes,
    graph: Graph,
    contradictions: Vec<Contradiction>,
}

impl Drawing<'_, '_> {
    fn writer(&self, key: KeyIndex, version: Seeing) -> Option<TxnRef> {
        version.and_then(|value| self.writes.get(&(key, value))).map(|write| write.by)
    }

    fn draw(&mut self, key: KeyIndex, facts: &Facts, promise: Promise, verdict: &mut CheckResult) {
        let is_certain = |version: &Seeing| version.is_some() || !facts.is_deleted;
        for (version, successors) in
            facts.successors.iter().filter(|(version, _)| is_certain(version))
        {
            if let [(one, _), (two, _), ..] = successors[..] {
                verdict.report(AnomalyKind::LostUpdate, Promise::Serializable, || {
                    let (one, two) = (self.transactions.name(one), self.transactions.name(two));
                    let version =
                        version.map_or_else(|| "nothing".to_owned(), |value| value.to_string());
                    format!(
                        "{one} and {two} both read {version} from key {} and replaced it",
                        key.0
                    )
                });
            }
            if let Some(from) = self.writer(key, *version) {
                for (to, value) in successors.iter().take(MAX_DRAWN_SUCCESSORS) {
                    self.graph.add(Edge {
                        from: from.0,
                        to: to.0,
                        why: Why::Ww,
                        key,
                        value: *value,
                    });
                }
            }
        }
        for (reader, seen) in facts.reads.iter().filter(|(_, seen)| is_certain(seen)) {
            if let Some(from) = self.writer(key, *seen) {
                self.graph.add(Edge {
                    from: from.0,
                    to: reader.0,
                    why: Why::Wr,
                    key,
                    value: *seen,
                });
            }
            let successors = facts.successors.get(seen).map_or(&[][..], Vec::as_slice);
            // Who replaced a version that others replaced too lost an update, and there is nothing
            // more to be told.
            if successors.len() > 1
                && successors.binary_search_by_key(reader, |(by, _)| *by).is_ok()
            {
                continue;
            }
            for (to, value) in successors.iter().take(MAX_DRAWN_SUCCESSORS) {
                self.graph.add(Edge { from: reader.0, to: to.0, why: Why::Rw, key, value: *value });
            }
        }
        let traced =
            facts.successors.values().flatten().filter(|(_, value)| value.is_some()).count();
        if traced < facts.writers.len() {
            self.draw_absence(key, facts);
            if promise >= Promise::Session {
                self.draw_blind_by_session(key, facts);
            }
            if promise >= Promise::RealTime {
                self.draw_blind_by_time(key, facts);
            }
        }
        self.walk(key, facts);
    }

    /// From absence on, versions that replaced each other follow without a gap; whatever was
    /// written blindly comes after all of them, and so do its writers after whoever read or wrote
    /// the last.
    fn draw_absence(&mut self, key: KeyIndex, facts: &Facts) {
        if facts.is_deleted {
            return;
        }
        let (mut end, mut placed) = (None, BTreeSet::new());
        // A circle of versions, which is an anomaly, is walked once.
        while let Some([(by, value)]) = facts.successors.get(&end).map(Vec::as_slice)
            && placed.insert(*by)
        {
            end = *value;
        }
        // Where several replaced one version, an update is lost, and their order unknown.
        placed.extend(facts.successors.get(&end).into_iter().flatten().map(|(by, _)| *by));
        let crowd = self.graph.add_helper();
        for (by, value) in facts.writers.iter().filter(|(by, _)| !placed.contains(by)) {
            self.graph.add(Edge { from: crowd, to: by.0, why: Why::Ww, key, value: Some(*value) });
        }
        for (reader, _) in facts.reads.iter().filter(|(_, seen)| *seen == end) {
            self.graph.add(Edge { from: reader.0, to: crowd, why: Why::Rw, key, value: None });
        }
        if let Some(by) = self.writer(key, end) {
            self.graph.add(Edge { from: by.0, to: crowd, why: Why::Ww, key, value: None });
        }
    }

    /// Readers of a version, and of versions with a value only, that did not write the key
    /// themselves.
    fn mere_readers<'f>(facts: &'f Facts, writers: &BTreeSet<TxnRef>) -> Vec<ByTxn<i64>> {
        let reads: &'f [ByTxn<Seeing>] = &facts.reads;
        reads
            .iter()
            .filter(|(reader, _)| !writers.contains(reader))
            .filter_map(|(reader, seen)| Some((*reader, (*seen)?)))
            .collect()
    }

    /// A session that knew a version and then wrote wrote a later one.
    fn draw_blind_by_session(&mut self, key: KeyIndex, facts: &Facts) {
        let writers: BTreeSet<TxnRef> = facts.writers.iter().map(|(by, _)| *by).collect();
        // In the order of invocation: what each session knew, and what it wrote then. What was read
        // was known before what was written.
        let reads = facts.reads.iter().filter_map(|(by, seen)| Some((*by, false, (*seen)?)));
        let mut touches: Vec<(TxnRef, bool, i64)> =
            reads.chain(facts.writers.iter().map(|(by, value)| (*by, true, *value))).collect();
        touches.sort_unstable();
        let mut known: BTreeMap<Process, Vec<i64>> = BTreeMap::new();
        let mut later: BTreeMap<i64, Vec<ByTxn<i64>>> = BTreeMap::new();
        for (by, is_write, value) in touches {
            let txn = self.transactions.get(by);
            let known = known.entry(txn.session).or_default();
            if is_write {
                for version in known.drain(..).filter(|version| *version != value) {
                    later.entry(version).or_default().push((by, value));
                }
            }
            if txn.is_settled {
                known.push(value);
            }
        }
        let mut crowds: BTreeMap<i64, Node> = BTreeMap::new();
        for (reader, seen) in Self::mere_readers(facts, &writers) {
            let Some(later) = later.get(&seen) else { continue };
            let crowd = *crowds.entry(seen).or_insert_with(|| {
                let crowd = self.graph.add_helper();
                for (by, value) in later {
                    self.graph.add(Edge {
                        from: crowd,
                        to: by.0,
                        why: Why::Ww,
                        key,
                        value: Some(*value),
                    });
                }
                crowd
            });
            self.graph.add(Edge {
                from: reader.0,
                to: crowd,
                why: Why::RwBySession,
                key,
                value: None,
            });
        }
    }

    /// Whoever was invoked when a version was there already wrote a later one: a chain of helpers,
    /// one for each writer, of which each leads to its writer and to the helper of whoever was
    /// invoked next.
    fn draw_blind_by_time(&mut self, key: KeyIndex, facts: &Facts) {
        let writers: BTreeSet<TxnRef> = facts.writers.iter().map(|(by, _)| *by).collect();
        let mut there_at: BTreeMap<i64, usize> = BTreeMap::new();
        let reads = facts.reads.iter().filter_map(|(by, seen)| Some((*by, (*seen)?)));
        for (by, value) in reads.chain(facts.writers.iter().copied()) {
            if let Some(completed) = self.transactions.get(by).completed {
                let there = there_at.entry(value).or_insert(completed);
                *there = completed.min(*there);
            }
        }
        // References are by invocation, and so are the writers then.
        let mut by_invocation = facts.writers.clone();
        by_invocation.sort_unstable();
        let helpers: Vec<Node> = by_invocation.iter().map(|_| self.graph.add_helper()).collect();
        for (at, (by, value)) in by_invocation.iter().enumerate() {
            self.graph.add(Edge {
                from: helpers[at],
                to: by.0,
                why: Why::Ww,
                key,
                value: Some(*value),
            });
            if let Some(next) = helpers.get(at + 1) {
                self.graph.add(Edge {
                    from: helpers[at],
                    to: *next,
                    why: Why::Ww,
                    key,
                    value: None,
                });
            }
        }
        for (reader, seen) in Self::mere_readers(facts, &writers) {
            let Some(there) = there_at.get(&seen) else { continue };
            let later = by_invocation
                .partition_point(|(by, _)| self.transactions.get(*by).invoked <= *there);
            if let Some(helper) = helpers.get(later) {
                self.graph.add(Edge {
                    from: reader.0,
                    to: *helper,
                    why: Why::RwByTime,
                    key,
                    value: None,
                });
            }
        }
    }

    /// Compares the real time of a key's transactions with the order of its versions, as far as
    /// they form a chain without branches.
    fn walk(&mut self, key: KeyIndex, facts: &Facts) {
        let mut readers: BTreeMap<Seeing, Vec<TxnRef>> = BTreeMap::new();
        for (reader, seen) in &facts.reads {
            readers.entry(*seen).or_default().push(*reader);
        }
        let replaced: BTreeSet<i64> =
            facts.successors.values().flatten().filter_map(|(_, value)| *value).collect();
        let starts =
            readers.keys().chain(facts.successors.keys()).filter(|version| match version {
                None => !facts.is_deleted,
                Some(version) => !replaced.contains(version),
            });
        let starts: BTreeSet<Seeing> = starts.copied().collect();
        for start in starts {
            let mut walk = ConflictWalk::new(self.transactions, key, &mut self.contradictions);
            let mut version = start;
            if let Some((by, value)) =
                start.and_then(|value| Some((self.writes.get(&(key, value))?.by, value)))
            {
                walk.write(by, Some(value));
            }
            // Values that were written twice may lead into a circle.
            let mut passed = BTreeSet::new();
            while passed.insert(version) {
                for reader in readers.get(&version).into_iter().flatten() {
                    walk.read(*reader);
                }
                let Some([(by, value)]) = facts.successors.get(&version).map(Vec::as_slice) else {
                    break;
                };
                walk.write(*by, *value);
                if value.is_none() {
                    // What is found after a deletion may be from before the first write as well.
                    break;
                }
                version = *value;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::testing::concurrent;
    use crate::history::read;

    fn kinds(values: &[&str]) -> Vec<AnomalyKind> {
        let verdict = check_register(&concurrent(values), Promise::RealTime);
        verdict.anomalies.iter().map(|anomaly| anomaly.kind).collect()
    }

    #[test]
    fn a_serial_history_is_valid() {
        assert_eq!(
            kinds(&["[:r 1 nil] [:w 1 1]", "[:r 1 1] [:w 1 2] [:r 1 2]", "[:r 1 2]", "[:r 1 nil]"]),
            []
        );
    }

    #[test]
    fn a_lost_update_is_found() {
        assert!(
            kinds(&["[:r 1 nil] [:w 1 1]", "[:r 1 nil] [:w 1 2]"])
                .contains(&AnomalyKind::LostUpdate)
        );
    }

    #[test]
    fn write_skew_and_read_skew_are_found() {
        assert_eq!(
            kinds(&["[:r 1 nil] [:r 2 nil] [:w 1 1]", "[:r 1 nil] [:r 2 nil] [:w 2 1]"]),
            [AnomalyKind::G2Item]
        );
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
    fn values_that_were_written_twice_and_lead_into_a_circle_are_reported_and_no_trap() {
        let found =
            kinds(&["[:r 1 nil] [:w 1 1]", "[:r 1 1] [:w 1 2]", "[:r 1 2] [:w 1 1]", "[:r 1 1]"]);
        assert!(found.contains(&AnomalyKind::Duplicate), "{found:?}");
    }

    #[test]
    fn what_needs_no_graph_is_found() {
        assert_eq!(kinds(&["[:r 1 5]"]), [AnomalyKind::Garbage]);
        assert_eq!(kinds(&["[:w 1 5]", "[:w 1 5]"]), [AnomalyKind::Duplicate]);
        assert_eq!(kinds(&["[:w 1 5] [:w 1 6]", "[:r 1 5]"]), [AnomalyKind::G1b]);
        assert_eq!(kinds(&["[:w 1 5] [:r 1 nil]"]), [AnomalyKind::Internal]);
        let failed = "{:type :invoke, :process 0, :f :txn, :value [[:w 1 \
            5]]}\n{:type :fail, :process 0, :f :txn, :value [[:w 1 5]]}\n\
                      {:type :invoke, :process 1, :f :txn, :value [[:r 1 \
                      nil]]}\n{:type :ok, :process 1, :f :txn, :value [[:r 1 5]]}\n";
        let verdict = check_register(&read(failed).unwrap(), Promise::RealTime);
        assert!(verdict.has(AnomalyKind::G1a), "{verdict}");
    }
}
