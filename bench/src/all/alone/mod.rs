//! What the stores cost by themselves, without a server: the floor under every row.
//!
//! The tables are those of the project's migrations. A commit by itself writes one row of `message`, the payload with what is
//! known of it. In bulk there are two floors: that row alone, and all that a message is ([`What::Message`]). A publish
//! also keeps the queue's numbers, and looks before it writes.

mod postgres;
mod sqlite;

use super::book::{Figure, MESSAGES_PER_SECOND, P50_MS, P99_MS};
use crate::Outcome;
use crate::fresh::{Ground, Store};
use crate::stats::percentile_ms;
use std::time::{Duration, Instant};

/// What is written of each message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// Its row in `message`.
    Row,
    /// The row, its place in the queue and its request id.
    Message,
}

/// What commits took, in µs, and how many messages came in what time.
#[derive(Default)]
struct Commits {
    took: Vec<u32>,
    messages: i64,
    seconds: f64,
}

impl Commits {
    fn note(&mut self, begun: Instant, messages: i64) {
        self.took
            .push(u32::try_from(begun.elapsed().as_micros()).unwrap_or(u32::MAX));
        self.messages += messages;
    }

    fn figures(mut self) -> Vec<Figure> {
        self.took.sort_unstable();
        vec![
            (MESSAGES_PER_SECOND, self.messages as f64 / self.seconds),
            (P50_MS, percentile_ms(&self.took, 0.50)),
            (P99_MS, percentile_ms(&self.took, 0.99)),
        ]
    }
}

/// Commits `messages` at a time for `length`.
pub(super) async fn insert(
    ground: &Ground,
    store: Store,
    what: What,
    messages: i64,
    length: Duration,
) -> Outcome<Vec<Figure>> {
    ground.settle()?;
    let commits = match store {
        Store::Sqlite => {
            let directory = ground.directory.clone();
            let insert = move || sqlite::insert(&directory, what, messages, length);
            tokio::task::spawn_blocking(insert).await??
        }
        Store::Postgres => postgres::insert(what, messages, length).await?,
    };
    Ok(commits.figures())
}

/// A request id, and what is kept of it: as spread as a digest is.
fn request_id(seq: i64) -> (String, [u8; 16]) {
    const ODD: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
    let digest = (seq as u128).wrapping_add(1).wrapping_mul(ODD);
    (format!("{seq:016}-0"), digest.to_be_bytes())
}
