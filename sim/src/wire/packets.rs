//! The arena of the packets in flight.

use std::ops::{Index, IndexMut};

use super::entropy::five_tuple_of;
use super::id::{HostId, PortId};
use super::packet::Packet;
use crate::engine::Slab;

/// What a switch reads of a packet, and nothing else: no bit of it changes on the way.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Head {
    src: HostId,
    /// The destination,
    pub dst: HostId,
    src_port: PortId,
    /// and its port.
    pub dst_port: PortId,
    udp_source_port: u16,
    /// Service level of the sending QP, 0 to 15.
    pub sl: u8,
}

impl Head {
    const fn of(p: &Packet) -> Self {
        let Packet { src, src_port, dst, dst_port, udp_source_port, sl, .. } = *p;
        Self { src, dst, src_port, dst_port, udp_source_port, sl }
    }

    /// See [`five_tuple_of`].
    pub fn five_tuple(&self) -> u64 {
        five_tuple_of((self.src, self.src_port), (self.dst, self.dst_port), self.udp_source_port)
    }
}

/// Packets at stable `u32` indices, each with its [`Head`] apart.
///
/// A network holds up to millions of packets, which come by in no order that a cache could guess.
/// A switch needs 16 bytes of each; these lie together, six times as dense as the packets.
#[derive(Clone, Default, Debug)]
pub struct Packets {
    all: Slab<Packet>,
    /// By index; of a packet that is gone, what it was.
    heads: Vec<Head>,
}

impl Packets {
    /// None; allocates at the first insertion.
    pub const fn new() -> Self {
        Self { all: Slab::new(), heads: Vec::new() }
    }

    /// Takes a packet and returns its index. Its addresses, its UDP source port and its service
    /// level stay as they are from now on.
    ///
    /// # Panics
    /// At 2³² - 1 packets.
    pub fn insert(&mut self, packet: Packet) -> u32 {
        let head = Head::of(&packet);
        let index = self.all.insert(packet);
        match self.heads.get_mut(index as usize) {
            Some(place) => *place = head,
            None => self.heads.push(head),
        }
        index
    }

    /// Takes the packet at `index` out.
    ///
    /// # Panics
    /// When there is none.
    pub fn remove(&mut self, index: u32) -> Packet {
        debug_assert_eq!(self.heads[index as usize], Head::of(&self.all[index]), "it was changed");
        self.all.remove(index)
    }

    /// What a switch reads of the packet at `index`.
    ///
    /// # Panics
    /// When there never was one.
    #[inline]
    pub fn head(&self, index: u32) -> &Head {
        debug_assert!(self.all.get(index).is_some(), "the packet is gone");
        &self.heads[index as usize]
    }

    /// Reads the places where the packet at `index` is, all or what a switch reads, so that they
    /// are near when they are needed. What it gives says nothing.
    #[inline]
    pub(crate) fn glance(&self, index: u32, all: bool) -> u32 {
        match all {
            true => self.all.get(index).map_or(0, |p| p.desc.len ^ u32::from(p.sl)),
            false => self.heads.get(index as usize).map_or(0, |head| head.dst.0),
        }
    }

    /// The packet at `index`, if there is one.
    pub fn get(&self, index: u32) -> Option<&Packet> {
        self.all.get(index)
    }

    /// All packets with their indices, lowest index first.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Packet)> {
        self.all.iter()
    }

    /// Packets in flight.
    pub const fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether none is in flight.
    pub const fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

impl Index<u32> for Packets {
    type Output = Packet;
    /// # Panics
    /// When there is no packet at `index`.
    #[inline]
    fn index(&self, index: u32) -> &Packet {
        &self.all[index]
    }
}

impl IndexMut<u32> for Packets {
    /// # Panics
    /// When there is no packet at `index`.
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut Packet {
        &mut self.all[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rc::{Ext, PacketDesc};
    use crate::wire::Payload;
    use doorbell_core::verbs::{Opcode, Psn, Qpn};

    fn packet(n: u32) -> Packet {
        let desc = PacketDesc {
            opcode: Opcode::RcSendOnly,
            psn: Psn::new(n),
            dest: Qpn::new(2),
            ack_req: true,
            solicited: false,
            wqe: 0,
            offset: 0,
            len: 9,
            ext: Ext::None,
        };
        let (from, to) = ((HostId(n), PortId(1)), (HostId(n + 7), PortId(3)));
        let p = Packet::new(from, to, desc, Payload::Lengths, 0xC000 + n as u16);
        Packet { sl: n as u8, ..p }
    }

    #[test]
    fn a_place_that_is_used_again_has_the_head_of_its_new_packet() {
        let mut packets = Packets::new();
        let [a, b] = [1, 2].map(|n| packets.insert(packet(n)));
        assert_eq!(packets.remove(a).src, HostId(1));
        let c = packets.insert(packet(3));
        assert_eq!((c, packets.len(), packets.is_empty()), (a, 2, false));
        for (index, n) in [(b, 2), (c, 3)] {
            let head = packets.head(index);
            assert_eq!((head.dst, head.dst_port), (HostId(n + 7), PortId(3)));
            let p = packet(n);
            let tuple = five_tuple_of((p.src, p.src_port), (p.dst, p.dst_port), p.udp_source_port);
            assert_eq!((head.sl, head.five_tuple()), (n as u8, tuple));
        }
        assert!(packets.iter().map(|(i, p)| (i, p.src.0)).eq([(0, 3), (1, 2)]));
        assert!(packets.get(2).is_none());
    }

    #[test]
    fn a_head_takes_sixteen_bytes() {
        assert_eq!(size_of::<Head>(), 16);
    }
}
