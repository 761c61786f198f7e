//! A cycle in words: what each step is and why it orders its transactions, and then what these did.
//!
//! ```text
//!   T4 (process 1) read key 1 without 6, which T7 (process 2) wrote (rw: T4 before T7)
//!   T7 (process 2) had completed when T4 (process 1) was invoked (real time: T7 before T4)
//!   and so T4 (process 1) precedes itself
//!   T4: [[:r 1 [5]] [:append 2 5]]
//!   T7: [[:append 1 6]]
//! ```

use super::graph::{Edge, Graph, Node, Why};
use super::transactions::{Transactions, TxnRef};
use crate::history::write_value;
use crate::limits::MAX_STORY_OPS_BYTES;

/// Tells a cycle; helpers in it are passed over.
pub(super) fn tell(transactions: &Transactions<'_>, graph: &Graph, cycle: &[Edge]) -> String {
    let mut story = String::new();
    let mut at = 0;
    while at < cycle.len() {
        let first = cycle[at];
        while !graph.is_transaction(cycle[at].to) {
            at += 1;
        }
        story.push_str("\n  ");
        story.push_str(&step(transactions, first, cycle[at]));
        at += 1;
    }
    story.push_str("\n  and so ");
    story.push_str(&transactions.name(TxnRef(cycle[0].from)));
    story.push_str(" precedes itself");
    for edge in cycle.iter().filter(|edge| graph.is_transaction(edge.from)) {
        story.push_str(&format!(
            "\n  T{}: {}",
            index(transactions, edge.from),
            ops(transactions, edge.from)
        ));
    }
    story
}

/// One step, from the edge that leaves a transaction to the edge that reaches the next one.
fn step(transactions: &Transactions<'_>, first: Edge, last: Edge) -> String {
    let (from, to) = (transactions.name(TxnRef(first.from)), transactions.name(TxnRef(last.to)));
    let key = first.key.0;
    // The last edge to a writer has no value where the key was deleted.
    let value = last.value.map_or_else(|| "the deletion".to_owned(), |value| value.to_string());
    let written =
        last.value.map_or_else(|| "deleted it".to_owned(), |value| format!("wrote {value} to it"));
    let (what, kind) = match first.why {
        Why::Ww => (format!("{from} wrote key {key} before {to} {written}"), "ww"),
        Why::Wr if last.value.is_none() => {
            (format!("{from} wrote key {key} before what {to} read of it"), "wr")
        }
        Why::Wr => (format!("{from} wrote {value} to key {key}, which {to} read"), "wr"),
        Why::Rw => (format!("{from} read key {key} without {value}, which {to} wrote"), "rw"),
        Why::RwBySession => (
            format!(
                "{from} read key {key} without {value}, which {to} wrote when its session knew \
                 what {from} read"
            ),
            "rw by session",
        ),
        Why::RwByTime => (
            format!(
                "{from} read key {key} without {value}, which {to} wrote when what {from} read was \
                 there already"
            ),
            "rw by real time",
        ),
        Why::Session => (format!("{from} came before {to} in their session"), "session"),
        Why::RealTime => (format!("{from} had completed when {to} was invoked"), "real time"),
    };
    format!(
        "{what} ({kind}: T{} before T{})",
        index(transactions, first.from),
        index(transactions, last.to)
    )
}

fn index(transactions: &Transactions<'_>, node: Node) -> u64 {
    transactions.get(TxnRef(node)).index
}

/// What a transaction did, in the history's own form, cut where it gets long.
fn ops(transactions: &Transactions<'_>, node: Node) -> String {
    let mut text = String::new();
    write_value(transactions.get(TxnRef(node)).ops, &mut text);
    if text.len() > MAX_STORY_OPS_BYTES {
        // The form is ASCII throughout.
        text.truncate(MAX_STORY_OPS_BYTES);
        text.push('…');
    }
    text
}
