//! What operators do: one transaction with its audit row and its remembered answer.

use super::rows::failed;
use super::writer::{Cycle, QueueRow, Writer};
use crate::backend::{Answer, Call, Expect, Operated, Operation, OperationRefused};
use crate::error::{Result, StoreError};
use crate::model::{Counts, MessageId, Millis, OPERATION_MEMORY_MS, Policy, QueueUid, State};
use crate::rules;
use crate::rules::operate::{Act, Acted};
use rusqlite::{OptionalExtension, params};
use std::sync::Arc;

impl Writer {
    pub(super) fn operate(
        &mut self,
        call: &Call,
        operation: &Operation,
        now: Option<Millis>,
    ) -> Result<Operated> {
        let now = self.catch_up(now)?;
        let ((answer, repeated), stir, _) = self.transact(Some(now), |cycle| {
            if let Some(answer) = remembered(cycle, call)? {
                return Ok((answer, true));
            }
            let answer = perform(cycle, call, operation)?;
            if !matches!(answer, Answer::Refused(_)) {
                remember(cycle, call, &answer)?;
            }
            Ok((answer, false))
        })?;
        Ok(Operated {
            answer,
            repeated,
            stir,
        })
    }
}

fn remembered(cycle: &Cycle<'_>, call: &Call) -> Result<Option<Answer>> {
    let Some(id) = call.request_id.as_deref() else {
        return Ok(None);
    };
    let found: Option<(i64, String)> = cycle
        .sql
        .prepare_cached(
            "SELECT fingerprint, answer FROM operation WHERE request_id = ?1 AND at > ?2",
        )
        .and_then(|mut s| {
            s.query_row(params![id, cycle.now - OPERATION_MEMORY_MS], |r| {
                Ok((r.get(0)?, r.get(1)?))
            })
            .optional()
        })
        .map_err(failed)?;
    let Some((fingerprint, answer)) = found else {
        return Ok(None);
    };
    if fingerprint != call.fingerprint {
        return Ok(Some(Answer::Refused(OperationRefused::RequestIdConflict)));
    }
    serde_json::from_str(&answer)
        .map(Some)
        .map_err(StoreError::internal)
}

fn remember(cycle: &Cycle<'_>, call: &Call, answer: &Answer) -> Result<()> {
    let Some(id) = call.request_id.as_deref() else {
        return Ok(());
    };
    let text = serde_json::to_string(answer).map_err(StoreError::internal)?;
    let sql = "INSERT OR REPLACE INTO operation (request_id, fingerprint, answer, at) VALUES (?, ?, ?, ?)";
    let values = params![id, call.fingerprint, text, cycle.now];
    cycle
        .sql
        .prepare_cached(sql)
        .and_then(|mut s| s.execute(values))
        .map(|_| ())
        .map_err(failed)
}

/// One audit row.
pub(super) fn audit(
    cycle: &Cycle<'_>,
    actor: &str,
    action: &str,
    queue: Option<QueueUid>,
    id: Option<MessageId>,
    justification: Option<&str>,
) -> Result<()> {
    let sql =
        "INSERT INTO audit (at, actor, action, uid, seq, justification) VALUES (?, ?, ?, ?, ?, ?)";
    let values = params![
        cycle.now,
        actor,
        action,
        queue.map(|q| q.0),
        id.map(|i| i.0),
        justification
    ];
    cycle
        .sql
        .prepare_cached(sql)
        .and_then(|mut s| s.execute(values))
        .map(|_| ())
        .map_err(failed)
}

fn perform(cycle: &mut Cycle<'_>, call: &Call, operation: &Operation) -> Result<Answer> {
    match operation {
        Operation::Act { queue, id, act } => one_message(cycle, call, *queue, *id, act),
        Operation::Edit { .. }
        | Operation::UndoEdit { .. }
        | Operation::Select { .. }
        | Operation::StartRedrive(_)
        | Operation::SteerRedrive { .. } => Err(StoreError::internal("not yet")),
        Operation::Purge {
            queue,
            dead_letters,
        } => match present(cycle, *queue) {
            Some(row) => {
                let purged = purge(cycle, row, *dead_letters, |_| {})?;
                audit(
                    cycle,
                    &call.actor,
                    "purge",
                    Some(*queue),
                    None,
                    call.justification.as_deref(),
                )?;
                Ok(Answer::Purged { purged })
            }
            None => Ok(Answer::Refused(OperationRefused::QueueNotFound)),
        },
        Operation::Pause { queue, paused } => match present(cycle, *queue) {
            Some(mut row) => {
                if row.paused != *paused {
                    row.paused = *paused;
                    row.version += 1;
                    save(cycle, row)?;
                    let action = if *paused { "pause" } else { "resume" };
                    audit(
                        cycle,
                        &call.actor,
                        action,
                        Some(*queue),
                        None,
                        call.justification.as_deref(),
                    )?;
                }
                Ok(Answer::Queue {
                    uid: queue.0,
                    created: false,
                })
            }
            None => Ok(Answer::Refused(OperationRefused::QueueNotFound)),
        },
        Operation::PutQueue {
            name,
            policy,
            expect,
        } => put_queue(cycle, call, name, policy, *expect),
        Operation::DeleteQueue {
            queue,
            force,
            version,
        } => delete_queue(cycle, call, *queue, *force, *version),
    }
}

fn present(cycle: &Cycle<'_>, uid: QueueUid) -> Option<QueueRow> {
    cycle.queue(uid).filter(|q| !q.deleted)
}

fn one_message(
    cycle: &mut Cycle<'_>,
    call: &Call,
    queue: Option<QueueUid>,
    id: MessageId,
    act: &Act,
) -> Result<Answer> {
    let not_found = Answer::Refused(OperationRefused::MessageNotFound);
    let Some(mut loaded) = cycle.load(id)? else {
        return Ok(not_found);
    };
    if queue.is_some_and(|q| q != loaded.queue) {
        return Ok(not_found);
    }
    let Some(row) = cycle.queue(loaded.queue) else {
        return Ok(not_found);
    };
    rules::time::pass(&mut loaded.draft, &row.policy, cycle.now);
    let acted = rules::operate::act(&mut loaded.draft, act, &row.policy, cycle.now);
    cycle.write(&loaded)?;
    let acted = match acted {
        Ok(acted) => acted,
        Err(refused) => return Ok(Answer::Refused(refused.into())),
    };
    audit(
        cycle,
        &call.actor,
        act.as_str(),
        Some(loaded.queue),
        Some(id),
        call.justification.as_deref(),
    )?;
    let state = loaded
        .draft
        .message
        .as_ref()
        .map_or(State::Ended, rules::Message::state);
    Ok(Answer::Acted {
        id: id.0,
        state: state.code(),
        acked_superseded: acted == Acted::AckedSuperseded,
    })
}

/// Gives the queue new incarnations: everything of the old ones is gone at once, at any depth, and cleared later.
fn purge(
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

fn put_queue(
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
                    version: row.version + i64::from(*row.policy != *policy),
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
    let action = if created { "create_queue" } else { "put_queue" };
    audit(
        cycle,
        &call.actor,
        action,
        Some(uid),
        None,
        call.justification.as_deref(),
    )?;
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

fn delete_queue(
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
    let purged = purge(cycle, row, true, |row| row.deleted = true)?;
    audit(
        cycle,
        &call.actor,
        "delete_queue",
        Some(uid),
        None,
        call.justification.as_deref(),
    )?;
    Ok(Answer::Deleted { purged })
}
