//! The small worlds that are explored: which transactions there are, what each reads and writes,
//! when it may begin and commit, and what may befall the shards meanwhile.

use crate::model::{Small, Spec};
use crate::world::{At, Key};

const NO_LIMIT: usize = usize::MAX;

fn txn(range: Option<(Key, Key)>, writes: &'static [(Key, bool)], begins: &'static [At]) -> Spec {
    Spec { range, limit: NO_LIMIT, writes, begins, commits: &[3, 5] }
}

/// All of them.
pub fn all() -> Vec<Small> {
    let world = Small {
        name: "",
        about: "",
        first: &[1],
        specs: Vec::new(),
        restarts: 0,
        marks: 4,
        mutation: None,
    };
    vec![
        Small {
            name: "skew",
            about: "Two transactions read a range and insert into it; the keys are of two shards.",
            specs: vec![
                txn(Some((0, 3)), &[(2, false)], &[2, 4]),
                txn(Some((0, 3)), &[(3, false)], &[2, 4]),
            ],
            ..world.clone()
        },
        Small {
            name: "reader",
            about: "Somebody reads a range by a snapshot while two transactions insert into it and delete from it.",
            specs: vec![
                txn(Some((0, 3)), &[], &[2, 4]),
                txn(None, &[(0, false), (3, false)], &[1, 3]),
                txn(None, &[(1, true), (0, false)], &[1, 3]),
            ],
            ..world.clone()
        },
        Small {
            name: "raise",
            about: "One reads a range and writes beyond it, another inserts into the range later, a third reads both (Kairos' counterexample with a range).",
            first: &[],
            specs: vec![
                txn(Some((0, 1)), &[(4, false)], &[1]),
                txn(None, &[(0, false)], &[1, 2]),
                txn(Some((0, 4)), &[], &[2, 3, 4]),
            ],
            ..world.clone()
        },
        Small {
            name: "deletes",
            about: "Two transactions read a range and delete a key of it each.",
            first: &[0, 1],
            specs: vec![
                txn(Some((0, 3)), &[(0, true)], &[2, 4]),
                txn(Some((0, 3)), &[(1, true)], &[2, 4]),
            ],
            ..world.clone()
        },
        Small {
            name: "limit",
            about: "Two transactions read the first two keys of a range and insert; one more inserts.",
            first: &[0, 4],
            specs: vec![
                Spec { limit: 2, ..txn(Some((0, 6)), &[(1, false)], &[2, 4]) },
                Spec { limit: 2, ..txn(Some((0, 6)), &[(3, false)], &[2, 4]) },
            ],
            ..world.clone()
        },
        Small {
            name: "restart",
            about: "A shard restarts between a range read and a write below its timestamp.",
            specs: vec![
                txn(Some((0, 2)), &[], &[3]),
                txn(Some((0, 1)), &[(4, false)], &[1]),
                txn(None, &[(0, false), (1, true)], &[1]),
            ],
            restarts: 1,
            ..world.clone()
        },
        Small {
            name: "few marks",
            about: "A shard remembers one range; all others count for the whole keyspace.",
            specs: vec![
                txn(Some((0, 1)), &[], &[2, 4]),
                txn(Some((2, 3)), &[(0, false)], &[2, 4]),
                Spec { commits: &[2, 3], ..txn(None, &[(0, false), (1, true)], &[1]) },
            ],
            marks: 1,
            ..world
        },
    ]
}
