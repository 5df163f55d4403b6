//! Numbers and listings: recounted each time, time passed.

use super::state::State;
use crate::backend::{Browse, Cursor, Detail, Listed, Page, QueueNumbers};
use crate::model::{End, Ended, MessageId, Millis, Place, Queue, QueueUid, State as Whereabouts};
use crate::rules::Message;

impl State {
    pub(super) fn queues_after(&self, after: Option<&str>, limit: u32) -> Vec<Queue> {
        let mut queues: Vec<Queue> = self
            .queues
            .values()
            .filter(|q| !q.deleted)
            .map(|q| q.view.clone())
            .collect();
        queues.retain(|q| after.is_none_or(|after| &*q.name > after));
        queues.sort_by(|a, b| a.name.cmp(&b.name));
        queues.truncate(limit as usize);
        queues
    }

    pub(super) fn numbers(&mut self, queue: QueueUid, now: Option<Millis>) -> QueueNumbers {
        let now = self.clock.now(now);
        let mut numbers = QueueNumbers {
            now,
            ..QueueNumbers::default()
        };
        numbers.counts = self
            .queues
            .get(&queue)
            .map(|q| q.totals)
            .unwrap_or_default();
        let older = |old: Option<Millis>, at: Millis| Some(old.map_or(at, |old| old.min(at)));
        for id in self.messages_of(queue) {
            match self.seen(id, now).message.map(|m| m.place) {
                Some(Place::Delayed { .. }) => numbers.counts.delayed += 1,
                Some(Place::Ready { available_at }) => {
                    numbers.counts.ready += 1;
                    numbers.oldest_ready_at = older(numbers.oldest_ready_at, available_at);
                }
                Some(Place::Leased(_)) => numbers.counts.leased += 1,
                Some(Place::Dead(dead)) => {
                    numbers.counts.dead += 1;
                    numbers.oldest_dead_at = older(numbers.oldest_dead_at, dead.died_at);
                }
                Some(Place::Discarded(_)) | None => {}
            }
        }
        numbers
    }

    pub(super) fn browse(&mut self, browse: &Browse, now: Option<Millis>) -> Page {
        let now = self.clock.now(now);
        let mut items: Vec<(Cursor, Listed)> = Vec::new();
        for id in self.messages_of(browse.queue) {
            let seen = self.seen(id, now);
            let last = seen.last().cloned();
            let Some((message, row)) = seen.message.zip(self.messages.get(&id)) else {
                continue;
            };
            let wanted = message.state() == browse.state
                && browse.state != Whereabouts::Ended
                && browse
                    .key
                    .as_ref()
                    .is_none_or(|key| message.envelope.key.as_ref() == Some(key))
                && browse
                    .request_id
                    .as_ref()
                    .is_none_or(|id| row.digest == Some(id.digest));
            if wanted {
                items.push((
                    Cursor::of(&message),
                    Listed {
                        message,
                        size: row.payload.len() as u32,
                        last,
                    },
                ));
            }
        }
        items.sort_by_key(|(cursor, _)| order(cursor));
        items.retain(|(cursor, _)| {
            browse
                .after
                .as_ref()
                .is_none_or(|after| order(cursor) > order(after))
        });
        let more = items.len() > browse.limit as usize;
        items.truncate(browse.limit as usize);
        let next = items.last().map(|(cursor, _)| *cursor).filter(|_| more);
        Page {
            items: items.into_iter().map(|(_, listed)| listed).collect(),
            next,
        }
    }

    pub(super) fn message(&mut self, id: MessageId, now: Option<Millis>) -> Option<Detail> {
        let now = self.clock.now(now);
        let seen = self.seen(id, now);
        let record = self.ended.get(&id);
        let row = self.messages.get(&id);
        let queue = row
            .map(|r| r.message.envelope.queue)
            .or(record.map(|r| r.queue))?;
        let discarded = row.and_then(|r| {
            if let Place::Discarded(d) = &r.message.place {
                Some(d)
            } else {
                None
            }
        });
        let discarded = discarded.map(|d| Ended {
            end: End::Discarded,
            at: d.discarded_at,
            fence: 0,
            outcome: None,
        });
        Some(Detail {
            queue,
            ended: discarded.or(record.map(|r| r.ended.clone())),
            payload: row
                .filter(|r| payload_is_kept(&r.message))
                .map(|r| r.payload.clone()),
            deliveries: seen.history,
            decisions: self
                .audit
                .iter()
                .filter(|a| a.message == Some(id))
                .cloned()
                .collect(),
            revisions: self.revisions.get(&id).cloned().unwrap_or_default(),
            key: row.map_or_else(
                || record.and_then(|r| r.key.clone()),
                |r| r.message.envelope.key.clone(),
            ),
            message: seen.message,
        })
    }
}

fn payload_is_kept(message: &Message) -> bool {
    !matches!(&message.place, Place::Discarded(discarded) if !discarded.payload_kept)
}

fn order(cursor: &Cursor) -> (std::cmp::Reverse<u8>, Millis, MessageId) {
    (std::cmp::Reverse(cursor.priority), cursor.at, cursor.id)
}
