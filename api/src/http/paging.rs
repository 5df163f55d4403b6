//! Page tokens: a place in a listing's order, opaque to the client.

use super::problem::Code;
use super::query::Query;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use quita_storage::backend::Cursor;
use quita_storage::model::{MessageId, State};

const VERSION: u8 = 1;
/// Entries of a page when the request does not say.
const DEFAULT_SIZE: u32 = 50;
/// Most entries of a page (product §5).
const MAX_SIZE: i64 = 500;

/// Entries wanted.
pub(crate) fn size(query: &mut Query) -> u32 {
    query
        .integer("page_size", 1, MAX_SIZE)
        .map_or(DEFAULT_SIZE, |size| size as u32)
}

/// The token of a place among messages of `state`.
pub(crate) fn message_token(state: State, cursor: Cursor) -> String {
    let mut bytes = vec![VERSION, state.code() as u8, cursor.priority];
    bytes.extend_from_slice(&cursor.at.to_be_bytes());
    bytes.extend_from_slice(&cursor.id.0.to_be_bytes());
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The place that `page_token` names among messages of `state`.
pub(crate) fn message_place(query: &mut Query, state: State) -> Option<Cursor> {
    let bytes = decode(query)?;
    let read = |bytes: &[u8]| {
        let (head, rest) = bytes.split_at_checked(3)?;
        let (at, id) = rest.split_at_checked(8)?;
        let at = i64::from_be_bytes(at.try_into().ok()?);
        let id = MessageId(i64::from_be_bytes(id.try_into().ok()?));
        let priority = head[2];
        let valid = head[0] == VERSION && head[1] == state.code() as u8 && priority <= 9;
        valid.then_some(Cursor { priority, at, id })
    };
    let place = read(&bytes);
    if place.is_none() {
        invalid(query);
    }
    place
}

/// The token of a place among queues.
pub(crate) fn name_token(name: &str) -> String {
    let mut bytes = vec![VERSION];
    bytes.extend_from_slice(name.as_bytes());
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The name that `page_token` stands for.
pub(crate) fn name_place(query: &mut Query) -> Option<String> {
    let bytes = decode(query)?;
    let name = bytes
        .strip_prefix(&[VERSION])
        .and_then(|name| String::from_utf8(name.to_vec()).ok())
        .filter(|name| super::extract::is_queue_name(name));
    if name.is_none() {
        invalid(query);
    }
    name
}

fn decode(query: &mut Query) -> Option<Vec<u8>> {
    let token = query.raw("page_token")?;
    let bytes = if token.len() <= 256 {
        URL_SAFE_NO_PAD.decode(token).ok()
    } else {
        None
    };
    if bytes.is_none() {
        invalid(query);
    }
    bytes
}

fn invalid(query: &mut Query) {
    let detail = "The token was not made by this server for this listing.";
    query.fault(Code::InvalidPageToken, "page_token", detail);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(token: &str) -> Query {
        Query::open(Some(&format!("page_token={token}")), &["page_token"])
    }

    #[test]
    fn a_place_comes_back_for_the_same_listing_only() {
        let cursor = Cursor {
            priority: 7,
            at: 1_234_567,
            id: MessageId(99),
        };
        let token = message_token(State::Ready, cursor);
        assert_eq!(message_place(&mut with(&token), State::Ready), Some(cursor));
        let mut other = with(&token);
        assert_eq!(message_place(&mut other, State::Dead), None);
        assert_eq!(other.finish().unwrap_err().code(), Code::InvalidPageToken);
        let name = name_token("orders");
        assert_eq!(name_place(&mut with(&name)).as_deref(), Some("orders"));
    }

    #[test]
    fn anything_else_is_refused() {
        for token in ["", "x", "AQ", "!!!!", &"A".repeat(1_000)] {
            let mut query = with(token);
            assert_eq!(message_place(&mut query, State::Ready), None);
            assert_eq!(
                query.finish().unwrap_err().code(),
                Code::InvalidPageToken,
                "{token}"
            );
            let mut query = with(token);
            assert_eq!(name_place(&mut query), None, "{token}");
        }
    }
}
