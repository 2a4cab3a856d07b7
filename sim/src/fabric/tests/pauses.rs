//! Pauses on random networks with losses, copies, storms and reboots in between.

use std::collections::BTreeMap;

use doorbell_core::units::{Span, Time};
use proptest::prelude::*;

use super::harness::{Flow, Meddle, Net};
use super::pfc::networks;
use crate::fabric::*;
use crate::wire::PortId;

/// The lossless class of `networks`.
const CLASS: u8 = 1;

/// Frames sent, and whether the sender is paused, of each input of each switch.
type Stand = BTreeMap<(usize, u16), (u64, u64, bool)>;

fn stand(net: &Net) -> Stand {
    let mut all = Stand::new();
    for (i, s) in net.fabric.switches().iter().enumerate() {
        for p in 0..s.ports() as u16 {
            let c = s.egress(PortId(p)).pauses(net.engine.now(), CLASS);
            all.insert((i, p), (c.xoff_sent, c.xon_sent, s.is_pausing(PortId(p), CLASS)));
        }
    }
    all
}

/// What one event may do to an input: pause and resume alternate, and who is paused holds
/// something that will leave.
fn check(net: &Net, before: &Stand, after: &Stand) -> Result<(), TestCaseError> {
    for (key, (xoff, xon, paused)) in after {
        let (xoff_before, xon_before, was) = before[key];
        let (off, on) = (xoff - xoff_before, xon - xon_before);
        prop_assert!(off <= 1 && on <= 1, "{key:?}: {off} pauses and {on} resumes at once");
        let expected = i64::from(was) + off as i64 - on as i64;
        prop_assert_eq!(expected, i64::from(*paused), "{:?}: they alternate", key);
        let buffer = net.fabric.switches()[key.0].buffer().expect("shared");
        let holds = buffer.input((usize::from(key.1), CLASS)) != (0, 0);
        prop_assert!(!*paused || holds, "{:?}: a pause without a reason", key);
    }
    Ok(())
}

/// Something that a fault does before an event.
#[derive(Copy, Clone, Debug)]
enum Blow {
    Storm(u32, bool),
    Down(usize),
    Up(usize),
}

fn blows() -> impl Strategy<Value = Vec<(usize, Blow)>> {
    let blow = prop_oneof![
        (0u32..5, any::<bool>()).prop_map(|(host, on)| Blow::Storm(host, on)),
        (0usize..3).prop_map(Blow::Down),
        (0usize..3).prop_map(Blow::Up),
    ];
    prop::collection::vec((0usize..4_000, blow), 0..6)
}

fn strike(net: &mut Net, blow: Blow) {
    let there = |switch: usize| switch < net.fabric.switches().len();
    match blow {
        Blow::Storm(host, on) => {
            net.pause(host, PauseReason::Storm, if on { u8::MAX } else { 0 });
        }
        Blow::Down(switch) if there(switch) => net.switch_down(switch),
        Blow::Up(switch) if there(switch) && net.fabric.switches()[switch].is_down() => {
            net.switch_up(switch);
        }
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn pauses_alternate_and_have_a_reason_whatever_goes_wrong(
        c in networks(), seed in any::<u64>(), blows in blows(), every in 3u64..50,
        flows in prop::collection::vec(
            (0u32..5, 1u32..5, 0u64..20_000, 1u32..200, 64u32..4_224, 0u8..2), 1..6,
        ),
    ) {
        let mut c = c;
        for s in &mut c.switches {
            // Nothing is renewed, so every frame is a change.
            let Buffering::Shared(shared) = &mut s.buffering else { unreachable!("networks") };
            shared.lapse = true;
        }
        let flows: Vec<_> = flows
            .into_iter()
            .map(|(src, step, ns, packets, bytes, sl)| Flow {
                start: Time::ZERO + Span::from_ns(ns),
                sl,
                ..Flow::new(src, (src + step) % 5, packets, bytes)
            })
            .collect();
        let mut net = Net::new(&c, seed, &flows);
        let mut arrivals = 0u64;
        let mut meddle = |_| {
            arrivals += 1;
            match arrivals % every {
                0 => Meddle::Lose(DropCause::Fault),
                1 => Meddle::Copy,
                _ => Meddle::Pass,
            }
        };
        for step in 0.. {
            for (_, blow) in blows.iter().filter(|(at, _)| *at == step) {
                strike(&mut net, *blow);
            }
            let before = stand(&net);
            if !net.step_with(&mut meddle) {
                break;
            }
            check(&net, &before, &stand(&net))?;
        }
        for host in 0..5 {
            net.pause(host, PauseReason::Storm, 0);
        }
        for switch in 0..c.switches.len() {
            while net.fabric.switches()[switch].is_down() {
                net.switch_up(switch);
            }
        }
        net.run();
        for (key, (xoff, xon, paused)) in stand(&net) {
            prop_assert!(!paused && xon <= xoff, "{:?}", key);
        }
        for (node, port) in net.fabric.ports() {
            let egress = net.fabric.egress_of(node, port);
            let whole = egress.counters(net.engine.now());
            let each = || (0..=CLASS).filter_map(|class| egress.class_counters(class));
            let sum = |of: fn(ClassCounters) -> Tally| {
                each().map(of).fold(Tally::default(), Tally::plus)
            };
            prop_assert_eq!(sum(|c| c.sent), whole.sent, "{} {}", node, port);
            prop_assert_eq!(sum(|c| c.dropped), whole.dropped.total(), "{} {}", node, port);
        }
    }
}
