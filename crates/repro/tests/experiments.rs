//! Every experiment that there is: its file and its pages agree, and equal seeds give equal
//! figures.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use timestone_repro::{
    Experiment, Progress, Provenance, ReproError, RunOptions, index_page, write,
};

struct Unwatched;

impl Progress for Unwatched {
    fn at(&mut self, share: f64, _: &str) -> ControlFlow<()> {
        assert!((0.0..=1.0 + 1e-9).contains(&share), "{share} is a share");
        ControlFlow::Continue(())
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn stems(folder: &Path, extension: &str) -> BTreeSet<String> {
    let files = std::fs::read_dir(folder)
        .expect("the experiment and its files")
        .map(|entry| entry.expect("the experiment and its files").path());
    files
        .filter(|file| file.extension().is_some_and(|found| found == extension))
        .map(|file| {
            file.file_stem().expect("the experiment and its files").to_string_lossy().into_owned()
        })
        .collect()
}

/// Everything that an experiment leaves behind, at the smallest scale that it has.
fn leave(id: &str, seed: u64, folder: &Path) -> (String, String, Vec<u8>) {
    let experiment = Experiment::find(id).expect("the experiment and its files");
    let options = RunOptions { scale: 1e-9, seed: Some(seed), in_real_time: false };
    let (measured, scale) =
        experiment.run(options, &mut Unwatched).expect("the experiment and its files");
    let version = "0".to_owned();
    let provenance = Provenance { seed, scale, version, in_real_time: false };
    let written =
        write(&experiment, &measured, &provenance, folder).expect("the experiment and its files");
    let text = |file: &Path| std::fs::read_to_string(file).expect("the experiment and its files");
    let svg = text(&written.svg);
    assert!(svg.contains(&provenance.line()), "the picture says where it comes from");
    assert!(text(&written.page).contains(&provenance.line()), "so does the page");
    (text(&written.csv), svg, std::fs::read(&written.png).expect("the experiment and its files"))
}

#[test]
fn every_file_of_scenarios_is_an_experiment_that_bears_its_name() {
    let known: BTreeSet<String> = Experiment::all()
        .expect("the experiment and its files")
        .iter()
        .map(|one| one.id().to_owned())
        .collect();
    assert_eq!(known, stems(&root().join("scenarios/repro"), "toml"));
}

#[test]
fn the_index_names_every_page_that_is_there_and_no_other() {
    let folder = root().join("docs/experiments");
    let experiments = Experiment::all().expect("the experiment and its files");
    let index = index_page(&experiments, &|name| folder.join(format!("{name}.md")).is_file());
    assert_eq!(
        std::fs::read_to_string(folder.join("README.md")).expect("the experiment and its files"),
        index
    );
    for name in stems(&folder, "md").iter().filter(|name| *name != "README") {
        assert!(index.contains(&format!("({name}.md)")), "{name}.md is no experiment's page");
        for extension in ["csv", "svg", "png"] {
            assert!(folder.join(format!("{name}.{extension}")).is_file(), "{name}.{extension}");
        }
    }
}

#[test]
fn equal_seeds_give_equal_figures_and_pictures_and_others_do_not() {
    let folder = tempfile::tempdir().expect("the experiment and its files");
    let (one, same, other) = (
        leave("semel-t1", 7, folder.path()),
        leave("semel-t1", 7, folder.path()),
        leave("semel-t1", 8, folder.path()),
    );
    assert!(one == same, "the same seed gives the same files");
    assert_ne!(one.0, other.0);
    assert_eq!(one.0.lines().count(), 2 + 2 * 4, "two stores at four places: {}", one.0);
}

#[test]
fn a_session_alone_never_aborts_and_many_get_more_done_and_meet_each_other() {
    let experiment = Experiment::find("skimpy-f6").expect("the experiment and its files");
    let options = RunOptions { scale: 1e-9, seed: None, in_real_time: false };
    let (measured, _) = experiment.run(options, &mut Unwatched).expect("it runs");
    for store in measured.series() {
        let figure = |sessions: f64, name: &str| {
            measured.figure(store, sessions, name).expect("it was measured")
        };
        assert_eq!(figure(1.0, "commit-percent"), 100.0, "{store}");
        assert!(figure(256.0, "commit-percent") < 99.0, "{store}: updates meet");
        let faster = figure(16.0, "throughput-ktps") / figure(1.0, "throughput-ktps");
        assert!(faster > 4.0, "{store}: gets of sessions go on side by side, {faster}");
    }
}

#[test]
fn who_cannot_run_in_real_time_says_so() {
    let experiment = Experiment::find("milana-f7").expect("the experiment and its files");
    let options = RunOptions { scale: 1e-9, seed: None, in_real_time: true };
    let error = experiment.run(options, &mut Unwatched).unwrap_err();
    assert!(matches!(error, ReproError::VirtualOnly(_)), "{error}");
}

#[test]
fn who_watches_can_end_it() {
    struct Impatient;
    impl Progress for Impatient {
        fn at(&mut self, _: f64, _: &str) -> ControlFlow<()> {
            ControlFlow::Break(())
        }
    }
    let experiment = Experiment::find("semel-t1").expect("the experiment and its files");
    let options = RunOptions { scale: 1e-9, seed: None, in_real_time: false };
    let error = experiment.run(options, &mut Impatient).unwrap_err();
    assert!(matches!(error, ReproError::Interrupted), "{error}");
}
