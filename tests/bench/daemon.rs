//! What the daemon costs, beside what its parts cost without it, in one run: `cargo bench --bench daemon`.
//!
//! Every figure stands beside one of the bus alone or of SQLite alone on the same machine in the same
//! minute, because the machine decides more than the program does.

#![expect(
    clippy::disallowed_methods,
    reason = "a measurement reads clocks, makes files and starts processes"
)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tenured::bus::proxy::{self, Endpoint, ManagerProxy, Options, Row};
use zbus::Variant;

const CALLERS: usize = 64;
const STARTS: usize = 1_000;
const DONE_TASKS: i64 = 1_000_000;
const RUNNING_TASKS: usize = 1_000;
const IDLE: Duration = Duration::from_secs(20);
const SETTLE: Duration = Duration::from_secs(15);

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Fallible<()> {
    if std::env::args().any(|argument| argument == "--test") {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(measure())
}

async fn measure() -> Fallible<()> {
    let host = Host::new()?;
    let mut daemon = host.start()?;
    create(&host).await?;
    starts(&host).await?;
    idle(&daemon)?;
    daemon.stop()?;
    fill(&host)?;
    let mut daemon = host.start()?;
    sweeps(&host).await?;
    daemon.stop()
}

/// A state and a runtime directory on the disk of the build.
struct Host {
    directory: tempfile::TempDir,
}

struct Daemon(Child);

impl Host {
    fn new() -> Fallible<Self> {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
        let config = "[sweep]\ninterval = \"1h\"\n[run]\nmax_running = 0\nlaunch = \"direct\"\n";
        std::fs::write(directory.path().join("tenured.toml"), config)?;
        Ok(Self { directory })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn start(&self) -> Fallible<Daemon> {
        let ready = self.path("ready");
        let _ = std::fs::remove_file(&ready);
        let socket = std::os::unix::net::UnixDatagram::bind(&ready)?;
        socket.set_read_timeout(Some(Duration::from_secs(60)))?;
        let child = Command::new(env!("CARGO_BIN_EXE_tenured"))
            .arg("--no-bus")
            .arg("--config")
            .arg(self.path("tenured.toml"))
            .arg("--state-dir")
            .arg(self.path("state"))
            .arg("--runtime-dir")
            .arg(self.path("run"))
            .env("NOTIFY_SOCKET", &ready)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(self.path("log"))?)
            .spawn()?;
        let mut said = [0; 4_096];
        loop {
            let length = socket.recv(&mut said)?;
            if String::from_utf8_lossy(&said[..length]).contains("READY=1") {
                return Ok(Daemon(child));
            }
        }
    }

    async fn manager(&self) -> Fallible<ManagerProxy<'static>> {
        let address = format!("unix:path={}", self.path("run").join("private").display());
        let endpoint = Endpoint::Address(address);
        for _ in 0..100 {
            // A user has 64 connections, and the daemon may not have seen yet that earlier ones are closed.
            if let Ok(manager) = proxy::manager(&endpoint).await
                && manager.version().await.is_ok()
            {
                return Ok(manager);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(proxy::manager(&endpoint).await?)
    }

    async fn managers(&self, count: usize) -> Fallible<Vec<ManagerProxy<'static>>> {
        let mut managers = Vec::with_capacity(count);
        for _ in 0..count {
            managers.push(self.manager().await?);
        }
        Ok(managers)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Nothing to do where it has ended.
        let _ = self.0.kill();
    }
}

impl Daemon {
    fn stop(&mut self) -> Fallible<()> {
        let pid = i32::try_from(self.0.id())?;
        let pid = rustix::process::Pid::from_raw(pid).ok_or("no pid")?;
        // Our own child, not yet reaped.
        let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?;
        rustix::process::pidfd_send_signal(&pidfd, rustix::process::Signal::TERM)?;
        self.0.wait()?;
        Ok(())
    }
}

fn rate(count: usize, span: Duration) -> f64 {
    count as f64 / span.as_secs_f64()
}

fn say(what: &str, value: String, beside: &str) {
    println!("{what:<52} {value:>14}   {beside}");
}

async fn each<F, Fut>(managers: &[ManagerProxy<'static>], per_caller: usize, call: F) -> Fallible<f64>
where
    F: Fn(ManagerProxy<'static>, usize) -> Fut,
    Fut: Future<Output = zbus::Result<()>>,
{
    let began = Instant::now();
    let call = &call;
    let mut callers: FuturesUnordered<_> = managers
        .iter()
        .enumerate()
        .map(|(caller, manager)| async move {
            for round in 0..per_caller {
                call(manager.clone(), caller * per_caller + round).await?;
            }
            zbus::Result::Ok(())
        })
        .collect();
    while let Some(done) = callers.next().await {
        done?;
    }
    Ok(rate(managers.len() * per_caller, began.elapsed()))
}

async fn create(host: &Host) -> Fallible<()> {
    let ping = async |manager: ManagerProxy<'static>, _| manager.version().await.map(drop);
    let task = async |manager: ManagerProxy<'static>, number: usize| {
        manager.create_task(&format!("task {number}"), &Options::new()).await.map(drop)
    };
    let one = host.managers(1).await?;
    let (one_pings, one_creates) = (each(&one, 2_000, ping).await?, each(&one, 500, task).await?);
    drop(one);
    let many = host.managers(CALLERS).await?;
    let pings = (one_pings, each(&many, 200, ping).await?);
    let creates = (one_creates, each(&many, 300, task).await?);
    let raw = (raw_sqlite(host, 500, 1)?, raw_sqlite(host, 20_000, CALLERS)?);
    say("CreateTask/s, 1 caller", format!("{:.0}", creates.0), &beside(creates.0, raw.0, pings.0));
    say("CreateTask/s, 64 callers", format!("{:.0}", creates.1), &beside(creates.1, raw.1, pings.1));
    Ok(())
}

fn beside(ours: f64, raw: f64, ping: f64) -> String {
    format!(
        "raw SQLite with the same group: {raw:.0}/s ({:.0} %); the socket's own question and answer: {ping:.0}/s ({:.0} %)",
        100.0 * ours / raw,
        100.0 * ours / ping
    )
}

/// Durable inserts of a row like a task's and its event, so many to a commit.
fn raw_sqlite(host: &Host, rows: usize, group: usize) -> Fallible<f64> {
    let path = host.path(&format!("raw-{group}.db"));
    let connection = rusqlite::Connection::open(path)?;
    connection.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
         CREATE TABLE task(task INTEGER PRIMARY KEY AUTOINCREMENT, title TEXT, status TEXT, at INTEGER);
         CREATE INDEX by_status ON task(status);
         CREATE TABLE event(event INTEGER PRIMARY KEY AUTOINCREMENT, task INTEGER, kind TEXT, payload TEXT);",
    )?;
    let mut task = connection.prepare("INSERT INTO task(title, status, at) VALUES (?1, 'ready', 1)")?;
    let mut event =
        connection.prepare("INSERT INTO event(task, kind, payload) VALUES (?1, 'created', '{}')")?;
    let began = Instant::now();
    for chunk in 0..rows / group {
        connection.execute_batch("BEGIN IMMEDIATE")?;
        for row in 0..group {
            let number = task.insert([format!("task {chunk} {row}")])?;
            event.execute([number])?;
        }
        connection.execute_batch("COMMIT")?;
    }
    Ok(rate(rows / group * group, began.elapsed()))
}

async fn starts(host: &Host) -> Fallible<()> {
    let manager = host.manager().await?;
    let queue = "starts";
    manager.set_queue(queue, &Options::from([("Paused", Variant::from(true))])).await?;
    for number in 0..STARTS {
        let properties = &Options::from([
            ("Queue", Variant::from(queue)),
            ("Command", Variant::from(vec!["true"])),
            ("Launch", Variant::from("direct")),
        ]);
        manager.create_task(&format!("true {number}"), properties).await?;
    }
    let began = Instant::now();
    manager.set_queue(queue, &Options::from([("Paused", Variant::from(false))])).await?;
    let mut ended = manager.receive_run_ended().await?;
    loop {
        let queues = manager.list_queues(&Options::new()).await?;
        let left = queues
            .iter()
            .find(|row| text(row, "Queue") == queue)
            .map_or(0, |row| number(row, "Ready") + number(row, "Running"));
        if left == 0 {
            break;
        }
        ended.next().await;
    }
    let ours = rate(STARTS, began.elapsed());
    let began = Instant::now();
    for _ in 0..STARTS {
        Command::new("true").status()?;
    }
    let plain = rate(STARTS, began.elapsed());
    say(
        "direct workers started and ended/s (1,000 true)",
        format!("{ours:.0}"),
        &format!("fork, exec and wait alone, one after the other: {plain:.0}/s"),
    );
    Ok(())
}

fn text(row: &Row, key: &str) -> String {
    row.get(key).and_then(|value| value.downcast_ref::<&str>().ok()).unwrap_or_default().to_owned()
}

fn number(row: &Row, key: &str) -> u32 {
    row.get(key).and_then(|value| value.downcast_ref::<u32>().ok()).unwrap_or_default()
}

/// Lines of /proc/PID/status, and context switches of all its threads.
fn status(pid: u32, key: &str) -> Fallible<u64> {
    let mut sum = 0;
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = std::fs::read_to_string(thread?.path().join("status"))?;
        let line = text.lines().find_map(|line| line.strip_prefix(key)).ok_or("no such line")?;
        let value: u64 = line.trim_matches(|c: char| !c.is_ascii_digit()).parse()?;
        sum = if key.starts_with("Vm") { value } else { sum + value };
    }
    Ok(sum)
}

fn idle(daemon: &Daemon) -> Fallible<()> {
    let pid = daemon.0.id();
    // Threads of the pool that had work leave after ten seconds without any; that is no wake-up of an idle one.
    std::thread::sleep(SETTLE);
    let before = status(pid, "voluntary_ctxt_switches:")?;
    std::thread::sleep(IDLE);
    let wakes = status(pid, "voluntary_ctxt_switches:")?.saturating_sub(before);
    say(
        "idle daemon, wake-ups in 20 s",
        wakes.to_string(),
        "all threads; the safety sweep is set to an hour",
    );
    say("idle daemon, resident KiB", status(pid, "VmRSS:")?.to_string(), "after all of the above");
    Ok(())
}

/// A million done tasks, as the daemon itself would have left them.
fn fill(host: &Host) -> Fallible<()> {
    let connection = rusqlite::Connection::open(host.path("state").join("board.db"))?;
    connection.execute_batch("BEGIN IMMEDIATE")?;
    connection.execute("DELETE FROM tasks WHERE status <> 'done'", [])?;
    connection.execute(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
         INSERT INTO tasks(status, queue, title) SELECT 'done', 'default', 'old ' || i FROM n",
        [DONE_TASKS],
    )?;
    connection.execute_batch("COMMIT; PRAGMA wal_checkpoint(TRUNCATE)")?;
    Ok(())
}

async fn sweeps(host: &Host) -> Fallible<()> {
    let manager = host.manager().await?;
    let mut workers = Vec::new();
    for round in 0..RUNNING_TASKS {
        let worker = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn()?;
        let (task, _) = manager.create_task(&format!("held {round}"), &Options::new()).await?;
        let start_ticks = start_ticks(worker.id())?;
        let options = &Options::from([
            ("Task", Variant::from(task)),
            ("Pid", Variant::from(worker.id())),
            ("StartTicks", Variant::from(start_ticks)),
            ("LeaseUsec", Variant::from(3_600_000_000_u64)),
        ]);
        manager.claim_task("", options).await?;
        workers.push(worker);
    }
    let mut spans = Vec::new();
    for _ in 0..50 {
        let options = &Options::from([("Dispatch", Variant::from(false))]);
        let began = Instant::now();
        let report = manager.sweep(options).await?;
        spans.push(began.elapsed());
        assert_eq!(number(&report, "rows") as usize, RUNNING_TASKS);
    }
    spans.sort();
    let middle = spans[spans.len() / 2];
    say(
        "Sweep: 1,000,000 done, 1,000 running, nothing due",
        format!("{:.2} ms", middle.as_secs_f64() * 1e3),
        "middle of 50, as the caller sees it",
    );
    for mut worker in workers {
        worker.kill()?;
        worker.wait()?;
    }
    Ok(())
}

fn start_ticks(pid: u32) -> Fallible<u64> {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"))?;
    let rest = stat.rsplit_once(')').ok_or("no stat")?.1;
    Ok(rest.split_whitespace().nth(19).ok_or("no start")?.parse()?)
}
