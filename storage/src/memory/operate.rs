//! What operators do: look the request id up, act, write the audit row, remember the answer.

use super::state::{QueueRow, Remembered, State, TakenKey};
use crate::audit::AuditEntry;
use crate::backend::{Answer, Call, Expect, Operated, Operation, OperationRefused as No, Stir};
use crate::model::{
    Counts, MessageId, Millis, OPERATION_MEMORY_MS, Policy, Queue, QueueUid, State as Whereabouts,
};
use crate::redrives::RedriveId;
use crate::rules::operate::{Act, ActRefused, Acted, act};
use crate::rules::trail::Trail;
use std::collections::BTreeMap;
use std::sync::Arc;

impl State {
    pub(super) fn operate(
        &mut self,
        call: &Call,
        operation: Operation,
        now: Option<Millis>,
    ) -> Operated {
        let now = self.clock.now(now);
        let mut stir = Stir::default();
        let known = call
            .request_id
            .as_ref()
            .and_then(|id| self.operations.get(id));
        if let Some(known) = known.filter(|k| now < k.at.saturating_add(OPERATION_MEMORY_MS)) {
            let (repeated, answer) = if known.fingerprint == call.fingerprint {
                (true, known.answer.clone())
            } else {
                (false, Answer::Refused(No::RequestIdConflict))
            };
            return Operated {
                answer,
                repeated,
                stir,
            };
        }
        let answer = match self.perform(call, operation, now, &mut stir) {
            Ok(answer) => {
                if let Some(id) = call.request_id.clone() {
                    let fingerprint = call.fingerprint;
                    self.operations.insert(
                        id,
                        Remembered {
                            fingerprint,
                            answer: answer.clone(),
                            at: now,
                        },
                    );
                }
                answer
            }
            Err(refused) => Answer::Refused(refused),
        };
        stir.next_due = self.next_due();
        Operated {
            answer,
            repeated: false,
            stir,
        }
    }

    fn perform(
        &mut self,
        call: &Call,
        operation: Operation,
        now: Millis,
        stir: &mut Stir,
    ) -> Result<Answer, No> {
        match operation {
            Operation::Act { queue, id, act } => {
                let there = self.messages.get(&id).map(|r| r.message.envelope.queue);
                let there = there.ok_or(No::MessageNotFound)?;
                if queue.is_some_and(|q| q != there) || self.present(there).is_err() {
                    return Err(No::MessageNotFound);
                }
                if act == Act::Reopen && !self.key_is_free(id) {
                    return Err(No::KeyTaken);
                }
                let acted = self.act(call, id, &act, None, now, stir)?;
                let state = self
                    .messages
                    .get(&id)
                    .map_or(Whereabouts::Ended, |r| r.message.state())
                    .code();
                Ok(Answer::Acted {
                    id: id.0,
                    state,
                    acked_superseded: acted == Acted::AckedSuperseded,
                })
            }
            Operation::Edit {
                queue,
                id,
                base,
                payload,
                headers,
            } => self.edit(call, queue, id, Some((base, payload, headers)), now),
            Operation::UndoEdit { queue, id } => self.edit(call, queue, id, None, now),
            Operation::Select { queue, filter } => self.select(queue, *filter, now),
            Operation::StartRedrive(plan) => self.start_redrive(call, *plan, now),
            Operation::SteerRedrive { id, steer } => self.steer_redrive(call, id, steer, now),
            Operation::Purge {
                queue,
                dead_letters,
            } => {
                self.present(queue)?.view.version += 1;
                let purged = self.purge(queue, dead_letters, now);
                let trail = Trail::purged(purged, dead_letters);
                self.audit(call, "purge", On::queue(queue), trail, now);
                Ok(Answer::Purged { purged })
            }
            Operation::Pause { queue, paused } => {
                let row = self.present(queue)?;
                let before = row.view.paused;
                if before != paused {
                    row.view.paused = paused;
                    row.view.version += 1;
                    let (trail, word) = (
                        Trail::paused(before, paused),
                        if paused { "pause" } else { "resume" },
                    );
                    self.audit(call, word, On::queue(queue), trail, now);
                }
                Ok(Answer::Queue {
                    uid: queue.0,
                    created: false,
                })
            }
            Operation::PutQueue {
                name,
                policy,
                expect,
            } => self.put_queue(call, &name, *policy, expect, now),
            Operation::DeleteQueue {
                queue,
                force,
                version,
            } => {
                let row = self.present(queue)?;
                if version.is_some_and(|v| v != row.view.version) {
                    return Err(No::VersionMismatch);
                }
                let counts = self.numbers(queue, Some(now)).counts;
                if !force && counts.delayed + counts.ready + counts.leased + counts.dead > 0 {
                    return Err(No::QueueNotEmpty);
                }
                let purged = self.purge(queue, true, now);
                let row = self.present(queue)?;
                row.view.version += 1;
                row.deleted = true;
                let trail = Trail::purged(purged, true);
                self.audit(call, "delete_queue", On::queue(queue), trail, now);
                Ok(Answer::Deleted { purged })
            }
        }
    }

    pub(super) fn present(&mut self, queue: QueueUid) -> Result<&mut QueueRow, No> {
        self.queues
            .get_mut(&queue)
            .filter(|q| !q.deleted)
            .ok_or(No::QueueNotFound)
    }

    pub(super) fn act(
        &mut self,
        call: &Call,
        id: MessageId,
        what: &Act,
        redrive: Option<RedriveId>,
        now: Millis,
        stir: &mut Stir,
    ) -> Result<Acted, ActRefused> {
        let mut draft = self.load(id, now);
        let policy = draft
            .message
            .as_ref()
            .map(|m| self.policy(m.envelope.queue))
            .unwrap_or_default();
        let before = draft.message.clone();
        let acted = act(&mut draft, what, &policy, now);
        let trail = before
            .as_ref()
            .map(|before| Trail::acted(before, what, draft.message.as_ref()))
            .unwrap_or_default();
        // Also after a refusal: what time had done by itself is filed.
        self.store(id, draft, now, stir);
        if let (Ok(_), Some(before)) = (&acted, before) {
            let queue = before.envelope.queue;
            let on = On {
                queue: Some(queue),
                message: Some(id),
                redrive,
            };
            self.audit(call, what.as_str(), on, trail, now);
            if *what == Act::Reopen {
                self.take_ids_again(id);
            }
        }
        acted
    }

    fn put_queue(
        &mut self,
        call: &Call,
        name: &Arc<str>,
        policy: Policy,
        expect: Expect,
        now: Millis,
    ) -> Result<Answer, No> {
        let known = self.queue_named(name).map(|q| (q.view.clone(), q.deleted));
        let there = known
            .as_ref()
            .filter(|(_, deleted)| !deleted)
            .map(|(queue, _)| queue);
        match (expect, there) {
            (Expect::Absent, Some(queue)) => {
                return Ok(Answer::Queue {
                    uid: queue.uid.0,
                    created: false,
                });
            }
            (Expect::Version(v), queue) if queue.is_none_or(|q| q.version != v) => {
                return Err(No::VersionMismatch);
            }
            _ => {}
        }
        let created = there.is_none();
        let uid = known
            .as_ref()
            .map_or(QueueUid(self.queues.len() as i32 + 1), |(queue, _)| {
                queue.uid
            });
        if policy.unique_key && there.is_some_and(|q| !q.policy.unique_key) {
            self.take_live_keys(uid)?;
        }
        let same = there.is_some_and(|q| *q.policy == policy);
        let trail = Trail::policy(there.map(|q| &*q.policy), &policy);
        let view = Queue {
            uid,
            name: name.clone(),
            version: known.as_ref().map_or(0, |(q, _)| q.version) + i64::from(!same),
            paused: there.is_some_and(|q| q.paused),
            policy: Arc::new(policy),
            created_at: there.map_or(now, |q| q.created_at),
        };
        let totals = self
            .queues
            .get(&uid)
            .map_or_else(Counts::default, |q| q.totals);
        self.queues.insert(
            uid,
            QueueRow {
                view,
                deleted: false,
                totals,
            },
        );
        let word = if created { "create_queue" } else { "put_queue" };
        if !same {
            self.audit(call, word, On::queue(uid), trail, now);
        }
        Ok(Answer::Queue {
            uid: uid.0,
            created,
        })
    }

    /// `unique_key` is switched on: the keys of the messages that are there are taken from now on.
    fn take_live_keys(&mut self, queue: QueueUid) -> Result<(), No> {
        let mut live = BTreeMap::new();
        for id in self.messages_of(queue) {
            let Some(row) = self.living(id) else { continue };
            let Some(key) = row.message.envelope.key.clone() else {
                continue;
            };
            let taken = TakenKey {
                id,
                fingerprint: row.fingerprint,
                keep_until: None,
            };
            if live.insert((queue, key), taken).is_some() {
                return Err(No::KeysNotUnique);
            }
        }
        self.unique_keys.extend(live);
        Ok(())
    }

    pub(super) fn audit(&mut self, call: &Call, action: &str, on: On, trail: Trail, now: Millis) {
        self.audit.push(AuditEntry {
            id: self.audit.last().map_or(1, |last| last.id + 1),
            at: now,
            actor: call.actor.clone(),
            action: action.into(),
            queue: on.queue,
            message: on.message,
            redrive: on.redrive,
            reason: call.justification.clone(),
            before: trail.before.map(Into::into),
            after: trail.after.map(Into::into),
            http_request: call.http_request.clone(),
        });
    }
}

/// What an audit row is about.
#[derive(Clone, Copy, Default)]
pub(super) struct On {
    pub(super) queue: Option<QueueUid>,
    pub(super) message: Option<MessageId>,
    pub(super) redrive: Option<RedriveId>,
}

impl On {
    pub(super) fn queue(queue: QueueUid) -> Self {
        Self {
            queue: Some(queue),
            ..Self::default()
        }
    }
}
