//! What a private peer that takes us for a bus asks of a bus: the least of `org.freedesktop.DBus`.
//!
//! With it `busctl --address=unix:path=…` and ordinary clients work. It names, and routes nothing.
//!
//! Source: D-Bus specification, "Message Bus Messages".

use std::sync::Arc;

use zbus::OwnedMatchRule;
use zbus::fdo::{Error, Result};

use crate::bus::proxy::BUS_NAME;
use crate::bus::signals::{Outbox, Rules};

/// The object that a bus answers at.
pub const DRIVER_PATH: &str = "/org/freedesktop/DBus";
/// The name of a bus.
const DRIVER_NAME: &str = "org.freedesktop.DBus";
/// Our own unique name to every peer.
pub const OWN_NAME: &str = ":1.0";

/// Serves one peer.
#[derive(Debug)]
pub struct Driver {
    name: String,
    guid: String,
    rules: Arc<Rules>,
    outbox: Arc<Outbox>,
}

impl Driver {
    /// The bus that this peer sees; it is known by this unique name.
    pub const fn new(name: String, guid: String, rules: Arc<Rules>, outbox: Arc<Outbox>) -> Self {
        Self { name, guid, rules, outbox }
    }

    fn owner(&self, name: &str) -> Option<&str> {
        match name {
            BUS_NAME | OWN_NAME => Some(OWN_NAME),
            DRIVER_NAME => Some(DRIVER_NAME),
            name if name == self.name => Some(&self.name),
            _ => None,
        }
    }
}

#[zbus::interface(name = "org.freedesktop.DBus", introspection_docs = false)]
impl Driver {
    fn hello(&self) -> &str {
        &self.name
    }

    fn add_match(&self, rule: &str) -> Result<()> {
        let rule = parse(rule)?;
        // Before the answer: whoever has it hears every change from then on.
        self.outbox.listen();
        if self.rules.add(rule) {
            return Ok(());
        }
        Err(Error::LimitsExceeded("there are too many match rules on this connection".to_owned()))
    }

    fn remove_match(&self, rule: &str) -> Result<()> {
        if self.rules.remove(&parse(rule)?) {
            return Ok(());
        }
        Err(Error::MatchRuleNotFound("there is no such match rule on this connection".to_owned()))
    }

    fn get_name_owner(&self, name: &str) -> Result<String> {
        let owner = self.owner(name).map(str::to_owned);
        owner.ok_or_else(|| Error::NameHasNoOwner(format!("nobody owns the name {name}")))
    }

    fn name_has_owner(&self, name: &str) -> bool {
        self.owner(name).is_some()
    }

    fn list_names(&self) -> Vec<&str> {
        vec![DRIVER_NAME, BUS_NAME, OWN_NAME, &self.name]
    }

    fn get_id(&self) -> &str {
        &self.guid
    }
}

fn parse(rule: &str) -> Result<OwnedMatchRule> {
    OwnedMatchRule::try_from(rule)
        .map_err(|error| Error::MatchRuleInvalid(format!("{rule:?} is no match rule: {error}")))
}
