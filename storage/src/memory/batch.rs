//! Publish, receive, settle: item after item, each seeing what the ones before it did.

use super::state::{Row, State, TakenId, TakenKey};
use crate::backend::{
    Batch, BatchOutcome, Delivery, Duplicate, MAX_RECEIVE_BYTES, Publish, Published, Receive,
    Received, Settle, SettleOutcome, Stir,
};
use crate::model::{
    Cause, End, Envelope, Life, MessageId, Millis, Place, QueueUid, State as Whereabouts,
};
use crate::rules::{self, Message, settle::settle};
use std::cmp::Reverse;
use std::sync::Arc;

impl State {
    pub(super) fn apply(&mut self, batch: &Batch, now: Option<Millis>) -> BatchOutcome {
        let now = self.clock.now(now);
        let mut stir = Stir::default();
        let settles = batch
            .settles
            .iter()
            .map(|s| self.settle(s, now, &mut stir))
            .collect();
        let publishes = batch
            .publishes
            .iter()
            .map(|p| self.publish(p, now, &mut stir))
            .collect();
        let receives = batch
            .receives
            .iter()
            .map(|r| self.receive(r, now, &mut stir))
            .collect();
        stir.next_due = self.next_due();
        BatchOutcome {
            settles,
            publishes,
            receives,
            stir,
            now,
        }
    }

    fn settle(&mut self, item: &Settle, now: Millis, stir: &mut Stir) -> SettleOutcome {
        let Some(queue) = self.fresh(&item.queue) else {
            return SettleOutcome::Stale;
        };
        let policy = queue.view.policy.clone();
        let mut draft = self.load(item.id, now);
        let decided = settle(&mut draft, &item.claim, &policy, now);
        self.store(item.id, draft, now, stir);
        SettleOutcome::Decided(decided)
    }

    fn publish(&mut self, item: &Publish, now: Millis, stir: &mut Stir) -> Published {
        let Some(queue) = self.fresh(&item.queue).filter(|q| !q.deleted) else {
            return Published::Stale;
        };
        let (uid, policy) = (queue.view.uid, queue.view.policy.clone());
        let digest = item.request_id.as_ref().map(|r| r.digest);
        if let Some(taken) = digest.and_then(|d| self.request_ids.get(&(uid, d))) {
            let free = self.living(taken.id).is_none()
                && rules::request_id_is_free(taken.kept_from, policy.dedupe_window_ms, now);
            if !free && taken.fingerprint != item.fingerprint {
                return Published::Conflict { id: taken.id };
            } else if !free {
                return Published::Duplicate(self.duplicate(taken.id, false, true, now));
            }
        }
        let unique = item
            .key
            .clone()
            .filter(|_| policy.unique_key)
            .map(|key| (uid, key));
        if let Some(taken) = unique.as_ref().and_then(|k| self.unique_keys.get(k)) {
            let free = self.living(taken.id).is_none()
                && taken.keep_until.is_some_and(|until| until <= now);
            if !free {
                return Published::Duplicate(self.duplicate(
                    taken.id,
                    true,
                    taken.fingerprint == item.fingerprint,
                    now,
                ));
            }
        }
        if policy
            .max_depth
            .is_some_and(|max| self.depth(uid, now) >= max)
        {
            return Published::Full;
        }

        let id = self.ids.next(now);
        let first_available_at = now.saturating_add(item.delay_ms);
        let (place, state) = if item.delay_ms > 0 {
            (
                Place::Delayed {
                    due_at: first_available_at,
                },
                Whereabouts::Delayed,
            )
        } else {
            stir.add_ready(uid, 1);
            (Place::Ready { available_at: now }, Whereabouts::Ready)
        };
        let expires_at = item.expires_in_ms.map(|ms| now.saturating_add(ms));
        let envelope = Arc::new(Envelope {
            id,
            queue: uid,
            created_at: now,
            first_available_at,
            priority: item.priority,
            request_id: item.request_id.as_ref().map(|r| r.text.clone()),
            key: item.key.clone(),
            expires_at,
            max_attempts: item.max_attempts,
            backoff: item.backoff.clone(),
            headers: item.headers.clone(),
        });
        let message = Message {
            envelope,
            life: Life::default(),
            place,
            completion: None,
            expires_at,
        };
        let fingerprint = item.fingerprint;
        if let Some(digest) = digest {
            self.request_ids.insert(
                (uid, digest),
                TakenId {
                    id,
                    fingerprint,
                    kept_from: now,
                },
            );
        }
        if let Some(key) = unique {
            self.unique_keys.insert(
                key,
                TakenKey {
                    id,
                    fingerprint,
                    keep_until: None,
                },
            );
        }
        self.messages.insert(
            id,
            Row {
                message,
                payload: item.payload.clone(),
                fingerprint,
                digest,
            },
        );
        if let Some(totals) = self.totals(uid) {
            totals.accepted += 1;
        }
        Published::Created {
            id,
            state,
            published_at: now,
        }
    }

    fn depth(&mut self, queue: QueueUid, now: Millis) -> u64 {
        let counts = self.numbers(queue, Some(now)).counts;
        (counts.delayed + counts.ready + counts.leased) as u64
    }

    /// What is known about the message that a repeated publish names.
    fn duplicate(&self, id: MessageId, by_key: bool, same_body: bool, now: Millis) -> Duplicate {
        let seen = self.seen(id, now);
        let record = self.ended.get(&id);
        // A message that is not there and left no record was acked.
        let end = match seen.message.as_ref().map(Message::state) {
            Some(Whereabouts::Ended) => Some(End::Discarded),
            Some(_) => None,
            None => Some(record.map_or(End::Acked, |r| r.ended.end)),
        };
        let published_at = match (&seen.message, record) {
            (Some(message), _) => message.envelope.created_at,
            (None, Some(record)) => record.published_at,
            (None, None) => id.made_at(),
        };
        Duplicate {
            by_key,
            id,
            state: seen
                .message
                .as_ref()
                .map_or(Whereabouts::Ended, Message::state),
            end,
            same_body,
            outcome: record.and_then(|r| r.ended.outcome.clone()),
            published_at,
        }
    }

    fn receive(&mut self, item: &Receive, now: Millis, stir: &mut Stir) -> Received {
        let Some(queue) = self.fresh(&item.queue).filter(|q| !q.deleted) else {
            return Received::Stale;
        };
        if queue.view.paused {
            return Received::Paused;
        }
        let (uid, policy) = (queue.view.uid, queue.view.policy.clone());
        let mut candidates = Vec::new();
        for id in self.messages_of(uid) {
            let Some(message) = self.load(id, now).message else {
                continue;
            };
            if let Place::Ready { available_at } = message.place {
                candidates.push((Reverse(message.envelope.priority), available_at, id));
            }
        }
        candidates.sort_unstable();

        let (mut deliveries, mut bytes) = (Vec::new(), 0);
        for (_, _, id) in candidates {
            let size = self.messages.get(&id).map_or(0, |row| row.payload.len());
            if deliveries.len() >= item.max as usize
                || (!deliveries.is_empty() && bytes + size > MAX_RECEIVE_BYTES)
            {
                break;
            }
            let mut draft = self.load(id, now);
            let handed_out =
                rules::hand_out(&mut draft, &policy, item.lease_ms, item.worker.clone(), now);
            let message = draft.message.clone().filter(|_| handed_out);
            self.store(id, draft, now, stir);
            let Some((message, row)) = message.zip(self.messages.get(&id)) else {
                continue;
            };
            bytes += size;
            deliveries.push(Delivery {
                max_attempts: message.max_attempts(&policy),
                message,
                payload: row.payload.clone(),
                last_failure: self.last_failure(id),
            });
        }
        Received::Messages(deliveries)
    }

    fn last_failure(&self, id: MessageId) -> Option<crate::model::Delivered> {
        let failed = |cause| matches!(cause, Cause::Nack | Cause::Permanent | Cause::LeaseExpired);
        self.history
            .get(&id)?
            .iter()
            .rev()
            .find(|d| failed(d.cause))
            .cloned()
    }
}
