//! Ids of the network's parts.

use core::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($raw:ty), $short:literal) => {
        $(#[$doc])*
        #[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $raw);

        impl $name {
            /// The id as an index into a table.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($short, "{}"), self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($short, "{}"), self.0)
            }
        }
    };
}

id! {
    /// A host, numbered from 0 in the order of the configuration. An address of the network is a
    /// host and one of its ports.
    HostId(u32), "host"
}
id! {
    /// A node of the network: hosts first, so host `h` is node `h`, then the switches.
    NodeId(u32), "node"
}
id! {
    /// A port of one node, numbered from 0 in the order in which links name the node.
    PortId(u16), "port"
}
id! {
    /// A packet in the run's arena. Reused after the packet is gone, so it never enters a trace
    /// hash.
    PacketId(u32), "packet"
}

/// The 24 bits in which the addresses of host ports differ: the port in bits 23 to 20, the host + 1
/// below. Unique below 2^20 - 1 hosts of 16 ports.
pub const fn address(HostId(host): HostId, PortId(port): PortId) -> u32 {
    ((port as u32) << 20 | (host.wrapping_add(1) & 0xF_FFFF)) & 0xFF_FFFF
}
