//! No file names the machine it was written on, or a package registry other than by its public,
//! ordinary index.
//!
//! A checkout must build anywhere: a developer's home folder, a build machine's scratch folder or a
//! mirror's address would work for one person only.

use crate::tree::{Finding, Tree};

/// Folders that exist on somebody's machine. Spelled in two halves, so that this file passes its
/// own check.
const MACHINE: [&str; 5] = [
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
    concat!("/Us", "ers/"),
    concat!("C:\\", "Users"),
];

/// Hosts and settings of package registries and their mirrors.
const REGISTRIES: [&str; 11] = [
    concat!("static.", "crates.io"),
    concat!("index.", "crates.io"),
    concat!("registry.", "npmjs"),
    concat!("pypi", ".org"),
    concat!("files.python", "hosted"),
    concat!("proxy.", "golang"),
    concat!("repo.maven", ".apache"),
    concat!("deb.", "debian"),
    concat!("--index", "-url"),
    concat!("replace", "-with"),
    concat!("[reg", "istries"),
];

/// The one registry that a lock file may name.
const PUBLIC_INDEX: &str = "registry+https://github.com/rust-lang/crates.io-index";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.files() {
        for (at, line) in text.lines().enumerate() {
            if let Some(folder) = MACHINE.iter().find(|folder| line.contains(**folder)) {
                findings.push(Finding::new(
                    path,
                    at + 1,
                    format!("names a folder of one machine ('{folder}…')"),
                ));
            }
            if let Some(host) = REGISTRIES.iter().find(|host| line.contains(**host)) {
                findings.push(Finding::new(
                    path,
                    at + 1,
                    format!("names a package registry or mirror ('{host}')"),
                ));
            }
            let source = line.strip_prefix("source = \"").filter(|_| path.ends_with("Cargo.lock"));
            if source.is_some_and(|source| source.trim_end_matches('"') != PUBLIC_INDEX) {
                findings.push(Finding::new(
                    path,
                    at + 1,
                    "locks a package from elsewhere than the public index",
                ));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_files_pass() {
        let lock = format!("source = \"{PUBLIC_INDEX}\"\n");
        let text = "a homework/rooted path, /etc/hosts, https://docs.rs/mio";
        assert_eq!(check(&Tree::from([("Cargo.lock", lock.as_str()), ("a.md", text)])), []);
    }

    #[test]
    fn a_machines_folder_is_noticed() {
        for folder in MACHINE {
            let text = format!("one\nsee {folder}x");
            let found = check(&Tree::from([("a.md", text.as_str())]));
            assert!(found.len() == 1 && found[0].line == 2, "{folder}: {found:?}");
        }
    }

    #[test]
    fn a_registry_is_noticed() {
        for host in REGISTRIES {
            assert_eq!(check(&Tree::from([(".ci/run", host)])).len(), 1, "{host}");
        }
    }

    #[test]
    fn a_package_locked_from_elsewhere_is_noticed() {
        let found = check(&Tree::from([("Cargo.lock", "source = \"git+https://example.com/x\"")]));
        assert!(found.len() == 1 && found[0].message.contains("public index"), "{found:?}");
    }
}
