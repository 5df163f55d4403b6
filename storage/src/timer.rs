//! The store's time as this process knows it, and the loops that act on it.
//!
//! Four loops, each of which survives any error of the store and begins again after a pause:
//! [`Timer::run_due`] moves what the clock has moved, at the moment it is due; [`Timer::run_maintenance`] does background
//! work; [`Timer::run_redrives`] lets bulk decisions go on; [`Timer::run_poll`] asks, on behalf of waiting receives, for
//! messages that other replicas made ready.

use crate::backend::{Backend, Keep};
use crate::clock;
use crate::model::Millis;
use crate::sometimes::Sometimes;
use crate::wakeup::Wakeup;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Longest sleep between two looks at what is due: bounds how late another replica's leases are noticed, and how late an
/// exhausted lease is filed (product §3 allows 2 s).
const LONGEST_NAP: Duration = Duration::from_millis(500);
/// Pause after an error of the store.
const AFTER_ERROR: Duration = Duration::from_millis(500);
/// Pause between two rounds of maintenance with nothing to do.
const MAINTENANCE: Duration = Duration::from_secs(1);
/// How many times as long as a step of a redrive took the store belongs to the callers before the next one: a redrive without
/// a rate limit then leaves publish, receive and ack about three quarters of their rate.
const COURTESY: u32 = 4;
/// And at least so long: some 8,000 messages a second at the most, so that a store whose steps are quick is not kept busy by
/// them and by waking those who wait.
const LEAST_COURTESY: Duration = Duration::from_millis(50);
/// Poll interval on queues at rest and on queues with recent traffic: half of what the contract of long polling allows
/// (250 ms and 60 ms), so that a poll and its round trip fit.
const POLL_AT_REST: Duration = Duration::from_millis(150);
const POLL_ACTIVE: Duration = Duration::from_millis(25);
/// A queue counts as active this long after something became ready in it.
const ACTIVE_FOR: Duration = Duration::from_secs(1);

struct Known {
    /// The store's time when it was last seen, and when that was.
    store: Millis,
    seen: Instant,
    due: Option<Millis>,
    stirred: Instant,
}

/// What this process knows of the store's time and of what is due.
pub struct Timer {
    known: Mutex<Known>,
    changed: Notify,
    redrives: Notify,
}

impl Default for Timer {
    fn default() -> Self {
        let now = Instant::now();
        Self {
            known: Mutex::new(Known {
                store: clock::wall(),
                seen: now,
                due: None,
                stirred: now,
            }),
            changed: Notify::new(),
            redrives: Notify::new(),
        }
    }
}

impl Timer {
    /// Notes the store's time and, perhaps, that something is due.
    pub fn observe(&self, now: Millis, due: Option<Millis>) {
        let mut known = self.known.lock();
        known.store = now;
        known.seen = Instant::now();
        known.stirred = known.seen;
        let Some(due) = due else { return };
        if known.due.is_none_or(|at| due < at) {
            known.due = Some(due);
            drop(known);
            self.changed.notify_one();
        }
    }

    /// The store's time, estimated from the last answer and this process's monotonic clock. For timers and display only:
    /// nothing stored or compared comes from here.
    pub fn store_now(&self) -> Millis {
        let known = self.known.lock();
        known
            .store
            .saturating_add(known.seen.elapsed().as_millis() as Millis)
    }

    /// Moves expired leases, due delays and the like, when they are due and at least twice a second. Never returns.
    pub async fn run_due(self: Arc<Self>, backend: Arc<dyn Backend>, wakeup: Arc<Wakeup>) {
        let failure = Sometimes::new();
        loop {
            let nap = {
                let known = self.known.lock();
                let now = known
                    .store
                    .saturating_add(known.seen.elapsed().as_millis() as Millis);
                known
                    .due
                    .map_or(LONGEST_NAP, |due| {
                        Duration::from_millis((due - now).max(0) as u64)
                    })
                    .min(LONGEST_NAP)
            };
            tokio::select! {
                () = tokio::time::sleep(nap) => {}
                () = self.changed.notified() => continue,
            }
            self.known.lock().due = None;
            match backend.move_due(None).await {
                Ok(moved) => {
                    wakeup.stir(&moved.stir);
                    let mut known = self.known.lock();
                    known.due = match (known.due, moved.stir.next_due) {
                        (Some(a), Some(b)) => Some(a.min(b)),
                        (a, b) => a.or(b),
                    };
                    if moved.more {
                        let now = known.store;
                        known.due = Some(known.due.map_or(now, |at| at.min(now)));
                    }
                }
                Err(error) => {
                    if let Some(unsaid) = failure.now() {
                        tracing::warn!(%error, unsaid, "could not move what is due");
                    }
                    tokio::time::sleep(AFTER_ERROR).await;
                }
            }
        }
    }

    /// Clears, folds and sweeps in small steps. Never returns.
    pub async fn run_maintenance(backend: Arc<dyn Backend>, keep: Keep) {
        let failure = Sometimes::new();
        loop {
            let pause = match backend.maintain(&keep, None).await {
                // More to do, but in between the store belongs to the callers.
                Ok(true) => Duration::from_millis(5),
                Ok(false) => MAINTENANCE,
                Err(error) => {
                    if let Some(unsaid) = failure.now() {
                        tracing::warn!(%error, unsaid, "maintenance failed");
                    }
                    MAINTENANCE
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// Lets bulk decisions go on, at the moment their next step is due, and looks for those of other replicas at least twice a
    /// second. Never returns. After a step the store belongs to the callers for [`COURTESY`] times as long as the
    /// step took, whatever the rate.
    pub async fn run_redrives(self: Arc<Self>, backend: Arc<dyn Backend>, wakeup: Arc<Wakeup>) {
        let failure = Sometimes::new();
        loop {
            let began = Instant::now();
            let nap = match backend.step_redrives(None).await {
                Ok(stepped) => {
                    wakeup.stir(&stepped.stir);
                    let due = stepped.next_at.map_or(LONGEST_NAP, |at| {
                        Duration::from_millis((at - stepped.now).max(0) as u64)
                    });
                    let courtesy = if stepped.stepped {
                        (began.elapsed() * COURTESY).max(LEAST_COURTESY)
                    } else {
                        Duration::ZERO
                    };
                    due.min(LONGEST_NAP).max(courtesy)
                }
                Err(error) => {
                    if let Some(unsaid) = failure.now() {
                        tracing::warn!(%error, unsaid, "a redrive could not go on");
                    }
                    AFTER_ERROR
                }
            };
            tokio::select! {
                () = tokio::time::sleep(nap) => {}
                () = self.redrives.notified() => {}
            }
        }
    }

    /// A redrive began or was changed here: look at once.
    pub fn nudge_redrives(&self) {
        self.redrives.notify_one();
    }

    /// Asks for messages that other replicas made ready, while receives wait here. Never returns.
    pub async fn run_poll(self: Arc<Self>, backend: Arc<dyn Backend>, wakeup: Arc<Wakeup>) {
        loop {
            let active = self.known.lock().stirred.elapsed() < ACTIVE_FOR;
            tokio::time::sleep(if active { POLL_ACTIVE } else { POLL_AT_REST }).await;
            let waiting = wakeup.queues();
            if waiting.is_empty() {
                continue;
            }
            match backend.poll(&waiting).await {
                Ok(ready) => {
                    for queue in ready {
                        self.known.lock().stirred = Instant::now();
                        wakeup.one(queue);
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "could not poll for waiting receives");
                    tokio::time::sleep(AFTER_ERROR).await;
                }
            }
        }
    }
}
