//! Contradictions of the switches: keys without a use, thresholds above buffers.

use doorbell_sim::fabric::{ConfigError, EcnError, Fabric, FabricConfig};

use super::check::{Checked, refuse, refuse_both};
use super::{Scenario, SharingMode, StormMode, Switch, SwitchMode, TopologyKind, TrafficClass};
use crate::profile::Profile;
use crate::run::network::{least_buffer, network_of};

/// Least pause time of pauses that are renewed: half of it is the time of the frame, which has 64
/// bytes and 20 around them, or 1.3 quanta of 512 bits.
const LEAST_QUANTA: u64 = 3;

/// Refuses a `[switch]` that contradicts itself or the network.
pub(super) fn check_switch(s: &Scenario, profile: &Profile) -> Checked {
    let (t, switch) = (&s.topology, &s.switch);
    let pfc = t.switch_mode() == SwitchMode::Pfc;
    if *switch == Switch::default() && !pfc {
        return check_links(s, false);
    }
    if t.kind == TopologyKind::BackToBack {
        let text = "`[switch]` is about switches, and `back-to-back` has none".to_owned();
        return refuse("switch", text, "write `kind = \"switch\"` in [topology]");
    }
    if pfc && t.buffer.is_some() {
        let text = "`buffer` is that of a port, and with `pfc` ports share one".to_owned();
        return refuse("topology.buffer", text, "write `buffer` in [switch] instead");
    }
    check_links(s, pfc)?;
    check_keys(switch, pfc)?;
    check_classes(switch, pfc)?;
    let config = network_of(s, profile)
        .or_else(|w| refuse(w.path, w.message, w.help).map(|()| unreachable!("it is refused")))?;
    match Fabric::new(&config, 0) {
        Ok(_) => Ok(()),
        Err(error) => refuse_config(switch, (&config, pfc), &error),
    }
}

fn check_links(s: &Scenario, pfc: bool) -> Checked {
    match s.topology.link.iter().position(|l| l.pfc.is_some()) {
        Some(i) if !pfc => {
            let text = "`pfc` of a link, and no switch pauses anybody".to_owned();
            refuse(format!("topology.link.{i}.pfc"), text, "write `switch = \"pfc\"`")
        }
        _ => Ok(()),
    }
}

fn check_keys(switch: &Switch, pfc: bool) -> Checked {
    let fixed = switch.sharing == Some(SharingMode::Static);
    let used = [
        ("buffer", switch.buffer.is_some()),
        ("sharing", switch.sharing.is_some()),
        ("alpha", switch.alpha.is_some()),
        ("reserved", switch.reserved.is_some()),
        ("headroom", switch.headroom.is_some()),
        ("xoff", switch.xoff.is_some()),
        ("xon", switch.xon.is_some()),
        ("serve", switch.serve.is_some()),
        ("reaction", switch.reaction.is_some()),
        ("quanta", switch.quanta.is_some()),
        ("lapse", switch.lapse),
        ("watchdog", switch.watchdog.is_some()),
        ("storm", switch.storm.is_some()),
        ("restore", switch.restore.is_some()),
    ];
    if let Some((key, _)) = used.iter().find(|(_, used)| *used && !pfc) {
        let text = format!("`{key}` is about a shared buffer with pauses");
        return refuse(format!("switch.{key}"), text, "write `switch = \"pfc\"` in [topology]");
    }
    let lossless =
        switch.class.is_empty() || switch.class.iter().any(|c| c.lossless != Some(false));
    let pausing =
        ["headroom", "xoff", "xon", "reaction", "quanta", "lapse", "watchdog", "storm", "restore"];
    let idle = used.iter().find(|(key, used)| *used && !lossless && pausing.contains(key));
    if let Some((key, _)) = idle {
        let text = format!("`{key}` is about pauses, and no class is lossless");
        return refuse(format!("switch.{key}"), text, "leave it out, or make a class lossless");
    }
    if fixed && switch.alpha.is_some() {
        let text = "`alpha` has no use in a static split".to_owned();
        return refuse("switch.alpha", text, "leave it out, or write `sharing = \"dynamic\"`");
    }
    if switch.xon.is_some() && switch.xoff.is_none() {
        let text = "`xon` without `xoff`".to_owned();
        return refuse("switch.xon", text, "say at how many bytes it pauses: xoff = \"200KB\"");
    }
    if let Some(quanta) = switch.quanta.map(|q| q.value()).filter(|q| *q < LEAST_QUANTA)
        && !switch.lapse
    {
        let text = format!(
            "a pause of {quanta} quanta is renewed at half of its time, and a pause frame of 84 B \
             alone takes 1.3"
        );
        let help = format!("at least {LEAST_QUANTA}, or `lapse = true`: pauses are not renewed");
        return refuse("switch.quanta", text, help);
    }
    if switch.storm.is_some() && switch.watchdog.is_none() {
        let text = "`storm`, and nobody looks for one".to_owned();
        return refuse("switch.storm", text, "say how long is too long: watchdog = \"10ms\"");
    }
    if switch.restore.is_some() && switch.storm != Some(StormMode::Ignore) {
        let text = "`restore`, and no pause is passed over".to_owned();
        return refuse("switch.restore", text, "write `storm = \"ignore\"`, or leave it out");
    }
    Ok(())
}

fn check_classes(switch: &Switch, pfc: bool) -> Checked {
    let most = doorbell_sim::fabric::MAX_CLASSES;
    if switch.class.len() > most {
        let text = format!("{} traffic classes", switch.class.len());
        return refuse("switch.class", text, format!("at most {most}"));
    }
    for (i, class) in switch.class.iter().enumerate() {
        let path = |key: &str| format!("switch.class.{i}.{key}");
        if class.strict && class.weight.is_some() {
            let text = "`weight` of a strict class".to_owned();
            return refuse(path("weight"), text, "leave out one of `strict` and `weight`");
        }
        if class.lossless.is_some() && !pfc {
            let text = "`lossless` is about pauses".to_owned();
            return refuse(path("lossless"), text, "write `switch = \"pfc\"` in [topology]");
        }
    }
    check_levels(switch)?;
    let marks = switch.ecn.is_some() || switch.class.iter().any(|c| c.ecn.is_some());
    if !switch.exception.is_empty() && !marks {
        let text = "an exception, and no class is marked".to_owned();
        return refuse("switch.exception.0", text, "write [switch.ecn], or `ecn` in a class");
    }
    if switch.ecn.is_some()
        && !switch.class.is_empty()
        && switch.class.iter().all(|c| c.ecn.is_some())
    {
        let text = "every class has `ecn` of its own, and none takes `[switch.ecn]`".to_owned();
        return refuse("switch.ecn", text, "leave it out, or take `ecn` from a class");
    }
    Ok(())
}

/// Each service level is in one class, and each class has one. A class without `sl` has the level
/// of its number.
fn check_levels(switch: &Switch) -> Checked {
    let at = |class: usize, key: &str| format!("switch.class.{class}{key}");
    let mut taken = [None; 16];
    for (i, class) in switch.class.iter().enumerate() {
        if class.sl.is_none() {
            taken[i] = Some((i, false));
        }
    }
    for (i, class) in switch.class.iter().enumerate() {
        for sl in class.sl.iter().flatten().map(|sl| sl.value()) {
            let Some((before, listed)) = taken[sl as usize].replace((i, true)) else { continue };
            let (by, key) = if listed { ("", ".sl") } else { (", by its number", "") };
            let text = format!("service level {sl} is in class {before} already{by}");
            let help = match listed {
                true => "name each level once".to_owned(),
                false => format!("give class {before} an `sl` of its own, or take {sl} from here"),
            };
            return refuse_both((at(i, ".sl"), at(before, key)), text, help);
        }
    }
    // Levels that nobody takes are in class 0.
    let rest = taken.iter().any(Option::is_none);
    let empty = |(i, class): &(usize, &TrafficClass)| {
        class.sl.as_ref().is_some_and(Vec::is_empty) && (*i > 0 || !rest)
    };
    match switch.class.iter().enumerate().find(empty) {
        Some((i, _)) => {
            let text = format!("no service level is in class {i}");
            refuse(at(i, ".sl"), text, format!("name one: sl = [{i}], or leave the class out"))
        }
        None => Ok(()),
    }
}

/// The key of a curve that is wrong.
const fn wrong_key(error: EcnError) -> &'static str {
    match error {
        EcnError::KminAboveKmax { .. } => "kmin",
        EcnError::KmaxAboveBuffer { .. } => "kmax",
        EcnError::PmaxAboveOne { .. } => "pmax",
    }
}

fn refuse_config(
    switch: &Switch,
    (config, pfc): (&FabricConfig, bool),
    error: &ConfigError,
) -> Checked {
    let (path, help) = match error {
        ConfigError::NothingShared { taken, .. } => {
            let own = switch.headroom.is_some_and(|h| h.0.is_some());
            let key = match switch {
                _ if own => "headroom",
                Switch { reserved: Some(_), .. } => "reserved",
                _ => "buffer",
            };
            let less = if key == "buffer" { String::new() } else { format!(", or less `{key}`") };
            (format!("switch.{key}"), format!("write `buffer` of more than {taken}B{less}"))
        }
        ConfigError::BufferTooSmall { node, needed, .. } => {
            let table = if pfc { "switch" } else { "topology" };
            let needed = u64::from(*needed);
            let least = least_buffer(config, *node, needed).unwrap_or(needed);
            (format!("{table}.buffer"), format!("at least {least}B"))
        }
        ConfigError::ShareTooSmall { .. } => {
            let (key, help) = match switch {
                Switch { alpha: Some(_), .. } => ("alpha", "raise it, or `buffer`"),
                Switch { buffer: Some(_), .. } => ("buffer", "raise it"),
                _ => ("buffer", "write a larger `buffer`"),
            };
            (format!("switch.{key}"), help.to_owned())
        }
        ConfigError::XonAboveXoff { xoff, .. } => {
            ("switch.xon".to_owned(), format!("at most {xoff}B"))
        }
        ConfigError::XoffAboveBuffer { pool, .. } => {
            ("switch.xoff".to_owned(), format!("at most {pool}B, or raise `buffer`"))
        }
        ConfigError::EcnException { exception, error } => {
            let key = wrong_key(*error);
            (format!("switch.exception.{exception}.ecn.{key}"), format!("change `{key}`"))
        }
        ConfigError::Ecn { class, switch: at, error } => {
            let key = wrong_key(*error);
            let own = switch.class.get(usize::from(*class)).is_some_and(|c| c.ecn.is_some());
            let path = match own {
                true => format!("switch.class.{class}.ecn.{key}"),
                false => format!("switch.ecn.{key}"),
            };
            let other = at.map_or(String::new(), |at| {
                format!(
                    ", or give the switch another curve: [[switch.exception]] at = \"switch{at}\""
                )
            });
            (path, format!("change `{key}`{other}"))
        }
        _ => ("switch".to_owned(), "change it".to_owned()),
    };
    refuse(path, error.to_string(), help)
}
