//! Programs that post by lanes, on the ideal back end.

use doorbell_core::ideal::{Ideal, Stalled, run};
use doorbell_core::policy::lanes::{FlowLabels, LaneConfig, LanesConfig, Spread};
use doorbell_core::policy::{
    BatchConfig, InlineConfig, PaceConfig, PaceError, SenderConfig, WindowConfig,
};
use doorbell_core::units::{BitRate, Bytes, Span};
use doorbell_core::verbs::{QpType, ServiceLevel};

use super::common::{Op, Shape};
use super::laned::{LaneTraffic, Laned, LanedConfig};
use super::rate::Arrivals;
use super::responder::{Responder, ResponderConfig};
use super::{Failure, LinkConfig, LocalConfig, Results};

fn traffic(qps: u32, spread: Spread, messages: u64) -> LaneTraffic {
    let batch = BatchConfig { max_wrs: 1, max_delay: Span::MAX, ..BatchConfig::default() };
    let window = WindowConfig { max_wrs: 16, signal_every: 1 };
    let lane = LaneConfig {
        qps,
        spread,
        sender: SenderConfig { batch, window, signal_last: false },
        inline: InlineConfig { lone_bytes: 0, batched_bytes: 0 },
        ..LaneConfig::default()
    };
    let shape = Shape { op: Op::Write, size: 4096, inline: false };
    let (name, warm_up, flows) = ("a".to_owned(), 0, 1);
    LaneTraffic { name, lane, shape, messages, warm_up, arrivals: Arrivals::Saturate, flows }
}

fn config(lanes: Vec<LaneTraffic>) -> LanedConfig {
    let link = LanedConfig::link_for(LinkConfig::to(1), &lanes);
    LanedConfig { local: LocalConfig::default(), link, lanes, poll_batch: 16, tuning: None }
}

fn play(config: LanedConfig) -> (Results, Results, Result<(), Stalled>) {
    let mut peer = ResponderConfig::to(0);
    peer.links[0].link = LinkConfig { peer: 0, ..config.link };
    let (mut a, mut b) = (Laned::new(config), Responder::new(peer));
    let end = run(&mut Ideal::new(2), &mut [&mut a, &mut b]);
    (a.results().clone(), b.results().clone(), end)
}

#[test]
fn every_message_of_every_lane_completes_and_is_counted_once() {
    let control = LaneTraffic {
        name: "control".to_owned(),
        shape: Shape { op: Op::Send, size: 64, inline: true },
        arrivals: Arrivals::Every(Span::from_us(1)),
        ..traffic(1, Spread::Ordered, 40)
    };
    let mut bulk = traffic(3, Spread::RoundRobin, 100);
    (bulk.name, bulk.warm_up) = ("bulk".to_owned(), 10);
    (bulk.lane.sender.batch.max_wrs, bulk.lane.sender.window.signal_every) = (4, 4);
    let (r, peer, end) = play(config(vec![control, bulk]));
    end.unwrap();
    assert_eq!((r.failure, r.messages, r.unconfirmed, peer.received), (None, 140, 0, 40));
    assert_eq!(r.bytes, 40 * 64 + 100 * 4096);
    let [(a, control), (b, bulk)] = &r.lanes[..] else { panic!("two lanes") };
    assert_eq!((a.as_str(), b.as_str()), ("control", "bulk"));
    assert_eq!((control.messages, control.rings, control.latencies.len()), (40, 40, 40));
    assert_eq!((bulk.messages, bulk.latencies.len(), bulk.window.unwrap().messages), (100, 90, 90));
    assert!((25..=40).contains(&bulk.rings), "four at a time: {}", bulk.rings);
    assert_eq!((r.rings, r.latencies.len()), (40 + bulk.rings, 130));
    assert_eq!(r.window.unwrap().messages, 130);
}

#[test]
fn a_lane_without_a_name_is_the_program_itself() {
    for (name, lanes) in [("", 0), ("a", 1)] {
        let mut lane = traffic(2, Spread::LeastBytes, 50);
        lane.name = name.to_owned();
        let (r, _, end) = play(config(vec![lane]));
        end.unwrap();
        assert_eq!((r.messages, r.lanes.len(), r.window.unwrap().messages), (50, lanes, 50));
    }
}

/// Whichever queue pairs take the last messages, and however seldom they are signalled.
#[test]
fn every_message_is_confirmed() {
    for spread in [Spread::Ordered, Spread::RoundRobin, Spread::LeastBytes] {
        for messages in 1..40 {
            for (qps, flows) in [(1, 1), (2, 3), (3, 2), (4, 4)] {
                let mut lane = traffic(qps, spread, messages);
                lane.flows = flows;
                lane.arrivals = Arrivals::Every(Span::from_us(5));
                (lane.lane.sender.batch.max_wrs, lane.lane.sender.window.signal_every) = (4, 5);
                let (r, _, end) = play(config(vec![lane]));
                end.unwrap();
                let got = (r.failure, r.messages, r.unconfirmed, r.latencies.len() as u64);
                assert_eq!(got, (None, messages, 0, messages), "{spread:?} {qps} {flows}");
            }
        }
    }
}

#[test]
fn a_lane_that_has_handed_over_all_does_not_wait_for_another() {
    let batch = |messages| {
        let mut fast = traffic(1, Spread::Ordered, messages);
        fast.lane.sender.batch.max_wrs = 4;
        let slow = LaneTraffic {
            name: "slow".to_owned(),
            arrivals: Arrivals::Every(Span::from_ms(1)),
            ..traffic(1, Spread::Ordered, 20)
        };
        let (r, _, end) = play(config(vec![slow, fast]));
        end.unwrap();
        *r.lanes[1].1.latencies.iter().max().expect("messages")
    };
    assert!(batch(101) < Span::from_us(100), "the last of 101 waits for nobody");
    assert!(batch(100) < Span::from_us(100));
}

#[test]
fn a_pace_sets_the_time_that_a_run_takes() {
    // A byte per nanosecond, and two messages at once: the other 48 take 48 x 4.096 us.
    let mut lane = traffic(2, Spread::RoundRobin, 50);
    lane.lane.pace = Some(PaceConfig::of(BitRate::gbps(8), Bytes(8192)));
    let (r, _, end) = play(config(vec![lane.clone()]));
    end.unwrap();
    let w = r.window.unwrap();
    let (least, took) = (Span::from_ns(48 * 4096), w.to.since(w.from));
    assert!(took >= least && took <= least + Span::from_us(1), "{took}");
    // One that cannot be kept is named.
    lane.lane.pace = Some(PaceConfig::of(BitRate::gbps(8), Bytes(0)));
    let e = play(config(vec![lane])).0.failure.unwrap();
    let error = PaceError::Burst { got: Bytes(0) };
    assert_eq!(e, doorbell_core::policy::lanes::LanesError::Pace { lane: 0, error }.into());
}

#[test]
fn the_link_has_the_queue_pairs_of_the_plan() {
    let mut lanes = vec![traffic(1, Spread::Ordered, 1), traffic(3, Spread::Ordered, 1)];
    lanes[0].lane.sl = ServiceLevel::new(5).unwrap();
    let link = LanedConfig::link_for(LinkConfig::to(1), &lanes);
    let labels = FlowLabels::From { first: 9 };
    let configs: Vec<_> = lanes.iter().map(|l| l.lane).collect();
    let set = LanesConfig { lanes: &configs, peers: 1, cores: 1, labels };
    assert_eq!(set.qps(0).count() as u32, link.qps);
    for (i, qp) in (0..).zip(set.qps(0)) {
        assert_eq!((link.levels.of(i), labels.of(i)), (Some(qp.sl), qp.flow_label));
    }
    let alone = LanedConfig::link_for(LinkConfig::to(1), &lanes[..1]);
    assert_eq!((alone.qps, alone.attr.path.sl.code(), alone.levels.of(0)), (1, 5, None));
}

#[test]
fn what_cannot_run_is_named() {
    let refused = |c: LanedConfig| match play(c).0.failure {
        Some(Failure::Config(text)) => text,
        other => panic!("{other:?}"),
    };
    let one = || traffic(1, Spread::Ordered, 1);
    assert!(refused(config(vec![])).contains("1 to 8 lanes"));
    let mut nine = config(vec![one()]);
    nine.lanes = vec![one(); 9];
    assert!(refused(nine).contains("1 to 8 lanes"));
    assert_eq!(play(config(vec![one(); 8])).0.messages, 8);
    for none in [LaneTraffic { messages: 0, ..one() }, LaneTraffic { flows: 0, ..one() }] {
        assert!(refused(config(vec![none])).contains("at least one message"));
    }
    let arrivals = Arrivals::Every(Span::ZERO);
    assert!(refused(config(vec![LaneTraffic { arrivals, ..one() }])).contains("no interval"));
    let mut ud = config(vec![one()]);
    ud.link.ty = QpType::Ud;
    assert!(refused(ud).contains("connected queue pairs"));
    let mut short = config(vec![one()]);
    short.local.cq_depth = 15;
    let e = play(short).0.failure.unwrap();
    assert!(e.to_string().contains("create it with 1 more"), "{e}");
}
