//! Lanes, paces and stripes: what is refused, from both sides of each limit, and what a lane has
//! from its program.

use doorbell_core::units::Bytes;

use crate::format::{BatchMode, Entropy, Program, Spread};
use crate::input::InputError;
use crate::testing::expanded;

const HEAD: &str = "title = 't'\nprofile = 'generic-400g'\n[qp]\nsq_depth = 64\n[[program]]\n";

fn of(lines: &str) -> Result<Program, InputError> {
    let points = expanded(&format!("{HEAD}{lines}"), &[])?;
    Ok(points[0].point.scenario.program[0].clone())
}

#[track_caller]
fn good(lines: &str) -> Program {
    of(lines).unwrap_or_else(|e| panic!("{e}: {:?}", e.remedy()))
}

/// These lines, from line 6 on, are refused at that place, with that message and remedy.
#[track_caller]
fn refused(lines: &str, place: &str, text: &str, help: &str) {
    let e = of(lines).err().unwrap_or_else(|| panic!("accepted:\n{lines}"));
    assert!(e.to_string().starts_with(&format!("t.toml:{place}: ")), "{e}");
    assert!(e.to_string().contains(text), "{e}");
    assert!(e.remedy().unwrap_or("").contains(help), "{:?}", e.remedy());
}

const RATE: &str = "kind = 'bandwidth'\nsize = '4KiB'\n";

#[test]
fn a_pace_and_its_burst() {
    let p = good(&format!("{RATE}pace = '50Gbps'\nburst = '4KiB'"));
    assert!(p.is_laned());
    assert_eq!((p.all_lanes().len(), p.all_lanes()[0].burst.map(|b| b.0)), (1, Some(Bytes(4096))));
    assert!(!good(RATE).is_laned());
    let at = |key: &str| format!("{RATE}pace = '50Gbps'\n{key}");
    refused(&at("burst = '4095B'"), "9:9", "a burst of 4095B and messages of 4KiB", "at least one");
    refused(&at("burst = '0B'"), "9:9", "", "");
    good(&at("burst = '1TiB'"));
    refused(&at("burst = '1025GiB'"), "9:9", "a burst of 1025GiB", "at most 1TiB");
    refused(&format!("{RATE}burst = '4KiB'"), "8:9", "`burst` without `pace`", "pace = \"50Gbps\"");
    refused(&format!("{RATE}pace = '0Gbps'"), "8:8", "", "");
}

#[test]
fn a_delay_needs_a_batch_of_any_lane() {
    let lanes = |first: u32, second: u32| {
        let list =
            format!("[{{ name = 'a', batch = {first} }}, {{ name = 'b', batch = {second} }}]");
        format!("{RATE}lanes = {list}\nbatch_delay = '3us'")
    };
    good(&lanes(1, 2));
    refused(&lanes(1, 1), "9:15", "waits for a batch to fill", "raise `batch`");
    good(&format!("{RATE}batch = 2\nlanes = [{{ name = 'a' }}]\nbatch_delay = '3us'"));
    let one =
        format!("{RATE}batch = 2\nlanes = [{{ name = 'a', batch = 1 }}]\nbatch_delay = '3us'");
    refused(&one, "10:15", "waits for a batch to fill", "raise `batch`");
}

/// 128 work requests for each queue pair, and the profile's largest completion queue has 2^22.
#[test]
fn the_completion_queue_holds_what_all_lanes_have_outstanding() {
    let of = |more: &str| {
        let text = format!("{HEAD}{RATE}{more}\n").replace("= 64", "= 128\ncq_depth = 160");
        let wide = text.replace("cq_depth = 160\n", "");
        (expanded(&text, &[]).map(drop), expanded(&wide, &[]).map(drop))
    };
    let says = |e: InputError, text: &str| {
        assert!(e.message().contains(text), "{e}");
        assert!(e.remedy().unwrap_or("").contains("a smaller `window`") && e.origin().is_some());
    };
    assert!(of("spread = 'ordered'\nqps = 32768").1.is_ok());
    let e = of("spread = 'ordered'\nqps = 32769").1.unwrap_err();
    says(e, "4194432 work requests may be outstanding, and `nic.max_cq_depth` is 4194304");
    assert!(of("spread = 'ordered'\nqps = 32769\nwindow = 32").1.is_ok());
    let lanes =
        |window| of(&format!("lanes = [{{ name = 'a', window = {window} }}, {{ name = 'b' }}]"));
    assert!(lanes(32).0.is_ok() && lanes(33).1.is_ok());
    says(
        lanes(33).0.unwrap_err(),
        "161 work requests may be outstanding, and `qp.cq_depth` is 160",
    );
}

#[test]
fn what_does_not_go_with_lanes() {
    for key in ["pace = '1Gbps'", "spread = 'round-robin'", "lanes = [{ name = 'a' }]"] {
        let with = |other: &str| format!("{RATE}{key}\n{other}");
        good(&with(""));
        refused(
            &with("share_qp = true\nthreads = 2"),
            "9:12",
            "`share_qp` in a program",
            "leave it",
        );
        refused(&with("poll_interval = '1us'"), "9:17", "`poll_interval` in a", "leave it out");
        match key.starts_with("pace") {
            true => drop(good(&with("tuner = {}"))),
            false => refused(&with("tuner = {}"), "9:9", "`tuner` in a program with 0", "leave"),
        }
        refused(&with("fence = false"), "9:9", "`fence` in a program", "leave it out");
    }
    for (kind, rest) in
        [("latency", ""), ("ping-pong", "op = 'send'"), ("script", "steps = ['ring']")]
    {
        for key in
            ["pace = '1Gbps'", "burst = '1KiB'", "spread = 'ordered'", "lanes = [{ name = 'a' }]"]
        {
            let word = key.split(' ').next().unwrap();
            let text = format!("`{word}` has no use in `{kind}`");
            let lines = format!("kind = '{kind}'\n{rest}\n{key}");
            refused(&lines, &format!("8:{}", key.find('=').unwrap() + 3), &text, "message-rate");
        }
        assert_eq!(
            good(&format!("kind = '{kind}'\n{rest}\nentropy = 'same'")).entropy,
            Entropy::Same
        );
    }
    let flows = "kind = 'flows'\nhosts = 2\nhost = 0\nentropy = 'same'\n\
                 flows = { pattern = 'permutation' }";
    refused(flows, "9:11", "`entropy` has no use in `flows`", "leave it out");
    let ud = "title = 't'\nprofile = 'generic-400g'\n[qp]\ntype = 'UD'\n[[program]]\n\
              kind = 'bandwidth'\n\
              op = 'send'\npace = '1Gbps'";
    let e = expanded(ud, &[]).unwrap_err();
    assert!(e.to_string().starts_with("t.toml:4:8: lanes with UD queue pairs"), "{e}");
}

#[test]
fn a_batch_has_a_mode_and_bytes() {
    for key in ["batch_mode = 'adaptive'", "batch_mode = 'fixed'", "batch_bytes = '64KiB'"] {
        let p = good(&format!("{RATE}{key}"));
        assert!(p.is_laned() && p.all_lanes().len() == 1, "{key}");
    }
    let keys = "batch = 4, batch_delay = '2us', batch_mode = 'adaptive', batch_bytes = '8KiB'";
    let p = good(&format!("{RATE}lanes = [{{ name = 'a', {keys} }}, {{ name = 'b' }}]"));
    assert_eq!(p.lanes[0].batch_mode, Some(BatchMode::Adaptive));
    assert_eq!(p.lanes[0].batch_bytes.map(|b| b.0), Some(Bytes(8192)));
    assert_eq!((p.lanes[1].batch_mode, p.lanes[1].batch_delay), (None, None));
    refused(&format!("{RATE}batch_bytes = '0B'"), "8:15", "", "");
    refused(&format!("{RATE}batch_mode = 'eager'"), "8:14", "eager", "adaptive");
    let shared = format!("{RATE}batch_mode = 'adaptive'\nthreads = 2\nshare_qp = true");
    refused(&shared, "10:12", "`share_qp` in a program that posts by lanes", "leave it out");
    let alone = format!("{RATE}lanes = [{{ name = 'a', batch_delay = '2us' }}]");
    refused(&alone, "8:38", "`batch_delay` waits for a batch to fill", "raise `batch`");
}

#[test]
fn lanes_take_from_the_program_what_they_leave_out() {
    let p = good(&format!(
        "{RATE}qps = 3\nlanes = [{{ name = 'control', size = '64B', qps = 1 }}, \
         {{ name = 'bulk' }}]"
    ));
    assert_eq!((p.all_qps(), p.all_lanes().len()), (4, 2));
    assert_eq!(good(&format!("{RATE}qps = 3\nspread = 'ordered'")).all_qps(), 3);
    assert_eq!(p.lanes[1].spread, None);
    let one = format!("{RATE}lanes = [{{ name = 'a', spread = 'least-bytes' }}]");
    assert_eq!(good(&one).lanes[0].spread, Some(Spread::LeastBytes));
}

#[test]
fn each_lane_is_checked() {
    let lane = |keys: &str| format!("{RATE}lanes = [{{ name = 'a', {keys} }}]");
    // The value of the key stands behind `lanes = [{ name = 'a', ` and its own name.
    let wrong = |keys: &str, text: &str, help: &str| {
        let at = "lanes = [{ name = 'a', ".len() + keys.find('=').unwrap() + 3;
        refused(&lane(keys), &format!("8:{at}"), text, help);
    };
    good(&lane("window = 64"));
    wrong("window = 65", "`window` is 65, and `qp.sq_depth` is 64", "at most 64");
    good(&lane("batch = 8, window = 8"));
    wrong("batch = 9, window = 8", "`batch` is 9, and the window is 8", "at most 8");
    wrong("signal_every = 9, window = 8", "`signal_every` is 9", "a larger `window`");
    let inherited = format!("{RATE}batch = 9\nlanes = [{{ name = 'a', window = 8 }}]");
    refused(&inherited, "9:33", "`batch` is 9, and the window is 8", "at most 8");
    good(&lane("qps = 65535"));
    wrong("qps = 65536", "65536 queue pairs of one lane", "`qps` of at most 65535");
    let inherited = format!("{RATE}qps = 65536\nlanes = [{{ name = 'a' }}]");
    refused(&inherited, "9:19", "65536 queue pairs of one lane", "at most 65535");
    good(&lane("flows = 4"));
    wrong("flows = 4, spread = 'round-robin'", "`flows` where messages", "spread = \"ordered\"");
    good(&lane("inline = '220B'"));
    wrong("inline = '221B'", "`inline` is 221B", "raise `qp.max_inline`");
    good(&lane("size = '2GiB'"));
    wrong("size = '3GiB'", "more than the largest message", "send several");
    wrong("burst = '8KiB'", "`burst` without `pace`", "say how fast");
    good(&lane("burst = '8KiB', peer_pace = '1Gbps'"));
    wrong("burst = '1KiB', peer_pace = '1Gbps'", "a burst of 1KiB", "at least one message");
    wrong("burst = '1KiB', pace = '1Gbps'", "a burst of 1KiB", "at least one message");
    wrong("sl = 16", "", "");
    refused(
        &format!("{RATE}pace = '1Gbps'\nlanes = [{{ name = 'a' }}]"),
        "8:8",
        "beside `lanes`",
        "there",
    );
    refused(&format!("{RATE}lanes = [{{ name = 'A' }}]"), "8:19", "\"A\" is no name", "use a to z");
    refused(&format!("{RATE}lanes = [{{ name = '' }}]"), "8:19", "lane 0 has no name", "a `name`");
    let twice = format!("{RATE}lanes = [{{ name = 'a' }}, {{ name = 'a' }}]");
    refused(&twice, "8:35", "two lanes are called \"a\"", "a name of its own");
    let many = |n: usize| {
        let lanes: Vec<_> = (0..n).map(|i| format!("{{ name = 'l{i}' }}")).collect();
        format!("{RATE}lanes = [{}]", lanes.join(", "))
    };
    good(&many(8));
    refused(&many(9), "8:9", "9 lanes of one program", "at most 8; use two programs");
}
