//! What a task asks for: parsed once at the edge, valid afterwards.
//!
//! `None` means that the caller said nothing; the queue's defaults and then the configuration fill it in
//! at the moment of use.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::core::ids::TaskId;
use crate::core::limits::{self, Limits};
use crate::core::refusal::Refusal;

/// How a command is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Launch {
    /// In a transient scope of systemd.
    Scope,
    /// By the daemon's own supervisor alone.
    Direct,
    /// Scope where systemd is the manager, else direct.
    Auto,
}

/// What completes a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Completion {
    /// Exit 0.
    Exit,
    /// CompleteRun only; exit 0 without it is a failure.
    Explicit,
}

/// Where a worker's output goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Output {
    /// The journal.
    Journal,
    /// Files in the state directory.
    File,
}

macro_rules! words {
    ($name:ident { $($variant:ident = $word:literal),+ }) => {
        impl $name {
            /// The word of the bus and the board.
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }

            /// Reads the word.
            pub fn parse(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)+ _ => None }
            }
        }
    };
}

words!(Launch { Scope = "scope", Direct = "direct", Auto = "auto" });
words!(Completion { Exit = "exit", Explicit = "explicit" });
words!(Output { Journal = "journal", File = "file" });

/// How a command is to be run. Kept on the board as JSON: nothing in it is searched for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Program {
    /// argv; empty for tasks of external workers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// `KEY=VALUE`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub environment: Vec<String>,
    /// An absolute path; `/` where none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_directory: Option<String>,
    /// A user's name or number; the owner where none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// A group's name or number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// How to start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launch: Option<Launch>,
    /// A path to read from; /dev/null where none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
    /// Where output goes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Output>,
    /// The first signal of a stop, by number; SIGTERM where none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_signal: Option<i32>,
    /// `MemoryMax` and its kin, under systemd's names and units.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub resources: BTreeMap<Resource, u64>,
    /// Nice level, -20 to 19.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nice: Option<i32>,
}

/// Resource properties of a scope. Source: systemd.resource-control(5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[expect(missing_docs, reason = "systemd's own names, documented there")]
pub enum Resource {
    MemoryMax,
    MemoryHigh,
    CPUQuotaPerSecUSec,
    TasksMax,
    IOWeight,
    CPUWeight,
}

impl Resource {
    /// Every resource.
    pub const ALL: [Self; 6] = [
        Self::MemoryMax,
        Self::MemoryHigh,
        Self::CPUQuotaPerSecUSec,
        Self::TasksMax,
        Self::IOWeight,
        Self::CPUWeight,
    ];

    /// systemd's name.
    pub const fn word(self) -> &'static str {
        match self {
            Self::MemoryMax => "MemoryMax",
            Self::MemoryHigh => "MemoryHigh",
            Self::CPUQuotaPerSecUSec => "CPUQuotaPerSecUSec",
            Self::TasksMax => "TasksMax",
            Self::IOWeight => "IOWeight",
            Self::CPUWeight => "CPUWeight",
        }
    }
}

/// The properties of CreateTask. UpdateTask uses the same with [`Patch`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskSpec {
    /// What people read.
    pub title: String,
    /// More of it.
    pub body: String,
    /// `default` where none is given.
    pub queue: Option<String>,
    /// Higher goes first.
    pub priority: i32,
    /// Free words.
    pub labels: Vec<String>,
    /// Tasks that must be done first.
    pub parents: Vec<TaskId>,
    /// Not before this moment of the wall clock, microseconds.
    pub not_before_usec: Option<i64>,
    /// The same key of the same owner names the same task.
    pub idempotency_key: Option<String>,
    /// The command.
    pub program: Program,
    /// Longest run, milliseconds.
    pub max_runtime_ms: Option<i64>,
    /// Longest time without a heartbeat, milliseconds.
    pub stall_ms: Option<i64>,
    /// Lease, milliseconds.
    pub lease_ms: Option<i64>,
    /// From TERM to KILL, milliseconds.
    pub stop_grace_ms: Option<i64>,
    /// Failures that block the task; 0 means never.
    pub failure_limit: Option<u32>,
    /// First back-off, milliseconds.
    pub backoff_ms: Option<i64>,
    /// Longest back-off, milliseconds.
    pub backoff_max_ms: Option<i64>,
    /// What completes it.
    pub completion: Option<Completion>,
    /// Host resources by name, and how many units.
    pub slots: BTreeMap<String, u32>,
}

/// What UpdateTask changes; `None` leaves a property as it is. Kept on the board as JSON for the defaults of
/// a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the properties of TaskSpec")]
pub struct Patch {
    pub title: Option<String>,
    pub body: Option<String>,
    pub queue: Option<String>,
    pub priority: Option<i32>,
    pub labels: Option<Vec<String>>,
    pub not_before_usec: Option<i64>,
    pub command: Option<Vec<String>>,
    pub environment: Option<Vec<String>>,
    pub working_directory: Option<String>,
    pub user: Option<String>,
    pub group: Option<String>,
    pub launch: Option<Launch>,
    pub stdin: Option<String>,
    pub output: Option<Output>,
    pub stop_signal: Option<i32>,
    pub resources: BTreeMap<Resource, u64>,
    pub nice: Option<i32>,
    pub max_runtime_ms: Option<i64>,
    pub stall_ms: Option<i64>,
    pub lease_ms: Option<i64>,
    pub stop_grace_ms: Option<i64>,
    pub failure_limit: Option<u32>,
    pub backoff_ms: Option<i64>,
    pub backoff_max_ms: Option<i64>,
    pub completion: Option<Completion>,
    pub slots: Option<BTreeMap<String, u32>>,
}

impl Patch {
    /// The properties that may not change while a run holds the task, by their names on the bus.
    pub fn fixed_while_running(&self) -> Vec<&'static str> {
        let given = [
            ("Queue", self.queue.is_some()),
            ("NotBeforeUsec", self.not_before_usec.is_some()),
            ("Command", self.command.is_some()),
            ("Environment", self.environment.is_some()),
            ("WorkingDirectory", self.working_directory.is_some()),
            ("User", self.user.is_some()),
            ("Group", self.group.is_some()),
            ("Launch", self.launch.is_some()),
            ("Stdin", self.stdin.is_some()),
            ("Output", self.output.is_some()),
            ("StopSignal", self.stop_signal.is_some()),
            ("MemoryMax and the other resources", !self.resources.is_empty()),
            ("Nice", self.nice.is_some()),
            ("LeaseUsec", self.lease_ms.is_some()),
            ("StopGraceUsec", self.stop_grace_ms.is_some()),
            ("FailureLimit", self.failure_limit.is_some()),
            ("BackoffUsec", self.backoff_ms.is_some()),
            ("BackoffMaxUsec", self.backoff_max_ms.is_some()),
            ("Completion", self.completion.is_some()),
            ("Slots", self.slots.is_some()),
        ];
        given.into_iter().filter(|(_, given)| *given).map(|(name, _)| name).collect()
    }

    /// The properties that it names, by their names on the bus.
    pub fn named(&self) -> Vec<&'static str> {
        let free = [
            ("Title", self.title.is_some()),
            ("Body", self.body.is_some()),
            ("Priority", self.priority.is_some()),
            ("Labels", self.labels.is_some()),
            ("MaxRuntimeUsec", self.max_runtime_ms.is_some()),
            ("StallUsec", self.stall_ms.is_some()),
        ];
        let free = free.into_iter().filter(|(_, given)| *given).map(|(name, _)| name);
        free.chain(self.fixed_while_running()).collect()
    }

    /// The properties that cannot be a queue's default, because they are what makes a task itself.
    pub fn never_defaults(&self) -> Vec<&'static str> {
        const OWN: [&str; 7] = ["Title", "Body", "Priority", "Labels", "Queue", "NotBeforeUsec", "Command"];
        self.named().into_iter().filter(|name| OWN.contains(name)).collect()
    }

    /// As the defaults of a queue: fills in what the spec does not say itself. Variables and resources are
    /// filled in one by one. `User`, `Group` and a negative `Nice` are for tasks of root only: anybody else's
    /// command runs as its owner and before nobody else's, whatever the queue says.
    #[must_use]
    pub fn fill(&self, mut spec: TaskSpec, is_roots: bool) -> TaskSpec {
        fn fill<T: Clone>(place: &mut Option<T>, default: &Option<T>) {
            if place.is_none() {
                place.clone_from(default);
            }
        }
        let program = &mut spec.program;
        if let Some(environment) = &self.environment {
            let key = |entry: &str| entry.split('=').next().unwrap_or_default().to_owned();
            let own: Vec<String> = program.environment.iter().map(|entry| key(entry)).collect();
            let missing = environment.iter().filter(|entry| !own.contains(&key(entry))).cloned();
            program.environment = missing.chain(program.environment.iter().cloned()).collect();
        }
        fill(&mut program.working_directory, &self.working_directory);
        if is_roots {
            fill(&mut program.user, &self.user);
            fill(&mut program.group, &self.group);
        }
        fill(&mut program.launch, &self.launch);
        fill(&mut program.stdin, &self.stdin);
        fill(&mut program.output, &self.output);
        fill(&mut program.stop_signal, &self.stop_signal);
        for (resource, value) in &self.resources {
            program.resources.entry(*resource).or_insert(*value);
        }
        fill(&mut program.nice, &self.nice.filter(|nice| is_roots || *nice >= 0));
        fill(&mut spec.max_runtime_ms, &self.max_runtime_ms);
        fill(&mut spec.stall_ms, &self.stall_ms);
        fill(&mut spec.lease_ms, &self.lease_ms);
        fill(&mut spec.stop_grace_ms, &self.stop_grace_ms);
        fill(&mut spec.failure_limit, &self.failure_limit);
        fill(&mut spec.backoff_ms, &self.backoff_ms);
        fill(&mut spec.backoff_max_ms, &self.backoff_max_ms);
        fill(&mut spec.completion, &self.completion);
        if let (true, Some(slots)) = (spec.slots.is_empty(), &self.slots) {
            spec.slots.clone_from(slots);
        }
        spec
    }

    /// The spec with these changes.
    #[must_use]
    pub fn apply(self, mut spec: TaskSpec) -> TaskSpec {
        fn set<T>(place: &mut T, value: Option<T>) {
            if let Some(value) = value {
                *place = value;
            }
        }
        fn put<T>(place: &mut Option<T>, value: Option<T>) {
            if value.is_some() {
                *place = value;
            }
        }
        set(&mut spec.title, self.title);
        set(&mut spec.body, self.body);
        put(&mut spec.queue, self.queue);
        set(&mut spec.priority, self.priority);
        set(&mut spec.labels, self.labels);
        put(&mut spec.not_before_usec, self.not_before_usec);
        set(&mut spec.program.command, self.command);
        set(&mut spec.program.environment, self.environment);
        put(&mut spec.program.working_directory, self.working_directory);
        put(&mut spec.program.user, self.user);
        put(&mut spec.program.group, self.group);
        put(&mut spec.program.launch, self.launch);
        put(&mut spec.program.stdin, self.stdin);
        put(&mut spec.program.output, self.output);
        put(&mut spec.program.stop_signal, self.stop_signal);
        spec.program.resources.extend(self.resources);
        put(&mut spec.program.nice, self.nice);
        put(&mut spec.max_runtime_ms, self.max_runtime_ms);
        put(&mut spec.stall_ms, self.stall_ms);
        put(&mut spec.lease_ms, self.lease_ms);
        put(&mut spec.stop_grace_ms, self.stop_grace_ms);
        put(&mut spec.failure_limit, self.failure_limit);
        put(&mut spec.backoff_ms, self.backoff_ms);
        put(&mut spec.backoff_max_ms, self.backoff_max_ms);
        put(&mut spec.completion, self.completion);
        set(&mut spec.slots, self.slots);
        spec
    }
}

impl TaskSpec {
    /// Holds every property to its limit.
    ///
    /// # Errors
    /// [`Refusal::InvalidArgument`] and [`Refusal::LimitExceeded`], with the property's name on the bus.
    pub fn check(&self, limits: &Limits) -> Result<(), Refusal> {
        line("Title", &self.title, limits::TITLE_BYTES)?;
        if self.title.trim().is_empty() {
            return Err(Refusal::argument("Title", "is empty; say what the task is"));
        }
        text("Body", &self.body, limits.text_bytes)?;
        if let Some(queue) = &self.queue {
            name("Queue", queue)?;
        }
        at_most("Labels", limits::LABELS, self.labels.len())?;
        for label in &self.labels {
            name("Labels", label)?;
        }
        at_most("Parents", limits::PARENTS, self.parents.len())?;
        if let Some(key) = &self.idempotency_key {
            name("IdempotencyKey", key)?;
        }
        self.check_spans()?;
        self.program.check(limits)?;
        at_most("Slots", limits::SLOTS, self.slots.len())?;
        for (slot, units) in &self.slots {
            name("Slots", slot)?;
            if *units == 0 || *units > limits::SLOT_UNITS {
                return Err(Refusal::argument(
                    "Slots",
                    format!("{slot}: give 1 to {} units", limits::SLOT_UNITS),
                ));
            }
        }
        Ok(())
    }

    fn check_spans(&self) -> Result<(), Refusal> {
        let spans = [
            ("MaxRuntimeUsec", self.max_runtime_ms, 0),
            ("StallUsec", self.stall_ms, 0),
            ("LeaseUsec", self.lease_ms, limits::LEASE_MIN_MS),
            ("StopGraceUsec", self.stop_grace_ms, 0),
            ("BackoffUsec", self.backoff_ms, 0),
            ("BackoffMaxUsec", self.backoff_max_ms, 0),
        ];
        for (property, span_ms, least_ms) in spans {
            span(property, span_ms, least_ms)?;
        }
        Ok(())
    }
}

impl Program {
    fn check(&self, limits: &Limits) -> Result<(), Refusal> {
        let command_bytes: usize = self.command.iter().map(|word| word.len() + 1).sum();
        at_most("Command (bytes)", limits.command_bytes, command_bytes)?;
        if self.command.first().is_some_and(String::is_empty) {
            return Err(Refusal::argument("Command", "its first word is empty; give the program's name"));
        }
        for word in &self.command {
            no_nul("Command", word)?;
        }
        let environment_bytes: usize = self.environment.iter().map(|entry| entry.len() + 1).sum();
        at_most("Environment (bytes)", limits.environment_bytes, environment_bytes)?;
        for entry in &self.environment {
            no_nul("Environment", entry)?;
            match entry.split_once('=') {
                Some((key, _)) if !key.is_empty() && !key.starts_with("TENURED_") => {}
                Some((key, _)) if key.starts_with("TENURED_") => {
                    return Err(Refusal::argument("Environment", format!("{key} is set by the daemon")));
                }
                _ => return Err(Refusal::argument("Environment", format!("{entry:?} is not KEY=VALUE"))),
            }
        }
        for (property, path) in [("WorkingDirectory", &self.working_directory), ("Stdin", &self.stdin)] {
            if let Some(path) = path {
                absolute(property, path)?;
            }
        }
        for (property, word) in [("User", &self.user), ("Group", &self.group)] {
            if let Some(word) = word {
                name(property, word)?;
            }
        }
        if self.stop_signal.is_some_and(|signal| !(1..=64).contains(&signal)) {
            return Err(Refusal::argument("StopSignal", "is no signal of this system"));
        }
        if self.nice.is_some_and(|nice| !(-20..=19).contains(&nice)) {
            return Err(Refusal::argument("Nice", "goes from -20 to 19"));
        }
        for (resource, value) in &self.resources {
            let range = match resource {
                Resource::IOWeight | Resource::CPUWeight => 1..=10_000,
                Resource::MemoryMax | Resource::MemoryHigh => limits::MEMORY_MIN_BYTES..=u64::MAX,
                Resource::TasksMax => limits::TASKS_MIN..=u64::MAX,
                Resource::CPUQuotaPerSecUSec => 1..=u64::MAX,
            };
            if !range.contains(value) {
                let (least, most) = (range.start(), range.end());
                let problem = format!("{value} is out of range; it goes from {least} to {most}");
                return Err(Refusal::argument(resource.word(), problem));
            }
        }
        Ok(())
    }
}

/// A property counted in things.
///
/// # Errors
/// [`Refusal::LimitExceeded`].
pub fn at_most(what: &'static str, limit: usize, asked: usize) -> Result<(), Refusal> {
    if asked > limit {
        return Err(Refusal::LimitExceeded { what, limit: limit as u64, asked: asked as u64 });
    }
    Ok(())
}

/// A text of several lines.
///
/// # Errors
/// [`Refusal::InvalidArgument`] for NUL, [`Refusal::LimitExceeded`] for its length.
pub fn text(property: &'static str, value: &str, limit_bytes: usize) -> Result<(), Refusal> {
    at_most(property, limit_bytes, value.len())?;
    no_nul(property, value)
}

/// A text of one line: no control characters, so that it cannot speak to a terminal or a log.
///
/// # Errors
/// [`Refusal::InvalidArgument`] for control characters, [`Refusal::LimitExceeded`] for its length.
pub fn line(property: &'static str, value: &str, limit_bytes: usize) -> Result<(), Refusal> {
    at_most(property, limit_bytes, value.len())?;
    if value.chars().any(char::is_control) {
        return Err(Refusal::argument(property, "has control characters; give one line of text"));
    }
    Ok(())
}

/// A short name.
///
/// # Errors
/// As [`line()`]; an empty one is refused too.
pub fn name(property: &'static str, value: &str) -> Result<(), Refusal> {
    if value.is_empty() {
        return Err(Refusal::argument(property, "is empty"));
    }
    line(property, value, limits::NAME_BYTES)
}

/// A span of time.
///
/// # Errors
/// [`Refusal::InvalidArgument`] outside `least_ms` to [`limits::SPAN_MS`].
pub fn span(property: &'static str, span_ms: Option<i64>, least_ms: i64) -> Result<(), Refusal> {
    match span_ms {
        Some(span_ms) if span_ms < least_ms => {
            Err(Refusal::argument(property, format!("is {span_ms} ms; the least is {least_ms} ms")))
        }
        Some(span_ms) if span_ms > limits::SPAN_MS => {
            Err(Refusal::argument(property, "is longer than 100 years; microseconds are meant"))
        }
        _ => Ok(()),
    }
}

fn no_nul(property: &'static str, value: &str) -> Result<(), Refusal> {
    if value.contains('\0') {
        return Err(Refusal::argument(property, "has a NUL character"));
    }
    Ok(())
}

fn absolute(property: &'static str, path: &str) -> Result<(), Refusal> {
    no_nul(property, path)?;
    at_most(property, limits::PATH_BYTES, path.len())?;
    if !path.starts_with('/') {
        return Err(Refusal::argument(property, format!("{path:?} is not an absolute path")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> TaskSpec {
        TaskSpec { title: "t".into(), ..TaskSpec::default() }
    }

    fn refused(change: impl FnOnce(&mut TaskSpec)) -> String {
        let mut spec = spec();
        change(&mut spec);
        spec.check(&Limits::default()).unwrap_err().to_string()
    }

    #[test]
    fn every_refusal_names_its_property() {
        type Change = Box<dyn FnOnce(&mut TaskSpec)>;
        let cases: Vec<(&str, Change)> = vec![
            ("Title", Box::new(|spec| spec.title = " ".into())),
            ("Title", Box::new(|spec| spec.title = "a\u{1b}[2J".into())),
            ("Body", Box::new(|spec| spec.body = "x".repeat(65_537))),
            ("Queue", Box::new(|spec| spec.queue = Some(String::new()))),
            ("Labels", Box::new(|spec| spec.labels = vec!["l".into(); 65])),
            ("Environment", Box::new(|spec| spec.program.environment = vec!["NOVALUE".into()])),
            ("TENURED_RUN", Box::new(|spec| spec.program.environment = vec!["TENURED_RUN=1".into()])),
            ("WorkingDirectory", Box::new(|spec| spec.program.working_directory = Some("tmp".into()))),
            ("Command", Box::new(|spec| spec.program.command = vec![String::new()])),
            ("Command", Box::new(|spec| spec.program.command = vec!["a\0b".into()])),
            ("LeaseUsec", Box::new(|spec| spec.lease_ms = Some(10))),
            ("MaxRuntimeUsec", Box::new(|spec| spec.max_runtime_ms = Some(i64::MAX))),
            ("Nice", Box::new(|spec| spec.program.nice = Some(20))),
            ("StopSignal", Box::new(|spec| spec.program.stop_signal = Some(65))),
            (
                "CPUWeight",
                Box::new(|spec| {
                    spec.program.resources.insert(Resource::CPUWeight, 0);
                }),
            ),
            (
                "Slots",
                Box::new(|spec| {
                    spec.slots.insert("gpu".into(), 0);
                }),
            ),
        ];
        for (property, change) in cases {
            let text = refused(change);
            assert!(text.starts_with(property) || text.contains(property), "{property}: {text}");
        }
        spec().check(&Limits::default()).unwrap();
    }

    #[test]
    fn a_patch_changes_what_it_names_and_nothing_else() {
        let before = TaskSpec { body: "b".into(), priority: 3, ..spec() };
        let patch = Patch { priority: Some(4), nice: Some(5), ..Patch::default() };
        assert_eq!(patch.fixed_while_running(), ["Nice"]);
        let after = patch.apply(before.clone());
        assert_eq!((after.priority, after.program.nice), (4, Some(5)));
        assert_eq!(TaskSpec { priority: 3, program: Program::default(), ..after }, before);
    }

    #[test]
    fn defaults_fill_in_what_a_task_does_not_say() {
        let defaults = Patch {
            nice: Some(5),
            user: Some("root".into()),
            environment: Some(vec!["A=default".into(), "B=default".into()]),
            ..Patch::default()
        };
        let mut own = spec();
        own.program.nice = Some(1);
        own.program.environment = vec!["A=own".into()];
        let filled = defaults.fill(own.clone(), false);
        assert_eq!(filled.program.nice, Some(1));
        assert_eq!(filled.program.environment, ["B=default", "A=own"]);
        assert_eq!(filled.program.user, None);
        assert_eq!(defaults.fill(own, true).program.user.as_deref(), Some("root"));
        let urgent = Patch { nice: Some(-5), ..Patch::default() };
        assert_eq!(urgent.fill(spec(), false).program.nice, None);
        assert_eq!(urgent.fill(spec(), true).program.nice, Some(-5));
        let no_default = Patch { command: Some(vec!["true".into()]), title: Some("t".into()), ..defaults };
        assert_eq!(no_default.never_defaults(), ["Title", "Command"]);
    }

    #[test]
    fn a_program_keeps_only_what_was_said() {
        assert_eq!(serde_json::to_string(&Program::default()).unwrap(), "{}");
    }
}
