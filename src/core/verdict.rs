//! The product's policy: what to do about one claim, given what is true.
//!
//! [`decide`] is pure and total: finite enums in, one verdict out, no clock, no IO, no number, no wildcard
//! for a kind that might be added later. Rows whose pass is not in the set do not exist; the next matching
//! row decides. The whole table, folded, is `tests/golden/verdicts.txt`.

/// What is true of the worker; the first that applies, in this order of [`crate::core::facts::worker`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Worker {
    /// No process of it is left.
    Gone,
    /// It could not be seen.
    Unknown,
    /// There is no process by design.
    LeaseOnly,
    /// It lives.
    Alive(Proof),
    /// A process is there, and nothing can show whether it is the worker.
    Unprovable,
}

/// How far the identity of a live worker is proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Proof {
    /// Wholly: it may be signalled.
    Proven,
    /// Liveness only: a bare number that a claimant gave, or start ticks without an epoch.
    Named,
    /// The process does not belong wholly to the one who registered it.
    NotYours,
    /// The process is the worker of another open claim too.
    Shared,
}

/// Whether the claim is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Claim {
    /// A running task, its open run, a claimant, a lease.
    Whole,
    /// Anything else.
    Broken,
}

/// Whether an end is on record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum End {
    /// None.
    None,
    /// The supervisor's exit record, the exit information of a held pidfd, or an end on the run's row.
    Record,
    /// The worker's own word, which fixed the outcome.
    Word,
}

/// How far the run has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// Starting, in this life of the daemon, younger than the limit: its starter has it in hand.
    InHand,
    /// Starting otherwise.
    Starting,
    /// Running or ending.
    Running,
    /// Ended by force while its worker lived.
    Survivor,
}

/// Why a worker is stopped. Durable before the first signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StopCause {
    /// An operator cancelled the task.
    Cancelled,
    /// An operator reclaimed the task.
    Reclaimed,
    /// Max runtime passed.
    TimedOut,
    /// No progress for the stall limit.
    Stalled,
    /// The tree outlived the end of its run.
    Leftover,
}

impl StopCause {
    /// The word of the board.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Cancelled => "cancelled",
            Self::Reclaimed => "reclaimed",
            Self::TimedOut => "timed_out",
            Self::Stalled => "stalled",
            Self::Leftover => "leftover",
        }
    }

    /// Reads the word of the board.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Cancelled, Self::Reclaimed, Self::TimedOut, Self::Stalled, Self::Leftover]
            .into_iter()
            .find(|cause| cause.word() == word)
    }

    const fn pass(self) -> Option<Pass> {
        match self {
            Self::Cancelled | Self::Reclaimed => None,
            Self::TimedOut => Some(Pass::EnforceMaxRuntime),
            Self::Stalled => Some(Pass::DetectStalledWorkers),
            Self::Leftover => Some(Pass::ReapEndedRuns),
        }
    }

    const fn is_operators(self) -> bool {
        matches!(self, Self::Cancelled | Self::Reclaimed)
    }
}

/// How far a stop has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ladder {
    /// Its cause is on the board; no signal went out.
    Asked,
    /// TERM went out, the grace runs.
    Term,
    /// TERM went out, the grace is over.
    GraceOver,
    /// KILL went out.
    Kill,
    /// KILL went out longer ago than the limit.
    Stuck,
}

/// A stop under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stop {
    /// Why.
    pub cause: StopCause,
    /// How far.
    pub ladder: Ladder,
    /// How hard an operator asked.
    pub urgency: Urgency,
}

/// How hard an operator asked for a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Urgency {
    /// With the grace.
    Normal,
    /// `Kill`: not waiting for the grace.
    Kill,
    /// `Force`: the claim goes at once, whatever is known of the worker.
    Force,
}

/// What is left of a launched tree after its run or its leader ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Leftover {
    /// Neither has ended.
    None,
    /// Ended, and the linger time runs.
    Lingering,
    /// Ended, and the linger time is over.
    Overdue,
}

/// All that a verdict depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Facts {
    /// The worker.
    pub worker: Worker,
    /// The claim.
    pub claim: Claim,
    /// The end on record.
    pub end: End,
    /// The stage.
    pub stage: Stage,
    /// The stop under way.
    pub stop: Option<Stop>,
    /// The end of the leader or of the run.
    pub leftover: Leftover,
    /// Max runtime passed.
    pub max_runtime_passed: bool,
    /// No progress for the stall limit.
    pub stalled: bool,
    /// The lease ran out.
    pub lease_expired: bool,
    /// Another boot, or ended after the host began to shut down.
    pub lost: bool,
    /// The record says that the worker ended before TERM went out.
    pub ended_before_term: bool,
    /// Whether a fresh period comes before any judgement of its times.
    pub fresh: Fresh,
}

/// The fresh period of a claim that nobody could look at, or whose stamps are of no boot that can be named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fresh {
    /// Its times are judged.
    No,
    /// It is to be given now.
    Due,
    /// This look comes late, and nothing ran out or the period was given already.
    Given,
}

/// A pass of the sweep that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Pass {
    /// Leases.
    ReleaseStaleClaims,
    /// Deadlines.
    EnforceMaxRuntime,
    /// Ends without a word.
    DetectCrashedWorkers,
    /// Stall limits.
    DetectStalledWorkers,
    /// Broken claims.
    ReconcileOrphans,
    /// Trees that outlive their end, and survivors.
    ReapEndedRuns,
    /// `todo` to `ready`.
    Promote,
    /// `ready` to `running`.
    Dispatch,
}

impl Pass {
    /// Every pass, in the order of the documentation.
    pub const ALL: [Self; 8] = [
        Self::ReleaseStaleClaims,
        Self::EnforceMaxRuntime,
        Self::DetectCrashedWorkers,
        Self::DetectStalledWorkers,
        Self::ReconcileOrphans,
        Self::ReapEndedRuns,
        Self::Promote,
        Self::Dispatch,
    ];

    /// The word of the bus and the configuration.
    pub const fn word(self) -> &'static str {
        match self {
            Self::ReleaseStaleClaims => "release_stale_claims",
            Self::EnforceMaxRuntime => "enforce_max_runtime",
            Self::DetectCrashedWorkers => "detect_crashed_workers",
            Self::DetectStalledWorkers => "detect_stalled_workers",
            Self::ReconcileOrphans => "reconcile_orphans",
            Self::ReapEndedRuns => "reap_ended_runs",
            Self::Promote => "promote",
            Self::Dispatch => "dispatch",
        }
    }

    /// Reads the word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|pass| pass.word() == word)
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A set of passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Passes(u8);

impl Passes {
    /// Every pass.
    pub const ALL: Self = Self(u8::MAX);
    /// No pass: only what is always on.
    pub const NONE: Self = Self(0);

    /// The set with one more.
    #[must_use]
    pub const fn with(self, pass: Pass) -> Self {
        Self(self.0 | pass.bit())
    }

    /// The set with one less.
    #[must_use]
    pub const fn without(self, pass: Pass) -> Self {
        Self(self.0 & !pass.bit())
    }

    /// Whether the pass is in the set.
    pub const fn has(self, pass: Pass) -> bool {
        self.0 & pass.bit() != 0
    }
}

impl FromIterator<Pass> for Passes {
    fn from_iter<T: IntoIterator<Item = Pass>>(passes: T) -> Self {
        passes.into_iter().fold(Self::NONE, Self::with)
    }
}

/// Why a claim is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Hold {
    /// The claim is broken and its worker lives.
    WorkerAlive,
    /// KILL did not end the worker.
    Unkillable,
    /// A stop is due and the worker is known by a bare number only.
    Named,
    /// A stop is due and the process does not belong to the one who registered it.
    NotYours,
    /// A stop is due and the process holds another open claim.
    Shared,
    /// A process is there and cannot be compared.
    Unproven,
    /// The worker could not be seen.
    Unknown,
}

impl Hold {
    /// The word of the bus and the board.
    pub const fn word(self) -> &'static str {
        match self {
            Self::WorkerAlive => "worker_alive",
            Self::Unkillable => "unkillable",
            Self::Named => "named",
            Self::NotYours => "not_yours",
            Self::Shared => "shared",
            Self::Unproven => "unproven",
            Self::Unknown => "unknown",
        }
    }
}

/// A step of the ladder that a signal belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rung {
    /// The stop signal, TERM unless the task says another, followed by CONT.
    Term,
    /// KILL, to the whole tree.
    Kill,
}

/// Why a claim ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Release {
    /// Its command never ran.
    NotStarted,
    /// By the worker's word.
    Word,
    /// By the exit record.
    Record,
    /// By the stop that was under way.
    Stopped(StopCause),
    /// The host went down with it.
    Lost,
    /// Max runtime passed.
    TimedOut,
    /// The stall limit passed.
    Stalled,
    /// The lease ran out and nobody holds it.
    Reclaimed,
    /// The worker went without a word.
    Crashed,
    /// The claim was broken.
    Reconciled,
    /// The claim was broken, and an end is on record.
    ReconciledByEnd,
    /// By an operator, without a signal.
    Operator,
    /// Cancelled by an operator, without a signal.
    Cancelled,
}

/// What to do about one claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verdict {
    /// Nothing.
    Keep,
    /// Renew the lease.
    Extend,
    /// Leave it alone, for a reason that is recorded once.
    Hold(Hold),
    /// Commit the cause, send, commit the time of sending.
    Signal(Rung, StopCause),
    /// End the claim. `survivor` says that its worker may live on and stays with the run for the reaper.
    Release {
        /// Why.
        why: Release,
        /// Whether the worker may live on.
        survivor: bool,
    },
    /// A survivor is no more.
    Forget,
}

/// The rows of the verdict table, in order of reading. Each names the situation, not the action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the name is the situation; the golden table spells each out")]
pub enum Row {
    StartInHand,
    SurvivorGone,
    SurvivorWithNewClaim,
    AliveBroken,
    AliveForced,
    AliveStuck,
    AliveKilled,
    AliveStopUnproven,
    AliveGraceOver,
    AliveTermed,
    AliveStopAsked,
    AliveMaxRuntime,
    AliveStalled,
    AliveLeftover,
    AliveLingering,
    AliveLeaseExpired,
    AliveWell,
    UnprovableReleased,
    UnprovableHeld,
    UnknownForced,
    UnknownHeld,
    GoneBrokenEnded,
    GoneBroken,
    GoneNeverStarted,
    GoneByWord,
    GoneWithHost,
    GoneStopped,
    GoneByRecord,
    GoneMaxRuntime,
    GoneLeaseExpired,
    GoneCrashed,
    GonePassOff,
    LeaseOnlyBroken,
    LeaseOnlyStopAsked,
    LeaseOnlyFresh,
    LeaseOnlyMaxRuntime,
    LeaseOnlyExpired,
    LeaseOnlyStalled,
    LeaseOnlyWell,
}

/// Decides.
pub const fn decide(facts: &Facts, passes: Passes) -> Verdict {
    explain(facts, passes).1
}

/// Decides, and names the row that did.
pub const fn explain(facts: &Facts, passes: Passes) -> (Row, Verdict) {
    match facts.stage {
        Stage::InHand => return (Row::StartInHand, Verdict::Keep),
        Stage::Survivor => match facts.worker {
            Worker::Gone | Worker::LeaseOnly => return (Row::SurvivorGone, Verdict::Forget),
            Worker::Alive(Proof::Shared) => return (Row::SurvivorWithNewClaim, Verdict::Forget),
            Worker::Alive(_) | Worker::Unknown | Worker::Unprovable => {}
        },
        Stage::Starting | Stage::Running => {}
    }
    match facts.worker {
        Worker::Alive(proof) => alive(facts, proof, passes),
        Worker::Unprovable => unprovable(facts),
        Worker::Unknown => unknown(facts),
        Worker::Gone => gone(facts, passes),
        Worker::LeaseOnly => lease_only(facts, passes),
    }
}

const fn alive(facts: &Facts, proof: Proof, passes: Passes) -> (Row, Verdict) {
    let proven = matches!(proof, Proof::Proven);
    let broken = matches!(facts.claim, Claim::Broken);
    let survivor = matches!(facts.stage, Stage::Survivor);
    if broken && !(proven && (facts.stop.is_some() || facts.max_runtime_passed)) {
        if passes.has(Pass::ReconcileOrphans) {
            return (Row::AliveBroken, Verdict::Hold(Hold::WorkerAlive));
        }
        return (Row::AliveWell, Verdict::Keep);
    }
    if let Some(stop) = facts.stop {
        if let (Urgency::Force, false, Some(why)) = (stop.urgency, survivor, forced(stop.cause)) {
            // A process that holds another claim is not this run's to reap.
            let survivor = !matches!(proof, Proof::Shared);
            return (Row::AliveForced, Verdict::Release { why, survivor });
        }
        let in_pass = match stop.cause.pass() {
            Some(pass) => passes.has(pass),
            None => true,
        };
        let hard = !matches!(stop.urgency, Urgency::Normal);
        match stop.ladder {
            Ladder::Stuck => return (Row::AliveStuck, Verdict::Hold(Hold::Unkillable)),
            Ladder::Kill => return (Row::AliveKilled, Verdict::Keep),
            Ladder::Term | Ladder::GraceOver if !proven && in_pass => {
                return (Row::AliveStopUnproven, Verdict::Hold(unproven_hold(proof)));
            }
            Ladder::GraceOver if in_pass => {
                return (Row::AliveGraceOver, Verdict::Signal(Rung::Kill, stop.cause));
            }
            Ladder::Term if in_pass && hard => {
                return (Row::AliveGraceOver, Verdict::Signal(Rung::Kill, stop.cause));
            }
            Ladder::Term | Ladder::GraceOver => return (Row::AliveTermed, Verdict::Keep),
            Ladder::Asked if in_pass && !proven => {
                return (Row::AliveStopUnproven, Verdict::Hold(unproven_hold(proof)));
            }
            Ladder::Asked if in_pass && hard => {
                return (Row::AliveGraceOver, Verdict::Signal(Rung::Kill, stop.cause));
            }
            Ladder::Asked if in_pass => {
                return (Row::AliveStopAsked, Verdict::Signal(Rung::Term, stop.cause));
            }
            Ladder::Asked => {}
        }
    }
    if let Some((row, cause)) = due(facts, passes) {
        if proven {
            return (row, Verdict::Signal(Rung::Term, cause));
        }
        return (Row::AliveStopUnproven, Verdict::Hold(unproven_hold(proof)));
    }
    if survivor || !matches!(facts.leftover, Leftover::None) {
        return (Row::AliveLingering, Verdict::Keep);
    }
    if (facts.lease_expired || matches!(facts.fresh, Fresh::Due))
        && passes.has(Pass::ReleaseStaleClaims)
        && !broken
    {
        return (Row::AliveLeaseExpired, Verdict::Extend);
    }
    (Row::AliveWell, Verdict::Keep)
}

/// The stop that is due and not yet on the board.
const fn due(facts: &Facts, passes: Passes) -> Option<(Row, StopCause)> {
    let open = !matches!(facts.stage, Stage::Survivor);
    if open && facts.max_runtime_passed && passes.has(Pass::EnforceMaxRuntime) {
        return Some((Row::AliveMaxRuntime, StopCause::TimedOut));
    }
    if open && facts.stalled && passes.has(Pass::DetectStalledWorkers) {
        return Some((Row::AliveStalled, StopCause::Stalled));
    }
    if matches!(facts.leftover, Leftover::Overdue) && passes.has(Pass::ReapEndedRuns) {
        return Some((Row::AliveLeftover, StopCause::Leftover));
    }
    None
}

const fn unproven_hold(proof: Proof) -> Hold {
    match proof {
        // A proven worker is never held for want of proof; the arm keeps the function total.
        Proof::Proven | Proof::Named => Hold::Named,
        Proof::NotYours => Hold::NotYours,
        Proof::Shared => Hold::Shared,
    }
}

/// What an operator's force makes of a claim; the sweep's own stops know no force.
const fn forced(cause: StopCause) -> Option<Release> {
    match cause {
        StopCause::Reclaimed => Some(Release::Operator),
        StopCause::Cancelled => Some(Release::Cancelled),
        StopCause::TimedOut | StopCause::Stalled | StopCause::Leftover => None,
    }
}

const fn unprovable(facts: &Facts) -> (Row, Verdict) {
    if let Some(stop) = facts.stop
        && !matches!(facts.stage, Stage::Survivor)
    {
        let asked = matches!(stop.cause, StopCause::Reclaimed) || matches!(stop.urgency, Urgency::Force);
        if let (true, Some(why)) = (asked, forced(stop.cause)) {
            return (Row::UnprovableReleased, Verdict::Release { why, survivor: false });
        }
    }
    (Row::UnprovableHeld, Verdict::Hold(Hold::Unproven))
}

const fn unknown(facts: &Facts) -> (Row, Verdict) {
    if let Some(stop) = facts.stop
        && !matches!(facts.stage, Stage::Survivor)
        && let (Urgency::Force, Some(why)) = (stop.urgency, forced(stop.cause))
    {
        return (Row::UnknownForced, Verdict::Release { why, survivor: true });
    }
    (Row::UnknownHeld, Verdict::Hold(Hold::Unknown))
}

const fn release(row: Row, why: Release) -> (Row, Verdict) {
    (row, Verdict::Release { why, survivor: false })
}

const fn gone(facts: &Facts, passes: Passes) -> (Row, Verdict) {
    if matches!(facts.claim, Claim::Broken) {
        if !passes.has(Pass::ReconcileOrphans) {
            return (Row::GonePassOff, Verdict::Keep);
        }
        return match facts.end {
            End::Record | End::Word => release(Row::GoneBrokenEnded, Release::ReconciledByEnd),
            End::None => release(Row::GoneBroken, Release::Reconciled),
        };
    }
    if matches!(facts.stage, Stage::Starting) {
        return release(Row::GoneNeverStarted, Release::NotStarted);
    }
    if matches!(facts.end, End::Word) {
        return release(Row::GoneByWord, Release::Word);
    }
    let any_of_three = passes.has(Pass::ReleaseStaleClaims)
        || passes.has(Pass::EnforceMaxRuntime)
        || passes.has(Pass::DetectCrashedWorkers);
    if facts.lost && any_of_three {
        return release(Row::GoneWithHost, Release::Lost);
    }
    let recorded = matches!(facts.end, End::Record);
    if let Some(stop) = facts.stop {
        if !facts.ended_before_term {
            return release(Row::GoneStopped, Release::Stopped(stop.cause));
        }
        // It ended by itself before the signal: the record stands, and an operator's word needs no pass.
        if stop.cause.is_operators() {
            let why = if recorded { Release::Record } else { Release::Stopped(stop.cause) };
            return release(Row::GoneStopped, why);
        }
    }
    if recorded && passes.has(Pass::DetectCrashedWorkers) {
        return release(Row::GoneByRecord, Release::Record);
    }
    if facts.max_runtime_passed && passes.has(Pass::EnforceMaxRuntime) {
        return release(Row::GoneMaxRuntime, Release::TimedOut);
    }
    if facts.lease_expired && passes.has(Pass::ReleaseStaleClaims) {
        return release(Row::GoneLeaseExpired, Release::Reclaimed);
    }
    if passes.has(Pass::DetectCrashedWorkers) {
        return release(Row::GoneCrashed, Release::Crashed);
    }
    (Row::GonePassOff, Verdict::Keep)
}

const fn lease_only(facts: &Facts, passes: Passes) -> (Row, Verdict) {
    if matches!(facts.claim, Claim::Broken) {
        if passes.has(Pass::ReconcileOrphans) {
            return release(Row::LeaseOnlyBroken, Release::Reconciled);
        }
        return (Row::LeaseOnlyWell, Verdict::Keep);
    }
    if let Some(stop) = facts.stop {
        return release(Row::LeaseOnlyStopAsked, Release::Stopped(stop.cause));
    }
    match facts.fresh {
        Fresh::No => {}
        Fresh::Due if passes.has(Pass::ReleaseStaleClaims) => return (Row::LeaseOnlyFresh, Verdict::Extend),
        Fresh::Due | Fresh::Given => return (Row::LeaseOnlyWell, Verdict::Keep),
    }
    if facts.max_runtime_passed && passes.has(Pass::EnforceMaxRuntime) {
        return release(Row::LeaseOnlyMaxRuntime, Release::TimedOut);
    }
    if facts.lease_expired && passes.has(Pass::ReleaseStaleClaims) {
        return release(Row::LeaseOnlyExpired, Release::Reclaimed);
    }
    if facts.stalled && passes.has(Pass::DetectStalledWorkers) {
        return release(Row::LeaseOnlyStalled, Release::Stalled);
    }
    (Row::LeaseOnlyWell, Verdict::Keep)
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;
