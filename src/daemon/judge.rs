//! Observes rows and decides each: looks, and never writes or sends.

use crate::core::boot::{Boot, Doubt};
use crate::core::facts::{self, Context, Observed};
use crate::core::policy::Policy;
use crate::core::row::ClaimRow;
use crate::core::time::MonoMs;
use crate::core::verdict::{Facts, Leftover, Passes, Stage, Verdict, decide};
use crate::daemon::boots::RowBoots;
use crate::daemon::engine::Engine;

/// A row and what was decided on it.
#[derive(Debug)]
pub struct Judged {
    /// As it was read.
    pub row: ClaimRow,
    /// What was seen.
    pub observed: Observed,
    /// What is true.
    pub facts: Facts,
    /// What to do.
    pub verdict: Verdict,
    /// The witness that is in doubt, if the row's boot is not known.
    pub doubt: Option<Doubt>,
}

impl Judged {
    /// Whether the leader of the row's tree was now first seen to have ended.
    pub fn leader_newly_gone(&self) -> bool {
        let run = self.row.run.as_ref();
        self.facts.leftover == Leftover::Lingering
            && self.facts.stage == Stage::Running
            && run.is_some_and(|run| run.leader_gone_ms.is_none() && !run.ended)
    }
}

/// The circumstances of one round of judgements.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// Now.
    pub now: MonoMs,
    /// The passes that are on.
    pub passes: Passes,
    /// Nobody could look for longer than an interval.
    pub late: bool,
}

impl Engine {
    /// Judges every row.
    pub(super) fn judge(&mut self, rows: Vec<ClaimRow>, round: Round) -> Vec<Judged> {
        let policy = self.desk.policy();
        rows.into_iter().map(|row| self.judge_row(row, round, &policy)).collect()
    }

    fn judge_row(&mut self, row: ClaimRow, round: Round, policy: &Policy) -> Judged {
        let Some(run) = &row.run else {
            let observed = Observed::nothing();
            let boots = RowBoots { identity: Boot::Same, stamps: Boot::Same };
            let facts = facts::facts(&row, &observed, &self.context(boots, false, round, policy));
            return Judged { verdict: decide(&facts, round.passes), row, observed, facts, doubt: None };
        };
        let boots = self.boots.of(run);
        let mut context = self.context(boots, self.in_hand.contains(&run.run), round, policy);
        if boots.identity == Boot::Other || boots.stamps == Boot::Other {
            context.shutdown = self.boots.shutdown_of(run);
        }
        let mut observed = if context.in_hand {
            Observed::nothing()
        } else {
            self.observer.observe(run, boots.identity, round.now)
        };
        let mut facts = facts::facts(&row, &observed, &context);
        let mut verdict = decide(&facts, round.passes);
        // Reading a process' owner costs more than a look, so it is done where it can matter.
        if matches!(verdict, Verdict::Signal(..)) || facts.stage == Stage::Survivor {
            observed.objection = self.observer.objection(run);
            facts = facts::facts(&row, &observed, &context);
            verdict = decide(&facts, round.passes);
        }
        let doubt = match boots.identity {
            Boot::Unknown(doubt) => Some(doubt),
            Boot::Same | Boot::Other | Boot::Absent => None,
        };
        Judged { row, observed, facts, verdict, doubt }
    }

    fn context(&self, boots: RowBoots, in_hand: bool, round: Round, policy: &Policy) -> Context {
        Context {
            now: round.now,
            identity: boots.identity,
            stamps: boots.stamps,
            late: round.late,
            in_hand,
            shutdown: self.shutdown,
            linger_ms: policy.linger_ms,
            stall_ms: policy.stall_ms,
            stop_grace_ms: policy.stop_grace_ms,
        }
    }
}
