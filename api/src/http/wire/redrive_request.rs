//! What a client asks for when it freezes dead letters, and begins or changes a redrive of them.

use super::dead_letter::DeadLetterFilter;
use super::values::{
    ClientRequestId, DiscardReason, Justification, Prose, QueueName, RatePerSecond, SelectionId,
    described, part,
};
use serde_json::{Value, json};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// Which dead letters to freeze.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what is read field by field")]
pub struct NewSelection {
    /// Whose.
    queue: QueueName,
    /// Which; all when it is missing.
    #[schema(required = false)]
    filter: DeadLetterFilter,
    /// Repeating the call with the same id gives the first answer again, for 7 days.
    #[schema(required = false)]
    client_request_id: ClientRequestId,
}

/// A bulk decision to begin: a redrive, or a discard, which has words of its own.
pub struct NewRedrive;

impl NewRedrive {
    /// Members of both.
    fn common() -> Value {
        let whole = |what: &str, min: i64| json!({"type": "integer", "minimum": min, "maximum": 1_000_000_000_000i64, "description": what});
        json!({
            "selection_id": part::<SelectionId>(),
            "expected_count": whole("The selection's `count`, as the operator saw it.", 0),
            "max": whole("Decide at most this many, the oldest first.", 1),
            "rate_per_second": part::<RatePerSecond>(),
            "dry_run": {"type": "boolean", "default": false, "description": "Count what would happen and change nothing."},
            "client_request_id": part::<ClientRequestId>(),
        })
    }

    fn redrive() -> Value {
        json!({
            "action": {"type": "string", "enum": ["redrive"], "description": "Another round. What is done when nothing is said."},
            "canary": {"type": ["object", "null"], "additionalProperties": false, "description": "A few first; null = none.", "properties": {
                "count": {"type": "integer", "minimum": 1, "maximum": 1_000_000, "default": 10, "description": "How many."},
                "wait_seconds": {"type": "number", "minimum": 0, "maximum": 86_400, "default": 60,
                    "description": "How long to see what becomes of them; sooner when all of them were acked."}}},
            "abort_if": {"type": ["object", "null"], "additionalProperties": false, "description": "When to stop by itself; null = never.", "properties": {
                "failed_fraction": {"type": "number", "minimum": 0.000_001, "maximum": 1, "default": 0.2,
                    "description": "This part of the redriven ones, or more, died again."},
                "min_sample": {"type": "integer", "minimum": 1, "maximum": 1_000_000, "default": 10, "description": "Counted against no smaller number."}}},
            "force": {"type": "boolean", "default": false,
                "description": "Also above `max_redrives`, or although a completion is remembered. Needs a reason."},
            "reason": part::<Prose>(),
            "code": {"type": "null"},
            "justification": {"type": "null"},
        })
    }

    fn discard() -> Value {
        json!({
            "action": {"type": "string", "enum": ["discard"], "description": "Left undone."},
            "code": part::<DiscardReason>(),
            "justification": part::<Justification>(),
            "force": {"type": "boolean", "enum": [false]},
            "reason": {"type": "null"},
            "canary": {"type": "null"},
            "abort_if": {"type": "null"},
        })
    }

    fn variant(what: &str, required: &[&str], mut own: Value) -> Value {
        if let (Some(own), Value::Object(common)) = (own.as_object_mut(), Self::common()) {
            own.extend(common);
        }
        json!({"type": "object", "description": what, "required": required, "properties": own, "additionalProperties": false})
    }
}

impl PartialSchema for NewRedrive {
    fn schema() -> RefOr<Schema> {
        let discard = [
            "selection_id",
            "expected_count",
            "action",
            "code",
            "justification",
        ];
        described(json!({
            "description": "A bulk decision to begin.",
            "oneOf": [
                Self::variant("Another round", &discard[..2], Self::redrive()),
                Self::variant("Left undone", &discard, Self::discard()),
            ],
        }))
    }
}

impl ToSchema for NewRedrive {}

/// What to change in a redrive that is under way.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what is read field by field")]
pub struct RedriveChange {
    /// How fast from now on; null = no limit.
    rate_per_second: RatePerSecond,
    /// Why.
    #[schema(required = false)]
    reason: Prose,
    /// Repeating the call with the same id gives the first answer again, for 7 days.
    #[schema(required = false)]
    client_request_id: ClientRequestId,
}
