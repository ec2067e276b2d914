//! The server's side of the D-Bus handshake, for the private socket: EXTERNAL alone.
//!
//! Owns the conversation, not the socket. Bounded in everything, and pure: bytes in, bytes out. The uid is
//! the one that the kernel told at accept; a client may repeat it or leave it out, never choose it.
//!
//! Source: D-Bus specification, "Authentication Protocol".

/// The longest line of a client that means well is some 40 bytes.
const LINE_BYTES: usize = 512;
/// Lines before it has to have begun.
const LINES: usize = 32;

/// A handshake under way.
#[derive(Debug)]
pub struct Handshake {
    uid: u32,
    guid: String,
    stage: Stage,
    lines: usize,
    passes_fds: bool,
    input: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Nul,
    Auth,
    Data,
    Begin,
}

/// What came of some bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send this, and read on.
    More(Vec<u8>),
    /// Send this; then messages begin with these bytes.
    Done {
        /// To send.
        answer: Vec<u8>,
        /// What the client sent behind its last line.
        rest: Vec<u8>,
        /// Whether descriptors may be passed.
        passes_fds: bool,
    },
    /// No D-Bus client, or one that was never admitted: close.
    Close(&'static str),
}

impl Handshake {
    /// A handshake with a peer of this uid.
    pub fn new(uid: u32, guid: String) -> Self {
        Self { uid, guid, stage: Stage::Nul, lines: 0, passes_fds: false, input: Vec::new() }
    }

    /// Takes what the client sent.
    pub fn take(&mut self, bytes: &[u8]) -> Step {
        self.input.extend_from_slice(bytes);
        let mut answer = Vec::new();
        if self.stage == Stage::Nul {
            match self.input.first() {
                None => return Step::More(answer),
                Some(0) => {
                    self.input.remove(0);
                    self.stage = Stage::Auth;
                }
                Some(_) => return Step::Close("its first byte is not NUL"),
            }
        }
        while let Some(end) = self.input.windows(2).position(|pair| pair == b"\r\n") {
            let line: Vec<u8> = self.input.drain(..end + 2).take(end).collect();
            self.lines += 1;
            if end > LINE_BYTES || self.lines > LINES {
                return Step::Close("its handshake does not end");
            }
            if self.stage == Stage::Begin && line == b"BEGIN" {
                let rest = std::mem::take(&mut self.input);
                return Step::Done { answer, rest, passes_fds: self.passes_fds };
            }
            match self.line(&String::from_utf8_lossy(&line)) {
                Some(reply) => answer.extend_from_slice(format!("{reply}\r\n").as_bytes()),
                None => return Step::Close("it began before it was admitted"),
            }
        }
        if self.input.len() > LINE_BYTES {
            return Step::Close("its handshake has a line without an end");
        }
        Step::More(answer)
    }

    fn line(&mut self, line: &str) -> Option<String> {
        let (command, rest) = line.split_once(' ').unwrap_or((line, ""));
        let reply = match (self.stage, command) {
            (_, "BEGIN") => return None,
            (Stage::Auth, "AUTH") => match rest.split_once(' ').unwrap_or((rest, "")) {
                ("EXTERNAL", "") => {
                    self.stage = Stage::Data;
                    "DATA".to_owned()
                }
                ("EXTERNAL", said) => self.admit(said),
                _ => self.reject(),
            },
            (Stage::Data, "DATA") => self.admit(rest),
            (Stage::Begin, "NEGOTIATE_UNIX_FD") => {
                self.passes_fds = true;
                "AGREE_UNIX_FD".to_owned()
            }
            (_, "CANCEL" | "ERROR") => self.reject(),
            _ => "ERROR".to_owned(),
        };
        Some(reply)
    }

    fn admit(&mut self, said: &str) -> String {
        // Nothing said means: whoever the kernel says I am.
        let agrees = said.is_empty() || said == hex(&self.uid.to_string());
        if !agrees {
            return self.reject();
        }
        self.stage = Stage::Begin;
        format!("OK {}", self.guid)
    }

    fn reject(&mut self) -> String {
        self.stage = Stage::Auth;
        "REJECTED EXTERNAL".to_owned()
    }
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GUID: &str = "0123456789abcdef0123456789abcdef";

    fn handshake() -> Handshake {
        Handshake::new(1000, GUID.into())
    }

    fn more(answer: &str) -> Step {
        Step::More(answer.as_bytes().to_vec())
    }

    #[test]
    fn a_client_that_sends_everything_at_once_is_admitted() {
        let step = handshake().take(b"\0AUTH EXTERNAL\r\nDATA\r\nNEGOTIATE_UNIX_FD\r\nBEGIN\r\nl\x01rest");
        let answer = format!("DATA\r\nOK {GUID}\r\nAGREE_UNIX_FD\r\n").into_bytes();
        assert_eq!(step, Step::Done { answer, rest: b"l\x01rest".to_vec(), passes_fds: true });
    }

    #[test]
    fn a_client_that_sends_byte_by_byte_is_admitted() {
        let mut handshake = handshake();
        let mut said = Vec::new();
        for byte in b"\0AUTH EXTERNAL 31303030\r\nBEGIN\r\n" {
            match handshake.take(&[*byte]) {
                Step::More(answer) => said.extend(answer),
                step => assert_eq!(
                    step,
                    Step::Done { answer: Vec::new(), rest: Vec::new(), passes_fds: false },
                    "after {said:?}"
                ),
            }
        }
        assert_eq!(said, format!("OK {GUID}\r\n").into_bytes());
    }

    #[test]
    fn nobody_is_admitted_as_somebody_else() {
        let mut handshake = handshake();
        assert_eq!(handshake.take(b"\0AUTH EXTERNAL 30\r\n"), more("REJECTED EXTERNAL\r\n"));
        assert_eq!(handshake.take(b"AUTH\r\n"), more("REJECTED EXTERNAL\r\n"));
        assert_eq!(handshake.take(b"AUTH ANONYMOUS\r\n"), more("REJECTED EXTERNAL\r\n"));
        assert_eq!(handshake.take(b"DATA 30\r\n"), more("ERROR\r\n"));
        assert_eq!(handshake.take(b"NEGOTIATE_UNIX_FD\r\n"), more("ERROR\r\n"));
        assert!(matches!(handshake.take(b"BEGIN\r\n"), Step::Close(_)));
    }

    #[test]
    fn what_never_ends_is_closed() {
        assert!(matches!(handshake().take(b"GET / HTTP/1.1\r\n"), Step::Close(_)));
        assert!(matches!(handshake().take(&[0; 600]), Step::Close(_)));
        let lines = "FOO\r\n".repeat(40);
        assert!(matches!(handshake().take(format!("\0{lines}").as_bytes()), Step::Close(_)));
        assert_eq!(handshake().take(b"\0\n"), more(""));
    }

    proptest! {
        #[test]
        fn no_bytes_panic_and_none_admit_without_a_word_of_ours(chunks in proptest::collection::vec(any::<Vec<u8>>(), 0..8)) {
            let mut handshake = handshake();
            for chunk in chunks {
                let step = handshake.take(&chunk);
                let is_done = matches!(step, Step::Done { .. });
                prop_assert!(!is_done || handshake.stage == Stage::Begin);
                prop_assert!(handshake.input.len() <= LINE_BYTES + chunk.len() + 1);
            }
        }
    }
}
