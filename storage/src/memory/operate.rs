//! What operators do: look the request id up, act, write the audit row, remember the answer.

use super::state::{AuditRow, QueueRow, Remembered, State, TakenKey};
use crate::backend::{
    Answer, Call, Decision, Expect, Operated, Operation, OperationRefused as No, Stir,
};
use crate::model::{
    Counts, MessageId, Millis, OPERATION_MEMORY_MS, Place, Policy, Queue, QueueUid,
    State as Whereabouts,
};
use crate::rules::Message;
use crate::rules::operate::{Act, ActRefused, Acted, act};
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
                if there.is_none() || queue.is_some_and(|q| Some(q) != there) {
                    return Err(No::MessageNotFound);
                }
                let acted = self.act(call, id, &act, now, stir)?;
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
            Operation::RedriveOldest { queue, limit } => {
                self.redrive_oldest(call, queue, limit, now, stir)
            }
            Operation::Purge {
                queue,
                dead_letters,
            } => {
                self.present(queue)?.view.version += 1;
                self.audit(call, "purge", None, now);
                Ok(Answer::Purged {
                    purged: self.purge(queue, dead_letters, now),
                })
            }
            Operation::Pause { queue, paused } => {
                let row = self.present(queue)?;
                if row.view.paused != paused {
                    row.view.paused = paused;
                    row.view.version += 1;
                }
                self.audit(call, if paused { "pause" } else { "resume" }, None, now);
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
                self.audit(call, "delete_queue", None, now);
                Ok(Answer::Deleted { purged })
            }
        }
    }

    fn present(&mut self, queue: QueueUid) -> Result<&mut QueueRow, No> {
        self.queues
            .get_mut(&queue)
            .filter(|q| !q.deleted)
            .ok_or(No::QueueNotFound)
    }

    fn act(
        &mut self,
        call: &Call,
        id: MessageId,
        what: &Act,
        now: Millis,
        stir: &mut Stir,
    ) -> Result<Acted, ActRefused> {
        let mut draft = self.load(id, now);
        let policy = draft
            .message
            .as_ref()
            .map(|m| self.policy(m.envelope.queue))
            .unwrap_or_default();
        let acted = act(&mut draft, what, &policy, now);
        // Also after a refusal: what time had done by itself is filed.
        self.store(id, draft, now, stir);
        if acted.is_ok() {
            self.audit(call, what.as_str(), Some(id), now);
        }
        acted
    }

    /// Oldest first; those that must be skipped are counted and do not use up the limit.
    fn redrive_oldest(
        &mut self,
        call: &Call,
        queue: QueueUid,
        limit: u32,
        now: Millis,
        stir: &mut Stir,
    ) -> Result<Answer, No> {
        self.present(queue)?;
        let died_at = |m: &Message| {
            if let Place::Dead(dead) = &m.place {
                Some(dead.died_at)
            } else {
                None
            }
        };
        let mut dead: Vec<(Millis, MessageId)> = self
            .messages_of(queue)
            .into_iter()
            .filter_map(|id| {
                self.messages
                    .get(&id)
                    .and_then(|r| died_at(&r.message))
                    .map(|at| (at, id))
            })
            .collect();
        dead.sort_unstable();
        let (mut moved, mut at_limit, mut completed, mut expired) = (0, 0, 0, 0);
        for (_, id) in &dead {
            if moved == limit {
                break;
            }
            match self.act(
                call,
                *id,
                &Act::Redrive {
                    force: false,
                    expires_in_ms: None,
                },
                now,
                stir,
            ) {
                Ok(_) => moved += 1,
                Err(ActRefused::RedriveLimit) => at_limit += 1,
                Err(ActRefused::CompletionRemembered) => completed += 1,
                Err(_) => expired += 1,
            }
        }
        Ok(Answer::Redriven {
            moved,
            skipped_redrive_limit: at_limit,
            skipped_completion: completed,
            skipped_expired: expired,
            remaining: dead.len() as i64 - i64::from(moved),
        })
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
        self.audit(
            call,
            if created { "create_queue" } else { "put_queue" },
            None,
            now,
        );
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

    pub(super) fn audit(
        &mut self,
        call: &Call,
        action: &str,
        message: Option<MessageId>,
        now: Millis,
    ) {
        let (actor, justification) = (call.actor.clone(), call.justification.clone());
        self.audit.push(AuditRow {
            message,
            decision: Decision {
                at: now,
                actor,
                action: action.into(),
                justification,
            },
        });
    }
}
