//! Contradictions of the link layer: keys of the other one, credits that carry no packet.

use doorbell_sim::fabric::BLOCK_BYTES;

use super::check::{Checked, refuse};
use super::{Credits, LinkLayer, RoutingMode, Scenario, SwitchMode, TopologyKind};
use crate::profile::Profile;
use crate::quantity::Unit;
use crate::run::network::largest_of_link;

pub(super) fn check_link(s: &Scenario, profile: &Profile) -> Checked {
    let t = &s.topology;
    let ib = s.link == Some(LinkLayer::Ib);
    if t.switch == Some(SwitchMode::Credits) && !ib {
        let text = "credits are InfiniBand's, and this is not `link = \"ib\"`".to_owned();
        let help = "write `link = \"ib\"` above the tables, or another `switch`";
        return refuse("topology.switch", text, help);
    }
    if ib && t.switch == Some(SwitchMode::TailDrop) {
        let text = "an InfiniBand switch never drops for want of room".to_owned();
        let help = "leave `switch` out for link credits, or write `link = \"roce\"`";
        return refuse("topology.switch", text, help);
    }
    if ib && t.switch == Some(SwitchMode::Pfc) {
        let text = "priority flow control is Ethernet's".to_owned();
        let help = "leave `switch` out for link credits, or write `link = \"roce\"`";
        return refuse("topology.switch", text, help);
    }
    if ib && t.routing == Some(RoutingMode::Ecmp) {
        let text = "InfiniBand has no UDP ports, which `ecmp` hashes".to_owned();
        let help = "write `routing = \"destination\"` or \"adaptive\", or `link = \"roce\"`";
        return refuse("topology.routing", text, help);
    }
    let Some(credits) = &t.credits else { return Ok(()) };
    if !ib {
        let text = "`credits` are InfiniBand's, and this is not `link = \"ib\"`".to_owned();
        let help = "write `link = \"ib\"` above the tables, or leave `credits` out";
        return refuse("topology.credits", text, help);
    }
    if t.kind != TopologyKind::BackToBack && t.switch != Some(SwitchMode::Credits) {
        let text = "`credits` beside a `switch` that has none".to_owned();
        return refuse("topology.credits", text, "leave `switch` out, or `credits`");
    }
    if t.buffer.is_some() && credits.blocks.is_some() {
        let text = "`buffer` and `credits.blocks`, which say the same in two ways".to_owned();
        return refuse("topology.buffer", text, "leave one of the two out");
    }
    check_blocks(credits, profile)?;
    check_changes(credits)
}

/// A buffer holds the largest packet, or it would never be sent.
fn check_blocks(credits: &Credits, profile: &Profile) -> Checked {
    let largest = largest_of_link(profile);
    let least = u64::from(largest.div_ceil(BLOCK_BYTES));
    for (key, blocks) in [("blocks", credits.blocks), ("host_blocks", credits.host_blocks)] {
        let Some(blocks) = blocks.map(|b| b.value()).filter(|b| *b < least) else { continue };
        let text = format!("{blocks} blocks of 64 B never take a packet of {largest} B");
        let mtu = profile.port.max_mtu.print();
        let help = format!("at least {least}, or lower `port.max_mtu` ({mtu}) in [settings]");
        return refuse(format!("topology.credits.{key}"), text, help);
    }
    if credits.flow_control.as_ref().is_some_and(|b| b.0.0 == 0) {
        let text = "a flow-control packet of no bytes".to_owned();
        return refuse(
            "topology.credits.flow_control",
            text,
            "leave it out: flow-control packets take no time then",
        );
    }
    if let Some(bytes) = credits.flow_control.as_ref().map(|b| b.0).filter(|b| b.0 > largest.into())
    {
        let text = format!("a flow-control packet of {} is larger than any other", bytes.print());
        return refuse(
            "topology.credits.flow_control",
            text,
            "InfiniBand's have 6 bytes and 2 more",
        );
    }
    Ok(())
}

fn check_changes(credits: &Credits) -> Checked {
    for (i, pair) in credits.change.windows(2).enumerate() {
        if pair[1].at.0 <= pair[0].at.0 {
            let text = format!(
                "a change at {}, and the one before it is at {}",
                pair[1].at.0.print(),
                pair[0].at.0.print()
            );
            let path = format!("topology.credits.change.{}.at", i + 1);
            return refuse(path, text, "write them in the order of their times");
        }
    }
    Ok(())
}
