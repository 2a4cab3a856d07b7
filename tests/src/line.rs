//! Requester and responder on a line: a port with one packet after the other, a delay, and losses
//! by chance in both directions. The smallest machine on which a closed form of loss recovery can
//! be exact: no NIC, no PCIe, no buffer, WRITEs of one packet each, of which each asks for its ACK.

use std::collections::VecDeque;

use doorbell_core::units::{Ratio, Span, Time};
use doorbell_core::verbs::{
    AckTimeout, Mtu, Psn, QKey, QpType, Qpn, RetryCnt, Rkey, SendFlags, WrOpcode,
};
use doorbell_sim::engine::SimRng;
use doorbell_sim::rc::{
    Accept, HwCounters, Interval, PacketDesc, Received, Recovery, Requester, RequesterConfig,
    Responder, ResponderConfig, RetrySeven, Rules, TimeoutMode,
};

/// A run to be.
#[derive(Clone, Debug)]
pub struct Line {
    /// What goes out again.
    pub recovery: Recovery,
    /// Packets in the loop: from the beginning of a packet that is lost to the beginning of its
    /// retransmission, with a NAK at once. At least 3.
    pub loop_packets: u32,
    /// Time of a packet at the port.
    pub packet: Span,
    /// What the ack timer waits.
    pub timeout: Span,
    /// From a sequence NAK to its repetition; `None`: one per gap.
    pub nak_repeat: Option<Span>,
    /// Chance that a request is lost.
    pub loss: Ratio,
    /// Chance that a response is lost.
    pub nak_loss: Ratio,
    /// Packets to deliver.
    pub packets: u64,
    /// Seed of the losses.
    pub seed: u64,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Ran {
    /// From the first packet to the last ACK.
    pub duration: Span,
    /// Requests that left.
    pub sent: u64,
    /// Counters of the requester.
    pub counters: HwCounters,
}

impl Ran {
    /// Mean time of a delivered packet, in packets' times at the port.
    pub fn per_packet(&self, line: &Line) -> f64 {
        self.duration.as_ps() as f64 / (line.packets * line.packet.as_ps()) as f64
    }
}

#[derive(Debug)]
struct Fixed(Span);

impl doorbell_sim::rc::AckTimeoutMode for Fixed {
    fn interval(&self, _: AckTimeout, _: u32) -> Option<Interval> {
        Some(Interval::exactly(self.0))
    }
}

struct Machine<'a> {
    line: &'a Line,
    requester: Requester,
    responder: Responder,
    now: Time,
    port: Time,
    forth: VecDeque<(Time, PacketDesc)>,
    back: VecDeque<(Time, PacketDesc)>,
    held: Vec<PacketDesc>,
    losses: [SimRng; 2],
    pushed: u64,
    placed: u64,
    done: u64,
    sent: u64,
}

impl Line {
    /// One way, without the packet itself: its loop is a packet's time, twice this, and a NAK that
    /// comes just behind the beginning of another packet.
    fn delay(&self) -> Span {
        Span::from_ps(self.packet.as_ps() * u64::from(self.loop_packets - 2) / 2 - 1)
    }

    fn configs(&self) -> (RequesterConfig, ResponderConfig) {
        let (a, b, psn, mtu) = (Qpn::new(17), Qpn::new(18), Psn::new(0xFF_FF00), Mtu::B256);
        let rules = Rules { retry_seven: RetrySeven::Infinite, ..Rules::DEFAULT };
        let requester = RequesterConfig {
            // Enough for the loop of a retransmission behind the loop of its NAK.
            max_outstanding_packets: 8 * self.loop_packets,
            timeout_mode: TimeoutMode::Custom(std::sync::Arc::new(Fixed(self.timeout))),
            retry_cnt: RetryCnt::new(7).expect("in range"),
            recovery: self.recovery.clone(),
            rules,
            ..RequesterConfig::of(QpType::Rc, a, b, psn, mtu)
        };
        let responder = ResponderConfig {
            hold: self.recovery.hold(),
            nak_repeat: self.nak_repeat,
            rules,
            ..ResponderConfig::of(QpType::Rc, a, psn, mtu)
        };
        (requester, responder)
    }

    /// Delivers every packet, once and in order.
    ///
    /// # Panics
    /// When one is not, or the QP fails, or nothing happens any more.
    pub fn run(&self) -> Ran {
        assert!(self.loop_packets >= 3, "a loop is a packet, its NAK and the next");
        let (requester, responder) = self.configs();
        let rng = |what| SimRng::stream(self.seed, "line", what);
        let mut machine = Machine {
            line: self,
            requester: Requester::new(&requester),
            responder: Responder::new(&responder),
            now: Time::ZERO,
            port: Time::ZERO,
            forth: VecDeque::new(),
            back: VecDeque::new(),
            held: Vec::new(),
            losses: [rng("requests"), rng("responses")],
            pushed: 0,
            placed: 0,
            done: 0,
            sent: 0,
        };
        while machine.done < self.packets {
            machine.step();
        }
        assert_eq!(machine.placed, self.packets);
        Ran {
            duration: machine.now.since(Time::ZERO),
            sent: machine.sent,
            counters: *machine.requester.counters(),
        }
    }
}

impl Machine<'_> {
    fn step(&mut self) {
        // Work requests that nothing can be sent of yet would only cost memory.
        let ahead = 4 + u64::from(self.requester.outstanding());
        while self.pushed < self.line.packets && self.pushed < self.done + ahead {
            self.requester.push(write(self.pushed as u32));
            self.pushed += 1;
        }
        if self.port <= self.now
            && let Some(desc) = self.requester.poll_transmit()
        {
            self.transmit(desc);
        }
        let may_send = self.requester.peek_transmit().then_some(self.port);
        let front = |q: &VecDeque<(Time, PacketDesc)>| q.front().map(|(at, _)| *at);
        let times = [
            may_send,
            front(&self.forth),
            front(&self.back),
            self.requester.next_deadline(),
            self.responder.next_deadline(),
        ];
        self.now = times.into_iter().flatten().min().expect("something is awaited");
        if self.requester.next_deadline().is_some_and(|due| due <= self.now) {
            let told = self.requester.on_timer(self.now);
            assert!(!matches!(told, Received::Error { .. }), "{told:?}");
        }
        while let Some((_, desc)) = self.forth.pop_front_if(|(at, _)| *at <= self.now) {
            self.request(&desc);
        }
        while let Some((_, desc)) = self.back.pop_front_if(|(at, _)| *at <= self.now) {
            let told = self.requester.on_packet(self.now, &desc);
            assert!(!matches!(told, Received::Error { .. }), "{told:?}");
        }
        while self.requester.poll_completion().is_some() {
            self.done += 1;
        }
    }

    fn transmit(&mut self, desc: PacketDesc) {
        self.sent += 1;
        self.port = self.now + self.line.packet;
        self.requester.on_departure(&desc, self.port);
        if !self.losses[0].chance(self.line.loss) {
            self.forth.push_back((self.port + self.line.delay(), desc));
        }
    }

    fn request(&mut self, desc: &PacketDesc) {
        self.take(desc);
        while let Some(psn) = self.responder.take_held() {
            let i = self.held.iter().position(|d| d.psn == psn).expect("it was kept");
            let desc = self.held.swap_remove(i);
            self.take(&desc);
        }
        while let Some(answer) = self.responder.poll_transmit(self.now) {
            if !self.losses[1].chance(self.line.nak_loss) {
                self.back.push_back((self.now + self.line.delay(), answer));
            }
        }
    }

    fn take(&mut self, desc: &PacketDesc) {
        match self.responder.on_packet(self.now, desc, true) {
            Accept::Place { .. } => {
                assert_eq!(u64::from(desc.wqe), self.placed, "once and in order");
                self.placed += 1;
            }
            Accept::Hold => self.held.push(*desc),
            Accept::Gap { .. } | Accept::Duplicate => {}
            other => panic!("{other:?}"),
        }
    }
}

fn write(wqe: u32) -> doorbell_sim::rc::SendJob {
    doorbell_sim::rc::SendJob {
        wqe,
        op: WrOpcode::RdmaWrite,
        len: 256,
        remote_va: 0x1000,
        rkey: Rkey(1),
        imm_or_inv: 0,
        swap_add: 0,
        compare: 0,
        flags: SendFlags::SIGNALED,
        dest: Qpn::new(18),
        qkey: QKey(0),
    }
}
