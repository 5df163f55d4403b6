//! `GET /v1/audit`: what was done, a page at a time, or all of it as a stream of lines.

use super::answer;
use super::audit_lines::{CutOff, Reading, pages};
use super::dead_filter::Values;
use super::docs::{Describe, Route};
use super::edge::Answered;
use super::extract::{Incoming, is_queue_name};
use super::paging::{self, Listing, Place};
use super::problem::Code;
use super::query::Query;
use super::text_rule::TextRule;
use super::times;
use super::wire::Time;
use super::wire::audit::{AuditPage, Entry};
use super::wire::values::{self, described};
use crate::service::audit::AuditFilter;
use axum::body::Body;
use http::{HeaderMap, StatusCode, header};
use quita_storage::audit::AuditQuery;
use quita_storage::model::MessageId;
use quita_storage::redrives::RedriveId;
use serde_json::json;

const FILTER: [&str; 8] = [
    "from",
    "to",
    "actor",
    "action",
    "queue",
    "message_id",
    "redrive_id",
    "order",
];
const PAGE: [&str; 2] = ["page_size", "page_token"];
/// Everything that is ever done.
const ACTIONS: &[&str] = &[
    "create_queue",
    "put_queue",
    "delete_queue",
    "pause",
    "resume",
    "purge",
    "cancel",
    "promote",
    "dead_letter",
    "edit",
    "undo_edit",
    "redrive",
    "discard",
    "reopen",
    "start_redrive",
    "pause_redrive",
    "resume_redrive",
    "cancel_redrive",
    "change_redrive",
    "abort_redrive",
    "finish_redrive",
    "create_key",
    "revoke_key",
    "rotate_key",
    "dead_letter_expired",
];
const ACTOR: TextRule = TextRule::line(0, 256);
const ID: TextRule = TextRule::line(0, 64);
const NEWEST_FIRST: &[(&str, bool)] = &[("newest", true), ("oldest", false)];
/// Media type of a stream of lines, each a JSON document.
const LINES: &str = "application/x-ndjson";

pub(crate) async fn list(incoming: Incoming) -> Answered {
    incoming.no_body()?;
    if wants_lines(incoming.headers()) {
        return lines(incoming).await;
    }
    let mut query = incoming.query(&[&FILTER[..], &PAGE].concat());
    let (filter, newest_first) = read(&mut query);
    let newest_first = newest_first.unwrap_or(true);
    let size = paging::size(&mut query);
    let listing = Listing::new(&(
        "audit",
        (filter.from, filter.until, &filter.actor, &filter.action),
        (&filter.queue, filter.message.map(|id| id.0), filter.redrive),
        newest_first,
    ));
    let from = paging::place(&mut query, listing);
    query.finish()?;
    let service = &incoming.state.service;
    let query = service
        .audit_query(&incoming.caller, filter, newest_first)
        .await?;
    let query = AuditQuery {
        after: from.map(|place| place.id),
        limit: size,
        ..query
    };
    let trail = service.audit(&query).await?;
    let page = AuditPage {
        entries: trail
            .entries
            .iter()
            .map(|(entry, queue)| Entry::new(entry, queue.as_deref()))
            .collect(),
        next_page_token: trail.next.map(|id| Place::behind(id).token(listing)),
    };
    Ok(answer::json(StatusCode::OK, &page))
}

fn read(query: &mut Query) -> (AuditFilter, Option<bool>) {
    let span = times::span(query, "from", "to");
    let actions: Vec<(&'static str, &'static str)> =
        ACTIONS.iter().map(|word| (*word, *word)).collect();
    let queue = query.raw("queue").map(str::to_owned);
    if queue.as_deref().is_some_and(|name| !is_queue_name(name)) {
        query.fault(Code::InvalidQueueName, "queue", "No queue has this name.");
    }
    let filter = AuditFilter {
        from: span.from,
        until: span.until,
        actor: query.text_in("actor", ACTOR).map(Into::into),
        action: query.choice("action", &actions).map(Into::into),
        queue,
        message: id(query, "message_id", MessageId::parse),
        redrive: id(query, "redrive_id", RedriveId::parse),
    };
    (filter, query.choice("order", NEWEST_FIRST))
}

fn id<T>(query: &mut Query, name: &str, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
    let id = parse(&query.text(name, ID)?);
    if id.is_none() {
        query.fault(
            Code::InvalidValue,
            name,
            "An id is expected, as in answers.",
        );
    }
    id
}

/// The client takes a stream of lines, and does not like a JSON document better.
fn wants_lines(headers: &HeaderMap) -> bool {
    let (mut lines, mut document) = (0.0, 0.0);
    let accepted = headers.get_all(header::ACCEPT).iter();
    for range in accepted
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
    {
        let mut parts = range.split(';').map(str::trim);
        let media_type = parts.next().unwrap_or_default();
        let weight = parts
            .filter_map(|part| part.split_once('='))
            .find(|(name, _)| name.trim().eq_ignore_ascii_case("q"))
            .and_then(|(_, weight)| weight.trim().parse::<f64>().ok())
            .unwrap_or(1.0);
        if media_type.eq_ignore_ascii_case(LINES) {
            lines = weight;
        } else if media_type.eq_ignore_ascii_case("application/json") {
            document = weight;
        }
    }
    lines > 0.0 && lines >= document
}

async fn lines(incoming: Incoming) -> Answered {
    let mut query = incoming.query(&FILTER);
    let (filter, newest_first) = read(&mut query);
    query.finish()?;
    let service = &incoming.state.service;
    let newest_first = newest_first.unwrap_or(false);
    let query = service
        .audit_query(&incoming.caller, filter, newest_first)
        .await?;
    let Some(last) = service.youngest_audit().await? else {
        return Ok(answer::typed(StatusCode::OK, LINES, Body::empty()));
    };
    let reading = Reading::new(query, last);
    let (state, request_id) = (incoming.state.clone(), incoming.request_id.clone());
    let read = move |query: AuditQuery| {
        let (state, request_id) = (state.clone(), request_id.clone());
        async move {
            let trail = state.service.audit(&query).await;
            trail.map_err(|error| {
                let request_id = request_id.to_str().unwrap_or_default();
                tracing::error!(
                    request_id,
                    ?error,
                    "a stream of the audit trail was cut off"
                );
                CutOff
            })
        }
    };
    let body = Body::from_stream(pages(read, reading));
    Ok(answer::typed(StatusCode::OK, LINES, body))
}

pub(crate) fn describe() -> Route {
    use utoipa::PartialSchema;
    let text = "Each row was written in the transaction of the change that it tells of, and is never touched again. Kept for `audit_retention_days`. \
        With `Accept: application/x-ndjson` all of it comes as one stream, an entry per line, the oldest first unless asked otherwise, without paging; it ends with the last \
        entry that was there when it began. A stream that is cut off has no end of its body.";
    let entry = json!({"audit_id": 812, "at": "2026-11-30T16:12:00.000Z", "actor": "k7f2mx3q9sv4", "action": "discard", "queue": "orders", "message_id": "msg_02mx3k8s9qv40",
        "reason": "customer was refunded by hand", "before": {"state": "dead", "reason": "max_attempts", "attempts": 5, "redrive_count": 0},
        "after": {"state": "ended", "attempts": 5, "redrive_count": 0, "code": "not_applicable"}, "request_id": "req-5f3a9c-1"});
    let words = format!("Only this: `{}`", ACTIONS.join("`, `"));
    Describe::new("listAudit", "audit", "Read the audit trail")
        .text(text)
        .query(
            "from",
            "Only what was done at this time or later",
            Time::schema(),
            &json!("2026-11-30T00:00:00Z"),
        )
        .query(
            "to",
            "Only what was done before this time",
            Time::schema(),
            &json!("2026-12-01T00:00:00Z"),
        )
        .query(
            "actor",
            "Only what this key did; `policy` for what rules did",
            values::Line::schema(),
            &json!("k7f2mx3q9sv4"),
        )
        .query(
            "action",
            &words,
            described(json!({"type": "string", "enum": ACTIONS})),
            &json!("discard"),
        )
        .query(
            "queue",
            "Only on this queue",
            values::QueueName::schema(),
            &json!("orders"),
        )
        .query(
            "message_id",
            "Only on this message",
            values::MessageId::schema(),
            &json!("msg_02mx3k8s9qv40"),
        )
        .query(
            "redrive_id",
            "Only as part of this redrive",
            values::RedriveId::schema(),
            &json!("rdv_0000000000003"),
        )
        .query(
            "order",
            "`newest` (default) or `oldest` first",
            values::TimeOrder::schema(),
            &json!("oldest"),
        )
        .paged()
        .answer_or_lines::<AuditPage, Entry>(
            "A page of the audit trail, or a stream of its entries",
            json!({"entries": [entry]}),
            LINES,
        )
        .problems(&[
            Code::InvalidQueueName,
            Code::QueueNotFound,
            Code::InsufficientScope,
            Code::ControlCharacter,
            Code::TooLong,
        ])
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn lines_are_for_those_who_want_them() {
        for (accept, wanted) in [
            ("application/x-ndjson", true),
            ("Application/X-NDJSON; charset=utf-8", true),
            ("text/html, application/x-ndjson;q=0.5, */*;q=0.1", true),
            ("application/json;q=0.5, application/x-ndjson", true),
            ("application/json, application/x-ndjson;q=0.5", false),
            ("application/x-ndjson;q=0", false),
            ("application/json", false),
            ("*/*", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
            assert_eq!(wants_lines(&headers), wanted, "{accept}");
        }
        assert!(!wants_lines(&HeaderMap::new()));
    }
}
