//! Listings and single messages, on a reader connection.

use super::drafts::{self, Incarnations};
use super::rows::failed;
use super::{audit, revisions};
use crate::backend::{Browse, Cursor, Detail, Listed, Page};
use crate::error::Result;
use crate::model::{End, Ended, MessageId, Place, QueueUid, State};
use crate::rules::Message;
use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, params};
use std::sync::Arc;

fn incarnations(sql: &Connection, uid: QueueUid) -> Option<Incarnations> {
    let row = |r: &rusqlite::Row<'_>| {
        Ok(Incarnations {
            live_id: r.get(0)?,
            dead_id: r.get(1)?,
        })
    };
    sql.prepare_cached("SELECT live_id, dead_id FROM queue WHERE uid = ?")
        .and_then(|mut s| s.query_row([uid.0], row))
        .ok()
}

/// A page of one state. The time was passed before, so a row's table is its state. `owner` is the message that has the asked
/// request id.
pub(super) fn page(sql: &Connection, browse: &Browse, owner: Option<MessageId>) -> Result<Page> {
    let Some(own) = incarnations(sql, browse.queue) else {
        return Ok(Page::default());
    };
    let limit = browse.limit as usize;
    let found = if browse.key.is_some() || browse.request_id.is_some() {
        by_name(sql, browse, owner)?
    } else {
        in_order(sql, own, browse)?
    };
    // One more than asked was read: a full page is known to go on.
    let more = found.len() > limit;
    let mut page = Page::default();
    for id in found.into_iter().take(limit) {
        let Some(listed) = listed(sql, own, id)? else {
            continue;
        };
        page.next = Some(Cursor::of(&listed.message));
        if matches(&listed, browse) {
            page.items.push(listed);
        }
    }
    if !more {
        page.next = None;
    }
    Ok(page)
}

fn matches(listed: &Listed, browse: &Browse) -> bool {
    let message = &listed.message;
    message.state() == browse.state
        && browse
            .key
            .as_ref()
            .is_none_or(|key| message.envelope.key.as_ref() == Some(key))
        && browse
            .request_id
            .as_ref()
            .is_none_or(|id| message.envelope.request_id.as_ref() == Some(&id.text))
}

/// The messages with the asked key or request id, in id order: few, and all states; the caller picks.
fn by_name(sql: &Connection, browse: &Browse, owner: Option<MessageId>) -> Result<Vec<MessageId>> {
    const KEY: &str = "-- browse by key
        SELECT seq FROM keyed WHERE uid = ? AND key = ? AND seq > ? ORDER BY seq LIMIT ?";
    let after = browse.after.map_or(i64::MIN, |c| c.id.0);
    if browse.request_id.is_some() {
        return Ok(owner.filter(|id| id.0 > after).into_iter().collect());
    }
    let Some(key) = &browse.key else {
        return Ok(Vec::new());
    };
    let values = params![browse.queue.0, &**key, after, browse.limit + 1];
    sql.prepare_cached(KEY)
        .and_then(|mut s| s.query_map(values, |r| r.get(0).map(MessageId))?.collect())
        .map_err(failed)
}

fn in_order(sql: &Connection, own: Incarnations, browse: &Browse) -> Result<Vec<MessageId>> {
    const READY: &str = "-- browse ready
        SELECT seq FROM ready WHERE queue_id = ? AND (rank, available_at, seq) > (?, ?, ?)
        ORDER BY rank, available_at, seq LIMIT ?";
    const DELAYED: &str = "-- browse delayed
        SELECT seq FROM delayed WHERE queue_id = ? AND (due_at, seq) > (?, ?) ORDER BY due_at, seq LIMIT ?";
    const LEASED: &str = "-- browse leased
        SELECT seq FROM lease WHERE queue_id = ? AND seq > ? ORDER BY seq LIMIT ?";
    const DEAD: &str = "-- browse dead
        SELECT seq FROM dead WHERE queue_id = ?1 AND (died_at, seq) > (?2, ?3) ORDER BY died_at, seq LIMIT ?4";
    let limit = browse.limit + 1;
    let id = |r: &rusqlite::Row<'_>| r.get(0).map(MessageId);
    let after = browse.after.unwrap_or(Cursor {
        priority: 10,
        at: i64::MIN,
        id: MessageId(i64::MIN),
    });
    let rank = 9 - i64::from(after.priority);
    match browse.state {
        State::Ready => sql.prepare_cached(READY).and_then(|mut s| {
            s.query_map(params![own.live_id, rank, after.at, after.id.0, limit], id)?
                .collect()
        }),
        State::Delayed => sql.prepare_cached(DELAYED).and_then(|mut s| {
            s.query_map(params![own.live_id, after.at, after.id.0, limit], id)?
                .collect()
        }),
        State::Leased => sql.prepare_cached(LEASED).and_then(|mut s| {
            s.query_map(params![own.live_id, after.id.0, limit], id)?
                .collect()
        }),
        State::Dead => sql.prepare_cached(DEAD).and_then(|mut s| {
            s.query_map(params![own.dead_id, after.at, after.id.0, limit], id)?
                .collect()
        }),
        State::Ended => Ok(Vec::new()),
    }
    .map_err(failed)
}

fn listed(sql: &Connection, own: Incarnations, id: MessageId) -> Result<Option<Listed>> {
    let Some(loaded) = drafts::load(sql, |_| Some(own), id)? else {
        return Ok(None);
    };
    let last = loaded.draft.last().cloned();
    let Some(message) = loaded.draft.message else {
        return Ok(None);
    };
    let size: u32 = sql
        .prepare_cached("SELECT length(payload) FROM message WHERE seq = ?")
        .and_then(|mut s| s.query_row([id.0], |r| r.get(0)))
        .map_err(failed)?;
    Ok(Some(Listed {
        message,
        size,
        last,
    }))
}

/// Everything about one message.
pub(super) fn detail(sql: &Connection, id: MessageId) -> Result<Option<Detail>> {
    let Some(loaded) = drafts::load(sql, |uid| incarnations(sql, uid), id)? else {
        return Ok(None);
    };
    let message = loaded.draft.message.as_ref();
    let kept =
        |message: &&Message| !matches!(&message.place, Place::Discarded(d) if !d.payload_kept);
    let payload: Option<Vec<u8>> = match message.filter(kept) {
        Some(_) => sql
            .prepare_cached("SELECT payload FROM message WHERE seq = ?")
            .and_then(|mut s| s.query_row([id.0], |r| r.get(0)).optional())
            .map_err(failed)?,
        None => None,
    };
    let revisions = match message {
        Some(_) => revisions::of_message(sql, id)?,
        None => Vec::new(),
    };
    let key: Option<String> = match &loaded.draft.message {
        Some(message) => message.envelope.key.as_deref().map(str::to_owned),
        None => sql
            .prepare_cached("SELECT key FROM ended WHERE seq = ?")
            .and_then(|mut s| s.query_row([id.0], |r| r.get(0)).optional())
            .map_err(failed)?
            .flatten(),
    };
    let discarded = match loaded.draft.message.as_ref().map(|m| &m.place) {
        Some(Place::Discarded(discarded)) => Some(Ended {
            end: End::Discarded,
            at: discarded.discarded_at,
            fence: 0,
            outcome: None,
        }),
        _ => None,
    };
    Ok(Some(Detail {
        queue: loaded.queue,
        message: loaded.draft.message,
        ended: discarded.or(loaded.draft.ended),
        payload: payload.map(Bytes::from),
        deliveries: loaded.draft.history,
        decisions: audit::of_message(sql, id)?,
        revisions,
        key: key.map(Arc::from),
    }))
}
