//! The socket of one private peer: messages in and out, and how much may be under way between them.
//!
//! zbus reads as fast as a peer writes and keeps every call until its answer is written. So this reader
//! waits once the calls that were read and not yet answered have become too many or too large: a peer
//! that asks and never reads its answers stops itself, and nobody else.
//!
//! Source: D-Bus specification, "Message Format" and "Wire Format"; unix(7), SCM_RIGHTS.

use std::collections::HashMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::num::NonZeroU32;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown,
};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::Semaphore;
use zbus::Message;
use zbus::connection::socket::{ReadHalf, Socket, Split, WriteHalf};
use zbus::export::async_trait::async_trait;
use zbus::message::{Flags, Type};

/// The fixed part of a message's header: it says how long the whole message is.
const HEADER_BYTES: usize = 16;
/// The largest message of a peer: a call at its limit, and its header.
const MESSAGE_BYTES: usize = 1_024 * 1_024 + 64 * 1_024;
/// Descriptors of one message; more are refused by the kernel's own hand.
const MESSAGE_FDS: usize = 4;
/// Units of calls that one peer may have under way.
const UNITS: u32 = 64;
/// A call costs one unit and one more for each of these.
const BYTES_PER_UNIT: usize = 16 * 1_024;
/// A peer that takes nothing for this long has gone astray, and is cut off.
const STALLED: Duration = Duration::from_secs(60);

/// An accepted and admitted socket.
#[derive(Debug)]
pub struct PeerSocket {
    /// The socket.
    pub stream: UnixStream,
    /// What was read behind the handshake.
    pub early: Vec<u8>,
    /// Whether descriptors may be passed.
    pub passes_fds: bool,
}

impl Socket for PeerSocket {
    type ReadHalf = Reader;
    type WriteHalf = Writer;

    fn split(self) -> Split<Reader, Writer> {
        let stream = Arc::new(self.stream);
        let flight = Arc::new(Flight::default());
        let raw = Raw {
            stream: Arc::clone(&stream),
            early: self.early,
            early_fds: Vec::new(),
            passes_fds: self.passes_fds,
        };
        let reader = Reader { raw, flight: Arc::clone(&flight) };
        Split::new(reader, Writer { stream, flight, passes_fds: self.passes_fds })
    }
}

/// The calls that were read and not yet answered.
#[derive(Debug)]
struct Flight {
    room: Semaphore,
    calls: Mutex<HashMap<NonZeroU32, u32>>,
}

impl Default for Flight {
    fn default() -> Self {
        Self { room: Semaphore::new(UNITS as usize), calls: Mutex::default() }
    }
}

impl Flight {
    fn units(bytes: usize) -> u32 {
        u32::try_from(1 + bytes / BYTES_PER_UNIT).unwrap_or(UNITS).min(UNITS)
    }

    fn read(&self, message: &Message, units: u32) {
        let flags = message.primary_header().flags();
        let answered =
            message.message_type() == Type::MethodCall && !flags.contains(Flags::NO_REPLY_EXPECTED);
        if answered {
            let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
            *calls.entry(message.primary_header().serial_num()).or_default() += units;
        } else {
            self.room.add_permits(units as usize);
        }
    }

    fn written(&self, message: &Message) {
        if !matches!(message.message_type(), Type::MethodReturn | Type::Error) {
            return;
        }
        let Some(serial) = message.header().reply_serial() else { return };
        let units = self.calls.lock().unwrap_or_else(PoisonError::into_inner).remove(&serial);
        self.room.add_permits(units.unwrap_or(0) as usize);
    }
}

/// Reads bytes. The trait's own way of reading a message is used on top of it.
#[derive(Debug)]
struct Raw {
    stream: Arc<UnixStream>,
    early: Vec<u8>,
    early_fds: Vec<OwnedFd>,
    passes_fds: bool,
}

impl Raw {
    async fn receive(&self, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        self.stream.async_io(Interest::READABLE, || receive(&self.stream, buffer, self.passes_fds)).await
    }
}

fn receive(stream: &UnixStream, buffer: &mut [u8], passes_fds: bool) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MESSAGE_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = rustix::net::recvmsg(stream, &mut [IoSliceMut::new(buffer)], &mut control, flags)?;
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    if received.flags.contains(ReturnFlags::CTRUNC) || (!passes_fds && !fds.is_empty()) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "more descriptors than a message may have"));
    }
    Ok((received.bytes, fds))
}

#[async_trait]
impl ReadHalf for Raw {
    async fn recvmsg(&mut self, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        if self.early.is_empty() {
            return self.receive(buffer).await;
        }
        let taken = buffer.len().min(self.early.len());
        for (place, byte) in buffer.iter_mut().zip(self.early.drain(..taken)) {
            *place = byte;
        }
        Ok((taken, std::mem::take(&mut self.early_fds)))
    }

    fn can_pass_unix_fd(&self) -> bool {
        self.passes_fds
    }
}

/// The half that messages come from.
#[derive(Debug)]
pub struct Reader {
    raw: Raw,
    flight: Arc<Flight>,
}

impl Reader {
    async fn message(
        &mut self,
        seq: u64,
        early: &mut Vec<u8>,
        early_fds: &mut Vec<OwnedFd>,
    ) -> zbus::Result<Message> {
        let units = Flight::units(self.length().await?);
        match self.flight.room.acquire_many(units).await {
            Ok(room) => room.forget(),
            Err(_) => return Err(zbus::Error::ExcessData),
        }
        let message = self.raw.receive_message(seq, early, early_fds).await?;
        self.flight.read(&message, units);
        Ok(message)
    }

    /// Reads the fixed header, and keeps it where the rest of the message is read from.
    async fn length(&mut self) -> zbus::Result<usize> {
        while self.raw.early.len() < HEADER_BYTES {
            // No further than this header: descriptors belong to the message they came with.
            let mut buffer = [0; HEADER_BYTES];
            let missing = HEADER_BYTES - self.raw.early.len();
            let (read, fds) = self.raw.receive(&mut buffer[..missing]).await?;
            if read == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            self.raw.early.extend_from_slice(&buffer[..read]);
            self.raw.early_fds.extend(fds);
        }
        message_bytes(&self.raw.early).ok_or(zbus::Error::ExcessData)
    }
}

/// The length of the message that a fixed header begins; nothing where it is too long or no header.
fn message_bytes(header: &[u8]) -> Option<usize> {
    let number = |at: usize| -> Option<usize> {
        let bytes: [u8; 4] = header.get(at..at + 4)?.try_into().ok()?;
        let number = match header.first()? {
            b'l' => u32::from_le_bytes(bytes),
            b'B' => u32::from_be_bytes(bytes),
            _ => return None,
        };
        usize::try_from(number).ok()
    };
    let fields = HEADER_BYTES.checked_add(number(12)?)?.checked_next_multiple_of(8)?;
    let bytes = fields.checked_add(number(4)?)?;
    (bytes <= MESSAGE_BYTES).then_some(bytes)
}

#[async_trait]
impl ReadHalf for Reader {
    async fn receive_message(
        &mut self,
        seq: u64,
        already_received_bytes: &mut Vec<u8>,
        already_received_fds: &mut Vec<OwnedFd>,
    ) -> zbus::Result<Message> {
        let message = self.message(seq, already_received_bytes, already_received_fds).await;
        // Nothing more is read: an answer that still waits to be written has to be given up, too.
        message.inspect_err(|_| cut(&self.raw.stream))
    }

    async fn recvmsg(&mut self, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        self.raw.recvmsg(buffer).await
    }

    fn can_pass_unix_fd(&self) -> bool {
        self.raw.passes_fds
    }
}

/// The half that messages go to.
#[derive(Debug)]
pub struct Writer {
    stream: Arc<UnixStream>,
    flight: Arc<Flight>,
    passes_fds: bool,
}

/// Ends both directions: whoever reads or writes sees it, and the connection closes.
fn cut(stream: &UnixStream) {
    // It may be closed already, and then there is nothing left to end.
    let _ = rustix::net::shutdown(stream, Shutdown::Both);
}

fn send(stream: &UnixStream, buffer: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MESSAGE_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many descriptors for one message"));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    Ok(rustix::net::sendmsg(stream, &[IoSlice::new(buffer)], &mut control, flags)?)
}

#[async_trait]
impl WriteHalf for Writer {
    async fn send_message(&mut self, message: &Message) -> zbus::Result<()> {
        use std::os::fd::AsFd;

        let data = message.data();
        let fds: Vec<BorrowedFd<'_>> = data.fds().iter().map(AsFd::as_fd).collect();
        let mut sent = 0;
        while sent < data.len() {
            let with: &[BorrowedFd<'_>] = if sent == 0 { &fds } else { &[] };
            sent += self.sendmsg(&data[sent..], with).await?;
        }
        self.flight.written(message);
        Ok(())
    }

    async fn sendmsg(&mut self, buffer: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
        let write = self.stream.async_io(Interest::WRITABLE, || send(&self.stream, buffer, fds));
        let written = match tokio::time::timeout(STALLED, write).await {
            Ok(written) => written,
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        };
        // Half a message may be out: nothing sent after it would make sense.
        written.inspect_err(|_| cut(&self.stream))
    }

    async fn close(&mut self) -> io::Result<()> {
        cut(&self.stream);
        Ok(())
    }

    fn can_pass_unix_fd(&self) -> bool {
        self.passes_fds
    }
}

#[cfg(test)]
mod tests;
