//! Cycles of the dependency graph: which anomaly each is, as short as can be found, in words.
//!
//! | anomaly | what closes the cycle |
//! |---|---|
//! | G0 | writes alone |
//! | G1c | writes and readings of them |
//! | G-single | and exactly one anti-dependency; a lost update when two transactions replace one version of one key |
//! | G2-item | and several |
//!
//! First with these edges alone, then with the order of sessions, then with real time, as far as it was promised; the first that
//! finds something is the weakest promise broken, and the search ends there. From edges inside a strongly connected component, a
//! breadth-first search finds the shortest way back, in which moments and tails cost nothing.

use std::collections::VecDeque;

use super::graph::{Edge, Graph, Node, Why};
use super::transactions::{Transactions, TxnRef};
use super::verdict::{AnomalyKind, Promise, Verdict};
use crate::KeyIndex;
use crate::limits::MAX_CYCLE_SEARCHES;

/// Adds the order of sessions and real time to a graph of dependencies, and reports its cycles.
pub(super) fn report(transactions: &Transactions<'_>, mut graph: Graph, promise: Promise, verdict: &mut Verdict) {
    add_orders(transactions, &mut graph, promise);
    graph.seal();
    for (breaks, order) in [
        (Promise::Serializable, 0),
        (Promise::Session, Why::Session.bit()),
        (Promise::RealTime, Why::Session.bit() | Why::RealTime.bit()),
    ] {
        if breaks > promise {
            return;
        }
        let mut search = Search::new(&graph);
        let mut found = Vec::new();
        search.run(order, &mut found);
        for cycle in &found {
            verdict.report(kind_of(cycle), breaks, || tell(transactions, &graph, cycle));
        }
        if !found.is_empty() {
            return;
        }
    }
}

/// Sessions as edges from each transaction to its process's next one; real time as the chain of moments.
fn add_orders(transactions: &Transactions<'_>, graph: &mut Graph, promise: Promise) {
    let order = |from, to, why| Edge { from, to, why, key: KeyIndex(0), value: None };
    if promise >= Promise::Session {
        let mut last = std::collections::BTreeMap::new();
        for (TxnRef(node), txn) in transactions.iter().filter(|(_, txn)| txn.completed.is_some()) {
            if let Some(before) = last.insert(txn.process, node) {
                graph.add(order(before, node, Why::Session));
            }
        }
    }
    if promise < Promise::RealTime {
        return;
    }
    // Where transactions of unknown outcome begin, real time matters too: nothing takes effect before it was invoked.
    let mut happenings: Vec<(usize, Node, bool)> = Vec::new();
    for (TxnRef(node), txn) in transactions.iter() {
        happenings.push((txn.invoked, node, true));
        if let Some(completed) = txn.completed {
            happenings.push((completed, node, false));
        }
    }
    happenings.sort_unstable();
    let mut moment = None;
    for (_, node, is_invocation) in happenings {
        if is_invocation {
            if let Some(moment) = moment {
                graph.add(order(moment, node, Why::RealTime));
            }
            continue;
        }
        let next = graph.add_helper();
        if let Some(before) = moment {
            graph.add(order(before, next, Why::RealTime));
        }
        graph.add(order(node, next, Why::RealTime));
        moment = Some(next);
    }
}

type Cycle = Vec<Edge>;

struct Search<'a> {
    graph: &'a Graph,
    /// By which search a node was reached, by which edge, and at what cost.
    reached: Vec<(u32, Option<Edge>, u32)>,
    searches: u32,
}

impl<'a> Search<'a> {
    fn new(graph: &'a Graph) -> Self {
        Self { graph, reached: vec![(0, None, 0); graph.len() as usize], searches: 0 }
    }

    /// The shortest cycle of each kind in each component, with these edges of order.
    fn run(&mut self, order: u8, found: &mut Vec<Cycle>) {
        let writes = Why::Ww.bit() | order;
        let reads = writes | Why::Wr.bit();
        let all = reads | Why::Rw.bit();
        self.through(Why::Ww, writes, writes, found);
        self.through(Why::Wr, reads, reads, found);
        let before = found.len();
        self.through(Why::Rw, reads, all, found);
        // Where one anti-dependency suffices, the component's further ones are usually its echo.
        if found.len() == before {
            self.through(Why::Rw, all, all, found);
        }
    }

    /// Per component of the `within` edges, the shortest cycle that begins with an edge of kind `first` and returns by `back` edges.
    fn through(&mut self, first: Why, back: u8, within: u8, found: &mut Vec<Cycle>) {
        let components = self.graph.components(within);
        let mut best: std::collections::BTreeMap<u32, (usize, Option<Cycle>)> = std::collections::BTreeMap::new();
        let inside = |edge: &&Edge| components[edge.from as usize] == components[edge.to as usize];
        for edge in self
            .graph
            .edges()
            .iter()
            .filter(|edge| edge.why == first && self.graph.is_transaction(edge.from))
            .filter(inside)
        {
            let component = components[edge.from as usize];
            let (searches, shortest) = best.entry(component).or_default();
            if *searches == MAX_CYCLE_SEARCHES {
                continue;
            }
            *searches += 1;
            if let Some(cycle) = self.shortest_back(*edge, back, &components)
                && shortest.as_ref().is_none_or(|known| self.length(&cycle) < self.length(known))
            {
                *shortest = Some(cycle);
            }
        }
        found.extend(best.into_values().filter_map(|(_, cycle)| cycle));
    }

    /// How many transactions a cycle has.
    fn length(&self, cycle: &Cycle) -> usize {
        cycle.iter().filter(|edge| self.graph.is_transaction(edge.from)).count()
    }

    /// The shortest way from the edge's end to its origin, inside its component, with the edge at the front.
    fn shortest_back(&mut self, first: Edge, back: u8, components: &[u32]) -> Option<Cycle> {
        self.searches += 1;
        let search = self.searches;
        let component = components[first.from as usize];
        let mut queue = VecDeque::from([(first.to, 0)]);
        self.reached[first.to as usize] = (search, None, 0);
        while let Some((node, cost)) = queue.pop_front() {
            if node == first.from {
                return Some(self.way_to(node, first));
            }
            if cost > self.reached[node as usize].2 {
                continue;
            }
            // A tail leads to unseen appends; one by the reader itself does not follow its own reading. And what continues an
            // anti-dependency through a tail is the same version order, whatever `back` allows.
            let starts_at_tail = node == first.to && !self.graph.is_transaction(node);
            for edge in self.graph.leaving(node) {
                if (starts_at_tail && edge.to == first.from) || edge.why.bit() & back == 0 {
                    continue;
                }
                if components[edge.to as usize] != component {
                    continue;
                }
                let is_free = !self.graph.is_transaction(edge.to);
                let next_cost = cost + u32::from(!is_free);
                let (reached_by, _, known_cost) = self.reached[edge.to as usize];
                if reached_by == search && known_cost <= next_cost {
                    continue;
                }
                self.reached[edge.to as usize] = (search, Some(*edge), next_cost);
                if is_free {
                    queue.push_front((edge.to, next_cost));
                } else {
                    queue.push_back((edge.to, next_cost));
                }
            }
        }
        None
    }

    fn way_to(&self, end: Node, first: Edge) -> Cycle {
        let mut way = Vec::new();
        let mut node = end;
        while let (_, Some(edge), _) = self.reached[node as usize] {
            way.push(edge);
            node = edge.from;
        }
        way.push(first);
        way.reverse();
        way
    }
}

fn kind_of(cycle: &Cycle) -> AnomalyKind {
    let count = |why| cycle.iter().filter(|edge| edge.why == why).count();
    match (count(Why::Rw), count(Why::Wr)) {
        (0, 0) => AnomalyKind::G0,
        (0, _) => AnomalyKind::G1c,
        (1, 0) if cycle.iter().all(|edge| edge.key == cycle[0].key && matches!(edge.why, Why::Rw | Why::Ww)) => {
            AnomalyKind::LostUpdate
        }
        (1, _) => AnomalyKind::GSingle,
        _ => AnomalyKind::G2Item,
    }
}

/// A cycle in words: "T1 … ; T2 … ; and so T1 precedes itself".
fn tell(transactions: &Transactions<'_>, graph: &Graph, cycle: &Cycle) -> String {
    let mut story = String::new();
    let name = |node: Node| transactions.name(TxnRef(node));
    let mut at = 0;
    while at < cycle.len() {
        let first = cycle[at];
        // Moments and tails in between are passed over.
        while !graph.is_transaction(cycle[at].to) {
            at += 1;
        }
        let (from, to, last) = (name(first.from), name(cycle[at].to), cycle[at]);
        let key = first.key.0;
        let value = last.value.map_or_else(|| "a value".to_owned(), |value| value.to_string());
        let step = match first.why {
            Why::Ww => format!("{from} wrote key {key} before {to} wrote {value} to it"),
            Why::Wr => format!("{from} wrote {value} to key {key}, which {to} read"),
            Why::Rw => format!("{from} read key {key} without {value}, which {to} wrote"),
            Why::Session => format!("{from} came before {to} in their session"),
            Why::RealTime => format!("{from} had completed when {to} was invoked"),
        };
        story.push_str("\n  ");
        story.push_str(&step);
        at += 1;
    }
    story.push_str("\n  and so ");
    story.push_str(&name(cycle[0].from));
    story.push_str(" precedes itself");
    story
}
