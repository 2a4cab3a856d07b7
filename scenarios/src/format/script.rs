//! Steps of a script: `post write 16B x12 unsignaled`, `ring`, `poll 1`, `wait`.
//!
//! | Step | |
//! |---|---|
//! | `post OP SIZE [xN] [inline] [unsignaled] [fence] [OPTIONS]` | stage N work requests |
//! | `recv SIZE [xN] [own] [anyway] [read-only] [qp=N] [pd=1]` | the peer posts N receives; `own`: the program itself does |
//! | `ring [doorbell\|blueflame] [qp=N]` | announce what is staged |
//! | `poll [N]` | poll the CQ once, for at most N completions |
//! | `wait [N]` | wait until N completions have come; without N, until nothing is outstanding |
//! | `state STATE [peer] [qp=N] [ATTRIBUTES]` | move the queue pair, or the peer's, to a state |
//! | `dereg [own] [after=TIME]` | the peer, or with `own` this side, deregisters its region |
//! | `drain [TIME] [qp=N]` | of a queue pair in ERR: post a marker and wait until it is flushed |
//! | `await-event EVENT [TIME] [qp=N]` | wait for an event, as long as TIME or for ever |
//! | `destroy [qp=N]` | destroy the queue pair |
//! | `await-slots N [qp=N]` | wait until N READs or atomics could be outstanding more, all at once |
//! | `compute TIME` | let time pass |
//! | `fence` | order the stores so far before what follows |
//! | `load [at=SIZE]` | load 8 bytes of the buffer, which must have contents |
//! | `store N [at=SIZE]` | store a number there |
//!
//! States are `reset`, `init`, `rtr`, `rts`, `sqd` and `err`. Attributes of `state` differ from
//! what the two sides have told each other: `pkey=N` (index into `topology.pkeys`) and `qkey=N` of
//! `init`; `dest_qp=N`, `gid=hostN`, `mtu=SIZE` and `psn=N` of `rtr`; `psn=N`, `timeout=N`,
//! `retry_cnt=N` and `rnr_retry=N` of `rts`. `psn=+2` and `psn=-2` are distances from the right
//! one. `with=A,B` names attributes that the transition would not be given, `without=A,B` leaves
//! out some that it would; they are those of IBV_QP_* in small letters, as in `without=rq_psn`.
//!
//! Events: `last-wqe`, `srq-limit`, `cq-err`, `qp-fatal`, `sq-drained`. The last one comes only to
//! who asks for it, by `state sqd with=en_sqd_async_notify`. Receives go to the SRQ where there is
//! one.
//!
//! Options of `post`: `qp=N` takes the N-th queue pair, `qp=all` each of them, as in `ring`; `pd=N`
//! takes the buffer from the N-th protection domain, of which all but 0 are foreign to the queue
//! pair, an error that the verbs define; `sge=N` gathers the message from N elements; `local=SIZE`
//! and `remote=SIZE` say where it is in the own buffer and in the peer's, or `end+SIZE` beyond the
//! last place at which it fits; `rkey=wrong`, `stale`, `foreign` or a number names the peer's
//! memory by another key than its own, and `lkey=wrong` the own buffer; `solicited` asks for an
//! event at a peer that waits for solicited ones only. `anyway` posts what would else be reported
//! as a mistake of the file (more than was granted, a foreign buffer, an operation or a length that
//! the service does not have), to show what the verbs answer; with `recv own` it tries what the
//! state of the queue pair does not allow.
//!
//! Receives are in the region that the peer offers, with `read-only` in one without local write,
//! with `pd=1` in one of another protection domain. `dereg` waits until the peer has done it; with
//! `after` it is done that long after the step, which goes on at once.

use std::borrow::Cow;
use std::fmt;

use doorbell_core::units::{Bytes, Span};
use doorbell_core::verbs::AsyncEventKind;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserializer, Visitor};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};

use super::protect::{KeyWord, RecvBuffer, Spot};
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
        /// The program posts them for itself.
        own: bool,
        /// Queue pair of the program.
        qp: u32,
        /// Try it though the verbs may refuse it.
        anyway: bool,
        /// Where they are.
        buffer: RecvBuffer,
    },
    /// A region is deregistered.
    Dereg {
        /// The own one, else the peer's.
        own: bool,
        /// When; `None`: now, and the step waits for it.
        after: Option<Span>,
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
    /// Post a marker to a queue pair in ERR and wait until it is flushed.
    Drain {
        /// How long at most; `None`: for ever.
        limit: Option<Span>,
        /// Queue pair of the program.
        qp: u32,
    },
    /// Wait for an asynchronous event.
    AwaitEvent {
        /// Which.
        event: StepEvent,
        /// How long at most; `None`: for ever.
        limit: Option<Span>,
        /// Queue pair of the program, for events of queue pairs.
        qp: u32,
    },
    /// Destroy a queue pair.
    Destroy {
        /// Queue pair of the program.
        qp: u32,
    },
    /// Wait for free places among the outstanding READs and atomics, as a program does that admits
    /// a request of several READs only as a whole.
    AwaitSlots {
        /// How many at once.
        count: u32,
        /// Queue pair of the program.
        qp: u32,
    },
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
    pub local: Spot,
    /// Where it goes in, or comes from, the peer's.
    pub remote: Spot,
    /// Key of the peer's memory.
    pub rkey: KeyWord,
    /// Whether the own buffer is named by a key that no region has.
    pub lkey_wrong: bool,
    /// Wake a peer that waits for solicited events only.
    pub solicited: bool,
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

/// An asynchronous event that a script waits for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum StepEvent {
    /// `QP_LAST_WQE_REACHED`
    LastWqe,
    /// `SRQ_LIMIT_REACHED`
    SrqLimit,
    /// `CQ_ERR`
    CqErr,
    /// `QP_FATAL`
    QpFatal,
    /// `SQ_DRAINED`
    SqDrained,
}

impl StepEvent {
    const WORDS: [(&'static str, Self); 5] = [
        ("last-wqe", Self::LastWqe),
        ("srq-limit", Self::SrqLimit),
        ("cq-err", Self::CqErr),
        ("qp-fatal", Self::QpFatal),
        ("sq-drained", Self::SqDrained),
    ];

    /// The event of the verbs.
    pub const fn kind(self) -> AsyncEventKind {
        match self {
            Self::LastWqe => AsyncEventKind::QpLastWqeReached,
            Self::SrqLimit => AsyncEventKind::SrqLimitReached,
            Self::CqErr => AsyncEventKind::CqErr,
            Self::QpFatal => AsyncEventKind::QpFatal,
            Self::SqDrained => AsyncEventKind::SqDrained,
        }
    }

    fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(_, e)| *e == self).map_or("", |(w, _)| w)
    }
}

const STEPS: [&str; 15] = [
    "post",
    "recv",
    "ring",
    "poll",
    "wait",
    "state",
    "dereg",
    "compute",
    "fence",
    "load",
    "store",
    "drain",
    "await-event",
    "destroy",
    "await-slots",
];

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

    /// Takes `name=PLACE` out.
    fn spot(&mut self, name: &str) -> Result<Spot, StepError> {
        self.option(name).map_or(Ok(Spot::default()), Spot::parse)
    }

    /// Takes `lkey=wrong` out.
    fn lkey(&mut self) -> Result<bool, StepError> {
        match self.option("lkey") {
            None => Ok(false),
            Some("wrong") => Ok(true),
            Some(other) => {
                wrong(format!("\"lkey={other}\" is no key"), "write `lkey=wrong`, or `pd=1`")
            }
        }
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
            "recv" => Self::parse_recv(&mut words),
            "dereg" => Self::parse_dereg(&mut words),
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
            "drain" | "destroy" | "await-event" => Self::parse_end(name, &mut words),
            "await-slots" => {
                let qp = words.named("qp")?;
                let n = count(text, words.need("how many", "await-slots 4")?)?;
                words.end(&["qp=0"])?;
                Ok(Self::AwaitSlots { count: n, qp })
            }
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
            (words.named("sge")?, words.spot("local")?, words.spot("remote")?);
        let rkey = words.option("rkey").map_or(Ok(KeyWord::Offered), KeyWord::parse)?;
        let lkey_wrong = words.lkey()?;
        let (inline, fence) = (words.flag("inline"), words.flag("fence"));
        let solicited = words.flag("solicited");
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
        words.end(&[
            "x16",
            "inline",
            "unsignaled",
            "fence",
            "solicited",
            "anyway",
            "qp=0",
            "pd=0",
            "sge=2",
            "local=64B",
            "remote=64B",
            "rkey=wrong",
            "lkey=wrong",
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
            rkey,
            lkey_wrong,
            solicited,
            anyway,
        };
        post.check()?;
        Ok(Self::Post(post))
    }

    fn parse_recv(words: &mut Words<'_>) -> Result<Self, StepError> {
        let (qp, pd, count) = (words.named("qp")?, words.named("pd")?, words.times()?);
        let (own, anyway) = (words.flag("own"), words.flag("anyway"));
        let buffer = match (words.flag("read-only"), pd) {
            (false, 0) => RecvBuffer::Offered,
            (true, 0) => RecvBuffer::ReadOnly,
            (false, 1) => RecvBuffer::Foreign,
            (false, _) => return wrong("the peer has protection domains 0 and 1", "pd=1"),
            (true, _) => return wrong("one fault at a time", "name `read-only` or `pd=1`"),
        };
        let size = quantity(words.need("its size", "recv 4KiB x16")?)?;
        words.end(&["x16", "own", "anyway", "read-only", "qp=0", "pd=1"])?;
        if own && buffer != RecvBuffer::Offered {
            return wrong("such regions are the peer's", "leave `own` out");
        }
        if anyway && !own {
            let help = "what the peer may not post it does not: add `own`, or leave `anyway` out";
            return wrong("`anyway` is about receives of the program itself", help);
        }
        Ok(Self::Recv { size, count, own, qp, anyway, buffer })
    }

    fn parse_dereg(words: &mut Words<'_>) -> Result<Self, StepError> {
        let (own, after) = (words.flag("own"), words.option("after").map(quantity).transpose()?);
        words.end(&["own", "after=1ms"])?;
        if own && after.is_some() {
            return wrong("`after` is for the peer", "write for example \"compute 2us\" before it");
        }
        Ok(Self::Dereg { own, after })
    }
}

impl PostStep {
    /// What no device could do.
    fn check(&self) -> Result<(), StepError> {
        let (op, size) = (self.op, self.size);
        let word = op.word();
        if op.is_atomic() && size != Bytes(8) {
            return wrong(format!("\"{word}\" has 8 bytes, not {}", size.print()), "leave it out");
        }
        if self.inline && !op.takes_inline() {
            return wrong(format!("\"{word}\" cannot be inline"), "only writes and sends can");
        }
        if self.rkey != KeyWord::Offered && !op.names_a_key() {
            return wrong(format!("\"{word}\" names no key of the peer"), "leave `rkey` out");
        }
        if self.solicited && !op.takes_receive() {
            let text = format!("\"{word}\" makes no event at the peer");
            return wrong(text, "only what takes a receive can be solicited");
        }
        if u64::from(self.sge) > size.0.max(1) {
            let text = format!("{} in {} elements", size.print(), self.sge);
            return wrong(text, "each element has at least a byte");
        }
        Ok(())
    }
}

/// The end of a queue pair: steps that wait for it, and its destruction.
impl Step {
    fn parse_end(name: &str, words: &mut Words<'_>) -> Result<Self, StepError> {
        let qp = words.named("qp")?;
        if name == "destroy" {
            words.end(&["qp=0"])?;
            return Ok(Self::Destroy { qp });
        }
        let event = match name {
            "drain" => None,
            _ => Some(Self::parse_event(words)?),
        };
        let limit = words.next().map(quantity).transpose()?;
        words.end(&["qp=0"])?;
        Ok(match event {
            None => Self::Drain { limit, qp },
            Some(event) => Self::AwaitEvent { event, limit, qp },
        })
    }

    fn parse_event(words: &mut Words<'_>) -> Result<StepEvent, StepError> {
        let word = words.need("its event", "await-event last-wqe 1ms")?;
        let found = StepEvent::WORDS.into_iter().find(|(w, _)| *w == word);
        let known = StepEvent::WORDS.map(|(w, _)| w);
        match found {
            Some((_, event)) => Ok(event),
            None => wrong(format!("unknown event \"{word}\""), suggestion(word, known, "events")),
        }
    }

    fn print_end(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (limit, qp) = match self {
            Self::Drain { limit, qp } => {
                f.write_str("drain")?;
                (*limit, *qp)
            }
            Self::AwaitEvent { event, limit, qp } => {
                write!(f, "await-event {}", event.word())?;
                (*limit, *qp)
            }
            Self::Destroy { qp } => {
                f.write_str("destroy")?;
                (None, *qp)
            }
            _ => return Ok(()),
        };
        if let Some(limit) = limit {
            write!(f, " {}", limit.print())?;
        }
        option(f, "qp", qp)
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
                    ("solicited", p.solicited),
                    ("anyway", p.anyway),
                    ("lkey=wrong", p.lkey_wrong),
                ] {
                    if on {
                        write!(f, " {word}")?;
                    }
                }
                option(f, "qp", p.qp)?;
                option(f, "pd", p.pd)?;
                option(f, "sge", p.sge)?;
                p.local.print(f, "local")?;
                p.remote.print(f, "remote")?;
                p.rkey.print(f)
            }
            Self::Recv { size, count, own, qp, anyway, buffer } => {
                write!(f, "recv {} x{count}", size.print())?;
                f.write_str(if *own { " own" } else { "" })?;
                f.write_str(if *anyway { " anyway" } else { "" })?;
                f.write_str(match buffer {
                    RecvBuffer::Offered => "",
                    RecvBuffer::ReadOnly => " read-only",
                    RecvBuffer::Foreign => " pd=1",
                })?;
                option(f, "qp", *qp)
            }
            Self::Dereg { own, after } => {
                f.write_str(if *own { "dereg own" } else { "dereg" })?;
                after.map_or(Ok(()), |t| write!(f, " after={}", t.print()))
            }
            Self::AwaitSlots { count, qp } => {
                write!(f, "await-slots {count}")?;
                option(f, "qp", *qp)
            }
            Self::Drain { .. } | Self::AwaitEvent { .. } | Self::Destroy { .. } => {
                self.print_end(f)
            }
            Self::Ring { mode, qp } => {
                match mode {
                    RingMode::Auto => f.write_str("ring")?,
                    mode => write!(f, "ring {}", mode.word())?,
                }
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
            ("recv 4KiB read-only qp=1", "recv 4KiB x1 read-only qp=1"),
            ("recv 4KiB pd=1", "recv 4KiB x1 pd=1"),
            ("dereg", "dereg"),
            ("dereg own", "dereg own"),
            ("dereg after=60us", "dereg after=60us"),
            ("post write 8B rkey=stale remote=end+1B", "post write 8B x1 remote=end+1B rkey=stale"),
            ("post read 8B rkey=0x10 lkey=wrong", "post read 8B x1 lkey=wrong rkey=0x10"),
            ("post send-inv 8B solicited local=end", "post send-inv 8B x1 solicited local=end"),
            ("recv own 64B x100 qp=1", "recv 64B x100 own qp=1"),
            ("recv anyway 64B own", "recv 64B x1 own anyway"),
            ("drain", "drain"),
            ("await-slots 17 qp=1", "await-slots 17 qp=1"),
            ("drain 1ms qp=2", "drain 1ms qp=2"),
            ("await-event last-wqe", "await-event last-wqe"),
            ("await-event qp=1 srq-limit 20us", "await-event srq-limit 20us qp=1"),
            ("destroy qp=3", "destroy qp=3"),
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
            ("post send 8B rkey=wrong", "names no key of the peer", "leave `rkey` out"),
            ("post write 8B rkey=stal", "\"rkey=stal\" is no key", "did you mean `stale`?"),
            ("post write 8B lkey=stale", "\"lkey=stale\" is no key", "lkey=wrong"),
            ("post write 8B local=end-1B", "\"end-1B\" is no place", "end+1B"),
            ("post write 8B solicited", "makes no event at the peer", "takes a receive"),
            ("recv 8B anyway", "receives of the program itself", "add `own`"),
            ("recv 8B pd=2", "protection domains 0 and 1", "pd=1"),
            ("recv 8B pd=1 read-only", "one fault at a time", "read-only"),
            ("dereg own after=1us", "`after` is for the peer", "compute 2us"),
            ("recv own 8B pd=1", "such regions are the peer's", "leave `own` out"),
            ("dereg peer", "unknown word \"peer\"", "own"),
            ("await-slots", "lacks how many", "await-slots 4"),
            ("await-slots 0", "not a possible count", "from 1"),
            ("await-event", "lacks its event", "await-event last-wqe"),
            ("await-event last-wqes", "unknown event \"last-wqes\"", "did you mean `last-wqe`?"),
            ("drain 5", "\"5\" has no unit", "us"),
            ("destroy 1ms", "unknown word \"1ms\"", "qp=0"),
            ("compute", "lacks its time", "compute 2us"),
            ("compute -1us", "is negative", "2us"),
        ] {
            let e = Step::parse(text).expect_err(text);
            assert!(e.message.contains(message), "{text}: {}", e.message);
            assert!(e.help.contains(help), "{text}: {}", e.help);
        }
    }
}
