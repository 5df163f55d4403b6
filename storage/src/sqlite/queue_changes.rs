//! Changes of queues: create, change, pause, purge, delete.

use super::audit::{self, On};
use super::operate::present;
use super::rows::failed;
use super::writer::{Cycle, QueueRow};
use crate::backend::{Answer, Call, Expect, OperationRefused};
use crate::error::{Result, StoreError};
use crate::model::{Counts, Policy, QueueUid};
use crate::rules::trail::Trail;
use rusqlite::{OptionalExtension, params};
use std::sync::Arc;

/// Takes out everything that waits or is leased, and the dead letters where wanted.
pub(super) fn purge(
    cycle: &mut Cycle<'_>,
    call: &Call,
    uid: QueueUid,
    dead_letters: bool,
) -> Result<Answer> {
    let Some(row) = present(cycle, uid) else {
        return Ok(Answer::Refused(OperationRefused::QueueNotFound));
    };
    let purged = renew(cycle, row, dead_letters, |_| {})?;
    let trail = Trail::purged(purged, dead_letters);
    audit::write(cycle, call, "purge", On::queue(uid), &trail)?;
    Ok(Answer::Purged { purged })
}

/// Stops or starts hand-outs.
pub(super) fn pause(
    cycle: &mut Cycle<'_>,
    call: &Call,
    uid: QueueUid,
    paused: bool,
) -> Result<Answer> {
    let Some(mut row) = present(cycle, uid) else {
        return Ok(Answer::Refused(OperationRefused::QueueNotFound));
    };
    let before = std::mem::replace(&mut row.paused, paused);
    if before != paused {
        row.version += 1;
        save(cycle, row)?;
        let word = if paused { "pause" } else { "resume" };
        let trail = Trail::paused(before, paused);
        audit::write(cycle, call, word, On::queue(uid), &trail)?;
    }
    Ok(Answer::Queue {
        uid: uid.0,
        created: false,
    })
}

/// Gives the queue new incarnations: everything of the old ones is gone at once, at any depth, and cleared later.
fn renew(
    cycle: &mut Cycle<'_>,
    mut row: QueueRow,
    dead_letters: bool,
    change: impl FnOnce(&mut QueueRow),
) -> Result<i64> {
    let live = cycle.counts_of(row.live_id);
    let mut purged = live.delayed + live.ready + live.leased;
    discard_incarnation(cycle, row.live_id, row.uid, 0)?;
    row.live_id = new_incarnation(cycle, row.uid);
    if dead_letters {
        purged += cycle.counts_of(row.dead_id).dead;
        discard_incarnation(cycle, row.dead_id, row.uid, 1)?;
        row.dead_id = new_incarnation(cycle, row.uid);
    }
    row.version += 1;
    change(&mut row);
    save(cycle, row)?;
    Ok(purged)
}

fn discard_incarnation(cycle: &Cycle<'_>, id: i64, uid: QueueUid, kind: i64) -> Result<()> {
    let sql = "INSERT INTO trash (id, uid, kind, since) VALUES (?, ?, ?, ?)";
    let values = params![id, uid.0, kind, cycle.now];
    cycle
        .sql
        .prepare_cached(sql)
        .and_then(|mut s| s.execute(values))
        .map(|_| ())
        .map_err(failed)
}

/// A number that no incarnation had before: every one of them has its row of numbers.
fn new_incarnation(cycle: &mut Cycle<'_>, uid: QueueUid) -> i64 {
    let id = cycle.highest_incarnation() + 1;
    cycle.count(id, uid, &Counts::default());
    id
}

fn save(cycle: &mut Cycle<'_>, row: QueueRow) -> Result<()> {
    const SQL: &str = "-- save queue
        INSERT INTO queue (uid, name, version, paused, deleted, live_id, dead_id, policy, created_at)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
        ON CONFLICT (uid) DO UPDATE SET version = ?3, paused = ?4, deleted = ?5, live_id = ?6, dead_id = ?7, policy = ?8,
            created_at = ?9";
    let policy = serde_json::to_string(&*row.policy).map_err(StoreError::internal)?;
    let values = params![
        row.uid.0,
        &*row.name,
        row.version,
        row.paused,
        row.deleted,
        row.live_id,
        row.dead_id,
        policy,
        row.created_at
    ];
    cycle
        .sql
        .prepare_cached(SQL)
        .and_then(|mut s| s.execute(values))
        .map_err(failed)?;
    cycle.changed.push(row);
    Ok(())
}

/// Creates a queue or replaces its policy.
pub(super) fn put(
    cycle: &mut Cycle<'_>,
    call: &Call,
    name: &Arc<str>,
    policy: &Policy,
    expect: Expect,
) -> Result<Answer> {
    let existing = cycle
        .known
        .names
        .get(name)
        .and_then(|uid| cycle.queue(*uid));
    let there = existing.as_ref().filter(|row| !row.deleted);
    let same = there.is_some_and(|row| *row.policy == *policy);
    let trail = Trail::policy(there.map(|row| &*row.policy), policy);
    let (row, created) = match existing {
        Some(row) if !row.deleted => {
            match expect {
                Expect::Absent => {
                    return Ok(Answer::Queue {
                        uid: row.uid.0,
                        created: false,
                    });
                }
                Expect::Version(version) if version != row.version => {
                    return Ok(Answer::Refused(OperationRefused::VersionMismatch));
                }
                Expect::Anything | Expect::Version(_) => {}
            }
            if policy.unique_key && !row.policy.unique_key && !adopt_keys(cycle, row.uid)? {
                return Ok(Answer::Refused(OperationRefused::KeysNotUnique));
            }
            (
                QueueRow {
                    policy: Arc::new(policy.clone()),
                    version: row.version + i64::from(!same),
                    ..row
                },
                false,
            )
        }
        _ if matches!(expect, Expect::Version(_)) => {
            return Ok(Answer::Refused(OperationRefused::VersionMismatch));
        }
        // The name was used before: its request ids, keys and totals are still its own.
        Some(row) => {
            let version = row.version + 1;
            let policy = Arc::new(policy.clone());
            (
                QueueRow {
                    policy,
                    version,
                    deleted: false,
                    paused: false,
                    created_at: cycle.now,
                    ..row
                },
                true,
            )
        }
        None => {
            let uid = QueueUid(cycle.known.queues.keys().map(|q| q.0).max().unwrap_or(0) + 1);
            let row = QueueRow {
                uid,
                name: name.clone(),
                version: 1,
                paused: false,
                deleted: false,
                live_id: new_incarnation(cycle, uid),
                dead_id: new_incarnation(cycle, uid),
                policy: Arc::new(policy.clone()),
                created_at: cycle.now,
            };
            (row, true)
        }
    };
    let uid = row.uid;
    save(cycle, row)?;
    if !same {
        let word = if created { "create_queue" } else { "put_queue" };
        audit::write(cycle, call, word, On::queue(uid), &trail)?;
    }
    Ok(Answer::Queue {
        uid: uid.0,
        created,
    })
}

/// The messages of a queue that have a key and are there; discarded ones, and those that a purge took, are not.
macro_rules! live_keys {
    () => {
        "FROM keyed k CROSS JOIN message m ON m.seq = k.seq CROSS JOIN queue q ON q.uid = k.uid WHERE k.uid = ? AND (
            EXISTS (SELECT 1 FROM lease WHERE seq = k.seq AND queue_id = q.live_id)
            OR EXISTS (SELECT 1 FROM dead WHERE seq = k.seq AND queue_id = q.dead_id)
            OR EXISTS (SELECT 1 FROM ready WHERE queue_id = q.live_id AND rank = m.rank AND available_at = m.available_at
                AND seq = k.seq)
            OR EXISTS (SELECT 1 FROM ready WHERE seq = k.seq AND moved = 1 AND queue_id = q.live_id)
            OR EXISTS (SELECT 1 FROM delayed WHERE due_at = m.available_at AND seq = k.seq AND queue_id = q.live_id)
            OR EXISTS (SELECT 1 FROM delayed WHERE seq = k.seq AND moved = 1 AND queue_id = q.live_id))"
    };
}

/// Makes the live keys of a queue its unique ones. `false`: one of them is there twice.
fn adopt_keys(cycle: &Cycle<'_>, uid: QueueUid) -> Result<bool> {
    const REPEATED: &str = concat!(
        "-- unique_key on: is a live key repeated
        SELECT 1 ",
        live_keys!(),
        " GROUP BY k.key HAVING count(*) > 1 LIMIT 1"
    );
    const ADOPT: &str = concat!(
        "-- unique_key on: take the live keys over
        INSERT INTO unique_key (uid, key, seq, fingerprint, keep_until)
        SELECT k.uid, k.key, k.seq, m.fingerprint, NULL ",
        live_keys!(),
        "
        ON CONFLICT (uid, key) DO UPDATE SET seq = excluded.seq, fingerprint = excluded.fingerprint, keep_until = NULL"
    );
    let repeated = cycle
        .sql
        .query_row(REPEATED, [uid.0], |_| Ok(()))
        .optional()
        .map_err(failed)?;
    if repeated.is_some() {
        return Ok(false);
    }
    cycle
        .sql
        .execute(ADOPT, [uid.0])
        .map(|_| true)
        .map_err(failed)
}

/// Deletes a queue; its request ids, keys and totals stay with the name.
pub(super) fn delete(
    cycle: &mut Cycle<'_>,
    call: &Call,
    uid: QueueUid,
    force: bool,
    version: Option<i64>,
) -> Result<Answer> {
    let Some(row) = present(cycle, uid) else {
        return Ok(Answer::Refused(OperationRefused::QueueNotFound));
    };
    if version.is_some_and(|v| v != row.version) {
        return Ok(Answer::Refused(OperationRefused::VersionMismatch));
    }
    let live = cycle.counts_of(row.live_id);
    let holds = live.delayed + live.ready + live.leased + cycle.counts_of(row.dead_id).dead;
    if holds > 0 && !force {
        return Ok(Answer::Refused(OperationRefused::QueueNotEmpty));
    }
    let purged = renew(cycle, row, true, |row| row.deleted = true)?;
    let trail = Trail::purged(purged, true);
    audit::write(cycle, call, "delete_queue", On::queue(uid), &trail)?;
    Ok(Answer::Deleted { purged })
}
