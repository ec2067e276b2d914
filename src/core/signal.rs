//! Signals by their names.
//!
//! Source: signal(7); the numbers of x86 and ARM, which Linux keeps for ever.

/// In the order of their numbers, from 1.
const NAMES: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE",
    "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ",
    "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];

/// The first real-time signal that glibc leaves to programs.
const RTMIN: i32 = 34;
/// The last signal.
const MAX: i32 = 64;

/// The number of a signal: `SIGTERM`, `TERM`, `15`, `SIGRTMIN+3`.
pub fn number(word: &str) -> Option<i32> {
    let name = word.strip_prefix("SIG").unwrap_or(word);
    if let Some(at) = NAMES.iter().position(|signal| *signal == name) {
        return i32::try_from(at + 1).ok();
    }
    let number = match name.strip_prefix("RTMIN") {
        Some("") => Some(RTMIN),
        Some(offset) => {
            let offset: u8 = offset.strip_prefix('+')?.parse().ok()?;
            Some(RTMIN + i32::from(offset))
        }
        None => word.parse().ok(),
    };
    number.filter(|number| (1..=MAX).contains(number))
}

/// The name of a signal; its number where it has none.
pub fn name(number: i32) -> String {
    let index = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
    match index.and_then(|index| NAMES.get(index)) {
        Some(name) => format!("SIG{name}"),
        None if number == RTMIN => "SIGRTMIN".to_owned(),
        None if (RTMIN..=MAX).contains(&number) => format!("SIGRTMIN+{}", number - RTMIN),
        None => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back() {
        for signal in 1..=MAX {
            assert_eq!(number(&name(signal)), Some(signal), "{signal}");
        }
        assert_eq!((number("SIGTERM"), number("TERM"), number("15")), (Some(15), Some(15), Some(15)));
        assert_eq!((name(15), name(9), name(31)), ("SIGTERM".into(), "SIGKILL".into(), "SIGSYS".into()));
        assert_eq!((name(34), name(37), name(33)), ("SIGRTMIN".into(), "SIGRTMIN+3".into(), "33".into()));
    }

    #[test]
    fn what_is_no_signal_has_no_number() {
        for word in ["", "0", "65", "-1", "sigterm", "SIG", "SIGRTMIN+31", "SIGRTMIN-1", "SIGFOO", "+"] {
            assert_eq!(number(word), None, "{word:?}");
        }
    }
}
