//! Page tokens: a place in a listing's order, opaque to the client.
//!
//! A token has a checksum, so that one that was damaged or made up by hand is refused instead of leading to some other
//! place. It is no secret and needs no signature: a place only says where to go on, and what is there is read with the
//! rights of whoever asks.

use super::problem::Code;
use super::query::Query;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use quita_storage::backend::Cursor;
use quita_storage::model::{MessageId, Millis, State};
use serde::Serialize;
use sha2::{Digest, Sha256};

const VERSION: u8 = 2;
/// Bytes of the checksum: CRC-32 notices every single changed bit, and every run of up to 32.
const SUM: usize = 4;
/// Longest token that is read: that of a queue's name is the longest one of ours.
const MAX_TOKEN: usize = 256;
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
    sealed(bytes)
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

/// What a token is good for: one listing with one filter in one order.
#[derive(Clone, Copy)]
pub(crate) struct Listing([u8; 8]);

impl Listing {
    /// Two listings differ when anything in `of` does.
    pub(crate) fn new(of: &impl Serialize) -> Self {
        // Our own types always serialise.
        let text = serde_json::to_vec(of).unwrap_or_default();
        let mut first = [0; 8];
        first.copy_from_slice(&Sha256::digest(text)[..8]);
        Self(first)
    }
}

/// A place in a listing, and which way to go on from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Against the order of the listing.
    pub(crate) backwards: bool,
    /// The first part of the order; 0 where there is one alone.
    pub(crate) at: Millis,
    /// The second part.
    pub(crate) id: i64,
}

impl Place {
    /// Forwards from here, in a listing that is ordered by a number alone.
    pub(crate) fn behind(id: i64) -> Self {
        Self {
            backwards: false,
            at: 0,
            id,
        }
    }

    /// Its token.
    pub(crate) fn token(self, listing: Listing) -> String {
        let mut bytes = vec![VERSION, u8::from(self.backwards)];
        bytes.extend_from_slice(&listing.0);
        bytes.extend_from_slice(&self.at.to_be_bytes());
        bytes.extend_from_slice(&self.id.to_be_bytes());
        sealed(bytes)
    }
}

/// The place that `page_token` names in this listing.
pub(crate) fn place(query: &mut Query, listing: Listing) -> Option<Place> {
    let bytes = decode(query)?;
    let read = |bytes: &[u8]| {
        let (head, rest) = bytes.split_at_checked(10)?;
        let (at, id) = rest.split_at_checked(8)?;
        let valid = head[0] == VERSION && head[1] <= 1 && head[2..] == listing.0;
        Some(Place {
            backwards: head[1] == 1,
            at: i64::from_be_bytes(at.try_into().ok()?),
            id: i64::from_be_bytes(id.try_into().ok()?),
        })
        .filter(|_| valid)
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
    sealed(bytes)
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

/// The token of these bytes.
fn sealed(mut bytes: Vec<u8>) -> String {
    let sum = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&sum.to_be_bytes());
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The bytes of a token that [`sealed`] made.
fn opened(token: &str) -> Option<Vec<u8>> {
    if token.len() > MAX_TOKEN {
        return None;
    }
    let mut bytes = URL_SAFE_NO_PAD.decode(token).ok()?;
    let (body, sum) = bytes.split_last_chunk::<SUM>()?;
    if crc32fast::hash(body).to_be_bytes() != *sum {
        return None;
    }
    bytes.truncate(bytes.len() - SUM);
    Some(bytes)
}

fn decode(query: &mut Query) -> Option<Vec<u8>> {
    let token = query.raw("page_token")?;
    let bytes = opened(token);
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
    use proptest::prelude::*;

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
    fn a_place_is_good_for_one_filter_and_one_order() {
        let listing = Listing::new(&("dead", "newest"));
        let place_in = Place {
            backwards: true,
            at: 12,
            id: -3,
        };
        let token = place_in.token(listing);
        assert_eq!(place(&mut with(&token), listing), Some(place_in));
        for other in [
            with(&token),
            with("AQA"),
            with(&name_token("a-name-of-25-characters-x")),
        ] {
            let mut query = other;
            assert_eq!(place(&mut query, Listing::new(&("dead", "oldest"))), None);
            assert_eq!(query.finish().unwrap_err().code(), Code::InvalidPageToken);
        }
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

    fn listing() -> Listing {
        Listing::new(&("dead", "newest"))
    }

    /// What each reader makes of a token: nothing, for one that is not its own.
    fn read(token: &str) -> (Option<Cursor>, Option<Place>, Option<String>) {
        (
            message_place(&mut with(token), State::Ready),
            place(&mut with(token), listing()),
            name_place(&mut with(token)),
        )
    }

    fn a_place() -> impl Strategy<Value = Place> {
        (any::<bool>(), any::<i64>(), any::<i64>()).prop_map(|(backwards, at, id)| Place {
            backwards,
            at,
            id,
        })
    }

    proptest! {
        #[test]
        fn any_place_comes_back(place in a_place(), priority in 0u8..=9, name in "[A-Za-z0-9][A-Za-z0-9_-]{0,79}") {
            let cursor = Cursor { priority, at: place.at, id: MessageId(place.id) };
            prop_assert_eq!(read(&message_token(State::Ready, cursor)).0, Some(cursor));
            prop_assert_eq!(read(&place.token(listing())).1, Some(place));
            prop_assert_eq!(read(&name_token(&name)).2, Some(name));
        }

        #[test]
        fn a_token_with_one_flipped_bit_is_never_accepted(place in a_place(), at in any::<prop::sample::Index>(), bit in 0u8..8) {
            let cursor = Cursor { priority: 3, at: place.at, id: MessageId(place.id) };
            for token in [message_token(State::Ready, cursor), place.token(listing()), name_token("orders")] {
                // In what is encoded, and in the text that is sent.
                let mut bytes = URL_SAFE_NO_PAD.decode(&token).unwrap();
                let index = at.index(bytes.len());
                bytes[index] ^= 1 << bit;
                prop_assert_eq!(read(&URL_SAFE_NO_PAD.encode(bytes)), (None, None, None));
                let mut text = token.clone().into_bytes();
                let index = at.index(text.len());
                text[index] ^= 1 << bit;
                if let Ok(text) = String::from_utf8(text) {
                    prop_assert_eq!(opened(&text), None, "{}", text);
                }
            }
        }

        #[test]
        fn no_token_makes_it_panic(token in ".{0,300}", bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            read(&token);
            // Bytes of any kind behind a checksum that is right.
            let (cursor, place, name) = read(&sealed(bytes));
            prop_assert!(cursor.is_none_or(|cursor| cursor.priority <= 9));
            prop_assert!(place.is_none());
            prop_assert!(name.is_none_or(|name| crate::http::extract::is_queue_name(&name)));
        }
    }
}
