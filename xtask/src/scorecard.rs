//! `cargo xtask scorecard`: fills the marked region of docs/verification.md from the kept results of soak runs.
//!
//! Everything outside of the region is written by hand and stays as it is.

use std::fs;
use std::path::{Path, PathBuf};

use crate::soak::sums::Sums;
use crate::soak::target_folder;
use crate::steps::workspace_root;

const PAGE: &str = "docs/verification.md";
const BEGIN: &str = "<!-- soak: begin -->\n";
const END: &str = "<!-- soak: end -->";

/// Sums up these files of kept runs, or the one that `soak` writes, and puts the tables into the page.
pub(crate) fn write(files: &[&str]) -> Result<(), String> {
    let root = workspace_root()?;
    let files = match files {
        [] => vec![target_folder(&root)?.join("soak/runs.jsonl")],
        given => given.iter().map(PathBuf::from).collect(),
    };
    let mut sums = Sums::default();
    for file in &files {
        add(&mut sums, file)?;
    }
    let page = root.join(PAGE);
    let text = fs::read_to_string(&page).map_err(|error| format!("could not read {PAGE}: {error}"))?;
    let filled = fill(&text, &sums.markdown())?;
    fs::write(&page, filled).map_err(|error| format!("could not write {PAGE}: {error}"))?;
    println!("{}\nwritten into {PAGE}", sums.text());
    Ok(())
}

fn add(sums: &mut Sums, file: &Path) -> Result<(), String> {
    let failed = |error: String| format!("{}: {error}", file.display());
    let text =
        fs::read_to_string(file).map_err(|error| failed(format!("{error}; has `cargo xtask soak` been run?")))?;
    for (at, line) in text.lines().enumerate() {
        let run = serde_json::from_str(line).map_err(|error| failed(format!("line {}: {error}", at + 1)))?;
        sums.add(&run);
    }
    Ok(())
}

fn fill(page: &str, tables: &str) -> Result<String, String> {
    let missing = || format!("{PAGE} lacks its region, from {} to {END}", BEGIN.trim());
    let (before, rest) = page.split_once(BEGIN).ok_or_else(missing)?;
    let (_, after) = rest.split_once(END).ok_or_else(missing)?;
    Ok(format!("{before}{BEGIN}{tables}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_region_changes() {
        let page = format!("before\n{BEGIN}old\n{END}\nafter\n");
        assert_eq!(fill(&page, "new\n").unwrap(), format!("before\n{BEGIN}new\n{END}\nafter\n"));
    }

    #[test]
    fn a_page_without_the_region_is_left_alone() {
        assert!(fill("nothing", "new").unwrap_err().contains("lacks its region"));
        assert!(fill(BEGIN, "new").is_err());
    }
}
