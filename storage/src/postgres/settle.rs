//! Settles and extends.
//!
//! The plain ack (a first delivery, in time, nothing to remember) is one statement for the whole batch. Everything else, and
//! what that statement did not find plain, is loaded, decided by the rules in order, and written, in one transaction.

use super::Postgres;
use super::drafts::{For, Wanted};
use super::fault::{Fault, Now};
use super::lane::{Mark, Verdict, begin_marked, bounded, closed_gate, commit};
use super::write::Writes;
use crate::backend::{Settle, SettleOutcome, Stir};
use crate::error::Result;
use crate::model::Millis;
use crate::rules::settle::{Action, Settled, settle};
use crate::rules::{Draft, time};
use sqlx::Row;
use sqlx::postgres::PgConnection;
use std::collections::{BTreeMap, HashMap, HashSet};

// Differs from sqlite: keys and life spans belong to the plain case, since leaving it costs four round trips.
// q: the queues as the callers know them; young: since when a message must be published for its request id to need no
// refresh. x: the leases that are plain, locked in order. d: success is what the DELETE returns; a lease that somebody
// changed while this waited for its lock is not visible to it, and goes the careful way. The rest follows from d; the IN tests
// with IS TRUE are hashed look-ups that cannot be planned as joins. u: keys of a queue whose keys were unique once. Then the time, and the items that were not plain.
pub(super) const ACK: &str = "-- ack
WITH clk AS MATERIALIZED (SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS t),
gate AS MATERIALIZED (
    UPDATE commit_mark SET n = $2::bigint, at = (extract(epoch FROM clock_timestamp()) * 1000)::bigint
    WHERE batcher = $3::bigint AND epoch = $4::int AND current_setting('synchronous_commit') IN ('on', 'remote_apply')
    RETURNING 1),
q AS MATERIALIZED (
    SELECT w.i, w.uid, k.live_id, clk.t - w.dedupe_window AS young, clk.t + w.key_retention AS keep_until
    FROM clk CROSS JOIN gate CROSS JOIN unnest($5::int[], $6::int[], $7::bigint[], $8::bigint[], $12::bigint[])
        AS w(i, uid, version, dedupe_window, key_retention)
    CROSS JOIN LATERAL (SELECT live_id FROM queue k WHERE k.uid = w.uid AND k.version = w.version LIMIT 1) k),
a AS MATERIALIZED (
    SELECT p.seq, q.uid, q.live_id, q.young, q.keep_until FROM unnest($10::bigint[], $11::int[]) AS p(seq, i) JOIN q ON q.i = p.i
    ORDER BY p.seq),
x AS MATERIALIZED (
    SELECT a.seq, a.uid, a.live_id, a.keep_until, l.tid, m.mid, m.key, m.expires_at FROM clk CROSS JOIN a
    CROSS JOIN LATERAL (SELECT ctid AS tid FROM lease l WHERE l.seq = a.seq AND l.queue_id = a.live_id AND l.fence = 1
        AND NOT l.special AND l.expires_at > clk.t LIMIT 1 FOR UPDATE) l
    CROSS JOIN LATERAL (SELECT ctid AS mid, key, expires_at FROM message m WHERE m.seq = a.seq AND m.created_at > a.young
        LIMIT 1) m),
d AS (DELETE FROM lease WHERE ctid = ANY(ARRAY(SELECT tid FROM x)) RETURNING seq),
y AS MATERIALIZED (SELECT * FROM x WHERE (seq IN (SELECT seq FROM d)) IS TRUE),
m AS (DELETE FROM message WHERE ctid = ANY(ARRAY(SELECT mid FROM y))),
k AS (DELETE FROM keyed WHERE ctid = ANY(ARRAY(
    SELECT k.tid FROM y CROSS JOIN LATERAL (SELECT ctid AS tid FROM keyed k WHERE y.key IS NOT NULL AND k.uid = y.uid
        AND k.key = y.key AND k.seq = y.seq LIMIT 1) k))),
u AS (UPDATE unique_key SET keep_until = (SELECT min(keep_until) FROM y WHERE y.uid = unique_key.uid) WHERE ctid = ANY(ARRAY(
    SELECT k.tid FROM y CROSS JOIN LATERAL (SELECT ctid AS tid FROM unique_key k WHERE y.key IS NOT NULL AND k.uid = y.uid
        AND k.key = y.key AND k.seq = y.seq LIMIT 1) k))),
e AS (DELETE FROM expiring WHERE seq = ANY(ARRAY(SELECT seq FROM y WHERE expires_at IS NOT NULL))),
c AS (
    INSERT INTO counter AS c (queue_id, uid, stripe, epoch, leased, acked)
    SELECT y.live_id, y.uid, $9::smallint, (min(clk.t) / 60000)::int, -count(*), count(*) FROM y, clk
    GROUP BY y.live_id, y.uid ORDER BY y.live_id
    ON CONFLICT (queue_id, stripe, epoch) DO UPDATE SET leased = c.leased + excluded.leased, acked = c.acked + excluded.acked)
SELECT clk.t, NULL::bigint AS seq FROM clk CROSS JOIN gate
UNION ALL SELECT NULL, p.seq FROM unnest($10::bigint[]) AS p(seq) WHERE p.seq NOT IN (SELECT seq FROM d)";

type Item<'a> = (usize, &'a Settle);

fn may_be_plain(settle: &Settle) -> bool {
    matches!(settle.claim.action, Action::Ack { outcome: None })
        && settle.claim.fence == 1
        && !settle.queue.policy.unique_key
}

impl Postgres {
    pub(super) async fn settle(
        &self,
        settles: &[Settle],
        now: Now,
        stir: &mut Stir,
        at: &mut Millis,
    ) -> Result<Vec<SettleOutcome>> {
        let mut answers: Vec<Option<SettleOutcome>> = vec![None; settles.len()];
        let mut times: HashMap<i64, u32> = HashMap::new();
        for settle in settles {
            *times.entry(settle.id.0).or_default() += 1;
        }
        // Several items on one message keep their order: all of them go the careful way.
        let alone = |settle: &Settle| times.get(&settle.id.0) == Some(&1);
        let (mut plain, mut careful): (Vec<Item<'_>>, Vec<Item<'_>>) = settles
            .iter()
            .enumerate()
            .partition(|(_, s)| may_be_plain(s) && alone(s));
        plain.sort_by_key(|(_, s)| s.id);

        let mut held = self.settling.take().await?;
        while !plain.is_empty() {
            let (connection, mark) = held.begin(&self.options).await?;
            let result = bounded(try_acks(connection, mark, &plain, now)).await;
            match held.judge(&self.options, result).await? {
                Verdict::Done((acked_at, missed)) => {
                    *at = acked_at;
                    for item in plain.drain(..) {
                        if missed.contains(&item.1.id.0) {
                            careful.push(item);
                        } else {
                            let acked = Settled::Acked {
                                late: false,
                                superseded: false,
                            };
                            answers[item.0] = Some(SettleOutcome::Decided(Ok(acked)));
                        }
                    }
                }
                Verdict::Again | Verdict::IdTaken => {}
                // What was acked is found as acked.
                Verdict::Committed => careful.append(&mut plain),
            }
        }
        careful.sort_by_key(|(place, _)| *place);
        let partly = answers.iter().any(Option::is_some);
        while !careful.is_empty() {
            let decided = async {
                let (connection, mark) = held.begin(&self.options).await?;
                let result =
                    bounded(self.try_careful_settles(connection, mark, &careful, now)).await;
                held.judge(&self.options, result).await
            };
            match decided
                .await
                .map_err(|error| super::after_a_part(error, partly))?
            {
                Verdict::Done((decided_at, outcomes, stirred)) => {
                    *at = decided_at;
                    stir.merge(&stirred);
                    for ((place, _), outcome) in careful.drain(..).zip(outcomes) {
                        answers[place] = Some(outcome);
                    }
                }
                // After a lost answer too: a repeat of a settle answers what it is.
                Verdict::Again | Verdict::IdTaken | Verdict::Committed => {}
            }
        }
        Ok(answers
            .into_iter()
            .map(|a| a.unwrap_or(SettleOutcome::Stale))
            .collect())
    }

    async fn try_careful_settles(
        &self,
        connection: &mut PgConnection,
        mark: Mark,
        items: &[Item<'_>],
        now: Now,
    ) -> Result<(Millis, Vec<SettleOutcome>, Stir), Fault> {
        let now = begin_marked(connection, mark, now).await?;
        let mut wanted: BTreeMap<i64, Wanted> = BTreeMap::new();
        for (_, settle) in items {
            let want = wanted.entry(settle.id.0).or_default();
            want.uid = Some(settle.queue.uid.0);
            want.fences.push(settle.claim.fence);
        }
        let mut drafts = self.load(connection, &wanted, For::Change).await?;
        let mut outcomes = Vec::with_capacity(items.len());
        for (_, item) in items {
            let Some(loaded) = drafts.get_mut(&item.id.0) else {
                return Err(Fault::moved("a message"));
            };
            let known = loaded
                .known
                .as_ref()
                .filter(|k| k.queue.version == item.queue.version);
            let Some(policy) = known.map(|k| k.queue.policy.clone()) else {
                outcomes.push(SettleOutcome::Stale);
                continue;
            };
            time::pass(&mut loaded.draft, &policy, now);
            outcomes.push(SettleOutcome::Decided(settle(
                &mut loaded.draft,
                &item.claim,
                &policy,
                now,
            )));
        }
        for loaded in drafts.values_mut() {
            // What came back may be past its own end already.
            if let Some(known) = &loaded.known {
                let draft: &mut Draft = &mut loaded.draft;
                time::pass(draft, &known.queue.policy, now);
            }
        }
        let writes = Writes::of(&drafts, now);
        self.write(connection, &writes, mark.stripe, now).await?;
        commit(connection).await?;
        Ok((now, outcomes, writes.stir))
    }
}

async fn try_acks(
    connection: &mut PgConnection,
    mark: Mark,
    items: &[Item<'_>],
    now: Now,
) -> Result<(Millis, HashSet<i64>), Fault> {
    let mut places: BTreeMap<(i32, i64), &Settle> = BTreeMap::new();
    for (_, settle) in items {
        places
            .entry((settle.queue.uid.0, settle.queue.version))
            .or_insert(settle);
    }
    let numbers: HashMap<(i32, i64), i32> = places
        .keys()
        .enumerate()
        .map(|(i, key)| (*key, i as i32))
        .collect();
    let place = |s: &Settle| {
        numbers
            .get(&(s.queue.uid.0, s.queue.version))
            .copied()
            .unwrap_or(-1)
    };
    let rows = sqlx::query(ACK)
        .bind(now)
        .bind(mark.n)
        .bind(mark.batcher)
        .bind(mark.epoch)
        .bind((0..places.len() as i32).collect::<Vec<_>>())
        .bind(places.keys().map(|k| k.0).collect::<Vec<_>>())
        .bind(places.keys().map(|k| k.1).collect::<Vec<_>>())
        .bind(
            places
                .values()
                .map(|s| s.queue.policy.dedupe_window_ms)
                .collect::<Vec<_>>(),
        )
        .bind(mark.stripe)
        .bind(items.iter().map(|(_, s)| s.id.0).collect::<Vec<_>>())
        .bind(items.iter().map(|(_, s)| place(s)).collect::<Vec<_>>())
        .bind(
            places
                .values()
                .map(|s| s.queue.policy.key_retention_ms)
                .collect::<Vec<_>>(),
        )
        .fetch_all(connection)
        .await?;
    let (mut at, mut missed) = (None, HashSet::new());
    for row in &rows {
        match row.try_get::<Option<i64>, _>(1)? {
            Some(seq) => drop(missed.insert(seq)),
            None => at = row.try_get(0)?,
        }
    }
    Ok((at.ok_or_else(closed_gate)?, missed))
}
