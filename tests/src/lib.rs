//! What the whole-system tests share: back ends under remote control, machines to run on, and
//! programs made from data.

pub mod adder;
pub mod captured;
pub mod command;
pub mod forms;
pub mod lab;
pub mod line;
pub mod machine;
pub mod plan;
pub mod player;
pub mod policy_body;
pub mod tour;
pub mod traffic;
pub mod tuning;
