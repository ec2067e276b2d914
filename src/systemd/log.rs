//! The log: to the journal where it is the daemon's standard error, else to standard error itself.
//!
//! Source: systemd.exec(5), `JOURNAL_STREAM`: device and inode of the stream that the manager connected.

#![expect(clippy::disallowed_methods, reason = "the manager names the stream in the environment")]

use std::io;
use std::os::fd::AsFd;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};

/// Starts it.
///
/// # Errors
/// Where a log was started before.
pub fn start() -> Result<(), TryInitError> {
    let registry = tracing_subscriber::registry().with(LevelFilter::INFO);
    let stream = std::env::var("JOURNAL_STREAM").ok();
    let journal = stream.filter(|stream| is_stream(stream, io::stderr())).and_then(|_| {
        // Without a journald to reach, standard error is as good.
        tracing_journald::layer().ok().map(|layer| layer.with_field_prefix(None))
    });
    match journal {
        Some(journal) => registry.with(journal).try_init(),
        None => {
            let plain =
                tracing_subscriber::fmt::layer().with_writer(io::stderr).with_target(false).with_ansi(false);
            registry.with(plain).try_init()
        }
    }
}

fn is_stream(stream: &str, descriptor: impl AsFd) -> bool {
    let Ok(stat) = rustix::fs::fstat(descriptor) else {
        return false;
    };
    stream
        .split_once(':')
        .is_some_and(|(device, inode)| device.parse() == Ok(stat.st_dev) && inode.parse() == Ok(stat.st_ino))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_stream_itself_is_the_journal() {
        let file = tempfile::tempfile().unwrap();
        let stat = rustix::fs::fstat(&file).unwrap();
        assert!(is_stream(&format!("{}:{}", stat.st_dev, stat.st_ino), &file));
        assert!(!is_stream(&format!("{}:{}", stat.st_dev, stat.st_ino + 1), &file));
        assert!(!is_stream("nonsense", &file));
    }
}
