//! The `[congestion]` table: what is taken, and what is refused with which remedy.

use doorbell_sim::cc::{Control, Dcqcn, Notification};

use crate::run::congestion::{Keys, settings};
use crate::testing::expanded;

/// Two hosts at a switch, on the link layer that the control is of.
fn text(table: &str) -> String {
    let link = if table.contains("'ibcc'") { "ib" } else { "roce" };
    in_topology(link, "kind = 'switch'", table)
}

fn in_topology(link: &str, topology: &str, table: &str) -> String {
    format!(
        "title = 't'\nprofile = 'generic-400g'\nlink = '{link}'\n[congestion]\n{table}\n\
         [[program]]\nkind = 'bandwidth'\n[topology]\n{topology}\n"
    )
}

#[track_caller]
fn refused_as(text: &str, message: &str, help: &str) {
    let Err(e) = expanded(text, &[]) else { panic!("accepted: {text}") };
    assert!(e.to_string().starts_with("t.toml:"), "{e}");
    assert!(e.to_string().contains(message), "{e}");
    assert!(e.remedy().unwrap_or("").contains(help), "{:?}", e.remedy());
}

#[track_caller]
fn refused(table: &str, message: &str, help: &str) {
    refused_as(&text(table), message, help);
}

#[track_caller]
fn control(table: &str) -> Control {
    let points = expanded(&text(table), &[]).unwrap_or_else(|e| panic!("{e}: {:?}", e.remedy()));
    settings(&points[0].point.scenario.congestion).control
}

fn dcqcn(table: &str) -> Dcqcn {
    match control(&format!("control = 'dcqcn'\n{table}")) {
        Control::Dcqcn(cfg) => cfg,
        other => panic!("{other:?}"),
    }
}

#[test]
fn parameter_sets_and_single_parameters() {
    assert!(matches!(control(""), Control::None));
    assert_eq!(dcqcn(""), Dcqcn::PAPER);
    assert_eq!(dcqcn("parameters = 'vendor'"), Dcqcn::VENDOR);
    assert_eq!(dcqcn("parameters = 'hpcc'"), Dcqcn::HPCC);
    let cfg = dcqcn("cut_on_clock = true\nkeep_limiter = true");
    assert_eq!(cfg, Dcqcn::HPCC);
    let cfg = dcqcn("parameters = 'vendor'\nrpg_threshold = 5\nrpg_byte_reset = '0B'");
    assert_eq!(cfg, Dcqcn { rpg_threshold: 5, rpg_byte_reset: None, ..Dcqcn::VENDOR });
    let cfg = dcqcn("dce_tcp_g = 1019\nclamp_tgt_rate = true");
    assert_eq!(cfg, Dcqcn { dce_tcp_g: 1019, clamp_tgt_rate: true, ..Dcqcn::PAPER });
    assert!(
        matches!(control("control = 'timely'\nbeta = '50%'"), Control::Timely(t) if t.beta == 512)
    );
    let table = "control = 'ibcc'\nccti_limit = 2\ncct_shift = 1";
    assert!(
        matches!(control(table), Control::Ibcc(i) if i.cct == [1 << 14, 1 << 14 | 1, 1 << 14 | 2])
    );
    let table = "control = 'integral'\ntarget = '12us'\ngain = '13000/s'";
    assert!(matches!(control(table), Control::Integral(i) if i.gain == 13_000));
}

#[test]
fn variants_and_sweeps_reach_it_without_a_table_in_the_file() {
    let file = "title = 't'\nprofile = 'generic-400g'\ntopology.kind = 'switch'\n\
                [[program]]\nkind = 'bandwidth'\n[[variant]]\nname = 'a'\n\
                set = { 'congestion.control' = 'dcqcn' }\n\
                [sweep]\n'congestion.rpg_threshold' = [1, 5]\n";
    let points = expanded(file, &[]).unwrap_or_else(|e| panic!("{e}: {:?}", e.remedy()));
    let f = |i: usize| match settings(&points[i].point.scenario.congestion).control {
        Control::Dcqcn(cfg) => cfg.rpg_threshold,
        other => panic!("{other:?}"),
    };
    assert_eq!([f(0), f(1)], [1, 5]);
}

#[test]
fn who_sends_cnps_and_when() {
    let notify = |table: &str| {
        let points = expanded(&text(table), &[]).unwrap_or_else(|e| panic!("{e}"));
        points[0].point.scenario.congestion.notification()
    };
    assert_eq!(notify(""), None);
    assert_eq!(notify("control = 'timely'"), None);
    assert_eq!(notify("control = 'dcqcn'"), Some(Notification::PAPER));
    let vendor = "control = 'dcqcn'\nparameters = 'vendor'";
    assert_eq!(notify(vendor), Some(Notification::VENDOR));
    assert_eq!(notify("control = 'ibcc'"), Some(Notification::INFINIBAND));
    let given = notify("control = 'dcqcn'\ncnp_sl = 3\ncnp_scope = 'port'\ncnp_with_nak = true");
    assert!(given.is_some_and(|n| n.sl == Some(3) && n.with_nak));
    assert_eq!(notify("control = 'dcqcn'\nparameters = 'hpcc'"), Some(Notification::HPCC));
    let echo = notify("control = 'dcqcn'\nbecn_in_acks = true");
    assert_eq!(echo, Some(Notification { becn_in_acks: true, ..Notification::PAPER }));
}

#[test]
fn a_gap_stays_with_dcqcn_and_follows_the_rate_with_others() {
    let keeps = |table: &str| {
        let points = expanded(&text(table), &[]).unwrap_or_else(|e| panic!("{e}"));
        settings(&points[0].point.scenario.congestion).keep_gap
    };
    for control in ["dcqcn", "timely", "ibcc"] {
        let table = format!("control = '{control}'");
        assert_eq!(keeps(&table), control == "dcqcn", "{control}");
        assert!(keeps(&format!("{table}\nkeep_gap = true")));
        assert!(!keeps(&format!("{table}\nkeep_gap = false")));
    }
}

#[test]
fn a_clock_of_cuts_needs_a_period() {
    let zero = "control = 'dcqcn'\nrate_reduce_monitor_period = '0us'";
    dcqcn("rate_reduce_monitor_period = '0us'");
    dcqcn("rate_reduce_monitor_period = '1ps'\ncut_on_clock = true");
    let help = "at least \"1ps\"";
    refused(&format!("{zero}\ncut_on_clock = true"), "`rate_reduce_monitor_period` is 0", help);
    refused(&format!("{zero}\nparameters = 'hpcc'"), "`rate_reduce_monitor_period` is 0", help);
}

#[test]
fn keys_without_a_use() {
    refused("t_low = '5us'", "`t_low` has no use with `control = \"none\"`", "\"timely\"");
    let both = "write `control = \"timely\"` or `control = \"integral\"`";
    refused("control = 'dcqcn'\nmin_rate = '1Mbps'", "`min_rate` has no use", both);
    refused("control = 'ibcc'\nparameters = 'paper'", "`parameters` has no use", "\"dcqcn\"");
    refused("control = 'dcqcm'", "unknown value \"dcqcm\"", "`dcqcn`");
    refused("rpg_gdd = 11", "unknown key `rpg_gdd`", "`rpg_gd`");
}

#[test]
fn both_sides_of_each_limit() {
    let wrong = |key: &str, low: u64, high: u64, control: &str| {
        for n in [low, high] {
            self::control(&format!("control = '{control}'\n{key} = {n}"));
        }
        refused(&format!("control = '{control}'\n{key} = {}", high + 1), "impossible value", "");
        if low > 0 {
            refused(&format!("control = '{control}'\n{key} = {}", low - 1), "impossible value", "");
        }
    };
    wrong("rpg_gd", 10, 15, "dcqcn");
    wrong("rpg_min_dec_fac", 0, 100, "dcqcn");
    wrong("rpg_threshold", 1, 1000, "dcqcn");
    wrong("initial_alpha_value", 0, 1023, "dcqcn");
    wrong("dce_tcp_g", 0, 1023, "dcqcn");
    wrong("cnp_sl", 0, 15, "dcqcn");
    wrong("hai_threshold", 1, 1000, "timely");
    wrong("ccti_timer", 1, 65_535, "ibcc");
    wrong("ccti_limit", 1, 16_383, "ibcc");
    wrong("cct_shift", 0, 3, "ibcc");
    refused("control = 'dcqcn'\nrpg_time_reset = '0us'", "zero", "");
}

#[test]
fn numbers_that_contradict_each_other() {
    dcqcn("rpg_max_rate = '100Mbps'");
    let below = "control = 'dcqcn'\nrpg_max_rate = '99Mbps'";
    refused(below, "`rpg_max_rate` 99Mbps is below `rpg_min_rate`", "at least 100Mbps");
    let below = "control = 'dcqcn'\nrate_to_set_on_first_cnp = '99Mbps'";
    refused(below, "is below `rpg_min_rate`", "at least 100Mbps");
    control("control = 'timely'\nt_low = '500us'");
    refused(
        "control = 'timely'\nt_low = '501us'",
        "`t_low` 501us is above `t_high`",
        "at most 500us",
    );
    control("control = 'timely'\nbeta = 1");
    refused("control = 'timely'\nbeta = 1.5", "`beta` is", "at most 1");
    control("control = 'ibcc'\nccti_limit = 5\nccti_min = 5");
    refused("control = 'ibcc'\nccti_limit = 5\nccti_min = 6", "the table ends at 5", "at most 5");
    refused("control = 'integral'\ngain = '1/s'", "without `target`", "target = \"12us\"");
    refused("control = 'integral'\ntarget = '1us'", "without `gain`", "1 / (2 pi target)");
}

#[test]
fn a_control_of_the_other_link_layer_is_refused() {
    let of = |link: &str, word: &str| {
        in_topology(link, "kind = 'switch'", &format!("control = '{word}'"))
    };
    for (link, word) in [("roce", "dcqcn"), ("ib", "ibcc"), ("roce", "timely"), ("ib", "timely")] {
        expanded(&of(link, word), &[]).unwrap_or_else(|e| panic!("{link} {word}: {e}"));
    }
    refused_as(&of("ib", "dcqcn"), "t.toml:5:11: `dcqcn` is RoCE's", "write `control = \"ibcc\"`");
    refused_as(&of("roce", "ibcc"), "t.toml:5:11: `ibcc` is InfiniBand's", "\"dcqcn\"");
    // The profile's layer counts where the file has none.
    let text = of("roce", "ibcc").replace("link = 'roce'\n", "");
    refused_as(&text, "and the ports are RoCE's", "`link = \"ib\"` above the tables");
    assert!(expanded(&text, &["port.link=ib"]).is_ok());
}

#[test]
fn marks_need_a_switch() {
    let cable = |table: &str| in_topology("roce", "kind = 'back-to-back'", table);
    let text = "`dcqcn` waits for marks, and `back-to-back` has no switch";
    refused_as(&cable("control = 'dcqcn'"), text, "write `kind = \"switch\"` in [topology]");
    for table in ["control = 'dcqcn'\ncnp_with_nak = true", "control = 'timely'"] {
        assert!(expanded(&cable(table), &[]).is_ok(), "{table}");
    }
}

#[test]
fn acks_need_a_reliable_connection() {
    let of = |word: &str, ty: &str| {
        text(&format!("control = '{word}'\ntarget = '9us'\ngain = '1/s'\n[qp]\ntype = '{ty}'"))
    };
    let of = |word: &str, ty: &str| match word {
        "integral" => of(word, ty),
        _ => of(word, ty).replace("target = '9us'\ngain = '1/s'\n", ""),
    };
    for word in ["timely", "integral"] {
        assert!(expanded(&of(word, "RC"), &[]).is_ok(), "{word}");
        let message = format!("`{word}` measures the way of ACKs, and only RC has any");
        refused_as(&of(word, "UC"), &message, "write `type = \"RC\"`");
    }
    assert!(expanded(&of("dcqcn", "UC"), &[]).is_ok(), "CNPs come for every service");
}

#[test]
fn no_rate_begins_above_the_line() {
    let of = |control: &str, key: &str, rate: &str| {
        let topology = "kind = 'switch'\nrate = '10Gbps'";
        in_topology("roce", topology, &format!("control = '{control}'\n{key} = '{rate}'"))
    };
    let integral = "integral'\ntarget = '9us'\ngain = '1/s'\nmin_rate = '1Mbps";
    for (control, key) in [
        ("dcqcn", "rpg_min_rate"),
        ("dcqcn", "rate_to_set_on_first_cnp"),
        ("timely", "min_rate"),
        (integral, "start_rate"),
    ] {
        assert!(expanded(&of(control, key, "10Gbps"), &[]).is_ok(), "{key}");
        let message = format!("`{key}` is 10.001Gbps, and the fastest port of a host has 10Gbps");
        refused_as(&of(control, key, "10001Mbps"), &message, "at most 10Gbps");
    }
    let integral = integral.replace("1Mbps", "2Gbps");
    let start = |rate: &str| of(&integral, "start_rate", rate);
    assert!(expanded(&start("2Gbps"), &[]).is_ok());
    let message = "`start_rate` 1.999Gbps is below `min_rate`";
    refused_as(&start("1999Mbps"), message, "at least 2Gbps, or lower `min_rate`");
    // The parameter set's own, 100 Mb/s, at its table.
    let slow = text("control = 'dcqcn'");
    assert!(expanded(&slow, &["topology.rate=100Mbps"]).is_ok());
    let e = expanded(&slow, &["topology.rate=99Mbps"]).unwrap_err();
    assert!(e.to_string().starts_with("t.toml:4:1: `rpg_min_rate` is 100Mbps"), "{e}");
}
