//! The real launcher, on a socket that outlives it and is passed to it as systemd does.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Becomes the launcher with standard input as the one socket of sd_listen_fds(3).
const ACTIVATE: &str = "exec 3<&0 </dev/null; LISTEN_FDS=1 LISTEN_PID=$$ exec \"$0\" --launcher";

/// A socket with a launcher behind it.
pub struct Launcher {
    listener: OwnedFd,
    path: PathBuf,
    child: Child,
}

impl Launcher {
    pub fn start(directory: &Path) -> Self {
        let path = directory.join("launcher");
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let listener = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        rustix::net::bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&listener, 128).unwrap();
        let child = activate(&listener);
        Self { listener, path, child }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `kill -9`, and a new one.
    pub fn restart_hard(&mut self) {
        self.end();
        self.child = activate(&self.listener);
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        self.end();
    }
}

fn activate(listener: &OwnedFd) -> Child {
    let mut command = Command::new("sh");
    command.args(["-c", ACTIVATE, env!("CARGO_BIN_EXE_tenured-exec")]);
    command.stdin(listener.try_clone().unwrap()).spawn().unwrap()
}
