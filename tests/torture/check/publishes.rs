//! What publishes made: ghosts (2), unknown ones (3), request ids and keys (4), batches (5).

use super::facts::{EPSILON, Entry, Facts, Index, NEVER, NONE, Said};
use super::verdict::Tallies;
use crate::history::{Class, Digest, Kind, MILLI, Nanos, SECOND};
use std::collections::{HashMap, HashSet};

pub(super) fn judge(facts: &Facts, tallies: &mut Tallies) {
    deliveries(facts, tallies);
    shown(facts, tallies);
    once_each(facts, tallies);
    dedupe(facts, tallies);
    batches(facts, tallies);
}

/// 2, 5: everything delivered was published, byte for byte, and nothing that was refused.
fn deliveries(facts: &Facts, tallies: &mut Tallies) {
    for d in &facts.deliveries {
        let named = |e: &Entry| e.message == d.message && !e.by_key;
        let told = facts.entries_of(d.message).any(named);
        let name = facts.messages.of(d.message);
        let same = || {
            let same = facts.with_digest(d.sha);
            same.filter(|e| e.queue == d.queue && e.len == d.len)
        };
        // A publish that got no answer may have made it before a repeat was told its id.
        let own = (!told || same().any(named))
            && same()
                .filter(|e| e.t_inv <= d.t_ret)
                .any(|e| named(e) || e.class == Class::Info);
        if own {
            tallies.of(2).kept(1);
            continue;
        }
        let like = facts.with_digest(d.sha).next();
        let refused = like.filter(|e| e.class == Class::Fail && !told);
        let (promise, what) = match (refused, like) {
            (Some(e), _) if e.of_batch => (5, format!("entry of batch {} that was refused", e.n)),
            (Some(e), _) => (2, format!("publish {} that was refused", e.n)),
            (None, Some(e)) if e.of_batch => (5, format!("payload of an entry of batch {}", e.n)),
            (None, Some(e)) => (2, format!("payload of publish {}", e.n)),
            (None, None) => (2, "payload that nobody published".to_owned()),
        };
        tallies.of(promise).check(false, || {
            format!("receive {} got {name} with the {what}", d.n)
        });
    }
}

/// 2: everything listed was published; ids that nobody was told of are at most as many as unknown publishes.
fn shown(facts: &Facts, tallies: &mut Tallies) {
    let mut strangers: HashMap<Index, HashSet<Index>> = HashMap::new();
    let mut first = HashMap::new();
    for seen in &facts.seen {
        let known = facts.entries_of(seen.message).next().is_some()
            || facts.deliveries_of(seen.message).next().is_some();
        if known || seen.queue == NONE {
            tallies.of(2).kept(1);
            continue;
        }
        strangers
            .entry(seen.queue)
            .or_default()
            .insert(seen.message);
        first.entry(seen.queue).or_insert(seen);
    }
    for (queue, ids) in strangers {
        let unknown = facts
            .entries
            .iter()
            .filter(|e| e.queue == queue && e.class == Class::Info)
            .count();
        tallies.of(2).check(ids.len() <= unknown, || {
            format!(
                "{} shows {} messages that nobody was told of, after {unknown} unknown publishes; the first is {} in operation {}",
                facts.queues.of(queue),
                ids.len(),
                facts.messages.of(first[&queue].message),
                first[&queue].n
            )
        });
    }
}

/// 3: one publish makes one message at most, and all publishes with one request id together as well.
fn once_each(facts: &Facts, tallies: &mut Tallies) {
    let told = facts
        .entries
        .iter()
        .filter(|e| e.message != NONE && !e.by_key)
        .map(|e| (e.queue, e.sha, e.message));
    let got = facts.deliveries.iter().map(|d| (d.queue, d.sha, d.message));
    let mut made: Vec<(Index, Digest, Index)> = told.chain(got).collect();
    made.sort_unstable();
    made.dedup();
    for same in made.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
        let (queue, sha, _) = same[0];
        let asked = || {
            facts
                .with_digest(sha)
                .filter(move |e| e.queue == queue && e.class != Class::Fail)
        };
        let unknown = asked().filter(|e| e.class == Class::Info).count();
        if unknown == 0 && same.len() == 1 {
            continue;
        }
        let named: HashSet<Index> = asked().map(|e| e.request).filter(|r| *r != NONE).collect();
        let plain = asked().filter(|e| e.request == NONE).count();
        // A request id that was free again may make a second one; that is promise 4's.
        let freed = named.len() == 1 && plain == 0 && same.len() > 1 && may_be_free(facts, same);
        tallies
            .of(3)
            .check(same.len() <= named.len() + plain || freed, || {
                let ids: Vec<_> = same.iter().map(|(_, _, m)| facts.messages.of(*m)).collect();
                format!(
                    "publish {} made {} messages: {}",
                    asked().next().map_or(0, |e| e.n),
                    same.len(),
                    ids.join(", ")
                )
            });
    }
}

fn may_be_free(facts: &Facts, same: &[(Index, Digest, Index)]) -> bool {
    let window = facts
        .policy(same[0].0)
        .map_or(NEVER, |p| p.dedupe_window_ms as Nanos * MILLI);
    let last = facts.entries.iter().map(|e| e.t_ret).max().unwrap_or(0);
    window <= last
}

/// 4: one request id, one message; one key of a `unique_key` queue, one message.
fn dedupe(facts: &Facts, tallies: &mut Tallies) {
    let mut groups: Vec<(Index, bool, Index, Index)> = Vec::new();
    for (at, e) in facts.entries.iter().enumerate() {
        let at = at as Index;
        if e.request != NONE {
            groups.push((e.queue, false, e.request, at));
        }
        if e.key != NONE && facts.policy(e.queue).is_some_and(|p| p.unique_key) {
            groups.push((e.queue, true, e.key, at));
        }
    }
    groups.sort_unstable();
    for group in groups.chunk_by(|a, b| (a.0, a.1, a.2) == (b.0, b.1, b.2)) {
        let by_key = group[0].1;
        let entries: Vec<&Entry> = group
            .iter()
            .map(|g| &facts.entries[g.3 as usize])
            .filter(|e| e.class != Class::Fail)
            .filter(|e| by_key || !e.by_key)
            .collect();
        one_message(facts, &entries, by_key, tallies);
    }
    listed_twins(facts, tallies);
}

/// 4: no listing shows another message under a request id than the one that publishes were told of.
fn listed_twins(facts: &Facts, tallies: &mut Tallies) {
    let mut told: HashMap<(Index, Index), &Entry> = HashMap::new();
    for e in &facts.entries {
        if e.request != NONE && e.message != NONE && !e.by_key {
            told.entry((e.queue, e.request)).or_insert(e);
        }
    }
    for seen in facts.seen.iter().filter(|s| s.request != NONE) {
        let Some(e) = told.get(&(seen.queue, seen.request)) else {
            continue;
        };
        let free = || gone_from(facts, e.message).is_some() && window_is_over(facts, e, seen.t_ret);
        let right =
            e.message == seen.message || facts.entries_of(seen.message).next().is_some() || free();
        tallies.of(4).check(right, || {
            format!(
                "request id {} in {}: publish {} was told {}, operation {} shows {} with it",
                facts.words.of(e.request),
                facts.queues.of(e.queue),
                e.n,
                facts.messages.of(e.message),
                seen.n,
                facts.messages.of(seen.message)
            )
        });
    }
}

/// Whether a whole window may have passed since the publish.
fn window_is_over(facts: &Facts, e: &Entry, now: Nanos) -> bool {
    facts
        .policy(e.queue)
        .is_none_or(|p| e.t_inv + p.dedupe_window_ms as Nanos * MILLI <= now)
}

fn one_message(facts: &Facts, entries: &[&Entry], by_key: bool, tallies: &mut Tallies) {
    let ok: Vec<&&Entry> = entries.iter().filter(|e| e.class == Class::Ok).collect();
    let Some(first) = ok.iter().min_by_key(|e| (e.deduplicated, e.t_ret)) else {
        return;
    };
    let word = || {
        let (what, word) = if by_key {
            ("key", first.key)
        } else {
            ("request id", first.request)
        };
        format!(
            "{what} {} in {}",
            facts.words.of(word),
            facts.queues.of(first.queue)
        )
    };
    for other in &ok {
        let same = other.message == first.message;
        tallies
            .of(4)
            .check(same || freed(facts, first, other, by_key), || {
                format!(
                    "{}: publish {} was told {}, publish {} {}",
                    word(),
                    first.n,
                    facts.messages.of(first.message),
                    other.n,
                    facts.messages.of(other.message)
                )
            });
        tallies
            .of(4)
            .check(by_key || other.sha == first.sha || !same, || {
                format!(
                    "{}: publishes {} and {} have different bodies and one answer",
                    word(),
                    first.n,
                    other.n
                )
            });
        tallies
            .of(4)
            .check(!kept_too_long(facts, other, by_key), || {
                format!(
                    "{}: publish {} is still told of a message that went long ago",
                    word(),
                    other.n
                )
            });
    }
    let of_first = ok.iter().filter(|e| e.message == first.message);
    let created = of_first.filter(|e| !e.deduplicated).count();
    let unknown = entries.iter().any(|e| e.class == Class::Info);
    tallies
        .of(4)
        .check(created <= 1 && (created == 1 || unknown), || {
            let numbers: Vec<String> = ok.iter().map(|e| e.n.to_string()).collect();
            format!(
                "{}: {created} of the publishes {} were told that theirs is the first",
                word(),
                numbers.join(", ")
            )
        });
}

/// Whether the first message may have been gone for a whole window when the other publish came.
fn freed(facts: &Facts, first: &Entry, other: &Entry, by_key: bool) -> bool {
    let (first, other) = if first.t_inv <= other.t_inv {
        (first, other)
    } else {
        (other, first)
    };
    let window = facts.policy(first.queue).and_then(|p| {
        if by_key {
            p.key_retention_ms
        } else {
            Some(p.dedupe_window_ms)
        }
    });
    let Some(window) = window else {
        return false;
    };
    gone_from(facts, first.message)
        .is_some_and(|gone| gone + window as Nanos * MILLI <= other.t_ret + EPSILON)
}

/// The earliest moment at which the message may have left.
pub(super) fn gone_from(facts: &Facts, message: Index) -> Option<Nanos> {
    let settles = facts
        .deliveries_of
        .get(message)
        .iter()
        .flat_map(|d| facts.settles_of(*d))
        .filter(|s| s.kind == Kind::Ack && !s.said.nothing())
        .map(|s| s.t_inv);
    let decided = facts
        .decisions_of(message)
        .filter(|d| matches!(d.kind, Kind::Discard | Kind::Cancel) && d.class != Class::Fail)
        .map(|d| d.t_inv);
    let queue = facts.entries_of(message).next().map_or(NONE, |e| e.queue);
    let all = facts
        .decisions_on(queue, Kind::Purge)
        .chain(
            facts
                .decisions_on(queue, Kind::RedriveMany)
                .filter(|d| d.discards),
        )
        .map(|d| d.t_inv);
    settles.chain(decided).chain(all).min()
}

/// A request id is free at most two windows and a minute after its message went.
fn kept_too_long(facts: &Facts, entry: &Entry, by_key: bool) -> bool {
    let Some(policy) = facts
        .policy(entry.queue)
        .filter(|_| !by_key && entry.deduplicated)
    else {
        return false;
    };
    let gone = facts
        .deliveries_of
        .get(entry.message)
        .iter()
        .flat_map(|d| facts.settles_of(*d))
        .filter(|s| matches!(s.said, Said::Acked))
        .map(|s| s.t_ret)
        .min();
    let free = 2 * policy.dedupe_window_ms as Nanos * MILLI + 60 * SECOND;
    gone.is_some_and(|gone| entry.t_inv > gone + free + EPSILON)
}

/// 5: results stand where their entries stood.
fn batches(facts: &Facts, tallies: &mut Tallies) {
    for e in facts.entries.iter().filter(|e| e.of_batch) {
        tallies.of(5).check(e.in_place, || {
            format!("batch {} has results that do not match its entries", e.n)
        });
    }
}
