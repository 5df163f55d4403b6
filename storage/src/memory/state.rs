//! The maps, and the two steps that every change is made of: load a draft, store it back.

use crate::audit::AuditEntry;
use crate::backend::{Answer, KeyRecord, Revision, Stir};
use crate::clock::Monotone;
use crate::dead_letters::{Selection, SelectionId};
use crate::model::{
    Counts, Delivered, End, Ended, HISTORY_HEAD, HISTORY_TAIL, IdMaker, MessageId, Millis, Place,
    Policy, Queue, QueueUid,
};
use crate::redrives::{Redrive, RedriveId};
use crate::rules::{self, Draft, Message, Record};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) struct State {
    pub(super) clock: Monotone,
    pub(super) ids: IdMaker,
    /// By number; a deleted queue stays, since ids, keys and totals belong to its name.
    pub(super) queues: BTreeMap<QueueUid, QueueRow>,
    /// Every message that is somewhere; a discarded one as long as audit rows.
    pub(super) messages: BTreeMap<MessageId, Row>,
    /// Deliveries that ended, by fence: of messages that are there and of ends that are remembered.
    pub(super) history: BTreeMap<MessageId, Vec<Delivered>>,
    /// How messages left, where [`rules::remembers_end`] says so.
    pub(super) ended: BTreeMap<MessageId, EndedRow>,
    /// Request ids by digest.
    pub(super) request_ids: BTreeMap<(QueueUid, [u8; 16]), TakenId>,
    /// Keys of `unique_key` queues.
    pub(super) unique_keys: BTreeMap<(QueueUid, Arc<str>), TakenKey>,
    /// Answers to operator calls.
    pub(super) operations: BTreeMap<Arc<str>, Remembered>,
    /// What operators did, oldest first.
    pub(super) audit: Vec<AuditEntry>,
    /// Payloads that operators changed.
    pub(super) revisions: BTreeMap<MessageId, Vec<Revision>>,
    /// Number of the latest selection: the present generation of dead letters. Never used again.
    pub(super) generation: i64,
    pub(super) selections: BTreeMap<SelectionId, Selection>,
    /// The generation in which each dead letter died or was last changed: it is in the selections after it.
    pub(super) generations: BTreeMap<MessageId, i64>,
    pub(super) redrives: BTreeMap<RedriveId, Redrive>,
    /// By which redrive a message was moved last, and as which one of its.
    pub(super) redriven: BTreeMap<MessageId, (RedriveId, i64)>,
    pub(super) api_keys: BTreeMap<Arc<str>, KeyRecord>,
}

pub(super) struct QueueRow {
    pub(super) view: Queue,
    pub(super) deleted: bool,
    /// Totals only: gauges are recounted.
    pub(super) totals: Counts,
}

pub(super) struct Row {
    pub(super) message: Message,
    pub(super) payload: Bytes,
    pub(super) fingerprint: i64,
    pub(super) digest: Option<[u8; 16]>,
}

pub(super) struct EndedRow {
    pub(super) queue: QueueUid,
    pub(super) ended: Ended,
    pub(super) published_at: Millis,
    pub(super) key: Option<Arc<str>>,
    pub(super) keep_until: Option<Millis>,
}

pub(super) struct TakenId {
    pub(super) id: MessageId,
    pub(super) fingerprint: i64,
    pub(super) kept_from: Millis,
}

pub(super) struct TakenKey {
    pub(super) id: MessageId,
    pub(super) fingerprint: i64,
    /// Counts once the message is gone; `None` = for ever.
    pub(super) keep_until: Option<Millis>,
}

pub(super) struct Remembered {
    pub(super) fingerprint: i64,
    pub(super) answer: Answer,
    pub(super) at: Millis,
}

impl State {
    pub(super) fn new(tag: u16) -> Self {
        Self {
            clock: Monotone::default(),
            ids: IdMaker::new(tag),
            queues: BTreeMap::new(),
            messages: BTreeMap::new(),
            history: BTreeMap::new(),
            ended: BTreeMap::new(),
            request_ids: BTreeMap::new(),
            unique_keys: BTreeMap::new(),
            operations: BTreeMap::new(),
            audit: Vec::new(),
            revisions: BTreeMap::new(),
            generation: 0,
            selections: BTreeMap::new(),
            generations: BTreeMap::new(),
            redrives: BTreeMap::new(),
            redriven: BTreeMap::new(),
            api_keys: BTreeMap::new(),
        }
    }

    pub(super) fn queue_named(&self, name: &str) -> Option<&QueueRow> {
        self.queues.values().find(|q| &*q.view.name == name)
    }

    /// The queue as it is now, when `seen` is what it is now.
    pub(super) fn fresh(&self, seen: &Queue) -> Option<&QueueRow> {
        self.queues
            .get(&seen.uid)
            .filter(|q| q.view.version == seen.version)
    }

    pub(super) fn policy(&self, queue: QueueUid) -> Arc<Policy> {
        self.queues
            .get(&queue)
            .map_or_else(Arc::default, |q| q.view.policy.clone())
    }

    pub(super) fn totals(&mut self, queue: QueueUid) -> Option<&mut Counts> {
        self.queues.get_mut(&queue).map(|q| &mut q.totals)
    }

    pub(super) fn messages_of(&self, queue: QueueUid) -> Vec<MessageId> {
        self.messages
            .iter()
            .filter(|(_, r)| r.message.envelope.queue == queue)
            .map(|(id, _)| *id)
            .collect()
    }

    /// The message for ids and keys: a discarded one is gone.
    pub(super) fn living(&self, id: MessageId) -> Option<&Row> {
        self.messages
            .get(&id)
            .filter(|r| !matches!(r.message.place, Place::Discarded(_)))
    }

    /// The message as stored, or how it went.
    pub(super) fn draft(&self, id: MessageId) -> Draft {
        let history = self.history.get(&id).cloned().unwrap_or_default();
        match self.messages.get(&id) {
            Some(row) => Draft::of(row.message.clone(), history),
            None => Draft::gone(self.ended.get(&id).map(|e| e.ended.clone()), history),
        }
    }

    /// The message as it is at `now`. Every decision begins here.
    pub(super) fn load(&self, id: MessageId, now: Millis) -> Draft {
        let mut draft = self.draft(id);
        if let Some(queue) = draft.message.as_ref().map(|m| m.envelope.queue) {
            rules::time::pass(&mut draft, &self.policy(queue), now);
        }
        draft
    }

    /// The message as readers see it at `now`: leases that ran out and delays that are over have passed; what only a sweep
    /// can file (a dead letter to be, a completion to take effect) is still where it was.
    pub(super) fn seen(&self, id: MessageId, now: Millis) -> Draft {
        let (stored, passed) = (self.draft(id), self.load(id, now));
        let filed = match (&stored.message, &passed.message) {
            (Some(before), Some(after)) => {
                before.state() != after.state() && matches!(after.place, Place::Dead(_))
            }
            (Some(_), None) => true,
            (None, _) => false,
        };
        if filed { stored } else { passed }
    }

    /// Writes what a draft of message `id` says now. Every change ends here.
    pub(super) fn store(&mut self, id: MessageId, draft: Draft, now: Millis, stir: &mut Stir) {
        let Some(row) = self.messages.get_mut(&id) else {
            return;
        };
        let (queue, before, fence) = (
            row.message.envelope.queue,
            row.message.place.clone(),
            row.message.life.fence,
        );
        let moved = rules::counts_delta(Some(&before), &draft);
        if let Some(totals) = self.totals(queue) {
            totals.acked += moved.acked;
            totals.discarded += moved.discarded;
            totals.reopened += moved.reopened;
            totals.dead_letter_expired += moved.dead_letter_expired;
            totals.delivered += moved.delivered;
            totals.redriven += moved.redriven;
        }
        stir.add_ready(queue, u32::from(moved.ready > 0));
        for record in draft.records {
            self.record(id, record);
        }
        match (draft.message, draft.ended) {
            (Some(message), _) => {
                if matches!(message.place, Place::Discarded(_))
                    && !matches!(before, Place::Discarded(_))
                {
                    self.free_ids(id, now);
                }
                self.note_death(id, &before, &message);
                if let Some(row) = self.messages.get_mut(&id) {
                    row.message = message;
                }
            }
            (None, Some(ended)) => self.remove(id, fence, ended),
            (None, None) => {}
        }
    }

    fn record(&mut self, id: MessageId, record: Record) {
        let history = self.history.entry(id).or_default();
        let (Record::Put(Delivered { fence, .. }) | Record::Drop(fence)) = record;
        history.retain(|d| d.fence != fence);
        if let Record::Put(delivered) = record {
            history.push(delivered);
            history.sort_by_key(|d| d.fence);
        }
        if history.len() > (HISTORY_HEAD + HISTORY_TAIL) as usize {
            history.remove(HISTORY_HEAD as usize);
        }
    }

    /// The message is gone, for good. `fence` is its last one.
    pub(super) fn remove(&mut self, id: MessageId, fence: i32, ended: Ended) {
        if self.living(id).is_some() {
            self.free_ids(id, ended.at);
        }
        let Some(row) = self.messages.remove(&id) else {
            return;
        };
        self.revisions.remove(&id);
        self.generations.remove(&id);
        let envelope = row.message.envelope;
        let policy = self.policy(envelope.queue);
        if rules::remembers_end(&envelope, fence, &ended, &policy) {
            let keep_until = rules::end_kept_until(&envelope, ended.at, &policy);
            let (queue, published_at, key) =
                (envelope.queue, envelope.created_at, envelope.key.clone());
            self.ended.insert(
                id,
                EndedRow {
                    queue,
                    ended,
                    published_at,
                    key,
                    keep_until,
                },
            );
        } else {
            self.history.remove(&id);
        }
    }

    /// Starts the time after which the request id and the key of a message that ended are free again.
    fn free_ids(&mut self, id: MessageId, ended_at: Millis) {
        let Some(row) = self.messages.get(&id) else {
            return;
        };
        let (envelope, digest) = (row.message.envelope.clone(), row.digest);
        let policy = self.policy(envelope.queue);
        if let Some(taken) = digest.and_then(|d| self.request_ids.get_mut(&(envelope.queue, d))) {
            taken.kept_from =
                rules::request_id_kept_from(envelope.created_at, ended_at, policy.dedupe_window_ms);
        }
        let key = envelope
            .key
            .clone()
            .and_then(|key| self.unique_keys.get_mut(&(envelope.queue, key)));
        if let Some(taken) = key.filter(|taken| taken.id == id) {
            taken.keep_until = rules::key_kept_until(ended_at, &policy);
        }
    }

    /// Takes messages out by purge. Answers how many counted as live or dead.
    pub(super) fn purge(&mut self, queue: QueueUid, dead_letters: bool, now: Millis) -> i64 {
        let mut purged = 0;
        for id in self.messages_of(queue) {
            let Some(message) = self.messages.get(&id).map(|r| &r.message) else {
                continue;
            };
            let taken = match message.place {
                Place::Delayed { .. } | Place::Ready { .. } | Place::Leased(_) => true,
                Place::Dead(_) => dead_letters,
                Place::Discarded(_) => false,
            };
            if taken {
                let fence = message.life.fence;
                self.remove(
                    id,
                    fence,
                    Ended {
                        end: End::Purged,
                        at: now,
                        fence: 0,
                        outcome: None,
                    },
                );
                purged += 1;
            }
        }
        if let Some(totals) = self.totals(queue) {
            totals.purged += purged;
        }
        purged
    }

    /// When a lease next runs out or a delay next ends.
    pub(super) fn next_due(&self) -> Option<Millis> {
        let due = |row: &Row| match &row.message.place {
            Place::Leased(lease) => Some(lease.expires_at),
            Place::Delayed { due_at } => Some(*due_at),
            Place::Ready { .. } | Place::Dead(_) | Place::Discarded(_) => None,
        };
        self.messages.values().filter_map(due).min()
    }
}
