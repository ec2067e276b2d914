//! Reads `a{sv}`: every key is known and has its type, or the call is refused by the key's name.
//!
//! Owns no rule of the product. A reader takes the keys of its method one by one and then calls
//! [`Given::finish`], which refuses what is left over.

use std::collections::BTreeMap;
use std::os::fd;

use zbus::{Fd, OwnedVariant, Type, Variant};

use crate::core::ids::{RunId, TaskId};
use crate::core::limits;
use crate::core::refusal::Refusal;
use crate::core::state::Status;
use crate::core::time::usec_to_ms;
use crate::core::verdict::{Pass, Passes, Urgency};
use crate::core::view::{EventFilter, Page, QueueChange, StopRequest, SweepRequest, TaskFilter, Word};
use crate::service::types::{ClaimRequest, WorkerGiven};

/// `a{sv}` as it arrives.
pub type Dict = BTreeMap<String, OwnedVariant>;

/// Options that are being read.
#[derive(Debug)]
pub struct Given {
    left: Dict,
    known: Vec<&'static str>,
}

impl Given {
    /// Begins to read.
    pub fn new(dict: Dict) -> Self {
        Self { left: dict, known: Vec::new() }
    }

    /// The value of a key, if it was given.
    ///
    /// # Errors
    /// [`Refusal::InvalidArgument`] where it has another type; `meaning` says what the type stands for.
    pub fn take<T>(&mut self, key: &'static str, meaning: &str) -> Result<Option<T>, Refusal>
    where
        T: TryFrom<Variant<'static>> + Type,
    {
        self.known.push(key);
        let Some(value) = self.left.remove(key) else { return Ok(None) };
        let value = Variant::from(value);
        let has = value.value_signature().to_string();
        let wants = T::SIGNATURE.to_string();
        if has == wants
            && let Ok(value) = T::try_from(value)
        {
            return Ok(Some(value));
        }
        Err(Refusal::argument(key, format!("has the type {has:?}; it is {wants:?} ({meaning})")))
    }

    /// A text.
    ///
    /// # Errors
    /// As [`Given::take`].
    pub fn text(&mut self, key: &'static str) -> Result<Option<String>, Refusal> {
        self.take(key, "a text")
    }

    /// A text in which nothing and empty are the same.
    ///
    /// # Errors
    /// As [`Given::take`].
    pub fn word(&mut self, key: &'static str) -> Result<Option<String>, Refusal> {
        Ok(self.text(key)?.filter(|word| !word.is_empty()))
    }

    /// Texts.
    ///
    /// # Errors
    /// As [`Given::take`].
    pub fn texts(&mut self, key: &'static str) -> Result<Option<Vec<String>>, Refusal> {
        self.take(key, "an array of texts")
    }

    /// A yes or no.
    ///
    /// # Errors
    /// As [`Given::take`].
    pub fn flag(&mut self, key: &'static str) -> Result<Option<bool>, Refusal> {
        self.take(key, "a boolean")
    }

    /// A span of microseconds, in milliseconds.
    ///
    /// # Errors
    /// As [`Given::take`].
    pub fn span_ms(&mut self, key: &'static str) -> Result<Option<i64>, Refusal> {
        Ok(self.take::<u64>(key, "microseconds")?.map(usec_to_ms))
    }

    /// A small count.
    ///
    /// # Errors
    /// As [`Given::take`].
    pub fn count(&mut self, key: &'static str) -> Result<Option<u32>, Refusal> {
        self.take(key, "a number")
    }

    /// The number of something on the board.
    ///
    /// # Errors
    /// As [`Given::take`].
    pub fn number(&mut self, key: &'static str) -> Result<Option<u64>, Refusal> {
        self.take(key, "a number")
    }

    /// A word of a closed list.
    ///
    /// # Errors
    /// As [`Given::take`], and for a word that is not on the list.
    pub fn one_of<T: Copy>(
        &mut self,
        key: &'static str,
        all: &[T],
        word_of: fn(T) -> &'static str,
    ) -> Result<Option<T>, Refusal> {
        let Some(word) = self.text(key)? else { return Ok(None) };
        find(key, &word, all, word_of).map(Some)
    }

    /// A descriptor.
    ///
    /// # Errors
    /// As [`Given::take`], and where no descriptor is left to hold it.
    pub fn descriptor(&mut self, key: &'static str) -> Result<Option<fd::OwnedFd>, Refusal> {
        let owned = match self.take::<Fd<'static>>(key, "a file descriptor")? {
            None => return Ok(None),
            Some(Fd::Owned(owned)) => owned,
            Some(Fd::Borrowed(borrowed)) => borrowed.try_clone_to_owned().map_err(|error| {
                Refusal::argument(key, format!("the descriptor could not be kept: {error}"))
            })?,
        };
        Ok(Some(owned))
    }

    /// Options within an option.
    ///
    /// # Errors
    /// As [`Given::take`].
    pub fn nested(&mut self, key: &'static str) -> Result<Option<Self>, Refusal> {
        self.known.push(key);
        let Some(value) = self.left.remove(key) else { return Ok(None) };
        let has =
            Variant::from(value.try_clone().map_err(|_| unreadable(key))?).value_signature().to_string();
        if has != "a{sv}" {
            return Err(Refusal::argument(key, format!("has the type {has:?}; it is \"a{{sv}}\" (options)")));
        }
        let dict = BTreeMap::<String, Variant<'static>>::try_from(value).map_err(|_| unreadable(key))?;
        let dict = dict.into_iter().map(|(name, value)| Ok((name, value.try_into_owned()?)));
        let dict = dict.collect::<zbus::Result<Dict>>().map_err(|_| unreadable(key))?;
        Ok(Some(Self::new(dict)))
    }

    /// Ends the reading.
    ///
    /// # Errors
    /// [`Refusal::InvalidArgument`] for a key that nobody asked for.
    pub fn finish(self) -> Result<(), Refusal> {
        let Some(key) = self.left.into_keys().next() else { return Ok(()) };
        if self.known.is_empty() {
            return Err(Refusal::argument(key, "is not known here; this method has no options yet"));
        }
        let mut known = self.known;
        known.sort_unstable();
        let alike = known.iter().find(|name| name.eq_ignore_ascii_case(&key));
        let hint =
            alike.map_or_else(|| format!("known are {}", known.join(", ")), |name| format!("{name} is"));
        Err(Refusal::argument(key, format!("is not known here; {hint}")))
    }
}

fn unreadable(key: &str) -> Refusal {
    Refusal::argument(key, "cannot be read")
}

/// The member of a closed list that a word names.
///
/// # Errors
/// [`Refusal::InvalidArgument`] with the list.
pub fn find<T: Copy>(key: &str, word: &str, all: &[T], word_of: fn(T) -> &'static str) -> Result<T, Refusal> {
    all.iter().copied().find(|one| word_of(*one) == word).ok_or_else(|| {
        let words: Vec<&str> = all.iter().map(|one| word_of(*one)).collect();
        Refusal::argument(key, format!("{word:?} is none of {}", words.join(", ")))
    })
}

/// Options of a method that has none yet.
///
/// # Errors
/// [`Refusal::InvalidArgument`] for any key.
pub fn none(dict: Dict) -> Result<(), Refusal> {
    Given::new(dict).finish()
}

/// ClaimTask.
///
/// # Errors
/// [`Refusal::InvalidArgument`] with the key.
pub fn claim(queue: String, dict: Dict) -> Result<ClaimRequest, Refusal> {
    let mut given = Given::new(dict);
    let request = ClaimRequest {
        queue: Some(queue).filter(|queue| !queue.is_empty()),
        task: given.number("Task")?.filter(|task| *task != 0).map(TaskId::from_bus),
        worker: worker(&mut given)?,
        lease_ms: given.span_ms("LeaseUsec")?.filter(|lease_ms| *lease_ms != 0),
        claimant: given.word("Claimant")?,
        claim_key: given.word("ClaimKey")?,
        wait_ms: given.span_ms("WaitUsec")?.filter(|wait_ms| *wait_ms != 0),
    };
    given.finish()?;
    if request.wait_ms.is_some_and(|wait_ms| wait_ms > limits::CLAIM_WAIT_MS) {
        let longest = limits::CLAIM_WAIT_MS / 60_000;
        return Err(Refusal::argument(
            "WaitUsec",
            format!("is longer than {longest} minutes; ask again then"),
        ));
    }
    Ok(request)
}

/// SetWorker: a process has to be named.
///
/// # Errors
/// [`Refusal::InvalidArgument`] with the key.
pub fn set_worker(dict: Dict) -> Result<WorkerGiven, Refusal> {
    let mut given = Given::new(dict);
    let worker = worker(&mut given)?;
    given.finish()?;
    match worker {
        WorkerGiven::None => Err(Refusal::argument("Pid", "is missing; give Pid with StartTicks, or PidFD")),
        WorkerGiven::Pid { .. } | WorkerGiven::PidFd(_) => Ok(worker),
    }
}

fn worker(given: &mut Given) -> Result<WorkerGiven, Refusal> {
    let pid = given.take::<u32>("Pid", "a process number")?;
    let start_ticks = given.take::<u64>("StartTicks", "field 22 of its stat, clock ticks")?;
    let pidfd = given.descriptor("PidFD")?;
    match (pid, start_ticks, pidfd) {
        (None, None, None) => Ok(WorkerGiven::None),
        (Some(pid), start_ticks, None) => Ok(WorkerGiven::Pid { pid, start_ticks }),
        (None, None, Some(pidfd)) => Ok(WorkerGiven::PidFd(pidfd)),
        (None, Some(_), None) => Err(Refusal::argument("StartTicks", "means nothing without Pid")),
        (_, _, Some(_)) => {
            Err(Refusal::argument("PidFD", "names the process alone; leave out Pid and StartTicks"))
        }
    }
}

/// ReclaimTask and CancelTask.
///
/// # Errors
/// [`Refusal::InvalidArgument`] with the key.
pub fn stop(dict: Dict) -> Result<StopRequest, Refusal> {
    let mut given = Given::new(dict);
    let reason = given.word("Reason")?;
    let kill = given.flag("Kill")?.unwrap_or(false);
    let force = given.flag("Force")?.unwrap_or(false);
    let run = run(&mut given)?;
    given.finish()?;
    let urgency = match (force, kill) {
        (true, _) => Urgency::Force,
        (false, true) => Urgency::Kill,
        (false, false) => Urgency::Normal,
    };
    Ok(StopRequest { reason, urgency, run })
}

/// SignalTask.
///
/// # Errors
/// [`Refusal::InvalidArgument`] with the key.
pub fn only_run(dict: Dict) -> Result<Option<RunId>, Refusal> {
    let mut given = Given::new(dict);
    let run = run(&mut given)?;
    given.finish()?;
    Ok(run)
}

fn run(given: &mut Given) -> Result<Option<RunId>, Refusal> {
    Ok(given.number("Run")?.filter(|run| *run != 0).map(RunId::from_bus))
}

/// ListTasks.
///
/// # Errors
/// [`Refusal::InvalidArgument`] with the key.
pub fn task_filter(dict: Dict) -> Result<TaskFilter, Refusal> {
    let mut given = Given::new(dict);
    let words = given.texts("Status")?.unwrap_or_default();
    let statuses = words.iter().map(|word| find("Status", word, &Status::ALL, Status::word));
    let filter = TaskFilter {
        statuses: statuses.collect::<Result<_, _>>()?,
        queue: given.word("Queue")?,
        label: given.word("Label")?,
        owner: given.take("Owner", "a uid")?,
        text: given.word("Text")?,
        after: given.number("AfterTask")?.map(TaskId::from_bus),
        limit: limit(&mut given)?,
    };
    given.finish()?;
    Ok(filter)
}

/// ListEvents.
///
/// # Errors
/// [`Refusal::InvalidArgument`] with the key.
pub fn event_filter(dict: Dict) -> Result<EventFilter, Refusal> {
    let mut given = Given::new(dict);
    let filter = EventFilter {
        task: given.number("Task")?.filter(|task| *task != 0).map(TaskId::from_bus),
        after: given.number("AfterEvent")?.map(crate::core::ids::EventId::from_bus),
        limit: limit(&mut given)?,
    };
    given.finish()?;
    Ok(filter)
}

/// ListRuns and ListComments.
///
/// # Errors
/// [`Refusal::InvalidArgument`] with the key.
pub fn page(dict: Dict) -> Result<Page, Refusal> {
    let mut given = Given::new(dict);
    let after = given.number("After")?.map(|after| i64::try_from(after).unwrap_or(i64::MAX));
    let page = Page { after, limit: limit(&mut given)? };
    given.finish()?;
    Ok(page)
}

fn limit(given: &mut Given) -> Result<Option<u32>, Refusal> {
    let limit = given.count("Limit")?.filter(|limit| *limit != 0);
    match limit {
        Some(limit) if limit > limits::PAGE_ROWS_MAX => Err(Refusal::argument(
            "Limit",
            format!("is {limit}; a page has at most {} rows", limits::PAGE_ROWS_MAX),
        )),
        _ => Ok(limit),
    }
}

/// SetQueue.
///
/// # Errors
/// [`Refusal::InvalidArgument`] with the key.
pub fn queue(dict: Dict) -> Result<QueueChange, Refusal> {
    let mut given = Given::new(dict);
    let change = QueueChange {
        max_running: given.count("MaxRunning")?,
        paused: given.flag("Paused")?,
        launch_defaults: given
            .nested("LaunchDefaults")?
            .map(crate::bus::properties::launch_defaults)
            .transpose()?,
    };
    given.finish()?;
    Ok(change)
}

/// Sweep.
///
/// # Errors
/// [`Refusal::InvalidArgument`] with the key.
pub fn sweep(dict: Dict) -> Result<SweepRequest, Refusal> {
    let mut given = Given::new(dict);
    let passes = given.texts("Passes")?.map(|words| {
        words.iter().map(|word| find("Passes", word, &Pass::ALL, Pass::word)).collect::<Result<Passes, _>>()
    });
    let request = SweepRequest {
        passes: passes.transpose()?,
        dispatch: given.flag("Dispatch")?.unwrap_or(true),
        preview: given.flag("Preview")?.unwrap_or(false),
    };
    given.finish()?;
    Ok(request)
}

/// Heartbeat.
///
/// # Errors
/// [`Refusal::InvalidArgument`] with the key.
pub fn note(dict: Dict) -> Result<Option<String>, Refusal> {
    let mut given = Given::new(dict);
    let note = given.word("Note")?;
    given.finish()?;
    Ok(note)
}

/// CompleteRun.
///
/// # Errors
/// [`Refusal::InvalidArgument`] with the key.
pub fn complete(dict: Dict) -> Result<Word, Refusal> {
    let mut given = Given::new(dict);
    let word = Word::Complete { summary: given.word("Summary")?, result: given.word("Result")? };
    given.finish()?;
    Ok(word)
}

/// FailRun: whether to try again.
///
/// # Errors
/// [`Refusal::InvalidArgument`] with the key.
pub fn retry(dict: Dict) -> Result<bool, Refusal> {
    let mut given = Given::new(dict);
    let retry = given.flag("Retry")?.unwrap_or(true);
    given.finish()?;
    Ok(retry)
}

/// OpenOutput: whether the part that was put aside is meant.
///
/// # Errors
/// [`Refusal::InvalidArgument`] with the key.
pub fn older(dict: Dict) -> Result<bool, Refusal> {
    let mut given = Given::new(dict);
    let older = given.flag("Older")?.unwrap_or(false);
    given.finish()?;
    Ok(older)
}

/// Drain: whether it is to outlast this life of the daemon.
///
/// # Errors
/// [`Refusal::InvalidArgument`] with the key.
pub fn durable(dict: Dict) -> Result<bool, Refusal> {
    let mut given = Given::new(dict);
    let durable = given.flag("Durable")?.unwrap_or(true);
    given.finish()?;
    Ok(durable)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dict(entries: &[(&str, Variant<'static>)]) -> Dict {
        entries.iter().map(|(key, value)| ((*key).to_owned(), value.try_to_owned().unwrap())).collect()
    }

    fn text<T: std::fmt::Debug>(answer: Result<T, Refusal>) -> String {
        answer.unwrap_err().to_string()
    }

    #[test]
    fn an_unknown_key_is_refused_with_what_is_known() {
        let answer = stop(dict(&[("Forse", true.into())]));
        assert_eq!(text(answer), "Forse: is not known here; known are Force, Kill, Reason, Run");
        let answer = stop(dict(&[("force", true.into())]));
        assert_eq!(text(answer), "force: is not known here; Force is");
        let answer = none(dict(&[("Force", true.into())]));
        assert_eq!(text(answer), "Force: is not known here; this method has no options yet");
    }

    #[test]
    fn a_wrong_type_is_refused_with_the_right_one() {
        for (key, value, expected) in [
            ("LeaseUsec", Variant::from(5_i64), "has the type \"x\"; it is \"t\" (microseconds)"),
            ("LeaseUsec", Variant::from("5s"), "has the type \"s\"; it is \"t\" (microseconds)"),
            ("Task", Variant::from(5_u32), "has the type \"u\"; it is \"t\" (a number)"),
            ("Claimant", Variant::from(vec!["me"]), "has the type \"as\"; it is \"s\" (a text)"),
            ("PidFD", Variant::from(5_u32), "has the type \"u\"; it is \"h\" (a file descriptor)"),
            ("Pid", Variant::new(Variant::from(5_u32)), "has the type \"v\"; it is \"u\" (a process number)"),
        ] {
            assert_eq!(text(claim(String::new(), dict(&[(key, value)]))), format!("{key}: {expected}"));
        }
        // An empty array has a type, too.
        let answer = task_filter(dict(&[("Status", Variant::from(Vec::<u32>::new()))]));
        assert_eq!(text(answer), "Status: has the type \"au\"; it is \"as\" (an array of texts)");
    }

    #[test]
    fn a_claim_is_read() {
        let request = claim("q".into(), Dict::new()).unwrap();
        assert_eq!((request.queue.as_deref(), request.task), (Some("q"), None));
        assert!(matches!(request.worker, WorkerGiven::None));
        let given = dict(&[
            ("Task", 7_u64.into()),
            ("Pid", 42_u32.into()),
            ("StartTicks", 9_u64.into()),
            ("LeaseUsec", 1_500_u64.into()),
            ("Claimant", "me".into()),
            ("ClaimKey", "k".into()),
            ("WaitUsec", 2_000_000_u64.into()),
        ]);
        let request = claim(String::new(), given).unwrap();
        assert_eq!((request.queue, request.task), (None, Some(TaskId::new(7))));
        assert!(matches!(request.worker, WorkerGiven::Pid { pid: 42, start_ticks: Some(9) }));
        assert_eq!((request.lease_ms, request.wait_ms), (Some(2), Some(2_000)), "rounded up");
        assert_eq!((request.claimant.as_deref(), request.claim_key.as_deref()), (Some("me"), Some("k")));
        let answer = claim(String::new(), dict(&[("WaitUsec", u64::MAX.into())]));
        assert_eq!(text(answer), "WaitUsec: is longer than 10 minutes; ask again then");
    }

    #[test]
    fn a_worker_is_named_in_one_way() {
        let null =
            rustix::fs::open("/dev/null", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty()).unwrap();
        let fd = || Variant::from(Fd::from(null.try_clone().unwrap()));
        assert!(matches!(set_worker(dict(&[("PidFD", fd())])), Ok(WorkerGiven::PidFd(_))));
        assert_eq!(text(set_worker(Dict::new())), "Pid: is missing; give Pid with StartTicks, or PidFD");
        assert_eq!(
            text(set_worker(dict(&[("StartTicks", 4_u64.into())]))),
            "StartTicks: means nothing without Pid"
        );
        assert_eq!(
            text(set_worker(dict(&[("Pid", 4_u32.into()), ("PidFD", fd())]))),
            "PidFD: names the process alone; leave out Pid and StartTicks"
        );
    }

    #[test]
    fn a_stop_is_as_hard_as_was_asked() {
        let urgency = |entries: &[(&str, Variant<'static>)]| stop(dict(entries)).unwrap().urgency;
        assert_eq!(urgency(&[]), Urgency::Normal);
        assert_eq!(urgency(&[("Kill", true.into())]), Urgency::Kill);
        assert_eq!(urgency(&[("Kill", true.into()), ("Force", true.into())]), Urgency::Force);
        assert_eq!(urgency(&[("Kill", false.into()), ("Force", false.into())]), Urgency::Normal);
    }

    #[test]
    fn filters_hold_to_their_lists_and_limits() {
        let filter = task_filter(dict(&[("Status", vec!["ready", "done"].into()), ("Limit", 0_u32.into())]));
        let filter = filter.unwrap();
        assert_eq!((filter.statuses, filter.limit), (vec![Status::Ready, Status::Done], None));
        let answer = task_filter(dict(&[("Status", vec!["Ready"].into())]));
        assert_eq!(
            text(answer),
            "Status: \"Ready\" is none of todo, ready, running, blocked, done, cancelled, archived"
        );
        let answer = page(dict(&[("Limit", 1_001_u32.into())]));
        assert_eq!(text(answer), "Limit: is 1001; a page has at most 1000 rows");
        assert_eq!(page(dict(&[("After", u64::MAX.into())])).unwrap().after, Some(i64::MAX));
    }

    #[test]
    fn a_sweep_has_the_passes_that_are_named() {
        let request = sweep(dict(&[("Passes", vec!["reap_ended_runs"].into()), ("Preview", true.into())]));
        let request = request.unwrap();
        assert_eq!(request.passes, Some(Passes::NONE.with(Pass::ReapEndedRuns)));
        assert!(request.preview && request.dispatch);
        assert_eq!(sweep(dict(&[("Passes", Vec::<&str>::new().into())])).unwrap().passes, Some(Passes::NONE));
        assert_eq!(sweep(Dict::new()).unwrap().passes, None);
    }

    #[test]
    fn options_within_an_option_are_held_to_the_same() {
        let defaults = |entries: &[(&str, Variant<'static>)]| {
            let inner: BTreeMap<String, Variant<'static>> =
                entries.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
            queue(dict(&[("LaunchDefaults", inner.into())]))
        };
        let change = defaults(&[("Nice", 5_i32.into())]).unwrap();
        assert_eq!(change.launch_defaults.unwrap().nice, Some(5));
        assert!(text(defaults(&[("Title", "t".into())])).starts_with("Title: is not known here; known are "));
        assert_eq!(
            text(defaults(&[("Nice", "5".into())])),
            "Nice: has the type \"s\"; it is \"i\" (a nice level, -20 to 19)"
        );
        let answer = queue(dict(&[("LaunchDefaults", 4_u32.into())]));
        assert_eq!(text(answer), "LaunchDefaults: has the type \"u\"; it is \"a{sv}\" (options)");
        let unpaused = queue(dict(&[("Paused", false.into())])).unwrap();
        assert_eq!((unpaused.paused, unpaused.max_running), (Some(false), None));
    }
}
