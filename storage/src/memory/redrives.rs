//! Bulk decisions: begin, steer, step.

use super::operate::On;
use super::state::State;
use crate::backend::{Answer, Call, OperationRefused as No, Stir};
use crate::model::{MessageId, Millis, Place};
use crate::redrives::{
    BulkAction, Redrive, RedriveId, RedriveListing, RedrivePlan, RedriveState, Steer, Stepped,
};
use crate::rules::bulk::{self, Next, Took};
use crate::rules::operate::{Act, act};
use crate::rules::trail::Trail;

impl State {
    pub(super) fn start_redrive(
        &mut self,
        call: &Call,
        plan: RedrivePlan,
        now: Millis,
    ) -> Result<Answer, No> {
        let selection = self
            .selections
            .get(&plan.selection)
            .ok_or(No::SelectionNotFound)?;
        let (queue, count) = (selection.queue, selection.figures.count);
        if selection.expires_at <= now {
            return Err(No::SelectionExpired);
        }
        if plan.expected_count != count {
            return Err(No::CountMismatch { actual: count });
        }
        let id = RedriveId(self.redrives.keys().next_back().map_or(0, |id| id.0) + 1);
        let mut redrive = Redrive::new(id, queue, plan, count, now);
        redrive.actor = call.actor.to_string();
        redrive.justification = call.justification.as_deref().map(str::to_owned);
        let trail = Trail::redrive(None, &redrive);
        self.redrives.insert(id, redrive);
        self.audit_redrive(call, "start_redrive", id, trail, now);
        Ok(Answer::Redrive { id: id.0 })
    }

    pub(super) fn steer_redrive(
        &mut self,
        call: &Call,
        id: RedriveId,
        steer: Steer,
        now: Millis,
    ) -> Result<Answer, No> {
        let redrive = self.redrives.get_mut(&id).ok_or(No::RedriveNotFound)?;
        let before = redrive.clone();
        if !bulk::steer(redrive, steer, now) {
            return Err(No::RedriveFinished);
        }
        let trail = Trail::redrive(Some(&before), redrive);
        self.audit_redrive(call, steer.as_str(), id, trail, now);
        Ok(Answer::Redrive { id: id.0 })
    }

    fn audit_redrive(
        &mut self,
        call: &Call,
        action: &str,
        id: RedriveId,
        trail: Trail,
        now: Millis,
    ) {
        let on = On {
            queue: self.redrives.get(&id).map(|r| r.queue),
            message: None,
            redrive: Some(id),
        };
        self.audit(call, action, on, trail, now);
    }

    pub(super) fn redrives_of(&self, listing: &RedriveListing) -> Vec<Redrive> {
        let wanted = |r: &&Redrive| {
            listing
                .queues
                .as_ref()
                .is_none_or(|queues| queues.contains(&r.queue))
                && listing.state.is_none_or(|state| r.state == state)
                && listing.before.is_none_or(|before| r.id < before)
        };
        self.redrives
            .values()
            .rev()
            .filter(wanted)
            .take(listing.limit as usize)
            .cloned()
            .collect()
    }

    /// The one that is due first makes a step.
    pub(super) fn step_redrives(&mut self, now: Option<Millis>) -> Stepped {
        let now = self.clock.now(now);
        let mut stepped = Stepped {
            now,
            ..Stepped::default()
        };
        let first = self
            .under_way()
            .filter(|r| r.next_at <= now)
            .map(|r| (r.next_at, r.id))
            .min();
        if let Some((_, id)) = first {
            stepped.stepped = true;
            self.step(id, now, &mut stepped.stir);
        }
        stepped.next_at = self.under_way().map(|r| r.next_at).min();
        stepped
    }

    fn under_way(&self) -> impl Iterator<Item = &Redrive> {
        self.redrives
            .values()
            .filter(|r| !r.state.is_final() && r.state != RedriveState::Paused)
    }

    fn step(&mut self, id: RedriveId, now: Millis, stir: &mut Stir) {
        let Some(mut redrive) = self.redrives.get(&id).cloned() else {
            return;
        };
        let canary_left = self.canary_left(&redrive);
        if let Next::Take(limit) = bulk::next(&mut redrive, canary_left, now) {
            let took = self.take(&redrive, limit, now, stir);
            bulk::took(&mut redrive, &took, now);
        }
        let ended = redrive.finished_at.is_some();
        let trail = Trail::redrive(None, &redrive);
        let word = match redrive.state {
            RedriveState::Aborted => "abort_redrive",
            _ => "finish_redrive",
        };
        self.redrives.insert(id, redrive);
        if ended {
            self.audit_redrive(&Call::by("policy"), word, id, trail, now);
        }
    }

    /// How many of the first messages are still waiting or leased.
    fn canary_left(&self, redrive: &Redrive) -> u32 {
        let first = i64::from(redrive.plan.canary.map_or(0, |canary| canary.count));
        let left = self.redriven.iter().filter(|(message, (by, place))| {
            let live = self.messages.get(message).is_some_and(|row| {
                !matches!(row.message.place, Place::Dead(_) | Place::Discarded(_))
            });
            *by == redrive.id && *place <= first && live
        });
        left.count() as u32
    }

    /// Decides the next messages of the selection, at most `limit`.
    fn take(&mut self, redrive: &Redrive, limit: u32, now: Millis, stir: &mut Stir) -> Took {
        let mut took = Took::default();
        let plan = &redrive.plan;
        let Some(filter) = self
            .selections
            .get(&plan.selection)
            .map(|s| s.filter.clone())
        else {
            took.exhausted = true;
            return took;
        };
        let what = match plan.action {
            BulkAction::Redrive => Act::Redrive {
                force: plan.force,
                expires_in_ms: None,
            },
            BulkAction::Discard(code) => Act::Discard { code },
        };
        let call = Call {
            actor: redrive.actor.as_str().into(),
            justification: redrive.justification.as_deref().map(Into::into),
            ..Call::default()
        };
        let mut dead: Vec<(Millis, MessageId)> = self
            .messages_of(redrive.queue)
            .into_iter()
            .filter_map(|id| {
                let message = &self.messages.get(&id)?.message;
                let Place::Dead(dead) = &message.place else {
                    return None;
                };
                let wanted = filter.matches(message) && self.is_selected(plan.selection, id);
                wanted.then_some((dead.died_at, id))
            })
            .filter(|(at, id)| redrive.cursor.is_none_or(|cursor| (*at, id.0) > cursor))
            .collect();
        dead.sort_unstable();
        for (at, id) in dead {
            if took.moved == i64::from(limit) {
                return took;
            }
            took.cursor = Some((at, id.0));
            let done = if plan.dry_run {
                let mut draft = self.load(id, now);
                act(&mut draft, &what, &self.policy(redrive.queue), now)
            } else {
                self.act(&call, id, &what, Some(redrive.id), now, stir)
            };
            match done {
                Ok(_) => {
                    took.moved += 1;
                    if plan.action == BulkAction::Redrive && !plan.dry_run {
                        let place = redrive.moved + took.moved;
                        self.redriven.insert(id, (redrive.id, place));
                    }
                }
                Err(why) => took.refused(why),
            }
        }
        took.exhausted = true;
        took
    }
}
