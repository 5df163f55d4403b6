//! Who waits for which queue.
//!
//! A waiting receive is a registration here and nothing else: no database connection, no timer of its own, no polling.
//! Waiters of a queue form a line; k messages that became ready wake the first k. A waiter that was woken and goes away
//! without asking hands its turn to the next one, so no wake-up is lost with a client that hung up.

use crate::backend::Stir;
use crate::model::QueueUid;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

#[derive(Default)]
struct Slot {
    line: Arc<Notify>,
    waiting: usize,
}

/// The lines of waiting receives, by queue.
#[derive(Default)]
pub struct Wakeup {
    slots: Mutex<HashMap<QueueUid, Slot>>,
}

impl Wakeup {
    /// Joins the line of `queue`. Join first, look for messages second, wait third: then nothing that becomes ready in
    /// between is missed.
    pub fn join(self: &Arc<Self>, queue: QueueUid) -> Waiter {
        let mut slots = self.slots.lock();
        let slot = slots.entry(queue).or_default();
        slot.waiting += 1;
        let mut turn = Box::pin(slot.line.clone().notified_owned());
        turn.as_mut().enable();
        Waiter {
            wakeup: self.clone(),
            queue,
            turn,
        }
    }

    /// Wakes as many waiters as messages became ready.
    pub fn stir(&self, stir: &Stir) {
        if stir.ready.is_empty() {
            return;
        }
        let slots = self.slots.lock();
        for (queue, count) in &stir.ready {
            if let Some(slot) = slots.get(queue) {
                for _ in 0..(*count as usize).min(slot.waiting) {
                    slot.line.notify_one();
                }
            }
        }
    }

    /// Wakes the first in the line of `queue`.
    pub fn one(&self, queue: QueueUid) {
        if let Some(slot) = self.slots.lock().get(&queue) {
            slot.line.notify_one();
        }
    }

    /// Wakes everybody in the line of `queue`: it was paused, resumed, changed or deleted.
    pub fn all(&self, queue: QueueUid) {
        if let Some(slot) = self.slots.lock().get(&queue) {
            slot.line.notify_waiters();
        }
    }

    /// The queues that somebody waits for.
    pub fn queues(&self) -> Vec<QueueUid> {
        self.slots.lock().keys().copied().collect()
    }

    /// How many receives wait.
    pub fn waiting(&self) -> usize {
        self.slots.lock().values().map(|s| s.waiting).sum()
    }
}

/// A place in a line. Dropping it leaves the line.
pub struct Waiter {
    wakeup: Arc<Wakeup>,
    queue: QueueUid,
    turn: Pin<Box<OwnedNotified>>,
}

impl Waiter {
    /// Waits for the turn. Afterwards this place is used up: join again before looking.
    pub async fn turn(&mut self) {
        self.turn.as_mut().await;
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut slots = self.wakeup.slots.lock();
        if let Some(slot) = slots.get_mut(&self.queue) {
            slot.waiting -= 1;
            if slot.waiting == 0 {
                slots.remove(&self.queue);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn ready(queue: QueueUid, count: u32) -> Stir {
        Stir {
            ready: vec![(queue, count)],
            next_due: None,
        }
    }

    #[test]
    fn one_message_wakes_one_waiter_and_the_first_in_line() {
        let wakeup = Arc::new(Wakeup::default());
        let queue = QueueUid(1);
        let (mut first, mut second) = (wakeup.join(queue), wakeup.join(queue));
        wakeup.stir(&ready(queue, 1));
        assert!(second.turn().now_or_never().is_none());
        assert!(first.turn().now_or_never().is_some());
    }

    #[test]
    fn a_waiter_that_leaves_hands_its_turn_on() {
        let wakeup = Arc::new(Wakeup::default());
        let queue = QueueUid(1);
        let first = wakeup.join(queue);
        let mut second = wakeup.join(queue);
        wakeup.stir(&ready(queue, 1));
        drop(first);
        assert!(second.turn().now_or_never().is_some());
    }

    #[test]
    fn another_queue_wakes_nobody_and_an_empty_line_is_forgotten() {
        let wakeup = Arc::new(Wakeup::default());
        let mut waiter = wakeup.join(QueueUid(1));
        wakeup.stir(&ready(QueueUid(2), 5));
        assert!(waiter.turn().now_or_never().is_none());
        drop(waiter);
        assert_eq!(wakeup.waiting(), 0);
        assert!(wakeup.queues().is_empty());
    }

    #[test]
    fn what_becomes_ready_between_joining_and_waiting_is_not_missed() {
        let wakeup = Arc::new(Wakeup::default());
        let mut waiter = wakeup.join(QueueUid(1));
        wakeup.stir(&ready(QueueUid(1), 1));
        assert!(waiter.turn().now_or_never().is_some());
    }
}
