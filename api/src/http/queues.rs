//! `/v1/queues` and what can be done to a queue.

use super::docs::{Describe, Route};
use super::edge::Answered;
use super::extract::{Incoming, MAX_BODY};
use super::fields::{Fields, MAX_NESTING};
use super::operator::{self, Reason};
use super::paging::{self, Listing};
use super::problem::{Code, Problem};
use super::wire::queue::{OperatorCall, Policy, PolicyInput, Purge, Purged, Queue, QueuePage};
use super::{answer, policy};
use crate::service::queues::QueueView;
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};

const PURGE_FIELDS: &[&str] = &[
    "confirm",
    "dead_letters",
    "justification",
    "client_request_id",
];
const CALL_FIELDS: &[&str] = &["client_request_id"];

/// The listing of queues, as its page tokens name it.
pub(crate) const LISTING: &str = "queues";

pub(crate) async fn list(incoming: Incoming) -> Answered {
    incoming.no_body()?;
    let mut query = incoming.query(&["page_size", "page_token"]);
    let size = paging::size(&mut query);
    let listing = Listing::new(&LISTING);
    let after = paging::name_place(&mut query, listing);
    query.finish()?;
    let service = &incoming.state.service;
    let (views, next) = service
        .queues(&incoming.caller, after.as_deref(), size)
        .await?;
    let page = QueuePage {
        queues: views.iter().map(Queue::from).collect(),
        next_page_token: next.map(|name| paging::name_token(listing, &name)),
    };
    Ok(answer::json(StatusCode::OK, &page))
}

pub(crate) async fn read(mut incoming: Incoming) -> Answered {
    incoming.no_body()?;
    incoming.no_query()?;
    let name = incoming.queue().await?;
    let view = incoming
        .state
        .service
        .queue(&incoming.caller, &name)
        .await?;
    Ok(tagged(StatusCode::OK, &view))
}

pub(crate) async fn put(mut incoming: Incoming) -> Answered {
    let name = incoming.queue().await?;
    let body = incoming.json(MAX_BODY, MAX_NESTING).await?;
    let mut fields = Fields::open(body.text(), String::new(), policy::FIELDS)?;
    let service = &incoming.state.service;
    let policy = policy::read(&mut fields, service.settings().default_policy.clone())?;
    fields.finish()?;
    let (view, created) = service
        .put_queue(
            &incoming.caller,
            &incoming.plain_call(),
            &name,
            policy,
            incoming.precondition(),
        )
        .await?;
    let status = if created {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    Ok(tagged(status, &view))
}

pub(crate) async fn patch(mut incoming: Incoming) -> Answered {
    let name = incoming.queue().await?;
    let body = incoming.json(MAX_BODY, MAX_NESTING).await?;
    let change = |present| -> Result<_, Problem> {
        let mut fields = Fields::open(body.text(), String::new(), policy::FIELDS)?;
        let policy = policy::read(&mut fields, present)?;
        fields.finish()?;
        Ok(policy)
    };
    let service = &incoming.state.service;
    let view = service
        .patch_queue(
            &incoming.caller,
            &incoming.plain_call(),
            &name,
            incoming.precondition(),
            change,
        )
        .await?;
    Ok(tagged(StatusCode::OK, &view))
}

pub(crate) async fn delete(mut incoming: Incoming) -> Answered {
    incoming.no_body()?;
    let name = incoming.queue().await?;
    let mut query = incoming.query(&["force"]);
    let force = query.boolean("force").unwrap_or(false);
    query.finish()?;
    let service = &incoming.state.service;
    let purged = service
        .delete_queue(
            &incoming.caller,
            &incoming.plain_call(),
            &name,
            force,
            incoming.precondition(),
        )
        .await?;
    Ok(answer::json(StatusCode::OK, &Purged { purged }))
}

pub(crate) async fn pause(incoming: Incoming) -> Answered {
    set_paused(incoming, true).await
}

pub(crate) async fn resume(incoming: Incoming) -> Answered {
    set_paused(incoming, false).await
}

async fn set_paused(mut incoming: Incoming, paused: bool) -> Answered {
    let name = incoming.queue().await?;
    let body = incoming.optional_json().await?;
    let fields = Fields::open(body.text(), String::new(), CALL_FIELDS)?;
    let call = operator::call(&incoming, fields, &body, None)?;
    let service = &incoming.state.service;
    let done = service
        .pause_queue(&incoming.caller, &call, &name, paused)
        .await?;
    Ok(answer::operated(&Queue::from(&done.answer), done.repeated))
}

pub(crate) async fn purge(mut incoming: Incoming) -> Answered {
    let name = incoming.queue().await?;
    let body = incoming.json(MAX_BODY, MAX_NESTING).await?;
    let mut fields = Fields::open(body.text(), String::new(), PURGE_FIELDS)?;
    let dead_letters = fields.boolean("dead_letters").unwrap_or(false);
    let wanted = if dead_letters {
        Reason::Justified
    } else {
        Reason::Optional
    };
    let reason = operator::reason(&mut fields, "justification", wanted);
    let confirmed = if fields.has("confirm") {
        fields.text("confirm").is_none_or(|confirm| confirm == name)
    } else {
        false
    };
    if !confirmed {
        fields.fault(
            Code::ConfirmationRequired,
            "confirm",
            "The queue's name is expected.",
        );
    }
    let call = operator::call(&incoming, fields, &body, reason.as_deref())?;
    let service = &incoming.state.service;
    let done = service
        .purge_queue(&incoming.caller, &call, &name, dead_letters)
        .await?;
    let purged = Purged {
        purged: done.answer,
    };
    Ok(answer::operated(&purged, done.repeated))
}

/// A queue with its version as `ETag`.
fn tagged(status: StatusCode, view: &QueueView) -> Response {
    let mut response = answer::json(status, &Queue::from(view));
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{}\"", view.queue.version)) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}

fn example() -> Value {
    json!({
        "name": "orders", "paused": false, "version": "17", "created_at": "2026-11-30T15:04:05.123Z",
        "policy": Policy::from(&quita_storage::model::Policy::default()),
        "counts": {"delayed": 0, "ready": 12, "leased": 3, "dead": 1},
        "totals": {"accepted": 116, "reopened": 0, "acked": 100, "discarded": 0, "purged": 0, "dead_letter_expired": 0, "delivered": 105, "redriven": 0},
        "oldest_ready_age_seconds": 1.25, "oldest_dead_age_seconds": 3600, "server_time": "2026-11-30T15:04:06.000Z"})
}

const ETAG: &str = "The version of the policy, for If-Match";
/// The queue that was answered, as the parameter of another operation.
const OF_QUEUE: (&str, &str) = ("queue", "$response.body#/name");
const IF_MATCH: &str = "The version that must be there, as in ETag; `*` for any";

pub(crate) fn describe_list() -> Route {
    Describe::new("listQueues", "queues", "List queues")
        .text("In name order, with their exact numbers.")
        .paged()
        .answer::<QueuePage>(
            200,
            "A page of queues",
            json!({"queues": [example()], "next_page_token": paging::example()}),
        )
        .build()
}

pub(crate) fn describe_read() -> Route {
    Describe::new("getQueue", "queues", "Read a queue")
        .text("Policy, state and exact numbers from one snapshot. The ETag changes with every change of the policy.")
        .queue()
        .answer::<Queue>(200, "The queue", example())
        .returns("ETag", ETAG)
        .leads_to("patchQueue", &[OF_QUEUE])
        .leads_to("browseMessages", &[OF_QUEUE])
        .leads_to("listDeadLetters", &[OF_QUEUE])
        .problems(&[Code::BodyNotAllowed])
        .build()
}

const POLICY_PROBLEMS: &[Code] = &[
    Code::OutOfRange,
    Code::InvalidValue,
    Code::MissingField,
    Code::PreconditionFailed,
    Code::KeysNotUnique,
    Code::OutcomeUnknown,
];

pub(crate) fn describe_put() -> Route {
    Describe::new("putQueue", "queues", "Create a queue or replace its policy")
        .text("Fields that are not given get the server's defaults.")
        .queue()
        .header("If-Match", IF_MATCH, "\"17\"")
        .header(
            "If-None-Match",
            "`*`: only create. Other values are not looked at",
            "*",
        )
        .body::<PolicyInput>(json!({"visibility_timeout_seconds": 60, "max_attempts": 8}))
        .answer::<Queue>(201, "Created", example())
        .answer::<Queue>(200, "Replaced", example())
        .returns("ETag", ETAG)
        .leads_to("getQueue", &[OF_QUEUE])
        .leads_to("patchQueue", &[OF_QUEUE])
        .leads_to("deleteQueue", &[OF_QUEUE])
        .leads_to("pauseQueue", &[OF_QUEUE])
        .leads_to("resumeQueue", &[OF_QUEUE])
        .leads_to("browseMessages", &[OF_QUEUE])
        .leads_to("listDeadLetters", &[OF_QUEUE])
        .leads_to_with(
            "purgeQueue",
            &[OF_QUEUE],
            json!({"confirm": "$response.body#/name"}),
        )
        .leads_to_with(
            "publish",
            &[],
            json!({"queue": "$response.body#/name", "message": {"order": 4711}}),
        )
        .leads_to_with("receive", &[], json!({"queue": "$response.body#/name"}))
        .problems(POLICY_PROBLEMS)
        .build()
}

pub(crate) fn describe_patch() -> Route {
    Describe::new("patchQueue", "queues", "Change parts of a queue's policy")
        .text("Fields that are not given stay; `backoff` is replaced as a whole.")
        .queue()
        .header("If-Match", IF_MATCH, "\"17\"")
        .body::<PolicyInput>(json!({"max_depth": 100_000}))
        .answer::<Queue>(200, "Changed", example())
        .returns("ETag", ETAG)
        .leads_to("getQueue", &[OF_QUEUE])
        .problems(POLICY_PROBLEMS)
        .build()
}

pub(crate) fn describe_delete() -> Route {
    use utoipa::PartialSchema;
    Describe::new("deleteQueue", "queues", "Delete a queue")
        .text("Its waiting receives end with 404. Request ids, keys and totals stay with the name.")
        .queue()
        .query(
            "force",
            "Also when it holds messages; they count as purged. Needs `discard` as well",
            bool::schema(),
            &json!(false),
        )
        .header("If-Match", IF_MATCH, "\"17\"")
        .answer::<Purged>(
            200,
            "Deleted, with this many messages",
            json!({"purged": 0}),
        )
        .problems(&[
            Code::QueueNotEmpty,
            Code::PreconditionFailed,
            Code::WrongType,
            Code::InvalidValue,
            Code::BodyNotAllowed,
            Code::OutcomeUnknown,
        ])
        .build()
}

pub(crate) fn describe_pause() -> Route {
    Describe::new("pauseQueue", "queues", "Stop hand-outs")
        .text("Once it is answered, no receive that begins later leases anything, on any replica. Publish and settle go on.")
        .queue()
        .optional_body::<OperatorCall>(json!({"client_request_id": "pause-1"}))
        .answer::<Queue>(200, "Paused", example())
        .leads_to("resumeQueue", &[OF_QUEUE])
        .repeatable()
        .build()
}

pub(crate) fn describe_resume() -> Route {
    Describe::new("resumeQueue", "queues", "Start hand-outs again")
        .queue()
        .optional_body::<OperatorCall>(json!({"client_request_id": "resume-1"}))
        .answer::<Queue>(200, "Resumed", example())
        .repeatable()
        .build()
}

pub(crate) fn describe_purge() -> Route {
    Describe::new("purgeQueue", "queues", "Take everything out of a queue")
        .text("Delayed, ready and leased messages, and dead letters where asked. Cannot be undone. Frees no request id and no key.")
        .queue()
        .body::<Purge>(json!({"confirm": "orders"}))
        .answer::<Purged>(200, "Taken out", json!({"purged": 15}))
        .repeatable()
        .problems(&[Code::ConfirmationRequired, Code::ReasonRequired, Code::ControlCharacter, Code::TooLong])
        .build()
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_is_read_is_what_is_described() {
        use super::super::fields::tests::assert_described;
        use utoipa::PartialSchema;
        assert_described(&super::Purge::schema(), super::PURGE_FIELDS);
        assert_described(&super::OperatorCall::schema(), super::CALL_FIELDS);
    }
}
