//! QPs with work, in front of a processing unit.

use std::collections::VecDeque;

/// QPs in turn. Each waits for room in the port, and one that waits for one room does not hold up
/// those that wait for another. Kept apart by room, so that those behind a room that is full need
/// not be looked at one by one.
#[derive(Debug, Default)]
pub(super) struct Ready {
    /// By room: places in the order, and QPs.
    rooms: Vec<VecDeque<(u64, u32)>>,
    next_place: u64,
    /// QPs in all rooms.
    len: usize,
}

impl Ready {
    /// Puts a QP behind all others.
    pub fn push(&mut self, room: usize, qp: u32) {
        if room >= self.rooms.len() {
            self.rooms.resize_with(room + 1, VecDeque::new);
        }
        self.rooms[room].push_back((self.next_place, qp));
        self.next_place += 1;
        self.len += 1;
    }

    /// Takes the first QP whose room is not full.
    pub fn take(&mut self, mut full: impl FnMut(usize) -> bool) -> Option<u32> {
        let mut from = 0;
        loop {
            let heads = self.rooms.iter().zip(0..);
            let heads = heads.filter_map(|(q, room)| Some((q.front()?.0, room)));
            let (place, room) = heads.filter(|(place, _)| *place >= from).min()?;
            if !full(room) {
                self.len -= 1;
                return self.rooms[room].pop_front().map(|(_, qp)| qp);
            }
            from = place + 1;
        }
    }

    /// Whether no QP has work.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a list that is searched from the front.
    #[test]
    fn the_first_one_with_room_goes_and_no_room_is_asked_for_twice() {
        let rooms = [2, 0, 0, 5, 2, 0, 5, 5];
        for full in 0..64_u32 {
            let (mut ready, mut list) = (Ready::default(), Vec::new());
            assert!(ready.is_empty());
            for (qp, room) in (0..).zip(rooms) {
                ready.push(room, qp);
                list.push((room, qp));
            }
            let is_full = |room: usize| full >> room & 1 == 1;
            loop {
                let mut asked = Vec::new();
                let next = ready.take(|room| {
                    asked.push(room);
                    is_full(room)
                });
                let at = list.iter().position(|(room, _)| !is_full(*room));
                assert_eq!(next, at.map(|at| list.remove(at).1));
                let all = asked.len();
                asked.sort_unstable();
                asked.dedup();
                assert_eq!(asked.len(), all);
                if next.is_none() {
                    break;
                }
            }
            assert_eq!(ready.is_empty(), list.is_empty());
        }
    }
}
