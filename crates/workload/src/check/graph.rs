//! The dependency graph of a history's transactions, and its strongly connected parts.
//!
//! | edge | from → to |
//! |---|---|
//! | ww | who wrote a version → who wrote the next one |
//! | wr | who wrote a version → who read it |
//! | rw | who read a version → who wrote the next one (anti-dependency) |
//! | session | a process's transaction → its next one |
//! | real time | whatever completed → whatever was invoked later |
//!
//! Some anti-dependencies are known only when an order is promised: a register's version that was
//! there before another transaction began is older than what that transaction wrote, and so whoever
//! read it precedes the writer.
//!
//! What relates many to many is said through helper nodes in linear space. Real time is a chain of
//! *moments*: completions lead to the next moment, each moment to the one after it, and an
//! invocation follows the last moment before it. A *crowd* stands for writes without an order among
//! themselves: those who precede all of them lead to it, and it leads to each.
//!
//! ```text
//!   T1 ─completes─► m1 ──► m2 ──► m3            T4 ─rw─► crowd ─► T7
//!                    └─► T5        └─► T6        T3 ─ww─►       └─► T9
//! ```
//!
//! # Invariants
//! - Nodes below `transactions` are transactions; those above are helpers, which no story names.
//! - No helper leads back to whom it is led to from by itself: every cycle of the graph is one of
//!   the history.

use crate::KeyIndex;

/// A node: a transaction or a helper.
pub(super) type Node = u32;

/// What an edge stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Why {
    Ww,
    Wr,
    Rw,
    Session,
    RealTime,
    /// An anti-dependency that holds when the order of sessions does.
    RwBySession,
    /// An anti-dependency that holds when real time does.
    RwByTime,
}

impl Why {
    pub(super) const fn bit(self) -> u8 {
        1 << self as u8
    }

    pub(super) const fn is_rw(self) -> bool {
        matches!(self, Self::Rw | Self::RwBySession | Self::RwByTime)
    }
}

/// An edge with what a story needs to tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Edge {
    pub(super) from: Node,
    pub(super) to: Node,
    pub(super) why: Why,
    pub(super) key: KeyIndex,
    /// What was written at the edge's end (ww, rw) or read there (wr), where it is known.
    pub(super) value: Option<i64>,
}

impl Edge {
    /// An edge of order: no key is involved.
    pub(super) const fn of_order(from: Node, to: Node, why: Why) -> Self {
        Self { from, to, why, key: KeyIndex(0), value: None }
    }
}

/// Edges, sorted by origin once [`Graph::seal`] was called.
#[derive(Debug)]
pub(super) struct Graph {
    transactions: u32,
    nodes: u32,
    edges: Vec<Edge>,
    /// Where each node's edges begin.
    begins: Vec<u32>,
}

impl Graph {
    pub(super) fn new(transactions: usize) -> Self {
        let transactions = transactions as u32;
        Self { transactions, nodes: transactions, edges: Vec::new(), begins: Vec::new() }
    }

    pub(super) const fn is_transaction(&self, node: Node) -> bool {
        node < self.transactions
    }

    pub(super) const fn len(&self) -> u32 {
        self.nodes
    }

    /// A helper: a moment or a crowd.
    pub(super) const fn add_helper(&mut self) -> Node {
        self.nodes += 1;
        self.nodes - 1
    }

    /// Nothing depends on itself: such an edge is dropped.
    pub(super) fn add(&mut self, edge: Edge) {
        if edge.from != edge.to {
            self.edges.push(edge);
        }
    }

    pub(super) fn seal(&mut self) {
        self.edges.sort_by_key(|edge| edge.from);
        assert!(
            self.edges.last().is_none_or(|edge| edge.from < self.nodes),
            "an edge leaves a node that does not exist"
        );
        self.begins = vec![0; self.nodes as usize + 1];
        for edge in &self.edges {
            self.begins[edge.from as usize + 1] += 1;
        }
        for at in 0..self.nodes as usize {
            self.begins[at + 1] += self.begins[at];
        }
    }

    pub(super) fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// The edges that leave a node.
    pub(super) fn leaving(&self, node: Node) -> &[Edge] {
        let at = node as usize;
        &self.edges[self.begins[at] as usize..self.begins[at + 1] as usize]
    }

    /// The component number of every node, by the edges that `allowed` (bits of [`Why`]) lets
    /// through (Tarjan 1972, without recursion). Nodes on a common cycle share a number.
    pub(super) fn components(&self, allowed: u8) -> Vec<u32> {
        const UNSEEN: u32 = u32::MAX;
        let count = self.nodes as usize;
        let (mut order, mut low, mut component) =
            (vec![UNSEEN; count], vec![0; count], vec![UNSEEN; count]);
        let (mut stack, mut path): (Vec<Node>, Vec<(Node, usize)>) = (Vec::new(), Vec::new());
        let (mut seen, mut found) = (0, 0);
        for root in 0..self.nodes {
            if order[root as usize] != UNSEEN {
                continue;
            }
            path.push((root, 0));
            while let Some((node, next)) = path.last_mut() {
                let at = *node as usize;
                if *next == 0 {
                    (order[at], low[at]) = (seen, seen);
                    seen += 1;
                    stack.push(*node);
                }
                let mut descended = None;
                let leaving = self.leaving(*node);
                while *next < leaving.len() {
                    let edge = leaving[*next];
                    *next += 1;
                    let to = edge.to as usize;
                    if edge.why.bit() & allowed == 0 {
                        continue;
                    }
                    if order[to] == UNSEEN {
                        descended = Some(edge.to);
                        break;
                    }
                    if component[to] == UNSEEN {
                        low[at] = low[at].min(order[to]);
                    }
                }
                if let Some(to) = descended {
                    path.push((to, 0));
                    continue;
                }
                // A node without edges must not look new again: it leaves the path here.
                path.pop();
                if low[at] == order[at] {
                    while let Some(member) = stack.pop() {
                        component[member as usize] = found;
                        if member as usize == at {
                            break;
                        }
                    }
                    found += 1;
                }
                if let Some((parent, _)) = path.last() {
                    let parent = *parent as usize;
                    low[parent] = low[parent].min(low[at]);
                }
            }
        }
        component
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(nodes: usize, edges: &[(Node, Node, Why)]) -> Graph {
        let mut graph = Graph::new(nodes);
        for &(from, to, why) in edges {
            graph.add(Edge { from, to, why, key: KeyIndex(0), value: None });
        }
        graph.seal();
        graph
    }

    #[test]
    fn nodes_on_a_cycle_share_a_component() {
        let graph = graph(
            6,
            &[
                (0, 1, Why::Ww),
                (1, 2, Why::Wr),
                (2, 0, Why::Rw),
                (2, 3, Why::Ww),
                (3, 4, Why::Ww),
                (4, 3, Why::Ww),
            ],
        );
        let all = graph.components(u8::MAX);
        assert!(all[0] == all[1] && all[1] == all[2]);
        assert!(all[3] == all[4] && all[3] != all[0] && all[5] != all[3]);
        let without_rw = graph.components(Why::Ww.bit() | Why::Wr.bit());
        assert!(without_rw[0] != without_rw[1] && without_rw[3] == without_rw[4]);
    }

    #[test]
    fn edges_are_found_by_their_origin_and_loops_are_dropped() {
        let graph = graph(3, &[(2, 0, Why::Ww), (0, 1, Why::Ww), (1, 1, Why::Ww), (0, 2, Why::Wr)]);
        assert_eq!(graph.edges().len(), 3);
        let to: Vec<Node> = graph.leaving(0).iter().map(|edge| edge.to).collect();
        assert_eq!((to, graph.leaving(1).len()), (vec![1, 2], 0));
    }

    #[test]
    fn a_chain_of_a_million_nodes_needs_no_deep_stack() {
        let count = 1_000_000;
        let edges: Vec<_> = (0..count).map(|at| (at, (at + 1) % count, Why::Ww)).collect();
        let components = graph(count as usize, &edges).components(u8::MAX);
        assert!(components.iter().all(|component| *component == components[0]));
    }
}
