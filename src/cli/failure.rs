//! Why a command came to nothing, in two lines: what, and what to do about it; and the exit code.
//!
//! The names of refusals are those of `bus/`; what to do about each is in one table here.

use std::io;
use std::process::ExitCode;

use crate::bus::proxy::ERROR_PREFIX;
use crate::cli::render;

/// Exit codes of the command line.
pub mod code {
    /// Refused or failed.
    pub const REFUSED: u8 = 1;
    /// Wrong usage.
    pub const USAGE: u8 = 2;
    /// No daemon to talk to.
    pub const NO_DAEMON: u8 = 3;
    /// Whoever reads our output has gone: 128 + SIGPIPE, as if the signal had ended us.
    pub const BROKEN_PIPE: u8 = 141;
    /// Interrupted: 128 + SIGINT.
    pub const INTERRUPTED: u8 = 130;
}

/// A command that came to nothing.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// Words that make no sense; nothing was asked of the daemon.
    Usage {
        /// What is wrong.
        what: String,
        /// What would be right.
        remedy: String,
    },
    /// There is nobody to talk to.
    NoDaemon {
        /// Who was looked for, and what happened.
        what: String,
        /// How to start one.
        remedy: String,
    },
    /// The daemon refused, or something failed.
    Refused {
        /// The error's name on the bus, without the common prefix; empty where it is ours.
        name: String,
        /// What happened.
        what: String,
        /// What to do; empty where there is nothing to say.
        remedy: String,
    },
    /// Whoever reads our output has gone.
    BrokenPipe,
    /// Ctrl-C while we only watched.
    Interrupted,
}

impl Failure {
    /// A failure of our own.
    pub fn own(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Refused { name: String::new(), what: what.into(), remedy: remedy.into() }
    }

    /// Wrong usage.
    pub fn usage(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Usage { what: what.into(), remedy: remedy.into() }
    }

    /// The same failure, said of something: `task 7: …`.
    #[must_use]
    pub fn of(self, subject: &str) -> Self {
        match self {
            Self::Refused { name, what, remedy } if !names(&what, subject) => {
                Self::Refused { name, what: format!("{subject}: {what}"), remedy }
            }
            other => other,
        }
    }

    /// Whether the daemon, or the way to it, has gone: asking again may help.
    pub const fn is_gone(&self) -> bool {
        matches!(self, Self::NoDaemon { .. })
    }

    /// Whether this is a refusal of that name.
    pub fn is_named(&self, wanted: &str) -> bool {
        matches!(self, Self::Refused { name, .. } if name == wanted)
    }

    /// The exit code.
    pub const fn code(&self) -> u8 {
        match self {
            Self::Usage { .. } => code::USAGE,
            Self::NoDaemon { .. } => code::NO_DAEMON,
            Self::Refused { .. } => code::REFUSED,
            Self::BrokenPipe => code::BROKEN_PIPE,
            Self::Interrupted => code::INTERRUPTED,
        }
    }

    /// The two lines for people; the second is missing where there is nothing to say.
    pub fn lines(&self) -> Vec<String> {
        let (what, remedy) = match self {
            Self::Usage { what, remedy } | Self::NoDaemon { what, remedy } => (what.clone(), remedy),
            Self::Refused { name, what, remedy } if name.is_empty() => (what.clone(), remedy),
            Self::Refused { name, what, remedy } => (format!("{what} ({name})"), remedy),
            Self::BrokenPipe | Self::Interrupted => return Vec::new(),
        };
        let mut lines = vec![render::line(&what)];
        if !remedy.is_empty() {
            lines.push(render::line(remedy));
        }
        lines
    }

    /// Says it on standard error.
    pub fn say(&self) {
        for line in self.lines() {
            render::aside(&line);
        }
    }

    /// Says it and makes the exit code.
    pub fn end(&self) -> ExitCode {
        self.say();
        ExitCode::from(self.code())
    }
}

/// Whether a text speaks of a subject already: `task 7`, and not `task 77`.
fn names(text: &str, subject: &str) -> bool {
    let mut after = text.match_indices(subject).filter_map(|(at, _)| text.get(at + subject.len()..));
    after.any(|rest| !rest.starts_with(|next: char| next.is_ascii_digit()))
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::BrokenPipe;
        }
        Self::own(format!("writing the output failed: {error}"), "")
    }
}

impl From<zbus::Error> for Failure {
    fn from(error: zbus::Error) -> Self {
        match error {
            zbus::Error::MethodError(name, text, _) => {
                let name = name.as_str();
                let text = text.unwrap_or_else(|| name.to_owned());
                match name.strip_prefix(ERROR_PREFIX) {
                    Some(ours) => {
                        Self::Refused { name: ours.to_owned(), what: text, remedy: remedy(ours).to_owned() }
                    }
                    None => Self::Refused { name: name.to_owned(), what: text, remedy: String::new() },
                }
            }
            zbus::Error::FDO(error) => of_fdo(&error),
            zbus::Error::InputOutput(error) => gone(&error.to_string()),
            zbus::Error::Connection(error, address) => gone(&format!("{address}: {error}")),
            zbus::Error::Handshake(text) => gone(&text),
            other => {
                Self::own(other.to_string(), "The daemon may be of another version; `tenurectl status` says.")
            }
        }
    }
}

fn of_fdo(error: &zbus::fdo::Error) -> Failure {
    use zbus::DBusError as _;
    use zbus::fdo::Error;
    let name = error.name().as_str().to_owned();
    let what = error.description().unwrap_or("the bus said no more").to_owned();
    let remedy = match error {
        Error::ServiceUnknown(_) | Error::NameHasNoOwner(_) | Error::NoReply(_) | Error::Disconnected(_) => {
            return gone(&what);
        }
        Error::AccessDenied(_) => {
            "The bus does not let you talk to the daemon; see its policy in dbus-1/system.d."
        }
        Error::UnknownMethod(_) | Error::UnknownProperty(_) | Error::InvalidArgs(_) => {
            "The daemon is of another version than this tenurectl; update the older one."
        }
        _ => "",
    };
    Failure::Refused { name, what, remedy: remedy.to_owned() }
}

/// The daemon went away while we talked to it.
fn gone(what: &str) -> Failure {
    Failure::NoDaemon {
        what: format!("the daemon does not answer: {what}"),
        remedy: "What it acknowledged is on its board; `tenurectl status` says whether it is back."
            .to_owned(),
    }
}

/// What to do about a refusal.
fn remedy(name: &str) -> &'static str {
    match name {
        "NoSuchTask" => "`tenurectl list --all` shows the tasks that you may see.",
        "NoSuchRun" => "`tenurectl show TASK` lists the runs of a task.",
        "NoSuchQueue" => "`tenurectl queue` lists the queues; `tenurectl queue set NAME` makes one.",
        "InvalidArgument" => "Nothing was changed; `tenurectl help VERB` shows what each verb takes.",
        "InvalidTransition" => "`tenurectl show TASK` says where the task stands and what can be done next.",
        "StaleRun" => "Stop working on this run: its claim is over, and nothing it says counts any more.",
        "NothingReady" => {
            "`tenurectl claim --wait 10min` waits for work; `tenurectl list` shows what there is."
        }
        "NotAuthorized" => "Ask as root or as the task's owner.",
        "NotYourProcess" => "Name a process that runs wholly as you, or claim without one.",
        "Cycle" => "`tenurectl unlink PARENT CHILD` opens the circle elsewhere.",
        "LimitExceeded" => "Limits are set in tenured.toml, under [limits].",
        "Busy" => "Try again when that has ended.",
        "ReadOnly" => "Make space on the disk of the state directory; the daemon goes on by itself.",
        "Internal" => "The daemon's log has the details under that id: `journalctl -u tenured`.",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_of_the_interface_has_a_remedy() {
        for name in [
            "NoSuchTask",
            "NoSuchRun",
            "NoSuchQueue",
            "InvalidArgument",
            "InvalidTransition",
            "StaleRun",
            "NothingReady",
            "NotAuthorized",
            "NotYourProcess",
            "Cycle",
            "LimitExceeded",
            "Busy",
            "ReadOnly",
            "Internal",
        ] {
            assert!(!remedy(name).is_empty(), "{name}");
        }
    }

    #[test]
    fn an_error_is_one_line_and_what_to_do_another() {
        let failure = Failure::Refused {
            name: "NoSuchTask".into(),
            what: "there is no task 7\u{1b}[2J\nreally".into(),
            remedy: "Look.".into(),
        };
        assert_eq!(failure.lines(), [r"there is no task 7\u{1b}[2J\nreally (NoSuchTask)", "Look."]);
        let said_of = |subject: &str| {
            let failure = Failure::own("there is no task 77", "");
            failure.of(subject).lines().concat()
        };
        assert_eq!(said_of("task 7"), "task 7: there is no task 77");
        assert_eq!(said_of("task 77"), "there is no task 77");
    }

    #[test]
    fn exit_codes_are_those_of_the_documentation() {
        assert_eq!(Failure::usage("", "").code(), 2);
        assert_eq!(Failure::own("", "").code(), 1);
        assert_eq!(
            Failure::from(zbus::Error::from(io::Error::from(io::ErrorKind::ConnectionReset))).code(),
            3
        );
        assert_eq!(Failure::from(io::Error::from(io::ErrorKind::BrokenPipe)), Failure::BrokenPipe);
    }
}
