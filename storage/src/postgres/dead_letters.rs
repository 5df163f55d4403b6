//! Dead letters as operators look for them: pages by time of death, forwards and backwards, of some queues or of all.
//!
//! A page is what a bounded walk finds (see [`walks`](super::walks)), so it may be short although there is more.

use super::Postgres;
use super::drafts::{For, Wanted};
use super::fault::{Fault, Now};
use super::filters::Lead;
use super::walks::{Search, numbers_of, walk};
use crate::backend::{Cursor, Listed, Page};
use crate::dead_letters::DeadListing;
use crate::error::Result;
use crate::model::MessageId;

/// Rows that one page looks at.
const MOST_LOOKED_AT: i64 = 20_000;

impl Postgres {
    pub(super) async fn dead_page(&self, listing: &DeadListing, now: Now) -> Result<Page> {
        let only = listing.queues.as_deref().and_then(|queues| match queues {
            [queue] => Some(*queue),
            _ => None,
        });
        self.catch_up(only, now).await?;
        let mut attempt = 0;
        loop {
            match self.try_dead_page(listing).await {
                Ok(page) => return Ok(page),
                Err(fault) => self.once_more(&mut attempt, fault).await?,
            }
        }
    }

    async fn try_dead_page(&self, listing: &DeadListing) -> Result<Page, Fault> {
        let mut connection = self.pool.acquire().await?;
        let filter = &listing.filter;
        let uids = match &listing.queues {
            Some(queues) if queues.is_empty() => return Ok(Page::default()),
            // No queues in the list of a walk over all means all.
            None if Lead::of(filter) == Lead::Order && filter.key.is_none() => Vec::new(),
            queues => numbers_of(&mut connection, queues.as_deref()).await?,
        };
        let search = Search {
            filter,
            newest_first: listing.newest_first,
            limit: i64::from(listing.limit),
            looks: MOST_LOOKED_AT,
            members: None,
        };
        let after = listing.after.map(|after| (after.at, after.id.0));
        let walked = walk(&mut connection, &uids, search, after).await?;
        let wanted = walked
            .found
            .iter()
            .map(|((_, seq), _)| (*seq, Wanted::default()))
            .collect();
        let mut items = Vec::with_capacity(walked.found.len());
        let mut drafts = self.load(&mut connection, &wanted, For::Look).await?;
        for ((_, seq), _) in &walked.found {
            let Some(loaded) = drafts.remove(seq) else {
                continue;
            };
            let last = loaded.last();
            let (Some(message), Some(row)) = (loaded.draft.message, loaded.row) else {
                continue;
            };
            // It may have been decided since the walk.
            if filter.matches(&message) {
                let size = row.size;
                items.push(Listed {
                    message,
                    size,
                    last,
                });
            }
        }
        let next = walked.last.filter(|_| walked.more).map(|(at, seq)| Cursor {
            priority: 0,
            at,
            id: MessageId(seq),
        });
        Ok(Page { items, next })
    }
}
