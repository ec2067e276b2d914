//! The daemon: puts all the pieces together, and is the only part that sees them all.

pub mod apply;
pub mod args;
pub mod boots;
pub mod engine;
pub mod exits;
pub mod host;
pub mod hub;
pub mod judge;
pub mod kept;
pub mod life;
pub mod observe;
pub mod run;
pub mod scoped;
pub mod send;
pub mod starter;
pub mod status;
pub mod tidy;
pub mod watchdog;

use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser as _;
use tokio::sync::mpsc;

use crate::bus::proxy::Endpoint;
use crate::config::{Files, Paths};
use crate::core::policy::Policy;
use crate::core::state_dir::StateDir;
use crate::daemon::args::Args;
use crate::daemon::run::{Settings, run};
use crate::daemon::starter::in_full;
use crate::linux::directories;
use crate::systemd::log::Log;

/// Runs as `tenured`; called when the program's name (`argv[0]`) is that.
pub fn main() -> ExitCode {
    match begin(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Problem { words, lasts }) => {
            // Standard error may be gone; there is nobody else to tell.
            let _ = writeln!(std::io::stderr(), "tenured: {words}");
            if lasts { ExitCode::from(LASTING) } else { ExitCode::FAILURE }
        }
    }
}

/// The exit status where another start would find the same: a bad configuration, a board that cannot be
/// trusted. The units name it, so that the service manager does not try for ever. (`EX_CONFIG`.)
const LASTING: u8 = 78;

/// Why there is no daemon.
struct Problem {
    words: String,
    lasts: bool,
}

impl From<String> for Problem {
    fn from(words: String) -> Self {
        Self { words, lasts: false }
    }
}

fn begin(args: &Args) -> Result<(), Problem> {
    // Until the loop listens: before that it would end the daemon.
    crate::linux::hang_up::hold_back().map_err(|error| format!("cannot hold SIGHUP back: {error}"))?;
    let paths = paths(args)?;
    let files = match &args.config {
        Some(file) => Files::Named(file.clone()),
        None => Files::Usual(paths.config.clone()),
    };
    let load = move || files.load(cpus()).map_err(|error| in_full(&error));
    let policy = load().map_err(|words| Problem { words, lasts: true })?;
    if args.check_config {
        return Ok(());
    }
    if args.print_config {
        let text = crate::config::print(&policy);
        return std::io::stdout().write_all(text.as_bytes()).map_err(|error| error.to_string().into());
    }
    let log = Log::start().map_err(|error| format!("cannot write a log: {error}"))?;
    let lived = settings(args, &paths, policy, Box::new(load))
        .map_err(Problem::from)
        .and_then(|settings| live(settings, &log));
    log.finish();
    lived
}

fn live(settings: Settings, log: &Log) -> Result<(), Problem> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot make the event loop: {error}"))?;
    let lived = runtime.block_on(run(settings, log));
    lived.map_err(|ended| Problem { words: ended.to_string(), lasts: ended.lasts() })
}

fn paths(args: &Args) -> Result<Paths, String> {
    // With both directories given a home is not needed.
    let placed = args.state_dir.is_some() && args.runtime_dir.is_some();
    let mut paths = if args.user && !(placed && args.config.is_some()) {
        match Paths::user(rustix::process::getuid().as_raw()) {
            Ok(paths) => paths,
            Err(_) if placed => Paths::system(),
            Err(error) => return Err(error.to_string()),
        }
    } else {
        Paths::system()
    };
    let absolute =
        |path: &PathBuf| std::path::absolute(path).map_err(|error| format!("{}: {error}", path.display()));
    if let Some(state) = &args.state_dir {
        paths.state = absolute(state)?;
    }
    if let Some(runtime) = &args.runtime_dir {
        paths.runtime = absolute(runtime)?;
    }
    Ok(paths)
}

fn cpus() -> u32 {
    std::thread::available_parallelism().map_or(1, |cpus| u32::try_from(cpus.get()).unwrap_or(u32::MAX))
}

fn settings(args: &Args, paths: &Paths, policy: Policy, load: life::Load) -> Result<Settings, String> {
    let own = args.user;
    let runtime_mode = if own { 0o700 } else { 0o755 };
    for (path, mode) in [(&paths.state, 0o700), (&paths.runtime, runtime_mode)] {
        directories::make(path, mode).map_err(|error| format!("cannot make {}: {error}", path.display()))?;
    }
    for name in ["exits", "output"] {
        let path = paths.state.join(name);
        directories::make(&path, 0o700)
            .map_err(|error| format!("cannot make {}: {error}", path.display()))?;
    }
    let bus = match (args.no_bus, own) {
        (true, _) => None,
        (false, true) => Some(Endpoint::Session),
        (false, false) => Some(Endpoint::System),
    };
    let launcher = args.launcher.as_ref().map(std::path::absolute).transpose();
    let launcher = launcher.map_err(|error| format!("--launcher: {error}"))?;
    Ok(Settings {
        policy,
        state: StateDir(paths.state.clone()),
        runtime: paths.runtime.clone(),
        bus,
        is_users_own: own,
        launcher,
        starts: !args.no_dispatch,
        load,
        leave: leave(args.exit_with_stdin),
    })
}

/// A daemon that lives for one command ends when that command's end of its standard input is closed.
fn leave(with_stdin: bool) -> mpsc::Receiver<()> {
    let (leave, left) = mpsc::channel(1);
    if with_stdin {
        std::thread::spawn(move || {
            let mut byte = [0];
            while matches!(std::io::stdin().read(&mut byte), Ok(1..)) {}
            // A loop that has ended already needs no news.
            let _ = leave.blocking_send(());
        });
    }
    left
}
