//! Connections for reading: each read is one short transaction on a blocking thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
}

struct Pool {
    idle: Mutex<Vec<Connection>>,
    closed: AtomicBool,
}

/// A connection that goes back to the pool, whatever happens to its user.
struct Lent {
    connection: Option<Connection>,
    pool: Arc<Pool>,
    _turn: OwnedSemaphorePermit,
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
        Self { pool: Arc::new(Pool { idle: Mutex::new(connections), closed: AtomicBool::new(false) }), turns }
    }

    /// Reads one consistent state.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl FnOnce(&Snapshot<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        self.whole(doing, move |connection| {
            connection.prepare_cached("BEGIN").and_then(|mut begin| begin.execute([])).doing(doing)?;
            let answer = work(&Snapshot::new(connection));
            // Nothing was written: how the transaction ends makes no difference to the board.
            let ended =
                connection.prepare_cached("ROLLBACK").and_then(|mut end| end.execute([])).doing(doing);
            answer.and_then(|answer| ended.map(|_| answer))
        })
        .await
    }

    /// Uses a connection for something that is no transaction.
    pub(super) async fn whole<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let turn = Arc::clone(&self.turns).acquire_owned().await.map_err(|_| Fault::Ended("the board"))?;
        let connection = self.pool.lock().pop().ok_or(Fault::Ended("the board"))?;
        let lent = Lent { connection: Some(connection), pool: Arc::clone(&self.pool), _turn: turn };
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

    /// Lends nothing out any more; what is lent is closed when it comes back.
    pub(super) fn close(&self) {
        self.pool.closed.store(true, Ordering::Release);
        self.turns.close();
        self.pool.lock().clear();
    }
}
