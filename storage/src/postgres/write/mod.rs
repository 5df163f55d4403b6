//! Writing drafts: the difference between what was loaded and what the rules made of it, set by set.
//!
//! All rows that change were locked by the load, so every count must come out; one that does not means that a row was moved,
//! and the attempt is repeated. Counters come last in their transaction, in key order, so that nobody waits for them long.
//!
//! [`difference`] says what changes, [`sql`] how that is written; here it is done.

mod difference;
mod sql;

pub(super) use difference::{Deltas, Writes};
pub(super) use sql::*;

use super::Postgres;
use super::fault::Fault;
use super::revisions::FORGET_REVISIONS;
use super::rows::text;
use crate::known_bug;
use crate::model::{Counts, Millis, QueueUid};
use sqlx::Executor;
use sqlx::postgres::{PgConnection, PgQueryResult};
use std::borrow::Cow;

fn column<'a, T, U>(rows: &'a [T], pick: impl Fn(&'a T) -> U) -> Vec<U> {
    rows.iter().map(pick).collect()
}

fn all(result: &PgQueryResult, expected: usize, what: &str) -> Result<(), Fault> {
    if result.rows_affected() == expected as u64 {
        Ok(())
    } else {
        Err(Fault::moved(what))
    }
}

/// Adds to the counters; the last write of its transaction.
pub(in crate::postgres) async fn count(
    connection: &mut PgConnection,
    deltas: &Deltas,
    stripe: i16,
    now: Millis,
) -> Result<(), Fault> {
    if deltas.is_empty() {
        return Ok(());
    }
    let rows: Vec<(i32, i32, Counts)> = deltas
        .iter()
        .map(|((id, uid), counts)| (*id, *uid, *counts))
        .collect();
    sqlx::query(COUNT)
        .bind(column(&rows, |r| r.0))
        .bind(column(&rows, |r| r.1))
        .bind(column(&rows, |r| r.2.delayed))
        .bind(column(&rows, |r| r.2.ready))
        .bind(column(&rows, |r| r.2.leased))
        .bind(column(&rows, |r| r.2.dead))
        .bind(column(&rows, |r| r.2.accepted))
        .bind(column(&rows, |r| r.2.reopened))
        .bind(column(&rows, |r| r.2.acked))
        .bind(column(&rows, |r| r.2.discarded))
        .bind(column(&rows, |r| r.2.purged))
        .bind(column(&rows, |r| r.2.dead_letter_expired))
        .bind(column(&rows, |r| r.2.delivered))
        .bind(column(&rows, |r| r.2.redriven))
        .bind(stripe)
        .bind(now)
        .execute(connection)
        .await?;
    Ok(())
}

impl Postgres {
    /// Writes the differences of drafts. The transaction must be the one that loaded them.
    pub(in crate::postgres) async fn write(
        &self,
        connection: &mut PgConnection,
        writes: &Writes,
        stripe: i16,
        now: Millis,
    ) -> Result<(), Fault> {
        let w = writes;
        for (sql, tids) in &w.leave {
            let result = sqlx::query(*sql)
                .bind(tids)
                .execute(&mut *connection)
                .await?;
            all(&result, tids.len(), "a message")?;
        }
        let mut deltas = Cow::Borrowed(&w.deltas);
        if known_bug!("dead-letter-move-in-two-transactions") && !w.dead.is_empty() {
            let left = |_: &(i32, i32), counts: &mut Counts| counts.dead == 0;
            let left = deltas.to_mut().extract_if(.., left).collect();
            count(connection, &left, stripe, now).await?;
            connection.execute("COMMIT; BEGIN").await?;
        }
        enter_states(connection, w).await?;
        if !w.changed.is_empty() {
            let result = sqlx::query(CHANGE_LEASE)
                .bind(column(&w.changed, |r| r.0))
                .bind(column(&w.changed, |r| r.2))
                .bind(column(&w.changed, |r| r.3))
                .bind(column(&w.changed, |r| r.1.clone()))
                .execute(&mut *connection)
                .await?;
            all(&result, w.changed.len(), "a lease")?;
        }
        records(connection, w).await?;
        if !w.gone.is_empty() {
            let result = sqlx::query(DELETE_MESSAGE)
                .bind(&w.gone)
                .execute(&mut *connection)
                .await?;
            all(&result, w.gone.len(), "a message")?;
        }
        if !w.unrevised.is_empty() {
            sqlx::query(FORGET_REVISIONS)
                .bind(&w.unrevised)
                .execute(&mut *connection)
                .await?;
        }
        names(connection, w).await?;
        count(connection, &deltas, stripe, now).await?;
        for (uid, rank, available_at) in &w.put_back {
            self.floors.lower(QueueUid(*uid), *rank, *available_at);
        }
        if let Some(due) = w.stir.next_due {
            self.due.note(due);
        }
        Ok(())
    }
}

async fn enter_states(connection: &mut PgConnection, w: &Writes) -> Result<(), Fault> {
    if !w.ready.is_empty() {
        let rows = &w.ready;
        sqlx::query(ENTER_READY)
            .bind(column(rows, |r| r.0))
            .bind(column(rows, |r| r.1))
            .bind(column(rows, |r| r.2))
            .bind(column(rows, |r| r.3))
            .bind(column(rows, |r| r.4.fence))
            .bind(column(rows, |r| r.4.attempts))
            .bind(column(rows, |r| r.4.expirations))
            .bind(column(rows, |r| r.4.releases))
            .bind(column(rows, |r| r.4.redrives))
            .bind(column(rows, |r| r.5))
            .execute(&mut *connection)
            .await?;
    }
    if !w.delayed.is_empty() {
        let rows = &w.delayed;
        sqlx::query(ENTER_DELAYED)
            .bind(column(rows, |r| r.0))
            .bind(column(rows, |r| r.1))
            .bind(column(rows, |r| r.2))
            .bind(column(rows, |r| r.3))
            .bind(column(rows, |r| r.4.fence))
            .bind(column(rows, |r| r.4.attempts))
            .bind(column(rows, |r| r.4.expirations))
            .bind(column(rows, |r| r.4.releases))
            .bind(column(rows, |r| r.4.redrives))
            .execute(&mut *connection)
            .await?;
    }
    if !w.lease.is_empty() {
        let rows = &w.lease;
        sqlx::query(ENTER_LEASE)
            .bind(column(rows, |r| r.0))
            .bind(column(rows, |r| r.1))
            .bind(column(rows, |r| r.2))
            .bind(column(rows, |r| r.3.available_at))
            .bind(column(rows, |r| r.4.fence))
            .bind(column(rows, |r| r.4.attempts))
            .bind(column(rows, |r| r.4.expirations))
            .bind(column(rows, |r| r.4.releases))
            .bind(column(rows, |r| r.4.redrives))
            .bind(column(rows, |r| r.3.leased_at))
            .bind(column(rows, |r| r.3.expires_at))
            .bind(column(rows, |r| r.3.bounds.bits()))
            .bind(column(rows, |r| r.3.worker.as_deref().map(text)))
            .execute(&mut *connection)
            .await?;
    }
    if !w.dead.is_empty() {
        let rows = &w.dead;
        sqlx::query(ENTER_DEAD)
            .bind(column(rows, |r| r.seq))
            .bind(column(rows, |r| r.queue_id))
            .bind(column(rows, |r| r.rank))
            .bind(column(rows, |r| r.dead.died_at))
            .bind(column(rows, |r| r.life.fence))
            .bind(column(rows, |r| r.life.attempts))
            .bind(column(rows, |r| r.life.expirations))
            .bind(column(rows, |r| r.life.releases))
            .bind(column(rows, |r| r.life.redrives))
            .bind(column(rows, |r| r.dead.reason.code()))
            .bind(column(rows, |r| {
                r.dead.limit.map(crate::model::Limit::code)
            }))
            .bind(column(rows, |r| r.dead.by_expiry))
            .bind(column(rows, |r| r.dead.edited))
            .bind(column(rows, |r| r.dead.error_code.as_deref().map(text)))
            .bind(column(rows, |r| r.dead.group))
            .bind(column(rows, |r| r.published_at))
            .bind(column(rows, |r| r.key.clone()))
            .execute(&mut *connection)
            .await?;
    }
    if !w.died_again.is_empty() {
        sqlx::query(DIED_AGAIN)
            .bind(column(&w.died_again, |r| r.0))
            .bind(column(&w.died_again, |r| r.1))
            .execute(&mut *connection)
            .await?;
    }
    if !w.discarded.is_empty() {
        let rows = &w.discarded;
        sqlx::query(ENTER_DISCARDED)
            .bind(column(rows, |r| r.0))
            .bind(column(rows, |r| r.1))
            .bind(column(rows, |r| r.2))
            .bind(column(rows, |r| r.3.discarded_at))
            .bind(column(rows, |r| r.4.fence))
            .bind(column(rows, |r| r.4.attempts))
            .bind(column(rows, |r| r.4.expirations))
            .bind(column(rows, |r| r.4.releases))
            .bind(column(rows, |r| r.4.redrives))
            .bind(column(rows, |r| r.3.dead.reason.code()))
            .bind(column(rows, |r| {
                r.3.dead.limit.map(crate::model::Limit::code)
            }))
            .bind(column(rows, |r| r.3.dead.by_expiry))
            .bind(column(rows, |r| r.3.dead.edited))
            .bind(column(rows, |r| r.3.dead.error_code.as_deref().map(text)))
            .bind(column(rows, |r| r.3.dead.group))
            .bind(column(rows, |r| r.3.dead.died_at))
            .bind(column(rows, |r| r.3.payload_kept))
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}

/// History, completions and ends.
async fn records(connection: &mut PgConnection, w: &Writes) -> Result<(), Fault> {
    if !w.put.is_empty() {
        let rows = &w.put;
        sqlx::query(PUT_DELIVERY)
            .bind(column(rows, |r| r.0))
            .bind(column(rows, |r| r.1.fence))
            .bind(column(rows, |r| r.1.attempt))
            .bind(column(rows, |r| r.1.leased_at))
            .bind(column(rows, |r| r.1.ended_at))
            .bind(column(rows, |r| r.1.cause.code()))
            .bind(column(rows, |r| r.1.late))
            .bind(column(rows, |r| r.1.failure.truncated))
            .bind(column(rows, |r| r.1.worker.as_deref().map(text)))
            .bind(column(rows, |r| r.1.failure.code.as_deref().map(text)))
            .bind(column(rows, |r| r.1.failure.detail.as_deref().map(text)))
            .execute(&mut *connection)
            .await?;
    }
    if !w.dropped.is_empty() {
        sqlx::query(DROP_DELIVERY)
            .bind(column(&w.dropped, |r| r.0))
            .bind(column(&w.dropped, |r| r.1))
            .execute(&mut *connection)
            .await?;
    }
    if !w.forgotten.is_empty() {
        sqlx::query(FORGET_HISTORY)
            .bind(&w.forgotten)
            .execute(&mut *connection)
            .await?;
    }
    if !w.uncompleted.is_empty() {
        sqlx::query(UNCOMPLETE)
            .bind(&w.uncompleted)
            .execute(&mut *connection)
            .await?;
    }
    if !w.completed.is_empty() {
        let result = sqlx::query(COMPLETE)
            .bind(column(&w.completed, |r| r.0))
            .bind(column(&w.completed, |r| r.1))
            .bind(column(&w.completed, |r| r.2.as_deref().map(text)))
            .execute(&mut *connection)
            .await?;
        all(&result, w.completed.len(), "a completion")?;
    }
    if !w.ended.is_empty() {
        let rows = &w.ended;
        sqlx::query(REMEMBER_END)
            .bind(column(rows, |r| r.seq))
            .bind(column(rows, |r| r.uid))
            .bind(column(rows, |r| r.ended.end.code()))
            .bind(column(rows, |r| r.ended.at))
            .bind(column(rows, |r| r.published_at))
            .bind(column(rows, |r| r.ended.fence))
            .bind(column(rows, |r| r.key.clone()))
            .bind(column(rows, |r| r.ended.outcome.as_deref().map(text)))
            .bind(column(rows, |r| r.keep_until))
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}

/// Search by key, life spans, and how long ids and keys stay taken.
async fn names(connection: &mut PgConnection, w: &Writes) -> Result<(), Fault> {
    for (sql, rows) in [(DROP_KEY, &w.unkeyed), (ADD_KEY, &w.keyed)] {
        if !rows.is_empty() {
            sqlx::query(sql)
                .bind(column(rows, |r| r.0))
                .bind(column(rows, |r| r.1))
                .bind(column(rows, |r| r.2.clone()))
                .execute(&mut *connection)
                .await?;
        }
    }
    if !w.unexpiring.is_empty() {
        sqlx::query(DROP_EXPIRING)
            .bind(&w.unexpiring)
            .execute(&mut *connection)
            .await?;
    }
    if !w.expiring.is_empty() {
        sqlx::query(ADD_EXPIRING)
            .bind(column(&w.expiring, |r| r.0))
            .bind(column(&w.expiring, |r| r.1))
            .execute(&mut *connection)
            .await?;
    }
    if !w.new_expiry.is_empty() {
        sqlx::query(NEW_EXPIRY)
            .bind(column(&w.new_expiry, |r| r.0))
            .bind(column(&w.new_expiry, |r| r.1))
            .execute(&mut *connection)
            .await?;
    }
    if !w.keep_id.is_empty() {
        sqlx::query(KEEP_ID)
            .bind(column(&w.keep_id, |r| r.0))
            .bind(column(&w.keep_id, |r| r.1))
            .bind(column(&w.keep_id, |r| r.2.clone()))
            .bind(column(&w.keep_id, |r| r.3))
            .execute(&mut *connection)
            .await?;
    }
    if !w.keep_key.is_empty() {
        sqlx::query(KEEP_KEY)
            .bind(column(&w.keep_key, |r| r.0))
            .bind(column(&w.keep_key, |r| r.1))
            .bind(column(&w.keep_key, |r| r.2.clone()))
            .bind(column(&w.keep_key, |r| r.3))
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}
