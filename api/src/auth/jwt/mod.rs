//! Callers with a token of somebody else's making: JSON Web Tokens (RFC 7519), taken by the rules of RFC 8725.
//!
//! Off until an issuer is configured. Reading order: [`settings`] (what an operator says) → `issuer` (that, checked) →
//! [`Tokens`] (from a token to a [`Principal`]) → `strict` (its text) → `header` → `claims` → `keys` and `jwk` (what it is
//! checked with) → `source` and [`fetch`] (where keys come from) → [`Reason`] (why it is refused).
//!
//! The order of the checks is by cost, not by trust: what is wrong on the face of it is refused before a signature is
//! computed or an issuer is asked, so that rubbish costs little. Nothing is believed before the signature was right, and the
//! caller hears the same answer whatever was wrong. A token that was good is remembered by its SHA-256 until it ends or its
//! key leaves the issuer's set.
//!
//! The signatures are the library's (`jsonwebtoken`). The rules around them are ours, because its own are looser than what
//! is promised here: it resolves members that are there twice, reads the host's clock, and has no bound on a token's life.

mod algorithm;
mod claims;
pub mod fetch;
mod header;
mod issuer;
mod jwk;
mod keys;
mod reason;
pub mod settings;
mod source;
mod strict;
#[cfg(test)]
mod tests;

#[cfg(test)]
pub(super) use tests::a_token_for_tests;

pub use algorithm::Algorithm;
pub use claims::{LEEWAY_S, MAX_LIFE_S};
pub use keys::{MAX_KEYS, MIN_SECRET_BYTES};
pub use reason::{Part, Reason};
pub use source::{REFETCH, REFRESH, STALE};

use super::scope::ScopeError;
use super::{Principal, shown};
use fetch::{Fetch, Network};
use header::Header;
use issuer::Issuer;
use keys::Key;
use quick_cache::sync::Cache;
use quita_storage::model::Millis;
use settings::{JwtSettings, MAX_ISSUERS, SettingsError};
use sha2::{Digest, Sha256};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest token in bytes.
pub const MAX_TOKEN_BYTES: usize = 8 << 10;
/// Most tokens that are remembered, at about 500 bytes each.
pub const MAX_REMEMBERED: usize = 10_000;
/// How often it is looked whether keys should be read again.
const TICK: Duration = Duration::from_secs(5);

/// Now, by both clocks: tokens are dated by the calendar, the age of keys must not depend on who sets it.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// Milliseconds since the Unix epoch.
    pub wall: Millis,
    /// Never runs backwards.
    pub ticks: Instant,
}

impl Now {
    /// The present time.
    pub fn read() -> Self {
        Self {
            wall: quita_storage::clock::wall(),
            ticks: Instant::now(),
        }
    }
}

/// A token that is good.
#[derive(Clone, Debug)]
pub struct Verified {
    /// Whose it is.
    pub principal: Principal,
    /// Name of its issuer in the settings.
    pub issuer: Box<str>,
    /// What it was signed with.
    pub algorithm: Algorithm,
    /// Its scopes that mean nothing here, and why.
    pub passed_over: Vec<ScopeError>,
}

/// A token is refused, and the caller is told no more than that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is not good now.
    Invalid,
    /// It says itself that it is over; who would guess sends another one.
    Expired,
    /// It may be good: nobody knows while the keys of its issuer cannot be had.
    Unavailable,
}

struct Remembered {
    principal: Principal,
    ends_at: Millis,
    issuer: Arc<Issuer>,
    key: Arc<Key>,
}

/// Whether this can be a token and nothing else: its parts have dots between them, and no key has one.
pub fn looks_like(credentials: &[u8]) -> bool {
    credentials.contains(&b'.')
}

/// Tells callers by tokens of the configured issuers.
pub struct Tokens {
    issuers: Vec<Arc<Issuer>>,
    remembered: Cache<[u8; 32], Arc<Remembered>>,
}

impl Tokens {
    /// Checks the settings and reads the files they name. Keys behind URLs are read by [`Tokens::refresh`], or for the first
    /// token that needs one: an issuer that is down does not keep a server from starting.
    pub fn open(
        settings: &JwtSettings,
        fetch: &Arc<dyn Fetch>,
        now: Now,
    ) -> Result<Self, SettingsError> {
        if settings.issuers.len() > MAX_ISSUERS {
            return Err(SettingsError::Issuers(
                "there are more than 16 token issuers",
            ));
        }
        let mut issuers: Vec<Arc<Issuer>> = Vec::new();
        for one in &settings.issuers {
            let issuer = Issuer::open(one, &settings.folder, fetch, now)?;
            if issuers
                .iter()
                .any(|other| other.iss == issuer.iss || other.name == issuer.name)
            {
                return Err(SettingsError::Issuers(
                    "two token issuers have the same name or the same iss",
                ));
            }
            issuers.push(Arc::new(issuer));
        }
        Ok(Self {
            issuers,
            remembered: Cache::new(MAX_REMEMBERED),
        })
    }

    /// What a file of settings says, with keys from the network.
    pub fn load(file: &Path) -> Result<Self, SettingsError> {
        let network: Arc<dyn Fetch> = Arc::new(Network::new());
        Self::open(&JwtSettings::load(file)?, &network, Now::read())
    }

    /// Who sent this token. The reason of a refusal goes to the log, at level debug.
    pub async fn authenticate(&self, token: &[u8], now: Now) -> Result<Principal, Refused> {
        let hash: [u8; 32] = Sha256::digest(token).into();
        if let Some(known) = self.remembered.get(&hash) {
            if known.is_good(now) {
                return Ok(known.principal.clone());
            }
            self.remembered.remove(&hash);
        }
        match self.examine(token, now).await {
            Ok((verified, known)) => {
                self.remembered.insert(hash, Arc::new(known));
                Ok(verified.principal)
            }
            Err(reason) => {
                let refused = match reason {
                    Reason::Expired(_) => Refused::Expired,
                    _ if reason.is_unavailable() => Refused::Unavailable,
                    _ => Refused::Invalid,
                };
                let reason = reason.without_words();
                tracing::debug!(%reason, "a token was refused");
                Err(refused)
            }
        }
    }

    /// Whether this token is good, and why not: for the operator alone. Nothing is remembered.
    pub async fn check(&self, token: &[u8], now: Now) -> Result<Verified, Reason> {
        let (verified, _) = self.examine(token, now).await?;
        Ok(verified)
    }

    async fn examine(&self, token: &[u8], now: Now) -> Result<(Verified, Remembered), Reason> {
        let parts = strict::split(token)?;
        let iss = parts.claims.required_text("iss")?;
        let issuer = self
            .issuers
            .iter()
            .find(|issuer| *issuer.iss == *iss)
            .ok_or_else(|| Reason::Issuer(shown(iss)))?;
        let header = Header::read(&parts.header, issuer.only_access_tokens)?;
        issuer.allows(header.algorithm)?;
        let claims = claims::check(&parts.claims, issuer, now.wall)?;
        let key = issuer.key(&header, now).await?;
        if !key.verifies(header.algorithm, parts.signed, parts.signature) {
            return Err(Reason::Signature);
        }
        let principal = Principal {
            id: claims.id,
            scopes: claims.scopes,
            expires_at: Some(claims.ends_at),
        };
        let verified = Verified {
            principal: principal.clone(),
            issuer: issuer.name.clone(),
            algorithm: header.algorithm,
            passed_over: claims.passed,
        };
        let remembered = Remembered {
            principal,
            ends_at: claims.ends_at,
            issuer: issuer.clone(),
            key,
        };
        Ok((verified, remembered))
    }

    /// Reads keys again where it is time to.
    pub async fn refresh(&self, now: Now) {
        for issuer in &self.issuers {
            issuer.source.refresh(now).await;
        }
    }

    /// Reads keys again and again. Never returns.
    pub async fn run_refresh(self: Arc<Self>) {
        loop {
            self.refresh(Now::read()).await;
            tokio::time::sleep(TICK).await;
        }
    }

    /// Issuers whose keys are not known at present, and why: for a metric and for the operator.
    pub fn unavailable(&self, now: Now) -> Vec<(Box<str>, Reason)> {
        let reason = |issuer: &Arc<Issuer>| {
            Some((issuer.name.clone(), issuer.source.keys(now.ticks).err()?))
        };
        self.issuers.iter().filter_map(reason).collect()
    }

    /// How many tokens are remembered.
    pub fn remembered(&self) -> usize {
        self.remembered.len()
    }
}

impl Remembered {
    fn is_good(&self, now: Now) -> bool {
        now.wall < self.ends_at && !self.key.is_retired() && self.issuer.source.is_usable(now.ticks)
    }
}
