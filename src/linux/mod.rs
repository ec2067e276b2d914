//! What this host says and does: clocks, processes, the start of a worker. The only place, beside `exec/`,
//! with unsafe code.
//!
//! Owns the reading of /proc, pidfds and the fork of `tenured-exec`. Decides nothing: every function
//! returns what it saw, and an error while looking is an observation of its own.

pub mod carriers;
pub mod clock;
pub mod launch_spec;
pub mod owner;
pub mod pidfd;
pub mod proc;
pub mod spawn;
pub mod stat;
