//! Policies that choose: what goes inline, which value a tuner tries, which elements are sent.

use doorbell_core::policy::aggregate::sparse::{SparseConfig, SparseSum};
use doorbell_core::policy::aggregate::{AggregateError, Progress};
use doorbell_core::policy::alltoall::{AllToAllConfig, Route};
use doorbell_core::policy::tuner::{Knob, LEAST_MESSAGES, Ladder, Meter, Tuner, TunerConfig, Why};
use doorbell_core::policy::{Cue, InlineChoice, InlineConfig};
use doorbell_core::transport::*;
use doorbell_core::units::Span;

use super::backend::{HAS_PEER, Lab};
use super::pair::{self, Pair, send};

/// By the caps of a queue pair: what fits goes inline, and its buffer may change at once.
#[test]
fn what_goes_inline_is_read_before_the_call_returns() {
    let mut pair = Pair::rc();
    let to = pair.sides[1].remote(0);
    let chosen = pair.on(0, move |t, me| {
        let caps = t.qp_caps(me.qp).unwrap();
        let config = InlineConfig { lone_bytes: 40, batched_bytes: 16 };
        let choice = InlineChoice::new(config, &caps);
        let mut bytes = [7; 40];
        let list = [me.sge(0, 40)];
        let data = choice.data(&bytes, &list, Cue::Last);
        let inline = matches!(data, Data::Inline(_));
        t.stage(me.qp, &send(SendOp::Write(to), 1, data)).unwrap();
        bytes.fill(9);
        assert_eq!(t.ring(me.qp, Ring::Auto).unwrap().wqes, 1);
        let granted = InlineChoice::new(config, &QpCaps { max_inline: 39, ..caps });
        let of = |c: &InlineChoice, len: usize, cue| c.inlines(len, cue);
        assert_eq!([of(&choice, 16, Cue::More), of(&choice, 17, Cue::More)], [true, false]);
        assert_eq!([of(&granted, 39, Cue::Last), of(&granted, 40, Cue::Last)], [true, false]);
        (inline, bytes[0])
    });
    assert_eq!(chosen, (true, 9));
    assert_eq!(pair.sent(0).len(), 1);
    if HAS_PEER {
        assert_eq!(pair.read_local(1, 0, 40), [7; 40]);
    }
}

/// A window of messages by the clock and the counters of the back end, and a tuner's first step.
#[test]
fn a_tuner_makes_the_same_first_step_everywhere() {
    let mut pair = Pair::rc();
    let to = pair.sides[1].remote(0);
    let look = |pair: &mut Pair| pair.on(0, |t, _| (t.now(), t.port_counters()));
    let (began, counters) = look(&mut pair);
    let mut meter = Meter::new(Span::from_ps(1), began, counters.unwrap_or_default());
    for _ in 0..LEAST_MESSAGES / 8 {
        let (begun, _) = look(&mut pair);
        pair.on(0, move |t, me| {
            let list = [me.sge(0, 8)];
            for wr_id in 0..8 {
                t.stage(me.qp, &send(SendOp::Write(to), wr_id, Data::Sge(&list))).unwrap();
            }
            assert_eq!(t.ring(me.qp, Ring::Auto).unwrap().wqes, 8);
        });
        meter.rung();
        let sent = pair.sent(0);
        let (now, _) = look(&mut pair);
        sent.iter().for_each(|_| meter.completed(8, now.since(begun)));
    }
    let (_, counters) = look(&mut pair);
    let later = began + Span::from_ms(1);
    let seen = meter.close(later, counters.unwrap_or_default(), 16);
    assert_eq!((seen.messages, seen.rings, seen.mean_bytes()), (LEAST_MESSAGES, 4, 8));
    assert_eq!((seen.timeouts, seen.rnr_naks, seen.sequence_naks), (0, 0, 0));
    let knobs =
        [(Knob::MaxWrs, Ladder::doubling(1, 8, 1)), (Knob::Timeout, Ladder::doubling(1, 8, 4))];
    let config = TunerConfig { windows: 1, skip: 0, ..TunerConfig::default() };
    let step = Tuner::new(config, &knobs).unwrap().observe(&seen).expect("it has room");
    assert_eq!((step.knob, step.from, step.to, step.why), (Knob::MaxWrs, 1, 2, Why::Trial));
    // Nothing was lost, so no timer is a reason.
    let timer = Tuner::new(config, &knobs[1..]).unwrap().observe(&seen);
    assert_eq!(timer, None);
}

/// A member of a sum of sparse vectors of two: one element of four is sent, the largest.
struct Member {
    state: SparseSum,
    begun: bool,
}

impl Member {
    fn open<T: Control>(t: &mut T) -> Self {
        let ms = if HAS_PEER { 10_000 } else { 1 };
        let exchange = AllToAllConfig {
            hop_deadline: Span::from_ms(ms),
            connect_deadline: Span::from_ms(10_000),
            ..AllToAllConfig::default()
        };
        let config = SparseConfig { exchange, op: Reduce::SumI64, elements: 4, entries: 1 };
        let schedule = config.schedule(&[0, 1], Route::Direct, 64).unwrap();
        Self { state: SparseSum::open(t, config, &schedule).unwrap(), begun: false }
    }
}

impl pair::Member for Member {
    type Sum = Vec<u8>;

    fn step<T: Control>(&mut self, t: &mut T) -> Result<Option<Vec<u8>>, AggregateError> {
        if !self.begun {
            if self.state.connect(t)? != Progress::Complete {
                return Ok(None);
            }
            let own = i64::from(t.rank()) + 1;
            let vector = [own, 10 * own, -own, 0].map(i64::to_le_bytes).concat();
            self.state.begin(t, &vector)?;
            self.begun = true;
        }
        match self.state.step(t)? {
            Progress::Complete => Ok(Some(self.state.sum().to_vec())),
            Progress::Again | Progress::Wait { .. } => Ok(None),
        }
    }

    fn close<T: Control>(self, t: &mut T) {
        self.state.close(t).unwrap();
    }
}

#[test]
fn sparse_sums_have_the_same_bits_or_name_who_is_missing() {
    let mut lab = Lab::pair();
    let members = [0, 1].map(|rank| lab.call(rank, |t| Member::open(t)));
    let ends = pair::run_members(&mut lab, members);
    for (rank, end) in ends.into_iter().enumerate() {
        match HAS_PEER {
            // 10 and 20 were sent, the rest stays where it is.
            true => assert_eq!(end.unwrap(), [0, 30, 0, 0_i64].map(i64::to_le_bytes).concat()),
            false => assert_eq!(end.unwrap_err().culprit(), Some(1 - rank as u32)),
        }
    }
}
