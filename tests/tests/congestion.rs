//! Congestion control in the NIC: pace, window, samples, CNPs, each against a closed form.
//!
//! Hosts are ideal, every link has 100 Gb/s and 1 us, a full packet 4096 bytes of payload and 4178
//! on the wire.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use doorbell::format::expand::expand;
use doorbell::format::load::{Overrides, load};
use doorbell::input::Source;
use doorbell::profile::Profiles;
use doorbell::run::{Outcome, SimulatorWith, run_points};
use doorbell_core::units::{BitRate, Ratio, Span, Time};
use doorbell_sim::cc::{
    CcEvent, CnpScope, CongestionControl, Control, ControlFactory, FlowScope, Notification,
};
use doorbell_sim::fabric::{ClassConfig, Classes, EcnConfig};
use doorbell_sim::world::WorldConfig;

type Log = Arc<Mutex<Vec<(Time, CcEvent)>>>;

/// A control that never changes its mind, and writes down what it hears.
#[derive(Clone, Debug, Default)]
struct Fixed {
    rate: Option<BitRate>,
    window: Option<u64>,
    scope: Option<FlowScope>,
    log: Log,
}

impl CongestionControl for Fixed {
    fn on_event(&mut self, now: Time, event: CcEvent) {
        self.log.lock().unwrap().push((now, event));
    }
    fn rate(&self) -> Option<BitRate> {
        self.rate
    }
    fn window(&self) -> Option<u64> {
        self.window
    }
}

impl ControlFactory for Fixed {
    fn build(&self, _line: BitRate) -> Box<dyn CongestionControl> {
        Box::new(self.clone())
    }
    fn scope(&self) -> FlowScope {
        self.scope.unwrap_or(FlowScope::Qp)
    }
}

impl Fixed {
    fn at(gbps: u64) -> Self {
        Self { rate: Some(BitRate::gbps(gbps)), ..Self::default() }
    }

    fn on(&self, world: &mut WorldConfig, hosts: std::ops::Range<usize>) {
        for host in &mut world.hosts[hosts] {
            host.rc.congestion.control = Control::Custom(Arc::new(self.clone()));
        }
    }

    fn times(&self, of: fn(&CcEvent) -> bool) -> Vec<Time> {
        let log = self.log.lock().unwrap();
        log.iter().filter(|(_, event)| of(event)).map(|(at, _)| *at).collect()
    }
}

fn run(text: &str, change: impl Fn(&mut WorldConfig)) -> Outcome {
    let head = "title = 't'\nprofile = 'generic-400g'\nrun = { noise = 'off', host = 'ideal' }\n\
                settings = { 'rc.ack_every' = 1 }\n";
    let overrides = Overrides { set: Vec::new(), seed: None };
    let source = Source::new("t.toml", format!("{head}{text}"));
    let file = load(source, PathBuf::from("."), &overrides).unwrap();
    let points = expand(&file, &mut Profiles::beside(&file.directory)).unwrap();
    // Nothing is scheduled long before it leaves.
    let change = |world: &mut WorldConfig| {
        world.hosts.iter_mut().for_each(|h| h.nic.tx_buffer = 4178);
        change(world);
    };
    run_points(&SimulatorWith(change), &points, |_| {}).unwrap().remove(0).outcome
}

/// Two hosts, a cable, one program.
fn cable(program: &str, change: impl Fn(&mut WorldConfig)) -> Outcome {
    let text = "topology = { rate = '100Gbps', propagation = '1us' }\n[[program]]\n\
                kind = 'bandwidth'\niterations = 1\n";
    run(&format!("{text}{program}"), change)
}

/// Two hosts that send 8 MB each to a third one, behind a switch that marks whatever has something
/// behind it; host 0 in `parts` programs.
fn incast(parts: u32, change: impl Fn(&mut WorldConfig)) -> Outcome {
    let mut text = String::from(
        "topology = { kind = 'switch', hosts = 3, rate = '100Gbps', propagation = '1us' }\n",
    );
    for i in 0..=parts {
        let (host, kb) = if i < parts { (0, 8192 / parts) } else { (1, 8192) };
        text += &format!(
            "[[program]]\nname = 'p{i}'\nkind = 'bandwidth'\niterations = 1\nsize = '{kb}KB'\n\
             host = {host}\npeer = 2\n"
        );
    }
    run(&text, |world| {
        let pmax = Ratio { num: 1, den: 1 };
        let ecn = Some(EcnConfig { kmin: 0, kmax: 1, pmax, ..EcnConfig::default() });
        world.fabric.classes = Classes::one(ClassConfig { ecn, ..ClassConfig::default() });
        change(world);
    })
}

fn number(o: &Outcome, name: &str) -> f64 {
    o.find(name).unwrap_or_else(|| panic!("no {name}")).scalar().unwrap().number()
}

/// Picoseconds.
fn duration(o: &Outcome) -> f64 {
    number(o, "duration")
}

const PACKET: f64 = 4178.0;
/// Of one packet of the size at 1 Gb/s.
const PS_PER_BYTE_GBPS: f64 = 8000.0;

#[test]
fn packets_leave_at_the_distance_of_their_rate() {
    for gbps in [1, 7, 99] {
        let o = cable("size = '4096KB'\n", |w| Fixed::at(gbps).on(w, 0..2));
        // 999 distances, then the last packet at the port's rate, 1 us there and 1 us back. The
        // first packet has 16 bytes more, a RETH. The doorbell crosses PCIe in 38 ns.
        let gap = PS_PER_BYTE_GBPS / gbps as f64;
        let want = (999.0 * PACKET + 16.0) * gap + (PACKET + 86.0) * 80.0 + 2e6;
        assert!((duration(&o) - want).abs() < 50_000.0, "{gbps}: {} {want}", duration(&o));
        assert_eq!(number(&o, "rate_waits"), 999.0);
    }
}

/// 1 Gb/s, and 10 from 10 us after the first packet on.
#[derive(Copy, Clone, Debug, Default)]
struct Step {
    sent: Option<Time>,
    up: bool,
}

impl CongestionControl for Step {
    fn on_event(&mut self, now: Time, event: CcEvent) {
        match event {
            CcEvent::Sent { .. } => _ = self.sent.get_or_insert(now),
            CcEvent::Timer => self.up = true,
            _ => {}
        }
    }
    fn rate(&self) -> Option<BitRate> {
        Some(BitRate::gbps(if self.up { 10 } else { 1 }))
    }
    fn next_deadline(&self) -> Option<Time> {
        self.sent.filter(|_| !self.up).map(|sent| sent + Span::from_us(10))
    }
}

impl ControlFactory for Step {
    fn build(&self, _line: BitRate) -> Box<dyn CongestionControl> {
        Box::new(*self)
    }
}

#[test]
fn a_gap_that_runs_follows_the_rate_or_stays() {
    let with = |keep_gap| {
        let o = cable("size = '12288B'\n", |w| {
            let congestion = &mut w.hosts[0].rc.congestion;
            congestion.control = Control::Custom(Arc::new(Step::default()));
            congestion.keep_gap = keep_gap;
        });
        duration(&o)
    };
    // The first of two gaps, with 16 bytes of RETH, takes 33.552 us at 1 Gb/s. After 10 us what is
    // left is paid at the new rate, in a tenth of the time, or stays. The second has the new rate.
    let left = (PACKET + 16.0) * PS_PER_BYTE_GBPS - 10e6;
    let saved = with(true) - with(false);
    assert!((saved - left * 0.9).abs() < 2.0, "{saved} {left}");
}

#[test]
fn a_control_without_a_rate_costs_no_event_and_changes_nothing() {
    let free = cable("size = '4096KB'\n", |_| {});
    for control in [Fixed::default(), Fixed::at(100), Fixed::at(400)] {
        let o = cable("size = '4096KB'\n", |w| control.on(w, 0..2));
        assert_eq!((&o.trace_hash, o.events), (&free.trace_hash, free.events));
    }
}

#[test]
fn a_read_is_paced_where_its_data_comes_from() {
    let read = "size = '4096KB'\nop = 'read'\n";
    let free = cable(read, |_| {});
    let asker = cable(read, |w| Fixed::at(10).on(w, 0..1));
    assert_eq!(duration(&asker), duration(&free), "one request of 98 bytes");
    let owner = cable(read, |w| Fixed::at(10).on(w, 1..2));
    let want = 999.0 * PACKET * 800.0;
    assert!((duration(&owner) / want - 1.0).abs() < 0.002, "{} {want}", duration(&owner));
}

#[test]
fn what_is_sent_again_is_paced_too() {
    let text = "size = '4096KB'\n[[fault]]\nid = 'f'\nkind = 'drop'\nlink = 'host0-host1'\n\
                from = 'host0'\nclass = 'request'\nnth = 500\n";
    let o = cable(text, |w| Fixed::at(10).on(w, 0..2));
    let again = number(&o, "counter.retransmitted_packets");
    assert!((1.0..4.0).contains(&again), "one round trip of packets: {again}");
    let want = (999.0 + again) * PACKET * 800.0;
    assert!((duration(&o) - want).abs() < 3e6 + PACKET * 800.0, "{} {want}", duration(&o));
}

#[test]
fn a_window_of_one_packet_takes_a_round_trip_each() {
    for (bytes, packets) in [(1, 1.0), (4096, 1.0), (8191, 1.0), (8192, 2.0)] {
        let control = Fixed { window: Some(bytes), ..Fixed::default() };
        let o = cable("size = '819200B'\n", |w| control.on(w, 0..2));
        // Before the first ACK nobody has asked the control: that round is free.
        let rtt = (PACKET + 86.0) * 80.0 + 2e6;
        let free = (rtt / (PACKET * 80.0)).ceil();
        let want = (200.0 - free) / packets * rtt;
        assert!((duration(&o) / want - 1.0).abs() < 0.05, "{bytes}: {} {want}", duration(&o));
    }
}

#[test]
fn a_sample_is_the_time_from_the_last_bit_to_the_ack() {
    let control = Fixed::at(10);
    cable("size = '40960B'\n", |w| control.on(w, 0..2));
    let log = control.log.lock().unwrap();
    let rtts: Vec<_> = log
        .iter()
        .filter_map(|(_, event)| match event {
            CcEvent::Ack { rtt, bytes, ecn: false } => Some((rtt.unwrap(), *bytes)),
            _ => None,
        })
        .collect();
    // 1 us there, 1 us back, an ACK of 86 bytes; nothing waits.
    let want = Span::from_us(2) + Span::from_ps(86 * 80);
    assert_eq!(rtts, vec![(want, 4096); 10]);
}

/// CNPs that must have left in an incast that marks all the time.
fn paced(o: &Outcome, scopes: f64) {
    let sent = number(o, "counter.np_cnp_sent");
    let want = scopes * duration(o) / 50e6;
    assert!((sent - want).abs() <= scopes, "{sent} CNPs, {want} fit into the time");
    assert!(number(o, "counter.np_ecn_marked_roce_packets") > 1000.0);
}

#[test]
fn cnps_keep_their_distance_by_qp_destination_or_port() {
    let with = |scope| {
        incast(2, move |w| {
            let notify = Some(Notification { scope, ..Notification::PAPER });
            Fixed::default().on(w, 0..2);
            w.hosts.iter_mut().for_each(|h| h.rc.congestion.notify = notify);
        })
    };
    // Two hosts, one of which has two QPs.
    for (scope, scopes) in
        [(CnpScope::Qp, 3.0), (CnpScope::Destination, 2.0), (CnpScope::Port, 1.0)]
    {
        let o = with(scope);
        paced(&o, scopes);
        assert_eq!(number(&o, "counter.rp_cnp_handled"), number(&o, "counter.np_cnp_sent"));
    }
}

#[test]
fn a_sender_without_control_ignores_cnps_and_a_receiver_without_sends_none() {
    let o = incast(1, |w| {
        w.hosts.iter_mut().for_each(|h| h.rc.congestion.notify = Some(Notification::PAPER));
    });
    let sent = number(&o, "counter.np_cnp_sent");
    assert!(sent > 2.0);
    assert_eq!(number(&o, "counter.rp_cnp_ignored"), sent);
    let o = incast(1, |_| {});
    assert_eq!(number(&o, "counter.np_cnp_sent"), 0.0);
    assert!(number(&o, "counter.np_ecn_marked_roce_packets") > 1000.0);
}

#[test]
fn a_cnp_is_late_by_its_generation_delay() {
    let first = |delay| {
        let control = Fixed::default();
        incast(1, |w| {
            control.on(w, 0..2);
            let notify = Some(Notification { delay, ..Notification::PAPER });
            w.hosts.iter_mut().for_each(|h| h.rc.congestion.notify = notify);
        });
        control.times(|event| *event == CcEvent::Cnp)[0]
    };
    let (at_once, late) = (first(Span::ZERO), first(Span::from_ns(300)));
    assert_eq!(late, at_once + Span::from_ns(300));
}

#[test]
fn becn_comes_in_acks_where_there_are_any() {
    let control = Fixed::default();
    let o = incast(1, |w| {
        control.on(w, 0..2);
        w.hosts.iter_mut().for_each(|h| h.rc.congestion.notify = Some(Notification::INFINIBAND));
    });
    let marks = number(&o, "counter.np_ecn_marked_roce_packets");
    assert_eq!(number(&o, "counter.np_cnp_sent"), 0.0, "every packet asks for an ACK");
    let echoes = control.times(|event| matches!(event, CcEvent::Ack { ecn: true, .. }));
    assert_eq!(echoes.len() as f64, marks);
}

#[test]
fn a_sequence_nak_may_bring_a_cnp() {
    for with_nak in [false, true] {
        let control = Fixed::default();
        let text = "size = '4096KB'\n[[fault]]\nid = 'f'\nkind = 'drop'\n\
                    link = 'host0-host1'\nfrom = 'host0'\nclass = 'request'\nnth = 500\n";
        let o = cable(text, |w| {
            control.on(w, 0..2);
            let notify = Some(Notification { with_nak, ..Notification::PAPER });
            w.hosts.iter_mut().for_each(|h| h.rc.congestion.notify = notify);
        });
        assert_eq!(number(&o, "counter.np_cnp_sent"), f64::from(u8::from(with_nak)));
        assert_eq!(control.times(|event| *event == CcEvent::Nak).len(), 1);
    }
}

#[test]
fn flows_of_one_level_may_share_a_rate() {
    let program = "[[program]]\nkind = 'bandwidth'\niterations = 1\nsize = '4096KB'\n";
    let text = format!(
        "topology = {{ rate = '100Gbps', propagation = '1us' }}\n{program}name = 'a'\n\
         {program}name = 'b'\n"
    );
    for (scope, shares) in [(FlowScope::Qp, 1.0), (FlowScope::Sl, 2.0)] {
        let control = Fixed { scope: Some(scope), ..Fixed::at(10) };
        let o = run(&text, |w| control.on(w, 0..2));
        let want = shares * 1000.0 * PACKET * 800.0;
        assert!((duration(&o) / want - 1.0).abs() < 0.01, "{scope:?}: {} {want}", duration(&o));
    }
}
