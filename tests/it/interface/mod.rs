//! Every method of the interface, with input that is well and with input that is not.

mod board;
mod callers;
mod claims;
mod refusals;
mod tasks;

use tenured::bus::proxy::Options;

/// Another user, nobody: a bus lets in only whom the host knows.
const MALLORY: u32 = 65_534;
/// A number that no task and no run of a new board has.
const NOBODY: u64 = 4_000_000;

fn none() -> Options<'static> {
    Options::new()
}
