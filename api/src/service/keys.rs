//! API keys: make, look at, rotate, revoke.
//!
//! Nobody hands out more than they have: a key is made, rotated or revoked only by a caller whose scopes cover it. The
//! public part of a key that is made under a request id follows from caller, route and id, so that a repeat finds the key
//! instead of making another one; the secret is shown by the first answer alone.

use super::{Done, Error, Result, Service};
use crate::auth::{ApiKey, KEY_ID, Principal, Right, Scopes, record};
use quita_storage::backend::{Call, KeyRecord, OperationRefused};
use quita_storage::clock::wall;
use quita_storage::error::StoreError;
use quita_storage::model::Millis;
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// A key to make.
#[derive(Clone, Debug)]
pub struct NewKey {
    /// What it may do.
    pub scopes: Scopes,
    /// What it is for.
    pub description: Arc<str>,
    /// After which time it ends by itself.
    pub expires_in_ms: Option<Millis>,
}

/// A key that was made, and itself when it was made now.
#[derive(Clone, Debug)]
pub struct MadeKey {
    /// As it is stored.
    pub record: KeyRecord,
    /// `None` for a repeat: it is shown once.
    pub key: Option<ApiKey>,
}

/// Whether a key opens anything now.
pub fn is_good(record: &KeyRecord) -> bool {
    record.revoked_at.is_none() && record.expires_at.is_none_or(|at| wall() < at)
}

impl Service {
    /// Makes a key no wider than the caller.
    pub async fn make_key(
        &self,
        caller: &Principal,
        call: &Call,
        new: NewKey,
    ) -> Result<Done<MadeKey>> {
        Self::entitled(caller, Right::Keys)?;
        if !caller.scopes.covers(&new.scopes) {
            return Err(Error::WiderThanCaller);
        }
        let key = self.new_key(call, "make")?;
        let made = record(&key, &new.scopes, &new.description, new.expires_in_ms);
        let stored = self.backend().add_key(call, made.clone(), false).await?;
        let done = self.answered(key, made.clone(), stored).await?;
        let life = |key: &KeyRecord| key.expires_at.map(|at| at - key.created_at);
        let there = &done.answer.record;
        // A key that was rotated since ends sooner than it was made to.
        if done.repeated && is_good(there) && life(there) != life(&made) {
            return Err(OperationRefused::RequestIdConflict.into());
        }
        Ok(done)
    }

    /// All keys, in the order in which they were made, revoked and expired ones included.
    pub async fn keys(&self, caller: &Principal) -> Result<Vec<KeyRecord>> {
        Self::entitled(caller, Right::Keys)?;
        Ok(self.backend().keys().await?)
    }

    /// One key.
    pub async fn key(&self, caller: &Principal, id: &str) -> Result<KeyRecord> {
        let keys = self.keys(caller).await?;
        let found = keys.into_iter().find(|key| *key.id == *id);
        found.ok_or(Error::KeyNotFound)
    }

    /// Makes a successor that may the same and lives as long as the key did from its beginning. The key itself ends after
    /// `overlap_ms`, so that both are good meanwhile.
    pub async fn rotate_key(
        &self,
        caller: &Principal,
        call: &Call,
        id: &str,
        overlap_ms: Millis,
    ) -> Result<Done<MadeKey>> {
        let old = self.key_to_change(caller, id).await?;
        let key = self.new_key(call, id)?;
        let life = old.expires_at.map(|at| at - old.created_at);
        let made = KeyRecord {
            scope: old.scope.clone(),
            ..record(&key, &Scopes::default(), &old.description, life)
        };
        let repeated = call.request_id.is_some() && self.key(caller, key.id()).await.is_ok();
        if !repeated && !is_good(&old) {
            return Err(Error::KeyEnded);
        }
        let ends_at = wall().saturating_add(overlap_ms);
        let store = self.backend();
        let stored = !repeated && store.rotate_key(call, id, ends_at, made.clone()).await?;
        self.answered(key, made, stored).await
    }

    /// Ends a key at once; `repeated` when it was revoked before.
    pub async fn revoke_key(
        &self,
        caller: &Principal,
        call: &Call,
        id: &str,
    ) -> Result<Done<KeyRecord>> {
        self.key_to_change(caller, id).await?;
        let revoked = self.backend().revoke_key(call, id, None).await?;
        Ok(Done::new(self.key(caller, id).await?, !revoked))
    }

    async fn key_to_change(&self, caller: &Principal, id: &str) -> Result<KeyRecord> {
        let key = self.key(caller, id).await?;
        // What this version cannot read may allow more to another one.
        let covered = Scopes::parse(&key.scope)
            .map_or(caller.scopes == Scopes::admin(), |scopes| {
                caller.scopes.covers(&scopes)
            });
        covered.then_some(key).ok_or(Error::WiderThanCaller)
    }

    /// A key that was stored, or the one that an earlier call with the same request id has made.
    async fn answered(&self, key: ApiKey, made: KeyRecord, stored: bool) -> Result<Done<MadeKey>> {
        if stored {
            let (record, key) = (made, Some(key));
            return Ok(Done::new(MadeKey { record, key }, false));
        }
        let keys = self.backend().keys().await?;
        let Some(record) = keys.into_iter().find(|known| known.id == made.id) else {
            return Err(Error::KeyEnded);
        };
        // The store may have committed and not said so.
        if record.secret_hash == made.secret_hash {
            let key = Some(key);
            return Ok(Done::new(MadeKey { record, key }, false));
        }
        if record.scope != made.scope || record.description != made.description {
            return Err(OperationRefused::RequestIdConflict.into());
        }
        Ok(Done::new(MadeKey { record, key: None }, true))
    }

    fn new_key(&self, call: &Call, what: &str) -> Result<ApiKey> {
        let made = match &call.request_id {
            None => ApiKey::generate(),
            Some(request_id) => {
                let mut hash = Sha256::new();
                hash.update(self.backend().facts().receipt_secret);
                for part in [&call.actor, what, request_id] {
                    hash.update((part.len() as u64).to_be_bytes());
                    hash.update(part);
                }
                let mut seed = [0; KEY_ID];
                seed.copy_from_slice(&hash.finalize()[..KEY_ID]);
                ApiKey::generate_for(seed)
            }
        };
        made.ok_or_else(|| StoreError::internal("no random bytes").into())
    }
}
