//! The interface as clients see it: used by the command line, the tests and anyone who writes Rust.
//!
//! Signatures are those of the interface's description; `dist/` and the introspection golden file hold
//! them in XML. Knows nothing of the daemon.

use std::collections::BTreeMap;

use zbus::{Connection, OwnedFd, OwnedVariant, Variant};

/// The well-known name.
pub const BUS_NAME: &str = "org.tenured1";
/// The only object.
pub const OBJECT_PATH: &str = "/org/tenured1";
/// Its interface.
pub const INTERFACE: &str = "org.tenured1.Manager";
/// What every error's name begins with.
pub const ERROR_PREFIX: &str = "org.tenured1.Error.";

/// Options and properties as they are sent (`a{sv}`).
pub type Options<'a> = BTreeMap<&'a str, Variant<'a>>;
/// A row as it is received (`a{sv}`), sorted by key.
pub type Row = BTreeMap<String, OwnedVariant>;

/// The interface `org.tenured1.Manager`. Every `options` may be empty; an unknown key is refused.
///
/// Only the properties have a daemon started that is not there: whoever asks for its version first has one,
/// and one that is stopped later stays so, whatever is asked of it then.
#[zbus::proxy(
    interface = "org.tenured1.Manager",
    default_service = "org.tenured1",
    default_path = "/org/tenured1"
)]
pub trait Manager {
    /// The task, and whether it was created now.
    #[zbus(no_autostart)]
    fn create_task(&self, title: &str, properties: &Options<'_>) -> zbus::Result<(u64, bool)>;
    /// Task, run (the fencing token) and the task's properties.
    #[zbus(no_autostart)]
    fn claim_task(&self, queue: &str, options: &Options<'_>) -> zbus::Result<(u64, u64, Row)>;
    /// Microseconds left of the lease.
    #[zbus(no_autostart)]
    fn heartbeat(&self, run: u64, options: &Options<'_>) -> zbus::Result<u64>;
    /// An outcome word.
    #[zbus(no_autostart)]
    fn set_worker(&self, run: u64, options: &Options<'_>) -> zbus::Result<String>;
    /// An outcome word.
    #[zbus(no_autostart)]
    fn complete_run(&self, run: u64, options: &Options<'_>) -> zbus::Result<String>;
    /// An outcome word.
    #[zbus(no_autostart)]
    fn fail_run(&self, run: u64, error: &str, options: &Options<'_>) -> zbus::Result<String>;
    /// An outcome word.
    #[zbus(no_autostart)]
    fn block_run(&self, run: u64, reason: &str, options: &Options<'_>) -> zbus::Result<String>;
    /// An outcome word.
    #[zbus(no_autostart)]
    fn release_run(&self, run: u64, reason: &str, options: &Options<'_>) -> zbus::Result<String>;
    /// An outcome word: `released`, `stopping`, `held`, `unchanged`.
    #[zbus(no_autostart)]
    fn reclaim_task(&self, task: u64, options: &Options<'_>) -> zbus::Result<String>;
    /// An outcome word.
    #[zbus(no_autostart)]
    fn cancel_task(&self, task: u64, options: &Options<'_>) -> zbus::Result<String>;
    /// An outcome word.
    #[zbus(no_autostart)]
    fn signal_task(&self, task: u64, signal: i32, options: &Options<'_>) -> zbus::Result<String>;
    /// An outcome word.
    #[zbus(no_autostart)]
    fn retry_task(&self, task: u64, options: &Options<'_>) -> zbus::Result<String>;
    /// An outcome word.
    #[zbus(no_autostart)]
    fn unblock_task(&self, task: u64, options: &Options<'_>) -> zbus::Result<String>;
    /// An outcome word.
    #[zbus(no_autostart)]
    fn archive_task(&self, task: u64, options: &Options<'_>) -> zbus::Result<String>;
    /// An outcome word.
    #[zbus(no_autostart)]
    fn block_task(&self, task: u64, reason: &str, options: &Options<'_>) -> zbus::Result<String>;
    /// An outcome word.
    #[zbus(no_autostart)]
    fn update_task(&self, task: u64, properties: &Options<'_>) -> zbus::Result<String>;
    /// An outcome word.
    #[zbus(no_autostart)]
    fn link_tasks(&self, parent: u64, child: u64, options: &Options<'_>) -> zbus::Result<String>;
    /// An outcome word.
    #[zbus(no_autostart)]
    fn unlink_tasks(&self, parent: u64, child: u64, options: &Options<'_>) -> zbus::Result<String>;
    /// The comment's number.
    #[zbus(no_autostart)]
    fn add_comment(&self, task: u64, text: &str, options: &Options<'_>) -> zbus::Result<u64>;
    /// All of a task, its current run and worker included.
    #[zbus(no_autostart)]
    fn get_task(&self, task: u64) -> zbus::Result<Row>;
    /// All of a run.
    #[zbus(no_autostart)]
    fn get_run(&self, run: u64) -> zbus::Result<Row>;
    /// A page of tasks.
    #[zbus(no_autostart)]
    fn list_tasks(&self, filter: &Options<'_>) -> zbus::Result<Vec<Row>>;
    /// A page of a task's runs.
    #[zbus(no_autostart)]
    fn list_runs(&self, task: u64, options: &Options<'_>) -> zbus::Result<Vec<Row>>;
    /// A page of a task's comments.
    #[zbus(no_autostart)]
    fn list_comments(&self, task: u64, options: &Options<'_>) -> zbus::Result<Vec<Row>>;
    /// A page of events, oldest first.
    #[zbus(no_autostart)]
    fn list_events(&self, filter: &Options<'_>) -> zbus::Result<Vec<Row>>;
    /// A read-only descriptor of a run's output file.
    #[zbus(no_autostart)]
    fn open_output(&self, run: u64, options: &Options<'_>) -> zbus::Result<OwnedFd>;
    /// An outcome word.
    #[zbus(no_autostart)]
    fn set_queue(&self, name: &str, options: &Options<'_>) -> zbus::Result<String>;
    /// An outcome word.
    #[zbus(no_autostart)]
    fn remove_queue(&self, name: &str, options: &Options<'_>) -> zbus::Result<String>;
    /// All queues.
    #[zbus(no_autostart)]
    fn list_queues(&self, options: &Options<'_>) -> zbus::Result<Vec<Row>>;
    /// Counts of what the caller may see.
    #[zbus(no_autostart)]
    fn get_stats(&self, options: &Options<'_>) -> zbus::Result<Row>;
    /// What the sweep did.
    #[zbus(no_autostart)]
    fn sweep(&self, options: &Options<'_>) -> zbus::Result<Row>;
    /// An outcome word.
    #[zbus(no_autostart)]
    fn drain(&self, on: bool, options: &Options<'_>) -> zbus::Result<String>;
    /// The backup's path.
    #[zbus(no_autostart)]
    fn backup(&self, name: &str, options: &Options<'_>) -> zbus::Result<String>;
    /// An outcome word.
    #[zbus(no_autostart)]
    fn reload(&self, options: &Options<'_>) -> zbus::Result<String>;

    /// Something of this task has changed.
    #[zbus(signal)]
    #[zbus(no_autostart)]
    fn task_changed(&self, task: u64) -> zbus::Result<()>;
    /// This run has ended.
    #[zbus(signal)]
    #[zbus(no_autostart)]
    fn run_ended(&self, run: u64) -> zbus::Result<()>;

    /// The daemon's version.
    #[zbus(property(emits_changed_signal = "const"))]
    fn version(&self) -> zbus::Result<String>;
    /// The kernel's boot id.
    #[zbus(property(emits_changed_signal = "const"))]
    fn boot_id(&self) -> zbus::Result<String>;
    /// The daemon's epoch: which boot, and which view of it.
    #[zbus(property(emits_changed_signal = "const"))]
    fn epoch(&self) -> zbus::Result<String>;
    /// The directory of the board.
    #[zbus(property(emits_changed_signal = "const"))]
    fn state_directory(&self) -> zbus::Result<String>;
    /// Whether nothing new is started.
    #[zbus(property)]
    fn draining(&self) -> zbus::Result<bool>;
    /// Why the daemon is not well.
    #[zbus(property)]
    fn degraded(&self) -> zbus::Result<Vec<String>>;
    /// Live workers.
    #[zbus(property(emits_changed_signal = "false"))]
    fn workers(&self) -> zbus::Result<u32>;
    /// What the last sweep did; for administrators.
    #[zbus(property(emits_changed_signal = "false"))]
    fn last_sweep(&self) -> zbus::Result<Row>;
}

/// Where a daemon can be talked to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// The system bus, or what `DBUS_SYSTEM_BUS_ADDRESS` names.
    System,
    /// The session bus.
    Session,
    /// A D-Bus address: another bus, or `unix:path=…` of a private socket.
    Address(String),
}

/// Connects, as an ordinary client does: the private socket answers `Hello` like a bus.
///
/// Sets no time-out for methods: ClaimTask may wait for minutes.
///
/// # Errors
/// Where nobody listens there, or the handshake fails.
pub async fn connect(endpoint: &Endpoint) -> zbus::Result<Connection> {
    let builder = match endpoint {
        Endpoint::System => zbus::connection::Builder::system(),
        Endpoint::Session => zbus::connection::Builder::session(),
        Endpoint::Address(address) => zbus::connection::Builder::address(address.as_str()),
    };
    builder.build().await
}

/// Whether somebody serves our name behind an endpoint, without having it started: asking the name itself
/// would, and would undo a stop that is under way. A private socket is served by whoever listens.
///
/// # Errors
/// As [`connect`].
pub async fn is_served(endpoint: &Endpoint) -> zbus::Result<bool> {
    let connection = connect(endpoint).await?;
    let bus = zbus::fdo::DBusProxy::new(&connection).await?;
    Ok(bus.name_has_owner(BUS_NAME.try_into()?).await.unwrap_or(true))
}

/// The manager behind an endpoint. Properties are asked for each time, so that none is stale.
///
/// # Errors
/// As [`connect`].
pub async fn manager(endpoint: &Endpoint) -> zbus::Result<ManagerProxy<'static>> {
    let connection = connect(endpoint).await?;
    ManagerProxy::builder(&connection).cache_properties(zbus::proxy::CacheProperties::No).build().await
}
