//! Numbers: bounded redrives (19), conservation (20), counts against what was answered and against a recount (21).

use super::facts::{Decision, Facts, Index, NONE, Place, Said};
use super::loss::complete_passes;
use super::verdict::Tallies;
use crate::history::{Class, Kind, Nanos, Op, Totals};
use std::collections::{HashMap, HashSet};

mod bounds;
mod purges;

pub(super) fn judge(facts: &Facts, tallies: &mut Tallies) {
    for op in &facts.stats {
        one_answer(op, tallies);
    }
    never_less(facts, tallies);
    recount(facts, tallies);
    bounds::judge(facts, tallies);
    purges::judge(facts, tallies);
    redrives(facts, tallies);
}

/// 20, and of 21 that nothing is negative.
fn one_answer(op: &Op, tallies: &mut Tallies) {
    let (Some(c), Some(t)) = (op.body.counts, op.body.totals) else {
        return;
    };
    let left = t.accepted + t.reopened;
    let right = c.delayed
        + c.ready
        + c.leased
        + c.dead
        + t.acked
        + t.discarded
        + t.purged
        + t.dead_letter_expired;
    tallies.of(20).check(left == right, || {
        format!(
            "operation {}, {}: {left} came and {right} are accounted for: {c:?} {t:?}",
            op.n, op.queue
        )
    });
    let gauges = [c.delayed, c.ready, c.leased, c.dead];
    let least = gauges.into_iter().chain(of(&t)).min();
    tallies.of(21).check(least >= Some(0), || {
        format!("operation {}, {}: negative: {c:?} {t:?}", op.n, op.queue)
    });
}

fn of(t: &Totals) -> [i64; 8] {
    [
        t.accepted,
        t.acked,
        t.discarded,
        t.purged,
        t.dead_letter_expired,
        t.reopened,
        t.delivered,
        t.redriven,
    ]
}

/// 21: totals never fall, whichever server answers.
fn never_less(facts: &Facts, tallies: &mut Tallies) {
    let mut by_queue: HashMap<&str, Vec<&Op>> = HashMap::new();
    for op in facts.stats.iter().filter(|op| op.body.totals.is_some()) {
        by_queue.entry(&op.queue).or_default().push(op);
    }
    for ops in by_queue.values_mut() {
        ops.sort_unstable_by_key(|op| op.t_inv);
        let mut ended: Vec<&Op> = ops.clone();
        ended.sort_unstable_by_key(|op| op.t_ret);
        let mut ended = ended.into_iter().peekable();
        let mut most: Option<(Totals, u64)> = None;
        let mut last: Option<&Op> = None;
        for op in ops {
            while let Some(earlier) = ended.next_if(|e| e.t_ret < op.t_inv) {
                let totals = earlier.body.totals.unwrap_or_default();
                last = Some(earlier);
                most = Some(most.map_or((totals, earlier.n), |(m, _)| {
                    (larger(&m, &totals), earlier.n)
                }));
            }
            let now = op.body.totals.unwrap_or_default();
            let Some((before, n)) = most else { continue };
            let kept = of(&now)
                .iter()
                .zip(of(&before))
                .all(|(now, before)| *now >= before);
            tallies.of(21).check(kept, || {
                format!(
                    "{}: totals fell from {before:?} up to operation {n} to {now:?} in {}",
                    op.queue, op.n
                )
            });
            if let Some(last) = last {
                only_purges_purge(facts, last, op, tallies);
            }
        }
    }
}

/// 21: what is answered after a purge is none of it, so between two purges nothing counts as purged.
fn only_purges_purge(facts: &Facts, earlier: &Op, op: &Op, tallies: &mut Tallies) {
    let queue = facts.queues.find(&op.queue).unwrap_or(NONE);
    let purged = |op: &Op| op.body.totals.map(|t| t.purged);
    let same = purged(earlier) == purged(op);
    let kept = same || facts.may_be_purged(queue, earlier.t_inv, op.t_ret);
    tallies.of(21).check(kept, || {
        format!(
            "{}: purged went from {:?} in {} to {:?} in {} without a purge",
            op.queue,
            purged(earlier),
            earlier.n,
            purged(op),
            op.n
        )
    });
}

fn larger(a: &Totals, b: &Totals) -> Totals {
    Totals {
        accepted: a.accepted.max(b.accepted),
        acked: a.acked.max(b.acked),
        discarded: a.discarded.max(b.discarded),
        purged: a.purged.max(b.purged),
        dead_letter_expired: a.dead_letter_expired.max(b.dead_letter_expired),
        reopened: a.reopened.max(b.reopened),
        delivered: a.delivered.max(b.delivered),
        redriven: a.redriven.max(b.redriven),
    }
}

/// 21: gauges after the drain are what the listings of the same server hold.
fn recount(facts: &Facts, tallies: &mut Tallies) {
    let passes = complete_passes(facts);
    let mut listed: HashMap<(u32, Index, Index, Place), i64> = HashMap::new();
    for s in facts.seen.iter().filter(|s| s.kind == Kind::DrainList) {
        *listed
            .entry((s.replica, s.pass, s.queue, s.place))
            .or_default() += 1;
    }
    for op in facts.stats.iter().filter(|op| op.op == Kind::Recount) {
        let (Some(c), Some(queue)) = (op.body.counts, facts.queues.find(&op.queue)) else {
            continue;
        };
        for pass in passes.keys().filter(|(replica, _)| *replica == op.replica) {
            let listed = |place| {
                listed
                    .get(&(pass.0, pass.1, queue, place))
                    .copied()
                    .unwrap_or(0)
            };
            let [delayed, ready, leased, dead] =
                [Place::Delayed, Place::Ready, Place::Leased, Place::Dead].map(listed);
            let all = delayed + ready + leased + dead;
            let counted = c.delayed + c.ready + c.leased + c.dead;
            // Between two answers the clock may move what is not dead yet.
            let alike = (c.delayed, c.ready, c.leased, c.dead) == (delayed, ready, leased, dead);
            let alive = c.dead != counted || dead != all;
            tallies.of(21).check(all == counted && (alike || alive), || {
                format!(
                    "operation {}, {}: {c:?} counted, {delayed} delayed, {ready} ready, {leased} leased, {dead} dead listed",
                    op.n, op.queue
                )
            });
        }
    }
}

/// 19.
fn redrives(facts: &Facts, tallies: &mut Tallies) {
    let mut records: HashMap<Index, (Index, Option<u32>)> = HashMap::new();
    let many = |d: &&Decision| d.kind == Kind::RedriveMany && d.class == Class::Ok;
    for d in facts.decisions.iter().filter(many) {
        if d.request == NONE || d.redrive == NONE {
            continue;
        }
        let (record, _) = *records.entry(d.request).or_insert((d.redrive, d.max));
        tallies.of(19).check(record == d.redrive, || {
            format!("operation {} repeats a call and began another redrive", d.n)
        });
    }
    let bounds: HashMap<Index, u32> = records
        .values()
        .filter_map(|(record, max)| Some((*record, (*max)?)))
        .collect();
    for d in &facts.decisions {
        let (Some(max), Some(moved)) = (bounds.get(&d.redrive), d.moved) else {
            continue;
        };
        tallies.of(19).check(moved <= u64::from(*max), || {
            format!(
                "operation {}: a redrive of at most {max} moved {moved}",
                d.n
            )
        });
    }
    each_message(facts, tallies);
}

/// 19: no message was redriven more often than somebody asked.
fn each_message(facts: &Facts, tallies: &mut Tallies) {
    let mut most: HashMap<Index, (u32, u64)> = HashMap::new();
    let handed = facts
        .deliveries
        .iter()
        .map(|d| (d.message, d.redrives, d.n));
    let shown = facts.seen.iter().map(|s| (s.message, s.redrives, s.n));
    for (message, redrives, n) in handed.chain(shown).filter(|(_, redrives, _)| *redrives > 0) {
        let of = most.entry(message).or_insert((redrives, n));
        *of = (*of).max((redrives, n));
    }
    let mut many: HashMap<Index, HashSet<(bool, u64)>> = HashMap::new();
    for d in facts
        .decisions
        .iter()
        .filter(|d| d.kind == Kind::RedriveMany)
    {
        many.entry(d.queue).or_default().insert(own_or_request(d));
    }
    for (message, (redrives, n)) in most {
        let calls: HashSet<(bool, u64)> = facts
            .decisions_of(message)
            .filter(|d| d.kind == Kind::Redrive && d.class != Class::Fail)
            .map(own_or_request)
            .collect();
        let queue = facts.entries_of(message).next().map_or(NONE, |e| e.queue);
        let asked = calls.len() + many.get(&queue).map_or(0, HashSet::len);
        tallies.of(19).check(redrives as usize <= asked || queue == NONE, || {
            format!(
                "{} was redriven {redrives} times by operation {n}, {asked} calls can have done that",
                facts.messages.of(message)
            )
        });
    }
}

/// Calls with one request id are one call.
fn own_or_request(d: &Decision) -> (bool, u64) {
    match d.request {
        NONE => (false, d.n),
        request => (true, u64::from(request)),
    }
}

/// Times at which something had surely happened to distinct messages, and those from which it may have.
#[derive(Default)]
struct Times {
    surely: Vec<Nanos>,
    maybe: Vec<Nanos>,
}

impl Times {
    fn sort(&mut self) {
        self.surely.sort_unstable();
        self.maybe.sort_unstable();
    }

    /// At least and at most so often by an answer that took from `t_inv` to `t_ret`.
    fn bounds(&self, t_inv: Nanos, t_ret: Nanos) -> (i64, i64) {
        let surely = self.surely.partition_point(|t| *t < t_inv);
        let maybe = self.maybe.partition_point(|t| *t <= t_ret);
        (surely as i64, maybe as i64)
    }
}

fn acks(said: Said) -> bool {
    matches!(said, Said::Acked | Said::AckedSuperseded)
}
