//! Leases on their way to a client.

use super::Shared;
use super::intake::{GIVEN_BACK_AT_ONCE, Job};
use crate::backend::{Delivery, Settle};
use crate::model::{MessageId, Millis, Place, Queue};
use crate::rules::settle::{Action, Claim};
use std::sync::{Arc, Weak};

/// Leases that no client has yet. Dropped before [`Held::delivered`], they are given back: the messages return to their old
/// place, nothing is counted (product 4.6). It does not matter where the drop happens: a caller that hung up while the batch
/// committed, a handler that was cancelled, an answer that could not be written.
#[must_use = "dropping it gives the leases back"]
pub struct Held {
    shared: Weak<Shared>,
    queue: Arc<Queue>,
    leases: Vec<(MessageId, i32, Millis)>,
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Held({})", self.leases.len())
    }
}

pub(crate) fn lease_of(delivery: &Delivery) -> (MessageId, i32, Millis) {
    let leased_at = match &delivery.message.place {
        Place::Leased(lease) => lease.leased_at,
        _ => 0,
    };
    (
        delivery.message.envelope.id,
        delivery.message.life.fence,
        leased_at,
    )
}

impl Held {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        queue: Arc<Queue>,
        leases: Vec<(MessageId, i32, Millis)>,
    ) -> Self {
        Self {
            shared: Arc::downgrade(shared),
            queue,
            leases,
        }
    }

    /// The last byte of the answer reached the kernel: from now on only the lease time ends the leases.
    pub fn delivered(mut self) {
        self.leases.clear();
    }

    fn give_back(&self, &(id, fence, handed_out_at): &(MessageId, i32, Millis)) -> Settle {
        Settle {
            queue: self.queue.clone(),
            id,
            claim: Claim {
                fence,
                handed_out_at,
                action: Action::GiveBack,
                chance: 0.0,
            },
        }
    }

    /// Nothing is held.
    pub fn is_empty(&self) -> bool {
        self.leases.is_empty()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.leases.is_empty() {
            return;
        }
        let Some(shared) = self.shared.upgrade() else {
            return;
        };
        tracing::debug!(
            leases = self.leases.len(),
            "an answer could not be delivered: giving the leases back"
        );
        for leases in self.leases.chunks(GIVEN_BACK_AT_ONCE) {
            let settles: Vec<Settle> = leases.iter().map(|lease| self.give_back(lease)).collect();
            let weight = settles.len();
            let job = Job::GiveBack(settles);
            let pushed = shared
                .intake
                .push(self.queue.uid, weight, weight * 256, job);
            if pushed.is_err() {
                tracing::warn!(
                    leases = weight,
                    "could not give leases back: they run out by themselves"
                );
            }
        }
    }
}
