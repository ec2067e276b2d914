#![doc = include_str!("README.md")]

pub mod bus;
pub mod core;
pub mod ports;
pub mod service;
