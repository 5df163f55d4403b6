//! Bulk decisions: begin, steer, read. The steps they make are in [`super::steps`].

use super::audit::{self, On};
use super::rows::failed;
use super::selections;
use super::writer::Cycle;
use crate::backend::{Answer, Call, OperationRefused as No};
use crate::error::{Result, StoreError};
use crate::model::{MessageId, Reason};
use crate::redrives::{Redrive, RedriveId, RedriveListing, RedrivePlan, RedriveState, Steer};
use crate::rules::bulk;
use crate::rules::trail::Trail;
use rusqlite::{Connection, OptionalExtension, params};

/// Begins a bulk decision over a selection.
pub(super) fn start(cycle: &Cycle<'_>, call: &Call, plan: &RedrivePlan) -> Result<Answer> {
    const SQL: &str = "-- redrive: a new one
        INSERT INTO redrive (uid, selection_id, state, created_at, body) VALUES (?, ?, ?, ?, '')";
    let refused = |why| Ok(Answer::Refused(why));
    let Some((selection, _)) = selections::find(cycle.sql, plan.selection)? else {
        return refused(No::SelectionNotFound);
    };
    let count = selection.figures.count;
    if selection.expires_at <= cycle.now {
        return refused(No::SelectionExpired);
    }
    if plan.expected_count != count {
        return refused(No::CountMismatch { actual: count });
    }
    let state = RedriveState::Running.code();
    let values = params![selection.queue.0, plan.selection.0, state, cycle.now];
    cycle
        .sql
        .prepare_cached(SQL)
        .and_then(|mut s| s.execute(values))
        .map_err(failed)?;
    let id = RedriveId(cycle.sql.last_insert_rowid());
    let mut redrive = Redrive::new(id, selection.queue, plan.clone(), count, cycle.now);
    redrive.actor = call.actor.to_string();
    redrive.justification = call.justification.as_deref().map(str::to_owned);
    save(cycle, &redrive)?;
    selections::keep(cycle, plan.selection)?;
    let trail = Trail::redrive(None, &redrive);
    note(cycle, call, "start_redrive", &redrive, &trail)?;
    Ok(Answer::Redrive { id: id.0 })
}

/// Changes a bulk decision that is under way.
pub(super) fn steer(cycle: &Cycle<'_>, call: &Call, id: RedriveId, steer: Steer) -> Result<Answer> {
    let Some(before) = find(cycle.sql, id)? else {
        return Ok(Answer::Refused(No::RedriveNotFound));
    };
    let mut redrive = before.clone();
    if !bulk::steer(&mut redrive, steer, cycle.now) {
        return Ok(Answer::Refused(No::RedriveFinished));
    }
    save(cycle, &redrive)?;
    let trail = Trail::redrive(Some(&before), &redrive);
    note(cycle, call, steer.as_str(), &redrive, &trail)?;
    Ok(Answer::Redrive { id: id.0 })
}

/// An audit row about a redrive as a whole.
pub(super) fn note(
    cycle: &Cycle<'_>,
    call: &Call,
    word: &str,
    redrive: &Redrive,
    trail: &Trail,
) -> Result<()> {
    let on = On {
        redrive: Some(redrive.id),
        ..On::queue(redrive.queue)
    };
    audit::write(cycle, call, word, on, trail)
}

/// A redrive as it is now, with the failures that are not written into it yet.
pub(super) fn find(sql: &Connection, id: RedriveId) -> Result<Option<Redrive>> {
    const SQL: &str = "-- find redrive
        SELECT body FROM redrive WHERE id = ?";
    let body: Option<String> = sql
        .prepare_cached(SQL)
        .and_then(|mut s| s.query_row([id.0], |r| r.get(0)).optional())
        .map_err(failed)?;
    body.map(|body| read(sql, &body)).transpose()
}

fn read(sql: &Connection, body: &str) -> Result<Redrive> {
    let mut redrive: Redrive = serde_json::from_str(body).map_err(StoreError::internal)?;
    let failures = failures(sql, redrive.id)?;
    if !failures.is_empty() {
        bulk::failed(&mut redrive, &failures);
    }
    Ok(redrive)
}

fn failures(sql: &Connection, id: RedriveId) -> Result<Vec<i64>> {
    const SQL: &str = "-- redrive: failures to be counted
        SELECT place FROM redrive_failure WHERE redrive_id = ?";
    let mut statement = sql.prepare_cached(SQL).map_err(failed)?;
    let places = statement.query_map([id.0], |r| r.get(0));
    places.and_then(Iterator::collect).map_err(failed)
}

/// Redrives, the youngest first.
pub(super) fn list(sql: &Connection, listing: &RedriveListing) -> Result<Vec<Redrive>> {
    const SQL: &str = "-- redrives, youngest first
        SELECT uid, body FROM redrive WHERE id < ?1 AND (?2 IS NULL OR state = ?2) ORDER BY id DESC";
    let before = listing.before.map_or(i64::MAX, |id| id.0);
    let state = listing.state.map(RedriveState::code);
    let mut statement = sql.prepare_cached(SQL).map_err(failed)?;
    let mut rows = statement.query(params![before, state]).map_err(failed)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(failed)? {
        if found.len() == listing.limit as usize {
            break;
        }
        let uid: i32 = row.get(0).map_err(failed)?;
        let queues = listing.queues.as_ref();
        if queues.is_none_or(|queues| queues.iter().any(|q| q.0 == uid)) {
            let body = row.get_ref(1).map_err(failed)?;
            found.push(read(sql, body.as_str().map_err(StoreError::internal)?)?);
        }
    }
    Ok(found)
}

/// Writes what a redrive is now. It was read in this transaction, so its failures are in it.
pub(super) fn save(cycle: &Cycle<'_>, redrive: &Redrive) -> Result<()> {
    const SQL: &str = "-- save redrive
        UPDATE redrive SET state = ?2, next_at = ?3, finished_at = ?4, body = ?5 WHERE id = ?1";
    const COUNTED: &str = "-- redrive: failures that are counted
        DELETE FROM redrive_failure WHERE redrive_id = ?";
    let waits = redrive.state.is_final() || redrive.state == RedriveState::Paused;
    let body = serde_json::to_string(redrive).map_err(StoreError::internal)?;
    let values = params![
        redrive.id.0,
        redrive.state.code(),
        (!waits).then_some(redrive.next_at),
        redrive.finished_at,
        body
    ];
    cycle
        .sql
        .prepare_cached(SQL)
        .and_then(|mut s| s.execute(values))
        .map_err(failed)?;
    cycle
        .sql
        .prepare_cached(COUNTED)
        .and_then(|mut s| s.execute([redrive.id.0]))
        .map(|_| ())
        .map_err(failed)
}

impl Cycle<'_> {
    /// Notes that a message that was redriven before is dead again: its redrive counts it when it is looked at next.
    pub(super) fn died_again(&self, id: MessageId, reason: Reason) -> rusqlite::Result<()> {
        const OUT: &str = "-- redriven: dead again
            DELETE FROM redriven WHERE seq = ? RETURNING redrive_id, place";
        const INTO: &str = "-- redrive: a failure
            INSERT INTO redrive_failure (redrive_id, place) VALUES (?, ?) ON CONFLICT DO NOTHING";
        let moved: Option<(i64, i64)> = self
            .sql
            .prepare_cached(OUT)?
            .query_row([id.0], |r| Ok((r.get(0)?, r.get(1)?)))
            .optional()?;
        if let Some((redrive, place)) = moved.filter(|_| bulk::is_failure(reason)) {
            self.sql
                .prepare_cached(INTO)?
                .execute(params![redrive, place])?;
        }
        Ok(())
    }
}
