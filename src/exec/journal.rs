//! A stream to the journal, connected by the process whose lines it will carry.
//!
//! Source: systemd's native stream protocol as sd_journal_stream_fd(3) opens it: identifier, unit, priority,
//! level prefix, and three flags that forward nowhere, each on a line.

use std::io::{self, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

/// Priority of a line that does not begin with one: info. Source: syslog(3).
const INFO: u8 = 6;

/// Opens a stream. Connect before the ids are given up: the journal believes a unit only from root.
pub(super) fn open(socket: &str, identifier: &str, unit: &str) -> io::Result<OwnedFd> {
    let mut stream = UnixStream::connect(socket)?;
    stream.shutdown(Shutdown::Read)?;
    stream.write_all(header(identifier, unit).as_bytes())?;
    Ok(stream.into())
}

fn header(identifier: &str, unit: &str) -> String {
    let one_line = |text: &str| text.replace(|letter: char| letter.is_control(), "_");
    format!("{}\n{}\n{INFO}\n1\n0\n0\n0\n", one_line(identifier), one_line(unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_smuggle_a_line_in() {
        assert_eq!(header("tenured-4\nx", "a.scope"), "tenured-4_x\na.scope\n6\n1\n0\n0\n0\n");
    }
}
