//! The small worlds that are explored.

use crate::model::Small;
use crate::world::{EPOCHS, Spec};

const NONE: Spec = Spec { begin: 0, commits: [0, 0], reads: [false; 2], writes: [false; 2] };

const fn spec(begin: u8, commits: [u8; 2], reads: [bool; 2], writes: [bool; 2]) -> Spec {
    Spec { begin, commits, reads, writes }
}

const BASE: Small = Small {
    name: "",
    about: "",
    is_large: false,
    is_symmetric: false,
    specs: [NONE; 2],
    marks: [0, 0],
    f: 1,
    replicas: 3,
    members: [0b111; EPOCHS],
    epochs: [1, 1],
    candidates: &[0, 1],
    restarts: 0,
    losses: 0,
    gives_up: 0,
    client_crashes: 0,
    begins_at: 0,
    times: 0,
    leases: 2,
    snapshot: None,
    has_closed_timestamps: false,
    singles: [false; 2],
    has_termination: false,
    has_watermarks: false,
    marks_at_once: false,
    has_truncation: false,
    has_silence: false,
    checks_ends: false,
    mutation: None,
};

/// A transaction that writes both shards, of which the first fails over.
const OVER_TWO: Small = Small {
    specs: [spec(1, [2, 5], [false, false], [true, true]), NONE],
    epochs: [2, 1],
    candidates: &[1],
    begins_at: 1,
    has_termination: true,
    ..BASE
};

/// That transaction is forgotten by both when its outcome is known everywhere.
const BOTH_FORGET: Small = Small {
    specs: [spec(1, [2, 2], [false, false], [true, true]), NONE],
    has_watermarks: true,
    marks_at_once: true,
    has_truncation: true,
    leases: 1,
    ..OVER_TWO
};

/// A single write whose shard fails over, once or twice, when the first lease has passed.
const ONE_WRITE: Small = Small {
    specs: [spec(1, [2, 5], [false, false], [true, false]), NONE],
    epochs: [3, 1],
    begins_at: 1,
    leases: 1,
    ..BASE
};

/// Two replicas of that shard give up what they have, and its primary starts anew.
const GIVEN_UP_COPIES: Small = Small {
    name: "given-up-copies",
    about: "one shard fails over, and two replicas give up what they have; a single write is forgotten",
    gives_up: 2,
    restarts: 1,
    has_watermarks: true,
    marks_at_once: true,
    has_truncation: true,
    checks_ends: true,
    candidates: &[0, 1, 2],
    ..ONE_WRITE
};

/// A replica loses its disk in one epoch, and another one, or it once more, in a later one.
const LOST_TWICE: Small = Small {
    name: "lost-twice",
    about: "one shard fails over twice, and two disks are lost, or one twice; a single write",
    losses: 2,
    leases: 2,
    checks_ends: true,
    candidates: &[0, 1, 2],
    ..ONE_WRITE
};

pub fn all() -> Vec<Small> {
    let mut worlds = failing_over();
    worlds.extend(forgetting());
    worlds.extend(coming_back());
    worlds
}

/// Records are dropped, watermarks rise, and somebody reads at backups.
fn forgetting() -> Vec<Small> {
    vec![
        Small {
            name: "repeats",
            about: "one shard fails over; a single write is repeated, and forgotten",
            has_watermarks: true,
            has_truncation: true,
            epochs: [2, 1],
            leases: 2,
            client_crashes: 1,
            ..ONE_WRITE
        },
        Small {
            name: "left-out",
            about: "one shard fails over twice; a single write is forgotten",
            has_watermarks: true,
            has_truncation: true,
            ..ONE_WRITE
        },
        Small {
            name: "two-dropped",
            about: "one shard fails over; two transactions on its key are forgotten, and a snapshot",
            is_large: true,
            specs: [
                spec(1, [2, 5], [true, false], [true, false]),
                spec(1, [3, 6], [false, false], [true, false]),
            ],
            has_watermarks: true,
            marks_at_once: true,
            has_truncation: true,
            snapshot: Some(3),
            epochs: [2, 1],
            candidates: &[1],
            leases: 1,
            ..ONE_WRITE
        },
        Small {
            name: "forgotten",
            about: "a transaction over two shards; both forget it",
            has_watermarks: true,
            has_truncation: true,
            has_silence: true,
            checks_ends: true,
            epochs: [1, 1],
            leases: 1,
            ..OVER_TWO
        },
        Small {
            name: "dropped",
            about: "a transaction over two shards, of which one fails over; both forget it",
            has_termination: false,
            ..BOTH_FORGET
        },
        Small {
            name: "given-up",
            about: "a transaction over two shards, of which one fails over; both forget it, and a snapshot",
            snapshot: Some(3),
            has_termination: false,
            ..BOTH_FORGET
        },
        Small {
            name: "both-dropped",
            about: "a transaction over two shards, which both fail over and forget it",
            is_large: true,
            is_symmetric: true,
            has_termination: false,
            epochs: [2, 2],
            ..BOTH_FORGET
        },
        Small {
            name: "dropped-and-frozen",
            about: "a transaction over two shards, of which one fails over; both freeze or forget it",
            is_large: true,
            checks_ends: true,
            ..BOTH_FORGET
        },
        Small {
            name: "too-old",
            about: "a transaction over two shards that begins below their watermarks; one fails over",
            specs: [spec(1, [4, 4], [false, false], [true, true]), NONE],
            has_watermarks: true,
            has_silence: true,
            has_termination: false,
            ..OVER_TWO
        },
        Small {
            name: "closed",
            about: "one shard fails over; a write, and a snapshot that may read at backups",
            specs: [spec(1, [4, 4], [false, false], [true, false]), NONE],
            has_closed_timestamps: true,
            snapshot: Some(5),
            epochs: [2, 1],
            leases: 2,
            ..ONE_WRITE
        },
    ]
}

/// Replicas lose their disks, leave and come back, and there are more of them.
fn coming_back() -> Vec<Small> {
    vec![
        Small {
            name: "lost-disk",
            about: "one shard fails over twice, and a replica loses its disk; a single write",
            losses: 1,
            leases: 2,
            checks_ends: true,
            candidates: &[0, 1, 2],
            ..ONE_WRITE
        },
        LOST_TWICE,
        Small {
            name: "lost-and-stands-by",
            about: "a fourth replica loses its state, takes the place of another one, and a disk is lost; a single write",
            is_large: true,
            replicas: 4,
            members: [0b0111, 0b1011, 0b1011, 0b1011],
            ..LOST_TWICE
        },
        Small { epochs: [2, 1], ..GIVEN_UP_COPIES },
        Small {
            name: "given-up-and-again",
            about: "one shard fails over twice, and two replicas give up what they have; a single write is forgotten",
            is_large: true,
            ..GIVEN_UP_COPIES
        },
        Small {
            name: "lost-and-dropped",
            about: "one shard fails over, and a replica loses its disk; a single write is forgotten",
            losses: 1,
            has_watermarks: true,
            marks_at_once: true,
            has_truncation: true,
            checks_ends: true,
            epochs: [2, 1],
            candidates: &[0, 1, 2],
            ..ONE_WRITE
        },
        Small {
            name: "lost-and-prepared",
            about: "a transaction over two shards, of which one fails over and loses a disk",
            specs: [spec(1, [2, 2], [false, false], [true, true]), NONE],
            losses: 1,
            checks_ends: true,
            leases: 1,
            ..OVER_TWO
        },
        Small {
            name: "lost-and-closed",
            about: "a replica loses its disk; a write, and a snapshot that may read at backups",
            specs: [spec(1, [4, 4], [false, false], [true, false]), NONE],
            losses: 1,
            has_watermarks: true,
            marks_at_once: true,
            has_truncation: true,
            has_closed_timestamps: true,
            snapshot: Some(5),
            epochs: [2, 1],
            leases: 2,
            ..ONE_WRITE
        },
        Small {
            name: "lost-and-replaced",
            about: "one replica of a shard is replaced by a fourth, and a disk is lost",
            is_large: true,
            losses: 1,
            replicas: 4,
            members: [0b0111, 0b1011, 0b1011, 0b1011],
            has_watermarks: true,
            marks_at_once: true,
            has_truncation: true,
            checks_ends: true,
            candidates: &[0, 1, 2],
            ..ONE_WRITE
        },
        Small {
            name: "leaves",
            about: "a replica that lags leaves with the second epoch and is back with the third",
            members: [0b111, 0b011, 0b111, 0b111],
            has_watermarks: true,
            has_truncation: true,
            candidates: &[0, 1, 2],
            ..ONE_WRITE
        },
        Small {
            name: "replaced",
            about: "one replica of a shard is replaced by a fourth",
            replicas: 4,
            members: [0b0111, 0b1011, 0b1011, 0b1011],
            candidates: &[0, 1, 2],
            ..ONE_WRITE
        },
        Small {
            name: "replaced-leases",
            about: "one replica is replaced by a fourth; a write, and a snapshot above it",
            specs: [spec(1, [4, 4], [false, false], [true, false]), NONE],
            replicas: 4,
            members: [0b0111, 0b1011, 0b1011, 0b1011],
            candidates: &[0, 1],
            snapshot: Some(5),
            leases: 2,
            ..ONE_WRITE
        },
        Small {
            name: "five-lost",
            about: "a shard of five replicas fails over once, and two disks are lost; a single write",
            is_large: true,
            f: 2,
            replicas: 5,
            members: [0b11111; EPOCHS],
            epochs: [2, 1],
            losses: 2,
            candidates: &[1],
            ..ONE_WRITE
        },
        Small {
            name: "five",
            about: "a shard of five replicas fails over once; a single write",
            f: 2,
            replicas: 5,
            members: [0b11111; EPOCHS],
            epochs: [2, 1],
            candidates: &[1],
            ..ONE_WRITE
        },
    ]
}

/// Failover, leases and termination.
fn failing_over() -> Vec<Small> {
    vec![
        Small {
            name: "single",
            about: "one shard fails over twice; a write of one key, and readers of what is there",
            specs: [spec(1, [2, 5], [false, false], [true, false]), NONE],
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
            ],
            epochs: [2, 1],
            restarts: 1,
            begins_at: 1,
            snapshot: Some(3),
            ..BASE
        },
        Small {
            name: "two-shards",
            about: "a transaction over two shards, of which one fails over; its client may be silent",
            leases: 1,
            ..OVER_TWO
        },
        Small {
            name: "leases",
            about: "one shard fails over twice; a write of its key, and a snapshot above it",
            specs: [spec(1, [4, 4], [false, false], [true, false]), NONE],
            epochs: [3, 1],
            candidates: &[1, 0],
            snapshot: Some(5),
            times: 2,
            ..BASE
        },
        Small {
            name: "late-prepare",
            about: "a transaction over two shards, of which one fails over and hears of it late",
            specs: [spec(1, [4, 4], [false, false], [true, true]), NONE],
            checks_ends: true,
            ..OVER_TWO
        },
        Small {
            name: "decided-too-early",
            about: "a transaction over two shards, of which one fails over twice",
            specs: [spec(1, [2, 2], [false, false], [true, true]), NONE],
            epochs: [3, 1],
            candidates: &[1, 2],
            begins_at: 0,
            leases: 1,
            has_termination: false,
            ..OVER_TWO
        },
        Small {
            name: "rounds",
            about: "a transaction over two shards whose first timestamp is too low at one; the other \
                    fails over",
            specs: [spec(1, [2, 4], [false, false], [true, true]), NONE],
            marks: [0, 2],
            ..OVER_TWO
        },
        Small {
            name: "two-over-two",
            about: "two transactions over the same two shards, of which one fails over",
            specs: [
                spec(1, [2, 2], [false, false], [true, true]),
                spec(1, [3, 3], [false, false], [true, true]),
            ],
            begins_at: 0,
            leases: 1,
            has_termination: false,
            ..OVER_TWO
        },
        Small {
            name: "both-fail-over",
            about: "a transaction over two shards that both fail over; its client may be silent",
            is_large: true,
            is_symmetric: true,
            epochs: [2, 2],
            leases: 1,
            ..OVER_TWO
        },
    ]
}
