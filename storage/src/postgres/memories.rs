//! What is kept for a time, and forgotten when it is over: ends, keys, answers, audit rows, discarded dead letters, bulk decisions
//! with the messages that they watch, selections, revisions.

use super::Postgres;
use super::drafts::{For, Wanted};
use super::fault::{Fault, Now};
use super::maintenance::{STEP, WALK};
use super::redrives::{fold, parse};
use super::write::Writes;
use crate::backend::Keep;
use crate::error::{Result, StoreError};
use crate::model::{DISCARD_UNDO_MS, Millis, OPERATION_MEMORY_MS};
use crate::rules::operate;
use sqlx::Row;
use sqlx::postgres::PgConnection;
use std::collections::BTreeMap;

pub(super) const DISCARDED_LONG_AGO: &str = "-- discarded long ago
WITH clk AS MATERIALIZED (SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS t)
SELECT clk.t, d.seq FROM clk CROSS JOIN LATERAL (
    SELECT seq FROM discarded WHERE discarded_at <= clk.t - $3::bigint
    ORDER BY discarded_at LIMIT $2::bigint FOR UPDATE SKIP LOCKED) d";

// The history of a message that left is kept as long as its record.
pub(super) const ENDS_OVER: &str = "-- ends over
WITH clk AS MATERIALIZED (SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS t),
e AS (DELETE FROM ended WHERE ctid = ANY(ARRAY(
        SELECT x.tid FROM clk CROSS JOIN LATERAL (SELECT ctid AS tid FROM ended WHERE keep_until <= clk.t
            ORDER BY keep_until LIMIT $2::bigint FOR UPDATE SKIP LOCKED) x)) RETURNING seq),
h AS (DELETE FROM delivery WHERE seq = ANY(ARRAY(SELECT seq FROM e)))
SELECT count(*) FROM e";

pub(super) const KEYS_OVER: &str = "-- keys over
WITH clk AS MATERIALIZED (SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS t),
e AS (DELETE FROM unique_key WHERE ctid = ANY(ARRAY(
        SELECT x.tid FROM clk CROSS JOIN LATERAL (SELECT ctid AS tid FROM unique_key WHERE keep_until <= clk.t
            ORDER BY keep_until LIMIT $2::bigint FOR UPDATE SKIP LOCKED) x)) RETURNING 1)
SELECT count(*) FROM e";

pub(super) const ANSWERS_OVER: &str = "-- answers over
WITH clk AS MATERIALIZED (SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS t),
e AS (DELETE FROM operation WHERE ctid = ANY(ARRAY(
        SELECT x.tid FROM clk CROSS JOIN LATERAL (SELECT ctid AS tid FROM operation WHERE at <= clk.t - $3::bigint
            ORDER BY at LIMIT $2::bigint FOR UPDATE SKIP LOCKED) x)) RETURNING 1)
SELECT count(*) FROM e";

// Takes back the time for second thoughts: the payload and its revisions go, the rest stays.
pub(super) const PAYLOADS_OVER: &str = "-- payloads over
WITH clk AS MATERIALIZED (SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS t),
x AS MATERIALIZED (SELECT d.* FROM clk CROSS JOIN LATERAL (
    SELECT ctid AS tid, seq FROM discarded WHERE payload_kept AND discarded_at <= clk.t - $3::bigint
    ORDER BY discarded_at LIMIT $2::bigint FOR UPDATE SKIP LOCKED) d),
m AS (UPDATE message SET payload = '' WHERE seq = ANY(ARRAY(SELECT seq FROM x))),
r AS (DELETE FROM revision WHERE seq = ANY(ARRAY(SELECT seq FROM x))),
d AS (UPDATE discarded SET payload_kept = false WHERE ctid = ANY(ARRAY(SELECT tid FROM x)) RETURNING 1)
SELECT count(*) FROM d";

pub(super) const AUDIT_OVER: &str = "-- audit rows over
WITH clk AS MATERIALIZED (SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS t),
e AS (DELETE FROM audit WHERE ctid = ANY(ARRAY(
        SELECT x.tid FROM clk CROSS JOIN LATERAL (SELECT ctid AS tid FROM audit WHERE at <= clk.t - $3::bigint
            ORDER BY at, 0 + id LIMIT $2::bigint FOR UPDATE SKIP LOCKED) x)) RETURNING 1)
SELECT count(*) FROM e";

pub(super) const FAILURES_LEFT: &str = "-- failures left
SELECT redrive_id FROM redrive_failure ORDER BY redrive_id, place LIMIT 1";

pub(super) const LOCK_IF_FREE: &str = "-- redrive, lock if free
SELECT body FROM redrive WHERE id = $1::bigint FOR UPDATE SKIP LOCKED";

pub(super) const THERE: &str = "-- redrive, there\nSELECT 1 FROM redrive WHERE id = $1::bigint";

pub(super) const DROP_FAILURES: &str = "-- drop failures
DELETE FROM redrive_failure WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM redrive_failure WHERE redrive_id = $1::bigint ORDER BY place LIMIT $2::bigint))";

pub(super) const FOLDED: &str =
    "-- redrive, folded\nUPDATE redrive SET body = $2::text WHERE id = $1::bigint";

pub(super) const WATCHED_LONG_ENOUGH: &str = "-- watched long enough
WITH clk AS MATERIALIZED (SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS t)
SELECT r.id, r.body FROM clk CROSS JOIN LATERAL (SELECT id, body FROM redrive WHERE watch_until <= clk.t
    ORDER BY watch_until LIMIT 1 FOR UPDATE SKIP LOCKED) r";

pub(super) const DROP_WATCHED: &str = "-- drop watched
DELETE FROM redriven WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM redriven WHERE redrive_id = $1::bigint ORDER BY place LIMIT $2::bigint FOR UPDATE SKIP LOCKED))";

pub(super) const STILL_WATCHED: &str = "-- still watched
SELECT 1 FROM redriven WHERE redrive_id = $1::bigint ORDER BY place LIMIT 1";

pub(super) const WATCHED: &str =
    "-- watched\nUPDATE redrive SET watch_until = NULL WHERE id = $1::bigint";

pub(super) const REDRIVE_OVER: &str = "-- redrive over
WITH clk AS MATERIALIZED (SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS t)
SELECT r.id FROM clk CROSS JOIN LATERAL (SELECT id FROM redrive WHERE finished_at <= clk.t - $2::bigint
    ORDER BY finished_at LIMIT 1 FOR UPDATE SKIP LOCKED) r";

pub(super) const DROP_REDRIVE: &str = "-- drop redrive\nDELETE FROM redrive WHERE id = $1::bigint";

// A selection that a bulk decision is about is kept with it.
pub(super) const SELECTIONS_OVER: &str = "-- selections over
WITH clk AS MATERIALIZED (SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS t)
DELETE FROM selection WHERE ctid = ANY(ARRAY(
    SELECT x.tid FROM clk CROSS JOIN LATERAL (SELECT ctid AS tid FROM selection s WHERE expires_at <= clk.t
        AND (SELECT true FROM redrive r WHERE r.selection_id = s.id LIMIT 1) IS NOT TRUE
        ORDER BY expires_at LIMIT $2::bigint FOR UPDATE SKIP LOCKED) x))";

// The next stretch of messages with revisions, with whether they are still there: a plain ack leaves revisions behind.
pub(super) const WALK_REVISIONS: &str = "-- walk revisions
SELECT r.seq, m.there IS NOT NULL FROM (SELECT seq FROM revision WHERE seq > $1::bigint ORDER BY seq, number LIMIT $2::bigint) r
LEFT JOIN LATERAL (SELECT 1 AS there FROM message m WHERE m.seq = r.seq LIMIT 1) m ON true ORDER BY r.seq";

/// Rows by their own time: ends, keys, answers, payloads, audit rows. `true`: there are more.
pub(super) async fn forget(
    connection: &mut PgConnection,
    keep: &Keep,
    now: Now,
) -> Result<bool, Fault> {
    let mut more = false;
    for (sql, memory) in [
        (ENDS_OVER, None),
        (KEYS_OVER, None),
        (ANSWERS_OVER, Some(OPERATION_MEMORY_MS)),
        (PAYLOADS_OVER, Some(DISCARD_UNDO_MS)),
        (AUDIT_OVER, Some(keep.audit_ms)),
    ] {
        let mut query = sqlx::query(sql).bind(now).bind(STEP);
        if let Some(memory) = memory {
            query = query.bind(memory);
        }
        let row = query.fetch_one(&mut *connection).await?;
        more |= row.try_get::<i64, _>(0)? >= STEP;
    }
    Ok(more)
}

/// Selections that expired and that no bulk decision is about.
pub(super) async fn forget_selections(
    connection: &mut PgConnection,
    now: Now,
) -> Result<(), Fault> {
    let query = sqlx::query(SELECTIONS_OVER).bind(now).bind(STEP);
    query.execute(connection).await?;
    Ok(())
}

/// Revisions of messages that are gone, a stretch at a time.
pub(super) async fn sweep_revisions(
    connection: &mut PgConnection,
    last: &mut Option<i64>,
) -> Result<(), Fault> {
    let rows = sqlx::query(WALK_REVISIONS)
        .bind(last.take().unwrap_or(i64::MIN))
        .bind(WALK)
        .fetch_all(&mut *connection)
        .await?;
    let mut gone = Vec::new();
    for row in &rows {
        let (seq, there): (i64, bool) = (row.try_get(0)?, row.try_get(1)?);
        if !there {
            gone.push(seq);
        }
        if rows.len() as i64 >= WALK {
            *last = Some(seq);
        }
    }
    gone.dedup();
    if !gone.is_empty() {
        sqlx::query(super::revisions::FORGET_REVISIONS)
            .bind(gone)
            .execute(connection)
            .await?;
    }
    Ok(())
}

impl Postgres {
    /// Ends discarded dead letters whose record was kept long enough.
    pub(super) async fn forget_discarded(&self, keep: &Keep, now: Now) -> Result<bool, Fault> {
        let mut tx = self.begin().await?;
        let rows = sqlx::query(DISCARDED_LONG_AGO)
            .bind(now)
            .bind(STEP)
            .bind(keep.audit_ms)
            .fetch_all(&mut *tx)
            .await?;
        let Some(first) = rows.first() else {
            tx.rollback().await?;
            return Ok(false);
        };
        let now: Millis = first.try_get(0)?;
        let mut wanted = BTreeMap::new();
        for row in &rows {
            wanted.insert(row.try_get::<i64, _>(1)?, Wanted::default());
        }
        let mut drafts = self.load(&mut tx, &wanted, For::Change).await?;
        for loaded in drafts.values_mut() {
            operate::forget_discarded(&mut loaded.draft);
        }
        self.write(&mut tx, &Writes::of(&drafts, now), self.stripe, now)
            .await?;
        tx.commit().await?;
        Ok(rows.len() as i64 >= STEP)
    }

    /// Counts the failures that nobody has counted yet, of one redrive. `true`: there are more.
    pub(super) async fn fold_failures(&self) -> Result<bool, Fault> {
        let mut tx = self.begin().await?;
        let Some(row) = sqlx::query(FAILURES_LEFT).fetch_optional(&mut *tx).await? else {
            tx.rollback().await?;
            return Ok(false);
        };
        let id: i64 = row.try_get(0)?;
        let locked = sqlx::query(LOCK_IF_FREE)
            .bind(id)
            .fetch_optional(&mut *tx)
            .await?;
        let more = if let Some(row) = locked {
            let mut redrive = parse(row.try_get(0)?)?;
            fold(&mut tx, &mut redrive).await?;
            let body = serde_json::to_string(&redrive).map_err(StoreError::internal)?;
            sqlx::query(FOLDED)
                .bind(id)
                .bind(body)
                .execute(&mut *tx)
                .await?;
            sqlx::query(FAILURES_LEFT)
                .fetch_optional(&mut *tx)
                .await?
                .is_some()
        } else {
            let there = sqlx::query(THERE).bind(id).fetch_optional(&mut *tx).await?;
            if there.is_none() {
                let query = sqlx::query(DROP_FAILURES).bind(id).bind(WALK);
                query.execute(&mut *tx).await?;
            }
            // Somebody who has its row counts them.
            there.is_none()
        };
        tx.commit().await?;
        Ok(more)
    }

    /// Watches the messages of a redrive that ended long enough ago no more.
    pub(super) async fn watch_no_more(&self, now: Now) -> Result<bool, Fault> {
        let mut tx = self.begin().await?;
        let found = sqlx::query(WATCHED_LONG_ENOUGH)
            .bind(now)
            .fetch_optional(&mut *tx)
            .await?;
        let Some(row) = found else {
            tx.rollback().await?;
            return Ok(false);
        };
        let id: i64 = row.try_get(0)?;
        let query = sqlx::query(DROP_WATCHED).bind(id).bind(WALK);
        query.execute(&mut *tx).await?;
        let left = sqlx::query(STILL_WATCHED)
            .bind(id)
            .fetch_optional(&mut *tx)
            .await?;
        if left.is_none() {
            sqlx::query(WATCHED).bind(id).execute(&mut *tx).await?;
        }
        tx.commit().await?;
        Ok(true)
    }

    /// Forgets a bulk decision that ended long enough ago, with what it still watches.
    pub(super) async fn forget_redrives(&self, keep: &Keep, now: Now) -> Result<bool, Fault> {
        let mut tx = self.begin().await?;
        let found = sqlx::query(REDRIVE_OVER)
            .bind(now)
            .bind(keep.audit_ms)
            .fetch_optional(&mut *tx)
            .await?;
        let Some(row) = found else {
            tx.rollback().await?;
            return Ok(false);
        };
        let id: i64 = row.try_get(0)?;
        for sql in [DROP_WATCHED, DROP_FAILURES] {
            let query = sqlx::query(sql).bind(id).bind(WALK);
            query.execute(&mut *tx).await?;
        }
        let left = sqlx::query(STILL_WATCHED)
            .bind(id)
            .fetch_optional(&mut *tx)
            .await?;
        if left.is_none() {
            sqlx::query(DROP_REDRIVE).bind(id).execute(&mut *tx).await?;
        }
        tx.commit().await?;
        Ok(true)
    }
}
