//! Receive: the long poll.
//!
//! Join the line first, look second, wait third: nothing that becomes ready in between is missed. A waiting receive holds
//! no store connection and asks nothing until its turn comes.

use super::{Error, MAX_STALE, Result, Service};
use crate::auth::{Principal, Right};
use quita_storage::backend::{Delivery, Receive};
use quita_storage::coalescer::{Grant, Handed, Held};
use quita_storage::model::{Millis, Queue};
use quita_storage::wakeup::Waiter;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// A waiting receive notices a pause, a deletion or another policy made by another replica this late.
const GLANCE: Duration = Duration::from_secs(1);
/// How often a receive that waits for a queue to be created looks for it.
const LOOK_FOR_QUEUE: Duration = Duration::from_millis(250);

/// A request for messages.
#[derive(Clone, Debug)]
pub struct Ask<'a> {
    /// From where.
    pub queue: &'a str,
    /// 1 to 100.
    pub max: u32,
    /// `None` = the queue's.
    pub lease_ms: Option<Millis>,
    /// `None` = the queue's.
    pub wait_ms: Option<Millis>,
    /// Who asks.
    pub worker: Option<Arc<str>>,
}

/// What a receive got.
#[derive(Debug)]
pub struct Got {
    /// At most as many as asked; may be empty.
    pub messages: Vec<Delivery>,
    /// The queue is paused.
    pub paused: bool,
    /// The store's time.
    pub now: Millis,
    /// The leases, until the answer has reached the client; `None` when there are none.
    pub held: Option<Held>,
}

struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Service {
    /// Leases up to `ask.max` messages, waiting for the first one as long as the caller allows. Ends early and empty when
    /// `stop` resolves.
    ///
    /// # Errors
    /// [`Error::QueueNotFound`], also when the queue is deleted meanwhile; [`Error::TooManyWaiting`].
    pub async fn receive(
        &self,
        caller: &Principal,
        ask: Ask<'_>,
        stop: impl Future<Output = ()>,
    ) -> Result<Got> {
        let mut stop = pin!(stop);
        let began = Instant::now();
        let mut waiting = None;
        let mut stale = 0;
        let mut existed = false;
        loop {
            let Some(queue) = self.queue_to_receive(caller, ask.queue, existed).await? else {
                let until = began + millis(ask.wait_ms.unwrap_or(0));
                if Instant::now() >= until {
                    return Ok(self.nothing(false));
                }
                self.begin_to_wait(&mut waiting)?;
                let created = self.catalog.creation();
                let until = until.min(Instant::now() + LOOK_FOR_QUEUE);
                tokio::select! {
                    _ = timeout_at(until, created) => continue,
                    () = &mut stop => return Ok(self.nothing(false)),
                }
            };
            existed = true;
            let until = began + millis(ask.wait_ms.unwrap_or(queue.policy.wait_ms));
            let may_wait = Instant::now() < until;
            let mut line = may_wait.then(|| self.coalescer.wakeup().join(queue.uid));
            let paused;
            let surely_empty = self.backend().maybe_ready(queue.uid) == Some(false);
            if may_wait && surely_empty {
                paused = queue.paused;
            } else {
                let grant = self.look(&queue, &ask).await?;
                match grant.handed {
                    Handed::Messages(messages) if messages.is_empty() => paused = false,
                    Handed::Messages(messages) => {
                        return Ok(Got {
                            messages,
                            paused: false,
                            now: grant.now,
                            held: Some(grant.held),
                        });
                    }
                    Handed::Paused => paused = true,
                    Handed::Stale => {
                        stale += 1;
                        if stale > MAX_STALE {
                            return Err(Error::QueueBusy);
                        }
                        self.catalog.replace(&queue).await?;
                        continue;
                    }
                }
            }
            let Some(line) = &mut line else {
                return Ok(self.nothing(paused));
            };
            self.begin_to_wait(&mut waiting)?;
            tokio::select! {
                called = self.turn(&queue, line, until) => {
                    if !called {
                        return Ok(self.nothing(paused));
                    }
                }
                () = &mut stop => return Ok(self.nothing(paused)),
            }
        }
    }

    async fn look(&self, queue: &Arc<Queue>, ask: &Ask<'_>) -> Result<Grant> {
        let item = Receive {
            queue: queue.clone(),
            max: ask.max,
            lease_ms: ask.lease_ms.unwrap_or(queue.policy.visibility_timeout_ms),
            worker: ask.worker.clone(),
        };
        Ok(self.coalescer.receive(item).await?)
    }

    /// Waits in `line` for a reason to look again; `false` when the time is over.
    async fn turn(&self, queue: &Arc<Queue>, line: &mut Waiter, until: Instant) -> bool {
        loop {
            let glance = until.min(Instant::now() + GLANCE);
            if timeout_at(glance, line.turn()).await.is_ok() {
                return true;
            }
            if glance >= until {
                return false;
            }
            let changed = match self.catalog.by_uid(queue.uid).await {
                Ok(Some((now, deleted))) => deleted || now.version != queue.version,
                Ok(None) | Err(_) => true,
            };
            if changed || self.backend().maybe_ready(queue.uid) == Some(true) {
                return true;
            }
        }
    }

    /// The queue; `None` while it may still be created. A queue that this receive has seen does not come back.
    async fn queue_to_receive(
        &self,
        caller: &Principal,
        name: &str,
        existed: bool,
    ) -> Result<Option<Arc<Queue>>> {
        if caller.may(Right::Consume, name) {
            if let Some(queue) = self.catalog.await_name(name).await? {
                return Ok(Some(queue));
            }
            if !existed && self.may_create(caller, name) {
                return Ok(None);
            }
        }
        Err(self.no_such_queue(caller, name).await)
    }

    fn nothing(&self, paused: bool) -> Got {
        Got {
            messages: Vec::new(),
            paused,
            now: self.coalescer.timer().store_now(),
            held: None,
        }
    }

    fn begin_to_wait<'a>(&'a self, waiting: &mut Option<Waiting<'a>>) -> Result<()> {
        if waiting.is_none() {
            let place = Waiting(&self.waiting);
            let before = self.waiting.fetch_add(1, Ordering::Relaxed);
            if before >= self.settings.max_waiting_receives {
                drop(place);
                return Err(Error::TooManyWaiting);
            }
            *waiting = Some(place);
        }
        Ok(())
    }

    /// How many receives wait.
    pub fn waiting_receives(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

fn millis(ms: Millis) -> Duration {
    Duration::from_millis(ms.max(0) as u64)
}
