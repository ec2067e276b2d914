//! What `tenured-exec` is told about one run, and the form in which it travels: JSON in a sealed memfd, never
//! a command line that everybody can read.

use std::path::PathBuf;

use crate::core::ids::{Nonce, RunId, Uid};

/// Everything about one start. Complete: nothing is taken from the daemon's own surroundings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchSpec {
    /// The run.
    pub run: RunId,
    /// Its random name. It is put into the environment of the supervisor; for the command it belongs
    /// into `environment`.
    pub nonce: Nonce,
    /// The command; a first word without `/` is looked for in the `PATH` of `environment`.
    pub argv: Vec<String>,
    /// `KEY=VALUE`, the whole environment of the command.
    pub environment: Vec<String>,
    /// Who it runs as; as the daemon where none is given.
    pub credentials: Option<Credentials>,
    /// An absolute path.
    pub working_directory: PathBuf,
    /// A path to read from; /dev/null where none is given. Opened as the command's user.
    pub stdin: Option<PathBuf>,
    /// Nice level, -20 to 19.
    pub nice: Option<i32>,
    /// Whether set-user-ID programs lose their power for it.
    pub no_new_privileges: bool,
    /// Where the exit record goes. Made by [`crate::linux::spawn::launch`]; must not be there yet.
    pub record: PathBuf,
    /// Where standard output and error go.
    pub output: OutputTo,
}

/// The ids of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The user.
    pub uid: Uid,
    /// The group.
    pub gid: u32,
    /// The supplementary groups.
    pub groups: Vec<u32>,
}

/// Where standard output and error go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputTo {
    /// /dev/null.
    Nowhere,
    /// A file of at most `cap_bytes`; the one before it is kept beside it as `<path>.1`.
    File {
        /// The file; made if missing, 0640.
        path: PathBuf,
        /// Bytes of one file.
        cap_bytes: u64,
    },
    /// The journal's stream socket, connected by the command itself.
    Journal {
        /// `SYSLOG_IDENTIFIER`.
        identifier: String,
        /// The unit whose lines they are, for a process that is not in it yet.
        unit: Option<String>,
    },
}
