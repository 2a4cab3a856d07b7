//! Several programs of a host post on the same QPs.
//!
//! The owner creates and connects the QPs, polls their completions, and offers QPs and memory to
//! the sharers. A sharer sees no completion: it learns that slots came back from a *credit word*
//! in host memory, into which the owner writes the number of retired slots after every poll that
//! retired any. That store, and the sharer's load of the line, are part of what sharing costs.

use doorbell_core::transport::{
    Contents, Control, MemKind, Mr, Next, QpId, Range, WaitSet, WatchId,
};
use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::AccessFlags;

use super::common::{Failure, part};
use super::connect::{Lane, Local, Topic, key};

/// To whom the QPs belong.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Sharing {
    /// To this program alone.
    #[default]
    Own,
    /// To this program, which polls for the others.
    Owner {
        /// Ranks of the programs that attach, on the same host.
        sharers: Vec<u32>,
    },
    /// To another program.
    Attached {
        /// Its rank, on the same host.
        owner: u32,
    },
}

/// Index of the payload region among the shared regions.
const PAYLOAD: u32 = 0;
/// Index of the credit word. It is shared last and attached first.
const WORD: u32 = 1;
/// Lowest bit of a work request's id that holds the rank which posted it.
const RANK_SHIFT: u32 = 40;

/// Book-keeping of shared QPs.
#[derive(Clone, Debug)]
pub struct Credits {
    sharing: Sharing,
    word: Option<Range>,
    watch: Option<WatchId>,
    retired: u64,
    /// Signalled messages of others that have completed.
    others: u64,
    rank: u32,
    since: Option<Time>,
}

impl Credits {
    /// Nothing is shared yet.
    pub fn new(sharing: Sharing) -> Self {
        Self { sharing, word: None, watch: None, retired: 0, others: 0, rank: 0, since: None }
    }

    /// Whether the QPs belong to another program.
    pub fn is_attached(&self) -> bool {
        matches!(self.sharing, Sharing::Attached { .. })
    }

    /// Whether others post on the same QPs.
    pub fn is_shared(&self) -> bool {
        self.sharing != Sharing::Own
    }

    /// The id of the work request for message `n`.
    pub fn tag(&self, n: u64) -> u64 {
        if self.is_shared() { u64::from(self.rank) << RANK_SHIFT | n } else { n }
    }

    /// Notes a completion; whether the message was this program's own.
    pub fn seen(&mut self, wr_id: u64) -> bool {
        let own = !self.is_shared() || wr_id >> RANK_SHIFT == u64::from(self.rank);
        self.others += u64::from(!own);
        own
    }

    /// The owner's part: offers the connected QPs, the payload region and the credit word.
    ///
    /// # Errors
    /// What the back end refuses.
    pub fn offer<T: Control>(
        &mut self,
        t: &mut T,
        local: &Local,
        lanes: &[Lane],
    ) -> Result<(), Failure> {
        let Sharing::Owner { .. } = self.sharing else { return Ok(()) };
        self.rank = t.rank();
        let host = MemKind::Host { numa: 0 };
        let word = t.alloc_mr(local.pd, 64, host, AccessFlags::LOCAL_WRITE, Contents::Data)?;
        self.word = word.range(0, 8);
        for (i, lane) in (0..).zip(lanes) {
            t.share_qp(lane.qp, key(Topic::SharedQp, 0, i))?;
        }
        t.share_mr(local.mr.id, key(Topic::SharedMr, 0, PAYLOAD))?;
        t.share_mr(word.id, key(Topic::SharedMr, 0, WORD))?;
        Ok(())
    }

    /// The sharer's part: payload region and QPs.
    ///
    /// # Errors
    /// [`Failure::Attach`], which passes while it says that nothing is shared yet.
    pub fn attach<T: Control>(
        &mut self,
        t: &mut T,
        owner: u32,
        qps: u32,
    ) -> Result<(Mr, Vec<QpId>), Failure> {
        self.rank = t.rank();
        let word = t.attach_mr(owner, key(Topic::SharedMr, 0, WORD))?;
        let range = part(&word, 0, 8)?;
        self.word = Some(range);
        self.watch = Some(t.watch(range)?);
        let mr = t.attach_mr(owner, key(Topic::SharedMr, 0, PAYLOAD))?;
        let ids: Result<Vec<_>, _> =
            (0..qps).map(|i| t.attach_qp(owner, key(Topic::SharedQp, 0, i))).collect();
        Ok((mr, ids?))
    }

    /// Waits for the owner to share.
    ///
    /// # Errors
    /// [`Failure::NoPeer`] after `deadline`.
    pub fn wait<T: Control>(&mut self, t: &T, owner: u32, deadline: Span) -> Result<Next, Failure> {
        let until = *self.since.get_or_insert(t.now()) + deadline;
        if t.now() >= until {
            return Err(Failure::NoPeer { peer: owner, what: "its queue pairs" });
        }
        Ok(Next::Wait { on: WaitSet::BOOTSTRAP, until: Some(until) })
    }

    /// What a sharer waits on for slots.
    pub fn wait_set(&self) -> WaitSet {
        self.watch.map_or(WaitSet::EMPTY, WaitSet::watch)
    }

    /// A sharer looks at the credit word, so that the line is in its cache when it waits.
    ///
    /// # Errors
    /// See [`doorbell_core::transport::MemError`].
    pub fn look<T: Control>(&mut self, t: &mut T) -> Result<(), Failure> {
        if let (true, Some(word)) = (self.is_attached(), self.word) {
            self.retired = t.load_u64(word)?;
        }
        Ok(())
    }

    /// The owner tells how many slots came back.
    ///
    /// # Errors
    /// See [`doorbell_core::transport::MemError`].
    pub fn retire<T: Control>(&mut self, t: &mut T, slots: u64) -> Result<(), Failure> {
        if let (Sharing::Owner { .. }, Some(word)) = (&self.sharing, self.word) {
            self.retired += slots;
            t.store_u64(word, self.retired)?;
        }
        Ok(())
    }

    /// A sharer has posted its last message; `signals` of its messages were signalled.
    pub fn leave<T: Control>(&self, t: &mut T, signals: u64) {
        if let Sharing::Attached { owner } = self.sharing {
            t.publish(key(Topic::SharerDone, owner, 0), &signals.to_be_bytes());
        }
    }

    /// Whether every sharer has left and all of its signalled messages have completed.
    ///
    /// # Errors
    /// [`Failure::Lookup`]: a sharer has ended without a word.
    pub fn all_left<T: Control>(&self, t: &mut T) -> Result<bool, Failure> {
        let Sharing::Owner { sharers } = &self.sharing else { return Ok(true) };
        let mut expected = 0;
        for &s in sharers {
            let mut bytes = [0; 8];
            if t.lookup(s, key(Topic::SharerDone, self.rank, 0), &mut bytes)?.is_none() {
                return Ok(false);
            }
            expected += u64::from_be_bytes(bytes);
        }
        Ok(self.others >= expected)
    }
}
