//! What every back end has to do, written once. The bodies reach their back end as
//! `super::backend`; who mounts this module brings it into scope.
//!
//! Headings are states and clauses of the verbs; the numbers of sections are those of the protocol
//! reference that the sources of `doorbell_core::verbs` name.

use super::backend;

/// Ends a body that needs somebody behind the wire on a back end without.
macro_rules! needs_peer {
    () => {
        if !super::backend::HAS_PEER {
            println!("skipped: no peer");
            return;
        }
    };
}

mod bootstrap;
mod choices;
pub mod cq_srq;
mod destroy;
mod flush;
mod handles;
mod limits;
mod operations;
pub mod pair;
mod policies;
mod protection;
mod states;
