//! Programs, erased once per back end.

use std::any::Any;

use doorbell_core::transport::{Next, Program};
use doorbell_core::units::Time;

use super::transport::SimTransport;

/// A program that runs on the simulator. Every [`Program`] is one.
pub trait SimProgram: Any + Send {
    /// One step.
    fn step_on(&mut self, t: &mut SimTransport<'_>) -> Next;
    /// When it will act by itself, see [`Program::acts_at`].
    fn will_act_at(&self) -> Option<Time>;
    /// For reading results after the run.
    fn as_any(&self) -> &dyn Any;
}

impl<P: Program + Any + Send> SimProgram for P {
    fn step_on(&mut self, t: &mut SimTransport<'_>) -> Next {
        self.step(t)
    }

    fn will_act_at(&self) -> Option<Time> {
        self.acts_at()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Thrown by a transport call of a step that has made too many of them; caught where the step
/// began.
#[derive(Debug)]
pub(super) struct CallBudgetSpent;
