//! Receive: the head of `ready` becomes leases.
//!
//! One statement per queue for all receives of the batch that ask for it; the messages are dealt in the order of the receives.
//! What the statement may not hand out (past its end or at a limit that was lowered since) it leaves where it is and reports;
//! the rules put it elsewhere, and the statement runs again for what is missing.

use super::Postgres;
use super::drafts::{For, Wanted};
use super::fault::{Fault, Now};
use super::lane::{Held, Mark, Verdict, begin_marked, bounded, closed_gate, commit};
use super::rows::{self, MESSAGE_COLUMNS, delivery_columns, message_columns, rank, text};
use super::write::Writes;
use crate::backend::{Delivery, MAX_RECEIVE_BYTES, Receive, Received, Stir};
use crate::error::Result;
use crate::known_bug;
use crate::model::{Lease, Life, Millis, Place, QueueUid};
use crate::rules::{self, Message, time};
use bytes::Bytes;
use sqlx::Row;
use sqlx::postgres::{PgConnection, PgRow};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

/// Most messages of one statement: bounds what a batch of greedy receives holds in memory.
const MOST_PER_STATEMENT: u32 = 512;
/// A receive for more than this can exceed [`MAX_RECEIVE_BYTES`] with messages of the largest size, so it runs alone.
const MOST_UNMEASURED: u32 = 31;
/// Repeats of the statement after messages that had to go elsewhere.
const ROUNDS: u32 = 20;

// Differs from sqlite: rows that another replica holds are skipped, and scans begin at a floor (floors.rs).
// q: the queue as it is now. pick: the head in order, priority by priority, locked; rows that another receive holds are
// skipped. The ranks come in order and the join is a loop, so the outer LIMIT stops the pick at n rows and n locks.
// seen: with the message, numbered; plain: the rules would hand it out as it is. d: success is what the DELETE returns.
// The lease's length and worker are looked up by number.
pub(super) const RECEIVE: &str = concat!(
    "-- receive
WITH clk AS MATERIALIZED (SELECT coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS t),
gate AS MATERIALIZED (
    UPDATE commit_mark SET n = $2::bigint, at = (extract(epoch FROM clock_timestamp()) * 1000)::bigint
    WHERE batcher = $3::bigint AND epoch = $4::int AND current_setting('synchronous_commit') IN ('on', 'remote_apply')
    RETURNING 1),
q AS MATERIALIZED (
    SELECT k.live_id, k.version = $6::bigint AND NOT k.deleted AS current, k.paused
    FROM gate CROSS JOIN LATERAL (SELECT live_id, version, paused, deleted FROM queue k WHERE k.uid = $5::int LIMIT 1) k),
pick AS MATERIALIZED (
    SELECT r.* FROM q CROSS JOIN unnest($8::smallint[], $9::bigint[]) AS w(rank, floor)
    CROSS JOIN LATERAL (
        SELECT ctid AS tid, r.* FROM ready r WHERE r.queue_id = q.live_id AND r.rank = w.rank AND r.available_at >= w.floor
        ORDER BY r.available_at, r.seq LIMIT $10::bigint FOR UPDATE SKIP LOCKED) r
    WHERE q.current AND NOT q.paused LIMIT $10::bigint),
seen AS MATERIALIZED (
    SELECT *, (count(*) FILTER (WHERE plain) OVER w)::int AS n, coalesce(sum(size) FILTER (WHERE plain) OVER w, 0) AS bytes
    FROM (SELECT p.tid, p.seq, p.fence, p.attempts, p.expirations, p.releases, p.redrives, p.available_at AS place, m.*,
            coalesce(p.attempts < coalesce(m.max_attempts, $14::int) AND p.expirations < $15::int
                AND coalesce(m.expires_at > clk.t, true) AND p.available_at + $16::bigint > clk.t, false) AS plain
        FROM clk CROSS JOIN pick p LEFT JOIN LATERAL (SELECT ",
    message_columns!(),
    ", m.payload FROM message m WHERE m.seq = p.seq LIMIT 1) m ON m.uid IS NOT NULL) measured
    WINDOW w AS (ROWS UNBOUNDED PRECEDING)),
d AS (
    DELETE FROM ready WHERE ctid = ANY(ARRAY(SELECT tid FROM seen WHERE plain AND (n = 1 OR bytes <= $17::bigint)))
    RETURNING seq),
l AS (
    INSERT INTO lease (seq, queue_id, rank, available_at, leased_at, expires_at, check_at, fence, attempts, expirations,
        releases, redrives, bounds, special, worker)
    SELECT s.seq, q.live_id, s.rank, s.place, clk.t, clk.t + ($11::bigint[])[n], clk.t + ($11::bigint[])[n], s.fence + 1,
        s.attempts, s.expirations, s.releases, s.redrives,
        ((s.attempts + 1 >= coalesce(s.max_attempts, $14::int))::int
            + 2 * (s.expirations + 1 >= $15::int)::int)::smallint,
        false, ($13::text[])[($12::int[])[n]]
    FROM seen s, q, clk WHERE plain AND (s.seq IN (SELECT seq FROM d)) IS TRUE),
c AS (
    INSERT INTO counter AS c (queue_id, uid, stripe, epoch, ready, leased, delivered)
    SELECT q.live_id, $5::int, $7::smallint, (clk.t / 60000)::int, -x.n, x.n, x.n
    FROM (SELECT count(*) AS n FROM d) x, q, clk WHERE x.n > 0
    ON CONFLICT (queue_id, stripe, epoch) DO UPDATE SET ready = c.ready + excluded.ready,
        leased = c.leased + excluded.leased, delivered = c.delivered + excluded.delivered)
SELECT clk.t, q.current, q.paused, s.seq, s.plain, (s.seq IN (SELECT seq FROM d)) IS TRUE AS taken, s.n, s.place,
    s.fence, s.attempts, s.expirations, s.releases, s.redrives,
    s.uid, s.live_id, s.created_at, s.available_at, s.rank, s.expires_at, s.max_attempts, s.digest, s.request_id, s.key,
    s.backoff, s.headers, s.size, s.payload, f.*
FROM clk CROSS JOIN gate LEFT JOIN q ON true LEFT JOIN seen s ON true
LEFT JOIN LATERAL (SELECT ",
    delivery_columns!(),
    " FROM delivery d WHERE s.plain AND s.fence > 0 AND d.seq = s.seq AND d.cause IN (1, 2, 3)
    ORDER BY d.fence DESC LIMIT 1) f ON true"
);

/// Receives of one queue that one statement answers.
struct Group<'a> {
    receives: Vec<(usize, &'a Receive)>,
    /// Messages still missing, receive by receive.
    left: Vec<u32>,
    dealt: Vec<Vec<Delivery>>,
}

/// What one run of the statement found.
enum Found {
    Stale,
    Paused,
    Rows {
        taken: Vec<Taken>,
        odd: Vec<i64>,
        places: Vec<(i16, Millis)>,
    },
}

struct Taken {
    /// When the statement handed it out.
    at: Millis,
    /// Place among the slots of the statement, from 1.
    slot: i32,
    place: Millis,
    life: Life,
    row: rows::MessageRow,
    payload: Bytes,
    last_failure: Option<crate::model::Delivered>,
}

impl Postgres {
    pub(super) async fn receive(
        &self,
        receives: &[Receive],
        now: Now,
        stir: &mut Stir,
        at: &mut Millis,
    ) -> Result<Vec<Received>> {
        self.catch_up(None, now).await?;
        let mut answers: Vec<Received> = receives
            .iter()
            .map(|_| Received::Messages(Vec::new()))
            .collect();
        let mut groups = groups(receives);
        let mut held = self.receiving.take().await?;
        let mut committed = false;
        // Several queues share one transaction, and so one flush.
        let together = groups.len() > 1;
        let mut open: Vec<usize> = (0..groups.len()).collect();
        for _ in 0..ROUNDS {
            if open.is_empty() {
                break;
            }
            let round = self.round(&mut held, &groups, &open, together, now).await;
            let found = round.map_err(|error| super::after_a_part(error, committed))?;
            committed = true;
            let mut odd = BTreeMap::new();
            let mut again = Vec::new();
            for (index, (found_at, found)) in open.iter().copied().zip(found) {
                let group = &mut groups[index];
                *at = found_at.max(*at);
                match found {
                    Found::Stale | Found::Paused => {
                        for (place, _) in &group.receives {
                            answers[*place] = if matches!(found, Found::Stale) {
                                Received::Stale
                            } else {
                                Received::Paused
                            };
                        }
                    }
                    Found::Rows {
                        taken,
                        odd: not_handed_out,
                        ..
                    } => {
                        if !taken.is_empty() {
                            // The earliest end in this statement is enough for the timer.
                            let shortest = group
                                .receives
                                .iter()
                                .map(|(_, r)| r.lease_ms)
                                .min()
                                .unwrap_or_default();
                            stir.add_due(found_at.saturating_add(shortest));
                        }
                        group.deal(taken);
                        if !not_handed_out.is_empty() {
                            again.push(index);
                            odd.extend(
                                not_handed_out
                                    .into_iter()
                                    .map(|seq| (seq, Wanted::default())),
                            );
                        }
                    }
                }
            }
            open = again;
            if !odd.is_empty() {
                let moved = self.file(&mut held, &odd, now).await;
                stir.merge(&moved.map_err(|error| super::after_a_part(error, committed))?);
            }
        }
        drop(held);
        for group in groups {
            for ((place, _), messages) in group.receives.into_iter().zip(group.dealt) {
                if let Received::Messages(answer) = &mut answers[place] {
                    *answer = messages;
                }
            }
        }
        Ok(answers)
    }

    /// Runs the statement once for each open group, in one commit.
    async fn round(
        &self,
        held: &mut Held<'_>,
        groups: &[Group<'_>],
        open: &[usize],
        together: bool,
        now: Now,
    ) -> Result<Vec<(Millis, Found)>> {
        loop {
            let (connection, mark) = held.begin(&self.options).await?;
            let result =
                bounded(self.try_round(connection, mark, groups, open, together, now)).await;
            match held.judge(&self.options, result).await? {
                Verdict::Done(done) => return Ok(done),
                Verdict::Again | Verdict::IdTaken => {}
                // Messages are leased to nobody who knows it; the leases run out.
                Verdict::Committed => {
                    return Err(crate::error::StoreError::CommitUnknown(
                        "the connection was lost after a hand-out".into(),
                    ));
                }
            }
        }
    }

    async fn try_round(
        &self,
        connection: &mut PgConnection,
        mark: Mark,
        groups: &[Group<'_>],
        open: &[usize],
        together: bool,
        now: Now,
    ) -> Result<Vec<(Millis, Found)>, Fault> {
        if together {
            begin_marked(connection, mark, now).await?;
        }
        let mut all = Vec::with_capacity(open.len());
        for index in open {
            // Each statement reads the clock itself: it sees what others committed since the transaction began, and a lease
            // must not begin before its message was there.
            let group = &groups[*index];
            all.push(self.scan(connection, mark, group, now, together).await?);
        }
        if together {
            commit(connection).await?;
        }
        Ok(all)
    }

    /// A bounded scan, followed by a full one when it came back short. The second one finds nothing of the first: those rows
    /// are leased by now, or locked by the same transaction.
    async fn scan(
        &self,
        connection: &mut PgConnection,
        mark: Mark,
        group: &Group<'_>,
        now: Now,
        together: bool,
    ) -> Result<(Millis, Found), Fault> {
        let uid = group.receives[0].1.queue.uid;
        let floors = self.floors.scan(uid);
        let started = Instant::now();
        let wanted: u32 = group.left.iter().sum();
        let (at, found) = try_scan(
            connection,
            mark,
            group,
            0,
            floors.unwrap_or([Millis::MIN; 10]),
            now,
        )
        .await?;
        let Found::Rows {
            mut taken,
            mut odd,
            mut places,
        } = found
        else {
            return Ok((at, found));
        };
        self.floors
            .learn(uid, &places, floors.is_none(), started.elapsed());
        let measured = group.receives[0].1.max > MOST_UNMEASURED && !places.is_empty();
        if floors.is_some()
            && (places.len() as u32) < wanted
            && !measured
            && self.floors.look_again(uid)
        {
            let started = Instant::now();
            let skip = taken.len() as u32;
            match try_scan(connection, mark, group, skip, [Millis::MIN; 10], now).await {
                Ok((
                    _,
                    Found::Rows {
                        taken: t,
                        odd: o,
                        places: p,
                    },
                )) => {
                    self.floors.learn(uid, &p, true, started.elapsed());
                    taken.extend(t.into_iter().map(|t| Taken {
                        slot: t.slot + skip as i32,
                        ..t
                    }));
                    odd.extend(o);
                    places.extend(p);
                }
                Ok(_) => {}
                Err(fault) if together => return Err(fault),
                // What the first scan handed out is on disk and must reach its receivers.
                Err(fault) => tracing::warn!(?fault, "a second look at a queue failed"),
            }
        }
        Ok((at, Found::Rows { taken, odd, places }))
    }

    /// Lets the rules put elsewhere what may not be handed out.
    async fn file(
        &self,
        held: &mut Held<'_>,
        odd: &BTreeMap<i64, Wanted>,
        now: Now,
    ) -> Result<Stir> {
        loop {
            let (connection, mark) = held.begin(&self.options).await?;
            let result = bounded(self.try_file(connection, mark, odd, now)).await;
            match held.judge(&self.options, result).await? {
                Verdict::Done(stir) => return Ok(stir),
                Verdict::Again | Verdict::IdTaken => {}
                Verdict::Committed => return Ok(Stir::default()),
            }
        }
    }

    async fn try_file(
        &self,
        connection: &mut PgConnection,
        mark: Mark,
        odd: &BTreeMap<i64, Wanted>,
        now: Now,
    ) -> Result<Stir, Fault> {
        let now = begin_marked(connection, mark, now).await?;
        let mut drafts = self.load(connection, odd, For::ChangeIfFree).await?;
        for loaded in drafts.values_mut() {
            let Some(known) = &loaded.known else { continue };
            let policy = &known.queue.policy;
            time::pass(&mut loaded.draft, policy, now);
            let at_limit = loaded.draft.message.as_ref().is_some_and(|m| {
                let spent = m.life.attempts >= m.max_attempts(policy);
                spent || m.life.expirations >= policy.max_lease_expirations as i32
            });
            // At a limit, a hand-out means the dead letters.
            if at_limit {
                rules::hand_out(&mut loaded.draft, policy, 0, None, now);
            }
        }
        let writes = Writes::of(&drafts, now);
        self.write(connection, &writes, mark.stripe, now).await?;
        commit(connection).await?;
        Ok(writes.stir)
    }
}

impl Group<'_> {
    /// Gives the messages to the receives whose slots they took.
    fn deal(&mut self, mut taken: Vec<Taken>) {
        taken.sort_by_key(|taken| taken.slot);
        let mut slots = Vec::new();
        for (receive, left) in self.left.iter().enumerate() {
            slots.extend(std::iter::repeat_n(receive, *left as usize));
        }
        for taken in taken {
            let Some(receive) = slots.get(taken.slot as usize - 1).copied() else {
                continue;
            };
            self.left[receive] -= 1;
            let (_, request) = self.receives[receive];
            add(&mut self.dealt[receive], taken.hand_over(request));
        }
    }
}

/// Adds a delivery to an answer. Where looking again took longer than the lease of what was found first, the same message may
/// come twice: only its latest delivery is good for anything.
fn add(answer: &mut Vec<Delivery>, delivery: Delivery) {
    if delivery.message.life.fence > 1 {
        let id = delivery.message.envelope.id;
        answer.retain(|earlier| earlier.message.envelope.id != id);
    }
    answer.push(delivery);
}

impl Taken {
    fn hand_over(self, receive: &Receive) -> Delivery {
        let policy = &receive.queue.policy;
        let expires_at = self.row.envelope.expires_at;
        let mut message = Message {
            envelope: self.row.envelope,
            life: self.life,
            place: Place::Ready {
                available_at: self.place,
            },
            completion: None,
            expires_at,
        };
        let bounds = rules::bounds(&message, policy);
        message.life.fence += 1;
        message.place = Place::Leased(Lease {
            leased_at: self.at,
            expires_at: self.at.saturating_add(receive.lease_ms),
            available_at: self.place,
            bounds,
            worker: receive.worker.clone(),
        });
        let max_attempts = message.max_attempts(policy);
        Delivery {
            message,
            max_attempts,
            payload: self.payload,
            last_failure: self.last_failure,
        }
    }
}

/// Receives by queue and view of it; a greedy one alone, so that its bytes can be counted.
fn groups(receives: &[Receive]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    let mut open: HashMap<(QueueUid, i64), usize> = HashMap::new();
    for (place, receive) in receives.iter().enumerate() {
        let key = (receive.queue.uid, receive.queue.version);
        let greedy = receive.max > MOST_UNMEASURED;
        let joinable = open.get(&key).copied().filter(|index| {
            let sum: u32 = groups[*index].left.iter().sum();
            !greedy && sum + receive.max <= MOST_PER_STATEMENT
        });
        let index = joinable.unwrap_or_else(|| {
            groups.push(Group {
                receives: Vec::new(),
                left: Vec::new(),
                dealt: Vec::new(),
            });
            groups.len() - 1
        });
        if greedy {
            open.remove(&key);
        } else {
            open.insert(key, index);
        }
        let group = &mut groups[index];
        group.receives.push((place, receive));
        group.left.push(receive.max);
        group.dealt.push(Vec::new());
    }
    groups
}

/// Runs the statement for what a group still wants, without the first `skip` slots.
async fn try_scan(
    connection: &mut PgConnection,
    mark: Mark,
    group: &Group<'_>,
    skip: u32,
    floors: [Millis; 10],
    now: Now,
) -> Result<(Millis, Found), Fault> {
    let queue = &group.receives[0].1.queue;
    let policy = &queue.policy;
    let (mut lengths, mut workers, mut names) = (Vec::new(), Vec::new(), Vec::<Arc<str>>::new());
    for ((_, receive), left) in group.receives.iter().zip(&group.left) {
        let worker = receive.worker.as_ref().map(|worker| {
            let known = names.iter().rposition(|name| name == worker);
            known.unwrap_or_else(|| {
                names.push(Arc::clone(worker));
                names.len() - 1
            })
        });
        for _ in 0..*left {
            lengths.push(receive.lease_ms);
            // Out of range: no worker.
            workers.push(worker.map_or(0, |w| w as i32 + 1));
        }
    }
    lengths.drain(..skip as usize);
    workers.drain(..skip as usize);
    let greedy = group.receives.len() == 1 && group.receives[0].1.max > MOST_UNMEASURED;
    let sql = known_bug!("claim-located-before-it-is-locked", RECEIVE,
        "FOR UPDATE SKIP LOCKED" => "",
        "(s.seq IN (SELECT seq FROM d)) IS TRUE AS taken" => "s.plain AS taken");
    let rows = sqlx::query(sql)
        .bind(now)
        .bind(mark.n)
        .bind(mark.batcher)
        .bind(mark.epoch)
        .bind(queue.uid.0)
        .bind(queue.version)
        .bind(mark.stripe)
        .bind((0i16..10).collect::<Vec<_>>())
        .bind(&floors[..])
        .bind(lengths.len() as i64)
        .bind(lengths)
        .bind(workers)
        .bind(names.iter().map(|n| text(n)).collect::<Vec<_>>())
        .bind(policy.max_attempts as i32)
        .bind(policy.max_lease_expirations as i32)
        .bind(policy.retention_ms)
        .bind(if greedy {
            MAX_RECEIVE_BYTES as i64
        } else {
            i64::MAX
        })
        .fetch_all(connection)
        .await?;
    let Some(first) = rows.first() else {
        return Err(closed_gate());
    };
    let at: Millis = first.try_get(0)?;
    let current = first.try_get::<Option<bool>, _>(1)?.unwrap_or(false);
    if !current {
        return Ok((at, Found::Stale));
    }
    if first.try_get(2)? {
        return Ok((at, Found::Paused));
    }
    let (mut taken, mut odd, mut places) = (
        Vec::with_capacity(rows.len()),
        Vec::new(),
        Vec::with_capacity(rows.len()),
    );
    for row in &rows {
        let Some(seq) = row.try_get::<Option<i64>, _>(3)? else {
            continue;
        };
        let (plain, is_taken): (bool, bool) = (row.try_get(4)?, row.try_get(5)?);
        let place: Millis = row.try_get(7)?;
        let Some(message) = rows::message(row, 13, seq)? else {
            tracing::error!(seq, "a ready row without its message");
            continue;
        };
        places.push((rank(message.envelope.priority), place));
        if is_taken {
            taken.push(read(row, at, place, message)?);
        } else if !plain {
            odd.push(seq);
        }
    }
    Ok((at, Found::Rows { taken, odd, places }))
}

fn read(row: &PgRow, at: Millis, place: Millis, message: rows::MessageRow) -> Result<Taken, Fault> {
    let life = Life {
        fence: row.try_get(8)?,
        attempts: row.try_get(9)?,
        expirations: row.try_get(10)?,
        releases: row.try_get(11)?,
        redrives: row.try_get(12)?,
    };
    let payload: &[u8] = row.try_get(13 + MESSAGE_COLUMNS)?;
    Ok(Taken {
        at,
        slot: row.try_get(6)?,
        place,
        life,
        row: message,
        payload: Bytes::copy_from_slice(payload),
        last_failure: rows::delivered(row, 14 + MESSAGE_COLUMNS)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Envelope, MessageId};

    fn delivery(counter: u16, fence: i32) -> Delivery {
        let envelope = Envelope {
            id: MessageId::new(2_000_000_000_000, 1, counter),
            queue: QueueUid(1),
            created_at: 0,
            first_available_at: 0,
            priority: 4,
            request_id: None,
            key: None,
            expires_at: None,
            max_attempts: None,
            backoff: None,
            headers: None,
        };
        let life = Life {
            fence,
            ..Life::default()
        };
        Delivery {
            message: Message {
                envelope: Arc::new(envelope),
                life,
                place: Place::Ready { available_at: 0 },
                completion: None,
                expires_at: None,
            },
            max_attempts: 5,
            payload: Bytes::new(),
            last_failure: None,
        }
    }

    #[test]
    fn an_answer_has_a_message_once_and_its_latest_delivery() {
        let mut answer = Vec::new();
        for (counter, fence) in [(1, 1), (2, 1), (1, 4), (3, 2)] {
            add(&mut answer, delivery(counter, fence));
        }
        let fences: Vec<i32> = answer.iter().map(|d| d.message.life.fence).collect();
        assert_eq!(fences, [1, 4, 2]);
    }
}
