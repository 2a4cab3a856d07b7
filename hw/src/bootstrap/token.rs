//! The secret that the programs of a run share.

use std::fmt;
use std::hint::black_box;

use thiserror::Error;

/// Longest token, in bytes.
pub const MAX_TOKEN_BYTES: usize = 256;

/// Shortest token, in bytes. Shorter ones can be guessed.
pub const MIN_TOKEN_BYTES: usize = 16;

/// A secret that every program of a run must present. Make one by `openssl rand -hex 16`.
///
/// It keeps out programs of other runs and other people. It is sent in the clear and nothing is
/// encrypted: whoever can read the network between the machines can read it.
#[derive(Clone)]
pub struct Token(Box<[u8]>);

/// A token of an impossible length.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Error)]
#[error(
    "a token of {got} bytes: it must have {MIN_TOKEN_BYTES} to {MAX_TOKEN_BYTES}; \
     `openssl rand -hex 16` makes one"
)]
pub struct TokenError {
    /// Its length in bytes.
    pub got: usize,
}

impl Token {
    /// A token of these bytes.
    ///
    /// # Errors
    /// When there are less than [`MIN_TOKEN_BYTES`] or more than [`MAX_TOKEN_BYTES`].
    pub fn new(bytes: impl AsRef<[u8]>) -> Result<Self, TokenError> {
        let bytes = bytes.as_ref();
        let got = bytes.len();
        if !(MIN_TOKEN_BYTES..=MAX_TOKEN_BYTES).contains(&got) {
            return Err(TokenError { got });
        }
        Ok(Self(bytes.into()))
    }

    /// Its bytes, for the hello.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Shows nothing of the token, so that no log does.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Whether two tokens are equal. It takes the same time for any two, so that nobody finds a token
/// byte by byte. Both are at most [`MAX_TOKEN_BYTES`] long; no token is an empty one.
pub(super) fn same_token(a: &[u8], b: &[u8]) -> bool {
    let mut difference = a.len() ^ b.len();
    for i in 0..MAX_TOKEN_BYTES {
        let byte = |t: &[u8]| usize::from(t.get(i).copied().unwrap_or(0));
        difference = black_box(difference | (byte(a) ^ byte(b)));
    }
    difference == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_end_on_both_sides() {
        for (len, good) in [(0, false), (15, false), (16, true), (256, true), (257, false)] {
            let token = Token::new(vec![b'x'; len]);
            assert_eq!(token.is_ok(), good, "{len} bytes");
            if let Err(e) = token {
                assert_eq!(e, TokenError { got: len });
                assert!(e.to_string().contains("openssl rand -hex 16"));
            }
        }
    }

    #[test]
    fn tokens_are_compared_to_the_last_byte_and_with_their_length() {
        let long = [7; MAX_TOKEN_BYTES];
        for i in [0, 1, MAX_TOKEN_BYTES - 1] {
            let mut other = long;
            other[i] ^= 0x80;
            assert!(!same_token(&long, &other), "byte {i}");
            assert!(!same_token(&long, &long[..i]), "{i} bytes");
        }
        assert!(same_token(&long, &long));
        assert!(same_token(&[], &[]));
        assert!(!same_token(&[], &[0]), "a zero byte is not the end");
        assert!(!same_token(&[1, 0], &[1]));
    }

    #[test]
    fn no_log_shows_it() {
        let token = Token::new("a-secret-of-16-b").unwrap();
        assert_eq!(format!("{token:?}"), "Token(..)");
        assert_eq!(token.bytes(), b"a-secret-of-16-b");
    }
}
