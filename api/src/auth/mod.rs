//! Who calls: from an `Authorization` header to a [`Principal`].
//!
//! Reading order: [`ApiKey`] (the text of a key) → [`Authenticator`] (is it one of ours) → [`scope`] (what its holder may
//! do) → [`first_key`] (where the first one comes from) → [`jwt`] (callers with a token of somebody else's making) →
//! [`bucket`] (how often a caller may call). Keys are looked up in a copy of the store's list, so that a request costs one
//! hash and no I/O; the copy is renewed every [`REFRESH`], and that is how soon a revoked key stops working. A token is
//! verified once and then costs one hash too.

pub mod bucket;
pub mod first_key;
pub mod jwt;
mod key;
pub mod scope;
#[cfg(test)]
mod tests;

pub use key::ApiKey;
pub use scope::{Right, Scopes};

use http::HeaderValue;
use jwt::{Now, Tokens};
use parking_lot::RwLock;
use quita_storage::backend::{Backend, KeyRecord};
use quita_storage::error::Result as StoreResult;
use quita_storage::model::Millis;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use subtle::ConstantTimeEq;

/// How often the copy of the keys is renewed. A revoked key must be refused within 5 s everywhere; this leaves room for one
/// round that fails.
pub const REFRESH: Duration = Duration::from_millis(1_500);

/// The scope of the first key: every right on every queue.
pub const ADMIN: &str = "admin";

/// Characters that [`shown`] leaves.
const SHOWN: usize = 64;

/// A caller who proved who it is.
#[derive(Clone, Debug)]
pub struct Principal {
    /// What audit rows name: the public part of a key, or `issuer:subject` of a token, which holds a colon as no key does.
    pub id: Arc<str>,
    /// What it may do.
    pub scopes: Scopes,
    /// When its proof stops being good, in milliseconds since the Unix epoch. `None`: when it is revoked.
    pub expires_at: Option<Millis>,
}

impl Principal {
    /// Whether this caller may do that to this queue. Decided from memory.
    pub fn may(&self, right: Right, queue: &str) -> bool {
        self.scopes.may(right, queue)
    }

    /// Whether this caller may do that to any queue.
    pub fn may_anywhere(&self, right: Right) -> bool {
        self.scopes.may_anywhere(right)
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
            scopes: Scopes::admin(),
            expires_at: None,
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
    /// Not a key or token that is good now.
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
    /// `None`: no issuer is configured, and no token is taken.
    tokens: Option<Arc<Tokens>>,
}

impl Authenticator {
    /// Reads the keys of the store.
    pub async fn load(backend: Arc<dyn Backend>) -> StoreResult<Self> {
        let auth = Self {
            backend,
            keys: RwLock::default(),
            tokens: None,
        };
        auth.refresh().await?;
        Ok(auth)
    }

    /// Also takes tokens. Whoever calls this runs [`Tokens::run_refresh`].
    #[must_use]
    pub fn with_tokens(mut self, tokens: Arc<Tokens>) -> Self {
        self.tokens = Some(tokens);
        self
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

    /// Who sent this `Authorization` header. Waits only for the keys of a token issuer, and seldom.
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
        let found = match &self.tokens {
            Some(tokens) if !key::looks_like(credentials) => {
                tokens.authenticate(credentials, Now::read()).await.ok()
            }
            _ => self.principal(credentials),
        };
        found.ok_or(AuthFailure::InvalidKey)
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
    // A text that this version cannot read allows nothing; the key stays known, so that its holder is told so.
    let scopes = Scopes::parse(&record.scope).unwrap_or_else(|error| {
        tracing::debug!(key = &*record.id, %error, "this key allows nothing");
        Scopes::default()
    });
    let known = Known {
        secret_hash: record.secret_hash,
        revoked: record.revoked_at.is_some(),
        principal: Principal {
            id: record.id,
            scopes,
            expires_at: None,
        },
    };
    Some((id, known))
}

/// What others wrote, cut and with escapes, fit for a message or a log line.
fn shown(text: &str) -> Box<str> {
    let cut: String = text.chars().take(SHOWN).collect();
    cut.escape_debug().to_string().into()
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
