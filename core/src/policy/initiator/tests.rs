use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::noop::{Fate, NoOp};
use crate::policy::{CqBudget, SenderConfig, WindowConfig};
use crate::transport::{
    Completions, FenceScope, Initiator, Mr, PollError, QpCaps, QpId, Remote, RingCause, Transport,
};
use crate::units::{Span, Time};
use crate::verbs::{SendFlags, WcStatus};

const BLOCK: Initiator = Initiator::GpuBlock { gpu: 0, block: 0 };
const CORE: Initiator = Initiator::Cpu { core: 0, numa: 0 };
const PAYLOAD: u64 = 4096;

fn write(n: u64) -> Command {
    let (op, flags) = (CommandOp::Write, SendFlags::empty());
    Command { op, flags, offset: n % 64 * 64, bytes: 64, remote: n % 64 * 64 }
}

#[test]
fn who_posts_is_decided_by_the_device_and_said() {
    let gpu = Poster::Gpu(Leader::Warp);
    let config = |by, fallback| PostConfig { by, fallback };
    for fallback in [Fallback::Refuse, Fallback::CpuProxy, Fallback::Cpu] {
        for by in [gpu, Poster::Cpu, Poster::Proxy] {
            let decision = config(by, fallback).decide(true).unwrap();
            assert_eq!((decision.by, decision.fell_back()), (by, false));
        }
        for by in [Poster::Cpu, Poster::Proxy] {
            assert_eq!(config(by, fallback).decide(false).unwrap().by, by, "no GPU rings");
        }
    }
    let refused = config(gpu, Fallback::Refuse).decide(false).unwrap_err();
    assert_eq!(refused.capability, "doorbell of a GPU");
    let proxy = config(gpu, Fallback::CpuProxy).decide(false).unwrap();
    assert_eq!((proxy.by, proxy.fell_back()), (Poster::Proxy, true));
    let text = "a CPU core that the GPU signals posts in the place of the GPU, a leader per warp";
    assert_eq!(std::format!("{proxy}"), text);
    assert_eq!(config(gpu, Fallback::Cpu).decide(false).unwrap().by, Poster::Cpu);
}

#[test]
fn a_leader_rings_for_its_threads() {
    let groups = |leader: Leader| [0, 1, 31, 32, 33, 256].map(|n| leader.group(n));
    assert_eq!(groups(Leader::Thread), [1; 6]);
    assert_eq!(groups(Leader::Warp), [1, 1, 31, 32, 32, 32]);
    assert_eq!(groups(Leader::Block), [1, 1, 31, 32, 33, 256]);
}

/// A proxy with clients that write, all on a back end that does nothing.
struct Bed {
    t: NoOp,
    qp: QpId,
    proxy: Proxy,
    writers: Vec<CommandWriter>,
    polled: Completions,
}

impl Bed {
    fn new(clients: u32, slots: u32, depth: u32, batch: u32, caps: QpCaps) -> Self {
        let mut t = NoOp::new(64);
        t.hold_completions();
        t.keep_log();
        t.keep_memory(1 << 16);
        let qp = t.add_qp(caps, None);
        let mr = NoOp::mr(0x1_0000, 1 << 16);
        let stride = CommandQueue::bytes(slots);
        let queue = |c: u32| CommandQueue::new(&mr, u64::from(c) * stride, slots).unwrap();
        let payload = Mr { len: PAYLOAD, ..mr };
        let (remote, remote_bytes) = (Remote::default(), PAYLOAD);
        let clients = (0..clients).map(queue);
        let client = |queue| ProxyClient { queue, payload, remote, remote_bytes, dest: None };
        let all: Vec<_> = clients.map(client).collect();
        let mut config = ProxyConfig::default();
        config.sender.batch.max_wrs = batch;
        config.sender.window.max_wrs = depth;
        let proxy = Proxy::new(config, &[(qp, caps)], &all, &mut CqBudget::new(64)).unwrap();
        let writers = all.iter().map(|c| CommandWriter::new(c.queue, BLOCK)).collect();
        Self { t, qp, proxy, writers, polled: Completions::with_capacity(64) }
    }

    fn small() -> Self {
        Self::new(1, 8, 16, 4, NoOp::caps(16))
    }

    /// Writes `n` commands and announces them; how many were taken.
    fn write(&mut self, writer: usize, n: u64) -> u64 {
        let (w, mut taken) = (&mut self.writers[writer], 0);
        for _ in 0..n {
            match w.write(&mut self.t, &write(w.done() + w.open())) {
                Ok(_) => taken += 1,
                Err(CommandError::Full) => break,
                Err(e) => panic!("{e}"),
            }
        }
        w.announce(&mut self.t).unwrap();
        taken
    }

    /// Polls, and tells the clients.
    fn poll(&mut self) -> Result<(), PollError> {
        self.polled.clear();
        self.t.poll_cq(NoOp::CQ, &mut self.polled)?;
        for c in self.polled.as_slice() {
            self.proxy.completion(c, Time::ZERO).expect("the queue pair of the proxy");
        }
        self.proxy.tell(&mut self.t).unwrap();
        Ok(())
    }

    /// Everything that was rung completes, and is told.
    fn settle(&mut self) {
        let n = self.t.outstanding(self.qp);
        self.t.complete(self.qp, n);
        self.poll().unwrap();
    }

    /// Client and number of each command that was rung, in that order.
    fn rung(&self) -> Vec<(u64, u64)> {
        let rung = self.t.log().iter().filter(|(_, fate)| *fate == Fate::Rung);
        rung.map(|(id, _)| (id >> 40, id & 0xFF_FFFF_FFFF)).collect()
    }
}

#[test]
fn commands_go_by_one_ring_and_one_completion() {
    let mut bed = Bed::small();
    assert_eq!(bed.write(0, 3), 3);
    assert_eq!(bed.proxy.serve(&mut bed.t), Ok(false));
    assert_eq!(bed.rung(), [(0, 0), (0, 1), (0, 2)]);
    assert_eq!((bed.proxy.rung().rings, bed.t.stats().rings), (1, 1));
    assert_eq!(bed.writers[0].look(&mut bed.t), Ok(0), "none is done");
    bed.settle();
    assert_eq!(bed.polled.as_slice().len(), 1);
    assert_eq!((bed.writers[0].look(&mut bed.t), bed.writers[0].room()), (Ok(3), 8));
    // A look takes a batch, and says that there is more.
    bed.write(0, 6);
    assert_eq!(bed.proxy.serve(&mut bed.t), Ok(true));
    assert_eq!(bed.proxy.serve(&mut bed.t), Ok(false));
    let stats = bed.proxy.stats();
    assert_eq!((stats.looks, stats.barren, stats.commands, stats.most), (3, 0, 9, 4));
}

#[test]
fn a_full_queue_announces_what_it_holds_and_holds_back() {
    let mut bed = Bed::small();
    let w = &mut bed.writers[0];
    for n in 0..8 {
        assert_eq!(w.write(&mut bed.t, &write(n)), Ok(n));
    }
    assert_eq!((w.room(), w.stats().announcements), (0, 0));
    assert_eq!(w.write(&mut bed.t, &write(8)), Err(CommandError::Full));
    assert_eq!((w.stats().announcements, w.stats().commands, w.stats().full), (1, 8, 1));
    while bed.proxy.serve(&mut bed.t).unwrap() {}
    bed.settle();
    assert_eq!(bed.writers[0].look(&mut bed.t), Ok(8));
    assert_eq!(bed.write(0, 1), 1, "the slot of command 0 again");
}

#[test]
fn a_gpu_fences_once_for_an_announcement_and_a_core_not_at_all() {
    let mut bed = Bed::small();
    bed.write(0, 5);
    assert_eq!(bed.t.stats().fences, 1);
    assert_eq!(bed.writers[0].announce(&mut bed.t), Ok(0));
    assert_eq!(bed.t.stats().fences, 1, "nothing new");
    let queue = *bed.writers[0].queue();
    let mut core = CommandWriter::new(queue, CORE);
    core.write(&mut bed.t, &write(0)).unwrap();
    core.announce(&mut bed.t).unwrap();
    assert_eq!(bed.t.stats().fences, 1);
    let mut asked = CommandWriter::new(queue, CORE).with_fence(Some(FenceScope::Device));
    asked.write(&mut bed.t, &write(0)).unwrap();
    asked.announce(&mut bed.t).unwrap();
    assert_eq!(bed.t.stats().fences, 2);
}

#[test]
fn a_command_outside_of_its_memory_ends_its_client_behind_those_before_it() {
    let mut bed = Bed::small();
    bed.write(0, 2);
    let w = &mut bed.writers[0];
    let outside = Command { offset: PAYLOAD - 63, ..write(0) };
    w.write(&mut bed.t, &outside).unwrap();
    w.write(&mut bed.t, &write(3)).unwrap();
    w.announce(&mut bed.t).unwrap();
    assert_eq!(bed.proxy.serve(&mut bed.t), Ok(false));
    assert_eq!(bed.rung(), [(0, 0), (0, 1)], "the one behind it neither");
    bed.proxy.tell(&mut bed.t).unwrap();
    assert_eq!(bed.writers[0].look(&mut bed.t), Ok(0), "two are still to come");
    bed.settle();
    let failed = CommandError::Failed { done: 2, status: WcStatus::LocProtErr };
    assert_eq!(bed.writers[0].look(&mut bed.t), Ok(2));
    assert_eq!(bed.writers[0].look(&mut bed.t), Err(failed));
    assert_eq!(bed.writers[0].write(&mut bed.t, &write(4)), Err(failed));
    assert_eq!((bed.proxy.stats().refused, bed.proxy.done(0)), (1, 2));
    // And a number of commands that no writer can have written.
    let mut bed = Bed::small();
    let ready = bed.writers[0].queue().ready_word();
    bed.t.store_u64(ready, 9).unwrap();
    assert_eq!(bed.proxy.serve(&mut bed.t), Ok(false));
    assert_eq!(bed.proxy.failed(0), Some(WcStatus::LocQpOpErr));
}

#[test]
fn a_failed_queue_pair_is_told_to_each_client() {
    let mut bed = Bed::new(2, 8, 16, 8, NoOp::caps(16));
    bed.write(0, 2);
    bed.write(1, 3);
    bed.proxy.serve(&mut bed.t).unwrap();
    bed.t.complete(bed.qp, 1);
    bed.t.fail_qp(bed.qp, WcStatus::RetryExcErr);
    bed.poll().unwrap();
    let ends = |bed: &mut Bed, w: usize| {
        let fresh = bed.writers[w].look(&mut bed.t);
        (fresh, bed.writers[w].look(&mut bed.t))
    };
    let failed = |done, status| Err(CommandError::Failed { done, status });
    assert_eq!(ends(&mut bed, 0), (Ok(1), failed(1, WcStatus::RetryExcErr)));
    let flushed = failed(0, WcStatus::WrFlushErr);
    assert_eq!(ends(&mut bed, 1), (flushed, flushed));
    assert_eq!(bed.proxy.serve(&mut bed.t), Ok(false), "nobody is served any more");
}

#[test]
fn a_failed_ring_is_told_too() {
    for cause in [RingCause::Full, RingCause::Indeterminate] {
        let mut bed = Bed::small();
        bed.write(0, 3);
        bed.t.fail_ring(Some((1, cause)));
        let served = bed.proxy.serve(&mut bed.t);
        assert!(matches!(served, Err(ProxyError::Push { qp, .. }) if qp == bed.qp), "{served:?}");
        bed.proxy.tell(&mut bed.t).unwrap();
        let status = WcStatus::WrFlushErr;
        let failed = Err(CommandError::Failed { done: 0, status });
        assert_eq!(bed.writers[0].look(&mut bed.t), failed, "{cause:?}");
        // What was posted all the same completes, and nobody is surprised.
        bed.settle();
        assert_eq!(bed.writers[0].look(&mut bed.t), failed);
    }
}

#[test]
fn who_writes_most_does_not_starve_the_others() {
    let mut bed = Bed::new(3, 8, 16, 4, NoOp::caps(16));
    for _ in 0..12 {
        (0..3).for_each(|w| {
            bed.write(w, 8);
        });
        bed.proxy.serve(&mut bed.t).unwrap();
        bed.settle();
        (0..3).for_each(|w| {
            bed.writers[w].look(&mut bed.t).unwrap();
        });
    }
    let done = [0, 1, 2].map(|c| bed.proxy.done(c));
    assert_eq!(done.iter().sum::<u64>(), 48);
    assert!(done.iter().all(|d| *d >= 12), "{done:?}");
}

#[test]
fn work_takes_time_for_each_command() {
    let mut bed = Bed::small();
    bed.proxy.set_work(Span::from_ns(400));
    bed.write(0, 3);
    bed.proxy.serve(&mut bed.t).unwrap();
    assert_eq!(bed.t.now(), Time::ZERO + Span::from_ns(1200));
}

#[test]
fn both_sides_of_what_a_proxy_needs() {
    let mut t = NoOp::new(16);
    let caps = NoOp::caps(8);
    let qps = [(t.add_qp(caps, None), caps), (t.add_qp(caps, None), caps)];
    let mr = NoOp::mr(0x1_0000, 1 << 16);
    let queue = CommandQueue::new(&mr, 0, 8).unwrap();
    let (remote, remote_bytes, dest) = (Remote::default(), 1, None);
    let client = ProxyClient { queue, payload: mr, remote, remote_bytes, dest };
    let mut budget = CqBudget::new(15);
    let sender = SenderConfig { window: WindowConfig::default(), ..SenderConfig::default() };
    let config = ProxyConfig { sender, work: Span::ZERO };
    let made = Proxy::new(config, &qps, &[client], &mut budget);
    assert!(matches!(made, Err(ProxyError::Cq(e)) if e.asked == 8 && e.left == 7));
    assert_eq!(budget.left(), 15, "given back");
    assert!(matches!(Proxy::new(config, &qps, &[], &mut budget), Err(ProxyError::Empty)));
    assert!(matches!(Proxy::new(config, &[], &[client], &mut budget), Err(ProxyError::Empty)));
    let mut budget = CqBudget::new(16);
    let proxy = Proxy::new(config, &qps, &[client], &mut budget).unwrap();
    assert_eq!((budget.left(), proxy.into_shares().count()), (0, 2));
}

/// What happens next in a run of the property.
#[derive(Copy, Clone, Debug)]
enum Event {
    Write(usize, u64),
    Serve,
    Complete(u32),
    Look(usize),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        (0..3_usize, 0..12_u64).prop_map(|(w, n)| Event::Write(w, n)),
        Just(Event::Serve),
        (0..12_u32).prop_map(Event::Complete),
        (0..3_usize).prop_map(Event::Look),
    ];
    prop::collection::vec(event, 0..80)
}

proptest! {
    /// Random loads and limits: each command is posted once, in its client's order; no slot is used
    /// again before its command is done; no queue is exceeded; all ends.
    #[test]
    fn every_command_is_posted_once_in_order(
        (clients, slots, depth, batch) in (1..4_u32, 1..10_u32, 1..20_u32, 0..10_u32),
        blocks in prop::option::of(1..20_u32),
        events in events(),
    ) {
        let caps = QpCaps { sq_blocks: blocks, max_inline: 0, ..NoOp::caps(depth) };
        let mut bed = Bed::new(clients, slots, depth, batch, caps);
        let mut written = [0; 3];
        for event in events {
            match event {
                Event::Write(w, n) if w < bed.writers.len() => {
                    written[w] += bed.write(w, n);
                    prop_assert!(bed.writers[w].open() <= slots.into());
                }
                Event::Look(w) if w < bed.writers.len() => {
                    bed.writers[w].look(&mut bed.t).unwrap();
                }
                Event::Serve => {
                    bed.proxy.serve(&mut bed.t).unwrap();
                }
                Event::Complete(n) => {
                    let n = n.min(bed.t.outstanding(bed.qp));
                    bed.t.complete(bed.qp, n);
                    bed.poll().unwrap();
                }
                Event::Write(..) | Event::Look(_) => {}
            }
            for (c, w) in (0..).zip(&bed.writers) {
                let done = bed.proxy.done(c);
                prop_assert!(w.done() <= done && done <= written[c as usize]);
            }
        }
        let all: u64 = written.iter().sum();
        for _ in 0..4 * all + 4 {
            bed.proxy.serve(&mut bed.t).unwrap();
            bed.settle();
        }
        for (c, w) in bed.writers.iter_mut().enumerate() {
            w.look(&mut bed.t).unwrap();
            prop_assert_eq!(w.done(), written[c], "all are done");
            let its = bed.t.log().iter().filter(|(id, _)| (id >> 40) as usize == c);
            let numbers: Vec<_> = its.map(|(id, _)| id & 0xFF_FFFF_FFFF).collect();
            prop_assert_eq!(numbers, (0..written[c]).collect::<Vec<_>>(), "once and in order");
        }
        let rung = bed.proxy.rung();
        prop_assert!(rung.rings <= rung.wqes && rung.wqes == all);
        prop_assert!(bed.t.stats().max_used <= depth && !bed.t.cq_lost());
        prop_assert_eq!(bed.proxy.stats().commands, all);
    }
}
