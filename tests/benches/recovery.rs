//! Closed forms of loss recovery against runs, point by point: `cargo bench -p doorbell-tests
//! --bench recovery`. Ends with status 1 when a point is farther from its form than the bound, or
//! its timer matters and has expired too seldom to judge.

use std::process::ExitCode;

use doorbell_core::units::{Ratio, Span};
use doorbell_sim::rc::Recovery;
use doorbell_tests::forms::{
    BOUND, Form, Point, TIMEOUTS, go_back_n, go_back_n_points, go_back_n_repeated,
    loop_that_leaves, machine, selective_repeat_points,
};
use doorbell_tests::line::Line;

/// Counts and judges.
#[derive(Default)]
struct Judge {
    points: u32,
    missed: u32,
    worst: f64,
}

impl Judge {
    /// The end of a row: time per packet, form, its timer, deviation.
    fn row(&mut self, got: f64, form: Form, timeouts: u64) -> String {
        let (off, timer) = (got / form.per_packet - 1.0, form.timer / form.per_packet);
        let few = timer > BOUND && timeouts < TIMEOUTS;
        let verdict = match (off.abs() > BOUND, few) {
            (true, _) => "  missed",
            (_, true) => "  too few timeouts",
            _ => "",
        };
        self.points += 1;
        self.missed += u32::from(!verdict.is_empty());
        self.worst = self.worst.max(off.abs());
        let (timer, off) = (100.0 * timer, 100.0 * off);
        format!(
            "{timeouts:>9} {timer:>6.1} {got:>9.3} {:>9.3} {off:>+6.2}{verdict}",
            form.per_packet
        )
    }

    fn end(self) -> bool {
        println!(
            "{} points, {} beyond {:.0} %, the farthest {:.1} %\n",
            self.points,
            self.missed,
            100.0 * BOUND,
            100.0 * self.worst
        );
        self.missed == 0
    }
}

const COLUMNS: &str = "timeouts  timer%       run      form  off%";

fn line(points: &[Point]) -> bool {
    let mut judge = Judge::default();
    println!("   W  p/1000 q/1000       T     C    packets {COLUMNS:>45}");
    for point in points {
        let (l, ran) = (&point.line, point.line.run());
        let got = ran.per_packet(l);
        let end = judge.row(got, point.form, ran.counters.local_ack_timeout_err);
        let (t, cap) = (l.timeout.as_ps() / l.packet.as_ps(), point.cap);
        let cap = cap.map_or("-".to_owned(), |cap| cap.to_string());
        let (w, p, q, n) = (l.loop_packets, l.loss.num, l.nak_loss.num, l.packets);
        println!("{w:>4} {p:>7} {q:>6} {t:>7} {cap:>5} {n:>10} {end}");
    }
    judge.end()
}

fn machines() -> bool {
    let mut judge = Judge::default();
    let mut calm: Option<(u64, machine::Calm)> = None;
    println!("   W  p/1000 q/1000       T            packets {COLUMNS:>45}");
    for at in machine::settings() {
        let here = match calm {
            Some((far, here)) if far == at.propagation_us => here,
            _ => machine::calm(at.propagation_us),
        };
        calm = Some((at.propagation_us, here));
        let row = machine::row(&here, at);
        let end = judge.row(row.per_packet, row.form, row.timeouts);
        let (w, p, q) = (here.loop_packets, at.loss, at.nak_loss);
        println!("{w:>4} {p:>7} {q:>6} {:>7.0}       {:>10} {end}", row.timeout, row.form.packets);
    }
    judge.end()
}

/// Payload bytes of a packet, and bytes and time of it at 100 Gb/s, of the other simulators.
const THEIRS: (u64, Span) = (1000, Span::from_ps(83_040));

/// One flow of 100 MB at 100 Gb/s, 1000 bytes in packets of 1038, a loop of 8.3 us, a timer of
/// 4 ms: what two other simulators were run with. They repeat the NAK every 4 us. Ours does one NAK
/// per gap unless told otherwise. Goodput of payload over the seeds: least and most.
fn others() {
    let (bytes, packet) = THEIRS;
    let goodput = |per_packet: f64| bytes as f64 * 8e3 / (per_packet * packet.as_ps() as f64);
    let range = |line: &Line| {
        let runs = (0..20).map(|seed| {
            let line = Line { seed, ..line.clone() };
            goodput(line.run().per_packet(&line))
        });
        runs.fold((f64::MAX, 0.0_f64), |(least, most), g| (least.min(g), most.max(g)))
    };
    println!("loss     NAK lost   NAK every  goodput, Gb/s    form   other simulators");
    for (one_in, theirs) in [(10_000, "94.4-95.0"), (1_000, "80.3-84.6"), (100, "40.2-40.6")] {
        let (p, t) = (1.0 / one_in as f64, 4e9 / packet.as_ps() as f64);
        let loss = Ratio::new(1, one_in).expect("not zero");
        let none = Ratio::new(0, 1).expect("not zero");
        let line = Line {
            recovery: Recovery::GoBackN,
            loop_packets: 100,
            packet,
            timeout: Span::from_ms(4),
            nak_repeat: None,
            loss,
            nak_loss: none,
            packets: 100_000_000 / bytes,
            seed: 1,
        };
        for nak_repeat in [None, Some(Span::from_us(4)), Some(Span::from_us(8))] {
            for (nak_loss, q) in [(none, 0.0), (loss, p)] {
                let form = match nak_repeat {
                    None => Some(go_back_n(100.0, p, q, t).per_packet),
                    Some(span) => {
                        let every = span.as_ps().div_ceil(packet.as_ps());
                        (p <= 1e-3).then(|| go_back_n_repeated(100.0, p, every as f64))
                    }
                };
                let (least, most) = range(&Line { nak_repeat, nak_loss, ..line.clone() });
                let every = nak_repeat.map_or("gap".to_owned(), |s| s.to_string());
                let form = form.map_or("-".to_owned(), |f| format!("{:.1}", goodput(f)));
                let lost = if q > 0.0 { "as well" } else { "never" };
                let run = format!("{least:>6.1} - {most:<6.1}");
                println!("1/{one_in:<6} {lost:>8} {every:>11}  {run} {form:>7} {theirs:>18}");
            }
        }
    }
    println!();
}

fn main() -> ExitCode {
    println!("One flow of 100 MB, as two other simulators ran it; 20 seeds\n");
    others();
    println!("Go-Back-N on a line: W, T, times in packets' times\n");
    let mut good = line(&go_back_n_points());
    println!("Selective repeat on a line\n");
    good &= line(&selective_repeat_points());
    println!("Go-Back-N on two hosts of generic-400g\n");
    good &= machines();
    println!("Loop that leaves 40 % of the line at a loss of 1 %, by timer in packets' times\n");
    for t in [0.0, 100.0, 1_000.0, 5_000.0, 10_000.0, 14_000.0, 20_000.0] {
        let w = loop_that_leaves(0.4, 0.01, 0.0, t);
        println!("T {t:>6}: W {}", w.map_or("none".to_owned(), |w| format!("{w:.0}")));
    }
    println!();
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
