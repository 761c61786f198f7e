//! `timestone repro`: the papers' tables and figures, reproduced.
//!
//! ```text
//!   ids ─► timestone_repro::Experiment::run, one after another ─► CSV, SVG, PNG, page ─► index ─► table or JSON
//! ```
//! An experiment that cannot be finished ends the command; those before it are written by then.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use clap::Args;
use indicatif::ProgressBar;
use serde_json::{Value, json};
use timestone_repro::{
    Experiment, Measured, Progress, Provenance, ReproError, RunOptions, WrittenFiles, index_page,
    write,
};

use crate::bench::progress;
use crate::failure::Failure;
use crate::logging;
use crate::output::{Format, table, write_json, write_line};
use crate::signals::Interrupt;

/// Steps of the progress bar for one experiment.
const STEPS: u64 = 1000;
/// The folder that files go to in a checkout of the repository, and elsewhere.
const IN_REPOSITORY: &str = "docs/experiments";
const ELSEWHERE: &str = "experiments";
/// A checkout of the repository has it.
const MARK: &str = "scenarios/repro";
/// The page that names all others.
const INDEX: &str = "README.md";

/// Flags of `timestone repro`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  timestone repro list
  timestone repro semel-t1 --scale 0.1              a quick look
  timestone repro all
  timestone repro semel-t1 --real-time              by the machine's clock, which nobody else should use meanwhile

Exit codes:
  0    the files are written
  1    an experiment could not be finished, or its files could not be written
  2    wrong usage
  3    there is no such experiment
  130  interrupted: the experiments before are written")]
pub(crate) struct ReproArgs {
    /// `list`, names of experiments, or `all`
    #[arg(value_name = "ID", default_value = "list")]
    ids: Vec<String>,
    /// So many times the paper's keys, on so many times its device
    #[arg(long, default_value_t = 1.0, value_name = "X", value_parser = scale)]
    scale: f64,
    /// The folder for figures and pages [default: docs/experiments in the repository, else
    /// experiments]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Another seed than the experiment's own
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// By the machine's clock: experiments of one machine only, on one that does nothing else
    #[arg(long)]
    real_time: bool,
}

/// Reads a scale.
fn scale(text: &str) -> Result<f64, String> {
    let scale: Option<f64> = text.parse().ok();
    scale
        .filter(|scale| *scale > 0.0 && *scale <= 100.0)
        .ok_or_else(|| "it is a number above zero and up to 100, such as 0.1".to_owned())
}

/// Runs the experiments that are asked for.
pub(crate) fn run(args: &ReproArgs, format: Format) -> Result<(), Failure> {
    logging::start_if_asked()?;
    if args.ids.iter().any(|id| id == "list") {
        return list(format);
    }
    let wanted = wanted(args)?;
    let folder = args.out.clone().unwrap_or_else(|| {
        let in_repository = Path::new(MARK).is_dir();
        PathBuf::from(if in_repository { IN_REPOSITORY } else { ELSEWHERE })
    });
    let interrupt = Interrupt::register()?;
    let bar = progress::bar(STEPS * wanted.len() as u64, "{wide_bar} {msg} {eta} left");
    let mut told = Vec::new();
    for (number, experiment) in wanted.iter().enumerate() {
        let mut watched = ShownProgress {
            bar: &bar,
            interrupt: &interrupt,
            id: experiment.id(),
            begin: STEPS * number as u64,
        };
        let options =
            RunOptions { scale: args.scale, seed: args.seed, in_real_time: args.real_time };
        let (measured, scale) = experiment.run(options, &mut watched).map_err(failed)?;
        let provenance = Provenance {
            seed: args.seed.unwrap_or_else(|| experiment.seed()),
            scale,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            in_real_time: args.real_time,
        };
        let written = write(experiment, &measured, &provenance, &folder).map_err(failed)?;
        told.push(ReproReport { experiment, measured, provenance, written });
    }
    bar.finish_and_clear();
    write_index(&folder)?;
    tell(&told, format)
}

/// The experiments that the words name; with `--real-time`, `all` are those that can.
fn wanted(args: &ReproArgs) -> Result<Vec<Experiment>, Failure> {
    if args.ids.iter().any(|id| id == "all") {
        let mut all = Experiment::all().map_err(failed)?;
        all.retain(|experiment| !args.real_time || experiment.runs_in_real_time());
        return Ok(all);
    }
    args.ids.iter().map(|id| Experiment::find(id).map_err(failed)).collect()
}

fn failed(error: ReproError) -> Failure {
    let said = error.to_string();
    match error {
        ReproError::Unknown { .. } => Failure::not_found(said),
        ReproError::VirtualOnly(_) => Failure::usage(said),
        ReproError::Interrupted => Failure::interrupted(said),
        _ => Failure::failed(said),
    }
}

/// Shows how far an experiment is, until a signal comes.
struct ShownProgress<'a> {
    bar: &'a ProgressBar,
    interrupt: &'a Interrupt,
    id: &'a str,
    begin: u64,
}

impl Progress for ShownProgress<'_> {
    fn at(&mut self, share: f64, doing: &str) -> ControlFlow<()> {
        if self.interrupt.has_come() {
            return ControlFlow::Break(());
        }
        self.bar.set_position(self.begin + (share * STEPS as f64) as u64);
        self.bar.set_message(format!("{}: {doing}", self.id));
        ControlFlow::Continue(())
    }
}

/// What became of an experiment.
struct ReproReport<'a> {
    experiment: &'a Experiment,
    measured: Measured,
    provenance: Provenance,
    written: WrittenFiles,
}

impl ReproReport<'_> {
    fn json(&self) -> Value {
        let points: Vec<Value> = self
            .measured
            .points
            .iter()
            .map(|point| {
                let mut figures = json!({ "series": point.series, "x": point.x });
                if let Some(object) = figures.as_object_mut() {
                    object.extend(
                        point
                            .figures
                            .iter()
                            .map(|(name, value)| ((*name).to_owned(), json!(value))),
                    );
                }
                figures
            })
            .collect();
        json!({
            "id": self.experiment.id(),
            "source": self.experiment.source(),
            "seed": self.provenance.seed,
            "scale": self.provenance.scale,
            "version": self.provenance.version,
            "real_time": self.provenance.in_real_time,
            "axis": self.measured.x_name,
            "points": points,
            "page": self.written.page,
            "csv": self.written.csv,
            "svg": self.written.svg,
            "png": self.written.png,
        })
    }
}

fn tell(told: &[ReproReport<'_>], format: Format) -> Result<(), Failure> {
    if format == Format::Json {
        return write_json(&told.iter().map(ReproReport::json).collect::<Vec<_>>());
    }
    let mut shown = table(&["EXPERIMENT", "SOURCE", "PAGE"]);
    for one in told {
        let page = one.written.page.display().to_string();
        shown.add_row([one.experiment.id().to_owned(), one.experiment.source(), page]);
    }
    write_line(&shown.to_string())
}

/// The page that names all pages of the folder.
fn write_index(folder: &Path) -> Result<(), Failure> {
    let experiments = Experiment::all().map_err(failed)?;
    let has_page = |name: &str| folder.join(format!("{name}.md")).is_file();
    let index = folder.join(INDEX);
    std::fs::write(&index, index_page(&experiments, &has_page))
        .map_err(|error| Failure::failed(format!("could not write {}: {error}", index.display())))
}

/// Shows what there is.
fn list(format: Format) -> Result<(), Failure> {
    let experiments = Experiment::all().map_err(failed)?;
    if format == Format::Json {
        let rows = experiments.iter().map(|one| {
            json!({
                "id": one.id(),
                "source": one.source(),
                "title": one.title(),
                "real_time": one.runs_in_real_time(),
            })
        });
        return write_json(&rows.collect::<Vec<_>>());
    }
    let mut shown = table(&["EXPERIMENT", "SOURCE", "WHAT", "REAL TIME"]);
    for one in experiments {
        let real_time = if one.runs_in_real_time() { "yes" } else { "no" };
        shown.add_row([one.id(), &one.source(), one.title(), real_time]);
    }
    write_line(&shown.to_string())
}
