//! The private socket: the same interface without a bus, so that a host can be worked when its bus is down.
//!
//! Each peer is a connection of its own. Who it is was told by the kernel when it connected (SO_PEERCRED)
//! and never changes, whatever its messages say. Everyone may connect; what a peer may do is decided as
//! for any caller.

use std::collections::HashMap;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use zbus::Guid;

use crate::bus::admission::Admission;
use crate::bus::caller::{Admins, Identity};
use crate::bus::driver::{DRIVER_PATH, Driver, OWN_NAME};
use crate::bus::manager::Manager;
use crate::bus::proxy::OBJECT_PATH;
use crate::bus::sasl::{Handshake, Step};
use crate::bus::signals::{Rules, Signals};
use crate::bus::socket::PeerSocket;
use crate::core::ids::Uid;
use crate::service::desk::Desk;

/// Peers in all; those of administrators come on top.
const PEERS_IN_ALL: usize = 256;
/// Peers of one user.
const PEERS_PER_USER: usize = 64;
/// From accept to BEGIN.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// After an accept that failed: descriptors may be short, and come back.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Why the private socket cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Somebody answers there.
    #[error("another daemon already answers at {}", .0.display())]
    InUse(PathBuf),
    /// The system said no.
    #[error("the private socket {} cannot be made: {source}", .path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// What every connection is served with. Cheap to clone.
#[derive(Clone)]
pub struct Service {
    /// The use cases.
    pub desk: Desk,
    /// Who may do everything.
    pub admins: Admins,
    /// Permits, for all connections together.
    pub admission: Admission,
    /// Hints, for all connections together.
    pub signals: Signals,
}

/// The listening socket; removed when it is dropped.
#[derive(Debug)]
pub struct Private {
    listener: UnixListener,
    path: PathBuf,
}

impl Private {
    /// Listens at `path`, in place of a socket that nobody answers at any more.
    ///
    /// # Errors
    /// [`BindError::InUse`] where somebody does, [`BindError::Io`] otherwise.
    pub async fn bind(path: &Path) -> Result<Self, BindError> {
        if UnixStream::connect(path).await.is_ok() {
            return Err(BindError::InUse(path.to_owned()));
        }
        listen(path)
            .map(|listener| Self { listener, path: path.to_owned() })
            .map_err(|source| BindError::Io { path: path.to_owned(), source })
    }

    /// Serves peers until it is dropped, which ends their connections.
    pub async fn serve(self, service: Service) {
        let peers = Peers::default();
        let mut tasks = JoinSet::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => peers.admit(stream, &service, &mut tasks),
                    Err(error) => {
                        tracing::warn!("a private connection could not be accepted: {error}; will go on");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
                Some(_) = tasks.join_next() => {}
            }
        }
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        // It is in the way of nobody: a later daemon replaces it.
        let _ = rustix::fs::unlink(&self.path);
    }
}

#[expect(clippy::disallowed_methods, reason = "the socket's file is this adapter's own")]
fn listen(path: &Path) -> io::Result<UnixListener> {
    match rustix::fs::unlink(path) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))?;
    Ok(listener)
}

/// Who is connected.
#[derive(Clone, Debug, Default)]
struct Peers(Arc<Mutex<HashMap<Uid, usize>>>);

/// One of them, until it is dropped.
#[derive(Debug)]
struct Seat {
    peers: Peers,
    uid: Uid,
}

impl Peers {
    fn admit(&self, stream: UnixStream, service: &Service, tasks: &mut JoinSet<()>) {
        let uid = match stream.peer_cred() {
            Ok(credentials) => credentials.uid(),
            Err(error) => {
                tracing::warn!("a private peer has no credentials: {error}; closing");
                return;
            }
        };
        let Some(seat) = self.take(uid, service.admins) else {
            tracing::debug!("too many private connections of uid {uid}; closing the new one");
            return;
        };
        let service = service.clone();
        tasks.spawn(async move {
            if let Err(error) = peer(stream, &seat, service).await {
                tracing::debug!("a private connection of uid {uid} ended: {error}");
            }
        });
    }

    fn take(&self, uid: Uid, admins: Admins) -> Option<Seat> {
        let mut seats = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let others: usize =
            seats.iter().filter(|(uid, _)| !admins.caller(**uid).is_admin).map(|(_, of)| of).sum();
        let of_user = seats.entry(uid).or_default();
        let is_full = others >= PEERS_IN_ALL && !admins.caller(uid).is_admin;
        if *of_user >= PEERS_PER_USER || is_full {
            return None;
        }
        *of_user += 1;
        Some(Seat { peers: self.clone(), uid })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut seats = self.peers.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(of_user) = seats.get_mut(&self.uid) {
            *of_user -= 1;
            if *of_user == 0 {
                seats.remove(&self.uid);
            }
        }
    }
}

/// Serves one peer until it leaves.
async fn peer(stream: UnixStream, seat: &Seat, service: Service) -> zbus::Result<()> {
    static PEERS: AtomicU64 = AtomicU64::new(1);
    let name = format!(":1.{}", PEERS.fetch_add(1, Ordering::Relaxed));
    // No unique name of a bus looks like this one.
    let identity =
        Identity::Peer { caller: service.admins.caller(seat.uid), name: format!("private{name}").into() };
    let guid = Guid::generate();
    let socket = tokio::time::timeout(HANDSHAKE, handshake(stream, seat.uid, guid.as_str()))
        .await
        .map_err(|_| zbus::Error::from(io::Error::from(io::ErrorKind::TimedOut)))??;

    let rules = Arc::new(Rules::default());
    let outbox = Arc::new(service.signals.outbox());
    let driver = Driver::new(name, guid.to_string(), Arc::clone(&rules), Arc::clone(&outbox));
    let properties = service.desk.properties();
    let manager = Manager::new(service.desk, identity, service.admission);
    let connection = zbus::connection::Builder::authenticated_socket(socket, guid)
        .p2p()
        .serve_at(DRIVER_PATH, driver)
        .serve_at(OBJECT_PATH, manager)
        .build()
        .await?;

    let tell = async |message: zbus::Message| match rules.want(&message) {
        true => connection.send(&message).await,
        false => Ok(()),
    };
    tokio::select! {
        () = connection.closed() => {}
        told = outbox.drain(properties, Some(OWN_NAME), tell) => match told {
            Ok(_overflowed) => tracing::debug!("a private peer is too slow for its signals; closing"),
            Err(error) => tracing::debug!("a private peer cannot be told: {error}; closing"),
        },
    }
    connection.close().await
}

async fn handshake(mut stream: UnixStream, uid: Uid, guid: &str) -> io::Result<PeerSocket> {
    let mut handshake = Handshake::new(uid, guid.to_owned());
    let mut buffer = [0; 1_024];
    loop {
        // Descriptors that come this early are closed by the kernel: nobody asked for them.
        let read = stream.read(&mut buffer).await?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match handshake.take(&buffer[..read]) {
            Step::More(answer) => stream.write_all(&answer).await?,
            Step::Done { answer, rest, passes_fds } => {
                stream.write_all(&answer).await?;
                return Ok(PeerSocket { stream, early: rest, passes_fds });
            }
            Step::Close(why) => return Err(io::Error::new(io::ErrorKind::InvalidData, why)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seats_are_bounded_by_user_and_in_all_and_root_finds_one() {
        let peers = Peers::default();
        let mut seats = Vec::new();
        for uid in 1..=(PEERS_IN_ALL / PEERS_PER_USER) as Uid {
            for _ in 0..PEERS_PER_USER {
                seats.push(peers.take(uid, Admins::Root).unwrap());
            }
            assert!(peers.take(uid, Admins::Root).is_none());
        }
        assert!(peers.take(1000, Admins::Root).is_none());
        assert!(peers.take(0, Admins::Root).is_some());
        seats.clear();
        assert!(peers.take(1000, Admins::Root).is_some());
        assert!(peers.0.lock().unwrap().is_empty());
    }
}
