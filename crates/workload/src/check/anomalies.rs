//! Every anomaly in its smallest history, caught under its right name and under the weakest promise
//! that it breaks; and beside each the history that nearly has it, which must pass.

use super::testing::{history, kinds};
use super::{AnomalyKind, CheckResult, Promise, check_list_append, check_register};
use crate::history::History;

use AnomalyKind::{G0, G1a, G1b, G1c, G2Item, GSingle, Internal, LostUpdate};
use Promise::{Conflicts, RealTime, Serializable, Session};

struct Case {
    name: &'static str,
    lines: &'static [&'static str],
    /// The first thing found when everything is promised; `None` when nothing is wrong.
    first: Option<(AnomalyKind, Promise)>,
}

const fn wrong(
    name: &'static str,
    kind: AnomalyKind,
    breaks: Promise,
    lines: &'static [&'static str],
) -> Case {
    Case { name, lines, first: Some((kind, breaks)) }
}

const fn right(name: &'static str, lines: &'static [&'static str]) -> Case {
    Case { name, lines, first: None }
}

fn judge(cases: &[Case], check: fn(&History, Promise) -> CheckResult) {
    for Case { name, lines, first } in cases {
        let history = history(lines);
        for promise in Promise::ALL {
            let verdict = check(&history, promise);
            let expected = first.filter(|(_, breaks)| *breaks <= promise);
            assert_eq!(
                kinds(&verdict).first().copied(),
                expected,
                "{name}, {promise:?}: {verdict}"
            );
        }
    }
}

/// Lists. Whoever reads at the end is process 9, which runs beside everything where it must not add
/// real time.
const LISTS: &[Case] = &[
    wrong(
        "writes cross",
        G0,
        Serializable,
        &[
            "0 + [:append 1 1] [:append 2 1]",
            "1 + [:append 1 2] [:append 2 2]",
            "0 = [:append 1 1] [:append 2 1]",
            "1 = [:append 1 2] [:append 2 2]",
            "9 . [:r 1 [1 2]] [:r 2 [2 1]]",
        ],
    ),
    right(
        "writes agree",
        &[
            "0 + [:append 1 1] [:append 2 1]",
            "1 + [:append 1 2] [:append 2 2]",
            "0 = [:append 1 1] [:append 2 1]",
            "1 = [:append 1 2] [:append 2 2]",
            "9 . [:r 1 [2 1]] [:r 2 [2 1]]",
        ],
    ),
    wrong(
        "one's writes against the session",
        G0,
        Session,
        &["9 + [:r 1 nil]", "0 . [:append 1 1]", "0 . [:append 1 2]", "9 = [:r 1 [2 1]]"],
    ),
    wrong(
        "another's writes against real time",
        G0,
        Conflicts,
        &["9 + [:r 1 nil]", "0 . [:append 1 1]", "1 . [:append 1 2]", "9 = [:r 1 [2 1]]"],
    ),
    right(
        "writes overlap",
        &[
            "9 + [:r 1 nil]",
            "0 + [:append 1 1]",
            "1 . [:append 1 2]",
            "0 = [:append 1 1]",
            "9 = [:r 1 [2 1]]",
        ],
    ),
    wrong(
        "three writes, inverted through the third",
        G0,
        RealTime,
        &[
            "9 + [:r 1 nil] [:r 2 nil]",
            "3 + [:append 1 3] [:append 2 3]",
            "0 . [:append 1 1]",
            "1 . [:append 2 2]",
            "3 = [:append 1 3] [:append 2 3]",
            "9 = [:r 1 [3 1]] [:r 2 [2 3]]",
        ],
    ),
    right(
        "three writes in the order that they overlap",
        &[
            "9 + [:r 1 nil] [:r 2 nil]",
            "3 + [:append 1 3] [:append 2 3]",
            "0 . [:append 1 1]",
            "1 . [:append 2 2]",
            "3 = [:append 1 3] [:append 2 3]",
            "9 = [:r 1 [1 3]] [:r 2 [3 2]]",
        ],
    ),
    wrong(
        "an aborted append is read",
        G1a,
        Serializable,
        &["0 + [:append 1 1]", "0 ! [:append 1 1]", "1 . [:r 1 [1]]"],
    ),
    right(
        "an aborted append is not read",
        &["0 + [:append 1 1]", "0 ! [:append 1 1]", "1 . [:r 1 []]"],
    ),
    wrong(
        "half of two appends is read",
        G1b,
        Serializable,
        &["0 . [:append 1 1] [:append 1 2]", "1 . [:r 1 [1]]"],
    ),
    wrong(
        "another's append stands between two",
        G0,
        Serializable,
        &[
            "0 + [:append 1 1] [:append 1 2]",
            "1 . [:append 1 9]",
            "0 = [:append 1 1] [:append 1 2]",
            "9 . [:r 1 [1 9 2]]",
        ],
    ),
    right(
        "one's own half is read",
        &["0 . [:append 1 1] [:r 1 [1]] [:append 1 2]", "1 . [:r 1 [1 2]]"],
    ),
    wrong(
        "one's own append is read before it is made",
        Internal,
        Serializable,
        &["0 . [:r 1 [1]] [:append 1 1]"],
    ),
    wrong(
        "each reads the other's append",
        G1c,
        Serializable,
        &[
            "0 + [:append 1 1] [:r 2 nil]",
            "1 . [:append 2 1] [:r 1 [1]]",
            "0 = [:append 1 1] [:r 2 [1]]",
        ],
    ),
    wrong(
        "a session reads what it writes later",
        G1c,
        Session,
        &["0 . [:r 1 [1]]", "0 . [:append 1 1]"],
    ),
    wrong(
        "a read-write transaction reads the future",
        G1c,
        Conflicts,
        &["0 . [:r 1 [1]] [:append 9 9]", "1 . [:append 1 1]"],
    ),
    wrong("a reader reads the future", G1c, RealTime, &["0 . [:r 1 [1]]", "1 . [:append 1 1]"]),
    right(
        "a reader reads what overlaps",
        &["1 + [:append 1 1]", "0 . [:r 1 [1]]", "1 = [:append 1 1]"],
    ),
    wrong(
        "a reading carried to the past by a third",
        G1c,
        RealTime,
        &[
            "9 + [:r 1 nil]",
            "3 + [:r 2 nil] [:append 1 3]",
            "0 . [:append 1 1]",
            "1 . [:append 2 2]",
            "3 = [:r 2 [2]] [:append 1 3]",
            "9 = [:r 1 [3 1]]",
        ],
    ),
    wrong(
        "two replace one version",
        LostUpdate,
        Serializable,
        &[
            "0 + [:r 1 nil] [:append 1 1]",
            "1 . [:r 1 []] [:append 1 2]",
            "0 = [:r 1 []] [:append 1 1]",
            "9 . [:r 1 [1 2]]",
        ],
    ),
    wrong(
        "two replace one version, and nobody looks",
        LostUpdate,
        Serializable,
        &[
            "0 + [:r 1 nil] [:append 1 1]",
            "1 . [:r 1 []] [:append 1 2]",
            "0 = [:r 1 []] [:append 1 1]",
        ],
    ),
    wrong(
        "a blind append slips between reading and appending",
        LostUpdate,
        Serializable,
        &[
            "0 + [:r 1 nil] [:append 1 1]",
            "1 . [:append 1 2]",
            "0 = [:r 1 []] [:append 1 1]",
            "9 . [:r 1 [2 1]]",
        ],
    ),
    right(
        "a blind append follows reading and appending",
        &[
            "0 + [:r 1 nil] [:append 1 1]",
            "1 . [:append 1 2]",
            "0 = [:r 1 []] [:append 1 1]",
            "9 . [:r 1 [1 2]]",
        ],
    ),
    right(
        "one replaces what it read, beside an unseen append",
        &["0 + [:r 1 nil] [:append 1 1]", "1 . [:append 1 2]", "0 = [:r 1 []] [:append 1 1]"],
    ),
    wrong(
        "half of a transaction is seen",
        GSingle,
        Serializable,
        &[
            "0 + [:append 1 1] [:append 2 1]",
            "1 . [:r 1 []] [:r 2 [1]]",
            "0 = [:append 1 1] [:append 2 1]",
            "9 . [:r 1 [1]]",
        ],
    ),
    right(
        "all of a transaction is seen",
        &[
            "0 + [:append 1 1] [:append 2 1]",
            "1 . [:r 1 [1]] [:r 2 [1]]",
            "0 = [:append 1 1] [:append 2 1]",
        ],
    ),
    wrong(
        "a session does not see its own append",
        GSingle,
        Session,
        &["0 . [:append 1 1]", "0 . [:r 1 []]"],
    ),
    wrong(
        "a session's readings go back",
        GSingle,
        Session,
        &["1 + [:append 1 1]", "0 . [:r 1 [1]]", "0 . [:r 1 []]", "1 = [:append 1 1]"],
    ),
    wrong(
        "a read-write transaction reads the past",
        GSingle,
        Conflicts,
        &["0 . [:append 1 1]", "1 . [:r 1 []] [:append 9 9]"],
    ),
    wrong("a reader reads the past", GSingle, RealTime, &["0 . [:append 1 1]", "1 . [:r 1 []]"]),
    right(
        "a reader reads the past that overlaps",
        &["1 + [:r 1 nil]", "0 . [:append 1 1]", "1 = [:r 1 []]"],
    ),
    wrong(
        "two readers see an overlapping append come and go",
        GSingle,
        RealTime,
        &["0 + [:append 1 1]", "1 . [:r 1 [1]]", "2 . [:r 1 []]", "0 = [:append 1 1]"],
    ),
    wrong(
        "write skew",
        G2Item,
        Serializable,
        &[
            "0 + [:r 1 nil] [:append 2 1]",
            "1 . [:r 2 []] [:append 1 1]",
            "0 = [:r 1 []] [:append 2 1]",
            "9 . [:r 1 [1]] [:r 2 [1]]",
        ],
    ),
    wrong(
        "readers disagree on the order of two appends",
        G2Item,
        Serializable,
        &[
            "0 + [:append 1 1]",
            "1 + [:append 2 1]",
            "2 . [:r 1 [1]] [:r 2 []]",
            "3 . [:r 1 []] [:r 2 [1]]",
            "0 = [:append 1 1]",
            "1 = [:append 2 1]",
        ],
    ),
    right(
        "readers agree on the order of two appends",
        &[
            "0 + [:append 1 1]",
            "1 + [:append 2 1]",
            "2 + [:r 1 nil] [:r 2 nil]",
            "3 + [:r 1 nil] [:r 2 nil]",
            "2 = [:r 1 [1]] [:r 2 []]",
            "3 = [:r 1 []] [:r 2 []]",
            "0 = [:append 1 1]",
            "1 = [:append 2 1]",
        ],
    ),
    wrong(
        "two sessions each write and miss the other's write",
        G2Item,
        Session,
        &[
            "0 + [:append 1 1]",
            "1 . [:append 2 1]",
            "0 = [:append 1 1]",
            "1 + [:r 1 nil]",
            "0 . [:r 2 []]",
            "1 = [:r 1 []]",
        ],
    ),
    wrong(
        "timestamps inverted through a third",
        G2Item,
        RealTime,
        &[
            "3 + [:r 1 nil] [:append 2 3]",
            "0 . [:append 1 1]",
            "1 . [:r 2 []]",
            "3 = [:r 1 []] [:append 2 3]",
        ],
    ),
    right(
        "timestamps in order through a third",
        &[
            "3 + [:r 1 nil] [:append 2 3]",
            "0 . [:append 1 1]",
            "1 . [:r 2 [3]]",
            "3 = [:r 1 []] [:append 2 3]",
        ],
    ),
    right(
        "an unknown append may be there",
        &["0 + [:append 1 1]", "0 ? [:append 1 1]", "1 . [:r 1 [1]]"],
    ),
    right("or not", &["0 + [:append 1 1]", "0 ? [:append 1 1]", "1 . [:r 1 []]"]),
    right(
        "or come late",
        &["0 + [:append 1 1]", "0 ? [:append 1 1]", "1 . [:r 1 []]", "1 . [:r 1 [1]]"],
    ),
    wrong(
        "but not go again",
        GSingle,
        Session,
        &["0 + [:append 1 1]", "0 ? [:append 1 1]", "1 . [:r 1 [1]]", "1 . [:r 1 []]"],
    ),
    wrong(
        "nor in half",
        GSingle,
        Serializable,
        &[
            "0 + [:append 1 1] [:append 2 1]",
            "0 ? [:append 1 1] [:append 2 1]",
            "1 . [:r 1 [1]] [:r 2 []]",
        ],
    ),
    wrong(
        "nor before it was invoked",
        G1c,
        RealTime,
        &["1 . [:r 1 [1]]", "0 + [:append 1 1]", "0 ? [:append 1 1]"],
    ),
    wrong(
        "nor before its session's last",
        G0,
        Session,
        &[
            "9 + [:r 1 nil]",
            "0 . [:append 1 1]",
            "0 + [:append 1 2]",
            "0 ? [:append 1 2]",
            "9 = [:r 1 [2 1]]",
        ],
    ),
    right("what never completed is unknown", &["0 + [:append 1 1]", "1 . [:r 1 [1]]"]),
    right(
        "what an aborted transaction read says nothing",
        &["0 . [:append 1 1]", "1 + [:r 1 nil]", "1 ! [:r 1 nil]", "2 . [:r 1 [1]]"],
    ),
];

#[test]
fn lists_have_each_anomaly_under_its_name() {
    judge(LISTS, check_list_append);
}

const REGISTERS: &[Case] = &[
    wrong(
        "versions replace each other in a circle",
        G0,
        Serializable,
        &["0 + [:r 1 nil] [:w 1 1]", "1 . [:r 1 1] [:w 1 2]", "0 = [:r 1 2] [:w 1 1]"],
    ),
    wrong(
        "a version replaced before it was written",
        G1c,
        Conflicts,
        &["0 . [:r 1 1] [:w 1 2]", "1 . [:w 1 1]"],
    ),
    wrong(
        "an aborted write is read",
        G1a,
        Serializable,
        &["0 + [:w 1 1]", "0 ! [:w 1 1]", "1 . [:r 1 1]"],
    ),
    wrong(
        "an intermediate write is read",
        G1b,
        Serializable,
        &["0 . [:w 1 1] [:w 1 2]", "1 . [:r 1 1]"],
    ),
    right("the last write is read", &["0 . [:w 1 1] [:w 1 2]", "1 . [:r 1 2]"]),
    wrong(
        "one's own write is read before it is made",
        Internal,
        Serializable,
        &["0 . [:r 1 1] [:w 1 1]"],
    ),
    wrong(
        "each reads the other's write",
        G1c,
        Serializable,
        &["0 + [:w 1 1] [:r 2 nil]", "1 . [:w 2 1] [:r 1 1]", "0 = [:w 1 1] [:r 2 1]"],
    ),
    wrong("a session reads what it writes later", G1c, Session, &["0 . [:r 1 1]", "0 . [:w 1 1]"]),
    wrong("a reader reads the future", G1c, RealTime, &["0 . [:r 1 1]", "1 . [:w 1 1]"]),
    wrong(
        "two replace one version",
        LostUpdate,
        Serializable,
        &["0 + [:r 1 nil] [:w 1 1]", "1 . [:r 1 nil] [:w 1 2]", "0 = [:r 1 nil] [:w 1 1]"],
    ),
    right(
        "two replace each other",
        &["0 + [:r 1 nil] [:w 1 1]", "1 . [:r 1 nil] [:w 1 2]", "0 = [:r 1 2] [:w 1 1]"],
    ),
    wrong(
        "half of a transaction is seen",
        GSingle,
        Serializable,
        &[
            "0 + [:r 1 nil] [:w 1 1] [:r 2 nil] [:w 2 1]",
            "1 . [:r 1 nil] [:r 2 1]",
            "0 = [:r 1 nil] [:w 1 1] [:r 2 nil] [:w 2 1]",
        ],
    ),
    wrong(
        "half of a blind transaction is seen",
        GSingle,
        Serializable,
        &["0 + [:w 1 1] [:w 2 1]", "1 . [:r 1 nil] [:r 2 1]", "0 = [:w 1 1] [:w 2 1]"],
    ),
    wrong(
        "a session does not see its own write",
        GSingle,
        Session,
        &["0 . [:w 1 1]", "0 . [:r 1 nil]"],
    ),
    wrong(
        "a session goes back to what it overwrote blindly",
        GSingle,
        Session,
        &["9 + [:w 1 7]", "0 . [:r 1 7]", "0 . [:w 1 8]", "0 . [:r 1 7]", "9 = [:w 1 7]"],
    ),
    right(
        "a session comes to what was written beside it",
        &["9 + [:w 1 7]", "0 . [:w 1 8]", "0 . [:r 1 7]", "9 = [:w 1 7]"],
    ),
    wrong(
        "a read-write transaction reads the past",
        GSingle,
        Conflicts,
        &["0 . [:r 1 nil] [:w 1 1]", "1 . [:r 1 nil] [:w 2 2]"],
    ),
    wrong(
        "a reader reads the past",
        GSingle,
        RealTime,
        &["0 . [:r 1 nil] [:w 1 1]", "1 . [:r 1 nil]"],
    ),
    wrong(
        "a reader reads what was overwritten blindly",
        GSingle,
        RealTime,
        &["0 . [:w 1 1]", "1 . [:w 1 2]", "2 . [:r 1 1]"],
    ),
    right(
        "a reader reads what was written at the same time",
        &["0 + [:w 1 1]", "1 . [:w 1 2]", "0 = [:w 1 1]", "2 . [:r 1 1]"],
    ),
    wrong(
        "a version comes back",
        GSingle,
        RealTime,
        &["8 + [:w 1 1]", "2 . [:r 1 1]", "1 . [:w 1 2]", "3 . [:r 1 1]", "8 = [:w 1 1]"],
    ),
    wrong(
        "write skew",
        G2Item,
        Serializable,
        &[
            "0 + [:r 1 nil] [:r 2 nil] [:w 1 1]",
            "1 . [:r 1 nil] [:r 2 nil] [:w 2 1]",
            "0 = [:r 1 nil] [:r 2 nil] [:w 1 1]",
        ],
    ),
    wrong(
        "write skew by blind writes",
        G2Item,
        Serializable,
        &["0 + [:r 1 nil] [:w 2 1]", "1 . [:r 2 nil] [:w 1 1]", "0 = [:r 1 nil] [:w 2 1]"],
    ),
    wrong(
        "two sessions each write and miss the other's write",
        G2Item,
        Session,
        &[
            "0 + [:w 1 1]",
            "1 . [:w 2 1]",
            "0 = [:w 1 1]",
            "1 + [:r 1 nil]",
            "0 . [:r 2 nil]",
            "1 = [:r 1 nil]",
        ],
    ),
    wrong(
        "timestamps inverted through a third",
        G2Item,
        RealTime,
        &[
            "3 + [:r 1 nil] [:r 2 nil] [:w 2 3]",
            "0 . [:r 1 nil] [:w 1 1]",
            "1 . [:r 2 nil]",
            "3 = [:r 1 nil] [:r 2 nil] [:w 2 3]",
        ],
    ),
    right(
        "an unknown write may be there, or come late",
        &["0 + [:w 1 1]", "0 ? [:w 1 1]", "1 . [:r 1 nil]", "1 . [:r 1 1]"],
    ),
    wrong(
        "but not go again",
        GSingle,
        Session,
        &["0 + [:w 1 1]", "0 ? [:w 1 1]", "1 . [:r 1 1]", "1 . [:r 1 nil]"],
    ),
    wrong(
        "nor in half",
        GSingle,
        Serializable,
        &["0 + [:w 1 1] [:w 2 1]", "0 ? [:w 1 1] [:w 2 1]", "1 . [:r 1 1] [:r 2 nil]"],
    ),
    right(
        "a value that nobody tells may be an unknown write's",
        &["0 + [:r 1 nil] [:w 1 nil]", "1 . [:r 1 5]"],
    ),
    right(
        "after a deletion absence is no first version",
        &[
            "0 . [:r 1 nil] [:w 1 1]",
            "0 . [:r 1 1] [:w 1 nil]",
            "0 . [:r 1 nil] [:w 1 2]",
            "0 . [:r 1 2]",
        ],
    ),
    wrong(
        "a deleted value comes back to a reader",
        GSingle,
        RealTime,
        &["0 . [:r 1 nil] [:w 1 1]", "0 . [:r 1 1] [:w 1 nil]", "2 . [:r 1 1]"],
    ),
    wrong(
        "a deleted value comes back and is replaced",
        LostUpdate,
        Serializable,
        &["0 . [:r 1 nil] [:w 1 1]", "0 . [:r 1 1] [:w 1 nil]", "2 . [:r 1 1] [:w 1 2]"],
    ),
    wrong(
        "a deletion is missed by who reads another of its keys",
        GSingle,
        Serializable,
        &[
            "0 . [:r 1 nil] [:w 1 1]",
            "0 + [:r 1 1] [:w 1 nil] [:r 2 nil] [:w 2 5]",
            "2 . [:r 2 5] [:r 1 1]",
            "0 = [:r 1 1] [:w 1 nil] [:r 2 nil] [:w 2 5]",
        ],
    ),
    right(
        "values that were read and replaced in turn",
        &[
            "0 . [:r 1 nil] [:w 1 1]",
            "1 . [:r 1 1] [:w 1 2] [:r 1 2]",
            "2 . [:r 1 2]",
            "0 . [:r 1 2] [:w 1 3]",
        ],
    ),
];

#[test]
fn registers_have_each_anomaly_under_its_name() {
    judge(REGISTERS, check_register);
}

#[test]
fn the_other_workloads_operations_are_refused_rather_than_passed_over() {
    let registers = history(&["0 . [:r 1 nil] [:w 1 1]", "0 . [:r 1 1]"]);
    assert_eq!(kinds(&check_list_append(&registers, Serializable))[0].0, AnomalyKind::Malformed);
    let lists = history(&["0 . [:append 1 1]", "0 . [:r 1 [1]]"]);
    assert_eq!(kinds(&check_register(&lists, Serializable))[0].0, AnomalyKind::Malformed);
}

#[test]
fn an_answer_to_another_question_is_refused() {
    let other = history(&["0 + [:append 1 1]", "0 = [:append 1 2]"]);
    assert_eq!(
        kinds(&check_list_append(&other, Serializable)),
        [(AnomalyKind::Malformed, Serializable)]
    );
}
