//! Steps of a script: `post write 16B x12 unsignaled`, `ring`, `poll 1`, `wait`.
//!
//! | Step | |
//! |---|---|
//! | `post OP SIZE [xN] [inline] [unsignaled] [fence] [OPTIONS]` | stage N work requests |
//! | `recv SIZE [xN] [qp=N]` | the peer posts N receives |
//! | `ring [doorbell\|blueflame] [qp=N]` | announce what is staged |
//! | `poll [N]` | poll the CQ once, for at most N completions |
//! | `wait [N]` | wait until N completions have come; without N, until nothing is outstanding |
//! | `state STATE [peer] [qp=N] [ATTRIBUTES]` | move the queue pair, or the peer's, to a state |
//! | `compute TIME` | let time pass |
//! | `fence` | order the stores so far before what follows |
//! | `load [at=SIZE]` | load 8 bytes of the buffer, which must have contents |
//! | `store N [at=SIZE]` | store a number there |
//!
//! States are `reset`, `init`, `rtr`, `rts`, `sqd` and `err`. Attributes of `state` differ from
//! what the two sides have told each other: `pkey=N` (index into `topology.pkeys`) and `qkey=N` of
//! `init`; `dest_qp=N`, `gid=hostN`, `mtu=SIZE` and `psn=N` of `rtr`; `psn=N`, `timeout=N`,
//! `retry_cnt=N` and `rnr_retry=N` of `rts`. `psn=+2` and `psn=-2` are distances from the right
//! one.
//!
//! Options of `post`: `qp=N` takes the N-th queue pair, `qp=all` each of them, as in `ring`; `pd=N`
//! takes the buffer from the N-th protection domain, of which all but 0 are foreign to the queue
//! pair, an error that the verbs define; `sge=N` gathers the message from N elements; `local=SIZE`
//! and `remote=SIZE` say where it is in the own buffer and in the peer's. `anyway` posts what would
//! else be reported as a mistake of the file (more than was granted, a foreign buffer), to show
//! what the verbs answer.

use std::borrow::Cow;
use std::fmt;

use doorbell_core::units::{Bytes, Span};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserializer, Visitor};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};

use super::state_step::StateStep;
use super::{Op, RingMode};
use crate::input::suggestion;
use crate::quantity::Unit;

/// A call of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Stage work requests.
    Post(PostStep),
    /// The peer posts receives.
    Recv {
        /// Bytes of each receive buffer.
        size: Bytes,
        /// How many.
        count: u32,
        /// Queue pair of the program.
        qp: u32,
    },
    /// Announce what is staged.
    Ring {
        /// How.
        mode: RingMode,
        /// Queue pair of the program.
        qp: u32,
    },
    /// Poll once.
    Poll {
        /// Completions taken at most.
        max: u32,
    },
    /// Wait for completions.
    Wait {
        /// Completions waited for; `None`: until nothing is outstanding.
        count: Option<u32>,
    },
    /// Move the queue pair to a state.
    State(StateStep),
    /// Let time pass.
    Compute {
        /// How long.
        time: Span,
    },
    /// Order the stores so far before what follows.
    Fence,
    /// Load 8 bytes of the buffer.
    Load {
        /// Where.
        at: Bytes,
    },
    /// Store 8 bytes to the buffer.
    Store {
        /// The number.
        value: u32,
        /// Where.
        at: Bytes,
    },
}

/// Work requests to stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostStep {
    /// Operation.
    pub op: Op,
    /// Bytes of each message.
    pub size: Bytes,
    /// How many.
    pub count: u32,
    /// Payload in the WQE.
    pub inline: bool,
    /// Whether they make completions.
    pub signaled: bool,
    /// Wait for earlier READs and atomics (the verbs' fence flag).
    pub fence: bool,
    /// Queue pair of the program.
    pub qp: u32,
    /// Protection domain of the buffer; all but 0 are foreign.
    pub pd: u32,
    /// Elements that each message is gathered from or scattered to; 0 stands for 1.
    pub sge: u32,
    /// Where the message is in the own buffer.
    pub local: Bytes,
    /// Where it goes in, or comes from, the peer's.
    pub remote: Bytes,
    /// Post it though more is asked for than was granted.
    pub anyway: bool,
}

/// State of a queue pair.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum StepState {
    /// RESET
    Reset,
    /// INIT
    Init,
    /// RTR
    Rtr,
    /// RTS
    Rts,
    /// SQD
    Sqd,
    /// ERR
    Err,
}

impl StepState {
    pub(super) const WORDS: [(&'static str, Self); 6] = [
        ("reset", Self::Reset),
        ("init", Self::Init),
        ("rtr", Self::Rtr),
        ("rts", Self::Rts),
        ("sqd", Self::Sqd),
        ("err", Self::Err),
    ];

    /// The word in files.
    pub(super) fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(_, s)| *s == self).map_or("", |(w, _)| w)
    }
}

/// `qp=all`: every queue pair of the program.
pub(crate) const ALL_QPS: u32 = u32::MAX;

const STEPS: [&str; 10] =
    ["post", "recv", "ring", "poll", "wait", "state", "compute", "fence", "load", "store"];

/// More work requests in one step are refused: no send queue is as deep.
const MAX_COUNT: u32 = 1 << 20;

/// Message and remedy of a step that does not read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StepError {
    message: String,
    help: String,
}

#[cfg(test)]
impl StepError {
    pub(super) fn message(&self) -> &str {
        &self.message
    }

    pub(super) fn help(&self) -> &str {
        &self.help
    }
}

pub(super) fn wrong<T>(
    message: impl Into<String>,
    help: impl Into<String>,
) -> Result<T, StepError> {
    Err(StepError { message: message.into(), help: help.into() })
}

/// The words of a step that are not read yet.
pub(super) struct Words<'a> {
    step: &'a str,
    rest: Vec<&'a str>,
}

impl<'a> Words<'a> {
    fn next(&mut self) -> Option<&'a str> {
        if self.rest.is_empty() { None } else { Some(self.rest.remove(0)) }
    }

    /// The next word, which must be there.
    pub(super) fn need(&mut self, what: &str, example: &str) -> Result<&'a str, StepError> {
        let step = self.step;
        match self.next() {
            Some(word) => Ok(word),
            None => wrong(
                format!("\"{step}\" lacks {what}"),
                format!("write for example \"{example}\""),
            ),
        }
    }

    /// Takes `word` out wherever it stands.
    pub(super) fn flag(&mut self, word: &str) -> bool {
        let at = self.rest.iter().position(|w| *w == word);
        at.map(|at| self.rest.remove(at)).is_some()
    }

    /// Takes `name=VALUE` out wherever it stands.
    pub(super) fn option(&mut self, name: &str) -> Option<&'a str> {
        let value = |w: &'a str| w.strip_prefix(name)?.strip_prefix('=');
        let at = self.rest.iter().position(|w| value(w).is_some())?;
        value(self.rest.remove(at))
    }

    /// Takes `name=N` out.
    pub(super) fn named(&mut self, name: &str) -> Result<u32, StepError> {
        let Some(text) = self.option(name) else {
            return Ok(0);
        };
        match text.parse() {
            Ok(n) => Ok(n),
            Err(_) if text == "all" => wrong(
                format!("\"{name}={text}\" in \"{}\"", self.step),
                "the step is about one queue pair; `post` and `ring` take them all",
            ),
            Err(_) => wrong(
                format!("\"{name}={text}\" in \"{}\" is no number", self.step),
                format!("write for example \"{name}=1\""),
            ),
        }
    }

    /// Takes `qp=N` or `qp=all` out.
    fn each_qp(&mut self) -> Result<u32, StepError> {
        match self.flag("qp=all") {
            true => Ok(ALL_QPS),
            false => self.named("qp"),
        }
    }

    /// Takes `name=SIZE` out.
    fn place(&mut self, name: &str) -> Result<Bytes, StepError> {
        self.option(name).map_or(Ok(Bytes(0)), quantity)
    }

    /// Takes `xN` out wherever it stands.
    fn times(&mut self) -> Result<u32, StepError> {
        let times = |w: &&str| w.strip_prefix('x').is_some_and(|n| n.parse::<i64>().is_ok());
        match self.rest.iter().position(times) {
            None => Ok(1),
            Some(at) => count(self.step, &self.rest.remove(at)[1..]),
        }
    }

    /// Nothing may be left.
    pub(super) fn end(&self, known: &[&str]) -> Result<(), StepError> {
        match self.rest.first() {
            None => Ok(()),
            Some(word) => wrong(
                format!("unknown word \"{word}\" in \"{}\"", self.step),
                suggestion(word, known.iter().copied(), "words"),
            ),
        }
    }
}

fn count(step: &str, text: &str) -> Result<u32, StepError> {
    match text.parse::<u32>() {
        Ok(n) if (1..=MAX_COUNT).contains(&n) => Ok(n),
        _ => wrong(
            format!("\"{text}\" in \"{step}\" is not a possible count"),
            format!("counts go from 1 to {MAX_COUNT}"),
        ),
    }
}

pub(super) fn quantity<T: Unit>(text: &str) -> Result<T, StepError> {
    T::parse(text).or_else(|e| wrong(e.to_string(), e.remedy()))
}

impl Step {
    /// Reads a step.
    pub(crate) fn parse(text: &str) -> Result<Self, StepError> {
        let mut rest: Vec<&str> = text.split_whitespace().collect();
        if rest.is_empty() {
            return wrong("an empty step", format!("a step starts with {}", STEPS.join(", ")));
        }
        let name = rest.remove(0);
        let mut words = Words { step: text, rest };
        match name {
            "post" => Self::parse_post(&mut words),
            "recv" => {
                let (qp, count) = (words.named("qp")?, words.times()?);
                let size = quantity(words.need("its size", "recv 4KiB x16")?)?;
                words.end(&["x16", "qp=0"])?;
                Ok(Self::Recv { size, count, qp })
            }
            "ring" => {
                let qp = words.each_qp()?;
                let mode = match (words.flag("doorbell"), words.flag("blueflame")) {
                    (false, false) => RingMode::Auto,
                    (true, false) => RingMode::Doorbell,
                    (false, true) => RingMode::Blueflame,
                    (true, true) => return wrong("a ring is either of the two", "name one"),
                };
                words.end(&["doorbell", "blueflame", "qp=0"])?;
                Ok(Self::Ring { mode, qp })
            }
            "poll" => {
                let max = words.next().map_or(Ok(1), |n| count(text, n))?;
                words.end(&[])?;
                Ok(Self::Poll { max })
            }
            "wait" => {
                let count = words.next().map(|n| count(text, n)).transpose()?;
                words.end(&[])?;
                Ok(Self::Wait { count })
            }
            "state" => StateStep::parse(&mut words).map(Self::State),
            "compute" => {
                let time = quantity(words.need("its time", "compute 2us")?)?;
                words.end(&[])?;
                Ok(Self::Compute { time })
            }
            "fence" => {
                words.end(&[])?;
                Ok(Self::Fence)
            }
            "load" => {
                let at = words.place("at")?;
                words.end(&["at=64B"])?;
                Ok(Self::Load { at })
            }
            "store" => {
                let at = words.place("at")?;
                let text = words.need("its number", "store 1 at=64B")?;
                words.end(&["at=64B"])?;
                match text.parse() {
                    Ok(value) => Ok(Self::Store { value, at }),
                    Err(_) => wrong(
                        format!("\"{text}\" is no number to store"),
                        "write for example \"store 1 at=64B\"",
                    ),
                }
            }
            other => wrong(format!("unknown step \"{other}\""), suggestion(other, STEPS, "steps")),
        }
    }

    fn parse_post(words: &mut Words<'_>) -> Result<Self, StepError> {
        const EXAMPLE: &str = "post write 16B x12";
        let (qp, pd, count) = (words.each_qp()?, words.named("pd")?, words.times()?);
        let (sge, local, remote) =
            (words.named("sge")?, words.place("local")?, words.place("remote")?);
        let (inline, fence) = (words.flag("inline"), words.flag("fence"));
        let (unsignaled, anyway) = (words.flag("unsignaled"), words.flag("anyway"));
        let word = words.need("its operation", EXAMPLE)?;
        let Some(op) = Op::ALL.into_iter().find(|op| op.word() == word) else {
            let known = Op::ALL.map(Op::word);
            return wrong(
                format!("unknown operation \"{word}\""),
                suggestion(word, known, "operations"),
            );
        };
        let size: Bytes = match op.is_atomic() {
            true => words.next().map_or(Ok(Bytes(8)), quantity)?,
            false => quantity(words.need("its size", EXAMPLE)?)?,
        };
        if op.is_atomic() && size != Bytes(8) {
            return wrong(format!("\"{word}\" has 8 bytes, not {}", size.print()), "leave it out");
        }
        if inline && !op.takes_inline() {
            return wrong(format!("\"{word}\" cannot be inline"), "only writes and sends can");
        }
        if u64::from(sge) > size.0.max(1) {
            let text = format!("{} in {sge} elements", size.print());
            return wrong(text, "each element has at least a byte");
        }
        words.end(&[
            "x16",
            "inline",
            "unsignaled",
            "fence",
            "anyway",
            "qp=0",
            "pd=0",
            "sge=2",
            "local=64B",
            "remote=64B",
        ])?;
        let signaled = !unsignaled;
        let post = PostStep {
            op,
            size,
            count,
            inline,
            signaled,
            fence,
            qp,
            pd,
            sge,
            local,
            remote,
            anyway,
        };
        Ok(Self::Post(post))
    }
}

/// `name=size` unless it is zero.
fn place(f: &mut fmt::Formatter<'_>, name: &str, at: Bytes) -> fmt::Result {
    if at.0 == 0 { Ok(()) } else { write!(f, " {name}={}", at.print()) }
}

/// `name=n` unless it is the default.
fn option(f: &mut fmt::Formatter<'_>, name: &str, n: u32) -> fmt::Result {
    match n {
        0 => Ok(()),
        ALL_QPS => write!(f, " {name}=all"),
        n => write!(f, " {name}={n}"),
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Post(p) => {
                write!(f, "post {} {} x{}", p.op.word(), p.size.print(), p.count)?;
                for (word, on) in [
                    ("inline", p.inline),
                    ("unsignaled", !p.signaled),
                    ("fence", p.fence),
                    ("anyway", p.anyway),
                ] {
                    if on {
                        write!(f, " {word}")?;
                    }
                }
                option(f, "qp", p.qp)?;
                option(f, "pd", p.pd)?;
                option(f, "sge", p.sge)?;
                place(f, "local", p.local)?;
                place(f, "remote", p.remote)
            }
            Self::Recv { size, count, qp } => {
                write!(f, "recv {} x{count}", size.print())?;
                option(f, "qp", *qp)
            }
            Self::Ring { mode, qp } => {
                f.write_str(match mode {
                    RingMode::Auto => "ring",
                    RingMode::Doorbell => "ring doorbell",
                    RingMode::Blueflame => "ring blueflame",
                    RingMode::Combined => "ring combined",
                })?;
                option(f, "qp", *qp)
            }
            Self::Poll { max } => write!(f, "poll {max}"),
            Self::Wait { count: Some(n) } => write!(f, "wait {n}"),
            Self::Wait { count: None } => f.write_str("wait"),
            Self::State(step) => step.fmt(f),
            Self::Compute { time } => write!(f, "compute {}", time.print()),
            Self::Fence => f.write_str("fence"),
            Self::Load { at } => {
                f.write_str("load")?;
                place(f, "at", *at)
            }
            Self::Store { value, at } => {
                write!(f, "store {value}")?;
                place(f, "at", *at)
            }
        }
    }
}

impl Serialize for Step {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

struct StepVisitor;

impl Visitor<'_> for StepVisitor {
    type Value = Step;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a step such as \"post write 16B x12\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Step, E> {
        Step::parse(text).map_err(|e| E::custom(format_args!("{}\n{}", e.message, e.help)))
    }
}

impl<'de> Deserialize<'de> for Step {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(StepVisitor)
    }
}

impl JsonSchema for Step {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Step".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": format!("^\\s*({})(\\s|$)", STEPS.join("|")),
            "description": "a step of a script such as \"post write 16B x12\"",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_read_and_print() {
        for (text, printed) in [
            ("post write 16B", "post write 16B x1"),
            ("post  send-imm 4KiB  x12 unsignaled inline", ""),
            ("post read 1MiB x3 fence qp=2 pd=1", "post read 1MiB x3 fence qp=2 pd=1"),
            ("post cmp-swap", "post cmp-swap 8B x1"),
            ("recv 4KiB x16", "recv 4KiB x16"),
            ("ring", "ring"),
            ("ring qp=1 blueflame", "ring blueflame qp=1"),
            ("ring qp=all", "ring qp=all"),
            ("post write 8B qp=all", "post write 8B x1 qp=all"),
            ("poll", "poll 1"),
            ("poll 16", "poll 16"),
            ("wait", "wait"),
            ("wait 3", "wait 3"),
            ("state err qp=1", "state err qp=1"),
            ("compute 1.5us", "compute 1.5us"),
            ("fence", "fence"),
            ("load", "load"),
            ("load at=64B", "load at=64B"),
            ("store 7 at=1KiB", "store 7 at=1KiB"),
            (
                "post write 64B sge=2 local=64B remote=4KiB anyway",
                "post write 64B x1 anyway sge=2 local=64B remote=4KiB",
            ),
        ] {
            let step = Step::parse(text).unwrap_or_else(|e| panic!("{text}: {e:?}"));
            if !printed.is_empty() {
                assert_eq!(step.to_string(), printed);
            }
            assert_eq!(Step::parse(&step.to_string()), Ok(step), "{text}");
        }
    }

    #[test]
    fn wrong_steps_are_named() {
        for (text, message, help) in [
            ("", "an empty step", "a step starts with post"),
            ("pots write 16B", "unknown step \"pots\"", "did you mean `post`?"),
            ("post", "lacks its operation", "post write 16B x12"),
            ("post wirte 16B", "unknown operation \"wirte\"", "did you mean `write`?"),
            ("post write", "lacks its size", "post write 16B x12"),
            ("post write 16", "\"16\" has no unit", "write a size in bytes such as \"16B\""),
            ("post write 16B x0", "not a possible count", "from 1 to 1048576"),
            ("post write 16B x-1", "not a possible count", "from 1"),
            ("post write 16B x1048577", "not a possible count", "from 1"),
            ("post write 16B inlin", "unknown word \"inlin\"", "did you mean `inline`?"),
            ("post write 16B qp=a", "\"qp=a\"", "qp=1"),
            ("post read 16B inline", "cannot be inline", "only writes"),
            ("post fetch-add 16B", "has 8 bytes, not 16B", "leave it out"),
            ("ring doorbell blueflame", "either of the two", "name one"),
            ("recv 8B qp=all", "\"qp=all\"", "one queue pair"),
            ("poll 0", "not a possible count", "from 1"),
            ("wait 1 2", "unknown word \"2\"", "no words are possible"),
            ("state rst", "unknown state \"rst\"", "did you mean"),
            ("post write 2B sge=3", "2B in 3 elements", "at least a byte"),
            ("post write 2B local=3", "\"3\" has no unit", "3B"),
            ("store", "lacks its number", "store 1"),
            ("store x", "\"x\" is no number", "store 1"),
            ("compute", "lacks its time", "compute 2us"),
            ("compute -1us", "is negative", "2us"),
        ] {
            let e = Step::parse(text).expect_err(text);
            assert!(e.message.contains(message), "{text}: {}", e.message);
            assert!(e.help.contains(help), "{text}: {}", e.help);
        }
    }
}
