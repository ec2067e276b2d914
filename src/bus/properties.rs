//! The properties of a task as they come in: CreateTask, UpdateTask, and the launch defaults of a queue.
//!
//! Reads names, types and units; ranges and limits are held by `core/spec.rs`.

use std::collections::BTreeMap;

use crate::bus::options::{Dict, Given};
use crate::core::ids::TaskId;
use crate::core::refusal::Refusal;
use crate::core::signal;
use crate::core::spec::{Completion, Launch, Output, Patch, Resource, TaskSpec};

const LAUNCHES: [Launch; 3] = [Launch::Scope, Launch::Direct, Launch::Auto];
const COMPLETIONS: [Completion; 2] = [Completion::Exit, Completion::Explicit];
const OUTPUTS: [Output; 2] = [Output::Journal, Output::File];

/// CreateTask.
///
/// # Errors
/// [`Refusal::InvalidArgument`] with the property.
pub fn create(title: String, dict: Dict) -> Result<TaskSpec, Refusal> {
    let mut given = Given::new(dict);
    let parents = given.take::<Vec<u64>>("Parents", "an array of tasks")?.unwrap_or_default();
    let idempotency_key = given.text("IdempotencyKey")?;
    let mut patch = patch(&mut given)?;
    given.finish()?;
    // A lease of 0 says nothing; one that is too short is refused where every range is.
    patch.lease_ms = patch.lease_ms.filter(|lease_ms| *lease_ms != 0);
    patch.not_before_usec = patch.not_before_usec.filter(|usec| *usec != 0);
    let parents = parents.into_iter().map(TaskId::from_bus).collect();
    Ok(patch.apply(TaskSpec { title, parents, idempotency_key, ..TaskSpec::default() }))
}

/// UpdateTask.
///
/// # Errors
/// [`Refusal::InvalidArgument`] with the property.
pub fn update(dict: Dict) -> Result<Patch, Refusal> {
    let mut given = Given::new(dict);
    let title = given.text("Title")?;
    let patch = Patch { title, ..patch(&mut given)? };
    given.finish()?;
    Ok(patch)
}

/// SetQueue's LaunchDefaults: what a task may leave to its queue.
///
/// # Errors
/// [`Refusal::InvalidArgument`] with the property.
pub fn launch_defaults(mut given: Given) -> Result<Patch, Refusal> {
    let patch = running(&mut given, Patch::default())?;
    given.finish()?;
    Ok(patch)
}

fn patch(given: &mut Given) -> Result<Patch, Refusal> {
    let patch = Patch {
        body: given.text("Body")?,
        queue: given.text("Queue")?,
        priority: given.take("Priority", "a number; higher goes first")?,
        labels: given.texts("Labels")?,
        not_before_usec: not_before(given)?,
        command: given.texts("Command")?,
        ..Patch::default()
    };
    running(given, patch)
}

/// How a task runs, as opposed to what it is.
fn running(given: &mut Given, patch: Patch) -> Result<Patch, Refusal> {
    Ok(Patch {
        environment: given.texts("Environment")?,
        working_directory: given.text("WorkingDirectory")?,
        user: given.text("User")?,
        group: given.text("Group")?,
        launch: given.one_of("Launch", &LAUNCHES, Launch::word)?,
        stdin: given.text("Stdin")?,
        output: given.one_of("Output", &OUTPUTS, Output::word)?,
        stop_signal: given
            .word("StopSignal")?
            .map(|word| {
                signal::number(&word).ok_or_else(|| {
                    Refusal::argument(
                        "StopSignal",
                        format!("{word:?} is no signal; give a name such as SIGINT"),
                    )
                })
            })
            .transpose()?,
        resources: resources(given)?,
        nice: given.take("Nice", "a nice level, -20 to 19")?,
        max_runtime_ms: given.span_ms("MaxRuntimeUsec")?,
        stall_ms: given.span_ms("StallUsec")?,
        lease_ms: given.span_ms("LeaseUsec")?,
        stop_grace_ms: given.span_ms("StopGraceUsec")?,
        failure_limit: given.count("FailureLimit")?,
        backoff_ms: given.span_ms("BackoffUsec")?,
        backoff_max_ms: given.span_ms("BackoffMaxUsec")?,
        completion: given.one_of("Completion", &COMPLETIONS, Completion::word)?,
        slots: given.take("Slots", "units by slot")?,
        ..patch
    })
}

fn not_before(given: &mut Given) -> Result<Option<i64>, Refusal> {
    let Some(usec) = given.take::<u64>("NotBeforeUsec", "microseconds since 1970")? else { return Ok(None) };
    match i64::try_from(usec) {
        Ok(usec) => Ok(Some(usec)),
        Err(_) => Err(Refusal::argument("NotBeforeUsec", "lies after the end of time")),
    }
}

fn resources(given: &mut Given) -> Result<BTreeMap<Resource, u64>, Refusal> {
    let mut resources = BTreeMap::new();
    for resource in Resource::ALL {
        if let Some(value) = given.take::<u64>(resource.word(), "see systemd.resource-control(5)")? {
            resources.insert(resource, value);
        }
    }
    Ok(resources)
}
