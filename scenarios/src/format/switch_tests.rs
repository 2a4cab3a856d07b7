//! `[switch]`: what it comes to, what contradicts it, both sides of its limits.

use doorbell_core::units::{Ratio, Span};
use doorbell_sim::fabric::{
    Buffering, EcnConfig, FabricConfig, Headroom, MarkAt, PauseAt, Serve, Service, SharedConfig,
    Sharing, StormAction, Watchdog,
};
use doorbell_sim::wire::PortId;

use crate::input::InputError;
use crate::run::network::network_of;
use crate::run::{Runner, Simulator};
use crate::testing;

/// Three hosts at a switch of this mode. `rest` begins at line 10, in `[switch]`.
fn file(mode: &str, rest: &str) -> String {
    format!(
        "title = 't'\nprofile = 'generic-400g'\n[[program]]\nkind = 'latency'\n[topology]\n\
         kind = 'switch'\nhosts = 3\nswitch = '{mode}'\n[switch]\n{rest}\n"
    )
}

fn configs(text: &str, set: &[&str]) -> Result<Vec<FabricConfig>, InputError> {
    let points = testing::expanded(text, set)?;
    let one = |p: &crate::format::expand::Expanded| {
        network_of(&p.point.scenario, &p.point.profile).expect("a network")
    };
    Ok(points.iter().map(one).collect())
}

fn pfc(rest: &str) -> Result<FabricConfig, InputError> {
    configs(&file("pfc", rest), &[]).map(|mut all| all.remove(0))
}

fn shared(c: &FabricConfig) -> SharedConfig {
    match c.switches[0].buffering {
        Buffering::Shared(shared) => shared,
        ref other => panic!("{other:?}"),
    }
}

#[track_caller]
fn good(rest: &str) -> FabricConfig {
    pfc(rest).unwrap_or_else(|e| panic!("{rest}: {e}: {:?}", e.remedy()))
}

/// The message, which begins with line and column, and what to do.
#[track_caller]
fn refused_in(mode: &str, rest: &str, place: &str, message: &str, help: &str) {
    let e = configs(&file(mode, rest), &[]).expect_err(rest);
    let text = e.to_string();
    assert!(text.starts_with(&format!("t.toml:{place}: ")), "{rest}: {text}");
    assert!(text.contains(message), "{rest}: {text}");
    assert!(e.remedy().unwrap_or("").contains(help), "{rest}: {:?}", e.remedy());
}

#[track_caller]
fn refused(rest: &str, place: &str, message: &str, help: &str) {
    refused_in("pfc", rest, place, message, help);
}

#[test]
fn every_key_arrives_at_the_switch() {
    let c = good(
        "buffer = '4MB'\nalpha = '1/8'\nreserved = '1KB'\nheadroom = '40KB'\nxoff = '100KB'\n\
         xon = '80KB'\nserve = 'inputs'\nreaction = '500ns'\nquanta = 977\nlapse = true\n\
         watchdog = '10ms'\nstorm = 'ignore'",
    );
    let expected = SharedConfig {
        total_bytes: 4_000_000,
        sharing: Sharing::Dynamic { alpha: Ratio { num: 1, den: 8 } },
        reserved_bytes: 1_000,
        headroom: Headroom::Bytes(40_000),
        pause_at: PauseAt::Fixed { xoff: 100_000, xon: 80_000 },
        serve: Serve::Inputs,
        reaction: Some(Span::from_ns(500)),
        quanta: 977,
        lapse: true,
        watchdog: Some(Watchdog {
            after: Span::from_us(10_000),
            action: StormAction::Ignore,
            restore: Span::from_us(20_000),
        }),
    };
    assert_eq!(shared(&c), expected);
    let c = good("watchdog = '10ms'\nstorm = 'ignore'\nrestore = '1ms'");
    assert_eq!(shared(&c).watchdog.map(|w| w.restore), Some(Span::from_us(1000)));
    assert_eq!(shared(&good("sharing = 'static'")).sharing, Sharing::Static);
    assert_eq!(shared(&good("headroom = 'formula'")).headroom, Headroom::Formula);
}

#[test]
fn what_is_left_out_is_that_of_the_simulator() {
    assert_eq!(shared(&good("")), SharedConfig::default());
    assert!(good("").classes.each[0].lossless);
    // Without `xon`, two of the largest packets below `xoff`, and never below nothing.
    let pause_at = |xoff: &str| shared(&good(&format!("xoff = '{xoff}'"))).pause_at;
    assert_eq!(pause_at("100KB"), PauseAt::Fixed { xoff: 100_000, xon: 91_552 });
    assert_eq!(pause_at("8KB"), PauseAt::Fixed { xoff: 8_000, xon: 0 });
}

#[test]
fn classes_have_their_levels_service_and_marks() {
    let c = good(
        "[switch.ecn]\n[[switch.class]]\nsl = [0, 5]\nweight = 3\n[[switch.class]]\nstrict = true\n\
         lossless = false\necn = { kmin = '1KB', kmax = '2KB', pmax = 1, at = 'enqueue' }",
    );
    let [first, second] = &c.classes.each[..] else { panic!("two classes") };
    assert_eq!((first.service, first.lossless), (Service::Weighted(3), true));
    assert_eq!(first.ecn, Some(EcnConfig::default()), "that of `[switch.ecn]`");
    assert_eq!((second.service, second.lossless), (Service::Strict, false));
    let pmax = Ratio { num: 1, den: 1 };
    let own = EcnConfig { kmin: 1_000, kmax: 2_000, pmax, at: MarkAt::Enqueue };
    assert_eq!(second.ecn, Some(own));
    let mut of_sl = [0; 16];
    of_sl[1] = 1;
    assert_eq!(c.classes.of_sl, of_sl, "level 1 is that of class 1, which names none");
}

#[test]
fn thresholds_fit_into_the_buffer() {
    let of = |xoff: &str| format!("buffer = '1MB'\nheadroom = '40KB'\nxoff = '{xoff}'");
    good(&of("880000B"));
    let text = "pauses at 880001 bytes (xoff), but has only 880000 to share";
    refused(&of("880001B"), "12:8", text, "at most 880000B, or raise `buffer`");
    let of = |xon: &str| format!("xoff = '100KB'\nxon = '{xon}'");
    good(&of("100KB"));
    refused(&of("100001B"), "11:7", "resumes at 100001 bytes (xon), above its xoff", "at most");
    refused("xon = '80KB'", "10:7", "`xon` without `xoff`", "xoff = ");
    refused("xoff = '0B'", "10:8", "", "");
}

#[test]
fn headroom_and_reserved_parts_leave_something_to_share() {
    let of = |total: &str| format!("buffer = '{total}'\nheadroom = '40KB'");
    good(&of("120001B"));
    let text = "has a buffer of 120000 bytes, and headroom and reserved parts take 120000";
    refused(&of("120KB"), "11:12", text, "more than 120000B, or less `headroom`");
    let text = "has a buffer of 33554432 bytes";
    refused("headroom = '12MB'", "10:12", text, "write `buffer` of more than 36000000B");
    refused("reserved = '12MB'", "10:12", text, "write `buffer` of more than");
    good("reserved = '1MB'");
    let text = "\"much\" is no headroom";
    refused("headroom = 'much'", "10:12", text, "\"formula\", or bytes such as \"40KB\"");
}

#[test]
fn a_buffer_holds_the_largest_packet() {
    let text = "a buffer of 4223 bytes at switch 0 never takes the largest packet";
    refused("buffer = '4223B'\nheadroom = '0B'", "10:10", text, "at least 4224B");
    good("buffer = '4224B'\nheadroom = '0B'");
    // Elsewhere the buffer is the port's.
    let of = |bytes: &str| {
        let text = file("tail-drop", "class = [{}]");
        text.replace("hosts = 3", &format!("hosts = 3\nbuffer = '{bytes}'"))
    };
    assert!(configs(&of("4224B"), &[]).is_ok());
    let e = configs(&of("4223B"), &[]).unwrap_err();
    assert!(e.to_string().starts_with("t.toml:8:10: "), "{e}");
    let own = file("pfc", "").replace("hosts = 3", "hosts = 3\nbuffer = '1MB'");
    let e = configs(&own, &[]).unwrap_err();
    assert!(e.to_string().starts_with("t.toml:8:10: `buffer` is that of a port"), "{e}");
    assert!(e.remedy().unwrap_or("").contains("in [switch] instead"));
}

#[test]
fn curves_go_up_and_end_in_the_buffer() {
    let ecn = |keys: &str| format!("buffer = '1MB'\n[switch.ecn]\n{keys}");
    // Headroom of three inputs, and the share of an output of all that is left.
    good(&ecn("kmin = '531951B'\nkmax = '531951B'\npmax = 1"));
    let text = "kmin must not be larger";
    refused(&ecn("kmin = '400001B'\nkmax = '400KB'"), "12:8", text, "change `kmin`");
    let text = "a queue holds 531951 at most: lower kmax";
    let curve = ecn("kmin = '1KB'\nkmax = '531952B'");
    refused(&curve, "13:8", text, "change `kmax`");
    refused(&curve, "13:8", "class 0 at switch 0: ", "at = \"switch0\"");
    let text = "a chance of 11/10 (pmax): at most 1";
    refused(&ecn("pmax = '11/10'"), "12:8", text, "change `pmax`");
    // Of a class by itself, at its own place.
    let class =
        "[[switch.class]]\n[[switch.class]]\n[switch.class.ecn]\nkmin = '5KB'\nkmax = '4KB'";
    refused(class, "13:8", "class 1: ECN marking begins at 5000", "change `kmin`");
}

#[test]
fn a_port_of_a_lossy_switch_bounds_the_curve_too() {
    let text = |kmax: &str| {
        let text = file("tail-drop", &format!("[switch.ecn]\nkmin = '1KB'\nkmax = '{kmax}'"));
        text.replace("hosts = 3", "hosts = 3\nbuffer = '200KB'")
    };
    assert!(configs(&text("200KB"), &[]).is_ok());
    let e = configs(&text("200001B"), &[]).unwrap_err();
    assert!(e.to_string().contains("a queue holds 200000 at most"), "{e}");
}

#[test]
fn classes_are_distinct_and_few() {
    let classes = |n: usize| vec!["{}"; n].join(", ");
    assert_eq!(good(&format!("class = [{}]", classes(8))).classes.each.len(), 8);
    let text = "9 traffic classes";
    refused(&format!("class = [{}]", classes(9)), "10:9", text, "at most 8");
    let of =
        |second: &str| format!("[[switch.class]]\nsl = [0, 3]\n[[switch.class]]\nsl = {second}");
    good(&of("[1, 15]"));
    refused(&of("[1, 3]"), "13:6", "service level 3 is in class 0 already", "each level once");
    refused(&of("[3, 3]"), "13:6", "service level 3 is in class 0 already", "each level once");
    refused("class = [{ sl = [2, 2] }]", "10:17", "level 2 is in class 0 already", "once");
    refused(&of("[16]"), "13:7", "found 16", "");
    let places = "already, `switch.class.0.sl` (line 11)";
    refused(&of("[1, 3]"), "13:6", places, "");
    good("class = [{ weight = 1 }, { weight = 1000 }]");
    refused("class = [{ weight = 0 }]", "10:21", "found 0", "1");
    refused("class = [{ weight = 1001 }]", "10:21", "found 1001", "1000");
    let both = "class = [{ strict = true, weight = 2 }]";
    refused(both, "10:36", "`weight` of a strict class", "leave out one of");
    refused("class = [{ priority = 1 }]", "10:12", "priority", "");
}

#[test]
fn a_level_is_in_one_class_by_list_or_by_number() {
    let of = |first: &str, second: &str| {
        format!("[[switch.class]]\n{first}\n[[switch.class]]\n{second}")
    };
    good(&of("sl = [0, 2]", ""));
    let text = "service level 1 is in class 1 already, by its number, `switch.class.1` (line 12)";
    let help = "give class 1 an `sl` of its own, or take 1 from here";
    refused(&of("sl = [0, 1]", ""), "11:6", text, help);
    let text = "service level 0 is in class 0 already, by its number, `switch.class.0` (line 10)";
    refused(&of("", "sl = [0]"), "13:6", text, "give class 0 an `sl` of its own");
    good(&of("sl = [1]", "sl = [0]"));
}

#[test]
fn a_class_without_a_level_is_refused() {
    let of = |first: &str, second: &str| format!("class = [{{ {first} }}, {{ {second} }}]");
    good(&of("sl = []", "sl = [3]"));
    let most: Vec<String> = (0..16).map(|sl| sl.to_string()).collect();
    let (most, all) = (most[1..].join(", "), most.join(", "));
    good(&of("sl = []", &format!("sl = [{most}]")));
    let text = "no service level is in class 0";
    refused(&of("sl = []", &format!("sl = [{all}]")), "10:17", text, "name one: sl = [0]");
    let text = "no service level is in class 1";
    refused(&of("", "sl = []"), "10:23", text, "name one: sl = [1], or leave the class out");
}

#[test]
fn exceptions_name_switches_and_ports_that_there_are() {
    let of =
        |at: &str, ecn: &str| format!("[switch.ecn]\n[[switch.exception]]\nat = '{at}'\n{ecn}");
    let c = good(&of("switch0.port2", "ecn = { kmin = '1KB' }"));
    let [e] = &c.ecn_exceptions[..] else { panic!("one") };
    assert!(e.is_of(0, PortId(2)) && !e.is_of(0, PortId(1)));
    assert_eq!(e.ecn.map(|e| e.kmin), Some(1_000));
    assert_eq!(good(&of("switch0..0", "")).ecn_exceptions[0].ecn, None);
    let words = "write \"switch0\", \"switch0..3\" or \"switch0.port1\"";
    for bad in ["host0", "switch", "switch0.port", "switch0.port-1", "switch0..0x"] {
        refused(&of(bad, ""), "12:6", &format!("\"{bad}\" names no switch"), words);
    }
    refused(&of("switch0..1", ""), "12:6", "no switch1: the network has 1", "counted from 0");
    refused(&of("switch0.port3", ""), "12:6", "no port 3 at switch0, which has 3", "from 0");
    let text = "ECN exception 0: ECN marking begins at 400001 bytes";
    refused(&of("switch0", "ecn = { kmin = '400001B' }"), "13:16", text, "change `kmin`");
    let alone = "[[switch.exception]]\nat = 'switch0'";
    refused(alone, "10:1", "an exception, and no class is marked", "write [switch.ecn]");
}

/// What is wrong with a curve of an explicit network is said of the curve and not of a link.
#[test]
fn curves_of_explicit_networks_are_refused_at_their_place() {
    let text = file("pfc", "[switch.ecn]\nkmin = '400001B'")
        .replace("kind = 'switch'", "kind = 'explicit'\nswitches = 1")
        .replace("[switch]", "link = [{ between = 'host0..2-switch0' }]\n[switch]");
    let e = configs(&text, &[]).unwrap_err();
    assert!(e.to_string().starts_with("t.toml:13:8: class 0: ECN marking begins"), "{e}");
}

#[test]
fn a_curve_that_no_class_takes_is_refused() {
    let of = |second: &str| format!("class = [{{ ecn = {{}} }}, {{ {second} }}]\n[switch.ecn]");
    good(&of(""));
    refused(&of("ecn = {}"), "11:1", "none takes `[switch.ecn]`", "take `ecn` from a class");
    good("class = [{ ecn = {} }, { ecn = {} }]");
}

#[test]
fn times_and_shares_are_more_than_nothing() {
    good("alpha = '1/1000000'\nquanta = 3\nwatchdog = '1ps'\nreaction = '0ns'");
    good("quanta = 1\nlapse = true");
    refused(
        "quanta = 2",
        "10:10",
        "a pause of 2 quanta is renewed at half",
        "at least 3, or `lapse",
    );
    good("quanta = 65535");
    refused("alpha = 0", "10:9", "", "");
    refused("watchdog = '0ms'", "10:12", "", "");
    refused("quanta = 0", "10:10", "found 0", "1");
    refused("quanta = 65536", "10:10", "found 65536", "65535");
    refused("storm = 'ignore'", "10:9", "`storm`, and nobody looks", "watchdog = \"10ms\"");
    refused("watchdog = '1ms'\nrestore = '1ms'", "11:11", "no pause is passed over", "ignore");
    let both = "sharing = 'static'\nalpha = 1";
    refused(both, "11:9", "`alpha` has no use in a static split", "sharing = \"dynamic\"");
}

#[test]
fn a_lossy_share_below_one_packet_is_refused() {
    let lossy = "class = [{ lossless = false }]";
    let text = "a queue of class 0 at switch 0 may hold 838 bytes at most, and never takes";
    refused(&format!("{lossy}\nalpha = '1/40000'"), "11:9", text, "raise it, or `buffer`");
    good(&format!("{lossy}\nalpha = '1/4000'"));
    let parts = |buffer: &str| format!("{lossy}\nsharing = 'static'\nbuffer = '{buffer}'");
    refused(&parts("9KB"), "12:10", "may hold 3000 bytes at most", "raise it");
    good(&parts("15KB"));
    // A lossless class drops at no output.
    good("alpha = '1/40000'");
}

#[test]
fn keys_of_a_shared_buffer_are_refused_elsewhere() {
    let keys = [
        ("buffer = '1MB'", "10:10"),
        ("sharing = 'static'", "10:11"),
        ("alpha = 1", "10:9"),
        ("reserved = '1KB'", "10:12"),
        ("headroom = '40KB'", "10:12"),
        ("xoff = '100KB'", "10:8"),
        ("xon = '80KB'", "10:7"),
        ("serve = 'arrival'", "10:9"),
        ("reaction = '500ns'", "10:12"),
        ("quanta = 7", "10:10"),
        ("lapse = true", "10:9"),
        ("watchdog = '10ms'", "10:12"),
        ("storm = 'report'", "10:9"),
        ("restore = '1ms'", "10:11"),
    ];
    for (line, place) in keys {
        let key = line.split(' ').next().unwrap();
        let text = format!("`{key}` is about a shared buffer with pauses");
        for mode in ["lossless", "tail-drop"] {
            refused_in(mode, line, place, &text, "write `switch = \"pfc\"` in [topology]");
        }
    }
    let class = "class = [{ lossless = true }]";
    refused_in("lossless", class, "10:23", "`lossless` is about pauses", "switch = \"pfc\"");
    let text = file("lossless", "");
    let explicit = text.replace("kind = 'switch'", "kind = 'explicit'\nswitches = 1");
    let link = "[[topology.link]]\nbetween = 'host0..2-switch0'\npfc = false\n[switch]";
    let e = configs(&explicit.replace("[switch]", link), &[]).unwrap_err();
    assert!(e.to_string().contains("`pfc` of a link, and no switch pauses anybody"), "{e}");
    assert!(
        configs(&explicit.replace("[switch]", link).replace("'lossless'", "'pfc'"), &[]).is_ok()
    );
    let cable = file("lossless", "class = [{}]").replace("'switch'\nhosts = 3", "'back-to-back'");
    let e = configs(&cable.replace("switch = 'lossless'\n", ""), &[]).unwrap_err();
    assert!(e.to_string().contains("`back-to-back` has none"), "{e}");
}

#[test]
fn keys_of_pauses_need_a_lossless_class() {
    let lossy = "class = [{ lossless = false }]";
    good(&format!("{lossy}\nbuffer = '1MB'\nalpha = 1"));
    for line in ["headroom = '40KB'", "xoff = '100KB'", "quanta = 7", "lapse = true"] {
        let key = line.split(' ').next().unwrap();
        let e = pfc(&format!("{lossy}\n{line}")).expect_err(line);
        let text = format!("`{key}` is about pauses, and no class is lossless");
        assert!(e.to_string().contains(&text) && e.to_string().starts_with("t.toml:11:"), "{e}");
        assert!(e.remedy().unwrap_or("").contains("leave it out"));
        good(&format!("class = [{{ lossless = false }}, {{}}]\n{line}"));
    }
}

#[test]
fn paths_change_a_switch() {
    let text = file("pfc", "xoff = '100KB'\nclass = [{}, { weight = 2 }]");
    let set = ["switch.xoff=50KB", "switch.xon=0B", "switch.class.1.weight=5"];
    let c = configs(&text, &set).expect("good").remove(0);
    assert_eq!(shared(&c).pause_at, PauseAt::Fixed { xoff: 50_000, xon: 0 });
    assert_eq!(c.classes.each[1].service, Service::Weighted(5));
    let c = configs(&text, &["switch.ecn.kmin=7KB"]).expect("good").remove(0);
    assert_eq!(c.classes.each[0].ecn.expect("marks").kmin, 7_000);
    let sweep =
        format!("{text}[sweep]\n'switch.xoff' = ['10KB', '20KB']\n'switch.alpha' = ['1/2', 1]\n");
    let all: Vec<_> = configs(&sweep, &[]).expect("good").iter().map(shared).collect();
    let xoff = |s: &SharedConfig| matches!(s.pause_at, PauseAt::Fixed { xoff: 20_000, .. });
    assert_eq!((all.len(), all.iter().filter(|s| xoff(s)).count()), (4, 2));
    let e = configs(&text, &["switch.xof=50KB"]).unwrap_err();
    assert!(e.remedy().unwrap_or("").contains("xoff"), "{:?}", e.remedy());
    let e = configs(&text, &["switch.xoff=40MB"]).unwrap_err();
    assert!(e.to_string().contains("to share: lower xoff"), "{e}");
}

/// The keys that editors offer. A new key goes into the list, and into `docs/fabric.md`.
#[test]
fn the_schema_has_every_key_with_a_description() {
    let schema = crate::format::schema::scenario_schema();
    let page = include_str!("../../../docs/fabric.md");
    let tables: [(&str, &[&str]); 4] = [
        (
            "Switch",
            &[
                "alpha",
                "buffer",
                "class",
                "ecn",
                "exception",
                "headroom",
                "lapse",
                "quanta",
                "reaction",
                "reserved",
                "restore",
                "serve",
                "sharing",
                "storm",
                "watchdog",
                "xoff",
                "xon",
            ],
        ),
        ("EcnException", &["at", "ecn"]),
        ("TrafficClass", &["ecn", "lossless", "sl", "strict", "weight"]),
        ("Ecn", &["at", "kmax", "kmin", "pmax"]),
    ];
    for (table, keys) in tables {
        let table = &schema["$defs"][table];
        assert_eq!(table["additionalProperties"], false, "a slip is refused");
        let found = table["properties"].as_object().expect("a table");
        let mut names: Vec<&str> = found.keys().map(String::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, keys);
        for (key, of) in found {
            assert!(of["description"].is_string(), "{key}");
            assert!(page.contains(key.as_str()), "docs/fabric.md has nothing about `{key}`");
        }
    }
}

/// The formula is for the largest packet that ports send: of 4 KiB with the longest headers unless
/// the profile says less, or counts other headers.
#[test]
fn headroom_follows_the_largest_packet_of_the_ports() {
    let kept = |set: &[&str]| {
        let all = ["settings.port.switch_forwarding=cut-through", "run.noise=off"];
        let set: Vec<_> = all.iter().chain(set).copied().collect();
        configs(&file("pfc", ""), &set).expect("good")[0].headrooms()[0].kept
    };
    let usual = kept(&[]);
    assert_eq!(usual - kept(&["settings.port.max_mtu=1KiB"]), 2 * (4096 - 1024));
    assert_eq!(usual - kept(&["settings.port.header_bytes=38B"]), 2 * (102 - 38));
    assert_eq!(kept(&["settings.port.framing=200B"]) - usual, 2 * 200);
}

/// What is added to a packet may make it larger than any of real headers.
#[test]
fn a_packet_with_the_longest_additions_is_carried() {
    let text = file("pfc", "").replace("'latency'", "'latency'\niterations = 2\nsize = '4KiB'");
    for set in ["settings.port.header_bytes=256B", "settings.port.framing=256B"] {
        for mode in ["pfc", "lossless", "tail-drop"] {
            let text = text.replace("'pfc'", &format!("'{mode}'"));
            let point = testing::expanded(&text, &[set]).expect("good").remove(0).point;
            let o = Simulator.run(&point).expect("it runs");
            assert_eq!(o.exit.reason, "", "{set}, {mode}");
        }
    }
}
