//! Who calls: from an `Authorization` header to a [`Principal`].
//!
//! Reading order: [`ApiKey`] (the text of a key) → [`Authenticator`] (is it one of ours) → [`Principal`] and [`scope`] (what its holder may
//! do) → [`first_key`] (where the first one comes from) → [`jwt`] (callers with a token of somebody else's making) →
//! [`bucket`] (how often a caller may call). Keys are looked up in a copy of the store's list, so that a request costs one
//! hash and no I/O; the copy is renewed every [`REFRESH`], and that is how soon a revoked key stops working. A token is
//! verified once and then costs one hash too.

pub mod bucket;
pub mod first_key;
pub mod jwt;
mod key;
mod principal;
pub mod scope;
#[cfg(test)]
mod tests;

pub use key::{ApiKey, ID as KEY_ID};
pub use principal::Principal;
pub use scope::{Right, Scopes};

use http::HeaderValue;
use jwt::{Now, Refused, Tokens};
use parking_lot::RwLock;
use quita_storage::backend::{Backend, KeyRecord};
use quita_storage::error::Result as StoreResult;
use quita_storage::model::Millis;
use quita_storage::sometimes::Sometimes;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::Duration;
use subtle::ConstantTimeEq;
use tokio::sync::watch;

/// How often the copy of the keys is renewed. A revoked key must be refused within 5 s everywhere; this leaves room for one
/// round that fails.
pub const REFRESH: Duration = Duration::from_millis(1_500);

/// The scope of the first key: every right on every queue.
pub const ADMIN: &str = "admin";

/// Whom audit rows name where callers are not told apart. No key has such an id.
pub const EVERYBODY: &str = "dev-no-auth";

const MINUTE_MS: Millis = 60_000;

/// How often a wait looks at the clock again, which may have been set.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Characters that [`shown`] leaves.
const SHOWN: usize = 64;

/// Why a caller is not known. An unknown, a wrong, an expired and a revoked key are one and the same, and so is everything
/// that can be wrong with a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthFailure {
    /// No `Authorization` header, or an empty one.
    MissingCredentials,
    /// Another scheme than `Bearer`.
    UnsupportedScheme,
    /// Not a key that is good now.
    InvalidKey,
    /// Not a token that is good now; also any token while no issuer is configured.
    InvalidToken,
    /// A token that says itself that it is over. Told as any other one that is not good.
    ExpiredToken,
    /// The token may be good: the keys of its issuer cannot be had.
    IssuerUnavailable,
}

struct Known {
    secret_hash: [u8; 32],
    revoked: bool,
    principal: Principal,
    /// As the store has it.
    noted_use: Millis,
    /// The beginning of the minute of the last use; 0 = never.
    last_use: AtomicI64,
}

impl Known {
    fn is_good(&self, now: Millis) -> bool {
        !self.revoked && self.principal.expires_at.is_none_or(|at| now < at)
    }
}

type Keys = HashMap<[u8; key::ID], Known>;

/// Tells callers by their keys.
pub struct Authenticator {
    backend: Arc<dyn Backend>,
    keys: RwLock<Arc<Keys>>,
    /// Held while the copy is renewed: an older list must not come after a newer one.
    renewing: tokio::sync::Mutex<()>,
    /// `None`: no issuer is configured, and no token is taken.
    tokens: Option<Arc<Tokens>>,
    /// Who every caller is, whatever it sent (`--dev-no-auth`). `None`: callers are told apart.
    everybody: Option<Principal>,
    /// Told when a key that was good is good no longer.
    ended: watch::Sender<()>,
}

impl Authenticator {
    /// Reads the keys of the store.
    pub async fn load(backend: Arc<dyn Backend>) -> StoreResult<Self> {
        let auth = Self {
            backend,
            keys: RwLock::default(),
            renewing: tokio::sync::Mutex::default(),
            tokens: None,
            everybody: None,
            ended: watch::channel(()).0,
        };
        auth.refresh().await?;
        Ok(auth)
    }

    /// Takes every caller for an admin, and looks at no key and no token: there is nothing to refresh.
    pub fn open_to_everybody(backend: Arc<dyn Backend>) -> Self {
        Self {
            backend,
            keys: RwLock::default(),
            renewing: tokio::sync::Mutex::default(),
            tokens: None,
            everybody: Some(Principal::admin(EVERYBODY)),
            ended: watch::channel(()).0,
        }
    }

    /// Also takes tokens. Whoever calls this runs [`Tokens::run_refresh`].
    #[must_use]
    pub fn with_tokens(mut self, tokens: Arc<Tokens>) -> Self {
        self.tokens = Some(tokens);
        self
    }

    /// Renews the copy of the keys.
    pub async fn refresh(&self) -> StoreResult<()> {
        let _renewing = self.renewing.lock().await;
        let keys = self.backend.keys().await?;
        let keys: Arc<Keys> = Arc::new(keys.into_iter().filter_map(known).collect());
        let before = std::mem::replace(&mut *self.keys.write(), keys.clone());
        for (id, known) in before.iter() {
            // What could not be noted yet is noted with the next ones.
            if let Some(now) = keys.get(id) {
                let last_use = known.last_use.load(Relaxed);
                now.last_use.fetch_max(last_use, Relaxed);
            }
        }
        let is_good = |keys: &Keys, id| keys.get(id).is_some_and(|known: &Known| !known.revoked);
        if before
            .keys()
            .any(|id| is_good(&before, id) && !is_good(&keys, id))
        {
            self.ended.send_replace(());
        }
        Ok(())
    }

    /// Tells the store when keys were last used: all of them at once, each at most once a minute.
    pub async fn note_use(&self) -> StoreResult<()> {
        let keys = self.keys.read().clone();
        let used: Vec<(Arc<str>, Millis)> = keys
            .values()
            .map(|known| (known, known.last_use.load(Relaxed)))
            .filter(|(known, last_use)| *last_use > known.noted_use)
            .map(|(known, last_use)| (known.principal.id.clone(), last_use))
            .collect();
        if used.is_empty() {
            return Ok(());
        }
        self.backend.touch_keys(&used).await
    }

    /// Renews the copy of the keys again and again. Never returns. While the store cannot be read the last copy counts:
    /// a store that cannot be read does nothing for anybody anyway.
    pub async fn run_refresh(self: Arc<Self>) {
        let (unnoted, unread) = (Sometimes::new(), Sometimes::new());
        loop {
            tokio::time::sleep(REFRESH).await;
            if let Err(error) = self.note_use().await
                && let Some(unsaid) = unnoted.now()
            {
                tracing::warn!(%error, unsaid, "could not note when API keys were used");
            }
            if let Err(error) = self.refresh().await
                && let Some(unsaid) = unread.now()
            {
                tracing::warn!(%error, unsaid, "could not read the API keys again");
            }
        }
    }

    /// Who sent this `Authorization` header. Waits only for the keys of a token issuer, and seldom.
    pub async fn authenticate(
        &self,
        header: Option<&HeaderValue>,
    ) -> Result<Principal, AuthFailure> {
        if let Some(everybody) = &self.everybody {
            return Ok(everybody.clone());
        }
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
        if jwt::looks_like(credentials) && !key::looks_like(credentials) {
            let tokens = self.tokens.as_ref().ok_or(AuthFailure::InvalidToken)?;
            let found = tokens.authenticate(credentials, Now::read()).await;
            return found.map_err(|refused| match refused {
                Refused::Invalid => AuthFailure::InvalidToken,
                Refused::Expired => AuthFailure::ExpiredToken,
                Refused::Unavailable => AuthFailure::IssuerUnavailable,
            });
        }
        self.principal(credentials).ok_or(AuthFailure::InvalidKey)
    }

    /// Waits until a caller that was known is known no longer, and says how it would be refused now.
    pub async fn until_refused(&self, caller: &Principal) -> AuthFailure {
        if self.everybody.is_some() {
            return std::future::pending().await;
        }
        let mut ended = self.ended.subscribe();
        loop {
            ended.borrow_and_update();
            let now = quita_storage::clock::wall();
            if caller.expires_at.is_some_and(|at| at <= now) || !self.stands(caller) {
                return if caller.is_by_token() {
                    AuthFailure::InvalidToken
                } else {
                    AuthFailure::InvalidKey
                };
            }
            let left = caller.expires_at.map_or(LOOK_AGAIN, |at| {
                Duration::from_millis((at - now).unsigned_abs()).min(LOOK_AGAIN)
            });
            // The sender lives in `self`: an error cannot be, and would be a time-out.
            let _ = tokio::time::timeout(left, ended.changed()).await;
        }
    }

    /// Whether some key that is good now may make others.
    pub fn has_a_keeper(&self) -> bool {
        let now = quita_storage::clock::wall();
        let keys = self.keys.read().clone();
        let keeps = |known: &Known| known.is_good(now) && known.principal.may_anywhere(Right::Keys);
        keys.values().any(keeps)
    }

    /// Whether the key of this caller is still one of the good ones. Tokens are not revoked: they end.
    fn stands(&self, caller: &Principal) -> bool {
        if caller.is_by_token() {
            return true;
        }
        let keys = self.keys.read().clone();
        let id = caller.id.as_bytes().first_chunk::<{ key::ID }>();
        id.and_then(|id| keys.get(id))
            .is_some_and(|known| !known.revoked)
    }

    fn principal(&self, text: &[u8]) -> Option<Principal> {
        let parts = key::split(text)?;
        let keys = self.keys.read().clone();
        let known = keys.get(parts.id);
        // Unknown, wrong, expired and revoked do the same work: one hash, one comparison.
        let stored = known.map_or([0; 32], |known| known.secret_hash);
        let same = bool::from(key::hash(parts.secret).ct_eq(&stored));
        let now = quita_storage::clock::wall();
        match known {
            Some(known) if same && known.is_good(now) => {
                let minute = now - now.rem_euclid(MINUTE_MS);
                if known.last_use.load(Relaxed) < minute {
                    known.last_use.fetch_max(minute, Relaxed);
                }
                Some(known.principal.clone())
            }
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
            expires_at: record.expires_at,
        },
        noted_use: record.last_used_at.unwrap_or(0),
        last_use: AtomicI64::new(record.last_used_at.unwrap_or(0)),
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
    record(key, &Scopes::admin(), description, None)
}

/// A key as a store keeps it. It ends `expires_in_ms` after now.
pub fn record(
    key: &ApiKey,
    scopes: &Scopes,
    description: &str,
    expires_in_ms: Option<Millis>,
) -> KeyRecord {
    let now = quita_storage::clock::wall();
    KeyRecord {
        id: key.id().into(),
        secret_hash: key.secret_hash(),
        description: description.into(),
        scope: scopes.to_string().into(),
        created_at: now,
        revoked_at: None,
        expires_at: expires_in_ms.map(|ms| now.saturating_add(ms)),
        last_used_at: None,
    }
}
