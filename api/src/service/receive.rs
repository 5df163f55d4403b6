//! Receive: the long poll.
//!
//! Join the line first, look second, wait third: nothing that becomes ready in between is missed. A waiting receive holds
//! no store connection and asks nothing until its turn comes.

use super::waiting::WaitingPlace;
use super::{Error, MAX_STALE, Result, Service};
use crate::auth::{Principal, Right};
use quita_storage::backend::{Delivery, Receive};
use quita_storage::coalescer::{Grant, Handed, Held};
use quita_storage::model::{Millis, Queue, QueueUid};
use quita_storage::wakeup::{Waiter, Wakeup};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
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

/// A wake-up that was taken. Unless a look at the queue used it, it goes on to the next in line: whoever took it may have
/// failed or hung up, and the message is still there.
struct Turn<'a> {
    wakeup: &'a Wakeup,
    queue: QueueUid,
    used: bool,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if !self.used {
            self.wakeup.one(self.queue);
        }
    }
}

impl Service {
    /// Leases up to `ask.max` messages, waiting for the first one as long as the caller allows. Ends early and empty when
    /// `stop` resolves.
    ///
    /// # Errors
    /// [`Error::QueueNotFound`], also when the queue is deleted meanwhile; [`Error::TooManyWaiting`], [`Error::TooManyWaitingOfKey`].
    pub async fn receive(
        &self,
        caller: &Principal,
        ask: Ask<'_>,
        stop: impl Future<Output = ()>,
    ) -> Result<Got> {
        let mut stop = pin!(stop);
        let began = Instant::now();
        let mut waiting = None;
        let mut turn: Option<Turn<'_>> = None;
        let mut stale = 0;
        let mut existed = false;
        loop {
            let Some(queue) = self.queue_to_receive(caller, ask.queue, existed).await? else {
                let until = began + millis(ask.wait_ms.unwrap_or(0));
                if Instant::now() >= until {
                    return Ok(self.nothing(false));
                }
                self.begin_to_wait(caller, &mut waiting)?;
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
                if let (Some(turn), false) = (&mut turn, matches!(grant.handed, Handed::Stale)) {
                    turn.used = true;
                }
                match grant.handed {
                    Handed::Messages(messages) if messages.is_empty() => {
                        (stale, paused) = (0, false);
                    }
                    Handed::Messages(messages) => {
                        return Ok(Got {
                            messages,
                            paused: false,
                            now: grant.now,
                            held: Some(grant.held),
                        });
                    }
                    Handed::Paused => (stale, paused) = (0, true),
                    Handed::Stale if stale < MAX_STALE => {
                        stale += 1;
                        self.catalog.replace(&queue).await?;
                        continue;
                    }
                    Handed::Stale if !may_wait => return Err(Error::QueueBusy),
                    // Whoever waits has time to look again when the queue is at rest.
                    Handed::Stale => (stale, paused) = (0, queue.paused),
                }
            }
            let Some(line) = &mut line else {
                return Ok(self.nothing(paused));
            };
            self.begin_to_wait(caller, &mut waiting)?;
            tokio::select! {
                biased;
                () = &mut stop => return Ok(self.nothing(paused)),
                called = self.turn(&queue, line, until) => {
                    if !called {
                        return Ok(self.nothing(paused));
                    }
                    turn = Some(Turn { wakeup: self.coalescer.wakeup(), queue: queue.uid, used: false });
                }
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
        Err(self.no_such_queue(caller, Right::Consume, name).await)
    }

    fn nothing(&self, paused: bool) -> Got {
        Got {
            messages: Vec::new(),
            paused,
            now: self.coalescer.timer().store_now(),
            held: None,
        }
    }

    fn begin_to_wait<'a>(
        &'a self,
        caller: &Principal,
        waiting: &mut Option<WaitingPlace<'a>>,
    ) -> Result<()> {
        if waiting.is_none() {
            *waiting = Some(self.waiting.take(&caller.id)?);
        }
        Ok(())
    }

    /// How many receives wait.
    pub fn waiting_receives(&self) -> usize {
        self.waiting.taken()
    }
}

fn millis(ms: Millis) -> Duration {
    Duration::from_millis(ms.max(0) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::ServiceSettings;
    use crate::service::publish::{DEFAULT_PRIORITY, NewMessage};
    use bytes::Bytes;
    use futures_util::poll;
    use quita_storage::coalescer::{Coalescer, Limits};
    use std::future::pending;

    fn service(max_waiting_receives: usize) -> Arc<Service> {
        let coalescer = Coalescer::start(
            quita_storage::memory::open(),
            Arc::default(),
            Arc::default(),
            Limits::default(),
        );
        let settings = ServiceSettings {
            max_waiting_receives,
            ..ServiceSettings::default()
        };
        Service::new(coalescer, settings)
    }

    fn ask() -> Ask<'static> {
        Ask {
            queue: "q",
            max: 1,
            lease_ms: None,
            wait_ms: Some(10_000),
            worker: None,
        }
    }

    async fn publish(service: &Service, caller: &Principal) {
        let message = NewMessage {
            client_request_id: None,
            key: None,
            delay_ms: None,
            priority: DEFAULT_PRIORITY,
            headers: None,
            payload: Bytes::from_static(b"1"),
            expires_in_ms: None,
            max_attempts: None,
            backoff: None,
        };
        service.publish(caller, "q", message).await.unwrap();
    }

    /// Polls until the future waits in line.
    async fn until_waiting(service: &Service, count: usize, future: &mut (impl Future + Unpin)) {
        while service.waiting_receives() < count {
            assert!(poll!(&mut *future).is_pending());
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_turn_that_is_not_used_goes_to_the_next_in_line() {
        let (service, caller) = (service(10), Principal::admin("test"));
        publish(&service, &caller).await;
        let got = service.receive(&caller, ask(), pending()).await.unwrap();
        got.held.unwrap().delivered();
        let mut first = Box::pin(service.receive(&caller, ask(), pending()));
        until_waiting(&service, 1, &mut first).await;
        let mut second = Box::pin(service.receive(&caller, ask(), pending()));
        until_waiting(&service, 2, &mut second).await;
        publish(&service, &caller).await;
        // The first one takes its turn, asks, and hangs up before it is answered.
        assert!(poll!(&mut first).is_pending());
        drop(first);
        let got = tokio::time::timeout(Duration::from_millis(500), second).await;
        assert_eq!(got.unwrap().unwrap().messages.len(), 1);
        assert_eq!(service.waiting_receives(), 0);
    }

    #[tokio::test]
    async fn the_number_of_waiting_receives_is_bounded() {
        let (service, caller) = (service(1), Principal::admin("test"));
        publish(&service, &caller).await;
        let got = service.receive(&caller, ask(), pending()).await.unwrap();
        got.held.unwrap().delivered();
        let mut first = Box::pin(service.receive(&caller, ask(), pending()));
        until_waiting(&service, 1, &mut first).await;
        let second = service.receive(&caller, ask(), pending()).await;
        assert!(matches!(second, Err(Error::TooManyWaiting)));
        drop(first);
        let empty = service
            .receive(&caller, ask(), std::future::ready(()))
            .await;
        assert!(empty.unwrap().messages.is_empty());
        assert_eq!(service.waiting_receives(), 0);
    }
}
