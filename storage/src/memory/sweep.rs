//! What time alone does: a walk over everything.

use super::operate::On;
use super::state::State;
use crate::backend::{Call, Keep, Moved, Stir};
use crate::model::{DISCARD_UNDO_MS, End, Ended, Millis, OPERATION_MEMORY_MS, Place};
use crate::redrives::{RedriveId, WATCH_MS};
use crate::rules::operate::{drop_payload, expire_dead};
use crate::rules::{self, trail::Trail};

impl State {
    /// Files every message that is elsewhere now than it was stored.
    pub(super) fn move_due(&mut self, now: Option<Millis>) -> Moved {
        let now = self.clock.now(now);
        let (mut moved, mut stir) = (0, Stir::default());
        for id in self.messages.keys().copied().collect::<Vec<_>>() {
            let draft = self.load(id, now);
            if draft.message != self.draft(id).message {
                self.store(id, draft, now, &mut stir);
                moved += 1;
            }
        }
        stir.next_due = self.next_due();
        Moved {
            moved,
            more: false,
            stir,
        }
    }

    /// Ends what dead-letter retention ends and forgets what is over.
    pub(super) fn maintain(&mut self, keep: Keep, now: Option<Millis>) {
        let now = self.clock.now(now);
        let policy_call = Call::by("policy");
        for id in self.messages.keys().copied().collect::<Vec<_>>() {
            let mut draft = self.draft(id);
            let Some(message) = draft.message.clone() else {
                continue;
            };
            let policy = self.policy(message.envelope.queue);
            if expire_dead(&mut draft, &policy, now) {
                self.store(id, draft, now, &mut Stir::default());
                let on = On {
                    queue: Some(message.envelope.queue),
                    message: Some(id),
                    redrive: None,
                };
                let word = End::DeadLetterExpired.as_str();
                self.audit(&policy_call, word, on, Trail::default(), now);
            }
            let Place::Discarded(discarded) = message.place else {
                continue;
            };
            let at = discarded.discarded_at;
            if discarded.payload_kept && at.saturating_add(DISCARD_UNDO_MS) <= now {
                let mut draft = self.draft(id);
                drop_payload(&mut draft);
                self.store(id, draft, now, &mut Stir::default());
                self.revisions.remove(&id);
                if let Some(row) = self.messages.get_mut(&id) {
                    row.payload = bytes::Bytes::new();
                }
            }
            if at.saturating_add(keep.audit_ms) <= now {
                self.remove(
                    id,
                    message.life.fence,
                    Ended {
                        end: End::Discarded,
                        at,
                        fence: 0,
                        outcome: None,
                    },
                );
            }
        }
        let kept_from = now.saturating_sub(keep.audit_ms);
        self.audit.retain(|row| row.at > kept_from);
        self.redrives
            .retain(|_, redrive| redrive.finished_at.is_none_or(|at| at > kept_from));
        let (selections, redrives) = (&mut self.selections, &self.redrives);
        selections.retain(|id, selection| {
            selection.expires_at > now || redrives.values().any(|r| r.plan.selection == *id)
        });
        let watched = |redrive: &RedriveId| {
            let redrive = redrives.get(redrive);
            redrive.is_some_and(|r| r.finished_at.is_none_or(|at| at + WATCH_MS > now))
        };
        self.redriven.retain(|_, (redrive, _)| watched(redrive));
        self.ended
            .retain(|_, row| row.keep_until.is_none_or(|until| until > now));
        self.history
            .retain(|id, _| self.messages.contains_key(id) || self.ended.contains_key(id));
        self.operations
            .retain(|_, row| row.at.saturating_add(OPERATION_MEMORY_MS) > now);
        let mut ids = std::mem::take(&mut self.request_ids);
        ids.retain(|(queue, _), taken| {
            let window = self.policy(*queue).dedupe_window_ms;
            self.living(taken.id).is_some()
                || !rules::request_id_is_free(taken.kept_from, window, now)
        });
        self.request_ids = ids;
        let mut keys = std::mem::take(&mut self.unique_keys);
        keys.retain(|_, taken| {
            self.living(taken.id).is_some() || taken.keep_until.is_none_or(|until| until > now)
        });
        self.unique_keys = keys;
    }
}
