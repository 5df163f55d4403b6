//! Changed payloads of dead letters: each change is a revision, and the message has the latest one.

use super::audit::{self, On};
use super::operate::present;
use super::rows::failed;
use super::writer::Cycle;
use crate::backend::{Answer, Call, MAX_REVISIONS, OperationRefused as No, Revision};
use crate::error::Result;
use crate::model::{MessageId, Place, QueueUid};
use crate::rules::trail::Trail;
use crate::rules::{self, Message, operate};
use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Row, params};
use std::sync::Arc;

/// What a change makes of a payload: the revision that it builds on, the new text, the new headers.
pub(super) type Change<'a> = (i32, &'a Bytes, Option<&'a Arc<str>>);

const COLUMNS: &str = "number, at, actor, reason, floor, undo, payload, headers";

fn revision(row: &Row<'_>) -> rusqlite::Result<Revision> {
    let text = |index: usize| -> rusqlite::Result<Option<Arc<str>>> {
        Ok(row.get_ref(index)?.as_str_or_null()?.map(Arc::from))
    };
    Ok(Revision {
        number: row.get(0)?,
        at: row.get(1)?,
        actor: row.get_ref(2)?.as_str()?.into(),
        reason: text(3)?,
        floor: row.get(4)?,
        undo: row.get(5)?,
        payload: Bytes::copy_from_slice(row.get_ref(6)?.as_blob()?),
        headers: text(7)?,
    })
}

/// All revisions of a message, oldest first.
pub(super) fn of_message(sql: &Connection, id: MessageId) -> Result<Vec<Revision>> {
    let text =
        format!("-- revisions\nSELECT {COLUMNS} FROM revision WHERE seq = ? ORDER BY number");
    let mut statement = sql.prepare_cached(&text).map_err(failed)?;
    let rows = statement.query_map([id.0], revision);
    rows.and_then(Iterator::collect).map_err(failed)
}

fn latest(sql: &Connection, id: MessageId) -> Result<Option<Revision>> {
    let text = format!(
        "-- revisions: latest\nSELECT {COLUMNS} FROM revision WHERE seq = ? ORDER BY number DESC LIMIT 1"
    );
    sql.prepare_cached(&text)
        .and_then(|mut s| s.query_row([id.0], revision).optional())
        .map_err(failed)
}

fn numbered(sql: &Connection, id: MessageId, number: i32) -> Result<Option<Revision>> {
    let text =
        format!("-- revisions: one\nSELECT {COLUMNS} FROM revision WHERE seq = ? AND number = ?");
    sql.prepare_cached(&text)
        .and_then(|mut s| s.query_row(params![id.0, number], revision).optional())
        .map_err(failed)
}

/// What was published, for a message that nobody has changed yet.
fn published(sql: &Connection, message: &Message) -> Result<Revision> {
    const SQL: &str = "-- revisions: what was published
        SELECT payload FROM message WHERE seq = ?";
    let payload: Vec<u8> = sql
        .prepare_cached(SQL)
        .and_then(|mut s| s.query_row([message.envelope.id.0], |r| r.get(0)))
        .map_err(failed)?;
    Ok(Revision {
        number: 0,
        at: message.envelope.created_at,
        actor: "".into(),
        reason: None,
        floor: 0,
        undo: false,
        payload: payload.into(),
        headers: message.envelope.headers.clone(),
    })
}

/// Writes a new revision of a dead letter's payload: the given one, or (`None`) that which it died with.
pub(super) fn edit(
    cycle: &mut Cycle<'_>,
    call: &Call,
    queue: QueueUid,
    id: MessageId,
    change: Option<Change<'_>>,
) -> Result<Answer> {
    let refused = |why| Ok(Answer::Refused(why));
    let row = present(cycle, queue);
    let loaded = cycle.load(id)?.filter(|loaded| loaded.queue == queue);
    let (Some(row), Some(mut loaded)) = (row, loaded) else {
        return refused(No::MessageNotFound);
    };
    let draft = &mut loaded.draft;
    rules::time::pass(draft, &row.policy, cycle.now);
    let was_edited = matches!(
        draft.message.as_ref().map(|m| &m.place),
        Some(Place::Dead(dead)) if dead.edited
    );
    if let Err(why) = operate::edit(draft, change.is_none()) {
        return refused(why.into());
    }
    let Some(message) = &draft.message else {
        return refused(No::MessageNotFound);
    };
    let first = match latest(cycle.sql, id)? {
        Some(_) => None,
        None => Some(published(cycle.sql, message)?),
    };
    let Some(current) = first
        .clone()
        .map_or_else(|| latest(cycle.sql, id), |r| Ok(Some(r)))?
    else {
        return refused(No::MessageNotFound);
    };
    if current.number >= MAX_REVISIONS && change.is_some() {
        return refused(No::RevisionLimit);
    }
    let floor = if was_edited {
        current.floor
    } else {
        current.number
    };
    let (payload, headers) = match change {
        Some((base, _, _)) if base != current.number => return refused(No::RevisionConflict),
        Some((_, payload, headers)) => (payload.clone(), headers.cloned()),
        None => match numbered(cycle.sql, id, floor)? {
            Some(died_with) => (died_with.payload, died_with.headers),
            None => return refused(No::NotEdited),
        },
    };
    if change.is_some() && (&payload, &headers) == (&current.payload, &current.headers) {
        return Ok(Answer::Edited {
            id: id.0,
            revision: current.number,
            edited: was_edited,
        });
    }
    let new = Revision {
        number: current.number + 1,
        at: cycle.now,
        actor: call.actor.clone(),
        reason: call.justification.clone(),
        floor,
        undo: change.is_none(),
        payload,
        headers,
    };
    for revision in first.iter().chain([&new]) {
        insert(cycle, id, revision)?;
    }
    apply(cycle, row.dead_id, message, &new)?;
    let trail = Trail::edited(
        (current.number, &current.payload),
        (new.number, &new.payload),
    );
    let on = On {
        message: Some(id),
        ..On::queue(queue)
    };
    let word = if new.undo { "undo_edit" } else { "edit" };
    audit::write(cycle, call, word, on, &trail)?;
    Ok(Answer::Edited {
        id: id.0,
        revision: new.number,
        edited: !new.undo,
    })
}

fn insert(cycle: &Cycle<'_>, id: MessageId, revision: &Revision) -> Result<()> {
    let text = format!(
        "-- revisions: a new one\nINSERT INTO revision (seq, {COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
    );
    let values = params![
        id.0,
        revision.number,
        revision.at,
        &*revision.actor,
        revision.reason.as_deref(),
        revision.floor,
        revision.undo,
        &revision.payload[..],
        revision.headers.as_deref()
    ];
    cycle
        .sql
        .prepare_cached(&text)
        .and_then(|mut s| s.execute(values))
        .map(|_| ())
        .map_err(failed)
}

/// Gives the message what the revision says. Its row among the dead letters is marked as written now, so that it leaves the
/// selections that somebody made before the change.
fn apply(cycle: &Cycle<'_>, dead_id: i64, message: &Message, revision: &Revision) -> Result<()> {
    const MESSAGE: &str = "-- edit: the message
        UPDATE message SET payload = ?, headers = ? WHERE seq = ?";
    const DEAD: &str = "-- edit: the dead letter
        UPDATE dead SET edited = ?, generation = ? WHERE queue_id = ? AND died_at = ? AND seq = ?";
    let Place::Dead(dead) = &message.place else {
        return Ok(());
    };
    let id = message.envelope.id.0;
    let content = params![&revision.payload[..], revision.headers.as_deref(), id];
    cycle
        .sql
        .prepare_cached(MESSAGE)
        .and_then(|mut s| s.execute(content))
        .map_err(failed)?;
    let mark = params![
        dead.edited,
        cycle.known.generation,
        dead_id,
        dead.died_at,
        id
    ];
    cycle
        .sql
        .prepare_cached(DEAD)
        .and_then(|mut s| s.execute(mark))
        .map(|_| ())
        .map_err(failed)
}
