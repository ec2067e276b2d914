#![doc = include_str!("README.md")]

pub mod bus;
pub mod cli;
pub mod config;
pub mod core;
pub mod daemon;
pub mod exec;
pub mod linux;
pub mod ports;
pub mod service;
pub mod store;
pub mod systemd;
