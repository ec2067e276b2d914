//! The daemon: puts all the pieces together, and is the only part that sees them all.

pub mod apply;
pub mod args;
pub mod boots;
pub mod engine;
pub mod exits;
pub mod hub;
pub mod judge;
pub mod life;
pub mod observe;
pub mod run;
pub mod send;
pub mod starter;
