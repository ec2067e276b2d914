//! One life of the daemon's loop: waits for what is asked, what has changed, what has ended and what is due.

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use crate::core::fault::Error;
use crate::core::policy::Policy;
use crate::core::time::MonoMs;
use crate::core::view::Outcome;
use crate::daemon::engine::{Engine, Event};
use crate::daemon::hub::{Hints, Hub};
use crate::daemon::starter::in_full;
use crate::daemon::watchdog::Pulse;
use crate::linux::alarm::WallAlarm;
use crate::linux::hang_up;
use crate::service::types::{Ask, Reply};
use crate::systemd::host::{Host, News, Told};
use crate::systemd::message_id::{self, Line};
use crate::systemd::notify::Notifier;

/// Starts under way get this long to come to their end before the daemon ends.
const LAST_STARTS: Duration = Duration::from_secs(5);
/// After a fault of the board the loop waits this long before it asks it again.
const FAULT_PAUSE_MS: i64 = 1_000;

/// Reads the configuration again.
pub type Load = Box<dyn Fn() -> Result<Policy, String> + Send>;

/// The signals that the daemon obeys. Made before anything else, so that none is missed.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    /// Listens.
    ///
    /// # Errors
    /// Where the runtime cannot take signals.
    pub fn listen() -> io::Result<Self> {
        let signals = Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        };
        // One that came while the daemon began is taken now.
        hang_up::let_through()?;
        Ok(signals)
    }
}

/// The loop's inputs.
pub struct Inputs {
    /// Of the process.
    pub signals: Signals,
    /// Of callers.
    pub asks: mpsc::Receiver<Ask>,
    /// Of the engine's own tasks.
    pub events: mpsc::Receiver<Event>,
    /// Of commits.
    pub hub: Hub,
    /// The configuration.
    pub load: Load,
    /// Ends the life: the parent has gone, where the daemon lives for one command.
    pub leave: mpsc::Receiver<()>,
    /// What the host is about to do, and who can be asked.
    pub host: (Option<Host>, mpsc::Receiver<Told>),
    /// To the service manager.
    pub notifier: Notifier,
    /// Shows that the loop gets on.
    pub pulse: Arc<Pulse>,
}

/// What woke the loop.
enum Woken {
    Leave,
    Reload(Option<Reply<Outcome>>),
    Event(Event),
    Ask(Ask),
    Changed(Hints),
    Host(Told),
    Due,
}

/// Lives until it is told to end. Workers are left alone.
///
/// # Errors
/// Where the alarm clock cannot be had.
pub async fn live(engine: &mut Engine, mut inputs: Inputs) -> io::Result<()> {
    let alarm = WallAlarm::new()?;
    let mut due_known = false;
    let mut due = None;
    loop {
        if !due_known {
            due = Some(next_due(engine, &alarm).await);
        }
        inputs.pulse.rests();
        let woken = wait(&mut inputs, &alarm, due.map(|due| engine.until(due))).await;
        inputs.pulse.turns();
        due_known = false;
        let done = match woken {
            Woken::Leave => break,
            Woken::Reload(reply) => {
                reload(engine, &inputs, reply).await;
                Ok(())
            }
            Woken::Event(event) => engine.handle(event).await,
            Woken::Ask(Ask::Reload(reply)) => {
                reload(engine, &inputs, Some(reply)).await;
                Ok(())
            }
            Woken::Ask(ask) => {
                engine.answer(ask).await;
                Ok(())
            }
            Woken::Changed(hints) => {
                due_known = !hints.due && hints.look.is_empty() && !hints.ready;
                engine.changed(&hints).await
            }
            Woken::Host(told) => engine.hear(told.news, Some(told.done)).await,
            Woken::Due => engine.due(due).await,
        };
        if let Err(error) = done {
            say(&error);
        }
    }
    finish(engine, &mut inputs).await;
    Ok(())
}

async fn next_due(engine: &Engine, alarm: &WallAlarm) -> MonoMs {
    let next = match engine.next_due().await {
        Ok(next) => next,
        Err(error) => {
            say(&error);
            return engine.now().plus(FAULT_PAUSE_MS);
        }
    };
    if let Err(error) = alarm.set(next.wall) {
        tracing::error!(%error, "cannot set the wall clock's alarm; the next sweep looks");
    }
    next.mono.unwrap_or_else(|| engine.now().plus(FAULT_PAUSE_MS))
}

async fn wait(inputs: &mut Inputs, alarm: &WallAlarm, span: Option<Duration>) -> Woken {
    let due = async {
        match span {
            Some(span) => tokio::time::sleep(span).await,
            None => pending().await,
        }
    };
    // Not biased: a flood of one kind keeps none of the others waiting.
    tokio::select! {
        _ = inputs.signals.terminate.recv() => Woken::Leave,
        _ = inputs.signals.interrupt.recv() => Woken::Leave,
        Some(()) = inputs.leave.recv() => Woken::Leave,
        _ = inputs.signals.hang_up.recv() => Woken::Reload(None),
        Some(event) = inputs.events.recv() => Woken::Event(event),
        Some(ask) = inputs.asks.recv() => Woken::Ask(ask),
        hints = inputs.hub.changed() => Woken::Changed(hints),
        Some(told) = inputs.host.1.recv() => Woken::Host(told),
        _ = alarm.rung() => Woken::Due,
        () = due => Woken::Due,
    }
}

/// A bad configuration is refused whole, and the old one stays.
async fn reload(engine: &mut Engine, inputs: &Inputs, reply: Option<Reply<Outcome>>) {
    inputs.notifier.reloading();
    let answer = match (inputs.load)() {
        Ok(policy) => engine.reload(policy).await,
        Err(problem) => Err(crate::core::refusal::Refusal::argument("configuration", problem).into()),
    };
    engine.desk.set_degraded("config", answer.is_err());
    match &answer {
        Ok(_) => tracing::info!(
            MESSAGE_ID = message_id::of(Line::Reloaded).map(tracing::field::display),
            "read the configuration again"
        ),
        Err(error) => tracing::error!(
            MESSAGE_ID = message_id::of(Line::ConfigurationRefused).map(tracing::field::display),
            "the configuration was refused, the old one stays: {}",
            in_full(error)
        ),
    }
    inputs.notifier.reloaded();
    if let Some(reply) = reply {
        // A caller that has gone away needs no answer.
        let _ = reply.send(answer);
    }
}

/// Lets starts under way come to their end, so that no run is left half made without need.
async fn finish(engine: &mut Engine, inputs: &mut Inputs) {
    inputs.notifier.stopping("ending; the workers are left alone");
    engine.stop_starting();
    // A host that goes down ends us like any other service, and nothing else may have said so.
    if let Some(host) = &inputs.host.0
        && host.is_stopping().await == Some(true)
        && let Err(error) = engine.hear(News::Stops, None).await
    {
        say(&error);
    }
    let last = async {
        while engine.is_starting() {
            let Some(event) = inputs.events.recv().await else {
                return;
            };
            if let Err(error) = engine.handle(event).await {
                say(&error);
            }
        }
    };
    if tokio::time::timeout(LAST_STARTS, last).await.is_err() {
        tracing::warn!("starts under way did not come to their end; their gates close now");
    }
    if let Err(error) = engine.touch().await {
        say(&error);
    }
}

fn say(error: &Error) {
    tracing::error!(error = %in_full(error), "the board did not take it; leaving the claims, will look again");
}
