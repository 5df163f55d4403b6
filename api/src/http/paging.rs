//! Page tokens: a place in a listing's order, opaque to the client.
//!
//! A token is good for one listing with one filter in one order, and says which. It has a checksum, so that one that was
//! damaged or made up by hand is refused instead of leading to some other place. It is no secret and needs no signature: a place only says where to go on, and what is there is read with the
//! rights of whoever asks.

use super::problem::Code;
use super::query::Query;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use quita_storage::backend::Cursor;
use quita_storage::model::{MessageId, Millis};
use serde::Serialize;
use sha2::{Digest, Sha256};

const VERSION: u8 = 3;
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

/// What a token is good for: one listing with one filter in one order.
#[derive(Clone, Copy)]
pub(crate) struct Listing([u8; 8]);

impl Listing {
    /// Two listings differ when anything in `of` does. It begins with a word for the kind of listing.
    pub(crate) fn new(of: &impl Serialize) -> Self {
        // Our own types always serialise.
        let text = serde_json::to_vec(of).unwrap_or_default();
        let mut first = [0; 8];
        first.copy_from_slice(&Sha256::digest(text)[..8]);
        Self(first)
    }
}

/// A place in one kind of listing's order.
trait Position: Sized {
    fn write(&self, bytes: &mut Vec<u8>);
    /// `None` for what [`Position::write`] never writes.
    fn read(bytes: &[u8]) -> Option<Self>;
}

fn token(listing: Listing, position: &impl Position) -> String {
    let mut bytes = vec![VERSION];
    bytes.extend_from_slice(&listing.0);
    position.write(&mut bytes);
    sealed(bytes)
}

fn position<P: Position>(query: &mut Query, listing: Listing) -> Option<P> {
    let token = query.raw("page_token")?;
    let position = opened(token).and_then(|bytes| {
        let rest = bytes.strip_prefix(&[VERSION])?;
        P::read(rest.strip_prefix(&listing.0)?)
    });
    if position.is_none() {
        let detail = "The token was not made by this server for this listing.";
        query.fault(Code::InvalidPageToken, "page_token", detail);
    }
    position
}

impl Position for Cursor {
    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.push(self.priority);
        bytes.extend_from_slice(&self.at.to_be_bytes());
        bytes.extend_from_slice(&self.id.0.to_be_bytes());
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (&priority, numbers) = bytes.split_first()?;
        let (at, id) = two_numbers(numbers)?;
        (priority <= 9).then_some(Self {
            priority,
            at,
            id: MessageId(id),
        })
    }
}

/// The token of a place among messages.
pub(crate) fn message_token(listing: Listing, cursor: Cursor) -> String {
    token(listing, &cursor)
}

/// The place that `page_token` names among messages.
pub(crate) fn message_place(query: &mut Query, listing: Listing) -> Option<Cursor> {
    position(query, listing)
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
        token(listing, &self)
    }
}

impl Position for Place {
    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.push(u8::from(self.backwards));
        bytes.extend_from_slice(&self.at.to_be_bytes());
        bytes.extend_from_slice(&self.id.to_be_bytes());
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (&backwards, numbers) = bytes.split_first()?;
        let (at, id) = two_numbers(numbers)?;
        (backwards <= 1).then_some(Self {
            backwards: backwards == 1,
            at,
            id,
        })
    }
}

/// The place that `page_token` names in this listing.
pub(crate) fn place(query: &mut Query, listing: Listing) -> Option<Place> {
    position(query, listing)
}

/// In a listing that is ordered by names.
impl Position for String {
    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(self.as_bytes());
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let name = Self::from_utf8(bytes.to_vec()).ok()?;
        super::extract::is_queue_name(&name).then_some(name)
    }
}

/// The token of a place among queues, or among keys.
pub(crate) fn name_token(listing: Listing, name: &str) -> String {
    token(listing, &name.to_owned())
}

/// The name that `page_token` stands for.
pub(crate) fn name_place(query: &mut Query, listing: Listing) -> Option<String> {
    position(query, listing)
}

/// A token as it may look: of the listing of queues, behind `orders`.
pub(crate) fn example() -> String {
    name_token(Listing::new(&super::queues::LISTING), "orders")
}

fn two_numbers(bytes: &[u8]) -> Option<(i64, i64)> {
    let (first, second) = bytes.split_at_checked(8)?;
    let number = |bytes: &[u8]| bytes.try_into().ok().map(i64::from_be_bytes);
    Some((number(first)?, number(second)?))
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn with(token: &str) -> Query {
        Query::open(Some(&format!("page_token={token}")), &["page_token"])
    }

    const KINDS: [&str; 3] = ["messages", "dead letters", "queues"];

    /// What each reader makes of a token in the listing of its kind: nothing, for one that is not its own.
    fn read(token: &str) -> (Option<Cursor>, Option<Place>, Option<String>) {
        let [messages, dead, queues] = KINDS.map(|kind| Listing::new(&kind));
        (
            message_place(&mut with(token), messages),
            place(&mut with(token), dead),
            name_place(&mut with(token), queues),
        )
    }

    fn tokens(place: Place, priority: u8, name: &str) -> [String; 3] {
        let [messages, dead, queues] = KINDS.map(|kind| Listing::new(&kind));
        let cursor = Cursor {
            priority,
            at: place.at,
            id: MessageId(place.id),
        };
        [
            message_token(messages, cursor),
            place.token(dead),
            name_token(queues, name),
        ]
    }

    #[test]
    fn a_place_is_good_for_one_listing_one_filter_and_one_order() {
        let listing = Listing::new(&("dead", "newest"));
        let place_in = Place {
            backwards: true,
            at: 12,
            id: -3,
        };
        let token = place_in.token(listing);
        assert_eq!(place(&mut with(&token), listing), Some(place_in));
        let other = Listing::new(&("dead", "oldest"));
        for token in [
            &*token,
            "AQA",
            &name_token(other, "25-characters-as-the-rest"),
        ] {
            let mut query = with(token);
            assert_eq!(place(&mut query, other), None);
            assert_eq!(query.finish().unwrap_err().code(), Code::InvalidPageToken);
        }
        // The same bytes, of another listing.
        assert_eq!(message_place(&mut with(&token), other), None);
        assert!(message_place(&mut with(&token), listing).is_some());
    }

    #[test]
    fn the_example_is_a_real_one() {
        let queues = Listing::new(&crate::http::queues::LISTING);
        let name = name_place(&mut with(&example()), queues);
        assert_eq!(name.as_deref(), Some("orders"));
    }

    #[test]
    fn anything_else_is_refused() {
        let listing = Listing::new(&"queues");
        for token in ["", "x", "AQ", "!!!!", &"A".repeat(1_000)] {
            let mut query = with(token);
            assert_eq!(message_place(&mut query, listing), None);
            assert_eq!(
                query.finish().unwrap_err().code(),
                Code::InvalidPageToken,
                "{token}"
            );
            let mut query = with(token);
            assert_eq!(name_place(&mut query, listing), None, "{token}");
        }
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
        fn any_place_comes_back_and_only_to_its_own(place in a_place(), priority in 0u8..=9, name in "[A-Za-z0-9][A-Za-z0-9_-]{0,79}") {
            let [of_message, of_place, of_name] = tokens(place, priority, &name);
            let cursor = Cursor { priority, at: place.at, id: MessageId(place.id) };
            prop_assert_eq!(read(&of_message), (Some(cursor), None, None));
            prop_assert_eq!(read(&of_place), (None, Some(place), None));
            prop_assert_eq!(read(&of_name), (None, None, Some(name)));
        }

        #[test]
        fn a_token_with_one_flipped_bit_is_never_accepted(place in a_place(), at in any::<prop::sample::Index>(), bit in 0u8..8) {
            for token in tokens(place, 3, "orders") {
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
            // Bytes of any kind behind a head and a checksum that are right.
            for (n, kind) in KINDS.iter().enumerate() {
                let head = [&[VERSION][..], &Listing::new(kind).0, &bytes].concat();
                let (cursor, place, name) = read(&sealed(head));
                prop_assert!(cursor.is_none_or(|cursor| n == 0 && cursor.priority <= 9));
                prop_assert!(place.is_none() || n == 1);
                prop_assert!(name.is_none_or(|name| n == 2 && crate::http::extract::is_queue_name(&name)));
            }
        }
    }
}
