//! Scan floors: where the head of a queue was last found.

use crate::model::{Millis, QueueUid};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// From where on the head of each queue and rank is looked for.
///
/// Behind a long transaction, the index entries of messages long gone stay, and a scan from the start walks all of them. So a
/// scan begins a little before the first row that the last one found. Rows before that (committed late, given back by
/// another replica) are found by a full scan: when a scan came back short, and at least every few seconds. Only the order
/// and the delay can suffer, never a message.
#[derive(Default)]
pub(super) struct Floors {
    queues: Mutex<HashMap<i32, Floor>>,
}

struct Floor {
    ranks: [Millis; 10],
    full_at: Instant,
    /// How long the last full scan took.
    cost: Duration,
}

/// Rows may become visible this much later than their time says.
const SLACK_MS: Millis = 2_000;
/// A full scan at least this often.
const FULL_EVERY: Duration = Duration::from_secs(5);
/// A full scan after a short one at most this often, unless full scans are cheap.
const FULL_AFTER_SHORT: Duration = Duration::from_millis(100);
/// A statement that takes less than this walks no dead entries worth sparing.
const CHEAP: Duration = Duration::from_millis(5);

impl Floors {
    /// A row was put back at this place.
    pub(super) fn lower(&self, queue: QueueUid, rank: i16, available_at: Millis) {
        if let Some(floor) = self.queues.lock().get_mut(&queue.0) {
            let rank = &mut floor.ranks[rank.clamp(0, 9) as usize];
            *rank = (*rank).min(available_at);
        }
    }

    /// The floors for a scan; `None`: a full one is due.
    pub(super) fn scan(&self, queue: QueueUid) -> Option<[Millis; 10]> {
        let queues = self.queues.lock();
        let floor = queues.get(&queue.0)?;
        (floor.full_at.elapsed() < FULL_EVERY)
            .then(|| floor.ranks.map(|at| at.saturating_sub(SLACK_MS)))
    }

    /// Whether a bounded scan that came back short should be followed by a full one.
    pub(super) fn look_again(&self, queue: QueueUid) -> bool {
        let queues = self.queues.lock();
        queues
            .get(&queue.0)
            .is_none_or(|f| f.cost < CHEAP || f.full_at.elapsed() >= FULL_AFTER_SHORT)
    }

    /// Learns from a scan: the first place per rank among what it found.
    pub(super) fn learn(
        &self,
        queue: QueueUid,
        found: &[(i16, Millis)],
        full: bool,
        took: Duration,
    ) {
        let mut queues = self.queues.lock();
        if full {
            let empty = Floor {
                ranks: [Millis::MIN; 10],
                full_at: Instant::now(),
                cost: took,
            };
            let floor = queues.entry(queue.0).or_insert(empty);
            (floor.full_at, floor.cost) = (Instant::now(), took);
        }
        let Some(floor) = queues.get_mut(&queue.0) else {
            return;
        };
        let mut first = [None; 10];
        for (rank, at) in found {
            let slot: &mut Option<Millis> = &mut first[(*rank).clamp(0, 9) as usize];
            *slot = Some(slot.map_or(*at, |first| first.min(*at)));
        }
        for (rank, first) in first.into_iter().enumerate() {
            if let Some(first) = first {
                floor.ranks[rank] = first;
            } else if full && found.is_empty() {
                floor.ranks[rank] = Millis::MIN;
            }
        }
    }
}
