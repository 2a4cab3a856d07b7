//! Series as pictures: one for each quantity, SVG.

use doorbell_core::units::Span;
use plotters::prelude::*;

use super::series::liveliest;
use crate::run::{MetricUnit, SeriesTable, SeriesTrack, number_text};

/// Pixels of a picture.
const SIZE: (u32, u32) = (960, 300);

/// Lines in a picture; the others are in JSON and CSV.
const MAX_LINES: usize = 6;

/// Colours that a reader who cannot tell red from green can tell (Okabe and Ito, "Color universal
/// design", 2008).
const COLOURS: [RGBColor; MAX_LINES] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
];

/// A picture for each quantity that moved, in the order of the series.
pub(super) fn series_svgs(table: &SeriesTable) -> Vec<String> {
    let mut seen: Vec<&str> = Vec::new();
    let mut pictures = Vec::new();
    for track in &table.tracks {
        let name = track.quantity.name;
        if seen.contains(&name) {
            continue;
        }
        seen.push(name);
        let mut of = SeriesTable { tracks: Vec::new(), ..table.clone() };
        of.tracks.extend(table.tracks.iter().filter(|t| t.quantity.name == name).cloned());
        pictures.extend(picture(&of, &liveliest(&of, MAX_LINES)));
    }
    pictures
}

/// One picture; `None` where nothing moved.
fn picture(table: &SeriesTable, tracks: &[&SeriesTrack]) -> Option<String> {
    let lines: Vec<Line> = tracks.iter().map(|t| Line::of(table, t)).collect();
    let first = lines.first()?;
    let end = table.times.last().map_or(0.0, |t| ps(*t));
    let top = lines.iter().flat_map(|l| &l.points).map(|(_, y)| *y).fold(0.0, f64::max);
    let title = match table.tracks.len() - tracks.len() {
        0 => tracks[0].quantity.name.to_owned(),
        more => format!("{} (and {more} more)", tracks[0].quantity.name),
    };
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
    let drawn = draw(&area, &title, first.unit, (end.max(1.0), top.max(1e-6) * 1.05), &lines);
    drop(area);
    drawn.ok().map(|()| svg)
}

fn ps(span: Span) -> f64 {
    span.as_ps() as f64
}

struct Line {
    name: String,
    unit: MetricUnit,
    points: Vec<(f64, f64)>,
}

impl Line {
    fn of(table: &SeriesTable, track: &SeriesTrack) -> Self {
        let (unit, points) = table.line(track);
        let scale = if unit == MetricUnit::Ratio { 1e-6 } else { 1.0 };
        let points = points.into_iter().map(|(t, v)| (ps(t), v as f64 * scale)).collect();
        Self { name: track.subject.clone(), unit, points }
    }
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Drawn<'a> = Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

fn draw<'a>(
    area: &Area<'a>,
    title: &str,
    unit: MetricUnit,
    (end, top): (f64, f64),
    lines: &[Line],
) -> Drawn<'a> {
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 17))
        .margin(8)
        .margin_right(24)
        .x_label_area_size(28)
        .y_label_area_size(84)
        .build_cartesian_2d(0.0..end, 0.0..top)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_labels(9)
        .y_labels(6)
        .x_label_formatter(&|x| number_text(*x, MetricUnit::Time))
        .y_label_formatter(&|y| number_text(*y, unit))
        .draw()?;
    for (line, colour) in lines.iter().zip(COLOURS) {
        let path = PathElement::new(line.points.clone(), colour.stroke_width(1));
        chart
            .draw_series(std::iter::once(path))?
            .label(line.name.clone())
            .legend(move |(x, y)| Rectangle::new([(x, y - 4), (x + 12, y + 4)], colour.filled()));
    }
    chart
        .configure_series_labels()
        .background_style(WHITE.mix(0.8))
        .border_style(RGBColor(0xcc, 0xcc, 0xcc))
        .draw()?;
    area.present()
}

#[cfg(test)]
mod tests {
    use super::super::series::tests::table;
    use super::*;

    #[test]
    fn a_picture_for_each_quantity_names_its_lines_and_repeats() {
        let pictures = series_svgs(&table());
        assert_eq!(pictures.len(), 2);
        assert!(pictures[0].contains("switch0.port1") && pictures[0].contains("switch0.port2"));
        assert!(!pictures[0].contains("switch0.port3"), "it never moved");
        assert!(pictures[0].contains("queue (and 1 more)") && pictures[1].contains("sent"));
        assert_eq!(pictures, series_svgs(&table()));
        let mut still = table();
        still.tracks.iter_mut().for_each(|t| t.values.fill(0));
        assert_eq!(series_svgs(&still), [""; 0]);
    }
}
