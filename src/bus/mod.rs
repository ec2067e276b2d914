//! The D-Bus edge: names, signatures and units of the interface, and nothing of the rules.
//!
//! Translates only. Who calls is proven here (`caller`); what a caller may do is decided in `service/`.

pub mod proxy;
