//! One use case a file: what a caller may ask of the board, whoever carries the question.
//!
//! Knows no bus type. Each use case is one transaction of the store; what follows from it (a worker to
//! stop, a task to start) is told to the daemon as a `Change` after the commit.

pub mod desk;
pub mod types;
pub mod worker;

mod access;
mod act;
mod acting;
mod claim;
mod create;
mod edit;
mod finish;
mod looking;
mod queue;
mod stop;
mod waiting;

#[cfg(test)]
mod board_tests;
#[cfg(test)]
mod claim_tests;
#[cfg(test)]
mod finish_tests;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod worker_tests;
