//! `tenurectl`: the command line of the daemon, for people and for scripts.
//!
//! Talks to the daemon by `bus::proxy` alone and never opens its board. What a verb takes is beside what it
//! does, in `verbs/`; here is only which verbs there are, and how they are reached.

#![expect(clippy::disallowed_methods, reason = "an adapter: the bus's address may be in the environment")]

pub mod connect;
pub mod demo;
pub mod dirs;
pub mod embedded;
pub mod failure;
pub mod follow;
pub mod help;
pub mod journal;
pub mod json;
pub mod output;
pub mod render;
pub mod row;
pub mod span;
pub mod table;
pub mod verbs;

use std::process::ExitCode;

use clap::{Args, FromArgMatches as _, Parser, Subcommand};

use crate::cli::connect::{Session, Wanted};
use crate::cli::dirs::Dirs;
use crate::cli::embedded::Starts;
use crate::cli::failure::{Failure, code};
use crate::cli::render::Screen;
use crate::cli::verbs::{
    Ended, Tasks, act, add, attend, claim, comment, edit, events, host, link, list, logs, queue, show, sweep,
    wait, worker,
};

/// Keep tasks on a durable board, and workers on a short leash
#[derive(Clone, Debug, Parser)]
#[command(name = "tenurectl", version, max_term_width = 100)]
pub struct Cli {
    /// Which daemon.
    #[command(flatten)]
    pub whom: Whom,
    /// Print what the bus returned, one JSON object a line, and nothing else
    #[arg(long, global = true, help_heading = "Options")]
    pub json: bool,
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// Which daemon to talk to.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Which daemon")]
pub struct Whom {
    /// This user's, on the session bus (before the verb)
    #[arg(long, conflicts_with_all = ["system", "address", "embedded"])]
    pub user: bool,
    /// The host's, on the system bus; the default
    #[arg(long, global = true, conflicts_with_all = ["address", "embedded"])]
    pub system: bool,
    /// The one at this D-Bus address [default: $TENURED_BUS_ADDRESS, where it is set]
    #[arg(long, global = true, value_name = "ADDRESS", conflicts_with = "embedded")]
    pub address: Option<String>,
    /// One of our own for as long as the command takes: no root, no systemd, no bus
    #[arg(long, global = true)]
    pub embedded: bool,
}

/// What to do.
#[derive(Clone, Debug, Subcommand)]
pub enum Verb {
    /// Put a task on the board
    #[command(
        after_help = "Examples:\n  tenurectl add -- rsync -a /home /backup\n  tenurectl add 'nightly backup' \
        --in 2h --max-runtime 1h --retries 2 -- backup.sh\n  tenurectl add 'review the plan' --queue people --after 3,4"
    )]
    Add(Box<add::Add>),
    /// Put a command on the board, follow its output, exit with its code
    #[command(
        after_help = "A failure is told at once, and not tried again but with --retries.\nCtrl-C cancels the task; a \
        second Ctrl-C leaves it to itself.\n\nExample:\n  tenurectl run \
        --max-runtime 10min -- make test"
    )]
    Run(Box<attend::Run>),
    /// List tasks
    #[command(
        after_help = "Examples:\n  tenurectl list\n  tenurectl list --status open --queue builds\n  tenurectl \
        --json list | jq .Title"
    )]
    List(list::List),
    /// Show everything about tasks, and what to type next
    #[command(after_help = "Example:\n  tenurectl show 3")]
    Show(show::Show),
    /// Show what workers wrote
    #[command(
        after_help = "Examples:\n  tenurectl logs 3\n  tenurectl logs -f 3\n  tenurectl logs --all 3 > all.log"
    )]
    Logs(logs::Logs),
    /// Wait until tasks are done; exit with their workers' code
    #[command(
        after_help = "Exits with 0 if all are done, else with the code of the first that is not.\n\nExample:\n  \
        tenurectl wait 3 4 5 --timeout 10min"
    )]
    Wait(wait::Wait),
    /// Show what has happened, oldest first
    #[command(
        after_help = "Examples:\n  tenurectl events 3\n  tenurectl events -f\n  tenurectl --json events --after 100"
    )]
    Events(events::Events),

    /// Take a task, for a worker that the daemon did not start
    #[command(
        after_help = "Prints the run that now holds the task; its number goes with everything the worker says.\n\n\
        Examples:\n  tenurectl claim --wait 10min\n  run=$(tenurectl --json claim people --pid $$ | jq .Run)"
    )]
    Claim(claim::Claim),
    /// Say that a run makes progress: its lease is extended
    #[command(after_help = "Example:\n  tenurectl heartbeat 7 --note 'half of it'")]
    Heartbeat(worker::Heartbeat),
    /// Say that a run has done its task
    #[command(
        after_help = "Example:\n  tenurectl complete 7 --summary 'all copied' --result '{\"files\": 12}'"
    )]
    Complete(worker::Complete),
    /// Say that a run has failed; the task is tried again
    #[command(
        allow_missing_positional = true,
        after_help = "Example:\n  tenurectl fail 7 'the disk is full'"
    )]
    Fail(worker::Fail),
    /// Give a claim back; it counts as no failure
    #[command(allow_missing_positional = true, after_help = "Example:\n  tenurectl release 7 'going home'")]
    Release(worker::Release),

    /// Park tasks, or as a worker the task of its run
    #[command(
        after_help = "Examples:\n  tenurectl block 3 --reason 'wait for the new disk'\n  tenurectl block --run 7 \
        --reason 'needs a person'"
    )]
    Block(act::Block),
    /// Take tasks out of the parking place, with their failures forgotten
    #[command(after_help = "Example:\n  tenurectl unblock 3 4")]
    Unblock(Tasks),
    /// Do tasks again, or at once where they wait to be tried again
    #[command(after_help = "Example:\n  tenurectl retry 3")]
    Retry(Tasks),
    /// Give tasks up; a running worker is stopped first
    #[command(
        after_help = "Examples:\n  tenurectl cancel 3 4\n  tenurectl cancel 3 --kill --reason 'wrong disk'"
    )]
    Cancel(act::Stop),
    /// Take claims back: the worker is stopped, and the task is done again
    #[command(
        after_help = "Examples:\n  tenurectl reclaim 3\n  tenurectl reclaim 3 --run 7 --reason 'it hangs'"
    )]
    Reclaim(act::Stop),
    /// Put done or cancelled tasks away
    #[command(after_help = "Example:\n  tenurectl archive 3 4 5")]
    Archive(Tasks),
    /// Change what tasks ask for
    #[command(
        after_help = "While a task runs, only its title, body, labels, priority, max runtime and stall limit can be \
        changed.\n\nExample:\n  tenurectl edit 3 4 --priority 10 --max-runtime 2h"
    )]
    Edit(Box<edit::Edit>),
    /// Write a note on tasks
    #[command(
        after_help = "Examples:\n  tenurectl comment 3 'ask Anna first'\n  dmesg | tenurectl comment 3 -"
    )]
    Comment(comment::Comment),
    /// Make tasks wait for another one
    #[command(after_help = "Example:\n  tenurectl link 3 4 5    # 4 and 5 wait for 3")]
    Link(link::Link),
    /// Let tasks no longer wait for another one
    #[command(after_help = "Example:\n  tenurectl unlink 3 4")]
    Unlink(link::Link),

    /// List, make, pause and remove queues
    #[command(
        after_help = "Examples:\n  tenurectl queue\n  tenurectl queue set builds --max-running 2\n  tenurectl queue \
        pause builds"
    )]
    Queue(queue::Queue),
    /// Look at every claim now, and say what came of it
    #[command(
        after_help = "Examples:\n  tenurectl sweep --preview\n  tenurectl sweep --pass release_stale_claims"
    )]
    Sweep(sweep::Sweep),
    /// Start nothing new; what runs goes on
    #[command(
        after_help = "Lasts until it is ended, also across restarts.\n\nExamples:\n  tenurectl drain --wait\n  \
        tenurectl drain --off"
    )]
    Drain(host::Drain),
    /// Say how the daemon is
    #[command(after_help = "Example:\n  tenurectl status")]
    Status,
    /// Copy the board into the state directory
    #[command(after_help = "Example:\n  tenurectl backup before-upgrade")]
    Backup(host::Backup),
    /// See it all work in ten seconds, on a board of its own
    #[command(
        after_help = "Needs nothing but this program, leaves nothing behind, and exits with 1 if anything it \
        claims did not hold.\n\nExample:\n  tenurectl demo"
    )]
    Demo(demo::Demo),
}

impl Verb {
    /// Whether a daemon of our own may start tasks under it.
    const fn starts(&self) -> Starts {
        match self {
            Self::Run(_) | Self::Wait(_) | Self::Demo(_) => Starts::Tasks,
            Self::Add(add) if add.wait => Starts::Tasks,
            _ => Starts::Nothing,
        }
    }
}

impl Whom {
    /// The daemon that is wanted; what is said goes before what the environment says.
    fn wanted(&self, environment: Option<String>) -> Result<Wanted, Failure> {
        if self.embedded {
            return Ok(Wanted::Embedded(Dirs::of_user()?));
        }
        if let Some(address) = &self.address {
            return Ok(Wanted::Address { address: address.clone(), from_environment: false });
        }
        Ok(match environment.filter(|address| !address.is_empty()) {
            _ if self.user => Wanted::User,
            _ if self.system => Wanted::System,
            Some(address) => Wanted::Address { address, from_environment: true },
            None => Wanted::System,
        })
    }
}

/// The whole of `tenurectl`: arguments in, exit code out.
pub fn main() -> ExitCode {
    let cli = match parse(std::env::args_os()) {
        Ok(cli) => cli,
        Err(refused) => return refused,
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Failure::own(format!("no event loop: {error}"), "").end(),
    };
    match runtime.block_on(run(cli)) {
        Ok(ended) => ExitCode::from(ended),
        Err(failure) => failure.end(),
    }
}

/// Reads the arguments; else says what is wrong with them, or the help that was asked for.
fn parse(arguments: impl IntoIterator<Item = std::ffi::OsString>) -> Result<Cli, ExitCode> {
    let matches = help::command().try_get_matches_from(arguments);
    matches.and_then(|matches| Cli::from_arg_matches(&matches)).map_err(|refused| {
        let ended = if refused.use_stderr() { code::USAGE } else { 0 };
        // Whoever closed the terminal does not want to know.
        let _ = refused.print();
        if ended != 0 && refused.to_string().contains("'--user'") {
            render::aside("--user, for the session bus, goes before the verb: tenurectl --user list");
        }
        ExitCode::from(ended)
    })
}

async fn run(cli: Cli) -> Ended {
    let screen = Screen::of_stdout(cli.json);
    if let Verb::Demo(demo) = &cli.verb {
        return demo::run(&screen, demo).await;
    }
    let wanted = cli.whom.wanted(std::env::var("TENURED_BUS_ADDRESS").ok())?;
    let mut session = Session::open(wanted, screen, cli.verb.starts()).await?;
    let ended = dispatch(&mut session, &cli.verb).await;
    session.close().await;
    ended
}

async fn dispatch(session: &mut Session, verb: &Verb) -> Ended {
    match verb {
        Verb::Add(verb) => add::run(session, verb).await,
        Verb::Run(verb) => attend::run(session, verb).await,
        Verb::List(verb) => list::run(session, verb).await,
        Verb::Show(verb) => show::run(session, verb).await,
        Verb::Logs(verb) => logs::run(session, verb).await,
        Verb::Wait(verb) => wait::run(session, verb).await,
        Verb::Events(verb) => events::run(session, verb).await,
        Verb::Claim(verb) => claim::run(session, verb).await,
        Verb::Heartbeat(verb) => worker::heartbeat(session, verb).await,
        Verb::Complete(verb) => worker::complete(session, verb).await,
        Verb::Fail(verb) => worker::fail(session, verb).await,
        Verb::Release(verb) => worker::release(session, verb).await,
        Verb::Block(verb) => act::block(session, verb).await,
        Verb::Unblock(verb) => act::unblock(session, verb).await,
        Verb::Retry(verb) => act::retry(session, verb).await,
        Verb::Cancel(verb) => act::cancel(session, verb).await,
        Verb::Reclaim(verb) => act::reclaim(session, verb).await,
        Verb::Archive(verb) => act::archive(session, verb).await,
        Verb::Edit(verb) => edit::run(session, verb).await,
        Verb::Comment(verb) => comment::run(session, verb).await,
        Verb::Link(verb) => link::run(session, verb, true).await,
        Verb::Unlink(verb) => link::run(session, verb, false).await,
        Verb::Queue(verb) => queue::run(session, verb).await,
        Verb::Sweep(verb) => sweep::run(session, verb).await,
        Verb::Drain(verb) => host::drain(session, verb).await,
        Verb::Status => host::status(session).await,
        Verb::Backup(verb) => host::backup(session, verb).await,
        // Reached before a session is opened: it opens its own.
        Verb::Demo(_) => Ok(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cli(words: &[&str]) -> Result<Cli, clap::Error> {
        let words = std::iter::once("tenurectl").chain(words.iter().copied());
        help::command().try_get_matches_from(words).and_then(|matches| Cli::from_arg_matches(&matches))
    }

    #[test]
    fn the_definitions_hold_together() {
        help::command().debug_assert();
    }

    #[test]
    fn what_people_type_is_understood() {
        for words in [
            &["add", "--", "true"][..],
            &["add", "title", "--after", "3,4", "--max-runtime", "5min", "--retries", "2", "--env", "A=b"],
            &[
                "add",
                "-q",
                "x",
                "--user",
                "nobody",
                "--slot",
                "gpu:2",
                "-p",
                "MemoryMax=1G",
                "--",
                "a",
                "--json",
            ],
            &["--user", "add", "--user", "nobody", "--", "true"],
            &["run", "--nice", "-5", "--", "make", "-j2"],
            &["list", "--json", "--embedded"],
            &["list", "-s", "open,done"],
            &["show", "1,2", "3"],
            &["wait", "3", "4", "--timeout", "10min"],
            &["events", "-f"],
            &["fail", "7", "why"],
            &["fail", "why"],
            &["release", "why"],
            &["heartbeat"],
            &["comment", "3", "4", "text"],
            &["comment", "3", "-"],
            &["block", "3", "-r", "why"],
            &["block", "--run", "7", "-r", "why"],
            &["block", "--run", "--reason", "why"],
            &["cancel", "3", "--kill"],
            &["queue"],
            &["queue", "set", "x", "--max-running", "2", "--max-runtime", "1h"],
            &["sweep", "--pass", "promote,dispatch", "-n"],
            &["drain", "--off"],
            &["backup"],
        ] {
            cli(words).unwrap_or_else(|refused| panic!("{words:?}: {refused}"));
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_as_usage() {
        for words in [
            &["add", "--max-runtime", "soon", "--", "true"][..],
            &["--user", "--system", "list"],
            &["--embedded", "--address", "unix:path=/x", "list"],
            &["show"],
            &["show", "three"],
            &["list", "--status", "Running"],
            &["list", "--user"],
            &["block", "3"],
            &["nothing"],
            &[],
        ] {
            let refused = cli(words).map(|cli| panic!("{words:?}: {cli:?}")).unwrap_err();
            assert!(refused.use_stderr(), "{words:?}");
        }
    }

    #[test]
    fn a_command_keeps_its_own_options() {
        let Verb::Add(add) = cli(&["add", "--json", "--", "ls", "--json", "-l"]).unwrap().verb else {
            panic!()
        };
        assert_eq!(add.new.command, ["ls", "--json", "-l"]);
    }

    #[test]
    fn what_is_said_goes_before_the_environment() {
        let wanted = |words: &[&str]| {
            cli(words)
                .unwrap()
                .whom
                .wanted(Some("unix:path=/x".to_owned()))
                .map(|wanted| format!("{wanted:?}"))
        };
        assert!(wanted(&["status"]).unwrap().contains("from_environment: true"));
        assert_eq!(wanted(&["--system", "status"]).unwrap(), "System");
        assert_eq!(wanted(&["--user", "status"]).unwrap(), "User");
        assert!(wanted(&["--address", "unix:path=/y", "status"]).unwrap().contains("/y"));
    }

    #[test]
    fn only_verbs_that_wait_for_work_start_it() {
        for (words, starts) in [
            (&["run", "--", "true"][..], Starts::Tasks),
            (&["wait", "1"], Starts::Tasks),
            (&["add", "--wait", "--", "true"], Starts::Tasks),
            (&["add", "--", "true"], Starts::Nothing),
            (&["list"], Starts::Nothing),
            (&["sweep"], Starts::Nothing),
        ] {
            assert_eq!(cli(words).unwrap().verb.starts(), starts, "{words:?}");
        }
    }
}
