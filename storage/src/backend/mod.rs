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
//!
//! Reading order: [`Batch`] (publish, receive, settle) → [`Operation`] (what operators do) → [`Browse`], [`Detail`] and the like
//! (what is read) → [`Backend`].

mod batch;
mod operation;
mod read;

pub use batch::*;
pub use operation::*;
pub use read::*;

use crate::audit::{AuditPage, AuditQuery};
use crate::dead_letters::{DeadFilter, DeadGroups, DeadListing, Selection, SelectionId};
use crate::error::Result;
use crate::model::{MessageId, Millis, Queue, QueueUid};
use crate::redrives::{Redrive, RedriveId, RedriveListing, Stepped};
use async_trait::async_trait;
use std::sync::Arc;

/// An API key as stored: never the secret. Its `Debug` shows not even the hash.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyRecord {
    /// 12 base32 characters: the public part.
    pub id: Arc<str>,
    /// SHA-256 of the secret.
    pub secret_hash: [u8; 32],
    /// What it is for.
    pub description: Arc<str>,
    /// What it may do.
    pub scope: Arc<str>,
    /// When it was made.
    pub created_at: Millis,
    /// When it was revoked.
    pub revoked_at: Option<Millis>,
    /// When it ends by itself; `None` = never.
    pub expires_at: Option<Millis>,
    /// The minute in which it was last used, as its beginning; `None` = never yet.
    pub last_used_at: Option<Millis>,
}

impl std::fmt::Debug for KeyRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyRecord")
            .field("id", &self.id)
            .field("scope", &self.scope)
            .field("created_at", &self.created_at)
            .field("revoked_at", &self.revoked_at)
            .field("expires_at", &self.expires_at)
            .field("last_used_at", &self.last_used_at)
            .finish_non_exhaustive()
    }
}

/// What a store says about itself at open. It has no `Debug`, so that the secret cannot get into a line.
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

    /// Stores `new` beside the key `id`, which ends at `ends_at` unless it does sooner, and writes one audit row. `false`, and
    /// nothing is done, when there is no key `id` that is not revoked, or there is one of the new id already.
    async fn rotate_key(
        &self,
        call: &Call,
        id: &str,
        ends_at: Millis,
        new: KeyRecord,
    ) -> Result<bool>;

    /// Notes when keys were last used; an earlier time than the one that is known changes nothing. Writes no audit row.
    async fn touch_keys(&self, used: &[(Arc<str>, Millis)]) -> Result<()>;

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
