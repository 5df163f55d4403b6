//! What a queue is and does with its messages.

use super::{Millis, QueueUid};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What a queue does with its messages (product §6).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// Length of a lease when a receive names none.
    pub visibility_timeout_ms: Millis,
    /// Deliveries that may end in a nack or an expiration.
    pub max_attempts: u32,
    /// Deliveries that may end in an expiration.
    pub max_lease_expirations: u32,
    /// Releases allowed; `None` = no bound.
    pub max_releases: Option<u32>,
    /// Redrives allowed without force.
    pub max_redrives: u32,
    /// Wait between a failure and the next attempt.
    pub backoff: Backoff,
    /// Delay of a publish that names none.
    pub delay_ms: Millis,
    /// Wait of a receive that names none.
    pub wait_ms: Millis,
    /// How long a request id stays taken after its message is gone.
    pub dedupe_window_ms: Millis,
    /// One message per business key.
    pub unique_key: bool,
    /// How long a key and its outcome stay after the message is gone; `None` = for ever.
    pub key_retention_ms: Option<Millis>,
    /// Age at which a ready message goes to the dead letters.
    pub retention_ms: Millis,
    /// Age at which an undecided dead letter ends; `None` = never.
    pub dead_letter_retention_ms: Option<Millis>,
    /// Largest message with key and headers, in bytes.
    pub max_message_bytes: u32,
    /// Most messages delayed, ready and leased together; `None` = no bound.
    pub max_depth: Option<u64>,
    /// What a late ack means.
    pub late_ack: LateAck,
}

impl Default for Policy {
    /// The defaults of product §6.
    fn default() -> Self {
        Self {
            visibility_timeout_ms: 30_000,
            max_attempts: 5,
            max_lease_expirations: 3,
            max_releases: None,
            max_redrives: 3,
            backoff: Backoff::default(),
            delay_ms: 0,
            wait_ms: 0,
            dedupe_window_ms: 86_400_000,
            unique_key: false,
            key_retention_ms: Some(34_560_000_000),
            retention_ms: 1_209_600_000,
            dead_letter_retention_ms: None,
            max_message_bytes: 262_144,
            max_depth: None,
            late_ack: LateAck::Accept,
        }
    }
}

/// What a late settle of an expired, not superseded delivery means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LateAck {
    /// Finished work counts (the default).
    Accept,
    /// The first settle of a delivery must come within its lease.
    Strict,
}

/// How the wait between attempts grows (product §6).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Backoff {
    /// `min(max, base · factor^(n−1))` after failure n.
    Exponential {
        /// Wait after the first failure.
        base_ms: Millis,
        /// Growth per failure.
        factor: f64,
        /// Largest wait.
        max_ms: Millis,
        /// How the wait is spread.
        jitter: Jitter,
    },
    /// The same wait each time.
    Fixed {
        /// The wait.
        base_ms: Millis,
        /// How the wait is spread.
        jitter: Jitter,
    },
    /// A list of waits, the last one repeating. Never empty.
    Schedule {
        /// The waits.
        schedule_ms: Vec<Millis>,
        /// How each wait is spread.
        jitter: Jitter,
    },
}

impl Default for Backoff {
    fn default() -> Self {
        Self::Exponential {
            base_ms: 2_000,
            factor: 2.0,
            max_ms: 900_000,
            jitter: Jitter::Equal,
        }
    }
}

/// How a wait d is spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Jitter {
    /// Exactly d.
    None,
    /// Between d/2 and d.
    Equal,
    /// Between 0 and d.
    Full,
}

/// A queue as a caller saw it: its identity, the version of that view, and the policy.
///
/// A statement that acts on a queue confirms `version`; when it changed since (policy, pause, purge, delete) the item
/// comes back as stale, is looked up again and repeated, so caches can never make a wrong decision durable.
#[derive(Clone, Debug, PartialEq)]
pub struct Queue {
    /// Stable number of the name.
    pub uid: QueueUid,
    /// The name, compared exactly.
    pub name: Arc<str>,
    /// Rises with every change of policy, pause, purge or delete.
    pub version: i64,
    /// No hand-outs while set.
    pub paused: bool,
    /// What the queue does with its messages.
    pub policy: Arc<Policy>,
    /// When the queue was created, or created again.
    pub created_at: Millis,
}
