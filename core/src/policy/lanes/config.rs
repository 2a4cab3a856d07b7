//! What a set of lanes is made of, and the queue pairs that it needs.

use crate::policy::{InlineConfig, PaceConfig, SenderConfig};
use crate::verbs::{FlowLabel, ServiceLevel};

use super::error::LanesError;

/// Most queue pairs of one set of lanes: what a handle can name.
pub const MAX_LANE_QPS: u64 = 1 << 18;

/// Which queue pair of a stripe takes the next message.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Spread {
    /// All messages of a flow go by the queue pair that its number names, in their order: flow n by
    /// the (n mod `qps`)th. A flow has the speed of one queue pair, and of one path.
    #[default]
    Ordered,
    /// One after the other, past those that are full. No order across the stripe. Right where all
    /// paths are alike.
    RoundRobin,
    /// The one with the fewest bytes outstanding, in turn among equals. No order across the stripe.
    /// A path that is slow is given less, so it does not hold up the rest; costs a look at each
    /// queue pair of the stripe.
    LeastBytes,
}

/// Flow labels of the queue pairs of a set of lanes, for their address vectors.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum FlowLabels {
    /// Zero: the device chooses, as a rule by the queue pair numbers, so that two may fall on one
    /// UDP source port by chance.
    #[default]
    Device,
    /// The same for all: one path for all of a pair of hosts.
    Same(FlowLabel),
    /// The `n`th has `first` + n, so that up to [`FlowLabel::MAX_DISTINCT`] of a pair of hosts have
    /// different source ports. Different ports make different paths likely, not certain: a switch
    /// hashes them. Another `first` draws anew.
    From {
        /// Of the first queue pair, from 1.
        first: u32,
    },
}

impl FlowLabels {
    /// The label of the `n`th queue pair between two hosts. Counts on from 1 behind
    /// [`FlowLabel::MAX_DISTINCT`].
    pub const fn of(self, n: u32) -> FlowLabel {
        match self {
            Self::Device => FlowLabel::ZERO,
            Self::Same(label) => label,
            Self::From { first } => {
                let most = FlowLabel::MAX_DISTINCT as u64;
                let at = (first as u64 + most - 1 + n as u64) % most;
                // The remainder is below 2^14.
                FlowLabel::new(at as u32 + 1).expect("below 2^14")
            }
        }
    }
}

/// One lane: messages of a class, to every peer.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct LaneConfig {
    /// Queue pairs per peer, and per core where each core has the lane: the stripe. More: more
    /// paths through the network and more of the NIC's units at work; more contexts for its cache,
    /// and no order across them.
    pub qps: u32,
    /// The core that has the lane; `None`: each core has a stripe of its own. Fewer cores: fewer
    /// queue pairs, and the messages of the others have to be handed over to it.
    pub core: Option<u32>,
    /// Which queue pair of the stripe takes the next message.
    pub spread: Spread,
    /// Batch, depth (`window.max_wrs`) and signalling of each queue pair.
    pub sender: SenderConfig,
    /// What goes inline.
    pub inline: InlineConfig,
    /// Service level of its queue pairs: with a traffic class of its own a lane does not wait
    /// behind the others in the switches.
    pub sl: ServiceLevel,
    /// Most that the lane sends on this core, to all peers together.
    pub pace: Option<PaceConfig>,
    /// Most that the lane sends on this core to each peer.
    pub peer_pace: Option<PaceConfig>,
}

impl Default for LaneConfig {
    /// One queue pair per peer and core, ordered, without a pace, at service level 0.
    fn default() -> Self {
        Self {
            qps: 1,
            core: None,
            spread: Spread::default(),
            sender: SenderConfig::default(),
            inline: InlineConfig::default(),
            sl: ServiceLevel::default(),
            pace: None,
            peer_pace: None,
        }
    }
}

/// A set of lanes. What a lane carries is the caller's affair: it names lanes by their index here,
/// control 0 and bulk 1, say.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct LanesConfig<'a> {
    /// The lanes, at least one.
    pub lanes: &'a [LaneConfig],
    /// Peers, at least one.
    pub peers: u32,
    /// Cores of this host that send, at least one.
    pub cores: u32,
    /// Flow labels of the queue pairs between two hosts, those of all lanes and cores.
    pub labels: FlowLabels,
}

/// A queue pair that a set of lanes needs.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct LaneQp {
    /// Its lane,
    pub lane: u32,
    /// its peer, and
    pub peer: u32,
    /// its place in the stripe.
    pub member: u32,
    /// Service level of its address vector.
    pub sl: ServiceLevel,
    /// Flow label of its address vector.
    pub flow_label: FlowLabel,
    /// Work requests that it should hold; 0: as many as the caller likes.
    pub max_send_wr: u32,
    /// Inline bytes that it should take.
    pub max_inline: u32,
}

impl LanesConfig<'_> {
    /// Whether a core of that number can have them.
    ///
    /// # Errors
    /// See [`LanesError`].
    pub fn check(&self, core: u32) -> Result<(), LanesError> {
        if self.lanes.is_empty() || self.peers == 0 || self.cores == 0 {
            return Err(LanesError::Empty);
        }
        if core >= self.cores {
            return Err(LanesError::NoSuchCore { got: core, cores: self.cores });
        }
        for (lane, l) in (0..).zip(self.lanes) {
            if l.qps == 0 {
                return Err(LanesError::NoQp { lane });
            }
            if let Some(got) = l.core.filter(|c| *c >= self.cores) {
                return Err(LanesError::NoSuchCore { got, cores: self.cores });
            }
            for pace in [l.pace, l.peer_pace].iter().flatten() {
                pace.check().map_err(|error| LanesError::Pace { lane, error })?;
            }
        }
        let got = self.per_peer(core).saturating_mul(self.peers.into());
        if got > MAX_LANE_QPS {
            return Err(LanesError::TooManyQps { got });
        }
        Ok(())
    }

    /// The queue pairs that this core needs, in the order in which
    /// [`Lanes::new`](super::Lanes::new) wants them: by lane, then by peer, then by place in the
    /// stripe.
    pub fn qps(&self, core: u32) -> impl Iterator<Item = LaneQp> {
        // Labels count through the cores, so that no two of a pair of hosts have the same.
        let before: u64 = (0..core).map(|c| self.per_peer(c)).sum();
        let of_lane = move |(lane, l): (u32, LaneConfig), first: u64| {
            let one = move |peer: u32, member: u32| LaneQp {
                lane,
                peer,
                member,
                sl: l.sl,
                flow_label: self.labels.of((first + u64::from(member)) as u32),
                max_send_wr: l.sender.window.max_wrs,
                max_inline: l.inline.lone_bytes.max(l.inline.batched_bytes),
            };
            (0..self.peers).flat_map(move |peer| (0..l.qps).map(move |member| one(peer, member)))
        };
        let here = move |l: &LaneConfig| l.core.is_none_or(|c| c == core);
        (0..)
            .zip(self.lanes.iter().copied())
            .filter(move |(_, l)| here(l))
            .scan(before, move |first, (lane, l)| {
                let qps = of_lane((lane, l), *first);
                *first += u64::from(l.qps);
                Some(qps)
            })
            .flatten()
    }

    /// Queue pairs of a core to one peer.
    fn per_peer(&self, core: u32) -> u64 {
        let here = |l: &&LaneConfig| l.core.is_none_or(|c| c == core);
        self.lanes.iter().filter(here).map(|l| u64::from(l.qps)).sum()
    }
}
