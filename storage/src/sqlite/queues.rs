//! Queues: rows, facts, numbers.

use super::rows::failed;
use super::writer::{Known, QueueRow, Writer, add};
use crate::backend::{Facts, QueueNumbers};
use crate::error::{Result, StoreError};
use crate::model::{Counts, Millis, Queue, QueueUid};
use rusqlite::{Connection, OptionalExtension, params};
use std::sync::Arc;

/// The store's epoch and secret; made when the store is new.
pub(super) fn facts(sql: &Connection) -> Result<Facts> {
    let read = |name: &str| -> Result<Option<Vec<u8>>> {
        sql.query_row("SELECT value FROM meta WHERE name = ?", [name], |r| {
            r.get(0)
        })
        .optional()
        .map_err(failed)
    };
    if read("receipt_secret")?.is_none() {
        let secret: [u8; 32] = rand::random();
        sql.execute(
            "INSERT INTO meta (name, value) VALUES ('receipt_secret', ?)",
            params![&secret[..]],
        )
        .map_err(failed)?;
        sql.execute(
            "INSERT INTO meta (name, value) VALUES ('epoch', ?)",
            params![&1i32.to_be_bytes()[..]],
        )
        .map_err(failed)?;
    }
    let broken = || StoreError::internal("the store's receipt secret is damaged");
    let secret = read("receipt_secret")?
        .and_then(|v| v.try_into().ok())
        .ok_or_else(broken)?;
    let epoch = read("epoch")?
        .and_then(|v| v.try_into().ok())
        .ok_or_else(broken)?;
    Ok(Facts {
        epoch: i32::from_be_bytes(epoch),
        receipt_secret: secret,
    })
}

/// Reads all queues and numbers.
pub(super) fn load(sql: &Connection, known: &mut Known) -> Result<()> {
    const QUEUES: &str = "-- queues
        SELECT uid, name, version, paused, deleted, live_id, dead_id, policy, created_at FROM queue";
    const COUNTS: &str = "-- all counts
        SELECT queue_id, uid, delayed, ready, leased, dead, accepted, reopened, acked, discarded, purged,
            dead_letter_expired, delivered, redriven FROM counter";
    let mut statement = sql.prepare(QUEUES).map_err(failed)?;
    let rows = statement
        .query_map([], |r| {
            let policy: String = r.get(7)?;
            let row = QueueRow {
                uid: QueueUid(r.get(0)?),
                name: Arc::from(r.get::<_, String>(1)?),
                version: r.get(2)?,
                paused: r.get(3)?,
                deleted: r.get(4)?,
                live_id: r.get(5)?,
                dead_id: r.get(6)?,
                policy: Arc::default(),
                created_at: r.get(8)?,
            };
            Ok((row, policy))
        })
        .map_err(failed)?;
    for row in rows {
        let (mut row, policy) = row.map_err(failed)?;
        row.policy = Arc::new(serde_json::from_str(&policy).map_err(StoreError::internal)?);
        known.names.insert(row.name.clone(), row.uid);
        known.queues.insert(row.uid, row);
    }
    let mut statement = sql.prepare(COUNTS).map_err(failed)?;
    let rows = statement
        .query_map([], |r| {
            let counts = Counts {
                delayed: r.get(2)?,
                ready: r.get(3)?,
                leased: r.get(4)?,
                dead: r.get(5)?,
                accepted: r.get(6)?,
                reopened: r.get(7)?,
                acked: r.get(8)?,
                discarded: r.get(9)?,
                purged: r.get(10)?,
                dead_letter_expired: r.get(11)?,
                delivered: r.get(12)?,
                redriven: r.get(13)?,
            };
            Ok((r.get::<_, i64>(0)?, (QueueUid(r.get(1)?), counts)))
        })
        .map_err(failed)?;
    for row in rows {
        let (queue_id, counts) = row.map_err(failed)?;
        known.counts.insert(queue_id, counts);
    }
    Ok(())
}

impl Known {
    /// The numbers of a queue over all its incarnations: the gauges of purged ones count as purged.
    pub(super) fn numbers(&self, queue: &QueueRow) -> Counts {
        let mut sum = Counts::default();
        for (id, (_, counts)) in self.counts.iter().filter(|(_, (uid, _))| *uid == queue.uid) {
            let mut counts = *counts;
            if *id != queue.live_id {
                counts.purged += counts.delayed + counts.ready + counts.leased;
                (counts.delayed, counts.ready, counts.leased) = (0, 0, 0);
            }
            if *id != queue.dead_id {
                counts.purged += counts.dead;
                counts.dead = 0;
            }
            add(&mut sum, &counts);
        }
        sum
    }
}

impl Writer {
    pub(super) fn queue_named(&self, name: &str) -> Option<Queue> {
        let uid = self.known.names.get(name)?;
        self.known
            .queues
            .get(uid)
            .filter(|q| !q.deleted)
            .map(QueueRow::view)
    }

    pub(super) fn queue_by_uid(&self, uid: QueueUid) -> Option<(Queue, bool)> {
        self.known.queues.get(&uid).map(|q| (q.view(), q.deleted))
    }

    pub(super) fn list_queues(&self, after: Option<&str>, limit: u32) -> Vec<Queue> {
        use std::ops::Bound;
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.known
            .names
            .range::<str, _>((from, Bound::Unbounded))
            .filter_map(|(_, uid)| self.known.queues.get(uid))
            .filter(|q| !q.deleted)
            .take(limit as usize)
            .map(QueueRow::view)
            .collect()
    }

    pub(super) fn numbers(&mut self, uid: QueueUid, now: Option<Millis>) -> Result<QueueNumbers> {
        const OLDEST_READY: &str = "-- oldest ready: the first of each priority
            WITH RECURSIVE ranks (rank) AS (SELECT 0 UNION ALL SELECT rank + 1 FROM ranks WHERE rank < 9)
            SELECT min((SELECT min(available_at) FROM ready r WHERE r.queue_id = ?1 AND r.rank = ranks.rank)) FROM ranks";
        const OLDEST_DEAD: &str =
            "-- oldest dead\nSELECT min(died_at) FROM dead WHERE queue_id = ?";
        let now = self.catch_up(now)?;
        let Some(queue) = self.known.queues.get(&uid) else {
            return Ok(QueueNumbers {
                now,
                ..QueueNumbers::default()
            });
        };
        let oldest = |sql: &'static str, id: i64| -> Result<Option<Millis>> {
            self.connection()
                .prepare_cached(sql)
                .and_then(|mut s| s.query_row([id], |r| r.get(0)))
                .map_err(failed)
        };
        Ok(QueueNumbers {
            counts: self.known.numbers(queue),
            oldest_ready_at: oldest(OLDEST_READY, queue.live_id)?,
            oldest_dead_at: oldest(OLDEST_DEAD, queue.dead_id)?,
            now,
        })
    }
}
