//! Ack, nack, release, extend, and many of them at once.

use super::values::{DelaySeconds, LeaseSeconds, MessageId, ReceiptText, described};
use super::{Time, partial};
use crate::http::problem::Problem;
use crate::service::settle::SettledMessage;
use quita_storage::rules::settle::Settled as Outcome;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::openapi::schema::OneOfBuilder;
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// What became of a settle or extend.
#[derive(Default, Serialize, ToSchema)]
pub struct Settled {
    /// The message.
    #[schema(value_type = MessageId)]
    pub message_id: String,
    /// `acked`, `retry_scheduled`, `dead_lettered`, `released`, `extended`, `acked_superseded` or `already_settled`.
    #[schema(example = "acked")]
    pub result: &'static str,
    /// It came after the end of the lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late: Option<bool>,
    /// Another delivery of the message had come after this one.
    #[serde(skip_serializing_if = "is_false")]
    pub superseded: bool,
    /// How the message ended, where this repeats a settle of a message that is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<&'static str>,
    /// When the message is ready again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_attempt_at: Option<Time>,
    /// Attempts that remain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts_left: Option<i32>,
    /// The new end of the lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_expires_at: Option<Time>,
    /// The lease was cut to 24 h from the hand-out.
    #[serde(skip_serializing_if = "is_false")]
    pub capped: bool,
    /// An earlier delivery has reported the work as done: stop if you can.
    #[serde(skip_serializing_if = "is_false")]
    pub superseded_completion: bool,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that serde calls"
)]
fn is_false(value: &bool) -> bool {
    !value
}

impl From<SettledMessage> for Settled {
    fn from(SettledMessage { id, settled }: SettledMessage) -> Self {
        let base = Self {
            message_id: id.to_string(),
            ..Self::default()
        };
        match settled {
            Outcome::Acked { late, superseded } => Self {
                result: "acked",
                late: Some(late),
                superseded,
                ..base
            },
            Outcome::RetryScheduled {
                late,
                next_attempt_at,
                attempts_left,
            } => Self {
                result: "retry_scheduled",
                late: Some(late),
                next_attempt_at: Some(Time(next_attempt_at)),
                attempts_left: Some(attempts_left),
                ..base
            },
            Outcome::DeadLettered {
                late,
                attempts_left,
            } => Self {
                result: "dead_lettered",
                late: Some(late),
                attempts_left: Some(attempts_left),
                ..base
            },
            Outcome::AckedSuperseded => Self {
                result: "acked_superseded",
                late: Some(false),
                ..base
            },
            Outcome::Released => Self {
                result: "released",
                late: Some(false),
                ..base
            },
            Outcome::Extended {
                lease_expires_at,
                capped,
                superseded_completion,
            } => Self {
                result: "extended",
                lease_expires_at: Some(Time(lease_expires_at)),
                capped,
                superseded_completion,
                ..base
            },
            Outcome::Already { end } => Self {
                result: "already_settled",
                late: Some(false),
                end: end.map(quita_storage::model::End::as_str),
                ..base
            },
        }
    }
}

partial! {
    /// What became of a settle, where something did.
    SettledPart of Settled
}

/// The result of one settlement of many.
#[derive(Serialize, ToSchema)]
pub struct SettlementResult {
    /// Position of the settlement.
    pub index: usize,
    /// The status that the settlement alone would have got.
    #[schema(example = 200)]
    pub status: u16,
    /// What became of it, unless it was refused.
    #[serde(flatten)]
    #[schema(value_type = SettledPart)]
    pub settled: Option<Settled>,
    /// Why it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<crate::http::docs::ProblemDocument>)]
    pub error: Option<Problem>,
}

/// The results of many settlements, one per settlement, in order.
#[derive(Serialize, ToSchema)]
pub struct SettledMany {
    /// One per settlement.
    pub results: Vec<SettlementResult>,
    /// How many have a 2xx.
    pub succeeded: usize,
    /// How many have not.
    pub failed: usize,
}

/// The work is done.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what is read field by field")]
pub struct Ack {
    /// The delivery.
    receipt: ReceiptText,
    /// What came of it: any JSON of at most 16 KiB, returned to duplicates and with the message.
    #[schema(value_type = Option<Value>)]
    outcome: Option<serde_json::Value>,
}

/// The work failed.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what is read field by field")]
pub struct Nack {
    /// The delivery.
    receipt: ReceiptText,
    /// Why.
    error: Option<NackError>,
    /// Replaces the backoff.
    #[schema(required = false)]
    delay_seconds: DelaySeconds,
    /// Repeating is useless: straight to the dead letters.
    #[schema(required = false, default = false)]
    permanent: bool,
}

/// Why work failed. Never a reason to refuse the nack: what is too long is cut, what is unprintable is replaced.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what is read field by field")]
pub struct NackError {
    /// A short code, for grouping; cut to 128 bytes. What is no text is kept as its JSON text.
    #[schema(value_type = Option<Value>, example = "gateway_timeout")]
    code: Option<Value>,
    /// For people; cut to 4 KiB. Likewise.
    #[schema(value_type = Option<Value>, example = "no answer in 10 s")]
    detail: Option<Value>,
}

/// Not worked on: somebody else may have it.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what is read field by field")]
pub struct Release {
    /// The delivery.
    receipt: ReceiptText,
    /// Ready this much later; at once, and at its old place, when absent.
    #[schema(required = false)]
    delay_seconds: DelaySeconds,
}

/// Still working.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what is read field by field")]
pub struct Extend {
    /// The delivery.
    receipt: ReceiptText,
    /// The lease ends this long from now, also when that is sooner than before.
    visibility_timeout_seconds: LeaseSeconds,
}

/// Settlements, each by itself.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what is read field by field")]
pub struct Settle {
    /// 1 to 1,000.
    #[schema(min_items = 1, max_items = 1_000)]
    settlements: Vec<Settlement>,
}

/// One settlement: the action and the fields of the single request.
pub struct Settlement;

impl PartialSchema for Settlement {
    fn schema() -> RefOr<Schema> {
        OneOfBuilder::new()
            .description(Some(
                "One settlement: the action and the fields of the single request.",
            ))
            .item(with_action("ack", Ack::schema()))
            .item(with_action("nack", Nack::schema()))
            .item(with_action("release", Release::schema()))
            .item(with_action("extend", Extend::schema()))
            .into()
    }
}

fn with_action(action: &str, mut request: RefOr<Schema>) -> RefOr<Schema> {
    if let RefOr::T(Schema::Object(object)) = &mut request {
        let word = described(json!({"type": "string", "enum": [action]}));
        object.properties.insert("action".to_owned(), word);
        object.required.push("action".to_owned());
    }
    request
}

impl ToSchema for Settlement {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        Nack::schemas(schemas);
        Ack::schemas(schemas);
        Extend::schemas(schemas);
    }
}
