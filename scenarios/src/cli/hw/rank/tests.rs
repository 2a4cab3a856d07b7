//! Which status stands for which failure. The runs themselves are tested with the commands.

use doorbell_core::transport::{CreateError, MemError, PostRecvError, RingError, WorkQueue};

use super::*;
use crate::cli::ExitStatus;

fn completion(status: WcStatus) -> Failure {
    Failure::Completion { wr_id: 7, queue: WorkQueue::Send, status }
}

#[track_caller]
fn is(trouble: &Trouble, status: ExitStatus, words: &[&str]) {
    let text = trouble.text();
    assert_eq!(trouble.status(), status, "{text}");
    words.iter().for_each(|w| assert!(text.contains(w), "{w:?} is not in {text}"));
}

#[test]
fn set_up_is_input_silence_is_no_progress_and_an_error_is_a_violation() {
    let of = |f: &Failure| failure(f, "while testing", None, false);
    is(&of(&Failure::Create(CreateError::BadHandle)), ExitStatus::BadInput, &[]);
    is(&of(&Failure::Memory(MemError::Memlock { limit: 9 })), ExitStatus::BadInput, &["9 bytes"]);
    is(&of(&Failure::BadCard { peer: 3 }), ExitStatus::BadInput, &["rank 3"]);
    let silent = Failure::NoPeer { peer: 3, what: "its endpoint" };
    is(&of(&silent), ExitStatus::NoProgress, &["while testing", "rank 3"]);
    let gone = Failure::Lookup(LookupError::PeerGone { rank: 3 });
    is(&of(&gone), ExitStatus::NoProgress, &["while testing", "see what that rank printed"]);
    let failed = completion(WcStatus::RemAccessErr);
    is(&of(&failed), ExitStatus::Violated, &["while testing", "work request 7"]);
    is(&of(&completion(WcStatus::RetryExcErr)), ExitStatus::Violated, &["work request 7"]);
}

#[test]
fn a_peer_that_was_lost_is_why_a_request_failed() {
    let lost = failure(&completion(WcStatus::RetryExcErr), "while testing", Some(1), false);
    is(&lost, ExitStatus::NoProgress, &["rank 1 was lost, and then work request 7"]);
    // The tool has no connection that could be lost; only silence tells.
    for status in [WcStatus::RetryExcErr, WcStatus::RnrRetryExcErr] {
        let ended = failure(&completion(status), "while testing", None, true);
        is(&ended, ExitStatus::NoProgress, &["ibv_rc_pingpong has ended"]);
    }
    let other = failure(&completion(WcStatus::RemInvReqErr), "while testing", None, true);
    is(&other, ExitStatus::Violated, &["same size and path MTU"]);
}

#[test]
fn results_of_a_later_clock_are_moved() {
    let at = |ns| Time::ZERO + Span::from_ns(ns);
    let window = crate::workloads::Window { from: at(1), to: at(4), messages: 1, bytes: 1 };
    let mut results = Results {
        ready: vec![at(2)],
        first: Some(at(1)),
        last: Some(at(4)),
        window: Some(window),
        latencies: vec![Span::from_ns(3)],
        ..Results::default()
    };
    results.shift(Span::from_ns(10));
    assert_eq!((results.first, results.last), (Some(at(11)), Some(at(14))));
    assert_eq!(results.ready, [at(12)]);
    assert_eq!(results.window.map(|w| (w.from, w.to)), Some((at(11), at(14))));
    assert_eq!(results.latencies, [Span::from_ns(3)], "no point in time");
}

#[test]
fn an_errno_has_its_name_and_a_size_its_unit() {
    let of = |f: &Failure| failure(f, "while testing", None, false);
    let refused = Failure::Create(CreateError::Os(22));
    is(&of(&refused), ExitStatus::BadInput, &["EINVAL, Invalid argument"]);
    let large = MemError::TooLarge { asked: 9, available: 5 };
    is(&of(&Failure::Memory(large)), ExitStatus::BadInput, &["9 B asked for, and 5 B"]);
    let ring = RingError { posted: 0, discarded: 1, cause: RingCause::Os(5) };
    is(&of(&Failure::Ring(ring)), ExitStatus::Violated, &["EIO, Input/output error"]);
    let recv = PostRecvError { posted: 0, cause: PostRecvCause::Os(12) };
    is(&of(&Failure::PostRecv(recv)), ExitStatus::Violated, &["ENOMEM, Cannot allocate"]);
}
