//! Latencies of programs over time.

use std::collections::BTreeMap;

use doorbell_core::units::{Span, Time};
use doorbell_sim::engine::series::Kind;
use doorbell_sim::world::{Quantity, Selection, SeriesUnit, World};

use super::{SeriesTable, SeriesTrack};
use crate::run::Point;
use crate::run::programs::Placed;

const fn quantity(name: &'static str, unit: SeriesUnit, kind: Kind) -> Quantity {
    Quantity { group: "latency", name, unit, kind }
}

/// Messages whose end was seen in the interval, warm-up excluded.
const MESSAGES: Quantity = quantity("messages", SeriesUnit::Count, Kind::Count);
/// Mean of their latencies, rounded down; 0 without messages.
const MEAN: Quantity = quantity("latency", SeriesUnit::Time, Kind::Level);
/// Longest of their latencies.
const MAX: Quantity = quantity("latency_max", SeriesUnit::Time, Kind::Peak);

/// Number, sum and maximum.
#[derive(Copy, Clone, Default)]
struct Bin {
    messages: u64,
    sum: u128,
    max: u64,
}

/// Adds the series of each program that measures latencies.
pub(super) fn add(
    point: &Point,
    select: &Selection,
    placed: &[Placed],
    world: &World,
    table: &mut SeriesTable,
) {
    let mut programs: BTreeMap<usize, Vec<Bin>> = BTreeMap::new();
    for p in placed {
        let Some(results) = p.results(world).filter(|r| !r.latencies.is_empty()) else { continue };
        let bins = programs.entry(p.program).or_default();
        bins.resize(table.times.len(), Bin::default());
        let measured: Vec<(Time, Span)> =
            results.latency_times.iter().copied().zip(results.latencies.iter().copied()).collect();
        sort_into(&table.times, &measured, bins);
    }
    for (program, bins) in programs {
        let subject = match point.scenario.program[program].name.as_str() {
            "" => format!("program{program}"),
            name => name.to_owned(),
        };
        let messages: Vec<u64> = bins.iter().map(|b| b.messages).collect();
        let mean = |b: &Bin| (b.sum / u128::from(b.messages.max(1))) as u64;
        let mut add = |quantity: &'static Quantity, values, weights| {
            if select.takes(&subject, quantity) {
                let subject = subject.clone();
                table.tracks.push(SeriesTrack { subject, quantity, values, weights });
            }
        };
        add(&MESSAGES, messages.clone(), None);
        add(&MEAN, bins.iter().map(mean).collect(), Some(messages.clone()));
        add(&MAX, bins.iter().map(|b| b.max).collect(), Some(messages));
    }
}

/// A latency belongs to the point whose interval holds the time at which it was known; what a
/// program saw at its own clock, which may be ahead of the last event, to the last point.
fn sort_into(times: &[Span], measured: &[(Time, Span)], bins: &mut [Bin]) {
    for (at, latency) in measured {
        let at = at.since(Time::ZERO);
        let index = times.partition_point(|end| *end < at).min(times.len().saturating_sub(1));
        let Some(bin) = bins.get_mut(index) else { continue };
        bin.messages += 1;
        bin.sum += u128::from(latency.as_ps());
        bin.max = bin.max.max(latency.as_ps());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_belongs_to_the_interval_that_ends_at_or_after_it() {
        let us = Span::from_us;
        let times = [us(1), us(2), us(3)];
        let at = |t: Span, latency| (Time::ZERO + t, us(latency));
        let measured = [at(us(1), 5), at(us(1) + Span::from_ps(1), 7), at(us(2), 9), at(us(9), 4)];
        let mut bins = [Bin::default(); 3];
        sort_into(&times, &measured, &mut bins);
        assert_eq!(bins.map(|b| b.messages), [1, 2, 1]);
        assert_eq!(bins.map(|b| b.sum), [5, 16, 4].map(|n| u128::from(us(n).as_ps())));
        assert_eq!(bins.map(|b| b.max), [5, 9, 4].map(|n| us(n).as_ps()));
        sort_into(&[], &measured, &mut []);
    }
}
