//! Publish: defaults from the policy, limits, one commit, and an answer that says what is stored.

use super::{Error, MAX_STALE, Result, Service, fingerprint};
use crate::auth::{Principal, Right};
use bytes::Bytes;
use quita_storage::backend::{
    Answer, Call, Duplicate, Expect, Operation, Publish, Published, RequestId,
};
use quita_storage::error::StoreError;
use quita_storage::model::{Backoff, MessageId, Millis, Queue, State};
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// Priority of a message that names none (product 4.10).
pub const DEFAULT_PRIORITY: u8 = 4;

/// A message to publish, as the caller gave it.
#[derive(Clone, Debug)]
pub struct NewMessage {
    /// 1 to 128 bytes, exactly as sent.
    pub client_request_id: Option<Bytes>,
    /// 1 to 256 bytes.
    pub key: Option<Arc<str>>,
    /// `None` = the queue's.
    pub delay_ms: Option<Millis>,
    /// 0 to 9.
    pub priority: u8,
    /// Canonical text of a JSON object with string members; `None` when there are none.
    pub headers: Option<Arc<str>>,
    /// JSON text, byte for byte.
    pub payload: Bytes,
    /// Life span from publish.
    pub expires_in_ms: Option<Millis>,
    /// Overrides the queue's.
    pub max_attempts: Option<u32>,
    /// Overrides the queue's.
    pub backoff: Option<Backoff>,
}

/// What is stored after a publish.
#[derive(Clone, Debug, PartialEq)]
pub enum Stored {
    /// A new message.
    Created {
        /// Its id.
        id: MessageId,
        /// Ready or delayed.
        state: State,
        /// The store's time.
        published_at: Millis,
    },
    /// The first message of this request id or key; nothing was stored now.
    Duplicate(Duplicate),
}

impl Service {
    /// Publishes one message. Durable when it returns; safe to repeat with the same request id.
    pub async fn publish(
        &self,
        caller: &Principal,
        queue: &str,
        message: NewMessage,
    ) -> Result<Stored> {
        let mut queue = self.queue_to_publish(caller, queue).await?;
        for _ in 0..MAX_STALE {
            let item = prepare(&queue, &message)?;
            let published = self.coalescer.publish(vec![item]).await?.pop();
            match published.and_then(decided) {
                Some(stored) => return stored,
                None => queue = self.queue_now(&queue).await?,
            }
        }
        Err(Error::QueueBusy)
    }

    /// Publishes many; one result per message, in order. A refused one never fails its neighbours.
    pub async fn publish_batch(
        &self,
        caller: &Principal,
        queue: &str,
        messages: &[NewMessage],
    ) -> Result<Vec<Result<Stored>>> {
        let queue = self.queue_to_publish(caller, queue).await?;
        self.store(queue, messages).await
    }

    /// Looks the queue up, and creates it where that is allowed.
    async fn queue_to_publish(&self, caller: &Principal, name: &str) -> Result<Arc<Queue>> {
        if caller.may(Right::Publish, name) {
            if self.settings.disk.is_low() {
                return Err(StoreError::DiskLow("min_free_bytes".into()).into());
            }
            if let Some(queue) = self.catalog.find(name).await? {
                return Ok(queue);
            }
            if self.may_create(caller, name) {
                return self.create_queue(caller, name).await;
            }
        }
        Err(self.no_such_queue(caller, Right::Publish, name).await)
    }

    pub(super) fn may_create(&self, caller: &Principal, name: &str) -> bool {
        self.settings.auto_create_queues && caller.may(Right::Manage, name)
    }

    async fn create_queue(&self, caller: &Principal, name: &str) -> Result<Arc<Queue>> {
        let call = Call {
            actor: caller.id.clone(),
            ..Call::default()
        };
        let operation = Operation::PutQueue {
            name: name.into(),
            policy: Box::new(self.settings.default_policy.clone()),
            expect: Expect::Absent,
        };
        let (answer, _) = self.operate(&call, operation).await?;
        let found = self.catalog.look(name).await?;
        if let Answer::Queue { created: true, .. } = answer {
            self.catalog.created(name);
        }
        found.ok_or(Error::QueueBusy)
    }

    /// The queue as it is now.
    async fn queue_now(&self, queue: &Arc<Queue>) -> Result<Arc<Queue>> {
        match self.catalog.replace(queue).await? {
            Some((queue, false)) => Ok(queue),
            _ => Err(Error::QueueNotFound { nearest: None }),
        }
    }

    async fn store(
        &self,
        mut queue: Arc<Queue>,
        messages: &[NewMessage],
    ) -> Result<Vec<Result<Stored>>> {
        let mut results: Vec<Option<Result<Stored>>> = Vec::new();
        results.resize_with(messages.len(), || None);
        for _ in 0..MAX_STALE {
            let mut indexes = Vec::with_capacity(messages.len());
            let mut items = Vec::with_capacity(messages.len());
            for (index, message) in messages.iter().enumerate() {
                if results[index].is_some() {
                    continue;
                }
                match prepare(&queue, message) {
                    Ok(item) => {
                        items.push(item);
                        indexes.push(index);
                    }
                    Err(refused) => results[index] = Some(Err(refused)),
                }
            }
            if items.is_empty() {
                break;
            }
            let outcomes = match self.coalescer.publish(items).await {
                Ok(outcomes) => outcomes,
                Err(error) if results.iter().all(Option::is_none) => return Err(error.into()),
                // Some are decided already: the others alone failed.
                Err(error) => {
                    for index in indexes {
                        results[index] = Some(Err(error.clone().into()));
                    }
                    break;
                }
            };
            let mut stale = false;
            for (index, outcome) in indexes.into_iter().zip(outcomes) {
                results[index] = decided(outcome);
                stale |= results[index].is_none();
            }
            if !stale {
                break;
            }
            queue = match self.queue_now(&queue).await {
                Ok(queue) => queue,
                Err(Error::QueueNotFound { .. }) => return gone(results),
                Err(error) => return Err(error),
            };
        }
        Ok(results
            .into_iter()
            .map(|result| result.unwrap_or(Err(Error::QueueBusy)))
            .collect())
    }
}

/// `None`: the queue has changed meanwhile.
fn decided(published: Published) -> Option<Result<Stored>> {
    match published {
        Published::Created {
            id,
            state,
            published_at,
        } => Some(Ok(Stored::Created {
            id,
            state,
            published_at,
        })),
        Published::Duplicate(duplicate) => Some(Ok(Stored::Duplicate(duplicate))),
        Published::Conflict { id } => Some(Err(Error::RequestIdConflict { id })),
        Published::Full => Some(Err(Error::QueueFull)),
        Published::Stale => None,
    }
}

/// The queue was deleted while the messages were on their way. When none of them took effect the whole request is refused.
fn gone(results: Vec<Option<Result<Stored>>>) -> Result<Vec<Result<Stored>>> {
    let absent = || Error::QueueNotFound { nearest: None };
    if results.iter().all(Option::is_none) {
        return Err(absent());
    }
    Ok(results
        .into_iter()
        .map(|result| result.unwrap_or_else(|| Err(absent())))
        .collect())
}

fn prepare(queue: &Arc<Queue>, message: &NewMessage) -> Result<Publish> {
    let policy = &queue.policy;
    let size = message.payload.len()
        + message.key.as_ref().map_or(0, |k| k.len())
        + message.headers.as_ref().map_or(0, |h| h.len());
    if size > policy.max_message_bytes as usize {
        return Err(Error::PayloadTooLarge {
            limit: policy.max_message_bytes,
            size,
        });
    }
    if policy.unique_key && message.key.is_none() {
        return Err(Error::KeyRequired);
    }
    let delay_ms = message.delay_ms.unwrap_or(policy.delay_ms);
    if message.expires_in_ms.is_some_and(|ms| ms <= delay_ms) {
        return Err(Error::ExpiresBeforeAvailable);
    }
    let request_id = message.client_request_id.as_ref().map(|text| RequestId {
        digest: digest(text),
        text: text.clone(),
    });
    // Nothing is ever compared with a message that has neither id nor key.
    let fingerprint = if request_id.is_some() || message.key.is_some() {
        fingerprint::of_message(
            &message.payload,
            message.key.as_deref(),
            message.headers.as_deref(),
        )
    } else {
        0
    };
    Ok(Publish {
        queue: queue.clone(),
        request_id,
        fingerprint,
        key: message.key.clone(),
        delay_ms,
        priority: message.priority,
        headers: message.headers.clone(),
        payload: message.payload.clone(),
        expires_in_ms: message.expires_in_ms,
        max_attempts: message.max_attempts,
        backoff: message.backoff.clone(),
    })
}

/// The digest under which a request id is stored.
pub fn digest(request_id: &[u8]) -> [u8; 16] {
    let mut first = [0u8; 16];
    first.copy_from_slice(&Sha256::digest(request_id)[..16]);
    first
}
