//! What audit rows say about before and after: JSON objects, never with a payload or a secret.

use super::Message;
use super::operate::Act;
use crate::backend::KeyRecord;
use crate::model::{Millis, Place, Policy};
use crate::redrives::{BulkAction, Redrive};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::fmt::Write;

/// What was there and what is there now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trail {
    /// JSON object.
    pub before: Option<String>,
    /// JSON object.
    pub after: Option<String>,
}

impl Trail {
    fn new(before: Option<&Value>, after: Option<&Value>) -> Self {
        Self {
            before: before.map(Value::to_string),
            after: after.map(Value::to_string),
        }
    }

    /// Of a decision about one message.
    pub fn acted(before: &Message, act: &Act, after: Option<&Message>) -> Self {
        let mut now = after.map_or_else(|| json!({"state": "ended"}), message);
        if let (Act::Discard { code }, Value::Object(now)) = (act, &mut now) {
            now.insert("code".into(), code.as_str().into());
        }
        if let (Act::Redrive { force: true, .. }, Value::Object(now)) = (act, &mut now) {
            now.insert("force".into(), true.into());
        }
        Self::new(Some(&message(before)), Some(&now))
    }

    /// Of a changed payload: digests, since whoever may read the audit need not be allowed to read messages.
    pub fn edited(before: (i32, &[u8]), after: (i32, &[u8])) -> Self {
        let say = |(revision, payload): (i32, &[u8])| {
            let digest = Sha256::digest(payload);
            let hex = digest.iter().fold(String::new(), |mut text, byte| {
                let _ = write!(text, "{byte:02x}");
                text
            });
            json!({"revision": revision, "bytes": payload.len(), "sha256": hex})
        };
        Self::new(Some(&say(before)), Some(&say(after)))
    }

    /// Of a policy that was set.
    pub fn policy(before: Option<&Policy>, after: &Policy) -> Self {
        let say = |policy: &Policy| json!({"policy": policy});
        Self::new(before.map(say).as_ref(), Some(&say(after)))
    }

    /// Of a pause or its end.
    pub fn paused(before: bool, after: bool) -> Self {
        let say = |paused| json!({"paused": paused});
        Self::new(Some(&say(before)), Some(&say(after)))
    }

    /// Of a purge, or the end of a queue.
    pub fn purged(purged: i64, dead_letters: bool) -> Self {
        let now = json!({"purged": purged, "dead_letters": dead_letters});
        Self::new(None, Some(&now))
    }

    /// Of a key that was made.
    pub fn key_created(key: &KeyRecord) -> Self {
        Self::new(None, Some(&made(key)))
    }

    /// Of a key that gets a successor and ends itself.
    pub fn key_rotated(id: &str, ends_at: Millis, new: &KeyRecord) -> Self {
        let old = json!({"key_id": id, "expires_at_ms": ends_at});
        Self::new(Some(&old), Some(&made(new)))
    }

    /// Of a key that was revoked.
    pub fn key_revoked(id: &str) -> Self {
        let key = json!({"key_id": id});
        Self::new(Some(&key), Some(&json!({"key_id": id, "revoked": true})))
    }

    /// Of a redrive that began, changed or ended.
    pub fn redrive(before: Option<&Redrive>, after: &Redrive) -> Self {
        Self::new(before.map(redrive).as_ref(), Some(&redrive(after)))
    }
}

fn made(key: &KeyRecord) -> Value {
    let mut said =
        json!({"key_id": &*key.id, "scope": &*key.scope, "description": &*key.description});
    if let (Some(at), Some(members)) = (key.expires_at, said.as_object_mut()) {
        members.insert("expires_at_ms".into(), at.into());
    }
    said
}

fn message(message: &Message) -> Value {
    let mut said = Map::new();
    said.insert("state".into(), message.state().as_str().into());
    if let Place::Dead(dead) = &message.place {
        said.insert("reason".into(), dead.reason.as_str().into());
    }
    said.insert("attempts".into(), message.life.attempts.into());
    said.insert("redrive_count".into(), message.life.redrives.into());
    // A forced redrive drops it from the message: what a worker reported as done is never thrown away.
    if let Some(completion) = &message.completion {
        let outcome = completion
            .outcome
            .as_deref()
            .and_then(|text| serde_json::from_str(text).ok());
        said.insert(
            "completion".into(),
            json!({"delivery": completion.fence, "outcome": outcome.unwrap_or(Value::Null)}),
        );
    }
    Value::Object(said)
}

fn redrive(redrive: &Redrive) -> Value {
    let plan = &redrive.plan;
    let (action, code) = match plan.action {
        BulkAction::Redrive => ("redrive", None),
        BulkAction::Discard(code) => ("discard", Some(code.as_str())),
    };
    json!({
        "selection_id": plan.selection.to_string(),
        "action": action,
        "code": code,
        "count": redrive.count,
        "max": plan.max,
        "rate_per_second": plan.rate,
        "force": plan.force,
        "dry_run": plan.dry_run,
        "state": redrive.state.as_str(),
        "moved": redrive.moved,
        "skipped": redrive.skipped.total(),
        "failed_again": redrive.failed_again,
    })
}
