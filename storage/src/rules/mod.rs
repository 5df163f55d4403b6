//! The state machine of product §3 and §4 as pure functions: no I/O, no clock, no randomness.
//!
//! Reading order: [`Draft`] (one message while a batch works on it) → [`time`] (what the clock alone does) →
//! [`settle`] (ack, nack, release, extend, give-back and the late-settle table) → [`operate`] (what operators do) →
//! [`bulk`] (how a redrive of many goes on) → [`backoff`], [`group`], [`trail`] (what audit rows say).
//!
//! Every backend loads a [`Draft`], calls these functions, and writes the difference between what it loaded and what the
//! draft says now. So a decision exists once, and the stores differ only in how they load and write. Statements that take
//! a short cut (a plain publish, hand-out or ack) handle exactly the case in which these functions would say the same.

pub mod backoff;
pub mod bulk;
pub mod group;
pub mod operate;
pub mod settle;
pub mod time;
pub mod trail;

use crate::known_bug;
use crate::model::{
    Bounds, Cause, Completion, Counts, Dead, Delivered, End, Ended, Envelope, Lease, Life, Limit,
    Millis, Place, Policy, Reason, State,
};
use std::sync::Arc;

/// One message as stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// What was published.
    pub envelope: Arc<Envelope>,
    /// Counters.
    pub life: Life,
    /// Where it is.
    pub place: Place,
    /// Finished by a delivery that no longer held it.
    pub completion: Option<Completion>,
    /// The present `expires_at`; a redrive may set a new one.
    pub expires_at: Option<Millis>,
}

impl Message {
    /// The message's attempt limit under `policy`.
    pub fn max_attempts(&self, policy: &Policy) -> i32 {
        self.envelope.max_attempts.unwrap_or(policy.max_attempts) as i32
    }

    /// Where it is, as a word.
    pub fn state(&self) -> State {
        match self.place {
            Place::Delayed { .. } => State::Delayed,
            Place::Ready { .. } => State::Ready,
            Place::Leased(_) => State::Leased,
            Place::Dead(_) => State::Dead,
            Place::Discarded(_) => State::Ended,
        }
    }
}

/// A change to the history of deliveries.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// Write (or write over) this delivery.
    Put(Delivered),
    /// The delivery lives again: forget its end.
    Drop(i32),
}

/// A message while a batch works on it: what was loaded, changed in place.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    /// The message; `None` when it is gone.
    pub message: Option<Message>,
    /// How it went, where that is remembered.
    pub ended: Option<Ended>,
    /// Deliveries that ended, as far as loaded: at least those that the batch's receipts name and the latest one.
    pub history: Vec<Delivered>,
    /// History changes to write, in order.
    pub records: Vec<Record>,
    /// What changed in the totals. The gauges follow from the places.
    pub tally: Tally,
}

/// Totals that grew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Finished.
    pub acked: i64,
    /// Discarded or cancelled.
    pub discarded: i64,
    /// Discards undone.
    pub reopened: i64,
    /// Ended by dead-letter retention.
    pub dead_letter_expired: i64,
    /// Hand-outs.
    pub delivered: i64,
    /// Redrives.
    pub redriven: i64,
}

impl Draft {
    /// A draft of a message that is there.
    pub fn of(message: Message, history: Vec<Delivered>) -> Self {
        Self {
            message: Some(message),
            history,
            ..Self::default()
        }
    }

    /// A draft of a message that is gone.
    pub fn gone(ended: Option<Ended>, history: Vec<Delivered>) -> Self {
        Self {
            ended,
            history,
            ..Self::default()
        }
    }

    /// How delivery `fence` ended, as far as loaded and changed.
    pub fn fate(&self, fence: i32) -> Option<&Delivered> {
        self.history.iter().rev().find(|d| d.fence == fence)
    }

    /// The latest delivery that ended.
    pub fn last(&self) -> Option<&Delivered> {
        self.history.iter().max_by_key(|d| d.fence)
    }

    fn record(&mut self, delivered: Delivered) {
        self.history.retain(|d| d.fence != delivered.fence);
        self.history.push(delivered.clone());
        self.records.push(Record::Put(delivered));
    }

    fn forget(&mut self, fence: i32) {
        self.history.retain(|d| d.fence != fence);
        self.records.push(Record::Drop(fence));
    }

    fn end(&mut self, end: End, at: Millis, fence: i32, outcome: Option<Arc<str>>) {
        self.message = None;
        self.ended = Some(Ended {
            end,
            at,
            fence,
            outcome,
        });
        match end {
            End::Acked => self.tally.acked += 1,
            End::Discarded | End::Cancelled => self.tally.discarded += 1,
            End::DeadLetterExpired => self.tally.dead_letter_expired += 1,
            End::Purged | End::Gone => {}
        }
    }

    /// Ends the present lease with `cause`. When a completion is remembered, that settles the message as acked and the
    /// answer is `true`; else the caller decides where the message goes.
    fn end_lease(
        &mut self,
        now: Millis,
        cause: Cause,
        failure: crate::model::Failure,
        late: bool,
    ) -> bool {
        let Some(message) = &self.message else {
            return false;
        };
        let Place::Leased(lease) = &message.place else {
            return false;
        };
        let delivered = Delivered {
            fence: message.life.fence,
            attempt: message.life.attempts + 1,
            leased_at: lease.leased_at,
            ended_at: now,
            cause,
            late,
            worker: lease.worker.clone(),
            failure,
        };
        let completion = message.completion.clone();
        self.record(delivered);
        if let Some(completion) = completion {
            self.end(End::Acked, now, completion.fence, completion.outcome);
            return true;
        }
        false
    }
}

/// Hands a ready message out: the caller has passed the time first ([`time::pass`]).
///
/// A message that is already at a limit (lowered since) goes to the dead letters instead and the answer is `false`.
pub fn hand_out(
    draft: &mut Draft,
    policy: &Policy,
    lease_ms: Millis,
    worker: Option<Arc<str>>,
    now: Millis,
) -> bool {
    let last = draft.last().map(|d| d.cause);
    let Some(message) = &mut draft.message else {
        return false;
    };
    let Place::Ready { available_at } = message.place else {
        return false;
    };
    if let Some(limit) = limit_reached(message, policy) {
        let reason = if last == Some(Cause::LeaseExpired) {
            Reason::LeaseExpired
        } else {
            Reason::MaxAttempts
        };
        bury(draft, now, reason, Some(limit), false, None);
        return false;
    }
    message.life.fence += 1;
    let bounds = bounds(message, policy);
    message.place = Place::Leased(Lease {
        leased_at: now,
        expires_at: now.saturating_add(lease_ms),
        available_at,
        bounds,
        worker,
    });
    draft.tally.delivered += 1;
    true
}

/// The limits that the next failure of this message meets.
pub fn bounds(message: &Message, policy: &Policy) -> Bounds {
    Bounds {
        last_attempt: message.life.attempts + 1 >= message.max_attempts(policy),
        last_expiration: message.life.expirations + 1 >= policy.max_lease_expirations as i32,
    }
}

fn limit_reached(message: &Message, policy: &Policy) -> Option<Limit> {
    if message.life.attempts >= message.max_attempts(policy) {
        Some(Limit::MaxAttempts)
    } else if message.life.expirations >= policy.max_lease_expirations as i32 {
        Some(Limit::MaxLeaseExpirations)
    } else {
        None
    }
}

fn bury(
    draft: &mut Draft,
    now: Millis,
    reason: Reason,
    limit: Option<Limit>,
    by_expiry: bool,
    error_code: Option<Arc<str>>,
) {
    let error_code = error_code.or_else(|| draft.last().and_then(|d| d.failure.code.clone()));
    let detail = draft.last().and_then(|d| d.failure.detail.clone());
    if let Some(message) = &mut draft.message {
        let group = group::of(reason, error_code.as_deref(), detail.as_deref());
        message.place = Place::Dead(Dead {
            died_at: now,
            reason,
            limit,
            by_expiry,
            edited: false,
            error_code,
            group,
        });
    }
}

/// Whether the end of a message is worth a record. The plain case, a first delivery acked without an outcome and without
/// a unique key, is not: an absent message with no record was acked.
pub fn remembers_end(envelope: &Envelope, fence: i32, ended: &Ended, policy: &Policy) -> bool {
    ended.end != End::Acked
        || fence > 1
        || ended.outcome.is_some()
        || (policy.unique_key && envelope.key.is_some())
}

/// Until when the record of an end is kept; `None` = for ever.
pub fn end_kept_until(envelope: &Envelope, ended_at: Millis, policy: &Policy) -> Option<Millis> {
    let plain = policy
        .dedupe_window_ms
        .saturating_mul(2)
        .max(crate::model::MIN_END_MEMORY_MS);
    if policy.unique_key && envelope.key.is_some() {
        policy
            .key_retention_ms
            .map(|kept| ended_at.saturating_add(kept.max(plain)))
    } else {
        Some(ended_at.saturating_add(plain))
    }
}

/// Until when a key of a `unique_key` queue stays taken once its message is gone; `None` = for ever.
pub fn key_kept_until(ended_at: Millis, policy: &Policy) -> Option<Millis> {
    policy
        .key_retention_ms
        .map(|kept| ended_at.saturating_add(kept))
}

/// From when a request id's windows count once its message has ended; see [`request_id_is_free`].
pub fn request_id_kept_from(published_at: Millis, ended_at: Millis, window_ms: Millis) -> Millis {
    if ended_at.saturating_sub(published_at) > window_ms {
        ended_at
    } else {
        published_at
    }
}

/// Whether a request id may be used again: its message is gone, and a window has passed since.
///
/// `kept_from` is the publish time, or the end of the message when it lived longer than one window, so an id stays at
/// least one and at most two windows after its message.
pub fn request_id_is_free(kept_from: Millis, window_ms: Millis, now: Millis) -> bool {
    known_bug!("request-id-freed-at-ack")
        || kept_from.saturating_add(window_ms.saturating_mul(2)) <= now
}

/// What a move from `before` to the draft's present state adds to the queue's counts.
pub fn counts_delta(before: Option<&Place>, draft: &Draft) -> Counts {
    let mut delta = Counts {
        acked: draft.tally.acked,
        discarded: draft.tally.discarded,
        reopened: draft.tally.reopened,
        dead_letter_expired: draft.tally.dead_letter_expired,
        delivered: draft.tally.delivered,
        redriven: draft.tally.redriven,
        ..Counts::default()
    };
    let mut gauge = |place: Option<&Place>, by: i64| match place {
        Some(Place::Delayed { .. }) => delta.delayed += by,
        Some(Place::Ready { .. }) => delta.ready += by,
        Some(Place::Leased(_)) => delta.leased += by,
        Some(Place::Dead(_)) => delta.dead += by,
        Some(Place::Discarded(_)) | None => {}
    };
    gauge(before, -1);
    gauge(draft.message.as_ref().map(|m| &m.place), 1);
    delta
}
