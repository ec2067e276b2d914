//! The bus: own the name, serve, and come back when the bus has gone and returned.
//!
//! Supervision goes on without it. The daemon hears of it through a watch channel.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use zbus::Connection;
use zbus::connection::Builder;
use zbus::fdo::{RequestNameFlags, RequestNameReply};

use crate::bus::caller::{Callers, Identity};
use crate::bus::manager::Manager;
use crate::bus::private::Service;
use crate::bus::proxy::{BUS_NAME, Endpoint, OBJECT_PATH};
use crate::bus::signals::Outbox;

/// How long the bus may take to let us in, or to answer a question.
const BUS_ANSWERS: Duration = Duration::from_secs(25);
/// First pause before the bus is tried again.
const PAUSE: Duration = Duration::from_millis(100);
/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// How the bus stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BusState {
    /// Not tried yet.
    Connecting,
    /// The name is ours, calls are answered.
    Connected,
    /// The name belongs to another process: another daemon serves this bus.
    NameTaken,
    /// No bus; it is tried again and again.
    Lost(String),
}

/// Serves the bus until it is dropped, and says how it stands. Tries again by itself in every case; the
/// daemon decides what [`BusState::NameTaken`] means to it.
pub async fn serve(endpoint: Endpoint, service: Service, state: watch::Sender<BusState>) {
    let mut pause = PAUSE;
    loop {
        let outcome = match tokio::time::timeout(BUS_ANSWERS, connect(&endpoint, &service)).await {
            Ok(Ok(link)) => {
                pause = PAUSE;
                tracing::info!("serving {BUS_NAME} on the bus");
                state.send_replace(BusState::Connected);
                link.stay(&service).await
            }
            Ok(Err(state)) => state,
            Err(_) => BusState::Lost("the bus does not answer".to_owned()),
        };
        if *state.borrow() != outcome {
            tracing::warn!("{}; supervision goes on, trying again", describe(&outcome));
        }
        state.send_replace(outcome);
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

fn describe(state: &BusState) -> String {
    match state {
        BusState::Connecting | BusState::Connected => "the bus is there".to_owned(),
        BusState::NameTaken => format!("the bus name {BUS_NAME} belongs to another process"),
        BusState::Lost(why) => format!("the bus is lost: {why}"),
    }
}

/// The address without the bus's own id: the bus that comes back has another one.
///
/// # Errors
/// Where the environment names no bus.
pub fn address(endpoint: &Endpoint) -> zbus::Result<String> {
    let address = match endpoint {
        Endpoint::System => zbus::Address::system()?.to_string(),
        Endpoint::Session => zbus::Address::session()?.to_string(),
        Endpoint::Address(address) => address.clone(),
    };
    Ok(without_guid(&address))
}

fn without_guid(address: &str) -> String {
    let of_one = |one: &str| match one.split_once(':') {
        None => one.to_owned(),
        Some((transport, keys)) => {
            let keys: Vec<&str> = keys.split(',').filter(|key| !key.starts_with("guid=")).collect();
            format!("{transport}:{}", keys.join(","))
        }
    };
    address.split(';').map(of_one).collect::<Vec<_>>().join(";")
}

/// A connection that owns the name.
struct Link {
    connection: Connection,
    callers: Arc<Callers>,
    outbox: Outbox,
}

/// A connection that serves before it owns the name, so that no call is lost between the two.
async fn connect(endpoint: &Endpoint, service: &Service) -> Result<Link, BusState> {
    let lost = |error: zbus::Error| BusState::Lost(error.to_string());
    let callers = Arc::new(Callers::new(service.admins));
    let identity = Identity::Bus(Arc::clone(&callers));
    let manager = Manager::new(service.desk.clone(), identity, service.admission.clone());
    let builder = Builder::address(address(endpoint).map_err(lost)?.as_str());
    let builder = builder.method_timeout(BUS_ANSWERS).serve_at(OBJECT_PATH, manager);
    let connection = builder.build().await.map_err(lost)?;
    let outbox = service.signals.outbox();
    outbox.listen();
    // Neither to be replaced nor to replace: one daemon per bus.
    let reply = connection.request_name_with_flags(BUS_NAME, RequestNameFlags::DO_NOT_QUEUE).await;
    match reply {
        Ok(RequestNameReply::PrimaryOwner | RequestNameReply::AlreadyOwner) => {
            Ok(Link { connection, callers, outbox })
        }
        Ok(RequestNameReply::Exists | RequestNameReply::InQueue) | Err(zbus::Error::NameTaken) => {
            Err(BusState::NameTaken)
        }
        Err(error) => Err(lost(error)),
    }
}

impl Link {
    /// Serves until the bus goes, and says why.
    async fn stay(self, service: &Service) -> BusState {
        let tell = async |message: zbus::Message| self.connection.send(&message).await;
        let why = tokio::select! {
            () = self.connection.closed() => "it closed the connection".to_owned(),
            followed = self.callers.follow(&self.connection) => match followed {
                Ok(()) => "its messages ended".to_owned(),
                Err(error) => error.to_string(),
            },
            told = self.outbox.drain(service.desk.properties(), None, tell) => match told {
                Ok(_overflowed) => "it takes no signals".to_owned(),
                Err(error) => error.to_string(),
            },
        };
        // The name is free again only when this connection has gone; one that is broken cannot be closed.
        let _ = self.connection.close().await;
        BusState::Lost(why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_one_life_of_a_bus_is_left_out_of_its_address() {
        for (address, expected) in [
            ("unix:path=/run/bus,guid=12ab", "unix:path=/run/bus"),
            ("unix:guid=12ab,path=/run/bus;tcp:host=h,port=1,guid=0", "unix:path=/run/bus;tcp:host=h,port=1"),
            ("unix:abstract=/tmp/x", "unix:abstract=/tmp/x"),
            ("nonsense", "nonsense"),
        ] {
            assert_eq!(without_guid(address), expected);
        }
    }
}
