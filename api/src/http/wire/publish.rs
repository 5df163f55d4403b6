//! Publish and publish-batch.

use super::values::{
    Attempts, BusinessKey, ClientRequestId, DelaySeconds, LifeSeconds, MessageHeaders, MessageId,
    Priority, QueueName,
};
use super::{Time, partial, raw_json};
use crate::http::problem::Problem;
use crate::service::publish::Stored;
use quita_storage::model::{End, State};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

/// What is stored after a publish.
#[derive(Serialize, ToSchema)]
pub struct Published {
    /// The message's id.
    #[schema(value_type = MessageId)]
    pub message_id: String,
    /// Its queue.
    #[serde(skip_serializing_if = "str::is_empty")]
    #[schema(value_type = QueueName)]
    pub queue: String,
    /// Where the message is: `ready`, `delayed`, `leased`, `dead` or `ended`.
    #[schema(example = "ready")]
    pub state: &'static str,
    /// `true`: this is an earlier message, and nothing was stored now.
    pub deduplicated: bool,
    /// When it was published.
    pub published_at: Time,
    /// What made it a duplicate: `client_request_id` or `key`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duplicate_of: Option<&'static str>,
    /// Whether message, key and headers are the same as those of the earlier message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub same_body: Option<bool>,
    /// How it ended, when its state is `ended`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<&'static str>,
    /// What its ack reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub outcome: Option<Box<RawValue>>,
}

impl Published {
    /// From what the operation answered.
    pub(crate) fn new(queue: &str, stored: Stored) -> Self {
        match stored {
            Stored::Created {
                id,
                state,
                published_at,
            } => Self {
                message_id: id.to_string(),
                queue: queue.to_owned(),
                state: state.as_str(),
                deduplicated: false,
                published_at: Time(published_at),
                duplicate_of: None,
                same_body: None,
                end: None,
                outcome: None,
            },
            Stored::Duplicate(duplicate) => Self {
                message_id: duplicate.id.to_string(),
                queue: queue.to_owned(),
                state: duplicate.state.as_str(),
                deduplicated: true,
                published_at: Time(duplicate.published_at),
                duplicate_of: Some(if duplicate.by_key {
                    "key"
                } else {
                    "client_request_id"
                }),
                same_body: Some(duplicate.same_body),
                end: (duplicate.state == State::Ended)
                    .then(|| duplicate.end.unwrap_or(End::Gone).as_str()),
                outcome: duplicate.outcome.as_deref().and_then(raw_json),
            },
        }
    }
}

partial! {
    /// What is stored after a publish, where something is.
    PublishedPart of Published
}

/// The result of one entry of a batch.
#[derive(Serialize, ToSchema)]
pub struct BatchResult {
    /// Position of the entry.
    pub index: usize,
    /// The status that the entry alone would have got: 201, 200 for a duplicate, or that of `error`.
    #[schema(example = 201)]
    pub status: u16,
    /// What is stored, unless the entry was refused.
    #[serde(flatten)]
    #[schema(value_type = PublishedPart)]
    pub stored: Option<Published>,
    /// Why the entry was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<crate::http::docs::ProblemDocument>)]
    pub error: Option<Problem>,
}

/// The results of a batch, one per entry, in order.
#[derive(Serialize, ToSchema)]
pub struct BatchPublished {
    /// One per entry.
    pub results: Vec<BatchResult>,
    /// Entries that made a message.
    pub created: usize,
    /// Entries that named an earlier message.
    pub duplicates: usize,
    /// Entries that were refused.
    pub rejected: usize,
}

/// A message to publish.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what is read field by field")]
pub struct Publish {
    /// The queue.
    queue: QueueName,
    /// Any JSON; comes back byte for byte. Message, key and headers together are at most 262,144 bytes.
    #[schema(value_type = Value)]
    message: serde_json::Value,
    /// Names the request: repeating it with the same id stores nothing twice. 1 to 128 bytes. May be given as the header
    /// `Idempotency-Key` instead.
    #[schema(required = false)]
    client_request_id: ClientRequestId,
    /// Names the business operation. Taken from a string member `idempotency_key` of the message when absent.
    #[schema(required = false)]
    key: BusinessKey,
    /// The message becomes ready this much later.
    #[schema(required = false)]
    delay_seconds: DelaySeconds,
    /// 0 to 9, higher first.
    #[schema(required = false)]
    priority: Priority,
    /// At most 32 names of up to 64 bytes with values of up to 1,024 bytes.
    #[schema(required = false)]
    headers: MessageHeaders,
    /// From publish until the message goes to the dead letters unless it is done. Longer than the delay.
    #[schema(required = false)]
    expires_in_seconds: LifeSeconds,
    /// Overrides the queue's.
    #[schema(required = false)]
    max_attempts: Attempts,
    /// Overrides the queue's.
    #[schema(required = false)]
    backoff: super::queue::Backoff,
}

/// Messages to publish to one queue.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what is read field by field")]
pub struct PublishBatch {
    /// The queue.
    queue: QueueName,
    /// 1 to 1,000 messages, each as in a single publish but without `queue`.
    #[schema(min_items = 1, max_items = 1_000)]
    messages: Vec<BatchEntry>,
}

/// One message of a batch: as in a single publish, without `queue`.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what is read field by field")]
pub struct BatchEntry {
    /// Any JSON; comes back byte for byte.
    #[schema(value_type = Value)]
    message: serde_json::Value,
    /// Names the request.
    #[schema(required = false)]
    client_request_id: ClientRequestId,
    /// Names the business operation.
    #[schema(required = false)]
    key: BusinessKey,
    /// The message becomes ready this much later.
    #[schema(required = false)]
    delay_seconds: DelaySeconds,
    /// 0 to 9, higher first.
    #[schema(required = false)]
    priority: Priority,
    /// At most 32.
    #[schema(required = false)]
    headers: MessageHeaders,
    /// Life span from publish.
    #[schema(required = false)]
    expires_in_seconds: LifeSeconds,
    /// Overrides the queue's.
    #[schema(required = false)]
    max_attempts: Attempts,
    /// Overrides the queue's.
    #[schema(required = false)]
    backoff: super::queue::Backoff,
}
