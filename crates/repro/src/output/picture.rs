//! Draws the charts of an experiment: the paper's figure on the left, ours on the right, over the
//! same axes.
//!
//! The font comes with the program, so a picture looks the same wherever it is drawn.

use std::ops::Range;
use std::sync::Once;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};

use crate::error::ReproError;
use crate::measured::Measured;
use crate::output::Provenance;
use crate::output::chart::{Chart, Curve};
use crate::spec::Spec;

const WIDTH: u32 = 1200;
/// What stands above the charts: title, source, legend.
const HEAD: u32 = 112;
const CHART: u32 = 380;
/// What stands below: seed, scale, version.
const FOOT: u32 = 40;
const MARGIN: i32 = 28;
const FONT: &str = "sans-serif";
/// Okabe and Ito's colours, which people tell apart whose eyes differ.
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(70, 70, 70),
];
const INK: RGBColor = RGBColor(32, 32, 36);
const PALE_INK: RGBColor = RGBColor(110, 110, 118);
const RULE: RGBColor = RGBColor(228, 228, 232);

/// A picture in both forms.
pub(super) struct Pictures {
    pub(super) svg: String,
    pub(super) png: Vec<u8>,
}

/// Draws the picture of an experiment.
pub(super) fn draw(
    spec: &Spec,
    measured: &Measured,
    provenance: &Provenance,
) -> Result<Pictures, ReproError> {
    static FONTS: Once = Once::new();
    FONTS.call_once(|| {
        // The font is part of the program and known to be one; without it labels would be missing.
        let _ = register_font(FONT, FontStyle::Normal, dejavu::sans::regular());
        let _ = register_font(FONT, FontStyle::Bold, dejavu::sans::bold());
    });
    let charts = Chart::all(spec, measured);
    let height = HEAD + CHART * charts.len() as u32 + FOOT;
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        fill(&area, spec, measured, &charts, provenance).map_err(not_drawn)?;
        area.present().map_err(not_drawn)?;
    }
    let mut pixels = vec![0; (WIDTH * height * 3) as usize];
    {
        let backend = BitMapBackend::with_buffer(&mut pixels, (WIDTH, height));
        let area = backend.into_drawing_area();
        fill(&area, spec, measured, &charts, provenance).map_err(not_drawn)?;
        area.present().map_err(not_drawn)?;
    }
    let png = encode(&pixels, height).map_err(not_drawn)?;
    Ok(Pictures { svg, png })
}

fn not_drawn(reason: impl std::fmt::Display) -> ReproError {
    ReproError::Write { path: "the picture".to_owned(), reason: reason.to_string() }
}

fn encode(pixels: &[u8], height: u32) -> Result<Vec<u8>, png::EncodingError> {
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, WIDTH, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(pixels)?;
    writer.finish()?;
    Ok(out)
}

type Area<B> = DrawingArea<B, Shift>;
type Drawn<B> = Result<(), DrawingAreaErrorKind<<B as DrawingBackend>::ErrorType>>;

fn text(size: u32, colour: RGBColor) -> TextStyle<'static> {
    (FONT, size).into_font().color(&colour)
}

fn bold(size: u32) -> TextStyle<'static> {
    (FONT, size).into_font().style(FontStyle::Bold).color(&INK)
}

fn colour_of(series: usize) -> RGBColor {
    COLOURS[series % COLOURS.len()]
}

fn fill<B: DrawingBackend>(
    area: &Area<B>,
    spec: &Spec,
    measured: &Measured,
    charts: &[Chart],
    provenance: &Provenance,
) -> Drawn<B> {
    area.fill(&WHITE)?;
    let (head, rest) = area.split_vertically(HEAD);
    head.draw(&Text::new(spec.title.clone(), (MARGIN, 18), bold(26)))?;
    let source = format!("{}, {}", spec.paper, spec.section);
    head.draw(&Text::new(source, (MARGIN, 52), text(16, PALE_INK)))?;
    legend(&head, spec, measured)?;
    let mut rest = rest;
    for chart in charts {
        let (this, below) = rest.split_vertically(CHART);
        if chart.reported.is_empty() {
            panel(&this, chart, &chart.measured, &chart.title, &spec.axis, true)?;
        } else {
            let (left, right) = this.split_horizontally(WIDTH / 2);
            let (paper, ours) =
                (format!("{}: the paper", chart.title), format!("{}: Timestone", chart.title));
            panel(&left, chart, &chart.reported, &paper, &spec.axis, false)?;
            panel(&right, chart, &chart.measured, &ours, &spec.axis, true)?;
        }
        rest = below;
    }
    let has_bands = charts.iter().any(|chart| !chart.bands.is_empty());
    let shaded = if has_bands { " · shaded: where the paper has that curve" } else { "" };
    let foot = format!("{}{shaded}", provenance.line());
    rest.draw(&Text::new(foot, (MARGIN, 8), text(14, PALE_INK)))
}

/// A mark and the name of each series, in one line.
fn legend<B: DrawingBackend>(head: &Area<B>, spec: &Spec, measured: &Measured) -> Drawn<B> {
    let mut x = MARGIN;
    let y = 92;
    for (number, (series, label)) in spec.labels.iter().enumerate() {
        if !measured.series().contains(&series.as_str()) {
            continue;
        }
        let colour = colour_of(number);
        head.draw(&PathElement::new(vec![(x, y), (x + 30, y)], colour.stroke_width(3)))?;
        head.draw(&Circle::new((x + 15, y), 5, colour.filled()))?;
        head.draw(&Text::new(label.clone(), (x + 38, y - 9), text(17, INK)))?;
        let (width, _) = head.estimate_text_size(label, &text(17, INK))?;
        x += 38 + width as i32 + 34;
    }
    Ok(())
}

/// A line of numbers that has its labels where something was measured.
struct Places {
    line: RangedCoordf64,
    places: Vec<f64>,
}

impl Ranged for Places {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        self.line.map(value, limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.places.clone()
    }

    fn range(&self) -> Range<f64> {
        self.line.range()
    }
}

/// One pair of axes with curves.
fn panel<B: DrawingBackend>(
    area: &Area<B>,
    chart: &Chart,
    curves: &[Curve],
    title: &str,
    axis: &str,
    is_ours: bool,
) -> Drawn<B> {
    let (first, last) = match (chart.places.first(), chart.places.last()) {
        (Some(first), Some(last)) if last > first => (*first, *last),
        (Some(first), _) => (first - 1.0, first + 1.0),
        _ => (0.0, 1.0),
    };
    let room = (last - first) * 0.04;
    let x_axis = Places { line: (first - room..last + room).into(), places: chart.places.clone() };
    let mut chart_area = ChartBuilder::on(area)
        .margin(14)
        .margin_left(MARGIN - 14)
        .margin_right(MARGIN)
        .caption(title, bold(18))
        .x_label_area_size(46)
        .y_label_area_size(64)
        .build_cartesian_2d(x_axis, 0.0..chart.top)?;
    chart_area
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(RULE)
        .axis_style(PALE_INK)
        .label_style(text(14, INK))
        .axis_desc_style(text(15, PALE_INK))
        .x_desc(axis)
        .y_desc(chart.unit.as_str())
        .x_label_formatter(&|x| crate::output::number(*x))
        .y_label_formatter(&|y| crate::output::number(*y))
        .y_labels(6)
        .draw()?;
    if is_ours {
        for band in &chart.bands {
            let upper = band.points.iter().map(|&(x, _, high)| (x, high));
            let lower = band.points.iter().rev().map(|&(x, low, _)| (x, low));
            let outline: Vec<(f64, f64)> = upper.chain(lower).collect();
            let colour = colour_of(band.colour).mix(0.16);
            chart_area.draw_series([Polygon::new(outline, colour.filled())])?;
        }
    }
    for curve in curves {
        let colour = colour_of(curve.colour);
        chart_area
            .draw_series(LineSeries::new(curve.points.iter().copied(), colour.stroke_width(3)))?;
        let marks = curve.points.iter().map(|&point| Circle::new(point, 5, colour.filled()));
        chart_area.draw_series(marks)?;
    }
    Ok(())
}
