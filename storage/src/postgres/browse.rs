//! Listings and single messages. What is due is filed first, so a row's table is its state.

use super::drafts::{For, Loaded, Wanted};
use super::fault::{Fault, Now};
use super::{Postgres, audit, revisions};
use crate::backend::{Browse, Cursor, Detail, Listed, Page};
use crate::error::Result;
use crate::model::{MessageId, Millis, Place, State};
use crate::rules::{Message, time};
use bytes::Bytes;
use sqlx::Row;
use sqlx::postgres::PgConnection;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Rows that one page looks at to find those that it wants: bounds a search for what is not there.
const MOST_LOOKED_AT: i64 = 5_000;
/// Messages of one key that a listing considers.
const MOST_OF_A_KEY: i64 = 1_000;

// All four answer (rank or 0, time, seq, wanted) in the listing's order.
pub(super) const READY: &str = "-- browse ready
SELECT r.rank, r.available_at, r.seq, true FROM (SELECT live_id FROM queue WHERE uid = $1::int LIMIT 1) k
CROSS JOIN LATERAL (SELECT * FROM ready r WHERE r.queue_id = k.live_id
    AND (r.rank, r.available_at, r.seq) > ($2::smallint, $3::bigint, $4::bigint)
    ORDER BY r.rank, r.available_at, r.seq LIMIT $5::bigint) r";

pub(super) const DELAYED: &str = "-- browse delayed
SELECT 0::smallint, d.due_at, d.seq, true FROM (SELECT live_id FROM queue WHERE uid = $1::int LIMIT 1) k
CROSS JOIN LATERAL (SELECT * FROM delayed d WHERE d.queue_id = k.live_id AND (d.due_at, d.seq) > ($3::bigint, $4::bigint)
    ORDER BY d.due_at, d.seq LIMIT $5::bigint) d
WHERE $2::smallint IS NOT NULL";

// There is no index by queue: it would cost every hand-out. The leases of other queues are passed over, a bounded number.
pub(super) const LEASED: &str = "-- browse leased
SELECT 0::smallint, 0::bigint, l.seq, l.queue_id = k.live_id FROM (SELECT live_id FROM queue WHERE uid = $1::int LIMIT 1) k
CROSS JOIN LATERAL (SELECT seq, queue_id FROM lease l WHERE l.seq > $4::bigint ORDER BY l.seq LIMIT $5::bigint) l
WHERE $2::smallint IS NOT NULL AND $3::bigint IS NOT NULL";

pub(super) const DEAD: &str = "-- browse dead
SELECT 0::smallint, d.died_at, d.seq, true
FROM (SELECT dead_id FROM queue WHERE uid = $1::int LIMIT 1) k
CROSS JOIN LATERAL (SELECT died_at, seq FROM dead d WHERE d.queue_id = k.dead_id
    AND (d.died_at, d.seq) > ($3::bigint, $4::bigint) ORDER BY d.died_at, d.seq LIMIT $5::bigint) d
WHERE $2::smallint IS NOT NULL";

pub(super) const BY_KEY: &str = "-- browse by key
SELECT seq FROM keyed WHERE uid = $1::int AND key = $2::bytea ORDER BY seq LIMIT $3::bigint";

pub(super) const BY_REQUEST_ID: &str = "-- browse by request id
SELECT seq FROM dedupe WHERE uid = $1::int AND digest = $2::bytea LIMIT $3::bigint";

const LOOK: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY";

pub(super) const PAYLOAD: &str = "-- payload\nSELECT payload FROM message WHERE seq = $1::bigint";

impl Postgres {
    pub(super) async fn page(&self, browse: &Browse, now: Now) -> Result<Page> {
        self.catch_up(Some(browse.queue), now).await?;
        let mut attempt = 0;
        loop {
            match self.try_page(browse).await {
                Ok(page) => return Ok(page),
                Err(fault) => self.once_more(&mut attempt, fault).await?,
            }
        }
    }

    async fn try_page(&self, browse: &Browse) -> Result<Page, Fault> {
        let mut connection = self.pool.acquire().await?;
        if browse.key.is_some() || browse.request_id.is_some() {
            return self.by_name(&mut connection, browse).await;
        }
        self.in_order(&mut connection, browse).await
    }

    async fn in_order(
        &self,
        connection: &mut PgConnection,
        browse: &Browse,
    ) -> Result<Page, Fault> {
        let limit = i64::from(browse.limit);
        let (sql, most) = match browse.state {
            State::Ready => (READY, limit + 1),
            State::Delayed => (DELAYED, limit + 1),
            State::Leased => (LEASED, MOST_LOOKED_AT.max(limit + 1)),
            State::Dead => (DEAD, limit + 1),
            State::Ended => return Ok(Page::default()),
        };
        let after = browse.after.unwrap_or(Cursor {
            priority: 10,
            at: Millis::MIN,
            id: MessageId(i64::MIN),
        });
        let query = sqlx::query(sql)
            .bind(browse.queue.0)
            .bind(9 - i16::from(after.priority))
            .bind(after.at)
            .bind(after.id.0)
            .bind(most);
        let rows = query.fetch_all(&mut *connection).await?;
        let (mut found, mut last) = (Vec::new(), None);
        let mut full = false;
        for row in &rows {
            let rank: i16 = row.try_get(0)?;
            let priority = if browse.state == State::Ready {
                (9 - rank) as u8
            } else {
                0
            };
            let cursor = Cursor {
                priority,
                at: row.try_get(1)?,
                id: MessageId(row.try_get(2)?),
            };
            let wanted: bool = row.try_get::<Option<bool>, _>(3)?.unwrap_or(false);
            if wanted && found.len() as i64 == limit {
                full = true;
                break;
            }
            last = Some(cursor);
            if wanted {
                found.push(cursor.id);
            }
        }
        let more = full || rows.len() as i64 >= most;
        let items = self.listed(connection, &found, browse).await?;
        Ok(Page {
            items,
            next: last.filter(|_| more),
        })
    }

    /// The messages with the asked key or request id: few, so they are put in order here.
    async fn by_name(&self, connection: &mut PgConnection, browse: &Browse) -> Result<Page, Fault> {
        let query = match (&browse.request_id, &browse.key) {
            (Some(request), _) => sqlx::query(BY_REQUEST_ID)
                .bind(browse.queue.0)
                .bind(&request.digest[..]),
            (None, Some(key)) => sqlx::query(BY_KEY)
                .bind(browse.queue.0)
                .bind(key.as_bytes()),
            (None, None) => return Ok(Page::default()),
        };
        let rows = query
            .bind(MOST_OF_A_KEY)
            .fetch_all(&mut *connection)
            .await?;
        let found: Vec<MessageId> = rows
            .iter()
            .map(|row| Ok(MessageId(row.try_get(0)?)))
            .collect::<Result<_, sqlx::Error>>()?;
        let mut items = self.listed(connection, &found, browse).await?;
        items.sort_by_key(|listed| order(&Cursor::of(&listed.message)));
        if let Some(after) = &browse.after {
            items.retain(|listed| order(&Cursor::of(&listed.message)) > order(after));
        }
        let more = items.len() > browse.limit as usize;
        items.truncate(browse.limit as usize);
        let next = items
            .last()
            .map(|listed| Cursor::of(&listed.message))
            .filter(|_| more);
        Ok(Page { items, next })
    }

    /// Loads the messages and keeps those that are still what the listing is about.
    async fn listed(
        &self,
        connection: &mut PgConnection,
        found: &[MessageId],
        browse: &Browse,
    ) -> Result<Vec<Listed>, Fault> {
        if found.is_empty() {
            return Ok(Vec::new());
        }
        let wanted = found.iter().map(|id| (id.0, Wanted::default())).collect();
        let drafts = self.load(connection, &wanted, For::Look).await?;
        let listed = found.iter().filter_map(|id| {
            let loaded = drafts.get(&id.0)?;
            let message = loaded
                .draft
                .message
                .clone()
                .filter(|m| matches(m, browse))?;
            Some(Listed {
                message,
                size: loaded.row.as_ref()?.size,
                last: loaded.last(),
            })
        });
        Ok(listed.collect())
    }

    pub(super) async fn detail(&self, id: MessageId, now: Now) -> Result<Option<Detail>> {
        self.catch_up(None, now).await?;
        let mut attempt = 0;
        loop {
            match self.try_detail(id, now).await {
                Ok(detail) => return Ok(detail),
                Err(fault) => self.once_more(&mut attempt, fault).await?,
            }
        }
    }

    async fn try_detail(&self, id: MessageId, now: Now) -> Result<Option<Detail>, Fault> {
        // One snapshot: what a payload says and which revision it is belong together.
        let mut tx = self.pool.begin_with(LOOK).await?;
        let wanted = BTreeMap::from([(id.0, Wanted::default())]);
        let mut drafts = self.load(&mut tx, &wanted, For::LookAtAll).await?;
        let Some(loaded) = drafts.get_mut(&id.0) else {
            return Ok(None);
        };
        if let Some(known) = &loaded.known {
            time::pass(
                &mut loaded.draft,
                &known.queue.policy,
                now.unwrap_or_else(|| self.due.estimate()),
            );
        }
        let Some(queue) = queue_of(loaded) else {
            return Ok(None);
        };
        let kept = loaded.draft.message.as_ref().is_some_and(
            |m| !matches!(&m.place, Place::Discarded(discarded) if !discarded.payload_kept),
        );
        let payload = if kept {
            sqlx::query(PAYLOAD)
                .bind(id.0)
                .fetch_optional(&mut *tx)
                .await?
        } else {
            None
        };
        let payload = payload
            .map(|row| row.try_get::<&[u8], _>(0).map(Bytes::copy_from_slice))
            .transpose()?;
        let revisions = if kept {
            revisions::all(&mut tx, id).await?
        } else {
            Vec::new()
        };
        let decisions = audit::decisions(&mut tx, id).await?;
        tx.commit().await?;
        let discarded = loaded
            .draft
            .message
            .as_ref()
            .is_some_and(|m| matches!(m.place, Place::Discarded(_)));
        let key = loaded.row.as_ref().map(|row| row.envelope.key.clone());
        Ok(Some(Detail {
            queue,
            ended: if discarded {
                loaded.end()
            } else {
                loaded.draft.ended.clone()
            },
            payload,
            deliveries: {
                let mut history = loaded.draft.history.clone();
                history.sort_by_key(|d| d.fence);
                history
            },
            decisions,
            revisions,
            key: key.unwrap_or_else(|| loaded.record.as_ref().and_then(|r| r.key.clone())),
            message: loaded.draft.message.clone(),
        }))
    }
}

fn queue_of(loaded: &Loaded) -> Option<crate::model::QueueUid> {
    loaded
        .row
        .as_ref()
        .map(|row| row.envelope.queue)
        .or(loaded.record.as_ref().map(|record| record.uid))
}

fn matches(message: &Message, browse: &Browse) -> bool {
    let request_id = message.envelope.request_id.as_ref();
    message.state() == browse.state
        && browse.state != State::Ended
        && browse
            .key
            .as_ref()
            .is_none_or(|key| message.envelope.key.as_ref() == Some(key))
        && browse
            .request_id
            .as_ref()
            .is_none_or(|id| request_id == Some(&id.text))
}

fn order(cursor: &Cursor) -> (Reverse<u8>, Millis, MessageId) {
    (Reverse(cursor.priority), cursor.at, cursor.id)
}
