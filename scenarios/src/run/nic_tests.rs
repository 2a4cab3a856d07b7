//! Hosts of several NICs: what they share, what they do not, and what a fault of one leaves alone.

use super::simulate_tests::{number, outcome};
use super::{Direction, ExitKind, Outcome};

/// One WRITE at a time, from NIC 1, which is on the second socket.
const FAR_SLOT: &str = "[topology]\nnics = 2\n[[topology.nic]]\n[[topology.nic]]\nnuma = 1\n\
                        [[program]]\nkind = 'latency'\nsize = '8B'\ninline = '0B'\n\
                        iterations = 20\nnic = 1\n";

fn pcie(o: &Outcome, link: &str, direction: Direction, cause: &str) -> u64 {
    let here = o.pcie.iter().filter(|p| p.link == link && p.direction == direction);
    here.filter(|p| p.cause == cause).map(|p| p.bytes).sum()
}

/// A socket is as good as the other one; what costs is to be on another than the NIC.
#[test]
fn a_far_core_of_either_socket_pays_the_same() {
    let p50 = |set: &[&str]| number(&outcome(FAR_SLOT, set), "latency.p50");
    let (near, far) = (p50(&[]), p50(&["program.0.numa=remote"]));
    assert_eq!(near, p50(&["program.0.nic=0"]), "local to NIC 1 as to NIC 0");
    assert_eq!(far, p50(&["program.0.nic=0", "program.0.numa=remote"]));
    // The MMIO store 107 ns, and the completion crosses, and the doorbell: 54 ns each.
    let more = (far - near) / 1000.0;
    assert!((more - 215.0).abs() < 20.0, "{more}");
    let cost = |set: &[&str]| number(&outcome(FAR_SLOT, set), "post_cost") / 1000.0;
    assert_eq!(cost(&["program.0.numa=remote"]) - cost(&[]), 107.0, "cpu.numa_mmio");
}

/// Its buffers on the other socket: the payload crosses, there and back.
#[test]
fn memory_of_the_other_socket_is_that_which_is_not_the_nics() {
    let p50 = |set: &[&str]| number(&outcome(FAR_SLOT, set), "latency.p50") / 1000.0;
    let more = p50(&["program.0.memory=host-remote"]) - p50(&[]);
    assert!((more - 2.0 * 53.5).abs() < 3.0, "{more}");
}

/// A GPU beside NIC 1: what it sends does not come near NIC 0's switch, nor the root port.
#[test]
fn a_gpu_beside_a_nic_is_below_its_switch() {
    let text = "[topology]\nnics = 2\n[[topology.nic]]\npcie_switch = 0\n\
                [[topology.nic]]\npcie_switch = 1\ngpus = [0]\n[[program]]\nkind = 'latency'\n\
                size = '4KiB'\niterations = 10\nmemory = 'gpu'\nnic = 1\n";
    let read = |o: &Outcome, link: &str| pcie(o, link, Direction::Up, "payload-read");
    let o = outcome(text, &[]);
    let (at_gpu, at_nic) = (read(&o, "host0.gpu0"), read(&o, "host0.nic1"));
    assert!(at_gpu > 10 * 4096 && at_nic > 0, "{at_gpu} {at_nic}");
    assert_eq!((read(&o, "host0.switch1"), read(&o, "host0.nic0")), (0, 0));
    let o = outcome(text, &["program.0.nic=0"]);
    assert_eq!(read(&o, "host0.gpu0"), at_gpu);
    assert!(read(&o, "host0.switch1") > 10 * 4096, "up to the root, and down to NIC 0");
}

/// Two hosts send 8 MB each at 400 Gb/s to one whose slot takes 115.2: whatever the link is, the
/// slot's rate is what is delivered. Links that can hold their sender back do, with a buffer of 256
/// KiB in front of a NIC whose own is full; a lossy one drops there, and says so.
#[test]
fn issue_005_a_slow_host_holds_its_senders_back_on_every_link() {
    let text = "[topology]\nkind = 'switch'\nhosts = 3\n[[program]]\nkind = 'flows'\nhost = 1\n\
                hosts = 2\npeer = 0\nsize = '8MB'\nflows = { pattern = 'incast' }\n";
    let slow = ["pcie.generation=4", "pcie.width=8", "qp.timeout=20"];
    let run = |set: &[&str]| outcome(text, &[&slow[..], set].concat());
    let small = "topology.buffer=256KiB";
    for (set, sign) in [
        (&["link=ib"][..], "port.switch0.port0.starved"),
        (&[small], "port.switch0.port0.starved"),
        (&["topology.switch=pfc"], "port.switch0.port0.paused"),
    ] {
        let o = run(set);
        // 16 MB at 126.0 Gb/s of lanes, 256 of 280 bytes, less what the buffers hide.
        let last = number(&o, "last_completion") / 1e9;
        assert!((1.08..1.12).contains(&last), "{set:?}: {last} ms");
        assert_eq!(number(&o, "counter.rx_discards"), 0.0, "{set:?}");
        assert_eq!(number(&o, "counter.retransmitted_packets"), 0.0, "{set:?}");
        // Of 1.1 ms the link to the host is needed for a third.
        let held = number(&o, sign) / 1e9;
        assert!((0.5..0.9).contains(&held), "{set:?}: {held} ms");
        assert!(number(&o, "port.host1.port0.starved") > 1e8, "{set:?}: and so are its senders");
    }
    let o = run(&["link=roce"]);
    assert!(number(&o, "counter.rx_discards") > 0.0);
    assert_eq!(number(&o, "counter.rx_discards"), number(&o, "counter.rx_dropped"));
    assert!(number(&o, "counter.retransmitted_packets") > 0.0);
    assert_eq!(number(&o, "flows_unfinished"), 0.0);
}

/// Where a NIC keeps packets in front of it, more credits are no cure, and the note says what is.
#[test]
fn issue_005_a_slow_nic_is_named_and_not_its_credits() {
    let text = "[topology]\nkind = 'switch'\nhosts = 3\n[[program]]\nkind = 'flows'\nhost = 1\n\
                hosts = 2\npeer = 0\nsize = '8MB'\nflows = { pattern = 'incast' }\n";
    let o = outcome(text, &["link=ib", "pcie.generation=4", "pcie.width=8"]);
    let notes: Vec<_> = o.notes.iter().filter(|n| n.name == "credit-starvation").collect();
    assert!(!notes.is_empty());
    for n in notes {
        assert!(n.text.contains("host0.port0 gave none back"), "{}", n.text);
        assert!(!n.text.contains("too few credits"), "{}", n.text);
    }
    assert_eq!(o.limiting.as_deref(), Some("host0.PCIe nic up"));
}

/// Two rails of one server pair, a program on each.
const RAILS: &str = "[topology]\nkind = 'rail-optimised'\nservers = 2\nnics = 2\nspines = 1\n\
                     [qp]\ntimeout = 8\nretry_cnt = 1\n\
                     [[program]]\nname = 'a'\nkind = 'bandwidth'\nsize = '64KiB'\n\
                     iterations = 200\nqps = 2\n\
                     [[program]]\nname = 'b'\nkind = 'bandwidth'\nsize = '64KiB'\n\
                     iterations = 200\nqps = 2\nnic = 1\n";

#[test]
fn a_rail_that_is_down_kills_its_queue_pairs_only() {
    let down = format!(
        "{RAILS}[[fault]]\nid = 'f'\nkind = 'link-down'\nlink = 'host0.port1-switch1'\n\
         after = '200us'\n"
    );
    let (alone, o) = (outcome(RAILS, &[]), outcome(&down, &[]));
    assert_eq!((alone.exit.kind, o.exit.kind), (ExitKind::Ok, ExitKind::Violation));
    let dead: Vec<(u32, u32)> =
        o.qps.iter().filter(|q| q.death.is_some()).map(|q| (q.host, q.qpn)).collect();
    let second = (1 << 20) + 16;
    assert_eq!(dead, [(0, second), (0, second + 1)], "the senders of NIC 1");
    assert_eq!(o.qps.iter().filter(|q| q.qpn < 1 << 20).count(), 4, "those of NIC 0 live");
    let figure = |o: &Outcome, name| number(o, name);
    assert_eq!(figure(&o, "a.throughput"), figure(&alone, "a.throughput"), "bit for bit");
    assert_eq!(figure(&o, "a.messages"), 200.0);
    assert!(figure(&o, "b.messages") < 200.0);
    // Who has opened the NIC hears of its port, at this end of the link; nobody else does.
    assert_eq!(figure(&o, "counter.async_port_err"), 1.0);
    assert!(figure(&o, "host0.nic1.counter.local_ack_timeout_err") > 0.0);
    assert_eq!(figure(&o, "host0.nic0.counter.local_ack_timeout_err"), 0.0);
    let both = figure(&o, "host0.counter.local_ack_timeout_err");
    assert_eq!(both, figure(&o, "host0.nic1.counter.local_ack_timeout_err"), "their sum");
}

/// A queue pair number says of which NIC it is, so a fault needs no other word for that.
#[test]
fn a_fault_of_a_queue_pair_finds_its_nic() {
    let text = format!(
        "{RAILS}[[fault]]\nid = 'f'\nkind = 'qp-error'\nhost = 0\nqp = {}\nafter = '200us'\n",
        (1 << 20) + 17
    );
    let o = outcome(&text, &[]);
    let dead = o.qps.iter().filter(|q| q.death.is_some()).map(|q| (q.host, q.qpn));
    assert!(dead.clone().any(|q| q == (0, (1 << 20) + 17)), "{:?}", dead.collect::<Vec<_>>());
    assert_eq!(number(&o, "a.messages"), 200.0);
}

/// From rail to rail: the address says which NIC is meant, and the QP is found there.
#[test]
fn a_message_may_change_the_rail() {
    for (set, links) in [(&[][..], 0.0), (&["program.0.peer_nic=1"], 4.0)] {
        let o = outcome(RAILS, set);
        assert_eq!((o.exit.kind, number(&o, "switch_links_used")), (ExitKind::Ok, links));
        assert_eq!(number(&o, "counter.rx_dropped"), 0.0);
    }
}

/// Each NIC has a queue of its own of what is shared.
#[test]
fn receivers_share_a_queue_by_nic() {
    let text = RAILS.replace("kind = 'bandwidth'", "kind = 'message-rate'\nop = 'send'");
    let text = format!("[srq]\ndepth = 256\n{}", text.replace("'64KiB'", "'1KiB'"));
    let o = outcome(&text, &[]);
    assert_eq!((o.exit.kind, number(&o, "messages")), (ExitKind::Ok, 400.0));
    assert!(o.find("host1.srq1.low").is_some() && o.find("host1.srq2.low").is_none());
    let o = outcome(&text, &["program.1.nic=0"]);
    assert!(o.find("host1.srq0.low").is_some() && o.find("host1.srq1.low").is_none());
}

/// Of two rails the one whose NIC the fault names stands still, and the other does not notice.
#[test]
fn a_fault_of_one_nic_leaves_the_other_alone() {
    let last = |o: &Outcome, name: &str| number(o, &format!("{name}.latency.max"));
    let stall = |nic: &str| {
        let fault = "[[fault]]\nid = 'f'\nkind = 'nic-stall'\nhost = 0\nafter = '150us'\n\
                     before = '650us'\n";
        outcome(&format!("{RAILS}{fault}{nic}"), &[])
    };
    let alone = outcome(RAILS, &[]);
    let o = stall("nic = 1\n");
    assert_eq!(o.exit.kind, ExitKind::Ok, "{}", o.exit.reason);
    assert!(last(&o, "b") > last(&alone, "b") + 4e8, "half a millisecond");
    assert!(last(&o, "a") < last(&alone, "a") + 1e8, "{} {}", last(&o, "a"), last(&alone, "a"));
    let o = stall("");
    assert!(last(&o, "a") > last(&alone, "a") + 4e8, "both");
}

/// A NIC that stands still while a flow waits for its pace goes on behind that.
#[test]
fn a_stall_does_not_end_a_paced_flow() {
    let text = "host = 'ideal'\n[topology]\nkind = 'switch'\nhosts = 3\nrate = '100Gbps'\n\
                switch = 'pfc'\n[switch]\necn = { kmin = '20KB', kmax = '60KB' }\n\
                [[program]]\nkind = 'flows'\nhost = 1\nhosts = 2\nsize = '400KB'\n\
                flows = { pattern = 'incast' }\npeer = 0\n[[fault]]\nid = 'stall'\n\
                kind = 'nic-stall'\nhost = 1\n";
    for control in ["dcqcn", "timely"] {
        for from in [104, 110, 116, 121, 130] {
            for to in [from + 1, from + 3000] {
                let window = format!("after = '{from}us'\nbefore = '{to}us'\n");
                let set = format!("congestion.control={control}");
                let o = outcome(&format!("{text}{window}"), &[&set]);
                let (unfinished, at) = (number(&o, "flows_unfinished"), (control, from, to));
                assert_eq!((o.exit.kind, unfinished), (ExitKind::Ok, 0.0), "{at:?}: {:?}", o.exit);
            }
        }
    }
}

/// The second GPU of a profile with two is at another NIC: what is sent from it does not come near
/// the first.
#[test]
fn a_program_names_its_gpu() {
    let text = "[topology]\nnics = 2\n[[topology.nic]]\npcie_switch = 0\ngpus = [0]\n\
                [[topology.nic]]\npcie_switch = 1\ngpus = [1]\n[[program]]\nkind = 'latency'\n\
                size = '4KiB'\niterations = 10\nmemory = 'gpu'\nnic = 1\n";
    let read = |o: &Outcome, link: &str| pcie(o, link, Direction::Up, "payload-read");
    let of = |gpu: &str| outcome(text, &["gpu.count=2", &format!("program.0.gpu={gpu}")]);
    let o = of("1");
    assert!(read(&o, "host0.gpu1") > 10 * 4096 && read(&o, "host0.gpu0") == 0);
    let far = of("0");
    assert!(read(&far, "host0.gpu0") > 10 * 4096 && read(&far, "host0.gpu1") == 0);
    let p50 = |o: &Outcome| number(o, "latency.p50");
    assert!(p50(&far) > p50(&o), "over the root port");
}

/// A class that is paused keeps its units of the NIC, and those of other classes are served in
/// turn, as if it were not there.
#[test]
fn a_paused_class_holds_no_other_class_back_in_the_nic() {
    let program = |name: &str, sl: u8| {
        format!(
            "[[program]]\nname = '{name}'\nkind = 'bandwidth'\nhost = 0\npeer = 1\nsl = {sl}\n\
             size = '64KiB'\niterations = 60\n"
        )
    };
    let text = |paused: usize| {
        let held: String = (0..paused).map(|i| program(&format!("p{i}"), 0)).collect();
        let free: String = (0..4).map(|i| program(&format!("q{i}"), 1)).collect();
        format!(
            "host = 'ideal'\n[qp]\ntimeout = 0\n[topology]\nkind = 'switch'\nhosts = 3\n\
             rate = '100Gbps'\nswitch = 'pfc'\n[switch]\nxoff = '20KB'\n[[switch.class]]\n\
             [[switch.class]]\n{held}{free}[[fault]]\nid = 'storm'\nkind = 'pause-storm'\n\
             host = 1\nsl = 0\nbefore = '5ms'\n"
        )
    };
    let ends = |o: &Outcome| -> Vec<f64> {
        (0..4).map(|i| number(o, &format!("q{i}.duration"))).collect()
    };
    let alone = ends(&outcome(&text(0), &[]));
    let behind = ends(&outcome(&text(5), &[]));
    let most = |of: &[f64]| of.iter().copied().fold(0.0, f64::max);
    assert!(most(&behind) < most(&alone) * 1.05, "{behind:?}, alone {alone:?}");
    let least = behind.iter().copied().fold(f64::MAX, f64::min);
    assert!(least > most(&behind) * 0.9, "no unit goes before another: {behind:?}");
}

/// A NIC without room is told of over links that hold nobody back too, and what it says helps.
#[test]
fn issue_005_a_full_receive_buffer_is_named_on_every_link() {
    let text = "[topology]\nkind = 'switch'\nhosts = 3\n[[program]]\nkind = 'flows'\nhost = 1\n\
                hosts = 2\npeer = 0\nsize = '8MB'\nflows = { pattern = 'incast' }\n[qp]\n\
                timeout = 20\n";
    let note = |o: &Outcome, name: &str| {
        let note = o.notes.iter().find(|n| n.name == name);
        note.map(|n| (n.text.clone(), n.count)).unwrap_or_default()
    };
    let slow = ["pcie.generation=4", "pcie.width=8"];
    let run = |set: &[&str]| outcome(text, set);
    for link in [&[][..], &["link=roce"]] {
        let o = run(&[link, &slow].concat());
        let (text, count) = note(&o, "receive-buffer-full");
        assert!(text.contains("host0.PCIe nic up behind it was busy"), "{link:?}: {text}");
        assert!(text.contains("raise `pcie.generation`"), "{link:?}: {text}");
        let counter = if link.is_empty() { "rx_buffer_waits" } else { "rx_discards" };
        assert_eq!(count as f64, number(&o, &format!("counter.{counter}")), "{link:?}");
        assert_eq!(o.limiting.as_deref(), Some("host0.PCIe nic up"), "{link:?}");
        let (victims, _) = note(&o, "victim-flows");
        assert!(victims.contains("2 found no room at host0.port0"), "{link:?}: {victims}");
        let faster = run(link);
        assert_eq!(number(&faster, "note.receive-buffer-full"), 0.0, "{link:?}");
    }
    // A buffer for two packets, behind which nothing is busy: a larger one helps.
    for link in ["link=roce", "topology.switch=pfc"] {
        let o = run(&[link, "nic.rx_buffer=8KiB"]);
        let name = if link == "link=roce" { "receive-buffer-full" } else { "paused-by-host" };
        let (text, _) = note(&o, name);
        assert!(text.contains("raise `nic.rx_buffer`"), "{link}: {text}");
        let (larger, _) = note(&run(&[link, "nic.rx_buffer=256KiB"]), name);
        assert_eq!(larger, "", "{link}");
    }
}
