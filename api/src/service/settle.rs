//! Settle: a receipt and what about it.

use super::{Error, MAX_STALE, Result, Service};
use crate::auth::{Principal, Right};
use quita_storage::backend::{Settle, SettleOutcome};
use quita_storage::model::{MessageId, Queue};
use quita_storage::rules::settle::{Action, Claim, Settled};
use std::sync::Arc;

/// One settle or extend, as the caller gave it. It has no `Debug`: a receipt is as good as a key for its message.
#[derive(Clone)]
pub struct Settlement<'a> {
    /// The delivery, sealed.
    pub receipt: &'a str,
    /// What about it.
    pub action: Action,
}

/// A settle that took effect or had before, and its message.
#[derive(Clone, Debug, PartialEq)]
pub struct SettledMessage {
    /// The message.
    pub id: MessageId,
    /// What became of it.
    pub settled: Settled,
}

impl Service {
    /// Settles; one result per item, in order. Durable when it returns; safe to repeat. A refused one never fails its
    /// neighbours.
    pub async fn settle(
        &self,
        caller: &Principal,
        settlements: Vec<Settlement<'_>>,
    ) -> Result<Vec<Result<SettledMessage>>> {
        Self::entitled(caller, Right::Consume)?;
        let mut results: Vec<Option<Result<SettledMessage>>> =
            Vec::with_capacity(settlements.len());
        let mut items = Vec::with_capacity(settlements.len());
        let mut indexes = Vec::with_capacity(settlements.len());
        for (index, settlement) in settlements.into_iter().enumerate() {
            match self.claim(caller, settlement).await {
                Ok(item) => {
                    items.push(item);
                    indexes.push(index);
                    results.push(None);
                }
                // The store failed: nothing was settled yet, and the whole request says so.
                Err(Error::Store(error)) => return Err(error.into()),
                Err(refused) => results.push(Some(Err(refused))),
            }
        }
        for _ in 0..MAX_STALE {
            if items.is_empty() {
                break;
            }
            let mut again = Vec::new();
            let mut again_indexes = Vec::new();
            let sent = items.clone();
            let outcomes = match self.coalescer.settle(items).await {
                Ok(outcomes) => outcomes,
                Err(error) if results.iter().all(Option::is_none) => return Err(error.into()),
                // Some are settled already: the others alone failed.
                Err(error) => {
                    for index in indexes {
                        results[index] = Some(Err(error.clone().into()));
                    }
                    break;
                }
            };
            for ((index, item), outcome) in indexes.into_iter().zip(sent).zip(outcomes) {
                match outcome {
                    SettleOutcome::Decided(Ok(settled)) => {
                        results[index] = Some(Ok(SettledMessage {
                            id: item.id,
                            settled,
                        }));
                    }
                    SettleOutcome::Decided(Err(refused)) => {
                        results[index] = Some(Err(Error::Settle(refused)));
                    }
                    SettleOutcome::Stale => {
                        again.push(item);
                        again_indexes.push(index);
                    }
                }
            }
            for item in &mut again {
                if let Some((queue, _)) = self.catalog.replace(&item.queue).await? {
                    item.queue = queue;
                }
            }
            (items, indexes) = (again, again_indexes);
        }
        Ok(results
            .into_iter()
            .map(|result| result.unwrap_or(Err(Error::QueueBusy)))
            .collect())
    }

    async fn claim(&self, caller: &Principal, settlement: Settlement<'_>) -> Result<Settle> {
        let receipt = self
            .receipts
            .open(settlement.receipt)
            .ok_or(Error::InvalidReceipt)?;
        if receipt.epoch != self.epoch {
            return Err(Error::ReceiptFromBeforeRestore);
        }
        let queue: Arc<Queue> = match self.catalog.by_uid(receipt.queue).await? {
            Some((queue, _)) => queue,
            None => return Err(Error::ReceiptFromBeforeRestore),
        };
        Self::allow(caller, Right::Consume, &queue, Error::MessageNotFound)?;
        let chance = match settlement.action {
            Action::Nack { .. } => super::chance::chance(),
            _ => 0.0,
        };
        Ok(Settle {
            queue,
            id: receipt.id,
            claim: Claim {
                fence: receipt.fence,
                handed_out_at: receipt.handed_out_at,
                action: settlement.action,
                chance,
            },
        })
    }
}
