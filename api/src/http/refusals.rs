//! From what an operation refuses to what the caller reads. Exhaustive: a new refusal does not compile until it is here.

use super::problem::{Code, Effect, Problem};
use crate::auth::AuthFailure;
use crate::limit::Limit;
use crate::service::Error;
use quita_storage::backend::OperationRefused;
use quita_storage::error::StoreError;
use quita_storage::rules::settle::Refused;

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        match error {
            Error::QueueNotFound { nearest: None } => Code::QueueNotFound.into(),
            Error::QueueNotFound {
                nearest: Some(name),
            } => Self::new(
                Code::QueueNotFound,
                format!("There is no queue of this name. Did you mean {name}?"),
            ),
            Error::MessageNotFound => Self::new(Code::NotFound, "There is no message of this id."),
            Error::KeyNotFound => Self::new(Code::NotFound, "There is no key of this id."),
            Error::WiderThanCaller => Code::WiderThanCaller.into(),
            Error::KeyEnded => Code::KeyEnded.into(),
            Error::NotAllowedAnywhere => Code::InsufficientScope.into(),
            Error::RequestIdConflict { id } => Self::at(
                Code::ClientRequestIdConflict,
                "/client_request_id",
                format!("The id belongs to {id}, which has another body."),
            ),
            Error::KeyRequired => {
                Self::at(Code::KeyRequired, "/key", "The queue has unique_key set.")
            }
            Error::PayloadTooLarge { limit, size } => Self::at(
                Code::PayloadTooLarge,
                "/message",
                format!("Message, key and headers are {size} bytes; the limit is {limit} bytes."),
            ),
            Error::ExpiresBeforeAvailable => Self::at(
                Code::OutOfRange,
                "/expires_in_seconds",
                "The message would expire before its delay is over.",
            ),
            Error::QueueFull => Code::QueueFull.into(),
            Error::InvalidReceipt => Self::at(
                Code::InvalidReceipt,
                "/receipt",
                "The receipt was not made by this store.",
            ),
            Error::ReceiptFromBeforeRestore => Code::ReceiptFromBeforeRestore.into(),
            Error::Settle(refused) => refused.into(),
            Error::Operation(refused) => refused.into(),
            Error::QueueBusy => {
                Self::new(Code::Overloaded, "The queue is being changed too often.")
            }
            Error::TooManyWaiting => Self::new(Code::Overloaded, "Too many receives are waiting.")
                .by(Limit::WaitingReceives),
            Error::TooManyWaitingOfKey => Self::new(
                Code::RateLimited,
                "Too many receives of this key are waiting.",
            )
            .by(Limit::WaitingReceivesPerKey),
            Error::Store(error) => error.into(),
        }
    }
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        let kept = |code: Code, remembered: bool| {
            let problem = Self::from(code);
            if remembered {
                problem.with_effect(Effect::CompletionRemembered)
            } else {
                problem
            }
        };
        match refused {
            Refused::LeaseExpired => Code::LeaseExpired.into(),
            Refused::LeaseSuperseded { remembered } => kept(Code::LeaseSuperseded, remembered),
            Refused::TakenByOperator { remembered } => kept(Code::TakenByOperator, remembered),
            Refused::ReceiptSpent => Code::ReceiptSpent.into(),
            Refused::MessageGone => Code::MessageGone.into(),
            Refused::FromBeforeRestore => Code::ReceiptFromBeforeRestore.into(),
        }
    }
}

impl From<OperationRefused> for Problem {
    fn from(refused: OperationRefused) -> Self {
        match refused {
            OperationRefused::MessageNotFound => Error::MessageNotFound.into(),
            OperationRefused::QueueNotFound => Code::QueueNotFound.into(),
            OperationRefused::NotDead => Code::NotDead.into(),
            OperationRefused::AlreadyDead => Code::AlreadyDead.into(),
            OperationRefused::NotWaiting => Code::NotWaiting.into(),
            OperationRefused::NotDelayed => Code::NotDelayed.into(),
            OperationRefused::RedriveLimit => Code::RedriveLimit.into(),
            OperationRefused::CompletionRemembered => Code::CompletionRemembered.into(),
            OperationRefused::Expired => Code::Expired.into(),
            OperationRefused::VersionMismatch => Code::PreconditionFailed.into(),
            OperationRefused::QueueNotEmpty => Code::QueueNotEmpty.into(),
            OperationRefused::KeysNotUnique => Code::KeysNotUnique.into(),
            OperationRefused::NotDiscarded => Code::NotDiscarded.into(),
            OperationRefused::PayloadGone => Code::PayloadGone.into(),
            OperationRefused::KeyTaken => Code::KeyTaken.into(),
            OperationRefused::NotEdited => Code::NotEdited.into(),
            OperationRefused::RevisionConflict => Code::RevisionConflict.into(),
            OperationRefused::RevisionLimit => Code::RevisionLimit.into(),
            OperationRefused::SelectionNotFound => {
                Self::new(Code::NotFound, "There is no selection of this id.")
            }
            OperationRefused::RedriveNotFound => {
                Self::new(Code::NotFound, "There is no redrive of this id.")
            }
            OperationRefused::SelectionExpired => Code::SelectionExpired.into(),
            OperationRefused::CountMismatch { actual } => Self::new(
                Code::CountMismatch,
                format!("The selection has {actual} messages."),
            ),
            OperationRefused::RedriveFinished => Code::RedriveFinished.into(),
            OperationRefused::RequestIdConflict => Self::at(
                Code::ClientRequestIdConflict,
                "/client_request_id",
                "The id was used for another call.",
            ),
        }
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        let code = match &error {
            StoreError::Unavailable(_) => Code::StorageUnavailable,
            StoreError::CommitUnknown(_) => Code::OutcomeUnknown,
            StoreError::DiskLow(_) => Code::DiskLow,
            StoreError::Overloaded => {
                return Self::from(Code::Overloaded)
                    .by(Limit::WaitingItems)
                    .because(error);
            }
            StoreError::Draining => Code::Draining,
            // The store says that it surely had no effect, which is more than the table promises.
            StoreError::Internal(_) => {
                return Self::from(Code::Internal)
                    .with_effect(Effect::None)
                    .because(error);
            }
        };
        Self::from(code).because(error)
    }
}

impl From<AuthFailure> for Problem {
    fn from(failure: AuthFailure) -> Self {
        match failure {
            AuthFailure::MissingCredentials => Code::MissingCredentials.into(),
            AuthFailure::UnsupportedScheme => Code::UnsupportedScheme.into(),
            AuthFailure::InvalidKey => Code::InvalidKey.into(),
            AuthFailure::InvalidToken | AuthFailure::ExpiredToken => Code::InvalidToken.into(),
            AuthFailure::IssuerUnavailable => Code::IssuerUnavailable.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remembered_completion_is_said() {
        for remembered in [true, false] {
            for refused in [
                Refused::LeaseSuperseded { remembered },
                Refused::TakenByOperator { remembered },
            ] {
                let json = Problem::from(refused).to_json(None);
                assert_eq!(
                    json.contains(r#""effect":"completion_remembered""#),
                    remembered
                );
                assert_eq!(json.contains(r#""effect":"none""#), !remembered);
            }
        }
    }

    #[test]
    fn only_an_unknown_commit_says_that_the_effect_is_unknown() {
        let unknown = Problem::from(StoreError::CommitUnknown("x".into())).to_json(None);
        assert!(unknown.contains(r#""effect":"unknown""#));
        for error in [
            StoreError::unavailable("secret"),
            StoreError::DiskLow("secret".into()),
            StoreError::Overloaded,
            StoreError::Draining,
            StoreError::internal("secret"),
        ] {
            let json = Problem::from(error).to_json(None);
            assert!(
                json.contains(r#""effect":"none""#) && !json.contains("secret"),
                "{json}"
            );
        }
    }
}
