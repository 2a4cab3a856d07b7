//! A member of an aggregation whose sums depend on the order of adding: what every back end must
//! give bit by bit.

use doorbell_core::policy::aggregate::{Aggregate, AggregateConfig, AggregateError, Plan};
use doorbell_core::transport::{Control, Next, Program, Reduce};

/// Rounds of a member.
pub const ROUNDS: u64 = 2;

/// One member. It has ended when it has the sums of all rounds, or an error.
#[derive(Debug)]
pub struct Adder {
    plan: Plan,
    config: AggregateConfig,
    state: Option<Aggregate>,
    running: bool,
    /// The bytes of each round's sum.
    pub sums: Vec<Vec<u8>>,
    /// Why it has fewer.
    pub error: Option<AggregateError>,
}

impl Adder {
    /// A member that has not started. It sums `f32`.
    pub fn new(plan: &Plan, config: AggregateConfig) -> Self {
        let config = AggregateConfig { op: Reduce::SumF32, ..config };
        let (sums, error) = (vec![], None);
        Self { plan: plan.clone(), config, state: None, running: false, sums, error }
    }

    fn go_on<T: Control>(&mut self, t: &mut T) -> Result<Next, AggregateError> {
        let round = self.sums.len() as u64;
        let state = match &mut self.state {
            Some(state) => state,
            None => self.state.insert(Aggregate::open(t, self.config, &self.plan)?),
        };
        if !self.running {
            if let Some(next) = state.connect(t)?.next() {
                return Ok(next);
            }
            let vector = vector(t.rank(), round, self.config.bytes / 4);
            t.copy_in(state.vector(), &vector)?;
            state.begin(t.now())?;
            self.running = true;
        }
        if let Some(next) = state.step(t)?.next() {
            return Ok(next);
        }
        let mut sum = vec![0; self.config.bytes as usize];
        t.copy_out(state.vector(), &mut sum)?;
        self.sums.push(sum);
        self.running = false;
        Ok(if round + 1 == ROUNDS { Next::Done } else { Next::Again })
    }
}

impl Program for Adder {
    fn step<T: Control>(&mut self, t: &mut T) -> Next {
        self.go_on(t).unwrap_or_else(|e| {
            self.error = Some(e);
            Next::Done
        })
    }
}

/// Numbers of either sign whose magnitudes differ by up to 2^16: most sums are rounded.
fn vector(rank: u32, round: u64, elements: u64) -> Vec<u8> {
    let element = |i: u64| {
        let word =
            (i + 1 + (u64::from(rank) << 40) + (round << 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let (mantissa, power, sign) =
            ((word >> 20) as u32 & 0x7F_FFFF, (word >> 44) % 16, word >> 63);
        f32::from_bits(((sign as u32) << 31) | ((120 + power as u32) << 23) | mantissa)
    };
    (0..elements).flat_map(|i| element(i).to_le_bytes()).collect()
}
