//! The small worlds that are explored.

use crate::model::Small;
use crate::world::Spec;

const NONE: Spec = Spec { begin: 0, commits: [0, 0], reads: [false; 2], writes: [false; 2] };

const fn spec(begin: u8, commits: [u8; 2], reads: [bool; 2], writes: [bool; 2]) -> Spec {
    Spec { begin, commits, reads, writes }
}

const BASE: Small = Small {
    name: "",
    about: "",
    is_large: false,
    specs: [NONE; 3],
    marks: [0, 0],
    epochs: [1, 1],
    candidates: &[0, 1],
    restarts: 0,
    client_crashes: 0,
    times: 0,
    leases: 2,
    snapshot: None,
    singles: [false; 2],
    has_termination: false,
    mutation: None,
};

/// A transaction that writes both shards, of which the first fails over.
const OVER_TWO: Small = Small {
    specs: [spec(1, [2, 5], [false, false], [true, true]), NONE, NONE],
    epochs: [2, 1],
    candidates: &[1],
    times: 1,
    has_termination: true,
    ..BASE
};

pub fn all() -> Vec<Small> {
    vec![
        Small {
            name: "single",
            about: "one shard fails over twice; a write of one key, and readers of what is there",
            specs: [spec(1, [2, 5], [false, false], [true, false]), NONE, NONE],
            epochs: [3, 1],
            restarts: 1,
            times: 2,
            singles: [true, false],
            ..BASE
        },
        Small {
            name: "two-singles",
            about: "one shard fails over; two transactions on its key, and a snapshot",
            specs: [
                spec(1, [2, 5], [true, false], [true, false]),
                spec(1, [3, 6], [false, false], [true, false]),
                NONE,
            ],
            epochs: [2, 1],
            restarts: 1,
            times: 1,
            snapshot: Some(3),
            ..BASE
        },
        Small {
            name: "two-shards",
            about: "a transaction over two shards, of which one fails over while its client dies",
            client_crashes: 1,
            leases: 1,
            ..OVER_TWO
        },
        Small {
            name: "leases",
            about: "one shard fails over twice; a write of its key, and a snapshot above it",
            specs: [spec(1, [4, 4], [false, false], [true, false]), NONE, NONE],
            epochs: [3, 1],
            candidates: &[1, 0],
            snapshot: Some(5),
            times: 2,
            ..BASE
        },
        Small {
            name: "late-prepare",
            about: "a transaction over two shards, of which one fails over and hears of it late",
            specs: [spec(1, [4, 4], [false, false], [true, true]), NONE, NONE],
            ..OVER_TWO
        },
        Small {
            name: "decided-too-early",
            about: "a transaction over two shards, of which one fails over twice; its client dies",
            specs: [spec(1, [2, 2], [false, false], [true, true]), NONE, NONE],
            epochs: [3, 1],
            candidates: &[1, 2],
            client_crashes: 1,
            times: 0,
            leases: 1,
            has_termination: false,
            ..OVER_TWO
        },
        Small {
            name: "rounds",
            about: "a transaction over two shards whose first timestamp is too low at one; the other \
                    fails over",
            is_large: true,
            specs: [spec(1, [2, 4], [false, false], [true, true]), NONE, NONE],
            marks: [0, 2],
            ..OVER_TWO
        },
        Small {
            name: "two-over-two",
            about: "two transactions over the same two shards, of which one fails over",
            specs: [
                spec(1, [2, 2], [false, false], [true, true]),
                spec(1, [3, 3], [false, false], [true, true]),
                NONE,
            ],
            times: 0,
            leases: 1,
            has_termination: false,
            ..OVER_TWO
        },
        Small {
            name: "both-fail-over",
            about: "a transaction over two shards that both fail over while its client dies",
            is_large: true,
            epochs: [2, 2],
            client_crashes: 1,
            leases: 1,
            ..OVER_TWO
        },
    ]
}
