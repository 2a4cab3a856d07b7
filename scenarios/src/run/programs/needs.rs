//! What members of a group need of their devices: it is there, or the file is refused by the key.

use doorbell_core::policy::aggregate::Needs;

use super::{Planner, bad};
use crate::run::RunError;

impl Planner<'_> {
    /// Refuses members whose completion queues their NIC cannot have. `keys` says what makes them
    /// shorter.
    pub(super) fn check_needs(
        &self,
        index: usize,
        table: &str,
        needs: impl Iterator<Item = Needs>,
        keys: &str,
    ) -> Result<(), RunError> {
        let most = needs.map(|n| u64::from(n.completions)).max().unwrap_or(0);
        let limit = self.point.profile.nic.max_cq_depth;
        if most <= limit {
            return Ok(());
        }
        let text = format!(
            "{most} completions may be outstanding at a host, and `nic.max_cq_depth` is {limit}"
        );
        Err(bad(index, table, text, keys))
    }
}
