//! The types that a profile parameter can have.

use doorbell_core::units::{BitRate, Bytes, Ratio, Span};
use serde_json::{Value as Json, json};

use crate::input::{InputError, Node, Value, suggestion};
use crate::quantity::{Count, Decimal, Frequency, Quantity, Unit};

/// A type of parameter: how it is read, shown and described.
pub trait Param: Sized {
    /// Reads the value.
    ///
    /// # Errors
    /// When the node holds another type, a wrong unit or an impossible value.
    fn read(node: &Node) -> Result<Self, InputError>;

    /// The value as it would stand in a profile.
    fn show(&self) -> String;

    /// What the value is, with an example.
    fn describe() -> String;

    /// JSON schema of the value.
    fn schema() -> Json;
}

macro_rules! quantity_param {
    ($($ty:ty),+) => {$(
        impl Param for $ty {
            fn read(node: &Node) -> Result<Self, InputError> {
                node.read::<Quantity<$ty>>().map(|q| q.0)
            }

            fn show(&self) -> String {
                self.print()
            }

            fn describe() -> String {
                let kind = <$ty as Unit>::KIND;
                format!("{} such as \"{}\"", kind.name, kind.example)
            }

            fn schema() -> Json {
                schemars::SchemaGenerator::default().subschema_for::<Quantity<$ty>>().into()
            }
        }
    )+};
}

quantity_param!(Span, Bytes, BitRate, Frequency, Ratio);

impl Param for u64 {
    fn read(node: &Node) -> Result<Self, InputError> {
        node.read::<Count<0, { u64::MAX }>>().map(Count::value)
    }

    fn show(&self) -> String {
        self.to_string()
    }

    fn describe() -> String {
        "a whole number such as 16".to_owned()
    }

    fn schema() -> Json {
        json!({ "type": "integer", "minimum": 0 })
    }
}

impl Param for bool {
    fn read(node: &Node) -> Result<Self, InputError> {
        node.read()
    }

    fn show(&self) -> String {
        self.to_string()
    }

    fn describe() -> String {
        "true or false".to_owned()
    }

    fn schema() -> Json {
        json!({ "type": "boolean" })
    }
}

/// A parameter that is one of a few words.
pub trait Choice: Copy + PartialEq + Sized + 'static {
    /// The words and what they stand for.
    const WORDS: &'static [(&'static str, Self)];
}

/// Defines an enum whose values are words in a profile.
macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Copy, Clone, PartialEq, Eq, Debug)]
        pub enum $name { $($(#[$vdoc])* $variant,)+ }

        impl Choice for $name {
            const WORDS: &'static [(&'static str, Self)] = &[$(($word, Self::$variant)),+];
        }
        choice!(@param $name);
    };
    (@param $name:ident) => {
        impl Param for $name {
            fn read(node: &Node) -> Result<Self, InputError> {
                read_choice(node)
            }

            fn show(&self) -> String {
                show_choice(*self)
            }

            fn describe() -> String {
                format!("one of {}", words::<Self>().join(", "))
            }

            fn schema() -> Json {
                json!({ "enum": words::<Self>() })
            }
        }
    };
}

pub(super) use choice;

pub(super) fn words<T: Choice>() -> Vec<&'static str> {
    T::WORDS.iter().map(|(word, _)| *word).collect()
}

pub(super) fn read_choice<T: Choice>(node: &Node) -> Result<T, InputError> {
    let Value::String(text) = &node.value else {
        let error = InputError::new(format!("wrong type: found {}", node.value.name()));
        let help = format!("expected one of {}", words::<T>().join(", "));
        return Err(error.help(help).at(&node.origin));
    };
    let found = T::WORDS.iter().find(|(word, _)| word == text);
    found.map(|(_, choice)| *choice).ok_or_else(|| {
        InputError::new(format!("unknown value \"{text}\""))
            .help(suggestion(text, words::<T>(), "values"))
            .at(&node.origin)
    })
}

pub(super) fn show_choice<T: Choice>(value: T) -> String {
    let word = T::WORDS.iter().find(|(_, choice)| *choice == value);
    word.map(|(word, _)| (*word).to_owned()).unwrap_or_default()
}

choice! {
    /// Link layer and encapsulation of a port.
    LinkKind {
        /// Native InfiniBand.
        InfiniBand = "ib",
        /// RoCEv2: UDP over IP over Ethernet.
        RoceV2 = "roce",
    }
}

choice! {
    /// In which order the stores of one initiator become visible to a device.
    MemoryModel {
        /// In program order, as on x86: a doorbell never overtakes the WQE stores before it.
        Total = "tso",
        /// In any order until a fence: a doorbell may overtake them.
        Weak = "weak",
    }
}

choice! {
    /// When a responder acknowledges.
    AckMode {
        /// One ACK for each request for one.
        Each = "each",
        /// Acknowledgements that wait are merged.
        Coalesce = "coalesce",
    }
}

choice! {
    /// Which messages ask for an ACK with their last packet.
    AckAsk {
        /// Every message.
        Always = "always",
        /// Only messages that make a completion.
        Signalled = "signalled",
    }
}

choice! {
    /// Whose vendor codes completions in error carry.
    VendorKind {
        /// 0 always.
        None = "none",
        /// Those that are published of mlx5; 0 for the other statuses.
        Mlx5 = "mlx5",
    }
}

choice! {
    /// When the slot of a send WQE can be taken by another one.
    ReclaimKind {
        /// When a completion that covers it is polled.
        OnPoll = "on-poll",
        /// When it is done.
        OnCompletion = "on-completion",
    }
}

choice! {
    /// Which writes of an adapter carry the PCIe attribute relaxed ordering.
    RelaxedKind {
        /// None.
        Off = "off",
        /// Those of payload.
        Payload = "payload",
        /// And ATOMICs, as where the root complex does them.
        PayloadAndAtomics = "payload-and-atomics",
    }
}

choice! {
    /// What a device makes of the attribute `timeout`.
    TimeoutKind {
        /// A multiple of T.
        Fixed = "fixed",
        /// T, but not less than a floor.
        Floor = "floor",
        /// Doubles from a first value, whatever T is.
        Adaptive = "adaptive",
        /// T in whole ticks of a clock.
        Ticks = "ticks",
    }
}

choice! {
    /// What goes out again after a loss.
    RecoveryKind {
        /// Everything from the lost packet on.
        GoBackN = "go-back-n",
        /// What was lost, and nothing else; the peer keeps what follows.
        SelectiveRepeat = "selective-repeat",
    }
}

choice! {
    /// Whose choices are made where implementations differ.
    RuleSet {
        /// Those of the reference page, close to the specification.
        Reference = "reference",
        /// Those of the Linux driver rxe.
        Rxe = "rxe",
    }
}

choice! {
    /// How a switch forwards.
    ForwardMode {
        /// From the header on.
        CutThrough = "cut-through",
        /// After the last bit.
        StoreAndForward = "store-and-forward",
    }
}

/// An inverse distribution function in points "quantile time", for modelled noise.
///
/// Quantiles are in millionths and go from 0 to a million; times never fall. No points: no
/// noise.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Quantiles(pub Vec<(u32, Span)>);

/// Quantiles count in millionths.
const MILLION: u64 = 1_000_000;

impl Param for Quantiles {
    fn read(node: &Node) -> Result<Self, InputError> {
        let Value::Array(items) = &node.value else {
            let error = InputError::new(format!("wrong type: found {}", node.value.name()));
            return Err(error.help(format!("expected {}", Self::describe())).at(&node.origin));
        };
        let mut points: Vec<(u32, Span)> = Vec::with_capacity(items.len());
        for item in items {
            let point = quantile_point(item).map_err(|e| e.at(&item.origin))?;
            if points.last().is_some_and(|last| last.0 >= point.0 || last.1 > point.1) {
                let error = InputError::new("quantiles and times must rise from point to point");
                return Err(error.at(&item.origin));
            }
            points.push(point);
        }
        let ends = (points.first().map(|p| p.0), points.last().map(|p| u64::from(p.0)));
        if !points.is_empty() && ends != (Some(0), Some(MILLION)) {
            let error = InputError::new("the quantiles do not go from 0% to 100%");
            let help = "the first point is the shortest time, \"0% …\", the last the longest";
            return Err(error.help(help).at(&node.origin));
        }
        Ok(Self(points))
    }

    fn show(&self) -> String {
        let point = |(q, t): &(u32, Span)| {
            let percent = Ratio { num: u64::from(*q) * 100, den: MILLION };
            format!("\"{}% {}\"", percent.magnitude(), t.print())
        };
        format!("[{}]", self.0.iter().map(point).collect::<Vec<_>>().join(", "))
    }

    fn describe() -> String {
        "a list of quantiles such as [\"0% 0ns\", \"99% 20ns\", \"100% 120ns\"], or [] for \
         none"
            .to_owned()
    }

    fn schema() -> Json {
        json!({ "type": "array", "items": { "type": "string" } })
    }
}

fn quantile_point(node: &Node) -> Result<(u32, Span), InputError> {
    let text: String = node.read()?;
    let parts = text.split_once('%');
    let Some((percent, time)) = parts else {
        return Err(InputError::new(format!("\"{text}\" is not a quantile and a time"))
            .help("write for example \"99.9% 120ns\""));
    };
    // Percent in units of 1/10,000 are millionths.
    let quantile = Decimal::parse(percent.trim()).and_then(|d| d.times(10_000).ok());
    let Some(quantile) = quantile.filter(|q| *q <= MILLION) else {
        return Err(InputError::new(format!("\"{}%\" is not a quantile", percent.trim()))
            .help("quantiles go from 0% to 100% with at most four decimals"));
    };
    let time = Span::parse(time).map_err(|e| InputError::new(e.to_string()).help(e.remedy()))?;
    Ok((quantile as u32, time))
}

/// A clock over time in points "time factor": from each time on, stages take that many times as
/// long as nominal. No points: nominal all the time.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClockSteps(pub Vec<(Span, Ratio)>);

impl Param for ClockSteps {
    fn read(node: &Node) -> Result<Self, InputError> {
        let Value::Array(items) = &node.value else {
            let error = InputError::new(format!("wrong type: found {}", node.value.name()));
            return Err(error.help(format!("expected {}", Self::describe())).at(&node.origin));
        };
        let mut steps: Vec<(Span, Ratio)> = Vec::with_capacity(items.len());
        for item in items {
            let step = clock_step(item).map_err(|e| e.at(&item.origin))?;
            if steps.last().is_some_and(|last| last.0 >= step.0) {
                return Err(InputError::new("times must rise from step to step").at(&item.origin));
            }
            steps.push(step);
        }
        Ok(Self(steps))
    }

    fn show(&self) -> String {
        let step = |(t, r): &(Span, Ratio)| format!("\"{} {}/{}\"", t.print(), r.num, r.den);
        format!("[{}]", self.0.iter().map(step).collect::<Vec<_>>().join(", "))
    }

    fn describe() -> String {
        "a list of times and factors such as [\"2ms 3/2\"], or [] for a constant clock".to_owned()
    }

    fn schema() -> Json {
        json!({ "type": "array", "items": { "type": "string" } })
    }
}

fn clock_step(node: &Node) -> Result<(Span, Ratio), InputError> {
    let text: String = node.read()?;
    let Some((time, factor)) = text.trim().split_once(' ') else {
        return Err(InputError::new(format!("\"{text}\" is not a time and a factor"))
            .help("write for example \"2ms 3/2\""));
    };
    let time = Span::parse(time).map_err(|e| InputError::new(e.to_string()).help(e.remedy()))?;
    let factor =
        Ratio::parse(factor.trim()).map_err(|e| InputError::new(e.to_string()).help(e.remedy()))?;
    if factor.num == 0 {
        return Err(InputError::new("a clock factor of zero").help("stages take some time"));
    }
    Ok((time, factor))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::Source;

    fn read<T: Param>(text: &str) -> Result<T, InputError> {
        let root = Node::parse(&Source::new("p.toml", format!("v = {text}"))).unwrap();
        T::read(root.table().unwrap().get("v").unwrap())
    }

    #[test]
    fn words_are_checked() {
        assert_eq!(read::<LinkKind>("\"roce\"").unwrap(), LinkKind::RoceV2);
        let e = read::<LinkKind>("\"rocee\"").unwrap_err();
        assert_eq!(e.to_string(), "p.toml:1:5: unknown value \"rocee\"");
        assert_eq!(e.remedy(), Some("did you mean `roce`?"));
        assert!(read::<LinkKind>("1").is_err());
    }

    #[test]
    fn quantiles_rise() {
        let text = "[\"0% 0ns\", \"99.9% 120ns\", \"100% 120ns\"]";
        let q = read::<Quantiles>(text).unwrap();
        let ns = Span::from_ns;
        assert_eq!(q.0, [(0, ns(0)), (999_000, ns(120)), (1_000_000, ns(120))]);
        assert_eq!(q.show(), text);
        assert_eq!(read::<Quantiles>("[]").unwrap(), Quantiles::default());
        for (bad, message) in [
            ("'0% 1ns', '0% 2ns'", "must rise"),
            ("'0% 2ns', '100% 1ns'", "must rise"),
            ("'101% 1ns'", "is not a quantile"),
            ("'0% 1ns'", "from 0% to 100%"),
            ("'1% 1ns', '100% 2ns'", "from 0% to 100%"),
        ] {
            let e = read::<Quantiles>(&format!("[{bad}]")).unwrap_err();
            assert!(e.message().contains(message), "{bad}: {e}");
        }
        assert!(read::<Quantiles>("[\"1ns\"]").is_err());
        assert!(read::<Quantiles>("\"5% 1ns\"").is_err());
    }
}
