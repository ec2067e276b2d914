//! What the command's side tells its supervisor on the way to the exec: a pipe that the exec itself closes.

use std::io;
use std::os::fd::AsFd;

use crate::core::record::Setup;

/// One word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// Everything is put on; it waits at the gate.
    Ready,
    /// A step failed, and it ends.
    SetupFailed(Setup, i32),
    /// The gate was opened; the exec follows.
    GatePassed,
    /// The exec failed, and it ends.
    ExecFailed(i32),
}

/// Bytes of a word. Less than PIPE_BUF, so that a word is never torn.
const WORD_BYTES: usize = 8;

const SETUPS: [Setup; 6] =
    [Setup::Limits, Setup::Credentials, Setup::Directory, Setup::Stdin, Setup::Output, Setup::Other];

impl Word {
    fn to_bytes(self) -> [u8; WORD_BYTES] {
        let (tag, step, errno) = match self {
            Self::Ready => (b'R', 0, 0),
            Self::SetupFailed(step, errno) => {
                let index = SETUPS.iter().position(|known| *known == step).unwrap_or(SETUPS.len() - 1);
                (b'S', u8::try_from(index).unwrap_or(0), errno)
            }
            Self::GatePassed => (b'G', 0, 0),
            Self::ExecFailed(errno) => (b'E', 0, errno),
        };
        let [a, b, c, d] = errno.to_le_bytes();
        [tag, step, 0, 0, a, b, c, d]
    }

    fn parse(bytes: [u8; WORD_BYTES]) -> Option<Self> {
        let [tag, step, _, _, a, b, c, d] = bytes;
        let errno = i32::from_le_bytes([a, b, c, d]);
        match tag {
            b'R' => Some(Self::Ready),
            b'S' => Some(Self::SetupFailed(*SETUPS.get(usize::from(step))?, errno)),
            b'G' => Some(Self::GatePassed),
            b'E' => Some(Self::ExecFailed(errno)),
            _ => None,
        }
    }
}

/// Says one word.
pub(super) fn say(pipe: impl AsFd, word: Word) -> io::Result<()> {
    rustix::io::retry_on_intr(|| rustix::io::write(&pipe, &word.to_bytes()))?;
    Ok(())
}

/// Hears one word; none once the other end is closed.
///
/// # Errors
/// What read(2) said: EAGAIN where nothing was said yet and the pipe does not wait.
pub(super) fn hear(pipe: impl AsFd) -> io::Result<Option<Word>> {
    let mut bytes = [0; WORD_BYTES];
    let read = rustix::io::retry_on_intr(|| rustix::io::read(&pipe, &mut bytes))?;
    if read == 0 {
        return Ok(None);
    }
    let word = if read == WORD_BYTES { Word::parse(bytes) } else { None };
    word.map(Some).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no word of the command's side"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_back() {
        let setups = SETUPS.into_iter().map(|step| Word::SetupFailed(step, -13));
        for word in [Word::Ready, Word::GatePassed, Word::ExecFailed(2)].into_iter().chain(setups) {
            assert_eq!(Word::parse(word.to_bytes()), Some(word));
        }
        assert_eq!(Word::parse([0; WORD_BYTES]), None);
    }
}
