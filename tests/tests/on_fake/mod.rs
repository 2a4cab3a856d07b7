//! The conformance bodies on the hardware back end with devices in memory, by both ways to post.

mod classic;
mod extended;
