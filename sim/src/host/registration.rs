//! The time of registrations.
//!
//! What a program registers before its first ring is set-up, which takes no time in this model,
//! like the creation of queues. Behind it each registration keeps its core busy, where messages
//! wait. Deregistration is not charged by itself: no published figure was at hand.

use doorbell_core::verbs::AccessFlags;

use super::transport::SimTransport;
use crate::memory::RegionKind;

impl SimTransport<'_> {
    /// Charges the registration of a region of `bytes`, behind the first ring.
    pub(super) fn charge_registration(
        &mut self,
        kind: RegionKind,
        access: AccessFlags,
        bytes: u64,
    ) {
        if self.init().stats.rings == 0 {
            return;
        }
        let costs = match kind {
            RegionKind::Host { .. } => self.costs().register,
            RegionKind::Gpu { .. } => self.costs().register_gpu,
        };
        // Pages on demand are not pinned.
        let pinned = if access.contains(AccessFlags::ON_DEMAND) { 0 } else { bytes };
        let time = costs.time(pinned);
        self.spend(time);
        let stats = &mut self.init_mut().stats;
        stats.registrations += 1;
        stats.register += time;
    }
}

#[cfg(test)]
mod tests {
    use doorbell_core::units::Span;

    use super::super::config::RegistrationCosts;

    #[test]
    fn pages_are_counted_whole() {
        let (call, page) = (Span::from_us(16), Span::from_ns(246));
        let costs = RegistrationCosts { call, page, page_bytes: 4096 };
        let pages = |bytes| (costs.time(bytes) - call).as_ps() / page.as_ps();
        assert_eq!([1, 4096, 4097, 1 << 20].map(pages), [1, 1, 2, 256]);
        let huge = RegistrationCosts { page_bytes: 2 << 20, ..costs };
        assert_eq!(huge.time(2 << 20), call + page);
        assert_eq!(costs.time(0), call, "nothing is pinned");
        assert_eq!(RegistrationCosts::FREE.time(1 << 30), Span::ZERO);
    }
}
