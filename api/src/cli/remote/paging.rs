//! Listings: pages are followed by themselves, up to a bound.

use super::Session;
use super::client::{Client, parse};
use super::exit::{Exit, Failure, Outcome};
use super::output::{Rows, talk};
use super::path::{Pairs, with_query};
use super::progress;
use super::table::Column;
use clap::Args;
use indicatif::ProgressBar;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// Most entries that a server puts into a page.
const MAX_PAGE: usize = 500;

/// How many entries.
#[derive(Args, Debug)]
pub(in crate::cli) struct Limits {
    /// At most this many
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    limit: u32,

    /// All of them
    #[arg(long, conflicts_with = "limit")]
    all: bool,
}

impl Limits {
    /// The bound.
    pub(super) fn most(&self) -> usize {
        if self.all {
            usize::MAX
        } else {
            self.limit as usize
        }
    }
}

/// What to list and how to show it.
pub(super) struct Listing {
    pub(super) path: String,
    pub(super) query: Pairs,
    /// The member of a page that holds the entries.
    pub(super) member: &'static str,
    /// The member of an entry that names it.
    pub(super) name: &'static str,
    pub(super) columns: &'static [Column],
    /// Said when there is nothing.
    pub(super) none: &'static str,
}

/// Prints at most `most` entries. What came before a failure is printed all the same.
pub(super) fn list(session: &mut Session, listing: &Listing, most: usize) -> Outcome {
    let Session { client, out } = session;
    let progress = progress::counter("entries", most > MAX_PAGE && out.waits());
    let mut rows = out.rows(listing.name, listing.columns);
    let walked = walk(client, listing, most, &mut rows, &progress);
    progress.finish_and_clear();
    if walked.is_err() && rows.count == 0 {
        return walked.map(|_| Exit::Done);
    }
    rows.end(listing.none)?;
    if walked? {
        talk("There are more: --limit N or --all shows them.");
    }
    Ok(Exit::Done)
}

/// Follows the pages; whether there are more entries than were wanted.
fn walk(
    client: &Client,
    listing: &Listing,
    most: usize,
    rows: &mut Rows<'_>,
    progress: &ProgressBar,
) -> Outcome<bool> {
    let mut token: Option<String> = None;
    loop {
        let wanted = MAX_PAGE.min(most - rows.count);
        let mut query = listing.query.clone();
        query.push(("page_size", wanted.into()));
        if let Some(token) = token.take() {
            query.push(("page_token", token.into()));
        }
        let path = with_query(&listing.path, &query);
        let page: BTreeMap<String, Box<RawValue>> = client.read(&path)?;
        let Some(entries) = page.get(listing.member) else {
            let missing = format!("no `{}`", listing.member);
            return Err(Failure::strange(&path, &missing));
        };
        let entries: Vec<Box<RawValue>> = parse(&path, entries.get())?;
        token = match page.get("next_page_token") {
            Some(token) => parse(&path, token.get())?,
            None => None,
        };
        let left = most - rows.count;
        for entry in entries.iter().take(left) {
            rows.push(entry.get())?;
            progress.inc(1);
        }
        // A short page is not the end, only a missing token is.
        if token.is_none() || rows.count >= most {
            return Ok(token.is_some());
        }
    }
}
