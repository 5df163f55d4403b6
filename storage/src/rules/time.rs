//! What the clock alone does to a message.
//!
//! State is a function of the row and the store's time. Backends call [`pass`] on everything they load, so a lease that
//! ran out a millisecond ago is treated as ready although no sweep has moved its row yet.

use super::{Draft, bury};
use crate::model::{Cause, Failure, Limit, Millis, Place, Policy, Reason};

/// Moves the draft to where it is at `now`. Repeats until nothing more is due: a lease may run out, make the message
/// ready, and find it past its `expires_at`.
///
/// Dead-letter retention is not here: it is a sweep with an audit row, see [`super::operate::expire_dead`].
pub fn pass(draft: &mut Draft, policy: &Policy, now: Millis) {
    while step(draft, policy, now) {}
}

fn step(draft: &mut Draft, policy: &Policy, now: Millis) -> bool {
    let Some(message) = &mut draft.message else {
        return false;
    };
    match &message.place {
        Place::Leased(lease) if lease.expires_at <= now => {
            let (expired_at, bounds) = (lease.expires_at, lease.bounds);
            if draft.end_lease(expired_at, Cause::LeaseExpired, Failure::default(), false) {
                return false;
            }
            let Some(message) = &mut draft.message else {
                return false;
            };
            message.life.attempts += 1;
            message.life.expirations += 1;
            let limit = if bounds.last_attempt {
                Some(Limit::MaxAttempts)
            } else if bounds.last_expiration {
                Some(Limit::MaxLeaseExpirations)
            } else {
                None
            };
            if limit.is_some() {
                bury(draft, now, Reason::LeaseExpired, limit, true, None);
            } else {
                message.place = Place::Ready {
                    available_at: expired_at,
                };
            }
            true
        }
        Place::Ready { .. } | Place::Delayed { .. }
            if message.expires_at.is_some_and(|at| at <= now) =>
        {
            bury(
                draft,
                now,
                Reason::Expired,
                Some(Limit::ExpiresAt),
                false,
                None,
            );
            false
        }
        Place::Delayed { due_at } if *due_at <= now => {
            message.place = Place::Ready {
                available_at: *due_at,
            };
            true
        }
        Place::Ready { available_at }
            if available_at.saturating_add(policy.retention_ms) <= now =>
        {
            bury(
                draft,
                now,
                Reason::Expired,
                Some(Limit::Retention),
                false,
                None,
            );
            false
        }
        _ => false,
    }
}
