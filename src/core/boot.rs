//! Which boot is it? Several witnesses answer, because each of them lies somewhere.
//!
//! A re-mounted /proc shows another boot_id, someone deletes the nonce, two boots share an id. One
//! witness alone never makes a reboot: then the answer is [`Boot::Unknown`] and every claim of that boot
//! is held.

use crate::core::fingerprint::Epoch;
use crate::core::ids::BootId;

/// What the host says now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Witnesses {
    /// boot_id, namespaces and PID 1's start.
    pub epoch: Epoch,
    /// The random text in the runtime directory (tmpfs, so it does not survive a reboot); none if it was
    /// not there before this life of the daemon.
    pub nonce: Option<String>,
    /// CLOCK_BOOTTIME, milliseconds.
    pub boottime_ms: i64,
}

/// What the board remembers of a boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remembered {
    /// Its row.
    pub boot: BootId,
    /// What the host said then.
    pub epoch: Epoch,
    /// The nonce of that boot.
    pub nonce: String,
    /// The last CLOCK_BOOTTIME that was read in it, milliseconds.
    pub boottime_ms: i64,
}

/// Whether a row's boot is this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Boot {
    /// This one.
    Same,
    /// Another one: nothing of it can be alive.
    Other,
    /// The witnesses disagree.
    Unknown(Doubt),
    /// The row has no epoch at all.
    Absent,
}

/// The witness that disagrees with the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Doubt {
    /// boot_id differs and nothing else does.
    BootId,
    /// The nonce is missing or differs and nothing else does.
    Nonce,
    /// PID 1 started at another tick and nothing else differs.
    Init,
    /// CLOCK_BOOTTIME went back and nothing else differs.
    Boottime,
    /// Another pid or time namespace: this reader cannot compare pids and ticks.
    Namespace,
}

impl Doubt {
    /// For a person.
    pub const fn words(self) -> &'static str {
        match self {
            Self::BootId => "boot_id differs, but the other witnesses of the boot agree",
            Self::Nonce => "the nonce in the runtime directory is missing or differs",
            Self::Init => "PID 1 started at another time",
            Self::Boottime => "CLOCK_BOOTTIME went back",
            Self::Namespace => "the daemon runs in another pid or time namespace",
        }
    }
}

/// Judges the boot of a row by its epoch, and by what the board remembers of it.
///
/// A boot that is not remembered has no nonce and no boot time to speak for it or against it.
pub fn judge(epoch: &Epoch, remembered: Option<&Remembered>, now: &Witnesses) -> Boot {
    let id_differs = epoch.boot_id != now.epoch.boot_id;
    let init_differs = epoch.init_start_ticks != now.epoch.init_start_ticks;
    let namespace_differs =
        epoch.pid_namespace != now.epoch.pid_namespace || epoch.time_namespace != now.epoch.time_namespace;
    let nonce_differs = remembered.is_some_and(|old| now.nonce.as_deref() != Some(old.nonce.as_str()));
    let went_back = remembered.is_some_and(|old| now.boottime_ms < old.boottime_ms);

    // PID 1 and the clock of another namespace are other ones by their nature: they say nothing then.
    let later = (init_differs || went_back) && !namespace_differs;
    if id_differs && (nonce_differs || later) {
        return Boot::Other;
    }
    if !id_differs && nonce_differs && later {
        return Boot::Other;
    }
    match (namespace_differs, id_differs, nonce_differs, init_differs, went_back) {
        (true, _, _, _, _) => Boot::Unknown(Doubt::Namespace),
        (_, true, _, _, _) => Boot::Unknown(Doubt::BootId),
        (_, _, true, _, _) => Boot::Unknown(Doubt::Nonce),
        (_, _, _, true, _) => Boot::Unknown(Doubt::Init),
        (_, _, _, _, true) => Boot::Unknown(Doubt::Boottime),
        (false, false, false, false, false) => Boot::Same,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch() -> Epoch {
        Epoch {
            boot_id: "6b2d4f0a-0d2c-4c7e-9a31-1f4a7f1f2a3b".into(),
            pid_namespace: 10,
            time_namespace: 20,
            init_start_ticks: 3,
        }
    }

    fn other_id() -> Epoch {
        Epoch { boot_id: "ffffffff-0d2c-4c7e-9a31-1f4a7f1f2a3b".into(), ..epoch() }
    }

    fn remembered() -> Remembered {
        Remembered { boot: BootId::new(1), epoch: epoch(), nonce: "n".into(), boottime_ms: 1_000 }
    }

    fn now() -> Witnesses {
        Witnesses { epoch: epoch(), nonce: Some("n".into()), boottime_ms: 1_000 }
    }

    fn judged(change: impl FnOnce(&mut Witnesses)) -> Boot {
        let mut now = now();
        change(&mut now);
        judge(&epoch(), Some(&remembered()), &now)
    }

    #[test]
    fn all_witnesses_agree() {
        assert_eq!(judged(|_| ()), Boot::Same);
    }

    #[test]
    fn c09_a_shared_boot_id_does_not_hide_a_reboot() {
        let second_boot = |now: &mut Witnesses| {
            now.nonce = None;
            now.boottime_ms = 5;
        };
        assert_eq!(judged(second_boot), Boot::Other);
        assert_eq!(
            judged(|now| {
                now.nonce = Some("m".into());
                now.epoch.init_start_ticks = 4;
            }),
            Boot::Other
        );
        // Pids and ticks coincide and the boot time has passed the stored one: only the nonce knows.
        assert_eq!(judged(|now| now.nonce = None), Boot::Unknown(Doubt::Nonce));
    }

    #[test]
    fn c10_another_boot_id_alone_is_no_reboot() {
        assert_eq!(judged(|now| now.epoch = other_id()), Boot::Unknown(Doubt::BootId));
    }

    #[test]
    fn c08_another_namespace_is_unknown() {
        assert_eq!(judged(|now| now.epoch.pid_namespace = 11), Boot::Unknown(Doubt::Namespace));
        assert_eq!(judged(|now| now.epoch.time_namespace = 21), Boot::Unknown(Doubt::Namespace));
        // Its own PID 1, its own clock and its own, empty runtime directory: still only another view.
        let container = |now: &mut Witnesses| {
            now.epoch.pid_namespace = 11;
            now.epoch.init_start_ticks = 900;
            now.nonce = None;
            now.boottime_ms = 5;
        };
        assert_eq!(judged(container), Boot::Unknown(Doubt::Namespace));
    }

    #[test]
    fn c11_a_soft_reboot_shows_in_two_witnesses() {
        assert_eq!(
            judged(|now| {
                now.nonce = None;
                now.epoch.init_start_ticks = 900;
            }),
            Boot::Other
        );
    }

    #[test]
    fn one_witness_alone_never_makes_a_reboot() {
        assert_eq!(judged(|now| now.epoch.init_start_ticks = 9), Boot::Unknown(Doubt::Init));
        assert_eq!(judged(|now| now.boottime_ms = 9), Boot::Unknown(Doubt::Boottime));
        assert_eq!(judged(|now| now.nonce = Some("x".into())), Boot::Unknown(Doubt::Nonce));
    }

    #[test]
    fn a_boot_that_is_not_remembered_is_judged_by_what_its_text_says() {
        let foreign = Epoch { init_start_ticks: 99, ..other_id() };
        assert_eq!(judge(&foreign, None, &now()), Boot::Other);
        assert_eq!(judge(&other_id(), None, &now()), Boot::Unknown(Doubt::BootId));
        assert_eq!(judge(&epoch(), None, &now()), Boot::Same);
    }
}
