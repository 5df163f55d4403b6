//! The steps of bulk decisions: each takes some dead letters of a selection, decides them, writes their audit rows and saves
//! how far it is, in one transaction.

use super::audit::{self, On};
use super::drafts::Loaded;
use super::redrives::{find, note, save};
use super::rows::failed;
use super::walk::{Spot, Walk};
use super::writer::{Cycle, QueueRow, Writer};
use super::{dead_letters, selections};
use crate::backend::Call;
use crate::dead_letters::{DeadFilter, SelectionId};
use crate::error::Result;
use crate::model::{MessageId, Millis};
use crate::redrives::{BulkAction, Redrive, RedriveId, RedriveState, Stepped};
use crate::rules::Draft;
use crate::rules::bulk::{self, Next, STEP, Took};
use crate::rules::operate::{Act, act};
use crate::rules::trail::Trail;
use rusqlite::{OptionalExtension, params};
use std::ops::ControlFlow;

/// Dead letters that a step looks at, at most: some 5 ms for those that the filter does not mean.
const LOOK: u32 = 5_000;
/// Dead letters that a step decides or refuses, at most: a refusal costs nearly as much as a decision.
const DECIDE: u32 = 2 * STEP;

impl Writer {
    /// Lets the redrive that is due first make a step.
    pub(super) fn step_redrives(&mut self, now: Option<Millis>) -> Result<Stepped> {
        const DUE: &str = "-- redrive: the next one
            SELECT id, next_at FROM redrive WHERE next_at IS NOT NULL ORDER BY next_at, id LIMIT 1";
        let ((stepped, next_at), stir, now) = self.transact(now, |cycle| {
            let next = |cycle: &Cycle<'_>| -> Result<Option<(RedriveId, Millis)>> {
                cycle
                    .sql
                    .prepare_cached(DUE)
                    .and_then(|mut s| {
                        s.query_row([], |r| Ok((RedriveId(r.get(0)?), r.get(1)?)))
                            .optional()
                    })
                    .map_err(failed)
            };
            match next(cycle)? {
                Some((id, at)) if at <= cycle.now => {
                    step(cycle, id)?;
                    Ok((true, next(cycle)?.map(|(_, at)| at)))
                }
                waiting => Ok((false, waiting.map(|(_, at)| at))),
            }
        })?;
        Ok(Stepped {
            stepped,
            next_at,
            stir,
            now,
        })
    }
}

fn step(cycle: &mut Cycle<'_>, id: RedriveId) -> Result<()> {
    let Some(mut redrive) = find(cycle.sql, id)? else {
        return Ok(());
    };
    let left = canary_left(cycle, &redrive)?;
    if let Next::Take(limit) = bulk::next(&mut redrive, left, cycle.now) {
        let took = take(cycle, &redrive, limit)?;
        bulk::took(&mut redrive, &took, cycle.now);
    }
    save(cycle, &redrive)?;
    if redrive.finished_at.is_none() {
        return Ok(());
    }
    let word = match redrive.state {
        RedriveState::Aborted => "abort_redrive",
        _ => "finish_redrive",
    };
    let trail = Trail::redrive(None, &redrive);
    note(cycle, &Call::by("policy"), word, &redrive, &trail)
}

/// How many of the first messages are still waiting or leased; counted only while the canary's pause is on.
fn canary_left(cycle: &Cycle<'_>, redrive: &Redrive) -> Result<u32> {
    const SQL: &str = "-- redrive: what is left of the canary
        SELECT count(*) FROM redriven r CROSS JOIN message m ON m.seq = r.seq
        WHERE r.redrive_id = ?1 AND r.place <= ?2 AND (
            EXISTS (SELECT 1 FROM lease WHERE seq = r.seq AND queue_id = ?3)
            OR EXISTS (SELECT 1 FROM ready WHERE seq = r.seq AND moved = 1 AND queue_id = ?3)
            OR EXISTS (SELECT 1 FROM ready WHERE queue_id = ?3 AND rank = m.rank AND available_at = m.available_at
                AND seq = r.seq)
            OR EXISTS (SELECT 1 FROM delayed WHERE seq = r.seq AND moved = 1 AND queue_id = ?3)
            OR EXISTS (SELECT 1 FROM delayed WHERE due_at = m.available_at AND seq = r.seq AND queue_id = ?3))";
    let canary = redrive.plan.canary.filter(|_| !redrive.canary_over);
    let first = canary.map_or(0, |canary| i64::from(canary.count));
    let Some(queue) = cycle.queue(redrive.queue) else {
        return Ok(0);
    };
    if first == 0 || redrive.moved < first {
        return Ok(0);
    }
    let values = params![redrive.id.0, first, queue.live_id];
    cycle
        .sql
        .prepare_cached(SQL)
        .and_then(|mut s| s.query_row(values, |r| r.get(0)))
        .map_err(failed)
}

/// Decides the next messages of the selection, at most `limit`.
fn take(cycle: &mut Cycle<'_>, redrive: &Redrive, limit: u32) -> Result<Took> {
    let mut took = Took::default();
    let selection = selections::find(cycle.sql, redrive.plan.selection)?;
    let queue = cycle.queue(redrive.queue);
    // After a purge the queue has other dead letters, none of them selected.
    let there = selection
        .zip(queue)
        .filter(|((_, dead_id), queue)| *dead_id == queue.dead_id);
    let Some(((selection, _), queue)) = there else {
        took.exhausted = true;
        return Ok(took);
    };
    let what = match redrive.plan.action {
        BulkAction::Redrive => Act::Redrive {
            force: redrive.plan.force,
            expires_in_ms: None,
        },
        BulkAction::Discard(code) => Act::Discard { code },
    };
    let call = Call {
        actor: redrive.actor.as_str().into(),
        justification: redrive.justification.as_deref().map(Into::into),
        ..Call::default()
    };
    let mut ahead = Ahead {
        selection: selection.id,
        filter: &selection.filter,
        after: redrive.cursor,
        look: LOOK,
        end: false,
    };
    let mut decided = 0;
    loop {
        let left = limit - took.moved as u32;
        // One more than may be moved, to know whether that was the end.
        for spot in ahead.read(cycle, &queue, left.min(DECIDE - decided) + 1)? {
            if took.moved == i64::from(limit) || decided == DECIDE {
                return Ok(took);
            }
            decided += 1;
            took.cursor = Some(spot);
            let place = redrive.moved + took.moved + 1;
            decide(
                cycle,
                redrive,
                &queue,
                (&what, &call),
                (spot, place),
                &mut took,
            )?;
        }
        if ahead.end {
            took.exhausted = true;
            return Ok(took);
        }
        if ahead.look == 0 {
            took.cursor = ahead.after;
            return Ok(took);
        }
    }
}

/// Reads a selection ahead of its redrive.
struct Ahead<'a> {
    selection: SelectionId,
    filter: &'a DeadFilter,
    /// How far it was read.
    after: Option<Spot>,
    /// Rows that may still be looked at.
    look: u32,
    /// That was all.
    end: bool,
}

impl Ahead<'_> {
    /// The next `wanted` places, or fewer when the end or the bound comes first.
    fn read(&mut self, cycle: &Cycle<'_>, queue: &QueueRow, wanted: u32) -> Result<Vec<Spot>> {
        let mut spots = Vec::with_capacity(wanted as usize);
        let walk = Walk {
            selection: Some(self.selection),
            after: self.after,
            ..Walk::all(queue.dead_id, self.filter)
        };
        let mut broke = false;
        let looked = walk.run(cycle.sql, "", self.look, |spot, fits, _| {
            self.after = Some(spot);
            if fits {
                spots.push(spot);
                broke = spots.len() == wanted as usize;
            }
            Ok(if broke {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            })
        })?;
        self.end = !broke && looked < self.look;
        self.look -= looked;
        Ok(spots)
    }
}

/// Decides one message, and writes it unless this is a rehearsal.
fn decide(
    cycle: &mut Cycle<'_>,
    redrive: &Redrive,
    queue: &QueueRow,
    (what, call): (&Act, &Call),
    (spot, place): (Spot, i64),
    took: &mut Took,
) -> Result<()> {
    let Some((message, digest, _)) = dead_letters::load(cycle.sql, queue.dead_id, spot)? else {
        return Ok(());
    };
    let id = message.envelope.id;
    // Neither a redrive nor a discard looks at the deliveries.
    let mut loaded = Loaded {
        draft: Draft::of(message.clone(), Vec::new()),
        before: Some(message),
        purged: None,
        queue: queue.uid,
        digest,
    };
    if let Err(why) = act(&mut loaded.draft, what, &queue.policy, cycle.now) {
        took.refused(why);
        return Ok(());
    }
    took.moved += 1;
    if redrive.plan.dry_run {
        return Ok(());
    }
    cycle.write(&loaded)?;
    let on = On {
        queue: Some(queue.uid),
        message: Some(id),
        redrive: Some(redrive.id),
    };
    let after = loaded.draft.message.as_ref();
    let before = loaded.before.as_ref();
    let trail = before.map(|before| Trail::acted(before, what, after));
    audit::write(cycle, call, what.as_str(), on, &trail.unwrap_or_default())?;
    match redrive.plan.action {
        BulkAction::Redrive => remember(cycle, redrive.id, id, place),
        BulkAction::Discard(_) => Ok(()),
    }
}

/// Notes that a message was redriven, to notice when it dies again.
fn remember(cycle: &Cycle<'_>, redrive: RedriveId, id: MessageId, place: i64) -> Result<()> {
    const SQL: &str = "-- redriven
        INSERT OR REPLACE INTO redriven (seq, redrive_id, place) VALUES (?, ?, ?)";
    cycle
        .sql
        .prepare_cached(SQL)
        .and_then(|mut s| s.execute(params![id.0, redrive.0, place]))
        .map(|_| ())
        .map_err(failed)
}
