//! Background work in small steps: purged incarnations, counters, request ids, dead-letter retention; what is kept for a time
//! is in [`memories`](super::memories).
//!
//! Every replica does this; rows that another one works on are skipped.

use super::Postgres;
use super::audit::About;
use super::claims::FREE_ID;
use super::drafts::{For, Wanted};
use super::fault::{Fault, Now};
use super::write::Writes;
use super::{audit, memories};
use crate::backend::{Call, Keep};
use crate::error::Result;
use crate::model::{End, Millis, Policy};
use crate::rules::trail::Trail;
use crate::rules::{self, operate};
use sqlx::Row;
use sqlx::postgres::PgConnection;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// Rows per step and kind: some milliseconds of work, so that callers hardly notice.
pub(super) const STEP: i64 = 500;
/// Rows of `lease` or `dedupe` that a walk looks at in one step.
pub(super) const WALK: i64 = 1_000;
/// How often counters are folded and old marks dropped.
const SELDOM: Duration = Duration::from_secs(30);

/// Where the walks of this process are.
#[derive(Default)]
pub(super) struct Sweep {
    /// The last request id looked at.
    request_ids: Option<(i32, Vec<u8>)>,
    /// The purged incarnation being cleared, and the last lease looked at for it.
    leases: (i32, i64),
    /// The last message with revisions looked at.
    revisions: Option<i64>,
    seldom: Option<Instant>,
}

pub(super) const OLDEST_TRASH: &str = "-- oldest trash
SELECT id, uid, kind FROM trash ORDER BY since, id LIMIT 1 FOR UPDATE SKIP LOCKED";

pub(super) const LEFT_IN_READY: &str = "-- left in ready
SELECT seq FROM ready WHERE queue_id = $1::int ORDER BY rank, available_at, seq LIMIT $2::bigint FOR UPDATE SKIP LOCKED";

pub(super) const LEFT_IN_DELAYED: &str = "-- left in delayed
SELECT seq FROM delayed WHERE queue_id = $1::int ORDER BY due_at, seq LIMIT $2::bigint FOR UPDATE SKIP LOCKED";

pub(super) const LEFT_IN_DEAD: &str = "-- left in dead
SELECT seq FROM dead WHERE queue_id = $1::int ORDER BY died_at, seq LIMIT $2::bigint FOR UPDATE SKIP LOCKED";

// Without locks: a row that somebody moves just now is still in the one table or in the other.
pub(super) const ANYTHING_LEFT: &str = "-- anything left
SELECT EXISTS (SELECT 1 FROM ready WHERE queue_id = $1::int ORDER BY rank, available_at, seq LIMIT 1)
    OR EXISTS (SELECT 1 FROM delayed WHERE queue_id = $1::int ORDER BY due_at, seq LIMIT 1)
    OR EXISTS (SELECT 1 FROM dead WHERE queue_id = $1::int ORDER BY died_at, seq LIMIT 1)";

// A lease that is granted behind the walk is cleared when it runs out; see due.rs.
pub(super) const WALK_LEASES: &str = "-- walk leases
SELECT seq, queue_id FROM lease WHERE seq > $1::bigint ORDER BY seq LIMIT $2::bigint";

// What a purged incarnation still held is what the purge took.
pub(super) const FOLD_TRASH: &str = "-- fold trash
WITH k AS MATERIALIZED (SELECT live_id FROM queue WHERE uid = $2::int LIMIT 1 FOR KEY SHARE),
o AS (DELETE FROM counter WHERE queue_id = $1::int AND EXISTS (SELECT 1 FROM k) RETURNING *),
s AS MATERIALIZED (
    SELECT sum(accepted) AS accepted, sum(reopened) AS reopened, sum(acked) AS acked, sum(discarded) AS discarded,
        sum(purged + delayed + ready + leased + dead) AS purged, sum(dead_letter_expired) AS dead_letter_expired,
        sum(delivered) AS delivered, sum(redriven) AS redriven, count(*) AS n FROM o)
INSERT INTO counter AS c (queue_id, uid, stripe, epoch, accepted, reopened, acked, discarded, purged, dead_letter_expired,
    delivered, redriven)
SELECT k.live_id, $2::int, 0, 0, s.accepted, s.reopened, s.acked, s.discarded, s.purged, s.dead_letter_expired,
    s.delivered, s.redriven FROM s, k WHERE s.n > 0
ON CONFLICT (queue_id, stripe, epoch) DO UPDATE SET accepted = c.accepted + excluded.accepted,
    reopened = c.reopened + excluded.reopened, acked = c.acked + excluded.acked,
    discarded = c.discarded + excluded.discarded, purged = c.purged + excluded.purged,
    dead_letter_expired = c.dead_letter_expired + excluded.dead_letter_expired,
    delivered = c.delivered + excluded.delivered, redriven = c.redriven + excluded.redriven";

pub(super) const DROP_TRASH: &str = "-- drop trash\nDELETE FROM trash WHERE id = $1::int";

// Minutes that no statement writes into any more become one row: epoch 0 of stripe 0.
pub(super) const FOLD_COUNTERS: &str = "-- fold counters
WITH clk AS MATERIALIZED (SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS t),
o AS (DELETE FROM counter WHERE ctid = ANY(ARRAY(
        SELECT x.tid FROM clk CROSS JOIN LATERAL (SELECT ctid AS tid FROM counter
            WHERE epoch > 0 AND epoch < clk.t / 60000 - 2 ORDER BY epoch, queue_id LIMIT $2::bigint FOR UPDATE SKIP LOCKED) x))
    RETURNING *)
INSERT INTO counter AS c (queue_id, uid, stripe, epoch, delayed, ready, leased, dead, accepted, reopened, acked, discarded,
    purged, dead_letter_expired, delivered, redriven)
SELECT queue_id, uid, 0, 0, sum(delayed), sum(ready), sum(leased), sum(dead), sum(accepted), sum(reopened), sum(acked),
    sum(discarded), sum(purged), sum(dead_letter_expired), sum(delivered), sum(redriven)
FROM o GROUP BY queue_id, uid ORDER BY queue_id
ON CONFLICT (queue_id, stripe, epoch) DO UPDATE SET delayed = c.delayed + excluded.delayed, ready = c.ready + excluded.ready,
    leased = c.leased + excluded.leased, dead = c.dead + excluded.dead, accepted = c.accepted + excluded.accepted,
    reopened = c.reopened + excluded.reopened, acked = c.acked + excluded.acked,
    discarded = c.discarded + excluded.discarded, purged = c.purged + excluded.purged,
    dead_letter_expired = c.dead_letter_expired + excluded.dead_letter_expired,
    delivered = c.delivered + excluded.delivered, redriven = c.redriven + excluded.redriven";

pub(super) const DEAD_TOO_LONG: &str = "-- dead too long
WITH clk AS MATERIALIZED (SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS t)
SELECT clk.t, d.seq FROM clk CROSS JOIN queue k CROSS JOIN LATERAL (
    SELECT seq FROM dead WHERE queue_id = k.dead_id AND died_at <= clk.t - k.dead_retention_ms
    ORDER BY died_at, seq LIMIT $2::bigint FOR UPDATE SKIP LOCKED) d
WHERE k.uid >= 0 AND k.dead_retention_ms IS NOT NULL LIMIT $2::bigint";

// The next stretch of request ids, with whether their messages are still there. A discarded one is gone.
pub(super) const WALK_IDS: &str = "-- walk request ids
SELECT d.uid, d.digest, d.seq, d.kept_from, m.there IS NOT NULL,
    coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
FROM (SELECT * FROM dedupe WHERE (uid, digest) > ($2::int, $3::bytea) ORDER BY uid, digest LIMIT $4::bigint) d
LEFT JOIN LATERAL (SELECT 1 AS there FROM message m WHERE m.seq = d.seq
    AND (SELECT true FROM discarded x WHERE x.seq = d.seq LIMIT 1) IS NOT TRUE LIMIT 1) m ON true
ORDER BY d.uid, d.digest";

pub(super) const POLICIES: &str =
    "-- policies\nSELECT uid, policy FROM queue WHERE uid = ANY($1::int[])";

// Rows of connections that are long gone. A living one that was at rest for so long makes itself a new row.
pub(super) const DROP_MARKS: &str = "-- drop marks
DELETE FROM commit_mark WHERE batcher >= (-9223372036854775808)::bigint
    AND at < (extract(epoch FROM clock_timestamp()) * 1000)::bigint - 604800000";

impl Postgres {
    /// One step of everything. `true`: there is more to do now.
    pub(super) async fn clean(&self, keep: &Keep, now: Now) -> Result<bool> {
        let mut sweep = self.sweep.lock().await;
        let mut attempt = 0;
        loop {
            match self.try_clean(&mut sweep, keep, now).await {
                Ok(more) => return Ok(more),
                Err(fault) => self.once_more(&mut attempt, fault).await?,
            }
        }
    }

    async fn try_clean(&self, sweep: &mut Sweep, keep: &Keep, now: Now) -> Result<bool, Fault> {
        let mut more = self.clear_trash(sweep, now).await?;
        more |= self.expire_dead(now).await?;
        more |= self.forget_discarded(keep, now).await?;
        more |= self.watch_no_more(now).await?;
        more |= self.fold_failures().await?;
        more |= self.forget_redrives(keep, now).await?;
        let mut connection = self.pool.acquire().await?;
        more |= memories::forget(&mut connection, keep, now).await?;
        sweep_request_ids(&mut connection, sweep, now).await?;
        if now.is_some() || sweep.seldom.is_none_or(|last| last.elapsed() >= SELDOM) {
            let folded = sqlx::query(FOLD_COUNTERS)
                .bind(now)
                .bind(WALK)
                .execute(&mut *connection)
                .await?;
            more |= folded.rows_affected() as i64 >= WALK;
            sqlx::query(DROP_MARKS).execute(&mut *connection).await?;
            memories::forget_selections(&mut connection, now).await?;
            memories::sweep_revisions(&mut connection, &mut sweep.revisions).await?;
            sweep.seldom = Some(Instant::now());
        }
        Ok(more)
    }

    /// Clears a step of the oldest purged incarnation; when it is empty, folds its numbers into the present one.
    async fn clear_trash(&self, sweep: &mut Sweep, now: Now) -> Result<bool, Fault> {
        let mut tx = self.begin().await?;
        let Some(row) = sqlx::query(OLDEST_TRASH).fetch_optional(&mut *tx).await? else {
            tx.rollback().await?;
            return Ok(false);
        };
        let (id, uid, kind): (i32, i32, i16) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        let now = match now {
            Some(now) => now,
            None => super::due::clock(&mut tx).await?,
        };
        let mut wanted = BTreeMap::new();
        for sql in if kind == 0 {
            &[LEFT_IN_READY, LEFT_IN_DELAYED][..]
        } else {
            &[LEFT_IN_DEAD][..]
        } {
            for row in sqlx::query(*sql)
                .bind(id)
                .bind(STEP)
                .fetch_all(&mut *tx)
                .await?
            {
                wanted.insert(
                    row.try_get::<i64, _>(0)?,
                    Wanted {
                        uid: Some(uid),
                        ..Wanted::default()
                    },
                );
            }
        }
        let mut walked = true;
        if wanted.is_empty() {
            if sqlx::query(ANYTHING_LEFT)
                .bind(id)
                .fetch_one(&mut *tx)
                .await?
                .try_get(0)?
            {
                // Somebody holds the rest; it will be there next time.
                tx.rollback().await?;
                return Ok(false);
            }
            if kind == 0 {
                walked = walk_leases(&mut tx, sweep, id, &mut wanted).await?;
            }
        }
        if !wanted.is_empty() {
            let mut drafts = self.load(&mut tx, &wanted, For::Change).await?;
            let writes = Writes::clear(&mut drafts, now);
            self.write(&mut tx, &writes, self.stripe, now).await?;
        } else if walked {
            sqlx::query(FOLD_TRASH)
                .bind(id)
                .bind(uid)
                .execute(&mut *tx)
                .await?;
            sqlx::query(DROP_TRASH).bind(id).execute(&mut *tx).await?;
        }
        tx.commit().await?;
        Ok(true)
    }

    /// Ends dead letters past the retention of their queue.
    async fn expire_dead(&self, now: Now) -> Result<bool, Fault> {
        let mut tx = self.begin().await?;
        let rows = sqlx::query(DEAD_TOO_LONG)
            .bind(now)
            .bind(STEP)
            .fetch_all(&mut *tx)
            .await?;
        let Some(first) = rows.first() else {
            tx.rollback().await?;
            return Ok(false);
        };
        let now: Millis = first.try_get(0)?;
        let mut wanted = BTreeMap::new();
        for row in &rows {
            wanted.insert(row.try_get::<i64, _>(1)?, Wanted::default());
        }
        let mut drafts = self.load(&mut tx, &wanted, For::Change).await?;
        let mut about = Vec::new();
        for loaded in drafts.values_mut() {
            let Some(known) = &loaded.known else { continue };
            if operate::expire_dead(&mut loaded.draft, &known.queue.policy, now) {
                about.push(About::message(
                    known.queue.uid,
                    loaded.seq,
                    Trail::default(),
                ));
            }
        }
        let word = End::DeadLetterExpired.as_str();
        audit::write(&mut tx, &Call::by("policy"), word, None, &about, now).await?;
        self.write(&mut tx, &Writes::of(&drafts, now), self.stripe, now)
            .await?;
        tx.commit().await?;
        Ok(rows.len() as i64 >= STEP)
    }
}

/// Takes a stretch of the walk through all leases for those of a purged incarnation. `true`: the walk is over.
async fn walk_leases(
    connection: &mut PgConnection,
    sweep: &mut Sweep,
    id: i32,
    wanted: &mut BTreeMap<i64, Wanted>,
) -> Result<bool, Fault> {
    let after = if sweep.leases.0 == id {
        sweep.leases.1
    } else {
        i64::MIN
    };
    let rows = sqlx::query(WALK_LEASES)
        .bind(after)
        .bind(WALK)
        .fetch_all(connection)
        .await?;
    for row in &rows {
        let seq: i64 = row.try_get(0)?;
        if row.try_get::<i32, _>(1)? == id {
            wanted.insert(seq, Wanted::default());
        }
        sweep.leases = (id, seq);
    }
    Ok((rows.len() as i64) < WALK)
}

/// Walks the request ids with a cursor and drops those that are free. A free one that is still there does no harm: publish
/// looks at its time; this only gives the space back.
async fn sweep_request_ids(
    connection: &mut PgConnection,
    sweep: &mut Sweep,
    now: Now,
) -> Result<(), Fault> {
    let (uid, digest) = sweep.request_ids.take().unwrap_or((i32::MIN, Vec::new()));
    let rows = sqlx::query(WALK_IDS)
        .bind(now)
        .bind(uid)
        .bind(digest)
        .bind(WALK)
        .fetch_all(&mut *connection)
        .await?;
    let mut windows: HashMap<i32, Millis> = HashMap::new();
    let mut uids: Vec<i32> = rows
        .iter()
        .map(|row| row.try_get(0))
        .collect::<Result<_, _>>()?;
    uids.dedup();
    if !uids.is_empty() {
        for row in sqlx::query(POLICIES)
            .bind(&uids)
            .fetch_all(&mut *connection)
            .await?
        {
            let policy: Policy =
                serde_json::from_str(row.try_get(1)?).map_err(|_| super::rows::broken("policy"))?;
            windows.insert(row.try_get(0)?, policy.dedupe_window_ms);
        }
    }
    let (mut free_uids, mut free_digests, mut free_seqs) =
        (Vec::new(), Vec::<Vec<u8>>::new(), Vec::new());
    for row in &rows {
        let (uid, kept_from, there, at): (i32, Millis, bool, Millis) = (
            row.try_get(0)?,
            row.try_get(3)?,
            row.try_get(4)?,
            row.try_get(5)?,
        );
        let over = windows
            .get(&uid)
            .is_some_and(|window| rules::request_id_is_free(kept_from, *window, at));
        if over && !there {
            free_uids.push(uid);
            free_digests.push(row.try_get(1)?);
            free_seqs.push(row.try_get::<i64, _>(2)?);
        }
    }
    if !free_seqs.is_empty() {
        sqlx::query(FREE_ID)
            .bind(&free_uids)
            .bind(&free_digests)
            .bind(&free_seqs)
            .execute(&mut *connection)
            .await?;
    }
    if let Some(last) = rows.last().filter(|_| rows.len() as i64 >= WALK) {
        sweep.request_ids = Some((last.try_get(0)?, last.try_get(1)?));
    }
    Ok(())
}
