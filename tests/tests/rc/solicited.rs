//! Waiting for solicited completions only (5.3): a receive whose message had SE, or any error.

use doorbell::workloads::connect::{Client, LinkConfig, LocalConfig};
use doorbell_core::ideal::{Ideal, run};
use doorbell_core::transport::*;
use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::SendFlags;
use doorbell_sim::wire::HostId;
use doorbell_sim::world::{RunEnd, World};
use doorbell_tests::machine;

const GAP: Span = Span::from_us(20);
const SE: SendFlags = SendFlags::SOLICITED;
/// Flags and bytes of the messages; the last one is longer than its receive.
const MESSAGES: [(SendFlags, u32); 5] = [
    (SendFlags::empty(), 8),
    (SendFlags::empty(), 8),
    (SE, 8),
    (SendFlags::empty(), 8),
    (SendFlags::empty(), 65),
];

/// Rank 0 sends, one message every 20 us; rank 1 waits, for solicited completions or for any.
struct Peer {
    client: Client,
    solicited_only: bool,
    sent: usize,
    posted: bool,
    /// Completions that each look found, where it found any.
    batches: Vec<usize>,
}

impl Peer {
    fn new(rank: u32, solicited_only: bool) -> Self {
        let local = LocalConfig { region_bytes: 4096, cq_depth: 64, ..LocalConfig::default() };
        let mut link = LinkConfig::to(1 - rank);
        link.size = QpSize { max_send_wr: 8, max_recv_wr: 8, max_send_sge: 1, max_inline: 16 };
        let client = Client::new(local, link);
        Self { client, solicited_only, sent: 0, posted: false, batches: Vec::new() }
    }

    fn send<T: Control>(&mut self, t: &mut T) -> Next {
        let (qp, mr) = (self.client.lanes()[0].qp, self.client.local().mr);
        if self.posted
            && let Some((flags, len)) = MESSAGES.get(self.sent)
        {
            let list = [mr.sge(0, *len).unwrap()];
            let (op, data) = (SendOp::Send, Data::Sge(&list));
            let flags = *flags | SendFlags::SIGNALED;
            t.stage(qp, &SendWr { wr_id: 0, op, data, flags, dest: None }).unwrap();
            t.ring(qp, Ring::Auto).unwrap();
            self.sent += 1;
        }
        self.posted = true;
        if self.sent == MESSAGES.len() {
            return Next::Done;
        }
        Next::Wait { on: WaitSet::EMPTY, until: Some(t.now() + GAP) }
    }

    fn listen<T: Control>(&mut self, t: &mut T) -> Next {
        let (qp, local) = (self.client.lanes()[0].qp, *self.client.local());
        if !self.posted {
            let receive = RecvWr { wr_id: 0, sge: local.mr.sge(0, 64).unwrap() };
            t.post_recv(RecvQueue::Qp(qp), &[receive; MESSAGES.len()]).unwrap();
            self.posted = true;
        }
        let mut some = Completions::with_capacity(16);
        t.poll_cq(local.recv_cq, &mut some).unwrap();
        let found = some.as_slice().len();
        self.batches.extend((found > 0).then_some(found));
        if self.batches.iter().sum::<usize>() == MESSAGES.len() {
            return Next::Done;
        }
        let any = WaitSet::cq(local.recv_cq);
        let on = if self.solicited_only { WaitSet::solicited(local.recv_cq) } else { any };
        Next::Wait { on, until: None }
    }
}

impl Program for Peer {
    fn step<T: Control>(&mut self, t: &mut T) -> Next {
        if let Some(next) = self.client.up(t, |_, _, _| Ok(())).unwrap() {
            return next;
        }
        if t.rank() == 0 { self.send(t) } else { self.listen(t) }
    }
}

#[test]
fn unsolicited_completions_wait_for_a_solicited_one_or_an_error() {
    for (solicited_only, batches) in [(true, vec![3, 2]), (false, vec![1; 5])] {
        let mut world = World::new(&machine::world_of(machine::quiet_host(), 2, 1)).unwrap();
        for rank in 0..2 {
            let program = Peer::new(rank, solicited_only);
            world.add_program(HostId(rank), machine::core(0), Time::ZERO, program);
        }
        assert_eq!(world.run(Time::ZERO + Span::from_ms(5)), RunEnd::Done);
        assert_eq!(world.program::<Peer>(1).unwrap().batches, batches);

        let mut ideal = Ideal::new(2);
        let mut peers = [0, 1].map(|rank| Peer::new(rank, solicited_only));
        let [a, b] = &mut peers;
        run(&mut ideal, &mut [a, b]).unwrap();
        assert_eq!(peers[1].batches, batches, "ideal");
    }
}
