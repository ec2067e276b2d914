//! A peer cannot take more of the daemon than its share, whatever it writes and however little it reads.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use zbus::Guid;

use super::*;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(20);
/// An answer that fills a socket quickly.
const ANSWER_BYTES: usize = 64 * 1_024;

#[derive(Clone, Default)]
struct Large(Arc<AtomicUsize>);

#[zbus::interface(name = "org.test.Large")]
impl Large {
    async fn answer(&self, _question: String) -> String {
        self.0.fetch_add(1, Ordering::SeqCst);
        "x".repeat(ANSWER_BYTES)
    }

    fn device(&self, fd: zbus::OwnedFd) -> u64 {
        rustix::fs::fstat(&fd).unwrap().st_rdev
    }
}

async fn served(large: &Large) -> (UnixStream, zbus::Connection) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let socket = PeerSocket { stream: ours, early: Vec::new(), passes_fds: true };
    let builder = zbus::connection::Builder::authenticated_socket(socket, Guid::generate());
    (theirs, builder.p2p().serve_at("/", large.clone()).build().await.unwrap())
}

fn call(question: &str) -> Message {
    Message::method_call("/", "Answer").interface("org.test.Large").build(&question).unwrap()
}

async fn is_closed(stream: &mut UnixStream) -> bool {
    let mut rest = Vec::new();
    tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await.is_ok()
}

/// Writes calls and reads nothing, until the daemon takes no more; returns how many were written whole.
async fn flood(stream: &UnixStream, large: &Large, question: &str) -> usize {
    let mut written = 0;
    loop {
        let message = call(question);
        let mut rest: &[u8] = message.data();
        while !rest.is_empty() {
            match stream.try_write(rest) {
                Ok(bytes) => rest = &rest[bytes..],
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{error}");
                    // It may still be on its way through the daemon: it has stopped once every unit is taken.
                    let in_hand = large.0.load(Ordering::SeqCst) * Flight::units(question.len()) as usize;
                    assert!(in_hand < 3 * UNITS as usize, "{in_hand} units are in hand");
                    let all_taken = in_hand + Flight::units(question.len()) as usize > UNITS as usize;
                    if all_taken && !settles(stream).await {
                        return written;
                    }
                    tokio::task::yield_now().await;
                }
            }
        }
        written += 1;
    }
}

/// Whether there is room again after everything that can run has run.
async fn settles(stream: &UnixStream) -> bool {
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    futures_util::FutureExt::now_or_never(stream.writable()).is_some()
}

#[tokio::test]
async fn a_peer_that_asks_and_never_reads_stops_itself() {
    let large = Large::default();
    let (stream, _connection) = served(&large).await;
    let written = tokio::time::timeout(PATIENCE, flood(&stream, &large, "?")).await.unwrap();
    // What its own socket holds, and one unit for each call in hand.
    let entered = large.0.load(Ordering::SeqCst);
    assert!(entered <= UNITS as usize + 16, "{entered} calls were worked on for {written} that were written");
}

#[tokio::test]
async fn large_calls_stop_it_earlier() {
    let large = Large::default();
    let (stream, _connection) = served(&large).await;
    let question = "q".repeat(200 * 1_024);
    tokio::time::timeout(PATIENCE, flood(&stream, &large, &question)).await.unwrap();
    let entered = large.0.load(Ordering::SeqCst);
    assert!(entered <= 16, "{entered} calls of 200 KiB were worked on");
}

#[tokio::test]
async fn a_peer_that_reads_gets_every_answer() {
    let large = Large::default();
    let (mut stream, _connection) = served(&large).await;
    let (mut reader, mut writer) = stream.split();
    const CALLS: usize = 500;
    let write = async {
        for _ in 0..CALLS {
            writer.write_all(call("?").data()).await.unwrap();
        }
    };
    let read = async {
        for _ in 0..CALLS {
            let mut header = [0; HEADER_BYTES];
            reader.read_exact(&mut header).await.unwrap();
            let mut rest = vec![0; message_bytes(&header).unwrap() - HEADER_BYTES];
            reader.read_exact(&mut rest).await.unwrap();
        }
    };
    let both = futures_util::future::join(write, read);
    tokio::time::timeout(PATIENCE, both).await.expect("all answers");
    assert_eq!(large.0.load(Ordering::SeqCst), CALLS);
}

#[tokio::test]
async fn calls_without_an_answer_give_their_room_back() {
    let large = Large::default();
    let (mut stream, _connection) = served(&large).await;
    for _ in 0..10 * UNITS {
        let message = Message::method_call("/", "Answer").interface("org.test.Large");
        let message = message.with_flags(Flags::NO_REPLY_EXPECTED).build(&"?").unwrap();
        tokio::time::timeout(PATIENCE, stream.write_all(message.data())).await.unwrap().unwrap();
    }
    stream.write_all(call("?").data()).await.unwrap();
    let mut header = [0; HEADER_BYTES];
    tokio::time::timeout(PATIENCE, stream.read_exact(&mut header)).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_message_that_is_too_long_ends_the_connection_before_room_is_made_for_it() {
    let (mut stream, _connection) = served(&Large::default()).await;
    stream.write_all(&header(b'l', 64, 100 * 1_024 * 1_024)).await.unwrap();
    assert!(is_closed(&mut stream).await);
}

#[tokio::test]
async fn one_descriptor_is_passed_and_many_end_the_connection() {
    let (mut stream, _connection) = served(&Large::default()).await;
    let null = rustix::fs::open("/dev/null", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty()).unwrap();
    let device = rustix::fs::fstat(&null).unwrap().st_rdev;
    let message = Message::method_call("/", "Device").interface("org.test.Large");
    let message = message.build(&zbus::Fd::from(null.as_fd())).unwrap();
    let bytes = message.data();
    assert_eq!(send(&stream, bytes, &[null.as_fd()]).unwrap(), bytes.len());
    let mut answer = [0; 512];
    let read = tokio::time::timeout(PATIENCE, stream.read(&mut answer)).await.unwrap().unwrap();
    assert_eq!(answer[read - 8..read], device.to_le_bytes());

    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let many = [null.as_fd(); 64];
    assert!(control.push(SendAncillaryMessage::ScmRights(&many)));
    rustix::net::sendmsg(&stream, &[IoSlice::new(bytes)], &mut control, SendFlags::empty()).unwrap();
    assert!(is_closed(&mut stream).await);
}

fn header(endian: u8, fields: u32, body: u32) -> [u8; 16] {
    let mut header = [0; 16];
    header[0] = endian;
    let number = |number: u32| if endian == b'B' { number.to_be_bytes() } else { number.to_le_bytes() };
    header[4..8].copy_from_slice(&number(body));
    header[12..16].copy_from_slice(&number(fields));
    header
}

#[test]
fn the_length_of_a_message_is_known_before_room_is_made_for_it() {
    assert_eq!(message_bytes(&header(b'l', 9, 3)), Some(16 + 16 + 3));
    assert_eq!(message_bytes(&header(b'B', 8, 0)), Some(24));
    assert_eq!(message_bytes(&header(b'l', 0, MESSAGE_BYTES as u32)), None);
    assert_eq!(message_bytes(&header(b'l', u32::MAX, u32::MAX)), None);
    assert_eq!(message_bytes(&header(b'x', 9, 3)), None);
    assert_eq!(message_bytes(&header(b'l', 9, 3)[..15]), None);
}

#[test]
fn large_calls_take_more_of_the_room() {
    assert_eq!(Flight::units(100), 1);
    assert_eq!(Flight::units(40 * 1_024), 3);
    assert_eq!(Flight::units(MESSAGE_BYTES), UNITS);
}
