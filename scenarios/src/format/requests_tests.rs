//! Requests and replies that cannot be, each beside some that can.

use crate::input::InputError;
use crate::testing::expanded;

const GOOD: &str = "title = 't'
profile = 'generic-400g'
[qp]
sq_depth = 32
[[program]]
kind = 'request-reply'
op = 'send'
size = '64B'
reply_size = '4KiB'
";

fn error(changes: &[&str]) -> InputError {
    expanded(GOOD, changes).err().unwrap_or_else(|| panic!("accepted: {changes:?}"))
}

#[test]
fn what_a_reply_needs() {
    for (change, message, help) in [
        ("program.0.op=write", "`request-reply` by `write`", "op = \"send\""),
        ("program.0.receives=once", "`receives` has no use in `request-reply`", "posts its"),
        ("program.0.signal_every=33", "`signal_every` is 33, and `qp.sq_depth` 32", "at most 32"),
        ("program.0.batch=4", "`batch` has no use in `request-reply`", "leave it out"),
        ("program.0.kind=ping-pong", "`reply_size` has no use in `ping-pong`", "request-reply"),
        ("program.0.share_qp=true", "`share_qp` in `request-reply`", "message-rate"),
    ] {
        let e = error(&[change]);
        assert!(e.to_string().contains(message), "{change}: {e}");
        assert!(e.remedy().unwrap_or_default().contains(help), "{change}: {:?}", e.remedy());
    }
    for good in [
        "program.0.signal_every=32",
        "program.0.window=1000",
        "program.0.repost_batch=8",
        "program.0.repost_time=1us",
        "program.0.peer_poll=event",
        "program.0.peer_poll_interval=1us",
        "program.0.reply_size=0B",
        "qp.type=UD",
    ] {
        assert!(expanded(GOOD, &[good]).is_ok(), "{good}");
    }
}

#[test]
fn a_datagram_holds_a_reply_of_one_mtu() {
    let datagrams = ["qp.type=UD", "qp.mtu=1KiB", "program.0.reply_size=1KiB"];
    assert!(expanded(GOOD, &datagrams).is_ok());
    let e = error(&["qp.type=UD", "qp.mtu=1KiB", "program.0.reply_size=1025B"]);
    assert!(e.to_string().contains("a datagram of 1025B, and `qp.mtu` is 1KiB"), "{e}");
}

#[test]
fn a_shared_queue_is_of_the_program() {
    let own = ["srq.depth=8", "srq.share=program"];
    assert!(expanded(GOOD, &own).is_ok());
    let e = error(&own[..1]);
    assert!(e.to_string().contains("the receivers of `request-reply` share no queue"), "{e}");
    let e = error(&[&own[..], &["srq.limit=4"]].concat());
    assert!(e.to_string().contains("`srq.limit` with `request-reply`"), "{e}");
    let e = error(&[&own[..], &["program.0.threads=2"]].concat());
    assert!(e.to_string().contains("share no queue"), "{e}");
}
