//! The seam: what a store must do, in plural operations.
//!
//! **Shape.** n items in, n outcomes out, in the same order. A refusal is an outcome. `Err` means that the whole call had
//! no effect, or, for [`StoreError::CommitUnknown`], that nobody can say.
//!
//! **Durability.** An `Ok` is on disk before it is returned.
//!
//! **Time.** `now: None` is the store's own clock; `Some` moves it, for tests only.
//!
//! **Staleness.** Items carry the [`Queue`] as the caller knows it. When the store knows a newer version, the item comes
//! back as stale and nothing happened to it. A store that surely knows the present version may decide a settle by it instead.

use crate::audit::{AuditEntry, AuditPage, AuditQuery};
use crate::dead_letters::{DeadFilter, DeadGroups, DeadListing, Selection, SelectionId};
use crate::error::Result;
use crate::model::{
    Backoff, Counts, Delivered, End, Ended, MessageId, Millis, Place, Policy, Queue, QueueUid,
    State,
};
use crate::redrives::{Redrive, RedriveId, RedriveListing, RedrivePlan, Steer, Stepped};
use crate::rules::Message;
use crate::rules::operate::{Act, ActRefused};
use crate::rules::settle::{Claim, Refused, Settled};
use async_trait::async_trait;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
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

/// Who calls, and what makes a repeat of the call recognisable. Every operation leaves an audit row with the actor and the
/// justification.
#[derive(Clone, Debug, Default)]
pub struct Call {
    /// The principal's id, never a secret.
    pub actor: Arc<str>,
    /// Repeating with this id gives the first answer again, for 7 days.
    pub request_id: Option<Arc<str>>,
    /// Hash over route and body, to tell a repeat from a reuse.
    pub fingerprint: i64,
    /// What the operator wrote.
    pub justification: Option<Arc<str>>,
    /// `Request-Id` of the HTTP request, for the audit row.
    pub http_request: Option<Arc<str>>,
}

impl Call {
    /// A call of `actor` that is never repeated and needs no words.
    pub fn by(actor: &str) -> Self {
        Self {
            actor: actor.into(),
            ..Self::default()
        }
    }
}

/// Something an operator does. One transaction: look up the request id, act, write the audit row, remember the answer.
#[derive(Clone, Debug)]
pub enum Operation {
    /// One message.
    Act {
        /// Must be the message's queue, where given; else it counts as not found.
        queue: Option<QueueUid>,
        /// The message.
        id: MessageId,
        /// The decision.
        act: Act,
    },
    /// Change a dead letter's payload or headers. Id, request id, key and fingerprint stay as they were published.
    Edit {
        /// Must be the message's queue.
        queue: QueueUid,
        /// The message.
        id: MessageId,
        /// The revision that the caller changed; another one is there: [`OperationRefused::RevisionConflict`].
        base: i32,
        /// The whole new JSON text.
        payload: Bytes,
        /// The new headers, as one JSON object's text; `None` = none.
        headers: Option<Arc<str>>,
    },
    /// Put a dead letter's payload and headers back to what they were when it died, as a new revision.
    UndoEdit {
        /// Must be the message's queue.
        queue: QueueUid,
        /// The message.
        id: MessageId,
    },
    /// Freeze which dead letters of a queue a bulk decision is about.
    Select {
        /// Whose.
        queue: QueueUid,
        /// Which.
        filter: Box<DeadFilter>,
    },
    /// Begin a bulk decision.
    StartRedrive(Box<RedrivePlan>),
    /// Change a bulk decision that is under way.
    SteerRedrive {
        /// Which.
        id: RedriveId,
        /// How.
        steer: Steer,
    },
    /// Everything that waits or is leased, in one step at any depth.
    Purge {
        /// Whose.
        queue: QueueUid,
        /// Also the dead letters.
        dead_letters: bool,
    },
    /// Stop or start hand-outs.
    Pause {
        /// Whose.
        queue: QueueUid,
        /// Stop.
        paused: bool,
    },
    /// Create the queue or replace its policy.
    PutQueue {
        /// Its name, valid.
        name: Arc<str>,
        /// The whole policy.
        policy: Box<Policy>,
        /// What must be there.
        expect: Expect,
    },
    /// Delete the queue. Its request ids, keys and totals stay with the name.
    DeleteQueue {
        /// Whose.
        queue: QueueUid,
        /// Also when it holds messages; they count as purged.
        force: bool,
        /// The version that must be there, from `If-Match`.
        version: Option<i64>,
    },
}

/// What a [`Operation::PutQueue`] requires of the present state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Nothing: create or replace.
    Anything,
    /// The queue is not there; when it is, it is left as it is and answered.
    Absent,
    /// The queue is there in this version.
    Version(i64),
}

/// The answer to an [`Operation`]; kept for repeats.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The message is where it was wanted.
    Acted {
        /// The message.
        id: i64,
        /// Its state now, as [`State::code`].
        state: i16,
        /// A remembered completion took effect instead.
        acked_superseded: bool,
    },
    /// The dead letter is changed.
    Edited {
        /// The message.
        id: i64,
        /// The revision that is there now.
        revision: i32,
        /// It differs from what it was when it died.
        edited: bool,
    },
    /// The selection is made.
    Selected {
        /// Its number.
        id: i64,
    },
    /// The bulk decision has begun, or is changed.
    Redrive {
        /// Its number.
        id: i64,
    },
    /// Messages were taken out.
    Purged {
        /// How many.
        purged: i64,
    },
    /// The queue is as it was wanted.
    Queue {
        /// Stable number of the name.
        uid: i32,
        /// It was not there before.
        created: bool,
    },
    /// The queue is gone.
    Deleted {
        /// Messages that went with it.
        purged: i64,
    },
    /// Nothing happened.
    Refused(OperationRefused),
}

/// Why an [`Operation`] was refused. Refusals are not remembered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationRefused {
    /// No such message.
    MessageNotFound,
    /// No such queue.
    QueueNotFound,
    /// It is not a dead letter.
    NotDead,
    /// It is one already.
    AlreadyDead,
    /// It is not waiting.
    NotWaiting,
    /// It is not delayed.
    NotDelayed,
    /// `max_redrives` is reached.
    RedriveLimit,
    /// A worker has reported the work as done.
    CompletionRemembered,
    /// Its `expires_at` is over.
    Expired,
    /// `If-Match` names another version.
    VersionMismatch,
    /// It holds messages.
    QueueNotEmpty,
    /// `unique_key` cannot be switched on over repeated live keys.
    KeysNotUnique,
    /// The request id was used for another call.
    RequestIdConflict,
    /// It is not a discarded dead letter.
    NotDiscarded,
    /// It was discarded too long ago: its payload is gone.
    PayloadGone,
    /// Its key must be unique and belongs to another message now.
    KeyTaken,
    /// Nobody has changed it since it died.
    NotEdited,
    /// Somebody else has changed it meanwhile.
    RevisionConflict,
    /// It was changed [`MAX_REVISIONS`] times.
    RevisionLimit,
    /// No such selection.
    SelectionNotFound,
    /// The selection is too old.
    SelectionExpired,
    /// The operator expects another number of messages than the selection has.
    CountMismatch {
        /// What the selection has.
        actual: i64,
    },
    /// No such redrive.
    RedriveNotFound,
    /// The redrive is in a final state.
    RedriveFinished,
}

/// Changes of one dead letter's payload, at most.
pub const MAX_REVISIONS: i32 = 20;

impl From<ActRefused> for OperationRefused {
    fn from(refused: ActRefused) -> Self {
        match refused {
            ActRefused::NotFound => Self::MessageNotFound,
            ActRefused::NotDead => Self::NotDead,
            ActRefused::AlreadyDead => Self::AlreadyDead,
            ActRefused::NotWaiting => Self::NotWaiting,
            ActRefused::NotDelayed => Self::NotDelayed,
            ActRefused::RedriveLimit => Self::RedriveLimit,
            ActRefused::CompletionRemembered => Self::CompletionRemembered,
            ActRefused::Expired => Self::Expired,
            ActRefused::NotDiscarded => Self::NotDiscarded,
            ActRefused::PayloadGone => Self::PayloadGone,
            ActRefused::NotEdited => Self::NotEdited,
        }
    }
}

/// What [`Backend::operate`] answers.
#[derive(Clone, Debug)]
pub struct Operated {
    /// The answer, or the first answer again.
    pub answer: Answer,
    /// This call was answered before.
    pub repeated: bool,
    /// Whom to wake.
    pub stir: Stir,
}

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

/// An API key as stored: never the secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRecord {
    /// 12 base32 characters: the public part.
    pub id: Arc<str>,
    /// SHA-256 of the secret.
    pub secret_hash: [u8; 32],
    /// What it is for.
    pub description: Arc<str>,
    /// What it may do; `admin` alone at this step.
    pub scope: Arc<str>,
    /// When it was made.
    pub created_at: Millis,
    /// When it was revoked.
    pub revoked_at: Option<Millis>,
}

/// What a store says about itself at open.
#[derive(Clone)]
pub struct Facts {
    /// Rises with a restore.
    pub epoch: i32,
    /// Seals receipts.
    pub receipt_secret: [u8; 32],
}

/// How long records are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// Audit rows, finished redrives, and what is left of discarded dead letters.
    pub audit_ms: Millis,
}

impl Default for Keep {
    /// 400 days: a year and the audit of it.
    fn default() -> Self {
        Self {
            audit_ms: 34_560_000_000,
        }
    }
}

/// What [`Backend::move_due`] did.
#[derive(Clone, Debug, Default)]
pub struct Moved {
    /// How many messages moved.
    pub moved: u32,
    /// The bound was reached: call again.
    pub more: bool,
    /// Whom to wake, and when to come back.
    pub stir: Stir,
}

/// Which kinds of item a lane takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kinds {
    /// Settles.
    pub settles: bool,
    /// Publishes.
    pub publishes: bool,
    /// Receives.
    pub receives: bool,
}

/// One loop of the coalescer: takes what waits, commits, repeats.
#[derive(Clone, Copy, Debug)]
pub struct Lane {
    /// What it takes.
    pub kinds: Kinds,
    /// Runs on a thread of its own, because [`Backend::apply`] blocks.
    pub dedicated: bool,
    /// Most items in one batch.
    pub max_items: usize,
    /// Most payload bytes in one batch.
    pub max_bytes: usize,
}

/// A store. See the module for the contract that all operations share.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// Applies a batch in one commit (or one per kind) and answers item by item.
    async fn apply(&self, batch: &Batch, now: Option<Millis>) -> Result<BatchOutcome>;

    /// Moves what the clock has moved: expired leases, due delays, messages past retention or `expires_at`. Bounded.
    async fn move_due(&self, now: Option<Millis>) -> Result<Moved>;

    /// Performs one operation, or repeats its first answer.
    async fn operate(
        &self,
        call: &Call,
        operation: Operation,
        now: Option<Millis>,
    ) -> Result<Operated>;

    /// The queue of this name; `None` when it is not there.
    async fn queue(&self, name: &str) -> Result<Option<Queue>>;

    /// The queue with this number and whether its name is deleted.
    async fn queue_by_uid(&self, uid: QueueUid) -> Result<Option<(Queue, bool)>>;

    /// Queues in name order, behind `after`, at most `limit`.
    async fn queues(&self, after: Option<&str>, limit: u32) -> Result<Vec<Queue>>;

    /// A queue's exact numbers, time passed.
    async fn numbers(&self, queue: QueueUid, now: Option<Millis>) -> Result<QueueNumbers>;

    /// A page of one state, time passed.
    async fn browse(&self, browse: Browse, now: Option<Millis>) -> Result<Page>;

    /// Everything about one message, time passed; `None` when it was never there or nothing is remembered.
    async fn message(&self, id: MessageId, now: Option<Millis>) -> Result<Option<Detail>>;

    /// Of `waiting`, the queues in which something is ready. Asked by replicas on behalf of their waiting receives; an
    /// embedded store has nobody to ask about and answers nothing.
    async fn poll(&self, waiting: &[QueueUid]) -> Result<Vec<QueueUid>>;

    /// A page of dead letters by time of death, time passed.
    async fn dead_letters(&self, listing: &DeadListing, now: Option<Millis>) -> Result<Page>;

    /// The `limit` largest groups of dead letters that failed alike, of these queues or of all.
    async fn dead_groups(
        &self,
        queues: Option<&[QueueUid]>,
        filter: &DeadFilter,
        limit: u32,
        now: Option<Millis>,
    ) -> Result<DeadGroups>;

    /// A selection while it is remembered: at least until it expires, and as long as a redrive of it.
    async fn selection(&self, id: SelectionId) -> Result<Option<Selection>>;

    /// A bulk decision while it is remembered, as long as audit rows.
    async fn redrive(&self, id: RedriveId) -> Result<Option<Redrive>>;

    /// Bulk decisions, the youngest first.
    async fn redrives(&self, listing: &RedriveListing) -> Result<Vec<Redrive>>;

    /// Lets the bulk decision that is due first make one step of at most [`STEP`](crate::rules::bulk::STEP) messages. On several
    /// replicas at once, each one is stepped by one of them at a time.
    async fn step_redrives(&self, now: Option<Millis>) -> Result<Stepped>;

    /// A page of audit rows.
    async fn audit(&self, query: &AuditQuery) -> Result<AuditPage>;

    /// Background work, bounded per call: purged incarnations, free request ids, records of ends that are over, dead-letter
    /// retention, old audit rows. `true`: there is more to do now.
    async fn maintain(&self, keep: &Keep, now: Option<Millis>) -> Result<bool>;

    /// All API keys, revoked ones included.
    async fn keys(&self) -> Result<Vec<KeyRecord>>;

    /// Stores a key and writes its audit row. With `only_first`, only when there is none yet; answers whether it was stored.
    async fn add_key(&self, call: &Call, key: KeyRecord, only_first: bool) -> Result<bool>;

    /// Revokes a key and writes its audit row; `false` when there is none of this id that is not revoked.
    async fn revoke_key(&self, call: &Call, id: &str, now: Option<Millis>) -> Result<bool>;

    /// What the store said at open.
    fn facts(&self) -> &Facts;

    /// How the coalescer should feed this store.
    fn lanes(&self) -> Vec<Lane>;

    /// `Some(false)`: surely nothing is ready in this queue, so that a receive that may wait need not ask. `None`: unknown.
    fn maybe_ready(&self, _queue: QueueUid) -> Option<bool> {
        None
    }

    /// The store answers and accepts writes.
    async fn check(&self) -> Result<()>;

    /// Finishes what is under way and closes the store.
    async fn close(&self);
}
