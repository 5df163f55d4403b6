//! What operators did: rows that are written once, in the transaction of the change, and never touched again.

use crate::model::{MessageId, Millis, QueueUid};
use crate::redrives::RedriveId;
use std::sync::Arc;

/// One row.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditEntry {
    /// Rises with time; on several replicas, rows of one moment may become visible in another order.
    pub id: i64,
    /// When.
    pub at: Millis,
    /// Who: the id of a key, or `policy` for what a rule did.
    pub actor: Arc<str>,
    /// What, as a word.
    pub action: Arc<str>,
    /// On which queue.
    pub queue: Option<QueueUid>,
    /// On which message.
    pub message: Option<MessageId>,
    /// As part of which bulk decision.
    pub redrive: Option<RedriveId>,
    /// Why, in the operator's words.
    pub reason: Option<Arc<str>>,
    /// What was there, as a JSON object's text. Never a payload or a secret.
    pub before: Option<Arc<str>>,
    /// What is there now, likewise.
    pub after: Option<Arc<str>>,
    /// `Request-Id` of the HTTP request.
    pub http_request: Option<Arc<str>>,
}

/// Which rows.
#[derive(Clone, Debug, Default)]
pub struct AuditQuery {
    /// Not before this.
    pub from: Option<Millis>,
    /// Before this.
    pub until: Option<Millis>,
    /// By this caller.
    pub actor: Option<Arc<str>>,
    /// This word.
    pub action: Option<Arc<str>>,
    /// On these queues; `None` = any row, also those about no queue.
    pub queues: Option<Vec<QueueUid>>,
    /// On this message.
    pub message: Option<MessageId>,
    /// As part of this bulk decision.
    pub redrive: Option<RedriveId>,
    /// Continue behind this row, in the direction of the query.
    pub after: Option<i64>,
    /// The youngest first.
    pub newest_first: bool,
    /// At most this many.
    pub limit: u32,
}

/// A page of rows.
#[derive(Clone, Debug, Default)]
pub struct AuditPage {
    /// At most `limit`; a short page is not the end.
    pub entries: Vec<AuditEntry>,
    /// Where the next page begins; `None` = that was all.
    pub next: Option<i64>,
}

impl AuditQuery {
    /// Whether it means this row, its place in the order aside.
    pub fn matches(&self, entry: &AuditEntry) -> bool {
        fn fits<T: PartialEq>(wanted: Option<&T>, is: Option<&T>) -> bool {
            wanted.is_none() || wanted == is
        }
        let on_queue = |queues: &Vec<QueueUid>| entry.queue.is_some_and(|q| queues.contains(&q));
        self.from.is_none_or(|from| from <= entry.at)
            && self.until.is_none_or(|until| entry.at < until)
            && fits(self.actor.as_ref(), Some(&entry.actor))
            && fits(self.action.as_ref(), Some(&entry.action))
            && fits(self.message.as_ref(), entry.message.as_ref())
            && fits(self.redrive.as_ref(), entry.redrive.as_ref())
            && self.queues.as_ref().is_none_or(on_queue)
    }
}
