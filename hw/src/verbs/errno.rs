//! Error codes of the library and the kernel, by name.

use core::ffi::c_int;
use core::fmt;

/// An error of the library: an `errno`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Errno(pub c_int);

macro_rules! names {
    ($($name:ident)*) => {
        &[$((libc::$name, stringify!($name))),*]
    };
}

/// Those that verbs, drivers and sockets return.
const NAMES: &[(c_int, &str)] = names!(
    EPERM ENOENT EINTR EIO ENXIO E2BIG EBADF
    EAGAIN ENOMEM EACCES EFAULT EBUSY EEXIST ENODEV
    EINVAL ENFILE EMFILE ENOSPC EPIPE EDOM ERANGE
    EDEADLK ENOSYS ENODATA ETIME EPROTO EOVERFLOW EMSGSIZE
    EPROTONOSUPPORT EOPNOTSUPP EADDRINUSE EADDRNOTAVAIL ENETDOWN ENETUNREACH ENETRESET
    ECONNABORTED ECONNRESET ENOBUFS EISCONN ENOTCONN ETIMEDOUT ECONNREFUSED
    EHOSTDOWN EHOSTUNREACH EALREADY EINPROGRESS ESTALE EREMOTEIO ECANCELED
);

impl Errno {
    /// Its name, such as `ETIMEDOUT`; `None` for those that no provider is known to return.
    pub fn name(self) -> Option<&'static str> {
        NAMES.iter().find(|(code, _)| *code == self.0).map(|(_, name)| *name)
    }

    /// Whether the address of a peer was not found: a provider that resolves it while the QP goes
    /// to RTR (RoCE) ends so.
    pub fn is_unreachable(self) -> bool {
        const CODES: [c_int; 4] =
            [libc::ETIMEDOUT, libc::EHOSTUNREACH, libc::ENETUNREACH, libc::EHOSTDOWN];
        CODES.contains(&self.0)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = self.name() {
            write!(f, "{name}, ")?;
        }
        std::io::Error::from_raw_os_error(self.0).fmt(f)
    }
}

impl core::error::Error for Errno {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "the texts are those of the system's library")]
    fn an_errno_is_shown_by_name_and_text() {
        let text = Errno(libc::ETIMEDOUT).to_string();
        assert_eq!(text, "ETIMEDOUT, Connection timed out (os error 110)");
        assert!(Errno(9999).to_string().starts_with("Unknown error 9999"));
        assert!(
            Errno(libc::EHOSTUNREACH).is_unreachable() && !Errno(libc::EINVAL).is_unreachable()
        );
    }
}
