//! API keys.

use super::audit::{self, On};
use super::rows::failed;
use super::writer::Writer;
use crate::backend::{Call, KeyRecord};
use crate::error::{Result, StoreError};
use crate::model::Millis;
use crate::rules::trail::Trail;
use rusqlite::{Connection, OptionalExtension, params};
use std::sync::Arc;

/// All keys, in the order they were made.
pub(super) fn all(sql: &Connection) -> Result<Vec<KeyRecord>> {
    const SQL: &str = "-- keys
        SELECT id, secret_hash, description, scope, created_at, revoked_at, expires_at, last_used_at FROM api_key ORDER BY created_at, id";
    let mut statement = sql.prepare_cached(SQL).map_err(failed)?;
    let rows = statement
        .query_map([], |r| {
            let text = |index: usize| r.get::<_, String>(index).map(Arc::from);
            Ok((
                text(0)?,
                r.get::<_, Vec<u8>>(1)?,
                text(2)?,
                text(3)?,
                r.get(4)?,
                [r.get(5)?, r.get(6)?, r.get(7)?],
            ))
        })
        .map_err(failed)?;
    rows.map(|row| {
        let (id, hash, description, scope, created_at, [revoked_at, expires_at, last_used_at]) =
            row.map_err(failed)?;
        let secret_hash = hash
            .try_into()
            .map_err(|_| StoreError::internal("a key's hash is damaged"))?;
        Ok(KeyRecord {
            id,
            secret_hash,
            description,
            scope,
            created_at,
            revoked_at,
            expires_at,
            last_used_at,
        })
    })
    .collect()
}

/// Whether it was stored: not with an id that is taken, and with `only_first` only when there is no key.
fn insert(sql: &Connection, key: &KeyRecord, only_first: bool) -> Result<bool> {
    const SQL: &str = "-- add key; with ?8 only when there is none
        INSERT INTO api_key (id, secret_hash, description, scope, created_at, revoked_at, expires_at)
        SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7 WHERE NOT ?8 OR NOT EXISTS (SELECT 1 FROM api_key)
        ON CONFLICT DO NOTHING";
    let values = params![
        &*key.id,
        &key.secret_hash[..],
        &*key.description,
        &*key.scope,
        key.created_at,
        key.revoked_at,
        key.expires_at,
        only_first
    ];
    let stored = sql
        .prepare_cached(SQL)
        .and_then(|mut s| s.execute(values))
        .map_err(failed)?;
    Ok(stored == 1)
}

impl Writer {
    pub(super) fn add_key(
        &mut self,
        call: &Call,
        key: &KeyRecord,
        only_first: bool,
    ) -> Result<bool> {
        let (stored, _, _) = self.transact(None, |cycle| {
            let stored = insert(cycle.sql, key, only_first)?;
            if stored {
                let trail = Trail::key_created(key);
                audit::write(cycle, call, "create_key", On::default(), &trail)?;
            }
            Ok(stored)
        })?;
        Ok(stored)
    }

    pub(super) fn rotate_key(
        &mut self,
        call: &Call,
        id: &str,
        ends_at: Millis,
        new: &KeyRecord,
    ) -> Result<bool> {
        const SQL: &str = "-- rotate key: the old one ends
            UPDATE api_key SET expires_at = min(coalesce(expires_at, ?2), ?2)
            WHERE id = ?1 AND revoked_at IS NULL AND NOT EXISTS (SELECT 1 FROM api_key WHERE id = ?3)
            RETURNING expires_at";
        let (rotated, _, _) = self.transact(None, |cycle| {
            let values = params![id, ends_at, &*new.id];
            let ends_at: Option<Millis> = cycle
                .sql
                .prepare_cached(SQL)
                .and_then(|mut s| s.query_row(values, |r| r.get(0)).optional())
                .map_err(failed)?;
            let Some(ends_at) = ends_at else {
                return Ok(false);
            };
            insert(cycle.sql, new, false)?;
            let trail = Trail::key_rotated(id, ends_at, new);
            audit::write(cycle, call, "rotate_key", On::default(), &trail)?;
            Ok(true)
        })?;
        Ok(rotated)
    }

    pub(super) fn touch_keys(&mut self, used: &[(Arc<str>, Millis)]) -> Result<()> {
        const SQL: &str = "-- touch key
            UPDATE api_key SET last_used_at = ?2 WHERE id = ?1 AND coalesce(last_used_at, 0) < ?2";
        self.transact(None, |cycle| {
            for (id, at) in used {
                cycle
                    .sql
                    .prepare_cached(SQL)
                    .and_then(|mut s| s.execute(params![&**id, at]))
                    .map_err(failed)?;
            }
            Ok(())
        })?;
        Ok(())
    }

    pub(super) fn revoke_key(
        &mut self,
        call: &Call,
        id: &str,
        now: Option<Millis>,
    ) -> Result<bool> {
        const SQL: &str =
            "-- revoke key\nUPDATE api_key SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL";
        let (revoked, _, _) = self.transact(now, |cycle| {
            let values = params![cycle.now, id];
            let revoked = cycle
                .sql
                .prepare_cached(SQL)
                .and_then(|mut s| s.execute(values))
                .map_err(failed)?;
            if revoked == 1 {
                let trail = Trail::key_revoked(id);
                audit::write(cycle, call, "revoke_key", On::default(), &trail)?;
            }
            Ok(revoked)
        })?;
        Ok(revoked == 1)
    }
}
