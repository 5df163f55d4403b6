//! One step of the bulk decision that is due first: a few hundred messages, their audit rows and the redrive itself, in one
//! transaction.
//!
//! The redrive's row is locked for the step, and whoever finds it locked leaves it alone, so replicas share the work without
//! waiting. The messages come from a walk over the dead letters of the selection's incarnation; each is locked, and counts
//! only if its row is still the one that the walk saw.

use super::Postgres;
use super::audit::{self, About};
use super::drafts::{Drafts, For, Wanted};
use super::fault::{Fault, Now};
use super::filters::Place;
use super::operate::{Tx, durable};
use super::redrives::{audit_row, fold, parse, save};
use super::rows::Table;
use super::selections;
use super::walks::{Search, walk};
use super::write::Writes;
use crate::backend::Call;
use crate::dead_letters::Selection;
use crate::error::Result;
use crate::model::Millis;
use crate::redrives::{BulkAction, Redrive, RedriveState, Stepped};
use crate::rules::bulk::{self, Next, Took};
use crate::rules::operate::{Act, act};
use crate::rules::trail::Trail;
use sqlx::Row;
use sqlx::postgres::PgConnection;
use std::collections::BTreeMap;

/// Dead letters that one step looks at.
const MOST_LOOKED_AT: i64 = 5_000;
/// When to look again while another replica makes the step that is due.
const ELSEWHERE_MS: Millis = 50;

pub(super) const NEXT: &str = "-- next step
SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint),
    (SELECT next_at FROM redrive WHERE next_at IS NOT NULL ORDER BY next_at, id LIMIT 1)";

pub(super) const DUE: &str = "-- due step
SELECT r.body, s.body, s.snapshot, s.dead_id FROM (
    SELECT id, selection_id, body FROM redrive WHERE next_at <= $1::bigint ORDER BY next_at, id LIMIT 1
    FOR UPDATE SKIP LOCKED) r
LEFT JOIN LATERAL (SELECT body, snapshot, dead_id FROM selection s WHERE s.id = r.selection_id LIMIT 1) s ON true";

// A message of the canary that died has lost its row here. One that was acked, purged or discarded is nowhere below.
pub(super) const CANARY_LEFT: &str = "-- canary left
SELECT EXISTS (SELECT 1 FROM redriven r
    CROSS JOIN LATERAL (SELECT uid, rank, live_id, available_at FROM message m WHERE m.seq = r.seq LIMIT 1) m
    CROSS JOIN LATERAL (SELECT live_id FROM queue q WHERE q.uid = m.uid LIMIT 1) q
    WHERE r.redrive_id = $1::bigint AND r.place <= $2::bigint AND coalesce(
        (SELECT queue_id = q.live_id FROM ready WHERE moved AND seq + 0 = r.seq LIMIT 1),
        (SELECT queue_id = q.live_id FROM lease WHERE seq = r.seq LIMIT 1),
        (SELECT queue_id = q.live_id FROM delayed WHERE seq + 0 = r.seq LIMIT 1),
        (SELECT queue_id = q.live_id FROM ready WHERE queue_id = m.live_id AND rank = m.rank
            AND available_at = m.available_at AND seq = r.seq LIMIT 1),
        false))";

pub(super) const REDRIVEN: &str = "-- redriven
INSERT INTO redriven (seq, redrive_id, place) SELECT t.seq, $1::bigint, t.place FROM unnest($2::bigint[], $3::bigint[])
    AS t(seq, place) ORDER BY t.seq
ON CONFLICT (seq) DO UPDATE SET redrive_id = excluded.redrive_id, place = excluded.place";

/// What a step makes of the messages.
#[derive(Default)]
struct Decided {
    took: Took,
    drafts: Drafts,
    about: Vec<About>,
    /// Redriven messages with their places among all of the redrive.
    redriven: BTreeMap<i64, i64>,
}

/// The selection of a step, where it is still remembered.
struct Members {
    selection: Selection,
    snapshot: String,
    dead_id: i32,
}

impl Postgres {
    pub(super) async fn step_first(&self, now: Now) -> Result<Stepped> {
        let mut attempt = 0;
        loop {
            match self.try_step_first(now).await {
                Ok(stepped) => {
                    if let Some(due) = stepped.stir.next_due {
                        self.due.note(due);
                    }
                    return Ok(stepped);
                }
                Err(fault) => self.once_more(&mut attempt, fault).await?,
            }
        }
    }

    async fn try_step_first(&self, now: Now) -> Result<Stepped, Fault> {
        let mut connection = self.pool.acquire().await?;
        let (now, next_at) = next(&mut connection, now).await?;
        drop(connection);
        let mut stepped = Stepped {
            next_at,
            now,
            ..Stepped::default()
        };
        if next_at.is_none_or(|at| at > now) {
            return Ok(stepped);
        }
        let mut tx = self.begin().await?;
        let Some(row) = sqlx::query(DUE).bind(now).fetch_optional(&mut *tx).await? else {
            tx.rollback().await?;
            stepped.next_at = next_at.map(|at| at.max(now + ELSEWHERE_MS));
            return Ok(stepped);
        };
        let mut redrive = parse(row.try_get(0)?)?;
        let members = match row.try_get::<Option<&str>, _>(1)? {
            Some(body) => Some(Members {
                selection: selections::parse(body)?,
                snapshot: row.try_get(2)?,
                dead_id: row.try_get(3)?,
            }),
            None => None,
        };
        fold(&mut tx, &mut redrive).await?;
        let canary_left = canary_left(&mut tx, &redrive).await?;
        let mut decided = Decided::default();
        if let Next::Take(limit) = bulk::next(&mut redrive, canary_left, now) {
            decided = self.decide(&mut tx, &redrive, members, limit, now).await?;
            bulk::took(&mut redrive, &decided.took, now);
        }
        stepped.stepped = true;
        self.keep(&mut tx, &redrive, &decided, &mut stepped).await?;
        durable(tx).await?;
        Ok(stepped)
    }

    /// Goes through the next messages of the selection until `limit` of them are decided.
    async fn decide(
        &self,
        tx: &mut Tx,
        redrive: &Redrive,
        members: Option<Members>,
        limit: u32,
        now: Millis,
    ) -> Result<Decided, Fault> {
        let mut decided = Decided::default();
        let Some(members) = members else {
            decided.took.exhausted = true;
            return Ok(decided);
        };
        let (mut looked, mut after) = (0, redrive.cursor);
        loop {
            let search = Search {
                filter: &members.selection.filter,
                newest_first: false,
                limit: i64::from(limit) - decided.took.moved,
                looks: MOST_LOOKED_AT - looked,
                members: Some((&members.snapshot, members.dead_id)),
            };
            let walked = walk(tx, &[redrive.queue.0], search, after).await?;
            looked += walked.looked;
            after = walked.last.or(after);
            self.decide_these(tx, redrive, &walked.found, &mut decided, now)
                .await?;
            decided.took.cursor = after;
            decided.took.exhausted = !walked.more;
            let done = decided.took.moved >= i64::from(limit);
            if !walked.more || done || looked >= MOST_LOOKED_AT {
                return Ok(decided);
            }
        }
    }

    async fn decide_these(
        &self,
        tx: &mut Tx,
        redrive: &Redrive,
        found: &[(Place, Option<String>)],
        decided: &mut Decided,
        now: Millis,
    ) -> Result<(), Fault> {
        if found.is_empty() {
            return Ok(());
        }
        let plan = &redrive.plan;
        let what = match plan.action {
            BulkAction::Redrive => Act::Redrive {
                force: plan.force,
                expires_in_ms: None,
            },
            BulkAction::Discard(code) => Act::Discard { code },
        };
        let wanted = found
            .iter()
            .map(|((_, seq), _)| (*seq, Wanted::default()))
            .collect();
        let purpose = if plan.dry_run { For::Look } else { For::Change };
        let mut drafts = self.load(tx, &wanted, purpose).await?;
        for ((_, seq), entered) in found {
            let Some(loaded) = drafts.get_mut(seq) else {
                continue;
            };
            // Changed between the walk and the lock: not what was selected.
            let same = loaded
                .spot
                .as_ref()
                .is_some_and(|s| s.table == Table::Dead && s.entered == *entered);
            let (Some(known), Some(before), true) =
                (&loaded.known, loaded.draft.message.clone(), same)
            else {
                continue;
            };
            if let Err(why) = act(&mut loaded.draft, &what, &known.queue.policy, now) {
                decided.took.refused(why);
                continue;
            }
            decided.took.moved += 1;
            if plan.dry_run {
                continue;
            }
            let trail = Trail::acted(&before, &what, loaded.draft.message.as_ref());
            decided
                .about
                .push(About::message(known.queue.uid, *seq, trail));
            if plan.action == BulkAction::Redrive {
                let place = redrive.moved + decided.took.moved;
                decided.redriven.insert(*seq, place);
            }
        }
        if !plan.dry_run {
            decided.drafts.append(&mut drafts);
        }
        Ok(())
    }

    /// Writes everything; the counters come last.
    async fn keep(
        &self,
        tx: &mut Tx,
        redrive: &Redrive,
        decided: &Decided,
        stepped: &mut Stepped,
    ) -> Result<(), Fault> {
        let now = stepped.now;
        let call = Call {
            actor: redrive.actor.as_str().into(),
            justification: redrive.justification.as_deref().map(Into::into),
            ..Call::default()
        };
        let word = match redrive.plan.action {
            BulkAction::Redrive => "redrive",
            BulkAction::Discard(_) => "discard",
        };
        audit::write(tx, &call, word, Some(redrive.id), &decided.about, now).await?;
        if !decided.redriven.is_empty() {
            sqlx::query(REDRIVEN)
                .bind(redrive.id.0)
                .bind(decided.redriven.keys().copied().collect::<Vec<_>>())
                .bind(decided.redriven.values().copied().collect::<Vec<_>>())
                .execute(&mut **tx)
                .await?;
        }
        save(tx, redrive).await?;
        if redrive.finished_at.is_some() {
            let word = match redrive.state {
                RedriveState::Aborted => "abort_redrive",
                _ => "finish_redrive",
            };
            let trail = Trail::redrive(None, redrive);
            audit_row(tx, &Call::by("policy"), word, redrive, trail, now).await?;
        }
        stepped.next_at = next(tx, Some(now)).await?.1;
        let writes = Writes::of(&decided.drafts, now);
        self.write(tx, &writes, self.stripe, now).await?;
        stepped.stir.merge(&writes.stir);
        Ok(())
    }
}

/// The store's time, and when the next step of all is due.
async fn next(connection: &mut PgConnection, now: Now) -> Result<(Millis, Option<Millis>), Fault> {
    let row = sqlx::query(NEXT).bind(now).fetch_one(connection).await?;
    Ok((row.try_get(0)?, row.try_get(1)?))
}

/// 1 while the canary's pause runs and one of its messages still waits or is leased.
async fn canary_left(connection: &mut PgConnection, redrive: &Redrive) -> Result<u32, Fault> {
    let canary = redrive.plan.canary.filter(|_| !redrive.canary_over);
    let first = canary.map_or(0, |canary| i64::from(canary.count));
    if first == 0 || redrive.moved < first {
        return Ok(0);
    }
    let row = sqlx::query(CANARY_LEFT)
        .bind(redrive.id.0)
        .bind(first)
        .fetch_one(connection)
        .await?;
    Ok(u32::from(row.try_get::<bool, _>(0)?))
}
