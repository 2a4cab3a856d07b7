//! The step `state`: a transition of a queue pair, of the own or of the peer's, with attributes
//! that differ from what the two sides have told each other.

use std::fmt;

use doorbell_core::units::Bytes;
use doorbell_core::verbs::QpAttrMask;

use super::script::{StepError, StepState, Words, quantity, wrong};
use crate::input::suggestion;
use crate::quantity::Unit;

/// A PSN in a step.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum StepPsn {
    /// `psn=5`: this number.
    Is(u32),
    /// `psn=+2`, `psn=-2`: so many after the right one, or before it.
    Off(i32),
}

/// Attributes of a step `state`, each only where its transition takes it.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct StateAttributes {
    /// `pkey=N` of INIT: index into `topology.pkeys`.
    pub pkey: Option<u32>,
    /// `qkey=N` of INIT: the Q_Key of datagrams.
    pub qkey: Option<u32>,
    /// `dest_qp=N` of RTR: number of the peer's queue pair.
    pub dest_qp: Option<u32>,
    /// `gid=hostN` of RTR: the host that the address names.
    pub gid: Option<u32>,
    /// `mtu=SIZE` of RTR: the path MTU.
    pub mtu: Option<Bytes>,
    /// `psn=N` of RTR: the first PSN expected; of RTS: the first one sent.
    pub psn: Option<StepPsn>,
    /// `timeout=N` of RTS.
    pub timeout: Option<u32>,
    /// `retry_cnt=N` of RTS.
    pub retry_cnt: Option<u32>,
    /// `rnr_retry=N` of RTS.
    pub rnr_retry: Option<u32>,
    /// `with=A,B`: attributes that the modify names besides those of its transition.
    pub with: QpAttrMask,
    /// `without=A,B`: attributes of its transition that the modify does not name.
    pub without: QpAttrMask,
}

/// A step `state`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct StateStep {
    /// The state.
    pub state: StepState,
    /// Queue pair of the program.
    pub qp: u32,
    /// It is the peer's queue pair that moves.
    pub peer: bool,
    /// Try it though the verbs refuse it.
    pub anyway: bool,
    /// What differs.
    pub set: StateAttributes,
}

/// Options that take a number: name, the states that take it, and the greatest value.
const NUMBERS: [(&str, &[StepState], u32); 6] = [
    ("pkey", &[StepState::Init], 127),
    ("qkey", &[StepState::Init], u32::MAX),
    ("dest_qp", &[StepState::Rtr], 0xFF_FFFF),
    ("timeout", &[StepState::Rts], 31),
    ("retry_cnt", &[StepState::Rts], 7),
    ("rnr_retry", &[StepState::Rts], 7),
];

/// Every word behind the state.
const KNOWN: [&str; 14] = [
    "qp=0",
    "peer",
    "anyway",
    "pkey=1",
    "qkey=1",
    "dest_qp=17",
    "gid=host1",
    "mtu=1KiB",
    "psn=+1",
    "timeout=14",
    "retry_cnt=7",
    "rnr_retry=7",
    "with=timeout",
    "without=rq_psn",
];

const MAX_PSN: u32 = 0xFF_FFFF;

impl StateStep {
    pub(super) fn parse(words: &mut Words<'_>) -> Result<Self, StepError> {
        let qp = words.named("qp")?;
        let (peer, anyway) = (words.flag("peer"), words.flag("anyway"));
        let mut set = StateAttributes::default();
        let mut given: Vec<(&str, &[StepState])> = Vec::new();
        for (name, states, max) in NUMBERS {
            let Some(text) = words.option(name) else { continue };
            *set.number(name) = Some(number(name, text, max)?);
            given.push((name, states));
        }
        if let Some(text) = words.option("psn") {
            set.psn = Some(psn(text)?);
            given.push(("psn", &[StepState::Rtr, StepState::Rts]));
        }
        if let Some(text) = words.option("mtu") {
            set.mtu = Some(mtu(text)?);
            given.push(("mtu", &[StepState::Rtr]));
        }
        if let Some(text) = words.option("gid") {
            set.gid = Some(host(text)?);
            given.push(("gid", &[StepState::Rtr]));
        }
        (set.with, set.without) = (words.mask("with")?, words.mask("without")?);
        let both = set.with & set.without;
        if !both.is_empty() {
            return wrong(
                format!("with and without {}", lower(both)),
                "name each attribute in one of them",
            );
        }
        let word = words.need("the state", "state err")?;
        let Some((_, state)) = StepState::WORDS.into_iter().find(|(w, _)| *w == word) else {
            let known = StepState::WORDS.map(|(w, _)| w);
            return wrong(format!("unknown state \"{word}\""), suggestion(word, known, "states"));
        };
        words.end(&KNOWN)?;
        for (name, states) in given {
            if !states.contains(&state) {
                let places: Vec<_> =
                    states.iter().map(|s| format!("`state {}`", s.word())).collect();
                return wrong(
                    format!("`{name}` is no attribute of `state {word}`"),
                    format!("write it at {}", places.join(" or ")),
                );
            }
        }
        Ok(Self { state, qp, peer, anyway, set })
    }
}

impl StateAttributes {
    fn number(&mut self, name: &str) -> &mut Option<u32> {
        match name {
            "pkey" => &mut self.pkey,
            "qkey" => &mut self.qkey,
            "dest_qp" => &mut self.dest_qp,
            "timeout" => &mut self.timeout,
            "retry_cnt" => &mut self.retry_cnt,
            _ => &mut self.rnr_retry,
        }
    }
}

impl Words<'_> {
    /// Takes `name=A,B` out.
    fn mask(&mut self, name: &str) -> Result<QpAttrMask, StepError> {
        let Some(text) = self.option(name) else { return Ok(QpAttrMask::empty()) };
        let known = QpAttrMask::all().difference(QpAttrMask::STATE);
        text.split(',').try_fold(QpAttrMask::empty(), |all, word| {
            match known.iter_names().find(|(bit, _)| bit.to_ascii_lowercase() == word) {
                Some((_, bit)) => Ok(all | bit),
                None if word == "state" => {
                    wrong(format!("\"{name}={text}\""), "every modify has the state: leave it out")
                }
                None => wrong(
                    format!("\"{name}={text}\": unknown attribute \"{word}\""),
                    format!("the names of IBV_QP_* in small letters: {}", lower(known)),
                ),
            }
        })
    }
}

/// Names of attributes as a step has them.
fn lower(mask: QpAttrMask) -> String {
    let names: Vec<_> = mask.iter_names().map(|(bit, _)| bit.to_ascii_lowercase()).collect();
    names.join(",")
}

/// A number, decimal or with `0x`.
fn parse(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

fn number(name: &str, text: &str, max: u32) -> Result<u32, StepError> {
    match parse(text) {
        Some(n) if n <= max => Ok(n),
        _ => wrong(
            format!("\"{name}={text}\" is not possible"),
            format!("numbers from 0 to {max}, also as 0x11"),
        ),
    }
}

fn psn(text: &str) -> Result<StepPsn, StepError> {
    let off = text.starts_with(['+', '-']);
    let by = text.parse().ok().filter(|by: &i32| by.unsigned_abs() <= MAX_PSN);
    let is = parse(text).filter(|n| *n <= MAX_PSN);
    match (off, by, is) {
        (true, Some(by), _) => Ok(StepPsn::Off(by)),
        (false, _, Some(is)) => Ok(StepPsn::Is(is)),
        _ => wrong(
            format!("\"psn={text}\" is not possible"),
            "24 bits such as psn=5, or a distance from the right one such as psn=+2",
        ),
    }
}

fn mtu(text: &str) -> Result<Bytes, StepError> {
    let size: Bytes = quantity(text)?;
    match size.0 {
        256 | 512 | 1024 | 2048 | 4096 => Ok(size),
        _ => {
            wrong(format!("{} is no path MTU", size.print()), "one of 256B, 512B, 1KiB, 2KiB, 4KiB")
        }
    }
}

fn host(text: &str) -> Result<u32, StepError> {
    let number = text.strip_prefix("host").and_then(|n| n.parse().ok());
    match number {
        Some(n) if n < 1024 => Ok(n),
        _ => wrong(format!("\"gid={text}\" names no host"), "write for example gid=host1"),
    }
}

impl fmt::Display for StateStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "state {}", self.state.word())?;
        for (word, on) in [("peer", self.peer), ("anyway", self.anyway)] {
            if on {
                write!(f, " {word}")?;
            }
        }
        let mut set = self.set;
        for (name, ..) in NUMBERS {
            if let Some(n) = *set.number(name) {
                write!(f, " {name}={n}")?;
            }
        }
        if let Some(host) = set.gid {
            write!(f, " gid=host{host}")?;
        }
        if let Some(mtu) = set.mtu {
            write!(f, " mtu={}", mtu.print())?;
        }
        match set.psn {
            Some(StepPsn::Is(n)) => write!(f, " psn={n}")?,
            Some(StepPsn::Off(by)) => write!(f, " psn={by:+}")?,
            None => {}
        }
        for (name, mask) in [("with", set.with), ("without", set.without)] {
            if !mask.is_empty() {
                write!(f, " {name}={}", lower(mask))?;
            }
        }
        if self.qp == 0 { Ok(()) } else { write!(f, " qp={}", self.qp) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Step;

    #[test]
    fn attributes_read_and_print() {
        for (text, printed) in [
            ("state err qp=1", "state err qp=1"),
            ("state  rtr dest_qp=0x11 peer", "state rtr peer dest_qp=17"),
            ("state rtr gid=host2 mtu=1KiB psn=+2", "state rtr gid=host2 mtu=1KiB psn=+2"),
            ("state rts psn=-3 timeout=0 retry_cnt=7", "state rts timeout=0 retry_cnt=7 psn=-3"),
            ("state rts psn=0xffffff rnr_retry=0", "state rts rnr_retry=0 psn=16777215"),
            ("state init pkey=1 qkey=0xffffffff", "state init pkey=1 qkey=4294967295"),
            ("state rtr anyway mtu=4KiB", "state rtr anyway mtu=4KiB"),
            ("state rtr without=rq_psn,av anyway", "state rtr anyway without=av,rq_psn"),
            ("state sqd with=timeout without=cap", "state sqd with=timeout without=cap"),
        ] {
            let step = Step::parse(text).unwrap_or_else(|e| panic!("{text}: {e:?}"));
            assert_eq!(step.to_string(), printed);
            assert_eq!(Step::parse(printed), Ok(step));
        }
    }

    #[test]
    fn wrong_attributes_are_named() {
        for (text, message, help) in [
            ("state rtr timeout=14", "`timeout` is no attribute of `state rtr`", "`state rts`"),
            ("state rts dest_qp=1", "`dest_qp` is no attribute of `state rts`", "`state rtr`"),
            ("state init psn=1", "`psn` is no attribute", "`state rtr` or `state rts`"),
            ("state err mtu=1KiB", "`mtu` is no attribute of `state err`", "`state rtr`"),
            ("state rts timeout=32", "\"timeout=32\" is not possible", "from 0 to 31"),
            ("state rts retry_cnt=8", "\"retry_cnt=8\" is not possible", "from 0 to 7"),
            ("state rtr dest_qp=0x1000000", "not possible", "from 0 to 16777215"),
            ("state rtr psn=16777216", "\"psn=16777216\" is not possible", "24 bits"),
            ("state rtr psn=+16777216", "is not possible", "24 bits"),
            ("state rtr psn=x", "is not possible", "psn=+2"),
            ("state rtr mtu=1500B", "1500B is no path MTU", "one of 256B"),
            ("state rtr mtu=1024", "\"1024\" has no unit", "1024B"),
            ("state rtr gid=2", "\"gid=2\" names no host", "gid=host1"),
            ("state rtr gid=host1024", "names no host", "gid=host1"),
            ("state init pkey=128", "\"pkey=128\" is not possible", "from 0 to 127"),
            ("state rtr qp=all", "\"qp=all\"", "one queue pair"),
            ("state rtr with=psn", "unknown attribute \"psn\"", "sq_psn"),
            ("state rtr with=av,", "unknown attribute \"\"", "small letters"),
            ("state rtr without=state", "\"without=state\"", "every modify has the state"),
            ("state rtr without=av with=av", "with and without av", "in one of them"),
            ("state rtr pear", "unknown word \"pear\"", "did you mean `peer`?"),
        ] {
            let e = Step::parse(text).expect_err(text);
            assert!(e.message().contains(message), "{text}: {}", e.message());
            assert!(e.help().contains(help), "{text}: {}", e.help());
        }
    }
}
