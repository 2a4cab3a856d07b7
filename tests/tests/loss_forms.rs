//! Loss recovery against its closed forms, at the points that take least; all of them are in the
//! benchmark `recovery`, which prints them.

use doorbell_tests::forms::{
    BOUND, Point, TIMEOUTS, go_back_n, go_back_n_points, loop_that_leaves, selective_repeat_points,
};

/// The cheapest points, and the cheapest at which the timer matters.
fn cheapest(points: Vec<Point>) -> Vec<Point> {
    let cost = |p: &Point| p.form.packets as f64 * p.form.per_packet;
    let (mut timed, mut calm): (Vec<_>, Vec<_>) = points.into_iter().partition(timer_matters);
    for points in [&mut timed, &mut calm] {
        points.sort_by(|a, b| cost(a).total_cmp(&cost(b)));
    }
    timed.truncate(4);
    calm.truncate(10);
    calm.extend(timed);
    calm
}

fn timer_matters(point: &Point) -> bool {
    point.form.timer > BOUND * point.form.per_packet
}

fn holds_at(points: &[Point]) {
    for point in points {
        let Point { line, form, .. } = point;
        let ran = line.run();
        let (got, timeouts) = (ran.per_packet(line), ran.counters.local_ack_timeout_err);
        let off = got / form.per_packet - 1.0;
        assert!(off.abs() <= BOUND, "{got:.3} is {:+.1} % off {form:?}: {line:?}", 100.0 * off);
        let judged = !timer_matters(point) || timeouts >= TIMEOUTS;
        assert!(judged, "{timeouts} timeouts judge nothing: {line:?}");
    }
    assert_eq!((points.len(), points.iter().filter(|p| timer_matters(p)).count()), (14, 4));
}

#[test]
fn go_back_n_takes_what_its_closed_form_says() {
    holds_at(&cheapest(go_back_n_points()));
}

#[test]
fn selective_repeat_takes_what_its_closed_form_says() {
    holds_at(&cheapest(selective_repeat_points()));
}

#[test]
fn forty_per_cent_are_left_where_the_form_says_so() {
    for t in [0.0, 100.0, 5_000.0, 14_000.0] {
        let w = loop_that_leaves(0.4, 0.01, 0.0, t).expect("a loop");
        assert!((go_back_n(w, 0.01, 0.0, t).per_packet - 2.5).abs() < 1e-9, "T {t}: W {w}");
    }
    assert_eq!(loop_that_leaves(0.4, 0.01, 0.0, 20_000.0), None, "the timer alone costs more");
}
