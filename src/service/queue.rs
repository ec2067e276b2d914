//! SetQueue, RemoveQueue.

use crate::core::fault::Error;
use crate::core::limits::Limits;
use crate::core::refusal::Refusal;
use crate::core::spec::{self, TaskSpec};
use crate::core::view::{Outcome, QueueChange};
use crate::store::{Tx, When, queues};

/// What can be said without the board.
///
/// # Errors
/// [`Refusal::InvalidArgument`], [`Refusal::LimitExceeded`].
pub fn check(queue: &str, change: &QueueChange, limits: &Limits) -> Result<(), Error> {
    spec::name("name", queue)?;
    let Some(defaults) = &change.launch_defaults else { return Ok(()) };
    if let Some(property) = defaults.never_defaults().first() {
        let problem = format!("{property} belongs to each task itself and cannot be a queue's default");
        return Err(Refusal::argument("LaunchDefaults", problem).into());
    }
    let example = TaskSpec { title: "a task".to_owned(), ..TaskSpec::default() };
    defaults.fill(example, true).check(limits)?;
    Ok(())
}

/// Makes or changes a queue.
///
/// # Errors
/// [`Refusal::ReadOnly`], or a fault of the board.
pub fn set(tx: &mut Tx<'_>, queue: &str, change: &QueueChange, when: &When) -> Result<Outcome, Error> {
    tx.needs_room()?;
    let changed = queues::set(tx, queue, change)?;
    if changed && change.launch_defaults.is_some() {
        queues::respan(tx, queue, when)?;
    }
    Ok(if changed { Outcome::Done } else { Outcome::Unchanged })
}

/// Removes a queue that holds nothing any more.
///
/// # Errors
/// [`Refusal::NoSuchQueue`], [`Refusal::Busy`], or a fault of the board.
pub fn remove(tx: &mut Tx<'_>, queue: &str) -> Result<Outcome, Error> {
    if !queues::exists(tx, queue)? {
        return Err(Refusal::NoSuchQueue(queue.to_owned()).into());
    }
    if queue == queues::DEFAULT {
        let text = "tasks that name no queue go to it; it stays";
        return Err(Refusal::Busy(format!("queue {queue}: {text}")).into());
    }
    let open = queues::open_tasks(tx, queue)?;
    if open > 0 {
        return Err(Refusal::Busy(format!("queue {queue} has {open} open tasks")).into());
    }
    queues::remove(tx, queue)?;
    Ok(Outcome::Done)
}
