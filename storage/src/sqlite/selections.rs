//! Selections: a number first, then the count, then the record.
//!
//! Counting a million dead letters takes a second; the writer must not wait for it. So the writer only gives the selection its
//! number, from which on every dead letter that is written carries that number; a reader counts those with a lower one; and
//! the writer stores what was counted. Whatever dies or is changed meanwhile carries the number, and is not in the selection.

use super::Inner;
use super::operate::{present, remembered};
use super::rows::{self, failed};
use super::walk::Walk;
use super::writer::{Cycle, Writer};
use crate::backend::{Answer, Call, Operated, Operation, OperationRefused};
use crate::dead_letters::{
    AGES_MS, DeadFilter, Figures, SAMPLE, SELECTION_LIFE_MS, Selection, SelectionId,
};
use crate::error::{Result, StoreError};
use crate::model::{Millis, QueueUid, Reason};
use rusqlite::{Connection, OptionalExtension, params};
use std::collections::{HashMap, VecDeque};
use std::ops::ControlFlow;

/// Row of `meta` with the number of the latest selection.
const META: &str = "generation";

/// The number of the latest selection that was ever begun.
pub(super) fn latest(sql: &Connection) -> Result<i64> {
    let stored: Option<Vec<u8>> = sql
        .query_row("SELECT value FROM meta WHERE name = ?", [META], |r| {
            r.get(0)
        })
        .optional()
        .map_err(failed)?;
    let Some(stored) = stored else { return Ok(0) };
    let stored = stored.try_into();
    stored
        .map(i64::from_be_bytes)
        .map_err(|_| StoreError::internal("the number of the latest selection is damaged"))
}

/// What a count needs to know.
struct Begun {
    id: SelectionId,
    queue: QueueUid,
    dead_id: i64,
    max_redrives: u32,
    now: Millis,
}

/// A selection that was counted and is to be stored, with the incarnation of its dead letters.
pub(super) struct Counted {
    selection: Selection,
    dead_id: i64,
}

/// Makes a selection, or repeats the first answer.
pub(super) fn select(
    inner: &Inner,
    call: &Call,
    (queue, filter): (QueueUid, DeadFilter),
    now: Option<Millis>,
) -> Result<Operated> {
    let begun = inner.write(|writer| writer.begin_selection(call, queue, now))?;
    let counted = match &begun {
        Some(begun) => Some(inner.read(|sql| count(sql, begun, &filter))?),
        None => None,
    };
    let filter = Box::new(filter);
    let operation = Operation::Select { queue, filter };
    inner.write(|writer| writer.operate(call, &operation, counted.as_ref(), now))
}

impl Writer {
    /// Takes the next number. `None`: there is nothing to count, since the queue is not there or the call was answered before.
    fn begin_selection(
        &mut self,
        call: &Call,
        queue: QueueUid,
        now: Option<Millis>,
    ) -> Result<Option<Begun>> {
        const SQL: &str = "-- selection: its number
            INSERT INTO meta (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = ?2";
        let now = self.catch_up(now)?;
        let (begun, _, _) = self.transact(Some(now), |cycle| {
            let (known, row) = (remembered(cycle, call)?, present(cycle, queue));
            let Some(row) = row.filter(|_| known.is_none()) else {
                return Ok(None);
            };
            let id = SelectionId(cycle.known.generation + 1);
            cycle
                .sql
                .prepare_cached(SQL)
                .and_then(|mut s| s.execute(params![META, &id.0.to_be_bytes()[..]]))
                .map_err(failed)?;
            Ok(Some(Begun {
                id,
                queue,
                dead_id: row.dead_id,
                max_redrives: row.policy.max_redrives,
                now,
            }))
        })?;
        if let Some(begun) = &begun {
            self.known.generation = begun.id.0;
        }
        Ok(begun)
    }
}

/// Counts the dead letters that the filter means and that were written before the selection began.
fn count(sql: &Connection, begun: &Begun, filter: &DeadFilter) -> Result<Counted> {
    const COMPLETED: &str = ", EXISTS (SELECT 1 FROM completion c WHERE c.seq = d.seq)";
    const RECORDED: &str = ", d.key IS NOT NULL AND EXISTS
        (SELECT 1 FROM ended e INDEXED BY ended_key WHERE e.uid = ?A AND e.key = d.key AND e.how = 1)";
    let mut figures = Figures::default();
    let mut reasons = [0_i64; Reason::ALL.len()];
    let (mut codes, mut without_code) = (HashMap::<Box<str>, i64>::new(), 0);
    let half = SAMPLE as usize / 2;
    let (mut oldest, mut youngest) = (Vec::new(), VecDeque::new());
    let recorded = RECORDED.replace("?A", &begun.queue.0.to_string());
    let more = format!(", d.reason, d.error_code, d.edited, d.redrives{COMPLETED}{recorded}");
    let walk = Walk {
        selection: Some(begun.id),
        ..Walk::all(begun.dead_id, filter)
    };
    walk.run(sql, &more, u32::MAX, |(died_at, seq), fits, row| {
        if !fits {
            return Ok(ControlFlow::Continue(()));
        }
        figures.count += 1;
        let reason = rows::coded(3, row.get(3)?, Reason::from_code)?;
        if let Some(place) = Reason::ALL.iter().position(|r| *r == reason) {
            reasons[place] += 1;
        }
        match row.get_ref(4)?.as_str_or_null()? {
            None => without_code += 1,
            Some(code) => match codes.get_mut(code) {
                Some(count) => *count += 1,
                None => {
                    codes.insert(code.into(), 1);
                }
            },
        }
        let age = begun.now - died_at;
        figures.by_age[AGES_MS.iter().filter(|bound| age >= **bound).count()] += 1;
        figures.edited += row.get::<_, i64>(5)?;
        let redrives: i64 = row.get(6)?;
        figures.over_max_redrives += i64::from(redrives >= i64::from(begun.max_redrives));
        figures.completion_remembered += row.get::<_, i64>(7)?;
        figures.outcome_recorded += row.get::<_, i64>(8)?;
        if oldest.len() < half {
            oldest.push(seq);
        } else {
            if youngest.len() == half {
                youngest.pop_front();
            }
            youngest.push_back(seq);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    let reasons = Reason::ALL.iter().copied().zip(reasons);
    let codes = codes
        .into_iter()
        .map(|(code, count)| (Some(code.into()), count));
    let codes = codes.chain([(None, without_code)]);
    figures.by_reason = reasons.filter(|(_, count)| *count > 0).collect();
    figures.by_error_code = codes.filter(|(_, count)| *count > 0).collect();
    figures.finish();
    Ok(Counted {
        selection: Selection {
            id: begun.id,
            queue: begun.queue,
            filter: filter.clone(),
            figures,
            sample: oldest.into_iter().chain(youngest).collect(),
            created_at: begun.now,
            expires_at: begun.now + SELECTION_LIFE_MS,
        },
        dead_id: begun.dead_id,
    })
}

/// Stores a selection that was counted.
pub(super) fn store(
    cycle: &Cycle<'_>,
    queue: QueueUid,
    counted: Option<&Counted>,
) -> Result<Answer> {
    const SQL: &str = "-- selection
        INSERT INTO selection (id, uid, dead_id, expires_at, body) VALUES (?, ?, ?, ?, ?)";
    let Some(Counted { selection, dead_id }) = counted.filter(|_| present(cycle, queue).is_some())
    else {
        return Ok(Answer::Refused(OperationRefused::QueueNotFound));
    };
    let id = selection.id.0;
    let body = serde_json::to_string(selection).map_err(StoreError::internal)?;
    let values = params![id, queue.0, dead_id, selection.expires_at, body];
    cycle
        .sql
        .prepare_cached(SQL)
        .and_then(|mut s| s.execute(values))
        .map_err(failed)?;
    Ok(Answer::Selected { id })
}

/// A selection, with the incarnation of its dead letters.
pub(super) fn find(sql: &Connection, id: SelectionId) -> Result<Option<(Selection, i64)>> {
    const SQL: &str = "-- find selection
        SELECT body, dead_id FROM selection WHERE id = ?";
    let found: Option<(String, i64)> = sql
        .prepare_cached(SQL)
        .and_then(|mut s| {
            s.query_row([id.0], |r| Ok((r.get(0)?, r.get(1)?)))
                .optional()
        })
        .map_err(failed)?;
    let Some((body, dead_id)) = found else {
        return Ok(None);
    };
    let selection = serde_json::from_str(&body).map_err(StoreError::internal)?;
    Ok(Some((selection, dead_id)))
}

/// A redrive has it: it stays as long as that.
pub(super) fn keep(cycle: &Cycle<'_>, id: SelectionId) -> Result<()> {
    const SQL: &str = "-- selection: kept by a redrive
        UPDATE selection SET expires_at = NULL WHERE id = ?";
    cycle
        .sql
        .prepare_cached(SQL)
        .and_then(|mut s| s.execute([id.0]))
        .map(|_| ())
        .map_err(failed)
}
