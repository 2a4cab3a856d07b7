//! Faults: what goes wrong, where, when and how often.

use doorbell_core::units::{Ratio, Span};
use doorbell_sim::fault::PacketClass;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::{Count, Positive, Quantity};

/// One planned fault.
///
/// Keys that say which packets (`link` to `before`) narrow each other; a fault without any hits
/// every packet. A packet is looked at when it arrives at the end of a link. The first fault of the
/// file whose conditions hold decides about it. A fault that never fires fails the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// Its name in reports and of its random draws; a to z, 0 to 9, `-` and `_`.
    pub id: String,
    /// What happens.
    pub kind: FaultKind,
    /// At the end of this link, either direction: `"host0-host1"`, `"host3-switch0"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// Sent into the link by this end of it: `"host0"`, `"switch0"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Packets that this host makes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Count<0, 8191>>,
    /// Packets for this host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dest: Option<Count<0, 8191>>,
    /// Number of the queue pair at the source. The first of a host is 16.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_qp: Option<Count<0, 0xFF_FFFF>>,
    /// Number of the queue pair at the destination.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dest_qp: Option<Count<0, 0xFF_FFFF>>,
    /// Packet sequence number. Numbers start at random; `nth` counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub psn: Option<Count<0, 0xFF_FFFF>>,
    /// Opcode, as `"rc-send-only"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opcode: Option<String>,
    /// Class of opcodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<FaultClass>,
    /// The n-th time that a sequence number of a flow is seen at the end of the link: 1 is the
    /// first transmission, 2 the first retransmission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round: Option<Count<1, { u32::MAX as u64 }>>,
    /// Only the n-th packet (or doorbell) of those for which all other keys hold, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nth: Option<Count<1, { i64::MAX as u64 }>>,
    /// From this time on; without it, from the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Quantity<Span>>,
    /// Until just before this time; without it, to the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Positive<Span>>,
    /// Share of the packets that match, each for itself: `"1/1000"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chance: Option<Quantity<Ratio>>,
    /// In bursts, by a chain of two states.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<Burst>,
    /// By how much `delay` delays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Positive<Span>>,
    /// Copies that `duplicate` adds; without it, one. Copies are not copied again at later links of
    /// their way, and there are no more where 262,144 packets are under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies: Option<Count<1, 1000>>,
    /// Later packets that overtake one in `reorder`; without it, one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind: Option<Count<1, 65536>>,
    /// Longest time that `reorder` waits for them; without it, 100us.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<Positive<Span>>,
    /// Time at which `hold` ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Positive<Span>>,
    /// Id of the fault that ends `hold` when it fires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released_by: Option<String>,
    /// The host of a host fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Count<0, 8191>>,
    /// The NIC of a host fault, from 0; without it, all of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nic: Option<Count<0, 15>>,
    /// Number of the queue pair of a host fault; without it, all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qp: Option<Count<0, 0xFF_FFFF>>,
    /// Number of the completion queue in its NIC, from 0; without it, all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cq: Option<Count<0, { u32::MAX as u64 }>>,
    /// Rank of the program that is stalled; without it, all of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<Count<0, { u32::MAX as u64 }>>,
    /// Service level whose class a `pause-storm` pauses; without it, all lossless classes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sl: Option<Count<0, 15>>,
    /// The switch that reboots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch: Option<Count<0, { u32::MAX as u64 }>>,
    /// What of a doorbell is damaged; without it, the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<FaultPart>,
    /// Doorbell errors of a NIC after which it stops; without it, it never does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_after: Option<Count<1, { u32::MAX as u64 }>>,
    /// Most times that it fires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Count<1, { i64::MAX as u64 }>>,
    /// Whether the run is good though it never fired.
    #[serde(default)]
    pub maybe: bool,
}

/// What happens.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// The packet is lost.
    Drop,
    /// The packet arrives later; those behind it may overtake it.
    Delay,
    /// Copies arrive right behind it.
    Duplicate,
    /// It arrives behind later packets.
    Reorder,
    /// Its payload is damaged; the receiving NIC finds a wrong ICRC and drops it.
    Corrupt,
    /// It stays at the end of the link, in order with others that are held.
    Hold,
    /// The link carries nothing.
    LinkDown,
    /// The host is gone: it sends and answers nothing.
    PeerDead,
    /// A queue pair goes to ERR.
    QpError,
    /// Programs of the host do not step.
    ProgramStall,
    /// The stages of the NICs stand still.
    NicStall,
    /// Polls find no completion.
    CqNotPolled,
    /// The NIC finds no receive.
    Rnr,
    /// The NIC finds a doorbell damaged. Synthetic: no public source says what NICs do.
    BadDoorbell,
    /// The NICs of a host pause their links though they have room.
    PauseStorm,
    /// A switch is down: what it holds is lost, and so is what is on its links.
    SwitchReboot,
}

impl FaultKind {
    /// All.
    pub const ALL: [Self; 16] = [
        Self::Drop,
        Self::Delay,
        Self::Duplicate,
        Self::Reorder,
        Self::Corrupt,
        Self::Hold,
        Self::LinkDown,
        Self::PeerDead,
        Self::QpError,
        Self::ProgramStall,
        Self::NicStall,
        Self::CqNotPolled,
        Self::Rnr,
        Self::BadDoorbell,
        Self::PauseStorm,
        Self::SwitchReboot,
    ];

    /// The word in files.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::Delay => "delay",
            Self::Duplicate => "duplicate",
            Self::Reorder => "reorder",
            Self::Corrupt => "corrupt",
            Self::Hold => "hold",
            Self::LinkDown => "link-down",
            Self::PeerDead => "peer-dead",
            Self::QpError => "qp-error",
            Self::ProgramStall => "program-stall",
            Self::NicStall => "nic-stall",
            Self::CqNotPolled => "cq-not-polled",
            Self::Rnr => "rnr",
            Self::BadDoorbell => "bad-doorbell",
            Self::PauseStorm => "pause-storm",
            Self::SwitchReboot => "switch-reboot",
        }
    }

    /// Keys that say which packets.
    const PACKETS: [&'static str; 15] = [
        "link",
        "from",
        "source",
        "dest",
        "source_qp",
        "dest_qp",
        "psn",
        "opcode",
        "class",
        "round",
        "nth",
        "after",
        "before",
        "chance",
        "burst",
    ];

    /// Keys that have a use in the kind, beside `id`, `kind` and `maybe`.
    pub fn keys(self) -> Vec<&'static str> {
        let packets = |more: &[&'static str]| {
            let mut keys = Self::PACKETS.to_vec();
            keys.push("budget");
            keys.extend(more);
            keys
        };
        match self {
            Self::Drop | Self::Corrupt => packets(&[]),
            Self::Delay => packets(&["delay"]),
            Self::Duplicate => packets(&["copies"]),
            Self::Reorder => packets(&["behind", "within"]),
            Self::Hold => packets(&["until", "released_by"]),
            Self::LinkDown => vec!["link", "from", "after", "before"],
            Self::PeerDead => vec!["host", "after"],
            Self::QpError => vec!["host", "qp", "after"],
            Self::ProgramStall => vec!["host", "rank", "after", "before"],
            Self::NicStall => vec!["host", "nic", "after", "before"],
            Self::CqNotPolled => vec!["host", "nic", "cq", "after", "before"],
            Self::Rnr => vec!["host", "nic", "qp", "after", "before"],
            Self::PauseStorm => vec!["host", "nic", "sl", "after", "before"],
            Self::SwitchReboot => vec!["switch", "after", "before"],
            Self::BadDoorbell => {
                vec!["host", "nic", "qp", "part", "nth", "stop_after", "after", "before", "budget"]
            }
        }
    }

    /// Keys that the kind cannot do without.
    pub const fn needed(self) -> &'static [&'static str] {
        match self {
            Self::Drop | Self::Corrupt | Self::Duplicate | Self::Reorder | Self::Hold => &[],
            Self::Delay => &["delay"],
            Self::LinkDown => &["link"],
            Self::PeerDead | Self::BadDoorbell => &["host"],
            Self::QpError => &["host", "qp"],
            Self::SwitchReboot => &["switch"],
            Self::ProgramStall
            | Self::NicStall
            | Self::CqNotPolled
            | Self::Rnr
            | Self::PauseStorm => &["host", "before"],
        }
    }
}

/// A chain of two states that moves once per packet that matches. In the long run
/// `enter / (enter + leave)` of the packets meet the bad state, which lasts `1 / leave` packets.
#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Burst {
    /// Probability per packet of moving from the good to the bad state.
    pub enter: Positive<Ratio>,
    /// Probability per packet of moving back.
    pub leave: Positive<Ratio>,
    /// Share that is hit in the bad state.
    #[serde(default = "one")]
    pub bad: Quantity<Ratio>,
    /// Share that is hit in the good state.
    #[serde(default = "zero")]
    pub good: Quantity<Ratio>,
}

const fn one() -> Quantity<Ratio> {
    Quantity(Ratio::ONE)
}

const fn zero() -> Quantity<Ratio> {
    Quantity(Ratio { num: 0, den: 1 })
}

/// What of a doorbell is damaged.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FaultPart {
    /// Producer index, width or address.
    Record,
    /// The WQE that a BlueFlame write carries.
    Blueflame,
}

/// Opcodes that one speaks of together.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FaultClass {
    /// Everything that a requester sends.
    Request,
    /// Everything that a responder sends.
    Response,
    /// SEND.
    Send,
    /// WRITE.
    Write,
    /// READ request.
    ReadRequest,
    /// READ response.
    ReadResponse,
    /// Atomic request.
    Atomic,
    /// Answer to an atomic.
    AtomicAck,
    /// Positive acknowledgement.
    Ack,
    /// NAK: sequence error, or a refusal.
    Nak,
    /// RNR NAK.
    RnrNak,
}

impl FaultClass {
    /// The class in the simulator's words.
    pub const fn packets(self) -> PacketClass {
        match self {
            Self::Request => PacketClass::Request,
            Self::Response => PacketClass::Response,
            Self::Send => PacketClass::Send,
            Self::Write => PacketClass::Write,
            Self::ReadRequest => PacketClass::ReadRequest,
            Self::ReadResponse => PacketClass::ReadResponse,
            Self::Atomic => PacketClass::Atomic,
            Self::AtomicAck => PacketClass::AtomicAck,
            Self::Ack => PacketClass::Ack,
            Self::Nak => PacketClass::Nak,
            Self::RnrNak => PacketClass::RnrNak,
        }
    }
}
