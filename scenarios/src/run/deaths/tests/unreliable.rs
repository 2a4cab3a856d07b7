//! What UC and UD lose is the reason of a run that could not go on.

use crate::run::simulate_tests::outcome;
use crate::run::{ExitKind, Outcome};

/// Requests over an unreliable service, with `more` in the program and behind it.
#[track_caller]
fn requests(ty: &str, keys: &str, more: &str) -> Outcome {
    let text = format!(
        "[qp]\ntype = '{ty}'\n[[program]]\nkind = 'request-reply'\nop = 'send'\nsize = '64B'\n\
         iterations = 200\nwarmup = 0\n{keys}\n{more}"
    );
    outcome(&text, &[])
}

const LOST: &str = "[[fault]]\nid = 'lose'\nkind = 'drop'\nclass = 'send'\nnth = 7\n";

#[track_caller]
fn stalls(o: &Outcome, says: &[&str], never: &[&str]) {
    assert_eq!(o.exit.kind, ExitKind::NoProgress, "{}", o.exit.reason);
    for words in says {
        assert!(o.exit.reason.contains(words), "{words:?} is not in {}", o.exit.reason);
    }
    for words in never {
        assert!(!o.exit.reason.contains(words), "{words:?} is in {}", o.exit.reason);
    }
}

#[test]
fn a_lost_message_is_the_reason_and_nothing_else() {
    for (ty, what) in [("UC", "packet"), ("UD", "datagram")] {
        for keys in ["window = 4", "window = 4\nsignal_every = 16"] {
            let o = requests(ty, keys, LOST);
            let lost = format!("1 {what} lost on the link into host ");
            let says = [&lost, "fault_drop, fault `lose`", "nothing sends them again"];
            assert!(o.exit.reason.starts_with("host "), "{}", o.exit.reason);
            // That nothing was signalled keeps nobody who waits for replies.
            stalls(&o, &says, &["signal the last one"]);
        }
        let o = requests(ty, "window = 4", "");
        assert_eq!((o.exit.kind, &*o.exit.reason), (ExitKind::Ok, ""));
    }
    // A reliable service sends it again, as is said.
    let o = requests("RC", "window = 4", LOST);
    assert_eq!((o.exit.kind, &*o.exit.reason), (ExitKind::Ok, ""));
}

/// A late request is answered too, whether messages say which one they are or not.
#[test]
fn issue_004_a_late_message_keeps_nobody_waiting() {
    let late = "[[fault]]\nid = 'late'\nkind = 'reorder'\nclass = 'send'\nnth = 3\nbehind = 2\n";
    for ty in ["UC", "UD"] {
        for payload in ["data", "virtual"] {
            let o = requests(ty, &format!("window = 4\npayload = '{payload}'"), late);
            assert_eq!((o.exit.kind, &*o.exit.reason), (ExitKind::Ok, ""), "{ty} {payload}");
        }
    }
}

/// The remedy that is named for a receive queue that is too short cures.
#[test]
fn what_found_no_receive_is_named_with_its_counter() {
    let keys = "window = 40\nrepost_time = '5us'";
    let short = |ty| requests(ty, keys, "").find("exit").unwrap().text();
    assert_eq!(short("UD"), "ok");
    let o = outcome(
        &format!(
            "[qp]\ntype = 'UD'\nrq_depth = 4\n[[program]]\nkind = 'request-reply'\nop = 'send'\n\
             size = '64B'\niterations = 20\nwarmup = 0\n{keys}\n"
        ),
        &[],
    );
    let says = ["16 datagrams dropped at host 1", "(rx_unused)", "and a receive for all that is"];
    stalls(&o, &says, &[]);
}
