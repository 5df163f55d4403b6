//! Dead letters as operators look for them: pages by time of death, and walks for whoever takes them one after the other.
//!
//! A walk goes along the index that leads (see [`filters`](super::filters)) in pieces; the rest of the filter is asked of each
//! row, and the number of rows looked at is bounded. So a page costs what it finds, however many dead letters there are, and
//! may be short.

use super::Postgres;
use super::drafts::{For, Wanted};
use super::fault::{Fault, Now};
use super::filters::{self, Between, Lead, Place, asked, between, by_lead};
use crate::backend::{Cursor, Listed, Page};
use crate::dead_letters::{DeadFilter, DeadListing, KeyFilter};
use crate::error::Result;
use crate::model::{MessageId, QueueUid};
use sqlx::Row;
use sqlx::postgres::PgConnection;
use std::collections::BTreeMap;

/// Rows that one page looks at.
pub(super) const MOST_LOOKED_AT: i64 = 20_000;
/// Rows of one piece of a walk that the first one did not satisfy.
const PIECE: i64 = 5_000;
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
    SELECT d.died_at, d.seq, d.entered::text AS entered, ",
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
SELECT coalesce(k.uid, 0), d.died_at, d.seq, d.wanted AND k.uid IS NOT NULL, d.entered
FROM (SELECT d.queue_id, d.died_at, d.seq, d.entered::text AS entered, ",
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

// In the order of the index, so that no other one looks as good.
pub(super) const BY_PREFIX: &str = concat!(
    "-- dead letters by key prefix
SELECT w.uid, d.died_at, d.seq, d.wanted, d.entered
FROM unnest($1::int[]) AS w(uid)
CROSS JOIN LATERAL (SELECT dead_id FROM queue k WHERE k.uid = w.uid AND NOT k.deleted
    AND ($20::int IS NULL OR k.dead_id = $20::int) LIMIT 1) k
CROSS JOIN LATERAL (
    SELECT d.died_at, d.seq, d.entered::text AS entered, ",
    asked!(),
    "
        AND ",
    between!("d.died_at"),
    "
        AND ($19::text IS NULL OR pg_visible_in_snapshot(d.entered, (SELECT $19::text::pg_snapshot))) AS wanted
    FROM dead d WHERE d.queue_id = k.dead_id AND d.key >= $10::bytea AND d.key < $11::bytea
    ORDER BY d.key, d.died_at + 0, d.seq LIMIT $6::bigint) d
LIMIT $6::bigint"
);

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
    /// What is meant, in order: place, and who wrote the row.
    pub(super) found: Vec<(Place, String)>,
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
    entered: String,
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
        piece = (PIECE / sources).max(search.limit + 1);
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

/// Those whose key begins so, put in order here; `None`: they are too many for that.
async fn by_prefix(
    connection: &mut PgConnection,
    uids: &[i32],
    search: Search<'_>,
    open: Between,
) -> Result<Option<Walked>, Fault> {
    let most = MOST_OF_A_PREFIX + 1;
    let mut rows = seen(connection, BY_PREFIX, uids, search, open, most).await?;
    if rows.len() as i64 >= most {
        return Ok(None);
    }
    rows.retain(|row| row.wanted && open.contains(row.place));
    let more = rows.len() as i64 > search.limit;
    rows.truncate(search.limit as usize);
    Ok(Some(Walked {
        last: rows.last().map(|row| row.place),
        looked: rows.len() as i64,
        found: rows
            .into_iter()
            .map(|row| (row.place, row.entered))
            .collect(),
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

impl Postgres {
    pub(super) async fn dead_page(&self, listing: &DeadListing, now: Now) -> Result<Page> {
        let only = listing.queues.as_deref().and_then(|queues| match queues {
            [queue] => Some(*queue),
            _ => None,
        });
        self.catch_up(only, now).await?;
        let mut attempt = 0;
        loop {
            match self.try_dead_page(listing).await {
                Ok(page) => return Ok(page),
                Err(fault) => self.once_more(&mut attempt, fault).await?,
            }
        }
    }

    async fn try_dead_page(&self, listing: &DeadListing) -> Result<Page, Fault> {
        let mut connection = self.pool.acquire().await?;
        let filter = &listing.filter;
        let uids = match &listing.queues {
            Some(queues) if queues.is_empty() => return Ok(Page::default()),
            // No queues in the list of a walk over all means all.
            None if Lead::of(filter) == Lead::Order && filter.key.is_none() => Vec::new(),
            queues => numbers_of(&mut connection, queues.as_deref()).await?,
        };
        let search = Search {
            filter,
            newest_first: listing.newest_first,
            limit: i64::from(listing.limit),
            looks: MOST_LOOKED_AT,
            members: None,
        };
        let after = listing.after.map(|after| (after.at, after.id.0));
        let walked = walk(&mut connection, &uids, search, after).await?;
        let wanted = walked
            .found
            .iter()
            .map(|((_, seq), _)| (*seq, Wanted::default()))
            .collect();
        let mut items = Vec::with_capacity(walked.found.len());
        let mut drafts = self.load(&mut connection, &wanted, For::Look).await?;
        for ((_, seq), _) in &walked.found {
            let Some(loaded) = drafts.remove(seq) else {
                continue;
            };
            let last = loaded.last();
            let (Some(message), Some(row)) = (loaded.draft.message, loaded.row) else {
                continue;
            };
            // It may have been decided since the walk.
            if filter.matches(&message) {
                let size = row.size;
                items.push(Listed {
                    message,
                    size,
                    last,
                });
            }
        }
        let next = walked.last.filter(|_| walked.more).map(|(at, seq)| Cursor {
            priority: 0,
            at,
            id: MessageId(seq),
        });
        Ok(Page { items, next })
    }
}
