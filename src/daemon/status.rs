//! One line for people who ask the service manager: what the daemon has in hand, and what is wrong.
//!
//! Written when something has changed, at most once a second; costs nothing while nothing does.

use std::time::Duration;

use tokio::sync::Notify;

use crate::core::state::Status;
use crate::core::view::Stats;
use crate::daemon::starter::in_full;
use crate::service::desk::{Desk, Properties};
use crate::systemd::message_id::{self, Line};
use crate::systemd::notify::Notifier;

/// Between two lines.
const APART: Duration = Duration::from_secs(1);

/// Follows the board for as long as it is let; never returns. `changed` is told of each commit.
pub async fn follow(desk: Desk, changed: std::sync::Arc<Notify>, notifier: Notifier) {
    let mut properties = desk.properties();
    let mut said = String::new();
    loop {
        let seen = properties.borrow_and_update().clone();
        match desk.all_stats().await {
            Ok(stats) => {
                let line = line(&stats, &seen);
                if line != said {
                    notifier.status(&line);
                    said = line;
                }
            }
            Err(error) => tracing::debug!(error = %in_full(&error), "no status line now"),
        }
        tokio::time::sleep(APART).await;
        tokio::select! {
            () = changed.notified() => {}
            known = properties.changed() => if known.is_err() { return },
        }
    }
}

/// Says once when something is wrong with the daemon or its host, and once when it is right again; never
/// returns.
pub async fn tell_trouble(desk: Desk) {
    let mut properties = desk.properties();
    let mut known: Vec<String> = Vec::new();
    loop {
        let seen = properties.borrow_and_update().degraded.clone();
        for cause in seen.iter().filter(|cause| !known.contains(cause)) {
            tracing::warn!(
                MESSAGE_ID = message_id::of(Line::Degraded).map(tracing::field::display),
                TENURED_CAUSE = cause,
                "degraded: {cause}; going on as well as can be"
            );
        }
        for cause in known.iter().filter(|cause| !seen.contains(cause)) {
            tracing::info!(
                MESSAGE_ID = message_id::of(Line::Well).map(tracing::field::display),
                TENURED_CAUSE = cause,
                "no longer degraded: {cause}"
            );
        }
        known = seen;
        if properties.changed().await.is_err() {
            return;
        }
    }
}

/// `3 running, 12 ready, 1 held; draining; degraded: disk_full`
pub fn line(stats: &Stats, properties: &Properties) -> String {
    let count = |status| stats.tasks.get(&status).copied().unwrap_or(0);
    let mut counts =
        vec![format!("{} running", count(Status::Running)), format!("{} ready", count(Status::Ready))];
    if stats.held > 0 {
        counts.push(format!("{} held", stats.held));
    }
    let mut line = counts.join(", ");
    if properties.draining {
        line.push_str("; draining");
    }
    if !properties.degraded.is_empty() {
        line.push_str("; degraded: ");
        line.push_str(&properties.degraded.join(", "));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_what_is_there_and_what_is_wrong() {
        let mut stats = Stats { held: 0, ..Stats::default() };
        stats.tasks.insert(Status::Running, 3);
        let mut properties = Properties::default();
        assert_eq!(line(&stats, &properties), "3 running, 0 ready");
        stats.held = 1;
        properties.draining = true;
        properties.degraded = vec!["bus_lost".to_owned(), "disk_full".to_owned()];
        assert_eq!(
            line(&stats, &properties),
            "3 running, 0 ready, 1 held; draining; degraded: bus_lost, disk_full"
        );
    }
}
