//! Ack, nack, release, extend and give-back, with the late-settle table of product 4.5.

use super::{Draft, backoff, bounds, bury, group};
use crate::known_bug;
use crate::model::{
    Bounds, Cause, Completion, Dead, Delivered, End, Failure, LateAck, Lease, Limit,
    MAX_LEASE_FROM_HANDOUT_MS, MIN_END_MEMORY_MS, Millis, Place, Policy, Reason,
};
use std::sync::Arc;

/// What a worker says about one delivery.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// The work is done.
    Ack {
        /// What came of it, as JSON text.
        outcome: Option<Arc<str>>,
    },
    /// The work failed.
    Nack {
        /// Why, already cleaned and cut.
        failure: Failure,
        /// Replaces the backoff.
        delay_ms: Option<Millis>,
        /// Repeating is useless.
        permanent: bool,
    },
    /// Not worked on; give it to somebody else.
    Release {
        /// `None` = back to its old place.
        delay_ms: Option<Millis>,
    },
    /// Still working.
    Extend {
        /// The lease ends this long from now.
        visibility_timeout_ms: Millis,
    },
    /// The server could not deliver its answer. Never sent by a client.
    GiveBack,
}

impl Action {
    fn cause(&self) -> Option<Cause> {
        match self {
            Self::Ack { .. } => Some(Cause::Ack),
            Self::Nack {
                permanent: false, ..
            } => Some(Cause::Nack),
            Self::Nack {
                permanent: true, ..
            } => Some(Cause::Permanent),
            Self::Release { .. } => Some(Cause::Release),
            Self::Extend { .. } | Self::GiveBack => None,
        }
    }
}

/// One settle or extend: which delivery, and what about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// The delivery that the receipt names.
    pub fence: i32,
    /// When that delivery was handed out.
    pub handed_out_at: Millis,
    /// What the worker says.
    pub action: Action,
    /// Places the backoff inside its jitter: in [0, 1).
    pub chance: f64,
}

/// A settle or extend that took effect, or had before.
#[derive(Clone, Debug, PartialEq)]
pub enum Settled {
    /// The message is done.
    Acked {
        /// After its lease.
        late: bool,
        /// After another delivery of the same message.
        superseded: bool,
    },
    /// It comes again.
    RetryScheduled {
        /// After its lease.
        late: bool,
        /// When it is ready again.
        next_attempt_at: Millis,
        /// Failures that remain.
        attempts_left: i32,
    },
    /// It is a dead letter now.
    DeadLettered {
        /// After its lease.
        late: bool,
        /// Failures that remain: 0 unless the failure was permanent or another bound was met.
        attempts_left: i32,
    },
    /// The present lease ended and a completion of an earlier delivery took effect.
    AckedSuperseded,
    /// Back in the queue.
    Released,
    /// The lease has a new end.
    Extended {
        /// The new end.
        lease_expires_at: Millis,
        /// Cut to 24 h from the hand-out.
        capped: bool,
        /// An earlier delivery has reported the work done: stop if you can.
        superseded_completion: bool,
    },
    /// A repeat of what happened before; `end` where the message is gone.
    Already {
        /// How it went.
        end: Option<End>,
    },
}

/// Why a settle or extend was refused. Nothing changed, unless `remembered` says that the completion was kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The lease is over and this needs a live one.
    LeaseExpired,
    /// Another delivery has, or had, the message.
    LeaseSuperseded {
        /// The completion is kept and takes effect when the present lease ends.
        remembered: bool,
    },
    /// An operator took the message out.
    TakenByOperator {
        /// The completion is kept on the dead letter.
        remembered: bool,
    },
    /// This delivery was settled otherwise before.
    ReceiptSpent,
    /// The message is gone.
    MessageGone,
    /// The receipt names a delivery that this store has not made.
    FromBeforeRestore,
}

/// Decides one claim and changes the draft accordingly. The caller has passed the time first.
pub fn settle(
    draft: &mut Draft,
    claim: &Claim,
    policy: &Policy,
    now: Millis,
) -> Result<Settled, Refused> {
    let fate = draft.fate(claim.fence).map(|d| d.cause);
    if let Some(answer) = fate.and_then(|cause| repeat_of(cause, &claim.action, draft)) {
        return answer;
    }
    let strict = policy.late_ack == LateAck::Strict;
    if strict && fate == Some(Cause::LeaseExpired) {
        return Err(Refused::LeaseExpired);
    }
    let Some(message) = &draft.message else {
        return gone(draft, claim, now);
    };
    if claim.fence > message.life.fence {
        return Err(Refused::FromBeforeRestore);
    }
    let any_ack = matches!(claim.action, Action::Ack { .. });
    let own = claim.fence == message.life.fence || known_bug!("ack-ignores-the-fence") && any_ack;
    if strict && fate.is_none() && !own {
        // A delivery from the middle of a history too long to be kept: it ended, and nobody settled it since.
        return Err(Refused::LeaseExpired);
    }
    match &message.place {
        Place::Leased(_) if own => in_time(draft, claim, policy, now),
        Place::Leased(_) if known_bug!("late-ack-taken-from-the-present-holder") => {
            superseded(draft, claim, now)
        }
        Place::Leased(_) => superseded_while_leased(draft, claim),
        Place::Discarded(_) => taken_by_operator(draft, claim),
        Place::Dead(dead) if dead.edited || dead.reason == Reason::Operator => {
            taken_by_operator(draft, claim)
        }
        _ if own => late(draft, claim, policy, now),
        _ => superseded(draft, claim, now),
    }
}

/// The answer when delivery `claim.fence` was settled before: first wins.
fn repeat_of(cause: Cause, action: &Action, draft: &Draft) -> Option<Result<Settled, Refused>> {
    match cause {
        Cause::LeaseExpired | Cause::GivenBack | Cause::Operator => None,
        Cause::Nack | Cause::Permanent | Cause::Release | Cause::Ack => {
            if matches!(action, Action::GiveBack) {
                return Some(Err(Refused::ReceiptSpent));
            }
            let end = draft
                .message
                .is_none()
                .then(|| draft.ended.as_ref().map_or(End::Gone, |e| e.end));
            Some(if action.cause() == Some(cause) {
                Ok(Settled::Already { end })
            } else {
                Err(Refused::ReceiptSpent)
            })
        }
    }
}

/// Every end but a plain first ack leaves a record for at least [`MIN_END_MEMORY_MS`], so for that long no record means
/// that the delivery which asks acked it.
fn gone(draft: &Draft, claim: &Claim, now: Millis) -> Result<Settled, Refused> {
    let plainly_acked =
        draft.ended.is_none() && now < claim.handed_out_at.saturating_add(MIN_END_MEMORY_MS);
    let end = if plainly_acked {
        End::Acked
    } else {
        draft.ended.as_ref().map_or(End::Gone, |e| e.end)
    };
    let acked_by_this = draft.ended.as_ref().map_or(plainly_acked, |e| {
        e.end == End::Acked && e.fence == claim.fence
    });
    match claim.action {
        Action::Ack { .. } => Ok(Settled::Already { end: Some(end) }),
        _ if acked_by_this => Err(Refused::ReceiptSpent),
        _ => Err(Refused::MessageGone),
    }
}

fn in_time(
    draft: &mut Draft,
    claim: &Claim,
    policy: &Policy,
    now: Millis,
) -> Result<Settled, Refused> {
    let Some(message) = &mut draft.message else {
        return Err(Refused::MessageGone);
    };
    let Place::Leased(lease) = &mut message.place else {
        return Err(Refused::LeaseExpired);
    };
    let (lease_bounds, old_place) = (lease.bounds, lease.available_at);
    match &claim.action {
        Action::Extend {
            visibility_timeout_ms,
        } => {
            let (expires_at, capped) = extended(lease.leased_at, *visibility_timeout_ms, now);
            lease.expires_at = expires_at;
            let superseded_completion = message.completion.is_some();
            Ok(Settled::Extended {
                lease_expires_at: expires_at,
                capped,
                superseded_completion,
            })
        }
        Action::Ack { outcome } => {
            // The holder's own ack and outcome win over a remembered completion.
            message.completion = None;
            draft.end_lease(now, Cause::Ack, Failure::default(), false);
            draft.end(End::Acked, now, claim.fence, outcome.clone());
            Ok(Settled::Acked {
                late: false,
                superseded: false,
            })
        }
        Action::Nack {
            failure,
            delay_ms,
            permanent,
        } => {
            let cause = if *permanent {
                Cause::Permanent
            } else {
                Cause::Nack
            };
            if draft.end_lease(now, cause, failure.clone(), false) {
                return Ok(Settled::AckedSuperseded);
            }
            if let Some(message) = &mut draft.message {
                message.life.attempts += 1;
            }
            Ok(failed(
                draft,
                claim,
                policy,
                now,
                lease_bounds,
                *delay_ms,
                *permanent,
                failure,
                false,
            ))
        }
        Action::Release { delay_ms } => {
            if draft.end_lease(now, Cause::Release, Failure::default(), false) {
                return Ok(Settled::AckedSuperseded);
            }
            let Some(message) = &mut draft.message else {
                return Err(Refused::MessageGone);
            };
            message.life.releases += 1;
            if known_bug!("attempt-lowered-on-release") {
                message.life.attempts = (message.life.attempts - 1).max(0);
            }
            if policy
                .max_releases
                .is_some_and(|max| message.life.releases > max as i32)
            {
                let attempts_left = (message.max_attempts(policy) - message.life.attempts).max(0);
                bury(
                    draft,
                    now,
                    Reason::ReleaseLimit,
                    Some(Limit::MaxReleases),
                    false,
                    None,
                );
                return Ok(Settled::DeadLettered {
                    late: false,
                    attempts_left,
                });
            }
            message.place = match delay_ms {
                Some(delay) if *delay > 0 => Place::Delayed {
                    due_at: now.saturating_add(*delay),
                },
                _ => Place::Ready {
                    available_at: old_place,
                },
            };
            Ok(Settled::Released)
        }
        Action::GiveBack => {
            if draft.end_lease(now, Cause::GivenBack, Failure::default(), false) {
                return Ok(Settled::AckedSuperseded);
            }
            if let Some(message) = &mut draft.message {
                message.place = Place::Ready {
                    available_at: old_place,
                };
            }
            Ok(Settled::Released)
        }
    }
}

/// Where a message goes after a counted failure.
#[expect(
    clippy::too_many_arguments,
    reason = "all of them are the facts of one failure"
)]
fn failed(
    draft: &mut Draft,
    claim: &Claim,
    policy: &Policy,
    now: Millis,
    bounds: Bounds,
    delay_ms: Option<Millis>,
    permanent: bool,
    failure: &Failure,
    late: bool,
) -> Settled {
    let Some(message) = &mut draft.message else {
        return Settled::DeadLettered {
            late,
            attempts_left: 0,
        };
    };
    let attempts_left = (message.max_attempts(policy) - message.life.attempts).max(0);
    if permanent {
        bury(
            draft,
            now,
            Reason::PermanentFailure,
            None,
            false,
            failure.code.clone(),
        );
        return Settled::DeadLettered {
            late,
            attempts_left,
        };
    }
    if bounds.last_attempt {
        bury(
            draft,
            now,
            Reason::MaxAttempts,
            Some(Limit::MaxAttempts),
            false,
            failure.code.clone(),
        );
        return Settled::DeadLettered {
            late,
            attempts_left: 0,
        };
    }
    let kind = message.envelope.backoff.as_ref().unwrap_or(&policy.backoff);
    let wait = delay_ms.unwrap_or_else(|| backoff::wait(kind, message.life.attempts, claim.chance));
    let next_attempt_at = now.saturating_add(wait);
    message.place = if wait > 0 {
        Place::Delayed {
            due_at: next_attempt_at,
        }
    } else {
        Place::Ready { available_at: now }
    };
    Settled::RetryScheduled {
        late,
        next_attempt_at,
        attempts_left: attempts_left.max(1),
    }
}

fn extended(leased_at: Millis, visibility_timeout_ms: Millis, now: Millis) -> (Millis, bool) {
    let wanted = now.saturating_add(visibility_timeout_ms);
    let cap = leased_at.saturating_add(MAX_LEASE_FROM_HANDOUT_MS);
    (wanted.min(cap), wanted > cap)
}

/// The message is held by another delivery: only evidence of finished work changes anything.
fn superseded_while_leased(draft: &mut Draft, claim: &Claim) -> Result<Settled, Refused> {
    let Action::Ack { outcome } = &claim.action else {
        return Err(Refused::LeaseSuperseded { remembered: false });
    };
    remember(draft, claim.fence, outcome.clone());
    Err(Refused::LeaseSuperseded { remembered: true })
}

fn taken_by_operator(draft: &mut Draft, claim: &Claim) -> Result<Settled, Refused> {
    let Action::Ack { outcome } = &claim.action else {
        return Err(Refused::TakenByOperator { remembered: false });
    };
    remember(draft, claim.fence, outcome.clone());
    Err(Refused::TakenByOperator { remembered: true })
}

fn remember(draft: &mut Draft, fence: i32, outcome: Option<Arc<str>>) {
    if let Some(message) = &mut draft.message
        && message.completion.is_none()
    {
        message.completion = Some(Completion { fence, outcome });
    }
}

/// Delivery d is the latest one and its lease is over.
fn late(
    draft: &mut Draft,
    claim: &Claim,
    policy: &Policy,
    now: Millis,
) -> Result<Settled, Refused> {
    let ended = draft.fate(claim.fence).cloned();
    let counted = ended
        .as_ref()
        .is_some_and(|d| d.cause == Cause::LeaseExpired);
    let Some(message) = &mut draft.message else {
        return Err(Refused::MessageGone);
    };
    match (&claim.action, &mut message.place) {
        (Action::Ack { outcome }, _) => {
            draft.record(late_record(
                claim,
                ended,
                now,
                Cause::Ack,
                Failure::default(),
            ));
            draft.end(End::Acked, now, claim.fence, outcome.clone());
            Ok(Settled::Acked {
                late: true,
                superseded: false,
            })
        }
        (
            Action::Nack {
                failure, permanent, ..
            },
            Place::Dead(dead),
        ) => {
            let cause = if *permanent {
                Cause::Permanent
            } else {
                Cause::Nack
            };
            let reason = match dead.reason {
                // Died of the expiration that now turns out to be a failure.
                Reason::LeaseExpired if *permanent => Reason::PermanentFailure,
                Reason::LeaseExpired => Reason::MaxAttempts,
                other => other,
            };
            *dead = Dead {
                reason,
                by_expiry: false,
                error_code: failure.code.clone(),
                group: group::of(reason, failure.code.as_deref(), failure.detail.as_deref()),
                ..dead.clone()
            };
            message.life.expirations = (message.life.expirations - i32::from(counted)).max(0);
            let attempts_left = (message.max_attempts(policy) - message.life.attempts).max(0);
            draft.record(late_record(claim, ended, now, cause, failure.clone()));
            Ok(Settled::DeadLettered {
                late: true,
                attempts_left,
            })
        }
        (
            Action::Nack {
                failure,
                delay_ms,
                permanent,
            },
            _,
        ) => {
            let cause = if *permanent {
                Cause::Permanent
            } else {
                Cause::Nack
            };
            if counted {
                message.life.expirations = (message.life.expirations - 1).max(0);
            } else {
                message.life.attempts += 1;
            }
            let last_attempt = message.life.attempts >= message.max_attempts(policy);
            draft.record(late_record(claim, ended, now, cause, failure.clone()));
            let bounds = Bounds {
                last_attempt,
                last_expiration: false,
            };
            Ok(failed(
                draft, claim, policy, now, bounds, *delay_ms, *permanent, failure, true,
            ))
        }
        (
            Action::Extend {
                visibility_timeout_ms,
            },
            Place::Ready { available_at },
        ) if (counted && message.life.expirations > 0)
            || ended.as_ref().is_some_and(|d| d.cause == Cause::GivenBack) =>
        {
            let available_at = *available_at;
            if counted {
                message.life.expirations -= 1;
                message.life.attempts -= 1;
            }
            let (expires_at, capped) = extended(claim.handed_out_at, *visibility_timeout_ms, now);
            if expires_at <= now {
                // 24 h from the hand-out are over: there is nothing left to extend.
                message.life.expirations += i32::from(counted);
                message.life.attempts += i32::from(counted);
                return Err(Refused::LeaseExpired);
            }
            message.place = Place::Leased(Lease {
                leased_at: claim.handed_out_at,
                expires_at,
                available_at,
                bounds: bounds(message, policy),
                worker: ended.and_then(|d| d.worker),
            });
            draft.forget(claim.fence);
            Ok(Settled::Extended {
                lease_expires_at: expires_at,
                capped,
                superseded_completion: false,
            })
        }
        (Action::Extend { .. } | Action::Release { .. } | Action::GiveBack, _) => {
            Err(Refused::LeaseExpired)
        }
    }
}

fn late_record(
    claim: &Claim,
    ended: Option<Delivered>,
    now: Millis,
    cause: Cause,
    failure: Failure,
) -> Delivered {
    Delivered {
        fence: claim.fence,
        attempt: ended.as_ref().map_or(claim.fence, |d| d.attempt),
        leased_at: claim.handed_out_at,
        ended_at: now,
        cause,
        late: true,
        worker: ended.and_then(|d| d.worker),
        failure,
    }
}

/// Another delivery came after d, and nobody holds the message now.
fn superseded(draft: &mut Draft, claim: &Claim, now: Millis) -> Result<Settled, Refused> {
    let Action::Ack { outcome } = &claim.action else {
        return Err(Refused::LeaseSuperseded { remembered: false });
    };
    let ended = draft.fate(claim.fence).cloned();
    draft.record(late_record(
        claim,
        ended,
        now,
        Cause::Ack,
        Failure::default(),
    ));
    draft.end(End::Acked, now, claim.fence, outcome.clone());
    Ok(Settled::Acked {
        late: true,
        superseded: true,
    })
}
