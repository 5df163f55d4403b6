//! `/v1/redrives`: bulk decisions over a selection, as resources that go on by themselves.

use super::answer;
use super::docs::{Describe, Route};
use super::edge::Answered;
use super::extract::{Incoming, MAX_BODY, is_queue_name};
use super::fields::{Fields, MAX_NESTING};
use super::operator::{self, Reason};
use super::paging::{self, Listing, Place};
use super::problem::{Code, Problem};
use super::redrive_plan;
use super::wire::dead_letter::{REASONED_FIELDS, ReasonedCall};
use super::wire::redrive::{Redrive, RedrivePage};
use super::wire::redrive_request::{NewRedrive, RedriveChange};
use super::wire::values;
use crate::service::Error;
use crate::service::redrives::RedriveFilter;
use http::{HeaderValue, StatusCode, header};
use quita_storage::backend::OperationRefused;
use quita_storage::redrives::{RedriveId, RedriveState, Steer};
use serde_json::{Value, json};

const CHANGE_FIELDS: &[&str] = &["rate_per_second", "reason", "client_request_id"];
const STATES: &[(&str, RedriveState)] = &[
    ("canary", RedriveState::Canary),
    ("running", RedriveState::Running),
    ("paused", RedriveState::Paused),
    ("aborted", RedriveState::Aborted),
    ("cancelled", RedriveState::Cancelled),
    ("done", RedriveState::Done),
];

pub(crate) async fn start(mut incoming: Incoming) -> Answered {
    let body = incoming.json(MAX_BODY, MAX_NESTING).await?;
    let mut fields = Fields::open(body.text(), String::new(), redrive_plan::FIELDS)?;
    let (plan, reason) = redrive_plan::read(&mut fields)?;
    let call = operator::call(&incoming, fields, &body, reason.as_deref())?;
    // What is missing was refused by now.
    let plan = plan.ok_or(Code::Internal)?;
    let expected = plan.expected_count;
    let service = &incoming.state.service;
    let started = service.start_redrive(&incoming.caller, &call, plan).await;
    let done = started.map_err(|error| {
        if let Error::Operation(OperationRefused::CountMismatch { actual }) = error {
            let detail = format!("The selection has {actual} messages, not {expected}.");
            return Problem::at(Code::CountMismatch, "/expected_count", detail)
                .with_counts(expected, actual);
        }
        error.into()
    })?;
    let redrive = Redrive::from(&done.answer);
    let mut response = answer::operated_as(StatusCode::ACCEPTED, &redrive, done.repeated);
    let location = format!("/v1/redrives/{}", redrive.redrive_id);
    if let Ok(location) = HeaderValue::from_str(&location) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

pub(crate) async fn list(incoming: Incoming) -> Answered {
    incoming.no_body()?;
    let mut query = incoming.query(&["queue", "state", "page_size", "page_token"]);
    let queue = query.raw("queue").map(str::to_owned);
    if queue.as_deref().is_some_and(|name| !is_queue_name(name)) {
        query.fault(Code::InvalidQueueName, "queue", "No queue has this name.");
    }
    let filter = RedriveFilter {
        queue,
        state: query.choice("state", STATES),
    };
    let size = paging::size(&mut query);
    let state = filter.state.map(RedriveState::as_str);
    let listing = Listing::new(&("redrives", &filter.queue, state));
    let from = paging::place(&mut query, listing);
    query.finish()?;
    let service = &incoming.state.service;
    let before = from.map(|place| RedriveId(place.id));
    let (views, more) = service
        .redrives(&incoming.caller, &filter, before, size)
        .await?;
    let last = views.last().filter(|_| more);
    let page = RedrivePage {
        redrives: views.iter().map(Redrive::from).collect(),
        next_page_token: last.map(|view| Place::behind(view.redrive.id.0).token(listing)),
    };
    Ok(answer::json(StatusCode::OK, &page))
}

pub(crate) async fn read(mut incoming: Incoming) -> Answered {
    incoming.no_body()?;
    incoming.no_query()?;
    let id = incoming.redrive_id().await?;
    let service = &incoming.state.service;
    let view = service.redrive(&incoming.caller, id).await?;
    Ok(answer::json(StatusCode::OK, &Redrive::from(&view)))
}

pub(crate) async fn change(mut incoming: Incoming) -> Answered {
    let id = incoming.redrive_id().await?;
    let body = incoming.json(MAX_BODY, MAX_NESTING).await?;
    let mut fields = Fields::open(body.text(), String::new(), CHANGE_FIELDS)?;
    fields.require("rate_per_second");
    let rate = redrive_plan::rate(&mut fields).unwrap_or_default();
    let reason = operator::reason(&mut fields, "reason", Reason::Optional);
    let call = operator::call(&incoming, fields, &body, reason.as_deref())?;
    let service = &incoming.state.service;
    let done = service
        .steer_redrive(&incoming.caller, &call, id, Steer::Rate(rate))
        .await?;
    Ok(answer::operated(
        &Redrive::from(&done.answer),
        done.repeated,
    ))
}

pub(crate) async fn pause(incoming: Incoming) -> Answered {
    steer(incoming, Steer::Pause).await
}

pub(crate) async fn resume(incoming: Incoming) -> Answered {
    steer(incoming, Steer::Resume).await
}

pub(crate) async fn cancel(incoming: Incoming) -> Answered {
    steer(incoming, Steer::Cancel).await
}

async fn steer(mut incoming: Incoming, steer: Steer) -> Answered {
    let id = incoming.redrive_id().await?;
    let body = incoming.optional_json().await?;
    let mut fields = Fields::open(body.text(), String::new(), REASONED_FIELDS)?;
    let reason = operator::reason(&mut fields, "reason", Reason::Optional);
    let call = operator::call(&incoming, fields, &body, reason.as_deref())?;
    let service = &incoming.state.service;
    let done = service
        .steer_redrive(&incoming.caller, &call, id, steer)
        .await?;
    Ok(answer::operated(
        &Redrive::from(&done.answer),
        done.repeated,
    ))
}

fn example(state: &str) -> Value {
    json!({
        "redrive_id": "rdv_0000000000003", "selection_id": "sel_0000000000007", "queue": "orders", "action": "redrive", "state": state,
        "dry_run": false, "count": 412, "max": null, "moved": 10,
        "skipped": {"total": 0, "redrive_limit": 0, "completion_remembered": 0, "expired": 0, "changed": 0},
        "failed_again": 0, "remaining": 402, "rate_per_second": 50,
        "canary": {"count": 10, "wait_seconds": 60, "until": "2026-11-30T16:13:00.000Z"}, "abort_if": {"failed_fraction": 0.2, "min_sample": 10},
        "force": false, "reason": "the gateway is back", "actor": "k7f2mx3q9sv4", "created_at": "2026-11-30T16:12:00.000Z",
        "estimated_end_at": "2026-11-30T16:13:09.000Z"})
}

const REASON_PROBLEMS: &[Code] = &[Code::ControlCharacter, Code::TooLong];

/// The redrive that was answered, as the parameter of another operation.
const OF_REDRIVE: (&str, &str) = ("redrive_id", "$response.body#/redrive_id");

pub(crate) fn describe_start() -> Route {
    let text = "Over a selection that an operator has seen: `expected_count` must be its `count`. The first `canary.count` messages go first; then nothing for `wait_seconds`, \
        or until all of them were acked; then the rest at the rate. It stops for good when `failed_fraction` of the redriven messages, or more, died again. \
        Messages above `max_redrives`, with a remembered completion or past their `expires_at` are left alone and counted, and so is what changed since the selection.";
    Describe::new("startRedrive", "redrives", "Redrive or discard many dead letters")
        .text(text)
        .body::<NewRedrive>(json!({"selection_id": "sel_0000000000007", "expected_count": 412, "rate_per_second": 50, "reason": "the gateway is back", "client_request_id": "incident-17"}))
        .answer::<Redrive>(202, "It has begun; `Location` names it", example("canary"))
        .returns("Location", "The redrive")
        .leads_to("getRedrive", &[OF_REDRIVE])
        .leads_to_with("changeRedrive", &[OF_REDRIVE], json!({"rate_per_second": 10}))
        .leads_to("pauseRedrive", &[OF_REDRIVE])
        .leads_to("resumeRedrive", &[OF_REDRIVE])
        .leads_to("cancelRedrive", &[OF_REDRIVE])
        .repeatable()
        .problems(REASON_PROBLEMS)
        .problems(&[
            Code::NotFound,
            Code::CountMismatch,
            Code::SelectionExpired,
            Code::MissingField,
            Code::InvalidValue,
            Code::MutuallyExclusive,
            Code::ReasonRequired,
        ])
        .build()
}

pub(crate) fn describe_list() -> Route {
    use utoipa::PartialSchema;
    Describe::new("listRedrives", "redrives", "List redrives")
        .text("The youngest first. A token is good for the same filter.")
        .query(
            "queue",
            "Only those of this queue",
            values::QueueName::schema(),
            &json!("orders"),
        )
        .query(
            "state",
            "`running`, `canary`, `paused`, `aborted`, `cancelled` or `done`",
            values::RedriveStateName::schema(),
            &json!("running"),
        )
        .paged()
        .answer::<RedrivePage>(
            200,
            "A page of redrives",
            json!({"redrives": [example("canary")]}),
        )
        .leads_to(
            "getRedrive",
            &[("redrive_id", "$response.body#/redrives/0/redrive_id")],
        )
        .problems(&[
            Code::InvalidQueueName,
            Code::QueueNotFound,
            Code::InsufficientScope,
        ])
        .build()
}

pub(crate) fn describe_read() -> Route {
    Describe::new("getRedrive", "redrives", "Read a redrive")
        .text("How far it is. Remembered as long as the audit trail.")
        .redrive()
        .answer::<Redrive>(200, "The redrive", example("canary"))
        .problems(&[Code::BodyNotAllowed])
        .build()
}

pub(crate) fn describe_change() -> Route {
    Describe::new("changeRedrive", "redrives", "Change the rate of a redrive")
        .redrive()
        .body::<RedriveChange>(json!({"rate_per_second": 10, "reason": "the gateway is slow"}))
        .answer::<Redrive>(200, "Changed", example("running"))
        .repeatable()
        .problems(REASON_PROBLEMS)
        .problems(&[Code::MissingField, Code::RedriveFinished])
        .build()
}

fn steering(id: &str, summary: &str, text: &str, state: &str) -> Route {
    Describe::new(id, "redrives", summary)
        .text(text)
        .redrive()
        .optional_body::<ReasonedCall>(json!({"reason": "looking at the first failures"}))
        .answer::<Redrive>(200, "As it is now", example(state))
        .repeatable()
        .problems(REASON_PROBLEMS)
        .problems(&[Code::RedriveFinished])
        .build()
}

pub(crate) fn describe_pause() -> Route {
    let text = "A step that has begun is finished: at most 500 messages.";
    steering("pauseRedrive", "Stop a redrive for now", text, "paused")
}

pub(crate) fn describe_resume() -> Route {
    let text = "It goes on where it stopped; the time of the pause is not made up for.";
    steering("resumeRedrive", "Let a redrive go on", text, "running")
}

pub(crate) fn describe_cancel() -> Route {
    let text = "What is decided stays decided.";
    steering(
        "cancelRedrive",
        "Stop a redrive for good",
        text,
        "cancelled",
    )
}

#[cfg(test)]
mod tests {
    use super::super::fields::tests::assert_described;
    use super::*;
    use utoipa::PartialSchema;

    #[test]
    fn what_is_read_is_what_is_described() {
        assert_described(&NewRedrive::schema(), redrive_plan::FIELDS);
        assert_described(&RedriveChange::schema(), CHANGE_FIELDS);
        assert_described(&ReasonedCall::schema(), REASONED_FIELDS);
    }

    #[test]
    fn the_states_are_those_of_the_store() {
        for state in RedriveState::ALL {
            assert!(STATES.contains(&(state.as_str(), *state)));
        }
    }
}
