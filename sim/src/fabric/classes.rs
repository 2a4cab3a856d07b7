//! Traffic classes: what the queues of every port are.

use super::ecn::EcnConfig;
use super::schedule::Service;

/// Most classes of a network: the priorities of Ethernet.
pub const MAX_CLASSES: usize = 8;

/// A traffic class (a virtual lane).
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct ClassConfig {
    /// Its turn among the classes of a port.
    pub service: Service,
    /// How switches mark its packets, if they do.
    pub ecn: Option<EcnConfig>,
    /// Whether switches with a shared buffer pause its senders instead of dropping.
    pub lossless: bool,
}

/// The traffic classes of a network, the same at every port of every host and switch, and which
/// service level belongs to which.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Classes {
    /// The classes; class `n` is paused as priority `n`. From 1 to [`MAX_CLASSES`].
    pub each: Vec<ClassConfig>,
    /// The class of each service level.
    pub of_sl: [u8; 16],
}

impl Default for Classes {
    /// One class for everything, unmarked.
    fn default() -> Self {
        Self::one(ClassConfig::default())
    }
}

impl Classes {
    /// One class for everything.
    pub fn one(class: ClassConfig) -> Self {
        Self { each: vec![class], of_sl: [0; 16] }
    }

    /// Several classes: service level `n` in class `n`, and the levels above the last class in
    /// class 0.
    pub fn by_level(each: Vec<ClassConfig>) -> Self {
        let n = each.len();
        let of_sl = core::array::from_fn(|sl| if sl < n { sl as u8 } else { 0 });
        Self { each, of_sl }
    }
}
