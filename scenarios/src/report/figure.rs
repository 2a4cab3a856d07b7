//! The timeline of a message as a picture: one bar per step, SVG.

use doorbell_core::units::Span;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::run::TimelineRow;

/// Pixels of the picture, of a row, and of the column of names.
const WIDTH: u32 = 960;
const ROW: u32 = 26;
const NAMES: i32 = 330;
const HEAD: i32 = 56;
const RIGHT: i32 = 90;

/// Colours by place: core, PCIe, NIC, wire.
const PLACES: [(&str, RGBColor); 4] = [
    ("core", RGBColor(0x3b, 0x6e, 0xa8)),
    ("PCIe", RGBColor(0xd0, 0x7a, 0x2c)),
    ("NIC", RGBColor(0x4c, 0x95, 0x55)),
    ("wire", RGBColor(0x8a, 0x5a, 0xa0)),
];

fn place(component: &str) -> usize {
    match component {
        c if c.contains("core") => 0,
        c if c.contains("PCIe") => 1,
        c if c.contains("wire") || c.contains("serialisation") => 3,
        _ => 2,
    }
}

/// The picture of the first message in `rows`, titled; `None` without rows.
pub fn timeline_svg(title: &str, rows: &[TimelineRow]) -> Option<String> {
    let first = rows.iter().map(|r| r.message).min()?;
    let rows: Vec<&TimelineRow> = rows.iter().filter(|r| r.message == first).collect();
    let end = rows.iter().map(|r| r.end).max()?;
    let mut svg = String::new();
    let height = HEAD as u32 + ROW * rows.len() as u32 + 40;
    let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
    let drawn = draw(&area, title, &rows, end);
    drop(area);
    drawn.ok().map(|()| svg)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Drawn<'a> = Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

fn draw<'a>(area: &Area<'a>, title: &str, rows: &[&TimelineRow], end: Span) -> Drawn<'a> {
    area.fill(&WHITE)?;
    let text = |size: i32, h: HPos| {
        let style = TextStyle::from(("sans-serif", size).into_font());
        style.pos(Pos::new(h, VPos::Center)).color(&RGBColor(0x22, 0x22, 0x22))
    };
    area.draw(&Text::new(title.to_owned(), (16, 20), text(17, HPos::Left)))?;
    for (i, (name, colour)) in PLACES.iter().enumerate() {
        let x = NAMES + 90 * i as i32;
        area.draw(&Rectangle::new([(x, 38), (x + 12, 50)], colour.filled()))?;
        area.draw(&Text::new((*name).to_owned(), (x + 18, 44), text(13, HPos::Left)))?;
    }
    let right = WIDTH as i32 - RIGHT;
    let x = |t: Span| {
        let span = u128::from((right - NAMES).unsigned_abs());
        NAMES + (u128::from(t.as_ps()) * span / u128::from(end.as_ps()).max(1)) as i32
    };
    for (i, row) in rows.iter().enumerate() {
        let y = HEAD + ROW as i32 * i as i32 + ROW as i32 / 2;
        area.draw(&Text::new(row.step.clone(), (NAMES - 10, y), text(13, HPos::Right)))?;
        let (from, to) = (x(row.start), x(row.end).max(x(row.start) + 1));
        let colour = PLACES[place(&row.component)].1;
        area.draw(&Rectangle::new([(from, y - 8), (to, y + 8)], colour.filled()))?;
        let ns = row.end.saturating_sub(row.start).as_ps().div_ceil(100);
        let label = format!("{}.{} ns", ns / 10, ns % 10);
        area.draw(&Text::new(label, (to + 6, y), text(12, HPos::Left)))?;
    }
    let foot = HEAD + ROW as i32 * rows.len() as i32 + 18;
    let total = format!("from the post to the polled completion: {end}");
    area.draw(&Text::new(total, (NAMES, foot), text(13, HPos::Left)))?;
    area.present()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(message: u64, step: &str, start: u64, end: u64) -> TimelineRow {
        TimelineRow {
            message,
            step: step.into(),
            component: "core".into(),
            start: Span::from_ns(start),
            end: Span::from_ns(end),
        }
    }

    #[test]
    fn the_picture_shows_the_first_message_only_and_repeats() {
        let rows = [row(0, "post <&>", 0, 40), row(0, "poll", 40, 50), row(1, "other", 0, 9)];
        let svg = timeline_svg("t", &rows).unwrap();
        assert!(svg.contains("post &lt;&amp;&gt;") && svg.contains("poll"));
        assert!(!svg.contains("other"));
        assert!(svg.contains("50 ns"));
        assert_eq!(svg, timeline_svg("t", &rows).unwrap());
        assert_eq!(timeline_svg("t", &[]), None);
    }
}
