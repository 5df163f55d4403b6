//! Selections: which dead letters a bulk decision is about, frozen and counted before anybody decides.

use super::{Done, Error, Result, Service, unexpected};
use crate::auth::{Principal, Right};
use quita_storage::backend::{Answer, Call, Listed, Operation, OperationRefused};
use quita_storage::dead_letters::{DeadFilter, Selection, SelectionId};
use quita_storage::model::{MessageId, Place, Queue};
use std::sync::Arc;

/// A selection, its queue, and some of its messages.
#[derive(Clone, Debug)]
pub struct SelectionView {
    /// What was counted.
    pub selection: Selection,
    /// Whose.
    pub queue: Arc<Queue>,
    /// Those of the sample that are dead letters still; empty when nobody asked for it.
    pub sample: Vec<Listed>,
}

impl Service {
    /// Freezes the dead letters that a filter means now.
    pub async fn select(
        &self,
        caller: &Principal,
        call: &Call,
        queue: &str,
        filter: DeadFilter,
    ) -> Result<Done<SelectionView>> {
        let queue = self.queue_for(caller, Right::Read, queue).await?;
        let operation = Operation::Select {
            queue: queue.uid,
            filter: Box::new(filter),
        };
        let (answer, repeated) = self.operate(call, operation).await?;
        let Answer::Selected { id } = answer else {
            return Err(unexpected(&answer));
        };
        // A repeat may come when the selection is forgotten: it is too old by then.
        let found = self.backend().selection(SelectionId(id)).await?;
        let selection = found.ok_or(OperationRefused::SelectionExpired)?;
        let mut sample = Vec::with_capacity(selection.sample.len());
        for id in &selection.sample {
            sample.extend(self.dead_letter(MessageId(*id)).await?);
        }
        let view = SelectionView {
            selection,
            queue,
            sample,
        };
        Ok(Done::new(view, repeated))
    }

    /// A selection as it was frozen, as long as it is remembered.
    pub async fn selection(&self, caller: &Principal, id: SelectionId) -> Result<SelectionView> {
        Self::entitled(caller, Right::Read)?;
        let view = self.find_selection(id).await?;
        let absent = OperationRefused::SelectionNotFound;
        Self::allow(caller, Right::Read, &view.queue, absent)?;
        Ok(view)
    }

    pub(super) async fn find_selection(&self, id: SelectionId) -> Result<SelectionView> {
        let absent = || Error::from(OperationRefused::SelectionNotFound);
        let selection = self.backend().selection(id).await?.ok_or_else(absent)?;
        let queue = self.catalog.by_uid(selection.queue).await?;
        let (queue, _) = queue.ok_or_else(absent)?;
        Ok(SelectionView {
            selection,
            queue,
            sample: Vec::new(),
        })
    }

    async fn dead_letter(&self, id: MessageId) -> Result<Option<Listed>> {
        let detail = self.backend().message(id, None).await?;
        Ok(detail.and_then(|detail| {
            let message = detail.message?;
            matches!(message.place, Place::Dead(_)).then(|| Listed {
                message,
                size: detail.payload.map_or(0, |payload| payload.len() as u32),
                last: detail.deliveries.into_iter().next_back(),
            })
        }))
    }
}
