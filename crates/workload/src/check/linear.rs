//! Single keys: some order of the operations on each key explains what every one of them was told,
//! and it is an order of real time.
//!
//! ```text
//!   put 1 ├────┤      take ├──────┤ 1        get ├──┤ nothing
//!                          take ├───┤ nothing         <- whoever takes second finds nothing; were it told 1, no order would do
//! ```
//! Wing and Gong's search (1993), with Lowe's memory of the states that were tried (2017). An
//! operation reads, or writes, or does both at once: a take reads and deletes; a compare-and-set
//! that did not hold only read. It takes place at one moment between its invocation and its
//! completion; one of unknown outcome at any moment from its invocation on, but before what its
//! session did next to the key, or never.
//!
//! **Expiry is part of the order**: at one moment, within `slack` of the time that the history
//! says, the value is gone, and it does not come back. Whose clock judges it is not known here;
//! that one reader sees it alive that another has seen expired is what this finds.
//!
//! # Invariants
//! - No false alarm. Where the search would take more than [`MAX_ORDER_STATES`] states, the key is
//!   not judged, and its operations are not counted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::transactions::{Transactions, TxnEnd, TxnRef};
use super::verdict::{AnomalyKind, CheckResult, Promise};
use crate::KeyIndex;
use crate::history::{History, MicroOp, Process, Seen, write_value};
use crate::limits::MAX_ORDER_STATES;

/// Candidates that a story tells.
const MAX_TOLD: usize = 8;

/// Checks the operations of each key, and what it held in the end (`found`, of the keys that were
/// read then). The clock that judges expiry is at most `slack` from the history's.
#[must_use]
pub fn check_single_keys(
    history: &History,
    found: &BTreeMap<KeyIndex, Seen>,
    slack: Duration,
) -> CheckResult {
    let mut verdict = CheckResult::default();
    let transactions = Transactions::of(history, &mut verdict);
    let mut keys: BTreeMap<KeyIndex, Vec<Op>> = BTreeMap::new();
    for (by, txn) in transactions.iter().filter(|(_, txn)| txn.end != TxnEnd::Aborted) {
        match ops_of(history, by, &transactions, slack) {
            Ok(ops) => {
                ops.into_iter().for_each(|(key, op)| keys.entry(key).or_default().push(op));
            }
            Err(what) => verdict.report(AnomalyKind::Malformed, Promise::Serializable, || {
                format!("T{} (process {}) {what}", txn.index, txn.process.0)
            }),
        }
    }
    let end = history.events.last().map_or(0, |event| event.time.as_nanos());
    for (key, ops) in &mut keys {
        if let Some(seen) = found.get(key) {
            ops.push(Op::last(history.events.len(), end, seen));
        }
        match OrderSearch::new(ops).run() {
            OrderFound::Ordered => {
                verdict.transactions += ops.iter().filter(|op| op.is_certain()).count()
            }
            OrderFound::Undecided => verdict.undecided += 1,
            OrderFound::Impossible(deepest) => {
                verdict.transactions += ops.iter().filter(|op| op.is_certain()).count();
                verdict.report(AnomalyKind::NotLinear, Promise::RealTime, || {
                    tell(&transactions, *key, ops, &deepest)
                });
            }
        }
    }
    verdict
}

/// What an operation writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Effect {
    /// `None` is a deletion.
    value: Option<i64>,
    /// From when on it may have expired, and from when on it has.
    until: Option<(u64, u64)>,
}

/// One operation on one key. Moments are places in the history; times are nanoseconds.
#[derive(Clone, Debug)]
struct Op {
    /// `None`: the reading of everything in the end.
    by: Option<TxnRef>,
    session: Process,
    invoked: usize,
    /// `usize::MAX` when it never was, so that nothing has to come after it.
    completed: usize,
    begins_at: u64,
    ends_at: u64,
    read: Option<Option<i64>>,
    effect: Option<Effect>,
}

impl Op {
    fn is_certain(&self) -> bool {
        self.completed < usize::MAX
    }

    /// What was there when everything had ended.
    fn last(events: usize, end: u64, seen: &Seen) -> Self {
        let read = if let Seen::Integer(value) = seen { Some(*value) } else { None };
        Self {
            by: None,
            session: Process(u64::MAX),
            invoked: events,
            completed: events + 1,
            begins_at: end,
            ends_at: u64::MAX,
            read: Some(read),
            effect: None,
        }
    }
}

/// A transaction as an operation on each of its keys; none when it did nothing that shows. Whether its
/// keys changed together is not looked at.
fn ops_of(
    history: &History,
    by: TxnRef,
    transactions: &Transactions<'_>,
    slack: Duration,
) -> Result<Vec<(KeyIndex, Op)>, &'static str> {
    const SHAPE: &str =
        "does more to a key than to read it and write it, where this workload has single keys";
    let txn = transactions.get(by);
    let Some(first) = txn.ops.first() else { return Ok(Vec::new()) };
    if txn.ops.iter().any(|op| op.key() != first.key()) && !txn.writes() {
        // A snapshot of several keys may be of an earlier time.
        return Ok(Vec::new());
    }
    let mut found: Vec<(KeyIndex, Option<Option<i64>>, Option<Effect>)> = Vec::new();
    for op in txn.ops {
        let place = found.iter().position(|(key, ..)| *key == op.key()).unwrap_or_else(|| {
            found.push((op.key(), None, None));
            found.len() - 1
        });
        let (_, read, effect) = &mut found[place];
        if effect.is_some() {
            return Err(SHAPE);
        }
        match op {
            MicroOp::Read { seen, .. } => match seen {
                _ if read.is_some() => return Err(SHAPE),
                Seen::Nothing => *read = Some(None),
                Seen::Integer(value) => *read = Some(Some(*value)),
                Seen::List(_) => return Err("reads a list, where this workload has registers"),
            },
            MicroOp::Write { value, .. } => *effect = Some(Effect { value: *value, until: None }),
            MicroOp::WriteUntil { value, until, .. } => {
                let slack = u64::try_from(slack.as_nanos()).unwrap_or(u64::MAX);
                let window = (
                    until.as_nanos().saturating_sub(slack),
                    until.as_nanos().saturating_add(slack),
                );
                *effect = Some(Effect { value: Some(*value), until: Some(window) });
            }
            MicroOp::Append { .. } => {
                return Err("appends to a list, where this workload has registers");
            }
        }
    }
    let is_known = txn.end == TxnEnd::Committed;
    let completed = txn.completed.filter(|_| is_known);
    let time = |place: usize| history.events[place].time.as_nanos();
    found.retain(|(_, _, effect)| is_known || effect.is_some());
    let op = |(key, read, effect): (KeyIndex, Option<Option<i64>>, Option<Effect>)| {
        let op = Op {
            by: Some(by),
            session: txn.session,
            invoked: txn.invoked,
            completed: completed.unwrap_or(usize::MAX),
            begins_at: time(txn.invoked),
            ends_at: completed.map_or(u64::MAX, time),
            // What was asked for is not what was found.
            read: read.filter(|_| is_known),
            effect,
        };
        (key, op)
    };
    Ok(found.into_iter().map(op).collect())
}

/// What the key holds: nothing, or what this operation wrote.
type Held = Option<u32>;

/// Which operations have taken place, and what came of it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
struct SearchState {
    /// Of those that completed, all before this one have taken place.
    base: u32,
    /// Those beyond it that have.
    beyond: Vec<u32>,
    /// Of those of unknown outcome.
    unknown: Vec<u32>,
    held: Held,
    /// No earlier than this.
    time: u64,
}

impl SearchState {
    fn has(&self, at: u32) -> bool {
        at < self.base || self.beyond.binary_search(&at).is_ok()
    }

    /// How many have taken place.
    fn count(&self) -> usize {
        self.base as usize + self.beyond.len()
    }

    fn take(&mut self, at: u32) {
        let place = self.beyond.partition_point(|&other| other < at);
        self.beyond.insert(place, at);
        let run =
            self.beyond.iter().zip(self.base..).take_while(|(one, next)| **one == *next).count();
        self.beyond.drain(..run);
        self.base += run as u32;
    }
}

enum OrderFound {
    Ordered,
    Undecided,
    /// The furthest that any order came.
    Impossible(SearchState),
}

/// See the module.
struct OrderSearch<'a> {
    /// In the order of invocation.
    certain: Vec<&'a Op>,
    /// Of unknown outcome, with the first operation of their session that completed afterwards and
    /// so comes after them.
    unknown: Vec<(&'a Op, Option<u32>)>,
}

impl<'a> OrderSearch<'a> {
    fn new(ops: &'a [Op]) -> Self {
        let mut certain: Vec<&Op> = ops.iter().filter(|op| op.is_certain()).collect();
        certain.sort_by_key(|op| op.invoked);
        let observed: BTreeSet<i64> = certain.iter().filter_map(|op| op.read.flatten()).collect();
        // What nobody saw, and what does not go by itself, explains nothing that would not be
        // explained without it.
        let matters = |op: &&Op| {
            op.effect.is_some_and(|effect| {
                effect.until.is_some() || effect.value.is_none_or(|value| observed.contains(&value))
            })
        };
        let next = |op: &Op| {
            let place = certain
                .iter()
                .position(|other| other.session == op.session && other.invoked > op.invoked);
            place.map(|place| place as u32)
        };
        let unknown = ops
            .iter()
            .filter(|op| !op.is_certain())
            .filter(matters)
            .map(|op| (op, next(op)))
            .collect();
        Self { certain, unknown }
    }

    fn op(&self, held: u32) -> &Op {
        match (held as usize).checked_sub(self.certain.len()) {
            None => self.certain[held as usize],
            Some(at) => self.unknown[at].0,
        }
    }

    fn run(&self) -> OrderFound {
        let mut tried = BTreeSet::new();
        let mut stack = vec![SearchState::default()];
        let mut deepest = SearchState::default();
        let mut next = Vec::new();
        while let Some(state) = stack.pop() {
            if state.count() == self.certain.len() {
                return OrderFound::Ordered;
            }
            if tried.len() >= MAX_ORDER_STATES {
                return OrderFound::Undecided;
            }
            if state.count() > deepest.count() {
                deepest = state.clone();
            }
            next.clear();
            self.successors(&state, &mut next);
            for state in next.drain(..) {
                if tried.insert(state.clone()) {
                    stack.push(state);
                }
            }
        }
        OrderFound::Impossible(deepest)
    }

    /// Those that may come next by real time, of the ones that completed.
    fn candidates(&self, state: &SearchState) -> (Vec<u32>, usize) {
        let mut first_end = usize::MAX;
        let mut open = Vec::new();
        for at in state.base..self.certain.len() as u32 {
            let op = self.certain[at as usize];
            if op.invoked > first_end {
                break;
            }
            if !state.has(at) {
                first_end = first_end.min(op.completed);
                open.push(at);
            }
        }
        open.retain(|&at| self.certain[at as usize].invoked < first_end);
        (open, first_end)
    }

    /// Every state that one more operation leads to, the likeliest last: it is tried first.
    fn successors(&self, state: &SearchState, next: &mut Vec<SearchState>) {
        let (mut open, first_end) = self.candidates(state);
        // A reading that fits may take place at once: nothing depends on it. One of nothing may
        // also come after something that expires before it was invoked: where it moves the time on,
        // it is one possibility among others.
        for &at in &open {
            let op = self.certain[at as usize];
            if op.effect.is_none()
                && op.read == Some(state.held.and_then(|held| self.op(held).effect?.value))
                && let Some(mut after) = self.apply(state, op, at)
                && (after.time == state.time || op.read != Some(None))
            {
                after.take(at);
                next.push(after);
                return;
            }
        }
        for (at, (op, before)) in self.unknown.iter().enumerate() {
            let at = at as u32;
            let is_over = before.is_some_and(|before| state.has(before));
            if op.invoked < first_end
                && !is_over
                && !state.unknown.contains(&at)
                && let Some(mut after) = self.apply(state, op, self.certain.len() as u32 + at)
            {
                let place = after.unknown.partition_point(|&other| other < at);
                after.unknown.insert(place, at);
                next.push(after);
            }
        }
        open.sort_by_key(|&at| std::cmp::Reverse(self.certain[at as usize].completed));
        for at in open {
            if let Some(mut after) = self.apply(state, self.certain[at as usize], at) {
                after.take(at);
                next.push(after);
            }
        }
    }

    /// What the operation leaves, if what it was told fits what is there. The caller notes that it
    /// took place.
    fn apply(&self, state: &SearchState, op: &Op, name: u32) -> Option<SearchState> {
        let mut after = state.clone();
        after.time = after.time.max(op.begins_at);
        let held = state.held.and_then(|held| self.op(held).effect);
        if let Some(seen) = op.read {
            match (seen, held) {
                (None, None) => {}
                // It has expired, at the earliest when it might.
                (None, Some(Effect { until: Some((earliest, _)), .. })) => {
                    after.time = after.time.max(earliest);
                    after.held = None;
                }
                (Some(seen), Some(Effect { value: Some(value), until })) if seen == value => {
                    if until.is_some_and(|(_, latest)| after.time > latest) {
                        return None;
                    }
                }
                _ => return None,
            }
        }
        if after.time > op.ends_at {
            return None;
        }
        if let Some(effect) = op.effect {
            after.held = effect.value.map(|_| name);
        }
        Some(after)
    }
}

/// How far an order comes, and what cannot come next.
fn tell(
    transactions: &Transactions<'_>,
    key: KeyIndex,
    ops: &[Op],
    deepest: &SearchState,
) -> String {
    let search = OrderSearch::new(ops);
    let holds = match deepest.held {
        None => "nothing".to_owned(),
        Some(held) => {
            let op = search.op(held);
            let value = op.effect.and_then(|effect| effect.value).unwrap_or_default();
            let expires =
                op.effect.and_then(|effect| effect.until).map_or("", |_| ", which expires");
            format!("{value}{expires}")
        }
    };
    let mut story = format!(
        "no order of the operations on key {} explains their answers: after {} of {}, the key \
         holds {holds}, and next come",
        key.0,
        deepest.count(),
        search.certain.len()
    );
    let mut steps = String::new();
    for at in search.candidates(deepest).0.into_iter().take(MAX_TOLD) {
        match search.certain[at as usize].by {
            Some(by) => {
                write_value(transactions.get(by).ops, &mut steps);
                story.push_str(&format!("\n  {}: {steps}", transactions.name(by)));
            }
            None => {
                story.push_str(&format!("\n  in the end: {:?}", search.certain[at as usize].read))
            }
        }
    }
    story
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::testing::history;

    /// Times are the places of the lines' events; `slack` is in the same.
    fn within(lines: &[&str], slack: u64) -> Vec<AnomalyKind> {
        let verdict =
            check_single_keys(&history(lines), &BTreeMap::new(), Duration::from_nanos(slack));
        verdict.anomalies.iter().map(|anomaly| anomaly.kind).collect()
    }

    fn check(lines: &[&str]) -> Vec<AnomalyKind> {
        within(lines, 0)
    }

    const NOT: [AnomalyKind; 1] = [AnomalyKind::NotLinear];

    #[test]
    fn a_value_is_taken_once() {
        assert_eq!(
            check(&["0 . [:w 1 7]", "0 . [:r 1 7] [:w 1 nil]", "1 . [:r 1 nil] [:w 1 nil]"]),
            []
        );
        assert_eq!(
            check(&["0 . [:w 1 7]", "0 . [:r 1 7] [:w 1 nil]", "1 . [:r 1 7] [:w 1 nil]"]),
            NOT
        );
        let both = ["0 . [:w 1 7]", "0 + [:r 1 nil] [:w 1 nil]", "1 + [:r 1 nil] [:w 1 nil]"];
        assert_eq!(
            check(&[&both[..], &["0 = [:r 1 7] [:w 1 nil]", "1 = [:r 1 nil] [:w 1 nil]"]].concat()),
            []
        );
        assert_eq!(
            check(&[&both[..], &["0 = [:r 1 7] [:w 1 nil]", "1 = [:r 1 7] [:w 1 nil]"]].concat()),
            NOT
        );
        assert_eq!(
            check(
                &[&both[..], &["0 = [:r 1 nil] [:w 1 nil]", "1 = [:r 1 nil] [:w 1 nil]"]].concat()
            ),
            NOT
        );
    }

    #[test]
    fn a_put_returns_what_was_there_and_not_itself() {
        assert_eq!(check(&["0 . [:w 1 7]", "0 . [:r 1 7] [:w 1 8]", "1 . [:r 1 8]"]), []);
        assert_eq!(check(&["0 . [:w 1 7]", "0 . [:r 1 8] [:w 1 8]", "1 . [:r 1 8]"]), NOT);
    }

    #[test]
    fn what_completed_before_comes_before() {
        assert_eq!(check(&["0 . [:w 1 7]", "0 . [:w 1 8]", "1 . [:r 1 7]"]), NOT);
        let two = ["0 . [:w 1 7]", "0 + [:w 1 8]", "1 . [:r 1 7]", "2 . [:r 1 8]", "0 = [:w 1 8]"];
        assert_eq!(check(&two), []);
        let back = ["0 . [:w 1 7]", "0 + [:w 1 8]", "1 . [:r 1 8]", "2 . [:r 1 7]", "0 = [:w 1 8]"];
        assert_eq!(check(&back), NOT);
    }

    #[test]
    fn a_condition_that_failed_only_read() {
        let failed = ["0 . [:w 1 7]", "1 + [:r 1 nil] [:w 1 8]", "1 = [:r 1 7]", "2 . [:r 1 7]"];
        assert_eq!(check(&failed), []);
        assert_eq!(
            check(&["0 . [:w 1 7]", "1 + [:r 1 nil] [:w 1 8]", "1 = [:r 1 nil]", "2 . [:r 1 7]"]),
            NOT
        );
    }

    #[test]
    fn what_is_unknown_took_place_once_or_never() {
        let lost = ["0 . [:w 1 7]", "1 + [:r 1 nil] [:w 1 nil]", "1 ? [:r 1 nil] [:w 1 nil]"];
        assert_eq!(check(&[&lost[..], &["2 . [:r 1 7]", "2 . [:r 1 nil]"]].concat()), []);
        assert_eq!(
            check(&[&lost[..], &["2 . [:r 1 nil]", "2 . [:w 1 8]", "2 . [:r 1 nil]"]].concat()),
            NOT
        );
        let put = [
            "0 + [:w 1 7]",
            "0 ? [:w 1 7]",
            "1 . [:r 1 nil]",
            "1 . [:w 1 8]",
            "1 . [:r 1 7]",
            "1 . [:r 1 7]",
        ];
        assert_eq!(check(&put), []);
        assert_eq!(check(&[&put[..], &["1 . [:w 1 9]", "1 . [:r 1 7]"]].concat()), NOT);
    }

    #[test]
    fn a_reading_of_nothing_may_come_after_what_expired_meanwhile() {
        // The put and the first reading took place before the second reading was asked for, and
        // were answered after it.
        let slow = ["0 + [:w 1 7 1]", "1 + [:r 1 nil]", "2 + [:r 1 nil]"];
        assert_eq!(
            check(&[&slow[..], &["1 = [:r 1 7]", "0 = [:w 1 7 1]", "2 = [:r 1 nil]"]].concat()),
            []
        );
        let late = ["0 + [:w 1 7 1]", "2 + [:r 1 nil]", "1 + [:r 1 nil]"];
        assert_eq!(
            check(&[&late[..], &["1 = [:r 1 7]", "0 = [:w 1 7 1]", "2 = [:r 1 nil]"]].concat()),
            NOT
        );
    }

    #[test]
    fn what_has_expired_does_not_come_back() {
        // Places: the put 0 and 1, each reading two more.
        let seen = |until: u64, reads: &[&str]| {
            let mut lines = vec![format!("0 . [:w 1 7 {until}]")];
            lines.extend(reads.iter().map(|seen| format!("1 . [:r 1 {seen}]")));
            within(&lines.iter().map(String::as_str).collect::<Vec<_>>(), 2)
        };
        assert_eq!(seen(4, &["7", "7", "nil", "nil"]), []);
        assert_eq!(seen(4, &["7", "nil", "7"]), NOT, "it comes back");
        assert_eq!(seen(20, &["7", "nil", "nil"]), NOT, "too early");
        assert_eq!(seen(4, &["7", "7", "7", "7", "7"]), NOT, "too late");
        assert_eq!(
            check(&["0 . [:w 1 7 3]", "1 . [:r 1 nil] [:w 1 8]", "2 . [:r 1 8]"]),
            [],
            "put where it had expired"
        );
    }

    #[test]
    fn the_end_is_one_more_reading() {
        let lines = ["0 . [:w 1 7]", "0 . [:w 1 8]"];
        let end = |seen| {
            check_single_keys(&history(&lines), &[(KeyIndex(1), seen)].into(), Duration::ZERO)
        };
        assert!(end(Seen::Integer(8)).is_valid());
        assert!(!end(Seen::Integer(7)).is_valid() && !end(Seen::Nothing).is_valid());
    }

    #[test]
    fn a_story_says_where_no_order_goes_on() {
        let lines = ["0 . [:w 1 7]", "0 . [:r 1 7] [:w 1 nil]", "1 . [:r 1 7] [:w 1 nil]"];
        let verdict = check_single_keys(&history(&lines), &BTreeMap::new(), Duration::ZERO);
        let story = verdict.anomalies[0].to_string();
        assert!(
            story.starts_with("not linearizable, in real time: no order")
                && story.contains("after 2 of 3"),
            "{story}"
        );
        assert!(
            story.contains("holds nothing")
                && story.contains("T4 (process 1): [[:r 1 7] [:w 1 nil]]"),
            "{story}"
        );
    }

    #[test]
    fn many_operations_of_unknown_outcome_do_not_stop_it() {
        let mut lines: Vec<String> = Vec::new();
        for n in 0..200 {
            lines.push(format!("{n} + [:w 1 {n}]"));
            lines.push(format!("{n} ? [:w 1 {n}]"));
            lines.push(format!("1000 . [:w 1 {}]", 1000 + n));
            lines.push(format!("1000 . [:r 1 {}]", 1000 + n));
            if n % 7 == 0 {
                lines.push(format!("1000 . [:r 1 {n}]"));
            }
        }
        let history = history(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        let verdict = check_single_keys(&history, &BTreeMap::new(), Duration::ZERO);
        assert_eq!((verdict.anomalies, verdict.transactions > 400), (vec![], true));
    }
}
