//! One file of the configuration, laid over what the files before it said.
//!
//! Owns the names, types and ranges of all keys. Each error names its place.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::config::{ConfigError, units};
use crate::core::limits::{self, Limits};
use crate::core::policy::{Policy, QueuePolicy};
use crate::core::spec::{Completion, Launch, Output, Patch, Resource, TaskSpec, name};
use crate::core::verdict::Pass;
use crate::core::{refusal::Refusal, signal};

const DAY_MS: i64 = 24 * 60 * 60 * 1_000;
/// The most that one call of the bus carries beside everything else, and that a reply gives back.
const TEXT_BYTES: RangeInclusive<u32> = 1_024..=262_144;
/// The passes that may be switched off.
const PASSES: [Pass; 6] = [
    Pass::ReleaseStaleClaims,
    Pass::EnforceMaxRuntime,
    Pass::DetectCrashedWorkers,
    Pass::DetectStalledWorkers,
    Pass::ReconcileOrphans,
    Pass::ReapEndedRuns,
];
const SECTIONS: [&str; 7] = ["sweep", "claim", "run", "store", "limits", "queue", "slots"];

type Result<T> = std::result::Result<T, ConfigError>;
type Value<'i> = Spanned<DeValue<'i>>;

/// Lays the text of a file over a policy.
///
/// # Errors
/// The first thing that is wrong with it.
pub fn lay_over(policy: &mut Policy, file: &Path, text: &str, cpus: u32) -> Result<()> {
    let source = Source { file, text };
    let document = DeTable::parse(text).map_err(|error| source.syntax(&error))?;
    let root = document.get_ref();
    for (section, value) in root {
        let name = section.get_ref().as_ref();
        if !SECTIONS.contains(&name) {
            let problem = format!("is no section; sections are {}", SECTIONS.join(", "));
            return Err(source.error(section.span().start, format!("[{name}]"), problem));
        }
        let mut table = Table::open(source, format!("[{name}]"), value)?;
        match name {
            "sweep" => sweep(policy, &mut table)?,
            "claim" => claim(policy, &mut table)?,
            "run" => run(policy, &mut table, cpus)?,
            "store" => store(policy, &mut table)?,
            "limits" => limits_(policy, &mut table)?,
            "queue" => queues(policy, &mut table)?,
            _ => slots(policy, &mut table)?,
        }
        table.finish()?;
    }
    Ok(())
}

fn sweep(policy: &mut Policy, table: &mut Table<'_, '_>) -> Result<()> {
    table.span("interval", &mut policy.interval_ms, 1_000..=DAY_MS)?;
    table.span("linger", &mut policy.linger_ms, 0..=DAY_MS)?;
    for pass in PASSES {
        let mut on = policy.passes.has(pass);
        table.flag(pass.word(), &mut on)?;
        policy.passes = if on { policy.passes.with(pass) } else { policy.passes.without(pass) };
    }
    Ok(())
}

fn claim(policy: &mut Policy, table: &mut Table<'_, '_>) -> Result<()> {
    table.span("lease", &mut policy.lease_ms, limits::LEASE_MIN_MS..=limits::SPAN_MS)?;
    let mut stall_ms = policy.stall_ms.unwrap_or(0);
    table.span("stall", &mut stall_ms, 0..=limits::SPAN_MS)?;
    policy.stall_ms = Some(stall_ms).filter(|stall_ms| *stall_ms != 0);
    Ok(())
}

fn run(policy: &mut Policy, table: &mut Table<'_, '_>, cpus: u32) -> Result<()> {
    table.word("launch", &mut policy.launch, &[Launch::Scope, Launch::Direct, Launch::Auto], Launch::word)?;
    if let Some(value) = table.take("max_running") {
        policy.max_running = match value.get_ref() {
            DeValue::String(word) if word == "auto" => cpus.max(1),
            DeValue::Integer(_) => table.integer("max_running", value, 0..=100_000)?,
            _ => return Err(table.wrong("max_running", value, "write \"auto\" or a number such as 4")),
        };
    }
    table.span("stop_grace", &mut policy.stop_grace_ms, 0..=DAY_MS)?;
    table.number("failure_limit", &mut policy.failure_limit, 0..=100_000)?;
    table.span("backoff", &mut policy.backoff_ms, 0..=limits::SPAN_MS)?;
    table.span("backoff_max", &mut policy.backoff_max_ms, 0..=limits::SPAN_MS)?;
    table.span("tempfail_cooldown", &mut policy.tempfail_cooldown_ms, 0..=limits::SPAN_MS)
}

fn store(policy: &mut Policy, table: &mut Table<'_, '_>) -> Result<()> {
    table.span("retention", &mut policy.retention_ms, 0..=limits::SPAN_MS)?;
    table.size("reserve", &mut policy.reserve_bytes, 0..=1 << 30)
}

fn limits_(policy: &mut Policy, table: &mut Table<'_, '_>) -> Result<()> {
    let limits = &mut policy.limits;
    table.number("open_tasks_per_user", &mut limits.open_tasks_per_user, 1..=100_000_000)?;
    table.number("running_per_user", &mut limits.running_per_user, 0..=100_000)?;
    table.bytes("command_bytes", &mut limits.command_bytes)?;
    table.bytes("environment_bytes", &mut limits.environment_bytes)?;
    table.bytes("text_bytes", &mut limits.text_bytes)
}

fn queues(policy: &mut Policy, table: &mut Table<'_, '_>) -> Result<()> {
    let limits = policy.limits.clone();
    for (queue, value) in table.rest() {
        table.name(&queue, value)?;
        let section = format!("[queue.{queue}]");
        let mut inner = Table::open(table.source, section, value)?;
        let entry = policy.queues.entry(queue).or_default();
        one_queue(entry, &mut inner, &limits)?;
        inner.finish()?;
    }
    Ok(())
}

fn one_queue(queue: &mut QueuePolicy, table: &mut Table<'_, '_>, limits: &Limits) -> Result<()> {
    table.number("max_running", &mut queue.max_running, 0..=100_000)?;
    table.flag("paused", &mut queue.paused)?;
    let Some(value) = table.take("launch_defaults") else { return Ok(()) };
    let section = format!("{}.launch_defaults]", table.section.trim_end_matches(']'));
    let mut inner = Table::open(table.source, section, value)?;
    launch_defaults(&mut queue.launch_defaults, &mut inner)?;
    inner.finish()?;
    let spec = TaskSpec { title: "-".to_owned(), ..TaskSpec::default() };
    let checked = queue.launch_defaults.clone().apply(spec).check(limits);
    checked.map_err(|refusal| table.error("launch_defaults", value, refusal.to_string()))
}

fn launch_defaults(patch: &mut Patch, table: &mut Table<'_, '_>) -> Result<()> {
    table.texts("environment", &mut patch.environment)?;
    table.text("working_directory", &mut patch.working_directory)?;
    table.text("user", &mut patch.user)?;
    table.text("group", &mut patch.group)?;
    table.text("stdin", &mut patch.stdin)?;
    table.choice(
        "launch",
        &mut patch.launch,
        &[Launch::Scope, Launch::Direct, Launch::Auto],
        Launch::word,
    )?;
    table.choice("output", &mut patch.output, &[Output::Journal, Output::File], Output::word)?;
    let completions = [Completion::Exit, Completion::Explicit];
    table.choice("completion", &mut patch.completion, &completions, Completion::word)?;
    table.signal("stop_signal", &mut patch.stop_signal)?;
    resources(patch, table)?;
    if let Some(value) = table.take("nice") {
        patch.nice = Some(table.integer("nice", value, -20..=19)?);
    }
    for (key, place) in [
        ("max_runtime", &mut patch.max_runtime_ms),
        ("stall", &mut patch.stall_ms),
        ("lease", &mut patch.lease_ms),
        ("stop_grace", &mut patch.stop_grace_ms),
        ("backoff", &mut patch.backoff_ms),
        ("backoff_max", &mut patch.backoff_max_ms),
    ] {
        if let Some(value) = table.take(key) {
            *place = Some(table.read_span(key, value, 0..=limits::SPAN_MS)?);
        }
    }
    if let Some(value) = table.take("failure_limit") {
        patch.failure_limit = Some(table.integer("failure_limit", value, 0..=100_000)?);
    }
    default_slots(patch, table)
}

fn resources(patch: &mut Patch, table: &mut Table<'_, '_>) -> Result<()> {
    for (key, resource) in [("memory_max", Resource::MemoryMax), ("memory_high", Resource::MemoryHigh)] {
        if let Some(value) = table.take(key) {
            patch.resources.insert(resource, table.read_size(key, value, 1..=u64::MAX)?);
        }
    }
    for (key, resource, most) in [
        ("tasks_max", Resource::TasksMax, i64::MAX),
        ("io_weight", Resource::IOWeight, 10_000),
        ("cpu_weight", Resource::CPUWeight, 10_000),
    ] {
        if let Some(value) = table.take(key) {
            patch.resources.insert(resource, table.integer::<u64>(key, value, 1..=most)?);
        }
    }
    if let Some(value) = table.take("cpu_quota") {
        let percent = match value.get_ref() {
            DeValue::String(text) => text.strip_suffix('%').and_then(|digits| digits.parse::<u32>().ok()),
            _ => None,
        };
        let percent = percent.filter(|percent| *percent > 0);
        let percent =
            percent.ok_or_else(|| table.wrong("cpu_quota", value, "write a share such as \"150%\""))?;
        patch.resources.insert(Resource::CPUQuotaPerSecUSec, u64::from(percent) * 10_000);
    }
    Ok(())
}

fn default_slots(patch: &mut Patch, table: &mut Table<'_, '_>) -> Result<()> {
    let Some(value) = table.take("slots") else { return Ok(()) };
    let section = format!("{}.slots]", table.section.trim_end_matches(']'));
    let mut inner = Table::open(table.source, section, value)?;
    let mut units = BTreeMap::new();
    for (slot, value) in inner.rest() {
        inner.name(&slot, value)?;
        let count = inner.integer(&slot, value, 1..=i64::from(limits::SLOT_UNITS))?;
        units.insert(slot, count);
    }
    patch.slots = Some(units);
    Ok(())
}

fn slots(policy: &mut Policy, table: &mut Table<'_, '_>) -> Result<()> {
    for (slot, value) in table.rest() {
        table.name(&slot, value)?;
        let units = table.read_texts(&slot, value)?;
        if units.len() > limits::SLOT_UNITS as usize {
            let problem = format!("has {} units; there may be {}", units.len(), limits::SLOT_UNITS);
            return Err(table.error(&slot, value, problem));
        }
        for (at, unit) in units.iter().enumerate() {
            let is_plain =
                !unit.is_empty() && !unit.chars().any(|character| character.is_control() || character == ',');
            if !is_plain {
                return Err(table.error(&slot, value, format!("{unit:?} cannot be the name of a unit")));
            }
            if units[..at].contains(unit) {
                return Err(table.error(&slot, value, format!("{unit:?} is there twice")));
            }
        }
        policy.slots.insert(slot, units);
    }
    Ok(())
}

/// A file, for its errors.
#[derive(Clone, Copy)]
struct Source<'f> {
    file: &'f Path,
    text: &'f str,
}

impl Source<'_> {
    fn error(&self, offset: usize, key: String, problem: impl Into<String>) -> ConfigError {
        let before = self.text.as_bytes().iter().take(offset);
        let line = 1 + before.filter(|byte| **byte == b'\n').count();
        ConfigError::Wrong { file: self.file.to_owned(), line, key, problem: problem.into() }
    }

    fn syntax(&self, error: &toml::de::Error) -> ConfigError {
        let offset = error.span().map_or(0, |span| span.start);
        let message = error.message().replace('\n', " ");
        let rest = self.text.get(offset..).unwrap_or_default();
        let near = rest.lines().next().unwrap_or_default().trim();
        self.error(offset, format!("near {near:?}"), format!("is not TOML: {message}"))
    }
}

/// A table that is being read key by key.
struct Table<'f, 'i> {
    source: Source<'f>,
    section: String,
    left: BTreeMap<String, (usize, &'f Value<'i>)>,
    known: Vec<&'static str>,
}

impl<'f, 'i> Table<'f, 'i> {
    fn open(source: Source<'f>, section: String, value: &'f Value<'i>) -> Result<Self> {
        let DeValue::Table(table) = value.get_ref() else {
            let problem = format!("is {}; it is a table", kind(value.get_ref()));
            return Err(source.error(value.span().start, section, problem));
        };
        let left = table.iter().map(|(key, value)| (key.get_ref().to_string(), (key.span().start, value)));
        Ok(Self { source, section, left: left.collect(), known: Vec::new() })
    }

    fn take(&mut self, key: &'static str) -> Option<&'f Value<'i>> {
        self.known.push(key);
        self.left.remove(key).map(|(_, value)| value)
    }

    /// Everything: a table whose keys are names.
    fn rest(&mut self) -> Vec<(String, &'f Value<'i>)> {
        std::mem::take(&mut self.left).into_iter().map(|(key, (_, value))| (key, value)).collect()
    }

    fn finish(self) -> Result<()> {
        let Some((key, (offset, _))) = self.left.into_iter().next() else { return Ok(()) };
        let problem = format!("is not known here; known are {}", self.known.join(", "));
        Err(self.source.error(offset, format!("{} {key}", self.section), problem))
    }

    fn error(&self, key: &str, value: &Value<'_>, problem: impl Into<String>) -> ConfigError {
        self.source.error(value.span().start, format!("{} {key}", self.section), problem)
    }

    fn wrong(&self, key: &str, value: &Value<'_>, right: &str) -> ConfigError {
        self.error(key, value, format!("is {}; {right}", kind(value.get_ref())))
    }

    fn name(&self, key: &str, value: &Value<'_>) -> Result<()> {
        match name("", key) {
            Ok(()) => Ok(()),
            Err(Refusal::InvalidArgument { problem, .. }) => {
                Err(self.error(key, value, format!("the name {problem}")))
            }
            Err(_) => {
                Err(self.error(key, value, format!("the name is longer than {} bytes", limits::NAME_BYTES)))
            }
        }
    }

    fn flag(&mut self, key: &'static str, place: &mut bool) -> Result<()> {
        let Some(value) = self.take(key) else { return Ok(()) };
        match value.get_ref() {
            DeValue::Boolean(flag) => *place = *flag,
            _ => return Err(self.wrong(key, value, "write true or false")),
        }
        Ok(())
    }

    fn number(&mut self, key: &'static str, place: &mut u32, range: RangeInclusive<u32>) -> Result<()> {
        let Some(value) = self.take(key) else { return Ok(()) };
        *place = self.integer(key, value, i64::from(*range.start())..=i64::from(*range.end()))?;
        Ok(())
    }

    fn bytes(&mut self, key: &'static str, place: &mut usize) -> Result<()> {
        let mut bytes = 0;
        let Some(()) = self.left.contains_key(key).then_some(()) else {
            self.known.push(key);
            return Ok(());
        };
        self.number(key, &mut bytes, TEXT_BYTES)?;
        *place = bytes as usize;
        Ok(())
    }

    fn integer<T: TryFrom<i64>>(
        &self,
        key: &str,
        value: &Value<'_>,
        range: RangeInclusive<i64>,
    ) -> Result<T> {
        let DeValue::Integer(integer) = value.get_ref() else {
            return Err(self.wrong(key, value, "write a number without a unit"));
        };
        let number = i64::from_str_radix(integer.as_str(), integer.radix()).ok();
        let number =
            number.filter(|number| range.contains(number)).and_then(|number| T::try_from(number).ok());
        number.ok_or_else(|| {
            self.error(key, value, format!("{integer} is not between {} and {}", range.start(), range.end()))
        })
    }

    fn span(&mut self, key: &'static str, place: &mut i64, range: RangeInclusive<i64>) -> Result<()> {
        let Some(value) = self.take(key) else { return Ok(()) };
        *place = self.read_span(key, value, range)?;
        Ok(())
    }

    fn read_span(&self, key: &str, value: &Value<'_>, range: RangeInclusive<i64>) -> Result<i64> {
        let DeValue::String(text) = value.get_ref() else {
            return Err(self.wrong(key, value, "write a span with its unit, such as \"30s\""));
        };
        let span_ms =
            units::span_ms(text).map_err(|problem| self.error(key, value, format!("{text:?} {problem}")))?;
        if range.contains(&span_ms) {
            return Ok(span_ms);
        }
        let (least, most) = (units::span(*range.start()), units::span(*range.end()));
        Err(self.error(key, value, format!("{text:?} is not between {least} and {most}")))
    }

    fn size(&mut self, key: &'static str, place: &mut u64, range: RangeInclusive<u64>) -> Result<()> {
        let Some(value) = self.take(key) else { return Ok(()) };
        *place = self.read_size(key, value, range)?;
        Ok(())
    }

    fn read_size(&self, key: &str, value: &Value<'_>, range: RangeInclusive<u64>) -> Result<u64> {
        let DeValue::String(text) = value.get_ref() else {
            return Err(self.wrong(key, value, "write a size with its unit, such as \"8MiB\""));
        };
        let bytes = units::size_bytes(text)
            .map_err(|problem| self.error(key, value, format!("{text:?} {problem}")))?;
        if range.contains(&bytes) {
            return Ok(bytes);
        }
        let (least, most) = (units::size(*range.start()), units::size(*range.end()));
        Err(self.error(key, value, format!("{text:?} is not between {least} and {most}")))
    }

    fn text(&mut self, key: &'static str, place: &mut Option<String>) -> Result<()> {
        let Some(value) = self.take(key) else { return Ok(()) };
        let DeValue::String(text) = value.get_ref() else {
            return Err(self.wrong(key, value, "write a text"));
        };
        *place = Some(text.to_string());
        Ok(())
    }

    fn texts(&mut self, key: &'static str, place: &mut Option<Vec<String>>) -> Result<()> {
        let Some(value) = self.take(key) else { return Ok(()) };
        *place = Some(self.read_texts(key, value)?);
        Ok(())
    }

    fn read_texts(&self, key: &str, value: &Value<'_>) -> Result<Vec<String>> {
        let right = "write texts in brackets, such as [\"0\", \"1\"]";
        let DeValue::Array(array) = value.get_ref() else { return Err(self.wrong(key, value, right)) };
        let texts = array.iter().map(|value| match value.get_ref() {
            DeValue::String(text) => Ok(text.to_string()),
            _ => Err(self.error(key, value, format!("has {} in it; {right}", kind(value.get_ref())))),
        });
        texts.collect()
    }

    fn word<T: Copy>(
        &mut self,
        key: &'static str,
        place: &mut T,
        all: &[T],
        of: fn(T) -> &'static str,
    ) -> Result<()> {
        let mut choice = None;
        self.choice(key, &mut choice, all, of)?;
        *place = choice.unwrap_or(*place);
        Ok(())
    }

    fn choice<T: Copy>(
        &mut self,
        key: &'static str,
        place: &mut Option<T>,
        all: &[T],
        of: fn(T) -> &'static str,
    ) -> Result<()> {
        let mut word = None;
        let value = self.left.get(key).map(|(_, value)| *value);
        self.text(key, &mut word)?;
        let (Some(word), Some(value)) = (word, value) else { return Ok(()) };
        let found = all.iter().copied().find(|one| of(*one) == word);
        let words: Vec<&str> = all.iter().map(|one| of(*one)).collect();
        *place =
            Some(found.ok_or_else(|| {
                self.error(key, value, format!("{word:?} is none of {}", words.join(", ")))
            })?);
        Ok(())
    }

    fn signal(&mut self, key: &'static str, place: &mut Option<i32>) -> Result<()> {
        let mut word = None;
        let value = self.left.get(key).map(|(_, value)| *value);
        self.text(key, &mut word)?;
        let (Some(word), Some(value)) = (word, value) else { return Ok(()) };
        let number = signal::number(&word);
        let problem =
            || self.error(key, value, format!("{word:?} is no signal; write a name such as \"SIGINT\""));
        *place = Some(number.ok_or_else(problem)?);
        Ok(())
    }
}

fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a number with a point",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}
