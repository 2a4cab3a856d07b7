//! Hosts that pause, and switches that go down.

use doorbell_core::units::{BitRate, Ratio, Span, Time};

use super::harness::{Flow, Net, star};
use crate::fabric::*;
use crate::wire::{HostId, PortId};

const WIRE: u32 = 1_064;
const PORT: PortId = PortId(0);

fn at(us: u64) -> Time {
    Time::ZERO + Span::from_us(us)
}

fn network(buffering: Buffering) -> FabricConfig {
    let cable = Link::new(BitRate::gbps(100), Span::from_ns(1_000));
    let mut c = star(3, cable, Forwarding::CutThrough, buffering);
    c.max_packet_bytes = WIRE;
    c.classes = Classes::one(ClassConfig {
        lossless: matches!(buffering, Buffering::Shared(_)),
        ..ClassConfig::default()
    });
    c
}

fn shared(quanta: u16) -> Buffering {
    let sharing = Sharing::Dynamic { alpha: Ratio { num: 1, den: 4 } };
    let total_bytes = 1_500_000;
    Buffering::Shared(SharedConfig { total_bytes, sharing, quanta, ..SharedConfig::default() })
}

fn run_to(net: &mut Net, us: u64) {
    while net.engine.peek_time().is_some_and(|t| t <= at(us)) {
        net.step();
    }
}

/// A host that pauses its link for 500 us: nothing arrives meanwhile save what was on its way, the
/// pause is renewed, spreads to the sender, and nothing is lost.
#[test]
fn a_host_pauses_its_link_until_no_reason_is_left() {
    let mut net = Net::new(&network(shared(9_770)), 1, &[Flow::new(1, 0, 10_000, WIRE)]);
    run_to(&mut net, 100);
    net.pause(0, PauseReason::Storm, 1);
    net.pause(0, PauseReason::Full, 1);
    run_to(&mut net, 300);
    // One of two reasons is gone: it still pauses.
    net.pause(0, PauseReason::Full, 0);
    assert!(!net.fabric.hosts()[0].is_pausing(PORT, PauseReason::Full));
    assert!(net.fabric.hosts()[0].is_pausing(PORT, PauseReason::Storm));
    run_to(&mut net, 600);
    net.pause(0, PauseReason::Storm, 0);
    net.run();
    let own = net.fabric.hosts()[0].egress(PORT).pauses(net.engine.now(), 0);
    // 50 us of pause, renewed every 25.
    assert_eq!((own.xoff_sent, own.xon_sent), (20, 1), "one, and 19 that renew it");
    let sender = net.fabric.hosts()[1].egress(PORT).pauses(net.engine.now(), 0);
    assert!(sender.paused > Span::from_us(400), "{:?}", sender.paused);
    let gap = net.arrivals(0);
    let gap = gap.windows(2).map(|w| w[1].since(w[0])).max().expect("arrivals");
    // It is let go at the last event before 600 us, a renewal up to 25 us earlier.
    assert!(gap > Span::from_us(475) && gap < Span::from_us(510), "{gap}");
    assert_eq!(net.fabric.dropped(), Drops::default());
}

/// Pauses of two classes at once are one time in which the port was paused.
#[test]
fn issue_005_a_port_is_paused_once_however_many_classes_are() {
    let mut c = network(shared(9_770));
    let class = ClassConfig { lossless: true, ..ClassConfig::default() };
    c.classes = Classes { each: vec![class, class], ..Classes::default() };
    let mut net = Net::new(&c, 1, &[Flow::new(1, 0, 10_000, WIRE)]);
    run_to(&mut net, 100);
    net.pause(0, PauseReason::Storm, 0b11);
    run_to(&mut net, 300);
    net.pause(0, PauseReason::Storm, 0b01);
    run_to(&mut net, 400);
    net.pause(0, PauseReason::Storm, 0);
    net.run();
    let now = net.engine.now();
    let port = net.fabric.switches()[0].egress(PORT);
    let [first, second] = [0, 1].map(|class| port.pauses(now, class).paused);
    assert!(second > Span::from_us(150) && first > second, "{first} {second}");
    assert_eq!(port.paused(now), first, "the second lies within the first");
}

/// A host that dies renews its pause no more: it lapses.
#[test]
fn the_pause_of_a_silent_host_lapses() {
    let mut net = Net::new(&network(shared(9_770)), 1, &[Flow::new(1, 0, 10_000, WIRE)]);
    run_to(&mut net, 100);
    net.pause(0, PauseReason::Storm, 1);
    run_to(&mut net, 110);
    net.fabric.host_mut(HostId(0)).silence();
    net.run();
    let port = net.fabric.switches()[0].egress(PORT).pauses(net.engine.now(), 0);
    assert_eq!((port.xoff_received, port.xon_received), (1, 0));
    assert!(port.paused > Span::from_us(49) && port.paused < Span::from_us(51));
}

#[test]
fn a_class_that_is_not_lossless_is_never_paused_by_a_host() {
    let mut net = Net::new(&network(shared(9_770)), 1, &[]);
    assert_eq!(net.fabric.hosts()[0].may_pause(PORT), 1);
    net.pause(0, PauseReason::Storm, 0b10);
    assert!(!net.fabric.hosts()[0].is_pausing(PORT, PauseReason::Storm));
    let tail = Buffering::TailDrop { port_bytes: 1 << 20 };
    let mut net = Net::new(&network(tail), 1, &[]);
    assert_eq!(net.fabric.hosts()[0].may_pause(PORT), 0);
    net.pause(0, PauseReason::Storm, 1);
    assert!(!net.fabric.hosts()[0].is_pausing(PORT, PauseReason::Storm));
}

/// Of each kind of buffer: what waits is lost by its own cause, the accounts hold, and the way is
/// as good as before when the switch is back.
#[test]
fn a_switch_that_goes_down_loses_what_it_holds_and_nothing_else() {
    let all = [
        shared(u16::MAX),
        Buffering::TailDrop { port_bytes: 1 << 24 },
        Buffering::Lossless { port_bytes: 200_000 },
        Buffering::Credits { blocks: 2_048 },
    ];
    for buffering in all {
        let late = Flow { start: at(1_000), ..Flow::new(1, 0, 1_000, WIRE) };
        let flows = [Flow::new(1, 0, 2_000, WIRE), Flow::new(2, 0, 2_000, WIRE), late];
        let mut c = network(buffering);
        if matches!(buffering, Buffering::Credits { .. }) {
            let receive = ReceiveBuffer::Credits { blocks: 2_048 };
            c.hosts.iter_mut().for_each(|h| h.receive = receive);
        }
        let mut net = Net::new(&c, 1, &flows);
        run_to(&mut net, 100);
        let waits: usize = net.fabric.switches()[0].egress(PORT).waiting_packets();
        assert!(waits > 100, "{buffering:?}: {waits}");
        net.switch_down(0);
        assert!(net.fabric.switches()[0].is_down());
        net.fabric.balance().expect("nothing vanishes");
        let lost = net.fabric.dropped();
        assert_eq!(lost.total(), lost.of(DropCause::SwitchReboot));
        assert_eq!(lost.total().packets, waits as u64);
        // What comes now is the caller's to lose; here it comes to a switch that is up again.
        net.switch_up(0);
        assert!(!net.fabric.switches()[0].is_down());
        net.run();
        assert_eq!(net.arrivals(2).len(), 1_000, "{buffering:?}: the next flow loses nothing");
        if let Some(buffer) = net.fabric.switches()[0].buffer() {
            assert_eq!(buffer.used(), 0);
        }
        for h in 0..3 {
            assert!(!net.fabric.hosts()[h].egress(PORT).is_paused(0));
        }
    }
}

/// Two faults keep a switch down; it is up when both are over.
#[test]
fn the_last_of_several_faults_brings_it_up() {
    let mut net = Net::new(&network(shared(u16::MAX)), 1, &[]);
    net.switch_down(0);
    net.switch_down(0);
    net.switch_up(0);
    assert!(net.fabric.switches()[0].is_down());
    net.switch_up(0);
    assert!(!net.fabric.switches()[0].is_down());
}
