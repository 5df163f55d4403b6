//! The audit trail: what was done, by whom and why. Nothing here writes; each row comes from the change that it tells of.

use super::{Result, Service};
use crate::auth::{Principal, Right};
use quita_storage::audit::{AuditEntry, AuditQuery};
use quita_storage::model::{MessageId, Millis, Queue};
use quita_storage::redrives::RedriveId;
use std::sync::Arc;

/// Which rows.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    /// Not before this.
    pub from: Option<Millis>,
    /// Before this.
    pub until: Option<Millis>,
    /// By this caller.
    pub actor: Option<Arc<str>>,
    /// This word.
    pub action: Option<Arc<str>>,
    /// On this queue; `None` = on all whose trail the caller may read.
    pub queue: Option<String>,
    /// On this message.
    pub message: Option<MessageId>,
    /// As part of this redrive.
    pub redrive: Option<RedriveId>,
}

/// A page of rows, each with its queue where it has one.
#[derive(Clone, Debug, Default)]
pub struct Trail {
    /// At most as many as were asked for; fewer are not the end.
    pub entries: Vec<(AuditEntry, Option<Arc<Queue>>)>,
    /// Where the next page begins; `None` = that was all.
    pub next: Option<i64>,
}

impl Service {
    /// What to ask the store for, as far as the caller may see it. Good for all pages of one reading.
    pub async fn audit_query(
        &self,
        caller: &Principal,
        filter: AuditFilter,
        newest_first: bool,
    ) -> Result<AuditQuery> {
        let queues = match &filter.queue {
            Some(name) => Some(vec![self.queue_for(caller, Right::Audit, name).await?.uid]),
            None => self.queues_with(caller, Right::Audit).await?,
        };
        Ok(AuditQuery {
            from: filter.from,
            until: filter.until,
            actor: filter.actor,
            action: filter.action,
            queues,
            message: filter.message,
            redrive: filter.redrive,
            after: None,
            newest_first,
            limit: 1,
        })
    }

    /// A page of rows.
    pub async fn audit(&self, query: &AuditQuery) -> Result<Trail> {
        let page = self.backend().audit(query).await?;
        let queues = page.entries.iter().filter_map(|entry| entry.queue);
        let named = self.named(queues.collect()).await?;
        let entries = page.entries.into_iter();
        Ok(Trail {
            entries: entries
                .map(|entry| {
                    let queue = entry.queue.and_then(|queue| named.get(&queue).cloned());
                    (entry, queue)
                })
                .collect(),
            next: page.next,
        })
    }

    /// The row that is the youngest now, whatever it is about.
    pub async fn youngest_audit(&self) -> Result<Option<i64>> {
        let query = AuditQuery {
            newest_first: true,
            limit: 1,
            ..AuditQuery::default()
        };
        let page = self.backend().audit(&query).await?;
        Ok(page.entries.first().map(|entry| entry.id))
    }
}
