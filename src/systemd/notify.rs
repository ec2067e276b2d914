//! Tells the service manager how the daemon's life goes. Source: sd_notify(3), systemd.service(5).
//!
//! Never fails: where nobody listens there is nothing to tell.

use sd_notify::NotifyState;

/// A line for people, without control characters: a newline would inject an assignment.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "the service manager was not told");
    }
}

/// The board is open, everything was looked at, and callers are served.
pub fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(&one_line(status))]);
}

/// The configuration is read again; [`ready`] follows. `mono_usec` is CLOCK_MONOTONIC, which the manager
/// compares with the moment it sent SIGHUP.
pub fn reloading(mono_usec: i64) {
    let stamp = format!("MONOTONIC_USEC={mono_usec}\n");
    tell(&[NotifyState::Reloading, NotifyState::Custom(stamp.trim_end())]);
}

/// The daemon ends; its workers go on.
pub fn stopping(status: &str) {
    tell(&[NotifyState::Stopping, NotifyState::Status(&one_line(status))]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_cannot_speak_to_the_manager() {
        assert_eq!(one_line("3 running\nFDSTOREREMOVE=1"), "3 running FDSTOREREMOVE=1");
    }
}
