//! Programs: what the hosts do.

use doorbell_core::policy::initiator::{self as policy, Leader, PostConfig, Poster};
use doorbell_core::units::{BitRate, Bytes, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Aggregate, AggregatePlan, AllToAll, BatchMode, Entropy, Fence, Flows, Lane, Right, Spread,
    Step, Transfer, TunerTable,
};
use crate::profile::Profile;
use crate::quantity::{Count, Positive, Quantity};

/// One program: who sends what to whom, and how it posts, rings and polls.
///
/// Every kind but `script` and `produce` is the same loop; the kind says what is waited for and
/// what is measured.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// What is measured.
    pub kind: ProgramKind,
    /// Name in results: with several programs its metrics are `name.metric`. Without it the word of
    /// its kind stands in messages, and of several programs each needs one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Host that posts.
    #[serde(default)]
    pub host: Count<0, 8191>,
    /// Hosts that post: `host` and those after it. Each has `threads` of its own.
    #[serde(default)]
    pub hosts: Count<1, 8192>,
    /// Host that it talks to.
    #[serde(default = "peer_one")]
    pub peer: Count<0, 8191>,
    /// NIC of the posting host, from 0: its queue pairs are there.
    #[serde(default)]
    pub nic: Count<0, 15>,
    /// NIC of the peer; without it the one of the same number (of the same rail).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_nic: Option<Count<0, 15>>,
    /// Who posts and polls.
    #[serde(default)]
    pub initiator: Initiator,
    /// What becomes of `initiator = "gpu"` where the device takes no doorbell of a GPU
    /// (`nic.gpu_doorbell`).
    #[serde(default)]
    pub fallback: Fallback,
    /// GPU of `initiator = "gpu"` and of memory in a GPU, from 0, on both sides. Which NIC it is
    /// near says `[[topology.nic]]`.
    #[serde(default)]
    pub gpu: Count<0, 63>,
    /// Socket of the posting cores, seen from the NIC.
    #[serde(default)]
    pub numa: Numa,
    /// Cores, or GPU blocks, that post.
    #[serde(default)]
    pub threads: Count<1, 1024>,
    /// Queue pairs per thread, or of all threads together with `share_qp`.
    #[serde(default)]
    pub qps: Count<1, 65536>,
    /// Whether all threads use the same queue pairs, under a lock, or each in its turn with `ring
    /// = "ordered"`.
    #[serde(default)]
    pub share_qp: bool,
    /// Threads, the last ones, that take the lock of shared queue pairs where the others submit in
    /// order: a mistake to be shown. Slots that they take are never passed over.
    #[serde(default)]
    pub bypass: Count<0, 1023>,
    /// The operation.
    #[serde(default)]
    pub op: Op,
    /// Bytes of a message. Atomics have 8.
    #[serde(default = "default_size")]
    pub size: Quantity<Bytes>,
    /// Bytes of a reply (`request-reply` only); without it as many as of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_size: Option<Quantity<Bytes>>,
    /// Messages per thread that are measured.
    #[serde(default = "default_iterations")]
    pub iterations: Count<1, { u32::MAX as u64 }>,
    /// Messages per thread before the measured ones. Where fewer than twice what is outstanding are
    /// measured behind them, the time of what was in front of these counts, and rates are lower.
    #[serde(default)]
    pub warmup: Count<0, { u32::MAX as u64 }>,
    /// Messages outstanding per queue pair; without it, as many as the send queue holds. Latency
    /// and ping-pong have one. Of requests those without a reply, which may be more than the send
    /// queue holds: a slot comes back with the ACK.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Count<1, { u32::MAX as u64 }>>,
    /// Messages that are rung together. Higher: fewer doorbells, the first message waits.
    #[serde(default)]
    pub batch: Count<1, 65536>,
    /// Longest time that a posted message waits for its batch to fill; without it, for ever.
    /// Longer: fuller batches, and the first message of each waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_delay: Option<Positive<Span>>,
    /// How a batch grows up to `batch`; without it, a batch is always of that size, also while the
    /// window is full, save the last one and what waits for a pace. With it, as with `spread`,
    /// messages go by a lane. Of `bandwidth` and `message-rate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_mode: Option<BatchMode>,
    /// Payload at which a batch is rung, though it has fewer messages than `batch`; without it
    /// there is no such limit. Higher: fewer doorbells for long messages, which gain little by
    /// that. With it, as with `spread`, messages go by a lane. Of `bandwidth` and `message-rate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_bytes: Option<Positive<Bytes>>,
    /// Time between two messages of a thread, in `produce` between two rounds, in `latency` between
    /// a completion and the next post; without it, as fast as it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Positive<Span>>,
    /// Each thread starts at a moment of its own within this time, drawn from the seed: bursts that
    /// know nothing of each other. Without it all start at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_spread: Option<Positive<Span>>,
    /// Messages of `produce` that become ready together, one per thread of a GPU block. The
    /// `iterations` are messages all the same. At most `slots`, and `qp.sq_depth` where the
    /// producer posts by itself: its round goes whole, while a proxy waits for room.
    #[serde(default)]
    pub per_round: Count<1, 65536>,
    /// Computation in front of each round of `produce`; without it none. Longer: fewer messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<Positive<Span>>,
    /// Time of a proxy's core for each message beside what the verbs cost: taking the command,
    /// decoding it; without it none. Higher: fewer messages of all its producers together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_work: Option<Positive<Span>>,
    /// Buffers of `produce`; without it, as many as the send queue holds. Fewer: rounds wait for
    /// completions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slots: Option<Count<1, 65536>>,
    /// Every n-th message makes a completion. Higher: fewer completions, slots come back later.
    #[serde(default)]
    pub signal_every: Count<1, 65536>,
    /// Payloads of at most this size go inline. Without it, what `qp.max_inline` grants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inline: Option<Quantity<Bytes>>,
    /// How doorbells are rung.
    #[serde(default)]
    pub ring: RingMode,
    /// Which GPU threads ring (`produce` on GPU initiators only; elsewhere `batch` says it).
    #[serde(default)]
    pub ring_by: RingBy,
    /// What orders a GPU's stores before its doorbell, or before it tells a proxy of its commands:
    /// `"none"`, `"device"` or `"system"`; `true` and `false` stand for `"system"` and `"none"`. A
    /// core's doorbell orders its stores by itself.
    #[serde(default)]
    pub fence: Fence,
    /// How completions are waited for.
    #[serde(default)]
    pub poll: Poll,
    /// How the peer waits for what its receives bring.
    #[serde(default)]
    pub peer_poll: PeerPoll,
    /// Completions taken per poll call.
    #[serde(default = "default_poll_batch")]
    pub poll_batch: Count<1, 65536>,
    /// Time between two polls, in `produce` of the proxy; without it, at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poll_interval: Option<Positive<Span>>,
    /// Whether bytes really move, or only their number.
    #[serde(default)]
    pub payload: Payload,
    /// Where the buffers of the posting host are.
    #[serde(default)]
    pub memory: Memory,
    /// Where the buffers of the peer are.
    #[serde(default)]
    pub peer_memory: Memory,
    /// Rights of the region of the posting host; without it, all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<Vec<Right>>,
    /// Rights of the regions that the peer offers and receives into; without it, all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_access: Option<Vec<Right>>,
    /// Receives that the peer posts for sends.
    #[serde(default)]
    pub receives: Receives,
    /// How long the peer takes to bring one queue pair to RTR and RTS, one after the other. The
    /// posting side does not wait for it: it has what it needs and sends, while the peer's queue
    /// pairs drop what comes in INIT. Without it, both sides are up before the first message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handshake: Option<Positive<Span>>,
    /// Service level of the program's queue pairs; without it that of `[qp]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sl: Option<Count<0, 15>>,
    /// Where the flow labels of its queue pairs come from: by them switches that hash choose paths.
    #[serde(default)]
    pub entropy: Entropy,
    /// Which of its queue pairs takes the next message; without it messages are dealt to them in
    /// turn, a like share each. Of `bandwidth` and `message-rate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<Spread>,
    /// Most payload per second that each thread sends, by a token bucket; without it there is no
    /// limit. Higher: sooner done, and more of it meets what others send. Of `bandwidth` and
    /// `message-rate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pace: Option<Positive<BitRate>>,
    /// Bytes that may go at once after a pause, with `pace`; without it one message. Higher: bursts
    /// pass unhindered, and the queues in front of the receiver must hold them. A batch never
    /// gathers more: what is staged goes when the next message waits for its pace. Of one message
    /// the rate stays a little below the pace: what would be allowed while the core is still busy
    /// with the last message is lost. Two or more have it exactly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<Positive<Bytes>>,
    /// Classes of messages with queue pairs of their own, of `bandwidth` and `message-rate`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lanes: Vec<Lane>,
    /// Time between two polls of the core that receives; without it, at once. Longer: receives
    /// come back later, in larger bursts, and a small pool runs dry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_poll_interval: Option<Positive<Span>>,
    /// Consumed receives that are posted again together. Higher: fewer calls, fewer receives in
    /// reserve.
    #[serde(default = "default_repost_batch")]
    pub repost_batch: Count<1, 65536>,
    /// Time that the receiving core spends on each buffer before it posts it again, beyond the
    /// profile's `cpu.post_recv`; without it none. Longer: receives come back later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repost_time: Option<Positive<Span>>,
    /// A tuner that turns `batch`, `signal_every` and `batch_delay` while the program runs
    /// (`bandwidth` and `message-rate` only), or, with lanes, the `pace` of the one that has one.
    /// It begins with the values given, which without it stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tuner: Option<TunerTable>,
    /// The steps of a script.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
    /// Who sends to whom, of `kind = "flows"`, which is nothing without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flows: Option<Flows>,
    /// Who adds for whom, of `kind = "aggregate"`, which is nothing without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregate: Option<Aggregate>,
    /// Who has what for whom, of `kind = "all-to-all"`, which is nothing without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all_to_all: Option<AllToAll>,
    /// By which path messages go, of `kind = "transfer"`, which is nothing without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transfer: Option<Transfer>,
}

impl Program {
    /// A program with every default.
    pub fn of_kind(kind: ProgramKind) -> Self {
        Self {
            kind,
            name: String::new(),
            host: Count::default(),
            hosts: Count::default(),
            peer: peer_one(),
            nic: Count::default(),
            peer_nic: None,
            initiator: Initiator::default(),
            fallback: Fallback::default(),
            gpu: Count::default(),
            numa: Numa::default(),
            threads: Count::default(),
            qps: Count::default(),
            share_qp: false,
            bypass: Count::default(),
            op: Op::default(),
            size: default_size(),
            reply_size: None,
            iterations: default_iterations(),
            warmup: Count::default(),
            window: None,
            batch: Count::default(),
            batch_delay: None,
            batch_mode: None,
            batch_bytes: None,
            interval: None,
            start_spread: None,
            per_round: Count::default(),
            work: None,
            proxy_work: None,
            slots: None,
            signal_every: Count::default(),
            inline: None,
            ring: RingMode::default(),
            ring_by: RingBy::default(),
            fence: Fence::default(),
            poll: Poll::default(),
            peer_poll: PeerPoll::default(),
            poll_batch: default_poll_batch(),
            poll_interval: None,
            payload: Payload::default(),
            memory: Memory::default(),
            peer_memory: Memory::default(),
            access: None,
            peer_access: None,
            receives: Receives::default(),
            handshake: None,
            sl: None,
            entropy: Entropy::default(),
            spread: None,
            pace: None,
            burst: None,
            lanes: Vec::new(),
            peer_poll_interval: None,
            repost_batch: default_repost_batch(),
            repost_time: None,
            tuner: None,
            steps: Vec::new(),
            flows: None,
            aggregate: None,
            all_to_all: None,
            transfer: None,
        }
    }
}

impl Program {
    /// Who posts in the place of the GPU, since the device takes no doorbell of it.
    pub fn falls_back(&self, profile: &Profile) -> Option<Initiator> {
        let decided = self.poster().decide(profile.nic.gpu_doorbell).ok()?;
        if !decided.fell_back() {
            return None;
        }
        match decided.by {
            Poster::Cpu => Some(Initiator::Cpu),
            Poster::Proxy if self.kind == ProgramKind::Produce => Some(Initiator::CpuProxy),
            Poster::Proxy | Poster::Gpu(_) => None,
        }
    }

    /// Whose ring announces the messages of a round.
    pub const fn leader(&self) -> Leader {
        match self.ring_by {
            RingBy::Block => Leader::Block,
            RingBy::Warp => Leader::Warp,
            RingBy::Thread => Leader::Thread,
        }
    }

    /// Who should post, and who instead.
    pub const fn poster(&self) -> PostConfig {
        let by = match self.initiator {
            Initiator::Cpu => Poster::Cpu,
            Initiator::Gpu => Poster::Gpu(self.leader()),
            Initiator::CpuProxy => Poster::Proxy,
        };
        let fallback = match self.fallback {
            Fallback::Refuse => policy::Fallback::Refuse,
            Fallback::CpuProxy => policy::Fallback::CpuProxy,
            Fallback::Cpu => policy::Fallback::Cpu,
        };
        PostConfig { by, fallback }
    }

    /// Whether the switches say which hosts are together.
    #[cfg_attr(not(feature = "hw"), expect(dead_code, reason = "the simulator needs them anyway"))]
    pub(crate) fn is_grouped_by_switch(&self) -> bool {
        let grouped = |a: &Aggregate| {
            a.group.is_none() && matches!(a.plan, AggregatePlan::TwoHop | AggregatePlan::TwoLevel)
        };
        self.aggregate.as_ref().is_some_and(grouped)
            || self.all_to_all.as_ref().is_some_and(|a| a.group.is_none())
    }

    /// NIC of the peer.
    pub fn nic_of_peer(&self) -> u8 {
        self.peer_nic.map_or(self.nic.value(), |n| n.value()) as u8
    }
}

pub(super) const fn peer_one() -> Count<0, 8191> {
    Count::of(1)
}

pub(super) const fn default_size() -> Quantity<Bytes> {
    Quantity(Bytes(8))
}

const fn default_iterations() -> Count<1, { u32::MAX as u64 }> {
    Count::of(1000)
}

const fn default_poll_batch() -> Count<1, 65536> {
    Count::of(16)
}

const fn default_repost_batch() -> Count<1, 65536> {
    Count::of(16)
}

/// What a program measures.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProgramKind {
    /// Time from the post to the completion, one message at a time.
    Latency,
    /// Half of the round trip of a message and its answer.
    PingPong,
    /// Requests by SEND and their replies, `window` of them outstanding per queue pair. Time from
    /// the hand-over of a request to its reply; bytes are those of both. With `payload = "data"`
    /// both sides check every byte, and one that is wrong is a violation.
    RequestReply,
    /// Payload per second with a full window.
    Bandwidth,
    /// Messages per second with a full window.
    MessageRate,
    /// The calls in `steps`, in order.
    Script,
    /// Messages become ready in rounds, and who produces them posts them, or a proxy does. Time
    /// from "ready" to the news of its completion; with `payload = "data"` the peer checks every
    /// byte.
    Produce,
    /// Transfers between many hosts, by a pattern or a list; see `flows`. Time from a flow's start
    /// to its completion.
    Flows,
    /// The vectors of many hosts become one sum; see `aggregate`. Time from the start of a round to
    /// the sum.
    Aggregate,
    /// Every host has bytes for every other one, or tokens for experts; see `all_to_all`. Time from
    /// the start of a round until a host has all that is for it.
    AllToAll,
    /// Messages by a path of the host that is stated as a whole, copies, registrations or TCP; see
    /// `transfer`. Time from a message's hand-over to the word of the peer's application.
    Transfer,
}

/// Who posts and polls.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Initiator {
    /// CPU cores.
    #[default]
    Cpu,
    /// GPU blocks, with queues and doorbell mapped into the GPU.
    Gpu,
    /// GPU blocks produce and write commands, a CPU core reads them, posts and polls (`produce`
    /// only).
    CpuProxy,
}

impl Initiator {
    /// The word in files.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Gpu => "gpu",
            Self::CpuProxy => "cpu-proxy",
        }
    }
}

/// What becomes of a GPU's posting where the device takes no doorbell of it.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Fallback {
    /// The scenario is refused.
    #[default]
    Refuse,
    /// A CPU core posts for the GPU (`produce` only), and the report says so.
    CpuProxy,
    /// A CPU core runs the whole program, with its data where it is, and the report says so.
    Cpu,
}

/// Socket of a core, seen from the NIC.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Numa {
    /// The NIC's socket.
    #[default]
    Local,
    /// Another socket.
    Remote,
}

/// The operation of a message.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Op {
    /// RDMA WRITE.
    #[default]
    Write,
    /// RDMA WRITE with immediate; takes a receive of the peer.
    WriteImm,
    /// SEND; takes a receive of the peer.
    Send,
    /// SEND with immediate; takes a receive of the peer.
    SendImm,
    /// SEND that invalidates a key of the peer; takes a receive of the peer.
    SendInv,
    /// RDMA READ.
    Read,
    /// Atomic compare and swap of 8 bytes.
    CmpSwap,
    /// Atomic fetch and add of 8 bytes.
    FetchAdd,
}

impl Op {
    /// The word in files.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::WriteImm => "write-imm",
            Self::Send => "send",
            Self::SendImm => "send-imm",
            Self::SendInv => "send-inv",
            Self::Read => "read",
            Self::CmpSwap => "cmp-swap",
            Self::FetchAdd => "fetch-add",
        }
    }

    /// All operations.
    pub const ALL: [Self; 8] = [
        Self::Write,
        Self::WriteImm,
        Self::Send,
        Self::SendImm,
        Self::SendInv,
        Self::Read,
        Self::CmpSwap,
        Self::FetchAdd,
    ];

    /// Whether it is an atomic, which always has 8 bytes.
    pub const fn is_atomic(self) -> bool {
        matches!(self, Self::CmpSwap | Self::FetchAdd)
    }

    /// Whether its payload may go inline: only what the requester sends.
    pub const fn takes_inline(self) -> bool {
        matches!(self, Self::Write | Self::WriteImm) || self.is_send()
    }

    /// Whether it takes a receive of the peer.
    pub const fn takes_receive(self) -> bool {
        matches!(self, Self::WriteImm) || self.is_send()
    }

    /// Whether it names a key of the peer.
    pub const fn names_a_key(self) -> bool {
        !matches!(self, Self::Send | Self::SendImm)
    }

    const fn is_send(self) -> bool {
        matches!(self, Self::Send | Self::SendImm | Self::SendInv)
    }
}

/// How doorbells are rung.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RingMode {
    /// BlueFlame where the driver's rule allows it, else the doorbell.
    #[default]
    Auto,
    /// Always the 8-byte doorbell.
    Doorbell,
    /// BlueFlame; a doorbell where the rule forbids it: several WQEs, or one beyond `nic.bf_bytes`.
    Blueflame,
    /// The doorbell, but with `share_qp` a thread that posts one message leaves it to the next one
    /// that waits for the lock.
    Combined,
    /// The doorbell, but with `share_qp` each thread takes its slots first and announces them when
    /// all before them are, instead of holding the lock while it writes them.
    Ordered,
}

impl RingMode {
    /// The word in files.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Doorbell => "doorbell",
            Self::Blueflame => "blueflame",
            Self::Combined => "combined",
            Self::Ordered => "ordered",
        }
    }
}

/// Which GPU threads ring.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RingBy {
    /// One leader per block, for all messages of the block.
    #[default]
    Block,
    /// One lane per warp of 32 threads.
    Warp,
    /// Every thread for its own message.
    Thread,
}

/// How completions are waited for.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Poll {
    /// Polling all the time.
    #[default]
    Busy,
    /// Sleeping until the completion event.
    Event,
}

/// How a peer waits for what its receives bring.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PeerPoll {
    /// Polling all the time.
    #[default]
    Busy,
    /// Sleeping until the completion event.
    Event,
    /// Sleeping until the event of a solicited receive, or of an error. Scripts only: no other
    /// program posts `solicited`.
    Solicited,
}

/// Whether bytes really move.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Payload {
    /// Bytes move and are checked.
    Data,
    /// Only lengths; for scale.
    #[default]
    Virtual,
}

/// Where buffers are.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Memory {
    /// Host memory on the NIC's socket.
    #[default]
    Host,
    /// Host memory on another socket.
    HostRemote,
    /// Device memory of a GPU.
    Gpu,
}

/// Receives that the peer posts.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Receives {
    /// The receive queue is kept full.
    #[default]
    Refill,
    /// It is filled once.
    Once,
    /// None.
    None,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::{Node, Source};

    #[test]
    fn the_defaults_of_the_code_are_those_of_the_file() {
        let read: Program =
            Node::parse(&Source::new("p", "kind = 'latency'")).unwrap().read().unwrap();
        let made = Program::of_kind(ProgramKind::Latency);
        assert_eq!(toml::to_string(&read).unwrap(), toml::to_string(&made).unwrap());
    }
}
