//! One place (17): no message in two states at once, and none where it cannot be any more.

use super::facts::{Entry, Facts, Index, NONE, Place, Said, Seen};
use super::leases::runs_out_until;
use super::loss::{Pass, complete_passes};
use super::verdict::Tallies;
use crate::history::{Class, Kind, Nanos};

pub(super) fn judge(facts: &Facts, tallies: &mut Tallies) {
    twice_in_a_listing(facts, tallies);
    for seen in facts.seen.iter().filter(|s| s.place != Place::Ended) {
        let gone = ended_before(facts, seen.message, seen.t_inv);
        tallies.of(17).check(gone.is_none(), || {
            format!(
                "operation {} shows {} {:?}, which {}",
                seen.n,
                facts.messages.of(seen.message),
                seen.place,
                gone.unwrap_or_default()
            )
        });
    }
    after_a_purge(facts, tallies);
}

/// In a pass of final listings each message is once, unless the clock alone moved it meanwhile.
fn twice_in_a_listing(facts: &Facts, tallies: &mut Tallies) {
    let passes = complete_passes(facts);
    let final_one =
        |s: &&Seen| s.kind == Kind::DrainList && passes.contains_key(&(s.replica, s.pass));
    let mut seen: Vec<&Seen> = facts.seen.iter().filter(final_one).collect();
    let pass = |s: &Seen| -> (Index, Pass) { (s.message, (s.replica, s.pass)) };
    seen.sort_unstable_by_key(|s| (pass(s), s.t_inv, s.n));
    for of_one in seen.chunk_by(|a, b| pass(a) == pass(b)) {
        let wrong = of_one
            .windows(2)
            .find(|two| !by_the_clock(facts, two[0], two[1]));
        tallies.of(17).check(wrong.is_none(), || {
            let (a, b) = wrong.map_or((of_one[0], of_one[0]), |two| (two[0], two[1]));
            format!(
                "server {} shows {} {:?} in operation {} and {:?} in {}",
                a.replica,
                facts.messages.of(a.message),
                a.place,
                a.n,
                b.place,
                b.n
            )
        });
    }
}

/// Whether time alone can bring a message from where it was first seen to where it was seen then.
fn by_the_clock(facts: &Facts, first: &Seen, then: &Seen) -> bool {
    let expires = facts
        .entries_of(first.message)
        .any(|e| e.expires_in_ms.is_some());
    match (first.place, then.place) {
        (Place::Delayed, Place::Ready) => true,
        (Place::Delayed | Place::Ready, Place::Dead) => expires,
        (Place::Leased, Place::Ready | Place::Dead) => {
            let last = facts.deliveries_of.get(first.message).last();
            last.is_none_or(|d| runs_out_until(facts, *d).is_none_or(|over| over >= first.t_inv))
        }
        _ => false,
    }
}

/// How a message surely ended before a moment.
fn ended_before(facts: &Facts, message: Index, before: Nanos) -> Option<String> {
    let settles = facts
        .deliveries_of
        .get(message)
        .iter()
        .flat_map(|d| facts.settles_of(*d));
    let acked = settles
        .filter(|s| matches!(s.said, Said::Acked | Said::AckedSuperseded))
        .find(|s| s.t_ret < before);
    if let Some(s) = acked {
        return Some(format!("was acked in {}", s.n));
    }
    let of = || {
        facts
            .decisions_of(message)
            .filter(|d| d.class != Class::Fail)
    };
    let decided = of().find(|d| {
        matches!(d.kind, Kind::Discard | Kind::Cancel) && d.class == Class::Ok && d.t_ret < before
    })?;
    let back = of().any(|d| d.kind == Kind::Reopen && d.t_inv < before);
    (!back).then(|| format!("operation {} had ended", decided.n))
}

/// What was ready or delayed when a purge was called is never seen again.
fn after_a_purge(facts: &Facts, tallies: &mut Tallies) {
    let mut purges: Vec<_> = facts
        .decisions
        .iter()
        .filter(|d| d.kind == Kind::Purge && d.class == Class::Ok && !d.replayed)
        .map(|d| (d.queue, d.t_inv, d.t_ret, d.n))
        .collect();
    if purges.is_empty() {
        return;
    }
    purges.sort_unstable();
    for message in 0..facts.messages.len() as Index {
        let Some(e) = facts.entries_of(message).find(|e| !e.by_key) else {
            continue;
        };
        let at =
            purges.partition_point(|(queue, t_inv, ..)| (*queue, *t_inv) <= (e.queue, e.t_ret));
        let Some((queue, t_inv, t_ret, n)) = purges.get(at).copied() else {
            continue;
        };
        if queue != e.queue || may_be_dead(facts, message, e, t_ret) {
            continue;
        }
        let handed = facts.deliveries_of(message).find(|d| d.granted.0 > t_ret);
        tallies.of(17).check(handed.is_none(), || {
            format!(
                "{} was there before purge {n} ({} to {}) and was handed out after it in receive {}",
                facts.messages.of(message),
                t_inv / crate::history::MILLI,
                t_ret / crate::history::MILLI,
                handed.map_or(0, |d| d.n)
            )
        });
    }
}

/// A purge leaves dead letters; only what was never handed out before and does not expire is surely none.
fn may_be_dead(facts: &Facts, message: Index, e: &Entry, before: Nanos) -> bool {
    let published = facts.with_digest(e.sha).map(|e| e.t_inv).min().unwrap_or(0);
    e.expires_in_ms.is_some()
        || e.queue == NONE
        || facts
            .deliveries_of(message)
            .any(|d| d.t_inv <= before && d.granted.0 <= before)
        || facts.hidden_receives(e.queue, published, before) > 0
        || facts
            .decisions_of(message)
            .any(|d| d.class != Class::Fail && d.t_inv <= before)
}
