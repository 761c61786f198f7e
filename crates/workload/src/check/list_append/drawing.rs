//! The graph of a list-append history: what follows from the order of each key's versions.

use std::collections::BTreeSet;

use super::{KeyLives, ListLife};
use crate::KeyIndex;
use crate::check::conflicts::{ConflictWalk, Contradiction};
use crate::check::graph::{Edge, Graph, Why};
use crate::check::transactions::{Transactions, TxnRef};
use crate::check::verdict::{AnomalyKind, CheckResult, Promise};

/// What the keys' orders of versions come to.
pub(super) struct Drawing<'t, 'a> {
    pub(super) transactions: &'t Transactions<'a>,
    pub(super) took_effect: &'t [bool],
    pub(super) graph: Graph,
    pub(super) contradictions: Vec<Contradiction>,
}

impl Drawing<'_, '_> {
    /// One key's dependencies.
    pub(super) fn draw(&mut self, key: KeyIndex, facts: &KeyLives<'_>, verdict: &mut CheckResult) {
        let unseen = if facts.vague == 0 { self.unseen(facts) } else { Vec::new() };
        let is_open = |life: &&ListLife<'_>| life.ends.is_empty();
        let last = if facts.lives.iter().filter(is_open).count() == 1 {
            facts.lives.iter().find(is_open)
        } else {
            None
        };
        for life in &facts.lives {
            // What nobody saw was not deleted either, and so it stands in the last life.
            let is_last = last.is_some_and(|last| std::ptr::eq(last, life));
            self.draw_life(key, facts, life, if is_last { &unseen } else { &[] }, verdict);
        }
        if !facts.is_deleted || facts.vague > 0 {
            return;
        }
        let enders: Vec<TxnRef> =
            facts.lives.iter().flat_map(|life| life.ends.iter().map(|(by, _)| *by)).collect();
        match last {
            Some(last) => {
                let first = last
                    .longest
                    .first()
                    .and_then(|first| Some((*first, facts.appends.get(first)?.by)));
                for (from, (value, to)) in enders.iter().filter_map(|by| Some((*by, first?))) {
                    self.graph.add(Edge {
                        from: from.0,
                        to: to.0,
                        why: Why::Ww,
                        key,
                        value: Some(value),
                    });
                }
            }
            None if facts.lives.iter().all(|life| !life.ends.is_empty()) => {
                let crowd = self.graph.add_helper();
                let authors: BTreeSet<TxnRef> = unseen.iter().map(|(_, by)| *by).collect();
                for (element, by) in &unseen {
                    self.graph.add(Edge {
                        from: crowd,
                        to: by.0,
                        why: Why::Ww,
                        key,
                        value: Some(*element),
                    });
                }
                // Whoever deleted a life and began the last one is in the crowd itself.
                for by in enders.iter().filter(|by| !authors.contains(by)) {
                    self.graph.add(Edge { from: by.0, to: crowd, why: Why::Ww, key, value: None });
                }
            }
            None => {}
        }
    }

    /// One life's dependencies; `unseen` are appends to its end that nobody saw.
    fn draw_life(
        &mut self,
        key: KeyIndex,
        facts: &KeyLives<'_>,
        life: &ListLife<'_>,
        unseen: &[(i64, TxnRef)],
        verdict: &mut CheckResult,
    ) {
        let order = life.longest;
        let writer = |element: &i64| facts.appends.get(element).map(|append| append.by);
        for pair in order.windows(2) {
            if let (Some(from), Some(to)) = (writer(&pair[0]), writer(&pair[1])) {
                self.graph.add(Edge {
                    from: from.0,
                    to: to.0,
                    why: Why::Ww,
                    key,
                    value: Some(pair[1]),
                });
            }
        }
        // By how much they saw.
        let mut readers: Vec<(usize, TxnRef)> = Vec::with_capacity(life.reads.len());
        for (reader, list) in life.reads.iter().filter(|(_, list)| order.starts_with(list)) {
            if let Some((last, from)) = list.last().and_then(|last| Some((*last, writer(last)?))) {
                self.graph.add(Edge {
                    from: from.0,
                    to: reader.0,
                    why: Why::Wr,
                    key,
                    value: Some(last),
                });
            }
            if let Some((next, to)) =
                order.get(list.len()).and_then(|next| Some((*next, writer(next)?)))
            {
                self.graph.add(Edge {
                    from: reader.0,
                    to: to.0,
                    why: Why::Rw,
                    key,
                    value: Some(next),
                });
            }
            readers.push((list.len(), *reader));
        }
        readers.sort_unstable();
        let saw_all = &readers[readers.partition_point(|(length, _)| *length < order.len())..];
        // Who deleted it found all of it, or else that is told already.
        let end = match life.ends[..] {
            [(by, found)] if found == order => Some(by),
            _ => None,
        };
        if let Some(end) = end {
            let last = order.last().and_then(writer).map(|by| (by, Why::Ww));
            for (from, why) in
                last.into_iter().chain(saw_all.iter().map(|(_, reader)| (*reader, Why::Rw)))
            {
                self.graph.add(Edge { from: from.0, to: end.0, why, key, value: None });
            }
        }
        self.draw_end(key, order.last().and_then(writer), unseen, saw_all, verdict);
        self.walk(
            key,
            order.iter().map(|element| (*element, writer(element))),
            unseen,
            &readers,
            end,
        );
    }

    /// Appends that certainly happened and that nobody saw: they come after everything that was
    /// seen.
    fn unseen(&self, facts: &KeyLives<'_>) -> Vec<(i64, TxnRef)> {
        let seen: BTreeSet<i64> =
            facts.lives.iter().flat_map(|life| life.longest).copied().collect();
        facts
            .appends
            .iter()
            .filter(|(element, append)| {
                self.took_effect[append.by.0 as usize] && !append.is_void && !seen.contains(element)
            })
            .map(|(element, append)| (*element, append.by))
            .collect()
    }

    /// The edges from the seen end of a list to the appends that nobody saw.
    fn draw_end(
        &mut self,
        key: KeyIndex,
        last_writer: Option<TxnRef>,
        unseen: &[(i64, TxnRef)],
        readers_of_all: &[(usize, TxnRef)],
        verdict: &mut CheckResult,
    ) {
        if unseen.is_empty() {
            return;
        }
        let authors: BTreeSet<TxnRef> = unseen.iter().map(|(_, by)| *by).collect();
        let crowd = self.graph.add_helper();
        for (element, by) in unseen {
            self.graph.add(Edge {
                from: crowd,
                to: by.0,
                why: Why::Ww,
                key,
                value: Some(*element),
            });
        }
        let (replacers, others): (Vec<TxnRef>, Vec<TxnRef>) = readers_of_all
            .iter()
            .map(|(_, reader)| *reader)
            .partition(|reader| authors.contains(reader));
        for other in others {
            self.graph.add(Edge { from: other.0, to: crowd, why: Why::Rw, key, value: None });
        }
        // Whoever is in the crowd itself is led to its others one by one, lest it follow itself. Of
        // the readers among them there is one at most, or else an update is lost, and nothing more
        // to be told.
        let reader = if let [reader] = replacers[..] { Some((reader, Why::Rw)) } else { None };
        for (from, why) in last_writer.map(|by| (by, Why::Ww)).into_iter().chain(reader) {
            if !authors.contains(&from) {
                self.graph.add(Edge { from: from.0, to: crowd, why, key, value: None });
                continue;
            }
            for (element, by) in unseen {
                self.graph.add(Edge { from: from.0, to: by.0, why, key, value: Some(*element) });
            }
        }
        if let [one, two, ..] = replacers[..] {
            verdict.report(AnomalyKind::LostUpdate, Promise::Serializable, || {
                let (one, two) = (self.transactions.name(one), self.transactions.name(two));
                format!(
                    "{one} and {two} both read key {} as nobody saw it longer, and appended to it",
                    key.0
                )
            });
        }
    }

    /// Compares the key's order with the real time of its transactions.
    fn walk(
        &mut self,
        key: KeyIndex,
        order: impl Iterator<Item = (i64, Option<TxnRef>)>,
        unseen: &[(i64, TxnRef)],
        readers: &[(usize, TxnRef)],
        end: Option<TxnRef>,
    ) {
        let mut walk = ConflictWalk::new(self.transactions, key, &mut self.contradictions);
        let mut readers = readers.iter().peekable();
        let mut reached = 0;
        let mut read_at = |walk: &mut ConflictWalk<'_, '_>, reached: usize| {
            while let Some((_, reader)) = readers.next_if(|(length, _)| *length <= reached) {
                walk.read(*reader);
            }
        };
        for (element, by) in order {
            read_at(&mut walk, reached);
            if let Some(by) = by {
                walk.write(by, Some(element));
            }
            reached += 1;
        }
        read_at(&mut walk, reached);
        for (element, by) in unseen {
            walk.write_unseen(*by, *element);
        }
        if let Some(end) = end {
            walk.write(end, None);
        }
    }
}
