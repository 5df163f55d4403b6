//! What operators, and the dead-letter retention, do to one message.

use super::{Draft, bury};
use crate::model::{Cause, DiscardCode, Discarded, End, Failure, Millis, Place, Policy, Reason};

/// An operator's decision about one message.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// Take a waiting message out for good.
    Cancel,
    /// Make a delayed message ready now.
    Promote,
    /// Quarantine a live message.
    DeadLetter,
    /// Give a dead letter another round.
    Redrive {
        /// Also above `max_redrives`, or although a completion is remembered.
        force: bool,
        /// A new life span from now.
        expires_in_ms: Option<Millis>,
    },
    /// Decide that a dead letter stays undone.
    Discard {
        /// Why.
        code: DiscardCode,
    },
    /// Take a discard back.
    Reopen,
}

impl Act {
    /// As written in audit rows.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Promote => "promote",
            Self::DeadLetter => "dead_letter",
            Self::Redrive { .. } => "redrive",
            Self::Discard { .. } => "discard",
            Self::Reopen => "reopen",
        }
    }
}

/// A decision that took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acted {
    /// As asked.
    Done,
    /// The message was held, and its remembered completion took effect instead.
    AckedSuperseded,
}

/// Why a decision was refused. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActRefused {
    /// No such message.
    NotFound,
    /// It is not a dead letter.
    NotDead,
    /// It is one already.
    AlreadyDead,
    /// It is not waiting: leased, dead or decided.
    NotWaiting,
    /// It is not delayed.
    NotDelayed,
    /// `max_redrives` is reached; force is needed.
    RedriveLimit,
    /// A worker has reported the work as done; force is needed.
    CompletionRemembered,
    /// Its `expires_at` is over; a new one is needed.
    Expired,
    /// It is not a discarded dead letter.
    NotDiscarded,
    /// It was discarded too long ago: its payload is gone.
    PayloadGone,
    /// Nobody has changed it since it died.
    NotEdited,
}

/// Decides one act and changes the draft accordingly. The caller has passed the time first.
pub fn act(
    draft: &mut Draft,
    act: &Act,
    policy: &Policy,
    now: Millis,
) -> Result<Acted, ActRefused> {
    let Some(message) = &mut draft.message else {
        return Err(ActRefused::NotFound);
    };
    match act {
        Act::Cancel => match message.place {
            Place::Ready { .. } | Place::Delayed { .. } => {
                draft.end(End::Cancelled, now, 0, None);
                Ok(Acted::Done)
            }
            _ => Err(ActRefused::NotWaiting),
        },
        Act::Promote => match message.place {
            Place::Delayed { .. } => {
                message.place = Place::Ready { available_at: now };
                Ok(Acted::Done)
            }
            _ => Err(ActRefused::NotDelayed),
        },
        Act::DeadLetter => {
            match message.place {
                Place::Dead(_) => return Err(ActRefused::AlreadyDead),
                Place::Discarded(_) => return Err(ActRefused::NotFound),
                Place::Leased(_) | Place::Ready { .. } | Place::Delayed { .. } => {}
            }
            if draft.end_lease(now, Cause::Operator, Failure::default(), false) {
                return Ok(Acted::AckedSuperseded);
            }
            bury(draft, now, Reason::Operator, None, false, None);
            Ok(Acted::Done)
        }
        Act::Redrive {
            force,
            expires_in_ms,
        } => {
            if !matches!(message.place, Place::Dead(_)) {
                let gone = matches!(message.place, Place::Discarded(_));
                return Err(if gone {
                    ActRefused::NotFound
                } else {
                    ActRefused::NotDead
                });
            }
            let expires_at = expires_in_ms
                .map(|ms| now.saturating_add(ms))
                .or(message.expires_at);
            if expires_at.is_some_and(|at| at <= now) {
                return Err(ActRefused::Expired);
            }
            if !force && message.life.redrives >= policy.max_redrives as i32 {
                return Err(ActRefused::RedriveLimit);
            }
            if !force && message.completion.is_some() {
                return Err(ActRefused::CompletionRemembered);
            }
            message.life.attempts = 0;
            message.life.expirations = 0;
            message.life.releases = 0;
            message.life.redrives += 1;
            message.completion = None;
            message.expires_at = expires_at;
            message.place = Place::Ready { available_at: now };
            draft.tally.redriven += 1;
            Ok(Acted::Done)
        }
        Act::Discard { .. } => match &message.place {
            Place::Dead(dead) => {
                message.place = Place::Discarded(Discarded {
                    discarded_at: now,
                    payload_kept: true,
                    dead: dead.clone(),
                });
                draft.tally.discarded += 1;
                Ok(Acted::Done)
            }
            Place::Discarded(_) => Err(ActRefused::NotFound),
            _ => Err(ActRefused::NotDead),
        },
        // Its key, if it has to be unique, may belong to another message by now: the store looks before it writes.
        Act::Reopen => match &message.place {
            Place::Discarded(discarded) if discarded.payload_kept => {
                message.place = Place::Dead(discarded.dead.clone());
                draft.tally.reopened += 1;
                Ok(Acted::Done)
            }
            Place::Discarded(_) => Err(ActRefused::PayloadGone),
            _ => Err(ActRefused::NotDiscarded),
        },
    }
}

/// Notes that the payload or the headers of a dead letter are changed, or are as they were when it died. From then on a
/// worker that still has it is told so ([`settle`](super::settle)).
pub fn edit(draft: &mut Draft, undo: bool) -> Result<(), ActRefused> {
    match draft.message.as_mut().map(|m| &mut m.place) {
        Some(Place::Dead(dead)) if undo && !dead.edited => Err(ActRefused::NotEdited),
        Some(Place::Dead(dead)) => {
            dead.edited = !undo;
            Ok(())
        }
        Some(Place::Discarded(_)) | None => Err(ActRefused::NotFound),
        Some(_) => Err(ActRefused::NotDead),
    }
}

/// Ends a dead letter whose `dead_letter_retention_seconds` are over. `false`: not yet.
pub fn expire_dead(draft: &mut Draft, policy: &Policy, now: Millis) -> bool {
    let Some(message) = &draft.message else {
        return false;
    };
    let Place::Dead(dead) = &message.place else {
        return false;
    };
    let over = policy
        .dead_letter_retention_ms
        .is_some_and(|kept| dead.died_at.saturating_add(kept) <= now);
    if over {
        draft.end(End::DeadLetterExpired, now, 0, None);
    }
    over
}

/// Notes that the payload of a discarded dead letter is gone: the time for second thoughts is over.
pub fn drop_payload(draft: &mut Draft) {
    if let Some(Place::Discarded(discarded)) = draft.message.as_mut().map(|m| &mut m.place) {
        discarded.payload_kept = false;
    }
}

/// Ends the memory of a discarded dead letter; the caller knows that it was kept long enough. The discard was counted when
/// it was decided.
pub fn forget_discarded(draft: &mut Draft) {
    let Some(message) = &draft.message else {
        return;
    };
    let Place::Discarded(discarded) = &message.place else {
        return;
    };
    let at = discarded.discarded_at;
    draft.end(End::Discarded, at, 0, None);
    draft.tally.discarded -= 1;
}
