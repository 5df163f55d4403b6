//! Dead letters: find them, see which failed alike, give one another round, discard it, take the discard back.

use super::docs::{Describe, Route};
use super::edge::Answered;
use super::extract::{Incoming, MAX_BODY};
use super::fields::{Fields, MAX_NESTING};
use super::messages::{FIRST, example};
use super::operator::{self, Reason};
use super::paging::{self, Listing, Place};
use super::problem::Code;
use super::publish::MAX_LIFE_SECONDS;
use super::wire::dead_letter::{
    DeadLetterGroups, DeadLetterPage, DiscardOne, REASONED_FIELDS, RedriveOne, ReopenOne,
};
use super::wire::message::Decided;
use super::wire::values::{PageSize, TimeOrder};
use super::{answer, dead_filter};
use crate::service::dead_letters::DeadPage;
use http::StatusCode;
use quita_storage::backend::Cursor;
use quita_storage::model::{DiscardCode, MessageId};
use serde_json::json;

const LISTING: [&str; 3] = ["order", "page_size", "page_token"];
const REDRIVE_FIELDS: &[&str] = &["force", "expires_in_seconds", "reason", "client_request_id"];
const DISCARD_FIELDS: &[&str] = &["code", "justification", "client_request_id"];
/// Groups of an answer, unless it says otherwise, and at most.
const GROUPS: u32 = 100;
const MOST_GROUPS: i64 = 500;
const NEWEST_FIRST: &[(&str, bool)] = &[("oldest", false), ("newest", true)];

/// Why a dead letter is left undone.
pub(crate) const DISCARD_CODES: &[(&str, DiscardCode)] = &[
    ("not_applicable", DiscardCode::NotApplicable),
    ("duplicate", DiscardCode::Duplicate),
    ("superseded", DiscardCode::Superseded),
    ("written_off", DiscardCode::WrittenOff),
];

pub(crate) async fn list(mut incoming: Incoming) -> Answered {
    let queue = incoming.queue().await?;
    page(incoming, Some(&queue)).await
}

pub(crate) async fn list_all(incoming: Incoming) -> Answered {
    page(incoming, None).await
}

async fn page(incoming: Incoming, queue: Option<&str>) -> Answered {
    incoming.no_body()?;
    let mut query = incoming.query(&[dead_filter::FIELDS, &LISTING].concat());
    let filter = dead_filter::read(&mut query);
    let newest_first = query.choice("order", NEWEST_FIRST).unwrap_or(false);
    let size = paging::size(&mut query);
    let listing = Listing::new(&("dead letters", queue, &filter, newest_first));
    let from = paging::place(&mut query, listing);
    query.finish()?;
    let backwards = from.is_some_and(|from| from.backwards);
    let service = &incoming.state.service;
    let mut page = service
        .dead_letters(
            &incoming.caller,
            queue,
            filter,
            from.map(cursor),
            newest_first != backwards,
            size,
        )
        .await?;
    let (next, previous) = neighbours(&page, from, newest_first);
    if backwards {
        page.items.reverse();
    }
    let page = DeadLetterPage::new(
        &page,
        next.map(|place| place.token(listing)),
        previous.map(|place| place.token(listing)),
    );
    Ok(answer::json(StatusCode::OK, &page))
}

fn cursor(place: Place) -> Cursor {
    Cursor {
        priority: 0,
        at: place.at,
        id: MessageId(place.id),
    }
}

/// Where the pages after and before this one begin. `page` is in the direction in which it was read, from `from`.
fn neighbours(
    page: &DeadPage,
    from: Option<Place>,
    newest_first: bool,
) -> (Option<Place>, Option<Place>) {
    let backwards = from.is_some_and(|from| from.backwards);
    let ahead = page.next.map(|cursor| Place {
        backwards,
        at: cursor.at,
        id: cursor.id.0,
    });
    // The first one read, or where the reading began, this one included: it was the last of the page that led here.
    let first = page.items.first().map(|(_, listed)| {
        let cursor = Cursor::of(&listed.message);
        (cursor.at, cursor.id.0)
    });
    let behind = from.map(|from| {
        let (at, id) = first.unwrap_or_else(|| {
            let step = if newest_first == backwards { 1 } else { -1 };
            (from.at, from.id.saturating_add(step))
        });
        Place {
            backwards: !backwards,
            at,
            id,
        }
    });
    if backwards {
        (behind, ahead)
    } else {
        (ahead, behind)
    }
}

pub(crate) async fn groups(mut incoming: Incoming) -> Answered {
    let queue = incoming.queue().await?;
    largest(incoming, Some(&queue)).await
}

pub(crate) async fn all_groups(incoming: Incoming) -> Answered {
    largest(incoming, None).await
}

async fn largest(incoming: Incoming, queue: Option<&str>) -> Answered {
    incoming.no_body()?;
    let mut query = incoming.query(&[dead_filter::FIELDS, &["limit"]].concat());
    let filter = dead_filter::read(&mut query);
    let limit = query.integer("limit", 1, MOST_GROUPS);
    query.finish()?;
    let limit = limit.map_or(GROUPS, |limit| limit as u32);
    let service = &incoming.state.service;
    let found = service
        .dead_groups(&incoming.caller, queue, &filter, limit)
        .await?;
    Ok(answer::json(
        StatusCode::OK,
        &DeadLetterGroups::from(&found),
    ))
}

pub(crate) async fn redrive(mut incoming: Incoming) -> Answered {
    let queue = incoming.queue().await?;
    let id = incoming.message_id().await?;
    let body = incoming.optional_json().await?;
    let mut fields = Fields::open(body.text(), String::new(), REDRIVE_FIELDS)?;
    let force = fields.boolean("force").unwrap_or(false);
    let expires_in_ms = fields.seconds("expires_in_seconds", 0.001, MAX_LIFE_SECONDS);
    let reason = operator::reason(&mut fields, "reason", Reason::given_if(force));
    let call = operator::call(&incoming, fields, &body, reason.as_deref())?;
    let service = &incoming.state.service;
    let done = service
        .redrive_one(&incoming.caller, &call, &queue, id, force, expires_in_ms)
        .await?;
    Ok(answer::operated(&Decided::from(done.answer), done.repeated))
}

pub(crate) async fn discard(mut incoming: Incoming) -> Answered {
    let queue = incoming.queue().await?;
    let id = incoming.message_id().await?;
    let body = incoming.json(MAX_BODY, MAX_NESTING).await?;
    let mut fields = Fields::open(body.text(), String::new(), DISCARD_FIELDS)?;
    let reason = operator::reason(&mut fields, "justification", Reason::Justified);
    fields.require("code");
    let code = fields.choice("code", DISCARD_CODES);
    let call = operator::call(&incoming, fields, &body, reason.as_deref())?;
    // Whatever is missing was refused by now.
    let code = code.unwrap_or(DiscardCode::WrittenOff);
    let service = &incoming.state.service;
    let done = service
        .discard(&incoming.caller, &call, &queue, id, code)
        .await?;
    Ok(answer::operated(&Decided::from(done.answer), done.repeated))
}

pub(crate) async fn reopen(mut incoming: Incoming) -> Answered {
    let queue = incoming.queue().await?;
    let id = incoming.message_id().await?;
    let body = incoming.json(MAX_BODY, MAX_NESTING).await?;
    let mut fields = Fields::open(body.text(), String::new(), REASONED_FIELDS)?;
    let reason = operator::reason(&mut fields, "reason", Reason::Given);
    let call = operator::call(&incoming, fields, &body, reason.as_deref())?;
    let service = &incoming.state.service;
    let done = service.reopen(&incoming.caller, &call, &queue, id).await?;
    Ok(answer::operated(&Decided::from(done.answer), done.repeated))
}

/// The queue of the first message of a page.
const QUEUE: (&str, &str) = ("queue", "$response.body#/messages/0/queue");
const MESSAGE: &str = "msg_02mx3k8s9qv40";

fn listing(describe: Describe) -> Route {
    use utoipa::PartialSchema;
    let described = describe
        .text("Oldest first, unless asked otherwise; pages lead in both directions. A short page is not the end: only a missing next_page_token is. A token is good for the same filter and order.")
        .query("order", "By time of death: `oldest` (default) or `newest` first", TimeOrder::schema(), &json!("newest"))
        .paged();
    dead_filter::described(described)
        .answer::<DeadLetterPage>(
            200,
            "A page of dead letters",
            json!({"messages": [example()], "next_page_token": paging::example()}),
        )
        .leads_to("getMessage", &[FIRST])
        .leads_to_with(
            "editDeadLetter",
            &[FIRST, QUEUE],
            json!({"merge_patch": {"amount": "12.50"}, "reason": "amount had a comma, ticket 7"}),
        )
        .leads_to("redriveDeadLetter", &[FIRST, QUEUE])
        .leads_to_with(
            "discardDeadLetter",
            &[FIRST, QUEUE],
            json!({"code": "not_applicable", "justification": "customer was refunded by hand"}),
        )
        .leads_to("undoDeadLetterEdit", &[FIRST, QUEUE])
        .leads_to_with("selectDeadLetters", &[], json!({"queue": QUEUE.1}))
        .build()
}

pub(crate) fn describe_list() -> Route {
    listing(Describe::new("listDeadLetters", "dead letters", "List dead letters").queue())
}

pub(crate) fn describe_list_all() -> Route {
    let describe = Describe::new(
        "listAllDeadLetters",
        "dead letters",
        "List the dead letters of all queues",
    );
    listing(describe.problems(&[Code::InsufficientScope]))
}

fn grouping(describe: Describe) -> Route {
    use utoipa::PartialSchema;
    let described = describe
        .text("Alike: the same queue, reason, error code and error text, where numbers and ids in the text do not count. The largest groups first.")
        .query("limit", "At most this many groups, 1 to 500", PageSize::schema(), &json!(100));
    let group = json!({"group": "grp_00c3f1a9d2e45b67", "queue": "orders", "reason": "max_attempts", "failure_kind": "nack", "error_code": "gateway_timeout",
        "error_text": "timeout after # ms", "count": 412, "first_died_at": "2026-11-30T15:20:00.000Z", "last_died_at": "2026-11-30T16:02:11.004Z", "example_message_id": MESSAGE});
    dead_filter::described(described)
        .answer::<DeadLetterGroups>(200, "The groups", json!({"groups": [group], "more": false}))
        .leads_to(
            "listDeadLetters",
            &[
                ("queue", "$response.body#/groups/0/queue"),
                ("group", "$response.body#/groups/0/group"),
            ],
        )
        .leads_to(
            "getMessage",
            &[("message_id", "$response.body#/groups/0/example_message_id")],
        )
        .problems(&[Code::BodyNotAllowed])
        .build()
}

pub(crate) fn describe_groups() -> Route {
    grouping(
        Describe::new(
            "groupDeadLetters",
            "dead letters",
            "Count dead letters that failed alike",
        )
        .queue(),
    )
}

pub(crate) fn describe_all_groups() -> Route {
    let describe = Describe::new(
        "groupAllDeadLetters",
        "dead letters",
        "Count dead letters that failed alike, in all queues",
    );
    grouping(describe.problems(&[Code::InsufficientScope]))
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
    .repeatable()
    .problems(&[
        Code::NotDead,
        Code::RedriveLimit,
        Code::CompletionRemembered,
        Code::Expired,
        Code::ReasonRequired,
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
    .text("Its payload is kept for 7 days more: until then it can be re-opened.")
    .queue()
    .message()
    .body::<DiscardOne>(
        json!({"code": "not_applicable", "justification": "customer was refunded by hand"}),
    )
    .answer::<Decided>(
        200,
        "It is discarded",
        json!({"message_id": MESSAGE, "state": "ended"}),
    )
    .leads_to_with(
        "reopenDeadLetter",
        &[
            ("queue", "$request.path.queue"),
            ("message_id", "$response.body#/message_id"),
        ],
        json!({"reason": "the refund bounced"}),
    )
    .repeatable()
    .problems(&[
        Code::NotDead,
        Code::MissingField,
        Code::InvalidValue,
        Code::ReasonRequired,
        Code::ControlCharacter,
        Code::TooLong,
    ])
    .build()
}

pub(crate) fn describe_reopen() -> Route {
    Describe::new("reopenDeadLetter", "dead letters", "Take a discard back")
        .text("While the payload is kept, 7 days. The message is the dead letter that it was.")
        .queue()
        .message()
        .body::<ReopenOne>(json!({"reason": "the refund bounced"}))
        .answer::<Decided>(
            200,
            "It is a dead letter again",
            json!({"message_id": MESSAGE, "state": "dead"}),
        )
        .repeatable()
        .problems(&[
            Code::NotDiscarded,
            Code::PayloadGone,
            Code::KeyTaken,
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
        assert_described(&DiscardOne::schema(), DISCARD_FIELDS);
        assert_described(&ReopenOne::schema(), REASONED_FIELDS);
    }

    #[test]
    fn the_codes_are_those_of_the_store() {
        let words: Vec<&str> = DiscardCode::ALL.iter().map(|c| c.as_str()).collect();
        let offered: Vec<&str> = DISCARD_CODES.iter().map(|(word, _)| *word).collect();
        assert_eq!(words, offered);
    }
}
