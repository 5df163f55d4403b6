//! Leases: one at a time (7), what a receive returns (12), and why a message came again (22).

use super::facts::{Delivery, EPSILON, Facts, Index, Said};
use super::verdict::Tallies;
use crate::history::{Class, Kind, MILLI, Nanos};

pub(super) fn judge(facts: &Facts, tallies: &mut Tallies) {
    receives(facts, tallies);
    for (a, b) in pairs(facts) {
        one_lease(facts, a, b, tallies);
        let in_order = facts.deliveries[b as usize].is_surely_after(&facts.deliveries[a as usize]);
        let other = || if in_order { None } else { cause(facts, b, a) };
        let cause = cause(facts, a, b).or_else(other);
        *tallies
            .duplicates
            .entry(cause.unwrap_or("unexplained"))
            .or_default() += 1;
        tallies.of(22).check(cause.is_some(), || {
            let (a, b) = (&facts.deliveries[a as usize], &facts.deliveries[b as usize]);
            format!(
                "{} again in {} after {}: nothing explains it",
                facts.messages.of(b.message),
                b.n,
                a.n
            )
        });
    }
}

/// Each delivery with the next one of its message.
pub(super) fn pairs(facts: &Facts) -> impl Iterator<Item = (Index, Index)> {
    let all = facts.deliveries.windows(2).zip(0..);
    all.filter(|(two, _)| two[0].message == two[1].message)
        .map(|(_, at): (_, Index)| (at, at + 1))
}

/// The earliest moment at which a lease may run out, with the extends that were called before `before`.
pub(super) fn runs_out_from(facts: &Facts, delivery: Index, before: Nanos) -> Nanos {
    let d = &facts.deliveries[delivery as usize];
    let mut end = d.begun.0 + d.lease_ms * MILLI;
    let (mut unknown, mut last_ret) = (Nanos::MAX, 0);
    for s in facts.settles_of(delivery).filter(|s| s.t_inv < before) {
        let extended = s.t_inv + s.lease_ms * MILLI;
        match (s.kind, s.said) {
            (Kind::Extend, Said::Extended) => {
                // Of two at once, nobody knows which was the last.
                end = if s.t_inv > last_ret {
                    extended
                } else {
                    end.min(extended)
                };
                last_ret = last_ret.max(s.t_ret);
            }
            (Kind::Extend, Said::Unknown) => unknown = unknown.min(extended),
            _ => {}
        }
    }
    end.min(unknown)
}

/// The latest moment at which a lease may run out; `None` = nobody knows.
pub(super) fn runs_out_until(facts: &Facts, delivery: Index) -> Option<Nanos> {
    let d = &facts.deliveries[delivery as usize];
    let mut end = d.begun.1 + d.lease_ms * MILLI;
    for s in facts
        .settles_of(delivery)
        .filter(|s| s.kind == Kind::Extend)
    {
        match s.said {
            Said::Extended => end = end.max(s.t_ret + s.lease_ms * MILLI),
            Said::Unknown => return None,
            _ => {}
        }
    }
    Some(end)
}

/// Whether somebody may have ended the lease before `before`: by a settle with its receipt, as an operator, by a purge.
pub(super) fn may_be_ended(facts: &Facts, delivery: Index, before: Nanos) -> bool {
    let d = &facts.deliveries[delivery as usize];
    let settled = facts
        .settles_of(delivery)
        .any(|s| s.t_inv < before && s.kind != Kind::Extend && !s.said.nothing());
    settled || decided(facts, d, before) || facts.may_be_purged(d.queue, d.granted.0, before)
}

/// Whether an operator may have decided about this message between the grant and `before`.
pub(super) fn decided(facts: &Facts, d: &Delivery, before: Nanos) -> bool {
    facts
        .decisions_of(d.message)
        .any(|o| o.class != Class::Fail && o.t_inv < before && o.until >= d.granted.0)
}

/// 7.
fn one_lease(facts: &Facts, a: Index, b: Index, tallies: &mut Tallies) {
    let (first, second) = (&facts.deliveries[a as usize], &facts.deliveries[b as usize]);
    let name = facts.messages.of(first.message);
    if first.receipt == second.receipt {
        let say = || {
            format!(
                "{name}: receives {} and {} got one and the same delivery",
                first.n, second.n
            )
        };
        tallies.of(7).check(false, say);
        return;
    }
    if may_be_ended(facts, a, second.t_ret) {
        return;
    }
    let end = runs_out_from(facts, a, second.t_ret);
    // Of two that were granted in an order that nobody knows, the other one may have been the first.
    let excused = !second.is_surely_after(first)
        && (may_be_ended(facts, b, first.t_ret)
            || first.granted.1 + EPSILON >= runs_out_from(facts, b, first.t_ret));
    tallies
        .of(7)
        .check(excused || second.granted.1 + EPSILON >= end, || {
            format!(
                "{name}: receive {} had it until {} ms at least, receive {} got it by {} ms",
                first.n,
                end / MILLI,
                second.n,
                second.granted.1 / MILLI
            )
        });
}

/// Why `b` came after `a`.
fn cause(facts: &Facts, a: Index, b: Index) -> Option<&'static str> {
    let (first, second) = (&facts.deliveries[a as usize], &facts.deliveries[b as usize]);
    if first.receipt == second.receipt {
        return None;
    }
    if second.redrives > first.redrives {
        let one = facts
            .decisions_of(first.message)
            .any(|d| d.kind == Kind::Redrive && d.class != Class::Fail && d.t_inv < second.t_ret);
        let possible = one || facts.may_be_decided(first.queue, 0, second.t_ret);
        return possible.then_some("redrive");
    }
    let mut unknown = false;
    for s in facts.settles_of(a).filter(|s| s.t_inv < second.t_ret) {
        match s.said {
            Said::Retry => return Some("nack"),
            Said::Released => return Some("release"),
            Said::Dead => return None,
            Said::Unknown if matches!(s.kind, Kind::Nack | Kind::Release) => unknown = true,
            _ => {}
        }
    }
    if second.granted.1 + EPSILON >= runs_out_from(facts, a, second.t_ret) {
        // More than one attempt later: in between it was in an answer that nobody read.
        let lost = second.attempt > first.attempt + 1;
        return Some(if lost { "lost answer" } else { "expiration" });
    }
    unknown.then_some("nack or release without an answer")
}

/// 12: at most what was asked for, each message once, with the lease that was asked for, nothing from a paused queue.
fn receives(facts: &Facts, tallies: &mut Tallies) {
    let mut paused: Vec<(Index, Nanos, Nanos)> = facts
        .decisions
        .iter()
        .filter(|d| d.kind == Kind::Pause && d.class == Class::Ok && !d.replayed)
        .map(|d| (d.queue, d.t_ret, d.t_inv))
        .collect();
    paused.sort_unstable();
    for r in facts.receives.iter().filter(|r| r.class == Class::Ok) {
        tallies.of(12).check(r.got <= r.max && !r.repeats, || {
            let what = if r.repeats {
                "one of them twice"
            } else {
                "too many"
            };
            format!(
                "receive {} of {} got {} messages, {what}",
                r.n, r.max, r.got
            )
        });
        let before =
            paused.partition_point(|(queue, t_ret, _)| (*queue, *t_ret) < (r.queue, r.t_inv));
        let last = before.checked_sub(1).map(|at| paused[at]);
        let Some((_, _, since)) = last.filter(|(queue, ..)| *queue == r.queue && r.got > 0) else {
            continue;
        };
        let resumed = facts.may_be_resumed(r.queue, since, r.t_ret);
        tallies.of(12).check(resumed, || {
            format!(
                "receive {} got messages of {}, which was paused",
                r.n,
                facts.queues.of(r.queue)
            )
        });
    }
    for d in &facts.deliveries {
        let right = d.lease_ms == d.asked_ms || d.asked_ms == 0;
        let home = facts.entries_of(d.message).next();
        let right = right && home.is_none_or(|e| e.queue == d.queue);
        tallies.of(12).check(right, || {
            let queue = home.map_or("?", |e| facts.queues.of(e.queue));
            format!(
                "receive {} of {} got {} of {queue} for {} ms instead of {}",
                d.n,
                facts.queues.of(d.queue),
                facts.messages.of(d.message),
                d.lease_ms,
                d.asked_ms
            )
        });
    }
}
