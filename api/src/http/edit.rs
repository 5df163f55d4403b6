//! `PATCH /v1/queues/{queue}/dead-letters/{message_id}` and the way back: what an operator makes of a dead letter.

use super::answer;
use super::docs::{Describe, Route};
use super::edge::Answered;
use super::extract::{Incoming, JsonBody, MAX_BODY};
use super::fields::{Fields, MAX_MESSAGE_NESTING};
use super::json::deeper_than;
use super::merge_patch;
use super::operator::{self, Reason};
use super::problem::{Code, Problem};
use super::publish::read_headers;
use super::wire::dead_letter::{Edit, Edited, ReasonedCall};
use crate::service::revisions::Content;
use bytes::Bytes;
use serde_json::json;
use std::sync::Arc;

const FIELDS: &[&str] = &[
    "message",
    "merge_patch",
    "headers",
    "reason",
    "client_request_id",
];
const UNDO_FIELDS: &[&str] = &["reason", "client_request_id"];
/// Where a problem with the whole result points to.
const MESSAGE: &str = "/message";
const MERGE_PATCH: &str = "/merge_patch";
const HEADERS: &str = "/headers";

/// What becomes of the payload.
enum Payload<'a> {
    Whole(Bytes),
    Patched(&'a str),
    Kept,
}

/// What becomes of the headers.
enum Headers {
    Whole(Option<Arc<str>>),
    Kept,
}

struct Change<'a> {
    payload: Payload<'a>,
    headers: Headers,
}

impl Change<'_> {
    /// The field that a problem with the result is about.
    fn place(&self) -> &'static str {
        match self.payload {
            Payload::Whole(_) => MESSAGE,
            Payload::Patched(_) => MERGE_PATCH,
            Payload::Kept => HEADERS,
        }
    }

    fn apply(&self, present: &Content) -> Result<Content, Problem> {
        let payload = match &self.payload {
            Payload::Whole(payload) => payload.clone(),
            Payload::Kept => present.payload.clone(),
            Payload::Patched(patch) => {
                // What is stored was checked when it came.
                let target = std::str::from_utf8(&present.payload).unwrap_or_default();
                let patched = merge_patch::apply(target, patch)
                    .map_err(|unpatched| unpatched.problem(MERGE_PATCH))?;
                if deeper_than(patched.as_bytes(), MAX_MESSAGE_NESTING) {
                    return Err(Problem::from(Code::NestingTooDeep).pointing(MERGE_PATCH));
                }
                Bytes::from(patched)
            }
        };
        let headers = match &self.headers {
            Headers::Whole(headers) => headers.clone(),
            Headers::Kept => present.headers.clone(),
        };
        Ok(Content { payload, headers })
    }
}

pub(crate) async fn edit(mut incoming: Incoming) -> Answered {
    let queue = incoming.queue().await?;
    let id = incoming.message_id().await?;
    let body = incoming.json(MAX_BODY, MAX_MESSAGE_NESTING + 1).await?;
    let mut fields = Fields::open(body.text(), String::new(), FIELDS)?;
    let change = read_change(&mut fields, &body)?;
    let reason = operator::reason(&mut fields, "reason", Reason::Given);
    let call = operator::call(&incoming, fields, &body, reason.as_deref())?;
    let rebase = !matches!(change.payload, Payload::Whole(_));
    let service = &incoming.state.service;
    let edited = service
        .edit(&incoming.caller, &call, &queue, id, rebase, |present| {
            change.apply(present)
        })
        .await;
    let done = edited.map_err(|problem: Problem| match problem.code() {
        Code::PayloadTooLarge => problem.pointing_only(change.place()),
        _ => problem,
    })?;
    Ok(answer::operated(&Edited::from(done.answer), done.repeated))
}

fn read_change<'a>(fields: &mut Fields<'a>, body: &JsonBody) -> Result<Change<'a>, Problem> {
    let (message, patch) = (fields.raw("message"), fields.raw("merge_patch"));
    if message.is_some() && patch.is_some() {
        let detail = "Give message or merge_patch.";
        fields.fault(Code::MutuallyExclusive, "merge_patch", detail);
    }
    match patch {
        // The patch alone: what is wrong with it is wrong whatever it is applied to.
        Some(patch) if patch.starts_with('{') => {
            merge_patch::apply("null", patch).map_err(|u| u.problem(MERGE_PATCH))?;
        }
        Some(_) => fields.fault(Code::WrongType, "merge_patch", "An object is expected."),
        None => {}
    }
    let headers = if fields.null("headers") {
        Headers::Whole(None)
    } else if fields.has("headers") {
        Headers::Whole(read_headers(fields)?)
    } else {
        Headers::Kept
    };
    let payload = match (message, patch) {
        (Some(message), _) => Payload::Whole(body.part(message)),
        (None, Some(patch)) => Payload::Patched(patch),
        (None, None) => Payload::Kept,
    };
    if matches!((&payload, &headers), (Payload::Kept, Headers::Kept)) {
        let detail = "Give message, merge_patch or headers.";
        fields.fault(Code::MissingField, "message", detail);
    }
    Ok(Change { payload, headers })
}

pub(crate) async fn undo(mut incoming: Incoming) -> Answered {
    let queue = incoming.queue().await?;
    let id = incoming.message_id().await?;
    let body = incoming.optional_json().await?;
    let mut fields = Fields::open(body.text(), String::new(), UNDO_FIELDS)?;
    let reason = operator::reason(&mut fields, "reason", Reason::Optional);
    let call = operator::call(&incoming, fields, &body, reason.as_deref())?;
    let service = &incoming.state.service;
    let done = service
        .undo_edit(&incoming.caller, &call, &queue, id)
        .await?;
    Ok(answer::operated(&Edited::from(done.answer), done.repeated))
}

const ID: &str = "msg_02mx3k8s9qv40";

pub(crate) fn describe_edit() -> Route {
    let text = "`message` is the whole new value, byte for byte as sent. `merge_patch` (RFC 7396) changes what it names; every other member stays as it was written. \
        The result is checked as a publish is; id, keys, request id and history stay. Every change is kept as a revision, at most 20, and can be taken back. \
        `revision_conflict`: somebody else changed the message in the same moment.";
    Describe::new("editDeadLetter", "dead letters", "Change a dead letter")
        .text(text)
        .queue()
        .message()
        .body::<Edit>(
            json!({"merge_patch": {"amount": "12.50"}, "reason": "amount had a comma, ticket 7"}),
        )
        .answer::<Edited>(
            200,
            "It is changed",
            json!({"message_id": ID, "state": "dead", "revision": 1, "edited": true}),
        )
        .leads_to(
            "getMessage",
            &[("message_id", "$response.body#/message_id")],
        )
        .leads_to(
            "undoDeadLetterEdit",
            &[
                ("queue", "$request.path.queue"),
                ("message_id", "$response.body#/message_id"),
            ],
        )
        .repeatable()
        .problems(&[
            Code::NotDead,
            Code::RevisionConflict,
            Code::RevisionLimit,
            Code::NotPatchable,
            Code::PayloadTooLarge,
            Code::ReasonRequired,
            Code::MissingField,
            Code::MutuallyExclusive,
            Code::ControlCharacter,
            Code::TooLong,
        ])
        .build()
}

pub(crate) fn describe_undo() -> Route {
    Describe::new(
        "undoDeadLetterEdit",
        "dead letters",
        "Take the changes of a dead letter back",
    )
    .text("Message and headers are again what they were when it died, as a new revision.")
    .queue()
    .message()
    .optional_body::<ReasonedCall>(json!({"reason": "the change was wrong"}))
    .answer::<Edited>(
        200,
        "It is as it was",
        json!({"message_id": ID, "state": "dead", "revision": 2, "edited": false}),
    )
    .repeatable()
    .problems(&[
        Code::NotDead,
        Code::NotEdited,
        Code::RevisionLimit,
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
        assert_described(&Edit::schema(), FIELDS);
        assert_described(&ReasonedCall::schema(), UNDO_FIELDS);
    }
}
