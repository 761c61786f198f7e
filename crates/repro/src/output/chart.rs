//! A chart as data: the curves of the paper, ours, and how high both reach.

use crate::measured::Measured;
use crate::spec::{ChartPart, ReportedBand, Spec};

/// A curve and its colour, which is its series'.
#[derive(Clone, Debug)]
pub(super) struct Curve {
    pub(super) colour: usize,
    pub(super) points: Vec<(f64, f64)>,
}

/// Between two curves.
#[derive(Clone, Debug)]
pub(super) struct Band {
    pub(super) colour: usize,
    /// Place, low, high.
    pub(super) points: Vec<(f64, f64, f64)>,
}

/// One chart: what the paper prints, and what was measured.
#[derive(Clone, Debug)]
pub(super) struct Chart {
    pub(super) title: String,
    pub(super) unit: String,
    pub(super) reported: Vec<Curve>,
    pub(super) measured: Vec<Curve>,
    pub(super) bands: Vec<Band>,
    /// Places of all curves, rising.
    pub(super) places: Vec<f64>,
    /// A little above the highest point.
    pub(super) top: f64,
}

impl Chart {
    /// The charts of an experiment that have something to show.
    pub(super) fn all(spec: &Spec, measured: &Measured) -> Vec<Self> {
        spec.chart
            .iter()
            .map(|part| Self::of(part, spec, measured))
            .filter(|chart| chart.measured.iter().any(|curve| !curve.points.is_empty()))
            .collect()
    }

    fn of(part: &ChartPart, spec: &Spec, measured: &Measured) -> Self {
        let colour =
            |series: &str| spec.labels.keys().position(|known| known == series).unwrap_or(0);
        let ours: Vec<Curve> = measured
            .series()
            .into_iter()
            .map(|series| Curve {
                colour: colour(series),
                points: measured.curve(series, &part.figure),
            })
            .collect();
        let reported: Vec<Curve> = part
            .reported
            .iter()
            .map(|reported| Curve {
                colour: colour(&reported.series),
                points: reported.points.clone(),
            })
            .collect();
        let bands: Vec<Band> = part
            .band
            .iter()
            .map(|band| Band {
                colour: colour(&band.series),
                points: band_over(band, &measured.curve(&band.of, &part.figure)),
            })
            .collect();
        let all = ours.iter().chain(&reported).flat_map(|curve| curve.points.iter().copied());
        let mut places: Vec<f64> = all.clone().map(|(x, _)| x).collect();
        places.sort_by(f64::total_cmp);
        places.dedup();
        let highest = all.map(|(_, y)| y).fold(0.0, f64::max);
        let top = if highest > 0.0 { highest * 1.08 } else { 1.0 };
        Self {
            title: part.title.clone(),
            unit: part.unit.clone(),
            reported,
            measured: ours,
            bands,
            places,
            top,
        }
    }
}

fn band_over(band: &ReportedBand, of: &[(f64, f64)]) -> Vec<(f64, f64, f64)> {
    of.iter()
        .filter(|(x, _)| band.until.is_none_or(|until| *x <= until))
        .map(|&(x, y)| (x, y * band.low, y * band.high))
        .collect()
}
