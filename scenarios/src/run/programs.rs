//! From the programs of a scenario file to programs on initiators.

use doorbell_core::transport::{Contents, Initiator, MemKind, QpAttr, QpSize, Ring};
use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::{
    AckTimeout, Mtu, QKey, QpType, RetryCnt, RnrRetry, RnrTimer, SendFlags,
};
use doorbell_sim::host::{InitiatorConfig, PollMode};
use doorbell_sim::wire::HostId;
use doorbell_sim::world::World;

use super::{Point, RunError};
use crate::format::{self, Program, ProgramKind, QpKind, Receives, RingMode, Step, StepState};
use crate::workloads::connect::{ALL_RIGHTS, LinkConfig, LocalConfig};
use crate::workloads::{
    Arrivals, Latency, LatencyConfig, Op, Rate, RateConfig, Responder, ResponderConfig,
    ResponderLink, Results, Script, ScriptConfig, ScriptStep, Shape, Sharing, Stop, Workload,
};

/// Which side of a scenario's program runs at a rank.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Role {
    /// It posts and measures.
    Sender,
    /// It answers.
    Responder,
}

/// A program that was put on an initiator.
#[derive(Copy, Clone, Debug)]
pub struct Placed {
    /// Index of the scenario's program.
    pub program: usize,
    /// Its rank.
    pub rank: u32,
    /// Host.
    pub host: u32,
    /// What it is.
    pub role: Role,
}

impl Placed {
    /// Whether it sends; the others answer.
    pub fn sends(&self) -> bool {
        self.role == Role::Sender
    }

    /// What it measured.
    pub fn results<'w>(&self, world: &'w World) -> Option<&'w Results> {
        world.program::<Workload>(self.rank).map(Workload::results)
    }
}

/// Puts all programs of a point on initiators.
///
/// # Errors
/// What the profile cannot give.
pub fn place(point: &Point, world: &mut World) -> Result<Vec<Placed>, RunError> {
    let mut placer = Placer {
        point,
        cores: vec![0; point.scenario.topology.hosts.value() as usize],
        blocks: 0,
        next: 0,
        placed: Vec::new(),
    };
    for (index, program) in point.scenario.program.iter().enumerate() {
        placer.program(world, index, program)?;
    }
    Ok(placer.placed)
}

struct Placer<'a> {
    point: &'a Point,
    /// Cores used, by host.
    cores: Vec<u16>,
    blocks: u16,
    /// Rank of the next program.
    next: u32,
    placed: Vec<Placed>,
}

fn bad(index: usize, field: &str, message: impl Into<String>, help: &str) -> RunError {
    RunError::BadInput {
        path: format!("program.{index}.{field}"),
        message: message.into(),
        help: help.to_owned(),
    }
}

impl Placer<'_> {
    fn core(&mut self, host: u32, numa: u8, poll: PollMode) -> InitiatorConfig {
        let core = self.cores[host as usize];
        self.cores[host as usize] += 1;
        InitiatorConfig { who: Initiator::Cpu { core, numa }, poll }
    }

    fn program(&mut self, world: &mut World, index: usize, p: &Program) -> Result<(), RunError> {
        let threads = p.threads.value() as u32;
        let (host, peer) = (p.host.value() as u32, p.peer.value() as u32);
        // Senders first, then one responder for each that has queue pairs of its own.
        let first = self.next;
        let answered = if p.share_qp { 1 } else { threads };
        for t in 0..threads {
            let on = self.initiator(index, p, host)?;
            let to = first + threads + if p.share_qp { 0 } else { t };
            let sharing = match (p.share_qp && threads > 1, t) {
                (false, _) => Sharing::Own,
                (true, 0) => Sharing::Owner { sharers: (first + 1..first + threads).collect() },
                (true, _) => Sharing::Attached { owner: first },
            };
            let rank = self.sender(world, index, p, HostId(host), on, to, sharing)?;
            debug_assert_eq!(rank, first + t);
        }
        for t in 0..answered {
            let numa = 0;
            let on = self.core(peer, numa, PollMode::Busy);
            let config = self.responder(index, p, first + t)?;
            let rank = world.add_program(
                HostId(peer),
                on,
                Time::ZERO,
                Workload::from(Responder::new(config)),
            );
            self.next = rank + 1;
            let role = Role::Responder;
            self.placed.push(Placed { program: index, rank, host: peer, role });
        }
        Ok(())
    }

    fn initiator(
        &mut self,
        index: usize,
        p: &Program,
        host: u32,
    ) -> Result<InitiatorConfig, RunError> {
        let poll = match p.poll {
            format::Poll::Busy => PollMode::Busy,
            format::Poll::Event => PollMode::Event,
        };
        match p.initiator {
            format::Initiator::Cpu => {
                let numa = self.numa(index, p)?;
                Ok(self.core(host, numa, poll))
            }
            format::Initiator::Gpu => {
                if self.point.profile.gpu.count == 0 {
                    let help = "name a profile with a GPU, or set \"gpu.count\"";
                    return Err(bad(index, "initiator", "the profile has no GPU", help));
                }
                let block = self.blocks;
                self.blocks += 1;
                Ok(InitiatorConfig { who: Initiator::GpuBlock { gpu: 0, block }, poll })
            }
            format::Initiator::CpuProxy => Err(RunError::Unsupported {
                what: "initiator = \"cpu-proxy\" with this kind of program".into(),
            }),
        }
    }

    fn numa(&self, index: usize, p: &Program) -> Result<u8, RunError> {
        match p.numa {
            format::Numa::Local => Ok(0),
            format::Numa::Remote if self.point.profile.memory.sockets < 2 => {
                let help = "leave `numa` out, or set \"memory.sockets\" = 2";
                Err(bad(index, "numa", "the profile has one socket", help))
            }
            format::Numa::Remote => Ok(1),
        }
    }

    fn memory(&self, index: usize, field: &str, m: format::Memory) -> Result<MemKind, RunError> {
        match m {
            format::Memory::Host => Ok(MemKind::Host { numa: 0 }),
            format::Memory::HostRemote if self.point.profile.memory.sockets < 2 => {
                let help = "use \"host\", or set \"memory.sockets\" = 2";
                Err(bad(index, field, "the profile has one socket", help))
            }
            format::Memory::HostRemote => Ok(MemKind::Host { numa: 1 }),
            format::Memory::Gpu if self.point.profile.gpu.count == 0 => {
                let help = "use \"host\", or name a profile with a GPU";
                Err(bad(index, field, "the profile has no GPU", help))
            }
            format::Memory::Gpu => Ok(MemKind::Gpu { gpu: 0 }),
        }
    }

    fn queue_memory(&self, index: usize, p: &Program) -> Result<MemKind, RunError> {
        match p.initiator {
            format::Initiator::Gpu => Ok(MemKind::Gpu { gpu: 0 }),
            _ => Ok(MemKind::Host { numa: self.numa(index, p)? }),
        }
    }

    fn contents(p: &Program) -> Contents {
        match p.payload {
            format::Payload::Data => Contents::Data,
            format::Payload::Virtual => Contents::Virtual,
        }
    }

    fn shape(&self, p: &Program) -> Shape {
        let op = match p.op {
            format::Op::Write => Op::Write,
            format::Op::WriteImm => Op::WriteImm,
            format::Op::Send => Op::Send,
            format::Op::SendImm => Op::SendImm,
            format::Op::Read => Op::Read,
            format::Op::CmpSwap => Op::CmpSwap,
            format::Op::FetchAdd => Op::FetchAdd,
        };
        let size = p.size.0.0 as u32;
        let limit = p.inline.as_ref().map_or(self.point.scenario.qp.max_inline.0.0, |q| q.0.0);
        let inline = p.op.takes_inline() && u64::from(size) <= limit && size > 0;
        Shape { op, size, inline }
    }

    fn window(&self, p: &Program) -> u32 {
        let depth = self.point.scenario.qp.sq_depth.value() as u32;
        p.window.as_ref().map_or(depth, |w| w.value() as u32)
    }

    /// Bytes that the messages of one thread need at both ends.
    fn region(&self, p: &Program) -> u64 {
        let messages = u64::from(self.window(p)) * p.qps.value();
        let posted = p.steps.iter().map(|s| match s {
            Step::Post(post) => u64::from(post.count) * post.size.0.next_multiple_of(64).max(64),
            _ => 0,
        });
        let script: u64 = posted.sum();
        (self.shape(p).stride() * messages.max(1) + script).max(4096)
    }

    fn local(&self, index: usize, p: &Program, peer: bool) -> Result<LocalConfig, RunError> {
        let qp = &self.point.scenario.qp;
        let (field, memory) =
            if peer { ("peer_memory", p.peer_memory) } else { ("memory", p.memory) };
        let most = (qp.sq_depth.value().max(qp.rq_depth.value()) + 1) * p.qps.value();
        let depth = qp.cq_depth.as_ref().map_or(most, |d| d.value());
        let max = self.point.profile.nic.max_cq_depth;
        Ok(LocalConfig {
            memory: self.memory(index, field, memory)?,
            contents: Self::contents(p),
            region_bytes: self.region(p),
            cq_depth: depth.min(max) as u32,
        })
    }

    fn link(&self, index: usize, p: &Program, peer: u32) -> Result<LinkConfig, RunError> {
        let qp = &self.point.scenario.qp;
        let mtu = Mtu::from_bytes(qp.mtu.0.0 as u32).ok_or_else(|| RunError::BadInput {
            path: "qp.mtu".into(),
            message: "not a path MTU".into(),
            help: "one of 256, 512, 1024, 2048 or 4096 bytes".into(),
        })?;
        let code = |n: u64| n as u8;
        Ok(LinkConfig {
            peer,
            qps: p.qps.value() as u32,
            ty: match qp.kind {
                QpKind::Rc => QpType::Rc,
                QpKind::Uc => QpType::Uc,
                QpKind::Ud => QpType::Ud,
            },
            size: QpSize {
                max_send_wr: qp.sq_depth.value() as u32,
                max_recv_wr: qp.rq_depth.value() as u32,
                max_send_sge: 1,
                max_inline: qp.max_inline.0.0 as u32,
            },
            attr: QpAttr {
                access: ALL_RIGHTS,
                qkey: QKey(0x1111_1111),
                timeout: AckTimeout::new(code(qp.timeout.value())).expect("checked"),
                retry_cnt: RetryCnt::new(code(qp.retry_cnt.value())).expect("checked"),
                rnr_retry: RnrRetry::new(code(qp.rnr_retry.value())).expect("checked"),
                min_rnr_timer: RnrTimer::new(code(qp.min_rnr_timer.value())).expect("checked"),
                max_rd_atomic: code(qp.max_rd_atomic.value()),
                max_dest_rd_atomic: code(qp.max_dest_rd_atomic.value()),
                ..QpAttr::default()
            },
            path_mtu: Some(mtu),
            queue_memory: self.queue_memory(index, p)?,
            signal_all: qp.sig_all,
            deadline: Span::from_ms(1000),
        })
    }

    #[expect(clippy::too_many_arguments, reason = "a program, where it runs and whom it talks to")]
    fn sender(
        &mut self,
        world: &mut World,
        index: usize,
        p: &Program,
        host: HostId,
        on: InitiatorConfig,
        peer: u32,
        sharing: Sharing,
    ) -> Result<u32, RunError> {
        let (local, link) = (self.local(index, p, false)?, self.link(index, p, peer)?);
        let ring = match p.ring {
            RingMode::Auto => Ring::Auto,
            RingMode::Doorbell => Ring::Doorbell,
            RingMode::Blueflame => Ring::BlueFlame,
        };
        let shape = self.shape(p);
        let (iterations, warm_up) = (p.iterations.value(), p.warmup.value());
        let workload: Workload = match p.kind {
            ProgramKind::Latency => {
                let think = p.interval.as_ref().map_or(Span::ZERO, |i| i.0);
                let fence = p.fence;
                Latency::new(LatencyConfig {
                    local,
                    link,
                    shape,
                    ring,
                    fence,
                    iterations,
                    warm_up,
                    think,
                })
                .into()
            }
            ProgramKind::Bandwidth | ProgramKind::MessageRate => Rate::new(RateConfig {
                local,
                link,
                shape,
                ring,
                depth: self.window(p),
                batch: p.batch.value() as u32,
                signal_every: p.signal_every.value() as u32,
                poll_batch: p.poll_batch.value() as usize,
                stop: Stop::Messages(iterations + warm_up),
                warm_up,
                arrivals: p.interval.as_ref().map_or(Arrivals::Saturate, |i| Arrivals::Every(i.0)),
                max_delay: p.batch_delay.as_ref().map(|d| d.0),
                latencies: !p.share_qp,
                sharing,
                fence: p.fence,
                poll_interval: p.poll_interval.as_ref().map(|i| i.0),
            })
            .into(),
            ProgramKind::Script => {
                let steps = Self::script(p);
                let receives = 0;
                Script::new(ScriptConfig { local, link, receives, steps }).into()
            }
            ProgramKind::PingPong => {
                let what = "programs of this kind".into();
                return Err(RunError::Unsupported { what });
            }
        };
        let rank = world.add_program(host, on, Time::ZERO, workload);
        self.next = rank + 1;
        self.placed.push(Placed { program: index, rank, host: host.0, role: Role::Sender });
        Ok(rank)
    }

    fn responder(
        &self,
        index: usize,
        p: &Program,
        sender: u32,
    ) -> Result<ResponderConfig, RunError> {
        let qp = &self.point.scenario.qp;
        let mut link = self.link(index, p, sender)?;
        link.queue_memory = MemKind::Host { numa: 0 };
        let depth = qp.rq_depth.value() as u32;
        let scripted = p.steps.iter().any(|s| matches!(s, Step::Post(p) if p.op.takes_receive()));
        let needed = p.op.takes_receive() && p.steps.is_empty() || scripted;
        let receives = match p.receives {
            Receives::Refill if needed => depth,
            Receives::Once if needed => depth,
            _ => 0,
        };
        let largest = p.steps.iter().filter_map(|s| match s {
            Step::Post(post) => Some(post.size.0 as u32),
            _ => None,
        });
        let bytes = largest.max().unwrap_or(0).max(p.size.0.0 as u32);
        Ok(ResponderConfig {
            local: self.local(index, p, true)?,
            links: vec![ResponderLink { link, receives, refill: p.receives == Receives::Refill }],
            receive_bytes: bytes,
            receive_contents: Self::contents(p),
            repost_batch: 16,
            poll_batch: 32,
            poll_interval: None,
        })
    }

    fn script(p: &Program) -> Vec<ScriptStep> {
        let limit = p.inline.as_ref().map(|q| q.0.0);
        p.steps.iter().map(|s| script_step(s, limit)).collect()
    }
}

fn script_step(s: &Step, inline: Option<u64>) -> ScriptStep {
    match s {
        Step::Post(post) => {
            let op = match post.op {
                format::Op::Write => Op::Write,
                format::Op::WriteImm => Op::WriteImm,
                format::Op::Send => Op::Send,
                format::Op::SendImm => Op::SendImm,
                format::Op::Read => Op::Read,
                format::Op::CmpSwap => Op::CmpSwap,
                format::Op::FetchAdd => Op::FetchAdd,
            };
            let fits = inline.is_some_and(|limit| post.size.0 <= limit);
            let mut flags = SendFlags::empty();
            flags.set(SendFlags::SIGNALED, post.signaled);
            flags.set(SendFlags::FENCE, post.fence);
            let inline = post.inline || fits && post.op.takes_inline();
            ScriptStep::Post {
                qp: post.qp,
                pd: post.pd,
                count: post.count,
                shape: Shape { op, size: post.size.0 as u32, inline },
                flags,
            }
        }
        Step::Recv { size, count, qp } => {
            ScriptStep::PostRecv { qp: *qp, count: *count, bytes: size.0 as u32 }
        }
        Step::Ring { mode, qp } => ScriptStep::Ring {
            qp: *qp,
            how: match mode {
                RingMode::Auto => Ring::Auto,
                RingMode::Doorbell => Ring::Doorbell,
                RingMode::Blueflame => Ring::BlueFlame,
            },
        },
        Step::Poll { max } => ScriptStep::Poll { max: *max },
        Step::Wait { count: Some(count) } => ScriptStep::Await { count: *count, deadline: None },
        Step::Wait { count: None } => ScriptStep::PollEmpty,
        Step::State { state, qp } => ScriptStep::Modify {
            qp: *qp,
            to: match state {
                StepState::Reset => doorbell_core::verbs::QpState::Reset,
                StepState::Init => doorbell_core::verbs::QpState::Init,
                StepState::Rtr => doorbell_core::verbs::QpState::Rtr,
                StepState::Rts => doorbell_core::verbs::QpState::Rts,
                StepState::Sqd => doorbell_core::verbs::QpState::Sqd,
                StepState::Err => doorbell_core::verbs::QpState::Err,
            },
        },
        Step::Compute { time } => ScriptStep::Compute { time: *time },
        Step::Fence => ScriptStep::Fence { scope: doorbell_core::transport::FenceScope::System },
    }
}
