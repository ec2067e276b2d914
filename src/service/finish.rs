//! CompleteRun, FailRun, BlockRun, ReleaseRun: a worker says how its run ends.
//!
//! A launched worker's word fixes the outcome and closes the fence; the run ends when its tree is empty. Any
//! other worker's word ends the run at once: it says it is done, and may go on to its next task.

use crate::core::fault::Error;
use crate::core::ids::RunId;
use crate::core::limits::Limits;
use crate::core::plan::Basis;
use crate::core::refusal::Refusal;
use crate::core::retry;
use crate::core::row::RunStage;
use crate::core::spec;
use crate::core::state::Status;
use crate::core::view::{Outcome, Word};
use crate::service::access;
use crate::service::types::Caller;
use crate::store::sweep::{self, Ending, Selection};
use crate::store::{Tx, When, runs};

/// What can be said without the board.
///
/// # Errors
/// [`Refusal::InvalidArgument`], [`Refusal::LimitExceeded`].
pub fn check(word: &Word, limits: &Limits) -> Result<(), Error> {
    let limit = limits.text_bytes;
    match word {
        Word::Complete { summary, result } => {
            spec::text("Summary", summary.as_deref().unwrap_or_default(), limit)?;
            let Some(result) = result else { return Ok(()) };
            spec::text("Result", result, limit)?;
            serde_json::from_str::<serde::de::IgnoredAny>(result)
                .map(|_| ())
                .map_err(|error| Refusal::argument("Result", format!("is not JSON: {error}")).into())
        }
        Word::Fail { error, .. } => Ok(spec::text("error", error, limit)?),
        Word::Block { reason } | Word::Release { reason } => Ok(spec::text("reason", reason, limit)?),
    }
}

/// Takes the word.
///
/// # Errors
/// [`Refusal::NoSuchRun`], [`Refusal::StaleRun`], or a fault of the board.
pub fn speak(
    tx: &mut Tx<'_>,
    caller: &Caller,
    run: RunId,
    word: &Word,
    when: &When,
) -> Result<Outcome, Error> {
    let (state, task) = access::run(tx, caller, run)?;
    let holder = task.and_then(|task| task.run.filter(|_| task.status == Status::Running));
    let outcome = outcome_of(word);
    if state.ended || state.stage == RunStage::Ending {
        // The answer may have been lost: the same word of the same run is no contradiction.
        let repeats = state.word == Some(outcome) && !runs::has_successor(tx, state.task, run)?;
        if repeats {
            return Ok(if state.ended { Outcome::Unchanged } else { Outcome::Ending });
        }
        return Err(Refusal::StaleRun { run, task: state.task, now: holder }.into());
    }
    if holder != Some(run) {
        return Err(Refusal::StaleRun { run, task: state.task, now: holder }.into());
    }
    runs::speak(tx, &state, outcome, &said(word), state.launched, when)?;
    if state.launched {
        return Ok(Outcome::Ending);
    }
    end_now(tx, run, outcome, when)?;
    Ok(if outcome == retry::Outcome::Released { Outcome::Released } else { Outcome::Done })
}

fn end_now(tx: &mut Tx<'_>, run: RunId, outcome: retry::Outcome, when: &When) -> Result<(), Error> {
    for row in sweep::rows(tx, &Selection::Run(run))? {
        sweep::release(tx, &Basis::of(&row), &Ending::of(outcome), when)?;
    }
    Ok(())
}

const fn outcome_of(word: &Word) -> retry::Outcome {
    match word {
        Word::Complete { .. } => retry::Outcome::Completed,
        Word::Fail { .. } => retry::Outcome::Failed,
        Word::Block { .. } => retry::Outcome::Blocked,
        Word::Release { .. } => retry::Outcome::Released,
    }
}

fn said(word: &Word) -> runs::Said {
    match word.clone() {
        Word::Complete { summary, result } => runs::Said { summary, result, ..runs::Said::default() },
        Word::Fail { error, retry } => {
            runs::Said { error: Some(error), final_failure: !retry, ..runs::Said::default() }
        }
        Word::Block { reason } | Word::Release { reason } => {
            runs::Said { error: Some(reason), ..runs::Said::default() }
        }
    }
}
