//! `demo`: the daemon at work on a board of its own, for ten seconds, and a proof of each thing that it claims.
//!
//! Nothing is staged: the tasks are real commands, the worker that is killed is killed from outside, and every
//! line of the summary is checked against what the board wrote down. Leaves nothing behind.

mod director;
mod evidence;
mod proof;
mod stage;

#[cfg(test)]
mod proof_tests;

use std::path::Path;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use crate::bus::proxy::{Options, Row};
use crate::cli::connect::{Session, Wanted};
use crate::cli::demo::director::Director;
use crate::cli::demo::evidence::Evidence;
use crate::cli::demo::proof::Proof;
use crate::cli::demo::stage::Stage;
use crate::cli::dirs::Dirs;
use crate::cli::embedded::Starts;
use crate::cli::failure::{Failure, code};
use crate::cli::follow::Follower;
use crate::cli::render::{Page, Paint, Screen, aside};
use crate::cli::row::Fields as _;
use crate::cli::span::{human, now_usec};
use crate::cli::verbs::Ended;
use crate::cli::verbs::wait::is_settled;

/// `demo`.
#[derive(Args, Clone, Debug)]
pub struct Demo {
    /// Keep the board, and say where it is
    #[arg(long)]
    pub keep: bool,
}

/// A demo that has not come to its end after this has failed: the host is very slow, or a promise broken.
const LIMIT: Duration = Duration::from_secs(60);
/// Workers that are still there at the end get this long to go.
const CLEAR: Duration = Duration::from_secs(10);
/// The live view moves this often.
const FRAME: Duration = Duration::from_millis(250);

/// Short spans, so that ten seconds are enough.
const CONFIG: &str =
    "[sweep]\ninterval = \"1s\"\n[run]\nmax_running = 16\nlaunch = \"direct\"\nbackoff = \"500ms\"\n";

/// Shows the daemon at work.
///
/// # Errors
/// Where no daemon can be started.
pub async fn run(screen: &Screen, demo: &Demo) -> Ended {
    let mut directory = tempfile::Builder::new().prefix("tenured-demo-").tempdir()?;
    directory.disable_cleanup(demo.keep);
    let ended = on(directory.path(), screen).await;
    if demo.keep {
        aside(&format!("the board is in {}", directory.path().join("state").display()));
    }
    ended
}

async fn on(directory: &Path, screen: &Screen) -> Ended {
    let dirs = Dirs { config: Some(config(directory)?), ..Dirs::under(directory) };
    let mut session = Session::open(Wanted::Embedded(dirs), screen.clone(), Starts::Tasks).await?;
    let ended = with(&mut session).await;
    let cleared = clear(&mut session).await;
    session.close().await;
    let ended = ended?;
    cleared?;
    Ok(ended)
}

fn config(directory: &Path) -> Result<std::path::PathBuf, Failure> {
    let path = directory.join("tenured.toml");
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    std::io::Write::write_all(&mut file, CONFIG.as_bytes())?;
    file.persist(&path).map_err(|error| error.error)?;
    Ok(path)
}

async fn with(session: &mut Session) -> Ended {
    let began_usec = now_usec();
    let mut follower = Follower::start(session).await?;
    let mut director = Director::cast(&follower.session().manager).await?;
    let mut stage = Stage::new(follower.session().screen.clone(), began_usec)?;
    let play = play(&mut follower, &mut director, &mut stage);
    tokio::select! {
        played = tokio::time::timeout(LIMIT, play) => match played {
            Ok(played) => played?,
            Err(_) => aside(&format!("not at its end after {}: what follows cannot all be proven", human(LIMIT.as_micros() as u64))),
        },
        interrupted = tokio::signal::ctrl_c() => {
            interrupted?;
            return Ok(code::INTERRUPTED);
        }
    }
    let evidence = Evidence::gather(&follower.session().manager, director).await?;
    let proofs = proof::all(&evidence);
    let screen = &follower.session().screen;
    let took_usec = now_usec().saturating_sub(began_usec);
    screen.print(&if screen.json { as_json(&proofs) } else { summary(screen, &proofs, took_usec) })?;
    Ok(if proofs.iter().all(|proof| proof.holds.is_ok()) { 0 } else { code::REFUSED })
}

/// Until every task has come to its end and the director has nothing more to do.
async fn play(
    follower: &mut Follower<'_>,
    director: &mut Director,
    stage: &mut Stage,
) -> Result<(), Failure> {
    loop {
        let tasks = tasks(follower).await?;
        director.act(&follower.session().manager, &tasks).await?;
        stage.show(&follower.session().manager, &tasks).await?;
        if let Some(daemon) = director.daemon_to_kill(&tasks, follower.session().own_daemon()) {
            stage.note(&format!(
                "the daemon, process {}, is killed with SIGKILL; another one takes over",
                daemon.pid()
            ))?;
            if let Some((_, worker, _)) = director.deeds.orphaned {
                director::becomes_command(worker).await;
            }
            daemon.crash()?;
            continue;
        }
        if director.is_done() && tasks.iter().all(|task| is_settled(task.text("Status"))) {
            return stage.end(&follower.session().manager, &tasks).await;
        }
        loop {
            let news = tokio::select! {
                news = follower.news() => Some(news),
                () = tokio::time::sleep(FRAME) => None,
            };
            if let Some(news) = news {
                follower.mended(news).await?;
                break;
            }
            stage.redraw(&tasks)?;
        }
    }
}

async fn tasks(follower: &mut Follower<'_>) -> Result<Vec<Row>, Failure> {
    follower.ask(async |manager| manager.list_tasks(&Options::new()).await).await
}

/// Stops what still runs, so that nothing is left behind, whatever went wrong.
async fn clear(session: &mut Session) -> Result<(), Failure> {
    let mut follower = Follower::start(session).await?;
    let clearing = async {
        loop {
            let tasks = tasks(&mut follower).await?;
            let running: Vec<u64> = tasks
                .iter()
                .filter(|task| task.text("Status") == "running")
                .map(|task| task.number("Task"))
                .collect();
            if running.is_empty() {
                return Ok(());
            }
            for task in running {
                let options = Options::from([("Kill", true.into()), ("Reason", "the demo is over".into())]);
                // One that has just ended needs no stop.
                let _ = follower.ask(async |manager| manager.cancel_task(task, &options).await).await;
            }
            follower.hint().await?;
        }
    };
    tokio::time::timeout(CLEAR, clearing).await.unwrap_or_else(|_| {
        Err(Failure::own(
            "a worker of the demo does not end",
            "Its commands end by themselves within half a minute.",
        ))
    })
}

/// The proofs for programs, one a line.
fn as_json(proofs: &[Proof]) -> String {
    let line = |proof: &Proof| {
        let (Ok(detail) | Err(detail)) = &proof.holds;
        json!({ "Claim": proof.claim, "Holds": proof.holds.is_ok(), "Detail": detail }).to_string() + "\n"
    };
    proofs.iter().map(line).collect()
}

fn summary(screen: &Screen, proofs: &[Proof], took_usec: u64) -> String {
    let mut page = Page::new(screen);
    page.heading(&format!("proven in {}, each line against the board's events", human(took_usec)));
    for proof in proofs {
        let (mark, paint, detail) = match &proof.holds {
            Ok(detail) => ("ok ", Paint::Green, detail),
            Err(detail) => ("NOT", Paint::Red, detail),
        };
        let claim = crate::cli::render::line(proof.claim);
        let detail = screen.paint(&crate::cli::render::line(detail), Paint::Dim);
        page.push(&format!("  {} {claim}\n        {detail}", screen.paint(mark, paint)));
    }
    page.heading("next");
    page.push("  tenurectl --embedded run -- echo hello    your own board, without root, systemd or a bus");
    page.push("  tenurectl help                            everything there is");
    format!("\n{}", page.into_text())
}
