//! Messages as resources: browse a queue, read one, decide about one.

use super::answer;
use super::docs::{Describe, Route};
use super::edge::Answered;
use super::extract::{Incoming, MAX_BODY};
use super::fields::{Fields, MAX_NESTING};
use super::operator::{self, Reason};
use super::paging::{self, Listing};
use super::problem::Code;
use super::text_rule::TextRule;
use super::wire::detail::MessageDetail;
use super::wire::message::{DeadLetterCall, Decided, Justified, MessagePage, MessageSummary};
use super::wire::queue::OperatorCall;
use super::wire::values;
use crate::auth::Right;
use crate::service::messages::Filter;
use bytes::Bytes;
use http::StatusCode;
use quita_storage::model::State;
use quita_storage::rules::operate::Act;
use serde_json::{Value, json};

/// A filter is as long as what it can match.
const KEY: TextRule = TextRule::line(0, 256);
const CLIENT_REQUEST_ID: TextRule = TextRule {
    controls: true,
    ..TextRule::line(0, 128)
};
const STATES: &[(&str, State)] = &[
    ("ready", State::Ready),
    ("delayed", State::Delayed),
    ("leased", State::Leased),
    ("dead", State::Dead),
];
const JUSTIFIED_FIELDS: &[&str] = &["justification", "client_request_id"];
const DEAD_LETTER_FIELDS: &[&str] = &["reason", "client_request_id"];
const CALL_FIELDS: &[&str] = &["client_request_id"];

pub(crate) async fn browse(mut incoming: Incoming) -> Answered {
    incoming.no_body()?;
    let queue = incoming.queue().await?;
    let mut query = incoming.query(&[
        "state",
        "key",
        "client_request_id",
        "page_size",
        "page_token",
    ]);
    let state = if query.raw("state").is_some() {
        query.choice("state", STATES)
    } else {
        Some(State::Ready)
    };
    let state = state.unwrap_or(State::Ready);
    let filter = Filter {
        state,
        key: query.text_in("key", KEY).map(Into::into),
        client_request_id: query
            .text_in("client_request_id", CLIENT_REQUEST_ID)
            .map(Bytes::from),
    };
    let size = paging::size(&mut query);
    let listing = Listing::new(&(
        ("messages", &queue, state.code()),
        (&filter.key, filter.client_request_id.as_deref()),
    ));
    let after = paging::message_place(&mut query, listing);
    query.finish()?;
    let service = &incoming.state.service;
    let (queue, page) = service
        .browse(&incoming.caller, &queue, filter, after, size)
        .await?;
    let page = MessagePage {
        messages: page
            .items
            .iter()
            .map(|listed| MessageSummary::listed(&queue, listed))
            .collect(),
        next_page_token: page.next.map(|place| paging::message_token(listing, place)),
    };
    Ok(answer::json(StatusCode::OK, &page))
}

pub(crate) async fn read(mut incoming: Incoming) -> Answered {
    incoming.no_body()?;
    incoming.no_query()?;
    let id = incoming.message_id().await?;
    let view = incoming.state.service.message(&incoming.caller, id).await?;
    Ok(answer::json(StatusCode::OK, &MessageDetail::new(id, &view)))
}

pub(crate) async fn cancel(mut incoming: Incoming) -> Answered {
    let id = incoming.message_id().await?;
    let body = incoming.json(MAX_BODY, MAX_NESTING).await?;
    let mut fields = Fields::open(body.text(), String::new(), JUSTIFIED_FIELDS)?;
    let reason = operator::reason(&mut fields, "justification", Reason::Justified);
    let call = operator::call(&incoming, fields, &body, reason.as_deref())?;
    let service = &incoming.state.service;
    let done = service
        .decide(&incoming.caller, &call, Right::Discard, id, Act::Cancel)
        .await?;
    Ok(answer::operated(&Decided::from(done.answer), done.repeated))
}

pub(crate) async fn promote(mut incoming: Incoming) -> Answered {
    let id = incoming.message_id().await?;
    let body = incoming.optional_json().await?;
    let fields = Fields::open(body.text(), String::new(), CALL_FIELDS)?;
    let call = operator::call(&incoming, fields, &body, None)?;
    let service = &incoming.state.service;
    let done = service
        .decide(&incoming.caller, &call, Right::Manage, id, Act::Promote)
        .await?;
    Ok(answer::operated(&Decided::from(done.answer), done.repeated))
}

pub(crate) async fn dead_letter(mut incoming: Incoming) -> Answered {
    let id = incoming.message_id().await?;
    let body = incoming.json(MAX_BODY, MAX_NESTING).await?;
    let mut fields = Fields::open(body.text(), String::new(), DEAD_LETTER_FIELDS)?;
    let reason = operator::reason(&mut fields, "reason", Reason::Given);
    let call = operator::call(&incoming, fields, &body, reason.as_deref())?;
    let service = &incoming.state.service;
    let done = service
        .decide(&incoming.caller, &call, Right::Manage, id, Act::DeadLetter)
        .await?;
    Ok(answer::operated(&Decided::from(done.answer), done.repeated))
}

/// The first message of a page, as the parameter of another operation.
pub(crate) const FIRST: (&str, &str) = ("message_id", "$response.body#/messages/0/message_id");
const MESSAGE: &str = "msg_02mx3k8s9qv40";

/// A dead letter as listings show it.
pub(crate) fn example() -> Value {
    json!({
        "message_id": MESSAGE, "queue": "orders", "state": "dead", "key": "order-4711", "client_request_id": null, "priority": 4,
        "published_at": "2026-11-30T15:04:05.123Z",
        "dead_letter": {"reason": "max_attempts", "failure_kind": "nack", "limit": "max_attempts", "died_at": "2026-11-30T15:20:00.000Z", "error_code": "gateway_timeout", "group": "grp_00c3f1a9d2e45b67"},
        "deliveries": 5, "attempts": 5, "lease_expirations": 0, "releases": 0, "redrive_count": 0, "size_bytes": 17,
        "last_delivery": {"delivery": 5, "attempt": 5, "cause": "nack", "late": false, "leased_at": "2026-11-30T15:19:58.000Z",
            "ended_at": "2026-11-30T15:20:00.000Z", "worker": "billing-7", "error": {"code": "gateway_timeout"}}})
}

pub(crate) fn describe_browse() -> Route {
    use utoipa::PartialSchema;
    Describe::new("browseMessages", "messages", "Browse the messages of a queue")
        .text("One state in its own order: ready by priority and age, delayed by due time, leased by id, dead by time of death. Leases nothing. A short page is not the end: only a missing next_page_token is.")
        .queue()
        .query("state", "`ready` (default), `delayed`, `leased` or `dead`", values::BrowsedState::schema(), &json!("ready"))
        .query(
            "key",
            "Only messages with this key",
            values::KeyFilter::schema(),
            &json!("order-4711"),
        )
        .query(
            "client_request_id",
            "Only the message with this id",
            values::RequestIdFilter::schema(),
            &json!("order-4711"),
        )
        .paged()
        .problems(&[Code::TooLong, Code::ControlCharacter])
        .answer::<MessagePage>(200, "A page of messages", json!({"messages": [example()]}))
        .leads_to("getMessage", &[FIRST])
        .leads_to("promoteMessage", &[FIRST])
        .leads_to_with("cancelMessage", &[FIRST], json!({"justification": "ordered twice by mistake"}))
        .leads_to_with("deadLetterMessage", &[FIRST], json!({"reason": "poisons the importer"}))
        .build()
}

pub(crate) fn describe_read() -> Route {
    let mut detail = example();
    if let Some(members) = detail.as_object_mut() {
        members.insert("message".to_owned(), json!({"order": 4711}));
        members.insert("headers".to_owned(), json!({}));
        members.insert("history".to_owned(), json!([]));
        members.insert("decisions".to_owned(), json!([]));
        members.insert("revision".to_owned(), json!(1));
        members.insert("revisions".to_owned(), json!([{"revision": 1, "at": "2026-11-30T16:00:00.000Z", "actor": "k7f2mx3q9sv4",
            "reason": "amount had a comma", "diff": [{"op": "replace", "path": "/order", "value": 4711}], "headers_diff": []}]));
    }
    Describe::new("getMessage", "messages", "Read a message")
        .text("Where it is, what happened to it, and how it ended as long as that is remembered.")
        .message()
        .answer::<MessageDetail>(200, "The message", detail)
        .problems(&[Code::BodyNotAllowed])
        .build()
}

const REASON_PROBLEMS: &[Code] = &[Code::ReasonRequired, Code::ControlCharacter, Code::TooLong];

pub(crate) fn describe_cancel() -> Route {
    Describe::new(
        "cancelMessage",
        "messages",
        "Take a waiting message out for good",
    )
    .message()
    .body::<Justified>(json!({"justification": "ordered twice by mistake"}))
    .answer::<Decided>(
        200,
        "It is gone",
        json!({"message_id": MESSAGE, "state": "ended"}),
    )
    .repeatable()
    .problems(REASON_PROBLEMS)
    .problems(&[Code::NotWaiting])
    .build()
}

pub(crate) fn describe_promote() -> Route {
    Describe::new(
        "promoteMessage",
        "messages",
        "Make a delayed message ready now",
    )
    .message()
    .optional_body::<OperatorCall>(json!({"client_request_id": "promote-1"}))
    .answer::<Decided>(
        200,
        "It is ready",
        json!({"message_id": MESSAGE, "state": "ready"}),
    )
    .repeatable()
    .problems(&[Code::NotDelayed])
    .build()
}

pub(crate) fn describe_dead_letter() -> Route {
    Describe::new("deadLetterMessage", "messages", "Quarantine a message")
        .text("Also while it is leased: the worker's settle is then answered `taken_by_operator`.")
        .message()
        .body::<DeadLetterCall>(json!({"reason": "poisons the importer"}))
        .answer::<Decided>(
            200,
            "It is a dead letter",
            json!({"message_id": MESSAGE, "state": "dead"}),
        )
        .repeatable()
        .problems(REASON_PROBLEMS)
        .problems(&[Code::AlreadyDead])
        .build()
}

#[cfg(test)]
mod tests {
    use super::super::fields::tests::assert_described;
    use super::*;
    use utoipa::PartialSchema;

    #[test]
    fn what_is_read_is_what_is_described() {
        assert_described(&Justified::schema(), JUSTIFIED_FIELDS);
        assert_described(&DeadLetterCall::schema(), DEAD_LETTER_FIELDS);
    }
}
