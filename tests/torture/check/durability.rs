//! What a broken disk or clock may not change: durability (24), fail-stop (25), clocks (28). Judged with what the other
//! promises found, so this comes last.

use super::facts::Facts;
use super::verdict::Tallies;
use crate::history::{Fault, Happened, MILLI, Nanos};

/// What a write that was lost shows as.
const LOST: [u8; 6] = [1, 4, 7, 10, 15, 21];

/// What a wrong clock would show as.
const MISTIMED: [u8; 8] = [4, 6, 7, 10, 15, 18, 21, 23];

pub(super) fn judge(facts: &Facts, tallies: &mut Tallies) {
    after_power_cuts(facts, tallies);
    after_failed_syncs(facts, tallies);
    after_full_disks(facts, tallies);
    tallies.of(28).cannot("no server had a wrong clock");
    let clocks = of_kind(facts, "clock").count() as u64;
    if clocks > 0 {
        inherit(28, &MISTIMED, clocks, tallies);
    }
}

fn of_kind<'a>(facts: &'a Facts, kind: &'a str) -> impl Iterator<Item = &'a Fault> {
    let happened = facts.faults.iter().filter(|f| !f.skipped);
    happened.filter(move |f| f.kind.starts_with(kind))
}

/// Promise `n` holds `checked` times unless one of `from` does not.
fn inherit(n: u8, from: &[u8], checked: u64, tallies: &mut Tallies) {
    tallies.of(n).kept(checked);
    for other in from {
        for _ in 0..tallies.broken(*other).min(1) {
            let example = tallies.of(*other).examples().first().cloned();
            let say = || format!("promise {other}: {}", example.unwrap_or_default());
            tallies.of(n).check(false, say);
        }
    }
}

/// 24: what was answered before the last cut had to be there after it.
fn after_power_cuts(facts: &Facts, tallies: &mut Tallies) {
    tallies.of(24).cannot("no power was cut");
    let Some(last) = of_kind(facts, "power_cut").map(|f| f.t_begin).max() else {
        return;
    };
    let before = facts.writes.iter().filter(|w| w.2 < last).count() as u64;
    inherit(24, &LOST, before, tallies);
}

/// 25: a fault of this kind begins when a sync has surely failed.
fn after_failed_syncs(facts: &Facts, tallies: &mut Tallies) {
    tallies.of(25).cannot("no sync failed and no disk was full");
    for fault in of_kind(facts, "fsync_error") {
        for (replica, until) in lives(facts, fault) {
            let late = facts
                .writes
                .iter()
                .find(|w| w.0 == replica && w.1 > fault.t_begin && w.1 < until);
            tallies.of(25).check(late.is_none(), || {
                let t = late.map_or(0, |w| w.2) / MILLI;
                format!(
                    "server {replica} answered ok at {t} ms although a sync had failed at {} ms",
                    fault.t_begin / MILLI
                )
            });
        }
    }
}

/// 25: it recovers by itself when space returns.
fn after_full_disks(facts: &Facts, tallies: &mut Tallies) {
    for fault in of_kind(facts, "disk_full") {
        let patience = fault.t_end + 10_000 * MILLI;
        for (replica, until) in lives(facts, fault) {
            if until < patience {
                continue;
            }
            let recovered = facts
                .writes
                .iter()
                .any(|w| w.0 == replica && w.1 > fault.t_end && w.1 < until);
            tallies.of(25).check(recovered, || {
                format!(
                    "server {replica} wrote nothing after its disk had space again at {} ms",
                    fault.t_end / MILLI
                )
            });
        }
    }
}

/// Servers that a fault meant, each with the start of its next process.
fn lives<'a>(facts: &'a Facts, fault: &'a Fault) -> impl Iterator<Item = (u32, Nanos)> + 'a {
    let meant = fault
        .target
        .strip_prefix("replica ")
        .and_then(|n| n.parse().ok());
    let all = 0..facts.header.replicas.max(1);
    all.filter(move |replica| meant.is_none_or(|n: u32| n == *replica))
        .map(move |replica| {
            let next = facts.events.iter().find(|e| {
                e.kind == Happened::Started && e.replica == Some(replica) && e.t > fault.t_begin
            });
            (replica, next.map_or(Nanos::MAX, |e| e.t))
        })
}
