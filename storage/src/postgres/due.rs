//! What the clock moves: expired leases, due delays, messages past their end.

use super::Postgres;
use super::drafts::{For, Wanted};
use super::fault::{Fault, Now};
use super::write::Writes;
use crate::backend::Moved;
use crate::error::Result;
use crate::known_bug;
use crate::model::{Millis, Place, QueueUid};
use crate::rules::time;
use parking_lot::Mutex;
use sqlx::Row;
use sqlx::postgres::PgConnection;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Most rows of each kind in one step.
const STEP: i64 = 500;
/// Steps before a read goes ahead although more is due: a backlog after a standstill must not stop every caller.
const CATCH_UP_STEPS: u32 = 20;
/// How often ready messages of all queues are held against their retention, which is never shorter than a minute.
const RETENTION_EVERY: Duration = Duration::from_secs(1);

/// What this process knows about the store's time, and the earliest time at which something is due.
pub(super) struct Due {
    known: Mutex<Known>,
    /// One mover at a time per process: whoever needs the result of a move waits for the one under way.
    turn: tokio::sync::Mutex<Option<Instant>>,
}

struct Known {
    next: Option<Millis>,
    store: Millis,
    seen: Instant,
}

impl Default for Due {
    fn default() -> Self {
        // Due at once: what happened before this process began is looked at first.
        let known = Known {
            next: Some(Millis::MIN),
            store: 0,
            seen: Instant::now(),
        };
        Self {
            known: Mutex::new(known),
            turn: tokio::sync::Mutex::new(None),
        }
    }
}

impl Due {
    /// Notes that something is due at `at`.
    pub(super) fn note(&self, at: Millis) {
        let mut known = self.known.lock();
        known.next = Some(known.next.map_or(at, |next| next.min(at)));
    }

    /// Notes the store's time.
    pub(super) fn saw(&self, now: Millis) {
        let mut known = self.known.lock();
        (known.store, known.seen) = (now, Instant::now());
    }

    /// The store's time, carried on by this process's monotonic clock. For ids and for the question whether to look; never
    /// stored or compared with a stored time.
    pub(super) fn estimate(&self) -> Millis {
        let known = self.known.lock();
        known
            .store
            .saturating_add(known.seen.elapsed().as_millis() as Millis)
    }

    fn is_due(&self, now: Now) -> bool {
        let now = now.unwrap_or_else(|| self.estimate());
        self.known.lock().next.is_some_and(|next| next <= now)
    }
}

pub(super) const CLOCK: &str =
    "-- clock\nSELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";

/// The store's time.
pub(super) async fn clock(connection: &mut PgConnection) -> Result<Millis, Fault> {
    Ok(sqlx::query(CLOCK).fetch_one(connection).await?.try_get(0)?)
}

// l: leases to look at; p: those that were extended are looked at again at their new end; d: delays that are over. Rows that
// somebody works on are skipped: whoever it is lets the time pass for them.
pub(super) const DUE: &str = "-- due
WITH clk AS MATERIALIZED (SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS t),
l AS MATERIALIZED (
    SELECT x.* FROM clk CROSS JOIN LATERAL (SELECT ctid AS tid, seq, expires_at FROM lease WHERE check_at <= clk.t
        ORDER BY check_at LIMIT $2::bigint FOR UPDATE SKIP LOCKED) x),
p AS (UPDATE lease SET check_at = expires_at
    WHERE ctid = ANY(ARRAY(SELECT l.tid FROM l, clk WHERE l.expires_at > clk.t)) RETURNING expires_at),
d AS MATERIALIZED (
    SELECT x.* FROM clk CROSS JOIN LATERAL (SELECT seq FROM delayed WHERE due_at <= clk.t
        ORDER BY due_at, seq LIMIT $2::bigint FOR UPDATE SKIP LOCKED) x)
SELECT clk.t, greatest((SELECT count(*) FROM l), (SELECT count(*) FROM d)), (SELECT min(expires_at) FROM p), w.seq
FROM clk LEFT JOIN (SELECT l.seq FROM l, clk WHERE l.expires_at <= clk.t UNION SELECT seq FROM d) w ON true";

// Life spans that are over. Nothing is locked: a message's state row is the lock of its row here, too. Whoever holds a state
// row may delete this one, so holding this one while asking for a state row would be a dead-lock.
pub(super) const EXPIRED: &str = "-- expired
WITH clk AS MATERIALIZED (SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS t)
SELECT clk.t, x.seq FROM clk CROSS JOIN LATERAL (SELECT seq FROM expiring WHERE check_at <= clk.t
    ORDER BY check_at LIMIT $2::bigint) x";

// Looks only at queues that are older than their own retention.
pub(super) const OVER_AGED: &str = "-- over-aged
WITH clk AS MATERIALIZED (SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS t)
SELECT clk.t, r.seq
FROM clk CROSS JOIN queue k CROSS JOIN generate_series(0, 9) AS p(rank) CROSS JOIN LATERAL (
    SELECT seq FROM ready WHERE queue_id = k.live_id AND rank = p.rank::smallint AND available_at <= clk.t - k.retention_ms
    ORDER BY available_at, seq LIMIT $2::bigint FOR UPDATE SKIP LOCKED) r
WHERE k.uid BETWEEN coalesce($3::int, 0) AND coalesce($3::int, 2147483647) AND k.created_at <= clk.t - k.retention_ms
LIMIT $2::bigint";

pub(super) const NEXT_DUE: &str = "-- next due
SELECT least((SELECT check_at FROM lease ORDER BY check_at LIMIT 1),
    (SELECT due_at FROM delayed ORDER BY due_at, seq LIMIT 1),
    (SELECT check_at FROM expiring ORDER BY check_at LIMIT 1))";

pub(super) const LOOK_LATER: &str = "-- look later
UPDATE expiring SET check_at = ($2::bigint[])[array_position($1::bigint[], seq)] WHERE seq = ANY($1::bigint[])";

impl Postgres {
    /// Files what is due, so that what is read next is as the clock has it. `queue`: its retention too.
    pub(super) async fn catch_up(&self, queue: Option<QueueUid>, now: Now) -> Result<()> {
        for _ in 0..CATCH_UP_STEPS {
            if !self.due.is_due(now) || !self.step(now).await?.more {
                break;
            }
        }
        if let Some(queue) = queue {
            for _ in 0..CATCH_UP_STEPS {
                if !self.retire(Some(queue), now).await?.more {
                    break;
                }
            }
        }
        Ok(())
    }

    pub(super) async fn move_what_is_due(&self, now: Now) -> Result<Moved> {
        let mut moved = self.step(now).await?;
        let look = {
            let mut last = self.due.turn.lock().await;
            let look = now.is_some() || last.is_none_or(|last| last.elapsed() >= RETENTION_EVERY);
            if look {
                *last = Some(Instant::now());
            }
            look
        };
        if look {
            let retired = self.retire(None, now).await?;
            moved.moved += retired.moved;
            moved.more |= retired.more;
            moved.stir.merge(&retired.stir);
        }
        Ok(moved)
    }

    async fn step(&self, now: Now) -> Result<Moved> {
        let turn = self.due.turn.lock().await;
        // Whatever becomes due from here on is noted by whoever makes it so.
        let before = self.due.known.lock().next.take();
        let mut attempt = 0;
        let result = loop {
            match self.try_step(now).await {
                Ok(moved) => break Ok(moved),
                Err(fault) => match self.once_more(&mut attempt, fault).await {
                    Ok(()) => {}
                    Err(error) => break Err(error),
                },
            }
        };
        match &result {
            Ok(moved) => drop(moved.stir.next_due.map(|at| self.due.note(at))),
            Err(_) => drop(before.map(|at| self.due.note(at))),
        }
        drop(turn);
        result
    }

    async fn try_step(&self, now: Now) -> Result<Moved, Fault> {
        let mut tx = self.begin().await?;
        let judged_by = if known_bug!("expiry-judged-by-the-servers-clock") {
            Some(crate::clock::wall())
        } else {
            now
        };
        let rows = sqlx::query(DUE)
            .bind(judged_by)
            .bind(STEP)
            .fetch_all(&mut *tx)
            .await?;
        let Some(first) = rows.first() else {
            return Ok(Moved::default());
        };
        let at: Millis = first.try_get(0)?;
        let mut moved = Moved {
            more: first.try_get::<i64, _>(1)? >= STEP,
            ..Moved::default()
        };
        if let Some(pushed) = first.try_get::<Option<Millis>, _>(2)? {
            moved.stir.add_due(pushed);
        }
        let mut wanted = BTreeMap::new();
        for row in &rows {
            if let Some(seq) = row.try_get::<Option<i64>, _>(3)? {
                wanted.insert(seq, Wanted::default());
            }
        }
        self.let_time_pass(&mut tx, &wanted, For::Change, at, &mut moved)
            .await?;
        tx.commit().await?;
        self.try_expire(now, &mut moved).await?;
        let mut connection = self.pool.acquire().await?;
        let next = sqlx::query(NEXT_DUE).fetch_one(&mut *connection).await?;
        if let Some(next) = next.try_get(0)? {
            moved.stir.add_due(next);
        }
        if now.is_none() {
            self.due.saw(at);
        }
        Ok(moved)
    }

    /// Files messages whose life span is over and that nobody works on: whoever does lets the time pass for them.
    async fn try_expire(&self, now: Now, moved: &mut Moved) -> Result<(), Fault> {
        let mut tx = self.begin().await?;
        let rows = sqlx::query(EXPIRED)
            .bind(now)
            .bind(STEP)
            .fetch_all(&mut *tx)
            .await?;
        let Some(first) = rows.first() else {
            tx.rollback().await?;
            return Ok(());
        };
        let at: Millis = first.try_get(0)?;
        moved.more |= rows.len() as i64 >= STEP;
        let mut wanted = BTreeMap::new();
        for row in &rows {
            wanted.insert(row.try_get(1)?, Wanted::default());
        }
        self.let_time_pass(&mut tx, &wanted, For::ChangeIfFree, at, moved)
            .await?;
        tx.commit().await?;
        Ok(())
    }

    /// Files ready messages past the retention of their queue.
    async fn retire(&self, queue: Option<QueueUid>, now: Now) -> Result<Moved> {
        let mut attempt = 0;
        loop {
            match self.try_retire(queue, now).await {
                Ok(moved) => return Ok(moved),
                Err(fault) => self.once_more(&mut attempt, fault).await?,
            }
        }
    }

    async fn try_retire(&self, queue: Option<QueueUid>, now: Now) -> Result<Moved, Fault> {
        let mut tx = self.begin().await?;
        let uid = queue.map(|q| q.0);
        let rows = sqlx::query(OVER_AGED)
            .bind(now)
            .bind(STEP)
            .bind(uid)
            .fetch_all(&mut *tx)
            .await?;
        let Some(first) = rows.first() else {
            // Nothing was locked or written.
            tx.rollback().await?;
            return Ok(Moved::default());
        };
        let at: Millis = first.try_get(0)?;
        let mut moved = Moved {
            more: rows.len() as i64 >= STEP,
            ..Moved::default()
        };
        let mut wanted = BTreeMap::new();
        for row in &rows {
            wanted.insert(row.try_get(1)?, Wanted::default());
        }
        self.let_time_pass(&mut tx, &wanted, For::Change, at, &mut moved)
            .await?;
        tx.commit().await?;
        Ok(moved)
    }

    /// Loads, lets the time pass and writes; clears what a purge has taken.
    async fn let_time_pass(
        &self,
        connection: &mut PgConnection,
        wanted: &BTreeMap<i64, Wanted>,
        purpose: For,
        now: Millis,
        moved: &mut Moved,
    ) -> Result<(), Fault> {
        if wanted.is_empty() {
            return Ok(());
        }
        let mut drafts = self.load(connection, wanted, purpose).await?;
        let (mut later, mut ends) = (Vec::new(), Vec::new());
        for loaded in drafts.values_mut() {
            let Some(known) = &loaded.known else { continue };
            time::pass(&mut loaded.draft, &known.queue.policy, now);
            if loaded.draft.message != loaded.before {
                moved.moved += 1;
            } else if let Some(message) = &loaded.draft.message {
                // A lease in the way of the message's end; nothing interrupts it.
                if let (Place::Leased(lease), Some(_)) = (&message.place, message.expires_at) {
                    later.push(loaded.seq);
                    ends.push(lease.expires_at);
                }
            }
        }
        if !later.is_empty() {
            sqlx::query(LOOK_LATER)
                .bind(&later)
                .bind(&ends)
                .execute(&mut *connection)
                .await?;
        }
        let writes = Writes::of(&drafts, now);
        self.write(connection, &writes, self.stripe, now).await?;
        moved.stir.merge(&writes.stir);
        let cleared = Writes::clear(&mut drafts, now);
        self.write(connection, &cleared, self.stripe, now).await
    }
}
