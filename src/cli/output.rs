//! A run's output, byte by byte: from its beginning, and as it grows.
//!
//! Where it goes to the journal, that is asked. Else reads the descriptor that OpenOutput gives. Growth is
//! told by inotify(7); where the file is not ours to watch, we look every half second. When the file is full
//! it is put aside and a new one begun: the old one is read to its end first.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::net::unix::pipe;

use crate::bus::proxy::{ManagerProxy, Options};
use crate::cli::failure::Failure;
use crate::cli::follow::Follower;
use crate::cli::journal::Journal;
use crate::cli::render::aside;
use crate::cli::row::Fields as _;
use crate::core::limits::OUTPUT_FILE_BYTES;

/// Where growth is not told, we look for it this often.
const LOOK: Duration = Duration::from_millis(500);
/// Where it is told, we look this often all the same.
const SAFETY_LOOK: Duration = Duration::from_secs(5);
/// While a full file makes room for the next, we look this often for it, and so many times.
const CHANGE_PAUSE: Duration = Duration::from_millis(20);
const CHANGE_LOOKS: u32 = 5;
/// One read.
const CHUNK: usize = 64 * 1_024;

/// One file of output, read from its beginning.
#[derive(Debug)]
struct Part {
    file: File,
    offset: u64,
    growth: Option<pipe::Receiver>,
}

impl Part {
    fn new(descriptor: zbus::OwnedFd) -> Self {
        let file = File::from(OwnedFd::from(descriptor));
        Self { growth: watch(&file).ok(), file, offset: 0 }
    }

    /// Whether both are the same file.
    fn is(&self, other: &Self) -> bool {
        let identity = |part: &Self| part.file.metadata().ok().map(|seen| (seen.dev(), seen.ino()));
        identity(self).is_some_and(|identity_here| identity(other) == Some(identity_here))
    }

    /// Whether the next write may go to a new file.
    const fn is_nearly_full(&self) -> bool {
        self.offset >= OUTPUT_FILE_BYTES - (OUTPUT_FILE_BYTES / 8)
    }

    /// Copies what is new to standard output. Lets others run between two reads: a worker may write faster
    /// than a terminal shows, and Ctrl-C must be heard all the same.
    async fn pump(&mut self) -> Result<(), Failure> {
        let mut buffer = vec![0; CHUNK];
        loop {
            let length = self.file.read_at(&mut buffer, self.offset)?;
            let Some(read) = buffer.get(..length).filter(|read| !read.is_empty()) else { return Ok(()) };
            let mut out = io::stdout().lock();
            out.write_all(read)?;
            out.flush()?;
            drop(out);
            self.offset = self.offset.saturating_add(length as u64);
            tokio::task::yield_now().await;
        }
    }

    /// Waits until the file may have grown.
    async fn grown(&self) {
        let Some(growth) = &self.growth else { return tokio::time::sleep(LOOK).await };
        if let Ok(Ok(())) = tokio::time::timeout(SAFETY_LOOK, growth.readable()).await {
            // What the events say does not matter, only that there were some.
            let mut events = [0; 4_096];
            while growth.try_read(&mut events).is_ok_and(|length| length > 0) {}
        }
    }
}

/// Watches an open file. Source: inotify(7); the path leads to the file that the descriptor holds. The queue
/// is read like a pipe, and is no pipe: hence unchecked.
fn watch(file: &File) -> io::Result<pipe::Receiver> {
    let queue = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    inotify::add_watch(&queue, path, WatchFlags::MODIFY | WatchFlags::MOVE_SELF)?;
    pipe::Receiver::from_owned_fd_unchecked(queue)
}

/// The output of one run.
#[derive(Debug)]
pub enum Output {
    /// In files.
    Files(Files),
    /// In the journal.
    Journal(Journal),
}

impl Output {
    /// Opens it, at its beginning.
    ///
    /// # Errors
    /// Refusals, and where the daemon does not answer.
    pub async fn open(follower: &mut Follower<'_>, run: u64) -> Result<Self, Failure> {
        match Files::open(follower, run).await {
            Ok(files) => Ok(Self::Files(files)),
            Err(refused) if refused.is_named("InvalidArgument") => {
                let row = follower.ask(async |manager| manager.get_run(run).await).await?;
                let number = row.number("Task");
                let task = follower.ask(async |manager| manager.get_task(number).await).await?;
                Journal::of(follower.session().endpoint(), &row, &task)?.map(Self::Journal).ok_or(refused)
            }
            Err(other) => Err(other),
        }
    }

    /// Waits until there may be more.
    pub async fn grown(&self) {
        match self {
            Self::Files(files) => files.part.grown().await,
            Self::Journal(journal) => journal.grown().await,
        }
    }

    /// Copies what is new to standard output. `ended` says that no more will come.
    ///
    /// # Errors
    /// As [`Output::open`], and where standard output cannot be written.
    pub async fn pump(&mut self, follower: &mut Follower<'_>, ended: bool) -> Result<(), Failure> {
        match self {
            Self::Files(files) => files.pump(follower, ended).await,
            Self::Journal(journal) => journal.pump(ended).await,
        }
    }
}

/// The output of one run, in one file after the other.
#[derive(Debug)]
pub struct Files {
    run: u64,
    part: Part,
}

impl Files {
    /// The part that was put aside first, where there is one.
    async fn open(follower: &mut Follower<'_>, run: u64) -> Result<Self, Failure> {
        let current = open_current(follower, run).await?;
        let part = match follower.ask(async |manager| open(manager, run, true).await).await {
            Ok(older) => older,
            Err(_) => current,
        };
        Ok(Self { run, part: Part::new(part) })
    }

    /// Copies what is new, across the files it is in.
    async fn pump(&mut self, follower: &mut Follower<'_>, ended: bool) -> Result<(), Failure> {
        self.part.pump().await?;
        while ended || self.part.is_nearly_full() {
            let current = Part::new(open_current(follower, self.run).await?);
            if current.is(&self.part) {
                break;
            }
            // Put aside: what came between our last look and that moment is at its end.
            self.part.pump().await?;
            let run = self.run;
            let older = Part::new(follower.ask(async |manager| open(manager, run, true).await).await?);
            self.part = if older.is(&self.part) || older.is(&current) {
                current
            } else {
                aside(&format!(
                    "output of run {} may be missing here: it comes faster than it is read",
                    self.run
                ));
                older
            };
            self.part.pump().await?;
        }
        Ok(())
    }
}

/// Opens the newest file. For a moment, between the full file and the next one, there is none.
async fn open_current(follower: &mut Follower<'_>, run: u64) -> Result<zbus::OwnedFd, Failure> {
    for _ in 0..CHANGE_LOOKS {
        match follower.ask(async |manager| open(manager, run, false).await).await {
            Err(failure) if failure.is_named("InvalidArgument") => tokio::time::sleep(CHANGE_PAUSE).await,
            other => return other,
        }
    }
    follower.ask(async |manager| open(manager, run, false).await).await
}

async fn open(manager: &ManagerProxy<'static>, run: u64, older: bool) -> zbus::Result<zbus::OwnedFd> {
    let mut options = Options::new();
    if older {
        options.insert("Older", true.into());
    }
    manager.open_output(run, &options).await
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "makes the files that a daemon would hand over")]
mod tests {
    use super::*;

    #[tokio::test]
    async fn growth_is_told_and_files_are_told_apart() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("7.log");
        let mut writer = File::create(&path).unwrap();
        let part = |path: &std::path::Path| Part::new(OwnedFd::from(File::open(path).unwrap()).into());
        let first = part(&path);
        assert!(first.growth.is_some());
        writer.write_all(b"x").unwrap();
        tokio::time::timeout(Duration::from_secs(3), first.grown()).await.expect("the write was not told");
        let aside = directory.path().join("7.log.1");
        std::fs::rename(&path, &aside).unwrap();
        File::create(&path).unwrap();
        assert!(first.is(&part(&aside)) && !first.is(&part(&path)));
    }
}
