//! What time alone does: a walk over everything.

use super::state::State;
use crate::backend::{Call, Moved, Stir};
use crate::model::{DISCARD_UNDO_MS, End, Ended, Millis, OPERATION_MEMORY_MS, Place};
use crate::rules::{self, operate::expire_dead};

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
    pub(super) fn maintain(&mut self, now: Option<Millis>) {
        let now = self.clock.now(now);
        let policy_call = Call {
            actor: "policy".into(),
            ..Call::default()
        };
        for id in self.messages.keys().copied().collect::<Vec<_>>() {
            let mut draft = self.draft(id);
            let Some(message) = draft.message.clone() else {
                continue;
            };
            let policy = self.policy(message.envelope.queue);
            if expire_dead(&mut draft, &policy, now) {
                self.store(id, draft, now, &mut Stir::default());
                self.audit(&policy_call, End::DeadLetterExpired.as_str(), Some(id), now);
            }
            let Place::Discarded(discarded) = message.place else {
                continue;
            };
            let at = discarded.discarded_at;
            if at.saturating_add(DISCARD_UNDO_MS) <= now {
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
