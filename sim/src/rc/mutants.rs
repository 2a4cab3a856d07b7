//! Deliberate faults of the engine, which its tests have to find: they test the tests.
//!
//! `mutant!(Name)` stands where the engine would go wrong. Without the feature `mutants` it is
//! `false`, and nothing of this is compiled; with it, the environment variable `DOORBELL_MUTANT`
//! names the one fault of the process. `.ci/mutants` runs the tests of the engine once with each of
//! them; `mutants.txt` names for each a test that must fail.

#[cfg(not(feature = "mutants"))]
macro_rules! mutant {
    ($name:ident) => {
        false
    };
}

#[cfg(feature = "mutants")]
macro_rules! mutant {
    ($name:ident) => {
        crate::rc::mutants::at_work(crate::rc::mutants::Mutant::$name)
    };
}

#[cfg(feature = "mutants")]
macro_rules! mutants {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A fault.
        #[derive(Copy, Clone, PartialEq, Eq, Debug)]
        pub(super) enum Mutant {
            $($(#[$doc])* $name,)*
        }

        const ALL: &[(&str, Mutant)] = &[$((stringify!($name), Mutant::$name)),*];
    };
}

/// Whether this is the fault of the process.
///
/// # Panics
/// When `DOORBELL_MUTANT` names none: a test that fails for this reason would prove nothing.
#[cfg(feature = "mutants")]
pub(super) fn at_work(mutant: Mutant) -> bool {
    static CHOSEN: std::sync::OnceLock<Option<Mutant>> = std::sync::OnceLock::new();
    let chosen = CHOSEN.get_or_init(|| {
        let name = std::env::var("DOORBELL_MUTANT").ok()?;
        let found = ALL.iter().find(|(known, _)| *known == name);
        Some(found.unwrap_or_else(|| panic!("no mutant is called {name}")).1)
    });
    *chosen == Some(mutant)
}

#[cfg(feature = "mutants")]
mutants! {
    /// It sends again at once after an RNR NAK.
    NoRnrWait,
    /// It never runs out of RNR retries.
    RnrRetryIgnored,
    /// It takes `rnr_retry` 7 for seven.
    RnrSevenIsSeven,
    /// It counts an RNR NAK in both counters.
    RnrUsesTransportRetry,
    /// It lets the ack timer run while the RNR timer does.
    RnrWaitIsTimeout,
    /// It has a wrong entry in the table of RNR timers.
    RnrTimerEntryWrong,
    /// It survives one timeout too many.
    OneRetryMore,
    /// It takes `retry_cnt` 7 for endless.
    RetrySevenIsInfinite,
    /// It never reloads the retry counters.
    ProgressReloadsNothing,
    /// It reloads them with a response that acknowledges nothing.
    AnyPacketReloads,
    /// It does not start the ack timer anew with progress.
    ProgressKeepsTimer,
    /// It starts it anew with each packet.
    EachPacketDelaysTimer,
    /// It takes T for 2 T.
    AckTimeoutDoubled,
    /// It does not double the adaptive timeout.
    NoBackoff,
    /// It leaves out PSN 0 at the wrap.
    PsnWrapOffByOne,
    /// It compares PSNs without the wrap.
    PsnComparedAsInteger,
    /// It sets no AckReq on the last packet of a message.
    LastAsksForNoAck,
    /// It sends Only for Last.
    OnlyForLast,
    /// It has one packet too many in flight.
    WindowPlusOne,
    /// It has one READ too many in flight.
    RdAtomicPlusOne,
    /// It passes by a fence.
    FenceIgnored,
    /// It takes one credit too many.
    CreditsOffByOne,
    /// It takes an ACK for the packet that comes next.
    AckOfUnsentTaken,
    /// It lets an ACK complete a READ that has no answer.
    AckCompletesRead,
    /// It waits for the timer when a response passes by.
    ImpliedNakIgnored,
    /// It waits for the timer when a NAK comes.
    SequenceNakIgnored,
    /// It asks for all the length when it asks again from the middle.
    ReadAgainAsksForAll,
    /// It flushes the newest first.
    FlushReversed,
    /// It makes no completion for unsignalled work that fails.
    UnsignalledErrorHidden,
    /// It begins behind the packet that is missing.
    GoBackNSkipsFirst,
    /// It ends before the last packet.
    GoBackNStopsEarly,
    /// It forgets a second hole.
    SelectiveForgetsHole,
    /// It sends again what the peer keeps.
    SelectiveResendsHeld,
    /// It counts duplicates in the MSN.
    DuplicateCountsInMsn,
    /// It executes a SEND twice.
    DuplicateSendExecuted,
    /// It executes an ATOMIC twice.
    AtomicExecutedAgain,
    /// It acknowledges a duplicate by its own PSN.
    DuplicateAckIsOld,
    /// It sends a NAK for each packet behind a gap.
    NakForEachOfGap,
    /// It sends none.
    NoNakAfterGap,
    /// It names the packet that came, not the one that is missing.
    NakNamesReceived,
    /// It never gives back what it keeps.
    HeldForgotten,
    /// It counts a rejected packet as received.
    RejectKeepsPsn,
    /// It counts one PSN for a READ.
    ReadTakesOnePsn,
    /// It answers a repeated READ from its start.
    ReadAgainFromStart,
    /// It remembers the newest READ only.
    ResourceForgotten,
    /// It checks no access flags.
    AccessUnchecked,
    /// It takes a SEND without a receive.
    ReceiveUnchecked,
    /// It checks no length.
    LengthUnchecked,
}

#[cfg(all(test, feature = "mutants"))]
mod tests {
    use super::ALL;

    #[test]
    fn each_mutant_is_in_the_list_and_the_list_names_no_other() {
        let list = include_str!("mutants.txt").lines().filter(|line| !line.starts_with('#'));
        let listed = list.filter_map(|line| line.split_whitespace().next());
        assert!(ALL.len() >= 25);
        assert!(listed.eq(ALL.iter().map(|(name, _)| *name)), "same names in the same order");
    }
}
