//! Who calls: from an `Authorization` header to a [`Principal`].
//!
//! Reading order: [`ApiKey`] (the text of a key) → [`Authenticator`] (is it one of ours) → [`first_key`] (where the first
//! one comes from). Keys are looked up in a copy of the store's list, so that a request costs one hash and no I/O; the copy
//! is renewed every [`REFRESH`], and that is how soon a revoked key stops working.

pub mod first_key;
mod key;

pub use key::ApiKey;

use http::HeaderValue;
use parking_lot::RwLock;
use quita_storage::backend::{Backend, KeyRecord};
use quita_storage::error::Result as StoreResult;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use subtle::ConstantTimeEq;

/// How often the copy of the keys is renewed. A revoked key must be refused within 5 s everywhere; this leaves room for one
/// round that fails.
pub const REFRESH: Duration = Duration::from_millis(1_500);

/// The one scope there is at this step.
pub const ADMIN: &str = "admin";

/// What a caller may be allowed to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Right {
    /// Publish messages.
    Publish,
    /// Receive and settle messages.
    Consume,
    /// See queues, counts and listings.
    Read,
    /// See what is inside a message without receiving it.
    Payload,
    /// Create, change, pause, purge and delete queues.
    Manage,
    /// Give dead letters another round.
    Redrive,
    /// Throw messages away for good.
    Discard,
    /// Read the audit trail.
    Audit,
    /// Create and revoke keys.
    Keys,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    Admin,
    /// A scope that this version does not know allows nothing.
    Unknown,
}

/// A caller who proved who it is.
#[derive(Clone, Debug)]
pub struct Principal {
    /// The public part of its key: what audit rows name.
    pub id: Arc<str>,
    scope: Scope,
}

impl Principal {
    /// Whether this caller may do that to this queue. Decided from memory.
    pub fn may(&self, _right: Right, _queue: &str) -> bool {
        self.scope == Scope::Admin
    }

    /// Whether this caller may do that to every queue, and to what belongs to no queue.
    pub fn may_everywhere(&self, _right: Right) -> bool {
        self.scope == Scope::Admin
    }

    /// Whether there can be a queue to which this caller may do that.
    pub fn may_somewhere(&self, right: Right) -> bool {
        self.may_everywhere(right)
    }

    /// A caller that may do everything: for work the server does in its own name, and for tests.
    pub fn admin(id: &str) -> Self {
        Self {
            id: id.into(),
            scope: Scope::Admin,
        }
    }
}

/// Why a caller is not known. An unknown, a wrong and a revoked key are one and the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthFailure {
    /// No `Authorization` header, or an empty one.
    MissingCredentials,
    /// Another scheme than `Bearer`.
    UnsupportedScheme,
    /// Not a key that is good now.
    InvalidKey,
}

struct Known {
    secret_hash: [u8; 32],
    revoked: bool,
    principal: Principal,
}

type Keys = HashMap<[u8; key::ID], Known>;

/// Tells callers by their keys.
pub struct Authenticator {
    backend: Arc<dyn Backend>,
    keys: RwLock<Arc<Keys>>,
}

impl Authenticator {
    /// Reads the keys of the store.
    pub async fn load(backend: Arc<dyn Backend>) -> StoreResult<Self> {
        let auth = Self {
            backend,
            keys: RwLock::default(),
        };
        auth.refresh().await?;
        Ok(auth)
    }

    /// Renews the copy of the keys.
    pub async fn refresh(&self) -> StoreResult<()> {
        let keys = self.backend.keys().await?;
        *self.keys.write() = Arc::new(keys.into_iter().filter_map(known).collect());
        Ok(())
    }

    /// Renews the copy of the keys again and again. Never returns. While the store cannot be read the last copy counts:
    /// a store that cannot be read does nothing for anybody anyway.
    pub async fn run_refresh(self: Arc<Self>) {
        loop {
            tokio::time::sleep(REFRESH).await;
            if let Err(error) = self.refresh().await {
                tracing::warn!(%error, "could not read the API keys again");
            }
        }
    }

    /// Who sent this `Authorization` header.
    #[expect(
        clippy::unused_async,
        reason = "a scheme whose answer must be waited for may not change the signature"
    )]
    pub async fn authenticate(
        &self,
        header: Option<&HeaderValue>,
    ) -> Result<Principal, AuthFailure> {
        let sent = header.map_or(&b""[..], HeaderValue::as_bytes).trim_ascii();
        if sent.is_empty() {
            return Err(AuthFailure::MissingCredentials);
        }
        let (scheme, credentials) = match sent.iter().position(|b| *b == b' ') {
            Some(space) => (&sent[..space], sent[space..].trim_ascii()),
            None => (sent, &b""[..]),
        };
        if !scheme.eq_ignore_ascii_case(b"bearer") {
            return Err(AuthFailure::UnsupportedScheme);
        }
        if credentials.is_empty() {
            return Err(AuthFailure::MissingCredentials);
        }
        self.principal(credentials).ok_or(AuthFailure::InvalidKey)
    }

    fn principal(&self, text: &[u8]) -> Option<Principal> {
        let parts = key::split(text)?;
        let keys = self.keys.read().clone();
        let known = keys.get(parts.id);
        // Unknown, wrong and revoked do the same work: one hash, one comparison.
        let stored = known.map_or([0; 32], |known| known.secret_hash);
        let same = bool::from(key::hash(parts.secret).ct_eq(&stored));
        match known {
            Some(known) if same && !known.revoked => Some(known.principal.clone()),
            _ => None,
        }
    }
}

fn known(record: KeyRecord) -> Option<([u8; key::ID], Known)> {
    let id = *record.id.as_bytes().first_chunk()?;
    let scope = if &*record.scope == ADMIN {
        Scope::Admin
    } else {
        Scope::Unknown
    };
    let known = Known {
        secret_hash: record.secret_hash,
        revoked: record.revoked_at.is_some(),
        principal: Principal {
            id: record.id,
            scope,
        },
    };
    Some((id, known))
}

/// An admin key as a store keeps it.
pub fn admin_record(key: &ApiKey, description: &str) -> KeyRecord {
    KeyRecord {
        id: key.id().into(),
        secret_hash: key.secret_hash(),
        description: description.into(),
        scope: ADMIN.into(),
        created_at: quita_storage::clock::wall(),
        revoked_at: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quita_storage::backend::Call;
    use quita_storage::memory;

    async fn with_a_key() -> (Arc<dyn Backend>, ApiKey, Authenticator) {
        let (backend, key) = (memory::open(), ApiKey::generate().unwrap());
        backend
            .add_key(&Call::by("server"), admin_record(&key, "test"), false)
            .await
            .unwrap();
        let auth = Authenticator::load(backend.clone()).await.unwrap();
        (backend, key, auth)
    }

    async fn ask(auth: &Authenticator, header: &[u8]) -> Result<Principal, AuthFailure> {
        let header = HeaderValue::from_bytes(header).unwrap();
        auth.authenticate(Some(&header)).await
    }

    #[tokio::test]
    async fn a_good_key_is_known_in_any_case_of_the_scheme() {
        let (_, key, auth) = with_a_key().await;
        for scheme in ["Bearer", "bearer", "BEARER", "Bearer  "] {
            let who = ask(&auth, format!("{scheme} {}", key.reveal()).as_bytes())
                .await
                .unwrap();
            assert_eq!(&*who.id, key.id());
            assert!(who.may(Right::Keys, "any"));
        }
    }

    #[tokio::test]
    async fn unknown_wrong_revoked_and_nonsense_fail_alike() {
        let (backend, key, auth) = with_a_key().await;
        let other = ApiKey::generate().unwrap();
        backend
            .revoke_key(&Call::by("server"), key.id(), None)
            .await
            .unwrap();
        auth.refresh().await.unwrap();
        let huge = "k".repeat(1 << 20);
        for text in [
            key.reveal(),
            other.reveal(),
            "qta_",
            &huge,
            &key.reveal()[..60],
        ] {
            let failure = ask(&auth, format!("Bearer {text}").as_bytes())
                .await
                .unwrap_err();
            assert_eq!(failure, AuthFailure::InvalidKey);
        }
        assert_eq!(
            ask(&auth, b"Bearer \xff\xfe").await.unwrap_err(),
            AuthFailure::InvalidKey
        );
    }

    #[tokio::test]
    async fn the_secret_of_another_key_opens_nothing() {
        let (backend, key, _) = with_a_key().await;
        let mut record = admin_record(&key, "same id");
        record.secret_hash = ApiKey::generate().unwrap().secret_hash();
        let wrong = memory::open();
        wrong
            .add_key(&Call::by("server"), record, false)
            .await
            .unwrap();
        let auth = Authenticator::load(wrong).await.unwrap();
        let failure = ask(&auth, format!("Bearer {}", key.reveal()).as_bytes()).await;
        assert_eq!(failure.unwrap_err(), AuthFailure::InvalidKey);
        drop(backend);
    }

    #[tokio::test]
    async fn no_credentials_and_another_scheme_are_told_apart() {
        let (_, _, auth) = with_a_key().await;
        for header in [&b""[..], b"   ", b"Bearer", b"Bearer   "] {
            let failure = ask(&auth, header).await.unwrap_err();
            assert_eq!(failure, AuthFailure::MissingCredentials);
        }
        assert_eq!(
            auth.authenticate(None).await.unwrap_err(),
            AuthFailure::MissingCredentials
        );
        for header in [&b"Basic dXNlcjpwYXNz"[..], b"qta_abc", b"Digest x"] {
            assert_eq!(
                ask(&auth, header).await.unwrap_err(),
                AuthFailure::UnsupportedScheme
            );
        }
    }
}
