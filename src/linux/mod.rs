//! What this host says and does: clocks, processes, the start of a worker. The only place, beside `exec/`,
//! with unsafe code; each file that has some says why.
//!
//! Owns the reading of /proc, pidfds and the fork of `tenured-exec`. Decides nothing: every function
//! returns what it saw, and an error while looking is an observation of its own.

pub mod account;
pub mod alarm;
pub mod carriers;
pub mod cgroup;
pub mod clock;
pub mod deadline;
pub mod directories;
pub mod exit_info;
pub mod hang_up;
pub mod inherited;
mod launch_files;
pub mod launch_spec;
mod launcher_client;
pub mod limits;
pub mod outputs;
pub mod owner;
pub mod pidfd;
pub mod proc;
pub mod readable;
pub mod records;
pub mod spawn;
pub mod stat;
pub mod supervisors;
pub mod wait;
pub mod wire;

#[cfg(test)]
pub(crate) mod tests;
