//! Walks over dead letters by time of death, for whoever takes them one after the other: pages, and bulk decisions.
//!
//! A walk goes along the index that leads (see [`filters`](super::filters)) in pieces that grow; the rest of the filter is asked
//! of each row, and the number of rows looked at is bounded. So it costs what it finds, however many dead letters there are.

use super::fault::Fault;
use super::filters::{self, Between, Lead, Place, asked, between, by_lead};
use crate::dead_letters::{DeadFilter, KeyFilter};
use crate::error::Result;
use crate::model::{Millis, QueueUid};
use sqlx::Row;
use sqlx::postgres::PgConnection;
use std::collections::BTreeMap;

/// Rows of the largest piece of a walk.
const PIECE: i64 = 5_000;
/// How much larger a piece is than the one that did not satisfy.
const GROWTH: i64 = 4;
/// Dead letters with one key prefix that are put in order here.
const MOST_OF_A_PREFIX: i64 = 5_000;
/// Queues that are looked through one by one; more of them are picked out of the order of all.
const MOST_QUEUES: usize = 200;

// Queue, place, whether the row is meant, and who wrote it. $19 asks for the rows that a snapshot sees, $20 for an incarnation.
macro_rules! walk {
    ($name:literal, $lead:literal, $at:literal, $order:literal) => {
        concat!(
            "-- dead letters ",
            $name,
            "
SELECT w.uid, d.died_at, d.seq, d.wanted, d.entered
FROM unnest($1::int[]) AS w(uid)
CROSS JOIN LATERAL (SELECT dead_id FROM queue k WHERE k.uid = w.uid AND NOT k.deleted
    AND ($20::int IS NULL OR k.dead_id = $20::int) LIMIT 1) k
CROSS JOIN LATERAL (
    SELECT d.died_at, d.seq, CASE WHEN $19::text IS NOT NULL THEN d.entered::text END AS entered, ",
            asked!(),
            "
        AND ($19::text IS NULL OR pg_visible_in_snapshot(d.entered, (SELECT $19::text::pg_snapshot))) AS wanted
    FROM dead d WHERE d.queue_id = k.dead_id",
            $lead,
            " AND ",
            between!($at),
            " ORDER BY ",
            $at,
            $order,
            ", d.seq",
            $order,
            " LIMIT $6::bigint) d"
        )
    };
}
pub(super) const OLDEST: [&str; 5] = by_lead!(walk, "");
pub(super) const NEWEST: [&str; 5] = by_lead!(walk, " DESC");

// The same over all queues: rows of queues that are not asked for, and of incarnations that were purged, are passed over.
macro_rules! walk_all {
    ($name:literal, $order:literal) => {
        concat!(
            "-- dead letters of all, ",
            $name,
            "
SELECT coalesce(k.uid, 0), d.died_at, d.seq, d.wanted AND k.uid IS NOT NULL, NULL::text
FROM (SELECT d.queue_id, d.died_at, d.seq, ",
            asked!(),
            " AS wanted
    FROM dead d WHERE ",
            between!("0 + d.died_at"),
            " ORDER BY 0 + d.died_at",
            $order,
            ", d.seq",
            $order,
            " LIMIT $6::bigint) d
LEFT JOIN LATERAL (SELECT uid FROM queue k WHERE k.dead_id = d.queue_id AND NOT k.deleted
    AND (cardinality($1::int[]) = 0 OR k.uid = ANY($1::int[])) LIMIT 1) k ON $19::text IS NULL AND $20::int IS NULL"
        )
    };
}
pub(super) const OLDEST_OF_ALL: &str = walk_all!("oldest first", "");
pub(super) const NEWEST_OF_ALL: &str = walk_all!("newest first", " DESC");

// few: how many there are, from the index alone; when they are too many, nothing is looked at. The scan is in the order of the
// index, so that no other one looks as good.
macro_rules! prefix {
    ($name:literal, $order:literal) => {
        concat!(
            "-- dead letters by key prefix, ",
            $name,
            "
WITH k AS MATERIALIZED (SELECT w.uid, q.dead_id FROM unnest($1::int[]) AS w(uid)
    CROSS JOIN LATERAL (SELECT dead_id FROM queue q WHERE q.uid = w.uid AND NOT q.deleted
        AND ($20::int IS NULL OR q.dead_id = $20::int) LIMIT 1) q),
few AS MATERIALIZED (SELECT count(*) AS n FROM (SELECT 1 FROM k CROSS JOIN LATERAL (
    SELECT 1 FROM dead d WHERE d.queue_id = k.dead_id AND d.key >= $10::bytea AND d.key < $11::bytea
    ORDER BY d.key LIMIT $6::bigint) d LIMIT $6::bigint) t)
SELECT few.n, x.died_at, x.seq, x.entered FROM few LEFT JOIN LATERAL (
    SELECT d.* FROM k CROSS JOIN LATERAL (
        SELECT d.died_at, d.seq, CASE WHEN $19::text IS NOT NULL THEN d.entered::text END AS entered FROM dead d
        WHERE d.queue_id = k.dead_id AND d.key >= $10::bytea AND d.key < $11::bytea AND ",
            asked!(),
            "
            AND ($19::text IS NULL OR pg_visible_in_snapshot(d.entered, (SELECT $19::text::pg_snapshot)))
            AND ",
            between!("d.died_at"),
            "
        ORDER BY d.key, d.died_at + 0, d.seq LIMIT $6::bigint) d
    WHERE few.n < $6::bigint ORDER BY d.died_at",
            $order,
            ", d.seq",
            $order,
            " LIMIT $21::bigint) x ON true"
        )
    };
}
pub(super) const BY_PREFIX: [&str; 2] = [
    prefix!("oldest first", ""),
    prefix!("newest first", " DESC"),
];

pub(super) const ALL_QUEUES: &str =
    "-- all queues\nSELECT uid FROM queue WHERE uid >= 0 AND NOT deleted";

/// What a walk is after.
#[derive(Clone, Copy)]
pub(super) struct Search<'a> {
    pub(super) filter: &'a DeadFilter,
    pub(super) newest_first: bool,
    /// Stop when so many are found.
    pub(super) limit: i64,
    /// Stop when so many rows are looked at.
    pub(super) looks: i64,
    /// Only what this snapshot sees of this incarnation.
    pub(super) members: Option<(&'a str, i32)>,
}

/// Where a walk came to.
#[derive(Default)]
pub(super) struct Walked {
    /// What is meant, in order: place, and for members of a selection who wrote the row.
    pub(super) found: Vec<(Place, Option<String>)>,
    /// The last row that was looked at.
    pub(super) last: Option<Place>,
    pub(super) looked: i64,
    /// There may be more behind it.
    pub(super) more: bool,
}

struct Seen {
    uid: i32,
    place: Place,
    wanted: bool,
    entered: Option<String>,
}

/// Walks through the dead letters of these queues behind a place.
pub(super) async fn walk(
    connection: &mut PgConnection,
    uids: &[i32],
    search: Search<'_>,
    after: Option<Place>,
) -> Result<Walked, Fault> {
    let filter = search.filter;
    let mut open = Between::of(filter).behind(after, search.newest_first);
    if matches!(filter.key, Some(KeyFilter::Prefix(_)))
        && let Some(walked) = by_prefix(connection, uids, search, open).await?
    {
        return Ok(walked);
    }
    let lead = Lead::of(filter);
    let of_all = lead == Lead::Order && (uids.is_empty() || uids.len() > MOST_QUEUES);
    let sql = match (of_all, search.newest_first) {
        (true, false) => OLDEST_OF_ALL,
        (true, true) => NEWEST_OF_ALL,
        (false, false) => lead.pick(&OLDEST),
        (false, true) => lead.pick(&NEWEST),
    };
    let sources = if of_all { 1 } else { uids.len().max(1) as i64 };
    let mut piece = (search.limit + 1) * if lead.is_all(filter) { 1 } else { 2 };
    let mut walked = Walked::default();
    loop {
        let per_queue = piece
            .min(search.looks - walked.looked)
            .max(1)
            .min(PIECE.max(search.limit + 1));
        let rows = seen(connection, sql, uids, search, open, per_queue).await?;
        let full = full_queues(&rows, per_queue, of_all, search.newest_first);
        let complete = full.is_none();
        for row in rows {
            // Behind the end of a queue that has more to show, others must wait.
            if full.is_some_and(|end| is_behind(row.place, end, search.newest_first)) {
                break;
            }
            if row.wanted && walked.found.len() as i64 == search.limit {
                walked.more = true;
                return Ok(walked);
            }
            walked.looked += 1;
            walked.last = Some(row.place);
            if row.wanted {
                walked.found.push((row.place, row.entered));
            }
        }
        walked.more = !complete;
        if complete || walked.found.len() as i64 == search.limit || walked.looked >= search.looks {
            return Ok(walked);
        }
        open = open.behind(walked.last, search.newest_first);
        piece = (piece * GROWTH).min(PIECE / sources).max(search.limit + 1);
    }
}

fn is_behind(place: Place, end: Place, newest_first: bool) -> bool {
    if newest_first {
        place < end
    } else {
        place > end
    }
}

/// The first end of a queue that has shown as many rows as were asked of each; `None`: nothing is left anywhere.
fn full_queues(rows: &[Seen], per_queue: i64, of_all: bool, newest_first: bool) -> Option<Place> {
    let mut ends: BTreeMap<i32, (i64, Place)> = BTreeMap::new();
    for row in rows {
        let uid = if of_all { 0 } else { row.uid };
        let end = ends.entry(uid).or_insert((0, row.place));
        *end = (end.0 + 1, row.place);
    }
    let full = ends
        .values()
        .filter(|(count, _)| *count >= per_queue)
        .map(|(_, end)| *end);
    if newest_first { full.max() } else { full.min() }
}

async fn seen(
    connection: &mut PgConnection,
    sql: &'static str,
    uids: &[i32],
    search: Search<'_>,
    open: Between,
    limit: i64,
) -> Result<Vec<Seen>, Fault> {
    let query = filters::bind(sqlx::query(sql), uids, open, limit, search.filter)
        .bind(search.members.map(|m| m.0))
        .bind(search.members.map(|m| m.1));
    let rows = query.fetch_all(connection).await?;
    let mut seen = rows
        .iter()
        .map(|row| {
            Ok(Seen {
                uid: row.try_get(0)?,
                place: (row.try_get(1)?, row.try_get(2)?),
                wanted: row.try_get(3)?,
                entered: row.try_get(4)?,
            })
        })
        .collect::<Result<Vec<_>, Fault>>()?;
    seen.sort_unstable_by_key(|row| row.place);
    if search.newest_first {
        seen.reverse();
    }
    Ok(seen)
}

/// Those whose key begins so, put in order; `None`: they are too many for that.
async fn by_prefix(
    connection: &mut PgConnection,
    uids: &[i32],
    search: Search<'_>,
    open: Between,
) -> Result<Option<Walked>, Fault> {
    let query = sqlx::query(BY_PREFIX[usize::from(search.newest_first)]);
    let most = MOST_OF_A_PREFIX + 1;
    let rows = filters::bind(query, uids, open, most, search.filter)
        .bind(search.members.map(|m| m.0))
        .bind(search.members.map(|m| m.1))
        .bind(search.limit + 1)
        .fetch_all(connection)
        .await?;
    let mut found = Vec::new();
    for row in &rows {
        if row.try_get::<i64, _>(0)? >= most {
            return Ok(None);
        }
        if let Some(at) = row.try_get::<Option<Millis>, _>(1)? {
            found.push(((at, row.try_get(2)?), row.try_get(3)?));
        }
    }
    let more = found.len() as i64 > search.limit;
    found.truncate(search.limit as usize);
    Ok(Some(Walked {
        last: found.last().map(|(place, _)| *place),
        looked: found.len() as i64,
        found,
        more,
    }))
}

/// The numbers of these queues; `None` stands for all that are there.
pub(super) async fn numbers_of(
    connection: &mut PgConnection,
    queues: Option<&[QueueUid]>,
) -> Result<Vec<i32>, Fault> {
    if let Some(queues) = queues {
        return Ok(queues.iter().map(|q| q.0).collect());
    }
    let rows = sqlx::query(ALL_QUEUES).fetch_all(connection).await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}
