//! Request ids and keys of a batch of publishes: who has them, and taking them.

use super::fault::Fault;
use super::publish::{Item, STORE, bind_items, distinct};
use crate::backend::{Duplicate, Publish};
use crate::model::{End, MessageId, Millis, State};
use crate::rules;
use sqlx::Row;
use sqlx::postgres::PgConnection;
use std::collections::HashMap;

pub(super) const TAKEN_IDS: &str = "-- publish, taken ids
SELECT w.i, d.seq, d.fingerprint, d.kept_from FROM unnest($1::int[], $2::int[], $3::bytea[]) AS w(i, uid, digest)
CROSS JOIN LATERAL (SELECT * FROM dedupe d WHERE d.uid = w.uid AND d.digest = w.digest LIMIT 1) d";

pub(super) const TAKEN_KEYS: &str = "-- publish, taken keys
SELECT w.i, k.seq, k.fingerprint, k.keep_until FROM unnest($1::int[], $2::int[], $3::bytea[]) AS w(i, uid, key)
CROSS JOIN LATERAL (SELECT * FROM unique_key k WHERE k.uid = w.uid AND k.key = w.key LIMIT 1) k";

pub(super) const FREE_ID: &str = "-- publish, free id
DELETE FROM dedupe WHERE ctid = ANY(ARRAY(
    SELECT d.tid FROM (SELECT * FROM unnest($1::int[], $2::bytea[], $3::bigint[]) AS t(uid, digest, seq)
        ORDER BY uid, digest) w
    CROSS JOIN LATERAL (SELECT ctid AS tid FROM dedupe d WHERE d.uid = w.uid AND d.digest = w.digest AND d.seq = w.seq
        LIMIT 1 FOR UPDATE) d))";

pub(super) const FREE_KEY: &str = "-- publish, free key
DELETE FROM unique_key WHERE ctid = ANY(ARRAY(
    SELECT k.tid FROM (SELECT * FROM unnest($1::int[], $2::bytea[], $3::bigint[]) AS t(uid, key, seq) ORDER BY uid, key) w
    CROSS JOIN LATERAL (SELECT ctid AS tid FROM unique_key k WHERE k.uid = w.uid AND k.key = w.key AND k.seq = w.seq
        LIMIT 1 FOR UPDATE) k))";

pub(super) const CLAIM_ID: &str = "-- publish, claim id
INSERT INTO dedupe (uid, digest, seq, fingerprint, kept_from)
SELECT uid, digest, seq, fingerprint, $5::bigint
FROM unnest($1::int[], $2::bytea[], $3::bigint[], $4::bigint[]) AS t(uid, digest, seq, fingerprint) ORDER BY uid, digest
ON CONFLICT DO NOTHING";

pub(super) const CLAIM_KEY: &str = "-- publish, claim key
INSERT INTO unique_key (uid, key, seq, fingerprint)
SELECT * FROM unnest($1::int[], $2::bytea[], $3::bigint[], $4::bigint[]) AS t(uid, key, seq, fingerprint) ORDER BY uid, key
ON CONFLICT DO NOTHING";

/// What is known about a message that has an id or a key.
pub(super) struct First {
    pub(super) state: State,
    pub(super) end: Option<End>,
    pub(super) outcome: Option<std::sync::Arc<str>>,
    pub(super) published_at: Millis,
    /// Its row is there, whatever time has made of it.
    pub(super) stored: bool,
    /// A purge took it, and its request id does not know yet.
    pub(super) purged_at: Option<Millis>,
}

impl First {
    /// Whether its request id, kept from `kept_from`, may be used again.
    pub(super) fn frees_id(&self, kept_from: Millis, window_ms: Millis, now: Millis) -> bool {
        let kept_from = self.purged_at.map_or(kept_from, |at| {
            rules::request_id_kept_from(self.published_at, at, window_ms)
        });
        !self.stored && rules::request_id_is_free(kept_from, window_ms, now)
    }
}

/// Who has a request id or a key.
pub(super) struct Owner {
    pub(super) seq: i64,
    pub(super) fingerprint: i64,
    pub(super) kept_from: Millis,
    pub(super) keep_until: Option<Millis>,
    /// Made by this batch, in this state.
    pub(super) new: Option<State>,
}

impl Owner {
    pub(super) fn duplicate(
        &self,
        first: Option<&First>,
        by_key: bool,
        same_body: bool,
    ) -> Duplicate {
        let id = MessageId(self.seq);
        if let Some(state) = self.new {
            let published_at = self.kept_from;
            return Duplicate {
                by_key,
                id,
                state,
                end: None,
                same_body,
                outcome: None,
                published_at,
            };
        }
        Duplicate {
            by_key,
            id,
            state: first.map_or(State::Ended, |f| f.state),
            end: first.map_or(Some(End::Acked), |f| f.end),
            same_body,
            outcome: first.and_then(|f| f.outcome.clone()),
            published_at: first.map_or_else(|| id.made_at(), |f| f.published_at),
        }
    }
}

/// Request ids and keys in use, as read and as this batch goes on.
#[derive(Default)]
pub(super) struct Taken {
    pub(super) ids: HashMap<(i32, Vec<u8>), Owner>,
    pub(super) keys: HashMap<(i32, Vec<u8>), Owner>,
}

impl Taken {
    pub(super) fn seqs(&self) -> impl Iterator<Item = (i64, i32)> {
        self.ids
            .iter()
            .chain(&self.keys)
            .map(|((uid, _), owner)| (owner.seq, *uid))
    }

    pub(super) fn take(&mut self, item: &Item<'_>, now: Millis) {
        let state = if item.publish.delay_ms > 0 {
            State::Delayed
        } else {
            State::Ready
        };
        let owner = || Owner {
            seq: item.id.0,
            fingerprint: item.publish.fingerprint,
            kept_from: now,
            keep_until: None,
            new: Some(state),
        };
        if let Some(digest) = item.digest() {
            self.ids.insert((item.uid(), digest.to_vec()), owner());
        }
        if let Some(key) = item.unique_key() {
            self.keys.insert((item.uid(), key.to_vec()), owner());
        }
    }
}

pub(super) async fn taken(
    connection: &mut PgConnection,
    items: &[Item<'_>],
) -> Result<Taken, Fault> {
    let mut taken = Taken::default();
    let with_id: Vec<&Item<'_>> = items.iter().filter(|i| i.digest().is_some()).collect();
    let with_key: Vec<&Item<'_>> = items.iter().filter(|i| i.unique_key().is_some()).collect();
    for (sql, items) in [(TAKEN_IDS, &with_id), (TAKEN_KEYS, &with_key)] {
        if items.is_empty() {
            continue;
        }
        let ids = sql == TAKEN_IDS;
        let name = |item: &Item<'_>| {
            if ids {
                item.digest()
            } else {
                item.unique_key()
            }
            .map(<[u8]>::to_vec)
        };
        let rows = sqlx::query(sql)
            .bind((0..items.len() as i32).collect::<Vec<_>>())
            .bind(items.iter().map(|i| i.uid()).collect::<Vec<_>>())
            .bind(items.iter().map(|i| name(i)).collect::<Vec<_>>())
            .fetch_all(&mut *connection)
            .await?;
        for row in &rows {
            let item = items[row.try_get::<i32, _>(0)? as usize];
            let Some(name) = name(item) else { continue };
            let time: Option<Millis> = row.try_get(3)?;
            let owner = Owner {
                seq: row.try_get(1)?,
                fingerprint: row.try_get(2)?,
                kept_from: time.filter(|_| ids).unwrap_or_default(),
                keep_until: time.filter(|_| !ids),
                new: None,
            };
            let names = if ids { &mut taken.ids } else { &mut taken.keys };
            names.insert((item.uid(), name), owner);
        }
    }
    Ok(taken)
}

/// Names as arrays for a statement: queue, name, message, fingerprint.
#[derive(Default)]
struct Names {
    uids: Vec<i32>,
    texts: Vec<Vec<u8>>,
    seqs: Vec<i64>,
    fingerprints: Vec<i64>,
}

impl Names {
    fn push(&mut self, uid: i32, name: &[u8], seq: i64, fingerprint: i64) {
        self.uids.push(uid);
        self.texts.push(name.to_vec());
        self.seqs.push(seq);
        self.fingerprints.push(fingerprint);
    }
}

/// What the decided items write.
#[derive(Default)]
pub(super) struct Claims<'a> {
    items: Vec<Item<'a>>,
    live_ids: HashMap<(i32, i64), i32>,
    freed_ids: Names,
    freed_keys: Names,
    ids: Names,
    keys: Names,
}

impl<'a> Claims<'a> {
    pub(super) fn add(
        &mut self,
        item: &Item<'a>,
        live_id: i32,
        old_id: Option<i64>,
        old_key: Option<i64>,
    ) {
        let (uid, fingerprint) = (item.uid(), item.publish.fingerprint);
        if let Some(digest) = item.digest() {
            self.ids.push(uid, digest, item.id.0, fingerprint);
            if let Some(old) = old_id {
                self.freed_ids.push(uid, digest, old, 0);
            }
        }
        if let Some(key) = item.unique_key() {
            self.keys.push(uid, key, item.id.0, fingerprint);
            if let Some(old) = old_key {
                self.freed_keys.push(uid, key, old, 0);
            }
        }
        self.live_ids
            .insert((uid, item.publish.queue.version), live_id);
        self.items.push(*item);
    }

    /// Ids before keys before counters, each in key order, so that two of these never wait for each other in a circle.
    pub(super) async fn write(
        &self,
        connection: &mut PgConnection,
        stripe: i16,
        now: Millis,
    ) -> Result<(), Fault> {
        let all = |affected: u64, names: &Names, what: &str| {
            if affected == names.seqs.len() as u64 {
                Ok(())
            } else {
                Err(Fault::moved(what))
            }
        };
        for (free, freed, claim, claimed, what) in [
            (
                FREE_ID,
                &self.freed_ids,
                CLAIM_ID,
                &self.ids,
                "a request id",
            ),
            (FREE_KEY, &self.freed_keys, CLAIM_KEY, &self.keys, "a key"),
        ] {
            if !freed.seqs.is_empty() {
                let query = sqlx::query(free)
                    .bind(&freed.uids)
                    .bind(&freed.texts)
                    .bind(&freed.seqs);
                all(
                    query.execute(&mut *connection).await?.rows_affected(),
                    freed,
                    what,
                )?;
            }
            if !claimed.seqs.is_empty() {
                let mut query = sqlx::query(claim)
                    .bind(&claimed.uids)
                    .bind(&claimed.texts)
                    .bind(&claimed.seqs)
                    .bind(&claimed.fingerprints);
                if claim == CLAIM_ID {
                    query = query.bind(now);
                }
                all(
                    query.execute(&mut *connection).await?.rows_affected(),
                    claimed,
                    what,
                )?;
            }
        }
        if self.items.is_empty() {
            return Ok(());
        }
        let queues = distinct(&self.items);
        let live_id = |p: &&Publish| {
            self.live_ids
                .get(&(p.queue.uid.0, p.queue.version))
                .copied()
                .unwrap_or(-1)
        };
        let query = sqlx::query(STORE)
            .bind(now)
            .bind((0..queues.len() as i32).collect::<Vec<_>>())
            .bind(queues.iter().map(|q| q.queue.uid.0).collect::<Vec<_>>())
            .bind(queues.iter().map(live_id).collect::<Vec<_>>())
            .bind(stripe);
        bind_items(query, &self.items, &queues)
            .execute(connection)
            .await?;
        Ok(())
    }
}
