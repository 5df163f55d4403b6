//! Queues as callers see them, and their exact numbers.

use super::Postgres;
use super::fault::{Fault, Now};
use super::rows::{self, Known, queue_columns};
use crate::backend::QueueNumbers;
use crate::error::{Result, StoreError};
use crate::model::{Counts, Queue, QueueUid};
use parking_lot::Mutex;
use sqlx::Row;
use sqlx::postgres::{PgConnection, PgRow};
use std::collections::HashMap;
use std::sync::Arc;

/// Queue rows by number, to spare the parsing of policies. Every use compares the version with the row that a statement has
/// just read, so an old entry is never acted upon.
#[derive(Default)]
pub(super) struct Cache {
    rows: Mutex<HashMap<i32, Arc<Known>>>,
}

impl Cache {
    /// The incarnation that a queue had when it was last looked at.
    pub(super) fn live_id(&self, uid: QueueUid) -> i64 {
        let rows = self.rows.lock();
        rows.get(&uid.0)
            .map_or(-1, |known| i64::from(known.live_id))
    }
}

pub(super) const BY_UID: &str = concat!(
    "-- queue by uid\nSELECT ",
    queue_columns!(),
    " FROM queue WHERE uid = $1::int"
);

pub(super) const BY_NAME: &str = concat!(
    "-- queue by name\nSELECT ",
    queue_columns!(),
    " FROM queue WHERE name = $1::text AND NOT deleted"
);

pub(super) const BEHIND: &str = concat!(
    "-- queues\nSELECT ",
    queue_columns!(),
    " FROM queue WHERE name > $1::text AND NOT deleted ORDER BY name LIMIT $2::bigint"
);

// The gauges of an incarnation that is not the queue's own any more are what a purge took. One statement, so one snapshot.
pub(super) const NUMBERS: &str = "-- numbers
SELECT c.*,
    (SELECT min(r.at) FROM generate_series(0, 9) AS p(rank) CROSS JOIN LATERAL (
        SELECT available_at AS at FROM ready WHERE queue_id = k.live_id AND rank = p.rank::smallint
        ORDER BY available_at, seq LIMIT 1) r) AS oldest_ready,
    (SELECT died_at FROM dead WHERE queue_id = k.dead_id ORDER BY died_at, seq LIMIT 1) AS oldest_dead,
    coalesce($2::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
FROM (SELECT live_id, dead_id FROM queue WHERE uid = $1::int) k
CROSS JOIN LATERAL (
    SELECT coalesce(sum(delayed) FILTER (WHERE queue_id = k.live_id), 0)::bigint,
        coalesce(sum(ready) FILTER (WHERE queue_id = k.live_id), 0)::bigint,
        coalesce(sum(leased) FILTER (WHERE queue_id = k.live_id), 0)::bigint,
        coalesce(sum(dead) FILTER (WHERE queue_id = k.dead_id), 0)::bigint,
        coalesce(sum(accepted), 0)::bigint, coalesce(sum(reopened), 0)::bigint, coalesce(sum(acked), 0)::bigint,
        coalesce(sum(discarded), 0)::bigint,
        (coalesce(sum(purged), 0)
            + coalesce(sum(delayed + ready + leased) FILTER (WHERE queue_id <> k.live_id), 0)
            + coalesce(sum(dead) FILTER (WHERE queue_id <> k.dead_id), 0))::bigint,
        coalesce(sum(dead_letter_expired), 0)::bigint, coalesce(sum(delivered), 0)::bigint,
        coalesce(sum(redriven), 0)::bigint
    FROM counter WHERE uid = $1::int) c";

// From the counters, not from the rows: a queue that was busy leaves dead index entries behind, which every poll would walk.
pub(super) const READY_AMONG: &str = "-- poll
SELECT k.uid FROM unnest($1::int[]) AS w(uid)
CROSS JOIN LATERAL (SELECT uid, live_id FROM queue k WHERE k.uid = w.uid AND NOT paused AND NOT deleted LIMIT 1) k
CROSS JOIN LATERAL (SELECT sum(ready) AS ready FROM counter WHERE queue_id = k.live_id) c
WHERE c.ready > 0";

pub(super) const WRITABLE: &str = "-- check
SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean";

/// Reads twelve counts that begin at column `at`.
pub(super) fn counts(row: &PgRow, at: usize) -> Result<Counts, Fault> {
    Ok(Counts {
        delayed: row.try_get(at)?,
        ready: row.try_get(at + 1)?,
        leased: row.try_get(at + 2)?,
        dead: row.try_get(at + 3)?,
        accepted: row.try_get(at + 4)?,
        reopened: row.try_get(at + 5)?,
        acked: row.try_get(at + 6)?,
        discarded: row.try_get(at + 7)?,
        purged: row.try_get(at + 8)?,
        dead_letter_expired: row.try_get(at + 9)?,
        delivered: row.try_get(at + 10)?,
        redriven: row.try_get(at + 11)?,
    })
}

impl Postgres {
    /// The queue in this version, from the cache or the store. A version that passed meanwhile asks for a fresh snapshot.
    pub(super) async fn known(
        &self,
        connection: &mut PgConnection,
        uid: i32,
        version: i64,
    ) -> Result<Arc<Known>, Fault> {
        let cached = self.cache.rows.lock().get(&uid).cloned();
        if let Some(known) = cached.filter(|k| k.queue.version == version) {
            return Ok(known);
        }
        let row = sqlx::query(BY_UID)
            .bind(uid)
            .fetch_optional(connection)
            .await?;
        let known = row.map(|row| self.remember(&row)).transpose()?;
        known
            .filter(|k| k.queue.version == version)
            .ok_or_else(|| Fault::moved("a queue"))
    }

    fn remember(&self, row: &PgRow) -> Result<Arc<Known>, Fault> {
        let known = Arc::new(rows::known(row)?);
        self.cache
            .rows
            .lock()
            .insert(known.queue.uid.0, Arc::clone(&known));
        Ok(known)
    }

    /// Reads with one statement; repeats when a connection dies under it.
    pub(super) async fn rows_of(
        &self,
        query: impl Fn() -> sqlx::query::Query<'static, sqlx::Postgres, sqlx::postgres::PgArguments>,
    ) -> Result<Vec<PgRow>> {
        let mut attempt = 0;
        loop {
            match query().fetch_all(&self.pool).await {
                Ok(rows) => return Ok(rows),
                Err(error) => self.once_more(&mut attempt, error.into()).await?,
            }
        }
    }

    pub(super) async fn queue_by_name(&self, name: &str) -> Result<Option<Queue>> {
        let name = rows::text(name).into_owned();
        let rows = self
            .rows_of(|| sqlx::query(BY_NAME).bind(name.clone()))
            .await?;
        let known = rows
            .first()
            .map(|row| self.remember(row))
            .transpose()
            .map_err(Fault::into_error)?;
        Ok(known.map(|k| (*k.queue).clone()))
    }

    pub(super) async fn queue_by_number(&self, uid: QueueUid) -> Result<Option<(Queue, bool)>> {
        let rows = self.rows_of(|| sqlx::query(BY_UID).bind(uid.0)).await?;
        let known = rows
            .first()
            .map(|row| self.remember(row))
            .transpose()
            .map_err(Fault::into_error)?;
        Ok(known.map(|k| ((*k.queue).clone(), k.deleted)))
    }

    pub(super) async fn queues_behind(
        &self,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<Queue>> {
        let after = rows::text(after.unwrap_or("")).into_owned();
        let rows = self
            .rows_of(|| {
                sqlx::query(BEHIND)
                    .bind(after.clone())
                    .bind(i64::from(limit))
            })
            .await?;
        let known = rows
            .iter()
            .map(|row| Ok((*self.remember(row)?.queue).clone()))
            .collect::<Result<_, Fault>>();
        known.map_err(Fault::into_error)
    }

    pub(super) async fn exact_numbers(&self, queue: QueueUid, now: Now) -> Result<QueueNumbers> {
        self.catch_up(Some(queue), now).await?;
        let rows = self
            .rows_of(|| sqlx::query(NUMBERS).bind(queue.0).bind(now))
            .await?;
        let Some(row) = rows.first() else {
            return Ok(QueueNumbers {
                now: now.unwrap_or_else(|| self.due.estimate()),
                ..QueueNumbers::default()
            });
        };
        let numbers = || -> Result<QueueNumbers, Fault> {
            Ok(QueueNumbers {
                counts: counts(row, 0)?,
                oldest_ready_at: row.try_get(12)?,
                oldest_dead_at: row.try_get(13)?,
                now: row.try_get(14)?,
            })
        };
        numbers().map_err(Fault::into_error)
    }

    pub(super) async fn ready_among(&self, waiting: &[QueueUid]) -> Result<Vec<QueueUid>> {
        self.catch_up(None, None).await?;
        let uids: Vec<i32> = waiting.iter().map(|q| q.0).collect();
        let rows = self
            .rows_of(|| sqlx::query(READY_AMONG).bind(uids.clone()))
            .await?;
        let found = rows
            .iter()
            .map(|row| Ok(QueueUid(row.try_get(0)?)))
            .collect::<Result<_, sqlx::Error>>();
        found.map_err(StoreError::internal)
    }

    /// The server answers and is not a standby.
    pub(super) async fn writable(&self) -> Result<()> {
        let rows = self.rows_of(|| sqlx::query(WRITABLE)).await?;
        let read_only = rows
            .first()
            .map(|row| row.try_get::<bool, _>(0))
            .transpose()
            .map_err(StoreError::internal)?;
        if read_only == Some(false) {
            Ok(())
        } else {
            Err(StoreError::unavailable("the server is read-only"))
        }
    }
}
