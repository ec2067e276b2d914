//! `/proc/P/stat`, parsed as bytes after the **last** `)`.
//!
//! A process may be called `a) R 1 (b`, hold spaces, a newline or bytes that are no UTF-8: splitting the
//! line at white space reads another field, and reading it as text fails.
//!
//! Source: proc_pid_stat(5); fields are counted from 1 as the manual does.

use std::io;

use crate::linux::proc::ProcRoot;

/// A kernel thread. Source: include/linux/sched.h.
const PF_KTHREAD: u64 = 0x0020_0000;

/// What we use of one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Field 3. `Z` is not a proof of death: a leader that exited while other threads run shows it too.
    pub state: u8,
    /// Field 4.
    pub parent_pid: i32,
    /// Field 9 holds PF_KTHREAD.
    pub is_kernel_thread: bool,
    /// Field 22, clock ticks after the boot of the reader's time namespace.
    pub start_ticks: u64,
    /// Field 51: where the environment ends; 0 without a memory map, while an exec is under way, or where
    /// the reader may not know.
    pub environment_end: u64,
}

impl Stat {
    /// Parses one line.
    ///
    /// # Errors
    /// `InvalidData` where a field is missing or no number.
    pub fn parse(line: &[u8]) -> io::Result<Self> {
        Self::fields(line).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no valid stat line"))
    }

    fn fields(line: &[u8]) -> Option<Self> {
        let close = line.iter().rposition(|byte| *byte == b')')?;
        let rest = std::str::from_utf8(line.get(close + 1..)?).ok()?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // The first one here is field 3.
        let field = |number: usize| fields.get(number - 3).copied();
        let [state] = field(3)?.as_bytes() else { return None };
        Some(Self {
            state: *state,
            parent_pid: field(4)?.parse().ok()?,
            is_kernel_thread: field(9)?.parse::<u64>().ok()? & PF_KTHREAD != 0,
            start_ticks: field(22)?.parse().ok()?,
            environment_end: field(51).and_then(|text| text.parse().ok()).unwrap_or(0),
        })
    }

    /// Reads the line of a process.
    ///
    /// # Errors
    /// What read(2) said, or `InvalidData`.
    pub fn read(root: &ProcRoot, pid: i32) -> io::Result<Self> {
        Self::parse(&root.read(pid, "stat")?)
    }
}
