//! Arrows point downwards only (ARCHITECTURE.md, invariant 4), dev-dependencies included.
//!
//! Every crate declares its floor in `[package.metadata.timestone]`. It may import crates of lower
//! floors; of its own floor only the vocabulary, `timestone-types`, in which everything is written.
//! Some rooms are shut in spite of their floor. A crate `for-tests` is nobody's but tests', which
//! may be of its own floor. A crate's tests may name the crate itself, to choose its features.

use crate::manifest::Manifest;
use crate::tree::Finding;

const VOCABULARY: &str = "timestone-types";

/// Who may not import whom although the floors would allow it, and why.
const SHUT: [(&str, &str, &str); 1] = [(
    "timestone-session",
    "timestone-seda",
    "the session engine is a protocol core: the client, the gateway and the simulator each host it \
     in their own way",
)];

pub(super) fn check(members: &[Manifest]) -> Vec<Finding> {
    let floor_of =
        |name: &str| members.iter().find(|member| member.name == name).map(|member| member.floor);
    let mut findings = Vec::new();
    for member in members {
        let mut complain = |message: String| findings.push(Finding::new(&member.path, 0, message));
        if !member.inherits_lints {
            complain(
                "does not inherit the workspace's lints; add [lints] workspace = true".to_owned(),
            );
        }
        let Some(floor) = member.floor else {
            complain("declares no floor; add [package.metadata.timestone] floor".to_owned());
            continue;
        };
        for dependency in &member.dependencies {
            let name = dependency.name.as_str();
            if name == member.name && dependency.is_dev {
                continue;
            }
            // A crate without a floor is complained about where it is declared.
            let Some(Some(theirs)) = floor_of(name) else { continue };
            if theirs > floor {
                complain(format!(
                    "floor {floor} imports {name} of floor {theirs}; arrows point downwards only"
                ));
            } else if members.iter().any(|member| member.name == name && member.is_for_tests) {
                if !dependency.is_dev {
                    complain(format!(
                        "imports {name}, which is for tests: make it a dev-dependency"
                    ));
                }
            } else if theirs == floor && name != VOCABULARY {
                complain(format!(
                    "imports {name} of its own floor {floor}; rooms of one floor do not import \
                     each other"
                ));
            }
            let shut = SHUT.iter().find(|(from, to, _)| *from == member.name && *to == name);
            if let Some((_, _, reason)) = shut {
                complain(format!("imports {name}, which is shut to it: {reason}"));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::members;
    use crate::tree::Tree;

    fn manifest(name: &str, floor: i64, kind: &str, dependency: &str) -> String {
        format!(
            "[package]\nname = '{name}'\nmetadata.timestone.floor = {floor}\n[lints]\nworkspace = \
             true\n\
             [{kind}]\n{dependency}.workspace = true\n"
        )
    }

    fn findings(
        importer: &str,
        floor: i64,
        kind: &str,
        imported: &str,
        theirs: i64,
    ) -> Vec<Finding> {
        let one = manifest(importer, floor, kind, imported);
        let two = manifest(imported, theirs, "dependencies", "elsewhere");
        let tree = Tree::from([
            ("crates/one/Cargo.toml", one.as_str()),
            ("crates/two/Cargo.toml", two.as_str()),
        ]);
        check(&members(&tree).unwrap())
    }

    #[test]
    fn downwards_is_allowed() {
        assert_eq!(findings("a", 3, "dependencies", "b", 2), []);
    }

    #[test]
    fn upwards_is_not_even_for_tests() {
        for kind in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let found = findings("a", 2, kind, "b", 3);
            assert!(
                found.len() == 1 && found[0].message.contains("downwards"),
                "{kind}: {found:?}"
            );
        }
    }

    #[test]
    fn sideways_is_not_but_for_the_vocabulary() {
        let found = findings("a", 3, "dev-dependencies", "b", 3);
        assert!(found.len() == 1 && found[0].message.contains("own floor"), "{found:?}");
        assert_eq!(findings("a", 1, "dependencies", VOCABULARY, 1), []);
    }

    #[test]
    fn what_is_for_tests_is_seen_by_tests_alone() {
        let importer = |kind| manifest("a", 3, kind, "kit");
        let kit = "[package]\nname = 'kit'\nmetadata.timestone.floor = 3\n\
            metadata.timestone.for-tests = true\n[lints]\nworkspace = true\n";
        let found = |kind| {
            let one = importer(kind);
            let tree = Tree::from([
                ("crates/one/Cargo.toml", one.as_str()),
                ("crates/kit/Cargo.toml", kit),
            ]);
            check(&members(&tree).unwrap())
        };
        assert_eq!(found("dev-dependencies"), []);
        let complaints = found("dependencies");
        assert!(
            complaints.len() == 1 && complaints[0].message.contains("dev-dependency"),
            "{complaints:?}"
        );
    }

    #[test]
    fn a_shut_room_stays_shut() {
        let found = findings("timestone-session", 5, "dependencies", "timestone-seda", 4);
        assert!(found.len() == 1 && found[0].message.contains("shut"), "{found:?}");
    }

    #[test]
    fn a_crate_needs_a_floor_and_the_lints() {
        let tree = Tree::from([("crates/a/Cargo.toml", "[package]\nname = 'a'")]);
        let found = check(&members(&tree).unwrap());
        assert!(found.iter().any(|finding| finding.message.contains("no floor")), "{found:?}");
        assert!(found.iter().any(|finding| finding.message.contains("lints")), "{found:?}");
    }
}
