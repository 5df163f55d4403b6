//! `/v1/keys`: API keys. The secret of a key is in one answer and nowhere else.

use super::answer;
use super::docs::{Describe, Route};
use super::edge::Answered;
use super::extract::{Incoming, MAX_BODY};
use super::fields::{Fields, MAX_NESTING};
use super::operator::{self, Reason};
use super::paging::{self, Listing};
use super::problem::Code;
use super::text_rule::TextRule;
use super::wire::key::{Key, KeyMade, KeyPage, NewKey, RevokeKey, RotateKey};
use crate::AppState;
use crate::auth::Scopes;
use crate::auth::scope::ScopeError;
use crate::service::keys;
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};

const DESCRIPTION: TextRule = TextRule::line(0, 256);
/// Ten years: whoever wants more wants a key that does not expire.
const LONGEST_LIFE_S: f64 = 315_360_000.0;
/// Time to bring the new key to everywhere the old one is: a day unless given, a month at most.
const OVERLAP_MS: i64 = 86_400_000;
const LONGEST_OVERLAP_S: f64 = 2_592_000.0;
const NEW_FIELDS: &[&str] = &[
    "scopes",
    "description",
    "expires_in_seconds",
    "client_request_id",
];
const ROTATE_FIELDS: &[&str] = &["overlap_seconds", "reason", "client_request_id"];
const REVOKE_FIELDS: &[&str] = &["reason"];

pub(crate) async fn make(mut incoming: Incoming) -> Answered {
    let body = incoming.json(MAX_BODY, MAX_NESTING).await?;
    let mut fields = Fields::open(body.text(), String::new(), NEW_FIELDS)?;
    let scopes = scopes(&mut fields);
    let description = fields.text_in("description", DESCRIPTION);
    let expires_in_ms = fields.seconds("expires_in_seconds", 1.0, LONGEST_LIFE_S);
    let call = operator::call(&incoming, fields, &body, None)?;
    let new = keys::NewKey {
        // What is missing was refused by now.
        scopes: scopes.unwrap_or_default(),
        description: description.as_deref().unwrap_or_default().into(),
        expires_in_ms,
    };
    let service = &incoming.state.service;
    let done = service.make_key(&incoming.caller, &call, new).await?;
    know(&incoming.state).await;
    Ok(made(&KeyMade::from(&done.answer), done.repeated))
}

/// Makes this server know of a change of keys before it tells of it. The others read the keys again every
/// 1.5 s.
async fn know(state: &AppState) {
    if let Err(error) = state.auth.refresh().await {
        tracing::warn!(%error, "could not read the API keys again");
    }
}

/// 201 for a key that is new, 200 for one that was made before. Nobody on the way may keep it.
fn made(key: &KeyMade, repeated: bool) -> Response {
    let status = if repeated {
        StatusCode::OK
    } else {
        StatusCode::CREATED
    };
    let mut response = answer::operated_as(status, key, repeated);
    let headers = response.headers_mut();
    let location = format!("/v1/keys/{}", key.record.key_id);
    if let Ok(location) = HeaderValue::from_str(&location) {
        headers.insert(header::LOCATION, location);
    }
    response
}

/// What the key may do; what is wrong with it is noted.
fn scopes(fields: &mut Fields<'_>) -> Option<Scopes> {
    const NAME: &str = "scopes";
    if !fields.require(NAME) {
        return None;
    }
    let Ok(entries) = serde_json::from_str::<Vec<String>>(fields.raw(NAME)?) else {
        fields.fault(Code::WrongType, NAME, "A list of strings is expected.");
        return None;
    };
    if entries.is_empty() {
        fields.fault(Code::OutOfRange, NAME, "1 to 64 scopes are expected.");
        return None;
    }
    match Scopes::from_entries(entries.iter().map(String::as_str)) {
        Ok(scopes) => Some(scopes),
        Err(ScopeError::TooMany) => {
            fields.fault(Code::OutOfRange, NAME, "1 to 64 scopes are expected.");
            None
        }
        Err(ScopeError::TooLong) => {
            let detail = "All scopes together have at most 4,096 bytes.";
            fields.fault(Code::TooLong, NAME, detail);
            None
        }
        Err(ScopeError::Entry { index, fault, .. }) => {
            let at = format!("{}/{index}", fields.pointer(NAME));
            fields.fault_at(Code::InvalidValue, &at, format!("{fault}."));
            None
        }
    }
}

pub(crate) async fn list(incoming: Incoming) -> Answered {
    incoming.no_body()?;
    let mut query = incoming.query(&["page_size", "page_token"]);
    let size = paging::size(&mut query) as usize;
    let listing = Listing::new(&"keys");
    let after = paging::name_place(&mut query, listing);
    query.finish()?;
    let all = incoming.state.service.keys(&incoming.caller).await?;
    let begin = after.map_or(0, |id| {
        let known = all.iter().position(|key| *key.id == *id);
        known.map_or(all.len(), |index| index + 1)
    });
    let rest = &all[begin..];
    let shown = &rest[..size.min(rest.len())];
    let last = shown.last().filter(|_| shown.len() < rest.len());
    let page = KeyPage {
        keys: shown.iter().map(Key::from).collect(),
        next_page_token: last.map(|key| paging::name_token(listing, &key.id)),
    };
    Ok(answer::json(StatusCode::OK, &page))
}

pub(crate) async fn read(mut incoming: Incoming) -> Answered {
    incoming.no_body()?;
    incoming.no_query()?;
    let id = incoming.key_id().await?;
    let service = &incoming.state.service;
    let key = service.key(&incoming.caller, &id).await?;
    Ok(answer::json(StatusCode::OK, &Key::from(&key)))
}

pub(crate) async fn rotate(mut incoming: Incoming) -> Answered {
    let id = incoming.key_id().await?;
    let body = incoming.optional_json().await?;
    let mut fields = Fields::open(body.text(), String::new(), ROTATE_FIELDS)?;
    let overlap_ms = fields.seconds("overlap_seconds", 0.0, LONGEST_OVERLAP_S);
    let reason = operator::reason(&mut fields, "reason", Reason::Optional);
    let call = operator::call(&incoming, fields, &body, reason.as_deref())?;
    let overlap_ms = overlap_ms.unwrap_or(OVERLAP_MS);
    let service = &incoming.state.service;
    let rotated = service.rotate_key(&incoming.caller, &call, &id, overlap_ms);
    let done = rotated.await?;
    know(&incoming.state).await;
    Ok(made(&KeyMade::from(&done.answer), done.repeated))
}

pub(crate) async fn revoke(mut incoming: Incoming) -> Answered {
    let id = incoming.key_id().await?;
    let body = incoming.json(MAX_BODY, MAX_NESTING).await?;
    let mut fields = Fields::open(body.text(), String::new(), REVOKE_FIELDS)?;
    let reason = operator::reason(&mut fields, "reason", Reason::Given);
    let call = operator::call(&incoming, fields, &body, reason.as_deref())?;
    let service = &incoming.state.service;
    let done = service.revoke_key(&incoming.caller, &call, &id).await?;
    know(&incoming.state).await;
    Ok(answer::operated(&Key::from(&done.answer), done.repeated))
}

fn example() -> Value {
    json!({"key_id": "k7f2mx3q5sv4", "state": "active", "scopes": ["publish:mail-*", "read:mail-*"], "description": "mailer in production",
        "created_at": "2026-11-30T15:04:05.123Z", "expires_at": "2027-11-30T15:04:05.123Z", "last_used_at": "2026-12-01T08:15:00.000Z"})
}

/// The key that was answered, as the parameter of another operation.
const OF_KEY: (&str, &str) = ("key_id", "$response.body#/key_id");

fn new_example() -> Value {
    let mut example = example();
    if let Some(members) = example.as_object_mut() {
        members.remove("last_used_at");
        members.insert("key".to_owned(), json!("qta_k7f2mx3q5sv4_…"));
    }
    example
}

pub(crate) fn describe_make() -> Route {
    Describe::new("createKey", "keys", "Make an API key")
        .text("The key is in this answer and nowhere else. It allows nothing that the caller's own does not. A repeat with the same client_request_id answers 200 without it: when the first answer was lost, revoke the key and make another one.")
        .body::<NewKey>(json!({"scopes": ["publish:mail-*", "read:mail-*"], "description": "mailer in production", "expires_in_seconds": 31_536_000, "client_request_id": "mailer-1"}))
        .answer::<KeyMade>(201, "The key", new_example())
        .answer::<KeyMade>(200, "The key that was made before, without its secret", example())
        .returns("Location", "The key, without its secret")
        .leads_to("getKey", &[OF_KEY])
        .leads_to("rotateKey", &[OF_KEY])
        .leads_to_with("revokeKey", &[OF_KEY], json!({"reason": "was in a log file"}))
        .repeatable()
        .problems(&[Code::WiderThanCaller, Code::MissingField, Code::InvalidValue, Code::TooLong, Code::ControlCharacter])
        .build()
}

pub(crate) fn describe_list() -> Route {
    Describe::new("listKeys", "keys", "List API keys")
        .text("In the order in which they were made, revoked and expired ones included.")
        .paged()
        .answer::<KeyPage>(200, "A page of keys", json!({"keys": [example()]}))
        .leads_to("getKey", &[("key_id", "$response.body#/keys/0/key_id")])
        .build()
}

pub(crate) fn describe_read() -> Route {
    Describe::new("getKey", "keys", "Read an API key")
        .key()
        .answer::<Key>(200, "The key, without its secret", example())
        .problems(&[Code::BodyNotAllowed])
        .build()
}

pub(crate) fn describe_rotate() -> Route {
    Describe::new("rotateKey", "keys", "Replace an API key by a new one")
        .text("The new key may the same and lives as long as the old one did. The old one is good for overlap_seconds more, so that both are while it is replaced everywhere.")
        .key()
        .optional_body::<RotateKey>(json!({"overlap_seconds": 3600, "client_request_id": "mailer-2"}))
        .answer::<KeyMade>(201, "The new key", new_example())
        .answer::<KeyMade>(200, "The key that was made before, without its secret", example())
        .returns("Location", "The key, without its secret")
        .leads_to("getKey", &[OF_KEY])
        .leads_to_with("revokeKey", &[OF_KEY], json!({"reason": "was in a log file"}))
        .repeatable()
        .problems(&[Code::WiderThanCaller, Code::KeyEnded, Code::TooLong, Code::ControlCharacter])
        .build()
}

pub(crate) fn describe_revoke() -> Route {
    let mut revoked = example();
    revoked["state"] = json!("revoked");
    revoked["revoked_at"] = json!("2026-12-01T09:00:00.000Z");
    Describe::new("revokeKey", "keys", "End an API key")
        .text("It is refused within 5 s everywhere, and receives that wait with it end. Revoking it again changes nothing.")
        .key()
        .body::<RevokeKey>(json!({"reason": "was in a log file"}))
        .answer::<Key>(200, "The key", revoked)
        .leads_to("getKey", &[OF_KEY])
        .problems(&[Code::WiderThanCaller, Code::ReasonRequired, Code::TooLong, Code::ControlCharacter, Code::OutcomeUnknown])
        .build()
}

#[cfg(test)]
mod tests {
    use super::super::fields::tests::assert_described;
    use super::*;
    use utoipa::PartialSchema;

    #[test]
    fn what_is_read_is_what_is_described() {
        assert_described(&NewKey::schema(), NEW_FIELDS);
        assert_described(&RotateKey::schema(), ROTATE_FIELDS);
        assert_described(&RevokeKey::schema(), REVOKE_FIELDS);
    }
}
