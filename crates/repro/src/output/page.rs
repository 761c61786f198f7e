//! The page of an experiment: what the paper says, what was measured, why they differ.

use std::fmt::Write as _;

use crate::experiment::Experiment;
use crate::measured::Measured;
use crate::output::{Provenance, figure, number};
use crate::spec::{ChartPart, Spec};

/// The page; `name` is what its picture is called, without extension.
pub(super) fn page(
    spec: &Spec,
    measured: &Measured,
    provenance: &Provenance,
    name: &str,
) -> String {
    let mut out = format!("# {}\n\n", spec.title);
    let flags = match (provenance.in_real_time, provenance.seed == spec.seed) {
        (false, true) => String::new(),
        (false, false) => format!(" --seed {}", provenance.seed),
        (true, true) => " --real-time".to_owned(),
        (true, false) => format!(" --real-time --seed {}", provenance.seed),
    };
    let _ = write!(
        out,
        "{}, {}. `timestone repro {}{flags}{}` writes this page, [the figures]({name}.csv) and the \
         picture ([SVG]({name}.svg)); every parameter is in \
         [{}.toml](../../scenarios/repro/{}.toml).\n\n![{}]({name}.png)\n\n",
        spec.paper,
        spec.section,
        spec.id,
        if provenance.scale == 1.0 {
            String::new()
        } else {
            format!(" --scale {}", number(provenance.scale))
        },
        spec.id,
        spec.id,
        spec.title
    );
    let _ = write!(out, "*{}*\n\n## The paper says\n\n{}\n\n", provenance.line(), spec.says.trim());
    out.push_str("## We measured\n\n");
    for chart in &spec.chart {
        table(&mut out, chart, spec, measured);
    }
    for note in &measured.notes {
        let _ = writeln!(out, "{note}\n");
    }
    let _ = write!(out, "## Why they differ\n\n{}\n", spec.differs.trim());
    out
}

/// The figures of a chart: ours, and the paper's beside them where it prints some.
fn table(out: &mut String, chart: &ChartPart, spec: &Spec, measured: &Measured) {
    let series: Vec<&str> = measured
        .series()
        .into_iter()
        .filter(|series| !measured.curve(series, &chart.figure).is_empty())
        .collect();
    if series.is_empty() {
        return;
    }
    let reported = |name: &str| chart.reported.iter().find(|reported| reported.series == name);
    let label = |name: &str| spec.labels.get(name).cloned().unwrap_or_else(|| name.to_owned());
    let _ = write!(out, "{} ({}):\n\n| {} |", chart.title, chart.unit, spec.axis);
    for name in &series {
        let _ = write!(out, " {} |", label(name));
        if reported(name).is_some() {
            let _ = write!(out, " {}, the paper |", label(name));
        }
    }
    let columns = series.len() + series.iter().filter(|name| reported(name).is_some()).count();
    let _ = writeln!(out, "\n|{}", "---|".repeat(1 + columns));
    for x in measured.places() {
        let _ = write!(out, "| {} |", number(x));
        for name in &series {
            let ours = measured.figure(name, x, &chart.figure);
            let _ = write!(out, " {} |", ours.map_or("–".to_owned(), figure));
            if let Some(reported) = reported(name) {
                let theirs = reported.points.iter().find(|(place, _)| *place == x);
                let _ = write!(out, " {} |", theirs.map_or("–".to_owned(), |(_, y)| number(*y)));
            }
        }
        out.push('\n');
    }
    out.push('\n');
    for band in &chart.band {
        let until = band.until.map_or(String::new(), |until| format!(" up to {}", number(until)));
        let _ = write!(
            out,
            "The paper has {} at {} to {} % of {}{until}: the shaded band, as far as ours goes.\n\n",
            label(&band.series),
            number(band.low * 100.0),
            number(band.high * 100.0),
            label(&band.of)
        );
    }
}

/// The page that names the pages of all experiments; `has_page` says of a file's name without
/// extension whether its page is there.
#[must_use]
pub fn index_page(experiments: &[Experiment], has_page: &dyn Fn(&str) -> bool) -> String {
    let mut out = "# Experiments\n\nTables and figures of the papers that Timestone is built after, \
                   reproduced with its own code: `timestone repro ID`, or `timestone repro all`. Each page says what the paper \
                   reports, what was measured, and why they differ. Parameters are in \
                   [scenarios/repro](../../scenarios/repro); how experiments run is in \
                   [design/experiments.md](../design/experiments.md).\n\n| id | paper | what | \
                   pages |\n|---|---|---|---|\n"
        .to_owned();
    for experiment in experiments {
        let id = experiment.id();
        let mut pages = Vec::new();
        for (in_real_time, words) in [(false, "virtual time"), (true, "real time")] {
            let name = super::file_name(id, in_real_time);
            if has_page(&name) {
                pages.push(format!("[{words}]({name}.md)"));
            }
        }
        let _ = writeln!(
            out,
            "| {id} | {} | {} | {} |",
            experiment.source(),
            experiment.title(),
            if pages.is_empty() { "–".to_owned() } else { pages.join(", ") }
        );
    }
    out
}
