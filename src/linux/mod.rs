//! What this host says and does: clocks, processes, the start of a worker. The only place, beside `exec/`,
//! with unsafe code.
//!
//! Owns the reading of /proc, pidfds and the fork of `tenured-exec`. Decides nothing: every function
//! returns what it saw, and an error while looking is an observation of its own.

#![expect(
    unsafe_code,
    reason = "fork, and system calls that no safe wrapper has; each block says why it is sound"
)]
#![expect(clippy::disallowed_methods, reason = "the adapter for the kernel: it reads clocks and /proc")]

pub mod account;
pub mod alarm;
pub mod carriers;
pub mod clock;
pub mod directories;
pub mod launch_spec;
pub mod owner;
pub mod pidfd;
pub mod proc;
pub mod readable;
pub mod records;
pub mod spawn;
pub mod stat;
