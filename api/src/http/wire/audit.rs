//! The audit trail.

use super::queue::Policy;
use super::{Time, raw_json};
use quita_storage::audit;
use quita_storage::model::{self, Queue};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

/// One thing that was done.
#[derive(Serialize, ToSchema)]
#[schema(as = AuditEntry)]
pub struct Entry {
    /// Rises with time.
    pub audit_id: i64,
    /// When.
    pub at: Time,
    /// Who: the id of a key, or `policy` for what a rule did.
    pub actor: String,
    /// What.
    #[schema(example = "discard")]
    pub action: String,
    /// On which queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// On which message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// As part of which redrive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redrive_id: Option<String>,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What was there. Never a message or a secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub before: Option<Box<RawValue>>,
    /// What was there then, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub after: Option<Box<RawValue>>,
    /// `Request-Id` of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

impl Entry {
    /// A row and its queue.
    pub(crate) fn new(entry: &audit::AuditEntry, queue: Option<&Queue>) -> Self {
        Self {
            audit_id: entry.id,
            at: Time(entry.at),
            actor: entry.actor.to_string(),
            action: entry.action.to_string(),
            queue: queue.map(|queue| queue.name.to_string()),
            message_id: entry.message.map(|id| id.to_string()),
            redrive_id: entry.redrive.map(|id| id.to_string()),
            reason: entry.reason.as_deref().map(str::to_owned),
            before: entry.before.as_deref().and_then(shown),
            after: entry.after.as_deref().and_then(shown),
            request_id: entry.http_request.as_deref().map(str::to_owned),
        }
    }
}

/// A state as clients know it: a policy is stored in other units than it is set in.
pub(crate) fn shown(state: &str) -> Option<Box<RawValue>> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Stored {
        policy: model::Policy,
    }
    #[derive(Serialize)]
    struct Shown {
        policy: Policy,
    }
    if !state.starts_with("{\"policy\":") {
        return raw_json(state);
    }
    match serde_json::from_str(state) {
        Ok(Stored { policy }) => serde_json::value::to_raw_value(&Shown {
            policy: Policy::from(&policy),
        })
        .ok(),
        Err(_) => raw_json(state),
    }
}

/// A page of the audit trail.
#[derive(Serialize, ToSchema)]
pub struct AuditPage {
    /// In the order that was asked for. A short page is not the end.
    pub entries: Vec<Entry>,
    /// Where the next page begins; missing when that was all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_page_token: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use quita_storage::rules::trail::Trail;

    #[test]
    fn a_policy_is_shown_as_it_is_set() {
        let trail = Trail::policy(None, &model::Policy::default());
        let shown = shown(trail.after.as_deref().unwrap()).unwrap();
        assert!(!shown.get().contains("_ms"), "{shown}");
        assert!(shown.get().contains(r#""visibility_timeout_seconds":30"#));
        let other = r#"{"paused":true}"#;
        assert_eq!(super::shown(other).unwrap().get(), other);
    }
}
