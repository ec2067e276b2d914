//! From settings to a served board, and back: opens everything in the order that loses nothing.
//!
//! Order: lock and board, boots (old ones are judged before this life's nonce is written), the first look
//! at every running row, and only then callers.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::bus::admission::Admission;
use crate::bus::caller::Admins;
use crate::bus::private::{Private, Service};
use crate::bus::proxy::Endpoint;
use crate::bus::serve::{BusState, address, serve};
use crate::bus::signals::Signals as Hints;
use crate::core::ids::Pid;
use crate::core::policy::Policy;
use crate::core::state_dir::StateDir;
use crate::core::unit::service_of;
use crate::core::view::Change;
use crate::daemon::boots::Boots;
use crate::daemon::engine::{Engine, Parts};
use crate::daemon::hub::Hub;
use crate::daemon::kept;
use crate::daemon::life::{self, Inputs, Load, Signals};
use crate::daemon::observe::Observer;
use crate::daemon::scoped::ScopeMaker;
use crate::daemon::starter::{Starter, in_full};
use crate::daemon::status;
use crate::daemon::tidy;
use crate::daemon::watchdog::{self, Pulse};
use crate::linux::cgroup::HostCgroups;
use crate::linux::clock::{HostClock, ensure_boot_nonce, read_boot_nonce};
use crate::linux::pidfd::HostProcesses;
use crate::linux::spawn::Launcher;
use crate::ports::Clock;
use crate::service::desk::{Desk, ThisBoot};
use crate::service::worker::Deputy;
use crate::store::{Options, Snapshot, Store, boots, start};
use crate::systemd;
use crate::systemd::fd_store::{self, FdStore};
use crate::systemd::host::{Host, Told};
use crate::systemd::log::Log;
use crate::systemd::notify::{self, Notifier};
use crate::systemd::scopes::{Manager, Scopes};

/// Requests that wait for the loop; more wait at the caller.
const ASKS: usize = 256;
/// News of the loop's own tasks that wait for it.
const EVENTS: usize = 4_096;
/// News of the host that wait for the loop.
const NEWS: usize = 8;
/// Connections for reading; lists leave one of them to the loop.
const READERS: usize = 3;

/// All that a life of the daemon depends on.
pub struct Settings {
    /// The configuration.
    pub policy: Policy,
    /// Where the board is.
    pub state: StateDir,
    /// Where the private socket and the boot's nonce are.
    pub runtime: PathBuf,
    /// The bus, if one is served.
    pub bus: Option<Endpoint>,
    /// Whether the daemon's own user may do everything too.
    pub is_users_own: bool,
    /// Where the launcher listens that starts workers; none where the daemon starts them itself.
    pub launcher: Option<PathBuf>,
    /// Whether ready tasks are started.
    pub starts: bool,
    /// Reads the configuration again.
    pub load: Load,
    /// Ends the life from outside.
    pub leave: mpsc::Receiver<()>,
}

/// Why a life ended before its time; each text says what to do.
#[derive(Debug, thiserror::Error)]
#[error("{doing}: {why}")]
pub struct Ended {
    doing: &'static str,
    why: String,
    lasts: bool,
}

impl Ended {
    /// Whether the next start would find the same.
    #[must_use]
    pub fn lasts(&self) -> bool {
        self.lasts
    }
}

fn ended(doing: &'static str) -> impl FnOnce(&dyn std::error::Error) -> Ended {
    move |error| Ended { doing, why: in_full(error), lasts: false }
}

macro_rules! attempt {
    ($doing:literal, $result:expr) => {
        $result.map_err(|error| ended($doing)(&error))?
    };
}

/// Lives until it is told to end.
///
/// # Errors
/// [`Ended`] where the daemon could not begin, or another one has its place.
pub async fn run(settings: Settings, log: &Log) -> Result<(), Ended> {
    let signals = attempt!("cannot listen to signals", Signals::listen());
    let notifier = attempt!("cannot speak to the service manager", Notifier::from_environment());
    let given = kept::take(fd_store::given());
    notifier.lengthy("opening the board");
    let clock = Arc::new(HostClock::default());
    let (hub, hints) = (Hub::default(), Hints::default());
    let store = open_board(&settings, &hub, &hints)?;
    let log = log.clone();
    store.on_happened(move |happened| log.tell(happened));
    notifier.lengthy("looking at what runs");
    let outcome = serve_board(settings, signals, clock, hub, hints, &store, (notifier.clone(), given)).await;
    store.close();
    notifier.finish();
    outcome
}

fn open_board(settings: &Settings, hub: &Hub, hints: &Hints) -> Result<Store, Ended> {
    let options = Options {
        state: settings.state.clone(),
        reserve_bytes: settings.policy.reserve_bytes,
        readers: READERS,
    };
    let (hub, hints) = (hub.clone(), hints.clone());
    let committed = Box::new(move |changes: &[Change]| {
        hub.committed(changes);
        hints.tell(changes);
    });
    Store::open(options, committed)
        .map_err(|error| Ended { lasts: error.lasts(), ..ended("cannot open the board")(&error) })
}

async fn serve_board(
    settings: Settings,
    signals: Signals,
    clock: Arc<HostClock>,
    hub: Hub,
    hints: Hints,
    store: &Store,
    (notifier, given): (Notifier, Vec<kept::Given>),
) -> Result<(), Ended> {
    let (boots, this_boot, shutdown) = judge_boots(store, &clock, &settings.runtime).await?;
    let processes = HostProcesses::default();
    let own_uid = rustix::process::getuid().as_raw();
    let (asks, asked) = mpsc::channel(ASKS);
    let (events, happened) = mpsc::channel(EVENTS);
    let desk = Desk::new(
        store.clone(),
        clock.clone(),
        Arc::new(deputy(&processes, &this_boot)),
        asks,
        settings.policy.clone(),
        this_boot.clone(),
        settings.state.clone(),
    );
    attempt!("cannot make the configured queues", desk.set_policy(settings.policy.clone()).await);
    desk.set_starts(settings.starts);
    let starter = Starter {
        desk: desk.clone(),
        launcher: Arc::new(launcher(settings.launcher.clone(), &processes)?),
        state: settings.state.clone(),
        own_uid,
        bus_address: bus_address(&settings),
        epoch: this_boot.epoch.clone(),
        scopes: scope_maker(&settings, &processes).await,
        has_journal: systemd::has_journal(),
        kept: FdStore::of(&notifier),
    };
    let scopes = starter.scopes.as_ref().map(|maker| maker.scopes.clone());
    let cgroups = Arc::new(HostCgroups::new(processes.clone()));
    let observer = Observer::new(Arc::new(processes), cgroups, Arc::new(settings.state.clone()));
    let parts = Parts { desk: desk.clone(), clock, observer, boots, starter, events, shutdown };
    let mut engine = Engine::new(parts);
    let host = host_of(&settings);
    if let Some(host) = host.clone() {
        engine.know(host);
    }
    tidy::everything(store, &settings.state).await;
    attempt!("cannot take back the workers' descriptors", engine.take_back(given).await);
    attempt!("the first look at the board failed", engine.first_look().await);
    let admins = if settings.is_users_own { Admins::RootAnd(own_uid) } else { Admins::Root };
    let service = Service { desk, admins, admission: Admission::default(), signals: hints };
    let (told, news) = mpsc::channel(NEWS);
    let inputs = Inputs {
        signals,
        asks: asked,
        events: happened,
        hub,
        load: settings.load,
        leave: settings.leave,
        host: (host, news),
        notifier,
        pulse: Arc::new(Pulse::default()),
    };
    with_callers(&mut engine, inputs, service, &settings.runtime, settings.bus, (scopes, told)).await
}

/// Serves callers for as long as the loop lives.
async fn with_callers(
    engine: &mut Engine,
    inputs: Inputs,
    service: Service,
    runtime: &std::path::Path,
    bus: Option<Endpoint>,
    (scopes, told): (Option<Scopes>, mpsc::Sender<Told>),
) -> Result<(), Ended> {
    let private = attempt!("cannot serve the private socket", Private::bind(&runtime.join("private")).await);
    let mut tasks = JoinSet::new();
    tasks.spawn(private.serve(service.clone()));
    let properties = service.desk.properties();
    let signals = service.signals.clone();
    tasks.spawn(async move { signals.follow(properties).await });
    if let Some(scopes) = scopes.clone() {
        tasks.spawn(scopes.clone().stay());
        let hub = inputs.hub.clone();
        tasks.spawn(scopes.on_return(move || hub.committed(&[Change::Ready])));
    }
    if let Some(host) = inputs.host.0.clone() {
        tasks.spawn(host.follow(told));
    }
    tasks.spawn(status::tell_trouble(service.desk.clone()));
    report_to_manager(&mut tasks, &service.desk, &inputs);
    let notifier = inputs.notifier.clone();
    let ready = move || {
        notifier.ready();
        if let Some(scopes) = &scopes {
            scopes.ready();
        }
    };
    let (state, mut states) = watch::channel(BusState::Connecting);
    let desk = service.desk.clone();
    let has_bus = bus.is_some();
    if let Some(endpoint) = bus {
        tasks.spawn(serve(endpoint, service, state));
    }
    let bus_ready = async {
        if has_bus {
            follow_bus(&mut states, &desk, &ready).await
        } else {
            ready();
            std::future::pending().await
        }
    };
    let outcome = tokio::select! {
        lived = life::live(engine, inputs) => lived.map_err(|error| ended("the daemon's loop ended")(&error)),
        refused = bus_ready => Err(refused),
    };
    tasks.shutdown().await;
    outcome
}

/// Where a service manager listens, it is told how things stand and that they go on.
fn report_to_manager(tasks: &mut JoinSet<()>, desk: &Desk, inputs: &Inputs) {
    if !inputs.notifier.listens() {
        return;
    }
    tasks.spawn(status::follow(desk.clone(), inputs.hub.any(), inputs.notifier.clone()));
    if let Some(limit) = notify::watchdog() {
        let pulse = Arc::clone(&inputs.pulse);
        tasks.spawn(watchdog::watch(desk.clone(), pulse, inputs.notifier.clone(), limit));
    }
}

/// Says how the bus stands; returns only where another daemon has the name.
async fn follow_bus(states: &mut watch::Receiver<BusState>, desk: &Desk, ready: &impl Fn()) -> Ended {
    let mut was_ready = false;
    loop {
        let state = states.borrow_and_update().clone();
        match state {
            BusState::Connecting => {}
            BusState::Connected => {
                desk.set_degraded("bus_lost", false);
                if !was_ready {
                    ready();
                }
                was_ready = true;
            }
            BusState::NameTaken if !was_ready => {
                let why =
                    format!("another process owns {}; end it, or use --no-bus", crate::bus::proxy::BUS_NAME);
                return Ended { doing: "cannot serve the bus", why, lasts: false };
            }
            BusState::NameTaken | BusState::Lost(_) => {
                desk.set_degraded("bus_lost", true);
                if !was_ready {
                    // Workers are looked after and the private socket answers; the bus comes when it comes.
                    ready();
                }
                was_ready = true;
            }
        }
        if states.changed().await.is_err() {
            return Ended { doing: "cannot serve the bus", why: "its task ended".to_owned(), lasts: false };
        }
    }
}

/// Who says what the host is about to do: those on our bus.
fn host_of(settings: &Settings) -> Option<Host> {
    let endpoint = settings.bus.as_ref()?;
    let has_logind = matches!(endpoint, Endpoint::System);
    Some(Host::new(address(endpoint).ok()?, has_logind))
}

/// Who makes the supervisors of this life.
fn launcher(socket: Option<PathBuf>, processes: &HostProcesses) -> Result<Launcher, Ended> {
    Ok(match socket {
        Some(socket) => attempt!("cannot use the launcher", Launcher::asking(processes.clone(), socket)),
        None => attempt!("cannot find tenured-exec", Launcher::find(processes.clone())),
    })
}

/// What makes scopes, decided once in a life: where systemd manages this host, has the unified hierarchy, and
/// is to be found on our bus. A bus that is away for a moment does not make it another host.
async fn scope_maker(settings: &Settings, processes: &HostProcesses) -> Option<ScopeMaker> {
    let cgroups = HostCgroups::new(processes.clone());
    let endpoint = settings.bus.as_ref().filter(|_| systemd::is_booted() && cgroups.is_unified())?;
    let address = address(endpoint).ok()?;
    let own_path = cgroups.path_of_self().ok();
    let own_unit = own_path.as_deref().and_then(service_of).map(str::to_owned);
    let scopes = Scopes::new(address, own_unit);
    let tells_journal = !settings.is_users_own;
    match scopes.look().await {
        Manager::There | Manager::Unknown => Some(ScopeMaker { scopes, cgroups, tells_journal }),
        Manager::Absent => None,
    }
}

fn deputy(processes: &HostProcesses, this_boot: &ThisBoot) -> Deputy<HostProcesses> {
    let own = Pid::new(i64::from(std::process::id()));
    Deputy { processes: processes.clone(), epoch: this_boot.epoch.clone(), never: own.into_iter().collect() }
}

fn bus_address(settings: &Settings) -> String {
    match &settings.bus {
        Some(Endpoint::Address(address)) => address.clone(),
        Some(Endpoint::System | Endpoint::Session) | None => {
            format!("unix:path={}", settings.runtime.join("private").display())
        }
    }
}

/// Judges the remembered boots by what the host says, then makes sure that this one has its nonce and its row.
async fn judge_boots(
    store: &Store,
    clock: &HostClock,
    runtime: &std::path::Path,
) -> Result<(Boots, ThisBoot, Option<crate::core::time::MonoMs>), Ended> {
    let mut witnesses = attempt!("cannot read which boot this is", clock.witnesses());
    witnesses.nonce = attempt!("cannot read the boot's nonce", read_boot_nonce(runtime));
    let read = |snapshot: &Snapshot<'_>| Ok((boots::all(snapshot)?, boots::shutdowns(snapshot)?));
    let (remembered, shutdowns) = attempt!("cannot read the boots", store.read("the boots", read).await);
    let mut judged = Boots::judge(&remembered, witnesses.clone()).ended_by(shutdowns);
    witnesses.nonce = Some(attempt!("cannot write the boot's nonce", ensure_boot_nonce(runtime)));
    let wall = clock.now().wall;
    let same = judged.same();
    let epoch = witnesses.epoch.clone();
    let work = move |tx: &mut crate::store::Tx<'_>| {
        let boot = match same {
            Some(boot) => {
                boots::touch(tx, boot, witnesses.boottime_ms)?;
                boot
            }
            None => boots::remember(tx, &witnesses, wall)?,
        };
        // A new life may find repaired what kept commands from being started.
        start::end_pause(tx)?;
        let shutdown = boots::shutdown_of(tx, boot)?;
        Ok((boot, shutdown))
    };
    // Also on a full disk: the ends of runs are still to be recorded in this boot.
    let (boot, shutdown) = attempt!("cannot remember this boot", store.write_end("this boot", work).await);
    judged.adopt(boot);
    Ok((judged, ThisBoot { epoch, boot }, shutdown))
}
