//! The audit: rows that are written once, and pages of them.
//!
//! One writer and a clock that never runs backwards: the numbers of the rows rise with their times. So a span of time is a span
//! of numbers, found by halving, and needs no index that every row would have to be written to.

use super::rows::failed;
use super::writer::Cycle;
use crate::audit::{AuditEntry, AuditPage, AuditQuery};
use crate::backend::Call;
use crate::error::Result;
use crate::model::{MessageId, Millis, QueueUid};
use crate::redrives::RedriveId;
use crate::rules::trail::Trail;
use rusqlite::{Connection, OptionalExtension, Row, params};
use std::sync::Arc;

/// Rows that a page looks at, at most: about 10 ms.
const LOOK: u32 = 20_000;
/// Rows that are forgotten in one step.
const STEP: u32 = 500;

/// What an audit row is about.
#[derive(Clone, Copy, Default)]
pub(super) struct On {
    pub(super) queue: Option<QueueUid>,
    pub(super) message: Option<MessageId>,
    pub(super) redrive: Option<RedriveId>,
}

impl On {
    pub(super) fn queue(queue: QueueUid) -> Self {
        Self {
            queue: Some(queue),
            ..Self::default()
        }
    }
}

/// Writes one row, at the time of the transaction.
pub(super) fn write(
    cycle: &Cycle<'_>,
    call: &Call,
    action: &str,
    on: On,
    trail: &Trail,
) -> Result<()> {
    const SQL: &str = "-- audit
        INSERT INTO audit (at, actor, action, uid, seq, redrive_id, justification, before, after, http_request)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
    let values = params![
        cycle.now,
        &*call.actor,
        action,
        on.queue.map(|q| q.0),
        on.message.map(|m| m.0),
        on.redrive.map(|r| r.0),
        call.justification.as_deref(),
        trail.before,
        trail.after,
        call.http_request.as_deref()
    ];
    cycle
        .sql
        .prepare_cached(SQL)
        .and_then(|mut s| s.execute(values))
        .map(|_| ())
        .map_err(failed)
}

/// Columns of `audit` in the order of [`small`] and [`large`].
const COLUMNS: &str =
    "id, at, actor, action, uid, seq, redrive_id, justification, before, after, http_request";

/// What a query is compared with.
fn small(row: &Row<'_>) -> rusqlite::Result<AuditEntry> {
    Ok(AuditEntry {
        id: row.get(0)?,
        at: row.get(1)?,
        actor: row.get_ref(2)?.as_str()?.into(),
        action: row.get_ref(3)?.as_str()?.into(),
        queue: row.get::<_, Option<i32>>(4)?.map(QueueUid),
        message: row.get::<_, Option<i64>>(5)?.map(MessageId),
        redrive: row.get::<_, Option<i64>>(6)?.map(RedriveId),
        reason: None,
        before: None,
        after: None,
        http_request: None,
    })
}

/// The rest of a row.
fn large(row: &Row<'_>, entry: AuditEntry) -> rusqlite::Result<AuditEntry> {
    let text = |index: usize| -> rusqlite::Result<Option<Arc<str>>> {
        Ok(row.get_ref(index)?.as_str_or_null()?.map(Arc::from))
    };
    Ok(AuditEntry {
        reason: text(7)?,
        before: text(8)?,
        after: text(9)?,
        http_request: text(10)?,
        ..entry
    })
}

/// What operators did to one message, oldest first.
pub(super) fn of_message(sql: &Connection, id: MessageId) -> Result<Vec<AuditEntry>> {
    let text = format!("-- decisions\nSELECT {COLUMNS} FROM audit WHERE seq = ? ORDER BY id");
    let mut statement = sql.prepare_cached(&text).map_err(failed)?;
    let rows = statement.query_map([id.0], |row| large(row, small(row)?));
    rows.and_then(Iterator::collect).map_err(failed)
}

/// A page of rows, in the order of their numbers.
pub(super) fn page(sql: &Connection, query: &AuditQuery) -> Result<AuditPage> {
    let (mut above, mut below) = (0, i64::MAX);
    match query.after {
        Some(after) if query.newest_first => below = after,
        Some(after) => above = after,
        None => {}
    }
    let (by, value) = match (query.message, query.redrive) {
        (Some(message), _) => ("seq = ?1 AND ", message.0),
        (None, Some(redrive)) => ("redrive_id = ?1 AND ", redrive.0),
        (None, None) => {
            if let Some(from) = query.from {
                above = above.max(first_at(sql, from)? - 1);
            }
            if let Some(until) = query.until {
                below = below.min(first_at(sql, until)?);
            }
            ("?1 = 0 AND ", 0)
        }
    };
    let order = if query.newest_first { " DESC" } else { "" };
    let text = format!(
        "-- audit: a page by number\nSELECT {COLUMNS} FROM audit
         WHERE {by}id > ?2 AND id < ?3 ORDER BY id{order} LIMIT ?4"
    );
    let mut statement = sql.prepare_cached(&text).map_err(failed)?;
    let mut rows = statement
        .query(params![value, above, below, LOOK])
        .map_err(failed)?;
    let mut page = AuditPage::default();
    let mut looked = 0;
    while let Some(row) = rows.next().map_err(failed)? {
        let entry = small(row).map_err(failed)?;
        if query.matches(&entry) {
            if page.entries.len() == query.limit as usize {
                page.next = page.entries.last().map(|last| last.id);
                return Ok(page);
            }
            page.entries
                .push(large(row, entry.clone()).map_err(failed)?);
        }
        looked += 1;
        page.next = (looked == LOOK).then_some(entry.id);
    }
    Ok(page)
}

/// The lowest number that a row of this time or later can have.
fn first_at(sql: &Connection, time: Millis) -> Result<i64> {
    const PROBE: &str = "-- audit: the first row from a number on
        SELECT id, at FROM audit WHERE id >= ? ORDER BY id LIMIT 1";
    const NEWEST: &str = "-- audit: newest
        SELECT max(id) FROM audit";
    let newest: Option<i64> = sql
        .prepare_cached(NEWEST)
        .and_then(|mut s| s.query_row([], |r| r.get(0)))
        .map_err(failed)?;
    let (mut low, mut high) = (1, newest.unwrap_or(0) + 1);
    let mut probe = sql.prepare_cached(PROBE).map_err(failed)?;
    while low < high {
        let middle = low + (high - low) / 2;
        let found: Option<(i64, Millis)> = probe
            .query_row([middle], |r| Ok((r.get(0)?, r.get(1)?)))
            .optional()
            .map_err(failed)?;
        match found {
            Some((id, at)) if at < time => low = id + 1,
            _ => high = middle,
        }
    }
    Ok(low)
}

/// The time of the newest row.
pub(super) fn newest(sql: &Connection) -> Result<Option<Millis>> {
    const SQL: &str = "-- audit: newest time
        SELECT at FROM audit WHERE id = (SELECT max(id) FROM audit)";
    sql.query_row(SQL, [], |r| r.get(0))
        .optional()
        .map_err(failed)
}

/// Drops a step of the rows that are as old as `until`. `true`: there may be more.
pub(super) fn forget(cycle: &Cycle<'_>, until: Millis) -> Result<bool> {
    const OLDEST: &str = "-- audit: oldest
        SELECT at FROM audit WHERE id = (SELECT min(id) FROM audit)";
    const SQL: &str = "-- audit over
        DELETE FROM audit WHERE id IN (SELECT id FROM audit WHERE id > 0 ORDER BY id LIMIT ?2) AND at <= ?1";
    let oldest: Option<Millis> = cycle
        .sql
        .prepare_cached(OLDEST)
        .and_then(|mut s| s.query_row([], |r| r.get(0)).optional())
        .map_err(failed)?;
    if oldest.is_none_or(|at| at > until) {
        return Ok(false);
    }
    cycle
        .sql
        .prepare_cached(SQL)
        .and_then(|mut s| s.execute(params![until, STEP]))
        .map(|gone| gone == STEP as usize)
        .map_err(failed)
}
