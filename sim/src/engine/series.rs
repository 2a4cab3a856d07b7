//! Numbers over time in a bounded memory.

use doorbell_core::units::{Span, Time};

/// What a number is, which says how two neighbouring points become one.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A level at the instant, such as the bytes in a queue: the later of two stands for both.
    Level,
    /// The highest level since the last point: the higher of two stands for both.
    Peak,
    /// What was counted since the last point: the sum stands for both.
    Count,
}

/// One number over time.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Column {
    kind: Kind,
    /// Running total at the last point, of a count.
    total: u64,
    values: Vec<u64>,
}

/// Numbers that are read together at fixed instants.
///
/// It never holds more points than it was made for: when it is full, neighbours are merged, half of
/// the points are left, and the interval is twice as long. A run of any length thus fits, and a
/// burst between two points is still in a [`Kind::Peak`].
///
/// ```
/// use doorbell_core::units::{Span, Time};
/// use doorbell_sim::engine::series::{Kind, Series};
///
/// let mut series = Series::new(Span::from_us(1), 4);
/// let sent = series.add(Kind::Count);
/// for total in [10, 30, 60, 100] {
///     series.point(&mut |_| total);
/// }
/// assert_eq!(series.interval(), Span::from_us(2));
/// assert_eq!(series.values(sent), [30, 70]);
/// assert_eq!(series.next(), Time::ZERO + Span::from_us(6));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Series {
    asked: Span,
    interval: Span,
    capacity: usize,
    next: Time,
    times: Vec<Time>,
    columns: Vec<Column>,
}

impl Series {
    /// Points at multiples of `interval`, as long as there are fewer than `capacity` of them.
    /// Doubling the interval halves what the run pays; doubling the capacity doubles the memory,
    /// 8 bytes for each number at each point.
    ///
    /// # Panics
    /// When the interval is zero, or the capacity odd or zero: pairs are what is merged.
    pub fn new(interval: Span, capacity: usize) -> Self {
        assert!(interval > Span::ZERO, "points without a time between them");
        assert!(capacity >= 2 && capacity.is_multiple_of(2), "{capacity} points are no pairs");
        let next = Time::ZERO + interval;
        let (times, columns) = (Vec::new(), Vec::new());
        Self { asked: interval, interval, capacity, next, times, columns }
    }

    /// Adds a number; what it was before is zero. Gives its place for [`values`](Self::values).
    pub fn add(&mut self, kind: Kind) -> usize {
        self.columns.push(Column { kind, total: 0, values: vec![0; self.times.len()] });
        self.columns.len() - 1
    }

    /// Interval that was asked for.
    pub const fn asked(&self) -> Span {
        self.asked
    }

    /// Interval of the points now.
    pub const fn interval(&self) -> Span {
        self.interval
    }

    /// Instant of the next point.
    pub const fn next(&self) -> Time {
        self.next
    }

    /// Instants of the points. Only the last one may be off the interval, at the end of a run.
    pub fn times(&self) -> &[Time] {
        &self.times
    }

    /// A number at each of them.
    pub fn values(&self, column: usize) -> &[u64] {
        &self.columns[column].values
    }

    /// Adds the point at [`next`](Self::next). `read` gives each number by its place; of a
    /// [`Kind::Count`] the running total, which never falls.
    pub fn point(&mut self, read: &mut dyn FnMut(usize) -> u64) {
        self.add_point(self.next, read);
        if self.times.len() == self.capacity {
            self.merge();
        }
        self.next = self.times.last().map_or(Time::ZERO, |t| *t) + self.interval;
    }

    fn add_point(&mut self, at: Time, read: &mut dyn FnMut(usize) -> u64) {
        self.times.push(at);
        for (i, c) in self.columns.iter_mut().enumerate() {
            let value = read(i);
            c.values.push(match c.kind {
                Kind::Level | Kind::Peak => value,
                Kind::Count => {
                    // A subject that is gone counts no more.
                    let since = value.saturating_sub(c.total);
                    c.total = c.total.max(value);
                    since
                }
            });
        }
    }

    fn merge(&mut self) {
        self.times = self.times.chunks_exact(2).map(|pair| pair[1]).collect();
        for c in &mut self.columns {
            let pairs = c.values.chunks_exact(2).map(|pair| match c.kind {
                Kind::Level => pair[1],
                Kind::Peak => pair[0].max(pair[1]),
                Kind::Count => pair[0].saturating_add(pair[1]),
            });
            c.values = pairs.collect();
        }
        self.interval = self.interval * 2;
    }

    /// The run ended at `end`: adds what came after the last point, and takes off points beyond the
    /// end, at which nothing can have happened.
    pub fn finish(&mut self, end: Time, read: &mut dyn FnMut(usize) -> u64) {
        while self.times.len() > 1 && self.times[self.times.len() - 2] >= end {
            self.times.pop();
            for column in &mut self.columns {
                column.values.pop();
            }
        }
        match self.times.last_mut() {
            Some(last) if *last >= end => *last = end,
            _ if end > Time::ZERO => self.add_point(end, read),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(n: u64) -> Time {
        Time::ZERO + Span::from_us(n)
    }

    /// One of each kind, fed with the same numbers; counts get running totals.
    fn fed(capacity: usize, numbers: &[u64]) -> Series {
        let mut s = Series::new(Span::from_us(1), capacity);
        for kind in [Kind::Level, Kind::Peak, Kind::Count] {
            s.add(kind);
        }
        let mut total = 0;
        for n in numbers {
            total += n;
            s.point(&mut |column| if column == 2 { total } else { *n });
        }
        s
    }

    #[test]
    fn one_below_the_bound_keeps_all_and_the_bound_merges_pairs() {
        let s = fed(4, &[5, 1, 7]);
        assert_eq!((s.interval(), s.times()), (Span::from_us(1), &[us(1), us(2), us(3)][..]));
        let s = fed(4, &[5, 1, 7, 9]);
        assert_eq!((s.asked(), s.interval()), (Span::from_us(1), Span::from_us(2)));
        assert_eq!(s.times(), [us(2), us(4)]);
        assert_eq!(
            (s.values(0), s.values(1), s.values(2)),
            (&[1, 9][..], &[5, 9][..], &[6, 16][..])
        );
        assert_eq!(s.next(), us(6));
    }

    #[test]
    fn memory_is_bounded_and_nothing_is_lost() {
        let numbers: Vec<u64> = (0..100_000).map(|n| n * 7919 % 10_007).collect();
        for capacity in [2, 4, 64, 512] {
            let s = fed(capacity, &numbers);
            assert!(s.times().len() < capacity, "{} of {capacity}", s.times().len());
            let held: usize = s.columns.iter().map(|c| c.values.capacity()).sum();
            assert!(held <= 3 * capacity, "{held} numbers for {capacity} points");
            assert_eq!(s.values(1).iter().max(), numbers.iter().max());
            assert_eq!(s.values(2).iter().sum::<u64>(), numbers.iter().sum::<u64>());
            let on_grid = |t: &Time| t.as_ps().is_multiple_of(s.interval().as_ps());
            assert!(s.times().iter().all(on_grid) && s.times().is_sorted());
        }
    }

    #[test]
    fn the_end_adds_the_rest_and_takes_off_what_lies_beyond() {
        let mut s = fed(8, &[5, 1, 7]);
        let whole = s.clone();
        s.finish(us(3), &mut |_| unreachable!("the last point is the end"));
        assert_eq!(s, whole);
        let end = us(3) + Span::from_ns(500);
        s.finish(end, &mut |column| [2, 3, 17][column]);
        assert_eq!(s.times().last(), Some(&end));
        assert_eq!([0, 1, 2].map(|c| *s.values(c).last().unwrap()), [2, 3, 4]);

        let mut s = fed(8, &[5, 1, 0, 0]);
        s.finish(us(1) + Span::from_ns(1), &mut |_| unreachable!("points reach beyond the end"));
        assert_eq!(s.times(), [us(1), us(1) + Span::from_ns(1)]);
        assert_eq!(s.values(2), [5, 1]);
    }

    #[test]
    fn a_number_that_comes_late_was_zero_before() {
        let mut s = fed(8, &[5, 1]);
        let late = s.add(Kind::Count);
        s.point(&mut |_| 40);
        assert_eq!(s.values(late), [0, 0, 40]);
        s.point(&mut |column| if column == late { 30 } else { 40 });
        assert_eq!(s.values(late), [0, 0, 40, 0], "who is gone counts no more");
    }

    #[test]
    #[should_panic(expected = "no pairs")]
    fn an_odd_bound_is_refused() {
        let _ = Series::new(Span::from_us(1), 3);
    }
}
