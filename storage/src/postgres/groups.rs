//! Groups of dead letters that failed alike: counted by the index of groups alone, then described for the largest only.

use super::Postgres;
use super::fault::{Fault, Now};
use super::filters::{self, Between, Lead, asked, between, by_lead};
use super::rows::broken;
use super::walks::numbers_of;
use crate::dead_letters::{DeadFilter, DeadGroup, DeadGroups};
use crate::error::Result;
use crate::model::{MessageId, QueueUid, Reason};
use sqlx::Row;
use sqlx::postgres::PgRow;
use std::sync::Arc;

// Without a filter. The first and the last of a group are at the ends of its stretch of the index.
pub(super) const LARGEST: &str = "-- groups
WITH g AS MATERIALIZED (
    SELECT w.uid, k.dead_id, x.group_id, x.n FROM unnest($1::int[]) AS w(uid)
    CROSS JOIN LATERAL (SELECT dead_id FROM queue k WHERE k.uid = w.uid AND NOT k.deleted LIMIT 1) k
    CROSS JOIN LATERAL (SELECT group_id, count(*) AS n FROM dead d WHERE d.queue_id = k.dead_id GROUP BY group_id) x
    ORDER BY x.n DESC, x.group_id, w.uid LIMIT $2::bigint)
SELECT g.uid, g.group_id, g.n, f.died_at, l.died_at, l.seq, l.reason, l.error_code, v.detail FROM g
CROSS JOIN LATERAL (SELECT died_at FROM dead d WHERE d.queue_id = g.dead_id AND d.group_id = g.group_id
    ORDER BY d.died_at + 0, d.seq LIMIT 1) f
CROSS JOIN LATERAL (SELECT died_at, seq, reason, error_code FROM dead d WHERE d.queue_id = g.dead_id
    AND d.group_id = g.group_id ORDER BY d.died_at + 0 DESC, d.seq DESC LIMIT 1) l
LEFT JOIN LATERAL (SELECT detail FROM delivery v WHERE v.seq = l.seq ORDER BY v.fence DESC LIMIT 1) v ON true
ORDER BY g.n DESC, g.group_id, g.uid";

// With one: what the leading index finds is looked at row by row.
macro_rules! filtered {
    ($name:literal, $lead:literal, $at:literal) => {
        concat!(
            "-- groups ",
            $name,
            "
WITH g AS MATERIALIZED (
    SELECT w.uid, k.dead_id, x.* FROM unnest($1::int[]) AS w(uid)
    CROSS JOIN LATERAL (SELECT dead_id FROM queue k WHERE k.uid = w.uid AND NOT k.deleted LIMIT 1) k
    CROSS JOIN LATERAL (SELECT d.group_id, count(*) AS n, min(d.died_at) AS first, max(d.died_at) AS last FROM dead d
        WHERE d.queue_id = k.dead_id",
            $lead,
            " AND ",
            between!($at),
            " AND ",
            asked!(),
            " GROUP BY d.group_id) x
    ORDER BY x.n DESC, x.group_id, w.uid LIMIT $6::bigint)
SELECT g.uid, g.group_id, g.n, g.first, g.last, l.seq, l.reason, l.error_code, v.detail FROM g
CROSS JOIN LATERAL (SELECT seq, reason, error_code FROM dead d WHERE d.queue_id = g.dead_id AND d.group_id = g.group_id
    AND d.died_at + 0 = g.last AND ",
            asked!(),
            " ORDER BY d.seq DESC LIMIT 1) l
LEFT JOIN LATERAL (SELECT detail FROM delivery v WHERE v.seq = l.seq ORDER BY v.fence DESC LIMIT 1) v ON true
ORDER BY g.n DESC, g.group_id, g.uid"
        )
    };
}
pub(super) const FILTERED: [&str; 5] = by_lead!(filtered);

impl Postgres {
    pub(super) async fn largest_groups(
        &self,
        queues: Option<&[QueueUid]>,
        filter: &DeadFilter,
        limit: u32,
        now: Now,
    ) -> Result<DeadGroups> {
        let only = match queues {
            Some([queue]) => Some(*queue),
            _ => None,
        };
        self.catch_up(only, now).await?;
        let mut attempt = 0;
        loop {
            match self.try_groups(queues, filter, limit).await {
                Ok(groups) => return Ok(groups),
                Err(fault) => self.once_more(&mut attempt, fault).await?,
            }
        }
    }

    async fn try_groups(
        &self,
        queues: Option<&[QueueUid]>,
        filter: &DeadFilter,
        limit: u32,
    ) -> Result<DeadGroups, Fault> {
        let mut connection = self.pool.acquire().await?;
        let uids = numbers_of(&mut connection, queues).await?;
        // One more than is wanted tells whether there are more.
        let most = i64::from(limit) + 1;
        let query = if *filter == DeadFilter::default() {
            sqlx::query(LARGEST).bind(uids).bind(most)
        } else {
            let sql = Lead::of(filter).pick(&FILTERED);
            filters::bind(sqlx::query(sql), &uids, Between::of(filter), most, filter)
        };
        let rows = query.fetch_all(&mut *connection).await?;
        let mut groups: Vec<DeadGroup> = rows.iter().map(group).collect::<Result<_, Fault>>()?;
        let more = groups.len() > limit as usize;
        groups.truncate(limit as usize);
        Ok(DeadGroups { groups, more })
    }
}

fn group(row: &PgRow) -> Result<DeadGroup, Fault> {
    let shared = |at: usize| -> Result<Option<Arc<str>>, Fault> {
        Ok(row.try_get::<Option<&str>, _>(at)?.map(Arc::from))
    };
    Ok(DeadGroup {
        queue: QueueUid(row.try_get(0)?),
        group: row.try_get(1)?,
        count: row.try_get(2)?,
        first_died_at: row.try_get(3)?,
        last_died_at: row.try_get(4)?,
        example: MessageId(row.try_get(5)?),
        reason: Reason::from_code(row.try_get(6)?).ok_or_else(|| broken("reason"))?,
        error_code: shared(7)?,
        example_detail: shared(8)?,
    })
}
