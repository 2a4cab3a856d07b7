//! Who posts: what contradicts itself, and what a device does not do.

use crate::input::InputError;
use crate::testing::expanded;

const GPU: &str = "title = 't'\nprofile = 'generic-400g'\n[[program]]\nkind = 'produce'\n\
                   initiator = 'gpu'\nmemory = 'gpu'\n";

const SHARED: &str = "title = 't'\nprofile = 'generic-400g'\n[[program]]\nkind = 'message-rate'\n\
                      share_qp = true\nring = 'ordered'\nthreads = 4\n";

fn refused(text: &str, set: &[&str]) -> InputError {
    match expanded(text, set) {
        Ok(_) => panic!("{set:?} was taken"),
        Err(e) => e,
    }
}

#[track_caller]
fn says(text: &str, set: &[&str], message: &str, remedy: &str) {
    let e = refused(text, set);
    assert_eq!(e.message(), message, "{set:?}");
    assert!(e.remedy().unwrap_or("").contains(remedy), "{set:?}: {:?}", e.remedy());
    assert!(e.origin().is_some(), "{set:?}");
}

#[test]
fn a_device_without_gpu_doorbells_is_no_matter_of_silence() {
    let unable = "nic.gpu_doorbell=false";
    let message = "the device of profile \"generic-400g\" takes no doorbell of a GPU";
    assert!(expanded(GPU, &[]).is_ok());
    says(GPU, &[unable], message, "write `fallback = \"cpu-proxy\"`");
    let e = refused(
        &GPU.replace("[[program]]", "[settings]\n'nic.gpu_doorbell' = false\n[[program]]"),
        &[],
    );
    assert!(e.to_string().starts_with("t.toml:7:"), "the line of the initiator: {e}");
    assert!(expanded(GPU, &[unable, "program.0.fallback=cpu-proxy"]).is_ok());
    assert!(expanded(GPU, &[unable, "program.0.initiator=cpu-proxy"]).is_ok());
    let latency = GPU.replace("produce", "latency");
    assert!(expanded(&latency, &[]).is_ok());
    says(&latency, &[unable], message, "write `fallback = \"cpu\"`");
    for text in [GPU, &latency] {
        assert!(expanded(text, &[unable, "program.0.fallback=cpu"]).is_ok());
    }
    let cpu = ["program.0.fallback=cpu", "program.0.initiator=cpu"];
    let other = "`fallback` is about a GPU that posts, and the initiator is another";
    says(&latency, &cpu, other, "initiator = \"gpu\"");
}

#[test]
fn threads_of_a_gpu_do_not_sleep() {
    let event = "program.0.poll=event";
    says(GPU, &[event], "`poll = \"event\"` of a GPU: its threads cannot sleep", "leave it out");
    assert!(expanded(GPU, &["program.0.poll=busy"]).is_ok());
    assert!(expanded(GPU, &[event, "program.0.fallback=cpu-proxy"]).is_ok(), "of the proxy");
    assert!(expanded(GPU, &[event, "program.0.initiator=cpu"]).is_ok());
}

#[test]
fn a_producer_posts_on_one_queue_pair() {
    says(GPU, &["program.0.qps=2"], "2 queue pairs of a producer", "raise `threads`");
    assert!(expanded(GPU, &["program.0.qps=1"]).is_ok());
}

#[test]
fn a_fallback_needs_a_gpu_and_a_kind_with_a_proxy() {
    let fallback = "program.0.fallback=cpu-proxy";
    let other = "`fallback` is about a GPU that posts, and the initiator is another";
    says(GPU, &[fallback, "program.0.initiator=cpu"], other, "initiator = \"gpu\"");
    let latency = GPU.replace("produce", "latency");
    says(&latency, &[fallback], "`fallback = \"cpu-proxy\"` in `latency`", "\"cpu\"");
    // What a proxy cannot do, a fallback cannot either.
    assert!(expanded(GPU, &[fallback, "program.0.threads=13"]).is_ok());
    says(GPU, &[fallback, "program.0.threads=14"], "a proxy for 14 producers", "at most 13");
    assert!(expanded(GPU, &["program.0.threads=14"]).is_ok());
    says(GPU, &[fallback, "program.0.inline=8B"], "`inline` through a proxy", "leave it out");
}

#[test]
fn keys_of_a_proxy_need_one() {
    for (key, set) in [
        ("proxy_work", "program.0.proxy_work=1us"),
        ("poll_interval", "program.0.poll_interval=1us"),
    ] {
        let message = format!("`{key}` is of a proxy's core, and there is none");
        says(GPU, &[set], &message, "initiator = \"cpu-proxy\"");
        assert!(expanded(GPU, &[set, "program.0.initiator=cpu-proxy"]).is_ok());
        assert!(expanded(GPU, &[set, "program.0.fallback=cpu-proxy"]).is_ok());
    }
    let message = "`proxy_work` has no use in `message-rate`";
    says(SHARED, &["program.0.proxy_work=1us"], message, "kind = \"produce\"");
}

#[test]
fn who_bypasses_an_order_needs_one_and_others_who_keep_it() {
    assert!(expanded(SHARED, &["program.0.bypass=3"]).is_ok());
    let message = "`bypass` is 4, and `threads` is 4";
    says(SHARED, &["program.0.bypass=4"], message, "at least one that keeps the order");
    let message = "`bypass` without an order that could be bypassed";
    for set in ["program.0.ring=doorbell", "program.0.share_qp=false"] {
        says(SHARED, &[set, "program.0.bypass=1"], message, "ring = \"ordered\"");
    }
}

#[test]
fn a_fence_has_a_scope_or_is_a_truth_value() {
    for fence in ["none", "device", "system", "true", "false"] {
        assert!(expanded(GPU, &[&format!("program.0.fence={fence}")]).is_ok(), "{fence}");
    }
    let e = refused(GPU, &["program.0.fence=gpu"]);
    let remedy = e.remedy().unwrap_or("");
    assert!(remedy.contains("\"none\", \"device\", \"system\""), "{e}: {remedy}");
}

/// A cable has two ends; over a switch a host hears itself.
#[test]
fn a_host_is_its_own_peer_over_a_switch_only() {
    let text = GPU.replace("[[program]]", "[topology]\nkind = 'switch'\n[[program]]\npeer = 0");
    assert!(expanded(&text, &[]).is_ok());
    let cable = ["topology.kind=back-to-back"];
    says(&text, &cable, "`host` and `peer` are both 0", "name two hosts, or write `topology.kind");
}
