//! Everything that an operation may refuse, as data.

use quita_storage::backend::OperationRefused;
use quita_storage::error::StoreError;
use quita_storage::model::MessageId;
use quita_storage::rules::settle::Refused;
use std::sync::Arc;

/// Why an operation was refused or failed.
#[derive(Clone, Debug)]
pub enum Error {
    /// No such queue, or not the caller's.
    QueueNotFound {
        /// A name like it that the caller may see.
        nearest: Option<Arc<str>>,
    },
    /// No such message, or not the caller's.
    MessageNotFound,
    /// No key of this id.
    KeyNotFound,
    /// The key allows more than the caller may.
    WiderThanCaller,
    /// The key is revoked or over.
    KeyEnded,
    /// The caller has the right on no queue.
    NotAllowedAnywhere,
    /// The request id belongs to a message with another body.
    RequestIdConflict {
        /// That message.
        id: MessageId,
    },
    /// The queue wants a key with every message.
    KeyRequired,
    /// Message, key and headers are too large together.
    PayloadTooLarge {
        /// Bytes allowed.
        limit: u32,
        /// Bytes sent.
        size: usize,
    },
    /// It would expire before it becomes available.
    ExpiresBeforeAvailable,
    /// `max_depth` is reached.
    QueueFull,
    /// The receipt was not made by this store.
    InvalidReceipt,
    /// The receipt was made before the store was restored.
    ReceiptFromBeforeRestore,
    /// A settle that the rules refuse.
    Settle(Refused),
    /// An operation that the store refuses.
    Operation(OperationRefused),
    /// The queue kept changing under the request.
    QueueBusy,
    /// No room for another waiting receive.
    TooManyWaiting,
    /// No room for another waiting receive of the same caller.
    TooManyWaitingOfKey,
    /// The store failed.
    Store(StoreError),
}

/// Result of an operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<OperationRefused> for Error {
    fn from(refused: OperationRefused) -> Self {
        match refused {
            OperationRefused::MessageNotFound => Self::MessageNotFound,
            OperationRefused::QueueNotFound => Self::QueueNotFound { nearest: None },
            refused => Self::Operation(refused),
        }
    }
}
