//! The exit record: what the supervisor of one run writes when the run's tree has ended.
//!
//! A short text, so that a person can read it: `key=value` lines, closed by a checksum line. A record that
//! is torn, empty or of another run is no record.

use crate::core::ids::{Nonce, RunId};
use crate::core::retry::Exit;

/// Bytes that are set aside for a record before the command starts, so that a full disk cannot swallow it.
pub const RECORD_BYTES: usize = 4_096;

const HEAD: &str = "tenured-exit-record 1";

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It ran and ended.
    Exited(Exit),
    /// The gate closed without the byte: the command never ran.
    GateClosed,
    /// It could not be executed; the errno, and 127 or 126 as a shell would say.
    ExecFailed {
        /// errno of execve(2).
        errno: i32,
        /// 127 for a command that is not there, else 126.
        code: i32,
    },
    /// The step before the exec that failed, such as the working directory; the errno.
    SetupFailed {
        /// Which step.
        step: Setup,
        /// Its errno.
        errno: i32,
    },
}

/// What the command side does before it becomes the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setup {
    /// Resource limits, nice, oom_score_adj.
    Limits,
    /// Groups, gid, uid.
    Credentials,
    /// The working directory.
    Directory,
    /// Standard input.
    Stdin,
    /// Standard output and error.
    Output,
    /// Anything else.
    Other,
}

impl Setup {
    const ALL: [Self; 6] =
        [Self::Limits, Self::Credentials, Self::Directory, Self::Stdin, Self::Output, Self::Other];

    /// The word of the record.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Limits => "limits",
            Self::Credentials => "credentials",
            Self::Directory => "directory",
            Self::Stdin => "stdin",
            Self::Output => "output",
            Self::Other => "other",
        }
    }

    /// Reads the word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|setup| setup.word() == word)
    }
}

/// The record of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The run it belongs to.
    pub run: RunId,
    /// The random name of that run.
    pub nonce: Nonce,
    /// How the command ended.
    pub end: End,
    /// Whether the kernel killed something of the tree for memory.
    pub oom: bool,
    /// CLOCK_MONOTONIC at the command's end, milliseconds.
    pub ended_ms: i64,
    /// Wall clock at the command's end, microseconds.
    pub ended_usec: i64,
    /// The pid that sent the signal that ended the command, where known.
    pub killed_by_pid: Option<i32>,
    /// Whether the system's service manager asked for the end before it came, as it does when the host goes
    /// down.
    pub manager_asked: bool,
    /// User time of the whole tree, microseconds.
    pub user_usec: i64,
    /// System time of the whole tree, microseconds.
    pub system_usec: i64,
    /// Largest resident set of one process of the tree, KiB.
    pub max_rss_kib: i64,
}

/// Why a text is no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRecord {
    /// Nothing was written: the supervisor has not ended, or ended without a word.
    #[error("the record is empty")]
    Empty,
    /// Torn or altered.
    #[error("the record's checksum does not match")]
    Checksum,
    /// A line is missing or has another form.
    #[error("the record has no valid {0}")]
    Field(&'static str),
}

impl Record {
    /// The text to write; shorter than [`RECORD_BYTES`].
    pub fn to_text(&self) -> String {
        let end = match self.end {
            End::Exited(Exit::Code(code)) => format!("exit:{code}"),
            End::Exited(Exit::Signal(signal)) => format!("signal:{signal}"),
            End::GateClosed => "gate-closed".to_owned(),
            End::ExecFailed { errno, code } => format!("exec-failed:{errno}:{code}"),
            End::SetupFailed { step, errno } => format!("setup-failed:{}:{errno}", step.word()),
        };
        let killed_by = self.killed_by_pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string());
        let body = format!(
            "{HEAD}\nrun={}\nnonce={}\nend={end}\noom={}\nended_ms={}\nended_usec={}\nkilled_by={killed_by}\n\
             user_usec={}\nsystem_usec={}\nmax_rss_kib={}\nmanager_asked={}\n",
            self.run,
            self.nonce,
            u8::from(self.oom),
            self.ended_ms,
            self.ended_usec,
            self.user_usec,
            self.system_usec,
            self.max_rss_kib,
            u8::from(self.manager_asked),
        );
        let sum = crc32fast::hash(body.as_bytes());
        format!("{body}checksum={sum:08x}\n")
    }

    /// Reads what a supervisor wrote; bytes after the checksum line (the space set aside) do not count.
    ///
    /// # Errors
    /// [`BadRecord`] for anything that is not a whole record.
    pub fn parse(bytes: &[u8]) -> Result<Self, BadRecord> {
        let used = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        let bytes = bytes.get(..used).unwrap_or(bytes);
        if bytes.is_empty() {
            return Err(BadRecord::Empty);
        }
        let text = std::str::from_utf8(bytes).map_err(|_| BadRecord::Checksum)?;
        let (body, sum) = text.rsplit_once("checksum=").ok_or(BadRecord::Checksum)?;
        let sum = sum.strip_suffix('\n').ok_or(BadRecord::Checksum)?;
        if format!("{:08x}", crc32fast::hash(body.as_bytes())) != sum {
            return Err(BadRecord::Checksum);
        }
        Self::parse_body(body)
    }

    fn parse_body(body: &str) -> Result<Self, BadRecord> {
        let mut lines = body.lines();
        if lines.next() != Some(HEAD) {
            return Err(BadRecord::Field("version"));
        }
        let mut field = |key: &'static str| {
            lines
                .next()
                .and_then(|line| line.strip_prefix(key))
                .and_then(|rest| rest.strip_prefix('='))
                .ok_or(BadRecord::Field(key))
        };
        let run = number(field("run")?, "run")?;
        let nonce = Nonce::parse(field("nonce")?).ok_or(BadRecord::Field("nonce"))?;
        let end = parse_end(field("end")?).ok_or(BadRecord::Field("end"))?;
        let oom = match field("oom")? {
            "0" => false,
            "1" => true,
            _ => return Err(BadRecord::Field("oom")),
        };
        let ended_ms = number(field("ended_ms")?, "ended_ms")?;
        let ended_usec = number(field("ended_usec")?, "ended_usec")?;
        let killed_by_pid = match field("killed_by")? {
            "-" => None,
            pid => Some(pid.parse().map_err(|_| BadRecord::Field("killed_by"))?),
        };
        let user_usec = number(field("user_usec")?, "user_usec")?;
        let system_usec = number(field("system_usec")?, "system_usec")?;
        let max_rss_kib = number(field("max_rss_kib")?, "max_rss_kib")?;
        // A supervisor of an earlier version, which was there before an upgrade, does not tell.
        let manager_asked = match field("manager_asked") {
            Ok("0") | Err(_) => false,
            Ok("1") => true,
            Ok(_) => return Err(BadRecord::Field("manager_asked")),
        };
        Ok(Self {
            run: RunId::new(run),
            nonce,
            end,
            oom,
            ended_ms,
            ended_usec,
            killed_by_pid,
            manager_asked,
            user_usec,
            system_usec,
            max_rss_kib,
        })
    }
}

fn number(text: &str, field: &'static str) -> Result<i64, BadRecord> {
    text.parse().map_err(|_| BadRecord::Field(field))
}

fn parse_end(text: &str) -> Option<End> {
    let mut parts = text.split(':');
    let end = match parts.next()? {
        "exit" => End::Exited(Exit::Code(parts.next()?.parse().ok()?)),
        "signal" => End::Exited(Exit::Signal(parts.next()?.parse().ok()?)),
        "gate-closed" => End::GateClosed,
        "exec-failed" => {
            End::ExecFailed { errno: parts.next()?.parse().ok()?, code: parts.next()?.parse().ok()? }
        }
        "setup-failed" => {
            End::SetupFailed { step: Setup::parse(parts.next()?)?, errno: parts.next()?.parse().ok()? }
        }
        _ => return None,
    };
    parts.next().is_none().then_some(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(end: End) -> Record {
        Record {
            run: RunId::new(7),
            nonce: Nonce::from_bytes([3; 16]),
            end,
            oom: false,
            ended_ms: -4,
            ended_usec: 1_700_000_000_000_000,
            killed_by_pid: Some(12),
            manager_asked: true,
            user_usec: 1,
            system_usec: 2,
            max_rss_kib: 3,
        }
    }

    #[test]
    fn a_record_comes_back_also_from_its_preallocated_file() {
        for end in [
            End::Exited(Exit::Code(255)),
            End::Exited(Exit::Signal(9)),
            End::GateClosed,
            End::ExecFailed { errno: 2, code: 127 },
            End::SetupFailed { step: Setup::Directory, errno: 13 },
        ] {
            let mut bytes = record(end).to_text().into_bytes();
            assert!(bytes.len() < RECORD_BYTES);
            bytes.resize(RECORD_BYTES, 0);
            assert_eq!(Record::parse(&bytes), Ok(record(end)));
        }
    }

    #[test]
    fn an_earlier_supervisor_says_nothing_of_the_manager() {
        let whole = record(End::GateClosed).to_text();
        let (body, _) = whole.split_once("manager_asked=").unwrap();
        let earlier = format!("{body}checksum={:08x}\n", crc32fast::hash(body.as_bytes()));
        let read = Record::parse(earlier.as_bytes()).unwrap();
        assert_eq!(read, Record { manager_asked: false, ..record(End::GateClosed) });
    }

    #[test]
    fn every_torn_record_is_refused() {
        let text = record(End::Exited(Exit::Code(0))).to_text();
        assert_eq!(Record::parse(b""), Err(BadRecord::Empty));
        assert_eq!(Record::parse(&[0; RECORD_BYTES]), Err(BadRecord::Empty));
        for cut in 1..text.len() {
            assert!(Record::parse(&text.as_bytes()[..cut]).is_err(), "cut at {cut}");
        }
    }

    proptest! {
        #[test]
        fn one_flipped_bit_is_noticed(at in 0_usize..200, bit in 0_u8..8) {
            let mut bytes = record(End::GateClosed).to_text().into_bytes();
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
            prop_assert!(Record::parse(&bytes).is_err());
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Record::parse(&bytes);
        }
    }
}
