//! The smallest complete store: everything in maps behind one lock, nothing on disk. The executable specification.
//!
//! Reading order: [`state`] (the maps; load a [`Draft`](crate::rules::Draft), store it back) → [`batch`] (publish, receive,
//! settle) → [`operate`] (what operators do), [`dead_letters`] and [`redrives`] (their desk) → [`read`] (numbers, listings) →
//! [`sweep`] (what time alone does).
//!
//! Nothing is kept that can be counted: gauges are recounted from the messages each time, and a purge walks over all of
//! them. So every operation is as slow as the store is full, and as easy to believe. The other stores are compared with
//! this one, step by step.

mod batch;
mod dead_letters;
mod operate;
mod read;
mod redrives;
mod state;
mod sweep;

use crate::audit::{AuditPage, AuditQuery};
use crate::backend::{
    Backend, Batch, BatchOutcome, Browse, Call, Detail, Facts, Keep, KeyRecord, Kinds, Lane, Moved,
    Operated, Operation, Page, QueueNumbers,
};
use crate::dead_letters::{DeadFilter, DeadGroups, DeadListing, Selection, SelectionId};
use crate::error::Result;
use crate::model::{MessageId, Millis, Queue, QueueUid};
use crate::redrives::{Redrive, RedriveId, RedriveListing, Stepped};
use crate::rules::trail::Trail;
use async_trait::async_trait;
use operate::On;
use parking_lot::Mutex;
use state::State;
use std::sync::Arc;

/// Opens an empty store. It lives as long as the last clone of the answer.
pub fn open() -> Arc<dyn Backend> {
    let facts = Facts {
        epoch: 1,
        receipt_secret: rand::random(),
    };
    Arc::new(Memory {
        facts,
        state: Mutex::new(State::new(rand::random())),
    })
}

struct Memory {
    facts: Facts,
    state: Mutex<State>,
}

#[async_trait]
impl Backend for Memory {
    async fn apply(&self, batch: &Batch, now: Option<Millis>) -> Result<BatchOutcome> {
        Ok(self.state.lock().apply(batch, now))
    }

    async fn move_due(&self, now: Option<Millis>) -> Result<Moved> {
        Ok(self.state.lock().move_due(now))
    }

    async fn operate(
        &self,
        call: &Call,
        operation: Operation,
        now: Option<Millis>,
    ) -> Result<Operated> {
        Ok(self.state.lock().operate(call, operation, now))
    }

    async fn queue(&self, name: &str) -> Result<Option<Queue>> {
        Ok(self
            .state
            .lock()
            .queue_named(name)
            .filter(|q| !q.deleted)
            .map(|q| q.view.clone()))
    }

    async fn queue_by_uid(&self, uid: QueueUid) -> Result<Option<(Queue, bool)>> {
        Ok(self
            .state
            .lock()
            .queues
            .get(&uid)
            .map(|q| (q.view.clone(), q.deleted)))
    }

    async fn queues(&self, after: Option<&str>, limit: u32) -> Result<Vec<Queue>> {
        Ok(self.state.lock().queues_after(after, limit))
    }

    async fn numbers(&self, queue: QueueUid, now: Option<Millis>) -> Result<QueueNumbers> {
        Ok(self.state.lock().numbers(queue, now))
    }

    async fn browse(&self, browse: Browse, now: Option<Millis>) -> Result<Page> {
        Ok(self.state.lock().browse(&browse, now))
    }

    async fn message(&self, id: MessageId, now: Option<Millis>) -> Result<Option<Detail>> {
        Ok(self.state.lock().message(id, now))
    }

    async fn poll(&self, _waiting: &[QueueUid]) -> Result<Vec<QueueUid>> {
        Ok(Vec::new())
    }

    async fn dead_letters(&self, listing: &DeadListing, now: Option<Millis>) -> Result<Page> {
        Ok(self.state.lock().dead_letters(listing, now))
    }

    async fn dead_groups(
        &self,
        queues: Option<&[QueueUid]>,
        filter: &DeadFilter,
        limit: u32,
        now: Option<Millis>,
    ) -> Result<DeadGroups> {
        Ok(self.state.lock().dead_groups(queues, filter, limit, now))
    }

    async fn selection(&self, id: SelectionId) -> Result<Option<Selection>> {
        Ok(self.state.lock().selections.get(&id).cloned())
    }

    async fn redrive(&self, id: RedriveId) -> Result<Option<Redrive>> {
        Ok(self.state.lock().redrives.get(&id).cloned())
    }

    async fn redrives(&self, listing: &RedriveListing) -> Result<Vec<Redrive>> {
        Ok(self.state.lock().redrives_of(listing))
    }

    async fn step_redrives(&self, now: Option<Millis>) -> Result<Stepped> {
        Ok(self.state.lock().step_redrives(now))
    }

    async fn audit(&self, query: &AuditQuery) -> Result<AuditPage> {
        Ok(self.state.lock().audit_page(query))
    }

    async fn maintain(&self, keep: &Keep, now: Option<Millis>) -> Result<bool> {
        self.state.lock().maintain(*keep, now);
        Ok(false)
    }

    async fn keys(&self) -> Result<Vec<KeyRecord>> {
        let mut keys: Vec<_> = self.state.lock().api_keys.values().cloned().collect();
        // By id already: a stable sort leaves those of one time in that order.
        keys.sort_by_key(|key| key.created_at);
        Ok(keys)
    }

    async fn add_key(&self, call: &Call, key: KeyRecord, only_first: bool) -> Result<bool> {
        let mut state = self.state.lock();
        if state.api_keys.contains_key(&key.id) || (only_first && !state.api_keys.is_empty()) {
            return Ok(false);
        }
        let now = state.clock.now(None);
        let trail = Trail::key_created(&key);
        state.audit(call, "create_key", On::default(), trail, now);
        state.api_keys.insert(key.id.clone(), key);
        Ok(true)
    }

    async fn revoke_key(&self, call: &Call, id: &str, now: Option<Millis>) -> Result<bool> {
        let mut state = self.state.lock();
        let now = state.clock.now(now);
        let Some(key) = state
            .api_keys
            .get_mut(id)
            .filter(|k| k.revoked_at.is_none())
        else {
            return Ok(false);
        };
        key.revoked_at = Some(now);
        state.audit(
            call,
            "revoke_key",
            On::default(),
            Trail::key_revoked(id),
            now,
        );
        Ok(true)
    }

    async fn rotate_key(
        &self,
        call: &Call,
        id: &str,
        ends_at: Millis,
        new: KeyRecord,
    ) -> Result<bool> {
        let mut state = self.state.lock();
        let taken = state.api_keys.contains_key(&new.id);
        let now = state.clock.now(None);
        let old = state.api_keys.get_mut(id);
        let Some(old) = old.filter(|key| key.revoked_at.is_none() && !taken) else {
            return Ok(false);
        };
        let ends_at = old.expires_at.map_or(ends_at, |at| at.min(ends_at));
        old.expires_at = Some(ends_at);
        let trail = Trail::key_rotated(id, ends_at, &new);
        state.audit(call, "rotate_key", On::default(), trail, now);
        state.api_keys.insert(new.id.clone(), new);
        Ok(true)
    }

    async fn touch_keys(&self, used: &[(Arc<str>, Millis)]) -> Result<()> {
        let mut state = self.state.lock();
        for (id, at) in used {
            if let Some(key) = state.api_keys.get_mut(id) {
                key.last_used_at = key.last_used_at.max(Some(*at));
            }
        }
        Ok(())
    }

    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn lanes(&self) -> Vec<Lane> {
        let kinds = Kinds {
            settles: true,
            publishes: true,
            receives: true,
        };
        vec![Lane {
            kinds,
            dedicated: false,
            max_items: 1_000,
            max_bytes: 8 << 20,
        }]
    }

    async fn check(&self) -> Result<()> {
        Ok(())
    }

    async fn close(&self) {}
}
