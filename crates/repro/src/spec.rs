//! The file of an experiment: `scenarios/repro/<id>.toml`.
//!
//! Every parameter of the paper's section is there, and what the paper reports. Reading is strict:
//! an unknown key is an error that names the nearest known one, and nothing has a default that
//! would change a figure.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Deserializer, de};
use timestone_sim::TimeSpan;

use crate::error::ReproError;
use crate::store::StorePart;

/// The file, as it is written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Spec {
    /// What the experiment is called: the file's name.
    pub(crate) id: String,
    /// The paper, by the name that the glossary gives it.
    pub(crate) paper: String,
    /// Its section, and the table or figure.
    pub(crate) section: String,
    /// What is compared, in a line.
    pub(crate) title: String,
    /// Seeds of everything that is drawn.
    pub(crate) seed: u64,
    /// What the paper says, as prose.
    pub(crate) says: String,
    /// Why what was measured differs, as prose.
    pub(crate) differs: String,
    /// What the horizontal axis is.
    pub(crate) axis: String,
    /// How series are called in charts and pages.
    pub(crate) labels: BTreeMap<String, String>,
    /// What is drawn.
    pub(crate) chart: Vec<ChartPart>,
    /// Stores on an emulated SSD.
    pub(crate) store: Option<StorePart>,
}

/// `[[chart]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct ChartPart {
    /// The figure that is drawn, by its name in the CSV.
    pub(crate) figure: String,
    /// What stands above.
    pub(crate) title: String,
    /// What the vertical axis is, with its unit.
    pub(crate) unit: String,
    /// Curves that the paper has figures of.
    #[serde(default)]
    pub(crate) reported: Vec<Reported>,
    /// Relations that it states.
    #[serde(default)]
    pub(crate) band: Vec<ReportedBand>,
}

/// A curve that the paper prints the figures of.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Reported {
    /// Whose.
    pub series: String,
    /// Places and figures.
    pub points: Vec<(f64, f64)>,
}

/// A relation that the paper states in words: a series lies between two multiples of another one.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ReportedBand {
    /// Whose.
    pub series: String,
    /// Multiples of which one.
    pub of: String,
    /// At least so many times as much.
    pub low: f64,
    /// At most.
    pub high: f64,
    /// Up to this place; everywhere when left out.
    pub until: Option<f64>,
}

/// Reads a span of time.
pub(crate) fn span<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    TimeSpan::deserialize(deserializer).map(Duration::from)
}

impl Spec {
    /// Reads a file; `name` is how errors call it.
    pub(crate) fn read(name: &str, text: &str) -> Result<Self, ReproError> {
        let spec: Self = toml::from_str(text).map_err(|error| {
            let said = error.to_string();
            ReproError::Spec(format!("{name}: {}{}", said.trim_end(), hint(&said)))
        })?;
        spec.check().map_err(|what| ReproError::Spec(format!("{name}: {what}")))?;
        Ok(spec)
    }

    fn check(&self) -> Result<(), String> {
        let Some(store) = &self.store else {
            return Err("it says nothing of what is run: [store] is missing".to_owned());
        };
        store.check()?;
        for chart in &self.chart {
            let of_curves = chart.reported.iter().map(|reported| &reported.series);
            let of_bands = chart.band.iter().flat_map(|band| [&band.series, &band.of]);
            if let Some(unknown) =
                of_curves.chain(of_bands).find(|series| !self.labels.contains_key(*series))
            {
                return Err(format!(
                    "the chart of {} has figures of {unknown:?}, which has no label; did you mean \
                     {:?}?",
                    chart.figure,
                    nearest(unknown, self.labels.keys().map(String::as_str))
                ));
            }
        }
        Ok(())
    }
}

/// A name that must be one of a list.
pub(crate) fn one_of<'de, D: Deserializer<'de>>(
    deserializer: D,
    what: &str,
    known: &[&str],
) -> Result<usize, D::Error> {
    let text = String::deserialize(deserializer)?;
    known.iter().position(|name| *name == text).ok_or_else(|| {
        de::Error::custom(format!(
            "there is no {what} {text:?}; did you mean {:?}?",
            nearest(&text, known.iter().copied())
        ))
    })
}

/// What is called most like `name`.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> &'a str {
    let likeness = |one: &str| strsim::jaro_winkler(name, one);
    known.max_by(|a, b| likeness(a).total_cmp(&likeness(b))).unwrap_or_default()
}

/// The nearest known key, where the reader of TOML complains about an unknown one and lists those
/// that are known.
fn hint(complaint: &str) -> String {
    let Some((_, said)) = complaint.split_once("unknown field ") else { return String::new() };
    let mut names = said.split('`').skip(1).step_by(2);
    let Some(unknown) = names.next() else { return String::new() };
    match nearest(unknown, names) {
        "" => String::new(),
        known => format!("; did you mean {known:?}?"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_key_is_an_error_that_names_the_nearest_known_one() {
        let text = include_str!("../../../scenarios/repro/semel-t1.toml");
        for (right, wrong, said) in [
            ("\nsection = ", "\nsecton = ", "did you mean \"section\"?"),
            ("\nin-flight = ", "\nin-fligth = ", "did you mean \"in-flight\"?"),
            ("\nchannels = ", "\nchanels = ", "did you mean \"channels\"?"),
            ("\"vftl\"]", "\"vtfl\"]", "did you mean \"vftl\"?"),
        ] {
            assert!(text.contains(right), "{right:?} is in the file");
            let broken = text.replacen(right, wrong, 1);
            let error = Spec::read("broken.toml", &broken).unwrap_err().to_string();
            assert!(error.starts_with("broken.toml") && error.contains(said), "{error}");
        }
    }
}
