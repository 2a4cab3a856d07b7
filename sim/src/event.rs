//! The events of a run.

use crate::fabric::FabricEvent;
use crate::memory::MemoryEvent;
use crate::nic::NicEvent;
use crate::pcie::PcieEvent;
use crate::wire::HostId;

/// An event, by the room that handles it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// Of a host's island.
    Host(HostId, HostEvent),
    /// Of a link, a switch or a host's port.
    Fabric(FabricEvent),
    /// Of the fault plan.
    Fault(FaultEvent),
    /// The network is searched for pause storms and deadlocks.
    Watch,
    /// The out-of-band network tells all hosts that a program has ended.
    Ended {
        /// Rank of the program.
        rank: u32,
    },
    /// A message of the out-of-band network arrives.
    Bootstrap {
        /// Destination.
        host: HostId,
        /// The message.
        message: u32,
    },
}

/// An event of the fault plan.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum FaultEvent {
    /// The time of a fault has come, or its window opens.
    Begin(u32),
    /// The window of a fault closes.
    End(u32),
    /// A packet that was kept at the end of a link goes on, if it is still there.
    Deliver(u32),
}

/// An event of one host.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum HostEvent {
    /// Of its PCIe tree.
    Pcie(PcieEvent),
    /// Of its memories.
    Memory(MemoryEvent),
    /// Of a NIC.
    Nic {
        /// Which one, from 0.
        nic: u8,
        /// What happens.
        ev: NicEvent,
    },
    /// A program steps.
    Step {
        /// The initiator.
        initiator: u16,
        /// Only the newest wake-up counts.
        generation: u32,
    },
    /// The next effect of an initiator's step takes place.
    Effect {
        /// The initiator.
        initiator: u16,
    },
    /// A store leaves the initiator's store buffer.
    StoreVisible {
        /// The initiator.
        initiator: u16,
        /// Entry of the store buffer.
        entry: u32,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The queue keeps one of these per pending event; a byte more is four.
    #[test]
    fn events_stay_small() {
        assert!(size_of::<HostEvent>() <= 16, "{}", size_of::<HostEvent>());
        assert!(size_of::<Event>() <= 20, "{}", size_of::<Event>());
    }
}
