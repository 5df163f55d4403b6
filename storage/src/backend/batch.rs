//! What one commit of the coalescer carries: publishes, receives and settles, and what became of each.

use crate::model::{Backoff, Delivered, End, MessageId, Millis, Queue, QueueUid, State};
use crate::rules::Message;
use crate::rules::settle::{Claim, Refused, Settled};
use bytes::Bytes;
use std::sync::Arc;

/// A producer's request id: its digest (what is compared and stored in the index) and its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestId {
    /// First 128 bits of SHA-256 of the id. The queue is a column of its own, so no joining can be ambiguous.
    pub digest: [u8; 16],
    /// 1 to 128 bytes as sent.
    pub text: Bytes,
}

/// One message to store.
#[derive(Clone, Debug)]
pub struct Publish {
    /// Where to.
    pub queue: Arc<Queue>,
    /// The producer's request id.
    pub request_id: Option<RequestId>,
    /// 63 bits of a hash over message, key and headers: what "same body" means (product 4.3).
    pub fingerprint: i64,
    /// The business key.
    pub key: Option<Arc<str>>,
    /// 0 = ready at once.
    pub delay_ms: Millis,
    /// 0 to 9.
    pub priority: u8,
    /// One JSON object's text.
    pub headers: Option<Arc<str>>,
    /// The JSON text of the message, byte for byte.
    pub payload: Bytes,
    /// Life span from publish.
    pub expires_in_ms: Option<Millis>,
    /// Overrides the queue's.
    pub max_attempts: Option<u32>,
    /// Overrides the queue's.
    pub backoff: Option<Backoff>,
}

/// What became of a [`Publish`].
#[derive(Clone, Debug, PartialEq)]
pub enum Published {
    /// A new message.
    Created {
        /// Its id.
        id: MessageId,
        /// Ready or delayed.
        state: State,
        /// The store's time.
        published_at: Millis,
    },
    /// The same was published before; nothing was stored.
    Duplicate(Duplicate),
    /// The request id was used for another body; nothing was stored.
    Conflict {
        /// The message that has the id.
        id: MessageId,
    },
    /// `max_depth` is reached; nothing was stored.
    Full,
    /// The queue changed meanwhile: look it up again.
    Stale,
}

/// The message that a duplicate publish names.
#[derive(Clone, Debug, PartialEq)]
pub struct Duplicate {
    /// Found by its key; else by its request id.
    pub by_key: bool,
    /// The first message.
    pub id: MessageId,
    /// Where it is.
    pub state: State,
    /// How it ended, when `state` is [`State::Ended`].
    pub end: Option<End>,
    /// Message, key and headers are the same.
    pub same_body: bool,
    /// What its ack reported.
    pub outcome: Option<Arc<str>>,
    /// When it was published.
    pub published_at: Millis,
}

/// A request for messages.
#[derive(Clone, Debug)]
pub struct Receive {
    /// From where.
    pub queue: Arc<Queue>,
    /// 1 to 100.
    pub max: u32,
    /// Length of the leases.
    pub lease_ms: Millis,
    /// Who asks.
    pub worker: Option<Arc<str>>,
}

/// A receive stops before its payloads exceed this many bytes, but always takes one message: 8 MiB (product §5).
pub const MAX_RECEIVE_BYTES: usize = 8 << 20;

/// What became of a [`Receive`].
#[derive(Clone, Debug)]
pub enum Received {
    /// At most `max` messages, in the queue's order; may be empty.
    Messages(Vec<Delivery>),
    /// The queue is paused.
    Paused,
    /// The queue changed meanwhile: look it up again.
    Stale,
}

/// One hand-out.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery {
    /// The message as it is now, leased.
    pub message: Message,
    /// The limit that was read at this hand-out.
    pub max_attempts: i32,
    /// The JSON text of the message.
    pub payload: Bytes,
    /// The last delivery that failed, where one did.
    pub last_failure: Option<Delivered>,
}

/// A worker's word about one delivery.
#[derive(Clone, Debug)]
pub struct Settle {
    /// The queue that the receipt names.
    pub queue: Arc<Queue>,
    /// The message.
    pub id: MessageId,
    /// The delivery and what about it.
    pub claim: Claim,
}

/// What became of a [`Settle`].
#[derive(Clone, Debug, PartialEq)]
pub enum SettleOutcome {
    /// As the rules decided.
    Decided(std::result::Result<Settled, Refused>),
    /// The queue changed meanwhile: look it up again.
    Stale,
}

/// Everything one commit carries. Applied in this order: settles, publishes, receives; so that a receive sees what the same
/// commit freed and published. Inside a list, each item gets the answer it would have had one statement later.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Acks, nacks, releases, extends, give-backs.
    pub settles: Vec<Settle>,
    /// New messages.
    pub publishes: Vec<Publish>,
    /// Hand-outs.
    pub receives: Vec<Receive>,
}

impl Batch {
    /// Number of items.
    pub fn len(&self) -> usize {
        self.settles.len() + self.publishes.len() + self.receives.len()
    }

    /// No items.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The outcomes of a [`Batch`], list by list.
#[derive(Clone, Debug, Default)]
pub struct BatchOutcome {
    /// One per settle.
    pub settles: Vec<SettleOutcome>,
    /// One per publish.
    pub publishes: Vec<Published>,
    /// One per receive.
    pub receives: Vec<Received>,
    /// Whom to wake, and when the clock will next do something.
    pub stir: Stir,
    /// The store's time of the commit.
    pub now: Millis,
}

/// What waiters and timers must know after a commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stir {
    /// How many messages became ready per queue.
    pub ready: Vec<(QueueUid, u32)>,
    /// The earliest time known at which a lease runs out or a delay ends.
    pub next_due: Option<Millis>,
}

impl Stir {
    /// Notes `count` messages that became ready.
    pub fn add_ready(&mut self, queue: QueueUid, count: u32) {
        if count == 0 {
            return;
        }
        match self.ready.iter_mut().find(|(q, _)| *q == queue) {
            Some((_, n)) => *n += count,
            None => self.ready.push((queue, count)),
        }
    }

    /// Notes that something is due at `at`.
    pub fn add_due(&mut self, at: Millis) {
        self.next_due = Some(self.next_due.map_or(at, |d| d.min(at)));
    }

    /// Takes over what another stir says.
    pub fn merge(&mut self, other: &Self) {
        for (queue, count) in &other.ready {
            self.add_ready(*queue, *count);
        }
        if let Some(at) = other.next_due {
            self.add_due(at);
        }
    }
}
