//! The clocks of this host and the witnesses of its boot.
//!
//! Owns the nonce in the runtime directory, which a tmpfs loses at a reboot. Never judges whether two boots
//! are the same: that is `core/boot.rs`.
//!
//! Source: clock_gettime(2); proc_sys_kernel(5) `random/boot_id`; namespaces(7); proc_pid_stat(5) field 22
//! of PID 1.

#![expect(clippy::disallowed_methods, reason = "an adapter: reads /proc and the runtime directory")]

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::core::boot::Witnesses;
use crate::core::fingerprint::Epoch;
use crate::core::ids::Nonce;
use crate::core::time::{MonoMs, Now, WallUsec};
use crate::linux::proc::ProcRoot;
use crate::linux::stat::Stat;
use crate::ports::Clock;

/// The host's clocks.
#[derive(Clone, Debug, Default)]
pub struct HostClock {
    root: ProcRoot,
}

impl HostClock {
    /// With another procfs, for tests.
    pub const fn with_proc(root: ProcRoot) -> Self {
        Self { root }
    }

    fn epoch(&self) -> io::Result<Epoch> {
        let file = |name: &str| self.root.path().join(name);
        let boot_id = fs::read_to_string(file("sys/kernel/random/boot_id"))?.trim().to_owned();
        let pid_namespace = fs::metadata(file("self/ns/pid"))?.ino();
        let time_namespace = match fs::metadata(file("self/ns/time")) {
            Ok(namespace) => namespace.ino(),
            Err(missing) if missing.kind() == io::ErrorKind::NotFound => 0,
            Err(other) => return Err(other),
        };
        let init_start_ticks = Stat::read(&self.root, 1)?.start_ticks;
        let epoch = Epoch { boot_id, pid_namespace, time_namespace, init_start_ticks };
        // What does not come back from the board would be held as unverified for ever.
        if Epoch::parse(&epoch.to_string()).as_ref() != Some(&epoch) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "boot_id has another form"));
        }
        Ok(epoch)
    }
}

impl Clock for HostClock {
    fn now(&self) -> Now {
        let wall = clock_gettime(ClockId::Realtime);
        let wall_usec = wall.tv_sec.saturating_mul(1_000_000).saturating_add(wall.tv_nsec / 1_000);
        Now { mono: MonoMs(millis(clock_gettime(ClockId::Monotonic))), wall: WallUsec(wall_usec) }
    }

    fn witnesses(&self) -> io::Result<Witnesses> {
        let boottime_ms = millis(clock_gettime(ClockId::Boottime));
        Ok(Witnesses { epoch: self.epoch()?, nonce: None, boottime_ms })
    }
}

const fn millis(time: Timespec) -> i64 {
    time.tv_sec.saturating_mul(1_000).saturating_add(time.tv_nsec / 1_000_000)
}

/// The file of the boot's nonce in the runtime directory.
fn nonce_path(runtime_directory: &Path) -> PathBuf {
    runtime_directory.join("boot.nonce")
}

/// The nonce of this boot, as an earlier life of the daemon left it; none if there was no earlier one.
///
/// # Errors
/// Where it is there and cannot be read, or has another form: that is no proof of a reboot.
pub fn read_boot_nonce(runtime_directory: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(nonce_path(runtime_directory)) {
        Ok(text) => Nonce::parse(text.trim_end())
            .map(|nonce| Some(nonce.as_str().to_owned()))
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the boot's nonce has another form")),
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(other) => Err(other),
    }
}

/// The nonce of this boot, made if it is missing. Old rows are judged before this is called.
///
/// The file appears whole or not at all, and of two that make it at once both get the same.
///
/// # Errors
/// Where it cannot be read or made.
pub fn ensure_boot_nonce(runtime_directory: &Path) -> io::Result<String> {
    if let Some(nonce) = read_boot_nonce(runtime_directory)? {
        return Ok(nonce);
    }
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    let nonce = Nonce::from_bytes(bytes);
    let mut file = tempfile::NamedTempFile::new_in(runtime_directory)?;
    writeln!(file, "{nonce}")?;
    match file.persist_noclobber(nonce_path(runtime_directory)) {
        Ok(_) => Ok(nonce.as_str().to_owned()),
        Err(lost) if lost.error.kind() == io::ErrorKind::AlreadyExists => {
            read_boot_nonce(runtime_directory)?.ok_or_else(|| io::ErrorKind::NotFound.into())
        }
        Err(failed) => Err(failed.error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_witnesses_of_this_boot_agree_with_themselves() {
        let clock = HostClock::default();
        let (first, second) = (clock.witnesses().unwrap(), clock.witnesses().unwrap());
        assert_eq!(first.epoch, second.epoch);
        assert!(first.boottime_ms <= second.boottime_ms && first.nonce.is_none());
        assert!(clock.now().mono <= clock.now().mono);
    }

    fn fixture(boot_id: &str) -> (tempfile::TempDir, HostClock) {
        let directory = tempfile::tempdir().unwrap();
        let at = |path: &str| directory.path().join(path);
        fs::create_dir_all(at("sys/kernel/random")).unwrap();
        fs::create_dir_all(at("self/ns")).unwrap();
        fs::create_dir_all(at("1")).unwrap();
        fs::write(at("sys/kernel/random/boot_id"), boot_id).unwrap();
        fs::write(at("self/ns/pid"), "").unwrap();
        fs::copy("/proc/self/stat", at("1/stat")).unwrap();
        let clock = HostClock::with_proc(ProcRoot::at(directory.path()));
        (directory, clock)
    }

    #[test]
    fn a_kernel_without_time_namespaces_has_namespace_0() {
        let (_directory, clock) = fixture("6b2d4f0a-0d2c-4c7e-9a31-1f4a7f1f2a3b\n");
        assert_eq!(clock.witnesses().unwrap().epoch.time_namespace, 0);
    }

    #[test]
    fn what_cannot_be_read_back_is_no_epoch() {
        let (_directory, clock) = fixture("6b2d4f0a:0d2c\n");
        assert!(clock.witnesses().is_err());
    }

    #[test]
    fn the_nonce_is_made_once_a_boot() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(read_boot_nonce(directory.path()).unwrap(), None);
        let made = ensure_boot_nonce(directory.path()).unwrap();
        assert_eq!(ensure_boot_nonce(directory.path()).unwrap(), made);
        assert_eq!(read_boot_nonce(directory.path()).unwrap(), Some(made));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing beside it");
    }

    #[test]
    fn all_that_make_it_at_once_get_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let make = || ensure_boot_nonce(directory.path()).unwrap();
        let made: Vec<String> = std::thread::scope(|scope| {
            let makers: Vec<_> = (0..8).map(|_| scope.spawn(make)).collect();
            makers.into_iter().map(|maker| maker.join().unwrap()).collect()
        });
        assert!(made.iter().all(|nonce| *nonce == made[0]), "{made:?}");
    }

    #[test]
    fn a_torn_nonce_is_an_error_and_no_reboot() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(nonce_path(directory.path()), "abc").unwrap();
        assert!(read_boot_nonce(directory.path()).is_err());
        assert!(ensure_boot_nonce(directory.path()).is_err());
    }
}
