//! Redrives of many: begin one over a selection, watch it, and steer it while it goes on by itself.

use super::{Done, Error, Result, Service, unexpected};
use crate::auth::{Principal, Right};
use quita_storage::backend::{Answer, Call, Operation, OperationRefused};
use quita_storage::model::{Millis, Queue};
use quita_storage::redrives::{
    BulkAction, Redrive, RedriveId, RedriveListing, RedrivePlan, RedriveState, Steer,
};
use std::sync::Arc;

/// A redrive and its queue.
#[derive(Clone, Debug)]
pub struct RedriveView {
    /// How far it is.
    pub redrive: Redrive,
    /// Whose dead letters.
    pub queue: Arc<Queue>,
    /// The store's time as this process knows it: for estimates only.
    pub now: Millis,
}

/// Which redrives to list.
#[derive(Clone, Debug, Default)]
pub struct RedriveFilter {
    /// Of this queue; `None` = of all that the caller may read.
    pub queue: Option<String>,
    /// In this state.
    pub state: Option<RedriveState>,
}

impl Service {
    /// Begins a bulk decision. It goes on by itself, on any replica.
    pub async fn start_redrive(
        &self,
        caller: &Principal,
        call: &Call,
        plan: RedrivePlan,
    ) -> Result<Done<RedriveView>> {
        let (right, absent) = (right_to(plan.action), OperationRefused::SelectionNotFound);
        Self::entitled(caller, right)?;
        let selected = self.find_selection(plan.selection).await?;
        Self::allow(caller, right, &selected.queue, absent)?;
        let operation = Operation::StartRedrive(Box::new(plan));
        self.operate_redrive(call, operation, selected.queue).await
    }

    /// Stops, resumes or changes one that is under way.
    pub async fn steer_redrive(
        &self,
        caller: &Principal,
        call: &Call,
        id: RedriveId,
        steer: Steer,
    ) -> Result<Done<RedriveView>> {
        // Which of the two it takes, the redrive says: who has one of them must not learn from the answer that it is there.
        Self::entitled(caller, Right::Redrive)
            .or_else(|_| Self::entitled(caller, Right::Discard))?;
        let (redrive, queue) = self.find_redrive(id).await?;
        let right = right_to(redrive.plan.action);
        Self::allow(caller, right, &queue, OperationRefused::RedriveNotFound)?;
        let operation = Operation::SteerRedrive { id, steer };
        self.operate_redrive(call, operation, queue).await
    }

    async fn operate_redrive(
        &self,
        call: &Call,
        operation: Operation,
        queue: Arc<Queue>,
    ) -> Result<Done<RedriveView>> {
        let (answer, repeated) = self.operate(call, operation).await?;
        let Answer::Redrive { id } = answer else {
            return Err(unexpected(&answer));
        };
        self.coalescer.timer().nudge_redrives();
        let found = self.backend().redrive(RedriveId(id)).await?;
        let redrive = found.ok_or(OperationRefused::RedriveNotFound)?;
        Ok(Done::new(self.seen(redrive, queue), repeated))
    }

    /// One redrive as it is now.
    pub async fn redrive(&self, caller: &Principal, id: RedriveId) -> Result<RedriveView> {
        let (redrive, queue) = self.find_redrive(id).await?;
        Self::allow(
            caller,
            Right::Read,
            &queue,
            OperationRefused::RedriveNotFound,
        )?;
        Ok(self.seen(redrive, queue))
    }

    async fn find_redrive(&self, id: RedriveId) -> Result<(Redrive, Arc<Queue>)> {
        let absent = || Error::from(OperationRefused::RedriveNotFound);
        let redrive = self.backend().redrive(id).await?.ok_or_else(absent)?;
        let queue = self.catalog.by_uid(redrive.queue).await?;
        let (queue, _) = queue.ok_or_else(absent)?;
        Ok((redrive, queue))
    }

    /// A page of redrives, the youngest first, older than `before`; and whether there are more.
    pub async fn redrives(
        &self,
        caller: &Principal,
        filter: &RedriveFilter,
        before: Option<RedriveId>,
        limit: u32,
    ) -> Result<(Vec<RedriveView>, bool)> {
        let listing = RedriveListing {
            queues: self.readable(caller, filter.queue.as_deref()).await?,
            state: filter.state,
            before,
            limit: limit + 1,
        };
        let mut found = self.backend().redrives(&listing).await?;
        let more = found.len() > limit as usize;
        found.truncate(limit as usize);
        let queues = found.iter().map(|redrive| redrive.queue);
        let named = self.named(queues.collect()).await?;
        let views = found
            .into_iter()
            .filter_map(|redrive| {
                let queue = named.get(&redrive.queue)?.clone();
                Some(self.seen(redrive, queue))
            })
            .collect();
        Ok((views, more))
    }

    fn seen(&self, redrive: Redrive, queue: Arc<Queue>) -> RedriveView {
        RedriveView {
            redrive,
            queue,
            now: self.coalescer.timer().store_now(),
        }
    }
}

/// What a caller must be allowed to do to each message.
fn right_to(action: BulkAction) -> Right {
    match action {
        BulkAction::Redrive => Right::Redrive,
        BulkAction::Discard(_) => Right::Discard,
    }
}
