//! The claims of the demo, each with a check of what the board wrote down.
//!
//! A check says what it found, or what is missing; it knows nothing of how the demo was played but its cast and
//! what was done from outside.

use crate::cli::demo::evidence::{Event, Evidence, Run};
use crate::cli::span::human;

/// A claim, and whether it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// What is claimed.
    pub claim: &'static str,
    /// What shows it, or what contradicts it.
    pub holds: Result<String, String>,
}

/// A death must be seen long before the next sweep would look, which is a second later.
const AT_ONCE_USEC: u64 = 500_000;
/// A lease may be over this much later than it says: the next sweep, and a slow host.
const LEASE_SLACK_USEC: u64 = 5_000_000;
/// Kinds of events that end a run.
const ENDS: [&str; 13] = [
    "completed",
    "failed",
    "crashed",
    "oom",
    "timed_out",
    "stalled",
    "reclaimed",
    "tempfail",
    "misconfigured",
    "lost",
    "not_started",
    "released",
    "reconciled",
];

/// Finds what shows a claim, or what contradicts it.
type Check = fn(&Evidence) -> Result<String, String>;

/// Checks every claim.
pub fn all(evidence: &Evidence) -> Vec<Proof> {
    let checks: [(&'static str, Check); 9] = [
        ("a task starts when those before it are done, not earlier", in_order),
        ("a failed task is tried again after a pause, until it succeeds", retried),
        ("a worker killed from outside is seen at once, its task done again", seen_at_once),
        ("a worker that overruns gets TERM, a grace, KILL; it goes before its claim", stopped),
        ("a claim whose claimant left is taken back when its lease is over", taken_back),
        ("a late word of a run that lost its claim changes nothing", fenced),
        ("a daemon that is killed takes no worker with it; the next one finds it", outlived),
        ("the same key adds a task once", added_once),
        ("every run ended once, and no task ever had two at a time", one_at_a_time),
    ];
    checks.into_iter().map(|(claim, check)| Proof { claim, holds: check(evidence) }).collect()
}

fn first<'a>(evidence: &'a Evidence, task: u64, kind: &'a str) -> Result<&'a Event, String> {
    evidence.of(task, kind).next().ok_or_else(|| format!("task {task} has no event {kind}"))
}

fn done(evidence: &Evidence, task: u64) -> Result<(), String> {
    match evidence.status(task) {
        "done" => Ok(()),
        other => Err(format!("task {task} is {other}, not done")),
    }
}

fn in_order(evidence: &Evidence) -> Result<String, String> {
    let cast = &evidence.cast;
    for (before, after) in [(cast.first, cast.second), (cast.second, cast.third)] {
        done(evidence, after)?;
        let completed = first(evidence, before, "completed")?;
        let started = first(evidence, after, "claimed").or_else(|_| first(evidence, after, "started"))?;
        if started.event < completed.event {
            return Err(format!("task {after} started before task {before} was done"));
        }
    }
    Ok(format!(
        "{} was done before {} started, and {} before {}",
        cast.first, cast.second, cast.second, cast.third
    ))
}

fn retried(evidence: &Evidence) -> Result<String, String> {
    let task = evidence.cast.flaky;
    done(evidence, task)?;
    let outcomes: Vec<&str> = evidence.runs_of(task).iter().map(|run| run.outcome.as_str()).collect();
    if outcomes != ["failed", "failed", "completed"] {
        return Err(format!("the runs of task {task} ended {outcomes:?}"));
    }
    let pauses: Vec<String> = evidence
        .runs_of(task)
        .windows(2)
        .map(|pair| human(between(&pair[0], &pair[1]) / 1_000 * 1_000))
        .collect();
    Ok(format!("task {task}: failed, {} later failed, {} later completed", pauses[0], pauses[1]))
}

/// From the end of a run to the start of the next.
const fn between(before: &Run, after: &Run) -> u64 {
    after.started_usec.saturating_sub(before.ended_usec)
}

fn seen_at_once(evidence: &Evidence) -> Result<String, String> {
    let task = evidence.cast.killed;
    let (killed_usec, pid) = evidence.deeds.killed_usec.ok_or("its worker was never killed")?;
    let crashed = first(evidence, task, "crashed")?;
    let took = crashed.at_usec.saturating_sub(killed_usec);
    if crashed.at_usec < killed_usec || took > AT_ONCE_USEC {
        return Err(format!("pid {pid} was killed, and that was written down {} later", human(took)));
    }
    done(evidence, task)?;
    Ok(format!(
        "task {task}: pid {pid} killed, written down {} later, completed by run {}",
        human(took),
        last_run(evidence, task)
    ))
}

fn last_run(evidence: &Evidence, task: u64) -> u64 {
    evidence.runs_of(task).last().map_or(0, |run| run.run)
}

fn stopped(evidence: &Evidence) -> Result<String, String> {
    let task = evidence.cast.overrun;
    let signal_of = |event: &Event| event.payload.get("signal").and_then(serde_json::Value::as_i64);
    let sent: Vec<(i64, u64)> =
        evidence.of(task, "signalled").filter_map(|event| Some((signal_of(event)?, event.at_usec))).collect();
    let [(15, term_usec), (9, kill_usec)] = sent[..] else {
        return Err(format!(
            "task {task} got the signals {:?}",
            sent.iter().map(|(signal, _)| signal).collect::<Vec<_>>()
        ));
    };
    let ended = first(evidence, task, "timed_out")?;
    if ended.at_usec < kill_usec {
        return Err(format!("task {task} was let go before KILL went out"));
    }
    if !evidence.deeds.overrun_gone {
        return Err(format!("the worker of task {task} was still there when its claim had ended"));
    }
    let grace = human(kill_usec.saturating_sub(term_usec) / 1_000 * 1_000);
    Ok(format!("task {task}: TERM, {grace} later KILL, then timed_out; its pidfd says that it is gone"))
}

fn taken_back(evidence: &Evidence) -> Result<String, String> {
    let task = evidence.cast.external;
    let (run, given_usec, lease_usec) = evidence.deeds.lost_claim.ok_or("nothing was claimed")?;
    let reclaimed = first(evidence, task, "reclaimed")?;
    let held_usec = reclaimed.at_usec.saturating_sub(given_usec);
    if reclaimed.run != run || held_usec < lease_usec || held_usec > lease_usec + LEASE_SLACK_USEC {
        return Err(format!(
            "run {} was taken back after {}, with a lease of {}",
            reclaimed.run,
            human(held_usec),
            human(lease_usec)
        ));
    }
    Ok(format!(
        "task {task}: a lease of {}, taken back after {}",
        human(lease_usec),
        human(held_usec / 1_000 * 1_000)
    ))
}

fn fenced(evidence: &Evidence) -> Result<String, String> {
    let task = evidence.cast.external;
    let (lost, _, _) = evidence.deeds.lost_claim.ok_or("nothing was claimed")?;
    let next = evidence.deeds.next_claim.ok_or("nothing was claimed again")?;
    let answer = evidence.deeds.late_word.as_deref().ok_or("nobody spoke late")?;
    if answer != "StaleRun" {
        return Err(format!("run {lost} spoke late and was answered {answer}"));
    }
    let completed: Vec<u64> = evidence.of(task, "completed").map(|event| event.run).collect();
    if completed != [next] {
        return Err(format!("task {task} was completed by {completed:?}, not by run {next} alone"));
    }
    Ok(format!("task {task}: run {lost} was answered StaleRun, run {next} completed it"))
}

fn outlived(evidence: &Evidence) -> Result<String, String> {
    let task = evidence.cast.second;
    let (run, pid, daemon) = evidence.deeds.orphaned.ok_or("the daemon was never killed")?;
    done(evidence, task)?;
    let [only] = evidence.runs_of(task) else {
        return Err(format!("task {task} had {} runs", evidence.runs_of(task).len()));
    };
    let completed = first(evidence, task, "completed")?;
    let ended_pid = completed.payload.get("pid").and_then(serde_json::Value::as_u64);
    if only.run != run || ended_pid != Some(pid) {
        return Err(format!(
            "run {run} had process {pid}, and run {} of process {ended_pid:?} completed",
            only.run
        ));
    }
    Ok(format!("task {task}: process {pid} outlived daemon {daemon}, and run {run} completed it"))
}

fn added_once(evidence: &Evidence) -> Result<String, String> {
    let (once, again) = (evidence.cast.once, evidence.cast.again);
    if again != (once, false) {
        return Err(format!("task {once} was added, and adding it again gave {again:?}"));
    }
    let created = evidence.of(once, "created").count();
    let tasks = evidence.statuses.len();
    if created != 1 || tasks != 8 {
        return Err(format!("there are {tasks} tasks, and task {once} was created {created} times"));
    }
    done(evidence, once)?;
    Ok(format!("both times it was task {once}, which ran once"))
}

fn one_at_a_time(evidence: &Evidence) -> Result<String, String> {
    let mut all = 0;
    for (task, runs) in &evidence.runs {
        for run in runs {
            all += 1;
            let ends = evidence
                .events
                .iter()
                .filter(|event| event.run == run.run && ENDS.contains(&event.kind.as_str()));
            let ends = ends.count();
            if ends != 1 || run.ended_usec == 0 {
                return Err(format!("run {} of task {task} has {ends} ends on record", run.run));
            }
        }
        if let Some(pair) = runs.windows(2).find(|pair| pair[1].started_usec < pair[0].ended_usec) {
            return Err(format!("runs {} and {} of task {task} overlap", pair[0].run, pair[1].run));
        }
    }
    Ok(format!("{all} runs of {} tasks, {all} ends", evidence.runs.len()))
}
