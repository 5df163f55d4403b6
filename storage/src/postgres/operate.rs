//! What operators do: one transaction with its audit row and its remembered answer.

use super::Postgres;
use super::drafts::{Drafts, For, Wanted};
use super::fault::{Fault, Now};
use super::rows::{self, Known, queue_columns, text};
use super::write::Writes;
use crate::backend::{Answer, Call, Expect, Operated, Operation, OperationRefused, Stir};
use crate::error::{Result, StoreError};
use crate::model::{MessageId, Millis, OPERATION_MEMORY_MS, Policy, QueueUid, State};
use crate::rules::operate::{Act, Acted, act};
use crate::rules::{self, time};
use sqlx::postgres::PgConnection;
use sqlx::{Postgres as Driver, Row, Transaction};
use std::collections::BTreeMap;

/// Dead letters that one redrive looks at, at most: those that must be skipped do not use up its limit, but its time.
const MOST_LOOKED_AT: u32 = 10_000;

pub(super) const BEGIN: &str = "-- operate, begin
WITH clk AS MATERIALIZED (SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS t)
SELECT clk.t, o.fingerprint, o.answer
FROM clk LEFT JOIN LATERAL (SELECT fingerprint, answer FROM operation WHERE request_id = $2::text
    AND at > clk.t - $3::bigint LIMIT 1) o ON true";

// The row of an id whose memory is over is written over; any other is a call with the same id that came in between.
pub(super) const REMEMBER: &str = "-- operate, remember
INSERT INTO operation AS o (request_id, fingerprint, answer, at) VALUES ($1::text, $2::bigint, $3::text, $4::bigint)
ON CONFLICT (request_id) DO UPDATE SET fingerprint = excluded.fingerprint, answer = excluded.answer, at = excluded.at
WHERE o.at <= $4::bigint - $5::bigint";

pub(super) const AUDIT: &str = "-- audit
INSERT INTO audit (at, actor, action, uid, seq, justification)
SELECT $1::bigint, $2::text, $3::text, t.uid, t.seq, $4::text FROM unnest($5::int[], $6::bigint[]) AS t(uid, seq)";

macro_rules! queue_sql {
    ($name:literal, $test:literal, $lock:literal) => {
        concat!(
            "-- operate, ",
            $name,
            "\nSELECT ",
            queue_columns!(),
            " FROM queue WHERE ",
            $test,
            " ",
            $lock
        )
    };
}
// Waits for publishes under way, and keeps new ones waiting: for what must not miss a message.
pub(super) const QUEUE_ALONE: &str = queue_sql!("queue, alone", "uid = $1::int", "FOR UPDATE");
// Waits for nobody but other operators.
pub(super) const QUEUE: &str = queue_sql!("queue", "uid = $1::int", "FOR NO KEY UPDATE");
pub(super) const QUEUE_NAMED: &str =
    queue_sql!("queue by name", "name = $1::text", "FOR NO KEY UPDATE");

pub(super) const GAUGES: &str = "-- operate, gauges
SELECT (SELECT coalesce(sum(delayed + ready + leased), 0)::bigint FROM counter WHERE queue_id = $1::int),
    (SELECT coalesce(sum(dead), 0)::bigint FROM counter WHERE queue_id = $2::int)";

pub(super) const NEW_INCARNATIONS: &str = "-- operate, new incarnations
UPDATE allocator SET next_incarnation = next_incarnation + 2 WHERE id = 0 RETURNING next_incarnation - 2";

pub(super) const NEW_UID: &str = "-- operate, new uid
UPDATE allocator SET next_uid = next_uid + 1 WHERE id = 0 RETURNING next_uid - 1";

pub(super) const TO_TRASH: &str = "-- operate, to trash
INSERT INTO trash (id, uid, kind, since) VALUES ($1::int, $2::int, $3::smallint, $4::bigint)";

pub(super) const CREATE: &str = "-- operate, create queue
INSERT INTO queue (uid, name, version, paused, deleted, live_id, dead_id, retention_ms, dead_retention_ms, policy, created_at)
VALUES ($1::int, $2::text, 1, false, false, $3::int, $4::int, $5::bigint, $6::bigint, $7::text, $8::bigint)";

// Touches no key column, so publishes go on.
pub(super) const CHANGE: &str = "-- operate, change queue
UPDATE queue SET version = $2::bigint, paused = $3::boolean, deleted = $4::boolean, retention_ms = $5::bigint,
    dead_retention_ms = $6::bigint, policy = $7::text, created_at = $8::bigint
WHERE uid = $1::int";

pub(super) const REPLACE: &str = "-- operate, replace incarnations
UPDATE queue SET version = version + 1, live_id = $2::int, dead_id = $3::int, deleted = $4::boolean WHERE uid = $1::int";

pub(super) const OLDEST_DEAD: &str = "-- operate, oldest dead
SELECT died_at, seq FROM dead WHERE queue_id = $1::int AND (died_at, seq) > ($2::bigint, $3::bigint)
ORDER BY died_at, seq LIMIT $4::bigint";

// The messages of a queue that have a key and are there; discarded ones, and those that a purge took, are not. One snapshot
// sees a message in one place. Subqueries instead of joins, so that each is one look-up by an index.
macro_rules! live_keys {
    () => {
        "FROM queue q CROSS JOIN keyed k
CROSS JOIN LATERAL (SELECT rank, available_at, fingerprint FROM message m WHERE m.seq = k.seq LIMIT 1) m
WHERE q.uid = $1::int AND k.uid = $1::int AND coalesce(
    (SELECT queue_id = q.live_id FROM lease WHERE seq = k.seq LIMIT 1),
    (SELECT queue_id = q.dead_id FROM dead WHERE seq + 0 = k.seq LIMIT 1),
    (SELECT queue_id = q.live_id FROM ready WHERE moved AND seq + 0 = k.seq LIMIT 1),
    (SELECT true FROM ready WHERE queue_id = q.live_id AND rank = m.rank AND available_at = m.available_at
        AND seq = k.seq LIMIT 1),
    (SELECT queue_id = q.live_id FROM delayed WHERE seq + 0 = k.seq LIMIT 1),
    false)"
    };
}

pub(super) const REPEATED_KEYS: &str = concat!(
    "-- operate, repeated keys\nSELECT 1 ",
    live_keys!(),
    " GROUP BY k.key HAVING count(*) > 1 LIMIT 1"
);

pub(super) const ADOPT_KEYS: &str = concat!(
    "-- operate, adopt keys
INSERT INTO unique_key (uid, key, seq, fingerprint)
SELECT k.uid, k.key, k.seq, m.fingerprint ",
    live_keys!(),
    " ORDER BY k.uid, k.key
ON CONFLICT (uid, key) DO UPDATE SET seq = excluded.seq, fingerprint = excluded.fingerprint, keep_until = NULL"
);

type Tx = Transaction<'static, Driver>;

/// One call under way.
struct Work<'a> {
    store: &'a Postgres,
    call: &'a Call,
    now: Millis,
    stir: Stir,
    /// Queues and messages for the audit row of each.
    touched: Vec<(Option<i32>, Option<i64>)>,
}

impl Postgres {
    pub(super) async fn perform(
        &self,
        call: &Call,
        operation: &Operation,
        now: Now,
    ) -> Result<Operated> {
        self.catch_up(None, now).await?;
        let mut attempt = 0;
        loop {
            match self.try_perform(call, operation, now).await {
                Ok(operated) => {
                    if let Some(at) = operated.stir.next_due {
                        self.due.note(at);
                    }
                    return Ok(operated);
                }
                Err(fault) => self.once_more(&mut attempt, fault).await?,
            }
        }
    }

    async fn try_perform(
        &self,
        call: &Call,
        operation: &Operation,
        now: Now,
    ) -> Result<Operated, Fault> {
        let mut tx = self.begin().await?;
        let id = call.request_id.as_deref().map(text);
        let row = sqlx::query(BEGIN)
            .bind(now)
            .bind(id.as_deref())
            .bind(OPERATION_MEMORY_MS)
            .fetch_one(&mut *tx)
            .await?;
        let now: Millis = row.try_get(0)?;
        if let Some(fingerprint) = row.try_get::<Option<i64>, _>(1)? {
            let repeated = fingerprint == call.fingerprint;
            let answer = if repeated {
                serde_json::from_str(row.try_get(2)?).map_err(|_| rows::broken("answer"))?
            } else {
                Answer::Refused(OperationRefused::RequestIdConflict)
            };
            tx.rollback().await?;
            return Ok(Operated {
                answer,
                repeated,
                stir: Stir::default(),
            });
        }
        let mut work = Work {
            store: self,
            call,
            now,
            stir: Stir::default(),
            touched: Vec::new(),
        };
        let answer = work.perform(&mut tx, operation).await?;
        if !matches!(answer, Answer::Refused(_)) {
            work.audit(&mut tx, operation).await?;
            if let Some(id) = &id {
                let answer = serde_json::to_string(&answer).map_err(StoreError::internal)?;
                let remembered = sqlx::query(REMEMBER)
                    .bind(id)
                    .bind(call.fingerprint)
                    .bind(answer)
                    .bind(now)
                    .bind(OPERATION_MEMORY_MS)
                    .execute(&mut *tx)
                    .await?;
                if remembered.rows_affected() != 1 {
                    return Err(Fault::moved("the same call"));
                }
            }
        }
        durable(tx).await?;
        Ok(Operated {
            answer,
            repeated: false,
            stir: work.stir,
        })
    }
}

/// Commits; when the connection dies over it, nobody can say.
pub(super) async fn durable(tx: Tx) -> Result<(), Fault> {
    tx.commit().await.map_err(|error| match Fault::from(error) {
        Fault::Lost(text) => Fault::Store(StoreError::CommitUnknown(text.into())),
        other => other,
    })
}

fn word(operation: &Operation, answer_created: bool) -> &'static str {
    match operation {
        Operation::Act { act, .. } => act.as_str(),
        Operation::Edit { .. }
        | Operation::UndoEdit { .. }
        | Operation::Select { .. }
        | Operation::StartRedrive(_)
        | Operation::SteerRedrive { .. } => "not yet",
        Operation::Purge { .. } => "purge",
        Operation::Pause { paused: true, .. } => "pause",
        Operation::Pause { paused: false, .. } => "resume",
        Operation::PutQueue { .. } if answer_created => "create_queue",
        Operation::PutQueue { .. } => "put_queue",
        Operation::DeleteQueue { .. } => "delete_queue",
    }
}

impl Work<'_> {
    async fn perform(&mut self, tx: &mut Tx, operation: &Operation) -> Result<Answer, Fault> {
        match operation {
            Operation::Act { queue, id, act } => self.one_message(tx, *queue, *id, act).await,
            Operation::Edit { .. }
            | Operation::UndoEdit { .. }
            | Operation::Select { .. }
            | Operation::StartRedrive(_)
            | Operation::SteerRedrive { .. } => Err(Fault::Store(StoreError::internal("not yet"))),
            Operation::Purge {
                queue,
                dead_letters,
            } => {
                let Some(known) = self.present(tx, *queue, QUEUE_ALONE).await? else {
                    return Ok(no_queue());
                };
                let (live, dead) = self.gauges(tx, &known).await?;
                self.replace(tx, &known, *dead_letters, false).await?;
                Ok(Answer::Purged {
                    purged: live + if *dead_letters { dead } else { 0 },
                })
            }
            Operation::Pause { queue, paused } => {
                let Some(known) = self.present(tx, *queue, QUEUE).await? else {
                    return Ok(no_queue());
                };
                let version = known.queue.version + i64::from(known.queue.paused != *paused);
                self.change(
                    tx,
                    &known,
                    &known.queue.policy,
                    version,
                    *paused,
                    known.queue.created_at,
                )
                .await?;
                Ok(Answer::Queue {
                    uid: queue.0,
                    created: false,
                })
            }
            Operation::PutQueue {
                name,
                policy,
                expect,
            } => self.put_queue(tx, name, policy, *expect).await,
            Operation::DeleteQueue {
                queue,
                force,
                version,
            } => {
                let Some(known) = self.present(tx, *queue, QUEUE_ALONE).await? else {
                    return Ok(no_queue());
                };
                if version.is_some_and(|version| version != known.queue.version) {
                    return Ok(Answer::Refused(OperationRefused::VersionMismatch));
                }
                let (live, dead) = self.gauges(tx, &known).await?;
                if live + dead > 0 && !force {
                    return Ok(Answer::Refused(OperationRefused::QueueNotEmpty));
                }
                self.replace(tx, &known, true, true).await?;
                Ok(Answer::Deleted {
                    purged: live + dead,
                })
            }
        }
    }

    /// Writes one audit row per message, or one for the queue.
    async fn audit(&self, tx: &mut Tx, operation: &Operation) -> Result<(), Fault> {
        let created = self
            .touched
            .iter()
            .any(|(uid, seq)| uid.is_none() && seq.is_none());
        let touched: Vec<_> = self
            .touched
            .iter()
            .filter(|(uid, _)| uid.is_some())
            .collect();
        if touched.is_empty() {
            return Ok(());
        }
        sqlx::query(AUDIT)
            .bind(self.now)
            .bind(text(&self.call.actor))
            .bind(word(operation, created))
            .bind(self.call.justification.as_deref().map(text))
            .bind(touched.iter().map(|t| t.0).collect::<Vec<_>>())
            .bind(touched.iter().map(|t| t.1).collect::<Vec<_>>())
            .execute(&mut **tx)
            .await?;
        Ok(())
    }

    async fn present(
        &mut self,
        tx: &mut Tx,
        uid: QueueUid,
        sql: &'static str,
    ) -> Result<Option<Known>, Fault> {
        let row = sqlx::query(sql)
            .bind(uid.0)
            .fetch_optional(&mut **tx)
            .await?;
        let known = row
            .map(|row| rows::known(&row))
            .transpose()?
            .filter(|k| !k.deleted);
        if known.is_some() {
            self.touched.push((Some(uid.0), None));
        }
        Ok(known)
    }

    async fn write(&mut self, connection: &mut PgConnection, drafts: &Drafts) -> Result<(), Fault> {
        let writes = Writes::of(drafts, self.now);
        self.store
            .write(connection, &writes, self.store.stripe, self.now)
            .await?;
        self.stir.merge(&writes.stir);
        Ok(())
    }

    async fn one_message(
        &mut self,
        tx: &mut Tx,
        queue: Option<QueueUid>,
        id: MessageId,
        what: &Act,
    ) -> Result<Answer, Fault> {
        let not_found = Answer::Refused(OperationRefused::MessageNotFound);
        let wanted = BTreeMap::from([(id.0, Wanted::default())]);
        let mut drafts = self.store.load(tx, &wanted, For::Change).await?;
        let Some(loaded) = drafts.get_mut(&id.0) else {
            return Ok(not_found);
        };
        let Some(known) = loaded.known.clone() else {
            return Ok(not_found);
        };
        if queue.is_some_and(|queue| queue != known.queue.uid) {
            return Ok(not_found);
        }
        let policy = &known.queue.policy;
        time::pass(&mut loaded.draft, policy, self.now);
        let acted = act(&mut loaded.draft, what, policy, self.now);
        let state = loaded
            .draft
            .message
            .as_ref()
            .map_or(State::Ended, rules::Message::state);
        // Also after a refusal: what time had done by itself is filed.
        self.write(tx, &drafts).await?;
        match acted {
            Ok(acted) => {
                self.touched.push((Some(known.queue.uid.0), Some(id.0)));
                let acked_superseded = acted == Acted::AckedSuperseded;
                Ok(Answer::Acted {
                    id: id.0,
                    state: state.code(),
                    acked_superseded,
                })
            }
            Err(refused) => Ok(Answer::Refused(refused.into())),
        }
    }

    /// What waits or is leased, and what is dead.
    async fn gauges(&self, tx: &mut Tx, known: &Known) -> Result<(i64, i64), Fault> {
        let row = sqlx::query(GAUGES)
            .bind(known.live_id)
            .bind(known.dead_id)
            .fetch_one(&mut **tx)
            .await?;
        Ok((row.try_get(0)?, row.try_get(1)?))
    }

    /// Gives the queue new incarnations: everything of the old ones is gone at once, at any depth, and cleared later.
    async fn replace(
        &self,
        tx: &mut Tx,
        known: &Known,
        dead_letters: bool,
        deleted: bool,
    ) -> Result<(), Fault> {
        let first: i32 = sqlx::query(NEW_INCARNATIONS)
            .fetch_one(&mut **tx)
            .await?
            .try_get(0)?;
        let mut trash = vec![(known.live_id, 0i16)];
        let dead_id = if dead_letters {
            trash.push((known.dead_id, 1));
            first + 1
        } else {
            known.dead_id
        };
        for (id, kind) in trash {
            let query = sqlx::query(TO_TRASH)
                .bind(id)
                .bind(known.queue.uid.0)
                .bind(kind)
                .bind(self.now);
            query.execute(&mut **tx).await?;
        }
        let query = sqlx::query(REPLACE)
            .bind(known.queue.uid.0)
            .bind(first)
            .bind(dead_id)
            .bind(deleted);
        query.execute(&mut **tx).await?;
        Ok(())
    }

    async fn change(
        &self,
        tx: &mut Tx,
        known: &Known,
        policy: &Policy,
        version: i64,
        paused: bool,
        created_at: Millis,
    ) -> Result<(), Fault> {
        let json = serde_json::to_string(policy).map_err(StoreError::internal)?;
        sqlx::query(CHANGE)
            .bind(known.queue.uid.0)
            .bind(version)
            .bind(paused)
            .bind(false)
            .bind(policy.retention_ms)
            .bind(policy.dead_letter_retention_ms)
            .bind(json)
            .bind(created_at)
            .execute(&mut **tx)
            .await?;
        Ok(())
    }

    async fn put_queue(
        &mut self,
        tx: &mut Tx,
        name: &str,
        policy: &Policy,
        expect: Expect,
    ) -> Result<Answer, Fault> {
        let row = sqlx::query(QUEUE_NAMED)
            .bind(name)
            .fetch_optional(&mut **tx)
            .await?;
        let known = row.map(|row| rows::known(&row)).transpose()?;
        let there = known.as_ref().filter(|k| !k.deleted).map(|k| &k.queue);
        match (expect, there) {
            (Expect::Absent, Some(queue)) => {
                return Ok(Answer::Queue {
                    uid: queue.uid.0,
                    created: false,
                });
            }
            (Expect::Version(version), queue) if queue.is_none_or(|q| q.version != version) => {
                return Ok(Answer::Refused(OperationRefused::VersionMismatch));
            }
            _ => {}
        }
        let (uid, created) = match &known {
            Some(known) => {
                let (uid, old) = (known.queue.uid, &known.queue);
                if policy.unique_key && !known.deleted && !old.policy.unique_key {
                    // No publish that saw the old policy may come after the look at the keys.
                    sqlx::query(QUEUE_ALONE)
                        .bind(uid.0)
                        .fetch_all(&mut **tx)
                        .await?;
                    if !self.adopt_keys(tx, uid).await? {
                        return Ok(Answer::Refused(OperationRefused::KeysNotUnique));
                    }
                }
                let same = !known.deleted && *old.policy == *policy;
                let version = old.version + i64::from(!same);
                let paused = old.paused && !known.deleted;
                let created_at = if known.deleted {
                    self.now
                } else {
                    old.created_at
                };
                self.change(tx, known, policy, version, paused, created_at)
                    .await?;
                (uid, known.deleted)
            }
            None => (self.create(tx, name, policy).await?, true),
        };
        self.touched.push((Some(uid.0), None));
        if created {
            self.touched.push((None, None));
        }
        Ok(Answer::Queue {
            uid: uid.0,
            created,
        })
    }

    /// A new name. Two that create it at the same time meet at its unique index.
    async fn create(&self, tx: &mut Tx, name: &str, policy: &Policy) -> Result<QueueUid, Fault> {
        let uid: i32 = sqlx::query(NEW_UID)
            .fetch_one(&mut **tx)
            .await?
            .try_get(0)?;
        let first: i32 = sqlx::query(NEW_INCARNATIONS)
            .fetch_one(&mut **tx)
            .await?
            .try_get(0)?;
        let json = serde_json::to_string(policy).map_err(StoreError::internal)?;
        sqlx::query(CREATE)
            .bind(uid)
            .bind(name)
            .bind(first)
            .bind(first + 1)
            .bind(policy.retention_ms)
            .bind(policy.dead_letter_retention_ms)
            .bind(json)
            .bind(self.now)
            .execute(&mut **tx)
            .await?;
        Ok(QueueUid(uid))
    }

    /// Makes the live keys of a queue its unique ones. `false`: one of them is there twice.
    async fn adopt_keys(&self, tx: &mut Tx, uid: QueueUid) -> Result<bool, Fault> {
        let repeated = sqlx::query(REPEATED_KEYS)
            .bind(uid.0)
            .fetch_optional(&mut **tx)
            .await?;
        if repeated.is_some() {
            return Ok(false);
        }
        sqlx::query(ADOPT_KEYS)
            .bind(uid.0)
            .execute(&mut **tx)
            .await?;
        Ok(true)
    }
}

fn no_queue() -> Answer {
    Answer::Refused(OperationRefused::QueueNotFound)
}
