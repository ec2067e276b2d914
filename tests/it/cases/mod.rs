//! Situations that went wrong in systems that do this job, each under its number.
//!
//! What the rules alone can show is tested beside the rules (`src/core`, `src/store`, `src/linux`); here
//! is what needs the real daemon.

mod claims;
mod comes_and_goes;
mod disk;
mod identity;
mod over;
