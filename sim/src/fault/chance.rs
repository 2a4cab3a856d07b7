//! Random faults: independent, or in bursts.

use doorbell_core::units::Ratio;

use crate::engine::SimRng;

/// Whether a packet that matches is hit.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub enum Chance {
    /// Always.
    #[default]
    Always,
    /// Each packet for itself, with this probability.
    Ratio(Ratio),
    /// In bursts.
    Burst(Burst),
}

/// A chain of two states, good and bad (Gilbert 1960, Elliott 1963). It moves once per packet that
/// matches, and then decides about the packet.
///
/// In the long run `enter / (enter + leave)` of the packets meet the bad state, and it lasts
/// `1 / leave` packets on average.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Burst {
    /// Probability per packet of moving from good to bad. Doubled: bursts come twice as often.
    pub enter: Ratio,
    /// Probability per packet of moving from bad to good. Doubled: bursts are half as long.
    pub leave: Ratio,
    /// Probability of a hit in the bad state.
    pub bad: Ratio,
    /// Probability of a hit in the good state.
    pub good: Ratio,
}

impl Chance {
    /// Every ratio in it.
    pub(super) fn ratios(&self) -> Vec<Ratio> {
        match self {
            Self::Always => Vec::new(),
            Self::Ratio(r) => vec![*r],
            Self::Burst(b) => vec![b.enter, b.leave, b.bad, b.good],
        }
    }
}

/// The draws of one fault at one link direction.
#[derive(Clone, Debug)]
pub(super) struct Dice {
    rng: SimRng,
    bad: bool,
}

impl Dice {
    /// The stream of the fault `id` at the link direction `link`, in the good state.
    pub fn new(seed: u64, link: &str, id: &str) -> Self {
        Self { rng: SimRng::stream(seed, link, &format!("fault/{id}")), bad: false }
    }

    /// A packet that matches comes by: whether it is hit.
    pub fn hits(&mut self, chance: &Chance) -> bool {
        match chance {
            Chance::Always => true,
            Chance::Ratio(p) => self.rng.chance(*p),
            Chance::Burst(b) => {
                let moves = self.rng.chance(if self.bad { b.leave } else { b.enter });
                self.bad ^= moves;
                self.rng.chance(if self.bad { b.bad } else { b.good })
            }
        }
    }
}
