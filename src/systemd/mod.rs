//! What the daemon tells the service manager and the journal, where there are any.

mod entry;
pub mod fd_store;
pub mod host;
pub mod journal_fields;
pub mod log;
pub mod message_id;
pub mod notify;
pub mod scopes;

/// Whether systemd is what manages this host. Source: sd_booted(3).
pub fn is_booted() -> bool {
    rustix::fs::lstat("/run/systemd/system")
        .is_ok_and(|found| rustix::fs::FileType::from_raw_mode(found.st_mode).is_dir())
}

/// Whether journald takes streams. Source: systemd-journald.service(8).
pub fn has_journal() -> bool {
    rustix::fs::stat("/run/systemd/journal/stdout").is_ok()
}
