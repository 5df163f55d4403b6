//! What the product does, operation by operation. Knows no HTTP.
//!
//! Reading order: [`catalog`] (queues by name and by number) → [`publish`] → [`receive`] (the long poll) → [`settle`] →
//! [`queues`] and [`messages`] (what operators see and decide) → [`dead_letters`] and [`revisions`] (one dead letter at a
//! time) → [`selections`] and [`redrives`] (many at once) → [`audit`] (what was done) → [`keys`] (who may). [`error`] is everything that can be
//! refused.
//!
//! Every operation takes the [`Principal`] first and checks its right on the queue itself, so no route can forget to.

pub mod audit;
pub mod catalog;
pub mod chance;
pub mod dead_letters;
pub mod error;
pub mod fingerprint;
pub mod keys;
pub mod messages;
pub mod publish;
pub mod queues;
mod readiness;
pub mod receive;
pub mod redrives;
pub mod revisions;
pub mod selections;
pub mod settle;
mod waiting;

pub use error::{Error, Result};

use crate::auth::{Principal, Right};
use crate::disk::Disk;
use catalog::Catalog;
use quita_storage::backend::{Answer, Backend, Call, Operation};
use quita_storage::coalescer::Coalescer;
use quita_storage::model::{Policy, Queue, QueueUid};
use quita_storage::receipt::Receipts;
use readiness::Readiness;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;
use waiting::Places;

/// How often an item is repeated whose queue changed under it. A queue that changes faster than that is reported as busy.
const MAX_STALE: usize = 16;
/// Queues that are read at once when all of them have to be looked through.
const MANY_QUEUES: u32 = 1_000;
/// Names that are looked at for the nearest one to a name that is not there.
const NEAREST_AMONG: u32 = 1_000;
/// How alike two names must be (Jaro-Winkler) for one to be offered for the other.
const NEAREST_ALIKE: f64 = 0.8;

/// What an installation decides about the operations.
#[derive(Clone, Debug)]
pub struct ServiceSettings {
    /// A publish to an unknown queue creates it; a receive from one waits.
    pub auto_create_queues: bool,
    /// Policy of queues that are created without one.
    pub default_policy: Policy,
    /// Receives that may wait at the same time.
    pub max_waiting_receives: usize,
    /// Of these, receives of one caller. `None`: as many as there are places.
    pub max_waiting_receives_per_key: Option<usize>,
    /// Whether there is room for new messages.
    pub disk: Disk,
}

impl Default for ServiceSettings {
    /// 10,000 waiting receives: each is a few hundred bytes and a connection, and connections are bounded before.
    fn default() -> Self {
        Self {
            auto_create_queues: true,
            default_policy: Policy::default(),
            max_waiting_receives: 10_000,
            max_waiting_receives_per_key: None,
            disk: Disk::default(),
        }
    }
}

/// All operations, over one store.
pub struct Service {
    coalescer: Coalescer,
    catalog: Catalog,
    receipts: Receipts,
    epoch: i32,
    settings: ServiceSettings,
    waiting: Places,
    readiness: Readiness,
}

impl Service {
    /// Over the store that feeds from `coalescer`.
    pub fn new(coalescer: Coalescer, settings: ServiceSettings) -> Arc<Self> {
        let facts = coalescer.backend().facts();
        let (receipts, epoch) = (Receipts::new(&facts.receipt_secret), facts.epoch);
        Arc::new(Self {
            catalog: Catalog::new(coalescer.backend().clone()),
            coalescer,
            receipts,
            epoch,
            waiting: Places::new(
                settings.max_waiting_receives,
                settings.max_waiting_receives_per_key,
            ),
            settings,
            readiness: Readiness::default(),
        })
    }

    /// Where requests become batches.
    pub fn coalescer(&self) -> &Coalescer {
        &self.coalescer
    }

    /// What an installation decided.
    pub fn settings(&self) -> &ServiceSettings {
        &self.settings
    }

    /// Makes and checks receipts.
    pub fn receipts(&self) -> &Receipts {
        &self.receipts
    }

    /// The store's epoch, as receipts carry it.
    pub fn epoch(&self) -> i32 {
        self.epoch
    }

    /// The store answers and accepts writes, or did half a second ago. However many ask, one looks.
    pub async fn check(&self) -> Result<()> {
        let look = async { Ok(self.backend().check().await?) };
        self.readiness.at(Instant::now(), look).await
    }

    fn backend(&self) -> &Arc<dyn Backend> {
        self.coalescer.backend()
    }

    /// The queue of this name, when it is there and the caller has `right` on it. A queue that is not there and one that
    /// is forbidden look alike.
    async fn queue_for(&self, caller: &Principal, right: Right, name: &str) -> Result<Arc<Queue>> {
        if caller.may(right, name)
            && let Some(queue) = self.catalog.find(name).await?
        {
            return Ok(queue);
        }
        Err(self.no_such_queue(caller, right, name).await)
    }

    /// The answer to who has no `right` on a queue, or asks for one that is not there.
    async fn no_such_queue(&self, caller: &Principal, right: Right, name: &str) -> Error {
        if let Err(refused) = Self::entitled(caller, right) {
            return refused;
        }
        let nearest = match self.backend().queues(None, NEAREST_AMONG).await {
            Ok(queues) => queues
                .into_iter()
                .filter(|queue| caller.may(Right::Read, &queue.name))
                .map(|queue| (strsim::jaro_winkler(&queue.name, name), queue.name))
                .filter(|(alike, nearest)| *alike >= NEAREST_ALIKE && **nearest != *name)
                .max_by(|a, b| a.0.total_cmp(&b.0))
                .map(|(_, nearest)| nearest),
            Err(error) => return error.into(),
        };
        Error::QueueNotFound { nearest }
    }

    /// The queues on which the caller has `right`, for a question about all of them; `None` = every one, and also what
    /// belongs to none.
    async fn queues_with(&self, caller: &Principal, right: Right) -> Result<Option<Vec<QueueUid>>> {
        if caller.may_everywhere(right) {
            return Ok(None);
        }
        Self::entitled(caller, right)?;
        let (mut allowed, mut after) = (Vec::new(), None::<Arc<str>>);
        loop {
            let queues = self.backend().queues(after.as_deref(), MANY_QUEUES).await?;
            let more = queues.len() as u32 == MANY_QUEUES;
            after = queues.last().map(|queue| queue.name.clone());
            let visible = queues.into_iter().filter(|q| caller.may(right, &q.name));
            allowed.extend(visible.map(|queue| queue.uid));
            if !more {
                return Ok(Some(allowed));
            }
        }
    }

    /// Refuses who has `right` on no queue. Asked before anything is looked up: the refusal must not tell what there is.
    fn entitled(caller: &Principal, right: Right) -> Result<()> {
        let may = caller.may_anywhere(right);
        may.then_some(()).ok_or(Error::NotAllowedAnywhere)
    }

    /// Refuses who has no `right` on the queue of something: it looks `absent`.
    fn allow(
        caller: &Principal,
        right: Right,
        queue: &Queue,
        absent: impl Into<Error>,
    ) -> Result<()> {
        let may = caller.may(right, &queue.name);
        may.then_some(()).ok_or_else(|| absent.into())
    }

    /// The queues of these numbers, deleted ones included.
    async fn named(&self, numbers: HashSet<QueueUid>) -> Result<HashMap<QueueUid, Arc<Queue>>> {
        let mut named = HashMap::new();
        for number in numbers {
            if let Some((queue, _)) = self.catalog.by_uid(number).await? {
                named.insert(number, queue);
            }
        }
        Ok(named)
    }

    /// Performs an operation, wakes whom it concerns, and answers what it did and whether that was a repeat.
    async fn operate(&self, call: &Call, operation: Operation) -> Result<(Answer, bool)> {
        let operated = self.backend().operate(call, operation, None).await?;
        self.coalescer.wakeup().stir(&operated.stir);
        let timer = self.coalescer.timer();
        timer.observe(timer.store_now(), operated.stir.next_due);
        match operated.answer {
            Answer::Refused(refused) => Err(refused.into()),
            answer => Ok((answer, operated.repeated)),
        }
    }
}

/// What an operation answered, and whether it had been answered before.
#[derive(Clone, Debug, PartialEq)]
pub struct Done<T> {
    /// The answer.
    pub answer: T,
    /// The same call was answered before and nothing was done now.
    pub repeated: bool,
}

impl<T> Done<T> {
    fn new(answer: T, repeated: bool) -> Self {
        Self { answer, repeated }
    }
}

fn unexpected(answer: &Answer) -> Error {
    quita_storage::error::StoreError::internal(format_args!("unexpected answer {answer:?}")).into()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_operations_know_nothing_of_http() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/service");
        for file in std::fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            for word in ["axum", "hyper", "serde_json", "crate::http", "StatusCode"] {
                let used = text
                    .lines()
                    .any(|line| line.contains(word) && !line.contains("for word in"));
                assert!(!used, "{} uses {word}", path.display());
            }
        }
    }
}
