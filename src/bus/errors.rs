//! One table: refusals to names on the bus. Faults are logged here, once, with an id that the caller gets.

use std::error::Error as _;
use std::sync::atomic::{AtomicU64, Ordering};

use zbus::message::{Header, Message};
use zbus::names::ErrorName;

use crate::bus::proxy::ERROR_PREFIX;
use crate::core::fault::{Error, Fault};
use crate::core::refusal::Refusal;

/// The name of a refusal behind [`ERROR_PREFIX`].
pub const fn name(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::NoSuchTask(_) => "NoSuchTask",
        Refusal::NoSuchRun(_) => "NoSuchRun",
        Refusal::NoSuchQueue(_) => "NoSuchQueue",
        Refusal::InvalidArgument { .. } => "InvalidArgument",
        Refusal::InvalidTransition { .. } => "InvalidTransition",
        Refusal::StaleRun { .. } => "StaleRun",
        Refusal::NothingReady => "NothingReady",
        Refusal::NotAuthorized(_) => "NotAuthorized",
        Refusal::NotYourProcess { .. } => "NotYourProcess",
        Refusal::Cycle { .. } => "Cycle",
        Refusal::LimitExceeded { .. } => "LimitExceeded",
        Refusal::Busy(_) => "Busy",
        Refusal::ReadOnly => "ReadOnly",
    }
}

/// The name of a fault behind [`ERROR_PREFIX`].
pub const INTERNAL: &str = "Internal";

/// An error as it goes out: a name and a text that stands alone, because busctl prints the text only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    name: String,
    text: String,
}

impl Refused {
    fn new(name: &str, text: String) -> Self {
        // The bus carries no NUL in a text, and an error that cannot be sent would leave its caller waiting.
        Self { name: format!("{ERROR_PREFIX}{name}"), text: text.replace('\0', "\u{fffd}") }
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self::new(name(&refusal), refusal.to_string())
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        match error {
            Error::Refused(refusal) => refusal.into(),
            Error::Fault(fault) => fault.into(),
        }
    }
}

impl From<Fault> for Refused {
    fn from(fault: Fault) -> Self {
        let id = next_id();
        tracing::error!(id, "fault {id}: {}; the caller was told Internal with this id", chain(&fault));
        Self::new(INTERNAL, format!("the daemon failed; the reason is in its log under fault {id}"))
    }
}

/// Faults of one daemon's life are counted; the journal tells the lives apart.
fn next_id() -> u64 {
    static FAULTS: AtomicU64 = AtomicU64::new(1);
    FAULTS.fetch_add(1, Ordering::Relaxed)
}

fn chain(fault: &Fault) -> String {
    let mut text = fault.to_string();
    let mut cause = fault.source();
    while let Some(source) = cause {
        text = format!("{text}: {source}");
        cause = source.source();
    }
    text
}

impl zbus::DBusError for Refused {
    fn create_reply(&self, call: &Header<'_>) -> zbus::Result<Message> {
        Message::error(call, self.name()).build(&self.text)
    }

    fn name(&self) -> ErrorName<'_> {
        ErrorName::from_str_unchecked(&self.name)
    }

    fn description(&self) -> Option<&str> {
        Some(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::ids::{RunId, TaskId};
    use crate::core::state::Status;

    #[test]
    fn every_refusal_has_its_name_and_a_text_that_stands_alone() {
        let task = TaskId::new(4);
        let run = RunId::new(7);
        let table = [
            (Refusal::NoSuchTask(task), "NoSuchTask", "there is no task 4"),
            (Refusal::NoSuchRun(run), "NoSuchRun", "there is no run 7"),
            (Refusal::NoSuchQueue("q".into()), "NoSuchQueue", "there is no queue \"q\"; SetQueue makes one"),
            (Refusal::argument("Nice", "is odd"), "InvalidArgument", "Nice: is odd"),
            (
                Refusal::InvalidTransition { task, from: Status::Done, to: "cancelled" },
                "InvalidTransition",
                "task 4 is done: it cannot become cancelled by this",
            ),
            (
                Refusal::StaleRun { run, task, now: Some(RunId::new(9)) },
                "StaleRun",
                "run 7 no longer holds task 4: run 9 holds it now",
            ),
            (Refusal::NothingReady, "NothingReady", "nothing is ready to be claimed"),
            (Refusal::NotAuthorized("no".into()), "NotAuthorized", "no"),
            (
                Refusal::NotYourProcess { pid: 1, why: "it is init" },
                "NotYourProcess",
                "process 1 cannot be registered: it is init",
            ),
            (
                Refusal::Cycle { task, path: vec![task, task] },
                "Cycle",
                "task 4 would wait for itself: 4 -> 4",
            ),
            (
                Refusal::LimitExceeded { what: "Labels", limit: 64, asked: 65 },
                "LimitExceeded",
                "Labels is limited to 64, and this would be 65",
            ),
            (Refusal::Busy("later".into()), "Busy", "later"),
        ];
        for (refusal, name, text) in table {
            let expected = Refused { name: format!("org.tenured1.Error.{name}"), text: text.into() };
            assert_eq!(Refused::from(refusal), expected);
        }
        assert_eq!(Refused::from(Refusal::ReadOnly).name, "org.tenured1.Error.ReadOnly");
    }

    #[test]
    fn every_name_is_one_that_the_bus_takes() {
        let refused = Refused::from(Refusal::NothingReady);
        assert!(ErrorName::try_from(refused.name.as_str()).is_ok());
        assert!(ErrorName::try_from(format!("{ERROR_PREFIX}{INTERNAL}")).is_ok());
    }

    #[test]
    fn a_fault_says_nothing_but_its_id() {
        let secret = std::io::Error::other("the path of a secret");
        let refused = Refused::from(Fault::Host { doing: "a backup", source: secret });
        assert_eq!(refused.name, "org.tenured1.Error.Internal");
        assert!(refused.text.contains("fault ") && !refused.text.contains("secret"), "{}", refused.text);
    }

    #[test]
    fn a_nul_in_a_text_does_not_keep_the_answer_back() {
        let refused = Refused::from(Refusal::argument("Title", "a\0b"));
        assert_eq!(refused.text, "Title: a\u{fffd}b");
    }
}
