//! Finding the daemon that a command shall talk to, and saying how to start one where there is none.

use std::time::Duration;

use crate::bus::proxy::{self, Endpoint, ManagerProxy};
use crate::cli::dirs::Dirs;
use crate::cli::embedded::{self, Embedded, Serving, Starts};
use crate::cli::failure::Failure;
use crate::cli::render::Screen;

/// Whoever takes longer to say hello is not there.
const HELLO: Duration = Duration::from_secs(10);
/// The private socket of the host's daemon.
const SYSTEM_SOCKET: &str = "/run/tenured/private";

/// Which daemon is wanted.
#[derive(Clone, Debug)]
pub enum Wanted {
    /// The host's.
    System,
    /// This user's.
    User,
    /// The one at this D-Bus address; `from_environment` says that TENURED_BUS_ADDRESS named it.
    Address {
        /// The address.
        address: String,
        /// Whether the environment named it.
        from_environment: bool,
    },
    /// One of our own, for as long as we need it, on the board of these directories.
    Embedded(Dirs),
}

/// A conversation with a daemon.
#[derive(Debug)]
pub struct Session {
    /// The interface.
    pub manager: ManagerProxy<'static>,
    /// Where output goes.
    pub screen: Screen,
    wanted: Wanted,
    starts: Starts,
    endpoint: Endpoint,
    embedded: Option<Embedded>,
    switched: bool,
}

impl Session {
    /// Finds the daemon. `starts` says whether a daemon of our own may start tasks.
    ///
    /// # Errors
    /// [`Failure::NoDaemon`], with how to start one.
    pub async fn open(wanted: Wanted, screen: Screen, starts: Starts) -> Result<Self, Failure> {
        let Serving { manager, endpoint, embedded, switched } = find(&wanted, starts).await?;
        Ok(Self { manager, screen, wanted, starts, endpoint, embedded, switched })
    }

    /// Where the daemon was found, to make a second connection.
    pub const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The daemon has gone: finds it again, or its successor; a daemon of our own is started anew.
    ///
    /// # Errors
    /// As [`Session::open`].
    pub async fn reopen(&mut self) -> Result<(), Failure> {
        if let Some(embedded) = self.embedded.take() {
            embedded.close().await;
        }
        let Serving { manager, endpoint, embedded, switched } = find(&self.wanted, self.starts).await?;
        (self.manager, self.endpoint, self.embedded, self.switched) = (manager, endpoint, embedded, switched);
        Ok(())
    }

    /// How one says this daemon on the command line, for hints: `tenurectl --embedded`.
    pub fn program(&self) -> String {
        match &self.wanted {
            Wanted::System => "tenurectl".to_owned(),
            Wanted::User => "tenurectl --user".to_owned(),
            Wanted::Address { from_environment: true, .. } => "tenurectl".to_owned(),
            Wanted::Address { address, .. } => format!("tenurectl --address {address}"),
            Wanted::Embedded(_) => "tenurectl --embedded".to_owned(),
        }
    }

    /// Our own daemon, where it is our child.
    pub const fn own_daemon(&self) -> Option<&Embedded> {
        self.embedded.as_ref()
    }

    /// Whether the daemon is one of our own, or shared by such as we.
    pub const fn is_embedded(&self) -> bool {
        matches!(self.wanted, Wanted::Embedded(_))
    }

    /// Ends a daemon of our own, and waits until its board is closed; leaves another one as it was.
    pub async fn close(self) {
        if self.switched {
            // It may have ended meanwhile.
            let _ = embedded::switch(&self.manager, false).await;
        }
        if let Some(embedded) = self.embedded {
            embedded.close().await;
        }
    }
}

async fn find(wanted: &Wanted, starts: Starts) -> Result<Serving, Failure> {
    let tried = match wanted {
        Wanted::System => vec![Endpoint::System, socket(SYSTEM_SOCKET)],
        Wanted::User => {
            let private = Dirs::of_user().ok().and_then(|dirs| Some(socket(dirs.socket().to_str()?)));
            std::iter::once(Endpoint::Session).chain(private).collect()
        }
        Wanted::Address { address, .. } => vec![Endpoint::Address(address.clone())],
        Wanted::Embedded(dirs) => return Embedded::ensure(dirs, starts).await,
    };
    let (manager, endpoint) = first_of(&tried).await.map_err(|why| no_daemon(wanted, &why))?;
    Ok(Serving { manager, endpoint, embedded: None, switched: false })
}

/// The endpoint of a private socket.
pub fn socket(path: &str) -> Endpoint {
    Endpoint::Address(format!("unix:path={path}"))
}

/// The first endpoint where a daemon answers; else why the first one does not, which is the one that was
/// meant. A refusal of the bus's policy is an answer.
async fn first_of(endpoints: &[Endpoint]) -> Result<(ManagerProxy<'static>, Endpoint), Why> {
    let mut why = None;
    for endpoint in endpoints {
        match hello(endpoint).await {
            Ok(manager) => return Ok((manager, endpoint.clone())),
            Err(failure) => why = why.or(Some(failure)),
        }
    }
    Err(why.unwrap_or_else(|| Why::Absent("nobody was asked".to_owned())))
}

enum Why {
    Absent(String),
    Refused(Failure),
}

/// Connects and asks for the version, which every daemon has.
///
/// # Errors
/// Where nobody answers as a daemon does.
pub async fn try_hello(endpoint: &Endpoint) -> Result<ManagerProxy<'static>, String> {
    hello(endpoint).await.map_err(|why| match why {
        Why::Absent(text) => text,
        Why::Refused(failure) => failure.lines().join("; "),
    })
}

async fn hello(endpoint: &Endpoint) -> Result<ManagerProxy<'static>, Why> {
    let ask = async {
        let manager = proxy::manager(endpoint).await?;
        manager.version().await?;
        Ok::<_, zbus::Error>(manager)
    };
    match tokio::time::timeout(HELLO, ask).await {
        Ok(Ok(manager)) => Ok(manager),
        Ok(Err(error)) => Err(why_not(error)),
        Err(_) => Err(Why::Absent(format!("no answer within {} s", HELLO.as_secs()))),
    }
}

fn why_not(error: zbus::Error) -> Why {
    match error {
        zbus::Error::Connection(error, _) | zbus::Error::InputOutput(error) => Why::Absent(io_words(&error)),
        zbus::Error::FDO(ref inner) => match **inner {
            zbus::fdo::Error::ServiceUnknown(_) | zbus::fdo::Error::NameHasNoOwner(_) => {
                Why::Absent("nobody owns org.tenured1 there".to_owned())
            }
            zbus::fdo::Error::AccessDenied(_) => Why::Refused(error.into()),
            ref other => Why::Absent(other.to_string()),
        },
        other => Why::Absent(other.to_string()),
    }
}

/// Somebody is there, for others.
const FORBIDDEN: &str = "you may not use its socket";

fn io_words(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such socket".to_owned(),
        std::io::ErrorKind::ConnectionRefused => "nobody listens there".to_owned(),
        std::io::ErrorKind::PermissionDenied => FORBIDDEN.to_owned(),
        _ => error.to_string(),
    }
}

fn no_daemon(wanted: &Wanted, why: &Why) -> Failure {
    let why = match why {
        Why::Absent(text) => text,
        Why::Refused(failure) => return Failure::own(failure.lines().join("; "), ""),
    };
    let without = "or try everything without one: `tenurectl --embedded VERB …`";
    let (whom, remedy) = match wanted {
        Wanted::System => {
            ("on the system bus".to_owned(), format!("Start it with `systemctl start tenured`, {without}."))
        }
        Wanted::User => {
            ("on your session bus".to_owned(), format!("Start it with `tenured --user`, {without}."))
        }
        Wanted::Address { address, from_environment: true } => (
            format!("at {address}"),
            "TENURED_BUS_ADDRESS names it; unset it to talk to the host's daemon.".to_owned(),
        ),
        Wanted::Address { address, .. } => {
            (format!("at {address}"), format!("Start the daemon that listens there, {without}."))
        }
        Wanted::Embedded(dirs) => (
            format!("on {}", dirs.socket().display()),
            "Its log is beside that socket, in daemon.log.".to_owned(),
        ),
    };
    let remedy = if why == FORBIDDEN {
        "Ask as the user whose daemon it is, or over the bus.".to_owned()
    } else {
        remedy
    };
    Failure::NoDaemon { what: format!("no daemon answers {whom}: {why}"), remedy }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn where_nobody_listens_the_way_to_start_one_is_told() {
        let nowhere = tempfile::tempdir().unwrap();
        let path = nowhere.path().join("private");
        let wanted =
            Wanted::Address { address: format!("unix:path={}", path.display()), from_environment: false };
        let failure = Session::open(wanted, Screen::plain(), Starts::Nothing).await.unwrap_err();
        assert_eq!(failure.code(), 3);
        let lines = failure.lines();
        assert!(lines[0].starts_with("no daemon answers at unix:path="), "{lines:?}");
        assert!(lines[1].contains("tenurectl --embedded"), "{lines:?}");
    }
}
