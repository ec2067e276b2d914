//! The files of one start, made by the daemon and handed over open: record, output, sealed spec.

#![expect(clippy::disallowed_methods, reason = "an adapter: makes the files of a run")]

use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{FallocateFlags, Mode, OFlags};

use crate::core::record::RECORD_BYTES;
use crate::linux::launch_spec::{LaunchSpec, OutputTo};
use crate::linux::wire::{self, ForCommand, ForSupervisor, ResourceLimit};

/// Makes the record's file with all its space, so that a full disk cannot swallow the end of a run.
pub(super) fn make_record(path: &Path) -> io::Result<File> {
    let mut file = File::options().read(true).write(true).create_new(true).mode(0o600).open(path)?;
    let bytes = RECORD_BYTES as u64;
    if rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes).is_err() {
        file.write_all(&[0; RECORD_BYTES])?;
    }
    Ok(file)
}

/// The output file and its directory, for the supervisor that will change the files' places in it.
pub(super) fn open_output(output: &OutputTo) -> io::Result<Option<(OwnedFd, File)>> {
    let OutputTo::File { path, .. } = output else { return Ok(None) };
    let directory = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(directory, flags, Mode::empty())?;
    let file = File::options().append(true).create(true).mode(0o640).open(path)?;
    // Whatever the daemon's umask is.
    file.set_permissions(Permissions::from_mode(0o640))?;
    Ok(Some((directory, file)))
}

pub(super) fn seal(spec: &LaunchSpec, limits: &[ResourceLimit], journal: &Path) -> io::Result<OwnedFd> {
    if !spec.environment.contains(&format!("TENURED_NONCE={}", spec.nonce)) {
        let missing = "the environment does not carry the run's nonce, by which its processes are found";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, missing));
    }
    let text = |path: &Path| {
        path.to_str().map(str::to_owned).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))
    };
    let output_file = match &spec.output {
        OutputTo::File { path, cap_bytes } => {
            let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
            Some((text(Path::new(name))?, *cap_bytes))
        }
        OutputTo::Nowhere | OutputTo::Journal { .. } => None,
    };
    let stream = match &spec.output {
        OutputTo::Journal { identifier, unit } => {
            Some((text(journal)?, identifier.clone(), unit.clone().unwrap_or_default()))
        }
        OutputTo::Nowhere | OutputTo::File { .. } => None,
    };
    let supervisor =
        ForSupervisor { run: spec.run.get(), nonce: spec.nonce.as_str().to_owned(), output_file };
    let credentials = spec.credentials.clone().map(|ids| (ids.uid, ids.gid, ids.groups));
    let command = ForCommand {
        argv: spec.argv.clone(),
        environment: spec.environment.clone(),
        credentials,
        working_directory: text(&spec.working_directory)?,
        stdin: spec.stdin.as_deref().map(text).transpose()?,
        nice: spec.nice,
        no_new_privileges: spec.no_new_privileges,
        limits: limits.to_vec(),
        journal: stream,
    };
    wire::seal(&supervisor, &command)
}
