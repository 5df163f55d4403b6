//! Listings and groups of dead letters, on a reader connection. The time was passed before.

use super::rows::{self, DEAD, DELIVERY, ENVELOPE, ENVELOPE_COLUMNS, LIFE, failed};
use super::walk::{Spot, Walk};
use crate::backend::{Cursor, Listed, Page};
use crate::dead_letters::{DeadFilter, DeadGroup, DeadGroups, DeadListing};
use crate::error::Result;
use crate::model::{Completion, Delivered, MessageId, Place, QueueUid, Reason};
use crate::rules::Message;
use rusqlite::{Connection, OptionalExtension, Row, params};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Rows that a page looks at, at most: about 10 ms.
const LOOK: u32 = 20_000;
/// Rows that each of many queues may be looked at, at least.
const LEAST: u32 = 64;

/// Queues that are there and have dead letters, with the incarnation of these.
pub(super) fn incarnations(
    sql: &Connection,
    queues: Option<&[QueueUid]>,
) -> Result<Vec<(QueueUid, i64)>> {
    const ALL: &str = "-- queues with dead letters
        SELECT queue.uid, dead_id FROM queue CROSS JOIN counter ON queue_id = dead_id WHERE deleted = 0 AND dead > 0";
    const ONE: &str = "-- has this queue dead letters
        SELECT queue.uid, dead_id FROM queue CROSS JOIN counter ON queue_id = dead_id
        WHERE queue.uid = ? AND deleted = 0 AND dead > 0";
    let row = |r: &Row<'_>| Ok((QueueUid(r.get(0)?), r.get(1)?));
    let Some(queues) = queues else {
        let mut statement = sql.prepare_cached(ALL).map_err(failed)?;
        let found = statement.query_map([], row).and_then(Iterator::collect);
        return found.map_err(failed);
    };
    let mut statement = sql.prepare_cached(ONE).map_err(failed)?;
    let queues: BTreeSet<QueueUid> = queues.iter().copied().collect();
    let found = queues
        .iter()
        .filter_map(|uid| statement.query_row([uid.0], row).optional().transpose());
    found.collect::<rusqlite::Result<_>>().map_err(failed)
}

/// One queue's dead letters in the order of the listing, read ahead in pieces.
struct Source<'a> {
    walk: Walk<'a>,
    /// What was read: a dead letter that fits, or (`false`) that there is none up to this place.
    read: VecDeque<(Spot, bool)>,
    /// There may be more behind what was read.
    open: bool,
}

impl Source<'_> {
    /// Reads on: at least one row, at most `look` rows and `chunk` that fit. Answers how many were looked at.
    fn fill(&mut self, sql: &Connection, chunk: usize, look: u32) -> Result<u32> {
        let (read, mut broke, mut last) = (&mut self.read, false, self.walk.after);
        let looked = self.walk.run(sql, "", look, |spot, fits, _| {
            last = Some(spot);
            if fits {
                read.push_back((spot, true));
                broke = read.len() == chunk;
            }
            Ok(if broke {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            })
        })?;
        self.open = broke || looked == look;
        if let Some(last) = last.filter(|_| self.open && !broke) {
            self.read.push_back((last, false));
        }
        self.walk.after = last;
        Ok(looked)
    }
}

/// A page of dead letters: the queues' own orders merged, as far as their rows may be looked at.
pub(super) fn page(sql: &Connection, listing: &DeadListing) -> Result<Page> {
    let own = incarnations(sql, listing.queues.as_deref())?;
    let limit = listing.limit as usize;
    let chunk = (2 * limit / own.len().max(1) + 8).min(limit + 1);
    let look = (LOOK / own.len().max(1) as u32).max(LEAST);
    let mut sources = Vec::with_capacity(own.len());
    let mut left = LOOK;
    for (_, dead_id) in &own {
        let walk = Walk {
            dead_id: *dead_id,
            filter: &listing.filter,
            selection: None,
            after: listing.after.map(|cursor| (cursor.at, cursor.id.0)),
            newest_first: listing.newest_first,
        };
        let mut source = Source {
            walk,
            read: VecDeque::new(),
            open: false,
        };
        match walk.few(sql)? {
            Some(spots) => source.read = spots.into_iter().map(|spot| (spot, true)).collect(),
            None => left = left.saturating_sub(source.fill(sql, chunk, look)?),
        }
        sources.push(source);
    }
    let (places, next) = merge(sql, &mut sources, (limit, chunk), left)?;
    let mut page = Page::default();
    for (dead_id, spot) in places {
        page.items.extend(listed(sql, dead_id, spot)?);
    }
    page.next = next.map(|(at, id)| Cursor {
        priority: 0,
        at,
        id: MessageId(id),
    });
    Ok(page)
}

/// Places, each with its incarnation, and where the next page begins.
type Merged = (Vec<(i64, Spot)>, Option<Spot>);

/// The first `limit` of all sources. Every source was filled once; `left` rows may still be looked at.
fn merge(
    sql: &Connection,
    sources: &mut [Source<'_>],
    (limit, chunk): (usize, usize),
    mut left: u32,
) -> Result<Merged> {
    let newest_first = sources.first().is_some_and(|s| s.walk.newest_first);
    let rank = |(at, seq): Spot| if newest_first { (!at, !seq) } else { (at, seq) };
    let mut found: Vec<(i64, Spot)> = Vec::new();
    let mut heads: BinaryHeap<_> = (0..sources.len())
        .filter_map(|n| sources[n].read.front().map(|head| (rank(head.0), n)))
        .map(Reverse)
        .collect();
    while let Some(Reverse((_, n))) = heads.pop() {
        let source = &mut sources[n];
        let Some((spot, fits)) = source.read.pop_front() else {
            continue;
        };
        if fits {
            if found.len() == limit {
                let last = found.last().map(|last| last.1);
                return Ok((found, last));
            }
            found.push((source.walk.dead_id, spot));
        }
        if source.read.is_empty() && source.open {
            if left == 0 {
                return Ok((found, Some(spot)));
            }
            left -= source.fill(sql, chunk, left)?;
        }
        if let Some(head) = source.read.front() {
            heads.push(Reverse((rank(head.0), n)));
        }
    }
    Ok((found, None))
}

/// A dead letter as it is listed.
fn listed(sql: &Connection, dead_id: i64, spot: Spot) -> Result<Option<Listed>> {
    let Some((message, _, size)) = load(sql, dead_id, spot)? else {
        return Ok(None);
    };
    let last = last_delivery(sql, message.envelope.id)?;
    Ok(Some(Listed {
        message,
        size,
        last,
    }))
}

/// A dead letter, the digest of its request id, and the bytes of its payload.
pub(super) type Found = (Message, Option<Vec<u8>>, u32);

/// The dead letter at this place.
pub(super) fn load(sql: &Connection, dead_id: i64, (at, seq): Spot) -> Result<Option<Found>> {
    const HERE: usize = ENVELOPE_COLUMNS;
    let text = format!(
        "-- load dead\nSELECT {ENVELOPE}, {LIFE}, {DEAD}, m.digest, length(m.payload),
            (SELECT c.fence FROM completion c WHERE c.seq = d.seq), (SELECT c.outcome FROM completion c WHERE c.seq = d.seq)
         FROM dead d CROSS JOIN message m ON m.seq = d.seq WHERE d.queue_id = ? AND d.died_at = ? AND d.seq = ?"
    );
    let row = |r: &Row<'_>| {
        let (envelope, expires_at) = rows::envelope(r, 0)?;
        let outcome = r.get_ref(HERE + 15)?.as_str_or_null()?.map(Arc::from);
        let completion = r.get::<_, Option<i32>>(HERE + 14)?;
        let message = Message {
            envelope: Arc::new(envelope),
            life: rows::life(r, HERE)?,
            place: Place::Dead(rows::dead(r, HERE + 5)?),
            completion: completion.map(|fence| Completion { fence, outcome }),
            expires_at,
        };
        Ok((message, r.get(HERE + 12)?, r.get(HERE + 13)?))
    };
    sql.prepare_cached(&text)
        .and_then(|mut s| s.query_row(params![dead_id, at, seq], row).optional())
        .map_err(failed)
}

fn last_delivery(sql: &Connection, id: MessageId) -> Result<Option<Delivered>> {
    let text = format!(
        "-- last delivery\nSELECT {DELIVERY} FROM delivery WHERE seq = ? ORDER BY fence DESC LIMIT 1"
    );
    sql.prepare_cached(&text)
        .and_then(|mut s| s.query_row([id.0], rows::delivered).optional())
        .map_err(failed)
}

/// What is counted of a group before the largest are known.
struct Counted {
    queue: QueueUid,
    dead_id: i64,
    group: i64,
    count: i64,
    /// The first and the last of them, where the count did not leave that open.
    ends: Option<(Spot, Spot)>,
}

/// The largest groups: all are counted, and the rest is looked up for the few that are answered.
pub(super) fn groups(
    sql: &Connection,
    queues: Option<&[QueueUid]>,
    filter: &DeadFilter,
    limit: u32,
) -> Result<DeadGroups> {
    let mut all = Vec::new();
    for (queue, dead_id) in incarnations(sql, queues)? {
        if *filter == DeadFilter::default() {
            count_all(sql, queue, dead_id, &mut all)?;
        } else {
            count_some(sql, queue, dead_id, filter, &mut all)?;
        }
    }
    all.sort_unstable_by_key(|g| (-g.count, g.group, g.queue));
    let more = all.len() > limit as usize;
    all.truncate(limit as usize);
    let groups = all.iter().map(|counted| describe(sql, counted));
    Ok(DeadGroups {
        groups: groups.collect::<Result<_>>()?,
        more,
    })
}

fn count_all(
    sql: &Connection,
    queue: QueueUid,
    dead_id: i64,
    all: &mut Vec<Counted>,
) -> Result<()> {
    const SQL: &str = "-- groups: all of one queue, by the index alone
        SELECT group_id, count(*) FROM dead INDEXED BY dead_group WHERE queue_id = ? GROUP BY group_id";
    let mut statement = sql.prepare_cached(SQL).map_err(failed)?;
    let rows = statement
        .query_map([dead_id], |r| {
            Ok(Counted {
                queue,
                dead_id,
                group: r.get(0)?,
                count: r.get(1)?,
                ends: None,
            })
        })
        .map_err(failed)?;
    for row in rows {
        all.push(row.map_err(failed)?);
    }
    Ok(())
}

fn count_some(
    sql: &Connection,
    queue: QueueUid,
    dead_id: i64,
    filter: &DeadFilter,
    all: &mut Vec<Counted>,
) -> Result<()> {
    let mut found: HashMap<i64, Counted> = HashMap::new();
    Walk::all(dead_id, filter).run(sql, ", d.group_id", u32::MAX, |spot, fits, row| {
        if fits {
            let group = row.get(3)?;
            let counted = found.entry(group).or_insert(Counted {
                queue,
                dead_id,
                group,
                count: 0,
                ends: None,
            });
            counted.count += 1;
            counted.ends = Some((counted.ends.map_or(spot, |(first, _)| first), spot));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    all.extend(found.into_values());
    Ok(())
}

fn describe(sql: &Connection, counted: &Counted) -> Result<DeadGroup> {
    const FIRST: &str = "-- groups: the first
        SELECT died_at, seq FROM dead INDEXED BY dead_group WHERE queue_id = ? AND group_id = ?
        ORDER BY died_at, seq LIMIT 1";
    const LAST: &str = "-- groups: the last
        SELECT died_at, seq FROM dead INDEXED BY dead_group WHERE queue_id = ? AND group_id = ?
        ORDER BY died_at DESC, seq DESC LIMIT 1";
    const WORDS: &str = "-- groups: the words of one
        SELECT reason, error_code FROM dead WHERE queue_id = ? AND died_at = ? AND seq = ?";
    let end = |text: &'static str| -> Result<Spot> {
        sql.prepare_cached(text)
            .and_then(|mut s| {
                s.query_row([counted.dead_id, counted.group], |r| {
                    Ok((r.get(0)?, r.get(1)?))
                })
            })
            .map_err(failed)
    };
    let (first, last) = match counted.ends {
        Some(ends) => ends,
        None => (end(FIRST)?, end(LAST)?),
    };
    let (reason, error_code) = sql
        .prepare_cached(WORDS)
        .and_then(|mut s| {
            s.query_row([counted.dead_id, first.0, first.1], |r| {
                let reason = rows::coded(0, r.get(0)?, Reason::from_code)?;
                Ok((reason, r.get_ref(1)?.as_str_or_null()?.map(Arc::from)))
            })
        })
        .map_err(failed)?;
    let example = MessageId(last.1);
    Ok(DeadGroup {
        group: counted.group,
        queue: counted.queue,
        reason,
        error_code,
        count: counted.count,
        first_died_at: first.0,
        last_died_at: last.0,
        example,
        example_detail: last_delivery(sql, example)?.and_then(|d| d.failure.detail),
    })
}
