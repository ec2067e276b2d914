//! The product's rules, pure: no clock, no IO, no environment. Everything comes in as an argument.

pub mod boot;
pub mod facts;
pub mod fault;
pub mod fingerprint;
pub mod happening;
pub mod ids;
pub mod limits;
pub mod plan;
pub mod policy;
pub mod record;
pub mod refusal;
pub mod retry;
pub mod row;
pub mod signal;
pub mod spec;
pub mod state;
pub mod state_dir;
pub mod time;
pub mod unit;
pub mod verdict;
pub mod view;
