//! `POST /v1/queue/publish` and `POST /v1/queue/publish-batch`.

use super::docs::{Describe, Route};
use super::edge::Answered;
use super::extract::{Incoming, JsonBody, MAX_BATCH_BODY, MAX_BODY, is_queue_name};
use super::fields::{Fields, MAX_MESSAGE_NESTING};
use super::json::only_string_member;
use super::problem::{Code, Problem};
use super::text_rule::TextRule;
use super::wire::publish::{BatchPublished, BatchResult, Published};
use super::wire::{self, write_string};
use super::{answer, policy};
use crate::auth::bucket::Class;
use crate::service::publish::{DEFAULT_PRIORITY, NewMessage};
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use serde_json::json;
use std::borrow::Cow;
use std::sync::Arc;
use utoipa::openapi::{RefOr, Schema};

/// Entries of a batch (product §5).
const MAX_ENTRIES: usize = 1_000;
/// Headers of a message, and their sizes (product §6).
const MAX_HEADERS: usize = 32;
const HEADER_NAME: TextRule = TextRule::line(1, 64);
const HEADER_VALUE: TextRule = TextRule::line(0, 1_024);
/// A business key (product 4.4).
pub(crate) const KEY: TextRule = TextRule::line(1, 256);
/// A request id: compared exactly, so any character is allowed (product 4.3).
pub(crate) const REQUEST_ID: TextRule = TextRule {
    controls: true,
    ..TextRule::line(1, 128)
};
/// Longest life span: ten years, as long as anything is kept (product §6).
pub(crate) const MAX_LIFE_SECONDS: f64 = 315_360_000.0;
/// Longest delay: 7 days (product §6).
pub(crate) const MAX_DELAY_SECONDS: f64 = 604_800.0;

const FIELDS: &[&str] = &[
    "queue",
    "message",
    "client_request_id",
    "key",
    "delay_seconds",
    "priority",
    "headers",
    "expires_in_seconds",
    "max_attempts",
    "backoff",
];
const BATCH_FIELDS: &[&str] = &["queue", "messages"];
const ENTRY_FIELDS: &[&str] = FIELDS.split_at(1).1;

pub(crate) async fn publish(mut incoming: Incoming) -> Answered {
    let body = incoming.json(MAX_BODY, MAX_MESSAGE_NESTING + 1).await?;
    let mut fields = Fields::open(body.text(), String::new(), FIELDS)?;
    let queue = queue_field(&mut fields);
    let mut message = read_message(&mut fields, &body)?;
    take_header_id(incoming.headers(), &mut fields, message.as_mut());
    let (queue, message) = both(fields, queue, message)?;
    let stored = incoming
        .state
        .service
        .publish(&incoming.caller, &queue, message)
        .await?;
    let published = Published::new(&queue, stored);
    Ok(answer::json(status(&published), &published))
}

pub(crate) async fn publish_batch(mut incoming: Incoming) -> Answered {
    // Object, array and entry are around each message.
    let body = incoming
        .json(MAX_BATCH_BODY, MAX_MESSAGE_NESTING + 3)
        .await?;
    let mut fields = Fields::open(body.text(), String::new(), BATCH_FIELDS)?;
    if incoming.headers().contains_key("idempotency-key") {
        fields.fault(
            Code::MutuallyExclusive,
            "messages",
            "Idempotency-Key names one message: give each one its own client_request_id.",
        );
    }
    let queue = queue_field(&mut fields);
    let entries = fields.entries::<MAX_ENTRIES>("messages");
    if let Some(entries) = &entries
        && (entries.more || entries.items.is_empty())
    {
        fields.fault(
            Code::BatchSize,
            "messages",
            "1 to 1,000 entries are allowed.",
        );
    }
    let (queue, entries) = both(fields, queue, entries)?;
    incoming.admit_items(Class::Publish, entries.items.len())?;

    let mut refused = Vec::new();
    let mut messages = Vec::with_capacity(entries.items.len());
    for (index, entry) in entries.items.iter().enumerate() {
        match read_entry(entry.get(), index, &body) {
            Ok(message) => messages.push(message),
            Err(problem) => refused.push((index, problem)),
        }
    }
    let stored = if messages.is_empty() {
        Vec::new()
    } else {
        let service = &incoming.state.service;
        service
            .publish_batch(&incoming.caller, &queue, &messages)
            .await?
    };

    let mut answered = BatchPublished {
        results: Vec::with_capacity(entries.items.len()),
        created: 0,
        duplicates: 0,
        rejected: 0,
    };
    let (mut stored, mut refused) = (stored.into_iter(), refused.into_iter().peekable());
    for index in 0..entries.items.len() {
        let outcome = match refused.next_if(|(at, _)| *at == index) {
            Some((_, problem)) => Err(problem),
            None => match stored.next() {
                Some(Ok(stored)) => Ok(Published::new("", stored)),
                Some(Err(error)) => Err(Problem::from(error).within(&format!("/messages/{index}"))),
                None => Err(Code::Internal.into()),
            },
        };
        if let Err(problem) = &outcome {
            incoming.count(problem);
        }
        answered.results.push(result(index, outcome));
        let last = answered.results.last().map(|r| r.status);
        match last {
            Some(201) => answered.created += 1,
            Some(200) => answered.duplicates += 1,
            _ => answered.rejected += 1,
        }
    }
    Ok(answer::json(StatusCode::OK, &answered))
}

fn status(published: &Published) -> StatusCode {
    if published.deduplicated {
        StatusCode::OK
    } else {
        StatusCode::CREATED
    }
}

fn result(index: usize, outcome: Result<Published, Problem>) -> BatchResult {
    match outcome {
        Ok(published) => BatchResult {
            index,
            status: status(&published).as_u16(),
            stored: Some(published),
            error: None,
        },
        Err(problem) => BatchResult {
            index,
            status: problem.status(),
            stored: None,
            error: Some(problem),
        },
    }
}

/// Both values, or everything that was wrong.
fn both<A, B>(fields: Fields<'_>, a: Option<A>, b: Option<B>) -> Result<(A, B), Problem> {
    fields.finish()?;
    match (a, b) {
        (Some(a), Some(b)) => Ok((a, b)),
        // Whoever answers `None` notes why.
        _ => Err(Code::MissingField.into()),
    }
}

/// The queue that the body names.
pub(crate) fn queue_field<'a>(fields: &mut Fields<'a>) -> Option<Cow<'a, str>> {
    if !fields.require("queue") {
        return None;
    }
    let name = fields.text("queue")?;
    if name.chars().any(char::is_control) {
        fields.fault(
            Code::ControlCharacter,
            "queue",
            "Control characters are not allowed.",
        );
        return None;
    }
    if !is_queue_name(&name) {
        fields.fault(
            Code::InvalidQueueName,
            "queue",
            Code::InvalidQueueName.row().hint,
        );
        return None;
    }
    Some(name)
}

fn read_entry(text: &str, index: usize, body: &JsonBody) -> Result<NewMessage, Problem> {
    let mut fields = Fields::open(text, format!("/messages/{index}"), ENTRY_FIELDS)?;
    let message = read_message(&mut fields, body)?;
    both(fields, Some(()), message).map(|((), message)| message)
}

/// The message's own fields; `None` when one is missing that must be there.
fn read_message(fields: &mut Fields<'_>, body: &JsonBody) -> Result<Option<NewMessage>, Problem> {
    let client_request_id = fields.text_in("client_request_id", REQUEST_ID);
    let key = fields.text_in("key", KEY).map(|key| Arc::from(&*key));
    let delay_ms = fields.seconds("delay_seconds", 0.0, MAX_DELAY_SECONDS);
    let priority = fields.integer("priority", 0, 9);
    let headers = read_headers(fields)?;
    let expires_in_ms = fields.seconds("expires_in_seconds", 0.001, MAX_LIFE_SECONDS);
    let max_attempts = fields.integer("max_attempts", 1, 1_000);
    let backoff = policy::read_backoff(fields)?;
    if !fields.require("message") {
        return Ok(None);
    }
    let Some(message) = fields.raw("message") else {
        return Ok(None);
    };
    let key = if fields.has("key") {
        key
    } else {
        only_string_member(message, "idempotency_key")
            .filter(|key| KEY.check(key).is_ok())
            .map(|key| Arc::from(&*key))
    };
    Ok(Some(NewMessage {
        client_request_id: client_request_id.map(|id| Bytes::from(id.into_owned())),
        key,
        delay_ms,
        priority: priority.map_or(DEFAULT_PRIORITY, |priority| priority as u8),
        headers,
        payload: body.part(message),
        expires_in_ms,
        max_attempts: max_attempts.map(|attempts| attempts as u32),
        backoff,
    }))
}

/// The headers as the canonical text of a JSON object: sorted by name.
pub(crate) fn read_headers(fields: &mut Fields<'_>) -> Result<Option<Arc<str>>, Problem> {
    let Some(map) = fields.map("headers")? else {
        return Ok(None);
    };
    if map.len() > MAX_HEADERS {
        fields.fault(
            Code::OutOfRange,
            "headers",
            "At most 32 headers are allowed.",
        );
        return Ok(None);
    }
    if map.is_empty() {
        return Ok(None);
    }
    let mut out = Vec::with_capacity(64);
    for (name, value) in map {
        let at = format!("headers/{}", super::faults::plain(&name));
        if let Err((code, detail)) = HEADER_NAME.check(&name) {
            fields.fault(code, &at, detail);
            continue;
        }
        let value = if value.starts_with('"') {
            super::json::text(value).ok_or((
                Code::InvalidUnicode,
                "Lone surrogates are not allowed.".into(),
            ))
        } else {
            Err((Code::WrongType, "A string is expected.".into()))
        };
        match value.and_then(|value| HEADER_VALUE.check(&value).map(|()| value)) {
            Ok(value) => {
                out.push(if out.is_empty() { b'{' } else { b',' });
                write_string(&name, &mut out);
                out.push(b':');
                write_string(&value, &mut out);
            }
            Err((code, detail)) => fields.fault(code, &at, detail),
        }
    }
    out.push(b'}');
    Ok(String::from_utf8(out).ok().map(Into::into))
}

/// `Idempotency-Key` is another way to give the request id.
fn take_header_id(headers: &HeaderMap, fields: &mut Fields<'_>, message: Option<&mut NewMessage>) {
    let mut sent = headers.get_all("idempotency-key").iter();
    let Some(id) = sent.next() else { return };
    let pointer = "header:Idempotency-Key";
    let text = match std::str::from_utf8(id.as_bytes()) {
        Ok(text) if sent.next().is_none() => text,
        Ok(_) => return fields.fault_at(Code::MutuallyExclusive, pointer, "Give one id."),
        Err(_) => return fields.fault_at(Code::InvalidUnicode, pointer, "UTF-8 is expected."),
    };
    if let Err((code, detail)) = REQUEST_ID.check(text) {
        return fields.fault_at(code, pointer, detail);
    }
    let Some(message) = message else { return };
    match &message.client_request_id {
        Some(id) if id != text.as_bytes() => fields.fault(
            Code::MutuallyExclusive,
            "client_request_id",
            "Idempotency-Key says otherwise.",
        ),
        Some(_) => {}
        None => message.client_request_id = Some(Bytes::copy_from_slice(text.as_bytes())),
    }
}

const EXAMPLE_ID: &str = "msg_02mx3k8s9qv40";

/// The message that was answered, as the parameter of another operation.
const OF_MESSAGE: (&str, &str) = ("message_id", "$response.body#/message_id");

/// A request id as it can stand in a header.
fn header_id() -> RefOr<Schema> {
    wire::values::described(
        json!({"type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[!-~]([ -~]*[!-~])?$"}),
    )
}

fn of_message(describe: Describe) -> Describe {
    describe.problems(&[
        Code::QueueNotFound,
        Code::InvalidQueueName,
        Code::MissingField,
        Code::MutuallyExclusive,
        Code::Draining,
        Code::OutcomeUnknown,
        Code::DiskLow,
    ])
}

pub(crate) fn describe_publish() -> Route {
    let described = Describe::new("publish", "work", "Publish a message")
        .text("Durable before it is answered. Repeating it with the same client_request_id stores nothing twice: the answer is 200 and names the first message.")
        .header_of("Idempotency-Key", "Another way to give client_request_id; the same one where both are given", header_id(), "order-4711")
        .body::<wire::publish::Publish>(json!({"queue": "orders", "message": {"order": 4711}, "client_request_id": "order-4711", "delay_seconds": 0}))
        .answer::<Published>(201, "Stored", json!({"message_id": EXAMPLE_ID, "queue": "orders", "state": "ready", "deduplicated": false, "published_at": "2026-11-30T15:04:05.123Z"}))
        .answer::<Published>(200, "Published before; nothing was stored now", json!({"message_id": EXAMPLE_ID, "queue": "orders", "state": "ended", "deduplicated": true, "published_at": "2026-11-30T15:04:05.123Z", "duplicate_of": "client_request_id", "same_body": true, "end": "acked"}))
        .leads_to("getMessage", &[OF_MESSAGE])
        .leads_to("promoteMessage", &[OF_MESSAGE])
        .leads_to_with("cancelMessage", &[OF_MESSAGE], json!({"justification": "ordered twice by mistake"}))
        .leads_to_with("deadLetterMessage", &[OF_MESSAGE], json!({"reason": "poisons the importer"}))
        .leads_to_with("receive", &[], json!({"queue": "$response.body#/queue"}));
    of_message(described)
        .problems(&[
            Code::PayloadTooLarge,
            Code::OutOfRange,
            Code::ControlCharacter,
            Code::TooLong,
            Code::InvalidValue,
            Code::ClientRequestIdConflict,
            Code::KeyRequired,
            Code::QueueFull,
        ])
        .build()
}

pub(crate) fn describe_batch() -> Route {
    let described = Describe::new("publishBatch", "work", "Publish many messages to one queue")
        .text("One result per entry, in order; a refused entry never fails its neighbours. At most 8 MiB.")
        .body::<wire::publish::PublishBatch>(json!({"queue": "orders", "messages": [{"message": {"order": 4711}}, {"message": 1, "priority": 11}]}))
        .answer::<BatchPublished>(200, "One result per entry", json!({"results": [
            {"index": 0, "status": 201, "message_id": EXAMPLE_ID, "state": "ready", "deduplicated": false, "published_at": "2026-11-30T15:04:05.123Z"},
            {"index": 1, "status": 422, "error": super::docs::example(Code::OutOfRange)}], "created": 1, "duplicates": 0, "rejected": 1}))
        .leads_to("getMessage", &[("message_id", "$response.body#/results/0/message_id")]);
    of_message(described)
        .problems(&[Code::BatchSize, Code::ControlCharacter])
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_what_is_described() {
        use utoipa::PartialSchema;
        for (schema, read) in [
            (wire::publish::Publish::schema(), FIELDS),
            (wire::publish::PublishBatch::schema(), BATCH_FIELDS),
            (wire::publish::BatchEntry::schema(), ENTRY_FIELDS),
        ] {
            super::super::fields::tests::assert_described(&schema, read);
        }
    }
}
