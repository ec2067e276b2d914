//! Names of systemd units: a scope for each run, a slice for each queue.
//!
//! A scope's name can never come again: the run is never numbered again on its board, and the nonce tells
//! boards apart. Source: systemd.unit(5), "String Escaping for Inclusion in Unit Names".

use crate::core::ids::{Nonce, RunId, TaskId};

/// The slice that holds all of ours.
pub const SLICE: &str = "tenured.slice";
/// Letters of a unit's name at most. Source: systemd.unit(5).
const NAME_BYTES: usize = 255;

/// `tenured-<task>-run-<run>-<nonce>.scope`.
pub fn scope(task: TaskId, run: RunId, nonce: &Nonce) -> String {
    format!("tenured-{task}-run-{run}-{nonce}.scope")
}

/// Whether a unit's name has the form of [`scope`].
pub fn is_scope(unit: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
    let parts = || {
        let (task, rest) = unit.strip_prefix("tenured-")?.strip_suffix(".scope")?.split_once("-run-")?;
        let (run, nonce) = rest.split_once('-')?;
        Some(number(task) && number(run) && Nonce::parse(nonce).is_some())
    };
    parts().unwrap_or(false)
}

/// The slice of a queue; the common one where the queue's name makes no unit's name.
pub fn slice(queue: &str) -> String {
    let name = format!("tenured-{}.slice", escape(queue));
    if queue.is_empty() || name.len() > NAME_BYTES { SLICE.to_owned() } else { name }
}

/// A dash would be a level of the hierarchy, so it is escaped too.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for (at, byte) in text.bytes().enumerate() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b':' | b'_') || byte == b'.' && at > 0 {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("\\x{byte:02x}"));
        }
    }
    escaped
}

/// The last part of a cgroup's path, if it is a service.
pub fn service_of(cgroup_path: &str) -> Option<&str> {
    cgroup_path.rsplit('/').next().filter(|unit| unit.ends_with(".service"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_is_named_by_task_run_and_nonce() {
        let nonce = Nonce::from_bytes([0xab; 16]);
        let name = scope(TaskId::new(42), RunId::new(7), &nonce);
        assert_eq!(name, format!("tenured-42-run-7-{}.scope", "ab".repeat(16)));
        let longest = scope(TaskId::new(i64::MAX), RunId::new(i64::MAX), &nonce);
        assert!(longest.len() <= NAME_BYTES);
        assert!(is_scope(&name) && is_scope(&longest));
        for other in ["tenured.scope", "tenured-1-run-2.scope", "tenured-1-run-2-x.scope", "session-1.scope"]
        {
            assert!(!is_scope(other), "{other}");
        }
    }

    #[test]
    fn a_queue_is_one_level_below_the_common_slice() {
        for (queue, slice_of_it) in [
            ("default", "tenured-default.slice"),
            ("a-b", "tenured-a\\x2db.slice"),
            ("a/b c", "tenured-a\\x2fb\\x20c.slice"),
            (".hidden.x", "tenured-\\x2ehidden.x.slice"),
            ("ü", "tenured-\\xc3\\xbc.slice"),
            ("", SLICE),
        ] {
            assert_eq!(slice(queue), slice_of_it);
        }
        assert_eq!(slice(&"-".repeat(100)), SLICE, "too long for a unit's name");
    }

    #[test]
    fn only_a_service_is_a_service() {
        assert_eq!(service_of("/system.slice/tenured.service"), Some("tenured.service"));
        assert_eq!(service_of("/user.slice/session-1.scope"), None);
        assert_eq!(service_of("/"), None);
    }
}
