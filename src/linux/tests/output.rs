//! The output files of a run: capped, changed over and exact to the byte.

#![expect(unsafe_code, reason = "mounts a small file system")]

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use nix::libc;

use crate::core::record::End;
use crate::core::retry::Exit;
use crate::linux::launch_spec::OutputTo;
use crate::linux::spawn::{Launched, end_tree};
use crate::linux::tests::support::{Field, ended, eventually, is_root};

/// A file system of 64 KiB, gone with the test.
struct Mounted(CString);

impl Mounted {
    fn small_tmpfs(at: &Path) -> Option<Self> {
        if !is_root("a full file system") {
            return None;
        }
        let at = CString::new(at.as_os_str().as_bytes()).unwrap();
        // SAFETY: the texts live through the call.
        let done = unsafe {
            libc::mount(c"tmpfs".as_ptr(), at.as_ptr(), c"tmpfs".as_ptr(), 0, c"size=64k".as_ptr().cast())
        };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        Some(Self(at))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // SAFETY: the text lives through the call.
        unsafe { libc::umount2(self.0.as_ptr(), libc::MNT_DETACH) };
    }
}

/// The lines that `seq 1 last` writes.
fn lines(last: u32) -> Vec<u8> {
    (1..=last).flat_map(|number| format!("{number}\n").into_bytes()).collect()
}

#[test]
fn output_below_the_cap_is_one_file() {
    let field = Field::new();
    assert_eq!(
        field.run(&field.spec(&["sh", "-c", "seq 1 5000; echo error >&2"])),
        End::Exited(Exit::Code(0))
    );
    assert_eq!(fs::read(field.path("7.log")).unwrap(), [lines(5000), b"error\n".to_vec()].concat());
    assert!(!field.path("7.log.1").exists());
}

#[test]
fn c43_the_two_files_are_the_exact_end_of_the_output() {
    for cap_bytes in [1, 7, 4_096, 65_536, 100_000] {
        let field = Field::new();
        let last = if cap_bytes < 100 { 50 } else { 60_000 };
        let mut spec = field.spec(&["seq", "1", &last.to_string()]);
        spec.output = OutputTo::File { path: field.path("7.log"), cap_bytes };
        assert_eq!(field.run(&spec), End::Exited(Exit::Code(0)));
        let all = lines(last);
        let (old, new) = (fs::read(field.path("7.log.1")).unwrap(), fs::read(field.path("7.log")).unwrap());
        assert_eq!(old.len() as u64, cap_bytes);
        assert!(new.len() as u64 <= cap_bytes);
        let kept = [old, new].concat();
        assert!(all.ends_with(&kept), "cap {cap_bytes}");
        let mode = fs::metadata(field.path("7.log")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
    }
}

#[test]
fn c43_following_is_exact_across_the_change_of_files() {
    let field = Field::new();
    let mut spec = field.spec(&["sh", "-c", "seq 1 3000; read go </dev/zero"]);
    spec.output = OutputTo::File { path: field.path("7.log"), cap_bytes: 8_192 };
    let Launched { supervisor, gate, .. } = field.launched(&spec);
    // Opened before anything is said, as a follower does.
    let mut followed = fs::File::open(field.path("7.log")).unwrap();
    let first = followed.metadata().unwrap().ino();
    gate.open().unwrap();
    let all = lines(3000);
    eventually("the change", || {
        let now = fs::metadata(field.path("7.log")).map(|file| file.ino());
        if now.as_ref().is_ok_and(|now| *now != first) { Ok(()) } else { Err(format!("{now:?}")) }
    });
    let mut read = Vec::new();
    std::io::Read::read_to_end(&mut followed, &mut read).unwrap();
    assert_eq!(read, all[..8_192], "the first file is whole once another has its name");
    eventually("the rest", || {
        let last = fs::read(field.path("7.log")).unwrap();
        if last.ends_with(b"\n3000\n") { Ok(()) } else { Err(format!("{} bytes", last.len())) }
    });
    end_tree(&field.host, &supervisor.handle, true).unwrap();
    field.finish(&supervisor.handle);
}

#[test]
fn what_was_written_last_is_kept_although_the_writer_is_gone() {
    // The pipe is full when everything that wrote into it ends.
    let field = Field::new();
    let Launched { command, supervisor, gate } = field.shell("seq 1 100000; kill -9 $$");
    gate.open().unwrap();
    ended("the command", &command.handle);
    assert_eq!(field.finish(&supervisor.handle), End::Exited(Exit::Signal(9)));
    assert_eq!(fs::read(field.path("7.log")).unwrap(), lines(100_000));
}

#[test]
fn output_that_finds_no_place_does_not_hold_the_command_up() {
    let field = Field::new();
    let small = field.path("small");
    fs::create_dir(&small).unwrap();
    let Some(_mounted) = Mounted::small_tmpfs(&small) else { return };
    let mut spec = field.spec(&["sh", "-c", "seq 1 200000; echo done > ../done"]);
    spec.working_directory = small.clone();
    spec.output = OutputTo::File { path: small.join("7.log"), cap_bytes: 1 << 20 };
    assert_eq!(field.run(&spec), End::Exited(Exit::Code(0)));
    assert_eq!(field.text("done"), "done\n");
    let kept = fs::read(small.join("7.log")).unwrap();
    assert!(!kept.is_empty() && lines(200_000).starts_with(&kept), "{} bytes", kept.len());
}

#[test]
fn no_output_is_kept_where_none_is_asked_for() {
    let field = Field::new();
    let mut spec = field.spec(&["sh", "-c", "echo said; readlink /proc/self/fd/1 > there"]);
    spec.working_directory = field.directory().to_owned();
    spec.output = OutputTo::Nowhere;
    assert_eq!(field.run(&spec), End::Exited(Exit::Code(0)));
    assert!(!field.path("7.log").exists());
}
