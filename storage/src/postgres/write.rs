//! Writing drafts: the difference between what was loaded and what the rules made of it, set by set.
//!
//! All rows that change were locked by the load, so every count must come out; one that does not means that a row was moved,
//! and the attempt is repeated. Counters come last in their transaction, in key order, so that nobody waits for them long.

use super::Postgres;
use super::drafts::{Drafts, Loaded};
use super::fault::Fault;
use super::revisions::FORGET_REVISIONS;
use super::rows::{Table, rank, text};
use crate::backend::Stir;
use crate::model::{
    Counts, Dead, Delivered, Discarded, HISTORY_HEAD, HISTORY_TAIL, Life, Millis, Place, QueueUid,
};
use crate::rules::{self, Message, Record, bulk};
use sqlx::postgres::{PgConnection, PgQueryResult};
use std::collections::{BTreeMap, HashMap};

/// Changes of counters by incarnation and queue.
pub(super) type Deltas = BTreeMap<(i32, i32), Counts>;

/// Everything that a transaction writes about its drafts.
#[derive(Default)]
pub(super) struct Writes {
    /// Rows that go: addresses by state table.
    leave: HashMap<&'static str, Vec<String>>,
    ready: Vec<(i64, i32, i16, Millis, Life, bool)>,
    delayed: Vec<(i64, i32, i16, Millis, Life)>,
    lease: Vec<(i64, i32, i16, crate::model::Lease, Life)>,
    /// Leases that stay: address, end, and whether a completion is remembered.
    changed: Vec<(i64, String, Millis, bool)>,
    dead: Vec<DeadRow>,
    discarded: Vec<(i64, i32, i16, Discarded, Life)>,
    /// Messages that had been redriven and died, and whether that is a failure of the redrive.
    died_again: Vec<(i64, bool)>,
    /// Messages that are gone and may have revisions.
    unrevised: Vec<i64>,
    put: Vec<(i64, Delivered)>,
    dropped: Vec<(i64, i32)>,
    completed: Vec<(i64, i32, Option<String>)>,
    uncompleted: Vec<i64>,
    gone: Vec<i64>,
    forgotten: Vec<i64>,
    ended: Vec<EndedRow>,
    keyed: Vec<(i64, i32, Vec<u8>)>,
    unkeyed: Vec<(i64, i32, Vec<u8>)>,
    expiring: Vec<(i64, Millis)>,
    unexpiring: Vec<i64>,
    new_expiry: Vec<(i64, Option<Millis>)>,
    keep_key: Vec<(i64, i32, Vec<u8>, Option<Millis>)>,
    keep_id: Vec<(i64, i32, Vec<u8>, Millis)>,
    deltas: Deltas,
    /// Rows put into `ready`: queue, rank and time, for the scan floors.
    put_back: Vec<(i32, i16, Millis)>,
    pub(super) stir: Stir,
}

struct DeadRow {
    seq: i64,
    queue_id: i32,
    rank: i16,
    dead: Dead,
    life: Life,
    published_at: Millis,
    key: Option<Vec<u8>>,
}

struct EndedRow {
    seq: i64,
    uid: i32,
    ended: crate::model::Ended,
    published_at: Millis,
    key: Option<Vec<u8>>,
    keep_until: Option<Millis>,
}

fn waits_or_lives(message: Option<&Message>) -> bool {
    message.is_some_and(|m| !matches!(m.place, Place::Discarded(_)))
}

fn expires(message: Option<&Message>) -> Option<Millis> {
    let message = message?;
    match message.place {
        Place::Delayed { .. } | Place::Ready { .. } | Place::Leased(_) => message.expires_at,
        Place::Dead(_) | Place::Discarded(_) => None,
    }
}

/// Adds `by` to a queue's numbers: dead letters count in their own incarnation.
pub(super) fn add(deltas: &mut Deltas, live_id: i32, dead_id: i32, uid: i32, by: &Counts) {
    let live = Counts { dead: 0, ..*by };
    for (id, part) in [
        (live_id, live),
        (
            dead_id,
            Counts {
                dead: by.dead,
                ..Counts::default()
            },
        ),
    ] {
        if part == Counts::default() {
            continue;
        }
        let sum = deltas.entry((id, uid)).or_default();
        sum.delayed += part.delayed;
        sum.ready += part.ready;
        sum.leased += part.leased;
        sum.dead += part.dead;
        sum.accepted += part.accepted;
        sum.reopened += part.reopened;
        sum.acked += part.acked;
        sum.discarded += part.discarded;
        sum.purged += part.purged;
        sum.dead_letter_expired += part.dead_letter_expired;
        sum.delivered += part.delivered;
        sum.redriven += part.redriven;
    }
}

impl Writes {
    /// The differences of all drafts.
    pub(super) fn of(drafts: &Drafts, now: Millis) -> Self {
        let mut writes = Self::default();
        for loaded in drafts.values() {
            writes.add(loaded, now);
        }
        writes
    }

    /// The difference of one draft. Does nothing for a message that was gone when it was loaded.
    fn add(&mut self, loaded: &Loaded, now: Millis) {
        let (Some(before), Some(row), Some(known)) = (&loaded.before, &loaded.row, &loaded.known)
        else {
            return;
        };
        let after = loaded.draft.message.as_ref();
        let (seq, uid) = (loaded.seq, known.queue.uid.0);
        let left_at = loaded
            .draft
            .ended
            .as_ref()
            .filter(|_| after.is_none())
            .map_or(now, |ended| ended.at);
        let policy = &known.queue.policy;
        if after != Some(before) {
            self.place(loaded, before);
            let delta = rules::counts_delta(Some(&before.place), &loaded.draft);
            add(&mut self.deltas, known.live_id, known.dead_id, uid, &delta);
        }
        for record in &loaded.draft.records {
            match record {
                Record::Put(delivered) => {
                    self.dropped.retain(|d| *d != (seq, delivered.fence));
                    self.put
                        .retain(|(s, d)| (*s, d.fence) != (seq, delivered.fence));
                    // A message that leaves without a record leaves without a history.
                    self.put.push((seq, delivered.clone()));
                    let oldest = delivered.fence - HISTORY_TAIL;
                    if oldest > HISTORY_HEAD {
                        self.dropped.push((seq, oldest));
                    }
                }
                Record::Drop(fence) => {
                    self.put.retain(|(s, d)| (*s, d.fence) != (seq, *fence));
                    self.dropped.push((seq, *fence));
                }
            }
        }
        let completion = after.and_then(|m| m.completion.as_ref());
        if completion != before.completion.as_ref() {
            match completion {
                Some(completion) => {
                    let outcome = completion.outcome.as_deref().map(str::to_owned);
                    self.completed.push((seq, completion.fence, outcome));
                }
                None if after.is_some() => self.uncompleted.push(seq),
                None => {}
            }
        }
        if let Some(after) = after.filter(|after| after.expires_at != before.expires_at) {
            self.new_expiry.push((seq, after.expires_at));
        }
        let key = row.envelope.key.as_deref().map(|k| k.as_bytes().to_vec());
        if let Some(key) = &key {
            match (waits_or_lives(Some(before)), waits_or_lives(after)) {
                (true, false) => self.unkeyed.push((seq, uid, key.clone())),
                (false, true) => self.keyed.push((seq, uid, key.clone())),
                _ => {}
            }
        }
        match (expires(Some(before)), expires(after)) {
            (Some(_), None) => self.unexpiring.push(seq),
            (None, Some(at)) => self.expiring.push((seq, at)),
            (Some(old), Some(at)) if old != at => {
                self.unexpiring.push(seq);
                self.expiring.push((seq, at));
            }
            _ => {}
        }
        if let Some(at) = expires(after) {
            self.stir.add_due(at);
        }
        if waits_or_lives(Some(before)) && !waits_or_lives(after) {
            if let Some(digest) = &row.digest {
                let published_at = row.envelope.created_at;
                if rules::request_id_kept_from(published_at, left_at, policy.dedupe_window_ms)
                    != published_at
                {
                    self.keep_id.push((seq, uid, digest.clone(), left_at));
                }
            }
            // Also when keys need not be unique any more: they may have been when this one was taken.
            if let Some(key) = &key {
                let until = rules::key_kept_until(left_at, policy);
                self.keep_key.push((seq, uid, key.clone(), until));
            }
        }
        if after.is_none() {
            self.gone.push(seq);
            // Only a dead letter can be edited, and only a redrive makes it another thing than dead or discarded.
            let was_dead = matches!(before.place, Place::Dead(_) | Place::Discarded(_));
            if was_dead || before.life.redrives > 0 {
                self.unrevised.push(seq);
            }
            if before.completion.is_some() {
                self.uncompleted.push(seq);
            }
            match &loaded.draft.ended {
                Some(ended)
                    if rules::remembers_end(&row.envelope, before.life.fence, ended, policy) =>
                {
                    self.ended.push(EndedRow {
                        seq,
                        uid,
                        ended: ended.clone(),
                        published_at: row.envelope.created_at,
                        key,
                        keep_until: rules::end_kept_until(&row.envelope, ended.at, policy),
                    });
                }
                _ => {
                    self.put.retain(|(s, _)| *s != seq);
                    self.dropped.retain(|(s, _)| *s != seq);
                    if before.life.fence > 0 {
                        self.forgotten.push(seq);
                    }
                }
            }
        }
    }

    /// Where it was and where it is now.
    fn place(&mut self, loaded: &Loaded, before: &Message) {
        let (Some(row), Some(spot), Some(known)) = (&loaded.row, &loaded.spot, &loaded.known)
        else {
            return;
        };
        let after = loaded.draft.message.as_ref();
        let (seq, uid, rank) = (loaded.seq, known.queue.uid, rank(row.envelope.priority));
        if let Some(after) = after.filter(|after| after.life == before.life) {
            if let (Place::Leased(_), Place::Leased(lease)) = (&before.place, &after.place) {
                self.changed.push((
                    seq,
                    spot.tid.clone(),
                    lease.expires_at,
                    after.completion.is_some(),
                ));
                self.stir.add_due(lease.expires_at);
                return;
            }
            if after.place == before.place {
                return;
            }
        }
        let table = match spot.table {
            Table::Delayed => LEAVE_DELAYED,
            Table::Ready => LEAVE_READY,
            Table::Lease => LEAVE_LEASE,
            Table::Dead => LEAVE_DEAD,
            Table::Discarded => LEAVE_DISCARDED,
        };
        self.leave.entry(table).or_default().push(spot.tid.clone());
        let Some(after) = after else { return };
        let life = after.life;
        let moved =
            |at: Millis| known.live_id != row.live_id || at != row.envelope.first_available_at;
        match &after.place {
            Place::Ready { available_at } => {
                self.ready.push((
                    seq,
                    known.live_id,
                    rank,
                    *available_at,
                    life,
                    moved(*available_at),
                ));
                self.put_back.push((uid.0, rank, *available_at));
                self.stir.add_ready(uid, 1);
            }
            Place::Delayed { due_at } => {
                self.delayed.push((seq, known.live_id, rank, *due_at, life));
                self.stir.add_due(*due_at);
            }
            Place::Leased(lease) => {
                self.lease
                    .push((seq, known.live_id, rank, lease.clone(), life));
                self.stir.add_due(lease.expires_at);
            }
            Place::Dead(dead) => {
                let envelope = &row.envelope;
                let was_alive = !matches!(before.place, Place::Dead(_) | Place::Discarded(_));
                if was_alive && life.redrives > 0 {
                    self.died_again.push((seq, bulk::is_failure(dead.reason)));
                }
                self.dead.push(DeadRow {
                    seq,
                    queue_id: known.dead_id,
                    rank,
                    dead: dead.clone(),
                    life,
                    published_at: envelope.created_at,
                    key: envelope.key.as_deref().map(|k| k.as_bytes().to_vec()),
                });
            }
            Place::Discarded(d) => {
                self.discarded
                    .push((seq, known.dead_id, rank, d.clone(), life));
            }
        }
    }

    /// Takes purged messages out for good. Their ends are recorded where somebody can ask about them: by request id, by key or
    /// by receipt. No number changes, since the gauges of a purged incarnation count as purged already.
    pub(super) fn clear(drafts: &mut Drafts, now: Millis) -> Self {
        drafts.retain(|_, loaded| loaded.purged.is_some());
        let mut handed_out = Vec::new();
        for loaded in drafts.values_mut() {
            loaded.before = loaded.purged.take();
            if loaded.before.as_ref().is_some_and(|m| m.life.fence > 0) {
                handed_out.push(loaded.seq);
            }
            if let Some(ended) = &mut loaded.draft.ended {
                // The trash has forgotten when it was: a lease that outlived its queue's purge.
                if ended.at == 0 {
                    ended.at = now;
                }
            }
        }
        let mut writes = Self::of(drafts, now);
        writes.ended.retain(|end| {
            let has_id = drafts
                .get(&end.seq)
                .and_then(|l| l.row.as_ref())
                .is_some_and(|r| r.digest.is_some());
            has_id || end.key.is_some() || handed_out.contains(&end.seq)
        });
        writes.uncompleted = handed_out;
        writes.deltas.clear();
        writes.stir = Stir::default();
        writes
    }
}

pub(super) const LEAVE_DELAYED: &str =
    "-- leave delayed\nDELETE FROM delayed WHERE ctid = ANY($1::text[]::tid[])";
pub(super) const LEAVE_READY: &str =
    "-- leave ready\nDELETE FROM ready WHERE ctid = ANY($1::text[]::tid[])";
pub(super) const LEAVE_LEASE: &str =
    "-- leave lease\nDELETE FROM lease WHERE ctid = ANY($1::text[]::tid[])";
pub(super) const LEAVE_DEAD: &str =
    "-- leave dead\nDELETE FROM dead WHERE ctid = ANY($1::text[]::tid[])";
pub(super) const LEAVE_DISCARDED: &str =
    "-- leave discarded\nDELETE FROM discarded WHERE ctid = ANY($1::text[]::tid[])";

pub(super) const ENTER_READY: &str = "-- enter ready
INSERT INTO ready (seq, queue_id, rank, available_at, fence, attempts, expirations, releases, redrives, moved)
SELECT * FROM unnest($1::bigint[], $2::int[], $3::smallint[], $4::bigint[], $5::int[], $6::int[], $7::int[], $8::int[],
    $9::int[], $10::boolean[])";

pub(super) const ENTER_DELAYED: &str = "-- enter delayed
INSERT INTO delayed (seq, queue_id, rank, due_at, fence, attempts, expirations, releases, redrives)
SELECT * FROM unnest($1::bigint[], $2::int[], $3::smallint[], $4::bigint[], $5::int[], $6::int[], $7::int[], $8::int[],
    $9::int[])";

pub(super) const ENTER_LEASE: &str = "-- enter lease
INSERT INTO lease (seq, queue_id, rank, available_at, fence, attempts, expirations, releases, redrives,
    leased_at, expires_at, check_at, bounds, special, worker)
SELECT seq, queue_id, rank, available_at, fence, attempts, expirations, releases, redrives,
    leased_at, expires_at, expires_at, bounds, false, worker
FROM unnest($1::bigint[], $2::int[], $3::smallint[], $4::bigint[], $5::int[], $6::int[], $7::int[], $8::int[], $9::int[],
    $10::bigint[], $11::bigint[], $12::smallint[], $13::text[])
    AS t(seq, queue_id, rank, available_at, fence, attempts, expirations, releases, redrives, leased_at, expires_at,
        bounds, worker)";

// A later end leaves check_at alone, so that the update touches no index. The new values are looked up in the arrays: a join
// could be planned as one that reads the whole table.
pub(super) const CHANGE_LEASE: &str = "-- change lease
UPDATE lease SET
    expires_at = ($2::bigint[])[array_position($1::bigint[], seq)],
    check_at = least(check_at, ($2::bigint[])[array_position($1::bigint[], seq)]),
    special = ($3::boolean[])[array_position($1::bigint[], seq)]
WHERE ctid = ANY($4::text[]::tid[])";

pub(super) const ENTER_DEAD: &str = "-- enter dead
INSERT INTO dead (seq, queue_id, rank, died_at, fence, attempts, expirations, releases, redrives,
    reason, bound, by_expiry, edited, error_code, group_id, published_at, key)
SELECT * FROM unnest($1::bigint[], $2::int[], $3::smallint[], $4::bigint[], $5::int[], $6::int[], $7::int[], $8::int[],
    $9::int[], $10::smallint[], $11::smallint[], $12::boolean[], $13::boolean[], $14::text[], $15::bigint[], $16::bigint[],
    $17::bytea[])";

pub(super) const ENTER_DISCARDED: &str = "-- enter discarded
INSERT INTO discarded (seq, queue_id, rank, discarded_at, fence, attempts, expirations, releases, redrives,
    reason, bound, by_expiry, edited, error_code, group_id, died_at, payload_kept)
SELECT * FROM unnest($1::bigint[], $2::int[], $3::smallint[], $4::bigint[], $5::int[], $6::int[], $7::int[], $8::int[],
    $9::int[], $10::smallint[], $11::smallint[], $12::boolean[], $13::boolean[], $14::text[], $15::bigint[], $16::bigint[],
    $17::boolean[])";

// A redriven message that dies is watched no more; how it died says whether it counts.
pub(super) const DIED_AGAIN: &str = "-- died again
WITH r AS (DELETE FROM redriven WHERE seq = ANY($1::bigint[]) RETURNING seq, redrive_id, place)
INSERT INTO redrive_failure (redrive_id, place)
SELECT redrive_id, place FROM r WHERE ($2::boolean[])[array_position($1::bigint[], seq)] ON CONFLICT DO NOTHING";

pub(super) const PUT_DELIVERY: &str = "-- put delivery
INSERT INTO delivery (seq, fence, attempt, leased_at, ended_at, cause, late, truncated, worker, code, detail)
SELECT * FROM unnest($1::bigint[], $2::int[], $3::int[], $4::bigint[], $5::bigint[], $6::smallint[], $7::boolean[],
    $8::boolean[], $9::text[], $10::text[], $11::text[])
ON CONFLICT (seq, fence) DO UPDATE SET attempt = excluded.attempt, leased_at = excluded.leased_at,
    ended_at = excluded.ended_at, cause = excluded.cause, late = excluded.late, truncated = excluded.truncated,
    worker = excluded.worker, code = excluded.code, detail = excluded.detail";

pub(super) const DROP_DELIVERY: &str = "-- drop delivery
DELETE FROM delivery WHERE ctid = ANY(ARRAY(
    SELECT d.tid FROM unnest($1::bigint[], $2::int[]) AS w(seq, fence)
    CROSS JOIN LATERAL (SELECT ctid AS tid FROM delivery d WHERE d.seq = w.seq AND d.fence = w.fence LIMIT 1) d))";

pub(super) const FORGET_HISTORY: &str =
    "-- forget history\nDELETE FROM delivery WHERE seq = ANY($1::bigint[])";

// Two completions of one message can only come in one after the other: the second finds a row that its snapshot did not show.
pub(super) const COMPLETE: &str = "-- complete
INSERT INTO completion (seq, fence, outcome) SELECT * FROM unnest($1::bigint[], $2::int[], $3::text[])
ON CONFLICT (seq) DO NOTHING";

pub(super) const UNCOMPLETE: &str =
    "-- uncomplete\nDELETE FROM completion WHERE seq = ANY($1::bigint[])";

pub(super) const DELETE_MESSAGE: &str =
    "-- delete message\nDELETE FROM message WHERE seq = ANY($1::bigint[])";

pub(super) const REMEMBER_END: &str = "-- remember end
INSERT INTO ended (seq, uid, how, at, published_at, fence, key, outcome, keep_until)
SELECT * FROM unnest($1::bigint[], $2::int[], $3::smallint[], $4::bigint[], $5::bigint[], $6::int[], $7::bytea[],
    $8::text[], $9::bigint[])
ON CONFLICT (seq) DO UPDATE SET how = excluded.how, at = excluded.at, fence = excluded.fence, outcome = excluded.outcome,
    keep_until = excluded.keep_until";

pub(super) const ADD_KEY: &str = "-- add key
INSERT INTO keyed (seq, uid, key) SELECT * FROM unnest($1::bigint[], $2::int[], $3::bytea[]) ON CONFLICT DO NOTHING";

pub(super) const DROP_KEY: &str = "-- drop key
DELETE FROM keyed WHERE ctid = ANY(ARRAY(
    SELECT k.tid FROM unnest($1::bigint[], $2::int[], $3::bytea[]) AS w(seq, uid, key)
    CROSS JOIN LATERAL (SELECT ctid AS tid FROM keyed k WHERE k.uid = w.uid AND k.key = w.key AND k.seq = w.seq LIMIT 1) k))";

pub(super) const ADD_EXPIRING: &str = "-- add expiring
INSERT INTO expiring (seq, check_at) SELECT * FROM unnest($1::bigint[], $2::bigint[])
ON CONFLICT (seq) DO UPDATE SET check_at = excluded.check_at";

pub(super) const DROP_EXPIRING: &str =
    "-- drop expiring\nDELETE FROM expiring WHERE seq = ANY($1::bigint[])";

pub(super) const NEW_EXPIRY: &str = "-- new expiry
UPDATE message SET expires_at = ($2::bigint[])[array_position($1::bigint[], seq)] WHERE seq = ANY($1::bigint[])";

// The rows are locked in key order, since a publish that replaces a free key may want the same ones.
pub(super) const KEEP_KEY: &str = "-- keep key
UPDATE unique_key SET keep_until = ($4::bigint[])[array_position($1::bigint[], seq)] WHERE ctid = ANY(ARRAY(
    SELECT k.tid FROM (SELECT * FROM unnest($1::bigint[], $2::int[], $3::bytea[]) AS t(seq, uid, key) ORDER BY uid, key) w
    CROSS JOIN LATERAL (SELECT ctid AS tid FROM unique_key k WHERE k.uid = w.uid AND k.key = w.key AND k.seq = w.seq
        LIMIT 1 FOR UPDATE) k))";

pub(super) const KEEP_ID: &str = "-- keep id
UPDATE dedupe SET kept_from = ($4::bigint[])[array_position($1::bigint[], seq)] WHERE ctid = ANY(ARRAY(
    SELECT d.tid FROM (SELECT * FROM unnest($1::bigint[], $2::int[], $3::bytea[]) AS t(seq, uid, digest)
        ORDER BY uid, digest) w
    CROSS JOIN LATERAL (SELECT ctid AS tid FROM dedupe d WHERE d.uid = w.uid AND d.digest = w.digest AND d.seq = w.seq
        LIMIT 1 FOR UPDATE) d))";

pub(super) const COUNT: &str = "-- count
INSERT INTO counter AS c (queue_id, uid, stripe, epoch, delayed, ready, leased, dead, accepted, reopened, acked, discarded,
    purged, dead_letter_expired, delivered, redriven)
SELECT t.queue_id, t.uid, $15::smallint, ($16::bigint / 60000)::int, delayed, ready, leased, dead, accepted, reopened,
    acked, discarded, purged, dead_letter_expired, delivered, redriven
FROM unnest($1::int[], $2::int[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[],
    $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[])
    AS t(queue_id, uid, delayed, ready, leased, dead, accepted, reopened, acked, discarded, purged, dead_letter_expired,
        delivered, redriven)
ORDER BY t.queue_id
ON CONFLICT (queue_id, stripe, epoch) DO UPDATE SET delayed = c.delayed + excluded.delayed, ready = c.ready + excluded.ready,
    leased = c.leased + excluded.leased, dead = c.dead + excluded.dead, accepted = c.accepted + excluded.accepted,
    reopened = c.reopened + excluded.reopened, acked = c.acked + excluded.acked,
    discarded = c.discarded + excluded.discarded, purged = c.purged + excluded.purged,
    dead_letter_expired = c.dead_letter_expired + excluded.dead_letter_expired,
    delivered = c.delivered + excluded.delivered, redriven = c.redriven + excluded.redriven";

fn column<'a, T, U>(rows: &'a [T], pick: impl Fn(&'a T) -> U) -> Vec<U> {
    rows.iter().map(pick).collect()
}

fn all(result: &PgQueryResult, expected: usize, what: &str) -> Result<(), Fault> {
    if result.rows_affected() == expected as u64 {
        Ok(())
    } else {
        Err(Fault::moved(what))
    }
}

/// Adds to the counters; the last write of its transaction.
pub(super) async fn count(
    connection: &mut PgConnection,
    deltas: &Deltas,
    stripe: i16,
    now: Millis,
) -> Result<(), Fault> {
    if deltas.is_empty() {
        return Ok(());
    }
    let rows: Vec<(i32, i32, Counts)> = deltas
        .iter()
        .map(|((id, uid), counts)| (*id, *uid, *counts))
        .collect();
    sqlx::query(COUNT)
        .bind(column(&rows, |r| r.0))
        .bind(column(&rows, |r| r.1))
        .bind(column(&rows, |r| r.2.delayed))
        .bind(column(&rows, |r| r.2.ready))
        .bind(column(&rows, |r| r.2.leased))
        .bind(column(&rows, |r| r.2.dead))
        .bind(column(&rows, |r| r.2.accepted))
        .bind(column(&rows, |r| r.2.reopened))
        .bind(column(&rows, |r| r.2.acked))
        .bind(column(&rows, |r| r.2.discarded))
        .bind(column(&rows, |r| r.2.purged))
        .bind(column(&rows, |r| r.2.dead_letter_expired))
        .bind(column(&rows, |r| r.2.delivered))
        .bind(column(&rows, |r| r.2.redriven))
        .bind(stripe)
        .bind(now)
        .execute(connection)
        .await?;
    Ok(())
}

impl Postgres {
    /// Writes the differences of drafts. The transaction must be the one that loaded them.
    pub(super) async fn write(
        &self,
        connection: &mut PgConnection,
        writes: &Writes,
        stripe: i16,
        now: Millis,
    ) -> Result<(), Fault> {
        let w = writes;
        for (sql, tids) in &w.leave {
            let result = sqlx::query(*sql)
                .bind(tids)
                .execute(&mut *connection)
                .await?;
            all(&result, tids.len(), "a message")?;
        }
        enter_states(connection, w).await?;
        if !w.changed.is_empty() {
            let result = sqlx::query(CHANGE_LEASE)
                .bind(column(&w.changed, |r| r.0))
                .bind(column(&w.changed, |r| r.2))
                .bind(column(&w.changed, |r| r.3))
                .bind(column(&w.changed, |r| r.1.clone()))
                .execute(&mut *connection)
                .await?;
            all(&result, w.changed.len(), "a lease")?;
        }
        records(connection, w).await?;
        if !w.gone.is_empty() {
            let result = sqlx::query(DELETE_MESSAGE)
                .bind(&w.gone)
                .execute(&mut *connection)
                .await?;
            all(&result, w.gone.len(), "a message")?;
        }
        if !w.unrevised.is_empty() {
            sqlx::query(FORGET_REVISIONS)
                .bind(&w.unrevised)
                .execute(&mut *connection)
                .await?;
        }
        names(connection, w).await?;
        count(connection, &w.deltas, stripe, now).await?;
        for (uid, rank, available_at) in &w.put_back {
            self.floors.lower(QueueUid(*uid), *rank, *available_at);
        }
        if let Some(due) = w.stir.next_due {
            self.due.note(due);
        }
        Ok(())
    }
}

async fn enter_states(connection: &mut PgConnection, w: &Writes) -> Result<(), Fault> {
    if !w.ready.is_empty() {
        let rows = &w.ready;
        sqlx::query(ENTER_READY)
            .bind(column(rows, |r| r.0))
            .bind(column(rows, |r| r.1))
            .bind(column(rows, |r| r.2))
            .bind(column(rows, |r| r.3))
            .bind(column(rows, |r| r.4.fence))
            .bind(column(rows, |r| r.4.attempts))
            .bind(column(rows, |r| r.4.expirations))
            .bind(column(rows, |r| r.4.releases))
            .bind(column(rows, |r| r.4.redrives))
            .bind(column(rows, |r| r.5))
            .execute(&mut *connection)
            .await?;
    }
    if !w.delayed.is_empty() {
        let rows = &w.delayed;
        sqlx::query(ENTER_DELAYED)
            .bind(column(rows, |r| r.0))
            .bind(column(rows, |r| r.1))
            .bind(column(rows, |r| r.2))
            .bind(column(rows, |r| r.3))
            .bind(column(rows, |r| r.4.fence))
            .bind(column(rows, |r| r.4.attempts))
            .bind(column(rows, |r| r.4.expirations))
            .bind(column(rows, |r| r.4.releases))
            .bind(column(rows, |r| r.4.redrives))
            .execute(&mut *connection)
            .await?;
    }
    if !w.lease.is_empty() {
        let rows = &w.lease;
        sqlx::query(ENTER_LEASE)
            .bind(column(rows, |r| r.0))
            .bind(column(rows, |r| r.1))
            .bind(column(rows, |r| r.2))
            .bind(column(rows, |r| r.3.available_at))
            .bind(column(rows, |r| r.4.fence))
            .bind(column(rows, |r| r.4.attempts))
            .bind(column(rows, |r| r.4.expirations))
            .bind(column(rows, |r| r.4.releases))
            .bind(column(rows, |r| r.4.redrives))
            .bind(column(rows, |r| r.3.leased_at))
            .bind(column(rows, |r| r.3.expires_at))
            .bind(column(rows, |r| r.3.bounds.bits()))
            .bind(column(rows, |r| r.3.worker.as_deref().map(text)))
            .execute(&mut *connection)
            .await?;
    }
    if !w.dead.is_empty() {
        let rows = &w.dead;
        sqlx::query(ENTER_DEAD)
            .bind(column(rows, |r| r.seq))
            .bind(column(rows, |r| r.queue_id))
            .bind(column(rows, |r| r.rank))
            .bind(column(rows, |r| r.dead.died_at))
            .bind(column(rows, |r| r.life.fence))
            .bind(column(rows, |r| r.life.attempts))
            .bind(column(rows, |r| r.life.expirations))
            .bind(column(rows, |r| r.life.releases))
            .bind(column(rows, |r| r.life.redrives))
            .bind(column(rows, |r| r.dead.reason.code()))
            .bind(column(rows, |r| {
                r.dead.limit.map(crate::model::Limit::code)
            }))
            .bind(column(rows, |r| r.dead.by_expiry))
            .bind(column(rows, |r| r.dead.edited))
            .bind(column(rows, |r| r.dead.error_code.as_deref().map(text)))
            .bind(column(rows, |r| r.dead.group))
            .bind(column(rows, |r| r.published_at))
            .bind(column(rows, |r| r.key.clone()))
            .execute(&mut *connection)
            .await?;
    }
    if !w.died_again.is_empty() {
        sqlx::query(DIED_AGAIN)
            .bind(column(&w.died_again, |r| r.0))
            .bind(column(&w.died_again, |r| r.1))
            .execute(&mut *connection)
            .await?;
    }
    if !w.discarded.is_empty() {
        let rows = &w.discarded;
        sqlx::query(ENTER_DISCARDED)
            .bind(column(rows, |r| r.0))
            .bind(column(rows, |r| r.1))
            .bind(column(rows, |r| r.2))
            .bind(column(rows, |r| r.3.discarded_at))
            .bind(column(rows, |r| r.4.fence))
            .bind(column(rows, |r| r.4.attempts))
            .bind(column(rows, |r| r.4.expirations))
            .bind(column(rows, |r| r.4.releases))
            .bind(column(rows, |r| r.4.redrives))
            .bind(column(rows, |r| r.3.dead.reason.code()))
            .bind(column(rows, |r| {
                r.3.dead.limit.map(crate::model::Limit::code)
            }))
            .bind(column(rows, |r| r.3.dead.by_expiry))
            .bind(column(rows, |r| r.3.dead.edited))
            .bind(column(rows, |r| r.3.dead.error_code.as_deref().map(text)))
            .bind(column(rows, |r| r.3.dead.group))
            .bind(column(rows, |r| r.3.dead.died_at))
            .bind(column(rows, |r| r.3.payload_kept))
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}

/// History, completions and ends.
async fn records(connection: &mut PgConnection, w: &Writes) -> Result<(), Fault> {
    if !w.put.is_empty() {
        let rows = &w.put;
        sqlx::query(PUT_DELIVERY)
            .bind(column(rows, |r| r.0))
            .bind(column(rows, |r| r.1.fence))
            .bind(column(rows, |r| r.1.attempt))
            .bind(column(rows, |r| r.1.leased_at))
            .bind(column(rows, |r| r.1.ended_at))
            .bind(column(rows, |r| r.1.cause.code()))
            .bind(column(rows, |r| r.1.late))
            .bind(column(rows, |r| r.1.failure.truncated))
            .bind(column(rows, |r| r.1.worker.as_deref().map(text)))
            .bind(column(rows, |r| r.1.failure.code.as_deref().map(text)))
            .bind(column(rows, |r| r.1.failure.detail.as_deref().map(text)))
            .execute(&mut *connection)
            .await?;
    }
    if !w.dropped.is_empty() {
        sqlx::query(DROP_DELIVERY)
            .bind(column(&w.dropped, |r| r.0))
            .bind(column(&w.dropped, |r| r.1))
            .execute(&mut *connection)
            .await?;
    }
    if !w.forgotten.is_empty() {
        sqlx::query(FORGET_HISTORY)
            .bind(&w.forgotten)
            .execute(&mut *connection)
            .await?;
    }
    if !w.uncompleted.is_empty() {
        sqlx::query(UNCOMPLETE)
            .bind(&w.uncompleted)
            .execute(&mut *connection)
            .await?;
    }
    if !w.completed.is_empty() {
        let result = sqlx::query(COMPLETE)
            .bind(column(&w.completed, |r| r.0))
            .bind(column(&w.completed, |r| r.1))
            .bind(column(&w.completed, |r| r.2.as_deref().map(text)))
            .execute(&mut *connection)
            .await?;
        all(&result, w.completed.len(), "a completion")?;
    }
    if !w.ended.is_empty() {
        let rows = &w.ended;
        sqlx::query(REMEMBER_END)
            .bind(column(rows, |r| r.seq))
            .bind(column(rows, |r| r.uid))
            .bind(column(rows, |r| r.ended.end.code()))
            .bind(column(rows, |r| r.ended.at))
            .bind(column(rows, |r| r.published_at))
            .bind(column(rows, |r| r.ended.fence))
            .bind(column(rows, |r| r.key.clone()))
            .bind(column(rows, |r| r.ended.outcome.as_deref().map(text)))
            .bind(column(rows, |r| r.keep_until))
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}

/// Search by key, life spans, and how long ids and keys stay taken.
async fn names(connection: &mut PgConnection, w: &Writes) -> Result<(), Fault> {
    for (sql, rows) in [(DROP_KEY, &w.unkeyed), (ADD_KEY, &w.keyed)] {
        if !rows.is_empty() {
            sqlx::query(sql)
                .bind(column(rows, |r| r.0))
                .bind(column(rows, |r| r.1))
                .bind(column(rows, |r| r.2.clone()))
                .execute(&mut *connection)
                .await?;
        }
    }
    if !w.unexpiring.is_empty() {
        sqlx::query(DROP_EXPIRING)
            .bind(&w.unexpiring)
            .execute(&mut *connection)
            .await?;
    }
    if !w.expiring.is_empty() {
        sqlx::query(ADD_EXPIRING)
            .bind(column(&w.expiring, |r| r.0))
            .bind(column(&w.expiring, |r| r.1))
            .execute(&mut *connection)
            .await?;
    }
    if !w.new_expiry.is_empty() {
        sqlx::query(NEW_EXPIRY)
            .bind(column(&w.new_expiry, |r| r.0))
            .bind(column(&w.new_expiry, |r| r.1))
            .execute(&mut *connection)
            .await?;
    }
    if !w.keep_id.is_empty() {
        sqlx::query(KEEP_ID)
            .bind(column(&w.keep_id, |r| r.0))
            .bind(column(&w.keep_id, |r| r.1))
            .bind(column(&w.keep_id, |r| r.2.clone()))
            .bind(column(&w.keep_id, |r| r.3))
            .execute(&mut *connection)
            .await?;
    }
    if !w.keep_key.is_empty() {
        sqlx::query(KEEP_KEY)
            .bind(column(&w.keep_key, |r| r.0))
            .bind(column(&w.keep_key, |r| r.1))
            .bind(column(&w.keep_key, |r| r.2.clone()))
            .bind(column(&w.keep_key, |r| r.3))
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}
