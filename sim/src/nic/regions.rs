//! Regions that work requests name.

use super::{Nic, NicQp};
use crate::memory::Region;
use doorbell_core::verbs::Lkey;

impl NicQp {
    /// Send WQEs that name `lkey` and whose completion was not polled, nor implied by that of a
    /// later one: until then the memory belongs to the device (protocol.md §5.2).
    fn sends_from(&self, lkey: Lkey) -> u64 {
        let mut index = self.sq.tail();
        let mut count = 0;
        while let Some(slot) = self.sq.slot(index) {
            count += u64::from(slot.wqe.data.sges().iter().any(|s| s.lkey == lkey));
            index = index.wrapping_add(1);
        }
        count
    }
}

impl Nic {
    /// Work requests that are posted and name the region: sends until their completion was polled
    /// or implied, receives until they have ended. It is memory that belongs to the NIC.
    pub fn uses_of(&self, region: &Region) -> u64 {
        let lkey = region.lkey;
        let own = |q: &NicQp| {
            let held = q.current_recv.is_some_and(|w| w.sge.lkey == lkey);
            q.sends_from(lkey) + q.rq.naming(lkey) + u64::from(held)
        };
        let shared: u64 = self.srqs.iter().flatten().map(|q| q.naming(lkey)).sum();
        self.qps().map(|(_, q)| own(q)).sum::<u64>() + shared
    }
}
