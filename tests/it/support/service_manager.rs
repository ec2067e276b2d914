//! A small service manager: hears what the daemon says by sd_notify(3), keeps the descriptors that it hands
//! over, and gives them back to its next life.

#![expect(unsafe_code, reason = "descriptors are put in place between fork and exec")]

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use super::wait::{eventually, until};

/// Where the descriptors lie until a shell puts them where they belong.
const FIRST: i32 = 100;

/// See the module.
pub struct ServiceManager {
    socket: UnixDatagram,
    path: PathBuf,
    /// Variables for the next life, such as `WATCHDOG_USEC`.
    pub variables: Vec<(&'static str, String)>,
    /// What is kept, by name.
    pub kept: Vec<(String, OwnedFd)>,
    heard: Vec<String>,
}

impl ServiceManager {
    pub fn start(directory: &Path) -> Self {
        let path = directory.join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_nonblocking(true).unwrap();
        Self { socket, path, variables: Vec::new(), kept: Vec::new(), heard: Vec::new() }
    }

    /// The command as this manager would start it.
    pub fn command(&self, plain: &Command) -> Command {
        let mut command = Command::new("/bin/bash");
        let places: String = (0..self.kept.len())
            .map(|at| {
                format!("exec {}<&{from} {from}<&-; ", at + 3, from = FIRST + i32::try_from(at).unwrap())
            })
            .collect();
        let pid = if self.kept.is_empty() { "" } else { "export LISTEN_PID=$$; " };
        command.arg("-c").arg(format!("{places}{pid}exec \"$@\"")).arg("bash");
        command.arg(plain.get_program()).args(plain.get_args());
        for (key, value) in plain.get_envs() {
            match value {
                Some(value) => command.env(key, value),
                None => command.env_remove(key),
            };
        }
        command.env("NOTIFY_SOCKET", &self.path);
        command.envs(self.variables.iter().map(|(key, value)| (*key, value)));
        let names: Vec<&str> = self.kept.iter().map(|(name, _)| name.as_str()).collect();
        command.env("LISTEN_FDS", self.kept.len().to_string()).env("LISTEN_FDNAMES", names.join(":"));
        let numbers: Vec<i32> = self.kept.iter().map(|(_, fd)| fd.as_raw_fd()).collect();
        let put = move || {
            for (number, place) in numbers.iter().zip(FIRST..) {
                // SAFETY: dup2 is async-signal-safe and touches no memory.
                if unsafe { nix::libc::dup2(*number, place) } < 0 {
                    return Err(std::io::Error::last_os_error());
                }
            }
            Ok(())
        };
        // SAFETY: what runs between fork and exec makes system calls only.
        unsafe { command.pre_exec(put) };
        command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null());
        command
    }

    /// Takes in what has come.
    fn hear(&mut self) {
        loop {
            let mut text = [0; 4_096];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut parts = [IoSliceMut::new(&mut text)];
            let Ok(message) = recvmsg(&self.socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) else {
                return;
            };
            let descriptors: Vec<OwnedFd> = control
                .drain()
                .filter_map(|message| match message {
                    RecvAncillaryMessage::ScmRights(rights) => Some(rights),
                    _ => None,
                })
                .flatten()
                .collect();
            let text = std::str::from_utf8(&text[..message.bytes]).unwrap().to_owned();
            self.obey(&text, descriptors);
            self.heard.push(text);
        }
    }

    /// As the manager does with its store.
    fn obey(&mut self, text: &str, descriptors: Vec<OwnedFd>) {
        let has = |line: &str| text.lines().any(|said| said == line);
        let name = text.lines().find_map(|line| line.strip_prefix("FDNAME=")).unwrap_or("stored");
        if has("FDSTORE=1") {
            assert!(has("FDPOLL=0"), "it would be dropped at the end of its process: {text:?}");
            assert_eq!(descriptors.len(), 1, "{text:?}");
            self.kept.extend(descriptors.into_iter().map(|fd| (name.to_owned(), fd)));
        }
        if has("FDSTOREREMOVE=1") {
            self.kept.retain(|(kept, _)| kept != name);
        }
    }

    /// Everything that was said so far.
    pub fn heard(&mut self) -> &[String] {
        self.hear();
        &self.heard
    }

    /// Forgets what was said so far.
    pub fn forget(&mut self) {
        self.hear();
        self.heard.clear();
    }

    /// Waits until a message has this line; the message.
    #[track_caller]
    pub fn hears(&mut self, line: &str) -> String {
        let mut look = || self.find(line);
        eventually("the daemon to say something", &mut look)
    }

    /// Whether a message has this line within a time.
    pub fn hears_within(&mut self, bound: std::time::Duration, line: &str) -> bool {
        until(bound, || self.find(line)).is_ok()
    }

    fn find(&mut self, line: &str) -> Result<String, String> {
        let heard = self.heard();
        let found = heard.iter().find(|text| text.lines().any(|said| said == line));
        found.cloned().ok_or_else(|| format!("not {line:?} in {heard:?}"))
    }

    /// The names of what is kept, sorted.
    pub fn names(&mut self) -> Vec<String> {
        self.hear();
        let mut names: Vec<String> = self.kept.iter().map(|(name, _)| name.clone()).collect();
        names.sort();
        names
    }
}
