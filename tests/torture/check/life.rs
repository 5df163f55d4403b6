//! When a message may come: delay and expiry (6), backoff (18).

use super::facts::{Delivery, EPSILON, Entry, Facts, Index, SLACK, Said};
use super::leases::pairs;
use super::verdict::Tallies;
use crate::history::{Class, Kind, MILLI, Nanos};
use quita_storage::model::{Backoff, Jitter};

pub(super) fn judge(facts: &Facts, tallies: &mut Tallies) {
    for of_one in facts.deliveries.chunk_by(|a, b| a.message == b.message) {
        not_before_its_delay(facts, &of_one[0], tallies);
        not_after_its_expiry(facts, of_one, tallies);
    }
    for (a, b) in pairs(facts) {
        not_before_its_backoff(facts, a, b, tallies);
    }
}

/// 6: judged by the first delivery.
fn not_before_its_delay(facts: &Facts, first: &Delivery, tallies: &mut Tallies) {
    let mut due = facts
        .entries_of(first.message)
        .filter(|e| !e.deduplicated)
        .map(|e| e.t_inv + e.delay_ms * MILLI)
        .min();
    if due.is_none() {
        let unknown = facts
            .with_digest(first.sha)
            .filter(|e| e.class == Class::Info);
        due = unknown.map(|e| e.t_inv + e.delay_ms * MILLI).min();
    }
    // Without a creator it is a ghost, and promise 2's.
    let Some(due) = due.filter(|_| !may_be_hurried(facts, first)) else {
        return;
    };
    tallies.of(6).check(first.granted.1 + EPSILON >= due, || {
        format!(
            "{} was due at {} ms and in receive {} by {} ms",
            facts.messages.of(first.message),
            due / MILLI,
            first.n,
            first.granted.1 / MILLI
        )
    });
}

/// An operator may have made a delayed message ready.
fn may_be_hurried(facts: &Facts, d: &Delivery) -> bool {
    d.redrives > 0
        || facts.decisions_of(d.message).any(|o| {
            matches!(o.kind, Kind::Promote | Kind::DeadLetter | Kind::Redrive)
                && o.class != Class::Fail
                && o.t_inv < d.t_ret
        })
}

/// 6: a redrive may have set a new expiry, so only deliveries before one are judged.
fn not_after_its_expiry(facts: &Facts, deliveries: &[Delivery], tallies: &mut Tallies) {
    let made = |e: &&Entry| !e.deduplicated;
    let creator = facts.entries_of(deliveries[0].message).find(made);
    let Some((e, length)) = creator.and_then(|e| Some((e, e.expires_in_ms?))) else {
        return;
    };
    let over = e.t_ret + length * MILLI;
    for d in deliveries.iter().filter(|d| d.redrives == 0) {
        tallies.of(6).check(d.granted.0 <= over + SLACK, || {
            format!(
                "{} expired by {} ms and was granted in receive {} after {} ms",
                facts.messages.of(d.message),
                over / MILLI,
                d.n,
                d.granted.0 / MILLI
            )
        });
    }
}

/// 18: the lower end; the upper one is promise 23's.
fn not_before_its_backoff(facts: &Facts, a: Index, b: Index, tallies: &mut Tallies) {
    let (first, second) = (&facts.deliveries[a as usize], &facts.deliveries[b as usize]);
    let Some(policy) = facts.policy(first.queue) else {
        return;
    };
    let waits = |s: &super::facts::Settle| match (s.kind, s.said, s.delay_ms) {
        (Kind::Nack, Said::Retry, None) => Some(least(&policy.backoff, first.attempt)),
        (Kind::Nack, Said::Retry, delay) | (Kind::Release, Said::Released, delay) => delay,
        _ => None,
    };
    let failed = facts.settles_of(a).find_map(|s| waits(s).map(|ms| (s, ms)));
    let Some((s, wait_ms)) = failed.filter(|_| first.redrives == second.redrives) else {
        return;
    };
    if may_be_hurried(facts, second) || !second.is_surely_after(first) {
        return;
    }
    let ready: Nanos = s.t_inv + wait_ms * MILLI;
    tallies
        .of(18)
        .check(second.granted.1 + EPSILON >= ready, || {
            format!(
                "{}: settle {} makes it wait until {} ms, receive {} got it by {} ms",
                facts.messages.of(first.message),
                s.n,
                ready / MILLI,
                second.n,
                second.granted.1 / MILLI
            )
        });
}

/// The smallest wait after failure number `n` that formula and jitter allow.
fn least(backoff: &Backoff, n: u32) -> u64 {
    let (full, jitter) = full(backoff, n);
    match jitter {
        Jitter::None => full,
        Jitter::Equal => full / 2,
        Jitter::Full => 0,
    }
}

/// The wait after failure number `n` without jitter.
pub(super) fn full(backoff: &Backoff, n: u32) -> (u64, Jitter) {
    let before = n.max(1) - 1;
    match backoff {
        Backoff::Exponential {
            base_ms,
            factor,
            max_ms,
            jitter,
        } => {
            let grown = *base_ms as f64 * factor.powi(before as i32);
            (grown.min(*max_ms as f64) as u64, *jitter)
        }
        Backoff::Fixed { base_ms, jitter } => (*base_ms as u64, *jitter),
        Backoff::Schedule {
            schedule_ms,
            jitter,
        } => {
            let last = schedule_ms.len().saturating_sub(1);
            let wait = schedule_ms.get(last.min(before as usize));
            (wait.copied().unwrap_or(0) as u64, *jitter)
        }
    }
}
