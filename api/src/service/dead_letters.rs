//! Dead letters: find them, see which failed alike, and decide about one: another round, none, or none after all.

use super::messages::Decided;
use super::{Done, Result, Service};
use crate::auth::{Principal, Right};
use quita_storage::backend::{Call, Cursor, Listed};
use quita_storage::dead_letters::{DeadFilter, DeadGroup, DeadListing};
use quita_storage::model::{DiscardCode, MessageId, Millis, Queue, QueueUid};
use quita_storage::rules::operate::Act;
use std::sync::Arc;

/// A page of dead letters, each with its queue, in the order that was asked for.
#[derive(Clone, Debug)]
pub struct DeadPage {
    /// At most as many as were asked for; fewer are not the end.
    pub items: Vec<(Arc<Queue>, Listed)>,
    /// Where the next page begins; `None` = that was all.
    pub next: Option<Cursor>,
}

/// Groups, each with its queue, and whether there are more.
#[derive(Clone, Debug)]
pub struct Groups {
    /// The largest first.
    pub groups: Vec<(Arc<Queue>, DeadGroup)>,
    /// There are more of them.
    pub more: bool,
}

impl Service {
    /// A page of the dead letters of one queue, or of all that the caller may read. Leases nothing, counts nothing.
    pub async fn dead_letters(
        &self,
        caller: &Principal,
        queue: Option<&str>,
        filter: DeadFilter,
        after: Option<Cursor>,
        newest_first: bool,
        limit: u32,
    ) -> Result<DeadPage> {
        let listing = DeadListing {
            queues: self.readable(caller, queue).await?,
            filter,
            after,
            newest_first,
            limit,
        };
        let page = self.backend().dead_letters(&listing, None).await?;
        let of = |listed: &Listed| listed.message.envelope.queue;
        let named = self.named(page.items.iter().map(of).collect()).await?;
        let items = page.items.into_iter();
        Ok(DeadPage {
            items: items
                .filter_map(|listed| Some((named.get(&of(&listed))?.clone(), listed)))
                .collect(),
            next: page.next,
        })
    }

    /// The largest groups of dead letters that failed alike, of one queue or of all that the caller may read.
    pub async fn dead_groups(
        &self,
        caller: &Principal,
        queue: Option<&str>,
        filter: &DeadFilter,
        limit: u32,
    ) -> Result<Groups> {
        let queues = self.readable(caller, queue).await?;
        let found = self
            .backend()
            .dead_groups(queues.as_deref(), filter, limit, None)
            .await?;
        let numbers = found.groups.iter().map(|group| group.queue);
        let named = self.named(numbers.collect()).await?;
        let groups = found.groups.into_iter();
        Ok(Groups {
            groups: groups
                .filter_map(|group| Some((named.get(&group.queue)?.clone(), group)))
                .collect(),
            more: found.more,
        })
    }

    /// The queue of this name, or all that the caller may read.
    pub(super) async fn readable(
        &self,
        caller: &Principal,
        queue: Option<&str>,
    ) -> Result<Option<Vec<QueueUid>>> {
        match queue {
            Some(name) => Ok(Some(vec![
                self.queue_for(caller, Right::Read, name).await?.uid,
            ])),
            None => self.queues_with(caller, Right::Read).await,
        }
    }

    /// Gives one dead letter another round: same id, keys and payload.
    pub async fn redrive_one(
        &self,
        caller: &Principal,
        call: &Call,
        queue: &str,
        id: MessageId,
        force: bool,
        expires_in_ms: Option<Millis>,
    ) -> Result<Done<Decided>> {
        let queue = self.queue_for(caller, Right::Redrive, queue).await?;
        let act = Act::Redrive {
            force,
            expires_in_ms,
        };
        self.act(call, &queue, id, act).await
    }

    /// Decides that a dead letter stays undone.
    pub async fn discard(
        &self,
        caller: &Principal,
        call: &Call,
        queue: &str,
        id: MessageId,
        code: DiscardCode,
    ) -> Result<Done<Decided>> {
        let queue = self.queue_for(caller, Right::Discard, queue).await?;
        self.act(call, &queue, id, Act::Discard { code }).await
    }

    /// Takes a discard back.
    pub async fn reopen(
        &self,
        caller: &Principal,
        call: &Call,
        queue: &str,
        id: MessageId,
    ) -> Result<Done<Decided>> {
        let queue = self.queue_for(caller, Right::Redrive, queue).await?;
        self.act(call, &queue, id, Act::Reopen).await
    }
}
