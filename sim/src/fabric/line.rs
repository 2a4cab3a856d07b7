//! The packets of one class at a port, in the order in which they leave.

use std::collections::{BTreeMap, VecDeque};

use super::egress::Queued;
use crate::wire::PortId;

/// Which packet of a class an output port of a switch sends next.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Serve {
    /// The one that came first, whatever input it came by: one FIFO per output and class. An
    /// input's part of the output is its part of the queue, so inputs whose senders are paused
    /// share as unevenly as pauses leave their packets behind.
    Arrival,
    /// One of each input that has some, by turns: each input has a queue of its own for each output
    /// (virtual output queues). Packets of one input stay in order. Inputs get as many packets as
    /// each other, whatever waits.
    Inputs,
}

/// Packets that wait in one class.
#[derive(Clone, Debug)]
pub(super) enum Line {
    Arrival(VecDeque<Queued>),
    Inputs(Box<Turns>),
}

/// A queue for each input.
#[derive(Clone, Default, Debug)]
pub(super) struct Turns {
    /// Of every input that ever had a packet here. Empty ones stay: they will be filled again.
    queues: BTreeMap<PortId, VecDeque<Queued>>,
    /// Inputs that have packets, the next one first.
    next: VecDeque<PortId>,
    len: usize,
}

impl Line {
    pub fn new(serve: Serve) -> Self {
        match serve {
            Serve::Arrival => Self::Arrival(VecDeque::new()),
            Serve::Inputs => Self::Inputs(Box::default()),
        }
    }

    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Self::Arrival(queue) => queue.len(),
            Self::Inputs(turns) => turns.len,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The packet that leaves next.
    #[inline]
    pub fn front(&self) -> Option<&Queued> {
        match self {
            Self::Arrival(queue) => queue.front(),
            Self::Inputs(turns) => turns.queues.get(turns.next.front()?)?.front(),
        }
    }

    #[inline]
    pub fn push(&mut self, item: Queued) {
        match self {
            Self::Arrival(queue) => queue.push_back(item),
            Self::Inputs(turns) => turns.push(item),
        }
    }

    #[inline]
    pub fn pop(&mut self) -> Option<Queued> {
        match self {
            Self::Arrival(queue) => queue.pop_front(),
            Self::Inputs(turns) => turns.pop(),
        }
    }

    /// All of them; those of one input in the order in which they leave.
    pub fn iter(&self) -> impl Iterator<Item = &Queued> {
        let (arrival, inputs) = match self {
            Self::Arrival(queue) => (Some(queue), None),
            Self::Inputs(turns) => (None, Some(turns.queues.values().flatten())),
        };
        arrival.into_iter().flatten().chain(inputs.into_iter().flatten())
    }
}

impl Turns {
    fn push(&mut self, item: Queued) {
        let queue = self.queues.entry(item.ingress).or_default();
        if queue.is_empty() {
            self.next.push_back(item.ingress);
        }
        queue.push_back(item);
        self.len += 1;
    }

    fn pop(&mut self) -> Option<Queued> {
        let input = self.next.pop_front()?;
        let queue = self.queues.get_mut(&input).expect("an input in the ring has packets");
        let item = queue.pop_front().expect("an input in the ring has packets");
        if !queue.is_empty() {
            self.next.push_back(input);
        }
        self.len -= 1;
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::wire::PacketId;
    use proptest::prelude::*;

    fn item(ingress: u16, packet: u32) -> Queued {
        Queued { packet: PacketId(packet), wire_bytes: 100, ingress: PortId(ingress), class: 0 }
    }

    fn order(serve: Serve, inputs: &[u16]) -> Vec<(u16, u32)> {
        let mut line = Line::new(serve);
        for (n, input) in (0..).zip(inputs) {
            line.push(item(*input, n));
        }
        let mut out = Vec::new();
        while let Some(item) = line.pop() {
            out.push((item.ingress.0, item.packet.0));
        }
        out
    }

    #[test]
    fn inputs_take_turns_and_each_keeps_its_order() {
        let came = [7, 7, 7, 2, 7, 2, 5];
        let by_arrival: Vec<_> = came.iter().copied().zip(0..).collect();
        assert_eq!(order(Serve::Arrival, &came), by_arrival);
        let turns = [(7, 0), (2, 3), (5, 6), (7, 1), (2, 5), (7, 2), (7, 4)];
        assert_eq!(order(Serve::Inputs, &came), turns);
    }

    proptest! {
        /// Whatever comes and goes: what leaves is what was shown, no input waits for more than
        /// one packet of each other, and none is overtaken by its own.
        #[test]
        fn no_input_waits_for_two_packets_of_another(
            steps in prop::collection::vec(prop::option::weighted(0.6, 0u16..6), 1..300),
        ) {
            let mut line = Line::new(Serve::Inputs);
            let (mut served, mut inside) = (Vec::<u16>::new(), BTreeMap::<u16, Vec<u32>>::new());
            for (n, step) in (0..).zip(steps) {
                let Some(input) = step else {
                    let shown = line.front().copied();
                    let got = line.pop();
                    prop_assert_eq!(shown, got);
                    let Some(got) = got else { continue };
                    let own = inside.get_mut(&got.ingress.0).expect("it came");
                    prop_assert_eq!(own.remove(0), got.packet.0);
                    served.push(got.ingress.0);
                    continue;
                };
                line.push(item(input, n));
                inside.entry(input).or_default().push(n);
                prop_assert_eq!(line.iter().count(), line.len());
            }
            prop_assert_eq!(line.len(), inside.values().map(Vec::len).sum::<usize>());
            // From here nothing comes: in each window of as many packets as inputs have some, each
            // is served once.
            while let Some(first) = line.pop() {
                inside.get_mut(&first.ingress.0).expect("it came").remove(0);
                let left: Vec<u16> =
                    inside.iter().filter(|(_, q)| !q.is_empty()).map(|(i, _)| *i).collect();
                let others = left.iter().filter(|i| **i != first.ingress.0).count();
                let mut round = Vec::new();
                for _ in 0..others {
                    let got = line.pop().expect("others have packets");
                    inside.get_mut(&got.ingress.0).expect("it came").remove(0);
                    round.push(got.ingress.0);
                }
                round.sort_unstable();
                let want: Vec<u16> =
                    left.into_iter().filter(|i| *i != first.ingress.0).collect();
                prop_assert_eq!(round, want);
            }
        }
    }
}
