//! Publish: request id, key, depth, then the message.
//!
//! Row by row inside the cycle's transaction: with one writer and prepared statements an insert costs about a microsecond, and
//! two items with one id get the answers they would have had one after the other without any further care.

use super::drafts::Incarnations;
use super::request_ids::Taken;
use super::rows::failed;
use super::writer::{Cycle, QueueRow};
use crate::backend::{Duplicate, Publish, Published};
use crate::error::Result;
use crate::known_bug;
use crate::model::{Counts, End, Envelope, Life, MessageId, Place, State};
use crate::rules::{self, Message};
use rusqlite::{OptionalExtension, params};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

pub(super) fn all(cycle: &mut Cycle<'_>, items: &[Publish]) -> Result<Vec<Published>> {
    if known_bug!("coalesced-duplicates-share-one-answer") {
        let mut first: HashMap<[u8; 16], Published> = HashMap::new();
        let shared = items.iter().map(|item| match &item.request_id {
            None => one(cycle, item),
            Some(id) => match first.entry(id.digest) {
                Entry::Occupied(answered) => Ok(answered.get().clone()),
                Entry::Vacant(entry) => Ok(entry.insert(one(cycle, item)?).clone()),
            },
        });
        return shared.collect();
    }
    items.iter().map(|item| one(cycle, item)).collect()
}

fn one(cycle: &mut Cycle<'_>, item: &Publish) -> Result<Published> {
    let Some(queue) = cycle.confirmed(&item.queue).cloned() else {
        return Ok(Published::Stale);
    };
    let id = cycle.next_id();
    if let Some(answer) = claim_request_id(cycle, item, id, &queue)? {
        return Ok(answer);
    }
    if let Some(duplicate) = claim_key(cycle, item, id, &queue)? {
        // The loser stores nothing: a later repeat must not find a message that never was.
        release_request_id(cycle, item, id)?;
        return Ok(Published::Duplicate(duplicate));
    }
    let counts = cycle.counts_of(queue.live_id);
    let depth = (counts.delayed + counts.ready + counts.leased).max(0) as u64;
    if queue.policy.max_depth.is_some_and(|max| depth >= max) {
        release_request_id(cycle, item, id)?;
        release_key(cycle, item, id, &queue)?;
        return Ok(Published::Full);
    }
    store(cycle, item, id, &queue)
}

/// Takes the request id for `id`, or says what it was used for.
fn claim_request_id(
    cycle: &mut Cycle<'_>,
    item: &Publish,
    id: MessageId,
    queue: &QueueRow,
) -> Result<Option<Published>> {
    let Some(request) = &item.request_id else {
        return Ok(None);
    };
    let request_id = (queue.uid, request.digest);
    if let Some(taken) = cycle.find_request_id(request_id)? {
        let owner = MessageId(taken.seq);
        let window = queue.policy.dedupe_window_ms;
        let free = rules::request_id_is_free(taken.kept_from, window, cycle.now);
        if !free || is_there(cycle, owner)? {
            if taken.fingerprint != item.fingerprint {
                return Ok(Some(Published::Conflict { id: owner }));
            }
            return Ok(Some(Published::Duplicate(duplicate(
                cycle, owner, false, true,
            )?)));
        }
        cycle.release_request_id(request_id, taken.seq)?;
    }
    let taken = Taken {
        seq: id.0,
        fingerprint: item.fingerprint,
        kept_from: cycle.now,
    };
    cycle.claim_request_id(request_id, taken)?;
    Ok(None)
}

/// Takes the business key for `id` in a queue with `unique_key`, or finds the message that has it.
fn claim_key(
    cycle: &Cycle<'_>,
    item: &Publish,
    id: MessageId,
    queue: &QueueRow,
) -> Result<Option<Duplicate>> {
    const CLAIM: &str = "-- publish: claim the key, also one whose memory is over
        INSERT INTO unique_key (uid, key, seq, fingerprint, keep_until) VALUES (?1, ?2, ?3, ?4, NULL)
        ON CONFLICT (uid, key) DO UPDATE SET seq = ?3, fingerprint = ?4, keep_until = NULL WHERE keep_until <= ?5";
    const FIND: &str = "-- publish: who has the key
        SELECT seq, fingerprint FROM unique_key WHERE uid = ? AND key = ?";
    let Some(key) = item.key.as_deref().filter(|_| queue.policy.unique_key) else {
        return Ok(None);
    };
    let values = params![queue.uid.0, key, id.0, item.fingerprint, cycle.now];
    if cycle
        .sql
        .prepare_cached(CLAIM)
        .and_then(|mut s| s.execute(values))
        .map_err(failed)?
        == 1
    {
        return Ok(None);
    }
    let (seq, fingerprint): (i64, i64) = cycle
        .sql
        .prepare_cached(FIND)
        .and_then(|mut s| s.query_row(params![queue.uid.0, key], |r| Ok((r.get(0)?, r.get(1)?))))
        .map_err(failed)?;
    duplicate(cycle, MessageId(seq), true, fingerprint == item.fingerprint).map(Some)
}

fn release_request_id(cycle: &mut Cycle<'_>, item: &Publish, id: MessageId) -> Result<()> {
    match &item.request_id {
        Some(request) => cycle.release_request_id((item.queue.uid, request.digest), id.0),
        None => Ok(()),
    }
}

fn release_key(cycle: &Cycle<'_>, item: &Publish, id: MessageId, queue: &QueueRow) -> Result<()> {
    let Some(key) = item.key.as_deref().filter(|_| queue.policy.unique_key) else {
        return Ok(());
    };
    let sql = "DELETE FROM unique_key WHERE uid = ? AND key = ? AND seq = ?";
    let values = params![queue.uid.0, key, id.0];
    cycle
        .sql
        .prepare_cached(sql)
        .and_then(|mut s| s.execute(values))
        .map(|_| ())
        .map_err(failed)
}

/// Whether the message still holds its request id: it is somewhere, or it was purged and is not cleared yet, so that the time of
/// its end is not written yet. A discarded one does not.
fn is_there(cycle: &Cycle<'_>, id: MessageId) -> Result<bool> {
    match cycle.load(id)? {
        None => Ok(false),
        Some(loaded) => match loaded.before {
            Some(message) => Ok(!matches!(message.place, Place::Discarded(_))),
            None => message_exists(cycle, id.0),
        },
    }
}

/// What a duplicate publish learns about the first message, at the present time.
fn duplicate(cycle: &Cycle<'_>, id: MessageId, by_key: bool, same_body: bool) -> Result<Duplicate> {
    let mut answer = Duplicate {
        by_key,
        id,
        state: State::Ended,
        // No message and no record: it was acked plainly.
        end: Some(End::Acked),
        same_body,
        outcome: None,
        published_at: id.made_at(),
    };
    let Some(mut loaded) = cycle.load(id)? else {
        return Ok(answer);
    };
    if let Some(queue) = cycle.queue(loaded.queue) {
        rules::time::pass(&mut loaded.draft, &queue.policy, cycle.now);
    }
    match (&loaded.draft.message, &loaded.draft.ended) {
        (Some(message), _) => {
            answer.state = message.state();
            answer.end = matches!(message.place, Place::Discarded(_)).then_some(End::Discarded);
            answer.published_at = message.envelope.created_at;
        }
        (None, Some(ended)) => {
            answer.end = Some(ended.end);
            answer.outcome.clone_from(&ended.outcome);
        }
        (None, None) => {}
    }
    Ok(answer)
}

fn store(
    cycle: &mut Cycle<'_>,
    item: &Publish,
    id: MessageId,
    queue: &QueueRow,
) -> Result<Published> {
    const MESSAGE: &str = "-- publish: message
        INSERT INTO message (seq, uid, created_at, available_at, rank, fingerprint, digest, request_id, key, expires_at,
            max_attempts, backoff, headers, payload) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
    let now = cycle.now;
    let available_at = now.saturating_add(item.delay_ms);
    let expires_at = item.expires_in_ms.map(|ms| now.saturating_add(ms));
    let backoff = item
        .backoff
        .as_ref()
        .map(serde_json::to_string)
        .transpose()
        .map_err(crate::error::StoreError::internal)?;
    let request = item.request_id.as_ref();
    cycle
        .sql
        .prepare_cached(MESSAGE)
        .and_then(|mut s| {
            s.execute(params![
                id.0,
                queue.uid.0,
                now,
                available_at,
                9 - item.priority,
                item.fingerprint,
                request.map(|r| &r.digest[..]),
                request.map(|r| &r.text[..]),
                item.key.as_deref(),
                expires_at,
                item.max_attempts,
                backoff,
                item.headers.as_deref(),
                &item.payload[..]
            ])
        })
        .map_err(failed)?;
    if let Some(key) = item.key.as_deref() {
        let sql = "INSERT INTO keyed (uid, key, seq) VALUES (?, ?, ?)";
        cycle
            .sql
            .prepare_cached(sql)
            .and_then(|mut s| s.execute(params![queue.uid.0, key, id.0]))
            .map_err(failed)?;
    }
    let delayed = item.delay_ms > 0;
    let place = if delayed {
        Place::Delayed {
            due_at: available_at,
        }
    } else {
        Place::Ready { available_at }
    };
    let envelope = Envelope {
        id,
        queue: queue.uid,
        created_at: now,
        first_available_at: available_at,
        priority: item.priority,
        request_id: None,
        key: None,
        expires_at,
        max_attempts: item.max_attempts,
        backoff: None,
        headers: None,
    };
    let message = Message {
        envelope: Arc::new(envelope),
        life: Life::default(),
        place,
        completion: None,
        expires_at,
    };
    let own = Incarnations {
        live_id: queue.live_id,
        dead_id: queue.dead_id,
    };
    cycle.insert_row(own, &message).map_err(failed)?;
    let (ready, waiting) = if delayed { (0, 1) } else { (1, 0) };
    cycle.count(
        queue.live_id,
        queue.uid,
        &Counts {
            accepted: 1,
            ready,
            delayed: waiting,
            ..Counts::default()
        },
    );
    cycle.stir.add_ready(queue.uid, ready as u32);
    Ok(Published::Created {
        id,
        state: if delayed {
            State::Delayed
        } else {
            State::Ready
        },
        published_at: now,
    })
}

/// Whether a row of `dedupe` still names a message that is there and not discarded; used by the sweep.
pub(super) fn message_exists(cycle: &Cycle<'_>, seq: i64) -> Result<bool> {
    const SQL: &str = "-- does a message still hold its request id
        SELECT 1 FROM message WHERE seq = ?1 AND NOT EXISTS (SELECT 1 FROM discarded WHERE seq = ?1)";
    cycle
        .sql
        .prepare_cached(SQL)
        .and_then(|mut s| s.query_row([seq], |_| Ok(())).optional())
        .map(|found| found.is_some())
        .map_err(failed)
}
