//! Messages as operators see them.

use super::Time;
use super::values::{ClientRequestId, Justification, MessageId, QueueName, ReasonText};
use crate::http::dead_filter::write_group;
use crate::service::messages;
use quita_storage::backend::Listed;
use quita_storage::model::{Delivered, Limit, Place, Queue};
use quita_storage::rules::Message as StoredMessage;
use serde::Serialize;
use utoipa::ToSchema;

/// What a worker reported.
#[derive(Serialize, ToSchema)]
pub struct FailureReport {
    /// A short code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// For people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Something was cut off.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// A delivery that ended.
#[derive(Serialize, ToSchema)]
pub struct PastDelivery {
    /// Number of the delivery, from 1.
    pub delivery: i32,
    /// Number of the attempt; releases and give-backs are not counted.
    pub attempt: i32,
    /// How it ended: `ack`, `nack`, `permanent`, `lease_expired`, `release`, `given_back` or `operator`.
    pub cause: &'static str,
    /// It was settled after its lease.
    pub late: bool,
    /// When it was handed out.
    pub leased_at: Time,
    /// When it ended.
    pub ended_at: Time,
    /// Who had it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// What the worker reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<FailureReport>,
}

impl PastDelivery {
    /// From the history.
    pub(crate) fn new(delivered: &Delivered) -> Self {
        let failure = &delivered.failure;
        let said = failure.code.is_some() || failure.detail.is_some();
        Self {
            delivery: delivered.fence,
            attempt: delivered.attempt,
            cause: delivered.cause.as_str(),
            late: delivered.late,
            leased_at: Time(delivered.leased_at),
            ended_at: Time(delivered.ended_at),
            worker: delivered.worker.as_deref().map(str::to_owned),
            error: said.then(|| FailureReport {
                code: failure.code.as_deref().map(str::to_owned),
                detail: failure.detail.as_deref().map(str::to_owned),
                truncated: failure.truncated,
            }),
        }
    }
}

/// Why and since when a message is a dead letter.
#[derive(Serialize, ToSchema)]
pub struct DeadLetter {
    /// How the last delivery ended: `max_attempts`, `permanent_failure`, `lease_expired`, `release_limit`, `expired` or
    /// `operator`.
    pub reason: &'static str,
    /// The same in the words of the deliveries: `nack`, `permanent`, `lease_expired`, `release_limit`, `expired` or
    /// `operator`.
    pub failure_kind: &'static str,
    /// The bound that was reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<&'static str>,
    /// When it died.
    pub died_at: Time,
    /// Code of the last failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    /// Dead letters that failed alike have the same.
    #[schema(example = "grp_00c3f1a9d2e45b67")]
    pub group: String,
    /// An operator changed it since.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub edited: bool,
}

/// One message of a listing.
#[derive(Serialize, ToSchema)]
pub struct MessageSummary {
    /// The message's id.
    #[schema(value_type = MessageId)]
    pub message_id: String,
    /// Its queue.
    #[schema(value_type = QueueName)]
    pub queue: String,
    /// `delayed`, `ready`, `leased`, `dead` or `ended`.
    pub state: &'static str,
    /// The business key.
    pub key: Option<String>,
    /// The producer's request id.
    pub client_request_id: Option<String>,
    /// 0 to 9.
    pub priority: u8,
    /// When it was published.
    pub published_at: Time,
    /// When it is dead-lettered unless it is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,
    /// Since when a ready message is, or when a delayed one becomes, available.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_at: Option<Time>,
    /// When a leased one was handed out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leased_at: Option<Time>,
    /// When its lease runs out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_expires_at: Option<Time>,
    /// Who has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// Why it is dead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_letter: Option<DeadLetter>,
    /// Deliveries so far.
    pub deliveries: i32,
    /// Of these, since the last redrive, the ones that ended in a nack or an expiration.
    pub attempts: i32,
    /// Of these, since the last redrive, the ones that ended in an expiration.
    pub lease_expirations: i32,
    /// Releases since the last redrive.
    pub releases: i32,
    /// Redrives so far.
    pub redrive_count: i32,
    /// A worker has reported the work as done, although it held the message no longer.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub completion_remembered: bool,
    /// Bytes of the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u32>,
    /// The latest delivery that ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_delivery: Option<PastDelivery>,
}

impl MessageSummary {
    pub(super) fn new(queue: &Queue, message: &StoredMessage) -> Self {
        let (envelope, life) = (&message.envelope, &message.life);
        let mut summary = Self {
            message_id: envelope.id.to_string(),
            queue: queue.name.to_string(),
            state: message.state().as_str(),
            key: envelope.key.as_deref().map(str::to_owned),
            client_request_id: envelope
                .request_id
                .as_ref()
                .map(|id| String::from_utf8_lossy(id).into_owned()),
            priority: envelope.priority,
            published_at: Time(envelope.created_at),
            expires_at: message.expires_at.map(Time),
            available_at: None,
            leased_at: None,
            lease_expires_at: None,
            worker: None,
            dead_letter: None,
            deliveries: life.fence,
            attempts: life.attempts,
            lease_expirations: life.expirations,
            releases: life.releases,
            redrive_count: life.redrives,
            completion_remembered: message.completion.is_some(),
            size_bytes: None,
            last_delivery: None,
        };
        match &message.place {
            Place::Delayed { due_at } => summary.available_at = Some(Time(*due_at)),
            Place::Ready { available_at } => summary.available_at = Some(Time(*available_at)),
            Place::Leased(lease) => {
                summary.leased_at = Some(Time(lease.leased_at));
                summary.lease_expires_at = Some(Time(lease.expires_at));
                summary.worker = lease.worker.as_deref().map(str::to_owned);
            }
            Place::Dead(dead) => summary.dead_letter = Some(dead_letter(dead)),
            Place::Discarded(discarded) => {
                summary.dead_letter = Some(dead_letter(&discarded.dead));
            }
        }
        summary
    }

    /// One row of a listing.
    pub(crate) fn listed(queue: &Queue, listed: &Listed) -> Self {
        Self {
            size_bytes: Some(listed.size),
            last_delivery: listed.last.as_ref().map(PastDelivery::new),
            ..Self::new(queue, &listed.message)
        }
    }
}

fn dead_letter(dead: &quita_storage::model::Dead) -> DeadLetter {
    DeadLetter {
        reason: dead.reason.as_str(),
        failure_kind: dead.reason.failure_kind(),
        limit: dead.limit.map(Limit::as_str),
        died_at: Time(dead.died_at),
        error_code: dead.error_code.as_deref().map(str::to_owned),
        group: write_group(dead.group),
        edited: dead.edited,
    }
}

/// A page of messages.
#[derive(Serialize, ToSchema)]
pub struct MessagePage {
    /// In the state's own order. A short page is not the end.
    pub messages: Vec<MessageSummary>,
    /// Where the next page begins; missing when that was all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_page_token: Option<String>,
}

/// A decision with its justification.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what is read field by field")]
pub struct Justified {
    /// Why: at least 10 characters that are not spaces, at most 4 KiB.
    justification: Justification,
    /// Repeating the call with the same id gives the first answer again, for 7 days.
    #[schema(required = false)]
    client_request_id: ClientRequestId,
}

/// A message to quarantine.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what is read field by field")]
pub struct DeadLetterCall {
    /// Why.
    reason: ReasonText,
    /// Repeating the call with the same id gives the first answer again, for 7 days.
    #[schema(required = false)]
    client_request_id: ClientRequestId,
}

/// Where a message is after a decision.
#[derive(Serialize, ToSchema)]
pub struct Decided {
    /// The message.
    #[schema(value_type = MessageId)]
    pub message_id: String,
    /// `ready`, `delayed`, `dead` or `ended`.
    #[schema(example = "ready")]
    pub state: &'static str,
    /// It was leased and had a remembered completion, which took effect instead.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub acked_superseded: bool,
}

impl From<messages::Decided> for Decided {
    fn from(decided: messages::Decided) -> Self {
        Self {
            message_id: decided.id.to_string(),
            state: decided.state.as_str(),
            acked_superseded: decided.acked_superseded,
        }
    }
}
