//! Dead letters: list them, give them another round, or discard them.

use super::answer;
use super::docs::{Describe, Route};
use super::edge::Answered;
use super::extract::{Incoming, MAX_BODY};
use super::fields::{Fields, MAX_NESTING};
use super::messages::{example, filter, filtered, page};
use super::operator;
use super::problem::Code;
use super::publish::MAX_LIFE_SECONDS;
use super::queues::CALL_PROBLEMS;
use super::wire::message::{Decided, Justified, MessagePage, RedriveOne};
use quita_storage::model::{DiscardCode, State};
use serde_json::json;

const REDRIVE_FIELDS: &[&str] = &[
    "force",
    "expires_in_seconds",
    "justification",
    "client_request_id",
];
const DISCARD_FIELDS: &[&str] = &["justification", "client_request_id"];

pub(crate) async fn list(mut incoming: Incoming) -> Answered {
    incoming.no_body()?;
    let queue = incoming.queue().await?;
    let mut query = incoming.query(&["key", "client_request_id", "page_size", "page_token"]);
    let filter = filter(&mut query, State::Dead);
    page(incoming, &queue, query, filter).await
}

pub(crate) async fn redrive(mut incoming: Incoming) -> Answered {
    let queue = incoming.queue().await?;
    let id = incoming.message_id().await?;
    let body = incoming.optional_json().await?;
    let mut fields = Fields::open(body.text(), String::new(), REDRIVE_FIELDS)?;
    let force = fields.boolean("force").unwrap_or(false);
    let expires_in_ms = fields.seconds("expires_in_seconds", 0.001, MAX_LIFE_SECONDS);
    let reason = operator::reason(&mut fields, "justification", operator::Reason::Optional);
    let call = operator::call(&incoming, fields, &body, reason.as_deref())?;
    let service = &incoming.state.service;
    let done = service
        .redrive(&incoming.caller, &call, &queue, id, force, expires_in_ms)
        .await?;
    Ok(answer::operated(&Decided::from(done.answer), done.repeated))
}

pub(crate) async fn discard(mut incoming: Incoming) -> Answered {
    let queue = incoming.queue().await?;
    let id = incoming.message_id().await?;
    let body = incoming.json(MAX_BODY, MAX_NESTING).await?;
    let mut fields = Fields::open(body.text(), String::new(), DISCARD_FIELDS)?;
    let reason = operator::reason(&mut fields, "justification", operator::Reason::Justified);
    let call = operator::call(&incoming, fields, &body, reason.as_deref())?;
    let service = &incoming.state.service;
    let done = service
        .discard(&incoming.caller, &call, &queue, id, DiscardCode::WrittenOff)
        .await?;
    Ok(answer::operated(&Decided::from(done.answer), done.repeated))
}

const MESSAGE: &str = "msg_02mx3k8s9qv40";

pub(crate) fn describe_list() -> Route {
    use utoipa::PartialSchema;
    let described = Describe::new("listDeadLetters", "dead letters", "List dead letters")
        .text("Oldest first, with reason and last failure.")
        .queue()
        .query("reason", "Only these: `max_attempts`, `permanent_failure`, `lease_expired`, `release_limit`, `expired` or `operator`", String::schema(), &json!("max_attempts"));
    filtered(described)
        .answer::<MessagePage>(
            200,
            "A page of dead letters",
            json!({"messages": [example()]}),
        )
        .build()
}

pub(crate) fn describe_redrive() -> Route {
    Describe::new(
        "redriveDeadLetter",
        "dead letters",
        "Give a dead letter another round",
    )
    .text("Same id, keys and payload; attempts, expirations and releases begin again.")
    .queue()
    .message()
    .optional_body::<RedriveOne>(json!({"client_request_id": "fix-4711"}))
    .answer::<Decided>(
        200,
        "It is ready",
        json!({"message_id": MESSAGE, "state": "ready"}),
    )
    .problems(CALL_PROBLEMS)
    .problems(&[
        Code::NotDead,
        Code::RedriveLimit,
        Code::CompletionRemembered,
        Code::Expired,
        Code::ControlCharacter,
        Code::TooLong,
    ])
    .build()
}

pub(crate) fn describe_discard() -> Route {
    Describe::new(
        "discardDeadLetter",
        "dead letters",
        "Decide that a dead letter stays undone",
    )
    .text("Its payload is kept for 7 days more.")
    .queue()
    .message()
    .body::<Justified>(json!({"justification": "customer was refunded by hand"}))
    .answer::<Decided>(
        200,
        "It is discarded",
        json!({"message_id": MESSAGE, "state": "ended"}),
    )
    .problems(CALL_PROBLEMS)
    .problems(&[
        Code::NotDead,
        Code::ReasonRequired,
        Code::ControlCharacter,
        Code::TooLong,
    ])
    .build()
}

#[cfg(test)]
mod tests {
    use super::super::fields::tests::assert_described;
    use super::*;
    use utoipa::PartialSchema;

    #[test]
    fn what_is_read_is_what_is_described() {
        assert_described(&RedriveOne::schema(), REDRIVE_FIELDS);
    }
}
