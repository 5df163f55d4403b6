//! What is read: numbers, listings, and everything about one message.

use super::RequestId;
use crate::audit::AuditEntry;
use crate::model::{Counts, Delivered, Ended, MessageId, Millis, Place, QueueUid, State};
use crate::rules::Message;
use bytes::Bytes;
use std::sync::Arc;

/// A queue's exact numbers, from one snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueNumbers {
    /// Gauges and totals.
    pub counts: Counts,
    /// When the oldest ready message became available.
    pub oldest_ready_at: Option<Millis>,
    /// When the oldest dead letter died.
    pub oldest_dead_at: Option<Millis>,
    /// The store's time of the snapshot.
    pub now: Millis,
}

/// A listing of one state in its own order: ready by (priority, time, publish), delayed by due time, leased by message,
/// dead by time of death.
#[derive(Clone, Debug)]
pub struct Browse {
    /// Whose.
    pub queue: QueueUid,
    /// Which; [`State::Ended`] lists nothing.
    pub state: State,
    /// Only messages with this key.
    pub key: Option<Arc<str>>,
    /// Only the message with this request id.
    pub request_id: Option<RequestId>,
    /// Continue behind this place.
    pub after: Option<Cursor>,
    /// At most this many.
    pub limit: u32,
}

/// A place in a listing's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// Priority for ready, else 0.
    pub priority: u8,
    /// Available, due or died time; 0 for leased.
    pub at: Millis,
    /// The message.
    pub id: MessageId,
}

impl Cursor {
    /// Where a message stands in the listing of its state.
    pub fn of(message: &Message) -> Self {
        let (priority, at) = match &message.place {
            Place::Ready { available_at } => (message.envelope.priority, *available_at),
            Place::Delayed { due_at } => (0, *due_at),
            Place::Dead(dead) => (0, dead.died_at),
            Place::Leased(_) | Place::Discarded(_) => (0, 0),
        };
        let id = message.envelope.id;
        Self { priority, at, id }
    }
}

/// A page of a listing.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// At most `limit`; a short page is not the end.
    pub items: Vec<Listed>,
    /// Where the next page begins; `None` = that was all.
    pub next: Option<Cursor>,
}

/// One message of a listing.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed {
    /// The message, time passed.
    pub message: Message,
    /// Bytes of its payload.
    pub size: u32,
    /// The latest delivery that ended.
    pub last: Option<Delivered>,
}

/// Everything known about one message.
#[derive(Clone, Debug)]
pub struct Detail {
    /// Its queue.
    pub queue: QueueUid,
    /// The message while it is there.
    pub message: Option<Message>,
    /// How it went, where that is remembered.
    pub ended: Option<Ended>,
    /// The JSON text, while it is kept.
    pub payload: Option<Bytes>,
    /// Its deliveries, oldest first: the first 10 and the last 100, and the one in flight is not among them.
    pub deliveries: Vec<Delivered>,
    /// What operators did, oldest first.
    pub decisions: Vec<AuditEntry>,
    /// What operators made of its payload, oldest first, beginning with revision 0; empty when nobody ever changed it.
    pub revisions: Vec<Revision>,
    /// Key under which the end is remembered.
    pub key: Option<Arc<str>>,
}

/// One state of a payload that an operator changed. Kept as long as the payload.
#[derive(Clone, Debug, PartialEq)]
pub struct Revision {
    /// 0 = as published.
    pub number: i32,
    /// When; for revision 0, when it was published.
    pub at: Millis,
    /// Who; empty for revision 0.
    pub actor: Arc<str>,
    /// Why.
    pub reason: Option<Arc<str>>,
    /// The revision with the content that it had when it died.
    pub floor: i32,
    /// It took a change back.
    pub undo: bool,
    /// The JSON text.
    pub payload: Bytes,
    /// One JSON object's text.
    pub headers: Option<Arc<str>>,
}
