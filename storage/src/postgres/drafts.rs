//! Loading messages as drafts: what `rules` works on.
//!
//! Two steps. The first statement reads message, queue and state row of every wanted message and, for a change, locks the
//! state rows. The second step reads what hangs on them (completion, end, history) in a newer snapshot, so that it is never
//! older than a lock that was waited for.
//!
//! A message that is there but has no state row in the snapshot was moved while the statement waited for its lock: the
//! attempt is repeated. A message whose state row belongs to an incarnation that is not the queue's current one is gone.

use super::Postgres;
use super::fault::Fault;
use super::rows::{
    self, EndedRow, Known, MESSAGE_COLUMNS, MessageRow, Spot, Table, delivery_columns,
    ended_columns, message_columns,
};
use crate::model::{Completion, Delivered, End, Ended, Life, Millis, Place};
use crate::rules::{Draft, Message};
use sqlx::Row;
use sqlx::postgres::PgConnection;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// A message to load, and the deliveries of it that somebody asks about.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    /// The queue, for messages that are gone.
    pub(super) uid: Option<i32>,
    pub(super) fences: Vec<i32>,
}

/// For what a draft is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum For {
    /// To be changed: locks the state rows, and the queue rows against a purge.
    Change,
    /// The same, but whom somebody works on, or has moved meanwhile, is left out.
    ChangeIfFree,
    /// To be looked at, with the latest delivery.
    Look,
    /// To be looked at, with the whole history.
    LookAtAll,
}

/// A draft and the rows it was made of.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) seq: i64,
    pub(super) row: Option<MessageRow>,
    /// Also for a message that was purged and is not cleared yet; then the draft says that it is gone.
    pub(super) spot: Option<Spot>,
    pub(super) known: Option<Arc<Known>>,
    /// What the draft was before anybody changed it.
    pub(super) before: Option<Message>,
    /// What it was when a purge took it, while its rows are not cleared.
    pub(super) purged: Option<Message>,
    pub(super) record: Option<EndedRow>,
    pub(super) draft: Draft,
}

/// Drafts by message number: the order in which rows are locked and written, everywhere.
pub(super) type Drafts = BTreeMap<i64, Loaded>;

// One arm per state table, each by a unique key; the first that has the message ends the search. The casts to NULL keep the
// columns of the arms alike: place, tid, queue, time, five counters, then what only leases, dead and discarded letters have.
macro_rules! load_sql {
    ($rows:literal, $queues:literal) => {
        concat!(
            "-- load drafts
WITH
-- The wanted messages; uid is the caller's idea of the queue, for those that are gone.
i AS MATERIALIZED (SELECT * FROM unnest($1::bigint[], $2::int[]) AS t(seq, uid)),
m AS MATERIALIZED (
    SELECT i.seq AS wanted, coalesce(x.uid, i.uid) AS of_queue, x.*
    FROM i LEFT JOIN LATERAL (SELECT ",
            message_columns!(),
            " FROM message m WHERE m.seq = i.seq LIMIT 1) x ON true),
-- The queues, in number order; the lock holds a purge off until this transaction ends.
q AS MATERIALIZED (
    SELECT k.* FROM (SELECT DISTINCT of_queue FROM m WHERE of_queue IS NOT NULL ORDER BY 1) w
    CROSS JOIN LATERAL (SELECT uid, version FROM queue k WHERE k.uid = w.of_queue LIMIT 1 ",
            $queues,
            ") k)
SELECT m.wanted, q.uid, q.version, ",
            "m.uid, m.live_id, m.created_at, m.available_at, m.rank, m.expires_at, m.max_attempts, m.digest,
    m.request_id, m.key, m.backoff, m.headers, m.size, p.*
FROM m LEFT JOIN q ON q.uid = m.of_queue
LEFT JOIN LATERAL (
    SELECT * FROM (SELECT 3::smallint AS place, ctid::text AS tid, queue_id, available_at AS at, fence, attempts,
        expirations, releases, redrives, leased_at, expires_at AS until, bounds, worker, NULL::smallint AS reason,
        NULL::smallint AS bound, NULL::boolean AS by_expiry, NULL::boolean AS edited, NULL::text AS error_code,
        NULL::bigint AS group_id, NULL::boolean AS payload_kept, NULL::text AS entered
        FROM lease WHERE seq = m.wanted AND m.uid IS NOT NULL LIMIT 1 ",
            $rows,
            ") a
    UNION ALL
    SELECT * FROM (SELECT 2::smallint, ctid::text, queue_id, available_at, fence, attempts, expirations, releases,
        redrives, NULL::bigint, NULL::bigint, NULL::smallint, NULL::text, NULL::smallint, NULL::smallint, NULL::boolean,
        NULL::boolean, NULL::text, NULL::bigint, NULL::boolean, NULL::text
        FROM ready WHERE queue_id = m.live_id AND rank = m.rank AND available_at = m.available_at AND seq = m.wanted
        LIMIT 1 ",
            $rows,
            ") b
    UNION ALL
    SELECT * FROM (SELECT 2::smallint, ctid::text, queue_id, available_at, fence, attempts, expirations, releases,
        redrives, NULL::bigint, NULL::bigint, NULL::smallint, NULL::text, NULL::smallint, NULL::smallint, NULL::boolean,
        NULL::boolean, NULL::text, NULL::bigint, NULL::boolean, NULL::text
        FROM ready WHERE moved AND seq + 0 = m.wanted AND m.uid IS NOT NULL LIMIT 1 ",
            $rows,
            ") c
    UNION ALL
    SELECT * FROM (SELECT 1::smallint, ctid::text, queue_id, due_at, fence, attempts, expirations, releases,
        redrives, NULL::bigint, NULL::bigint, NULL::smallint, NULL::text, NULL::smallint, NULL::smallint, NULL::boolean,
        NULL::boolean, NULL::text, NULL::bigint, NULL::boolean, NULL::text
        FROM delayed WHERE seq + 0 = m.wanted AND m.uid IS NOT NULL LIMIT 1 ",
            $rows,
            ") d
    UNION ALL
    SELECT * FROM (SELECT 4::smallint, ctid::text, queue_id, died_at, fence, attempts, expirations, releases,
        redrives, NULL::bigint, NULL::bigint, NULL::smallint, NULL::text, reason, bound, by_expiry, edited, error_code,
        group_id, NULL::boolean, entered::text
        FROM dead WHERE seq + 0 = m.wanted AND m.uid IS NOT NULL LIMIT 1 ",
            $rows,
            ") e
    UNION ALL
    SELECT * FROM (SELECT 5::smallint, ctid::text, queue_id, died_at, fence, attempts, expirations, releases,
        redrives, discarded_at, NULL::bigint, NULL::smallint, NULL::text, reason, bound, by_expiry, edited, error_code,
        group_id, payload_kept, NULL::text
        FROM discarded WHERE seq = m.wanted AND m.uid IS NOT NULL LIMIT 1 ",
            $rows,
            ") f
    LIMIT 1
) p ON true"
        )
    };
}

pub(super) const LOAD_LOCKED: &str = load_sql!("FOR UPDATE", "FOR KEY SHARE");
pub(super) const LOAD_FREE: &str = load_sql!("FOR UPDATE SKIP LOCKED", "FOR KEY SHARE");
pub(super) const LOAD_SEEN: &str = load_sql!("", "");

pub(super) const COMPLETIONS: &str = "-- completions
SELECT seq, fence, outcome FROM completion WHERE seq = ANY($1::bigint[])";

pub(super) const ENDS: &str = concat!(
    "-- ends\nSELECT seq, ",
    ended_columns!(),
    " FROM ended WHERE seq = ANY($1::bigint[])"
);

// The asked delivery, or the one before it where it is not kept: harmless, and one index descent each.
pub(super) const HISTORY: &str = concat!(
    "-- history
SELECT w.seq, ",
    delivery_columns!(),
    " FROM unnest($1::bigint[], $2::int[]) AS w(seq, fence)
CROSS JOIN LATERAL (SELECT * FROM delivery d WHERE d.seq = w.seq AND d.fence <= w.fence ORDER BY d.fence DESC LIMIT 1) d"
);

pub(super) const WHOLE_HISTORY: &str = concat!(
    "-- whole history\nSELECT d.seq, ",
    delivery_columns!(),
    " FROM delivery d WHERE d.seq = ANY($1::bigint[]) ORDER BY d.seq, d.fence"
);

pub(super) const PURGED_AT: &str =
    "-- purged at\nSELECT id, since FROM trash WHERE id = ANY($1::int[])";

impl Postgres {
    /// Loads drafts. Time has not passed in them yet.
    pub(super) async fn load(
        &self,
        connection: &mut PgConnection,
        wanted: &BTreeMap<i64, Wanted>,
        purpose: For,
    ) -> Result<Drafts, Fault> {
        let seqs: Vec<i64> = wanted.keys().copied().collect();
        let uids: Vec<Option<i32>> = wanted.values().map(|w| w.uid).collect();
        let sql = match purpose {
            For::Change => LOAD_LOCKED,
            For::ChangeIfFree => LOAD_FREE,
            _ => LOAD_SEEN,
        };
        let found = sqlx::query(sql)
            .bind(&seqs)
            .bind(&uids)
            .fetch_all(&mut *connection)
            .await?;
        let mut drafts = Drafts::new();
        for row in &found {
            let seq: i64 = row.try_get(0)?;
            let known = match row.try_get::<Option<i32>, _>(1)? {
                Some(uid) => Some(self.known(connection, uid, row.try_get(2)?).await?),
                None => None,
            };
            let message = rows::message(row, 3, seq)?;
            let place = rows::place(row, 3 + MESSAGE_COLUMNS)?;
            if message.is_some() && place.is_none() {
                if purpose == For::ChangeIfFree {
                    continue;
                }
                return Err(Fault::moved("a message"));
            }
            drafts.insert(seq, assemble(seq, message, place, known));
        }
        self.details(connection, wanted, &mut drafts, purpose)
            .await?;
        Ok(drafts)
    }

    /// Adds completions, ends and history.
    async fn details(
        &self,
        connection: &mut PgConnection,
        wanted: &BTreeMap<i64, Wanted>,
        drafts: &mut Drafts,
        purpose: For,
    ) -> Result<(), Fault> {
        let (mut completed, mut gone, mut purged) = (Vec::new(), Vec::new(), HashSet::new());
        let (mut seqs, mut fences) = (Vec::new(), Vec::new());
        for (seq, loaded) in drafts.iter() {
            match loaded.draft.message.as_ref().map(|m| &m.place) {
                Some(Place::Leased(_)) if loaded.fence() < 2 => {}
                Some(Place::Leased(_) | Place::Dead(_) | Place::Discarded(_)) => {
                    completed.push(*seq);
                }
                Some(Place::Delayed { .. } | Place::Ready { .. }) => {}
                None if loaded.row.is_some() => {
                    purged.extend(loaded.spot.as_ref().map(|s| s.queue_id));
                }
                None => gone.push(*seq),
            }
            // A message that was never handed out, or is for the first time, has no history.
            let first = matches!(
                loaded.draft.message.as_ref().map(|m| &m.place),
                Some(Place::Leased(_))
            );
            if loaded.draft.message.is_none() || loaded.fence() > i32::from(first) {
                let asked = wanted
                    .get(seq)
                    .map(|w| w.fences.as_slice())
                    .unwrap_or_default();
                for fence in asked.iter().copied().chain([i32::MAX]) {
                    seqs.push(*seq);
                    fences.push(fence);
                }
            }
        }
        if !completed.is_empty() {
            for row in sqlx::query(COMPLETIONS)
                .bind(&completed)
                .fetch_all(&mut *connection)
                .await?
            {
                let completion = Completion {
                    fence: row.try_get(1)?,
                    outcome: row.try_get::<Option<&str>, _>(2)?.map(Arc::from),
                };
                let Some(loaded) = drafts.get_mut(&row.try_get(0)?) else {
                    continue;
                };
                for message in [loaded.draft.message.as_mut(), loaded.before.as_mut()]
                    .into_iter()
                    .flatten()
                {
                    message.completion = Some(completion.clone());
                }
            }
        }
        if !gone.is_empty() {
            for row in sqlx::query(ENDS)
                .bind(&gone)
                .fetch_all(&mut *connection)
                .await?
            {
                let Some(loaded) = drafts.get_mut(&row.try_get(0)?) else {
                    continue;
                };
                let record = rows::ended(&row, 1)?;
                loaded.draft.ended = Some(record.ended.clone());
                loaded.record = Some(record);
            }
        }
        if !purged.is_empty() {
            let ids: Vec<i32> = purged.into_iter().collect();
            let since: BTreeMap<i32, Millis> = sqlx::query(PURGED_AT)
                .bind(&ids)
                .fetch_all(&mut *connection)
                .await?
                .iter()
                .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
                .collect::<Result<_, Fault>>()?;
            for loaded in drafts.values_mut().filter(|l| l.draft.message.is_none()) {
                if let (Some(spot), Some(ended)) = (&loaded.spot, &mut loaded.draft.ended) {
                    ended.at = since.get(&spot.queue_id).copied().unwrap_or_default();
                }
            }
        }
        if !seqs.is_empty() {
            let found = if purpose == For::LookAtAll {
                sqlx::query(WHOLE_HISTORY)
                    .bind(&seqs)
                    .fetch_all(&mut *connection)
                    .await?
            } else {
                sqlx::query(HISTORY)
                    .bind(&seqs)
                    .bind(&fences)
                    .fetch_all(&mut *connection)
                    .await?
            };
            for row in &found {
                let Some(loaded) = drafts.get_mut(&row.try_get(0)?) else {
                    continue;
                };
                let Some(delivered) = rows::delivered(row, 1)? else {
                    continue;
                };
                if loaded.draft.fate(delivered.fence).is_none() {
                    loaded.draft.history.push(delivered);
                }
            }
        }
        Ok(())
    }
}

impl Loaded {
    /// The present delivery number; 0 for a message that is gone.
    fn fence(&self) -> i32 {
        self.before.as_ref().map_or(0, |m| m.life.fence)
    }

    /// The latest delivery, for listings.
    pub(super) fn last(&self) -> Option<Delivered> {
        self.draft.last().cloned()
    }

    /// How a message that is gone went, as far as the store can tell: an absent message without a record was acked.
    pub(super) fn end(&self) -> Option<Ended> {
        if let Some(Place::Discarded(discarded)) = self.draft.message.as_ref().map(|m| &m.place) {
            return Some(Ended {
                end: End::Discarded,
                at: discarded.discarded_at,
                fence: 0,
                outcome: None,
            });
        }
        if self.draft.message.is_some() {
            return None;
        }
        Some(self.draft.ended.clone().unwrap_or(Ended {
            end: End::Acked,
            at: 0,
            fence: 1,
            outcome: None,
        }))
    }
}

fn assemble(
    seq: i64,
    row: Option<MessageRow>,
    place: Option<(Spot, Life, Place)>,
    known: Option<Arc<Known>>,
) -> Loaded {
    let (spot, state) = match place {
        Some((spot, life, place)) => (Some(spot), Some((life, place))),
        None => (None, None),
    };
    let current = spot
        .as_ref()
        .zip(known.as_ref())
        .is_some_and(|(spot, known)| match spot.table {
            Table::Delayed | Table::Ready | Table::Lease => spot.queue_id == known.live_id,
            Table::Dead => spot.queue_id == known.dead_id,
            // Decided before the purge, and a purge does not undo decisions.
            Table::Discarded => true,
        });
    let stored = row.as_ref().zip(state).map(|(row, (life, place))| Message {
        envelope: Arc::clone(&row.envelope),
        life,
        place,
        completion: None,
        expires_at: row.envelope.expires_at,
    });
    let (message, purged) = if current {
        (stored, None)
    } else {
        (None, stored)
    };
    let draft = match (&message, &spot) {
        (Some(message), _) => Draft::of(message.clone(), Vec::new()),
        (None, Some(_)) => Draft::gone(
            Some(Ended {
                end: End::Purged,
                at: 0,
                fence: 0,
                outcome: None,
            }),
            Vec::new(),
        ),
        (None, None) => Draft::gone(None, Vec::new()),
    };
    Loaded {
        seq,
        row,
        spot,
        known,
        before: message,
        purged,
        record: None,
        draft,
    }
}
