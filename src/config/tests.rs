//! Every kind of error with its exact text, and that everything comes back as it was printed.

use std::path::Path;

use super::*;
use crate::core::spec::{Launch, Resource};
use crate::core::verdict::{Pass, Passes};

const CPUS: u32 = 4;

fn read(text: &str) -> Result<Policy, String> {
    let mut policy = Policy::for_cpus(CPUS);
    read::lay_over(&mut policy, Path::new("t.toml"), text, CPUS).map_err(|error| error.to_string())?;
    Ok(policy)
}

#[test]
fn nothing_said_means_the_defaults() {
    assert_eq!(read(""), Ok(Policy::for_cpus(CPUS)));
    assert_eq!(read("[sweep]\n[queue]\n[slots]\n"), Ok(Policy::for_cpus(CPUS)));
}

#[test]
fn every_key_is_read() {
    let policy = read(EVERYTHING).unwrap();
    assert_eq!((policy.interval_ms, policy.linger_ms), (90_000, 0));
    assert_eq!(policy.passes, Passes::ALL.without(Pass::ReleaseStaleClaims).without(Pass::ReapEndedRuns));
    assert_eq!((policy.lease_ms, policy.stall_ms), (60_000, Some(300_000)));
    assert_eq!((policy.launch, policy.max_running), (Launch::Direct, 7));
    assert_eq!((policy.stop_grace_ms, policy.failure_limit), (5_000, 0));
    assert_eq!(
        (policy.backoff_ms, policy.backoff_max_ms, policy.tempfail_cooldown_ms),
        (1_000, 2_000, 3_000)
    );
    assert_eq!((policy.retention_ms, policy.reserve_bytes), (86_400_000, 1 << 20));
    assert_eq!((policy.limits.open_tasks_per_user, policy.limits.running_per_user), (10, 11));
    assert_eq!(
        (policy.limits.command_bytes, policy.limits.environment_bytes, policy.limits.text_bytes),
        (2_000, 3_000, 4_000)
    );
    let queue = &policy.queues["gpu work"];
    assert_eq!((queue.max_running, queue.paused), (2, true));
    let defaults = &queue.launch_defaults;
    assert_eq!(defaults.environment.as_deref(), Some(&["A=1".to_owned()][..]));
    assert_eq!(
        (defaults.stop_signal, defaults.nice, defaults.max_runtime_ms),
        (Some(2), Some(-5), Some(5_400_000))
    );
    assert_eq!(defaults.resources[&Resource::MemoryMax], 1 << 30);
    assert_eq!(defaults.resources[&Resource::CPUQuotaPerSecUSec], 1_500_000);
    assert_eq!(defaults.slots.as_ref().unwrap()["gpu"], 1);
    assert_eq!(policy.slots["gpu"], ["0", "1"]);
}

#[test]
fn what_is_printed_reads_back_as_the_same() {
    for text in ["", EVERYTHING] {
        let policy = read(text).unwrap();
        assert_eq!(read(&print(&policy)).as_ref(), Ok(&policy), "{}", print(&policy));
    }
}

#[test]
fn auto_means_as_many_as_cpus() {
    assert_eq!(read("run.max_running = \"auto\"").unwrap().max_running, CPUS);
    assert_eq!(read("run.max_running = 0").unwrap().max_running, 0);
}

#[test]
fn every_error_names_file_line_and_key() {
    for (text, expected) in ERRORS {
        assert_eq!(read(text).unwrap_err(), *expected, "{text:?}");
    }
}

#[test]
fn a_later_file_changes_only_what_it_says() {
    let directory = tempfile::tempdir().unwrap();
    let main = directory.path().join("tenured.toml");
    let drop_ins = directory.path().join("tenured.toml.d");
    std::fs::create_dir(&drop_ins).unwrap();
    std::fs::write(&main, "[sweep]\ninterval = \"1min\"\nlinger = \"5s\"\n[queue.a]\nmax_running = 3\n")
        .unwrap();
    std::fs::write(drop_ins.join("20-b.toml"), "[sweep]\ninterval = \"3s\"\n[queue.a]\npaused = true\n")
        .unwrap();
    std::fs::write(drop_ins.join("10-a.toml"), "[sweep]\ninterval = \"2s\"\n").unwrap();
    std::fs::write(drop_ins.join(".hidden.toml"), "nonsense").unwrap();
    std::fs::write(drop_ins.join("README"), "nonsense").unwrap();
    let policy = Files::Usual(main.clone()).load(CPUS).unwrap();
    assert_eq!((policy.interval_ms, policy.linger_ms), (3_000, 5_000));
    assert_eq!((policy.queues["a"].max_running, policy.queues["a"].paused), (3, true));
    let policy = Files::Named(main.clone()).load(CPUS).unwrap();
    assert_eq!(policy.interval_ms, 60_000);
    let error = {
        std::fs::write(drop_ins.join("30-c.toml"), "\n\n[sweep]\n\nintervall = \"2s\"\n").unwrap();
        Files::Usual(main).load(CPUS).unwrap_err().to_string()
    };
    assert!(
        error.contains("30-c.toml:5: [sweep] intervall: is not known here; known are interval,"),
        "{error}"
    );
}

#[test]
fn a_file_may_be_missing_unless_it_was_named() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("tenured.toml");
    assert_eq!(Files::Usual(missing.clone()).load(CPUS).unwrap(), Policy::for_cpus(CPUS));
    let error = Files::Named(missing.clone()).load(CPUS).unwrap_err().to_string();
    assert_eq!(
        error,
        format!("{} cannot be read: No such file or directory (os error 2)", missing.display())
    );
    std::fs::create_dir(&missing).unwrap();
    assert!(Files::Usual(missing).load(CPUS).is_err());
}

#[test]
fn a_users_files_are_where_xdg_says() {
    let paths = |environment: &[(&str, &str)]| {
        let environment: Vec<(String, String)> =
            environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Paths::from_environment(4_242_424, move |name| {
            environment.iter().find(|(other, _)| other == name).map(|(_, value)| value.into())
        })
    };
    let home = paths(&[("HOME", "/h"), ("XDG_STATE_HOME", "relative")]).unwrap();
    assert_eq!(home.config, Path::new("/h/.config/tenured/tenured.toml"));
    assert_eq!(home.state, Path::new("/h/.local/state/tenured"));
    assert_eq!(home.runtime, Path::new("/h/.local/state/tenured/run"));
    let xdg =
        paths(&[("XDG_CONFIG_HOME", "/c"), ("XDG_STATE_HOME", "/s"), ("XDG_RUNTIME_DIR", "/r")]).unwrap();
    assert_eq!(xdg.config, Path::new("/c/tenured/tenured.toml"));
    assert_eq!(xdg.private_socket(), Path::new("/r/tenured/private"));
    assert_eq!(paths(&[]), Err(NoHome));
}

/// The shipped file's further examples are good, too.
#[test]
fn the_shipped_examples_are_read() {
    let shipped = include_str!("../../dist/tenured.toml");
    let examples = shipped.lines().filter_map(|line| line.strip_prefix("# "));
    let examples: Vec<&str> = examples
        .filter(|line| line.starts_with('[') || (line.contains(" = ") && !line.starts_with("What")))
        .collect();
    let policy = read(&examples.join("\n").replace("gpu = [", "[slots]\ngpu = [")).unwrap();
    assert_eq!(policy.queues["nightly"].launch_defaults.nice, Some(10));
    assert_eq!(policy.slots["gpu"], ["0", "1"]);
}

/// The shipped file explains every key; its examples, switched on, are the defaults.
#[test]
fn the_shipped_file_says_the_defaults() {
    let shipped = include_str!("../../dist/tenured.toml");
    assert_eq!(read(shipped), Ok(Policy::for_cpus(CPUS)), "as it is shipped");
    let is_example = |line: &str| {
        let key = line.trim_start_matches('#');
        line.starts_with('#') && !key.starts_with(' ') && key.contains(" = ")
    };
    let on: Vec<&str> =
        shipped.lines().map(|line| if is_example(line) { &line[1..] } else { line }).collect();
    let on = on.join("\n");
    assert_eq!(read(&on), Ok(Policy::for_cpus(CPUS)), "{on}");
    for key in print(&Policy::for_cpus(CPUS)).lines().filter_map(|line| line.split_once(" = ")) {
        assert!(
            on.lines().any(|line| line.starts_with(&format!("{} = ", key.0))),
            "{} is not explained",
            key.0
        );
    }
}

const EVERYTHING: &str = r#"
[sweep]
interval = "1min 30s"
release_stale_claims = false
enforce_max_runtime = true
detect_crashed_workers = true
detect_stalled_workers = true
reconcile_orphans = true
reap_ended_runs = false
linger = "0s"
[claim]
lease = "1min"
stall = "5min"
[run]
launch = "direct"
max_running = 7
stop_grace = "5s"
failure_limit = 0
backoff = "1s"
backoff_max = "2s"
tempfail_cooldown = "3s"
[store]
retention = "1d"
reserve = "1MiB"
[limits]
open_tasks_per_user = 10
running_per_user = 11
command_bytes = 2000
environment_bytes = 3000
text_bytes = 4000
[queue."gpu work"]
max_running = 2
paused = true
[queue."gpu work".launch_defaults]
environment = ["A=1"]
working_directory = "/srv"
user = "worker"
group = "worker"
stdin = "/dev/zero"
launch = "scope"
output = "file"
completion = "explicit"
stop_signal = "SIGINT"
nice = -5
failure_limit = 9
max_runtime = "1h 30min"
stall = "1min"
lease = "2min"
stop_grace = "3s"
backoff = "4s"
backoff_max = "5s"
memory_max = "1GiB"
memory_high = "512MiB"
cpu_quota = "150%"
tasks_max = 100
io_weight = 50
cpu_weight = 60
slots = { gpu = 1 }
[slots]
gpu = ["0", "1"]
"#;

const ERRORS: &[(&str, &str)] = &[
    ("[sweep\n", "t.toml:1: near \"\": is not TOML: unclosed table, expected `]`"),
    (
        "\n[sweeps]\n",
        "t.toml:2: [sweeps]: is no section; sections are sweep, claim, run, store, limits, queue, slots",
    ),
    ("sweep = 4", "t.toml:1: [sweep]: is a number; it is a table"),
    ("[claim]\n\nleese = \"1min\"", "t.toml:3: [claim] leese: is not known here; known are lease, stall"),
    (
        "[sweep]\ninterval = 30",
        "t.toml:2: [sweep] interval: is a number; write a span with its unit, such as \"30s\"",
    ),
    (
        "[sweep]\ninterval = \"30\"",
        "t.toml:2: [sweep] interval: \"30\" has no unit; units are d, h, min, s, ms",
    ),
    (
        "[sweep]\ninterval = \"30 parsecs\"",
        "t.toml:2: [sweep] interval: \"30 parsecs\" has the unknown unit \"parsecs\"; units are d, h, min, s, ms",
    ),
    ("[sweep]\ninterval = \"999ms\"", "t.toml:2: [sweep] interval: \"999ms\" is not between 1s and 1d"),
    ("[sweep]\ninterval = \"25h\"", "t.toml:2: [sweep] interval: \"25h\" is not between 1s and 1d"),
    ("[claim]\nlease = \"0s\"", "t.toml:2: [claim] lease: \"0s\" is not between 1s and 36500d"),
    (
        "[sweep]\nreconcile_orphans = \"yes\"",
        "t.toml:2: [sweep] reconcile_orphans: is a text; write true or false",
    ),
    ("[run]\nlaunch = \"docker\"", "t.toml:2: [run] launch: \"docker\" is none of scope, direct, auto"),
    ("[run]\nlaunch = true", "t.toml:2: [run] launch: is true or false; write a text"),
    (
        "[run]\nmax_running = \"all\"",
        "t.toml:2: [run] max_running: is a text; write \"auto\" or a number such as 4",
    ),
    ("[run]\nmax_running = -1", "t.toml:2: [run] max_running: -1 is not between 0 and 100000"),
    (
        "[run]\nfailure_limit = 3.5",
        "t.toml:2: [run] failure_limit: is a number with a point; write a number without a unit",
    ),
    (
        "[store]\nreserve = \"8MB\"",
        "t.toml:2: [store] reserve: \"8MB\" has the unknown unit \"MB\"; units are TiB, GiB, MiB, KiB, B",
    ),
    (
        "[store]\nreserve = 8",
        "t.toml:2: [store] reserve: is a number; write a size with its unit, such as \"8MiB\"",
    ),
    ("[store]\nreserve = \"2GiB\"", "t.toml:2: [store] reserve: \"2GiB\" is not between 0B and 1GiB"),
    (
        "[limits]\ntext_bytes = 99999999999999999999999",
        "t.toml:2: [limits] text_bytes: 99999999999999999999999 is not between 1024 and 262144",
    ),
    ("[queue]\na = 1", "t.toml:2: [queue.a]: is a number; it is a table"),
    (
        "[queue.a]\npause = true",
        "t.toml:2: [queue.a] pause: is not known here; known are max_running, paused, launch_defaults",
    ),
    ("[queue.\"\"]\npaused = true", "t.toml:1: [queue] : the name is empty"),
    (
        "[queue.a.launch_defaults]\nstop_signal = \"SIGNUL\"",
        "t.toml:2: [queue.a.launch_defaults] stop_signal: \"SIGNUL\" is no signal; write a name such as \"SIGINT\"",
    ),
    (
        "[queue.a.launch_defaults]\ncpu_quota = \"a lot\"",
        "t.toml:2: [queue.a.launch_defaults] cpu_quota: is a text; write a share such as \"150%\"",
    ),
    (
        "[queue.a.launch_defaults]\nworking_directory = \"tmp\"",
        "t.toml:1: [queue.a] launch_defaults: WorkingDirectory: \"tmp\" is not an absolute path",
    ),
    (
        "[queue.a.launch_defaults]\nslots = { gpu = 0 }",
        "t.toml:2: [queue.a.launch_defaults.slots] gpu: 0 is not between 1 and 1024",
    ),
    (
        "[slots]\ngpu = 2",
        "t.toml:2: [slots] gpu: is a number; write texts in brackets, such as [\"0\", \"1\"]",
    ),
    (
        "[slots]\ngpu = [0]",
        "t.toml:2: [slots] gpu: has a number in it; write texts in brackets, such as [\"0\", \"1\"]",
    ),
    ("[slots]\ngpu = [\"0\", \"0\"]", "t.toml:2: [slots] gpu: \"0\" is there twice"),
    ("[slots]\ngpu = [\"0,1\"]", "t.toml:2: [slots] gpu: \"0,1\" cannot be the name of a unit"),
];
