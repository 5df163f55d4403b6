//! Queues as operators change them: policy, pause, purge, delete.

use super::audit::About;
use super::fault::Fault;
use super::operate::{Tx, Work, no_queue};
use super::rows::{self, Known, queue_columns};
use crate::backend::{Answer, Expect, OperationRefused};
use crate::error::{Result, StoreError};
use crate::model::{Millis, Policy, QueueUid};
use crate::rules::trail::Trail;
use sqlx::Row;

macro_rules! queue_sql {
    ($name:literal, $test:literal, $lock:literal) => {
        concat!(
            "-- operate, ",
            $name,
            "\nSELECT ",
            queue_columns!(),
            " FROM queue WHERE ",
            $test,
            " ",
            $lock
        )
    };
}
// Waits for publishes under way, and keeps new ones waiting: for what must not miss a message.
pub(super) const QUEUE_ALONE: &str = queue_sql!("queue, alone", "uid = $1::int", "FOR UPDATE");
// Waits for nobody but other operators.
pub(super) const QUEUE: &str = queue_sql!("queue", "uid = $1::int", "FOR NO KEY UPDATE");
pub(super) const QUEUE_NAMED: &str =
    queue_sql!("queue by name", "name = $1::text", "FOR NO KEY UPDATE");

pub(super) const GAUGES: &str = "-- operate, gauges
SELECT (SELECT coalesce(sum(delayed + ready + leased), 0)::bigint FROM counter WHERE queue_id = $1::int),
    (SELECT coalesce(sum(dead), 0)::bigint FROM counter WHERE queue_id = $2::int)";

pub(super) const NEW_INCARNATIONS: &str = "-- operate, new incarnations
UPDATE allocator SET next_incarnation = next_incarnation + 2 WHERE id = 0 RETURNING next_incarnation - 2";

pub(super) const NEW_UID: &str = "-- operate, new uid
UPDATE allocator SET next_uid = next_uid + 1 WHERE id = 0 RETURNING next_uid - 1";

pub(super) const TO_TRASH: &str = "-- operate, to trash
INSERT INTO trash (id, uid, kind, since) VALUES ($1::int, $2::int, $3::smallint, $4::bigint)";

pub(super) const CREATE: &str = "-- operate, create queue
INSERT INTO queue (uid, name, version, paused, deleted, live_id, dead_id, retention_ms, dead_retention_ms, policy, created_at)
VALUES ($1::int, $2::text, 1, false, false, $3::int, $4::int, $5::bigint, $6::bigint, $7::text, $8::bigint)";

// Touches no key column, so publishes go on.
pub(super) const CHANGE: &str = "-- operate, change queue
UPDATE queue SET version = $2::bigint, paused = $3::boolean, deleted = $4::boolean, retention_ms = $5::bigint,
    dead_retention_ms = $6::bigint, policy = $7::text, created_at = $8::bigint
WHERE uid = $1::int";

pub(super) const REPLACE: &str = "-- operate, replace incarnations
UPDATE queue SET version = version + 1, live_id = $2::int, dead_id = $3::int, deleted = $4::boolean WHERE uid = $1::int";

// The messages of a queue that have a key and are there; discarded ones, and those that a purge took, are not. One snapshot
// sees a message in one place. Subqueries instead of joins, so that each is one look-up by an index.
macro_rules! live_keys {
    () => {
        "FROM queue q CROSS JOIN keyed k
CROSS JOIN LATERAL (SELECT rank, available_at, fingerprint FROM message m WHERE m.seq = k.seq LIMIT 1) m
WHERE q.uid = $1::int AND k.uid = $1::int AND coalesce(
    (SELECT queue_id = q.live_id FROM lease WHERE seq = k.seq LIMIT 1),
    (SELECT queue_id = q.dead_id FROM dead WHERE seq + 0 = k.seq LIMIT 1),
    (SELECT queue_id = q.live_id FROM ready WHERE moved AND seq + 0 = k.seq LIMIT 1),
    (SELECT true FROM ready WHERE queue_id = q.live_id AND rank = m.rank AND available_at = m.available_at
        AND seq = k.seq LIMIT 1),
    (SELECT queue_id = q.live_id FROM delayed WHERE seq + 0 = k.seq LIMIT 1),
    false)"
    };
}

pub(super) const REPEATED_KEYS: &str = concat!(
    "-- operate, repeated keys\nSELECT 1 ",
    live_keys!(),
    " GROUP BY k.key HAVING count(*) > 1 LIMIT 1"
);

pub(super) const ADOPT_KEYS: &str = concat!(
    "-- operate, adopt keys
INSERT INTO unique_key (uid, key, seq, fingerprint)
SELECT k.uid, k.key, k.seq, m.fingerprint ",
    live_keys!(),
    " ORDER BY k.uid, k.key
ON CONFLICT (uid, key) DO UPDATE SET seq = excluded.seq, fingerprint = excluded.fingerprint, keep_until = NULL"
);

impl Work<'_> {
    pub(super) async fn purge(
        &mut self,
        tx: &mut Tx,
        queue: QueueUid,
        dead_letters: bool,
    ) -> Result<Answer, Fault> {
        let Some(known) = present(tx, queue, QUEUE_ALONE).await? else {
            return Ok(no_queue());
        };
        let (live, dead) = self.gauges(tx, &known).await?;
        self.replace(tx, &known, dead_letters, false).await?;
        let purged = live + if dead_letters { dead } else { 0 };
        let trail = Trail::purged(purged, dead_letters);
        self.audit(tx, "purge", About::queue(queue, trail)).await?;
        Ok(Answer::Purged { purged })
    }

    pub(super) async fn pause(
        &mut self,
        tx: &mut Tx,
        queue: QueueUid,
        paused: bool,
    ) -> Result<Answer, Fault> {
        let Some(known) = present(tx, queue, QUEUE).await? else {
            return Ok(no_queue());
        };
        let was = &known.queue;
        if was.paused != paused {
            self.change(
                tx,
                &known,
                &was.policy,
                was.version + 1,
                paused,
                was.created_at,
            )
            .await?;
            let word = if paused { "pause" } else { "resume" };
            let trail = Trail::paused(was.paused, paused);
            self.audit(tx, word, About::queue(queue, trail)).await?;
        }
        Ok(Answer::Queue {
            uid: queue.0,
            created: false,
        })
    }

    pub(super) async fn delete_queue(
        &mut self,
        tx: &mut Tx,
        queue: QueueUid,
        force: bool,
        version: Option<i64>,
    ) -> Result<Answer, Fault> {
        let Some(known) = present(tx, queue, QUEUE_ALONE).await? else {
            return Ok(no_queue());
        };
        if version.is_some_and(|version| version != known.queue.version) {
            return Ok(Answer::Refused(OperationRefused::VersionMismatch));
        }
        let (live, dead) = self.gauges(tx, &known).await?;
        let purged = live + dead;
        if purged > 0 && !force {
            return Ok(Answer::Refused(OperationRefused::QueueNotEmpty));
        }
        self.replace(tx, &known, true, true).await?;
        let trail = Trail::purged(purged, true);
        self.audit(tx, "delete_queue", About::queue(queue, trail))
            .await?;
        Ok(Answer::Deleted { purged })
    }

    pub(super) async fn put_queue(
        &mut self,
        tx: &mut Tx,
        name: &str,
        policy: &Policy,
        expect: Expect,
    ) -> Result<Answer, Fault> {
        let row = sqlx::query(QUEUE_NAMED)
            .bind(name)
            .fetch_optional(&mut **tx)
            .await?;
        let known = row.map(|row| rows::known(&row)).transpose()?;
        let there = known.as_ref().filter(|k| !k.deleted).map(|k| &k.queue);
        match (expect, there) {
            (Expect::Absent, Some(queue)) => {
                return Ok(Answer::Queue {
                    uid: queue.uid.0,
                    created: false,
                });
            }
            (Expect::Version(version), queue) if queue.is_none_or(|q| q.version != version) => {
                return Ok(Answer::Refused(OperationRefused::VersionMismatch));
            }
            _ => {}
        }
        let created = there.is_none();
        let same = there.is_some_and(|queue| *queue.policy == *policy);
        let uid = match &known {
            Some(known) if same => known.queue.uid,
            Some(known) => {
                let (uid, old) = (known.queue.uid, &known.queue);
                if policy.unique_key && !created && !old.policy.unique_key {
                    // No publish that saw the old policy may come after the look at the keys.
                    sqlx::query(QUEUE_ALONE)
                        .bind(uid.0)
                        .fetch_all(&mut **tx)
                        .await?;
                    if !self.adopt_keys(tx, uid).await? {
                        return Ok(Answer::Refused(OperationRefused::KeysNotUnique));
                    }
                }
                let paused = old.paused && !created;
                let created_at = if created { self.now } else { old.created_at };
                self.change(tx, known, policy, old.version + 1, paused, created_at)
                    .await?;
                uid
            }
            None => self.create(tx, name, policy).await?,
        };
        if !same {
            let word = if created { "create_queue" } else { "put_queue" };
            let trail = Trail::policy(there.map(|queue| &*queue.policy), policy);
            self.audit(tx, word, About::queue(uid, trail)).await?;
        }
        Ok(Answer::Queue {
            uid: uid.0,
            created,
        })
    }

    /// What waits or is leased, and what is dead.
    async fn gauges(&self, tx: &mut Tx, known: &Known) -> Result<(i64, i64), Fault> {
        let row = sqlx::query(GAUGES)
            .bind(known.live_id)
            .bind(known.dead_id)
            .fetch_one(&mut **tx)
            .await?;
        Ok((row.try_get(0)?, row.try_get(1)?))
    }

    /// Gives the queue new incarnations: everything of the old ones is gone at once, at any depth, and cleared later.
    async fn replace(
        &self,
        tx: &mut Tx,
        known: &Known,
        dead_letters: bool,
        deleted: bool,
    ) -> Result<(), Fault> {
        let first: i32 = sqlx::query(NEW_INCARNATIONS)
            .fetch_one(&mut **tx)
            .await?
            .try_get(0)?;
        let mut trash = vec![(known.live_id, 0i16)];
        let dead_id = if dead_letters {
            trash.push((known.dead_id, 1));
            first + 1
        } else {
            known.dead_id
        };
        for (id, kind) in trash {
            let query = sqlx::query(TO_TRASH)
                .bind(id)
                .bind(known.queue.uid.0)
                .bind(kind)
                .bind(self.now);
            query.execute(&mut **tx).await?;
        }
        let query = sqlx::query(REPLACE)
            .bind(known.queue.uid.0)
            .bind(first)
            .bind(dead_id)
            .bind(deleted);
        query.execute(&mut **tx).await?;
        Ok(())
    }

    async fn change(
        &self,
        tx: &mut Tx,
        known: &Known,
        policy: &Policy,
        version: i64,
        paused: bool,
        created_at: Millis,
    ) -> Result<(), Fault> {
        let json = serde_json::to_string(policy).map_err(StoreError::internal)?;
        sqlx::query(CHANGE)
            .bind(known.queue.uid.0)
            .bind(version)
            .bind(paused)
            .bind(false)
            .bind(policy.retention_ms)
            .bind(policy.dead_letter_retention_ms)
            .bind(json)
            .bind(created_at)
            .execute(&mut **tx)
            .await?;
        Ok(())
    }

    /// A new name. Two that create it at the same time meet at its unique index.
    async fn create(&self, tx: &mut Tx, name: &str, policy: &Policy) -> Result<QueueUid, Fault> {
        let uid: i32 = sqlx::query(NEW_UID)
            .fetch_one(&mut **tx)
            .await?
            .try_get(0)?;
        let first: i32 = sqlx::query(NEW_INCARNATIONS)
            .fetch_one(&mut **tx)
            .await?
            .try_get(0)?;
        let json = serde_json::to_string(policy).map_err(StoreError::internal)?;
        sqlx::query(CREATE)
            .bind(uid)
            .bind(name)
            .bind(first)
            .bind(first + 1)
            .bind(policy.retention_ms)
            .bind(policy.dead_letter_retention_ms)
            .bind(json)
            .bind(self.now)
            .execute(&mut **tx)
            .await?;
        Ok(QueueUid(uid))
    }

    /// Makes the live keys of a queue its unique ones. `false`: one of them is there twice.
    async fn adopt_keys(&self, tx: &mut Tx, uid: QueueUid) -> Result<bool, Fault> {
        let repeated = sqlx::query(REPEATED_KEYS)
            .bind(uid.0)
            .fetch_optional(&mut **tx)
            .await?;
        if repeated.is_some() {
            return Ok(false);
        }
        sqlx::query(ADOPT_KEYS)
            .bind(uid.0)
            .execute(&mut **tx)
            .await?;
        Ok(true)
    }
}

/// The queue, locked, while it is there.
async fn present(tx: &mut Tx, uid: QueueUid, sql: &'static str) -> Result<Option<Known>, Fault> {
    let row = sqlx::query(sql)
        .bind(uid.0)
        .fetch_optional(&mut **tx)
        .await?;
    let known = row.map(|row| rows::known(&row)).transpose()?;
    Ok(known.filter(|k| !k.deleted))
}
