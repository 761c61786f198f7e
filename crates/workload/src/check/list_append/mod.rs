//! List-append: every list that was read tells the order of all appends before it, and so who wrote
//! and read which version.
//!
//! ```text
//!   reads of key 3:  []        [1]        [1 4]        [1 4 2]        longest = the order of versions
//!                                                                      1 ──ww──► 4 ──ww──► 2 ──ww──► (unseen appends)
//!   reader of [1]:   wr from the writer of 1, rw to the writer of 4
//! ```
//! Before the graph is drawn, what needs no graph is checked: every element read was appended
//! (garbage), by a transaction that did not fail (G1a), as the last one of that transaction to the
//! key (G1b), once; lists of one key continue each other; and a transaction sees its own appends
//! and earlier reads, and none of its own appends before it made them (internal).
//!
//! A transaction of unknown outcome took effect when an element of it was read, and then so did its
//! other appends; else it is left out.
//!
//! A list that is deleted is begun anew by the next append. Elements are appended once, so each
//! belongs to one *life* of its key, and the first of them tells lives apart:
//!
//! ```text
//!   [1]  [1 4]  ── read as [1 4], and deleted ──►  nothing  ──►  [7]  [7 2]
//!   └─ a life, and who ended it ─┘                               └─ another one; nobody ended it: the last of all
//! ```
//! A life goes no further than what was found by whoever deleted it, and is deleted once; of lives
//! that nobody deleted there is one at most. In which order lives follow each other is known of the
//! last one only. What takes inferences away: absence may be of any time then; and a deletion that
//! does not tell what it found (one of unknown outcome, or without a reading before it) may have
//! ended any life, and one that nobody saw.

mod drawing;

use std::collections::BTreeMap;

use self::drawing::Drawing;
use super::cycles;
use super::graph::Graph;
use super::transactions::{HistoryTransaction, Transactions, TxnEnd, TxnRef};
use super::verdict::{AnomalyKind, CheckResult, Promise};
use crate::KeyIndex;
use crate::history::{History, MicroOp, Seen};

/// Checks a list-append history against a promise.
#[must_use]
pub fn check_list_append(history: &History, promise: Promise) -> CheckResult {
    let mut verdict = CheckResult::default();
    let transactions = Transactions::of(history, &mut verdict);
    let mut keys = collect_appends(&transactions, &mut verdict);
    for (reader, txn) in committed(&transactions) {
        collect_reads(reader, txn, &mut keys, &mut verdict);
    }
    let keys: Lives<'_> = keys.into_iter().map(|(key, facts)| (key, facts.into_lives())).collect();
    let mut took_effect: Vec<bool> =
        transactions.iter().map(|(_, txn)| txn.end == TxnEnd::Committed).collect();
    for (key, history) in &keys {
        history.lives.iter().for_each(|life| {
            judge_life(*key, history, life, &transactions, &mut took_effect, &mut verdict);
        });
        judge_lives(*key, history, &transactions, &mut verdict);
    }
    verdict.transactions = took_effect.iter().filter(|took_effect| **took_effect).count();
    let mut drawing = Drawing {
        transactions: &transactions,
        took_effect: &took_effect,
        graph: Graph::new(transactions.all.len()),
        contradictions: Vec::new(),
    };
    for (key, history) in &keys {
        drawing.draw(*key, history, &mut verdict);
    }
    let Drawing { graph, contradictions, .. } = drawing;
    cycles::report(&transactions, graph, &contradictions, promise, &mut verdict);
    verdict
}

/// Who read a list, and what it was.
type ListRead<'a> = (TxnRef, &'a [i64]);

/// What the history says of one key.
#[derive(Default)]
struct Facts<'a> {
    /// Who appended which element.
    appends: BTreeMap<i64, Append>,
    /// Reads from outside the reader: without what it had appended itself.
    reads: Vec<ListRead<'a>>,
    /// Who deleted it, having found what.
    deletions: Vec<ListRead<'a>>,
    /// How many deletions there are, or may be, that do not tell what they found.
    vague: usize,
}

#[derive(Clone, Copy)]
struct Append {
    by: TxnRef,
    /// Whether it is the last one of its transaction to the key.
    is_last: bool,
    /// Whether its transaction deleted the list after it.
    is_void: bool,
}

/// From one deletion of a key to the next.
#[derive(Default)]
struct ListLife<'a> {
    reads: Vec<ListRead<'a>>,
    /// The longest of them: the order of versions.
    longest: &'a [i64],
    /// Who deleted it, having found what. One at most, if all is right.
    ends: Vec<ListRead<'a>>,
}

/// One key's facts, life by life.
struct KeyLives<'a> {
    appends: BTreeMap<i64, Append>,
    lives: Vec<ListLife<'a>>,
    /// Whether it was ever deleted, or may have been.
    is_deleted: bool,
    vague: usize,
}

impl<'a> Facts<'a> {
    fn into_lives(self) -> KeyLives<'a> {
        let Self { appends, reads, deletions, vague } = self;
        let is_deleted = vague > 0 || !deletions.is_empty();
        // Without a deletion there is one life, and absence is before its first element. With some,
        // absence may be of any time.
        let mut lives: BTreeMap<Option<i64>, ListLife<'a>> = BTreeMap::new();
        for (reader, list) in reads {
            let first = if is_deleted { list.first().copied() } else { None };
            if is_deleted && first.is_none() {
                continue;
            }
            let life = lives.entry(first).or_default();
            life.reads.push((reader, list));
            if list.len() > life.longest.len() {
                life.longest = list;
            }
        }
        for (by, found) in deletions {
            // It was read, or else it would not be known.
            lives.entry(found.first().copied()).or_default().ends.push((by, found));
        }
        if !is_deleted {
            lives.entry(None).or_default();
        }
        KeyLives { appends, lives: lives.into_values().collect(), is_deleted, vague }
    }
}

type Keys<'a> = BTreeMap<KeyIndex, Facts<'a>>;
type Lives<'a> = BTreeMap<KeyIndex, KeyLives<'a>>;

fn committed<'t, 'a>(
    transactions: &'t Transactions<'a>,
) -> impl Iterator<Item = (TxnRef, &'t HistoryTransaction<'a>)> {
    transactions.iter().filter(|(_, txn)| txn.end == TxnEnd::Committed)
}

fn collect_appends<'a>(transactions: &Transactions<'a>, verdict: &mut CheckResult) -> Keys<'a> {
    let mut keys: Keys<'a> = BTreeMap::new();
    for (by, txn) in transactions.iter() {
        let mut last: BTreeMap<KeyIndex, i64> = BTreeMap::new();
        let mut own: BTreeMap<KeyIndex, Vec<i64>> = BTreeMap::new();
        for op in txn.ops {
            if let MicroOp::Write { key, value: None } = *op {
                let facts = keys.entry(key).or_default();
                facts.vague += usize::from(txn.end == TxnEnd::Unknown);
                last.remove(&key);
                for element in own.remove(&key).into_iter().flatten() {
                    if let Some(append) = facts.appends.get_mut(&element) {
                        (append.is_last, append.is_void) = (false, true);
                    }
                }
                continue;
            }
            let MicroOp::Append { key, element } = *op else { continue };
            own.entry(key).or_default().push(element);
            let facts = keys.entry(key).or_default();
            if let Some(before) = last.insert(key, element)
                && let Some(append) = facts.appends.get_mut(&before)
            {
                append.is_last = false;
            }
            if let Some(other) =
                facts.appends.insert(element, Append { by, is_last: true, is_void: false })
            {
                verdict.report(AnomalyKind::Duplicate, Promise::Serializable, || {
                    let (one, two) = (transactions.name(other.by), transactions.name(by));
                    format!(
                        "{one} and {two} both appended {element} to key {}; elements must be \
                        unique",
                        key.0
                    )
                });
            }
        }
    }
    keys
}

/// Takes a transaction's reads from outside, and checks that the others agree with it.
fn collect_reads<'a>(
    reader: TxnRef,
    txn: &HistoryTransaction<'a>,
    keys: &mut Keys<'a>,
    verdict: &mut CheckResult,
) {
    /// What the transaction knows of a key: what it saw of others, and its own appends since.
    #[derive(Default)]
    struct KnownList<'a> {
        outside: Option<&'a [i64]>,
        /// It deleted what was there, and with it what it had appended.
        is_cleared: bool,
        own: Vec<i64>,
    }
    let mut known: BTreeMap<KeyIndex, KnownList<'a>> = BTreeMap::new();
    for op in txn.ops {
        match op {
            MicroOp::Append { key, element } => known.entry(*key).or_default().own.push(*element),
            MicroOp::Write { key, value: None } => {
                let known = known.entry(*key).or_default();
                known.own.clear();
                if !std::mem::replace(&mut known.is_cleared, true) {
                    let facts = keys.entry(*key).or_default();
                    match known.outside {
                        Some([]) => {}
                        Some(found) => facts.deletions.push((reader, found)),
                        None => facts.vague += 1,
                    }
                }
            }
            MicroOp::Write { key, .. } | MicroOp::WriteUntil { key, .. } => {
                no_list(txn, *key, "wrote an integer to", verdict)
            }
            MicroOp::Read { key, seen } => {
                let list = match seen {
                    Seen::List(list) => list.as_slice(),
                    Seen::Nothing => &[],
                    Seen::Integer(_) => {
                        no_list(txn, *key, "read an integer from", verdict);
                        continue;
                    }
                };
                let known = known.entry(*key).or_default();
                let outside = list.strip_suffix(known.own.as_slice());
                match (outside, known.outside) {
                    (Some([]), _) if known.is_cleared => {}
                    (Some(outside), None) if !known.is_cleared => {
                        known.outside = Some(outside);
                        keys.entry(*key).or_default().reads.push((reader, outside));
                    }
                    (Some(outside), Some(before)) if outside == before && !known.is_cleared => {}
                    _ => verdict.report(AnomalyKind::Internal, Promise::Serializable, || {
                        let before = known.outside.map_or_else(
                            || "not read before".to_owned(),
                            |list| format!("read as {list:?}"),
                        );
                        let own = &known.own;
                        let deleted =
                            if known.is_cleared { "which it had deleted, and " } else { "" };
                        let (index, process, key) = (txn.index, txn.process.0, key.0);
                        format!(
                            "T{index} (process {process}) read {list:?} from key {key}, \
                            {before}, {deleted}to which it had appended {own:?}"
                        )
                    }),
                }
            }
        }
    }
}

fn no_list(txn: &HistoryTransaction<'_>, key: KeyIndex, what: &str, verdict: &mut CheckResult) {
    verdict.report(AnomalyKind::Malformed, Promise::Serializable, || {
        format!(
            "T{} (process {}) {what} key {}, where this workload has lists",
            txn.index, txn.process.0, key.0
        )
    });
}

/// What one life's reads say without a graph.
fn judge_life(
    key: KeyIndex,
    facts: &KeyLives<'_>,
    life: &ListLife<'_>,
    transactions: &Transactions<'_>,
    took_effect: &mut [bool],
    verdict: &mut CheckResult,
) {
    let key = key.0;
    let order = life.longest;
    let mut places: BTreeMap<i64, usize> = BTreeMap::new();
    for (place, element) in order.iter().enumerate() {
        if let Some(before) = places.insert(*element, place) {
            verdict.report(AnomalyKind::Duplicate, Promise::Serializable, || {
                format!("{element} stands in key {key} twice, at {before} and {place} of {order:?}")
            });
        }
    }
    for (reader, list) in &life.reads {
        let reader = *reader;
        let is_prefix = order.starts_with(list);
        if !is_prefix {
            verdict.report(AnomalyKind::IncompatibleOrder, Promise::Serializable, || {
                format!(
                    "{} read {list:?} from key {key}, which {order:?} does not continue",
                    transactions.name(reader)
                )
            });
        }
        // What the longest list holds is looked at once, with it; only its last element depends on
        // who read how far.
        let to_judge = if is_prefix && !std::ptr::eq(*list, order) {
            &list[list.len().saturating_sub(1)..]
        } else {
            list
        };
        for element in to_judge {
            judge_element(key, reader, *element, facts, transactions, took_effect, verdict);
        }
        let last = list
            .last()
            .and_then(|element| facts.appends.get(element))
            .filter(|append| !append.is_void);
        if let Some(append) = last.filter(|append| !append.is_last && append.by != reader) {
            verdict.report(AnomalyKind::G1b, Promise::Serializable, || {
                let (reader, writer) = (transactions.name(reader), transactions.name(append.by));
                format!(
                    "{reader} read {list:?} from key {key}, whose last element {writer} had \
                    not finished with"
                )
            });
        }
        if last.is_some_and(|append| append.by == reader) {
            verdict.report(AnomalyKind::Internal, Promise::Serializable, || {
                let reader = transactions.name(reader);
                format!(
                    "{reader} read {list:?} from key {key}, whose last element it appended \
                    itself only later"
                )
            });
        }
    }
}

/// What a key's lives say of each other.
fn judge_lives(
    key: KeyIndex,
    facts: &KeyLives<'_>,
    transactions: &Transactions<'_>,
    verdict: &mut CheckResult,
) {
    let (key, name) = (key.0, |txn| transactions.name(txn));
    let mut lives: BTreeMap<i64, &[i64]> = BTreeMap::new();
    for life in &facts.lives {
        let order = life.longest;
        for element in order {
            if let Some(other) =
                lives.insert(*element, order).filter(|other| !std::ptr::eq(*other, order))
            {
                verdict.report(AnomalyKind::IncompatibleOrder, Promise::Serializable, || {
                    format!(
                        "{element} stands in {other:?} and in {order:?} of key {key}, of which \
                        neither continues the other"
                    )
                });
                break;
            }
        }
        for (by, found) in life.ends.iter().filter(|(_, found)| found.len() < order.len()) {
            verdict.report(AnomalyKind::IncompatibleOrder, Promise::Serializable, || {
                format!(
                    "{} deleted key {key} as {found:?}, and yet somebody read it as {order:?}",
                    name(*by)
                )
            });
        }
        if let [(one, found), (two, _), ..] = life.ends[..] {
            verdict.report(AnomalyKind::LostUpdate, Promise::Serializable, || {
                format!(
                    "{} and {} both read key {key} as {found:?} and deleted it",
                    name(one),
                    name(two)
                )
            });
        }
    }
    let open: Vec<&[i64]> =
        facts.lives.iter().filter(|life| life.ends.is_empty()).map(|life| life.longest).collect();
    if open.len() > 1 + facts.vague {
        verdict.report(AnomalyKind::IncompatibleOrder, Promise::Serializable, || {
            let vague = match facts.vague {
                0 => "nobody deleted any of them".to_owned(),
                vague => format!("{vague} deletions at the most may have ended one each"),
            };
            format!("key {key} was {open:?} one after another, and {vague}")
        });
    }
}

fn judge_element(
    key: u64,
    reader: TxnRef,
    element: i64,
    facts: &KeyLives<'_>,
    transactions: &Transactions<'_>,
    took_effect: &mut [bool],
    verdict: &mut CheckResult,
) {
    match facts.appends.get(&element) {
        None => verdict.report(AnomalyKind::Garbage, Promise::Serializable, || {
            format!(
                "{} read {element} from key {key}, which nobody appended",
                transactions.name(reader)
            )
        }),
        Some(append) if transactions.get(append.by).end == TxnEnd::Aborted => {
            verdict.report(AnomalyKind::G1a, Promise::Serializable, || {
                let (reader, writer) = (transactions.name(reader), transactions.name(append.by));
                format!(
                    "{reader} read {element} from key {key}, which {writer} appended before it \
                    aborted"
                )
            });
        }
        Some(append) if append.is_void => {
            verdict.report(AnomalyKind::G1b, Promise::Serializable, || {
                let (reader, writer) = (transactions.name(reader), transactions.name(append.by));
                format!(
                    "{reader} read {element} from key {key}, which {writer} deleted itself after \
                it had appended it"
                )
            })
        }
        Some(append) => took_effect[append.by.0 as usize] = true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::testing::{concurrent, history};

    fn kinds(history: &History, promise: Promise) -> Vec<(AnomalyKind, Promise)> {
        let verdict = check_list_append(history, promise);
        verdict.anomalies.iter().map(|anomaly| (anomaly.kind, anomaly.breaks)).collect()
    }

    fn serializable(values: &[&str]) -> Vec<AnomalyKind> {
        kinds(&concurrent(values), Promise::Serializable)
            .into_iter()
            .map(|(kind, _)| kind)
            .collect()
    }

    #[test]
    fn a_serial_history_is_valid() {
        let history = history(&[
            "0 + [:append 1 1] [:r 1 nil]",
            "0 = [:append 1 1] [:r 1 [1]]",
            "1 + [:r 1 nil] [:append 1 2]",
            "1 = [:r 1 [1]] [:append 1 2]",
            "0 + [:r 1 nil]",
            "0 = [:r 1 [1 2]]",
        ]);
        let verdict = check_list_append(&history, Promise::RealTime);
        assert!(verdict.is_valid(), "{verdict}");
        assert_eq!(verdict.transactions, 3);
    }

    #[test]
    fn g0_is_found() {
        assert_eq!(
            serializable(&[
                "[:append 1 1] [:append 2 1]",
                "[:append 1 2] [:append 2 2]",
                "[:r 1 [1 2]] [:r 2 [2 1]]"
            ])[0],
            AnomalyKind::G0
        );
    }

    #[test]
    fn g1a_is_found_and_an_unknown_append_may_be_read() {
        let lines = ["0 + [:append 1 1]", "0 ! [:append 1 1]", "1 + [:r 1 nil]", "1 = [:r 1 [1]]"];
        assert_eq!(
            kinds(&history(&lines), Promise::RealTime),
            [(AnomalyKind::G1a, Promise::Serializable)]
        );
        let unknown = lines.map(|line| line.replace('!', "?"));
        let verdict =
            check_list_append(&history(&unknown.each_ref().map(String::as_str)), Promise::RealTime);
        assert!(verdict.is_valid() && verdict.transactions == 2, "{verdict}");
    }

    #[test]
    fn g1b_is_found() {
        assert!(
            serializable(&["[:append 1 1] [:append 1 2]", "[:r 1 [1]]"])
                .contains(&AnomalyKind::G1b)
        );
        assert_eq!(serializable(&["[:append 1 1] [:append 1 2]", "[:r 1 [1 2]]"]), []);
    }

    #[test]
    fn g1c_is_found() {
        let found = serializable(&["[:append 1 1] [:r 2 [1]]", "[:append 2 1] [:r 1 [1]]"]);
        assert_eq!(found, [AnomalyKind::G1c]);
    }

    #[test]
    fn read_skew_is_found() {
        let found = serializable(&["[:append 1 1] [:append 2 1]", "[:r 1 []] [:r 2 [1]]"]);
        assert_eq!(
            found,
            [AnomalyKind::GSingle],
            "an append that nobody saw comes after what was seen"
        );
        let found =
            serializable(&["[:append 1 1] [:append 2 1]", "[:r 1 []] [:r 2 [1]]", "[:r 1 [1]]"]);
        assert_eq!(found, [AnomalyKind::GSingle]);
    }

    #[test]
    fn a_lost_update_is_found_seen_or_unseen() {
        let seen =
            serializable(&["[:r 1 []] [:append 1 1]", "[:r 1 []] [:append 1 2]", "[:r 1 [1 2]]"]);
        assert_eq!(seen, [AnomalyKind::LostUpdate]);
        let unseen = serializable(&["[:r 1 []] [:append 1 1]", "[:r 1 []] [:append 1 2]"]);
        assert_eq!(unseen, [AnomalyKind::LostUpdate]);
        assert_eq!(
            serializable(&["[:r 1 []] [:append 1 1]"]),
            [],
            "one's own append follows one's own reading"
        );
    }

    #[test]
    fn write_skew_is_found() {
        let found = serializable(&[
            "[:r 1 []] [:append 2 1]",
            "[:r 2 []] [:append 1 1]",
            "[:r 1 [1]] [:r 2 [1]]",
        ]);
        assert_eq!(found, [AnomalyKind::G2Item]);
    }

    #[test]
    fn write_skew_shows_even_when_nobody_saw_the_writes() {
        let found = serializable(&["[:r 1 []] [:append 2 1]", "[:r 2 []] [:append 1 1]"]);
        assert_eq!(found, [AnomalyKind::G2Item]);
    }

    #[test]
    fn a_stale_read_breaks_real_time_only() {
        let lines = [
            "0 + [:append 1 1]",
            "0 = [:append 1 1]",
            "1 + [:r 1 nil]",
            "1 = [:r 1 []]",
            "2 + [:r 1 nil]",
            "2 = [:r 1 [1]]",
        ];
        assert_eq!(kinds(&history(&lines), Promise::Session), []);
        assert_eq!(
            kinds(&history(&lines), Promise::RealTime),
            [(AnomalyKind::GSingle, Promise::RealTime)]
        );
        let overlapping = ["1 + [:r 1 nil]", lines[0], lines[1], lines[3], lines[4], lines[5]];
        assert_eq!(kinds(&history(&overlapping), Promise::RealTime), []);
    }

    #[test]
    fn a_cycle_that_stands_for_many_says_for_how_many() {
        let mut lines = vec!["0 + [:append 1 1]".to_owned(), "0 = [:append 1 1]".to_owned()];
        for process in 1..=40 {
            lines.extend([format!("{process} + [:r 1 nil]"), format!("{process} = [:r 1 []]")]);
        }
        lines.extend(["50 + [:r 1 nil]".to_owned(), "50 = [:r 1 [1]]".to_owned()]);
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let verdict = check_list_append(&history(&lines), Promise::RealTime);
        assert_eq!((verdict.proved(), verdict.concerned()), (1, 40), "{verdict}");
        assert!(
            verdict
                .to_string()
                .starts_with("42 transactions, 1 anomalies, 40 transactions concerned"),
            "{verdict}"
        );
        assert_eq!(check_list_append(&history(&lines), Promise::Session).concerned(), 0);
    }

    #[test]
    fn a_stale_read_of_ones_own_write_breaks_the_session() {
        let lines = [
            "0 + [:append 1 1]",
            "0 = [:append 1 1]",
            "0 + [:r 1 nil]",
            "0 = [:r 1 []]",
            "2 + [:r 1 nil]",
            "2 = [:r 1 [1]]",
        ];
        assert_eq!(kinds(&history(&lines), Promise::Serializable), []);
        assert_eq!(
            kinds(&history(&lines), Promise::RealTime),
            [(AnomalyKind::GSingle, Promise::Session)]
        );
    }

    /// Lists that are deleted and begun anew; `none`: nothing is wrong.
    #[test]
    fn lives_of_a_list_are_told_apart() {
        let none: [AnomalyKind; 0] = [];
        let life = [
            "[:append 1 1]",
            "[:append 1 2]",
            "[:r 1 [1 2]] [:w 1 nil]",
            "[:append 1 3]",
            "[:r 1 [3]]",
        ];
        assert_eq!(serializable(&life), none);
        let again =
            [&life[..], &["[:r 1 [3]] [:w 1 nil] [:append 1 4]", "[:r 1 [4]]", "[:r 1 nil]"]]
                .concat();
        assert_eq!(serializable(&again), none);
        assert_eq!(
            serializable(&[
                "[:append 1 1]",
                "[:w 1 nil]",
                "[:append 1 2]",
                "[:r 1 [2]]",
                "[:r 1 [1]]"
            ]),
            none
        );
        assert_eq!(serializable(&["[:r 1 nil] [:w 1 nil]", "[:append 1 1]", "[:r 1 [1]]"]), none);
        assert_eq!(
            serializable(&[
                "[:append 1 1] [:w 1 nil] [:r 1 []] [:append 1 2] [:r 1 [2]]",
                "[:r 1 [2]]"
            ]),
            none
        );
    }

    #[test]
    fn what_is_wrong_with_deletions_is_found() {
        let order = AnomalyKind::IncompatibleOrder;
        for (values, kind) in [
            // A deleted list goes on, is deleted twice, or is gone and nobody deleted it.
            (
                &["[:append 1 1]", "[:append 1 2]", "[:r 1 [1]] [:w 1 nil]", "[:r 1 [1 2]]"][..],
                order,
            ),
            (
                &["[:append 1 1]", "[:r 1 [1]] [:w 1 nil]", "[:r 1 [1]] [:w 1 nil]"],
                AnomalyKind::LostUpdate,
            ),
            (
                &[
                    "[:append 1 1]",
                    "[:append 1 2]",
                    "[:append 1 3]",
                    "[:r 1 [1]]",
                    "[:r 1 [2]] [:w 1 nil]",
                    "[:r 1 [3]]",
                ],
                order,
            ),
            (
                &["[:append 1 1]", "[:append 1 2]", "[:w 1 nil]", "[:r 1 [1 2]]", "[:r 1 [2]]"],
                order,
            ),
            // An element that its own transaction deleted is seen by nobody; a deletion is by its
            // own transaction.
            (&["[:append 1 1] [:w 1 nil]", "[:r 1 [1]]"], AnomalyKind::G1b),
            (&["[:append 1 1]", "[:r 1 [1]] [:w 1 nil] [:r 1 [1]]"], AnomalyKind::Internal),
            // A deletion and a write, each seen without the other.
            (
                &["[:append 1 1]", "[:r 1 [1]] [:w 1 nil] [:append 2 2]", "[:r 1 [1]] [:r 2 [2]]"],
                AnomalyKind::GSingle,
            ),
        ] {
            let found = serializable(values);
            assert!(found.contains(&kind), "{values:?}: {found:?}");
        }
        // Who deleted the list saw what the one who began it anew wrote elsewhere.
        let found = serializable(&[
            "[:append 1 1]",
            "[:r 1 [1]] [:w 1 nil] [:r 2 [5]]",
            "[:append 1 7] [:append 2 5]",
            "[:r 1 [7]]",
        ]);
        assert_eq!(found, [AnomalyKind::G1c]);
    }

    #[test]
    fn a_deletion_of_unknown_outcome_may_have_ended_any_life() {
        let lines = [
            "0 . [:append 1 1]",
            "1 + [:r 1 nil] [:w 1 nil]",
            "1 ? [:r 1 nil] [:w 1 nil]",
            "2 . [:append 1 2]",
            "3 . [:r 1 [2]]",
        ];
        assert_eq!(kinds(&history(&lines), Promise::RealTime), []);
        let read = [&lines[..], &["0 . [:r 1 [1]]"]].concat();
        assert_eq!(kinds(&history(&read), Promise::Serializable), []);
        let three = [&read[..], &["4 . [:r 1 [9]]"]].concat();
        assert!(
            kinds(&history(&three), Promise::Serializable)
                .iter()
                .any(|(kind, _)| *kind == AnomalyKind::IncompatibleOrder)
        );
    }

    #[test]
    fn what_needs_no_graph_is_found() {
        assert_eq!(serializable(&["[:r 1 [7]]"]), [AnomalyKind::Garbage]);
        assert!(
            serializable(&["[:append 1 1]", "[:append 1 1]"]).contains(&AnomalyKind::Duplicate)
        );
        assert!(serializable(&["[:append 1 1]", "[:r 1 [1 1]]"]).contains(&AnomalyKind::Duplicate));
        let orders =
            serializable(&["[:append 1 1]", "[:append 1 2]", "[:r 1 [1 2]]", "[:r 1 [2]]"]);
        assert!(orders.contains(&AnomalyKind::IncompatibleOrder), "{orders:?}");
        assert!(serializable(&["[:append 1 1] [:r 1 []]"]).contains(&AnomalyKind::Internal));
        assert!(
            serializable(&["[:append 1 1]", "[:r 1 []] [:r 1 [1]]"])
                .contains(&AnomalyKind::Internal)
        );
    }

    #[test]
    fn a_history_that_is_none_is_refused() {
        assert_eq!(
            kinds(&history(&["0 = [:r 1 []]"]), Promise::RealTime)[0].0,
            AnomalyKind::Malformed
        );
        assert_eq!(
            kinds(&history(&["0 + [:r 1 nil]", "0 + [:r 1 nil]"]), Promise::RealTime)[0].0,
            AnomalyKind::Malformed
        );
    }

    #[test]
    fn a_cycle_is_told_step_by_step() {
        let verdict = check_list_append(
            &concurrent(&[
                "[:r 1 []] [:append 2 5]",
                "[:r 2 []] [:append 1 6]",
                "[:r 1 [6]] [:r 2 [5]]",
            ]),
            Promise::Serializable,
        );
        let story = verdict.anomalies[0].to_string();
        for line in [
            "G2-item (write skew)",
            "T0 (process 0) read key 1 without 6, which T1 (process 1) wrote",
            "T1 (process 1) read key 2 without 5, which T0 (process 0) wrote",
            "(rw: T1 before T0)",
            "and so T0 (process 0) precedes itself",
            "T1: [[:r 2 []] [:append 1 6]]",
        ] {
            assert!(story.contains(line), "{line} in\n{story}");
        }
        assert_eq!(story.lines().count(), 6, "two steps, a conclusion, two transactions:\n{story}");
    }

    #[test]
    fn the_shortest_cycle_is_told() {
        // A ring of five through keys 1 to 5, and a shortcut of two through key 9.
        let found = check_list_append(
            &concurrent(&[
                "[:append 1 1] [:r 5 [1]] [:r 9 [2]]",
                "[:append 2 1] [:r 1 [1]]",
                "[:append 3 1] [:r 2 [1]]",
                "[:append 4 1] [:r 3 [1]] [:r 1 [1]] [:append 9 2]",
                "[:append 5 1] [:r 4 [1]]",
            ]),
            Promise::Serializable,
        );
        assert_eq!(found.anomalies.len(), 1);
        assert_eq!(
            found.anomalies[0].story.lines().filter(|line| line.contains("which")).count(),
            2,
            "{found}"
        );
    }
}
