//! What the daemon does when the host goes down, stays up, sleeps or wakes.

use tokio::sync::oneshot;

use crate::core::fault::Error;
use crate::core::record::End;
use crate::core::retry::Exit;
use crate::core::time::MonoMs;
use crate::core::verdict::{Release, Verdict};
use crate::daemon::engine::Engine;
use crate::daemon::judge::Judged;
use crate::store::boots;
use crate::systemd::host::{Host, News};
use crate::systemd::message_id::{self, Line};

/// Sweeps rest no longer than this before a sleep that then does not come; the clock stands still in sleep.
const REST_MS: i64 = 30_000;

/// So long the news of a shutdown may have been on its way.
const HEARD_LATE_MS: i64 = 1_000;

/// So soon a stamp that the board could not take is tried again.
const STAMP_AGAIN_MS: i64 = 500;

/// A stamp of a shutdown that is not on the board yet.
pub(super) struct Owed {
    since: MonoMs,
    /// When it is tried again.
    pub(super) due: MonoMs,
    /// Who holds the shutdown up until then.
    waits: Option<oneshot::Sender<()>>,
}

impl Engine {
    /// Who can be asked about the host from now on.
    pub fn know(&mut self, host: Host) {
        self.host = Some(host);
    }

    /// Where a worker may have been ended by a signal that nobody of us sent, the host is asked first whether
    /// it goes down: the manager ends workers as soon as it says so, and either may be heard first. Whether it
    /// does.
    pub(super) async fn is_hosts_doing(&mut self, judged: &[Judged]) -> Result<bool, Error> {
        if self.shutdown.is_some() || !judged.iter().any(is_ended_by_others) {
            return Ok(false);
        }
        let Some(host) = &self.host else { return Ok(false) };
        if host.is_stopping().await != Some(true) {
            return Ok(false);
        }
        self.host_stops().await.map(|()| true)
    }

    /// Does what the news mean, and answers once the board has it: a stamp that it could not take is owed, and
    /// so is the answer.
    ///
    /// # Errors
    /// A fault of the board.
    pub async fn hear(&mut self, news: News, done: Option<oneshot::Sender<()>>) -> Result<(), Error> {
        let heard = self.heed(news).await;
        match (&mut self.stamp, done) {
            (Some(owed), Some(done)) if news == News::Stops => owed.waits = Some(done),
            // Whoever waits no longer does not mind.
            (_, Some(done)) => drop(done.send(())),
            (_, None) => {}
        }
        heard
    }

    async fn heed(&mut self, news: News) -> Result<(), Error> {
        match news {
            News::Stops => self.host_stops().await,
            News::Stays => self.host_stays().await,
            News::Sleeps => {
                tracing::info!("the host is about to sleep; sweeps rest");
                self.rest_until = Some(self.now().plus(REST_MS));
                Ok(())
            }
            News::Wakes => {
                tracing::info!("the host is awake; every lease that ran out meanwhile gets a fresh period");
                self.rest_until = None;
                self.look_anew();
                Ok(())
            }
        }
    }

    /// Nothing is started any more, and what ends from now on without a word of its worker is lost.
    async fn host_stops(&mut self) -> Result<(), Error> {
        if self.shutdown.is_none() {
            // The manager may have begun to end workers a little before it says so.
            let since = self.now().plus(-HEARD_LATE_MS);
            // At once, whatever the board says to it.
            self.shutdown = Some(since);
            self.stamp = Some(Owed { since, due: since, waits: None });
            tracing::info!(
                MESSAGE_ID = message_id::of(Line::HostStops).map(tracing::field::display),
                "the host goes down; nothing more is started, and what ends now is not the task's fault"
            );
        }
        self.stamp().await
    }

    /// Tries once more to stamp, where that is due.
    pub(super) async fn stamp_if_due(&mut self, now: MonoMs) -> Result<(), Error> {
        if self.stamp.as_ref().is_some_and(|owed| owed.due <= now) { self.stamp().await } else { Ok(()) }
    }

    /// Writes the stamp of a shutdown where it is owed; one that the board cannot take is tried again soon.
    async fn stamp(&mut self) -> Result<(), Error> {
        let mut when = self.desk.when();
        let next = when.now.mono.plus(STAMP_AGAIN_MS);
        let Some(owed) = &mut self.stamp else { return Ok(()) };
        owed.due = next;
        when.now.mono = owed.since;
        self.store.write_end("the stamp of a shutdown", move |tx| boots::begin_shutdown(tx, &when)).await?;
        if let Some(waits) = self.stamp.take().and_then(|owed| owed.waits) {
            // Whoever waits no longer does not mind.
            let _ = waits.send(());
        }
        Ok(())
    }

    async fn host_stays(&mut self) -> Result<(), Error> {
        if self.shutdown.is_none() {
            return Ok(());
        }
        let boot = self.desk.when().boot;
        self.store.write_end("that the host stays", move |tx| boots::call_off_shutdown(tx, boot)).await?;
        (self.shutdown, self.stamp) = (None, None);
        tracing::info!(
            MESSAGE_ID = message_id::of(Line::HostStays).map(tracing::field::display),
            "the host stays up; going on"
        );
        Ok(())
    }

    /// Until when sweeps rest, if they do.
    pub(super) fn rests_until(&self, now: MonoMs) -> Option<MonoMs> {
        self.rest_until.filter(|until| now < *until)
    }
}

fn is_ended_by_others(judged: &Judged) -> bool {
    let launched = judged.row.run.as_ref().is_some_and(|run| run.launched);
    let end = judged.observed.record.as_ref().map(|record| record.end);
    may_be_by_others(judged.verdict, launched, end)
}

/// Whether a run is about to end by more than its worker's own success. One that catches TERM may exit with
/// any status.
fn may_be_by_others(verdict: Verdict, launched: bool, end: Option<End>) -> bool {
    match verdict {
        Verdict::Release { why: Release::Crashed, .. } => true,
        Verdict::Release { why: Release::Record, .. } => {
            launched && matches!(end, Some(End::Exited(exit)) if exit != Exit::Code(0))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_catches_term_and_says_anything_but_success_may_be_ended_by_the_host() {
        let ends = |why, end| may_be_by_others(Verdict::Release { why, survivor: false }, true, end);
        for exit in [Exit::Signal(15), Exit::Code(1), Exit::Code(143)] {
            assert!(ends(Release::Record, Some(End::Exited(exit))), "{exit:?}");
        }
        assert!(ends(Release::Crashed, None));
        assert!(!ends(Release::Record, Some(End::Exited(Exit::Code(0)))));
        assert!(!ends(Release::TimedOut, Some(End::Exited(Exit::Signal(15)))));
        assert!(!may_be_by_others(Verdict::Keep, true, None));
    }
}
