//! `cargo lab scorecard`: fills the marked regions of docs/lab/scorecard.md from what soaks, tests
//! and models counted.
//!
//! ```text
//!   soak ─► target/soak/runs.jsonl ───┐
//!   --run: planted bugs, sweeps,      ├─► sums, scores ─► one table for each `<!-- NAME: begin/end -->` of the page
//!     models, speed, fuzzing ─► target/scores.jsonl
//! ```
//! Everything outside of the regions is written by hand and stays as it is, and so does a region
//! that nothing was counted for. A step that fails leaves the page alone: a table never shows a
//! part of a run.

mod comparisons;
mod counting;
mod scores;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::page::fill;
use crate::soak::sums::Sums;
use crate::soak::target_folder;
use scores::Scores;
use xtask::steps::workspace_root;

const PAGE: &str = "docs/lab/scorecard.md";
/// Where [`run`] keeps what was counted, below the target folder.
const SCORES: &str = "scores.jsonl";

/// Counts everything that needs no soak, and writes it into the page.
pub(crate) fn run(options: &[&str]) -> Result<(), String> {
    let root = workspace_root()?;
    let file = target_folder(&root)?.join(SCORES);
    counting::count(&root, &file, &counting::Options::read(options)?)
        .map_err(|error| format!("{error}\n{PAGE} stays as it is"))?;
    fill_page(&root, &[file])
}

/// Sums up these files, or those that `soak` and `--run` write, and puts the tables into the page.
pub(crate) fn write(files: &[&str]) -> Result<(), String> {
    let root = workspace_root()?;
    if let Some(option) = files.iter().find(|file| file.starts_with('-')) {
        return Err(format!("scorecard has no option '{option}' there; see cargo lab help"));
    }
    let files: Vec<PathBuf> = match files {
        [] => {
            let target = target_folder(&root)?;
            let kept = ["soak/runs.jsonl", SCORES].map(|name| target.join(name));
            kept.into_iter().filter(|file| file.exists()).collect()
        }
        given => given.iter().map(PathBuf::from).collect(),
    };
    if files.is_empty() {
        return Err("nothing was counted yet: run `cargo lab soak` or `cargo lab scorecard \
            --run` first"
            .to_owned());
    }
    fill_page(&root, &files)
}

fn fill_page(root: &Path, files: &[PathBuf]) -> Result<(), String> {
    let (mut sums, mut scores) = (Sums::default(), Scores::default());
    for file in files {
        read(file, &mut sums, &mut scores)?;
    }
    let path = root.join(PAGE);
    let mut page =
        fs::read_to_string(&path).map_err(|error| format!("could not read {PAGE}: {error}"))?;
    let mut regions = scores.regions();
    if sums.has_simulations() {
        regions.push(("soak", sums.markdown()));
    }
    let fuzz = sums.fuzz_table();
    if !fuzz.rows.is_empty() {
        regions.push(("fuzz", fuzz.markdown()));
    }
    for (name, text) in &regions {
        page = fill(PAGE, &page, name, text)?;
    }
    fs::write(&path, page).map_err(|error| format!("could not write {PAGE}: {error}"))?;
    if sums.has_simulations() {
        println!("{}", sums.text());
    }
    print!("{}", scores.text());
    let names: Vec<&str> = regions.iter().map(|(name, _)| *name).collect();
    println!("written into {PAGE}: {}", names.join(", "));
    Ok(())
}

fn read(file: &Path, sums: &mut Sums, scores: &mut Scores) -> Result<(), String> {
    let failed = |error: String| format!("{}: {error}", file.display());
    let text = fs::read_to_string(file).map_err(|error| failed(error.to_string()))?;
    for (at, line) in text.lines().enumerate() {
        let line: Value = serde_json::from_str(line)
            .map_err(|error| failed(format!("line {}: {error}", at + 1)))?;
        // Lines of soaks are of two kinds; older ones of the simulator bore no kind.
        if matches!(line["kind"].as_str(), None | Some("simulation" | "fuzzing")) {
            sums.add(&line);
        } else {
            scores.add(&line).map_err(|error| failed(format!("line {}: {error}", at + 1)))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_a_region_for_everything_that_is_counted() {
        let page = include_str!("../../docs/lab/scorecard.md");
        for region in ["soak", "fuzz"].into_iter().chain(Scores::REGIONS) {
            assert!(fill(PAGE, page, region, "").is_ok(), "{region}");
        }
    }
}
