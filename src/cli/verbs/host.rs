//! The daemon itself: `status`, `drain`, `backup`.

use clap::Args;
use serde_json::{Value, json};

use crate::bus::proxy::{Options, Row};
use crate::cli::connect::Session;
use crate::cli::failure::Failure;
use crate::cli::follow::Follower;
use crate::cli::json::object;
use crate::cli::render::{Page, Paint, line, paint_of_status};
use crate::cli::row::Fields as _;
use crate::cli::span::Calendar;
use crate::cli::verbs::{Ended, tell};

/// `drain`.
#[derive(Args, Clone, Debug)]
pub struct Drain {
    /// Start tasks again
    #[arg(long, conflicts_with = "wait")]
    pub off: bool,
    /// Wait until nothing runs
    #[arg(long, short)]
    pub wait: bool,
}

/// `backup`.
#[derive(Args, Clone, Debug)]
pub struct Backup {
    /// The copy's name [default: the present time]
    pub name: Option<String>,
}

/// Starts nothing new, or again.
///
/// # Errors
/// Refusals, and where the daemon does not answer.
pub async fn drain(session: &mut Session, drain: &Drain) -> Ended {
    let on = !drain.off;
    let word = session.manager.drain(on, &Options::new()).await?;
    let words = match (on, word.as_str()) {
        (true, "unchanged") => "draining already",
        (false, "unchanged") => "was not draining",
        (true, _) => {
            "draining: nothing new is started, also after a restart; `tenurectl drain --off` ends it"
        }
        (false, _) => "tasks are started again",
    };
    tell(session, &json!({ "On": on, "Outcome": word }), words)?;
    if drain.wait { until_idle(session).await } else { Ok(0) }
}

async fn until_idle(session: &mut Session) -> Ended {
    let mut follower = Follower::start(session).await?;
    loop {
        let filter = Options::from([("Status", vec!["running"].into()), ("Limit", 1_u32.into())]);
        if follower.ask(async |manager| manager.list_tasks(&filter).await).await?.is_empty() {
            follower.session().screen.say("nothing runs")?;
            return Ok(0);
        }
        follower.hint().await?;
    }
}

/// Makes a copy of the board.
///
/// # Errors
/// As [`drain`].
pub async fn backup(session: &Session, backup: &Backup) -> Ended {
    let now = || Calendar::here().now().strftime("%Y%m%d-%H%M%S").to_string();
    let name = backup.name.clone().unwrap_or_else(now);
    let path = session.manager.backup(&name, &Options::new()).await?;
    tell(session, &json!({ "Path": path }), &line(&path))?;
    Ok(0)
}

/// How the daemon is.
///
/// # Errors
/// As [`drain`].
pub async fn status(session: &Session) -> Ended {
    let manager = &session.manager;
    let version = manager.version().await?;
    let boot = manager.boot_id().await?;
    let epoch = manager.epoch().await?;
    let directory = manager.state_directory().await.unwrap_or_default();
    let draining = manager.draining().await?;
    let degraded = manager.degraded().await?;
    let workers = manager.workers().await.map_err(Failure::from).ok();
    let stats = manager.get_stats(&Options::new()).await?;
    if session.screen.json {
        let returned = json!({
            "Version": version, "BootId": boot, "Epoch": epoch, "Draining": draining, "Degraded": degraded,
            "Workers": workers, "StateDirectory": directory, "Stats": Value::Object(object(&stats)),
        });
        session.screen.print(&returned.to_string())?;
        return Ok(0);
    }
    let mut page = Page::new(&session.screen);
    page.heading(&format!("tenured {version}"));
    if degraded.is_empty() {
        page.painted_field("health", "well", Paint::Green);
    }
    for reason in &degraded {
        page.painted_field("degraded", &format!("{reason}: {}", degraded_in_words(reason)), Paint::Red);
    }
    if draining {
        page.painted_field(
            "draining",
            "nothing new is started; `tenurectl drain --off` ends it",
            Paint::Yellow,
        );
    }
    page.field("workers", &workers.map_or(String::new(), |workers| workers.to_string()));
    page.field("board", &counts(session, &stats));
    page.field("directory", &directory);
    page.field("boot", &boot);
    page.field("epoch", &epoch);
    session.screen.print(&page.into_text())?;
    Ok(0)
}

/// `2 running, 5 ready`: the statuses that there are tasks in.
fn counts(session: &Session, stats: &Row) -> String {
    let mut parts = Vec::new();
    for status in ["running", "ready", "todo", "blocked", "done", "cancelled", "archived"] {
        let number = count_of(stats, status);
        if number != 0 {
            parts.push(session.screen.paint(&format!("{number} {status}"), paint_of_status(status)));
        }
    }
    if parts.is_empty() { "empty".to_owned() } else { parts.join(", ") }
}

/// A count of GetStats, which begins each status with a capital.
fn count_of(stats: &Row, status: &str) -> u64 {
    let mut capital = status.to_owned();
    if let Some(first) = capital.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    stats.number(&capital)
}

fn degraded_in_words(reason: &str) -> &'static str {
    match reason.split([':', ' ']).next().unwrap_or_default() {
        "disk_full" => "the disk of the board is full; new work is refused, ends of runs are still recorded",
        "bus_lost" => "the bus has gone; supervision goes on, and the private socket answers",
        "launch" => {
            "the host could not start a command; it is tried again, longer apart each time (`tenurectl events` says why)"
        }
        "config" => {
            "the configuration that was read last is refused, and the one before holds; see the daemon's log"
        }
        "slow_disk" => "the board's disk answers slowly; everything that waits for it does too",
        "epoch" => "the witnesses of this boot disagree; claims they concern are left alone",
        "wal" => {
            "the board's log grows and cannot be folded in; look for a program that keeps the board open"
        }
        _ => "see the daemon's log",
    }
}
