//! What the ranks have published and what became of them, in the order in which it was learned.

use std::collections::BTreeMap;

use doorbell_core::transport::{LookupError, MAX_PUBLISHED_BYTES};

use super::MAX_RANK_BYTES;

/// What a value costs of [`MAX_RANK_BYTES`] beside its bytes: about what its entries here take.
const KEY_BYTES: usize = 64;

/// Where a rank is in its life. It moves downwards in this list only.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Standing {
    /// It has not joined.
    Absent,
    /// It has joined.
    Here,
    /// It has said that it is done.
    Done,
    /// It went away before it was done.
    Lost,
}

impl Standing {
    /// Whether nothing more will come from the rank.
    pub(super) fn is_final(self) -> bool {
        matches!(self, Self::Done | Self::Lost)
    }
}

/// One thing that a reader of the board has not seen yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum News {
    /// A rank has published.
    Value {
        /// Who.
        rank: u32,
        /// Under which key.
        key: u64,
        /// What.
        bytes: Box<[u8]>,
    },
    /// A rank has moved on.
    Standing {
        /// Who.
        rank: u32,
        /// Where it is now.
        now: Standing,
    },
}

impl News {
    /// Whom it is about.
    pub(super) fn rank(&self) -> u32 {
        match *self {
            Self::Value { rank, .. } | Self::Standing { rank, .. } => rank,
        }
    }
}

/// A value that is not taken: it is too long, or its rank has published too much.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Full;

/// The board. Readers keep a position and ask for what comes after it, so a slow reader costs
/// nothing: of a value that was replaced before it was read, only the last one is left.
#[derive(Debug)]
pub(super) struct Board {
    ranks: Vec<Rank>,
    news: BTreeMap<u64, News>,
    /// Position in `news` of the value of (rank, key).
    values: BTreeMap<(u32, u64), u64>,
    next: u64,
    first_lost: Option<u32>,
    /// No news will ever come again, from nobody but the owner of the board.
    cut: bool,
}

#[derive(Clone, Debug)]
struct Rank {
    standing: Standing,
    bytes: usize,
}

impl Board {
    /// An empty board for `size` ranks, all absent.
    pub(super) fn new(size: u32) -> Self {
        Self {
            ranks: vec![Rank { standing: Standing::Absent, bytes: 0 }; size as usize],
            news: BTreeMap::new(),
            values: BTreeMap::new(),
            next: 0,
            first_lost: None,
            cut: false,
        }
    }

    /// How many ranks there are.
    pub(super) fn size(&self) -> u32 {
        self.ranks.len() as u32
    }

    /// Where a rank is; `None` for a rank that does not exist.
    pub(super) fn standing(&self, rank: u32) -> Option<Standing> {
        self.ranks.get(rank as usize).map(|r| r.standing)
    }

    /// Moves a rank on, never back. Whether that is news.
    pub(super) fn advance(&mut self, rank: u32, now: Standing) -> bool {
        let Some(at) = self.ranks.get_mut(rank as usize) else { return false };
        if at.standing >= now || at.standing.is_final() {
            return false;
        }
        at.standing = now;
        if now == Standing::Lost && self.first_lost.is_none() {
            self.first_lost = Some(rank);
        }
        self.append(News::Standing { rank, now });
        true
    }

    /// Takes a value of an existing rank, in place of the one that the key had.
    pub(super) fn put(&mut self, rank: u32, key: u64, bytes: &[u8]) -> Result<(), Full> {
        let old = self.values.get(&(rank, key)).copied();
        let freed = old.map_or(0, |at| self.value(at).len() + KEY_BYTES);
        let of_rank = self.ranks.get_mut(rank as usize).ok_or(Full)?;
        let total = of_rank.bytes - freed + bytes.len() + KEY_BYTES;
        if bytes.len() > MAX_PUBLISHED_BYTES || total > MAX_RANK_BYTES {
            return Err(Full);
        }
        of_rank.bytes = total;
        if let Some(at) = old {
            self.news.remove(&at);
        }
        self.values.insert((rank, key), self.next);
        self.append(News::Value { rank, key, bytes: bytes.into() });
        Ok(())
    }

    /// [`Board::put`] on behalf of the program that owns the rank.
    ///
    /// # Panics
    /// As [`Bootstrap::publish`](super::Bootstrap::publish) says.
    pub(super) fn publish(&mut self, rank: u32, key: u64, bytes: &[u8]) {
        let got = bytes.len();
        assert!(
            self.put(rank, key, bytes).is_ok(),
            "a published value of {got} B: one may have {MAX_PUBLISHED_BYTES} B, and all of a rank \
             {MAX_RANK_BYTES} B; move more than that over the data path"
        );
    }

    /// Copies a value; the error says when it can never be there.
    pub(super) fn lookup(
        &self,
        peer: u32,
        key: u64,
        out: &mut [u8],
    ) -> Result<Option<usize>, LookupError> {
        let size = self.size();
        let standing = self.standing(peer).ok_or(LookupError::NoSuchRank { rank: peer, size })?;
        if let Some(&at) = self.values.get(&(peer, key)) {
            let value = self.value(at);
            let n = value.len().min(out.len());
            out[..n].copy_from_slice(&value[..n]);
            return Ok(Some(value.len()));
        }
        if standing.is_final() || self.cut {
            return Err(LookupError::PeerGone { rank: peer });
        }
        Ok(None)
    }

    /// Says that no news will come any more: what is not here now, never will be.
    pub(super) fn cut(&mut self) {
        self.cut = true;
    }

    /// Whether [`Board::cut`] was called.
    pub(super) fn is_cut(&self) -> bool {
        self.cut
    }

    /// The rank that was lost first.
    pub(super) fn first_lost(&self) -> Option<u32> {
        self.first_lost
    }

    /// The ranks that have not joined, in order.
    pub(super) fn absent(&self) -> Vec<u32> {
        let absent = |r: &Rank| r.standing == Standing::Absent;
        (0..).zip(&self.ranks).filter(|(_, r)| absent(r)).map(|(rank, _)| rank).collect()
    }

    /// Whether every rank is done or lost.
    pub(super) fn all_final(&self) -> bool {
        self.ranks.iter().all(|r| r.standing.is_final())
    }

    /// The oldest news at `position` or later, with the position behind it.
    pub(super) fn at(&self, position: u64) -> Option<(u64, &News)> {
        self.news.range(position..).next().map(|(&at, news)| (at + 1, news))
    }

    /// The position behind all news.
    pub(super) fn end(&self) -> u64 {
        self.next
    }

    fn append(&mut self, news: News) {
        self.news.insert(self.next, news);
        self.next += 1;
    }

    fn value(&self, at: u64) -> &[u8] {
        match &self.news[&at] {
            News::Value { bytes, .. } => bytes,
            News::Standing { .. } => unreachable!("`values` holds positions of values only"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(board: &Board, peer: u32, key: u64) -> Option<Vec<u8>> {
        let mut out = vec![0; MAX_PUBLISHED_BYTES];
        let n = board.lookup(peer, key, &mut out).expect("not gone")?;
        out.truncate(n);
        Some(out)
    }

    #[test]
    fn a_standing_moves_forward_only() {
        use Standing::{Absent, Done, Here, Lost};
        for (from, to, moves) in [
            (Absent, Absent, false),
            (Absent, Here, true),
            (Absent, Done, true),
            (Absent, Lost, true),
            (Here, Absent, false),
            (Here, Here, false),
            (Here, Done, true),
            (Here, Lost, true),
            (Done, Here, false),
            (Done, Lost, false),
            (Lost, Done, false),
            (Lost, Lost, false),
        ] {
            let mut board = Board::new(1);
            board.advance(0, from);
            assert_eq!(board.advance(0, to), moves, "{from:?} to {to:?}");
            assert_eq!(board.standing(0), Some(if moves { to } else { from }));
        }
        assert!(!Board::new(1).advance(1, Here), "a rank that does not exist");
    }

    #[test]
    fn the_first_lost_rank_is_remembered_and_a_done_one_is_not_lost() {
        let mut board = Board::new(3);
        board.advance(0, Standing::Done);
        board.advance(0, Standing::Lost);
        assert_eq!(board.first_lost(), None);
        board.advance(2, Standing::Lost);
        board.advance(1, Standing::Lost);
        assert_eq!(board.first_lost(), Some(2));
        assert!(board.all_final());
    }

    #[test]
    fn a_lookup_waits_only_for_what_can_still_come() {
        let mut board = Board::new(3);
        board.put(1, 7, &[1, 2, 3]).unwrap();
        board.advance(1, Standing::Done);
        assert_eq!(board.lookup(0, 7, &mut []), Ok(None));
        assert_eq!(board.lookup(1, 8, &mut []), Err(LookupError::PeerGone { rank: 1 }));
        assert_eq!(value(&board, 1, 7), Some(vec![1, 2, 3]));
        assert_eq!(board.lookup(3, 7, &mut []), Err(LookupError::NoSuchRank { rank: 3, size: 3 }));
        board.cut();
        assert_eq!(board.lookup(0, 7, &mut []), Err(LookupError::PeerGone { rank: 0 }));
        assert_eq!(value(&board, 1, 7), Some(vec![1, 2, 3]));
    }

    #[test]
    fn a_short_buffer_gets_the_beginning_and_the_length() {
        let mut board = Board::new(1);
        board.put(0, 0, &[1, 2, 3]).unwrap();
        let mut out = [0; 2];
        assert_eq!(board.lookup(0, 0, &mut out), Ok(Some(3)));
        assert_eq!(out, [1, 2]);
    }

    #[test]
    fn a_replaced_value_is_read_once_and_last() {
        let mut board = Board::new(2);
        board.put(0, 1, b"old").unwrap();
        board.put(0, 2, b"other").unwrap();
        board.put(0, 1, b"new").unwrap();
        let mut seen = Vec::new();
        let mut position = 0;
        while let Some((next, news)) = board.at(position) {
            position = next;
            if let News::Value { key, bytes, .. } = news {
                seen.push((*key, bytes.to_vec()));
            }
        }
        assert_eq!(seen, [(2, b"other".to_vec()), (1, b"new".to_vec())]);
        assert_eq!(position, board.end());
    }

    #[test]
    fn values_end_at_the_longest() {
        let mut board = Board::new(1);
        assert_eq!(board.put(0, 0, &vec![0; MAX_PUBLISHED_BYTES]), Ok(()));
        assert_eq!(board.put(0, 0, &vec![0; MAX_PUBLISHED_BYTES + 1]), Err(Full));
        assert_eq!(board.put(1, 0, &[]), Err(Full), "a rank that does not exist");
    }

    #[test]
    fn a_rank_may_publish_so_much_and_replacing_is_free() {
        let mut board = Board::new(2);
        let long = vec![0; MAX_PUBLISHED_BYTES];
        let fit = MAX_RANK_BYTES / (MAX_PUBLISHED_BYTES + KEY_BYTES);
        for key in 0..fit as u64 {
            assert_eq!(board.put(0, key, &long), Ok(()), "value {key} of {fit}");
        }
        assert_eq!(board.put(0, fit as u64, &long), Err(Full));
        assert_eq!(board.put(0, 0, &long), Ok(()), "in place of the same");
        let left = MAX_RANK_BYTES - fit * (MAX_PUBLISHED_BYTES + KEY_BYTES) - KEY_BYTES;
        assert_eq!(board.put(0, fit as u64, &long[..left + 1]), Err(Full));
        assert_eq!(board.put(0, fit as u64, &long[..left]), Ok(()));
        assert_eq!(board.put(1, 0, &long), Ok(()), "each rank has its own share");
    }

    #[test]
    #[should_panic(expected = "over the data path")]
    fn publishing_too_much_names_the_remedy() {
        Board::new(1).publish(0, 0, &vec![0; MAX_PUBLISHED_BYTES + 1]);
    }
}
