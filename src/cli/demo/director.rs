//! Who plays in the demo, and what is done to them from outside.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use zbus::Variant;

use crate::bus::proxy::{ManagerProxy, Options, Row};
use crate::cli::embedded::Embedded;
use crate::cli::failure::Failure;
use crate::cli::row::Fields as _;
use crate::cli::span::now_usec;
use crate::cli::verbs::wait::is_settled;

/// The tasks, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cast {
    pub first: u64,
    pub second: u64,
    pub third: u64,
    pub flaky: u64,
    pub killed: u64,
    pub overrun: u64,
    pub external: u64,
    pub once: u64,
    /// The number that adding `once` again gave, and whether it said that it was new.
    pub again: (u64, bool),
}

/// What was done from outside, and what it showed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deeds {
    /// When the worker was killed, wall clock, and its pid.
    pub killed_usec: Option<(u64, u64)>,
    /// Whether the worker that ignores TERM was seen gone by its pidfd.
    pub overrun_gone: bool,
    /// The claim whose claimant went away: its run, when it was given, its lease.
    pub lost_claim: Option<(u64, u64, u64)>,
    /// The claim after it.
    pub next_claim: Option<u64>,
    /// The worker that ran when the daemon was killed: its task's run, its pid, and the daemon's pid.
    pub orphaned: Option<(u64, u64, u32)>,
    /// The error's name when the first claimant spoke all the same.
    pub late_word: Option<String>,
}

/// The lease of the claim whose claimant goes away.
const LEASE_USEC: u64 = 2_500_000;

/// A shell script as a command.
fn script(text: &str) -> Vec<String> {
    ["sh", "-c", text].map(str::to_owned).to_vec()
}

/// Plays.
#[derive(Debug)]
pub struct Director {
    /// The tasks.
    pub cast: Cast,
    /// What was done.
    pub deeds: Deeds,
    overrun: Option<OwnedFd>,
}

async fn add(
    manager: &ManagerProxy<'static>,
    title: &str,
    command: &str,
    more: &[(&'static str, Variant<'static>)],
) -> Result<u64, Failure> {
    let mut options = Options::from([("WorkingDirectory", "/".into())]);
    if !command.is_empty() {
        options.insert("Command", script(command).into());
    }
    for (key, value) in more {
        options.insert(key, value.try_clone()?);
    }
    Ok(manager.create_task(title, &options).await?.0)
}

impl Director {
    /// Puts the tasks on the board.
    ///
    /// # Errors
    /// Where the daemon refuses one.
    pub async fn cast(manager: &ManagerProxy<'static>) -> Result<Self, Failure> {
        let first = add(manager, "mine the ore", "echo ore; sleep 2.5", &[]).await?;
        let second =
            add(manager, "smelt it, after 1", "echo iron; sleep 4", &[("Parents", vec![first].into())])
                .await?;
        let third =
            add(manager, "forge it, after 2", "echo ring; sleep 1.5", &[("Parents", vec![second].into())])
                .await?;
        let flaky = add(
            manager,
            "fail twice, then do it",
            "echo attempt $TENURED_ATTEMPT; sleep 0.5; test $TENURED_ATTEMPT -ge 3",
            &[("FailureLimit", 5_u32.into())],
        )
        .await?;
        let killed = add(
            manager,
            "be killed from outside",
            "test $TENURED_ATTEMPT -ge 2 || exec sleep 30; echo alive again",
            &[],
        )
        .await?;
        let overrun = add(
            manager,
            "overrun 1 s, deaf to TERM",
            "trap '' TERM; i=0; while test $i -lt 60; do i=$((i+1)); sleep 0.5; done",
            &[
                ("MaxRuntimeUsec", 1_000_000_u64.into()),
                ("StopGraceUsec", 1_500_000_u64.into()),
                ("FailureLimit", 1_u32.into()),
            ],
        )
        .await?;
        let external =
            add(manager, "be claimed by somebody who leaves", "", &[("FailureLimit", 0_u32.into())]).await?;
        let key = [("IdempotencyKey", "demo-once".into())];
        let once = add(manager, "be added twice, with one key", "echo once", &key).await?;
        let options = Options::from([("IdempotencyKey", "demo-once".into())]);
        let again = manager.create_task("be added twice, with one key", &options).await?;
        let cast = Cast { first, second, third, flaky, killed, overrun, external, once, again };
        Ok(Self { cast, deeds: Deeds::default(), overrun: None })
    }

    /// Does what is due by now.
    ///
    /// # Errors
    /// Where the daemon does not answer.
    pub async fn act(&mut self, manager: &ManagerProxy<'static>, tasks: &[Row]) -> Result<(), Failure> {
        let by_number: BTreeMap<u64, &Row> = tasks.iter().map(|task| (task.number("Task"), task)).collect();
        if let Some(task) = by_number.get(&self.cast.killed) {
            self.kill(manager, task).await?;
        }
        if let Some(task) = by_number.get(&self.cast.overrun) {
            self.watch_overrun(manager, task).await?;
        }
        if let Some(task) = by_number.get(&self.cast.external) {
            self.claim(manager, task).await?;
        }
        Ok(())
    }

    /// Whether everything was done that is to be done.
    pub const fn is_done(&self) -> bool {
        self.deeds.killed_usec.is_some() && self.deeds.late_word.is_some() && self.deeds.orphaned.is_some()
    }

    /// The daemon, when its time has come: while the worker of `second` runs, and nothing else is under way
    /// that a fresh lease would delay or that might be starting just now.
    pub fn daemon_to_kill<'a>(
        &mut self,
        tasks: &[Row],
        daemon: Option<&'a Embedded>,
    ) -> Option<&'a Embedded> {
        let later = [self.cast.first, self.cast.second, self.cast.third];
        let others_settled = tasks
            .iter()
            .filter(|task| !later.contains(&task.number("Task")))
            .all(|task| is_settled(task.text("Status")));
        let task = tasks.iter().find(|task| task.number("Task") == self.cast.second)?;
        if self.deeds.orphaned.is_some() || !others_settled || task.text("Stage") != "running" {
            return None;
        }
        let daemon = daemon?;
        self.deeds.orphaned = Some((task.number("Run"), task.number("WorkerPid"), daemon.pid()));
        Some(daemon)
    }

    /// Kills the first worker of `killed`, as anybody might.
    async fn kill(&mut self, manager: &ManagerProxy<'static>, task: &Row) -> Result<(), Failure> {
        if self.deeds.killed_usec.is_some() || task.text("Stage") != "running" {
            return Ok(());
        }
        let Some(worker) = hold(manager, task).await? else { return Ok(()) };
        self.deeds.killed_usec = Some((now_usec(), task.number("WorkerPid")));
        pidfd_send_signal(&worker, Signal::KILL).map_err(std::io::Error::from)?;
        Ok(())
    }

    /// Holds the worker that overruns, to see for ourselves that it is gone in the end.
    async fn watch_overrun(&mut self, manager: &ManagerProxy<'static>, task: &Row) -> Result<(), Failure> {
        match &self.overrun {
            None if task.text("Stage") == "running" => self.overrun = hold(manager, task).await?,
            Some(worker) if task.text("Status") == "blocked" => self.deeds.overrun_gone = is_gone(worker),
            _ => {}
        }
        Ok(())
    }

    /// Claims `external` and goes away; when it was taken back, claims it again, and lets the first claimant
    /// speak once more before the second one completes it.
    async fn claim(&mut self, manager: &ManagerProxy<'static>, task: &Row) -> Result<(), Failure> {
        if task.text("Status") != "ready" || self.deeds.late_word.is_some() {
            return Ok(());
        }
        let mut options =
            Options::from([("Task", self.cast.external.into()), ("LeaseUsec", LEASE_USEC.into())]);
        let Some((lost, _, _)) = self.deeds.lost_claim else {
            options.insert("Claimant", "a client that goes away".into());
            let asked_usec = now_usec();
            let (_, run, _) = manager.claim_task("", &options).await?;
            self.deeds.lost_claim = Some((run, asked_usec, LEASE_USEC));
            return Ok(());
        };
        options.insert("Claimant", "a client that stays".into());
        let next = match manager.claim_task("", &options).await {
            Ok((_, run, _)) => run,
            // In its back-off: it will be ready later.
            Err(_) => return Ok(()),
        };
        self.deeds.next_claim = Some(next);
        let late = manager.complete_run(lost, &Options::new()).await;
        self.deeds.late_word = Some(match late {
            Ok(word) => format!("accepted: {word}"),
            Err(error) => match Failure::from(error) {
                Failure::Refused { name, .. } => name,
                other => return Err(other),
            },
        });
        let summary = Options::from([("Summary", "done by the one who stayed".into())]);
        manager.complete_run(next, &summary).await?;
        Ok(())
    }
}

/// Holds the worker of a running task; nothing if it is no longer the one on the board. A number alone could
/// have come to name another process before we held it.
async fn hold(manager: &ManagerProxy<'static>, task: &Row) -> Result<Option<OwnedFd>, Failure> {
    let pid = i32::try_from(task.number("WorkerPid")).ok().filter(|pid| *pid > 1).and_then(Pid::from_raw);
    let Some(pid) = pid else { return Ok(None) };
    let Ok(held) = pidfd_open(pid, PidfdFlags::empty()) else { return Ok(None) };
    let now = manager.get_task(task.number("Task")).await?;
    let same = |key: &str| now.number(key) == task.number(key);
    let ours = same("Run") && same("WorkerPid") && now.text("Status") == "running";
    if ours {
        becomes_command(task.number("WorkerPid")).await;
    }
    Ok(ours.then_some(held))
}

/// Waits until a worker has become its command: the board has its identity before that, while it still stands
/// at its gate. One that does not get there shows in the evidence.
pub async fn becomes_command(pid: u64) {
    const LOOKS: u32 = 500;
    const APART: Duration = Duration::from_millis(10);
    for _ in 0..LOOKS {
        match std::fs::read(format!("/proc/{pid}/cmdline")) {
            Ok(words) if words.starts_with(b"tenured-exec") => tokio::time::sleep(APART).await,
            Ok(_) | Err(_) => return,
        }
    }
}

/// Whether a held process has ended: its pidfd is readable.
fn is_gone(process: &OwnedFd) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut polled = [PollFd::new(process, PollFlags::IN)];
    poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready == 1)
}
