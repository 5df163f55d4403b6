//! `/v1/dead-letters/selections`: what a bulk decision is about, frozen and counted.

use super::docs::{Describe, Route};
use super::edge::Answered;
use super::extract::{Incoming, MAX_BODY};
use super::fields::{Fields, MAX_NESTING};
use super::messages::example;
use super::problem::Code;
use super::publish::queue_field;
use super::wire::redrive::Selection;
use super::wire::redrive_request::NewSelection;
use super::{answer, dead_filter, operator};
use http::StatusCode;
use serde_json::json;

const FIELDS: &[&str] = &["queue", "filter", "client_request_id"];

pub(crate) async fn select(mut incoming: Incoming) -> Answered {
    let body = incoming.json(MAX_BODY, MAX_NESTING).await?;
    let mut fields = Fields::open(body.text(), String::new(), FIELDS)?;
    let queue = queue_field(&mut fields);
    let filter = fields.object("filter", dead_filter::FIELDS, |filter| {
        Some(dead_filter::read(filter))
    })?;
    let call = operator::call(&incoming, fields, &body, None)?;
    let service = &incoming.state.service;
    let done = service
        .select(
            &incoming.caller,
            &call,
            // What is missing was refused by now.
            queue.as_deref().unwrap_or_default(),
            filter.unwrap_or_default(),
        )
        .await?;
    let selection = Selection::new(&done.answer, true);
    Ok(answer::operated_as(
        StatusCode::CREATED,
        &selection,
        done.repeated,
    ))
}

pub(crate) async fn read(mut incoming: Incoming) -> Answered {
    incoming.no_body()?;
    incoming.no_query()?;
    let id = incoming.selection_id().await?;
    let service = &incoming.state.service;
    let view = service.selection(&incoming.caller, id).await?;
    Ok(answer::json(StatusCode::OK, &Selection::new(&view, false)))
}

fn frozen(with_sample: bool) -> serde_json::Value {
    let mut frozen = json!({
        "selection_id": "sel_0000000000007", "queue": "orders", "filter": {"error_code": "gateway_timeout"}, "count": 412,
        "by_reason": [{"reason": "max_attempts", "count": 412}], "by_error_code": [{"error_code": "gateway_timeout", "count": 412}],
        "by_age": [{"age": "under_1_hour", "count": 400}, {"age": "1_to_24_hours", "count": 12}, {"age": "1_to_7_days", "count": 0}, {"age": "over_7_days", "count": 0}],
        "edited": 0, "over_max_redrives": 3, "completion_remembered": 1, "outcome_recorded": 2,
        "created_at": "2026-11-30T16:10:00.000Z", "expires_at": "2026-11-30T17:10:00.000Z"});
    if with_sample && let Some(members) = frozen.as_object_mut() {
        members.insert("sample".to_owned(), json!([example()]));
    }
    frozen
}

pub(crate) fn describe_select() -> Route {
    Describe::new("selectDeadLetters", "redrives", "Freeze which dead letters a bulk decision is about")
        .text("Counts them and shows some. What dies or is changed afterwards is not among them. A redrive of it can begin for an hour.")
        .body::<NewSelection>(json!({"queue": "orders", "filter": {"error_code": "gateway_timeout"}}))
        .answer::<Selection>(201, "The selection", frozen(true))
        .leads_to("getSelection", &[("selection_id", "$response.body#/selection_id")])
        .leads_to_with("startRedrive", &[], json!({"selection_id": "$response.body#/selection_id", "expected_count": "$response.body#/count"}))
        .repeatable()
        .problems(dead_filter::PROBLEMS)
        .problems(&[Code::MissingField, Code::InvalidQueueName, Code::QueueNotFound, Code::SelectionExpired])
        .build()
}

pub(crate) fn describe_read() -> Route {
    Describe::new("getSelection", "redrives", "Read a selection")
        .text("As it was frozen, while it is remembered: until it expires, and as long as a redrive of it.")
        .selection()
        .answer::<Selection>(200, "The selection", frozen(false))
        .leads_to_with("startRedrive", &[], json!({"selection_id": "$response.body#/selection_id", "expected_count": "$response.body#/count"}))
        .problems(&[Code::BodyNotAllowed])
        .build()
}

#[cfg(test)]
mod tests {
    use super::super::fields::tests::assert_described;
    use super::super::wire::dead_letter::DeadLetterFilter;
    use super::*;
    use utoipa::PartialSchema;

    #[test]
    fn what_is_read_is_what_is_described() {
        assert_described(&NewSelection::schema(), FIELDS);
        assert_described(&DeadLetterFilter::schema(), dead_filter::FIELDS);
    }
}
