//! The one writer: a cycle is one transaction with one fsync and carries every kind of operation.

use super::request_ids::{Id, Taken, Young};
use super::rows::failed;
use super::{audit, due, publish, queues, receive, selections, settle};
use crate::backend::{Batch, BatchOutcome, Facts, Moved, Stir};
use crate::clock::Monotone;
use crate::error::{Result, StoreError};
use crate::known_bug;
use crate::model::{Counts, IdMaker, MessageId, Millis, Policy, Queue, QueueUid};
use rusqlite::{Connection, OptionalExtension, params};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// A queue's row.
#[derive(Clone, Debug)]
pub(super) struct QueueRow {
    pub(super) uid: QueueUid,
    pub(super) name: Arc<str>,
    pub(super) version: i64,
    pub(super) paused: bool,
    pub(super) deleted: bool,
    /// Incarnation of what waits and is leased.
    pub(super) live_id: i64,
    /// Incarnation of the dead letters.
    pub(super) dead_id: i64,
    pub(super) policy: Arc<Policy>,
    pub(super) created_at: Millis,
}

impl QueueRow {
    pub(super) fn view(&self) -> Queue {
        Queue {
            uid: self.uid,
            name: self.name.clone(),
            version: self.version,
            paused: self.paused,
            policy: self.policy.clone(),
            created_at: self.created_at,
        }
    }
}

/// Everything the writer knows without asking: exact, because nobody else writes.
#[derive(Default)]
pub(super) struct Known {
    pub(super) queues: HashMap<QueueUid, QueueRow>,
    pub(super) names: BTreeMap<Arc<str>, QueueUid>,
    /// Numbers per incarnation.
    pub(super) counts: HashMap<i64, (QueueUid, Counts)>,
    /// No row is due before this.
    pub(super) next_due: Millis,
    pub(super) young: Young,
    pub(super) dedupe_cursor: Option<(QueueUid, Vec<u8>)>,
    /// How far the sweep of revisions has come.
    pub(super) revision_cursor: i64,
    /// Number of the latest selection: dead letters that are written from now on belong to later ones.
    pub(super) generation: i64,
}

pub(super) struct Writer {
    connection: Connection,
    clock: Monotone,
    ids: IdMaker,
    pub(super) known: Known,
    touched: Vec<(QueueUid, i64)>,
    /// A failed fsync leaves unknown pages in the kernel: nothing may be answered as durable any more.
    failed_for_good: Option<Arc<str>>,
}

/// Changes of numbers, per incarnation.
type Pending = HashMap<i64, (QueueUid, Counts)>;

/// One transaction under way.
pub(super) struct Cycle<'w> {
    pub(super) sql: &'w Connection,
    pub(super) now: Millis,
    pub(super) known: &'w mut Known,
    ids: &'w mut IdMaker,
    pub(super) stir: Stir,
    /// Changes of numbers, per incarnation; added to [`Known::counts`] after the commit.
    pending: Pending,
    /// Request ids that this transaction claimed or let go of.
    pub(super) young: HashMap<Id, Option<Taken>>,
    /// Queue rows that this transaction changed; taken over after the commit.
    pub(super) changed: Vec<QueueRow>,
}

impl Writer {
    pub(super) fn new(connection: Connection) -> Result<(Self, Facts)> {
        let facts = queues::facts(&connection)?;
        let mut known = Known::default();
        queues::load(&connection, &mut known)?;
        known.young = Young::load(&connection)?;
        known.generation = selections::latest(&connection)?;
        let floor: Option<Millis> = connection
            .query_row("SELECT max(at) FROM counter", [], |r| r.get(0))
            .map_err(failed)?;
        let floor = floor.max(audit::newest(&connection)?);
        let writer = Self {
            connection,
            clock: Monotone::starting_at(floor.unwrap_or(0)),
            ids: IdMaker::new(0),
            known,
            touched: Vec::new(),
            failed_for_good: None,
        };
        Ok((writer, facts))
    }

    pub(super) fn ready_counts(&self) -> HashMap<QueueUid, i64> {
        self.known
            .queues
            .values()
            .map(|q| {
                (
                    q.uid,
                    self.known.counts.get(&q.live_id).map_or(0, |c| c.1.ready),
                )
            })
            .collect()
    }

    /// Ready counts that the last transactions changed.
    pub(super) fn take_touched(&mut self) -> Vec<(QueueUid, i64)> {
        std::mem::take(&mut self.touched)
    }

    /// Runs `work` in one transaction: all of it is durable, or nothing of it happened, or the error is
    /// [`StoreError::CommitUnknown`] and the writer never answers again.
    pub(super) fn transact<T>(
        &mut self,
        now: Option<Millis>,
        work: impl FnOnce(&mut Cycle<'_>) -> Result<T>,
    ) -> Result<(T, Stir, Millis)> {
        if let Some(why) = &self.failed_for_good {
            return Err(StoreError::Unavailable(why.clone()));
        }
        let now = self.clock.now(now);
        self.execute("BEGIN IMMEDIATE").map_err(failed)?;
        let mut cycle = Cycle {
            sql: &self.connection,
            now,
            known: &mut self.known,
            ids: &mut self.ids,
            stir: Stir::default(),
            pending: HashMap::new(),
            young: HashMap::new(),
            changed: Vec::new(),
        };
        let result = work(&mut cycle).and_then(|value| {
            if !known_bug!("counter-outside-the-transaction") {
                write_counts(cycle.sql, cycle.known, &cycle.pending, cycle.now)?;
            }
            Ok(value)
        });
        let Cycle {
            stir,
            pending,
            young,
            changed,
            ..
        } = cycle;
        let value = match result {
            Ok(value) => value,
            Err(error) => {
                self.roll_back();
                return Err(error);
            }
        };
        if let Err(error) = self.execute("COMMIT") {
            return Err(self.commit_failed(error));
        }
        if known_bug!("counter-outside-the-transaction") {
            write_counts(&self.connection, &self.known, &pending, now)?;
        }
        for (id, taken) in young {
            self.known.young.take_over(id, taken);
        }
        self.take_over(pending, changed);
        Ok((value, stir, now))
    }

    fn execute(&self, sql: &'static str) -> rusqlite::Result<usize> {
        self.connection.prepare_cached(sql)?.execute([])
    }

    fn roll_back(&mut self) {
        if self.connection.is_autocommit() {
            return;
        }
        if let Err(error) = self.execute("ROLLBACK") {
            tracing::error!(%error, "could not roll back");
            self.failed_for_good = Some("a rollback failed; restart the server".into());
        }
    }

    fn commit_failed(&mut self, error: rusqlite::Error) -> StoreError {
        let store_error = failed(error);
        self.roll_back();
        match store_error {
            // SQLite undoes the transaction when it cannot write all of it.
            StoreError::DiskLow(_) => store_error,
            other => {
                let why: Arc<str> = format!("a commit failed: {other}; restart the server").into();
                tracing::error!(%other, "a commit failed: no further write is answered");
                self.failed_for_good = Some(why.clone());
                StoreError::CommitUnknown(why)
            }
        }
    }

    fn take_over(&mut self, pending: Pending, changed: Vec<QueueRow>) {
        for row in changed {
            self.known.names.insert(row.name.clone(), row.uid);
            let ready = self.known.counts.get(&row.live_id).map_or(0, |c| c.1.ready);
            self.touched.push((row.uid, ready));
            self.known.queues.insert(row.uid, row);
        }
        for (queue_id, (uid, delta)) in pending {
            let entry = self
                .known
                .counts
                .entry(queue_id)
                .or_insert((uid, Counts::default()));
            add(&mut entry.1, &delta);
            if self
                .known
                .queues
                .get(&uid)
                .is_some_and(|q| q.live_id == queue_id)
            {
                self.touched.push((uid, entry.1.ready));
            }
        }
    }

    /// One cycle: what is due, then settles, publishes, receives.
    pub(super) fn apply(&mut self, batch: &Batch, now: Option<Millis>) -> Result<BatchOutcome> {
        if known_bug!("receive-committed-asynchronously") && !batch.receives.is_empty() {
            let rest = Batch {
                receives: Vec::new(),
                ..batch.clone()
            };
            let mut outcome = self.apply(&rest, now)?;
            self.execute("PRAGMA synchronous = 1").map_err(failed)?;
            let received = self.transact(now, |c| receive::all(c, &batch.receives));
            self.execute("PRAGMA synchronous = 2").map_err(failed)?;
            let (receives, stir, now) = received?;
            outcome.stir.merge(&stir);
            return Ok(BatchOutcome {
                receives,
                now,
                ..outcome
            });
        }
        let (mut outcome, stir, now) = self.transact(now, |cycle| {
            if cycle.known.next_due <= cycle.now {
                due::step(cycle)?;
            }
            Ok(BatchOutcome {
                settles: settle::all(cycle, &batch.settles)?,
                publishes: publish::all(cycle, &batch.publishes)?,
                receives: receive::all(cycle, &batch.receives)?,
                ..BatchOutcome::default()
            })
        })?;
        outcome.stir = stir;
        outcome.now = now;
        Ok(outcome)
    }

    pub(super) fn move_due(&mut self, now: Option<Millis>) -> Result<Moved> {
        let ((moved, more), mut stir, _) = self.transact(now, due::step)?;
        if self.known.next_due < Millis::MAX {
            stir.add_due(self.known.next_due);
        }
        Ok(Moved { moved, more, stir })
    }

    /// Moves everything that is due, in steps; then a read sees the state of its own time.
    pub(super) fn catch_up(&mut self, now: Option<Millis>) -> Result<Millis> {
        let now = self.clock.now(now);
        while self.known.next_due <= now {
            let ((_, more), _, _) = self.transact(Some(now), due::step)?;
            if !more {
                break;
            }
        }
        while self.transact(Some(now), due::retention)?.0.1 {}
        Ok(now)
    }

    /// A transaction that changes nothing, to learn whether the store takes one.
    pub(super) fn check(&mut self) -> Result<()> {
        if let Some(why) = &self.failed_for_good {
            return Err(StoreError::Unavailable(why.clone()));
        }
        self.connection
            .query_row("SELECT 1 FROM meta LIMIT 1", [], |_| Ok(()))
            .optional()
            .map(|_| ())
            .map_err(failed)
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    pub(super) fn close(self) {
        if let Err((_, error)) = self.connection.close() {
            tracing::warn!(%error, "the database did not close cleanly");
        }
    }
}

impl Cycle<'_> {
    pub(super) fn next_id(&mut self) -> MessageId {
        self.ids.next(self.now)
    }

    /// The queue as it is now, also after changes of this transaction.
    pub(super) fn queue(&self, uid: QueueUid) -> Option<QueueRow> {
        self.changed
            .iter()
            .rev()
            .find(|q| q.uid == uid)
            .or_else(|| self.known.queues.get(&uid))
            .cloned()
    }

    /// The queue, if the caller's view of it is the present one.
    pub(super) fn confirmed(&self, seen: &Queue) -> Option<&QueueRow> {
        self.known
            .queues
            .get(&seen.uid)
            .filter(|q| q.version == seen.version && !q.deleted)
    }

    /// Adds to the numbers of an incarnation.
    pub(super) fn count(&mut self, queue_id: i64, uid: QueueUid, delta: &Counts) {
        add(
            &mut self
                .pending
                .entry(queue_id)
                .or_insert((uid, Counts::default()))
                .1,
            delta,
        );
    }

    /// The numbers of an incarnation, with what this transaction added.
    pub(super) fn counts_of(&self, queue_id: i64) -> Counts {
        counts_with(self.known, &self.pending, queue_id)
    }

    pub(super) fn highest_incarnation(&self) -> i64 {
        self.known
            .counts
            .keys()
            .chain(self.pending.keys())
            .copied()
            .max()
            .unwrap_or(0)
    }

    /// Notes that a row becomes due at `at`.
    pub(super) fn due_at(&mut self, at: Millis) {
        if at < self.known.next_due {
            self.known.next_due = at;
            self.stir.add_due(at);
        }
    }
}

fn counts_with(known: &Known, pending: &Pending, queue_id: i64) -> Counts {
    let mut counts = known
        .counts
        .get(&queue_id)
        .map_or_else(Counts::default, |c| c.1);
    if let Some((_, delta)) = pending.get(&queue_id) {
        add(&mut counts, delta);
    }
    counts
}

fn write_counts(sql: &Connection, known: &Known, pending: &Pending, now: Millis) -> Result<()> {
    // Absolute values: the writer knows them, and an update by difference would read the row first.
    const SQL: &str = "-- counts
            INSERT INTO counter (queue_id, uid, delayed, ready, leased, dead, accepted, reopened, acked, discarded, purged,
                dead_letter_expired, delivered, redriven, at)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
            ON CONFLICT (queue_id) DO UPDATE SET delayed = excluded.delayed, ready = excluded.ready,
                leased = excluded.leased, dead = excluded.dead, accepted = excluded.accepted,
                reopened = excluded.reopened, acked = excluded.acked, discarded = excluded.discarded,
                purged = excluded.purged, dead_letter_expired = excluded.dead_letter_expired,
                delivered = excluded.delivered, redriven = excluded.redriven, at = excluded.at";
    if pending.is_empty() {
        return Ok(());
    }
    let mut statement = sql.prepare_cached(SQL).map_err(failed)?;
    for (queue_id, (uid, _)) in pending {
        let c = counts_with(known, pending, *queue_id);
        statement
            .execute(params![
                queue_id,
                uid.0,
                c.delayed,
                c.ready,
                c.leased,
                c.dead,
                c.accepted,
                c.reopened,
                c.acked,
                c.discarded,
                c.purged,
                c.dead_letter_expired,
                c.delivered,
                c.redriven,
                now
            ])
            .map_err(failed)?;
    }
    Ok(())
}

/// Adds number by number.
pub(super) fn add(to: &mut Counts, delta: &Counts) {
    to.delayed += delta.delayed;
    to.ready += delta.ready;
    to.leased += delta.leased;
    to.dead += delta.dead;
    to.accepted += delta.accepted;
    to.reopened += delta.reopened;
    to.acked += delta.acked;
    to.discarded += delta.discarded;
    to.purged += delta.purged;
    to.dead_letter_expired += delta.dead_letter_expired;
    to.delivered += delta.delivered;
    to.redriven += delta.redriven;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Call, Expect, Operation};
    use crate::clock;
    use crate::sqlite::open;

    #[tokio::test]
    async fn the_clock_never_runs_backwards_also_over_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("clock.db");
        let ahead = clock::wall() + 3_600_000;
        let store = open(&path).await.unwrap();
        let put = Operation::PutQueue {
            name: "q".into(),
            policy: Box::default(),
            expect: Expect::Anything,
        };
        store
            .operate(&Call::default(), put, Some(ahead))
            .await
            .unwrap();
        let behind = store.apply(&Batch::default(), None).await.unwrap();
        let soon = ahead..ahead + 60_000;
        assert!(
            soon.contains(&behind.now),
            "the wall clock is an hour behind"
        );
        store.close().await;
        drop(store);
        let store = open(&path).await.unwrap();
        let after = store.apply(&Batch::default(), None).await.unwrap();
        assert!(soon.contains(&after.now));
        store.close().await;
    }
}
