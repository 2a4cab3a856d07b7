//! Positions in a send queue: which slots are used, and what a completion gives back.
//!
//! The work request id that goes to the provider is ours: it tells the queue pair, its life (it
//! starts anew with each RESET) and a free-running position, so that one completion retires every
//! earlier request at once, and a completion of an earlier life is recognised. The user's 64 bits
//! are in a table beside it. Receives have the top bit set and carry the user's 63 bits.

use doorbell_core::verbs::WrOpcode;

/// Marks the id of a receive.
pub const RECV: u64 = 1 << 63;
/// Bits of the position, of the queue pair's index, and of its life.
const POSITION_BITS: u32 = 32;
const INDEX_BITS: u32 = 18;
const LIFE_BITS: u32 = 13;

/// A send's id on its way through the provider.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct SendId {
    /// Index of the queue pair in its handle's table.
    pub qp: u32,
    /// Its life, modulo 8,192.
    pub life: u32,
    /// Free-running.
    pub position: u32,
}

impl SendId {
    /// As 64 bits, the top one clear.
    #[cfg(test)]
    const fn encode(self) -> u64 {
        self.position as u64 | prefix(self.qp, self.life)
    }

    /// From 64 bits.
    #[inline(always)]
    pub const fn decode(wr_id: u64) -> Self {
        Self {
            position: wr_id as u32,
            qp: (wr_id >> POSITION_BITS) as u32 & ((1 << INDEX_BITS) - 1),
            life: (wr_id >> (POSITION_BITS + INDEX_BITS)) as u32 & ((1 << LIFE_BITS) - 1),
        }
    }
}

/// What the ids of one life of a queue pair have in common.
const fn prefix(qp: u32, life: u32) -> u64 {
    let life = (life & ((1 << LIFE_BITS) - 1)) as u64;
    (qp as u64 & ((1 << INDEX_BITS) - 1)) << POSITION_BITS | life << (POSITION_BITS + INDEX_BITS)
}

/// What is remembered of a request. Providers report opcode and length of a send completion for
/// some operations and some statuses only; so both are kept here.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// The user's id.
    pub wr_id: u64,
    /// Bytes.
    pub len: u32,
    /// What it does.
    pub op: WrOpcode,
}

/// The positions of one send queue.
#[derive(Debug)]
pub struct Positions {
    /// By position, a power of two of them.
    requests: Box<[Request]>,
    prefix: u64,
    /// Next position to stage.
    head: u32,
    /// Positions before this one were rung; those from here to `head` are staged.
    rung: u32,
    /// Positions before this one have come back.
    retired: u32,
    depth: u32,
    max_staged: u32,
    /// How many more can be staged now: what the data path looks at.
    room: u32,
    qp: u32,
    life: u32,
}

impl Positions {
    /// A queue of `depth` requests of which at most `max_staged` are staged at a time, of the
    /// queue pair at `qp`, which begins with this life. It takes nothing before
    /// [`Positions::open`].
    pub fn new(qp: u32, life: u32, depth: u32, max_staged: u32) -> Self {
        let none = Request { wr_id: 0, len: 0, op: WrOpcode::Send };
        let requests = vec![none; depth.next_power_of_two() as usize].into();
        let (head, rung, retired, room) = (0, 0, 0, 0);
        let prefix = prefix(qp, life);
        Self { requests, prefix, head, rung, retired, depth, max_staged, room, qp, life }
    }

    /// How many more can be staged now; 0 while the queue is closed.
    #[inline(always)]
    pub const fn room(&self) -> u32 {
        self.room
    }

    /// Slots that are free, whether or not the staging area has room.
    pub const fn free(&self) -> u32 {
        self.depth - self.head.wrapping_sub(self.retired)
    }

    /// Requests staged and not rung.
    #[inline(always)]
    pub const fn staged(&self) -> u32 {
        self.head.wrapping_sub(self.rung)
    }

    /// Requests rung and not retired.
    pub const fn outstanding(&self) -> u32 {
        self.rung.wrapping_sub(self.retired)
    }

    /// Lets requests be staged: the state of the queue pair takes them.
    pub fn open(&mut self) {
        self.room = self.free().min(self.max_staged - self.staged());
    }

    /// Lets none be staged: the state refuses them.
    pub fn close(&mut self) {
        self.room = 0;
    }

    /// Takes the next position for a request; the id for the provider.
    ///
    /// The caller has seen that there is room.
    #[inline(always)]
    pub fn stage(&mut self, request: Request) -> u64 {
        debug_assert!(self.room > 0);
        let position = self.head;
        let mask = self.requests.len() - 1;
        self.requests[position as usize & mask] = request;
        self.head = position.wrapping_add(1);
        self.room -= 1;
        self.prefix | u64::from(position)
    }

    /// What was staged is with the provider, all but the last `discarded`, whose slots are free.
    #[inline(always)]
    pub fn rung(&mut self, discarded: u32) {
        debug_assert!(discarded <= self.staged());
        self.head = self.head.wrapping_sub(discarded);
        self.rung = self.head;
    }

    /// The request of a completion, and the slots that came back with it. `None`: it belongs to
    /// an earlier life, or the position was retired before.
    #[inline(always)]
    pub fn retire(&mut self, id: SendId) -> Option<(Request, u32)> {
        let known = self.prefix == prefix(id.qp, id.life);
        let slots = id.position.wrapping_sub(self.retired).wrapping_add(1);
        if !known || slots == 0 || slots > self.outstanding() {
            return None;
        }
        self.retired = id.position.wrapping_add(1);
        let mask = self.requests.len() - 1;
        Some((self.requests[id.position as usize & mask], slots))
    }

    /// Number of its life.
    pub const fn life(&self) -> u32 {
        self.life
    }

    /// A new life: the queue is empty and closed; completions of the old one are strangers.
    pub fn reset(&mut self) {
        self.life = self.life.wrapping_add(1);
        self.prefix = prefix(self.qp, self.life);
        (self.head, self.rung, self.retired, self.room) = (0, 0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(position: u32) -> SendId {
        SendId { qp: 5, life: 0, position }
    }

    fn user(wr_id: u64) -> Request {
        Request { wr_id, len: wr_id as u32 * 2, op: WrOpcode::RdmaRead }
    }

    fn open(depth: u32, max_staged: u32) -> Positions {
        let mut p = Positions::new(5, 0, depth, max_staged);
        assert_eq!(p.room(), 0, "closed until the state takes sends");
        p.open();
        p
    }

    #[test]
    fn ids_keep_their_parts_and_never_look_like_a_receive() {
        let id = SendId { qp: (1 << 18) - 1, life: (1 << 13) - 1, position: u32::MAX };
        assert_eq!(SendId::decode(id.encode()), id);
        assert_eq!(id.encode() & RECV, 0);
        assert_eq!(SendId::decode(at(7).encode()), at(7));
    }

    #[test]
    fn one_completion_retires_everything_before_it() {
        let mut p = open(4, 4);
        for id in 10..14 {
            assert_eq!(SendId::decode(p.stage(user(id))).position, id as u32 - 10);
        }
        assert_eq!((p.room(), p.free()), (0, 0));
        assert_eq!(p.retire(at(0)), None, "not rung, so it cannot have completed");
        p.rung(0);
        assert_eq!(p.retire(at(2)), Some((user(12), 3)));
        assert_eq!(p.retire(at(2)), None, "only once");
        assert_eq!(p.retire(at(1)), None, "and not backwards");
        assert_eq!((p.free(), p.outstanding()), (3, 1));
        p.open();
        assert_eq!(p.room(), 3);
    }

    #[test]
    fn what_was_discarded_gives_its_slots_back() {
        let mut p = open(8, 4);
        for id in 0..4 {
            p.stage(user(id));
        }
        assert_eq!(p.room(), 0, "the staging area is full, the queue is not");
        p.rung(3);
        p.open();
        assert_eq!((p.outstanding(), p.free(), p.room()), (1, 7, 4));
        assert_eq!(SendId::decode(p.stage(user(9))).position, 1, "positions have no gap");
    }

    #[test]
    fn a_new_life_knows_nothing_of_the_old_one() {
        let mut p = open(4, 4);
        let old = SendId::decode(p.stage(user(1)));
        p.rung(0);
        p.reset();
        assert_eq!((p.free(), p.room()), (4, 0));
        p.open();
        let new = SendId::decode(p.stage(user(2)));
        p.rung(0);
        assert_eq!((p.retire(old), p.retire(new)), (None, Some((user(2), 1))));
    }

    /// Few cases where an interpreter runs the test.
    fn cases() -> ProptestConfig {
        let all = ProptestConfig::default();
        ProptestConfig { cases: if cfg!(miri) { 3 } else { all.cases }, ..all }
    }

    proptest! {
        #![proptest_config(cases())]

        /// Against a plain list, across the wrap of positions.
        #[test]
        fn agrees_with_a_list(
            start in prop_oneof![Just(0), Just(u32::MAX - 3)],
            ops in prop::collection::vec((0..4u8, 0..9u32), 1..200),
        ) {
            let mut p = open(6, 3);
            (p.head, p.rung, p.retired) = (start, start, start);
            let (mut staged, mut rung, mut next) = (vec![], vec![], 0_u64);
            for (op, n) in ops {
                match op {
                    0 if p.room() > 0 => {
                        let position = SendId::decode(p.stage(user(next))).position;
                        staged.push((position, next));
                        next += 1;
                    }
                    1 => {
                        let keep = staged.len().saturating_sub(n as usize);
                        p.rung((staged.len() - keep) as u32);
                        staged.truncate(keep);
                        rung.append(&mut staged);
                        p.open();
                    }
                    2 if (n as usize) < rung.len() => {
                        let (position, id) = rung[n as usize];
                        prop_assert_eq!(p.retire(at(position)), Some((user(id), n + 1)));
                        rung.drain(..=n as usize);
                        p.open();
                    }
                    _ => {}
                }
                prop_assert_eq!(p.outstanding() as usize, rung.len());
                prop_assert_eq!(p.free() as usize, 6 - rung.len() - staged.len());
                let free = 6 - rung.len() - staged.len();
                prop_assert_eq!(p.room() as usize, free.min(3 - staged.len()));
            }
        }
    }
}
