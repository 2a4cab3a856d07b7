//! A handle that forges one message.

use crate::transport::forward::{forward, forward_control, forward_transport, target};
use crate::transport::*;
use crate::units::Time;
use crate::verbs::{AccessFlags, QpAttrMask, QpState};

/// What a forged message is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Forgery {
    /// It says that it is the chunk of so many lanes before.
    Earlier(u32),
    /// It says that it is a chunk of so many lanes after.
    Later(u32),
    /// It is so many bytes short.
    Short(u32),
    /// It has an immediate that nobody knows.
    Unknown,
}

/// A handle whose work request of a number, counted from 0, is forged.
pub struct Rig<'a, T> {
    pub t: &'a mut T,
    pub forger: &'a mut Option<(u32, Forgery)>,
}

impl<T: Transport> Rig<'_, T> {
    fn forge(&mut self, qp: QpId, wr: &SendWr<'_>, how: Forgery) -> Result<(), StageError> {
        let with = |imm| match wr.op {
            SendOp::WriteImm(to, _) => SendOp::WriteImm(to, imm),
            _ => SendOp::SendImm(imm),
        };
        let imm = match wr.op {
            SendOp::WriteImm(_, imm) | SendOp::SendImm(imm) => imm,
            _ => return self.t.stage(qp, wr),
        };
        let mut short = [Sge::default()];
        let (op, data) = match how {
            Forgery::Earlier(by) => (with(imm.wrapping_sub(by) & 0x3FFF_FFFF), wr.data),
            Forgery::Later(by) => (with(imm + by), wr.data),
            Forgery::Unknown => (with(u32::MAX), wr.data),
            Forgery::Short(by) => {
                if let Data::Sge(&[sge]) = wr.data {
                    short = [Sge { len: sge.len - by.min(sge.len), ..sge }];
                }
                (wr.op, Data::Sge(&short))
            }
        };
        self.t.stage(qp, &SendWr { op, data, ..*wr })
    }
}

impl<T: Transport> Transport for Rig<'_, T> {
    fn stage(&mut self, qp: QpId, wr: &SendWr<'_>) -> Result<(), StageError> {
        match *self.forger {
            Some((0, how)) => {
                *self.forger = None;
                self.forge(qp, wr, how)
            }
            Some((left, how)) => {
                *self.forger = Some((left - 1, how));
                self.t.stage(qp, wr)
            }
            None => self.t.stage(qp, wr),
        }
    }

    forward_transport!(t);
}

impl<T: Control> Control for Rig<'_, T> {
    forward_control!(t);
}
