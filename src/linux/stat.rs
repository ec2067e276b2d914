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
    /// Fields 50 and 51: the environment begins where it ends. Not so without a memory map, while an exec is
    /// under way, or where the reader may not know: then both are 0.
    pub has_empty_environment: bool,
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
        // The newline shows that nothing was cut off: a cut number is a number too.
        let line = line.strip_suffix(b"\n")?;
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
            has_empty_environment: field(50) == field(51) && field(51).is_some_and(|end| end != "0"),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// As the kernel writes it, of a process called by these bytes.
    fn line(name: &[u8]) -> Vec<u8> {
        let rest = b" S 7 8 9 0 -1 4194560 11 12 13 14 15 16 17 18 20 0 1 0 4711 19 20 21 1 1 0 0 0 0 0 0 0 0 0 0 17 1 \
            0 0 0 0 0 31 32 33 34 35 36 37 0\n";
        [b"123 (".as_slice(), name, b")", rest].concat()
    }

    #[test]
    fn c05_every_name_gives_the_same_fields() {
        let wanted = Stat {
            state: b'S',
            parent_pid: 7,
            is_kernel_thread: false,
            start_ticks: 4711,
            has_empty_environment: false,
        };
        let names: [&[u8]; 9] = [
            b"sh",
            b"",
            b"a) R 1 (b",
            b"two words",
            b"x\ny",
            b"\xff\xfe\x80",
            b")",
            b"((((",
            b") Z 1 2 3 4 5 6 7",
        ];
        for name in names {
            assert_eq!(Stat::parse(&line(name)).unwrap(), wanted, "{name:?}");
        }
    }

    #[test]
    fn a_kernel_thread_is_known_by_its_flag() {
        let of_thread = String::from_utf8(line(b"kthreadd")).unwrap().replace("4194560", "2129984");
        assert!(Stat::parse(of_thread.as_bytes()).unwrap().is_kernel_thread);
    }

    #[test]
    fn an_environment_is_empty_only_where_there_is_a_place_for_it() {
        let with = |end: &str| {
            let text = String::from_utf8(line(b"sh")).unwrap().replace("36 37 0\n", end);
            Stat::parse(text.as_bytes()).unwrap().has_empty_environment
        };
        assert!(with("37 37 0\n"));
        assert!(!with("36 37 0\n") && !with("0 0 0\n") && !with("\n"));
    }

    #[test]
    fn what_is_no_line_is_refused() {
        let whole = line(b"sh");
        for cut in 0..whole.len() {
            assert!(Stat::parse(&whole[..cut]).is_err(), "cut at {cut}");
        }
        for text in ["", ")", "1 (a) SS 1", "1 (a) S x", "1 (a) S 1 1 1 1 1 x 1 1 1 1 1 1 1 1 1 1 1 1 1 1"] {
            assert!(Stat::parse(text.as_bytes()).is_err(), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_name_is_misread(name in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..16)) {
            proptest::prop_assert_eq!(Stat::parse(&line(&name)).unwrap().start_ticks, 4711);
        }
    }
}
