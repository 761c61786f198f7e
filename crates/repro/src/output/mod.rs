//! What an experiment leaves behind: a CSV, a picture as SVG and as PNG, and a page of Markdown.
//!
//! Every figure says which seed, scale, version and kind of time it is from ([`Provenance`]). The
//! files of one run of one seed in virtual time are the same, byte for byte, on every machine.

mod chart;
mod page;
mod picture;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::error::ReproError;
use crate::experiment::Experiment;
use crate::measured::Measured;

pub use page::index_page;

/// Where figures come from.
#[derive(Clone, PartialEq, Debug)]
pub struct Provenance {
    /// What everything that is drawn derives from.
    pub seed: u64,
    /// So many times the paper's keys, on so many times its device.
    pub scale: f64,
    /// Of this program.
    pub version: String,
    /// By the machine's clock, and not in virtual time.
    pub in_real_time: bool,
}

impl Provenance {
    /// As it is printed on every figure.
    #[must_use]
    pub fn line(&self) -> String {
        let time = if self.in_real_time { "real time" } else { "virtual time" };
        let Self { seed, scale, version, .. } = self;
        format!("seed {seed} · scale {} · timestone {version} · {time}", number(*scale))
    }
}

/// The files of an experiment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WrittenFiles {
    /// The page.
    pub page: PathBuf,
    /// The figures.
    pub csv: PathBuf,
    /// The picture.
    pub svg: PathBuf,
    /// The picture as pixels.
    pub png: PathBuf,
}

/// Writes all files of an experiment into a folder, which is made if it is not there. What was
/// measured in real time lies beside what was measured in virtual time.
///
/// # Errors
/// [`ReproError::Write`].
pub fn write(
    experiment: &Experiment,
    measured: &Measured,
    provenance: &Provenance,
    folder: &Path,
) -> Result<WrittenFiles, ReproError> {
    let name = file_name(experiment.id(), provenance.in_real_time);
    let path = |extension: &str| folder.join(format!("{name}.{extension}"));
    let written =
        WrittenFiles { page: path("md"), csv: path("csv"), svg: path("svg"), png: path("png") };
    std::fs::create_dir_all(folder).map_err(|error| not_written(folder, &error))?;
    let spec = &experiment.spec;
    let pictures = picture::draw(spec, measured, provenance)?;
    let page = page::page(spec, measured, provenance, &name);
    for (file, contents) in [
        (&written.csv, csv(measured, provenance).as_bytes()),
        (&written.svg, pictures.svg.as_bytes()),
        (&written.png, &pictures.png),
        (&written.page, page.as_bytes()),
    ] {
        std::fs::write(file, contents).map_err(|error| not_written(file, &error))?;
    }
    Ok(written)
}

/// What the files of an experiment are called, without their extensions.
pub(crate) fn file_name(id: &str, in_real_time: bool) -> String {
    if in_real_time { format!("{id}-real-time") } else { id.to_owned() }
}

fn not_written(path: &Path, error: &std::io::Error) -> ReproError {
    ReproError::Write { path: path.display().to_string(), reason: error.to_string() }
}

/// A line for each point, with everything that was measured there.
fn csv(measured: &Measured, provenance: &Provenance) -> String {
    let mut names: Vec<&str> =
        measured.points.iter().flat_map(|point| point.figures.keys().copied()).collect();
    names.sort_unstable();
    names.dedup();
    let mut out = format!("# {}\n", provenance.line());
    let _ = writeln!(out, "series,{},{}", measured.x_name, names.join(","));
    for point in &measured.points {
        let _ = write!(out, "{},{}", point.series, number(point.x));
        for name in &names {
            let figure = point.figures.get(name).map(|figure| format!("{figure:.3}"));
            let _ = write!(out, ",{}", figure.unwrap_or_default());
        }
        out.push('\n');
    }
    out
}

/// A number with as many digits as it needs, five at most.
pub(crate) fn number(of: f64) -> String {
    let said = format!("{of:.5}");
    said.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A figure with the digits that mean something.
pub(crate) fn figure(of: f64) -> String {
    match of.abs() {
        large if large >= 100.0 => format!("{of:.0}"),
        middle if middle >= 10.0 => format!("{of:.1}"),
        _ => format!("{of:.2}"),
    }
}
