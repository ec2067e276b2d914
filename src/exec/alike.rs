//! How the supervisor itself ends: as its command did, so that who looks only at processes sees the same.

#![expect(unsafe_code, reason = "signal dispositions have no safe call")]

use std::convert::Infallible;
use std::io;

use nix::libc;
use nix::sys::signal::SigSet;

use crate::core::record::End;
use crate::core::retry::Exit;
use crate::exec::NO_END;
use crate::linux::pidfd;

/// What a shell says of a command that it cannot execute.
pub(super) const fn shell_code(errno: i32) -> i32 {
    if errno == libc::ENOENT || errno == libc::ENOTDIR { 127 } else { 126 }
}

/// Ends as the command ended: by its signal, or with the code that is returned.
pub(super) fn exit_alike(end: End) -> u8 {
    match end {
        End::Exited(Exit::Code(code)) | End::ExecFailed { code, .. } => u8::try_from(code).unwrap_or(NO_END),
        End::Exited(Exit::Signal(signal)) => {
            let Err(_) = end_by(signal);
            u8::try_from(128 + signal).unwrap_or(NO_END)
        }
        End::GateClosed | End::SetupFailed { .. } => NO_END,
    }
}

/// Returns only where the signal does not end this process.
fn end_by(signal: i32) -> io::Result<Infallible> {
    let no_core = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
    rustix::process::setrlimit(rustix::process::Resource::Core, no_core)?;
    // SAFETY: SIG_DFL is a valid disposition.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
    SigSet::empty().thread_set_mask()?;
    pidfd::signal_self(signal)?;
    Err(io::ErrorKind::Other.into())
}
