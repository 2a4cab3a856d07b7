//! Reasons that the numbers alone do not show.

use super::*;

/// Equal keys that do not match: both sides are limited members.
#[test]
fn two_limited_members_of_one_partition_are_told_that_they_never_match() {
    let keys = |first: &str| format!("topology.pkeys=['{first}', '0x7fff']");
    let one = |key: &str| run(ONE, "", &[&keys(key), "qp.timeout=4"]);
    let d = died(&one("0x7001"), "wrong-connection-data", "pkey");
    for text in [&d.verdict, &d.other_side.join("\n")] {
        assert!(text.contains("both are those of limited members (bit 15 is 0)"), "{text}");
        assert!(text.contains("sent 0x7001, expected 0x7001"), "{text}");
    }
    lives(&one("0xf001"));
    // Another partition is another thing.
    let steps = "'state reset peer', 'state init peer pkey=1', 'state rtr peer', 'state rts peer'";
    let o = run(&format!("{steps}, {ONE}"), "", &["topology.pkeys=['0x8001', '0x7002']"]);
    let d = died(&o, "wrong-connection-data", "pkey");
    assert!(d.verdict.contains("does not match (sent 0x8001, expected 0x7002)"), "{}", d.verdict);
    assert!(!d.verdict.contains("limited"), "{}", d.verdict);
}

/// A NIC that stands puts all events off, so the last that came is before the fault fired.
#[test]
fn an_open_nic_stall_is_named_when_the_run_ends_before_the_first_expiry() {
    let stall =
        |host: u32| fault(&format!("'nic-stall'\nhost = {host}\nafter = '0ns'\nbefore = '1s'"));
    let read = "'post read 8B x3', 'ring', 'wait'";
    let limit = ["qp.timeout=14", "run.limit=20ms"];
    let d = died(&run(read, &stall(1), &limit), "peer-slow", "timeout");
    assert!(d.verdict.contains("fault `f` (nic-stall of host 1) was open"), "{}", d.verdict);
    // Of a host that has no part in it nothing is said, and it disturbs nobody.
    lives(&run(read, &stall(2), &limit));
}
