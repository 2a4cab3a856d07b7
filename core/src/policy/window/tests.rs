//! The window against lists of what is outstanding.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::noop::NoOp;

fn window(depth: u32, blocks: Option<u32>, max_wrs: u32, signal_every: u32) -> SendWindow {
    let caps = QpCaps { sq_blocks: blocks, max_inline: 60, ..NoOp::caps(depth) };
    SendWindow::new(WindowConfig { max_wrs, signal_every }, &caps, 1 << 20)
}

#[test]
fn the_smallest_limit_counts() {
    let of = |depth, max_wrs, entries| {
        let config = WindowConfig { max_wrs, signal_every: 1 };
        SendWindow::new(config, &NoOp::caps(depth), entries).max_wrs()
    };
    assert_eq!(
        [of(8, 0, 99), of(8, 5, 99), of(8, 9, 99), of(8, 5, 4), of(8, 0, 0)],
        [8, 5, 8, 4, 1]
    );
}

#[test]
fn signals_come_every_n_and_twice_per_window_at_least() {
    let pattern = |mut w: SendWindow, n: u32| {
        let one = |_| {
            let signal = w.must_signal(0);
            w.pushed(0, signal);
            signal
        };
        (0..n).map(one).collect::<std::vec::Vec<_>>()
    };
    assert_eq!(pattern(window(8, None, 0, 3), 6), [false, false, true, false, false, true]);
    assert_eq!(pattern(window(4, None, 0, 99), 4), [false, true, false, true]);
    assert_eq!(pattern(window(1, None, 0, 99), 1), [true]);
}

#[test]
fn blocks_fill_a_queue_before_its_slots_do() {
    // Three blocks are the largest WQE: 80 + 64 bytes. Eight blocks, of which four may go
    // unsignalled: that is what half of the queue is, and five are left for the largest.
    let mut w = window(64, Some(8), 0, 32);
    assert_eq!([w.must_signal(4), w.must_signal(5)], [false, true]);
    w.pushed(2, false);
    assert_eq!([w.must_signal(2), w.must_signal(3)], [false, true]);
    w.pushed(3, true);
    assert_eq!([w.fits(3), w.fits(4)], [true, false]);
    assert_eq!((w.used_blocks(), w.told_of()), (5, 2));
    w.pushed(3, false);
    assert_eq!((w.fits(1), w.told_of(), w.retired(2)), (false, 2, 2));
    assert_eq!((w.used(), w.used_blocks(), w.signals()), (1, 3, 0));
}

#[derive(Clone, Debug)]
enum Op {
    Push { blocks: u32, wants: bool },
    Undo(u32),
    Poll,
    Flush(u32),
}

fn ops() -> impl Strategy<Value = std::vec::Vec<Op>> {
    let op = prop_oneof![
        8 => (1..4u32, prop::bool::weighted(0.1))
            .prop_map(|(blocks, wants)| Op::Push { blocks, wants }),
        1 => (0..5u32).prop_map(Op::Undo),
        4 => Just(Op::Poll),
        1 => (0..4u32).prop_map(Op::Flush),
    ];
    prop::collection::vec(op, 0..120)
}

proptest! {
    #[test]
    fn nothing_overruns_and_nobody_waits_in_vain(
        (depth, blocks) in (1..20u32, prop::option::of(3..40u32)),
        (max_wrs, every) in (0..24u32, 0..24u32),
        ops in ops(),
    ) {
        let mut w = window(depth, blocks, max_wrs, every);
        let mut list: VecDeque<(u32, bool)> = VecDeque::new();
        for op in ops {
            match op {
                Op::Push { blocks, wants } => {
                    let blocks = if w.max_blocks.is_some() { blocks } else { 0 };
                    if w.fits(blocks) {
                        let signal = wants || w.must_signal(blocks);
                        w.pushed(blocks, signal);
                        list.push_back((blocks, signal));
                    } else {
                        prop_assert!(list.iter().any(|l| l.1), "full, and no completion to come");
                    }
                }
                Op::Undo(n) => {
                    let left = list.len().saturating_sub(n as usize);
                    prop_assert_eq!(w.undo(n) as usize, list.len() - left);
                    list.truncate(left);
                }
                // The oldest signalled one completes, and tells of those before it.
                Op::Poll => if let Some(at) = list.iter().position(|l| l.1) {
                    w.retired(at as u32 + 1);
                    list.drain(..=at);
                },
                Op::Flush(n) => {
                    let n = (n as usize).min(list.len());
                    w.retired(n as u32);
                    list.drain(..n);
                }
            }
            let used: u32 = list.iter().map(|l| l.0).sum();
            prop_assert!(w.used() <= depth && blocks.is_none_or(|b| used <= b));
            let signals = list.iter().filter(|l| l.1).count();
            let since = list.iter().rev().take_while(|l| !l.1).count();
            prop_assert_eq!((w.used() as usize, w.used_blocks()), (list.len(), used));
            prop_assert_eq!((w.signals() as usize, w.since() as usize), (signals, since));
        }
    }
}
