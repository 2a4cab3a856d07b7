//! Configurations of the workloads, from a program of a scenario file.

use doorbell_core::policy::lanes::FlowLabels;
use doorbell_core::policy::tuner::TunerConfig;
use doorbell_core::transport::{Address, Contents, MemKind, QpAttr, QpSize, Ring};
use doorbell_core::units::Span;
use doorbell_core::verbs::{
    AckTimeout, FlowLabel, Mtu, QKey, QpType, RetryCnt, RnrRetry, RnrTimer, ServiceLevel,
};

use super::{Planner, script};
use crate::format::{
    self, Entropy, Fence, Initiator, KeyWord, Payload, PeerPoll, Program, ProgramKind, QpKind,
    Receives, RingMode, SrqRepostBy, Step,
};
use crate::run::RunError;
use crate::workloads::connect::Levels;
use crate::workloads::{
    Arrivals, Laned, LanedConfig, Latency, LatencyConfig, LinkConfig, LocalConfig, Op, PingPong,
    PingPongBy, PingPongConfig, Produce, ProduceConfig, ProducePath, ProxyConfig, Rate, RateConfig,
    RequestReply, RequestReplyConfig, Responder, ResponderConfig, ResponderLink, Script,
    ScriptConfig, Shape, Sharing, SrqRepost, SrqUse, Stop, TuningConfig, Verify, VerifyConfig,
    Workload,
};

pub(super) fn op(op: format::Op) -> Op {
    match op {
        format::Op::Write => Op::Write,
        format::Op::WriteImm => Op::WriteImm,
        format::Op::Send => Op::Send,
        format::Op::SendImm => Op::SendImm,
        format::Op::SendInv => Op::SendInv,
        format::Op::Read => Op::Read,
        format::Op::CmpSwap => Op::CmpSwap,
        format::Op::FetchAdd => Op::FetchAdd,
    }
}

pub(super) fn ring(mode: RingMode) -> Ring {
    match mode {
        RingMode::Auto => Ring::Auto,
        RingMode::Doorbell => Ring::Doorbell,
        RingMode::Blueflame => Ring::BlueFlame,
        RingMode::Combined => Ring::Combined,
        RingMode::Ordered => Ring::Ordered,
    }
}

fn tuning(p: &Program) -> Option<TuningConfig> {
    let tuner = |t: &format::TunerTable| TuningConfig {
        window: t.window.0,
        tuner: TunerConfig { budget: t.budget.map(|b| b.0), ..TunerConfig::default() },
    };
    p.tuner.as_ref().map(tuner)
}

pub(super) fn contents(p: &Program) -> Contents {
    match p.payload {
        // The answer to a WRITE is seen in its bytes.
        _ if p.kind == ProgramKind::PingPong => Contents::Data,
        Payload::Data => Contents::Data,
        Payload::Virtual => Contents::Virtual,
    }
}

/// Whether a step names memory of the peer that is not the region which it offers.
fn names_spare(step: &Step) -> bool {
    let Step::Post(post) = step else { return false };
    matches!(post.rkey, KeyWord::Stale | KeyWord::Foreign)
}

/// READs and atomics outstanding, as a connection manager agrees on them. There is nothing to agree
/// on with a peer that takes none: a script that asks all the same is refused by the responder.
fn agreed(qp: &format::Qp) -> u8 {
    let (asked, taken) = (qp.max_rd_atomic.value(), qp.max_dest_rd_atomic.value());
    if taken == 0 { asked as u8 } else { asked.min(taken) as u8 }
}

/// Bytes of a receive buffer for the messages of a program.
fn receive_bytes(p: &Program) -> u32 {
    let largest = p.steps.iter().filter_map(|s| match s {
        Step::Post(post) => Some(post.size.0 as u32),
        _ => None,
    });
    let lanes = p.lanes.iter().filter_map(|l| l.size).map(|s| s.0.0 as u32);
    largest.chain(lanes).max().unwrap_or(0).max(p.size.0.0 as u32)
}

fn slots(p: &Program, sq_depth: u32) -> u32 {
    p.slots.map_or(sq_depth, |n| n.value() as u32)
}

/// Flow labels of a link to `peer`. Ranks differ between the threads of two hosts, so those of no
/// two of them meet, as long as the source ports last.
fn labels(p: &Program, peer: u32) -> FlowLabels {
    match p.entropy {
        Entropy::Qpn => FlowLabels::Device,
        Entropy::Spread => {
            FlowLabels::From { first: peer.wrapping_mul(p.all_qps() as u32).wrapping_add(1) }
        }
        Entropy::Same => FlowLabels::Same(FlowLabel::new(1).expect("20 bits")),
    }
}

/// Completions that the receiving side takes by one poll.
const PEER_POLL_BATCH: usize = 32;

impl Planner<'_> {
    fn sq_depth(&self) -> u32 {
        self.point.scenario.qp.sq_depth.value() as u32
    }

    fn queue_memory(&self, index: usize, p: &Program) -> Result<MemKind, RunError> {
        match p.initiator {
            format::Initiator::Gpu => Ok(MemKind::Gpu { gpu: self.gpu(index) }),
            _ => Ok(MemKind::Host { numa: self.numa(index, p)? }),
        }
    }

    /// Largest message that goes into its WQE.
    fn inline_limit(&self, p: &Program) -> u64 {
        p.inline.as_ref().map_or(self.point.scenario.qp.max_inline.0.0, |q| q.0.0)
    }

    pub(super) fn shape(&self, p: &Program) -> Shape {
        let (size, limit) = (p.size.0.0 as u32, self.inline_limit(p));
        // A proxy never reads the payload.
        let can = p.op.takes_inline() && p.initiator != format::Initiator::CpuProxy;
        Shape { op: op(p.op), size, inline: can && u64::from(size) <= limit && size > 0 }
    }

    pub(super) fn window(&self, p: &Program) -> u32 {
        p.window.as_ref().map_or(self.sq_depth(), |w| w.value() as u32)
    }

    /// Bytes that the messages of one thread need at both ends.
    fn region(&self, p: &Program) -> u64 {
        let messages = match p.kind {
            ProgramKind::Produce => slots(p, self.sq_depth()).into(),
            _ => u64::from(self.window(p)) * p.qps.value(),
        };
        let lanes: u64 = self.lanes(p).iter().map(|l| l.shape.stride()).sum();
        let posted = p.steps.iter().map(|s| match s {
            Step::Post(post) => {
                let messages = u64::from(post.count) * post.size.0.next_multiple_of(64).max(64);
                messages + post.local.offset().max(post.remote.offset())
            }
            Step::Load { at } | Step::Store { at, .. } => at.0 + 8,
            Step::Recv { size, .. } => size.0,
            _ => 0,
        });
        let script: u64 = posted.sum();
        (self.shape(p).stride() * messages.max(1) + script).max(lanes).max(4096)
    }

    pub(super) fn local(
        &self,
        index: usize,
        p: &Program,
        peer: bool,
    ) -> Result<LocalConfig, RunError> {
        let qp = &self.point.scenario.qp;
        let (field, memory, rights) = match peer {
            true => ("peer_memory", (p.nic_of_peer(), p.peer_memory), &p.peer_access),
            false => ("memory", (p.nic.value() as u8, p.memory), &p.access),
        };
        let most = (qp.sq_depth.value().max(qp.rq_depth.value()) + 1) * p.all_qps();
        let depth = qp.cq_depth.as_ref().map_or(most, |d| d.value());
        let max = self.point.profile.nic.max_cq_depth;
        Ok(LocalConfig {
            memory: self.memory(index, field, memory)?,
            contents: contents(p),
            region_bytes: self.region(p),
            access: script::access(rights.as_ref()),
            cq_depth: depth.min(max) as u32,
            srq_depth: None,
        })
    }

    /// The same for a program that receives: with the SRQ, if the scenario has one.
    fn receiving(&self, local: LocalConfig) -> LocalConfig {
        LocalConfig { srq_depth: self.srq_depth(), ..local }
    }

    fn srq_depth(&self) -> Option<u32> {
        let s = &self.point.scenario;
        let srq = s.srq.as_ref()?;
        Some(srq.depth.map_or(s.qp.rq_depth.value(), |d| d.value()) as u32)
    }

    pub(super) fn link(
        &self,
        index: usize,
        p: &Program,
        peer: u32,
    ) -> Result<LinkConfig, RunError> {
        let qp = &self.point.scenario.qp;
        let mtu = Mtu::from_bytes(qp.mtu.0.0 as u32).ok_or_else(|| RunError::BadInput {
            path: "qp.mtu".into(),
            message: "not a path MTU".into(),
            help: "one of 256, 512, 1024, 2048 or 4096 bytes".into(),
        })?;
        let code = |n: u64| n as u8;
        let sl = ServiceLevel::new(code(p.sl.unwrap_or(qp.sl).value())).expect("checked");
        let link = LinkConfig {
            peer,
            qps: p.qps.value() as u32,
            ty: match qp.kind {
                QpKind::Rc => QpType::Rc,
                QpKind::Uc => QpType::Uc,
                QpKind::Ud => QpType::Ud,
            },
            size: QpSize {
                max_send_wr: self.sq_depth(),
                max_recv_wr: qp.rq_depth.value() as u32,
                max_send_sge: qp.max_send_sge.value() as u32,
                max_inline: qp.max_inline.0.0 as u32,
            },
            attr: QpAttr {
                access: script::access(qp.access.as_ref()),
                qkey: QKey(0x1111_1111),
                timeout: AckTimeout::new(code(qp.timeout.value())).expect("checked"),
                retry_cnt: RetryCnt::new(code(qp.retry_cnt.value())).expect("checked"),
                rnr_retry: RnrRetry::new(code(qp.rnr_retry.value())).expect("checked"),
                min_rnr_timer: RnrTimer::new(code(qp.min_rnr_timer.value())).expect("checked"),
                max_rd_atomic: agreed(qp),
                max_dest_rd_atomic: code(qp.max_dest_rd_atomic.value()),
                path: Address { sl, ..Address::default() },
                ..QpAttr::default()
            },
            path_mtu: Some(mtu),
            queue_memory: self.queue_memory(index, p)?,
            labels: labels(p, peer),
            levels: Levels::default(),
            signal_all: qp.sig_all,
            deadline: self.deadline,
            handshake: None,
        };
        Ok(if p.is_laned() { LanedConfig::link_for(link, &self.lanes(p)) } else { link })
    }

    /// The link as the peer sees it: its queues are in its own host memory.
    pub(super) fn peer_link(
        &self,
        index: usize,
        p: &Program,
        sender: u32,
    ) -> Result<LinkConfig, RunError> {
        let queue_memory = MemKind::Host { numa: self.near(p.nic_of_peer()) };
        let handshake = p.handshake.map(|h| h.0);
        Ok(LinkConfig { queue_memory, handshake, ..self.link(index, p, sender)? })
    }

    /// The program that makes the messages. With `bypass` it does not submit in order.
    pub(super) fn sender(
        &self,
        index: usize,
        p: &Program,
        peer: u32,
        (sharing, bypass): (Sharing, bool),
    ) -> Result<Workload, RunError> {
        let (local, link) = (self.local(index, p, false)?, self.link(index, p, peer)?);
        let (shape, fence) = (self.shape(p), p.fence.scope());
        let ring =
            if bypass && p.ring == RingMode::Ordered { Ring::Doorbell } else { ring(p.ring) };
        let (iterations, warm_up) = (p.iterations.value(), p.warmup.value());
        Ok(match p.kind {
            ProgramKind::Latency => {
                let think = p.interval.map_or(Span::ZERO, |i| i.0);
                let c =
                    LatencyConfig { local, link, shape, ring, fence, iterations, warm_up, think };
                Latency::new(c).into()
            }
            ProgramKind::Bandwidth | ProgramKind::MessageRate if p.is_laned() => {
                let (lanes, poll_batch) = (self.lanes(p), p.poll_batch.value() as usize);
                let tuning = tuning(p);
                Laned::new(LanedConfig { local, link, lanes, poll_batch, tuning }).into()
            }
            ProgramKind::Bandwidth | ProgramKind::MessageRate => {
                Rate::new(RateConfig { ring, ..self.rate(p, local, link, sharing) }).into()
            }
            ProgramKind::Script => {
                let inline = p.inline.map(|q| q.0.0);
                let nic = p.nic_of_peer();
                let steps = p.steps.iter();
                let steps = steps.map(|s| script::script_step(s, inline, nic)).collect();
                let local = self.receiving(local);
                Script::new(ScriptConfig { local, link, receives: 0, steps }).into()
            }
            ProgramKind::PingPong => self.ping_pong(p, local, link, true).into(),
            ProgramKind::RequestReply => self.requests(p, local, link, true).into(),
            ProgramKind::Produce => {
                let signal_every = p.signal_every.value() as u32;
                let path =
                    ProducePath::Direct { local, link, ring, leader: p.leader(), signal_every };
                Produce::new(self.produce(p, path, 0)).into()
            }
            ProgramKind::Flows
            | ProgramKind::Aggregate
            | ProgramKind::AllToAll
            | ProgramKind::Transfer => {
                unreachable!("planned by itself")
            }
        })
    }

    fn rate(
        &self,
        p: &Program,
        local: LocalConfig,
        link: LinkConfig,
        sharing: Sharing,
    ) -> RateConfig {
        RateConfig {
            local,
            link,
            shape: self.shape(p),
            ring: ring(p.ring),
            fence: p.fence.scope(),
            depth: self.window(p),
            batch: p.batch.value() as u32,
            signal_every: p.signal_every.value() as u32,
            poll_batch: p.poll_batch.value() as usize,
            poll_interval: p.poll_interval.map(|i| i.0),
            stop: Stop::Messages(p.iterations.value() + p.warmup.value()),
            warm_up: p.warmup.value(),
            arrivals: p.interval.map_or(Arrivals::Saturate, |i| Arrivals::Every(i.0)),
            max_delay: p.batch_delay.map(|d| d.0),
            latencies: !p.share_qp,
            tuning: tuning(p),
            sharing,
        }
    }

    fn ping_pong(
        &self,
        p: &Program,
        local: LocalConfig,
        link: LinkConfig,
        starts: bool,
    ) -> PingPong {
        let (shape, local) = (self.shape(p), self.receiving(local));
        PingPong::new(PingPongConfig {
            local: LocalConfig { region_bytes: local.region_bytes + 4 * shape.stride(), ..local },
            link,
            starts,
            by: if p.op == format::Op::Send { PingPongBy::Send } else { PingPongBy::Write },
            size: shape.size,
            inline: shape.inline,
            ring: ring(p.ring),
            fence: p.fence.scope(),
            signal_every: p.signal_every.value() as u32,
            iterations: p.iterations.value(),
            warm_up: p.warmup.value(),
            check: false,
        })
    }

    /// Either side of requests and replies.
    fn requests(
        &self,
        p: &Program,
        local: LocalConfig,
        link: LinkConfig,
        asks: bool,
    ) -> RequestReply {
        let shape = self.shape(p);
        let reply_bytes = p.reply_size.map_or(shape.size, |s| s.0.0 as u32);
        let own = if asks { shape.size } else { reply_bytes };
        let mut c = RequestReplyConfig {
            local: self.receiving(local),
            link,
            asks,
            request_bytes: shape.size,
            reply_bytes,
            inline: own > 0 && u64::from(own) <= self.inline_limit(p),
            ring: ring(p.ring),
            fence: p.fence.scope(),
            window: self.window(p),
            signal_every: p.signal_every.value() as u32,
            repost_batch: p.repost_batch.value() as u32,
            repost_time: p.repost_time.map_or(Span::ZERO, |t| t.0),
            poll_batch: if asks { p.poll_batch.value() as usize } else { PEER_POLL_BATCH },
            poll_interval: p.peer_poll_interval.filter(|_| !asks).map(|i| i.0),
            iterations: p.iterations.value(),
            warm_up: p.warmup.value(),
        };
        c.local.region_bytes = c.region_bytes();
        if self.point.scenario.qp.cq_depth.is_none() {
            let most = self.point.profile.nic.max_cq_depth as u32;
            c.local.cq_depth = c.local.cq_depth.max(c.local.srq_depth.unwrap_or(0)).min(most);
        }
        RequestReply::new(c)
    }

    fn produce(&self, p: &Program, path: ProducePath, source: u16) -> ProduceConfig {
        ProduceConfig {
            path,
            source,
            shape: self.shape(p),
            per_round: p.per_round.value() as u32,
            rounds: p.iterations.value() / p.per_round.value(),
            interval: p.interval.map_or(Span::ZERO, |i| i.0),
            jitter: vec![],
            work: p.work.map_or(Span::ZERO, |w| w.0),
            slots: slots(p, self.sq_depth()),
            fence: p.fence.scope(),
        }
    }

    /// A producer that leaves the posting to a proxy.
    pub(super) fn producer_of(
        &self,
        index: usize,
        p: &Program,
        proxy: u32,
        source: u16,
    ) -> Result<Produce, RunError> {
        self.memory(index, "memory", (p.nic.value() as u8, p.memory))?;
        let path =
            ProducePath::Proxy { rank: proxy, deadline: self.deadline, contents: contents(p) };
        Ok(Produce::new(self.produce(p, path, source)))
    }

    pub(super) fn proxy(
        &self,
        index: usize,
        p: &Program,
        peer: u32,
        producers: Vec<u32>,
    ) -> Result<ProxyConfig, RunError> {
        let numa = self.numa(index, p)?;
        Ok(ProxyConfig {
            local: self.local(index, p, false)?,
            link: self.link(index, p, peer)?,
            commands: MemKind::Host { numa },
            producers,
            shape: self.shape(p),
            slots: slots(p, self.sq_depth()),
            ring: ring(p.ring),
            batch: self.sq_depth().min(64),
            poll_interval: p.poll_interval.map(|i| i.0),
            work: p.proxy_work.map_or(Span::ZERO, |w| w.0),
        })
    }

    /// The other side of `sender`, who sends for `sources` producers.
    pub(super) fn peer(
        &self,
        index: usize,
        p: &Program,
        sender: u32,
        sources: u32,
    ) -> Result<Workload, RunError> {
        let local = self.local(index, p, true)?;
        let region_bytes = local.region_bytes * u64::from(sources);
        let local = LocalConfig { region_bytes, ..local };
        if p.kind == ProgramKind::PingPong {
            let link = self.link(index, p, sender)?;
            return Ok(self.ping_pong(p, local, link, false).into());
        }
        let link = self.peer_link(index, p, sender)?;
        if p.kind == ProgramKind::RequestReply {
            return Ok(self.requests(p, local, link, false).into());
        }
        if p.kind == ProgramKind::Produce && p.payload == Payload::Data {
            return Ok(Verify::new(VerifyConfig {
                local: self.receiving(local),
                link,
                shape: self.shape(p),
                slots: slots(p, self.sq_depth()),
                sources: sources as u16,
                messages: p.iterations.value(),
                receives: self.receives(p),
                unordered: p.initiator != Initiator::Cpu && p.fence != Fence::System,
            })
            .into());
        }
        let link = ResponderLink {
            link,
            receives: self.receives(p),
            refill: p.receives != Receives::Once,
        };
        let local = if p.peer_receives() { self.receiving(local) } else { local };
        Ok(Responder::new(self.responder(p, local, vec![link])).into())
    }

    fn responder(
        &self,
        p: &Program,
        local: LocalConfig,
        links: Vec<ResponderLink>,
    ) -> ResponderConfig {
        let srq = self.point.scenario.srq.as_ref().filter(|_| local.srq_depth.is_some());
        ResponderConfig {
            local,
            links,
            receive_bytes: receive_bytes(p),
            receive_contents: contents(p),
            repost_batch: p.repost_batch.value() as u32,
            poll_batch: PEER_POLL_BATCH,
            poll_interval: p.peer_poll_interval.map(|i| i.0),
            solicited_only: p.peer_poll == PeerPoll::Solicited,
            for_script: p.kind == ProgramKind::Script,
            spare: p.steps.iter().any(names_spare),
            repost_time: p.repost_time.map_or(Span::ZERO, |t| t.0),
            srq: srq.map_or(SrqUse::default(), |srq| SrqUse {
                limit: srq.limit.value() as u32,
                repost: match srq.repost {
                    SrqRepostBy::Batch => SrqRepost::Batch,
                    SrqRepostBy::Limit => SrqRepost::AtLimit,
                },
            }),
        }
    }

    /// The one program that serves all senders of a shared queue, each with the index of its
    /// program. Its buffers hold the largest message of any of them.
    pub(super) fn shared_responder(&self, senders: &[(usize, u32)]) -> Result<Workload, RunError> {
        let programs = &self.point.scenario.program;
        let (first, _) = senders[0];
        let mut local = self.receiving(self.local(first, &programs[first], true)?);
        let mut links = Vec::with_capacity(senders.len());
        let (mut bytes, mut room) = (0, 1);
        for &(index, sender) in senders {
            let p = &programs[index];
            let link = self.peer_link(index, p, sender)?;
            let refill = p.receives != Receives::Once;
            links.push(ResponderLink { link, receives: self.receives(p), refill });
            local.region_bytes = local.region_bytes.max(self.region(p));
            bytes = bytes.max(receive_bytes(p));
            room += u64::from(local.srq_depth.unwrap_or(0)).max(p.all_qps());
        }
        let nic = &self.point.profile.nic;
        let asked = self.point.scenario.qp.cq_depth.as_ref().map_or(room, |d| d.value());
        local.cq_depth = asked.min(nic.max_cq_depth) as u32;
        let config = self.responder(&programs[first], local, links);
        Ok(Responder::new(ResponderConfig { receive_bytes: bytes, ..config }).into())
    }

    /// Receives that the peer posts by itself. A script with `recv` steps says when it does.
    fn receives(&self, p: &Program) -> u32 {
        let takes = |s: &Step| matches!(s, Step::Post(p) if p.op.takes_receive());
        let needed = match p.kind {
            ProgramKind::Script => p.steps.iter().any(takes),
            _ => p.op.takes_receive(),
        };
        let ordered = p.steps.iter().any(|s| matches!(s, Step::Recv { own: false, .. }));
        if !needed || ordered || p.receives == Receives::None {
            return 0;
        }
        self.srq_depth().unwrap_or(self.point.scenario.qp.rq_depth.value() as u32)
    }
}
