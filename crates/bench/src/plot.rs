//! Charts as SVG: a line for each target, over one varying number.

use base::Problem;
use plotters::{coord::ranged1d::ValueFormatter, prelude::*};

const WIDTH: u32 = 560;
const HEIGHT: u32 = 400;
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 90, 181),
    RGBColor(220, 50, 32),
    RGBColor(0, 140, 90),
    RGBColor(170, 100, 0),
    RGBColor(120, 60, 160),
    RGBColor(90, 90, 90),
];

/// One chart.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Title above the chart.
    pub title: String,
    /// Label of the horizontal axis: the number that varies.
    pub x_label: String,
    /// Label of the vertical axis: the measured quantity.
    pub y_label: String,
    /// Logarithmic vertical axis with base 10, for lines that differ much.
    pub log_scale_y: bool,
    /// Name and points of each line.
    pub lines: Vec<(String, Vec<(f64, f64)>)>,
}

impl Chart {
    /// Adds a point to a line, and creates the line if needed.
    pub fn add(&mut self, line: &str, point: (f64, f64)) {
        match self.lines.iter_mut().find(|(name, _)| name == line) {
            Some((_, points)) => points.push(point),
            None => self.lines.push((line.to_owned(), vec![point])),
        }
    }
}

/// The chart with this title; created if needed.
pub fn find_or_add<'a>(charts: &'a mut Vec<Chart>, title: &str, x_label: &str, y_label: &str) -> &'a mut Chart {
    let at = charts.iter().position(|chart| chart.title == title).unwrap_or(charts.len());
    if at == charts.len() {
        let (title, x_label, y_label) = (title.to_owned(), x_label.to_owned(), y_label.to_owned());
        charts.push(Chart { title, x_label, y_label, log_scale_y: false, lines: Vec::new() });
    }
    &mut charts[at]
}

/// Draws all charts in one picture, two in a row.
pub fn draw(charts: &[Chart]) -> Result<String, Problem> {
    let rows = u32::try_from(charts.len().div_ceil(2)).unwrap_or(1).max(1);
    let columns = if charts.len() > 1 { 2 } else { 1 };
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, (WIDTH * columns, HEIGHT * rows)).into_drawing_area();
        root.fill(&WHITE).map_err(not_drawn)?;
        for (chart, area) in charts.iter().zip(root.split_evenly((rows as usize, columns as usize))) {
            draw_one(chart, &area)?;
        }
        root.present().map_err(not_drawn)?;
    }
    Ok(text)
}

fn draw_one<'a>(chart: &'a Chart, area: &DrawingArea<SVGBackend<'a>, plotters::coord::Shift>) -> Result<(), Problem> {
    let points = || chart.lines.iter().flat_map(|(_, points)| points.iter().copied());
    let (least, most) = points().fold((f64::INFINITY, 0_f64), |(least, most), (x, _)| (least.min(x), most.max(x)));
    let top = points().map(|(_, y)| y).fold(0.0, f64::max) * 1.1;
    if !(least.is_finite() && top > 0.0) {
        return Ok(());
    }
    let mut builder = ChartBuilder::on(area);
    builder.caption(&chart.title, ("sans-serif", 18)).margin(12).x_label_area_size(44).y_label_area_size(64);
    let x_range = (least..most.max(least * 1.01)).log_scale().base(2.0);
    if chart.log_scale_y {
        let bottom = points().map(|(_, y)| y).filter(|y| *y > 0.0).fold(top, f64::min);
        let tens = 10_f64.powf(bottom.log10().floor())..10_f64.powf(top.log10().ceil());
        draw_lines(chart, builder.build_cartesian_2d(x_range, tens.log_scale()).map_err(not_drawn)?)
    } else {
        draw_lines(chart, builder.build_cartesian_2d(x_range, 0.0..top).map_err(not_drawn)?)
    }
}

fn draw_lines<'a, X, Y>(
    chart: &'a Chart,
    mut context: ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, Y>>,
) -> Result<(), Problem>
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    context
        .configure_mesh()
        .x_desc(&chart.x_label)
        .y_desc(&chart.y_label)
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| if chart.log_scale_y && *y < 1.0 { format!("{y}") } else { format!("{y:.0}") })
        .light_line_style(TRANSPARENT)
        .draw()
        .map_err(not_drawn)?;
    for ((name, points), colour) in chart.lines.iter().zip(COLOURS.iter().cycle()) {
        let line = LineSeries::new(points.iter().copied(), colour.stroke_width(2)).point_size(3);
        context
            .draw_series(line)
            .map_err(not_drawn)?
            .label(name)
            .legend(|(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
    }
    context
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()
        .map_err(not_drawn)
}

fn not_drawn(error: impl std::error::Error) -> Problem {
    Problem::new(format!("the chart is not drawn: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_every_chart_is_in_the_picture() {
        let mut charts = Vec::new();
        for title in ["Write", "Read", "With nothing"] {
            let (title, x_label, y_label) = (title.to_owned(), "I/O nodes".to_owned(), "MB/s".to_owned());
            charts.push(Chart { title, x_label, y_label, log_scale_y: false, lines: Vec::new() });
        }
        charts[1].log_scale_y = true;
        for chart in &mut charts[..2] {
            for (name, speed) in [("pool", 50.0), ("dir:/tmp", 80.0)] {
                for nodes in [1.0, 2.0, 4.0, 8.0] {
                    chart.add(name, (nodes, nodes * speed));
                }
            }
        }
        let picture = draw(&charts).expect("a picture");
        assert!(picture.starts_with("<svg") && picture.trim_end().ends_with("</svg>"));
        for (what, times) in [("Write", 1), ("Read", 1), ("dir:/tmp", 2), ("I/O nodes", 2), ("<polyline", 8)] {
            assert!(picture.matches(what).count() >= times, "{what}: {picture}");
        }
    }
}
