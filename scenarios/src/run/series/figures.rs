//! One number out of a series. Integers throughout.

use doorbell_core::units::{Ratio, Span};
use doorbell_sim::engine::series::Kind;

use super::{SeriesTable, SeriesTrack};
use crate::quantity::{Scalar, Unit};
use crate::run::{Metric, MetricUnit, MetricValue};

/// Shares are kept in parts per million until they are printed.
const PPM: u128 = 1_000_000;

/// A point of a series with the interval that it stands for.
#[derive(Copy, Clone, Debug)]
struct Sample {
    from: Span,
    to: Span,
    value: u64,
    weight: u64,
}

/// `100us..200us`: from and to.
pub(super) fn window(text: &str) -> Option<(Span, Span)> {
    let (from, to) = text.split_once("..")?;
    let end = |text: &str, open| if text.is_empty() { Some(open) } else { Span::parse(text).ok() };
    Some((end(from, Span::ZERO)?, end(to, Span::from_ps(u64::MAX))?))
}

/// The figure of a series. `None`: there is no such figure, the threshold is of another unit, or no
/// point lies in the window.
pub(super) fn figure(
    table: &SeriesTable,
    track: &SeriesTrack,
    figure: &str,
    threshold: Option<&str>,
    window: Option<(Span, Span)>,
) -> Option<Metric> {
    let unit = unit(track);
    let all = samples(table, track, window);
    if figure == "total" && track.quantity.kind == Kind::Count && threshold.is_none() {
        let values = in_window(table, window).map(|i| track.values[i]);
        return Some(whole(values.sum(), track.unit()));
    }
    let counted: Vec<Sample> = all.iter().copied().filter(|s| s.weight > 0).collect();
    let values = || counted.iter().map(|s| s.value);
    let time = |total: Span| Some(whole(total.as_ps(), MetricUnit::Time));
    match (figure, threshold) {
        ("max", None) => Some(whole(values().max()?, unit)),
        ("min", None) => Some(whole(values().min()?, unit)),
        ("last", None) => Some(whole(values().next_back()?, unit)),
        ("mean", None) => Some(whole(mean(&counted)?, unit)),
        ("time_at_zero", None) => time(time_for(&all, |value| value == 0)),
        ("time_above", Some(text)) => {
            let limit = limit(text, unit)?;
            time(time_for(&all, |value| value > limit))
        }
        ("period", None) => time(waves(&counted).map_or(Span::ZERO, |w| w.period)),
        ("amplitude", None) => Some(whole(waves(&counted).map_or(0, |w| w.amplitude), unit)),
        _ => None,
    }
}

pub(super) fn line(table: &SeriesTable, track: &SeriesTrack) -> (MetricUnit, Vec<(Span, u64)>) {
    let all = samples(table, track, None);
    (unit(track), all.into_iter().filter(|s| s.weight > 0).map(|s| (s.to, s.value)).collect())
}

/// What a value becomes: a count is taken per second.
fn unit(track: &SeriesTrack) -> MetricUnit {
    match (track.quantity.kind, track.unit()) {
        (Kind::Count, MetricUnit::Bytes) => MetricUnit::Rate,
        (Kind::Count, MetricUnit::Time) => MetricUnit::Ratio,
        (Kind::Count, _) => MetricUnit::PerSecond,
        (Kind::Level | Kind::Peak, unit) => unit,
    }
}

/// A number of a unit; of a ratio, parts per million.
fn whole(n: u64, unit: MetricUnit) -> Metric {
    let value = match unit {
        MetricUnit::Ratio => MetricValue::Fraction(Ratio { num: n, den: PPM as u64 }),
        _ => MetricValue::Integer(n),
    };
    Metric { value, unit }
}

fn limit(text: &str, unit: MetricUnit) -> Option<u64> {
    let scalar = match text.parse::<u64>() {
        Ok(n) => Scalar::Count(n),
        Err(_) => Scalar::parse(text)?,
    };
    let fits = match scalar {
        Scalar::Time(_) => unit == MetricUnit::Time,
        Scalar::Bytes(_) => unit == MetricUnit::Bytes,
        Scalar::Rate(_) => unit == MetricUnit::Rate,
        Scalar::Frequency(_) => unit == MetricUnit::PerSecond,
        Scalar::Count(n) => n == 0 || unit == MetricUnit::Count,
        Scalar::Ratio(r) if unit == MetricUnit::Ratio => {
            let ppm = u128::from(r.num) * PPM / u128::from(r.den);
            return u64::try_from(ppm).ok();
        }
        Scalar::Ratio(_) | Scalar::Decimal(_) => false,
    };
    scalar.whole().filter(|_| fits)
}

/// Points whose whole interval lies in the window.
fn in_window(
    table: &SeriesTable,
    window: Option<(Span, Span)>,
) -> impl Iterator<Item = usize> + use<'_> {
    let (from, to) = window.unwrap_or((Span::ZERO, Span::from_ps(u64::MAX)));
    let start = |i: usize| if i == 0 { Span::ZERO } else { table.times[i - 1] };
    (0..table.times.len()).filter(move |i| start(*i) >= from && table.times[*i] <= to)
}

fn samples(table: &SeriesTable, track: &SeriesTrack, window: Option<(Span, Span)>) -> Vec<Sample> {
    let sample = |i: usize| {
        let from = if i == 0 { Span::ZERO } else { table.times[i - 1] };
        let to = table.times[i];
        let long = to.saturating_sub(from);
        let value = track.values[i];
        let value = match unit(track) {
            _ if track.quantity.kind != Kind::Count => value,
            MetricUnit::Rate => whole_of(Metric::rate(value, long)),
            MetricUnit::Ratio => (u128::from(value) * PPM / u128::from(long.as_ps()).max(1)) as u64,
            _ => whole_of(Metric::per_second(value, long)),
        };
        let weight = track.weights.as_ref().map_or(long.as_ps(), |w| w[i]);
        Sample { from, to, value, weight }
    };
    in_window(table, window).map(sample).collect()
}

fn whole_of(metric: Metric) -> u64 {
    match metric.value {
        MetricValue::Integer(n) => n,
        MetricValue::Fraction(_) => 0,
    }
}

fn mean(all: &[Sample]) -> Option<u64> {
    let weight: u128 = all.iter().map(|s| u128::from(s.weight)).sum();
    let sum: u128 = all
        .iter()
        .map(|s| u128::from(s.value) * u128::from(s.weight))
        .fold(0, u128::saturating_add);
    sum.checked_div(weight).map(|mean| mean as u64)
}

fn time_for(all: &[Sample], holds: impl Fn(u64) -> bool) -> Span {
    let held = all.iter().filter(|s| holds(s.value));
    held.map(|s| s.to.saturating_sub(s.from)).fold(Span::ZERO, |sum, s| sum + s)
}

/// An oscillation.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Waves {
    period: Span,
    amplitude: u64,
}

/// The oscillation about the mean, if there are two periods of one at least.
///
/// A wave is counted when the value has gone from a quarter of the range below the mean to as much
/// above it: what wavers less is noise. The period is the mean time between such rises, and the
/// amplitude half of the mean way from trough to crest. A value that rises once, or only drifts,
/// has neither.
fn waves(all: &[Sample]) -> Option<Waves> {
    let values = || all.iter().map(|s| s.value);
    let (least, most, mean) = (values().min()?, values().max()?, mean(all)?);
    let band = (most - least) / 4;
    let (low, high) = (mean.saturating_sub(band), mean.saturating_add(band));
    if most == least {
        return None;
    }
    // Rises, each with the trough before it and the crest behind it.
    let mut rises: Vec<(Span, u64, u64)> = Vec::new();
    let mut trough: Option<u64> = None;
    for s in all {
        if s.value <= low {
            trough = Some(trough.map_or(s.value, |t| t.min(s.value)));
        } else if s.value >= high {
            match (trough.take(), rises.last_mut()) {
                (Some(trough), _) => rises.push((s.to, trough, s.value)),
                (None, Some((_, _, crest))) => *crest = s.value.max(*crest),
                (None, None) => {}
            }
        }
    }
    let (first, last) = (rises.first()?, rises.last()?);
    let waves = (rises.len() as u64).checked_sub(1).filter(|n| *n >= 2)?;
    let period = Span::from_ps(last.0.saturating_sub(first.0).as_ps() / waves);
    let ways: u128 = rises.iter().map(|(_, trough, crest)| u128::from(crest - trough)).sum();
    let amplitude = (ways / (2 * rises.len() as u128)) as u64;
    Some(Waves { period, amplitude })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(values: &[u64]) -> Vec<Sample> {
        let at = |i: usize| Span::from_us(i as u64);
        let sample = |(i, value): (usize, &u64)| Sample {
            from: at(i),
            to: at(i + 1),
            value: *value,
            weight: 1,
        };
        values.iter().enumerate().map(sample).collect()
    }

    #[test]
    fn a_square_wave_has_its_period_and_half_its_height() {
        let square: Vec<u64> = (0..60).map(|i| if i % 12 < 6 { 100 } else { 40 }).collect();
        let w = waves(&line(&square)).unwrap();
        assert_eq!(w, Waves { period: Span::from_us(12), amplitude: 30 });
        // A ripple on it is no wave of its own.
        let rippled: Vec<u64> =
            square.iter().enumerate().map(|(i, v)| v + i as u64 % 2 * 9).collect();
        assert_eq!(waves(&line(&rippled)).unwrap().period, Span::from_us(12));
    }

    #[test]
    fn two_rises_are_too_few_and_three_are_enough() {
        let of = |rises: usize| [10, 10, 90, 90].repeat(rises);
        assert_eq!(waves(&line(&of(2))), None);
        assert_eq!(waves(&line(&of(3))).unwrap().period, Span::from_us(4));
    }

    #[test]
    fn a_ramp_a_step_and_a_constant_do_not_oscillate() {
        let ramp: Vec<u64> = (0..100).collect();
        let step: Vec<u64> = (0..100).map(|i| u64::from(i > 50) * 9).collect();
        for values in [&ramp[..], &step, &[7; 100], &[], &[1], &[0, u64::MAX, 0]] {
            assert_eq!(waves(&line(values)), None);
        }
    }

    #[test]
    fn means_go_by_weight() {
        let mut points = line(&[10, 40]);
        assert_eq!(mean(&points), Some(25));
        points[0].weight = 2;
        assert_eq!(mean(&points), Some(20));
        assert_eq!(mean(&[]), None);
    }

    #[test]
    fn windows_are_open_where_nothing_stands() {
        let us = Span::from_us;
        assert_eq!(window("1us..2us"), Some((us(1), us(2))));
        assert_eq!(window("1.5us..2us"), Some((Span::from_ns(1500), us(2))));
        assert_eq!(window("..2us"), Some((Span::ZERO, us(2))));
        assert_eq!(window("1us.."), Some((us(1), Span::from_ps(u64::MAX))));
        assert_eq!((window("1us"), window("1..2")), (None, None));
    }
}
