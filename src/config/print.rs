//! The configuration in force, as text that reads back as the same.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use crate::config::units::{size, span};
use crate::core::policy::{Policy, QueuePolicy};
use crate::core::signal;
use crate::core::spec::{Patch, Resource};
use crate::core::verdict::Pass;

/// The whole of it (`--print-config`).
pub fn print(policy: &Policy) -> String {
    let mut text = String::new();
    // A String takes everything.
    let _ = write_policy(&mut text, policy);
    text
}

fn write_policy(text: &mut String, policy: &Policy) -> fmt::Result {
    writeln!(text, "[sweep]\ninterval = {}", quoted(&span(policy.interval_ms)))?;
    for pass in Pass::ALL.into_iter().filter(|pass| !matches!(pass, Pass::Promote | Pass::Dispatch)) {
        writeln!(text, "{} = {}", pass.word(), policy.passes.has(pass))?;
    }
    writeln!(text, "linger = {}", quoted(&span(policy.linger_ms)))?;
    writeln!(text, "\n[claim]\nlease = {}", quoted(&span(policy.lease_ms)))?;
    writeln!(text, "stall = {}", quoted(&span(policy.stall_ms.unwrap_or(0))))?;
    writeln!(text, "\n[run]\nlaunch = {}", quoted(policy.launch.word()))?;
    writeln!(text, "max_running = {}", policy.max_running)?;
    writeln!(text, "stop_grace = {}", quoted(&span(policy.stop_grace_ms)))?;
    writeln!(text, "failure_limit = {}", policy.failure_limit)?;
    writeln!(text, "backoff = {}", quoted(&span(policy.backoff_ms)))?;
    writeln!(text, "backoff_max = {}", quoted(&span(policy.backoff_max_ms)))?;
    writeln!(text, "tempfail_cooldown = {}", quoted(&span(policy.tempfail_cooldown_ms)))?;
    writeln!(text, "\n[store]\nretention = {}", quoted(&span(policy.retention_ms)))?;
    writeln!(text, "reserve = {}", quoted(&size(policy.reserve_bytes)))?;
    let limits = &policy.limits;
    writeln!(text, "\n[limits]\nopen_tasks_per_user = {}", limits.open_tasks_per_user)?;
    writeln!(text, "running_per_user = {}", limits.running_per_user)?;
    writeln!(text, "command_bytes = {}", limits.command_bytes)?;
    writeln!(text, "environment_bytes = {}", limits.environment_bytes)?;
    writeln!(text, "text_bytes = {}", limits.text_bytes)?;
    for (name, queue) in &policy.queues {
        write_queue(text, name, queue)?;
    }
    if !policy.slots.is_empty() {
        writeln!(text, "\n[slots]")?;
    }
    for (slot, units) in &policy.slots {
        writeln!(text, "{} = {}", quoted(slot), list(units))?;
    }
    Ok(())
}

fn write_queue(text: &mut String, name: &str, queue: &QueuePolicy) -> fmt::Result {
    let name = quoted(name);
    writeln!(text, "\n[queue.{name}]\nmax_running = {}\npaused = {}", queue.max_running, queue.paused)?;
    let defaults = launch_defaults(&queue.launch_defaults);
    if !defaults.is_empty() {
        writeln!(text, "\n[queue.{name}.launch_defaults]")?;
    }
    for (key, value) in defaults {
        writeln!(text, "{key} = {value}")?;
    }
    Ok(())
}

fn launch_defaults(patch: &Patch) -> BTreeMap<&'static str, String> {
    let mut lines = BTreeMap::new();
    let mut put = |key: &'static str, value: Option<String>| {
        if let Some(value) = value {
            lines.insert(key, value);
        }
    };
    put("environment", patch.environment.as_deref().map(list));
    for (key, value) in [
        ("working_directory", &patch.working_directory),
        ("user", &patch.user),
        ("group", &patch.group),
        ("stdin", &patch.stdin),
    ] {
        put(key, value.as_deref().map(quoted));
    }
    put("launch", patch.launch.map(|launch| quoted(launch.word())));
    put("output", patch.output.map(|output| quoted(output.word())));
    put("completion", patch.completion.map(|completion| quoted(completion.word())));
    put("stop_signal", patch.stop_signal.map(|number| quoted(&signal::name(number))));
    put("nice", patch.nice.map(|nice| nice.to_string()));
    put("failure_limit", patch.failure_limit.map(|limit| limit.to_string()));
    for (key, span_ms) in [
        ("max_runtime", patch.max_runtime_ms),
        ("stall", patch.stall_ms),
        ("lease", patch.lease_ms),
        ("stop_grace", patch.stop_grace_ms),
        ("backoff", patch.backoff_ms),
        ("backoff_max", patch.backoff_max_ms),
    ] {
        put(key, span_ms.map(|span_ms| quoted(&span(span_ms))));
    }
    for (resource, value) in &patch.resources {
        let (key, value) = resource_line(*resource, *value);
        put(key, Some(value));
    }
    let slots = patch.slots.as_ref().map(|slots| {
        let units: Vec<String> =
            slots.iter().map(|(slot, units)| format!("{} = {units}", quoted(slot))).collect();
        format!("{{ {} }}", units.join(", "))
    });
    put("slots", slots);
    lines
}

fn resource_line(resource: Resource, value: u64) -> (&'static str, String) {
    match resource {
        Resource::MemoryMax => ("memory_max", quoted(&size(value))),
        Resource::MemoryHigh => ("memory_high", quoted(&size(value))),
        Resource::CPUQuotaPerSecUSec => ("cpu_quota", quoted(&format!("{}%", value / 10_000))),
        Resource::TasksMax => ("tasks_max", value.to_string()),
        Resource::IOWeight => ("io_weight", value.to_string()),
        Resource::CPUWeight => ("cpu_weight", value.to_string()),
    }
}

fn list(texts: &[String]) -> String {
    let quoted: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
    format!("[{}]", quoted.join(", "))
}

fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}
