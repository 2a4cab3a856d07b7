//! Congestion control: keys without a use, and numbers that contradict each other.

use doorbell_core::units::Ratio;

use super::check::{Checked, refuse};
use super::{Congestion, ControlKind, Scenario};
use crate::quantity::{Quantity, Unit};
use crate::run::congestion::Keys;

pub(super) fn check_congestion(s: &Scenario) -> Checked {
    let c = &s.congestion;
    check_keys(c)?;
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
