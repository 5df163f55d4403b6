//! PostgreSQL: several stateless replicas on one database.
//!
//! Reading order: [`session`] (connecting) → [`lane`] (a batch's own connection, and the fate of a lost commit) → [`patience`]
//! (how long anything else is waited for) →
//! [`publish`] (with [`claims`]), [`receive`] (with [`floors`]), [`settle`] (each: the plain case as one statement for the whole batch, the rest as drafts in
//! one transaction) → [`drafts`] and [`write`] (loading what `rules` works on, and writing the difference) → [`due`] (what
//! the clock moves) → [`operate`] (the frame of every operator's call), [`policies`], [`revisions`] → the operators' desk:
//! [`filters`], [`walks`], [`dead_letters`], [`groups`], [`selections`], [`redrives`], [`steps`], [`audit`] → [`queues`], [`browse`],
//! [`keys`] → [`maintenance`], [`memories`].
//!
//! Why it is this way: a statement is a round trip and a commit is a disk flush, so what happens all the time is one
//! statement per batch, whatever the number of queues and callers. A row is found by a LATERAL with LIMIT 1 or by an ordered
//! pick, and changed by its ctid, because a planner that has seen an empty table would turn any other join into one that
//! reads everything. No foreign keys, triggers, sequences, savepoints or notifications near a message: each of them makes
//! replicas wait for each other.

mod audit;
mod browse;
mod claims;
mod dead_letters;
mod drafts;
mod due;
mod fault;
mod filters;
mod floors;
mod groups;
mod keys;
mod lane;
mod maintenance;
mod memories;
mod operate;
mod patience;
mod policies;
mod publish;
mod queues;
mod receive;
mod redrives;
mod revisions;
mod rows;
mod selections;
mod session;
mod settle;
mod steps;
mod walks;
mod write;

#[cfg(test)]
mod plans;

use crate::audit::{AuditPage, AuditQuery};
use crate::backend::{
    Backend, Batch, BatchOutcome, Browse, Call, Detail, Facts, Keep, KeyRecord, Kinds,
    Lane as LaneShape, Moved, Operated, Operation, Page, QueueNumbers,
};
use crate::dead_letters::{DeadFilter, DeadGroups, DeadListing, Selection, SelectionId};
use crate::error::{Result, StoreError};
use crate::model::{IdMaker, MessageId, Millis, Queue, QueueUid};
use crate::redrives::{Redrive, RedriveId, RedriveListing, Stepped};
use async_trait::async_trait;
use due::Due;
use fault::Fault;
use floors::Floors;
use lane::Lane;
use maintenance::Sweep;
use parking_lot::Mutex;
use patience::Trust;
use queues::Cache;
use sqlx::postgres::{PgConnectOptions, PgPool};
use sqlx::{Postgres as Driver, Transaction};
use std::sync::Arc;

/// Most items of one batch: more buys less than a tenth (measured: 256 → 1,000 items) and delays whoever comes next.
const MAX_ITEMS: usize = 512;
/// Most payload bytes of one batch.
const MAX_BYTES: usize = 4 << 20;
/// Attempts of a call outside the lanes when connections die under it: a restart of the server leaves one dead connection
/// per pool slot.
const CALL_TRIES: u32 = 8;

/// A store on PostgreSQL.
struct Postgres {
    options: PgConnectOptions,
    pool: PgPool,
    trust: Arc<Trust>,
    facts: Facts,
    publishing: Lane,
    settling: Lane,
    receiving: Lane,
    ids: Mutex<IdMaker>,
    due: Due,
    floors: Floors,
    cache: Cache,
    sweep: tokio::sync::Mutex<Sweep>,
    /// Counter stripe of the pool's connections.
    stripe: i16,
}

/// Opens the store: connects, migrates, checks that commits are durable.
///
/// # Errors
/// [`StoreError::Unavailable`] when the server cannot be reached or does not commit durably.
pub async fn open(url: &str) -> Result<Arc<dyn Backend>> {
    let options = session::options(url)?;
    session::migrate(&options).await?;
    let mut connection = session::connect(&options)
        .await
        .map_err(StoreError::unavailable)?;
    session::check_durability(&mut connection).await?;
    let facts = session::facts(&mut connection).await?;
    let trust = Arc::<Trust>::default();
    let store = Postgres {
        pool: session::pool(&options, &trust),
        options,
        facts,
        publishing: Lane::new(1, &trust),
        settling: Lane::new(1, &trust),
        receiving: Lane::new(1, &trust),
        trust,
        ids: Mutex::new(IdMaker::new(rand::random_range(0..1024))),
        due: Due::default(),
        floors: Floors::default(),
        cache: Cache::default(),
        sweep: tokio::sync::Mutex::new(Sweep::default()),
        stripe: rand::random_range(1..=i16::MAX),
    };
    let now = due::clock(&mut connection)
        .await
        .map_err(Fault::into_error)?;
    store.due.saw(now);
    Ok(Arc::new(store))
}

impl Postgres {
    /// A transaction on a connection of the pool; rolled back when dropped.
    async fn begin(&self) -> Result<Transaction<'static, Driver>, Fault> {
        Ok(self.pool.begin().await?)
    }

    /// Whether a failed attempt outside the lanes is worth another one; pauses if so. Not for a failed commit.
    async fn once_more(&self, attempt: &mut u32, fault: Fault) -> Result<()> {
        *attempt += 1;
        let most = if matches!(fault, Fault::Lost(_)) {
            CALL_TRIES
        } else {
            fault::TRIES
        };
        match fault {
            Fault::Store(error) => Err(error),
            other if *attempt >= most => Err(other.into_error()),
            other => {
                tracing::debug!(attempt = *attempt, ?other, "call is repeated");
                fault::pause(*attempt).await;
                Ok(())
            }
        }
    }
}

/// A batch whose first part is on disk and whose second part failed: nobody can say "no effect" any more, and repeating all of
/// it is safe.
fn after_a_part(error: StoreError, something_committed: bool) -> StoreError {
    match error {
        error @ StoreError::CommitUnknown(_) => error,
        error if something_committed => StoreError::CommitUnknown(error.to_string().into()),
        error => error,
    }
}

#[async_trait]
impl Backend for Postgres {
    async fn apply(&self, batch: &Batch, now: Option<Millis>) -> Result<BatchOutcome> {
        let mut outcome = BatchOutcome::default();
        let mut committed = false;
        if !batch.settles.is_empty() {
            outcome.settles = self
                .settle(&batch.settles, now, &mut outcome.stir, &mut outcome.now)
                .await?;
            committed = true;
        }
        if !batch.publishes.is_empty() {
            let published = self
                .publish(&batch.publishes, now, &mut outcome.stir, &mut outcome.now)
                .await;
            outcome.publishes = published.map_err(|error| after_a_part(error, committed))?;
            committed = true;
        }
        if !batch.receives.is_empty() {
            let received = self
                .receive(&batch.receives, now, &mut outcome.stir, &mut outcome.now)
                .await;
            outcome.receives = received.map_err(|error| after_a_part(error, committed))?;
        }
        if now.is_none() && outcome.now != 0 {
            self.due.saw(outcome.now);
        }
        if let Some(at) = outcome.stir.next_due {
            self.due.note(at);
        }
        Ok(outcome)
    }

    async fn move_due(&self, now: Option<Millis>) -> Result<Moved> {
        self.look(self.move_what_is_due(now)).await
    }

    async fn operate(
        &self,
        call: &Call,
        operation: Operation,
        now: Option<Millis>,
    ) -> Result<Operated> {
        self.change(self.perform(call, &operation, now)).await
    }

    async fn queue(&self, name: &str) -> Result<Option<Queue>> {
        self.look(self.queue_by_name(name)).await
    }

    async fn queue_by_uid(&self, uid: QueueUid) -> Result<Option<(Queue, bool)>> {
        self.look(self.queue_by_number(uid)).await
    }

    async fn queues(&self, after: Option<&str>, limit: u32) -> Result<Vec<Queue>> {
        self.look(self.queues_behind(after, limit)).await
    }

    async fn numbers(&self, queue: QueueUid, now: Option<Millis>) -> Result<QueueNumbers> {
        self.look(self.exact_numbers(queue, now)).await
    }

    async fn browse(&self, browse: Browse, now: Option<Millis>) -> Result<Page> {
        self.look(self.page(&browse, now)).await
    }

    async fn message(&self, id: MessageId, now: Option<Millis>) -> Result<Option<Detail>> {
        self.look(self.detail(id, now)).await
    }

    async fn poll(&self, waiting: &[QueueUid]) -> Result<Vec<QueueUid>> {
        self.look(self.ready_among(waiting)).await
    }

    async fn dead_letters(&self, listing: &DeadListing, now: Option<Millis>) -> Result<Page> {
        self.look(self.dead_page(listing, now)).await
    }

    async fn dead_groups(
        &self,
        queues: Option<&[QueueUid]>,
        filter: &DeadFilter,
        limit: u32,
        now: Option<Millis>,
    ) -> Result<DeadGroups> {
        self.look(self.largest_groups(queues, filter, limit, now))
            .await
    }

    async fn selection(&self, id: SelectionId) -> Result<Option<Selection>> {
        self.look(self.selection_of(id)).await
    }

    async fn redrive(&self, id: RedriveId) -> Result<Option<Redrive>> {
        self.look(self.redrive_of(id)).await
    }

    async fn redrives(&self, listing: &RedriveListing) -> Result<Vec<Redrive>> {
        self.look(self.redrives_of(listing)).await
    }

    async fn step_redrives(&self, now: Option<Millis>) -> Result<Stepped> {
        self.look(self.step_first(now)).await
    }

    async fn audit(&self, query: &AuditQuery) -> Result<AuditPage> {
        self.look(self.audit_page(query)).await
    }

    async fn maintain(&self, keep: &Keep, now: Option<Millis>) -> Result<bool> {
        self.look(self.clean(keep, now)).await
    }

    async fn keys(&self) -> Result<Vec<KeyRecord>> {
        self.look(self.all_keys()).await
    }

    async fn add_key(&self, call: &Call, key: KeyRecord, only_first: bool) -> Result<bool> {
        self.change(self.store_key(call, &key, only_first)).await
    }

    async fn revoke_key(&self, call: &Call, id: &str, now: Option<Millis>) -> Result<bool> {
        self.change(self.end_key(call, id, now)).await
    }

    async fn rotate_key(
        &self,
        call: &Call,
        id: &str,
        ends_at: Millis,
        new: KeyRecord,
    ) -> Result<bool> {
        self.change(self.replace_key(call, id, ends_at, &new)).await
    }

    async fn touch_keys(&self, used: &[(Arc<str>, Millis)]) -> Result<()> {
        self.look(self.note_key_use(used)).await
    }

    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn lanes(&self) -> Vec<LaneShape> {
        let none = Kinds {
            settles: false,
            publishes: false,
            receives: false,
        };
        let lane = |kinds| LaneShape {
            kinds,
            dedicated: false,
            max_items: MAX_ITEMS,
            max_bytes: MAX_BYTES,
        };
        vec![
            lane(Kinds {
                settles: true,
                ..none
            }),
            lane(Kinds {
                publishes: true,
                ..none
            }),
            lane(Kinds {
                receives: true,
                ..none
            }),
        ]
    }

    async fn check(&self) -> Result<()> {
        self.look(self.writable()).await
    }

    async fn close(&self) {
        self.publishing.close().await;
        self.settling.close().await;
        self.receiving.close().await;
        self.pool.close().await;
    }
}
