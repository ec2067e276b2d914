//! What the daemon and `tenured-exec` say to each other over their one socket, and the descriptors that go
//! with it.
//!
//! The daemon sends a hello with the sealed spec and the open files; the supervisor answers that it has begun,
//! and then how far it has come; the byte that opens the gate is read by the command itself. Every message is
//! one packet. What a hardened daemon says to the launcher, which makes the supervisor for it, is here too:
//! one packet with gate and spec, and one answer with the supervisor's pidfd or a fault.
//!
//! Source: unix(7) SCM_RIGHTS, memfd_create(2), fcntl(2) seals.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use serde::{Deserialize, Serialize};

use crate::core::record::Setup;

/// The first word, with the version of everything here.
pub const HELLO: &[u8] = b"tenured-exec 1";
/// What the launcher is asked with, and the version of that; gate and sealed spec come along.
pub const LAUNCH: &[u8] = b"tenured-launcher 1";
/// What opens the gate.
pub const GO: [u8; 1] = *b"G";
/// Descriptors of a hello at most: spec, record, directory of the output, output.
pub const HELLO_FDS: usize = 4;
/// Bytes of a spec at most: more than an exec takes.
const SPEC_BYTES: u64 = 16 << 20;
/// Bytes of a packet at most.
pub const PACKET_BYTES: usize = 256;

/// The answer of the supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The supervisor works and has made the command's side; one more answer follows.
    Begun,
    /// The command waits at its gate; its pidfd comes along. Of the launcher: the supervisor is there; its
    /// pidfd comes along.
    Ready,
    /// A step of the command's side failed; the record says so too.
    SetupFailed {
        /// Which.
        step: Setup,
        /// Its errno.
        errno: i32,
    },
    /// The supervisor itself, or the launcher, could not do its work.
    Fault {
        /// errno, or 0.
        errno: i32,
        /// What it was doing.
        doing: String,
    },
}

const BEGUN: u8 = b'B';
const READY: u8 = b'R';
const SETUP_FAILED: u8 = b'S';
const FAULT: u8 = b'X';

impl Answer {
    /// The packet.
    pub fn to_bytes(&self) -> Vec<u8> {
        let (tag, errno, rest) = match self {
            Self::Begun => (BEGUN, 0, ""),
            Self::Ready => (READY, 0, ""),
            Self::SetupFailed { step, errno } => (SETUP_FAILED, *errno, step.word()),
            Self::Fault { errno, doing } => (FAULT, *errno, doing.as_str()),
        };
        let mut bytes = vec![tag];
        bytes.extend_from_slice(&errno.to_le_bytes());
        bytes.extend(rest.bytes().take(PACKET_BYTES - bytes.len()));
        bytes
    }

    /// Reads a packet; nothing if it is of another form.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (tag, rest) = bytes.split_first()?;
        let (errno, rest) = rest.split_first_chunk::<4>()?;
        let errno = i32::from_le_bytes(*errno);
        let text = std::str::from_utf8(rest).ok()?;
        match *tag {
            BEGUN => Some(Self::Begun),
            READY => Some(Self::Ready),
            SETUP_FAILED => Some(Self::SetupFailed { step: Setup::parse(text)?, errno }),
            FAULT => Some(Self::Fault { errno, doing: text.to_owned() }),
            _ => None,
        }
    }
}

/// Sends one packet with descriptors.
///
/// # Errors
/// What sendmsg(2) said: EPIPE where the other side has ended.
pub fn send(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(HELLO_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    // The space is rounded up, so it may hold one more than the receiver takes.
    let fits = fds.len() <= HELLO_FDS;
    if !(fds.is_empty() || fits && control.push(SendAncillaryMessage::ScmRights(fds))) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many descriptors in one packet"));
    }
    rustix::io::retry_on_intr(|| {
        rustix::net::sendmsg(&socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)
    })?;
    Ok(())
}

/// Receives one packet; no bytes means that the other side has ended.
///
/// # Errors
/// What recvmsg(2) said, or `InvalidData` for a packet that is too long.
pub fn receive(socket: impl AsFd) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut bytes = vec![0; PACKET_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(HELLO_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = rustix::io::retry_on_intr(|| {
        let mut parts = [IoSliceMut::new(&mut bytes)];
        rustix::net::recvmsg(&socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    let fds = control
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        })
        .flatten()
        .collect();
    if message.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a packet was cut off"));
    }
    bytes.truncate(message.bytes);
    Ok((bytes, fds))
}

/// A soft and a hard limit, by the kernel's number. Source: getrlimit(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceLimit {
    /// RLIMIT_*.
    pub resource: u32,
    /// What holds.
    pub soft: u64,
    /// How far it may be raised.
    pub hard: u64,
}

/// The supervisor's half of a spec.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForSupervisor {
    /// The run.
    pub run: i64,
    /// Its random name.
    pub nonce: String,
    /// Name and cap of the output file, where there is one.
    pub output_file: Option<(String, u64)>,
}

/// The command's half of a spec.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForCommand {
    /// The command.
    pub argv: Vec<String>,
    /// Its environment.
    pub environment: Vec<String>,
    /// uid, gid, groups.
    pub credentials: Option<(u32, u32, Vec<u32>)>,
    /// Where it starts.
    pub working_directory: String,
    /// What it reads.
    pub stdin: Option<String>,
    /// Nice level, where one was asked for.
    pub nice: Option<i32>,
    /// Whether set-user-ID programs lose their power.
    pub no_new_privileges: bool,
    /// The limits that hold outside of the daemon.
    pub limits: Vec<ResourceLimit>,
    /// The journal's socket, the identifier and the unit of a stream there.
    pub journal: Option<(String, String, String)>,
}

#[derive(Serialize)]
struct Whole<'part> {
    supervisor: &'part ForSupervisor,
    command: &'part ForCommand,
}

#[derive(Deserialize)]
struct SupervisorHalf {
    supervisor: ForSupervisor,
}

#[derive(Deserialize)]
struct CommandHalf {
    command: ForCommand,
}

const SEALS: SealFlags =
    SealFlags::WRITE.union(SealFlags::GROW).union(SealFlags::SHRINK).union(SealFlags::SEAL);

/// Puts a spec into a sealed memfd.
///
/// # Errors
/// What memfd_create(2), write(2) or fcntl(2) said.
pub fn seal(supervisor: &ForSupervisor, command: &ForCommand) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = File::from(rustix::fs::memfd_create("tenured-spec", flags)?);
    file.write_all(&serde_json::to_vec(&Whole { supervisor, command })?)?;
    rustix::fs::fcntl_add_seals(&file, SEALS)?;
    Ok(file.into())
}

/// Reads the supervisor's half. The other one, which may be large, is passed over unread.
///
/// # Errors
/// As [`read_command`].
pub fn read_supervisor(spec: &File) -> io::Result<ForSupervisor> {
    Ok(serde_json::from_slice::<SupervisorHalf>(&bytes(spec)?)?.supervisor)
}

/// Reads the command's half.
///
/// # Errors
/// Where the spec is not sealed, cannot be read, or has another form.
pub fn read_command(spec: &File) -> io::Result<ForCommand> {
    Ok(serde_json::from_slice::<CommandHalf>(&bytes(spec)?)?.command)
}

fn bytes(spec: &File) -> io::Result<Vec<u8>> {
    if !rustix::fs::fcntl_get_seals(spec)?.contains(SEALS) {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the spec is not sealed"));
    }
    let length = spec.metadata()?.len();
    if length > SPEC_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    // Its offset is that of everybody who has it.
    spec.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_back() {
        let long = "x".repeat(1_000);
        for answer in [
            Answer::Begun,
            Answer::Ready,
            Answer::SetupFailed { step: Setup::Directory, errno: 2 },
            Answer::Fault { errno: 24, doing: "making a pipe".to_owned() },
        ] {
            assert_eq!(Answer::parse(&answer.to_bytes()), Some(answer));
        }
        let cut = Answer::Fault { errno: 0, doing: long }.to_bytes();
        assert!(cut.len() <= PACKET_BYTES && Answer::parse(&cut).is_some());
        for bad in [b"".as_slice(), b"R", b"S\0\0\0\0nowhere", b"?\0\0\0\0"] {
            assert_eq!(Answer::parse(bad), None);
        }
    }

    fn halves() -> (ForSupervisor, ForCommand) {
        let supervisor =
            ForSupervisor { run: 7, nonce: "n".to_owned(), output_file: Some(("7.log".to_owned(), 5)) };
        let command = ForCommand {
            argv: vec!["\u{1F980}\n\"".to_owned()],
            environment: vec!["A=".to_owned()],
            credentials: Some((1, 2, vec![3])),
            working_directory: "/".to_owned(),
            stdin: None,
            nice: Some(-3),
            no_new_privileges: true,
            limits: vec![ResourceLimit { resource: 7, soft: 1, hard: u64::MAX }],
            journal: None,
        };
        (supervisor, command)
    }

    #[test]
    fn each_side_reads_its_half_of_a_sealed_spec() {
        let (supervisor, command) = halves();
        let mut spec = File::from(seal(&supervisor, &command).unwrap());
        assert_eq!(read_supervisor(&spec).unwrap(), supervisor);
        assert_eq!(read_command(&spec).unwrap(), command);
        assert!(spec.write_all(b"x").is_err() && spec.set_len(0).is_err(), "nobody changes it any more");
    }

    #[test]
    fn what_is_not_sealed_is_not_read() {
        let open = rustix::fs::memfd_create("open", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        assert!(read_supervisor(&File::from(open)).is_err());
    }

    #[test]
    fn packets_carry_their_descriptors_closed_on_exec() {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
        let pair =
            || socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let (one, other) = pair();
        let (passed, kept) = pair();
        send(&one, HELLO, &[passed.as_fd()]).unwrap();
        drop(passed);
        let (bytes, fds) = receive(&other).unwrap();
        assert_eq!((bytes.as_slice(), fds.len()), (HELLO, 1));
        assert!(rustix::io::fcntl_getfd(&fds[0]).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
        send(&fds[0], &GO, &[]).unwrap();
        assert_eq!(receive(&kept).unwrap().0, GO);
        drop(fds);
        assert_eq!(receive(&kept).unwrap().0, b"", "the end");
        assert!(send(&kept, &GO, &[]).is_err(), "and no SIGPIPE");
        let too_many = [one.as_fd(); HELLO_FDS + 1];
        assert!(send(&one, HELLO, &too_many).is_err());
    }
}
