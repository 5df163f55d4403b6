//! Dead letters for operators: listings, groups, selections, changed payloads, discards taken back.

use super::operate::On;
use super::state::{State, TakenId, TakenKey};
use crate::audit::{AuditPage, AuditQuery};
use crate::backend::{
    Answer, Call, Cursor, Listed, MAX_REVISIONS, OperationRefused as No, Page, Revision,
};
use crate::dead_letters::{
    DeadFilter, DeadGroup, DeadGroups, DeadListing, Figures, SAMPLE, SELECTION_LIFE_MS, Selection,
    SelectionId,
};
use crate::model::{End, MessageId, Millis, Place, QueueUid};
use crate::rules::operate::edit;
use crate::rules::trail::Trail;
use crate::rules::{Message, bulk};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;

impl State {
    /// The dead letters that a filter means, in the order of their deaths.
    fn dead(
        &self,
        queues: Option<&[QueueUid]>,
        filter: &DeadFilter,
        now: Millis,
    ) -> Vec<(Cursor, Message)> {
        let mut found: Vec<(Cursor, Message)> = self
            .messages
            .iter()
            .filter(|(_, row)| {
                let queue = row.message.envelope.queue;
                let there = self.queues.get(&queue).is_some_and(|q| !q.deleted);
                there && queues.is_none_or(|queues| queues.contains(&queue))
            })
            .filter_map(|(id, _)| self.seen(*id, now).message)
            .filter(|message| filter.matches(message))
            .map(|message| (Cursor::of(&message), message))
            .collect();
        found.sort_by_key(|(cursor, _)| (cursor.at, cursor.id));
        found
    }

    pub(super) fn dead_letters(&mut self, listing: &DeadListing, now: Option<Millis>) -> Page {
        let now = self.clock.now(now);
        let mut found = self.dead(listing.queues.as_deref(), &listing.filter, now);
        let place = |cursor: &Cursor| (cursor.at, cursor.id);
        if let Some(after) = listing.after.as_ref().map(place) {
            found.retain(|(cursor, _)| {
                if listing.newest_first {
                    place(cursor) < after
                } else {
                    place(cursor) > after
                }
            });
        }
        if listing.newest_first {
            found.reverse();
        }
        let more = found.len() > listing.limit as usize;
        found.truncate(listing.limit as usize);
        Page {
            next: found.last().map(|(cursor, _)| *cursor).filter(|_| more),
            items: found
                .into_iter()
                .map(|(cursor, message)| Listed {
                    message,
                    size: self
                        .messages
                        .get(&cursor.id)
                        .map_or(0, |row| row.payload.len() as u32),
                    last: self.seen(cursor.id, now).last().cloned(),
                })
                .collect(),
        }
    }

    pub(super) fn dead_groups(
        &mut self,
        queues: Option<&[QueueUid]>,
        filter: &DeadFilter,
        limit: u32,
        now: Option<Millis>,
    ) -> DeadGroups {
        let now = self.clock.now(now);
        let mut groups: BTreeMap<(i64, QueueUid), DeadGroup> = BTreeMap::new();
        for (cursor, message) in self.dead(queues, filter, now) {
            let Place::Dead(dead) = message.place else {
                continue;
            };
            let queue = message.envelope.queue;
            let detail = self.draft(cursor.id).last().cloned();
            let group = groups
                .entry((dead.group, queue))
                .or_insert_with(|| DeadGroup {
                    group: dead.group,
                    queue,
                    reason: dead.reason,
                    error_code: dead.error_code.clone(),
                    count: 0,
                    first_died_at: dead.died_at,
                    last_died_at: dead.died_at,
                    example: cursor.id,
                    example_detail: None,
                });
            group.count += 1;
            group.last_died_at = dead.died_at;
            group.example = cursor.id;
            group.example_detail = detail.and_then(|d| d.failure.detail);
        }
        let mut groups: Vec<DeadGroup> = groups.into_values().collect();
        groups.sort_by_key(|group| -group.count);
        let more = groups.len() > limit as usize;
        groups.truncate(limit as usize);
        DeadGroups { groups, more }
    }

    pub(super) fn select(
        &mut self,
        queue: QueueUid,
        filter: DeadFilter,
        now: Millis,
    ) -> Result<Answer, No> {
        let max_redrives = self.present(queue)?.view.policy.max_redrives;
        let found = self.dead(Some(&[queue]), &filter, now);
        let mut figures = Figures::default();
        for (_, message) in &found {
            let recorded = self.outcome_is_recorded(message);
            figures.add(message, max_redrives, recorded, now);
        }
        figures.finish();
        let ids: Vec<i64> = found.iter().map(|(cursor, _)| cursor.id.0).collect();
        self.generation += 1;
        let id = SelectionId(self.generation);
        let selection = Selection {
            id,
            queue,
            filter,
            figures,
            sample: sample(&ids),
            created_at: now,
            expires_at: now + SELECTION_LIFE_MS,
        };
        self.selections.insert(id, selection);
        Ok(Answer::Selected { id: id.0 })
    }

    /// Whether a dead letter was one when the selection was made, and is unchanged since.
    pub(super) fn is_selected(&self, selection: SelectionId, id: MessageId) -> bool {
        self.generations
            .get(&id)
            .is_some_and(|generation| *generation < selection.0)
    }

    /// Another message of the queue has the same key and was acked.
    fn outcome_is_recorded(&self, message: &Message) -> bool {
        message.envelope.key.is_some()
            && self.ended.values().any(|row| {
                row.queue == message.envelope.queue
                    && row.key == message.envelope.key
                    && row.ended.end == End::Acked
            })
    }

    /// A message moves from `before`: when it becomes a dead letter, or another one, it belongs to later selections; and when a
    /// redrive had moved it, it has failed again.
    pub(super) fn note_death(&mut self, id: MessageId, before: &Place, after: &Message) {
        let Place::Dead(dead) = &after.place else {
            self.generations.remove(&id);
            return;
        };
        if *before != after.place {
            self.generations.insert(id, self.generation);
        }
        if matches!(before, Place::Dead(_) | Place::Discarded(_)) {
            return;
        }
        if let Some((redrive, place)) = self.redriven.remove(&id) {
            let redrive = self.redrives.get_mut(&redrive);
            if let Some(redrive) = redrive.filter(|_| bulk::is_failure(dead.reason)) {
                bulk::failed(redrive, &[place]);
            }
        }
    }

    /// Writes a new revision of a dead letter's payload: the given one on top of `base`, or that which it died with.
    pub(super) fn edit(
        &mut self,
        call: &Call,
        queue: QueueUid,
        id: MessageId,
        change: Option<(i32, Bytes, Option<Arc<str>>)>,
        now: Millis,
    ) -> Result<Answer, No> {
        let mut draft = self.load(id, now);
        let Some(before) = draft.message.clone() else {
            return Err(No::MessageNotFound);
        };
        if before.envelope.queue != queue || self.present(queue).is_err() {
            return Err(No::MessageNotFound);
        }
        let was_edited = matches!(&before.place, Place::Dead(dead) if dead.edited);
        edit(&mut draft, change.is_none())?;
        let Some(row) = self.messages.get(&id) else {
            return Err(No::MessageNotFound);
        };
        let mut revisions = self.revisions.get(&id).cloned().unwrap_or_default();
        if revisions.is_empty() {
            revisions.push(Revision {
                number: 0,
                at: before.envelope.created_at,
                actor: "".into(),
                reason: None,
                floor: 0,
                undo: false,
                payload: row.payload.clone(),
                headers: before.envelope.headers.clone(),
            });
        }
        let Some(current) = revisions.last().cloned() else {
            return Err(No::MessageNotFound);
        };
        if current.number >= MAX_REVISIONS && change.is_some() {
            return Err(No::RevisionLimit);
        }
        let (floor, undo) = (
            if was_edited {
                current.floor
            } else {
                current.number
            },
            change.is_none(),
        );
        let (payload, headers) = match change {
            Some((base, _, _)) if base != current.number => return Err(No::RevisionConflict),
            Some((_, payload, headers)) => (payload, headers),
            None => {
                let died_with = revisions.iter().find(|r| r.number == floor);
                died_with
                    .map(|r| (r.payload.clone(), r.headers.clone()))
                    .ok_or(No::NotEdited)?
            }
        };
        if !undo && (&payload, &headers) == (&current.payload, &current.headers) {
            return Ok(Answer::Edited {
                id: id.0,
                revision: current.number,
                edited: was_edited,
            });
        }
        let number = current.number + 1;
        let trail = Trail::edited((current.number, &current.payload), (number, &payload));
        revisions.push(Revision {
            number,
            at: now,
            actor: call.actor.clone(),
            reason: call.justification.clone(),
            floor,
            undo,
            payload: payload.clone(),
            headers: headers.clone(),
        });
        self.revisions.insert(id, revisions);
        if let Some(message) = &mut draft.message {
            Arc::make_mut(&mut message.envelope).headers = headers;
        }
        self.store(id, draft, now, &mut crate::backend::Stir::default());
        if let Some(row) = self.messages.get_mut(&id) {
            row.payload = payload;
        }
        self.generations.insert(id, self.generation);
        let on = On {
            queue: Some(queue),
            message: Some(id),
            redrive: None,
        };
        self.audit(
            call,
            if undo { "undo_edit" } else { "edit" },
            on,
            trail,
            now,
        );
        Ok(Answer::Edited {
            id: id.0,
            revision: number,
            edited: !undo,
        })
    }

    /// Whether a discarded message could have its key back.
    pub(super) fn key_is_free(&self, id: MessageId) -> bool {
        let Some(envelope) = self.messages.get(&id).map(|r| &r.message.envelope) else {
            return true;
        };
        let Some(key) = envelope.key.clone() else {
            return true;
        };
        !self.policy(envelope.queue).unique_key
            || self
                .unique_keys
                .get(&(envelope.queue, key))
                .is_none_or(|taken| taken.id == id)
    }

    /// A message is back: its key is its own again, and its request id unless another message has it by now.
    pub(super) fn take_ids_again(&mut self, id: MessageId) {
        let Some(row) = self.messages.get(&id) else {
            return;
        };
        let (envelope, fingerprint) = (row.message.envelope.clone(), row.fingerprint);
        if let Some(digest) = row.digest {
            let kept_from = envelope.created_at;
            self.request_ids
                .entry((envelope.queue, digest))
                .or_insert(TakenId {
                    id,
                    fingerprint,
                    kept_from,
                });
        }
        if let Some(key) = envelope.key.clone()
            && self.policy(envelope.queue).unique_key
        {
            let taken = TakenKey {
                id,
                fingerprint,
                keep_until: None,
            };
            self.unique_keys.insert((envelope.queue, key), taken);
        }
    }

    pub(super) fn audit_page(&self, query: &AuditQuery) -> AuditPage {
        let mut entries: Vec<_> = self
            .audit
            .iter()
            .filter(|entry| query.matches(entry))
            .filter(|entry| match query.after {
                Some(after) if query.newest_first => entry.id < after,
                Some(after) => entry.id > after,
                None => true,
            })
            .cloned()
            .collect();
        if query.newest_first {
            entries.reverse();
        }
        let more = entries.len() > query.limit as usize;
        entries.truncate(query.limit as usize);
        let next = entries.last().map(|entry| entry.id).filter(|_| more);
        AuditPage { entries, next }
    }
}

/// The oldest and the youngest ones, oldest first.
fn sample(ids: &[i64]) -> Vec<i64> {
    let half = SAMPLE as usize / 2;
    if ids.len() <= SAMPLE as usize {
        return ids.to_vec();
    }
    [&ids[..half], &ids[ids.len() - half..]].concat()
}
