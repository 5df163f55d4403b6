//! Dead letters, groups of them, and what is decided about one.

use super::Time;
use super::message::MessageSummary;
use super::values::{
    BusinessKey, ClientRequestId, Counter, DeadReason, DiscardReason, ErrorCode, FailureKind,
    GroupId, Justification, KeyFilter as KeyText, LifeSeconds, MessageHeaders, MessageId, Prose,
    QueueName, ReasonText,
};
use crate::http::dead_filter::write_group;
use crate::service::dead_letters::{DeadPage, Groups};
use crate::service::revisions;
use quita_storage::dead_letters::{self, KeyFilter};
use quita_storage::model::{Reason, State};
use quita_storage::rules::group;
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

/// Which dead letters; everything that is given must hold.
#[derive(Serialize, ToSchema)]
pub struct DeadLetterFilter {
    /// `max_attempts`, `permanent_failure`, `lease_expired`, `release_limit`, `expired` or `operator`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = DeadReason, required = false)]
    pub reason: Option<&'static str>,
    /// The reason in the words of the deliveries: `nack`, `permanent`, `lease_expired`, `release_limit`, `expired` or
    /// `operator`. Answers say `reason`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = FailureKind, required = false)]
    pub failure_kind: Option<&'static str>,
    /// Exactly this code of the last failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = ErrorCode, required = false)]
    pub error_code: Option<String>,
    /// Those that failed alike: `grp_` and 16 hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = GroupId, required = false)]
    pub group: Option<String>,
    /// Exactly this key.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = KeyText, required = false)]
    pub key: Option<String>,
    /// Keys that begin so. Not together with `key`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = BusinessKey, required = false)]
    pub key_prefix: Option<String>,
    /// Died at this time or later.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Time, required = false)]
    pub died_after: Option<Time>,
    /// Died before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Time, required = false)]
    pub died_before: Option<Time>,
    /// Published at this time or later.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Time, required = false)]
    pub published_after: Option<Time>,
    /// Published before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Time, required = false)]
    pub published_before: Option<Time>,
    /// Attempts since the last redrive, at least.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Counter, required = false)]
    pub min_attempts: Option<i32>,
    /// Attempts since the last redrive, at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Counter, required = false)]
    pub max_attempts: Option<i32>,
    /// Redrives, at least.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Counter, required = false)]
    pub min_redrive_count: Option<i32>,
    /// Redrives, at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Counter, required = false)]
    pub max_redrive_count: Option<i32>,
    /// An operator changed it since, or did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = bool, required = false)]
    pub edited: Option<bool>,
}

impl From<&dead_letters::DeadFilter> for DeadLetterFilter {
    fn from(filter: &dead_letters::DeadFilter) -> Self {
        let (key, key_prefix) = match &filter.key {
            Some(KeyFilter::Exactly(key)) => (Some(key.clone()), None),
            Some(KeyFilter::Prefix(prefix)) => (None, Some(prefix.clone())),
            None => (None, None),
        };
        Self {
            reason: filter.reason.map(Reason::as_str),
            failure_kind: None,
            error_code: filter.error_code.clone(),
            group: filter.group.map(write_group),
            key,
            key_prefix,
            died_after: filter.died.from.map(Time),
            died_before: filter.died.until.map(Time),
            published_after: filter.published.from.map(Time),
            published_before: filter.published.until.map(Time),
            min_attempts: filter.attempts.min,
            max_attempts: filter.attempts.max,
            min_redrive_count: filter.redrives.min,
            max_redrive_count: filter.redrives.max,
            edited: filter.edited,
        }
    }
}

/// A page of dead letters.
#[derive(Serialize, ToSchema)]
pub struct DeadLetterPage {
    /// By time of death, in the order that was asked for. A short page is not the end.
    pub messages: Vec<MessageSummary>,
    /// Where the next page begins; missing when that was all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_page_token: Option<String>,
    /// Where the page before ends; missing on the first one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous_page_token: Option<String>,
}

impl DeadLetterPage {
    /// A page and the tokens of its neighbours.
    pub(crate) fn new(page: &DeadPage, next: Option<String>, previous: Option<String>) -> Self {
        let items = page.items.iter();
        Self {
            messages: items
                .map(|(queue, listed)| MessageSummary::listed(queue, listed))
                .collect(),
            next_page_token: next,
            previous_page_token: previous,
        }
    }
}

/// Dead letters of one queue that failed alike.
#[derive(Serialize, ToSchema)]
pub struct DeadLetterGroup {
    /// Filters by it find them again; the same in all queues.
    #[schema(value_type = GroupId)]
    pub group: String,
    /// Their queue.
    #[schema(value_type = QueueName)]
    pub queue: String,
    /// Their reason.
    pub reason: &'static str,
    /// The same in the words of the deliveries.
    pub failure_kind: &'static str,
    /// Their error code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    /// Their error text, with `#` for numbers and ids.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_text: Option<String>,
    /// How many they are.
    pub count: i64,
    /// When the first one died.
    pub first_died_at: Time,
    /// When the last one died.
    pub last_died_at: Time,
    /// The last one that died.
    #[schema(value_type = MessageId)]
    pub example_message_id: String,
}

/// The largest groups.
#[derive(Serialize, ToSchema)]
pub struct DeadLetterGroups {
    /// By count, largest first.
    pub groups: Vec<DeadLetterGroup>,
    /// There are more of them.
    pub more: bool,
}

impl From<&Groups> for DeadLetterGroups {
    fn from(found: &Groups) -> Self {
        let groups = found.groups.iter().map(|(queue, alike)| DeadLetterGroup {
            group: write_group(alike.group),
            queue: queue.name.to_string(),
            reason: alike.reason.as_str(),
            failure_kind: alike.reason.failure_kind(),
            error_code: alike.error_code.as_deref().map(str::to_owned),
            error_text: group::text(alike.reason, alike.example_detail.as_deref()),
            count: alike.count,
            first_died_at: Time(alike.first_died_at),
            last_died_at: Time(alike.last_died_at),
            example_message_id: alike.example.to_string(),
        });
        Self {
            groups: groups.collect(),
            more: found.more,
        }
    }
}

/// A dead letter to give another round.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what is read field by field")]
pub struct RedriveOne {
    /// Also above `max_redrives`, or although a completion is remembered.
    #[schema(required = false, default = false)]
    force: bool,
    /// A new life span from now.
    #[schema(required = false)]
    expires_in_seconds: LifeSeconds,
    /// Why; required with `force`.
    #[schema(required = false)]
    reason: Prose,
    /// Repeating the call with the same id gives the first answer again, for 7 days.
    #[schema(required = false)]
    client_request_id: ClientRequestId,
}

/// A dead letter to leave undone.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what is read field by field")]
pub struct DiscardOne {
    /// What the decision is.
    code: DiscardReason,
    /// Why.
    justification: Justification,
    /// Repeating the call with the same id gives the first answer again, for 7 days.
    #[schema(required = false)]
    client_request_id: ClientRequestId,
}

/// Members of a call that takes a reason.
pub(crate) const REASONED_FIELDS: &[&str] = &["reason", "client_request_id"];

/// A discard to take back.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what is read field by field")]
pub struct ReopenOne {
    /// Why.
    reason: ReasonText,
    /// Repeating the call with the same id gives the first answer again, for 7 days.
    #[schema(required = false)]
    client_request_id: ClientRequestId,
}

/// A call that may say why.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what is read field by field")]
pub struct ReasonedCall {
    /// Why.
    #[schema(required = false)]
    reason: Prose,
    /// Repeating the call with the same id gives the first answer again, for 7 days.
    #[schema(required = false)]
    client_request_id: ClientRequestId,
}

/// What a dead letter is to become. At least one of `message`, `merge_patch` and `headers`.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what is read field by field")]
pub struct Edit {
    /// The whole new message. Not together with `merge_patch`.
    #[schema(value_type = Value, required = false)]
    message: Option<Box<RawValue>>,
    /// What to change in the message: JSON Merge Patch (RFC 7396).
    #[schema(value_type = BTreeMap<String, Value>, required = false)]
    merge_patch: Option<Box<RawValue>>,
    /// The whole new headers; null = none. Not given: they stay.
    headers: Option<MessageHeaders>,
    /// Why.
    reason: ReasonText,
    /// Repeating the call with the same id gives the first answer again, for 7 days.
    #[schema(required = false)]
    client_request_id: ClientRequestId,
}

/// A dead letter after a change.
#[derive(Serialize, ToSchema)]
pub struct Edited {
    /// The message.
    #[schema(value_type = MessageId)]
    pub message_id: String,
    /// `dead`.
    #[schema(example = "dead")]
    pub state: &'static str,
    /// The revision that is there now.
    pub revision: i32,
    /// It differs from what it was when it died.
    pub edited: bool,
}

impl From<revisions::Edited> for Edited {
    fn from(edited: revisions::Edited) -> Self {
        Self {
            message_id: edited.id.to_string(),
            state: State::Dead.as_str(),
            revision: edited.revision,
            edited: edited.edited,
        }
    }
}
