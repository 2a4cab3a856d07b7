//! A bootstrap among threads of one process, for tests: one table behind a lock.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use doorbell_core::transport::LookupError;

use super::board::{Board, Standing};
use super::{Bootstrap, MAX_RANKS};

/// One rank of [`group`].
#[derive(Debug)]
pub struct Local {
    rank: u32,
    board: Arc<Mutex<Board>>,
    /// Position of the board up to which [`Bootstrap::poll`] has reported.
    seen: u64,
}

/// The bootstraps of a run of `size` programs, by rank. What one publishes the others see at once.
///
/// ```
/// use doorbell_hw::bootstrap::{Bootstrap, local};
///
/// let mut ranks = local::group(2);
/// ranks[1].publish(7, b"hello");
/// let mut out = [0; 8];
/// assert_eq!(ranks[0].lookup(1, 7, &mut out), Ok(Some(5)));
/// assert_eq!(&out[..5], b"hello");
/// ```
///
/// # Panics
/// When `size` is above [`MAX_RANKS`].
pub fn group(size: u32) -> Vec<Local> {
    assert!(size <= MAX_RANKS, "{size} ranks: at most {MAX_RANKS} in a run");
    let mut board = Board::new(size);
    for rank in 0..size {
        board.advance(rank, Standing::Here);
    }
    let seen = board.end();
    let board = Arc::new(Mutex::new(board));
    (0..size).map(|rank| Local { rank, board: Arc::clone(&board), seen }).collect()
}

impl Local {
    fn board(&self) -> MutexGuard<'_, Board> {
        // A publish that panics does so before it has changed anything, so the board is sound.
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Bootstrap for Local {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.board().size()
    }

    fn publish(&mut self, key: u64, bytes: &[u8]) {
        let mut board = self.board();
        if board.standing(self.rank) == Some(Standing::Here) {
            board.publish(self.rank, key, bytes);
        }
    }

    fn lookup(
        &mut self,
        peer: u32,
        key: u64,
        out: &mut [u8],
    ) -> Result<Option<usize>, LookupError> {
        self.board().lookup(peer, key, out)
    }

    fn poll(&mut self) -> bool {
        let mut position = self.seen;
        let mut news = false;
        {
            let board = self.board();
            while let Some((next, what)) = board.at(position) {
                news |= what.rank() != self.rank;
                position = next;
            }
        }
        self.seen = position;
        news
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn lost_peer(&self) -> Option<u32> {
        self.board().first_lost()
    }

    fn finish(&mut self, _deadline: Instant) {
        self.board().advance(self.rank, Standing::Done);
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        self.board().advance(self.rank, Standing::Lost);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_ranks_see_what_each_has_published() {
        let mut ranks = group(5);
        for local in &mut ranks {
            let rank = local.rank();
            local.publish(9, &rank.to_be_bytes());
        }
        for local in &mut ranks {
            assert_eq!(local.size(), 5);
            for peer in 0..5 {
                let mut out = [0; 4];
                assert_eq!(local.lookup(peer, 9, &mut out), Ok(Some(4)));
                assert_eq!(u32::from_be_bytes(out), peer);
            }
        }
    }

    #[test]
    fn poll_reports_peers_once_and_never_oneself() {
        let mut ranks = group(2);
        assert!(!ranks[0].poll());
        ranks[0].publish(1, &[]);
        assert!(!ranks[0].poll());
        assert!(ranks[1].poll());
        assert!(!ranks[1].poll());
        ranks[0].publish(1, b"again");
        assert!(ranks[1].poll());
        assert!(ranks[0].fd().is_none());
    }

    #[test]
    fn finished_is_not_lost_and_dropped_is() {
        let mut ranks = group(3);
        let now = Instant::now();
        ranks[1].publish(1, b"x");
        ranks[1].finish(now);
        ranks[1].publish(2, b"too late");
        drop(ranks.remove(1));
        assert_eq!(ranks[0].lost_peer(), None);
        assert_eq!(ranks[0].lookup(1, 1, &mut []), Ok(Some(1)));
        assert_eq!(ranks[0].lookup(1, 2, &mut []), Err(LookupError::PeerGone { rank: 1 }));
        assert!(ranks[0].poll());
        drop(ranks.remove(1));
        assert!(ranks[0].poll());
        assert_eq!(ranks[0].lost_peer(), Some(2));
        assert_eq!(ranks[0].lookup(2, 1, &mut []), Err(LookupError::PeerGone { rank: 2 }));
    }

    #[test]
    fn a_panic_of_a_publisher_leaves_the_others_their_table() {
        let mut ranks = group(2);
        ranks[1].publish(1, b"x");
        let mut other = ranks.remove(1);
        let joined = std::thread::spawn(move || other.publish(2, &vec![0; 1 << 20])).join();
        assert!(joined.is_err());
        assert_eq!(ranks[0].lookup(1, 1, &mut [0]), Ok(Some(1)));
        assert_eq!(ranks[0].lost_peer(), Some(1));
    }
}
