//! Totals against what was asked and answered: never less than what was surely done before, never more than what may have
//! been done by then.

use super::{Times, acks, own_or_request};
use crate::check::facts::{Facts, Index, NONE, Said};
use crate::check::verdict::Tallies;
use crate::history::{Class, Kind, Nanos};
use std::collections::{HashMap, HashSet};

/// What a total counts, from the history.
#[derive(Default)]
struct Known {
    accepted: Times,
    acked: Times,
    discarded: Times,
    delivered: Times,
    redriven: Times,
    purged: Vec<Nanos>,
    /// A decision about many may have changed any number.
    many: bool,
}

pub(super) fn judge(facts: &Facts, tallies: &mut Tallies) {
    let mut known: Vec<Known> = (0..facts.queues.len()).map(|_| Known::default()).collect();
    accepted(facts, &mut known);
    acked(facts, &mut known);
    delivered(facts, &mut known);
    decided(facts, &mut known);
    for k in &mut known {
        let all = [
            &mut k.accepted,
            &mut k.acked,
            &mut k.discarded,
            &mut k.delivered,
            &mut k.redriven,
        ];
        all.into_iter().for_each(Times::sort);
    }
    for op in &facts.stats {
        let (Some(t), Some(queue)) = (op.body.totals, facts.queues.find(&op.queue)) else {
            continue;
        };
        let k = &known[queue as usize];
        let bounds = |times: &Times| times.bounds(op.t_inv, op.t_ret);
        let loose = |(least, most): (i64, i64)| (least, if k.many { i64::MAX } else { most });
        let figures = [
            ("accepted", t.accepted, bounds(&k.accepted)),
            ("acked", t.acked, bounds(&k.acked)),
            ("delivered", t.delivered, bounds(&k.delivered)),
            ("discarded", t.discarded, loose(bounds(&k.discarded))),
            ("redriven", t.redriven, loose(bounds(&k.redriven))),
            ("purged", t.purged, purged(k, op.t_ret)),
        ];
        for (what, is, (least, most)) in figures {
            tallies.of(21).check(least <= is && is <= most, || {
                format!(
                    "operation {}, {}: {what} {is}, it must be {least} to {most}",
                    op.n, op.queue
                )
            });
        }
    }
}

/// Every message once; a publish whose message nobody saw may have made one.
fn accepted(facts: &Facts, known: &mut [Known]) {
    let mut made: HashMap<(Index, u128), (Nanos, Nanos, HashSet<Index>)> = HashMap::new();
    for e in facts
        .entries
        .iter()
        .filter(|e| e.class != Class::Fail && !e.by_key)
    {
        let of = made
            .entry((e.queue, e.sha.0))
            .or_insert((Nanos::MAX, Nanos::MAX, HashSet::new()));
        of.0 = of.0.min(e.t_inv);
        if e.message != NONE {
            of.1 = of.1.min(e.t_ret);
            of.2.insert(e.message);
        }
    }
    for ((queue, _), (asked, answered, messages)) in made {
        let Some(k) = known.get_mut(queue as usize) else {
            continue;
        };
        // Two messages of one body are promise 3's or 4's; here they are counted as told.
        k.accepted
            .maybe
            .extend(std::iter::repeat_n(asked, messages.len().max(1)));
        if answered < Nanos::MAX {
            k.accepted.surely.push(answered);
        }
    }
}

fn acked(facts: &Facts, known: &mut [Known]) {
    for message in 0..facts.messages.len() as Index {
        let of = facts.deliveries_of.get(message);
        let Some(first) = of.first() else { continue };
        let queue = facts.deliveries[*first as usize].queue as usize;
        let settles = || of.iter().flat_map(|d| facts.settles_of(*d));
        let maybe = settles()
            .filter(|s| s.kind == Kind::Ack && !s.said.nothing() && s.said != Said::Already)
            .map(|s| s.t_inv)
            .min();
        let surely = settles().filter(|s| acks(s.said)).map(|s| s.t_ret).min();
        let Some(k) = known.get_mut(queue) else {
            continue;
        };
        k.acked.maybe.extend(maybe);
        k.acked.surely.extend(surely);
    }
}

fn delivered(facts: &Facts, known: &mut [Known]) {
    for d in &facts.deliveries {
        if let Some(k) = known.get_mut(d.queue as usize) {
            k.delivered.surely.push(d.t_ret);
            k.delivered.maybe.push(d.t_inv);
        }
    }
    for r in facts.receives.iter().filter(|r| r.class == Class::Info) {
        if let Some(k) = known.get_mut(r.queue as usize) {
            k.delivered
                .maybe
                .extend(std::iter::repeat_n(r.t_inv, r.max as usize));
        }
    }
}

/// What was asked, and which calls are one.
type Call = (Kind, (bool, u64));

/// Operators' calls; with one request id they are one.
fn decided(facts: &Facts, known: &mut [Known]) {
    let mut calls: HashMap<Call, (Index, Nanos, Nanos)> = HashMap::new();
    for d in facts.decisions.iter().filter(|d| d.class != Class::Fail) {
        let Some(k) = known.get_mut(d.queue as usize) else {
            continue;
        };
        k.many |= d.kind == Kind::RedriveMany;
        if d.kind == Kind::Purge {
            k.purged.push(d.t_inv);
        }
        if matches!(d.kind, Kind::Discard | Kind::Cancel | Kind::Redrive) {
            let call = calls.entry((d.kind, own_or_request(d))).or_insert((
                d.queue,
                Nanos::MAX,
                Nanos::MAX,
            ));
            call.1 = call.1.min(d.t_inv);
            if d.class == Class::Ok && !d.acked_superseded {
                call.2 = call.2.min(d.t_ret);
            }
        }
    }
    for ((kind, _), (queue, asked, answered)) in calls {
        let k = &mut known[queue as usize];
        let times = if kind == Kind::Redrive {
            &mut k.redriven
        } else {
            &mut k.discarded
        };
        times.maybe.push(asked);
        if answered < Nanos::MAX {
            times.surely.push(answered);
        }
    }
}

/// What a purge answers may be off by what was on its way at the same moment; that the sum is right is promise 20's.
fn purged(k: &Known, t_ret: Nanos) -> (i64, i64) {
    let any = k.purged.iter().any(|asked| *asked <= t_ret);
    (0, if any { i64::MAX } else { 0 })
}
