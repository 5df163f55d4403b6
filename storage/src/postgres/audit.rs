//! The audit trail: written with what it tells about, read by place, message, bulk decision or time.

use super::Postgres;
use super::fault::Fault;
use super::rows::text;
use crate::audit::{AuditEntry, AuditPage, AuditQuery};
use crate::backend::Call;
use crate::error::Result;
use crate::model::{MessageId, Millis, QueueUid};
use crate::redrives::RedriveId;
use crate::rules::trail::Trail;
use sqlx::Row;
use sqlx::postgres::{PgConnection, PgRow};
use std::collections::HashMap;
use std::sync::Arc;

/// Rows that one page looks at.
const MOST_LOOKED_AT: i64 = 20_000;

/// What one row is about.
#[derive(Debug, Default)]
pub(super) struct About {
    pub(super) queue: Option<i32>,
    pub(super) message: Option<i64>,
    pub(super) trail: Trail,
}

impl About {
    pub(super) fn nothing(trail: Trail) -> Self {
        Self {
            trail,
            ..Self::default()
        }
    }

    pub(super) fn queue(uid: QueueUid, trail: Trail) -> Self {
        Self {
            queue: Some(uid.0),
            message: None,
            trail,
        }
    }

    pub(super) fn message(uid: QueueUid, seq: i64, trail: Trail) -> Self {
        Self {
            queue: Some(uid.0),
            message: Some(seq),
            trail,
        }
    }
}

pub(super) const WRITE: &str = "-- audit
INSERT INTO audit (at, actor, action, justification, http_request, redrive_id, uid, seq, before, after)
SELECT $1::bigint, $2::text, $3::text, $4::text, $5::text, $6::bigint, t.*
FROM unnest($7::int[], $8::bigint[], $9::text[], $10::text[]) AS t(uid, seq, before, after)";

/// Writes one row for each of `about`, in this order.
pub(super) async fn write(
    connection: &mut PgConnection,
    call: &Call,
    action: &str,
    redrive: Option<RedriveId>,
    about: &[About],
    now: Millis,
) -> Result<(), Fault> {
    if about.is_empty() {
        return Ok(());
    }
    let said = |pick: fn(&Trail) -> Option<&str>| -> Vec<Option<&str>> {
        about.iter().map(|row| pick(&row.trail)).collect()
    };
    sqlx::query(WRITE)
        .bind(now)
        .bind(text(&call.actor))
        .bind(text(action))
        .bind(call.justification.as_deref().map(text))
        .bind(call.http_request.as_deref().map(text))
        .bind(redrive.map(|id| id.0))
        .bind(about.iter().map(|row| row.queue).collect::<Vec<_>>())
        .bind(about.iter().map(|row| row.message).collect::<Vec<_>>())
        .bind(said(|trail| trail.before.as_deref()))
        .bind(said(|trail| trail.after.as_deref()))
        .execute(connection)
        .await?;
    Ok(())
}

macro_rules! columns {
    () => {
        "id, at, actor, action, uid, seq, redrive_id, justification, before, after, http_request"
    };
}

// Rows by number, with whether they are meant. `$lead` and `$id` name the index: the number as itself for the primary key, plus
// nothing for the others, so that a planner that has seen an empty table cannot take the one for the other.
macro_rules! walk {
    ($name:literal, $lead:literal, $id:literal, $order:literal) => {
        concat!(
            "-- audit rows ",
            $name,
            "
SELECT a.id, coalesce(($4::bigint IS NULL OR a.at >= $4::bigint) AND ($5::bigint IS NULL OR a.at < $5::bigint)
    AND ($6::text IS NULL OR a.actor = $6::text) AND ($7::text IS NULL OR a.action = $7::text)
    AND ($8::bigint IS NULL OR a.seq = $8::bigint) AND ($9::bigint IS NULL OR a.redrive_id = $9::bigint)
    AND ($10::int[] IS NULL OR a.uid = ANY($10::int[])), false)
FROM audit a WHERE ",
            $lead,
            $id,
            " > $1::bigint AND ",
            $id,
            " < $2::bigint ORDER BY ",
            $id,
            $order,
            " LIMIT $3::bigint"
        )
    };
}
macro_rules! both_ways {
    ($name:literal, $lead:literal, $id:literal) => {
        [
            walk!($name, $lead, $id, ""),
            walk!($name, $lead, $id, " DESC"),
        ]
    };
}
pub(super) const IN_ORDER: [&str; 2] = both_ways!("in order", "", "a.id");
pub(super) const OF_MESSAGE: [&str; 2] =
    both_ways!("of a message", "a.seq = $8::bigint AND ", "a.id + 0");
pub(super) const OF_REDRIVE: [&str; 2] =
    both_ways!("of a redrive", "a.redrive_id = $9::bigint AND ", "a.id + 0");

// Numbers rise with time, but for transactions that overlap: the smallest and the largest of the thousand nearest to each end.
pub(super) const SPAN: &str = "-- audit rows in a span
SELECT (SELECT min(id) FROM (SELECT id FROM audit WHERE at >= $1::bigint ORDER BY at, 0 + id LIMIT 1000) f),
    (SELECT max(id) FROM (SELECT id FROM audit WHERE at < $2::bigint ORDER BY at DESC, 0 + id DESC LIMIT 1000) l)";

pub(super) const ROWS: &str = concat!(
    "-- audit rows\nSELECT ",
    columns!(),
    " FROM audit WHERE id = ANY($1::bigint[])"
);

pub(super) const DECISIONS: &str = concat!(
    "-- decisions\nSELECT ",
    columns!(),
    " FROM audit WHERE seq = $1::bigint ORDER BY id + 0"
);

pub(super) fn entry(row: &PgRow) -> Result<AuditEntry, Fault> {
    let shared = |at: usize| -> Result<Option<Arc<str>>, Fault> {
        Ok(row.try_get::<Option<&str>, _>(at)?.map(Arc::from))
    };
    Ok(AuditEntry {
        id: row.try_get(0)?,
        at: row.try_get(1)?,
        actor: row.try_get::<&str, _>(2)?.into(),
        action: row.try_get::<&str, _>(3)?.into(),
        queue: row.try_get::<Option<i32>, _>(4)?.map(QueueUid),
        message: row.try_get::<Option<i64>, _>(5)?.map(MessageId),
        redrive: row.try_get::<Option<i64>, _>(6)?.map(RedriveId),
        reason: shared(7)?,
        before: shared(8)?,
        after: shared(9)?,
        http_request: shared(10)?,
    })
}

impl Postgres {
    pub(super) async fn audit_page(&self, query: &AuditQuery) -> Result<AuditPage> {
        let mut attempt = 0;
        loop {
            match self.try_audit_page(query).await {
                Ok(page) => return Ok(page),
                Err(fault) => self.once_more(&mut attempt, fault).await?,
            }
        }
    }

    async fn try_audit_page(&self, query: &AuditQuery) -> Result<AuditPage, Fault> {
        let mut connection = self.pool.acquire().await?;
        let Some((mut above, mut below)) = ends(&mut connection, query).await? else {
            return Ok(AuditPage::default());
        };
        let limit = i64::from(query.limit);
        let (mut found, mut last, mut looked, mut more) = (Vec::new(), None, 0, true);
        let mut piece = (limit + 1) * 2;
        while more && looked < MOST_LOOKED_AT && (found.len() as i64) < limit {
            let rows = look(&mut connection, query, above, below, piece).await?;
            more = rows.len() as i64 >= piece;
            for row in &rows {
                let (id, wanted): (i64, bool) = (row.try_get(0)?, row.try_get(1)?);
                if wanted && found.len() as i64 == limit {
                    more = true;
                    break;
                }
                looked += 1;
                last = Some(id);
                if wanted {
                    found.push(id);
                }
                if query.newest_first {
                    below = id;
                } else {
                    above = id;
                }
            }
            piece = MOST_LOOKED_AT / 4;
        }
        Ok(AuditPage {
            entries: entries(&mut connection, &found).await?,
            next: last.filter(|_| more),
        })
    }
}

/// What operators did to a message, oldest first.
pub(super) async fn decisions(
    connection: &mut PgConnection,
    id: MessageId,
) -> Result<Vec<AuditEntry>, Fault> {
    let query = sqlx::query(DECISIONS).bind(id.0);
    let rows = query.fetch_all(connection).await?;
    rows.iter().map(entry).collect()
}

/// The numbers that the rows are between, without these; `None`: there are none in the span.
async fn ends(
    connection: &mut PgConnection,
    query: &AuditQuery,
) -> Result<Option<(i64, i64)>, Fault> {
    let (mut above, mut below) = (i64::MIN, i64::MAX);
    match query.after {
        Some(after) if query.newest_first => below = after,
        Some(after) => above = after,
        None => {}
    }
    let by_index = query.message.is_some() || query.redrive.is_some();
    if !by_index && (query.from.is_some() || query.until.is_some()) {
        let row = sqlx::query(SPAN)
            .bind(query.from.unwrap_or(Millis::MIN))
            .bind(query.until.unwrap_or(Millis::MAX))
            .fetch_one(connection)
            .await?;
        let (Some(first), Some(last)) = (
            row.try_get::<Option<i64>, _>(0)?,
            row.try_get::<Option<i64>, _>(1)?,
        ) else {
            return Ok(None);
        };
        if query.from.is_some() {
            above = above.max(first - 1);
        }
        if query.until.is_some() {
            below = below.min(last + 1);
        }
    }
    Ok(Some((above, below)))
}

async fn look(
    connection: &mut PgConnection,
    query: &AuditQuery,
    above: i64,
    below: i64,
    limit: i64,
) -> Result<Vec<PgRow>, Fault> {
    let both = if query.message.is_some() {
        OF_MESSAGE
    } else if query.redrive.is_some() {
        OF_REDRIVE
    } else {
        IN_ORDER
    };
    let queues = query.queues.as_ref();
    let rows = sqlx::query(both[usize::from(query.newest_first)])
        .bind(above)
        .bind(below)
        .bind(limit)
        .bind(query.from)
        .bind(query.until)
        .bind(query.actor.as_deref().map(text))
        .bind(query.action.as_deref().map(text))
        .bind(query.message.map(|id| id.0))
        .bind(query.redrive.map(|id| id.0))
        .bind(queues.map(|q| q.iter().map(|q| q.0).collect::<Vec<_>>()))
        .fetch_all(connection)
        .await?;
    Ok(rows)
}

/// The rows with these numbers, in this order.
async fn entries(connection: &mut PgConnection, ids: &[i64]) -> Result<Vec<AuditEntry>, Fault> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let rows = sqlx::query(ROWS).bind(ids).fetch_all(connection).await?;
    let mut read = HashMap::new();
    for row in &rows {
        let entry = entry(row)?;
        read.insert(entry.id, entry);
    }
    Ok(ids.iter().filter_map(|id| read.remove(id)).collect())
}
