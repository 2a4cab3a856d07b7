//! Random programs as data: what each of two ranks posts, and how.

use doorbell_core::transport::Ring;
use doorbell_core::verbs::{Mtu, Psn, QpType, SendFlags};
use proptest::prelude::*;

/// Longest message in MTUs.
pub const MAX_MTUS: u32 = 3;
/// Places in the peer's memory that WRITEs go to; they overlap.
pub const PLACES: u64 = 8;
/// Distance of these places.
pub const PLACE_STEP: u64 = 700;
/// 8-byte words for ATOMICs.
pub const WORDS: u64 = 4;
/// Most operations of a rank.
pub const MAX_OPS: usize = 40;

/// What an operation does.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// SEND.
    Send,
    /// SEND with immediate data.
    SendImm,
    /// WRITE.
    Write,
    /// WRITE with immediate data.
    WriteImm,
    /// READ of bytes that nobody changes.
    Read,
    /// READ of the places that WRITEs go to.
    ReadBack,
    /// Fetch and add.
    Add,
    /// Compare and swap, which succeeds if the word has the value of `place`.
    Swap,
}

impl Kind {
    /// Whether it takes a receive.
    pub const fn takes_receive(self) -> bool {
        matches!(self, Self::Send | Self::SendImm | Self::WriteImm)
    }

    /// Whether the payload can travel in the WQE.
    pub const fn may_be_inline(self) -> bool {
        matches!(self, Self::Send | Self::SendImm | Self::Write | Self::WriteImm)
    }

    /// Whether it changes a word at the peer and brings the old one.
    pub const fn is_atomic(self) -> bool {
        matches!(self, Self::Add | Self::Swap)
    }
}

/// One operation.
#[derive(Clone, Debug)]
pub struct Op {
    /// What it does.
    pub kind: Kind,
    /// Bytes; 8 for ATOMICs.
    pub len: u32,
    /// Scatter elements, 1 to 3.
    pub elements: u32,
    /// Payload in the WQE.
    pub inline: bool,
    /// SIGNALED, FENCE.
    pub flags: SendFlags,
    /// Place or word at the peer.
    pub place: u64,
    /// Rings after it.
    pub ring: Option<Ring>,
}

/// What a rank does.
#[derive(Clone, Debug)]
pub struct Side {
    /// In this order.
    pub ops: Vec<Op>,
    /// Operations at the end that are staged and never rung.
    pub unrung: usize,
    /// Completions of one poll.
    pub poll: usize,
    /// First PSN.
    pub psn: Psn,
}

impl Side {
    /// The operations that are announced.
    pub fn rung(&self) -> &[Op] {
        &self.ops[..self.ops.len() - self.unrung]
    }
}

/// A run of two ranks.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Service.
    pub ty: QpType,
    /// Path MTU.
    pub mtu: Mtu,
    /// Send-queue depth.
    pub depth: u32,
    /// Inline bytes granted.
    pub max_inline: u32,
    /// Outstanding READs and ATOMICs.
    pub rd_atomic: u8,
    /// NUMA nodes of the regions and of the work queues.
    pub numa: (u8, u8),
    /// Both ranks.
    pub sides: [Side; 2],
    /// Seed of the simulator.
    pub seed: u64,
}

fn kinds(ty: QpType) -> Vec<Kind> {
    use Kind::*;
    match ty {
        QpType::Ud => vec![Send, SendImm],
        QpType::Uc => vec![Send, SendImm, Write, WriteImm],
        _ => vec![Send, SendImm, Write, Write, WriteImm, Read, ReadBack, Add, Swap],
    }
}

/// Lengths crowd at both sides of packet boundaries, of the inline limit and of 64-byte blocks.
fn length(ty: QpType, mtu: Mtu, max_inline: u32) -> BoxedStrategy<u32> {
    let m = mtu.bytes();
    let most = if ty == QpType::Ud { m } else { m * MAX_MTUS };
    let edges = vec![
        0,
        1,
        8,
        28,
        29,
        44,
        45,
        63,
        64,
        65,
        max_inline.saturating_sub(1),
        max_inline,
        max_inline + 1,
        m - 1,
        m,
        m + 1,
        2 * m - 1,
        2 * m,
        2 * m + 1,
        most,
    ];
    prop_oneof![0..=most, proptest::sample::select(edges).prop_map(move |n| n.min(most))].boxed()
}

fn op(ty: QpType, mtu: Mtu, max_inline: u32) -> impl Strategy<Value = Op> {
    let kind = proptest::sample::select(kinds(ty));
    let ring = proptest::option::weighted(
        0.4,
        proptest::sample::select(vec![Ring::Auto, Ring::Doorbell, Ring::BlueFlame]),
    );
    let length = length(ty, mtu, max_inline);
    let bits = (any::<bool>(), any::<bool>(), proptest::bool::weighted(0.1));
    (kind, length, 1..=3u32, bits, 0..PLACES, ring).prop_map(
        move |(kind, len, elements, (inline, signaled, fence), place, ring)| {
            let len = if kind.is_atomic() { 8 } else { len };
            let inline = inline && kind.may_be_inline() && len <= max_inline;
            let mut flags = SendFlags::empty();
            flags.set(SendFlags::SIGNALED, signaled);
            flags.set(SendFlags::FENCE, fence);
            Op { kind, len, elements, inline, flags, place, ring }
        },
    )
}

/// PSNs crowd before the wrap at 2²⁴.
fn psn() -> impl Strategy<Value = Psn> {
    prop_oneof![
        any::<u32>().prop_map(|n| Psn::new(n & 0xFF_FFFF)),
        (0..64u32).prop_map(|n| Psn::new(0xFF_FFFF - n)),
        Just(Psn::new(0xFF_FFFD)),
    ]
}

fn side(ty: QpType, mtu: Mtu, depth: u32, max_inline: u32) -> impl Strategy<Value = Side> {
    let ops = proptest::collection::vec(op(ty, mtu, max_inline), 0..MAX_OPS);
    (ops, 0..4usize, 1..20usize, psn()).prop_map(move |(mut ops, unrung, poll, psn)| {
        let unrung = unrung.min(ops.len()).min(depth as usize - 1);
        repair(&mut ops, depth, unrung);
        Side { ops, unrung, poll, psn }
    })
}

/// Makes a list that ends: a signalled request at least once per half depth and at the end, and a
/// fence between reading a place and writing it again, without which both orders are legal.
fn repair(ops: &mut [Op], depth: u32, unrung: usize) {
    let (mut quiet, mut read_back) = (0, false);
    let last_rung = ops.len() - unrung;
    for (i, op) in ops.iter_mut().enumerate() {
        quiet += 1;
        if quiet >= depth.div_ceil(2) || i + 1 == last_rung {
            op.flags |= SendFlags::SIGNALED;
        }
        if op.flags.contains(SendFlags::SIGNALED) {
            quiet = 0;
        }
        let writes = matches!(op.kind, Kind::Write | Kind::WriteImm);
        if writes && read_back {
            op.flags |= SendFlags::FENCE;
        }
        if op.flags.contains(SendFlags::FENCE) {
            read_back = false;
        }
        read_back |= op.kind == Kind::ReadBack;
        if i + 1 >= last_rung {
            op.ring = None;
        }
    }
}

/// Any plan.
pub fn plans() -> impl Strategy<Value = Plan> {
    let ty = prop_oneof![8 => Just(QpType::Rc), 2 => Just(QpType::Uc), 1 => Just(QpType::Ud)];
    let mtu = proptest::sample::select(vec![Mtu::B256, Mtu::B512, Mtu::B1024, Mtu::B4096]);
    let numa = (0..2u8, 0..2u8);
    let shape = (ty, mtu, 2..33u32, 0..=220u32, 1..=16u8, numa, any::<u64>());
    shape.prop_flat_map(|(ty, mtu, depth, max_inline, rd_atomic, numa, seed)| {
        // The path MTU of datagrams is the port's.
        let mtu = if ty == QpType::Ud { Mtu::B4096 } else { mtu };
        let side = || side(ty, mtu, depth, max_inline);
        (side(), side()).prop_map(move |(a, b)| Plan {
            ty,
            mtu,
            depth,
            max_inline,
            rd_atomic,
            numa,
            sides: [a, b],
            seed,
        })
    })
}
