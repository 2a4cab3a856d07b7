//! The packets that wait at a port: one queue per traffic class.

use super::egress::Queued;
use super::event::ClassCounters;
use super::line::{Line, Serve};
use super::schedule::Schedule;

/// What waits at a port. A port of one class has nothing but its queue.
#[derive(Clone, Debug)]
pub(super) enum Queues {
    One(Line),
    Many(Box<Lanes>),
}

/// Several queues and whose turn it is.
#[derive(Clone, Debug)]
pub(super) struct Lanes {
    lanes: Vec<Lane>,
    schedule: Schedule,
    /// Packets in all of them.
    len: usize,
}

#[derive(Clone, Debug)]
struct Lane {
    queue: Line,
    bytes: u64,
    counters: ClassCounters,
}

impl Queues {
    pub fn one(serve: Serve) -> Self {
        Self::One(Line::new(serve))
    }

    pub fn many(classes: usize, schedule: Schedule, serve: Serve) -> Self {
        let queue = Line::new(serve);
        let lanes = vec![Lane { queue, bytes: 0, counters: ClassCounters::default() }; classes];
        Self::Many(Box::new(Lanes { lanes, schedule, len: 0 }))
    }

    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Self::One(queue) => queue.len(),
            Self::Many(l) => l.len,
        }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether nothing waits in a class.
    #[inline]
    pub fn is_empty_of(&self, class: u8) -> bool {
        match self {
            Self::One(queue) => queue.is_empty(),
            Self::Many(l) => l.lanes[usize::from(class)].queue.is_empty(),
        }
    }

    /// The packet of a class that leaves next.
    pub fn head_of(&self, class: u8) -> Option<&Queued> {
        match self {
            Self::One(queue) => queue.front(),
            Self::Many(l) => l.lanes[usize::from(class)].queue.front(),
        }
    }

    /// Bytes that wait in a class, where they are counted apart.
    pub fn bytes_of(&self, class: u8) -> Option<u64> {
        match self {
            Self::One(_) => None,
            Self::Many(l) => Some(l.lanes[usize::from(class)].bytes),
        }
    }

    /// What a class has done, where classes are counted apart.
    pub fn counters(&self, class: u8) -> Option<ClassCounters> {
        match self {
            Self::One(_) => None,
            Self::Many(l) => l.lanes.get(usize::from(class)).map(|lane| lane.counters),
        }
    }

    /// Changes the counters of a class, where classes are counted apart.
    pub fn count(&mut self, class: u8, change: impl Fn(&mut ClassCounters)) {
        if let Self::Many(l) = self {
            change(&mut l.lanes[usize::from(class)].counters);
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &Queued> {
        let (one, many) = match self {
            Self::One(queue) => (Some(queue.iter()), None),
            Self::Many(l) => (None, Some(l.lanes.iter().flat_map(|lane| lane.queue.iter()))),
        };
        one.into_iter().flatten().chain(many.into_iter().flatten())
    }

    #[inline]
    pub fn push(&mut self, item: Queued) {
        match self {
            Self::One(queue) => queue.push(item),
            Self::Many(l) => {
                let lane = &mut l.lanes[usize::from(item.class)];
                lane.queue.push(item);
                lane.bytes += u64::from(item.wire_bytes);
                let most = &mut lane.counters.max_waiting_bytes;
                *most = lane.bytes.max(*most);
                l.len += 1;
            }
        }
    }

    /// The packet whose turn it is among those that `may` go, if the far end has `room` for it. All
    /// classes share the room: what one waits for goes to no other meanwhile, or small packets of a
    /// lower class would keep a large one of a higher class waiting for ever.
    pub fn pop(&mut self, room: u64, may: impl Fn(&Queued) -> bool) -> Option<Queued> {
        match self {
            Self::One(queue) => {
                let item = *queue.front()?;
                if !may(&item) || u64::from(item.wire_bytes) > room {
                    return None;
                }
                queue.pop()
            }
            Self::Many(l) => {
                let Lanes { lanes, schedule, len } = &mut **l;
                let head = |class: u8| {
                    let item = lanes[usize::from(class)].queue.front()?;
                    may(item).then_some(item.wire_bytes)
                };
                let class = if room == u64::MAX {
                    schedule.pick(head)?
                } else {
                    // A turn that is not taken is no turn.
                    let mut then = schedule.clone();
                    let class =
                        then.pick(head).filter(|c| head(*c).map(u64::from) <= Some(room))?;
                    *schedule = then;
                    class
                };
                let lane = &mut lanes[usize::from(class)];
                let item = lane.queue.pop()?;
                lane.bytes -= u64::from(item.wire_bytes);
                *len -= 1;
                Some(item)
            }
        }
    }
}
