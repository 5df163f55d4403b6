//! Rows of PostgreSQL ⇄ nouns of the crate.

use super::fault::Fault;
use crate::error::StoreError;
use crate::model::{
    Backoff, Bounds, Cause, Dead, Delivered, Discarded, End, Ended, Envelope, Failure, Lease, Life,
    Limit, MessageId, Millis, Place, Policy, Queue, QueueUid, Reason,
};
use bytes::Bytes;
use sqlx::Row;
use sqlx::postgres::PgRow;
use std::borrow::Cow;
use std::sync::Arc;

/// A queue row: what callers see of it, and its incarnations.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) queue: Arc<Queue>,
    pub(super) live_id: i32,
    pub(super) dead_id: i32,
    pub(super) deleted: bool,
}

/// A message row without its payload.
#[derive(Clone, Debug)]
pub(super) struct MessageRow {
    pub(super) envelope: Arc<Envelope>,
    /// The incarnation at publish.
    pub(super) live_id: i32,
    pub(super) digest: Option<Vec<u8>>,
    /// Bytes of the payload.
    pub(super) size: u32,
}

/// The row that says where a message is.
#[derive(Clone, Debug)]
pub(super) struct Spot {
    pub(super) table: Table,
    /// The row's address. Stays valid while the row is locked.
    pub(super) tid: String,
    pub(super) queue_id: i32,
    /// The transaction that wrote the row of a dead letter: another one, another row.
    pub(super) entered: Option<String>,
}

/// The tables that are states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Table {
    Delayed,
    Ready,
    Lease,
    Dead,
    Discarded,
}

/// A row holds something that this version does not know.
pub(super) fn broken(what: &str) -> Fault {
    Fault::Store(StoreError::internal(format!(
        "a row holds an unknown {what}"
    )))
}

/// Text as PostgreSQL takes it: without U+0000.
pub(super) fn text(value: &str) -> Cow<'_, str> {
    if value.contains('\0') {
        Cow::Owned(value.replace('\0', "\u{fffd}"))
    } else {
        Cow::Borrowed(value)
    }
}

/// A business key, from its bytes.
pub(super) fn key(bytes: Option<Vec<u8>>) -> Result<Option<Arc<str>>, Fault> {
    bytes
        .map(|b| {
            String::from_utf8(b)
                .map(Arc::from)
                .map_err(|_| broken("key"))
        })
        .transpose()
}

pub(super) fn rank(priority: u8) -> i16 {
    9 - i16::from(priority.min(9))
}

pub(super) fn priority(rank: i16) -> u8 {
    (9 - rank.clamp(0, 9)) as u8
}

/// Columns of `queue`, in the order that [`known`] reads them.
macro_rules! queue_columns {
    () => {
        "uid, name, version, paused, deleted, live_id, dead_id, policy, created_at"
    };
}
pub(super) use queue_columns;

pub(super) fn known(row: &PgRow) -> Result<Known, Fault> {
    let policy: &str = row.try_get(7)?;
    let policy: Policy = serde_json::from_str(policy).map_err(|_| broken("policy"))?;
    Ok(Known {
        queue: Arc::new(Queue {
            uid: QueueUid(row.try_get(0)?),
            name: row.try_get::<&str, _>(1)?.into(),
            version: row.try_get(2)?,
            paused: row.try_get(3)?,
            policy: Arc::new(policy),
            created_at: row.try_get(8)?,
        }),
        deleted: row.try_get(4)?,
        live_id: row.try_get(5)?,
        dead_id: row.try_get(6)?,
    })
}

/// Columns of `message m`, in the order that [`message`] reads them.
macro_rules! message_columns {
    () => {
        "m.uid, m.live_id, m.created_at, m.available_at, m.rank, m.expires_at, m.max_attempts, m.digest, m.request_id, \
         m.key, m.backoff, m.headers, octet_length(m.payload) AS size"
    };
}
pub(super) use message_columns;

/// How many columns [`message`] reads.
pub(super) const MESSAGE_COLUMNS: usize = 13;

/// Reads a message row that begins at column `at`; `None` when there is none.
pub(super) fn message(row: &PgRow, at: usize, seq: i64) -> Result<Option<MessageRow>, Fault> {
    let Some(uid) = row.try_get::<Option<i32>, _>(at)? else {
        return Ok(None);
    };
    let backoff: Option<&str> = row.try_get(at + 10)?;
    let backoff: Option<Backoff> = backoff
        .map(serde_json::from_str)
        .transpose()
        .map_err(|_| broken("backoff"))?;
    let envelope = Envelope {
        id: MessageId(seq),
        queue: QueueUid(uid),
        created_at: row.try_get(at + 2)?,
        first_available_at: row.try_get(at + 3)?,
        priority: priority(row.try_get(at + 4)?),
        request_id: row
            .try_get::<Option<&[u8]>, _>(at + 8)?
            .map(Bytes::copy_from_slice),
        key: key(row.try_get(at + 9)?)?,
        expires_at: row.try_get(at + 5)?,
        max_attempts: row.try_get::<Option<i32>, _>(at + 6)?.map(|n| n as u32),
        backoff,
        headers: row.try_get::<Option<&str>, _>(at + 11)?.map(Arc::from),
    };
    Ok(Some(MessageRow {
        envelope: Arc::new(envelope),
        live_id: row.try_get(at + 1)?,
        digest: row.try_get(at + 7)?,
        size: row.try_get::<i32, _>(at + 12)? as u32,
    }))
}

/// Reads the state row that begins at column `at`, as `drafts.rs` selects it.
pub(super) fn place(row: &PgRow, at: usize) -> Result<Option<(Spot, Life, Place)>, Fault> {
    let Some(code) = row.try_get::<Option<i16>, _>(at)? else {
        return Ok(None);
    };
    let time: Millis = row.try_get(at + 3)?;
    let life = Life {
        fence: row.try_get(at + 4)?,
        attempts: row.try_get(at + 5)?,
        expirations: row.try_get(at + 6)?,
        releases: row.try_get(at + 7)?,
        redrives: row.try_get(at + 8)?,
    };
    let dead = || -> Result<Dead, Fault> {
        let bound: Option<i16> = row.try_get(at + 14)?;
        Ok(Dead {
            died_at: time,
            reason: Reason::from_code(row.try_get(at + 13)?).ok_or_else(|| broken("reason"))?,
            limit: bound
                .map(|code| Limit::from_code(code).ok_or_else(|| broken("limit")))
                .transpose()?,
            by_expiry: row.try_get(at + 15)?,
            edited: row.try_get(at + 16)?,
            error_code: row.try_get::<Option<&str>, _>(at + 17)?.map(Arc::from),
            group: row.try_get(at + 18)?,
        })
    };
    let (table, place) = match code {
        1 => (Table::Delayed, Place::Delayed { due_at: time }),
        2 => (Table::Ready, Place::Ready { available_at: time }),
        3 => {
            let lease = Lease {
                leased_at: row.try_get(at + 9)?,
                expires_at: row.try_get(at + 10)?,
                available_at: time,
                bounds: Bounds::from_bits(row.try_get(at + 11)?),
                worker: row.try_get::<Option<&str>, _>(at + 12)?.map(Arc::from),
            };
            (Table::Lease, Place::Leased(lease))
        }
        4 => (Table::Dead, Place::Dead(dead()?)),
        5 => (
            Table::Discarded,
            Place::Discarded(Discarded {
                payload_kept: row.try_get(at + 19)?,
                discarded_at: row.try_get(at + 9)?,
                dead: dead()?,
            }),
        ),
        _ => return Err(broken("state")),
    };
    let spot = Spot {
        table,
        tid: row.try_get(at + 1)?,
        queue_id: row.try_get(at + 2)?,
        entered: row.try_get(at + 20)?,
    };
    Ok(Some((spot, life, place)))
}

/// Columns of `delivery d`, in the order that [`delivered`] reads them.
macro_rules! delivery_columns {
    () => {
        "d.fence, d.attempt, d.leased_at, d.ended_at, d.cause, d.late, d.worker, d.code, d.detail, d.truncated"
    };
}
pub(super) use delivery_columns;

/// Reads a delivery that begins at column `at`; `None` when there is none.
pub(super) fn delivered(row: &PgRow, at: usize) -> Result<Option<Delivered>, Fault> {
    let Some(fence) = row.try_get::<Option<i32>, _>(at)? else {
        return Ok(None);
    };
    let shared = |i: usize| -> Result<Option<Arc<str>>, Fault> {
        Ok(row.try_get::<Option<&str>, _>(at + i)?.map(Arc::from))
    };
    Ok(Some(Delivered {
        fence,
        attempt: row.try_get(at + 1)?,
        leased_at: row.try_get(at + 2)?,
        ended_at: row.try_get(at + 3)?,
        cause: Cause::from_code(row.try_get(at + 4)?).ok_or_else(|| broken("cause"))?,
        late: row.try_get(at + 5)?,
        worker: shared(6)?,
        failure: Failure {
            code: shared(7)?,
            detail: shared(8)?,
            truncated: row.try_get(at + 9)?,
        },
    }))
}

/// Columns of `ended`, in the order that [`ended`] reads them.
macro_rules! ended_columns {
    () => {
        "how, at, fence, outcome, uid, published_at, key"
    };
}
pub(super) use ended_columns;

/// The record of a message that left, with what only the store knows of it.
#[derive(Clone, Debug)]
pub(super) struct EndedRow {
    pub(super) ended: Ended,
    pub(super) uid: QueueUid,
    pub(super) published_at: Millis,
    pub(super) key: Option<Arc<str>>,
}

/// Reads a record that begins at column `at`.
pub(super) fn ended(row: &PgRow, at: usize) -> Result<EndedRow, Fault> {
    Ok(EndedRow {
        ended: Ended {
            end: End::from_code(row.try_get(at)?).ok_or_else(|| broken("end"))?,
            at: row.try_get(at + 1)?,
            fence: row.try_get(at + 2)?,
            outcome: row.try_get::<Option<&str>, _>(at + 3)?.map(Arc::from),
        },
        uid: QueueUid(row.try_get(at + 4)?),
        published_at: row.try_get(at + 5)?,
        key: key(row.try_get(at + 6)?)?,
    })
}
