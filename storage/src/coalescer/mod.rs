//! Group commit: many single requests become one batch, by natural batching.
//!
//! Reading order: [`Coalescer`] (what callers use) → [`intake`] (bounded, fair between queues) → [`lane`] (take everything
//! that waits, commit, answer, repeat) → [`held`] (leases that must not be lost with a connection).
//!
//! There is no timer. An idle lane starts with the first item at once; while it commits, the next batch gathers. So a caller
//! alone waits one commit, and under load at most the rest of the running commit and its own.

mod held;
mod intake;
mod lane;

pub use held::Held;
pub use intake::Limits;

use crate::backend::{
    Backend, Delivery, Publish, Published, Receive, Received, Settle, SettleOutcome, Stir,
};
use crate::error::{Result, StoreError};
use crate::model::{MessageId, Millis};
use crate::timer::Timer;
use crate::wakeup::Wakeup;
use intake::{Answer, Intake, Job};
use std::sync::Arc;
use tokio::sync::oneshot;

/// What a receive got.
#[derive(Debug)]
pub enum Handed {
    /// At most as many as asked; may be empty.
    Messages(Vec<Delivery>),
    /// The queue is paused.
    Paused,
    /// The queue changed: look it up again.
    Stale,
}

/// The answer to a receive. Dropping it, or its [`Held`] part before [`Held::delivered`], gives the leases back.
#[derive(Debug)]
pub struct Grant {
    /// What was handed out.
    pub handed: Handed,
    /// The store's time at the hand-out.
    pub now: Millis,
    /// The leases, until the answer has reached the client.
    pub held: Held,
}

/// Takes single requests, makes batches, and hands the outcomes back. Cheap to clone.
#[derive(Clone)]
pub struct Coalescer {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) wakeup: Arc<Wakeup>,
    pub(crate) timer: Arc<Timer>,
    pub(crate) intake: Intake,
}

impl Shared {
    pub(crate) fn stirred(&self, stir: &Stir, now: Millis) {
        self.wakeup.stir(stir);
        self.timer.observe(now, stir.next_due);
    }
}

impl Coalescer {
    /// Starts the lanes that the backend asks for on the present runtime.
    pub fn start(
        backend: Arc<dyn Backend>,
        wakeup: Arc<Wakeup>,
        timer: Arc<Timer>,
        limits: Limits,
    ) -> Self {
        let lanes = backend.lanes();
        let shared = Arc::new(Shared {
            backend,
            wakeup,
            timer,
            intake: Intake::new(limits, &lanes),
        });
        for (index, lane) in lanes.into_iter().enumerate() {
            lane::spawn(shared.clone(), index, lane);
        }
        Self { shared }
    }

    /// Publishes; one outcome per item, in order. The items reach the store in one batch unless they are too large for one.
    pub async fn publish(&self, items: Vec<Publish>) -> Result<Vec<Published>> {
        let bytes = items.iter().map(|p| p.payload.len() + 256).sum();
        let queue = items.first().map(|p| p.queue.uid);
        self.submit(queue, items.len(), bytes, |answer| {
            Job::Publish(items, answer)
        })
        .await
    }

    /// Settles; one outcome per item, in order.
    pub async fn settle(&self, items: Vec<Settle>) -> Result<Vec<SettleOutcome>> {
        let queue = items.first().map(|s| s.queue.uid);
        self.submit(queue, items.len(), items.len() * 256, |answer| {
            Job::Settle(items, answer)
        })
        .await
    }

    /// Asks once for messages; does not wait for any to come.
    pub async fn receive(&self, item: Receive) -> Result<Grant> {
        let queue = item.queue.clone();
        let weight = item.max as usize;
        let (received, now) = self
            .submit(Some(queue.uid), weight, 256, |answer| {
                Job::Receive(item, queue, answer)
            })
            .await?;
        Ok(received.into_grant(now))
    }

    async fn submit<T>(
        &self,
        queue: Option<crate::model::QueueUid>,
        weight: usize,
        bytes: usize,
        job: impl FnOnce(Answer<T>) -> Job,
    ) -> Result<T> {
        let (answer, outcome) = oneshot::channel();
        let queue = queue.ok_or_else(|| StoreError::internal("an empty request"))?;
        self.shared.intake.push(queue, weight, bytes, job(answer))?;
        outcome.await.unwrap_or_else(|_| {
            Err(StoreError::CommitUnknown(
                "the lane ended without an answer".into(),
            ))
        })
    }

    /// The store.
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.shared.backend
    }

    /// Who waits.
    pub fn wakeup(&self) -> &Arc<Wakeup> {
        &self.shared.wakeup
    }

    /// The store's time and what is due.
    pub fn timer(&self) -> &Arc<Timer> {
        &self.shared.timer
    }

    /// Items that wait for a lane: publishes, settles, receives.
    pub fn waiting(&self) -> (usize, usize, usize) {
        self.shared.intake.waiting()
    }

    /// Refuses new publishes and receives with [`StoreError::Draining`]; settles go on.
    pub fn refuse_new_work(&self) {
        self.shared.intake.refuse_new_work();
    }

    /// Commits everything that waits, then stops the lanes.
    pub async fn drain(&self) {
        self.shared.intake.close();
        self.shared.intake.drained().await;
    }
}

/// What a lane hands to a waiting receive: leases that are given back unless they arrive.
#[derive(Debug)]
pub(crate) struct HandedOut {
    received: Received,
    held: Held,
}

impl HandedOut {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        queue: Arc<crate::model::Queue>,
        received: Received,
    ) -> Self {
        let leases: Vec<(MessageId, i32, Millis)> = match &received {
            Received::Messages(deliveries) => deliveries.iter().map(held::lease_of).collect(),
            Received::Paused | Received::Stale => Vec::new(),
        };
        Self {
            received,
            held: Held::new(shared, queue, leases),
        }
    }

    fn into_grant(self, now: Millis) -> Grant {
        let handed = match self.received {
            Received::Messages(deliveries) => Handed::Messages(deliveries),
            Received::Paused => Handed::Paused,
            Received::Stale => Handed::Stale,
        };
        Grant {
            handed,
            now,
            held: self.held,
        }
    }
}

#[cfg(test)]
mod tests;
