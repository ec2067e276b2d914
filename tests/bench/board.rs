//! What the board costs without a bus, beside SQLite alone: `cargo bench --bench board`.
//!
//! Every figure stands beside one of SQLite with the same durability on the same disk in the same minute,
//! because the disk decides more than the program does.

#![expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use rusqlite::Connection;
use rustix::time::{ClockId, clock_gettime};
use tenured::core::boot::Witnesses;
use tenured::core::fault::Error;
use tenured::core::fingerprint::{Epoch, Stored};
use tenured::core::ids::BootId;
use tenured::core::policy::Policy;
use tenured::core::spec::TaskSpec;
use tenured::core::state_dir::StateDir;
use tenured::core::time::{MonoMs, Now, WallUsec};
use tenured::core::view::Word;
use tenured::ports::Clock;
use tenured::service::desk::{Desk, ThisBoot};
use tenured::service::types::{Caller, ClaimRequest, WorkerGiven};
use tenured::service::worker::Registrar;
use tenured::store::sweep::{self, Selection};
use tenured::store::{Options, Store};

const CALLERS: usize = 64;
const TASKS: usize = 40_000;
const CLAIMS: usize = 10_000;
const RAW_COMMITS: usize = 500;
const DONE_TASKS: usize = 1_000_000;
const RUNNING_TASKS: usize = 1_000;
const LOOKS: u32 = 50;
const ROOT: Caller = Caller { uid: 0, is_admin: true };
const EPOCH: &str = "6b2d4f0a-0d2c-4c7e-9a31-1f4a7f1f2a3b:4026531836:4026531834:2";

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Fallible<()> {
    if std::env::args().any(|argument| argument == "--test") {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(measure())
}

async fn measure() -> Fallible<()> {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let single = raw(&directory.path().join("single.db"), 1, RAW_COMMITS)?;
    let grouped = raw(&directory.path().join("grouped.db"), CALLERS, TASKS)?;
    println!("SQLite alone, one row a commit            {single:>10.0} rows/s");
    println!("SQLite alone, {CALLERS} rows a commit           {grouped:>10.0} rows/s");
    let state = directory.path().join("state");
    let desk = open(&state)?;
    let cpu = cpu();
    let created = create(&desk).await?;
    println!(
        "create_task, {CALLERS} callers                  {created:>10.0} tasks/s   {:.1} x single, {:.2} x grouped, {:.0} us of CPU each",
        created / single,
        created / grouped,
        each_us(cpu, TASKS)
    );
    let cpu = self::cpu();
    let claimed = claim_and_complete(&desk).await?;
    println!(
        "claim_task and complete, {CALLERS} callers      {claimed:>10.0} runs/s    {:.1} x single, {:.0} us of CPU each",
        claimed / single,
        each_us(cpu, CLAIMS)
    );
    desk.store().clone().close();
    drop(desk);
    fill(&state.join("board.db"))?;
    let opened = Instant::now();
    let desk = open(&state)?;
    println!("open and check a board of {DONE_TASKS} tasks {:>10.0} ms", ms(opened.elapsed()));
    sweeps(&desk).await?;
    desk.store().clone().close();
    Ok(())
}

/// Rows per second of SQLite with the board's durability.
fn raw(path: &Path, rows_per_commit: usize, rows: usize) -> Fallible<f64> {
    let board = Connection::open(path)?;
    let _: String = board.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    board.pragma_update(None, "synchronous", "FULL")?;
    board.execute_batch(
        "CREATE TABLE tasks (task INTEGER PRIMARY KEY AUTOINCREMENT, title TEXT, status TEXT)",
    )?;
    let began = Instant::now();
    for _ in 0..rows.div_ceil(rows_per_commit) {
        board.execute_batch("BEGIN IMMEDIATE")?;
        for _ in 0..rows_per_commit {
            board
                .prepare_cached("INSERT INTO tasks (title, status) VALUES ('a task', 'ready')")?
                .execute([])?;
        }
        board.execute_batch("COMMIT")?;
    }
    Ok(rate(rows, began.elapsed()))
}

fn open(state: &Path) -> Fallible<Desk> {
    let state = StateDir(state.to_owned());
    let options = Options { state: state.clone(), reserve_bytes: 8 * 1_024 * 1_024, readers: 2 };
    let store = Store::open(options, Box::new(|_| ()))?;
    let (asks, _) = tokio::sync::mpsc::channel(1);
    let epoch = Epoch::parse(EPOCH).ok_or("the epoch")?;
    let boot = ThisBoot { epoch, boot: BootId::new(1) };
    Ok(Desk::new(store, Arc::new(Still), Arc::new(Nobody), asks, policy(), boot, state))
}

fn policy() -> Policy {
    let mut policy = Policy::for_cpus(2);
    policy.limits.open_tasks_per_user = u32::MAX;
    policy
}

async fn create(desk: &Desk) -> Fallible<f64> {
    let began = Instant::now();
    let mut calls = FuturesUnordered::new();
    for _ in 0..CALLERS {
        calls.push(async move {
            for number in 0..TASKS / CALLERS {
                let spec = TaskSpec { title: format!("task {number}"), ..TaskSpec::default() };
                desk.create_task(&ROOT, spec).await?;
            }
            Ok::<(), Error>(())
        });
    }
    while let Some(outcome) = calls.next().await {
        outcome?;
    }
    Ok(rate(TASKS, began.elapsed()))
}

async fn claim_and_complete(desk: &Desk) -> Fallible<f64> {
    let began = Instant::now();
    let mut calls = FuturesUnordered::new();
    for _ in 0..CALLERS {
        calls.push(async move {
            for _ in 0..CLAIMS / CALLERS {
                let run = desk.claim_task(&ROOT, any()).await?.run;
                desk.speak(&ROOT, run, Word::Complete { summary: None, result: None }).await?;
            }
            Ok::<(), Error>(())
        });
    }
    while let Some(outcome) = calls.next().await {
        outcome?;
    }
    Ok(rate(CLAIMS, began.elapsed()))
}

fn any() -> ClaimRequest {
    ClaimRequest {
        queue: None,
        task: None,
        worker: WorkerGiven::None,
        lease_ms: None,
        claimant: None,
        claim_key: None,
        wait_ms: None,
    }
}

/// A board of a long life: a million done tasks, a thousand running ones.
fn fill(path: &Path) -> Fallible<()> {
    let board = Connection::open(path)?;
    board.pragma_update(None, "cache_size", -200_000)?;
    board.execute_batch(&format!(
        "BEGIN;
         WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < {DONE_TASKS})
         INSERT INTO tasks (status, queue, title, attempts, ended_usec, ended_as)
             SELECT 'done', 'default', 'done ' || n, 1, n, 'done' FROM number;
         WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < {RUNNING_TASKS})
         INSERT INTO runs (task, claimant, lease_expires_ms, epoch, worker_pid, worker_fingerprint, stage, started_ms,
                 started_usec, due_ms)
             SELECT {first} + n, 'bench', 900000 + n, '{EPOCH}', 4000 + n, '{EPOCH}|' || n || '|' || n, 'running', 1, 1,
                 900000 + n
             FROM number;
         INSERT INTO tasks (task, status, queue, title, attempts, run)
             SELECT task, 'running', 'default', 'running', 1, run FROM runs WHERE claimant = 'bench';
         COMMIT;",
        first = DONE_TASKS * 2,
    ))?;
    Ok(())
}

async fn sweeps(desk: &Desk) -> Fallible<()> {
    let all = look(desk, Selection::All).await?;
    let due = |now| Selection::Due { now: MonoMs(now), epoch: desk.when().epoch };
    let nothing = look(desk, due(1)).await?;
    let ten = look(desk, due(900_010)).await?;
    println!(
        "rows of {RUNNING_TASKS} running among {DONE_TASKS} done   {:>10.2} ms (must be below 3)",
        ms(all)
    );
    println!("rows that are due: none {:.3} ms, ten {:.3} ms", ms(nothing), ms(ten));
    let when = desk.when();
    let began = Instant::now();
    for _ in 0..LOOKS {
        let when = when.clone();
        desk.store().read("bench", move |snapshot| sweep::next_due(snapshot, MonoMs(1), &when)).await?;
    }
    println!("when to look again: {:.3} ms", ms(began.elapsed() / LOOKS));
    let began = Instant::now();
    desk.stats(&ROOT).await?;
    println!("statistics of the whole board: {:.3} ms", ms(began.elapsed()));
    Ok(())
}

/// The best of many, so that what else the machine does counts least.
async fn look(desk: &Desk, selection: Selection) -> Fallible<Duration> {
    let mut best = Duration::MAX;
    for _ in 0..LOOKS {
        let selection = selection.clone();
        // Inside the read, where no other thread has to wake up.
        let took = desk.store().read("bench", move |snapshot| {
            let began = Instant::now();
            sweep::rows(snapshot, &selection)?;
            Ok(began.elapsed())
        });
        best = best.min(took.await?);
    }
    Ok(best)
}

/// What this process has used so far.
fn cpu() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

fn each_us(since: Duration, count: usize) -> f64 {
    1_000_000.0 / rate(count, cpu().saturating_sub(since))
}

fn rate(count: usize, took: Duration) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / took.as_secs_f64()
}

fn ms(span: Duration) -> f64 {
    span.as_secs_f64() * 1_000.0
}

/// A clock that stands still.
struct Still;

impl Clock for Still {
    fn now(&self) -> Now {
        Now { mono: MonoMs(1), wall: WallUsec(1) }
    }

    fn witnesses(&self) -> std::io::Result<Witnesses> {
        Err(std::io::Error::other("nobody asks for them here"))
    }
}

/// Knows no process.
struct Nobody;

impl Registrar for Nobody {
    fn identify(&self, _: &Caller, _: WorkerGiven) -> Result<Option<(i64, Stored)>, Error> {
        Ok(None)
    }

    fn is_gone(&self, _: i64, _: &Stored) -> bool {
        false
    }
}
