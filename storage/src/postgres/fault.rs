//! What a failed statement means for the one who sent it.

use crate::error::StoreError;
use crate::model::Millis;
use std::time::Duration;

/// Why an attempt did not succeed.
#[derive(Debug)]
pub(super) enum Fault {
    /// Somebody was in the way, or moved a row that was just read: nothing happened, a fresh snapshot helps.
    Again(String),
    /// The session is of no use any more: nothing happened, a new connection helps.
    Reopen(String),
    /// A message id is taken: nothing happened, new ids help.
    IdTaken,
    /// The connection is gone; whether the statement took effect is open.
    Lost(String),
    /// Nothing happened, and repeating is up to the caller.
    Store(StoreError),
}

/// How often an attempt is repeated before the caller gets [`StoreError::Unavailable`].
pub(super) const TRIES: u32 = 12;

impl Fault {
    /// Somebody moved a row between reading and writing it.
    pub(super) fn moved(what: &str) -> Self {
        Self::Again(format!("{what} was moved meanwhile"))
    }

    /// The error for a caller when no further attempt is made and the statement was not a commit.
    pub(super) fn into_error(self) -> StoreError {
        match self {
            Self::Again(text) | Self::Reopen(text) | Self::Lost(text) => {
                StoreError::unavailable(text)
            }
            Self::IdTaken => StoreError::unavailable("message ids clash"),
            Self::Store(error) => error,
        }
    }
}

/// Pause before attempt number `attempt`, growing to some milliseconds: long enough for the other side to commit.
pub(super) async fn pause(attempt: u32) {
    let most = 1u64 << attempt.min(6);
    let millis = rand::random_range(0..=most);
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<sqlx::Error> for Fault {
    fn from(error: sqlx::Error) -> Self {
        let text = error.to_string();
        let sqlx::Error::Database(database) = &error else {
            return match error {
                sqlx::Error::PoolTimedOut
                | sqlx::Error::PoolClosed
                | sqlx::Error::Configuration(_) => Self::Store(StoreError::unavailable(text)),
                sqlx::Error::Io(_)
                | sqlx::Error::Tls(_)
                | sqlx::Error::Protocol(_)
                | sqlx::Error::WorkerCrashed => Self::Lost(text),
                _ => Self::Store(StoreError::internal(text)),
            };
        };
        let code = database.code().unwrap_or_default();
        match &*code {
            "23505" if database.constraint() == Some("message_pkey") => Self::IdTaken,
            // Serialization failure, dead-lock, lock timeout; a unique key that somebody else wrote first, which the next
            // snapshot sees.
            "40001" | "40P01" | "55P03" | "23505" => Self::Again(text),
            "53100" => Self::Store(StoreError::DiskLow(text.into())),
            // Statement timeout; a server that became a standby.
            "57014" | "25006" => Self::Store(StoreError::unavailable(text)),
            // 25P03, 25P04: ended for idling in a transaction. 57P0x: the server stops, starts or crashed.
            "25P03" | "25P04" => Self::Lost(text),
            other if other.starts_with("57P") || other.starts_with("08") => Self::Lost(text),
            other if other.starts_with("53") => Self::Store(StoreError::unavailable(text)),
            _ => Self::Store(StoreError::internal(format!("{code}: {text}"))),
        }
    }
}

/// The instant that a statement works with: the store's clock, or a test's.
pub(super) type Now = Option<Millis>;
