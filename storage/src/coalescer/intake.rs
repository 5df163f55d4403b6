//! What waits for a commit: bounded, and fair between queues.

use super::HandedOut;
use crate::backend::{Kinds, Lane, Publish, Published, Receive, Settle, SettleOutcome};
use crate::error::{Result, StoreError};
use crate::model::{Millis, Queue, QueueUid};
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use tokio::sync::{Notify, oneshot};

/// Items of one queue that a batch takes before the next queue has its turn (deficit round robin).
const QUANTUM: usize = 32;

/// Leases that a batch gives back beside publishes, at most. Nobody waits for them, and hundreds may come at once, when many
/// clients that did not read their answers are cut off: each costs SQLite some 60 µs, which the publishes of the batch would
/// wait. A job has no more of them than this.
pub(super) const GIVEN_BACK_AT_ONCE: usize = 8;

/// Bounds of what may wait. Beyond them a caller gets [`StoreError::Overloaded`] at once.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Items that may wait, per kind. Settles may be four times as many: they are shed last.
    pub items: usize,
    /// Bytes that may wait, all kinds together.
    pub bytes: usize,
}

impl Default for Limits {
    /// 10,000 items: at 10,000 items/s the last one waits a second. 256 MiB: a thousand messages of the largest size.
    fn default() -> Self {
        Self {
            items: 10_000,
            bytes: 256 << 20,
        }
    }
}

pub(crate) type Answer<T> = oneshot::Sender<Result<T>>;

/// One request: some items of one kind, and where its answer goes.
pub(crate) enum Job {
    Publish(Vec<Publish>, Answer<Vec<Published>>),
    Settle(Vec<Settle>, Answer<Vec<SettleOutcome>>),
    Receive(Receive, Arc<Queue>, Answer<(HandedOut, Millis)>),
    GiveBack(Vec<Settle>),
}

impl Job {
    fn kind(&self) -> usize {
        match self {
            Self::Settle(..) => SETTLE,
            Self::GiveBack(_) => GIVE_BACK,
            Self::Publish(..) => PUBLISH,
            Self::Receive(..) => RECEIVE,
        }
    }

    /// The caller hung up: nobody is interested in the answer and nothing has happened yet.
    fn abandoned(&self) -> bool {
        match self {
            Self::Publish(_, answer) => answer.is_closed(),
            Self::Settle(_, answer) => answer.is_closed(),
            Self::Receive(_, _, answer) => answer.is_closed(),
            Self::GiveBack(_) => false,
        }
    }

    fn refuse(self, error: StoreError) {
        match self {
            Self::Publish(_, answer) => drop(answer.send(Err(error))),
            Self::Settle(_, answer) => drop(answer.send(Err(error))),
            Self::Receive(_, _, answer) => drop(answer.send(Err(error))),
            Self::GiveBack(_) => {}
        }
    }
}

const SETTLE: usize = 0;
const PUBLISH: usize = 1;
const RECEIVE: usize = 2;
const GIVE_BACK: usize = 3;

struct Waiting {
    weight: usize,
    bytes: usize,
    job: Job,
}

/// The jobs of one kind: a line per queue, and the queues in turn.
#[derive(Default)]
struct Lines {
    by_queue: HashMap<QueueUid, VecDeque<Waiting>>,
    turns: VecDeque<QueueUid>,
    items: usize,
}

impl Lines {
    fn push(&mut self, queue: QueueUid, waiting: Waiting) {
        self.items += waiting.weight;
        let line = self.by_queue.entry(queue).or_default();
        if line.is_empty() {
            self.turns.push_back(queue);
        }
        line.push_back(waiting);
    }

    /// Takes jobs queue by queue, a quantum each, until the bounds; always at least one job when there is one.
    fn take(&mut self, room: &mut Room, into: &mut Vec<Job>) {
        while let Some(queue) = self.turns.pop_front() {
            let Some(line) = self.by_queue.get_mut(&queue) else {
                continue;
            };
            let mut quantum = QUANTUM as isize;
            while quantum > 0 {
                let Some(next) = line.front() else { break };
                if !room.fits(next.weight, next.bytes) {
                    self.turns.push_front(queue);
                    return;
                }
                let Some(waiting) = line.pop_front() else {
                    break;
                };
                self.items -= waiting.weight;
                room.freed += waiting.bytes;
                if waiting.job.abandoned() {
                    continue;
                }
                room.take(waiting.weight, waiting.bytes);
                quantum -= waiting.weight.max(1) as isize;
                into.push(waiting.job);
            }
            if line.is_empty() {
                self.by_queue.remove(&queue);
            } else {
                self.turns.push_back(queue);
            }
        }
    }

    fn empty(&mut self, freed: &mut usize) -> Vec<Job> {
        self.turns.clear();
        self.items = 0;
        let waiting = self.by_queue.drain().flat_map(|(_, line)| line);
        waiting
            .map(|w| {
                *freed += w.bytes;
                w.job
            })
            .collect()
    }
}

/// What a batch may still take.
struct Room {
    items: usize,
    bytes: usize,
    empty: bool,
    freed: usize,
}

impl Room {
    fn fits(&self, weight: usize, bytes: usize) -> bool {
        self.empty || (weight <= self.items && bytes <= self.bytes)
    }

    fn take(&mut self, weight: usize, bytes: usize) {
        self.items = self.items.saturating_sub(weight);
        self.bytes = self.bytes.saturating_sub(bytes);
        self.empty = false;
    }
}

#[derive(Default)]
struct State {
    kinds: [Lines; 4],
    bytes: usize,
    refusing: bool,
    closed: bool,
    lanes_left: usize,
}

pub(crate) struct Intake {
    limits: Limits,
    state: Mutex<State>,
    /// Per lane: rings when something came that it takes.
    bells: Vec<(Kinds, Notify)>,
    drained: Notify,
}

impl Intake {
    pub(crate) fn new(limits: Limits, lanes: &[Lane]) -> Self {
        let state = State {
            lanes_left: lanes.len(),
            ..State::default()
        };
        let bells = lanes
            .iter()
            .map(|lane| (lane.kinds, Notify::new()))
            .collect();
        Self {
            limits,
            state: Mutex::new(state),
            bells,
            drained: Notify::new(),
        }
    }

    pub(crate) fn push(
        &self,
        queue: QueueUid,
        weight: usize,
        bytes: usize,
        job: Job,
    ) -> Result<()> {
        let kind = job.kind();
        {
            let mut state = self.state.lock();
            let settles = matches!(kind, SETTLE | GIVE_BACK);
            if state.closed || (state.refusing && !settles) {
                return Err(StoreError::Draining);
            }
            let (items, room) = if settles {
                (self.limits.items * 4, self.limits.bytes * 2)
            } else {
                (self.limits.items, self.limits.bytes)
            };
            if state.kinds[kind].items + weight > items || state.bytes + bytes > room {
                return Err(StoreError::Overloaded);
            }
            state.bytes += bytes;
            state.kinds[kind].push(queue, Waiting { weight, bytes, job });
        }
        for (kinds, bell) in &self.bells {
            if takes(*kinds, kind) {
                bell.notify_one();
            }
        }
        Ok(())
    }

    /// Everything that waits and that the lane takes, up to its bounds. Waits while there is nothing; `None` once the intake
    /// is closed and empty.
    pub(crate) async fn next(&self, index: usize, lane: &Lane) -> Option<Vec<Job>> {
        loop {
            let mut jobs = Vec::new();
            let closed = {
                let mut state = self.state.lock();
                let mut room = Room {
                    items: lane.max_items,
                    bytes: lane.max_bytes,
                    empty: true,
                    freed: 0,
                };
                for kind in [SETTLE, PUBLISH, RECEIVE, GIVE_BACK] {
                    if kind == GIVE_BACK && lane.kinds.publishes {
                        room.items = room.items.min(GIVEN_BACK_AT_ONCE);
                    }
                    if takes(lane.kinds, kind) {
                        state.kinds[kind].take(&mut room, &mut jobs);
                    }
                }
                state.bytes -= room.freed;
                state.closed
            };
            if !jobs.is_empty() {
                return Some(jobs);
            }
            if closed {
                return None;
            }
            self.bells[index].1.notified().await;
        }
    }

    pub(crate) fn waiting(&self) -> (usize, usize, usize) {
        let state = self.state.lock();
        (
            state.kinds[PUBLISH].items,
            state.kinds[SETTLE].items + state.kinds[GIVE_BACK].items,
            state.kinds[RECEIVE].items,
        )
    }

    pub(crate) fn refuse_new_work(&self) {
        let refused = {
            let mut state = self.state.lock();
            state.refusing = true;
            let mut freed = 0;
            // A receive that waits for a lane would lease messages to a client that is about to be let go.
            let jobs = state.kinds[RECEIVE].empty(&mut freed);
            state.bytes -= freed;
            jobs
        };
        for job in refused {
            job.refuse(StoreError::Draining);
        }
    }

    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        for (_, bell) in &self.bells {
            bell.notify_one();
        }
    }

    pub(crate) fn lane_ended(&self) {
        let mut state = self.state.lock();
        state.lanes_left -= 1;
        if state.lanes_left == 0 {
            self.drained.notify_waiters();
        }
    }

    pub(crate) async fn drained(&self) {
        loop {
            let drained = self.drained.notified();
            tokio::pin!(drained);
            drained.as_mut().enable();
            if self.state.lock().lanes_left == 0 {
                return;
            }
            drained.await;
        }
    }
}

fn takes(kinds: Kinds, kind: usize) -> bool {
    match kind {
        SETTLE | GIVE_BACK => kinds.settles,
        PUBLISH => kinds.publishes,
        _ => kinds.receives,
    }
}
