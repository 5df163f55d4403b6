//! What the clock moves: expired leases, due delays, messages past their end.

use super::maintenance;
use super::rows::failed;
use super::writer::{Cycle, QueueRow};
use crate::error::Result;
use crate::model::{MessageId, Millis};
use crate::rules;
use rusqlite::params;

/// Most rows of each kind in one step: about 5 ms of work, so that 50,000 expired leases after a restart delay nobody.
const STEP: u32 = 500;

/// Moves at most [`STEP`] rows of each kind and notes when the next one is due. Answers how many moved and whether more are
/// due already.
pub(super) fn step(cycle: &mut Cycle<'_>) -> Result<(u32, bool)> {
    const LEASES: &str =
        "-- due leases\nSELECT seq FROM lease WHERE expires_at <= ? ORDER BY expires_at LIMIT ?";
    const DELAYS: &str =
        "-- due delays\nSELECT seq FROM delayed WHERE due_at <= ? ORDER BY due_at, seq LIMIT ?";
    const ENDS: &str = "-- due ends\nSELECT seq FROM expiring WHERE expires_at <= ? ORDER BY expires_at, seq LIMIT ?";
    let leftover = [
        None,
        Some("DELETE FROM delayed WHERE due_at <= ? AND seq = ?"),
        Some("DELETE FROM expiring WHERE expires_at <= ? AND seq = ?"),
    ];
    let mut moved = 0;
    let mut more = false;
    for (kind, sql) in [LEASES, DELAYS, ENDS].into_iter().enumerate() {
        let due = ids(cycle, sql, cycle.now)?;
        more |= due.len() == STEP as usize;
        moved += due.len() as u32;
        for id in due {
            pass(cycle, id)?;
            // A purged message leaves its row behind, and a leased one its entry among the ends; the latter is written
            // again when the message waits again.
            if let Some(sql) = leftover[kind] {
                let values = params![cycle.now, id.0];
                cycle
                    .sql
                    .prepare_cached(sql)
                    .and_then(|mut s| s.execute(values))
                    .map_err(failed)?;
            }
        }
    }
    cycle.known.next_due = next_due(cycle)?;
    Ok((moved, more))
}

fn ids(cycle: &Cycle<'_>, sql: &'static str, until: Millis) -> Result<Vec<MessageId>> {
    let mut statement = cycle.sql.prepare_cached(sql).map_err(failed)?;
    let found = statement.query_map(params![until, STEP], |row| row.get(0).map(MessageId));
    found.and_then(Iterator::collect).map_err(failed)
}

/// Lets the time pass for one message and writes what came of it. One that was purged is cleared ahead of its turn.
fn pass(cycle: &mut Cycle<'_>, id: MessageId) -> Result<()> {
    let Some(mut loaded) = cycle.load(id)? else {
        return Ok(());
    };
    if loaded.before.is_none() {
        let known = loaded.draft.ended.map(|e| e.at).filter(|at| *at > 0);
        return maintenance::clear(cycle, id, known.unwrap_or(cycle.now));
    }
    let Some(queue) = cycle.queue(loaded.queue) else {
        return Ok(());
    };
    rules::time::pass(&mut loaded.draft, &queue.policy, cycle.now);
    cycle.write(&loaded)
}

fn next_due(cycle: &Cycle<'_>) -> Result<Millis> {
    const SQL: &str = "-- next due: the first of each list
        SELECT min(at) FROM (
            SELECT (SELECT min(expires_at) FROM lease) AS at
            UNION ALL SELECT (SELECT min(due_at) FROM delayed)
            UNION ALL SELECT (SELECT min(expires_at) FROM expiring))";
    let next: Option<Millis> = cycle
        .sql
        .prepare_cached(SQL)
        .and_then(|mut s| s.query_row([], |r| r.get(0)))
        .map_err(failed)?;
    Ok(next.unwrap_or(Millis::MAX))
}

/// Files ready messages past the retention of their queue, at most [`STEP`] per queue. Only queues that are older than their
/// own retention are looked at.
pub(super) fn retention(cycle: &mut Cycle<'_>) -> Result<(u32, bool)> {
    const SQL: &str = "-- retention: the old end of one priority
        SELECT seq FROM ready WHERE queue_id = ? AND rank = ? AND available_at <= ? ORDER BY available_at, seq LIMIT ?";
    let now = cycle.now;
    let old_enough = |q: &&QueueRow| q.created_at.saturating_add(q.policy.retention_ms) <= now;
    let queues: Vec<QueueRow> = cycle
        .known
        .queues
        .values()
        .filter(old_enough)
        .cloned()
        .collect();
    let mut moved = 0;
    let mut more = false;
    for queue in queues
        .iter()
        .filter(|q| cycle.counts_of(q.live_id).ready > 0)
        .collect::<Vec<_>>()
    {
        let until = now - queue.policy.retention_ms;
        for rank in 0..=9 {
            let over: Vec<MessageId> = cycle
                .sql
                .prepare_cached(SQL)
                .and_then(|mut s| {
                    s.query_map(params![queue.live_id, rank, until, STEP], |r| {
                        r.get(0).map(MessageId)
                    })?
                    .collect()
                })
                .map_err(failed)?;
            more |= over.len() == STEP as usize;
            moved += over.len() as u32;
            for id in over {
                pass(cycle, id)?;
            }
        }
    }
    Ok((moved, more))
}
