//! The crates that the simulator replays bit for bit carry the `clippy.toml` that bans clocks,
//! threads and random order.
//!
//! Clippy reads the nearest `clippy.toml` above a package, so each of these crates has a link to
//! one common file. And the system's clock, which clippy knows under one of its names only, is read
//! by the clock crate alone.

use crate::lexer::{code_only, lines_with_word};
use crate::tree::{Finding, Tree};

const COMMON: &str = "clippy.deterministic.toml";

/// Architecture, invariant 1: a function of its inputs alone.
const DETERMINISTIC: [&str; 10] = [
    "types",
    "store",
    "txn",
    "cluster",
    "replication",
    "session",
    "wire",
    "shard",
    "gateway",
    "server",
];

/// What the common file must name.
const BANNED: [&str; 7] = [
    "std::time::SystemTime::now",
    "std::time::Instant::now",
    "std::thread::spawn",
    "std::collections::HashMap",
    "std::collections::HashSet",
    "std::hash::RandomState",
    "std::println",
];

/// The names under which a program reads the time of day.
const TIME_OF_DAY: [&str; 4] =
    ["SystemTime::now", "ClockId::Realtime", "ClockId::RealtimeCoarse", "CLOCK_REALTIME"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = clock_readers(tree);
    let common = tree.text(COMMON).unwrap_or_default();
    for banned in BANNED {
        let named = format!("path = \"{banned}\"");
        let explained =
            common.lines().any(|line| line.contains(&named) && line.contains("reason = \""));
        if !explained {
            findings.push(Finding::new(COMMON, 0, format!("does not ban {banned} with a reason")));
        }
    }
    for name in DETERMINISTIC {
        let path = format!("crates/{name}/clippy.toml");
        let exists = tree.text(&format!("crates/{name}/Cargo.toml")).is_some();
        if exists && tree.text(&path) != Some(common) {
            let message =
                format!("is not the same as {COMMON}; link it: ln -sf ../../{COMMON} {path}");
            findings.push(Finding::new(&path, 0, message));
        }
    }
    findings
}

fn clock_readers(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.sources().filter(|(path, _)| !path.starts_with("crates/clock/")) {
        let code = code_only(text);
        for name in TIME_OF_DAY {
            for line in lines_with_word(&code, name) {
                findings.push(Finding::new(
                    path,
                    line,
                    format!("reads the time of day ({name}); only the clock crate may"),
                ));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn common() -> String {
        let line = |banned: &str| format!("  {{ path = \"{banned}\", reason = \"because\" }},\n");
        BANNED.map(line).concat()
    }

    #[test]
    fn a_linked_file_passes() {
        let common = common();
        let tree = Tree::from([
            (COMMON, common.as_str()),
            ("crates/txn/Cargo.toml", ""),
            ("crates/txn/clippy.toml", common.as_str()),
            ("crates/cli/Cargo.toml", ""),
        ]);
        assert_eq!(check(&tree), []);
    }

    #[test]
    fn a_missing_or_other_file_is_noticed() {
        let common = common();
        let missing = Tree::from([(COMMON, common.as_str()), ("crates/txn/Cargo.toml", "")]);
        assert!(check(&missing)[0].path == "crates/txn/clippy.toml");
        let other = Tree::from([
            (COMMON, common.as_str()),
            ("crates/txn/Cargo.toml", ""),
            ("crates/txn/clippy.toml", "allow-unwrap-in-tests = true"),
        ]);
        assert!(check(&other)[0].message.contains("ln -sf"));
    }

    #[test]
    fn a_ban_that_went_missing_is_noticed() {
        let weaker = common().replace(
            "path = \"std::thread::spawn\", reason = \"because\"",
            "path = \"std::thread::spawn\"",
        );
        let found = check(&Tree::from([(COMMON, weaker.as_str())]));
        assert!(found.len() == 1 && found[0].message.contains("std::thread::spawn"), "{found:?}");
    }

    #[test]
    fn only_the_clock_crate_reads_the_time_of_day() {
        let common = common();
        for name in TIME_OF_DAY {
            let text = format!("// {name}\nlet now = {name}();");
            let elsewhere =
                Tree::from([(COMMON, common.as_str()), ("crates/wal/src/a.rs", text.as_str())]);
            let found = check(&elsewhere);
            assert!(found.len() == 1 && found[0].line == 2, "{name}: {found:?}");
            let at_home =
                Tree::from([(COMMON, common.as_str()), ("crates/clock/src/a.rs", text.as_str())]);
            assert_eq!(check(&at_home), []);
        }
    }
}
