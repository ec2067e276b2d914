//! The host's adapters on real processes.

#![expect(clippy::disallowed_methods, reason = "makes processes and files to look at")]

mod carriers;
mod launch;
mod launcher;
mod measured;
pub(crate) mod odd;
mod output;
mod pidfd;
mod recycled;
mod stopping;
mod support;
