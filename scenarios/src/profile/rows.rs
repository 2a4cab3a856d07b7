//! The points on which implementations of RC differ, one parameter each (`protocol.md` §10). Each
//! may leave the choice to the set of rules, `rc.rules`.

use serde_json::{Value as Json, json};

use super::param::{Choice, Param, choice, read_choice, show_choice, words};
use crate::input::{InputError, Node};

choice! {
    /// What `retry_cnt` 7 means (row 2).
    RetrySevenKind {
        /// As `rc.rules` says.
        ByRules = "by-rules",
        /// Seven retries.
        Seven = "seven",
        /// Retries without end.
        Infinite = "infinite",
    }
}

choice! {
    /// What a sequence NAK does to the retry counters (row 3).
    SequenceNakKind {
        /// As `rc.rules` says.
        ByRules = "by-rules",
        /// What it acknowledges for the first time is progress; then it uses a retry.
        Progress = "progress",
        /// It uses a retry.
        UsesRetry = "uses-retry",
        /// It uses a retry and reloads the counters: it never ends a queue pair.
        Reloads = "reloads",
    }
}

choice! {
    /// What a work request with the fence flag waits for (row 5).
    FenceKind {
        /// As `rc.rules` says.
        ByRules = "by-rules",
        /// Earlier READs and atomics.
        ReadAtomic = "read-atomic",
        /// Everything earlier.
        AllPrior = "all-prior",
    }
}

choice! {
    /// The answer to a packet behind one that got an RNR NAK (row 6).
    NakDuringRnrKind {
        /// As `rc.rules` says.
        ByRules = "by-rules",
        /// None.
        Silence = "silence",
        /// A sequence NAK.
        Nak = "nak",
    }
}

choice! {
    /// Which duplicates of SEND and WRITE are acknowledged again (row 7).
    DuplicateAckKind {
        /// As `rc.rules` says.
        ByRules = "by-rules",
        /// All.
        Always = "always",
        /// Those that ask for it.
        IfRequested = "if-requested",
    }
}

choice! {
    /// Which duplicates of a READ are executed again (row 8).
    DuplicateReadKind {
        /// As `rc.rules` says.
        ByRules = "by-rules",
        /// Those of a part of the remembered READ.
        Subset = "subset",
        /// Those that also end where it ends.
        SameEnd = "same-end",
    }
}

choice! {
    /// How much of the one work request beyond the credits is sent (row 9).
    LimitedWqeKind {
        /// As `rc.rules` says.
        ByRules = "by-rules",
        /// Its first packet.
        FirstPacket = "first-packet",
        /// All of it.
        WholeMessage = "whole-message",
    }
}

choice! {
    /// What becomes of a SEND that invalidates a key that it may not (row 11).
    BadInvalidateKind {
        /// As `rc.rules` says.
        ByRules = "by-rules",
        /// It is refused.
        Error = "error",
        /// It completes as a plain SEND.
        PlainSend = "plain-send",
    }
}
