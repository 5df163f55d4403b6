//! `POST /v1/queue/ack`, `nack`, `release`, `extend`, and `settle` for many of them.

use super::answer;
use super::docs::{Describe, Route};
use super::edge::Answered;
use super::extract::{Incoming, MAX_BATCH_BODY, MAX_BODY};
use super::fields::{Fields, MAX_NESTING};
use super::json::lossy_text;
use super::problem::{Code, Problem};
use super::publish::MAX_DELAY_SECONDS;
use super::wire;
use super::wire::settle::{Settled, SettledMany, SettlementResult};
use crate::service::settle::Settlement;
use http::StatusCode;
use quita_storage::model::Failure;
use quita_storage::rules::settle::Action;
use serde_json::json;
use std::borrow::Cow;

/// Settlements of one request: ten times what a receive hands out, so that workers can gather (product 4.7).
const MAX_SETTLEMENTS: usize = 1_000;
/// Largest outcome (product 4.4).
const MAX_OUTCOME_BYTES: usize = 16 << 10;

/// What a worker may say about a delivery.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verb {
    Ack,
    Nack,
    Release,
    Extend,
}

const VERBS: &[(&str, Verb)] = &[
    ("ack", Verb::Ack),
    ("nack", Verb::Nack),
    ("release", Verb::Release),
    ("extend", Verb::Extend),
];

impl Verb {
    fn fields(self) -> &'static [&'static str] {
        match self {
            Self::Ack => &["receipt", "outcome"],
            Self::Nack => &["receipt", "error", "delay_seconds", "permanent"],
            Self::Release => &["receipt", "delay_seconds"],
            Self::Extend => &["receipt", "visibility_timeout_seconds"],
        }
    }
}

const ENTRY_FIELDS: &[&str] = &[
    "receipt",
    "action",
    "outcome",
    "error",
    "delay_seconds",
    "permanent",
    "visibility_timeout_seconds",
];
const SETTLE_FIELDS: &[&str] = &["settlements"];
const ERROR_FIELDS: &[&str] = &["code", "detail"];

pub(crate) async fn ack(incoming: Incoming) -> Answered {
    one(incoming, Verb::Ack).await
}

pub(crate) async fn nack(incoming: Incoming) -> Answered {
    one(incoming, Verb::Nack).await
}

pub(crate) async fn release(incoming: Incoming) -> Answered {
    one(incoming, Verb::Release).await
}

pub(crate) async fn extend(incoming: Incoming) -> Answered {
    one(incoming, Verb::Extend).await
}

async fn one(mut incoming: Incoming, verb: Verb) -> Answered {
    let body = incoming.json(MAX_BODY, MAX_NESTING).await?;
    let mut fields = Fields::open(body.text(), String::new(), verb.fields())?;
    let read = read(&mut fields, verb)?;
    fields.finish()?;
    let (receipt, action) = read.ok_or(Code::MissingField)?;
    let settlement = Settlement {
        receipt: &receipt,
        action,
    };
    let service = &incoming.state.service;
    let mut results = service.settle(&incoming.caller, vec![settlement]).await?;
    let settled = results.pop().ok_or(Code::Internal)??;
    Ok(answer::json(StatusCode::OK, &Settled::from(settled)))
}

pub(crate) async fn settle(mut incoming: Incoming) -> Answered {
    // Object and array are around each settlement.
    let body = incoming.json(MAX_BATCH_BODY, MAX_NESTING + 2).await?;
    let mut fields = Fields::open(body.text(), String::new(), SETTLE_FIELDS)?;
    fields.require("settlements");
    let entries = fields.entries::<MAX_SETTLEMENTS>("settlements");
    if let Some(entries) = &entries
        && (entries.more || entries.items.is_empty())
    {
        fields.fault(
            Code::BatchSize,
            "settlements",
            "1 to 1,000 entries are allowed.",
        );
    }
    fields.finish()?;
    let entries = entries.ok_or(Code::MissingField)?;
    incoming.charge_settles(entries.items.len());

    let read: Vec<Result<_, Problem>> = entries
        .items
        .iter()
        .enumerate()
        .map(|(index, entry)| read_entry(entry.get(), index))
        .collect();
    let settlements = read.iter().flatten().map(|(receipt, action)| Settlement {
        receipt,
        action: action.clone(),
    });
    let service = &incoming.state.service;
    let settled = service
        .settle(&incoming.caller, settlements.collect())
        .await?;

    let mut settled = settled.into_iter();
    let mut answered = SettledMany {
        results: Vec::with_capacity(read.len()),
        succeeded: 0,
        failed: 0,
    };
    for (index, read) in read.into_iter().enumerate() {
        let outcome = match read {
            Err(problem) => Err(problem),
            Ok(_) => match settled.next() {
                Some(Ok(settled)) => Ok(settled),
                Some(Err(error)) => {
                    Err(Problem::from(error).within(&format!("/settlements/{index}")))
                }
                None => Err(Code::Internal.into()),
            },
        };
        answered.results.push(match outcome {
            Ok(settled) => {
                answered.succeeded += 1;
                SettlementResult {
                    index,
                    status: 200,
                    settled: Some(settled.into()),
                    error: None,
                }
            }
            Err(problem) => {
                incoming.count(&problem);
                answered.failed += 1;
                SettlementResult {
                    index,
                    status: problem.status(),
                    settled: None,
                    error: Some(problem),
                }
            }
        });
    }
    Ok(answer::json(StatusCode::OK, &answered))
}

fn read_entry(text: &str, index: usize) -> Result<(Cow<'_, str>, Action), Problem> {
    let mut fields = Fields::open(text, format!("/settlements/{index}"), ENTRY_FIELDS)?;
    fields.require("action");
    let read = match fields.choice("action", VERBS) {
        Some(verb) => {
            fields.only(&[&["action"], verb.fields()].concat());
            read(&mut fields, verb)?
        }
        None => None,
    };
    fields.finish()?;
    read.ok_or_else(|| Code::MissingField.into())
}

/// The receipt and what about it; `None` when something is missing or wrong, which is then noted.
fn read<'a>(
    fields: &mut Fields<'a>,
    verb: Verb,
) -> Result<Option<(Cow<'a, str>, Action)>, Problem> {
    fields.require("receipt");
    let receipt = fields.text("receipt");
    let action = match verb {
        Verb::Ack => Some(Action::Ack {
            outcome: outcome(fields),
        }),
        Verb::Nack => Some(Action::Nack {
            failure: failure(fields)?,
            delay_ms: fields.seconds("delay_seconds", 0.0, MAX_DELAY_SECONDS),
            permanent: fields.boolean("permanent").unwrap_or(false),
        }),
        Verb::Release => Some(Action::Release {
            delay_ms: fields.seconds("delay_seconds", 0.0, MAX_DELAY_SECONDS),
        }),
        Verb::Extend => {
            fields.require("visibility_timeout_seconds");
            fields
                .seconds("visibility_timeout_seconds", 1.0, 43_200.0)
                .map(|visibility_timeout_ms| Action::Extend {
                    visibility_timeout_ms,
                })
        }
    };
    Ok(receipt.zip(action))
}

fn outcome(fields: &mut Fields<'_>) -> Option<std::sync::Arc<str>> {
    let text = fields.raw("outcome")?;
    if text == "null" {
        return None;
    }
    if text.len() > MAX_OUTCOME_BYTES {
        fields.fault(
            Code::TooLong,
            "outcome",
            "At most 16,384 bytes are allowed.",
        );
        return None;
    }
    Some(text.into())
}

/// Never a reason to refuse (product 4.14): what is no text is taken as its JSON text, lone surrogates are replaced.
fn failure(fields: &mut Fields<'_>) -> Result<Failure, Problem> {
    if fields.null("error") {
        return Ok(Failure::default());
    }
    let said = fields.object("error", ERROR_FIELDS, |error| {
        let said = |name| error.raw(name).and_then(lossy_text);
        let (code, detail) = (said("code"), said("detail"));
        Some(Failure::cleaned(code.as_deref(), detail.as_deref()))
    })?;
    Ok(said.unwrap_or_default())
}

const MESSAGE: &str = "msg_02mx3k8s9qv40";
const RECEIPT: &str = "AQAAAAEAAAAB…";

fn of_settle(describe: Describe) -> Describe {
    let message = ("message_id", "$response.body#/message_id");
    describe.leads_to("getMessage", &[message]).problems(&[
        Code::NotFound,
        Code::MissingField,
        Code::InvalidReceipt,
        Code::LeaseExpired,
        Code::LeaseSuperseded,
        Code::TakenByOperator,
        Code::ReceiptSpent,
        Code::ReceiptFromBeforeRestore,
        Code::Draining,
        Code::OutcomeUnknown,
    ])
}

pub(crate) fn describe_ack() -> Route {
    let described = Describe::new("ack", "work", "Finish a message")
        .text("Also late, as long as nobody else has the message: finished work is never thrown away. Safe to repeat.")
        .body::<wire::settle::Ack>(json!({"receipt": RECEIPT, "outcome": {"charged": true}}))
        .answer::<Settled>(200, "The message is done", json!({"message_id": MESSAGE, "result": "acked", "late": false}));
    of_settle(described).problems(&[Code::TooLong]).build()
}

pub(crate) fn describe_nack() -> Route {
    let described = Describe::new("nack", "work", "Report a failure")
        .text("The message comes again after the queue's backoff, or after delay_seconds; it becomes a dead letter when its attempts are used up or the failure is permanent. What is reported in `error` is never a reason to refuse.")
        .body::<wire::settle::Nack>(json!({"receipt": RECEIPT, "error": {"code": "gateway_timeout", "detail": "no answer in 10 s"}}))
        .answer::<Settled>(200, "The failure is recorded", json!({"message_id": MESSAGE, "result": "retry_scheduled", "late": false, "next_attempt_at": "2026-11-30T15:04:08.500Z", "attempts_left": 4}));
    of_settle(described)
        .problems(&[Code::MessageGone, Code::OutOfRange])
        .build()
}

pub(crate) fn describe_release() -> Route {
    let described = Describe::new("release", "work", "Give a message back unworked")
        .text(
            "It returns to its old place, or later with delay_seconds. Not counted as an attempt.",
        )
        .body::<wire::settle::Release>(json!({"receipt": RECEIPT}))
        .answer::<Settled>(
            200,
            "The message is available again",
            json!({"message_id": MESSAGE, "result": "released", "late": false}),
        );
    of_settle(described)
        .problems(&[Code::MessageGone, Code::OutOfRange])
        .build()
}

pub(crate) fn describe_extend() -> Route {
    let described = Describe::new("extend", "work", "Keep a message longer")
        .text("The lease ends visibility_timeout_seconds from now, at most 24 hours from the hand-out.")
        .body::<wire::settle::Extend>(json!({"receipt": RECEIPT, "visibility_timeout_seconds": 60}))
        .answer::<Settled>(200, "The lease has a new end", json!({"message_id": MESSAGE, "result": "extended", "lease_expires_at": "2026-11-30T15:05:06.000Z"}));
    of_settle(described)
        .problems(&[Code::MessageGone, Code::OutOfRange])
        .build()
}

pub(crate) fn describe_settle() -> Route {
    Describe::new("settle", "work", "Settle many deliveries")
        .text("One result per settlement, in order; a refused one never fails its neighbours.")
        .body::<wire::settle::Settle>(json!({"settlements": [{"receipt": RECEIPT, "action": "ack"}, {"receipt": "x", "action": "nack"}]}))
        .answer::<SettledMany>(200, "One result per settlement", json!({"results": [
            {"index": 0, "status": 200, "message_id": MESSAGE, "result": "acked", "late": false},
            {"index": 1, "status": 422, "error": super::docs::example(Code::InvalidReceipt)}], "succeeded": 1, "failed": 1}))
        .problems(&[Code::MissingField, Code::BatchSize, Code::Draining, Code::OutcomeUnknown])
        .build()
}

#[cfg(test)]
mod tests {
    use super::super::fields::tests::assert_described;
    use super::*;
    use utoipa::PartialSchema;

    #[test]
    fn what_is_read_is_what_is_described() {
        assert_described(&wire::settle::Ack::schema(), Verb::Ack.fields());
        assert_described(&wire::settle::Nack::schema(), Verb::Nack.fields());
        assert_described(&wire::settle::Release::schema(), Verb::Release.fields());
        assert_described(&wire::settle::Extend::schema(), Verb::Extend.fields());
        assert_described(&wire::settle::Settlement::schema(), ENTRY_FIELDS);
        assert_described(&wire::settle::Settle::schema(), SETTLE_FIELDS);
        assert_described(&wire::settle::NackError::schema(), ERROR_FIELDS);
    }

    #[test]
    fn no_error_is_a_reason_to_refuse_a_nack() {
        for (error, code, detail) in [
            (r#"{"code":"E1","detail":"x"}"#, Some("E1"), Some("x")),
            (r#"{"code":17,"detail":["a"]}"#, Some("17"), Some("[\"a\"]")),
            (
                r#"{"code":"\u0000\ud800"}"#,
                Some("\u{fffd}\u{fffd}\u{fffd}\u{fffd}"),
                None,
            ),
            (r#"{"code":null}"#, None, None),
            ("null", None, None),
        ] {
            let text = format!(r#"{{"receipt":"r","error":{error}}}"#);
            let mut fields = Fields::open(&text, String::new(), Verb::Nack.fields()).unwrap();
            let failure = failure(&mut fields).unwrap();
            assert!(fields.finish().is_ok(), "{error}");
            assert_eq!(failure.code.as_deref(), code, "{error}");
            assert_eq!(failure.detail.as_deref(), detail, "{error}");
        }
    }

    #[test]
    fn a_field_of_another_action_is_not_known() {
        let text = r#"{"receipt":"r","action":"ack","delay_seconds":1}"#;
        assert_eq!(read_entry(text, 3).unwrap_err().code(), Code::UnknownField);
        let text = r#"{"receipt":"r","action":"nuck"}"#;
        assert_eq!(read_entry(text, 3).unwrap_err().code(), Code::InvalidValue);
    }
}
