//! What servers without a log may lose when they die, taken out of a history: what is left must be
//! as promised.
//!
//! ```text
//!   acknowledged ──┤                from ├── may be lost ──┤ to: the crash
//!                  stays, and is judged      taken out: its writes, and what others read of them
//! ```
//! A transaction may be lost when any of it lies between `from` and `to`, and then in part: with
//! `none`, each of its shards keeps or loses its share alone. What is never lost keeps its order:
//! every read is at a timestamp, and the writes that stay lie below or above it whatever else is
//! gone. So the history without the lost writes has a serial order, if the whole one had one.
//!
//! Source: docs/operating.md, "Log devices, and what each promises".

use std::collections::{BTreeMap, BTreeSet};

use timestone_types::Timestamp;

use crate::KeyIndex;
use crate::history::{Event, EventKind, History, MicroOp, Process, Seen};

/// A time in which what was acknowledged may be lost: a server without a log died at its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loss {
    /// What was acknowledged before is there for good.
    pub from: Timestamp,
    /// When it died.
    pub to: Timestamp,
}

/// A history without what may be lost.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KeptHistory {
    /// What is left of it.
    pub history: History,
    /// Elements of lists and values of registers that may be lost.
    perishable: BTreeSet<(KeyIndex, i64)>,
    /// Keys whose deletion or expiry may be lost: their absence tells nothing.
    unsure: BTreeSet<KeyIndex>,
    /// Whether keys hold lists. One whose deletion may be lost may be whole again, so that nothing
    /// of it tells anything.
    is_of_lists: bool,
}

impl KeptHistory {
    /// Takes everything that `losses` may have taken out of a history.
    #[must_use]
    pub fn of(history: &History, losses: &[Loss]) -> Self {
        let of_list = |op: &MicroOp| {
            matches!(op, MicroOp::Append { .. } | MicroOp::Read { seen: Seen::List(_), .. })
        };
        let is_of_lists = history.events.iter().flat_map(|event| &event.ops).any(of_list);
        let mut kept = Self { history: history.clone(), is_of_lists, ..Self::default() };
        let pairs = pairs(&history.events);
        let may_be_lost = |pair: &Pair| {
            let invoked = history.events[pair.invoked].time;
            let completed = pair.completed.map(|place| &history.events[place]);
            let ended =
                completed.filter(|event| event.kind == EventKind::Ok).map(|event| event.time);
            completed.is_none_or(|event| event.kind != EventKind::Fail)
                && losses
                    .iter()
                    .any(|loss| invoked <= loss.to && ended.is_none_or(|ended| ended >= loss.from))
        };
        let lost: Vec<bool> = pairs.iter().map(may_be_lost).collect();
        for (pair, _) in pairs.iter().zip(&lost).filter(|(_, lost)| **lost) {
            kept.note(&history.events[pair.invoked].ops);
            pair.completed.into_iter().for_each(|place| kept.note(&history.events[place].ops));
        }
        for (pair, lost) in pairs.iter().zip(lost) {
            kept.rewrite(pair, lost);
        }
        kept
    }

    /// Of what was read in the end, what tells something.
    #[must_use]
    pub fn end(&self, found: &BTreeMap<KeyIndex, Seen>) -> BTreeMap<KeyIndex, Seen> {
        let of_key = |(key, seen): (&KeyIndex, &Seen)| match seen {
            Seen::Nothing => (!self.unsure.contains(key)).then_some((*key, Seen::Nothing)),
            Seen::Integer(value) => {
                (!self.perishable.contains(&(*key, *value))).then(|| (*key, seen.clone()))
            }
            Seen::List(list) => {
                (!self.unsure.contains(key)).then(|| (*key, Seen::List(self.without(*key, list))))
            }
        };
        found.iter().filter_map(of_key).collect()
    }

    /// Notes what the writes of a transaction that may be lost are known by.
    fn note(&mut self, ops: &[MicroOp]) {
        for op in ops {
            match *op {
                MicroOp::Read { .. } => {}
                MicroOp::Append { key, element } => {
                    self.perishable.insert((key, element));
                }
                MicroOp::Write { key, value } => {
                    self.perishable.extend(value.map(|value| (key, value)));
                    if value.is_none() {
                        self.unsure.insert(key);
                    }
                }
                MicroOp::WriteUntil { key, value, .. } => {
                    self.perishable.insert((key, value));
                    self.unsure.insert(key);
                }
            }
        }
    }

    fn without(&self, key: KeyIndex, list: &[i64]) -> Vec<i64> {
        list.iter().copied().filter(|element| !self.perishable.contains(&(key, *element))).collect()
    }

    /// Rewrites a transaction: the steps that stay, with what they read of what stays.
    fn rewrite(&mut self, pair: &Pair, is_lost: bool) {
        let invoked = std::mem::take(&mut self.history.events[pair.invoked].ops);
        let completed =
            pair.completed.map(|place| std::mem::take(&mut self.history.events[place].ops));
        // Of what may be lost, writes of registers are left as deletions that nobody knows of:
        // their keys may be absent at any time.
        let is_vague = is_lost
            && !self.is_of_lists
            && invoked
                .iter()
                .any(|op| matches!(op, MicroOp::Write { .. } | MicroOp::WriteUntil { .. }));
        let told = completed.as_deref().filter(|told| told.len() == invoked.len());
        let stays: Vec<bool> = invoked
            .iter()
            .zip(told.unwrap_or(&invoked))
            .map(|(_, op)| match op {
                _ if self.is_of_lists && self.unsure.contains(&op.key()) => false,
                MicroOp::Read { .. } if is_vague => false,
                MicroOp::Read { key, seen: Seen::Integer(value) } => {
                    !self.perishable.contains(&(*key, *value))
                }
                MicroOp::Read { .. } => true,
                MicroOp::Append { .. } => !is_lost,
                MicroOp::Write { .. } | MicroOp::WriteUntil { .. } => true,
            })
            .collect();
        let left = |kept: &Self, ops: Vec<MicroOp>| -> Vec<MicroOp> {
            let ops = ops.into_iter().zip(stays.iter().chain(std::iter::repeat(&true)));
            ops.filter(|(_, stays)| **stays).map(|(op, _)| kept.step(op, is_vague)).collect()
        };
        self.history.events[pair.invoked].ops = left(self, invoked);
        if let (Some(place), Some(ops)) = (pair.completed, completed) {
            self.history.events[place].ops = left(self, ops);
            if is_vague {
                self.history.events[place].kind = EventKind::Info;
            }
        }
    }

    fn step(&self, op: MicroOp, is_vague: bool) -> MicroOp {
        match op {
            MicroOp::Read { key, seen: Seen::List(list) } => {
                MicroOp::Read { key, seen: Seen::List(self.without(key, &list)) }
            }
            MicroOp::Write { key, .. } | MicroOp::WriteUntil { key, .. } if is_vague => {
                MicroOp::Write { key, value: None }
            }
            other => other,
        }
    }
}

/// The history up to a moment; what was under way then is of unknown outcome.
#[must_use]
pub fn history_until(history: &History, at: Timestamp) -> History {
    let events = history.events.iter().take_while(|event| event.time <= at).cloned().collect();
    History { head: history.head.clone(), events, successors: history.successors.clone() }
}

/// An invocation and its completion, as places among the events.
struct Pair {
    invoked: usize,
    completed: Option<usize>,
}

fn pairs(events: &[Event]) -> Vec<Pair> {
    let (mut pairs, mut open) = (Vec::<Pair>::new(), BTreeMap::<Process, usize>::new());
    for (place, event) in events.iter().enumerate() {
        if event.kind == EventKind::Invoke {
            open.insert(event.process, pairs.len());
            pairs.push(Pair { invoked: place, completed: None });
        } else if let Some(at) = open.remove(&event.process) {
            pairs[at].completed = Some(place);
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::testing::{history, kinds};
    use crate::check::{
        AnomalyKind, Promise, check_durability, check_last_values, check_list_append,
        check_register,
    };

    /// Times of a history in short are the places of its events.
    fn loss(from: u64, to: u64) -> Loss {
        Loss { from: Timestamp::from_nanos(from), to: Timestamp::from_nanos(to) }
    }

    fn lists(kept: &KeptHistory, list: &[i64]) -> BTreeMap<KeyIndex, Vec<i64>> {
        let end = kept.end(&[(KeyIndex(1), Seen::List(list.to_vec()))].into());
        let Some(Seen::List(list)) = end.get(&KeyIndex(1)) else { panic!("{end:?}") };
        [(KeyIndex(1), list.clone())].into()
    }

    #[test]
    fn an_append_within_the_loss_may_be_gone_and_one_before_it_may_not() {
        let told = history(&[
            "0 . [:append 1 7]",
            "1 . [:append 1 8]",
            "0 . [:r 1 [7 8]]",
            "2 . [:r 1 [7]]",
        ]);
        let whole = KeptHistory::of(&told, &[]);
        assert!(
            !check_durability(&told, &lists(&whole, &[7])).is_valid(),
            "nobody may lose 8 here"
        );
        let kept = KeptHistory::of(&told, &[loss(2, 5)]);
        assert!(check_list_append(&kept.history, Promise::Conflicts).is_valid());
        assert!(check_durability(&kept.history, &lists(&kept, &[7])).is_valid());
        assert!(
            check_durability(&kept.history, &lists(&kept, &[7, 8])).is_valid(),
            "it may be there as well"
        );
        let lost = check_durability(&kept.history, &lists(&kept, &[8]));
        assert_eq!(kinds(&lost)[0].0, AnomalyKind::LostWrite, "7 was acknowledged before");
    }

    #[test]
    fn what_aborted_is_never_there_whatever_was_lost() {
        let told = history(&["0 + [:append 1 7]", "0 ! [:append 1 7]"]);
        let kept = KeptHistory::of(&told, &[loss(0, 5)]);
        let verdict = check_durability(&kept.history, &lists(&kept, &[7]));
        assert_eq!(kinds(&verdict)[0].0, AnomalyKind::G1a);
    }

    #[test]
    fn what_is_unknown_may_be_there_in_part_when_it_began_before_the_crash() {
        let told = history(&[
            "0 + [:append 1 7] [:append 2 8]",
            "0 ? [:append 1 7] [:append 2 8]",
            "1 . [:r 1 []]",
        ]);
        let halves = |kept: &KeptHistory| {
            let end = kept.end(
                &[(KeyIndex(1), Seen::List(vec![7])), (KeyIndex(2), Seen::List(vec![]))].into(),
            );
            let list = |(key, seen): (KeyIndex, Seen)| match seen {
                Seen::List(list) => (key, list),
                other => panic!("{other:?}"),
            };
            check_durability(&kept.history, &end.into_iter().map(list).collect()).is_valid()
        };
        assert!(halves(&KeptHistory::of(&told, &[loss(2, 3)])));
        assert!(!halves(&KeptHistory::of(&told, &[])));
    }

    #[test]
    fn a_register_may_go_back_to_what_it_was_before_the_loss_and_no_further() {
        let told = history(&[
            "0 . [:w 1 6]",
            "0 . [:r 1 6] [:w 1 7]",
            "0 . [:r 1 7] [:w 1 8]",
            "1 . [:r 1 8]",
            "1 . [:r 1 7]",
        ]);
        let kept = KeptHistory::of(&told, &[loss(4, 6)]);
        assert!(!check_register(&told, Promise::Session).is_valid());
        assert!(check_register(&kept.history, Promise::Session).is_valid());
        let end = |value| {
            check_last_values(
                &kept.history,
                &kept.end(&[(KeyIndex(1), Seen::Integer(value))].into()),
            )
        };
        assert!(end(7).is_valid() && end(8).is_valid());
        assert!(end(6).has(AnomalyKind::LostWrite));
    }

    #[test]
    fn a_deletion_within_the_loss_leaves_open_whether_the_key_is_there() {
        let told = history(&["0 . [:w 1 7]", "0 . [:w 1 nil]", "1 . [:r 1 nil]", "1 . [:r 1 7]"]);
        let kept = KeptHistory::of(&told, &[loss(2, 4)]);
        assert!(check_register(&kept.history, Promise::Session).is_valid());
        for end in [Seen::Nothing, Seen::Integer(7)] {
            assert!(
                check_last_values(&kept.history, &kept.end(&[(KeyIndex(1), end)].into()))
                    .is_valid()
            );
        }
    }

    #[test]
    fn a_list_whose_deletion_may_be_lost_is_not_judged() {
        let told =
            history(&["0 . [:append 1 7]", "0 . [:w 1 nil]", "1 . [:r 1 []]", "1 . [:r 1 [7]]"]);
        let kept = KeptHistory::of(&told, &[loss(2, 4)]);
        assert!(check_list_append(&kept.history, Promise::Conflicts).is_valid());
        assert!(kept.end(&[(KeyIndex(1), Seen::List(vec![7]))].into()).is_empty());
    }

    #[test]
    fn a_history_up_to_a_moment_knows_nothing_of_what_came_later() {
        let told = history(&["0 + [:append 1 7]", "1 . [:r 1 []]", "0 = [:append 1 7]"]);
        assert_eq!(history_until(&told, Timestamp::from_nanos(2)).events.len(), 3);
    }
}
