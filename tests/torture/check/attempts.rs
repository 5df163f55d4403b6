//! Attempts (15), what a lost answer costs (13), and the end of poison (16).

use super::facts::gather::REASONS;
use super::facts::{Delivery, Facts, Index, NONE, Place, SLACK, Said, Seen};
use super::leases::{decided, pairs, runs_out_until};
use super::verdict::Tallies;
use crate::history::{Class, Kind, MILLI, Nanos, SECOND};

/// No lease is shorter, so deliveries that ran out are at least so far apart.
const SHORTEST_LEASE: Nanos = SECOND;

pub(super) fn judge(facts: &Facts, tallies: &mut Tallies) {
    tallies
        .of(13)
        .cannot("no receive was left without an answer");
    let lost = facts.receives.iter().filter(|r| r.class == Class::Info);
    tallies.of(13).kept(lost.count() as u64);
    for of_one in facts.deliveries.chunk_by(|a, b| a.message == b.message) {
        first(facts, &of_one[0], tallies);
        for d in of_one {
            within_limit(facts, d, tallies);
        }
        expirations(facts, of_one, tallies);
    }
    for (a, b) in pairs(facts) {
        growth(facts, a, b, tallies);
    }
    nacks(facts, tallies);
    dead_letters(facts, tallies);
}

/// How many deliveries that nobody read may have counted between the two.
fn unread(facts: &Facts, queue: Index, from: Nanos, until: Nanos) -> u64 {
    let time = until.saturating_sub(from) / (SHORTEST_LEASE - SECOND / 50);
    time.min(facts.hidden_receives(queue, from, until))
}

fn first(facts: &Facts, d: &Delivery, tallies: &mut Tallies) {
    // Also by a publish whose own answer was lost.
    let published = facts.with_digest(d.sha).map(|e| e.t_inv).min();
    let possible = 1 + unread(facts, d.queue, published.unwrap_or(0), d.granted.1);
    let right = d.attempt >= 1 && u64::from(d.attempt) <= possible;
    tallies.of(15).check(right, || {
        format!(
            "{}: receive {} is the first one and says attempt {}, at most {possible} is possible",
            facts.messages.of(d.message),
            d.n,
            d.attempt
        )
    });
}

fn within_limit(facts: &Facts, d: &Delivery, tallies: &mut Tallies) {
    let of_queue = facts.policy(d.queue).map(|p| p.max_attempts);
    let all = facts.with_digest(d.sha);
    let made = facts.entries_of(d.message).find(|e| !e.deduplicated);
    let limit = match made {
        Some(e) => e.max_attempts.or(of_queue),
        // Nobody knows which of them made it.
        None => all.filter_map(|e| e.max_attempts.or(of_queue)).max(),
    };
    let limit = limit.unwrap_or(d.max_attempts);
    tallies
        .of(15)
        .check(d.attempt <= limit && d.attempt <= d.max_attempts, || {
            format!(
                "{}: receive {} is attempt {} of {}, the limit is {limit}",
                facts.messages.of(d.message),
                d.n,
                d.attempt,
                d.max_attempts
            )
        });
}

/// 15: between two deliveries that were read. 13 when lost answers would have to have cost more than one attempt each.
fn growth(facts: &Facts, a: Index, b: Index, tallies: &mut Tallies) {
    let (first, second) = (&facts.deliveries[a as usize], &facts.deliveries[b as usize]);
    let hidden = unread(facts, first.queue, first.granted.0, second.granted.1);
    let name = facts.messages.of(first.message);
    if first.redrives != second.redrives {
        let possible = second.redrives > first.redrives && u64::from(second.attempt) <= 1 + hidden;
        tallies.of(15).check(possible, || {
            format!(
                "{name}: receive {} has redrive {} attempt {}, the later receive {} redrive {} attempt {}",
                first.n, first.redrives, first.attempt, second.n, second.redrives, second.attempt
            )
        });
        return;
    }
    let grown = i64::from(second.attempt) - i64::from(first.attempt);
    let released = |said: fn(Said) -> bool| {
        facts
            .settles_of(a)
            .any(|s| s.kind == Kind::Release && said(s.said))
    };
    let taken = decided(facts, first, second.t_ret)
        || facts.may_be_decided(first.queue, first.granted.0, second.t_ret);
    let counted = !released(|s| !s.nothing()) && !taken;
    let own = i64::from(!released(|s| s == Said::Released));
    let (least, most) = (i64::from(counted), own + hidden as i64);
    let promise = if grown > most && hidden > 0 { 13 } else { 15 };
    tallies.of(promise).check(least <= grown && grown <= most, || {
        format!(
            "{name}: receive {} was attempt {}, receive {} is attempt {}; it may grow by {least} to {most}",
            first.n, first.attempt, second.n, second.attempt
        )
    });
}

/// 16: as many leases that surely ran out as the queue allows are the end, until a redrive.
fn expirations(facts: &Facts, deliveries: &[Delivery], tallies: &mut Tallies) {
    let Some(limit) = facts
        .policy(deliveries[0].queue)
        .map(|p| p.max_lease_expirations)
    else {
        return;
    };
    let base = facts.deliveries_of.get(deliveries[0].message)[0];
    let (mut ran_out, mut redrives) = (0, 0);
    for (at, d) in (base..).zip(deliveries) {
        if d.redrives != redrives {
            (ran_out, redrives) = (0, d.redrives);
        }
        if at > base {
            tallies.of(16).check(ran_out < limit, || {
                format!(
                    "{} ran out {ran_out} times and was granted again in receive {}",
                    facts.messages.of(d.message),
                    d.n
                )
            });
        }
        let left_alone =
            !facts.settles_of(at).any(|s| !s.said.nothing()) && !decided(facts, d, Nanos::MAX);
        ran_out += u32::from(left_alone);
    }
}

/// 16: what a nack answers says whether attempts are used up.
fn nacks(facts: &Facts, tallies: &mut Tallies) {
    for s in &facts.settles {
        if s.kind != Kind::Nack || s.delivery == NONE || !matches!(s.said, Said::Retry | Said::Dead)
        {
            continue;
        }
        let d = &facts.deliveries[s.delivery as usize];
        let last = d.attempt >= d.max_attempts;
        // A redrive may have come between the expiration and a late nack.
        let anew = s.late
            && (decided(facts, d, s.t_ret) || facts.may_be_decided(d.queue, d.granted.0, s.t_ret));
        let right = match s.said {
            Said::Retry => (!last || anew) && !s.permanent,
            _ => last || s.permanent || s.late,
        };
        tallies.of(16).check(right, || {
            format!(
                "nack {} of attempt {} of {} was answered {:?}{}",
                s.n,
                d.attempt,
                d.max_attempts,
                s.said,
                if s.permanent { ", it is permanent" } else { "" }
            )
        });
    }
}

/// 16: what is at its limit is dead, says why, and does so within [`SLACK`] without anybody asking.
fn dead_letters(facts: &Facts, tallies: &mut Tallies) {
    for seen in &facts.seen {
        let name = || facts.messages.of(seen.message);
        let limit = facts
            .deliveries_of(seen.message)
            .map(|d| d.max_attempts)
            .max();
        match seen.place {
            Place::Ready | Place::Delayed => {
                let right = limit.is_none_or(|limit| seen.attempts < limit);
                tallies.of(16).check(right, || {
                    format!(
                        "operation {} shows {} {:?} with {} attempts",
                        seen.n,
                        name(),
                        seen.place,
                        seen.attempts
                    )
                });
            }
            Place::Dead => {
                let expected = expected_reason(facts, seen);
                let right = seen.reason != 0
                    && expected.is_none_or(|e| REASONS[seen.reason as usize - 1] == e);
                tallies.of(16).check(right, || {
                    let reason = REASONS.get((seen.reason as usize).wrapping_sub(1));
                    format!(
                        "operation {} shows {} dead with reason {reason:?} instead of {expected:?}",
                        seen.n,
                        name()
                    )
                });
            }
            Place::Leased => still_leased(facts, seen, tallies),
            Place::Ended => {}
        }
    }
}

/// The reason that the last nack's answer means, when nothing can have happened since.
fn expected_reason(facts: &Facts, seen: &Seen) -> Option<&'static str> {
    let last = *facts.deliveries_of.get(seen.message).last()?;
    let d = &facts.deliveries[last as usize];
    let mut settles = facts.settles_of(last).filter(|s| !s.said.nothing());
    let (only, more) = (settles.next()?, settles.next());
    let plain = only.said == Said::Dead && !only.late && more.is_none() && only.t_ret < seen.t_inv;
    let moved = decided(facts, d, seen.t_ret)
        || facts.may_be_decided(d.queue, d.granted.0, seen.t_ret)
        || facts.hidden_receives(d.queue, only.t_inv, seen.t_ret) > 0;
    if only.kind != Kind::Nack || !plain || moved || d.redrives != seen.redrives {
        return None;
    }
    Some(if only.permanent {
        REASONS[1]
    } else {
        REASONS[0]
    })
}

/// A lease that is surely over is listed as one no more once it had time to be filed.
fn still_leased(facts: &Facts, seen: &Seen, tallies: &mut Tallies) {
    let Some(last) = facts.deliveries_of.get(seen.message).last() else {
        return;
    };
    let d = &facts.deliveries[*last as usize];
    let Some(over) = runs_out_until(facts, *last) else {
        return;
    };
    let calm = !facts.windows.touch(over, seen.t_ret);
    if !calm || facts.hidden_receives(d.queue, d.granted.0, seen.t_ret) > 0 {
        return;
    }
    // A delivery after this one is none that the look can have meant.
    tallies.of(16).check(seen.t_inv <= over + SLACK, || {
        format!(
            "operation {} shows {} leased, its last lease was over by {} ms",
            seen.n,
            facts.messages.of(seen.message),
            over / MILLI
        )
    });
}
