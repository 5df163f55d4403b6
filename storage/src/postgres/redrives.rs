//! Bulk decisions as rows: begin, steer, read, and fold in what died again. How one goes on is in [`steps`](super::steps).
//!
//! Deaths of redriven messages are rows of `redrive_failure` until somebody who holds the redrive's row folds them into it;
//! whoever only reads adds them up.

use super::Postgres;
use super::audit::{self, About};
use super::fault::Fault;
use super::operate::{Tx, Work};
use super::rows::broken;
use super::selections;
use crate::backend::{Answer, Call, OperationRefused as No};
use crate::error::{Result, StoreError};
use crate::model::Millis;
use crate::redrives::{
    Redrive, RedriveId, RedriveListing, RedrivePlan, RedriveState, Steer, WATCH_MS,
};
use crate::rules::bulk;
use crate::rules::trail::Trail;
use sqlx::Row;
use sqlx::postgres::{PgConnection, PgRow};

pub(super) const NEW_ID: &str = "-- redrive, new id\nSELECT nextval('redrive_id')";

pub(super) const KEEP: &str = "-- redrive, keep
INSERT INTO redrive (id, uid, selection_id, state, next_at, created_at, body)
VALUES ($1::bigint, $2::int, $3::bigint, $4::smallint, $5::bigint, $6::bigint, $7::text)";

pub(super) const SAVE: &str = "-- redrive, save
UPDATE redrive SET state = $2::smallint, next_at = $3::bigint, finished_at = $4::bigint,
    watch_until = CASE WHEN finished_at IS NULL THEN $5::bigint ELSE watch_until END, body = $6::text
WHERE id = $1::bigint";

pub(super) const LOCK: &str =
    "-- redrive, lock\nSELECT body FROM redrive WHERE id = $1::bigint FOR UPDATE";

// A bounded number, in the order of the places: what is left comes with the next fold.
pub(super) const FOLD: &str = "-- redrive, fold failures
DELETE FROM redrive_failure WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM redrive_failure WHERE redrive_id = $1::bigint ORDER BY place LIMIT 5000)) RETURNING place";

macro_rules! read {
    ($name:literal, $which:literal) => {
        concat!(
            "-- ",
            $name,
            "
SELECT r.body, f.places FROM (SELECT id, body FROM redrive WHERE ",
            $which,
            ") r
CROSS JOIN LATERAL (SELECT coalesce(array_agg(place), '{}') AS places FROM redrive_failure f
    WHERE f.redrive_id = r.id) f ORDER BY r.id DESC"
        )
    };
}
pub(super) const READ: &str = read!("redrive", "id = $1::bigint");
pub(super) const LIST: &str = read!(
    "redrives",
    "id < $1::bigint AND ($2::smallint IS NULL OR state = $2::smallint)
    AND ($3::int[] IS NULL OR uid = ANY($3::int[])) ORDER BY id DESC LIMIT $4::bigint"
);

/// Reads a redrive's body.
pub(super) fn parse(body: &str) -> Result<Redrive, Fault> {
    serde_json::from_str(body).map_err(|_| broken("redrive"))
}

fn read(row: &PgRow) -> Result<Redrive, Fault> {
    let mut redrive = parse(row.try_get(0)?)?;
    bulk::failed(&mut redrive, &row.try_get::<Vec<i64>, _>(1)?);
    Ok(redrive)
}

/// When it may do its next step; `None` while it is not under way.
fn next_at(redrive: &Redrive) -> Option<Millis> {
    let rests = redrive.state.is_final() || redrive.state == RedriveState::Paused;
    (!rests).then_some(redrive.next_at)
}

/// Writes a locked redrive back.
pub(super) async fn save(connection: &mut PgConnection, redrive: &Redrive) -> Result<(), Fault> {
    sqlx::query(SAVE)
        .bind(redrive.id.0)
        .bind(redrive.state.code())
        .bind(next_at(redrive))
        .bind(redrive.finished_at)
        .bind(redrive.finished_at.map(|at| at.saturating_add(WATCH_MS)))
        .bind(serde_json::to_string(redrive).map_err(StoreError::internal)?)
        .execute(connection)
        .await?;
    Ok(())
}

/// Counts the redriven messages that died again since the last time. Answers how many.
pub(super) async fn fold(
    connection: &mut PgConnection,
    redrive: &mut Redrive,
) -> Result<usize, Fault> {
    let query = sqlx::query(FOLD).bind(redrive.id.0);
    let rows = query.fetch_all(connection).await?;
    let places: Vec<i64> = rows
        .iter()
        .map(|row| row.try_get(0))
        .collect::<Result<_, _>>()?;
    bulk::failed(redrive, &places);
    Ok(places.len())
}

/// Writes the audit row of a redrive that began, was changed or came to its end.
pub(super) async fn audit_row(
    connection: &mut PgConnection,
    call: &Call,
    action: &str,
    redrive: &Redrive,
    trail: Trail,
    now: Millis,
) -> Result<(), Fault> {
    let about = About::queue(redrive.queue, trail);
    audit::write(connection, call, action, Some(redrive.id), &[about], now).await
}

impl Work<'_> {
    pub(super) async fn start_redrive(
        &mut self,
        tx: &mut Tx,
        plan: &RedrivePlan,
    ) -> Result<Answer, Fault> {
        let refused = |why| Ok(Answer::Refused(why));
        let row = sqlx::query(selections::LOCK)
            .bind(plan.selection.0)
            .fetch_optional(&mut **tx)
            .await?;
        let Some(row) = row else {
            return refused(No::SelectionNotFound);
        };
        let selection = selections::parse(row.try_get(0)?)?;
        if selection.expires_at <= self.now {
            return refused(No::SelectionExpired);
        }
        let count = selection.figures.count;
        if plan.expected_count != count {
            return refused(No::CountMismatch { actual: count });
        }
        let row = sqlx::query(NEW_ID).fetch_one(&mut **tx).await?;
        let id = RedriveId(row.try_get(0)?);
        let mut redrive = Redrive::new(id, selection.queue, plan.clone(), count, self.now);
        redrive.actor = self.call.actor.to_string();
        redrive.justification = self.call.justification.as_deref().map(str::to_owned);
        sqlx::query(KEEP)
            .bind(id.0)
            .bind(redrive.queue.0)
            .bind(plan.selection.0)
            .bind(redrive.state.code())
            .bind(next_at(&redrive))
            .bind(self.now)
            .bind(serde_json::to_string(&redrive).map_err(StoreError::internal)?)
            .execute(&mut **tx)
            .await?;
        let trail = Trail::redrive(None, &redrive);
        audit_row(tx, self.call, "start_redrive", &redrive, trail, self.now).await?;
        Ok(Answer::Redrive { id: id.0 })
    }

    pub(super) async fn steer_redrive(
        &mut self,
        tx: &mut Tx,
        id: RedriveId,
        steer: Steer,
    ) -> Result<Answer, Fault> {
        let row = sqlx::query(LOCK)
            .bind(id.0)
            .fetch_optional(&mut **tx)
            .await?;
        let Some(row) = row else {
            return Ok(Answer::Refused(No::RedriveNotFound));
        };
        let mut redrive = parse(row.try_get(0)?)?;
        fold(tx, &mut redrive).await?;
        let before = redrive.clone();
        let changed = bulk::steer(&mut redrive, steer, self.now);
        save(tx, &redrive).await?;
        if !changed {
            return Ok(Answer::Refused(No::RedriveFinished));
        }
        let trail = Trail::redrive(Some(&before), &redrive);
        audit_row(tx, self.call, steer.as_str(), &redrive, trail, self.now).await?;
        Ok(Answer::Redrive { id: id.0 })
    }
}

impl Postgres {
    pub(super) async fn redrive_of(&self, id: RedriveId) -> Result<Option<Redrive>> {
        let rows = self.rows_of(|| sqlx::query(READ).bind(id.0)).await?;
        let redrive = rows.first().map(read).transpose();
        redrive.map_err(Fault::into_error)
    }

    pub(super) async fn redrives_of(&self, listing: &RedriveListing) -> Result<Vec<Redrive>> {
        let queues = listing.queues.as_ref();
        let uids: Option<Vec<i32>> = queues.map(|queues| queues.iter().map(|q| q.0).collect());
        let rows = self
            .rows_of(|| {
                sqlx::query(LIST)
                    .bind(listing.before.map_or(i64::MAX, |id| id.0))
                    .bind(listing.state.map(RedriveState::code))
                    .bind(uids.clone())
                    .bind(i64::from(listing.limit))
            })
            .await?;
        let redrives = rows.iter().map(read).collect::<Result<_, Fault>>();
        redrives.map_err(Fault::into_error)
    }
}
