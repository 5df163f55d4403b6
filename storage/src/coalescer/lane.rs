//! A lane: take everything that waits, commit it, answer, repeat.

use super::intake::{Answer, Job};
use super::{HandedOut, Shared};
use crate::backend::{Batch, BatchOutcome, Lane, Published, Received, SettleOutcome};
use crate::error::{Result, StoreError};
use crate::model::{Millis, Queue};
use std::sync::Arc;

/// Runs a lane until the intake is closed and empty: as a task, or on a thread of its own when the store's commit blocks.
pub(crate) fn spawn(shared: Arc<Shared>, index: usize, lane: Lane) {
    if lane.dedicated {
        let runtime = tokio::runtime::Handle::current();
        let run = move || runtime.block_on(run(shared, index, lane));
        let spawned = std::thread::Builder::new()
            .name(format!("quita-lane-{index}"))
            .spawn(run);
        if let Err(error) = spawned {
            tracing::error!(%error, "a lane could not start");
        }
    } else {
        tokio::spawn(run(shared, index, lane));
    }
}

async fn run(shared: Arc<Shared>, index: usize, lane: Lane) {
    while let Some(jobs) = shared.intake.next(index, &lane).await {
        commit(&shared, gather(jobs)).await;
    }
    shared.intake.lane_ended();
}

/// Commits a batch and answers its callers.
///
/// When the store refuses a batch for an internal reason, one request in it may be the culprit: the batch is halved until
/// that request stands alone, so that its neighbours do not fail with it. Nothing is repeated whose effect is unknown, or
/// whose cause would meet every half alike.
async fn commit(shared: &Arc<Shared>, gathered: (Batch, Vec<Caller>)) {
    let mut left = vec![gathered];
    while let Some((batch, callers)) = left.pop() {
        let outcome = shared.backend.apply(&batch, None).await;
        match &outcome {
            Ok(outcome) => shared.stirred(&outcome.stir, outcome.now),
            Err(StoreError::Internal(why)) => {
                tracing::error!(items = batch.len(), %why, "a batch failed");
                if callers.len() > 1 {
                    let (first, second) = halve(batch, callers);
                    left.push(second);
                    left.push(first);
                    continue;
                }
            }
            Err(_) => {}
        }
        hand_back(shared, callers, outcome);
    }
}

/// Splits a batch at the middle of its callers, keeping the order.
fn halve(mut batch: Batch, callers: Vec<Caller>) -> ((Batch, Vec<Caller>), (Batch, Vec<Caller>)) {
    let middle = callers.len() / 2;
    let (mut first, mut second) = (
        (Batch::default(), Vec::new()),
        (Batch::default(), Vec::new()),
    );
    for (index, caller) in callers.into_iter().enumerate() {
        let half = if index < middle {
            &mut first
        } else {
            &mut second
        };
        match &caller {
            Caller::Publish(count, _) => half.0.publishes.extend(batch.publishes.drain(..*count)),
            Caller::Settle(count, _) | Caller::Nobody(count) => {
                half.0.settles.extend(batch.settles.drain(..*count));
            }
            Caller::Receive(..) => half.0.receives.extend(batch.receives.drain(..1)),
        }
        half.1.push(caller);
    }
    (first, second)
}

/// Who gets how many of the outcomes, in the order of the batch.
enum Caller {
    Publish(usize, Answer<Vec<Published>>),
    Settle(usize, Answer<Vec<SettleOutcome>>),
    Receive(Arc<Queue>, Answer<(HandedOut, Millis)>),
    Nobody(usize),
}

fn gather(jobs: Vec<Job>) -> (Batch, Vec<Caller>) {
    let mut batch = Batch::default();
    let mut callers = Vec::with_capacity(jobs.len());
    for job in jobs {
        callers.push(match job {
            Job::Publish(items, answer) => {
                let count = items.len();
                batch.publishes.extend(items);
                Caller::Publish(count, answer)
            }
            Job::Settle(items, answer) => {
                let count = items.len();
                batch.settles.extend(items);
                Caller::Settle(count, answer)
            }
            Job::Receive(item, queue, answer) => {
                batch.receives.push(item);
                Caller::Receive(queue, answer)
            }
            Job::GiveBack(items) => {
                let count = items.len();
                batch.settles.extend(items);
                Caller::Nobody(count)
            }
        });
    }
    (batch, callers)
}

fn hand_back(shared: &Arc<Shared>, callers: Vec<Caller>, outcome: Result<BatchOutcome>) {
    match outcome {
        Err(error) => {
            for caller in callers {
                match caller {
                    Caller::Publish(_, answer) => drop(answer.send(Err(error.clone()))),
                    Caller::Settle(_, answer) => drop(answer.send(Err(error.clone()))),
                    Caller::Receive(_, answer) => drop(answer.send(Err(error.clone()))),
                    Caller::Nobody(_) => {}
                }
            }
        }
        Ok(outcome) => {
            let mut publishes = outcome.publishes.into_iter();
            let mut settles = outcome.settles.into_iter();
            let mut receives = outcome.receives.into_iter();
            for caller in callers {
                match caller {
                    Caller::Publish(count, answer) => {
                        drop(answer.send(Ok(publishes.by_ref().take(count).collect())));
                    }
                    Caller::Settle(count, answer) => {
                        drop(answer.send(Ok(settles.by_ref().take(count).collect())));
                    }
                    Caller::Nobody(count) => drop(settles.by_ref().take(count).count()),
                    Caller::Receive(queue, answer) => {
                        let received = receives.next().unwrap_or(Received::Messages(Vec::new()));
                        // A send that fails drops the leases, and a drop gives them back.
                        drop(
                            answer.send(Ok((HandedOut::new(shared, queue, received), outcome.now))),
                        );
                    }
                }
            }
        }
    }
}
