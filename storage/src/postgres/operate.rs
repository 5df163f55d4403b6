//! What operators do: one transaction with its audit rows and its remembered answer.
//!
//! This file knows the frame (request id, dispatch, answer) and decisions about one message; queues are in
//! [`policies`](super::policies), payloads in [`revisions`](super::revisions), many messages at once in
//! [`selections`](super::selections) and [`redrives`](super::redrives).

use super::audit::{self, About};
use super::drafts::{Drafts, For, Wanted};
use super::fault::{Fault, Now};
use super::revisions::Change;
use super::rows::text;
use super::write::Writes;
use super::{Postgres, rows, selections};
use crate::backend::{Answer, Call, Operated, Operation, OperationRefused, Stir};
use crate::error::{Result, StoreError};
use crate::model::{MessageId, Millis, OPERATION_MEMORY_MS, QueueUid, State};
use crate::rules::operate::{Act, Acted, act};
use crate::rules::trail::Trail;
use crate::rules::{self, time};
use sqlx::postgres::PgConnection;
use sqlx::{Postgres as Driver, Row, Transaction};
use std::collections::BTreeMap;

// Repeats of one call take turns, so that the second one finds the answer of the first, and not what the first has done. Not
// for a selection: its snapshot begins with its first statement, and two that meet at the end take turns by themselves.
pub(super) const ALONE: &str =
    "-- operate, alone\nSELECT pg_advisory_xact_lock(hashtextextended($1::text, 0))";

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

// Who has the key of a message that is to come back, in a queue whose keys are unique.
pub(super) const KEY_OWNER: &str = "-- operate, key owner
SELECT k.seq FROM (SELECT uid, key FROM message WHERE seq = $1::bigint LIMIT 1) m
CROSS JOIN LATERAL (SELECT seq FROM unique_key k WHERE k.uid = m.uid AND k.key = m.key LIMIT 1) k";

pub(super) const TAKE_KEY_AGAIN: &str = "-- operate, take key again
INSERT INTO unique_key AS k (uid, key, seq, fingerprint)
SELECT uid, key, seq, fingerprint FROM message WHERE seq = $1::bigint AND key IS NOT NULL
ON CONFLICT (uid, key) DO UPDATE SET keep_until = NULL WHERE k.seq = excluded.seq";

// When somebody else has it by now, it is theirs.
pub(super) const TAKE_ID_AGAIN: &str = "-- operate, take id again
INSERT INTO dedupe (uid, digest, seq, fingerprint, kept_from)
SELECT uid, digest, seq, fingerprint, created_at FROM message WHERE seq = $1::bigint AND digest IS NOT NULL
ON CONFLICT DO NOTHING";

pub(super) type Tx = Transaction<'static, Driver>;

/// One call under way.
pub(super) struct Work<'a> {
    pub(super) store: &'a Postgres,
    pub(super) call: &'a Call,
    pub(super) now: Millis,
    pub(super) stir: Stir,
}

impl Postgres {
    pub(super) async fn perform(
        &self,
        call: &Call,
        operation: &Operation,
        now: Now,
    ) -> Result<Operated> {
        let queue = match operation {
            Operation::Select { queue, .. } => Some(*queue),
            _ => None,
        };
        self.catch_up(queue, now).await?;
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
        let mut tx = if matches!(operation, Operation::Select { .. }) {
            self.pool.begin_with(selections::ONE_SNAPSHOT).await?
        } else {
            self.begin().await?
        };
        let id = call.request_id.as_deref().map(text);
        let alone = !matches!(operation, Operation::Select { .. });
        if let Some(id) = id.as_deref().filter(|_| alone) {
            sqlx::query(ALONE).bind(id).execute(&mut *tx).await?;
        }
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
        };
        let answer = work.perform(&mut tx, operation).await?;
        if let Some(id) = id.filter(|_| !matches!(answer, Answer::Refused(_))) {
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

impl Work<'_> {
    async fn perform(&mut self, tx: &mut Tx, operation: &Operation) -> Result<Answer, Fault> {
        match operation {
            Operation::Act { queue, id, act } => self.one_message(tx, *queue, *id, act).await,
            Operation::Edit {
                queue,
                id,
                base,
                payload,
                headers,
            } => {
                let change = Change::To {
                    base: *base,
                    payload,
                    headers: headers.as_deref(),
                };
                self.edit(tx, *queue, *id, change).await
            }
            Operation::UndoEdit { queue, id } => self.edit(tx, *queue, *id, Change::Back).await,
            Operation::Select { queue, filter } => self.select(tx, *queue, filter).await,
            Operation::StartRedrive(plan) => self.start_redrive(tx, plan).await,
            Operation::SteerRedrive { id, steer } => self.steer_redrive(tx, *id, *steer).await,
            Operation::Purge {
                queue,
                dead_letters,
            } => self.purge(tx, *queue, *dead_letters).await,
            Operation::Pause { queue, paused } => self.pause(tx, *queue, *paused).await,
            Operation::PutQueue {
                name,
                policy,
                expect,
            } => self.put_queue(tx, name, policy, *expect).await,
            Operation::DeleteQueue {
                queue,
                force,
                version,
            } => self.delete_queue(tx, *queue, *force, *version).await,
        }
    }

    pub(super) async fn audit(
        &self,
        connection: &mut PgConnection,
        action: &str,
        about: About,
    ) -> Result<(), Fault> {
        audit::write(connection, self.call, action, None, &[about], self.now).await
    }

    pub(super) async fn write(
        &mut self,
        connection: &mut PgConnection,
        drafts: &Drafts,
    ) -> Result<(), Fault> {
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
        let loaded = drafts.get_mut(&id.0);
        let Some((loaded, known)) = loaded.and_then(|l| l.known.clone().map(|k| (l, k))) else {
            return Ok(not_found);
        };
        if known.deleted || queue.is_some_and(|queue| queue != known.queue.uid) {
            return Ok(not_found);
        }
        let (uid, policy) = (known.queue.uid, &known.queue.policy);
        let comes_back = *what == Act::Reopen && loaded.draft.message.is_some();
        if comes_back && policy.unique_key && !key_is_free(tx, id).await? {
            return Ok(Answer::Refused(OperationRefused::KeyTaken));
        }
        time::pass(&mut loaded.draft, policy, self.now);
        let before = loaded.draft.message.clone();
        let acted = act(&mut loaded.draft, what, policy, self.now);
        let after = loaded.draft.message.as_ref();
        let state = after.map_or(State::Ended, rules::Message::state);
        if let (Ok(_), Some(before)) = (&acted, &before) {
            let trail = Trail::acted(before, what, after);
            if *what == Act::Reopen {
                take_names_again(tx, id, policy.unique_key && before.envelope.key.is_some())
                    .await?;
            }
            self.audit(tx, what.as_str(), About::message(uid, id.0, trail))
                .await?;
        }
        // Also after a refusal: what time had done by itself is filed.
        self.write(tx, &drafts).await?;
        Ok(match acted {
            Ok(acted) => Answer::Acted {
                id: id.0,
                state: state.code(),
                acked_superseded: acted == Acted::AckedSuperseded,
            },
            Err(refused) => Answer::Refused(refused.into()),
        })
    }
}

async fn key_is_free(connection: &mut PgConnection, id: MessageId) -> Result<bool, Fault> {
    let row = sqlx::query(KEY_OWNER)
        .bind(id.0)
        .fetch_optional(connection)
        .await?;
    let owner: Option<i64> = row.map(|row| row.try_get(0)).transpose()?;
    Ok(owner.is_none_or(|owner| owner == id.0))
}

/// A message is back: its request id and its key are its own again.
async fn take_names_again(
    connection: &mut PgConnection,
    id: MessageId,
    unique_key: bool,
) -> Result<(), Fault> {
    sqlx::query(TAKE_ID_AGAIN)
        .bind(id.0)
        .execute(&mut *connection)
        .await?;
    if unique_key {
        let taken = sqlx::query(TAKE_KEY_AGAIN)
            .bind(id.0)
            .execute(connection)
            .await?;
        if taken.rows_affected() != 1 {
            return Err(Fault::moved("a key"));
        }
    }
    Ok(())
}

pub(super) fn no_queue() -> Answer {
    Answer::Refused(OperationRefused::QueueNotFound)
}
