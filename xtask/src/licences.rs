//! Whether every package that we build with has a licence that `deny.toml` allows; stands in where
//! cargo-deny is not installed.
//!
//! Licences are SPDX expressions: `MIT OR Apache-2.0`, `(MIT OR Apache-2.0) AND Unicode-3.0`, and
//! crates.io's older `MIT/Apache-2.0`. An expression passes when the allowed licences can satisfy
//! it.

use std::path::Path;

use crate::steps::{cargo_program, output_of};

/// Checks every package of the lock file.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    let policy = std::fs::read_to_string(root.join("deny.toml"))
        .map_err(|error| format!("deny.toml: {error}"))?;
    let allowed = allowed(&policy)?;
    let metadata =
        output_of(root, &cargo_program(), &["metadata", "--locked", "--format-version", "1"])?;
    let metadata: serde_json::Value = serde_json::from_slice(&metadata)
        .map_err(|error| format!("cargo metadata printed no JSON: {error}"))?;
    let refused = refused(&metadata, &allowed);
    if refused.is_empty() { Ok(()) } else { Err(refused.join("\n")) }
}

fn allowed(policy: &str) -> Result<Vec<String>, String> {
    let table: toml::Table =
        policy.parse().map_err(|error| format!("deny.toml is not valid TOML: {error}"))?;
    let list = table
        .get("licenses")
        .and_then(|licences| licences.get("allow"))
        .and_then(toml::Value::as_array);
    let list = list.ok_or("deny.toml allows no licences: [licenses] allow is missing")?;
    Ok(list.iter().filter_map(toml::Value::as_str).map(str::to_owned).collect())
}

fn refused(metadata: &serde_json::Value, allowed: &[String]) -> Vec<String> {
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let complaint = |package: &serde_json::Value| {
        let name = format!("{} {}", package["name"].as_str()?, package["version"].as_str()?);
        match package["license"].as_str() {
            None => Some(format!("{name} states no licence")),
            Some(licence) if satisfied(licence, allowed) => None,
            Some(licence) => {
                Some(format!("{name} is licensed '{licence}', which deny.toml does not allow"))
            }
        }
    };
    packages.iter().filter_map(complaint).collect()
}

/// Whether the allowed licences satisfy an SPDX expression; one that cannot be read is not
/// satisfied.
fn satisfied(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut parser = Parser { words: &words, allowed };
    parser.any() == Some(true) && parser.words.is_empty()
}

struct Parser<'a> {
    words: &'a [&'a str],
    allowed: &'a [String],
}

impl<'a> Parser<'a> {
    fn any(&mut self) -> Option<bool> {
        let mut holds = self.all()?;
        while self.take("OR") {
            holds |= self.all()?;
        }
        Some(holds)
    }

    fn all(&mut self) -> Option<bool> {
        let mut holds = self.one()?;
        while self.take("AND") {
            holds &= self.one()?;
        }
        Some(holds)
    }

    fn one(&mut self) -> Option<bool> {
        if self.take("(") {
            let inner = self.any()?;
            return self.take(")").then_some(inner);
        }
        let mut licence = self.next()?.to_owned();
        if self.take("WITH") {
            licence = format!("{licence} WITH {}", self.next()?);
        }
        Some(self.allowed.contains(&licence))
    }

    fn next(&mut self) -> Option<&'a str> {
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        Some(first)
    }

    fn take(&mut self, word: &str) -> bool {
        let found = self.words.first() == Some(&word);
        if found {
            self.words = &self.words[1..];
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(allowed: &[&str]) -> Vec<String> {
        allowed.iter().map(|licence| (*licence).to_owned()).collect()
    }

    #[test]
    fn expressions_are_weighed() {
        let allowed = list(&["MIT", "Unicode-3.0", "Apache-2.0 WITH LLVM-exception"]);
        for good in [
            "MIT",
            "GPL-3.0 OR MIT",
            "MIT/Apache-2.0",
            "(GPL-3.0 OR MIT) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception",
        ] {
            assert!(satisfied(good, &allowed), "{good}");
        }
        for bad in ["GPL-3.0", "MIT AND GPL-3.0", "Apache-2.0", "", "MIT OR", "(MIT", "MIT MIT"] {
            assert!(!satisfied(bad, &allowed), "{bad}");
        }
    }

    #[test]
    fn a_package_with_another_licence_or_none_is_refused() {
        let metadata = serde_json::json!({ "packages": [
            { "name": "good", "version": "1.0.0", "license": "MIT" },
            { "name": "copyleft", "version": "2.0.0", "license": "AGPL-3.0" },
            { "name": "silent", "version": "3.0.0", "license": null },
        ] });
        let refused = refused(&metadata, &list(&["MIT"]));
        assert_eq!(refused.len(), 2);
        assert!(
            refused[0].contains("copyleft 2.0.0") && refused[1].contains("silent 3.0.0"),
            "{refused:?}"
        );
    }

    #[test]
    fn the_policy_must_list_licences() {
        assert_eq!(allowed("[licenses]\nallow = ['MIT']").unwrap(), ["MIT"]);
        assert!(allowed("[licenses]").is_err());
    }
}
