//! The hardware back end without hardware. Bodies that need a peer say that they are skipped.

mod on_fake;
