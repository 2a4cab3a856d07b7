//! `doorbell hw`

#[cfg(feature = "hw")]
mod info;
#[cfg(feature = "hw")]
#[cfg_attr(not(test), expect(dead_code, reason = "the command that runs PingPong over it follows"))]
mod rc_pingpong;

use super::ExitStatus;
use super::args::HwArgs;
#[cfg(feature = "hw")]
use super::args::HwCommand;

/// Does what `doorbell hw` says.
#[cfg(feature = "hw")]
pub(super) fn hw(args: &HwArgs) -> ExitStatus {
    match &args.command {
        HwCommand::Info(args) => info::info(args),
    }
}

/// Says that this build cannot.
#[cfg(not(feature = "hw"))]
pub(super) fn hw(_: &HwArgs) -> ExitStatus {
    let error = crate::input::InputError::new("this build has no hardware back end")
        .help("build with `--features hw`; that needs libibverbs, librdmacm and libclang");
    super::common::complain(&error)
}
