//! API keys.

use super::Postgres;
use super::audit::{self, About};
use super::due::clock;
use super::fault::{Fault, Now};
use super::operate::durable;
use super::rows::{broken, text};
use crate::backend::{Call, KeyRecord};
use crate::error::Result;
use crate::model::Millis;
use crate::rules::trail::Trail;
use sqlx::Row;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use std::sync::Arc;

pub(super) const ALL: &str = "-- keys
SELECT id, secret_hash, description, scope, created_at, revoked_at, expires_at, last_used_at FROM api_key ORDER BY created_at, id";

pub(super) const ADD: &str = "-- add key
INSERT INTO api_key (id, secret_hash, description, scope, created_at, revoked_at, expires_at)
SELECT $1::text, $2::bytea, $3::text, $4::text, $5::bigint, $6::bigint, $7::bigint
WHERE NOT $8::boolean OR NOT EXISTS (SELECT 1 FROM api_key)
ON CONFLICT (id) DO NOTHING";

// Replicas that start together on an empty store must not make two first keys.
pub(super) const ALONE: &str = "-- add key, alone\nLOCK TABLE api_key IN SHARE ROW EXCLUSIVE MODE";

pub(super) const REVOKE: &str = "-- revoke key
UPDATE api_key SET revoked_at = coalesce($2::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
WHERE id = $1::text AND revoked_at IS NULL RETURNING revoked_at";

pub(super) const ROTATE: &str = "-- rotate key: the old one ends
UPDATE api_key SET expires_at = least(expires_at, $2::bigint)
WHERE id = $1::text AND revoked_at IS NULL RETURNING expires_at";

pub(super) const TOUCH: &str = "-- touch keys
UPDATE api_key k SET last_used_at = used.at
FROM unnest($1::text[], $2::bigint[]) AS used (id, at)
WHERE k.id = used.id AND coalesce(k.last_used_at, 0) < used.at";

fn insert(key: &KeyRecord, only_first: bool) -> Query<'_, sqlx::Postgres, PgArguments> {
    sqlx::query(ADD)
        .bind(text(&key.id))
        .bind(&key.secret_hash[..])
        .bind(text(&key.description))
        .bind(text(&key.scope))
        .bind(key.created_at)
        .bind(key.revoked_at)
        .bind(key.expires_at)
        .bind(only_first)
}

fn key(row: &PgRow) -> Result<KeyRecord, Fault> {
    let hash: Vec<u8> = row.try_get(1)?;
    let shared = |i: usize| -> Result<Arc<str>, Fault> { Ok(row.try_get::<&str, _>(i)?.into()) };
    Ok(KeyRecord {
        id: shared(0)?,
        secret_hash: hash.try_into().map_err(|_| broken("key hash"))?,
        description: shared(2)?,
        scope: shared(3)?,
        created_at: row.try_get(4)?,
        revoked_at: row.try_get(5)?,
        expires_at: row.try_get(6)?,
        last_used_at: row.try_get(7)?,
    })
}

impl Postgres {
    pub(super) async fn all_keys(&self) -> Result<Vec<KeyRecord>> {
        let mut attempt = 0;
        loop {
            let found = sqlx::query(ALL).fetch_all(&self.pool).await;
            let found = found
                .map_err(Fault::from)
                .and_then(|rows| rows.iter().map(key).collect());
            match found {
                Ok(keys) => return Ok(keys),
                Err(fault) => self.once_more(&mut attempt, fault).await?,
            }
        }
    }

    pub(super) async fn store_key(
        &self,
        call: &Call,
        key: &KeyRecord,
        only_first: bool,
    ) -> Result<bool> {
        let mut attempt = 0;
        loop {
            match self.try_store_key(call, key, only_first).await {
                Ok(stored) => return Ok(stored),
                Err(fault) => self.once_more(&mut attempt, fault).await?,
            }
        }
    }

    async fn try_store_key(
        &self,
        call: &Call,
        key: &KeyRecord,
        only_first: bool,
    ) -> Result<bool, Fault> {
        let mut tx = self.begin().await?;
        if only_first {
            sqlx::query(ALONE).execute(&mut *tx).await?;
        }
        let stored = insert(key, only_first).execute(&mut *tx).await?;
        let stored = stored.rows_affected() == 1;
        if stored {
            let now = clock(&mut tx).await?;
            let about = About::nothing(Trail::key_created(key));
            audit::write(&mut tx, call, "create_key", None, &[about], now).await?;
        }
        durable(tx).await?;
        Ok(stored)
    }

    pub(super) async fn replace_key(
        &self,
        call: &Call,
        id: &str,
        ends_at: Millis,
        new: &KeyRecord,
    ) -> Result<bool> {
        let mut attempt = 0;
        loop {
            match self.try_replace_key(call, id, ends_at, new).await {
                Ok(replaced) => return Ok(replaced),
                Err(fault) => self.once_more(&mut attempt, fault).await?,
            }
        }
    }

    async fn try_replace_key(
        &self,
        call: &Call,
        id: &str,
        ends_at: Millis,
        new: &KeyRecord,
    ) -> Result<bool, Fault> {
        let mut tx = self.begin().await?;
        let old = sqlx::query(ROTATE).bind(text(id)).bind(ends_at);
        let old = old.fetch_optional(&mut *tx).await?;
        let stored = insert(new, false).execute(&mut *tx).await?;
        let (Some(old), 1) = (old, stored.rows_affected()) else {
            tx.rollback().await?;
            return Ok(false);
        };
        let now = clock(&mut tx).await?;
        let about = About::nothing(Trail::key_rotated(id, old.try_get(0)?, new));
        audit::write(&mut tx, call, "rotate_key", None, &[about], now).await?;
        durable(tx).await?;
        Ok(true)
    }

    /// One try: what could not be noted now is noted with the next ones.
    pub(super) async fn note_key_use(&self, used: &[(Arc<str>, Millis)]) -> Result<()> {
        let (ids, times): (Vec<&str>, Vec<Millis>) =
            used.iter().map(|(id, at)| (&**id, *at)).unzip();
        let noted = sqlx::query(TOUCH).bind(ids).bind(times).execute(&self.pool);
        noted
            .await
            .map_err(|error| Fault::from(error).into_error())?;
        Ok(())
    }

    pub(super) async fn end_key(&self, call: &Call, id: &str, now: Now) -> Result<bool> {
        let mut attempt = 0;
        loop {
            match self.try_end_key(call, id, now).await {
                Ok(ended) => return Ok(ended),
                Err(fault) => self.once_more(&mut attempt, fault).await?,
            }
        }
    }

    async fn try_end_key(&self, call: &Call, id: &str, now: Now) -> Result<bool, Fault> {
        let mut tx = self.begin().await?;
        let ended = sqlx::query(REVOKE)
            .bind(text(id))
            .bind(now)
            .fetch_optional(&mut *tx)
            .await?;
        let Some(row) = ended else {
            tx.rollback().await?;
            return Ok(false);
        };
        let about = About::nothing(Trail::key_revoked(id));
        audit::write(&mut tx, call, "revoke_key", None, &[about], row.try_get(0)?).await?;
        durable(tx).await?;
        Ok(true)
    }
}
