//! The link layer of a whole scenario, and the credits of InfiniBand.

use doorbell_core::units::{Bytes, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Scenario, SwitchMode, TopologyKind};
use crate::quantity::{Count, Positive, Quantity};

/// Link layer of every port, in place of the profile's, with all that goes with it.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LinkLayer {
    /// Native InfiniBand: LRH and VCRC around a packet, link credits, routes by destination, an MTU
    /// that counts payload, ERF records in captures.
    Ib,
    /// RoCEv2 on Ethernet: UDP and IP around a packet, tail drop unless `topology.switch` says
    /// otherwise, ECMP, an MTU that counts headers, Ethernet frames in captures.
    Roce,
}

impl LinkLayer {
    /// The word in files.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ib => "ib",
            Self::Roce => "roce",
        }
    }
}

/// Credits of InfiniBand links: how much a port takes ahead, and when it says that it takes more.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Credits {
    /// Room behind each port of a switch and each virtual lane, in blocks of 64 bytes; without it
    /// its share of the buffer, at most 2048. Fewer than the rate times the credit round trip:
    /// links idle. More than 2048 are never granted at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocks: Option<Count<1, 65_536>>,
    /// The same behind each port of a host; without it as behind a switch's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_blocks: Option<Count<1, 65_536>>,
    /// From a packet's last bit out of the buffer to the flow-control packet that says so; without
    /// it none, so that credit comes back in the time of the cable alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub return_delay: Option<Quantity<Span>>,
    /// Bytes of a flow-control packet on the wire, such as `"8B"`: it takes their time and waits
    /// for the packet that is being sent the other way, but takes nothing from the rate of what
    /// follows. Without it, it takes no time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flow_control: Option<Quantity<Bytes>>,
    /// Changes while the run goes on: new firmware.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub change: Vec<CreditChange>,
}

/// From a time on, another return delay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreditChange {
    /// When, later than the change before.
    pub at: Positive<Span>,
    /// The return delay from then on.
    pub return_delay: Quantity<Span>,
}

impl Scenario {
    /// Sets what `link` decides and the file leaves open. What contradicts it stays for the check.
    pub(super) fn apply_link(&mut self) {
        let t = &mut self.topology;
        let usual = match self.link {
            None => return,
            Some(LinkLayer::Ib) => SwitchMode::Credits,
            Some(LinkLayer::Roce) => SwitchMode::TailDrop,
        };
        let cable = t.kind == TopologyKind::BackToBack;
        if !cable && t.switch.is_none() {
            t.switch = Some(usual);
        }
        let credits = usual == SwitchMode::Credits && (cable || t.switch == Some(usual));
        if credits && t.credits.is_none() {
            t.credits = Some(Credits::default());
        }
    }
}
