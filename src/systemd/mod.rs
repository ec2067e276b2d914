//! What the daemon tells the service manager and the journal, where there are any.

pub mod log;
pub mod notify;
