//! No loss (1): after the drain every message that a publish was answered for is listed, or left by a way that is known.

use super::facts::{Facts, Index, NONE, Place, Said};
use super::verdict::Tallies;
use crate::history::{Class, Kind, Nanos};
use std::collections::{HashMap, HashSet};

/// All states that a listing is of.
pub(super) const PLACES: [Place; 4] = [Place::Delayed, Place::Ready, Place::Leased, Place::Dead];

/// Server and number of a pass of final listings.
pub(super) type Pass = (u32, Index);

/// Passes that listed every queue and state to the end, with the time in which they did.
pub(super) fn complete_passes(facts: &Facts) -> HashMap<Pass, (Nanos, Nanos)> {
    let mut listed: HashMap<Pass, HashSet<(Index, Place)>> = HashMap::new();
    let mut times: HashMap<Pass, (Nanos, Nanos)> = HashMap::new();
    for page in &facts.pages {
        let pass = (page.replica, page.pass);
        if page.last {
            listed
                .entry(pass)
                .or_default()
                .insert((page.queue, page.place));
        }
        let time = times.entry(pass).or_insert((page.t_inv, page.t_ret));
        *time = (time.0.min(page.t_inv), time.1.max(page.t_ret));
    }
    let used: HashSet<Index> = facts.entries.iter().map(|e| e.queue).collect();
    times.retain(|pass, _| {
        let whole = |queue: &Index| {
            let of = |place: &Place| {
                listed
                    .get(pass)
                    .is_some_and(|l| l.contains(&(*queue, *place)))
            };
            PLACES.iter().all(of)
        };
        used.iter().all(whole)
    });
    times
}

/// 1.
pub(super) fn judge(facts: &Facts, tallies: &mut Tallies) {
    let passes = complete_passes(facts);
    if passes.is_empty() {
        let why = "no complete listing after the drain";
        for n in [1, 17, 21] {
            tallies.of(n).cannot(why);
        }
        return;
    }
    let mut shown: HashMap<Index, Vec<Pass>> = HashMap::new();
    for seen in facts.seen.iter().filter(|s| s.kind == Kind::DrainList) {
        let of = shown.entry(seen.message).or_default();
        let pass = (seen.replica, seen.pass);
        if passes.contains_key(&pass) && !of.contains(&pass) {
            of.push(pass);
        }
    }
    let mut budget = discarded_many(facts);
    for message in 0..facts.messages.len() as Index {
        let Some(first) = facts.entries_of(message).find(|e| !e.by_key) else {
            continue;
        };
        let of = || facts.entries_of(message).filter(|e| !e.by_key);
        let told = of().map(|e| e.t_ret).min().unwrap_or(first.t_ret);
        // A repeat at the end may make a message that no listing can have.
        let due = passes.iter().filter(|(_, time)| time.0 > told);
        let has = |pass: &Pass| shown.get(&message).is_some_and(|s| s.contains(pass));
        let missing = due.filter(|(pass, _)| !has(pass)).count();
        if missing == 0 || may_be_gone(facts, message) {
            tallies.of(1).kept(1);
            continue;
        }
        let left = budget.entry(first.queue).or_default();
        if *left > 0 {
            *left -= 1;
            continue;
        }
        tallies.of(1).check(false, || {
            let deliveries = facts.deliveries_of.get(message).len();
            format!(
                "{} of publish {} in {}: {deliveries} deliveries, nothing ended it, missing in {missing} of {} listings",
                facts.messages.of(message),
                first.n,
                facts.queues.of(first.queue),
                passes.len()
            )
        });
    }
}

/// Whether an ack, an operator or a purge may have ended the message.
fn may_be_gone(facts: &Facts, message: Index) -> bool {
    let settles = facts
        .deliveries_of
        .get(message)
        .iter()
        .flat_map(|d| facts.settles_of(*d));
    // That it was settled already ends nothing: somebody else has to have done that.
    let acked = settles.into_iter().any(|s| match s.said {
        Said::AckedSuperseded => true,
        Said::Already | Said::Nonsense => false,
        said => s.kind == Kind::Ack && !said.nothing(),
    });
    acked || decided_away(facts, message) || purged(facts, message)
}

fn decided_away(facts: &Facts, message: Index) -> bool {
    facts.decisions_of(message).any(|d| {
        d.class != Class::Fail
            && (matches!(d.kind, Kind::Discard | Kind::Cancel) || d.acked_superseded)
    })
}

/// A purge takes nothing that was published after its answer.
fn purged(facts: &Facts, message: Index) -> bool {
    let of = || facts.entries_of(message).filter(|e| !e.by_key);
    let published = of().map(|e| e.t_inv).min().unwrap_or(0);
    let queue = of().next().map_or(NONE, |e| e.queue);
    facts.may_be_purged(queue, published, Nanos::MAX)
}

/// How many messages of each queue decisions about many may have discarded.
fn discarded_many(facts: &Facts) -> HashMap<Index, u64> {
    let mut most: HashMap<(Index, Index), u64> = HashMap::new();
    let many = facts
        .decisions
        .iter()
        .filter(|d| d.kind == Kind::RedriveMany && d.discards && d.class != Class::Fail);
    for d in many {
        let bound = d.max.map_or(u64::MAX, u64::from);
        let key = if d.request == NONE {
            d.n as Index
        } else {
            d.request
        };
        most.insert((d.queue, key), bound);
    }
    let mut budget: HashMap<Index, u64> = HashMap::new();
    for ((queue, _), bound) in most {
        let sum = budget.entry(queue).or_default();
        *sum = sum.saturating_add(bound);
    }
    budget
}
