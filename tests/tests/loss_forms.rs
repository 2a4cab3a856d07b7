//! Loss recovery against its closed forms, at the points that take least; all of them are in the
//! benchmark `recovery`, which prints them.

use doorbell_core::units::Ratio;
use doorbell_tests::forms::{
    BOUND, Point, TIMEOUTS, go_back_n, go_back_n_points, go_back_n_repeated, loop_that_leaves,
    selective_repeat_points,
};
use doorbell_tests::line::Line;

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

#[test]
fn a_repeated_nak_costs_a_second_loop_per_loss_and_saves_the_timer() {
    let calm = go_back_n_points().into_iter().find(|p| p.line.loop_packets == 150);
    let Point { line, .. } = calm.expect("a point");
    let at = |every: Option<u64>, one_in, packets| {
        let loss = Ratio::new(1, one_in).expect("not zero");
        let nak_repeat = every.map(|n| line.packet * n);
        let line =
            Line { nak_repeat, loss, nak_loss: Ratio::new(0, 1).unwrap(), packets, ..line.clone() };
        let ran = line.run();
        (ran.per_packet(&line), ran.counters.local_ack_timeout_err)
    };
    for every in [40, 60, 148, 149] {
        let form = go_back_n_repeated(150.0, 1e-3, every as f64);
        let (got, _) = at(Some(every), 1_000, 400_000);
        assert!((got / form - 1.0).abs() <= BOUND, "every {every}: {got:.3}, not {form:.3}");
    }
    // Both a request and its retransmission are lost in one of 2,500 packets.
    let (once, timeouts) = at(None, 50, 100_000);
    let (repeated, saved) = at(Some(60), 50, 100_000);
    assert!(timeouts >= 30 && saved == 0, "{timeouts} timeouts, and {saved}");
    assert!(repeated < once, "{repeated:.3} is not below {once:.3}");
}
