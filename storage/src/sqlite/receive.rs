//! Receive: the head of `ready` becomes leases.

use super::drafts::{Incarnations, history};
use super::rows::{self, ENVELOPE, ENVELOPE_COLUMNS, failed};
use super::writer::{Cycle, QueueRow};
use crate::backend::{Delivery, MAX_RECEIVE_BYTES, Receive, Received};
use crate::error::Result;
use crate::model::{Cause, Counts, Delivered, Place, QueueUid};
use crate::rules::{self, Draft, Message};
use bytes::Bytes;
use rusqlite::params;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Head of the queue, read once for all receives of the batch that ask for it.
type Heads = HashMap<QueueUid, VecDeque<(Message, Bytes)>>;

pub(super) fn all(cycle: &mut Cycle<'_>, items: &[Receive]) -> Result<Vec<Received>> {
    let mut wanted: HashMap<QueueUid, u32> = HashMap::new();
    for item in items {
        *wanted.entry(item.queue.uid).or_default() += item.max;
    }
    let mut heads = Heads::new();
    items
        .iter()
        .map(|item| one(cycle, item, &mut wanted, &mut heads))
        .collect()
}

fn one(
    cycle: &mut Cycle<'_>,
    item: &Receive,
    wanted: &mut HashMap<QueueUid, u32>,
    heads: &mut Heads,
) -> Result<Received> {
    let Some(queue) = cycle.confirmed(&item.queue).cloned() else {
        return Ok(Received::Stale);
    };
    if queue.paused {
        return Ok(Received::Paused);
    }
    let mut deliveries = Vec::new();
    let mut bytes = 0;
    while deliveries.len() < item.max as usize {
        let head = match heads.get_mut(&queue.uid) {
            Some(head) if !head.is_empty() => head,
            _ => {
                // Nothing was read yet, or what was read did not do because some of it went to the dead letters.
                if cycle.counts_of(queue.live_id).ready == 0 {
                    break;
                }
                let limit = wanted.get(&queue.uid).copied().unwrap_or(item.max);
                let head = read_head(cycle, &queue, limit)?;
                if head.is_empty() {
                    break;
                }
                heads.entry(queue.uid).insert_entry(head).into_mut()
            }
        };
        let Some((_, payload)) = head.front() else {
            break;
        };
        if !deliveries.is_empty() && bytes + payload.len() > MAX_RECEIVE_BYTES {
            break;
        }
        let Some((message, payload)) = head.pop_front() else {
            break;
        };
        if let Some(delivery) = hand_out(cycle, item, &queue, message, payload)? {
            bytes += delivery.payload.len();
            deliveries.push(delivery);
        }
    }
    if let Some(left) = wanted.get_mut(&queue.uid) {
        *left = left.saturating_sub(item.max);
    }
    Ok(Received::Messages(deliveries))
}

fn read_head(
    cycle: &Cycle<'_>,
    queue: &QueueRow,
    limit: u32,
) -> Result<VecDeque<(Message, Bytes)>> {
    let text = format!(
        "-- receive: the head in order, by the key of ready
         SELECT {ENVELOPE}, r.available_at, r.fence, r.attempts, r.expirations, r.releases, r.redrives, m.payload
         FROM ready r CROSS JOIN message m ON m.seq = r.seq
         WHERE r.queue_id = ? ORDER BY r.rank, r.available_at, r.seq LIMIT ?"
    );
    let mut statement = cycle.sql.prepare_cached(&text).map_err(failed)?;
    let found = statement.query_map(params![queue.live_id, limit.max(1)], |row| {
        let (envelope, expires_at) = rows::envelope(row, 0)?;
        let place = Place::Ready {
            available_at: row.get(ENVELOPE_COLUMNS)?,
        };
        let life = rows::life(row, ENVELOPE_COLUMNS + 1)?;
        let payload = Bytes::copy_from_slice(row.get_ref(ENVELOPE_COLUMNS + 6)?.as_blob()?);
        Ok((
            Message {
                envelope: Arc::new(envelope),
                life,
                place,
                completion: None,
                expires_at,
            },
            payload,
        ))
    });
    found.and_then(Iterator::collect).map_err(failed)
}

/// Leases one message, or lets the rules put it elsewhere; then it is not handed out.
fn hand_out(
    cycle: &mut Cycle<'_>,
    item: &Receive,
    queue: &QueueRow,
    message: Message,
    payload: Bytes,
) -> Result<Option<Delivery>> {
    let id = message.envelope.id;
    let before = message.clone();
    let past = if message.life.fence > 0 {
        history(cycle.sql, id)?
    } else {
        Vec::new()
    };
    let last_failure = past.iter().rev().find(|d| is_failure(d)).cloned();
    let mut draft = Draft::of(message, past);
    rules::time::pass(&mut draft, &queue.policy, cycle.now);
    let handed = rules::hand_out(
        &mut draft,
        &queue.policy,
        item.lease_ms,
        item.worker.clone(),
        cycle.now,
    );
    if !handed {
        // The full load finds what a move or an end needs besides, such as the request id's digest.
        if let Some(mut loaded) = cycle.load(id)? {
            rules::time::pass(&mut loaded.draft, &queue.policy, cycle.now);
            rules::hand_out(
                &mut loaded.draft,
                &queue.policy,
                item.lease_ms,
                item.worker.clone(),
                cycle.now,
            );
            cycle.write(&loaded)?;
        }
        return Ok(None);
    }
    let Some(message) = draft.message else {
        return Ok(None);
    };
    let own = Incarnations {
        live_id: queue.live_id,
        dead_id: queue.dead_id,
    };
    take_from_ready(cycle, own, &before).map_err(failed)?;
    cycle.insert_row(own, &message).map_err(failed)?;
    let delta = Counts {
        ready: -1,
        leased: 1,
        delivered: 1,
        ..Counts::default()
    };
    cycle.count(queue.live_id, queue.uid, &delta);
    let max_attempts = message.max_attempts(&queue.policy);
    Ok(Some(Delivery {
        message,
        max_attempts,
        payload,
        last_failure,
    }))
}

fn take_from_ready(
    cycle: &Cycle<'_>,
    own: Incarnations,
    message: &Message,
) -> rusqlite::Result<()> {
    let Place::Ready { available_at } = message.place else {
        return Ok(());
    };
    let sql = "DELETE FROM ready WHERE queue_id = ? AND rank = ? AND available_at = ? AND seq = ?";
    let key = params![
        own.live_id,
        9 - message.envelope.priority,
        available_at,
        message.envelope.id.0
    ];
    let deleted = cycle.sql.prepare_cached(sql)?.execute(key)?;
    if deleted == 1 {
        Ok(())
    } else {
        Err(rusqlite::Error::StatementChangedRows(deleted))
    }
}

/// A delivery that a worker should hear about: it failed, or nobody answered for it.
pub(super) fn is_failure(delivered: &Delivered) -> bool {
    matches!(
        delivered.cause,
        Cause::Nack | Cause::Permanent | Cause::LeaseExpired
    )
}
