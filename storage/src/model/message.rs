//! A message: what was published, where it is, what happened to it.

use super::{
    Backoff, Cause, End, Limit, MAX_ERROR_CODE_BYTES, MAX_ERROR_DETAIL_BYTES, MessageId, Millis,
    QueueUid, Reason,
};
use bytes::Bytes;
use std::sync::Arc;

/// A message as it was published; never changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Envelope {
    /// The message's number.
    pub id: MessageId,
    /// Its queue.
    pub queue: QueueUid,
    /// When it was published.
    pub created_at: Millis,
    /// When it first became or becomes available: `created_at` plus its delay.
    pub first_available_at: Millis,
    /// 0 to 9, higher first.
    pub priority: u8,
    /// The producer's request id, exactly as sent.
    pub request_id: Option<Bytes>,
    /// The business key.
    pub key: Option<Arc<str>>,
    /// When it must be dead-lettered unless it is done or leased.
    pub expires_at: Option<Millis>,
    /// Overrides the queue's `max_attempts`.
    pub max_attempts: Option<u32>,
    /// Overrides the queue's backoff.
    pub backoff: Option<Backoff>,
    /// Headers as one JSON object's text; the store does not look inside.
    pub headers: Option<Arc<str>>,
}

/// Counters that follow a message through its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Life {
    /// +1 at every hand-out, never reset: also the number of deliveries so far.
    pub fence: i32,
    /// Deliveries since the last redrive that ended in a nack or an expiration.
    pub attempts: i32,
    /// Deliveries since the last redrive that ended in an expiration.
    pub expirations: i32,
    /// Releases since the last redrive.
    pub releases: i32,
    /// Redrives so far.
    pub redrives: i32,
}

/// Where a message is. A row's table is its state.
#[derive(Clone, Debug, PartialEq)]
pub enum Place {
    /// Not due yet.
    Delayed {
        /// When it becomes ready.
        due_at: Millis,
    },
    /// Can be received.
    Ready {
        /// Its place in the order, and where retention counts from.
        available_at: Millis,
    },
    /// Handed out.
    Leased(Lease),
    /// Waits for a decision.
    Dead(Dead),
    /// Decided by an operator.
    Discarded(Discarded),
}

/// One live hand-out. The delivery is the message's present fence.
#[derive(Clone, Debug, PartialEq)]
pub struct Lease {
    /// When it was handed out.
    pub leased_at: Millis,
    /// When the lease runs out.
    pub expires_at: Millis,
    /// The old place: where a release or a give-back returns it.
    pub available_at: Millis,
    /// What a failure of this delivery means, decided at hand-out.
    pub bounds: Bounds,
    /// Who took it.
    pub worker: Option<Arc<str>>,
}

/// Limits as they were read at hand-out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// This delivery is the last that `max_attempts` allows.
    pub last_attempt: bool,
    /// An expiration of this delivery is the last that `max_lease_expirations` allows.
    pub last_expiration: bool,
}

impl Bounds {
    /// As stored: bit 0 and bit 1.
    pub fn bits(self) -> i16 {
        i16::from(self.last_attempt) | (i16::from(self.last_expiration) << 1)
    }

    /// Back from [`Bounds::bits`].
    pub fn from_bits(bits: i16) -> Self {
        Self {
            last_attempt: bits & 1 != 0,
            last_expiration: bits & 2 != 0,
        }
    }
}

/// A quarantined message.
#[derive(Clone, Debug, PartialEq)]
pub struct Dead {
    /// When it was dead-lettered.
    pub died_at: Millis,
    /// How the last delivery ended.
    pub reason: Reason,
    /// The bound that was reached, where one was.
    pub limit: Option<Limit>,
    /// It died by the expiration of its present fence: that delivery may still ack.
    pub by_expiry: bool,
    /// An operator changed the payload or headers since.
    pub edited: bool,
    /// Code of the last failure, for listing and grouping.
    pub error_code: Option<Arc<str>>,
    /// Dead letters that failed alike have the same: see [`crate::rules::group`]. 0 = died before there were groups.
    pub group: i64,
}

/// A dead letter that an operator discarded. Its payload is kept for [`DISCARD_UNDO_MS`], all the rest as long as audit rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Discarded {
    /// When.
    pub discarded_at: Millis,
    /// The payload is still there, so the discard can be undone.
    pub payload_kept: bool,
    /// The dead letter it was.
    pub dead: Dead,
}

/// A completion that arrived while somebody else held the message. The end of the present lease settles the message as
/// acked with this outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The delivery that finished the work.
    pub fence: i32,
    /// What it reported, as JSON text.
    pub outcome: Option<Arc<str>>,
}

/// An error as reported by a worker: cleaned and cut, never refused (product 4.14).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failure {
    /// At most [`MAX_ERROR_CODE_BYTES`].
    pub code: Option<Arc<str>>,
    /// At most [`MAX_ERROR_DETAIL_BYTES`].
    pub detail: Option<Arc<str>>,
    /// Something was cut off.
    pub truncated: bool,
}

impl Failure {
    /// Cleans control characters (they become U+FFFD; line breaks and tabs stay) and cuts at a character boundary.
    pub fn cleaned(code: Option<&str>, detail: Option<&str>) -> Self {
        let mut truncated = false;
        let mut clean = |text: &str, max: usize| -> Arc<str> {
            let mut out = String::with_capacity(text.len().min(max));
            for c in text.chars() {
                let c = if c.is_control() && !matches!(c, '\n' | '\t' | '\r') {
                    '\u{fffd}'
                } else {
                    c
                };
                if out.len() + c.len_utf8() > max {
                    truncated = true;
                    break;
                }
                out.push(c);
            }
            out.into()
        };
        let code = code.map(|c| clean(c, MAX_ERROR_CODE_BYTES));
        let detail = detail.map(|d| clean(d, MAX_ERROR_DETAIL_BYTES));
        Self {
            code,
            detail,
            truncated,
        }
    }
}

/// One delivery of a message's history.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivered {
    /// The delivery.
    pub fence: i32,
    /// Its attempt number (releases and give-backs not counted).
    pub attempt: i32,
    /// When it was handed out.
    pub leased_at: Millis,
    /// When it ended.
    pub ended_at: Millis,
    /// How it ended.
    pub cause: Cause,
    /// It was settled after its lease.
    pub late: bool,
    /// Who had it.
    pub worker: Option<Arc<str>>,
    /// What the worker reported.
    pub failure: Failure,
}

/// The record of a message that left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// How.
    pub end: End,
    /// When.
    pub at: Millis,
    /// The delivery that settled it; 0 where none did.
    pub fence: i32,
    /// What the worker reported, as JSON text.
    pub outcome: Option<Arc<str>>,
}
