//! Load a message as a [`Draft`]: find the one row that says where it is.

use super::rows::{
    self, DEAD, DELIVERY, ENVELOPE, ENVELOPE_COLUMNS, LEASE, LIFE, StateRow, failed,
};
use super::writer::Cycle;
use crate::error::Result;
use crate::model::{Delivered, End, Ended, Life, MessageId, Millis, Place, QueueUid};
use crate::rules::{Draft, Message};
use rusqlite::{Connection, OptionalExtension, params};
use std::sync::Arc;

/// The incarnations of a queue: what waits and is leased, and the dead letters.
#[derive(Clone, Copy)]
pub(super) struct Incarnations {
    pub(super) live_id: i64,
    pub(super) dead_id: i64,
}

/// A message under work: the draft and what is stored now.
pub(super) struct Loaded {
    pub(super) draft: Draft,
    /// As stored; `None` when it is gone.
    pub(super) before: Option<Message>,
    /// As published, when a purge took it and its rows are not cleared yet.
    pub(super) purged: Option<Message>,
    pub(super) queue: QueueUid,
    pub(super) digest: Option<Vec<u8>>,
}

/// Loads one message with its history. `None`: there is no trace of it.
pub(super) fn load(
    sql: &Connection,
    incarnations: impl Fn(QueueUid) -> Option<Incarnations>,
    id: MessageId,
) -> Result<Option<Loaded>> {
    let text =
        format!("-- load message\nSELECT {ENVELOPE}, m.digest FROM message m WHERE m.seq = ?");
    let found = sql
        .prepare_cached(&text)
        .and_then(|mut s| {
            s.query_row([id.0], |row| {
                let digest: Option<Vec<u8>> = row.get(ENVELOPE_COLUMNS)?;
                Ok((rows::envelope(row, 0)?, digest))
            })
            .optional()
        })
        .map_err(failed)?;
    let Some(((envelope, expires_at), digest)) = found else {
        return load_ended(sql, id);
    };
    let queue = envelope.queue;
    let Some(own) = incarnations(queue) else {
        return Ok(None);
    };
    let state = state_row(
        sql,
        own,
        id,
        9 - envelope.priority,
        envelope.first_available_at,
    )
    .map_err(failed)?;
    let present = |s: &StateRow| {
        s.queue_id == own.live_id
            || s.queue_id == own.dead_id
            || matches!(s.place, Place::Discarded(_))
    };
    let purged = state.as_ref().filter(|s| !present(s)).map(|s| s.queue_id);
    let Some(state) = state.filter(present) else {
        // Its row belongs to an incarnation that was purged, or was cleared already.
        let ended = Ended {
            end: End::Purged,
            at: purged_at(sql, queue, purged)?,
            fence: 0,
            outcome: None,
        };
        let place = Place::Ready {
            available_at: envelope.first_available_at,
        };
        let (envelope, life) = (Arc::new(envelope), Life::default());
        let purged = Some(Message {
            envelope,
            life,
            place,
            completion: None,
            expires_at,
        });
        let draft = Draft::gone(Some(ended), history(sql, id)?);
        return Ok(Some(Loaded {
            draft,
            before: None,
            purged,
            queue,
            digest,
        }));
    };
    let first = state.life.fence <= 1 && matches!(state.place, Place::Leased(_));
    let (history, completion) = if first {
        (Vec::new(), None)
    } else {
        (history(sql, id)?, completion(sql, id).map_err(failed)?)
    };
    let message = Message {
        envelope: Arc::new(envelope),
        life: state.life,
        place: state.place,
        completion,
        expires_at,
    };
    let before = Some(message.clone());
    Ok(Some(Loaded {
        draft: Draft::of(message, history),
        before,
        purged: None,
        queue,
        digest,
    }))
}

/// When the incarnation was purged; the latest purge of the queue, where the row was not found in its place.
fn purged_at(sql: &Connection, queue: QueueUid, id: Option<i64>) -> Result<Millis> {
    const SQL: &str = "-- purged at\n        SELECT max(since) FROM trash WHERE uid = ?1 AND (?2 IS NULL OR id = ?2)";
    let since = sql
        .prepare_cached(SQL)
        .and_then(|mut s| s.query_row(params![queue.0, id], |r| r.get::<_, Option<Millis>>(0)))
        .map_err(failed)?;
    Ok(since.unwrap_or_default())
}

fn load_ended(sql: &Connection, id: MessageId) -> Result<Option<Loaded>> {
    const SQL: &str = "-- load ended
        SELECT how, at, fence, outcome, uid FROM ended WHERE seq = ?";
    let found = sql
        .prepare_cached(SQL)
        .and_then(|mut s| {
            s.query_row([id.0], |row| Ok((rows::ended(row)?, row.get::<_, i32>(4)?)))
                .optional()
        })
        .map_err(failed)?;
    let Some((ended, uid)) = found else {
        return Ok(None);
    };
    let draft = Draft::gone(Some(ended), history(sql, id)?);
    Ok(Some(Loaded {
        draft,
        before: None,
        purged: None,
        queue: QueueUid(uid),
        digest: None,
    }))
}

/// The deliveries that are kept, oldest first.
pub(super) fn history(sql: &Connection, id: MessageId) -> Result<Vec<Delivered>> {
    let text = format!("-- history\nSELECT {DELIVERY} FROM delivery WHERE seq = ? ORDER BY fence");
    let mut statement = sql.prepare_cached(&text).map_err(failed)?;
    let found = statement
        .query_map([id.0], rows::delivered)
        .and_then(Iterator::collect);
    found.map_err(failed)
}

fn completion(
    sql: &Connection,
    id: MessageId,
) -> rusqlite::Result<Option<crate::model::Completion>> {
    sql.prepare_cached("-- completion\nSELECT fence, outcome FROM completion WHERE seq = ?")?
        .query_row([id.0], |row| {
            Ok(crate::model::Completion {
                fence: row.get(0)?,
                outcome: row.get_ref(1)?.as_str_or_null()?.map(Arc::from),
            })
        })
        .optional()
}

/// Finds the one row that says where a message is. A lease is looked for first: most loads settle one.
fn state_row(
    sql: &Connection,
    own: Incarnations,
    id: MessageId,
    rank: u8,
    first_available_at: Millis,
) -> rusqlite::Result<Option<StateRow>> {
    let lease =
        format!("-- place: lease\nSELECT queue_id, {LIFE}, {LEASE} FROM lease WHERE seq = ?");
    let row = |place: fn(&rusqlite::Row<'_>) -> rusqlite::Result<Place>| {
        move |r: &rusqlite::Row<'_>| {
            Ok(StateRow {
                queue_id: r.get(0)?,
                life: rows::life(r, 1)?,
                place: place(r)?,
            })
        }
    };
    if let found @ Some(_) = sql
        .prepare_cached(&lease)?
        .query_row([id.0], row(|r| rows::lease(r, 6)))
        .optional()?
    {
        return Ok(found);
    }
    let ready: fn(&rusqlite::Row<'_>) -> rusqlite::Result<Place> = |r| {
        Ok(Place::Ready {
            available_at: r.get(6)?,
        })
    };
    let delayed: fn(&rusqlite::Row<'_>) -> rusqlite::Result<Place> =
        |r| Ok(Place::Delayed { due_at: r.get(6)? });
    let text = format!(
        "-- place: ready, moved\nSELECT queue_id, {LIFE}, available_at FROM ready WHERE seq = ? AND moved = 1"
    );
    if let found @ Some(_) = sql
        .prepare_cached(&text)?
        .query_row([id.0], row(ready))
        .optional()?
    {
        return Ok(found);
    }
    let text = format!(
        "-- place: ready\nSELECT queue_id, {LIFE}, available_at FROM ready
         WHERE queue_id = ? AND rank = ? AND available_at = ? AND seq = ?"
    );
    let key = params![own.live_id, rank, first_available_at, id.0];
    if let found @ Some(_) = sql
        .prepare_cached(&text)?
        .query_row(key, row(ready))
        .optional()?
    {
        return Ok(found);
    }
    let text = format!(
        "-- place: delayed, moved\nSELECT queue_id, {LIFE}, due_at FROM delayed WHERE seq = ? AND moved = 1"
    );
    if let found @ Some(_) = sql
        .prepare_cached(&text)?
        .query_row([id.0], row(delayed))
        .optional()?
    {
        return Ok(found);
    }
    let text = format!(
        "-- place: delayed\nSELECT queue_id, {LIFE}, due_at FROM delayed WHERE due_at = ? AND seq = ?"
    );
    let key = params![first_available_at, id.0];
    if let found @ Some(_) = sql
        .prepare_cached(&text)?
        .query_row(key, row(delayed))
        .optional()?
    {
        return Ok(found);
    }
    let text = format!("-- place: dead\nSELECT queue_id, {LIFE}, {DEAD} FROM dead WHERE seq = ?");
    let dead = |r: &rusqlite::Row<'_>| rows::dead(r, 6).map(Place::Dead);
    if let found @ Some(_) = sql
        .prepare_cached(&text)?
        .query_row([id.0], row(dead))
        .optional()?
    {
        return Ok(found);
    }
    let text = format!(
        "-- place: discarded\nSELECT queue_id, {LIFE}, {DEAD}, discarded_at, payload_kept FROM discarded WHERE seq = ?"
    );
    sql.prepare_cached(&text)?
        .query_row([id.0], row(|r| rows::discarded(r, 6)))
        .optional()
}

impl Cycle<'_> {
    /// [`load`] with the incarnations that this transaction sees.
    pub(super) fn load(&self, id: MessageId) -> Result<Option<Loaded>> {
        load(
            self.sql,
            |uid| {
                self.queue(uid).map(|q| Incarnations {
                    live_id: q.live_id,
                    dead_id: q.dead_id,
                })
            },
            id,
        )
    }
}
