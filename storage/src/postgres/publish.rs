//! Publish: request id, key, depth, then the message.
//!
//! The plain case is one statement for the whole batch, whatever the number of queues: items of queues without `max_depth`,
//! and without a key where keys are unique. What it could not store for a request id in use, and everything else, is decided
//! in one transaction: look up what the ids and keys name, decide item by item, write the claims. A claim that somebody else
//! makes at the same time shows as a missing row count, and the attempt is repeated on a fresh snapshot.

use super::Postgres;
use super::claims::{Claims, First, taken};
use super::drafts::{For, Wanted};
use super::fault::{Fault, Now};
use super::lane::{Mark, Verdict, begin_marked, bounded, closed_gate, commit};
use super::queues::Cache;
use super::rows::{rank, text};
use crate::backend::{Publish, Published, Stir};
use crate::error::{Result, StoreError};
use crate::known_bug;
use crate::model::{MessageId, Millis, Place, State};
use crate::rules::{self, time};
use sqlx::Row;
use sqlx::postgres::{PgArguments, PgConnection};
use sqlx::query::Query;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Columns of the items, one array per column, beginning at parameter `$first`.
macro_rules! item_columns {
    () => {
        "AS p(i, seq, fingerprint, delay_ms, rank, expires_in, max_attempts, digest, request_id, key, backoff, headers, payload)"
    };
}

/// What a stored item becomes: message, place, and the rows for search, end of life and numbers. Reads `win` and `clk`.
macro_rules! store_ctes {
    ($stripe:literal) => {
        concat!(
            "m AS (
    INSERT INTO message (seq, uid, live_id, created_at, available_at, rank, fingerprint, digest, request_id, key, expires_at,
        max_attempts, backoff, headers, payload)
    SELECT seq, uid, live_id, t, t + delay_ms, rank, fingerprint, digest, request_id, key, t + expires_in,
        max_attempts, backoff, headers, payload FROM win, clk),
r AS (
    INSERT INTO ready (queue_id, rank, available_at, seq, fence, attempts, expirations, releases, redrives, moved)
    SELECT live_id, rank, t, seq, 0, 0, 0, 0, 0, false FROM win, clk WHERE delay_ms = 0),
s AS (
    INSERT INTO delayed (queue_id, rank, due_at, seq, fence, attempts, expirations, releases, redrives)
    SELECT live_id, rank, t + delay_ms, seq, 0, 0, 0, 0, 0 FROM win, clk WHERE delay_ms > 0),
k AS (INSERT INTO keyed (seq, uid, key) SELECT seq, uid, key FROM win WHERE key IS NOT NULL),
x AS (INSERT INTO expiring (seq, check_at) SELECT seq, t + expires_in FROM win, clk WHERE expires_in IS NOT NULL),
c AS (
    INSERT INTO counter AS c (queue_id, uid, stripe, epoch, ready, delayed, accepted)
    SELECT live_id, uid, ",
            $stripe,
            "::smallint, (min(t) / 60000)::int, count(*) FILTER (WHERE delay_ms = 0),
        count(*) FILTER (WHERE delay_ms > 0), count(*)
    FROM win, clk GROUP BY live_id, uid ORDER BY live_id
    ON CONFLICT (queue_id, stripe, epoch) DO UPDATE SET ready = c.ready + excluded.ready,
        delayed = c.delayed + excluded.delayed, accepted = c.accepted + excluded.accepted)"
        )
    };
}

// Differs from sqlite: a statement per batch instead of statements per item, since here each one is a round trip.
// gate: nothing happens unless this connection still owns its mark; see lane.rs.
// q: the queues as the callers know them; the lock makes a purge wait for this statement, or this statement see the purge.
// d: claims the request ids; of two alike in the batch the first wins. Losers get no row.
// Then one row of the time, one per queue that has changed (1), one per item that was not stored (2). The NOT IN tests are
// hashed look-ups that cannot be planned as joins.
pub(super) const PUBLISH: &str = concat!(
    "-- publish
WITH clk AS MATERIALIZED (SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS t),
gate AS MATERIALIZED (
    UPDATE commit_mark SET n = $2::bigint, at = (extract(epoch FROM clock_timestamp()) * 1000)::bigint
    WHERE batcher = $3::bigint AND epoch = $4::int AND current_setting('synchronous_commit') IN ('on', 'remote_apply')
    RETURNING 1),
q AS MATERIALIZED (
    SELECT w.i, w.uid, k.live_id FROM gate CROSS JOIN unnest($5::int[], $6::int[], $7::bigint[]) AS w(i, uid, version)
    CROSS JOIN LATERAL (SELECT live_id FROM queue k WHERE k.uid = w.uid AND k.version = w.version AND NOT deleted
        LIMIT 1 FOR KEY SHARE) k),
inp AS MATERIALIZED (
    SELECT q.uid, q.live_id, p.* FROM unnest($9::int[], $10::bigint[], $11::bigint[], $12::bigint[], $13::smallint[],
        $14::bigint[], $15::int[], $16::bytea[], $17::bytea[], $18::bytea[], $19::text[], $20::text[], $21::bytea[]) ",
    item_columns!(),
    " JOIN q ON q.i = p.i),
d AS (
    INSERT INTO dedupe (uid, digest, seq, fingerprint, kept_from)
    SELECT uid, digest, seq, fingerprint, t FROM inp, clk WHERE digest IS NOT NULL ORDER BY uid, digest, seq
    ON CONFLICT DO NOTHING RETURNING seq),
win AS MATERIALIZED (SELECT * FROM inp WHERE digest IS NULL OR seq IN (SELECT seq FROM d)),
",
    store_ctes!("$8"),
    "
SELECT 0 AS kind, clk.t AS value FROM gate, clk
UNION ALL SELECT 1, w.i FROM unnest($5::int[]) AS w(i) WHERE w.i NOT IN (SELECT i FROM q)
UNION ALL SELECT 2, inp.seq FROM inp WHERE inp.seq NOT IN (SELECT seq FROM win)"
);

// The same for items whose claims are made: everything is stored.
pub(super) const STORE: &str = concat!(
    "-- publish, decided
WITH clk AS MATERIALIZED (SELECT $1::bigint AS t),
q AS MATERIALIZED (SELECT * FROM unnest($2::int[], $3::int[], $4::int[]) AS w(i, uid, live_id)),
win AS MATERIALIZED (
    SELECT q.uid, q.live_id, p.* FROM unnest($6::int[], $7::bigint[], $8::bigint[], $9::bigint[], $10::smallint[],
        $11::bigint[], $12::int[], $13::bytea[], $14::bytea[], $15::bytea[], $16::text[], $17::text[], $18::bytea[]) ",
    item_columns!(),
    " JOIN q ON q.i = p.i),
",
    store_ctes!("$5"),
    "
SELECT 1"
);

// Both answer the queue as it is now. Whoever counts on the depth takes turns.
macro_rules! queues_sql {
    ($name:literal, $lock:literal) => {
        concat!(
            "-- publish, ",
            $name,
            "\nSELECT uid, version, live_id FROM queue WHERE uid = ANY($1::int[]) AND NOT deleted ORDER BY uid ",
            $lock
        )
    };
}
pub(super) const QUEUES: &str = queues_sql!("queues", "FOR KEY SHARE");
pub(super) const DEEP_QUEUES: &str = queues_sql!("queues with a depth", "FOR NO KEY UPDATE");

pub(super) const DEPTHS: &str = "-- publish, depths
SELECT w.id, c.depth FROM unnest($1::int[]) AS w(id)
CROSS JOIN LATERAL (SELECT coalesce(sum(delayed + ready + leased), 0)::bigint AS depth FROM counter WHERE queue_id = w.id) c";

// What a committed batch of a lost connection stored: by its message, or, where that has ended since, by what it took: its
// request id or its unique key.
pub(super) const STORED: &str = "-- publish, stored
SELECT w.i, coalesce(m.created_at, d.kept_from) FROM unnest($1::int[], $2::bigint[], $3::int[], $4::bytea[], $5::bytea[])
    AS w(i, seq, uid, digest, key)
LEFT JOIN LATERAL (SELECT created_at FROM message m WHERE m.seq = w.seq LIMIT 1) m ON true
LEFT JOIN LATERAL (SELECT kept_from FROM dedupe d WHERE d.uid = w.uid AND d.digest = w.digest AND d.seq = w.seq LIMIT 1) d
    ON true
LEFT JOIN LATERAL (SELECT seq FROM unique_key k WHERE k.uid = w.uid AND k.key = w.key AND k.seq = w.seq LIMIT 1) k ON true
WHERE m.created_at IS NOT NULL OR d.kept_from IS NOT NULL OR k.seq IS NOT NULL";

/// An item with its place in the batch and the id of this attempt.
#[derive(Clone, Copy)]
pub(super) struct Item<'a> {
    pub(super) at: usize,
    pub(super) id: MessageId,
    pub(super) publish: &'a Publish,
}

impl Item<'_> {
    pub(super) fn uid(&self) -> i32 {
        self.publish.queue.uid.0
    }

    pub(super) fn digest(&self) -> Option<&[u8]> {
        self.publish.request_id.as_ref().map(|r| &r.digest[..])
    }

    /// The key, where keys are unique.
    pub(super) fn unique_key(&self) -> Option<&[u8]> {
        self.publish
            .key
            .as_deref()
            .filter(|_| self.publish.queue.policy.unique_key)
            .map(str::as_bytes)
    }

    fn is_plain(&self) -> bool {
        self.publish.queue.policy.max_depth.is_none() && self.unique_key().is_none()
    }

    fn created(&self, now: Millis) -> Published {
        let state = if self.publish.delay_ms > 0 {
            State::Delayed
        } else {
            State::Ready
        };
        Published::Created {
            id: self.id,
            state,
            published_at: now,
        }
    }
}

/// Places of the queues of `items` in the arrays of a statement.
pub(super) fn distinct<'a>(items: &[Item<'a>]) -> Vec<&'a Publish> {
    let mut seen = BTreeMap::new();
    for item in items {
        seen.entry((item.uid(), item.publish.queue.version))
            .or_insert(item.publish);
    }
    seen.into_values().collect()
}

fn backoff(item: &Item<'_>) -> Option<String> {
    item.publish
        .backoff
        .as_ref()
        .and_then(|b| serde_json::to_string(b).ok())
}

fn column<'a, 'b, T>(items: &'b [Item<'a>], pick: impl Fn(&'b Item<'a>) -> T) -> Vec<T> {
    items.iter().map(pick).collect()
}

/// Binds the columns of `items`; `place` says which queue an item is in.
pub(super) fn bind_items<'q>(
    query: Query<'q, sqlx::Postgres, PgArguments>,
    items: &[Item<'_>],
    queues: &[&Publish],
) -> Query<'q, sqlx::Postgres, PgArguments> {
    let places: HashMap<(i32, i64), i32> = queues
        .iter()
        .enumerate()
        .map(|(i, p)| ((p.queue.uid.0, p.queue.version), i as i32))
        .collect();
    let place = |item: &Item<'_>| {
        places
            .get(&(item.uid(), item.publish.queue.version))
            .copied()
            .unwrap_or(-1)
    };
    query
        .bind(column(items, place))
        .bind(column(items, |i| i.id.0))
        .bind(column(items, |i| i.publish.fingerprint))
        .bind(column(items, |i| i.publish.delay_ms.max(0)))
        .bind(column(items, |i| rank(i.publish.priority)))
        .bind(column(items, |i| i.publish.expires_in_ms))
        .bind(column(items, |i| i.publish.max_attempts.map(|n| n as i32)))
        .bind(column(items, Item::digest))
        .bind(column(items, |i| {
            i.publish.request_id.as_ref().map(|r| &r.text[..])
        }))
        .bind(column(items, |i| {
            i.publish.key.as_deref().map(str::as_bytes)
        }))
        .bind(column(items, backoff))
        .bind(column(items, |i| {
            i.publish.headers.as_deref().map(text).map(Cow::into_owned)
        }))
        .bind(column(items, |i| &i.publish.payload[..]))
}

/// What one statement of the plain case answered.
struct Plain {
    now: Millis,
    /// Places of queues that have changed.
    stale: HashSet<usize>,
    /// Items whose request id is in use.
    losers: HashSet<i64>,
}

impl Postgres {
    pub(super) async fn publish(
        &self,
        publishes: &[Publish],
        now: Now,
        stir: &mut Stir,
        at: &mut Millis,
    ) -> Result<Vec<Published>> {
        let mut answers: Vec<Option<Published>> = vec![None; publishes.len()];
        let mut items = self.items(publishes, now);
        let id = |item: &Item<'_>| {
            let request = item.publish.request_id.as_ref();
            request.map(|r| (item.uid(), r.digest))
        };
        let careful_ids: HashSet<(i32, [u8; 16])> = items
            .iter()
            .filter(|item| !item.is_plain())
            .filter_map(id)
            .collect();
        // An item whose request id also comes with one that needs care must not overtake it.
        let overtakes = |item: &Item<'_>| id(item).is_some_and(|id| careful_ids.contains(&id));
        let (mut plain, mut careful): (Vec<_>, Vec<_>) = items
            .drain(..)
            .partition(|item| item.is_plain() && !overtakes(item));
        let mut held = self.publishing.take().await?;
        while !plain.is_empty() {
            let (connection, mark) = held.begin(&self.options).await?;
            let result = bounded(try_plain(connection, mark, &plain, now, &self.cache)).await;
            match held.judge(&self.options, result).await? {
                Verdict::Done(done) => {
                    *at = done.now;
                    let queues = distinct(&plain);
                    for item in &plain {
                        let place = queues.iter().position(|q| {
                            q.queue.uid == item.publish.queue.uid
                                && q.queue.version == item.publish.queue.version
                        });
                        if place.is_some_and(|p| done.stale.contains(&p)) {
                            answers[item.at] = Some(Published::Stale);
                        } else if done.losers.contains(&item.id.0) {
                            careful.push(*item);
                        } else {
                            answers[item.at] = Some(item.created(done.now));
                        }
                    }
                    plain.clear();
                }
                Verdict::Again => {}
                Verdict::IdTaken => self.renew(&mut plain, now),
                Verdict::Committed => {
                    let found = self.stored(&plain).await?;
                    settle_recovered(&plain, &found, &mut answers, &mut careful)?;
                    plain.clear();
                }
            }
        }
        careful.sort_by_key(|item| item.at);
        let partly = answers.iter().any(Option::is_some);
        while !careful.is_empty() {
            let decided = async {
                let (connection, mark) = held.begin(&self.options).await?;
                let result = bounded(self.try_careful(connection, mark, &careful, now)).await;
                held.judge(&self.options, result).await
            };
            match decided
                .await
                .map_err(|error| super::after_a_part(error, partly))?
            {
                Verdict::Done((decided_at, decided)) => {
                    *at = decided_at;
                    for (item, answer) in careful.drain(..).zip(decided) {
                        answers[item.at] = Some(answer);
                    }
                }
                Verdict::Again => {}
                Verdict::IdTaken => self.renew(&mut careful, now),
                Verdict::Committed => {
                    let found = self.stored(&careful).await?;
                    let mut left = Vec::new();
                    for item in careful.drain(..) {
                        match found.get(&item.at) {
                            Some(created_at) => answers[item.at] = Some(item.created(*created_at)),
                            // Whatever it was, it stored nothing; or it has no request id to be found by.
                            None if item.digest().is_some() || item.unique_key().is_some() => {
                                left.push(item);
                            }
                            None => {
                                return Err(StoreError::CommitUnknown(
                                    "the connection was lost".into(),
                                ));
                            }
                        }
                    }
                    careful = left;
                }
            }
        }
        drop(held);
        for (publish, answer) in publishes.iter().zip(&answers) {
            if let Some(Published::Created {
                state,
                published_at,
                ..
            }) = answer
            {
                match state {
                    State::Ready => stir.add_ready(publish.queue.uid, 1),
                    _ => stir.add_due(published_at.saturating_add(publish.delay_ms)),
                }
                if let Some(expires_in) = publish.expires_in_ms {
                    stir.add_due(published_at.saturating_add(expires_in));
                }
            }
        }
        Ok(answers
            .into_iter()
            .map(|a| a.unwrap_or(Published::Stale))
            .collect())
    }

    fn items<'a>(&self, publishes: &'a [Publish], now: Now) -> Vec<Item<'a>> {
        let made_at = now.unwrap_or_else(|| self.due.estimate());
        let mut ids = self.ids.lock();
        let item = |(at, publish)| Item {
            at,
            id: ids.next(made_at),
            publish,
        };
        publishes.iter().enumerate().map(item).collect()
    }

    fn renew(&self, items: &mut [Item<'_>], now: Now) {
        let made_at = now.unwrap_or_else(|| self.due.estimate());
        let mut ids = self.ids.lock();
        for item in items {
            item.id = ids.next(made_at);
        }
    }

    /// Which of these items a committed batch has stored, and when.
    async fn stored(&self, items: &[Item<'_>]) -> Result<HashMap<usize, Millis>> {
        let mut attempt = 0;
        loop {
            let rows = sqlx::query(STORED)
                .bind(items.iter().map(|i| i.at as i32).collect::<Vec<_>>())
                .bind(items.iter().map(|i| i.id.0).collect::<Vec<_>>())
                .bind(items.iter().map(Item::uid).collect::<Vec<_>>())
                .bind(items.iter().map(Item::digest).collect::<Vec<_>>())
                .bind(items.iter().map(Item::unique_key).collect::<Vec<_>>())
                .fetch_all(&self.pool)
                .await;
            let found = rows.and_then(|rows| {
                let made_at = |at| items.iter().find(|i| i.at == at).map(|i| i.id.made_at());
                rows.iter()
                    .map(|row| {
                        let at = row.try_get::<i32, _>(0)? as usize;
                        // A key does not know when it was taken; the id does, within milliseconds.
                        let stored_at: Option<Millis> = row.try_get(1)?;
                        Ok((at, stored_at.or_else(|| made_at(at)).unwrap_or_default()))
                    })
                    .collect()
            });
            match found {
                Ok(found) => return Ok(found),
                Err(error) => self
                    .once_more(&mut attempt, error.into())
                    .await
                    .map_err(|error| StoreError::CommitUnknown(error.to_string().into()))?,
            }
        }
    }

    /// Decides items in order, in one transaction. Answers the store's time with the outcomes.
    async fn try_careful(
        &self,
        connection: &mut PgConnection,
        mark: Mark,
        items: &[Item<'_>],
        now: Now,
    ) -> Result<(Millis, Vec<Published>), Fault> {
        let now = begin_marked(connection, mark, now).await?;
        let queues = present(connection, items).await?;
        let mut depths = depths(connection, items, &queues).await?;
        let mut taken = taken(connection, items).await?;
        let named: BTreeMap<i64, Wanted> = taken
            .seqs()
            .map(|(seq, uid)| {
                (
                    seq,
                    Wanted {
                        uid: Some(uid),
                        ..Wanted::default()
                    },
                )
            })
            .collect();
        let firsts = self.firsts(connection, &named, now).await?;

        let mut answers = Vec::with_capacity(items.len());
        let mut claims = Claims::default();
        for item in items {
            let Some(live_id) = queues
                .get(&(item.uid(), item.publish.queue.version))
                .copied()
            else {
                answers.push(Published::Stale);
                continue;
            };
            let policy = &item.publish.queue.policy;
            let mut old_id = None;
            if let Some(id) = item
                .digest()
                .and_then(|digest| taken.ids.get(&(item.uid(), digest.to_vec())))
            {
                let first = firsts.get(&id.seq);
                let window = policy.dedupe_window_ms;
                let free = first.is_some_and(|f| f.frees_id(id.kept_from, window, now));
                if !free && id.fingerprint != item.publish.fingerprint {
                    answers.push(Published::Conflict {
                        id: MessageId(id.seq),
                    });
                    continue;
                } else if !free {
                    answers.push(Published::Duplicate(id.duplicate(first, false, true)));
                    continue;
                }
                old_id = Some(id.seq);
            }
            let mut old_key = None;
            if let Some(key) = item
                .unique_key()
                .and_then(|key| taken.keys.get(&(item.uid(), key.to_vec())))
            {
                let first = firsts.get(&key.seq);
                let gone = first.is_some_and(|f| !f.stored);
                let free = gone && key.keep_until.is_some_and(|until| until <= now);
                if !free {
                    let same_body = key.fingerprint == item.publish.fingerprint;
                    answers.push(Published::Duplicate(key.duplicate(first, true, same_body)));
                    continue;
                }
                old_key = Some(key.seq);
            }
            if let Some(max) = policy.max_depth {
                let depth = depths.entry(live_id).or_default();
                if *depth >= max as i64 {
                    answers.push(Published::Full);
                    continue;
                }
                *depth += 1;
            }
            claims.add(item, live_id, old_id, old_key);
            taken.take(item, now);
            answers.push(item.created(now));
        }
        claims.write(connection, mark.stripe, now).await?;
        commit(connection).await?;
        Ok((now, answers))
    }

    /// What is known at `now` about the messages that have ids or keys.
    async fn firsts(
        &self,
        connection: &mut PgConnection,
        named: &BTreeMap<i64, Wanted>,
        now: Millis,
    ) -> Result<HashMap<i64, First>, Fault> {
        if named.is_empty() {
            return Ok(HashMap::new());
        }
        let mut drafts = self.load(connection, named, For::Look).await?;
        let mut firsts = HashMap::new();
        for (seq, loaded) in &mut drafts {
            if let Some(known) = &loaded.known {
                time::pass(&mut loaded.draft, &known.queue.policy, now);
            }
            let message = loaded.draft.message.as_ref();
            let published_at = message
                .map(|m| m.envelope.created_at)
                .or(loaded.record.as_ref().map(|r| r.published_at))
                .or(loaded.row.as_ref().map(|r| r.envelope.created_at));
            let end = loaded.end();
            firsts.insert(
                *seq,
                First {
                    state: message.map_or(State::Ended, rules::Message::state),
                    end: end.as_ref().map(|e| e.end),
                    outcome: end.and_then(|e| e.outcome),
                    published_at: published_at.unwrap_or_else(|| MessageId(*seq).made_at()),
                    stored: loaded
                        .before
                        .as_ref()
                        .is_some_and(|m| !matches!(m.place, Place::Discarded(_))),
                    purged_at: loaded
                        .purged
                        .as_ref()
                        .and(loaded.draft.ended.as_ref())
                        .map(|e| e.at),
                },
            );
        }
        Ok(firsts)
    }
}

async fn try_plain(
    connection: &mut PgConnection,
    mark: Mark,
    items: &[Item<'_>],
    now: Now,
    cache: &Cache,
) -> Result<Plain, Fault> {
    let queues = distinct(items);
    let sql = known_bug!("dedupe-by-select-then-insert", PUBLISH,
        "OR seq IN (SELECT seq FROM d)"
            => "OR NOT EXISTS (SELECT 1 FROM dedupe k WHERE k.uid = inp.uid AND k.digest = inp.digest)");
    let version = |q: &&Publish| {
        if known_bug!("purge-through-a-stale-queue-cache") {
            cache.live_id(q.queue.uid)
        } else {
            q.queue.version
        }
    };
    // The incarnation comes in the place of the version.
    let query = sqlx::query(known_bug!("purge-through-a-stale-queue-cache", sql,
        "SELECT live_id FROM queue k WHERE k.uid = w.uid AND k.version = w.version AND NOT deleted
        LIMIT 1 FOR KEY SHARE" => "SELECT w.version::int AS live_id"))
    .bind(now)
    .bind(mark.n)
    .bind(mark.batcher)
    .bind(mark.epoch)
    .bind((0..queues.len() as i32).collect::<Vec<_>>())
    .bind(queues.iter().map(|q| q.queue.uid.0).collect::<Vec<_>>())
    .bind(queues.iter().map(version).collect::<Vec<_>>())
    .bind(mark.stripe);
    let rows = bind_items(query, items, &queues)
        .fetch_all(connection)
        .await?;
    let (mut at, mut stale, mut losers) = (None, HashSet::new(), HashSet::new());
    for row in &rows {
        let value: i64 = row.try_get(1)?;
        match row.try_get::<i32, _>(0)? {
            0 => at = Some(value),
            1 => drop(stale.insert(value as usize)),
            _ => drop(losers.insert(value)),
        }
    }
    Ok(Plain {
        now: at.ok_or_else(closed_gate)?,
        stale,
        losers,
    })
}

/// Answers of a batch whose commit is on disk although its answer was lost. An item without a request id whose message is not
/// there any more was stored too when any other item of its queue was; else nobody can say.
fn settle_recovered<'a>(
    items: &[Item<'a>],
    found: &HashMap<usize, Millis>,
    answers: &mut [Option<Published>],
    careful: &mut Vec<Item<'a>>,
) -> Result<()> {
    let confirmed: HashSet<(i32, i64)> = items
        .iter()
        .filter(|i| found.contains_key(&i.at))
        .map(|i| (i.uid(), i.publish.queue.version))
        .collect();
    let any = found.values().copied().max();
    for item in items {
        let stored = found.get(&item.at).copied();
        let sure = item.digest().is_none()
            && confirmed.contains(&(item.uid(), item.publish.queue.version));
        match stored.or(any.filter(|_| sure)) {
            Some(at) => answers[item.at] = Some(item.created(at)),
            None if item.digest().is_some() => careful.push(*item),
            None => return Err(StoreError::CommitUnknown("the connection was lost".into())),
        }
    }
    Ok(())
}

/// The queues that are as the callers know them, with their incarnations.
async fn present(
    connection: &mut PgConnection,
    items: &[Item<'_>],
) -> Result<HashMap<(i32, i64), i32>, Fault> {
    let mut found = HashMap::new();
    for deep in [false, true] {
        let wanted: HashSet<i32> = items
            .iter()
            .filter(|i| i.publish.queue.policy.max_depth.is_some() == deep)
            .map(Item::uid)
            .collect();
        if wanted.is_empty() {
            continue;
        }
        let uids: Vec<i32> = wanted.into_iter().collect();
        let sql = if deep { DEEP_QUEUES } else { QUEUES };
        for row in sqlx::query(sql)
            .bind(uids)
            .fetch_all(&mut *connection)
            .await?
        {
            found.insert((row.try_get(0)?, row.try_get(1)?), row.try_get(2)?);
        }
    }
    Ok(found)
}

/// How deep the queues with a `max_depth` are, by incarnation. Read after their locks.
async fn depths(
    connection: &mut PgConnection,
    items: &[Item<'_>],
    queues: &HashMap<(i32, i64), i32>,
) -> Result<HashMap<i32, i64>, Fault> {
    let deep = items
        .iter()
        .filter(|i| i.publish.queue.policy.max_depth.is_some());
    let ids: HashSet<i32> = deep
        .filter_map(|i| queues.get(&(i.uid(), i.publish.queue.version)).copied())
        .collect();
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let ids: Vec<i32> = ids.into_iter().collect();
    let rows = sqlx::query(DEPTHS).bind(ids).fetch_all(connection).await?;
    rows.iter()
        .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
        .collect()
}
