//! The properties of a task as options: shared by `add`, `run`, `edit` and `queue set`.
//!
//! The present directory is captured with a command; the environment never is, but for what `--env` names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use zbus::Variant;

use crate::bus::proxy::Options;
use crate::cli::failure::Failure;
use crate::cli::span::{Calendar, Moment, Span};

/// Properties of a task.
#[derive(Args, Clone, Debug, Default)]
pub struct Properties {
    /// What it is.
    #[command(flatten)]
    pub about: About,
    /// How it runs.
    #[command(flatten)]
    pub launch: LaunchProperties,
}

/// What a task is.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "What it is")]
pub struct About {
    /// More about it, for people
    #[arg(long, value_name = "TEXT")]
    pub body: Option<String>,
    /// Order within its queue: higher goes first
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub priority: Option<i32>,
    /// A free word to find it by; several are allowed
    #[arg(long, value_name = "WORD", value_delimiter = ',')]
    pub label: Vec<String>,
    /// Not before this moment: 18:00, "2027-01-31 18:00", RFC 3339 or @SECONDS
    #[arg(long, value_name = "WHEN", value_parser = moment)]
    pub not_before: Option<Moment>,
    /// Not before this span of time has passed: 2h, 1d
    #[arg(long = "in", value_name = "SPAN", value_parser = Span::parse, conflicts_with = "not_before")]
    pub in_: Option<Span>,
}

/// How a task runs: what it may also leave to its queue.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "How it runs")]
pub struct LaunchProperties {
    /// A variable of the command: KEY=VALUE, or KEY to hand on your own value
    #[arg(long, short, value_name = "KEY[=VALUE]")]
    pub env: Vec<String>,
    /// The directory to run in [default: the present one]
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
    /// The user to run as, by name or number [default: you]
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// The group to run as, by name or number
    #[arg(long, value_name = "NAME")]
    pub group: Option<String>,
    /// A file to read from as standard input [default: /dev/null]
    #[arg(long, value_name = "FILE")]
    pub stdin: Option<PathBuf>,
    /// Where the output goes
    #[arg(long, value_name = "WHERE")]
    pub output: Option<Output>,
    /// How to start it
    #[arg(long, value_name = "HOW")]
    pub launch: Option<Launch>,

    /// Longest time a run may take; then it is stopped
    #[arg(long, value_name = "SPAN", value_parser = Span::parse)]
    pub max_runtime: Option<Span>,
    /// Longest time without a heartbeat; then it is stopped
    #[arg(long, value_name = "SPAN", value_parser = Span::parse)]
    pub stall: Option<Span>,
    /// How long a claim holds without a sign of its worker
    #[arg(long, value_name = "SPAN", value_parser = Span::parse)]
    pub lease: Option<Span>,
    /// The first signal of a stop: TERM, INT, HUP, …
    #[arg(long, value_name = "NAME")]
    pub stop_signal: Option<String>,
    /// From the first signal of a stop to KILL
    #[arg(long, value_name = "SPAN", value_parser = Span::parse)]
    pub stop_grace: Option<Span>,
    /// How often to try again after a failure: a number, or "forever"
    #[arg(long, value_name = "N", value_parser = retries)]
    pub retries: Option<Retries>,
    /// How long to wait after the first failure; it doubles with each
    #[arg(long, value_name = "SPAN", value_parser = Span::parse)]
    pub backoff: Option<Span>,
    /// How long to wait after a failure at most
    #[arg(long, value_name = "SPAN", value_parser = Span::parse)]
    pub backoff_max: Option<Span>,
    /// What completes it: exit 0, or only `tenurectl complete`
    #[arg(long, value_name = "BY")]
    pub completion: Option<Completion>,

    /// A host resource it needs: gpu, or gpu:2 for two units
    #[arg(long, value_name = "NAME[:N]", value_parser = slot)]
    pub slot: Vec<(String, u32)>,
    /// A limit of systemd.resource-control(5): MemoryMax=2G, CPUQuota=50%, TasksMax=100, …
    #[arg(long, short, value_name = "NAME=VALUE", value_parser = resource)]
    pub property: Vec<(&'static str, u64)>,
    /// Nice level, -20 to 19
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub nice: Option<i32>,
}

/// How often to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retries {
    /// `FailureLimit` of the bus: the failures that block the task; 0 means never.
    failure_limit: u32,
}

/// What completes a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Completion {
    /// Exit 0
    Exit,
    /// `tenurectl complete` alone
    Explicit,
}

/// How a command is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Launch {
    /// In a scope of systemd
    Scope,
    /// By the daemon's own supervisor
    Direct,
    /// Scope where systemd is the manager, else direct
    Auto,
}

/// Where output goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// The journal
    Journal,
    /// A file that `tenurectl logs` reads
    File,
}

fn word_of(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|possible| possible.get_name().to_owned()).unwrap_or_default()
}

fn moment(text: &str) -> Result<Moment, String> {
    Moment::parse(text, Calendar::here().now())
}

fn retries(text: &str) -> Result<Retries, String> {
    if text == "forever" {
        return Ok(Retries { failure_limit: 0 });
    }
    let number: u32 = text.parse().map_err(|_| "is no number, nor the word forever".to_owned())?;
    Ok(Retries { failure_limit: number.saturating_add(1) })
}

fn slot(text: &str) -> Result<(String, u32), String> {
    let (name, units) = text.split_once(':').unwrap_or((text, "1"));
    let units = units.parse().map_err(|_| format!("has no number of units in {units:?}"))?;
    if name.is_empty() {
        return Err("has no name; write for example gpu or gpu:2".to_owned());
    }
    Ok((name.to_owned(), units))
}

/// Properties of a scope, as `systemd-run -p` takes them.
fn resource(text: &str) -> Result<(&'static str, u64), String> {
    let (name, value) = text.split_once('=').ok_or("is not NAME=VALUE")?;
    match name {
        "MemoryMax" => Ok(("MemoryMax", bytes(value)?)),
        "MemoryHigh" => Ok(("MemoryHigh", bytes(value)?)),
        "TasksMax" => Ok(("TasksMax", count(value)?)),
        "IOWeight" => Ok(("IOWeight", count(value)?)),
        "CPUWeight" => Ok(("CPUWeight", count(value)?)),
        "CPUQuotaPerSecUSec" => Ok(("CPUQuotaPerSecUSec", Span::parse(value)?.usec)),
        "CPUQuota" => {
            let percent = count(value.strip_suffix('%').ok_or("wants a percentage: CPUQuota=50%")?)?;
            Ok(("CPUQuotaPerSecUSec", percent.saturating_mul(10_000)))
        }
        _ => Err("there are MemoryMax, MemoryHigh, CPUQuota, TasksMax, IOWeight and CPUWeight".to_owned()),
    }
}

fn count(value: &str) -> Result<u64, String> {
    value.parse().map_err(|_| format!("{value:?} is no number"))
}

/// Bytes with K, M, G, T as powers of 1,024. Source: systemd.resource-control(5), `MemoryMax=`.
fn bytes(value: &str) -> Result<u64, String> {
    let (number, scale) = match value.bytes().last() {
        Some(b'K') => (&value[..value.len() - 1], 1 << 10),
        Some(b'M') => (&value[..value.len() - 1], 1 << 20),
        Some(b'G') => (&value[..value.len() - 1], 1 << 30),
        Some(b'T') => (&value[..value.len() - 1], 1_u64 << 40),
        _ => (value, 1),
    };
    count(number)?.checked_mul(scale).ok_or_else(|| format!("{value} is too much"))
}

/// Puts a property where there is one.
fn put(properties: &mut Options<'_>, key: &'static str, value: Option<Variant<'static>>) {
    if let Some(value) = value {
        properties.insert(key, value);
    }
}

impl Properties {
    /// The properties as the bus takes them.
    ///
    /// # Errors
    /// [`Failure::Usage`] for an environment or a path that cannot be.
    pub fn on_bus(&self) -> Result<Options<'static>, Failure> {
        let mut properties = self.launch.on_bus()?;
        let about = &self.about;
        put(&mut properties, "Body", about.body.clone().map(Variant::from));
        put(&mut properties, "Priority", about.priority.map(Variant::from));
        put(&mut properties, "Labels", some_list(&about.label));
        put(&mut properties, "NotBeforeUsec", about.not_before_usec().map(Variant::from));
        Ok(properties)
    }
}

impl About {
    fn not_before_usec(&self) -> Option<u64> {
        let span_later = |span| Moment::after(span, Calendar::here().now());
        self.not_before.or_else(|| self.in_.map(span_later)).map(|moment| moment.usec)
    }
}

impl LaunchProperties {
    /// The properties as the bus takes them.
    ///
    /// # Errors
    /// As [`Properties::on_bus`].
    pub fn on_bus(&self) -> Result<Options<'static>, Failure> {
        let mut properties = Options::new();
        let mut put = |key, value| put(&mut properties, key, value);
        put("Environment", some_list(&self.environment()?));
        put("WorkingDirectory", path_of(self.cwd.as_deref())?.map(Variant::from));
        put("User", self.user.clone().map(Variant::from));
        put("Group", self.group.clone().map(Variant::from));
        put("Stdin", self.stdin_path()?.map(Variant::from));
        put("Output", self.output.map(|output| word_of(output).into()));
        put("Launch", self.launch.map(|launch| word_of(launch).into()));
        put("StopSignal", self.stop_signal.clone().map(Variant::from));
        put("FailureLimit", self.retries.map(|retries| retries.failure_limit.into()));
        put("Completion", self.completion.map(|completion| word_of(completion).into()));
        put("Nice", self.nice.map(Variant::from));
        let spans = [
            ("MaxRuntimeUsec", self.max_runtime),
            ("StallUsec", self.stall),
            ("LeaseUsec", self.lease),
            ("StopGraceUsec", self.stop_grace),
            ("BackoffUsec", self.backoff),
            ("BackoffMaxUsec", self.backoff_max),
        ];
        for (key, span) in spans {
            put(key, span.map(|span| span.usec.into()));
        }
        if !self.slot.is_empty() {
            let units: BTreeMap<String, u32> = self.slot.iter().cloned().collect();
            put("Slots", Some(units.into()));
        }
        for (key, value) in &self.property {
            put(key, Some((*value).into()));
        }
        Ok(properties)
    }

    fn environment(&self) -> Result<Vec<String>, Failure> {
        self.env.iter().map(|entry| variable(entry, |key| std::env::var(key).ok())).collect()
    }

    fn stdin_path(&self) -> Result<Option<String>, Failure> {
        if self.stdin.as_deref() == Some(Path::new("-")) {
            return Err(Failure::usage(
                "--stdin -: a task may run when your terminal is long gone",
                "Write what it shall read to a file, and name that.",
            ));
        }
        path_of(self.stdin.as_deref())
    }
}

fn some_list(words: &[String]) -> Option<Variant<'static>> {
    (!words.is_empty()).then(|| words.to_vec().into())
}

/// One `--env`: as given, or completed by `own`, the reader's environment.
fn variable(entry: &str, own: impl Fn(&str) -> Option<String>) -> Result<String, Failure> {
    if entry.contains('=') {
        return Ok(entry.to_owned());
    }
    let value = own(entry).ok_or_else(|| {
        Failure::usage(
            format!("--env {entry}: there is no such variable here"),
            format!("Export it first, or give it a value: --env {entry}=VALUE."),
        )
    })?;
    Ok(format!("{entry}={value}"))
}

/// A path made absolute, as a text.
fn path_of(path: Option<&Path>) -> Result<Option<String>, Failure> {
    let Some(path) = path else { return Ok(None) };
    let absolute = std::path::absolute(path).map_err(|error| {
        Failure::usage(format!("{}: {error}", path.display()), "Name a path that can be resolved from here.")
    })?;
    text_of(absolute).map(Some)
}

/// A path as a text: the bus carries nothing else.
fn text_of(path: PathBuf) -> Result<String, Failure> {
    path.into_os_string().into_string().map_err(|path| {
        Failure::usage(
            format!("{}: is not UTF-8, and the bus carries nothing else", path.display()),
            "Rename it, or reach it over a link.",
        )
    })
}

/// The present directory.
///
/// # Errors
/// [`Failure::Usage`] where there is none.
pub fn present_directory() -> Result<String, Failure> {
    let directory = std::env::current_dir().map_err(|error| {
        Failure::usage(format!("the present directory cannot be told: {error}"), "Name one with --cwd.")
    })?;
    text_of(directory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::json::value_of;

    fn json(properties: &Properties) -> serde_json::Value {
        properties
            .on_bus()
            .unwrap()
            .iter()
            .map(|(key, value)| ((*key).to_owned(), value_of(value)))
            .collect::<serde_json::Map<_, _>>()
            .into()
    }

    #[test]
    fn what_was_not_said_is_not_sent() {
        assert_eq!(json(&Properties::default()), serde_json::json!({}));
    }

    #[test]
    fn properties_have_the_names_and_units_of_the_bus() {
        let launch = LaunchProperties {
            max_runtime: Some(Span { usec: 5 }),
            retries: Some(retries("2").unwrap()),
            slot: vec![slot("gpu:2").unwrap(), slot("tape").unwrap()],
            property: vec![resource("MemoryMax=2G").unwrap(), resource("CPUQuota=50%").unwrap()],
            env: vec!["A=b=c".into()],
            completion: Some(Completion::Explicit),
            stdin: Some("/etc/hostname".into()),
            ..LaunchProperties::default()
        };
        let about = About { priority: Some(-2), ..About::default() };
        let properties = Properties { about, launch };
        assert_eq!(
            json(&properties),
            serde_json::json!({
                "Priority": -2, "MaxRuntimeUsec": 5, "FailureLimit": 3, "Slots": {"gpu": 2, "tape": 1},
                "MemoryMax": 2_147_483_648_u64, "CPUQuotaPerSecUSec": 500_000, "Environment": ["A=b=c"],
                "Completion": "explicit", "Stdin": "/etc/hostname",
            })
        );
    }

    #[test]
    fn the_environment_is_handed_on_by_name_alone() {
        let own = |key: &str| (key == "HOME").then(|| "/root".to_owned());
        assert_eq!(variable("HOME", own), Ok("HOME=/root".to_owned()));
        assert_eq!(variable("HOME=", own), Ok("HOME=".to_owned()));
        assert!(variable("NOT_THERE", own).is_err_and(|failure| failure.code() == 2));
    }

    #[test]
    fn what_cannot_be_is_refused_before_it_is_asked() {
        for text in ["gpu:x", ":2", "gpu:-1"] {
            assert!(slot(text).is_err(), "{text}");
        }
        for text in ["MemoryMax", "MemoryMax=x", "MemoryMax=99999999T", "CPUQuota=50", "Colour=red"] {
            assert!(resource(text).is_err(), "{text}");
        }
        assert_eq!(retries("forever"), Ok(Retries { failure_limit: 0 }));
        assert!(retries("-1").is_err());
        let dash = LaunchProperties { stdin: Some("-".into()), ..LaunchProperties::default() };
        assert!(dash.on_bus().is_err());
    }
}
