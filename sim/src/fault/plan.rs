//! The plan and what can be wrong with it.

use core::fmt;

use doorbell_core::units::{Ratio, Span, Time};
use doorbell_core::verbs::Qpn;

use super::chance::Chance;
use super::matcher::{Matcher, Window};
use super::name::{LinkEnd, LinkName};
use crate::wire::HostId;

/// Time after which a packet that waits for later packets goes on without them. A packet with
/// nothing behind it would else be lost, which is another fault.
pub const DEFAULT_REORDER_LIMIT: Span = Span::from_us(100);

/// Everything that goes wrong in a run, in the order in which faults are asked.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct FaultPlan {
    /// The faults.
    pub faults: Vec<Fault>,
}

/// One fault.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Its name: in reports, of its random streams, and for [`Hold::ReleasedBy`]. Unique.
    pub id: String,
    /// What goes wrong.
    pub what: What,
    /// Most times that it fires; `None`: no limit.
    pub budget: Option<u64>,
    /// Whether the run is good though the fault never fired.
    pub maybe: bool,
}

impl Fault {
    /// A packet fault that hits every packet that matches.
    pub fn packets(id: &str, matcher: Matcher, verdict: PacketVerdict) -> Self {
        let what = What::Packets(PacketFault { matcher, chance: Chance::Always, verdict });
        Self { id: id.to_owned(), what, budget: None, maybe: false }
    }

    /// A host fault.
    pub fn host(id: &str, host: HostId, window: Window, action: HostAction) -> Self {
        let what = What::Host(HostFault { host, nic: None, window, action });
        Self { id: id.to_owned(), what, budget: None, maybe: false }
    }

    /// A fault of one NIC of a host; `action` is one of those that [`HostAction::is_of_nic`].
    pub fn nic(id: &str, (host, nic): (HostId, u16), window: Window, action: HostAction) -> Self {
        let what = What::Host(HostFault { host, nic: Some(nic), window, action });
        Self { id: id.to_owned(), what, budget: None, maybe: false }
    }

    /// A switch that reboots in a window.
    pub fn reboot(id: &str, switch: u32, window: Window) -> Self {
        let what = What::Reboot(Reboot { switch, window });
        Self { id: id.to_owned(), what, budget: None, maybe: false }
    }

    /// With a budget.
    #[must_use]
    pub const fn at_most(mut self, budget: u64) -> Self {
        self.budget = Some(budget);
        self
    }

    /// That need not fire.
    #[must_use]
    pub const fn maybe(mut self) -> Self {
        self.maybe = true;
        self
    }
}

/// What goes wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What {
    /// Something happens to packets.
    Packets(PacketFault),
    /// Something happens to a host.
    Host(HostFault),
    /// A switch reboots.
    Reboot(Reboot),
}

impl What {
    /// The word in reports and files.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Packets(p) => p.verdict.word(),
            Self::Host(h) => h.action.word(),
            Self::Reboot(_) => "switch-reboot",
        }
    }

    /// Whether no public source describes what devices do, so that the model made it up.
    pub const fn synthetic(&self) -> bool {
        matches!(self, Self::Host(HostFault { action: HostAction::BadDoorbell { .. }, .. }))
    }
}

/// A switch that reboots. When the window opens, what it holds is lost; while it is open, so is
/// what is on its links, counted as `switch_reboot`. Hosts at its links hear `IBV_EVENT_PORT_ERR`
/// and `IBV_EVENT_PORT_ACTIVE` as with [`PacketVerdict::LinkDown`].
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Reboot {
    /// The switch, from 0.
    pub switch: u32,
    /// When it is down.
    pub window: Window,
}

/// A fault of packets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PacketFault {
    /// Which packets.
    pub matcher: Matcher,
    /// How many of them.
    pub chance: Chance,
    /// What happens to them.
    pub verdict: PacketVerdict,
}

/// What happens to a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PacketVerdict {
    /// It is lost; counted as `fault_drop`.
    Drop,
    /// As `Drop`, counted as `link_down`: the link carries nothing. The sender goes on sending.
    /// When the window opens, `IBV_EVENT_PORT_ERR` is raised at the hosts at the ends of the link,
    /// and `IBV_EVENT_PORT_ACTIVE` when it closes; once, however many faults overlap.
    LinkDown,
    /// It arrives later by this time; packets behind it may overtake it.
    Delay(Span),
    /// So many copies of it arrive right behind it.
    Duplicate(u32),
    /// It arrives when so many later packets of its link direction have arrived, or after `within`.
    Reorder {
        /// Packets that overtake it.
        behind: u32,
        /// Longest time that it waits for them.
        within: Span,
    },
    /// Its payload is damaged: the NIC that it is for finds a wrong ICRC, drops it and counts
    /// `rx_icrc_encapsulated`. Switches pass it on.
    Corrupt,
    /// It stays at the end of the link, with others that this fault holds, in order.
    Hold(Hold),
}

impl PacketVerdict {
    /// The word in reports and files.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::LinkDown => "link-down",
            Self::Delay(_) => "delay",
            Self::Duplicate(_) => "duplicate",
            Self::Reorder { .. } => "reorder",
            Self::Corrupt => "corrupt",
            Self::Hold(_) => "hold",
        }
    }
}

/// When packets that are held go on. From then on the fault holds no more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Hold {
    /// At this time.
    Until(Time),
    /// When the fault with this id fires.
    ReleasedBy(String),
    /// When [`World::release`](crate::world::World::release) is called.
    Released,
}

/// A fault of a host.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct HostFault {
    /// The host.
    pub host: HostId,
    /// Its only NIC that it is about, from 0; `None`: all.
    pub nic: Option<u16>,
    /// When. Actions without an end use the first instant only.
    pub window: Window,
    /// What.
    pub action: HostAction,
}

impl HostFault {
    /// Whether it is about this NIC of its host.
    pub fn is_of(&self, nic: u16) -> bool {
        self.nic.is_none_or(|only| only == nic)
    }
}

/// What happens to a host.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum HostAction {
    /// The host is gone from `after` on: it sends and answers nothing, and its programs do not
    /// step. What is on a link from or to it when it dies is lost, counted as `peer_dead`. The run
    /// may end without its programs.
    PeerDead,
    /// The QP goes to ERR at `after`, as after a fault of the device: its work is flushed and
    /// `IBV_EVENT_QP_FATAL` is raised.
    QpError {
        /// The QP.
        qp: Qpn,
    },
    /// Programs of the host do not step; what is due in the window happens at its end.
    ProgramStall {
        /// Rank of the only program that is stalled.
        rank: Option<u32>,
    },
    /// The stages of the NIC stand still: what one of them ends in the window ends at its end. PCIe
    /// goes on, so a payload that is under way may still leave.
    NicStall,
    /// Completions land and no poll of the window finds them.
    CqNotPolled {
        /// The only completion queue that is not polled, by its number in the NIC.
        cq: Option<u32>,
    },
    /// Receives that are posted are hidden from the NIC, which answers with RNR NAK. Of a QP with
    /// an SRQ, those of the SRQ.
    Rnr {
        /// The only QP.
        qp: Option<Qpn>,
    },
    /// A doorbell of the window comes out damaged. **Synthetic**: no public source says what NICs
    /// do. Here the NIC takes nothing from it, counts a doorbell check error, moves the QP to
    /// ERR and raises `IBV_EVENT_QP_FATAL`.
    BadDoorbell {
        /// Doorbells of this QP only.
        qp: Option<Qpn>,
        /// What of it is wrong.
        part: DoorbellPart,
        /// Only the n-th doorbell that matches, counted from 1.
        nth: Option<u64>,
        /// After so many errors the NIC stops: `IBV_EVENT_DEVICE_FATAL`, and every QP goes to ERR.
        stop_after: Option<u32>,
    },
    /// The NICs of the host pause the senders of their links, and renew the pauses, though their
    /// buffers have room. Only on links that know priority flow control.
    PauseStorm {
        /// Of this service level's class only; without it, of all lossless classes.
        sl: Option<u8>,
    },
}

/// What of a doorbell is wrong.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub enum DoorbellPart {
    /// The record: producer index, width or address. Every kind of doorbell has it.
    #[default]
    Record,
    /// The WQE that a BlueFlame write carries. Only BlueFlame writes match.
    Blueflame,
}

impl HostAction {
    /// The word in reports and files.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::PeerDead => "peer-dead",
            Self::QpError { .. } => "qp-error",
            Self::ProgramStall { .. } => "program-stall",
            Self::NicStall => "nic-stall",
            Self::CqNotPolled { .. } => "cq-not-polled",
            Self::Rnr { .. } => "rnr",
            Self::BadDoorbell { .. } => "bad-doorbell",
            Self::PauseStorm { .. } => "pause-storm",
        }
    }

    /// Whether it may be about one NIC of a host.
    pub const fn is_of_nic(&self) -> bool {
        match self {
            Self::NicStall
            | Self::CqNotPolled { .. }
            | Self::Rnr { .. }
            | Self::BadDoorbell { .. }
            | Self::PauseStorm { .. } => true,
            Self::PeerDead | Self::QpError { .. } | Self::ProgramStall { .. } => false,
        }
    }

    /// Whether it needs an end: without one, time would stand still for ever.
    const fn lasts(&self) -> bool {
        matches!(
            self,
            Self::ProgramStall { .. }
                | Self::NicStall
                | Self::CqNotPolled { .. }
                | Self::Rnr { .. }
                | Self::PauseStorm { .. }
        )
    }
}

/// A plan that cannot be carried out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PlanError {
    /// A fault without an id.
    NoId {
        /// Its position.
        index: usize,
    },
    /// Two faults of one id.
    DoubleId {
        /// The id.
        id: String,
    },
    /// The network has no such link.
    UnknownLink {
        /// The fault.
        id: String,
        /// The link.
        link: LinkName,
    },
    /// No link that the fault is about is sent into by this node.
    UnknownEnd {
        /// The fault.
        id: String,
        /// The end.
        from: LinkEnd,
    },
    /// There is no such host.
    UnknownHost {
        /// The fault.
        id: String,
        /// The host.
        host: HostId,
        /// Hosts that there are.
        hosts: u32,
    },
    /// The host has no such NIC.
    UnknownNic {
        /// The fault.
        id: String,
        /// The host.
        host: HostId,
        /// The NIC.
        nic: u16,
        /// NICs that it has.
        nics: usize,
    },
    /// A NIC is named, and what happens is not about one.
    NotOfNic {
        /// The fault.
        id: String,
    },
    /// There is no such switch.
    UnknownSwitch {
        /// The fault.
        id: String,
        /// The switch.
        switch: u32,
        /// Switches that there are.
        switches: usize,
    },
    /// A storm of pauses at a host none of whose links knows them for the class.
    NoPauses {
        /// The fault.
        id: String,
        /// The host.
        host: HostId,
    },
    /// A number that begins at 1 is 0.
    Zero {
        /// The fault.
        id: String,
        /// Which.
        field: &'static str,
    },
    /// The window has no instant.
    EmptyWindow {
        /// The fault.
        id: String,
        /// The window.
        window: Window,
    },
    /// Something that lasts has no end.
    NoEnd {
        /// The fault.
        id: String,
    },
    /// A probability above 1.
    Probability {
        /// The fault.
        id: String,
        /// It.
        ratio: Ratio,
    },
    /// `nth` and a probability: it is not said whether hits or packets are counted.
    NthAndChance {
        /// The fault.
        id: String,
    },
    /// A hold whose releasing fault does not exist, or is itself.
    UnknownRelease {
        /// The fault.
        id: String,
        /// What it names.
        released_by: String,
    },
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoId { index } => write!(f, "fault {index} has no id; give it a name"),
            Self::DoubleId { id } => write!(f, "two faults are called \"{id}\"; rename one"),
            Self::UnknownLink { id, link } => {
                write!(f, "fault \"{id}\": there is no link {link}; name the ends of one")
            }
            Self::UnknownEnd { id, from } => {
                write!(f, "fault \"{id}\": {from} is not an end of the link; name one of its ends")
            }
            Self::UnknownHost { id, host, hosts } => {
                write!(f, "fault \"{id}\": there is no {host}, only host0 to host{}", hosts - 1)
            }
            Self::UnknownNic { id, host, nic, nics } => write!(
                f,
                "fault \"{id}\": there is no NIC {nic} at {host}, which has {nics}, counted from 0"
            ),
            Self::NotOfNic { id } => write!(
                f,
                "fault \"{id}\" names a NIC and is about a host, a program or a queue pair; leave \
                 the NIC out"
            ),
            Self::UnknownSwitch { id, switch, switches } => write!(
                f,
                "fault \"{id}\": there is no switch{switch}; the network has {switches} switches, \
                 counted from 0"
            ),
            Self::NoPauses { id, host } => write!(
                f,
                "fault \"{id}\": no link of {host} knows pause frames for the class; use a \
                 lossless class and switches with priority flow control"
            ),
            Self::Zero { id, field } => {
                write!(f, "fault \"{id}\": `{field}` is 0 and is counted from 1")
            }
            Self::EmptyWindow { id, window } => write!(
                f,
                "fault \"{id}\": no time lies after {} and before {}; swap them",
                window.after, window.before
            ),
            Self::NoEnd { id } => {
                write!(f, "fault \"{id}\" never ends, so the run would not; give `before`")
            }
            Self::Probability { id, ratio } => {
                write!(f, "fault \"{id}\": a probability of {}/{} is above 1", ratio.num, ratio.den)
            }
            Self::NthAndChance { id } => {
                write!(f, "fault \"{id}\": the n-th packet and a probability; give one of them")
            }
            Self::UnknownRelease { id, released_by } => {
                write!(
                    f,
                    "fault \"{id}\" is released by \"{released_by}\", which is no other fault"
                )
            }
        }
    }
}

impl std::error::Error for PlanError {}

impl FaultPlan {
    /// Checks what can be checked without the network: ids, windows, numbers.
    ///
    /// # Errors
    /// [`PlanError`], the first one in the order of the plan.
    pub fn check(&self) -> Result<(), PlanError> {
        for (index, fault) in self.faults.iter().enumerate() {
            if fault.id.is_empty() {
                return Err(PlanError::NoId { index });
            }
            if self.faults[..index].iter().any(|f| f.id == fault.id) {
                return Err(PlanError::DoubleId { id: fault.id.clone() });
            }
            self.check_one(fault)?;
        }
        Ok(())
    }

    fn check_one(&self, fault: &Fault) -> Result<(), PlanError> {
        let id = || fault.id.clone();
        let window = match &fault.what {
            What::Packets(p) => p.matcher.window,
            What::Host(h) => h.window,
            What::Reboot(r) => r.window,
        };
        if window.after >= window.before {
            return Err(PlanError::EmptyWindow { id: id(), window });
        }
        for (field, zero) in zeros(fault) {
            if zero {
                return Err(PlanError::Zero { id: id(), field });
            }
        }
        match &fault.what {
            What::Host(h) if h.action.lasts() && window.before == Time::MAX => {
                Err(PlanError::NoEnd { id: id() })
            }
            What::Host(h) if h.nic.is_some() && !h.action.is_of_nic() => {
                Err(PlanError::NotOfNic { id: id() })
            }
            What::Host(_) | What::Reboot(_) => Ok(()),
            What::Packets(p) => self.check_packets(&fault.id, p),
        }
    }

    fn check_packets(&self, id: &str, p: &PacketFault) -> Result<(), PlanError> {
        let id = || id.to_owned();
        if let Some(ratio) = p.chance.ratios().into_iter().find(|r| r.num > r.den) {
            return Err(PlanError::Probability { id: id(), ratio });
        }
        if p.matcher.nth.is_some() && p.chance != Chance::Always {
            return Err(PlanError::NthAndChance { id: id() });
        }
        if let PacketVerdict::Hold(Hold::ReleasedBy(other)) = &p.verdict
            && (*other == id() || !self.faults.iter().any(|f| f.id == *other))
        {
            return Err(PlanError::UnknownRelease { id: id(), released_by: other.clone() });
        }
        Ok(())
    }
}

/// Numbers that begin at 1, by name, and whether they are 0.
fn zeros(fault: &Fault) -> Vec<(&'static str, bool)> {
    let mut all = vec![("budget", fault.budget == Some(0))];
    match &fault.what {
        What::Packets(p) => {
            all.push(("nth", p.matcher.nth == Some(0)));
            all.push(("round", p.matcher.round == Some(0)));
            match p.verdict {
                PacketVerdict::Delay(by) => all.push(("delay", by == Span::ZERO)),
                PacketVerdict::Duplicate(copies) => all.push(("copies", copies == 0)),
                PacketVerdict::Reorder { behind, within } => {
                    all.push(("behind", behind == 0));
                    all.push(("within", within == Span::ZERO));
                }
                _ => {}
            }
        }
        What::Host(HostFault {
            action: HostAction::BadDoorbell { nth, stop_after, .. }, ..
        }) => {
            all.push(("nth", *nth == Some(0)));
            all.push(("stop_after", *stop_after == Some(0)));
        }
        What::Host(_) | What::Reboot(_) => {}
    }
    all
}
