//! `tenured-exec`: the small parent of one command.
//!
//! Two halves of one program. The *supervisor* makes the command's side, hands its pidfd to the daemon, waits
//! for the command and then for every descendant, keeps their output, and writes the exit record when nothing
//! of the tree is left. The *command's side* puts on what the task asks for, waits at its gate and becomes
//! the command.
//!
//! Owns the record and the output file of one run. Never talks to the board or the bus, never holds more than
//! a fixed amount of memory, and needs the daemon only until the gate is open.
//!
//! `tenured-exec --launcher` is the one who makes supervisors where the daemon must not: see `launcher.rs`.

mod alike;
mod command;
mod descriptors;
mod journal;
mod launcher;
mod output;
mod record;
mod status;
mod supervisor;
mod tree;

use std::ffi::OsStr;
use std::process::ExitCode;

/// The exit code where the command never ran or its end is not known.
const NO_END: u8 = 125;

/// Runs as the supervisor of one run, or as the launcher; called when the program's name (argv\[0\]) is
/// `tenured-exec`.
///
/// A supervisor ends as the command ended: with its code, or by its signal.
pub fn main() -> ExitCode {
    ExitCode::from(run(std::env::args_os().nth(1).as_deref()))
}

fn run(first_argument: Option<&OsStr>) -> u8 {
    if first_argument.is_some_and(|argument| argument == "--launcher") {
        return launcher::run().unwrap_or_else(|error| {
            launcher::say(&format!("the launcher ends: {error}"));
            1
        });
    }
    supervisor::run().unwrap_or(NO_END)
}

#[cfg(test)]
mod entry {
    //! The test program is `tenured-exec` too, and the odd processes that the tests look at, so that a test
    //! needs no other program to be built. Decided by argv\[0\] before the tests' own threads are made.

    #![expect(unsafe_code, reason = "runs before main")]

    use std::ffi::{CStr, OsStr, c_char, c_int};
    use std::os::unix::ffi::OsStrExt as _;

    #[used]
    #[unsafe(link_section = ".init_array")]
    static ENTRY: extern "C" fn(c_int, *const *const c_char) = entry;

    extern "C" fn entry(count: c_int, words: *const *const c_char) {
        let words: Vec<&CStr> = (0..usize::try_from(count).unwrap_or(0))
            // SAFETY: the C library passes argc and argv to initialisers.
            .map(|at| unsafe { CStr::from_ptr(*words.add(at)) })
            .collect();
        let code = match words.split_first() {
            Some((name, rest)) if *name == c"tenured-exec" => {
                super::run(rest.first().map(|word| OsStr::from_bytes(word.to_bytes())))
            }
            Some((name, rest)) if *name == c"tenured-odd" => crate::linux::tests::odd::main(rest),
            _ => return,
        };
        // SAFETY: ends the process.
        unsafe { nix::libc::_exit(c_int::from(code)) }
    }
}
