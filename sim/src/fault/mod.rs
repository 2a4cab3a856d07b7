//! Faults as data: what goes wrong, where, when and how often.
//!
//! A [`FaultPlan`] is a list of [`Fault`]s. A packet fault matches packets at the *end of a link*:
//! it is asked when a packet arrives there, before the node behind the link sees it. The packet
//! has been serialised by then and has used its time on the link, and what it left behind in the
//! sender is that of a packet that got through; so a fault never changes what the sender does until
//! the sender learns of it by the protocol. A host fault acts on a host at a time, or for a time.
//!
//! Rules that make plans comparable and shrinkable:
//!
//! - Every fault sees every packet, also one that an earlier fault of the plan takes away; the
//!   first fault of the plan whose conditions hold decides. So counts and draws of a fault depend
//!   on the packets only, and removing another fault from the plan shifts none of them.
//! - Random faults draw from streams named by (link direction, fault's id), only for packets that
//!   match.
//! - A packet that was delayed, held or copied is not asked about a second time on that link.
//! - A fault that never fires changes no trace hash.
//!
//! | File | |
//! |---|---|
//! | `plan.rs` | the plan, its checks |
//! | `name.rs` | names of links and their ends |
//! | `matcher.rs` | which packets |
//! | `rounds.rs` | retransmission rounds |
//! | `chance.rs` | random loss, bursts |
//! | `state.rs` | the plan at work: counts, held packets |

mod chance;
mod matcher;
mod name;
mod plan;
mod rounds;
mod state;
#[cfg(test)]
mod tests;

pub use chance::{Burst, Chance};
pub use matcher::{Matcher, PacketClass, Window, opcode_word};
pub use name::{LinkEnd, LinkName, ParseLinkError};
pub use plan::{
    DEFAULT_REORDER_LIMIT, DoorbellPart, Fault, FaultPlan, Hold, HostAction, HostFault,
    PacketFault, PacketVerdict, PlanError, Reboot, What,
};
pub use state::FaultUse;
pub(crate) use state::{Decision, FaultState, Held};
