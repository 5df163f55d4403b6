//! What can go wrong in a store, apart from refusals: those are outcomes.

use std::sync::Arc;

/// Why a whole batch or call failed. Clonable, since every caller of a batch gets its own copy.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// The store cannot be reached or refuses to work. Surely no effect.
    #[error("the store is unavailable: {0}")]
    Unavailable(Arc<str>),
    /// The commit may or may not have happened. Repeat with the same request id or receipt.
    #[error("the outcome of the commit is unknown: {0}")]
    CommitUnknown(Arc<str>),
    /// Too little disk for new messages. Surely no effect.
    #[error("too little disk space: {0}")]
    DiskLow(Arc<str>),
    /// Too much is waiting already. Surely no effect.
    #[error("too many requests are waiting")]
    Overloaded,
    /// The server is stopping. Surely no effect.
    #[error("the server is stopping")]
    Draining,
    /// Something that this version does not understand or a broken invariant. Surely no effect.
    #[error("internal: {0}")]
    Internal(Arc<str>),
}

impl StoreError {
    /// [`StoreError::Unavailable`] with the error's text.
    pub fn unavailable(error: impl std::fmt::Display) -> Self {
        Self::Unavailable(error.to_string().into())
    }

    /// [`StoreError::Internal`] with the error's text.
    pub fn internal(error: impl std::fmt::Display) -> Self {
        Self::Internal(error.to_string().into())
    }
}

/// Result of a storage call.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;
