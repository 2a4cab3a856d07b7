//! The receiver's part: from marked packets to news for the sender (`protocol.md` §1.5, §7.4).

use doorbell_core::units::Span;

/// What CNPs keep their distance by. Devices differ (`protocol.md` §9): ConnectX-4 Lx per
/// destination, ConnectX-5 and 6 per port, E810 per QP.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum CnpScope {
    /// Each QP has its own clock.
    Qp,
    /// The QPs that are connected to one host share a clock: of many flows from one sender only
    /// some hear of the marks.
    Destination,
    /// All QPs of the port share one.
    Port,
}

/// How a receiver tells a sender that its packets were marked.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Notification {
    /// Least time between two CNPs of a scope. Twice of it: a sender is cut half as often.
    /// `min_time_between_cnps` of mlxconfig: 4 us in new documents, 50 us in the DCQCN paper.
    pub min_time_between_cnps: Span,
    /// What keeps this distance.
    pub scope: CnpScope,
    /// From the marked packet's turn in the receive unit to the CNP at the port. Twice of it: the
    /// control's loop is longer by that.
    pub delay: Span,
    /// Service level of CNPs; `None`: that of the marked packet. Where the network gives another
    /// class to it, CNPs do not wait behind data.
    pub sl: Option<u8>,
    /// A sequence NAK comes with a CNP (ConnectX-5 and 6, `protocol.md` §9).
    pub with_nak: bool,
    /// A marked request that asks for an ACK is echoed by BECN in it, and only others by a CNP: the
    /// way of native InfiniBand, and of simulators that have no CNPs. The distance of CNPs does not
    /// hold for ACKs.
    pub becn_in_acks: bool,
}

impl Notification {
    /// A CNP per QP and 50 us, at once: the DCQCN paper.
    pub const PAPER: Self = Self {
        min_time_between_cnps: Span::from_us(50),
        scope: CnpScope::Qp,
        delay: Span::ZERO,
        sl: None,
        with_nak: false,
        becn_in_acks: false,
    };

    /// A CNP per port and 4 us, on service level 6: ConnectX in new documents.
    pub const VENDOR: Self = Self {
        min_time_between_cnps: Span::from_us(4),
        scope: CnpScope::Port,
        sl: Some(6),
        ..Self::PAPER
    };

    /// A mark in each ACK of a marked packet, and no limit to them: the HPCC paper's simulator and
    /// its descendants, which acknowledge every packet. The paper's 50 us are then the sender's.
    pub const HPCC: Self = Self::INFINIBAND;

    /// BECN in ACKs, CNPs without a pause for the rest: native InfiniBand.
    pub const INFINIBAND: Self =
        Self { min_time_between_cnps: Span::ZERO, becn_in_acks: true, ..Self::PAPER };
}
