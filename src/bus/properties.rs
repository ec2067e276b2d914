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

#[cfg(test)]
mod tests {
    use zbus::Variant;

    use super::*;
    use crate::bus::convert;
    use crate::core::state::Status;
    use crate::core::view::TaskView;

    fn dict(entries: &[(&str, Variant<'static>)]) -> Dict {
        entries.iter().map(|(key, value)| ((*key).to_owned(), value.try_to_owned().unwrap())).collect()
    }

    /// Every property of a task, but the title.
    fn every() -> Vec<(&'static str, Variant<'static>)> {
        vec![
            ("Body", "b".into()),
            ("Queue", "q".into()),
            ("Priority", (-3_i32).into()),
            ("Labels", vec!["x", "y"].into()),
            ("Parents", vec![1_u64, 2].into()),
            ("NotBeforeUsec", 5_u64.into()),
            ("IdempotencyKey", "k".into()),
            ("Command", vec!["/bin/true"].into()),
            ("Environment", vec!["A=1"].into()),
            ("WorkingDirectory", "/tmp".into()),
            ("User", "u".into()),
            ("Group", "g".into()),
            ("Launch", "direct".into()),
            ("MaxRuntimeUsec", 1_000_000_u64.into()),
            ("StallUsec", 2_000_000_u64.into()),
            ("LeaseUsec", 3_000_000_u64.into()),
            ("StopSignal", "SIGINT".into()),
            ("StopGraceUsec", 4_000_000_u64.into()),
            ("FailureLimit", 6_u32.into()),
            ("BackoffUsec", 7_000_u64.into()),
            ("BackoffMaxUsec", 8_000_u64.into()),
            ("Completion", "explicit".into()),
            ("MemoryMax", u64::MAX.into()),
            ("MemoryHigh", 9_u64.into()),
            ("CPUQuotaPerSecUSec", 10_u64.into()),
            ("TasksMax", 11_u64.into()),
            ("IOWeight", 12_u64.into()),
            ("CPUWeight", 13_u64.into()),
            ("Nice", (-1_i32).into()),
            ("Slots", BTreeMap::from([("gpu".to_owned(), 2_u32)]).into()),
            ("Stdin", "/dev/zero".into()),
            ("Output", "file".into()),
        ]
    }

    fn view(spec: TaskSpec) -> TaskView {
        TaskView {
            task: TaskId::new(9),
            status: Status::Ready,
            spec,
            block_code: None,
            block_reason: None,
            owner_uid: 0,
            created_usec: 0,
            attempts: 0,
            failures: 0,
            retry_in_ms: None,
            last_error: None,
            result: None,
            survivors: 0,
            current: None,
        }
    }

    #[test]
    fn every_property_comes_back_under_its_name_with_its_type_and_unit() {
        let spec = create("t".into(), dict(&every())).unwrap();
        let row = convert::task(view(spec));
        assert_eq!(row["Title"], Variant::from("t"));
        for (key, value) in every() {
            assert_eq!(row.get(key), Some(&value), "{key}");
        }
    }

    #[test]
    fn what_was_not_given_is_left_out() {
        let row = convert::task(view(create("t".into(), Dict::new()).unwrap()));
        let keys: Vec<&str> = row.keys().copied().collect();
        assert_eq!(
            keys,
            [
                "Attempts",
                "BlockCode",
                "BlockReason",
                "Body",
                "Command",
                "CreatedUsec",
                "Environment",
                "Failures",
                "Labels",
                "LastError",
                "OwnerUid",
                "Parents",
                "Priority",
                "Queue",
                "Result",
                "RetryInUsec",
                "Run",
                "Status",
                "Survivors",
                "Task",
                "Title"
            ]
        );
        assert_eq!(row["Queue"], Variant::from("default"));
    }

    #[test]
    fn every_property_but_those_of_creation_may_be_changed() {
        let only_at_creation = ["Parents", "IdempotencyKey"];
        for (key, value) in every() {
            let changed = update(dict(&[(key, value)]));
            assert_eq!(changed.is_err(), only_at_creation.contains(&key), "{key}: {changed:?}");
        }
        assert_eq!(update(dict(&[("Title", "n".into())])).unwrap().title.as_deref(), Some("n"));
        assert_eq!(update(Dict::new()).unwrap(), Patch::default());
    }

    #[test]
    fn a_queue_says_how_tasks_run_but_not_what_they_are() {
        let what_they_are =
            ["Body", "Queue", "Priority", "Labels", "Parents", "NotBeforeUsec", "IdempotencyKey", "Command"];
        for (key, value) in every() {
            let said = launch_defaults(Given::new(dict(&[(key, value)])));
            assert_eq!(said.is_err(), what_they_are.contains(&key), "{key}: {said:?}");
        }
    }

    #[test]
    fn words_that_are_on_no_list_are_refused_with_the_list() {
        let refused = |key, word: &'static str| {
            create("t".into(), dict(&[(key, word.into())])).unwrap_err().to_string()
        };
        assert_eq!(refused("Launch", "vm"), "Launch: \"vm\" is none of scope, direct, auto");
        assert_eq!(refused("Output", "tty"), "Output: \"tty\" is none of journal, file");
        assert_eq!(refused("Completion", "never"), "Completion: \"never\" is none of exit, explicit");
        assert_eq!(
            refused("StopSignal", "SIGFOO"),
            "StopSignal: \"SIGFOO\" is no signal; give a name such as SIGINT"
        );
    }

    #[test]
    fn nothing_and_zero_are_the_same_where_zero_means_none() {
        let spec = create("t".into(), dict(&[("LeaseUsec", 0_u64.into()), ("NotBeforeUsec", 0_u64.into())]))
            .unwrap();
        assert_eq!(spec, create("t".into(), Dict::new()).unwrap());
        let late = create("t".into(), dict(&[("NotBeforeUsec", u64::MAX.into())])).unwrap_err();
        assert_eq!(late.to_string(), "NotBeforeUsec: lies after the end of time");
    }
}
