//! Which boot each row belongs to, judged once in a daemon's life: boots do not change under a daemon.
//!
//! Old boots are judged before this life's nonce is written, so that a missing nonce counts against them.

use std::collections::HashMap;

use crate::core::boot::{self, Boot, Remembered, Witnesses};
use crate::core::fingerprint::Epoch;
use crate::core::ids::BootId;
use crate::core::row::RunPart;
use crate::core::time::MonoMs;

/// See the module.
pub struct Boots {
    witnesses: Witnesses,
    judged: HashMap<BootId, Boot>,
    /// The newest remembered boot of each epoch; rows written by hand carry a text only.
    newest: HashMap<Epoch, BootId>,
    /// When the host began to shut down in a boot, by that boot's clock.
    shutdowns: HashMap<BootId, MonoMs>,
}

/// The boots of one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowBoots {
    /// Of the worker's identity.
    pub identity: Boot,
    /// Of the row's stamps.
    pub stamps: Boot,
}

impl Boots {
    /// Judges what the board remembers.
    pub fn judge(remembered: &[Remembered], witnesses: Witnesses) -> Self {
        let mut boots =
            Self { witnesses, judged: HashMap::new(), newest: HashMap::new(), shutdowns: HashMap::new() };
        for old in remembered {
            let verdict = boot::judge(&old.epoch, Some(old), &boots.witnesses);
            boots.judged.insert(old.boot, verdict);
            let newest = boots.newest.entry(old.epoch.clone()).or_insert(old.boot);
            *newest = (*newest).max(old.boot);
        }
        boots
    }

    /// The remembered boot that is this one, if there is one.
    pub fn same(&self) -> Option<BootId> {
        self.judged.iter().filter(|(_, verdict)| **verdict == Boot::Same).map(|(boot, _)| *boot).max()
    }

    /// With the stamps of the shutdowns that ended boots.
    #[must_use]
    pub fn ended_by(mut self, shutdowns: Vec<(BootId, MonoMs)>) -> Self {
        self.shutdowns = shutdowns.into_iter().collect();
        self
    }

    /// When the host began to shut down in the boot of a run.
    pub fn shutdown_of(&self, run: &RunPart) -> Option<MonoMs> {
        let newest = || run.epoch.as_ref().and_then(|epoch| self.newest.get(epoch)).copied();
        self.shutdowns.get(&run.boot.or_else(newest)?).copied()
    }

    /// From now on this row of the board stands for this boot.
    pub fn adopt(&mut self, ours: BootId) {
        self.judged.insert(ours, Boot::Same);
        self.newest.insert(self.witnesses.epoch.clone(), ours);
    }

    /// This boot's epoch.
    pub const fn epoch(&self) -> &Epoch {
        &self.witnesses.epoch
    }

    fn by_text(&self, epoch: &Epoch) -> Boot {
        match self.newest.get(epoch).and_then(|boot| self.judged.get(boot)) {
            Some(verdict) => *verdict,
            None => boot::judge(epoch, None, &self.witnesses),
        }
    }

    fn of_row(&self, run: &RunPart) -> Option<Boot> {
        let by_number = run.boot.and_then(|boot| self.judged.get(&boot)).copied();
        by_number.or_else(|| run.epoch.as_ref().map(|epoch| self.by_text(epoch)))
    }

    /// Where a fingerprint's epoch and the row's differ, the fingerprint's decides identity and the row's
    /// decides what its stamps mean; where one is missing, the other speaks for both.
    pub fn of(&self, run: &RunPart) -> RowBoots {
        let row = self.of_row(run);
        let print = match run.worker.epoch() {
            Some(epoch) if run.epoch.as_ref() == Some(epoch) => row,
            Some(epoch) => Some(self.by_text(epoch)),
            None => None,
        };
        RowBoots {
            identity: print.or(row).unwrap_or(Boot::Absent),
            stamps: row.or(print).unwrap_or(Boot::Absent),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::boot::Doubt;

    fn epoch(init_start_ticks: u64) -> Epoch {
        Epoch {
            boot_id: "6b2d4f0a-0d2c-4c7e-9a31-1f4a7f1f2a3b".into(),
            pid_namespace: 1,
            time_namespace: 2,
            init_start_ticks,
        }
    }

    fn remembered(number: i64, nonce: &str) -> Remembered {
        Remembered { boot: BootId::new(number), epoch: epoch(3), nonce: nonce.into(), boottime_ms: 10 }
    }

    fn now(nonce: Option<&str>) -> Witnesses {
        Witnesses { epoch: epoch(3), nonce: nonce.map(str::to_owned), boottime_ms: 20 }
    }

    #[test]
    fn a_lost_nonce_leaves_the_old_rows_in_doubt_and_makes_a_new_boot() {
        let mut boots = Boots::judge(&[remembered(1, "a")], now(None));
        assert_eq!(boots.same(), None);
        assert_eq!(boots.judged[&BootId::new(1)], Boot::Unknown(Doubt::Nonce));
        boots.adopt(BootId::new(2));
        assert_eq!(boots.judged[&BootId::new(1)], Boot::Unknown(Doubt::Nonce), "also after the new one");
        assert_eq!(boots.by_text(&epoch(3)), Boot::Same, "a row written by hand means this boot");
        // In the next life the new nonce speaks for the new boot alone.
        let next = Boots::judge(&[remembered(1, "a"), remembered(2, "b")], now(Some("b")));
        assert_eq!(next.same(), Some(BootId::new(2)));
        assert_eq!(next.judged[&BootId::new(1)], Boot::Unknown(Doubt::Nonce));
    }

    #[test]
    fn a_text_that_nobody_remembers_is_judged_by_itself() {
        let boots = Boots::judge(&[], now(Some("a")));
        assert_eq!(boots.by_text(&epoch(3)), Boot::Same);
        assert_eq!(boots.by_text(&epoch(4)), Boot::Unknown(Doubt::Init));
    }
}
