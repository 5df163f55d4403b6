//! Changed payloads: a dead letter's payload and headers are replaced in place, and every state of them is kept.
//!
//! The dead letter's row is written again even when nothing of it changes, so that it has left the selections that were made
//! before: nobody decides in bulk about a payload that he has not seen.

use super::drafts::{For, Wanted};
use super::fault::Fault;
use super::operate::{Tx, Work};
use super::rows::text;
use super::{audit, browse};
use crate::backend::{Answer, MAX_REVISIONS, OperationRefused as No, Revision};
use crate::error::Result;
use crate::model::{MessageId, Millis, Place, QueueUid};
use crate::rules::operate::edit;
use crate::rules::time;
use crate::rules::trail::Trail;
use bytes::Bytes;
use sqlx::Row;
use sqlx::postgres::PgConnection;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) const LATEST: &str = "-- latest revision
SELECT number, floor FROM revision WHERE seq = $1::bigint ORDER BY number DESC LIMIT 1";

pub(super) const ONE: &str = "-- one revision
SELECT payload, headers FROM revision WHERE seq = $1::bigint AND number = $2::int";

pub(super) const ALL: &str = "-- revisions
SELECT number, at, actor, reason, floor, undo, payload, headers FROM revision WHERE seq = $1::bigint ORDER BY number";

pub(super) const ADD: &str = "-- add revision
INSERT INTO revision (seq, number, at, actor, reason, floor, undo, payload, headers)
VALUES ($1::bigint, $2::int, $3::bigint, $4::text, $5::text, $6::int, $7::boolean, $8::bytea, $9::text)";

pub(super) const REPLACE: &str = "-- replace payload
UPDATE message SET payload = $2::bytea, headers = $3::text WHERE seq = $1::bigint";

pub(super) const STAMP: &str =
    "-- stamp\nUPDATE dead SET entered = pg_current_xact_id() WHERE seq + 0 = $1::bigint";

pub(super) const FORGET_REVISIONS: &str =
    "-- forget revisions\nDELETE FROM revision WHERE seq = ANY($1::bigint[])";

/// What an operator makes of a dead letter.
#[derive(Clone, Copy)]
pub(super) enum Change<'a> {
    /// These contents, on top of this revision.
    To {
        base: i32,
        payload: &'a Bytes,
        headers: Option<&'a str>,
    },
    /// The contents that it died with.
    Back,
}

impl Work<'_> {
    pub(super) async fn edit(
        &mut self,
        tx: &mut Tx,
        queue: QueueUid,
        id: MessageId,
        change: Change<'_>,
    ) -> Result<Answer, Fault> {
        let refused = |why| Ok(Answer::Refused(why));
        let wanted = BTreeMap::from([(id.0, Wanted::default())]);
        let mut drafts = self.store.load(tx, &wanted, For::Change).await?;
        let loaded = drafts.get_mut(&id.0);
        let Some((loaded, known)) = loaded.and_then(|l| l.known.clone().map(|k| (l, k))) else {
            return refused(No::MessageNotFound);
        };
        if known.queue.uid != queue || known.deleted {
            return refused(No::MessageNotFound);
        }
        time::pass(&mut loaded.draft, &known.queue.policy, self.now);
        let Some(before) = loaded.draft.message.clone() else {
            return refused(No::MessageNotFound);
        };
        let undo = matches!(change, Change::Back);
        let was_edited = matches!(&before.place, Place::Dead(dead) if dead.edited);
        if let Err(why) = edit(&mut loaded.draft, undo) {
            return refused(why.into());
        }
        let latest = sqlx::query(LATEST)
            .bind(id.0)
            .fetch_optional(&mut **tx)
            .await?;
        let (number, floor): (i32, i32) = match &latest {
            Some(row) => (row.try_get(0)?, row.try_get(1)?),
            None => (0, 0),
        };
        if number >= MAX_REVISIONS && !undo {
            return refused(No::RevisionLimit);
        }
        // What it died with stays the floor while the changes of this death go on.
        let floor = if was_edited { floor } else { number };
        let (payload, headers): (Bytes, Option<Arc<str>>) = match change {
            Change::To { base, .. } if base != number => return refused(No::RevisionConflict),
            Change::To {
                payload, headers, ..
            } => (payload.clone(), headers.map(Arc::from)),
            Change::Back => match one(tx, id, floor).await? {
                Some(contents) => contents,
                None => return refused(No::NotEdited),
            },
        };
        let row = sqlx::query(browse::PAYLOAD)
            .bind(id.0)
            .fetch_one(&mut **tx)
            .await?;
        let old = Bytes::copy_from_slice(row.try_get(0)?);
        let envelope = &before.envelope;
        if !undo && payload == old && headers == envelope.headers {
            return Ok(Answer::Edited {
                id: id.0,
                revision: number,
                edited: was_edited,
            });
        }
        if latest.is_none() {
            let published = Revision {
                number: 0,
                at: envelope.created_at,
                actor: "".into(),
                reason: None,
                floor: 0,
                undo: false,
                payload: old.clone(),
                headers: envelope.headers.clone(),
            };
            add(tx, id, &published).await?;
        }
        let revision = Revision {
            number: number + 1,
            at: self.now,
            actor: self.call.actor.clone(),
            reason: self.call.justification.clone(),
            floor,
            undo,
            payload,
            headers,
        };
        add(tx, id, &revision).await?;
        let query = sqlx::query(REPLACE)
            .bind(id.0)
            .bind(&revision.payload[..])
            .bind(revision.headers.as_deref().map(text));
        query.execute(&mut **tx).await?;
        let new = (revision.number, &revision.payload[..]);
        let trail = Trail::edited((number, &old), new);
        let about = audit::About::message(queue, id.0, trail);
        let word = if undo { "undo_edit" } else { "edit" };
        self.audit(tx, word, about).await?;
        self.write(tx, &drafts).await?;
        sqlx::query(STAMP).bind(id.0).execute(&mut **tx).await?;
        Ok(Answer::Edited {
            id: id.0,
            revision: revision.number,
            edited: !undo,
        })
    }
}

async fn one(
    connection: &mut PgConnection,
    id: MessageId,
    number: i32,
) -> Result<Option<(Bytes, Option<Arc<str>>)>, Fault> {
    let row = sqlx::query(ONE)
        .bind(id.0)
        .bind(number)
        .fetch_optional(connection)
        .await?;
    let Some(row) = row else { return Ok(None) };
    let headers: Option<&str> = row.try_get(1)?;
    let payload = Bytes::copy_from_slice(row.try_get(0)?);
    Ok(Some((payload, headers.map(Arc::from))))
}

async fn add(
    connection: &mut PgConnection,
    id: MessageId,
    revision: &Revision,
) -> Result<(), Fault> {
    sqlx::query(ADD)
        .bind(id.0)
        .bind(revision.number)
        .bind(revision.at)
        .bind(text(&revision.actor))
        .bind(revision.reason.as_deref().map(text))
        .bind(revision.floor)
        .bind(revision.undo)
        .bind(&revision.payload[..])
        .bind(revision.headers.as_deref().map(text))
        .execute(connection)
        .await?;
    Ok(())
}

/// All revisions of a message, oldest first.
pub(super) async fn all(
    connection: &mut PgConnection,
    id: MessageId,
) -> Result<Vec<Revision>, Fault> {
    let rows = sqlx::query(ALL).bind(id.0).fetch_all(connection).await?;
    rows.iter()
        .map(|row| {
            let shared = |at: usize| -> Result<Option<Arc<str>>, Fault> {
                Ok(row.try_get::<Option<&str>, _>(at)?.map(Arc::from))
            };
            Ok(Revision {
                number: row.try_get(0)?,
                at: row.try_get::<Millis, _>(1)?,
                actor: row.try_get::<&str, _>(2)?.into(),
                reason: shared(3)?,
                floor: row.try_get(4)?,
                undo: row.try_get(5)?,
                payload: Bytes::copy_from_slice(row.try_get(6)?),
                headers: shared(7)?,
            })
        })
        .collect()
}
