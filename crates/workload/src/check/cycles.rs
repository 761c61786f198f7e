//! Cycles of the dependency graph: which anomaly each is, as short as can be found.
//!
//! | anomaly | what closes the cycle |
//! |---|---|
//! | G0 | writes alone |
//! | G1c | writes and readings of them |
//! | G-single | and exactly one anti-dependency; a lost update when two transactions replace one version of one key |
//! | G2-item | and several |
//!
//! First with these edges alone, then with the order of sessions, then direct conflicts in real
//! time, then all of real time, as far as it was promised; the first that finds something is the
//! weakest promise broken, and the search ends there.
//!
//! A strongly connected component tells in linear time that there is a cycle. From the edges
//! inside, breadth-first searches find the shortest way back, in which helpers cost nothing; no
//! search goes farther than the best way known. In a component too large to be searched from every
//! edge, the cycle found may be neither the shortest nor of the weakest kind.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::conflicts::Contradiction;
use super::graph::{Edge, Graph, Why};
use super::orders::{add_real_time, add_sessions};
use super::story::tell;
use super::transactions::Transactions;
use super::verdict::{AnomalyKind, CheckResult, Promise};
use crate::limits::MAX_CYCLE_STEPS;

/// Adds the order of sessions and real time to a graph of dependencies, and reports its cycles.
/// `contradictions` are those between direct conflicts and real time.
pub(super) fn report(
    transactions: &Transactions<'_>,
    mut graph: Graph,
    contradictions: &[Contradiction],
    promise: Promise,
    verdict: &mut CheckResult,
) {
    if promise >= Promise::Session {
        add_sessions(transactions, &mut graph);
    }
    if promise >= Promise::RealTime {
        add_real_time(transactions, &mut graph);
    }
    graph.seal();
    let mut search = CycleSearch::new(&graph);
    let contradictions = if promise >= Promise::Conflicts { contradictions } else { &[] };
    if contradictions.is_empty() && search.is_acyclic(u8::MAX) {
        return;
    }
    let sessions = Why::Session.bit() | Why::RwBySession.bit();
    let real_time = sessions | Why::RealTime.bit() | Why::RwByTime.bit();
    for (breaks, order) in [
        (Promise::Serializable, 0),
        (Promise::Session, sessions),
        (Promise::Conflicts, sessions),
        (Promise::RealTime, real_time),
    ] {
        if breaks > promise {
            return;
        }
        let found = if breaks == Promise::Conflicts {
            contradictions
                .iter()
                .map(|pair| FoundCycle { cycle: pair.to_vec(), concerned: 1 })
                .collect()
        } else {
            search.run(order)
        };
        for FoundCycle { cycle, concerned } in &found {
            verdict.report_of(*concerned, kind_of(cycle), breaks, || {
                tell(transactions, &graph, cycle)
            });
        }
        if !found.is_empty() {
            return;
        }
    }
}

const RW: u8 = Why::Rw.bit() | Why::RwBySession.bit() | Why::RwByTime.bit();

type Cycle = Vec<Edge>;

/// The shortest cycle of a component, and how many of its transactions have an edge that closes one
/// like it.
struct FoundCycle {
    cycle: Cycle,
    concerned: usize,
}

/// The shortest cycle of each component that has one.
type Cycles = BTreeMap<u32, Cycle>;

struct CycleSearch<'a> {
    graph: &'a Graph,
    /// By which search a node was reached, by which edge, and at what cost.
    reached: Vec<(u32, Option<Edge>, u32)>,
    searches: u32,
}

/// What one search may use.
#[derive(Clone, Copy)]
struct SearchArea<'c> {
    components: &'c [u32],
    /// Bits of [`Why`] that the way back may take.
    back: u8,
    /// How many transactions the cycle must stay below.
    below: usize,
}

impl<'a> CycleSearch<'a> {
    fn new(graph: &'a Graph) -> Self {
        Self { graph, reached: vec![(0, None, 0); graph.len() as usize], searches: 0 }
    }

    /// Whether these edges form no cycle at all.
    fn is_acyclic(&self, allowed: u8) -> bool {
        let mut seen = vec![false; self.graph.len() as usize];
        // Components are as many as nodes exactly when each is a component by itself.
        self.graph
            .components(allowed)
            .iter()
            .all(|component| !std::mem::replace(&mut seen[*component as usize], true))
    }

    /// The shortest cycle of each kind in each component, with these edges of order and the
    /// anti-dependencies that they bring.
    fn run(&mut self, order: u8) -> Vec<FoundCycle> {
        let writes = Why::Ww.bit() | (order & !RW);
        let reads = writes | Why::Wr.bit();
        let rw = Why::Rw.bit() | (order & RW);
        let all = reads | rw;
        if self.is_acyclic(all) {
            return Vec::new();
        }
        let graph = self.graph;
        let mut found: Vec<FoundCycle> = Vec::new();
        for (first, back) in [(Why::Ww.bit(), writes), (Why::Wr.bit(), reads)] {
            let components = graph.components(back);
            let cycles = self.through(first, back, &components, &Cycles::new());
            found.extend(self.with_counts(cycles, first, &components));
        }
        let components = graph.components(all);
        let single = self.through(rw, reads, &components, &Cycles::new());
        // Where one anti-dependency suffices, the component's further ones are usually its echo.
        let several = self.through(rw, all, &components, &single);
        found.extend(self.with_counts(single, rw, &components));
        found.extend(self.with_counts(several, rw, &components));
        found
    }

    /// Each cycle with how many transactions of its component have an edge of the kinds `first`
    /// that stays inside.
    fn with_counts(&self, cycles: Cycles, first: u8, components: &[u32]) -> Vec<FoundCycle> {
        let mut closing: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        for edge in self.graph.edges().iter().filter(|edge| edge.why.bit() & first != 0) {
            let component = components[edge.from as usize];
            let inside =
                component == components[edge.to as usize] && self.graph.is_transaction(edge.from);
            if inside && cycles.contains_key(&component) {
                closing.entry(component).or_default().insert(edge.from);
            }
        }
        let count = |component: u32| closing.get(&component).map_or(1, BTreeSet::len);
        cycles
            .into_iter()
            .map(|(component, cycle)| FoundCycle { concerned: count(component), cycle })
            .collect()
    }

    /// Per component, the shortest cycle that begins with an edge of the kinds `first` and returns
    /// by `back` edges.
    fn through(&mut self, first: u8, back: u8, components: &[u32], except: &Cycles) -> Cycles {
        let mut best = Cycles::new();
        let mut steps: BTreeMap<u32, usize> = BTreeMap::new();
        for edge in self.graph.edges().iter().filter(|edge| edge.why.bit() & first != 0) {
            let component = components[edge.from as usize];
            if component != components[edge.to as usize]
                || !self.graph.is_transaction(edge.from)
                || except.contains_key(&component)
            {
                continue;
            }
            let steps = steps.entry(component).or_default();
            if *steps > MAX_CYCLE_STEPS {
                continue;
            }
            let below = best.get(&component).map_or(usize::MAX, |known| self.length(known));
            if let Some(cycle) =
                self.shortest_back(*edge, SearchArea { components, back, below }, steps)
            {
                best.insert(component, cycle);
            }
        }
        best
    }

    /// How many transactions a cycle has.
    fn length(&self, cycle: &Cycle) -> usize {
        cycle.iter().filter(|edge| self.graph.is_transaction(edge.from)).count()
    }

    /// The shortest way from the edge's end to its origin, inside its component, with the edge at
    /// the front.
    fn shortest_back(
        &mut self,
        first: Edge,
        way: SearchArea<'_>,
        steps: &mut usize,
    ) -> Option<Cycle> {
        self.searches += 1;
        let search = self.searches;
        let component = way.components[first.from as usize];
        let cost_of = |graph: &Graph, node| u32::from(graph.is_transaction(node));
        let start = cost_of(self.graph, first.to);
        let mut queue = VecDeque::from([(first.to, start)]);
        self.reached[first.to as usize] = (search, None, start);
        while let Some((node, cost)) = queue.pop_front() {
            if node == first.from {
                return Some(self.way_to(first));
            }
            if cost > self.reached[node as usize].2 {
                continue;
            }
            for edge in self.graph.leaving(node) {
                *steps += 1;
                if edge.why.bit() & way.back == 0 || way.components[edge.to as usize] != component {
                    continue;
                }
                let step = cost_of(self.graph, edge.to);
                let next_cost = cost + step;
                let (reached_by, _, known_cost) = self.reached[edge.to as usize];
                if (reached_by == search && known_cost <= next_cost)
                    || next_cost as usize >= way.below
                {
                    continue;
                }
                self.reached[edge.to as usize] = (search, Some(*edge), next_cost);
                if step == 0 {
                    queue.push_front((edge.to, next_cost));
                } else {
                    queue.push_back((edge.to, next_cost));
                }
            }
        }
        None
    }

    /// The way that the last search found, from the edge that it began with.
    fn way_to(&self, first: Edge) -> Cycle {
        let mut way = Vec::new();
        let mut node = first.from;
        while let (_, Some(edge), _) = self.reached[node as usize] {
            way.push(edge);
            node = edge.from;
        }
        way.push(first);
        way.reverse();
        way
    }
}

fn kind_of(cycle: &[Edge]) -> AnomalyKind {
    let anti_dependencies = cycle.iter().filter(|edge| edge.why.is_rw()).count();
    let readings = cycle.iter().filter(|edge| edge.why == Why::Wr).count();
    let on_one_key = || {
        cycle
            .iter()
            .all(|edge| edge.key == cycle[0].key && (edge.why.is_rw() || edge.why == Why::Ww))
    };
    match (anti_dependencies, readings) {
        (0, 0) => AnomalyKind::G0,
        (0, _) => AnomalyKind::G1c,
        (1, 0) if on_one_key() => AnomalyKind::LostUpdate,
        (1, _) => AnomalyKind::GSingle,
        _ => AnomalyKind::G2Item,
    }
}
