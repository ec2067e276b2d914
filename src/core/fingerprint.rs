//! What proves that a process is the one we mean: `<epoch>|<start>|<inode>`.
//!
//! Owns the text forms and every comparison. Never looks at the host: what was seen comes in as a
//! [`Looked`]. An error while looking is [`Seen::Unknown`], never gone and never another process.
//!
//! Source: proc_pid_stat(5) field 22 (start ticks), namespaces(7), pidfd_open(2); pidfs gives each
//! process an inode that is not used again in a boot (Linux 6.9, 64-bit).

use std::fmt;

/// Which boot, and which view of it: `<boot_id>:<pid namespace>:<time namespace>:<start ticks of PID 1>`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Epoch {
    /// `/proc/sys/kernel/random/boot_id`, 36 characters.
    pub boot_id: String,
    /// Inode of `/proc/self/ns/pid`.
    pub pid_namespace: u64,
    /// Inode of `/proc/self/ns/time`; 0 where the kernel has no time namespaces.
    pub time_namespace: u64,
    /// Field 22 of PID 1's stat as this reader sees it.
    pub init_start_ticks: u64,
}

impl Epoch {
    /// Reads the text form; nothing if it is of another form.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let boot_id = parts.next()?;
        let epoch = Self {
            boot_id: boot_id.to_owned(),
            pid_namespace: decimal(parts.next()?)?,
            time_namespace: decimal(parts.next()?)?,
            init_start_ticks: decimal(parts.next()?)?,
        };
        (parts.next().is_none() && is_boot_id(boot_id)).then_some(epoch)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{}:{}:{}:{}",
            self.boot_id, self.pid_namespace, self.time_namespace, self.init_start_ticks
        )
    }
}

/// Accepts digits only: `u64::from_str` would take a sign.
fn decimal(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

fn is_boot_id(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

/// The full proof of one process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    /// The boot and the view it was captured in.
    pub epoch: Epoch,
    /// Field 22 of its stat, clock ticks.
    pub start_ticks: u64,
    /// Inode of its pidfd where the kernel has pidfs.
    pub inode: Option<u64>,
}

impl Fingerprint {
    /// Reads the text form; nothing if it is of another form.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('|');
        let epoch = Epoch::parse(parts.next()?)?;
        let start_ticks = decimal(parts.next()?)?;
        let inode = match parts.next()? {
            "-" => None,
            digits => Some(decimal(digits)?),
        };
        parts.next().is_none().then_some(Self { epoch, start_ticks, inode })
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.inode {
            Some(inode) => write!(formatter, "{}|{}|{inode}", self.epoch, self.start_ticks),
            None => write!(formatter, "{}|{}|-", self.epoch, self.start_ticks),
        }
    }
}

/// A fingerprint as the board holds it, with what it can prove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored {
    /// No process by design (lease-only), or none yet.
    None,
    /// A pid without any fingerprint.
    Absent,
    /// Capture failed, or the text does not parse.
    Unverified,
    /// Start ticks alone: old rows and imports.
    StartOnly(u64),
    /// A claimant gave a bare number: liveness only.
    Named(Fingerprint),
    /// Captured through a pidfd.
    Proven(Fingerprint),
}

/// The cell of a fingerprint column, before it is understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    /// SQL NULL.
    Null,
    /// An integer.
    Integer(i64),
    /// A text; bytes that are not UTF-8 and other types arrive as something that does not parse.
    Text(String),
}

const NAMED_PREFIX: &str = "named:";
/// The text of [`Stored::Unverified`].
pub const UNVERIFIED: &str = "unverified";

impl Stored {
    /// Understands a cell, given whether the row has a pid at all.
    pub fn read(has_pid: bool, cell: &Cell) -> Self {
        if !has_pid {
            return Self::None;
        }
        match cell {
            Cell::Null => Self::Absent,
            Cell::Integer(ticks) => u64::try_from(*ticks).map_or(Self::Unverified, Self::StartOnly),
            Cell::Text(text) => Self::read_text(text),
        }
    }

    fn read_text(text: &str) -> Self {
        if let Some(named) = text.strip_prefix(NAMED_PREFIX) {
            return Fingerprint::parse(named).map_or(Self::Unverified, Self::Named);
        }
        if let Some(ticks) = decimal(text) {
            return Self::StartOnly(ticks);
        }
        Fingerprint::parse(text).map_or(Self::Unverified, Self::Proven)
    }

    /// The cell to write.
    pub fn cell(&self) -> Cell {
        match self {
            Self::None | Self::Absent => Cell::Null,
            Self::Unverified => Cell::Text(UNVERIFIED.to_owned()),
            Self::StartOnly(ticks) => {
                i64::try_from(*ticks).map_or_else(|_| Cell::Text(ticks.to_string()), Cell::Integer)
            }
            Self::Named(print) => Cell::Text(format!("{NAMED_PREFIX}{print}")),
            Self::Proven(print) => Cell::Text(print.to_string()),
        }
    }

    /// The word for the kind, as the bus shows it.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Absent => "absent",
            Self::Unverified => UNVERIFIED,
            Self::StartOnly(_) => "start-only",
            Self::Named(_) => "named",
            Self::Proven(_) => "proven",
        }
    }

    /// The epoch inside the text, where it has one.
    pub const fn epoch(&self) -> Option<&Epoch> {
        match self {
            Self::Named(print) | Self::Proven(print) => Some(&print.epoch),
            Self::None | Self::Absent | Self::Unverified | Self::StartOnly(_) => None,
        }
    }
}

/// What one look at a pid found. Start and inode were read while its pidfd was shown to be still alive,
/// so they belong to the process the pidfd names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Looked {
    /// A live process.
    Present {
        /// Field 22 of its stat.
        start_ticks: u64,
        /// Inode of its pidfd, where the kernel has pidfs.
        inode: Option<u64>,
    },
    /// ESRCH in our own pid namespace, or its pidfd is readable.
    Gone,
    /// Anything else, errors of every kind included.
    Unknown,
}

/// What a look means against what is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Seen {
    /// The process we mean.
    Same,
    /// A live process that is not the one we mean.
    Other,
    /// A live process, and nothing to compare it with.
    Present,
    /// No such process.
    Gone,
    /// Not known.
    Unknown,
}

impl Stored {
    /// Compares. The caller has made sure that the stored boot is this one: across boots nothing is
    /// compared.
    ///
    /// `has_epoch` says whether any epoch is known for the row: start ticks alone that are equal prove
    /// liveness without it, but ticks that differ prove nothing.
    pub fn compare(&self, looked: Looked, has_epoch: bool) -> Seen {
        let Looked::Present { start_ticks, inode } = looked else {
            return if looked == Looked::Gone { Seen::Gone } else { Seen::Unknown };
        };
        match self {
            Self::None | Self::Absent | Self::Unverified => Seen::Present,
            Self::StartOnly(ticks) if *ticks == start_ticks => Seen::Same,
            Self::StartOnly(_) if has_epoch => Seen::Other,
            Self::StartOnly(_) => Seen::Present,
            Self::Named(print) | Self::Proven(print) => {
                let inode_differs = matches!((print.inode, inode), (Some(ours), Some(seen)) if ours != seen);
                if print.start_ticks == start_ticks && !inode_differs { Seen::Same } else { Seen::Other }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const EPOCH: &str = "6b2d4f0a-0d2c-4c7e-9a31-1f4a7f1f2a3b:4026531836:4026531834:2";

    fn epoch() -> Epoch {
        Epoch::parse(EPOCH).unwrap()
    }

    fn print(inode: Option<u64>) -> Fingerprint {
        Fingerprint { epoch: epoch(), start_ticks: 77, inode }
    }

    #[test]
    fn texts_come_back_as_they_went() {
        assert_eq!(epoch().to_string(), EPOCH);
        for stored in [
            Stored::Proven(print(Some(9))),
            Stored::Proven(print(None)),
            Stored::Named(print(Some(9))),
            Stored::StartOnly(5),
            Stored::StartOnly(u64::MAX),
            Stored::Unverified,
            Stored::Absent,
        ] {
            assert_eq!(Stored::read(true, &stored.cell()), stored);
        }
        assert_eq!(Stored::read(false, &Cell::Integer(4)), Stored::None);
    }

    #[test]
    fn what_does_not_parse_is_unverified() {
        let full = print(Some(9)).to_string();
        let beside = [
            String::new(),
            "pid".into(),
            "-1".into(),
            "+1".into(),
            "named:".into(),
            "named:77".into(),
            format!("{full}|"),
            full.replace('|', ":"),
            full.replacen("6b2d", "6b2", 1),
            format!("{EPOCH}|77|+9"),
            format!("{EPOCH}|77"),
        ];
        for text in beside {
            assert_eq!(Stored::read(true, &Cell::Text(text.clone())), Stored::Unverified, "{text:?}");
        }
        assert_eq!(Stored::read(true, &Cell::Integer(-3)), Stored::Unverified);
    }

    #[test]
    fn c04_the_inode_tells_two_processes_of_one_tick_apart() {
        let seen = |inode| Looked::Present { start_ticks: 77, inode };
        assert_eq!(Stored::Proven(print(Some(9))).compare(seen(Some(9)), true), Seen::Same);
        assert_eq!(Stored::Proven(print(Some(9))).compare(seen(Some(8)), true), Seen::Other);
        // Where either side has no inode, ticks are all there is; 3-tuple (boot, pid, start) must do.
        assert_eq!(Stored::Proven(print(None)).compare(seen(Some(8)), true), Seen::Same);
        assert_eq!(Stored::Proven(print(Some(9))).compare(seen(None), true), Seen::Same);
    }

    #[test]
    fn ticks_alone_deny_only_with_an_epoch() {
        let seen = Looked::Present { start_ticks: 78, inode: None };
        assert_eq!(Stored::StartOnly(77).compare(seen, true), Seen::Other);
        assert_eq!(Stored::StartOnly(77).compare(seen, false), Seen::Present);
        assert_eq!(Stored::StartOnly(78).compare(seen, false), Seen::Same);
    }

    #[test]
    fn an_error_while_looking_is_unknown_for_every_kind() {
        for stored in [
            Stored::None,
            Stored::Absent,
            Stored::Unverified,
            Stored::StartOnly(1),
            Stored::Named(print(None)),
            Stored::Proven(print(None)),
        ] {
            assert_eq!(stored.compare(Looked::Unknown, true), Seen::Unknown);
            assert_eq!(stored.compare(Looked::Gone, true), Seen::Gone);
        }
    }

    proptest! {
        #[test]
        fn no_text_panics_and_every_parsed_one_is_stable(text in ".{0,120}") {
            if let Some(print) = Fingerprint::parse(&text) {
                prop_assert_eq!(Fingerprint::parse(&print.to_string()), Some(print));
            }
        }
    }
}
