//! A lane's own connection, and how the outcome of a lost commit is found out.
//!
//! Every batch takes effect only through its row in `commit_mark`: the batch's statement (or the first statement of its
//! transaction) sets `n` where `batcher` and `epoch` are its own, and everything else in it is joined to that. When the
//! connection dies before the answer, a new connection raises `epoch`. That waits for the old statement if it still runs,
//! and keeps it from ever taking effect if it has not begun; the `n` it reads back tells whether the batch is on disk.
//! Reading alone would not do: the old statement could still be on its way.

use super::fault::{Fault, TRIES, pause};
use super::patience::Trust;
use super::session;
use crate::error::{Result, StoreError};
use crate::known_bug;
use crate::model::Millis;
use crate::sometimes::Sometimes;
use parking_lot::Mutex;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, Executor, Row};
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, SemaphorePermit};

/// A statement that has not come back after this long counts as lost. Above the session's `statement_timeout`.
pub(super) const STATEMENT_LIMIT: Duration = Duration::from_secs(20);
/// How long the fate of a lost commit is looked for before the callers get `CommitUnknown` (product §4.1).
const RESOLVE_LIMIT: Duration = Duration::from_secs(5);

/// A lost connection, in the log.
static LOST: Sometimes = Sometimes::new();

/// The connections of one kind of batch, each used by one batch at a time.
pub(super) struct Lane {
    free: Semaphore,
    trust: Arc<Trust>,
    slots: Mutex<Vec<Slot>>,
}

/// One connection and its identity in `commit_mark`.
struct Slot {
    connection: Option<PgConnection>,
    opened: Instant,
    mark: Mark,
}

/// What a batch writes into `commit_mark`, and the counter stripe of its connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    pub(super) batcher: i64,
    pub(super) epoch: i32,
    pub(super) n: i64,
    pub(super) stripe: i16,
}

/// How an attempt ended.
pub(super) enum Verdict<T> {
    /// It has an answer.
    Done(T),
    /// Nothing happened: once more.
    Again,
    /// Nothing happened: once more with new message ids.
    IdTaken,
    /// The connection died, and the commit is on disk.
    Committed,
}

/// A slot in use. Dropped without [`Held::judge`] (a cancelled call), it gives its connection up.
pub(super) struct Held<'a> {
    lane: &'a Lane,
    slot: Option<Slot>,
    attempt: u32,
    busy: bool,
    _permit: SemaphorePermit<'a>,
}

impl Lane {
    pub(super) fn new(connections: usize, trust: &Arc<Trust>) -> Self {
        let slot = || Slot {
            connection: None,
            opened: Instant::now(),
            mark: Mark {
                batcher: rand::random(),
                epoch: 0,
                n: 0,
                stripe: rand::random_range(1..=i16::MAX),
            },
        };
        Self {
            free: Semaphore::new(connections),
            trust: trust.clone(),
            slots: Mutex::new((0..connections).map(|_| slot()).collect()),
        }
    }

    pub(super) async fn take(&self) -> Result<Held<'_>> {
        let permit = self.free.acquire().await.map_err(StoreError::unavailable)?;
        let slot = self.slots.lock().pop();
        Ok(Held {
            lane: self,
            slot,
            attempt: 0,
            busy: false,
            _permit: permit,
        })
    }

    /// Closes the connections once nobody uses them.
    pub(super) async fn close(&self) {
        self.free.close();
        let slots = std::mem::take(&mut *self.slots.lock());
        for slot in slots {
            if let Some(connection) = slot.connection {
                let _ = tokio::time::timeout(
                    Duration::from_secs(1),
                    sqlx::Connection::close(connection),
                )
                .await;
            }
        }
    }
}

impl Held<'_> {
    /// The connection, opened if need be, and the mark of the next attempt.
    pub(super) async fn begin(
        &mut self,
        options: &PgConnectOptions,
    ) -> Result<(&mut PgConnection, Mark)> {
        let slot = self
            .slot
            .as_mut()
            .ok_or_else(|| StoreError::internal("a lane without a slot"))?;
        if !self.lane.trust.holds_for(slot.opened.elapsed()) {
            slot.connection = None;
        }
        if slot.connection.is_none() {
            let opened = bounded(async { open(options, &mut slot.mark).await }).await;
            slot.connection = Some(opened.map_err(Fault::into_error)?);
            slot.opened = Instant::now();
        }
        let connection = slot
            .connection
            .as_mut()
            .ok_or_else(|| StoreError::internal("a lane without a connection"))?;
        slot.mark.n += 1;
        self.busy = true;
        Ok((connection, slot.mark))
    }

    /// Decides what an attempt's result means. `Err`: surely no effect, or [`StoreError::CommitUnknown`].
    pub(super) async fn judge<T>(
        &mut self,
        options: &PgConnectOptions,
        result: Result<T, Fault>,
    ) -> Result<Verdict<T>> {
        self.busy = false;
        self.attempt += 1;
        let (verdict, text) = match result {
            Ok(value) => return Ok(Verdict::Done(value)),
            Err(Fault::Lost(text)) => return self.resolve(options, &text).await,
            Err(Fault::Store(error)) => {
                // After an error of this kind the session itself is suspect (a standby, a full disk): begin afresh.
                self.hang_up();
                return Err(error);
            }
            Err(Fault::Again(text)) => (Verdict::Again, text),
            Err(Fault::Reopen(text)) => {
                self.hang_up();
                (Verdict::Again, text)
            }
            Err(Fault::IdTaken) => (Verdict::IdTaken, "message ids clash".to_owned()),
        };
        if self.attempt >= TRIES {
            self.hang_up();
            return Err(StoreError::unavailable(format!(
                "given up after {TRIES} attempts: {text}"
            )));
        }
        tracing::debug!(attempt = self.attempt, reason = text, "batch is repeated");
        if !self.roll_back().await {
            self.hang_up();
        }
        pause(self.attempt).await;
        Ok(verdict)
    }

    async fn roll_back(&mut self) -> bool {
        let Some(connection) = self.slot.as_mut().and_then(|s| s.connection.as_mut()) else {
            return false;
        };
        bounded(async { Ok(connection.execute("ROLLBACK").await?) })
            .await
            .is_ok()
    }

    fn hang_up(&mut self) {
        if let Some(slot) = &mut self.slot {
            slot.connection = None;
        }
    }

    async fn resolve<T>(&mut self, options: &PgConnectOptions, text: &str) -> Result<Verdict<T>> {
        if let Some(unsaid) = LOST.now() {
            tracing::warn!(
                error = text,
                unsaid,
                "connection lost during a batch; looking for its outcome"
            );
        }
        self.hang_up();
        self.lane.trust.broken();
        let Some(slot) = &mut self.slot else {
            return Err(StoreError::internal("a lane without a slot"));
        };
        let deadline = Instant::now() + RESOLVE_LIMIT;
        let mine = slot.mark.n;
        while Instant::now() < deadline {
            let left = deadline.saturating_duration_since(Instant::now());
            if let Ok(Ok((connection, found))) =
                tokio::time::timeout(left, fence(options, &mut slot.mark)).await
            {
                (slot.connection, slot.opened) = (Some(connection), Instant::now());
                return match found {
                    Some(n) if n == mine && !known_bug!("blind-rerun-of-an-unknown-commit") => {
                        Ok(Verdict::Committed)
                    }
                    Some(_) if self.attempt < TRIES => Ok(Verdict::Again),
                    Some(_) => Err(StoreError::unavailable(text)),
                    // Another server answers, one that does not know this connection: nobody can say.
                    None => Err(StoreError::CommitUnknown(text.into())),
                };
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Err(StoreError::CommitUnknown(text.into()))
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if let Some(mut slot) = self.slot.take() {
            if self.busy {
                slot.connection = None;
            }
            self.lane.slots.lock().push(slot);
        }
    }
}

/// Runs an attempt for at most [`STATEMENT_LIMIT`].
pub(super) async fn bounded<T>(
    attempt: impl Future<Output = Result<T, Fault>>,
) -> Result<T, Fault> {
    match tokio::time::timeout(STATEMENT_LIMIT, attempt).await {
        Ok(result) => result,
        Err(_) => Err(Fault::Lost("no answer from the server".to_owned())),
    }
}

pub(super) const OPEN_MARK: &str = "-- open mark
INSERT INTO commit_mark (batcher, n, at, epoch)
VALUES ($1::bigint, $2::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint, 1)
ON CONFLICT (batcher) DO UPDATE SET epoch = commit_mark.epoch + 1, at = excluded.at
RETURNING epoch";

async fn open(options: &PgConnectOptions, mark: &mut Mark) -> Result<PgConnection, Fault> {
    let mut connection = session::connect(options).await?;
    let row = sqlx::query(OPEN_MARK)
        .bind(mark.batcher)
        .bind(mark.n)
        .fetch_one(&mut connection)
        .await?;
    mark.epoch = row.try_get(0)?;
    Ok(connection)
}

pub(super) const FENCE: &str = "-- fence
UPDATE commit_mark SET epoch = epoch + 1 WHERE batcher = $1::bigint RETURNING n, epoch";

async fn fence(
    options: &PgConnectOptions,
    mark: &mut Mark,
) -> Result<(PgConnection, Option<i64>), Fault> {
    let mut connection = session::connect(options).await?;
    let Some(row) = sqlx::query(FENCE)
        .bind(mark.batcher)
        .fetch_optional(&mut connection)
        .await?
    else {
        return Ok((connection, None));
    };
    mark.epoch = row.try_get(1)?;
    Ok((connection, Some(row.try_get(0)?)))
}

/// Begins a batch's transaction and answers the store's time in it: one round trip for both.
pub(super) async fn begin_marked(
    connection: &mut PgConnection,
    mark: Mark,
    now: Option<Millis>,
) -> Result<Millis, Fault> {
    let given = now.map_or("NULL".to_owned(), |now| now.to_string());
    // Numbers only; the simple protocol takes several statements at once.
    let sql = format!(
        "BEGIN; UPDATE commit_mark SET n = {}, at = (extract(epoch FROM clock_timestamp()) * 1000)::bigint \
         WHERE batcher = {} AND epoch = {} AND current_setting('synchronous_commit') IN ('on', 'remote_apply') \
         RETURNING coalesce({given}::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)",
        mark.n, mark.batcher, mark.epoch
    );
    let rows = sqlx::raw_sql(AssertSqlSafe(sql))
        .fetch_all(&mut *connection)
        .await?;
    let Some(row) = rows.first() else {
        return Err(closed_gate());
    };
    Ok(row.try_get(0)?)
}

/// The mark's row did not match: it was swept after a long rest, or the session lost its settings. Nothing happened; a new
/// connection mends both.
pub(super) fn closed_gate() -> Fault {
    Fault::Reopen("the session lost its mark or its settings".to_owned())
}

/// Makes the transaction durable.
pub(super) async fn commit(connection: &mut PgConnection) -> Result<(), Fault> {
    connection.execute("COMMIT").await?;
    Ok(())
}
