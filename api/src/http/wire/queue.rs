//! Queues and their policies.

use super::values::{ClientRequestId, LateAckRule, Prose, QueueName, described};
use super::{Seconds, Time, partial};
use crate::service::queues::QueueView;
use quita_storage::model::{self, Jitter, LateAck};
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// What a queue does with its messages. `null` = no bound.
#[derive(Serialize, ToSchema)]
pub struct Policy {
    /// Length of a lease when a receive names none. 1 to 43,200.
    #[schema(value_type = f64, minimum = 1, maximum = 43_200)]
    pub visibility_timeout_seconds: Seconds,
    /// Deliveries that may end in a nack or an expiration.
    #[schema(minimum = 1, maximum = 1_000)]
    pub max_attempts: u32,
    /// Deliveries that may end in an expiration.
    #[schema(minimum = 1, maximum = 1_000)]
    pub max_lease_expirations: u32,
    /// Releases allowed.
    #[schema(minimum = 1, maximum = 10_000)]
    pub max_releases: Option<u32>,
    /// Redrives allowed without force.
    #[schema(minimum = 0, maximum = 100)]
    pub max_redrives: u32,
    /// Wait between a failure and the next attempt.
    pub backoff: Backoff,
    /// Delay of a publish that names none. 0 to 604,800.
    #[schema(value_type = f64, minimum = 0, maximum = 604_800)]
    pub delay_seconds: Seconds,
    /// Wait of a receive that names none. 0 to 30.
    #[schema(value_type = f64, minimum = 0, maximum = 30)]
    pub wait_seconds: Seconds,
    /// How long a request id stays taken after its message is gone. 60 to 2,592,000.
    #[schema(value_type = f64, minimum = 60, maximum = 2_592_000)]
    pub dedupe_window_seconds: Seconds,
    /// One message per business key.
    pub unique_key: bool,
    /// How long a key is remembered after its message is gone. 86,400 to 315,360,000, or null.
    #[schema(value_type = Option<f64>, minimum = 86_400, maximum = 315_360_000)]
    pub key_retention_seconds: Option<Seconds>,
    /// Age at which a ready message goes to the dead letters. 60 to 2,592,000.
    #[schema(value_type = f64, minimum = 60, maximum = 2_592_000)]
    pub retention_seconds: Seconds,
    /// Age at which an undecided dead letter ends. 3,600 to 315,360,000, or null.
    #[schema(value_type = Option<f64>, minimum = 3_600, maximum = 315_360_000)]
    pub dead_letter_retention_seconds: Option<Seconds>,
    /// Largest message with key and headers.
    #[schema(minimum = 1, maximum = 262_144)]
    pub max_message_bytes: u32,
    /// Most messages ready, delayed and leased together.
    #[schema(minimum = 1, maximum = 1_000_000_000)]
    pub max_depth: Option<u64>,
    /// What a late ack means: `accept` or `strict`.
    #[schema(value_type = LateAckRule)]
    pub late_ack: &'static str,
}

impl From<&model::Policy> for Policy {
    fn from(policy: &model::Policy) -> Self {
        Self {
            visibility_timeout_seconds: Seconds(policy.visibility_timeout_ms),
            max_attempts: policy.max_attempts,
            max_lease_expirations: policy.max_lease_expirations,
            max_releases: policy.max_releases,
            max_redrives: policy.max_redrives,
            backoff: Backoff::from(&policy.backoff),
            delay_seconds: Seconds(policy.delay_ms),
            wait_seconds: Seconds(policy.wait_ms),
            dedupe_window_seconds: Seconds(policy.dedupe_window_ms),
            unique_key: policy.unique_key,
            key_retention_seconds: policy.key_retention_ms.map(Seconds),
            retention_seconds: Seconds(policy.retention_ms),
            dead_letter_retention_seconds: policy.dead_letter_retention_ms.map(Seconds),
            max_message_bytes: policy.max_message_bytes,
            max_depth: policy.max_depth,
            late_ack: match policy.late_ack {
                LateAck::Accept => "accept",
                LateAck::Strict => "strict",
            },
        }
    }
}

partial! {
    /// What of a policy a client sets.
    PolicyInput of Policy
}

/// How the wait between attempts grows. Never above 7 days.
#[derive(Serialize)]
pub struct Backoff {
    /// `exponential` (min(max, base · factor^(n−1)) after failure n), `fixed` or `schedule`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// With `exponential` and `fixed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_seconds: Option<Seconds>,
    /// With `exponential`: 1 to 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub factor: Option<f64>,
    /// With `exponential`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_seconds: Option<Seconds>,
    /// With `schedule`: 1 to 100 waits, the last one repeating.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule_seconds: Option<Vec<Seconds>>,
    /// `none`, `equal` (half of it or more) or `full` (anything from 0).
    pub jitter: &'static str,
}

impl PartialSchema for Backoff {
    fn schema() -> RefOr<Schema> {
        let seconds = |what: &str| json!({"type": "number", "minimum": 0, "maximum": 604_800, "description": what});
        let kind = |word: &str| json!({"type": "string", "enum": [word]});
        let jitter = json!({"type": "string", "enum": ["none", "equal", "full"],
            "description": "`none`, `equal` (half of the wait or more) or `full` (anything from 0)"});
        let closed = |what: &str, required: Value, properties: Value| json!({"type": "object", "description": what, "required": required, "properties": properties, "additionalProperties": false});
        described(json!({
            "description": "How the wait between attempts grows. Never above 7 days.",
            "examples": [{"type": "exponential", "base_seconds": 2, "factor": 2, "max_seconds": 900, "jitter": "equal"}],
            "oneOf": [
                closed("min(max, base · factor^(n−1)) after failure n", json!([]), json!({
                    "type": kind("exponential"), "base_seconds": seconds("2 unless given"), "max_seconds": seconds("900 unless given"),
                    "factor": {"type": "number", "minimum": 1, "maximum": 100, "description": "2 unless given"}, "jitter": jitter})),
                closed("The same wait after every failure", json!(["type", "base_seconds"]), json!({
                    "type": kind("fixed"), "base_seconds": seconds("The wait"), "jitter": jitter})),
                closed("A wait for each failure, the last one repeating", json!(["type", "schedule_seconds"]), json!({
                    "type": kind("schedule"), "jitter": jitter,
                    "schedule_seconds": {"type": "array", "minItems": 1, "maxItems": 100, "items": seconds("After failure n")}})),
            ],
        }))
    }
}

impl ToSchema for Backoff {}

impl From<&model::Backoff> for Backoff {
    fn from(backoff: &model::Backoff) -> Self {
        let word = |jitter: &Jitter| match jitter {
            Jitter::None => "none",
            Jitter::Equal => "equal",
            Jitter::Full => "full",
        };
        let base = Self {
            kind: "fixed",
            base_seconds: None,
            factor: None,
            max_seconds: None,
            schedule_seconds: None,
            jitter: "none",
        };
        match backoff {
            model::Backoff::Exponential {
                base_ms,
                factor,
                max_ms,
                jitter,
            } => Self {
                kind: "exponential",
                base_seconds: Some(Seconds(*base_ms)),
                factor: Some(*factor),
                max_seconds: Some(Seconds(*max_ms)),
                jitter: word(jitter),
                ..base
            },
            model::Backoff::Fixed { base_ms, jitter } => Self {
                base_seconds: Some(Seconds(*base_ms)),
                jitter: word(jitter),
                ..base
            },
            model::Backoff::Schedule {
                schedule_ms,
                jitter,
            } => Self {
                kind: "schedule",
                schedule_seconds: Some(schedule_ms.iter().map(|ms| Seconds(*ms)).collect()),
                jitter: word(jitter),
                ..base
            },
        }
    }
}

/// Exact numbers of messages by state.
#[derive(Serialize, ToSchema)]
pub struct QueueCounts {
    /// Not due yet.
    pub delayed: i64,
    /// Can be received.
    pub ready: i64,
    /// Handed out.
    pub leased: i64,
    /// Waiting for a decision.
    pub dead: i64,
}

/// Totals that only grow. `accepted + reopened = delayed + ready + leased + dead + acked + discarded + purged +
/// dead_letter_expired`, always.
#[derive(Serialize, ToSchema)]
pub struct QueueTotals {
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

/// A queue, its policy and its exact numbers from one snapshot.
#[derive(Serialize, ToSchema)]
pub struct Queue {
    /// The name.
    #[schema(value_type = QueueName)]
    pub name: String,
    /// No hand-outs while set.
    pub paused: bool,
    /// As in `ETag`.
    #[schema(example = "17")]
    pub version: String,
    /// When it was created, or created again.
    pub created_at: Time,
    /// What it does with its messages.
    pub policy: Policy,
    /// What it holds.
    pub counts: QueueCounts,
    /// What went through it.
    pub totals: QueueTotals,
    /// Since the oldest ready message became available; null when none is ready.
    pub oldest_ready_age_seconds: Option<Seconds>,
    /// Since the oldest dead letter died; null when there is none.
    pub oldest_dead_age_seconds: Option<Seconds>,
    /// The store's time of the snapshot.
    pub server_time: Time,
}

impl From<&QueueView> for Queue {
    fn from(QueueView { queue, numbers }: &QueueView) -> Self {
        let (counts, now) = (&numbers.counts, numbers.now);
        let age = |at: Option<i64>| at.map(|at| Seconds((now - at).max(0)));
        Self {
            name: queue.name.to_string(),
            paused: queue.paused,
            version: queue.version.to_string(),
            created_at: Time(queue.created_at),
            policy: Policy::from(&*queue.policy),
            counts: QueueCounts {
                delayed: counts.delayed,
                ready: counts.ready,
                leased: counts.leased,
                dead: counts.dead,
            },
            totals: QueueTotals {
                accepted: counts.accepted,
                reopened: counts.reopened,
                acked: counts.acked,
                discarded: counts.discarded,
                purged: counts.purged,
                dead_letter_expired: counts.dead_letter_expired,
                delivered: counts.delivered,
                redriven: counts.redriven,
            },
            oldest_ready_age_seconds: age(numbers.oldest_ready_at),
            oldest_dead_age_seconds: age(numbers.oldest_dead_at),
            server_time: Time(now),
        }
    }
}

/// A page of queues.
#[derive(Serialize, ToSchema)]
pub struct QueuePage {
    /// In name order.
    pub queues: Vec<Queue>,
    /// Where the next page begins; missing when that was all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_page_token: Option<String>,
}

/// A purge. Cannot be undone.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what is read field by field")]
pub struct Purge {
    /// The queue's name.
    confirm: QueueName,
    /// Also the dead letters; needs the right to discard and a justification.
    #[schema(required = false, default = false)]
    dead_letters: bool,
    /// Why. Required with `dead_letters`.
    #[schema(required = false)]
    justification: Prose,
    /// Repeating the call with the same id gives the first answer again, for 7 days.
    #[schema(required = false)]
    client_request_id: ClientRequestId,
}

/// What a purge took out.
#[derive(Serialize, ToSchema)]
pub struct Purged {
    /// How many messages.
    pub purged: i64,
}

/// An operator's call that takes nothing else.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what is read field by field")]
pub struct OperatorCall {
    /// Repeating the call with the same id gives the first answer again, for 7 days.
    #[schema(required = false)]
    client_request_id: ClientRequestId,
}
