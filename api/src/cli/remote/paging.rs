//! Listings: pages are followed by themselves, up to a bound.

use super::Session;
use super::client::{Client, parse};
use super::exit::{Exit, Failure, Outcome};
use super::json;
use super::output::{Rows, talk};
use super::path::{Pairs, with_query};
use super::progress;
use super::table::Column;
use clap::Args;
use indicatif::ProgressBar;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// Entries shown unless it is said how many.
const SHOWN: usize = 50;
/// Most entries that a server puts into a page.
const MAX_PAGE: usize = 500;

/// How many entries.
#[derive(Args, Debug)]
pub(in crate::cli) struct Limits {
    /// At most this many [default: 50]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    limit: Option<u32>,

    /// All of them
    #[arg(long, conflicts_with = "limit")]
    all: bool,
}

impl Limits {
    /// The bound.
    pub(super) fn wanted(&self) -> Wanted {
        Wanted::new(self.limit, self.all)
    }
}

/// How many entries are wanted.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    most: usize,
    /// Somebody said how many: that there are more is no news then.
    said: bool,
}

impl Wanted {
    pub(super) fn new(limit: Option<u32>, all: bool) -> Self {
        let limit = limit.map(|limit| limit as usize);
        Self {
            most: if all {
                usize::MAX
            } else {
                limit.unwrap_or(SHOWN)
            },
            said: limit.is_some(),
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
    /// Whether an entry is one of those that were asked for, where the interface has no filter for it.
    pub(super) keep: fn(&Value) -> bool,
    /// Said when there is nothing.
    pub(super) none: &'static str,
}

/// Every entry.
pub(super) const ALL: fn(&Value) -> bool = |_| true;

/// Prints the entries that are wanted. What came before a failure is printed all the same.
pub(super) fn list(session: &mut Session, listing: &Listing, wanted: Wanted) -> Outcome {
    let most = wanted.most;
    let Session { client, out } = session;
    let progress = progress::counter("entries", most > MAX_PAGE && out.waits());
    let mut rows = out.rows(listing.name, listing.columns);
    let walked = walk(client, listing, most, &mut rows, &progress);
    progress.finish_and_clear();
    if walked.is_err() && rows.count == 0 {
        return walked.map(|_| Exit::Done);
    }
    rows.end(listing.none)?;
    if walked? && !wanted.said {
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
        for entry in &entries {
            if rows.count < most && (listing.keep)(&json::value(entry.get())) {
                rows.push(entry.get())?;
                progress.inc(1);
            }
        }
        // A short page is not the end, only a missing token is.
        if token.is_none() || rows.count >= most {
            return Ok(token.is_some());
        }
    }
}
