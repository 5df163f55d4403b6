//! Settles and extends: the plain ack has a short cut, everything else is load → rules → write.

use super::rows::failed;
use super::writer::{Cycle, QueueRow};
use crate::backend::{Settle, SettleOutcome};
use crate::error::Result;
use crate::model::Counts;
use crate::rules;
use crate::rules::settle::{Action, Settled};
use rusqlite::{OptionalExtension, params};

pub(super) fn all(cycle: &mut Cycle<'_>, items: &[Settle]) -> Result<Vec<SettleOutcome>> {
    items.iter().map(|item| one(cycle, item)).collect()
}

fn one(cycle: &mut Cycle<'_>, item: &Settle) -> Result<SettleOutcome> {
    let Some(queue) = cycle.queue(item.queue.uid) else {
        return Ok(SettleOutcome::Stale);
    };
    if let Action::Ack { outcome: None } = item.claim.action
        && !queue.policy.unique_key
        && item.claim.fence == 1
        && plain_ack(cycle, item, &queue)?
    {
        return Ok(SettleOutcome::Decided(Ok(Settled::Acked {
            late: false,
            superseded: false,
        })));
    }
    let Some(mut loaded) = cycle.load(item.id)? else {
        // No message and no record: the first delivery was acked, or it is too long ago to be known.
        let mut draft = rules::Draft::gone(None, Vec::new());
        let decided = rules::settle::settle(&mut draft, &item.claim, &queue.policy, cycle.now);
        return Ok(SettleOutcome::Decided(decided));
    };
    rules::time::pass(&mut loaded.draft, &queue.policy, cycle.now);
    let decided = rules::settle::settle(&mut loaded.draft, &item.claim, &queue.policy, cycle.now);
    cycle.write(&loaded)?;
    Ok(SettleOutcome::Decided(decided))
}

/// The common case: the first delivery, in time, in this incarnation, of a message with no key and no end of its own, whose
/// request id is younger than a window. Exactly here the rules would say: acked, nothing to remember.
fn plain_ack(cycle: &mut Cycle<'_>, item: &Settle, queue: &QueueRow) -> Result<bool> {
    const FIND: &str = "-- ack: is it plain
        SELECT 1 FROM lease l CROSS JOIN message m ON m.seq = l.seq
        WHERE l.seq = ? AND l.fence = 1 AND l.expires_at > ? AND l.queue_id = ?
            AND m.key IS NULL AND m.expires_at IS NULL AND m.created_at > ?";
    let young = cycle.now.saturating_sub(queue.policy.dedupe_window_ms);
    let plain = cycle
        .sql
        .prepare_cached(FIND)
        .and_then(|mut s| {
            s.query_row(params![item.id.0, cycle.now, queue.live_id, young], |_| {
                Ok(())
            })
            .optional()
        })
        .map_err(failed)?;
    if plain.is_none() {
        return Ok(false);
    }
    for sql in [
        "DELETE FROM lease WHERE seq = ?",
        "DELETE FROM message WHERE seq = ?",
    ] {
        cycle
            .sql
            .prepare_cached(sql)
            .and_then(|mut s| s.execute([item.id.0]))
            .map_err(failed)?;
    }
    cycle.count(
        queue.live_id,
        queue.uid,
        &Counts {
            leased: -1,
            acked: 1,
            ..Counts::default()
        },
    );
    Ok(true)
}
