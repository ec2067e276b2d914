//! The harness.

pub mod source;
