//! Congestion control: keys without a use, and numbers that contradict each other.

use doorbell_core::units::{BitRate, Ratio};
use doorbell_sim::fabric::End;

use super::check::{Checked, refuse};
use super::{Congestion, ControlKind, QpKind, Scenario, TopologyKind};
use crate::profile::{LinkKind, Profile};
use crate::quantity::{Quantity, Unit};
use crate::run::congestion::Keys;
use crate::run::network::network;

pub(super) fn check_congestion(s: &Scenario, profile: &Profile) -> Checked {
    let c = &s.congestion;
    check_keys(c)?;
    check_signal(s, profile)?;
    check_rates(s, profile)?;
    match c.control {
        ControlKind::None => Ok(()),
        ControlKind::Dcqcn => check_dcqcn(c),
        ControlKind::Timely => check_timely(c),
        ControlKind::Ibcc => check_ibcc(c),
        ControlKind::Integral => check_integral(c),
    }
}

fn check_keys(c: &Congestion) -> Checked {
    let json = serde_json::to_value(c).unwrap_or_default();
    let useful = c.control.keys();
    let given = json.as_object().into_iter().flat_map(|table| table.keys());
    let Some(key) = given.into_iter().find(|k| *k != "control" && !useful.contains(&&***k)) else {
        return Ok(());
    };
    let of = [ControlKind::Dcqcn, ControlKind::Timely, ControlKind::Ibcc, ControlKind::Integral];
    let users: Vec<_> = of.iter().filter(|k| k.keys().contains(&&**key)).collect();
    let users: Vec<_> = users.iter().map(|k| format!("`control = \"{}\"`", k.word())).collect();
    let text = format!("`{key}` has no use with `control = \"{}\"`", c.control.word());
    refuse(
        format!("congestion.{key}"),
        text,
        format!("leave it out, or write {}", users.join(" or ")),
    )
}

/// What a control reacts to has to be possible: marks, or answers whose way can be measured.
fn check_signal(s: &Scenario, profile: &Profile) -> Checked {
    let (c, word) = (&s.congestion, s.congestion.control.word());
    let at = "congestion.control";
    match (c.control, profile.port.link) {
        (ControlKind::Dcqcn, LinkKind::InfiniBand) => {
            let text = "`dcqcn` is RoCE's, and the ports are InfiniBand's".to_owned();
            let help = "write `control = \"ibcc\"`, or `link = \"roce\"` above the tables";
            return refuse(at, text, help);
        }
        (ControlKind::Ibcc, LinkKind::RoceV2) => {
            let text = "`ibcc` is InfiniBand's, and the ports are RoCE's".to_owned();
            let help = "write `control = \"dcqcn\"`, or `link = \"ib\"` above the tables";
            return refuse(at, text, help);
        }
        _ => {}
    }
    let by_marks = c.control.waits_for_marks();
    if by_marks && s.topology.kind == TopologyKind::BackToBack && c.cnp_with_nak != Some(true) {
        let text = format!("`{word}` waits for marks, and `back-to-back` has no switch that marks");
        let help = "write `kind = \"switch\"` in [topology] and [switch.ecn], or leave \
                    `control` out";
        return refuse(at, text, help);
    }
    let by_time = matches!(c.control, ControlKind::Timely | ControlKind::Integral);
    if by_time && s.qp.kind != QpKind::Rc {
        let text = format!("`{word}` measures the way of ACKs, and only RC has any");
        return refuse(at, text, "write `type = \"RC\"` in [qp], or leave `control` out");
    }
    Ok(())
}

/// A least rate, or one to begin with, above the rate of every port of a host.
fn check_rates(s: &Scenario, profile: &Profile) -> Checked {
    let c = &s.congestion;
    let rates = match c.control {
        ControlKind::Dcqcn => {
            let set = c.dcqcn();
            let first = set.rate_to_set_on_first_cnp;
            [("rpg_min_rate", Some(set.rpg_min_rate)), ("rate_to_set_on_first_cnp", first)]
        }
        ControlKind::Timely => [("min_rate", Some(c.timely().min_rate)), ("", None)],
        ControlKind::Integral => {
            let set = c.integral();
            [("min_rate", Some(set.min_rate)), ("start_rate", set.start)]
        }
        ControlKind::None | ControlKind::Ibcc => return Ok(()),
    };
    let Some(line) = fastest_port(s, profile) else { return Ok(()) };
    for (key, rate) in rates {
        if let Some(rate) = rate.filter(|rate| *rate > line) {
            let text = format!(
                "`{key}` is {}, and the fastest port of a host has {}",
                rate.print(),
                line.print()
            );
            let help = format!("at most {}", line.print());
            return refuse(format!("congestion.{key}"), text, help);
        }
    }
    Ok(())
}

/// The highest rate of a port of a host; `None` where the topology makes no network.
pub(super) fn fastest_port(s: &Scenario, profile: &Profile) -> Option<BitRate> {
    let links = network(&s.topology, &s.switch, profile).ok()?.links;
    let of_host = |end: End| matches!(end, End::Host(_));
    links.iter().filter(|l| of_host(l.a) || of_host(l.b)).map(|l| l.link.rate).max()
}

fn check_dcqcn(c: &Congestion) -> Checked {
    let set = c.dcqcn();
    if let Some(max) = set.rpg_max_rate.filter(|max| *max < set.rpg_min_rate) {
        let text = format!("`rpg_max_rate` {} is below `rpg_min_rate`", max.print());
        let help = format!("at least {}, or lower `rpg_min_rate`", set.rpg_min_rate.print());
        return refuse("congestion.rpg_max_rate", text, help);
    }
    if let Some(rate) = set.rate_to_set_on_first_cnp.filter(|rate| *rate < set.rpg_min_rate) {
        let text = format!("`rate_to_set_on_first_cnp` {} is below `rpg_min_rate`", rate.print());
        let help = format!("at least {}, or lower `rpg_min_rate`", set.rpg_min_rate.print());
        return refuse("congestion.rate_to_set_on_first_cnp", text, help);
    }
    if set.cut_on_clock && set.rate_reduce_monitor_period.is_zero() {
        let text = "`rate_reduce_monitor_period` is 0, and `cut_on_clock` counts in it";
        let help = "at least \"1ps\", or `cut_on_clock = false`";
        return refuse("congestion.rate_reduce_monitor_period", text.to_owned(), help);
    }
    Ok(())
}

fn check_share(key: &str, share: Option<Quantity<Ratio>>) -> Checked {
    match share {
        Some(Quantity(r)) if r.num > r.den => {
            refuse(format!("congestion.{key}"), format!("`{key}` is {}", r.print()), "at most 1")
        }
        _ => Ok(()),
    }
}

fn check_timely(c: &Congestion) -> Checked {
    check_share("beta", c.beta)?;
    check_share("ewma", c.ewma)?;
    let set = c.timely();
    if set.t_low > set.t_high {
        let text = format!("`t_low` {} is above `t_high`", set.t_low.print());
        let help = format!("at most {}, or raise `t_high`", set.t_high.print());
        let key = if c.t_low.is_some() { "t_low" } else { "t_high" };
        return refuse(format!("congestion.{key}"), text, help);
    }
    Ok(())
}

fn check_ibcc(c: &Congestion) -> Checked {
    let set = c.ibcc();
    let limit = set.cct.len() as u64 - 1;
    if u64::from(set.ccti_min) > limit {
        let text = format!("`ccti_min` is {}, and the table ends at {limit}", set.ccti_min);
        return refuse("congestion.ccti_min", text, format!("at most {limit}"));
    }
    Ok(())
}

fn check_integral(c: &Congestion) -> Checked {
    let set = c.integral();
    if let Some(start) = set.start.filter(|start| *start < set.min_rate) {
        let text = format!("`start_rate` {} is below `min_rate`", start.print());
        let help = format!("at least {}, or lower `min_rate`", set.min_rate.print());
        return refuse("congestion.start_rate", text, help);
    }
    let missing = [("target", c.target.is_none()), ("gain", c.gain.is_none())];
    match missing.iter().find(|(_, missing)| *missing) {
        None => Ok(()),
        Some((key, _)) => {
            let text = format!("`control = \"integral\"` without `{key}`");
            let help = match *key {
                "target" => "a little more than the empty path's round trip: target = \"12us\"",
                _ => "about 1 / (2 pi target): gain = \"13000/s\" for 12 us",
            };
            refuse("congestion.control", text, help)
        }
    }
}
