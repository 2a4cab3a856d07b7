//! Attributes of a queue pair that a script sets otherwise than the exchange with the peer would:
//! how wrong connection data comes about.

use doorbell_core::transport::{Address, Control, LookupError, QpAttr};
use doorbell_core::verbs::{
    AckTimeout, Mtu, Psn, QKey, QpAttrMask, QpState, Qpn, RetryCnt, RnrRetry,
};

use super::connect::{Topic, key};

/// A PSN of a script.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum PsnChoice {
    /// This one.
    Is(Psn),
    /// So many after the right one, before it if negative.
    Off(i32),
}

/// What differs; `None`: as the exchange has it.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Overrides {
    /// INIT: `pkey_index`.
    pub pkey_index: Option<u16>,
    /// INIT (UD): `qkey`.
    pub qkey: Option<QKey>,
    /// RTR: `dest_qp_num`.
    pub dest_qpn: Option<Qpn>,
    /// RTR: `path_mtu`.
    pub path_mtu: Option<Mtu>,
    /// RTR: address of the peer.
    pub path: Option<Address>,
    /// RTR: `rq_psn`; RTS: `sq_psn`.
    pub psn: Option<PsnChoice>,
    /// RTS: `timeout`.
    pub timeout: Option<AckTimeout>,
    /// RTS: `retry_cnt`.
    pub retry_cnt: Option<RetryCnt>,
    /// RTS: `rnr_retry`.
    pub rnr_retry: Option<RnrRetry>,
    /// Attributes that the mask has besides those of the transition.
    pub with: QpAttrMask,
    /// Attributes of the transition that the mask has not.
    pub without: QpAttrMask,
}

/// Where the address begins in the encoded form.
const PATH: usize = 11 * 5;

impl Overrides {
    /// Bytes of the encoded form: eleven fields of a flag and four bytes, and an address with its
    /// flag.
    pub const ENCODED_BYTES: usize = PATH + 19;

    /// Changes the attributes of a transition.
    pub fn apply(&self, attr: &mut QpAttr) {
        let rtr = attr.state == QpState::Rtr;
        let psn = if rtr { &mut attr.rq_psn } else { &mut attr.sq_psn };
        match self.psn {
            Some(PsnChoice::Is(is)) => *psn = is,
            Some(PsnChoice::Off(by)) => *psn = Psn::new(psn.value().wrapping_add_signed(by)),
            None => {}
        }
        attr.pkey_index = self.pkey_index.unwrap_or(attr.pkey_index);
        attr.qkey = self.qkey.unwrap_or(attr.qkey);
        attr.dest_qpn = self.dest_qpn.unwrap_or(attr.dest_qpn);
        attr.path_mtu = self.path_mtu.unwrap_or(attr.path_mtu);
        attr.path = attr.path.towards(self.path.unwrap_or(attr.path));
        attr.timeout = self.timeout.unwrap_or(attr.timeout);
        attr.retry_cnt = self.retry_cnt.unwrap_or(attr.retry_cnt);
        attr.rnr_retry = self.rnr_retry.unwrap_or(attr.rnr_retry);
    }

    /// Encodes, big-endian.
    pub fn encode(&self) -> [u8; Self::ENCODED_BYTES] {
        let (psn, off) = match self.psn {
            Some(PsnChoice::Is(psn)) => (Some(psn.value()), None),
            Some(PsnChoice::Off(by)) => (None, Some(by.cast_unsigned())),
            None => (None, None),
        };
        let path = self.path.unwrap_or_default();
        let fields = [
            self.pkey_index.map(u32::from),
            self.qkey.map(|k| k.0),
            self.dest_qpn.map(Qpn::value),
            self.path_mtu.map(Mtu::bytes),
            psn,
            off,
            self.timeout.map(|t| t.code().into()),
            self.retry_cnt.map(|r| r.code().into()),
            self.rnr_retry.map(|r| r.code().into()),
            Some(self.with.bits()),
            Some(self.without.bits()),
        ];
        let mut out = [0; Self::ENCODED_BYTES];
        for (chunk, field) in out.chunks_exact_mut(5).zip(fields) {
            chunk[0] = field.is_some().into();
            chunk[1..].copy_from_slice(&field.unwrap_or(0).to_be_bytes());
        }
        out[PATH] = self.path.is_some().into();
        out[PATH + 1..PATH + 3].copy_from_slice(&path.lid.to_be_bytes());
        out[PATH + 3..].copy_from_slice(&path.gid);
        out
    }

    /// Decodes; `None` for anything else.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let b: &[u8; Self::ENCODED_BYTES] = bytes.try_into().ok()?;
        let field = |i: usize| {
            let four = b[i * 5 + 1..i * 5 + 5].try_into().expect("four bytes");
            (b[i * 5] == 1).then_some(u32::from_be_bytes(four))
        };
        let code = |i: usize| field(i).map(|n| n as u8);
        let path = Address {
            lid: u16::from_be_bytes([b[PATH + 1], b[PATH + 2]]),
            gid: b[PATH + 3..].try_into().expect("sixteen bytes"),
            ..Address::default()
        };
        let off = field(5).map(|by| PsnChoice::Off(by.cast_signed()));
        Some(Self {
            pkey_index: field(0).map(|n| n as u16),
            qkey: field(1).map(QKey),
            dest_qpn: field(2).map(Qpn::new),
            path_mtu: field(3).and_then(Mtu::from_bytes),
            path: (b[PATH] == 1).then_some(path),
            psn: field(4).map(|n| PsnChoice::Is(Psn::new(n))).or(off),
            timeout: code(6).and_then(AckTimeout::new),
            retry_cnt: code(7).and_then(RetryCnt::new),
            rnr_retry: code(8).and_then(RnrRetry::new),
            with: QpAttrMask::from_bits_truncate(field(9)?),
            without: QpAttrMask::from_bits_truncate(field(10)?),
        })
    }
}

/// The transition of a queue pair from `from` to `to`: on the way from RESET to RTS with the
/// attributes that connected it, `steps`, and what `set` changes of them. What the mask of another
/// one is made to name keeps its value.
pub fn transition(
    from: Option<QpState>,
    to: QpState,
    steps: &[(QpAttr, QpAttrMask); 3],
    set: &Overrides,
) -> (QpAttr, QpAttrMask) {
    let (mut attr, mask) = match (from, to) {
        (Some(QpState::Reset), QpState::Init) => steps[0],
        (Some(QpState::Init), QpState::Rtr) => steps[1],
        (Some(QpState::Rtr), QpState::Rts) => steps[2],
        _ => (QpAttr { state: to, ..steps[2].0 }, QpAttrMask::STATE),
    };
    attr.cur_state = from.unwrap_or(attr.cur_state);
    set.apply(&mut attr);
    (attr, (mask | set.with) - set.without)
}

/// A transition that a script asks its peer to make.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct StateOrder {
    /// QP within the link.
    pub qp: u32,
    /// State.
    pub to: QpState,
    /// Attributes that differ.
    pub set: Overrides,
}

impl StateOrder {
    const BYTES: usize = 5 + Overrides::ENCODED_BYTES;

    /// Publishes order number `n` for `peer`.
    pub fn publish<T: Control>(&self, t: &mut T, peer: u32, n: u32) {
        let mut out = [0; Self::BYTES];
        out[..4].copy_from_slice(&self.qp.to_be_bytes());
        out[4] = self.to as u8;
        out[5..].copy_from_slice(&self.set.encode());
        t.publish(key(Topic::ModifyQp, peer, n), &out);
    }

    /// Order number `n` of `peer`, if it has come.
    pub fn lookup<T: Control>(t: &mut T, peer: u32, n: u32) -> Option<Self> {
        let (mut b, me) = ([0; Self::BYTES], t.rank());
        t.lookup(peer, key(Topic::ModifyQp, me, n), &mut b).ok()??;
        let qp = u32::from_be_bytes(b[..4].try_into().expect("four bytes"));
        let to = QpState::try_from(u32::from(b[4])).ok()?;
        Some(Self { qp, to, set: Overrides::decode(&b[5..])? })
    }

    /// Tells who gave order number `n` whether the verbs took it.
    pub fn confirm<T: Control>(t: &mut T, peer: u32, n: u32, done: bool) {
        t.publish(key(Topic::QpModified, peer, n), &[done.into()]);
    }

    /// What came of order number `n`.
    ///
    /// # Errors
    /// The peer has ended.
    pub fn confirmed<T: Control>(
        t: &mut T,
        peer: u32,
        n: u32,
    ) -> Result<Option<bool>, LookupError> {
        let (mut b, me) = ([0; 1], t.rank());
        Ok(t.lookup(peer, key(Topic::QpModified, me, n), &mut b)?.map(|_| b[0] == 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Overrides {
        Overrides {
            pkey_index: Some(u16::MAX),
            qkey: Some(QKey(u32::MAX)),
            dest_qpn: Some(Qpn::new(0xFF_FFFF)),
            path_mtu: Some(Mtu::B256),
            path: Some(Address { lid: 7, gid: [9; 16], ..Address::default() }),
            psn: Some(PsnChoice::Off(-3)),
            timeout: AckTimeout::new(31),
            retry_cnt: RetryCnt::new(7),
            rnr_retry: RnrRetry::new(0),
            with: QpAttrMask::RATE_LIMIT,
            without: QpAttrMask::AV | QpAttrMask::RQ_PSN,
        }
    }

    #[test]
    fn they_survive_the_bootstrap() {
        let is = Overrides { psn: Some(PsnChoice::Is(Psn::MAX)), ..all() };
        let only_path = Overrides { path: all().path, ..Overrides::default() };
        for o in [all(), is, only_path, Overrides::default()] {
            assert_eq!(Overrides::decode(&o.encode()), Some(o));
        }
        assert_eq!(Overrides::decode(&all().encode()[1..]), None);
    }

    #[test]
    fn a_mask_is_of_the_transition_and_what_differs() {
        use QpAttrMask as M;
        let state = |state| QpAttr { state, timeout: TIMEOUT, ..QpAttr::default() };
        const TIMEOUT: AckTimeout = AckTimeout::new(9).unwrap();
        let steps = [
            (state(QpState::Init), M::STATE | M::PORT),
            (state(QpState::Rtr), M::STATE | M::AV | M::RQ_PSN),
            (state(QpState::Rts), M::STATE | M::SQ_PSN),
        ];
        let set = Overrides { with: M::TIMEOUT, without: M::AV, ..Overrides::default() };
        let (attr, mask) = transition(Some(QpState::Init), QpState::Rtr, &steps, &set);
        assert_eq!(mask, M::STATE | M::RQ_PSN | M::TIMEOUT);
        assert_eq!(attr.cur_state, QpState::Init);
        let (attr, mask) = transition(Some(QpState::Sqd), QpState::Sqd, &steps, &set);
        assert_eq!((mask, attr.timeout), (M::STATE | M::TIMEOUT, TIMEOUT));
        assert_eq!((attr.state, attr.cur_state), (QpState::Sqd, QpState::Sqd));
    }

    #[test]
    fn a_psn_is_of_the_half_that_the_transition_sets_up() {
        let base = |state| QpAttr { state, rq_psn: Psn::ZERO, ..QpAttr::default() };
        let off = Overrides { psn: Some(PsnChoice::Off(-1)), ..Overrides::default() };
        let (mut rtr, mut rts) = (base(QpState::Rtr), base(QpState::Rts));
        off.apply(&mut rtr);
        off.apply(&mut rts);
        assert_eq!((rtr.rq_psn, rtr.sq_psn), (Psn::MAX, Psn::ZERO));
        assert_eq!((rts.rq_psn, rts.sq_psn), (Psn::ZERO, Psn::MAX));
        let mut same = base(QpState::Rtr);
        Overrides::default().apply(&mut same);
        assert_eq!(same, base(QpState::Rtr));
    }
}
