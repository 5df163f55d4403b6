//! What time does to decided and undecided dead letters, and to what operators left behind: everything ends some day, in small
//! steps and by an index.

use super::audit::{self, On};
use super::redrives;
use super::rows::failed;
use super::writer::Cycle;
use crate::backend::{Call, Keep};
use crate::error::Result;
use crate::model::{DISCARD_UNDO_MS, End, MessageId, Millis, OPERATION_MEMORY_MS};
use crate::redrives::{RedriveId, WATCH_MS};
use crate::rules;
use crate::rules::trail::Trail;
use rusqlite::{OptionalExtension, params};

const REVISIONS: &str = "-- revisions of one message
    DELETE FROM revision WHERE seq = ?";

/// Rows per step and kind: a few milliseconds, so that callers hardly notice.
const STEP: u32 = 500;

/// One step of everything. `true`: there is more to do now.
pub(super) fn step(cycle: &mut Cycle<'_>, keep: Keep) -> Result<bool> {
    let until = cycle.now.saturating_sub(keep.audit_ms);
    let mut more = expire_dead(cycle)?;
    more |= drop_payloads(cycle)?;
    more |= forget_discarded(cycle, until)?;
    more |= audit::forget(cycle, until)?;
    count_failures(cycle)?;
    more |= stop_watching(cycle, until.max(cycle.now - WATCH_MS))?;
    more |= forget_redrives(cycle, until)?;
    more |= forget_ends(cycle)?;
    sweep_revisions(cycle)?;
    Ok(more)
}

fn due(cycle: &Cycle<'_>, sql: &'static str, until: Millis) -> Result<Vec<MessageId>> {
    let mut statement = cycle.sql.prepare_cached(sql).map_err(failed)?;
    let found = statement.query_map(params![until, STEP], |r| r.get(0).map(MessageId));
    found.and_then(Iterator::collect).map_err(failed)
}

fn run(cycle: &Cycle<'_>, sql: &'static str, values: impl rusqlite::Params) -> Result<usize> {
    cycle
        .sql
        .prepare_cached(sql)
        .and_then(|mut s| s.execute(values))
        .map_err(failed)
}

/// Ends dead letters past the retention of their queue.
fn expire_dead(cycle: &mut Cycle<'_>) -> Result<bool> {
    const SQL: &str = "-- dead-letter retention
        SELECT seq FROM dead WHERE queue_id = ? AND died_at <= ? ORDER BY died_at, seq LIMIT ?";
    let bounded: Vec<_> = cycle
        .known
        .queues
        .values()
        .filter_map(|q| {
            q.policy
                .dead_letter_retention_ms
                .map(|kept| (q.clone(), cycle.now - kept))
        })
        .collect();
    let policy = Call::by("policy");
    let mut more = false;
    for (queue, until) in bounded {
        let over: Vec<MessageId> = cycle
            .sql
            .prepare_cached(SQL)
            .and_then(|mut s| {
                s.query_map(params![queue.dead_id, until, STEP], |r| {
                    r.get(0).map(MessageId)
                })?
                .collect()
            })
            .map_err(failed)?;
        more |= over.len() == STEP as usize;
        for id in over {
            let Some(mut loaded) = cycle.load(id)? else {
                continue;
            };
            if rules::operate::expire_dead(&mut loaded.draft, &queue.policy, cycle.now) {
                cycle.write(&loaded)?;
                let on = On {
                    message: Some(id),
                    ..On::queue(queue.uid)
                };
                let word = End::DeadLetterExpired.as_str();
                audit::write(cycle, &policy, word, on, &Trail::default())?;
            }
        }
    }
    Ok(more)
}

/// Empties the payloads of dead letters that were discarded too long ago to be opened again; what else is known of them stays.
fn drop_payloads(cycle: &Cycle<'_>) -> Result<bool> {
    const OVER: &str = "-- discarded: undo over
        SELECT seq FROM discarded WHERE payload_kept = 1 AND discarded_at <= ? ORDER BY discarded_at LIMIT ?";
    const EMPTY: &str = "-- discarded: empty the payload
        UPDATE message SET payload = x'' WHERE seq = ?";
    const MARK: &str = "-- discarded: the payload is gone
        UPDATE discarded SET payload_kept = 0 WHERE seq = ?";
    let over = due(cycle, OVER, cycle.now - DISCARD_UNDO_MS)?;
    for id in &over {
        for sql in [EMPTY, MARK, REVISIONS] {
            run(cycle, sql, [id.0])?;
        }
    }
    Ok(over.len() == STEP as usize)
}

/// Ends the memory of dead letters that were discarded before `until`.
fn forget_discarded(cycle: &mut Cycle<'_>, until: Millis) -> Result<bool> {
    const SQL: &str = "-- discarded: over
        SELECT seq FROM discarded WHERE discarded_at <= ? ORDER BY discarded_at LIMIT ?";
    let over = due(cycle, SQL, until)?;
    let more = over.len() == STEP as usize;
    for id in over {
        let Some(mut loaded) = cycle.load(id)? else {
            continue;
        };
        rules::operate::forget_discarded(&mut loaded.draft);
        cycle.write(&loaded)?;
    }
    Ok(more)
}

/// Writes failures into their redrives that no step will look at any more, so that they do not gather.
fn count_failures(cycle: &Cycle<'_>) -> Result<()> {
    const SQL: &str = "-- redrives with failures to be counted
        SELECT redrive_id FROM redrive_failure WHERE redrive_id > ? ORDER BY redrive_id LIMIT 1";
    let mut behind = i64::MIN;
    loop {
        let found: Option<i64> = cycle
            .sql
            .prepare_cached(SQL)
            .and_then(|mut s| s.query_row([behind], |r| r.get(0)).optional())
            .map_err(failed)?;
        let Some(id) = found else { return Ok(()) };
        if let Some(redrive) = redrives::find(cycle.sql, RedriveId(id))? {
            redrives::save(cycle, &redrive)?;
        }
        behind = id;
    }
}

/// Lets go of what the redrives moved that ended before `until`.
fn stop_watching(cycle: &Cycle<'_>, until: Millis) -> Result<bool> {
    const OVER: &str = "-- redrive: watched long enough
        SELECT id FROM redrive WHERE watched = 1 AND finished_at <= ? ORDER BY finished_at LIMIT 1";
    const ROWS: &str = "-- redriven: watched long enough
        DELETE FROM redriven WHERE seq IN (SELECT seq FROM redriven WHERE redrive_id = ? LIMIT ?)";
    const DONE: &str = "-- redrive: watched no more
        UPDATE redrive SET watched = 0 WHERE id = ?";
    let mut left = STEP as usize;
    while left > 0 {
        let over: Option<i64> = cycle
            .sql
            .prepare_cached(OVER)
            .and_then(|mut s| s.query_row([until], |r| r.get(0)).optional())
            .map_err(failed)?;
        let Some(id) = over else { return Ok(false) };
        let gone = run(cycle, ROWS, params![id, left as i64])?;
        if gone < left {
            run(cycle, DONE, [id])?;
        }
        left -= gone;
    }
    Ok(true)
}

/// Forgets redrives that ended before `until`, with their selections; and selections that none was made of in time.
fn forget_redrives(cycle: &Cycle<'_>, until: Millis) -> Result<bool> {
    const REDRIVES: &str = "-- redrives: over
        SELECT id, selection_id FROM redrive WHERE finished_at <= ? AND watched = 0 ORDER BY finished_at LIMIT ?";
    const FAILURES: &str = "-- redrives: failures of one that is over
        DELETE FROM redrive_failure WHERE redrive_id = ?";
    const REDRIVE: &str = "-- redrives: one that is over
        DELETE FROM redrive WHERE id = ?";
    const KEPT: &str = "-- redrives: selection that nobody needs
        DELETE FROM selection WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM redrive WHERE selection_id = ?1)";
    const SELECTIONS: &str = "-- selections: over
        DELETE FROM selection WHERE id IN (SELECT id FROM selection WHERE expires_at <= ?1 ORDER BY expires_at LIMIT ?2)";
    let over: Vec<(i64, i64)> = cycle
        .sql
        .prepare_cached(REDRIVES)
        .and_then(|mut s| {
            s.query_map(params![until, STEP], |r| Ok((r.get(0)?, r.get(1)?)))?
                .collect()
        })
        .map_err(failed)?;
    for (id, selection) in &over {
        run(cycle, FAILURES, [id])?;
        run(cycle, REDRIVE, [id])?;
        run(cycle, KEPT, [selection])?;
    }
    let selections = run(cycle, SELECTIONS, params![cycle.now, STEP])?;
    Ok(over.len() == STEP as usize || selections == STEP as usize)
}

/// Drops memories that are over: records of ends with their histories, keys, answers to operators.
fn forget_ends(cycle: &Cycle<'_>) -> Result<bool> {
    const HISTORY: &str = "-- ends over: histories
        DELETE FROM delivery WHERE seq IN (SELECT seq FROM ended WHERE keep_until <= ?1 ORDER BY keep_until LIMIT ?2)";
    const ENDS: &str = "-- ends over
        DELETE FROM ended WHERE seq IN (SELECT seq FROM ended WHERE keep_until <= ?1 ORDER BY keep_until LIMIT ?2)";
    const KEYS: &str = "-- keys over
        DELETE FROM unique_key WHERE (uid, key) IN
            (SELECT uid, key FROM unique_key WHERE keep_until <= ?1 ORDER BY keep_until LIMIT ?2)";
    const ANSWERS: &str = "-- answers over
        DELETE FROM operation WHERE request_id IN (SELECT request_id FROM operation WHERE at <= ?1 ORDER BY at LIMIT ?2)";
    let mut more = false;
    for (sql, until) in [
        (HISTORY, cycle.now),
        (ENDS, cycle.now),
        (KEYS, cycle.now),
        (ANSWERS, cycle.now - OPERATION_MEMORY_MS),
    ] {
        let gone = run(cycle, sql, params![until, STEP])?;
        more |= gone >= STEP as usize && sql != HISTORY;
    }
    Ok(more)
}

/// Walks the revisions with a cursor and drops those of messages that are gone: a plain ack and a purge leave them behind.
fn sweep_revisions(cycle: &mut Cycle<'_>) -> Result<()> {
    const SQL: &str = "-- revisions: the next step of the walk
        SELECT r.seq, EXISTS (SELECT 1 FROM message m WHERE m.seq = r.seq) FROM revision r
        WHERE r.seq > ? AND r.number = 0 ORDER BY r.seq LIMIT ?";
    let behind = cycle.known.revision_cursor;
    let rows: Vec<(i64, bool)> = cycle
        .sql
        .prepare_cached(SQL)
        .and_then(|mut s| {
            s.query_map(params![behind, STEP], |r| Ok((r.get(0)?, r.get(1)?)))?
                .collect()
        })
        .map_err(failed)?;
    let full = rows.len() == STEP as usize;
    let last = rows.last().filter(|_| full).map(|row| row.0);
    cycle.known.revision_cursor = last.unwrap_or(0);
    for (seq, _) in rows.iter().filter(|(_, there)| !there) {
        run(cycle, REVISIONS, [seq])?;
    }
    Ok(())
}
