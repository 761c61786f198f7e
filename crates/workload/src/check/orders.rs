//! Orders that do not come from data: sessions and real time, as edges of the dependency graph.
//!
//! A transaction of unknown outcome may take effect at any time after it was invoked, so nothing
//! follows it by these orders but what its own session did next, where the history tells who that
//! was; and it follows whatever had completed before it was invoked.

use std::collections::BTreeMap;

use super::graph::{Edge, Graph, Node, Why};
use super::transactions::{Transactions, TxnRef};
use crate::history::Process;

/// Each transaction to its session's next one.
pub(super) fn add_sessions(transactions: &Transactions<'_>, graph: &mut Graph) {
    let mut last: BTreeMap<Process, Node> = BTreeMap::new();
    for (TxnRef(node), txn) in transactions.iter() {
        if let Some(before) = last.get(&txn.session) {
            graph.add(Edge::of_order(*before, node, Why::Session));
        }
        if txn.is_settled {
            last.insert(txn.session, node);
        }
    }
}

/// Whatever completed to whatever was invoked later, as a chain of moments: one for each run of
/// completions without an invocation in between, so never more helpers than transactions and three
/// edges for each.
pub(super) fn add_real_time(transactions: &Transactions<'_>, graph: &mut Graph) {
    let mut happenings: Vec<(usize, Node, bool)> = Vec::with_capacity(2 * transactions.all.len());
    for (TxnRef(node), txn) in transactions.iter() {
        happenings.push((txn.invoked, node, true));
        happenings.extend(txn.completed.map(|completed| (completed, node, false)));
    }
    happenings.sort_unstable();
    let (mut moment, mut is_open) = (None, false);
    for (_, node, is_invocation) in happenings {
        if is_invocation {
            if let Some(moment) = moment {
                graph.add(Edge::of_order(moment, node, Why::RealTime));
            }
            is_open = false;
            continue;
        }
        let current = match moment {
            Some(current) if is_open => current,
            before => {
                let next = graph.add_helper();
                if let Some(before) = before {
                    graph.add(Edge::of_order(before, next, Why::RealTime));
                }
                next
            }
        };
        graph.add(Edge::of_order(node, current, Why::RealTime));
        (moment, is_open) = (Some(current), true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::CheckResult;
    use crate::history::{History, read};

    fn edges(
        lines: &[(&str, u64)],
        add: fn(&Transactions<'_>, &mut Graph),
    ) -> (u32, Vec<(Node, Node)>) {
        let text: String = lines
            .iter()
            .map(|(kind, process)| {
                format!("{{:type :{kind}, :process {process}, :f :txn, :value []}}\n")
            })
            .collect();
        let (history, mut verdict) = (read(&text).unwrap(), CheckResult::default());
        let transactions = Transactions::of(&history, &mut verdict);
        assert!(verdict.is_valid(), "{verdict}");
        let mut graph = Graph::new(transactions.all.len());
        add(&transactions, &mut graph);
        (graph.len(), graph.edges().iter().map(|edge| (edge.from, edge.to)).collect())
    }

    #[test]
    fn sessions_are_chains_and_nothing_follows_an_unknown_outcome() {
        let lines = [
            ("invoke", 0),
            ("ok", 0),
            ("invoke", 1),
            ("invoke", 0),
            ("info", 0),
            ("invoke", 0),
            ("fail", 0),
            ("ok", 1),
            ("invoke", 0),
        ];
        assert_eq!(edges(&lines, add_sessions), (5, vec![(0, 2), (0, 3), (3, 4)]));
    }

    #[test]
    fn what_a_session_does_next_follows_what_it_was_told_is_unknown() {
        let text: String = [
            ("invoke", 0),
            ("ok", 0),
            ("invoke", 0),
            ("info", 0),
            ("invoke", 7),
            ("info", 7),
            ("invoke", 9),
        ]
        .map(|(kind, process)| {
            format!("{{:type :{kind}, :process {process}, :f :txn, :value []}}\n")
        })
        .concat();
        let history = History {
            successors: [(0, 7), (7, 9)].map(|(p, q)| (Process(p), Process(q))).into(),
            ..read(&text).unwrap()
        };
        let mut verdict = CheckResult::default();
        let transactions = Transactions::of(&history, &mut verdict);
        let mut graph = Graph::new(transactions.all.len());
        add_sessions(&transactions, &mut graph);
        let edges: Vec<(Node, Node)> =
            graph.edges().iter().map(|edge| (edge.from, edge.to)).collect();
        assert_eq!(edges, [(0, 1), (1, 2), (2, 3)]);
    }

    #[test]
    fn completions_in_a_row_share_a_moment() {
        let lines = [
            ("invoke", 0),
            ("invoke", 1),
            ("ok", 0),
            ("ok", 1),
            ("invoke", 2),
            ("invoke", 3),
            ("ok", 2),
            ("invoke", 0),
        ];
        let (nodes, edges) = edges(&lines, add_real_time);
        assert_eq!(nodes, 5 + 2);
        assert_eq!(edges, [(0, 5), (1, 5), (5, 2), (5, 3), (5, 6), (2, 6), (6, 4)]);
    }
}
