//! Liveness (23): once all is well again, what is ready is handed out while somebody asks; with it the upper end of every
//! backoff and the end of every lost lease (13).
//!
//! The proof of a stall is a receive that came back empty although a message had been ready for more than five seconds.

use super::facts::{Facts, Index, Place, Said};
use super::leases::{decided, pairs, runs_out_until};
use super::life;
use super::verdict::Tallies;
use crate::history::{Class, Happened, Kind, MILLI, Nanos, SECOND};

/// A ready message waits no longer than that while a consumer polls.
const PATIENCE: Nanos = 5 * SECOND;

pub(super) fn judge(facts: &Facts, tallies: &mut Tallies) {
    let Some(healed) = facts.when(Happened::Healed) else {
        tallies
            .of(23)
            .cannot("the history does not say when all was well again");
        return;
    };
    let empty: Vec<(Index, Nanos, Nanos, u64)> = facts
        .receives
        .iter()
        .filter(|r| r.class == Class::Ok && r.got == 0 && !r.paused && r.t_inv > healed)
        .map(|r| (r.queue, r.t_inv, r.t_ret, r.n))
        .collect();
    let mut waited = |queue: Index, message: Index, ready: Nanos, until: Nanos| {
        let ready = ready.max(healed + PATIENCE);
        if ready + PATIENCE >= until || facts.hidden_receives(queue, ready, until) > 0 {
            return;
        }
        let at = empty.partition_point(|e| (e.0, e.1) <= (queue, ready + PATIENCE));
        let of_queue = empty[at..]
            .iter()
            .take_while(|e| e.0 == queue && e.1 <= until);
        let stalled = of_queue.into_iter().find(|e| e.2 <= until);
        tallies.of(23).check(stalled.is_none(), || {
            format!(
                "{} is ready since {} ms and receive {} of {} came back empty",
                facts.messages.of(message),
                ready / MILLI,
                stalled.map_or(0, |e| e.3),
                facts.queues.of(queue)
            )
        });
    };
    for (a, b) in pairs(facts) {
        let next = &facts.deliveries[b as usize];
        if let Some(ready) = ready_after(facts, a, next.t_ret) {
            waited(next.queue, next.message, ready, next.granted.0);
        }
    }
    for of_one in facts.deliveries.chunk_by(|a, b| a.message == b.message) {
        let d = &of_one[0];
        if let Some(ready) = published(facts, d.message) {
            waited(d.queue, d.message, ready, d.granted.0);
        }
    }
    let left = |s: &&super::facts::Seen| s.kind == Kind::DrainList && s.place == Place::Ready;
    for seen in facts.seen.iter().filter(left) {
        let ready = match facts.deliveries_of.get(seen.message).last() {
            Some(last) => ready_after(facts, *last, seen.t_inv),
            None => published(facts, seen.message),
        };
        // A redrive or a lost delivery may have brought it here later: not after all was well.
        let ready = ready.unwrap_or(healed + PATIENCE);
        let moved = facts
            .decisions_of(seen.message)
            .any(|d| d.class != Class::Fail && d.until > healed);
        if !moved && !facts.may_be_decided(seen.queue, healed, seen.t_inv) {
            waited(seen.queue, seen.message, ready, seen.t_inv);
        }
    }
    tallies.of(23).kept(empty.len() as u64);
}

/// From when on a message is surely ready after a delivery; `None` where that is not known.
fn ready_after(facts: &Facts, delivery: Index, before: Nanos) -> Option<Nanos> {
    let d = &facts.deliveries[delivery as usize];
    if decided(facts, d, before) || facts.may_be_decided(d.queue, d.granted.0, before) {
        return None;
    }
    let mut ready = runs_out_until(facts, delivery)?;
    for s in facts.settles_of(delivery).filter(|s| !s.said.nothing()) {
        let wait_ms = match s.said {
            Said::Retry => match s.delay_ms {
                Some(delay) => delay,
                None => life::full(&facts.policy(d.queue)?.backoff, d.attempt).0,
            },
            Said::Released => s.delay_ms.unwrap_or(0),
            Said::Extended => continue,
            _ => return None,
        };
        ready = s.t_ret + wait_ms * MILLI;
    }
    Some(ready)
}

/// From when on a message is surely ready after its publish.
fn published(facts: &Facts, message: Index) -> Option<Nanos> {
    let told = facts.entries_of(message).filter(|e| !e.by_key);
    told.map(|e| e.t_ret + e.delay_ms * MILLI).max()
}
