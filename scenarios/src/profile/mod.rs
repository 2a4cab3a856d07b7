//! Hardware profiles: files in which every parameter has a value, a source and a confidence.
//!
//! ```toml
//! title = "What hardware this stands for"
//! base = "generic-400g"       # optional: what is not given here is taken from there
//!
//! [pcie]
//! width = { value = 8, source = "C-PCIE-003", confidence = "read" }
//! wc_buffers = { value = 10, source = "assumed: why this value" }
//! ```
//!
//! No parameter has a default in the code: a number without a source would look like a fact.

mod check;
mod load;
mod param;
mod parameters;
mod rows;
mod schema;
mod table;
#[cfg(test)]
mod tests;

pub use load::{Profiles, RawProfile};
pub use param::{
    AckAsk, AckMode, Choice, ClockSteps, ForwardMode, LinkKind, MemoryModel, Param, Quantiles,
    ReclaimKind, RecoveryKind, RelaxedKind, RuleSet, TimeoutKind, VendorKind,
};
pub use parameters::{Bench, Cpu, GROUPS, Gpu, Memory, Nic, PARAMETERS, Pcie, Port, Profile, Rc};
pub use rows::{
    BadInvalidateKind, DuplicateAckKind, DuplicateReadKind, FenceKind, LimitedWqeKind,
    NakDuringRnrKind, RetrySevenKind, SequenceNakKind,
};
pub use schema::profile_schema;
pub use table::{Confidence, Entries, Entry, ParameterInfo, Provenance};
