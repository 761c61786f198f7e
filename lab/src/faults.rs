//! `cargo lab faults`: fills the table of faults in docs/verification.md from what was run.
//!
//! ```text
//!   FAULTS: what may happen, and what is there against it ──┐
//!   soak, or --run SEEDS ─► target/soak/runs.jsonl ─────────┴─► seeds, failures and strokes of each row ─► the page
//! ```
//! A row names things of the tree: golden runs, mutations of the model, scenarios, tests of real
//! processes. That they are there is looked at before anything is written, and by a test.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::page::fill;
use crate::soak::{number, run_scenarios, target_folder};
use crate::table::Table;
use xtask::steps::workspace_root;

const PAGE: &str = "docs/verification.md";
const REGION: &str = "faults";
/// Where what a row names may stand: golden runs and scripts, mutations, tests of real processes.
const GOLDEN: [&str; 4] = [
    "crates/replication/tests/replication",
    "crates/txn/tests/scripts",
    "crates/session/tests/engine",
    "crates/cluster/tests/cluster",
];
const MUTATIONS: &str = "models/replication/src/mutation.rs";
const PROCESSES: &str = "crates/cli/tests/node";
const KINDS: &str = "crates/sim/src/fault/kind.rs";
/// What the simulator counts among faults, and does not inject.
const COUNTED: &str = "failover";

/// The tests of real processes that several rows name.
const EVERY_ROLE: &str = "histories_on_etcd_are_right_while_every_role_is_killed_and_falls_silent";
const ONE_STORE: &str = "three_processes_with_a_master_on_etcd_are_one_store";

/// Something that may happen to a cluster with several copies, and what is there against it.
struct Fault {
    name: &'static str,
    golden: &'static [&'static str],
    mutations: &'static [&'static str],
    scenarios: &'static [&'static str],
    /// The simulator's kinds of it.
    kinds: &'static [&'static str],
    processes: &'static [&'static str],
}

const FAULTS: [Fault; 18] = [
    Fault {
        name: "the client dies",
        golden: &["late_and_duplicate_prepares_after_the_decision", "termination_prepared_later"],
        mutations: &["AskerDoesNotAnswer", "IgnoresTimestamps"],
        scenarios: &["failover", "failover-bank", "gateway-failover"],
        kinds: &["client-kill"],
        processes: &["participants_in_several_processes_end_what_a_vanished_client_left"],
    },
    Fault {
        name: "the primary dies, at every step of a commit",
        golden: &["a_batch_that_counted_is_fetched_by_a_new_primary_that_lacks_it"],
        mutations: &["DropsPrepared", "ForgetsOutcomes"],
        scenarios: &["failover", "failover-bank", "gateway-failover"],
        kinds: &["kill", "power-cut"],
        processes: &[EVERY_ROLE],
    },
    Fault {
        name: "a backup dies, at every step of a commit",
        golden: &["a_batch_counts_when_the_primary_and_one_of_two_backups_have_it"],
        mutations: &["AcksBeforeLog", "AcksBeforeInstall"],
        scenarios: &["failover", "failover-bank", "gateway-failover"],
        kinds: &["kill", "power-cut"],
        processes: &[EVERY_ROLE],
    },
    Fault {
        name: "client and primary die",
        golden: &["a_batch_that_nobody_else_has_is_cut_when_its_primary_comes_back"],
        mutations: &["ForgetsFreeze", "DropsStablePrepared"],
        scenarios: &["failover", "failover-bank"],
        kinds: &["kill", "power-cut", "client-kill"],
        processes: &["client_and_primary_die_together_and_the_others_end_what_they_left"],
    },
    Fault {
        name: "a deposed primary is left with clients",
        golden: &["a_deposed_primary_counts_nothing_any_more"],
        mutations: &["AcceptsOldEpoch", "ReadsAboveLease"],
        scenarios: &["deposed", "gateway-failover"],
        kinds: &["cut-from-servers", "split"],
        processes: &["a_deposed_primary_that_keeps_its_clients_tells_them_nothing_of_the_past"],
    },
    Fault {
        name: "a primary stands still for longer than its lease, and wakes up",
        golden: &["a_new_primary_waits_for_the_leases_of_earlier_ones"],
        mutations: &["ReadsUnderOldLease", "VotesUnderOldLease"],
        scenarios: &["deposed", "gateway-failover"],
        kinds: &["pause"],
        processes: &[EVERY_ROLE],
    },
    Fault {
        name: "clocks are 500 ms apart, and jump",
        golden: &["what_is_there_now_is_told_below_the_lease"],
        mutations: &["IgnoresLeases", "NoFloor"],
        scenarios: &["clocks", "deposed", "gateway-failover"],
        kinds: &["clock-jump", "clock-drift"],
        processes: &["histories_are_right_where_clocks_are_half_a_second_apart_and_jump"],
    },
    Fault {
        name: "etcd is lost",
        golden: &[],
        mutations: &["ReissuesEpoch"],
        scenarios: &["no-master"],
        kinds: &["master-gone"],
        processes: &[EVERY_ROLE, ONE_STORE],
    },
    Fault {
        name: "a server reaches the others, and not etcd",
        golden: &[],
        mutations: &[],
        scenarios: &["master-cut"],
        kinds: &["master-cut"],
        processes: &[],
    },
    Fault {
        name: "messages are lost, doubled and reordered; over TCP late, or lost with their connection",
        golden: &["lost_messages_are_noticed_and_sent_again"],
        mutations: &["RevivesDropped", "TooOldIsNo"],
        scenarios: &["failover", "deposed", "gateway-failover"],
        kinds: &["break", "black-hole", "cut", "cut-one-way", "slow-network"],
        processes: &["histories_are_right_where_links_are_late_silent_and_broken"],
    },
    Fault {
        name: "a replica loses its disk, or comes back with an older state",
        golden: &["a_replica_that_has_lost_its_disk_answers_nobody_before_it_has_a_table"],
        mutations: &["AnswersWithoutState", "BelievesOldState", "ReturnsWithoutAsking"],
        scenarios: &["rebuilding", "older-copy", "standing-by"],
        kinds: &["lost-devices", "lost-directory", "older-copy"],
        processes: &[
            "a_server_loses_its_disk_and_another_its_directory_under_load",
            "an_older_copy_of_a_directory_comes_back_under_load",
        ],
    },
    Fault {
        name: "a failover during a failover",
        golden: &[
            "a_table_is_installed_in_one_step",
            "a_primary_that_starts_anew_needs_another_epoch",
        ],
        mutations: &["ServesWithoutOwnCopy", "MergesOldTables"],
        scenarios: &["failover-bank", "deposed"],
        kinds: &["failover"],
        processes: &["primaries_are_killed_while_they_become_primary_again_and_again"],
    },
    Fault {
        name: "etcd is restored from a backup",
        golden: &[],
        mutations: &["ReissuesEpoch"],
        scenarios: &[],
        kinds: &[],
        processes: &[
            ONE_STORE,
            "a_lost_server_is_forgotten_after_a_restore_when_somebody_says_so",
            "etcd_with_several_copies_is_restored_from_a_backup_and_no_epoch_comes_twice",
        ],
    },
    Fault {
        name: "a backup lags until the log goes on without it",
        golden: &[
            "a_backup_that_is_too_far_behind_is_not_waited_for_and_comes_back_by_a_checkpoint",
        ],
        mutations: &["StableWithoutOne", "InstallsWithoutCheckpoint"],
        scenarios: &["rebuilding"],
        kinds: &["kill", "power-cut", "isolate"],
        processes: &[
            "a_backup_that_lags_until_the_log_goes_on_without_it_comes_back_by_a_checkpoint",
        ],
    },
    Fault {
        name: "a deposed primary has clients with slow clocks",
        golden: &["what_is_there_now_is_told_below_the_lease"],
        mutations: &["ReadsAboveLease", "FreesWhatItGivesUp"],
        scenarios: &["deposed"],
        kinds: &["cut-from-servers", "clock-jump"],
        processes: &["a_deposed_primary_and_its_clients_with_slow_clocks_tell_nothing_of_the_past"],
    },
    Fault {
        name: "a write that was carried out is repeated at the new primary",
        golden: &["replays_get_the_first_answer_and_later_a_refusal"],
        mutations: &["DropsUnacknowledged", "TooOldIsNo"],
        scenarios: &["failover", "gateway-failover"],
        kinds: &["failover"],
        processes: &[EVERY_ROLE],
    },
    Fault {
        name: "a primary is silent while clients read snapshots that may be old",
        golden: &["snapshots_begin_at_what_is_closed_while_a_primary_is_silent"],
        mutations: &["ClosesOverPrepared", "BackupReadsBehind"],
        scenarios: &["old-reads", "backup-reads"],
        kinds: &["kill", "power-cut", "isolate", "pause"],
        processes: &["snapshots_that_may_be_old_go_on_while_nobody_serves_a_shard"],
    },
    Fault {
        name: "all of this in one cluster",
        golden: &[],
        mutations: &[],
        scenarios: &[],
        kinds: &[],
        processes: &["histories_are_right_in_a_cluster_that_everything_befalls"],
    },
];

/// What was run of a scenario.
#[derive(Default)]
struct Run {
    seeds: u64,
    failed: u64,
    /// By kind of fault.
    struck: BTreeMap<String, u64>,
}

/// What was run, by scenario, and at which commits.
#[derive(Default)]
struct Runs {
    of: BTreeMap<String, Run>,
    commits: Vec<String>,
}

impl Runs {
    fn add(&mut self, line: &Value) {
        let Some(scenario) = line["scenario"].as_str() else { return };
        let run = self.of.entry(scenario.to_owned()).or_default();
        run.seeds += line["seeds"].as_u64().unwrap_or(0);
        run.failed += line["failed"].as_array().map_or(0, |failed| failed.len() as u64);
        for (kind, fault) in line["faults"].as_object().into_iter().flatten() {
            *run.struck.entry(kind.clone()).or_default() += fault["struck"].as_u64().unwrap_or(0);
        }
        if let Some(commit) = line["commit"].as_str()
            && !self.commits.iter().any(|known| known == commit)
        {
            self.commits.push(commit.to_owned());
        }
    }

    fn markdown(&self) -> String {
        let row = |fault: &Fault| {
            let code = |names: &[&str]| names.iter().map(|name| format!("`{name}`")).collect();
            let named = |names: Vec<String>| {
                if names.is_empty() { "–".to_owned() } else { names.join(", ") }
            };
            let runs = fault.scenarios.iter().map(|name| (name, self.of.get(*name)));
            let scenarios = runs.clone().map(|(name, run)| {
                let (seeds, failed) = run.map_or((0, 0), |run| (run.seeds, run.failed));
                format!("`{name}` {seeds} ({failed})")
            });
            let struck = |run: &Run| -> u64 {
                fault.kinds.iter().filter_map(|kind| run.struck.get(*kind)).sum()
            };
            let struck: u64 = runs.filter_map(|(_, run)| run.map(struck)).sum();
            vec![
                fault.name.to_owned(),
                named(code(fault.golden)),
                named(code(fault.mutations)),
                named(scenarios.collect()),
                struck.to_string(),
                named(code(fault.processes)),
            ]
        };
        let table = Table {
            header: vec![
                "fault",
                "golden run or script",
                "mutations of the model",
                "scenarios: seeds (failed)",
                "struck",
                "real processes",
            ],
            rows: FAULTS.iter().map(row).collect(),
        };
        format!("Commits that ran: {}.\n\n{}", self.commits.join(", "), table.markdown())
    }
}

/// Writes the table from these files, or from what `soak` and `--run` keep; with `--run SEEDS`, so
/// many seeds of each scenario of the table are run first.
pub(crate) fn run(words: &[&str]) -> Result<(), String> {
    let root = workspace_root()?;
    check(&root)?;
    let kept = target_folder(&root)?.join("soak/runs.jsonl");
    let files: Vec<PathBuf> = match words {
        ["--run", seeds] => {
            let mut scenarios: Vec<&str> =
                FAULTS.iter().flat_map(|fault| fault.scenarios).copied().collect();
            scenarios.sort_unstable();
            scenarios.dedup();
            vec![run_scenarios(&scenarios, number("--run", Some(seeds))?)?]
        }
        [] => vec![kept],
        files if files.iter().all(|file| !file.starts_with('-')) => {
            files.iter().map(PathBuf::from).collect()
        }
        other => return Err(format!("faults has no option '{}'; see cargo lab help", other[0])),
    };
    let mut runs = Runs::default();
    for file in &files {
        let text = fs::read_to_string(file).map_err(|error| {
            format!(
                "could not read {}: {error}; run `cargo lab soak` or `cargo lab faults --run SEEDS` \
                 first",
                file.display()
            )
        })?;
        for line in text.lines() {
            let line = serde_json::from_str(line)
                .map_err(|error| format!("{}: {error}", file.display()))?;
            runs.add(&line);
        }
    }
    let path = root.join(PAGE);
    let page =
        fs::read_to_string(&path).map_err(|error| format!("could not read {PAGE}: {error}"))?;
    let page = fill(PAGE, &page, REGION, &runs.markdown())?;
    fs::write(&path, page).map_err(|error| format!("could not write {PAGE}: {error}"))?;
    println!("written into {PAGE}: {REGION}");
    Ok(())
}

/// Everything that rows name is there.
fn check(root: &Path) -> Result<(), String> {
    let golden: String =
        GOLDEN.iter().map(|folder| texts(root, folder)).collect::<Result<_, _>>()?;
    let mutations = fs::read_to_string(root.join(MUTATIONS))
        .map_err(|error| format!("could not read {MUTATIONS}: {error}"))?;
    let processes = texts(root, PROCESSES)?;
    let kinds = fs::read_to_string(root.join(KINDS))
        .map_err(|error| format!("could not read {KINDS}: {error}"))?;
    for fault in &FAULTS {
        for (names, text, what) in [
            (fault.golden, &golden, "golden run"),
            (fault.mutations, &mutations, "mutation"),
            (fault.processes, &processes, "test of real processes"),
        ] {
            if let Some(name) = names.iter().find(|name| !text.contains(*name)) {
                return Err(format!("{name} is no {what}: {}", fault.name));
            }
        }
        let is_known = |kind: &str| kind == COUNTED || kinds.contains(&format!("\"{kind}\""));
        if let Some(kind) = fault.kinds.iter().find(|kind| !is_known(kind)) {
            return Err(format!("{kind} is no fault of the simulator: {}", fault.name));
        }
        for scenario in fault.scenarios {
            if !root.join("scenarios").join(format!("{scenario}.toml")).is_file() {
                return Err(format!("{scenario} is no scenario: {}", fault.name));
            }
        }
    }
    Ok(())
}

/// The names of the files of a folder, and of the folders in it, and what is in them.
fn texts(root: &Path, folder: &str) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("could not read {folder}: {error}");
    let mut text = String::new();
    for entry in fs::read_dir(root.join(folder)).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            text.push_str(&texts(root, &format!("{folder}/{name}"))?);
            continue;
        }
        text.push_str(&path.display().to_string());
        text.push_str(&fs::read_to_string(&path).map_err(failed)?);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn everything_that_the_table_names_is_there() {
        check(&workspace_root().unwrap()).unwrap();
        let page = include_str!("../../docs/verification.md");
        assert!(fill(PAGE, page, REGION, "").is_ok());
    }

    #[test]
    fn rows_have_the_seeds_and_strokes_of_their_scenarios() {
        let mut runs = Runs::default();
        let line = |seeds: u64, failed: Value| {
            json!({
                "kind": "simulation", "scenario": "no-master", "commit": "abc", "seeds": seeds,
                "failed": failed, "faults": {"master-gone": {"struck": 7, "seeds": 3}},
            })
        };
        runs.add(&line(30, json!([])));
        runs.add(&line(20, json!([{"seed": 7, "findings": []}])));
        let page = runs.markdown();
        assert!(page.starts_with("Commits that ran: abc.\n"), "{page}");
        assert!(page.contains("| etcd is lost | – | `ReissuesEpoch` | `no-master` 50 (1) | 14 |"));
    }
}
