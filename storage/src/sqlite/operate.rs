//! What operators do: one transaction with its audit row and its remembered answer.

use super::audit::{self, On};
use super::drafts::Loaded;
use super::request_ids::Taken;
use super::rows::failed;
use super::selections::Counted;
use super::writer::{Cycle, QueueRow, Writer};
use super::{queue_changes, redrives, revisions, selections};
use crate::backend::{Answer, Call, Operated, Operation, OperationRefused};
use crate::error::{Result, StoreError};
use crate::model::{MessageId, Millis, OPERATION_MEMORY_MS, QueueUid, State};
use crate::rules;
use crate::rules::operate::{Act, Acted};
use crate::rules::trail::Trail;
use rusqlite::{OptionalExtension, params};

impl Writer {
    /// Performs an operation; `counted` belongs to a selection, see [`selections`].
    pub(super) fn operate(
        &mut self,
        call: &Call,
        operation: &Operation,
        counted: Option<&Counted>,
        now: Option<Millis>,
    ) -> Result<Operated> {
        let now = self.catch_up(now)?;
        let ((answer, repeated), stir, _) = self.transact(Some(now), |cycle| {
            if let Some(answer) = remembered(cycle, call)? {
                let repeated = !matches!(answer, Answer::Refused(_));
                return Ok((answer, repeated));
            }
            let answer = perform(cycle, call, operation, counted)?;
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

/// What the call was answered before, if it was.
pub(super) fn remembered(cycle: &Cycle<'_>, call: &Call) -> Result<Option<Answer>> {
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

fn perform(
    cycle: &mut Cycle<'_>,
    call: &Call,
    operation: &Operation,
    counted: Option<&Counted>,
) -> Result<Answer> {
    match operation {
        Operation::Act { queue, id, act } => one_message(cycle, call, *queue, *id, act),
        Operation::Edit {
            queue,
            id,
            base,
            payload,
            headers,
        } => {
            let change = (*base, payload, headers.as_ref());
            revisions::edit(cycle, call, *queue, *id, Some(change))
        }
        Operation::UndoEdit { queue, id } => revisions::edit(cycle, call, *queue, *id, None),
        Operation::Select { queue, .. } => selections::store(cycle, *queue, counted),
        Operation::StartRedrive(plan) => redrives::start(cycle, call, plan),
        Operation::SteerRedrive { id, steer } => redrives::steer(cycle, call, *id, *steer),
        Operation::Purge {
            queue,
            dead_letters,
        } => queue_changes::purge(cycle, call, *queue, *dead_letters),
        Operation::Pause { queue, paused } => queue_changes::pause(cycle, call, *queue, *paused),
        Operation::PutQueue {
            name,
            policy,
            expect,
        } => queue_changes::put(cycle, call, name, policy, *expect),
        Operation::DeleteQueue {
            queue,
            force,
            version,
        } => queue_changes::delete(cycle, call, *queue, *force, *version),
    }
}

/// The queue, unless it is deleted.
pub(super) fn present(cycle: &Cycle<'_>, uid: QueueUid) -> Option<QueueRow> {
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
    let wanted = queue.is_none_or(|q| q == loaded.queue);
    let Some(row) = present(cycle, loaded.queue).filter(|_| wanted) else {
        return Ok(not_found);
    };
    if *act == Act::Reopen && !key_is_free(cycle, &loaded, &row)? {
        return Ok(Answer::Refused(OperationRefused::KeyTaken));
    }
    rules::time::pass(&mut loaded.draft, &row.policy, cycle.now);
    let before = loaded.draft.message.clone();
    let acted = rules::operate::act(&mut loaded.draft, act, &row.policy, cycle.now);
    // Also after a refusal: what time had done by itself is filed.
    cycle.write(&loaded)?;
    let acted = match acted {
        Ok(acted) => acted,
        Err(refused) => return Ok(Answer::Refused(refused.into())),
    };
    let after = loaded.draft.message.as_ref();
    let trail = before.map(|before| Trail::acted(&before, act, after));
    let on = On {
        message: Some(id),
        ..On::queue(loaded.queue)
    };
    audit::write(cycle, call, act.as_str(), on, &trail.unwrap_or_default())?;
    if *act == Act::Reopen {
        take_ids_again(cycle, &loaded, &row)?;
    }
    Ok(Answer::Acted {
        id: id.0,
        state: after.map_or(State::Ended, rules::Message::state).code(),
        acked_superseded: acted == Acted::AckedSuperseded,
    })
}

/// Whether a discarded message could have its key back: nobody else has it, or is remembered for it.
fn key_is_free(cycle: &Cycle<'_>, loaded: &Loaded, queue: &QueueRow) -> Result<bool> {
    const SQL: &str = "-- reopen: who has the key
        SELECT seq FROM unique_key WHERE uid = ? AND key = ?";
    let envelope = loaded.before.as_ref().map(|m| &m.envelope);
    let Some((id, key)) = envelope.and_then(|e| Some((e.id, e.key.as_deref()?))) else {
        return Ok(true);
    };
    if !queue.policy.unique_key {
        return Ok(true);
    }
    let owner: Option<i64> = cycle
        .sql
        .prepare_cached(SQL)
        .and_then(|mut s| {
            s.query_row(params![queue.uid.0, key], |r| r.get(0))
                .optional()
        })
        .map_err(failed)?;
    Ok(owner.is_none_or(|owner| owner == id.0))
}

/// A message is back: its key is its own again, and its request id unless another message has it by now.
fn take_ids_again(cycle: &Cycle<'_>, loaded: &Loaded, queue: &QueueRow) -> Result<()> {
    const FINGERPRINT: &str = "-- reopen: fingerprint
        SELECT fingerprint FROM message WHERE seq = ?";
    const KEY: &str = "-- reopen: the key
        INSERT INTO unique_key (uid, key, seq, fingerprint, keep_until) VALUES (?1, ?2, ?3, ?4, NULL)
        ON CONFLICT (uid, key) DO UPDATE SET seq = ?3, fingerprint = ?4, keep_until = NULL";
    let Some(envelope) = loaded.before.as_ref().map(|m| &m.envelope) else {
        return Ok(());
    };
    let id = envelope.id.0;
    let fingerprint: i64 = cycle
        .sql
        .prepare_cached(FINGERPRINT)
        .and_then(|mut s| s.query_row([id], |r| r.get(0)))
        .map_err(failed)?;
    if let Some(key) = envelope.key.as_deref().filter(|_| queue.policy.unique_key) {
        cycle
            .sql
            .prepare_cached(KEY)
            .and_then(|mut s| s.execute(params![queue.uid.0, key, id, fingerprint]))
            .map_err(failed)?;
    }
    let digest = loaded.digest.as_deref().and_then(|d| d.try_into().ok());
    let Some(request_id) = digest.map(|digest| (queue.uid, digest)) else {
        return Ok(());
    };
    if cycle.find_request_id(request_id)?.is_some() {
        return Ok(());
    }
    let taken = Taken {
        seq: id,
        fingerprint,
        kept_from: envelope.created_at,
    };
    cycle.claim_old_request_id(request_id, taken)
}
