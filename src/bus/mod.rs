//! The D-Bus edge: names, signatures and units of the interface, and nothing of the rules.
//!
//! Translates only. Who calls is proven here; what a caller may do is decided in `service/`.

pub mod admission;
pub mod caller;
pub mod convert;
pub mod driver;
pub mod errors;
pub mod manager;
pub mod options;
pub mod private;
pub mod properties;
pub mod proxy;
pub mod sasl;
pub mod serve;
pub mod signals;
pub mod socket;
