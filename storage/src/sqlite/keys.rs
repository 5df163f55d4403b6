//! API keys.

use super::audit::{self, On};
use super::rows::failed;
use super::writer::Writer;
use crate::backend::{Call, KeyRecord};
use crate::error::{Result, StoreError};
use crate::model::Millis;
use crate::rules::trail::Trail;
use rusqlite::{Connection, params};
use std::sync::Arc;

/// All keys, in the order they were made.
pub(super) fn all(sql: &Connection) -> Result<Vec<KeyRecord>> {
    const SQL: &str = "-- keys
        SELECT id, secret_hash, description, scope, created_at, revoked_at FROM api_key ORDER BY created_at, id";
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
                r.get(5)?,
            ))
        })
        .map_err(failed)?;
    rows.map(|row| {
        let (id, hash, description, scope, created_at, revoked_at) = row.map_err(failed)?;
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
        })
    })
    .collect()
}

impl Writer {
    pub(super) fn add_key(
        &mut self,
        call: &Call,
        key: &KeyRecord,
        only_first: bool,
    ) -> Result<bool> {
        const SQL: &str = "-- add key; with ?7 only when there is none
            INSERT INTO api_key (id, secret_hash, description, scope, created_at, revoked_at)
            SELECT ?1, ?2, ?3, ?4, ?5, ?6 WHERE NOT ?7 OR NOT EXISTS (SELECT 1 FROM api_key)
            ON CONFLICT DO NOTHING";
        let (stored, _, _) = self.transact(None, |cycle| {
            let values = params![
                &*key.id,
                &key.secret_hash[..],
                &*key.description,
                &*key.scope,
                key.created_at,
                key.revoked_at,
                only_first
            ];
            let stored = cycle
                .sql
                .prepare_cached(SQL)
                .and_then(|mut s| s.execute(values))
                .map_err(failed)?;
            if stored == 1 {
                let trail = Trail::key_created(key);
                audit::write(cycle, call, "create_key", On::default(), &trail)?;
            }
            Ok(stored)
        })?;
        Ok(stored == 1)
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
