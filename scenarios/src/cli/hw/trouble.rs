//! Why a run on hardware did not end well, and the status that stands for it.

use doorbell_hw::bootstrap::launch::LaunchError;
use doorbell_hw::bootstrap::tcp::JoinError;
use doorbell_hw::rc_pingpong::ExchangeError;
use doorbell_hw::verbs::OpenError;

use crate::cli::ExitStatus;
use crate::cli::common::complain;
use crate::input::InputError;
use crate::run::ExitKind;

/// Why a rank did not end well.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The command line, the file, the device or the peer is not what it must be.
    Input(InputError),
    /// Data was wrong, or a work request completed in error.
    Violation(String),
    /// A limit was reached, or a peer was lost.
    NoProgress(String),
}

impl Trouble {
    /// The status that stands for it.
    pub(super) fn status(&self) -> ExitStatus {
        match self {
            Self::Input(_) => ExitStatus::BadInput,
            Self::Violation(_) => ExitStatus::Violated,
            Self::NoProgress(_) => ExitStatus::NoProgress,
        }
    }

    /// Prints it, where there is no report that could say it.
    pub(super) fn complain(self) -> ExitStatus {
        let status = self.status();
        match self {
            Self::Input(error) => complain(&error),
            Self::Violation(text) | Self::NoProgress(text) => complain(&InputError::new(text)),
        };
        status
    }

    /// How it stands in reports.
    pub(super) fn kind(&self) -> ExitKind {
        match self {
            Self::Input(_) | Self::Violation(_) => ExitKind::Violation,
            Self::NoProgress(_) => ExitKind::NoProgress,
        }
    }

    /// What happened, on one line.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Input(error) => error.to_string(),
            Self::Violation(text) | Self::NoProgress(text) => text.clone(),
        }
    }
}

impl From<InputError> for Trouble {
    fn from(error: InputError) -> Self {
        Self::Input(error)
    }
}

impl From<LaunchError> for Trouble {
    fn from(error: LaunchError) -> Self {
        Self::Input(InputError::new(error.to_string()))
    }
}

impl From<OpenError> for Trouble {
    fn from(error: OpenError) -> Self {
        Self::Input(InputError::new(error.to_string()))
    }
}

impl From<JoinError> for Trouble {
    fn from(error: JoinError) -> Self {
        use JoinError as E;
        let text = format!("while joining the run: {error}");
        match error {
            E::Timeout { .. }
            | E::PeerLost { .. }
            | E::ServerGone
            | E::Unreachable { .. }
            | E::Silent { .. } => Self::NoProgress(text),
            E::BadRank { .. }
            | E::NoPort
            | E::TokenNeeded { .. }
            | E::PortTaken { .. }
            | E::Listen { .. }
            | E::NotARendezvous { .. }
            | E::Refused { .. }
            | E::Resources(_) => Self::Input(InputError::new(text)),
        }
    }
}

impl From<&ExchangeError> for Trouble {
    fn from(error: &ExchangeError) -> Self {
        use ExchangeError as E;
        let text = format!("while exchanging addresses with ibv_rc_pingpong: {error}");
        match error {
            E::Connect { .. }
            | E::NobodyCame { .. }
            | E::Silent { .. }
            | E::Closed { .. }
            | E::Broken(_) => Self::NoProgress(text),
            E::Listen { .. } | E::Garbage { .. } | E::OtherVersion | E::NoAddress => {
                Self::Input(InputError::new(text))
            }
        }
    }
}
