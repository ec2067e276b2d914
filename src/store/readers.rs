//! Connections for reading: each read is one short transaction on a blocking thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use std::sync::Mutex;

use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::core::fault::{Error, Fault};
use crate::store::Snapshot;
use crate::store::sql::Doing;

/// The pool.
pub(super) struct Readers {
    pool: Arc<Pool>,
    turns: Arc<Semaphore>,
    pages: Arc<Semaphore>,
}

struct Pool {
    idle: Mutex<Vec<Connection>>,
    closed: AtomicBool,
    reading: AtomicU64,
}

/// One read, from the moment it is asked for to its end.
struct Reading(Arc<Pool>);

impl Reading {
    fn begin(pool: &Arc<Pool>) -> Self {
        pool.reading.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(pool))
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.reading.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A connection that goes back to the pool, whatever happens to its user.
struct Lent {
    connection: Option<Connection>,
    pool: Arc<Pool>,
    _turn: OwnedSemaphorePermit,
    _page: Option<OwnedSemaphorePermit>,
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take()
            && !self.pool.closed.load(Ordering::Acquire)
        {
            self.pool.lock().push(connection);
        }
    }
}

impl Pool {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        // The list is whole at every moment: a panic elsewhere does not spoil it.
        self.idle.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Readers {
    /// Lends these connections out.
    pub(super) fn new(connections: Vec<Connection>) -> Self {
        let turns = Arc::new(Semaphore::new(connections.len()));
        let pages = Arc::new(Semaphore::new(connections.len().saturating_sub(1).max(1)));
        let pool = Arc::new(Pool {
            idle: Mutex::new(connections),
            closed: AtomicBool::new(false),
            reading: AtomicU64::new(0),
        });
        Self { pool, turns, pages }
    }

    /// Reads one consistent state.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl FnOnce(&Snapshot<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        self.lend(doing, None, move |connection| in_snapshot(connection, doing, work)).await
    }

    /// As [`Readers::read`], for what may take long: one connection always remains for what is short, so that
    /// no number of lists holds up the daemon's own look at what is due.
    pub(super) async fn read_page<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl FnOnce(&Snapshot<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        self.whole(doing, move |connection| in_snapshot(connection, doing, work)).await
    }

    /// Uses a connection, as long as it takes, for something that is no transaction.
    pub(super) async fn whole<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let page = Arc::clone(&self.pages).acquire_owned().await.map_err(|_| Fault::Ended("the board"))?;
        self.lend(doing, Some(page), work).await
    }

    async fn lend<T: Send + 'static>(
        &self,
        doing: &'static str,
        page: Option<OwnedSemaphorePermit>,
        work: impl FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let _reading = Reading::begin(&self.pool);
        let turn = Arc::clone(&self.turns).acquire_owned().await.map_err(|_| Fault::Ended("the board"))?;
        let connection = self.pool.lock().pop().ok_or(Fault::Ended("the board"))?;
        let lent =
            Lent { connection: Some(connection), pool: Arc::clone(&self.pool), _turn: turn, _page: page };
        let answer = tokio::task::spawn_blocking(move || {
            let connection = lent.connection.as_ref().ok_or(Fault::Ended("the board"))?;
            if !connection.is_autocommit() {
                // A work that panicked left its transaction behind.
                connection.execute_batch("ROLLBACK").doing(doing)?;
            }
            work(connection)
        });
        answer.await.unwrap_or_else(|ended| Err(crate::store::sql::fault(doing, ended)))
    }

    /// Reads that wait or are being done.
    pub(super) fn reading(&self) -> u64 {
        self.pool.reading.load(Ordering::Acquire)
    }

    /// Lends nothing out any more; what is lent is closed when it comes back.
    pub(super) fn close(&self) {
        self.pool.closed.store(true, Ordering::Release);
        self.turns.close();
        self.pages.close();
        self.pool.lock().clear();
    }
}

fn in_snapshot<T>(
    connection: &Connection,
    doing: &'static str,
    work: impl FnOnce(&Snapshot<'_>) -> Result<T, Error>,
) -> Result<T, Error> {
    connection.prepare_cached("BEGIN").and_then(|mut begin| begin.execute([])).doing(doing)?;
    let answer = work(&Snapshot::new(connection));
    // Nothing was written: how the transaction ends makes no difference to the board.
    let ended = connection.prepare_cached("ROLLBACK").and_then(|mut end| end.execute([])).doing(doing);
    answer.and_then(|answer| ended.map(|_| answer))
}

#[cfg(test)]
mod tests {
    use crate::store::settings;
    use crate::store::testing::Board;

    #[tokio::test]
    async fn lists_never_take_every_connection() {
        let board = Board::new();
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let wait = std::sync::Arc::new(std::sync::Mutex::new(wait));
        let lists = (0..4).map(|_| {
            let wait = std::sync::Arc::clone(&wait);
            board.store.read_page("a long list", move |_| {
                wait.lock().unwrap().recv().unwrap();
                Ok(())
            })
        });
        let short = async {
            let look = board.store.read("a look", settings::is_draining);
            let answer = tokio::time::timeout(std::time::Duration::from_secs(20), look).await;
            // Whatever became of it: the lists end.
            for _ in 0..4 {
                go.send(()).unwrap();
            }
            assert!(!answer.expect("the look waited for the lists").unwrap());
        };
        // The lists ask first.
        let (lists, ()) = tokio::join!(futures_util::future::join_all(lists), short);
        assert_eq!(lists.len(), 4);
    }
}
