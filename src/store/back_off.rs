//! Back-offs: of tasks that failed, and of a host that could not start the last one.

use rusqlite::params;
use serde_json::{Value, json};

use crate::core::fault::Error;
use crate::core::limits;
use crate::core::time::MonoMs;
use crate::core::view::Change;
use crate::store::{Snapshot, Tx, When, settings};

/// Back-offs that are over, or were counted in another epoch, keep nobody back any more.
pub(super) fn end_back_offs(tx: &mut Tx<'_>, when: &When) -> Result<(), Error> {
    const DOING: &str = "ending back-offs";
    let epoch = when.epoch.to_string();
    // Ranges of one index each; a single condition with OR would read every back-off there is.
    let over = tx.execute(
        DOING,
        "UPDATE tasks INDEXED BY tasks_backoff SET retry_at_ms = NULL, retry_epoch = NULL, version = version + 1
         WHERE status = 'ready' AND retry_at_ms IS NOT NULL AND retry_epoch = ?1 AND retry_at_ms <= ?2",
        params![epoch, when.now.mono.0],
    )?;
    let mut foreign = 0;
    for range in [
        "UPDATE tasks INDEXED BY tasks_backoff SET retry_at_ms = NULL, retry_epoch = NULL, version = version + 1
         WHERE status = 'ready' AND retry_at_ms IS NOT NULL AND retry_epoch < ?1",
        "UPDATE tasks INDEXED BY tasks_backoff SET retry_at_ms = NULL, retry_epoch = NULL, version = version + 1
         WHERE status = 'ready' AND retry_at_ms IS NOT NULL AND retry_epoch > ?1",
    ] {
        foreign += tx.execute(DOING, range, [&epoch])?;
    }
    let unnamed = tx.execute(
        DOING,
        "UPDATE tasks INDEXED BY tasks_backoff SET retry_at_ms = NULL, version = version + 1
         WHERE status = 'ready' AND retry_at_ms IS NOT NULL AND retry_epoch IS NULL",
        [],
    )?;
    if over + foreign + unnamed > 0 {
        tx.change(Change::Ready);
    }
    Ok(())
}

/// Whether [`end_back_offs`] would end one of this epoch.
pub(super) fn is_back_off_over(snapshot: &Snapshot<'_>, when: &When) -> Result<bool, Error> {
    snapshot.is_any(
        "looking for a back-off that is over",
        "SELECT 1 FROM tasks INDEXED BY tasks_backoff
         WHERE status = 'ready' AND retry_at_ms IS NOT NULL AND retry_epoch = ?1 AND retry_at_ms <= ?2",
        params![when.epoch.to_string(), when.now.mono.0],
    )
}

/// The earliest end of a back-off after `after`: of a task, or of the host.
pub(super) fn next_back_off(
    snapshot: &Snapshot<'_>,
    after: MonoMs,
    when: &When,
) -> Result<Option<MonoMs>, Error> {
    let task = snapshot.one(
        "looking for the next end of a back-off",
        "SELECT retry_at_ms FROM tasks INDEXED BY tasks_backoff
         WHERE status = 'ready' AND retry_at_ms IS NOT NULL AND retry_epoch = ?1 AND retry_at_ms > ?2
         ORDER BY retry_at_ms LIMIT 1",
        params![when.epoch.to_string(), after.0],
        |row| row.get::<_, i64>(0),
    )?;
    let host = HostBackOff::read(snapshot, when)?.map(|host| host.until).filter(|until| *until > after);
    Ok(task.map(MonoMs).into_iter().chain(host).min())
}

/// Nothing is started until a moment, because the host could not start the last one.
pub(super) struct HostBackOff {
    pub(super) until: MonoMs,
    times: i64,
}

impl HostBackOff {
    /// Of this epoch; one of another is over.
    pub(super) fn read(snapshot: &Snapshot<'_>, when: &When) -> Result<Option<Self>, Error> {
        let Some(text) = settings::get(snapshot, settings::HOST_BACKOFF)? else { return Ok(None) };
        let value: Value = serde_json::from_str(&text).unwrap_or_default();
        let is_ours = value["epoch"].as_str() == Some(when.epoch.to_string().as_str());
        let until = value["until_ms"].as_i64().filter(|_| is_ours);
        Ok(until.map(|until| Self { until: MonoMs(until), times: value["times"].as_i64().unwrap_or(1) }))
    }

    fn write(self, tx: &mut Tx<'_>, when: &When) -> Result<(), Error> {
        let value = json!({ "epoch": when.epoch.to_string(), "until_ms": self.until.0, "times": self.times });
        settings::set(tx, settings::HOST_BACKOFF, &value.to_string())?;
        tx.change(Change::Due);
        Ok(())
    }
}

/// The host could not start a command: the next start waits, longer each time, until one succeeds.
pub(super) fn back_off_host(tx: &mut Tx<'_>, when: &When) -> Result<(), Error> {
    let times = HostBackOff::read(tx, when)?.map_or(0, |host| host.times).saturating_add(1);
    let doublings = u32::try_from(times - 1).unwrap_or(0).min(30);
    let span_ms = (limits::HOST_BACKOFF_MS << doublings).min(limits::HOST_BACKOFF_MAX_MS);
    HostBackOff { until: when.now.mono.plus(span_ms), times }.write(tx, when)
}

/// The pause after a start that came to nothing, milliseconds.
pub(super) const PAUSE_MS: i64 = 250;

/// A sweep found a start that came to nothing. It may be one that an earlier life left behind, which says
/// nothing of the host; a short pause is enough to keep a repetition from becoming a storm.
pub(super) fn pause_host(tx: &mut Tx<'_>, pause_ms: i64, when: &When) -> Result<(), Error> {
    let pause = HostBackOff { until: when.now.mono.plus(pause_ms), times: 0 };
    match HostBackOff::read(tx, when)? {
        Some(longer) if longer.until >= pause.until => Ok(()),
        Some(shorter) => HostBackOff { times: shorter.times, ..pause }.write(tx, when),
        None => pause.write(tx, when),
    }
}
