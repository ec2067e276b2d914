pub mod bus;
pub mod core;
pub mod ports;
pub mod service;
