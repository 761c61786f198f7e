//! The scenarios that come with the binary, and those in files.

use std::fs;
use std::io;
use std::path::Path;

use serde_json::json;
use timestone_sim::{CostTable, Scenario};

use crate::failure::Failure;
use crate::output::{Format, table, write_json, write_line};

/// The files of `scenarios/`, in the order of their names.
const KNOWN: [(&str, &str); 51] = [
    ("as-published", include_str!("../../../../scenarios/as-published.toml")),
    ("backup-reads", include_str!("../../../../scenarios/backup-reads.toml")),
    ("bank", include_str!("../../../../scenarios/bank.toml")),
    ("calls", include_str!("../../../../scenarios/calls.toml")),
    ("calm", include_str!("../../../../scenarios/calm.toml")),
    ("centiman", include_str!("../../../../scenarios/centiman.toml")),
    ("clocks", include_str!("../../../../scenarios/clocks.toml")),
    ("conversions", include_str!("../../../../scenarios/conversions.toml")),
    ("cycle", include_str!("../../../../scenarios/cycle.toml")),
    ("damage", include_str!("../../../../scenarios/damage.toml")),
    ("dead-shard", include_str!("../../../../scenarios/dead-shard.toml")),
    ("deposed", include_str!("../../../../scenarios/deposed.toml")),
    ("dram", include_str!("../../../../scenarios/dram.toml")),
    ("dram-singles", include_str!("../../../../scenarios/dram-singles.toml")),
    ("embedded", include_str!("../../../../scenarios/embedded.toml")),
    ("embedded-stops", include_str!("../../../../scenarios/embedded-stops.toml")),
    ("external", include_str!("../../../../scenarios/external.toml")),
    ("failover", include_str!("../../../../scenarios/failover.toml")),
    ("failover-bank", include_str!("../../../../scenarios/failover-bank.toml")),
    ("frugal", include_str!("../../../../scenarios/frugal.toml")),
    ("frugal-damage", include_str!("../../../../scenarios/frugal-damage.toml")),
    ("frugal-failover", include_str!("../../../../scenarios/frugal-failover.toml")),
    ("gateway", include_str!("../../../../scenarios/gateway.toml")),
    ("gateway-failover", include_str!("../../../../scenarios/gateway-failover.toml")),
    ("gateways", include_str!("../../../../scenarios/gateways.toml")),
    ("gateways-ordered", include_str!("../../../../scenarios/gateways-ordered.toml")),
    ("hand-over", include_str!("../../../../scenarios/hand-over.toml")),
    ("large", include_str!("../../../../scenarios/large.toml")),
    ("leaving", include_str!("../../../../scenarios/leaving.toml")),
    ("list-append", include_str!("../../../../scenarios/list-append.toml")),
    ("lying-disk", include_str!("../../../../scenarios/lying-disk.toml")),
    ("master-cut", include_str!("../../../../scenarios/master-cut.toml")),
    ("no-log", include_str!("../../../../scenarios/no-log.toml")),
    ("no-master", include_str!("../../../../scenarios/no-master.toml")),
    ("old-reads", include_str!("../../../../scenarios/old-reads.toml")),
    ("older-copy", include_str!("../../../../scenarios/older-copy.toml")),
    ("ranges", include_str!("../../../../scenarios/ranges.toml")),
    ("ranges-failover", include_str!("../../../../scenarios/ranges-failover.toml")),
    ("rebuilding", include_str!("../../../../scenarios/rebuilding.toml")),
    ("register", include_str!("../../../../scenarios/register.toml")),
    ("restarts", include_str!("../../../../scenarios/restarts.toml")),
    ("retwis", include_str!("../../../../scenarios/retwis.toml")),
    ("scans", include_str!("../../../../scenarios/scans.toml")),
    ("server-time", include_str!("../../../../scenarios/server-time.toml")),
    ("short-leases", include_str!("../../../../scenarios/short-leases.toml")),
    ("singles", include_str!("../../../../scenarios/singles.toml")),
    ("standing-by", include_str!("../../../../scenarios/standing-by.toml")),
    ("swarm", include_str!("../../../../scenarios/swarm.toml")),
    ("threads", include_str!("../../../../scenarios/threads.toml")),
    ("unread", include_str!("../../../../scenarios/unread.toml")),
    ("ycsb", include_str!("../../../../scenarios/ycsb.toml")),
];

/// The scenario of this name, or in this file.
pub(super) fn find(name: &str) -> Result<Scenario, Failure> {
    let known = KNOWN.iter().find(|(known, _)| *known == name);
    let (file, text) = match known {
        Some((name, text)) => (format!("scenarios/{name}.toml"), (*text).to_owned()),
        None => (name.to_owned(), read(name)?),
    };
    let mut scenario =
        Scenario::read(&file, &text).map_err(|error| Failure::usage(error.to_string()))?;
    if scenario.name.is_empty() {
        let stem = std::path::Path::new(name).file_stem().and_then(|stem| stem.to_str());
        scenario.name = stem.unwrap_or("scenario").to_owned();
    }
    Ok(scenario)
}

fn read(file: &str) -> Result<String, Failure> {
    fs::read_to_string(file).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            let names: Vec<&str> = KNOWN.iter().map(|(name, _)| *name).collect();
            Failure::not_found(format!(
                "there is no scenario and no file {file:?}; the scenarios are {}",
                names.join(", ")
            ))
        }
        io::ErrorKind::InvalidData => {
            Failure::usage(format!("{file} is no text; a scenario is a TOML file in UTF-8"))
        }
        io::ErrorKind::IsADirectory => {
            Failure::usage(format!("{file} is a folder; name a file in it"))
        }
        _ => Failure::failed(format!("could not read the scenario {file}: {error}")),
    })
}

/// What work costs, from a file that the calibration wrote.
pub(super) fn costs(file: &Path) -> Result<CostTable, Failure> {
    let text = fs::read_to_string(file).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Failure::not_found(format!(
            "there is no file {}; cargo run --release -p timestone-sim --example calibrate -- FILE \
             writes one",
            file.display()
        )),
        _ => Failure::failed(format!("could not read the costs {}: {error}", file.display())),
    })?;
    CostTable::read(&file.display().to_string(), &text)
        .map_err(|error| Failure::usage(error.to_string()))
}

/// Shows what there is.
pub(super) fn list(format: Format) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for (name, text) in KNOWN {
        let about =
            Scenario::read(name, text).map_err(|error| Failure::failed(error.to_string()))?.about;
        rows.push((name, about));
    }
    if format == Format::Json {
        return write_json(
            &rows
                .iter()
                .map(|(name, about)| json!({"name": name, "about": about}))
                .collect::<Vec<_>>(),
        );
    }
    let mut shown = table(&["SCENARIO", "ABOUT"]);
    for (name, about) in rows {
        shown.add_row([name.to_owned(), about]);
    }
    write_line(&shown.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_is_right_and_bears_its_name() {
        for (name, _) in KNOWN {
            let scenario = find(name).expect("a scenario of ours");
            assert_eq!(scenario.name, name);
            assert!(!scenario.about.is_empty());
        }
    }

    #[test]
    fn every_scenario_of_the_folder_is_known_and_no_other() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
        let mut there: Vec<String> = fs::read_dir(folder)
            .expect("the folder of scenarios")
            .map(|entry| entry.expect("a file"))
            // Those of the papers' experiments have a folder of their own.
            .filter(|entry| entry.path().is_file())
            .map(|entry| entry.file_name().into_string().expect("a name"))
            .map(|file| file.strip_suffix(".toml").expect("scenarios only").to_owned())
            .collect();
        there.sort();
        assert_eq!(there, KNOWN.map(|(name, _)| name));
    }

    #[test]
    fn what_is_not_there_is_said_with_what_is() {
        let said = find("earthquake").expect_err("there is none").to_string();
        assert!(said.contains("earthquake") && said.contains("list-append"), "{said}");
    }
}
