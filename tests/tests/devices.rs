//! Handles on different NICs of one host: what belongs to a device and what to the host.

use doorbell::format::NicPlace;
use doorbell::run::hardware;
use doorbell_core::transport::*;
use doorbell_core::units::{BitRate, Span};
use doorbell_core::verbs::{QpType, WcStatus};
use doorbell_sim::fault::FaultPlan;
use doorbell_sim::host::InitiatorConfig;
use doorbell_sim::nic::{FIRST_QPN, Nic};
use doorbell_sim::wire::PortId;
use doorbell_sim::world::{BuildError, World, WorldConfig};
use doorbell_tests::captured::{captured, points, records};
use doorbell_tests::lab::sim::Lab;
use doorbell_tests::machine;

use crate::on_sim::conformance::pair::{Side, Spec, attributes, drain, send};

/// Two hosts of `nics` NICs, a cable from each to that of the same number.
fn world(nics: usize) -> WorldConfig {
    let places = vec![NicPlace::default(); nics];
    let host = hardware::host_with(&machine::profile("generic-400g"), false, &places);
    let mut config = machine::world_of(host, 2, 1);
    config.fabric = config.fabric.with_host_links(nics as u32);
    config
}

/// Ranks 0 and 1 on NICs 0 and 1 of host 0, ranks 2 and 3 on those of host 1; 0 is connected with 2
/// and 1 with 3.
fn two_rails() -> (Lab, [Side; 4]) {
    let places = [(0, 0), (0, 1), (1, 0), (1, 1)];
    let mut lab = Lab::with_nics(world(2), &places, &FaultPlan::default());
    let sides = [0, 1, 2, 3].map(|r| lab.call(r, |t| Side::open(t, &Spec::default())));
    for rank in [2, 3, 0, 1] {
        let (me, peer) = (sides[rank], sides[(rank + 2) % 4]);
        lab.call(rank, move |t| {
            for (attr, mask) in attributes(&Spec::default(), &me.endpoint, &peer.endpoint) {
                t.modify_qp(me.qp, &attr, mask).unwrap();
            }
        });
        lab.settle();
    }
    (lab, sides)
}

fn write(lab: &mut Lab, rank: usize, me: Side, data: Sge, to: Remote) -> Vec<Completion> {
    lab.call(rank, move |t| {
        let sges = [data];
        t.stage(me.qp, &send(SendOp::Write(to), 7, Data::Sge(&sges))).unwrap();
        t.ring(me.qp, Ring::Doorbell).unwrap();
    });
    lab.settle();
    lab.call(rank, move |t| drain(t, me.send_cq))
}

fn status(got: &[Completion]) -> WcStatus {
    match got {
        [Completion::Send { .. }] => WcStatus::Success,
        [Completion::Error { status, .. }] => *status,
        other => panic!("{other:?}"),
    }
}

#[test]
fn addresses_and_numbers_say_which_nic() {
    let (_, sides) = two_rails();
    let [a, b, c, d] = sides.map(|s| s.endpoint);
    assert_eq!((a.qpn, b.qpn), (Nic::qpn(PortId(0), 0), Nic::qpn(PortId(1), 0)));
    assert_eq!((a.qpn.value(), b.qpn.value()), (FIRST_QPN, (1 << 20) + FIRST_QPN));
    assert_eq!((a.qpn, b.qpn), (c.qpn, d.qpn), "each host counts for itself");
    let mut gids = [a, b, c, d].map(|e| e.address.gid);
    gids.sort_unstable();
    assert!(gids.windows(2).all(|g| g[0] != g[1]), "{gids:?}");
}

#[test]
fn a_queue_pair_is_of_one_device_and_memory_of_the_host() {
    let (mut lab, sides) = two_rails();
    let [a, b, c, d] = sides;
    lab.call(0, move |t| {
        t.share_qp(a.qp, 5).unwrap();
        t.share_mr(a.mr.id, 6).unwrap();
    });
    assert_eq!(lab.call(1, |t| t.attach_qp(0, 5)), Err(AttachError::OtherDevice));
    // What the other NIC brings is in the same memory.
    assert_eq!(status(&write(&mut lab, 2, c, c.sge(0, 64), a.remote(0))), WcStatus::Success);
    let shared = lab.call(1, |t| t.attach_mr(0, 6)).expect("memory is the host's");
    lab.call(3, move |t| t.copy_in(d.mr.range(0, 8).unwrap(), &[9; 8]).unwrap());
    assert_eq!(status(&write(&mut lab, 3, d, d.sge(0, 8), b.remote(0))), WcStatus::Success);
    let seen = lab.call(1, move |t| {
        let mut bytes = [1; 8];
        t.copy_out(shared.range(0, 8).unwrap(), &mut bytes).unwrap();
        let mut own = [0; 8];
        t.copy_out(b.mr.range(0, 8).unwrap(), &mut own).unwrap();
        (bytes, own)
    });
    assert_eq!(seen, ([0; 8], [9; 8]));
}

#[test]
fn keys_of_one_device_are_unknown_to_another() {
    let (mut lab, sides) = two_rails();
    let [a, b, c, d] = sides;
    let own = write(&mut lab, 1, b, b.sge(0, 8), d.remote(0));
    assert_eq!(status(&own), WcStatus::Success);
    let far = write(&mut lab, 1, b, b.sge(0, 8), c.remote(0));
    assert_eq!(status(&far), WcStatus::RemAccessErr, "the peer's NIC 1 and a key of its NIC 0");
    let local = write(&mut lab, 0, a, b.sge(0, 8), c.remote(0));
    assert_eq!(status(&local), WcStatus::LocProtErr);
}

/// Queue pairs of a GPU block need a device that takes its doorbell, be they its own or shared.
#[test]
fn a_gpu_holds_queue_pairs_where_it_can_ring() {
    for able in [true, false] {
        let mut config = world(1);
        config.hosts.iter_mut().for_each(|host| host.nic.gpu_doorbell = able);
        let block = Initiator::GpuBlock { gpu: 0, block: 0 };
        let block = InitiatorConfig { who: block, ..machine::core(0) };
        let initiators = [(0, machine::core(0)), (0, block)];
        let mut lab = Lab::with_initiators(config, &initiators, &FaultPlan::default());
        lab.call(0, |t| {
            let side = Side::open(t, &Spec::default());
            t.share_qp(side.qp, 5).unwrap();
        });
        let (known, created, attached) = lab.call(1, |t| {
            let (pd, cq) = (t.create_pd().unwrap(), t.create_cq(16).unwrap());
            let size = Spec::default().size;
            let queue_memory = MemKind::Gpu { gpu: 0 };
            let (ty, srq, sq_sig_all) = (QpType::Rc, None, false);
            let (send_cq, recv_cq) = (cq, cq);
            let init = QpInit { ty, pd, send_cq, recv_cq, srq, size, sq_sig_all, queue_memory };
            (t.device_caps().gpu_doorbell, t.create_qp(&init), t.attach_qp(0, 5))
        });
        assert_eq!((known, created.is_ok(), attached.is_ok()), (able, able, able));
        if let (Err(created), Err(attached)) = (created, attached) {
            for text in [created.to_string(), attached.to_string()] {
                assert!(text.contains("let a CPU core post for the GPU"), "{text}");
            }
        }
    }
}

#[test]
fn each_nic_needs_a_link() {
    assert!(World::new(&world(16)).is_ok());
    let built = |config: &WorldConfig| World::new(config).map(|_| ());
    let (nics, links) = (17, 17);
    assert_eq!(built(&world(17)), Err(BuildError::Nics { host: 0, nics, links }));
    let mut config = world(2);
    config.hosts[1] = machine::quiet_host();
    let e = built(&config).expect_err("a link more");
    assert_eq!(e, BuildError::Nics { host: 1, nics: 1, links: 2 });
    assert!(e.to_string().contains("each NIC needs one"), "{e}");
}

/// The link of a host into its node is behind that of its only NIC.
#[test]
fn a_host_of_a_node_has_one_nic() {
    let built = |nics: usize| {
        let mut config = world(nics);
        let (rate, latency) = (BitRate::gbps(1600), Span::from_us(3));
        config.fabric = config.fabric.with_nodes(2, rate, latency);
        World::new(&config).map(|_| ())
    };
    assert_eq!(built(1), Ok(()));
    let e = built(2).expect_err("two NICs");
    assert_eq!(e, BuildError::NicsInNode { host: 0, nics: 2 });
    assert!(e.to_string().contains("make a host of each"), "{e}");
}

/// A capture has an interface for each port, and the packets of a NIC at its own, with its address.
#[test]
fn captures_tell_ports_apart() {
    let text = "title = 't'\nprofile = 'generic-400g'\n[topology]\nkind = 'switch'\nnics = 2\n\
                [[program]]\nkind = 'latency'\niterations = 3\nnic = 1\npeer_nic = 0\n";
    let (_, file) = captured(&points("nics", text).remove(0));
    let records = records(&file);
    let sent = |port: &str| records.iter().filter(|r| r.interface == port && r.outbound).count();
    let counts = ["host0.port0", "host0.port1", "host1.port0", "host1.port1"].map(sent);
    assert_eq!(counts, [0, 3, 3, 0], "requests by port 1, ACKs by port 0 of the peer");
    let of = records.iter().find(|r| r.interface == "host0.port1").expect("just counted");
    // Source and destination of the IPv4 header behind 14 bytes of Ethernet.
    assert_eq!(of.frame[26..34], [10, 16, 0, 1, 10, 0, 0, 2]);
}
