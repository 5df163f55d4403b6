//! How long a call outside the lanes may take: a connection can fall silent without an end.

use super::Postgres;
use super::lane::STATEMENT_LIMIT;
use crate::error::{Result, StoreError};
use parking_lot::Mutex;
use std::future::Future;
use std::pin::pin;
use std::time::{Duration, Instant};

/// An operator's call that has not come back after this long counts as lost: above the longest statement in one, which looks
/// through the dead letters for a selection.
const OPERATOR_LIMIT: Duration = Duration::from_secs(80);

/// When a connection was last lost or fell silent, which is to be lost without being told, as when a machine on the way forgot
/// it. The others that were open at that time are not used again.
#[derive(Default)]
pub(super) struct Trust(Mutex<Option<Instant>>);

impl Trust {
    /// A connection is gone.
    pub(super) fn broken(&self) {
        *self.0.lock() = Some(Instant::now());
    }

    /// Whether a connection of this age was opened since.
    pub(super) fn holds_for(&self, age: Duration) -> bool {
        self.0.lock().is_none_or(|at| at.elapsed() > age)
    }
}

impl Postgres {
    /// A call outside the lanes, for at most [`STATEMENT_LIMIT`]: a connection that fell silent must hold up nobody, least of
    /// all the loops that move what is due.
    pub(super) async fn look<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        let silent = || StoreError::unavailable("no answer from the server");
        self.within(STATEMENT_LIMIT, silent, call).await
    }

    /// The same for a call that changes something: whether it did is open.
    pub(super) async fn change<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        let silent = || StoreError::CommitUnknown("no answer from the server".into());
        self.within(OPERATOR_LIMIT, silent, call).await
    }

    async fn within<T>(
        &self,
        limit: Duration,
        silent: impl FnOnce() -> StoreError,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        // The call, and with it its connection, is dropped after this was noted: so it is not taken back.
        let call = pin!(call);
        let Ok(result) = tokio::time::timeout(limit, call).await else {
            self.trust.broken();
            return Err(silent());
        };
        result
    }
}
