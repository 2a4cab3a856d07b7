//! Two programs become peers: objects, the exchange of endpoints, INIT, RTR, RTS, ready.
//!
//! Each program of a pair publishes one *card* per QP (endpoint, address, length and key of the
//! memory that it offers) under a key that names the peer, so that any number of QPs and programs
//! of a host pair coexist. Nobody sends before the peer has published that its queues are at
//! least in RTR and its receives are posted.

use doorbell_core::policy::lanes::FlowLabels;
use doorbell_core::transport::{
    Address, Contents, Control, CqId, Endpoint, LookupError, MemKind, Mr, Next, PdId, QpAttr, QpId,
    QpInit, QpSize, RcParams, RecvQueue, Remote, SrqId, UdDest, WaitSet,
};
use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::{
    AccessFlags, Mtu, QKey, QpAttrMask, QpState, QpType, Rkey, ServiceLevel,
};

use super::common::Failure;
use super::protect::Buffer;

/// What a bootstrap key is about.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Topic {
    /// The card of a QP.
    Card = 1,
    /// "My queues take packets and my receives are posted."
    Ready = 2,
    /// "I shall send no more", with the number of messages that took receives.
    Done = 3,
    /// A shared QP.
    SharedQp = 4,
    /// A shared memory region.
    SharedMr = 5,
    /// A sharer of a QP has posted its last, with its counts.
    SharerDone = 6,
    /// A script asks its peer to post receives.
    PostReceives = 7,
    /// The peer has posted them.
    ReceivesPosted = 8,
    /// A script asks its peer to move a QP.
    ModifyQp = 20,
    /// The peer has done it, or the verbs refused it.
    QpModified = 21,
    /// A region that its owner has deregistered.
    StaleRegion = 22,
    /// A region of another protection domain.
    ForeignRegion = 23,
    /// A script asks its peer to deregister the region that it offers.
    Deregister = 24,
    /// The peer has deregistered it.
    Deregistered = 25,
}

/// The key under which a rank publishes item `index` of `topic` for rank `peer`.
///
/// # Panics
/// When `index` does not fit 24 bits.
pub const fn key(topic: Topic, peer: u32, index: u32) -> u64 {
    assert!(index < 1 << 24, "more items than a bootstrap key can name");
    (topic as u64) << 56 | (peer as u64) << 24 | index as u64
}

/// Memory and completion queues of a program.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct LocalConfig {
    /// Where the payload is: host memory or a GPU's.
    pub memory: MemKind,
    /// Whether the payload's bytes exist. Virtual: only lengths, for scale.
    pub contents: Contents,
    /// Bytes of the region, for the own messages and as a target of the peer's.
    pub region_bytes: u64,
    /// Rights of the region.
    pub access: AccessFlags,
    /// Entries of each of the two completion queues. Fewer than what can be outstanding: the
    /// queue may overrun, which loses it and its QPs.
    pub cq_depth: u32,
    /// Receives that fit a shared receive queue, from which all QPs of the program take; `None`:
    /// each QP has a queue of its own. Fewer: less memory, and a burst on any QP takes from all.
    pub srq_depth: Option<u32>,
}

impl Default for LocalConfig {
    /// 1 MiB of host memory on NUMA node 0, 4,096 completions, no shared receive queue.
    fn default() -> Self {
        Self {
            memory: MemKind::Host { numa: 0 },
            contents: Contents::Data,
            region_bytes: 1 << 20,
            access: ALL_RIGHTS,
            cq_depth: 4096,
            srq_depth: None,
        }
    }
}

/// The objects of [`LocalConfig`].
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Local {
    /// Protection domain.
    pub pd: PdId,
    /// Completions of sends.
    pub send_cq: CqId,
    /// Completions of receives.
    pub recv_cq: CqId,
    /// Memory that is offered to peers.
    pub mr: Mr,
    /// Shared receive queue of all QPs.
    pub srq: Option<SrqId>,
}

/// Every right that a peer can have.
pub const ALL_RIGHTS: AccessFlags = AccessFlags::LOCAL_WRITE
    .union(AccessFlags::REMOTE_WRITE)
    .union(AccessFlags::REMOTE_READ)
    .union(AccessFlags::REMOTE_ATOMIC);

impl Local {
    /// Creates them.
    ///
    /// # Errors
    /// What the back end refuses.
    pub fn open<T: Control>(t: &mut T, c: &LocalConfig) -> Result<Self, Failure> {
        let pd = t.create_pd()?;
        let mr = t.alloc_mr(pd, c.region_bytes, c.memory, c.access, c.contents)?;
        let send_cq = t.create_cq(c.cq_depth)?;
        let recv_cq = t.create_cq(c.cq_depth)?;
        let srq = c.srq_depth.map(|depth| t.create_srq(pd, depth)).transpose()?;
        Ok(Self { pd, send_cq, recv_cq, mr, srq })
    }

    /// Where receives for `qp` are posted.
    pub fn receives_of(&self, qp: QpId) -> RecvQueue {
        self.srq.map_or(RecvQueue::Qp(qp), RecvQueue::Srq)
    }
}

/// Most lanes of a program.
pub const MAX_LANES: usize = 8;

/// Most QPs of each of several lanes of a link.
pub const MAX_QPS_OF_LANE: u64 = u16::MAX as u64;

/// Service levels of the QPs of a link, by lanes. Small, since every link has one.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Levels {
    /// QPs of each lane, in the order of the link.
    qps: [u16; MAX_LANES],
    /// Their levels, four bits each.
    levels: u32,
}

impl Levels {
    /// The levels of lanes with so many QPs each.
    ///
    /// # Panics
    /// With more than [`MAX_LANES`], or with more than [`MAX_QPS_OF_LANE`] in one.
    pub fn new(lanes: impl IntoIterator<Item = (u32, ServiceLevel)>) -> Self {
        let mut levels = Self::default();
        for (i, (qps, sl)) in lanes.into_iter().enumerate() {
            assert!(i < MAX_LANES, "more lanes than {MAX_LANES}");
            levels.qps[i] = qps.try_into().expect("more QPs than a lane has");
            levels.levels |= u32::from(sl.code()) << (4 * i);
        }
        levels
    }

    /// The level of QP `i`; `None` behind the last lane.
    pub fn of(&self, i: u32) -> Option<ServiceLevel> {
        let mut end = 0;
        let lane = self.qps.iter().position(|qps| {
            end += u32::from(*qps);
            i < end
        })?;
        ServiceLevel::new((self.levels >> (4 * lane)) as u8 & ServiceLevel::MAX_CODE)
    }
}

/// A bundle of QPs between two programs. Both sides need the same `qps` and `ty`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct LinkConfig {
    /// Rank of the peer program.
    pub peer: u32,
    /// Queue pairs. More: more parallelism in the NIC, more contexts in its cache.
    pub qps: u32,
    /// Service type.
    pub ty: QpType,
    /// Sizes asked for.
    pub size: QpSize,
    /// Time-outs, retries, rights and the other attributes. State, PSNs, QPN, path and path MTU
    /// are filled in.
    pub attr: QpAttr,
    /// Path MTU; `None`: the smaller one of both ports.
    pub path_mtu: Option<Mtu>,
    /// Where the work queues are. A GPU block that posts wants them in its own memory, or pays
    /// PCIe for each WQE.
    pub queue_memory: MemKind,
    /// Flow labels of the QPs, by which switches that hash tell them apart.
    pub labels: FlowLabels,
    /// Service levels of QPs that have another one than `attr` says.
    pub levels: Levels,
    /// Whether every send is signalled, whatever its flags say.
    pub signal_all: bool,
    /// How long the exchange may take.
    pub deadline: Span,
    /// How long this side takes to bring one QP to RTR and RTS, one after the other; `None`: it is
    /// done at once. The peer does not wait for it: this side says that it is ready with its QPs in
    /// INIT, where they drop what comes.
    pub handshake: Option<Span>,
}

impl LinkConfig {
    /// One RC QP to `peer`: 128 sends, 128 receives, one SGE, no inline bytes, all rights, port
    /// MTU, queues in host memory, one second for the exchange.
    pub fn to(peer: u32) -> Self {
        Self {
            peer,
            qps: 1,
            ty: QpType::Rc,
            size: QpSize { max_send_wr: 128, max_recv_wr: 128, max_send_sge: 1, max_inline: 0 },
            attr: QpAttr { access: ALL_RIGHTS, qkey: QKey(0x1111_1111), ..QpAttr::default() },
            path_mtu: None,
            queue_memory: MemKind::Host { numa: 0 },
            labels: FlowLabels::Device,
            levels: Levels::default(),
            signal_all: false,
            deadline: Span::from_ms(1000),
            handshake: None,
        }
    }
}

/// Memory that a program offers to its peer.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Target {
    /// First address and key.
    pub remote: Remote,
    /// Bytes.
    pub len: u64,
}

impl Target {
    /// The `len` bytes at `offset` of a region.
    ///
    /// # Panics
    /// When they do not lie in it.
    pub fn part_of(mr: &Mr, offset: u64, len: u64) -> Self {
        assert!(mr.range(offset, len).is_some(), "{offset}..+{len} of {} B", mr.len);
        Self { remote: Remote { addr: mr.addr + offset, rkey: mr.rkey }, len }
    }

    /// The whole region.
    pub fn whole(mr: &Mr) -> Self {
        Self::part_of(mr, 0, mr.len)
    }

    /// The same memory with its first `bytes` left out.
    pub const fn shifted(&self, bytes: u64) -> Self {
        Self { remote: self.at(bytes), len: self.len.saturating_sub(bytes) }
    }

    /// The address at `offset`.
    pub const fn at(&self, offset: u64) -> Remote {
        Remote { addr: self.remote.addr.wrapping_add(offset), rkey: self.remote.rkey }
    }

    /// Bytes of the encoded form.
    pub const ENCODED_BYTES: usize = 20;

    /// Encodes, big-endian.
    pub fn encode(&self) -> [u8; Self::ENCODED_BYTES] {
        let mut out = [0; Self::ENCODED_BYTES];
        out[..8].copy_from_slice(&self.remote.addr.to_be_bytes());
        out[8..16].copy_from_slice(&self.len.to_be_bytes());
        out[16..].copy_from_slice(&self.remote.rkey.0.to_be_bytes());
        out
    }

    /// Decodes.
    pub fn decode(bytes: &[u8; Self::ENCODED_BYTES]) -> Self {
        let u64_at = |i: usize| u64::from_be_bytes(bytes[i..i + 8].try_into().expect("8 bytes"));
        let rkey = Rkey(u32::from_be_bytes(bytes[16..].try_into().expect("4 bytes")));
        Self { remote: Remote { addr: u64_at(0), rkey }, len: u64_at(8) }
    }
}

/// What is published for a QP.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Card {
    /// The QP.
    pub endpoint: Endpoint,
    /// Memory for the peer.
    pub target: Target,
}

impl Card {
    /// Bytes of the encoded form.
    pub const ENCODED_BYTES: usize = Endpoint::ENCODED_BYTES + Target::ENCODED_BYTES;

    /// Encodes, big-endian.
    pub fn encode(&self) -> [u8; Self::ENCODED_BYTES] {
        const E: usize = Endpoint::ENCODED_BYTES;
        let mut out = [0; Self::ENCODED_BYTES];
        out[..E].copy_from_slice(&self.endpoint.encode());
        out[E..].copy_from_slice(&self.target.encode());
        out
    }

    /// Decodes; `None` for anything else.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (endpoint, rest) = bytes.split_at_checked(Endpoint::ENCODED_BYTES)?;
        let target = Target::decode(rest.try_into().ok()?);
        Some(Self { endpoint: Endpoint::decode(endpoint)?, target })
    }

    /// The card that `owner` published for item `index` of its link to `reader`.
    ///
    /// # Errors
    /// [`Failure::BadCard`], and [`Failure::Lookup`] when it can never come.
    pub fn lookup<T: Control>(
        t: &mut T,
        owner: u32,
        reader: u32,
        index: u32,
    ) -> Result<Option<Self>, Failure> {
        let mut bytes = [0; Self::ENCODED_BYTES];
        let Some(len) = t.lookup(owner, key(Topic::Card, reader, index), &mut bytes)? else {
            return Ok(None);
        };
        let card = if len == bytes.len() { Self::decode(&bytes) } else { None };
        card.map(Some).ok_or(Failure::BadCard { peer: owner })
    }
}

/// A connected QP.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Lane {
    /// The QP.
    pub qp: QpId,
    /// The peer's memory.
    pub remote: Target,
    /// Destination of datagrams.
    pub dest: Option<UdDest>,
}

/// Which of a program's lanes a QP is, by the index of its handle.
#[derive(Clone, Debug, Default)]
pub struct LaneOf(Vec<usize>);

impl LaneOf {
    /// The lanes in their order.
    pub fn new(lanes: &[Lane]) -> Self {
        let mut by_index = vec![];
        for (i, lane) in lanes.iter().enumerate() {
            let at = lane.qp.index() as usize;
            by_index.resize(by_index.len().max(at + 1), usize::MAX);
            by_index[at] = i;
        }
        Self(by_index)
    }

    /// Place of the lane with this QP.
    ///
    /// # Panics
    /// Where the QP's index is above those of all lanes.
    pub fn of(&self, qp: QpId) -> usize {
        self.0[qp.index() as usize]
    }
}

/// What [`Connect::step`] wants.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Progress {
    /// Return this and call again.
    Wait(Next),
    /// The QPs are in RTS. Post the first receives, then call [`Connect::announce`].
    Linked,
    /// The peer takes messages.
    Ready,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Stage {
    Start,
    Exchange,
    Linked,
    Announced,
    Ready,
}

/// Connects the QPs of one link.
#[derive(Clone, Debug)]
pub struct Connect {
    config: LinkConfig,
    stage: Stage,
    began: Time,
    lanes: Vec<Lane>,
    linked: usize,
    /// INIT, RTR and RTS of each QP.
    steps: Vec<[(QpAttr, QpAttrMask); 3]>,
    /// With a handshake that takes time: QPs that went on from INIT, and since when.
    served: Option<(usize, Time)>,
}

impl Connect {
    /// Nothing has happened yet.
    pub fn new(config: LinkConfig) -> Self {
        Self {
            config,
            stage: Stage::Start,
            began: Time::ZERO,
            lanes: vec![],
            linked: 0,
            steps: vec![],
            served: None,
        }
    }

    /// The configuration.
    pub fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// The transitions that connected QP `i`, from RESET on: INIT, RTR, RTS.
    pub fn steps(&self, i: u32) -> Option<&[(QpAttr, QpAttrMask); 3]> {
        self.steps.get(i as usize)
    }

    /// The QPs; usable once the link is ready.
    pub fn lanes(&self) -> &[Lane] {
        &self.lanes
    }

    /// One step: goes as far as possible, then says what is missing.
    ///
    /// # Errors
    /// What the back end refuses, and [`Failure::NoPeer`] after the deadline.
    pub fn step<T: Control>(
        &mut self,
        t: &mut T,
        local: &Local,
        offer: Target,
    ) -> Result<Progress, Failure> {
        if self.stage == Stage::Start {
            self.create(t, local, offer)?;
            self.stage = Stage::Exchange;
        }
        if self.stage == Stage::Exchange {
            while let Some(i) = (self.linked < self.lanes.len()).then_some(self.linked) {
                let me = t.rank();
                let Some(card) = Card::lookup(t, self.config.peer, me, i as u32)? else {
                    return self.wait(t, "its endpoint");
                };
                self.link(t, local, i, &card)?;
                self.linked += 1;
            }
            if let Some(next) = self.serve(t)? {
                return Ok(Progress::Wait(next));
            }
            self.stage = Stage::Linked;
        }
        match self.stage {
            Stage::Linked => return Ok(Progress::Linked),
            Stage::Announced => {
                let ready = key(Topic::Ready, t.rank(), 0);
                if t.lookup(self.config.peer, ready, &mut [])?.is_none() {
                    return self.wait(t, "that it is ready");
                }
                self.stage = Stage::Ready;
            }
            _ => {}
        }
        Ok(Progress::Ready)
    }

    /// Tells the peer that it may send.
    pub fn announce<T: Control>(&mut self, t: &mut T) {
        debug_assert_eq!(self.stage, Stage::Linked);
        t.publish(key(Topic::Ready, self.config.peer, 0), &[]);
        self.stage = Stage::Announced;
    }

    /// Serves the handshakes of its QPs, one after the other; what to wait for, if any is left.
    fn serve<T: Control>(&mut self, t: &mut T) -> Result<Option<Next>, Failure> {
        let Some(each) = self.config.handshake else { return Ok(None) };
        let (mut served, since) = match self.served {
            Some(served) => served,
            None => {
                t.publish(key(Topic::Ready, self.config.peer, 0), &[]);
                (0, t.now())
            }
        };
        while let Some(lane) = self.lanes.get(served) {
            let due = since + each * (served as u64 + 1);
            if t.now() < due {
                self.served = Some((served, since));
                return Ok(Some(Next::Wait { on: WaitSet::EMPTY, until: Some(due) }));
            }
            for (attr, mask) in &self.steps[served][1..] {
                t.modify_qp(lane.qp, attr, *mask)?;
            }
            served += 1;
        }
        Ok(None)
    }

    fn wait<T: Control>(&self, t: &T, what: &'static str) -> Result<Progress, Failure> {
        let until = self.began + self.config.deadline;
        if t.now() >= until {
            return Err(Failure::NoPeer { peer: self.config.peer, what });
        }
        Ok(Progress::Wait(Next::Wait { on: WaitSet::BOOTSTRAP, until: Some(until) }))
    }

    fn create<T: Control>(&mut self, t: &mut T, l: &Local, offer: Target) -> Result<(), Failure> {
        self.began = t.now();
        let c = &self.config;
        let init = QpInit {
            ty: c.ty,
            pd: l.pd,
            send_cq: l.send_cq,
            recv_cq: l.recv_cq,
            srq: l.srq,
            size: c.size,
            sq_sig_all: c.signal_all,
            queue_memory: c.queue_memory,
        };
        for i in 0..c.qps {
            let qp = t.create_qp(&init)?;
            let endpoint = t.endpoint(qp).map_err(|_| CARD_OF_A_FRESH_QP)?;
            let card = Card { endpoint, target: offer };
            t.publish(key(Topic::Card, c.peer, i), &card.encode());
            self.lanes.push(Lane { qp, remote: Target::default(), dest: None });
        }
        Ok(())
    }

    /// The least path MTU of its queue pairs; `None` before they are linked.
    pub fn path_mtu(&self) -> Option<Mtu> {
        self.steps.iter().flatten().map(|(attr, _)| attr.path_mtu).min()
    }

    fn link<T: Control>(
        &mut self,
        t: &mut T,
        local: &Local,
        i: usize,
        card: &Card,
    ) -> Result<(), Failure> {
        let (c, qp) = (&self.config, self.lanes[i].qp);
        let mine = t.endpoint(qp).map_err(|_| CARD_OF_A_FRESH_QP)?;
        let path_mtu = c.path_mtu.unwrap_or(mine.mtu.min(card.endpoint.mtu));
        let sl = c.levels.of(i as u32).unwrap_or(c.attr.path.sl);
        let path = Address { sl, flow_label: c.labels.of(i as u32), ..c.attr.path };
        let attr = QpAttr { path_mtu, path, ..c.attr };
        let steps = steps(c.ty, attr, &mine, &card.endpoint);
        let at_once = if c.handshake.is_some() { 1 } else { steps.len() };
        for (attr, mask) in &steps[..at_once] {
            t.modify_qp(qp, attr, *mask)?;
        }
        self.steps.push(steps);
        self.lanes[i].remote = card.target;
        if c.ty == QpType::Ud {
            let to = attr.path.towards(card.endpoint.address);
            let ah = t.create_ah(local.pd, to)?;
            self.lanes[i].dest = Some(UdDest { ah, qpn: card.endpoint.qpn, qkey: c.attr.qkey });
        }
        Ok(())
    }
}

/// Memory, completion queues and one link: what a program with a single peer needs.
#[derive(Clone, Debug)]
pub struct Client {
    config: LocalConfig,
    connect: Connect,
    local: Option<Local>,
}

impl Client {
    /// Nothing has happened yet.
    pub fn new(local: LocalConfig, link: LinkConfig) -> Self {
        Self { config: local, connect: Connect::new(link), local: None }
    }

    /// One with memory and no link.
    #[cfg(test)]
    pub(super) fn with_memory(local: Local) -> Self {
        let client = Self::new(LocalConfig::default(), LinkConfig::to(0));
        Self { local: Some(local), ..client }
    }

    /// See [`Connect::path_mtu`].
    pub fn path_mtu(&self) -> Option<Mtu> {
        self.connect.path_mtu()
    }

    /// Goes on until the peer takes messages; then `None`. `linked` posts the first receives.
    ///
    /// # Errors
    /// See [`Connect::step`].
    pub fn up<T: Control>(
        &mut self,
        t: &mut T,
        linked: impl FnOnce(&mut T, &Local, &[Lane]) -> Result<(), Failure>,
    ) -> Result<Option<Next>, Failure> {
        let local = match self.local {
            Some(l) => l,
            None => *self.local.insert(Local::open(t, &self.config)?),
        };
        let offer = Target::whole(&local.mr);
        let mut progress = self.connect.step(t, &local, offer)?;
        if progress == Progress::Linked {
            linked(t, &local, &self.connect.lanes)?;
            self.connect.announce(t);
            progress = self.connect.step(t, &local, offer)?;
        }
        match progress {
            Progress::Wait(next) => Ok(Some(next)),
            Progress::Linked | Progress::Ready => Ok(None),
        }
    }

    /// Memory and completion queues.
    ///
    /// # Panics
    /// Before the first [`Client::up`].
    pub fn local(&self) -> &Local {
        self.local.as_ref().expect("up was called")
    }

    /// The QPs.
    pub fn lanes(&self) -> &[Lane] {
        self.connect.lanes()
    }

    /// The transitions that connected QP `i`, from RESET on: INIT, RTR, RTS.
    pub fn steps(&self, i: u32) -> Option<&[(QpAttr, QpAttrMask); 3]> {
        self.connect.steps(i)
    }

    /// Rank of the peer.
    pub fn peer(&self) -> u32 {
        self.connect.config.peer
    }

    /// Checks that both regions hold `need` bytes.
    ///
    /// # Errors
    /// [`Failure::OwnRegion`], [`Failure::PeerRegion`].
    pub fn require(&self, need: u64) -> Result<(), Failure> {
        let own = self.local().mr.len;
        if own < need {
            return Err(Failure::OwnRegion { got: own, need });
        }
        match self.lanes().iter().map(|l| l.remote.len).find(|&got| got < need) {
            Some(got) => Err(Failure::PeerRegion { peer: self.peer(), got, need }),
            None => Ok(()),
        }
    }
}

const CARD_OF_A_FRESH_QP: Failure = Failure::Config("a QP that was just created has no endpoint");

/// INIT, RTR and RTS with the exact masks of the service type.
pub fn steps(
    ty: QpType,
    attr: QpAttr,
    local: &Endpoint,
    peer: &Endpoint,
) -> [(QpAttr, QpAttrMask); 3] {
    use QpAttrMask as M;
    let mut steps = RcParams { attr }.steps(local, peer);
    let masks = match ty {
        QpType::Ud => [M::PKEY_INDEX | M::PORT | M::QKEY, M::empty(), M::SQ_PSN],
        QpType::Uc => [
            M::PKEY_INDEX | M::PORT | M::ACCESS_FLAGS,
            M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN,
            M::SQ_PSN,
        ],
        _ => return steps,
    };
    for ((_, mask), own) in steps.iter_mut().zip(masks) {
        *mask = M::STATE | own;
    }
    debug_assert_eq!(steps[2].0.state, QpState::Rts);
    steps
}

/// Tells `peer` that no more comes; `receives` messages have taken a receive.
pub fn publish_done<T: Control>(t: &mut T, peer: u32, receives: u64) {
    t.publish(key(Topic::Done, peer, 0), &receives.to_be_bytes());
}

/// What `peer` said with [`publish_done`].
///
/// # Errors
/// [`LookupError`]: it has ended without a word.
pub fn lookup_done<T: Control>(t: &mut T, peer: u32) -> Result<Option<u64>, LookupError> {
    let mut bytes = [0; 8];
    let me = t.rank();
    let found = t.lookup(peer, key(Topic::Done, me, 0), &mut bytes)?;
    Ok(found.map(|_| u64::from_be_bytes(bytes)))
}

/// Tells `peer` how many messages of `source` have ended with success; before
/// [`publish_done`].
pub fn publish_sent<T: Control>(t: &mut T, peer: u32, source: u16, n: u64) {
    t.publish(key(Topic::Done, peer, 1 + u32::from(source)), &n.to_be_bytes());
}

/// What `peer` said of `source` with [`publish_sent`].
///
/// # Errors
/// [`LookupError`]: it has ended without a word.
pub fn lookup_sent<T: Control>(
    t: &mut T,
    peer: u32,
    source: u16,
) -> Result<Option<u64>, LookupError> {
    let (mut bytes, me) = ([0; 8], t.rank());
    let found = t.lookup(peer, key(Topic::Done, me, 1 + u32::from(source)), &mut bytes)?;
    Ok(found.map(|_| u64::from_be_bytes(bytes)))
}

/// Receives that a script asks its peer to post.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ReceiveOrder {
    /// QP within the link.
    pub qp: u32,
    /// How many.
    pub count: u32,
    /// Bytes of each buffer.
    pub bytes: u32,
    /// Where the buffers are.
    pub buffer: Buffer,
}

impl ReceiveOrder {
    /// Publishes order number `n` for `peer`.
    pub fn publish<T: Control>(&self, t: &mut T, peer: u32, n: u32) {
        let mut out = [0; 16];
        let words = [self.qp, self.count, self.bytes, self.buffer as u32];
        for (chunk, v) in out.chunks_exact_mut(4).zip(words) {
            chunk.copy_from_slice(&v.to_be_bytes());
        }
        t.publish(key(Topic::PostReceives, peer, n), &out);
    }

    /// Order number `n` of `peer`, if it has come. A peer that has ended gives no more, and need
    /// not have given any.
    pub fn lookup<T: Control>(t: &mut T, peer: u32, n: u32) -> Option<Self> {
        let (mut b, me) = ([0; 16], t.rank());
        t.lookup(peer, key(Topic::PostReceives, me, n), &mut b).ok()??;
        let at = |i: usize| u32::from_be_bytes(b[i..i + 4].try_into().expect("4 bytes"));
        let buffer = Buffer::from_number(at(12));
        Some(Self { qp: at(0), count: at(4), bytes: at(8), buffer })
    }

    /// Tells who gave order number `n` that it was carried out, or of the state of the QP that
    /// takes no receives.
    pub fn confirm<T: Control>(t: &mut T, peer: u32, n: u32, refused: Option<QpState>) {
        let answer = refused.map_or(u8::MAX, |state| state as u8);
        t.publish(key(Topic::ReceivesPosted, peer, n), &[answer]);
    }

    /// The state in the answer to an order, if it was refused.
    pub fn refused(answer: u8) -> Option<QpState> {
        QpState::try_from(u32::from(answer)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use doorbell_core::transport::Address;
    use doorbell_core::verbs::{Psn, Qpn, check_transition};

    fn endpoint() -> Endpoint {
        let address = Address { lid: 7, gid: [9; 16], ..Address::default() };
        Endpoint { address, qpn: Qpn::new(77), psn: Psn::new(0xFF_FFFF), mtu: Mtu::B2048 }
    }

    #[test]
    fn cards_survive_the_bootstrap() {
        let remote = Remote { addr: u64::MAX - 8, rkey: Rkey(0xDEAD_BEEF) };
        let card = Card { endpoint: endpoint(), target: Target { remote, len: 8 } };
        let bytes = card.encode();
        assert_eq!(Card::decode(&bytes), Some(card));
        assert_eq!(Card::decode(&bytes[1..]), None);
        assert_eq!(Card::decode(&[]), None);
    }

    #[test]
    fn each_lane_has_its_level_and_what_is_behind_them_none() {
        let sl = |n| ServiceLevel::new(n).unwrap();
        let levels = Levels::new([(2, sl(3)), (0, sl(9)), (1, sl(0)), (1, sl(15))]);
        let of: Vec<_> = (0..5).map(|i| levels.of(i).map(ServiceLevel::code)).collect();
        assert_eq!(of, [Some(3), Some(3), Some(0), Some(15), None]);
        let full = Levels::new([(MAX_QPS_OF_LANE as u32, sl(7)); MAX_LANES]);
        let all = MAX_QPS_OF_LANE as u32 * MAX_LANES as u32;
        assert_eq!((full.of(all - 1), full.of(all)), (Some(sl(7)), None));
        assert_eq!(Levels::default().of(0), None);
    }

    #[test]
    fn keys_of_different_things_differ() {
        let mut keys = vec![];
        for topic in [Topic::Card, Topic::Ready, Topic::Done, Topic::SharedQp, Topic::SharedMr] {
            for peer in [0, 1, u32::MAX] {
                for index in [0, 1, (1 << 24) - 1] {
                    keys.push(key(topic, peer, index));
                }
            }
        }
        let n = keys.len();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), n);
    }

    #[test]
    fn every_service_type_walks_to_rts() {
        for ty in [QpType::Rc, QpType::Uc, QpType::Ud] {
            let mut from = QpState::Reset;
            for (attr, mask) in steps(ty, QpAttr::default(), &endpoint(), &endpoint()) {
                check_transition(ty, from, attr.state, mask).unwrap();
                from = attr.state;
            }
            assert_eq!(from, QpState::Rts);
        }
    }
}
