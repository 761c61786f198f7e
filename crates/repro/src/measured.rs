//! What an experiment came to: points, each with all that was measured there.

use std::collections::BTreeMap;

/// One point of an experiment: a series at a place of the horizontal axis.
#[derive(Clone, PartialEq, Debug)]
pub struct Point {
    /// What was measured: a store, a protocol.
    pub series: String,
    /// Where on the horizontal axis.
    pub x: f64,
    /// Figures by name, in the order of the names.
    pub figures: BTreeMap<&'static str, f64>,
}

/// All points of an experiment.
#[derive(Clone, PartialEq, Debug)]
pub struct Measured {
    /// What the horizontal axis is called in the CSV.
    pub x_name: String,
    /// Series after series, in the order in which the experiment names them.
    pub points: Vec<Point>,
    /// What a reader has to know about the run beside the figures, as sentences.
    pub notes: Vec<String>,
}

impl Measured {
    /// The figure of a series at a place.
    #[must_use]
    pub fn figure(&self, series: &str, x: f64, name: &str) -> Option<f64> {
        let point = self.points.iter().find(|point| point.series == series && point.x == x)?;
        point.figures.get(name).copied()
    }

    /// The series, in the order in which they come first.
    #[must_use]
    pub fn series(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for point in &self.points {
            if !names.contains(&point.series.as_str()) {
                names.push(&point.series);
            }
        }
        names
    }

    /// The places, rising.
    #[must_use]
    pub fn places(&self) -> Vec<f64> {
        let mut places: Vec<f64> = self.points.iter().map(|point| point.x).collect();
        places.sort_by(f64::total_cmp);
        places.dedup();
        places
    }

    /// Where a series has a figure, and which.
    #[must_use]
    pub fn curve(&self, series: &str, name: &str) -> Vec<(f64, f64)> {
        let of_series = self.points.iter().filter(|point| point.series == series);
        let mut curve: Vec<_> =
            of_series.filter_map(|point| Some((point.x, *point.figures.get(name)?))).collect();
        curve.sort_by(|a, b| a.0.total_cmp(&b.0));
        curve
    }
}
