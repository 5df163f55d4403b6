//! The embedded store: one SQLite file, one writer.
//!
//! Reading order: this file (open, close, who runs where) → [`writer`] (one transaction and one fsync per cycle) →
//! [`publish`] → [`receive`] → [`settle`] → [`drafts`] (load a message) and [`mod@write`] and [`ends`] (write what the rules made of it) → [`request_ids`] → [`due`] →
//! [`operate`] and [`queue_changes`] → [`queues`], [`browse`], [`keys`], [`maintenance`], [`forget`], [`rows`].
//!
//! The operators' desk: [`walk`] (dead letters by the best index) → [`dead_letters`] (listings, groups) → [`selections`] →
//! [`redrives`] and their [`steps`] → [`revisions`], [`audit`].
//!
//! Why rusqlite and not sqlx here: the writer runs about ten statements per cycle, and sqlx moves each of them to another
//! thread and back. Measured on two cores: 1,128 µs against 175–225 µs for a single lifecycle, twice the CPU at 64. The
//! readers share the writer's row mapping, so they use the same driver; sqlx runs the migrations. Both link the same bundled
//! SQLite.

mod audit;
mod browse;
mod dead_letters;
mod drafts;
mod due;
mod ends;
mod forget;
mod keys;
mod maintenance;
mod operate;
#[cfg(test)]
mod plans;
mod publish;
mod queue_changes;
mod queues;
mod receive;
mod redrives;
mod request_ids;
mod revisions;
mod rows;
mod selections;
mod settle;
mod steps;
mod walk;
mod write;
mod writer;

use crate::audit::{AuditPage, AuditQuery};
use crate::backend::{
    Backend, Batch, BatchOutcome, Browse, Call, Detail, Facts, Keep, KeyRecord, Kinds, Lane, Moved,
    Operated, Operation, Page, QueueNumbers,
};
use crate::dead_letters::{DeadFilter, DeadGroups, DeadListing, Selection, SelectionId};
use crate::error::{Result, StoreError};
use crate::known_bug;
use crate::model::{MessageId, Millis, Queue, QueueUid};
use crate::redrives::{Redrive, RedriveId, RedriveListing, Stepped};
use async_trait::async_trait;
use parking_lot::{Mutex, RwLock};
use rusqlite::{Connection, OpenFlags};
use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use writer::Writer;

/// Oldest SQLite accepted: 3.51.3 fixes a bug that could corrupt a database in WAL mode when two connections write or
/// checkpoint at once (sqlite.org, "WAL reset bug", versions 3.7.0 to 3.51.2).
const MIN_SQLITE: i32 = 3_051_003;
/// Items of one cycle: at about 15 µs each an fsync is paid every 8 ms at the latest.
const MAX_ITEMS: usize = 512;
/// Payload of one cycle.
const MAX_BYTES: usize = 8 << 20;

/// The embedded store.
pub struct Sqlite {
    inner: Arc<Inner>,
    facts: Facts,
}

pub(crate) struct Inner {
    path: PathBuf,
    writer: Mutex<Option<Writer>>,
    readers: Mutex<Vec<Connection>>,
    /// Ready messages per queue after the last commit: exact, since there is one writer.
    ready: RwLock<HashMap<QueueUid, i64>>,
    closing: AtomicBool,
    _lock: File,
}

/// Opens, and where needed creates, the database file at `path`; runs the migrations.
///
/// # Errors
/// [`StoreError::Unavailable`] when another process has the file, the disk refuses, or SQLite is too old.
pub async fn open(path: &Path) -> Result<Arc<dyn Backend>> {
    if rusqlite::version_number() < MIN_SQLITE {
        return Err(StoreError::unavailable(format!(
            "SQLite {} is too old: 3.51.3 is needed",
            rusqlite::version()
        )));
    }
    let lock = lock(path)?;
    migrate(path).await?;
    let path = path.to_path_buf();
    let opened = tokio::task::spawn_blocking(move || -> Result<(Inner, Facts)> {
        let connection = connect(&path, false)?;
        let (writer, facts) = Writer::new(connection)?;
        let ready = RwLock::new(writer.ready_counts());
        let inner = Inner {
            path,
            writer: Mutex::new(Some(writer)),
            readers: Mutex::new(Vec::new()),
            ready,
            closing: AtomicBool::new(false),
            _lock: lock,
        };
        Ok((inner, facts))
    });
    let (inner, facts) = opened.await.map_err(StoreError::internal)??;
    let inner = Arc::new(inner);
    maintenance::spawn_checkpointer(Arc::downgrade(&inner), &inner.path)?;
    Ok(Arc::new(Sqlite { inner, facts }))
}

/// Only one process may have the file: two would each keep counts of their own.
fn lock(path: &Path) -> Result<File> {
    let mut name = path.as_os_str().to_os_string();
    name.push(".lock");
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&name)
        .map_err(StoreError::unavailable)?;
    file.try_lock().map_err(|_| {
        StoreError::unavailable(format!(
            "another process has {} open; one SQLite file serves one process",
            path.display()
        ))
    })?;
    Ok(file)
}

async fn migrate(path: &Path) -> Result<()> {
    use sqlx::ConnectOptions;
    use sqlx::sqlite::{SqliteAutoVacuum, SqliteConnectOptions, SqliteJournalMode};
    let url = format!("sqlite://{}", path.display());
    let options = SqliteConnectOptions::from_str(&url)
        .map_err(StoreError::unavailable)?
        .create_if_missing(true)
        .auto_vacuum(SqliteAutoVacuum::Incremental)
        .journal_mode(SqliteJournalMode::Wal);
    let mut connection = options.connect().await.map_err(StoreError::unavailable)?;
    sqlx::migrate!("../migrations/sqlite")
        .run(&mut connection)
        .await
        .map_err(StoreError::unavailable)?;
    sqlx::Connection::close(connection)
        .await
        .map_err(StoreError::unavailable)
}

/// A connection with our settings, read back where durability depends on them.
fn connect(path: &Path, read_only: bool) -> Result<Connection> {
    let access = if read_only {
        OpenFlags::SQLITE_OPEN_READ_ONLY
    } else {
        OpenFlags::SQLITE_OPEN_READ_WRITE
    };
    let connection = Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)
        .map_err(StoreError::unavailable)?;
    #[cfg(test)]
    plans::trace(&connection);
    connection.set_prepared_statement_cache_capacity(256);
    let pragma = |name: &str, value: &str| {
        connection
            .pragma_update(None, name, value)
            .map_err(StoreError::unavailable)
    };
    pragma("busy_timeout", "5000")?;
    pragma("temp_store", "MEMORY")?;
    pragma("mmap_size", "0")?;
    if read_only {
        pragma("query_only", "ON")?;
        pragma("cache_size", "-2048")?;
        return Ok(connection);
    }
    // Statistics taken of an empty table make the planner read it from end to end once it is full. Without any, every
    // statement here goes by an index.
    connection
        .execute_batch("DROP TABLE IF EXISTS sqlite_stat1; DROP TABLE IF EXISTS sqlite_stat4")
        .map_err(StoreError::unavailable)?;
    let careless = known_bug!("synchronous-normal");
    pragma("synchronous", if careless { "NORMAL" } else { "FULL" })?;
    pragma("foreign_keys", "OFF")?;
    // The checkpointer works beside the writer, on its own connection.
    pragma("wal_autocheckpoint", "0")?;
    pragma("journal_size_limit", "100663296")?;
    // At most 32 MiB, taken as it is needed. A larger one costs more than it saves: a commit that split a page walks over the
    // whole table of cached pages (4.7 % of the server's time at 64 MiB).
    pragma("cache_size", "-32768")?;
    let journal: String = connection
        .pragma_query_value(None, "journal_mode", |r| r.get(0))
        .map_err(StoreError::unavailable)?;
    let synchronous: i64 = connection
        .pragma_query_value(None, "synchronous", |r| r.get(0))
        .map_err(StoreError::unavailable)?;
    if journal != "wal" || (synchronous != 2 && !careless) {
        return Err(StoreError::unavailable(format!(
            "journal_mode is {journal} and synchronous is {synchronous}; wal and 2 (FULL) are needed for durable answers"
        )));
    }
    Ok(connection)
}

impl Inner {
    /// Runs `work` with the writer, then publishes the counts of ready messages.
    fn write<T>(&self, work: impl FnOnce(&mut Writer) -> Result<T>) -> Result<T> {
        let mut guard = self.writer.lock();
        let writer = guard.as_mut().ok_or(StoreError::Draining)?;
        let result = work(writer);
        let touched = writer.take_touched();
        if !touched.is_empty() {
            let mut ready = self.ready.write();
            ready.extend(touched);
        }
        result
    }

    /// Runs `work` in one read transaction on a reader connection.
    fn read<T>(&self, work: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        let pooled = self.readers.lock().pop();
        let connection = match pooled {
            Some(connection) => connection,
            None => connect(&self.path, true)?,
        };
        connection.execute_batch("BEGIN").map_err(rows::failed)?;
        let result = work(&connection);
        let ended = connection.execute_batch("COMMIT").map_err(rows::failed);
        // A connection in doubt is dropped; the next reader opens a new one.
        if ended.is_ok() {
            self.readers.lock().push(connection);
        }
        result
    }
}

impl Sqlite {
    /// Runs blocking work with the writer off the async threads.
    async fn with_writer<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Writer) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let inner = self.inner.clone();
        tokio::task::spawn_blocking(move || inner.write(work))
            .await
            .map_err(StoreError::internal)?
    }

    async fn with_reader<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let inner = self.inner.clone();
        tokio::task::spawn_blocking(move || inner.read(work))
            .await
            .map_err(StoreError::internal)?
    }

    /// Moves what is due, so that a read sees the state at its own time. Costs nothing when nothing is due.
    async fn settle_time(&self, now: Option<Millis>) -> Result<Millis> {
        self.with_writer(move |writer| writer.catch_up(now)).await
    }
}

#[async_trait]
impl Backend for Sqlite {
    /// Blocks: the lane runs on a thread of its own.
    async fn apply(&self, batch: &Batch, now: Option<Millis>) -> Result<BatchOutcome> {
        self.inner.write(|writer| writer.apply(batch, now))
    }

    async fn move_due(&self, now: Option<Millis>) -> Result<Moved> {
        self.with_writer(move |writer| writer.move_due(now)).await
    }

    async fn operate(
        &self,
        call: &Call,
        operation: Operation,
        now: Option<Millis>,
    ) -> Result<Operated> {
        let call = call.clone();
        let Operation::Select { queue, filter } = operation else {
            return self
                .with_writer(move |writer| writer.operate(&call, &operation, None, now))
                .await;
        };
        let inner = self.inner.clone();
        tokio::task::spawn_blocking(move || {
            selections::select(&inner, &call, (queue, *filter), now)
        })
        .await
        .map_err(StoreError::internal)?
    }

    async fn queue(&self, name: &str) -> Result<Option<Queue>> {
        let name = name.to_owned();
        self.with_writer(move |writer| Ok(writer.queue_named(&name)))
            .await
    }

    async fn queue_by_uid(&self, uid: QueueUid) -> Result<Option<(Queue, bool)>> {
        self.with_writer(move |writer| Ok(writer.queue_by_uid(uid)))
            .await
    }

    async fn queues(&self, after: Option<&str>, limit: u32) -> Result<Vec<Queue>> {
        let after = after.map(str::to_owned);
        self.with_writer(move |writer| Ok(writer.list_queues(after.as_deref(), limit)))
            .await
    }

    async fn numbers(&self, queue: QueueUid, now: Option<Millis>) -> Result<QueueNumbers> {
        self.with_writer(move |writer| writer.numbers(queue, now))
            .await
    }

    async fn browse(&self, browse: Browse, now: Option<Millis>) -> Result<Page> {
        let asked = browse.request_id.as_ref().map(|r| (browse.queue, r.digest));
        let owner = self
            .with_writer(move |writer| {
                writer.catch_up(now)?;
                asked.map_or(Ok(None), |id| writer.request_id(id))
            })
            .await?
            .map(|taken| MessageId(taken.seq));
        self.with_reader(move |connection| browse::page(connection, &browse, owner))
            .await
    }

    async fn message(&self, id: MessageId, now: Option<Millis>) -> Result<Option<Detail>> {
        self.settle_time(now).await?;
        self.with_reader(move |connection| browse::detail(connection, id))
            .await
    }

    async fn poll(&self, _waiting: &[QueueUid]) -> Result<Vec<QueueUid>> {
        Ok(Vec::new())
    }

    async fn dead_letters(&self, listing: &DeadListing, now: Option<Millis>) -> Result<Page> {
        let listing = listing.clone();
        self.settle_time(now).await?;
        self.with_reader(move |connection| dead_letters::page(connection, &listing))
            .await
    }

    async fn dead_groups(
        &self,
        queues: Option<&[QueueUid]>,
        filter: &DeadFilter,
        limit: u32,
        now: Option<Millis>,
    ) -> Result<DeadGroups> {
        let (queues, filter) = (queues.map(<[_]>::to_vec), filter.clone());
        self.settle_time(now).await?;
        self.with_reader(move |connection| {
            dead_letters::groups(connection, queues.as_deref(), &filter, limit)
        })
        .await
    }

    async fn selection(&self, id: SelectionId) -> Result<Option<Selection>> {
        self.with_reader(move |connection| {
            let found = selections::find(connection, id)?;
            Ok(found.map(|(selection, _)| selection))
        })
        .await
    }

    async fn redrive(&self, id: RedriveId) -> Result<Option<Redrive>> {
        self.with_reader(move |connection| redrives::find(connection, id))
            .await
    }

    async fn redrives(&self, listing: &RedriveListing) -> Result<Vec<Redrive>> {
        let listing = listing.clone();
        self.with_reader(move |connection| redrives::list(connection, &listing))
            .await
    }

    async fn step_redrives(&self, now: Option<Millis>) -> Result<Stepped> {
        self.with_writer(move |writer| writer.step_redrives(now))
            .await
    }

    async fn audit(&self, query: &AuditQuery) -> Result<AuditPage> {
        let query = query.clone();
        self.with_reader(move |connection| audit::page(connection, &query))
            .await
    }

    async fn maintain(&self, keep: &Keep, now: Option<Millis>) -> Result<bool> {
        let keep = *keep;
        self.with_writer(move |writer| writer.maintain(keep, now))
            .await
    }

    async fn keys(&self) -> Result<Vec<KeyRecord>> {
        self.with_reader(keys::all).await
    }

    async fn add_key(&self, call: &Call, key: KeyRecord, only_first: bool) -> Result<bool> {
        let call = call.clone();
        self.with_writer(move |writer| writer.add_key(&call, &key, only_first))
            .await
    }

    async fn revoke_key(&self, call: &Call, id: &str, now: Option<Millis>) -> Result<bool> {
        let (call, id) = (call.clone(), id.to_owned());
        self.with_writer(move |writer| writer.revoke_key(&call, &id, now))
            .await
    }

    async fn rotate_key(
        &self,
        call: &Call,
        id: &str,
        ends_at: Millis,
        new: KeyRecord,
    ) -> Result<bool> {
        let (call, id) = (call.clone(), id.to_owned());
        self.with_writer(move |writer| writer.rotate_key(&call, &id, ends_at, &new))
            .await
    }

    async fn touch_keys(&self, used: &[(Arc<str>, Millis)]) -> Result<()> {
        let used = used.to_vec();
        self.with_writer(move |writer| writer.touch_keys(&used))
            .await
    }

    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn lanes(&self) -> Vec<Lane> {
        let kinds = Kinds {
            settles: true,
            publishes: true,
            receives: true,
        };
        vec![Lane {
            kinds,
            dedicated: true,
            max_items: MAX_ITEMS,
            max_bytes: MAX_BYTES,
        }]
    }

    fn maybe_ready(&self, queue: QueueUid) -> Option<bool> {
        self.inner.ready.read().get(&queue).map(|ready| *ready > 0)
    }

    async fn check(&self) -> Result<()> {
        self.with_writer(writer::Writer::check).await
    }

    async fn close(&self) {
        let inner = self.inner.clone();
        inner.closing.store(true, Ordering::Relaxed);
        let closed = tokio::task::spawn_blocking(move || {
            inner.readers.lock().clear();
            if let Some(writer) = inner.writer.lock().take() {
                writer.close();
            }
        });
        if closed.await.is_err() {
            tracing::warn!("the store did not close cleanly");
        }
    }
}
