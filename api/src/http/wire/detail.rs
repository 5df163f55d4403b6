//! Everything that is known about one message.

use super::message::{MessageSummary, PastDelivery};
use super::values::{MessageId as MessageIdText, QueueName};
use super::{Time, partial, raw_json};
use crate::http::diff;
use crate::service::messages::MessageView;
use quita_storage::audit::AuditEntry;
use quita_storage::backend::Revision as StoredRevision;
use quita_storage::model::{DISCARD_UNDO_MS, Discarded, End, MessageId, Place, State};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use utoipa::ToSchema;

/// What an operator did to a message.
#[derive(Serialize, ToSchema)]
pub struct PastDecision {
    /// When.
    pub at: Time,
    /// Who.
    pub actor: String,
    /// What.
    pub action: String,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// As part of which redrive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redrive_id: Option<String>,
    /// `Request-Id` of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// What was there.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub before: Option<Box<RawValue>>,
    /// What was there then.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub after: Option<Box<RawValue>>,
}

impl PastDecision {
    fn new(entry: &AuditEntry) -> Self {
        Self {
            at: Time(entry.at),
            actor: entry.actor.to_string(),
            action: entry.action.to_string(),
            reason: entry.reason.as_deref().map(str::to_owned),
            redrive_id: entry.redrive.map(|id| id.to_string()),
            request_id: entry.http_request.as_deref().map(str::to_owned),
            before: entry.before.as_deref().and_then(raw_json),
            after: entry.after.as_deref().and_then(raw_json),
        }
    }
}

/// One change of a message by an operator.
#[derive(Serialize, ToSchema)]
pub struct Revision {
    /// Number, from 1.
    pub revision: i32,
    /// When.
    pub at: Time,
    /// Who.
    pub actor: String,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// It took changes back.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub undone: bool,
    /// What it changed in the message, against the revision before: operations of JSON Patch (RFC 6902).
    #[schema(value_type = Vec<Object>)]
    pub diff: Vec<Box<RawValue>>,
    /// What it changed in the headers, likewise.
    #[schema(value_type = Vec<Object>)]
    pub headers_diff: Vec<Box<RawValue>>,
}

impl Revision {
    fn new(before: &StoredRevision, after: &StoredRevision) -> Self {
        fn text(payload: &[u8]) -> &str {
            std::str::from_utf8(payload).unwrap_or_default()
        }
        let headers = |revision: &StoredRevision| revision.headers.clone();
        let (old, new) = (headers(before), headers(after));
        Self {
            revision: after.number,
            at: Time(after.at),
            actor: after.actor.to_string(),
            reason: after.reason.as_deref().map(str::to_owned),
            undone: after.undo,
            diff: diff::of(text(&before.payload), text(&after.payload)),
            headers_diff: diff::of(
                old.as_deref().unwrap_or("{}"),
                new.as_deref().unwrap_or("{}"),
            ),
        }
    }
}

partial! {
    /// What a listing says about a message, while it is there.
    MessageSummaryPart of MessageSummary
}

/// Everything that is known about a message.
#[derive(Serialize, ToSchema)]
pub struct MessageDetail {
    /// What the listing says, while the message is there.
    #[serde(flatten)]
    #[schema(value_type = MessageSummaryPart)]
    pub summary: Option<MessageSummary>,
    /// The message, where it is gone.
    #[serde(flatten)]
    #[schema(value_type = GoneMessage)]
    pub gone: Option<GoneMessage>,
    /// How it ended: `acked`, `discarded`, `cancelled`, `purged`, `dead_letter_expired` or `gone`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<&'static str>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Time>,
    /// What its ack reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub outcome: Option<Box<RawValue>>,
    /// Its own limit, where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// Its own backoff, where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff: Option<super::queue::Backoff>,
    /// The headers.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub headers: Option<Box<RawValue>>,
    /// What was published, byte for byte; with the right to see it, while it is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub message: Option<Box<RawValue>>,
    /// Deliveries that ended, oldest first: the first 10 and the last 100.
    pub history: Vec<PastDelivery>,
    /// What operators did, oldest first.
    pub decisions: Vec<PastDecision>,
    /// How often message or headers were changed by operators; 0 = as published.
    pub revision: i32,
    /// These changes, oldest first; with the right to see the message, while it is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revisions: Option<Vec<Revision>>,
    /// A worker has reported the work as done, although it held the message no longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion: Option<Completion>,
    /// Who discarded it, and until when that can be taken back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub discarded: Option<Discard>,
}

/// Finished work that has not taken effect.
#[derive(Serialize, ToSchema)]
pub struct Completion {
    /// Number of the delivery that finished it.
    pub delivery: i32,
    /// What it reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub outcome: Option<Box<RawValue>>,
}

/// A decision that a dead letter stays undone.
#[derive(Serialize, ToSchema)]
pub struct Discard {
    /// When.
    pub at: Time,
    /// Who.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// `not_applicable`, `duplicate`, `superseded` or `written_off`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub justification: Option<String>,
    /// Until when it can be re-opened; missing when its payload is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undo_until: Option<Time>,
}

impl Discard {
    fn new(discarded: &Discarded, decisions: &[AuditEntry]) -> Self {
        // Audit rows may be over sooner than the message.
        let decided = decisions.iter().rfind(|d| &*d.action == "discard");
        let after = decided.and_then(|d| d.after.as_deref());
        let after: Option<Value> = after.and_then(|text| serde_json::from_str(text).ok());
        let undo_until = discarded.discarded_at.saturating_add(DISCARD_UNDO_MS);
        Self {
            at: Time(discarded.discarded_at),
            actor: decided.map(|d| d.actor.to_string()),
            code: after.and_then(|after| Some(after["code"].as_str()?.to_owned())),
            justification: decided.and_then(|d| d.reason.as_deref().map(str::to_owned)),
            undo_until: discarded.payload_kept.then_some(Time(undo_until)),
        }
    }
}

/// What is still known of a message that is gone.
#[derive(Serialize, ToSchema)]
pub struct GoneMessage {
    /// The message's id.
    #[schema(value_type = MessageIdText)]
    pub message_id: String,
    /// Its queue.
    #[schema(value_type = QueueName)]
    pub queue: String,
    /// `ended`.
    pub state: &'static str,
    /// The business key, where it is remembered.
    pub key: Option<String>,
}

impl MessageDetail {
    /// From what the caller may see of it.
    pub(crate) fn new(id: MessageId, view: &MessageView) -> Self {
        let (queue, detail) = (&*view.queue, &*view.detail);
        let envelope = detail.message.as_ref().map(|m| m.envelope.clone());
        let discard = detail.message.as_ref().and_then(|m| match &m.place {
            Place::Discarded(discarded) => Some(discarded),
            _ => None,
        });
        let discarded = discard.map(|discarded| discarded.discarded_at);
        let completion = detail.message.as_ref().and_then(|m| m.completion.as_ref());
        let ended = detail.ended.as_ref();
        Self {
            summary: detail
                .message
                .as_ref()
                .map(|message| MessageSummary::new(queue, message)),
            gone: detail.message.is_none().then(|| GoneMessage {
                message_id: id.to_string(),
                queue: queue.name.to_string(),
                state: State::Ended.as_str(),
                key: detail.key.as_deref().map(str::to_owned),
            }),
            end: ended
                .map(|ended| ended.end.as_str())
                .or(discarded.map(|_| End::Discarded.as_str())),
            ended_at: ended.map(|ended| ended.at).or(discarded).map(Time),
            outcome: ended
                .and_then(|ended| ended.outcome.as_deref())
                .and_then(raw_json),
            max_attempts: envelope.as_ref().and_then(|e| e.max_attempts),
            backoff: envelope
                .as_ref()
                .and_then(|e| e.backoff.as_ref().map(super::queue::Backoff::from)),
            headers: envelope
                .as_ref()
                .map(|e| e.headers.as_deref().unwrap_or("{}"))
                .and_then(raw_json),
            message: detail
                .payload
                .as_deref()
                .and_then(|payload| std::str::from_utf8(payload).ok())
                .and_then(raw_json),
            history: detail.deliveries.iter().map(PastDelivery::new).collect(),
            decisions: detail.decisions.iter().map(PastDecision::new).collect(),
            revision: view.revision,
            revisions: view.inside.then(|| {
                let pairs = detail.revisions.windows(2);
                pairs
                    .map(|pair| Revision::new(&pair[0], &pair[1]))
                    .collect()
            }),
            completion: completion.map(|completion| Completion {
                delivery: completion.fence,
                outcome: completion.outcome.as_deref().and_then(raw_json),
            }),
            discarded: discard.map(|discarded| Discard::new(discarded, &detail.decisions)),
        }
    }
}
