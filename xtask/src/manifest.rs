//! What our checks need to know of the members' `Cargo.toml` files.

use crate::tree::Tree;

/// A `Cargo.toml` of the workspace.
pub(crate) struct Manifest {
    /// Its path from the root.
    pub(crate) path: String,
    /// Its folder from the root.
    pub(crate) folder: String,
    /// The package's name.
    pub(crate) name: String,
    /// `[package.metadata.timestone] floor`.
    pub(crate) floor: Option<i64>,
    /// `[package.metadata.timestone] for-tests`: only tests may depend on it.
    pub(crate) is_for_tests: bool,
    /// Whether `[lints] workspace = true` stands there.
    pub(crate) inherits_lints: bool,
    /// Every dependency of every kind and target.
    pub(crate) dependencies: Vec<Dependency>,
}

/// One dependency, as declared.
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// Whether its version comes from the workspace.
    pub(crate) is_inherited: bool,
    /// Whether only tests see it.
    pub(crate) is_dev: bool,
}

/// The members' manifests: `crates/*`, `xtask` and `lab`.
pub(crate) fn members(tree: &Tree) -> Result<Vec<Manifest>, String> {
    let is_member = |path: &str| {
        let parts: Vec<&str> = path.split('/').collect();
        matches!(parts.as_slice(), ["crates", _, "Cargo.toml"] | ["xtask" | "lab", "Cargo.toml"])
    };
    tree.files().filter(|(path, _)| is_member(path)).map(|(path, text)| read(path, text)).collect()
}

/// `[workspace.dependencies]`: each name, and whether it is one of our own crates.
pub(crate) fn workspace_dependencies(tree: &Tree) -> Result<Vec<(String, bool)>, String> {
    let table = parse("Cargo.toml", tree.text("Cargo.toml").unwrap_or_default())?;
    let declared = table.get("workspace").and_then(|workspace| workspace.get("dependencies"));
    let declared = declared.and_then(toml::Value::as_table).cloned().unwrap_or_default();
    Ok(declared.into_iter().map(|(name, value)| (name, value.get("path").is_some())).collect())
}

fn parse(path: &str, text: &str) -> Result<toml::Table, String> {
    text.parse().map_err(|error| format!("{path} is not valid TOML: {error}"))
}

fn read(path: &str, text: &str) -> Result<Manifest, String> {
    let table = parse(path, text)?;
    let package = table.get("package");
    let field = |name| package.and_then(|package| package.get(name));
    let name = field("name")
        .and_then(toml::Value::as_str)
        .ok_or_else(|| format!("{path} names no package"))?;
    let own = field("metadata").and_then(|metadata| metadata.get("timestone"));
    let mut dependencies = Vec::new();
    collect(&table, &mut dependencies);
    for target in
        table.get("target").and_then(toml::Value::as_table).into_iter().flat_map(|all| all.values())
    {
        if let Some(target) = target.as_table() {
            collect(target, &mut dependencies);
        }
    }
    Ok(Manifest {
        path: path.to_owned(),
        folder: path.trim_end_matches("/Cargo.toml").to_owned(),
        name: name.to_owned(),
        floor: own.and_then(|own| own.get("floor")).and_then(toml::Value::as_integer),
        is_for_tests: own.and_then(|own| own.get("for-tests")).and_then(toml::Value::as_bool)
            == Some(true),
        inherits_lints: table.get("lints").is_some_and(inherits),
        dependencies,
    })
}

fn collect(table: &toml::Table, into: &mut Vec<Dependency>) {
    for kind in ["dependencies", "dev-dependencies", "build-dependencies"] {
        for (name, value) in table.get(kind).and_then(toml::Value::as_table).into_iter().flatten() {
            into.push(Dependency {
                name: name.clone(),
                is_inherited: inherits(value),
                is_dev: kind == "dev-dependencies",
            });
        }
    }
}

fn inherits(value: &toml::Value) -> bool {
    value.get("workspace").and_then(toml::Value::as_bool) == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_dependency_is_seen() {
        let text = "[package]\nname = 'a'\nmetadata.timestone.floor = \
            3\n[dependencies]\nb.workspace = true\n[dev-dependencies]\nc = '1'\n\
                    [build-dependencies]\nd.workspace = true\n[target.'cfg(unix)'.dependencies]\ne \
                    = '2'\n[lints]\nworkspace = true\n";
        let tree = Tree::from([
            ("crates/a/Cargo.toml", text),
            ("fuzz/Cargo.toml", "[package]\nname = 'f'"),
        ]);
        let members = members(&tree).unwrap();
        assert_eq!(members.len(), 1);
        let seen: Vec<(&str, bool, bool)> = members[0]
            .dependencies
            .iter()
            .map(|found| (found.name.as_str(), found.is_inherited, found.is_dev))
            .collect();
        let expected =
            [("b", true, false), ("c", false, true), ("d", true, false), ("e", false, false)];
        assert_eq!(seen, expected);
        assert_eq!((members[0].floor, members[0].inherits_lints), (Some(3), true));
        assert_eq!(members[0].folder, "crates/a");
    }

    #[test]
    fn a_broken_manifest_is_named() {
        let tree = Tree::from([("crates/a/Cargo.toml", "[package")]);
        assert!(members(&tree).is_err_and(|message| message.contains("crates/a/Cargo.toml")));
    }
}
