//! What every switch does with its buffer, its classes, marks and pauses.

use doorbell_core::units::{Bytes, Ratio, Span};
use schemars::JsonSchema;
use serde::de::{Deserializer, Error as _};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};

use crate::quantity::{Count, Positive, Quantity, Unit};

/// Switches: traffic classes and ECN marks of every kind of switch, and the shared buffer of
/// `topology.switch = "pfc"`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Switch {
    /// `pfc`: buffer of a whole switch; without it 32MiB. Less: pauses, or drops, begin earlier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffer: Option<Positive<Bytes>>,
    /// `pfc`: how queues share the buffer; without it `dynamic`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sharing: Option<SharingMode>,
    /// `dynamic`: a queue may hold so many times what is free; without it `"1/16"`. Higher: one
    /// port may take more, and less is left for the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alpha: Option<Positive<Ratio>>,
    /// `pfc`: part of the buffer that each input queue has for itself; without it none. More: less
    /// is left to share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserved: Option<Quantity<Bytes>>,
    /// `pfc`: room for what arrives on a lossless class after the pause, per port and class:
    /// `"formula"` (from rate, length and reaction time) or bytes. Without it the formula. Less: a
    /// lossless class may drop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headroom: Option<HeadroomText>,
    /// `pfc`: an input queue pauses its sender at so many bytes; without it at its share of the
    /// buffer. Lower: earlier pauses, shorter queues, and victims behind them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xoff: Option<Positive<Bytes>>,
    /// With `xoff`: the sender goes on at so many bytes; without it two packets below.
    /// Lower: longer pauses, fewer frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xon: Option<Quantity<Bytes>>,
    /// `pfc`: which packet of a class an output sends next; without it `arrival`: in each pause one
    /// flow may get a burst more than another. With `inputs` equal flows share evenly, whatever the
    /// buffer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serve: Option<ServeMode>,
    /// `pfc`: time from a pause frame's last bit until its receiver begins no more packets; without
    /// it the most that the standard allows at the link's rate. Longer: more headroom.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reaction: Option<Quantity<Span>>,
    /// `pfc`: pause time of a frame in quanta of 512 bit times; without it 65535. A pause is
    /// renewed at half of it; at least 3 then, the time of two frames. Fewer: more frames, and a
    /// sender whose switch died goes on sooner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quanta: Option<Count<1, 65535>>,
    /// `pfc`: whether a pause is not renewed, and ends though the queue is full. Then a lossless
    /// class drops.
    #[serde(skip_serializing_if = "is_false")]
    pub lapse: bool,
    /// `pfc`: a class that is paused at an output for so long is a pause storm; looked for every
    /// 100 us. Without it nobody looks. Longer: real storms last longer, and fewer honest pauses
    /// are taken for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watchdog: Option<Positive<Span>>,
    /// What happens to a storm, besides being counted; without it nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storm: Option<StormMode>,
    /// With `storm = "ignore"`: for how long nobody may have asked for a pause until pauses count
    /// again; without it twice `watchdog`, as SONiC has it. Longer: a storm that comes back does
    /// not stop the port, and an honest pause is passed over for longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore: Option<Positive<Span>>,
    /// ECN marking of classes that do not say otherwise; without it none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ecn: Option<Ecn>,
    /// Switches, or ports of them, that mark otherwise: forgotten, or another firmware. Of several
    /// about one port the last one counts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exception: Vec<EcnException>,
    /// Traffic classes, class 0 first, the same at every port of hosts and switches; without any
    /// one class for everything.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub class: Vec<TrafficClass>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
pub(super) const fn is_false(b: &bool) -> bool {
    !*b
}

/// A traffic class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TrafficClass {
    /// Service levels (`qp.sl`) of this class; without it the number of the class. Levels that no
    /// class names are in class 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sl: Option<Vec<Count<0, 15>>>,
    /// Bytes in proportion to this number, among the classes that have something to send; without
    /// it 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<Count<1, 1000>>,
    /// Whether it goes before every class that is not strict, and before strict ones of a lower
    /// number.
    #[serde(skip_serializing_if = "is_false")]
    pub strict: bool,
    /// `pfc`: whether senders are paused instead of packets dropped; without it yes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lossless: Option<bool>,
    /// ECN marking; without it that of `[switch.ecn]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ecn: Option<Ecn>,
}

/// A switch that marks otherwise than its classes say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EcnException {
    /// Which: `switch1`, `switch0..3`, or one port, `switch1.port2`.
    pub at: String,
    /// The curve in the place of that of every class that is marked; without it nothing is marked
    /// there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ecn: Option<Ecn>,
}

/// ECN marking by the bytes that wait for an output port in the class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Ecn {
    /// Up to here nothing is marked. Lower: shorter queues, and links that idle where the control
    /// reacts strongly.
    pub kmin: Quantity<Bytes>,
    /// Above this everything is. Higher: longer queues.
    pub kmax: Quantity<Bytes>,
    /// Chance of a mark at `kmax`, up to which it grows from 0 at `kmin`. Higher: more cuts.
    pub pmax: Quantity<Ratio>,
    /// When a packet is marked.
    pub at: EcnAt,
}

impl Default for Ecn {
    fn default() -> Self {
        let pmax = Quantity(Ratio { num: 1, den: 5 });
        let (kmin, kmax) = (Quantity(Bytes(100_000)), Quantity(Bytes(400_000)));
        Self { kmin, kmax, pmax, at: EcnAt::default() }
    }
}

/// When a packet is marked.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EcnAt {
    /// As it leaves its queue, by what waits behind it.
    #[default]
    Dequeue,
    /// As it enters its queue, by what waits before it.
    Enqueue,
}

/// How queues share a buffer.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SharingMode {
    /// Each may hold `alpha` times what is free.
    #[default]
    Dynamic,
    /// Each has an equal part.
    Static,
}

/// Which packet of a class leaves next.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ServeMode {
    /// The one that came first: a FIFO for all inputs.
    #[default]
    Arrival,
    /// One of each input that has some, by turns: virtual output queues.
    Inputs,
}

/// What happens to a pause storm.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StormMode {
    /// It is counted.
    #[default]
    Report,
    /// The port pays no attention to pauses of that class, until it has been quiet for `restore`:
    /// the next switch may drop.
    Ignore,
}

/// Headroom: `"formula"`, or bytes.
#[derive(Copy, Clone, PartialEq, Eq, Debug, JsonSchema)]
pub struct HeadroomText(#[schemars(with = "String")] pub Option<Bytes>);

impl Serialize for HeadroomText {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            None => s.serialize_str("formula"),
            Some(bytes) => s.serialize_str(&bytes.print()),
        }
    }
}

impl<'de> Deserialize<'de> for HeadroomText {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        if text == "formula" {
            return Ok(Self(None));
        }
        let wrong = |_| {
            D::Error::custom(format_args!(
                "\"{text}\" is no headroom\n\"formula\", or bytes such as \"40KB\""
            ))
        };
        Bytes::parse(&text).map(|bytes| Self(Some(bytes))).map_err(wrong)
    }
}
