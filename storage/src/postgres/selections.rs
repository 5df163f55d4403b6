//! Selections: which dead letters a bulk decision is about, frozen and counted in one snapshot.
//!
//! Nothing is locked and no row is written but the selection: the transaction's snapshot is the membership. A dead letter is
//! a member when the snapshot sees the transaction that wrote its row, so what dies or is changed later is not, whatever its
//! time of death says. So a selection of a million holds nobody up.

use super::Postgres;
use super::fault::Fault;
use super::filters::{self, Between, Lead, asked, between, by_lead};
use super::operate::{Tx, Work};
use super::rows::{self, Known, broken};
use crate::backend::Answer;
use crate::dead_letters::{
    COUNTED_CODES, DeadFilter, Figures, SAMPLE, SELECTION_LIFE_MS, Selection, SelectionId,
};
use crate::error::{Result, StoreError};
use crate::model::{QueueUid, Reason};
use sqlx::{Executor, Row};

/// One snapshot for all statements. Plans are made for the filter at hand: each runs once, over many rows.
pub(super) const ONE_SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ; \
    SET LOCAL plan_cache_mode = force_custom_plan; SET LOCAL statement_timeout = '60s'";

pub(super) const SNAPSHOT: &str =
    "-- selection, snapshot\nSELECT nextval('selection_id'), pg_current_snapshot()::text";

// The first parameter is the queue's number and its incarnation of dead letters.
macro_rules! of_queue {
    () => {
        "d.queue_id = ($1::int[])[2]"
    };
}

// f: one pass over the rows; what it leaves is small. Then all of them (0), by reason (1), by error code (2), by age (3).
macro_rules! figures {
    ($name:literal, $lead:literal, $at:literal) => {
        concat!(
            "-- selection, figures ",
            $name,
            "
WITH f AS MATERIALIZED (
    SELECT d.reason, d.error_code, (CASE WHEN $19::bigint - d.died_at < 3600000 THEN 0 WHEN $19::bigint - d.died_at < 86400000
            THEN 1 WHEN $19::bigint - d.died_at < 604800000 THEN 2 ELSE 3 END)::smallint AS age,
        count(*) AS n, count(*) FILTER (WHERE d.edited) AS edited, count(*) FILTER (WHERE d.redrives >= $6::bigint) AS over
    FROM dead d WHERE ",
            of_queue!(),
            $lead,
            " AND ",
            between!($at),
            " AND ",
            asked!(),
            " GROUP BY 1, 2, 3)
SELECT 0::smallint, NULL::smallint, NULL::text, coalesce(sum(n), 0)::bigint, coalesce(sum(edited), 0)::bigint,
    coalesce(sum(over), 0)::bigint FROM f
UNION ALL SELECT 1::smallint, reason, NULL, sum(n)::bigint, 0, 0 FROM f GROUP BY reason
UNION ALL SELECT * FROM (SELECT 2::smallint, NULL::smallint, error_code, sum(n)::bigint, 0, 0 FROM f GROUP BY error_code
    ORDER BY sum(n) DESC, error_code COLLATE \"C\" NULLS FIRST LIMIT $20::bigint) c
UNION ALL SELECT 3::smallint, age, NULL, sum(n)::bigint, 0, 0 FROM f GROUP BY age"
        )
    };
}
pub(super) const FIGURES: [&str; 5] = by_lead!(figures);

// From the side of the completions, which are few.
pub(super) const COMPLETED: &str = concat!(
    "-- selection, completed
SELECT count(*) FROM completion c CROSS JOIN LATERAL (SELECT 1 FROM dead d WHERE d.seq + 0 = c.seq AND ",
    of_queue!(),
    " AND ",
    between!("d.died_at"),
    " AND ",
    asked!(),
    " LIMIT 1) d WHERE c.seq >= 0 AND $6::bigint IS NOT NULL"
);

// Looked up one by one, in the order of the keys, so that the look-ups go along their index.
macro_rules! recorded {
    ($name:literal, $lead:literal, $at:literal) => {
        concat!(
            "-- selection, recorded ",
            $name,
            "
SELECT count(*) FROM (SELECT d.key FROM dead d WHERE ",
            of_queue!(),
            $lead,
            " AND d.key IS NOT NULL AND ",
            between!($at),
            " AND ",
            asked!(),
            " ORDER BY d.key OFFSET 0) d
WHERE (SELECT true FROM ended e WHERE e.uid = ($1::int[])[1] AND e.key = d.key AND e.how = 1 LIMIT 1)
    AND $6::bigint IS NOT NULL"
        )
    };
}
pub(super) const RECORDED: [&str; 5] = by_lead!(recorded);

// Many: merged with the ends in one pass. Without a filter the keys come from their index alone.
pub(super) const MERGED: &str = concat!(
    "-- selection, recorded, merged
SELECT count(*) FROM (SELECT d.key FROM dead d WHERE ",
    of_queue!(),
    " AND d.key IS NOT NULL AND ",
    between!("d.died_at"),
    " AND ",
    asked!(),
    " ORDER BY d.key OFFSET 0) d
WHERE EXISTS (SELECT 1 FROM ended e WHERE e.uid = ($1::int[])[1] AND e.key = d.key AND e.how = 1)
    AND $6::bigint IS NOT NULL"
);
pub(super) const MERGED_OF_ALL: &str = concat!(
    "-- selection, recorded of all, merged
SELECT count(*) FROM (SELECT d.key FROM dead d WHERE ",
    of_queue!(),
    " AND d.key IS NOT NULL ORDER BY d.key OFFSET 0) d
WHERE EXISTS (SELECT 1 FROM ended e WHERE e.uid = ($1::int[])[1] AND e.key = d.key AND e.how = 1)"
);

/// Whatever the planner believes about the size of the tables: no loop over the ends of a whole queue.
const ONLY_MERGES: &str = "SET LOCAL enable_nestloop = off; SET LOCAL enable_hashjoin = off";

// Not fewer than the ends with a key.
pub(super) const ACKED: &str =
    "-- selection, acked\nSELECT coalesce(sum(acked), 0)::bigint FROM counter WHERE uid = $1::int";

/// Fewer keys than this are looked up one by one: a tenth of a second.
const MOST_LOOK_UPS: i64 = 50_000;
/// A pass over so many ends costs as much as one look-up.
const ENDS_PER_LOOK_UP: i64 = 10;

macro_rules! sample {
    ($name:literal, $lead:literal, $at:literal, $order:literal) => {
        concat!(
            "-- selection, sample ",
            $name,
            "\nSELECT d.seq FROM dead d WHERE ",
            of_queue!(),
            $lead,
            " AND ",
            between!($at),
            " AND ",
            asked!(),
            " ORDER BY ",
            $at,
            $order,
            ", d.seq",
            $order,
            " LIMIT $6::bigint"
        )
    };
}
pub(super) const FIRST: [&str; 5] = by_lead!(sample, "");
pub(super) const LAST: [&str; 5] = by_lead!(sample, " DESC");

pub(super) const KEEP: &str = "-- selection, keep
INSERT INTO selection (id, uid, dead_id, expires_at, snapshot, body)
VALUES ($1::bigint, $2::int, $3::int, $4::bigint, $5::text, $6::text)";

pub(super) const READ: &str = "-- selection\nSELECT body FROM selection WHERE id = $1::bigint";

// Keeps the sweep away while a bulk decision about it begins.
pub(super) const LOCK: &str =
    "-- selection, lock\nSELECT body FROM selection WHERE id = $1::bigint FOR KEY SHARE";

/// Reads a selection's body.
pub(super) fn parse(body: &str) -> Result<Selection, Fault> {
    serde_json::from_str(body).map_err(|_| broken("selection"))
}

impl Work<'_> {
    /// Freezes and counts. The transaction has one snapshot.
    pub(super) async fn select(
        &mut self,
        tx: &mut Tx,
        queue: QueueUid,
        filter: &DeadFilter,
    ) -> Result<Answer, Fault> {
        let row = sqlx::query(super::queues::BY_UID)
            .bind(queue.0)
            .fetch_optional(&mut **tx)
            .await?;
        let known = row.map(|row| rows::known(&row)).transpose()?;
        let Some(known) = known.filter(|k| !k.deleted) else {
            return Ok(super::operate::no_queue());
        };
        let row = sqlx::query(SNAPSHOT).fetch_one(&mut **tx).await?;
        let (id, snapshot): (i64, String) = (row.try_get(0)?, row.try_get(1)?);
        let figures = self.figures(tx, &known, filter).await?;
        let sample = sample(tx, &known, filter, figures.count).await?;
        let selection = Selection {
            id: SelectionId(id),
            queue,
            filter: filter.clone(),
            figures,
            sample,
            created_at: self.now,
            expires_at: self.now + SELECTION_LIFE_MS,
        };
        sqlx::query(KEEP)
            .bind(id)
            .bind(queue.0)
            .bind(known.dead_id)
            .bind(selection.expires_at)
            .bind(snapshot)
            .bind(serde_json::to_string(&selection).map_err(StoreError::internal)?)
            .execute(&mut **tx)
            .await?;
        Ok(Answer::Selected { id })
    }

    async fn figures(
        &self,
        tx: &mut Tx,
        known: &Known,
        filter: &DeadFilter,
    ) -> Result<Figures, Fault> {
        let (queue, between) = (of_queue(known), Between::of(filter));
        let lead = Lead::of(filter);
        let max_redrives = i64::from(known.queue.policy.max_redrives);
        let ask = |sql| filters::bind(sqlx::query(sql), &queue, between, max_redrives, filter);
        let mut figures = Figures::default();
        let rows = ask(lead.pick(&FIGURES))
            .bind(self.now)
            .bind(COUNTED_CODES as i64)
            .fetch_all(&mut **tx)
            .await?;
        for row in &rows {
            let (small, count): (Option<i16>, i64) = (row.try_get(1)?, row.try_get(3)?);
            match (row.try_get::<i16, _>(0)?, small) {
                (1, Some(reason)) => {
                    let reason = Reason::from_code(reason).ok_or_else(|| broken("reason"))?;
                    figures.by_reason.push((reason, count));
                }
                (2, _) => figures.by_error_code.push((row.try_get(2)?, count)),
                (3, Some(age)) => figures.by_age[age.clamp(0, 3) as usize] = count,
                _ => {
                    figures.count = count;
                    figures.edited = row.try_get(4)?;
                    figures.over_max_redrives = row.try_get(5)?;
                }
            }
        }
        figures.finish();
        if figures.count > 0 {
            let row = ask(COMPLETED).fetch_one(&mut **tx).await?;
            figures.completion_remembered = row.try_get(0)?;
            let row = sqlx::query(ACKED)
                .bind(queue[0])
                .fetch_one(&mut **tx)
                .await?;
            let ends: i64 = row.try_get(0)?;
            let merge = figures.count > MOST_LOOK_UPS && ends / ENDS_PER_LOOK_UP <= figures.count;
            if merge {
                tx.execute(ONLY_MERGES).await?;
            }
            let recorded = match (merge, *filter == DeadFilter::default()) {
                (false, _) => ask(lead.pick(&RECORDED)),
                (true, false) => ask(MERGED),
                (true, true) => sqlx::query(MERGED_OF_ALL).bind(queue.to_vec()),
            };
            let row = recorded.fetch_one(&mut **tx).await?;
            figures.outcome_recorded = row.try_get(0)?;
        }
        Ok(figures)
    }
}

fn of_queue(known: &Known) -> [i32; 2] {
    [known.queue.uid.0, known.dead_id]
}

/// The oldest and the youngest of `count` messages, oldest first.
async fn sample(
    tx: &mut Tx,
    known: &Known,
    filter: &DeadFilter,
    count: i64,
) -> Result<Vec<i64>, Fault> {
    let all = count <= i64::from(SAMPLE);
    let half = if all { count } else { i64::from(SAMPLE) / 2 };
    let lead = Lead::of(filter);
    let mut sample = Vec::new();
    for (sql, backwards) in [(lead.pick(&FIRST), false), (lead.pick(&LAST), true)] {
        if half == 0 || (all && backwards) {
            continue;
        }
        let query = sqlx::query(sql);
        let rows = filters::bind(query, &of_queue(known), Between::of(filter), half, filter)
            .fetch_all(&mut **tx)
            .await?;
        let mut found: Vec<i64> = rows
            .iter()
            .map(|row| row.try_get(0))
            .collect::<Result<_, _>>()?;
        if backwards {
            found.reverse();
        }
        sample.append(&mut found);
    }
    Ok(sample)
}

impl Postgres {
    pub(super) async fn selection_of(&self, id: SelectionId) -> Result<Option<Selection>> {
        let rows = self.rows_of(|| sqlx::query(READ).bind(id.0)).await?;
        let selection = rows.first().map(|row| parse(row.try_get(0)?)).transpose();
        selection.map_err(Fault::into_error)
    }
}
