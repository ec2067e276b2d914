//! Who may be claimed: lanes in turn, priority, the order of becoming ready, and every cap.

use std::collections::{BTreeMap, HashMap};

use rusqlite::params;

use crate::core::fault::Error;
use crate::core::ids::{TaskId, Uid};
use crate::core::policy::Policy;
use crate::store::sql::{Lax, LaxText};
use crate::store::{Snapshot, Tx, When, boots, queues, settings};

/// Ready tasks of one lane that are looked at for one that can start. Behind so many that cannot (their
/// owners or slots are at their limit), the rest of the lane waits.
const LOOKED_AT: usize = 1_000;

/// A queue with something ready in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lane {
    pub(super) queue: String,
    room: usize,
}

/// A task that may be claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pick {
    /// Which.
    pub task: TaskId,
    /// Whose it is.
    pub owner_uid: Uid,
    /// Its lane.
    pub queue: String,
    pub(super) slots: BTreeMap<String, u32>,
}

/// Whose tasks are wanted: all, or one user's.
pub(super) type Of = Option<Uid>;

/// Why nothing at all may be claimed now.
///
/// # Errors
/// A fault of the board.
pub fn standstill(snapshot: &Snapshot<'_>, when: &When) -> Result<Option<&'static str>, Error> {
    if settings::is_draining(snapshot)? {
        return Ok(Some("the daemon is draining: nothing new is started"));
    }
    if boots::shutdown_of(snapshot, when.boot)?.is_some() {
        return Ok(Some("the host is shutting down: nothing new is started"));
    }
    Ok(None)
}

/// Queues with something ready that are neither paused nor full, the one that has waited longest first.
fn lanes(snapshot: &Snapshot<'_>, launchable: bool) -> Result<Vec<Lane>, Error> {
    // Steps from queue to queue along the index, whatever their lengths.
    let lanes = snapshot.all(
        "looking for ready queues",
        "WITH RECURSIVE lane(queue) AS (
             SELECT min(queue) FROM tasks INDEXED BY tasks_ready
             WHERE status = 'ready' AND retry_at_ms IS NULL AND launchable = ?1
             UNION ALL
             SELECT (SELECT min(t.queue) FROM tasks t INDEXED BY tasks_ready
                     WHERE t.status = 'ready' AND t.retry_at_ms IS NULL AND t.launchable = ?1 AND t.queue > lane.queue)
             FROM lane WHERE lane.queue IS NOT NULL)
         SELECT lane.queue, CAST(ifnull(q.max_running, 0) AS INTEGER), CAST(ifnull(q.paused, 0) AS INTEGER)
         FROM lane LEFT JOIN queues q ON q.queue = lane.queue
         WHERE lane.queue IS NOT NULL ORDER BY ifnull(q.served, 0), lane.queue",
        [launchable],
        |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?)),
    )?;
    let mut open = Vec::new();
    for (queue, max_running, paused) in lanes {
        if paused != 0 {
            continue;
        }
        let room = lane_room(snapshot, &queue, max_running)?;
        if room > 0 {
            open.push(Lane { queue, room });
        }
    }
    Ok(open)
}

fn lane_room(snapshot: &Snapshot<'_>, queue: &str, max_running: i64) -> Result<usize, Error> {
    let Ok(max_running @ 1..) = usize::try_from(max_running) else { return Ok(usize::MAX) };
    let running = snapshot.number(
        "counting what runs in a queue",
        "SELECT count(*) FROM tasks INDEXED BY tasks_running WHERE status = 'running' AND queue = ?1",
        [queue],
    )?;
    Ok(max_running.saturating_sub(usize::try_from(running).unwrap_or(0)))
}

/// What is taken already, and what may still be taken.
struct Caps<'a> {
    policy: &'a Policy,
    by_owner: HashMap<Uid, u32>,
    slots: HashMap<String, Vec<String>>,
}

impl<'a> Caps<'a> {
    fn read(snapshot: &Snapshot<'_>, policy: &'a Policy) -> Result<Self, Error> {
        let mut caps = Self { policy, by_owner: HashMap::new(), slots: HashMap::new() };
        if policy.limits.running_per_user > 0 {
            let rows = snapshot.all(
                "counting what runs for each user",
                "SELECT owner_uid, count(*) FROM tasks INDEXED BY tasks_running WHERE status = 'running'
                 GROUP BY owner_uid",
                [],
                |row| Ok((row.get::<_, Uid>(0)?, row.get::<_, u32>(1)?)),
            )?;
            caps.by_owner.extend(rows);
        }
        if !policy.slots.is_empty() {
            let given: Vec<String> = snapshot.all(
                "reading the slots that are given",
                "SELECT slots FROM runs WHERE ended_usec IS NULL AND launched = 1 AND slots IS NOT NULL",
                [],
                |row| row.get(0),
            )?;
            for json in given {
                let units: BTreeMap<String, Vec<String>> = serde_json::from_str(&json).unwrap_or_default();
                for (slot, units) in units {
                    caps.slots.entry(slot).or_default().extend(units);
                }
            }
        }
        Ok(caps)
    }

    fn free_units(&self, slot: &str) -> Vec<String> {
        let all = self.policy.slots.get(slot).map(Vec::as_slice).unwrap_or_default();
        let taken = self.slots.get(slot).map(Vec::as_slice).unwrap_or_default();
        all.iter().filter(|unit| !taken.contains(unit)).cloned().collect()
    }

    fn allows(&self, pick: &Pick) -> bool {
        let limit = self.policy.limits.running_per_user;
        let own = self.by_owner.get(&pick.owner_uid).copied().unwrap_or(0);
        (limit == 0 || own < limit)
            && pick.slots.iter().all(|(slot, units)| {
                self.free_units(slot).len() >= usize::try_from(*units).unwrap_or(usize::MAX)
            })
    }

    /// Takes what a pick needs; returns its units.
    fn take(&mut self, pick: &Pick) -> BTreeMap<String, Vec<String>> {
        *self.by_owner.entry(pick.owner_uid).or_default() += 1;
        let mut given = BTreeMap::new();
        for (slot, units) in &pick.slots {
            let mut free = self.free_units(slot);
            free.truncate(usize::try_from(*units).unwrap_or(0));
            self.slots.entry(slot.clone()).or_default().extend(free.iter().cloned());
            given.insert(slot.clone(), free);
        }
        given
    }
}

/// A pick with the units that it was given.
pub(super) type Given = (Pick, BTreeMap<String, Vec<String>>);

/// Chooses at most `room` tasks, the lanes in turn.
pub(super) fn choose(
    snapshot: &Snapshot<'_>,
    launchable: bool,
    of: Of,
    only: Option<&str>,
    room: usize,
    when: &When,
) -> Result<Vec<Given>, Error> {
    let mut caps = Caps::read(snapshot, &when.policy)?;
    let mut lines = Vec::new();
    for lane in lanes(snapshot, launchable)? {
        if only.is_none_or(|only| only == lane.queue) {
            let picks = line(snapshot, &lane, launchable, of, room.min(lane.room), &caps)?;
            lines.push(picks.into_iter());
        }
    }
    let mut chosen: Vec<Given> = Vec::new();
    let mut gave = true;
    while gave {
        gave = false;
        for line in &mut lines {
            if chosen.len() >= room {
                return Ok(chosen);
            }
            // What an earlier lane took in this round may be missing now.
            if let Some(pick) = line.find(|pick| caps.allows(pick)) {
                let units = caps.take(&pick);
                chosen.push((pick, units));
                gave = true;
            }
        }
    }
    Ok(chosen)
}

/// The first tasks of one lane that can start.
fn line(
    snapshot: &Snapshot<'_>,
    lane: &Lane,
    launchable: bool,
    of: Of,
    room: usize,
    caps: &Caps<'_>,
) -> Result<Vec<Pick>, Error> {
    let defaults = queues::defaults(snapshot, &lane.queue)?.slots.unwrap_or_default();
    let mut picks = Vec::new();
    let mut looked_at = 0;
    snapshot.each(
        "looking for ready tasks",
        // A task with an open run has a broken claim: whoever runs it may still be there.
        "SELECT t.task, t.owner_uid, t.slots FROM tasks t INDEXED BY tasks_ready
         WHERE t.status = 'ready' AND t.retry_at_ms IS NULL AND t.launchable = ?1 AND t.queue = ?2
             AND (?3 IS NULL OR t.owner_uid = ?3)
             AND NOT EXISTS (SELECT 1 FROM runs o WHERE o.task = t.task AND o.ended_usec IS NULL)
         ORDER BY t.priority DESC, t.ready_seq",
        params![launchable, lane.queue, of],
        |row| {
            let pick = Pick {
                task: row.get(0)?,
                owner_uid: row.get::<_, Lax>(1)?.0.and_then(|uid| Uid::try_from(uid).ok()).unwrap_or(0),
                queue: lane.queue.clone(),
                slots: if launchable {
                    slots(row.get::<_, LaxText>(2)?.0, &defaults)
                } else {
                    BTreeMap::new()
                },
            };
            if caps.allows(&pick) {
                picks.push(pick);
            }
            looked_at += 1;
            Ok(picks.len() < room && looked_at < LOOKED_AT)
        },
    )?;
    Ok(picks)
}

fn slots(own: Option<String>, defaults: &BTreeMap<String, u32>) -> BTreeMap<String, u32> {
    own.map_or_else(|| defaults.clone(), |json| serde_json::from_str(&json).unwrap_or_default())
}

/// Whether a certain task could be claimed now; why not otherwise.
///
/// # Errors
/// A fault of the board.
pub fn obstacle(
    snapshot: &Snapshot<'_>,
    task: &crate::store::tasks::State,
    when: &When,
) -> Result<Option<String>, Error> {
    if let Some(why) = standstill(snapshot, when)? {
        return Ok(Some(why.to_owned()));
    }
    let queue = snapshot.one(
        "reading a queue",
        "SELECT CAST(max_running AS INTEGER), CAST(paused AS INTEGER) FROM queues WHERE queue = ?1",
        [&task.queue],
        |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)),
    )?;
    if let Some((max_running, paused)) = queue {
        if paused != 0 {
            return Ok(Some(format!("queue {} is paused", task.queue)));
        }
        if lane_room(snapshot, &task.queue, max_running)? == 0 {
            return Ok(Some(format!("queue {} runs its {max_running} already", task.queue)));
        }
    }
    let caps = Caps::read(snapshot, &when.policy)?;
    let pick = Pick {
        task: task.task,
        owner_uid: task.owner_uid,
        queue: task.queue.clone(),
        slots: BTreeMap::new(),
    };
    if !caps.allows(&pick) {
        return Ok(Some(format!("user {} runs as many tasks as one user may", task.owner_uid)));
    }
    let open = crate::store::runs::open_of(snapshot, task.task)?;
    Ok(open.map(|run| format!("run {run} of the task has not ended; the next sweep looks at it")))
}

/// One external task that may be claimed, if there is one.
///
/// # Errors
/// A fault of the board.
pub fn next_external(
    tx: &mut Tx<'_>,
    of: Option<Uid>,
    queue: Option<&str>,
    when: &When,
) -> Result<Option<Pick>, Error> {
    if standstill(tx, when)?.is_some() {
        return Ok(None);
    }
    crate::store::back_off::end_back_offs(tx, when)?;
    let chosen = choose(tx, false, of, queue, 1, when)?;
    Ok(chosen.into_iter().next().map(|(pick, _)| pick))
}

/// Whether [`next_external`] would find one.
///
/// # Errors
/// A fault of the board.
pub fn has_external(
    snapshot: &Snapshot<'_>,
    of: Option<Uid>,
    queue: Option<&str>,
    when: &When,
) -> Result<bool, Error> {
    if standstill(snapshot, when)?.is_some() {
        return Ok(false);
    }
    // A back-off that is over is ended by the attempt itself.
    Ok(crate::store::back_off::is_back_off_over(snapshot, when)?
        || !choose(snapshot, false, of, queue, 1, when)?.is_empty())
}

/// Launched workers that run.
pub(super) fn launched(snapshot: &Snapshot<'_>) -> Result<usize, Error> {
    let count = snapshot.number(
        "counting launched workers",
        "SELECT count(*) FROM runs WHERE ended_usec IS NULL AND launched = 1",
        [],
    )?;
    Ok(usize::try_from(count).unwrap_or(0))
}
