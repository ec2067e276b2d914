//! Names of things: small integers that are never used again, and process ids.
//!
//! A run's number is the fencing token of its claim: the larger one is the later one, on the whole board.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[serde(transparent)]
        pub struct $name(i64);

        impl $name {
            /// Wraps a number of the board.
            pub const fn new(number: i64) -> Self {
                Self(number)
            }

            /// The number as SQLite holds it.
            pub const fn get(self) -> i64 {
                self.0
            }

            /// The number as the bus carries it (`t`). The board gives out positive numbers only.
            pub const fn on_bus(self) -> u64 {
                self.0.unsigned_abs()
            }

            /// A number from the bus. One that the board cannot hold names nothing, so it maps to the
            /// largest number, which AUTOINCREMENT reaches last.
            pub fn from_bus(number: u64) -> Self {
                Self(i64::try_from(number).unwrap_or(i64::MAX))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(formatter)
            }
        }
    };
}

id!(
    /// A task, for ever: never renumbered, never used again.
    TaskId
);
id!(
    /// One attempt at a task; monotone on the board, and thereby the fencing token of its claim.
    RunId
);
id!(
    /// An entry of the event log.
    EventId
);
id!(
    /// A comment on a task.
    CommentId
);
id!(
    /// A boot as this board remembers it: one row of `boots`.
    BootId
);

/// A user id of the host.
pub type Uid = u32;

/// A number that can be a worker's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pid(i32);

impl Pid {
    /// The kernel's own ceiling for `pid_max` on 64-bit machines. Source: proc_sys_kernel(5), `pid_max`.
    pub const MAX: i64 = 4_194_304;

    /// A worker's pid, or nothing for numbers that are no worker's process whatever the kernel says:
    /// 0, 1, negative ones and those above [`Pid::MAX`]. Such a number never reaches a system call.
    pub fn new(number: i64) -> Option<Self> {
        if number <= 1 || number > Self::MAX {
            return None;
        }
        i32::try_from(number).ok().map(Self)
    }

    /// The number, 2 to [`Pid::MAX`].
    pub const fn get(self) -> i32 {
        self.0
    }
}

impl fmt::Display for Pid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// A random name of one run, beside its number, so that a restored backup cannot take old things for
/// its own: 128 bits as 32 lower-case hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Nonce(String);

impl Nonce {
    /// The digits of a nonce.
    pub const DIGITS: usize = 32;

    /// Makes a nonce of 16 random bytes.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Reads a nonce; nothing for a text of any other form.
    pub fn parse(text: &str) -> Option<Self> {
        let well_formed = text.len() == Self::DIGITS
            && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        well_formed.then(|| Self(text.to_owned()))
    }

    /// The 32 digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Nonce {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_no_process_never_become_a_pid() {
        for number in [i64::MIN, -1, 0, 1, Pid::MAX + 1, i64::from(i32::MAX), i64::MAX] {
            assert_eq!(Pid::new(number), None, "{number}");
        }
        assert_eq!(Pid::new(2).map(Pid::get), Some(2));
        assert_eq!(Pid::new(Pid::MAX).map(Pid::get), Some(4_194_304));
    }

    #[test]
    fn a_nonce_has_one_form() {
        let nonce = Nonce::from_bytes([0xab; 16]);
        assert_eq!(Nonce::parse(nonce.as_str()), Some(nonce));
        for bad in ["", "ab", &"A".repeat(32), &"g".repeat(32), &"a".repeat(33)] {
            assert_eq!(Nonce::parse(bad), None, "{bad}");
        }
    }
}
