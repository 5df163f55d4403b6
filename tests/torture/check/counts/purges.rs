//! What a purge answers: it took at least what surely waited.

use crate::check::facts::{Decision, Entry, Facts, Index};
use crate::check::verdict::Tallies;
use crate::history::{Class, Kind, Nanos};

/// 21: what was published before the purge, after the ones before it, and was never touched, is among what it took.
pub(super) fn judge(facts: &Facts, tallies: &mut Tallies) {
    let purges = facts.decisions.iter().filter(|d| d.kind == Kind::Purge);
    for purge in purges.filter(|d| d.class == Class::Ok && !d.replayed) {
        let Some(took) = purge.moved else { continue };
        if !alone(facts, purge) {
            continue;
        }
        let waited = waiting(facts, purge);
        tallies.of(21).check(took >= waited.len() as u64, || {
            format!(
                "purge {} of {} took {took} messages, {} were there, {} among them",
                purge.n,
                facts.queues.of(purge.queue),
                waited.len(),
                waited.first().map_or("?", |m| facts.messages.of(*m))
            )
        });
    }
}

/// Nobody else purged the queue at the same time, or repeated this call.
fn alone(facts: &Facts, purge: &Decision) -> bool {
    let mut others = facts
        .decisions_on(purge.queue, Kind::Purge)
        .filter(|d| d.n != purge.n);
    !others.any(|d| d.t_inv <= purge.t_ret && d.t_ret.max(d.until) >= purge.t_inv)
}

/// Messages that surely waited when the purge came.
fn waiting(facts: &Facts, purge: &Decision) -> Vec<Index> {
    let fits = |e: &&Entry| {
        e.queue == purge.queue
            && e.class == Class::Ok
            && !e.by_key
            && !e.deduplicated
            && e.expires_in_ms.is_none()
            && e.t_ret < purge.t_inv
    };
    let new = facts.entries.iter().filter(fits);
    let mut waited: Vec<Index> = new
        .filter(|e| {
            let made = facts.entries_of(e.message).map(|e| e.t_inv).min();
            untouched(facts, e, made.unwrap_or(0), purge)
        })
        .map(|e| e.message)
        .collect();
    waited.sort_unstable();
    waited.dedup();
    waited
}

fn untouched(facts: &Facts, e: &Entry, made: Nanos, purge: &Decision) -> bool {
    let delivered = facts
        .deliveries_of(e.message)
        .any(|d| d.t_inv <= purge.t_ret);
    let decided = facts
        .decisions_of(e.message)
        .any(|d| d.class != Class::Fail && d.t_inv <= purge.t_ret);
    !delivered
        && !decided
        && !facts.may_be_purged(e.queue, made, purge.t_inv - 1)
        && !facts.may_be_decided(e.queue, made, purge.t_ret)
        && facts.hidden_receives(e.queue, made, purge.t_ret) == 0
}
