//! The output file of one run: what the tree writes into its pipe, byte for byte, at most `cap` in one file.
//!
//! A full file becomes `<name>.1` and a new one is begun; so between one and two caps of the newest output
//! are kept, and the two files one after the other are its exact end. Owns both. Holds one fixed buffer.
//! The daemon is not part of it: it may come and go.
//!
//! A pipe in this process, and not the file itself as the command's output, because only then is there a
//! moment in which nobody writes and the files can change places.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

/// Read and written at once: what a pipe holds.
const BUFFER_BYTES: usize = 65_536;

/// What a turn of the pump found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// Some output.
    Some,
    /// Nothing now.
    Empty,
    /// Nobody holds the other end any more.
    Closed,
}

/// Moves output from the pipe to the file.
#[derive(Debug)]
pub(super) struct Pump {
    pipe: OwnedFd,
    directory: OwnedFd,
    name: String,
    file: File,
    cap_bytes: u64,
    file_bytes: u64,
    buffer: Vec<u8>,
    lost: Option<Lost>,
}

/// Output that found no place.
#[derive(Debug)]
struct Lost {
    bytes: u64,
    error: io::Error,
}

impl Pump {
    /// A pump from `pipe`, which must not wait, to the open `file` called `name` in `directory`.
    ///
    /// # Errors
    /// What fstat(2) said.
    pub(super) fn new(
        pipe: OwnedFd,
        directory: OwnedFd,
        name: String,
        file: File,
        cap_bytes: u64,
    ) -> io::Result<Self> {
        let file_bytes = file.metadata()?.len();
        Ok(Self {
            pipe,
            directory,
            name,
            file,
            cap_bytes: cap_bytes.max(1),
            file_bytes,
            buffer: vec![0; BUFFER_BYTES],
            lost: None,
        })
    }

    /// Moves what one read gives.
    ///
    /// # Errors
    /// What read(2) said. That the file cannot be written is no error: the command must not stand still for
    /// it, so the output is passed over, and the file says how much once it can be written again.
    pub(super) fn turn(&mut self) -> io::Result<Flow> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let read = rustix::io::retry_on_intr(|| rustix::io::read(&self.pipe, &mut buffer));
        let flow = match read {
            Ok(0) => Ok(Flow::Closed),
            Ok(bytes) => {
                self.keep(buffer.get(..bytes).unwrap_or_default());
                Ok(Flow::Some)
            }
            Err(Errno::AGAIN) => Ok(Flow::Empty),
            Err(error) => Err(error.into()),
        };
        self.buffer = buffer;
        flow
    }

    /// Moves all that is there, without waiting for more.
    ///
    /// # Errors
    /// As [`Self::turn`].
    pub(super) fn drain(&mut self) -> io::Result<()> {
        while self.turn()? == Flow::Some {}
        Ok(())
    }

    fn keep(&mut self, bytes: &[u8]) {
        let note = self.lost.as_ref().map(|lost| {
            format!("\n[tenured: {} bytes of output were lost here: {}]\n", lost.bytes, lost.error)
        });
        if let Some(note) = note {
            if self.append(note.as_bytes()).is_err() {
                self.lose(bytes.len());
                return;
            }
            self.lost = None;
        }
        if let Err((rest, error)) = self.append(bytes) {
            self.lost = Some(Lost { bytes: 0, error });
            self.lose(rest);
        }
    }

    fn lose(&mut self, bytes: usize) {
        if let Some(lost) = &mut self.lost {
            lost.bytes = lost.bytes.saturating_add(bytes as u64);
        }
    }

    /// Appends, and begins a new file wherever one is full. An error comes with the number of bytes that
    /// were not written.
    fn append(&mut self, mut bytes: &[u8]) -> Result<(), (usize, io::Error)> {
        while !bytes.is_empty() {
            let room = self.cap_bytes.saturating_sub(self.file_bytes);
            if room == 0 {
                self.rotate().map_err(|error| (bytes.len(), error))?;
                continue;
            }
            let part = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
            let (now, _) = bytes.split_at(part);
            match self.file.write(now) {
                Ok(written) => {
                    self.file_bytes = self.file_bytes.saturating_add(written as u64);
                    bytes = bytes.get(written..).unwrap_or_default();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err((bytes.len(), error)),
            }
        }
        Ok(())
    }

    /// Puts the full file aside and begins a new one. Where that fails nothing has changed, and the cap holds.
    fn rotate(&mut self) -> io::Result<()> {
        let (aside, fresh) = (format!("{}.1", self.name), format!("{}.new", self.name));
        let here = &self.directory;
        // What an interrupted rotation left; a file that is not there is as good.
        let _ = rustix::fs::unlinkat(here, &fresh, AtFlags::empty());
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::openat(here, &fresh, flags, Mode::from_raw_mode(0o640))?;
        // The name is never without a file: whoever opens the output in this moment finds the old or the new.
        let _ = rustix::fs::unlinkat(here, &aside, AtFlags::empty());
        let swapped = rustix::fs::linkat(here, &self.name, here, &aside, AtFlags::empty())
            .and_then(|()| rustix::fs::renameat(here, &fresh, here, &self.name));
        if let Err(error) = swapped {
            let _ = rustix::fs::unlinkat(here, &fresh, AtFlags::empty());
            return Err(error.into());
        }
        self.file = File::from(file);
        self.file_bytes = 0;
        Ok(())
    }
}

impl AsFd for Pump {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}
