//! The harness: a private bus, the real daemon on it, a client, the board's file, and processes that
//! tell what was done to them.

pub mod board;
pub mod bus;
pub mod client;
pub mod daemon;
pub mod decoy;
pub mod kernel;
pub mod launcher;
pub mod logind;
pub mod service_manager;
pub mod source;
pub mod wait;

pub use board::Board;
pub use client::Client;
pub use daemon::Host;
pub use decoy::{Decoy, Kind};
pub use wait::eventually;

/// Says that a test cannot show its thing on this host; `tests/run` lists what was said.
pub fn skip(what: &str, why: &str) {
    use std::io::Write;
    eprintln!("skipped: {what}: {why}");
    let Some(list) = std::env::var_os("TENURED_TEST_SKIPS") else { return };
    let mut list = std::fs::OpenOptions::new().append(true).open(list).expect("the list of skipped tests");
    writeln!(list, "{what}: {why}").expect("the list of skipped tests");
}

/// Whether this is root, for tests that need a second user.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Options and properties of a call: `options! { "Kill" => true }`.
#[macro_export]
macro_rules! options {
    ($($key:literal => $value:expr),* $(,)?) => {
        tenured::bus::proxy::Options::<'_>::from([$(($key, zbus::Variant::from($value))),*])
    };
}
