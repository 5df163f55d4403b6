//! Queues by name and by number, as this process last saw them.
//!
//! A cached queue is never wrong for long and never wrong on disk: entries are looked at again after a second, and every
//! statement confirms the queue's version, so an outdated one comes back as stale and is replaced here.

use parking_lot::RwLock;
use quita_storage::backend::Backend;
use quita_storage::error::Result;
use quita_storage::model::{Queue, QueueUid};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, futures::OwnedNotified};
use tokio::time::Instant;

/// Age at which a queue is looked at again: bounds how long another replica's changes go unnoticed by what only reads.
const FRESH_MS: u64 = 1_000;
/// Age at which a name that was not there is looked up again on behalf of waiting receives.
const ABSENT_FOR: Duration = Duration::from_millis(200);
/// Names kept. Beyond, the catalog starts over: it is only a cache.
const MAX_NAMES: usize = 20_000;

struct Known {
    queue: Arc<Queue>,
    deleted: bool,
    /// When it was last looked at, or when somebody last set out to look: milliseconds since the catalog began.
    seen: AtomicU64,
}

#[derive(Default)]
struct Maps {
    names: HashMap<Arc<str>, QueueUid>,
    queues: HashMap<QueueUid, Known>,
    absent: HashMap<Box<str>, Instant>,
}

/// The queues that this process has seen.
pub struct Catalog {
    backend: Arc<dyn Backend>,
    maps: RwLock<Maps>,
    began: Instant,
    /// One look-up at a time replaces stale entries: the others that wait find its result.
    replacing: tokio::sync::Mutex<()>,
    created: Arc<Notify>,
}

impl Catalog {
    pub(super) fn new(backend: Arc<dyn Backend>) -> Self {
        Self {
            backend,
            maps: RwLock::default(),
            began: Instant::now(),
            replacing: tokio::sync::Mutex::default(),
            created: Arc::default(),
        }
    }

    /// The queue of this name; `None` when it is not there.
    pub async fn find(&self, name: &str) -> Result<Option<Arc<Queue>>> {
        {
            let maps = self.maps.read();
            let known = maps.names.get(name).and_then(|uid| maps.queues.get(uid));
            if let Some(known) = known.filter(|k| !k.deleted && self.usable(k)) {
                return Ok(Some(known.queue.clone()));
            }
        }
        self.look(name).await
    }

    /// The queue of this number and whether it is deleted; `None` when the store never had it.
    pub async fn by_uid(&self, uid: QueueUid) -> Result<Option<(Arc<Queue>, bool)>> {
        {
            let maps = self.maps.read();
            if let Some(known) = maps.queues.get(&uid).filter(|k| self.usable(k)) {
                return Ok(Some((known.queue.clone(), known.deleted)));
            }
        }
        self.look_uid(uid).await
    }

    /// The queue of this name, looked up unless it was in the last moments. For those who wait.
    pub(super) async fn await_name(&self, name: &str) -> Result<Option<Arc<Queue>>> {
        let absent = self.maps.read().absent.get(name).copied();
        if absent.is_some_and(|at| at.elapsed() < ABSENT_FOR) {
            return Ok(None);
        }
        let found = self.find(name).await?;
        if found.is_none() {
            let mut maps = self.maps.write();
            if maps.absent.len() >= MAX_NAMES {
                maps.absent.clear();
            }
            maps.absent.insert(name.into(), Instant::now());
        }
        Ok(found)
    }

    /// Resolves when this process creates a queue. Take it before looking.
    pub(super) fn creation(&self) -> OwnedNotified {
        self.created.clone().notified_owned()
    }

    /// The queue as the store knows it now, after `stale` was refused as outdated. `None` when it is gone.
    pub async fn replace(&self, stale: &Queue) -> Result<Option<(Arc<Queue>, bool)>> {
        let _one = self.replacing.lock().await;
        {
            let maps = self.maps.read();
            if let Some(known) = maps.queues.get(&stale.uid)
                && known.queue.version > stale.version
            {
                return Ok(Some((known.queue.clone(), known.deleted)));
            }
        }
        self.look_uid(stale.uid).await
    }

    /// Asks the store for a name, whatever is cached.
    pub async fn look(&self, name: &str) -> Result<Option<Arc<Queue>>> {
        let found = self.backend.queue(name).await?;
        if let Some(queue) = found {
            Ok(Some(self.keep(queue, false)))
        } else {
            let mut maps = self.maps.write();
            if let Some(uid) = maps.names.remove(name) {
                maps.queues.remove(&uid);
            }
            Ok(None)
        }
    }

    /// A queue was created by this process: those who wait for its name look again.
    pub(super) fn created(&self, name: &str) {
        self.maps.write().absent.remove(name);
        self.created.notify_waiters();
    }

    async fn look_uid(&self, uid: QueueUid) -> Result<Option<(Arc<Queue>, bool)>> {
        let found = self.backend.queue_by_uid(uid).await?;
        Ok(found.map(|(queue, deleted)| (self.keep(queue, deleted), deleted)))
    }

    fn keep(&self, queue: Queue, deleted: bool) -> Arc<Queue> {
        let mut maps = self.maps.write();
        if maps.queues.len() >= MAX_NAMES {
            maps.queues.clear();
            maps.names.clear();
        }
        if let Some(known) = maps.queues.get(&queue.uid) {
            let same = *known.queue == queue && known.deleted == deleted;
            // Look-ups may overtake each other; a version only rises.
            if same || known.queue.version > queue.version {
                known.seen.store(self.now(), Ordering::Relaxed);
                return known.queue.clone();
            }
        }
        let queue = Arc::new(queue);
        maps.names.insert(queue.name.clone(), queue.uid);
        let seen = AtomicU64::new(self.now());
        maps.queues.insert(
            queue.uid,
            Known {
                queue: queue.clone(),
                deleted,
                seen,
            },
        );
        queue
    }

    /// Fresh enough, or somebody else just set out to look at it again.
    fn usable(&self, known: &Known) -> bool {
        let (now, seen) = (self.now(), known.seen.load(Ordering::Relaxed));
        now.saturating_sub(seen) < FRESH_MS
            || known
                .seen
                .compare_exchange(seen, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_err()
    }

    fn now(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }
}
