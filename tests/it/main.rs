//! Tests on the outside of the product: the tree's own rules, and the real daemon on real processes.
//!
//! One binary, a module per capability. `support/` has the harness.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on says so and ends"
)]
#![expect(
    clippy::disallowed_methods,
    reason = "tests stand outside: they read files, make processes and watch clocks"
)]

mod cases;
mod command_line;
mod edge;
mod harness;
mod interface;
mod life;
mod programs;
mod promises;
mod rules;
mod support;
