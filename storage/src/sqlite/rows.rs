//! Rows ⇄ nouns, and SQLite's errors as ours.

use crate::error::StoreError;
use crate::model::{
    Backoff, Bounds, Cause, Dead, Delivered, Discarded, End, Ended, Envelope, Failure, Lease, Life,
    Limit, MessageId, Millis, Place, QueueUid, Reason,
};
use bytes::Bytes;
use rusqlite::{ErrorCode, Row};
use std::sync::Arc;

/// A SQLite error as a store error. Inside a transaction all of them mean no effect, since it is rolled back.
pub(super) fn failed(error: rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => StoreError::DiskLow(error.to_string().into()),
        Some(
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::SystemIoFailure
            | ErrorCode::ReadOnly
            | ErrorCode::DatabaseCorrupt
            | ErrorCode::CannotOpen
            | ErrorCode::NotADatabase,
        ) => StoreError::unavailable(error),
        _ => StoreError::internal(error),
    }
}

/// Columns of `message` that make an [`Envelope`], in the order that [`envelope`] reads them.
pub(super) const ENVELOPE: &str = "m.seq, m.uid, m.created_at, m.available_at, m.rank, m.request_id, m.key, m.expires_at, \
     m.max_attempts, m.backoff, m.headers";
/// How many columns that is.
pub(super) const ENVELOPE_COLUMNS: usize = 11;

/// Reads an envelope and the present `expires_at` from the columns [`ENVELOPE`], beginning at `at`.
pub(super) fn envelope(row: &Row<'_>, at: usize) -> rusqlite::Result<(Envelope, Option<Millis>)> {
    let expires_at: Option<Millis> = row.get(at + 7)?;
    let text = |index: usize| -> rusqlite::Result<Option<Arc<str>>> {
        Ok(row.get_ref(index)?.as_str_or_null()?.map(Arc::from))
    };
    let backoff: Option<Backoff> = match row.get_ref(at + 9)?.as_str_or_null()? {
        Some(text) => Some(serde_json::from_str(text).map_err(|e| {
            rusqlite::Error::FromSqlConversionFailure(
                at + 9,
                rusqlite::types::Type::Text,
                Box::new(e),
            )
        })?),
        None => None,
    };
    let envelope = Envelope {
        id: MessageId(row.get(at)?),
        queue: QueueUid(row.get(at + 1)?),
        created_at: row.get(at + 2)?,
        first_available_at: row.get(at + 3)?,
        priority: 9 - row.get::<_, u8>(at + 4)?,
        request_id: row
            .get_ref(at + 5)?
            .as_blob_or_null()?
            .map(Bytes::copy_from_slice),
        key: text(at + 6)?,
        expires_at,
        max_attempts: row.get(at + 8)?,
        backoff,
        headers: text(at + 10)?,
    };
    Ok((envelope, expires_at))
}

/// The life columns, common to all state tables.
pub(super) const LIFE: &str = "fence, attempts, expirations, releases, redrives";

/// Reads [`LIFE`], beginning at `at`.
pub(super) fn life(row: &Row<'_>, at: usize) -> rusqlite::Result<Life> {
    Ok(Life {
        fence: row.get(at)?,
        attempts: row.get(at + 1)?,
        expirations: row.get(at + 2)?,
        releases: row.get(at + 3)?,
        redrives: row.get(at + 4)?,
    })
}

/// A state row: the incarnation it belongs to, its life and its place.
pub(super) struct StateRow {
    pub(super) queue_id: i64,
    pub(super) life: Life,
    pub(super) place: Place,
}

/// Columns of `lease` after `queue_id` and [`LIFE`].
pub(super) const LEASE: &str = "leased_at, expires_at, available_at, bounds, worker";

/// Reads [`LEASE`], beginning at `at`.
pub(super) fn lease(row: &Row<'_>, at: usize) -> rusqlite::Result<Place> {
    Ok(Place::Leased(Lease {
        leased_at: row.get(at)?,
        expires_at: row.get(at + 1)?,
        available_at: row.get(at + 2)?,
        bounds: Bounds::from_bits(row.get(at + 3)?),
        worker: row.get_ref(at + 4)?.as_str_or_null()?.map(Arc::from),
    }))
}

/// Columns of `dead` and `discarded` after `queue_id` and [`LIFE`].
pub(super) const DEAD: &str = "died_at, reason, bound, by_expiry, edited, error_code, group_id";

/// Reads [`DEAD`], beginning at `at`.
pub(super) fn dead(row: &Row<'_>, at: usize) -> rusqlite::Result<Dead> {
    Ok(Dead {
        died_at: row.get(at)?,
        reason: coded(at + 1, row.get(at + 1)?, Reason::from_code)?,
        limit: row
            .get::<_, Option<i16>>(at + 2)?
            .map(|code| coded(at + 2, code, Limit::from_code))
            .transpose()?,
        by_expiry: row.get(at + 3)?,
        edited: row.get(at + 4)?,
        error_code: row.get_ref(at + 5)?.as_str_or_null()?.map(Arc::from),
        group: row.get(at + 6)?,
    })
}

/// A discarded place: [`dead`], when it was discarded, and whether its payload is kept.
pub(super) fn discarded(row: &Row<'_>, at: usize) -> rusqlite::Result<Place> {
    Ok(Place::Discarded(Discarded {
        dead: dead(row, at)?,
        discarded_at: row.get(at + 7)?,
        payload_kept: row.get(at + 8)?,
    }))
}

/// Columns of `delivery` as [`delivered`] reads them.
pub(super) const DELIVERY: &str =
    "fence, attempt, leased_at, ended_at, cause, late, worker, code, detail, truncated";

/// Reads [`DELIVERY`].
pub(super) fn delivered(row: &Row<'_>) -> rusqlite::Result<Delivered> {
    let text = |index: usize| -> rusqlite::Result<Option<Arc<str>>> {
        Ok(row.get_ref(index)?.as_str_or_null()?.map(Arc::from))
    };
    Ok(Delivered {
        fence: row.get(0)?,
        attempt: row.get(1)?,
        leased_at: row.get(2)?,
        ended_at: row.get(3)?,
        cause: coded(4, row.get(4)?, Cause::from_code)?,
        late: row.get(5)?,
        worker: text(6)?,
        failure: Failure {
            code: text(7)?,
            detail: text(8)?,
            truncated: row.get(9)?,
        },
    })
}

/// Reads `how, at, fence, outcome` of `ended`.
pub(super) fn ended(row: &Row<'_>) -> rusqlite::Result<Ended> {
    Ok(Ended {
        end: coded(0, row.get(0)?, End::from_code)?,
        at: row.get(1)?,
        fence: row.get(2)?,
        outcome: row.get_ref(3)?.as_str_or_null()?.map(Arc::from),
    })
}

/// A stored code as what it stands for; `index` is its column.
pub(super) fn coded<T>(
    index: usize,
    code: i16,
    from: impl Fn(i16) -> Option<T>,
) -> rusqlite::Result<T> {
    from(code).ok_or(rusqlite::Error::IntegralValueOutOfRange(
        index,
        i64::from(code),
    ))
}
