//! Published measurements against the model.
//!
//! The rows are data: one file per profile in `calibration/`, whose rows name the published
//! figure and how the model makes it, and whose `[run.NAME]` tables are scenarios without title
//! and profile. A new row is a few lines there and no code.
//!
//! ```toml
//! title = "Connect-IB"
//! profile = "connect-ib"
//!
//! [run.mmio]
//! qp = { type = "UD" }
//! program = [{ kind = "message-rate", op = "send", size = "60B", threads = 14 }]
//!
//! [run.batched]
//! like = "mmio"
//! set = { "program.0.batch" = 16 }
//!
//! [[row]]
//! id = "C-RATE-001"
//! what = "UD SEND by MMIO"
//! published = 80
//! unit = "M/s"
//! tag = "read"
//! runs = "mmio:message_rate"
//! ```

mod expression;
mod file;
mod markdown;
mod measure;
#[cfg(test)]
mod tests;

pub use file::{BenchOp, BenchTest, Calibration, FigureUnit, Formula, Row, Tag};
pub use markdown::to_markdown;
pub(crate) use markdown::unexplained;
pub use measure::{Measured, Outcomes, Table, measure};
