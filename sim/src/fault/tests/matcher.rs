//! Which packets: every field alone, every pair, and what a class is.

use doorbell_core::verbs::{CreditCode, Msn, NakCode, Operation, RnrTimer, Syndrome};

use super::*;
use crate::fabric::End;
use crate::fault::{LinkEnd, LinkName, PacketClass, Window, opcode_word};

/// A packet at a place and a time, shown once or twice.
#[derive(Clone)]
struct Scene {
    now: Time,
    at: (NodeId, PortId),
    packet: Packet,
    before: u32,
}

impl Scene {
    fn base() -> Self {
        Self { now: us(10), at: AT_1, packet: write(5), before: 0 }
    }

    fn hit_by(&self, m: Matcher) -> bool {
        let mut state = on(&cable(), &[drop(m)]);
        for _ in 0..self.before {
            let _ = state.judge(self.now, self.at, &self.packet);
        }
        state.judge(self.now, self.at, &self.packet) == LOST
    }
}

/// A field: how a matcher gets it so that the base scene matches, how a scene becomes one that
/// does not match any more, and what else that touches.
struct Field {
    name: &'static str,
    group: u32,
    set: fn(&mut Matcher),
    spoil: fn(&mut Scene),
}

const FIELDS: [Field; 12] = [
    Field {
        name: "link",
        group: 1,
        // There is one link; the other field of the group tells its directions apart.
        set: |m| m.link = Some(LinkName::between(End::Host(0), End::Host(1))),
        spoil: |s| s.at = (NodeId(2), PortId(0)),
    },
    Field {
        name: "from",
        group: 1,
        set: |m| m.from = Some(LinkEnd::of(End::Host(0))),
        spoil: |s| s.at = AT_0,
    },
    Field {
        name: "source",
        group: 2,
        set: |m| m.source = Some(HostId(0)),
        spoil: |s| s.packet.src = HostId(1),
    },
    Field {
        name: "dest",
        group: 3,
        set: |m| m.dest = Some(HostId(1)),
        spoil: |s| s.packet.dst = HostId(0),
    },
    Field {
        name: "source_qp",
        group: 4,
        set: |m| m.source_qp = Some(Qpn::new(16)),
        spoil: |s| s.packet.src_qp = 1,
    },
    Field {
        name: "dest_qp",
        group: 5,
        set: |m| m.dest_qp = Some(Qpn::new(17)),
        spoil: |s| s.packet.desc.dest = Qpn::new(16),
    },
    Field {
        name: "psn",
        group: 6,
        set: |m| m.psn = Some(Psn::new(5)),
        spoil: |s| s.packet.desc.psn = Psn::new(6),
    },
    Field {
        name: "opcode",
        group: 7,
        set: |m| m.opcode = Some(Opcode::RcRdmaWriteOnly),
        spoil: |s| s.packet.desc.opcode = Opcode::RcSendOnly,
    },
    Field {
        name: "class",
        group: 7,
        set: |m| m.class = Some(PacketClass::Write),
        spoil: |s| s.packet.desc.opcode = Opcode::RcSendOnly,
    },
    Field { name: "round", group: 8, set: |m| m.round = Some(1), spoil: |s| s.before = 1 },
    Field { name: "nth", group: 8, set: |m| m.nth = Some(1), spoil: |s| s.before = 1 },
    Field {
        name: "window",
        group: 9,
        set: |m| m.window = Window { after: us(10), before: us(11) },
        spoil: |s| s.now = us(11),
    },
];

/// Spoils the base scene by each field, and says which matchers must notice.
fn check(m: Matcher, fields: &[&Field]) {
    let names: Vec<_> = fields.iter().map(|f| f.name).collect();
    assert!(Scene::base().hit_by(m), "{names:?}");
    for f in &FIELDS {
        let mut scene = Scene::base();
        (f.spoil)(&mut scene);
        let asked = fields.iter().any(|g| g.name == f.name);
        let touched = fields.iter().any(|g| g.group == f.group);
        // A place that is no link's end is judged by nobody.
        let nowhere = f.name == "link";
        if asked {
            assert!(!scene.hit_by(m), "{names:?} without {}", f.name);
        } else if !touched && !nowhere {
            assert!(scene.hit_by(m), "{names:?} does not ask for {}", f.name);
        }
    }
}

#[test]
fn a_matcher_without_fields_takes_all() {
    check(Matcher::default(), &[]);
}

#[test]
fn each_field_alone() {
    for f in &FIELDS {
        let mut m = Matcher::default();
        (f.set)(&mut m);
        check(m, &[f]);
    }
}

#[test]
fn each_pair_of_fields() {
    for (i, f) in FIELDS.iter().enumerate() {
        for g in &FIELDS[i + 1..] {
            let mut m = Matcher::default();
            (f.set)(&mut m);
            (g.set)(&mut m);
            check(m, &[f, g]);
        }
    }
}

#[test]
fn all_fields_together() {
    let mut m = Matcher::default();
    FIELDS.iter().for_each(|f| (f.set)(&mut m));
    check(m, &FIELDS.iter().collect::<Vec<_>>());
}

#[test]
fn a_window_holds_its_first_instant_and_not_its_last() {
    let w = Window { after: us(2), before: us(3) };
    let ps = |t: Time, by: i64| Time::from_ps(t.as_ps().checked_add_signed(by).unwrap());
    assert!(!w.holds(ps(us(2), -1)) && w.holds(us(2)));
    assert!(w.holds(ps(us(3), -1)) && !w.holds(us(3)));
    assert!(Window::ALWAYS.holds(Time::ZERO));
}

/// Every class against every opcode, by the table of the specification's words.
#[test]
fn classes_and_opcodes() {
    for &opcode in Opcode::ALL {
        let op = opcode.operation();
        let name = op.to_string();
        for class in PacketClass::ALL {
            let expected = match class {
                PacketClass::Request => !matches!(op, Operation::Cnp) && !is_answer(&name),
                PacketClass::Response => is_answer(&name),
                PacketClass::Send => name.starts_with("Send"),
                PacketClass::Write => name.starts_with("RDMA Write"),
                PacketClass::ReadRequest => name == "RDMA Read Request",
                PacketClass::ReadResponse => name.starts_with("RDMA Read Response"),
                PacketClass::Atomic => name == "Compare Swap" || name == "Fetch Add",
                PacketClass::AtomicAck => name == "Atomic Acknowledge",
                PacketClass::Ack | PacketClass::Nak | PacketClass::RnrNak => name == "Acknowledge",
            };
            assert_eq!(class.takes(opcode), expected, "{opcode} {class:?}");
            let plain = packet(opcode, 0);
            let acks = [PacketClass::Ack, PacketClass::Nak, PacketClass::RnrNak];
            // Which of the three an acknowledgement is stands in its AETH, and here is none.
            assert_eq!(class.holds(&plain.desc), expected && !acks.contains(&class), "{opcode}");
        }
    }
}

fn is_answer(name: &str) -> bool {
    name.contains("Response") || name.ends_with("Acknowledge")
}

#[test]
fn the_syndrome_tells_acknowledgements_apart() {
    let credit = CreditCode::NO_LIMIT;
    let timer = RnrTimer::new(1).unwrap();
    let kinds = [
        (Syndrome::Ack { credit }, PacketClass::Ack),
        (Syndrome::RnrNak { timer }, PacketClass::RnrNak),
        (Syndrome::Nak { code: NakCode::PsnSequenceError }, PacketClass::Nak),
        (Syndrome::Reserved { byte: 0xff }, PacketClass::Nak),
    ];
    for (syndrome, class) in kinds {
        let mut p = packet(Opcode::RcAcknowledge, 3);
        p.desc.ext = Ext::Aeth { syndrome, msn: Msn::new(0) };
        for other in [PacketClass::Ack, PacketClass::Nak, PacketClass::RnrNak] {
            assert_eq!(other.holds(&p.desc), other == class, "{syndrome:?} {other:?}");
        }
        assert!(PacketClass::Response.holds(&p.desc));
        // The first packet of a READ response has an AETH too and is no acknowledgement.
        p.desc.opcode = Opcode::RcRdmaReadResponseOnly;
        assert!(!class.holds(&p.desc) && PacketClass::ReadResponse.holds(&p.desc));
    }
}

#[test]
fn words_are_unique() {
    let mut words: Vec<String> = Opcode::ALL.iter().map(|o| opcode_word(*o)).collect();
    assert!(words.contains(&"rc-rdma-write-only".to_owned()));
    words.extend(PacketClass::ALL.map(|c| c.word().to_owned()));
    let all = words.len();
    words.sort();
    words.dedup();
    assert_eq!(words.len(), all);
}
