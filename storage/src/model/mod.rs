//! Nouns: ids, policies, messages and where a message can be.
//!
//! Read this first, then [`crate::rules`] (what may happen to a message) and [`crate::backend`] (who makes it durable).
//! Units: every `…_ms` and every [`Millis`] is milliseconds; times count from the Unix epoch on the store's clock.

mod code;
mod id;
mod message;
mod policy;

pub use code::*;
pub use id::*;
pub use message::*;
pub use policy::*;

/// Milliseconds: a point in time since the Unix epoch, or a length.
pub type Millis = i64;

/// Longest delay or backoff: 7 days (product §6).
pub const MAX_DELAY_MS: Millis = 604_800_000;
/// An extend never reaches further than 24 h from the hand-out (product 4.5).
pub const MAX_LEASE_FROM_HANDOUT_MS: Millis = 86_400_000;
/// How long a discarded message keeps its payload: 7 days (product §3, `discard_undo_seconds`).
pub const DISCARD_UNDO_MS: Millis = 604_800_000;
/// How long an operator's `client_request_id` is remembered: 7 days (product §5).
pub const OPERATION_MEMORY_MS: Millis = 604_800_000;
/// Longest error code kept of a nack, in bytes (product 4.14).
pub const MAX_ERROR_CODE_BYTES: usize = 128;
/// Longest error detail kept of a nack, in bytes (product 4.14).
pub const MAX_ERROR_DETAIL_BYTES: usize = 4096;
/// Deliveries kept from the start of a message's history (product 4.14).
pub const HISTORY_HEAD: i32 = 10;
/// Deliveries kept from the end of a message's history (product 4.14).
pub const HISTORY_TAIL: i32 = 100;
/// End of a message is remembered at least this long wherever it is remembered, so that a repeat of a settle by a
/// worker whose lease ran its full 24 h still learns it.
pub const MIN_END_MEMORY_MS: Millis = 2 * MAX_LEASE_FROM_HANDOUT_MS;

/// Exact numbers of one queue, all from one snapshot.
///
/// `accepted + reopened = delayed + ready + leased + dead + acked + discarded + purged + dead_letter_expired`, always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Waiting for their time.
    pub delayed: i64,
    /// Can be received.
    pub ready: i64,
    /// Handed out.
    pub leased: i64,
    /// Waiting for a decision.
    pub dead: i64,
    /// Messages that publishes made.
    pub accepted: i64,
    /// Discards undone.
    pub reopened: i64,
    /// Finished.
    pub acked: i64,
    /// Discarded or cancelled.
    pub discarded: i64,
    /// Gone by purge or with the queue.
    pub purged: i64,
    /// Ended by dead-letter retention.
    pub dead_letter_expired: i64,
    /// Hand-outs.
    pub delivered: i64,
    /// Redrives.
    pub redriven: i64,
}

impl Counts {
    /// 0 when the conservation law holds.
    pub fn imbalance(&self) -> i64 {
        self.accepted + self.reopened
            - (self.delayed + self.ready + self.leased + self.dead)
            - (self.acked + self.discarded + self.purged + self.dead_letter_expired)
    }
}
