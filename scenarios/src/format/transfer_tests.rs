//! Transfers that cannot be, each beside one that can.

use crate::input::InputError;
use crate::testing::expanded;

const GOOD: &str = "title = 't'
profile = 'generic-400g'
[qp]
sq_depth = 8
rq_depth = 8
[[program]]
kind = 'transfer'
size = '64KiB'
window = 2
warmup = 1
[program.transfer]
path = 'registered'
segment = '16KiB'
";

fn error(text: &str, changes: &[&str]) -> InputError {
    expanded(text, changes).err().unwrap_or_else(|| panic!("accepted: {changes:?}\n{text}"))
}

#[track_caller]
fn refused(changes: &[&str], message: &str, help: &str) {
    let e = error(GOOD, changes);
    assert!(e.to_string().contains(message), "{e}");
    assert!(e.remedy().unwrap_or_default().contains(help), "{e}: {:?}", e.remedy());
}

fn taken(changes: &[&str]) {
    assert!(expanded(GOOD, changes).is_ok(), "{changes:?}");
}

#[test]
fn segments_fit_the_queues() {
    taken(&[]);
    taken(&["program.0.transfer.segment=32KiB", "program.0.window=4"]);
    refused(&["program.0.window=3"], "12 work requests, and `qp.sq_depth` is 8", "`window`");
    refused(&["qp.rq_depth=7"], "8 work requests, and `qp.rq_depth` is 7", "raise `qp.rq_depth`");
    taken(&["program.0.size=1B"]);
    refused(&["program.0.size=0B"], "a transfer of 0B", "from 1B");
    refused(&["program.0.size=1073741825B"], "a transfer of 1073741825B", "to 1GiB");
}

#[test]
fn who_copies_has_the_memory_for_it() {
    let staged = "program.0.transfer.path=staged";
    refused(&[staged], "`staged`, and `memory` is not a GPU's", "write \"gpu\"");
    refused(&[staged, "program.0.memory=gpu"], "`peer_memory` is not a GPU's", "");
    taken(&[staged, "program.0.memory=gpu", "program.0.peer_memory=gpu"]);
    for path in ["tcp", "copy"] {
        let set = format!("program.0.transfer.path={path}");
        refused(&[&set, "program.0.memory=gpu"], "a core copies for", "\"staged\"");
        taken(&[&set]);
    }
}

#[test]
fn the_first_registration_is_no_measurement() {
    let own = "program.0.transfer.path=per-message";
    refused(&[own, "program.0.warmup=0"], "the first registration is set-up", "at least 1");
    taken(&[own]);
}

#[test]
fn keys_belong_to_their_kind() {
    refused(&["program.0.batch=2"], "`batch` has no use in `transfer`", "leave it out");
    refused(&["qp.type=UC"], "a transfer is between RC queue pairs", "RC");
    refused(&["program.0.transfer.path=carrier-pigeon"], "carrier-pigeon", "tcp");
    let bare = GOOD.split("[program.transfer]").next().unwrap();
    let e = error(bare, &[]);
    assert!(e.to_string().contains("a transfer without a table `transfer`"), "{e}");
    let latency = GOOD.replace("kind = 'transfer'", "kind = 'latency'").replace("window = 2\n", "");
    let e = error(&latency, &[]);
    assert!(e.to_string().contains("`transfer` has no use in `latency`"), "{e}");
}

#[test]
fn pages_on_demand_are_of_host_memory() {
    let text = GOOD
        .replace("kind = 'transfer'", "kind = 'latency'\naccess = ['on-demand']")
        .replace("window = 2\n", "");
    let text = text.split("[program.transfer]").next().unwrap();
    assert!(expanded(text, &[]).is_ok());
    let e = error(text, &["program.0.memory=gpu"]);
    assert!(e.to_string().contains("pages on demand of a GPU's memory"), "{e}");
    let e = error(text, &["qp.access=['on-demand']"]);
    assert!(e.to_string().contains("a queue pair has no pages"), "{e}");
}

/// The kernel wakes who waits in a call.
#[test]
fn nobody_says_how_to_wait_by_tcp() {
    let tcp = "program.0.transfer.path=tcp";
    for key in ["poll", "peer_poll"] {
        let sleeps = format!("program.0.{key}=event");
        let host = ["program.0.memory=host", "program.0.peer_memory=host"];
        taken(&[&host[..], &["program.0.transfer.path=copy", &sleeps]].concat());
        let text = format!("`{key}` has no use by `tcp`");
        refused(&[&host[..], &[tcp, &sleeps]].concat(), &text, "leave it out");
    }
}
